"""Graph breaks in the middle of what else goes on: warnings, logs, weak references, contexts."""

from __future__ import annotations

import contextvars
import decimal
import functools
import gc
import hashlib
import json
import logging
import threading
import time
import warnings
import weakref

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)
cv = contextvars.ContextVar("cv", default=3)


class Node:
    def __init__(self, v):
        self.v = v


L = logging.getLogger("zz")
L.propagate = False
L.setLevel(10)
tl = threading.local()
tl.a = 1
lock = threading.Lock()


def does_warn_break(x):
    warnings.warn("a")
    pliant.graph_break()
    warnings.warn("b")
    return x + 1


def does_log_break(x):
    y = x + 1
    L.info("a %s", y)
    pliant.graph_break()
    L.info("b %s", y * 2)
    y.add_(1)
    L.info("c %s", y)
    return y


def does_catch_break(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
        pliant.graph_break()
        warnings.warn("unseen")
        return y * 2


def does_record_break(x):
    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        warnings.warn("one")
        pliant.graph_break()
        warnings.warn("two")
    return x + len(w), [str(i.message) for i in w]


def does_weak_break(x):
    n = Node(x)
    r = weakref.ref(n)
    pliant.graph_break()
    return r() is n, r().v + 1


def does_proxy_break(x):
    n = Node(x)
    p = weakref.proxy(n)
    pliant.graph_break()
    return p.v + 1


def does_cv_break(x):
    t = cv.set(9)
    y = x + cv.get()
    pliant.graph_break()
    y = y + cv.get()
    cv.reset(t)
    return y + cv.get()


def does_cv_break2(x):
    cv.set(5)
    pliant.graph_break()
    y = x + cv.get()
    cv.set(3)
    return y


def does_tl_break(x):
    tl.q = x + 1
    tl.a += 1
    pliant.graph_break()
    r = tl.q * tl.a
    tl.a -= 1
    del tl.q
    return r


def does_id_break(x):
    n = Node(1)
    s = {id(n)}
    pliant.graph_break()
    return x, id(n) in s, len(s)


def does_id_break2(x):
    n = Node(1)
    i = id(n)
    pliant.graph_break()
    return x, id(n) == i


def does_lock_with(x):
    with lock:
        y = x + 1
    return y * 2, lock.locked()


async def co(x):
    pliant.graph_break()
    return x + 1


async def co2(x):
    y = await co(x)
    return y * 2


def does_co_break(x):
    c = co2(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value


def does_gc_collect(x):
    gc.collect()
    return x + 1


def does_time_break(x):
    t = time.time()
    y = x + 1
    d = time.time() - t
    return y, d >= 0


def does_time_perf(x):
    t = time.perf_counter()
    y = x + 1
    return y, time.perf_counter() >= t


def does_exc_attr_break(x):
    try:
        x.nope
    except AttributeError as e:
        pliant.graph_break()
        return x + 1, e.name, str(e)


def does_exc_json_break(x):
    try:
        json.loads("{")
    except ValueError as e:
        pliant.graph_break()
        return x, e.pos, e.msg, str(e), type(e.__context__), e.__suppress_context__


def does_exc_kw_break(x):
    def f(*, a):
        raise ValueError(a)

    try:
        f(a=x)
    except ValueError as e:
        y = e.args[0]
    pliant.graph_break()
    try:
        f(a=y + 1)
    except ValueError as e:
        return torch.add(e.args[0], y, alpha=2)


def does_exec_break(x):
    ns = {"b": 2}
    exec("def f(a):\n return a * 3\nc = b + 1", ns)
    pliant.graph_break()
    return ns["f"](x) + ns["c"], sorted(k for k in ns if k != "__builtins__")


def does_lru_break(x):
    @functools.lru_cache
    def f(n):
        return n * 2

    f(1)
    pliant.graph_break()
    f(1)
    return x + f(1)


def does_hash_break(x):
    h = hashlib.sha256(b"a")
    pliant.graph_break()
    h.update(b"b")
    return x, h.hexdigest()


def does_dec_break(x):
    d = decimal.Decimal("1.5")
    pliant.graph_break()
    return x, d + 1, memoryview(b"ab")[0]


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.filterwarnings("ignore")
def test_same_as_eager(program):
    check(program, X, breaks=None)
