"""Kernels on CPU tensors, for tests: Triton's interpreter runs the source on NumPy arrays.

The one idea: the source and `library` are what is compiled for a GPU, too. Only what has no code in
Triton's language is replaced: functions of libdevice, and reductions, which the interpreter makes
element by element.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any, Final

import numpy as np
import torch
import triton.language as tl
from triton.runtime.interpreter import (
    InterpretedFunction,
    InterpreterOptions,
    TensorHandle,
    interpreter_builder,
)

from pliant.targets.triton import library


def _tensor(data: np.ndarray[Any, Any], like: Any) -> Any:
    block = any(arg.type.is_block() for arg in like)
    dtype = like[0].dtype
    tensor_type = tl.block_type(dtype, list(data.shape)) if block else dtype
    return tl.core.tensor(TensorHandle(data, dtype), tensor_type)


def _int(number: Any) -> int:
    return number if isinstance(number, int) else int(number.handle.data.item())


def _from_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """A function of floats on the tensors of the interpreter."""

    def call(*args: Any) -> Any:
        arrays = np.broadcast_arrays(*[arg.handle.data for arg in args])
        result = function(*[torch.from_numpy(np.array(array)) for array in arrays])
        return _tensor(result.numpy(), args)

    return call


_SAME_NAMES: Final = (
    ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh", "erf")
    + ("erfc", "pow", "sinh", "cosh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")
    + ("lgamma", "hypot", "nextafter", "fmod", "copysign", "floor", "ceil", "trunc")
    + ("rsqrt",)
)
_LIBDEVICE: Final[dict[str, Any]] = {
    **{name: getattr(torch, name) for name in _SAME_NAMES},
    "nearbyint": torch.round,
}


def _along(function: Any, boolean: bool = False) -> Callable[..., Any]:
    """A reduction of rows."""

    def call(x: Any) -> Any:
        data = np.asarray(function(x.handle.data, axis=1, keepdims=True))
        return _tensor(data if boolean else data.astype(x.handle.data.dtype), (x,))

    return call


def namespace() -> dict[str, Any]:
    """The globals of a kernel that is interpreted."""
    libdevice = {name: _from_torch(function) for name, function in _LIBDEVICE.items()}
    names: dict[str, Any] = {
        "triton": SimpleNamespace(jit=InterpretedFunction),
        "tl": tl,
        "libdevice": SimpleNamespace(**libdevice),
        "range": lambda *args: range(*map(_int, args)),
        "tile_range": lambda *args, flatten: range(*map(_int, args)),
    }
    for name in library.NAMES:
        names[name] = FunctionType(getattr(library, name).fn.__code__, names, name)
    reductions = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min}
    names |= {f"{name}_along": _along(function) for name, function in reductions.items()}
    names |= {"any_along": _along(np.any, True), "all_along": _along(np.all, True)}
    return names


def _narrowed(source: Any, target: Any) -> Any:
    """A float of fewer bits, to the nearest; the interpreter cuts off what a bfloat16 lacks."""
    if target.scalar != tl.bfloat16:
        return interpreter_builder.cast_impl(source, target)
    rounded = torch.from_numpy(np.array(source.data)).to(torch.bfloat16)
    return TensorHandle(rounded.view(torch.uint16).numpy(), tl.bfloat16)


def _widened(source: Any, target: Any) -> Any:
    """A float of more bits; the interpreter loses those of the smallest bfloat16s."""
    if source.dtype.scalar != tl.bfloat16:
        return interpreter_builder.cast_impl(source, target)
    bits = torch.from_numpy(np.array(source.data)).view(torch.bfloat16)
    wide = bits.double() if target.scalar == tl.float64 else bits.float()
    return TensorHandle(wide.numpy(), target.scalar)


def _spread(target: Any, source: Any) -> Any:
    """A scalar as a block; the interpreter takes a comparison for what it compared."""
    data = np.full(target.shape, source.data)
    return TensorHandle(data, tl.int1 if data.dtype == np.bool_ else source.dtype.scalar)


def _dot(a: Any, b: Any, total: Any, *options: Any) -> Any:
    """A product of matrices; the interpreter multiplies the bits of bfloat16s."""
    if a.dtype.scalar == tl.bfloat16:
        a, b = _widened(a, tl.float32), _widened(b, tl.float32)
    return _plain_dot(a, b, total, *options)


_plain_dot: Final = interpreter_builder.create_dot
interpreter_builder.create_dot = _dot
interpreter_builder.create_fp_trunc = _narrowed
interpreter_builder.create_fp_ext = _widened
interpreter_builder.create_splat = _spread
# With assertions, and without those that integers don't overflow.
interpreter_builder.options = InterpreterOptions(debug=True, sanitize_overflow=False)


def run(function: Any, grid: int, args: tuple[Any, ...], constants: dict[str, Any]) -> None:
    """Run all programs of a grid, one after the other."""
    with np.errstate(all="ignore"), torch._C.DisableTorchFunction():
        function[(grid,)](*args, **constants)
