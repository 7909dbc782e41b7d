"""A compiled graph as one step of autograd: its forward and backward are compiled code.

The one idea: PyTorch's autograd stays in charge of everything outside of the graph. Hooks,
accumulation into `.grad`, version checks and the order of backward passes are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant._native import without_torch_function
from pliant.base.values import dataclass


class Refused(Exception):
    """The compiled forward can't run on these inputs, and has not changed anything."""


def refuse(*inputs: Any) -> Any:
    raise Refused


Backward = tuple[Callable[..., Any], tuple[int, ...]]  # with the inputs whose gradients it returns


@dataclass(slots=True, eq=False)
class Differentiable:
    """Called with the inputs of a graph. `forward` returns the outputs, then tensors and numbers
    for the backward; `tensors` says where those that are saved are found ("input", "output" or
    "more", and its number). `backward` compiles one for the tangents that are given and the inputs
    whose gradients are wanted."""

    forward: Callable[..., Any]
    eager: Callable[..., Any]
    outputs: int
    numbers: int  # where numbers begin among the results
    tensors: Sequence[tuple[str, int]]
    differentiable: Sequence[int]  # outputs
    contiguous: Sequence[bool]  # by tangent: without gaps, whatever the output is
    constant: Sequence[int]  # outputs that are tensors without a gradient
    returned: Sequence[tuple[int, int]]  # outputs that are inputs
    wanted: frozenset[int]
    written: frozenset[int]  # inputs
    depends_on_written: bool  # whether outputs are computed from what was in them before
    draws: bool
    accepts: Callable[[Sequence[Any]], bool] | None  # the inputs; None: any that guards let pass
    make_backward: Callable[[tuple[bool, ...], frozenset[int]], Backward | None]
    backwards: dict[Any, Backward | None]

    def __call__(self, *inputs: Any) -> Any:
        if self.accepts is not None and not self.accepts(inputs):
            return self.eager(*inputs)
        try:
            # The program's modes see nothing of it.
            results = list(without_torch_function(_Step.apply, self, *inputs))
        except Refused:
            return self.eager(*inputs)
        for output, index in self.returned:  # the very objects
            results[output] = inputs[index]
        return tuple(results)

    def backward(self, tangents: tuple[bool, ...], wanted: frozenset[int]) -> Backward | None:
        key = (tangents, wanted)
        if key not in self.backwards:
            self.backwards[key] = self.make_backward(tangents, wanted)
        return self.backwards[key]


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Differentiable, *inputs: Any) -> Any:
        ctx.random = torch.get_rng_state() if step.draws else None
        results = step.forward(*inputs)
        ctx.save_for_backward(
            *[inputs[at] if kind == "input" else results[at] for kind, at in step.tensors]
        )
        ctx.step, ctx.inputs, ctx.numbers = step, inputs, results[step.numbers :]
        ctx.set_materialize_grads(False)
        outputs = list(results[: step.outputs])
        ctx.strides = [
            None if contiguous else outputs[at].stride()
            for at, contiguous in zip(step.differentiable, step.contiguous, strict=True)
        ]
        for output, _ in step.returned:
            outputs[output] = None
        ctx.mark_non_differentiable(*[outputs[at] for at in step.constant])
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return without_torch_function(_go_back, ctx, ctx.step, grads)


def _go_back(ctx: Any, step: Differentiable, grads: Sequence[Any]) -> Any:
    given = [grads[at] for at in step.differentiable]
    needed = [at for at, needs in enumerate(ctx.needs_input_grad[1:]) if needs]
    present = tuple([grad is not None for grad in given])
    backward = None
    if not torch.is_grad_enabled():
        backward = step.backward(present, step.wanted.intersection(needed))
    if backward is None:
        return (None, *_again(step, ctx, given, needed))
    code, made = backward
    tangents = [
        _laid_out(grad, strides)
        for grad, strides in zip(given, ctx.strides, strict=True)
        if grad is not None
    ]
    results = code(*ctx.saved_tensors, *ctx.numbers, *tangents)
    gradients = [None] * len(ctx.inputs)
    for at, grad in zip(made, results, strict=True):
        gradients[at] = grad
    return (None, *gradients)


def _laid_out(grad: Any, strides: tuple[int, ...] | None) -> Any:
    """With the strides of the output, which the code expects; None: without gaps."""
    if strides is None:
        return grad.contiguous()
    if grad.stride() == strides:
        return grad
    new = torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device)
    return new.copy_(grad)


def _again(
    step: Differentiable, ctx: Any, given: Sequence[Any], needed: Sequence[int]
) -> list[Any]:
    """Gradients that have gradients themselves, or for which there is no code: the graph is run
    once more, by PyTorch, with the same random numbers, and its writes going nowhere."""
    twice = torch.is_grad_enabled()
    if step.depends_on_written:
        raise RuntimeError(
            "pliant: create_graph=True through a compiled graph that writes to a tensor which its "
            "results depend on; wrap the function in pliant.disable to differentiate it twice"
        )
    inputs = [t.clone() if at in step.written else t for at, t in enumerate(ctx.inputs)]
    with torch.enable_grad(), torch.random.fork_rng(devices=(), enabled=step.draws):
        if step.draws:
            torch.set_rng_state(ctx.random)
        outputs = step.eager(*inputs)
    pairs = [(outputs[at], g) for at, g in zip(step.differentiable, given) if g is not None]
    grads = torch.autograd.grad(
        [out for out, _ in pairs],
        [inputs[at] for at in needed],
        [grad for _, grad in pairs],
        create_graph=twice,
        allow_unused=True,
    )
    by_input = dict(zip(needed, grads, strict=True))
    return [by_input.get(at) for at in range(len(inputs))]
