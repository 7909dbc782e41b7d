"""Layouts of results, against eager PyTorch, for random sizes and strides: 0 and 1 among the sizes,
and dimensions of size 1 with any stride."""

import random

import pytest
import torch

from pliant.fake import World, numbers

MEMORY = torch.zeros(20_000)
PLACES = torch.zeros(20_000, dtype=torch.int64)


def random_layout(rng: random.Random, rank: int) -> numbers.Layout:
    sizes = tuple([rng.choice([0, 1, 1, 2, 3, 3]) for _ in range(rank)])
    if rng.random() < 0.4:
        return sizes, tuple([rng.choice([0, 1, 2, 3, 4, 6, 8, 12]) for _ in range(rank)])
    strides, step = [0] * rank, rng.choice([1, 1, 2])
    for dim in rng.sample(range(rank), rank):
        strides[dim] = step
        step *= max(sizes[dim], 1) * rng.choice([1, 1, 1, 2])
    return sizes, tuple(
        rng.choice([0, 1, 2, 7, 12]) if size == 1 and rng.random() < 0.4 else stride
        for size, stride in zip(sizes, strides)
    )


def narrowed(rng: random.Random, layout: numbers.Layout) -> numbers.Layout:
    """Another operand, which can be broadcast together with it."""
    sizes = tuple([n if rng.random() < 0.7 else 1 for n in layout[0]])
    strides = layout[1] if rng.random() < 0.4 else random_layout(rng, len(sizes))[1]
    cut = rng.choice([0, 0, 1])
    return sizes[cut:], strides[cut:]


@pytest.mark.parametrize("seed", range(4))
def test_copies_and_pointwise_operations(seed):
    rng = random.Random(seed)
    for _ in range(1500):
        layout = random_layout(rng, rng.randint(0, 5))
        x = MEMORY.as_strided(*layout)
        assert numbers.like(layout) == torch.empty_like(x).stride() == x.clone().stride(), layout
        assert numbers.pointwise([layout], layout[0]) == x.neg().stride(), layout
        assert numbers.pointwise([layout], layout[0], not layout[0]) == (x * 2).stride(), layout
        other = narrowed(rng, layout)
        made = x * MEMORY.as_strided(*other)
        assert numbers.pointwise([layout, other], layout[0]) == made.stride(), (layout, other)


@pytest.mark.parametrize("seed", range(4))
def test_views(seed):
    rng = random.Random(seed)
    for _ in range(2000):
        layout = random_layout(rng, rng.randint(0, 4))
        shape = [n for size in layout[0] for n in ([1, size] if rng.random() < 0.3 else [size])]
        shape += [1] * rng.randint(0, 1)
        if rng.random() < 0.5 and len(shape) > 1:
            at = rng.randrange(len(shape) - 1)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        try:
            expected = MEMORY.as_strided(*layout).view(shape).stride()
        except RuntimeError:
            expected = None
        assert numbers.viewed(layout, shape) == expected, (layout, shape)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_taken_by_indices(seed):
    rng, world = random.Random(seed), World()
    for _ in range(250):
        rank, layout = rng.randint(1, 4), random_layout(rng, rng.randint(0, 3))
        x = MEMORY.as_strided(*random_layout(rng, rank))
        indices: list = [None] * rank
        for dim in rng.sample(range(rank), rng.randint(1, rank)):
            indices[dim] = PLACES.as_strided(*narrowed(rng, layout))
        try:
            expected = torch.ops.aten.index.Tensor(x, indices)
        except (RuntimeError, IndexError):
            continue
        fakes = [i if i is None else world.from_real(i) for i in indices]
        found = world.run(torch.ops.aten.index.Tensor, (world.from_real(x), fakes)).value
        if expected.numel():
            assert found.stride() == expected.stride()
