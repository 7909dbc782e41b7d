"""Kernels in Triton's language that the program itself calls are part of its graph. (Here Triton
interprets them.)"""

import types

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

import pliant
from pliant.base import events
from pliant.capture.library.packages.triton_writes import only_read
from tests.support.against_eager import check


def _add(x, y, count, amount, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count) + amount, mask=at < count)


def _swap(x, y, count: tl.constexpr):
    at = tl.arange(0, count)
    first = tl.load(x + at)
    tl.store(x + at, tl.load(y + at))
    tl.store(y + at, first)


pytestmark = pytest.mark.own_default
add, swap = InterpretedFunction(_add), InterpretedFunction(_swap)
X = torch.arange(10.0)


def with_a_fixed_grid(x):
    x = x * 2
    y = torch.empty_like(x)
    add[(1,)](x, y, x.numel(), 1, BLOCK=16)
    return y * 3


def with_a_function_as_grid(x):
    y = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 1.5, BLOCK=4)
    return y * 3


def with_arguments_by_name(x):
    y = torch.empty_like(x)
    add[(1, 1)](y=y, x=x, BLOCK=16, amount=x.shape[0], count=x.numel())
    return y


def into_an_argument(x):
    y = x.view(2, 5)
    add[(1,)](x * 2, y, 10, 1, BLOCK=16)
    return y + 1, x.sum()


def in_place(x):
    add[(1,)](x, x, x.numel(), 1, BLOCK=16)
    return x * 2


def twice(x):
    y, z = torch.empty_like(x), torch.zeros(16)
    add[(1,)](x, y, x.numel(), 1, BLOCK=16)
    add[(1,)](y, z, x.numel(), 2, BLOCK=16)
    return y + z[: x.numel()]


def both_are_written(x):
    y, z = x[:8] + 1, x[:8] * 2
    swap[(1,)](y, z, 8)
    return y, z


def both_are_in_one_memory(x):
    y = x.clone()
    add[(1,)](y, y.view(2, 5), 4, 1, BLOCK=4)
    return y * 2


def beyond_a_part(x):
    """The kernel is given the first row, and writes all of them."""
    y = x.expand(3, 10).contiguous()
    row = y[0]
    add[(1,)](y * 2, row, 30, 1, BLOCK=32)
    return y + 1


PROGRAMS = [
    with_a_fixed_grid, with_a_function_as_grid, with_arguments_by_name, into_an_argument, in_place,
    twice, both_are_written, both_are_in_one_memory,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", PROGRAMS)
def test_a_kernel_of_the_program(function, dynamic):
    check(function, X, breaks=0, dynamic=dynamic)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parts_of_tensors_are_left_to_python(mode):
    compiled = pliant.compile(beyond_a_part)
    with mode():
        torch.testing.assert_close(compiled(X), beyond_a_part(X))
        torch.testing.assert_close(
            pliant.compile(twice, fullgraph=True)(X.clone()), twice(X.clone())
        )


def test_autocast_leaves_kernels_alone(seen):
    def function(x):
        with torch.autocast("cpu"):
            y = torch.empty_like(x)
            add[(1,)](x, y, x.numel(), 1, BLOCK=16)
            return y @ y

    torch.testing.assert_close(pliant.compile(function, fullgraph=True)(X), function(X))
    assert len(seen(events.CodeGenerated)) == 1


def test_one_graph_for_all_sizes(seen):
    compiled = pliant.compile(with_a_function_as_grid, dynamic=True, fullgraph=True)
    for size in (10, 7, 23):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), with_a_function_as_grid(x))
    assert len(seen(events.CodeGenerated)) == 1


def test_what_a_kernel_is_compiled_for_is_guarded():
    def function(x, kernel, block, amount):
        y = torch.empty_like(x)
        kernel[(4,)](x, y, x.numel(), amount, BLOCK=block)
        return y + 1

    compiled = pliant.compile(function, fullgraph=True)
    other = InterpretedFunction(_swapped_sign)
    for kernel, block, amount in ((add, 4, 1), (add, 8, 1), (add, 8, 2.5), (other, 8, 2.5)):
        args = (X, kernel, block, amount)
        torch.testing.assert_close(compiled(*args), function(*args))


def _swapped_sign(x, y, count, amount, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count) - amount, mask=at < count)


def test_nothing_is_copied_for_a_kernel(seen):
    """It writes to the memory that was made for it, and what it reads stays as it is."""
    x, before = X.clone(), X._version
    pliant.compile(with_a_fixed_grid, fullgraph=True)(x)
    assert x._version == before
    (code,) = [e for e in seen(events.StageFinished) if e.stage == "functional"]
    (line,) = [line for line in code.text().splitlines() if "launch_kernel" in line]
    assert line.count(": float32") == 1


def test_gradients_are_left_to_python():
    """Eager PyTorch knows nothing of what a kernel writes."""

    def function(x):
        y = torch.empty_like(x)
        add[(1,)](x, y, x.numel(), 1, BLOCK=16)
        return y * x

    results = []
    for one in (function, pliant.compile(function)):
        x = X.clone().requires_grad_()
        result = one(x)
        result.sum().backward()
        results.append((result, x.grad))
    torch.testing.assert_close(*results)


class AddOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        add[(1,)](x, y, x.numel(), 1, BLOCK=16)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        result = torch.empty_like(grad)
        add[(1,)](grad * y, result, grad.numel(), 2, BLOCK=16)
        return result


def test_an_autograd_function():
    """It is run on tensors without memory where gradients are recorded; elsewhere it is followed
    like other functions."""

    def function(x, w):
        return AddOne.apply(x * w) * 2

    results = []
    for one in (function, pliant.compile(function)):
        w = torch.full((10,), 2.0, requires_grad=True)
        result = one(X, w)
        result.sum().backward()
        results.append((result, w.grad))
    torch.testing.assert_close(*results)
    with pytest.raises(pliant.errors.GraphBreakError, match="a Triton kernel in a function"):
        pliant.compile(function, fullgraph=True)(X, w)
    with torch.no_grad():
        compiled = pliant.compile(function, fullgraph=True)
        torch.testing.assert_close(compiled(X, w), function(X, w))


def test_kernels_with_something_around_them():
    """As autotuned ones have, and those with heuristics: Python calls them."""
    search = triton.heuristics({"BLOCK": lambda args: 16})(add)

    def function(x):
        y = torch.empty_like(x)
        search[(1,)](x, y, x.numel(), 1)
        return y * 2

    torch.testing.assert_close(pliant.compile(function)(X), function(X))


def test_an_error_of_a_launch():
    def function(x):
        add[(1,)](x, torch.empty_like(x), x.numel(), BLOCK=16)
        return x + 1

    for one in (function, pliant.compile(function)):
        with pytest.raises(TypeError, match="amount"):
            one(X)


def _reads(a, b, c, d, e, f, n, flag: tl.constexpr):
    at = tl.arange(0, 16)
    there = a + at
    there += n
    value = tl.load(there) + tl.load(b + at, mask=at < n)
    if flag:
        chosen = c
    else:
        chosen = d
    tl.store(chosen + at, value)
    tl.atomic_add(e, 1)
    helper(f)


def helper(pointer):
    pass


def test_what_a_kernel_only_reads():
    """Not what is stored to by another name, added to, or given to another function."""
    assert only_read(_reads) & set("abcdef") == {"a", "b"}
    assert only_read(_add) & {"x", "y"} == {"x"}
    assert not {"x", "y"} & only_read(_swap)


def test_kernels_whose_source_can_not_be_read():
    names = {"tl": tl}
    exec("def made(x, y):\n    tl.store(y, tl.load(x))", names)
    assert only_read(names["made"]) == set()
    other = types.FunctionType(_add.__code__, {"tl": types.SimpleNamespace(load=tl.store)})
    assert only_read(other) == set()
    assert only_read(_with_a_function_inside) == set()


def _with_a_function_inside(x):
    def store(y):
        tl.store(y, 1)

    store(x)
