"""Activations that a matrix product computes. Here the CPU computes them."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.backends import compile_graph, training
from pliant.graph import epilogues

X = torch.randn(2, 5, 16).bfloat16()
W, B = torch.randn(8, 16).bfloat16(), torch.randn(8).bfloat16()


@pytest.fixture
def fused(monkeypatch):
    """As on a GPU; whether each product that was fused computes `gelu`."""
    seen, original = [], epilogues._fused

    def note(last, product, factors, use_gelu):
        seen.append(use_gelu)
        return original(last, product, factors, use_gelu)

    def on_gpu(simplify, function, target, hint):
        simplify(function, target, hint)
        epilogues.fuse_activations(function)

    for module in (training, compile_graph):
        monkeypatch.setattr(module, "simplify", partial(on_gpu, module.simplify))
    monkeypatch.setattr(epilogues, "_fused", note)
    return seen


def new_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def fast_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x)))


ACTIVATIONS = {
    "relu": (F.relu, False),
    "relu_": (F.relu_, False),
    "relu of a view": (lambda x: F.relu(x.flatten()), False),
    "gelu": (partial(F.gelu, approximate="tanh"), True),
    "new gelu": (new_gelu, True),
    "fast gelu": (fast_gelu, True),
}
PRODUCTS = {
    "linear": lambda x: F.linear(x, W, B),
    "linear of rows": lambda x: F.linear(x[0], W, B),
    "addmm": lambda x: torch.addmm(B, x.view(-1, 16), W.t()).view(2, 5, 8),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, product, dynamic, fused):
    activation, use_gelu = ACTIVATIONS[name]

    def program(x):
        return activation(PRODUCTS[product](x)) * 2

    actual = pliant.compile(program, backend="llvm", dynamic=dynamic, fullgraph=True)(X)
    expected = program(X)
    # PyTorch's CPU computes the exact gelu here, which differs by up to 0.0005.
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
    assert actual.stride() == expected.stride()
    assert fused == [use_gelu]


def test_what_is_returned(fused):
    compiled = pliant.compile(lambda x: F.relu(F.linear(x, W, B)), backend="llvm")
    result = compiled(X)
    torch.testing.assert_close(result, F.relu(F.linear(X, W, B)))
    assert fused == [False] and result.untyped_storage().nbytes() == result.nbytes


OTHERS = {
    "exact gelu": lambda x: F.gelu(F.linear(x, W, B)),
    "silu": lambda x: F.silu(F.linear(x, W, B)),
    "half of it": lambda x: F.linear(x, W, B) * 0.5,
    "quick gelu": lambda x: (y := F.linear(x, W, B)) * torch.sigmoid(1.702 * y),
    "another constant": lambda x: (
        (y := F.linear(x, W, B)) * 0.5 * (1.0 + torch.tanh(0.79 * (y + 0.044715 * y**3)))
    ),
    "no bias": lambda x: F.relu(F.linear(x, W)),
    "read again": lambda x: F.relu(y := F.linear(x, W, B)) + y,
    "returned, too": lambda x: (F.relu(y := F.linear(x, W, B)), y),
    "with another tensor": lambda x: F.relu(F.linear(x, W, B) + x[..., :8]),
    "in float32": lambda x: F.relu(F.linear(x.float(), W.float(), B.float())),
    "cast on the way": lambda x: F.relu(F.linear(x, W, B).float()),
    "a part": lambda x: F.relu(y := F.linear(x, W, B)).sum() + y[0].sum(),
    "nothing": lambda x: F.linear(x, W, B),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name, fused):
    program = OTHERS[name]
    actual = pliant.compile(program, backend="llvm", fullgraph=True)(X)
    torch.testing.assert_close(actual, program(X), rtol=2e-2, atol=2e-2)
    assert not fused


def test_a_backward_needs_what_is_before_the_activation(fused):
    model = nn.Sequential(nn.Linear(16, 8), nn.GELU(approximate="tanh")).bfloat16()
    gradients = []
    for call in (model, pliant.compile(model, backend="llvm")):
        x = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(call(x).float().pow(2).sum(), x))
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)
    assert not fused
