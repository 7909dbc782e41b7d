"""Running compiled kernels on tensors, and kernels that several tests use."""

import ctypes

import torch

from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, LoopKind, Op
from pliant.loop.types import Type
from pliant.targets.cpu.jit import host
from pliant.targets.cpu.llvm_lanes import SCALAR, Machine
from tests.support.loop_interpreter import work

TARGETS = [None, SCALAR, Machine(16, False), Machine(32, False), Machine(64, True)]
"""The host, and what other machines would get: every width runs on every host."""

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def call(kernel, buffers, sizes, target=None, cuts=()):
    """Run the kernel, in one piece or cut at these places of its grid."""
    compiled = host().compile(check(kernel), target)
    function = SIGNATURE(compiled.address)
    pointers = (ctypes.c_void_p * max(1, len(buffers)))(*[t.data_ptr() for t in buffers])
    numbers = (ctypes.c_int64 * max(1, len(sizes)))(*sizes)
    ends = [0, *cuts, work(kernel, sizes)]
    for start, stop in zip(ends, ends[1:]):
        function(pointers, numbers, start, stop)


def pointwise(args, result, body):
    """`y[i] = body(build, x0[i], x1[i], ...)` with these types."""
    build = Builder("pointwise")
    n = build.size("s0")
    inputs = [build.buffer(f"x{i}", t) for i, t in enumerate(args)]
    out = build.buffer("y", result, Access.WRITE)
    with build.loop(n) as i:
        build.store(out, i, body(build, *[build.load(x, i) for x in inputs]))
    return build.kernel()


def apply(op, tensors, result, target=None):
    """The operation on whole tensors."""
    types = [next(t for t in Type if t.dtype == x.dtype) for x in tensors]
    kernel = pointwise(types, result, lambda build, *args: build(op, *args))
    out = torch.empty(len(tensors[0]), dtype=result.dtype)
    call(kernel, [x.contiguous() for x in tensors] + [out], [len(out)], target)
    return out


def reduction(op, t, result, axis=1, positions=False):
    """The reduction of a matrix over one axis."""
    build = Builder("reduction")
    rows, columns = build.size("s0"), build.size("s1")
    x, y = build.buffer("x", t), build.buffer("y", result, Access.WRITE)
    outer, inner = (rows, columns) if axis == 1 else (columns, rows)
    with build.loop(outer) as i:
        with build.loop(inner, LoopKind.REDUCTION) as j:
            index = i * columns + j if axis == 1 else j * columns + i
            args = [build.load(x, index)] + ([build.iota(j)] if positions else [])
            found = build(op, *args)
        build.store(y, i, found)
    return build.kernel()


def reduce(op, x, result, axis=1, target=None, positions=False):
    t = next(t for t in Type if t.dtype == x.dtype)
    out = torch.empty(x.shape[1 - axis], dtype=result.dtype)
    call(reduction(op, t, result, axis, positions), [x, out], list(x.shape), target)
    return out


__all__ = ["TARGETS", "Op", "apply", "call", "pointwise", "reduce", "reduction"]
