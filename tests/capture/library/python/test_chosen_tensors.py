"""`max` and `min` of tensors whose numbers are in the data."""

import functools
import itertools

import pytest
import torch

from tests.support.against_eager import check

NAN = float("nan")
PAIRS = [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (NAN, 1.0), (1.0, NAN), (0.0, -0.0)]


def two(a, b):
    return max(a.sum(), b.sum()), min(a.sum(), b.sum())


def mapped(a, b):
    return max(map(lambda x: x.sum(), [a, b]))


def generated(a, b):
    return min(x.mean() for x in (a, b, a + b))


def of_one_dimension(a, b):
    return max([a.sum(0, keepdim=True), b.sum(0, keepdim=True)]) * 2


def then_written(a, b):
    best = max(a.sum(), b.sum())
    best += 1
    return best, a


@pytest.mark.parametrize("program", [two, mapped, generated, of_one_dimension, then_written])
@pytest.mark.parametrize("numbers", PAIRS)
def test_one_graph(program, numbers):
    check(program, *[torch.tensor([n]) for n in numbers], graphs=1)


def kept_and_written(a, b):
    sums = [a.sum(), b.sum()]
    best = max(sums)
    best += 1
    return sums, best


def kept_in_a_view(a, b):
    one, other = a.sum(), b.sum()
    view = one.view(1)
    one = None
    return max(view[0], other).add_(1), view


def is_one(a, b):
    one, other = a.sum(), b.sum()
    return max(one, other) is one, a + 1


def of_inputs(a, b):
    return max(a, b).add_(1), a, b


def kept_by_accumulate(a, b):
    return [t.add_(1) for t in itertools.accumulate([a.sum(), b.sum()], max)]


def reduced(a, b):
    sums = [a.sum(), b.sum()]
    return functools.reduce(min, sums).add_(1), sums


def with_key(a, b):
    return max(a.sum(), b.sum(), key=lambda t: -t)


def of_more(a, b):
    return max(torch.stack([a, b]), torch.stack([b, a]))


OTHERS = [kept_and_written, kept_in_a_view, is_one, of_inputs, kept_by_accumulate, reduced]
OTHERS += [with_key, of_more]


@pytest.mark.parametrize("program", OTHERS)
@pytest.mark.parametrize("numbers", PAIRS[:2])
def test_others_are_left_to_python(program, numbers):
    check(program, *[torch.tensor([n]) for n in numbers], breaks=None)


def test_with_gradients():
    def f(a, b):
        max(a.sum(), b.sum()).backward()
        return a.grad, b.grad

    tensors = [torch.tensor([n], requires_grad=True) for n in (1.0, 2.0)]
    check(f, *tensors, breaks=None)
