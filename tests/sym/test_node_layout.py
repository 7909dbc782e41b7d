"""Conditions on layouts: for every size and stride they say what eager PyTorch says."""

import itertools
import random

import pytest
import torch

from pliant.sym import node_layout
from pliant.sym.cond import FALSE, TRUE
from pliant.sym.expr import ONE, evaluate, maximum, product_of, symbol
from pliant.sym.node_layout import is_contiguous, is_non_overlapping_and_dense

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def like_format(tensor):
    return torch.ops.aten.is_strides_like_format(tensor, CHANNELS_LAST[tensor.dim()])


def in_format(tensor):
    return tensor.is_contiguous(memory_format=CHANNELS_LAST[tensor.dim()])


QUESTIONS = [
    ("is_contiguous", (1, 2, 3, 4), torch.Tensor.is_contiguous),
    ("is_channels_last_contiguous_2d", (4,), in_format),
    ("is_channels_last_contiguous_3d", (5,), in_format),
    ("is_channels_last_strides_2d", (4,), like_format),
    ("is_channels_last_strides_3d", (5,), like_format),
    (
        "is_non_overlapping_and_dense",
        (1, 2, 3, 4),
        torch.ops.aten.is_non_overlapping_and_dense.default,
    ),
]


def layouts(dims, count=600):
    """Random sizes, with strides that are often packed in some order."""
    choose = random.Random(dims)
    for _ in range(count):
        sizes = [choose.choice((0, 1, 1, 2, 2, 3)) for _ in range(dims)]
        order, strides, step = list(range(dims)), [0] * dims, 1
        choose.shuffle(order)
        order = choose.choice((order, [dims - 1 - d for d in range(dims)], [1, *order[2:], 0]))
        for d in order[:dims] if dims > 1 else [0]:
            strides[d] = step
            step *= choose.choice((sizes[d], max(sizes[d], 1)))
        if choose.random() < 0.4:
            strides[choose.randrange(dims)] = choose.randrange(5)
        yield tuple(sizes), tuple(strides)


@pytest.mark.parametrize(("name", "ranks", "eager"), QUESTIONS, ids=[q[0] for q in QUESTIONS])
def test_as_eager_for_all_sizes_and_strides(name, ranks, eager):
    for rank in ranks:
        sizes = tuple(symbol(f"size{d}") for d in range(rank))
        strides = tuple(symbol(f"stride{d}") for d in range(rank))
        cond = getattr(node_layout, name)(sizes, strides)
        answers = set()
        for size_values, stride_values in layouts(rank):
            values = dict(zip(sizes + strides, size_values + stride_values))
            expected = eager(torch.empty_strided(size_values, stride_values, device="meta"))
            assert evaluate(cond, values) == expected, f"{size_values}, {stride_values}"
            answers.add(expected)
        assert answers == {True, False}


def row_major(sizes, at_least=lambda size: size):
    return tuple(product_of(map(at_least, sizes[d + 1 :])) for d in range(len(sizes)))


def test_row_major_strides_need_no_question():
    sizes = (symbol("s0"), symbol("s1"), symbol("s2"))
    for strides in (row_major(sizes), row_major(sizes, lambda size: maximum(size, 1))):
        assert is_contiguous(sizes, strides) is TRUE
        assert is_non_overlapping_and_dense(sizes, strides) is TRUE
        assert node_layout.is_row_major(sizes, strides) is TRUE
        assert node_layout.broadcast_row_major(sizes, strides)


def test_s_and_max_s_1_may_be_mixed():
    s0, s1, s2 = sizes = (symbol("s0"), symbol("s1"), symbol("s2"))
    assert is_contiguous(sizes, (s1 * maximum(s2, 1), s2, ONE)) is TRUE
    assert is_contiguous(sizes, (maximum(s1, 1) * s2, maximum(s2, 1), ONE)) is TRUE


def test_a_permutation_is_dense_but_contiguous_only_for_some_sizes():
    s0, s1 = symbol("s0"), symbol("s1")
    cond = is_contiguous((s1, s0), (ONE, s1))
    for a, b in itertools.product(range(4), range(4)):
        assert evaluate(cond, {s0: a, s1: b}) == (a < 2 or b < 2)
    assert is_non_overlapping_and_dense((s1, s0), (ONE, s1)) is TRUE


def test_of_another_rank_it_is_not_channels_last():
    s0 = symbol("s0")
    for name in ("is_channels_last_contiguous_2d", "is_channels_last_strides_3d"):
        assert getattr(node_layout, name)((s0, s0), (s0, ONE)) is FALSE


def test_in_one_order_of_the_dimensions():
    s0, s1 = symbol("s0"), symbol("s1")
    assert node_layout.is_dense_in_order((s1, s0), (ONE, s1), (0, 1)) is TRUE
    assert node_layout.is_dense_in_order((s1, s0), (ONE, s1), (1, 0)) is not TRUE
