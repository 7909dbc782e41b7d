"""Machine code of GPU kernels on disk: another process launches the same without Triton, and what
is damaged or made otherwise is compiled again. There is no GPU: what the driver would be given is
looked at."""

import json
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from triton.backends.nvidia import compiler as nvidia
from triton.language.extra.cuda import libdevice

import pliant
from pliant.targets import kernel_cache as disk
from pliant.targets.triton import compile as compiler
from pliant.targets.triton import gpu_code, instructions, launch, variants
from pliant.targets.triton.gpu_code import GpuCode, pack, unpack
from pliant.targets.triton.kernel_source import printed
from tests.targets.test_kernel_cache import DAMAGES, damage, files
from tests.targets.triton.test_launch import COLUMNS

ROOT = Path(__file__).parents[3]
CODE = GpuCode("kernel", 64, 4, 32, 256, b"\x7fELF\n\x00\xff")
ARGUMENTS = (False, 0b11, 64, True)  # of `CudaKernel.variant`


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_CACHE", "1")
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))
    disk.counts.clear()
    disk._sizes.clear()
    disk._warned.clear()
    return tmp_path / "cache"


class Machine:
    """What is compiled by Triton, and what a driver is given."""

    def __init__(self, monkeypatch):
        self.compiled, self.given, self.capability = [], [], (9, 0)
        self.refused = []
        original = compiler.machine_code

        def compile(printed, function, variant, machine):
            self.compiled.append(machine)
            return original(printed, function, variant, machine)

        monkeypatch.setattr(compiler, "machine_code", compile)
        monkeypatch.setattr(launch, "cuda_load", self.load)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda place: self.capability)

    def load(self, *given):
        self.given.append(given)
        if given[0] in self.refused:
            raise RuntimeError("cuModuleLoadData failed with CUDA error 209")
        return 7

    def compiles(self):
        """Whether Triton compiles a kernel for a process that knows nothing of earlier ones."""
        count, before = len(self.compiled), len(self.given)
        kernel = launch.CudaKernel(printed(COLUMNS), "key", torch.device("cuda", 0))
        assert kernel.variant(*ARGUMENTS)[0] == 7
        assert self.given[-1][2:] == self.given[0][2:] and len(self.given) > before
        return len(self.compiled) > count


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


def test_code_is_compiled_once_and_given_to_the_driver_as_it_was(machine):
    assert machine.compiles() and not machine.compiles()
    first, second = machine.given
    assert first == second and first[0].startswith(b"\x7fELF")
    info = pliant.cache.info()
    assert (info.hits, info.misses, info.stored, info.entries) == (1, 1, 1, 1)


def test_nothing_is_kept_when_the_cache_is_turned_off(machine, monkeypatch, own_directory):
    monkeypatch.setenv("PLIANT_CACHE", "0")
    assert machine.compiles() and machine.compiles()
    assert not own_directory.exists()


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_compiled_again_and_replaced(kind, machine, own_directory):
    machine.compiles()
    (path,) = files(own_directory)
    damage(kind, path)
    assert machine.compiles() and not machine.compiles()
    assert machine.given[0] == machine.given[1] == machine.given[2]


def test_whole_files_of_something_else_are_compiled_again(machine, own_directory):
    machine.compiles()
    (path,) = files(own_directory)
    disk.from_environment().store(path.stem, b"object code of a CPU")
    assert machine.compiles() and not machine.compiles()


def test_files_that_others_can_write_are_compiled_again(machine, own_directory):
    machine.compiles()
    (path,) = files(own_directory)
    path.chmod(0o666)
    assert machine.compiles() and not machine.compiles()


def test_code_that_the_driver_refuses_is_compiled_again_and_replaced(machine, own_directory):
    machine.compiles()
    (path,) = files(own_directory)
    foreign = replace(unpack(disk.from_environment().load(path.stem)), binary=b"of another driver")
    disk.from_environment().store(path.stem, pack(foreign))
    machine.refused.append(foreign.binary)
    assert machine.compiles() and not machine.compiles()
    assert machine.given[1][0] == foreign.binary and machine.given[0] == machine.given[2]


def test_code_that_no_driver_loads_is_an_error(machine):
    machine.compiles()
    machine.refused.append(machine.given[0][0])
    with pytest.raises(RuntimeError, match="CUDA error 209"):
        machine.compiles()


CHANGES = {
    "pliant": lambda patch, machine: patch.setattr(pliant, "__version__", "0.0.test"),
    "torch": lambda patch, machine: patch.setattr(torch, "__version__", "0.0.test"),
    "Triton": lambda patch, machine: patch.setattr(gpu_code, "triton_version", lambda: "0.0"),
    "Python": lambda patch, machine: patch.setattr(
        gpu_code, "sys", SimpleNamespace(version_info=(3, 99, 0))
    ),
    "library": lambda patch, machine: patch.setattr(gpu_code, "_library", lambda: "other"),
    "GPU": lambda patch, machine: setattr(machine, "capability", (8, 0)),
    "options": lambda patch, machine: patch.setattr(
        variants, "options", lambda printed, variant: {"num_warps": 2}
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_code_made_otherwise_is_not_used(what, machine, monkeypatch):
    machine.compiles()
    name = gpu_code.name_of(printed(COLUMNS), described(), "sm_90")
    CHANGES[what](monkeypatch, machine)
    kernel = launch.CudaKernel(printed(COLUMNS), "key", torch.device("cuda", 0))
    other = kernel._name(described())
    assert other != name and gpu_code.load(other) is None


def described():
    kernel = launch.CudaKernel(printed(COLUMNS), "key", torch.device("cuda", 0))
    return kernel._described(*ARGUMENTS)


def test_each_variant_has_a_name():
    kernel = launch.CudaKernel(printed(COLUMNS), "key", torch.device("cuda", 0))
    asked = [ARGUMENTS, (True, *ARGUMENTS[1:]), (False, 0b01, 64, True), (False, 0b10, 64, True)]
    asked += [(False, 0b11, 8, True), (False, 0b11, 64, False)]
    described = [kernel._described(*arguments) for arguments in asked]
    names = {gpu_code.name_of(kernel.printed, variant, "sm_90") for variant in described}
    assert len(names) == len(asked)
    renamed = replace(kernel.printed, source=kernel.printed.source.replace("kernel", "other"))
    asserting = replace(kernel.printed, asserts=True)
    for changed in (renamed, asserting):
        assert gpu_code.name_of(changed, described[0], "sm_90") not in names


@pytest.mark.parametrize(
    ("setting", "used"),
    [
        ("DISABLE_LLVM_OPT", False),
        ("MLIR_ENABLE_DUMP", False),
        ("PTXAS_OPTIONS", False),
        ("TRITON_KERNEL_DUMP", False),
        ("TRITON_DUMP_DIR", True),
        ("TRITON_CACHE_DIR", True),
        ("LLVM_CONFIG", True),
    ],
)
def test_settings_of_the_compiler_are_heard(setting, used, machine, monkeypatch, tmp_path):
    machine.compiles()
    monkeypatch.setenv(setting, str(tmp_path) if "DIR" in setting else "1")
    assert gpu_code.compiler_is_told() != used
    assert (
        gpu_code.load(gpu_code.name_of(printed(COLUMNS), described(), "sm_90")) is not None
    ) == used


@pytest.mark.parametrize(
    "machine", [compiler.nvidia(80), compiler.nvidia(90), compiler.amd("gfx942")]
)
def test_stages_give_what_tritons_own_function_gives(machine, monkeypatch):
    kernel, variant = printed(COLUMNS), described()
    asked = []
    original = compiler.compile_source
    monkeypatch.setattr(
        compiler, "compile_source", lambda *a, **k: [asked.append(a), original(*a, **k)][1]
    )
    codes = []
    for versions in (compiler.STAGED, frozenset()):
        monkeypatch.setattr(compiler, "STAGED", versions)
        functions = compiler.functions(kernel.source, "key", interpreted=False)
        function = compiler.function_for(functions, variant)
        codes.append(compiler.machine_code(kernel, function, variant, machine))
        assert len(asked) == (not versions)
    assert codes[0] == codes[1]


def test_settings_are_for_tritons_own_function(monkeypatch, tmp_path):
    """It shows the code after each stage, for instance."""
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "1")
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    kernel, variant = printed(COLUMNS), described()
    functions = compiler.functions(kernel.source, "key", interpreted=False)
    function = compiler.function_for(functions, variant)
    compiler.machine_code(kernel, function, variant, compiler.nvidia(90))
    assert {path.suffix for path in tmp_path.rglob("*.*")} >= {".ttir", ".ptx"}


def test_an_unknown_version_of_triton_keeps_nothing(machine, monkeypatch, own_directory):
    monkeypatch.setattr(gpu_code, "triton_version", lambda: None)
    assert machine.compiles() and machine.compiles()
    assert not own_directory.exists()


def test_bytes_of_code():
    assert unpack(pack(CODE)) == CODE
    about, _, binary = pack(CODE).partition(b"\n")
    header = json.loads(about)
    wrong = [{}, [1], {**header, "more": 1}, {**header, "shared": "64"}, {**header, "warps": True}]
    wrong += [{**header, "name": None}, {key: header[key] for key in list(header)[1:]}]
    for other in wrong:
        assert unpack(json.dumps(other).encode() + b"\n" + binary) is None
    for content in (b"", b"\n", about, about + b"\n", binary, b"\xff\n" + binary):
        assert unpack(content) is None


def start(directory, *more):
    environment = os.environ | {"TRITON_CACHE_DIR": str(directory)}
    command = [sys.executable, "-m", "tests.targets.triton.programs_for_gpus", *more]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(process):
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out.splitlines()


def test_other_processes_give_the_driver_the_same_without_triton(tmp_path):
    """Two write at the same time; the one after them can't import Triton."""
    *first, _ = given = lines_of_both(tmp_path)
    *second, counts = lines(start(tmp_path / "none", "--without-triton"))
    assert second == first and len(first) == 12
    hits, misses, stored, entries, imported = counts.split()
    assert (hits, misses, stored, entries, imported) == ("8", "0", "0", "8", "False")
    assert given[-1].split()[-1] == "True"


def lines_of_both(tmp_path):
    together = [start(tmp_path / name) for name in ("one", "two")]
    one, two = map(lines, together)
    assert one[:-1] == two[:-1]
    return one


FUNCTION = """@triton.jit
def kernel(b0, b1, ROWS: tl.constexpr):
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(b1 + place, libdevice.{name}(tl.load(b0 + place)))
"""


def operations(binary):
    """The operations of the instructions in an ELF file, without registers."""
    (table,) = struct.unpack_from("<Q", binary, 0x28)
    size, count, names = struct.unpack_from("<HHH", binary, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", binary, table + size * n) for n in range(count)]
    start = sections[names][4]
    texts = {}
    for name, _, _, _, at, length in sections:
        end = binary.index(b"\0", start + name)
        texts[binary[start + name : end]] = binary[at : at + length]
    code = texts[b".text.kernel"]
    return [struct.unpack_from("<H", code, at)[0] & 0xFFF for at in range(0, len(code), 16)]


@pytest.mark.parametrize("t", ["fp32", "fp64"])
@pytest.mark.parametrize("name", instructions.INSTRUCTIONS)
def test_functions_of_one_instruction_are_those_of_the_library(name, t, monkeypatch):
    linked = []
    link = nvidia.llvm.link_extern_libs
    monkeypatch.setattr(
        nvidia.llvm, "link_extern_libs", lambda *args: [linked.append(args), link(*args)][1]
    )
    function = compiler.functions(FUNCTION.format(name=name), f"{name} {t}", False)["kernel"]
    options = variants.options(printed(COLUMNS), described())
    made = []
    for library in (instructions.LIBRARY, libdevice):
        monkeypatch.setattr(instructions, "LIBRARY", library)
        signature = {"b0": f"*{t}", "b1": f"*{t}", "ROWS": "constexpr"}
        source = compiler.ASTSource(function, signature, {"ROWS": 256}, {})
        made.append(compiler._in_stages(source, compiler.nvidia(90), options))
    assert operations(made[0].binary) == operations(made[1].binary)
    assert len(linked) == (1 if t == "fp32" else 2)
