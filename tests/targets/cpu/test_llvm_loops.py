"""Loops: sizes, strides, masks, indices from data, reductions; for each kind of machine."""

import math

import pytest
import torch

from pliant.loop.build import Builder
from pliant.loop.ir import Access, LoopKind, Op
from pliant.loop.types import Type
from pliant.targets.cpu.llvm_lanes import Machine, plan
from tests.targets.cpu.kernels import TARGETS, apply, call, reduce, reduction

SIZES = [0, 1, 2, 7, 16, 31, 64, 67, 131]
targets = pytest.mark.parametrize("target", TARGETS)


@targets
@pytest.mark.parametrize("n", SIZES)
def test_sizes(n, target):
    x = torch.randn(n + 1)
    out = torch.full((n + 1,), 7.0)
    build = Builder("negated")
    s = build.size("s0")
    a, b = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(s) as i:
        build.store(b, i, build(Op.NEG, build.load(a, i)))
    call(build.kernel(), [x, out], [n], target)
    assert torch.equal(out[:n], -x[:n]) and out[n] == 7  # and nothing beyond


@targets
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (5, 67), (0, 4), (4, 0), (7, 16), (2, 131)])
def test_strides_broadcasts_and_several_outputs(shape, target):
    """a is transposed, b one row, c one column, with an offset; two outputs of different type."""
    rows, columns = shape
    a, b, c = torch.randn(columns, rows), torch.randn(columns), torch.randn(rows + 2)
    build = Builder("strides")
    m, n = build.size("s0"), build.size("s1")
    x, y = build.buffer("a", Type.F32), build.buffer("b", Type.F32)
    z = build.buffer("c", Type.F32, base=2)
    total = build.buffer("total", Type.F32, Access.WRITE)
    positive = build.buffer("positive", Type.BOOL, Access.WRITE)
    with build.loop(m) as i, build.loop(n) as j:
        both = build(Op.ADD, build.load(x, j * m + i), build.load(y, j))
        v = build(Op.MUL, both, build.load(z, i))
        build.store(total, i * n + j, v)
        build.store(positive, i * n + j, build(Op.GT, v, build.constant(0.0, Type.F32)))
    out, flags = torch.empty(shape), torch.empty(shape, dtype=torch.bool)
    call(build.kernel(), [a, b, c, out, flags], [rows, columns], target)
    expected = (a.T + b) * c[2:, None]
    assert torch.equal(out, expected) and torch.equal(flags, expected > 0)


@targets
def test_any_part_of_the_grid_can_be_run_alone(target):
    a, b, c = 3, 5, 19
    build = Builder("numbered")
    l, m, n = [build.size(f"s{i}") for i in range(3)]
    y = build.buffer("y", Type.I64, Access.WRITE)
    with build.loop(l) as i, build.loop(m) as j, build.loop(n) as k:
        build.store(y, (i * m + j) * n + k, build.iota(100 * (i * 100 + j) + k))
    kernel = build.kernel()
    i, j, k = torch.meshgrid(*[torch.arange(s) for s in (a, b, c)], indexing="ij")
    expected = 100 * (i * 100 + j) + k
    for cuts in ([], [1], [18, 19, 20], [100], list(range(1, a * b * c, 13))):
        out = torch.full((a, b, c), -1)
        call(kernel, [out], [a, b, c], target, cuts)
        assert torch.equal(out, expected), cuts
    out = torch.full((a, b, c), -1)
    call(kernel, [out], [a, b, c], target, [200, 200])
    assert torch.equal(out, expected)


@targets
@pytest.mark.parametrize("n", SIZES)
def test_masked_loads_and_stores_touch_nothing_else(n, target):
    """Padding by two on both sides; only even places are written."""
    x, out = torch.randn(n), torch.full((n + 4,), 5.0)
    build = Builder("padded")
    s = build.size("s0")
    a, b = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(s + 4) as i:
        at = build.iota(i)
        inside = build(
            Op.AND,
            build(Op.GE, at, build.constant(2, Type.I64)),
            build(Op.LT, at, build.iota(s + 2)),
        )
        even = build(
            Op.EQ, build(Op.AND, at, build.constant(1, Type.I64)), build.constant(0, Type.I64)
        )
        build.store(b, i, build.load(a, i - 2, inside), even)
    call(build.kernel(), [x, out], [n], target)
    expected = torch.nn.functional.pad(x, (2, 2))
    expected[1::2] = 5.0
    assert torch.equal(out, expected)


@targets
def test_a_mask_for_one_place(target):
    """A flag that is raised where something is wrong, and a load that would be out of bounds."""
    x, flag = torch.tensor([3, 0, 5] * 9), torch.zeros(1, dtype=torch.int64)
    empty = torch.empty(0)
    out = torch.empty(27)
    build = Builder("flagged")
    s = build.size("s0")
    a, f = build.buffer("x", Type.I64), build.buffer("flag", Type.I64, Access.WRITE)
    e, y = build.buffer("empty", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(s) as i:
        zero = build(Op.EQ, build.load(a, i), build.constant(0, Type.I64))
        build.store(f, 0, build.constant(1, Type.I64), zero)
        never = build.constant(False, Type.BOOL)
        build.store(y, i, build.load(e, 10**6, never))
    kernel = build.kernel()
    call(kernel, [x, flag, empty, out], [27], target)
    assert flag.item() == 1 and torch.equal(out, torch.zeros(27))
    flag.zero_()
    call(kernel, [x.clamp(min=1), flag, empty, out], [27], target)
    assert flag.item() == 0


@targets
def test_indices_from_data(target):
    """An embedding (rows in lanes), and a gather (every lane its own place)."""
    table, rows = torch.randn(11, 37), torch.randint(0, 11, (5,))
    build = Builder("embedding")
    s, d = build.size("s0"), build.size("s1")
    w, at = build.buffer("w", Type.F32), build.buffer("at", Type.I64)
    y = build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(s) as i:
        row = build.as_index(build.load(at, i))
        with build.loop(d) as j:
            build.store(y, i * d + j, build.load(w, row * d + j))
    out = torch.empty(5, 37)
    call(build.kernel(), [table, rows, out], [5, 37], target)
    assert torch.equal(out, table[rows])

    flat, places = torch.randn(100), torch.randint(-100, 100, (67,))
    build = Builder("gather")
    s = build.size("s0")
    w, at = build.buffer("w", Type.F32), build.buffer("at", Type.I64)
    y = build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(s) as i:
        place = build.as_index(build.load(at, i))
        build.store(y, i, build.load(w, place % 100))
    out = torch.empty(67)
    call(build.kernel(), [flat, places, out], [67], target)
    assert torch.equal(out, flat[places])


@targets
def test_indices_with_divisions_and_choices(target):
    """The transpose of a matrix, by the number of its element."""
    x = torch.randn(13, 7)
    build = Builder("transposed")
    m, n = build.size("s0"), build.size("s1")
    a, b = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(m * n) as i:
        build.store(b, i, build.load(a, (i % m) * n + i // m))
    out = torch.empty(7, 13)
    call(build.kernel(), [x, out], [13, 7], target)
    assert torch.equal(out, x.T)


@targets
def test_a_serial_loop_keeps_its_order(target):
    x = torch.randn(7, 33)
    build = Builder("running_sum")
    m, n = build.size("s0"), build.size("s1")
    y = build.buffer("y", Type.F32, Access.READ_WRITE)
    with build.loop(n) as j, build.loop(m - 1, LoopKind.SERIAL) as i:
        before, here = build.load(y, i * n + j), build.load(y, (i + 1) * n + j)
        build.store(y, (i + 1) * n + j, build(Op.ADD, before, here))
    out = x.clone()
    call(build.kernel(), [out], [7, 33], target)
    torch.testing.assert_close(out, x.cumsum(0))


@targets
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    "shape", [(3, 0), (0, 3), (1, 1), (5, 16), (67, 131), (3, 1031), (1500, 5)]
)
def test_sums_against_float64(shape, axis, target):
    x = torch.randn(shape) + 1
    found = reduce(Op.SUM, x, Type.F32, axis, target)
    torch.testing.assert_close(found, x.double().sum(axis).float(), rtol=1e-6, atol=1e-5)
    whole = (x * 100).to(torch.int64)
    assert torch.equal(reduce(Op.SUM, whole, Type.I64, axis, target), whole.sum(axis))


def test_long_sums_stay_accurate():
    x = torch.rand(1, 3_000_001)
    exact = x.double().sum()
    for target in TARGETS:
        found = reduce(Op.SUM, x, Type.F32, 1, target)
        assert abs(found.item() - exact.item()) / exact.item() < 1e-6
    column = torch.rand(1_000_003, 1)
    exact = column.double().sum()
    for target in TARGETS:
        found = reduce(Op.SUM, column, Type.F32, 0, target)
        assert abs(found.item() - exact.item()) / exact.item() < 2e-6


@targets
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("t", [Type.F32, Type.F64, Type.I8, Type.U8, Type.I64])
def test_extremes_and_their_positions(t, axis, target):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 9, (67, 83), generator=generator).to(t.dtype)  # many ties
    for name in ("MAX", "MIN"):
        assert torch.equal(
            reduce(Op[name], x, t, axis, target), getattr(torch, f"a{name.lower()}")(x, axis)
        )
        found = reduce(Op[f"ARG_{name}"], x, Type.I64, axis, target, positions=True)
        best = getattr(torch, f"a{name.lower()}")(x, axis, keepdim=True)
        assert torch.equal(found, (x == best).int().argmax(axis))  # the first of them


@targets
def test_extremes_with_nan_and_infinity(target):
    x = torch.randn(6, 71)
    x[1, 40], x[1, 50] = math.nan, math.inf
    x[2] = -math.inf
    x[3, 70] = x[3, 2] = math.nan
    x[4] = math.inf
    for name in ("MAX", "MIN"):
        eager = getattr(torch, f"a{name.lower()}")(x, 1)
        torch.testing.assert_close(reduce(Op[name], x, Type.F32, 1, target), eager, equal_nan=True)
        found = reduce(Op[f"ARG_{name}"], x, Type.I64, 1, target, positions=True)
        assert found.tolist() == getattr(torch, f"arg{name.lower()}")(x, 1).tolist()


@targets
@pytest.mark.parametrize("axis", [0, 1])
def test_any_all_and_products(axis, target):
    x = torch.rand(71, 67) > 0.97
    assert torch.equal(reduce(Op.ANY, x, Type.BOOL, axis, target), x.any(axis))
    assert torch.equal(reduce(Op.ALL, ~x, Type.BOOL, axis, target), (~x).all(axis))
    y = torch.rand(20, 33) + 0.5
    torch.testing.assert_close(reduce(Op.PROD, y, Type.F32, axis, target), y.prod(axis))
    z = torch.randint(-9, 9, (20, 33))
    assert torch.equal(reduce(Op.PROD, z, Type.I64, axis, target), z.prod(axis))


@targets
def test_layer_norm(target):
    """Mean and variance in one pass, then a second loop that uses them."""
    x, w = torch.randn(5, 67) * 3 + 100, torch.randn(67)
    build = Builder("layer_norm")
    m, n = build.size("s0"), build.size("s1")
    a, b = build.buffer("x", Type.F32), build.buffer("w", Type.F32)
    y = build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(m) as i:
        with build.loop(n, LoopKind.REDUCTION) as j:
            mean = build(Op.WELFORD, build.load(a, i * n + j))
        variance = build(Op.DIV, build(Op.WELFORD_M2, mean), build.cast(build.iota(n), Type.F32))
        scale = build(Op.RSQRT, build(Op.ADD, variance, build.constant(1e-5, Type.F32)))
        with build.loop(n) as j:
            centred = build(Op.SUB, build.load(a, i * n + j), mean)
            build.store(
                y, i * n + j, build(Op.MUL, build(Op.MUL, centred, scale), build.load(b, j))
            )
    out = torch.empty(5, 67)
    call(build.kernel(), [x, w, out], [5, 67], target)
    exact = torch.nn.functional.layer_norm(x.double(), (67,), w.double())
    torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-4)


@targets
@pytest.mark.parametrize("shape", [(1, 1), (4, 3), (3, 67), (2, 2000)])
def test_softmax(shape, target):
    x = torch.randn(shape) * 5
    build = Builder("softmax")
    m, n = build.size("s0"), build.size("s1")
    a, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.READ_WRITE)
    with build.loop(m) as i:
        with build.loop(n, LoopKind.REDUCTION) as j:
            top = build(Op.MAX, build.load(a, i * n + j))
        with build.loop(n, LoopKind.REDUCTION) as j:
            e = build(Op.EXP, build(Op.SUB, build.load(a, i * n + j), top))
            total = build(Op.SUM, e)
            build.store(y, i * n + j, e)
        with build.loop(n) as j:
            build.store(y, i * n + j, build(Op.DIV, build.load(y, i * n + j), total))
    out = torch.empty(shape)
    call(build.kernel(), [x, out], shape, target)
    torch.testing.assert_close(out, torch.softmax(x, 1))


@targets
def test_a_reduction_over_two_loops(target):
    """Sums over the outer loop alone, and over both."""
    x, w = torch.randn(5, 9, 67), torch.randn(9)
    build = Builder("two_axes")
    l, m, n = [build.size(f"s{i}") for i in range(3)]
    a, b = build.buffer("x", Type.F32), build.buffer("w", Type.F32)
    y, z = [build.buffer(name, Type.F32, Access.WRITE) for name in "yz"]
    with build.loop(l) as i:
        with build.loop(m, LoopKind.REDUCTION) as j:
            weights = build(Op.SUM, build.load(b, j))
            with build.loop(n, LoopKind.REDUCTION) as k:
                total = build(Op.SUM, build.load(a, (i * m + j) * n + k))
        build.store(y, i, total)
        build.store(z, i, weights)
    out, sums = torch.empty(5), torch.empty(5)
    call(build.kernel(), [x, w, out, sums], [5, 9, 67], target)
    torch.testing.assert_close(out, x.sum((1, 2)), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(sums, w.sum().expand(5))


@targets
def test_a_kernel_without_a_grid(target):
    x, out = torch.randn(131), torch.empty(1)
    build = Builder("whole")
    n = build.size("s0")
    a, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n, LoopKind.REDUCTION) as i:
        top = build(Op.MAX, build.load(a, i))
    build.store(y, 0, top)
    call(build.kernel(), [x, out], [131], target)
    assert out.item() == x.max().item()


def test_columns_are_summed_in_lanes_of_columns():
    machine = Machine(64, True)
    (rows,), (columns,) = [
        list(plan(reduction(Op.SUM, Type.F32, Type.F32, axis), machine)) for axis in (1, 0)
    ]
    assert rows.kind is LoopKind.REDUCTION and columns.kind is LoopKind.PARALLEL


def test_halves_are_computed_in_float32():
    x = torch.randn(67).bfloat16()
    build = Builder("halves")
    n = build.size("s0")
    a, y = build.buffer("x", Type.BF16), build.buffer("y", Type.BF16, Access.WRITE)
    with build.loop(n) as i:
        wide = build.cast(build.load(a, i), Type.F32)
        build.store(y, i, build.cast(build(Op.EXP, wide), Type.BF16))
    out = torch.empty_like(x)
    call(build.kernel(), [x, out], [67])
    assert torch.equal(out, x.float().exp().bfloat16())


def test_sixty_four_bit_indices():
    """Beyond 2**31 elements, on memory that is never touched elsewhere."""
    far = 2**31 + 5
    x = torch.empty(far + 1, dtype=torch.int8)
    x[far] = 42
    out = torch.empty(1, dtype=torch.int8)
    build = Builder("far")
    n = build.size("s0")
    a, y = build.buffer("x", Type.I8), build.buffer("y", Type.I8, Access.WRITE)
    with build.loop(1) as i:
        build.store(y, i, build.load(a, i * n + n))
    call(build.kernel(), [x, out], [far])
    assert out.item() == 42
    assert apply(Op.NEG, [out], Type.I8).item() == -42


@targets
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("step", [-4, -2, -1, 2, 3, 4, 5])
def test_steps_in_memory(step, n, target):
    """Loads and stores; nothing beside the elements is touched."""
    first = 0 if step > 0 else -step * max(n - 1, 0)
    x = torch.randn(abs(step) * max(n - 1, 0) + 1)
    loaded, stored = torch.full((n + 1,), 7.0), torch.full((len(x),), 7.0)
    build = Builder("steps")
    s = build.size("s0")
    a = build.buffer("x", Type.F32, base=first)
    b = build.buffer("loaded", Type.F32, Access.WRITE)
    c = build.buffer("stored", Type.F32, Access.WRITE, base=first)
    with build.loop(s) as i:
        value = build.load(a, i * step)
        build.store(b, i, value)
        build.store(c, i * step, value)
    call(build.kernel(), [x, loaded, stored], [n], target)
    wanted = x[:: abs(step)][:n] if step > 0 else x[:: abs(step)][:n].flip(0)
    assert torch.equal(loaded[:n], wanted) and loaded[n] == 7
    expected = torch.full((len(x),), 7.0)
    if n:
        expected[:: abs(step)] = x[:: abs(step)]
    assert torch.equal(stored, expected)


def test_a_value_that_is_the_same_in_all_lanes_does_not_count_for_them():
    """Rows of bytes picked by 64-bit numbers."""
    build = Builder("rows")
    m, n = build.size("s0"), build.size("s1")
    which, x = build.buffer("which", Type.I64), build.buffer("x", Type.U8)
    y = build.buffer("y", Type.U8, Access.WRITE)
    with build.loop(m) as i, build.loop(n) as j:
        row = build.as_index(build.load(which, i))
        build.store(y, i * n + j, build.load(x, row * n + j))
    assert list(plan(build.kernel(), Machine(64, True)).values()) == [64]
