"""Distances between floats in units in the last place, and the inputs at which functions of floats
go wrong: every exponent, special values, what is next to the limits of a type."""

import math

import mpmath
import torch

BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]


def ordinal(t):
    """Floats counted from 0.0: neighbours differ by 1."""
    raw = t.contiguous().view(BITS[t.element_size()]).to(torch.int64)
    lowest = -(1 << (8 * t.element_size() - 1))
    return torch.where(raw < 0, lowest - raw, raw)


def distance(found, expected):
    """How many floats lie between the two. Infinite where only one is nan, where zeros differ in
    their signs, and where what isn't a float differs."""
    if not found.dtype.is_floating_point:
        return torch.where(found != expected, math.inf, 0.0).double()
    first, second = ordinal(found), ordinal(expected)
    apart = (first.double() - second.double()).abs()
    exact = (first - second).abs().double()
    apart = torch.where(apart < 2**52, exact, apart)  # the difference of integers may overflow
    apart[(found == 0) & (expected == 0) & (found.signbit() != expected.signbit())] = math.inf
    apart[found.isnan() & expected.isnan()] = 0
    apart[found.isnan() ^ expected.isnan()] = math.inf
    return apart


def unit(size, dtype):
    """The unit in the last place of numbers of this size."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(size.double().abs().clamp(max=info.max))[1]
    smallest = math.frexp(info.smallest_normal)[1] + round(math.log2(info.eps))
    exponent = (exponent + round(math.log2(info.eps))).clamp(min=smallest) - 1
    return torch.ldexp(torch.ones_like(size, dtype=torch.float64), exponent)


def error(found, exact, size=None):
    """The distance of floats to what is exact, given as doubles, in units of what has this `size`
    (that of the exact number unless it is said)."""
    apart = (found.double() - exact).abs() / unit(exact if size is None else size, found.dtype)
    alike = found == exact.to(found.dtype)
    apart[alike | (found.isnan() & exact.isnan())] = 0
    apart[(found == 0) & (exact == 0) & (found.signbit() != exact.signbit())] = math.inf
    return apart.nan_to_num(nan=math.inf)


# ---- inputs


def sweep(dtype, seed=0, more=0):
    """For a function of one number: all numbers of 16 bits; of the others all exponents with some
    mantissas each, and numbers of the usual sizes. In no special order: so that each kind is
    anywhere in a vector. `more` random mantissas."""
    generator = torch.Generator().manual_seed(seed)
    if not dtype.is_floating_point:
        return integers(dtype, generator)
    if dtype.itemsize == 2:
        x = torch.arange(-(2**15), 2**15).to(torch.int16).view(dtype)
    else:
        mantissa, exponents = (23, 2**8) if dtype is torch.float32 else (52, 2**11)
        special = torch.tensor([0, 1, 2 ** (mantissa - 1), 2**mantissa - 1])
        drawn = torch.randint(0, 2**mantissa, (exponents, 2 + more), generator=generator)
        low = torch.cat([special.expand(exponents, 4), drawn], 1)
        raw = (torch.arange(exponents)[:, None] << mantissa | low).reshape(-1)
        raw = torch.cat([raw, raw | -(2 ** (8 * dtype.itemsize - 1))])
        sizes = (1.01, 3, 20, 120, 800)
        usual = [torch.linspace(-a, a, 2001 + 1000 * more, dtype=torch.float64) for a in sizes]
        halves = torch.arange(-64, 64, dtype=torch.float64) / 2
        x = torch.cat([raw.to(BITS[dtype.itemsize]).view(dtype), *[u.to(dtype) for u in usual]])
        x = torch.cat([x, halves.to(dtype)])
    return x[torch.randperm(len(x), generator=generator)]


def integers(dtype, generator):
    if dtype is torch.bool:
        return torch.tensor([True, False] * 20)
    info = torch.iinfo(dtype)
    if info.bits == 8:
        return torch.arange(info.min, info.max + 1).to(dtype)
    ends = torch.tensor([info.min, info.min + 1, info.max - 1, info.max])
    drawn = torch.randint(info.min // 2, info.max // 2, (99,), generator=generator)
    return torch.cat([torch.arange(-130, 130), ends, drawn]).to(dtype)


_POSITIVE = [
    0.0,
    1.0,
    0.5,
    1.5,
    2.0,
    2.5,
    3.0,
    3.5,
    7.0,
    10.0,
    20.0,
    88.0,
    89.0,
    104.0,
    710.0,
    745.0,
]
_POSITIVE += [0.1, 1 / 3, math.pi, 300.25, 1000.5, 65504.0, 2.0**24, 2.0**31, 2.0**53, 2.0**63]
_POSITIVE += [1e30, 1e-30, 1e-40, 1e-7, 6e-8, 1e-45, 5e-324, 1e-310, math.inf, math.nan]


def points(dtype, exponents=24):
    """For each argument of a function of several numbers, which is computed for all their pairs."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        ends = [info.min, info.min + 1, info.max - 1, info.max, info.min // 2, info.max // 2]
        usual = [*range(-9, 20), 31, 32, 33, 63, 64, 65, 100, -31, -32, -63, -64, -100]
        inside = [n for n in ends + usual if info.min <= n <= info.max]
        return torch.tensor(inside).to(dtype)
    info = torch.finfo(dtype)
    limits = [info.max, info.smallest_normal, info.smallest_normal / 2, info.eps]
    positive = torch.tensor(
        [*_POSITIVE, *limits, 1 + info.eps, 1 - info.eps / 2], dtype=torch.float64
    )
    generator = torch.Generator().manual_seed(3)
    low, high = math.frexp(info.smallest_normal)[1], math.frexp(info.max)[1]
    drawn = torch.rand(exponents, generator=generator, dtype=torch.float64) * 2 - 1
    exponent = torch.linspace(low, high - 1, exponents, dtype=torch.float64).round()
    return torch.cat([positive, -positive, torch.ldexp(drawn, exponent)]).to(dtype)


def grid(dtype, count, seed=0, size=20_000):
    """Arguments of a function of several numbers: all pairs of points, or some of the triples."""
    each = points(dtype)
    generator = torch.Generator().manual_seed(seed)
    if count == 2:
        pairs = [part.reshape(-1) for part in torch.meshgrid(each, each, indexing="ij")]
        order = torch.randperm(len(pairs[0]), generator=generator)
        return [part[order].contiguous() for part in pairs]
    return [each[torch.randint(len(each), (size,), generator=generator)] for _ in range(count)]


# ---- what is exact, for doubles


def _lgamma(x):
    return mpmath.re(mpmath.loggamma(x)) if x > 0 else mpmath.log(abs(mpmath.gamma(x)))


def _log_odds(x):
    return mpmath.log(x / (1 - x))


EXACT = {
    "lgamma": _lgamma,
    "logit": _log_odds,
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x, 2),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "special_entr": lambda x: -x * mpmath.log(x) if x > 0 else x * 0,
    "xlogy": lambda x, y: x * mpmath.log(y) if x else x,
    "special_xlog1py": lambda x, y: x * mpmath.log1p(y) if x else x,
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
    "logaddexp2": lambda x, y: mpmath.log(mpmath.mpf(2) ** x + mpmath.mpf(2) ** y, 2),
    "fmod": mpmath.fmod,
    "remainder": lambda x, y: x - y * mpmath.floor(x / y),
    "log_sigmoid": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "pow": lambda x, y: x**y,
    "sinc": lambda x: mpmath.sinpi(x) / (mpmath.pi * x) if x else mpmath.mpf(1),
}
"""Those that have another name, or none, in mpmath."""


def exact(name, *args):
    """The function of doubles to a hundred digits and more, rounded once; None if that isn't a
    number of the size of doubles, or nothing is known of it."""
    function = EXACT.get(name) or getattr(mpmath, name, None)
    if function is None or not all(map(math.isfinite, args)):
        return None
    with mpmath.workprec(2400 if name in ("sin", "cos", "tan", "fmod", "remainder") else 400):
        try:
            value = function(*map(mpmath.mpf, args))
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        if isinstance(value, mpmath.mpc):
            return None
        return float(value)
