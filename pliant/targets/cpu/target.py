"""The CPU as a target: LLVM compiles kernels, and threads of PyTorch's pool run parts of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from pliant.base import devices
from pliant.base.values import dataclass
from pliant.loop.ir import MEMORY, WEIGHT, Kernel, Loop, Op, Statement, values
from pliant.sym.expr import product_of
from pliant.targets.cpu.jit import KernelCompiler, host
from pliant.targets.cpu.loop_nest import arrange
from pliant.targets.target import Hint, KernelSource, LaunchParameters

# A coarse cost model: it chooses how many threads share a kernel, and which kernels share a launch.
WEIGHT_NS: Final = 0.02  # what an operation takes, roughly, in vectors and from the caches
ACCESS_NS: Final = 0.08
LEAST_NS: Final = 0.05


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """The processor that we run on."""

    @property
    def place(self) -> torch.device:
        return devices.CPU

    @property
    def launch_step(self) -> str:
        return "cpu_kernel"

    @property
    def overlaps_launches(self) -> bool:
        return False

    @property
    def updates_at_once(self) -> bool:
        return False

    @property
    def names_kernels(self) -> bool:
        return False

    @property
    def multiplies(self) -> bool:
        return False

    @property
    def measures(self) -> bool:
        return False

    @property
    def compiler(self) -> KernelCompiler:
        return host()

    def refusal(self, kernel: Kernel, hint: Hint) -> str | None:
        """There is code for every type and operation of the loop IR, but for atomic ones (updates
        are made in order) and for the random numbers of GPUs."""
        if any(value.op is Op.PHILOX for value in values(kernel.body)):
            return "random numbers of a GPU's generator"
        return None

    def arrange(self, kernel: Kernel, hint: Hint) -> Kernel:
        return arrange(kernel, hint)

    def generate(self, kernel: Kernel, hint: Hint) -> KernelSource:
        return self.compiler.source(kernel)

    def compile(self, source: KernelSource) -> Any:
        compiled = self.compiler.compile_source(source)
        return compiled.address, compiled

    def start(self, sources: Sequence[KernelSource]) -> list[Callable[[], Any]]:
        return [partial(self.compile, source) for source in sources]

    def launch_parameters(self, kernel: Kernel, hint: Hint) -> LaunchParameters:
        """The number of iterations that threads may share, None if it has to run once, and roughly
        how many nanoseconds one takes."""
        loops = kernel.grid
        body = loops[-1].body if loops else kernel.body
        extent = product_of([loop.extent for loop in loops]) if loops else None
        return extent, max(_cost(body, hint), LEAST_NS)


def _cost(body: tuple[Statement, ...], hint: Hint) -> float:
    """Roughly how many nanoseconds the statements take, at the sizes that `hint` expects."""
    total = 0.0
    for item in body:
        if isinstance(item, Loop):
            total += _cost(item.body, hint) * max(hint(item.extent), 1)
        elif item.op in MEMORY:
            total += ACCESS_NS
        elif item.op is not Op.CONSTANT:
            total += WEIGHT.get(item.op, 1) * WEIGHT_NS
    return total


CPU: Final = CpuTarget()
