"""`eval`, `exec` and `compile` of text that is known."""

from __future__ import annotations

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


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


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)
