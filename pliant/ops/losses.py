"""Losses: of distances, and the negative log-likelihood of the class that is right.

The one idea: of what is chosen by a target, an element is read where the target says and nowhere
else. So `cross_entropy`, which is `nll_loss(log_softmax(x), target)`, computes one element of each
row of log_softmax.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import shapes
from pliant.fake.layout import (
    pointwise_strides,
)
from pliant.fake.order import known_same, sure
from pliant.fake.overload import Overload
from pliant.fake.pointwise import like_first
from pliant.fake.raising import always, never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, dense
from pliant.fake.tensor import Fake
from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import (
    Combine,
    Lowering,
    NotLowered,
    Number,
    computed_in,
    constant,
    lowers,
    number,
    unsqueezed,
)
from pliant.ops.reductions import count, reduced
from pliant.sym.cond import ne0
from pliant.sym.expr import ONE, Expr

NONE: Final = 0
MEAN: Final = 1
COST: Final = 8

# --------------------------------------------------------------------------------------------------
# Of distances


def _of_distances(
    low: Lowering, x: IndexedTensor, y: IndexedTensor, reduction: int, loss: Combine
) -> IndexedTensor:
    """A loss of x - y, by `loss(body, distance)`: of each element, or their sum or mean."""
    type = low.result.type
    if type not in FLOAT:  # eager rounds halves several times
        raise NotLowered(f"a loss of {type}")
    distances = low.map(lambda b, v, w: b(Op.SUB, v, w), type, low.cast(x, type), low.cast(y, type))
    losses = low.map(loss, type, distances, cost=4)
    return losses if reduction == NONE else _summed_up(low, losses, reduction)


def _summed_up(low: Lowering, losses: IndexedTensor, reduction: int) -> IndexedTensor:
    """The sum or the mean of all losses, as `reduction` says."""
    type = losses.type
    dims = low.dims(losses, None)
    elements = count(losses, dims)

    def then(b: LoopBody, total: LoopValue) -> LoopValue:
        return b(Op.DIV, total, number(b, elements, type)) if reduction == MEAN else total

    return reduced(low, Op.SUM, losses, dims, then=then)


def _half_square(b: LoopBody, v: LoopValue) -> LoopValue:
    return b(Op.MUL, b(Op.MUL, constant(b, 0.5, v.type), v), v)


@lowers("aten.mse_loss.default")
def mse_loss(
    low: Lowering, x: IndexedTensor, target: IndexedTensor, reduction: int = MEAN
) -> IndexedTensor:
    return _of_distances(low, x, target, reduction, lambda b, v: b(Op.MUL, v, v))


@lowers("aten.smooth_l1_loss.default")
def smooth_l1_loss(
    low: Lowering,
    x: IndexedTensor,
    target: IndexedTensor,
    reduction: int = MEAN,
    beta: Number = 1.0,
) -> IndexedTensor:
    """d**2 / 2 / beta where |d| < beta, else |d| - beta / 2."""

    def loss(b: LoopBody, v: LoopValue) -> LoopValue:
        far, bound = b(Op.ABS, v), number(b, beta, v.type)
        near = b(Op.DIV, _half_square(b, far), bound)
        shifted = b(Op.SUB, far, b(Op.MUL, constant(b, 0.5, v.type), bound))
        return b(Op.SELECT, b(Op.LT, far, bound), near, shifted)

    return _of_distances(low, x, target, reduction, loss)


@lowers("aten.huber_loss.default")
def huber_loss(
    low: Lowering,
    x: IndexedTensor,
    target: IndexedTensor,
    reduction: int = MEAN,
    delta: Number = 1.0,
) -> IndexedTensor:
    """d**2 / 2 where |d| is at most delta, else delta * (|d| - delta / 2)."""

    def loss(b: LoopBody, v: LoopValue) -> LoopValue:
        far, bound = b(Op.ABS, v), number(b, delta, v.type)
        shifted = b(Op.SUB, far, b(Op.MUL, constant(b, 0.5, v.type), bound))
        linear = b(Op.MUL, bound, shifted)
        return b(Op.SELECT, b(Op.LE, far, bound), _half_square(b, far), linear)

    return _of_distances(low, x, target, reduction, loss)


@lowers("aten.binary_cross_entropy.default")
def binary_cross_entropy(
    low: Lowering,
    x: IndexedTensor,
    target: IndexedTensor,
    weight: IndexedTensor | None = None,
    reduction: int = MEAN,
) -> IndexedTensor:
    """(t - 1) * log(1 - x) - t * log(x), the logarithms at least -100. An x that is no probability
    is an error, and so is a target."""
    type = low.result.type
    tensors = [t for t in (x, target, weight) if t is not None]
    if type not in FLOAT or any(t.type is not type for t in tensors):
        raise NotLowered(f"a loss of {type}")

    def element_loss(b: LoopBody, v: LoopValue, t: LoopValue, *weights: LoopValue) -> LoopValue:
        # Eager PyTorch bounds the logarithms by -100, so that 0 times infinity doesn't occur.
        zero, one, least = (constant(b, n, type) for n in (0, 1, -100))
        for share in (v, t):
            b.fault(b(Op.NOT, b(Op.AND, b(Op.GE, share, zero), b(Op.LE, share, one))))
        no = b(Op.MAXIMUM, b(Op.LOG1P, b(Op.NEG, v)), least)
        yes = b(Op.MAXIMUM, b(Op.LOG, v), least)
        loss = b(Op.SUB, b(Op.MUL, b(Op.SUB, t, one), no), b(Op.MUL, t, yes))
        return b(Op.MUL, loss, weights[0]) if weights else loss

    losses = low.map(element_loss, type, *tensors, cost=30)
    return losses if reduction == NONE else _summed_up(low, losses, reduction)


# --------------------------------------------------------------------------------------------------
# Of what is chosen


def _nll_loss_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    scores, target, weight, reduction, _ = args
    rank = 4 if op.name.startswith("aten.nll_loss2d") else 2
    fits = scores.dim() == rank and target.dim() == rank - 1 and target.dtype is torch.int64
    if not fits or not shapes.same(target.shape, (scores.size(0), *scores.shape[2:])):
        return None
    if weight is not None and not (weight.dtype is scores.dtype and weight.dim() == 1):
        return None
    if weight is not None and not shapes.same(weight.shape, scores.shape[1:2]):
        return None
    total = dense((), scores.dtype, device)
    result = dense(target.size(), scores.dtype, device) if reduction == 0 else total
    return Several(tuple, (result, total))


@lowers("aten.nll_loss_forward.default", "aten.nll_loss2d_forward.default", shape=_nll_loss_shape)
def nll_loss_forward(
    low: Lowering,
    x: IndexedTensor,
    target: IndexedTensor,
    weight: IndexedTensor | None,
    reduction: int,
    ignore_index: Number,
) -> Any:
    """The sum or weighted mean of -x[n, target[n], ...] * weight[target[n]], and the sum of the
    weights; for no reduction, each and 0. A target `ignore_index` has weight 0."""
    result = low.results[0].type
    alone = len(x.sizes) == 1
    if alone:
        # A row of scores with one target, as a batch of one row.
        if any(low.simplify(size) is not ONE for size in target.sizes):
            raise NotLowered("a row with several targets, or none")
        x, target = unsqueezed(x, (ONE, *x.sizes)), unsqueezed(target, (ONE,))
    chosen = _Chosen(low, x, target, weight, ignore_index)
    if reduction == NONE and not alone:
        losses = low.generate(target.sizes, chosen.type, chosen.loss, x.cost + COST)
        return low.cast(losses, result), low.indexed(0, result)
    dims = range(len(target.sizes))
    cost = x.cost + COST
    loss = low.reduce(Op.SUM, low.generate(target.sizes, chosen.type, chosen.loss, cost), dims)
    weights = low.generate(target.sizes, chosen.type, chosen.weight, COST)
    total = low.reduce(Op.SUM, weights, dims)
    if reduction == MEAN:
        loss = low.map(lambda b, v, n: b(Op.DIV, v, n), chosen.type, loss, total)
    return low.cast(loss, result), low.cast(total, result)


class _Chosen:
    """The score and the weight that a target chooses from scores x, and the loss of it."""

    def __init__(
        self,
        low: Lowering,
        x: IndexedTensor,
        target: IndexedTensor,
        weight: IndexedTensor | None,
        ignored: Number,
    ) -> None:
        self.type = computed_in(x.type)
        if target.type not in (Type.I64, Type.U8):  # PyTorch refuses them
            raise NotLowered(f"targets of type {target.type}")
        classes = x.sizes[1]
        if self.type not in FLOAT or low.known(ne0(classes)) is not True:
            raise NotLowered("a loss of an unusual form")
        self.x = low.cast(x, self.type)
        self.target = low.cast(target, Type.I64)
        self.weights = None if weight is None else low.cast(weight, self.type)
        self.classes: Expr = classes
        self.ignored = ignored

    def place(self, b: LoopBody, index: Index) -> tuple[Expr, LoopValue]:
        """The class, and whether it is ignored. Any other that isn't there is an error."""
        target = self.target.at(b, index)
        zero = constant(b, 0, Type.I64)
        ignored = b(Op.EQ, target, number(b, self.ignored, Type.I64))
        outside = b(Op.OR, b(Op.LT, target, zero), b(Op.GE, target, b.iota(self.classes)))
        b.fault(b(Op.AND, outside, b(Op.NOT, ignored)))
        return b.as_index(b(Op.SELECT, b(Op.OR, outside, ignored), zero, target)), ignored

    def loss(self, b: LoopBody, index: Index) -> LoopValue:
        place, ignored = self.place(b, index)
        value = b(Op.NEG, self.x.at(b, (index[0], place, *index[1:])))
        if self.weights is not None:
            value = b(Op.MUL, value, self.weights.at(b, (place,)))
        return b(Op.SELECT, ignored, constant(b, 0, self.type), value)

    def weight(self, b: LoopBody, index: Index) -> LoopValue:
        place, ignored = self.place(b, index)
        one = constant(b, 1, self.type)
        value = one if self.weights is None else self.weights.at(b, (place,))
        return b(Op.SELECT, ignored, constant(b, 0, self.type), value)


# --------------------------------------------------------------------------------------------------
# Losses of two tensors of the same shape: PyTorch would broadcast them first


def _symbolic_loss(inner: Any) -> Callable[..., Any]:
    """The metadata of a loss of two tensors of the same shape. PyTorch broadcasts others first."""

    def symbolic(
        t: torch.Tensor, target: torch.Tensor, *args: Any, reduction: str = "mean", **more: Any
    ) -> Any:
        unusual = args or any(more.get(name) is not None for name in _DEPRECATED)
        if unusual or t.dim() != target.dim() or reduction not in _REDUCTIONS:
            return NotImplemented
        if not all(known_same(a, b) for a, b in zip(t.size(), target.size())):
            return NotImplemented
        return inner(t, target, _REDUCTIONS[reduction])

    return symbolic


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}

_DEPRECATED = ("size_average", "reduce", "weight", "input", "target")


def _unbroadcast_loss(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of two tensors of the same shape, and a number: PyTorch would broadcast them first."""

    def general(*args: Any, reduction: str = "mean", **more: Any) -> Any:
        others = [value for name, value in more.items() if name not in _NUMBERS]
        numbers = [value for name, value in more.items() if name in _NUMBERS]
        usual = len(args) == 2 and reduction in _REDUCTIONS and others.count(None) == len(others)
        if not usual or not all(isinstance(n, int | float) and n > 0 for n in numbers):
            return NotImplemented
        x, target = args
        same_sizes = all(a is b or sure(a == b) for a, b in zip(x.size(), target.size()))
        if x.dim() != target.dim() or not same_sizes:
            return NotImplemented
        return inner(x, target, _REDUCTIONS[reduction], *numbers)

    return general


_NUMBERS: Final = ("beta", "delta")


for _function, _inner in (
    (F.mse_loss, torch._C._nn.mse_loss),
    (F.l1_loss, torch._C._nn.l1_loss),
    (F.smooth_l1_loss, torch._C._nn.smooth_l1_loss),
    (F.huber_loss, torch._C._nn.huber_loss),
):
    register_functions(
        (_function,), symbolic=_symbolic_loss(_inner), override=_unbroadcast_loss(_inner)
    )


# --------------------------------------------------------------------------------------------------
# Decompositions


def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()


def _like_second(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    return pointwise_strides(tensors[1:2], sizes, uniform=False)


def _like_each_of_first(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    return pointwise_strides(tensors[:1], sizes)


def _bce_with_logits(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    log_sigmoid = torch.nn.functional.logsigmoid(x)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
    # In place, as PyTorch has it: the result is laid out like its first factor.
    loss = (1 - target).mul_(x).sub_(log_sigmoid)
    return _reduced(loss if weight is None else loss.mul_(weight), reduction)


def _soft_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    return _reduced((-x).mul_(target).exp().log1p(), reduction)


register(
    "aten.binary_cross_entropy_with_logits.default",
    decomposition=_bce_with_logits,
    pointwise=True,
    layout=_like_second,
)
register(
    "aten.soft_margin_loss.default",
    decomposition=_soft_margin_loss,
    pointwise=True,
    layout=_like_each_of_first,
)
register("aten.huber_loss.default", pointwise=True, layout=like_first)
register("aten.binary_cross_entropy.default", pointwise=True, layout=like_first)
register("aten.mse_loss.default", "aten.smooth_l1_loss.default", pointwise=True)
register("aten.mse_loss_backward.default", pointwise=True)


def _loss_backward_meta(
    func: Any, grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *rest: Any, **kwargs: Any
) -> Any:
    # PyTorch's meta kernels promote; its kernels write to memory like the input.
    target = target.to(x.dtype) if target.dtype is torch.bool else target
    return func(grad, x, target, *rest, **kwargs).to(x.dtype)


register(
    "aten.mse_loss_backward.default",
    "aten.smooth_l1_loss_backward.default",
    "aten.soft_margin_loss_backward.default",
    meta=_loss_backward_meta,
)
register("aten.binary_cross_entropy", raises=always)


# --------------------------------------------------------------------------------------------------
# Connectionist temporal classification


def _ctc_loss_lengths(
    func: Any,
    probs: torch.Tensor,
    targets: torch.Tensor,
    inputs: Any,
    lengths: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    # Lengths given as numbers are put into a tensor by C++ that writes to its memory directly.
    inputs, lengths = (
        v if isinstance(v, torch.Tensor) else torch.empty(len(v), dtype=torch.int64)
        for v in (inputs, lengths)
    )
    return func(probs, targets, inputs, lengths, *args, **kwargs)


def _ctc_loss_of_numbers(
    func: Any,
    probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Lengths given as numbers, in tensors: the operator that takes numbers needs the values of the
    targets on the way."""
    lengths = (input_lengths, target_lengths)
    if any(isinstance(v, torch.Tensor) for v in lengths):  # PyTorch refuses a mixture
        return NotImplemented
    return func(probs, targets, *map(_in_tensor, lengths), *args, **kwargs)


def _in_tensor(numbers: Any) -> torch.Tensor:
    if all(type(number) is int for number in numbers):
        return torch.tensor(numbers, dtype=torch.int64)
    return torch.stack([torch.full((), number, dtype=torch.int64) for number in numbers])


def _no_cudnn(func: Any, *args: Any, **kwargs: Any) -> bool:
    return False  # the choice is in the values, and the result looks the same


def _ctc_loss_meta(
    func: Any, probs: torch.Tensor, targets: torch.Tensor, *rest: Any, **_: Any
) -> Any:
    # The second result is kept for backward only; its last size is in the values of the lengths,
    # and this is the most it can be.
    longest = targets.size(-1)
    batch = probs.size(1) if probs.dim() == 3 else 1
    return probs.new_empty((batch,)), probs.new_empty((batch, probs.size(0), 2 * longest + 1))


register_functions((torch.ctc_loss, F.ctc_loss), on_fakes=_ctc_loss_lengths)
register_functions((torch.ctc_loss,), override=partial(_ctc_loss_of_numbers, torch.ctc_loss))
register_functions((F.ctc_loss,), override=partial(_ctc_loss_of_numbers, F.ctc_loss))
register("aten._ctc_loss.Tensor", meta=_ctc_loss_meta, mixed_devices=True, workspace=1)
register("aten._use_cudnn_ctc_loss.default", meta=_no_cudnn)
register("aten._use_cudnn_ctc_loss.Tensor", meta=_no_cudnn, mixed_devices=True)


register(
    *aten_names(
        "mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits"
    ),
    raises=never,
)
