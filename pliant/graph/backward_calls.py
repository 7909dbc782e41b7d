"""Python code in the backward (`tickets`) as nodes of a joint graph.

The one idea: autograd goes back on fakes, through steps of its own that record a node in either
direction. So a call stands where PyTorch makes it, between the formulas around it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn.modules._functions import BackwardHookFunction

from pliant.base.devices import CPU
from pliant.base.values import dataclass
from pliant.fake.layout import contiguous_strides, nesting
from pliant.fake.tensor import Fake, make
from pliant.graph.aliases import AliasWorld, NotFunctionalized
from pliant.graph.ir import InputObject, Node, UserGradient
from pliant.graph.opaque_calls import Path, leaves_in, opaque_function, places_of
from pliant.graph.tickets import (
    BackThrough,
    CallHook,
    CallModuleHooks,
    Issue,
    Kind,
    SetUp,
    WithHistory,
)


def _record(
    world: AliasWorld, name: str, func: Any, args: Sequence[Any], results: Sequence[Fake]
) -> Node:
    """A call that is made once, in its place, whoever needs its results."""
    node = Node(f"python.{name}", func, tuple(args), {}, effect=True)
    return world.add(node, results)


def _ticket(world: AliasWorld, name: str, func: Any, args: Sequence[Any]) -> Fake:
    ticket = make(world._self, (0,), (1,), 0, torch.float32, CPU)
    _record(world, name, func, args, [ticket])
    return ticket


def _value(world: AliasWorld, fake: Fake) -> Any:
    return world.value(world.alias(fake))


def _like(world: AliasWorld, fake: Fake) -> Fake:
    """A new tensor laid out like a copy of this one."""
    sizes, strides = fake.size(), fake.stride()
    if nesting(sizes, strides) is None:
        strides = contiguous_strides(sizes)
    return make(world._self, sizes, strides, 0, fake.dtype, fake.device)


# --------------------------------------------------------------------------------------------------
# Hooks


def call_hook(world: AliasWorld, hook: Any) -> Callable[[Fake], Fake]:
    """What stands for a hook on a tensor: on the fake of a gradient, it records the call. The hook
    is a function, or an input of the graph, which the forward has to keep."""
    ticket = None
    if isinstance(hook, InputObject):
        ticket, hook = _ticket(world, "keep", Issue(), [hook]), None

    def call(gradient: Fake) -> Fake:
        tickets = [] if ticket is None else [_value(world, ticket)]
        (result,) = _call(world, "hook", CallHook(hook), tickets, [gradient])
        return result

    return call


def _call(
    world: AliasWorld, name: str, func: Any, tickets: Sequence[Any], gradients: Sequence[Fake]
) -> list[Fake]:
    """Record a call with gradients, which gives others like them. It is made for all or none."""
    values = [_value(world, gradient) for gradient in gradients]
    results = [_like(world, gradient) for gradient in gradients]
    node = _record(world, name, func, [*tickets, *values], results)
    node.gradient = UserGradient(tuple(values))
    return results


@dataclass(slots=True, eq=False)
class HookedModule:
    """The call of a module with hooks, while the graph is recorded. `objects`: the module, its
    hooks, and those that are called first."""

    objects: tuple[Any, ...]
    first: int | None
    ticket: Fake | None = None  # once they are set up for the arguments


def hook_module(run: Any, node: fx.Node) -> HookedModule:
    module, hooks, pre_hooks = run._args(node.args)
    return HookedModule((module, *hooks, *pre_hooks), len(pre_hooks))


def set_up_hooks(run: Any, node: fx.Node) -> Any:
    """Set up the hooks of a module for its arguments, then for its results. Returns the tensors,
    behind which the hooks are called."""
    hooked, tensors = run._args(node.args)
    world = run.functionalizer
    fakes = [t for t in tensors if t is not None]
    kinds: list[Kind | None] = [
        None if t is None else (t.dtype, t.device, t.requires_grad) for t in tensors
    ]
    sizes = [world.recorded(list(t.size())) for t in fakes]
    before = [_value(world, hooked.ticket)] if hooked.ticket is not None else hooked.objects
    set_up, of_results = SetUp(tuple(kinds), hooked.first), hooked.first is None
    ticket = _ticket(world, "set_up_hooks", set_up, [*before, sizes])
    hooked.ticket, hooked.first = ticket, None
    graded = [t.requires_grad for t in fakes]
    if not torch.is_grad_enabled() or not any(graded):
        return tuple(tensors)
    passed = BackwardHookFunction.apply(*fakes)

    def call(arriving: Any, _: Any) -> Any:
        # As for PyTorch's own hook: those of tensors that don't require grad are None.
        there = [at for at, gradient in enumerate(arriving) if graded[at]]
        gradients = [arriving[at] for at in there]
        changed = _call(
            world, "module_hooks", CallModuleHooks(), [_value(world, ticket)], gradients
        )
        for at, gradient in zip(there, changed, strict=True):
            arriving = (*arriving[:at], gradient, *arriving[at + 1 :])
        return arriving

    step = next(t.grad_fn for t in passed if t.requires_grad)
    run.handles.append(step.register_hook(call))
    run.changed += [t for t in passed if t.requires_grad]
    if of_results:
        world.passed.update({id(t): t for t in passed if t.requires_grad})
    following = iter(passed)
    return tuple([None if t is None else next(following) for t in tensors])


# --------------------------------------------------------------------------------------------------
# Functions whose history PyTorch keeps


def call_with_history(
    world: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a call that PyTorch differentiates: forward and backward are one node each."""
    graded = list({id(t): t for t in _fakes_in((args, kwargs)) if t.requires_grad}.values())
    recorded = _Recorded(world, function, args, kwargs)
    results = _Step.apply(recorded, *graded)
    return recorded.with_results(results)


def _fakes_in(value: Any) -> list[Fake]:
    return [leaf for leaf in leaves_in(value) if type(leaf) is Fake]


@dataclass(slots=True, eq=False)
class _Recorded:
    """One call: what it is made of, and afterwards what it returned."""

    world: Any
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any = None
    kept: tuple[Any, ...] = ()
    ticket: Fake | None = None

    def forward(self, graded: Sequence[Fake]) -> list[Fake]:
        world, everything = self.world, [*self.args, *self.kwargs.values()]
        with world.quietly(), torch._C._ForceDispatchKeyGuard(*world.above):
            outcome = world.run(self.function, self.args, self.kwargs)
        self.result, found = outcome.value, _fakes_in(outcome.value)
        if outcome.mutated or not found:
            raise NotFunctionalized("a function with a history that writes")
        # New ones, since these may be views of one another.
        results = [_like(world, t) for t in found]
        passed = list({id(t): t for t in _fakes_in(everything)}.values())
        values = [_value(world, t) for t in passed]
        inputs = {id(value) for value in world.function.inputs}
        lasting = {id(t) for t, value in zip(passed, values, strict=True) if id(value) in inputs}
        func = WithHistory(
            opaque_function(self.function, self.args, self.kwargs),
            tuple([_place(t, everything) for t in graded]),
            tuple([_place(t, everything) for t in passed if id(t) not in lasting]),
            outcome.random,
        )
        name = f"{getattr(self.function, '__name__', 'function')} with history"
        ticket = make(world._self, (0,), (1,), 0, torch.float32, CPU)
        arguments = [world.recorded(value) for value in everything]
        _record(world, name, func, arguments, [*results, ticket])
        for result, t in zip(results, found, strict=True):
            if (first := world.in_data.first(t)) is not None:
                world.in_data.note_first(result, first)
        self.ticket = ticket
        self.kept = (
            *[value for t, value in zip(passed, values, strict=True) if id(t) in lasting],
            *[_value(world, t) for t in results],
        )
        return results

    def backward(self, graded: Sequence[Fake], gradients: Sequence[Fake | None]) -> list[Fake]:
        there = [at for at, gradient in enumerate(gradients) if gradient is not None]
        arriving = [_value(self.world, g) for g in gradients if g is not None]
        results = [_like(self.world, t) for t in graded]
        assert self.ticket is not None
        args = [_value(self.world, self.ticket), *arriving, *self.kept]
        node = Node("python.backward", BackThrough(tuple(there)), tuple(args), {})
        self.world.add(node, results)
        return results

    def with_results(self, results: Sequence[Fake]) -> Any:
        """What the function returns, with these in the places of its tensors."""
        following = iter(results)
        return _replaced(self.result, following)


def _replaced(value: Any, following: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_replaced(item, following) for item in value])
    return next(following) if type(value) is Fake else value


def _place(tensor: Fake, value: Any) -> Path:
    places = places_of(tensor, value)
    if len(places) != 1:
        raise NotFunctionalized("a function with a history that takes a tensor twice")
    return places[0]


class _Step(torch.autograd.Function):
    """The step of autograd for such a call."""

    @staticmethod
    def forward(ctx: Any, recorded: _Recorded, *graded: Fake) -> Any:
        results = recorded.forward(graded)
        ctx.recorded = recorded
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*[t for t in results if not t.is_floating_point()])
        ctx.save_for_backward(*graded)  # so that PyTorch notices a second backward
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, *ctx.recorded.backward(ctx.saved_tensors, gradients)
