"""Distributions, comparisons of whole tensors, tensors of tensors, old constructors."""

import pytest
import torch
import torch.distributions as D

from tests.support.against_eager import check

X = torch.tensor([[0.5, 1.5], [2.0, 0.25]])


@pytest.fixture(autouse=True)
def validation():
    """PyTorch's compiler turns it off when it is imported."""
    before = D.Distribution._validate_args
    D.Distribution.set_default_validate_args(True)
    yield
    D.Distribution.set_default_validate_args(before)


def normal(a):
    d = D.Normal(a, a)
    z = d.rsample()
    return z, d.log_prob(z), d.entropy(), d.cdf(z), d.sample((3,)), d.mean


def categorical(a):
    d = D.Categorical(logits=a)
    s = d.sample()
    return s, d.log_prob(s), d.entropy(), d.probs


def several(a):
    return (
        D.Bernoulli(logits=a).sample(),
        D.Uniform(torch.zeros(2), torch.ones(2)).rsample(),
        D.Exponential(a).rsample(),
        D.Gamma(a, 1.0).log_prob(a),
        D.OneHotCategorical(logits=a).sample(),
        D.Independent(D.Normal(a, 1.0), 1).log_prob(a),
        D.kl_divergence(D.Normal(a, 1.0), D.Normal(0.0, a)),
    )


@pytest.mark.parametrize("function", [normal, categorical, several])
def test_distributions(function):
    check(function, X)
    check(function, X, dynamic=True)


def test_wrong_parameters_raise_what_eager_raises():
    check(lambda a: D.Normal(a, -a).sample(), X)
    check(lambda a: D.Normal(a, a).log_prob(torch.full((2, 2), torch.nan)) + torch.rand(2), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.allclose(x, x + 1e-9), x.allclose(x + 1)),
        lambda x: (torch.equal(x, x + 0), x.equal(x + 1), torch.equal(x, x[0])),
        lambda x: torch.tensor([x.sum(), 1.0]) + torch.tensor([[x[0, 0], 2], [x[1, 1], 3]]).sum(),
        lambda x: torch.tensor([1, 2.5]) + x,
        lambda x: (torch.Tensor([1, 2]), torch.LongTensor([1]), torch.FloatTensor(), x.new([3, 4])),
        lambda x: (torch.Tensor(2, 0), torch.IntTensor(0), x.new(2, 0).shape, x.new(x[:0].size())),
    ],
)
def test_values(function):
    check(function, X)
