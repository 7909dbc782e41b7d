"""`print` without a graph break: residual code makes the calls, in order, behind the graph.
Warnings and log records use the same list.

What is printed has to be what it was at the call. Texts and numbers are constants; of lists and
dictionaries a copy is printed; a tensor that was printed is not written to in the same graph: the
graph ends before such a write. Where an array was printed, it ends before any write, since arrays
share memory with tensors.
"""

from __future__ import annotations

import builtins
import io
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import _tensor_str

from pliant.capture.attributes import module_namespace
from pliant.capture.library.python.buffers import BufferValue
from pliant.capture.native import FUNCTIONS
from pliant.capture.torch_calls import BEFORE_WRITES, METADATA_WRITERS
from pliant.capture.trace import PLAIN, Trace, written_objects
from pliant.capture.value import NONE, Break, Const, NotConstant, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Opaque
from pliant.capture.values.tensors import TensorValue
from pliant.fake.tensor import memories

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter

BREAKING = FUNCTIONS[print]  # what `builtins` says of it
LOOKS = (setattr, torch._C._set_default_dtype)  # may change how a tensor is printed
# Other values whose text shows only when the code runs: arrays.
PRINTABLE: set[type] = set()
SETTINGS = ("sep", "end", "flush")
WRITES = (io.TextIOWrapper.write, io.StringIO.write)  # in C: nothing of the program runs


class Printed(Value):
    """The calls of `print` that are still to be made."""

    __slots__ = ("arrays", "calls", "default_dtype", "memory")
    outside = True  # what it does is seen by others

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, list[Value], dict[str, Value]]] = []
        self.memory: set[int] = set()  # of tensors printed
        self.arrays = False  # among what is printed
        self.default_dtype = torch.get_default_dtype()  # other dtypes show in the text of a tensor

    def python_type(self) -> type:
        return Printed

    def children(self) -> list[Value]:
        return [value for _, args, kwargs in self.calls for value in (*args, *kwargs.values())]

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Emitter, before: None) -> None:
        for target, args, kwargs in self.calls:
            parts = [emit.expression(arg) for arg in args]
            parts += [f"{name}={emit.expression(value)}" for name, value in kwargs.items()]
            emit.line(f"{emit.constant(target)}({', '.join(parts)})")


def print_later(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    own = _own_output(trace, kwargs)
    if own is not None:
        return _print_into(trace, own, list(args), kwargs)
    if not trace.options.reorder_prints or not _output_is_known(trace, kwargs):
        return BREAKING(trace, *args, **kwargs)
    shown = [as_it_is(trace, arg) for arg in args]
    settings = {name: _setting(trace, name, value) for name, value in kwargs.items()}
    call_later(trace, print, shown, settings)
    return NONE


def _own_output(trace: Trace, kwargs: dict[str, Value]) -> BufferValue | None:
    """The `StringIO` made by the program that the call prints to, or None."""
    output = trace.read(kwargs.get("file", NONE))
    if isinstance(output, Const) and output.value is None:
        written = module_namespace(trace, sys)
        output = trace.read(written.get(trace, "stdout") or NONE) if written.written else NONE
    return output if isinstance(output, BufferValue) and type(output.held) is io.StringIO else None


def _print_into(
    trace: Trace, output: BufferValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    texts = [trace.read(FUNCTIONS[str](trace, arg)) for arg in args]
    settings = {k: _setting(trace, k, v).constant() for k, v in kwargs.items() if k != "file"}
    try:
        print(*[text.constant() for text in texts], file=output.held, **settings)
    except NotConstant:
        raise Break("io", "print()") from None
    trace.changes += 1
    return NONE


def call_later(
    trace: Trace, target: Any, args: list[Value], kwargs: dict[str, Value] | None = None
) -> None:
    """Have residual code call `target` after the graph, in order with the other calls."""
    printed = _printed(trace)
    trace.mutate_always(printed)
    printed.calls.append((target, args, kwargs or {}))


def _printed(trace: Trace) -> Printed:
    if trace.printed is None:
        trace.printed = Printed()
    printed: Printed = trace.printed
    return printed


def _output_is_known(trace: Trace, kwargs: dict[str, Value]) -> bool:
    """Whether the output goes where it would go now: the program has not replaced stdout, nor
    changed how tensors are printed."""
    if {"stdout", "stderr"} & module_namespace(trace, sys).written.keys():
        return False
    return not any(real is _tensor_str.PRINT_OPTS for real in written_objects(trace))


def _setting(trace: Trace, name: str, value: Value) -> Value:
    setting = trace.read(value)
    if name in SETTINGS and isinstance(setting, Const) and type(setting.value) in PLAIN:
        return setting
    is_file = isinstance(setting, Opaque) and getattr(type(setting.real), "write", None) in WRITES
    if name == "file" and (is_file or (isinstance(setting, Const) and setting.value is None)):
        return setting
    raise Break("io", "print()")


def as_it_is(trace: Trace, value: Value) -> Value:
    """A value that prints as the argument does now, whatever happens to the argument later."""
    return _shown(trace, _printed(trace), value)


def _shown(trace: Trace, printed: Printed, value: Value) -> Value:
    value = trace.read(value)
    if isinstance(value, Const) and (type(value.value) in PLAIN or _is_fixed(value.value)):
        return value
    if isinstance(value, Number):
        return value
    if isinstance(value, TensorValue):
        return _tensor(trace, printed, value)
    if type(value) in PRINTABLE:
        printed.arrays = True
        return value
    if isinstance(value, Sequence | Mapping) and _has_parts(trace, value):
        return _copied(trace, printed, value)
    try:
        text = trace.read(FUNCTIONS[str](trace, value))
    except NotConstant:
        raise Break("io", "print()") from None
    if not isinstance(text, Const):
        raise Break("io", "print()")
    return text


def _is_fixed(real: Any) -> bool:
    return isinstance(real, torch.dtype | torch.device | torch.Size | torch.layout | type)


def _tensor(trace: Trace, printed: Printed, value: TensorValue) -> Value:
    if torch.get_default_dtype() is not printed.default_dtype or value.cls is not torch.Tensor:
        raise Break("io", "print()")
    printed.memory.add(value.fake.untyped_storage()._cdata)
    return value


def _has_parts(trace: Trace, value: Value) -> bool:
    """Whether there is something inside whose text is known only when the code runs."""
    value = trace.read(value)
    if isinstance(value, Sequence):
        return any(_has_parts(trace, item) for item in value.items)
    if isinstance(value, Mapping):
        return any(_has_parts(trace, item) for item in value.read_all(trace).values())
    return isinstance(value, TensorValue | Number) or type(value) in PRINTABLE


def _copied(trace: Trace, printed: Printed, value: Value) -> Value:
    value = trace.read(value)
    if isinstance(value, Sequence) and value.cls in (list, tuple, torch.Size):
        return Sequence(value.cls, [_copied(trace, printed, item) for item in value.items])
    if isinstance(value, Mapping) and value.cls is dict:
        items = value.read_all(trace).items()
        return Mapping(dict, {key: _copied(trace, printed, item) for key, item in items})
    if isinstance(value, Const | Number | TensorValue) or type(value) in PRINTABLE:
        return _shown(trace, printed, value)
    raise Break("io", "print()")


def before_write(trace: Trace, function: Any, mutated: Any) -> None:
    """End the graph before a write that would change how something already printed looks."""
    printed: Printed | None = trace.printed
    if printed is None or not (printed.memory or printed.arrays):
        return
    if printed.arrays:
        raise Break("io", "a write behind the print of an array")
    written = memories(mutated)
    changes_look = function in LOOKS or getattr(function, "__name__", "") in METADATA_WRITERS
    if written & printed.memory or changes_look:
        raise Break("io", "a write to a tensor that is to be printed")


FUNCTIONS[builtins.print] = print_later
BEFORE_WRITES.append(before_write)
