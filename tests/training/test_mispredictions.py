"""Operators whose fakes tell something else than what the operators return, as PyTorch's own meta
kernels do for some versions: the compiled backward finds out when it runs, and PyTorch takes over.
"""

import pytest
import torch

import pliant
from pliant.base import events
from pliant.base.errors import InternalError, PliantWarning
from pliant.base.options import config


@torch.library.custom_op("pliant_tests::halves", mutates_args=())
def halves(grad: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return grad * x, grad[:2].clone()


@halves.register_fake
def _(grad, x):
    return torch.empty_like(x), torch.empty_like(grad)  # of which there are only two


@torch.library.custom_op("pliant_tests::cubed", mutates_args=())
def cubed(x: torch.Tensor, both: bool, raises: bool) -> torch.Tensor:
    return x**2 / 2


@cubed.register_fake
def _(x, both, raises):
    return torch.empty_like(x)


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.both, ctx.raises = inputs[1:]


def _backward(ctx, grad):
    whole, part = halves(grad, *ctx.saved_tensors)
    if ctx.both:
        whole = whole + part.sum()
    if ctx.raises:
        whole = refused(whole)
    return whole, None, None


cubed.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("pliant_tests::refused", mutates_args=())
def refused(x: torch.Tensor) -> torch.Tensor:
    raise ArithmeticError("as in eager")


@refused.register_fake
def _(x):
    return torch.empty_like(x)


def gradient(function, x):
    return torch.autograd.grad(function(x).sin().sum(), x)[0]


def function(x):
    return cubed(x.exp(), True, False) * 2


@pytest.fixture
def x():
    return torch.randn(5, requires_grad=True)


def test_a_backward_that_was_foreseen_wrongly(x) -> None:
    with config.patch(raise_on_fallback=False):
        run = pliant.compile(function, backend="llvm")
        with pytest.warns(PliantWarning, match="backward runs eagerly"):
            torch.testing.assert_close(gradient(run, x), gradient(function, x))
        for _ in range(2):
            torch.testing.assert_close(gradient(run, x), gradient(function, x))
    assert events.counters["fallbacks"] == 1  # the code isn't tried again


def test_it_is_raised_where_that_is_asked_for(x) -> None:
    with pytest.raises(InternalError, match="backward failed.*foreseen"):
        gradient(pliant.compile(function, backend="llvm"), x)


def test_inputs_that_were_overwritten(x) -> None:
    """PyTorch can't take over: what was wrong is told."""
    other = torch.ones(5)
    with config.patch(raise_on_fallback=False):
        result = pliant.compile(lambda x, y: function(x) + y, backend="llvm")(x, other)
        other.zero_()
        with pytest.raises(RuntimeError, match="foreseen"):
            result.sum().backward()


def test_a_result_that_nobody_reads(x) -> None:
    def unread(x):
        return cubed(x.exp(), False, False) * 2

    torch.testing.assert_close(
        gradient(pliant.compile(unread, backend="llvm"), x), gradient(unread, x)
    )
    assert events.counters["fallbacks"] == events.counters["not_generated"] == 0


def test_an_error_of_the_backward_is_no_failure_of_ours(x) -> None:
    def raising(x):
        return cubed(x.exp(), False, True) * 2

    run = pliant.compile(raising, backend="llvm")
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="as in eager"):
            gradient(run, x)
    assert events.counters["fallbacks"] == 0


@torch.library.custom_op("pliant_tests::longer", mutates_args=())
def longer(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x])


@longer.register_fake
def _(x):
    return torch.empty_like(x)  # of which there are two


def _longer_backward(ctx, grad):
    return grad[:5] * 2  # of a sum


longer.register_autograd(_longer_backward)


def forward_foreseen_wrongly(x):
    return longer(x.exp()).sum() * 2


def step_foreseen_wrongly(x):
    x.grad = None
    loss = forward_foreseen_wrongly(x)
    loss.backward()
    return loss


@pytest.mark.parametrize(
    ("program", "wants_gradients"),
    [
        (forward_foreseen_wrongly, False),
        (forward_foreseen_wrongly, True),
        (step_foreseen_wrongly, True),
    ],
)
def test_a_forward_that_was_foreseen_wrongly(x, program, wants_gradients: bool) -> None:
    """The graph runs in its place at each call, which is told and counted."""
    x.requires_grad_(wants_gradients)
    expected = program(x)
    with config.patch(raise_on_fallback=False):
        run = pliant.compile(program, backend="llvm")
        with pytest.warns(PliantWarning, match="runs eagerly.*foreseen"):
            torch.testing.assert_close(run(x), expected)
        torch.testing.assert_close(run(x), expected)
    assert events.counters["fallbacks"] == 2
    pliant.reset()
    with pytest.raises(InternalError, match="foreseen"):
        pliant.compile(program, backend="llvm")(x)


def test_an_error_of_the_forward_is_no_failure_of_ours(x) -> None:
    def raising(x):
        return refused(x.exp()).sum()

    run = pliant.compile(raising, backend="llvm")
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="as in eager"):
            run(x.detach())
    assert events.counters["fallbacks"] == 0
