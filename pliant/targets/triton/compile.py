"""Sources become functions, and functions become machine code, by Triton.

The one idea: what Triton is told of a variant is data (`variants`), from which the name of its
machine code on disk is made, too.
"""

from __future__ import annotations

import linecache
from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler import compile as compile_source

from pliant.targets.triton import interpret, library, variants
from pliant.targets.triton.gpu_code import GpuCode
from pliant.targets.triton.printer import PrintedKernel
from pliant.targets.triton.variants import MULTIPLE, KernelVariant


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


def function_for(functions: dict[str, Any], variant: KernelVariant) -> Any:
    """The function of a source for a variant."""
    (name,) = [name for name in functions if name.endswith(variant.blocks.suffix)]
    return functions[name]


def constants(variant: KernelVariant) -> dict[str, Any]:
    texts = variants.constants(variant)
    return {name: getattr(tl, x) if isinstance(x, str) else x for name, x in texts.items()}


def machine_code(
    printed: PrintedKernel, function: Any, variant: KernelVariant, machine: GPUTarget
) -> Any:
    """The variant as Triton compiles it for this machine."""
    constexprs = constants(variant)
    signature = variants.signature(printed, variant) | dict.fromkeys(constexprs, "constexpr")
    attrs = {
        (at,): [["tt.divisibility", MULTIPLE]]
        for at, multiple in enumerate(variant.multiples)
        if multiple
    }
    source = ASTSource(function, signature, constexprs, attrs)
    return compile_source(source, target=machine, options=variants.options(printed, variant))


def code_of(compiled: Any) -> GpuCode:
    """What the driver has to be given of what Triton has compiled."""
    meta = compiled.metadata
    if meta.global_scratch_size or meta.profile_scratch_size:
        raise NotImplementedError("a kernel that needs memory of its own")
    if meta.num_ctas != 1 or meta.launch_cooperative_grid:
        raise NotImplementedError("a kernel whose programs work together")
    return GpuCode(meta.name, meta.shared, meta.num_warps, meta.warp_size, compiled.kernel)
