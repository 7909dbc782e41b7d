"""Tensors that functions under `lru_cache` keep for sizes: each is made once, and is one object for
all calls, in one compilation for every size."""

import functools

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import run, same

SIZES = (3, 4, 3, 1, 0, 7, 4)


def compare(body, program, sizes=SIZES, maxsize=None, make=torch.ones, **settings):
    """Call a program with its cached function and a tensor of each size, compiled and in eager:
    what it returns, what the cache counts, and which results are the same object."""
    outcomes = []
    events.counters.reset()
    for wrap in (lambda f: f, lambda f: pliant.compile(f, dynamic=True, **settings)):
        cached = functools.lru_cache(maxsize=maxsize)(body)
        function = wrap(functools.partial(program, cached))
        results, counts = [], []
        for size in sizes:
            outcome = run(function, (make(size),))
            results.append((outcome.result, repr(outcome.error)))
            counts.append(tuple(cached.cache_info()))
        outcomes.append((results, counts))
    (expected, expected_counts), (actual, counts) = outcomes
    same(actual, expected)
    assert counts == expected_counts
    assert events.counters["fallbacks"] == 0
    return events.counters["compilations"]


def mask(n):
    return torch.ones(n, n).tril()


def table(n, dim=4, base=100.0):
    angles = torch.outer(torch.arange(n), base ** -(torch.arange(0, dim, 2) / dim))
    return angles.cos(), angles.sin()


PROGRAMS = {
    "a mask": (mask, lambda f, x: x * f(x.shape[0])),
    "the object itself": (mask, lambda f, x: f(x.shape[0])),
    "a view": (mask, lambda f, x: f(x.shape[0])[:1] + x),
    "once for one size": (mask, lambda f, x: (f(len(x)), f(x.shape[0]) is f(x.shape[0]), x + 1)),
    "several sizes": (mask, lambda f, x: (f(len(x))[:1] * x, f(2 * len(x) + 1))),
    "a tuple": (table, lambda f, x: x[:, None] * f(len(x))[0] + f(len(x))[1]),
    "the tuple itself": (table, lambda f, x: (f(len(x), dim=8), x + 1)),
    "a tuple of one": (lambda n: (torch.arange(n),), lambda f, x: (f(len(x)), x + f(len(x))[0])),
    "a transposed result": (lambda n: torch.ones(n, 2).t(), lambda f, x: f(len(x)) * x),
    "without gradients": (mask, torch.no_grad()(lambda f, x: x * f(len(x)))),
    "beside a write": (mask, lambda f, x: x.clone().mul_(2) * f(len(x))),
    "a number": (lambda n: 2 * n, lambda f, x: x * f(len(x))),
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name, backend):
    assert compare(*PROGRAMS[name], fullgraph=True, backend=backend) == 1


def test_numbers_among_the_arguments():
    compiled = pliant.compile(lambda f, x, n: f(n) * x, dynamic=True, fullgraph=True)
    cached = functools.lru_cache(lambda n: torch.full((2,), n))
    for number in (2, 3, 5, 3):
        assert torch.equal(compiled(cached, torch.ones(2), number), torch.full((2,), 1.0 * number))
    assert events.counters["compilations"] == 1
    assert cached.cache_info()[:2] == (1, 3)


def test_gradients():
    def program(f, x):
        y = x.detach().requires_grad_()
        return torch.autograd.grad((y * f(len(x)) * y).sum(), y)

    assert compare(mask, program, (3, 4, 3, 7), fullgraph=True, backend="llvm") == 1


def test_methods():
    class Encoding(torch.nn.Module):
        def __init__(self, scale):
            super().__init__()
            self.scale = scale

        @functools.lru_cache  # noqa: B019
        def table(self, n):
            return torch.arange(n) * self.scale

        def forward(self, x):
            return x + self.table(x.shape[0])

    for scale in (2, 3):
        module = Encoding(scale)
        compiled = pliant.compile(module, dynamic=True, fullgraph=True)
        for size in SIZES:
            assert torch.equal(compiled(torch.ones(size)), module(torch.ones(size)))


BREAKS = {
    "written to": (mask, lambda f, x: f(len(x)).add_(1) + x),
    "beside a written input": (mask, lambda f, x: (f(len(x)), x.add_(1))),
    "forgotten": (mask, lambda f, x: (f(len(x)), f(len(x) + 1), f(len(x)))),
    "random": (torch.rand, lambda f, x: f(len(x)) + x),
    "a list": (lambda n: [torch.ones(n)], lambda f, x: f(len(x))[0] + x),
    "in the data": (mask, lambda f, x: f(int(x.sum())) * 2),
    "under autocast": (
        lambda n: torch.ones(n, 2) @ torch.ones(2, n),
        lambda f, x: torch.autocast("cpu", torch.bfloat16)(f)(len(x)),
    ),
    "a default device": (mask, lambda f, x: on_the_cpu(f, x)),
    "refused": (lambda n: torch.ones(n).view(3, 4), lambda f, x: (x + 1, f(len(x)))),
    "handled": (lambda n: 1 / n * torch.ones(n), lambda f, x: try_or(f, x)),
}


def on_the_cpu(f, x):
    with torch.device("cpu"):
        return f(len(x)) + x


def try_or(f, x):
    try:
        return f(len(x)) + x
    except ZeroDivisionError:
        return x


@pytest.mark.parametrize("name", BREAKS)
def test_what_ends_the_graph(name):
    compare(*BREAKS[name], maxsize=1 if name == "forgotten" else None)


def test_results_from_another_time():
    """The function reads a global that changes, and keeps what it made before."""
    kind = [torch.float32]

    def made(n):
        return torch.ones(n, dtype=kind[0])

    def program(f, x):
        effects.append(len(x))
        return x * f(len(x))

    outcomes = []
    for wrap in (lambda f: f, lambda f: pliant.compile(f, dynamic=True)):
        kind[0], effects = torch.float32, list[int]()
        cached = functools.lru_cache(made)
        function = wrap(program)
        results = [function(cached, torch.ones(2, dtype=torch.half))]
        cached(3)
        kind[0] = torch.float64
        results += [function(cached, torch.ones(n, dtype=torch.half)) for n in (3, 4, 3, 2, 4)]
        outcomes.append((results, effects))
    same(outcomes[1], outcomes[0])


BESIDE_ANOTHER = {
    "compared": lambda kept, x, y: (kept is y, x + kept + y),
    "a key": lambda kept, x, y: (len({kept: 1, y: 2}), x * 2),
}


@pytest.mark.parametrize("name", BESIDE_ANOTHER)
def test_a_kept_tensor_that_the_program_has(name):
    """Whether it is another object than the argument, no guard can tell."""
    use = BESIDE_ANOTHER[name]

    def program(f, x, y):
        return use(f(len(x)), x, y)

    cached = functools.lru_cache(lambda n: torch.ones(n))
    compiled = pliant.compile(program, dynamic=True)
    for size in (2, 3, 4):
        for y in (cached(size), torch.ones(size)):
            same(compiled(cached, torch.ones(size), y), program(cached, torch.ones(size), y))


def test_a_kept_tensor_and_one_from_before_a_break():
    """Whether they are one object is a guard of two paths, the second to what isn't there yet."""

    def program(f, x):
        before = f(len(x))
        f.cache_clear()
        after = f(len(x))
        return before is after, before + after

    cached = functools.lru_cache(lambda n: torch.ones(n))
    compiled = pliant.compile(program, dynamic=True)
    for size in (2, 3, 4, 3):
        same(compiled(cached, torch.ones(size)), program(cached, torch.ones(size)))
    assert events.counters["fallbacks"] == 0
