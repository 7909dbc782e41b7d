"""`pliant doctor`: what pliant runs on, and whether it works. To be pasted into a bug report."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import torch

import pliant
from pliant import cache
from pliant.base.events import counters

PACKAGES = ("torch", "llvmlite", "bytecode", "triton", "numpy")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="versions, machine, cache and a self-test, for bug reports",
        description="Show what pliant runs on and test that it works. The exit status is 0 if it "
        "does. Paste the output into a bug report.",
    )
    parser.set_defaults(main=main)


def main(chosen: argparse.Namespace) -> int:
    for title, lines in SECTIONS.items():
        print(title)
        for name, value in lines():
            print(f"  {name + ':':13} {value}")
    print("self-test")
    failures = 0
    for name, test in TESTS.items():
        if name == "GPU" and not torch.cuda.is_available():
            continue
        try:
            problem = test()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        print(f"  {name + ':':14}{problem or 'ok'}")
        failures += problem is not None
    return 1 if failures else 0


def _versions() -> Iterator[tuple[str, object]]:
    yield "pliant", pliant.__version__
    yield "Python", sys.version.replace("\n", " ")
    for name in PACKAGES:
        yield name, _version(name)
    yield "LLVM", ".".join(map(str, llvm.llvm_version_info))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> Iterator[tuple[str, object]]:
    yield "system", platform.platform()
    yield "CPU", f"{llvm.get_host_cpu_name()}, {os.cpu_count()} processors"
    features = llvm.get_host_cpu_features()
    vectors = [name for name in ("sse4.2", "avx", "avx2", "fma", "avx512f") if features.get(name)]
    yield "vectors", ", ".join(vectors) or "none that is known"
    yield "threads", torch.get_num_threads()
    yield "C compiler", _c_compiler()
    yield "CUDA", _cuda()


def _c_compiler() -> str:
    """What Triton builds its launchers with. Code for the CPU needs none."""
    candidates = (os.environ.get("CC", ""), "gcc", "clang", "cc")
    found = next(filter(None, map(shutil.which, candidates)), None)
    return found or "none (Triton needs one; code for the CPU does not)"


def _cuda() -> str:
    if not torch.cuda.is_available():
        built = torch.version.cuda
        return "none" if built is None else f"none (torch is built for CUDA {built})"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{torch.version.cuda}, {', '.join(names)}"


def _cache() -> Iterator[tuple[str, object]]:
    info = cache.info()
    if info.directory is None:
        yield "state", "turned off"
        return
    yield "directory", info.directory
    yield "size", f"{info.entries} files, {info.bytes / 2**20:.1f} of {info.limit / 2**20:.0f} MB"


def _environment() -> Iterator[tuple[str, object]]:
    names = sorted(name for name in os.environ if name.startswith("PLIANT_"))
    for name in names:
        yield name, os.environ[name]
    if not names:
        yield "PLIANT_*", "none"


SECTIONS: dict[str, Callable[[], Iterator[tuple[str, object]]]] = {
    "versions": _versions,
    "machine": _machine,
    "cache": _cache,
    "environment": _environment,
}


# ---- self-test: each test returns what is wrong, or None


def _function(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2 + x.shape[0], -1).sum(0)


def _inference() -> str | None:
    compiled = pliant.compile(_function, fullgraph=True)
    before = counters["programs"]
    for rows in (3, 4, 5, 1):  # the second size makes it symbolic; one compilation for the rest
        x = torch.randn(rows, 8)
        if not torch.allclose(compiled(x), _function(x)):
            return f"a result differs from PyTorch's for {rows} rows"
    return None if counters["programs"] > before else "no code was generated"


def _training() -> str | None:
    weight = torch.randn(8, 8, requires_grad=True)

    def loss(weight: torch.Tensor) -> torch.Tensor:
        return (weight @ weight).relu().square().mean()

    (expected,) = torch.autograd.grad(loss(weight), weight)
    (gradient,) = torch.autograd.grad(pliant.compile(loss, fullgraph=True)(weight), weight)
    return None if torch.allclose(gradient, expected) else "a gradient differs from PyTorch's"


def _on_gpu() -> str | None:
    x = torch.randn(4, 8, device="cuda")
    compiled = pliant.compile(_function, fullgraph=True)
    is_close = torch.allclose(compiled(x), _function(x), atol=1e-5)
    return None if is_close else "a result differs from PyTorch's"


TESTS: dict[str, Callable[[], str | None]] = {
    "inference": _inference,
    "training": _training,
    "GPU": _on_gpu,
}
