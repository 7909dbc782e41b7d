"""Weak references to objects that the program makes, and what is built on them."""

from __future__ import annotations

import weakref
from collections import OrderedDict, deque

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


class Node:
    def __init__(self, v):
        self.v = v


class N2(Node):
    def __eq__(self, o):
        return self.v == o.v

    def __hash__(self):
        return hash(self.v)


N = Node(2)
WK = weakref.WeakKeyDictionary()
WV = weakref.WeakValueDictionary()
WS = weakref.WeakSet()


def does_dead(x):
    r = weakref.ref(Node(x))
    return x + 1 if r() is None else x


def does_dead_del(x):
    n = Node(x)
    r = weakref.ref(n)
    a = r() is n
    del n
    return x, a, r() is None


def does_alive_in_list(x):
    l = [Node(x)]
    r = weakref.ref(l[0])
    a = r() is l[0]
    l.clear()
    return x, a, r() is None


def does_returned(x):
    n = Node(x)
    r = weakref.ref(n)
    return n, r


def does_attr(x):
    p = Node(1)
    c = Node(x)
    c.parent = weakref.ref(p)
    p.child = c
    return c.parent().child.v + p.v, p


def does_cycle_parent(x):
    class T:
        def __init__(self, parent=None):
            self._p = weakref.ref(parent) if parent is not None else None
            self.kids = []
            if parent is not None:
                parent.kids.append(self)

        @property
        def parent(self):
            return self._p() if self._p else None

    root = T()
    a = T(root)
    b = T(a)
    return x, b.parent.parent is root, root.parent, len(root.kids)


def does_callback(x):
    l = []
    n = Node(1)
    r = weakref.ref(n, lambda ref: l.append("gone"))
    del n
    return x, l, r() is None


def does_wkd(x):
    d = weakref.WeakKeyDictionary()
    a = Node(1)
    b = Node(2)
    d[a] = x
    d[b] = 3
    r = len(d), a in d, d.get(b), Node(1) in d, d.pop(b), list(d.values())[0] is x
    del a
    return r, len(d)


def does_wkd_items(x):
    d = weakref.WeakKeyDictionary()
    a = Node(1)
    d[a] = x
    return [k.v for k in d], [(k.v, v) for k, v in d.items()], d.setdefault(a, 5) is x, bool(d)


def does_wvd(x):
    d = weakref.WeakValueDictionary()
    n = Node(x)
    d["k"] = n
    r = "k" in d, d["k"] is n, d.get("z"), len(d), list(d.keys())
    del n
    return r, "k" in d, len(d)


def does_ws(x):
    s = weakref.WeakSet()
    a = Node(1)
    b = Node(2)
    s.add(a)
    s.add(b)
    s.add(a)
    r = len(s), a in s, sorted(n.v for n in s)
    s.discard(b)
    del a
    return x, r, len(s)


def does_eq(x):
    a, b = N2(1), N2(1)
    return (
        x,
        weakref.ref(a) == weakref.ref(b),
        weakref.ref(a) is weakref.ref(a),
        hash(weakref.ref(a)) == hash(a),
    )


def does_proxy(x):
    n = Node(x)
    p = weakref.proxy(n)
    p.w = 3
    return p.v + p.w, n.w


def does_proxy_dead(x):
    n = Node(x)
    p = weakref.proxy(n)
    del n
    try:
        p.v
    except ReferenceError as e:
        return x, str(e)


def does_out_store(x):
    WK[N] = 5
    return x + WK[N], len(WK)


def does_out_ref(x):
    return weakref.ref(N)() is N, weakref.ref(N), x


def does_method(x):
    class A:
        def f(self, x):
            return x + 1

    a = A()
    m = weakref.WeakMethod(a.f)
    return m()(x)


def does_noweak(x):
    try:
        weakref.ref(3)
    except TypeError as e:
        return x, str(e)


class Sl:
    __slots__ = ("a",)


def does_noweak_slots(x):
    try:
        weakref.ref(Sl())
    except TypeError as e:
        return x, str(e)


def does_module(x):
    m = torch.nn.Linear(3, 3, bias=False)
    r = weakref.ref(m)
    return r() is m, x


def does_tensor(x):
    r = weakref.ref(x)
    y = x + 1
    q = weakref.ref(y)
    return r() is x, q() is y, y


class Table(OrderedDict):
    pass


class Items(list):
    pass


def does_containers(x):
    table, items, numbers, queue = Table(a=x), Items([x]), {1}, deque([1])
    references = [weakref.ref(value) for value in (table, items, numbers, queue)]
    references[2]().add(2)
    references[3]().append(x)
    same = weakref.ref(table) is references[0], references[1]() is items
    return references[0]()["a"] + 1, same, numbers, queue


def does_dead_container(x):
    return weakref.ref(Table(a=x))() is None, x + 1


def does_returned_container(x):
    table = Table()
    return table, weakref.ref(table)() is table, x


def does_no_containers(x):
    refused = []
    for value in ([1], {}, (1,)):
        try:
            weakref.ref(value)
        except TypeError as error:
            refused.append(str(error))
    return refused, x


def does_hook_of_new_module(x):
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    handles = [part.register_forward_hook(lambda m, args, out: out + 1) for part in module]
    handles.append(module.register_forward_pre_hook(lambda m, args: (args[0] * 2,)))
    hooked = module(x)
    for handle in handles:
        handle.remove()
    return hooked, module(x)


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
