"""The native launcher passes a driver what Triton's kernels expect. The driver is one of our own,
in a process of its own."""

import subprocess
import sys
import threading

import pytest
import torch

from pliant.base import events
from pliant.loop.ir import Access, Buffer, Kernel, Loop, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, symbol
from pliant.targets.triton import compile as compiler
from pliant.targets.triton import launch
from pliant.targets.triton.gpu_code import GpuCode
from pliant.targets.triton.kernel_source import printed

ROWS, LENGTH, I, J = map(symbol, ("s0", "s1", "i0", "i1"))
READ = Buffer("b0", Type.F32, Access.READ, ZERO)
WRITTEN = Buffer("b1", Type.F32, Access.WRITE, ZERO)
LOAD = LoopValue(Op.LOAD, Type.F32, (), J * ROWS + I, READ)
SUM = LoopValue(Op.SUM, Type.F32, (LOAD,))
REDUCTION = Loop(J, LENGTH, LoopKind.REDUCTION, (LOAD, SUM))
STORE = LoopValue(Op.STORE, Type.F32, (SUM,), I, WRITTEN)
LOOP = Loop(I, ROWS, LoopKind.PARALLEL, (REDUCTION, STORE))
COLUMNS = Kernel("sums_of_columns", (ROWS, LENGTH), (READ, WRITTEN), (LOOP,))

DRIVER = r"""
#include <stdint.h>
#include <string.h>
int programs, threads, shared, attribute, plain;
int capturing, made, replayed, dropped;  // of graphs
uint64_t cells[4];
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)image;
  return strcmp(image, "code");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)7;
  return strcmp(name, "kernel");
}
int cuFuncSetAttribute(void *function, int which, int value) {
  attribute = which == 8 ? value : -1;
  return 0;
}
int cuCtxGetCurrent(void **context) { return *context = (void *)1, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned t, unsigned ty,
                   unsigned tz, unsigned s, void *stream, void **arguments, void **extra) {
  programs = x * y * z, threads = t * ty * tz, shared = s;
  for (int i = 0; i < 4; ++i) cells[i] = *(uint64_t *)arguments[i];
  ++plain;
  return function != (void *)7 || stream != 0 || extra != 0;
}
struct node {
  void *function;
  unsigned x, y, z, t, ty, tz, shared;
  void **arguments, **extra, *kernel, *context;
};
int cuStreamIsCapturing(void *stream, int *status) { return *status = capturing, 0; }
int cuGraphCreate(void **graph, unsigned flags) { return *graph = (void *)11, flags; }
int cuGraphAddKernelNode_v2(void **node, void *graph, const void *after, uint64_t count,
                            const struct node *of) {
  *node = (void *)12;
  return graph != (void *)11 || count != 0 || of->function != (void *)7;
}
int cuGraphInstantiateWithFlags(void **ready, void *graph, uint64_t flags) {
  *ready = (void *)13, ++made;
  return graph != (void *)11 || flags != 0;
}
int cuGraphExecKernelNodeSetParams_v2(void *ready, void *node, const struct node *of) {
  programs = of->x * of->y * of->z, threads = of->t * of->ty * of->tz, shared = of->shared;
  for (int i = 0; i < 4; ++i) cells[i] = *(uint64_t *)of->arguments[i];
  return ready != (void *)13 || node != (void *)12 || of->extra || of->kernel || of->context;
}
int cuGraphLaunch(void *ready, void *stream) { return ++replayed, ready != (void *)13; }
int cuGraphExecDestroy(void *ready) { return ++dropped, ready != (void *)13; }
int cuGraphDestroy(void *graph) { return graph != (void *)11; }
"""

PROGRAM = r"""
import ctypes, sys, torch
from pliant._native import Launcher, cuda_driver, cuda_load

try:
    cuda_driver("/nowhere/libcuda.so")
    cuda_load(b"code", "kernel", 0, 0)
except RuntimeError as error:
    assert "the CUDA driver can't be loaded" in str(error)
cuda_driver(sys.argv[1])
driver, asked = ctypes.CDLL(sys.argv[1]), []

def make(wide, multiples, columns, few):
    asked.append((wide, multiples, columns, few))
    return cuda_load(b"code", "kernel", 64 << 10, 0), 128, 64 << 10, 2, 16, *limits

# As many outer iterations as the tensor has rows; one argument, one bound.
steps = [
    ("read", 2, 0, "stride", 0),
    ("cuda_kernel", 0, (0, -1), (), 0, 0, 1, 2, 0, False),
]
symbols = [(0, "size", 0), (0, "size", 1)]
plain = (1 << 62, 0)  # any number of programs, and no memory for them
cases = (False, 3 * 2 * 3, plain), (True, 3 * 2, plain), (False, 5, (5, 256))
for by_rows, programs, limits in cases:
    kernel = (by_rows, [False], make, 16)
    launcher = Launcher(1, symbols, steps, [], (), None, (), (kernel,))
    x = torch.zeros(3, 33)
    for _ in range(3):
        launcher(x)
    value = lambda name: ctypes.c_int.in_dll(driver, name).value
    assert (value("plain"), value("replayed")) == (1, 2)  # the first launch needs no graph
    assert (value("programs"), value("threads")) == (programs, 128), value("programs")
    assert value("shared") == value("attribute") == 64 << 10
    cells = list((ctypes.c_uint64 * 4).in_dll(driver, "cells"))
    assert (cells[:2], cells[3]) == ([x.data_ptr(), 33], 0), cells
    assert bool(cells[2]) == bool(limits[1]), cells
    y = torch.zeros(3 * 64 + 1)[1:].view(3, 64)
    launcher(y)
    launcher(torch.zeros(0, 5))
    assert asked == [(False, 1, 64, True), (False, 2, 64, True)], asked
    asked.clear()
    ctypes.c_int.in_dll(driver, "capturing").value = 1  # graphs can't be part of one
    launcher(x)
    assert (value("plain"), value("replayed")) == (3, 2)  # one was the other variant's first
    ctypes.c_int.in_dll(driver, "capturing").value = 0
    launcher(x)
    assert (value("plain"), value("replayed")) == (3, 3)
    del launcher, kernel
    assert value("made") == value("dropped") == 1
    for name in ("plain", "replayed", "made", "dropped"):
        ctypes.c_int.in_dll(driver, name).value = 0
print("done")
"""


def test_what_a_kernel_is_launched_with(tmp_path):
    source, library = tmp_path / "driver.c", tmp_path / "libdriver.so"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, library], check=False, capture_output=True, text=True
    )
    assert ran.stdout == "done\n", ran.stderr


def test_tiles_for_few_rows():
    """One of few rows has fewer of them, so that all processors have some."""

    def blocks(rows):
        kernel = printed(COLUMNS)
        numbers = (1, rows, 1000, *[1000] * (len(kernel.arguments) + len(kernel.bounds)))
        return launch.choose(kernel, [torch.ones(4)] * 2, numbers)

    programs, variant = blocks(100)
    assert (programs, variant.blocks.rows) == (13, 8)
    programs, variant = blocks(6400)
    assert (programs, variant.blocks.rows) == (100, 64)


@pytest.mark.parametrize(
    ("index", "op", "rows", "tile"),
    [
        (J, Op.COS, 6400, (4, 512)),  # the same for each row
        (J, Op.NEG, 6400, (1, 1024)),  # so cheap that it may be computed again
        (J, Op.COS, 100, (1, 1024)),  # few rows: all processors are to have some
        (I * LENGTH + J, Op.COS, 6400, (1, 1024)),
    ],
)
def test_rows_share_what_is_costly_and_the_same_for_all(index, op, rows, tile):
    shared = LoopValue(Op.LOAD, Type.F32, (), index, READ)
    function = LoopValue(op, Type.F32, (shared,))
    own = LoopValue(Op.LOAD, Type.F32, (), I * LENGTH + J, READ)
    total = LoopValue(Op.ADD, Type.F32, (function, own))
    store = LoopValue(Op.STORE, Type.F32, (total,), I * LENGTH + J, WRITTEN)
    inner = Loop(J, LENGTH, LoopKind.PARALLEL, (shared, function, own, total, store))
    loop = Loop(I, ROWS, LoopKind.PARALLEL, (inner,))
    kernel = printed(Kernel("broadcast", (ROWS, LENGTH), (READ, WRITTEN), (loop,)))
    numbers = (1, rows, 4096, *[4096] * (len(kernel.arguments) + len(kernel.bounds)))
    _, variant = launch.choose(kernel, [torch.ones(4)] * 2, numbers)
    assert (variant.blocks.rows, variant.blocks.columns) == tile


def test_places_that_are_far_apart_have_64_bits_from_the_start():
    """Also where only the source says so: the kernel that is expected is compiled before a call."""
    far = 2**31 + 14
    load = LoopValue(Op.LOAD, Type.F32, (), I * 5 + far, READ)
    store = LoopValue(Op.STORE, Type.F32, (load,), I, WRITTEN)
    loop = Loop(I, ROWS, LoopKind.PARALLEL, (load, store))
    kernel = printed(Kernel("far", (ROWS,), (READ, WRITTEN), (loop,)))
    assert str(far) in kernel.source
    numbers = (1, 1, 3, *[3] * len(kernel.arguments), *[far] * len(kernel.bounds))
    _, variant = launch.choose(kernel, [torch.ones(4)] * 2, numbers)
    assert variant.wide
    on_gpu = launch.CudaKernel(kernel, "far", torch.device("cpu"))
    wide, *_ = on_gpu._expected(numbers)
    assert wide
    functions = compiler.functions(kernel.source, "far" * 8, interpreted=False)
    code = compiler.machine_code(
        kernel, compiler.function_for(functions, variant), variant, compiler.nvidia(90)
    )
    assert code.binary


@pytest.mark.filterwarnings("ignore:.*no such instruction")
def test_a_variant_that_fails_is_told_and_not_tried_again(monkeypatch, seen):
    tried = []

    def load(kernel, variant):
        tried.append(variant)
        if len(tried) == 2:
            raise RuntimeError("no such instruction")
        return (1, 2, 3, 4, 5)

    monkeypatch.setattr(launch.CudaKernel, "_load", load)
    kernel = launch.CudaKernel(printed(COLUMNS), "key", torch.device("cpu"))
    kernel.expect([1, 5, 5, *[5] * 9])
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no such instruction"):
            kernel.variant(True, 0, 8, True)
    assert kernel.variant(True, 1, 8, True) == (1, 2, 3, 4, 5)
    assert len(tried) == 3
    (failed,) = seen(events.KernelFailed)
    assert "no such instruction" in failed.reason


def test_kernels_are_compiled_together_and_fail_alone(monkeypatch):
    """Each in a thread of its own; what fails is raised for the kernel that it is about."""
    threads, meeting = [], threading.Barrier(2, timeout=30)

    def compile(kernel, variant):
        threads.append(threading.get_ident())
        meeting.wait()  # nobody gets here alone
        if kernel is kernels[1]:
            raise RuntimeError("no such instruction")
        return GpuCode("kernel", 0, 4, 32, 0, b"")

    monkeypatch.setattr(launch.CudaKernel, "compile", compile)
    monkeypatch.setattr(launch, "cuda_load", lambda *args: 7)
    monkeypatch.setattr(launch.os, "sched_getaffinity", lambda pid: {0, 1, 2})
    place = torch.device("cuda", 0)
    kernels = [launch.CudaKernel(printed(COLUMNS), "key", place) for _ in range(2)]
    numbers = [1, 5, 5, *[5] * 9]
    launch.compile_together([(kernel, numbers) for kernel in kernels])
    assert len(set(threads)) == 2 and threading.get_ident() not in threads
    kernels[0].expect(numbers)
    with pytest.raises(RuntimeError, match="no such instruction"):
        kernels[1].expect(numbers)
    assert len(threads) == 2  # nothing is compiled again
