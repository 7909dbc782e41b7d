"""Fakes of wrapper subclasses: tensors made of others, which say themselves what operators do.

The one idea: such a class can take an object apart (`__tensor_flatten__`) and put one together of
other tensors (`__tensor_unflatten__`). One made of fakes is its fake: its `__torch_dispatch__` runs
as it always does, and what reaches the world are operators on the fakes inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pliant.fake.tensor import Fake

_NO_OVERRIDE: Any = (torch._C._disabled_torch_function_impl, torch.Tensor.__torch_function__)


def is_wrapper_class(cls: type) -> bool:
    """Whether objects of a class of tensors are taken apart and put together as PyTorch says, and
    have no other say in what functions do."""
    own: Any = cls
    if own.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or cls is Fake:
        return False
    if not all(hasattr(cls, f"__tensor_{verb}__") for verb in ("flatten", "unflatten")):
        return False
    override = own.__torch_function__
    return any(
        getattr(override, "__func__", override) is getattr(o, "__func__", o) for o in _NO_OVERRIDE
    )


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
