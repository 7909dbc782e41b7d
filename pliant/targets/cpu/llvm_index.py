"""Index expressions as LLVM IR: 64-bit integers, wrapping as the machine does.

The one idea: an expression is what `sym` says wherever no step leaves 64 bits. Divisions never
trap: a divisor of 0, which stands in loops that don't run, is taken for 1, so that the compiler may
compute it anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pliant.sym.expr import Expr
from pliant.targets.cpu.llvm_text import Code, Reg

Symbols = Mapping[Expr, Reg]


class IndexWriter:
    """Writes expressions over what is in registers: symbols, and what kernels are given. `natural`
    are those known to be at least 0."""

    def __init__(self, code: Code, symbols: Symbols, natural: set[Expr]) -> None:
        self.code = code
        self.symbols = symbols
        self.natural = natural
        self.written: dict[Any, Reg] = {}
        self.signs: dict[Expr, bool] = {}

    def write(self, node: Any) -> Reg:
        # Whole expressions may be arguments of the kernel, so that is looked at before the parts.
        reg = self.symbols.get(node)
        if reg is None:
            reg = self.written.get(node)
        if reg is None:
            reg = self.written[node] = _WRITE[node.op](self, node)
        return reg

    def is_natural(self, node: Expr) -> bool:
        """Surely at least 0: nothing is subtracted, and nothing is in it that may be negative."""
        if node not in self.signs:
            self.signs[node] = self._is_natural(node)
        return self.signs[node]

    def _is_natural(self, node: Expr) -> bool:
        if node.op in ("int", "symbol"):
            return node.const >= 0 if node.op == "int" else node in self.natural
        if node.op == "add":
            parts = [p for p, c in node.terms if c < 0 or not self.is_natural(p)]
            return node.const >= 0 and not parts
        if node.op == "mul":
            return all(self.is_natural(factor) for factor, _ in node.factors)
        return node.op in ("floordiv", "mod") and all(map(self.is_natural, node.args))

    def sum(self, node: Expr) -> Reg:
        result: Reg | None = None
        for product, c in node.terms:
            part = self.write(product) if c == 1 else self.write(product) * c
            result = part if result is None else result + part
        assert result is not None
        return result + node.const if node.const else result

    def product(self, node: Expr) -> Reg:
        result: Reg | None = None
        for factor, exponent in node.factors:
            part = self.write(factor)
            for _ in range(exponent):
                result = part if result is None else result * part
        assert result is not None
        return result

    def divisor(self, b: Expr) -> Reg:
        if b.value:
            return self.write(b)
        reg = self.write(b)
        # Where a size is 0 no element is computed, but the division may have been hoisted out of
        # the loop.
        return self.code.select(reg.compare("eq", 0), 1, reg)

    def floordiv(self, node: Expr) -> Reg:
        a, b = node.args
        x, y = self.write(a), self.divisor(b)
        if self.is_natural(a) and self.is_natural(b):
            # Without signs there is nothing to correct, and LLVM turns it into shifts where it can.
            return self.code.binary("udiv", x, y)
        # LLVM rounds towards 0, Python down: one less where the signs differ and there is a
        # remainder.
        q = self.code.binary("sdiv", x, y)
        rest = x - q * y
        inexact = rest.compare("ne", 0) & (rest ^ y).compare("lt", 0)
        return q - self.code.convert("zext", inexact, "i64")

    def mod(self, node: Expr) -> Reg:
        a, b = node.args
        x, y = self.write(a), self.divisor(b)
        if self.is_natural(a) and self.is_natural(b):
            return self.code.binary("urem", x, y)
        # LLVM's remainder has the sign of the dividend, Python's that of the divisor.
        rest = self.code.binary("srem", x, y)
        other_sign = rest.compare("ne", 0) & (rest ^ y).compare("lt", 0)
        return self.code.select(other_sign, rest + y, rest)

    def fold(self, node: Expr, name: str) -> Reg:
        first, *rest = [self.write(arg) for arg in node.args]
        for reg in rest:
            first = self.code.intrinsic(name, first, reg)
        return first

    def bitwise(self, node: Expr, op: str) -> Reg:
        first, *rest = [self.write(arg) for arg in node.args]
        for reg in rest:
            first = self.code.binary(op, first, reg)
        return first

    def power(self, node: Expr) -> Reg:
        """A power of two, as a shift. Other powers of symbols don't occur in sizes."""
        base, exponent = node.args
        if base.value != 2:
            raise NotImplementedError(f"{node} as an index")
        return self.code.binary("shl", self.code.number(1, "i64"), self.write(exponent))

    def choice(self, node: Any) -> Reg:
        condition, a, b = map(self.write, node.args)
        return self.code.select(condition, a, b)

    def absolute(self, node: Expr) -> Reg:
        x = self.write(node.args[0])
        return self.code.select(x.compare("lt", 0), -x, x)


def _comparison(op: str) -> Callable[[IndexWriter, Any], Reg]:
    return lambda writer, node: writer.write(node.args[0]).compare(op, 0)


_WRITE: Final[dict[str, Callable[[IndexWriter, Any], Reg]]] = {
    "int": lambda writer, node: writer.code.number(node.const, "i64"),
    "add": IndexWriter.sum,
    "mul": IndexWriter.product,
    "floordiv": IndexWriter.floordiv,
    "mod": IndexWriter.mod,
    "min": lambda writer, node: writer.fold(node, "smin"),
    "max": lambda writer, node: writer.fold(node, "smax"),
    "abs": IndexWriter.absolute,
    "pow": IndexWriter.power,
    "bitand": lambda writer, node: writer.bitwise(node, "and"),
    "bitor": lambda writer, node: writer.bitwise(node, "or"),
    "bitxor": lambda writer, node: writer.bitwise(node, "xor"),
    "if": IndexWriter.choice,
    "le0": _comparison("le"),
    "eq0": _comparison("eq"),
    "ne0": _comparison("ne"),
    "and": lambda writer, node: writer.bitwise(node, "and"),
    "or": lambda writer, node: writer.bitwise(node, "or"),
    "true": lambda writer, node: writer.code.number(1, "i1"),
    "false": lambda writer, node: writer.code.number(0, "i1"),
}
