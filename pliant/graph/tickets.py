"""Python code in the backward: hooks that may do anything, and functions whose gradient PyTorch
computes.

The one idea: what the forward leaves for Python code in the backward is kept by a tensor without
elements, its ticket. So it is saved and freed like any other tensor of the graph:

    python.f with history(x, w)              -> y, ticket      calls f under autograd
    python.f backward(ticket, grad_y)        -> grad_x, grad_w goes back through the history

Code of the program gets copies of gradients, since it may keep them, and the memory of the
gradients themselves is used again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from pliant.base.checks import SuppositionFailed
from pliant.base.program_code import call_program
from pliant.base.values import dataclass
from pliant.graph.opaque_calls import (
    OpaqueFunction,
    Path,
    PythonCall,
    item_at,
    leaves_in,
    with_item,
)


class _Ticket(torch.autograd.Function):
    """A tensor whose `grad_fn` keeps an object."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, kept: Any) -> torch.Tensor:
        ctx.kept = kept
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError


def issue(kept: Any) -> torch.Tensor:
    with torch.enable_grad():
        ticket: torch.Tensor = _Ticket.apply(torch.empty(0, requires_grad=True), kept)
    return ticket


def kept_by(ticket: torch.Tensor) -> Any:
    if not hasattr(ticket.grad_fn, "kept"):  # hooks of the program have put another in its place
        raise SuppositionFailed("the backward needs a tensor that was saved with its history")
    return ticket.grad_fn.kept  # type: ignore[union-attr]


# --------------------------------------------------------------------------------------------------
# Functions whose history PyTorch keeps


@dataclass(frozen=True, slots=True, eq=False)
class KeptHistory:
    """What a call under autograd has left: its results, and leaves that stand for arguments."""

    results: tuple[torch.Tensor, ...]
    leaves: tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WithHistory(PythonCall):
    """A function that is called under autograd. `graded`: where the arguments are that get
    gradients; `passing`: those of all tensors that the graph may overwrite later. It returns the
    results, and the ticket of the history."""

    function: OpaqueFunction
    graded: tuple[Path, ...]
    passing: tuple[Path, ...]
    draws: bool

    def __call__(self, *args: Any) -> Any:
        for path in self.passing:
            args = with_item(args, path, item_at(args, path).clone())
        leaves: list[torch.Tensor] = []
        for path in self.graded:
            leaves.append(item_at(args, path).detach().requires_grad_())
            args = with_item(args, path, leaves[-1])
        with torch.enable_grad():
            result = self.function.call(args)
        results = tuple([t for t in leaves_in(result) if isinstance(t, torch.Tensor)])
        history = KeptHistory(results, tuple(leaves))
        return (*[t.detach() for t in results], issue(history))


@dataclass(frozen=True, slots=True, eq=False)
class BackThrough(PythonCall):
    """Computes the gradients of the leaves of a history. What is passed behind the gradients are
    tensors that it refers to: so their memory is not used for something else before."""

    arriving: tuple[int, ...]  # the results that have a gradient

    def __call__(self, ticket: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        history = kept_by(ticket)
        results = [history.results[at] for at in self.arriving]
        arriving = gradients[: len(results)]
        return torch.autograd.grad(
            results, history.leaves, arriving, retain_graph=True, materialize_grads=True
        )


# --------------------------------------------------------------------------------------------------
# Hooks


@dataclass(frozen=True, slots=True, eq=False)
class CallHook(PythonCall):
    """A hook of the program on a tensor. `hook` is None if it is what a ticket keeps, which is then
    the first argument."""

    hook: Callable[[torch.Tensor], Any] | None

    def __call__(self, *args: Any) -> torch.Tensor:
        hook = self.hook if self.hook is not None else kept_by(args[0])
        gradient = args[-1].clone()
        result = call_program(hook, gradient)
        if result is None:  # it may have changed the gradient in place
            return gradient.clone()
        if not isinstance(result, torch.Tensor):
            kind = type(result).__name__
            raise TypeError(f"expected Variable, but hook returned '{kind}'")
        if result.size() != gradient.size():
            name = getattr(hook, "__name__", "hook")
            raise RuntimeError(f"hook '{name}' has changed the size of value")
        return result.to(gradient.dtype, copy=True)


@dataclass(frozen=True, slots=True, eq=False)
class ModuleHooks:
    """PyTorch's own object around a call of a module, with stand-ins for the tensors that go in and
    come out: `leaves` and what was made of them."""

    hook: BackwardHook
    leaves: tuple[torch.Tensor, ...]
    results: tuple[torch.Tensor, ...]

    def call(self, gradients: Sequence[torch.Tensor]) -> Any:
        arriving = [gradient.clone() for gradient in gradients]
        go_back = partial(torch.autograd.grad, retain_graph=True, materialize_grads=True)
        return call_program(go_back, self.results, self.leaves, arriving)


Kind = tuple[torch.dtype, torch.device, bool]
"""Of a tensor: its dtype and device, and whether it requires grad."""


@dataclass(frozen=True, slots=True, eq=False)
class SetUp(PythonCall):
    """Sets up the hooks of a module for its arguments: called with the module, its hooks, then
    those called first, of which there are `first`. Or for its results: called with the ticket for
    the arguments. `kinds` has None for what is no tensor."""

    kinds: tuple[Kind | None, ...]
    first: int | None  # None: for its results

    def __call__(self, *args: Any) -> torch.Tensor:
        owner, *hooks, sizes = args
        of_results = self.first is None
        if self.first is None:
            hook = kept_by(owner).hook
        else:
            at = len(hooks) - self.first
            hook = BackwardHook(owner, hooks[:at], hooks[at:])
        shapes = iter(sizes)
        stand_ins = [
            None if kind is None else _stand_in(next(shapes), *kind) for kind in self.kinds
        ]
        set_up = hook.setup_output_hook if of_results else hook.setup_input_hook
        with torch.enable_grad():
            passed = set_up(tuple(stand_ins))
        pairs = [
            (leaf, result)
            for leaf, result in zip(stand_ins, passed, strict=True)
            if leaf is not None and leaf.requires_grad
        ]
        leaves, results = (tuple([pair[side] for pair in pairs]) for side in (0, 1))
        return issue(ModuleHooks(hook, leaves, results))


def _stand_in(
    sizes: Sequence[int], dtype: torch.dtype, device: torch.device, graded: bool
) -> torch.Tensor:
    """A tensor that looks like another one, with a single element in memory."""
    return torch.zeros((), dtype=dtype, device=device).expand(list(sizes)).requires_grad_(graded)


@dataclass(frozen=True, slots=True, eq=False)
class CallModuleHooks(PythonCall):
    def __call__(self, ticket: torch.Tensor, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([gradient.clone() for gradient in kept_by(ticket).call(gradients)])


@dataclass(frozen=True, slots=True, eq=False)
class Issue(PythonCall):
    """A ticket for an object that is an input of the graph."""

    def __call__(self, kept: Any) -> torch.Tensor:
        return issue(kept)
