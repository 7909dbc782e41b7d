"""Tracebacks through places of the user's source that no frame of Python has passed.

Code of ours runs in place of the user's lines. What it raises must show those lines. A traceback entry
needs a frame, and a frame needs code: each is made by a tiny function with the user's file name,
function name, line and columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType, FrameType, TracebackType

from pliant.base.position import Position

_NO_COLUMNS, _LONG_FORM = 13, 14  # kinds of entries in the table of positions (PEP 626, 657)
_UNITS = 8  # how many code units an entry can cover
_TEMPLATE = compile("raise ValueError", "", "exec")


def traceback_through(
    positions: Iterable[Position], inner: TracebackType | None = None
) -> TracebackType | None:
    """A traceback with an entry for each position, outermost first, and then `inner`."""
    for position in reversed(tuple(positions)):
        frame = _frame_at(position)
        inner = TracebackType(inner, frame, frame.f_lasti, position.line)
    return inner


def _frame_at(position: Position) -> FrameType:
    """A frame that claims to be at a place of the user's program."""
    try:
        exec(_code_at(position), {"__name__": "<captured>"})
    except ValueError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")


def _code_at(position: Position) -> CodeType:
    return _TEMPLATE.replace(
        co_filename=position.file,
        co_firstlineno=position.line,
        co_name=position.function.rsplit(".", 1)[-1],
        co_qualname=position.function,
        co_linetable=_line_table(position, len(_TEMPLATE.co_code) // 2),
    )


def _line_table(position: Position, units: int) -> bytes:
    """All instructions are at one place, which is on the first line of the code."""
    known = position.column is not None and position.end_column is not None
    kind, place = _NO_COLUMNS, b"\0"  # no lines below the first
    if known:
        more = (position.end_line or position.line) - position.line
        columns = (position.column or 0) + 1, (position.end_column or 0) + 1
        kind, place = _LONG_FORM, b"\0" + b"".join(map(_varint, (max(more, 0), *columns)))
    table = b""
    for start in range(0, units, _UNITS):
        table += bytes([0x80 | kind << 3 | min(units - start, _UNITS) - 1]) + place
    return table


def _varint(number: int) -> bytes:
    """Six bits at a time, the lowest first; another bit says that more follow."""
    parts = []
    while number >= 0x40:
        parts.append(0x40 | number & 0x3F)
        number >>= 6
    return bytes([*parts, number])
