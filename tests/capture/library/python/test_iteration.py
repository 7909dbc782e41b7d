"""Iterators: of containers, of built-in functions, of itertools, and made anew in residual code."""

import itertools
import operator  # noqa: F401
import re
from collections import OrderedDict, deque  # noqa: F401

import pytest
import torch

import pliant
from tests.support.against_eager import check, same

X = torch.arange(6.0).reshape(2, 3)


class Indexed:
    """Iterable by `__getitem__` alone."""

    def __init__(self, items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]


class Sized(Indexed):
    def __len__(self):
        return len(self.items)


class Countdown:
    def __init__(self, start):
        self.left = start

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        return self.left


class Irreversible(dict):
    __reversed__ = None


def add(a, b):
    return a + b


def check_expression(expression: str) -> None:
    check(eval(f"lambda x, xs, d, n: ({expression})", globals()), X, [X, 1, 2], {"a": X, "b": 3}, 3)


@pytest.mark.parametrize(
    "expression",
    [
        "[v + 1 for v in xs], [k for k in d], [v * 2 for v in d.values()], [k for k, "
        "v in d.items()]",
        "list(range(n)), list(range(5, 0, -2)), [i for i in reversed(range(n))], "
        "list(iter('abc')), list(b'ab')",
        "list(zip(xs, 'ab')), list(zip()), list(zip(xs)), [a for a, b in zip(xs, range(n), "
        "strict=True)]",
        "list(enumerate(xs)), list(enumerate('ab', 5)), list(enumerate(d, start=n)), "
        "dict(enumerate(xs))",
        "list(map(lambda v: v + 1, xs)), list(map(add, [1, 2], [x, 4, 5])), list(map(str, [1, 2]))",
        "list(filter(None, [0, 1, '', 'a'])), list(filter(lambda v: v > 1, [1, 2, 3]))",
        "list(reversed(xs)), list(reversed((1, x))), list(reversed(Sized([1, x]))), "
        "list(reversed('ab'))",
        "list(Indexed([x, 1])), [v for v in Indexed('ab')], 2 in Indexed([1, 2]), "
        "list(Countdown(3))",
        "list(iter(iter([3, 2, 0, 1]).__next__, 0)), sum(Countdown(4)), next(iter(xs)), "
        "next(iter([]), 5)",
        "(lambda it: (next(it), next(it), list(it), list(it)))(iter(xs))", "iter(xs) is iter(xs)",
        "(lambda it: iter(it) is it)(iter(xs)), (lambda it: iter(it) is it)(zip(xs))",
        "next(zip(xs, xs))", "a if (a := [*zip(*[(1, x), (2, x + 1)])]) else 0",
        "max(map(len, ['a', 'bc'])), sorted(zip('ba', xs))[0][0]",
        "dict(zip('ab', xs)), list(zip(*d.items())), tuple(map(operator.add, [1], [x]))",
        "any(v is x for v in xs), all(map(bool, [1, 0])), (*range(n),), [*map(abs, [-1])], "
        "{*'ab'} == set('ab')",
    ],
)  # fmt: skip
def test_builtin_iterators(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "chain(xs, 'ab', d)", "chain()", "chain.from_iterable([xs, (1,)])",
        "chain.from_iterable(v for v in [[1], [x]])", "islice(xs, 2)", "islice(xs, 1, None)",
        "islice(count(), 2, 9, 3)", "islice(xs, 0)", "islice(xs, 1, 2)", "islice(count(n), 3)",
        "islice(count(1.5, 0.5), 3)", "islice(count(step=-1), 3)", "islice(cycle(xs), 7)",
        "cycle([])", "repeat(x, 2)", "repeat(x, times=0)", "islice(repeat(1), 3)", "repeat(1, -2)",
        "accumulate([1, 2, 3])", "accumulate(xs, add)",
        "accumulate([1, 2], operator.mul, initial=x)", "accumulate([])",
        "accumulate([], initial=4)", "starmap(add, [(1, 2), (x, 3)])", "starmap(max, [[1, 2]])",
        "takewhile(lambda v: v < 3, [1, 2, 3, 1])", "dropwhile(lambda v: v < 3, [1, 2, 3, 1])",
        "filterfalse(None, [0, 1])", "filterfalse(lambda v: v % 2, range(4))",
        "compress(xs, [1, 0, 1])", "compress('abc', [True])", "zip_longest(xs, 'ab', fillvalue=x)",
        "zip_longest('a', 'bc')", "zip_longest()", "pairwise(xs)", "pairwise([1])",
        "product(xs, 'ab')", "product([0, 1], repeat=2)", "product()", "permutations(xs)",
        "permutations(range(3), 2)", "combinations(xs, 2)", "combinations(xs, 5)",
        "combinations_with_replacement('ab', 2)",
        "((k, list(g)) for k, g in groupby([1, 1, 2, x.ndim, 1]))",
        "((k, list(g)) for k, g in groupby('aAb', str.lower))",
        "(k for k, g in groupby([1, 1, 2]))",
        "[list(g) for g in [g for k, g in groupby([1, 1, 2])]]", "(list(t) for t in tee(xs))",
        "tee(xs, 0)", "(list(t) for t in tee(iter(xs), 3))",
        "(lambda a, b: [next(a), next(b), next(a), *b, *a])(*tee(xs))",
    ],
)  # fmt: skip
def test_itertools(expression):
    names = {name: getattr(itertools, name) for name in dir(itertools) if not name.startswith("_")}
    function = eval(f"lambda x, xs, d, n: list({expression})", {**globals(), **names})
    check(function, X, [X, 1, 2], {"a": X, "b": 3}, 3)


@pytest.mark.parametrize(
    "arguments", ["", "3", "1, 2", "1.5", "1, 1.0", "1, True", "True, 1", "-2, -1", "2**70"]
)
def test_counters_are_shown(arguments):
    def shown(x):
        counter = eval_count()
        next(counter)
        return x, repr(counter), str(counter), f"{counter!r}"

    eval_count = eval(f"lambda: itertools.count({arguments})", globals())
    check(shown, X)


@pytest.mark.skipif(not hasattr(itertools, "batched"), reason="new in Python 3.12")
def test_batched():
    check_expression("list(itertools.batched(xs, 2))")
    check_expression("itertools.batched(xs, 0)")


@pytest.mark.parametrize(
    "expression",
    [
        "list(zip([1], [2, 3], strict=True))", "list(zip([1, 2], [2], strict=True))", "zip(1)",
        "zip(xs, 1)", "list(zip([1], [2], [3, 4], strict=True))",
        "list(zip([1, 2], [2, 3], [3], strict=True))", "iter(1, 2)", "enumerate(1)",
        "enumerate(xs, 'a')", "map(abs)", "map(None, 1)", "reversed({1})", "reversed(1)", "iter(1)",
        "next(xs)", "next(iter([]))", "next(Countdown(0))", "list(map(1, xs))",
        "reversed(Irreversible())", "itertools.islice(xs, -1)", "itertools.islice(xs, 'a')",
        "itertools.islice(xs, 1, 2, 0)", "itertools.count('a')", "itertools.islice(xs, 1, -2)",
        "itertools.repeat(1, 'a')", "itertools.combinations(xs, -1)",
        "itertools.product(xs, repeat=-1)", "itertools.tee(xs, -1)", "list(itertools.chain(1))",
        "itertools.zip_longest(xs, 2)", "next(itertools.starmap(add, [1]))",
        "itertools.permutations(xs, 'a')", "itertools.accumulate(1)", "itertools.cycle(1)", "[*1]",
        "[a for a, b in xs[1:]]", "list(map(add, [1], ['a']))", "itertools.islice(xs)",
    ],
)  # fmt: skip
def test_errors(expression):
    check_expression(expression)


ADVANCED = [
    "iter(xs)", "iter((x, 1, 2, 3))", "iter('abcd')", "iter(range(4))", "reversed(xs)",
    "reversed((1, x, 3))", "iter(deque(xs))", "reversed(deque(xs))", "iter(d)", "iter(d.values())",
    "iter(d.items())", "reversed(d)", "iter(OrderedDict(d))", "reversed(d.items())",
    "iter({1: x, 2: 3})", "iter(Indexed(xs))", "reversed(Sized(xs))",
    "iter(iter([1, 2, 3, 0]).__next__, 0)", "zip(xs, range(4))", "zip(xs, xs, strict=True)",
    "enumerate(xs, 3)", "map(add, xs, xs)", "filter(None, [0, 1, 2, 3])", "itertools.chain(xs, xs)",
    "itertools.chain(iter(xs), 'ab')", "itertools.chain.from_iterable([xs, 'ab'])",
    "itertools.islice(itertools.count(), 1, 12, 3)", "reversed(range(5))",
    "itertools.islice(itertools.count(2, 3), 5)", "itertools.islice(itertools.cycle('ab'), 6)",
    "iter(b'abcd')", "itertools.islice(xs, 1, None)", "itertools.repeat(x, 4)",
    "itertools.accumulate(xs)", "itertools.accumulate(xs, add)",
    "itertools.accumulate([1, 2, 3], initial=x)",
    "itertools.starmap(add, [(1, x), (2, x), (3, x)])",
    "itertools.takewhile(lambda v: v < 3, [0, 1, 2, 3])",
    "itertools.dropwhile(lambda v: v < 2, [1, 2, 3, 1])",
    "itertools.filterfalse(None, [0, '', ()])", "itertools.compress(xs, [1, 1, 1])",
    "itertools.pairwise([1, x, 3, 4])", "itertools.zip_longest(xs, 'a', fillvalue=x)",
    "itertools.product(xs, 'ab')", "itertools.permutations(xs)", "itertools.combinations(xs, 2)",
    "itertools.combinations_with_replacement('ab', 2)", "itertools.tee(xs)[1]",
]  # fmt: skip


@pytest.mark.parametrize("steps", [0, 1, 2, 9])
@pytest.mark.parametrize("expression", ADVANCED)
def test_iterator_that_is_returned(expression, steps):
    """Residual code makes the iterator in the state that it has reached."""
    taken = f"[next(it, None) for _ in range({steps})]"
    source = f"lambda x, xs, d, add: (lambda it: ({taken}, it))({expression})"
    function = eval(source, globals())
    compiled = pliant.compile(function, backend="eager", fullgraph=True)
    args = (X, [X, 1, 2], {"a": X, "b": 3, "c": 4}, add)
    for _ in range(2):
        (taken, mine), (wanted, theirs) = compiled(*args), function(*args)
        if steps < 9:  # once it has ended, any iterator without items does
            assert type(mine) is type(theirs)
        same((taken, list(mine)), (wanted, list(theirs)))


def test_set_iterator_that_is_returned():
    def f(x):
        it = iter({"p", "q", "r"})
        return next(it), it

    first, rest = pliant.compile(f, backend="eager", fullgraph=True)(X)
    assert {first, *rest} == {"p", "q", "r"}


def test_shared_iterators_stay_shared():
    def f(x, xs):
        it = iter(xs)
        next(it)
        a, b = itertools.tee(it)
        next(a)
        return it, a, b, zip(it, it)

    it, a, b, pairs = pliant.compile(f, backend="eager", fullgraph=True)(X, [1, 2, 3, 4, 5, 6])
    assert list(b) == [2, 3, 4, 5, 6]
    assert list(a) == [3, 4, 5, 6]
    assert list(it) == list(pairs) == []


def test_returned_iterator_is_live():
    def f(x, xs):
        it = iter(xs)
        next(it)
        return x + 1, it

    xs = [1, 2]
    _, it = pliant.compile(f, backend="eager", fullgraph=True)(X, xs)
    xs.append(3)
    assert list(it) == [2, 3]


@pytest.mark.parametrize(
    "iterable",
    ["xs", "zip(xs, xs)", "enumerate(xs)", "map(add, xs, xs)", "d.items()", "reversed(xs)",
     "itertools.pairwise(xs)", "itertools.chain(xs, xs)", "range(3)", "itertools.product(xs, xs)"],
)  # fmt: skip
def test_break_inside_a_loop(iterable):
    """After a graph break in its body, a loop goes on with the iterator where it was."""
    source = f"""
def f(x, xs, d):
    seen = []
    for item in {iterable}:
        seen.append(item)
        x = x + 1
        pliant.graph_break()
        x = x * 2
    return x, seen
"""
    namespace = dict(globals())
    exec(source, namespace)
    function = namespace["f"]
    args = (X, [X, 1, 2], {"a": X, "b": 3})
    same(pliant.compile(function, backend="eager")(*args), function(*args))


def test_generator_in_adapters():
    def numbers(x):
        for i in range(4):
            yield x + i

    def f(x):
        first, *rest = itertools.islice(numbers(x), 3)
        total = sum(v for _, v in zip(range(2), numbers(x)))
        return first, rest, total, list(map(lambda v: v * 2, numbers(x)))

    check(f, X)


def test_exception_in_map():
    def f(x):
        def fail(v):
            if v == 2:
                raise ValueError("two")
            return x + v

        it = map(fail, [1, 2, 3])
        seen = [next(it)]
        try:
            next(it)
        except ValueError as error:
            seen.append(str(error))
        return [*seen, *it]

    check(f, X)


class NotIterable:
    def __iter__(self):
        return 3


@pytest.mark.parametrize(
    "use",
    [list, iter, lambda each: [*each], lambda each: [0 for _ in each], lambda each: 1 in each],
)
def test_what_iter_gives_has_to_be_an_iterator(use):
    def function(x):
        try:
            use(NotIterable())
        except TypeError as error:
            return x + 1, str(error)

    check(function, X)


class Counted:
    """Says how often it was asked for an iterator."""

    def __init__(self):
        self.asked = 0

    def __iter__(self):
        self.asked += 1
        return iter([1, 2, 3])


def test_unpacking_asks_for_one_iterator():
    def f(x, counted):
        first, *rest = counted
        return x + first, rest

    check(f, X, Counted())


class Refusing:
    def __iter__(self):
        raise TypeError("not today")


def test_errors_of_an_iterator_of_ones_own_stay():
    def f(x, refusing):
        first, *_ = refusing
        return x + first

    check(f, X, Refusing())
    check(f, X, torch.tensor(1.0), breaks=None)
    check(lambda x, refusing: (lambda *args: x)(*refusing), X, Refusing())


class Doubled(list):
    def __iter__(self):
        return iter([item for item in self[:] for _ in range(2)])


def test_arguments_come_from_the_iterator_of_a_list():
    check(lambda x, items: (lambda *args: args)(*items), X, Doubled([1, 2]))


def test_matches_have_items_and_no_iterator():
    match = re.match("(a)(b)", "ab")
    check(lambda x: (list(match), x), X, breaks=None)


def hints(x):
    begun, ended = iter([1, 2, 3]), iter([])
    next(begun)
    next(ended, None)
    iterators = begun, ended, iter((1, 2)), reversed([1, 2]), itertools.repeat(1, 4), enumerate([1])
    return [operator.length_hint(iterator, 7) for iterator in iterators], x


def endless_hint(x):
    return operator.length_hint(itertools.repeat(1))


def texts(x):
    return repr(itertools.repeat("a", 3)), repr(itertools.repeat([1])), x


@pytest.mark.parametrize("program", [hints, endless_hint, texts])
def test_iterators_say_what_is_left(program):
    check(program, X)
