"""Reductions as accumulators: one table.

The one idea: an accumulator is a few registers (its state), with a start, a way to add an argument
and a way to join two states. Joining makes lanes and pieces of a loop independent, so that sums
have many short chains of additions instead of one long one, which is faster and more accurate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, Type, largest
from pliant.targets.cpu.llvm_ops import OPS, REGISTER, lowest
from pliant.targets.cpu.llvm_text import Code, Reg

State = tuple[Reg, ...]
NOWHERE: Final = largest(Type.I64)  # the position of nothing


@dataclass(frozen=True, slots=True)
class Accumulator:
    """How one reduction is computed. A state is a tuple of registers; `start` gives the numbers and
    register types of the initial one. Types are those of the reduction's first argument."""

    start: Callable[[Type], tuple[tuple[float | int, str], ...]]  # numbers and register types
    join: Callable[[Code, Type, State, State], State]
    step: Callable[[Code, Type, State, State], State]  # state, arguments
    result: Callable[[Code, State], Reg] = lambda code, state: state[0]


def initial(code: Code, value: LoopValue, lanes: int) -> State:
    """The state before the first argument."""
    numbers = ACCUMULATORS[value.op].start(value.args[0].type)
    return tuple([code.spread(code.number(n, type), lanes) for n, type in numbers])


def step(code: Code, value: LoopValue, state: State, args: State) -> State:
    spread = tuple([code.spread(arg, state[0].lanes) for arg in args])
    return ACCUMULATORS[value.op].step(code, value.args[0].type, state, spread)


def join(code: Code, value: LoopValue, a: State, b: State) -> State:
    return ACCUMULATORS[value.op].join(code, value.args[0].type, a, b)


def fold(code: Code, value: LoopValue, state: State) -> State:
    """The state of all lanes joined to one: the upper half with the lower half, in log2(lanes)
    steps."""
    while state[0].lanes > 1:
        lower = tuple([code.half(reg, False) for reg in state])
        upper = tuple([code.half(reg, True) for reg in state])
        state = join(code, value, lower, upper)
    return state


def in_eager_order(value: LoopValue) -> bool:
    """Whether a reduction has to be in the order of eager PyTorch: a product of floats, since the
    product of some of them may overflow or be 0 where that of others isn't."""
    return value.op is Op.PROD and value.type in FLOAT


# As eager PyTorch's kernel for products has them, whatever the machine's vectors are.
REGISTERS: Final = 4
REGISTER_BYTES: Final = 32


def lanes_in_eager(t: Type) -> int:
    """In how many lanes eager PyTorch's kernel computes a product of this type."""
    return REGISTERS * REGISTER_BYTES * 8 // t.bits


def fold_in_eager_order(code: Code, value: LoopValue, state: State) -> State:
    """The state of all lanes, joined as eager PyTorch does: its `REGISTERS` registers in pairs,
    then the lanes of what is left from the first to the last."""
    assert state[0].lanes == lanes_in_eager(value.type)
    width = state[0].lanes // REGISTERS

    def register(i: int) -> State:
        picked = range(i * width, (i + 1) * width)
        return tuple([code.shuffled(reg, None, picked) for reg in state])

    pairs = [join(code, value, register(i), register(i + 1)) for i in (0, 2)]
    total = join(code, value, pairs[0], pairs[1])
    lanes = [tuple([code.lane(reg, i) for reg in total]) for i in range(width)]
    return reduce(lambda a, b: join(code, value, a, b), lanes)


def result(code: Code, value: LoopValue, state: State) -> Reg:
    return ACCUMULATORS[value.op].result(code, state)


def _repeated(op: Op, number: Callable[[Type], float | int]) -> Accumulator:
    """The accumulator of a reduction that repeats `op`; `number` is the operation's identity."""

    def join(code: Code, t: Type, a: State, b: State) -> State:
        return (OPS[op](code, t, a[0], b[0]),)

    return Accumulator(lambda t: ((number(t), REGISTER[t]),), join, join)


def highest(t: Type) -> float | int:
    return -lowest(t) if t in FLOAT else largest(t)


def _position(better: str, number: Callable[[Type], float | int]) -> Accumulator:
    """The accumulator of ARG_MAX ("gt") or ARG_MIN ("lt"): a state is the best number and its
    position. `number` is worse than any."""
    compare = OPS[Op.GT if better == "gt" else Op.LT]

    def join(code: Code, t: Type, a: State, b: State) -> State:
        """The second if it is better, or as good and earlier; nan is better than a number."""
        (x, i), (y, j) = a, b
        wins, ties = compare(code, t, y, x), y.compare("eq", x)
        if t in FLOAT:
            # Comparisons with nan are false.
            wins = wins | (y.is_nan() & ~x.is_nan())
            ties = ties | (y.is_nan() & x.is_nan())
        # Lanes are joined in any order, so a tie has to look at the positions.
        take = wins | (ties & j.compare("lt", i))
        return code.select(take, y, x), code.select(take, j, i)

    return Accumulator(
        lambda t: ((number(t), REGISTER[t]), (NOWHERE, "i64")),
        join,
        join,
        lambda code, state: code.select(state[1].compare("eq", NOWHERE), 0, state[1]),
    )


def _welford_step(code: Code, t: Type, state: State, args: State) -> State:
    (mean, squares, count), (x,) = state, args
    # Welford's update is stable where the sum of squares minus the square of the sum cancels.
    count = count + 1.0
    before = x - mean
    mean = mean + before * (1.0 / count)  # the division doesn't wait for the mean
    return mean, code.fma(before, x - mean, squares), count


def _welford_join(code: Code, t: Type, a: State, b: State) -> State:
    (mean_a, squares_a, count_a), (mean_b, squares_b, count_b) = a, b
    count = count_a + count_b
    # Lanes may have seen nothing yet.
    share = code.select(count.compare("eq", 0.0), 0.0, count_b / count)
    # Chan's formula for two parts.
    distance = mean_b - mean_a
    squares = code.fma(distance * distance, count_a * share, squares_a + squares_b)
    return code.fma(distance, share, mean_a), squares, count


ACCUMULATORS: Final[dict[Op, Accumulator]] = {
    Op.SUM: _repeated(Op.ADD, lambda t: 0),
    Op.PROD: _repeated(Op.MUL, lambda t: 1),
    Op.MAX: _repeated(Op.MAXIMUM, lowest),
    Op.MIN: _repeated(Op.MINIMUM, highest),
    Op.ANY: _repeated(Op.OR, lambda t: 0),
    Op.ALL: _repeated(Op.AND, lambda t: 1),
    Op.ARG_MAX: _position("gt", lowest),
    Op.ARG_MIN: _position("lt", highest),
    Op.WELFORD: Accumulator(
        lambda t: ((0.0, REGISTER[t]),) * 3,
        _welford_join,
        _welford_step,
    ),
}
