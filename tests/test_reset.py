"""`pliant.reset()`: nothing stays of what was compiled, in no table of no module."""

import gc
import sys
import types
import weakref
from collections.abc import Sized

import pytest
import torch

import pliant
from tests.support.captures import PROGRAMS, X, compiled

COLLECTIONS = (dict, list, set, weakref.WeakSet, weakref.WeakKeyDictionary)


def collect():
    for _ in range(3):
        gc.collect()


def tables():
    """The size of every collection that a module of pliant has."""
    sizes = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "pliant" and isinstance(module, types.ModuleType):
            for attribute, value in vars(module).items():
                ours = getattr(type(value), "__module__", "").startswith("pliant")
                weak = isinstance(value, weakref.WeakValueDictionary)
                if attribute[:2] != "__" and (
                    isinstance(value, COLLECTIONS) or weak or (ours and isinstance(value, Sized))
                ):
                    sizes[f"{name}.{attribute}"] = len(value)
    return sizes


SOURCE = """
def helper_{n}(t):
    return t.sum().item() + {n}

def step_{n}(x):
    y = x * scale + {n}
    if y.sum() > 0:
        y = y + 1
    return sorted([y, y - 1], key=helper_{n})[0] * {n}
"""


def use(n):
    """Compile a function of its own code and globals, with a break and a callback; what must not
    stay."""
    scale = torch.full((3,), float(n + 1))
    scope = {"scale": scale}
    exec(SOURCE.format(n=n), scope)
    step, helper = scope[f"step_{n}"], scope[f"helper_{n}"]
    fast = pliant.compile(step, backend="eager")
    torch.testing.assert_close(fast(X()), step(X()))
    return fast, [weakref.ref(one) for one in (step, helper, step.__code__, scale)]


def test_nothing_of_a_dropped_function_stays():
    use(0)
    use(0)  # the first may import what the tables have more to say about
    collect()
    pliant.reset()
    before = tables()
    references = []
    for n in range(1, 12):
        fast, kept = use(n)
        references += kept
        del fast
    collect()
    pliant.reset()
    assert not [ref() for ref in references if ref() is not None]
    after = tables()
    assert {name: after[name] for name in after if after[name] > before.get(name, 0)} == {}


def test_what_was_compiled_goes_although_the_function_stays():
    fast, _ = use(20)
    compiler = fast.on_miss.__self__
    codes = [weakref.ref(d.fn) for d in compiler.functions.resumes.values()]
    infos = [weakref.ref(e.residual.__code__) for e in fast.entries]
    assert codes and infos
    helper = fast.fn.__globals__["helper_20"]
    pliant.reset()
    collect()
    functions = compiler.functions
    assert not fast.entries and not functions.resumes and not functions.histories
    assert not functions.callbacks and not len(functions.resume_functions)
    assert [ref() for ref in codes if ref() not in (None, helper)] == []
    assert [ref() for ref in infos if ref() is not None] == []
    torch.testing.assert_close(fast(X()), fast.fn(X()))
    assert len(fast.entries) == 1


# (The second step of an optimizer is another program: it has state by then.)
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "optimizer"])
def test_programs_are_compiled_again_after_a_reset(name):
    program, arguments, dispatcher, before = compiled(name)
    pliant.reset()
    assert not dispatcher.entries
    args = arguments()
    dispatcher(program, *args) if isinstance(program, torch.nn.Module) else dispatcher(*args)
    after = dispatcher.on_miss.__self__.functions.compiled(dispatcher)
    assert [one.captured.residual for one in after] == [one.captured.residual for one in before]
