"""Expressions as text: Python (`s0*(s1//2) + 1`) and C.

The one idea: the text can be run. Python's gives the value `evaluate` gives; C's does where no step
leaves 64 bits. It depends on the expression alone, not on what was built before. Python's is for
people, and ends in `...` after some hundreds of parts: text can't share what an expression does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from pliant.sym.expr import TEXT, BaseExpr, Expr, from_terms, integer
from pliant.sym.floats import MATH

SymbolNames = Mapping[Any, str]

MOST_PARTS: Final = 400

# How tightly an operation binds. What binds less than its place asks for gets parentheses.
CHOICE, OR, AND, NOT, COMPARE, BITS, SUM, PRODUCT, UNARY, POWER, ATOM = range(11)


class Printer:
    """What Python and C have in common; subclasses differ in tables."""

    calls: Mapping[str, str] = {}  # op -> function
    infix: Mapping[str, tuple[str, int]] = {}  # op -> operator, binding
    most: float = math.inf  # parts to be written

    def __init__(self, names: SymbolNames | None = None) -> None:
        self.names = names or {}
        self.left = self.most

    def text(self, node: Any, place: int = CHOICE) -> str:
        self.left -= 1
        if self.left < 0:
            return "..."
        special = getattr(self, f"_{node.op}", None)
        if special is not None:
            text, binding = special(node)
        elif node.op in self.infix:
            text, binding = self._binary(node)
        else:
            arguments = ", ".join([self.text(arg) for arg in node.args])
            text, binding = f"{self._function(node.op)}({arguments})", ATOM
        return f"({text})" if binding < place else text

    def _function(self, op: str) -> str:
        return self.calls.get(op, op)

    def _binary(self, node: BaseExpr) -> tuple[str, int]:
        """Operators group from the left, so the right argument has to bind more tightly."""
        sign, binding = self.infix[node.op]
        a, b = node.args
        return f"{self.text(a, binding)} {sign} {self.text(b, binding + 1)}", binding

    def _int(self, node: Expr) -> tuple[str, int]:
        return self.number(node.const), ATOM if node.const >= 0 else SUM

    def number(self, value: int) -> str:
        return str(value)

    def _symbol(self, node: BaseExpr) -> tuple[str, int]:
        return self.names.get(node, node.args[0]), ATOM

    _fsymbol = _symbol

    def _add(self, node: Expr) -> tuple[str, int]:
        """The terms of the highest degree first, the constant last, a positive one in front."""
        terms = sorted(node.terms, key=lambda term: (term[1] < 0, -_degree(term[0])))
        parts = [(self._term(product, abs(c), c < 0), c < 0) for product, c in terms]
        if node.const:
            parts.append((self.number(abs(node.const)), node.const < 0))
        if parts[0][1] and not parts[-1][1]:
            parts.insert(0, parts.pop())
        (first, negative), *rest = parts
        text = ("-" if negative else "") + first
        text += "".join([f" {'-' if minus else '+'} {part}" for part, minus in rest])
        return text, SUM if len(parts) > 1 or negative else PRODUCT

    def _term(self, product: Expr, c: int, negative: bool) -> str:
        """-(a//b) is not -a//b, but -(a*b) is -a*b."""
        if c == 1:
            return self.text(product, UNARY if negative and product.op != "mul" else PRODUCT)
        return f"{self.number(c)}*{self._factors(product)}"

    def _mul(self, node: Expr) -> tuple[str, int]:
        return self._factors(node), PRODUCT if len(node.factors) > 1 else POWER

    def _factors(self, product: Expr) -> str:
        return "*".join([self._power(factor, e) for factor, e in product.factors])

    def _power(self, factor: Expr, exponent: int) -> str:
        raise NotImplementedError

    def _le0(self, node: BaseExpr) -> tuple[str, int]:
        left, right = _sides(node.args[0])
        if not left.terms:  # s0 >= 3 reads better than 3 <= s0
            left, right = from_terms(dict(right.terms), 0), integer(-right.const)
            return f"{self.text(left, BITS)} >= {self.text(right, BITS)}", COMPARE
        if right.terms and right.const == -1:  # s0 < s1 reads better than s0 <= s1 - 1
            return f"{self.text(left, BITS)} < {self.text(right + 1, BITS)}", COMPARE
        return f"{self.text(left, BITS)} <= {self.text(right, BITS)}", COMPARE

    def _eq0(self, node: BaseExpr) -> tuple[str, int]:
        left, right = _sides(node.args[0])
        return f"{self.text(left, BITS)} == {self.text(right, BITS)}", COMPARE

    def _ne0(self, node: BaseExpr) -> tuple[str, int]:
        left, right = _sides(node.args[0])
        return f"{self.text(left, BITS)} != {self.text(right, BITS)}", COMPARE

    def _join(self, node: BaseExpr, sign: str, binding: int) -> tuple[str, int]:
        return f" {sign} ".join([self.text(part, binding + 1) for part in node.args]), binding


def _degree(product: Expr) -> int:
    return sum([e for _, e in product.factors])


def _sides(e: Expr) -> tuple[Expr, Expr]:
    """`a, b` without negative terms, and a - b is e."""
    left = from_terms({product: c for product, c in e.terms if c > 0}, 0)
    return left, left - e


class PythonPrinter(Printer):
    most = MOST_PARTS
    calls: Mapping[str, str] = {
        "to_float": "float",
        "fabs": "abs",
        "fmin": "min",
        "fmax": "max",
        "fround": "round",
        "floor": "math.floor",
        "ceil": "math.ceil",
        "trunc": "math.trunc",
    }
    infix: Mapping[str, tuple[str, int]] = {
        "floordiv": ("//", PRODUCT),
        "mod": ("%", PRODUCT),
        "bitand": ("&", BITS),
        "bitor": ("|", BITS),
        "bitxor": ("^", BITS),
        "fadd": ("+", SUM),
        "fsub": ("-", SUM),
        "fmul": ("*", PRODUCT),
        "truediv": ("/", PRODUCT),
        "ffloordiv": ("//", PRODUCT),
        "fmod": ("%", PRODUCT),
        "fle": ("<=", COMPARE),
        "flt": ("<", COMPARE),
        "feq": ("==", COMPARE),
        "fne": ("!=", COMPARE),
    }

    def _binary(self, node: BaseExpr) -> tuple[str, int]:
        sign, binding = self.infix[node.op]
        a, b = node.args
        if binding in (BITS, COMPARE):  # Python chains a < b < c; `&` and `|` bind differently
            return f"{self.text(a, binding + 1)} {sign} {self.text(b, binding + 1)}", binding
        space = "" if binding == PRODUCT else " "
        return f"{self.text(a, binding)}{space}{sign}{space}{self.text(b, binding + 1)}", binding

    def _power(self, factor: Expr, exponent: int) -> str:
        base = self.text(factor, UNARY if exponent == 1 else ATOM)
        return base if exponent == 1 else f"{base}**{exponent}"

    def _pow(self, node: BaseExpr) -> tuple[str, int]:
        return f"{self.text(node.args[0], ATOM)}**{self.text(node.args[1], ATOM)}", POWER

    def _fpow(self, node: BaseExpr) -> tuple[str, int]:
        return f"float({self.text(node.args[0], ATOM)}**{self.text(node.args[1], ATOM)})", ATOM

    def _fneg(self, node: BaseExpr) -> tuple[str, int]:
        return f"-{self.text(node.args[0], UNARY)}", UNARY

    def _float(self, node: Any) -> tuple[str, int]:
        text = repr(node.value)
        if text in ("inf", "-inf", "nan"):
            return f"float('{text}')", ATOM
        return text, UNARY if text.startswith("-") else ATOM

    def _if(self, node: BaseExpr) -> tuple[str, int]:
        condition, a, b = node.args
        text = f"{self.text(a, OR)} if {self.text(condition, OR)} else {self.text(b, CHOICE)}"
        return text, CHOICE

    _fif = _if

    def _true(self, node: BaseExpr) -> tuple[str, int]:
        return "True", ATOM

    def _false(self, node: BaseExpr) -> tuple[str, int]:
        return "False", ATOM

    def _and(self, node: BaseExpr) -> tuple[str, int]:
        return self._join(node, "and", AND)

    def _or(self, node: BaseExpr) -> tuple[str, int]:
        return self._join(node, "or", OR)

    def _not(self, node: BaseExpr) -> tuple[str, int]:
        return f"not {self.text(node.args[0], COMPARE)}", NOT


C_HELPERS: Final = """\
#include <math.h>
#include <stdint.h>
static inline int64_t sym_floordiv(int64_t a, int64_t b) {
    int64_t q = a / b; return q - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t sym_mod(int64_t a, int64_t b) {
    int64_t r = a % b; return r + (r != 0 && (r < 0) != (b < 0) ? b : 0); }
static inline int64_t sym_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t sym_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t sym_abs(int64_t a) { return a < 0 ? -a : a; }
static inline int64_t sym_pow(int64_t a, int64_t n) {
    int64_t r = 1; for (; n > 0; n >>= 1, a *= a) if (n & 1) r *= a; return r; }
static inline double sym_fmod(double a, double b) {
    double r = fmod(a, b); return r ? ((r < 0) != (b < 0) ? r + b : r) : copysign(0.0, b); }
static inline double sym_ffloordiv(double a, double b) {
    double q = (a - sym_fmod(a, b)) / b, f = floor(q); return q - f > 0.5 ? f + 1 : f; }
"""
"""What the C text calls. Divisors must not be 0, and nothing may leave 64 bits: it is not
checked."""


class CPrinter(Printer):
    calls: Mapping[str, str] = {
        "floordiv": "sym_floordiv",
        "mod": "sym_mod",
        "pow": "sym_pow",
        "abs": "sym_abs",
        "to_float": "(double)",
        "fpow": "pow",
        "fmod": "sym_fmod",
        "ffloordiv": "sym_ffloordiv",
        "floor": "(int64_t)floor",
        "ceil": "(int64_t)ceil",
        "trunc": "(int64_t)",
        "round": "(int64_t)nearbyint",
        **{f"math.{name}": name for name in MATH if name not in ("degrees", "radians")},
        "math.gamma": "tgamma",
    }
    infix: Mapping[str, tuple[str, int]] = {
        "bitand": ("&", BITS),
        "bitor": ("|", BITS),
        "bitxor": ("^", BITS),
        "fadd": ("+", SUM),
        "fsub": ("-", SUM),
        "fmul": ("*", PRODUCT),
        "fle": ("<=", COMPARE),
        "flt": ("<", COMPARE),
        "feq": ("==", COMPARE),
        "fne": ("!=", COMPARE),
    }

    def _function(self, op: str) -> str:
        name = self.calls.get(op)
        if name is None:
            raise NotImplementedError(f"{op} can't be written in C")
        return name

    def number(self, value: int) -> str:
        return f"{value}LL"

    def _binary(self, node: BaseExpr) -> tuple[str, int]:
        sign, _ = self.infix[node.op]
        a, b = [
            self._as_double(arg) if node.op[0] == "f" else self.text(arg, ATOM) for arg in node.args
        ]
        return f"({a} {sign} {b})", ATOM

    def _as_double(self, node: BaseExpr) -> str:
        return f"(double)({self.text(node)})" if isinstance(node, Expr) else self.text(node, ATOM)

    def _truediv(self, node: BaseExpr) -> tuple[str, int]:
        a, b = map(self._as_double, node.args)
        return f"({a} / {b})", ATOM

    def _power(self, factor: Expr, exponent: int) -> str:
        base = self.text(factor, UNARY)
        return base if exponent == 1 else f"sym_pow({base}, {exponent})"

    def _nested(self, node: BaseExpr) -> tuple[str, int]:
        """min and max of several: of two at a time."""
        first, *rest = [self.text(arg) for arg in node.args]
        for arg in rest:
            first = f"sym_{node.op}({first}, {arg})"
        return first, ATOM

    _min = _max = _nested

    def _fmin(self, node: BaseExpr) -> tuple[str, int]:
        a, b = map(self._as_double, node.args)
        return f"({b} {'<' if node.op == 'fmin' else '>'} {a} ? {b} : {a})", ATOM

    _fmax = _fmin

    def _fabs(self, node: BaseExpr) -> tuple[str, int]:
        return f"fabs({self._as_double(node.args[0])})", ATOM

    def _fneg(self, node: BaseExpr) -> tuple[str, int]:
        return f"(-{self._as_double(node.args[0])})", ATOM

    def _float(self, node: Any) -> tuple[str, int]:
        value = node.value
        special = {"inf": "INFINITY", "-inf": "(-INFINITY)", "nan": "NAN"}.get(repr(value))
        return special or f"({value!r})", ATOM

    def _if(self, node: BaseExpr) -> tuple[str, int]:
        condition, a, b = [self.text(arg, ATOM) for arg in node.args]
        return f"({condition} ? {a} : {b})", ATOM

    _fif = _if

    def _true(self, node: BaseExpr) -> tuple[str, int]:
        return "1", ATOM

    def _false(self, node: BaseExpr) -> tuple[str, int]:
        return "0", ATOM

    def _and(self, node: BaseExpr) -> tuple[str, int]:
        return self._join(node, "&&", AND)

    def _or(self, node: BaseExpr) -> tuple[str, int]:
        return self._join(node, "||", OR)

    def _not(self, node: BaseExpr) -> tuple[str, int]:
        return f"!{self.text(node.args[0], ATOM)}", UNARY


def to_python(node: BaseExpr, names: SymbolNames | None = None) -> str:
    """As a Python expression; `names` maps symbols to the text that stands for them."""
    return PythonPrinter(names).text(node)


def to_c(node: BaseExpr, names: SymbolNames | None = None) -> str:
    """As a C expression over int64_t and double variables, with `C_HELPERS` before it."""
    return CPrinter(names).text(node)


TEXT[0] = to_python
