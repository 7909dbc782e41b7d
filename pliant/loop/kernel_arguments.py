"""What of an expression a kernel is given as numbers, and does not compute itself.

The one idea: kernels compute with 64-bit integers. Symbols are passed to them, and so is a part of
an expression that takes something else, such as `int(s0 * 0.3)` or a number beyond 64 bits: as a
whole, like a symbol.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pliant.sym.expr import Expr
from pliant.sym.program import LARGEST

_COMPUTED: Final = frozenset(
    ("int", "add", "mul", "floordiv", "mod", "min", "max", "abs", "bitand", "bitor", "bitxor")
    + ("if", "le0", "eq0", "ne0", "and", "or", "true", "false")
)


def kernel_arguments(expr: Expr) -> frozenset[Any]:
    """The numbers in it that come from outside."""
    # Nearly all are plain, and know their symbols.
    return expr.symbols if expr.plain and _fits(expr) else _kernel_arguments(expr)


@lru_cache(4096)
def _kernel_arguments(node: Any) -> frozenset[Any]:
    if not _is_computed(node):
        return frozenset((node,))
    return frozenset().union(*map(_kernel_arguments, _parts(node)))


def _fits(node: Any) -> bool:
    """Whether the numbers in it are of 64 bits."""
    if node.op not in ("int", "add"):
        return True
    numbers = [node.const, *[times for _, times in node.terms]]
    return max(map(abs, numbers)) <= LARGEST


def _is_computed(node: Any) -> bool:
    """Of a condition: all of it."""
    if not _fits(node):
        return False
    if node.op == "pow":
        return node.args[0].value == 2
    if node.op == "if":
        return _is_condition(node.args[0])
    return node.op in _COMPUTED


def _is_condition(node: Any) -> bool:
    if node.op in ("and", "or"):
        return all(map(_is_condition, node.args))
    return node.op in _COMPUTED


def _parts(node: Any) -> list[Any]:
    if node.op == "int":
        return []
    pairs = {"add": "terms", "mul": "factors"}.get(node.op)
    return list(node.args) if pairs is None else [part for part, _ in getattr(node, pairs)]
