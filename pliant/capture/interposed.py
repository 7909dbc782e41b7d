"""Transforms of `torch.func` and dispatch modes around a compiled function.

What PyTorch's operators do is theirs to say. The function is captured as if they were not there, in
one graph, and PyTorch runs the graph operator by operator under them. So they see the calls that
they see in eager, and the sizes that capture assumes are those that the program sees: of one item,
under `vmap`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch import pyfunctorch
from torch.fx import _symbolic_trace as fx_tracing
from torch.utils import _python_dispatch as dispatching

from pliant._native import State
from pliant.base.values import dataclass
from pliant.guards.guard import Guard, GuardKind
from pliant.guards.source import Fixed


def capturable(state: State) -> bool:
    """Whether calls in this state may be captured at all. Under another tracer (TorchScript, FX),
    or a mode that wants to see the program as it is, they run eagerly."""
    if state.jit_tracing or fx_tracing._is_fx_tracing_flag:
        return False
    return not state.dispatch_modes or all(map(_may_be_ignored, _dispatch_modes(state)))


def _dispatch_modes(state: State) -> list[Any]:
    return [torch._C._get_dispatch_stack_at(i) for i in range(state.dispatch_modes)]


def _may_be_ignored(mode: Any) -> bool:
    """Whether a dispatch mode allows code under it to be compiled."""
    if not isinstance(mode, dispatching.TorchDispatchMode) or mode.is_infra_mode():
        return False
    return bool(type(mode).ignore_compile_internals()) or not type(mode)._should_skip_dynamo()


def is_interposed(state: State) -> bool:
    return bool(state.functorch or state.dispatch_modes)


def suspended(state: State) -> contextlib.AbstractContextManager[None]:
    """A context without the transforms and modes that are active in `state`."""
    # The stack can hold transforms that `state` does not show, while one of them is at work.
    if state.dispatch_modes or torch._C._functorch.peek_interpreter_stack() is not None:
        return _suspended(state)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _suspended(state: State) -> Iterator[None]:
    modes: list[Any] = []
    with pyfunctorch.temporarily_clear_interpreter_stack():
        try:
            modes.extend(dispatching._pop_mode() for _ in range(state.dispatch_modes))
            yield
        finally:
            for mode in reversed(modes):
                dispatching._push_mode(mode)


def transforms() -> tuple[tuple[str, str | None], ...]:
    """The kinds of the active transforms, outermost first, and of each `vmap` how it treats random
    numbers."""
    return tuple(
        (level.key().name, level.randomness() if hasattr(level, "randomness") else None)
        for level in pyfunctorch.retrieve_all_functorch_interpreters()
    )


@dataclass(frozen=True, slots=True)
class ActiveTransforms:
    """The predicate that these transforms are active, whatever it is called with."""

    expected: tuple[tuple[str, str | None], ...]

    def __call__(self, value: Any) -> bool:
        return transforms() == self.expected


def assumptions(state: State) -> tuple[Guard, ...]:
    """The guards of an entry on what `State` doesn't cover: which transforms are active."""
    if not state.functorch:
        return ()
    place = Fixed(pyfunctorch, "torch.func")
    return (Guard(GuardKind.PREDICATE, place, ActiveTransforms(transforms())),)
