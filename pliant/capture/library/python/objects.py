"""Objects as such: attribute functions, what all inherit from `object`, text, small classes.

Text is made by the rules of the language: `str`, `repr` and `format` look the special method up on
the class. What would show the address of an object made here (the default `repr`) is not known
during capture and breaks the graph; one from outside is assumed to be the same object.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.base.python_errors import no_attribute
from pliant.capture.attributes import (
    has_attribute,
    no_class_attribute,
    stored_class_attribute,
)
from pliant.capture.library.python.classes import class_of, is_callable, real_object
from pliant.capture.model import (
    CALL,
    GET,
    OPERATE,
    ask_owner,
    bind_descriptor,
    call,
    call_special,
    compare,
    drain,
    generic_set_attribute,
    get_attribute,
    same_object,
    set_attribute,
    stored_attribute,
    truth,
    type_name,
)
from pliant.capture.native import BY_CODE, function, method
from pliant.capture.value import (
    NONE,
    NOT_IMPLEMENTED,
    TRUE,
    Break,
    Const,
    Raised,
    Value,
    boolean,
    is_constant,
    is_followed,
)
from pliant.capture.values.containers import (
    Mapping,
    Sequence,
    SetValue,
    instance_dict,
    plain_list,
    value_of_key,
)
from pliant.capture.values.functions import BoundMethod, FunctionValue
from pliant.capture.values.objects import ExceptionValue, Instance, Opaque, Super
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.source import Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


Shower = Callable[["Trace", Any], str]  # makes the text of an object


# ---- attributes by name


def _attribute_name(trace: Trace, name: Value) -> str:
    real = trace.read(name).constant()
    if not isinstance(real, str):
        kind = type_name(type(real))
        trace.throw(TypeError(f"attribute name must be string, not '{kind}'"))
    return real


@function(getattr)
def builtin_getattr(trace: Trace, obj: Value, name: Value, *default: Value) -> Value:
    try:
        return get_attribute(trace, obj, _attribute_name(trace, name))
    except Raised as raised:
        if default and issubclass(raised.value.python_type(), AttributeError):
            return default[0]
        raise


@function(hasattr)
def builtin_hasattr(trace: Trace, obj: Value, name: Value) -> Value:
    return boolean(has_attribute(trace, obj, _attribute_name(trace, name)))


@function(setattr)
def builtin_setattr(trace: Trace, obj: Value, name: Value, value: Value) -> Value:
    set_attribute(trace, obj, _attribute_name(trace, name), value)
    return NONE


@function(delattr)
def builtin_delattr(trace: Trace, obj: Value, name: Value) -> Value:
    set_attribute(trace, obj, _attribute_name(trace, name), None)
    return NONE


@function(vars)
def builtin_vars(trace: Trace, *args: Value) -> Value:
    if not args:
        return builtin_locals(trace)
    if len(args) > 1:
        raise Break("bad-arguments", "vars()")  # Python makes the error
    obj = trace.read(args[0])
    if isinstance(obj, Instance) and obj.has_dict:
        return instance_dict(trace, obj)
    try:
        return get_attribute(trace, obj, "__dict__")
    except Raised:
        trace.throw(TypeError("vars() argument must have __dict__ attribute"))


def instance_namespace(trace: Trace, obj: Instance, name: str) -> Value | None:
    """`obj.__dict__`; every other attribute is found by the general rules."""
    return instance_dict(trace, obj) if name == "__dict__" and obj.has_dict else None


GET[Instance] = instance_namespace
GET[ExceptionValue] = instance_namespace


@function(locals)
def builtin_locals(trace: Trace) -> Value:
    """A snapshot of the variables. Writing to it changes no variable, in Python either."""
    frame = trace.frames[-1]
    if frame.code.co_name == "<module>":
        raise Break("unsupported", "locals() of a module")
    variables = dict(frame.locals)
    for name, cell in frame.cells.items():
        if cell.contents is not None:
            variables[name] = cell.contents
    order = dict.fromkeys(
        (*frame.code.co_varnames, *frame.code.co_cellvars, *frame.code.co_freevars)
    )
    return Mapping(dict, {name: variables[name] for name in order if name in variables})


@function(globals)
def builtin_globals(trace: Trace) -> Value:
    namespace = trace.frames[-1].globals
    return trace.wrap(namespace, Fixed(namespace, f"G<{namespace.get('__name__', '?')}>"))


@function(dir)
def builtin_dir(trace: Trace, *args: Value) -> Value:
    if not args:
        names = builtin_locals(trace)
        assert isinstance(names, Mapping)
        return plain_list([Const(name) for name in sorted(names.items)])
    obj = trace.read(args[0])
    if isinstance(obj, Const) and not is_followed(trace, obj, "__dir__"):
        return plain_list([Const(name) for name in dir(obj.value)])
    listing = call_special(trace, obj, "__dir__")
    assert listing is not None  # object has one
    listed = [trace.read(name).constant() for name in drain(trace, listing)]
    return plain_list([Const(name) for name in sorted(listed)])


# ---- what every object has


@method(object, "__getattribute__")
def object_getattribute(trace: Trace, obj: Value, name: Value) -> Value:
    obj, attribute_name = trace.read(obj), _attribute_name(trace, name)
    attribute = stored_attribute(trace, obj, attribute_name)
    if attribute is None:
        trace.throw(no_attribute(obj.python_type(), attribute_name))
    return attribute


@method(type, "__getattribute__")
def type_getattribute(trace: Trace, obj: Value, name: Value) -> Value:
    obj, attribute_name = trace.read(obj), _attribute_name(trace, name)
    if not isinstance(obj, Const):
        raise Break("unsupported", "attributes of a class that is no constant")
    attribute = stored_class_attribute(trace, obj, attribute_name)
    if attribute is None:
        trace.throw(no_class_attribute(obj.value, attribute_name))
    return attribute


@method(object, "__setattr__")
def object_setattr(trace: Trace, obj: Value, name: Value, value: Value) -> Value:
    generic_set_attribute(trace, trace.read(obj), _attribute_name(trace, name), value)
    return NONE


@method(object, "__delattr__")
def object_delattr(trace: Trace, obj: Value, name: Value) -> Value:
    generic_set_attribute(trace, trace.read(obj), _attribute_name(trace, name), None)
    return NONE


@method(object, "__eq__")
def object_eq(trace: Trace, obj: Value, other: Value) -> Value:
    return TRUE if same_object(trace, obj, other) else NOT_IMPLEMENTED


@method(object, "__ne__")
def object_ne(trace: Trace, obj: Value, other: Value) -> Value:
    """`object.__ne__`: the opposite of what `__eq__` of the object returns, if that isn't
    NotImplemented."""
    result = call_special(trace, obj, "__eq__", other)
    result = NOT_IMPLEMENTED if result is None else trace.read(result)
    if isinstance(result, Const) and result.value is NotImplemented:
        return result
    return boolean(not truth(trace, result))


@method(object, "__lt__", "__le__", "__gt__", "__ge__")
def object_order(trace: Trace, obj: Value, other: Value) -> Value:
    return NOT_IMPLEMENTED


@method(object, "__hash__")
def object_hash(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    if isinstance(obj, Const):
        _refuse_temporary(trace, obj, "hash()")
        return Const(object.__hash__(obj.value))
    return Const(object.__hash__(_known_by_identity(trace, obj, "hash()")))


@method(object, "__class__")
def object_class(trace: Trace, obj: Value) -> Value:
    return Const(trace.read(obj).python_type())


@method(object, "__repr__")
def object_repr(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    if isinstance(obj, Const):
        return Const(object.__repr__(obj.value))
    return Const(object.__repr__(_known_by_identity(trace, obj, "the default repr()")))


@method(object, "__str__")
def object_str(trace: Trace, obj: Value) -> Value:
    return repr_of(trace, obj)


@method(object, "__format__")
def object_format(trace: Trace, obj: Value, spec: Value) -> Value:
    obj = trace.read(obj)
    if trace.read(spec).constant():
        name = type_name(obj.python_type())
        trace.throw(TypeError(f"unsupported format string passed to {name}.__format__"))
    return str_of(trace, obj)


@method(object, "__dir__")
def object_dir(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    names = set(type.__dir__(obj.python_type()))
    if isinstance(obj, Instance) and obj.has_dict:
        names.update(instance_dict(trace, obj).read_all(trace))
    return plain_list([Const(name) for name in sorted(names)])


@method(type, "__dir__")
def type_dir(trace: Trace, cls: Value) -> Value:
    return plain_list([Const(name) for name in type.__dir__(class_of(trace, cls))])


@method(object, "__init_subclass__", "__subclasshook__")
def object_class_hook(trace: Trace, *args: Value) -> Value:
    return NONE


@method(object, "__reduce_ex__", "__reduce__", "__getstate__", "__sizeof__")
def object_pickling(trace: Trace, obj: Value, *args: Value) -> Value:
    raise Break("unsupported-method", "pickling support of an object")


@function(hash)
def builtin_hash(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    if is_constant(obj) and not is_followed(trace, obj, "__hash__"):
        if trace.lookup(obj.python_type(), "__hash__") in (object.__hash__, type.__hash__):
            _refuse_temporary(trace, obj, "hash()")
        try:
            return Const(hash(obj.constant()))
        except TypeError as error:
            trace.throw(error)
    result = call_special(trace, obj, "__hash__")
    if result is None:
        trace.throw(TypeError(f"unhashable type: '{type_name(obj.python_type())}'"))
    result = trace.read(result)
    if not isinstance(result, Const) or not isinstance(result.value, int):
        raise Break("custom-hash", f"hash() of a {obj.python_type().__name__}")
    return Const(_ReducedHash(result.value).reduced())


class _ReducedHash:
    """Reduces a large integer to the range of hash values, as Python does with the result of a
    `__hash__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        return self.value

    def reduced(self) -> int:
        return hash(self)


@function(id)
def builtin_id(trace: Trace, obj: Value) -> Value:
    """`id(obj)` of an object from outside, which is guarded to be this one."""
    obj = trace.read(obj)
    if isinstance(obj, Const):
        _refuse_temporary(trace, obj, "id()")
        return Const(id(obj.value))
    return Const(id(_known_by_identity(trace, obj, "id()")))


def _refuse_temporary(trace: Trace, obj: Value, name: str) -> None:
    if trace.temporaries and id(obj.constant()) in trace.temporaries:
        raise Break("identity-number", f"{name} of something made here")


def _known_by_identity(trace: Trace, obj: Value, name: str) -> Any:
    """The real object from outside, guarded to be this one. Breaks the graph for objects made
    during the capture."""
    real = getattr(obj, "real", None)
    if real is None or obj.source is None:
        raise Break("identity-number", f"{name} of a {obj.python_type().__name__}")
    trace.guard(GuardKind.IS, obj.source, real)
    return real


# ---- text


@function(repr)
def builtin_repr(trace: Trace, obj: Value) -> Value:
    return repr_of(trace, obj)


@function(str)
def builtin_str(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    if not args and not kwargs:
        return Const("")
    if len(args) > 1 or kwargs.keys() - {"object"}:  # decoding bytes
        read = [trace.read(arg).constant() for arg in args]
        real_kwargs = {name: trace.read(value).constant() for name, value in kwargs.items()}
        return _run(trace, lambda: str(*read, **real_kwargs))
    return str_of(trace, args[0] if args else kwargs["object"])


@function(format)
def builtin_format(trace: Trace, obj: Value, spec: Value = Const("")) -> Value:  # noqa: B008
    return format_of(trace, obj, spec)


@function(ascii)
def builtin_ascii(trace: Trace, obj: Value) -> Value:
    text: str = repr_of(trace, obj).constant()
    return Const(text.encode("ascii", "backslashreplace").decode("ascii"))


def _run(trace: Trace, action: Callable[[], Any]) -> Const:
    try:
        return Const(action())
    except Exception as error:
        trace.throw(error)


def str_of(trace: Trace, obj: Value) -> Value:
    """`str(obj)`."""
    obj = trace.read(obj)
    if isinstance(obj, Const) and not is_followed(trace, obj, "__str__", "__repr__"):
        return obj if type(obj.value) is str else _run(trace, lambda: str(obj.value))
    if type(obj) in OPERATE:
        return ask_owner(trace, str, _no_tensor(obj))
    if trace.lookup(obj.python_type(), "__str__") is object.__str__:
        return repr_of(trace, obj)
    return _text(trace, obj, "__str__", call_special(trace, obj, "__str__"))


def repr_of(trace: Trace, obj: Value) -> Value:
    """`repr(obj)`."""
    obj = trace.read(obj)
    if isinstance(obj, Const) and not is_followed(trace, obj, "__repr__"):
        return _run(trace, lambda: repr(obj.value))
    if type(obj) in OPERATE:
        return ask_owner(trace, repr, _no_tensor(obj))
    cls = obj.python_type()
    method = trace.lookup(cls, "__repr__")
    shower = REPR.get(method)
    if shower is not None and isinstance(obj, Opaque):
        raise Break("opaque-object", f"repr() of a {cls.__name__}")
    if shower is not None:
        return Const(shower(trace, obj))
    return _text(trace, obj, "__repr__", call_special(trace, obj, "__repr__"))


@method(types.FunctionType, "__repr__")
def function_repr(trace: Trace, obj: Value) -> Value:
    return Const(repr(_known_by_identity(trace, trace.read(obj), "repr()")))


def format_of(trace: Trace, obj: Value, spec: Value | None = None) -> Value:
    """`format(obj, spec)`."""
    obj = trace.read(obj)
    spec = Const("") if spec is None else trace.read(spec)
    if isinstance(obj, Const) and not is_followed(trace, obj, "__format__", "__str__", "__repr__"):
        return _run(trace, lambda: format(obj.value, spec.constant()))
    plain = is_constant(spec) and spec.constant() == ""
    if isinstance(obj, Const) and plain and not is_followed(trace, obj, "__format__"):
        return str_of(trace, obj)  # as C code does
    if type(obj) in OPERATE:
        return ask_owner(trace, format, _no_tensor(obj), spec)
    return _text(trace, obj, "__format__", call_special(trace, obj, "__format__", spec))


def _no_tensor(obj: Value) -> Value:
    if issubclass(obj.python_type(), torch.Tensor):
        raise Break("tensor-method", "the text of a tensor")
    return obj


def _text(trace: Trace, obj: Value, name: str, result: Value | None) -> Value:
    text = NONE if result is None else trace.read(result)
    if not issubclass(text.python_type(), str):
        kind = type_name(text.python_type())
        trace.throw(TypeError(f"{name} returned non-string (type {kind})"))
    return text


def shown(trace: Trace, obj: Value) -> str:
    """`repr(obj)` as a string."""
    text: str = repr_of(trace, obj).constant()
    return text


def _inside_itself(ellipsis: str) -> Callable[[Shower], Shower]:
    """A decorator for showers: an object that is met again while it is being shown is an
    ellipsis."""

    def around(show: Shower) -> Shower:
        def show_once(trace: Trace, obj: Any) -> str:
            if any(outer is obj and by is show for outer, by in trace.showing):
                return ellipsis
            trace.showing.append((obj, show))
            try:
                return show(trace, obj)
            finally:
                trace.showing.pop()

        return show_once

    return around


@_inside_itself("[...]")
def _show_list(trace: Trace, obj: Sequence) -> str:
    return f"[{', '.join(shown(trace, item) for item in obj.items)}]"


@_inside_itself("(...)")
def _show_tuple(trace: Trace, obj: Sequence) -> str:
    inner = ", ".join(shown(trace, item) for item in obj.items)
    return f"({inner},)" if len(obj.items) == 1 else f"({inner})"


@_inside_itself("[...]")
def _show_deque(trace: Trace, obj: Sequence) -> str:
    limit = "" if obj.maxlen is None else f", maxlen={obj.maxlen}"
    return f"{obj.cls.__name__}({_show_list(trace, obj)}{limit})"


@_inside_itself("{...}")
def _show_dict(trace: Trace, obj: Mapping) -> str:
    pairs = [
        f"{shown(trace, value_of_key(key))}: {shown(trace, value)}"
        for key, value in obj.read_all(trace).items()
    ]
    return f"{{{', '.join(pairs)}}}"


@_inside_itself("...")
def _show_ordered_dict(trace: Trace, obj: Mapping) -> str:
    inner = _show_dict(trace, obj) if obj.read_all(trace) else ""
    return f"{obj.cls.__name__}({_ordered_inner(trace, obj) if inner else ''})"


def _ordered_inner(trace: Trace, obj: Mapping) -> str:
    """Python 3.12 shows an OrderedDict as a dictionary, 3.11 as a list of pairs."""
    if repr(OrderedDict(a=1)) == "OrderedDict({'a': 1})":
        return _show_dict(trace, obj)
    pairs = [
        f"({shown(trace, value_of_key(key))}, {shown(trace, value)})"
        for key, value in obj.read_all(trace).items()
    ]
    return f"[{', '.join(pairs)}]"


def _show_defaultdict(trace: Trace, obj: Mapping) -> str:
    factory = "None" if obj.factory is None else shown(trace, obj.factory)
    return f"{obj.cls.__name__}({factory}, {_show_dict(trace, obj)})"


def _show_set(trace: Trace, obj: SetValue) -> str:
    if not obj.items:
        return f"{obj.cls.__name__}()"
    inner = f"{{{', '.join(shown(trace, item) for item in obj.elements())}}}"
    return inner if obj.cls is set else f"{obj.cls.__name__}({inner})"


@_inside_itself("namespace(...)")
def _show_namespace(trace: Trace, obj: Value) -> str:
    items = instance_dict(trace, obj).read_all(trace)
    name = "namespace" if obj.python_type() is types.SimpleNamespace else obj.python_type().__name__
    return f"{name}({', '.join(f'{key}={shown(trace, value)}' for key, value in items.items())})"


def _show_size(trace: Trace, obj: Sequence) -> str:
    return f"torch.Size({_show_list(trace, obj)})"


REPR: dict[Any, Shower] = {
    torch.Size.__repr__: _show_size,
    list.__repr__: _show_list,
    tuple.__repr__: _show_tuple,
    deque.__repr__: _show_deque,
    dict.__repr__: _show_dict,
    OrderedDict.__repr__: _show_ordered_dict,
    defaultdict.__repr__: _show_defaultdict,
    set.__repr__: _show_set,
    frozenset.__repr__: _show_set,
    types.SimpleNamespace.__repr__: _show_namespace,
}


@dataclasses.dataclass
class _Example:
    pass


def recursive_repr(
    trace: Trace,
    wrapper: FunctionValue,
    args: list[Value],
    kwargs: dict[str, Value],
    direct: bool,
) -> Value | None:
    """The wrapper that stops recursion asks for addresses; what it wraps does the work."""
    if len(args) != 1 or kwargs:
        return None
    cells = dict(zip(wrapper.code.co_freevars, wrapper.closure(trace), strict=True))
    # That of dataclasses has no `fillvalue`.
    ellipsis = cells["fillvalue"].contents if "fillvalue" in cells else Const("...")
    show = cells["user_function"].contents
    if ellipsis is None or show is None:
        return None
    obj = trace.read(args[0])
    if any(outer is obj and by is show for outer, by in trace.showing):
        return ellipsis
    trace.showing.append((obj, show))
    try:
        return call(trace, show, [obj])
    finally:
        trace.showing.pop()


for _wrapper in (_Example.__repr__, reprlib.recursive_repr()(_Example.__repr__)):
    BY_CODE[_wrapper.__code__] = recursive_repr


# ---- super


def super_attribute(trace: Trace, obj: Super, name: str) -> Value | None:
    """The attribute found behind `obj.cls` in the MRO, bound to the object."""
    receiver = trace.read(obj.obj)
    start = receiver.python_type()
    through_class = isinstance(receiver, Const) and isinstance(receiver.value, type)
    if through_class and obj.cls not in start.__mro__:
        start = receiver.constant()
    else:
        through_class = False
    if name == "__class__":
        return Const(super)
    mro = start.__mro__
    for base in mro[mro.index(obj.cls) + 1 :]:
        if name in base.__dict__:
            return _bind_super(trace, receiver, base, name, through_class)
    trace.throw(AttributeError(f"'super' object has no attribute {name!r}"))


def _bind_super(trace: Trace, receiver: Value, base: type, name: str, through_class: bool) -> Value:
    attribute = trace.lookup(base, name)
    if isinstance(attribute, classmethod):
        function = trace.read(bind_descriptor(trace, attribute, receiver, base, name))
        cls = receiver if through_class else Const(receiver.python_type())
        assert isinstance(function, BoundMethod)
        return BoundMethod(function.function, cls)
    if through_class and isinstance(attribute, types.FunctionType):
        return trace.class_value(base, name)
    if name == "__new__" and isinstance(attribute, types.BuiltinFunctionType):
        return Const(attribute)
    return bind_descriptor(trace, attribute, receiver, base, name)


GET[Super] = super_attribute


# ---- small classes implemented in C


@function(types.MethodType)
def make_method(trace: Trace, function: Value, obj: Value) -> Value:
    if not is_callable(trace, function):
        trace.throw(TypeError("first argument must be callable"))
    if same_object(trace, obj, NONE):
        trace.throw(TypeError("instance must not be None"))
    return BoundMethod(trace.read(function), obj)


class Namespace(Instance):
    """A `types.SimpleNamespace` made during the capture."""

    __slots__ = ()

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(types.SimpleNamespace)}.__new__({emit.constant(self.cls)})"


GET[Namespace] = instance_namespace


@method(types.SimpleNamespace, "__new__")
def namespace_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return Namespace(class_of(trace, cls))


@method(types.SimpleNamespace, "__init__")
def namespace_init(trace: Trace, obj: Instance, **kwargs: Value) -> Value:
    for name, value in kwargs.items():
        obj.store_attribute(trace, name, value)
    return NONE


@function(types.SimpleNamespace)
def make_namespace(trace: Trace, **kwargs: Value) -> Value:
    namespace_value = Namespace(types.SimpleNamespace)
    namespace_init(trace, namespace_value, **kwargs)
    return namespace_value


@method(types.SimpleNamespace, "__eq__")
def namespace_eq(trace: Trace, obj: Value, other: Value) -> Value:
    obj, other = trace.read(obj), trace.read(other)
    if not isinstance(other, Instance) or not issubclass(other.cls, types.SimpleNamespace):
        return NOT_IMPLEMENTED
    return compare(trace, "==", instance_dict(trace, obj), instance_dict(trace, other))


class WeakRef(Value):
    """A weak reference to an object from outside, which the compiled entry keeps alive."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def constant(self) -> Any:
        return self.real

    def rebuild(self, emit: Emitter) -> str:
        return emit.constant(self.real)


def weakref_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    return WeakRef(real, source)


def make_weakref(trace: Trace, obj: Value) -> Value:
    real = real_object(trace, obj)
    return WeakRef(_run(trace, lambda: weakref.ref(real)).value)


def call_weakref(
    trace: Trace, target: WeakRef, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    real = target.real()
    if real is None:
        raise Break("unsupported", "a weak reference whose object is gone")
    return trace.wrap_pinned(real)


BUILDERS[weakref.ref] = weakref_from_outside
CALL[WeakRef] = call_weakref


@function(inspect.signature)
def signature(trace: Trace, target: Value, **kwargs: Value) -> Value:
    """`inspect.signature(target)`: a constant, as the function's code is."""
    real = _real_callable(trace, target)
    options = {name: trace.read(value).constant() for name, value in kwargs.items()}
    key = None if options else getattr(real, "__func__", None)
    if key in trace.signatures:  # of the same method, of another object
        return trace.signatures[key]
    signature_object = _run(trace, lambda: inspect.signature(real, **options)).value
    name = f"signature({getattr(real, '__name__', '')})"
    wrapped = trace.wrap(signature_object, Fixed(signature_object, name))
    if key is not None:
        trace.signatures[key] = wrapped
    return wrapped


def _real_callable(trace: Trace, target: Value) -> Any:
    """The real callable. Of a bound method only the function matters for a signature."""
    target = trace.read(target)
    if isinstance(target, BoundMethod):
        return types.MethodType(_real_callable(trace, target.function), object())
    return real_object(trace, target)
