"""Functions under `functools.cache` and `lru_cache`: their bodies run, and their caches count and
forget, as in eager."""

import copy
import functools
import gc
import os

import pytest
import torch

import pliant
from pliant.base import caches
from tests.support.against_eager import check

X = torch.arange(4.0)
Y = torch.ones(4)
THREE = torch.arange(3.0)


class Cached:
    """A cached function with everything that can be seen of it."""

    def __init__(self, maxsize=None, typed=False, body=None):
        self.calls = []
        self.body = body or (lambda *args, **kwargs: (torch.ones(4), args))

        @functools.lru_cache(maxsize=maxsize, typed=typed)
        def function(*args, **kwargs):
            self.calls.append(1)
            return self.body(*args, **kwargs)

        self.function = function

    def seen(self):
        return len(self.calls), tuple(self.function.cache_info())


def compare(make, program, *calls, **settings):
    """What is seen after each call, compiled and in eager, and how results are shared."""
    outcomes = []
    for wrap in (lambda f: f, lambda f: pliant.compile(f, **settings)):
        cached = make()
        run = wrap(functools.partial(program, cached.function))
        seen, results = [], []
        for args in calls:
            try:
                results.append(run(*args))
            except Exception as error:
                results.append(type(error))
            seen.append(cached.seen())
        shared = [[a is b for a in results] for b in results]
        outcomes.append((seen, shared))
    assert outcomes[0] == outcomes[1]


def asks_tensor(f, x):
    return f(x)


def asks_twice(f, x):
    y = x + 1
    return f(x), f(y)[0] + f(y)[0] + f(x)[0]


def asks_by_name(f, x):
    return f(x=x)[0] + x, f(1, x=x)


def asks_constant(f, x):
    return f(3)


def asks_constants(f, x):
    return x + f(1)[0] + f(2)[0] + f(1)[0] + f("a", n=2)[0], f(2)


def asks_many(f, x):
    for n in (1, 2, 3, 1, 2, 4, 1):
        x = x + f(n)[0]
    return x


def asks_equal_numbers(f, x):
    return [x + f(n)[0] for n in (1, 1.0, True, "1", (1,))] + [f(1, 2), f(1.0, 2)]


def asks_lists(f, x):
    return f([1])


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("asks_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("maxsize", [None, 128, 2, 1, 0])
@pytest.mark.parametrize("typed", [False, True])
def test_as_eager(program, maxsize, typed):
    calls = [(X,), (X,), (Y,), (X,), (X.clone(),)]
    compare(lambda: Cached(maxsize, typed), program, *calls)


def test_whole_graphs_of_known_arguments():
    compare(Cached, asks_constants, (X,), (X,), (X,), fullgraph=True)
    compare(lambda: Cached(8), asks_constants, (X,), (X,), (X,), fullgraph=True)
    assert pliant.counters["compilations"] == 2


@pytest.mark.parametrize("maxsize", [None, 4])
def test_from_outside(maxsize):
    """Results that were there before, that are cleared, and that are forgotten."""
    for wrap in (lambda f: f, pliant.compile):
        cached = Cached(maxsize)
        before = cached.function(3)
        run = wrap(lambda x, f=cached.function: (x + 1, f(3)))
        assert run(X)[1] is before and run(X)[1] is before
        assert cached.seen()[1][:2] == (2, 1)
        cached.function.cache_clear()
        after = run(X)[1]
        assert after is not before and run(X)[1] is after
        assert cached.seen() == (2, (1, 1, maxsize, 1))
        if maxsize is not None:
            for n in range(10, 10 + maxsize):
                cached.function(n)
            assert run(X)[1] is not after
            assert cached.seen()[1][:2] == (1, 2 + maxsize)


def test_a_link_of_the_cache_that_is_used_again():
    """With room for one, the same slot holds one result after the other."""
    cached = Cached(1)
    run = pliant.compile(lambda x: (x + 1, cached.function(3)))
    results = []
    for _ in range(4):
        results.append(run(X)[1])
        cached.function(4)
    assert len(set(map(id, results))) == 4 and cached.seen()[1][1] == 8


def test_a_cached_tensor_is_the_same_object():
    @functools.cache
    def table(n):
        return torch.zeros(n)

    def program(x):
        table(x.shape[0]).add_(1)
        return table(x.shape[0])

    compiled = pliant.compile(program, dynamic=True)
    for _ in range(3):
        assert compiled(X) is table(4)
        compiled(torch.ones(7))
    assert torch.equal(table(4), torch.full((4,), 3.0))
    assert table.cache_info().misses == 2


def test_numbers_that_are_symbols():
    for wrap in (lambda f: f, functools.partial(pliant.compile, dynamic=True, fullgraph=True)):
        pliant.counters.reset()
        half = functools.lru_cache(4)(lambda n: n // 2)
        run = wrap(lambda x, half=half: x * half(x.shape[0]))
        for size in (4, 6, 4, 10, 12, 14, 16, 4):
            assert torch.equal(run(torch.ones(size)), torch.full((size,), size // 2.0))
        assert half.cache_info() == (1, 7, 4, 4)
    assert pliant.counters["compilations"] == 1


FACTOR = 2


def test_what_a_body_reads_is_read_once(monkeypatch):
    for wrap in (lambda f: f, functools.partial(pliant.compile, dynamic=True)):
        monkeypatch.setitem(globals(), "FACTOR", 2)
        scaled = functools.cache(lambda n: n * FACTOR)
        run = wrap(lambda x, scaled=scaled: x + scaled(x.shape[0]))
        assert torch.equal(run(X), X + 8)
        monkeypatch.setitem(globals(), "FACTOR", 3)
        assert torch.equal(run(X), X + 8)
        assert torch.equal(run(torch.zeros(5)), torch.full((5,), 15.0))


def test_a_body_that_fails():
    def body(n):
        raise ValueError(n)

    def program(f, x):
        try:
            return f(3)
        except ValueError:
            return x + 1

    for wrap in (lambda f: f, pliant.compile):
        cached = Cached(body=body)
        run = wrap(functools.partial(program, cached.function))
        run(X)
        before = len(cached.calls)
        for _ in range(3):
            assert torch.equal(run(X), X + 1)
        assert len(cached.calls) == before + 3


class Thing:
    def __init__(self):
        self.calls = 0

    @functools.lru_cache  # noqa: B019
    def method(self, n):
        self.calls += 1
        return [n]

    @functools.cache  # noqa: B019
    def of_tensor(self, x):
        self.calls += 1
        return x + 1


def test_methods():
    def program(thing, x):
        return thing.method(3), thing.of_tensor(x), x + thing.method(3)[0]

    seen = []
    for wrap in (lambda f: f, pliant.compile):
        Thing.method.cache_clear(), Thing.of_tensor.cache_clear()
        thing, other = Thing(), Thing()
        run = wrap(program)
        first = run(thing, X)
        again = run(thing, X)
        assert first[0] is again[0] and first[1] is again[1]
        assert run(other, X)[0] is not first[0]
        infos = Thing.method.cache_info(), Thing.of_tensor.cache_info()
        seen.append((thing.calls, other.calls, infos))
    assert seen[0] == seen[1]


def test_made_inside():
    def program(x, maxsize, typed):
        calls = []

        @functools.lru_cache(maxsize=maxsize, typed=typed)
        def f(*args):
            calls.append(args)
            return x + len(calls)

        results = [f(n) for n in (1, 1.0, True, 2, 3, 1, 2)] + [f(x), f(x), f(1, 2), f(1.0, 2)]
        return results, len(calls), tuple(f.cache_info())

    for maxsize in (None, 128, 2, 1, 0):
        for typed in (False, True):
            compiled = pliant.compile(program, fullgraph=True)
            expected, got = program(X, maxsize, typed), compiled(X, maxsize, typed)
            assert got[1:] == expected[1:]
            assert all(map(torch.equal, got[0], expected[0]))


def test_made_inside_and_used_outside():
    def program(x):
        f = functools.cache(lambda n: torch.ones(n))
        y = f(3)
        return f, y

    for run in (program, pliant.compile(program)):
        f, y = run(X)
        assert f(3) is y and f.cache_info()[:2] == (1, 1)


def test_nothing_is_kept_alive():
    cached = functools.lru_cache(4)(lambda n: [n])
    assert caches.is_known(cached)
    cached(1), cached(2)
    assert caches.remembered(cached, 1) is cached(1)
    assert caches.remembered(cached, 5) is caches.MISSING
    count = len(caches._parts)
    del cached
    gc.collect()
    assert len(caches._parts) < count
    assert copy.copy(functools.cache(len)).cache_info().misses == 0


def graphs_and_breaks() -> tuple[int, int]:
    return pliant.counters["graphs"], pliant.counters["graph_breaks"]


@pytest.fixture
def cached():
    """A cached function, and the arguments with which its body ran."""
    calls = []

    @functools.lru_cache(maxsize=None)
    def double(n, plus=0):
        calls.append(n)
        return 2 * n + plus

    return double, calls


def test_body_of_a_cached_function_runs_once(cached):
    double, calls = cached
    compiled = pliant.compile(lambda x: x * double(3, plus=1), fullgraph=True)
    for _ in range(3):
        assert torch.equal(compiled(THREE), THREE * 7)
    assert calls == [3]
    assert double(3, plus=1) == 7 and calls == [3]


def test_cleared_cache_is_asked_again(cached):
    double, calls = cached
    compiled = pliant.compile(lambda x: x * double(3))
    compiled(THREE)
    double.cache_clear()
    compiled(THREE)
    assert calls == [3, 3]


def test_cached_object_is_the_same_one():
    @functools.cache
    def mask(n):
        return torch.ones(n)

    compiled = pliant.compile(lambda x: (x + mask(3), mask(3)), fullgraph=True)
    assert compiled(THREE)[1] is compiled(THREE)[1] is mask(3)


def test_cached_function_that_cannot_be_followed():
    @functools.cache
    def depth():
        return os.getcwd().count(os.sep)

    compiled = pliant.compile(lambda x: x * depth(), fullgraph=True)
    assert torch.equal(compiled(THREE), THREE * depth())


def test_cached_function_sees_earlier_writes():
    table = {}

    @functools.cache
    def entry(name):
        return table[name]

    def program(x, value):
        table["a"] = value
        return x * entry("a")

    compiled = pliant.compile(program)
    assert torch.equal(compiled(THREE, 4), THREE * 4)
    assert torch.equal(compiled(THREE, 5), THREE * 4)
    entry.cache_clear()
    assert torch.equal(compiled(THREE, 5), THREE * 5)


def test_cached_function_of_sizes_stays_dynamic():
    @functools.cache
    def half(n):
        return n // 2

    compiled = pliant.compile(lambda x: x * half(x.shape[0]), dynamic=True)
    for size in (4, 6, 10):
        assert torch.equal(compiled(torch.ones(size)), torch.ones(size) * (size // 2))
    assert pliant.counters["compilations"] == 1


def test_warning_once():
    class Log:
        def __init__(self):
            self.lines = []

        @functools.cache  # noqa: B019
        def once(self, message):
            self.lines.append(message)

    log = Log()
    compiled = pliant.compile(lambda x: (log.once("careful"), x + 1)[1], fullgraph=True)
    for _ in range(3):
        compiled(THREE)
    assert log.lines == ["careful"]


def info_of_a_cache(x):
    @functools.lru_cache(maxsize=None)
    def f(n):
        return n * 2

    f(1)
    f(1)
    f(2)
    i = f.cache_info()
    f.cache_clear()
    return x + i.hits + i.misses + i.currsize, f.cache_info(), i.maxsize


def wrapped_by_a_cache(x):
    @functools.lru_cache
    def f(n):
        return n * 2

    return x, f.__wrapped__(3), f.__name__, f.cache_parameters()


@pytest.mark.parametrize("program", [info_of_a_cache, wrapped_by_a_cache])
@pytest.mark.parametrize("dynamic", [None, True])
def test_attributes_of_a_cached_function(program, dynamic):
    check(program, X, dynamic=dynamic)


# ---- tensors: one node that asks the cache


@functools.lru_cache
def squared(x, add=2):
    """Doc."""
    return torch.relu(x * x + add)


SCALE = 3.0


@functools.cache
def scaled(x):
    return x * SCALE


@functools.lru_cache(maxsize=1)
def one_place(x):
    return x + 1


def asked_twice(x):
    first = squared(x)
    return first + squared(x, add=2), squared(x) is first, squared.__doc__, first


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_tensors_in_one_graph(backend) -> None:
    x = torch.tensor([1.0, -2.0])
    squared.cache_clear()
    expected = asked_twice(x)
    counts = squared.cache_info()
    squared.cache_clear()
    compiled = pliant.compile(asked_twice, backend=backend, fullgraph=True)
    result = compiled(x)
    assert squared.cache_info() == counts
    assert torch.equal(result[0], expected[0]) and result[1:3] == expected[1:3]
    x.add_(1)  # the cache keeps what it has
    again = compiled(x)
    assert again[3] is result[3] and torch.equal(again[0], result[0])
    leaf = torch.tensor([1.0, -2.0], requires_grad=True)
    compiled(leaf)[0].sum().backward()
    assert torch.equal(leaf.grad, 4 * leaf.detach())


def test_a_new_tensor_is_never_in_the_cache() -> None:
    compiled = pliant.compile(lambda x: squared(x + 1), fullgraph=True)
    for value in (1.0, 2.0):
        assert compiled(torch.tensor(value)).item() == (value + 1) ** 2 + 2


def test_results_that_depend_on_more_than_tensors(monkeypatch) -> None:
    """What was kept is from another time, when the global may have been another one."""
    x = torch.ones(3)
    scaled.cache_clear()
    compiled = pliant.compile(lambda x: scaled(x) + 1)
    assert torch.equal(compiled(x), x * 3 + 1)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert torch.equal(compiled(x), x * 3 + 1)
    assert torch.equal(compiled(x + 0), x * 5 + 1)


def test_a_cache_that_forgets() -> None:
    def program(x, y):
        first = one_place(x)
        one_place(y)
        return one_place(x) is first, first

    x, y = torch.ones(2), torch.zeros(2)
    assert pliant.compile(program)(x, y)[0] is program(x, y)[0] is False


# ---- objects as arguments


class Counted:
    shared = [1]

    def __init__(self, number):
        self.number = number

    @functools.lru_cache  # noqa: B019
    def add(self, number):
        self.number += number

    @functools.lru_cache  # noqa: B019
    def get(self):
        return self.number

    @functools.cache  # noqa: B019
    def repeated(self, times):
        return [self.number] * times


def new_object(x):
    counted = Counted(4)
    counted.add(3)
    counted.add(3)
    counted.add(2)
    return x + counted.number, counted.repeated(2) is counted.repeated(2)


def two_new_objects(x):
    first, second = Counted(1), Counted(1)
    for counted in (first, second, first):
        counted.add(5)
    return x + first.number * second.number


def new_object_as_keyword(x):
    @functools.cache
    def read(*, counted):
        counted.number += 1
        return counted.number

    counted = Counted(3)
    return x + read(counted=counted) + read(counted=counted)


@pytest.mark.parametrize("program", [new_object, two_new_objects, new_object_as_keyword])
def test_methods_of_objects_made_inside(program):
    x = torch.ones(2)
    assert str(pliant.compile(program, fullgraph=True)(x)) == str(program(x))


def test_an_object_that_leaves_is_known_to_the_cache():
    def program(x):
        counted = Counted(4)
        counted.add(3)
        return x + counted.number, counted

    _, counted = pliant.compile(program)(torch.ones(2))
    counted.add(3)
    assert counted.number == 7


def test_an_object_is_still_known_behind_a_break():
    def program(x):
        counted = Counted(4)
        counted.add(3)
        pliant.graph_break()
        counted.add(3)
        return x + counted.number

    assert pliant.compile(program)(torch.ones(2)).tolist() == [8, 8]


def test_a_small_cache_forgets():
    @functools.lru_cache(maxsize=1)
    def add(counted, number):
        counted.number += number

    def program(x):
        counted = Counted(1)
        for number in (1, 2, 1):
            add(counted, number)
        return x + counted.number

    assert pliant.compile(program)(torch.ones(2)).tolist() == program(torch.ones(2)).tolist()


def writes_before(counted, x):
    counted.number = 10
    return x + counted.get()


def writes_to_a_shared_list(counted, x):
    counted.shared[0] = counted.shared[0] + 1
    return x + first_of(counted)


@functools.lru_cache
def first_of(counted):
    return counted.shared[0]


def reads_before(counted, x):
    before = x + counted.number
    counted.add(3)
    return before + counted.number


def writes_to_the_class(counted, x):
    Counted.limit = 3
    return x + limit_of(1)


@functools.lru_cache
def limit_of(number):
    return Counted.limit + number


@pytest.mark.parametrize(
    "program", [writes_before, writes_to_a_shared_list, reads_before, writes_to_the_class]
)
def test_what_is_remembered_sees_earlier_writes(program):
    def results(function):
        Counted.shared, Counted.limit = [1], 1
        limit_of.cache_clear()
        counted, x = Counted(4), torch.ones(2)
        return [function(counted, x).tolist() for _ in range(3)]

    assert results(pliant.compile(program)) == results(program)
