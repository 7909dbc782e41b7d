"""The default backend: fused kernels, compiled by LLVM for the CPU and by Triton for GPUs.

The path itself is in `compile_graph`. Here is what happens where it ends early: a graph for which
there is no code runs as it was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from pliant._native import Launcher
from pliant.backends.choose_target import interpreter_of, target_of
from pliant.backends.compile_graph import (
    GeneratedCode,
    GraphCompiler,
    or_not_generated,
    report_failure,
    tell,
)
from pliant.backends.own_backend import OwnBackend
from pliant.base.late import Late
from pliant.base.options import Options
from pliant.graph.functionalize import NotFunctionalized
from pliant.graph.unwrapped import Unwrapped, has_wrappers, unwrap
from pliant.runtime.graphs import function_of
from pliant.sym.frozen import Shapes
from pliant.targets.target import Target

if TYPE_CHECKING:
    from pliant.backends import training
    from pliant.launch import cuda_graphs
else:
    cuda_graphs = Late("pliant.launch.cuda_graphs")  # which only one mode needs
    training = Late("pliant.backends.training")  # which inference does without


@OwnBackend
def llvm(
    gm: fx.GraphModule, example_inputs: Sequence[Any], shapes: Shapes | None, options: Options
) -> Callable[..., Any]:
    """Compile the graph for the device of its inputs."""
    return compile_for(target_of, gm, example_inputs, shapes, options)


@OwnBackend
def triton_interpreter(
    gm: fx.GraphModule, example_inputs: Sequence[Any], shapes: Shapes | None, options: Options
) -> Callable[..., Any]:
    """The kernels of a GPU on CPU tensors, run by Triton's interpreter: slow, for tests."""
    return compile_for(interpreter_of, gm, example_inputs, shapes, options)


def compile_for(
    choose: Callable[[Sequence[Any], Options], Target],
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    shapes: Shapes | None,
    options: Options,
) -> Callable[..., Any]:
    """Compile the graph for the target that is chosen for its inputs."""

    def generate() -> Callable[..., Any]:
        target = choose(example_inputs, options)
        if shapes is not None and _wants_gradients(gm, example_inputs):
            return _differentiable(gm, example_inputs, shapes, options, target)
        return _loaded(gm, example_inputs, shapes, options, target)

    return or_not_generated(function_of(gm), options, generate, gm) or gm.forward


def _loaded(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    shapes: Shapes | None,
    options: Options,
    target: Target,
) -> Callable[..., Any]:
    """Code for the graph without gradients."""
    # Tensors of wrapper subclasses have no memory of their own, so kernels work on what is inside.
    if shapes is not None and has_wrappers(gm, example_inputs):
        return _unwrapped(unwrap(gm, shapes, example_inputs), options, target)
    code = GraphCompiler(gm, shapes, options, target).compile(example_inputs)
    launcher = code.load()
    tell(function_of(gm), code)
    if target.place.type == "cuda" and options.mode in cuda_graphs.MODES:
        return code.with_views(_recorded(function_of(gm), launcher, code, options, target))
    return code.with_views(launcher)


def _recorded(
    name: str, launcher: Launcher, code: GeneratedCode, options: Options, target: Target
) -> Callable[..., Any]:
    """The launcher, with its launches recorded as CUDA graphs if they can be."""
    if not cuda_graphs.recordable(code.program):
        return launcher

    def report(error: Exception) -> None:
        report_failure(name, options, error, "recording the launches of")

    recorder = cuda_graphs.CudaRecorder(target.place)
    return cuda_graphs.RecordingLauncher(launcher, code.program, recorder, report)


def _unwrapped(graph: Unwrapped, options: Options, target: Target) -> Callable[..., Any]:
    """Code for what is inside of tensors of wrapper subclasses."""
    code = GraphCompiler(graph.gm, graph.shapes, options, target).compile(graph.examples)
    tell(type(graph.gm).__name__, code)
    return graph.load(code.with_views(code.load()), list(code.functional.writes))


def _wants_gradients(gm: fx.GraphModule, examples: Sequence[Any]) -> bool:
    with torch._C.DisableTorchFunction():  # the program's modes have nothing to do with this
        tensors = [e for e in examples if isinstance(e, torch.Tensor)]
        enabled = torch.is_grad_enabled() or _enables(gm)  # itself, as LBFGS does
        if enabled and any(t.requires_grad for t in tensors):
            return True
    return _calls(gm, torch.autograd.grad)


SET_GRAD: Final = torch._C._set_grad_enabled


def _enables(gm: fx.GraphModule) -> bool:
    return any(node.target is SET_GRAD and node.args[0] for node in gm.graph.nodes)


def _calls(gm: fx.GraphModule, function: Callable[..., Any]) -> bool:
    return any(node.target is function for node in gm.graph.nodes)


def _differentiable(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    shapes: Shapes,
    options: Options,
    target: Target,
) -> Callable[..., Any]:
    """Code for both directions, or for the forward alone where nothing needs a gradient, as in the
    step of an optimizer."""
    # A graph that calls `backward` itself needs no backward of its own.
    compiler = training.TrainingCompiler(gm, shapes, options, tell, target)
    if _calls(gm, torch.autograd.backward):
        return compiler.compile_step(example_inputs)
    try:
        return compiler.compile(example_inputs)
    except NotFunctionalized as reason:
        if has_wrappers(gm, example_inputs):
            raise  # what is inside of a wrapper doesn't tell whether it needs a gradient
        # A program that asks for gradients of gradients may use up the history of all results.
        asks = _calls(gm, torch.autograd.grad)
        others = [partial(compiler.compile_step, example_inputs)] * asks
        others.append(partial(_loaded, gm, example_inputs, shapes, options, target))
        for compile_otherwise in others:
            with suppress(NotFunctionalized):
                return compile_otherwise()
        # Why there is no joint graph tells more than why the others failed as well.
        raise reason from None
