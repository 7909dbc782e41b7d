"""The table of rules, and what a rule may use.

A rule is given the arguments of the ATen call, with an `IndexedTensor` for each tensor, and returns
an `IndexedTensor` for each result:

    @lowers("aten.relu.default")
    def relu(low, x):
        return low.map(lambda b, v: b(Op.MAXIMUM, v, b.constant(0, v.type)), x.type, x)

The one idea: a rule that meets a case it has no loops for raises `NotLowered`, and the operator is
called in PyTorch instead. So a rule states what it knows and nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Final

import torch

from pliant.base.operators import RECORDS, load, register
from pliant.base.values import dataclass
from pliant.loop.define import (
    Computed,
    Definition,
    Index,
    LoopBody,
    Reduced,
    Scanned,
    Scattered,
    broadcast_index,
    contiguous,
)
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import BY_DTYPE, HALF, INTEGER, Type, wrapped
from pliant.ops.indexed_tensor import At, IndexedTensor, MemoryLayout, in_memory
from pliant.sym.cond import Cond
from pliant.sym.expr import ONE, ZERO, Expr, if_else
from pliant.sym.floats import FloatExpr, float_bits

Number = int | float | bool | Expr | FloatExpr | Cond
LoweringRule = Callable[..., Any]
Combine = Callable[..., LoopValue]  # (body, *values) -> value


class NotLowered(Exception):
    """There are no loops for this call: PyTorch runs it."""


def lowers(*names: str, **fields: Any) -> Callable[[LoweringRule], LoweringRule]:
    """Register a rule for these operators; `fields` go to their records, too."""

    def enter(rule: LoweringRule) -> LoweringRule:
        register(*names, lowering=rule, **fields)
        return rule

    return enter


def lowerings() -> dict[str, LoweringRule]:
    """All rules, by name of the operator."""
    load()
    return {name: record.lowering for name, record in RECORDS.items() if record.lowering}


@dataclass(frozen=True, slots=True)
class Meta:
    """The sizes, strides and dtype that a result has in eager PyTorch."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    dtype: torch.dtype

    @property
    def type(self) -> Type:
        return type_of(self.dtype)


def type_of(dtype: torch.dtype) -> Type:
    """The element type of a dtype that loops can compute with."""
    element_type = BY_DTYPE.get(dtype)
    if element_type is None:
        raise NotLowered(f"{dtype}")
    return element_type


def computed_in(t: Type) -> Type:
    """The type in which an operator on this type computes: halves in f32."""
    return Type.F32 if t in HALF else t


@dataclass(slots=True)
class Lowering:
    """What rules may use, and what they leave behind: definitions, in the order in which they were
    made. `results` is what the call being lowered returns."""

    definitions: list[Definition] = field(default_factory=list)
    results: tuple[Meta, ...] = ()
    known: Callable[[Cond], bool | None] = lambda cond: cond.value  # what is known of sizes
    simplify: Callable[[Expr], Expr] = lambda expr: expr
    hint: Callable[[Expr], int] = lambda expr: expr.value or 64  # a size to expect
    default_dtype: torch.dtype = torch.float32
    # Where the first argument is, if the result takes its place there (as in `scatter_`): the rule
    # may write to that memory instead of a copy.
    target: MemoryLayout | None = None
    layers: int = 0  # how many functions of an index were made of others so far
    device: str = "cpu"  # on which new definitions are
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def result(self) -> Meta:
        (only,) = self.results
        return only

    # ---- values

    def indexed(self, x: IndexedTensor | Number, type: Type) -> IndexedTensor:
        """The argument as a tensor of this type; a number is one without dimensions."""
        if isinstance(x, IndexedTensor):
            return self.cast(x, type)
        return IndexedTensor((), type, lambda b, index: number(b, x, type), 0)

    def cast(self, x: IndexedTensor, type: Type) -> IndexedTensor:
        """`Tensor.to` another type."""
        if x.type is type:
            return x
        return self.map(lambda b, v: b.cast(v, type), type, x)

    def map(self, combine: Combine, type: Type, *xs: IndexedTensor, cost: int = 1) -> IndexedTensor:
        """Elementwise, with broadcasting; `combine(body, *values)` gives a value of `type`."""
        sizes = self.broadcast([x.sizes for x in xs])
        ats = [self._spread(x, sizes) for x in xs]

        def at(b: LoopBody, index: Index) -> LoopValue:
            # Once for each index: what several readers share is computed once in their kernel.
            return b.once(at, index, lambda: combine(b, *[element(b, index) for element in ats]))

        # Functions of an index nest: each layer is a few frames of Python's stack when a kernel is
        # written.
        self.layers += 1
        total = cost + sum([x.cost for x in xs])
        return IndexedTensor(sizes, type, at, total, sum([x.reads for x in xs]))

    def generate(self, sizes: Sequence[Expr], type: Type, at: At, cost: int = 1) -> IndexedTensor:
        """Each element from its index, by `at(body, index)`: `arange`, `tril`, and everything that
        reads other elements than those at the same index, whose `cost` has to be given."""

        def shared(b: LoopBody, index: Index) -> LoopValue:
            return b.once(shared, index, lambda: at(b, index))

        self.layers += 1
        return IndexedTensor(tuple(sizes), type, shared, cost, 0)

    def reduce(
        self,
        op: Op,
        x: IndexedTensor,
        dims: Sequence[int],
        keepdim: bool = False,
        then: Callable[[LoopBody, LoopValue], LoopValue] | None = None,
        type: Type | None = None,
        args: Callable[[LoopBody, LoopValue, Index], tuple[LoopValue, ...]] | None = None,
    ) -> IndexedTensor:
        """Reduce `x` over `dims` (not negative) by `op`. `then(body, value)` finishes each result,
        which has `type` (by default that of x). `args(body, value, index)` are the arguments of
        `op` for an element of x; by default the value alone, for ARG_MAX its position as well."""
        # A reduction always has a definition of its own: its result is needed as a whole before
        # anything can read it.
        outer = [d for d in range(len(x.sizes)) if d not in dims]
        inner = sorted(dims)

        def at(b: LoopBody, row: Index, place: Index) -> tuple[LoopValue, ...]:
            index_of = dict(zip(outer, row)) | dict(zip(inner, place))
            index = tuple([index_of[d] for d in range(len(x.sizes))])
            value = x.at(b, index)
            return (value,) if args is None else args(b, value, index)

        def finish(b: LoopBody, value: LoopValue, row: Index) -> LoopValue:
            return value if then is None else then(b, value)

        body = Reduced(tuple([x.sizes[d] for d in inner]), op, at, finish)
        reduced = self.define(tuple([x.sizes[d] for d in outer]), type or x.type, body)
        with_ones = tuple([ONE if d in dims else x.sizes[d] for d in range(len(x.sizes))])
        return unsqueezed(in_memory(reduced), with_ones) if keepdim else in_memory(reduced)

    def realize(self, x: IndexedTensor, strides: Sequence[Expr] | None = None) -> IndexedTensor:
        """The tensor in memory of its own with these strides; with None, it may stay where it is if
        it is in memory already."""
        if x.memory is not None and strides is None:
            return x
        body = Computed(x.at)
        return in_memory(self.define(x.sizes, x.type, body, strides))

    def define(
        self,
        sizes: tuple[Expr, ...],
        type: Type,
        body: Computed | Reduced | Scanned | Scattered | None,
        strides: Sequence[Expr] | None = None,
        into: Definition | None = None,
        offset: Expr = ZERO,
    ) -> Definition:
        # Intermediate values may have any layout; results get the strides of eager PyTorch.
        laid_out = contiguous(sizes) if strides is None else tuple(strides)
        name, device = f"t{next(self._numbers)}", self.device if into is None else into.device
        new = Definition(name, sizes, laid_out, type, body, into, offset, device)
        self.definitions.append(new)
        return new

    # ---- sizes

    def broadcast(self, shapes: Sequence[tuple[Expr, ...]]) -> tuple[Expr, ...]:
        """The sizes that tensors of these shapes broadcast to. A size that isn't the constant 1 is
        not broadcast: whether it is 1 was decided, with a guard, when the program was captured."""
        rank = max([len(shape) for shape in shapes], default=0)
        padded = [(ONE,) * (rank - len(shape)) + shape for shape in shapes]
        return tuple([self._common(sizes) for sizes in zip(*padded)])

    def _common(self, sizes: Sequence[Expr]) -> Expr:
        # Two sizes may be equal by a guard and still be written differently.
        distinct = {self.simplify(size) for size in sizes} - {ONE}
        if len(distinct) > 1:
            raise NotLowered(f"broadcasting {', '.join(map(str, distinct))}")
        return distinct.pop() if distinct else ONE

    def _spread(self, x: IndexedTensor, sizes: tuple[Expr, ...]) -> At:
        """The elements of x by the index of a tensor of these sizes, which x is broadcast to. Sizes
        are simplified, as in `_common`: one that is known to be 1 by now may be a symbol in
        `x.sizes`."""
        # Most operands are not broadcast, and keep their function as it is.
        if x.sizes == sizes:
            return x.at
        ones = [self.simplify(size) is ONE for size in x.sizes]
        return lambda b, index: x.at(b, broadcast_index(index, ones))

    def dims(self, x: IndexedTensor, dims: Any) -> list[int]:
        """Dimensions as a list without negative ones; None or an empty list is all of them."""
        rank = len(x.sizes)
        if dims is None or (isinstance(dims, (list, tuple)) and not dims):
            return list(range(rank))
        listed = [dims] if isinstance(dims, int) else list(dims)
        return [d % max(rank, 1) for d in listed] if rank else []


def unsqueezed(x: IndexedTensor, sizes: tuple[Expr, ...]) -> IndexedTensor:
    """The tensor with dimensions of size 1 added or removed, so that its sizes are these."""
    new_dims = [d for d, size in enumerate(sizes) if size is not ONE]
    old_dims = [d for d, size in enumerate(x.sizes) if size is not ONE]
    assert len(new_dims) == len(old_dims), (x.sizes, sizes)
    new_dim = dict(zip(old_dims, new_dims))

    def at(b: LoopBody, index: Index) -> LoopValue:
        # Dimensions larger than 1 correspond in order.
        place = [index[new_dim[d]] if d in new_dim else ZERO for d in range(len(x.sizes))]
        return x.at(b, tuple(place))

    memory = x.memory
    if memory is not None:  # it stands where it stood
        steps = dict(zip(new_dims, [memory.strides[d] for d in old_dims]))
        strides = tuple([steps.get(d, ONE) for d in range(len(sizes))])
        memory = MemoryLayout(memory.of, strides, memory.offset)
    return IndexedTensor(sizes, x.type, at, x.cost, x.reads, memory)


def number(b: LoopBody, x: Number, t: Type) -> LoopValue:
    """A number of the program, constant or symbolic, as a value of this type, converted as
    `Tensor.fill_` does."""
    if isinstance(x, Cond):
        x = if_else(x, 1, 0)
    if isinstance(x, FloatExpr):
        if x.value is None:
            return b.cast(float_value(b, x), t)
        x = x.value
    if isinstance(x, Expr):
        if x.value is None:
            return b.cast(b.iota(x), t)
        x = x.value
    return constant(b, x, t)


def constant(b: LoopBody, x: int | float | bool, t: Type) -> LoopValue:
    """A constant, converted to this type."""
    if t is Type.BOOL:
        return b.constant(bool(x), t)
    if t in INTEGER:
        return b.constant(wrapped(int(x), t), t)
    return b.constant(float(x), t)


MOST_FLOAT_DEPTH: Final = 16  # a deeper one is computed before the kernel


def computable(x: Any) -> bool:
    """Whether kernels can compute an argument, if it is a symbolic number: any integer, and of
    floats those that are built from few simple operations."""
    if isinstance(x, (list, tuple)):
        return all(map(computable, x))
    if isinstance(x, FloatExpr) and x.op in (*_FLOAT_OPS, "to_float"):
        return x.depth <= MOST_FLOAT_DEPTH and all(map(computable, x.args))
    if isinstance(x, Expr | Cond):
        return not any(isinstance(s, FloatExpr) for s in x.symbols)
    return not isinstance(x, FloatExpr) or x.op in ("fsymbol", "float")


def float_value(b: LoopBody, x: Any) -> LoopValue:
    """A symbolic float as f64. The value of a symbol is passed among the sizes, as its bits."""
    if isinstance(x, Expr):
        return b.cast(b.iota(x), Type.F64)
    if x.value is not None:
        return b.constant(float(x.value), Type.F64)
    if x.op == "to_float":
        return float_value(b, x.args[0])
    if x.op == "fsymbol":
        # The launcher passes 64-bit integers only.
        return b.bitcast(b.iota(float_bits(x)), Type.F64)
    return b(_FLOAT_OPS[x.op], *[float_value(b, arg) for arg in x.args])


_FLOAT_OPS: Final = {
    "fadd": Op.ADD,
    "fsub": Op.SUB,
    "fmul": Op.MUL,
    "truediv": Op.DIV,
    "fneg": Op.NEG,
    "math.sqrt": Op.SQRT,
    "fabs": Op.ABS,
}
