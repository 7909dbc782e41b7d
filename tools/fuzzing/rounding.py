"""How far eager PyTorch's own results move when operations round differently.

The one idea: compiled code may add in another order, or round an intermediate result one step later
than eager does. Running the program eagerly once more, with the inputs of every inexact operation
moved by a unit in the last place, shows how much that can matter for each element of each result.
What differs by more is a mistake.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tools.fuzzing.table import words

# Operations that move, choose or compare numbers: their results are exact.
EXACT = set(
    words("""
abs alias all any arange argmax argmin argsort as_strided bernoulli bernoulli_ bitwise_and
bitwise_not bitwise_or bitwise_xor cat ceil clamp clamp_max clamp_min clone constant_pad_nd copy
copy_ copysign count_nonzero cummax cummin detach diagonal embedding empty empty_like
empty_strided eq equal eye expand fill fill_ flip floor fmax fmin full full_like gather ge gt
hardtanh heaviside index index_copy index_copy_ index_fill index_fill_ index_put index_put_
index_select is_nonzero isfinite isinf isnan isneginf isposinf kthvalue le leaky_relu
local_scalar_dense logical_and logical_not logical_or logical_xor lt masked_fill masked_fill_
masked_scatter masked_scatter_ masked_select max maximum median min minimum mode nan_to_num
nanmedian narrow ne neg nextafter nonzero normal_ one_hot ones ones_like permute rand randn
randperm random_ relu relu_ repeat reshape roll round scalar_tensor scatter scatter_
searchsorted select set_ sgn sign signbit slice sort squeeze stack take to_copy topk transpose
tril triu trunc uniform_ unique2 unsqueeze view where zero_ zeros zeros_like amax amin aminmax
max_pool2d_with_indices reflection_pad1d replication_pad1d bucketize isin
""")
)
# The logarithm of a sum that is rounded: one and what little the others add to it.
AROUND_ONE = {"log_softmax", "logsumexp", "logcumsumexp"}
RUNS = 16  # of which a third may leave an element as it is, if few of its inputs matter


class Rounding(TorchDispatchMode):
    """Moves what inexact operations read and give by up to a unit in the last place, at random;
    those of seed 0 calculate in float64 instead, and then round, or, if it is float64 already,
    add in another order; those of seeds 1 and 2 move everything one way."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        name = schema.name.removeprefix("aten::").removeprefix("_")
        if name in EXACT or name.rstrip("_") in EXACT:
            return func(*args, **kwargs)
        args = _converted(args, kwargs.get("dtype") or _dtype_within(args, kwargs.get("out")))
        if any(value.alias_info is not None for value in schema.returns):  # a view, or written to
            moved = [
                value if spec.alias_info is not None else tree_map(self.moved, value)
                for spec, value in zip(schema.arguments, args)
            ]
            result = func(*moved, **kwargs)
            for spec, value in zip(schema.arguments, args):
                if spec.is_write and isinstance(value, torch.Tensor):
                    value.copy_(self.moved(value))
            return result
        if self.seed == 0:
            return self.wide(func, args, kwargs)
        result = func(*tree_map(self.moved, args), **kwargs)
        least = 1.0 if name in AROUND_ONE else 0.0
        return tree_map(lambda value: self.moved(value, least), result)

    def wide(self, func: Any, args: Any, kwargs: Any) -> Any:
        eager = func(*args, **kwargs)
        try:
            exact = IN_OTHER_ORDER.get(func, func)
            result = exact(*tree_map(_double, args), **kwargs)
            return tree_map(_like, result, eager)
        except Exception:  # mixed dtypes, or no kernel for float64
            return eager

    def moved(self, value: Any, least: float = 0.0) -> Any:
        """Units are those of numbers of `least` or more."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if not value.numel():
            return value
        step = torch.randint(-1, 2, value.shape, generator=self.generator).double()
        step = {1: torch.ones_like(step), 2: -torch.ones_like(step)}.get(self.seed, step)
        wide = value.double()
        info = torch.finfo(value.dtype)
        unit = wide.abs().clamp(min=max(info.smallest_normal, least)) * info.eps
        moved = torch.where(wide == 0, wide, wide + step * unit)
        # Nor infinities, nor beyond the range of the type, where eager's own rounding would not go
        # either.
        result = torch.where(moved.to(value.dtype).isfinite(), moved, wide)
        return torch.empty_like(value).copy_(result)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: Any, eps: Any
) -> Any:
    """Eager PyTorch adds the squares one after the other, so that equal ones round alike."""
    dims = [dim for dim in range(x.dim()) if dim != 1]
    if not training:
        return torch.ops.aten.native_batch_norm(x, weight, bias, mean, var, False, momentum, eps)
    spread, center = torch.var_mean(x, dims, correction=0, keepdim=True)
    invstd = (spread + eps).rsqrt()
    result = (x - center) * invstd
    shape = center.shape
    if weight is not None:
        result = result * weight.view(shape)
    if bias is not None:
        result = result + bias.view(shape)
    return result, center.flatten(), invstd.flatten()


# Operations that add in float64, whatever they are given, one number after the other.
IN_OTHER_ORDER = {torch.ops.aten.native_batch_norm.default: _batch_norm}


def _converted(args: Any, dtype: torch.dtype | None) -> Any:
    """Integers of which an operation computes floats (`sum(dtype=torch.float32)`) are floats
    before it adds any of them."""
    if dtype is None or not dtype.is_floating_point:
        return args

    def converted(value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        exact = is_tensor and not (value.is_floating_point() or value.is_complex())
        return value.to(dtype) if exact else value

    return tree_map(converted, args)


def _dtype_within(args: Any, out: Any) -> torch.dtype | None:
    """Functions of integers are computed in the default dtype, also if `out` is a wider one."""
    wider = isinstance(out, torch.Tensor) and out.dtype is torch.float64
    tensors = [value for value in args if isinstance(value, torch.Tensor)]
    exact = all(not (t.is_floating_point() or t.is_complex()) for t in tensors)
    return torch.get_default_dtype() if wider and exact else None


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _like(value: Any, eager: Any) -> Any:
    if isinstance(value, torch.Tensor) and isinstance(eager, torch.Tensor):
        return torch.empty_like(eager).copy_(value)
    return eager


def accepted(
    ours: torch.Tensor, eager: torch.Tensor, others: list[torch.Tensor | None]
) -> torch.Tensor:
    """For each element whether rounding explains it; `others` are eager's results with rounding."""
    if any(other is None or other.shape != eager.shape for other in others):
        return torch.ones(eager.shape, dtype=torch.bool)  # rounding decides what the program does
    if not eager.is_floating_point():
        unstable = [other.ne(eager) for other in others if other is not None]
        return torch.stack([ours.eq(eager), *unstable]).any(0)
    a, b = ours.double(), eager.double()
    moved = torch.stack([other.double() for other in others if other is not None])
    noise = torch.where(moved == b, 0.0, (moved - b).abs()).amax(0)  # of infinities, too
    normal = torch.finfo(eager.dtype).smallest_normal  # below it units don't get smaller
    close = (a - b).abs() <= _base(eager.dtype) * b.abs().clamp(min=normal) + 10 * noise
    close = close & (b.isfinite() | (noise > 0)) | a.eq(b)  # infinities
    # Next to a pole everything is large and of either sign; on it, infinite or not a number.
    at_pole = ~a.isfinite() & (b.abs() > torch.finfo(eager.dtype).eps ** -0.5) & (noise >= b.abs())
    same_kind = a.isfinite() == b.isfinite()
    unstable = ((moved.isfinite() != b.isfinite()) | (moved.isnan() != b.isnan())).any(0)
    sign_moves = (moved.signbit() != b.signbit()).any(0) | (noise > 0)
    same_sign = (b != 0) | (a.signbit() == b.signbit()) | sign_moves
    return (close & same_kind & same_sign) | (a.isnan() & b.isnan()) | unstable | at_pole


def decides_shape(ours: torch.Size, eager: torch.Size, others: list[torch.Size | None]) -> bool:
    """Whether rounding explains every size that differs; `others` are eager's with rounding."""
    known = [other for other in others if other is not None]
    if len(known) < len(others) or any(len(other) != len(eager) for other in known):
        return True  # rounding decides what the program does
    if len(ours) != len(eager):
        return False
    noise = [max(abs(n - m) for n in sizes) for m, sizes in zip(eager, zip(*known))]
    return all(abs(n - m) <= 10 * most for n, m, most in zip(ours, eager, noise))


def unstable_containers(eager: list[str], others: list[list[str]]) -> set[str]:
    """The containers of which rounding decides what is in them; `others` are eager's paths with
    rounding."""
    paths = set().union(*[set(eager).symmetric_difference(other) for other in others])
    return {path.rpartition(".")[0] for path in paths}


def _base(dtype: torch.dtype) -> float:
    eps = torch.finfo(dtype).eps
    return eps * (64 if dtype in (torch.float32, torch.float64) else 2)
