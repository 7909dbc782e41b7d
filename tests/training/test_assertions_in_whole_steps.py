"""Whole steps that look at data: one graph where nothing that lasts comes before they do, and
eager's state where the data are not as usual."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events

STEPS = 6


def network():
    layers = [nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2)]
    return nn.Sequential(*layers, nn.Linear(8, 2))


def outcome(step, *args):
    try:
        return step(*args).detach().clone()
    except (ValueError, RuntimeError) as error:
        return type(error), str(error)


def train(make, backend=None, bad=(3,), sizes=(4,), **options):
    """What the steps return or raise, and all state after each of them."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = make(model, optimizer)
    if backend is not None:
        step = pliant.compile(step, backend=backend, **options)
    told = []
    for number in range(STEPS):
        torch.manual_seed(number)
        rows = sizes[number % len(sizes)]
        x, y, variance = torch.randn(rows, 3), torch.randn(rows, 2), torch.rand(rows, 2) + 0.1
        if number in bad:
            variance[0, 1] = -1.0
        told.append(outcome(step, x, y, variance))
        told += [p.detach().clone() for p in model.parameters()]
        told += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        told += [b.clone() for b in model.buffers()]
        for p in model.parameters():
            told += [value.clone() for value in optimizer.state[p].values()]
        told.append(torch.rand(2))
    return told


def check(make, graph_breaks=0, **options):
    theirs = train(make, None, **{k: options[k] for k in ("bad", "sizes") if k in options})
    events.counters.reset()
    mine = train(make, **{"backend": "llvm", **options})
    counters = events.counters
    assert counters["not_generated"] == counters["fallbacks"] == 0
    assert counters["graph_breaks"] == graph_breaks
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def checked_loss(zero_grad):
    def make(model, optimizer):
        def step(x, y, variance):
            if zero_grad == "first":
                optimizer.zero_grad()
            loss = F.gaussian_nll_loss(model(x), y, variance)
            if zero_grad == "behind the check":
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    return make


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("zero_grad", ["first", "behind the check", "never"])
def test_a_loss_that_checks_its_arguments(zero_grad: str, backend: str) -> None:
    check(checked_loss(zero_grad), backend=backend)


def test_the_first_steps_fail() -> None:
    check(checked_loss("first"), bad=(0, 1, 4))


def test_sizes_that_vary() -> None:
    check(checked_loss("first"), sizes=(4, 6, 5), dynamic=True)


def test_a_backend_with_code_of_its_own() -> None:
    """The error tells that the check failed, where no line of the graph does."""

    def interpreted(graph, examples):
        return lambda *args: torch.fx.Interpreter(graph).run(*args)

    check(checked_loss("first"), backend=interpreted)


def test_distributions() -> None:
    def make(model, optimizer):
        def step(x, y, variance):
            optimizer.zero_grad()
            loss = -torch.distributions.Normal(model(x), variance).log_prob(y).mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    check(make)


def clipped(accumulates=False, late=False):
    """`clip_grad_norm_` raises where gradients aren't finite."""

    def make(model, optimizer):
        def step(x, y, variance):
            if not accumulates:
                optimizer.zero_grad()
            loss = (F.mse_loss(model(x), y, reduction="none") * variance.sqrt()).mean()
            loss.backward()
            if late:
                optimizer.step()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True)
            if not late:
                optimizer.step()
            return loss

        return step

    return make


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_gradients_are_set_before_the_check(backend: str) -> None:
    check(clipped(), backend=backend)


def test_gradients_that_are_added_to_end_the_graph() -> None:
    check(clipped(accumulates=True), graph_breaks=1)


def test_parameters_that_are_written_end_the_graph() -> None:
    check(clipped(late=True), graph_breaks=2)


def scaled(accumulates=False):
    """`GradScaler` leaves the optimizer's step out where gradients aren't finite."""

    def make(model, optimizer):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

        def step(x, y, variance):
            if not accumulates:
                optimizer.zero_grad()
            loss = (F.mse_loss(model(x), y, reduction="none") * variance.sqrt()).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss * scaler.get_scale()

        return step

    return make


@pytest.mark.parametrize("bad", [(), (3, 4), (0, 1)])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_a_scaler_leaves_steps_out(backend: str, bad: tuple[int, ...]) -> None:
    check(scaled(), backend=backend, bad=bad)


def test_a_scaler_under_hooks_on_saved_tensors() -> None:
    """The test that failed is no error of the program, although hooks may see tensors twice."""

    def run(compiles: bool):
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = scaled()(model, optimizer)
        step = pliant.compile(step, backend="llvm") if compiles else step
        with torch.autograd.graph.save_on_cpu():
            for sign in (1.0, 1.0, -1.0, 1.0):
                step(torch.ones(4, 3), torch.ones(4, 2), torch.full((4, 2), sign))
        return list(model.parameters())

    torch.testing.assert_close(run(True), run(False), rtol=1e-4, atol=1e-5)


def test_a_scaler_of_gradients_that_are_added_to() -> None:
    check(scaled(accumulates=True), graph_breaks=1)


@pytest.mark.parametrize("behind_backward", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_steps_without_a_finite_loss_are_left_out(backend: str, behind_backward: bool) -> None:
    """They are run by Python, and the next one by the graph."""

    def make(model, optimizer):
        def step(x, y, variance):
            optimizer.zero_grad()
            loss = (F.mse_loss(model(x), y, reduction="none") * variance.sqrt()).mean()
            if not behind_backward and not torch.isfinite(loss):
                return loss
            loss.backward()
            if behind_backward and loss.isnan():
                return loss
            optimizer.step()
            return loss

        return step

    check(make, backend=backend, bad=(1, 4))


def saved(make) -> list[str]:
    """The lines of residual code that save something for a failure."""
    residual = []

    def listen(event):
        if isinstance(event, events.ResidualMade):
            residual.extend(events.render(event.source).splitlines())

    with events.listening(listen):
        train(make, "eager", bad=())
    return [line.partition("(")[2] for line in residual if "SavedInputs" in line]


def test_only_what_is_written_before_the_check_is_saved() -> None:
    assert set(saved(checked_loss("first"))) == {
        "num_batches_tracked, running_mean, running_var, random=True)"
    }
    assert all("leaves=" in line and "exp_avg" not in line for line in saved(clipped()))


def test_a_failure_behind_the_optimizer_leaves_what_it_did() -> None:
    """Nothing is put back there: eager has written it all, too."""

    def make(model, optimizer):
        def step(x, y, variance):
            optimizer.zero_grad()
            loss = F.gaussian_nll_loss(model(x), y, variance.abs())
            loss.backward()
            optimizer.step()
            torch.linalg.cholesky(variance.min().sign().view(1, 1))
            return loss

        return step

    check(make)
