"""Conditions and expressions as programs for a stack machine, to be run without Python.

The one idea: what guards need at run time is data, not code to compile: a short list of
instructions (operation, operand) that a loop of a few lines runs on a stack of 64-bit integers.
`run` is that loop in Python: the definition that the native one has to agree with.

A division by 0, a negative exponent or a number beyond 64 bits has no value (None here), and
neither has what is computed from it; `select` minds only what it selects. A guard without a value
does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pliant.base.values import dataclass
from pliant.sym.expr import SHALLOW, STRICT, BaseExpr, Expr, parts_of

LARGEST: Final = 2**63 - 1
MOST_EXPONENT: Final = 63


def _power(a: int, b: int) -> int:
    if b < 0 or (b > MOST_EXPONENT and abs(a) > 1):
        raise OverflowError
    return a**b if b <= MOST_EXPONENT else a ** (b % 2 + 2)  # of 0, 1 and -1


BINARY: Final[dict[str, Callable[[int, int], int]]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "pow": _power,
    **{op: STRICT[op] for op in ("floordiv", "mod", "min", "max", "bitand", "bitor", "bitxor")},
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
}
UNARY: Final[dict[str, Callable[[int], int]]] = {
    "abs": abs,
    "le0": lambda a: a <= 0,
    "eq0": lambda a: a == 0,
    "ne0": lambda a: a != 0,
}
OPERATIONS: Final = ("const", "load", "select", *UNARY, *BINARY, "keep", "kept")
"""All instructions; an operation's number is its place. `const n` pushes n, `load i` the value of
symbol i; `select` takes condition, a, b (b on top) and leaves a or b; `keep i` copies the value on
top into register i, `kept i` pushes that register; the others take what they compute with.
Conditions are 0 and 1."""
_NUMBER: Final = {op: number for number, op in enumerate(OPERATIONS)}


@dataclass(frozen=True, slots=True)
class SizeProgram:
    """`code`: instructions, with 0 where there is no operand. `symbols`: what `load` counts."""

    code: tuple[tuple[str, int], ...]
    symbols: tuple[Expr, ...]
    depth: int  # of the stack

    def numbers(self) -> list[int]:
        """The instructions as numbers, two for each."""
        return _numbers(self.code)


def compile_program(node: BaseExpr, symbols: Sequence[Expr] | None = None) -> SizeProgram:
    """The program for an integer expression or a condition on integers. `symbols` fixes the numbers
    of the symbols; by default they are sorted. Raises NotImplementedError for floats."""
    if symbols is None:
        symbols = sorted(node.symbols, key=lambda s: s.order)  # type: ignore[arg-type]
    writer = _Writer({s: i for i, s in enumerate(symbols)})
    writer.run(node)
    return SizeProgram(tuple(writer.code), tuple(symbols), writer.deepest)


def instructions(node: BaseExpr, places: Mapping[Any, int]) -> list[int]:
    """The program for a node as numbers, where `load` counts these places, which may hold values
    of expressions as well."""
    writer = _Writer(places)
    writer.run(node)
    return _numbers(writer.code)


def _numbers(code: Sequence[tuple[str, int]]) -> list[int]:
    return [n for op, operand in code for n in (_NUMBER[op], operand)]


class _Writer:
    def __init__(self, slots: Mapping[Any, int]) -> None:
        self.slots = slots
        self.code: list[tuple[str, int]] = []
        self.height = self.deepest = 0
        self.uses: dict[Any, int] = {}
        self.registers: dict[Any, int] = {}

    def run(self, node: BaseExpr) -> None:
        """The whole program. What is used several times is computed once and kept."""
        # Counting uses costs more than it saves on a shallow node.
        if node.depth > SHALLOW:
            self.count(node)
        self.write(node)

    def count(self, node: Any) -> None:
        self.uses[node] = self.uses.get(node, 0) + 1
        # Parts are counted once for each node that has them, not once for each path to it.
        if self.uses[node] == 1 and node not in self.slots:
            for part in parts_of(node):
                self.count(part)

    def emit(self, op: str, operand: int = 0, taken: int = 0) -> None:
        self.code.append((op, operand))
        # The native machine has a stack of fixed size, which is allocated from this.
        self.height += 1 - taken
        self.deepest = max(self.deepest, self.height)

    def write(self, node: Any) -> None:
        register = self.registers.get(node)
        if register is not None:
            self.emit("kept", register)
        elif node in self.slots:
            self.emit("load", self.slots[node])
        else:
            self.compute(node)
            # Numbers and symbols are pushed as quickly as a register is.
            if node.depth and self.uses.get(node, 0) > 1:
                self.registers[node] = len(self.registers)
                self.emit("keep", self.registers[node], taken=1)

    def compute(self, node: Any) -> None:
        special = _WRITE.get(node.op)
        if special is not None:
            special(self, node)
        elif node.op in UNARY:
            self.write(node.args[0])
            self.emit(node.op, taken=1)
        elif node.op in BINARY:
            self.chain(node.op, [partial(self.write, arg) for arg in node.args])
        else:
            raise NotImplementedError(f"{node.op} in a program for the stack machine")

    def chain(self, op: str, parts: Sequence[Callable[[], None]]) -> None:
        for number, part in enumerate(parts):
            part()
            if number:
                self.emit(op, taken=2)

    def number(self, value: int) -> None:
        if abs(value) > LARGEST:
            raise NotImplementedError(f"{value} doesn't fit into 64 bits")
        self.emit("const", value)

    def sum(self, node: Expr) -> None:
        parts = [partial(self.term, product, c) for product, c in node.terms]
        if node.const:
            parts.append(partial(self.number, node.const))
        self.chain("add", parts)

    def term(self, product: Expr, c: int) -> None:
        self.write(product)
        if c != 1:
            self.number(c)
            self.emit("mul", taken=2)

    def product(self, node: Expr) -> None:
        self.chain("mul", [partial(self.power, factor, e) for factor, e in node.factors])

    def power(self, factor: Expr, exponent: int) -> None:
        self.write(factor)
        if exponent != 1:
            self.number(exponent)
            self.emit("pow", taken=2)

    def select(self, node: BaseExpr) -> None:
        for arg in node.args:
            self.write(arg)
        self.emit("select", taken=3)


_WRITE: Final[dict[str, Callable[[_Writer, Any], None]]] = {
    "int": lambda writer, node: writer.number(node.const),
    "true": lambda writer, node: writer.number(1),
    "false": lambda writer, node: writer.number(0),
    "add": _Writer.sum,
    "mul": _Writer.product,
    "if": _Writer.select,
}


def run(program: SizeProgram, values: Sequence[int], largest: int = LARGEST) -> int | None:
    """The value, or None where there is none."""
    stack: list[int | None] = []
    temporaries: dict[int, int | None] = {}
    for op, operand in program.code:
        if op == "keep":
            temporaries[operand] = stack[-1]
            continue
        if op == "kept":
            stack.append(temporaries[operand])
            continue
        try:
            result = _step(op, operand, stack, values)
        # No value, rather than an error: a guard without a value fails, and the next entry is
        # tried.
        except (ZeroDivisionError, OverflowError):
            result = None
        stack.append(None if result is None or abs(result) > largest else int(result))
    return stack.pop()


def _step(op: str, operand: int, stack: list[int | None], values: Sequence[int]) -> int | None:
    if op == "const" or op == "load":
        return operand if op == "const" else values[operand]
    b = stack.pop()
    if op in UNARY:
        return None if b is None else UNARY[op](b)
    a = stack.pop()
    if op == "select":
        # Both alternatives have been computed; one without a value matters only if it is selected.
        condition = stack.pop()
        return None if condition is None else a if condition else b
    return None if a is None or b is None else BINARY[op](a, b)
