"""bfloat16 between operators: rounded as PyTorch rounds, whatever is left out."""

import pytest
import torch

import pliant
from pliant.loop.build import Builder
from pliant.loop.ir import Access, Op
from pliant.loop.types import Type
from tests.targets.cpu.kernels import TARGETS, call, pointwise

ALL = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
OTHER = ALL[torch.randperm(len(ALL), generator=torch.Generator().manual_seed(0))]
targets = pytest.mark.parametrize("target", TARGETS)


def rounded(build, op, *args):
    """As an operator of PyTorch computes: in float, and rounded."""
    wide = [build.cast(a, Type.F32) if a.type is Type.BF16 else a for a in args]
    return build.cast(build(op, *wide), Type.BF16)


def same(result, expected):
    nan = expected.isnan()
    assert torch.equal(result.isnan(), nan)
    assert torch.equal(result[~nan].view(torch.int16), expected[~nan].view(torch.int16))


CHAINS = {
    "sum": (
        lambda b, x, y: rounded(b, Op.NEG, rounded(b, Op.ADD, x, y)),
        lambda x, y: -(x + y),
    ),
    "choice, then product": (
        lambda b, x, y: rounded(b, Op.MUL, rounded(b, Op.MAXIMUM, x, y), y),
        lambda x, y: torch.maximum(x, y) * y,
    ),
    "product, then choice": (
        lambda b, x, y: rounded(b, Op.MINIMUM, rounded(b, Op.MUL, x, y), y),
        lambda x, y: torch.minimum(x * y, y),
    ),
    "constant that is rounded": (
        lambda b, x, y: rounded(b, Op.MAXIMUM, x, b.constant(0.1, Type.F32)),
        lambda x, y: torch.maximum(x.float(), torch.tensor(0.1)).bfloat16(),
    ),
    "constant below all normal numbers": (
        lambda b, x, y: rounded(b, Op.MAXIMUM, x, b.constant(1.5 * 2.0**-134, Type.F32)),
        lambda x, y: torch.maximum(x.float(), torch.tensor(1.5 * 2.0**-134)).bfloat16(),
    ),
}


@targets
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_all_numbers(name, target):
    body, expected = CHAINS[name]
    kernel = pointwise([Type.BF16, Type.BF16], Type.BF16, body)
    out = torch.empty_like(ALL)
    call(kernel, [ALL, OTHER, out], [len(out)], target)
    same(out, expected(ALL, OTHER))


@targets
def test_a_nan_from_memory_stays_one(target):
    """These have their bits in the lower half, or in all places: rounded as numbers, they would
    be infinite or 0."""
    x = torch.tensor([0x7F800001, 0x7FFFFFFF, -1, 0x7F80FFFF], dtype=torch.int32)
    build = Builder("nans")
    n = build.size("s0")
    a = build.buffer("x", Type.F32)
    outs = [build.buffer(f"y{i}", Type.BF16, Access.WRITE) for i in range(2)]
    with build.loop(n) as i:
        value = build.load(a, i)
        build.store(outs[0], i, build.cast(value, Type.BF16))
        build.store(outs[1], i, build.cast(build(Op.NEG, value), Type.BF16))
    found = [torch.zeros(4, dtype=torch.bfloat16) for _ in outs]
    call(build.kernel(), [x.view(torch.float32), *found], [4], target)
    assert all(out.isnan().all() for out in found)


CASTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, torch.float16]


@pytest.mark.parametrize("dtype", CASTS)
def test_a_cast_to_another_type_is_no_rounding(dtype):
    """Numbers that a bfloat16 holds exactly change in a cast to an integer, which stays."""

    def of_memory(x):
        return x.float().to(dtype).float()

    def of_constants(x):
        fills = [torch.full((3,), number) for number in (-1.0, 300.0, 2.5)]
        return [fill.to(dtype).float() for fill in fills]

    x = torch.tensor([-1.0, 0.5, 2.5, 100.25, -3.75], dtype=torch.bfloat16)
    for function in (of_memory, of_constants):
        actual = pliant.compile(function, backend="llvm", fullgraph=True)(x)
        torch.testing.assert_close(actual, function(x), rtol=0, atol=0)
