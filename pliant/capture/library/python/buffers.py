"""Buffers of text and bytes made during the capture: `bytearray`, `StringIO`, `BytesIO`, `array`.

The one idea: what goes in is known, so a real object of our own holds it, and methods are run on
that. Residual code makes a copy of it as it is at the end.
"""

from __future__ import annotations

import array
import copy
import io
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import on_constants, register_immutable
from pliant.capture.model import call, fold, iterate
from pliant.capture.native import FUNCTIONS, METHODS, function
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.containers import plain_list
from pliant.capture.values.conversion import from_real, known_object

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

BUFFERS = (bytearray, io.StringIO, io.BytesIO, array.array)
READING = frozenset(
    {"__len__", "__contains__", "__eq__", "__ne__", "__repr__", "__str__", "getvalue", "hex"}
)


class BufferValue(Value):
    """A buffer; `held` is a real object with the same contents, made for the capture."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def python_type(self) -> type:
        return type(self.held)

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(copy.copy)}({emit.constant(copy.copy(self.held))})"


def known_or_held(trace: Trace, value: Value) -> Any:
    value = trace.read(value)
    return value.held if isinstance(value, BufferValue) else known_object(value, trace)


def _wrap_result(trace: Trace, result: Any, own: BufferValue | None) -> Value:
    if own is not None and result is own.held:
        return own
    return BufferValue(result) if type(result) in BUFFERS else from_real(trace, result)


def _new(cls: Any) -> Callable[..., Value]:
    def make(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        real_args = [known_or_held(trace, arg) for arg in args]
        try:
            return BufferValue(
                cls(*real_args, **{k: known_or_held(trace, v) for k, v in kwargs.items()})
            )
        except Exception as error:
            trace.throw(error)

    return make


def _method(descriptor: Any, reading: bool) -> Callable[..., Value]:
    def handler(trace: Trace, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
        assert isinstance(obj, BufferValue)
        real_args = [known_or_held(trace, arg) for arg in args]
        real_kwargs = {name: known_or_held(trace, arg) for name, arg in kwargs.items()}
        if not reading:
            trace.changes += 1
        try:
            result = descriptor(obj.held, *real_args, **real_kwargs)
        except Exception as error:
            trace.throw(error)
        return _wrap_result(trace, result, obj)

    return handler


def _iterate(trace: Trace, obj: Value) -> Value:
    assert isinstance(obj, BufferValue)
    items = list(obj.held) if type(obj.held) in (bytearray, array.array) else obj.held.readlines()
    return iterate(trace, plain_list([Const(item) for item in items]))


def _register(cls: type) -> None:
    FUNCTIONS[cls] = _new(cls)
    for base in cls.__mro__[:-1]:
        for name, descriptor in vars(base).items():
            native = isinstance(
                descriptor, types.MethodDescriptorType | types.WrapperDescriptorType
            )
            if native and name not in ("__init__", "__new__", "__getattribute__", "__del__"):
                METHODS.setdefault((base, name), _method(descriptor, name in READING))
    METHODS[cls, "__iter__"] = _iterate


for _cls in BUFFERS:
    _register(_cls)


METHODS[array.array, "typecode"] = lambda trace, obj: Const(obj.held.typecode)
METHODS[array.array, "itemsize"] = lambda trace, obj: Const(obj.held.itemsize)


# ---- bytes


def of_class(trace: Trace, cls: Value, base: type, value: Value) -> Value:
    """What a class method of `base` gives for a class derived from it: Python calls the class."""
    return value if trace.read(cls).constant() is base else call(trace, cls, [value])


def _from_hex(base: Any) -> Callable[..., Value]:
    return lambda trace, cls, text: of_class(
        trace, cls, base, fold(trace, base.fromhex, trace.read(text))
    )


METHODS[bytes, "fromhex"], METHODS[float, "fromhex"] = _from_hex(bytes), _from_hex(float)
METHODS[bytearray, "fromhex"] = lambda trace, cls, text: FUNCTIONS[bytearray](
    trace, METHODS[bytes, "fromhex"](trace, Const(bytes), text)
)


def int_from_bytes(trace: Trace, cls: Value, data: Value, *args: Value, **kwargs: Value) -> Value:
    content = trace.read(data)
    if not isinstance(content, Const):
        content = FUNCTIONS[bytes](trace, content)
    number = on_constants(int.from_bytes)(trace, content, *args, **kwargs)
    return of_class(trace, cls, int, number)


METHODS[int, "from_bytes"] = int_from_bytes


@function(memoryview)
def make_view(trace: Trace, data: Value) -> Value:
    """A view of bytes, which never change."""
    content = trace.read(data)
    if not isinstance(content, Const) or not isinstance(content.value, bytes | memoryview):
        raise Break("unsupported-class", "memoryview of something that can change")
    return Const(memoryview(content.value))


def _items_at_once(trace: Trace, obj: Value) -> Value:
    """An iterator over something that never changes."""
    return iterate(trace, plain_list([Const(item) for item in obj.constant()]))


METHODS[memoryview, "__iter__"] = _items_at_once
register_immutable(memoryview, on_constants)
