"""Machine code for GPUs: what of it the driver is given, and what of it is on disk.

The one idea: a process that finds its kernels on disk does without Triton, and does not even import
it. So the name of a file is made of what Triton would be told, and the file says all that a launch
needs. The files are those of `kernel_cache`, with its rules.
"""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from typing import Any, Final

import torch

import pliant
from pliant.base.values import dataclass
from pliant.targets.kernel_cache import KernelCache, from_environment, key_of
from pliant.targets.triton import variants
from pliant.targets.triton.kernel_source import PrintedKernel
from pliant.targets.triton.variants import KernelVariant

CALLED: Final = ("library.py", "instructions.py")
"""The files with functions that kernels call."""
PACKAGES: Final = ("triton", "pytorch-triton")
"""Under which names Triton is installed."""
COMPILER_SETTINGS: Final = (
    ("TRITON_", "PTXAS_", "MLIR_", "NVPTX_", "AMDGCN_", "DISABLE_LLVM_", "DISABLE_PTXAS_")
    + ("DISABLE_MMA_", "LLVM_IR_", "LLVM_PASS_", "LLVM_ENABLE_", "LLVM_EXTRACT_", "USE_IR_")
    + ("ALLOW_LHS_",)
)
"""How the names of variables begin that change what Triton makes, or have it show its work."""
OTHER_SETTINGS: Final = frozenset(
    ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR")
    + ("TRITON_CACHE_MANAGER", "TRITON_REMOTE_CACHE_BACKEND", "TRITON_REDIS_KEY_FORMAT")
    + ("TRITON_REDIS_HOST", "TRITON_REDIS_PORT", "TRITON_STORE_BINARY_ONLY")
    + ("TRITON_CACHE_AUTOTUNING", "TRITON_PRINT_AUTOTUNING", "TRITON_LIBCUDA_PATH")
)
"""Variables that only say where things are, or are about autotuning."""


@dataclass(frozen=True, slots=True)
class GpuCode:
    """Machine code, and what a launch needs beside arguments and a grid."""

    name: str  # of the function in it
    shared: int  # bytes of shared memory
    warps: int
    warp_size: int
    scratch: int  # bytes of memory that each program needs for itself
    binary: bytes

    @property
    def threads(self) -> int:
        return self.warps * self.warp_size


def pack(code: GpuCode) -> bytes:
    """As bytes: a line of JSON, and the machine code."""
    about = {name: getattr(code, name) for name in _FIELDS}
    return json.dumps(about).encode() + b"\n" + code.binary


def unpack(content: bytes) -> GpuCode | None:
    """The code in these bytes; None if they are anything else."""
    line, _, binary = content.partition(b"\n")
    try:
        about: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or {n: type(v) for n, v in about.items()} != _FIELDS:
        return None
    return GpuCode(**about, binary=binary) if binary else None


_FIELDS: Final[dict[str, type]] = {"name": str} | dict.fromkeys(
    ("shared", "warps", "warp_size", "scratch"), int
)


def load(key: str | None) -> GpuCode | None:
    """What is on disk under this name."""
    cache = _cache(key)
    content = cache.load(key) if cache and key else None
    return None if content is None else unpack(content)


def store(key: str | None, code: GpuCode) -> None:
    """Keep it, if there is a place for it."""
    cache = _cache(key)
    if cache and key:
        cache.store(key, pack(code))


def _cache(key: str | None) -> KernelCache | None:
    return None if key is None or compiler_is_told() else from_environment()


def compiler_is_told(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment changes what Triton's compiler does. It then has to be asked."""
    names = environment.keys() - OTHER_SETTINGS
    return any(name.startswith(COMPILER_SETTINGS) for name in names)


def name_of(printed: PrintedKernel, variant: KernelVariant, machine: str) -> str | None:
    """The name of the machine code of a variant for this machine, "sm_90" for instance; None if it
    isn't known which Triton would make it."""
    version = triton_version()
    if version is None:
        return None
    told = (
        variants.signature(printed, variant),
        variants.constants(variant),
        variants.options(printed, variant),
        variant.blocks.suffix,
        variant.multiples,
    )
    python = ".".join(map(str, sys.version_info[:2]))
    versions = ("triton", pliant.__version__, version, torch.__version__, python)
    return key_of(printed.source, *versions, machine, _library(), json.dumps(told))


@lru_cache(1)
def triton_version() -> str | None:
    """That of the Triton that is installed, which is not imported for it."""
    for name in PACKAGES:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


@lru_cache(1)
def _library() -> str:
    """The hash of the functions that kernels call: they become part of the machine code."""
    contents = [pkgutil.get_data("pliant.targets.triton", name) for name in CALLED]
    return hashlib.sha256(b"".join([content or b"" for content in contents])).hexdigest()
