"""Random kernels, interpreted and compiled: equal to the last bit.

Only operations that have one right result are drawn (no functions like exp, no sums of floats), so
that a difference is a mistake.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant.loop import types
from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import SAME, SIGNATURES, Access, LoopKind, Op
from pliant.loop.types import Type
from tests.support.loop_interpreter import run
from tests.targets.cpu.kernels import TARGETS, call

INEXACT = """EXP EXP2 EXPM1 LOG LOG2 LOG10 LOG1P SIN COS TAN TANH SIGMOID SILU ERF ERFC POW SINH
COSH ASIN ACOS ATAN ATAN2 ASINH ACOSH ATANH LGAMMA HYPOT NEXTAFTER RSQRT SQRT"""
SPECIAL = "LOAD STORE CONSTANT IOTA AS_INDEX CAST BITCAST WELFORD WELFORD_M2 CARRIED CARRY"
SPECIAL += " ATOMIC_ADD PHILOX"
REDUCED = "SUM PROD MAX MIN ARG_MAX ARG_MIN ANY ALL"
SKIPPED = {Op[n] for n in f"{INEXACT} {SPECIAL} {REDUCED} FMA".split()}
DRAWN = sorted(set(Op) - SKIPPED, key=lambda op: op.name)


class Writer:
    """Adds random values to a kernel; keeps those in scope by type."""

    def __init__(self, draw):
        self.draw = draw
        self.build = Builder("random")
        self.m, self.n = self.build.size("s0"), self.build.size("s1")
        self.scope = []
        self.inputs, self.outputs = [], []

    def pick(self, items):
        return self.draw(st.sampled_from(list(items)))

    def load(self, *variables):
        """An element of a new buffer, with random strides for the loops around."""
        t = self.pick(Type)
        strides = [self.draw(st.sampled_from([0, 1, 1, 2, 3, self.n])) for _ in variables]
        buffer = self.build.buffer(f"x{len(self.inputs)}", t)
        self.inputs.append(t)
        index = sum((s * v for s, v in zip(strides, variables)), start=self.draw(st.integers(0, 3)))
        mask = self.value(Type.BOOL) if self.draw(st.integers(0, 3)) == 0 else None
        self.computed(self.build.load(buffer, index, mask))

    def computed(self, value):
        """In scope, in a type to compute with."""
        if value.type in types.HALF | types.FLOAT8:
            self.scope.append(value)
            value = self.build.cast(value, Type.F32)
        self.scope.append(value)

    def value(self, t):
        """A value of the type: one in scope, cast if necessary, or a constant."""
        known = [v for v in self.scope if v.type is t]
        others = [v for v in self.scope if v.type.kind != "float" or t.kind in ("float", "bool")]
        choice = self.draw(st.integers(0, 4))
        if known and choice < 3:
            return self.pick(known)
        if others and choice == 3:
            return self.build.cast(self.pick(others), t)
        return self.build.constant(self.number(t), t)

    def number(self, t):
        if t is Type.BOOL:
            return self.draw(st.booleans())
        if t.kind == "float":
            return self.pick([0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan, 3e38])
        near = st.integers(max(-3, types.smallest(t)), 9)
        return self.draw(near | st.integers(types.smallest(t), types.largest(t)))

    def compute(self):
        op = self.pick(DRAWN)
        signature = SIGNATURES[op]
        same = self.pick(sorted(signature.same & types.COMPUTED, key=str))
        args = [self.value(same if slot == SAME else slot) for slot in signature.args]
        if op in (Op.FLOOR_DIV, Op.TRUNC_DIV, Op.REMAINDER, Op.FMOD) and same in types.INTEGER:
            zero = self.build(Op.EQ, args[1], self.build.constant(0, same))
            args[1] = self.build(Op.SELECT, zero, self.build.constant(1, same), args[1])
        self.computed(self.build(op, *args))

    def reduce(self, position):
        op = Op[self.pick(REDUCED.split())]
        same = Type.BOOL if op in (Op.ANY, Op.ALL) else self.pick(sorted(types.INTEGER, key=str))
        if op not in (Op.SUM, Op.PROD, Op.ANY, Op.ALL) and self.draw(st.booleans()):
            same = self.pick([Type.F32, Type.F64])
        args = [self.value(same)]
        if op in (Op.ARG_MAX, Op.ARG_MIN):
            args.append(self.build.iota(position))
        return self.build(op, *args)

    def store(self, index):
        value = self.pick(self.scope)
        self.outputs.append(value.type)
        buffer = self.build.buffer(f"y{len(self.outputs)}", value.type, Access.WRITE)
        mask = self.value(Type.BOOL) if self.draw(st.integers(0, 3)) == 0 else None
        self.build.store(buffer, index, value, mask)

    def kernel(self):
        shape = self.draw(st.sampled_from(["flat", "rows", "reduced", "columns"]))
        getattr(self, shape)()
        return check(self.build.kernel())

    def body(self, *variables):
        for _ in range(self.draw(st.integers(1, 3))):
            self.load(*variables)
        for _ in range(self.draw(st.integers(0, 6))):
            self.compute()

    def flat(self):
        with self.build.loop(self.m * self.n) as i:
            self.body(i)
            self.store(i)
            self.store(i)

    def rows(self):
        with self.build.loop(self.m) as i, self.build.loop(self.n) as j:
            self.body(i, j)
            self.store(i * self.n + j)

    def reduced(self):
        with self.build.loop(self.m) as i:
            self.body(i)
            before = list(self.scope)
            with self.build.loop(self.n, LoopKind.REDUCTION) as j:
                self.body(i, j)
                found = [self.reduce(j) for _ in range(2)]
            self.scope = before + found
            self.compute()
            self.store(i)
            with self.build.loop(self.n) as j:
                self.body(i, j)
                self.store(i * self.n + j)

    def columns(self):
        with self.build.loop(self.n) as j:
            with self.build.loop(self.m, LoopKind.REDUCTION) as i:
                buffer = self.build.buffer("x", Type.F32)
                self.inputs.append(Type.F32)
                self.computed(self.build.load(buffer, i * self.n + j))
                self.body(i, j)
                found = [self.reduce(i)]
            self.scope = found
            self.compute()
            self.store(j)


def data(t, count, generator):
    if t.kind == "float":
        x = torch.randn(count, generator=generator) * 3
        x[::7], x[3::11], x[5::13] = math.nan, math.inf, 0.0
        return x.to(t.dtype)
    if t is Type.BOOL:
        return torch.rand(count, generator=generator) > 0.5
    small = torch.randint(-9, 10, (count,), generator=generator)
    large = torch.randint(-(2**63), 2**63 - 1, (count,), generator=generator)
    return torch.where(small % 3 == 0, large, small).to(t.dtype)


@st.composite
def kernels(draw):
    writer = Writer(draw)
    kernel = writer.kernel()
    return kernel, draw(st.integers(0, 99))


def agree(case, sizes, target):
    kernel, seed = case
    generator = torch.Generator().manual_seed(seed)
    m, n = sizes
    room = (n + 4) * (m * n + m + n + 1)
    first = []
    for buffer in kernel.buffers:
        if buffer.access is Access.READ:
            first.append(data(buffer.type, room, generator))
        else:
            first.append(torch.zeros(room, dtype=buffer.type.dtype))
    second = [x.clone() for x in first]
    run(kernel, first, sizes)
    call(kernel, second, sizes, target)
    for buffer, x, y in zip(kernel.buffers, first, second):
        torch.testing.assert_close(
            y, x, rtol=0, atol=0, equal_nan=True, msg=f"{buffer.name} of\n{kernel}"
        )


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    kernels(), st.sampled_from([(2, 19), (3, 5), (1, 1), (0, 3), (3, 0)]), st.sampled_from(TARGETS)
)
def test_random_kernels(case, sizes, target):
    agree(case, sizes, target)


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(
    kernels(), st.sampled_from([(2, 19), (3, 5), (1, 67), (0, 3), (3, 0)]), st.sampled_from(TARGETS)
)
def test_random_kernels_at_length(case, sizes, target):
    agree(case, sizes, target)
