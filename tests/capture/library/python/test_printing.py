"""`print` in compiled code: the same texts in the same order, without a graph break."""

import contextlib
import copy
import io
import re
import sys

import pytest
import torch

import pliant
from pliant.backends import registry
from tests.support.against_eager import check
from tests.support.programs import Programs, note

program = Programs()
X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


class Shown:
    def __init__(self):
        self.count = 1

    def __repr__(self):
        return f"Shown({self.count})"


@program(X)
def texts_and_tensors(x):
    print("start")
    y = x + 1
    print("y", y, y.shape, sep=" | ", end=".\n")
    print(f"{x.shape[0]} rows", x.dtype, None, 1.5)
    return y * 2


@program(X)
def contents_at_the_time(x):
    seen, made = [], Shown()
    for step in range(3):
        print(step, seen, {"x": [x]}, made)
        seen.append(step)
        made.count += 1
        x = x + 1
    return x


@program(X)
def before_an_exception(x):
    print("before", x.sum())
    raise ValueError("stop")


@program(X, [], breaks=1)
def around_a_break(x, log):
    print("one")
    note(log, "two")
    print("three", log)
    return x + 1


@program(X, breaks=1)
def a_tensor_written_afterwards(x):
    y = x + 1
    print(y)
    y.add_(1)
    print(y)
    return y


@program(X)
def a_tensor_written_before(x):
    y = x + 1
    y.add_(1)
    print(y)
    return y


@program(X)
def to_another_file(x):
    print("error", file=sys.stderr)
    print("output", file=None, flush=True)
    return x + 1


@program(X, breaks=None)
def to_a_replaced_output(x):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print("inside")
    print("outside")
    return x + 1, text.getvalue()


@program(torch.ones(3, requires_grad=True))
def with_history(x):
    y = x * 2
    print(x, y)
    return y


def printed(function, args):
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(ValueError),
    ):
        function(*args)
    text = out.getvalue()
    if registry.DEFAULT != "eager":  # one step of autograd stands for the graph
        text = re.sub(r"grad_fn=<\w+>", "grad_fn", text)
    return text, err.getvalue()


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)
    compiled = pliant.compile(function)
    for _ in range(2):
        expected_text = printed(function, copy.deepcopy(args))
        assert printed(compiled, copy.deepcopy(args)) == expected_text


@pytest.mark.parametrize("of_tensor", [False, True])
def test_a_print_in_a_transformed_function(of_tensor):
    """It is called once; what it computes exists in the graph only."""

    def function(x):
        def loss(t):
            print("loss", t if of_tensor else t.shape)
            return t.sum()

        return torch.func.grad(loss)(x)

    compiled = pliant.compile(function, backend="eager", fullgraph=not of_tensor)
    assert printed(compiled, (X,)) == printed(function, (X,))


def test_the_option():
    with pliant.config.patch(reorder_prints=False):
        with pytest.raises(pliant.errors.GraphBreakError) as error:
            pliant.compile(lambda x: print("no"), fullgraph=True)(X)
    assert error.value.code == "io"
