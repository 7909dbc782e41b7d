"""Random functions of tensors: what people write and what nobody should.

The one idea: a function is written line by line, and every line is run as soon as it is written, on
real tensors. So lines are (nearly) always valid, and everything about a variable is known when the
next line is made of it. Each table below has a kind of line: a text with places for variables.
`Case` is the finished function with a recipe for its arguments, at any sizes.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.bfloat16)
DTYPES = (*FLOATS, torch.int64, torch.int64, torch.bool)
LAYOUTS = ("plain", "plain", "plain", "transposed", "offset", "stepped", "expanded", "channels")
LARGEST = 1e5  # numbers beyond it make everything afterwards a matter of rounding


@dataclass(frozen=True)
class Given:
    """An argument: a tensor whose sizes are the letters' values, or a number, or `like` another."""

    name: str
    dims: tuple[str | int, ...] = ()
    dtype: torch.dtype = torch.float32
    layout: str = "plain"
    number: int | float | bool | None = None
    same_as: int | None = None  # the very argument
    part_of: int | None = None  # a view of that argument
    special: bool = False  # with NaN, infinities and zeros of both signs
    parameter: bool = False


@dataclass
class Case:
    """A function, what to call it with, and how."""

    seed: int
    source: str
    givens: list[Given]
    sizes: list[dict[str, int]]  # the first are those that it was written with
    mode: str
    dynamic: bool | None
    threads: int
    function: Any = None

    def arguments(self, at: int, shift: float = 0.0) -> list[Any]:
        """The arguments for the sizes at this position; `shift` moves each float a little."""
        return make_arguments(self.givens, self.sizes[at], self.seed * 10 + at, shift)


def make_arguments(
    givens: Sequence[Given], sizes: dict[str, int], seed: int, shift: float = 0.0
) -> list[Any]:
    made: list[Any] = []
    random_numbers = torch.Generator().manual_seed(seed)
    for given in givens:
        if given.number is not None:
            made.append(given.number)
        elif given.same_as is not None:
            made.append(made[given.same_as])
        elif given.part_of is not None:
            made.append(_part(made[given.part_of]))
        else:
            made.append(_tensor(given, sizes, random_numbers, shift))
    return made


def _part(whole: torch.Tensor) -> torch.Tensor:
    """A view that overlaps with the rest of it."""
    return whole[1:] if whole.dim() and whole.shape[0] > 1 else whole.view(whole.shape)


def _tensor(
    given: Given, sizes: dict[str, int], numbers: torch.Generator, shift: float
) -> torch.Tensor:
    shape = [sizes[d] if isinstance(d, str) else d for d in given.dims]
    arranged = LAYOUT[given.layout](shape)
    if given.dtype is torch.bool:
        filled = torch.rand(arranged.storage, generator=numbers) > 0.5
    elif given.dtype is torch.int64:
        filled = torch.randint(-4, 9, arranged.storage, generator=numbers)
    else:
        filled = torch.randn(arranged.storage, generator=numbers, dtype=torch.float64)
        filled = filled.to(given.dtype)
        if shift:
            filled = moved(filled, shift, numbers)
        if given.special and filled.numel() > 3:
            filled.view(-1)[:4] = torch.tensor([float("nan"), float("inf"), -0.0, -float("inf")])
    made = arranged.view(filled)
    if given.parameter and made.is_floating_point():
        made = torch.nn.Parameter(made) if given.layout == "plain" else made.requires_grad_()
    return made


def moved(x: torch.Tensor, shift: float, numbers: torch.Generator) -> torch.Tensor:
    # Eight of them are less than what is tolerated.
    unit = {torch.float32: 3e-7, torch.float64: 3e-13, torch.bfloat16: 2e-3}[x.dtype]
    noise = torch.rand(x.shape, generator=numbers, dtype=torch.float64) - 0.5
    return (x.double() * (1 + shift * unit * noise)).to(x.dtype)


@dataclass(frozen=True)
class Arranged:
    """Sizes of a storage, and how a tensor lies in it."""

    storage: tuple[int, ...]
    view: Callable[[torch.Tensor], torch.Tensor]


def _transposed(shape: list[int]) -> Arranged:
    return Arranged(tuple(shape[::-1]), lambda t: t.permute(tuple(range(t.dim()))[::-1]))


def _offset(shape: list[int]) -> Arranged:
    if not shape:
        return Arranged((3,), lambda t: t[2])
    return Arranged((shape[0] + 2, *shape[1:]), lambda t: t[2:])


def _stepped(shape: list[int]) -> Arranged:
    if not shape:
        return Arranged((3,), lambda t: t[1])
    return Arranged((*shape[:-1], shape[-1] * 2), lambda t: t[..., ::2])


def _expanded(shape: list[int]) -> Arranged:
    if not shape:
        return Arranged((), lambda t: t)
    return Arranged((1, *shape[1:]), lambda t: t.expand(shape))


def _channels(shape: list[int]) -> Arranged:
    if len(shape) < 3:
        return _transposed(shape)
    return Arranged((shape[0], *shape[2:], shape[1]), lambda t: t.movedim(-1, 1))


LAYOUT: dict[str, Callable[[list[int]], Arranged]] = {
    "plain": lambda shape: Arranged(tuple(shape), lambda t: t),
    "transposed": _transposed,
    "offset": _offset,
    "stepped": _stepped,
    "expanded": _expanded,
    "channels": _channels,
}

# --------------------------------------------------------------------------------------------------
# Lines. {x} is any tensor, {f} a float one, {i} an integer one, {b} a bool one, {y} one that
# broadcasts with the first, {s} one of the same sizes as the first, {n} a number, {d} a dimension
# of the first, {e} another, {p} all of them in some order, {k} a small int, {w} a tensor that may
# be written to.

POINTWISE = """
{x} + {y} | {x} - {n} | {n} - {f} | {x} * {y} | {f} / ({f}.abs() + 0.5) | {x} * {n} | {f} / {n}
torch.add({f}, {y}, alpha=2) | torch.sub({x}, {i}) | torch.tanh({x}) | torch.sigmoid({f})
{f}.exp().clamp(max=50.0) | torch.relu({f}) | F.gelu({f}) | F.silu({f}) | {f}.sin() + {y}
{x}.abs() | -{f} | {x} > {y} | {x} == {y} | {x} <= {n} | torch.where({b}, {x}, {y})
torch.where({x} > 0, {x}, {n}) | {x}.clamp(-1, 2) | torch.maximum({x}, {y})
torch.minimum({f}, {y}) | {f}.to(torch.float64) | {f}.to(torch.bfloat16) | {x}.float()
{f}.nan_to_num().clamp(-9, 9).long() | {x}.bool()
{x}.to({y}.dtype) if not {x}.is_floating_point() else {x} + 0 | {b} & {b}
torch.bitwise_or({b}, {y}.bool()) | ~{b} | {b} ^ {b} | {i} // 3 | {i} % 5 | {i} & 3 | {i} << 2
{i} // ({i}.abs() + 1) | torch.div({i}, 4, rounding_mode='trunc') | {f}.pow(2) | {x} ** 2
{f}.abs().sqrt() | ({f}.abs() + 0.1).log() | ({f}.abs() + 0.5).rsqrt() | {f}.floor() | {f}.round()
{f}.sign() | {f}.frac() | torch.lerp({f}, {s}.to({f}.dtype), 0.3)
torch.addcmul({f}, {s}.to({f}.dtype), {s}.to({f}.dtype), value=0.5) | {f}.erf() | {f}.isnan()
{x}.logical_not() | {f} % 2 | torch.atan2({f}, {y}.to({f}.dtype)) | {x}.square()
F.leaky_relu({f}, 0.1) | F.softplus({f}) | F.elu({f})
{x}.nan_to_num() if {x}.is_floating_point() else {x} | {x} != {y} | {f}.clone()
{x}.masked_fill({b}, {n}) | torch.rsub({f}, 2) | {f}.expm1().clamp(max=50.0) | {f}.cos()
{f}.reciprocal().clamp(-9, 9) | {f}.trunc() | torch.logical_and({x}, {y})
torch.logical_xor({x}, {y}) | F.hardtanh({f}) | F.relu6({f})
torch.copysign({f}, {y}.nan_to_num())
{x} + {y}.sum() | {x} - {n} * {y} | math.sqrt(2.0) * {f} | {f} * {x}.shape[-1]
{f} / max({x}.shape[0], 1) | {x} + True
"""

VIEWS = """
{x}.permute({p}) | {x}.transpose({d}, {e}) | {x}[1:] | {x}[::2] | {x}[-2:] | {x}[..., 1::3]
{x}[:-1] | {x}.select({d}, 0) | {x}.select({d}, -1) | {x}[0] | {x}[..., -1] | {x}.unsqueeze({d})
{x}.unsqueeze(-1) | {x}.squeeze() | {x}.squeeze({d}) | {x}.flatten() | {x}.reshape(-1)
{x}.flatten({d}) | {x}.reshape({x}.shape[0], -1) | {x}.view({x}.shape) | {x}.view(-1)
{x}.contiguous().view(-1, {x}.shape[-1]) | {x}.expand(2, *{x}.shape)
{x}[None].expand(3, *[-1] * {x}.dim()) | {x}.diagonal() | {x}.diagonal(1, {d}, {e})
{x}.unfold({d}, 2, 1) | {x}.unfold({d}, 2, 2) | {x}.split(2, {d})[0] | {x}.split(2, {d})[-1]
{x}.chunk(2, {d})[0] | {x}.chunk(2, {d})[-1] | {x}.unbind({d})[0] | {x}.unbind({d})[-1]
{x}.narrow({d}, 0, 1) | {x}.narrow({d}, -1, 1) | {x}.movedim({d}, {e}) | {x}.mT
{x}.as_strided((2, 2), (1, 1)) | {x}.as_strided((2,), (1,), 1) | {x}.unflatten(-1, (-1, 1))
{x}.unflatten({d}, (1, -1)) | {x}.swapaxes(0, -1) | {x}.T if {x}.dim() == 2 else {x}.mH
{x}.detach() | {x}[...] | {x}.view(torch.int32) if {x}.dtype is torch.float32 else {x}[:]
{x}.view(torch.int64) if {x}.dtype is torch.float64 else {x}[:1]
{x}.view(torch.uint8) if {x}.dtype is torch.bool else {x}[1:2]
{x}.view(torch.int16) if {x}.dtype is torch.bfloat16 else {x}
{x}.view(torch.int32).view(torch.float32) if {x}.dtype is torch.float32 else {x}[:2]
{x}.expand_as({y}) | {x}.broadcast_to((2, *{x}.shape)) | {x}.view_as({s}) | {x}.reshape_as({s})
{x}.ravel() | {x}[:, None] | {x}[{k}:{k}+2] | {x}[..., None, :1] | {x}.tensor_split(2, {d})[0]
{x}.tensor_split(3, {d})[1] | {x}.contiguous() | {x}.real if {x}.is_floating_point() else {x}
{x}.to({x}.dtype) | {x}.reshape(2, -1) | {x}.reshape(-1, 2) | {x}.view(*{x}.shape, 1) | {x}[0:0]
torch.atleast_2d({x}) | {x}[{x}.shape[0] // 2:] | {x}[:{x}.shape[0] - 1]
{x}.narrow({d}, {x}.shape[{d}] // 2, {x}.shape[{d}] - {x}.shape[{d}] // 2)
{x}.flatten(0, -1)[::3] | {x}.t() if {x}.dim() < 3 else {x}[:, 0]
"""

REDUCTIONS = """
{x}.sum() | {x}.sum({d}) | {x}.sum({d}, keepdim=True)
{x}.sum(({d}, {e})) if {d} != {e} else {x}.sum({d}) | {f}.mean() | {f}.mean({d})
{f}.mean(-1, keepdim=True) | {f}.mean(tuple(range({f}.dim())), keepdim=True) | {x}.amax({d})
{x}.amin({d}, keepdim=True) | {x}.max() | {x}.max({d}) [0] | {x}.max({d})[1]
{x}.min({d}, keepdim=True)[0] | {i}.argmax({d}) | {i}.argmin() | {f}.argmax(-1, keepdim=True)
{x}.any({d}) | {x}.all() | {x}.any() | {x}.all({d}, keepdim=True) | {f}.var({d})
{f}.std({d}, keepdim=True) | {f}.var({d}, correction=0) | torch.var_mean({f}, {d})[1] | {f}.norm()
{f}.norm(dim={d}) | {f}.logsumexp({d}) | {f}.tanh().prod({d}) | {b}.sum({d})
{x}.count_nonzero({d}) | {x}.sum(dtype=torch.float64) | {x}.sum({d}, dtype=torch.float32)
{f}.softmax({d}) | {f}.log_softmax({d}) | {f}.softmax(-1, dtype=torch.float64)
F.layer_norm({f}, {f}.shape[-1:]) | F.layer_norm({f}, {f}.shape[-2:]) | F.normalize({f}, dim={d})
{x}.cumsum({d}) | {i}.cumsum(-1) | {f}.tanh().cumprod({d}) | {f}.logcumsumexp({d})
{x}.cummax({d})[0] | {x}.sort({d})[0] | {i}.sort({d}, stable=True)[1]
{x}.sort({d}, descending=True)[0] | {x}.topk(1, {d})[0] | {f}.topk(1)[1] | {f}.median()
{f}.median({d})[0] | {x}.aminmax(dim={d})[1] | {f}.nansum({d}) | {x}.sum([])
{x}.mean(dtype=torch.float32) | {i}.prod() % 7 | {f}.kthvalue(1, {d})[0] | {i}.mode({d})[0]
{f}.cummin({d})[1] | torch.std_mean({f}, {d}, keepdim=True)[0] | F.rms_norm({f}, {f}.shape[-1:])
{x}.argsort(dim={d}, stable=True) | {x}.diff(dim={d}) if {x}.dtype is not torch.bool else {x}
"""

MOVES = """
torch.cat([{x}, {s}], {d}) | torch.cat([{x}, {x}, {s}.to({x}.dtype)], {d})
torch.stack([{x}, {s}]) | torch.stack([{x}, {s}], -1) | F.pad({x}, (1, 2))
F.pad({x}, (0, 1, 2, 0), value=3) | F.pad({x}, (-1, 1)) | {x}.roll(1, {d}) | {x}.roll(-2)
{x}.flip({d}) | {x}.flip(tuple(range({x}.dim())))
{x}.repeat(2, *[1] * ({x}.dim() - 1)) if {x}.dim() else {x}.repeat(3)
{x}.repeat_interleave(2, {d}) | {x}.tile(2) | {x}.tril() | {x}.triu(1)
torch.meshgrid({x}.flatten()[:3], {x}.flatten()[:2], indexing='ij')[0] | {x}.rot90()
torch.hstack([{x}, {x}]) | torch.vstack([{x}, {s}])
{x}.gather({d}, {x}.argsort(dim={d}, stable=True))
{x}.gather({d}, {i}.reshape(-1)[:1].abs().remainder({x}.shape[{d}]).reshape([1] * {x}.dim()))
{x}[{i}.remainder({x}.shape[0])] | {x}[{i}.flatten().remainder({x}.shape[0]), None]
{x}.index_select({d}, {i}.flatten().remainder({x}.shape[{d}])) | {x}[torch.arange({x}.shape[0])]
{x}[..., torch.tensor([0, -1])] | {x}[torch.tensor([0])]
F.embedding({i}.remainder({f}.shape[0]), {f}) if {f}.dim() == 2 else {f} * 1
torch.take({x}, {i}.remainder({x}.numel()))
{x}.take_along_dim({x}.argsort(dim={d}, stable=True), {d}) | {f} @ {f}.mT
torch.matmul({f}, {s}.to({f}.dtype).mT) | {f} @ {f}.flatten()[:{f}.shape[-1]]
F.linear({f}, {f}.reshape(-1, {f}.shape[-1]))
torch.bmm({f}, {f}.mT) if {f}.dim() == 3 else {f} + 1
torch.einsum('...i,...i->...', {f}, {s}.to({f}.dtype))
torch.outer({f}.flatten()[:3], {f}.flatten())
torch.mm({f}, {f}.t()) if {f}.dim() == 2 else {f} - 1 | torch.zeros({x}.shape) + {x}
torch.ones_like({x}) | torch.full_like({x}, 2) | torch.arange({x}.shape[-1]) + {x}
torch.full({x}.shape, {n}) | torch.eye({x}.shape[-1]) | torch.zeros(2, 3) | torch.arange(0, 5, 2)
torch.linspace(0, 1, {x}.shape[-1] + 1) | {x}.new_zeros({x}.shape[:1]) | torch.tensor([1.0, 2.0])
torch.empty({x}.shape).fill_(1.5) | {x}.new_full((2,), 1)
torch.zeros_like({x}, dtype=torch.float64) | torch.tensor(3) | torch.scalar_tensor(2.5)
{x}.scatter({d}, {x}.argsort(dim={d}, stable=True), {x})
{f}.scatter_add({d}, torch.zeros_like({f}, dtype=torch.int64), {f})
{x}.index_fill({d}, torch.tensor([0]), 1)
{x}.index_add({d}, torch.tensor([0]), {x}.narrow({d}, 0, 1)) if {x}.dtype is not torch.bool else {x}
{x}.masked_scatter({x} > 0, {x}.flatten()) if {x}.is_contiguous() else {x}
{f}.index_copy({d}, torch.tensor([0]), {f}.narrow({d}, 0, 1))
torch.select_scatter({x}.clone(), {x}.select({d}, 0), {d}, -1)
torch.slice_scatter({x}.clone(), {x}[:1], 0, 0, 1)
torch.bucketize({f}, torch.tensor([-1.0, 0.0, 1.0]))
F.one_hot({i}.remainder(5), 5) | {x}.index_put((torch.tensor([0, -1]),), {x}[:1])
"""

RANDOM = """
F.dropout({f}, 0.5) | torch.rand_like({f}) | torch.rand({x}.shape)
torch.bernoulli({f}.sigmoid()) | {x}[torch.randperm({x}.shape[0])] | torch.randn_like({f})
torch.randint(0, 5, {x}.shape) | F.dropout({f}, 0.3, training=False)
torch.empty({x}.shape).uniform_(0, 1) | torch.normal(0.0, 1.0, {x}.shape)
F.dropout({f} * 2, 1.0) | torch.randint_like({x}, 3) | torch.rand(3, 1) + {x}.sum()
"""

WRITES = """
{w}.add_({y}) | {w}.mul_({n}) | {w}.copy_({y}) | {w}.fill_({n}) | {w}.zero_() | {w}.sub_(1)
{w}.clamp_(-1, 1) | {w}.masked_fill_({w} > 0, {n}) | {w}.abs_() | {w}.neg_() | {w}.add_({w})
{w}.copy_({w}.flip(0)) | {w}.mul_({w}.sum()) | {w}.div_(2) | {w}.tanh_() | {w}.relu_()
{w}.add_({y}, alpha=2) | {w}[0] = {n} | {w}[..., 0] = {n} | {w}[1:] = {w}[:-1].clone()
{w}[::2] = {y} | {w}[..., -1] += 1 | {w}[-1] = {w}[0] | {w}[:] = {y} | {w}[...] = 3
{w}[{w} > 0] = 0 | {w}[{w} < {n}] = {n} | {w}[torch.tensor([0])] = 2 | {w}[0, ...] *= 2
{w}[None, ..., 0] = {n} | {w}[1:2] = 1 | {w}[0:0] = 5 | {w}.transpose({d}, {e}).add_(1)
{w}.T.mul_(2) if {w}.dim() == 2 else {w}.add_(0) | {w}.view(-1)[1:].fill_(2)
{w}.flatten()[0:1].zero_() | {w}.permute({p}).copy_({w}.permute({p}) * 2) | {w}.diagonal().zero_()
{w}.select({d}, -1)[...] = 7 | {w}.unsqueeze({d}).sub_(1) | {w}.squeeze().add_(1)
{w}.narrow({d}, 0, 1).copy_({w}.narrow({d}, -1, 1)) | {w}.chunk(2, {d})[-1].mul_(2)
{w}.unbind({d})[0].add_(1) | {w}.split(1, {d})[-1].fill_(1) | {w}.unfold({d}, 2, 2).add_(1)
{w}.movedim({d}, {e})[0].zero_() | {w}.as_strided((2,), (1,)).add_(1)
{w}.reshape(-1)[::2].mul_(2) | {w}[1:][0].fill_(4) | {w}[..., 1:][..., ::2].add_(1)
{w}.view({w}.shape).zero_() | {w}.detach().add_(1)
{w}.select({d}, 0).unsqueeze(0).copy_({w}.select({d}, -1))
{w}.unflatten(-1, (-1, 1))[..., 0].add_(1) | {w}.expand({w}.shape).mul_(1)
{w}.view(torch.int32).zero_() if {w}.dtype is torch.float32 else {w}.add_(1)
{w}.T[0].add_(2) if {w}.dim() == 2 else {w}[-1:].add_(1) | {w}.diagonal(0, {d}, {e}).fill_({n})
torch.add({w}, {s}.to({w}.dtype), out={w}) | torch.mul({w}, 2, out={w}) | torch.neg({w}, out={w})
torch.sub({s}.to({w}.dtype), 1, out={w}) | {w}.index_fill_({d}, torch.tensor([0]), 1)
{w}.scatter_({d}, torch.zeros_like({w}, dtype=torch.int64), {w}) if {w}.numel() < 2 else {w}.add_(1)
{w}.index_add_({d}, torch.tensor([0]), {w}.narrow({d}, 0, 1).clone())
{w}.index_copy_({d}, torch.tensor([0]), {w}.narrow({d}, -1, 1).clone())
{w}.lerp_({s}.to({w}.dtype), 0.5) | {w}.addcmul_({s}.to({w}.dtype), {s}.to({w}.dtype))
{w}.bernoulli_(0.5) | {w}.uniform_() | {w}.normal_() | {w}.cumsum_({d}) | {w}.exp_().clamp_(max=9)
{w}.tril_() | {w}.pow_(2) | {w}.floor_() | {w}.logical_not_() | {w} += 1 | {w} *= {n} | {w} -= {y}
{w} //= 2 | {w}.put_(torch.tensor([0]), torch.tensor([1], dtype={w}.dtype))
F.relu({w}, inplace=True) | F.dropout({w}, 0.5, inplace=True)
{w}.index_put_((torch.tensor([0, 0]),), {w}[:1].clone(), accumulate=True) | {w}.sigmoid_()
torch.clamp({w}, 0, 1, out={w}) | {w}.eq_(1) | {w}.random_(0, 5) | {w}.sin_()
"""

RAISES = """
{x}[{x}.shape[0] + 5] | {x}[torch.tensor([99])] | {i} // ({i} * 0) | {i} % torch.zeros_like({i})
{x}.gather(0, torch.full_like({x}, 77, dtype=torch.int64)) | F.embedding(torch.tensor([500]), {f})
{f} @ torch.ones(97, 3) | {x}.view(7, 11, 13) | {x} + torch.ones(91, 93)
{x}.index_select(0, torch.tensor([98])) | torch.div({i}, {i} - {i}, rounding_mode='floor')
{x}.select(0, 96) | torch.bernoulli({f} + 5) | torch.cat([{x}, torch.ones(3, 1, 2, 1, 7)])
torch.take({x}, torch.tensor([9999]))
"""


def _choices(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


KINDS: dict[str, tuple[int, list[str]]] = {
    "pointwise": (8, _choices(POINTWISE)),
    "views": (7, _choices(VIEWS)),
    "reductions": (4, _choices(REDUCTIONS)),
    "moves": (4, _choices(MOVES)),
    "writes": (6, _choices(WRITES)),
    "random": (1, _choices(RANDOM)),
}
RAISING = _choices(RAISES)
# Who fails is run once more by eager PyTorch, and draws other numbers.
DRAWING = ("rand", "dropout", "bernoulli", "uniform", "normal")
NUMBERS = ("0", "1", "2", "-1", "0.5", "-1.5", "3", "True")


@dataclass
class Writer:
    """A function in the making: its lines, and what its variables are now."""

    rng: random.Random
    scope: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of tensors
    numbers: list[str] = field(default_factory=list)
    count: int = 0

    def pick(self, accept: Callable[[torch.Tensor], bool]) -> str | None:
        """A variable, recent ones more likely."""
        fit = [name for name in self.names if accept(self.scope[name])]
        if not fit:
            return None
        return fit[-1] if self.rng.random() < 0.35 else self.rng.choice(fit)

    def number(self) -> str:
        if self.numbers and self.rng.random() < 0.4:
            return self.rng.choice(self.numbers)
        return self.rng.choice(NUMBERS)

    def line(self, kind: str, template: str) -> str | None:
        """The template with variables in it."""
        found: dict[str, Any] = {}
        first: torch.Tensor | None = None
        for letter in ("x", "w", "f", "i", "b", "y", "s"):
            if "{" + letter + "}" in template:
                name = self.pick(_accepts(letter, first))
                if name is None:
                    return None
                found[letter] = name
                first = self.scope[name] if first is None else first
        rank = first.dim() if first is not None else 0
        dims = [*range(-rank, rank)] or [0]
        order = list(range(rank))
        self.rng.shuffle(order)
        found |= {"n": self.number(), "d": self.rng.choice(dims), "e": self.rng.choice(dims)}
        found |= {"k": self.rng.randint(0, 2), "p": ", ".join(map(str, order)) or "[]"}
        text = template.format(**found)
        if kind == "writes":
            return text
        self.count += 1
        return f"v{self.count} = {text}"

    def step(self, kind: str, template: str) -> bool:
        text = self.line(kind, template)
        if text is None:
            return False
        name = text.split(" = ")[0] if kind != "writes" else None
        kept = {n: self.scope[n].clone() for n in self.names} if kind == "writes" else {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.scope)
        except Exception:
            for n, value in kept.items():
                if not _wild(value) and _overlaps_not(self.scope[n]):
                    self.scope[n].copy_(value)
            return False
        made = self.scope[name] if name else None
        if name and not isinstance(made, torch.Tensor):
            return False
        if made is not None and (made.numel() > 200_000 or made.dim() > 5 or _wild(made)):
            return False
        self.lines.append(text)
        if name:
            self.names.append(name)
        return True


def _overlaps_not(t: torch.Tensor) -> bool:
    return not any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride()))


def _wild(t: torch.Tensor) -> bool:
    return bool(t.is_floating_point() and t.numel() and (t.abs() > LARGEST).any())


def _accepts(letter: str, first: torch.Tensor | None) -> Callable[[torch.Tensor], bool]:
    def broadcasts(t: torch.Tensor) -> bool:
        if first is None:
            return True
        return all(m == n or 1 in (m, n) for m, n in zip(t.shape[::-1], first.shape[::-1]))

    return {
        "x": lambda t: True,
        "w": lambda t: True,
        "f": lambda t: t.is_floating_point(),
        "i": lambda t: t.dtype is torch.int64,
        "b": lambda t: t.dtype is torch.bool and broadcasts(t),
        "y": broadcasts,
        "s": lambda t: first is None or t.shape == first.shape,
    }[letter]


def make_case(seed: int) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    large = rng.random() < 0.06
    sizes = _sizes(rng, large)
    givens = _givens(rng)
    scope: dict[str, Any] = dict(SCOPE)
    torch.manual_seed(seed)
    values = make_arguments(givens, sizes[0], seed * 10)
    writer = Writer(rng, scope)
    for given, value in zip(givens, values):
        scope[given.name] = value
        (writer.names if isinstance(value, torch.Tensor) else writer.numbers).append(given.name)
    with torch.no_grad():
        _write_lines(writer, rng.choice([3, 4, 5, 6, 8, 10, 14, 18, 25]))
        if rng.random() < 0.04 and not any(word in str(writer.lines) for word in DRAWING):
            _raise_somewhere(writer)
    names = ", ".join(given.name for given in givens)
    body = "\n    ".join([*writer.lines, f"return {_returned(writer)}"])
    source = f"def f({names}):\n    {body}\n"
    mode = rng.choice(["grad", "grad", "no_grad", "inference"])
    if any(given.parameter for given in givens):
        mode = "no_grad"
    return Case(
        *(seed, source, givens, sizes, mode),
        dynamic=rng.choice([None, None, True, True, False]),
        threads=2 if large else rng.choice([1, 1, 1, 2]),
    )


SCOPE: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": __import__("math")}


def _sizes(rng: random.Random, large: bool) -> list[dict[str, int]]:
    usual = [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17]
    first = {letter: rng.choice(usual) for letter in "ABC"}
    if rng.random() < 0.08:
        first[rng.choice("ABC")] = rng.choice([0, 1])
    if large:
        first |= {"A": rng.choice([64, 127, 200]), "B": rng.choice([100, 131, 256])}
    others = [first]
    for _ in range(rng.choice([0, 2, 4])):
        changed = dict(first)
        for letter in rng.sample("ABC", rng.randint(1, 3)):
            changed[letter] = rng.choice([0, 1, 2, 3, 6, 9, 12, 19, 33])
        others.append(changed)
    return others


def _givens(rng: random.Random) -> list[Given]:
    found: list[Given] = []
    parameters = rng.random() < 0.15
    for name in "abcd"[: rng.randint(1, 4)]:
        tensors = [i for i, g in enumerate(found) if g.number is None]
        kind = rng.random()
        if tensors and kind < 0.05:
            found.append(Given(name, same_as=rng.choice(tensors)))
            continue
        if tensors and kind < 0.1:
            found.append(Given(name, part_of=rng.choice(tensors)))
            continue
        dims = rng.choice(
            [(), ("A",), ("B",), ("A", "B"), ("A", "B"), ("A", "B"), ("B", "C"), ("A", 1)]
            + [("A", "B", "C"), ("B", "C", "A"), (1, "B", "C"), ("A", "A"), ("A", 2, "B", "C")]
            + [(3, "B"), ("A", "B", 4), (2, 3)]
        )
        dtype = rng.choice(DTYPES) if found else rng.choice(FLOATS)
        special, parameter = rng.random() < 0.05, parameters and rng.random() < 0.6
        found.append(
            Given(name, dims, dtype, rng.choice(LAYOUTS), special=special, parameter=parameter)
        )
    for name in "nm":
        if rng.random() < 0.25:
            found.append(Given(name, number=rng.choice([1, 2, 3, -2, 0, 0.5, 1.25, True, False])))
    return found


def _write_lines(writer: Writer, count: int) -> None:
    rng = writer.rng
    kinds = [kind for kind, (weight, _) in KINDS.items() for _ in range(weight)]
    tries = 0
    while len(writer.lines) < count and tries < count * 6:
        tries += 1
        kind = rng.choice(kinds)
        writer.step(kind, rng.choice(KINDS[kind][1]))


def _raise_somewhere(writer: Writer) -> None:
    """A line that fails, in some place, after what it needs."""
    text = writer.line("raises", writer.rng.choice(RAISING))
    if text is not None:
        writer.lines.append(text)
        writer.names.append(text.split(" = ")[0])  # what nobody uses may not be computed


def _returned(writer: Writer) -> str:
    rng = writer.rng
    made = [n for n in writer.names if n.startswith("v")]
    chosen = rng.sample(writer.names, min(len(writer.names), rng.randint(1, 4)))
    chosen += [name for name in writer.names if name not in writer.scope]
    if made and made[-1] not in chosen:
        chosen.append(made[-1])
    if rng.random() < 0.15:
        chosen.append(rng.choice(chosen))  # twice
    if rng.random() < 0.15:
        chosen.append(f"{rng.choice(writer.names)}.shape")
    if rng.random() < 0.1 and writer.numbers:
        chosen.append(f"{rng.choice(writer.numbers)} * 2")
    if rng.random() < 0.1:
        name = rng.choice(writer.names)
        chosen.append(f"{name}.numel() + {name}.dim()")
    return ", ".join(chosen) + ("," if len(chosen) == 1 else "")
