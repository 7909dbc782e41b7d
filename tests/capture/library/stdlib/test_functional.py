"""The operator and functools modules, sorting, collections, regular expressions."""

import collections
import functools
import numbers
import operator
import re
import types

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


@program
def operators(x):
    return (
        operator.add(x, 1),
        operator.mul(2, 3),
        operator.neg(x),
        operator.lt(1, 2),
        operator.pow(2, 3),
    )


@program
def more_operators(x):
    return (
        operator.not_(0),
        operator.truth([]),
        operator.is_(x, x),
        operator.is_not(x, 1),
        operator.inv(3),
    )


@program
def item_operators(x):
    return operator.contains([1, 2], 2), operator.getitem([1, x], 1), operator.countOf([1, 1], 1)


@program
def sequence_operators(x):
    return operator.concat([1], [x]), operator.indexOf([5, 6], 6), operator.length_hint([1, 2])


@program
def inplace_operators(x):
    a = [1]
    b = operator.iadd(a, [2])
    operator.setitem(b, 0, 9)
    operator.delitem(b, 1)
    return a, a is b, operator.call(len, a), operator.matmul(x, x.t())


@program
def concat_of_numbers(x):
    return operator.concat(1, 2)


@program
def index_of_missing(x):
    return operator.indexOf([1], 2)


@program
def getters(x):
    d = {"a": 1, "b": x}
    n = types.SimpleNamespace(a=types.SimpleNamespace(b=4), c=5)
    return (
        operator.itemgetter("b")(d),
        operator.itemgetter("a", "b")(d),
        operator.attrgetter("a.b", "c")(n),
    )


@program
def method_callers(x):
    return operator.methodcaller("sum", 0)(x), operator.methodcaller("sum", dim=1)(x)


SECOND, SHAPE, ROWS = (
    operator.itemgetter(1),
    operator.attrgetter("shape"),
    operator.methodcaller("sum", 1),
)


@program
def getters_from_outside(x):
    return SECOND([1, 2]), SHAPE(x), ROWS(x), sorted([(1, 3), (2, 0)], key=SECOND)


@program
def attrgetter_of_number(x):
    return operator.attrgetter(3)


@program
def partial_application(x):
    f = functools.partial(torch.add, x, alpha=2)
    g = functools.partial(f, 1)
    return g(), g.func is torch.add, len(g.args), g.keywords, g(alpha=3)


@program
def partial_of_number(x):
    return functools.partial(3)


@program
def reduction(x):
    return functools.reduce(lambda a, b: a + b, [x, 1, 2]), functools.reduce(
        operator.mul, (2, 3), 4
    )


@program
def reduction_of_nothing(x):
    return functools.reduce(operator.add, [])


@program
def comparison_keys(x):
    return sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@functools.lru_cache(None)
def doubled(n):
    return n * 2


class Cached:
    @functools.lru_cache  # noqa: B019
    def next(self, n):
        return n + 1

    @functools.cached_property
    def eight(self):
        return 8

    def difference(self, a, b):
        return a - b

    from_ten = functools.partialmethod(difference, 10)


CACHED = Cached()


@program
def cached_functions(x):
    c = CACHED
    return x * doubled(3), x * c.next(3), c.eight + c.eight, c.from_ten(3)


@program
def cache_made_inside(x):
    calls = []

    @functools.lru_cache
    def f(n):
        calls.append(n)
        return n * 2

    return f(3) + f(3) + f(n=3) + x, calls


@program
def decorators(x):
    def deco(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) + 1

        return inner

    @deco
    def g(v):
        "doc"
        return v * 2

    return g(x), g.__name__, g.__doc__


@program
def sorting(x):
    return (
        sorted([3, 1, 2]),
        sorted([3, 1], reverse=True),
        sorted(["bb", "a"], key=len),
        sorted({"b": 1, "a": 2}),
    )


@program
def sorting_a_mixture(x):
    return sorted([1, "a"])


@program
def counting(x):
    c = collections.Counter("abracadabra")
    d = collections.Counter(a=1) + collections.Counter(a=2, b=1)
    return c["a"], c["zz"], c.most_common(1), dict(d), x * c.total()


@program
def deques(x):
    d = collections.deque([1, 2, 3], maxlen=2)
    d.append(x)
    return d, len(d), d.maxlen, collections.deque()


@program
def negative_maxlen(x):
    return collections.deque([], -1)


@program
def default_dicts(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    return dict(d), d["b"], collections.defaultdict(int, a=1), d


@program
def default_dict_of_number(x):
    return collections.defaultdict(3)


@program
def ordered_dicts(x):
    d = collections.OrderedDict([("a", x), ("b", 2)])
    d.move_to_end("a")
    return list(d), d["a"], d


@program
def chain_maps(x):
    return collections.ChainMap({"a": x}, {"a": 1, "b": 2})["b"]


@program
def regular_expressions(x):
    match = re.match(r"(\w)(\d+)", "a12")
    return (
        x,
        match.group(1),
        match.groups(),
        re.sub("a", "b", "aXa"),
        re.compile("z").search("xz").start(),
    )


@program
def all_matches(x):
    return (
        [match.group() for match in re.finditer(r"\d", "1a2")],
        re.findall("a.", "abac"),
        re.match("q", ""),
    )


@program
def bad_pattern(x):
    try:
        re.compile("(")
    except re.error as error:
        return str(error)


@pytest.mark.parametrize("function", PROGRAMS)
def test_same_as_eager(check, function):
    check(function, X)


@functools.singledispatch
def twice_the_leaves(value):
    raise NotImplementedError(type(value).__name__)


@twice_the_leaves.register
def _(value: torch.Tensor):
    return value * 2


@twice_the_leaves.register(collections.abc.Mapping)
def _(value):
    return {key: twice_the_leaves(item) for key, item in value.items()}


@twice_the_leaves.register(list)
@twice_the_leaves.register(tuple)
def _(value):
    return type(value)(twice_the_leaves(item) for item in value)


@twice_the_leaves.register(numbers.Integral)
def _(value):
    return value + 100


def test_dispatch_on_abstract_classes():
    def program(x):
        try:
            twice_the_leaves([1.5])
        except NotImplementedError as error:
            return (
                twice_the_leaves({"a": [x, (x, True)], "b": 3}),
                str(error),
                twice_the_leaves.dispatch(int)(4),
            )

    check(program, X, compilations=1)


def test_dispatch_notices_classes_that_are_registered_later():
    class Late:
        pass

    def program(x, late):
        try:
            return twice_the_leaves(late)
        except NotImplementedError:
            return x

    compiled = pliant.compile(program, fullgraph=True)
    assert compiled(X, Late()) is X
    Late.items = lambda self: [("k", X)]
    collections.abc.Mapping.register(Late)
    assert compiled(X, Late()).keys() == program(X, Late()).keys() == {"k"}


def test_dispatch_made_inside():
    def program(x):
        @functools.singledispatch
        def size(value):
            return 0

        @size.register(collections.abc.Sequence)
        def _(value):
            return len(value)

        return x + size([1, 2]), size({})

    check(program, X)


def test_getter_from_outside_is_assumed_to_be_the_same():
    compiled = pliant.compile(lambda x, get: x + get([10, 20]), backend="eager", fullgraph=True)
    assert compiled(torch.zeros(()), operator.itemgetter(0)) == 10
    assert compiled(torch.zeros(()), operator.itemgetter(1)) == 20


# ---- objects derived from functools.partial


class Slotted(functools.partial):
    __slots__ = "func"

    def __init__(self, func):
        self.func = func

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self.func, instance)


class Counted(functools.partial):
    def __init__(self, *args, **kwargs):
        self.calls = 0

    def __call__(self, *args):
        self.calls += 1
        return super().__call__(*args)


def scaled(factor, x):
    """Multiply."""
    return x * factor


def test_partial_subclass_with_a_slot():
    def f(x):
        twice = functools.update_wrapper(Slotted(functools.partial(scaled, 2)), scaled, updated=())
        return twice(x), twice.__name__, twice.__doc__, twice.__wrapped__ is scaled, twice

    check(f, torch.ones(2))


def test_partial_subclass_with_a_call_of_its_own():
    def f(x):
        counted = Counted(scaled, 3)
        y = counted(x) + counted(x)
        return y, counted.calls, counted, functools.partial(counted, x).func is counted

    check(f, torch.ones(2))


def test_partial_of_a_partial():
    class Plain(functools.partial):
        pass

    def f(x):
        inner = Plain(scaled, 3)
        outer = functools.partial(inner, x)
        inner.note = 1
        kept = functools.partial(inner, x)
        return outer(), outer.func is scaled, kept.func is inner, inner.note, kept()

    check(f, torch.ones(2))


def test_partials_from_outside_have_attributes():
    made = functools.partial(scaled, 2)
    made.label = "twice"
    counted = Counted(scaled, 3)
    slotted = Slotted(scaled)

    def f(x):
        return made(x), made.label, counted(x), counted.calls, slotted(5, x), slotted.func is scaled

    compiled = pliant.compile(f, fullgraph=True)
    for calls in (1, 2, 3):
        assert str(compiled(torch.ones(2))) == str(
            (
                torch.full((2,), 2.0),
                made.label,
                torch.full((2,), 3.0),
                calls,
                torch.full((2,), 5.0),
                True,
            )
        )
    assert counted.calls == 3
    made.label = "double"
    assert compiled(torch.ones(2))[1] == "double"


def test_slot_of_a_partial_that_is_not_its_function():
    odd = Slotted(scaled)
    odd.func = torch.relu

    def f(x):
        return odd(2, x)

    check(f, torch.ones(2), breaks=None)


# ---- calls that Python refuses


WRONG_CALLS = [
    lambda x: operator.neg(x, x),
    lambda x: operator.pos(1, 2),
    lambda x: operator.neg(a=x),
    lambda x: operator.add(x, 1, 2),
    lambda x: operator.add(x),
    lambda x: operator.iadd(x, 1, 2),
    lambda x: operator.lt(x, 1, 2),
    lambda x: operator.lt(1, b=2),
    lambda x: operator.invert(),
    lambda x: operator.not_(x, x),
    lambda x: vars(1, 2),
]


@pytest.mark.parametrize("number", range(len(WRONG_CALLS)))
def test_wrong_number_of_arguments(number):
    wrong = WRONG_CALLS[number]

    def f(x):
        y = x + 1
        try:
            return wrong(y)
        except TypeError as error:
            return y, str(error)

    check(f, X, breaks=None)
    check(lambda x: wrong(x + 1), X, breaks=None)


# ---- objects that are indices


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


class Few(Index):
    """A sequence too, which it is for PyTorch."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (1, 0)[i]


def test_objects_as_indices_of_tensors():
    def f(x, i):
        y = x.clone()
        y[i] = 7
        y[0, i] = 8
        y[i:, 0] = 9
        return y, x[i], x[i, 0], x[..., i], x[:i], x[::i], x[i:, i], x[None, i], x[(i,)]

    check(f, X, Index(1))
    compiled = pliant.compile(lambda x, i: x[i] + 1, backend="eager", fullgraph=True)
    for i in (0, 1, -1, 0):
        assert torch.equal(compiled(X, Index(i)), X[i] + 1)


def test_indices_that_are_sequences_or_wrong():
    check(lambda x, i: x[i], X, Few(1), breaks=None)
    check(lambda x, i: x[i], X, Index(5), breaks=None)
    check(lambda x, i: x[i], X, Index("a"), breaks=None)
    check(lambda x, i: x[i], X, object(), breaks=None)
