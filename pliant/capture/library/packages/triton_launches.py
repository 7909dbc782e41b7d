"""Triton kernels that the program calls itself, as an operator: a graph can hold the call.

The one idea: an operator of PyTorch says in its schema what it writes to, so everything behind
capture knows what to do with it. Tensors and symbolic numbers are arguments; the kernel, and all
that a capture has guarded, stand beside it under a name. Names are of this process: what another
one has written to a cache is never found by them.

Imported when the program has imported Triton.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.base.values import dataclass

_PROCESS: Final = uuid.uuid4().hex[:12]
_LAUNCHES: Final[dict[str, KernelLaunch]] = {}
_NUMBERS: Final = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class KernelLaunch:
    """A call of a kernel but for tensors and numbers: `written`, `read` and `numbers` name the
    parameters that these are for."""

    kernel: Any
    written: tuple[str, ...]
    read: tuple[str, ...]
    numbers: tuple[str, ...]
    constants: dict[str, Any]  # parameters and options

    def __call__(
        self,
        grid: Sequence[int],
        written: Sequence[torch.Tensor],
        read: Sequence[torch.Tensor],
        numbers: Sequence[int],
    ) -> None:
        arguments = dict(zip(self.written, written, strict=True))
        arguments |= dict(zip(self.read, read, strict=True))
        named = dict(zip(self.numbers, numbers, strict=True))
        self.kernel[tuple(grid)](**arguments, **named, **self.constants)


def register(launch: KernelLaunch) -> str:
    """The name by which `launch_kernel` finds it."""
    name = f"{launch.kernel.fn.__name__}_{_PROCESS}_{next(_NUMBERS)}"
    _LAUNCHES[name] = launch
    return name


def _launch(
    name: str,
    grid: Sequence[int],
    written: Sequence[torch.Tensor],
    read: Sequence[torch.Tensor],
    numbers: Sequence[int],
) -> None:
    _LAUNCHES[name](grid, written, read, numbers)


def _nothing(*args: Any) -> None:
    """Nothing is returned, and there is no memory to write to."""


_LIBRARY: Final = torch.library.Library("pliant", "FRAGMENT")
_LIBRARY.define(
    "launch_kernel(str name, SymInt[] grid, Tensor(a!)[] written, Tensor[] read, SymInt[] numbers)"
    " -> ()"
)
_LIBRARY.impl("launch_kernel", _launch, "CompositeExplicitAutograd")
_LIBRARY.impl("launch_kernel", _nothing, "Meta")
launch_kernel: Final = torch.ops.pliant.launch_kernel.default
