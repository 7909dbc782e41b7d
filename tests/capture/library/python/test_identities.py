"""`id()` of objects that the program makes: compared, as a key, as a memo."""

from __future__ import annotations

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


class Pt:
    def __init__(self, v):
        self.v = v
        self.kids = []


def does_id_eq(x):
    a = [1]
    b = a
    c = [1]
    return x, id(a) == id(b), id(a) == id(c), id(a) != id(c)


def does_id_key(x):
    a = Pt(x)
    b = Pt(1)
    seen = {id(a)}
    return x, id(a) in seen, id(b) in seen, len({id(a), id(b), id(a)})


def does_id_walk(x):
    a = Pt(1)
    b = Pt(2)
    a.kids = [b]
    b.kids = [a]
    seen = set()
    order = []

    def walk(n):
        if id(n) in seen:
            return
        seen.add(id(n))
        order.append(n.v)
        for k in n.kids:
            walk(k)

    walk(a)
    return x, order


def does_id_memo(x):
    memo = {}

    def f(o):
        if id(o) not in memo:
            memo[id(o)] = o.v * 2
        return memo[id(o)]

    a = Pt(x)
    return f(a) + f(a), len(memo)


def does_id_tensor(x):
    y = x + 1
    d = {id(y): "y", id(x): "x"}
    return d[id(y)], d[id(x)], id(x) == id(y)


def does_id_out(x):
    return x, id(x) == id(x), id(Pt) == id(Pt), id(None) == id(None)


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
