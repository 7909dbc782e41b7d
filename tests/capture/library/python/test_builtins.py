"""Built-in functions that belong to no type, and what breaks the graph with a cause of its own."""

import logging
import os
import time
import types
import warnings
import weakref

import pytest
import torch

import pliant

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


class Point:
    def __init__(self, a):
        self.a = a

    @property
    def twice(self):
        return self.a * 2

    def __repr__(self):
        return f"Point({self.a!r})"


class Sized:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __hash__(self):
        return 1 << 70

    def __call__(self, x):
        return x


@program
def getattr_and_hasattr(x):
    p = Point(3)
    return (
        x + getattr(p, "a"),
        getattr(p, "b", 5),
        hasattr(p, "a"),
        hasattr(p, "b"),
        getattr(x, "ndim"),
    )


@program
def getattr_of_missing(x):
    return getattr(Point(1), "missing")


@program
def getattr_by_number(x):
    return getattr(Point(1), 3)


@program
def setattr_and_delattr(x):
    p = Point(3)
    setattr(p, "c", x)
    y = p.c + 1
    delattr(p, "a")
    return y, hasattr(p, "a"), p.__dict__.keys() == {"c"}


@program
def delattr_of_missing(x):
    del Point(3).missing


@program
def setattr_of_property(x):
    Point(3).twice = 4


@program
def variables(x):
    p = Point(3)
    vars(p)["z"] = x
    p.__dict__.update(q=4)
    return p.z, p.q, "z" in vars(p), list(vars(p))


@program
def vars_of_number(x):
    return vars(3)


@program
def local_variables(x):
    y = x + 1
    z = 3
    return locals(), sorted(locals()), sorted(dir()), y


@program
def global_variables(x):
    return globals()["X"] is X, "nowhere" in globals(), x


@program
def listing(x):
    return dir(Point(1)) == sorted([*dir(Point), "a"]), "append" in dir([]), "sqrt" in dir(types)


@program
def lengths(x):
    return (
        len(x),
        len([1, 2]),
        len("abc"),
        len({1: 2}),
        len(Sized(7)),
        len(x.shape),
        len(Sized(True)),
    )


@program
def len_of_number(x):
    return len(3)


@program
def negative_len(x):
    return len(Sized(-1))


@program
def len_of_text(x):
    return len(Sized("a"))


@program
def hashes(x):
    return hash(3), hash("a") == hash("a"), hash((1, 2)), hash(Sized(1)), hash(None)


@program
def hash_of_list(x):
    return hash([])


@program
def callables(x):
    return (
        callable(len),
        callable(3),
        callable(Point),
        callable(Sized(1)),
        callable(x),
        callable(lambda: 1),
    )


@program
def nexts(x):
    it = iter([x, 2])
    return next(it), next(it), next(it, 9), next(iter(()), None)


@program
def next_at_the_end(x):
    return next(iter([]))


@program
def next_of_list(x):
    return next([])


@program
def next_of_finished_generator(x):
    def numbers():
        yield 1
        return 5

    it = numbers()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return stop.value


@program
def iterators(x):
    it = iter([1, 2])
    return iter(it) is it, list(iter("ab")), [row.sum() for row in iter(x)]


@program
def iter_of_number(x):
    return iter(3)


@program
def slices(x):
    return (
        x[slice(1)],
        slice(1, 2),
        x[slice(None), slice(0, 2)],
        slice(1, 9, 2).step,
        slice(2).indices(5),
    )


@program
def slice_without_arguments(x):
    return slice()


@program
def texts(x):
    p = Point(3)
    return (
        repr(p),
        str(p),
        f"{p}",
        f"{p!r:>10}",
        format(3.14159, ".2f"),
        ascii("é"),
        str(b"ab", "utf8"),
    )


@program
def texts_of_containers(x):
    return (
        repr([1, "a", (1,), {"k": {1}}]),
        str({3: [None]}),
        f"{(1, Point(2))}",
        str(set()),
        str(x.shape),
    )


@program
def texts_of_known_objects(x):
    return f"{x.dtype} {x.device} {int} {len(x)}", str(None), repr(torch.float32), f"{True:>5}"


@program
def bad_format(x):
    return format(Point(1), "zz")


@program
def bad_number_format(x):
    return format(3, "zz")


@program
def repr_that_is_no_text(x):
    class_ = types.SimpleNamespace
    return repr(Odd()), class_


class Odd:
    def __repr__(self):
        return 3


@program
def import_function(x):
    return __import__("math").sqrt(4) + x


OBJECT = Point(7)
WEAK = weakref.ref(OBJECT)


@program
def weak_references(x):
    return x + WEAK().a, WEAK() is OBJECT


@program
def identity_of_known_objects(x):
    return id(OBJECT) == id(OBJECT), id(len) == id(len), id(OBJECT) in {id(OBJECT)}


@pytest.mark.parametrize("function", PROGRAMS)
def test_same_as_eager(check, function):
    check(function, X)


def test_objects_from_outside_are_changed(check):
    def change(x, p):
        setattr(p, "b", x * 2)
        vars(p)["c"] = 3
        delattr(p, "a")
        return p.b + getattr(p, "d", 4)

    check(change, X, Point(1))


def test_identity_is_guarded():
    compiled = pliant.compile(lambda x, p: (x + 1, id(p)), backend="eager", fullgraph=True)
    p, q = Point(1), Point(1)
    assert compiled(X, p)[1] == id(p)
    assert compiled(X, q)[1] == id(q)


logger = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (lambda x: open("nowhere"), "io"),
        (lambda x: os.getcwd(), "io"),
        (lambda x: time.time(), "clock"),
        (lambda x: warnings.warn("w", int), "warning"),
        (lambda x: logger.error("e", stack_info=True), "logging"),
        (lambda x: id(Point(x)) + 1, "identity-number"),
        (lambda x: repr(object()), "identity-number"),
        (lambda x: str(x), "tensor-method"),
    ],
)
def test_breaks_the_graph(breaks, action, code):
    breaks(lambda x: (x + 1, action(x)), X, code=code)
