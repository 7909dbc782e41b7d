"""Compiled functions and modules in other processes, and in pickles."""

import copy
import multiprocessing
import pickle

import pytest
import torch
from torch import nn

import pliant

X = torch.arange(6.0)


def slow(x):
    return x.sin() + 1


fast = pliant.compile(slow, fullgraph=True)
nameless = pliant.compile(lambda x: x.cos())


@pliant.compile
def decorated(x):
    return x * 2


class Scaled:
    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        return x * self.by

    @pliant.compile
    def method(self, x):
        return x + self.by


def work(function):
    """Runs in a worker: what the function gives, and how often it was compiled there."""
    pliant.counters.reset()
    return function(X), pliant.counters["compilations"]


SENT = {
    "another name": lambda: fast,
    "no name": lambda: nameless,
    "decorated": lambda: decorated,
    "made elsewhere": lambda: pliant.compile(slow),
    "callable object": lambda: pliant.compile(Scaled(3)),
    "method": lambda: Scaled(4).method,
    "module": lambda: pliant.compile(nn.ReLU()),
}


def test_spawned_workers():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for make in SENT.values():
            function = make()
            result, compilations = pool.apply(work, (function,))
            assert torch.equal(result, function(X))
            assert compilations == 1


@pytest.mark.parametrize("function", [fast, nameless, decorated, Scaled.method])
def test_named_functions_are_pickled_by_name(function):
    assert pickle.loads(pickle.dumps(function)) is function


def test_others_are_compiled_again():
    again = pickle.loads(pickle.dumps(pliant.compile(slow, fullgraph=True, dynamic=True)))
    assert again is not fast and again.__wrapped__ is slow
    compiler = again.on_miss.__self__
    assert compiler.fullgraph and compiler.dynamic


def test_copies_are_the_function():
    for function in (fast, decorated, pliant.compile(slow), pliant.compile(Scaled(2))):
        assert copy.copy(function) is function and copy.deepcopy(function) is function
