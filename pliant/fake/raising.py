"""Which operators may raise at run time, because of the numbers in a tensor.

The one idea: an operator may, unless it is known not to. What may raise is run even if nobody needs
its result, and before inputs are overwritten. Sizes don't count: what they make an operator refuse
was refused in the capture, or tried then (`trial.py`). Dtypes do, since fakes take some that the
kernel doesn't.

    a[i], a.gather(0, i)      may: an index may be out of range
    a // b of integers        may: a division by 0
    a + b, a.view(2, 3)       don't: pointwise operators and views
    as_strided                may: the view may need more memory than there is
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from pliant.base.operators import record_of
from pliant.sym.expr import ZERO, Expr
from pliant.sym.floats import FloatExpr
from pliant.sym.node import SYMBOLIC

MayRaise = Callable[[tuple[Any, ...], dict[str, Any]], bool]


def converts(at: int) -> MayRaise:
    """A rule for operators that convert an argument (`at` or `value`) to the dtype of the first
    one: may raise if the dtypes differ, as the number may not fit."""

    def may_raise(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        value = args[at] if len(args) > at else kwargs.get("value")
        return getattr(value, "dtype", None) is not args[0].dtype

    return may_raise


def overflows(at: int) -> MayRaise:
    """A rule for operators that convert a number (`at`, or the first keyword argument) to the dtype
    of the result: may raise if it is out of range of that."""

    def may_raise(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        value = args[at] if len(args) > at else next(iter(kwargs.values()), None)
        like = getattr(args[0], "dtype", None) if args else None
        dtype = kwargs.get("dtype") or like or torch.get_default_dtype()
        if isinstance(value, bool) or dtype is torch.bool:
            return False
        if not isinstance(value, int | float):
            # It may be another one in the next call. Of wide types that isn't asked.
            return dtype is torch.float16 or dtype in _NARROW_INTEGERS
        if dtype.is_floating_point or dtype.is_complex:
            return math.isfinite(value) and abs(value) > torch.finfo(dtype).max
        info = torch.iinfo(dtype)
        return not info.min <= value <= info.max  # nan is neither

    return may_raise


_NARROW_INTEGERS: Final = frozenset(
    (torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64)
)


def _draws_unusual(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """A rule for operators that draw random numbers: may raise for dtypes other than floats, of
    which not every distribution has some. That can't be tried: it would draw."""
    dtypes = [v.dtype for v in (*_flat(args), *_flat(kwargs.values())) if _is_tensor(v)]
    requested = kwargs.get("dtype")
    return any(not d.is_floating_point for d in (dtypes if requested is None else [requested]))


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
        if not tensors:
            return False
        if any(map(_is_empty, tensors)):  # meta kernels don't look at sizes that the others refuse
            return True
        # Floats are what every kernel takes.
        if _USUAL.issuperset([v.dtype for v in tensors]) and bool not in map(type, values):
            return False
        if any(isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in tensors):
            return False
        types = [v.dtype if _is_tensor(v) else type(v) for v in values]
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
            if type(value) in (int, float):  # of any size: what is out of range is `overflows`
                return min(value, 2)
            if isinstance(value, SYMBOLIC):
                return value.node.pytype(1)
            return 1 if isinstance(value, Expr | FloatExpr) else value  # of the functional graph

        try:
            self.func(*map(small, args), **{name: small(value) for name, value in kwargs.items()})
        except (RuntimeError, TypeError, IndexError, ValueError):
            return False
        return True


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


def never(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return False


def always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def is_float_argument(value: Any) -> bool:
    """Whether an argument is a float: a number, or a tensor of floats."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return not isinstance(value, int | torch.SymInt) and not hasattr(value, "symbols")
    return bool(dtype.is_floating_point or dtype.is_complex)


def may_raise(func: Any, is_view: bool) -> MayRaise | None:
    """Whether a call of this operator may; None if none does."""
    rule = record_of(str(func)).raises
    if is_view and rule is None:
        return None
    namespace, _, name = func._schema.name.partition("::")
    # `add_` has the record of `add`; `__and__` is a name of its own.
    name = name if name.startswith("__") else name.removesuffix("_")
    if namespace != "aten":
        return None if namespace == "prim" else always
    record = record_of(f"aten.{name}")
    rule = rule or record.raises
    if rule is not None and rule is not never:
        return rule
    if rule is None and torch.Tag.pointwise not in func.tags:
        return always
    # In-place calls are tried as a whole: what they become in the functional graph may not refuse.
    in_place = any(
        a.alias_info is not None and a.alias_info.is_write for a in func._schema.arguments
    )
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    if drawn:
        return None if record.draws_integers else _draws_unusual
    return None if in_place else RefusesDtypes(func)
