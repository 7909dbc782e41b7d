"""Keyword arguments of the program may be called what our own parameters are called."""

import collections
import functools

import torch

from tests.support.against_eager import check


class Named:
    def __init__(self, trace=None, cls=1, obj=2):
        self.given = (trace, cls, obj)


def add(x, trace, cls=0):
    return x + trace + cls


def test_keyword_names():
    def f(x):
        plain = dict(trace=1, cls=2, obj=3, self=4)
        ordered = collections.OrderedDict(trace=1, cls=2)
        counted = collections.defaultdict(int, trace=1, obj=3)
        added = functools.partial(add, trace=2)
        given = Named(trace=3, cls=4, obj=5).given
        return plain, ordered, counted, given, added(x), added(x, cls=plain["cls"])

    check(f, torch.ones(2), graphs=1)
