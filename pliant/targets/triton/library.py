"""What generated kernels call beside Triton's own functions. Imported when a GPU is.

The one idea: these are Triton functions in Triton's language; `interpret` runs the same code on
NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import triton
import triton.language as tl
from triton.language.extra import libdevice

jit: Final[Callable[..., Any]] = triton.jit

# --------------------------------------------------------------------------------------------------
# Integers. Triton rounds quotients to 0.


@jit
def floor_div(a, b):  # type: ignore[no-untyped-def]
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


@jit
def floor_mod(a, b):  # type: ignore[no-untyped-def]
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@jit
def shift_left(a, b, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    possible = (b >= 0) & (b < BITS)
    return tl.where(possible, a << tl.where(possible, b, 0), 0)


@jit
def shift_right(a, b, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    possible = (b >= 0) & (b < BITS)
    return a >> tl.where(possible, b, BITS - 1)


@jit
def shift_right_unsigned(a, b, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    possible = (b >= 0) & (b < BITS)
    return tl.where(possible, a >> tl.where(possible, b, 0), 0)


@jit
def sign(x):  # type: ignore[no-untyped-def]
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


# --------------------------------------------------------------------------------------------------
# Floats


@jit
def sigmoid(x):  # type: ignore[no-untyped-def]
    return 1.0 / (1.0 + libdevice.exp(-x))


@jit
def silu(x):  # type: ignore[no-untyped-def]
    return x / (1.0 + libdevice.exp(-x))


@jit
def fmin(a, b):  # type: ignore[no-untyped-def]
    return tl.where(a != a, b, tl.where(b < a, b, a))


@jit
def fmax(a, b):  # type: ignore[no-untyped-def]
    return tl.where(a != a, b, tl.where(b > a, b, a))


@jit
def remainder_floats(a, b):  # type: ignore[no-untyped-def]
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@jit
def divided(a, b):  # type: ignore[no-untyped-def]
    """A quotient rounded as on a CPU. Triton's own division of float32 is approximate, and gives 0
    for large divisors."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@jit
def floor_div_floats(a, b):  # type: ignore[no-untyped-def]
    """From the exact remainder, as PyTorch does: a / b may round up to the next integer."""
    rest = libdevice.fmod(a, b)
    quotient = divided(a - rest, b)
    quotient = tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1.0, quotient)
    below = libdevice.floor(quotient)
    result = tl.where(quotient - below > 0.5, below + 1.0, below)
    plain = divided(a, b)
    result = tl.where(quotient == 0, libdevice.copysign(quotient * 0.0, plain), result)
    return tl.where(b == 0, plain, result)


# --------------------------------------------------------------------------------------------------
# Floats of 8 bits, as these bits. Triton's own casts are not there for all GPUs, and what they make
# of numbers that are too large isn't what eager PyTorch does. The formats are in `loop.float8`.


@jit
def from_float8(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, SPECIAL: tl.constexpr):  # type: ignore[no-untyped-def]
    bits = x.to(tl.int32)
    size = bits & 0x7F
    below = size.to(tl.float32) * 2.0 ** (1 - BIAS - MANTISSA)
    above = (size << (23 - MANTISSA)) + ((127 - BIAS) << 23)
    normal = size >= 2**MANTISSA
    result = tl.where(normal, above, below.to(tl.int32, bitcast=True))
    sign = (bits & 0x80) << 24
    if SPECIAL == 0x80:  # without a negative zero, whose bits are nan
        result = tl.where(bits == 0x80, 0x7FC00000, result | sign)
    else:
        result = tl.where(size >= SPECIAL, result | 0x7F800000, result) | sign
    return result.to(tl.float32, bitcast=True)


@jit
def to_float8(x, MANTISSA: tl.constexpr, BIAS: tl.constexpr, NAN: tl.constexpr, MOST: tl.constexpr):  # type: ignore[no-untyped-def]
    """To the nearest, halves to even; what is larger than `MOST` becomes that."""
    bits = x.to(tl.int32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # The last place of the sum is the least number: the addition rounds to its multiples.
    shifted = size.to(tl.float32, bitcast=True) + 2.0 ** (24 - BIAS - MANTISSA)
    below = shifted.to(tl.int32, bitcast=True) - ((151 - BIAS - MANTISSA) << 23)
    SHIFT: tl.constexpr = 23 - MANTISSA
    # Half a unit less one bit, and one more if the last bit that stays is 1.
    nearest = size + ((size >> SHIFT) & 1) + (2 ** (SHIFT - 1) - 1)
    above = (nearest - ((127 - BIAS) << 23)) >> SHIFT
    result = tl.where(size < (128 - BIAS) << 23, below, tl.minimum(above, MOST))
    result = tl.where(size > 0x7F800000, NAN, result)
    sign = (bits >> 24) & 0x80
    if NAN == 0x80:  # 0 and nan have no sign
        sign = tl.where((result & 0x7F) == 0, 0, sign)
    return (result | sign).to(tl.uint8)


# --------------------------------------------------------------------------------------------------
# Reductions of blocks of rows and columns to one number for each row


@jit
def _add(a, b):  # type: ignore[no-untyped-def]
    return a + b


@jit
def _multiply(a, b):  # type: ignore[no-untyped-def]
    return a * b


@jit
def _larger(a, b):  # type: ignore[no-untyped-def]
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def _smaller(a, b):  # type: ignore[no-untyped-def]
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@jit
def sum_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x, 1, _add, keep_dims=True)


@jit
def prod_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x, 1, _multiply, keep_dims=True)


@jit
def max_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x, 1, _larger, keep_dims=True)


@jit
def min_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x, 1, _smaller, keep_dims=True)


@jit
def any_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x.to(tl.int32), 1, _larger, keep_dims=True) != 0


@jit
def all_along(x):  # type: ignore[no-untyped-def]
    return tl.reduce(x.to(tl.int32), 1, _smaller, keep_dims=True) != 0


@jit
def is_larger(x, at, best, best_at):  # type: ignore[no-untyped-def]
    """Whether `x` comes before `best` as a maximum: nan is larger than all numbers, and of equal
    ones the first position counts."""
    equal = (x == best) | ((x != x) & (best != best))
    return (x > best) | ((x != x) & (best == best)) | (equal & (at < best_at))


@jit
def is_smaller(x, at, best, best_at):  # type: ignore[no-untyped-def]
    equal = (x == best) | ((x != x) & (best != best))
    return (x < best) | ((x != x) & (best == best)) | (equal & (at < best_at))


@jit
def position_of(x, at, best, mask):  # type: ignore[no-untyped-def]
    """The first position of the best number, or of a nan if there is one; 0 if there are no
    elements."""
    here = mask & ((x == best) | (x != x))
    first = min_along(tl.where(here, at, 9223372036854775807))
    return tl.where(first == 9223372036854775807, 0, first)


# --------------------------------------------------------------------------------------------------
# Scans of blocks of rows and columns


@jit
def last_along(x, BITS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The last number of each row, bit for bit; `BITS` is the integer type of its width."""
    column = tl.arange(0, x.shape[1])[None, :]
    bits = tl.where(column == x.shape[1] - 1, x.to(BITS, bitcast=True), 0)
    return sum_along(bits.to(BITS)).to(x.dtype, bitcast=True)


# --------------------------------------------------------------------------------------------------
# Random numbers, as kernels of eager PyTorch's draw them (`Op.PHILOX`)


@jit
def philox(seed, counter, thread):  # type: ignore[no-untyped-def]
    """The four numbers of one call of a thread: Philox4x32 with ten rounds. A product of 64 bits is
    one instruction; its halves would be two."""
    k0 = seed.to(tl.uint32)
    k1 = (seed >> 32).to(tl.uint32)
    c0 = counter.to(tl.uint32)
    c1 = (counter >> 32).to(tl.uint32)
    c2 = thread.to(tl.uint32)
    c3 = c2 ^ c2
    for _ in range(10):
        a = c0.to(tl.uint64) * 0xD2511F53
        b = c2.to(tl.uint64) * 0xCD9E8D57
        c0 = (b >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = b.to(tl.uint32)
        c2 = (a >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = a.to(tl.uint32)
        k0 = k0 + 0x9E3779B9
        k1 = k1 + 0xBB67AE85
    return c0, c1, c2, c3


@jit
def bits_apart(seed, start, element, threads, width):  # type: ignore[no-untyped-def]
    """The number of each element, by a call of its own. `width` neighbours are one thread's, in as
    many calls as it takes; if it is 1, four elements that are `threads` apart."""
    shift = (width >= 2).to(element.dtype) + (width >= 4) + (width >= 8)
    group = element >> shift
    turn = group // threads.to(element.dtype)
    thread = group - turn * threads.to(element.dtype)
    inside = element - (group << shift)
    several = (width >= 8).to(element.dtype)
    counter = tl.where(width == 1, turn >> 2, (turn << several) + (inside >> 2))
    lane = tl.where(width == 1, turn, inside) & 3
    c0, c1, c2, c3 = philox(seed, start + counter, thread)
    return tl.where(lane < 2, tl.where(lane == 0, c0, c1), tl.where(lane == 2, c2, c3))


@jit
def bits_in_fours(seed, start, element, first, together, threads, width):  # type: ignore[no-untyped-def]
    """The same for blocks whose columns are neighbours. `first` is the number of each fourth one;
    if `together`, all of these are multiples of 4, and the four from there on share a call."""
    if element.shape[len(element.shape) - 1] < 4:
        bits = bits_apart(seed, start, element, threads, width)
    else:
        # Both ways give a fourth of the block four times: what follows has one layout.
        if together:
            several = (width >= 8).to(first.dtype)
            group = first >> (several + 2)
            turn = group // threads.to(first.dtype)
            thread = group - turn * threads.to(first.dtype)
            counter = (turn << several) + ((first >> 2) & several)
            c0, c1, c2, c3 = philox(seed, start + counter, thread)
        else:
            # A loop, since a program rarely comes here, but all of them are compiled.
            c0 = (first ^ first).to(tl.uint32)
            c1, c2, c3 = c0, c0, c0
            for lane in range(4):
                bits = bits_apart(seed, start, first + lane, threads, width)
                c0 = tl.where(lane == 0, bits, c0)
                c1 = tl.where(lane == 1, bits, c1)
                c2 = tl.where(lane == 2, bits, c2)
                c3 = tl.where(lane == 3, bits, c3)
        bits = tl.reshape(tl.join(tl.join(c0, c2), tl.join(c1, c3)), element.shape)
    return bits


# --------------------------------------------------------------------------------------------------
# Products of matrices


@jit
def place_of_tile(tile, row_tiles, column_tiles):  # type: ignore[no-untyped-def]
    """Which tile of rows and which of columns: down in groups of eight, so that tiles that are
    computed at the same time share rows and columns, which are in the cache then."""
    group = 8 * column_tiles
    first = tile // group * 8
    size = tl.minimum(row_tiles - first, 8)
    return first + tile % group % size, tile % group // size


NAMES: Final = (
    ("floor_div", "floor_mod", "shift_left", "shift_right", "shift_right_unsigned", "sign")
    + ("sigmoid", "silu", "fmin", "fmax", "remainder_floats", "divided", "floor_div_floats")
    + ("from_float8", "to_float8")
    + ("sum_along", "prod_along", "max_along", "min_along", "any_along", "all_along")
    + ("is_larger", "is_smaller", "position_of", "last_along")
    + ("philox", "bits_apart", "bits_in_fours", "place_of_tile")
)
"""What kernels may call."""


def namespace() -> dict[str, Any]:
    """The globals of a kernel that is compiled."""
    own = {name: globals()[name] for name in NAMES}
    names = {"triton": triton, "tl": tl, "libdevice": libdevice, "tile_range": tl.range}
    return names | own
