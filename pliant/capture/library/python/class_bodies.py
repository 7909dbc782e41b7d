"""Classes defined inside the program: `class` statements, `type(name, bases, namespace)`, and what
makes classes by a call: `dataclass`, `namedtuple`, enumerations.

The body is followed like a function. Then Python makes a class from placeholders of what the body
defined (`values/program_classes.py`), without running code of the user's: metaclasses,
`__set_name__` and `__init_subclass__` are followed.
"""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import dis
import enum
import inspect
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.class_writes import set_on_class
from pliant.capture.frame import Frame
from pliant.capture.interpreter import run_frame
from pliant.capture.library.python.classes import class_of
from pliant.capture.model import call, call_special, drain, get_attribute
from pliant.capture.native import FUNCTIONS, METHODS, PURE, SHORTCUTS, method
from pliant.capture.residual_helpers import bare_class, enum_class, has_subclass_hook
from pliant.capture.value import NONE, Break, Const, NotConstant, Value, has_python_method
from pliant.capture.values.containers import Mapping, Sequence, plain_tuple
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.objects import Cell, Instance, Super
from pliant.capture.values.program_classes import (
    LOOKED_AT,
    BarePlaceholder,
    ProgramClass,
    ProgramEnumMember,
    ProgramObject,
    placeholder_for,
    plain_object,
    value_of,
)
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

# Metaclasses that may be run as they are: they do nothing but make the class.
HARMLESS_METACLASSES = (
    typing.NamedTupleMeta,  # type: ignore[attr-defined]
    typing._TypedDictMeta,  # type: ignore[attr-defined]
    type(torch.autograd.Function),
)


# ---- class statements


def build_class(trace: Trace, body: Value, name: Value, *bases: Value, **keywords: Value) -> Value:
    """`class name(*bases, **keywords): body`."""
    function = trace.read(body)
    if not isinstance(function, FunctionValue):
        raise Break("class-definition", "a class body that is not a function")
    base_values = [trace.read(base) for base in bases]
    real_bases = _real_bases(trace, base_values)
    meta = _metaclass(trace, real_bases, keywords)
    namespace = _prepare(trace, meta, name, real_bases, keywords)
    frame = Frame(function.code, function.globals, namespace, function.closure(trace), function)
    # The body of a class is a function whose variables are the namespace.
    run_frame(trace, frame)
    if list(real_bases) != [_real_base(base) for base in base_values]:
        # As Python does if a base was an alias such as `Generic[T]`.
        namespace["__orig_bases__"] = plain_tuple(list(base_values))
    arguments = [
        name,
        plain_tuple([Const(base) for base in real_bases]),
        Mapping(dict, dict(namespace)),
    ]
    return call(trace, Const(meta), arguments, keywords)


FUNCTIONS[builtins.__build_class__] = build_class


def _real_bases(trace: Trace, bases: list[Value]) -> tuple[type, ...]:
    try:
        real = tuple(_real_base(base) for base in bases)
        resolved = types.resolve_bases(real)
    except NotConstant as error:
        raise Break("class-definition", "a base class that is not known") from error
    except TypeError as error:
        trace.throw(error)
    if not all(isinstance(base, type) for base in resolved):
        raise Break("class-definition", "a base that is not a class")
    return tuple(resolved)


def _real_base(base: Value) -> Any:
    real = getattr(base, "real", None)
    return base.constant() if real is None else real


def _metaclass(trace: Trace, bases: tuple[type, ...], keywords: dict[str, Value]) -> type:
    explicit = keywords.pop("metaclass", None)
    start = type(bases[0]) if bases else type
    meta = start if explicit is None else trace.read(explicit).constant()
    if not isinstance(meta, type):
        raise Break("class-definition", "a metaclass that is not a class")
    return _winner(trace, meta, bases)


def _winner(trace: Trace, meta: type, bases: tuple[type, ...]) -> type:
    for base in bases:
        if issubclass(meta, type(base)):
            continue
        if not issubclass(type(base), meta):
            text = "metaclass conflict: the metaclass of a derived class must be a (non-strict) "
            trace.throw(TypeError(f"{text}subclass of the metaclasses of all its bases"))
        meta = type(base)
    return meta


def _prepare(
    trace: Trace,
    meta: type,
    name: Value,
    bases: tuple[type, ...],
    keywords: dict[str, Value],
) -> dict[str, Value]:
    """The namespace in which the body runs, with what the metaclass has put there."""
    custom = trace.lookup(meta, "__prepare__")
    native = isinstance(custom, types.ClassMethodDescriptorType)
    if native or issubclass(meta, enum.EnumType) or custom is MISSING:
        return {}
    prepare = get_attribute(trace, Const(meta), "__prepare__")
    arguments = [name, plain_tuple([Const(base) for base in bases])]
    prepared = trace.read(call(trace, prepare, arguments, keywords))
    if not isinstance(prepared, Mapping) or prepared.cls is not dict or prepared.source is not None:
        raise Break("class-definition", f"the namespace that {meta.__name__} prepares")
    return dict(prepared.read_all(trace))


# ---- making the class


@method(type, "__new__")
def type_new(
    trace: Trace, meta: Value, name: Value, bases: Value, namespace: Value, **keywords: Value
) -> Value:
    """`type.__new__`, which metaclasses in Python call as well."""
    table = trace.read(namespace)
    if not isinstance(table, Mapping):
        raise Break("class-definition", "the namespace of a class")
    values = {str(key): trace.read(item) for key, item in table.read_all(trace).items()}
    cell = values.pop("__classcell__", None)
    values.pop("__classdictcell__", None)  # of Python 3.12, for type parameters
    values.setdefault("__module__", Const(trace.frames[-1].globals.get("__name__")))
    text = trace.read(name).constant()
    real_bases = tuple(trace.read(base).constant() for base in drain(trace, bases))
    winner = _winner(trace, class_of(trace, meta), real_bases)
    real = _make(trace, winner, text, real_bases, values)
    trace.temporaries[id(real)] = ProgramClass(trace, real)
    # The cell of `__class__`, which `super()` without arguments reads.
    if isinstance(cell, Cell):
        cell.store(trace, Const(real))
    for key, value in values.items():
        if isinstance(value, Instance):
            # Only now: while the class was made, Python would have called `__set_name__` itself.
            type.__setattr__(real, key, placeholder_for(trace, value))
            call_special(trace, value, "__set_name__", Const(real), Const(key))
    _subclass_hook(trace, real, real_bases, keywords)
    return Const(real)


def _make(
    trace: Trace, meta: type, name: str, bases: tuple[type, ...], values: dict[str, Value]
) -> type:
    for hook in ("__getattribute__", "mro"):
        # Python calls them while it makes the class, which would run code of the program.
        if has_python_method(trace, meta, hook):
            raise Break("class-definition", f"the class {name}, whose metaclass has {hook}")
    space = {key: _part(trace, key, value) for key, value in values.items()}
    qualname = space.pop("__qualname__", name)
    try:
        return bare_class(meta, name, qualname, bases, space)
    except TypeError as error:
        if "layout" in str(error) or "deallocator" in str(error):
            raise Break("class-definition", f"the class {name}") from error
        trace.throw(error)


def _part(trace: Trace, name: str, value: Value) -> Any:
    if name in LOOKED_AT or name == "__qualname__":
        return plain_object(trace, value)
    if isinstance(value, Instance):
        return BarePlaceholder()  # Python would run its __set_name__; replaced later
    if name == "__hash__" and isinstance(value, Const):
        return value.value
    return placeholder_for(trace, value)


def _subclass_hook(
    trace: Trace, real: type, bases: tuple[type, ...], keywords: dict[str, Value]
) -> None:
    if not has_subclass_hook(bases):
        if keywords:
            text = f"{real.__name__}.__init_subclass__() takes no keyword arguments"
            trace.throw(TypeError(text))
        return
    hook = get_attribute(trace, Super(real, Const(real)), "__init_subclass__")
    call(trace, hook, [], keywords)


@method(type, "__prepare__")
def type_prepare(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return Mapping(dict)


@method(type, "__init__")
def type_init(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    return NONE


@method(type, "__setattr__")
def type_setattr(trace: Trace, cls: Value, name: Value, value: Value) -> Value:
    set_on_class(trace, class_of(trace, cls), trace.read(name).constant(), value)
    return NONE


@method(type, "__delattr__")
def type_delattr(trace: Trace, cls: Value, name: Value) -> Value:
    set_on_class(trace, class_of(trace, cls), trace.read(name).constant(), None)
    return NONE


def adopt(trace: Trace, real: type) -> Const:
    """A class that Python has made from placeholders, as a value."""
    trace.temporaries[id(real)] = ProgramClass(trace, real)
    for item in vars(real).values():
        if isinstance(item, types.FunctionType):
            value_of(trace, item)
    return Const(real)


def abc_new(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`ABCMeta.__new__` is `type.__new__` and the list of abstract methods, which `bare_class`
    makes."""
    return type_new(trace, *args, **kwargs)


SHORTCUTS[abc.ABCMeta.__new__] = abc_new


def harmless_new(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Let a metaclass from `HARMLESS_METACLASSES` make the class, from placeholders."""
    meta, name, bases, namespace = (trace.read(arg) for arg in args)
    assert isinstance(namespace, Mapping)
    values = {key: trace.read(item) for key, item in namespace.read_all(trace).items()}
    cell = values.pop("__classcell__", None)
    values.pop("__classdictcell__", None)  # of Python 3.12, for type parameters
    values.setdefault("__module__", Const(trace.frames[-1].globals.get("__name__")))
    space = {key: _real_part(trace, key, value) for key, value in values.items()}
    real_bases = tuple(trace.read(base).constant() for base in drain(trace, bases))
    options = {key: trace.read(value).constant() for key, value in kwargs.items()}
    try:
        real: Any = meta.constant()(name.constant(), real_bases, space, **options)
    except (TypeError, ValueError, AttributeError) as error:
        trace.throw(error)
    arguments = [name, bases, Mapping(dict, dict(values))]
    trace.temporaries[id(real)] = ProgramObject(real, meta, arguments, kwargs)
    if isinstance(cell, Cell):
        cell.store(trace, Const(real))
    return Const(real)


def _real_part(trace: Trace, name: str, value: Value) -> Any:
    return plain_object(trace, value) if name in LOOKED_AT else placeholder_for(trace, value)


# ---- enumerations


def enum_new(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`class Color(Enum)`. Its members must be constants."""
    meta, name, bases, namespace = (trace.read(arg) for arg in args)
    assert isinstance(namespace, Mapping)
    if kwargs:
        raise Break("class-definition", "an enumeration with options")
    real_bases = tuple(trace.read(base).constant() for base in drain(trace, bases))
    pairs, values = [], []
    for key, item in namespace.read_all(trace).items():
        value = trace.read(item)
        if key == "__classcell__":
            raise Break("class-definition", "super() in an enumeration")
        pairs.append((key, _member(trace, value)))
        values.append(plain_tuple([Const(key), value]))
    _keep_inside(trace, real_bases, dict(pairs))
    try:
        real = enum_class(meta.constant(), name.constant(), real_bases, pairs)
    except (TypeError, ValueError) as error:
        trace.throw(error)
    parts = [meta, name, bases, Sequence(list, list(values))]
    trace.temporaries[id(real)] = ProgramObject(real, Const(enum_class), parts)
    for member in real.__members__.values():
        trace.temporaries[id(member)] = ProgramEnumMember(member)
    return Const(real)


# What Python calls while it makes an enumeration, which is done during capture.
RUN_BY_ENUMS = ("__new__", "__init__", "_generate_next_value_", "__init_subclass__")


def _keep_inside(trace: Trace, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
    """Refuse methods that Python calls while it makes the enumeration, if they read or change
    anything besides their arguments: that would happen once, in the capture."""
    for name in RUN_BY_ENUMS:
        inherited = (trace.lookup(base, name) for base in bases)
        for attribute in (namespace.get(name), *inherited):
            if _reaches_outside(getattr(attribute, "__func__", attribute)):
                raise Break("class-definition", f"an enumeration with a {name} that uses variables")


def _reaches_outside(function: Any) -> bool:
    if not isinstance(function, types.FunctionType) or function.__globals__ is vars(enum):
        return False
    code = function.__code__
    names = {i.argval for i in dis.get_instructions(code) if i.opname in OF_GLOBALS}
    pure = all(
        name not in function.__globals__ and _is_pure(vars(builtins).get(name)) for name in names
    )
    has_functions = any(isinstance(const, types.CodeType) for const in code.co_consts)
    return bool(code.co_freevars) or has_functions or not pure


OF_GLOBALS = opcodes_with(Role.LOADS_GLOBAL | Role.WRITES_GLOBAL)


def _is_pure(builtin: Any) -> bool:
    return isinstance(builtin, type) or builtin in PURE


def _member(trace: Trace, value: Value) -> Any:
    if isinstance(value, FunctionValue):
        return placeholder_for(trace, value)
    if isinstance(value, Instance) and value.cls is enum.auto:
        return enum.auto()
    try:
        return known_object(value, trace)
    except NotConstant as error:
        raise Break("class-definition", "an enumeration of values that are not known") from error


def _with_metaclass(meta: type, make: Callable[..., Value]) -> Callable[..., Value]:
    return lambda trace, *args, **kwargs: make(trace, [Const(meta), *args], kwargs)


FUNCTIONS[enum.EnumType] = _with_metaclass(enum.EnumType, enum_new)
for _meta in HARMLESS_METACLASSES:
    FUNCTIONS[_meta] = _with_metaclass(_meta, harmless_new)


def named_members(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`Enum("Color", "RED GREEN")`, called through a class without members."""
    cls, *rest = (trace.read(arg) for arg in args)
    _keep_inside(trace, (cls.constant(),), {})
    kwargs.setdefault("module", Const(trace.frames[-1].globals.get("__name__")))
    try:
        real_args = [known_object(arg, trace) for arg in rest]
        real = cls.constant()(*real_args, **{k: known_object(v, trace) for k, v in kwargs.items()})
    except NotConstant as error:
        raise Break("class-definition", "an enumeration of values that are not known") from error
    except (TypeError, ValueError) as error:
        trace.throw(error)
    trace.temporaries[id(real)] = ProgramObject(real, cls, list(rest), kwargs)
    for member in real.__members__.values():
        trace.temporaries[id(member)] = ProgramEnumMember(member)
    return Const(real)


METHODS[enum.EnumType, "_create_"] = named_members


# ---- functions that make classes


def process_dataclass(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`@dataclass` on a class of the program: done to its placeholder."""
    cls = trace.read(args[0])
    if not (isinstance(cls, Const) and id(cls.value) in trace.temporaries):
        return None
    options = [trace.read(arg).constant() for arg in args[1:]]
    named = {key: trace.read(arg).constant() for key, arg in kwargs.items()}
    try:
        processed = dataclasses._process_class(cls.value, *options, **named)  # type: ignore[attr-defined]
    except (TypeError, ValueError) as error:
        trace.throw(error)
    # The decorator has added methods to the class, which earlier look-ups missed.
    for name in vars(processed):
        trace.forget_lookups(name)
    for field in processed.__dataclass_fields__.values():
        trace.placeholders.drop(field)
    return adopt(trace, processed)


SHORTCUTS[dataclasses._process_class] = process_dataclass  # type: ignore[attr-defined]


def _program_class_from_call(
    real_function: Any, values: tuple[str, ...] = ()
) -> Callable[..., Any]:
    """A shortcut that calls `real_function`, which makes a class, on known objects, with
    placeholders for the arguments named in `values`."""
    parameters = inspect.signature(real_function)

    def shortcut(
        trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
    ) -> Value | None:
        try:
            bound = parameters.bind(*args, **kwargs)
        except TypeError:
            return None
        arguments: dict[str, Value] = dict(bound.arguments)
        if "module" in parameters.parameters:
            arguments.setdefault("module", Const(trace.frames[-1].globals.get("__name__")))
        try:
            real_args = {
                name: _items_for(trace, value) if name in values else known_object(value, trace)
                for name, value in arguments.items()
            }
        except NotConstant:
            return None
        try:
            real = real_function(**real_args)
        except (TypeError, ValueError) as error:
            trace.throw(error)
        trace.temporaries[id(real)] = ProgramObject(real, Const(real_function), [], arguments)
        return Const(real)

    return shortcut


def _items_for(trace: Trace, value: Value) -> Any:
    value = trace.read(value)
    if isinstance(value, Const):
        return value.value
    return tuple(placeholder_for(trace, item) for item in drain(trace, value))


SHORTCUTS[collections.namedtuple] = _program_class_from_call(collections.namedtuple, ("defaults",))


# ---- descriptors


def _new_descriptor(cls: type) -> Callable[..., Value]:
    def make(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        real_args = [placeholder_for(trace, arg) for arg in args]
        real = cls(
            *real_args, **{name: placeholder_for(trace, arg) for name, arg in kwargs.items()}
        )
        trace.temporaries[id(real)] = ProgramObject(real, Const(cls), list(args), kwargs)
        return Const(real)

    return make


for _cls in (property, classmethod, staticmethod):
    FUNCTIONS[_cls] = _new_descriptor(_cls)


def _with_accessor(name: str) -> Callable[..., Value]:
    def change(trace: Trace, obj: Value, function: Value) -> Value:
        old = trace.read(obj).constant()
        parts = {key: value_of(trace, getattr(old, key)) for key in ("fget", "fset", "fdel")}
        parts[name] = function
        return FUNCTIONS[property](trace, **parts)

    return change


for _name, _part_name in {"getter": "fget", "setter": "fset", "deleter": "fdel"}.items():
    method(property, _name)(_with_accessor(_part_name))
