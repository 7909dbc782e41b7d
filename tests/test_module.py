"""Compiled modules: everything but the call is the original's, live."""

import collections.abc
import copy
import functools
import gc
import inspect
import io
import pickle
import weakref

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
        loss = compiled(torch.randn(8, 3)).sum()  # so many rows that the norm is well-conditioned
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


# ---- what stands for the module behaves as the module


RETURN_SELF = {
    "eval": (), "train": (), "to": (torch.float64,), "float": (), "half": (), "double": (),
    "bfloat16": (), "cpu": (), "requires_grad_": (False,), "share_memory": (),
    "apply": (lambda module: None,), "to_empty": (), "type": (torch.float64,),
}  # fmt: skip


@pytest.mark.parametrize("name", RETURN_SELF)
def test_what_returns_the_module_returns_the_compiled_one(name) -> None:
    model = Net()
    compiled = pliant.compile(model)
    named = {"device": "cpu"} if name == "to_empty" else {}
    assert getattr(compiled, name)(*RETURN_SELF[name], **named) is compiled
    assert getattr(model, name)(*RETURN_SELF[name], **named) is model


class Special(nn.Module):
    """With methods of its own that return it, and others that don't."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.entered = 0

    def forward(self, x):
        return x * self.scale

    def chained(self):
        self.entered += 1
        return self

    def __enter__(self):
        return self.chained()

    def __exit__(self, *error):
        self.entered -= 1

    def __bool__(self):
        return self.entered > 0

    def __matmul__(self, other):
        return ("matmul", other)

    def __eq__(self, other):
        return isinstance(other, Special)

    __hash__ = nn.Module.__hash__


def test_methods_of_the_program() -> None:
    compiled = pliant.compile(Special())
    assert not bool(compiled)
    with compiled as entered:
        assert entered is compiled and bool(compiled)
    assert compiled.chained().chained() is compiled and compiled.entered == 2
    assert compiled @ 3 == ("matmul", 3)
    assert compiled == Special() and hash(compiled) == hash(compiled._orig_mod)
    assert compiled.chained == compiled.chained
    assert compiled.chained.__name__ == "chained"
    with pytest.raises(TypeError):
        len(compiled)


def test_methods_inside_compiled_code() -> None:
    compiled = pliant.compile(Special())

    @pliant.compile(fullgraph=True)
    def f(x):
        return compiled.chained()(x), compiled.chained() is compiled, compiled.eval()

    got, same, evaluated = f(X)
    assert torch.equal(got, X) and same and evaluated is compiled
    assert compiled.entered == 2 and not compiled.training


CONTAINERS = {
    "plain": lambda: nn.Linear(3, 3),
    "sequential": lambda: nn.Sequential(nn.Linear(3, 3), nn.ReLU()),
    "empty sequential": lambda: nn.Sequential(),
    "dict": lambda: nn.ModuleDict({"a": nn.ReLU()}),
    "list": lambda: nn.ModuleList([nn.ReLU()]),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_questions_of_the_language(name) -> None:
    model = CONTAINERS[name]()
    compiled = pliant.compile(model)
    questions = (
        bool,
        len,
        list,
        lambda m: m[0],
        lambda m: m["a"],
        lambda m: "a" in m,
        lambda m: model in m,
        lambda m: isinstance(m, collections.abc.Iterable),
        lambda m: isinstance(m, collections.abc.Sized),
        lambda m: m.__class__,
        lambda m: isinstance(m, type(model)),
        lambda m: m.extra_repr(),
        lambda m: set(dir(m)) - {"_orig_mod"},
        lambda m: repr(m).removeprefix("CompiledModule(").removesuffix(")" * (m is compiled)),
        inspect.signature,
        lambda m: inspect.signature(m.forward),
        lambda m: m.train,
    )
    for question in questions[:-1]:
        answers = []
        for module in (model, compiled):
            try:
                answers.append(question(module))
            except Exception as error:
                answers.append(type(error))
        assert answers[0] == answers[1]
    assert compiled == compiled and compiled != model and len({compiled, compiled, model}) == 2


def test_call_by_its_name() -> None:
    compiled = pliant.compile(nn.Linear(3, 3))
    compiled.__call__(X)
    assert events.counters["compilations"] == 1


def test_signature_of_functions() -> None:
    def f(a, /, b: int = 2, *rest, c, **named):
        return a

    class Callable:
        def __call__(self, x, y=1):
            return x

        def method(self, x):
            return x

    assert inspect.signature(pliant.compile(f)) == inspect.signature(f)
    for thing in (Callable(), Callable().method, functools.partial(f, 1, c=3), len):
        assert inspect.signature(pliant.compile(thing)) == inspect.signature(thing)


def round_trips():
    def through_torch(module):
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    return {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "torch.save": through_torch,
        **{
            f"pickle {protocol}": lambda m, p=protocol: pickle.loads(pickle.dumps(m, p))
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
        },
    }


@pytest.mark.parametrize("name", round_trips())
def test_copies_and_pickles_are_compiled(name) -> None:
    model = Net().eval()
    compiled = pliant.compile(model, fullgraph=True, dynamic=False)
    expected = compiled(X)
    again = round_trips()[name](compiled)
    assert type(again) is type(compiled) and again._orig_mod is not model
    assert list(again.state_dict()) == list(model.state_dict())
    events.counters.reset()
    assert torch.equal(again(X), expected) and torch.equal(again(X[:1]), expected[:1])
    assert events.counters["compilations"] == 2  # dynamic=False
    compiler = again._dispatcher.on_miss.__self__
    assert compiler.fullgraph and compiler.dynamic is False


def test_a_module_that_knows_its_stand_in() -> None:
    model = nn.Linear(3, 3)
    model.__dict__["me"] = pliant.compile(model)
    for again in (copy.deepcopy(model.me), pickle.loads(pickle.dumps(model.me))):
        assert again.me is again and again._orig_mod.me is again
        assert torch.equal(again(X), model(X))


def backend_of_the_program(graph, inputs):
    backend_of_the_program.calls += 1
    return graph


def test_backends_in_pickles() -> None:
    backend_of_the_program.calls = 0
    compiled = pliant.compile(nn.Linear(3, 3), backend=backend_of_the_program)
    pickle.loads(pickle.dumps(compiled))(X)
    assert backend_of_the_program.calls == 1
    local = pliant.compile(nn.Linear(3, 3), backend=lambda graph, inputs: graph)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(local)


def test_a_stand_in_class_dies_with_its_module() -> None:
    class Local(nn.Module):
        def forward(self, x):
            return super().__repr__() and x

        def helper(self):
            return self

    compiled = pliant.compile(Local())
    assert compiled.helper() is compiled
    alive = weakref.ref(Local), weakref.ref(type(compiled))
    del compiled, Local
    gc.collect()
    gc.collect()  # the class, once its stand-in's class is gone
    assert [ref() for ref in alive] == [None, None]


# ---- methods that run the original


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x).relu()

    def generate(self, x, steps=3):
        for _ in range(steps):
            x = self(x)
        return x

    def size(self):
        return self.lin.in_features


def test_a_method_that_runs_the_original_is_told_once(seen) -> None:
    compiled = pliant.compile(Generator())
    keys = set(vars(compiled._orig_mod))
    compiled.size(), compiled.eval(), compiled.state_dict()
    assert not seen(events.RanOriginal)
    for _ in range(3):
        compiled.generate(X)
    [event] = seen(events.RanOriginal)
    assert event.function == "Generator.generate"
    assert events.counters["compilations"] == 0
    assert set(vars(compiled._orig_mod)) == keys


def test_forward_by_its_name_is_compiled_without_hooks(seen) -> None:
    model = Generator()
    calls: list[object] = []
    model.register_forward_hook(lambda *args: calls.append(args))
    compiled = pliant.compile(model, fullgraph=True)
    for _ in range(3):
        assert torch.allclose(compiled.forward(X), model.forward(X))
    [event] = seen(events.CompileFinished)
    assert event.function == "Generator.forward" and not calls
    assert not seen(events.RanOriginal)
    copied = copy.deepcopy(compiled)
    copied._orig_mod.lin.weight.data.zero_()
    assert not torch.allclose(copied.forward(X), compiled.forward(X))
    model.forward = lambda x: x + 1  # an attribute of the object, which is no method
    assert torch.equal(compiled.forward(X), X + 1)


def test_one_collection_frees_the_class_of_a_module() -> None:
    def run():
        inner = torch.nn.Linear(2, 2)

        class Closed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = inner

            def forward(self, x):
                return self.inner(x)

        pliant.compile(Closed())(X[:2, :2])
        return weakref.ref(inner), weakref.ref(Closed)

    references = run()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_a_failing_method_leaves_no_trace() -> None:
    class Failing(Generator):
        def generate(self, x):
            raise ValueError

    compiled = pliant.compile(Failing())
    keys = set(vars(compiled._orig_mod))
    with pytest.raises(ValueError):
        compiled.generate(X)
    assert set(vars(compiled._orig_mod)) == keys


def test_nothing_is_printed(capfd) -> None:
    pliant.compile(Generator()).generate(X)
    assert capfd.readouterr() == ("", "")
    pliant.set_logs(uncompiled=True)
    pliant.compile(Generator()).generate(X)
    assert "Generator.generate" in (printed := capfd.readouterr().err)
    assert "compile_module" in printed


# ---- in place


@torch.no_grad()
def test_in_place(seen) -> None:
    model = Generator()
    keys, expected = list(model.state_dict()), model.generate(X)
    assert pliant.compile_module(model, fullgraph=True) is model
    assert type(model) is Generator and list(model.state_dict()) == keys
    assert torch.equal(model.generate(X), expected) and torch.equal(model(X), model.forward(X))
    [event] = seen(events.CompileFinished)
    assert event.function == "Generator.forward"
    assert not seen(events.RanOriginal)
    model.lin.weight.data.zero_()
    model.double()
    model(X.double())
    assert events.counters["compilations"] == 2
    assert pliant.uncompile_module(model) is model
    events.counters.reset()
    model(X.double()[:1])
    assert events.counters["compilations"] == 0 and "_compiled_call_impl" not in vars(model)


def test_in_place_with_hooks_and_around() -> None:
    model = pliant.compile_module(Generator())
    seen = []
    model.register_forward_hook(lambda m, args, out: seen.append(m))
    model(X)
    assert seen == [model]
    outer = pliant.compile(nn.Sequential(model, nn.ReLU()))
    events.counters.reset()
    outer(X)
    assert seen == [model, model] and events.counters["compilations"] == 1


def test_copies_of_what_is_compiled_in_place_are_plain() -> None:
    model = pliant.compile_module(Generator())
    expected = model(X)
    events.counters.reset()
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(again) is Generator and torch.equal(again(X), expected)
    assert events.counters["compilations"] == 0


@pytest.mark.parametrize("way", ["compile_module", "torch.nn.Module.compile"])
def test_what_is_compiled_in_place_can_be_scripted(way: str, tmp_path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    if way == "compile_module":
        pliant.compile_module(model)
    else:  # with pliant in the place of torch.compile
        model._compiled_call_impl = pliant.compile(model._call_impl)
    x = torch.randn(2, 4)
    expected = model(x)
    torch.jit.save(torch.jit.script(model), tmp_path / "model.pt")
    torch.testing.assert_close(torch.jit.load(tmp_path / "model.pt")(x), expected)


@torch.no_grad()
def test_in_place_settings() -> None:
    model = Generator()
    assert pliant.compile_module(model, disable=True) is model
    assert "_compiled_call_impl" not in vars(model)
    with pytest.raises(pliant.errors.NotCallableError):
        pliant.compile_module(len)
    compiled = pliant.compile(model)
    assert pliant.compile_module(compiled) is compiled
    compiled.generate(X)
    assert events.counters["compilations"] == 1
    pliant.uncompile_module(compiled)
    assert "_compiled_call_impl" not in vars(model)


def test_state_is_saved_as_the_originals() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = pliant.compile(model)
    assert type(pickle.loads(pickle.dumps(model))) is nn.Sequential
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
    text = "\n".join(map(str, entry.info.bindings.guards))
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
        return len(compiled._dispatcher.entries[0].info.bindings.guards)

    assert guards_of(0) == guards_of(50)


@pytest.mark.parametrize(("program", "expected"), probe.params)
def test_like_eager(program, expected) -> None:
    side_by_side(program, **expected)
