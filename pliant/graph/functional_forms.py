"""The functional form of an operator that writes: what computes the same, into new memory.

The one idea: PyTorch names them alike. `add_.Tensor` and `add.out` write what `add.Tensor` gives,
so the form is found by its name, and taken only if its schema has the same types.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.fake.meta import MASKS
from pliant.fake.overload import Overload, OverloadKind, describe
from pliant.fake.raising import overflows
from pliant.fake.tensor import Fake
from pliant.graph.aliases import NotFunctionalized, item_of, results_in, wrapped_dtype

OUT_TO: Final = {"out": "Tensor"}  # overloads of functional forms that are named otherwise

ZEROS_WITH_MEMORY: Final = {
    torch.ops.aten._efficientzerotensor.default: torch.ops.aten.zeros.default
}
"""Operators to call instead: a zero gradient has no memory in eager PyTorch, which kernels need."""


def functional_of(op: Overload) -> Any:
    """The operator that computes what this one writes."""
    if op.record.functional is not None:
        return op.record.functional
    name = op.func._schema.name.split("::")[1]
    overload = op.func._overloadname
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    overloads = [overload, overload.removesuffix("_out"), OUT_TO.get(overload, ""), "default"]
    if not op.func._schema.name.startswith("aten::") or packet is None:
        raise NotFunctionalized(f"{op.name} has no functional form")
    # `add_.Tensor` belongs to `add.Tensor`; overloads of `out` have names of their own (`add.out`,
    # `sum.IntList_out`).
    for candidate in overloads if not name.endswith("_") else [overload]:
        form = getattr(packet, candidate, None) if candidate in packet.overloads() else None
        if form is None or describe(form).kind not in (
            OverloadKind.FUNCTIONAL,
            OverloadKind.COMPOSITE,
        ):
            continue
        # `normal_` and `normal` share a name, and take different arguments.
        if _types(form) == _types(op.func):
            return form
    raise NotFunctionalized(f"{op.name} has no functional form")


def write_beside(
    world: Any, op: Overload, target: Fake, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """An operator that returns something new, and writes to an argument beside that. Its functional
    form returns both."""
    memory = target.untyped_storage()._cdata
    tensors = results_in((args, tuple(kwargs.values())))
    if [t.untyped_storage()._cdata for t in tensors].count(memory) > 1:
        raise NotFunctionalized(f"{op.name} reads what it writes")
    with torch._C._AutoDispatchBelowAutograd(), world:
        *results, written = functional_of(op)(*args, **kwargs)
    world.store(target, written, op.name)
    return results[0] if len(results) == 1 else tuple(results)


def _types(func: Any) -> list[str]:
    """The types of an operator's arguments, without those that it writes its result to."""
    return [str(a.type) for a in func._schema.arguments if not a.is_out]


def written_number(
    op: Overload, target: torch.Tensor, number: Any
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call that makes what is written where `target` is filled with a number, or gets a copy of
    one. It may have another dtype."""
    sizes: list[Any] = []
    dtype = target.dtype
    wrapped = wrapped_dtype(number)
    if isinstance(number, torch.Tensor):
        number, dtype = item_of(number), number.dtype
    elif op.name == "aten.copy_.default" and wrapped is not None:
        dtype = wrapped  # a number that is copied is cast, whatever it is
    elif _may_overflow(([], number), {"dtype": dtype}):
        # PyTorch refuses to fill it in, but not for one element of a half type.
        sizes = list(target.size())
    like = {"dtype": dtype, "device": target.device}
    return torch.ops.aten.full.default, (sizes, number), like


_may_overflow: Final = overflows(1)  # of `full(sizes, number, dtype=...)`


def fills_mask(args: tuple[Any, ...]) -> bool:
    """Whether places in a mask get a number of the CPU, which eager PyTorch reads first."""
    masks = all(index is None or index.dtype in MASKS for index in args[1])
    return masks and not args[2].dim() and args[2].device.type == "cpu" and not any(args[3:])
