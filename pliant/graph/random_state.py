"""The state of random generators: PyTorch's own, where a captured graph sets it, and those that are
inputs of the graph.

The one idea: a seed is an effect like a draw, and effects stay in their order. A generator that is
an input has a stand-in while the graph is recorded, from which nobody else draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.graph.aliases import NotFunctionalized
from pliant.graph.ir import InputObject, Node
from pliant.graph.opaque_calls import opaque_function

if TYPE_CHECKING:
    from torch import fx

    from pliant.graph.functionalize import CapturedRun


STAND_IN: Final = 7_046_029_254_386_353_131  # a seed that no program uses


def input_object(run: CapturedRun, index: int, example: Any) -> Any:
    """What stands for an input that is a random generator, or a hook; others are refused."""
    if run.differentiates and callable(example):
        hook = InputObject(index)
        run.functionalizer.function.inputs.append(hook)
        return hook
    # A backward would have to draw again what the forward drew.
    usual = isinstance(example, torch.Generator) and example.device.type == "cpu"
    if run.differentiates or not usual:
        raise NotFunctionalized(f"an input that is a {type(example).__name__}")
    place = InputObject(index)
    run.functionalizer.generators[STAND_IN + index] = place
    run.functionalizer.function.inputs.append(place)
    return torch.Generator().manual_seed(STAND_IN + index)


def seed_generator(run: CapturedRun, node: fx.Node) -> torch.Generator:
    """`generator.manual_seed(n)` of an input. Its other methods are about the state itself."""
    generator, *args = run._args(node.args)
    if node.target != "manual_seed":
        raise NotFunctionalized(f"Generator.{node.target}")
    _record_seeding(run, _seed_generator, (run.functionalizer.recorded(generator), *args))
    return generator


def seed_generators(run: CapturedRun, node: fx.Node) -> None:
    """A seed of PyTorch's own generators. Where the code fails, those of the CPU and of its device
    are put back. Others needn't be: nothing has failed before the seed, so PyTorch comes to it
    again, and until then draws nothing from them."""
    _record_seeding(run, SEEDS[node.target], tuple(run._args(node.args)))


def _record_seeding(run: CapturedRun, seed: Callable[..., None], args: tuple[Any, ...]) -> None:
    seeding = Node("python.manual_seed", opaque_function(seed, args, {}), args, {}, effect=True)
    seeding.stack = run.functionalizer.stack
    run.functionalizer.function.nodes.append(seeding)


def _seed_generator(generator: torch.Generator, number: int) -> None:
    generator.manual_seed(number)


def _seed(number: int) -> None:
    torch.manual_seed(number)


SEEDS: Final[dict[Any, Callable[[int], None]]] = {
    torch.random.manual_seed: _seed,
    torch.cuda.manual_seed: torch.cuda.manual_seed,
    torch.cuda.manual_seed_all: torch.cuda.manual_seed_all,
}
