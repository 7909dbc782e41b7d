"""Sources become functions, and functions become machine code, in few variants.

The one idea: a variant is a tile, the width of indices, and which arguments are multiples of 16.
It is made when a call first needs it, and kept: Triton's own cache on disk has the machine code.
"""

from __future__ import annotations

import linecache
from typing import Any, Final

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from pliant.base.values import dataclass
from pliant.targets.triton import interpret, library
from pliant.targets.triton.blocks import Blocks
from pliant.targets.triton.expressions import POINTERS
from pliant.targets.triton.printer import PrintedKernel

MULTIPLE: Final = 16


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """What machine code is specialized for. `multiples`: for each tensor and number whether its
    address or value is a multiple of 16, so that loads can be of 16 bytes."""

    blocks: Blocks
    wide: bool  # indices of 64 bits
    multiples: tuple[bool, ...]


def nvidia(capability: int) -> GPUTarget:
    """A GPU of this compute capability, 90 for instance."""
    return GPUTarget("cuda", capability, 32)


def amd(architecture: str) -> GPUTarget:
    """A GPU of this architecture, "gfx942" for instance: for tests, there is no launcher."""
    return GPUTarget("hip", architecture, 64)


def functions(source: str, key: str, interpreted: bool) -> dict[str, Any]:
    """The Triton functions of a source, by their names."""
    file = f"<pliant triton {key[:16]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # Triton reads it
    names = (interpret if interpreted else library).namespace()
    before = set(names)
    names["__name__"] = __name__
    exec(compile(source, file, "exec"), names)
    return {name: names[name] for name in names.keys() - before if hasattr(names[name], "fn")}


def constants(variant: KernelVariant) -> dict[str, Any]:
    index = tl.int64 if variant.wide else tl.int32
    return {"ROWS": variant.blocks.rows, "COLUMNS": variant.blocks.columns, "INDEX": index}


def machine_code(
    printed: PrintedKernel, function: Any, variant: KernelVariant, machine: GPUTarget
) -> Any:
    """The variant as Triton compiles it for this machine."""
    signature = {buffer.name: POINTERS[buffer.type] for buffer in printed.buffers}
    for argument in printed.arguments:
        signature[argument.name] = "i64" if variant.wide or argument.wide else "i32"
    attrs = {
        (at,): [["tt.divisibility", MULTIPLE]]
        for at, multiple in enumerate(variant.multiples)
        if multiple
    }
    constexprs = constants(variant)
    signature |= dict.fromkeys(constexprs, "constexpr")
    source = ASTSource(function, signature, constexprs, attrs)
    options = {
        "num_warps": variant.blocks.warps,
        "enable_fp_fusion": False,  # floats are rounded after each operation, as in eager PyTorch
        "enable_reflect_ftz": False,  # nor are small numbers made 0
        "debug": printed.asserts,  # or Triton drops assertions
        "sanitize_overflow": False,
    }
    return compile_source(source, target=machine, options=options)
