"""What a training step has in memory at once: no more than has to be, and nothing that somebody
else still looks at is overwritten for it."""

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events
from tests.support.peak_memory import memory, peak_memory

ELEMENTS = 10_000
BYTES = 4 * ELEMENTS


def compiled(function):
    return pliant.compile(function, backend="llvm", dynamic=False)


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def sums(x):
    """Saves a running sum, whose memory its gradient fits into."""
    return x.cumsum(0).sin().sum()


def steps(function, *leaves):
    """A step that was made before, so that all is compiled."""

    def step():
        for tensor in leaves:
            tensor.grad = None
        function(*leaves).backward()

    for _ in range(2):
        step()
        for tensor in leaves:
            tensor.grad = None
    return step


def test_a_gradient_in_the_memory_of_what_was_saved() -> None:
    x = leaf(ELEMENTS)
    # The running sum, in which its gradient is computed, and that of the input.
    assert peak_memory(steps(compiled(sums), x)) < 2.5 * BYTES


def test_a_tangent_is_freed_behind_its_last_use() -> None:
    """Products of the tangent are made before large gradients are."""
    x, w = leaf(8, 8), leaf(8, ELEMENTS)
    function = compiled(lambda x, w: (x.sin() @ w).cumsum(1))
    step = steps(lambda x, w: function(x, w).sum(), x, w)
    before = peak_memory(step)
    tangent = 8 * BYTES
    # The result, and the gradients of the product and of `w`; not the tangent itself.
    assert before < 3.5 * tangent


def test_random_numbers_leave_no_tensor() -> None:
    """The state of the generator is kept, for gradients of gradients; it is 5 KB as a tensor."""
    x = leaf(4)
    function = compiled(lambda x: torch.dropout(x, 0.5, True).sum())
    function(x)
    assert 0 < memory(lambda: function(x))[-1] < 100


def test_masks_are_bools_in_a_whole_step() -> None:
    """Up to the backward dropout keeps what was drawn, not the floats that it multiplies by."""
    w, x = leaf(ELEMENTS), torch.randn(ELEMENTS)

    def step(x):
        w.grad = None
        y = x
        for _ in range(4):
            y = torch.dropout(y * w, 0.1, True)
        y.cumsum(0).sum().backward()
        return y.detach()

    run, gradients = compiled(step), []
    for function in (step, run):
        torch.manual_seed(0)
        function(x)
        gradients.append(w.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].stride() == gradients[1].stride()
    gradients.clear()
    run(x)
    # What each round multiplies, the result and gradients; and four masks, of a quarter each.
    assert peak_memory(lambda: run(x)) < 7.5 * BYTES


@pytest.mark.parametrize("retained", [True, False])
def test_a_backward_again(retained: bool) -> None:
    x = leaf(50)
    result = compiled(sums)(x)
    expected = torch.autograd.grad(sums(x), x)[0]
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(result, x, retain_graph=True)[0], expected)
    torch.testing.assert_close(torch.autograd.grad(result, x, retain_graph=retained)[0], expected)
    if not retained:
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(result, x)


def test_somebody_holds_what_is_saved() -> None:
    x = leaf(50)
    function = compiled(sums)
    for _ in range(2):
        result = function(x)
        saved = result.grad_fn.saved_tensors
        before = [tensor.clone() for tensor in saved]
        result.backward()
        assert all(map(torch.equal, saved, before))


def test_hooks_keep_what_is_saved() -> None:
    x = leaf(50)
    function = compiled(sums)
    kept = []

    def pack(tensor):
        kept.append((tensor, tensor.detach().clone()))
        return len(kept) - 1

    def unpack(number):
        return kept[number][0]

    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            result = function(x)
        result.backward()
        assert kept and all(torch.equal(tensor, copy) for tensor, copy in kept)


def test_memory_that_is_not_pytorchs() -> None:
    """An unpack hook gives memory of NumPy's, which nobody else has as a tensor."""
    x = leaf(50)
    function = compiled(sums)
    kept = []

    def pack(tensor):
        kept.append(tensor.detach().numpy().copy())
        return len(kept) - 1

    def unpack(number):
        return torch.from_numpy(kept[number])

    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            result = function(x)
        before = [array.copy() for array in kept]
        result.backward()
        assert all((one == other).all() for one, other in zip(kept, before, strict=True))


def test_an_output_that_is_saved() -> None:
    x = leaf(50)
    function = compiled(lambda x: (x.cumsum(0), x.cumsum(0).sin().sum()))
    for _ in range(2):
        running, loss = function(x)
        before = running.detach().clone()
        loss.backward()
        assert torch.equal(running, before)


def test_sizes_that_vary() -> None:
    """The tangent is let go of for sizes that the code was seen to work for."""
    function = pliant.compile(lambda x: x.cumsum(0).sin() * 2, backend="llvm", dynamic=True)
    for size in (5, 7, 5, 9, 7):
        x = leaf(size)
        tangent = torch.randn(size)
        expected = torch.autograd.grad(x.cumsum(0).sin() * 2, x, tangent)[0]
        before = tangent.clone()
        torch.testing.assert_close(torch.autograd.grad(function(x), x, tangent)[0], expected)
        assert torch.equal(tangent, before)


# Whole steps


def whole_step(model, before=lambda x: x):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)

    @compiled
    def step(x):
        x = before(x)
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def test_gradients_are_in_memory_once() -> None:
    """Not also as they were before they were clipped, nor those of the step before."""
    model = nn.Sequential(*[nn.Linear(64, 64, bias=False) for _ in range(8)])
    step = whole_step(model)
    x = torch.randn(2, 64)
    for _ in range(3):
        step(x)
    gradients = sum([4 * p.numel() for p in model.parameters()])
    assert peak_memory(lambda: [step(x), step(x)]) < 1.2 * gradients
    assert events.counters["fallbacks"] == events.counters["not_generated"] == 0


@torch.library.custom_op("pliant_tests::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    if x.min() < 0:
        raise ValueError("less than zero")
    return x.clone()


@positive.register_fake
def _(x):
    return torch.empty_like(x)


def test_gradients_stay_where_the_program_fails_before_it_drops_them() -> None:
    model = nn.Linear(4, 4)
    step = whole_step(model, positive)
    x = torch.rand(2, 4)
    for _ in range(3):
        step(x)
    gradients = [p.grad for p in model.parameters()]
    with pytest.raises(ValueError, match="less than zero"):
        step(-x)
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))
