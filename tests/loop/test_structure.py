"""`structure`: which kernels are the same but for their names."""

import math

import pytest

from pliant.loop.build import Builder
from pliant.loop.ir import Access, LoopKind, Op, structure
from pliant.loop.types import Type


def kernel(
    name="k", *, op=Op.ADD, kind=LoopKind.PARALLEL, number=1.0, base=0, step=1, swapped=False,
    of=Type.F32, extent="s0",
):  # fmt: skip
    build = Builder(name)
    n = build.size(extent)
    x, y = build.buffer("x", of, base=base), build.buffer("y", of, Access.READ_WRITE)
    with build.loop(n) as i, build.loop(n, kind) as j:
        a, b = build.load(x, i * step + j), build.constant(number, of)
        build.store(y, i * n + j, build(op, b, a) if swapped else build(op, a, b))
    return build.kernel()


def test_names_do_not_matter() -> None:
    assert structure(kernel("one")) == structure(kernel("other"))
    assert hash(structure(kernel("one"))) == hash(structure(kernel("other")))


CHANGES = [
    {"op": Op.MUL},
    {"kind": LoopKind.SERIAL},
    {"number": 2.0},
    {"base": 4},
    {"step": 2},
    {"swapped": True},
    {"of": Type.F64},
    {"extent": "s1"},
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_everything_else_matters(change) -> None:
    assert structure(kernel(**change)) != structure(kernel())


def test_constants() -> None:
    def constant(number, of=Type.F64):
        build = Builder("k")
        build.constant(number, of)
        return structure(build.kernel())

    numbers = [0.0, -0.0, math.nan, -math.nan, math.inf, 0.1]
    assert len({constant(number) for number in numbers}) == len(numbers)
    assert constant(math.nan) == constant(math.nan)
    assert constant(1, Type.I64) != constant(1, Type.I32)
