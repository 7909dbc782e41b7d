"""Where PyTorch's meta kernels say too little, or something else than the real kernels.

The one idea: tables by operator name and nothing else; an operator that is in none of them looks as
its meta kernel says. A rule takes the operator and its arguments, meta tensors for tensors, and
returns meta tensors; most call the meta kernel and correct the layout of what it returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from pliant.fake import packed
from pliant.fake.layout import (
    channels_last_strides,
    contiguous_strides,
    is_like_channels_last,
    ordered_strides,
    suggested_strides,
)
from pliant.fake.tensor import as_plain, make

Tensor = torch.Tensor
Rule = Callable[..., Any]

MASKS = (torch.bool, torch.uint8)


def _index_by_mask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(t is not None and t.dtype in MASKS for t in args[1])


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


# Operators the shape of whose result is in the values of an argument: whether this call is one.
NEEDS_DATA: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], bool]] = {
    "aten.index.Tensor": _index_by_mask,
    "aten.repeat_interleave.Tensor": lambda args, kwargs: kwargs.get("output_size") is None,
    **dict.fromkeys(
        (
            "aten.nonzero.default",
            "aten.nonzero.out",
            "aten.argwhere.default",
            "aten.masked_select.default",
            "aten.masked_select.out",
            "aten.bincount.default",
            "aten._unique.default",
            "aten._unique2.default",
            "aten.unique_dim.default",
            "aten.unique_consecutive.default",
            "aten.unique_dim_consecutive.default",
            "aten.linalg_lstsq.default",
            "aten.linalg_lstsq.out",
            "aten._pack_padded_sequence.default",
        ),
        _always,
    ),
}

# Functions that look at values only to warn or to refuse: what is seen when nothing is wrong. The
# function stays one node of the graph, so the check still happens when the graph runs.
CHECKS: dict[tuple[str, str], Any] = {
    ("cov", "aten.equal.default"): False,
    ("corrcoef", "aten.equal.default"): False,
    ("istft", "aten.equal.default"): False,
}


def _max_pool1d(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
    # The CPU has a kernel of its own for inference, not used for tensor subclasses; its result is
    # contiguous whatever the input is.
    indices = kwargs.get("return_indices") or any(args[5:])
    graded = t.requires_grad and torch.is_grad_enabled()
    t = t if indices or graded or not t.is_cpu else t.contiguous()
    return func(t, *args, **kwargs)


def _ctc_loss_lengths(
    func: Any, probs: Tensor, targets: Tensor, inputs: Any, lengths: Any, *args: Any, **kwargs: Any
) -> Any:
    # Lengths given as numbers are put into a tensor by C++ that writes to its memory directly.
    inputs, lengths = (
        v if isinstance(v, Tensor) else torch.empty(len(v), dtype=torch.int64)
        for v in (inputs, lengths)
    )
    return func(probs, targets, inputs, lengths, *args, **kwargs)


# Functions of PyTorch to be run differently on fakes, by name, for a result that looks the same.
INSTEAD: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "max_pool1d": ((torch.max_pool1d, F.max_pool1d), _max_pool1d),
    "ctc_loss": ((torch.ctc_loss, F.ctc_loss), _ctc_loss_lengths),
    "lstm": ((torch.lstm,), packed.recurrent),
    "gru": ((torch.gru,), packed.recurrent),
    "rnn_tanh": ((torch.rnn_tanh,), packed.recurrent),
    "rnn_relu": ((torch.rnn_relu,), packed.recurrent),
    "_pad_packed_sequence": ((torch._pad_packed_sequence,), packed.pad),
}


# Operators whose meta kernels do not tell that the result is of a kind without fakes.
MAKES_UNSUPPORTED: dict[str, str] = dict.fromkeys(
    (
        "aten.quantize_per_tensor.default",
        "aten.quantize_per_tensor.tensor_qparams",
        "aten.quantize_per_channel.default",
        "aten.quantize_per_tensor_dynamic.default",
    ),
    "quantized",
)

# Operators that accept tensors of several devices; the result is on the first one's.
MIXED_DEVICES: frozenset[str] = frozenset(
    (
        "aten.copy_.default",
        "aten.copy.default",
        "aten._to_copy.default",
        "aten.index.Tensor",
        "aten.index_put.default",
        "aten.index_put_.default",
        "aten._index_put_impl_.default",
        "aten._unsafe_index.Tensor",
        "aten._unsafe_index_put.default",
        "aten._ctc_loss.Tensor",
        "aten._pack_padded_sequence.default",
        "aten._use_cudnn_ctc_loss.Tensor",
    )
)


def needs_data(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the shape of this call's result is in the values of an argument."""
    asks = NEEDS_DATA.get(name)
    return asks is not None and asks(args, kwargs)


def rule_for(name: str, device: torch.device) -> Rule | None:
    """What replaces the meta kernel of this operator on this device, if anything does."""
    by_device = _BY_DEVICE.get(device.type)
    return (by_device and by_device.get(name)) or _ANYWHERE.get(name)


# Layouts.


def _laid_out(
    like: Tensor, sizes: Sequence[int], strides: Sequence[int], dtype: Any = None
) -> Tensor:
    return like.new_empty_strided(sizes, strides, dtype=dtype or like.dtype)


def _column_major(t: Tensor) -> Tensor:
    dims = list(range(t.dim()))
    order = [*dims[:-2], dims[-1], dims[-2]]
    return _laid_out(t, t.size(), ordered_strides(t.size(), order))


def _suggested(like: Tensor, t: Tensor) -> Tensor:
    """`t` in the memory format of `like`."""
    return _laid_out(t, t.size(), suggested_strides(like, t.size()))


# Rules for every device.


def _geqrf(func: Any, a: Tensor) -> tuple[Tensor, Tensor]:
    return _column_major(a), a.new_empty((*a.shape[:-2], min(a.shape[-2:])))


def _histogram_count(func: Any, t: Tensor, bins: int = 100, **_: Any) -> tuple[Tensor, Tensor]:
    return t.new_empty((bins,)), t.new_empty((bins + 1,))


def _histogram_edges(func: Any, t: Tensor, bins: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    return t.new_empty((bins.numel() - 1,)), t.new_empty((bins.numel(),))


def _histogramdd_edges(func: Any, t: Tensor, bins: list[int], **_: Any) -> list[Tensor]:
    return [t.new_empty((n + 1,)) for n in bins]


def _histogramdd(func: Any, t: Tensor, bins: list[int], **_: Any) -> Tensor:
    return t.new_empty(bins)


def _histogramdd_tensors(func: Any, t: Tensor, bins: list[Tensor], **_: Any) -> Tensor:
    return t.new_empty([edges.numel() - 1 for edges in bins])


def _view_copy(func: Any, t: Tensor, sizes: Any) -> Tensor:
    return t.new_empty(t.size()).view(sizes)  # a copy can have any shape, whatever the strides


def _cudnn_grid_sampler(func: Any, t: Tensor, grid: Tensor) -> Tensor:
    return t.new_empty((*t.shape[:2], *grid.shape[1:3]))


def _no_cudnn(func: Any, *args: Any, **kwargs: Any) -> bool:
    return False  # the choice is in the values, and the result looks the same


def _native_attention(func: Any, *args: Any, **kwargs: Any) -> Any:
    result, weights = func(*args, **kwargs)
    return result, weights if weights.numel() else None


def _ctc_loss(func: Any, probs: Tensor, targets: Tensor, *rest: Any, **_: Any) -> Any:
    # The second result is kept for backward only; its last size is in the values of the lengths,
    # and this is the most it can be.
    longest = targets.size(-1)
    batch = probs.size(1) if probs.dim() == 3 else 1
    return probs.new_empty((batch,)), probs.new_empty((batch, probs.size(0), 2 * longest + 1))


def _contiguous(func: Any, *args: Any, **kwargs: Any) -> Tensor:
    told: Tensor = func(*args, **kwargs)
    return told.new_empty(told.size())


def _like_sum(func: Any, a: Tensor, b: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The layout of any pointwise operation, which these meta kernels lose for numbers."""
    told: Tensor = func(a, b, *args, **kwargs)
    return told.new_empty_strided(told.size(), torch.add(a, b).stride())


def _new_contiguous(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return t.new_empty(t.size())


def _with_mask(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The tensor with other values, and which of them are within bounds."""
    return torch.empty_like(t), torch.empty_like(t, dtype=torch.bool)


_ANYWHERE: dict[str, Rule] = {
    "aten._sample_dirichlet.default": _new_contiguous,
    "aten._dirichlet_grad.default": _new_contiguous,
    "aten.binomial.default": _new_contiguous,
    "aten.fake_quantize_per_tensor_affine_cachemask.default": _with_mask,
    "aten.fake_quantize_per_channel_affine_cachemask.default": _with_mask,
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": _with_mask,
    "aten.view_copy.default": _view_copy,
    "aten.geqrf.default": _geqrf,
    "aten.histogram.bin_ct": _histogram_count,
    "aten.histogram.bins_tensor": _histogram_edges,
    "aten._histogramdd_bin_edges.default": _histogramdd_edges,
    "aten._histogramdd_from_bin_cts.default": _histogramdd,
    "aten._histogramdd_from_bin_tensors.default": _histogramdd_tensors,
    "aten._ctc_loss.Tensor": _ctc_loss,
    "aten._use_cudnn_ctc_loss.default": _no_cudnn,
    "aten._use_cudnn_ctc_loss.Tensor": _no_cudnn,
    "aten.cudnn_grid_sampler.default": _cudnn_grid_sampler,
    "aten._native_multi_head_attention.default": _native_attention,
    "aten.copysign.Scalar": _like_sum,
    "aten.copysign.Tensor": _like_sum,
    "aten.floor_divide.default": _like_sum,
    "aten.floor_divide.Scalar": _like_sum,
    "aten.div.Tensor_mode": _like_sum,
    "aten.div.Scalar_mode": _like_sum,
    "aten.normal.Tensor_float": _contiguous,
    "aten.normal.float_Tensor": _contiguous,
    "aten.normal.Tensor_Tensor": _contiguous,
}


# Rules for the CPU. Without a real device to look at, meta kernels describe CUDA's layouts.


def _like_input(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return _suggested(t, func(t, *args, **kwargs))


def _svd_cpu(func: Any, *args: Any, **kwargs: Any) -> Any:
    u, s, vh = func(*args, **kwargs)
    return u, s, vh if vh.dim() < 2 else _column_major(vh)


def _eig_cpu(func: Any, *args: Any, **kwargs: Any) -> Any:
    values, vectors = func(*args, **kwargs)
    return values, _column_major(vectors)


def _roll_cpu(func: Any, t: Tensor, shifts: list[int], dims: Sequence[int] = ()) -> Tensor:
    if not dims or t.numel() == 0:
        return func(t, shifts, dims)
    for shift, dim in zip(shifts, dims, strict=True):
        size = t.size(dim)
        start = (size - shift) % size
        t = torch.cat([t.narrow(dim, start, size - start), t.narrow(dim, 0, start)], dim)
    return t


def _statistics(t: Tensor, params: Sequence[Any], sizes: Sequence[int]) -> Tensor:
    """Saved statistics are of the parameters' dtype, which may be wider than the input's."""
    given = (p.dtype for p in params if isinstance(p, Tensor))
    return t.new_empty(sizes, dtype=next(given, t.dtype))


def _batch_norm_cpu(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
    result, mean, _, *rest = func(t, *args, **kwargs)
    training = next((a for a in args if isinstance(a, bool)), True)
    stats = _statistics(t, args, mean.size() if training else (0,))
    return _suggested(t, result), stats, torch.empty_like(stats), *rest


def _layer_norm_cpu(func: Any, t: Tensor, sizes: Any, *args: Any, **kwargs: Any) -> Any:
    result, mean, _ = func(t, sizes, *args, **kwargs)
    stats = _statistics(t, args, mean.size())
    return result, stats, torch.empty_like(stats)


def _group_norm_cpu(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
    result, mean, _ = func(t, *args, **kwargs)
    stats = _statistics(t, args, mean.size())
    return _suggested(t, result), stats, torch.empty_like(stats)


def _pixel_unshuffle_cpu(func: Any, t: Tensor, factor: int) -> Tensor:
    return torch.clone(t) if t.numel() == 0 else func(t, factor)  # nothing stays as it is


def _scaled_mm_cpu(func: Any, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Any:
    # Only CUDA insists on a layout.
    return func(a.contiguous(), b.t().contiguous().t(), *args, **kwargs)


def _nonzero_static_cpu(func: Any, t: Tensor, *, size: int, **_: Any) -> Tensor:
    return t.new_empty((size, t.dim()), dtype=torch.int64)


def _embedding_bag_cpu(
    func: Any,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: Tensor | None = None,
    include_last: bool = False,
    padding_idx: int = -1,
) -> Any:
    rest = (scale, mode, sparse, per_sample, include_last, padding_idx)
    result = func(weight, indices, offsets, *rest)[0]
    summing, taking_max = mode == 0, mode == 2
    bags = offsets.size(0) - int(include_last)
    # A sum of rows that lie whole in memory needs no map from index to bag.
    plain_rows = weight.dtype in (torch.float32, torch.float16) and weight.stride(1) == 1
    plain_scale = per_sample is None or per_sample.stride(0) == 1
    direct = summing and plain_rows and plain_scale and padding_idx < 0
    bag_of_index = offsets.new_empty((0 if direct else indices.size(0),))
    bag_size = offsets.new_empty((bags,))
    at_max = offsets.new_empty((bags, weight.size(1)) if taking_max else (bags,))
    return result, bag_of_index, bag_size, at_max


def _fft_layout(t: Tensor, sizes: Sequence[int], dims: Sequence[int], dtype: torch.dtype) -> Tensor:
    """How MKL leaves its result: signals innermost, the batch around them in the input's order."""
    if not torch.backends.mkl.is_available():
        return t.new_empty(sizes, dtype=dtype)
    batch = [d for d in range(t.dim()) if d not in dims]
    batch.sort(key=t.stride, reverse=True)
    return _laid_out(t, sizes, ordered_strides(sizes, [*batch, *dims]), dtype)


def _fft_c2c_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    if not dims:
        return func(t, dims, *args, **kwargs)
    inner = sorted(dims, key=t.stride, reverse=True)
    return _fft_layout(t, t.size(), inner, t.dtype)


def _fft_r2c_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    told: Tensor = func(t, list(dims), *args, **kwargs)
    inner = [*sorted(dims[:-1], key=t.stride, reverse=True), dims[-1]]
    return _fft_layout(t, told.size(), inner, told.dtype)


def _fft_c2r_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    told: Tensor = func(t, list(dims), *args, **kwargs)
    between = _fft_c2c_cpu(torch.clone, t, dims[:-1]) if len(dims) > 1 else t
    return _fft_layout(between, told.size(), dims[-1:], told.dtype)


_CPU: dict[str, Rule] = {
    "aten._linalg_svd.default": _svd_cpu,
    "aten.linalg_eig.default": _eig_cpu,
    "aten.native_batch_norm.default": _batch_norm_cpu,
    "aten._batch_norm_with_update.default": _batch_norm_cpu,
    "aten._native_batch_norm_legit.default": _batch_norm_cpu,
    "aten._native_batch_norm_legit.no_stats": _batch_norm_cpu,
    "aten._native_batch_norm_legit_functional.default": _batch_norm_cpu,
    "aten.native_layer_norm.default": _layer_norm_cpu,
    "aten.native_group_norm.default": _group_norm_cpu,
    "aten.roll.default": _roll_cpu,
    "aten.renorm.default": _contiguous,
    "aten.native_dropout_backward.default": _like_sum,
    "aten._scaled_mm.default": _scaled_mm_cpu,
    "aten._scaled_mm_v2.default": _scaled_mm_cpu,
    "aten.nonzero_static.default": _nonzero_static_cpu,
    "aten._embedding_bag.default": _embedding_bag_cpu,
    "aten._embedding_bag_forward_only.default": _embedding_bag_cpu,
    "aten._fft_c2c.default": _fft_c2c_cpu,
    "aten._fft_r2c.default": _fft_r2c_cpu,
    "aten._fft_c2r.default": _fft_c2r_cpu,
    # These keep the memory format of their input.
    "aten.max_unpool2d.default": _like_input,
    "aten.pixel_shuffle.default": _like_input,
    "aten.pixel_unshuffle.default": _pixel_unshuffle_cpu,
    "aten.channel_shuffle.default": _like_input,
    "aten.native_channel_shuffle.default": _like_input,
    "aten.reflection_pad2d.default": _like_input,
    "aten.replication_pad2d.default": _like_input,
}

_BY_DEVICE: dict[str, dict[str, Rule]] = {"cpu": _CPU}


# Rules that need the real device: they see the fakes, and what the meta kernel said.


def _constant(t: Any) -> Any:
    """The same with the sizes that it has now, which it has to have from here on."""
    sizes, strides = ([int(n) for n in numbers] for numbers in (t.size(), t.stride()))
    return make(t._world, sizes, strides, 0, t.dtype, t.device)


def _one_row(t: Any) -> Any:
    """`t.unsqueeze(2)`, as conv1d does to run as conv2d."""
    (batch, channels, width), (outer, inner, step) = t.size(), t.stride()
    sizes, strides = (batch, channels, 1, width), (outer, inner, width * step, step)
    return make(t._world, sizes, strides, 0, t.dtype, t.device)


def _convolution(args: tuple[Any, ...], kwargs: dict[str, Any], told: Tensor) -> Tensor:
    """The library that will be used decides the memory format, and PyTorch decides the library."""
    image, weight, bias, stride, padding, dilation, transposed, output_padding, groups = args
    symbolic = [t for t in (image, weight) if t._has_symbolic_sizes_strides]
    if symbolic:
        # Which library is chosen would be a question about every size; the layout is not.
        if image.dim() == 3:  # the row is made contiguous, the weight is not
            nhwc = is_like_channels_last(_one_row(weight))
        else:
            nhwc = is_like_channels_last(image) or is_like_channels_last(weight)
        if not nhwc or image.dim() != 5:
            layout = channels_last_strides if nhwc else contiguous_strides
            return told.new_empty_strided(told.size(), layout(told.size()))
        # But for volumes, where not every library knows the format.
        image, weight, bias = (t if t is None else _constant(t) for t in (image, weight, bias))
        told = told.new_empty([int(n) for n in told.size()])
    flat = image.dim() == 3  # conv1d runs as conv2d over one row, which is made contiguous first
    if flat:
        sizes = (*image.shape[:2], 1, image.shape[2])
        strides = (sizes[1] * sizes[3], sizes[3], sizes[3], 1)
        image = make(image._world, sizes, strides, 0, image.dtype, image.device)
        weight = as_plain(torch.unsqueeze, (weight, 2), {})
        stride, dilation = ([1, *v] for v in (stride, dilation))
        padding, output_padding = ([0, *v] for v in (padding, output_padding))
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    library = torch._C._select_conv_backend(image, weight, bias, *rest)
    form = torch._C._conv_determine_backend_memory_format(image, weight, library)
    if form is torch.contiguous_format:
        return told.new_empty(told.size())
    if flat:
        return told.new_empty(told.unsqueeze(2).size()).to(memory_format=form).squeeze(2)
    return told.new_empty(told.size()).to(memory_format=form)


_FINISH: dict[str, Callable[[tuple[Any, ...], dict[str, Any], Any], Any]] = {
    "aten.convolution.default": _convolution,
}


def finish(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], told: Any) -> Any:
    """What the operator returns on the fakes' own device, given what its meta kernel told."""
    correct = _FINISH.get(name)
    return told if correct is None else correct(args, kwargs, told)
