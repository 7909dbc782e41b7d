"""`+`, `*` and `%` of sequences, which Python tries after the operators of numbers.

`[1, 2] + numpy.float32(1)` is an array, `"ab" * 2.5` raises in words of its own: what the two
operands of such an operator have to say is left to Python.
"""

from __future__ import annotations

import operator
from collections import deque
from typing import TYPE_CHECKING

from pliant.base.python_errors import no_operator
from pliant.capture.value import Break, Value, has_python_method
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

SEQUENCES = (list, tuple, str, bytes, bytearray, deque)
TEXTS = (str, bytes)
NAMES = {"+": ("__add__", "__radd__"), "*": ("__mul__", "__rmul__")}


def leave_to_python(trace: Trace, symbol: str, left: Value, right: Value) -> None:
    """Break the graph at `+`, `*` or `%` of a sequence with an object that may have an operator of
    its own."""
    first, second = left.python_type(), right.python_type()
    others = [cls for cls in (first, second) if not issubclass(cls, SEQUENCES)]
    unsure = symbol == "%" and issubclass(first, bytes | bytearray)
    if symbol in NAMES and len(others) < 2:
        texts = issubclass(first, TEXTS)  # which know nothing of the other operand
        unsure = texts and has_python_method(trace, second, *NAMES[symbol])
        unsure |= any(_has_the_say(trace, symbol, cls) for cls in others)
        unsure |= symbol == "*" and not _repeats(trace, first, second, others)
    if unsure:
        raise Break("operation-raises", f"{symbol} of {first.__name__} and {second.__name__}")


def _has_the_say(trace: Trace, symbol: str, cls: type) -> bool:
    """Whether it is a number of NumPy's, or one with operators of its own."""
    if trace.lookup(cls, "__array_interface__") is not MISSING:
        return True
    return issubclass(cls, int) and has_python_method(trace, cls, *NAMES[symbol])


def _repeats(trace: Trace, first: type, second: type, others: list[type]) -> bool:
    """Whether it is known what `*` does with a sequence."""
    if not others:
        kinds = (first, second)
        if not any(_has_number(trace, cls) or _multiplies(trace, cls) for cls in kinds):
            trace.throw(no_operator(operator.mul, "*", first, second))
        return False
    cls = others[0]
    if cls.__module__ == "builtins" or issubclass(cls, int) or _multiplies(trace, cls):
        return True
    return (
        _has_number(trace, cls) and not issubclass(first, TEXTS) and not issubclass(second, TEXTS)
    )


def _has_number(trace: Trace, cls: type) -> bool:
    return trace.lookup(cls, "__index__") is not MISSING


def _multiplies(trace: Trace, cls: type) -> bool:
    return has_python_method(trace, cls, *NAMES["*"])
