"""Lazy modules, marks put on functions inside, parametrizations, parameters in containers."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.closeness import exact


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LazyLinear(5)
        self.second = nn.LazyConvTranspose1d(3, 2)

    def forward(self, x):
        return self.second(self.first(x * 2).unsqueeze(0))


class OwnLazy(nn.modules.lazy.LazyModuleMixin, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.UninitializedParameter()

    def initialize_parameters(self, x, scale=1):
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.weight.materialize((x.shape[-1],))
                self.weight.fill_(scale)

    def forward(self, x, scale=1):
        return x * self.weight


def images():
    return nn.Sequential(
        nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)
    )


LAZY = {
    "linear": (lambda: nn.LazyLinear(4), (2, 3)),
    "two": (lambda: nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), (2, 3)),
    "images": (images, (2, 3, 8, 8)),
    "inside another": (Mixed, (2, 3)),
    "its own": (OwnLazy, (2, 3)),
    "norm": (lambda: nn.LazyInstanceNorm1d(affine=True), (2, 3, 4)),
}


@pytest.mark.parametrize("name", LAZY)
def test_the_first_call_is_one_graph(name):
    make, shape = LAZY[name]
    x = torch.randn(shape)
    events.counters.reset()
    eager, lazy = make(), make()
    compiled = pliant.compile(lazy, fullgraph=True)
    for _ in range(2):
        torch.manual_seed(0)
        expected = eager(x)
        torch.manual_seed(0)
        actual = compiled(x)
        torch.testing.assert_close(actual, expected, **exact())
        assert actual.requires_grad == expected.requires_grad
    assert [type(m) for m in lazy.modules()] == [type(m) for m in eager.modules()]
    assert events.counters["graph_breaks"] == 0
    assert events.counters["compilations"] == events.counters["graphs"] == 1


def test_keyword_arguments_reach_a_lazy_module():
    check(lambda module, x: module(x, scale=3), OwnLazy(), torch.ones(2, 3))


def test_random_numbers_in_order():
    def function(module, x):
        return module(nn.functional.dropout(x, 0.5))

    check(function, nn.LazyLinear(4), torch.ones(2, 3), breaks=None)


def test_a_lazy_module_that_refuses():
    errors = []
    for wrap in (lambda module: module, pliant.compile):
        with pytest.raises(RuntimeError) as caught:
            wrap(nn.LazyConv2d(4, 3))(torch.ones(2))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


# ---- marks put on inside


def triple(x):
    return x * 3


@pytest.mark.parametrize("disable", [pliant.disable, torch.compiler.disable])
def test_disabled_inside(disable):
    def function(x):
        return disable(triple)(x + 1) + 1

    check(function, torch.ones(3), breaks=1)


def test_disabled_and_kept():
    def function(x):
        f = pliant.disable(triple, reason="why not")
        return f(x), f, f.__name__

    compiled = pliant.compile(function)
    result, kept, name = compiled(torch.ones(3))
    assert torch.equal(result, torch.full((3,), 3.0)) and name == "triple"
    assert torch.equal(kept(torch.ones(3)), result)


MARKS = [
    pliant.allow_in_graph, pliant.assume_constant_result, torch.compiler.allow_in_graph,
    torch.compiler.assume_constant_result,
]  # fmt: skip


@pytest.mark.parametrize("mark", MARKS)
def test_marked_inside(mark):
    check(lambda x: x * mark(lambda: 3)(), torch.ones(3))


# ---- modules around modules


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        self.seen = self.seen + x.sum(0).detach()
        if not hasattr(self, "late"):
            self.register_buffer("late", torch.ones(3))
        self.late = self.late * 2
        return x * self.seen * self.weight + self.late


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.listed = nn.ParameterList([nn.Parameter(torch.ones(3) * i) for i in range(3)])
        self.named = nn.ParameterDict({"a": nn.Parameter(torch.ones(3)), "b": torch.zeros(3)})

    def forward(self, x):
        for i, parameter in enumerate(self.listed):
            x = x + parameter * i
        for key, value in self.named.items():
            x = x * 2 + value + self.named[key]
        x = x + self.listed[0] + self.listed[-1] + sum(self.listed[1:]) + self.named.a
        return x + len(self.listed) + len(self.named) + ("a" in self.named)


def symmetric():
    module = nn.Linear(3, 3)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


MODULES = {
    "parametrization": symmetric,
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(3, 3)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(3, 3)),
    "orthogonal": lambda: parametrizations.orthogonal(nn.Linear(3, 3)),
    "old weight_norm": lambda: nn.utils.weight_norm(nn.Linear(3, 3)),
    "old spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(3, 3)),
    "buffers": Buffers,
    "containers": Containers,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules_around_modules(name, training):
    torch.manual_seed(0)
    eager = MODULES[name]().train(training)
    torch.manual_seed(0)
    module = MODULES[name]().train(training)
    compiled = pliant.compile(module, fullgraph=True)
    x = torch.arange(6.0).reshape(2, 3)
    for _ in range(3):
        expected, actual = eager(x), compiled(x)
        torch.testing.assert_close(actual, expected, **exact())
        expected.sum().backward()
        actual.sum().backward()
    for one, other in zip(eager.parameters(), module.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    state = copy.copy(eager.state_dict())
    for key, value in module.state_dict().items():
        torch.testing.assert_close(value, state[key], **exact())


def test_cached_parametrizations():
    def function(module, x):
        with parametrize.cached():
            return module(x) + module(x)

    check(function, symmetric(), torch.ones(2, 3))


@pytest.mark.parametrize("make", [lambda: nn.LazyLinear(3), Mixed])
def test_lazy_modules_made_inside(make):
    def program(x):
        torch.manual_seed(0)
        module = make()
        return module(x), [type(part).__name__ for part in module.modules()]

    compiled, x = pliant.compile(program), torch.ones(2, 4)
    for _ in range(2):
        got, expected = compiled(x), program(x)
        torch.testing.assert_close(got[0], expected[0], **exact())
        assert got[1] == expected[1]
