"""Tracebacks as the user's program would have made them.

Residual and graph code run in place of the user's lines. When they raise, their entries in the traceback
are replaced by entries for those lines. Entries can only be made by raising, so each is made by a tiny
function with the user's file name, function name and line number.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable

from pliant.base.position import Position

# Code of residual functions and graphs: from a line to the user's stack at that line.
LineMap = Callable[[int], tuple[Position, ...]]
_maps: weakref.WeakKeyDictionary[types.CodeType, LineMap] = weakref.WeakKeyDictionary()


def register(code: types.CodeType, lines: LineMap) -> None:
    """Say which lines of the user stand behind the lines of `code`."""
    _maps[code] = lines


def raised_at(error: BaseException, code: types.CodeType, line: int) -> bool:
    """Whether the error came out of the given line of the outermost activation of `code`."""
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code is code:
            return entry.tb_lineno == line
        entry = entry.tb_next
    return False


def rewrite(error: BaseException) -> BaseException:
    """Give `error` the traceback that the user's own code would have given it."""
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    result: types.TracebackType | None = None
    for entry in reversed(entries):
        lines = _maps.get(entry.tb_frame.f_code)
        if lines is None:
            if not _is_ours(entry):
                result = types.TracebackType(
                    result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno
                )
            continue
        for position in reversed(lines(entry.tb_lineno)):
            frame = _frame_at(position)
            result = types.TracebackType(result, frame, frame.f_lasti, position.line)
    return error.with_traceback(result)


def _is_ours(entry: types.TracebackType) -> bool:
    """Our own modules take part in every call; the user does not want to see them."""
    name = entry.tb_frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.split(".")[0] == "pliant"


def _frame_at(position: Position) -> types.FrameType:
    """A frame that claims to be at a line of the user."""
    source = "\n" * (position.line - 1) + "raise ValueError"
    code = compile(source, position.file, "exec")
    code = code.replace(co_name=position.function.rsplit(".", 1)[-1], co_qualname=position.function)
    try:
        exec(code, {"__name__": position.function})
    except ValueError as error:
        assert error.__traceback__ is not None and error.__traceback__.tb_next is not None
        return error.__traceback__.tb_next.tb_frame
    raise AssertionError("unreachable")
