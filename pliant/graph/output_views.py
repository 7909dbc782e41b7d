"""Outputs that alias an input or one another, where autograd has to see that they do.

The one idea: a compiled graph is one step of autograd, whose results are tensors of their own. What
eager returns as a view is made behind that step, by PyTorch's own view operators, from the input or
from the base, which the step returns in its place. So autograd and aliasing are eager's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, TensorAlias
from pliant.graph.ir import symbols_in, tensors_in

DETACH: Final = torch.ops.aten.detach.default
DEFAULT: Final[Any] = torch._C._autograd.CreationMeta.DEFAULT
_get_creation_meta: Any = torch._C._autograd._get_creation_meta


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """A view operator behind its first argument; `position` says which of its results, if they are
    several."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class ViewOutput:
    """The output with number `output` is a view of an input (`of_input`) or of another output.
    `grad`: made with the grad mode on. `creation`: how, on which autograd's errors for writes
    depend."""

    output: int
    source: int
    of_input: bool
    steps: tuple[ViewStep, ...]
    grad: bool
    creation: Any
    detached: tuple[int, int] | None  # a number for the last tensor on the way that was detached,
    # and how many steps lead to it: its views are views of that one
    same_as: int  # the first output that is the same tensor of the program

    @property
    def symbols(self) -> frozenset[Any]:
        arguments = [(step.args, step.kwargs) for step in self.steps]
        return frozenset(symbols_in(arguments))


@dataclass(frozen=True, slots=True, eq=False)
class OutputViews:
    """`bases` tells of each base, which are returned behind the outputs, an output that is a view
    of it or itself; None where none of them requires grad."""

    views: tuple[ViewOutput, ...]
    bases: tuple[int | None, ...]


def separate_views(
    world: AliasWorld, outputs: list[Any], inputs: Sequence[Any]
) -> tuple[list[Any], OutputViews]:
    """The outputs without those that alias something (0 in their place), then the bases of these;
    and how to make them."""
    # Reversed, so that the first place of a tensor that is returned twice wins.
    first = {id(out): at for at, out in reversed(list(enumerate(outputs)))}
    views: list[ViewOutput] = []
    groups: dict[int, list[int]] = {}
    for at, out in enumerate(outputs):
        if type(out) is Fake and not any(out is fake for fake in inputs):
            base = world.alias(out).base
            if base.input is None:
                groups.setdefault(id(base), []).append(at)
            else:
                root = inputs[base.input]
                views.append(_view(world, out, root, (at, base.input, True), first[id(out)]))
    bases: list[Fake] = []
    carriers: list[int | None] = []
    for members in groups.values():
        # One tensor, maybe returned twice, aliases nobody else: the step returns it itself.
        alone = all(outputs[at] is outputs[members[0]] for at in members)
        if alone and not _refuses_writes(outputs[members[0]]):
            continue
        root = world.root(outputs[members[0]])
        source = len(outputs) + len(bases)
        for at in members:
            out = outputs[at]
            views.append(_view(world, out, root, (at, source, False), first[id(out)]))
        bases.append(root)
        # For eager runs of the graph, where the base is reached from one of its views
        # (`WithBases`).
        carriers.append(next((at for at in members if outputs[at].requires_grad), None))
    behind = {view.output for view in views}
    # A number in the place of a tensor, so that the places of the others stay as they are.
    remaining = [0 if at in behind else out for at, out in enumerate(outputs)]
    return remaining + bases, OutputViews(tuple(views), tuple(carriers))


def _refuses_writes(out: Fake) -> bool:
    """Whether autograd raises if the caller writes to it: one of several views that were made at
    once, say."""
    return out._is_view() and _get_creation_meta(out) != DEFAULT


def _view(
    world: AliasWorld, out: Fake, root: Fake, places: tuple[int, int, bool], same_as: int
) -> ViewOutput:
    aliases = _chain(world.alias(out))
    steps = tuple(map(_step, aliases))
    ends = [at for at, step in enumerate(steps) if step.func is DETACH]
    detached = (id(aliases[ends[-1]]), ends[-1] + 1) if ends else None
    if out is not root:
        if not steps:
            raise NotFunctionalized("an output that is an input under another name")
        # An input is itself a view, of all the memory that it is in.
        base = root if root._base is None else root._base
        if out.requires_grad and (ends or out._base is not base):
            raise NotFunctionalized("a view whose history is not that of its base")
    # Made without grad, a view of a leaf is a leaf too, and others don't require grad.
    without = root.requires_grad and not ends and (not out.requires_grad or out.is_leaf)
    creation = _get_creation_meta(out) if out._is_view() else DEFAULT
    return ViewOutput(*places, steps, out is root or not without, creation, detached, same_as)


def _chain(alias: TensorAlias) -> list[TensorAlias]:
    """The views on the way from the base."""
    chain: list[TensorAlias] = []
    while alias.parent is not None:
        chain.append(alias)
        alias = alias.parent
    return chain[::-1]


def _step(alias: TensorAlias) -> ViewStep:
    assert alias.op is not None
    args, kwargs = alias.args[1:], alias.kwargs or {}
    if tensors_in((args, kwargs)):
        raise NotFunctionalized(f"{alias.op.name} with a tensor that says where")
    return ViewStep(alias.op.func, args, kwargs, alias.position)
