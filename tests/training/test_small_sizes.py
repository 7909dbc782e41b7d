"""Sizes of 0 and 1, which gradient formulas treat apart: compiled once more, as eager has them."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.training.gradients_of import compare, outcome


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.project(x).view(batch, length, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).reshape(batch, length, 8)


class Mixed(nn.Module):
    """Broadcasting, reductions and views, all of them returned."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x):
        y = (x + self.weight) * x.mean(0)
        return y.softmax(-1), y.sum(0), y[:, 0], y.T, x.view(-1), y.sum()


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)

    def forward(self, x):
        logits = self.linear(x)
        return F.cross_entropy(logits, logits.detach().argmax(-1)), logits


NETS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8)), (4,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        (3, 8, 8),
    ),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (3, 6, 6)),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), (3, 6, 6)),
    "attention": (Attention, (5, 8)),
    "mixed": (Mixed, (4,)),
    "loss": (Classifier, (4,)),
}


def follow(name, batches):
    make, sizes = NETS[name]
    model = make()
    ours = copy.deepcopy(model)
    compiled = pliant.compile(ours, backend="llvm", dynamic=True)
    for batch in batches:
        model.zero_grad()
        ours.zero_grad()
        x = torch.randn(batch, *sizes, requires_grad=True)
        compare(outcome(compiled, [x], ours), outcome(model, [x], model), rtol=1e-4, atol=1e-5)
    return compiled, sizes


def is_compiled(compiled, batch, sizes) -> bool:
    result = compiled(torch.randn(batch, *sizes, requires_grad=True))
    function = (result[0] if isinstance(result, tuple) else result).grad_fn
    waiting = [function]
    while waiting:
        function = waiting.pop()
        if function is not None and function.name() == "PliantBackward":
            return True
        waiting += [] if function is None else [after for after, _ in function.next_functions]
    return False


@pytest.mark.parametrize("name", NETS)
def test_one(name) -> None:
    compiled, sizes = follow(name, [4, 1, 6, 1, 1])
    assert is_compiled(compiled, 1, sizes)
    assert events.counters["compilations"] == 1
    assert events.counters["not_generated"] == 0


@pytest.mark.parametrize("name", [name for name in NETS if name != "batch norm"])
def test_none(name) -> None:
    compiled, sizes = follow(name, [4, 0, 6, 1, 0])
    assert events.counters["compilations"] == 1


def test_one_first() -> None:
    compiled, sizes = follow("mixed", [1, 4, 1, 5])
    assert is_compiled(compiled, 1, sizes) and is_compiled(compiled, 4, sizes)


def test_what_pytorch_refuses() -> None:
    """Statistics of one value."""
    norm = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    compiled = pliant.compile(norm, backend="llvm", dynamic=True)
    compiled(torch.randn(4, 4)).sum().backward()
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        compiled(torch.randn(1, 4))


def test_gradients_of_gradients() -> None:
    def function(x, w):
        return ((x + w) * x.mean(0)).softmax(-1)

    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    w = torch.randn(4, dtype=torch.float64, requires_grad=True)
    for batch in (3, 1):
        x = torch.randn(batch, 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(compiled, (x, w))


DIVIDE = {
    "std": lambda x: x.std(0, keepdim=True),
    "var": lambda x: x.var(0),
    "var of all": lambda x: x.var(),
    "var, corrected by 2": lambda x: x.var(0, correction=2),
    "std_mean": lambda x: torch.std_mean(x, 0, keepdim=True),
    "mean": lambda x: x.mean(0),
    "attention": lambda x: F.scaled_dot_product_attention(x.T[None], x.T[None], x.T[None]),
    "prelu": lambda x: F.prelu(x, torch.ones(1)),
    "prelu of rows": lambda x: F.prelu(x.T, x.new_ones(x.size(0))),
    "logit": lambda x: torch.logit(x, 0.1),
    "mse": lambda x: F.mse_loss(x, x.detach() + 1),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.detach() + 1),
    "huber": lambda x: F.huber_loss(x, x.detach() + 1),
    "binary cross entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid()),
    "kl_div": lambda x: F.kl_div(x, x.detach().exp(), reduction="batchmean"),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "softmax": lambda x: x.softmax(0),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("first", [(1, 3), (0, 3), (3, 0), (2, 1), (1, 1), (2, 3)])
@pytest.mark.parametrize("name", DIVIDE)
def test_divided_by_nothing(name, first, dynamic) -> None:
    """Formulas of gradients divide by sizes, in C++, where that is no error; and PyTorch compares
    the strides of operands by division, which are 0 where symbols of sizes are."""
    compiled = pliant.compile(DIVIDE[name], backend="llvm", dynamic=dynamic)
    for sizes in (first, (4, 3), first, (2, 5), first):
        x = torch.randn(sizes, requires_grad=True)
        compare(outcome(compiled, [x], nn.Module()), outcome(DIVIDE[name], [x], nn.Module()))
