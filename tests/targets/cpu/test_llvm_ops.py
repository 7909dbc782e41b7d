"""The table of operations against PyTorch, for each type, at the values where types end."""

import itertools
import math

import pytest
import torch

from pliant.loop import types
from pliant.loop.ir import REDUCTIONS, Op
from pliant.loop.types import Type, largest, smallest
from pliant.targets.cpu.llvm_ops import OPS
from pliant.targets.cpu.llvm_reduce import ACCUMULATORS
from tests.support.loop_interpreter import FLOATS as FLOATS_OF_THE_INTERPRETER
from tests.support.loop_interpreter import made, wrapped
from tests.targets.cpu.kernels import TARGETS, apply, call, pointwise

EAGER_INTS = [Type.I8, Type.I16, Type.I32, Type.I64, Type.U8]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 100.5, 1e-45, 1e30, -1e30]
FLOATS += [math.inf, -math.inf, math.nan]


def values(t):
    if t is Type.BOOL:
        return torch.tensor([False, True])
    if t.kind == "float":
        return torch.tensor(FLOATS).to(t.dtype)
    low, high = smallest(t), largest(t)
    numbers = [
        low,
        low + 1,
        high,
        high - 1,
        0,
        1,
        2,
        3,
        5,
        7,
        100,
        *([-1, -2, -3, -5] if low else []),
    ]
    return torch.tensor(numbers, dtype=t.dtype)


def pairs(t):
    x = values(t)
    at = torch.cartesian_prod(torch.arange(len(x)), torch.arange(len(x)))
    return x[at[:, 0]].contiguous(), x[at[:, 1]].contiguous()


def same(found, eager):
    torch.testing.assert_close(found, eager, rtol=0, atol=0, equal_nan=True)


def test_every_operation_has_an_emitter():
    elsewhere = "LOAD STORE CONSTANT IOTA AS_INDEX CAST BITCAST WELFORD_M2 CARRIED CARRY".split()
    own = set(OPS) | REDUCTIONS | {Op[name] for name in elsewhere}
    assert own == set(Op) - {Op.ATOMIC_ADD, Op.PHILOX}  # updates are made in order
    assert set(ACCUMULATORS) == REDUCTIONS and not set(OPS) & REDUCTIONS


BINARY = {
    "ADD": torch.add,
    "SUB": torch.sub,
    "MUL": torch.mul,
    "MINIMUM": torch.minimum,
    "MAXIMUM": torch.maximum,
    "FMIN": torch.fmin,
    "FMAX": torch.fmax,
}


@pytest.mark.parametrize("t", [*EAGER_INTS, Type.F32, Type.F64])
def test_arithmetic(t):
    x, y = pairs(t)
    for name, eager in BINARY.items():
        same(apply(Op[name], [x, y], t), eager(x, y))


@pytest.mark.parametrize("t", [*EAGER_INTS, Type.F32, Type.F64])
def test_unary_arithmetic(t):
    x = values(t)
    for name in ("ABS", "SIGN", "NEG"):
        same(apply(Op[name], [x], t), getattr(torch, name.lower())(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", [*EAGER_INTS, Type.F32, Type.F64])
def test_divisions_round_as_eagers(t, target):
    x, y = pairs(t)
    if t in types.INTEGER:  # eager raises, or is stopped by the processor
        fine = (y != 0) & ~((x == smallest(t)) & (y == -1) & (t in types.SIGNED))
        x, y = x[fine], y[fine]
    same(apply(Op.FLOOR_DIV, [x, y], t, target), torch.floor_divide(x, y))
    same(apply(Op.TRUNC_DIV, [x, y], t, target), torch.div(x, y, rounding_mode="trunc"))
    # One by one: eager's code for many numbers at once gives nan for subnormal divisors.
    for op, eager in ((Op.REMAINDER, torch.remainder), (Op.FMOD, torch.fmod)):
        same(apply(op, [x, y], t, target), torch.stack(list(map(eager, x, y))))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", sorted(types.INTEGER, key=str))
def test_divisions_that_have_no_value_do_not_fault(t, target):
    x, y = pairs(t)
    zero = torch.zeros_like(x)
    for op in (Op.FLOOR_DIV, Op.TRUNC_DIV, Op.REMAINDER, Op.FMOD):
        apply(op, [x, zero], t, target)
    if t in types.SIGNED:
        low = torch.full((9,), smallest(t), dtype=t.dtype)
        minus_one = torch.full((9,), -1, dtype=t.dtype)
        same(apply(Op.FLOOR_DIV, [low, minus_one], t, target), low)
        same(apply(Op.REMAINDER, [low, minus_one], t, target), low * 0)


@pytest.mark.parametrize("t", [Type.F32, Type.F64])
def test_float_operations(t):
    x, y = pairs(t)
    same(apply(Op.DIV, [x, y], t), x / y)
    for name in ("FLOOR", "CEIL", "TRUNC", "ROUND"):
        same(apply(Op[name], [x], t), getattr(torch, name.lower())(x))
    # Eager calls a library for doubles, which is off by the last bit on some processors.
    roots = [math.sqrt(number) if number >= 0 else math.nan for number in x.double().tolist()]
    same(apply(Op.SQRT, [x], t), torch.tensor(roots, dtype=torch.float64).to(t.dtype))
    for name in ("ISNAN", "ISINF"):
        same(apply(Op[name], [x], Type.BOOL), getattr(torch, name.lower())(x))


@pytest.mark.parametrize("t", [*EAGER_INTS, Type.BOOL])
def test_bits(t):
    x, y = pairs(t)
    for name in ("AND", "OR", "XOR"):
        same(apply(Op[name], [x, y], t), getattr(torch, f"bitwise_{name.lower()}")(x, y))
    same(apply(Op.NOT, [x], t), torch.bitwise_not(x))
    if t is not Type.BOOL:
        same(apply(Op.SHL, [x, y], t), torch.bitwise_left_shift(x, y))
        same(apply(Op.SHR, [x, y], t), torch.bitwise_right_shift(x, y))


@pytest.mark.parametrize("t", [*EAGER_INTS, Type.BOOL, Type.F32, Type.F64])
def test_comparisons_and_choice(t):
    x, y = pairs(t)
    for name in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        same(apply(Op[name], [x, y], Type.BOOL), getattr(torch, name.lower())(x, y))
    condition = torch.arange(len(x)) % 3 == 0
    same(apply(Op.SELECT, [condition, x, y], t), torch.where(condition, x, y))


def in_range(x, t):
    """What a float is cast to is only defined where it fits."""
    if not x.dtype.is_floating_point or t.kind in ("float", "bool"):
        return x
    wide = x.double()
    return x[(wide > float(smallest(t) - 1)) & (wide < float(largest(t)))]


@pytest.mark.parametrize("source", list(Type))
def test_casts(source):
    for t in Type:
        x = in_range(values(source), t)
        kernel = pointwise([source], t, lambda build, v: build.cast(v, t))
        out = torch.empty(len(x), dtype=t.dtype)
        call(kernel, [x, out], [len(x)])
        same(out, x.to(t.dtype))


@pytest.mark.parametrize("t", [Type.F16, Type.BF16])
def test_rounding_to_half_width(t):
    bits = torch.arange(-(2**31), 2**31, 50_021, dtype=torch.int64).to(torch.int32)
    x = torch.cat(
        [
            bits.view(torch.float32),
            torch.arange(0x3F800000, 0x3F850000).to(torch.int32).view(torch.float32),
        ]
    )
    kernel = pointwise([Type.F32], t, lambda build, v: build.cast(v, t))
    out = torch.empty(len(x), dtype=t.dtype)
    call(kernel, [x, out], [len(x)])
    same(out, x.to(t.dtype))


def test_out_of_range_floats_become_what_eager_makes_of_them():
    x = torch.tensor([300.0, -1.0, -129.0, 1e5, 70000.0, 255.9])
    for t in (Type.U8, Type.I8, Type.I16):
        kernel = pointwise([Type.F32], t, lambda build, v: build.cast(v, t))
        out = torch.empty(len(x), dtype=t.dtype)
        call(kernel, [x, out], [len(x)])
        same(out, x.to(t.dtype))


# Floats of which LLVM knows that some or all are out of range of any integer.
OUT_OF_RANGE = {
    "nan or zero": lambda b, v: b(Op.MUL, v, b.constant(0.0, v.type)),
    "zero, nan or infinite": lambda b, v: b(Op.MUL, v, b.constant(math.inf, v.type)),
    "a reciprocal times 0": lambda b, v: b(
        Op.MUL, b(Op.DIV, b.constant(1.0, v.type), v), b.constant(0.0, v.type)
    ),
    "infinite where it is 0": lambda b, v: b(
        Op.SELECT, b(Op.EQ, v, b.constant(0.0, v.type)), b.constant(-math.inf, v.type), v
    ),
    "nan below 0": lambda b, v: b(
        Op.SELECT, b(Op.LT, v, b.constant(0.0, v.type)), b.constant(math.nan, v.type), v
    ),
    "a logarithm": lambda b, v: b(Op.LOG, v),
}


@pytest.mark.parametrize("t", EAGER_INTS)
@pytest.mark.parametrize("source", [Type.F32, Type.F64])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_casts_of_what_llvm_takes_for_out_of_range(name, source, t):
    make = OUT_OF_RANGE[name]
    x = torch.tensor([0.0, -1.0, 1.0, 3.5, -0.0, math.inf, -math.inf, math.nan, 7.0])
    x = x.to(source.dtype)
    for part in (x, x[:1], x.repeat(9)):
        floats, ints = torch.empty_like(part), torch.empty_like(part, dtype=t.dtype)
        call(pointwise([source], source, make), [part, floats], [len(part)])
        kernel = pointwise([source], t, lambda b, v: b.cast(make(b, v), t))
        call(kernel, [part, ints], [len(part)])
        same(ints, floats.to(t.dtype))


def test_bitcasts():
    for a, b in itertools.permutations(Type, 2):
        if a.bits != b.bits or Type.BOOL in (a, b):
            continue
        x = values(a)
        kernel = pointwise([a], b, lambda build, v: build.bitcast(v, b))
        out = torch.empty(len(x), dtype=b.dtype)
        call(kernel, [x, out], [len(x)])
        same(out.view(torch.int8), x.view(torch.int8))


@pytest.mark.parametrize("t", list(Type))
def test_constants(t):
    for x in values(t):
        number = made(x.item(), t)
        kernel = pointwise([], t, lambda build: build.constant(x.item(), t))
        out = torch.empty(19, dtype=t.dtype)
        call(kernel, [out], [19])
        same(out, torch.full((19,), x.item(), dtype=t.dtype))
        assert number == x or x != x


def test_unsigned_types_that_eager_cannot_compute_with():
    x, y = pairs(Type.U32)
    found = apply(Op.MUL, [x, y], Type.U32)
    assert found.tolist() == [wrapped(a * b, Type.U32) for a, b in zip(x.tolist(), y.tolist())]
    found = apply(Op.LT, [x, y], Type.BOOL)
    assert found.tolist() == [a < b for a, b in zip(x.tolist(), y.tolist())]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t, bits", [(Type.F32, 12), (Type.F64, 27)])
def test_a_fused_multiply_add_is_rounded_once(t, bits, target):
    """(1 + e)**2 - (1 + 2e) is e**2, which a rounded product has lost."""
    e = 2.0**-bits
    x = torch.full((19,), 1 + e, dtype=t.dtype)
    rest = torch.full((19,), -(1 + 2 * e), dtype=t.dtype)
    assert (x * x + rest)[0] == 0
    same(apply(Op.FMA, [x, x, rest], t, target), torch.full((19,), e * e, dtype=t.dtype))
    assert FLOATS_OF_THE_INTERPRETER[Op.FMA](x[0], x[0], rest[0]) == e * e
