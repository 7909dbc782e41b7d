"""Matrix products: `linear`, `matmul` and the like as `mm` or `bmm`, into memory of ours.

The one idea: most of what PyTorch does around a product is to see the same memory with other sizes,
which costs nothing here. A bias is not part of the product: PyTorch would fill the result with it
first, and for the kernel that reads the result it is one more operand. (If no kernel does, one that
adds to the memory of the product takes no longer.) Operands that have to be copied are laid out by
our kernels, with whatever else happens to them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.base.operators import record_of
from pliant.base.values import dataclass
from pliant.graph.extern import ExternOperator, TensorArgument
from pliant.graph.half_matmul import HALVES
from pliant.graph.ir import Node, Tensor
from pliant.loop.define import Definition, Index, LoopBody, Reduced, address, contiguous
from pliant.loop.fuse import ExternCall
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import BY_DTYPE, Type
from pliant.ops.indexed_tensor import IndexedTensor, MemoryLayout, in_memory
from pliant.ops.lowering import Lowering
from pliant.ops.places import spread_index
from pliant.ops.views import view_of
from pliant.sym.expr import ONE, ZERO, Expr

if TYPE_CHECKING:
    from pliant.ops.matmul import Factors

aten = torch.ops.aten

TYPES: Final = (torch.float32, torch.float64, *HALVES)


@dataclass(frozen=True, slots=True, eq=False)
class Matmul:
    """A call of `mm`, `bmm` or `addmm` into `memory`, and the result of the node: a view of that,
    plus a bias if one is added afterwards."""

    call: ExternCall
    memory: Definition
    result: IndexedTensor


class MatmulLowering:
    """Finds matrix products among the nodes of one lowering. `returned` are the values that the
    caller gets; `needed(tensor)` realizes an operand; `take(node)` appends new definitions to the
    steps."""

    def __init__(
        self,
        low: Lowering,
        indexed_tensors: Mapping[Tensor, IndexedTensor],
        returned: Collection[Tensor],
        needed: Callable[[Tensor], TensorArgument],
        take: Callable[[Node | None], None],
    ) -> None:
        self.low = low
        self.indexed_tensors = indexed_tensors
        self.returned = returned
        self.needed = needed
        self.take = take
        self._copies: dict[tuple[Tensor, bool], TensorArgument] = {}

    def find(self, node: Node) -> Matmul | None:
        """The product that a node computes; None if it computes none, or not in a form that this
        module calls."""
        rule = record_of(node.name).factors
        factors = None if rule is None else rule(node)
        (result, *more) = node.results or (None,)
        # Others return more than the product.
        if factors is None or result is None or more or node.defines or node.effect:
            return None
        operands = [t for t in (factors.first, factors.second, factors.added) if t is not None]
        # `mm` and its like convert nothing.
        if result.dtype not in TYPES or any(t.dtype is not result.dtype for t in operands):
            return None
        if result.strides != contiguous(result.sizes):  # memory of ours is written without gaps
            return None
        first, second = factors.first.sizes, factors.second.sizes
        if len(first) >= 2 and len(second) == 2:
            return self._of_rows(node, factors, result)
        if len(first) == len(second) >= 3 and first[:-2] == second[:-2] and factors.added is None:
            return self._of_batches(node, factors, result)
        return None

    def generate(self, node: Node) -> IndexedTensor:
        """The product that a node computes, as a reduction for a kernel of ours."""
        rule = record_of(node.name).factors
        factors = None if rule is None else rule(node)
        assert factors is not None
        (result,) = node.results
        rows, matrix = self._matrix(factors.first, node), self._matrix(factors.second, node)
        matrix = _turned(matrix) if factors.turned else matrix
        bias = None if factors.added is None else self.needed(factors.added)
        return _reduced(self.low, result, rows, matrix, bias)

    def _of_rows(self, node: Node, factors: Factors, result: Tensor) -> Matmul | None:
        """A product of all rows of the first tensor with a matrix: `(..., m, k) @ (k, n)` is one
        `mm`, in which all leading dimensions are rows."""
        added = factors.added
        apart = added is not None and self._adds_later(added)
        # All rows are one dimension here, over which `addmm` can't spread what has several.
        if added is not None and not apart and len(result.sizes) > 2 and len(added.sizes) > 1:
            return None
        # `linear` takes (..., k): all leading dimensions are rows of one matrix if strides allow.
        rows = self._matrix(factors.first, node)
        matrix = self._matrix(factors.second, node)
        if factors.turned:
            matrix = _turned(matrix)
        sizes = (rows.sizes[0], matrix.sizes[1])
        if added is None or apart:
            product = self._called(node, aten.mm.out, (rows, matrix), sizes, result)
        else:
            args = (self.needed(added), rows, matrix)
            product = self._called(node, aten.addmm.out, args, sizes, result)
        if added is None or not apart:
            return product
        return Matmul(
            product.call,
            product.memory,
            _sum(self.low, product.result, self.indexed_tensors[added]),
        )

    def _adds_later(self, added: Tensor) -> bool:
        """Whether a kernel adds the bias, instead of `addmm`. Not for halves, as the product would
        be rounded before."""
        return added.dtype not in HALVES and self.indexed_tensors[added].memory is not None

    def _of_batches(self, node: Node, factors: Factors, result: Tensor) -> Matmul:
        args = (self._matrices(factors.first, node), self._matrices(factors.second, node))
        sizes = (args[0].sizes[0], args[0].sizes[1], args[1].sizes[2])
        return self._called(node, aten.bmm.out, args, sizes, result)

    def _called(
        self,
        node: Node,
        func: Any,
        args: tuple[TensorArgument, ...],
        sizes: tuple[Expr, ...],
        result: Tensor,
    ) -> Matmul:
        # The program sees a tensor that is returned, with sizes of its own; any other can have
        # those of the call, as the same memory.
        own = result.sizes if result in self.returned else sizes
        type = BY_DTYPE[result.dtype]
        name, device = f"p{len(self.indexed_tensors)}", result.device.type
        memory = Definition(name, own, contiguous(own), type, device=device)
        out = TensorArgument(MemoryLayout(memory, contiguous(sizes), ZERO), sizes, result.dtype)
        called = Node(str(func), func, (), {}, (result,))
        reads = tuple([place.memory.of for place in args])
        operator = ExternOperator(called, args, {"out": out})
        call = ExternCall(reads, (memory,), operator, raises=False, fresh=True)
        return Matmul(call, memory, in_memory(memory, result.sizes, result.strides))

    # ---- operands

    def _matrix(self, tensor: Tensor, node: Node) -> TensorArgument:
        """The tensor as a matrix: all but the last dimension are its rows. A copy if no stride
        spans them, or if neither rows nor columns are close in memory."""
        rows = merged(tensor.sizes[:-1], tensor.strides[:-1])
        if rows is None or not _has_unit(tensor):
            place = self._copied(tensor, False, node)
            rows = merged(place.sizes[:-1], place.memory.strides[:-1])
        else:
            place = self.needed(tensor)
        assert rows is not None
        (count, step), width = rows, tensor.sizes[-1]
        # The stride of a single row says nothing: it gets that of a matrix without gaps.
        # BLAS refuses a leading dimension that is smaller than the width.
        strides = (step if count is not ONE else width, place.memory.strides[-1])
        return _seen(place, (count, width), strides)

    def _matrices(self, tensor: Tensor, node: Node) -> TensorArgument:
        """The tensor as a batch of matrices: all but the last two dimensions are one."""
        batch = merged(tensor.sizes[:-2], tensor.strides[:-2])
        if batch is None or not _has_unit(tensor):
            place = self._copied(tensor, tensor.strides[-2] is ONE, node)
            batch = merged(place.sizes[:-2], place.memory.strides[:-2])
        else:
            place = self.needed(tensor)
        assert batch is not None
        count, step = batch
        step = step if count is not ONE else tensor.sizes[-1] * tensor.sizes[-2]
        sizes = (count, *place.sizes[-2:])
        return _seen(place, sizes, (step, *place.memory.strides[-2:]))

    def _copied(self, tensor: Tensor, turned: bool, node: Node) -> TensorArgument:
        """A contiguous copy, made once for each tensor. `turned`: its matrices are stored by
        columns, as those of the tensor are."""
        if (tensor, turned) not in self._copies:
            indexed = self.indexed_tensors[tensor]
            if turned:
                *sizes, rows, columns = indexed.sizes
                indexed = view_of("aten.transpose.int", indexed, (*sizes, columns, rows), -2, -1)
            memory = self.low.realize(indexed, contiguous(indexed.sizes)).memory
            self.take(node)
            assert memory is not None
            place = TensorArgument(memory, indexed.sizes, tensor.dtype)
            self._copies[tensor, turned] = _turned(place) if turned else place
        return self._copies[tensor, turned]


def merged(sizes: Sequence[Expr], strides: Sequence[Expr]) -> tuple[Expr, Expr] | None:
    """Dimensions merged to one: its size and its stride. None if no stride spans them, as if they
    were transposed or had gaps between rows."""
    total, step, apart = ONE, ONE, None
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size is ONE:
            continue  # its stride doesn't matter
        if apart is not None and stride is not apart:
            return None
        step = stride if apart is None else step
        total, apart = total * size, stride * size
    return total, step


def _has_unit(tensor: Tensor) -> bool:
    """Whether rows or columns have stride 1, as BLAS requires."""
    return tensor.strides[-1] is ONE or tensor.strides[-2] is ONE


def _reduced(
    low: Lowering,
    result: Tensor,
    rows: TensorArgument,
    matrix: TensorArgument,
    bias: TensorArgument | None,
) -> IndexedTensor:
    """A product of matrices as a reduction, in f32 and rounded at the end. All but the last
    dimension of the result are rows."""
    type = BY_DTYPE[result.dtype]

    def at(b: LoopBody, outer: Index, inner: Index) -> tuple[LoopValue, ...]:
        *leading, column = outer
        row = ZERO
        for i, size in zip(leading, result.sizes):
            row = row * size + i
        left, right = _element(b, rows, (row, *inner)), _element(b, matrix, (*inner, column))
        return (b(Op.MUL, left, right),)

    def then(b: LoopBody, total: LoopValue, outer: Index) -> LoopValue:
        if bias is not None:
            total = b(Op.ADD, total, _element(b, bias, outer[-1:]))
        return b.cast(total, type)

    body = Reduced((rows.sizes[1],), Op.SUM, at, then, is_product=True)
    return in_memory(low.define(result.sizes, type, body))


def _element(b: LoopBody, place: TensorArgument, index: Index) -> LoopValue:
    memory = place.memory
    element = b.read(memory.of, address(index, memory.strides, memory.offset))
    return b.cast(element, Type.F32)


def _seen(
    place: TensorArgument, sizes: tuple[Expr, ...], strides: tuple[Expr, ...]
) -> TensorArgument:
    """The same memory with other sizes and strides."""
    memory = place.memory
    return TensorArgument(MemoryLayout(memory.of, strides, memory.offset), sizes, place.dtype)


def _turned(place: TensorArgument) -> TensorArgument:
    """The same matrices, transposed."""
    *sizes, rows, columns = place.sizes
    *strides, down, along = place.memory.strides
    return _seen(place, (*sizes, columns, rows), (*strides, along, down))


def _sum(low: Lowering, product: IndexedTensor, added: IndexedTensor) -> IndexedTensor:
    def at(body: LoopBody, index: Index) -> LoopValue:
        place = spread_index(low, added.sizes, index)
        return body(Op.ADD, product.at(body, index), added.at(body, place))

    cost, reads = product.cost + added.cost + 1, product.reads + added.reads
    return IndexedTensor(product.sizes, product.type, at, cost, reads)
