"""Context variables and attributes of `threading.local`."""

from __future__ import annotations

import contextvars
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


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
