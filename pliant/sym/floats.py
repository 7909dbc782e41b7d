"""Float expressions: what integers become by `/` and `math.*`, and float arguments of the program.

The one idea: floats have no algebra. `(a + b) + c` is not `a + (b + c)`, so an expression is kept
as it was computed; only operations on constants are done at once. Evaluating it does what Python
does, to the last bit: arguments may be integer expressions, and `a / b` of two integers is
Python's division of integers, which rounds once.

The way back is here too: `floor`, `ceil`, `trunc` and `round_half_even` give integer expressions.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from pliant.sym.expr import (
    BUILD,
    STRICT,
    VALUE,
    BaseExpr,
    Expr,
    cached,
    evaluate,
    integer,
    intern_node,
    symbol,
)


class FloatExpr(BaseExpr):
    """A float expression. As with `Expr`, equal ones are the same object, and `==` says so."""

    __slots__ = ()

    @property
    def value(self) -> float | None:
        """The number this is, if it is one."""
        return float.fromhex(self.args[0]) if self.op == "float" else None

    def __add__(self, other: NumberLike) -> FloatExpr:
        return apply("fadd", self, other)

    def __radd__(self, other: NumberLike) -> FloatExpr:
        return apply("fadd", other, self)

    def __sub__(self, other: NumberLike) -> FloatExpr:
        return apply("fsub", self, other)

    def __rsub__(self, other: NumberLike) -> FloatExpr:
        return apply("fsub", other, self)

    def __mul__(self, other: NumberLike) -> FloatExpr:
        return apply("fmul", self, other)

    def __rmul__(self, other: NumberLike) -> FloatExpr:
        return apply("fmul", other, self)

    def __truediv__(self, other: NumberLike) -> FloatExpr:
        return apply("truediv", self, other)

    def __rtruediv__(self, other: NumberLike) -> FloatExpr:
        return apply("truediv", other, self)

    def __floordiv__(self, other: NumberLike) -> FloatExpr:
        return apply("ffloordiv", self, other)

    def __mod__(self, other: NumberLike) -> FloatExpr:
        return apply("fmod", self, other)

    def __pow__(self, other: NumberLike) -> FloatExpr:
        return apply("fpow", self, other)

    def __neg__(self) -> FloatExpr:
        return apply("fneg", self)

    def __abs__(self) -> FloatExpr:
        return apply("fabs", self)


NumberLike = Expr | FloatExpr | int | float


@cached(1024)
def _number(text: str) -> FloatExpr:
    return intern_node(FloatExpr, "float", (text,))


def real(value: float) -> FloatExpr:
    """The number as an expression. (Kept as text: 0.0 and -0.0 are equal, but not the same.)"""
    # (nan has a text, too, so that it is interned although it isn't equal to itself.)
    return _number(float(value).hex())


def float_symbol(name: str) -> FloatExpr:
    """The float with this name."""
    node = intern_node(FloatExpr, "fsymbol", (name,))
    node.symbols = frozenset((node,))
    return node


def as_node(value: NumberLike) -> Expr | FloatExpr:
    if isinstance(value, BaseExpr):
        return value
    return real(value) if isinstance(value, float) else integer(value)


def to_float(value: NumberLike) -> FloatExpr:
    """`float(value)`"""
    node = as_node(value)
    return node if isinstance(node, FloatExpr) else apply("to_float", node)


def true_div(a: NumberLike, b: NumberLike) -> FloatExpr:
    """`a / b`"""
    return apply("truediv", a, b)


def float_power(a: NumberLike, b: NumberLike) -> FloatExpr:
    """`float(a ** b)`"""
    return apply("fpow", a, b)


def float_min(a: NumberLike, b: NumberLike) -> FloatExpr:
    return apply("fmin", a, b)


def float_max(a: NumberLike, b: NumberLike) -> FloatExpr:
    return apply("fmax", a, b)


def float_if(condition: BaseExpr, a: NumberLike, b: NumberLike) -> FloatExpr:
    """`a if condition else b`"""
    return apply("fif", condition, to_float(a), to_float(b))


def math_call(name: str, *args: NumberLike) -> FloatExpr:
    """`math.name(args)`, for the functions in `MATH`."""
    return apply("math." + name, *args)


def round_to(a: NumberLike, digits: int) -> FloatExpr:
    """`round(a, digits)` of a float."""
    return apply("fround", to_float(a), digits)


def apply(op: str, *args: Any) -> FloatExpr:
    """`op(args)`; computed at once when all arguments are numbers."""
    nodes = tuple([as_node(arg) for arg in args])
    if all(not node.symbols for node in nodes):
        return real(evaluate(intern_node(FloatExpr, op, nodes), {}))
    return intern_node(FloatExpr, op, nodes)


def floor(a: NumberLike) -> Expr:
    return _integer_from("floor", a)


def ceil(a: NumberLike) -> Expr:
    return _integer_from("ceil", a)


def trunc(a: NumberLike) -> Expr:
    """`int(a)`"""
    return _integer_from("trunc", a)


def round_half_even(a: NumberLike) -> Expr:
    """`round(a)`"""
    return _integer_from("round", a)


def _integer_from(op: str, a: NumberLike) -> Expr:
    node = as_node(a)
    return node if isinstance(node, Expr) else BUILD[op](node)


# --------------------------------------------------------------------------------------------------
# Values

_NAMES = """sqrt exp log log2 log10 log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh
acosh atanh erf erfc gamma lgamma cbrt degrees radians fabs pow atan2 hypot fmod copysign"""
MATH: Final = {name: getattr(math, name) for name in _NAMES.split()}
"""The functions of Python's `math` that give floats."""


def _real_power(a: float, b: float) -> float:
    result = a**b
    if isinstance(result, complex):
        raise ValueError(f"{a} ** {b} is not real")
    return float(result)


def _as_float(function: Callable[..., Any]) -> Callable[..., float]:
    return lambda *args: float(function(*args))


STRICT.update(
    {
        "to_float": float,
        "fadd": _as_float(operator.add),
        "fsub": _as_float(operator.sub),
        "fmul": _as_float(operator.mul),
        "truediv": operator.truediv,
        "ffloordiv": _as_float(operator.floordiv),
        "fmod": _as_float(operator.mod),
        "fpow": _real_power,
        "fneg": _as_float(operator.neg),
        "fabs": _as_float(abs),
        "fmin": _as_float(min),
        "fmax": _as_float(max),
        "fround": lambda a, digits: round(a, digits),
        "floor": math.floor,
        "ceil": math.ceil,
        "trunc": math.trunc,
        "round": round,
        **{"math." + name: function for name, function in MATH.items()},
    }
)
VALUE["float"] = lambda node, values: node.value
VALUE["fsymbol"] = lambda node, values: values[node]
VALUE["fif"] = VALUE["if"]


def _builder(op: str) -> Callable[..., FloatExpr]:
    return lambda *args: apply(op, *args)


_PLAIN = """to_float fadd fsub fmul truediv ffloordiv fmod fpow fneg fabs fmin fmax fround
fif"""
FLOAT_OPS: Final = (*_PLAIN.split(), *["math." + name for name in MATH])
BUILD.update({op: _builder(op) for op in FLOAT_OPS})


def float_bits(x: FloatExpr) -> Expr:
    """The integer symbol that stands for the bits of a float symbol."""
    return symbol(f"bits_{x.args[0]}")


def held_as(x: Any) -> Any:
    """What has the value of a symbol when code runs: of a float, its bits."""
    return float_bits(x) if x.op == "fsymbol" else x
