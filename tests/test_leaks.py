"""What was compiled is freed with the function it was compiled for, with all that it refers to."""

import gc
import itertools
import sys
import weakref
from collections import Counter

import pytest
import torch

import pliant
from pliant.bytecode import resume
from pliant.capture import directives
from pliant.capture.library.torch import targets, tensor_subclasses
from pliant.sym import expr
from pliant.sym.env import ShapeEnv
from tests.backends.test_leaks import MEGABYTE, grows

DECODE = sys.modules["pliant.bytecode.decode"]  # the package has a function of that name
WEIGHT = 1 << 15  # numbers: enough that 200 of them would be seen


def collect():
    """C++ holds some objects until others are freed, and the collector does not see how."""
    for _ in range(3):
        gc.collect()


def weight():
    return torch.randn(WEIGHT)


def static(n):
    w = weight()

    def step(x):
        return (x * w[:1]).sum(0) + n

    return step, w, (torch.randn(4, n % 7 + 2),), {"dynamic": False}


def dynamic(n):
    function, w, args, _ = static(n)
    return function, w, args, {"dynamic": True}


def breaks(n):
    w = weight()

    def step(x):
        y = x * w[:1]
        pliant.graph_break()
        z = [each + n for each in sorted([y, y], key=lambda t: t.shape[0])]
        pliant.graph_break()
        return z[0].sum(0)

    return step, w, (torch.randn(4, n % 7 + 2),), {}


def dynamic_breaks(n):
    function, w, args, _ = breaks(n)
    return function, w, args, {"dynamic": True}


def of_a_module(n):
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).relu() * n

    module = Scaled(128, 128)
    return module, module.weight, (torch.randn(3, 128),), {}


def recompiled(n):
    function, w, _, _ = static(n)
    return function, w, (torch.randn(4, 3), torch.randn(4, 5), torch.randn(7, 6)), {}


def gradients(n):
    w = weight().requires_grad_()

    def step(x):
        return (x.sum() * w[:8]).relu() * n

    return step, w, (torch.randn(n % 7 + 2, requires_grad=True),), {"dynamic": True}


def gradients_inside(n):
    w = torch.randn(8, requires_grad=True)

    def step(x):
        return torch.autograd.grad((x[:, None] * w).sum(), w)[0] * n

    return step, w, (torch.randn(n % 7 + 2),), {"dynamic": True}


def own_gradients(n):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    w = weight()

    def step(x):
        return Double.apply(x) * w[0]

    return step, w, (torch.randn(4, requires_grad=True),), {}


def sizes_from_data(n):
    w = weight()

    def step(x):
        return x[x > 0] * w[0] + torch.zeros(int(x.sum().abs()) + 1).sum()

    return step, w, (torch.randn(n % 7 + 2, 3),), {"dynamic": True}


def from_text(n):
    """A module that is made and dropped, as notebooks and template engines do."""
    space = {"w": weight(), "pliant": pliant}
    text = f"""
def step(x):
    y = x * w[0] + {n}
    pliant.graph_break()
    return sorted([y, y], key=lambda t: t.shape[0])[0]
"""
    exec(text, space)
    return space["step"], space["w"], (torch.randn(n % 7 + 2),), {"dynamic": True}


def raises(n):
    w = weight()

    def step(x):
        return torch.bernoulli(x * w[:1] + 100 + n)

    return step, w, (torch.rand(n % 7 + 2),), {"dynamic": True}


def not_captured(n):
    w = weight()

    def step(x):
        for i in range(2):
            yield x * w[i]

    return step, w, (torch.rand(n % 7 + 2),), {}


KINDS = [
    static, dynamic, breaks, dynamic_breaks, of_a_module, recompiled, gradients, gradients_inside,
    own_gradients, sizes_from_data, from_text, raises, not_captured,
]  # fmt: skip


def compile_and_drop(kind, backend, n):
    """The compiled function, the function, and a tensor that it uses: weakly."""
    function, w, inputs, options = kind(n)
    compiled = pliant.compile(function, backend=backend, **options)
    for x in inputs:
        try:
            result = compiled(x)
        except RuntimeError:
            assert kind is raises
            continue
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.sum().backward()
    return [weakref.ref(each) for each in (compiled, function, w)]


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("kind", KINDS)
def test_dropped_functions_are_freed(kind, backend):
    """The collector finds everything: nothing is held by C++ or by a table."""
    references = [ref for n in range(6) for ref in compile_and_drop(kind, backend, n)]
    collect()
    assert [ref() for ref in references if ref() is not None] == []


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_flat(kind, backend):
    grown, more = grows(lambda n: compile_and_drop(kind, backend, n), 20, 10)
    assert grown < 3 * MEGABYTE
    assert more[ShapeEnv] <= 0
    assert sum(more.values()) < 40, more.most_common(5)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_compilations(kind, backend):
    grown, more = grows(lambda n: compile_and_drop(kind, backend, n), 200, 60)
    assert grown < 6 * MEGABYTE
    assert sum(more.values()) < 150, more.most_common(5)


# ---- tables

TABLES = {
    "decoded": lambda: len(DECODE._cache),
    "resume codes": lambda: len(resume._codes),
    "origins": lambda: len(resume._origins),
    "marked": lambda: len(directives.MARKED),
    "applied": lambda: len(targets._applied),
    "makers": lambda: len(tensor_subclasses._makers),
}


@pytest.mark.parametrize("kind", [from_text, breaks, own_gradients])
def test_tables_do_not_grow(kind):
    compile_and_drop(kind, "eager", 0)
    collect()
    before = {name: size() for name, size in TABLES.items()}
    for n in range(1, 20):
        compile_and_drop(kind, "eager", n)
    collect()
    assert {name: size() for name, size in TABLES.items()} == before


def test_a_table_has_what_is_alive():
    def step(x):
        y = x + 1
        pliant.graph_break()
        return y * 2

    compiled = pliant.compile(step)
    compiled(torch.ones(2))
    collect()
    known = DECODE.decode(step.__code__)
    assert DECODE.decode(step.__code__) is known
    compiled(torch.ones(3))
    compiled(torch.ones(4))  # the same resume function: it is compiled twice, not thrice
    assert torch.equal(compiled(torch.ones(4)), torch.full((4,), 4.0))


def test_marked_methods_are_freed():
    class Model:
        def method(self, x):
            return x

    models = [Model() for _ in range(3)]
    kept = [pliant.allow_in_graph(model.method) for model in models]
    references = [weakref.ref(model) for model in models]
    models.clear()
    kept.clear()
    collect()
    assert [ref() for ref in references] == [None] * 3


def test_symbolic_sizes_of_dropped_programs_are_forgotten():
    """Their nodes are interned: those that somebody has stay the only ones."""
    expr.forget()  # what earlier tests have left in caches
    kept = expr.symbol("kept_1") * 7 + 3
    numbers = itertools.count(10**6)
    limit = 2 * (len(expr._nodes) + len(expr._integers)) + 3 * expr.MANY_NODES
    limit += 8 * 16384  # caches hold four for each call, and a sweep waits for twice as many
    for _ in range(limit):
        expr.symbol("s0") * next(numbers) + next(numbers)
        if not next(numbers) % 1000:
            expr.drop_unused_nodes()
    assert len(expr._nodes) + len(expr._integers) < limit
    assert expr.symbol("kept_1") * 7 + 3 is kept


def test_an_interrupted_compilation_is_freed():
    class Stop(BaseException):
        pass

    def stop(gm, examples):
        raise Stop

    collect()
    before = Counter(map(type, gc.get_objects()))[ShapeEnv]  # of other tests
    references = []
    for n in range(4):
        function, w, (x,), _ = static(n)
        references += [weakref.ref(function), weakref.ref(w)]
        try:
            pliant.compile(function, backend=stop, dynamic=True)(x)
        except Stop:
            pass
        else:
            pytest.fail("swallowed")
    del function, w, x
    collect()
    assert [ref() for ref in references] == [None] * 8
    assert Counter(map(type, gc.get_objects()))[ShapeEnv] <= before
