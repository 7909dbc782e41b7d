"""State that is not in variables: contexts, threads, frames, identities, text that is run."""

from __future__ import annotations

import contextvars
import functools
import inspect
import sys
import threading

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


cv = contextvars.ContextVar("cv", default=3)
cv2 = contextvars.ContextVar("cv2")
tl = threading.local()
tl.a = 4


def does_cv_set_reset(x):
    t = cv.set(7)
    y = x + cv.get()
    cv.reset(t)
    return y + cv.get()


def does_cv_nested(x):
    t = cv.set(7)
    u = cv.set(8)
    a = cv.get()
    cv.reset(u)
    b = cv.get()
    cv.reset(t)
    return x, a, b, cv.get()


def does_cv_tensor(x):
    t = cv.set(x + 1)
    y = cv.get() * 2
    cv.reset(t)
    return y


def does_cv_finally(x):
    t = cv.set(1)
    try:
        return x + cv.get()
    finally:
        cv.reset(t)


def does_cv_unset(x):
    try:
        cv2.get()
    except LookupError:
        return x + cv2.get(5)


def does_cv_inner(x):
    c = contextvars.ContextVar("i", default=2)
    d = contextvars.ContextVar("d")
    a = c.get()
    c.set(5)
    try:
        d.get()
    except LookupError:
        a += 1
    return x + a + c.get(), d.get(9), c.name


def does_cv_stays(x):
    cv.set(cv.get(3) if False else 11)
    return x + cv.get()


def does_cv_after(x):
    return x + cv.get()


def does_cv_back(x):
    cv.set(3)
    return x


def does_token(x):
    t = cv.set(5)
    r = t.var is cv
    cv.reset(t)
    return x, r


def does_tl(x):
    tl.b = x + 1
    tl.a += 1
    r = tl.b * tl.a
    del tl.b
    tl.a -= 1
    return r, hasattr(tl, "b"), getattr(tl, "zz", 5)


def does_tl_err(x):
    try:
        tl.nope
    except AttributeError as e:
        return x, str(e)


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


def does_frame_name(x):
    def where():
        return sys._getframe(1).f_code.co_name

    return x, where(), sys._getframe().f_code.co_name, sys._getframe().f_lineno


def does_frame_globals(x):
    return (
        x,
        sys._getframe().f_globals["__name__"],
        inspect.currentframe().f_back is not None if False else 1,
    )


def does_frame_locals(x):
    a = 5

    def g():
        return sys._getframe(1).f_locals["a"]

    return x + g(), sys._getframe().f_locals["a"]


def does_getsourcelines(x):
    return x, inspect.getsourcelines(Pt)[0][0], inspect.getsourcelines(does_id_eq)[1]


def does_exec_fn(x):
    ns = {}
    exec("def f(a, b=2):\n    return sum([a, b])", ns)
    return ns["f"](x), "f" in ns


def does_exec_lambda(x):
    f = eval("lambda q: q * 2")
    return f(x)


def does_eval_globals(x):
    return (
        eval("x + k", {"x": x, "k": 3}),
        eval("len(a)", {"a": [1, 2]}),
        eval("G", globals()) if False else 0,
    )


GG = 7


def does_eval_mod_globals(x):
    return x + eval("GG + 1", globals()), eval("GG * b", globals(), {"b": 2})


def does_exec_local_ns(x):
    ns = {"a": 2}
    exec("b = a * 3\nfor i in range(3): b += i", {}, ns)
    return x + ns["b"], sorted(ns)


def does_exec_code(x):
    c = compile("y = x * 2", "<q>", "exec")
    ns = {"x": x}
    exec(c, ns)
    return ns["y"]


def does_exec_err(x):
    try:
        exec("1 +")
    except SyntaxError as e:
        return x, e.msg


def does_eval_err(x):
    try:
        eval("nope_name")
    except NameError as e:
        return x, str(e)


def does_compile_err(x):
    try:
        compile("a b", "f", "exec")
    except SyntaxError as e:
        return x, e.lineno, e.filename


def does_lru_info(x):
    @functools.lru_cache(maxsize=None)
    def f(n):
        return n * 2

    f(1)
    f(1)
    f(2)
    i = f.cache_info()
    f.cache_clear()
    return x + i.hits + i.misses + i.currsize, f.cache_info(), i.maxsize


def does_lru_wrapped(x):
    @functools.lru_cache
    def f(n):
        return n * 2

    return x, f.__wrapped__(3), f.__name__, f.cache_parameters()


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
