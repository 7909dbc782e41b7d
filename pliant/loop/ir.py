"""The loop IR: a kernel is a tree of loops around values, over one closed set of operations.

The one idea: a body is a list of statements in the order in which they run, and a statement is a
value or a loop. Values refer to the values they use; sizes, strides and indices are expressions of
`pliant.sym` over the kernel's sizes and the variables of the loops around:

    kernel gelu_rows(s0, s1; x: f32 read, y: f32 write)
      parallel i0 < s0
        reduction i1 < s1
          v0 = load x[i0*s1 + i1]
          v1 = max v0
        parallel i2 < s1
          v2 = load x[i0*s1 + i2]
          v3 = sub v2, v1
          store y[i0*s1 + i2] = v3

A reduction (`REDUCTIONS`) stands in a reduction loop. It accumulates over that loop and over the
reduction loops directly around it, and has its value after the outermost of them, so `v1` is used
below the loop that computes it, never in it. Reductions may be computed in any order.

In a parallel loop no iteration depends on another; only serial loops run in order. What goes from
one iteration of a serial loop to the next is a `carried` value in it, and `carry` says what it is
there:

        serial i1 < s1
          v1 = carried v0
          v2 = load x[i0*s1 + i1]
          v3 = add v1, v2
          store y[i0*s1 + i1] = v3
          carry v1, v3

A loop of which it is known how the states of two parts, one behind the other, make the state of
both (`Combine`) can be run in parts. Two buffers never share memory, except that buffers which are
only read may; what is both read and written is one buffer. In a masked load or store, a place where
the mask is false is not touched.

What there is no value for (an integer divided by 0, a float out of the range of the integer it is
cast to) is some value of the type, and never a fault: an operator that has to raise stores a flag.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Final

from pliant.base.values import dataclass
from pliant.loop import types
from pliant.loop.types import Type
from pliant.sym.expr import Expr


class Op(Enum):
    """All operations on values. `SIGNATURES` has their types."""

    # Memory: `index` is in elements. A last argument of type bool is a mask; a masked load is 0
    # where the mask is false. ATOMIC_ADD adds to what is in memory: iterations of a parallel loop
    # may add to one place, in any order.
    LOAD = auto()
    STORE = auto()
    ATOMIC_ADD = auto()

    # Where numbers come from. IOTA is the value of the expression `index`; AS_INDEX is the way
    # back: it makes an i64 the symbol `index`, for use in the expressions that follow.
    CONSTANT = auto()
    IOTA = auto()
    AS_INDEX = auto()

    # 32 random bits, as kernels of eager PyTorch's on CUDA draw them: a function of its arguments,
    # (seed, first counter, element, threads, how many neighbours a thread takes at a time: 1, 2, 4
    # or 8). Each call of a thread gives four numbers. `threads` is a multiple of 256.
    PHILOX = auto()

    # Numbers. Integers wrap around. DIV is true division; FLOOR_DIV and REMAINDER round to minus
    # infinity (Python's // and %), TRUNC_DIV and FMOD to zero (C's / and %).
    ADD = auto()
    SUB = auto()
    MUL = auto()
    DIV = auto()
    FLOOR_DIV = auto()
    TRUNC_DIV = auto()
    REMAINDER = auto()
    FMOD = auto()
    NEG = auto()
    ABS = auto()
    SIGN = auto()
    MINIMUM = auto()  # nan if either is
    MAXIMUM = auto()
    FMIN = auto()  # the other one if one is nan
    FMAX = auto()
    FMA = auto()  # a*b + c, rounded once

    # Bits. A shift by less than 0 or by all bits leaves no bit of the number but its sign.
    AND = auto()
    OR = auto()
    XOR = auto()
    NOT = auto()
    SHL = auto()
    SHR = auto()

    # What a serial loop carries: CARRIED is its argument in the first iteration; CARRY takes it
    # and what it is in the next one.
    CARRIED = auto()
    CARRY = auto()

    # Questions and choices
    EQ = auto()
    NE = auto()
    LT = auto()
    LE = auto()
    GT = auto()
    GE = auto()
    ISNAN = auto()
    ISINF = auto()
    SELECT = auto()

    # Types. CAST is `Tensor.to`, BITCAST `Tensor.view` to a type of the same width.
    CAST = auto()
    BITCAST = auto()

    # Functions of floats
    SQRT = auto()
    RSQRT = auto()
    FLOOR = auto()
    CEIL = auto()
    TRUNC = auto()
    ROUND = auto()  # halves to even
    COPYSIGN = auto()
    EXP = auto()
    EXP2 = auto()
    EXPM1 = auto()
    LOG = auto()
    LOG2 = auto()
    LOG10 = auto()
    LOG1P = auto()
    SIN = auto()
    COS = auto()
    TAN = auto()
    TANH = auto()
    SIGMOID = auto()
    SILU = auto()
    ERF = auto()
    ERFC = auto()
    POW = auto()
    SINH = auto()
    COSH = auto()
    ASIN = auto()
    ACOS = auto()
    ATAN = auto()
    ATAN2 = auto()
    ASINH = auto()
    ACOSH = auto()
    ATANH = auto()
    LGAMMA = auto()
    HYPOT = auto()
    NEXTAFTER = auto()

    # Reductions. ARG_MAX and ARG_MIN take a number and its position (i64), and give the position of
    # a nan if there is one, else of the best; the smallest position if there are several, 0 if
    # there is none. WELFORD is the mean; WELFORD_M2 of it, after the loop, is the sum of the
    # squares of the distances to the mean.
    SUM = auto()
    PROD = auto()
    MAX = auto()  # nan if any is
    MIN = auto()
    ARG_MAX = auto()
    ARG_MIN = auto()
    ANY = auto()
    ALL = auto()
    WELFORD = auto()
    WELFORD_M2 = auto()

    @property
    def text(self) -> str:
        return self.name.lower()


REDUCTIONS: Final = frozenset(
    {Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.ARG_MAX, Op.ARG_MIN, Op.ANY, Op.ALL, Op.WELFORD}
)
MEMORY: Final = frozenset({Op.LOAD, Op.STORE, Op.ATOMIC_ADD})
STATEMENTS: Final = frozenset({Op.STORE, Op.ATOMIC_ADD, Op.CARRY})  # without a result

# Roughly how many instructions an operation needs, where it is not one.
WEIGHT: Final = dict.fromkeys(
    (Op.EXP, Op.EXP2, Op.EXPM1, Op.LOG, Op.LOG2, Op.LOG10, Op.LOG1P, Op.SIN, Op.COS, Op.TANH)
    + (Op.SIGMOID, Op.SILU, Op.ERF, Op.POW, Op.FLOOR_DIV, Op.REMAINDER, Op.FMOD, Op.PHILOX),
    20,
)
INDEXED: Final = MEMORY | {Op.IOTA, Op.AS_INDEX}

SAME: Final = "same"
"""In a signature: the one type that all arguments marked so, and maybe the result, have."""

Slot = Type | str


@dataclass(frozen=True, slots=True)
class Signature:
    """The types of an operation's arguments and result. `same` are the types that SAME may stand
    for. A result of None depends on more than the arguments (a cast, a load): whoever makes the
    value says it."""

    args: tuple[Slot, ...]
    same: frozenset[Type]
    result: Slot | None = SAME
    masked: bool = False  # one more argument, a mask, may follow


_UNARY, _BINARY = (SAME,), (SAME, SAME)


def _like(
    ops: str, args: tuple[Slot, ...], same: frozenset[Type], result: Slot | None = SAME
) -> dict[Op, Signature]:
    return {Op[name]: Signature(args, same, result) for name in ops.split()}


SIGNATURES: Final[dict[Op, Signature]] = {
    Op.LOAD: Signature((), types.ANY, None, masked=True),
    Op.STORE: Signature(_UNARY, types.ANY, None, masked=True),
    Op.ATOMIC_ADD: Signature(_UNARY, types.NUMBER, None, masked=True),
    Op.CONSTANT: Signature((), types.ANY, None),
    Op.IOTA: Signature((), types.ANY, Type.I64),
    Op.AS_INDEX: Signature((Type.I64,), types.ANY, Type.I64),
    Op.PHILOX: Signature((Type.I64,) * 5, types.ANY, Type.U32),
    Op.SELECT: Signature((Type.BOOL, SAME, SAME), types.ANY),
    Op.CAST: Signature(_UNARY, types.ANY, None),
    Op.BITCAST: Signature(_UNARY, types.ANY, None),
    Op.CARRIED: Signature(_UNARY, types.ANY),
    Op.CARRY: Signature(_BINARY, types.ANY),
    Op.FMA: Signature((SAME, SAME, SAME), types.FLOAT),
    **_like("ADD SUB MUL FLOOR_DIV TRUNC_DIV REMAINDER FMOD", _BINARY, types.NUMBER),
    **_like("MINIMUM MAXIMUM FMIN FMAX", _BINARY, types.NUMBER),
    **_like("NEG ABS SIGN", _UNARY, types.NUMBER),
    **_like("DIV POW ATAN2 HYPOT NEXTAFTER COPYSIGN", _BINARY, types.FLOAT),
    **_like("AND OR XOR", _BINARY, types.BITS),
    **_like("NOT", _UNARY, types.BITS),
    **_like("SHL SHR", _BINARY, types.INTEGER),
    **_like("EQ NE LT LE GT GE", _BINARY, types.COMPUTED, Type.BOOL),
    **_like("ISNAN ISINF", _UNARY, types.FLOAT, Type.BOOL),
    **_like("SQRT RSQRT FLOOR CEIL TRUNC ROUND", _UNARY, types.FLOAT),
    **_like("EXP EXP2 EXPM1 LOG LOG2 LOG10 LOG1P", _UNARY, types.FLOAT),
    **_like("SIN COS TAN TANH SIGMOID SILU ERF ERFC", _UNARY, types.FLOAT),
    **_like("SINH COSH ASIN ACOS ATAN ASINH ACOSH ATANH LGAMMA", _UNARY, types.FLOAT),
    **_like("SUM PROD MAX MIN", _UNARY, types.NUMBER),
    **_like("ARG_MAX ARG_MIN", (SAME, Type.I64), types.NUMBER, Type.I64),
    **_like("ANY ALL", (Type.BOOL,), types.ANY, Type.BOOL),
    **_like("WELFORD WELFORD_M2", _UNARY, types.FLOAT),
}


class Access(Enum):
    """What a kernel does with a buffer."""

    READ = "read"
    WRITE = "write"
    READ_WRITE = "read/write"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory that a kernel is given. Indices count elements from `base`. The memory that a kernel
    owns (`Kernel.own`) has a `size`, in elements; other buffers have None."""

    name: str
    type: Type
    access: Access
    base: Expr
    size: Expr | None = None
    device: str = "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class LoopValue:
    """One operation and its result (SSA form: the value is the statement that computes it). Of the
    last three fields, those that the operation doesn't use are None."""

    op: Op
    type: Type  # of a store: of what is stored
    args: tuple[LoopValue, ...] = ()
    index: Expr | None = None
    buffer: Buffer | None = None
    constant: int | float | bool | None = None


class LoopKind(Enum):
    """What the iterations of a loop may assume of each other."""

    PARALLEL = "parallel"
    SERIAL = "serial"
    REDUCTION = "reduction"


@dataclass(frozen=True, slots=True, eq=False)
class Combine:
    """How a serial loop can be run in parts (a parallel scan): the state after two parts, one after
    the other, from the states of each part run from the initial state. `body` computes `result`
    from `left` and `right`, which are CARRIED values without an argument."""

    left: tuple[LoopValue, ...]
    right: tuple[LoopValue, ...]
    body: tuple[LoopValue, ...]
    result: tuple[LoopValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Loop:
    """`for var in range(extent)`; a negative extent is one of 0. `combines` are for the CARRIED
    values of a serial loop, in order: one for each state, which may be several values; None if
    there is none. They follow from the body, and may be dropped, which makes the loop serial."""

    var: Expr
    extent: Expr
    kind: LoopKind
    body: tuple[LoopValue | Loop, ...]
    combines: tuple[Combine | None, ...] = ()


Statement = LoopValue | Loop


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A function of sizes and buffers. The sizes are symbols, which are at least 0 except for those
    that are `signed`. `own` is scratch memory of each thread: its contents are undefined at the
    start of each iteration of the grid."""

    name: str
    sizes: tuple[Expr, ...]
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    own: tuple[Buffer, ...] = ()
    signed: frozenset[Expr] = frozenset()
    label: str = ""  # for people: what it does, in a word

    @property
    def grid(self) -> tuple[Loop, ...]:
        """The parallel loops around the whole body, outermost first. Their iterations, counted
        together with the last loop fastest, are divided among threads."""
        loops_outside: list[Loop] = []
        body = self.body
        while len(body) == 1 and isinstance(body[0], Loop) and body[0].kind is LoopKind.PARALLEL:
            loops_outside.append(body[0])
            body = body[0].body
        return tuple(loops_outside)

    def __str__(self) -> str:
        return TEXT[0](self)


TEXT: Final[list[Callable[[Kernel], str]]] = [lambda kernel: kernel.name]
"""How a kernel is shown; `show` puts its own here."""


def values(body: tuple[Statement, ...]) -> Iterator[LoopValue]:
    """All values in the body and its loops, in order."""
    for item in body:
        if isinstance(item, Loop):
            yield from values(item.body)
        else:
            yield item


def loops(body: tuple[Statement, ...]) -> Iterator[Loop]:
    """All loops in the body, an outer one before its inner ones."""
    for item in body:
        if isinstance(item, Loop):
            yield item
            yield from loops(item.body)


def structure(kernel: Kernel) -> tuple[Any, ...]:
    """A key that is equal for kernels that differ in nothing but their names, as those of equal
    layers of a network do. Code is generated once for each key. Values are numbered in order, since
    they are compared by identity otherwise."""
    # Buffers and values by number, as their identity differs from kernel to kernel.
    buffers = {b: at for at, b in enumerate((*kernel.buffers, *kernel.own))}
    numbers: dict[LoopValue, int] = {}
    parts: list[Any] = [len(kernel.buffers), kernel.sizes, kernel.signed]
    parts += [(b.name, b.type, b.access, b.base, b.size, b.device) for b in buffers]

    def add(body: tuple[Statement, ...]) -> None:
        for item in body:
            if isinstance(item, Loop):
                parts.append((item.var, item.extent, item.kind, len(item.body)))
                add(item.body)
                continue
            args = tuple([numbers[arg] for arg in item.args])
            buffer = None if item.buffer is None else buffers[item.buffer]
            parts.append((item.op, item.type, args, item.index, buffer, _bits(item.constant)))
            numbers[item] = len(numbers)

    add(kernel.body)
    return tuple(parts)


def _bits(constant: float | bool | None) -> Any:
    """Equal only for constants that are the same: 0.0 is not -0.0, and not False."""
    if isinstance(constant, float):
        return struct.pack("d", constant)
    return type(constant), constant
