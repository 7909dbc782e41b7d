"""Joining, padding, turning and repeating against eager: moves of elements, so bit for bit."""

import pytest
import torch

from pliant.ops.lowering import NotLowered
from tests.ops.harness import run_op
from tests.ops.moving import DTYPES, WIDTHS, same, some, spaced

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, -1])
def test_cat(dtype, dim):
    sizes = [[3, 5, 7], [3, 5, 7], [3, 5, 7]]
    for piece, length in zip(sizes, (1, 17, 4)):
        piece[dim] = length
    same(aten.cat.default, [some(*size, dtype=dtype) for size in sizes], dim)


def test_cat_promotes_skips_and_takes_empty_pieces():
    same(aten.cat.default, [some(3, dtype=torch.int64), some(4), some(9, dtype=torch.bool)])
    same(aten.cat.default, [some(0), some(3, 4), some(0, 4), some(2, 4)])
    same(aten.cat.default, [some(0, 4), some(0, 4)])
    same(aten.cat.default, [some(9, 3).t(), some(3, 8)[:, ::2]], 1)


def test_many_pieces_are_left_to_pytorch():
    with pytest.raises(NotLowered):
        run_op(aten.cat.default, [some(2)] * 50)


@pytest.mark.parametrize("dim", [0, 1, -2])
def test_stack(dim):
    same(aten.stack.default, [some(3, 5), some(5, 3).t(), some(3, 5)], dim)
    same(aten.stack.default, [some(3, 5)] * 2, dim)
    same(aten.stack.default, [some(3, 5), some(3, 5).bool()], dim)


@pytest.mark.parametrize("many", [3, 50])
def test_short_rows(many):
    same(aten.stack.default, [some(many), some(many) * 2], -1)
    same(aten.cat.default, [some(many, 1), some(many, 2)], -1)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("pad", [[1, 2], [0, 3, 2, 0], [-1, 2, 3, -2], [1, 1, 0, 0, 2, 2], [0, 0]])
def test_constant_pad(dtype, pad):
    same(aten.constant_pad_nd.default, some(3, 5, 7, dtype=dtype), pad, 1)
    same(aten.constant_pad_nd.default, some(7, 5, 3, dtype=dtype).permute(2, 1, 0), pad)


def test_constant_pad_of_nothing_and_with_odd_values():
    same(aten.constant_pad_nd.default, some(0, 3), [1, 1, 2, 0], 2.5)
    same(aten.constant_pad_nd.default, some(3), [1, 1], float("-inf"))
    same(aten.constant_pad_nd.default, some(3, dtype=torch.int32), [1, 1], 2.9)
    with pytest.raises((NotLowered, RuntimeError)):
        run_op(aten.constant_pad_nd.default, some(3, dtype=torch.uint8), [1, 1], 300)


@pytest.mark.parametrize("name", ["reflection", "replication"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_other_pads(name, n):
    rule = getattr(aten, f"{name}_pad{n}d").default
    x = spaced(2, 3, *[5, 4, 7][:n])
    for pad in ([1, 2] * n, [3, 0] * n, [-1, 2] * n, [0, 0] * n):
        same(rule, x, pad, symbolic=False)
        same(rule, x.transpose(0, 1), pad, symbolic=False)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode):
    same(aten.pad.default, spaced(2, 3, 5, 7), [2, 1, 3, 0], mode, symbolic=False)
    same(
        aten.pad.default, spaced(2, 3, 5), [5 if mode == "circular" else 4, 1], mode, symbolic=False
    )


def test_padding_that_may_be_too_wide_is_left_to_pytorch():
    with pytest.raises(NotLowered):
        run_op(aten.reflection_pad1d.default, some(2, 5), [3, 3], symbolic=True)


@pytest.mark.parametrize("dims", [[0], [2], [0, 2], [-1, -2], []])
def test_flip(dims):
    same(aten.flip.default, spaced(3, 5, 17), dims)


@pytest.mark.parametrize("k", [-1, 0, 1, 2, 3])
def test_rot90(k):
    same(aten.rot90.default, some(3, 5, 7), k, [0, 2])
    same(aten.rot90.default, some(3, 5, 7), k, [2, 1])


@pytest.mark.parametrize("dtype", WIDTHS)
def test_roll(dtype):
    x = some(3, 5, 17, dtype=dtype)
    for shifts, dims in [([1], [0]), ([3], [2]), ([-4], [-1]), ([20], [2]), ([2, -1], [1, 2])]:
        same(aten.roll.default, x, shifts, dims)
    same(aten.roll.default, x, [1, 2, 3], [2, 0, 2])
    same(aten.roll.default, some(0, 3), [1], [0])


@pytest.mark.parametrize("repeats", [[2, 1, 3], [1, 1, 1], [2, 3, 1, 4], [0, 1, 2]])
def test_repeat(repeats):
    same(aten.repeat.default, spaced(3, 1, 5), repeats, symbolic=False)
    same(aten.repeat.default, some(3, 5, 1), repeats)
    same(aten.tile.default, some(3, 5, 1), repeats[-2:])


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_repeat_interleave(dim):
    same(aten.repeat_interleave.self_int, some(3, 5, 7), 3, dim, symbolic=False)
    same(aten.repeat_interleave.self_int, some(7, 5).t(), 1, dim, symbolic=False)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("diagonal", [0, 2, -20])
def test_triangles(dtype, diagonal):
    for shape in [(5, 17), (17, 5), (2, 3, 3), (0, 3)]:
        same(aten.tril.default, some(*shape, dtype=dtype), diagonal)
        same(aten.triu.default, some(*shape, dtype=dtype), diagonal)


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_diag_embed(offset):
    same(aten.diag_embed.default, some(3, 5), offset)
    same(aten.diag_embed.default, some(3, 5), offset, 0, 2)
    same(aten.diag_embed.default, some(3, 5), offset, 2, 1)


def test_shuffles():
    same(aten.pixel_shuffle.default, some(2, 18, 3, 5), 3, symbolic=False)
    same(aten.pixel_unshuffle.default, some(2, 2, 9, 6), 3, symbolic=False)
    same(aten.channel_shuffle.default, some(2, 6, 3, 5), 3, symbolic=False)
