"""`pliant.compile` on everything that can be called, and what it says when it can't."""

import copy
import functools
import gc
import inspect
import linecache
import pickle
import types
import weakref

import pytest
import torch
from torch import nn

import pliant
from pliant.base import errors, events

X = torch.arange(3.0)


def counted() -> tuple[int, int]:
    return events.counters["compilations"], events.counters["graph_breaks"]


def plain(x, k=2, *rest, scale=1.0, **named):
    """Documented."""
    for item in rest:
        x = x + item
    for value in named.values():
        x = x * value
    return x * k * scale


# ---- what can be compiled


def test_function_and_its_arguments() -> None:
    compiled = pliant.compile(plain, fullgraph=True)
    for args, kwargs in (
        ((X,), {}),
        ((X, 3), {}),
        ((X, 3, 4, 5), {"scale": 0.5}),
        ((X,), {"k": 7, "a": 2, "b": 3}),
        ((), {"x": X}),
    ):
        assert torch.equal(compiled(*args, **kwargs), plain(*args, **kwargs))
    assert counted() == (4, 0)  # the last call is the first one again
    assert compiled.__name__ == "plain" and compiled.__doc__ == "Documented."
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert compiled.__wrapped__ is plain


def test_wrong_arguments_raise_what_python_raises() -> None:
    def f(x, *, k):
        return x * k

    compiled = pliant.compile(f)
    for args, kwargs in (((), {}), ((X,), {}), ((X, 1), {"k": 1}), ((X,), {"k": 1, "z": 2})):
        with pytest.raises(TypeError) as expected:
            f(*args, **kwargs)
        with pytest.raises(TypeError) as caught:
            compiled(*args, **kwargs)
        assert str(caught.value) == str(expected.value)


def test_decorators() -> None:
    @pliant.compile
    def f(x):
        return x + 1

    @pliant.compile(fullgraph=True, backend="eager")
    def g(x):
        return x + 2

    assert f(X).tolist() == [1, 2, 3] and g(X).tolist() == [2, 3, 4]
    assert counted() == (2, 0)


def test_lambda_closure_partial() -> None:
    k = 3
    assert pliant.compile(lambda x: x * k, fullgraph=True)(X).tolist() == [0, 3, 6]
    part = functools.partial(plain, k=4, scale=2.0)
    assert pliant.compile(part, fullgraph=True)(X).tolist() == [0, 8, 16]
    part = functools.partial(plain, X)
    assert pliant.compile(part, fullgraph=True)(5).tolist() == [0, 5, 10]
    assert counted() == (3, 0)


@pytest.mark.parametrize("make", [
    lambda f: f,
    lambda f: functools.partial(f, scale=2),
    lambda f: types.MethodType(lambda self, x, k: f(x, k), object()),
    lambda f: type("Callable", (), {"__call__": lambda self, x, k: f(x, k)})(),
    lambda f: type("Module", (nn.Module,), {"forward": lambda self, x, k: f(x, k)})(),
])  # fmt: skip
def test_guards_have_the_names_of_the_arguments(make, seen) -> None:
    compiled = pliant.compile(make(lambda x, k, scale=1: x * k * scale))
    compiled(X, 2), compiled(X, 3)
    [reason] = seen(events.Recompiled)[0].reasons
    assert reason.guard == "L['k'] == 2, got 3"


class Model:
    def __init__(self, k):
        self.k = k

    def method(self, x):
        return x * self.k

    def __call__(self, x):
        return self.method(x) + 1

    @pliant.compile(fullgraph=True)
    def compiled_method(self, x):
        return x * self.k

    @staticmethod
    @pliant.compile(fullgraph=True)
    def static(x):
        return x + 1

    @classmethod
    @pliant.compile(fullgraph=True)
    def of_class(cls, x):
        return x + len(cls.__name__)

    @pliant.compile(fullgraph=True)
    @staticmethod
    def also_static(x):
        return x + 1

    @pliant.compile(fullgraph=True)
    @classmethod
    def also_of_class(cls, x):
        return x + len(cls.__name__)

    @property
    @pliant.compile(fullgraph=True)
    def double(self):
        return X * self.k * 2


def test_methods() -> None:
    model = Model(2)
    bound = pliant.compile(model.method, fullgraph=True)
    assert bound(X).tolist() == [0, 2, 4]
    model.k = 3
    assert bound(X).tolist() == [0, 3, 6]
    assert bound.__self__ is model
    assert pliant.compile(model, fullgraph=True)(X).tolist() == [1, 4, 7]
    assert pliant.compile(Model.method, fullgraph=True)(model, X).tolist() == [0, 3, 6]


def test_methods_compiled_in_the_class() -> None:
    model = Model(2)
    assert model.compiled_method(X).tolist() == [0, 2, 4]
    assert Model(5).compiled_method(X).tolist() == [0, 5, 10]
    assert Model.compiled_method(model, X).tolist() == [0, 2, 4]
    assert model.static(X).tolist() == Model.static(X).tolist() == [1, 2, 3]
    assert model.of_class(X).tolist() == Model.of_class(X).tolist() == [5, 6, 7]
    assert model.also_static(X).tolist() == Model.also_static(X).tolist() == [1, 2, 3]
    assert model.also_of_class(X).tolist() == Model.also_of_class(X).tolist() == [5, 6, 7]
    assert model.double.tolist() == [0, 4, 8]
    assert counted()[1] == 0


def test_classes_and_functions_of_c() -> None:
    assert pliant.compile(Model)(4).k == 4
    assert pliant.compile(torch.sin)(X).tolist() == X.sin().tolist()
    assert pliant.compile(len)([1, 2]) == 2


def test_functions_that_run_in_pieces_stay_as_they_are() -> None:
    def generate(x):
        yield x + 1
        yield x + 2

    async def later(x):
        return x

    assert [t.tolist() for t in pliant.compile(generate)(X)] == [[1, 2, 3], [2, 3, 4]]
    assert inspect.iscoroutinefunction(pliant.compile(later))


def test_compiled_inside_compiled_is_followed() -> None:
    inner = pliant.compile(lambda x: x + 1)
    model = pliant.compile(nn.Linear(3, 3))

    class Layer:
        @pliant.compile
        def go(self, x):
            return inner(x) * 2

    outer = pliant.compile(lambda layer, x: layer.go(model(inner(x))), fullgraph=True)
    expected = (model._orig_mod(X + 1) + 1) * 2
    assert torch.equal(outer(Layer(), X), expected)
    assert counted() == (1, 0)
    assert events.counters["graphs"] == 1


def test_compiling_twice() -> None:
    once = pliant.compile(plain)
    twice = pliant.compile(once, fullgraph=True)
    assert twice is not once and twice.fn is plain
    module = nn.Linear(1, 1)
    assert pliant.compile(pliant.compile(module))._orig_mod is module


def test_recursion() -> None:
    @pliant.compile(fullgraph=True)
    def power(x, n):
        return x if n == 1 else x * power(x, n - 1)

    assert power(X, 4).tolist() == (X**4).tolist()
    assert counted() == (1, 0)


def test_disable() -> None:
    assert pliant.compile(plain, disable=True) is plain
    module = nn.ReLU()
    assert pliant.compile(module, disable=True) is module


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_dynamic_is_accepted(dynamic) -> None:
    assert pliant.compile(lambda x: x + 1, dynamic=dynamic)(X).tolist() == [1, 2, 3]


@pytest.mark.parametrize("mode", [None, "default", "reduce-overhead", "max-autotune"])
def test_modes(mode) -> None:
    assert pliant.compile(lambda x: x + 1, mode=mode)(X).tolist() == [1, 2, 3]


def test_reset() -> None:
    compiled = pliant.compile(lambda x: x + 1)
    module = pliant.compile(nn.ReLU())
    compiled(X), module(X)
    pliant.reset()
    assert compiled.entries == [] and dict(pliant.counters) == dict.fromkeys(pliant.counters, 0)
    assert compiled(X).tolist() == [1, 2, 3] and module(X).tolist() == [0, 1, 2]
    assert counted() == (2, 0)


# ---- what can't


@pytest.mark.parametrize("thing", [3, "name", X, [plain], pliant])
def test_not_callable(thing) -> None:
    with pytest.raises(errors.NotCallableError, match=type(thing).__name__):
        pliant.compile(thing)
    with pytest.raises(errors.NotCallableError):
        pliant.compile(fullgraph=True)(thing)


def test_unknown_names() -> None:
    with pytest.raises(errors.UnknownBackendError, match="did you mean 'eager'"):
        pliant.compile(plain, backend="eagr")
    with pytest.raises(errors.UnknownOptionError, match="did you mean 'recompile_limit'"):
        pliant.compile(plain, options={"recompile_limt": 3})
    with pytest.raises(errors.InvalidOptionError, match="recompile_limit"):
        pliant.compile(plain, options={"recompile_limit": "3"})
    with pytest.raises(errors.InvalidOptionError, match="dynamic of compile.* can't be 'yes'"):
        pliant.compile(plain, dynamic="yes")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidOptionError, match="max-autotune"):
        pliant.compile(plain, mode="fast")
    with pytest.raises(errors.UnknownLogError, match="did you mean 'guards'"):
        pliant.set_logs(guard=True)
    with pytest.raises(errors.NotCallableError):
        pliant.compile(plain, backend=3)
    assert not hasattr(plain, "entries")


def test_backend_that_raises() -> None:
    def backend(gm, example_inputs):
        raise RuntimeError("no luck")

    items, x = [], torch.ones(2)

    def f(items, x):
        items.append(1)
        x.add_(1)
        return x * 2

    compiled = pliant.compile(f, backend=backend)
    with pytest.raises(errors.BackendError, match="no luck") as caught:
        compiled(items, x)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert items == [] and x.tolist() == [1, 1] and compiled.entries == []


def test_backend_that_returns_nothing_to_call() -> None:
    compiled = pliant.compile(lambda x: x + 1, backend=lambda gm, example_inputs: 3)
    with pytest.raises(errors.BackendError, match="can't be called"):
        compiled(X)


def test_fullgraph_says_what_and_where() -> None:
    def f(items, x):
        items.append(x)
        if x.sum() > 0:
            return x + 1
        return x

    items = []
    with pytest.raises(errors.GraphBreakError) as caught:
        pliant.compile(f, fullgraph=True)(items, X)
    assert caught.value.position.line == f.__code__.co_firstlineno + 2
    assert items == []


# ---- backends


def test_what_a_backend_receives() -> None:
    seen = []

    def backend(gm, example_inputs):
        gm.graph.lint()
        seen.append((gm, example_inputs))
        return gm.forward

    model = nn.Sequential(nn.Linear(3, 2))
    offset = torch.ones(2)

    def f(batch, extra):
        return model(batch["x"]) + extra[0] + offset

    x, extra = torch.ones(3), torch.ones(2)
    pliant.compile(f, backend=backend)({"x": x}, [extra])
    [(gm, examples)] = seen
    assert isinstance(gm, torch.fx.GraphModule)
    names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    assert names[0] == "l_batch_x" and "l_extra_0" in names and len(names) == 5
    by_name = dict(zip(names, examples))
    assert by_name["l_batch_x"] is x and by_name["l_extra_0"] is extra
    assert any(t is model[0].weight for t in examples) and any(t is offset for t in examples)
    assert torch.equal(gm(*examples)[0], f({"x": x}, [extra]))
    assert all("stack_trace" in n.meta for n in gm.graph.nodes if n.op.startswith("call"))


def test_a_backend_may_return_lists_and_change_the_graph() -> None:
    def backend(gm, example_inputs):
        for node in gm.graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos
        gm.recompile()
        return lambda *args: list(gm(*args))

    assert pliant.compile(lambda x: torch.sin(x), backend=backend)(X).tolist() == X.cos().tolist()


# ---- copies and memory


def test_copies_and_pickles() -> None:
    compiled = pliant.compile(plain)
    assert copy.deepcopy({"f": compiled})["f"] is compiled
    holder = Model(3)
    assert copy.deepcopy(holder).compiled_method(X).tolist() == [0, 3, 6]
    assert pickle.loads(pickle.dumps(Model(2))).compiled_method(X).tolist() == [0, 2, 4]


def collected(reference) -> bool:
    for _ in range(3):
        gc.collect()
    return reference() is None


def test_compiled_functions_are_collected() -> None:
    class Resource:
        pass

    def make():
        resource = Resource()

        def f(x):
            y = x + 1
            pliant.graph_break()
            resource.last = y
            return y * 2

        compiled = pliant.compile(f)
        compiled(torch.ones(2)), compiled(torch.ones(3))
        return weakref.ref(resource), weakref.ref(compiled), weakref.ref(f)

    for reference in make():
        assert collected(reference)


def test_arguments_are_not_kept() -> None:
    class Batch:
        pass

    def f(batch, items, x):
        batch.result = x * batch.x + items[0]
        items.append(x)
        return batch.result + x.sum()

    def call():
        batch = Batch()
        batch.x, first, x = torch.ones(2), torch.ones(2), torch.ones(2)
        items = [first]
        result = compiled(batch, items, x)
        return [weakref.ref(v) for v in (batch, batch.x, first, x, result, batch.result)]

    compiled = pliant.compile(f)
    for _ in range(2):
        for reference in call():
            assert collected(reference)
    assert counted() == (1, 0)


def test_a_module_is_not_kept_by_a_function_that_gets_it() -> None:
    compiled = pliant.compile(lambda module, x: module(x))

    def call():
        module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        compiled(module, torch.randn(4, 3))
        return [weakref.ref(module), weakref.ref(module[0].weight), weakref.ref(module[1])]

    for reference in call():
        assert collected(reference)
    for reference in call():
        assert collected(reference)
    assert counted() == (1, 0)


def test_a_compiled_module_is_collected() -> None:
    def make():
        module = nn.Linear(3, 3)
        compiled = pliant.compile(module)
        compiled(X)
        return [weakref.ref(v) for v in (module, module.weight, compiled)]

    for reference in make():
        assert collected(reference)


def test_classes_and_functions_are_collected() -> None:
    def make():
        class Local:
            def go(self, x):
                return helper(x) + 1

        def helper(x):
            return x * 2

        compiled = pliant.compile(lambda o, x: o.go(x))
        compiled(Local(), X)
        return [weakref.ref(v) for v in (Local, helper, Local.go, compiled)]

    for reference in make():
        assert collected(reference)


def test_recompiling_and_resetting_leaves_nothing() -> None:
    compiled = pliant.compile(lambda x: x * 2 + 1)

    def round_trip():
        for size in (2, 3, 4):
            compiled(torch.ones(size))
        pliant.reset()
        gc.collect()
        return len(gc.get_objects()) + len(linecache.cache)

    round_trip(), round_trip()
    before = round_trip()
    after = [round_trip() for _ in range(5)][-1]
    assert after - before < 50, (before, after)


def test_scripted_code_is_refused() -> None:
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(3, 3)).eval())
    for model in (scripted, torch.jit.freeze(scripted), torch.jit.script(torch.nn.functional.silu)):
        with pytest.raises(errors.ScriptedModelError, match="no Python code"):
            pliant.compile(model)
    # Called by compiled code it is fine.
    x = torch.ones(2, 3)
    assert torch.equal(pliant.compile(lambda x: scripted(x) + 1)(x), scripted(x) + 1)
