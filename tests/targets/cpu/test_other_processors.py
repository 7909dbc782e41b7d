"""Kernels for processors that this one is not: those with fewer features are masked, and run here;
others are linked with a driver and run under qemu, where an instruction too many ends the process.
"""

import re
import shutil
import subprocess

import pytest
import torch

from pliant.loop.check import check
from pliant.loop.ir import SAME, SIGNATURES, Op
from pliant.loop.types import Type
from pliant.targets.cpu.jit import KernelCompiler
from tests.targets.cpu.kernels import call, pointwise, reduction

V2 = {"sse4.2": True, "avx": False, "avx2": False, "avx512f": False}
V3 = {"avx2": True, "fma": True, "f16c": True, "avx512f": False}
V4 = {"avx2": True, "fma": True, **dict.fromkeys(("avx512f", "avx512bw", "avx512vl"), True)}

# cpu, features, what is not to be seen in the code, what the host has to have to run it
LEVELS = {
    "SSE4.2": ("x86-64-v2", V2, r"\b[yz]mm|\bxmm(1[6-9]|[23]\d)|\bv(add|mov|fma)", "sse4.2"),
    "AVX2": ("x86-64-v3", V3, r"\bzmm|\b[xy]mm(1[6-9]|[23]\d)|\{%?k\d", "avx2"),
    "AVX-512": ("x86-64-v4", V4, r"\bno such register", "avx512vl"),
}
TYPES = [Type.F32, Type.F64, Type.F16, Type.BF16, Type.I32, Type.I64, Type.BOOL]
NO_RESULT = "LOAD STORE CONSTANT IOTA AS_INDEX CAST BITCAST CARRIED CARRY WELFORD WELFORD_M2"
NO_RESULT += " ATOMIC_ADD PHILOX"
REDUCED = "SUM PROD MAX MIN ARG_MAX ARG_MIN ANY ALL"
SKIPPED = {Op[name] for name in f"{NO_RESULT} {REDUCED}".split()}
LENGTH = 37  # two vectors of the widest, and a rest


def operands(op, t):
    return [t if each is SAME else each for each in SIGNATURES[op].args]


def result_of(op, t):
    result = SIGNATURES[op].result
    return t if result is SAME else result


def numbers(t, seed):
    """Small ones, of both signs."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(1, 9, (LENGTH,), generator=generator)
    if t.dtype.is_floating_point:
        values = values * 0.125 * (-1 if seed % 2 else 1)
    return values.to(t.dtype) if t is not Type.BOOL else values % 2 == 0


def cases():
    """A name, a kernel, its inputs, its output and its sizes."""
    for op in sorted(set(SIGNATURES) - SKIPPED, key=lambda op: op.name):
        for t in TYPES:
            if t not in SIGNATURES[op].same:
                continue
            types = operands(op, t)
            kernel = pointwise(types, result_of(op, t), lambda build, *args: build(op, *args))
            inputs = [numbers(each, i) for i, each in enumerate(types)]
            output = torch.zeros(LENGTH, dtype=result_of(op, t).dtype)
            yield f"{op.name} {t.name}", kernel, inputs, output, [LENGTH]
    for half in (Type.F16, Type.BF16):  # without F16C, and without BF16, these are computed
        for source, target in ((half, Type.F32), (Type.F32, half)):
            kernel = pointwise([source], target, lambda build, x: build.cast(x, target))
            output = torch.zeros(LENGTH, dtype=target.dtype)
            yield f"{source.name} to {target.name}", kernel, [numbers(source, 1)], output, [LENGTH]
    for op in (Op.SUM, Op.MAX):
        for t in (Type.F32, Type.F64, Type.I64):
            for axis in (0, 1):
                x = numbers(t, 1)[:36].reshape(4, 9).contiguous()
                output = torch.zeros(x.shape[1 - axis], dtype=t.dtype)
                yield f"{op.name} {t.name} {axis}", reduction(op, t, t, axis), [x], output, [4, 9]


CASES = list(cases())


def expected_of(kernel, inputs, output, sizes):
    result = torch.zeros_like(output)
    call(kernel, [*inputs, result], sizes)
    return result


def assert_close(name, result, expected):
    """Functions of the C library and of Sleef differ in their last bits."""
    torch.testing.assert_close(
        result, expected, equal_nan=True, rtol=None, atol=None, msg=lambda text: f"{name}: {text}"
    )


# ---- masked features


@pytest.mark.parametrize("level", LEVELS)
def test_code_uses_no_feature_that_is_masked(level):
    cpu, features, forbidden, _ = LEVELS[level]
    compiler = KernelCompiler(cpu, features)
    assert compiler.target.vector_bytes == {"SSE4.2": 16, "AVX2": 32, "AVX-512": 64}[level]
    for name, kernel, *_ in CASES:
        if "F32" in name:
            assembly = compiler.assembly(compiler.source(check(kernel)).text)
            assert not re.search(forbidden, assembly), name


@pytest.mark.parametrize(("level", "above"), [("SSE4.2", "AVX2"), ("AVX2", "AVX-512")])
def test_masked_features_would_be_used(level, above):
    """The other way round, or the test before would say nothing."""
    compiler = KernelCompiler(*LEVELS[above][:2])
    kernel = next(kernel for name, kernel, *_ in CASES if name == "ADD F32")
    assembly = compiler.assembly(compiler.source(check(kernel)).text)
    assert re.search(LEVELS[level][2], assembly)


@pytest.mark.parametrize("level", LEVELS)
def test_masked_features_give_the_same_numbers(level, monkeypatch):
    cpu, features, _, needed = LEVELS[level]
    import llvmlite.binding as llvm

    if not dict(llvm.get_host_cpu_features()).get(needed):
        pytest.skip(f"this processor has no {needed}")
    compiler = KernelCompiler(cpu, features)
    for name, kernel, inputs, output, sizes in CASES:
        expected = expected_of(kernel, inputs, output, sizes)
        monkeypatch.setattr("tests.targets.cpu.kernels.host", lambda: compiler)
        assert_close(name, expected_of(kernel, inputs, output, sizes), expected)
        monkeypatch.undo()


# ---- other processors, under qemu

DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void kernel(void **, int64_t *, int64_t, int64_t);
{declarations}
static kernel *const kernels[] = {{ {names} }};
static int64_t number(void) {{
  int64_t result;
  if (fread(&result, sizeof result, 1, stdin) != 1) exit(2);
  return result;
}}
int main(void) {{
  for (int64_t i = 0; i < {count}; ++i) {{
    void *buffers[8];
    int64_t bytes[8], sizes[4], count = number();
    for (int64_t j = 0; j < count; ++j) {{
      bytes[j] = number();
      buffers[j] = malloc(bytes[j] + 1);
      if (fread(buffers[j], 1, bytes[j], stdin) != (size_t)bytes[j]) return 2;
    }}
    int64_t rank = number(), work = number();
    for (int64_t j = 0; j < rank; ++j) sizes[j] = number();
    kernels[i](buffers, sizes, 0, work);
    fwrite(buffers[count - 1], 1, bytes[count - 1], stdout);
    for (int64_t j = 0; j < count; ++j) free(buffers[j]);
  }}
  return 0;
}}
"""
X86 = ("gcc", ("qemu-x86_64", "-cpu", "Nehalem"), ("nehalem", V2, "x86_64-unknown-linux-gnu"))
ARM = (
    "aarch64-linux-gnu-gcc",
    ("qemu-aarch64", "-cpu", "cortex-a57"),
    ("cortex-a57", {"neon": True}, "aarch64-unknown-linux-gnu"),
)


def packed(tensor):
    raw = bytes(tensor.contiguous().view(torch.uint8).flatten().tolist())
    return len(raw).to_bytes(8, "little") + raw


def job(kernel, inputs, output, sizes):
    """What the driver reads for one kernel."""
    from tests.support.loop_interpreter import work

    buffers = [*inputs, output]
    head = len(buffers).to_bytes(8, "little")
    tail = [len(sizes), work(kernel, sizes), *sizes]
    numbers = b"".join(n.to_bytes(8, "little") for n in tail)
    return head + b"".join(map(packed, buffers)) + numbers


@pytest.mark.parametrize("processor", [X86, ARM], ids=["x86-64 without AVX", "aarch64"])
def test_under_qemu(processor, tmp_path):
    c_compiler, emulator, target = processor
    for tool in (c_compiler, emulator[0]):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed (Debian: qemu-user, gcc-aarch64-linux-gnu)")
    compiler = KernelCompiler(*target)
    names = [f"kernel_{i}" for i in range(len(CASES))]
    objects = []
    for name, (_, kernel, *_) in zip(names, CASES):
        text = re.sub(r"@kernel\b", f"@{name}", compiler.source(check(kernel)).text)
        objects.append(tmp_path / f"{name}.o")
        objects[-1].write_bytes(compiler.object_code(text))
    source, program = tmp_path / "driver.c", tmp_path / "driver"
    declarations = "\n".join(f"kernel {name};" for name in names)
    parts = {"declarations": declarations, "names": ", ".join(names), "count": len(names)}
    source.write_text(DRIVER.format(**parts))
    link = [c_compiler, "-O1", "-static", source, *objects, "-lm", "-o", program]
    subprocess.run(link, check=True)
    jobs = b"".join(job(*case[1:]) for case in CASES)
    done = subprocess.run([*emulator, program], input=jobs, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    place = 0
    for name, kernel, inputs, output, sizes in CASES:
        size = output.numel() * output.element_size()
        raw = torch.frombuffer(bytearray(done.stdout[place : place + size]), dtype=output.dtype)
        place += size
        assert_close(name, raw, expected_of(kernel, inputs, output, sizes))
    assert place == len(done.stdout)
