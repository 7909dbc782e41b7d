import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from pliant.loop.ir import Op
from pliant.loop.types import Type
from pliant.targets.cpu.jit import KernelCompiler, host
from pliant.targets.cpu.llvm import SYMBOL, emit
from pliant.targets.cpu.llvm_lanes import machine_of
from tests.targets.cpu.kernels import SIGNATURE, apply, pointwise


def square():
    return pointwise([Type.F32], Type.F32, lambda build, x: build(Op.MUL, x, x))


def test_equal_kernels_are_compiled_once():
    compiler = KernelCompiler()
    assert compiler.compile(square()) is compiler.compile(square())
    other = pointwise([Type.F32], Type.F32, lambda build, x: build(Op.ADD, x, x))
    assert compiler.compile(square()) is not compiler.compile(other)


def test_the_text_depends_on_the_kernel_alone():
    assert emit(square(), host().target) == emit(square(), host().target)


def test_object_code_can_be_loaded_again():
    code = KernelCompiler().compile(square()).object_code
    assert isinstance(code, bytes)
    again = KernelCompiler().load(code)
    x, y = torch.arange(5.0), torch.empty(5)
    import ctypes

    pointers = (ctypes.c_void_p * 2)(x.data_ptr(), y.data_ptr())
    SIGNATURE(again.address)(pointers, (ctypes.c_int64 * 1)(5), 0, 5)
    assert torch.equal(y, x * x)


def test_text_that_is_no_ir_is_an_error_and_leaves_the_compiler_usable():
    compiler = KernelCompiler()
    with pytest.raises(RuntimeError):
        compiler.compile_source(compiler.with_key(f"define void @{SYMBOL}( {{"))
    assert compiler.compile(square()).address


def test_threads_compile_at_the_same_time():
    def run(number):
        x = torch.arange(50.0)
        found = apply(Op.POW, [x, torch.full((50,), float(number))], Type.F32)
        return torch.allclose(found, x**number)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))


def test_code_runs_in_a_forked_process_which_can_compile_more():
    x = torch.arange(9.0)
    apply(Op.EXP, [x], Type.F32)
    child = os.fork()
    if child == 0:
        same = torch.equal(apply(Op.EXP, [x], Type.F32), apply(Op.EXP, [x], Type.F32))
        more = torch.equal(apply(Op.NEG, [x], Type.F32), -x)
        os._exit(0 if same and more else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_the_width_follows_the_features():
    assert machine_of({"avx512bw": True, "avx512vl": True, "avx2": True}).vector_bytes == 64
    assert machine_of({"avx2": True}).vector_bytes == 32
    assert machine_of({}).vector_bytes == 16


def test_assembly_can_be_read():
    assert "ret" in host().assembly(emit(square(), host().target))


# All that is free near the heap is a page: what doesn't fit there is 64 GB away.
CROWDED = """
import ctypes
import torch
from pliant.loop.ir import Op
from pliant.loop.types import Type
from tests.targets.cpu.kernels import apply

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PRIVATE_ANONYMOUS_NORESERVE = 0x4022

def take(size):
    return libc.mmap(None, size, 0, PRIVATE_ANONYMOUS_NORESERVE, -1, 0)

x = torch.rand(100)
apply(Op.SQRT, [x], Type.F32)
barrier = take(1 << 36)
pages = []
while (page := take(4096)) > barrier:
    pages.append(page)
for page, op in zip(pages, (Op.EXP, Op.TANH, Op.SIN, Op.LOG1P)):
    libc.munmap(page, 4096)
    torch.testing.assert_close(apply(op, [x], Type.F32), getattr(torch, op.text)(x))
    take(4096)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of flags are those of Linux")
def test_code_and_its_constants_are_near_each_other_wherever_there_is_room():
    environment = {**os.environ, "PLIANT_CACHE": "0"}
    command = [sys.executable, "-c", CROWDED]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
