"""The meaning of a kernel: an interpreter, slow and plain, that tests compare emitters with.

The one idea: one iteration and one value at a time. Integers are Python's, wrapped to their type
after each step; floats are tensors without dimensions, so that PyTorch says what an operation is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import torch

from pliant.loop.ir import REDUCTIONS, Kernel, Loop, LoopKind, LoopValue, Op, Statement
from pliant.loop.types import FLOAT, INTEGER, Type, largest, smallest, wrapped
from pliant.sym.expr import Expr, evaluate
from tests.support import philox

Number = Any  # int | bool | torch.Tensor without dimensions


def run(
    kernel: Kernel,
    buffers: Sequence[torch.Tensor],
    sizes: Sequence[int],
    part: tuple[int, int] | None = None,
) -> None:
    """Run the kernel on one-dimensional tensors; or only the iterations `part` of its grid."""
    machine = _Machine(kernel, buffers, dict(zip(kernel.sizes, sizes, strict=True)))
    grid = kernel.grid
    extents = [max(0, evaluate(loop.extent, machine.symbols)) for loop in grid]
    body = grid[-1].body if grid else kernel.body
    points = list(itertools.product(*[range(extent) for extent in extents]))
    for point in points[slice(*part)] if part else points:
        machine.symbols.update({loop.var: at for loop, at in zip(grid, point)})
        machine.block(body)


def work(kernel: Kernel, sizes: Sequence[int]) -> int:
    """How many iterations the grid has; 1 if there is no grid."""
    values = dict(zip(kernel.sizes, sizes, strict=True))
    return math.prod([max(0, evaluate(loop.extent, values)) for loop in kernel.grid])


class _Machine:
    def __init__(
        self, kernel: Kernel, buffers: Sequence[torch.Tensor], sizes: Mapping[Expr, int]
    ) -> None:
        self.symbols: dict[Any, int] = dict(sizes)
        self.values: dict[LoopValue, Number] = {}
        self.seen: dict[LoopValue, list[tuple[Number, ...]]] = {}  # what a reduction is of
        self.carried: dict[LoopValue, Number] = {}  # to the next iteration
        self.memory = dict(zip(kernel.buffers, buffers, strict=True))
        for buffer in kernel.own:
            assert buffer.size is not None
            size = max(0, evaluate(buffer.size, self.symbols))
            self.memory[buffer] = torch.zeros(size, dtype=buffer.type.dtype)

    def block(self, body: tuple[Statement, ...], kind: LoopKind | None = None) -> None:
        for item in body:
            if isinstance(item, Loop):
                self.loop(item, kind)
            elif item.op in REDUCTIONS:
                self.seen.setdefault(item, []).append(self.args(item))
            else:
                self.values[item] = _RUN.get(item.op, _compute)(self, item)

    def loop(self, loop: Loop, around: LoopKind | None) -> None:
        outermost = loop.kind is LoopKind.REDUCTION and around is not LoopKind.REDUCTION
        reductions = _reductions(loop) if outermost else []
        for value in reductions:
            self.seen[value] = []
        for item in loop.body:
            if isinstance(item, LoopValue) and item.op is Op.CARRIED:
                self.carried[item] = self.values[item.args[0]]
        for at in range(evaluate(loop.extent, self.symbols)):
            self.symbols[loop.var] = at
            self.block(loop.body, loop.kind)
        for value in reductions:
            self.values[value] = _REDUCE[value.op](self.seen[value], value)

    def args(self, value: LoopValue) -> tuple[Number, ...]:
        return tuple([self.values[arg] for arg in value.args])

    def place(self, value: LoopValue) -> tuple[torch.Tensor, int]:
        """Where the value lies. A negative index is one before the memory, not from its end."""
        assert value.buffer is not None and value.index is not None
        at = evaluate(value.buffer.base, self.symbols) + evaluate(value.index, self.symbols)
        memory = self.memory[value.buffer]
        if not 0 <= at < len(memory):
            raise IndexError(f"{value.buffer.name}[{at}] of {len(memory)}")
        return memory, at


def _reductions(loop: Loop) -> list[LoopValue]:
    reductions: list[LoopValue] = []
    for item in loop.body:
        if isinstance(item, Loop):
            reductions += _reductions(item) if item.kind is LoopKind.REDUCTION else []
        elif item.op in REDUCTIONS:
            reductions.append(item)
    return reductions


def made(number: Any, t: Type) -> Number:
    """A number of the type."""
    if t in INTEGER:
        return wrapped(int(number), t)
    return bool(number) if t is Type.BOOL else torch.tensor(number, dtype=t.dtype)


def _load(machine: _Machine, value: LoopValue) -> Number:
    if not all(machine.args(value)):
        return made(0, value.type)
    memory, at = machine.place(value)
    return memory[at].clone() if value.type.kind == "float" else memory[at].item()


def _store(machine: _Machine, value: LoopValue) -> None:
    stored, *mask = machine.args(value)
    if all(mask):
        memory, at = machine.place(value)
        memory[at] = torch.as_tensor(stored, dtype=memory.dtype)


def _atomic_add(machine: _Machine, value: LoopValue) -> None:
    added, *mask = machine.args(value)
    if all(mask):
        memory, at = machine.place(value)
        memory[at] += torch.as_tensor(added, dtype=memory.dtype)


def _carry(machine: _Machine, value: LoopValue) -> None:
    machine.carried[value.args[0]] = machine.values[value.args[1]]


def _as_index(machine: _Machine, value: LoopValue) -> Number:
    (number,) = machine.args(value)
    machine.symbols[value.index] = number
    return number


def _iota(machine: _Machine, value: LoopValue) -> Number:
    assert value.index is not None
    return wrapped(evaluate(value.index, machine.symbols), Type.I64)


def _cast(machine: _Machine, value: LoopValue) -> Number:
    (number,) = machine.args(value)
    if isinstance(number, torch.Tensor) and value.type.kind == "float":
        return number.to(value.type.dtype)
    if isinstance(number, torch.Tensor) and value.type in INTEGER:
        return wrapped(_truncated(number.item()), value.type)
    return made(number, value.type)


def _truncated(number: float) -> int:
    return int(number) if math.isfinite(number) else 0


def _bitcast(machine: _Machine, value: LoopValue) -> Number:
    (number,) = machine.args(value)
    tensor = torch.tensor(number, dtype=value.args[0].type.dtype)
    result = tensor.view(value.type.dtype)
    return result if value.type.kind == "float" else result.item()


def _philox(machine: _Machine, value: LoopValue) -> Number:
    return philox.number(*machine.args(value))


def _second_moment(machine: _Machine, value: LoopValue) -> Number:
    return _welford(machine.seen[value.args[0]], value)[1]


def _compute(machine: _Machine, value: LoopValue) -> Number:
    """An operation whose result depends on its arguments alone."""
    args = machine.args(value)
    if args[-1:] and isinstance(args[-1], torch.Tensor):
        result = FLOATS[value.op](*args)
        return result if value.type.kind == "float" else bool(result)
    if value.op in SHIFTS:
        return wrapped(SHIFTS[value.op](*args, value.type), value.type)
    return made(INTEGERS[value.op](*args), value.type)


_RUN: Final[dict[Op, Callable[[_Machine, LoopValue], Any]]] = {
    Op.LOAD: _load,
    Op.STORE: _store,
    Op.ATOMIC_ADD: _atomic_add,
    Op.CONSTANT: lambda machine, value: made(value.constant, value.type),
    Op.IOTA: _iota,
    Op.AS_INDEX: _as_index,
    Op.CAST: _cast,
    Op.BITCAST: _bitcast,
    Op.PHILOX: _philox,
    Op.WELFORD_M2: _second_moment,
    Op.CARRIED: lambda machine, value: machine.carried[value],
    Op.CARRY: _carry,
}


def _truncating_div(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _shift_left(a: int, b: int, t: Type) -> int:
    return a << b if 0 <= b < t.bits else 0


def _shift_right(a: int, b: int, t: Type) -> int:
    return a >> (b if 0 <= b < t.bits else t.bits)


SHIFTS: Final[dict[Op, Callable[..., int]]] = {Op.SHL: _shift_left, Op.SHR: _shift_right}

INTEGERS: Final[dict[Op, Callable[..., Any]]] = {
    Op.ADD: lambda a, b: a + b,
    Op.SUB: lambda a, b: a - b,
    Op.MUL: lambda a, b: a * b,
    Op.FLOOR_DIV: lambda a, b: a // b if b else 0,
    Op.REMAINDER: lambda a, b: a % b if b else 0,
    Op.TRUNC_DIV: _truncating_div,
    Op.FMOD: lambda a, b: a - b * _truncating_div(a, b) if b else 0,
    Op.NEG: lambda a: -a,
    Op.ABS: abs,
    Op.SIGN: lambda a: (a > 0) - (a < 0),
    Op.MINIMUM: min,
    Op.MAXIMUM: max,
    Op.FMIN: min,
    Op.FMAX: max,
    Op.AND: lambda a, b: a & b,
    Op.OR: lambda a, b: a | b,
    Op.XOR: lambda a, b: a ^ b,
    Op.NOT: lambda a: not a if isinstance(a, bool) else ~a,
    Op.EQ: lambda a, b: a == b,
    Op.NE: lambda a, b: a != b,
    Op.LT: lambda a, b: a < b,
    Op.LE: lambda a, b: a <= b,
    Op.GT: lambda a, b: a > b,
    Op.GE: lambda a, b: a >= b,
    Op.SELECT: lambda condition, a, b: a if condition else b,
}
"""On integers and bools, before wrapping."""


def _fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """a*b + c, exact before it is rounded where all are finite."""
    numbers = [a.item(), b.item(), c.item()]
    if not all(map(math.isfinite, numbers)):
        return a * b + c
    x, y, z = map(Fraction, numbers)
    return (
        torch.tensor(float(x * y + z), dtype=torch.float64).to(a.dtype) if x * y + z else a * b + c
    )


_SAME_NAME: Final = """
    remainder fmod sign minimum maximum fmin fmax isnan isinf sqrt rsqrt floor ceil trunc copysign
    exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf erfc pow sinh cosh asin acos
    atan atan2 asinh acosh atanh lgamma hypot nextafter
"""

FLOATS: Final[dict[Op, Callable[..., torch.Tensor]]] = {
    **{op: function for op, function in INTEGERS.items() if op.name in ("ADD", "SUB", "MUL")},
    **{op: function for op, function in INTEGERS.items() if op.name in ("NEG", "ABS", "SELECT")},
    **{op: INTEGERS[op] for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)},
    Op.DIV: torch.true_divide,
    Op.FLOOR_DIV: torch.floor_divide,
    Op.TRUNC_DIV: lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    Op.FMA: _fused,
    Op.ROUND: torch.round,
    **{Op[name.upper()]: getattr(torch, name) for name in _SAME_NAME.split()},
    Op.SILU: torch.nn.functional.silu,
}
"""On F32 and F64. SELECT is on halves as well."""

Seen = list[tuple[Any, ...]]


def _exact(seen: Seen, value: LoopValue, on_ints: Callable[[Any], Any], on_floats: Any) -> Number:
    """A reduction that is rounded once: emitters are compared with what it should be."""
    numbers = [args[0] for args in seen]
    if value.type not in FLOAT:
        return made(on_ints(numbers), value.type)
    return on_floats(torch.tensor(numbers, dtype=torch.float64)).to(value.type.dtype)


def _best(seen: Seen, value: LoopValue, sign: int) -> Number:
    """The largest (or smallest) of the numbers; of none, what loses against all others."""
    t = value.args[0].type
    if t in FLOAT:
        numbers = [args[0] for args in seen]
        candidates = torch.stack([torch.tensor(-sign * math.inf, dtype=t.dtype), *numbers])
        return candidates.max() if sign > 0 else candidates.min()
    none = smallest(t) if sign > 0 else largest(t)
    return (max if sign > 0 else min)([none, *[args[0] for args in seen]])


def _position(seen: Seen, value: LoopValue, sign: int) -> Number:
    best = _best(seen, value, sign)
    positions = [at for x, at in seen if x != x] or [at for x, at in seen if x == best]
    return min(positions, default=0)


def _welford(seen: Seen, value: LoopValue) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.tensor([args[0] for args in seen], dtype=torch.float64)
    mean = numbers.mean() if len(numbers) else torch.zeros((), dtype=torch.float64)
    dtype = value.type.dtype
    return mean.to(dtype), ((numbers - mean) ** 2).sum().to(dtype)


_REDUCE: Final[dict[Op, Callable[[Seen, LoopValue], Number]]] = {
    Op.SUM: lambda seen, value: _exact(seen, value, sum, torch.sum),
    Op.PROD: lambda seen, value: _exact(seen, value, math.prod, torch.prod),
    Op.MAX: lambda seen, value: _best(seen, value, 1),
    Op.MIN: lambda seen, value: _best(seen, value, -1),
    Op.ARG_MAX: lambda seen, value: _position(seen, value, 1),
    Op.ARG_MIN: lambda seen, value: _position(seen, value, -1),
    Op.ANY: lambda seen, value: any(args[0] for args in seen),
    Op.ALL: lambda seen, value: all(args[0] for args in seen),
    Op.WELFORD: lambda seen, value: _welford(seen, value)[0],
}
