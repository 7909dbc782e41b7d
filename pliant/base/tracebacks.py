"""Tracebacks as the user's program would have made them.

Residual and graph code run in place of the user's lines. When they raise, their entries in the
traceback are replaced by entries for those lines. An entry needs a frame, and a frame needs code:
each is made by a tiny function with the user's file name, function name, line and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any
from weakref import finalize

from pliant.base.position import Position
from pliant.base.values import replace

# Code of residual functions and graphs: from a line to the user's stack at that line.
LineMap = Callable[[int], tuple[Position, ...]]
_maps: dict[int, LineMap] = {}  # by identity: code objects compare by content


def register(code: CodeType, lines: LineMap, forget: Callable[[], object] | None = None) -> None:
    """Map the lines of `code`, and of the functions in it, to the user's lines. `lines` returns the
    user's stack at a line. `forget` is called when the code is freed."""
    if id(code) not in _maps:
        finalize(code, _forget, id(code), forget)
    _maps[id(code)] = lines
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            register(constant, lines)


def _forget(key: int, forget: Callable[[], object] | None) -> None:
    _maps.pop(key, None)
    if forget is not None:
        forget()


def raised_at(error: BaseException, code: CodeType, line: int) -> bool:
    """Whether the error came out of this line of `code`, in its outermost activation."""
    return line_of(error, code) == line


def line_of(error: BaseException, code: CodeType) -> int | None:
    """The line of `code` that the error came out of, in its outermost activation."""
    entry = _outermost(error, code)
    return None if entry is None else entry.tb_lineno


def local_of(error: BaseException, code: CodeType, name: str) -> Any:
    """The local variable `name` of the outermost activation of `code` in the error's traceback."""
    entry = _outermost(error, code)
    assert entry is not None
    return entry.tb_frame.f_locals[name]


def _outermost(error: BaseException, code: CodeType) -> TracebackType | None:
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code is not code:
        entry = entry.tb_next
    return entry


def rewrite(error: BaseException) -> BaseException:
    """Give `error` the traceback that the user's own code would have given it."""
    entries = []
    entry = error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    result: TracebackType | None = None
    # From the inside out, since an entry is made with the one inside it.
    for entry in reversed(entries):
        lines = _maps.get(id(entry.tb_frame.f_code))
        if lines is not None:
            result = traceback_through(lines(entry.tb_lineno), result)
        # Made anew rather than changed: other code may hold the old traceback.
        elif not _is_ours(entry):
            result = TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return error.with_traceback(result)


def _is_ours(entry: TracebackType) -> bool:
    """Whether the entry is in a module of pliant, which the user does not want to see."""
    name = entry.tb_frame.f_globals.get("__name__", "")
    return isinstance(name, str) and name.split(".")[0] == "pliant"


# ---- calls that seem to come from elsewhere

CallSite = tuple[Position, dict[str, Any]]  # with the globals there


def called_from(places: Sequence[CallSite]) -> Callable[..., Any]:
    """A function that calls another one, with the arguments given, from frames at `places`.

    For functions that report where they are called: warnings and logging.
    """
    callers = tuple(_caller(*place) for place in places)
    return lambda function, *args, **kwargs: callers[0](callers[1:], function, args, kwargs)


def _call(inner: tuple[Any, ...], function: Any, args: Any, kwargs: Any) -> Any:
    if inner:
        return inner[0](inner[1:], function, args, kwargs)
    return function(*args, **kwargs)


def _caller(position: Position, namespace: dict[str, Any]) -> FunctionType:
    code = _code_at(position, _call.__code__)
    # An empty stack: the frame is left out of tracebacks, since the residual line stands for it
    # already.
    register(code, lambda line: ())
    return FunctionType(code, namespace)


def raiser(entry: TracebackType) -> FunctionType:
    """A function that takes an exception and its context, raises the exception, and so leaves an
    entry equal to `entry` in its traceback."""
    code = entry.tb_frame.f_code
    position = replace(Position.of_code(code, max(entry.tb_lasti, 0)), line=entry.tb_lineno)
    return FunctionType(_code_at(position, _raise.__code__), entry.tb_frame.f_globals)


def _raise(error: BaseException, context: BaseException | None) -> None:
    try:
        raise error
    finally:
        error.__context__ = context
        del error, context  # or the traceback would hold what holds the traceback


# ---- entries without frames


def traceback_through(
    positions: Iterable[Position], inner: TracebackType | None = None
) -> TracebackType | None:
    """A traceback with an entry for each position, outermost first, and then `inner`."""
    for position in reversed(tuple(positions)):
        inner = TracebackType(inner, _frame_at(position), 0, position.line)
    return inner


def _frame_at(position: Position) -> FrameType:
    """A frame that claims to be at this position. It belongs to a generator that never ran: such a
    frame has no caller that it would keep alive."""
    generator = FunctionType(_code_at(position, _template.__code__), {"__name__": "<captured>"})()
    frame: FrameType = generator.gi_frame
    return frame


def _template() -> Iterator[None]:
    yield


def _code_at(position: Position, template: CodeType) -> CodeType:
    return template.replace(
        co_filename=position.file,
        co_firstlineno=position.line,
        co_name=position.function.rsplit(".", 1)[-1],
        co_qualname=position.function,
        co_linetable=_line_table(position, len(template.co_code) // 2),
    )


# Kinds of entries in the table of positions of a code object, and how many units one can cover.
_NO_COLUMNS, _LONG_FORM, _UNITS = 13, 14, 8


def _line_table(position: Position, units: int) -> bytes:
    """The position table of a code object whose instructions are all at one position, on its first
    line."""
    kind, place = _NO_COLUMNS, b"\0"  # no lines below the first
    if position.column is not None and position.end_column is not None:
        more = (position.end_line or position.line) - position.line
        columns = position.column + 1, position.end_column + 1
        kind, place = _LONG_FORM, b"\0" + b"".join(map(_varint, (max(more, 0), *columns)))
    table = b""
    # An entry covers at most eight units.
    for start in range(0, units, _UNITS):
        table += bytes([0x80 | kind << 3 | min(units - start, _UNITS) - 1]) + place
    return table


def _varint(number: int) -> bytes:
    """The variable-length encoding of a number in position tables: six bits at a time, the lowest
    first; another bit says that more follow."""
    parts = []
    while number >= 0x40:
        parts.append(0x40 | number & 0x3F)
        number >>= 6
    return bytes([*parts, number])
