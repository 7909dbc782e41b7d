"""Outputs that alias an input or one another, where autograd has to see that they do.

The one idea: a compiled graph is one step of autograd, whose results are tensors of their own. What
eager returns as a view is made behind that step, by PyTorch's own view operators, from the input or
from the base, which the step returns in its place. So autograd and aliasing are eager's. Without
gradients, the launcher makes plain views itself, and those that autograd treats otherwise are made
here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, TensorAlias
from pliant.graph.ir import symbols_in, tensors_in

DETACH: Final = torch.ops.aten.detach.default
AS_COMPLEX: Final = torch.ops.aten.view_as_complex.default
DEFAULT: Final[Any] = torch._C._autograd.CreationMeta.DEFAULT
_get_creation_meta: Any = torch._C._autograd._get_creation_meta


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """A call of a view operator, without its first argument. `position`: which of its results, if
    there are several. `grad`: the grad mode that it is called in."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    position: int
    grad: bool


@dataclass(frozen=True, slots=True, eq=False)
class ViewOutput:
    """The output with number `output` is a view of an input (`of_input`) or of another output.
    `creation`: how it was made, on which autograd's errors for writes depend."""

    output: int
    source: int
    of_input: bool
    steps: tuple[ViewStep, ...]
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
    """The views among the outputs of a graph. Their bases are returned behind the outputs; `bases`
    has for each of them an output that is a view of it, or is it, from which an eager run finds the
    base; None if PyTorch can't tell it from any output. `replaced`: inputs whose `data` is to be
    the result with a number, behind these."""

    views: tuple[ViewOutput, ...] = ()
    bases: tuple[int | None, ...] = ()
    replaced: tuple[tuple[int, int], ...] = ()


def separate_views(
    world: AliasWorld, outputs: list[Any], inputs: Sequence[Any]
) -> tuple[list[Any], OutputViews]:
    """Take the views out of the outputs: these with 0 in the place of each that aliases an input or
    another output, then the bases; and how to make the views of them."""

    def kept(members: Sequence[Fake]) -> bool:
        alone = _is_new(world, members[0]) and _is_one(members)
        return alone and not _refuses_writes(members[0])

    return _separate(world, outputs, inputs, kept)


def separate_unusual_views(
    world: AliasWorld,
    outputs: list[Any],
    inputs: Sequence[Any],
    grad: bool | None,
    requires_grad: Callable[[Fake], bool],
    stays: Callable[[Sequence[Fake]], bool] = lambda members: False,
) -> tuple[list[Any], OutputViews]:
    """The same for a graph without gradients, where the launcher makes plain views itself: only
    those that autograd treats otherwise are taken out. `grad`: the grad mode, None if the graph
    leaves another one behind. `requires_grad`: whether the input that a tensor is a view of does.
    `stays(members)`: whether outputs in some memory are left in any case.
    """

    def kept(members: Sequence[Fake]) -> bool:
        if stays(members) or (_is_new(world, members[0]) and _is_one(members)):
            return True
        if requires_grad(members[0]):
            _check_history(world, members[0])
        steps = [step for out in members for step in world.chain(out)[1:]]
        if all(_is_plain(step, grad) for step in steps):
            return True
        can_replay = all(_can_replay(world, step) for step in steps)
        if _is_new(world, members[0]):
            # Inference tensors have neither a history nor versions.
            inference = torch.is_inference_mode_enabled()
            return not can_replay or inference or _carrier(world, members) is None
        if not can_replay and requires_grad(members[0]):
            raise NotFunctionalized("a view of an input, detached or made in another grad mode")
        return not can_replay

    return _separate(world, outputs, inputs, kept)


def separate_step_views(
    world: AliasWorld,
    outputs: list[Any],
    inputs: Sequence[Any],
    requires_grad: Callable[[Fake], bool],
) -> tuple[list[Any], OutputViews]:
    """The same for a whole step, which the launcher runs under `no_grad`. Outputs with a history,
    which is used up, stay: they get it behind the step."""
    new = [out for out in outputs if type(out) is Fake and _is_new(world, out)]
    graded = {id(world.alias(out).base) for out in new if out.requires_grad}

    def kept(members: Sequence[Fake]) -> bool:
        return id(world.alias(members[0]).base) in graded

    return separate_unusual_views(world, outputs, inputs, False, requires_grad, kept)


def _separate(
    world: AliasWorld,
    outputs: list[Any],
    inputs: Sequence[Any],
    kept: Callable[[Sequence[Fake]], bool],
) -> tuple[list[Any], OutputViews]:
    """`kept(members)`: whether the program returns these outputs itself; they share memory."""
    # Reversed, so that the first place of a tensor that is returned twice wins.
    first = {id(out): at for at, out in reversed(list(enumerate(outputs)))}
    views: list[ViewOutput] = []
    groups: dict[int, list[int]] = {}
    for at, out in enumerate(outputs):
        if type(out) is Fake and not any(out is fake for fake in inputs):
            base = world.alias(out).base
            if base.input is None:
                groups.setdefault(id(base), []).append(at)
            elif not kept([out]):
                root = inputs[base.input]
                views.append(_view(world, out, root, (at, base.input, True), first[id(out)]))
    bases: list[Fake] = []
    carriers: list[int | None] = []
    for members in groups.values():
        if kept([outputs[at] for at in members]):
            continue
        source = len(outputs) + len(bases)
        places = [(at, source, False) for at in members]
        root = world.root(outputs[members[0]])
        if id(outputs[members[0]]) in world.passed and _is_one([outputs[at] for at in members]):
            root = outputs[members[0]]
            views += [_protected(root, place, first[id(root)]) for place in places]
        else:
            each = [(outputs[place[0]], place) for place in places]
            views += [_view(world, out, root, place, first[id(out)]) for out, place in each]
        bases.append(root)
        # For eager runs of the graph, where the base is reached from one of its views
        # (`WithBases`).
        carrier = _carrier(world, [outputs[at] for at in members])
        carriers.append(None if carrier is None else members[carrier])
    behind = {view.output for view in views}
    # A number in the place of a tensor, so that the places of the others stay as they are.
    remaining = [0 if at in behind else out for at, out in enumerate(outputs)]
    return remaining + bases, OutputViews(tuple(views), tuple(carriers))


def _carrier(world: AliasWorld, members: Sequence[Fake]) -> int | None:
    """The position of an output from which PyTorch tells the base (`_base`): one that isn't
    detached, and has the base's history if there is one. None if there is none."""
    graded = world.root(members[0]).requires_grad
    for at, out in enumerate(members):
        detached = any(step.op and step.op.func is DETACH for step in world.chain(out))
        if out.requires_grad if graded else not detached:
            return at
    return None


def _is_new(world: AliasWorld, out: Fake) -> bool:
    return world.alias(out).base.input is None


def _is_one(members: Sequence[Fake]) -> bool:
    """Whether all outputs in some memory are one tensor, which is maybe returned twice."""
    return all(out is members[0] for out in members)


def _check_history(world: AliasWorld, out: Fake) -> None:
    """Refuse a view that was made without grad before a write. If its base requires grad, autograd
    raises when it is asked for the history."""
    steps = world.chain(out)[1:]
    stale = any(not step.grad and step.made_at != step.counter.writes for step in steps)
    if stale and all(step.op is None or step.op.func is not DETACH for step in steps):
        raise NotFunctionalized("a view made without grad, of what requires grad, before a write")


def _is_plain(alias: TensorAlias, grad: bool | None) -> bool:
    """Whether a view is, for autograd, like the views that the launcher makes in this grad mode."""
    assert alias.op is not None
    returns = alias.op.func._schema.returns
    # With grad, autograd forbids writes to one of several views that were made at once.
    several = len(returns) > 1 or isinstance(returns[0].type, torch.ListType)
    # The launcher views memory as another dtype, which for autograd is never differentiable.
    unusual = alias.op.func in (DETACH, AS_COMPLEX)
    return not unusual and alias.grad is grad and not (grad and several)


def _can_replay(world: AliasWorld, alias: TensorAlias) -> bool:
    arguments = (alias.args[1:], alias.kwargs)
    return not tensors_in(arguments) and world.inputs_know(symbols_in(arguments))


def _refuses_writes(out: Fake) -> bool:
    """Whether autograd raises if the caller writes to it: one of several views that were made at
    once, say."""
    return out._is_view() and _get_creation_meta(out) != DEFAULT


def _protected(out: Fake, places: tuple[int, int, bool], same_as: int) -> ViewOutput:
    """What a module with hooks returns: autograd forbids to write to it, as to a view."""
    alias = ViewStep(torch.ops.aten.alias.default, (), {}, 0, True)
    return ViewOutput(*places, (alias,), _get_creation_meta(out), None, same_as)


def _view(
    world: AliasWorld, out: Fake, root: Fake, places: tuple[int, int, bool], same_as: int
) -> ViewOutput:
    aliases = world.chain(out)[1:]
    steps = tuple(map(_step, aliases))
    # Views of a detached tensor are views of that one for autograd, which has to be one object for
    # all of them.
    ends = [at for at, step in enumerate(steps) if step.func in (DETACH, data_of)]
    detached = (id(aliases[ends[-1]]), ends[-1] + 1) if ends else None
    if out is not root:
        if not steps:
            raise NotFunctionalized("an output that is an input under another name")
        # An input is itself a view, of all the memory that it is in.
        base = root if root._base is None else root._base
        if out.requires_grad and (ends or out._base is not base):
            raise NotFunctionalized("a view whose history is not that of its base")
    if root.requires_grad:
        _check_history(world, out)
    creation = _get_creation_meta(out) if out._is_view() else DEFAULT
    return ViewOutput(*places, steps, creation, detached, same_as)


def _step(alias: TensorAlias) -> ViewStep:
    assert alias.op is not None
    args, kwargs = alias.args[1:], alias.kwargs or {}
    if tensors_in((args, kwargs)):
        raise NotFunctionalized(f"{alias.op.name} with a tensor that says where")
    if alias.is_data and alias.counter.writes:
        raise NotFunctionalized("Tensor.data that is written to and returned")  # it has a version
    func = data_of if alias.is_data else alias.op.func
    return ViewStep(func, args, kwargs, alias.position, alias.grad)


def data_of(tensor: torch.Tensor) -> torch.Tensor:
    """Like `detach`, with a version of its own."""
    return tensor.data
