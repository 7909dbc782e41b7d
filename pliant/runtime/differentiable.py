"""What Python does for a compiled graph in training: a backward that isn't compiled yet, and
gradients that PyTorch has to compute.

The one idea: PyTorch's autograd stays in charge of everything outside of the graph. Hooks,
accumulation into `.grad`, version checks and the order of backward passes are its own; forward and
backward are called by native code (`AutogradStep`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from typing import Any

import torch

from pliant._native import AutogradStep
from pliant.base.checks import SuppositionFailed
from pliant.base.program_code import is_of_program
from pliant.base.random_states import RandomStates
from pliant.base.values import dataclass


class Refused(Exception):
    """Raised by a compiled forward that can't run on these inputs; nothing has been changed."""


def refuse(*inputs: Any) -> Any:
    """Stands for a compiled forward, and refuses all inputs."""
    raise Refused


Backward = tuple[Callable[..., Any], tuple[int, ...]]  # with the inputs whose gradients it returns


@dataclass(frozen=True, slots=True)
class ForwardLayout:
    """Where things are among the inputs and results of a compiled forward. It returns the outputs
    of the graph, then the tensors that only the backward needs, then numbers for the backward."""

    inputs: int
    outputs: int
    numbers: int  # where numbers begin among the results
    saved: Sequence[tuple[bool, int]]  # tensors: whether of an input, and its number
    differentiable: Sequence[int]  # outputs
    contiguous: Sequence[bool]  # by tangent: without gaps, whatever the output is
    returned: Sequence[tuple[int, int]]  # outputs that are inputs
    wanted: Sequence[int]  # inputs that get a gradient


@dataclass(slots=True, eq=False)
class Differentiable:
    """A captured graph as a step of autograd. `eager` runs the graph as it was captured;
    `make_backward(tangents, wanted)` compiles a backward for the outputs that have a tangent and
    the inputs whose gradients are wanted; `backwards` keeps what it returned."""

    eager: Callable[..., Any]
    layout: ForwardLayout
    written: frozenset[int]  # inputs
    copied: tuple[int, ...]  # those, if results are computed from what was in them before
    draws: tuple[torch.device, ...]  # random numbers of these devices
    make_backward: Callable[[tuple[bool, ...], AbstractSet[int]], Backward | None]
    backwards: dict[Any, Backward | None]
    report_failure: Callable[[Exception], None]  # of code where PyTorch's autograd has none

    def step(
        self,
        forward: Callable[..., Any],
        accepts: Callable[[Sequence[Any]], bool] | None,
        otherwise: Callable[..., Any] | None = None,
    ) -> AutogradStep:
        """The native step, which is called with the inputs of the graph. `accepts(inputs)` says if
        `forward` is right for them (None: it is for all that pass the guards). `otherwise` is
        called if it isn't."""
        layout = self.layout
        return AutogradStep(
            forward=forward,
            eager=otherwise or self.eager,
            refused=Refused,
            accepts=accepts,
            make_backward=self.backward,
            run_again=self.run_again,
            inputs=layout.inputs,
            outputs=layout.outputs,
            numbers=layout.numbers,
            saved=layout.saved,
            differentiable=layout.differentiable,
            contiguous=layout.contiguous,
            returned=layout.returned,
            wanted=layout.wanted,
            draws=self.draws,
            copied=self.copied,
        )

    def backward(self, tangents: tuple[bool, ...], wanted: AbstractSet[int]) -> Backward | None:
        # Which outputs get a gradient, and which inputs need one, differs from step to step; each
        # combination is compiled when it first occurs.
        key = (tangents, frozenset(wanted))
        if key not in self.backwards:
            self.backwards[key] = self.make_backward(tangents, wanted)
        return self.backwards[key]

    def run_again(
        self,
        inputs: Sequence[Any],
        random: Sequence[torch.Tensor],
        tangents: Sequence[torch.Tensor | None],
        needed: Sequence[int],
        error: Exception | None,
    ) -> Sequence[torch.Tensor | None]:
        """Gradients of the inputs `needed`, by PyTorch: if they need gradients themselves
        (`create_graph=True`), if there is no code for them, or if it failed with `error`. The graph
        is run once more under autograd, with the random state `random` that the forward began with,
        and on copies of the inputs that it writes to."""
        # Autograd runs a backward in grad mode only for `create_graph=True`.
        twice = torch.is_grad_enabled()
        if error is not None and is_of_program(error):
            raise error
        # Of all devices: a seed in the graph is one for all of them.
        keeping = RandomStates() if random else nullcontext()
        with torch.enable_grad(), keeping:
            for device, state in zip(self.draws, random, strict=True):
                _set_random_state(device, state)
            # Views: hooks of the inputs and what lies behind them are not for this pass.
            inputs = [t.view_as(t) if _requires_grad(t) else t for t in inputs]
            # The first run has written to some already: the second one must not do so again.
            copies = [t.clone() if at in self.written else t for at, t in enumerate(inputs)]
            outputs = self.eager(*copies)
        # Only outputs whose gradients arrive; autograd takes the others for zeros.
        pairs = [
            (outputs[at], tangent)
            for at, tangent in zip(self.layout.differentiable, tangents, strict=True)
            if tangent is not None
        ]
        gradients = torch.autograd.grad(
            [output for output, _ in pairs],
            [inputs[at] for at in needed],
            [tangent for _, tangent in pairs],
            create_graph=twice,
            # An output that gets a tangent need not depend on every input.
            allow_unused=True,
        )
        if error is not None and not isinstance(error, SuppositionFailed):
            self.report_failure(error)
        return gradients


def _set_random_state(device: torch.device, state: torch.Tensor) -> None:
    if device.type == "cpu":
        torch.set_rng_state(state)
    else:
        torch.cuda.set_rng_state(state, device)


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad
