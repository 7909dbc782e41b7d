"""Functions as objects: made from their parts, their attributes, and bound methods compared."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable

from pliant.base.python_errors import type_name
from pliant.capture.model import (
    GET,
    SET,
    bind_descriptor,
    call,
    equal,
    generic_set_attribute,
    get_attribute,
    same_object,
)
from pliant.capture.native import function, method
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, NOT_IMPLEMENTED, Break, Const, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.functions import BoundMethod, BuiltinMethod, FunctionValue
from pliant.capture.values.generators import GeneratorValue
from pliant.capture.values.objects import Cell
from pliant.guards.guard import GuardKind
from pliant.guards.source import Attr


@function(types.FunctionType)
def make_function(
    trace: Trace,
    code: Value,
    namespace: Value,
    name: Value = NONE,
    argdefs: Value = NONE,
    closure: Value = NONE,
) -> Value:
    """Resume functions of frames with cells are entered through such a call."""
    table = trace.read(namespace)
    if not isinstance(table, Mapping) or not isinstance(table.real, dict):
        raise Break("unsupported-function", "types.FunctionType")
    function_value = FunctionValue(trace.read(code).constant(), table.real)
    function_value.defaults = _items(trace, argdefs)
    function_value.kwdefaults = {}
    cells = [trace.read(cell) for cell in _items(trace, closure)]
    function_value.cells = [cell for cell in cells if isinstance(cell, Cell)]
    new_name = trace.read(name).constant()
    if new_name is not None:
        function_value.name = new_name
    return function_value


def _items(trace: Trace, value: Value) -> list[Value]:
    container = trace.read(value)
    return list(container.items) if isinstance(container, Sequence) else []


@function(types.CellType)
def make_cell(trace: Trace, contents: Value | None = None) -> Value:
    return Cell(contents)


@method(types.CellType, "cell_contents")
def cell_contents(trace: Trace, cell: Cell) -> Value:
    if cell.contents is None:
        trace.throw(ValueError("Cell is empty"))
    return cell.contents


def set_cell_attribute(trace: Trace, cell: Cell, name: str, value: Value | None) -> None:
    if name != "cell_contents":
        trace.throw(AttributeError(f"'cell' object has no attribute {name!r}"))
    cell.store(trace, value)


SET[Cell] = set_cell_attribute


# ---- attributes of functions made during the capture


def set_function_attribute(
    trace: Trace, obj: FunctionValue, name: str, value: Value | None
) -> None:
    """What every function has is kept by the value; the rest is in its `__dict__`."""
    writer = WRITERS.get(name)
    if writer is None:
        generic_set_attribute(trace, obj, name, value)
    elif obj.real is not None and value is not None and name == "__name__":
        _same_name(trace, obj, trace.read(value))
    elif obj.source is not None or value is None:
        raise Break("attribute-write", f"function.{name}")
    else:
        trace.changes += 1
        writer(trace, obj, trace.read(value))


def _same_name(trace: Trace, obj: FunctionValue, value: Value) -> None:
    """Libraries give functions the name that these have already."""
    if not isinstance(value, Const) or value.value != obj.name or obj.source is None:
        raise Break("attribute-write", "function.__name__")
    trace.guard(GuardKind.EQUALS, Attr(obj.source, "__name__"), obj.name)


def _set_text(field: str) -> Callable[[Trace, FunctionValue, Value], None]:
    def write(trace: Trace, obj: FunctionValue, value: Value) -> None:
        if not issubclass(value.python_type(), str):
            trace.throw(TypeError(f"__{field}__ must be set to a string object"))
        setattr(obj, field, value.constant())

    return write


def _set_defaults(trace: Trace, obj: FunctionValue, value: Value) -> None:
    if isinstance(value, Sequence) and value.cls is tuple:
        obj.defaults = list(value.items)
    elif isinstance(value, Const) and value.value is None:
        obj.defaults = []
    else:
        trace.throw(TypeError("__defaults__ must be set to a tuple object"))


def _set_keyword_defaults(trace: Trace, obj: FunctionValue, value: Value) -> None:
    if isinstance(value, Mapping):
        obj.kwdefaults = dict(value.read_all(trace))
    elif isinstance(value, Const) and value.value is None:
        obj.kwdefaults = {}
    else:
        trace.throw(TypeError("__kwdefaults__ must be set to a dict object"))


def _set_own(name: str) -> Callable[[Trace, FunctionValue, Value], None]:
    def write(trace: Trace, obj: FunctionValue, value: Value) -> None:
        obj.own[name] = value

    return write


def _set_annotations(trace: Trace, obj: FunctionValue, value: Value) -> None:
    if issubclass(value.python_type(), dict):
        obj.own["__annotations__"] = value
    elif isinstance(value, Const) and value.value is None:
        obj.own["__annotations__"] = Mapping(dict)
    else:
        trace.throw(TypeError("__annotations__ must be set to a dict object"))
    obj.own.pop("__annotate__", None)


def _set_annotate(trace: Trace, obj: FunctionValue, value: Value) -> None:
    none = isinstance(value, Const) and value.value is None
    if not none and not trace.read(call(trace, Const(callable), [value])).constant():
        trace.throw(TypeError("__annotate__ must be callable or None"))
    if not none:  # annotations that were made already go with what made them
        obj.own.pop("__annotations__", None)
    obj.own["__annotate__"] = value


def _set_code(trace: Trace, obj: FunctionValue, value: Value) -> None:
    raise Break("attribute-write", "function.__code__")


WRITERS: dict[str, Callable[[Trace, FunctionValue, Value], None]] = {
    "__name__": _set_text("name"),
    "__qualname__": _set_text("qualname"),
    "__defaults__": _set_defaults,
    "__kwdefaults__": _set_keyword_defaults,
    "__doc__": _set_own("__doc__"),
    "__module__": _set_own("__module__"),
    "__annotations__": _set_annotations,
    "__type_params__": _set_own("__type_params__"),
    "__code__": _set_code,
}
if sys.version_info >= (3, 14):
    WRITERS["__annotate__"] = _set_annotate
SET[FunctionValue] = set_function_attribute


# ---- descriptors called by hand


def _get_by_hand(trace: Trace, descriptor: Value, obj: Value, owner: Value = NONE) -> Value:
    """`type(obj).__dict__["name"].__get__(obj, type(obj))`."""
    real, obj = trace.read(descriptor).constant(), trace.read(obj)
    if isinstance(obj, Const) and obj.value is None:
        return Const(real)
    name, cls = real.__name__, obj.python_type()
    if not issubclass(cls, real.__objclass__):
        names = type_name(real.__objclass__), type_name(cls)
        text = "descriptor {!r} for {!r} objects doesn't apply to a {!r} object"
        trace.throw(TypeError(text.format(name, *names)))
    if isinstance(obj, Const) and isinstance(obj.value, type):
        return get_attribute(trace, obj, name)
    return bind_descriptor(trace, real, obj, cls, name)


for _cls in (types.MemberDescriptorType, types.GetSetDescriptorType):
    method(_cls, "__get__")(_get_by_hand)


# ---- generators


def get_generator_attribute(trace: Trace, obj: GeneratorValue, name: str) -> Value | None:
    getter = GENERATOR_ATTRIBUTES.get(name)
    return None if getter is None else getter(obj)


def _frame(obj: GeneratorValue) -> Value:
    if not obj.frame.finished:
        raise Break("unsupported-attribute", "the frame of a generator")
    return NONE


GENERATOR_ATTRIBUTES: dict[str, Callable[[GeneratorValue], Value]] = {
    "gi_running": lambda obj: boolean(obj.running),
    "gi_code": lambda obj: Const(obj.frame.code),
    "gi_frame": _frame,
    "__name__": lambda obj: Const(_named(obj, "name")),
    "__qualname__": lambda obj: Const(_named(obj, "qualname")),
}


def _named(obj: GeneratorValue, which: str) -> str:
    function = obj.frame.function
    if isinstance(function, FunctionValue):
        return str(getattr(function, which))
    return str(getattr(obj.frame.code, f"co_{which}"))


GET[GeneratorValue] = get_generator_attribute


# ---- bound methods


@method(types.MethodType, "__eq__")
def method_eq(trace: Trace, left: Value, right: Value) -> Value:
    right = trace.read(right)
    if not isinstance(left, BoundMethod) or not isinstance(right, BoundMethod):
        return NOT_IMPLEMENTED
    return boolean(
        same_object(trace, left.obj, right.obj) and equal(trace, left.function, right.function)
    )


@method(types.MethodType, "__ne__")
def method_ne(trace: Trace, left: Value, right: Value) -> Value:
    answer = method_eq(trace, left, right)
    return answer if answer is NOT_IMPLEMENTED else boolean(not answer.constant())


# ---- methods of built-in classes


def get_builtin_method_attribute(trace: Trace, obj: BuiltinMethod, name: str) -> Value | None:
    if name == "__self__":
        return obj.obj
    return Const(obj.name) if name == "__name__" else None


GET[BuiltinMethod] = get_builtin_method_attribute
