"""PyTorch functions that C++ composes of operators, composed differently for symbolic sizes.

The one idea: such a function asks about sizes to choose the fastest way (fold a batch, skip a copy,
leave out what is empty), and each question would become a guard, though the result looks the same
whichever way is taken. Here is one way for all sizes. Only the look of the result counts, and that
autograd sees which arguments it depends on; when the graph runs, PyTorch's own function does.

A stand-in takes the function's arguments and returns the result, or NotImplemented for "as usual".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from pliant.fake.layout import broadcast, contiguous_strides, suggested_strides
from pliant.fake.order import hint, is_contiguous, is_one, need, sure
from pliant.fake.reshaping import flatten, reshape
from pliant.fake.tensor import Fake, make
from pliant.fake.whole import depending_on
from pliant.sym.node import SYMBOLIC

Tensor = torch.Tensor


def stand_in(
    name: str, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """What to call instead of `func` for these arguments, or None."""
    found = STAND_INS.get(name)
    if found is None or func not in found[0]:
        return None
    if name not in CAST_BY_PARTS and torch._C._is_any_autocast_enabled():
        return None
    if not any(map(_is_symbolic, (*args, *kwargs.values()))):
        return None
    return found[1] if _takes(found[1], len(args), kwargs) else None


def _takes(function: Callable[..., Any], count: int, kwargs: dict[str, Any]) -> bool:
    """Whether the function knows these arguments by these names."""
    code = function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    many, by_name = code.co_flags & VARARGS, code.co_flags & VARKEYWORDS
    if count > code.co_argcount and not many:
        return False
    return bool(by_name) or all(name in named[count:] for name in kwargs)


VARARGS, VARKEYWORDS = 0x04, 0x08
# Under autocast, these have the types of the operators that they are made of.
CAST_BY_PARTS = frozenset(
    ("matmul", "__matmul__", "__rmatmul__", "linear", "einsum", "dropout", "arange", "linspace")
)


def _is_symbolic(value: Any) -> bool:
    if type(value) is Fake:
        return bool(value._has_symbolic_sizes_strides)
    return isinstance(value, SYMBOLIC)


def _as_dense(t: Tensor, *sizes: Any) -> Tensor:
    """A reshaped copy: whether it could be a view is not asked."""
    copied = t if is_contiguous(t) else t.clone(memory_format=torch.contiguous_format)
    return copied.view(*sizes)


# Products.


def _matmul(input: Tensor, other: Tensor) -> Any:
    if not input.dim() or not other.dim() or input.dtype is not other.dtype:
        return NotImplemented
    if input.dim() == 1 and other.dim() == 1:
        return torch.dot(input, other)
    if input.dim() == 1:
        return _matmul(input.unsqueeze(0), other).squeeze(-2)
    if other.dim() == 1:
        return _matmul(input, other.unsqueeze(1)).squeeze(-1)
    if input.dim() == other.dim() == 2:
        return torch.mm(input, other)
    batch = broadcast([input.shape[:-2], other.shape[:-2]])
    if batch is None:
        return NotImplemented
    need(input.size(-1) == other.size(-2))
    count = math.prod(batch)
    left = _as_dense(input.expand(*batch, -1, -1), count, input.size(-2), input.size(-1))
    right = _as_dense(other.expand(*batch, -1, -1), count, other.size(-2), other.size(-1))
    return torch.bmm(left, right).view(*batch, input.size(-2), other.size(-1))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if input.dim() < 2 or weight.dim() != 2 or is_contiguous(input):
        return NotImplemented
    rows = math.prod(input.shape[:-1])
    flat = _as_dense(input, rows, input.size(-1))
    product = torch.mm(flat, weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return product.view(*input.shape[:-1], weight.size(0))


def _einsum(equation: Any, *operands: Any) -> Any:
    """Of one or two tensors, without repeated letters in one of them."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    parsed = _parse(equation, operands)
    if parsed is None:
        return NotImplemented
    names, out = parsed
    sizes: dict[str, Any] = {}
    for letters, t in zip(names, operands, strict=True):
        for letter, size in zip(letters, t.size(), strict=True):
            before = sizes.setdefault(letter, size)
            common = broadcast([(before,), (size,)])
            if common is None or not all(sure(common[0] == n) for n in (before, size)):
                return NotImplemented  # PyTorch broadcasts them, or refuses to
    if len(operands) == 1:
        return _einsum_one(names[0], out, operands[0])
    return _einsum_two(names, out, operands, sizes)


def _parse(equation: Any, operands: Sequence[Any]) -> tuple[list[str], str] | None:
    if not isinstance(equation, str) or len(operands) not in (1, 2):
        return None
    if not all(isinstance(t, Tensor) for t in operands):
        return None
    left, arrow, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(names) != len(operands) or not arrow:
        return None
    dots = [t.dim() - len(name) + 3 for name, t in zip(names, operands) if "..." in name]
    if dots and (min(dots) < 0 or not all(ch.islower() for ch in left if ch.isalpha())):
        return None
    names = [
        name.replace("...", _DOTS[len(_DOTS) - (t.dim() - len(name) + 3) :])
        for name, t in zip(names, operands)
    ]
    out = out.replace("...", _DOTS[len(_DOTS) - max(dots, default=0) :])
    plain = all(
        len(name) == t.dim() and len(set(name)) == len(name) for name, t in zip(names, operands)
    )
    return (names, out) if plain and set(out) <= set("".join(names)) else None


_DOTS = "ABCDEFGHIJ"  # the dimensions of "...", the last of them last


def _einsum_one(name: str, out: str, t: Tensor) -> Tensor:
    summed = [c for c in name if c not in out]
    t = t.permute([name.index(c) for c in (*out, *summed)])
    return t.sum(list(range(len(out), t.dim()))) if summed else t


def _einsum_two(
    names: list[str], out: str, operands: Sequence[Tensor], sizes: dict[str, Any]
) -> Any:
    """A product of matrices, in the order in which PyTorch leaves its dimensions; or of numbers if
    none is summed."""
    left, right = names
    a, b = operands
    # What only one of them has and the result doesn't is summed beforehand.
    a, left = _summed_but_for(a, left, out, right)
    b, right = _summed_but_for(b, right, out, left)
    swaps = set(left) == set(names[0]) and set(right) == set(names[1])
    both = [c for c in out if c in left and c in right]
    only_left = [c for c in out if c in left and c not in right]
    only_right = [c for c in out if c in right and c not in left]
    summed = [c for c in left if c in right and c not in out]
    # (Where all are dense and in order, it makes no difference which product it is.)
    dense = len(out) < 2 or (is_contiguous(a) and is_contiguous(b))
    in_order = [*both, *only_left, *only_right] == list(out)
    is_known = all(sure(sizes[c] == 1) for c in summed)
    if is_known or (not (dense and in_order) and all(is_one(sizes[c]) for c in summed)):
        every = out + "".join(summed)  # PyTorch sorts by the strides of those too
        product = _in_order(a, left, every) * _in_order(b, right, every)
        for _ in summed:
            product = product.select(-1, 0)
        return product
    swaps = swaps and bool(only_left) and bool(only_right)
    if swaps and out.index(only_right[-1]) < out.index(only_left[0]):
        a, left, only_left, b, right, only_right = b, right, only_right, a, left, only_left

    def folded(t: Tensor, name: str, *groups: list[str]) -> Tensor:
        t = t.permute([name.index(c) for group in groups for c in group])
        return _as_dense(t, *(math.prod(sizes[c] for c in group) for group in groups))

    product = torch.bmm(
        folded(a, left, both, only_left, summed), folded(b, right, both, summed, only_right)
    )
    order = [*both, *only_left, *only_right]
    return product.view([sizes[c] for c in order]).permute([order.index(c) for c in out])


def _summed_but_for(t: Tensor, name: str, out: str, other: str) -> tuple[Tensor, str]:
    """Without the dimensions that nobody else has."""
    kept = "".join(dict.fromkeys(c for c in (*out, *other) if c in name))
    return (t, name) if len(kept) == len(name) else (_einsum_one(name, kept, t), kept)


def _in_order(t: Tensor, name: str, out: str) -> Tensor:
    """With its dimensions in the order of `out`, and one of size 1 for each that it doesn't have.
    Those that are not in `out` have one element."""
    rest = [name.index(c) for c in name if c not in out]
    t = t.permute([name.index(c) for c in out if c in name] + rest)
    for _ in rest:
        t = t.select(-1, 0)
    for at, letter in enumerate(out):
        t = t if letter in name else t.unsqueeze(at)
    return t


# Layers.


def _dropout(input: Tensor, p: float = 0.5, *args: Any, **kwargs: Any) -> Any:
    training = kwargs.get("training", kwargs.get("train", args[0] if args else True))
    inplace = kwargs.get("inplace", args[1] if len(args) > 1 else False)
    usual = training and not inplace and input.is_floating_point() and isinstance(p, float | int)
    return input * torch.rand_like(input) if usual and 0 < p < 1 else NotImplemented


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not input.is_cpu or input.dim() < 2 or (not training and running_mean is None):
        return NotImplemented
    if training:
        torch._check_with(ValueError, input.numel() != input.size(1), lambda: _TOO_FEW)
    statistics = (running_mean, running_var)
    return torch.native_batch_norm(input, weight, bias, *statistics, training, momentum, eps)[0]


_TOO_FEW = "Expected more than 1 value per channel when training"


def _group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    channels = input.size(1) if input.dim() >= 2 else None
    if type(channels) is not int or not input.is_cpu or num_groups <= 0 or channels % num_groups:
        return NotImplemented
    if any(p is not None and p.dtype is not input.dtype for p in (weight, bias)):
        return NotImplemented
    pixels = math.prod(input.shape[2:])
    return torch.native_group_norm(
        input, weight, bias, input.size(0), channels, pixels, num_groups, eps
    )[0]


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The CPU's fused kernel, or the composed one where that is not taken."""
    tensors = (query, key, value)
    alike = len({t.dtype for t in tensors}) == 1 and query.is_floating_point()
    if not alike or not query.is_cpu or any(t.dim() < 2 for t in tensors):
        return NotImplemented
    if attn_mask is not None and is_causal:
        return NotImplemented
    fused = all(t.dim() == 4 for t in tensors) and not dropout_p
    fused = fused and (attn_mask is None or _mask_fits(attn_mask, query, key))
    heads = (1,) if not enable_gqa else ()
    fused = fused and all(
        _same_for_sure(t.size(d), query.size(d)) for t in tensors for d in (3, *heads)
    )
    if enable_gqa and not (fused and _divides(key, query) and _divides(value, query)):
        return NotImplemented
    fused = fused and all(_same_for_sure(t.stride(-1), 1) for t in tensors)
    if not fused:
        return _composed_attention(query, key, value, attn_mask, dropout_p)
    for t in (key, value):
        need(t.size(0) == query.size(0))
    need(key.size(2) == value.size(2))
    # Over nothing, the composed one is taken; only the layout tells.
    if not is_contiguous(query) and not sure(key.size(2) == query.size(2)) and key.size(2) == 0:
        return _composed_attention(query, key, value, attn_mask, dropout_p)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, scale=scale
    )[0]


def _divides(key: Tensor, query: Tensor) -> bool:
    """Whether groups of heads share the same keys."""
    few, many = key.size(1), query.size(1)
    return type(few) is int and type(many) is int and few > 0 and many % few == 0


def _mask_fits(mask: Tensor, query: Tensor, key: Tensor) -> bool:
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    wanted = (query.size(0), query.size(1), query.size(2), key.size(2))[-mask.dim() :]
    if mask.dtype is not torch.bool and mask.dtype is not query.dtype:
        return False
    spread = broadcast([mask.size(), wanted])
    return spread is not None and all(map(_same_for_sure, spread, wanted))


def _composed_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> Any:
    scores = _matmul(query, key.transpose(-2, -1))
    if scores is NotImplemented:
        return NotImplemented
    if mask is not None:
        if mask.dtype is not torch.bool and mask.dtype is not query.dtype:
            return NotImplemented
        scores = scores + mask
    scores = scores.softmax(-1)
    if dropout_p:
        scores = scores * torch.rand_like(scores)
    return _matmul(scores.to(value.dtype), value)


def _lstm(
    t: Any,
    state: Any,
    weights: Any,
    biases: Any,
    layers: Any,
    dropout: Any,
    train: Any,
    both_ways: Any,
    batch_first: Any = None,
) -> Any:
    if batch_first is None or t.dim() != 3 or not isinstance(state, list | tuple):
        return NotImplemented
    projected = state[0].size(2) != state[1].size(2)
    if projected:
        return NotImplemented
    output = _recurrent(t, (*state, *weights), state[0], both_ways, batch_first)
    return output, *(depending_on(_dense(s, s.size()), (t, *state, *weights)) for s in state)


def _gru(
    t: Any,
    state: Any,
    weights: Any,
    biases: Any,
    layers: Any,
    dropout: Any,
    train: Any,
    both_ways: Any,
    batch_first: Any = None,
) -> Any:
    """Also of a plain RNN."""
    if batch_first is None or t.dim() != 3 or not isinstance(state, Tensor):
        return NotImplemented
    inputs = (t, state, *weights)
    output = _recurrent(t, inputs, state, both_ways, batch_first)
    return output, depending_on(_dense(state, state.size()), inputs)


def _lstm_cell(t: Any, state: Any, *weights: Any) -> Any:
    if not isinstance(state, list | tuple) or len(state) != 2 or t.dim() != 2:
        return NotImplemented
    need(t.size(0) == state[0].size(0))
    inputs = (t, *state, *weights)
    return tuple(depending_on(_dense(s, s.size()), inputs) for s in state)


def _gru_cell(t: Any, state: Any, *weights: Any) -> Any:
    """Also of a plain RNN."""
    if not isinstance(state, Tensor) or t.dim() != 2 or state.dim() != 2:
        return NotImplemented
    need(t.size(0) == state.size(0))
    return depending_on(_dense(state, state.size()), (t, state, *weights))


def _recurrent(t: Tensor, inputs: Any, state: Tensor, both_ways: bool, batch_first: bool) -> Tensor:
    """The hidden state of every step: made step by step, so time is the outermost dimension."""
    time, batch = (1, 0) if batch_first else (0, 1)
    need(state.size(1) == t.size(batch))
    need(t.size(time) != 0)  # eager PyTorch refuses
    width = state.size(2) * (2 if both_ways else 1)
    output = _dense(t, (t.size(time), t.size(batch), width))
    made: Tensor = depending_on(output, (t, *inputs))
    return made.transpose(0, 1) if batch_first else made


def _dense(like: Any, sizes: Sequence[Any]) -> Fake:
    strides = contiguous_strides(sizes)
    return make(like._world, sizes, strides, 0, like.dtype, like.device)


def _max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    def row(value: Any, first: int) -> tuple[Any, Any]:
        return first, value[0] if isinstance(value, list | tuple) else value

    if input.dim() not in (2, 3) or return_indices:
        return NotImplemented
    stride = kernel_size if stride is None or stride == [] else stride
    rest = (row(kernel_size, 1), row(stride, 1), row(padding, 0), row(dilation, 1), ceil_mode)
    rows = input if is_contiguous(input) else input.clone(memory_format=torch.contiguous_format)
    return torch.max_pool2d(rows.unsqueeze(-2), *rest).squeeze(-2)


_SMOOTH = ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear")


def _interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    rank = input.dim() - 2
    usual = mode in _SMOOTH and rank in (1, 2, 3) and input.is_cpu and input.is_floating_point()
    usual = usual and _RANKS.get(mode, rank) == rank
    if not usual or (size is None) == (scale_factor is None) or recompute_scale_factor:
        return NotImplemented
    given = size if scale_factor is None else scale_factor
    each = list(given) if isinstance(given, list | tuple) else [given] * rank
    if scale_factor is not None:
        each = [_scaled(n, scale) for n, scale in zip(input.shape[2:], each)]
    if len(each) != rank or None in each:
        return NotImplemented
    for size in (*input.shape[1:], *each):
        need(size > 0)
    sizes = (*input.shape[:2], *each)
    made = make(input._world, sizes, suggested_strides(input, sizes), 0, input.dtype, input.device)  # type: ignore[attr-defined]
    return depending_on(made, (input,))


_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def _scaled(size: Any, scale: Any) -> Any:
    """A size times a number, rounded down; None unless integers can tell."""
    if not isinstance(scale, int | float) or scale <= 0:
        return None
    if scale == int(scale):
        return size * int(scale)
    part = round(1 / scale)
    return size // part if part * scale == 1 and part & (part - 1) == 0 else None


def _cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    alike = a.dim() >= 2 and b.dim() >= 2 and a.dtype is b.dtype and a.is_floating_point()
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if alike else None
    if batch is None:
        return NotImplemented
    need(a.size(-1) == b.size(-1))
    return depending_on(_dense(a, (*batch, a.size(-2), b.size(-2))), (a, b))


def _take_along_dim(t: Tensor, indices: Tensor, dim: Any = None) -> Any:
    if type(dim) is not int or t.dim() != indices.dim():
        return NotImplemented
    dim %= max(t.dim(), 1)
    for d in range(t.dim()):
        if d != dim:
            if hint(t.size(d)) != hint(indices.size(d)):
                return NotImplemented  # broadcast
            need(t.size(d) == indices.size(d))
    return torch.gather(t, dim, indices)


def _loss(inner: Any) -> Callable[..., Any]:
    """Of two tensors of the same shape; PyTorch would broadcast them first."""

    def stand_in(
        t: Tensor, target: Tensor, *args: Any, reduction: str = "mean", **more: Any
    ) -> Any:
        unusual = args or any(more.get(name) is not None for name in _DEPRECATED)
        if unusual or t.dim() != target.dim() or reduction not in _REDUCTIONS:
            return NotImplemented
        if not all(_same_for_sure(a, b) for a, b in zip(t.size(), target.size())):
            return NotImplemented
        return inner(t, target, _REDUCTIONS[reduction])

    return stand_in


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_DEPRECATED = ("size_average", "reduce", "weight", "input", "target")


def _same_for_sure(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)


# Making.


def _arange(*args: Any, **kwargs: Any) -> Any:
    usual = kwargs.keys() <= {"dtype", "device", "requires_grad", "pin_memory", "layout"}
    start, end, step = {1: (0, *args, 1), 2: (*args, 1)}.get(len(args), (*args, 1, 1)[:3])
    numbers = (start, end, step)
    if not usual or not args or not all(isinstance(n, int | torch.SymInt) for n in numbers):
        return NotImplemented
    if type(step) is not int or step == 0:
        return NotImplemented
    need((end >= start) if step > 0 else (end <= start))
    count = -((start - end) // step)
    return torch.empty((count,), **{"dtype": torch.int64, **_given(kwargs)})


def _linspace(start: Any, end: Any, steps: Any, **kwargs: Any) -> Any:
    usual = kwargs.keys() <= {"dtype", "device", "requires_grad"}
    plain = all(isinstance(n, int | float | torch.SymInt | torch.SymFloat) for n in (start, end))
    if not usual or not plain or type(steps) is int:
        return NotImplemented
    return torch.empty((steps,), **_given(kwargs))


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if value is not None}


StandIn = tuple[tuple[Any, ...], Callable[..., Any]]
T = torch.Tensor
STAND_INS: dict[str, StandIn] = {
    "reshape": ((torch.reshape, T.reshape), reshape),
    "flatten": ((torch.flatten, T.flatten), flatten),
    "matmul": ((torch.matmul, T.matmul, operator.matmul, torch.linalg.matmul), _matmul),
    "__matmul__": ((T.__matmul__,), _matmul),
    "__rmatmul__": ((T.__rmatmul__,), lambda a, b: _matmul(b, a)),
    "linear": ((F.linear,), _linear),
    "einsum": ((torch.einsum,), _einsum),
    "dropout": ((F.dropout, torch.dropout), _dropout),
    "batch_norm": ((F.batch_norm,), _batch_norm),
    "group_norm": ((F.group_norm, torch.group_norm), _group_norm),
    "scaled_dot_product_attention": ((F.scaled_dot_product_attention,), _attention),
    "lstm": ((torch.lstm,), _lstm),
    "gru": ((torch.gru,), _gru),
    "rnn_tanh": ((torch.rnn_tanh,), _gru),
    "rnn_relu": ((torch.rnn_relu,), _gru),
    "lstm_cell": ((torch.lstm_cell,), _lstm_cell),
    "gru_cell": ((torch.gru_cell,), _gru_cell),
    "rnn_tanh_cell": ((torch.rnn_tanh_cell,), _gru_cell),
    "rnn_relu_cell": ((torch.rnn_relu_cell,), _gru_cell),
    "max_pool1d": ((F.max_pool1d, torch.max_pool1d), _max_pool1d),
    "interpolate": ((F.interpolate,), _interpolate),
    "cdist": ((torch.cdist,), _cdist),
    "take_along_dim": ((torch.take_along_dim, T.take_along_dim), _take_along_dim),
    "mse_loss": ((F.mse_loss,), _loss(torch._C._nn.mse_loss)),
    "l1_loss": ((F.l1_loss,), _loss(torch._C._nn.l1_loss)),
    "smooth_l1_loss": ((F.smooth_l1_loss,), _loss(torch._C._nn.smooth_l1_loss)),
    "huber_loss": ((F.huber_loss,), _loss(torch._C._nn.huber_loss)),
    "arange": ((torch.arange,), _arange),
    "linspace": ((torch.linspace,), _linspace),
}
