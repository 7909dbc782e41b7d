"""Fakes of wrapper subclasses: tensors made of others, which say themselves what operators do.

The one idea: such a class can take an object apart (`__tensor_flatten__`) and put one together of
other tensors (`__tensor_unflatten__`). One made of fakes is its fake: its `__torch_dispatch__` runs
as it always does, and what reaches the world are operators on the fakes inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake

RECIPE: Final = "wrapper"
"""Under this key a node of the graph has how its result is put together, if that is a wrapper."""

_NO_OVERRIDE: Any = (torch._C._disabled_torch_function_impl, torch.Tensor.__torch_function__)


def is_wrapper_class(cls: type) -> bool:
    """Whether objects of a class of tensors are taken apart and put together as PyTorch says."""
    own: Any = cls
    if own.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or cls is Fake:
        return False
    return all(hasattr(cls, f"__tensor_{verb}__") for verb in ("flatten", "unflatten"))


def overrides_functions(cls: type) -> bool:
    """Whether the program's own wrapper class overrides functions (`__torch_function__`), not only
    operators. The overrides of PyTorch's own classes run when a function is run on fakes."""
    own: Any = cls
    override = getattr(own.__torch_function__, "__func__", own.__torch_function__)
    default = any(override is getattr(o, "__func__", o) for o in _NO_OVERRIDE)
    return not default and not getattr(override, "__module__", "").startswith("torch.nested.")


def has_own_sizes(wrapper: torch.Tensor) -> bool:
    """Whether the wrapper shows a size that is no number: the ragged dimension of a jagged tensor.
    Its sizes follow from the tensors inside."""
    return wrapper.layout is torch.jagged


def is_wrapper(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_wrapper_class(type(value))


def make_wrapper(
    real: Any, inner: dict[str, torch.Tensor], context: Any, sizes: Any, strides: Any
) -> torch.Tensor:
    """One like `real`, made of these tensors."""
    with torch.no_grad():
        wrapper: torch.Tensor = type(real).__tensor_unflatten__(inner, context, sizes, strides)
    if wrapper.requires_grad is not real.requires_grad:
        wrapper.requires_grad_(real.requires_grad)
    return wrapper


def wrappers_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, (list, tuple, set)):
        for item in value:
            yield from wrappers_in(item)
    elif isinstance(value, dict):
        yield from wrappers_in(list(value.values()))
    elif isinstance(value, torch.Tensor) and type(value) is not Fake and is_wrapper(value):
        yield value


def fakes_inside(wrapper: Any) -> Iterator[Fake]:
    """The fakes that a wrapper is made of, also of wrappers."""
    names, _ = wrapper.__tensor_flatten__()
    for name in names:
        inner = getattr(wrapper, name)
        if type(inner) is Fake:
            yield inner
        elif is_wrapper(inner):
            yield from fakes_inside(inner)


def is_made_of_fakes(value: Any) -> bool:
    return is_wrapper(value) and any(True for _ in fakes_inside(value))


# --------------------------------------------------------------------------------------------------
# How they are made


@dataclass(frozen=True, slots=True, eq=False)
class WrapperRecipe:
    """How a wrapper is taken apart and put together: `inner` has the recipe of each tensor inside
    that is a wrapper itself. `dims`: for how many dimensions its class gets sizes and strides."""

    cls: Any
    names: tuple[str, ...]
    context: Any
    dims: int
    inner: tuple[WrapperRecipe | None, ...]

    @property
    def count(self) -> int:
        """Of plain tensors inside."""
        return sum(1 if below is None else below.count for below in self.inner)

    def make(self, parts: Sequence[Any], sizes: Any, strides: Any) -> Any:
        inner = dict(zip(self.names, parts, strict=True))
        with torch.no_grad():
            return self.cls.__tensor_unflatten__(inner, self.context, torch.Size(sizes), strides)

    def take_apart(self, wrapper: Any, parts: list[Any]) -> None:
        """Append the plain tensors inside."""
        for name, below in zip(self.names, self.inner, strict=True):
            tensor = getattr(wrapper, name)
            if below is None:
                parts.append(tensor)
            else:
                below.take_apart(tensor, parts)

    def put_together(self, flat: Iterator[Any]) -> Any:
        """The wrapper from a flat sequence: for each wrapper, innermost first, the plain tensors
        inside, then its sizes and strides."""
        parts = [next(flat) if below is None else below.put_together(flat) for below in self.inner]
        sizes, strides = ([next(flat) for _ in range(self.dims)] for _ in range(2))
        return self.make(parts, sizes, tuple(strides))


def recipe_of(wrapper: Any) -> WrapperRecipe | None:
    """None if the context of the wrapper is not the same for every call."""
    names, context = wrapper.__tensor_flatten__()
    changing = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
    # A tensor or symbol in the context is another one in each call.
    if any(isinstance(leaf, changing) for leaf in pytree.tree_leaves(context)):
        return None
    inner = []
    for name in names:
        tensor = getattr(wrapper, name)
        below = recipe_of(tensor) if is_wrapper(tensor) else None
        if below is None and type(tensor) is not Fake and is_wrapper(tensor):
            return None
        inner.append(below)
    dims = 0 if has_own_sizes(wrapper) else wrapper.dim()
    return WrapperRecipe(type(wrapper), tuple(names), context, dims, tuple(inner))


def recipe_if_complete(wrapper: Any) -> WrapperRecipe | None:
    """The same of a wrapper in the making, which may lack attributes."""
    try:
        return recipe_of(wrapper)
    except AttributeError:
        return None
