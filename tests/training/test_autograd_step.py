"""`AutogradStep`: what native code keeps for the backward, and for how long."""

import gc
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.autograd.forward_ad as fw

import pliant
from pliant._native import AutogradStep
from pliant.base import events


def compiled(function, **options):
    return pliant.compile(function, backend="llvm", **options)


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


@pytest.fixture
def x():
    return leaf(3, 4)


# --------------------------------------------------------------------------------------------------
# What is kept


def test_inputs_are_released_with_what_is_saved(x) -> None:
    """The graph keeps its inputs for `create_graph`, but no longer than saved tensors."""
    other = torch.randn(3, 4)
    result = compiled(lambda a, b: a.exp() + b)(x, other)
    reference = weakref.ref(other)
    del other
    result.sum().backward(retain_graph=True)
    assert reference() is not None
    result.sum().backward()
    assert reference() is None


def test_inputs_are_released_with_the_result(x) -> None:
    other = torch.randn(3, 4)
    result = compiled(lambda a, b: a + b)(x, other)
    reference = weakref.ref(other)
    del other, result
    assert reference() is None


def test_saved_tensors_after_the_backward(x) -> None:
    result = compiled(lambda a: a.exp())(x)
    (saved,) = result.grad_fn.saved_tensors
    torch.testing.assert_close(saved, x.exp())
    assert result.grad_fn.name() == "PliantBackward"
    result.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        _ = result.grad_fn.saved_tensors


def test_a_long_chain_is_freed() -> None:
    """Each node holds the result of the one before: no recursion over all of them."""
    function = compiled(lambda a: a * a)
    first = leaf(2)
    result = function(first)
    reference = weakref.ref(result)
    for _ in range(50_000):
        result = function(result)
    del result
    assert reference() is None


def test_nothing_is_left_behind(x) -> None:
    function = compiled(lambda a, b: (a * b).exp())
    other = leaf(3, 4)

    def step():
        function(x, other).sum().backward()
        x.grad = other.grad = None

    for _ in range(3):
        step()
    gc.collect()
    before = sys.getrefcount(x), len(gc.get_objects())
    for _ in range(20):
        step()
    gc.collect()
    assert sys.getrefcount(x) == before[0]
    assert len(gc.get_objects()) <= before[1] + 5


def test_the_last_owner_is_another_thread(x) -> None:
    function = compiled(lambda a: a.exp().sin())
    results = [function(x) for _ in range(8)]
    with ThreadPoolExecutor(2) as pool:
        while results:
            pool.submit(results.pop().sum().backward)
    assert torch.allclose(x.grad, 8 * x.exp() * x.exp().cos())


# --------------------------------------------------------------------------------------------------
# Outputs


def test_a_view_of_what_is_saved_can_be_written_to(x) -> None:
    def function(a):
        return a.exp().T

    result = compiled(function)(x)
    result.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
    expected = function(x)
    expected.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        expected.sum().backward()


def test_a_view_of_what_is_not_saved_can_be_written_to(x) -> None:
    result = compiled(lambda a: (a * 2).T)(x)
    result.mul_(3)
    result.sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 6.0))


def test_outputs_that_are_inputs(x) -> None:
    counts = torch.arange(3)
    same, result, also = compiled(lambda a, n: (a, a * 2, n))(x, counts)
    assert same is x and also is counts
    assert x.grad_fn is None and result.requires_grad


# --------------------------------------------------------------------------------------------------
# What is PyTorch's


def test_gradients_of_gradients_of_a_changed_input(x) -> None:
    """The graph would run again on other values."""
    other = torch.randn(3, 4)
    result = compiled(lambda a, b: a.exp() + b)(x, other)
    other.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result.sum(), x, create_graph=True)


def test_batched_tangents(x) -> None:
    def function(a):
        return (a.exp() * a).sum(0)

    jacobian = torch.autograd.functional.jacobian
    mine = jacobian(compiled(function), x.detach(), vectorize=True)
    torch.testing.assert_close(mine, jacobian(function, x.detach()))


def test_sparse_tangents(x) -> None:
    def gradient(function):
        rows = torch.nn.functional.embedding(torch.tensor([0, 2]), function(x), sparse=True)
        return torch.autograd.grad(rows.sum(), x)[0]

    def function(a):
        return a * 3

    mine, theirs = gradient(compiled(function)), gradient(function)
    assert mine.layout is theirs.layout
    assert torch.equal(mine.to_dense(), theirs.to_dense())


def test_negated_tangents(x) -> None:
    def gradient(function):
        pair = torch.complex(torch.zeros(3, 4), function(x))
        return torch.autograd.grad((pair.conj() * (1 + 2j)).real.sum(), x)[0]

    def function(a):
        return a.exp()

    torch.testing.assert_close(gradient(compiled(function)), gradient(function))


def test_forward_mode_of_a_compiled_graph(x, seen) -> None:
    multiply = compiled(lambda a, b: a * b)
    other = leaf(3, 4)
    multiply(x, other)
    with fw.dual_level():
        dual = fw.make_dual(x, torch.ones(3, 4))
        assert torch.equal(fw.unpack_dual(multiply(dual, other)).tangent, other)
    assert multiply(x, other).requires_grad
    assert len(seen(events.CodeGenerated)) == 1


@pytest.mark.parametrize("where", ["pack", "unpack", "hook"])
def test_errors_of_the_program(x, where: str) -> None:
    def fail(*_):
        raise KeyError(where)

    def same(tensor):
        return tensor

    function = compiled(lambda a: a.exp())
    hooks = [fail if where == name else same for name in ("pack", "unpack")]

    def step():
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            result = function(x)
        if where == "hook":
            result.grad_fn.register_prehook(fail)
        result.sum().backward()

    for _ in range(2):
        with pytest.raises(KeyError, match=where):
            step()
    with ThreadPoolExecutor(1) as pool, pytest.raises(KeyError, match=where):
        pool.submit(step).result()


def test_a_backward_inside_of_one(x) -> None:
    """The engine is entered again, from a hook."""
    function = compiled(lambda a: a.exp())
    inner = leaf(2)
    result = function(x)

    def enter(*_):
        with torch.enable_grad():
            function(inner).sum().backward()

    result.grad_fn.register_hook(enter)
    result.sum().backward()
    torch.testing.assert_close(inner.grad, inner.exp())
    torch.testing.assert_close(x.grad, x.exp())


# --------------------------------------------------------------------------------------------------
# The native class

PLAN = {
    "forward": lambda a: (a.exp(),),
    "eager": lambda a: (a.exp(),),
    "refused": KeyError,
    "accepts": None,
    "make_backward": lambda tangents, wanted: (lambda out, grad: (out * grad,), (0,)),
    "run_again": None,
    "inputs": 1,
    "outputs": 1,
    "numbers": 1,
    "saved": [(False, 0)],
    "differentiable": [0],
    "contiguous": [False],
    "returned": [],
    "wanted": [0],
    "draws": [],
    "copied": [],
}


def test_a_step_of_python_functions(x) -> None:
    (result,) = AutogradStep(**PLAN)(x)
    result.sum().backward()
    torch.testing.assert_close(x.grad, x.exp())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("saved", [(False, 1)]),
        ("saved", [(True, 1)]),
        ("differentiable", [1]),
        ("wanted", [-1]),
        ("copied", [1]),
        ("returned", [(0, 1)]),
        ("contiguous", []),
        ("outputs", 2),
    ],
)
def test_places_that_are_not_there(name: str, value) -> None:
    with pytest.raises(ValueError):
        AutogradStep(**{**PLAN, name: value})


def test_arguments_of_the_wrong_type(x) -> None:
    with pytest.raises(TypeError, match="not a step"):
        AutogradStep(**{**PLAN, "saved": 3})
    with pytest.raises(KeyError):
        AutogradStep(forward=None)
    with pytest.raises(TypeError, match="1 arguments"):
        AutogradStep(**PLAN)(x, x)


@pytest.mark.parametrize("gradients", [(), (3,), [None]])
def test_a_backward_that_returns_something_else(x, gradients) -> None:
    plan = {**PLAN, "make_backward": lambda *_: (lambda out, grad: gradients, (0,))}
    (result,) = AutogradStep(**plan)(x)
    with pytest.raises(RuntimeError, match="gradient|too little"):
        result.sum().backward()


def test_a_backward_that_returns_its_tangent(x) -> None:
    """The launcher gives back what is an argument, of which there was no Python object yet."""
    other = leaf(3, 4)
    tangent = torch.randn(3, 4)
    compiled(lambda a, b: a + b)(x, other).backward(tangent)
    assert torch.equal(x.grad, tangent) and torch.equal(other.grad, tangent)
    assert x.grad is not tangent and x.grad.data_ptr() != other.grad.data_ptr()


def test_a_backward_that_falls_back_to_other_sizes() -> None:
    """A launcher that calls another function instead shows it its arguments."""
    function = compiled(lambda a, b: (a @ b).relu().sum(0), dynamic=True)
    for rows, columns in ((4, 3), (5, 2), (1, 3), (4, 1), (0, 2), (1, 1)):
        a, b = leaf(rows, columns), leaf(columns, 6)
        function(a, b).sum().backward()
        mine, a.grad, other, b.grad = a.grad, None, b.grad, None
        (a @ b).relu().sum(0).sum().backward()
        torch.testing.assert_close(mine, a.grad)
        torch.testing.assert_close(other, b.grad)
