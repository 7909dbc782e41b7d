"""Coroutines that the program drives by hand."""

from __future__ import annotations

import collections.abc
import inspect
import types

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


async def add1(x):
    return x + 1


class ACM:
    def __init__(self, l):
        self.l = l

    async def __aenter__(self):
        self.l.append("in")
        return 5

    async def __aexit__(self, t, v, tb):
        self.l.append(t.__name__ if t else None)
        return True


class AIt:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.n == 0:
            raise StopAsyncIteration
        self.n -= 1
        return self.n


def drive(c):
    try:
        while True:
            c.send(None)
    except StopIteration as e:
        return e.value


def does_async_with(x):
    l = []

    async def f():
        async with ACM(l) as v:
            return x + v

    return drive(f()), l


def does_async_with_exc(x):
    l = []

    async def f():
        async with ACM(l):
            raise ValueError
        return x * 2

    return drive(f()), l


def does_async_for(x):
    async def f():
        s = x
        async for i in AIt(3):
            s = s + i
        else:
            s = s * 2
        return s

    return drive(f())


def does_async_comp(x):
    async def f():
        return [i async for i in AIt(3)]

    return x, drive(f())


def does_async_exc(x):
    async def bad():
        raise KeyError("a")

    async def f():
        try:
            await bad()
        except KeyError as e:
            return x + 1

    return drive(f())


def does_async_uncaught(x):
    async def bad():
        raise KeyError("a")

    return drive(bad())


def does_async_gather(x):
    async def g(k):
        return x * k

    async def f():
        return [await g(i) for i in range(3)]

    return drive(f())


def does_async_reuse(x):
    c = add1(x)
    drive(c)
    try:
        c.send(None)
    except RuntimeError as e:
        return x, str(e)


def does_async_bad_await(x):
    async def f():
        await 3

    try:
        drive(f())
    except TypeError as e:
        return x, str(e)


def does_async_await_attr(x):
    c = add1(x)
    r = (
        inspect.iscoroutine(c),
        c.__name__,
        type(c) is types.CoroutineType,
        inspect.iscoroutinefunction(add1),
    )
    return drive(c), r


def does_async_dunder_await(x):
    class A:
        def __await__(self):
            return add1(x).__await__()

    async def f():
        return await A()

    return drive(f())


def does_coroutine_abc(x):

    c = add1(x)
    r = isinstance(c, collections.abc.Coroutine), isinstance(c, collections.abc.Awaitable)
    c.close()
    return x, r


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
