"""Reductions as Triton source: one table.

The one idea: an accumulator is a few blocks with a start, a way to add a block, and a way to make
one number of each row in the end. A pass over whole rows has one block, so it ends with the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.ir import Op
from pliant.loop.types import FLOAT, Type, largest, smallest
from pliant.targets.triton.expressions import DTYPES

NOWHERE: Final = largest(Type.I64)  # the position of nothing


@dataclass(frozen=True, slots=True)
class BlockAccumulator:
    """How one reduction is computed, for arguments of type `t`.

    `start(t)`: the number and type that each block of the state begins with.
    `step(t, state, args, mask)`: assignments (name, text) that add a block of arguments. The mask
    is "" if the whole block counts, which only those in `SIMPLE` can make use of.
    `end(t, state)`: assignments that reduce the blocks; "" is the name of the result, others are
    endings of it.
    `whole(t, args, mask, count)`: the same as `end`, from one block of `count` arguments."""

    start: Callable[[Type], Sequence[tuple[str, Type]]]
    step: Callable[[Type, Sequence[str], Sequence[str], str], Sequence[tuple[str, str]]]
    end: Callable[[Type, Sequence[str]], Sequence[tuple[str, str]]]
    whole: Callable[[Type, Sequence[str], str, str], Sequence[tuple[str, str]]]


def lowest(t: Type) -> str:
    return 'float("-inf")' if t in FLOAT else str(smallest(t))


def highest(t: Type) -> str:
    return 'float("inf")' if t in FLOAT else str(largest(t))


def _simple(
    identity: Callable[[Type], str], along: str, join: Callable[[Type, str, str], str]
) -> BlockAccumulator:
    """One number of one type, joined in any order."""

    def step(
        t: Type, state: Sequence[str], args: Sequence[str], mask: str
    ) -> list[tuple[str, str]]:
        joined = join(t, state[0], args[0])
        return [(state[0], f"tl.where({mask}, {joined}, {state[0]})" if mask else joined)]

    return BlockAccumulator(
        start=lambda t: [(identity(t), t)],
        step=step,
        end=lambda t, state: [("", f"{along}({state[0]})")],
        whole=lambda t, args, mask, count: [
            ("", f"{along}(tl.where({mask}, {args[0]}, {identity(t)}))")
        ],
    )


def _zero(t: Type) -> str:
    return "0.0" if t in FLOAT else "0"


def _one(t: Type) -> str:
    return "1.0" if t in FLOAT else "1"


def _larger(t: Type, a: str, b: str) -> str:
    nan = ", propagate_nan=tl.PropagateNan.ALL" if t in FLOAT else ""
    return f"tl.maximum({a}, {b}{nan})"


def _smaller(t: Type, a: str, b: str) -> str:
    return _larger(t, a, b).replace("tl.maximum", "tl.minimum")


def _position(identity: Callable[[Type], str], along: str, better: str) -> BlockAccumulator:
    """The best number and its position; `library` compares them."""
    return BlockAccumulator(
        start=lambda t: [(identity(t), t), (str(NOWHERE), Type.I64)],
        step=lambda t, state, args, mask: [
            ("{}_better", f"{mask} & {better}({args[0]}, {args[1]}, {state[0]}, {state[1]})"),
            (state[0], f"tl.where({{}}_better, {args[0]}, {state[0]})"),
            (state[1], f"tl.where({{}}_better, {args[1]}, {state[1]})"),
        ],
        end=lambda t, state: [
            ("_best", f"{along}({state[0]})"),
            ("", f"position_of({state[0]}, {state[1]}, {{}}_best, {state[1]} != {NOWHERE})"),
        ],
        whole=lambda t, args, mask, count: [
            ("_best", f"{along}(tl.where({mask}, {args[0]}, {identity(t)}))"),
            ("", f"position_of({args[0]}, {args[1]}, {{}}_best, {mask})"),
        ],
    )


# Blocks that are added one by one need Welford's update, and Chan's formula to join their lanes. A
# whole row is in registers, so its mean is computed first and then the squares of the distances.
_WELFORD: Final = BlockAccumulator(
    start=lambda t: [("0.0", t), ("0.0", t), ("0.0", t)],
    step=lambda t, state, args, mask: [
        (state[2], f"tl.where({mask}, {state[2]} + 1.0, {state[2]})"),
        ("{}_delta", f"tl.where({mask}, {args[0]} - {state[0]}, 0.0)"),
        (state[0], f"{state[0]} + {{}}_delta / tl.maximum({state[2]}, 1.0)"),
        (
            state[1],
            f"{state[1]} + {{}}_delta * tl.where({mask}, {args[0]} - {state[0]}, 0.0)",
        ),
    ],
    end=lambda t, state: [
        ("_count", f"tl.maximum(sum_along({state[2]}), 1.0)"),
        ("", f"sum_along({state[0]} * {state[2]}) / {{}}_count"),
        ("_away", f"{state[0]} - {{}}"),
        ("_m2", f"sum_along({state[1]} + {state[2]} * {{}}_away * {{}}_away)"),
    ],
    whole=lambda t, args, mask, count: [
        ("", f"sum_along(tl.where({mask}, {args[0]}, 0.0)) / {count}.to({DTYPES[t]})"),
        ("_away", f"tl.where({mask}, {args[0]} - {{}}, 0.0)"),
        ("_m2", "sum_along({}_away * {}_away)"),
    ],
)

ACCUMULATORS: Final[dict[Op, BlockAccumulator]] = {
    Op.SUM: _simple(_zero, "sum_along", lambda t, a, b: f"{a} + {b}"),
    Op.PROD: _simple(_one, "prod_along", lambda t, a, b: f"{a} * {b}"),
    Op.MAX: _simple(lowest, "max_along", _larger),
    Op.MIN: _simple(highest, "min_along", _smaller),
    Op.ANY: _simple(lambda t: "False", "any_along", lambda t, a, b: f"{a} | {b}"),
    Op.ALL: _simple(lambda t: "True", "all_along", lambda t, a, b: f"{a} & {b}"),
    Op.ARG_MAX: _position(lowest, "max_along", "is_larger"),
    Op.ARG_MIN: _position(highest, "min_along", "is_smaller"),
    Op.WELFORD: _WELFORD,
}
"""In these texts `{}` is the name of the result. What is not Triton's own is in `library`."""

SIMPLE: Final = frozenset((Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.ANY, Op.ALL))
"""Reductions of one number of one type."""
