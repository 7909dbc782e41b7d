"""Integer expressions over named sizes: `s0*s1 + 2*(s0//4) - 1`.

The one idea: every expression is in normal form and exists once, so that `is` is equality. The
normal form is a sum of products of atoms,

    expression = const + sum of coefficient * product        (`const`, `terms`)
    product    = product of atom ** exponent                 (`factors`)
    atom       = symbol | operation(arguments)               such as s0 // 4, min(s0, s1)

with terms and factors in a fixed order (`order`), which does not depend on what was built before.
So `(s0 + 2)*(s1 - 1)` is `s0*s1 + 2*s1 - s0 - 2`, whichever way it was computed.

The values are those of Python's integers, without limits of size. `floordiv`, `mod` and `power` may
have no value (a divisor 0, an exponent below 0): evaluating them raises what Python raises. What is
built here has the value of what was asked for wherever that has one; only cancelling in a sum or
product (`x//y - x//y`) can give a value where there was none before.

A symbol is no more than its name: what is known of it is in `facts`, where it came from in `env`.
So the table of all expressions doesn't grow with the number of compilations, which use the same
names.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from pliant._native import drop_unused

EXPAND_POWERS_TO = 8  # (a + b)**8 is multiplied out, (a + b)**9 is an atom


class BaseExpr:
    """What integer, float and boolean expressions have in common: an operation on arguments."""

    __slots__ = ("args", "depth", "op", "order", "span", "symbols")

    op: str
    args: tuple[Any, ...]
    depth: int  # of operations within operations
    span: Any  # the range that follows from the structure alone; `ranges` puts it here
    order: tuple[Any, ...]  # sorts nodes of all kinds, by structure alone
    symbols: frozenset[BaseExpr]  # the int and float symbols in it

    def __repr__(self) -> str:
        return TEXT[0](self)

    def __reduce__(self) -> Any:
        return _unpickled, (_flattened(self),)

    def __copy__(self) -> BaseExpr:
        return self

    def __deepcopy__(self, memo: object) -> BaseExpr:
        return self

    def __bool__(self) -> bool:
        raise TypeError(f"{self} is an expression: ask a ShapeEnv for its truth")


TEXT: Final[list[Callable[[BaseExpr], str]]] = [lambda node: f"{node.op}{node.args}"]
"""How a node is shown; `printing` puts its own here."""


class Expr(BaseExpr):
    """An integer expression. Made by the functions below and by Python's operators.

    `==` and `hash` are those of the object: equal expressions are the same object. The comparisons
    that make conditions (`le`, `eq`, ...) are in `cond`, division to a float is in `floats`.
    """

    __slots__ = ("const", "factors", "plain", "terms")

    plain: bool  # a polynomial in symbols: no other operation in it
    const: int
    terms: tuple[tuple[Expr, int], ...]
    factors: tuple[tuple[Expr, int], ...]  # of a product or an atom; empty for numbers and sums

    @property
    def value(self) -> int | None:
        """The number this is, if it is one."""
        return None if self.terms else self.const

    @property
    def name(self) -> str:
        """The name of a symbol."""
        return str(self.args[0])

    def __add__(self, other: Expr | int) -> Expr:
        return add(self, as_expr(other))

    def __sub__(self, other: Expr | int) -> Expr:
        return sub(self, as_expr(other))

    def __mul__(self, other: Expr | int) -> Expr:
        return mul(self, as_expr(other))

    def __floordiv__(self, other: Expr | int) -> Expr:
        return floordiv(self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return mod(self, other)

    def __divmod__(self, other: Expr | int) -> tuple[Expr, Expr]:
        return floordiv(self, other), mod(self, other)

    def __pow__(self, other: Expr | int) -> Expr:
        return power(self, other)

    def __lshift__(self, other: Expr | int) -> Expr:
        return shift_left(self, other)

    def __rshift__(self, other: Expr | int) -> Expr:
        return shift_right(self, other)

    def __rsub__(self, other: int) -> Expr:
        return sub(integer(other), self)

    def __rfloordiv__(self, other: int) -> Expr:
        return floordiv(other, self)

    def __rmod__(self, other: int) -> Expr:
        return mod(other, self)

    def __rpow__(self, other: int) -> Expr:
        return power(other, self)

    def __neg__(self) -> Expr:
        return scale(self, -1)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return absolute(self)

    __radd__ = __add__
    __rmul__ = __mul__


# --------------------------------------------------------------------------------------------------
# The table of all nodes, and numbers, symbols, sums and products in it

# Keyed by operation and arguments. These tables make `is` equality: every constructor looks here
# before it makes a node.
_nodes: dict[tuple[Any, ...], Any] = {}
_integers: dict[int, Expr] = {}
_NO_SYMBOLS: frozenset[Any] = frozenset()


def intern_node(cls: type[BaseExpr], op: str, args: tuple[Any, ...], **more: Any) -> Any:
    """The one node of this class with this operation and arguments (hash-consing). `args` are
    nodes, numbers or strings; `more` are further attributes of a new node."""
    key = (op, *args)
    existing = _nodes.get(key)
    if existing is not None:
        return existing
    node = cls.__new__(cls)
    node.op, node.args = op, args
    nodes = [arg for arg in args if isinstance(arg, BaseExpr)]
    node.symbols = _NO_SYMBOLS.union(*[arg.symbols for arg in nodes])
    node.depth = 1 + max([arg.depth for arg in nodes], default=-1)
    # By structure: operation, number of arguments, arguments. 0 to 4 order the kinds of nodes
    # (numbers, symbols, atoms, products, sums).
    node.order = (2, op, len(args), *[a.order if isinstance(a, BaseExpr) else (0, a) for a in args])
    for name, value in more.items():
        setattr(node, name, value)
    return _nodes.setdefault(key, node)  # atomic: the first thread wins


MANY_NODES: Final = 20_000  # a sweep walks both tables, so it is rare
_next_sweep = MANY_NODES


def drop_unused_nodes() -> None:
    """Drop interned nodes that nothing else refers to: sizes and constants of programs that are
    gone. A sweep takes place only if the tables have doubled since the last one. A node that is
    referred to stays the only one of its kind."""
    global _next_sweep
    if len(_nodes) + len(_integers) < _next_sweep:
        return
    drop_unused(_nodes)
    drop_unused(_integers)
    # Amortized: a sweep is linear in the tables, so it waits until they have doubled.
    _next_sweep = max(MANY_NODES, 2 * (len(_nodes) + len(_integers)))


_caches: Final[list[Any]] = []
F = TypeVar("F", bound=Callable[..., Any])


def cached(size: int) -> Callable[[F], F]:
    """`lru_cache` for functions of expressions, which `forget` empties."""

    def decorate(function: F) -> F:
        wrapper: Any = lru_cache(size)(function)
        _caches.append(wrapper)
        result: F = wrapper
        return result

    return decorate


def forget() -> None:
    """Empty the caches and drop all nodes that nothing else refers to."""
    global _next_sweep
    for cache in _caches:
        cache.cache_clear()
    _next_sweep = 0
    drop_unused_nodes()


def integer(value: int) -> Expr:
    """The number as an expression."""
    existing = _integers.get(value) if type(value) is int else None
    if existing is not None:
        return existing
    if not isinstance(value, int):
        raise TypeError(f"an integer is needed, not {value!r}")
    value = int(value)  # not a bool
    node = Expr.__new__(Expr)
    node.op, node.args, node.order, node.symbols = "int", (value,), (0, value), _NO_SYMBOLS
    node.depth = 0
    node.const, node.terms, node.factors, node.plain = value, (), (), True
    return _integers.setdefault(value, node)


def as_expr(value: Expr | int) -> Expr:
    return value if isinstance(value, Expr) else integer(value)


def _order_of_name(name: str) -> tuple[str, int, str]:
    """The sort key of a symbol's name, in which s2 comes before s10."""
    match = re.search(r"\d+$", name)
    return (name[: match.start()], int(match[0]), name) if match else (name, -1, name)


def symbol(name: str) -> Expr:
    """The integer with this name."""
    key = ("symbol", name)
    existing = _nodes.get(key)
    if existing is None:
        node = _atom(Expr.__new__(Expr), "symbol", (name,))
        node.order, node.symbols = (1, *_order_of_name(name)), frozenset((node,))
        node.depth = 0
        existing = _nodes.setdefault(key, node)
    return existing


def _atom(node: Expr, op: str, args: tuple[Any, ...]) -> Expr:
    node.op, node.args, node.const, node.plain = op, args, 0, op == "symbol"
    node.terms = node.factors = ((node, 1),)
    return node


def atom(op: str, *args: BaseExpr) -> Expr:
    """The node `op(args)` as it stands. No rewrite rule is applied: for code that has applied them,
    or knows that none fits."""
    key = (op, *args)
    existing = _nodes.get(key)
    if existing is None:
        node = _atom(Expr.__new__(Expr), op, args)
        node.symbols = _NO_SYMBOLS.union(*[arg.symbols for arg in args])
        node.depth = 1 + max([arg.depth for arg in args])
        node.order = (2, op, len(args), *[arg.order for arg in args])
        existing = _nodes.setdefault(key, node)
    return existing


def _order_of_first(pair: tuple[Expr, int]) -> tuple[Any, ...]:
    return pair[0].order


def from_terms(coefficients: Mapping[Expr, int], const: int) -> Expr:
    """The sum of each product times its coefficient, plus `const`, in normal form: zero
    coefficients are dropped, terms sorted, and a sum of one term with the coefficient 1 is that
    term."""
    # Terms that cancel out go, so that equal sums have equal keys.
    items = [item for item in coefficients.items() if item[1]]
    if not items:
        return integer(const)
    if len(items) > 1:
        items.sort(key=_order_of_first)
    elif const == 0 and items[0][1] == 1:
        return items[0][0]
    # Sorted by structure, not by when a node was made: equal sums have equal keys in whatever order
    # they were built.
    key = ("add", const, *items)
    existing = _nodes.get(key)
    if existing is not None:
        return existing
    node = Expr.__new__(Expr)
    terms = tuple(items)
    node.op, node.args, node.const, node.terms, node.factors = (
        "add",
        (terms, const),
        const,
        terms,
        (),
    )
    node.symbols = _NO_SYMBOLS.union(*[product.symbols for product, _ in terms])
    node.depth = 1 + max([product.depth for product, _ in terms])
    node.order = (4, tuple([(product.order, c) for product, c in terms]), const)
    node.plain = False not in [product.plain for product, _ in terms]
    return _nodes.setdefault(key, node)


def from_factors(exponents: Mapping[Expr, int]) -> Expr:
    """The product of each atom to the power of its exponent (1 or more). The empty product is 1."""
    items = list(exponents.items())
    if not items:
        return ONE
    # Sorted for the same reason as terms: equal products have equal keys.
    if len(items) > 1:
        items.sort(key=_order_of_first)
    elif items[0][1] == 1:
        return items[0][0]
    key = ("mul", *items)
    existing = _nodes.get(key)
    if existing is not None:
        return existing
    factors = tuple(items)
    node = Expr.__new__(Expr)
    node.op, node.args, node.const, node.factors = "mul", factors, 0, factors
    node.terms = ((node, 1),)
    node.symbols = _NO_SYMBOLS.union(*[factor.symbols for factor, _ in factors])
    node.depth = 1 + max([factor.depth for factor, _ in factors])
    node.order = (3, tuple([(factor.order, e) for factor, e in factors]))
    node.plain = False not in [factor.plain for factor, _ in factors]
    return _nodes.setdefault(key, node)


ZERO: Final = integer(0)
ONE: Final = integer(1)


# --------------------------------------------------------------------------------------------------
# Arithmetic of the normal form


@cached(16384)
def add(a: Expr, b: Expr) -> Expr:
    # Adding a number leaves the terms as they are.
    if not b.terms:
        return _plus(a, b.const)
    if not a.terms:
        return _plus(b, a.const)
    return _merged(a, b, 1)


@cached(16384)
def sub(a: Expr, b: Expr) -> Expr:
    if a is b:
        return ZERO
    if not b.terms:
        return _plus(a, -b.const)
    return _merged(a, b, -1)


def _plus(a: Expr, number: int) -> Expr:
    return a if number == 0 else from_terms(dict(a.terms), a.const + number)


def _merged(a: Expr, b: Expr, sign: int) -> Expr:
    """a + sign*b: terms with the same product are joined."""
    coefficients = dict(a.terms)
    for product, coefficient in b.terms:
        coefficients[product] = coefficients.get(product, 0) + sign * coefficient
    return finish_sum(coefficients, a.const + sign * b.const)


def finish_sum(coefficients: dict[Expr, int], const: int) -> Expr:
    """The sum, with `k*(x//k) + x%k` put together as x. Without a remainder among the terms this is
    `from_terms`."""
    remainders = [p for p in coefficients if p.op == "mod"]
    for remainder in remainders:
        x, k = remainder.args
        count = coefficients[remainder]
        # The other half of the identity x == k*(x//k) + x%k, as it would stand in the sum.
        quotient = mul(k, floordiv(x, k))
        if count and len(quotient.terms) == 1 and not quotient.const:
            (product, size), *_ = quotient.terms
            # c*(x%k) needs exactly c times the quotient's term beside it.
            if coefficients.get(product, 0) == count * size:
                del coefficients[product], coefficients[remainder]
                shorter = add(from_terms(coefficients, const), scale(x, count))
                # Adding x may have made another such pair; each round has two terms fewer, but for
                # those of x.
                return finish_sum(dict(shorter.terms), shorter.const)
    return from_terms(coefficients, const)


def scale(a: Expr, number: int) -> Expr:
    """`number * a`"""
    if number == 1:
        return a
    return from_terms({product: c * number for product, c in a.terms}, a.const * number)


@cached(16384)
def mul(a: Expr, b: Expr) -> Expr:
    if not b.terms:
        return scale(a, b.const)
    if not a.terms:
        return scale(b, a.const)
    # Two products: only exponents are added.
    if a.factors and b.factors:
        return _product(a, b)
    # Multiply out: the normal form is a sum of products, never a product of sums.
    coefficients: dict[Expr, int] = {}
    for product, c in _with_const(a):
        for other, d in _with_const(b):
            result = _product(product, other)
            coefficients[result] = coefficients.get(result, 0) + c * d
    const = coefficients.pop(ONE, 0)
    return finish_sum(coefficients, const)


def _with_const(a: Expr) -> Iterable[tuple[Expr, int]]:
    return (*a.terms, (ONE, a.const)) if a.const else a.terms


def _product(a: Expr, b: Expr) -> Expr:
    exponents = dict(a.factors)
    for factor, exponent in b.factors:
        exponents[factor] = exponents.get(factor, 0) + exponent
    return from_factors(exponents)


def sum_of(exprs: Iterable[Expr]) -> Expr:
    """The sum of all of them, in one pass: adding one by one would copy the growing sum each
    time."""
    coefficients: dict[Expr, int] = {}
    const = 0
    for expr in exprs:
        const += expr.const
        for product, coefficient in expr.terms:
            coefficients[product] = coefficients.get(product, 0) + coefficient
    return finish_sum(coefficients, const)


def product_of(exprs: Iterable[Expr]) -> Expr:
    result = ONE
    for expr in exprs:
        result = mul(result, expr)
    return result


@cached(16384)
def content(a: Expr) -> tuple[Expr, int, int]:
    """`(t, g, c)` with a = g*t + c: the *form* t of an expression.

    The coefficients of t have no common divisor, the first of them is positive, and t has no
    constant. `6 - 4*s0 + 2*s1` gives `(2*s0 - s1, -2, 6)`. For a number, t is 0 and g is 1.
    """
    if not a.terms:
        return ZERO, 1, a.const
    g = math.gcd(*[c for _, c in a.terms])
    # A form and its negation are one form: bounds on s0 - s1 and on s1 - s0 share a key.
    if a.terms[0][1] < 0:
        g = -g
    return from_terms({product: c // g for product, c in a.terms}, 0), g, a.const


# --------------------------------------------------------------------------------------------------
# Operations that make atoms. `rules` fills the table: rules need the arithmetic above, and the
# operators need the rules.

BUILD: Final[dict[str, Callable[..., Any]]] = {}


def floordiv(a: Expr | int, b: Expr | int) -> Expr:
    return BUILD["floordiv"](as_expr(a), as_expr(b))


def mod(a: Expr | int, b: Expr | int) -> Expr:
    return BUILD["mod"](as_expr(a), as_expr(b))


def ceildiv(a: Expr | int, b: Expr | int) -> Expr:
    return -floordiv(-as_expr(a), b)


def power(a: Expr | int, b: Expr | int) -> Expr:
    """`a ** b` as an integer. It has no value where b is below 0, since Python's result is a float
    there."""
    return BUILD["pow"](as_expr(a), as_expr(b))


def shift_left(a: Expr | int, b: Expr | int) -> Expr:
    return as_expr(a) * power(2, b)


def shift_right(a: Expr | int, b: Expr | int) -> Expr:
    return floordiv(a, power(2, b))


def minimum(*args: Expr | int) -> Expr:
    return BUILD["min"](*map(as_expr, args))


def maximum(*args: Expr | int) -> Expr:
    return BUILD["max"](*map(as_expr, args))


def absolute(a: Expr | int) -> Expr:
    return BUILD["abs"](as_expr(a))


def bit_and(a: Expr | int, b: Expr | int) -> Expr:
    return BUILD["bitand"](as_expr(a), as_expr(b))


def bit_or(a: Expr | int, b: Expr | int) -> Expr:
    return BUILD["bitor"](as_expr(a), as_expr(b))


def bit_xor(a: Expr | int, b: Expr | int) -> Expr:
    return BUILD["bitxor"](as_expr(a), as_expr(b))


def if_else(condition: BaseExpr, a: Expr | int, b: Expr | int) -> Expr:
    """`a if condition else b`; `if_else(condition, 1, 0)` is the condition as a number."""
    return BUILD["if"](condition, as_expr(a), as_expr(b))


# --------------------------------------------------------------------------------------------------
# Values, and replacing symbols

SymbolValues = Mapping[Any, Any]


def _natural_power(base: int, exponent: int) -> int:
    if exponent < 0:
        raise ValueError(f"{base} ** {exponent} is not an integer")
    return base**exponent


STRICT: Final[dict[str, Callable[..., Any]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": _natural_power,
    "min": min,
    "max": max,
    "abs": abs,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}
"""Operations whose value follows from those of all arguments."""


def _sum_value(node: Expr, values: SymbolValues) -> int:
    return node.const + sum([c * evaluate(product, values) for product, c in node.terms])


def _product_value(node: Expr, values: SymbolValues) -> int:
    return math.prod([evaluate(factor, values) ** e for factor, e in node.factors])


def _if_value(node: BaseExpr, values: SymbolValues) -> Any:
    """Only the side that is chosen: the other one may have no value."""
    condition, a, b = node.args
    return evaluate(a if evaluate(condition, values) else b, values)


VALUE: Final[dict[str, Callable[[Any, SymbolValues], Any]]] = {
    "int": lambda node, values: node.const,
    "symbol": lambda node, values: values[node],
    "add": _sum_value,
    "mul": _product_value,
    "if": _if_value,
}
"""All other operations."""


SHALLOW: Final = 4  # what is no deeper has few parts, which are not worth a table


class _Values(dict[Any, Any]):
    """Values of symbols, and of every expression that was computed from them: the memo of
    `evaluate`."""


def evaluate(node: BaseExpr, values: SymbolValues) -> Any:
    """The value of an expression for given values of its symbols, as Python computes it; so it may
    raise, as for a division by 0."""
    # A table costs more than it saves on a shallow node. A deep one shares its parts, and without a
    # table a part would be evaluated once for each path that leads to it.
    if node.depth <= SHALLOW:
        return _evaluated(node, values)
    # The table is passed down as `values`, so one serves the whole evaluation.
    table = values if type(values) is _Values else _Values(values)
    if node not in table:
        table[node] = _evaluated(node, table)
    return table[node]


def _evaluated(node: BaseExpr, values: SymbolValues) -> Any:
    function = STRICT.get(node.op)
    if function is not None:
        return function(*[evaluate(arg, values) for arg in node.args])
    return VALUE[node.op](node, values)


Visit = Callable[[Any], Any]


def _rebuild_sum(node: Expr, visit: Visit) -> Expr:
    return sum_of([scale(visit(p), c) for p, c in node.terms] + [integer(node.const)])


def _rebuild_product(node: Expr, visit: Visit) -> Expr:
    return product_of([power(visit(factor), e) for factor, e in node.factors])


REBUILD: Final[dict[str, Callable[[Any, Visit], Any]]] = {
    "add": _rebuild_sum,
    "mul": _rebuild_product,
}


def parts_of(node: Any) -> Iterable[BaseExpr]:
    """The nodes that a node is computed from; numbers among its arguments are left out."""
    if node.op == "add":
        return [product for product, _ in node.terms]
    if node.op == "mul":
        return [factor for factor, _ in node.factors]
    return [arg for arg in node.args if isinstance(arg, BaseExpr)]


# An expression is pickled as a list of operations, arguments first: recursion into a deep one would
# exhaust the stack. Loading interns each, so that `is` stays equality.

_Flat = tuple[tuple[type[BaseExpr], str, tuple[tuple[bool, Any], ...]], ...]


def _flattened(node: BaseExpr) -> _Flat:
    """The operations of an expression in topological order, arguments first."""
    places: dict[BaseExpr, int] = {}
    flat = []
    # An explicit stack instead of recursion. A node stays on it until all its parts have a place.
    pending = [node]
    while pending:
        node = pending[-1]
        missing = [part for part in parts_of(node) if part not in places]
        pending += missing
        if not missing:
            pending.pop()
            if node not in places:
                places[node] = len(places)
                flat.append((type(node), node.op, _flat_args(node, places)))
    return tuple(flat)


def _flat_args(node: Any, places: Mapping[BaseExpr, int]) -> tuple[tuple[bool, Any], ...]:
    """The arguments of a node as `(is_place, value)`: an index into the flat list, or a plain
    value. A sum or product has pairs `(place, coefficient or exponent)` and its constant at the
    end."""
    if node.op in ("add", "mul"):
        parts = node.terms if node.op == "add" else node.factors
        return (*[(False, (places[part], n)) for part, n in parts], (False, node.const))
    return tuple([(True, places[a]) if isinstance(a, BaseExpr) else (False, a) for a in node.args])


def _unpickled(flat: _Flat) -> Any:
    nodes: list[Any] = []
    for cls, op, arguments in flat:
        args = tuple([nodes[value] if is_place else value for is_place, value in arguments])
        if op in ("add", "mul"):
            *pairs, const = args
            numbers = {nodes[place]: number for place, number in pairs}
            node = from_terms(numbers, const) if op == "add" else from_factors(numbers)
        elif op in _UNPICKLED:
            node = _UNPICKLED[op](*args)
        else:
            node = atom(op, *args) if cls is Expr else intern_node(cls, op, args)
        # `intern_node` takes the symbols of a node from its arguments, of which this one has none.
        if op == "fsymbol":
            node.symbols = frozenset((node,))
        nodes.append(node)
    return nodes[-1]


_UNPICKLED: Final[dict[str, Callable[..., Expr]]] = {"int": integer, "symbol": symbol}


def rebuild(node: BaseExpr, visit: Visit) -> Any:
    """The same operation applied to `visit(part)` for each part, in normal form again. Not for
    numbers and symbols, which have no parts."""
    special = REBUILD.get(node.op)
    if special is not None:
        return special(node, visit)
    return BUILD[node.op](*[visit(arg) for arg in node.args])


def substitute(node: Any, replacements: Mapping[Any, Any]) -> Any:
    """`node` with symbols replaced, all at once: replacing s0 by s1 and s1 by s0 exchanges them.
    Linear in the number of distinct parts."""
    # Most subtrees are untouched: their set of symbols tells so without a walk.
    if not node.symbols or node.symbols.isdisjoint(replacements):
        return node
    # The replacements seed the memo, so they are never visited themselves: a replacement may
    # contain a symbol that is replaced, too.
    done: dict[BaseExpr, Any] = dict(replacements)

    def visit(inner: Any) -> Any:
        result = done.get(inner)
        if result is None:
            if inner.symbols.isdisjoint(replacements):
                return inner
            result = done[inner] = rebuild(inner, visit)
        return result

    return visit(node)
