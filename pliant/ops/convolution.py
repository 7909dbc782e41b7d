"""Convolutions: called whole, by the library that PyTorch chooses for them.

The one idea: that library decides the layout of the result, so PyTorch's own selection is called to
find out which one it is.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.base.devices import META
from pliant.base.operators import aten_names, register
from pliant.fake.layout import (
    channels_last_strides,
    contiguous_strides,
    is_like_channels_last,
)
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, is_empty, new
from pliant.fake.tensor import as_plain, make

Tensor = torch.Tensor
aten = torch.ops.aten


def _constant(t: Any) -> Any:
    """A fake with the sizes of this call as constants: each symbol becomes a guard."""
    sizes, strides = ([int(n) for n in numbers] for numbers in (t.size(), t.stride()))
    return make(t._world, sizes, strides, 0, t.dtype, t.device)


def _one_row(t: Any) -> Any:
    """A batch of rows as images of one row: `t.unsqueeze(2)`, as conv1d does to run as conv2d."""
    (batch, channels, width), (outer, inner, step) = t.size(), t.stride()
    sizes, strides = (batch, channels, 1, width), (outer, inner, width * step, step)
    return make(t._world, sizes, strides, 0, t.dtype, t.device)


def _convolution_layout(args: tuple[Any, ...], kwargs: dict[str, Any], result: Tensor) -> Tensor:
    """`result` with the strides that eager PyTorch gives it. They are those of the library that it
    chooses, so its own selection is called; with symbolic sizes, what that comes to for the
    libraries of a CPU is said here."""
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
            return result.new_empty_strided(result.size(), layout(result.size()))
        # But for volumes, where not every library knows the format.
        image, weight, bias = (t if t is None else _constant(t) for t in (image, weight, bias))
        result = result.new_empty([int(n) for n in result.size()])
    flat = image.dim() == 3  # conv1d runs as conv2d over one row, which is made contiguous first
    if flat:
        sizes = (*image.shape[:2], 1, image.shape[2])
        strides = (sizes[1] * sizes[3], sizes[3], sizes[3], 1)
        image = make(image._world, sizes, strides, 0, image.dtype, image.device)
        weight = as_plain(torch.unsqueeze, (weight, 2), {})
        stride, dilation = ([1, *v] for v in (stride, dilation))
        padding, output_padding = ([0, *v] for v in (padding, output_padding))
    rest = (stride, padding, dilation, transposed, output_padding, groups)
    # oneDNN, THNN, ...: each has a memory format of its own.
    library = torch._C._select_conv_backend(image, weight, bias, *rest)
    form = torch._C._conv_determine_backend_memory_format(image, weight, library)
    if form is torch.contiguous_format:
        return result.new_empty(result.size())
    if flat:
        return result.new_empty(result.unsqueeze(2).size()).to(memory_format=form).squeeze(2)
    return result.new_empty(result.size()).to(memory_format=form)


def _convolution_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    image, weight, bias, stride, padding, dilation, transposed, extra, groups = args
    rank = image.dim() - 2
    lists = (stride, padding, dilation, extra)
    usual = weight.dim() == image.dim() and all(len(v) == rank for v in lists)
    alike = weight.dtype is image.dtype and (bias is None or bias.dtype is image.dtype)
    channels = weight.size(0) if transposed else weight.size(1) * groups
    if not usual or not alike or image.size(1) != channels or weight.size(0) % groups:
        return None
    if is_empty(image):
        return None
    if transposed and image._has_symbolic_sizes_strides:
        return None
    # The size of each dimension after a window of `dilation * (kernel - 1) + 1` elements.
    span = _widened if transposed else _narrowed
    spans = map(span, image.shape[2:], weight.shape[2:], *lists)
    sizes = (image.size(0), weight.size(1) * groups if transposed else weight.size(0), *spans)
    if any(size <= 0 for size in sizes[1:]):
        return None
    result = torch.empty(sizes, dtype=image.dtype, device=META)
    strides = _convolution_layout(args, kwargs, result).stride()
    return new(sizes, strides, image.dtype, device)


def _narrowed(size: Any, kernel: Any, stride: int, pad: int, dilation: int, extra: int) -> Any:
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def _widened(size: Any, kernel: Any, stride: int, pad: int, dilation: int, extra: int) -> Any:
    return (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + extra + 1


register(
    "aten.convolution.default",
    shape=_convolution_shape,
    finish=_convolution_layout,
    fresh=True,
)
register("aten.conv1d.default", "aten.conv1d.padding", opaque=torch.conv1d, fresh=True)
register("aten.conv2d.default", "aten.conv2d.padding", opaque=torch.conv2d, fresh=True)
register("aten.conv3d.default", opaque=torch.conv3d, fresh=True)
register("aten.conv3d.padding", fresh=True)
register("aten.conv_transpose1d.default", opaque=torch.conv_transpose1d)
register("aten.conv_transpose2d.input", opaque=torch.conv_transpose2d)


_SAFE: Final = """
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution
_convolution mkldnn_convolution im2col col2im unfold_copy
"""
register(*aten_names(_SAFE), raises=never)
