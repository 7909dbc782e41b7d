"""Sources become functions, and functions become machine code, by Triton.

The one idea: what Triton is told of a variant is data (`variants`), from which the name of its
machine code on disk is made, too. So Triton's own cache is not needed, and its compiler's stages
are run one after the other, without the hash of all of Triton that its cache begins with.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import Any, Final

import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.compiler import compile as compile_source
from triton.language.extra import libdevice

from pliant.targets.triton import gpu_code, instructions, interpret, library, variants
from pliant.targets.triton.gpu_code import GpuCode
from pliant.targets.triton.kernel_source import PrintedKernel
from pliant.targets.triton.variants import KernelVariant

ALIGNED: Final = 512
"""Memory from PyTorch's allocator begins at a multiple of this."""
STAGED: Final = frozenset(("3.6", "3.7", "3.8", "3.9"))
"""The versions of Triton whose stages are known to be run as `_in_stages` does it."""


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
) -> GpuCode:
    """The variant as Triton compiles it for this machine."""
    constexprs = constants(variant)
    signature = variants.signature(printed, variant) | dict.fromkeys(constexprs, "constexpr")
    attrs = {
        (at,): [["tt.divisibility", multiple]]
        for at, multiple in enumerate(variant.multiples)
        if multiple > 1
    }
    source = ASTSource(function, signature, constexprs, attrs)
    options = variants.options(printed, variant)
    version = ".".join(triton.__version__.split(".")[:2])
    # Settings of the environment, such as dumps of each stage, are for Triton's own function.
    if version not in STAGED or gpu_code.compiler_is_told():
        compiled = compile_source(source, target=machine, options=options)
        return _code_of(compiled.metadata._asdict(), compiled.kernel)
    return _in_stages(source, machine, options)


def _in_stages(source: ASTSource, machine: GPUTarget, options: dict[str, Any]) -> GpuCode:
    """Compile the source by one stage after the other, each of which adds to the metadata."""
    backend = make_backend(machine)
    parsed = backend.parse_options(options | source.parse_options())
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    library_functions = backend.get_codegen_implementation(parsed)
    modules = backend.get_module_map()
    if machine.backend == "cuda":
        modules |= {libdevice.__name__: instructions.LIBRARY}
    code = source.make_ir(machine, parsed, library_functions, modules, context)
    metadata = {"target": machine, **vars(parsed)}
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, parsed, source.language)
    for stage in stages.values():
        code = stage(code, metadata)
    return _code_of(metadata, code)


def _code_of(metadata: Mapping[str, Any], binary: bytes) -> GpuCode:
    """What the driver has to be given of what Triton has compiled."""
    if metadata.get("profile_scratch_size"):
        raise NotImplementedError("a kernel that is profiled by Triton")
    if (metadata.get("global_scratch_align") or 1) > ALIGNED:
        raise NotImplementedError("memory for programs that begins at larger multiples")
    if metadata["num_ctas"] != 1 or metadata["launch_cooperative_grid"]:
        raise NotImplementedError("a kernel whose programs work together")
    warp_size = metadata["target"].warp_size
    name, shared, warps = metadata["name"], metadata["shared"], metadata["num_warps"]
    scratch = metadata.get("global_scratch_size") or 0
    return GpuCode(name, shared, warps, warp_size, scratch, binary)
