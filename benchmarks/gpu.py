"""Programs on a GPU: eager PyTorch, torch.compile and pliant in one run, with fixed and with
symbolic sizes. First calls with empty caches are those of processes of their own, which run
`python -m benchmarks.gpu NETWORK fixed|symbolic`.

The one idea: what a user waits for is what counts, so a round is a loop of calls that ends when the
GPU is done. Small programs show what a launch costs, large ones how near a kernel comes to a copy
of the same bytes.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F

import pliant
from benchmarks.compared import EAGER, OURS, STOCK, differs, geometric_mean
from benchmarks.timing import table

Function = Callable[..., Any]
SYSTEMS = (EAGER, STOCK, OURS)
FAILED = float("nan")


def _rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], -1)
    return x * angles.cos() + turned * angles.sin()


PROGRAMS: dict[str, Function] = {
    "x + 1": lambda x: x + 1,
    "softmax": lambda x: torch.softmax(x, -1),
    "rms norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6),
    "gelu, layer norm": lambda x: F.layer_norm(F.gelu(x), x.shape[-1:]),
    "transposed, times 2": lambda x: x.t().contiguous() * 2,
    "sum of rows": lambda x: x.sum(1),
    "sum of columns": lambda x: x.sum(0),
    "rotary embedding": lambda x: _rotated(x, x[:1]),
    "dropout, relu": lambda x: F.dropout(x, 0.1).relu() * 2,
}
SIZES = {"small": (64, 1000), "large": (16_384, 4_096)}
QUICK = ("x + 1", "softmax", "gelu, layer norm", "transposed, times 2", "sum of columns")


def main(quick: bool = False) -> None:
    if not torch.cuda.is_available():
        print("benchmarks gpu: there is no GPU")
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    names = QUICK if quick else tuple(PROGRAMS)
    for dynamic in (False, True):
        _programs(names, dynamic)
    names = ("gpt2",) if quick else ("gpt2", "bert", "llama")
    if importlib.util.find_spec("transformers") is None:
        print("networks: transformers is not installed")
        return
    _networks(names)
    _first_calls(names)


def _programs(names: Sequence[str], dynamic: bool) -> None:
    rows, ratios = [], []
    for size, shape in SIZES.items():
        x = torch.randn(shape, device="cuda")
        target = torch.empty_like(x)
        rows.append([f"copy, {size}", *[""] * 3, cell(_seconds(lambda y=target, x=x: y.copy_(x)))])
        for name in names:
            times = compared(PROGRAMS[name], (x,), dynamic)
            ratios.append(times[STOCK] / times[OURS])
            rows.append([f"{name}, {size}", *[cell(times[s]) for s in SYSTEMS], ""])
    title = f"Microseconds a call, {'symbolic' if dynamic else 'fixed'} sizes"
    table(title, ["program", *SYSTEMS, "copy"], rows)
    print(f"\ntorch.compile / pliant, geometric mean: {geometric_mean(ratios):.2f}")


def compared(function: Function, args: Sequence[Any], dynamic: bool) -> dict[str, float]:
    """Seconds a call of each system, in its best round; the systems take turns."""
    expected = function(*args)
    calls: dict[str, Callable[[], Any]] = {}
    for system in SYSTEMS:
        compiled = _compiled(system, function, dynamic)
        result = compiled(*args)
        if "dropout" not in str(function.__code__.co_names) and differs(result, expected):
            calls[system] = lambda: None
            continue
        calls[system] = lambda compiled=compiled: compiled(*args)
    best = dict.fromkeys(SYSTEMS, math.inf)
    for _ in range(3):
        for system, call in calls.items():
            best[system] = min(best[system], _seconds(call))
    return best


def _compiled(system: str, function: Function, dynamic: bool, mode: str | None = None) -> Function:
    if system == EAGER:
        return function
    if system == STOCK:
        torch._dynamo.reset()
        stock: Function = torch.compile(function, dynamic=dynamic, mode=mode)
        return stock
    return pliant.compile(function, dynamic=dynamic, mode=mode)


def _seconds(call: Callable[[], Any], limit: float = 0.03) -> float:
    """Of one call in a loop, until the GPU is done."""
    call()
    torch.cuda.synchronize()
    started, repeats = perf_counter(), 1
    call()
    torch.cuda.synchronize()
    repeats = max(3, min(2000, int(limit / max(perf_counter() - started, 1e-6))))
    started = perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (perf_counter() - started) / repeats


def cell(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds == seconds else "failed"


# --------------------------------------------------------------------------------------------------
# Networks


def _network(name: str) -> Any:
    transformers = importlib.import_module("transformers")
    torch.manual_seed(0)
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=6, use_cache=False)
        return transformers.GPT2LMHeadModel(config).cuda()
    if name == "bert":
        return transformers.BertModel(transformers.BertConfig(num_hidden_layers=6)).cuda()
    config = transformers.LlamaConfig(
        hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=32_000, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).cuda()


def _networks(names: Sequence[str]) -> None:
    ids = torch.randint(0, 1000, (8, 512), device="cuda")
    rows = []
    for name in names:
        forward = _forward(_network(name).bfloat16().eval())
        with torch.no_grad():
            rows.append(_row(f"{name}, forward", forward, ids))
            rows.append(_row(f"{name}, reduce-overhead", forward, ids, "reduce-overhead"))
    rows.append(_row("gpt2, training step", None, ids))
    table(
        "6 layers, bfloat16, 8 x 512: ms a call (seconds to compile)", ["network", *SYSTEMS], rows
    )


def _first_calls(names: Sequence[str]) -> None:
    """Of pliant, in new processes with empty caches."""
    rows = []
    for name in names:
        seconds = [_first_call_of(name, sizes) for sizes in ("fixed", "symbolic")]
        rows.append([name, *[f"{s:.2f}" for s in seconds], f"{seconds[1] / seconds[0]:.2f}"])
    title = "First call with empty caches, seconds beyond a later one"
    table(title, ["network", "fixed sizes", "symbolic", "ratio"], rows)


def _first_call_of(name: str, sizes: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        caches = {"PLIANT_CACHE_DIR": f"{directory}/ours", "TRITON_CACHE_DIR": f"{directory}/its"}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.gpu", name, sizes],
            env=os.environ | caches, cwd=Path(__file__).parents[1],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode:
        print(done.stderr[-1500:])
        return FAILED
    seconds: float = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _time_first_call(name: str, sizes: str) -> float:
    ids = torch.randint(0, 1000, (8, 512), device="cuda")
    forward = _forward(_network(name).bfloat16().eval())
    with torch.no_grad():
        forward(ids)  # PyTorch's own first time
        compiled = pliant.compile(forward, dynamic=sizes == "symbolic")
        times = []
        for _ in range(2):
            torch.cuda.synchronize()
            started = perf_counter()
            compiled(ids)
            torch.cuda.synchronize()
            times.append(perf_counter() - started)
    return times[0] - times[1]


def _forward(model: Any) -> Function:
    def forward(ids: torch.Tensor) -> torch.Tensor:
        result = model(ids)
        return result.logits if hasattr(result, "logits") else result.last_hidden_state

    return forward


def _row(
    name: str, forward: Function | None, ids: torch.Tensor, mode: str | None = None
) -> list[str]:
    cells = []
    for system in SYSTEMS:
        if forward is None:
            call = _training_step(system)
        else:
            call = _compiled(system, forward, False, mode)
        started = perf_counter()
        call(ids)
        torch.cuda.synchronize()
        compiled = perf_counter() - started
        for _ in range(4):  # what is recorded is recorded in one of the next calls
            call(ids)
        seconds = min(_seconds(lambda call=call: call(ids), 0.2) for _ in range(3))
        cells.append(f"{seconds * 1e3:.2f} ({compiled:.1f})")
    return [name, *cells]


def _training_step(system: str) -> Function:
    model = _network("gpt2").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def loss_of(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(ids).logits[:, :-1].flatten(0, 1)
            return F.cross_entropy(logits.float(), ids[:, 1:].flatten())

    compiled = _compiled(system, loss_of, False)

    def step(ids: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = compiled(ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


if __name__ == "__main__":
    print(json.dumps(_time_first_call(*sys.argv[1:])))
