"""What an operator returned, as a recipe from which the same can be made again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake.errors import Unsupported
from pliant.fake.overload import Argument, Overload
from pliant.fake.tensor import Fake, make


@dataclass(frozen=True, slots=True)
class New:
    """A new tensor."""

    sizes: Any
    strides: Any
    offset: Any
    dtype: torch.dtype
    device: torch.device
    conj: bool  # not yet conjugated in memory

    def build(
        self, world: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Fake:
        fake = make(world, self.sizes, self.strides, self.offset, self.dtype, self.device)
        if self.conj:
            torch._C._set_conj(fake, True)
        return fake


@dataclass(frozen=True, slots=True)
class Same:
    """One of the arguments."""

    argument: Argument

    def build(self, world: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.argument.of(args, kwargs)


@dataclass(frozen=True, slots=True)
class Constant:
    """A number or None."""

    value: Any

    def build(self, world: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.value


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or a list of results."""

    container: type
    items: tuple[Recipe, ...]

    def build(self, world: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.container([item.build(world, args, kwargs) for item in self.items])


@dataclass(frozen=True, slots=True)
class Alias:
    """A view that the schema doesn't declare (`_unsafe_view`): the operator is run as a view."""

    def build(self, world: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise AssertionError("an alias is not built from a recipe")


Recipe = New | Same | Constant | Several | Alias


def recipe_for(
    op: Overload, result: Any, device: torch.device, twins: Iterable[torch.Tensor]
) -> Recipe:
    """The recipe of what the meta kernel of `op` returned for arguments with these twins."""
    if any(op.returned):
        if len(op.returned) == 1:
            return _part(op.returned[0], result, device)
        parts = (_part(a, r, device) for a, r in zip(op.returned, result, strict=True))
        return Several(tuple, tuple(parts))
    # Twins share storages as the fakes do, so a result in one of them is a view.
    memory = {t.untyped_storage()._cdata for t in twins}
    if any(t.untyped_storage()._cdata in memory for t in _tensors(result)):
        return Alias()
    return _part(None, result, device)


def _part(argument: Argument | None, result: Any, device: torch.device) -> Recipe:
    if argument is not None:
        return Same(argument)
    if isinstance(result, torch.Tensor):
        if result.is_quantized or result.layout is not torch.strided:
            raise Unsupported("quantized" if result.is_quantized else "sparse")
        # A tensor that a meta kernel made elsewhere is one that the operator always puts there.
        place = device if result.device.type == "meta" else result.device
        sizes, strides, offset = result.size(), result.stride(), result.storage_offset()
        return New(sizes, strides, offset, result.dtype, place, result.is_conj())
    if isinstance(result, (list, tuple)):
        container = list if isinstance(result, list) else tuple
        return Several(container, tuple(_part(None, r, device) for r in result))
    return Constant(result)


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [t for r in result for t in _tensors(r)] if isinstance(result, (list, tuple)) else []
