"""LLVM IR to machine code, in this process.

The one idea: a module becomes object code, and object code becomes an address. Object code is bytes
that say nothing about this process, so that it can be kept on disk (`cache`); modules with the same
text are compiled once.

llvmlite's objects are in Python, and an exception in the middle of their code leaves them half made
or its lock held. So everything that calls it runs `uninterrupted`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Final
from weakref import ReferenceType, WeakValueDictionary

import llvmlite  # type: ignore[import-untyped]
import llvmlite.binding as llvm  # type: ignore[import-untyped]

import pliant
from pliant._native import uninterrupted
from pliant.base.values import dataclass
from pliant.loop.ir import Kernel
from pliant.targets.cpu.llvm import SYMBOL, emit
from pliant.targets.cpu.llvm_lanes import Machine, machine_of
from pliant.targets.cpu.sleef import needed_by
from pliant.targets.kernel_cache import from_environment, key_of
from pliant.targets.target import KernelSource

RECENT: Final = 256  # kernels
LINKED: Final = 256
"""After so many kernels comes another linker: a little of each that is gone stays with the linker
until that is gone too."""
_LOCK: Final = threading.RLock()  # LLVM's objects are for one thread at a time
_loaded_code: Final[dict[int, ReferenceType[CompiledKernel]]] = {}
"""By address. What becomes of the code when its kernel is gone is in the references."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledKernel:
    """A kernel that can be called: the address of a function with the signature in `llvm`. The code
    lives as long as this."""

    address: int
    object_code: bytes


class KernelCompiler:
    """Compiles for one processor, the one we run on by default. Code for another kind of processor
    (`triple`) can be made, not loaded."""

    def __init__(
        self,
        cpu: str | None = None,
        features: Mapping[str, bool] | None = None,
        triple: str | None = None,
    ) -> None:
        if triple is None:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        else:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
        known_features = features if features is not None else dict(llvm.get_host_cpu_features())
        self.cpu = cpu or llvm.get_host_cpu_name()
        # In a fixed order, as this is part of the keys of kernels.
        self.features = ",".join(
            [("+" if on else "-") + name for name, on in sorted(known_features.items())]
        )
        self.target: Machine = machine_of(known_features)
        self._machine = llvm.Target.from_triple(
            triple or llvm.get_default_triple()
        ).create_target_machine(
            cpu=self.cpu, features=self.features, opt=LEVEL, jit=triple is None, **MODEL
        )
        self._jit = _linker(self._machine) if triple is None else None
        # Both are for all kernels: llvmlite frees neither whole.
        self._passes = _passes()
        self._builder = llvm.create_pass_builder(
            self._machine, llvm.create_pipeline_tuning_options()
        )
        self._loaded: WeakValueDictionary[str, CompiledKernel] = WeakValueDictionary()
        # A program that is compiled again, as after `reset`, finds its kernels.
        self._recent: deque[CompiledKernel] = deque(maxlen=RECENT)  # kept alive even if unused
        self._count = 0
        self._triple: str = self._machine.triple

    def compile(self, kernel: Kernel, target: Machine | None = None) -> CompiledKernel:
        """The kernel as machine code. `target` is for tests of other vector widths."""
        return self.compile_source(self.source(kernel, target))

    def source(self, kernel: Kernel, target: Machine | None = None) -> KernelSource:
        """The kernel as LLVM IR."""
        return self.with_key(emit(kernel, target or self.target))

    def with_key(self, text: str) -> KernelSource:
        return KernelSource(key_of(text, *self._identity()), text)

    def compile_source(self, source: KernelSource) -> CompiledKernel:
        """The function `SYMBOL` of a module."""
        # Another thread runs what is uninterrupted, which a kernel that is there need not wait for.
        compiled = self._loaded.get(source.key)
        return compiled or uninterrupted(self._compile_source, source)

    def _compile_source(self, source: KernelSource) -> CompiledKernel:
        key = source.key
        with _LOCK:
            compiled = self._loaded.get(key)
            if compiled is None:
                # Under the lock: two threads that want the same kernel compile it once.
                compiled = self._from_disk(key) or self._make(key, source.text)
                self._loaded[key] = compiled
                self._recent.append(compiled)
            return compiled

    def _identity(self) -> tuple[str, ...]:
        """All that object code depends on beside the text, for its key."""
        versions = (pliant.__version__, llvmlite.__version__, str(llvm.llvm_version_info))
        settings = str((LEVEL, MODEL, PASSES))
        return (*versions, self._triple, self.cpu, self.features, settings)

    def _from_disk(self, key: str) -> CompiledKernel | None:
        cache = from_environment()
        object_code = cache.load(key) if cache else None
        if object_code is None:
            return None
        try:
            return self._load(object_code)
        except RuntimeError:  # it needs something that this process doesn't have
            return None

    def _make(self, key: str, text: str) -> CompiledKernel:
        kernel = self._load(self.object_code(text))
        cache = from_environment()
        if cache:
            cache.store(key, kernel.object_code)
        return kernel

    def object_code(self, text: str) -> bytes:
        # Constants and types live as long as their context.
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = self._machine.triple
        module.data_layout = str(self._machine.target_data)
        module.verify()
        self._optimise(module)
        return bytes(self._machine.emit_object(module))

    def load(self, object_code: bytes) -> CompiledKernel:
        """The function in object code that this compiler, or one like it, has made."""
        compiled: CompiledKernel = uninterrupted(self._load, object_code)
        return compiled

    def _load(self, object_code: bytes) -> CompiledKernel:
        with _LOCK:
            self._count += 1
            if self._count % LINKED == 0:
                self._jit = _linker(self._machine)
            # Functions that the code calls: those of the C library in this process, and Sleef's,
            # whose addresses are looked up.
            builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process()
            for name, address in needed_by(object_code):
                builder.import_symbol(name, address)
            library = builder.export_symbol(SYMBOL).link(self._jit, f"kernel{self._count}")
            compiled = CompiledKernel(library[SYMBOL], object_code)
            when_gone = partial(uninterrupted, _unload, library)  # a C function
            _loaded_code[compiled.address] = ReferenceType(compiled, when_gone)
            return compiled

    def assembly(self, text: str) -> str:
        """The machine code of a module, to be read."""
        return str(uninterrupted(self._assembly, text))

    def _assembly(self, text: str) -> str:
        with _LOCK:
            module = llvm.parse_assembly(text, llvm.create_context())
            module.verify()
            self._optimise(module)
            return str(self._machine.emit_assembly(module))

    def _optimise(self, module: Any) -> None:
        """Vectors are in the text already, so this is short: put loops into their usual form, move
        what doesn't change out of them, and clean up."""
        self._passes.run(module, self._builder)


def _unload(library: Any, reference: ReferenceType[CompiledKernel]) -> None:
    del _loaded_code[library[SYMBOL]]  # before another kernel gets the address
    library.close()


def _passes() -> Any:
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    return manager


def _linker(machine: Any) -> Any:
    """A linker (JITLink) that puts code and its constants side by side. LLVM's other one lets the
    system choose a place for each, and ends the process where they are too far apart."""
    return llvm.create_lljit_compiler(machine, use_jit_link=True)


LEVEL: Final = 2
MODEL: Final = {"reloc": "pic", "codemodel": "small"}
"""Constants are found relative to the code, which is loaded together with them. With addresses of
64 bits (the default here) each needs a register of its own, and loops run out of them."""
PASSES: Final = ("instruction_combine", "loop_rotate", "instruction_combine")


@lru_cache(1)
def host() -> KernelCompiler:
    """The compiler for this processor."""
    compiler: KernelCompiler = uninterrupted(KernelCompiler)
    return compiler
