"""Writing LLVM IR as text: registers that know their type and how many lanes they have.

The one idea: a register with one lane is the same in all lanes, and is spread out where it meets a
vector. So what is written once (`x * y + 1.0`) is scalar or vector code, as its operands are, and
what doesn't depend on the lane stays scalar.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Final

from pliant.base.values import dataclass

FLOATS: Final = ("half", "float", "double")
SHORT: Final = {"half": "f16", "float": "f32", "double": "f64", "ptr": "p0"}
BITS: Final = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "float": 32}
BITS["double"] = 64

# The predicates of icmp (signed) and fcmp; only `ne` holds for nan.
_ORDER: Final = {
    op: (
        f"icmp {'' if op in ('eq', 'ne') else 's'}{op}",
        f"fcmp {'une' if op == 'ne' else 'o' + op}",
    )
    for op in ("eq", "ne", "lt", "le", "gt", "ge")
}


@dataclass(frozen=True, slots=True, eq=False)
class Reg:
    """A register or a literal, as an operand: `text` is what is written, without its type. Python's
    operators write the instruction and return the register of its result."""

    code: Code
    text: str
    type: str  # of one lane
    lanes: int = 1
    literal: bool = False

    @property
    def full_type(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.type in FLOATS

    def __str__(self) -> str:
        return f"{self.full_type} {self.text}"

    def _binary(self, other: Reg | int | float, on_ints: str, on_floats: str) -> Reg:
        return self.code.binary(on_floats if self.is_float else on_ints, self, other)

    def __add__(self, other: Reg | int | float) -> Reg:
        return self._binary(other, "add", "fadd")

    def __sub__(self, other: Reg | int | float) -> Reg:
        return self._binary(other, "sub", "fsub")

    def __mul__(self, other: Reg | int | float) -> Reg:
        return self._binary(other, "mul", "fmul")

    def __truediv__(self, other: Reg | float) -> Reg:
        return self.code.binary("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Reg:
        return self.like(other) / self

    def __rsub__(self, other: int | float) -> Reg:
        return self.like(other) - self

    def __neg__(self) -> Reg:
        return self.code.unary("fneg", self) if self.is_float else self.like(0) - self

    def __and__(self, other: Reg | int) -> Reg:
        return self.code.binary("and", self, other)

    def __or__(self, other: Reg | int) -> Reg:
        return self.code.binary("or", self, other)

    def __xor__(self, other: Reg | int) -> Reg:
        return self.code.binary("xor", self, other)

    def __invert__(self) -> Reg:
        return self ^ (1 if self.type == "i1" else -1)

    def __lshift__(self, other: Reg | int) -> Reg:
        return self.code.binary("shl", self, other)

    def __rshift__(self, other: Reg | int) -> Reg:
        """An arithmetic shift, which keeps the sign."""
        return self.code.binary("ashr", self, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def compare(self, op: str, other: Reg | int | float) -> Reg:
        """eq, ne, lt, le, gt, ge; integers with sign."""
        return self.code.compare(_ORDER[op][self.is_float], self, other)

    def is_nan(self) -> Reg:
        return self.code.compare("fcmp uno", self, self)

    def like(self, number: int | float) -> Reg:
        """A number of the same type."""
        return self.code.number(number, self.type)


def vector(type: str, lanes: int) -> str:
    return type if lanes == 1 else f"<{lanes} x {type}>"


def suffix(type: str, lanes: int) -> str:
    """The type as it stands in the name of an intrinsic: `v8f32`."""
    return ("" if lanes == 1 else f"v{lanes}") + SHORT.get(type, type)


def literal(number: int | float, type: str) -> str:
    """The number as LLVM writes it: floats by the bits of the double with this value."""
    if type not in FLOATS:
        return str(bool(number)).lower() if type == "i1" else str(int(number))
    if type == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', number))[0]:04X}"
    exact = rounded(number) if type == "float" else float(number)
    if math.isnan(exact):
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"


def rounded(number: float) -> float:
    """The nearest float with 32 bits."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


class Code:
    """The text of one module: a function in the making, and what it calls."""

    def __init__(self, vector_bytes: int = 0) -> None:
        self.bytes = vector_bytes  # of the machine's registers
        self.lines: list[str] = []
        self.block = "entry"
        self.declared: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self._names = 0

    # Instructions

    def define(self, text: str, type: str, lanes: int) -> Reg:
        """A new register for what the instruction gives."""
        self._names += 1
        self.lines.append(f"  %{self._names} = {text}")
        return Reg(self, f"%{self._names}", type, lanes)

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def number(self, number: int | float, type: str) -> Reg:
        return Reg(self, literal(number, type), type, 1, True)

    def together(self, *operands: Reg | int | float) -> list[Reg]:
        """The operands as registers with equal types and lanes. Numbers take the type of the first
        register, and what has one lane is spread."""
        first = next(item for item in operands if isinstance(item, Reg))
        regs = [item if isinstance(item, Reg) else first.like(item) for item in operands]
        lanes = max([reg.lanes for reg in regs])
        return [self.spread(reg, lanes) for reg in regs]

    def spread(self, reg: Reg, lanes: int) -> Reg:
        """The register in all lanes."""
        if reg.lanes == lanes:
            return reg
        if reg.literal:
            return Reg(self, f"splat ({reg.type} {reg.text})", reg.type, lanes, True)
        type = vector(reg.type, lanes)
        # The form that LLVM knows as a broadcast.
        first_lane = self.define(f"insertelement {type} poison, {reg}, i64 0", reg.type, lanes)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.define(f"shufflevector {first_lane}, {type} poison, {zeros}", reg.type, lanes)

    def binary(self, op: str, a: Reg | int | float, b: Reg | int | float) -> Reg:
        x, y = self.together(a, b)
        return self.define(f"{op} {x}, {y.text}", x.type, x.lanes)

    def unary(self, op: str, a: Reg) -> Reg:
        return self.define(f"{op} {a}", a.type, a.lanes)

    def compare(self, op: str, a: Reg, b: Reg | int | float) -> Reg:
        x, y = self.together(a, b)
        return self.define(f"{op} {x}, {y.text}", "i1", x.lanes)

    def select(self, condition: Reg, a: Reg | int | float, b: Reg | int | float) -> Reg:
        x, y = self.together(a, b)
        if condition.lanes > x.lanes:
            x, y = self.spread(x, condition.lanes), self.spread(y, condition.lanes)
        return self.define(f"select {condition}, {x}, {y}", x.type, x.lanes)

    def convert(self, op: str, a: Reg, type: str) -> Reg:
        """A conversion instruction; none if the type is the same already."""
        if a.type == type:
            return a
        return self.define(f"{op} {a} to {vector(type, a.lanes)}", type, a.lanes)

    def bits(self, a: Reg) -> Reg:
        """The float as an integer of the same width."""
        return self.convert("bitcast", a, f"i{BITS[a.type]}")

    def lane(self, a: Reg, lane: int) -> Reg:
        return a if a.lanes == 1 else self.define(f"extractelement {a}, i64 {lane}", a.type, 1)

    def with_lane(self, a: Reg, lane: int, b: Reg) -> Reg:
        if a.lanes == 1:
            return b
        return self.define(f"insertelement {a}, {b}, i64 {lane}", a.type, a.lanes)

    def half(self, a: Reg, upper: bool) -> Reg:
        """The lower or upper half of the lanes."""
        lanes = a.lanes // 2
        picked = ", ".join([f"i32 {i + lanes * upper}" for i in range(lanes)])
        text = f"shufflevector {a}, {a.full_type} poison, <{lanes} x i32> <{picked}>"
        result = self.define(text, a.type, lanes)
        if lanes > 1:
            return result
        return self.define(f"extractelement <1 x {a.type}> {result.text}, i64 0", a.type, 1)

    def picked(self, regs: Sequence[Reg], lanes: Sequence[int]) -> Reg:
        """Lanes of the registers, counted through all of them."""
        first, *others = regs
        for other in others:
            more = other if other.lanes == first.lanes else self._longer(other, first.lanes)
            first = self.shuffled(first, more, range(first.lanes + other.lanes))
        return self.shuffled(first, None, lanes)

    def cast_lanes(self, a: Reg, type: str, lanes: int) -> Reg:
        """The same bits as lanes of another type (`bitcast`)."""
        return self.define(f"bitcast {a} to {vector(type, lanes)}", type, lanes)

    def _longer(self, a: Reg, lanes: int) -> Reg:
        """The vector, extended to so many lanes; the new ones are undefined."""
        return self.shuffled(a, None, [*range(a.lanes), *[0] * (lanes - a.lanes)])

    def shuffled(self, a: Reg, b: Reg | None, lanes: Sequence[int]) -> Reg:
        """The lanes with these numbers, of `a` and then `b` counted through."""
        second = b.text if b is not None else "poison"
        picked = ", ".join([f"i32 {lane}" for lane in lanes])
        text = f"shufflevector {a}, {a.full_type} {second}, <{len(lanes)} x i32> <{picked}>"
        return self.define(text, a.type, len(lanes))

    def numbers(self, lanes: int, type: str = "i64") -> Reg:
        """0, 1, 2, ... in the lanes."""
        listed = ", ".join([f"{type} {i}" for i in range(lanes)])
        return Reg(self, f"<{listed}>", type, lanes, True)

    # Calls

    def intrinsic(self, name: str, *operands: Reg | int | float) -> Reg:
        """`llvm.name` on operands of one type, which the result has too."""
        regs = self.together(*operands)
        type, lanes = regs[0].type, regs[0].lanes
        return self.call(f"llvm.{name}.{suffix(type, lanes)}", type, lanes, regs)

    def call(
        self, name: str, type: str, lanes: int, args: Sequence[Reg], extra: Sequence[str] = ()
    ) -> Reg:
        """`extra`: further arguments as text, with their types."""
        operands = [str(arg) for arg in args] + list(extra)
        self.declare(name, vector(type, lanes), operands)
        return self.define(
            f"call {vector(type, lanes)} @{name}({', '.join(operands)})", type, lanes
        )

    def declare(self, name: str, type: str, operands: Sequence[str]) -> None:
        if name not in self.declared and name not in self.helpers:
            types = [
                text[: text.index(">") + 1] if text[0] == "<" else text.split()[0]
                for text in operands
            ]
            self.declared[name] = f"declare {type} @{name}({', '.join(types)})"

    def fma(self, a: Reg, b: Reg | float, c: Reg | float) -> Reg:
        """a*b + c; rounded once where the machine has an instruction for it."""
        # Without the instruction, `fma` would be a call of the C library for each lane.
        return self.intrinsic("fmuladd", a, b, c)

    def exact_fma(self, a: Reg, b: Reg | float, c: Reg | float) -> Reg:
        """a*b + c, rounded once on every machine."""
        return self.intrinsic("fma", a, b, c)

    # Control flow

    def label(self) -> str:
        self._names += 1
        return f"b{self._names}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def either(self, condition: Reg, then: Callable[[], Reg], otherwise: Reg) -> Reg:
        """`then()` where the condition (one lane) holds, computed only then."""
        inside, after, before = self.label(), self.label(), self.block
        self.do(f"br {condition}, label %{inside}, label %{after}")
        self.start(inside)
        result = then()
        end = self.block
        self.do(f"br label %{after}")
        self.start(after)
        choices = f"[ {result.text}, %{end} ], [ {otherwise.text}, %{before} ]"
        return self.define(f"phi {result.full_type} {choices}", result.type, result.lanes)

    def any_lane(self, condition: Reg) -> Reg:
        if condition.lanes == 1:
            return condition
        name = f"llvm.vector.reduce.or.v{condition.lanes}i1"
        return self.call(name, "i1", 1, [condition])

    def text(self) -> str:
        """The declarations and helper functions that the function needs in its module."""
        return "\n".join([*self.declared.values(), *self.helpers.values()])
