"""Calls: which callables are followed, recorded in the graph, handled, executed, or break the
graph.

`CALL`, a table by type of the callee, leads here. A Python function goes through `call_function`,
anything that is known completely (a class, a C function) through `call_constant`, a C method of a
value through `call_builtin_method`. Each tries its possibilities in a fixed order, and the first
one that applies decides:

    torch.relu(x)          an operation: run on fakes, a node of the graph
    [].append(x)           a handler of `library`: changes the list's value
    math.sqrt(2.0)         pure, with known arguments: executed
    module(x), helper(x)   Python code: followed in a frame of its own
    os.listdir(".")        none of these: a graph break
"""

from __future__ import annotations

import inspect
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pliant.capture import overrides, torch_calls
from pliant.capture.directives import (
    handler_of,
    has_constant_result,
    is_allowed_in_graph,
    is_disabled,
    is_followed,
    substitute_of,
)
from pliant.capture.frame import Frame
from pliant.capture.interpreter import run_frame
from pliant.capture.library.python.classes import instantiate
from pliant.capture.library.torch.custom_functions import constant_result, opaque_call
from pliant.capture.model import (
    CALL,
    FOLDABLE,
    NATIVE_VALUES,
    call,
    set_attribute,
    special,
    type_name,
)
from pliant.capture.native import BY_CODE, FUNCTIONS, METHODS, PURE, SHORTCUTS
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Const, NotConstant, Raised, Value, is_constant
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.functions import (
    BuiltinMethod,
    CompiledFunction,
    FunctionValue,
    named,
)
from pliant.capture.values.generators import GeneratorValue
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.objects import Opaque
from pliant.capture.values.tensors import TensorValue

DYNAMO_DISABLED = torch._disable_dynamo(lambda: None).__code__
GENERIC_ALIASES = (types.GenericAlias, typing._GenericAlias)  # type: ignore[attr-defined]
NATIVE_METHODS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
NO_RECEIVERS = (type(None), types.ModuleType, type)
SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE  # what a call makes, and does not run yet


def call_function(
    trace: Trace, target: FunctionValue, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    """Call a Python function: by its handler if it has one, as an operation if it is PyTorch's,
    otherwise by following its code.

    `direct` says that the result is what the caller's instruction pushes, so that a graph break in
    the callee can resume both frames.
    """
    # The order matters: shortcuts and handlers win over marks of the user, marks over the list of
    # modules that are not followed, and only what is left can be an operation.
    # By code: functions defined inside of others, as wrappers of PyTorch's, are new objects each
    # time.
    inner = BY_CODE.get(target.code)
    if inner is not None:
        result = inner(trace, target, args, kwargs, direct)
        if result is not None:
            return result
    # Functions made during the capture have no `real`: no mark, no handler, only their code.
    overridden = target.real is not None and _is_overridden(trace, target.real, args, kwargs)
    if target.real is not None and not overridden:
        shortcut = SHORTCUTS.get(target.real) or wrapper_of(target)
        if shortcut is not None:
            result = shortcut(trace, args, kwargs, direct)
            if result is not None:
                return result
        handler = handler_of(target.real)
        if handler is not None:
            return run_handler(trace, handler, target, args, kwargs)
        if is_disabled(target.real):
            raise Break("disabled", target.qualname)
        marked = call_marked(trace, target.real, target, args, kwargs, direct)
        if marked is not None:
            return marked
        if not is_followed(target.real):
            raise Break("not-followed", f"{target.real.__module__}.{target.qualname}")
        if torch_calls.is_operation(target.real):
            return torch_calls.call_plain_operation(trace, target.real, args, kwargs)
    # What is left is followed: a frame of its own, with the arguments as its variables.
    if target.code.co_flags & inspect.CO_ASYNC_GENERATOR:
        raise Break("coroutine", target.qualname)
    # The program's limit, not that of capture, which needs several frames for each of its.
    if len(trace.frames) > trace.depth_limit:
        trace.throw(RecursionError("maximum recursion depth exceeded"))
    variables = bind(trace, target, args, kwargs)
    frame = Frame(target.code, target.globals, variables, target.closure(trace), target, direct)
    # Calling it runs nothing yet.
    if target.code.co_flags & SUSPENDED:
        return GeneratorValue(frame)
    return run_frame(trace, frame)


def _is_overridden(trace: Trace, real: Any, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether a mode or a class overrides this Python function of PyTorch. Then its code is
    followed, because it begins with the call of `__torch_function__`."""
    if real.__module__ not in torch_calls.PYTHON_MODULES or real.__name__ == "__torch_function__":
        return False
    return overrides.overriders_of(trace, args, kwargs) is not None


def call_marked(
    trace: Trace,
    real: Any,
    target: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    direct: bool,
) -> Value | None:
    """Call a function that the user has given a mark; None if it has none."""
    instead = substitute_of(real)
    if instead is not None:
        return call(trace, trace.wrap_pinned(instead), args, kwargs, direct)
    if is_allowed_in_graph(real):
        return opaque_call(trace, real, args, kwargs, keep=True)
    if has_constant_result(real):
        return constant_result(trace, real, args, kwargs)
    original = getattr(real, "_torchdynamo_orig_callable", None)  # by torch.compile
    if original is not None and isinstance(target, FunctionValue):
        wrapped = target.instance_attribute(trace, "_torchdynamo_orig_callable")
        return None if wrapped is None else call(trace, wrapped, args, kwargs, direct)
    return None


def wrapper_of(target: FunctionValue) -> Callable[..., Value | None] | None:
    """A way past `torch._disable_dynamo`, PyTorch's decorator that keeps functions from its own
    compiler: it calls the function inside the wrapper. None for other functions."""
    if target.code is not DYNAMO_DISABLED:
        return None

    def call_wrapped(
        trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
    ) -> Value | None:
        wrapped = target.closure(trace)[DYNAMO_DISABLED.co_freevars.index("fn")].contents
        return None if wrapped is None else call(trace, wrapped, args, kwargs, direct)

    return call_wrapped


def bind(
    trace: Trace, target: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> dict[str, Value]:
    """The variables of a called function: arguments bound to parameters as Python does, with
    `*args`, `**kwargs` and defaults. Raises the program's TypeError where they don't fit."""
    code = target.code
    names = code.co_varnames
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    variables = dict(zip(names[:count], args, strict=False))
    # Behind the parameters, `co_varnames` has the names of `*args` and `**kwargs`, in this order.
    place = count + keyword_only
    if code.co_flags & inspect.CO_VARARGS:
        variables[names[place]] = Sequence(tuple, args[count:])
        place += 1
    elif len(args) > count:
        _refuse(trace, target, args, kwargs)
    extra = _bind_keywords(trace, target, variables, args, kwargs)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        variables[names[place]] = Mapping(dict, dict(extra))
    elif extra:
        _refuse(trace, target, args, kwargs)
    if not _bind_defaults(trace, target, variables):
        _refuse(trace, target, args, kwargs)
    return variables


def _refuse(
    trace: Trace, target: FunctionValue, args: list[Value], kwargs: dict[str, Value]
) -> NoReturn:
    """Raise the TypeError for arguments that don't fit: call a stub, which has the signature of the
    function and does nothing."""
    code = target.code
    empty = nothing.__code__
    stub = code.replace(
        co_code=empty.co_code, co_consts=empty.co_consts, co_names=(), co_freevars=(),
        co_cellvars=(), co_varnames=code.co_varnames, co_exceptiontable=b"", co_stacksize=2,
        co_flags=code.co_flags & ~inspect.CO_GENERATOR,
    )  # fmt: skip
    # Python itself words the TypeError, so that it is the one of this version.
    function = types.FunctionType(stub, {}, target.name)
    function.__qualname__ = target.qualname
    function.__defaults__ = tuple(None for _ in target.default_values(trace))
    function.__kwdefaults__ = dict.fromkeys(target.keyword_defaults(trace))
    try:
        function(*args, **kwargs)
    except TypeError as error:
        trace.throw(error)
    raise Break("bad-arguments", f"{target.qualname}()")


def nothing() -> None:
    return None


def _bind_keywords(
    trace: Trace,
    target: FunctionValue,
    variables: dict[str, Value],
    args: list[Value],
    kwargs: dict[str, Value],
) -> dict[str, Value]:
    """Bind keyword arguments; those that name no parameter are returned."""
    code = target.code
    first = code.co_posonlyargcount
    # Positional-only parameters (`def f(x, /)`) can't be named.
    accepted = code.co_varnames[first : code.co_argcount + code.co_kwonlyargcount]
    extra = {}
    for name, value in kwargs.items():
        if name not in accepted:
            extra[name] = value
        elif name in variables:
            _refuse(trace, target, args, kwargs)
        else:
            variables[name] = value
    return extra


def _bind_defaults(trace: Trace, target: FunctionValue, variables: dict[str, Value]) -> bool:
    """Fill parameters without an argument from the defaults; whether every parameter has a value
    then."""
    code = target.code
    count = code.co_argcount
    positional = code.co_varnames[:count]
    if any(name not in variables for name in positional):
        defaults = target.default_values(trace)
        # Defaults belong to the last parameters. `setdefault` leaves those that have an argument.
        for name, value in zip(reversed(positional), reversed(defaults), strict=False):
            variables.setdefault(name, value)
    keyword_only = code.co_varnames[count : count + code.co_kwonlyargcount]
    if any(name not in variables for name in keyword_only):
        keyword_defaults = target.keyword_defaults(trace)
        for name in keyword_only:
            if name in keyword_defaults:
                variables.setdefault(name, keyword_defaults[name])
    return all(name in variables for name in (*positional, *keyword_only))


def run_handler(
    trace: Trace, handler: Any, target: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call a handler of `library`. Its Python signature is that of the function it stands for, so
    arguments that it refuses are an error of the program."""
    try:
        return handler(trace, *args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is not None and _is_refused(error.__traceback__):
            _ask_python(trace, target, args, kwargs)
            raise Break("bad-arguments", f"{named(target)}: {error}") from error
        raise
    except NotConstant as error:
        raise Break("not-constant", named(target)) from error


def _is_refused(traceback: types.TracebackType) -> bool:
    """Whether a TypeError came from the call of the handler itself, before any line of it ran. Some
    handlers are called by a lambda, which adds one frame."""
    inner = traceback.tb_next
    by_lambda = inner is not None and inner.tb_frame.f_code.co_name == "<lambda>"
    return inner is None or (by_lambda and inner.tb_next is None)


# C code that has no effects but on its arguments.
_ASKED_MODULES = ("_operator", "itertools", "math", "_collections", "_functools")
_ASKED_BUILTINS = frozenset(
    {abs, all, any, bin, callable, chr, divmod, enumerate, filter, format, getattr, hasattr, hash,
     hex, id, isinstance, issubclass, iter, len, map, max, min, next, oct, ord, pow, range, repr,
     reversed, round, setattr, sorted, sum, super, type, zip}
)  # fmt: skip
_ASKED_CLASSES = frozenset(
    {list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, complex, bool, range,
     slice, deque, OrderedDict, defaultdict, object}
)  # fmt: skip


def _is_asked(target: Value) -> Any:
    """The real C function or method behind a value, if it has no effects but on its arguments, so
    that it may be called for its error message. None for others."""
    if isinstance(target, BuiltinMethod):
        return target.descriptor if target.owner in _ASKED_CLASSES else None
    real = target.value if isinstance(target, Const) else None
    if getattr(real, "__objclass__", None) in _ASKED_CLASSES:
        return real
    if isinstance(real, types.BuiltinFunctionType) and isinstance(real.__self__, type):
        return real if real.__self__ in _ASKED_CLASSES else None
    module = getattr(real, "__module__", None)
    try:
        is_listed = real in _ASKED_BUILTINS or real in _ASKED_CLASSES or module in _ASKED_MODULES
    except TypeError:  # unhashable
        return None
    return real if is_listed else None


def _ask_python(trace: Trace, target: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    """Raise the error that Python has for these arguments, if they are too many, too few, or have
    other names.

    The real C function is called for that. It checks the shape of the call first, so an argument
    that is not known completely may be any object. Returns where the call succeeds or fails in
    another way.
    """
    real = _is_asked(target)
    if real is None:
        return
    real_args = [_stand_in(trace, arg) for arg in args]
    owner = getattr(real, "__objclass__", None)
    if owner is not None and args and issubclass(trace.read(args[0]).python_type(), owner):
        # Methods check their receiver first, so it has to be of the right class.
        real_args[0] = object.__new__(owner) if owner is object else owner()
    try:
        real(*real_args, **{name: _stand_in(trace, arg) for name, arg in kwargs.items()})
    # Only errors about the shape of the call: others may be about the stand-ins.
    except TypeError as error:
        if "argument" in str(error) or "descriptor" in str(error):
            trace.throw(error)
    except Exception:  # the handler knows less than Python: not an error of the program
        return


def _stand_in(trace: Trace, value: Value) -> Any:
    """The real object of an argument, or any object where that isn't known."""
    try:
        return known_object(value, trace)
    except NotConstant:
        return object()


def call_builtin_method(
    trace: Trace, target: BuiltinMethod, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    """Call a C method of a value: its handler, a tensor operation, or the real method on
    constants."""
    handler = METHODS.get((target.owner, target.name))
    obj = trace.read(target.obj)
    # Its state isn't known, so not even a pure method of it can be run.
    if isinstance(obj, Opaque):
        code = "outside-iterator" if target.name == "__next__" else "opaque-object"
        raise Break(code, f"{target.owner.__name__}.{target.name}")
    if target.owner is overrides.TensorBase:
        result = overrides.call_method(trace, target.name, obj, args, kwargs)
        if result is not None:
            return result
    if handler is not None:
        return run_handler(trace, handler, target, [obj, *args], kwargs)
    if isinstance(obj, TensorValue):
        return torch_calls.call_tensor_method(trace, target.name, obj, args, kwargs)
    foldable = obj.python_type() in FOLDABLE or target.owner in FOLDABLE
    if foldable and isinstance(obj, GraphObject) and is_constant(obj):
        obj = Const(obj.constant())
    if foldable and isinstance(obj, Const):
        return call_pure(trace, target.descriptor, [obj, *args], kwargs, target)
    raise Break("unsupported-method", f"{target.owner.__name__}.{target.name}")


def call_pure(
    trace: Trace, function: Any, args: list[Value], kwargs: dict[str, Value], target: Value
) -> Value:
    """Run C code that depends on nothing but its arguments, if all of them are known."""
    try:
        real_args = [known_object(arg, trace) for arg in args]
        real_kwargs = {name: known_object(arg, trace) for name, arg in kwargs.items()}
    except NotConstant as error:
        raise Break("not-constant", named(target)) from error
    # What it raises for these arguments, it raises in the program.
    try:
        result = function(*real_args, **real_kwargs)
    except Exception as error:
        trace.throw(error)
    return from_real(trace, result)


# ---- calls of what is known


def call_constant(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    """Call a built-in function, a class, or another callable object that is known."""
    for way in CONSTANT_CALLS:
        result = way(trace, target, args, kwargs, direct)
        if result is not None:
            return result
    if not callable(target.value):
        trace.throw(TypeError(f"'{type_name(type(target.value))}' object is not callable"))
    raise Break("unsupported-function", named(target))


def _call_substitute(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    substitute = substitute_of(target.value)
    if substitute is None:
        return None
    return call(trace, trace.wrap_pinned(substitute), args, kwargs, direct)


def _call_handler(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    real = target.value
    handler = _handler_of(real)
    if handler is None:
        return None
    if torch_calls.is_operation(real) and real not in torch_calls.QUERIES:
        overriders = overrides.overriders_of_call(trace, real, args, kwargs)
        if overriders is not None:
            return overrides.dispatch(trace, target, overriders, args, kwargs or None)
    return run_handler(trace, handler, target, args, kwargs)


def _call_class(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    if not isinstance(target.value, type):
        return None
    return instantiate(trace, target, args, kwargs, direct)


def _call_operation(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    if torch_calls.is_operation(target.value):
        return torch_calls.call_operation(trace, target.value, args, kwargs)
    if overrides.is_accessor(target.value):
        return torch_calls.call_accessor(trace, target.value, args)
    return None


def _call_descriptor(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`list.append(x, 1)`, `torch.Tensor.add(x, y)`."""
    real = target.value
    if not isinstance(real, NATIVE_METHODS) or not args:
        return None
    owner = real.__objclass__
    first = trace.read(args[0])
    if not issubclass(first.python_type(), owner):
        _ask_python(trace, target, args, kwargs)
        raise Break("bad-arguments", named(target))
    bound = BuiltinMethod(owner, real.__name__, real, first)
    return call_builtin_method(trace, bound, args[1:], kwargs, direct)


def _call_pure(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    return call_pure(trace, target.value, args, kwargs, target) if _is_pure(target.value) else None


def _call_on_native_value(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """A method of a C++ object that never changes."""
    if not isinstance(target.value, types.BuiltinFunctionType) or not args:
        return None
    receiver = trace.read(args[0])
    if receiver.python_type() not in NATIVE_VALUES:
        return None
    return call_pure(trace, target.value, [receiver, *args[1:]], kwargs, target)


def _call_marked(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    return call_marked(trace, target.value, target, args, kwargs, direct)


def _call_method(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """A static method, or a Python function bound to an object."""
    real = target.value
    if isinstance(real, staticmethod):
        return call(trace, trace.wrap_pinned(real.__func__), args, kwargs, direct)
    if isinstance(real, types.MethodType):
        args = [trace.wrap_pinned(real.__self__), *args]
        return call(trace, trace.wrap_pinned(real.__func__), args, kwargs, direct)
    return None


def _call_slot_wrapper(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """A special method of a C class that is bound to an object: `(3).__add__`."""
    if not isinstance(target.value, types.MethodWrapperType):
        return None
    return _call_bound_native(trace, target, args, kwargs, direct)


def _call_native_method(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """A method of a C class that is bound to an object: `re.compile("a").search`."""
    real = target.value
    if not isinstance(real, types.BuiltinFunctionType) or type(real.__self__) in NO_RECEIVERS:
        return None
    return _call_bound_native(trace, target, args, kwargs, direct)


def _call_alias(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`Box[int](...)` is `Box(...)`, whose instances remember the alias if they can."""
    if not isinstance(target.value, GENERIC_ALIASES):
        return None
    instance = call(trace, Const(target.value.__origin__), args, kwargs)
    # Not every class takes attributes: `list[int]()` has no `__orig_class__`.
    try:
        set_attribute(trace, instance, "__orig_class__", target)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError | TypeError):
            raise
    return instance


def _call_object(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """An object of a class with a `__call__`, such as a member of an enumeration."""
    if not isinstance(trace.lookup(type(target.value), "__call__"), types.FunctionType):
        return None
    return call(trace, special(trace, target, "__call__"), args, kwargs, direct)


# The kinds of callable, in the order in which they are tried: each gives None for another kind.
CONSTANT_CALLS: tuple[Callable[..., Value | None], ...] = (
    _call_substitute,
    _call_handler,
    _call_class,
    _call_operation,
    _call_slot_wrapper,
    _call_descriptor,
    _call_pure,
    _call_on_native_value,
    _call_marked,
    _call_method,
    _call_native_method,
    _call_alias,
    _call_object,
)


def _call_bound_native(
    trace: Trace, target: Const, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    real = target.value
    descriptor = trace.lookup(type(real.__self__), real.__name__)
    if not isinstance(descriptor, types.MethodDescriptorType | types.WrapperDescriptorType):
        raise Break("unsupported-function", named(target))
    receiver = trace.wrap_pinned(real.__self__)
    bound = BuiltinMethod(descriptor.__objclass__, real.__name__, descriptor, receiver)
    return call_builtin_method(trace, bound, args, kwargs, direct)


def _handler_of(real: Any) -> Any:
    try:
        handler = FUNCTIONS.get(real)
    except TypeError:  # unhashable
        return None
    if handler is None and isinstance(real, types.BuiltinFunctionType):
        owner = real.__self__
        if isinstance(owner, type):  # a class method or __new__ of a built-in class
            handler = _class_method(owner, real.__name__)
    return handler


def _class_method(owner: type, name: str) -> Any:
    handler = METHODS.get((owner, name))
    if name == "__new__":
        return handler
    for base in owner.__mro__:  # dict.fromkeys is a method of defaultdict too
        if handler is None and isinstance(vars(base).get(name), types.ClassMethodDescriptorType):
            handler = METHODS.get((base, name))
    if handler is None:
        return None
    return lambda trace, *args, **kwargs: handler(trace, Const(owner), *args, **kwargs)


def _is_pure(real: Any) -> bool:
    try:
        if real in PURE:
            return True
    except TypeError:
        return False
    receiver = getattr(real, "__self__", None)
    return isinstance(real, types.BuiltinFunctionType) and type(receiver) in FOLDABLE


def call_compiled(
    trace: Trace,
    target: CompiledFunction,
    args: list[Value],
    kwargs: dict[str, Value],
    direct: bool,
) -> Value:
    """Call a compiled function from a function that is captured: it is followed as part of the
    latter. The promise of its `fullgraph=True` holds inside."""
    before = trace.error_on_break
    trace.error_on_break = before or target.fullgraph
    try:
        return call(trace, target.function, args, kwargs, direct)
    finally:
        trace.error_on_break = before


CALL[FunctionValue] = call_function
CALL[CompiledFunction] = call_compiled
CALL[BuiltinMethod] = call_builtin_method
CALL[Const] = call_constant
