"""What `cold` runs in a fresh process: `benchmarks.cold_start first|suite|train SYSTEM ...`.

Nothing but torch is imported before the clock runs. The last line printed is seconds by name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

from benchmarks.kernel_programs import CASES, SMALL, Case
from benchmarks.networks import NETWORKS, Network
from benchmarks.training_programs import BY_NAME

Program = Case | Network
CASE_NAMES = [
    "relu(x*y + z)*0.5 - x", "tanh, sigmoid, exp", "gelu(x + bias)", "softmax", "layer norm",
    "sum, outer", "var, inner", "embedding * 2 + 1", "x + y.t()", "bf16 rms norm",
]  # fmt: skip
NETWORK_NAMES = [
    "MLP, 4 of 512, 64 rows", "transformer, 4 of 256, 4x64", "convnet, 16 wide, 2x3x64x64",
    "BERT, 4 of 32, 2x16", "GPT-2, 4 of 32, 2x16", "Llama, 4 of 32, 2x16",
]  # fmt: skip
_BY_NAME: dict[str, Program] = {item.name: item for item in (*CASES, *NETWORKS)}
SUITE = {name: _BY_NAME[name] for name in (*CASE_NAMES, *NETWORK_NAMES)}


def has(program: Program) -> bool:
    return isinstance(program, Case) or not program.missing


def small_fused(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * y + 1) - x


def stock_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def our_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    pliant = sys.modules["pliant"]
    return pliant.compile(function, backend="llvm", dynamic=False)


def stock_import() -> None:
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401


def our_import() -> None:
    import pliant

    pliant.config.raise_on_fallback = True  # eager execution must not pass for ours


IMPORTS = {"torch.compile": stock_import, "pliant": our_import}
COMPILE = {"torch.compile": stock_compile, "pliant": our_compile}


@torch.no_grad()
def first(system: str) -> dict[str, float]:
    """The steps to a first result, and all of them."""
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    begun = perf_counter()
    IMPORTS[system]()
    imported = perf_counter()
    compiled = COMPILE[system](small_fused)
    compiled(x, y)
    ended = perf_counter()
    compiled(x, y)
    found = {"import": imported - begun, "compile and run": ended - imported, "all": ended - begun}
    return found | {"second call": perf_counter() - ended}


@torch.no_grad()
def suite(system: str, names: list[str]) -> dict[str, float]:
    """What the first call of each program takes beyond a later one, in a process that has compiled
    something small before."""
    IMPORTS[system]()
    COMPILE[system](small_fused)(torch.randn(64, 64), torch.randn(64, 64))
    found = {}
    for name in names:
        program = SUITE[name]
        if isinstance(program, Case):
            function, args = program.function, program.args(*SMALL)
        else:
            function, args = program.make()
            function.eval()
        function(*args)  # PyTorch's own first time
        compiled = COMPILE[system](function)
        begun = perf_counter()
        compiled(*args)
        first_call = perf_counter() - begun
        begun = perf_counter()
        compiled(*args)
        found[name] = first_call - (perf_counter() - begun)
    return found


def train(system: str, names: list[str]) -> dict[str, float]:
    """The same for training steps: forward and backward are compiled."""
    IMPORTS[system]()
    x = torch.randn(64, 64, requires_grad=True)
    COMPILE[system](small_fused)(x, x).sum().backward()
    found = {}
    for name in names:
        trained = BY_NAME[name].make()
        trained.step(trained.function)()  # PyTorch's own first time
        step = trained.step(COMPILE[system](trained.function))
        begun = perf_counter()
        step()
        first_step = perf_counter() - begun
        begun = perf_counter()
        step()
        found[name] = first_step - (perf_counter() - begun)
    return found


TASKS = {"suite": suite, "train": train}


def main() -> None:
    task, system, *names = sys.argv[1:]
    print(json.dumps(first(system) if task == "first" else TASKS[task](system, names)))


if __name__ == "__main__":
    main()
