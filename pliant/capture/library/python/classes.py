"""Calling classes: `type.__call__`, the constructors of built-in classes, and class checks.

An object is made in the two steps of the language: `__new__` of the class, then `__init__`. Each
step is followed where it is Python and has a handler where it is C; the handlers for containers
make the container values, `object.__new__` makes an `Instance`.
"""

from __future__ import annotations

import abc
import enum
import operator
import types
import typing
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.attributes import has_attribute
from pliant.capture.library.python.equivalents import as_value, initialised
from pliant.capture.model import (
    call,
    call_special,
    drain,
    fold,
    get_attribute,
    truth,
    type_name,
    unwrap_static,
)
from pliant.capture.native import FUNCTIONS, METHODS, PURE, function, method
from pliant.capture.value import (
    NONE,
    Break,
    Const,
    NotConstant,
    Unread,
    Value,
    boolean,
    is_constant,
)
from pliant.capture.values.containers import (
    Mapping,
    Sequence,
    SetValue,
    element_of,
    plain_list,
    plain_tuple,
)
from pliant.capture.values.conversion import known_object
from pliant.capture.values.objects import Instance, Super, make_slice
from pliant.capture.values.program_classes import ProgramScalar
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.predicates import Gives, IsSubclass
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
PLAIN = frozenset({int, float, bool, complex, str, bytes})

SCALARS = (int, float, complex, str, bytes, bool)
NOT_A_CLASS = "arg 2 must be a type, a tuple of types, or a union"


# ---- making objects


def instantiate(
    trace: Trace, cls: Const, args: list[Value], kwargs: dict[str, Value], direct: bool = False
) -> Value:
    """`cls(*args, **kwargs)`: by a handler if there is one, otherwise through the metaclass."""
    real: type = cls.value
    handler = FUNCTIONS.get(real)
    if handler is not None:
        return handler(trace, *args, **kwargs)
    if issubclass(real, enum.Enum):
        return _enum_member(trace, cls, args, kwargs)
    meta = type(real)
    custom = trace.lookup(meta, "__call__")
    if isinstance(custom, types.FunctionType):
        return call(trace, trace.class_value(meta, "__call__"), [cls, *args], kwargs, direct)
    if isinstance(custom, type):  # of TypedDict it is `dict`
        return call(trace, Const(custom), args, kwargs, direct)
    if custom is not type.__dict__["__call__"]:
        raise Break("unsupported-class", f"{real.__name__}, whose metaclass is {meta.__name__}")
    return make_object(trace, cls, args, kwargs, direct)


def make_object(
    trace: Trace, cls: Const, args: list[Value], kwargs: dict[str, Value], direct: bool = False
) -> Value:
    """`type.__call__(cls, *args, **kwargs)`: `__new__`, then `__init__`."""
    real: type = cls.value
    obj = trace.read(_new(trace, cls, args, kwargs))
    # `__new__` may return something else, which is not initialised then. A metaclass has no say.
    if real not in obj.python_type().__mro__:
        return obj
    if isinstance(obj, Const) and id(obj.value) not in trace.temporaries:
        # an immutable scalar from elsewhere: there is nowhere to put attributes
        if isinstance(trace.lookup(obj.python_type(), "__init__"), types.FunctionType):
            raise Break("unsupported-class", f"{real.__name__}, which has __init__")
        return obj
    if isinstance(trace.lookup(obj.python_type(), "__init__"), types.FunctionType):
        init = trace.class_value(obj.python_type(), "__init__")
        parts = [obj, init, plain_tuple(args), Mapping(dict, dict(kwargs))]
        # As Python code, so that the graph can break inside of `__init__`: a resume function
        # returns the object.
        return call(trace, as_value(initialised), parts, direct=direct)
    _initialise(trace, obj, args, kwargs)
    return obj


@method(type, "__call__")
def type_call(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    cls = trace.read(cls)
    assert isinstance(cls, Const)
    if cls.value in FUNCTIONS:
        return FUNCTIONS[cls.value](trace, *args, **kwargs)
    return make_object(trace, cls, list(args), kwargs)


def _new(trace: Trace, cls: Const, args: list[Value], kwargs: dict[str, Value]) -> Value:
    real: type = cls.value
    constructor = trace.lookup(real, "__new__")
    if isinstance(constructor, staticmethod):
        return call(trace, unwrap_static(trace, constructor, real, "__new__"), [cls, *args], kwargs)
    if isinstance(constructor, types.FunctionType):
        return call(trace, trace.class_value(real, "__new__"), [cls, *args], kwargs)
    handler = METHODS.get((trace.owner(real, "__new__"), "__new__"))
    if handler is not None:
        return handler(trace, cls, *args, **kwargs)
    if real in PURE:
        try:
            constants = [Const(known_object(arg, trace)) for arg in args]
            named = {name: Const(known_object(arg, trace)) for name, arg in kwargs.items()}
        except NotConstant as error:
            raise Break("not-constant", f"{real.__module__}.{real.__qualname__}") from error
        return fold(trace, real, *constants, **named)
    raise Break("unsupported-class", f"{real.__module__}.{real.__qualname__}")


def _initialise(trace: Trace, obj: Value, args: list[Value], kwargs: dict[str, Value]) -> None:
    owner = trace.owner(obj.python_type(), "__init__")
    handler = METHODS.get((owner, "__init__"))
    if handler is None:
        raise Break("unsupported-class", f"{owner.__name__}.__init__")
    handler(trace, obj, *args, **kwargs)


def _enum_member(trace: Trace, cls: Const, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`Color(1)`: the members of an enumeration never change."""
    if not cls.value.__members__ and len(args) > 1:
        return METHODS[enum.EnumType, "_create_"](trace, [cls, *args], kwargs)
    arguments = [trace.read(arg) for arg in args]
    if not all(is_constant(arg) for arg in arguments) or kwargs or not cls.value.__members__:
        raise Break("unsupported-class", f"the enumeration {cls.value.__name__}")
    return fold(trace, cls.value, *arguments)


# ---- object


@method(object, "__new__")
def object_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`object.__new__`: a new instance. Excess arguments are errors, unless the class has an
    `__init__` that takes them."""
    real = class_of(trace, cls)
    custom_new = trace.lookup(real, "__new__") is not object.__new__
    custom_init = trace.lookup(real, "__init__") is not object.__init__
    if (args or kwargs) and (custom_new or not custom_init):
        trace.throw(TypeError(_excess(real, custom_new)))
    if real.__flags__ & (1 << 20):  # Py_TPFLAGS_IS_ABSTRACT: Python's own error message
        try:
            object.__new__(real)
        except TypeError as error:
            trace.throw(error)
    if _native_layout(real) is not object:
        owner = _native_layout(real).__name__
        raise Break("unsupported-class", f"object.__new__ of a subclass of {owner}")
    return Instance(real)


def _excess(real: type, custom_new: bool) -> str:
    if custom_new:
        return "object.__new__() takes exactly one argument (the type to instantiate)"
    return f"{real.__name__}() takes no arguments"


def _native_layout(real: type) -> type:
    """The nearest base that is defined in C: it decides how instances are laid out in memory."""
    heap = 1 << 9  # Py_TPFLAGS_HEAPTYPE
    for base in real.__mro__:
        if not base.__flags__ & heap or _is_native(base):
            return base
    return object


def _is_native(cls: type) -> bool:
    return isinstance(cls.__dict__.get("__new__"), types.BuiltinFunctionType)


@method(object, "__init__")
def object_init(trace: Trace, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        cls = trace.read(obj).python_type()
        if trace.lookup(cls, "__init__") is not object.__init__:
            message = "object.__init__() takes exactly one argument (the instance to initialize)"
            trace.throw(TypeError(message))
        if trace.lookup(cls, "__new__") is object.__new__:
            trace.throw(TypeError(f"{cls.__name__}() takes no arguments"))
    return NONE


@function(object)
def new_object(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        trace.throw(TypeError("object() takes no arguments"))
    return Instance(object)


def class_of(trace: Trace, cls: Value) -> type:
    """The class given as the first argument of `__new__`."""
    real = trace.read(cls).constant()
    if not isinstance(real, type):
        name = type_name(type(real))
        trace.throw(TypeError(f"object.__new__(X): X is not a type object ({name})"))
    return real


def real_object(trace: Trace, value: Value) -> Any:
    """The real object of a value: known, or guarded to be the same one."""
    value = trace.read(value)
    real = getattr(value, "real", None)
    if real is None:
        return known_object(value, trace)
    if value.source is not None and not isinstance(value.source, Fixed):
        trace.guard(GuardKind.IS, value.source, real)
    return real


# ---- containers


@method(list, "__new__")
def list_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return Sequence(class_of(trace, cls), [])


@method(list, "__init__")
def list_init(trace: Trace, obj: Sequence, iterable: Value | None = None) -> Value:
    items = [] if iterable is None else drain(trace, iterable)
    trace.mutate(obj)
    obj.items[:] = items
    return NONE


@method(tuple, "__new__")
def tuple_new(trace: Trace, cls: Value, iterable: Value | None = None) -> Value:
    return Sequence(class_of(trace, cls), [] if iterable is None else drain(trace, iterable))


@method(dict, "__new__")
def dict_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return Mapping(class_of(trace, cls))


@method(dict, "__init__")
def dict_init(trace: Trace, obj: Mapping, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) > 1:
        trace.throw(TypeError(f"dict expected at most 1 argument, got {len(args)}"))
    return METHODS[dict, "update"](trace, obj, *args, **kwargs)


@method(OrderedDict, "__init__")
def ordered_dict_init(trace: Trace, obj: Mapping, /, *args: Value, **kwargs: Value) -> Value:
    return dict_init(trace, obj, *args, **kwargs)


@method(defaultdict, "__init__")
def defaultdict_init(trace: Trace, obj: Mapping, /, *args: Value, **kwargs: Value) -> Value:
    factory = trace.read(args[0]) if args else NONE
    if isinstance(factory, Const) and factory.value is None:
        obj.factory = None
    elif not is_callable(trace, factory):
        trace.throw(TypeError("first argument must be callable or None"))
    else:
        obj.factory = factory
    return dict_init(trace, obj, *args[1:], **kwargs)


@method(set, "__new__")
def set_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return SetValue(class_of(trace, cls), [])


@method(set, "__init__")
def set_init(trace: Trace, obj: SetValue, iterable: Value | None = None) -> Value:
    items = _elements(trace, iterable)
    trace.mutate(obj)
    obj.items.clear()
    obj.items.update(items)
    return NONE


@method(frozenset, "__new__")
def frozenset_new(trace: Trace, cls: Value, iterable: Value | None = None) -> Value:
    return SetValue(class_of(trace, cls), _elements(trace, iterable))


def _elements(trace: Trace, iterable: Value | None) -> Iterable[Any]:
    """The items of an iterable as keys. A set remains a set: the order of a new set depends on that
    of the old one."""
    if iterable is None:
        return []
    iterable = trace.read(iterable)
    if isinstance(iterable, SetValue):
        return set(iterable.items)
    if isinstance(iterable, Const) and type(iterable.value) is frozenset:
        return set(iterable.value)
    return [element_of(trace, item) for item in drain(trace, iterable)]


@method(deque, "__new__")
def deque_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return Sequence(class_of(trace, cls), [])


@method(deque, "__init__")
def deque_init(
    trace: Trace, obj: Sequence, iterable: Value | None = None, maxlen: Value = NONE
) -> Value:
    limit = trace.read(maxlen).constant()
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        error: Exception = ValueError("maxlen must be non-negative")
        trace.throw(error if isinstance(limit, int) else TypeError("an integer is required"))
    items = [] if iterable is None else drain(trace, iterable)
    trace.mutate(obj)
    obj.maxlen = limit
    obj.items[:] = items if limit is None else items[len(items) - min(limit, len(items)) :]
    return NONE


@function(list)
def make_list(trace: Trace, iterable: Value | None = None) -> Value:
    return plain_list([] if iterable is None else drain(trace, iterable))


@function(tuple)
def make_tuple(trace: Trace, iterable: Value | None = None) -> Value:
    if iterable is None:
        return plain_tuple([])
    iterable = trace.read(iterable)
    # `tuple(t)` of a plain tuple is that object.
    if isinstance(iterable, Sequence) and iterable.cls is tuple:
        return iterable
    return plain_tuple(drain(trace, iterable))


@function(set)
def make_set(trace: Trace, iterable: Value | None = None) -> Value:
    return SetValue(set, _elements(trace, iterable))


@function(frozenset)
def make_frozenset(trace: Trace, iterable: Value | None = None) -> Value:
    result = SetValue(frozenset, _elements(trace, iterable))
    return Const(result.constant()) if is_constant(result) else result


@function(dict)
def make_dict(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    mapping = Mapping(dict)
    dict_init(trace, mapping, *args, **kwargs)
    return mapping


@function(OrderedDict)
def make_ordered_dict(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    mapping = Mapping(OrderedDict)
    dict_init(trace, mapping, *args, **kwargs)
    return mapping


@function(defaultdict)
def make_defaultdict(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    mapping = Mapping(defaultdict)
    defaultdict_init(trace, mapping, *args, **kwargs)
    return mapping


@function(deque)
def make_deque(trace: Trace, iterable: Value | None = None, maxlen: Value = NONE) -> Value:
    items = Sequence(deque, [])
    deque_init(trace, items, iterable, maxlen)
    return items


@function(slice)
def new_slice(trace: Trace, *args: Value) -> Value:
    if not 1 <= len(args) <= 3:
        bound = "at most 3 arguments" if args else "at least 1 argument"
        trace.throw(TypeError(f"slice expected {bound}, got {len(args)}"))
    parts = [trace.read(arg) for arg in args]
    if len(parts) == 1:
        parts.insert(0, NONE)
    return make_slice([*parts, *[NONE] * (3 - len(parts))])


# ---- immutable scalars


def _scalar_new(base: type) -> Any:
    def scalar_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
        real = class_of(trace, cls)
        arguments = [trace.read(arg) for arg in args]
        if real is base or not all(is_constant(arg) for arg in arguments) or kwargs:
            return _scalar(trace, base, real, arguments, kwargs)
        scalar = fold(trace, base.__new__, Const(real), *arguments)
        trace.temporaries[id(scalar.value)] = ProgramScalar(base, scalar.value)
        return scalar

    return scalar_new


def _scalar(
    trace: Trace, base: type, real: type, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    if real is not base:
        raise Break("unsupported-class", f"{real.__name__} of a value that is not constant")
    return FUNCTIONS[base](trace, *args, **kwargs)


for _base in (int, float, complex, str, bytes):
    method(_base, "__new__")(_scalar_new(_base))


# ---- type and super


@function(type)
def type_of(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    """`type(x)`; with three arguments it makes a class."""
    if len(args) == 3:
        return METHODS[type, "__new__"](trace, Const(type), *args, **kwargs)
    if len(args) != 1 or kwargs:
        trace.throw(TypeError("type() takes 1 or 3 arguments"))
    cls = _class_of_unread(trace, args[0])
    return Const(trace.read(args[0]).python_type() if cls is None else cls)


def _class_of_unread(trace: Trace, value: Value) -> type | None:
    """The class of a number or string that nothing has looked at; no more is assumed of it."""
    if type(value) is not Unread or value.seen is not None or type(value.real) not in PLAIN:
        return None
    if not isinstance(value.source, Fixed):
        trace.guard(GuardKind.TYPE, value.source, type(value.real))
    return type(value.real)


@method(type, "mro")
def type_mro(trace: Trace, cls: Value) -> Value:
    return plain_list([Const(base) for base in trace.read(cls).constant().__mro__])


@method(type, "__repr__")
def type_repr(trace: Trace, cls: Value) -> Value:
    return fold(trace, type.__repr__, trace.read(cls))


@method(type, "__or__")
def type_or(trace: Trace, left: Value, right: Value) -> Value:
    return fold(trace, operator.or_, trace.read(left), trace.read(right))


@method(type, "__ror__")
def type_ror(trace: Trace, right: Value, left: Value) -> Value:
    return fold(trace, operator.or_, trace.read(left), trace.read(right))


@function(super)
def make_super(trace: Trace, *args: Value) -> Value:
    """`super()` finds its class in the `__class__` cell and its object in the first parameter."""
    if len(args) == 1:
        raise Break("unsupported-class", "super(cls) without an object")
    if args:
        cls, obj = trace.read(args[0]), trace.read(args[1])
    else:
        cls, obj = _implicit_super(trace)
    real = cls.constant()
    if not isinstance(real, type):
        name = type_name(type(real))
        trace.throw(TypeError(f"super() argument 1 must be a type, not {name}"))
    start = obj.value if isinstance(obj, Const) and isinstance(obj.value, type) else None
    if not issubclass(obj.python_type(), real) and not (start and issubclass(start, real)):
        stranger = start or type(type_name(obj.python_type()), (), {})()
        try:
            super(real, stranger)
        except TypeError as error:
            trace.throw(error)
    return Super(real, obj)


def _implicit_super(trace: Trace) -> tuple[Value, Value]:
    frame = trace.frames[-1]
    if not frame.code.co_argcount:
        trace.throw(RuntimeError("super(): no arguments"))
    name = frame.code.co_varnames[0]
    obj = frame.locals.get(name)
    if obj is None and name in frame.cells:
        obj = frame.cells[name].contents
    if obj is None:
        trace.throw(RuntimeError("super(): arg[0] deleted"))
    cell = frame.cells.get("__class__")
    if cell is None or cell.contents is None:
        trace.throw(RuntimeError("super(): __class__ cell not found"))
    return trace.read(cell.contents), trace.read(obj)


# ---- class checks


@function(isinstance)
def builtin_isinstance(trace: Trace, obj: Value, cls: Value) -> Value:
    if _asks_for_class(trace, cls):
        own_class = _class_of_unread(trace, obj)
        if own_class is not None:
            return boolean(is_subclass(trace, Const(own_class), trace.read(cls)))
    return boolean(is_instance(trace, trace.read(obj), cls))


def _asks_for_class(trace: Trace, cls: Value) -> bool:
    """Whether nothing but the class of an object decides whether it is an instance of these."""
    cls = trace.read(cls)
    if isinstance(cls, Sequence) and cls.cls is tuple:
        return all(_asks_for_class(trace, item) for item in cls.items)
    real = cls.value if isinstance(cls, Const) else None
    classes = real if type(real) is tuple else (real,)
    return all(type(candidate) is type and candidate not in INSTANCE_RULES for candidate in classes)


@function(issubclass)
def builtin_issubclass(trace: Trace, cls: Value, parent: Value) -> Value:
    return boolean(is_subclass(trace, trace.read(cls), trace.read(parent)))


def is_instance(trace: Trace, obj: Value, cls: Value) -> bool:
    """`isinstance(obj, cls)`."""
    cls = trace.read(cls)
    if isinstance(cls, Sequence) and issubclass(cls.cls, tuple):
        return any(is_instance(trace, obj, item) for item in cls.items)
    real = cls.value if isinstance(cls, Const) else None
    if isinstance(real, type):
        return _instance_of_class(trace, obj, cls, real)
    if isinstance(real, tuple):
        return any(is_instance(trace, obj, Const(item)) for item in real)
    if isinstance(real, types.UnionType):
        return any(is_instance(trace, obj, _union_member(item)) for item in real.__args__)
    result = call_special(trace, cls, "__instancecheck__", obj)
    if result is None:
        trace.throw(TypeError(f"isinstance() {NOT_A_CLASS}"))
    return truth(trace, result)


def _union_member(item: Any) -> Const:
    return Const(type(None) if item is None else item)


def _instance_of_class(trace: Trace, obj: Value, cls: Value, real: type) -> bool:
    own_class = obj.python_type()
    if own_class is real:
        return True
    rule = INSTANCE_RULES.get(real) or INSTANCE_RULES.get(type(real))
    if rule is not None:
        return rule(trace, obj, real)
    # Python looks it up on the metaclass, as all special methods.
    hook = trace.lookup(type(real), "__instancecheck__")
    if hook is type.__dict__["__instancecheck__"]:
        return real in own_class.__mro__ or _pretended_class(trace, obj, own_class, real)
    abstract = hook is abc.ABCMeta.__dict__["__instancecheck__"]
    if abstract or not isinstance(hook, types.FunctionType):
        return _real_subclass(trace, own_class, real)
    result = call(trace, trace.class_value(type(real), "__instancecheck__"), [cls, obj])
    return truth(trace, result)


def _pretended_class(trace: Trace, obj: Value, own_class: type, real: type) -> bool:
    """Whether the object has a `__class__` property that names this class."""
    if trace.lookup(own_class, "__class__") is object.__dict__["__class__"]:
        return False
    shown = trace.read(get_attribute(trace, obj, "__class__"))
    return is_constant(shown) and real in getattr(shown.constant(), "__mro__", ())


def _real_subclass(trace: Trace, derived: type, real: type) -> bool:
    try:
        answer = issubclass(derived, real)
    except TypeError as error:
        trace.throw(error)
    assume_subclass(trace, derived, real, answer)
    return answer


def assume_subclass(trace: Trace, derived: type, real: type, answer: bool) -> None:
    """Guard the answer of `issubclass`, if a class may still be registered with an abstract one."""
    if not isinstance(real, abc.ABCMeta) or real in derived.__mro__:
        return
    if not derived.__flags__ & IMMUTABLE_TYPE and derived.__module__.split(".")[0] != "torch":
        trace.guard(
            GuardKind.PREDICATE, Fixed(derived, derived.__qualname__), IsSubclass(real, answer)
        )


def _protocol_instance(trace: Trace, obj: Value, real: type) -> bool:
    """`isinstance` of a runtime-checkable protocol: whether the object has all of its members."""
    if not getattr(real, "_is_protocol", False):
        return _real_subclass(trace, obj.python_type(), real)
    if not getattr(real, "_is_runtime_protocol", False):
        try:
            isinstance(object(), real)
        except TypeError as error:
            trace.throw(error)
    if real in obj.python_type().__mro__:
        return True
    return all(has_attribute(trace, obj, name) for name in _protocol_members(real))


def _protocol_members(real: type) -> set[str]:
    members = getattr(real, "__protocol_attrs__", None)  # Python 3.12
    if members is not None:
        return set(members)
    return set(typing._get_protocol_attrs(real))  # type: ignore[attr-defined]


def _parameter_instance(trace: Trace, obj: Value, real: type) -> bool:
    """Tensor subclasses can be parameters or buffers by an attribute rather than by class."""
    own_class = obj.python_type()
    if real in own_class.__mro__:
        return True
    marks: dict[type, str] = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}
    mark = marks.get(real)
    if mark is None or not issubclass(own_class, torch.Tensor):
        return False
    return has_attribute(trace, obj, mark) and truth(trace, get_attribute(trace, obj, mark))


def _legacy_tensor_instance(trace: Trace, obj: Value, real: Any) -> bool:
    """`isinstance(x, torch.FloatTensor)` asks for a dtype, a device and a layout."""
    if not issubclass(obj.python_type(), torch.Tensor):
        return False
    properties = {"dtype": real.dtype, "layout": real.layout, "is_cuda": real.is_cuda}
    return all(
        trace.read(get_attribute(trace, obj, name)).constant() == value
        for name, value in properties.items()
    )


INSTANCE_RULES: dict[type, Any] = {
    type(typing.Protocol): _protocol_instance,
    type(torch.nn.Parameter): _parameter_instance,
    type(torch.nn.Buffer): _parameter_instance,
    type(torch.FloatTensor): _legacy_tensor_instance,
}


def _subscript_typing(trace: Trace, form: Value, parameters: Value) -> Value:
    """`typing.List[int]`: made by typing itself, whose caches are not worth following."""
    real = real_object(trace, form)
    try:
        alias = real[_typing_argument(trace, parameters)]
    except TypeError as error:
        trace.throw(error)
    return trace.wrap_pinned(alias)


def _typing_argument(trace: Trace, value: Value) -> Any:
    value = trace.read(value)
    if isinstance(value, Sequence):
        return value.cls(_typing_argument(trace, item) for item in value.items)
    return real_object(trace, value)


for _form in vars(typing).values():
    if isinstance(_form, type) and isinstance(
        _form.__dict__.get("__getitem__"), types.FunctionType
    ):
        FUNCTIONS.setdefault(_form.__dict__["__getitem__"], _subscript_typing)


def is_subclass(trace: Trace, cls: Value, parent: Value) -> bool:
    """`issubclass(cls, parent)`."""
    if isinstance(parent, Sequence) and issubclass(parent.cls, tuple):
        return any(is_subclass(trace, cls, trace.read(item)) for item in parent.items)
    if isinstance(parent, Const) and isinstance(parent.value, type):
        meta = type(parent.value)
        hook = trace.lookup(meta, "__subclasscheck__")
        plain_check = hook is abc.ABCMeta.__dict__["__subclasscheck__"] or meta in INSTANCE_RULES
        if isinstance(hook, types.FunctionType) and not plain_check:
            check = trace.class_value(meta, "__subclasscheck__")
            return truth(trace, call(trace, check, [parent, cls]))
    try:
        answer = bool(fold(trace, issubclass, cls, parent).value)
        if isinstance(parent, Const) and isinstance(parent.value, type):
            assume_subclass(trace, cls.constant(), parent.value, answer)
        return answer
    except NotConstant:
        result = call_special(trace, parent, "__subclasscheck__", cls)
        if result is None:
            trace.throw(TypeError(f"issubclass() {NOT_A_CLASS}"))
        return truth(trace, result)


@method(type, "__instancecheck__")
def type_instancecheck(trace: Trace, cls: Value, obj: Value) -> Value:
    own_class = trace.read(obj).python_type()
    return boolean(trace.read(cls).constant() in own_class.__mro__)


@method(type, "__subclasscheck__")
def type_subclasscheck(trace: Trace, cls: Value, other: Value) -> Value:
    return fold(trace, type.__subclasscheck__, trace.read(cls), trace.read(other))


def is_callable(trace: Trace, obj: Value) -> bool:
    return trace.lookup(trace.read(obj).python_type(), "__call__") is not MISSING


@function(callable)
def builtin_callable(trace: Trace, obj: Value) -> Value:
    return boolean(is_callable(trace, obj))


def subclasses(cls: type) -> list[type]:
    return type.__subclasses__(cls)


@method(type, "__subclasses__")
def type_subclasses(trace: Trace, cls: Value) -> Value:
    """`cls.__subclasses__()`, guarded to stay the same."""
    real = trace.read(cls).constant()
    if not isinstance(real, type):
        raise Break("bad-arguments", "type.__subclasses__")  # Python makes the error
    derived = subclasses(real)
    if id(real) in trace.temporaries:  # nobody else has it
        return plain_list([Const(subclass) for subclass in derived])
    if any(id(subclass) in trace.temporaries for subclass in derived):
        raise Break("unsupported-method", "type.__subclasses__ of a class made here")
    trace.guard(
        GuardKind.PREDICATE, Fixed(subclasses, "type.__subclasses__"), Gives((real,), derived)
    )
    return plain_list([Const(subclass) for subclass in derived])
