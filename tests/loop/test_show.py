import math

from pliant.loop.build import Builder
from pliant.loop.ir import Access, LoopKind, Op
from pliant.loop.types import Type

EXPECTED = """\
kernel rows(s0, s1; x: f32 read from 4, at: i64 read, y: f32 read/write)
  parallel i0 < s0
    v0 = load at[i0]
    v1 = as_index v0 as j1
    reduction i2 < s1
      v2 = load x[j1*s1 + i2]
      v3 = max v2
    parallel i3 < s1
      v4 = iota i3
      v5 = i64 3
      v6 = lt v4, v5
      v7 = load y[i0*s1 + i3] if v6
      v8 = sub v7, v3
      store y[i0*s1 + i3] = v8 if v6
    v9 = cast v3 to f64"""


def test_a_kernel_reads_well():
    build = Builder("rows")
    m, n = build.size("s0"), build.size("s1")
    x, at = build.buffer("x", Type.F32, base=4), build.buffer("at", Type.I64)
    y = build.buffer("y", Type.F32, Access.READ_WRITE)
    with build.loop(m) as i:
        row = build.as_index(build.load(at, i))
        with build.loop(n, LoopKind.REDUCTION) as j:
            top = build(Op.MAX, build.load(x, row * n + j))
        with build.loop(n) as j:
            some = build(Op.LT, build.iota(j), build.constant(3, Type.I64))
            old = build.load(y, i * n + j, some)
            build.store(y, i * n + j, build(Op.SUB, old, top), some)
        build.cast(top, Type.F64)
    assert str(build.kernel()) == EXPECTED


def constant(number, t=Type.F64):
    build = Builder("k")
    build.constant(number, t)
    return str(build.kernel())


def test_constants_that_differ_print_differently():
    texts = [constant(x) for x in (0.0, -0.0, math.nan, -math.nan, math.inf, 0.1, 0.1 + 1e-18)]
    assert len(set(texts)) == 6  # the last two are one number
    assert constant(1, Type.I64) != constant(1, Type.I32)
