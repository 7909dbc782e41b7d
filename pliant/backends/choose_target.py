"""Which target a graph is compiled for: the one that has its tensors."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from pliant.base.late import Late
from pliant.base.options import Options
from pliant.graph.functionalize import NotFunctionalized
from pliant.graph.ir import Functional, Tensor
from pliant.targets.cpu.target import CPU
from pliant.targets.target import Target

if TYPE_CHECKING:
    from pliant.targets.triton import target as triton_target
else:
    triton_target = Late("pliant.targets.triton.target")  # which programs on the CPU do without


def target_of(examples: Sequence[Any], options: Options) -> Target:
    """The target for a graph with these inputs."""
    with torch._C.DisableTorchFunction():
        # Tensors on the CPU beside those on a GPU are numbers, most of the time; that is found out
        # later, operator by operator.
        devices = {t.device for t in examples if isinstance(t, torch.Tensor)} - {CPU.place}
    if not devices:
        return CPU
    if len(devices) > 1:
        raise NotFunctionalized("tensors on several devices")
    (place,) = devices
    if place.type != "cuda":
        raise NotFunctionalized(f"a tensor on {place}")
    check_installed()
    return triton_target.TritonTarget(place, measures=options.mode.startswith("max-autotune"))


def interpreter_of(examples: Sequence[Any], options: Options) -> Target:
    """The target for tests: kernels of a GPU, interpreted on CPU tensors."""
    check_installed()
    return triton_target.TritonTarget(CPU.place)


def check_installed() -> None:
    if find_spec("triton") is None:
        raise NotFunctionalized(
            "a missing package: Triton, which compiles kernels for GPUs (pip install triton)"
        )


def refuse_devices(functional: Functional, place: torch.device) -> None:
    """Raise `NotFunctionalized` for tensors on other devices than `place` and the CPU."""
    tensors = [value for value in functional.inputs if isinstance(value, Tensor)]
    tensors += [tensor for node in functional.nodes for tensor in node.results]
    with torch._C.DisableTorchFunction():
        devices = {tensor.device for tensor in (*tensors, *functional.constants)}
    foreign = devices - {CPU.place, place}
    if foreign:
        raise NotFunctionalized(f"a tensor on {foreign.pop()}")
