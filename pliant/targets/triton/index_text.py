"""Index expressions as Triton source, and the numbers that a kernel is given for them.

The one idea: what depends on sizes alone (an extent, a stride, a product of sizes) is computed by
the launcher and is an argument, so that its value can be told to the compiler to be a multiple
of 16. What depends on the place in a tile is arithmetic on blocks of 32 bits. Where that might not
be enough, the launcher is told a bound to look at, and takes the kernel with 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from string import digits as DIGITS
from typing import Any, Final

from pliant.base.values import dataclass, replace
from pliant.sym.expr import Expr, from_factors, from_terms, integer, substitute

NARROW: Final = 2**31 - 2**20
"""Below this, numbers are within 32 bits, those of lanes behind the end of a tensor as well."""
Axes = frozenset[str]
NONE: Final[Axes] = frozenset()


@dataclass(frozen=True, slots=True)
class Text:
    """An expression as text, and the axes of the tile ("rows", "columns") along which it varies."""

    text: str
    axes: Axes = NONE


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """A number that the launcher computes. `wide` ones have 64 bits in any case. `aligned`: it may
    matter what it is a multiple of."""

    name: str
    expr: Expr
    wide: bool
    aligned: bool = True


KNOWN: Final = frozenset(("s", "u"))
"""Symbols of sizes, and of numbers in the data: guards and logs have their names, too."""


class KernelArguments:
    """The numbers that a kernel is given, in the order in which they were needed first. Symbols are
    named as everywhere else if there are names of theirs, and else numbered anew: so that kernels
    which differ in nothing but that are equal."""

    def __init__(self) -> None:
        self.symbols: dict[str, str] = {}  # new names
        self.all: dict[tuple[Expr, bool], KernelArgument] = {}
        self.bounds: dict[Expr, None] = {}  # have to be within 32 bits, where indices are

    def name(self, expr: Expr, wide: bool = False) -> str:
        """The name of the parameter for an expression, which is added if it is new."""
        argument = self.all.get((expr, wide))
        if argument is None:
            name = self._name_of(expr) or f"n{len(self.all)}"
            name = f"{name}_wide" if wide else name
            if any(other.name == name for other in self.all.values()):
                name = f"n{len(self.all)}"
            argument = self.all[expr, wide] = KernelArgument(name, expr, wide)
        return argument.name

    def _name_of(self, expr: Any) -> str | None:
        """The name of a symbol, or of a product of some."""
        if expr.op == "symbol" and expr.name.isidentifier():
            kind = expr.name.rstrip(DIGITS)
            if kind in KNOWN:
                return str(expr.name)
            before = sum([name.rstrip(DIGITS) == kind for name in self.symbols])
            return self.symbols.setdefault(expr.name, f"{kind}{before}")
        if expr.op != "mul" or len(expr.factors) > 3:
            return None
        names = [self._name_of(factor) for factor, times in expr.factors for _ in range(times)]
        return None if None in names else "_".join(map(str, names))

    def is_no_place(self, expr: Expr) -> None:
        """Note that a number says nothing of memory: it needs no kernel for its multiples."""
        argument = self.all.get((expr, True))
        if argument is not None:
            self.all[expr, True] = replace(argument, aligned=False)


class IndexText:
    """Writes expressions over the variables in `names`: those of loops, and indices from data. What
    has none of them is an argument. `extents` are those of the loops, `signed` the symbols that may
    be less than 0."""

    def __init__(self, arguments: KernelArguments, signed: frozenset[Expr] = frozenset()) -> None:
        self.arguments = arguments
        self.signed = signed
        self.names: dict[Any, Text] = {}
        self.extents: dict[Expr, Expr] = {}

    def write(self, node: Any, wide: bool = False) -> Text:
        """Write an expression. `wide`: with 64 bits, whatever INDEX is."""
        if node in self.names:
            name = self.names[node]
            return Text(f"{name.text}.to(tl.int64)", name.axes) if wide else name
        if node.op == "int":
            return self._literal(node.const, wide)
        if isinstance(node, Expr) and not self._varies(node):
            return Text(self.arguments.name(node, wide))
        writer = _WRITE.get(node.op)
        if writer is None:
            raise NotImplementedError(f"{node} as an index of a Triton kernel")
        return writer(self, node, wide)

    def _literal(self, number: int, wide: bool) -> Text:
        """A number, which is a bound if it doesn't fit where indices have 32 bits."""
        if not wide and abs(number) >= NARROW:
            self.arguments.bounds[integer(abs(number))] = None
        return Text(str(number))

    def _sum(self, node: Expr, wide: bool) -> Text:
        # All terms that are the same in the whole tile become one argument.
        own = {part: times for part, times in node.terms if self._varies(part)}
        uniform = from_terms({p: t for p, t in node.terms if p not in own}, node.const)
        parts = [self._term(part, times, wide) for part, times in own.items()]
        if uniform.value != 0:
            parts.append(self.write(uniform, wide))
        return _joined(" + ", parts)

    def _term(self, part: Expr, times: int, wide: bool) -> Text:
        """Write `times * part`, with all that doesn't vary in the tile as one argument."""
        if part.op != "mul":
            inner = self.write(part, wide)
            factor = self._literal(times, wide).text
            return inner if times == 1 else Text(f"{inner.text} * {factor}", inner.axes)
        varying = {f: n for f, n in part.factors if self._varies(f)}
        uniform = from_factors({f: n for f, n in part.factors if f not in varying}) * times
        parts = [self.write(f, wide) for f, n in varying.items() for _ in range(n)]
        if uniform.value != 1:
            parts.append(self.write(uniform, wide))
        return _joined(" * ", parts)

    def _product(self, node: Expr, wide: bool) -> Text:
        return self._term(node, 1, wide)

    def _varies(self, node: Any) -> bool:
        return not node.symbols.isdisjoint(self.names)

    def is_natural(self, node: Any) -> bool:
        """Surely at least 0: nothing is subtracted, and nothing is in it that may be negative."""
        if node.op in ("int", "symbol"):
            is_size = node in self.extents or node not in self.names
            is_size = is_size and node not in self.signed
            return bool(node.const >= 0 if node.op == "int" else is_size)
        if node.op == "add":
            return node.const >= 0 and all(c >= 0 and self.is_natural(p) for p, c in node.terms)
        if node.op == "mul":
            return all(self.is_natural(factor) for factor, _ in node.factors)
        return node.op in ("floordiv", "mod") and all(map(self.is_natural, node.args))

    def _divided(self, node: Expr, wide: bool) -> Text:
        a, b = node.args
        natural = self.is_natural(a) and self.is_natural(b)
        # Without minus signs it is largest at the ends of the loops, and the launcher computes that
        # bound. Any other quotient is computed with 64 bits.
        if natural and not wide:
            self.arguments.bounds[substitute(a, self.extents)] = None
        else:
            wide = True
        x, y = self.write(a, wide), self.write(b, wide)
        axes = x.axes | y.axes
        if natural:
            return Text(f"({x.text} {'//' if node.op == 'floordiv' else '%'} {y.text})", axes)
        name = "floor_div" if node.op == "floordiv" else "floor_mod"
        return Text(f"{name}({x.text}, {y.text})", axes)

    def _best(self, node: Any, wide: bool) -> Text:
        name = {"min": "tl.minimum", "max": "tl.maximum"}[node.op]
        first, *rest = [self.write(arg, wide) for arg in node.args]
        for other in rest:
            first = Text(f"{name}({first.text}, {other.text})", first.axes | other.axes)
        return first

    def _absolute(self, node: Any, wide: bool) -> Text:
        inner = self.write(node.args[0], wide)
        return Text(f"tl.abs({inner.text})", inner.axes)

    def _choice(self, node: Any, wide: bool) -> Text:
        condition, a, b = [self.write(arg, wide) for arg in node.args]
        text = f"tl.where({condition.text}, {a.text}, {b.text})"
        return Text(text, condition.axes | a.axes | b.axes)

    def _compared(self, node: Any, wide: bool) -> Text:
        sign = {"le0": "<=", "eq0": "==", "ne0": "!="}[node.op]
        # What is compared is no place in memory, so that nothing else bounds it.
        inner = self.write(node.args[0], wide=True)
        return Text(f"({inner.text} {sign} 0)", inner.axes)

    def _bits(self, node: Any, wide: bool) -> Text:
        sign = {"and": "&", "or": "|", "bitand": "&", "bitor": "|", "bitxor": "^"}[node.op]
        return _joined(f" {sign} ", [self.write(arg, wide) for arg in node.args])


def _joined(sign: str, parts: list[Text]) -> Text:
    axes: Axes = NONE.union(*[part.axes for part in parts])
    text = sign.join([part.text for part in parts])
    return Text(f"({text})" if len(parts) > 1 else text, axes)


_WRITE: Final[dict[str, Callable[[IndexText, Any, bool], Text]]] = {
    "add": IndexText._sum,
    "mul": IndexText._product,
    "floordiv": IndexText._divided,
    "mod": IndexText._divided,
    "abs": IndexText._absolute,
    "if": IndexText._choice,
    "true": lambda writer, node, wide: Text("True"),
    "false": lambda writer, node, wide: Text("False"),
    **dict.fromkeys(("min", "max"), IndexText._best),
    **dict.fromkeys(("le0", "eq0", "ne0"), IndexText._compared),
    **dict.fromkeys(("and", "or", "bitand", "bitor", "bitxor"), IndexText._bits),
}
