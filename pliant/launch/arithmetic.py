"""Which operations on floats the launcher does itself.

The one idea: what is computed of a step count or a learning rate, at each call, is a chain of a few
operations on Python's floats. Each is a step of the launcher; Python does it only where it would
raise, or where numbers are beyond what a double holds exactly.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

_FLOATS = "to_float fadd fsub fmul truediv fpow fneg fabs fmin fmax"
_MATH = "math.sqrt math.exp math.log math.sin math.cos"
_COMPARISONS = "fle flt feq fne not"
NATIVE: Final = frozenset(f"{_FLOATS} {_MATH} {_COMPARISONS}".split())
"""The operations that csrc/arithmetic.cpp implements."""
OF_FLOATS: Final = frozenset(("fadd", "fsub", "fmul", "fpow", "fneg"))
"""Operations that aren't the launcher's if all operands are integers: these are computed exactly
(a double can't hold all of 64 bits), and have no -0."""


def arithmetic_parts(node: Any, computed: Container[Any]) -> list[Any]:
    """The subexpressions that have to be computed for a float or a condition on floats, in
    postorder: each after its operands, the node itself last. Empty if some part needs Python.
    Integer subexpressions are parts as a whole. `computed` has what needn't be computed again."""
    if not isinstance(node, (FloatExpr, Cond)):
        return []
    parts: dict[Any, None] = {}
    # A stack instead of recursion: a program may compute a long chain from one number.
    waiting = [(node, False)]
    while waiting:
        part, ready = waiting.pop()
        if ready or isinstance(part, Expr):
            parts[part] = None
        elif part not in parts and part not in computed:
            # One part in Python is a call into Python, which may as well compute all of it.
            if not _is_native(part):
                return []
            waiting.append((part, True))
            waiting += [(arg, False) for arg in reversed(part.args) if not _is_leaf(arg)]
    return list(parts)


def _is_leaf(arg: Any) -> bool:
    return arg.op == "fsymbol" or (not isinstance(arg, Cond) and arg.value is not None)


def _is_native(part: Any) -> bool:
    if part.op in OF_FLOATS and all(isinstance(arg, Expr) for arg in part.args):
        return False
    return part.op in NATIVE
