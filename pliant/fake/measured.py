"""How a kernel of the CPU lays its results out, measured by running it.

The one idea: meta kernels, many of which PyTorch has a second time in Python, differ from the real
ones where a size is 1, and where `out=` is resized. So the operator itself is run, on zeros with
the metadata of its arguments, if these are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch

from pliant.base.devices import CPU, META
from pliant.base.isolation import FATAL, without_warnings
from pliant.base.values import dataclass
from pliant.fake.calls import Arguments
from pliant.fake.errors import Unsupported
from pliant.fake.layout import ask_for_ones
from pliant.fake.order import hint, is_contiguous
from pliant.fake.overload import Overload, without_out
from pliant.fake.tensor import Fake, resize
from pliant.fake.trial import MOST_BYTES, NotTried, Reals, memory_of, specialise


@dataclass(frozen=True, slots=True)
class Measured:
    """What the kernel returned, and its arguments afterwards."""

    result: Any
    reals: Reals

    def after(self, fake: Fake) -> torch.Tensor:
        """A meta tensor that lies as `fake` does after the call."""
        return _as_meta(self.reals.swap(fake))


def measure(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], fakes: Sequence[Fake]
) -> Measured | None:
    """Run the operator on real tensors with the metadata of its arguments, symbolic sizes as they
    are now. None if that is impossible or too large; an error of the operator is raised."""
    # Other libraries' operators may do anything, drawing would use up random numbers, and kernels
    # that follow indices without a check crash on zeros, or on a workspace that is too small.
    if op.func.namespace != "aten" or op.draws is not None:
        return None
    if op.record.trusts_indices or op.record.trusts_sizes:
        return None
    if any(t.device != CPU for t in fakes):
        return None
    reals = Reals(CPU)
    try:
        if sum(map(memory_of, fakes)) > MOST_BYTES:
            return None
        real_args, named = reals.swap(args), reals.swap(kwargs)
    except NotTried:
        return None

    def run() -> Any:
        with torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
            return op.func(*real_args, **named)

    return Measured(without_warnings(Warning, run), reals)


def with_ones(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], fakes: Sequence[Fake], meta: Any
) -> Any:
    """`meta`, which the meta kernel returned, in the layout that the kernel gives new tensors."""
    results = list(_tensors_in(meta))
    if any(t._has_symbolic_sizes_strides for t in results):  # from numbers, without any tensor
        return meta
    # Elsewhere meta kernels agree with kernels, as the sweep of all operators tests.
    if not any(0 in t.shape or 1 in t.shape for t in (*fakes, *results)):
        return meta
    real = _measured_result(op, args, kwargs, fakes, meta)
    return meta if real is None else _laid_out_as(meta, real)


AGAIN: Final = object()


def with_symbols(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], fakes: Sequence[Fake], meta: Any
) -> Any:
    """As `with_ones` for symbolic sizes, at their present values.

    If the kernel's layout differs from `meta`, the sizes become constants. Before that, sizes that
    are 1 are guarded to be; if that is new, the result is AGAIN: ask the meta kernel once more.
    """
    sizes = [size for t in (*fakes, *_tensors_in(meta)) for size in t.size()]
    empty = any(hint(size) == 0 and type(size) is not int for size in sizes)
    if empty or (1 not in map(hint, sizes) and all(map(is_contiguous, fakes))):
        return meta
    real = _measured_result(op, args, kwargs, fakes, meta)
    if real is None or _is_laid_out_as(meta, real):
        return meta
    if ask_for_ones(sizes):
        return AGAIN
    # No symbolic layout is known to be right, so this entry is for these sizes alone.
    specialise((args, kwargs))
    return _laid_out_as(meta, real)


def _measured_result(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], fakes: Sequence[Fake], meta: Any
) -> Any:
    """What the kernel returns for these arguments, or None if it can't be run or is too large."""
    shapes = [tuple(map(hint, t.shape)) for t in _tensors_in(meta)]
    if op.written or any(None in shape or math.prod(shape) > MOST_BYTES for shape in shapes):
        return None
    try:
        measured = measure(op, args, kwargs, fakes)
    except FATAL:
        raise
    except Exception:  # when it runs it will be known why
        return None
    return None if measured is None else measured.result


def resize_written(
    dispatch: Callable[..., Any],
    op: Overload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    read: Arguments,
    twins: dict[Fake, torch.Tensor],
) -> None:
    """Give tensors of `out=` their new layout. The meta kernel knows the sizes, also symbolic
    ones; the kernel itself is run for the strides, at the sizes of this call."""
    read.reusable = False  # another time there is nothing left to resize
    measured = measure(op, args, kwargs, read.fakes)
    if measured is None and any(map(read.is_shared, twins)):
        raise Unsupported("resized while it is read")
    symbolic = any(t._has_symbolic_sizes_strides for t in (*read.fakes, *twins.values()))
    strides = {} if measured and not symbolic else _strides_of_results(dispatch, op, args, kwargs)
    layouts = {t: _strided(twin, strides.get(t)) for t, twin in twins.items()}
    if measured and not (symbolic and all(_lies_so(layouts[t], measured.after(t)) for t in twins)):
        specialise((args, kwargs))
        layouts = {t: measured.after(t) for t in twins}
    for t, layout in layouts.items():
        resize(t, layout)


def _strided(twin: torch.Tensor, strides: Any) -> torch.Tensor:
    return twin if strides is None else twin.as_strided(twin.size(), strides, twin.storage_offset())


def _lies_so(layout: torch.Tensor, real: torch.Tensor) -> bool:
    """Whether a symbolic layout is that of the kernel now."""
    numbers = (*layout.size(), *layout.stride())
    return tuple(map(hint, numbers)) == (*real.size(), *real.stride())


def _strides_of_results(
    dispatch: Callable[..., Any], op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[Fake, Any]:
    """For each tensor that an `out=` call writes: the strides that it gets if it is resized. They
    are those of the result of the same call without `out=`."""
    plain = without_out(op.func)
    if plain is None:
        return {}
    targets = [argument.of(args, kwargs) for argument in op.written]
    names = {argument.name for argument in op.written}
    results = dispatch(plain, args, {n: v for n, v in kwargs.items() if n not in names})
    results = results if isinstance(results, tuple) else (results,)
    return {t: result.stride() for t, result in zip(targets, results, strict=True)}


def _laid_out_as(meta: Any, real: Any) -> Any:
    if isinstance(meta, list | tuple) and isinstance(real, list | tuple):
        return type(meta)(map(_laid_out_as, meta, real)) if len(meta) == len(real) else meta
    alike = isinstance(meta, torch.Tensor) and isinstance(real, torch.Tensor)
    if not alike or meta.device != META or meta.shape != real.shape or meta.dtype != real.dtype:
        return meta
    return meta if meta.stride() == real.stride() else _as_meta(real)


def _is_laid_out_as(meta: Any, real: Any) -> bool:
    if isinstance(meta, list | tuple) and isinstance(real, list | tuple):
        return len(meta) != len(real) or all(map(_is_laid_out_as, meta, real))
    if not isinstance(meta, torch.Tensor) or not isinstance(real, torch.Tensor):
        return True
    sizes, strides = (tuple(map(hint, numbers)) for numbers in (meta.size(), meta.stride()))
    return sizes != real.shape or strides == real.stride()


def _as_meta(real: torch.Tensor) -> torch.Tensor:
    size = real.untyped_storage().nbytes() // real.itemsize
    memory = torch.empty(size, dtype=real.dtype, device=META)
    return memory.as_strided(real.size(), real.stride(), real.storage_offset())


def _tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)
