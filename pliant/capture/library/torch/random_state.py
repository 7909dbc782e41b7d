"""Random state: seeds, generators, saved states. Each is a node of the graph, like the draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.library.torch.graph_objects import METHODS_OF, graph_object, method_of
from pliant.capture.native import function
from pliant.capture.torch_calls import from_result
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.tensors import TensorValue
from pliant.capture.wrap import BUILDERS, assume_type
from pliant.guards.source import Source


def state_node(
    trace: Trace,
    target: Callable[..., Any] | str,
    args: tuple[Any, ...],
    generator: GraphObject | None = None,
) -> Any:
    """A node that changes the state of a random generator: of PyTorch's default one (None), or of
    one of the program's."""
    trace.changes += 1
    if generator is None:
        trace.graph_effects.random = True
    else:
        trace.graph_effects.note_object(generator)
    return trace.graph.operation(target, args, {}, trace.stack(), True)


def _state(trace: Trace, node: Any, like: torch.Tensor) -> Value:
    size = like.numel()
    fake = trace.world.run(torch.empty, (size,), {"dtype": torch.uint8}).value
    return from_result(trace, fake, node, "get_rng_state")


CPU = Const("cpu")


def _seed(trace: Trace, seed: Value) -> int:
    number = trace.read(seed).constant()
    if not isinstance(number, int):
        raise Break("random-state", f"the seed {number!r}")
    return int(number)


@function(torch.random.manual_seed)
def manual_seed(trace: Trace, seed: Value) -> Value:
    state_node(trace, torch.random.manual_seed, (_seed(trace, seed),))
    return trace.wrap_pinned(torch.default_generator)


def _cuda_seed(target: Callable[..., None]) -> None:
    @function(target)
    def handler(trace: Trace, seed: Value) -> Value:
        state_node(trace, target, (_seed(trace, seed),))
        return NONE


_cuda_seed(torch.cuda.manual_seed)
_cuda_seed(torch.cuda.manual_seed_all)


@function(torch.seed, torch.initial_seed)
def seeding(trace: Trace, *args: Value) -> Value:
    raise Break("random-state", "the seed of PyTorch's generator")


@function(torch.get_rng_state)
def get_rng_state(trace: Trace) -> Value:
    node = trace.graph.operation(torch.get_rng_state, (), {}, trace.stack(), False)
    return _state(trace, node, torch.get_rng_state())


@function(torch.set_rng_state)
def set_rng_state(trace: Trace, new_state: Value) -> Value:
    state = trace.read(new_state)
    if not isinstance(state, TensorValue):
        raise Break("random-state", "set_rng_state")
    state_node(trace, torch.set_rng_state, (state.node,))
    return NONE


CUDA = Const("cuda")


@function(torch.cuda.get_rng_state)
def cuda_get_rng_state(trace: Trace, device: Value = CUDA) -> Value:
    gpu = _cuda_device(trace, device)
    operation = trace.graph.operation
    node = operation(torch.cuda.get_rng_state, (gpu,), {}, trace.stack(), False)
    return _state(trace, node, torch.cuda.get_rng_state(gpu))


@function(torch.cuda.set_rng_state)
def cuda_set_rng_state(trace: Trace, new_state: Value, device: Value = CUDA) -> Value:
    gpu, state = _cuda_device(trace, device), trace.read(new_state)
    if not isinstance(state, TensorValue):
        raise Break("random-state", "torch.cuda.set_rng_state")
    state_node(trace, torch.cuda.set_rng_state, (state.node, gpu))
    return NONE


def _cuda_device(trace: Trace, device: Value) -> Any:
    """The device, a constant. Without CUDA the call raises, and Python runs it."""
    if not torch.cuda.is_available():
        raise Break("random-state", "a generator of CUDA, which is not available")
    return trace.read(device).constant()


# ---- generators


def _generator(trace: Trace, real: torch.Generator, source: Source) -> Value:
    """A generator from outside is an input of the graph."""
    assume_type(trace, source, type(real))
    return GraphObject(trace.graph.input(source, real), real, source)  # type: ignore[arg-type]


BUILDERS[torch.Generator] = _generator


@function(torch.Generator)
def new_generator(trace: Trace, device: Value = CPU) -> Value:
    device_name = trace.read(device).constant()
    node = trace.graph.operation(torch.Generator, (device_name,), {}, trace.stack(), False)
    return GraphObject(node, torch.Generator(device_name))


@method_of(torch.Generator, "manual_seed")
def generator_manual_seed(trace: Trace, obj: GraphObject, seed: Value) -> Value:
    state_node(trace, "manual_seed", (obj.node, _seed(trace, seed)), obj)
    return obj


@method_of(torch.Generator, "get_state")
def generator_get_state(trace: Trace, obj: GraphObject) -> Value:
    node = trace.graph.operation("get_state", (obj.node,), {}, trace.stack(), False)
    return _state(trace, node, obj.example.get_state())


@method_of(torch.Generator, "set_state")
def generator_set_state(trace: Trace, obj: GraphObject, state: Value) -> Value:
    state_value = trace.read(state)
    if not isinstance(state_value, TensorValue):
        raise Break("random-state", "Generator.set_state")
    state_node(trace, "set_state", (obj.node, state_value.node), obj)
    return obj


@method_of(torch.Generator, "clone_state")
def generator_clone_state(trace: Trace, obj: GraphObject) -> Value:
    return graph_object(trace, "clone_state", (obj.node,), torch.Generator(obj.example.device))


METHODS_OF[torch.Generator, "device"] = lambda trace, obj: Const(obj.example.device)
