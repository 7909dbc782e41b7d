"""Functions of a kernel or two each, in two sizes: within a core's caches, and beyond them all.

Only PyTorch is imported here, because the cold start of others is measured with these too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

Args = tuple[Any, ...]
SMALL = (64, 256)  # 64 KB of floats
LARGE = (4096, 1536)  # 25 MB of floats: beyond a cache of 32 MB with what is read and written, and
# below what malloc takes from the system for each call, which would drown everything else


@dataclass(frozen=True, slots=True)
class Case:
    """A function and its arguments for a number of rows and columns."""

    name: str
    function: Callable[..., Any]
    args: Callable[[int, int], Args]
    streams: bool = False  # as fast as memory: to be compared with a copy
    sizes: tuple[tuple[int, int], ...] = (SMALL, LARGE)


def floats(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


def brains(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes).bfloat16()


def one(m: int, n: int) -> Args:
    return (floats(m, n),)


def two(m: int, n: int) -> Args:
    return (floats(m, n), floats(m, n))


def two_halves(m: int, n: int) -> Args:
    """Of what together has m rows and n columns."""
    return (floats(m, n // 2), floats(m, n // 2))


def three(m: int, n: int) -> Args:
    return (floats(m, n), floats(m, n), floats(m, n))


def with_bias(m: int, n: int) -> Args:
    return (floats(m, n), floats(n))


def normed(m: int, n: int) -> Args:
    return (floats(m, n), floats(n), floats(n))


def in_bf16(args: Callable[[int, int], Args]) -> Callable[[int, int], Args]:
    def made(m: int, n: int) -> Args:
        found = args(m, n)
        return tuple([a.bfloat16() if a.is_floating_point() else a for a in found])

    return made


def masked(m: int, n: int) -> Args:
    return (floats(m, n), torch.rand(m, n) < 0.5)


def choices(m: int, n: int) -> Args:
    return (*masked(m, n), floats(m, n))


def transposed(m: int, n: int) -> Args:
    return (floats(m, n), floats(n, m))


def table(m: int, n: int) -> Args:
    """As many rows as are looked up, in a table of a quarter of the size."""
    rows = max(m // 4, 1)
    return (torch.randint(0, rows, (m,)), floats(rows, n))


def places(m: int, n: int) -> Args:
    return (floats(m, n), torch.randint(0, n, (m, n)))


def images(m: int, n: int) -> Args:
    """(batch, channels, height, width), and four numbers of each channel."""
    channels = 16
    side = max(int((m * n / channels / 4) ** 0.5), 1)
    numbers = [torch.rand(channels) + 0.5 for _ in range(4)]
    return (floats(4, channels, side, side), *numbers)


def heads(m: int, n: int) -> Args:
    """(batch, length, heads, width)"""
    return (floats(4, m // 4, n // 64, 64),)


def integers(m: int, n: int) -> Args:
    return (torch.randint(-100, 100, (m, n // 2)), torch.randint(1, 100, (m, n // 2)))


def add_one(x: Any) -> Any:
    return x + 1


def arithmetic(x: Any, y: Any, z: Any) -> Any:
    return torch.relu(x * y + z) * 0.5 - x


def smooth(x: Any, y: Any) -> Any:
    return torch.tanh(x) * torch.sigmoid(y) + torch.exp(-x * x)


def gelu_bias(x: Any, b: Any) -> Any:
    return F.gelu(x + b)


def gelu_tanh_bias(x: Any, b: Any) -> Any:
    return F.gelu(x + b, approximate="tanh")


def swiglu(x: Any, y: Any) -> Any:
    return F.silu(x) * y


def softmax(x: Any) -> Any:
    return torch.softmax(x, dim=-1)


def masked_softmax(x: Any, mask: Any) -> Any:
    return torch.softmax((x * 0.125).masked_fill(mask, float("-inf")), dim=-1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, x.shape[-1:], w, b)


def add_layer_norm(x: Any, y: Any) -> Any:
    total = x + y
    return total, F.layer_norm(total, x.shape[-1:])


def rms_norm(x: Any, w: Any) -> Any:
    """As language models write it: in float32, whatever they are given."""
    wide = x.float()
    return w * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def batch_norm(x: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
    return F.relu(F.batch_norm(x, mean, var, w, b))


def rotate(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary positions: halves of rows are swapped."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin


def cat_of_both(x: Any, y: Any) -> Any:
    return torch.cat([x.relu(), y.sigmoid()], 1)


POINTWISE = [
    Case("x + 1", add_one, one, streams=True),
    Case("relu(x*y + z)*0.5 - x", arithmetic, three, streams=True),
    Case("x + bias, relu", lambda x, b: torch.relu(x + b), with_bias, streams=True),
    Case("tanh, sigmoid, exp", smooth, two),
    Case("gelu(x + bias)", gelu_bias, with_bias),
    Case("gelu(x + bias), tanh", gelu_tanh_bias, with_bias),
    Case("silu(x) * y", swiglu, two),
    Case("int64 (x*y + 3) & 255", lambda x, y: (x * y + 3) & 255, integers, streams=True),
    Case("int64 x // y", lambda x, y: x // y, integers),
    Case("(x > y) & (x < 2)", lambda x, y: (x > y) & (x < 2), two, streams=True),
    Case("rotary positions", rotate, three),
]
ROWS = [
    Case("softmax", softmax, one),
    Case("log_softmax", lambda x: torch.log_softmax(x, -1), one),
    Case("softmax, dim 0", lambda x: torch.softmax(x, 0), one),
    Case("masked softmax", masked_softmax, masked),
    Case("layer norm", layer_norm, normed),
    Case("add, layer norm, both", add_layer_norm, two),
    Case("rms norm", rms_norm, with_bias),
    Case("batch norm, eval, relu", batch_norm, images, streams=True),
]
REDUCTIONS = [
    Case("sum, inner", lambda x: x.sum(-1), one),
    Case("sum, outer", lambda x: x.sum(0), one),
    Case("sum, all", lambda x: x.sum(), one),
    Case("sum, middle", lambda x: x.view(4, -1, x.shape[-1]).sum(1), one),
    Case("amax, inner", lambda x: x.amax(-1), one),
    Case("argmax, inner", lambda x: x.argmax(-1), one),
    Case("var, inner", lambda x: x.var(-1), one),
    Case("var, outer", lambda x: x.var(0), one),
    Case("logsumexp, inner", lambda x: x.logsumexp(-1), one),
    Case("(x*y).sum(-1)", lambda x, y: (x * y).sum(-1), two),
    Case("mean((x - y)**2)", lambda x, y: ((x - y) ** 2).mean(), two),
]
MOVES = [
    Case("cat, dim 0", lambda x, y: torch.cat([x, y]), two_halves),
    Case("cat, dim 1", lambda x, y: torch.cat([x, y], 1), two_halves),
    Case("cat of relu, sigmoid", cat_of_both, two_halves),
    Case("embedding", lambda i, w: F.embedding(i, w), table),
    Case("embedding * 2 + 1", lambda i, w: F.embedding(i, w) * 2 + 1, table),
    Case("gather, dim 1", lambda x, i: x.gather(1, i), places),
    Case("masked_fill", lambda x, m: x.masked_fill(m, 0.0), masked),
    Case("where(mask, x, y)", lambda x, m, y: torch.where(m, x, y * 2), choices),
    Case("tril", lambda x: x.tril(), one),
    Case("x + y.t()", lambda x, y: x + y.t(), transposed),
    Case("x.t().contiguous()", lambda x: x.t().contiguous(), one),
    Case("(0, 2, 1, 3), contiguous", lambda x: x.permute(0, 2, 1, 3).contiguous(), heads),
    Case("x[:, ::2] + 1", lambda x: x[:, ::2] + 1, one),
    Case("x.flip(1) + 1", lambda x: x.flip(1) + 1, one),
    Case("pad by 1", lambda x: F.pad(x, (1, 1, 1, 1)), one),
]
HALVES = [
    Case("bf16 relu(x*y + z)*0.5 - x", arithmetic, in_bf16(three), streams=True),
    Case("bf16 gelu(x + bias)", gelu_bias, in_bf16(with_bias)),
    Case("bf16 silu(x) * y", swiglu, in_bf16(two)),
    Case("bf16 softmax", softmax, in_bf16(one)),
    Case("bf16 layer norm", layer_norm, in_bf16(normed)),
    Case("bf16 rms norm", rms_norm, in_bf16(with_bias)),
    Case("bf16 sum, inner", lambda x: x.sum(-1), in_bf16(one)),
    Case("bf16 sum, outer", lambda x: x.sum(0), in_bf16(one)),
    Case("bf16 embedding", lambda i, w: F.embedding(i, w), in_bf16(table)),
    Case("bf16 to float", lambda x: x.float() * 2, in_bf16(one), streams=True),
    Case("float to bf16", lambda x: (x * 2).bfloat16(), one, streams=True),
]
FOUR = Case("x + 1, 4 elements", add_one, lambda m, n: (floats(n),), sizes=((1, 4),))
CASES = [FOUR, *POINTWISE, *ROWS, *REDUCTIONS, *MOVES, *HALVES]
# A few of each kind.
QUICK = [FOUR, POINTWISE[1], POINTWISE[4], ROWS[0], ROWS[4], REDUCTIONS[0], REDUCTIONS[1],
         MOVES[1], MOVES[3], MOVES[9], HALVES[0]]  # fmt: skip
