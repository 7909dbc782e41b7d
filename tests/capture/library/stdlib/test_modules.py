"""Modules of the standard library under capture: what people use of them, and odd uses."""

from __future__ import annotations

import array
import ast
import bisect
import contextvars
import copy
import datetime
import functools
import heapq
import inspect
import io
import json
import random
import re
import string
import threading
import typing

import numpy
import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)
LOCAL = threading.local()
LOCAL.value = 3
OWN = random.Random(7)
T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, value):
        self.value = value


def heaps(x):
    heap = []
    for item in ((3, "c"), (1, "a"), (2, "b")):
        heapq.heappush(heap, item)
    numbers = [5, 1, 4]
    heapq.heapify(numbers)
    taken = heapq.heappop(heap), heapq.heappushpop(numbers, 0), heapq.heapreplace(numbers, 9)
    return x, heap, numbers, taken, heapq.nlargest(2, [1, 3, 2]), list(heapq.merge([1, 3], [2]))


def bisections(x):
    numbers = [1, 3, 5]
    bisect.insort(numbers, 4)
    by_key = bisect.bisect_left([(1, 2), (3, 4)], 3, key=lambda pair: pair[0])
    return x * bisect.bisect(numbers, 3), bisect.bisect_left(numbers, 3), numbers, by_key


def dates(x):
    day = datetime.date(2020, 2, 28) + datetime.timedelta(days=2)
    return x + day.day, datetime.datetime(2020, 1, 1).isoformat(), day > datetime.date(2020, 1, 1)


def text(x):
    return (
        x + 1,
        json.dumps({"a": [1, 2.5, None]}, sort_keys=True),
        json.loads('{"a": [1]}'),
        ast.literal_eval("[1, (2, 3)]"),
        re.sub(r"\d", lambda match: match.group() * 2, "a1b2"),
        re.compile("x(.)").sub(lambda match: match[1].upper(), "xaxb", 1),
        string.Template("$a ${b}").substitute(a=1, b="c"),
    )


def generics(x):
    def same(value: T) -> T:
        return value

    return Box[int](x).value, same(x), Box[int](1).__orig_class__, list[int]([1, 2])


def locks(x):
    lock, again = threading.Lock(), threading.RLock()
    with lock, again, again:
        held = lock.locked()
    return x + 1, held, lock.locked()


def thread_locals(x):
    return x + LOCAL.value


def signatures(x):
    def f(a, b=1, *args, c=2, **kwargs):
        return a

    return x, inspect.unwrap(wrapped).__name__, list(inspect.signature(heaps).parameters), f(x)


@functools.wraps(heaps)
def wrapped(x):
    return x


def evaluated(x):
    y = x + 1
    names = {"x": x}
    exec("z = x * 2", {}, names)
    code = compile("1 + 2", "<s>", "eval")
    own = {}
    exec("a = 1\nb = a + 2", own)
    return eval("y * 2"), names["z"], eval(code), eval("a + b", {"a": 1, "b": x}), own["b"]


def missing_import(x):
    try:
        import no_module_of_this_name  # noqa: F401
    except ImportError as error:
        return x + 1, error.name, str(error)


def generated_names(x):
    def f(a: int, b="z", *, c=x) -> float:
        return a

    f.__name__, f.__doc__, f.__defaults__ = "g", "text", (5,)
    f.__annotations__["d"] = str
    inner = f.__closure__
    return f.__name__, f.__doc__, f(1), f.__kwdefaults__["c"], f.__annotations__, inner


def bound_methods(x):
    box, other = Counted(), Counted()
    table = {box.add: 1}
    return box.add == box.add, box.add != other.add, table.get(box.add), table.get(other.add), x


class Counted:
    def add(self):
        return 1


def copies(x):
    y = copy.deepcopy({"a": [x, x], "b": x + 1})
    return y, y["a"][0] is y["a"][1], copy.copy([x])


@pytest.mark.parametrize(
    "program",
    [
        heaps, bisections, dates, text, generics, locks, thread_locals, signatures, evaluated,
        missing_import, generated_names, bound_methods, copies,
    ],
)  # fmt: skip
def test_library(program):
    check(program, X)


def test_function_that_refers_to_itself_is_one_function():
    def f(x):
        def power(n):
            return x if n == 0 else power(n - 1) * x

        return power, power(2)

    check(f, X)


# ---- calls that do not fit


def test_arguments_that_do_not_fit_raise_as_in_eager():
    def takes(a, /, b, *, c=3):
        return a + b + c

    def f(x):
        texts = []
        for action in (
            lambda: takes(a=x, b=1),
            lambda: takes(x),
            lambda: takes(x, 1, 2),
            lambda: takes(x, 1, d=3),
            lambda: takes(x, 1, **{"b": 2}),
            lambda: takes(),
        ):
            try:
                action()
            except TypeError as error:
                texts.append(str(error))
        return x + 1, texts

    check(f, X)


# ---- random numbers


def numbers_drawn(x):
    low = random.randint(1, 6)
    random.random()
    drawn = [random.gauss(0, 1), random.choice([1, 2, 3]), *random.sample(range(9), 3)]
    return x * random.random() + low, drawn, OWN.uniform(1, 2)


def generator_made(x):
    own = random.Random(3)
    return x + own.random(), own.randint(1, 9)


def seeded(x):
    random.seed(5)
    return x * random.random()


def from_numpy(x):
    return x * numpy.random.rand() + numpy.random.randint(5), numpy.random.normal(1.0, 2.0)


@pytest.mark.parametrize("program", [numbers_drawn, generator_made, seeded, from_numpy])
@pytest.mark.parametrize("dynamic", [None, True])
def test_random_numbers_are_drawn_at_each_call(program, dynamic):
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic)
    _same_draws(program, compiled)
    assert pliant.counters["compilations"] >= 1


def test_branch_on_a_random_number():
    def f(x):
        y = x * random.random()
        if random.random() < 0.5:
            return y + random.random()
        values = [1, 2, 3]
        random.shuffle(values)
        return y, values

    _same_draws(f, pliant.compile(f))


def _same_draws(program, compiled):
    for seed in range(4):
        outcomes = []
        for function in (program, compiled):
            random.seed(seed)
            OWN.seed(seed)
            numpy.random.seed(seed)
            result = function(X)
            states = random.getstate(), OWN.getstate(), numpy.random.get_state()[1].tolist()
            outcomes.append((str(result), states))
        assert outcomes[0] == outcomes[1]


def test_failing_graph_leaves_the_generator_as_eager_does():
    def f(x, index):
        first = random.random()
        return x[index] * first, random.random()

    compiled = pliant.compile(f)
    compiled(X, torch.tensor(1))
    states = []
    for function in (f, compiled):
        random.seed(0)
        with pytest.raises(IndexError):
            function(X, torch.tensor(7))
        states.append(random.getstate())
    assert states[0] == states[1]


# ---- buffers, context variables, odd attributes

CONTEXT = contextvars.ContextVar("CONTEXT", default=2)


def buffers(x):
    held = bytearray(b"abc")
    held[0] = 65
    held += b"z"
    del held[1]
    stream = io.StringIO()
    stream.write("a\n")
    numbers = array.array("i", [1, 2])
    numbers.append(3)
    return x + len(held), held, bytes(held), stream.getvalue(), numbers.tolist(), b"z" in held


def changed_class(x):
    thing = Counted()
    thing.value = x
    thing.__class__ = Other
    return thing.twice(), type(thing) is Other, thing


class Other:
    def twice(self):
        return self.value * 2


def generator_attributes(x):
    made = (row for row in x)
    before = made.gi_running, made.__name__
    list(made)
    return before, made.gi_frame is None, inspect.getattr_static(Other(), "twice", None) is not None


bases_of = type.__dict__["__mro__"].__get__


def getter_of_a_descriptor(x):
    return x + len(bases_of(Other)), bases_of(Other)[1] is object


@pytest.mark.parametrize(
    "program", [buffers, changed_class, generator_attributes, getter_of_a_descriptor]
)
def test_odd_objects(program):
    check(program, X)


def test_context_variable_that_changes():
    compiled = pliant.compile(lambda x: x * CONTEXT.get(), fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    token = CONTEXT.set(5)
    assert torch.equal(compiled(X), X * 5)
    CONTEXT.reset(token)
    assert torch.equal(compiled(X), X * 2)


# ---- the state of random


def test_states_of_generators_are_passed_along():
    def function(x, first, second):
        made = random.Random(9002)
        second.setstate(made.getstate())
        first.seed(42)
        before = first.getstate()
        numbers = first.random(), second.randint(1, 10), made.uniform(0, 1)
        first.setstate(before)
        return x + numbers[0] + numbers[1] + numbers[2], before

    compiled = pliant.compile(function, fullgraph=True)
    for _ in range(2):
        outcomes = []
        for each in (function, compiled):
            first, second = random.Random(1), random.Random(2)
            result, before = each(X, first, second)
            outcomes.append((result.tolist(), before, first.getstate(), second.getstate()))
        assert outcomes[0] == outcomes[1]


def test_state_from_outside():
    def function(x, state):
        random.setstate(state)
        return x + random.random()

    compiled = pliant.compile(function, fullgraph=True)
    for seed in (3, 4):
        state = random.Random(seed).getstate()
        assert torch.equal(compiled(X, state), function(X, state))
