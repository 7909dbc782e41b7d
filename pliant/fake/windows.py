"""Shape rules of operators that look at an image through windows, or give it another size.

The one idea: what matters of such an operator is one number for each dimension of the image: how
often the window fits. Batch and channels pass through. Most results are laid out as the image is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.fake import rules
from pliant.fake.layout import (
    is_like_channels_last,
    like_strides,
    suggested_strides,
)
from pliant.fake.order import need
from pliant.fake.overload import META, Overload
from pliant.fake.results import New, Recipe, Several
from pliant.fake.rule import Args, Kwargs, Rule, dense, is_empty, new
from pliant.fake.tensor import Fake


def _filled_up(args: Args, defaults: Args) -> Args:
    """With what was not given of those after the second."""
    return (*args, *defaults[len(args) - 2 :])


def _max_pool(rank: int) -> Rule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, kernel, stride, padding, dilation, ceil = _filled_up(args, ((), 0, 1, False))
        sizes = _fitting(t, rank, kernel, stride or kernel, padding, dilation, ceil)
        if sizes is None or kwargs:
            return None
        return Several(tuple, (_image(t, sizes, device), _image(t, sizes, device, torch.int64)))

    return rule


_AVG_POOL = ((), 0, False, True, None)


def _avg_pool(rank: int) -> Rule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, kernel, stride, padding, ceil, _, divisor = _filled_up(args, _AVG_POOL)
        sizes = _fitting(t, rank, kernel, stride or kernel, padding, 1, ceil)
        unusual = kwargs or divisor == 0 or not t.is_floating_point()
        return None if sizes is None or unusual else image(t, sizes, device)

    image = _image if rank == 2 else _contiguous
    return rule


def _fitting(
    t: Fake, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[Any] | None:
    """The sizes of the result; None for whatever PyTorch may have something to say about."""
    given = [_each(v, rank) for v in (kernel, stride, padding, dilation)]
    if t.dim() not in (rank + 1, rank + 2) or None in given or not _has_pixels(t, rank):
        return None
    found = list(t.shape[:-rank])
    for size, k, s, p, d in zip(t.shape[-rank:], *(v or () for v in given), strict=True):
        if k < 1 or s < 1 or d < 1 or not 0 <= p <= k // 2:
            return None
        span = size + 2 * p - d * (k - 1) - 1
        # Rounded up, the last window still has to begin inside the image or the padding before it.
        whole = span // s + 1
        found.append(torch.sym_min(-(-span // s) + 1, -(-(size + p) // s)) if ceil else whole)
    return found if all(size >= 1 for size in found[-rank:]) else None


def _each(value: Any, rank: int) -> list[int] | None:
    """A number for each dimension, of which one may be given for all."""
    numbers = [value] if type(value) is int else list(value)
    if any(type(n) is not int for n in numbers) or len(numbers) not in (1, rank):
        return None
    return numbers * rank if len(numbers) == 1 else numbers


def _has_pixels(t: Fake, rank: int) -> bool:
    """Otherwise it is an error, for PyTorch to tell. Symbolic sizes are taken not to be 0."""
    if is_empty(t):
        return False
    for size in t.shape[-rank - 1 :]:
        need(size != 0)
    return True


def _image(
    t: Fake, sizes: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None
) -> New:
    """Laid out as `t` is."""
    strides = suggested_strides(t, sizes)
    return new(sizes, strides, dtype or t.dtype, device)


def _contiguous(t: Fake, sizes: Sequence[Any], device: torch.device) -> New:
    return dense(sizes, t.dtype, device)


def _adaptive_avg_pool(rank: int) -> Rule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        sizes = _resized(args[0], args[1], least=0)
        return None if sizes is None or kwargs else image(args[0], sizes, device)

    image = _image if rank == 2 else _contiguous
    return rule


def _adaptive_max_pool(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t = args[0]
    sizes = _resized(t, args[1], least=0)
    if sizes is None or kwargs:
        return None
    return Several(tuple, (_image(t, sizes, device), _image(t, sizes, device, torch.int64)))


def _upsample(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    if any(type(size) is int and size == 0 for size in args[0].shape[1:]):
        raise RuntimeError("there is nothing in the image")  # which meta kernels do not see
    sizes = None if kwargs else _resized(args[0], args[1], least=1)
    return None if sizes is None else _image(args[0], sizes, device)


def _resized(t: Fake, wanted: Sequence[Any], least: int) -> list[Any] | None:
    rank = len(wanted)
    dims = (rank + 2,) if least else (rank + 1, rank + 2)
    if t.dim() not in dims or not t.is_floating_point() or not _has_pixels(t, rank):
        return None
    return [*t.shape[:-rank], *wanted] if all(size >= least for size in wanted) else None


def _pad(rank: int, *, mirrored: bool) -> Rule:
    """By pixels of the image itself. Mirrored ones have to be there, beside the border itself."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, pads = args
        dims = (rank + 1, rank + 2)
        if kwargs or len(pads) != 2 * rank or t.dim() not in dims or not _has_pixels(t, rank):
            return None
        if any(type(n) is not int or n < 0 for n in pads) or not t.is_floating_point():
            return None
        sizes = list(t.size())
        for i in range(rank):
            before, after = pads[2 * i : 2 * i + 2]
            if mirrored and not max(before, after) < sizes[-1 - i]:
                return None
            sizes[-1 - i] = sizes[-1 - i] + before + after
        return (_image if rank == 2 else _contiguous)(t, sizes, device)

    return rule


def _constant_pad(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """Pads of 0 or less cut pieces off, and if all do that, the rest is copied as it lies."""
    t, pads = args[:2]
    if kwargs or len(pads) % 2 or len(pads) > 2 * t.dim() or t.is_conj() or t.is_neg():
        return None
    sizes, cuts = list(t.size()), True
    for i in range(len(pads) // 2):
        left = sizes[-1 - i]
        for pad in pads[2 * i : 2 * i + 2]:
            sizes[-1 - i] = sizes[-1 - i] + pad
            if pad <= 0:
                left = left + pad
                need(left >= 0, "more is cut off than there is")
            else:
                cuts = False
    if not cuts:
        if is_like_channels_last(t) and any(size == 0 for size in t.size()):
            return _contiguous(t, sizes, device)
        return _image(t, sizes, device)
    strides = like_strides(torch.empty_strided(sizes, t.stride(), device=META))
    return None if strides is None else new(sizes, strides, t.dtype, device)


def _convolution(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
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
    span = _widened if transposed else _narrowed
    spans = map(span, image.shape[2:], weight.shape[2:], *lists)
    sizes = (image.size(0), weight.size(1) * groups if transposed else weight.size(0), *spans)
    if any(size <= 0 for size in sizes[1:]):
        return None
    told = torch.empty(sizes, dtype=image.dtype, device=META)
    strides = rules.finish(op.name, args, kwargs, told).stride()
    return new(sizes, strides, image.dtype, device)


def _narrowed(size: Any, kernel: Any, stride: int, pad: int, dilation: int, extra: int) -> Any:
    return (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1


def _widened(size: Any, kernel: Any, stride: int, pad: int, dilation: int, extra: int) -> Any:
    return (size - 1) * stride - 2 * pad + dilation * (kernel - 1) + extra + 1


_RULES: dict[str, Rule] = {
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "avg_pool2d": _avg_pool(2),
    "avg_pool3d": _avg_pool(3),
    "_adaptive_avg_pool2d": _adaptive_avg_pool(2),
    "_adaptive_avg_pool3d": _adaptive_avg_pool(3),
    "adaptive_max_pool2d": _adaptive_max_pool,
    "reflection_pad1d": _pad(1, mirrored=True),
    "reflection_pad2d": _pad(2, mirrored=True),
    "reflection_pad3d": _pad(3, mirrored=True),
    "replication_pad1d": _pad(1, mirrored=False),
    "replication_pad2d": _pad(2, mirrored=False),
    "replication_pad3d": _pad(3, mirrored=False),
    "constant_pad_nd": _constant_pad,
    "convolution": _convolution,
    "upsample_nearest1d": _upsample,
    "upsample_nearest2d": _upsample,
    "upsample_nearest3d": _upsample,
    "_upsample_nearest_exact1d": _upsample,
    "_upsample_nearest_exact2d": _upsample,
    "_upsample_nearest_exact3d": _upsample,
    "upsample_linear1d": _upsample,
    "upsample_bilinear2d": _upsample,
    "upsample_trilinear3d": _upsample,
    "upsample_bicubic2d": _upsample,
}
RULES: dict[str, Rule] = {f"aten.{name}.default": rule for name, rule in _RULES.items()}
