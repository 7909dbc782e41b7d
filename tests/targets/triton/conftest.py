"""What the tests of Triton kernels share: every kernel that is run is looked at."""

import pytest

from pliant.targets.triton import compile as compiler
from pliant.targets.triton import launch, target
from pliant.targets.triton.target import TritonTarget


class Kernels:
    """The kernels that ran: their sources with the variants that were needed, and what went wrong.
    (The launcher runs the graph with PyTorch if a kernel fails.)"""

    def __init__(self):
        self.ran = {}
        self.errors = []

    def compile_for(self, *machines):
        """What is tested can't be what only the interpreter accepts. By numbers: compute
        capabilities of NVIDIA's, by names: architectures of AMD's."""
        for (source, variant), printed in self.ran.items():
            functions = compiler.functions(source, str(abs(hash(source))), interpreted=False)
            function = compiler.function_for(functions, variant)
            for name in machines:
                machine = compiler.amd(name) if isinstance(name, str) else compiler.nvidia(name)
                code = compiler.machine_code(printed, function, variant, machine)
                assert code.binary.startswith(b"\x7fELF")

    @property
    def suffixes(self):
        return {variant.blocks.suffix for _, variant in self.ran}


@pytest.fixture
def kernels(monkeypatch):
    seen = Kernels()
    run = launch.InterpretedKernel.__call__

    def call(kernel, *args):
        count = len(kernel.printed.buffers)
        _, variant = launch.choose(kernel.printed, args[:count], args[count:], kernel.whole)
        try:
            run(kernel, *args)
        except Exception as error:
            if "out of range" not in str(error):  # an assertion of the kernel
                seen.errors.append(f"{error!r}\n{kernel.printed.source}")
            raise
        seen.ran[kernel.printed.source, variant] = kernel.printed

    monkeypatch.setattr(launch.InterpretedKernel, "__call__", call)
    yield seen
    assert seen.errors == []


@pytest.fixture
def whole(monkeypatch):
    """Set how many columns a tile has at most."""

    def change(columns):
        monkeypatch.setattr(target, "TritonTarget", lambda place: TritonTarget(place, columns))

    return change


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Triton keeps machine code on disk: not that of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield
