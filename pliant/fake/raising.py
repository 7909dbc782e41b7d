"""Which operators may raise because of the numbers in a tensor.

The one idea: an operator may, unless it is known not to. What may raise is run even if nobody needs
its result, and before inputs are overwritten; sizes don't count, because what they make an operator
refuse was refused when the program was captured, or tried then (`trial.py`). Dtypes do: fakes take
some that the kernel does not. Pointwise operators don't raise, except where a number has no result
(a division of integers) or is out of range. Views don't either, except `as_strided`, which may need
more memory than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import torch

from pliant.sym.expr import ZERO, Expr
from pliant.sym.floats import FloatExpr
from pliant.sym.node import SYMBOLIC

MayRaise = Callable[[tuple[Any, ...], dict[str, Any]], bool]

_SAFE: Final = """
mm addmm bmm baddbmm mv addmv addbmm addr dot vdot matmul linear bilinear einsum outer ger
linalg_vector_norm linalg_cross norm cdist _cdist_forward _pdist_forward _euclidean_dist
scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu lstm gru
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution
_convolution mkldnn_convolution im2col col2im unfold_copy
layer_norm group_norm batch_norm instance_norm rms_norm _fused_rms_norm native_layer_norm
native_group_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_dropout
avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d
max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d
upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d grid_sampler_2d grid_sampler_3d
pad constant_pad_nd _pad_circular reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d
sum nansum mean prod amax amin aminmax _aminmax max min argmax argmin all any count_nonzero
std std_mean var var_mean logsumexp special_logsumexp median nanmedian mode kthvalue trace
softmax log_softmax _softmax _log_softmax _safe_softmax special_softmax special_log_softmax
cumsum cumprod cummax cummin logcumsumexp _logcumsumexp sort argsort topk msort
nonzero masked_select unique_dim _unique2 unique_consecutive isin bucketize equal
_local_scalar_dense item
cat concat concatenate stack flip roll rot90 repeat tile tril triu diag_embed tril_indices
triu_indices block_diag pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
diagonal_scatter select_scatter slice_scatter as_strided_scatter renorm
clone contiguous copy to _to_copy type_as alias detach lift lift_fresh lift_fresh_copy
arange eye full full_like ones ones_like zeros zeros_like new_full new_ones new_zeros
scalar_tensor iota empty empty_like empty_permuted empty_strided new_empty new_empty_strided
complex polar view_as_complex view_as_real glu rsub where _fft_c2c _fft_r2c _fft_c2r
log_sigmoid log_sigmoid_forward _prelu_kernel prelu hardswish
mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits
rand randn randperm randint rand_like randn_like randint_like uniform exponential cauchy
log_normal geometric random normal_functional dropout
absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh fix greater greater_equal less
less_equal multiply negative not_equal subtract true_divide __and__ __or__ __xor__
special_erf special_erfc special_exp2 special_expit special_expm1 special_log1p special_logit
special_sinc"""
SAFE: Final = frozenset(_SAFE.split())
"""Operators of ATen, besides the pointwise ones, that decide nothing by the numbers in a tensor."""


def _divides_integers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """By what may be 0."""
    dividend, divisor = (*args, None)[:2]
    if divisor is None:
        return True
    if any(map(_is_float, (dividend, divisor))):
        return False
    return not (type(divisor) is int and divisor)


def _divides_rounding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("rounding_mode")
    return mode is not None and _divides_integers(args, kwargs)


def _converts(at: int) -> MayRaise:
    """A tensor is converted to the dtype of the first one, and has to fit."""

    def may_raise(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        value = args[at] if len(args) > at else kwargs.get("value")
        return getattr(value, "dtype", None) is not args[0].dtype

    return may_raise


def _takes_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Parameters of a distribution that are in a tensor are looked at when it is drawn from. The
    first one may be where to write to."""
    given = (*args[1:], kwargs.get("p"), kwargs.get("std"))
    in_tensors = any(hasattr(value, "dtype") for value in given)
    return in_tensors or not any(isinstance(value, int | float) for value in given)


def _draws_unusual(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Not every distribution has integers. Which do isn't tried: numbers would be drawn."""
    dtypes = [v.dtype for v in (*_flat(args), *_flat(kwargs.values())) if _is_tensor(v)]
    asked = kwargs.get("dtype")
    return any(not d.is_floating_point for d in (dtypes if asked is None else [asked]))


class RefusesDtypes:
    """Whether the kernel refuses these dtypes: tried once for each combination, on small tensors
    (not of one element: PyTorch warns about some of those) and with small numbers, which may be
    sizes. If it refuses float32 as well, that is because of the sizes."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.known: dict[Any, bool] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        values = [*_flat(args), *_flat(kwargs.values())]
        tensors = [v for v in values if _is_tensor(v)]
        types = [v.dtype if _is_tensor(v) else type(v) for v in values]
        if not tensors:
            return False
        if any(map(_is_empty, tensors)):  # meta kernels don't look at sizes that the others refuse
            return True
        if bool not in types and _USUAL.issuperset(v.dtype for v in tensors):
            return False
        if any(isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in tensors):
            return False
        key = (*types, *map(_rank, tensors), *kwargs)
        if key not in self.known:
            self.known[key] = not self._takes(args, kwargs) and (
                self._takes(args, kwargs, torch.float32)
                or self._takes(args, kwargs, torch.float32, numbers=True)  # instead of bools
            )
        return self.known[key]

    def _takes(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dtype: torch.dtype | None = None,
        numbers: bool = False,
    ) -> bool:
        def small(value: Any) -> Any:
            if _is_tensor(value):
                return torch.ones((2,) * _rank(value), dtype=dtype or value.dtype)
            if isinstance(value, list | tuple):
                return type(value)(map(small, value))
            if type(value) is bool and numbers:
                return int(value)
            if type(value) is int:
                return min(value, 2)
            if isinstance(value, SYMBOLIC):
                return value.node.pytype(1)
            return 1 if isinstance(value, Expr | FloatExpr) else value  # of the functional graph

        try:
            self.func(*map(small, args), **{name: small(value) for name, value in kwargs.items()})
        except (RuntimeError, TypeError, IndexError, ValueError):
            return False
        return True


_DRAWS_INTEGERS: Final = frozenset(("randint", "randint_like", "randperm", "random"))
_USUAL: Final = frozenset((torch.float32, torch.float64))


def _is_tensor(value: Any) -> bool:
    """A fake, or a tensor of the functional graph."""
    return hasattr(value, "dtype")


def _is_empty(tensor: Any) -> bool:
    sizes = tensor.size() if isinstance(tensor, torch.Tensor) else tensor.sizes
    return any(size is ZERO or (type(size) is int and size == 0) for size in sizes)


def _rank(tensor: Any) -> int:
    return tensor.dim() if isinstance(tensor, torch.Tensor) else len(tensor.sizes)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _raises_to_symbolic_power(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Integers have no negative powers. A constant exponent is refused when it is captured."""
    base, exponent = (*args, None)[:2]
    in_data = not hasattr(exponent, "dtype") and not isinstance(exponent, int | float | complex)
    return in_data and not _is_float(base)


def _reaches_beyond(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `as_strided` may need more memory than the tensor that it is called on shows. How
    much there is, no guard tells."""
    tensor, sizes, strides, offset = (*args, kwargs.get("storage_offset"))[:4]
    if not hasattr(tensor, "untyped_storage") or tensor._has_symbolic_sizes_strides:
        return True
    numbers = (*sizes, *strides, 0 if offset is None else offset)
    if any(type(number) is not int for number in numbers):
        return True
    if 0 in sizes:
        return False
    start = tensor.storage_offset()
    first = start if offset is None else offset
    return 0 in tensor.shape or not (
        start <= first
        and first + _reach(sizes, strides) <= start + _reach(tensor.shape, tensor.stride())
    )


def _reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def _is_float(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return not isinstance(value, int | torch.SymInt) and not hasattr(value, "symbols")
    return bool(dtype.is_floating_point or dtype.is_complex)


_BY_NAME: Final[dict[str, MayRaise]] = {
    "floor_divide": _divides_integers,
    "remainder": _divides_integers,
    "fmod": _divides_integers,
    "div": _divides_rounding,
    "divide": _divides_rounding,
    "pow": _raises_to_symbolic_power,
    "binary_cross_entropy": _always,
    "bernoulli": _takes_tensors,
    "normal": _takes_tensors,
}
_BY_OVERLOAD: Final[dict[str, MayRaise]] = {
    "aten.masked_fill.Tensor": _converts(2),
    "aten.fill.Tensor": _converts(1),
    "aten.as_strided.default": _reaches_beyond,
}


CHECK_BEFOREHAND: Final = frozenset({"one_hot"})
"""Functions that look at data only where there are any, and are other operators on fakes."""


def may_raise(func: Any, is_view: bool) -> MayRaise | None:
    """Whether a call of this operator may; None if none does."""
    if is_view and str(func) not in _BY_OVERLOAD:
        return None
    namespace, _, name = func._schema.name.partition("::")
    name = name if name.startswith("__") else name.removesuffix("_")
    if namespace != "aten":
        return None if namespace == "prim" else _always
    special = _BY_OVERLOAD.get(str(func)) or _BY_NAME.get(name)
    if special is not None:
        return special
    safe = torch.Tag.pointwise in func.tags or name in SAFE or name == "masked_fill"
    if not safe:
        return _always
    # In-place calls are tried as a whole: what they become in the functional graph may not refuse.
    in_place = any(
        a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments
    )
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    if drawn:
        return None if name in _DRAWS_INTEGERS else _draws_unusual
    return None if in_place else RefusesDtypes(func)
