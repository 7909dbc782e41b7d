"""Each rule of the loop IR, broken."""

import pytest

from pliant.loop.build import Builder
from pliant.loop.check import MalformedKernelError, check
from pliant.loop.ir import SIGNATURES, Access, Kernel, Loop, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import integer, symbol


class Draft(Builder):
    """Two buffers, a size and an open loop over it."""

    def __init__(self):
        super().__init__("draft")
        self.n = self.size("s0")
        self.x = self.buffer("x", Type.F32)
        self.y = self.buffer("y", Type.F32, Access.WRITE)


def broken(write, kind=LoopKind.PARALLEL):
    """What is said about a loop with these statements."""
    draft = Draft()
    with draft.loop(draft.n, kind) as i:
        write(draft, i)
    with pytest.raises(MalformedKernelError) as error:
        check(draft.kernel())
    return str(error.value).split("\nin\n")[0]


def test_a_good_kernel_passes():
    draft = Draft()
    with draft.loop(draft.n) as i:
        draft.store(draft.y, i, draft(Op.EXP, draft.load(draft.x, i)))
    assert check(draft.kernel())


def test_every_operation_has_a_signature():
    assert set(SIGNATURES) == set(Op)


def test_types():
    one, two = (
        LoopValue(Op.CONSTANT, Type.F32, constant=1.0),
        LoopValue(Op.CONSTANT, Type.I64, constant=2),
    )

    def mixed(draft, i):
        draft(Op.ADD, draft.add(one), draft.add(two))

    assert "mixes f32, i64" in broken(mixed)
    assert "is not defined on i64" in broken(lambda draft, i: draft(Op.EXP, draft.add(two)))
    assert "has type i64, not f32" in broken(
        lambda draft, i: draft.add(LoopValue(Op.NEG, Type.I64, (draft.add(one),)))
    )
    assert "needs bool, gets f32" in broken(
        lambda draft, i: draft(Op.SELECT, draft.add(one), draft.add(two), two)
    )
    assert "takes 2 arguments" in broken(lambda draft, i: draft(Op.ADD, draft.add(one)))
    half = LoopValue(Op.CONSTANT, Type.BF16, constant=1.0)
    assert "is not defined on bf16" in broken(lambda draft, i: draft(Op.NEG, draft.add(half)))
    assert "differ in width" in broken(lambda draft, i: draft.bitcast(draft.add(one), Type.F64))


def test_constants():
    assert "is a float" in broken(lambda draft, i: draft.constant(1, Type.F32))
    assert "is a bool" in broken(lambda draft, i: draft.constant(1, Type.BOOL))
    assert "out of range" in broken(lambda draft, i: draft.constant(-1, Type.U8))


def test_values_are_defined_before_use_and_in_scope():
    stray = LoopValue(Op.CONSTANT, Type.F32, constant=1.0)
    assert "not in scope" in broken(lambda draft, i: draft(Op.NEG, stray))

    def from_another_loop(draft, i):
        with draft.loop(3) as j:
            inner = draft.load(draft.x, j)
        draft(Op.NEG, inner)

    assert "v0 is not in scope" in broken(from_another_loop)


def test_reductions_have_a_value_only_after_their_loops():
    def too_early(draft, i):
        draft(Op.NEG, draft(Op.SUM, draft.load(draft.x, i)))

    assert "v1 is not in scope" in broken(too_early, LoopKind.REDUCTION)

    def still_in_the_outer_one(draft, i):
        with draft.loop(3, LoopKind.REDUCTION) as j:
            total = draft(Op.SUM, draft.load(draft.x, j))
        draft(Op.NEG, total)

    assert "v1 is not in scope" in broken(still_in_the_outer_one, LoopKind.REDUCTION)
    assert "outside of a reduction loop" in broken(
        lambda draft, i: draft(Op.SUM, draft.load(draft.x, i))
    )
    assert "has to be a welford" in broken(
        lambda draft, i: draft(Op.WELFORD_M2, draft.load(draft.x, i))
    )


def test_indices_use_what_is_in_scope():
    assert "uses s9, not in scope" in broken(lambda draft, i: draft.load(draft.x, symbol("s9")))
    used = LoopValue(Op.AS_INDEX, Type.I64, (), symbol("s0"))
    assert "s0 is not a new symbol" in broken(lambda draft, i: draft.add(used))

    def after_the_loop(draft, i):
        with draft.loop(3) as j:
            pass
        draft.load(draft.x, j)

    assert "uses i1, not in scope" in broken(after_the_loop)
    twice = Loop(symbol("s0"), integer(3), LoopKind.PARALLEL, ())
    with pytest.raises(MalformedKernelError, match="s0 is not a new symbol"):
        check(Kernel("k", (symbol("s0"),), (), (twice,)))


def test_buffers_are_used_as_declared():
    assert "x is for read only" in broken(
        lambda draft, i: draft.store(draft.x, i, draft.load(draft.x, i))
    )
    assert "y is for write only" in broken(lambda draft, i: draft.load(draft.y, i))
    assert "y has type f32, not i64" in broken(
        lambda draft, i: draft.store(draft.y, i, draft.iota(i))
    )
    other = Builder("other").buffer("z", Type.F32)
    assert "z is not a buffer of the kernel" in broken(lambda draft, i: draft.load(other, i))
    assert "two buffers have one name" in broken(lambda draft, i: draft.buffer("x", Type.I8))
    assert "base of z uses u7" in broken(
        lambda draft, i: draft.buffer("z", Type.I8, base=symbol("u7"))
    )


def test_fields_belong_to_operations():
    assert "needs a constant" in broken(
        lambda draft, i: draft.add(LoopValue(Op.CONSTANT, Type.F32))
    )
    assert "needs a buffer" in broken(
        lambda draft, i: draft.add(LoopValue(Op.LOAD, Type.F32, (), i))
    )
    one = LoopValue(Op.CONSTANT, Type.F32, constant=1.0, index=symbol("s0"))
    assert "has no use for a index" in broken(lambda draft, i: draft.add(one))
