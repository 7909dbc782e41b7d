"""Symbolic numbers that kernels are given, instead of computing them.

The one idea: integers of Python have no limit, and those of kernels have 64 bits. The launcher
notices where an integer does not fit, and has the graph run as it was captured. So what the program
computes with integers is computed there, and kernels get a symbol that stands for it. They do
compute the places of elements, which fit if the tensors do.
"""

from __future__ import annotations

from typing import Any, Final

from pliant.sym.cond import Cond, ne
from pliant.sym.expr import BaseExpr, Expr, if_else, parts_of, symbol
from pliant.sym.floats import FloatExpr, float_symbol

MOST_FACTOR: Final = 1 << 32
MOST_EXPONENT: Final = 3
"""Places with larger factors, or higher powers, are given."""


class GivenNumbers:
    """The numbers that the kernels of a graph are given, with their symbols (`held`)."""

    def __init__(self, held: dict[Any, Any]) -> None:
        self.held = held

    def symbol_of(self, value: Any) -> Any:
        """The symbol that stands for a number."""
        if value not in self.held:
            new = symbol if isinstance(value, Expr) else float_symbol
            self.held[value] = new(f"pliant_{len(self.held)}")
        return self.held[value]

    def give(self, func: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Replace the arguments of a call by what its rule takes."""
        schema = getattr(func, "_schema", None)
        for position, argument in enumerate([] if schema is None else schema.arguments):
            given = self.as_place if "int" in str(argument.type) else self.as_number
            if position < len(args):
                args[position] = given(args[position])
            elif argument.name in kwargs:
                kwargs[argument.name] = given(kwargs[argument.name])

    def as_number(self, value: Any) -> Any:
        """A number that elements are computed with."""
        if not isinstance(value, Expr | FloatExpr | Cond) or not _computes_integers(value):
            return value
        if isinstance(value, Cond):
            return ne(self.symbol_of(if_else(value, 1, 0)), 0)
        return self.symbol_of(value)

    def as_place(self, value: Any) -> Any:
        """A size, or the place of an element. Few are made of numbers that may not fit."""
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.as_place, value))
        return self.symbol_of(value) if isinstance(value, Expr) and _may_be_large(value) else value


def _computes_integers(number: BaseExpr) -> bool:
    """Whether integers are computed on the way to a number of the program."""
    if isinstance(number, Expr):
        return number.op != "symbol" and number.value is None
    return any(map(_computes_integers, parts_of(number)))


def _may_be_large(number: Any) -> bool:
    """Whether a number in an expression may exceed 64 bits for symbols that are as large as sizes
    are: by a large factor (`seed * 6364136223846793005 % size`) or a high power."""
    if number.op == "symbol" or number.value is not None:
        return False
    large = any(abs(factor) >= MOST_FACTOR for _, factor in number.terms)
    large = large or any(exponent > MOST_EXPONENT for _, exponent in number.factors)
    return large or any(isinstance(p, Expr) and _may_be_large(p) for p in parts_of(number))
