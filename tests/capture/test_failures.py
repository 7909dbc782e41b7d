"""A graph that fails at run time, or meets a case in the data that it was not compiled for, after
it has changed something."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome

Tensor = torch.Tensor
BACKENDS = pytest.mark.parametrize("backend", ["eager", "llvm"])


def compare(function: Callable[..., Any], backend: str, *calls: tuple[Any, ...]) -> None:
    compiled = pliant.compile(function, backend=backend)
    for args in calls:
        actual = run(compiled, tuple(arg.clone() for arg in args))
        drawn = torch.get_rng_state()
        same_outcome(actual, run(function, tuple(arg.clone() for arg in args)))
        assert torch.equal(drawn, torch.get_rng_state())


def fresh(x: Tensor, index: Tensor) -> Tensor:
    made = x + 1
    made *= 2
    return made[index]


def with_log(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[str]]:
    """The function between two effects on a Python list, and that list."""
    log: list[str] = []

    def logged(x: Tensor, index: Tensor) -> Tensor:
        log.append("before")
        result = function(x, index)
        log.append("behind")
        return result

    return logged, log


def view_of_fresh(x: Tensor, index: Tensor) -> Tensor:
    made = torch.zeros(3, 2)
    made[1:].fill_(4.0)
    made.T[0] = x[index]
    return made


@BACKENDS
@pytest.mark.parametrize("function", [fresh, view_of_fresh])
def test_writes_to_new_tensors_leave_nothing_behind(
    function: Callable[..., Any], backend: str
) -> None:
    logged, log = with_log(function)
    compiled = pliant.compile(logged, backend=backend)
    good, bad = torch.tensor([0, 1, 2]), torch.tensor([0, 9, 2])
    compiled(torch.ones(3), good)
    log.clear()
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        compiled(torch.ones(3), bad)
    assert log == ["before"]  # Python's own effects up to the line that raises


def needs_a_size(x: Tensor) -> Tensor:
    v = x + 1
    v *= 2
    return x.masked_fill(torch.unique(x) > 100, 1)


def needs_a_size_unused(x: Tensor) -> Tensor:
    v = x + 1
    v *= 2
    x.masked_fill(torch.unique(x) > 100, 1)
    return v


def writes_an_input(x: Tensor) -> Tensor:
    x += 1
    return x + torch.unique(x)


def draws(x: Tensor) -> Tensor:
    return torch.rand(2).sum() + x * torch.unique(x)


@BACKENDS
@pytest.mark.parametrize(
    "function",
    [needs_a_size, needs_a_size_unused, writes_an_input, draws],
    ids=lambda f: f.__name__,
)
def test_an_assumption_fails_behind_an_effect(function: Callable[..., Any], backend: str) -> None:
    values = [torch.arange(4.0), torch.ones(4), torch.tensor([0.0, 1.0, 0.0, 1.0])]
    calls = [(v.reshape(shape),) for shape in ((4,), (4, 1), (2, 2)) for v in values]
    compare(function, backend, *calls)
    compare(function, backend, *reversed(calls))


def draws_and_fails(x: Tensor, index: Tensor) -> Tensor:
    drawn = torch.rand(3) + torch.randn(3)
    return torch.nn.functional.dropout(drawn) + x[index]


def draws_and_divides(x: Tensor, index: Tensor) -> Tensor:
    x.normal_()
    index // (index - 9)
    return x + torch.randperm(3)


def draws_and_takes_integers(x: Tensor, index: Tensor) -> Tensor:
    x.uniform_()
    return torch.rand(3) + index.log_softmax(0)


def draws_integers(x: Tensor, index: Tensor) -> Tensor:
    x.uniform_()
    return torch.randn_like(index) + x


def crosses_dtypes(x: Tensor, index: Tensor) -> Tensor:
    return torch.linalg.cross(torch.rand(3), x.to(torch.bfloat16) * index)


@BACKENDS
@pytest.mark.parametrize(
    "function",
    [
        draws_and_fails,
        draws_and_divides,
        draws_and_takes_integers,
        draws_integers,
        crosses_dtypes,
    ],
)
def test_random_numbers_of_a_graph_that_fails_are_drawn_once(
    function: Callable[..., Any], backend: str
) -> None:
    good, bad = torch.tensor([0, 1, 2]), torch.tensor([0, 9, 2])
    compare(function, backend, *[(torch.ones(3), index) for index in (good, bad, good, bad)])


@BACKENDS
@pytest.mark.parametrize("accumulates", [False, True])
def test_an_assumption_behind_what_nobody_can_undo_ends_the_graph(
    backend: str, accumulates: bool
) -> None:
    """A gradient that is set can be taken back; one that is added to would have to be copied."""

    def function(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        (w * w).sum().backward()
        return x + torch.unique(x), w.grad

    compiled = pliant.compile(function, backend=backend)
    for x in (torch.ones(4), torch.arange(4.0), torch.ones(4)):
        w = torch.ones(2, requires_grad=True)
        w.grad = torch.ones(2) if accumulates else None
        result, grad = compiled(w, x)
        assert torch.equal(result, x + torch.unique(x))
        assert grad.tolist() == [2.0 + accumulates] * 2
    assert events.counters["graph_breaks"] == accumulates


def caught_write(x: Tensor) -> Tensor:
    try:
        x += 1
    except RuntimeError:
        return x * 2
    return x


def caught_write_to_a_part(x: Tensor) -> Tensor:
    try:
        x[:2].mul_(3)
    except RuntimeError:
        return x - 1
    return x


@BACKENDS
@pytest.mark.parametrize("function", [caught_write, caught_write_to_a_part])
@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 1, 3)])
def test_a_refused_write_to_an_expanded_tensor_is_caught(
    function: Callable[..., Any], shape: tuple[int, ...], backend: str
) -> None:
    compiled = pliant.compile(function, backend=backend)
    for _ in range(2):
        expected, actual = (run(f, (torch.ones(1).expand(shape),)) for f in (function, compiled))
        same_outcome(actual, expected)


def draws_and_picks(x: Tensor, index: Tensor) -> Tensor:
    drawn = torch.rand_like(x)
    return (x + drawn)[index]


def picks_unused(x: Tensor, index: Tensor) -> Tensor:
    dropped = torch.dropout(x, 0.5, True)
    dropped[index]
    return x + 1


def draws_behind(x: Tensor, index: Tensor) -> Tensor:
    picked = x[index]
    return picked + torch.rand(2)


@BACKENDS
@pytest.mark.parametrize("function", [draws_and_picks, picks_unused, draws_behind])
def test_random_numbers_are_drawn_once_and_effects_stay_if_the_graph_fails(
    function: Callable[..., Any], backend: str
) -> None:
    logged, log = with_log(function)
    compiled = pliant.compile(logged, backend=backend)
    for index in (0, 9, 1, 9):
        outcomes = []
        for f in (logged, compiled):
            log.clear()
            outcome = run(f, (torch.ones(3), torch.tensor([index])), seed=index)
            outcomes.append((outcome, list(log), torch.get_rng_state()))
        (expected, told, state), (actual, ours, after) = outcomes
        same_outcome(actual, expected)
        assert ours == told
        assert torch.equal(after, state)


def refused(x: Tensor, index: Tensor) -> None:
    LOG.append("before")
    x.expand(3, 3).add_(1)
    LOG.append("behind")


def refused_out(x: Tensor, index: Tensor) -> None:
    LOG.append("before")
    torch.div(x.expand(3, 3), 2, out=x.expand(3, 3))


def refused_overlap(x: Tensor, index: Tensor) -> None:
    LOG.append("before")
    x[1:] = x[:-1]


def fails_before_writing(x: Tensor, index: Tensor) -> None:
    LOG.append("before")
    torch.take(x, index)
    x.add_(1)
    LOG.append("behind")


def fails_after_writing(x: Tensor, index: Tensor) -> None:
    x.add_(1)
    torch.take(x, index)


def fails_while_adding(x: Tensor, index: Tensor) -> None:
    x.index_put_((index,), torch.ones(()), accumulate=True)


def fails_at_the_second(x: Tensor, index: Tensor) -> None:
    torch._foreach_add_([x, index.expand(3, 1)], 1)


LOG: list[str] = []
BEFORE_WRITES = [refused, refused_out, refused_overlap, fails_before_writing]
BEHIND_WRITES = [fails_after_writing, fails_while_adding, fails_at_the_second]


@BACKENDS
@pytest.mark.parametrize("function", BEFORE_WRITES + BEHIND_WRITES)
def test_a_graph_that_has_not_written_yet_is_run_again(
    function: Callable[..., Any], backend: str
) -> None:
    compiled = pliant.compile(function, backend=backend)
    for index in (0, 9, 1, 9):
        outcomes = []
        for f in (function, compiled):
            LOG.clear()
            x = torch.arange(3.0)
            outcome = run(f, (x, torch.tensor([0, index])))
            outcomes.append((outcome, [x.tolist()], list(LOG)))
        (expected, theirs, told), (actual, ours, log) = outcomes
        same_outcome(actual, expected)
        assert ours == theirs  # written once, whatever was written
        assert log == told


def cat_over_a_part(a):
    try:
        torch.cat([a, a], out=a)
    except Exception:
        pass


def refused_after_resizing(a, b, out):
    try:
        torch.bitwise_and(a, b, out=out)
    except Exception:
        pass


def another_error_after_resizing(out, c):
    torch.cumsum(c, 0, out=out)
    torch.poisson(out.abs())


def index_error_after_growing(out, items):
    items.append(1)
    torch.cumsum(out.repeat(2, 1), 0, out=out)
    F.embedding(torch.tensor([500]), out)


def index_error_after_resize_(out, items):
    items.append(1)
    out.resize_(2, 3).fill_(out.shape[0] + len(items))
    F.embedding(torch.tensor([500]), out)


def handled_after_growing(out, items):
    try:
        torch.cumsum(out.repeat(2, 1), 0, out=out)
        F.embedding(torch.tensor([500]), out)
    except IndexError:
        items.append(1)


def handled_after_growing_a_view(out, items):
    part = out.view(1)
    try:
        torch.cumsum(out.repeat(2, 1), 0, out=part)
        part.add_(1)
        F.embedding(torch.tensor([500]), part)
    except IndexError:
        items.append(part.tolist())


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize(
    "function, effects",
    [
        # Behind a write, effects on Python objects are not replayed.
        (index_error_after_growing, False),
        (index_error_after_resize_, False),
        (handled_after_growing, True),
        (handled_after_growing_a_view, True),
    ],
)
def test_an_error_behind_an_operator_that_enlarged_an_input(function, effects, backend):
    """It is enlarged and written to once."""

    def outcome(call):
        args, error = (torch.ones(()), []), None
        try:
            call(*args)
        except Exception as raised:
            error = type(raised)
        tensor, items = args
        return error, tensor.shape, tensor.stride(), tensor.tolist(), items if effects else []

    assert outcome(pliant.compile(function, backend=backend)) == outcome(function)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize(
    "function, make",
    [
        (cat_over_a_part, lambda: (torch.ones(4)[::2],)),
        (refused_after_resizing, lambda: (torch.ones(()), torch.ones(3), torch.ones(2, 2))),
        (another_error_after_resizing, lambda: (torch.ones(0, dtype=torch.long), torch.ones(2))),
    ],
)
def test_a_tensor_that_a_failing_operator_resized(function, make):
    """Put back for the second run, with its shape."""

    def outcome(call):
        args, error = make(), None
        try:
            call(*args)
        except Exception as raised:
            error = type(raised)
        return error, [(t.shape, t.stride(), t.storage_offset(), t.tolist()) for t in args]

    assert outcome(pliant.compile(function)) == outcome(function)


@pytest.mark.parametrize("dynamic", [False, None, True])
def test_a_mask_that_does_not_fit_is_refused_before_anything_is_written(dynamic: Any) -> None:
    def f(x: torch.Tensor, mask: torch.Tensor, items: list) -> None:
        items.reverse()
        x[mask] = 0

    compiled = pliant.compile(f, dynamic=dynamic)
    for size in (3, 2, 4, 0, 3):
        arguments = (torch.ones(3), torch.ones(size) > 0, [1, 2])
        expected = run(f, copy.deepcopy(arguments))
        same_outcome(run(compiled, copy.deepcopy(arguments)), expected)


def row(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index)


def chosen(x: Tensor, index: Tensor) -> Tensor:
    return x * [2, 3, 4][index.item()]


def divided(x: Tensor, index: Tensor) -> Tensor:
    return x * (12 // (index.item() - 7))


def checked(x: Tensor, index: Tensor) -> Tensor:
    torch._check(index.item() < 3)
    return x * 2


def hook_before(function: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Tensor, index: Tensor) -> Any:
        y = (x * 2).requires_grad_()
        y.register_hook(lambda gradient: gradient * 3)
        try:
            z = function(y, index)
        except (IndexError, RuntimeError, ZeroDivisionError):
            z = y + 100
        return z, torch.autograd.grad(z.sum(), y)

    return program


def hook_behind(function: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Tensor, index: Tensor) -> Any:
        y = (x * 2).requires_grad_()
        try:
            z = function(y, index)
        except (IndexError, RuntimeError, ZeroDivisionError):
            z = y + 100
        z.register_hook(lambda gradient: gradient * 3)
        return z, torch.autograd.grad(z.sum(), y)

    return program


def array_written_before(function: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: Tensor, index: Tensor) -> Any:
        array = x.numpy()
        array += 1
        log = []
        try:
            z = function(x, index)
        except (IndexError, RuntimeError, ZeroDivisionError):
            z = x + 100
        finally:
            log.append(float(x.sum()))
        return z, log

    return program


@BACKENDS
@pytest.mark.parametrize("effect", [hook_before, hook_behind, array_written_before])
@pytest.mark.parametrize("function", [row, chosen, divided, checked])
def test_what_the_program_handles_is_not_run_behind_effects_that_stay(
    function: Callable[..., Any], effect: Callable[..., Any], backend: str
) -> None:
    x, good, bad = torch.arange(3.0), torch.tensor([1]), torch.tensor([7])
    compare(effect(function), backend, (x, good), (x, bad), (x, good))
    compare(effect(function), backend, (x, bad), (x, good))
