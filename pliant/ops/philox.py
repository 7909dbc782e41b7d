"""Random numbers as a function: those that eager PyTorch draws on CUDA.

The one idea: there the generator is a counter. Once a draw has taken its part of the counter (an
effect, see `graph.gpu_draws`), which number an element gets depends on nothing but the element, so
it is computed wherever it is read: in the kernel that uses it, and again in the backward.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.base.operators import register
from pliant.fake.raising import never
from pliant.loop.define import Index, LoopBody, address, contiguous
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, lowers, number
from pliant.sym.expr import as_expr

LOW: Final = 0xFFFFFFFF

_LIBRARY: Final = torch.library.Library("pliant", "FRAGMENT")
_LIBRARY.define(
    "philox_below(SymInt[] size, SymInt seed, SymInt start, SymInt threads, SymInt width,"
    " int limit, Device device) -> Tensor"
)


def numbers_of(
    elements: torch.Tensor, seed: int, start: int, threads: int, width: int
) -> torch.Tensor:
    """The 32 bits of each element, as int64: `loop.ir.Op.PHILOX` in PyTorch's operators."""
    group = elements // width
    turn, thread = group // threads, group % threads
    if width == 1:  # a thread takes four elements that are `threads` apart
        counter, lane = turn // 4, turn % 4
    else:
        inside = elements % width
        counter, lane = turn * max(width // 4, 1) + inside // 4, inside % 4
    counter = counter + start
    c0, c1, c2, c3 = counter & LOW, (counter >> 32) & LOW, thread, torch.zeros_like(thread)
    k0, k1 = seed & LOW, (seed >> 32) & LOW
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # modulo 2**64
        c0, c1, c2, c3 = (b >> 32) & LOW ^ c1 ^ k0, b & LOW, (a >> 32) & LOW ^ c3 ^ k1, a & LOW
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return torch.where(lane < 2, torch.where(lane == 0, c0, c1), torch.where(lane == 2, c2, c3))


def _below(
    size: Sequence[int],
    seed: int,
    start: int,
    threads: int,
    width: int,
    limit: int,
    device: torch.device,
) -> torch.Tensor:
    """Where no code is generated."""
    elements = torch.arange(torch.Size(size).numel(), device=device)
    return (numbers_of(elements, seed, start, max(threads, 1), width) < limit).view(size)


_LIBRARY.impl("philox_below", _below, "CompositeExplicitAutograd")
philox_below: Final = torch.ops.pliant.philox_below.default

register("pliant.philox_below", raises=never, fuses=True, expensive=True)


@lowers("pliant.philox_below.default")
def below(
    low: Lowering,
    size: Sequence[Any],
    seed: Any,
    start: Any,
    threads: Any,
    width: Any,
    limit: int,
    device: torch.device,
) -> IndexedTensor:
    """Whether the number of an element is below a limit."""
    sizes = tuple(map(as_expr, size))
    strides = contiguous(sizes)

    def at(b: LoopBody, index: Index) -> LoopValue:
        element = b.iota(address(index, strides))
        state = [number(b, x, Type.I64) for x in (seed, start, threads, width)]
        bits = b(Op.PHILOX, *state[:2], element, *state[2:])
        return b(Op.LT, bits, b.constant(limit, Type.U32))

    return low.generate(sizes, Type.BOOL, at, cost=20)


def to_float32(x: float) -> float:
    """The nearest float of 32 bits."""
    rounded: float = struct.unpack("f", struct.pack("f", x))[0]
    return rounded


def uniform(bits: int) -> float:
    """The float of 32 bits that PyTorch makes of the number: more than 0, at most 1."""
    return to_float32(to_float32(bits) * 2.0**-32 + 2.0**-33)


def limit_of(probability: float) -> int:
    """How many of the numbers make a float that is less than the probability: those below."""
    least, most = 0, 1 << 32
    while least < most:
        middle = (least + most) // 2
        if uniform(middle) < probability:
            least = middle + 1
        else:
            most = middle
    return least
