"""The interface of a target: everything that the compiler asks of a machine.

The one idea: a target is given kernels of the loop IR and gives back text with a key, and later
something that the launcher can run. What a launch looks like (threads, a grid, addresses) is the
target's own: steps of the launch sequence have a kind for each target, `cpu_kernel` for instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from pliant.base.values import dataclass
from pliant.loop.ir import Kernel
from pliant.sym.expr import Expr

Hint = Callable[[Expr], int]


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A kernel as the target compiles it. `key` is the hash of the text and of all that the result
    depends on beside it: equal keys are equal machine code, in this process or another."""

    key: str
    text: str

    @property
    def readable(self) -> bool:
        """Whether a person would rather read the text than the loops."""
        return False


class Slower(Exception):
    """A kernel was measured, and what PyTorch has is faster."""


LaunchParameters = tuple[Expr | float | None, ...]
"""What the step for a kernel says besides kernel, buffers and sizes. Expressions become numbers of
values, None becomes -1; the launcher's step of this target knows what they mean."""


class Target(Protocol):
    """A kind of machine."""

    @property
    def place(self) -> torch.device:
        """The PyTorch device that has its tensors."""

    @property
    def launch_step(self) -> str:
        """The kind of step that launches its kernels."""

    @property
    def overlaps_launches(self) -> bool:
        """Whether kernels launched one after the other run at the same time, so that nothing is
        gained by launching them together."""

    @property
    def updates_at_once(self) -> bool:
        """Whether it makes the updates of a scatter in any order, by atomic operations."""

    @property
    def names_kernels(self) -> bool:
        """Whether people see its kernels by name, in profiles for instance."""

    @property
    def multiplies(self) -> bool:
        """Whether its kernels of products of matrices come near those of libraries."""

    @property
    def measures(self) -> bool:
        """Whether it tries several codes of long-running kernels, and keeps the fastest."""

    def refusal(self, kernel: Kernel, hint: Hint) -> str | None:
        """Why this machine can't run the kernel (a type or an operation it doesn't have), or should
        not, if so; `hint` tells sizes that were seen."""

    def arrange(self, kernel: Kernel, hint: Hint) -> Kernel:
        """The kernel with its loops ordered and tiled; `hint` tells sizes that were seen."""

    def generate(self, kernel: Kernel, hint: Hint) -> KernelSource:
        """The kernel in the language of the target's compiler; `hint` tells sizes that were
        seen."""

    def compile(self, source: KernelSource) -> Any:
        """The handle of machine code, for the launcher: what the launch step of this target takes,
        on a CPU a pair of its address and its owner. Raises `Slower` if it measures, and PyTorch's
        operators are faster."""

    def start(self, sources: Sequence[KernelSource]) -> list[Callable[[], Any]]:
        """Start to compile several kernels. Returns a function for each that waits for its handle,
        or raises; a compiler that can compiles them all at the same time."""

    def launch_parameters(self, kernel: Kernel, hint: Hint) -> LaunchParameters:
        """The numbers that the launch step of this target needs for the kernel: the extents of its
        grid, say, and what an iteration costs."""
