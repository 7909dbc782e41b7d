"""Compiled modules: everything but the call is the original's, live."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events
from tests.support.side_by_side import Probes, side_by_side

probe = Probes()
X = torch.arange(6.0).reshape(2, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.norm = nn.BatchNorm1d(3)
        self.table = nn.ParameterDict({"scale": nn.Parameter(torch.ones(3))})
        self.drop = nn.Dropout(0.5)
        self.k = 2

    def forward(self, x, *, flip=False):
        for layer in self.layers:
            x = layer(x).relu()
        x = self.drop(self.norm(x)) * self.table["scale"] * self.k
        return -x if flip else x

    def helper(self):
        return self.k


def test_shares_everything() -> None:
    model = Net()
    compiled = pliant.compile(model)
    assert list(compiled.state_dict()) == list(model.state_dict())
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in model.parameters()]
    assert compiled.layers is model.layers and compiled.helper() == 2
    assert isinstance(compiled, nn.Module) and isinstance(compiled, Net)
    assert compiled._orig_mod is model
    compiled.k = 5
    compiled.extra = nn.Linear(1, 1)
    assert model.k == 5 and "extra.weight" in model.state_dict()
    del compiled.extra
    assert not hasattr(model, "extra")
    assert compiled.eval() is not None and not model.training
    compiled.requires_grad_(False)
    assert not any(p.requires_grad for p in model.parameters())
    assert "layers" in dir(compiled) and "Linear" in repr(compiled)


def test_containers_stay_containers() -> None:
    compiled = pliant.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
    assert len(compiled) == 2 and isinstance(compiled[0], nn.Linear)
    assert [type(m) for m in compiled] == [nn.Linear, nn.ReLU]


@probe()
def training(compile):
    model = Net()
    compiled = compile(model)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step)
        loss = compiled(X).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.detach()
    compiled.eval()
    yield compiled(X, flip=True)
    yield {k: v.clone() for k, v in compiled.state_dict().items()}


@probe()
def moved_and_cast(compile):
    model = Net().eval()
    compiled = compile(model)
    yield compiled(X)
    compiled.to(torch.float64)
    yield compiled(X.double())
    compiled.float()
    yield compiled(X)


@probe()
def state_loaded(compile):
    model, other = Net().eval(), Net().eval()
    compiled = compile(model)
    yield compiled(X)
    compiled.load_state_dict(other.state_dict())
    yield compiled(X)
    compiled.load_state_dict(Net().state_dict(), assign=True)
    yield compiled(X)


@probe(compilations=4)
def hooks_on_either(compile):
    model = nn.Linear(3, 3)
    before = model.register_forward_hook(lambda m, i, o: o + 1)
    compiled = compile(model)
    yield compiled(X)
    after = compiled.register_forward_hook(lambda m, i, o: o * 2)
    yield compiled(X), model(X)
    before.remove()
    yield compiled(X), model(X)
    after.remove()
    yield compiled(X), model(X)


@probe(compilations=1)
def hook_sees_the_module(compile):
    model = nn.Linear(3, 3)
    seen = []

    def hook(m, args, kwargs, output):
        seen.append((m is model, len(args), list(kwargs)))

    model.register_forward_hook(hook, with_kwargs=True)
    compile(model)(input=X)
    yield seen


@probe(breaks=None)
def backward_hooks(compile):
    model = nn.Linear(3, 3)
    seen = []
    compiled = compile(model)
    yield compiled(X)
    model.register_full_backward_hook(lambda m, gi, go: seen.append(len(go)))
    compiled(X).sum().backward()
    yield seen


@probe(compilations=1)
def forward_of_an_instance(compile):
    model = Net().eval()
    model.forward = compile(model.forward)
    yield model(X), model(X, flip=False)
    model.forward(X)


@probe(compilations=2)
def forward_in_the_class(compile):
    class M(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.k = k

        @compile
        def forward(self, x):
            return self.lin(x) * self.k

    yield M(1)(X), M(1)(X), M(2)(X)


def test_compiled_submodule() -> None:
    model = Net().eval()
    expected, keys = model(X), list(model.state_dict())
    model.layers[0] = pliant.compile(model.layers[0])
    assert torch.equal(model(X), expected)
    assert list(model.state_dict()) == keys
    assert len(list(model.parameters())) == len(list(Net().parameters()))
    model.train()
    assert model.layers[0].training
    outer = pliant.compile(model.eval(), fullgraph=True)
    assert torch.equal(outer(X), expected)


def test_deepcopy() -> None:
    model = Net().eval()
    compiled = pliant.compile(model, fullgraph=True)
    copied = copy.deepcopy(compiled)
    with torch.no_grad():
        for p in copied.parameters():
            p.add_(1)
    assert torch.equal(compiled(X), model(X))
    assert torch.equal(copied(X), copied._orig_mod(X))
    assert not torch.equal(copied(X), compiled(X))
    assert events.counters["compilations"] == 2


def test_pickles_as_the_original() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = pliant.compile(model)
    expected = compiled(X)
    for thing in (model, compiled):
        again = pickle.loads(pickle.dumps(thing))
        assert type(again) is nn.Sequential
        assert torch.equal(again(X), expected)
    buffer = io.BytesIO()
    torch.save(compiled.state_dict(), buffer)
    buffer.seek(0)
    model.load_state_dict(torch.load(buffer))


def test_arguments_by_name_and_position() -> None:
    class M(nn.Module):
        def forward(self, x, y=None, *rest, scale=1, **named):
            if y is not None:
                x = x + y
            return x * scale + len(rest) + len(named)

    model = M()
    compiled = pliant.compile(model, fullgraph=True)
    for args, kwargs in (
        ((X,), {}),
        ((X, X), {}),
        ((X,), {"y": X}),
        ((X, X, 1, 2), {"scale": 3}),
        ((), {"x": X, "z": 1}),
    ):
        assert torch.equal(compiled(*args, **kwargs), model(*args, **kwargs))
    with pytest.raises(TypeError) as expected:
        model()
    with pytest.raises(TypeError) as caught:
        compiled()
    assert str(caught.value) == str(expected.value)


def test_guards_are_only_on_what_was_used() -> None:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.Linear(3, 3)
            self.unused = nn.Linear(3, 3)
            self.config = {"a": 1, "b": 2}

        def forward(self, x):
            return self.used(x) * self.config["a"]

    model = M()
    compiled = pliant.compile(model, fullgraph=True)
    compiled(X)
    [entry] = compiled._dispatcher.entries
    text = "\n".join(map(str, entry.info.captured.guards))
    assert "unused" not in text and "'b'" not in text
    model.unused = nn.Linear(7, 7)
    model.config["b"] = 5
    model.other = 1
    compiled(X)
    assert events.counters["compilations"] == 1
    model.config["a"] = 3
    assert torch.equal(compiled(X), model(X))
    assert events.counters["compilations"] == 2


def test_guards_do_not_grow_with_what_is_not_used() -> None:
    def guards_of(extra: int) -> int:
        model = nn.Linear(3, 3)
        for n in range(extra):
            setattr(model, f"unused_{n}", nn.Linear(3, 3))
        compiled = pliant.compile(model)
        compiled(X)
        return len(compiled._dispatcher.entries[0].info.captured.guards)

    assert guards_of(0) == guards_of(50)


@pytest.mark.parametrize(("program", "expected"), probe.params)
def test_like_eager(program, expected) -> None:
    side_by_side(program, **expected)
