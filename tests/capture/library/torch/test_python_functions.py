"""PyTorch functions that are Python code and have to be followed; dimensions that are wrong;
operators without a meta kernel."""

from __future__ import annotations

import collections.abc
import functools
import typing

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from tests.support.against_eager import check

T = typing.TypeVar("T")
X = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)


# ---- annotations inside, and trees


def annotated(x):
    def twice(f: collections.abc.Callable[[T], T]) -> list[T]:
        return [f(x), f(f(x))]

    return twice(torch.sin)


def tree_of_tensors(x):
    tree = {"a": x, "b": [x + 1, (2, "c")]}
    return pytree.tree_map_only(torch.Tensor, lambda t: t * 2, tree)


# ---- functions of torch.nn.functional that are Python code


def gaussian(x):
    return F.gaussian_nll_loss(x, x + 1, x.abs() + 0.1)


def gaussian_refused(x):
    return F.gaussian_nll_loss(x, x + 1, x)


def triplet(x):
    distance = functools.partial(F.pairwise_distance, p=1)
    return F.triplet_margin_with_distance_loss(x, x + 1, x - 2, distance_function=distance)


def triplet_module(x):
    return nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance())(x, x + 1, -x)


# ---- sizes


def new_of_sizes(x):
    made = (x.new(torch.Size([])), x.new(x.shape), x.new(2, 3), x.new(torch.Size([3, 0])))
    return [t.shape for t in made], x.new([1.0, 2.0]), x.new((3, 4))


# ---- operators without a meta kernel


def quantized(x):
    scale, zero = torch.full((4,), 0.1), torch.zeros(4, dtype=torch.int32)
    return (
        torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7),
        torch.fake_quantize_per_channel_affine(x, scale, zero, 1, -8, 7),
    )


def drawn(x):
    return (
        torch.distributions.Dirichlet(x.abs() + 1).sample(),
        torch.distributions.Binomial(5, x.sigmoid()).sample(),
        torch.distributions.Pareto(1.0, 1.0).sample(),
    )


@pytest.mark.parametrize(
    "function",
    [annotated, tree_of_tensors, gaussian, triplet, triplet_module, new_of_sizes, quantized, drawn],
)
def test_one_graph(function):
    check(function, X, compilations=1)


def test_loss_that_refuses_its_argument():
    check(gaussian_refused, X, breaks=None)


def test_gradient_of_quantized():
    check(quantized, X.clone().requires_grad_())


# ---- wrong dimensions


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dim", [2, -3])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, dim: x.softmax(dim),
        lambda x, dim: x.squeeze(dim),
        lambda x, dim: x.unbind(dim),
        lambda x, dim: x.split(2, dim),
        lambda x, dim: x.transpose(0, dim),
        lambda x, dim: x.permute(0, dim),
        lambda x, dim: x.unfold(dim, 1, 1),
        lambda x, dim: x.permute(0),
        lambda x, dim: x.permute(0, 0),
    ],
)
def test_wrong_dimension(function, dim, dynamic):
    check(function, X, dim, breaks=None, dynamic=dynamic)


@pytest.mark.parametrize("cls", [bool, int, float, complex])
def test_classes_of_python_as_dtypes(cls):
    def function(x):
        return (
            x.to(cls),
            x.to(device="cpu", dtype=cls),
            torch.zeros(2, dtype=cls),
            torch.tensor([1, 0], dtype=cls),
            x.new_ones(2, dtype=cls),
            torch.full((2,), True, dtype=cls),
            x.sum(dtype=cls),
        )

    check(function, torch.ones(2))


def test_class_that_a_method_does_not_take():
    check(lambda x: x.type(bool), torch.ones(2), breaks=1)


def test_old_classes_of_tensors_as_types():
    def program(x):
        kinds = torch.HalfTensor, torch.LongTensor, torch.FloatTensor
        return [x.type(kind) for kind in kinds], x.type(dtype=torch.BoolTensor), x.type()

    check(program, torch.arange(3.0))
