"""Random numbers in Triton kernels against those of eager PyTorch's kernels, thread by thread."""

import numpy as np
import pytest
import torch

from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.philox import limit_of, numbers_of, uniform
from pliant.sym.expr import evaluate
from pliant.targets.triton import compile as compiler
from pliant.targets.triton.blocks import blocks_for
from pliant.targets.triton.kernel_source import printed
from pliant.targets.triton.launch import InterpretedKernel
from pliant.targets.triton.target import TritonTarget
from pliant.targets.triton.variants import KernelVariant, multiples
from tests.support import loop_interpreter, philox

TARGET = TritonTarget(torch.device("cpu"))


def kernel_of(*loops, by_rows=False, stored=Type.I64):
    """A kernel that draws a number for each element of a tensor, and stores it or the maximum of
    each row."""
    b = Builder("drawn")
    sizes = [b.size(name) for name in ("s0", "s1")[: len(loops)]]
    numbers = [b.size(name) for name in ("u0", "u1", "u2", "u3")]
    out = b.buffer("b0", stored, Access.WRITE)
    kinds = [LoopKind.PARALLEL] * (len(loops) - by_rows) + [LoopKind.REDUCTION] * by_rows
    element = 0
    with b.loop(sizes[0], kinds[0]) as i:
        if len(loops) == 1:
            element = i
            b.store(out, element, b.cast(_drawn(b, element, numbers), stored))
        else:
            with b.loop(sizes[1], kinds[1]) as j:
                element = i * sizes[1] + j
                bits = _drawn(b, element, numbers)
                if by_rows:
                    best = b.add(LoopValue(Op.MAX, Type.I64, (bits,)))
                else:
                    b.store(out, element + i * 3, bits)  # with gaps, so that there are two loops
            if by_rows:
                b.store(out, i, best)
    return check(b.kernel())


def _drawn(b, element, numbers):
    seed, start, threads, width = map(b.iota, numbers)
    return b.cast(b(Op.PHILOX, seed, start, b.iota(element), threads, width), Type.I64)


def run(kernel, count, *sizes, whole=8192):
    """What the kernel stores, in Triton's interpreter."""
    code = printed(kernel)
    out = torch.full((count,), -1)
    named = dict(zip(kernel.sizes, sizes, strict=True))
    numbers = [_value(number, named) for number in TARGET.launch_parameters(kernel, int)]
    InterpretedKernel(code, "random", whole)(out, *numbers)
    return out


def _value(number, named):
    return evaluate(number, named)


STATES = [(0, 0), (1234, 5), (-1, 2**32 - 2), (2**63 - 1, 2**40)]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("seed, start", STATES)
def test_drawn_one_after_the_other(seed, start, width):
    count, threads = 5000, 256
    expected = philox.bits(seed, start, count, threads, width)
    found = run(kernel_of(1), count, count, seed, start, threads, width)
    assert np.array_equal(found.numpy(), expected.astype(np.int64))


def test_numbers_of_the_model():
    """The first one is from the authors of Philox, the others from PyTorch on a GPU."""
    known = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert [int(c) for c in philox.philox((0, 0, 0, 0), (0, 0))] == known
    drawn = philox.uniform(philox.bits(0, 0, 4, 256, 1))
    assert np.allclose(drawn, [0.3990, 0.5167, 0.0249, 0.9401], atol=5e-5)


def expected_of(rows, columns, *numbers):
    seed, start, threads, width = numbers
    drawn = philox.bits(seed, start, rows * columns, threads, width)
    return torch.from_numpy(drawn.astype(np.int64)).view(rows, columns)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("rows, columns", [(7, 64), (64, 7), (3, 1030), (5, 2), (1, 1)])
def test_drawn_in_rows(rows, columns, width):
    """Where rows have a multiple of four columns, four neighbours share a call, else not."""
    numbers = (99, 7, 256, width)
    count = rows * (columns + 3)
    found = run(kernel_of(1, 2), count, rows, columns, *numbers).view(rows, columns + 3)
    assert torch.equal(found[:, :columns], expected_of(rows, columns, *numbers))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("whole", [8192, 16])
@pytest.mark.parametrize("rows, columns", [(7, 64), (3, 77)])
def test_drawn_in_rows_that_are_reduced(rows, columns, width, whole):
    numbers = (99, 7, 256, width)
    found = run(kernel_of(1, 2, by_rows=True), rows, rows, columns, *numbers, whole=whole)
    assert torch.equal(found, expected_of(rows, columns, *numbers).amax(1))


def test_the_meaning_of_a_kernel():
    numbers, out = (99, 7, 256, 4), torch.zeros(50, dtype=torch.long)
    loop_interpreter.run(kernel_of(1), [out], (50, *numbers))
    assert torch.equal(out, expected_of(1, 50, *numbers)[0])


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("seed, start", STATES)
def test_drawn_by_pytorch(seed, start, width):
    """What runs where no code is generated."""
    found = numbers_of(torch.arange(5000), seed, start, 256, width)
    assert torch.equal(found, expected_of(1, 5000, seed, start, 256, width)[0])


@pytest.mark.parametrize("probability", [0.0, 1e-12, 0.1, 1 / 3, 0.5, 0.9, 1 - 2**-24, 1.0])
def test_a_number_is_below_a_limit_if_its_float_is_less(probability):
    limit = limit_of(probability)
    near = [*range(max(limit - 600, 0), min(limit + 600, 2**32)), 0, 2**32 - 1]
    floats = philox.uniform(np.array(near, dtype=np.uint32))
    assert [x < limit for x in near] == [float(x) < probability for x in floats]
    assert [uniform(x) for x in near] == [float(x) for x in floats]


@pytest.mark.parametrize("machine", [80, 90, "gfx942"])
def test_neighbours_share_a_call(machine):
    """In machine code, no number goes to another thread through shared memory: the thread that has
    the four of a call has the four elements, too, and accesses 16 bytes at a time."""
    code = printed(kernel_of(1, stored=Type.F32))
    functions = compiler.functions(code.source, "four" * 8, interpreted=False)
    known = multiples(code, (True, True, *[False] * 4))
    variant = KernelVariant(blocks_for(code.tiling, 1 << 20), False, known)
    function = compiler.function_for(functions, variant)
    place = compiler.amd(machine) if isinstance(machine, str) else compiler.nvidia(machine)
    assert compiler.machine_code(code, function, variant, place).shared == 0
