"""The node under `torch.SymInt`, `torch.SymFloat` and `torch.SymBool`: pliant's expressions, with
the methods that PyTorch calls.

PyTorch's symbolic numbers are shells: whatever is done with one, in Python or in C++, becomes a
call of a method of its `node`. The one idea: a node is an expression and a ShapeEnv; operations
build the expression, and only a question (`guard_bool`, `guard_int`, ...) reaches the ShapeEnv.

PyTorch's own shape functions also look at `node.shape_env`. That is a `Bridge`: the few methods
they call there, over our ShapeEnv, which is `node.env`. There is one bridge per ShapeEnv, and one
node per bridge and expression.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from pliant.base.python_errors import division_by_zero
from pliant.sym import cond as conds
from pliant.sym import expr as exprs
from pliant.sym import floats, node_layout
from pliant.sym.bounded import MOST_DEPTH
from pliant.sym.cond import FALSE, TRUE, Cond, and_, not_, or_, truth
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import ONE, Expr, cached, if_else, integer
from pliant.sym.floats import FloatExpr, real
from pliant.sym.node_asker import compares_strides, is_from_cpp
from pliant.sym.node_bridge import AnyExpr, Bridge, is_dense, number, truth_of, whole

TorchSymbolic = torch.SymInt | torch.SymFloat | torch.SymBool
SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""The classes of PyTorch's symbolic numbers, for `isinstance`."""

_THEIR_NODE: Final[type] = torch.SymInt.__add__.__globals__["SymNode"]
"""PyTorch's own node class. Nothing of it is used; but some of its functions accept no others."""

_PYTYPE: Final[dict[type, type]] = {Expr: int, FloatExpr: float, Cond: bool}
_SHELL: Final[dict[type, Any]] = {
    int: torch.SymInt,
    float: torch.SymFloat,
    bool: torch.SymBool,
}


# --------------------------------------------------------------------------------------------------
# To PyTorch and back


def to_torch(value: Any, env: ShapeEnv) -> Any:
    """The expression as one of PyTorch's numbers: plain for a constant, otherwise symbolic, and the
    same object for the same expression. Plain numbers are returned as they are."""
    if type(value) in _PLAIN:
        return value
    if not value.symbols:
        return value.value
    if (
        type(value) is not Expr
        or not value.plain
        or not value.symbols.isdisjoint(env.facts.replacements)
    ):
        value = env.simplify(value)
        if value.depth > MOST_DEPTH:
            value = env.bounded(value, "the program")
        if not value.symbols:
            return value.value
    bridge = vars(env).get("bridge") or bridge_of(env)
    return (bridge.nodes.get(value) or bridge.node(value)).shell


def from_torch(value: Any) -> Any:
    """The expression of a number of PyTorch's, symbolic or plain."""
    convert = _FROM.get(type(value))
    if convert is None:
        raise TypeError(f"{value!r} ({type(value).__name__}) is not a number with a size in it")
    return convert(value)


def _expr_of(value: Any) -> AnyExpr:
    node = value.node
    if type(node) is not SymNode:
        raise TypeError(f"{value!r} does not come from pliant")
    return node.expr


_PLAIN: Final = frozenset((int, float, bool))
_FROM: Final[dict[type, Callable[[Any], Any]]] = {
    int: integer,
    bool: truth,
    float: real,
    torch.SymInt: _expr_of,
    torch.SymFloat: _expr_of,
    torch.SymBool: _expr_of,
}


def bridge_of(env: ShapeEnv) -> Bridge:
    """The bridge of a ShapeEnv, which lives as long as that does."""
    bridge = vars(env).get("bridge")
    if bridge is None:
        bridge = vars(env)["bridge"] = Bridge(env, SymNode)
    return bridge


# --------------------------------------------------------------------------------------------------
# The node


class SymNode:
    """An expression of a ShapeEnv, with the protocol of PyTorch's nodes.

    The operations (`add`, `eq`, `sym_max`, ...) are put in below, from tables.
    """

    __slots__ = ("_shell", "_value", "expr", "pytype", "shape_env")

    def __init__(self, expr: AnyExpr, bridge: Bridge) -> None:
        self.expr = expr
        self.shape_env = bridge
        self.pytype = _PYTYPE[type(expr)]
        self._value = expr.value
        self._shell: Any = None

    # `isinstance` takes this for PyTorch's node: `torch.sym_ite` insists on it. (No property: what
    # interrupts its code would be lost in C++.)
    __class__ = _THEIR_NODE

    @property
    def env(self) -> ShapeEnv:
        return self.shape_env.env

    @property
    def shell(self) -> TorchSymbolic:
        """The object of PyTorch's around this node."""
        if self._shell is None:
            self._shell = _SHELL[self.pytype](self)
        return self._shell

    def __copy__(self) -> SymNode:
        return self

    def __deepcopy__(self, memo: object) -> SymNode:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self} is a symbolic number of one compilation: it can't be pickled")

    @property
    def constant(self) -> Any:
        """The number that the expression is known to be equal to, or None."""
        if self._value is not None:
            return self._value
        # C++ asks often, and most numbers stay symbols: only those that don't are simplified.
        replaced = self.shape_env.env.facts.replacements
        if not replaced or self.expr.symbols.isdisjoint(replaced):
            return None
        return self.shape_env.env.simplify(self.expr).value

    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def hint(self) -> Any:
        return self._value if self._value is not None else self.shape_env.env.hint(self.expr)

    _hint = hint
    fx_node = None

    def has_hint(self) -> bool:
        return self.hint is not None

    def require_hint(self, fallback: Any = None) -> Any:
        """What PyTorch before 2.12 calls to optimise for a size."""
        return self.hint if self.has_hint() else fallback

    def maybe_as_int(self) -> int | None:
        return self.constant if self.pytype is int else None

    def maybe_as_float(self) -> float | None:
        return self.constant if self.pytype is float else None

    def maybe_as_bool(self) -> bool | None:
        return self.constant if self.pytype is bool else None

    def wrap_int(self, number: int) -> SymNode:
        return self.shape_env.node(integer(number))

    def wrap_float(self, number: float) -> SymNode:
        return self.shape_env.node(real(number))

    def wrap_bool(self, value: bool) -> SymNode:
        return self.shape_env.node(TRUE if value else FALSE)

    def clone(self) -> SymNode:
        return self

    def str(self) -> Any:
        return str(self.shape_env.env.simplify(self.expr))

    __str__ = __repr__ = _graph_repr = str

    # Questions

    def guard_int(self, file: Any = "", line: int = 0) -> int:
        return int(self.shape_env.specialise(self.expr, file, line))

    def guard_float(self, file: Any = "", line: int = 0) -> float:
        return float(self.shape_env.specialise(self.expr, file, line))

    def statically_known_true(self, file: Any = "", line: int = 0) -> bool:
        return self.shape_env.env.known(truth_of(self.expr)) is True

    def sym_sum(self, nodes: Sequence[SymNode]) -> SymNode:
        return self.shape_env.node(exprs.sum_of([whole(node.expr) for node in nodes]))

    def sym_ite(self, then: SymNode, other: SymNode) -> SymNode:
        if self._value is not None:
            return then if self._value else other
        condition, a, b = truth_of(self.expr), then.expr, other.expr
        if isinstance(a, Cond) and isinstance(b, Cond):
            chosen: AnyExpr = or_(and_(condition, a), and_(not_(condition), b))
        elif isinstance(a, FloatExpr) or isinstance(b, FloatExpr):
            chosen = floats.float_if(condition, number(a), number(b))
        else:
            chosen = if_else(condition, whole(a), whole(b))
        return self.shape_env.node(chosen)

    def round(self, digits: int | None = None) -> SymNode:
        e = number(self.expr)
        rounded = floats.round_half_even(e) if digits is None else floats.round_to(e, digits)
        return self.shape_env.defined(rounded, _finite(e))

    def is_non_overlapping_and_dense(
        self, sizes: Sequence[SymNode], strides: Sequence[SymNode]
    ) -> SymNode:
        return self.shape_env.node(is_dense(self.shape_env, _exprs(sizes), _exprs(strides)))


def _exprs(nodes: Sequence[SymNode]) -> tuple[Expr, ...]:
    return tuple([whole(node.expr) for node in nodes])


def _install(methods: dict[str, Callable[..., Any]]) -> None:
    for name, method in methods.items():
        method.__name__ = name
        setattr(SymNode, name, method)


# --------------------------------------------------------------------------------------------------
# What it is, and questions


def _is(pytype: type) -> Callable[[SymNode], bool]:
    return lambda self: self.pytype is pytype


def _always(value: Any) -> Callable[..., Any]:
    return lambda self, *args: value


def _asks(how: str, *more: Any) -> Callable[..., bool]:
    ask = getattr(Bridge, how)

    def method(self: SymNode, file: str = "", line: int = 0) -> bool:
        if self._value is not None:
            return bool(self._value)
        return ask(self.shape_env, truth_of(self.expr), *more, file, line)

    return method


_install(
    {
        "is_int": _is(int),
        "is_float": _is(float),
        "is_bool": _is(bool),
        "is_nested_int": _always(False),
        "is_symbolic": _always(True),
        "nested_int": _always(None),
        "nested_int_coeff": _always(None),
        "guard_bool": _asks("guard_bool"),
        "bool_": _asks("guard_bool"),
        "guard_or_false": _asks("guard_or", False),
        "guard_or_true": _asks("guard_or", True),
        "guard_size_oblivious": _asks("size_oblivious"),
        "expect_true": _asks("expect_true"),
        "int_": SymNode.guard_int,
    }
)


# --------------------------------------------------------------------------------------------------
# Arithmetic and comparisons

BuildExpr = Callable[[Any, Any], AnyExpr]


def _binary(
    ints: BuildExpr, other: BuildExpr | None = None
) -> Callable[[SymNode, SymNode], SymNode]:
    """`ints` for two integers, `other` if a float is among the two; conditions count as 0 or 1."""

    def method(self: SymNode, right: SymNode) -> SymNode:
        a, b = self.expr, right.expr
        if type(a) is Expr and type(b) is Expr:
            e = ints(a, b)
        elif other is None or not (type(a) is FloatExpr or type(b) is FloatExpr):
            e = ints(whole(a), whole(b))
        else:
            e = other(number(a), number(b))
        # The fast path of `bridge.node`: most expressions have a node already.
        bridge = self.shape_env
        return bridge.nodes.get(e) or bridge.node(e)

    return method


def _dividing(
    ints: BuildExpr, other: BuildExpr, message: str
) -> Callable[[SymNode, SymNode], SymNode]:
    """A division as in Python: it raises ZeroDivisionError for a divisor 0, by a guard that it
    isn't 0."""
    build = _binary(ints, other)

    def method(self: SymNode, right: SymNode) -> SymNode:
        if not right._value:
            bridge, nonzero = self.shape_env, conds.ne(number(right.expr), 0)
            if bridge.env.hint(nonzero) is False and compares_strides():
                # They are products of sizes, so the tensor is empty and any order will do. The
                # other stride counts as no multiple of this one.
                bridge.expect_true(nonzero)
                return bridge.node(ONE)
            bridge.need(nonzero, ZeroDivisionError(message))
        return build(self, right)

    return method


def _dividing_floats(message: str) -> Callable[[SymNode, SymNode], SymNode]:
    """As `_dividing` if Python divides. C++ goes on with infinity or nan."""
    in_python = _dividing(floats.true_div, floats.true_div, message)

    def method(self: SymNode, right: SymNode) -> SymNode:
        bridge = self.shape_env
        if right._value or not is_from_cpp(sys._getframe(1)):
            return in_python(self, right)
        nonzero = conds.ne(number(right.expr), 0)
        if bridge.env.hint(nonzero) is not False or bridge.expect_true(nonzero):
            return in_python(self, right)
        top, bottom = (float(bridge.specialise(node.expr)) for node in (self, right))
        if top == 0 or math.isnan(top):
            return bridge.node(real(math.nan))
        return bridge.node(real(math.copysign(math.inf, top) * math.copysign(1.0, bottom)))

    return method


def _shifting(build: BuildExpr) -> Callable[[SymNode, SymNode], SymNode]:
    shift = _binary(build)

    def method(self: SymNode, right: SymNode) -> SymNode:
        self.shape_env.need(conds.ge(whole(right.expr), 0), ValueError("negative shift count"))
        return shift(self, right)

    return method


def _float_power(self: SymNode, right: SymNode) -> SymNode:
    a, b = number(self.expr), number(right.expr)
    defined = or_(conds.ne(a, 0), conds.ge(b, 0))
    self.shape_env.need(defined, ZeroDivisionError("0.0 cannot be raised to a negative power"))
    return self.shape_env.defined(floats.float_power(a, b))


def _comparing(ints: BuildExpr, other: BuildExpr) -> Callable[[SymNode, SymNode], SymNode]:
    return _binary(cached(16384)(ints), other)


def _eq(self: SymNode, right: SymNode) -> SymNode:
    a, b = self.expr, right.expr
    if isinstance(a, Cond) and isinstance(b, Cond):
        return self.shape_env.node(or_(and_(a, b), and_(not_(a), not_(b))))
    return _plain_eq(self, right)


def _ne(self: SymNode, right: SymNode) -> SymNode:
    a, b = self.expr, right.expr
    if isinstance(a, Cond) and isinstance(b, Cond):
        return self.shape_env.node(or_(and_(a, not_(b)), and_(not_(a), b)))
    return _plain_ne(self, right)


def _combining(
    combine: Callable[..., Cond], bits: Callable[[Expr, Expr], Expr]
) -> Callable[[SymNode, SymNode], SymNode]:
    """`&` and `|`: of conditions, otherwise of bits."""

    def method(self: SymNode, right: SymNode) -> SymNode:
        a, b = self.expr, right.expr
        if isinstance(a, Cond) and isinstance(b, Cond):
            return self.shape_env.node(combine(a, b))
        return self.shape_env.node(bits(whole(a), whole(b)))

    return method


_plain_eq = _comparing(conds.eq, conds.eq)
_plain_ne = _comparing(conds.ne, conds.ne)
_floordiv = _dividing(
    exprs.floordiv,
    lambda a, b: floats.apply("ffloordiv", a, b),
    division_by_zero(operator.floordiv),
)
_truediv = _dividing_floats("division by zero")
_and = _combining(and_, exprs.bit_and)
_or = _combining(or_, exprs.bit_or)

_install(
    {
        "add": _binary(exprs.add, lambda a, b: floats.apply("fadd", a, b)),
        "sub": _binary(exprs.sub, lambda a, b: floats.apply("fsub", a, b)),
        "mul": _binary(exprs.mul, lambda a, b: floats.apply("fmul", a, b)),
        "mod": _dividing(
            exprs.mod,
            lambda a, b: floats.apply("fmod", a, b),
            division_by_zero(operator.mod),
        ),
        "int_floordiv": _floordiv,
        "floordiv": _floordiv,
        "int_truediv": _truediv,
        "float_truediv": _truediv,
        "truediv": _truediv,
        "pow_by_natural": _binary(exprs.power),
        "float_pow": _float_power,
        "pow": _float_power,
        "lshift": _shifting(exprs.shift_left),
        "rshift": _shifting(exprs.shift_right),
        "bitwise_and": _and,
        "bitwise_or": _or,
        "bitwise_xor": _binary(exprs.bit_xor),
        "and_": _and,
        "or_": _or,
        "sym_and": _and,
        "sym_or": _or,
        "eq": _eq,
        "ne": _ne,
        "lt": _comparing(conds.lt, conds.lt),
        "le": _comparing(conds.le, conds.le),
        "gt": _comparing(conds.gt, conds.gt),
        "ge": _comparing(conds.ge, conds.ge),
        "sym_min": _binary(exprs.minimum, floats.float_min),
        "sym_max": _binary(exprs.maximum, floats.float_max),
    }
)


def _unary(build: Callable[[Any], AnyExpr]) -> Callable[[SymNode], SymNode]:
    return lambda self: self.shape_env.node(build(number(self.expr)))


def _finite(e: Any) -> Cond:
    """Not inf or nan, which only floats from outside can be."""
    return conds.lt(abs(e), math.inf) if any(s.op == "fsymbol" for s in e.symbols) else TRUE


def _partial(
    build: Callable[[Any], AnyExpr], domain: Callable[[Any], Cond] = _finite
) -> Callable[[SymNode], SymNode]:
    """The method for a function that has no value outside of `domain`."""

    def method(self: SymNode) -> SymNode:
        e = number(self.expr)
        return self.shape_env.defined(build(e), domain(e))

    return method


def _floor(self: SymNode) -> SymNode:
    """`floor(x)`. PyTorch computes `a // b` of floats as `floor(a / b)`, Python doesn't: 1 // 0.1
    is 9.0. So where `//` asks, the quotient is Python's."""
    e = number(self.expr)
    # PyTorch divides first and rounds then; who called tells that `//` was meant.
    if e.op == "truediv" and sys._getframe(2).f_code.co_name in ("__floordiv__", "__rfloordiv__"):
        e = floats.apply("ffloordiv", *e.args)
    return self.shape_env.defined(floats.floor(e), _finite(e))


def _math(name: str, domain: Callable[[Any], Cond]) -> Callable[[SymNode], SymNode]:
    return _partial(lambda e: floats.math_call(name, e), domain)


def _anywhere(e: Any) -> Cond:
    return TRUE


def _up_to_one(e: Any) -> Cond:
    return and_(conds.ge(e, -1), conds.le(e, 1))


_MATH: Final[dict[str, Callable[[Any], Cond]]] = {
    "sqrt": lambda e: conds.ge(e, 0),
    "log2": lambda e: conds.gt(e, 0),
    "asin": _up_to_one,
    "acos": _up_to_one,
    "sin": _finite,
    "cos": _finite,
    "tan": _finite,
    **dict.fromkeys(["sinh", "cosh", "tanh", "atan"], _anywhere),
}
"""The functions of `math` that PyTorch has methods for, and where they are defined."""


_install(
    {
        "neg": _unary(lambda e: -e),
        "pos": _unary(lambda e: e),
        "abs": _unary(abs),
        "floor": _floor,
        "ceil": _partial(floats.ceil),
        "trunc": _partial(floats.trunc),
        "sym_int": _partial(floats.trunc),
        "sym_float": _unary(floats.to_float),
        "is_integer": _unary(lambda e: conds.eq(floats.apply("fmod", e, 1.0), 0.0)),
        "sym_not": lambda self: self.shape_env.node(not_(truth_of(self.expr))),
        **{"sym_" + name: _math(name, domain) for name, domain in _MATH.items()},
    }
)


# --------------------------------------------------------------------------------------------------
# What PyTorch's shape functions look at in `node.expr`


def _free_symbols(e: exprs.BaseExpr) -> frozenset[Any]:
    """The symbols as those of sympy, of which PyTorch looks at the name: "u" is for unbacked ones.
    Only called by code that has loaded sympy."""
    make = sys.modules["sympy"].Symbol
    return frozenset([make(str(s.args[0])) for s in e.symbols])


_OF_EXPRESSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "free_symbols": _free_symbols,
    "is_number": lambda e: not e.symbols,
    "is_Boolean": lambda e: isinstance(e, Cond),
    "is_symbol": lambda e: e.op in ("symbol", "fsymbol"),
    "is_Symbol": lambda e: e.op in ("symbol", "fsymbol"),
}
for _name, _function in _OF_EXPRESSIONS.items():
    setattr(exprs.BaseExpr, _name, property(_function))


# --------------------------------------------------------------------------------------------------
# Layout


def _layout(question: node_layout.LayoutCondition) -> Callable[..., SymNode]:
    return lambda self, sizes, strides: self.shape_env.node(
        question(_exprs(sizes), _exprs(strides))
    )


def _dense_as_number(
    self: SymNode, sizes: Sequence[SymNode], strides: Sequence[SymNode]
) -> SymNode:
    return self.shape_env.node(number(self.is_non_overlapping_and_dense(sizes, strides).expr))


_install(
    {
        **{
            name: _layout(getattr(node_layout, name))
            for name in (
                "is_contiguous",
                "is_channels_last_contiguous_2d",
                "is_channels_last_contiguous_3d",
                "is_channels_last_strides_2d",
                "is_channels_last_strides_3d",
            )
        },
        "is_non_overlapping_and_dense_indicator": _dense_as_number,
    }
)
