"""Calls that are written down as they were captured, because their parts can't be.

The one idea: what a captured function returns was found out when it was captured, without asking
anything that is not known now. So where PyTorch's way of taking it apart asks more, or does
something that has no functional form, the function is called as it is and looks the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake.op import describe
from pliant.fake.tensor import Fake
from pliant.graph import autocast
from pliant.graph.ir import Node


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A function of Python's in the place of an operator. Called with all arguments by position,
    the last ones those that have `names`."""

    function: Callable[..., Any]
    names: tuple[str, ...]

    def __call__(self, *args: Any) -> Any:
        count = len(args) - len(self.names)
        with torch.no_grad():
            return self.function(*args[:count], **dict(zip(self.names, args[count:])))


def draws(node: Node) -> bool:
    """Whether the call draws random numbers."""
    if isinstance(node.func, Whole):
        return node.effect
    known = describe(node.func).draws if isinstance(node.func, torch._ops.OpOverload) else None
    return known is not None and known(node.args, node.kwargs)


def on_new_memory(write: Callable[..., Any], t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """What an operator that writes to a tensor would write to this one."""
    made = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
    write(made, *args, **kwargs)
    return made


def write_whole(
    recorder: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Write down the call; NotImplemented if it does more than to make new tensors."""
    if autocast.enabled():  # when the code runs, it may not be
        return NotImplemented
    # As when it was captured: above autograd, where PyTorch may take it apart in other ways.
    with recorder.quietly(), torch._C._ForceDispatchKeyGuard(*recorder.above):
        told = recorder.run(function, args, kwargs)
    result = told.value
    made = list(_leaves(result))
    if told.mutated or not made or not all(type(leaf) is Fake for leaf in made):
        return NotImplemented
    given = [leaf for leaf in _leaves((args, kwargs)) if type(leaf) is Fake]
    memory = [t.untyped_storage()._cdata for t in made]
    if len(set(memory)) < len(memory) or {t.untyped_storage()._cdata for t in given} & set(memory):
        return NotImplemented
    name = getattr(function, "__name__", type(function).__name__)
    taken = tuple(map(recorder.given, args))
    named = {key: recorder.given(value) for key, value in kwargs.items()}
    whole = Whole(function, tuple(named))
    node = Node(f"python.{name}", whole, taken, named, effect=told.random)
    recorder.add(node, made)
    return result


def _leaves(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    else:
        yield value
