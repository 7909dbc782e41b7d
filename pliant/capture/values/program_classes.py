"""Classes and descriptors that the program makes while it is followed.

The one idea: Python itself makes a class object during capture, so that instances have a class with
an MRO and all that depends on it, but this object is temporary: residual code makes another one, on
each call. Where the namespace of a class needs a real object for a value, it gets a placeholder;
the trace knows which value each stands for.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.value import Break, Const, NotConstant, Value, is_constant
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.objects import Cell, Instance

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

# Python puts these into each class by itself.
AUTOMATIC = frozenset({"__dict__", "__weakref__", "_abc_impl", "__abstractmethods__"})
# These are what Python looks at when it makes the class.
LOOKED_AT = frozenset(
    {"__annotations__", "__slots__", "__match_args__", "__orig_bases__", "__doc__", "__module__"}
)
SLOT_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)


class BarePlaceholder:
    """A placeholder for a value of which Python needs to know nothing but that it is an object."""


class ProgramObject(Value):
    """An object that residual code makes by calling `target`: a property, a named tuple class."""

    __slots__ = ("args", "kwargs", "real", "target")
    two_steps = True  # made once, however often it is needed

    def __init__(
        self, real: Any, target: Value, args: list[Value], kwargs: dict[str, Value] | None = None
    ) -> None:
        super().__init__()
        self.real = real
        self.target = target
        self.args = args
        self.kwargs = kwargs or {}

    def python_type(self) -> type:
        return type(self.real)

    def children(self) -> list[Value]:
        return [self.target, *self.args, *self.kwargs.values()]

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.expression(arg) for arg in self.args]
        parts += [f"{name}={emit.expression(value)}" for name, value in self.kwargs.items()]
        return f"{emit.expression(self.target)}({', '.join(parts)})"


class ProgramEnumMember(Value):
    """A member of an enumeration made during the capture."""

    __slots__ = ("real",)
    two_steps = True

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(type(self.real))}[{self.real.name!r}]"


class ProgramScalar(Instance):
    """An instance of the program's subclass of a number or string, made during the capture. It has
    attributes, and is another object in each call. As a number or string it is the constant
    `scalar`."""

    __slots__ = ("base", "scalar")

    def __init__(self, base: type, scalar: Any) -> None:
        super().__init__(type(scalar))
        self.base = base
        self.scalar = scalar

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        super().store_attribute(trace, name, value)
        # C code that is run on the constant may have its class look for what is known.
        if value is not None and is_constant(trace.read(value)):
            object.__setattr__(self.scalar, name, trace.read(value).constant())
        elif name in vars(self.scalar):
            object.__delattr__(self.scalar, name)

    def children(self) -> list[Value]:
        return [Const(self.cls), *super().children()]

    def rebuild(self, emit: Emitter) -> str:
        plain = PLAIN_FORMS[self.base](self.scalar)  # not by what the class says it is
        make = f"{emit.constant(self.base)}.__new__"
        return f"{make}({emit.constant(self.cls)}, {emit.constant(plain)})"


PLAIN_FORMS: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


class ProgramClass(Value):
    """A class made during the capture. `real` is a temporary class with the same MRO. Residual code
    makes another one, with what that holds at the end. `annotations` are there once they have been
    asked for, from Python 3.14 on."""

    __slots__ = ("annotations", "real", "trace")
    two_steps = True

    def __init__(self, trace: Trace, real: type) -> None:
        super().__init__()
        self.trace = trace
        self.real = real
        self.annotations: Value | None = None

    def python_type(self) -> type:
        return type(self.real)

    def namespace(self) -> dict[str, Value]:
        """The attributes of the class as values."""
        return {
            name: value_of(self.trace, item)
            for name, item in vars(self.real).items()
            if name not in AUTOMATIC and not isinstance(item, SLOT_TYPES)
        }

    def children(self) -> list[Value]:
        bases = [Const(base) for base in (*self.real.__bases__, type(self.real))]
        return [*bases, *self.namespace().values()]

    def rebuild(self, emit: Emitter) -> str:
        real = self.real
        bases = "".join(f"{emit.constant(base)}, " for base in real.__bases__)
        pairs = [(name, item) for name, item in vars(real).items() if name in LOOKED_AT]
        inner = [
            f"{name!r}: {emit.expression(value_of(self.trace, entry))}" for name, entry in pairs
        ]
        meta = emit.constant(type(real))
        parts = (
            f"{meta}, {real.__name__!r}, {real.__qualname__!r}, ({bases}), {{{', '.join(inner)}}}"
        )
        return f"{emit.helper('bare_class')}({parts})"

    def fill(self, emit: Emitter, name: str) -> None:
        for key, value in self.namespace().items():
            if key not in LOOKED_AT:
                emit.line(f"type.__setattr__({name}, {key!r}, {emit.expression(value)})")
        if "__abstractmethods__" in vars(self.real):
            names = tuple(sorted(vars(self.real)["__abstractmethods__"]))
            emit.line(f"{name}.__abstractmethods__ = frozenset({emit.constant(names)})")


# ---- placeholders


def placeholder_for(trace: Trace, value: Value) -> Any:
    """A real object that stands for `value` where Python wants one: in the namespace of a class."""
    value = trace.read(value)
    if isinstance(value, Const):
        return value.value
    real = getattr(value, "real", None)
    if real is not None and value.source is not None:
        return real
    existing = trace.placeholders.of(value)
    if existing is not None:
        return existing
    maker = PLACEHOLDER_MAKERS.get(type(value))
    real = BarePlaceholder() if maker is None else maker(trace, value)
    if not isinstance(real, tuple):
        trace.placeholders.add(real, value)
    if isinstance(value, Instance):
        _fill_instance(trace, value, real)
    return real


def _function(trace: Trace, value: FunctionValue) -> Any:
    # Empty: nobody calls it. Only its code and name are looked at.
    cells = tuple(types.CellType() for _ in value.code.co_freevars)
    function = types.FunctionType(value.code, value.globals, value.name, None, cells)
    function.__qualname__ = value.qualname
    if value.attributes is not None:
        for name, item in value.attributes.items.items():
            if item is not None and is_constant(trace.read(item)):
                setattr(function, name, trace.read(item).constant())
    return function


def _instance(trace: Trace, value: Instance) -> Any:
    try:
        return object.__new__(value.cls)
    except TypeError as error:
        raise Break("class-definition", f"a {value.cls.__name__} in a class") from error


def _fill_instance(trace: Trace, value: Instance, real: Any) -> None:
    """Give the placeholder of an object the attributes that the object has so far: `dataclass`
    looks into a `field()`."""
    parts = dict(value.slots)
    if value.attributes is not None:
        parts.update(value.attributes.items)
    for name, part in parts.items():
        if part is not None:
            object.__setattr__(real, name, placeholder_for(trace, part))


def _tuple(trace: Trace, value: Sequence) -> Any:
    try:
        return known_object(value, trace) if value.cls is tuple else BarePlaceholder()
    except NotConstant:
        return BarePlaceholder()


PLACEHOLDER_MAKERS: dict[type, Callable[[Trace, Any], Any]] = {
    FunctionValue: _function,
    Instance: _instance,
    Sequence: _tuple,
}


def plain_object(trace: Trace, value: Value) -> Any:
    """A real object equal to the value, for what Python looks into while it makes a class; a
    placeholder if it isn't known."""
    try:
        return known_object(value, trace)
    except NotConstant:
        value = trace.read(value)
        if type(value) is not Mapping:
            return placeholder_for(trace, value)
    items = {key: plain_object(trace, item) for key, item in value.read_all(trace).items()}
    trace.placeholders.add(items, value)
    return items


def value_of(trace: Trace, real: Any) -> Value:
    """The value that an object in the namespace of a class of the program stands for."""
    if trace.is_plain_constant(real):
        return Const(real)
    if isinstance(real, types.FunctionType):
        return adopted(trace, real)
    if type(real) in (staticmethod, classmethod) and id(real) not in trace.temporaries:
        inner = trace.placeholders.value_of(real.__func__)
        if inner is not None:  # Python wraps `__new__` and some others by itself
            trace.temporaries[id(real)] = ProgramObject(real, Const(type(real)), [inner])
    if type(real) is dict:
        return Mapping(dict, {key: value_of(trace, item) for key, item in real.items()})
    return trace.wrap_pinned(real)


def adopted(trace: Trace, real: types.FunctionType) -> Value:
    """The value of a function that Python made along with a class (a dataclass's `__init__`), which
    may have placeholders as defaults."""
    existing = trace.placeholders.value_of(real)
    if existing is not None:
        return existing
    if not _has_placeholders(trace, real):
        return trace.wrap_pinned(real)
    function = FunctionValue(real.__code__, real.__globals__)
    function.name, function.qualname = real.__name__, real.__qualname__
    trace.placeholders.add(real, function)
    function.defaults = [value_of(trace, item) for item in real.__defaults__ or ()]
    function.kwdefaults = {
        k: value_of(trace, item) for k, item in (real.__kwdefaults__ or {}).items()
    }
    function.cells = [_adopted_cell(trace, cell) for cell in real.__closure__ or ()]
    return function


def _adopted_cell(trace: Trace, cell: types.CellType) -> Cell:
    try:
        return Cell(value_of(trace, cell.cell_contents))
    except ValueError:
        return Cell(None)


def _has_placeholders(trace: Trace, real: types.FunctionType) -> bool:
    parts: list[Any] = [*(real.__defaults__ or ()), *(real.__kwdefaults__ or {}).values()]
    for cell in real.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:
            continue
    return any(
        id(part) in trace.temporaries or trace.placeholders.value_of(part) is not None
        for part in parts
    )
