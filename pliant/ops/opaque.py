"""Operators that PyTorch runs: where its meta kernels say something else than the real kernels.

The one idea: an operator without a record looks as its meta kernel says. A rule takes the operator
and its arguments, meta tensors for tensors, and returns meta tensors; most call the meta kernel and
correct the layout of what it returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import meta, shapes
from pliant.fake.layout import (
    ordered_strides,
)
from pliant.fake.raising import never
from pliant.fake.traced import as_first, by_marks

Tensor = torch.Tensor
aten = torch.ops.aten


# --------------------------------------------------------------------------------------------------
# Linear algebra


def _geqrf_meta(func: Any, a: Tensor) -> tuple[Tensor, Tensor]:
    return meta.column_major(a), a.new_empty((*a.shape[:-2], min(a.shape[-2:])))


def _svd_meta(func: Any, *args: Any, **kwargs: Any) -> Any:
    u, s, vh = func(*args, **kwargs)
    return u, s, vh if vh.dim() < 2 else meta.column_major(vh)


def _eig_meta(func: Any, *args: Any, **kwargs: Any) -> Any:
    values, vectors = func(*args, **kwargs)
    return values, meta.column_major(vectors)


register("aten.geqrf.default", meta=_geqrf_meta)
# LAPACK takes pivots as they are: those that are all 0 make it write outside of its memory.
register(
    *("aten.linalg_ldl_solve.default", "aten.linalg_lu_solve.default", "aten.lu_unpack.default"),
    *("aten._unsafe_index.Tensor", "aten._unsafe_index_put.default"),
    trusts_indices=True,
)
register("aten._linalg_svd.default", cpu_meta=_svd_meta)
register("aten.linalg_eig.default", cpu_meta=_eig_meta)


# --------------------------------------------------------------------------------------------------
# Fourier transforms


def _fft_layout(t: Tensor, sizes: Sequence[int], dims: Sequence[int], dtype: torch.dtype) -> Tensor:
    """How MKL leaves its result: signals innermost, the batch around them in the input's order."""
    if not torch.backends.mkl.is_available():
        return t.new_empty(sizes, dtype=dtype)
    batch = [d for d in range(t.dim()) if d not in dims]
    batch.sort(key=t.stride, reverse=True)
    return meta.laid_out(t, sizes, ordered_strides(sizes, [*batch, *dims]), dtype)


def _fft_c2c_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    if not dims:
        return func(t, dims, *args, **kwargs)
    inner = sorted(dims, key=t.stride, reverse=True)
    return _fft_layout(t, t.size(), inner, t.dtype)


def _fft_r2c_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    result: Tensor = func(t, list(dims), *args, **kwargs)
    inner = [*sorted(dims[:-1], key=t.stride, reverse=True), dims[-1]]
    return _fft_layout(t, result.size(), inner, result.dtype)


def _fft_c2r_cpu(func: Any, t: Tensor, dims: list[int], *args: Any, **kwargs: Any) -> Tensor:
    result: Tensor = func(t, list(dims), *args, **kwargs)
    between = _fft_c2c_cpu(torch.clone, t, dims[:-1]) if len(dims) > 1 else t
    return _fft_layout(between, result.size(), dims[-1:], result.dtype)


register("aten._fft_c2c.default", cpu_meta=_fft_c2c_cpu)
register("aten._fft_r2c.default", cpu_meta=_fft_r2c_cpu)
register("aten._fft_c2r.default", cpu_meta=_fft_c2r_cpu)


# --------------------------------------------------------------------------------------------------
# Histograms


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


register("aten.histogram.bin_ct", meta=_histogram_count)
register("aten.histogram.bins_tensor", meta=_histogram_edges)
register("aten._histogramdd_bin_edges.default", meta=_histogramdd_edges)
register("aten._histogramdd_from_bin_cts.default", meta=_histogramdd)
register("aten._histogramdd_from_bin_tensors.default", meta=_histogramdd_tensors)


# --------------------------------------------------------------------------------------------------
# Sorting and searching

register(
    "aten.sort.default",
    "aten.sort.stable",
    "aten.argsort.default",
    "aten.argsort.stable",
    shape=by_marks(as_first),
)
register(
    "aten.isin.Tensor_Tensor",
    "aten.isin.Tensor_Scalar",
    shape=shapes.contiguous(shapes.to_bool, everywhere=True),
)


# --------------------------------------------------------------------------------------------------
# Quantization


def _with_mask(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The tensor with other values, and which of them are within bounds."""
    return torch.empty_like(t), torch.empty_like(t, dtype=torch.bool)


register(
    "aten.fake_quantize_per_tensor_affine_cachemask.default",
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default",
    meta=_with_mask,
)
register(
    "aten.quantize_per_tensor.default",
    "aten.quantize_per_tensor.tensor_qparams",
    "aten.quantize_per_channel.default",
    "aten.quantize_per_tensor_dynamic.default",
    unsupported="quantized",
)
register(
    "aten._nested_tensor_from_tensor_list.default",
    "aten._nested_tensor_from_mask.default",
    "aten._nested_from_padded.default",
    unsupported="nested",
)


# --------------------------------------------------------------------------------------------------
# Others


def _view_copy(func: Any, t: Tensor, sizes: Any) -> Tensor:
    return t.new_empty(t.size()).view(sizes)  # a copy can have any shape, whatever the strides


register("aten.view_copy.default", meta=_view_copy)
register_functions(
    (torch.cov, Tensor.cov, torch.corrcoef, Tensor.corrcoef, torch.istft, Tensor.istft),
    assumes={"aten.equal.default": False},
)


register(
    *aten_names("sort argsort topk msort isin bucketize _fft_c2c _fft_r2c _fft_c2r"), raises=never
)
register("aten.resize_.default", "aten.resize_as_.default", resizes=True)


# --------------------------------------------------------------------------------------------------
# Optimizers


def _returns_nothing(func: Any, *args: Any, **kwargs: Any) -> None:
    """What is written keeps its shape."""


register("aten._fused_sgd_.default", "aten._fused_adagrad_.default", meta=_returns_nothing)
