"""Kernels as text, as in the docstring of `ir`.

The one idea: values are numbered in the order in which they stand, so that two kernels print alike
only if they compute alike: the text is also what a cache may know a kernel by.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from pliant.loop.ir import TEXT, Kernel, Loop, LoopValue, Op, Statement

Names = dict[LoopValue, str]


def show(kernel: Kernel) -> str:
    """The kernel, one statement a line."""
    sizes = [str(size) for size in kernel.sizes]
    memory = []
    for buffer in kernel.buffers:
        offset = "" if buffer.base.value == 0 else f" from {buffer.base}"
        memory.append(f"{buffer.name}: {buffer.type} {buffer.access.value}{offset}")
    memory += [f"{buffer.name}: {buffer.type} own[{buffer.size}]" for buffer in kernel.own]
    head = f"kernel {kernel.name}({', '.join(sizes)}; {', '.join(memory)})"
    names: Names = {}
    return "\n".join([head, *_lines(kernel.body, names, "  ")])


def _lines(body: tuple[Statement, ...], names: Names, indent: str) -> Iterator[str]:
    for item in body:
        if isinstance(item, Loop):
            yield f"{indent}{item.kind.value} {item.var} < {item.extent}"
            yield from _lines(item.body, names, indent + "  ")
        else:
            yield indent + line(item, names)


def line(value: LoopValue, names: Names) -> str:
    """One statement; names the value."""
    if value.op in (Op.STORE, Op.ATOMIC_ADD):
        return _store(value, names)
    names[value] = f"v{len(names)}"
    text = _SPECIAL.get(value.op, _plain)(value, [names.get(arg, "?") for arg in value.args])
    return f"{names[value]} = {text}"


def _store(value: LoopValue, names: Names) -> str:
    stored, *mask = [names.get(arg, "?") for arg in value.args]
    condition = f" if {mask[0]}" if mask else ""
    if value.op is Op.ATOMIC_ADD:
        return f"atomic_add {_place(value)} += {stored}{condition}"
    return f"store {_place(value)} = {stored}{condition}"


def _place(value: LoopValue) -> str:
    return f"{value.buffer.name if value.buffer else '?'}[{value.index}]"


def _plain(value: LoopValue, args: list[str]) -> str:
    return f"{value.op.text} {', '.join(args)}"


def _load(value: LoopValue, args: list[str]) -> str:
    return f"load {_place(value)}" + (f" if {args[0]}" if args else "")


def _constant(value: LoopValue, args: list[str]) -> str:
    number = value.constant
    if number != number:  # nans that differ in their bits are different constants
        bits = struct.unpack("<Q", struct.pack("<d", number))[0]
        return f"{value.type} nan 0x{bits:x}"
    return f"{value.type} {number!r}"


_SPECIAL: Final[dict[Op, Callable[[LoopValue, list[str]], str]]] = {
    Op.LOAD: _load,
    Op.CONSTANT: _constant,
    Op.IOTA: lambda value, args: f"iota {value.index}",
    Op.AS_INDEX: lambda value, args: f"{_plain(value, args)} as {value.index}",
    Op.CAST: lambda value, args: f"{_plain(value, args)} to {value.type}",
    Op.BITCAST: lambda value, args: f"{_plain(value, args)} to {value.type}",
}

TEXT[0] = show
