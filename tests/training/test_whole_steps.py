"""Steps that call `backward` themselves, with their optimizer, as one compiled program."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

import pliant
from pliant.backends import training
from pliant.base import events
from pliant.runtime.whole_step import CompiledStep

STEPS = 6
OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw one by one": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "fused adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "fused sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "fused adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01, fused=True),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=True),
    "adamw with a tensor": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01)),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01, foreach=True),
    "asgd one by one": lambda p: torch.optim.ASGD(p, lr=0.1, t0=3, foreach=False),
}
EACH_WAY = ["Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam"]
EACH_WAY += ["RAdam", "RMSprop", "Rprop", "SGD"]
CASES = {"radam": 3, "asgd one by one": 4}
"""How many compilations there are of optimizers that do something else after some steps."""


@pytest.fixture(autouse=True)
def _never_eager(monkeypatch) -> None:
    """A step that is compiled and then left to PyTorch is a failure."""

    def eager(*inputs):
        raise AssertionError("the step runs as it was captured")

    def step(program, _, *rest):
        return CompiledStep(program, eager, *rest)

    monkeypatch.setattr(training, "CompiledStep", step)


def network():
    layers = [nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 2)]
    return nn.Sequential(*layers)


def follow(make, build, compiles: bool, sizes=(4,)):
    """Losses, parameters, gradients and buffers after some steps of what `make` gives."""
    torch.manual_seed(0)
    model = build()
    run = make(model)
    if compiles:
        run = pliant.compile(run, backend="llvm")
    told = []
    for number in range(STEPS):
        torch.manual_seed(number)
        rows = sizes[number % len(sizes)]
        loss = run(torch.randn(rows, 3), torch.randn(rows, 2))
        told.append(loss.detach().clone())
    told += [p.detach().clone() for p in model.parameters()]
    told += [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return told + [b.clone() for b in model.buffers()], loss


def check(make, build=network, sizes=(4,), compilations: int = 2, close=(1e-4, 1e-6)):
    theirs, their_loss = follow(make, build, False, sizes)
    events.counters.reset()
    mine, loss = follow(make, build, True, sizes)
    assert events.counters["fallbacks"] == events.counters["graph_breaks"] == 0
    assert events.counters["not_generated"] == 0
    assert events.counters["compilations"] <= compilations
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) is (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=close[0], atol=close[1])
            assert a.stride() == b.stride()
    assert loss.requires_grad is their_loss.requires_grad
    return loss


def stepping(optimizer_of, clip=None):
    """Makes the step of a model: gradients dropped, loss, backward, clipping, optimizer."""

    def make(model):
        optimizer = optimizer_of(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            return loss

        return step

    return make


simple = stepping(lambda p: torch.optim.AdamW(p, lr=0.01))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    check(stepping(OPTIMIZERS[name]), compilations=CASES.get(name, 2))


@pytest.mark.long
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", EACH_WAY)
def test_optimizers_each_way(name: str, foreach: bool, monkeypatch) -> None:
    monkeypatch.setattr(f"{__name__}.STEPS", 20)
    optimizer = getattr(torch.optim, name)
    make = stepping(lambda p: optimizer(p, lr=0.01, foreach=foreach))
    check(make, compilations=3 if name == "RAdam" else 2)


@pytest.mark.parametrize("name", ["radam", "asgd one by one"])
def test_the_step_of_an_optimizer_alone(name: str) -> None:
    def make(model):
        optimizer = OPTIMIZERS[name](model.parameters())
        step = pliant.compile(optimizer.step, fullgraph=True)

        def run(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            step()
            return loss

        return run

    mine, theirs = (follow(make, network, False)[0] for make in (make, stepping(OPTIMIZERS[name])))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_sizes_that_vary() -> None:
    check(simple, sizes=(4, 7, 3), compilations=3)


def test_one_row() -> None:
    check(simple, sizes=(1, 4), compilations=3)


def test_the_loss_has_a_history_that_is_used_up() -> None:
    loss = check(simple)
    assert loss.grad_fn is not None
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_clipping() -> None:
    check(stepping(OPTIMIZERS["sgd"], clip=0.1))


def test_clipping_that_looks_at_the_norm() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            clip = torch.nn.utils.clip_grad_norm_
            norm = clip(model.parameters(), 0.1, error_if_nonfinite=True)
            optimizer.step()
            return norm

        return step

    check(make)


SCHEDULERS = {
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 10),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 10),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [20, 50]),
    "function": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.95**epoch),
}
# Those that change their course get code for each, which is chosen by a guard.
COURSES = {
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=10),
    "one linear cycle": lambda o: lr_scheduler.OneCycleLR(
        o, 0.2, total_steps=10, anneal_strategy="linear"
    ),
    "cycles": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3),
    "warm-up": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: min(1, (epoch + 1) / 4)),
    "linear": lambda o: lr_scheduler.LinearLR(o, total_iters=4),
}


@pytest.mark.parametrize("name", [*SCHEDULERS, *COURSES])
@pytest.mark.parametrize("optimizer_name", ["momentum", "adamw"])
def test_schedulers(name: str, optimizer_name: str) -> None:
    """A learning rate that changes in each step is an input."""

    def make(model):
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        scheduler = (SCHEDULERS | COURSES)[name](optimizer)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss + optimizer.param_groups[0]["lr"]

        return step

    check(make, compilations=2 if name in SCHEDULERS else 3)


LATE = {
    "steps": lambda o: lr_scheduler.StepLR(o, 3, 0.5),
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.3, 4),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [3, 5], 0.5),
}


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("optimizer_name", ["momentum", "adamw", "radam"])
def test_a_learning_rate_that_changes_late(name: str, optimizer_name: str) -> None:
    """It is an input from the start: no compilation waits for its first change."""

    def train(compiles: bool):
        torch.manual_seed(0)
        model = network()
        optimizer = OPTIMIZERS[optimizer_name](model.parameters())
        scheduler = LATE[name](optimizer)
        step = pliant.compile(optimizer.step) if compiles else optimizer.step
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).pow(2).mean().backward()
            step()
            scheduler.step()
        return [p.detach().clone() for p in model.parameters()]

    theirs = train(False)
    events.counters.reset()
    mine = train(True)
    assert events.counters["compilations"] <= CASES.get(optimizer_name, 2)
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_scheduler_outside_of_the_step() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = lr_scheduler.ExponentialLR(optimizer, 0.9)
        inner = pliant.disable(scheduler.step)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        def run(x, y):
            loss = step(x, y)
            inner()
            return loss

        return run

    theirs, _ = follow(make, network, False)
    mine, _ = follow(make, network, True)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_autocast() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    check(make, close=(1e-2, 1e-3))  # numbers of 8 bits on the way


@pytest.mark.parametrize("name", ["fused adamw", "fused sgd"])
def test_scaled_gradients_of_a_fused_optimizer(name: str) -> None:
    """Its kernel looks at the scale itself. It writes to averages that are equal in the first step,
    all of them zeros, and to each of them on its own."""

    def make(model):
        optimizer = OPTIMIZERS[name](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    check(make)


@pytest.mark.parametrize("clip", [False, True])
def test_scaled_gradients(clip: bool) -> None:
    """A `GradScaler` looks whether gradients are finite before the optimizer's step."""

    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            if clip:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    check(make, close=(1e-2, 1e-2))


def accumulating(model):
    """Over steps, without `zero_grad`: gradients are added to what is there."""

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return step


def accumulating_with_optimizer(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def zeroing_in_place(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        optimizer.zero_grad(set_to_none=False)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    return step


def decaying_gradients(model):
    def step(x, y):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(0.5)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return step


def setting_gradients(model):
    def step(x, y):
        for p in model.parameters():
            p.grad = torch.ones_like(p) * y.mean()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return step


def micro_batches(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            rows = slice(2 * part, 2 * part + 2)
            loss = F.mse_loss(model(x[rows]), y[rows]) / 2
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    return step


ACCUMULATING = [accumulating, accumulating_with_optimizer, zeroing_in_place, decaying_gradients]
ACCUMULATING += [setting_gradients, micro_batches]


@pytest.mark.parametrize("make", ACCUMULATING, ids=lambda make: make.__name__)
def test_gradients_that_accumulate(make) -> None:
    check(make)


def test_a_step_after_several_batches() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        count = 0

        def step(x, y):
            nonlocal count
            count += 1
            loss = F.mse_loss(model(x), y) / 3
            loss.backward()
            if count % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
            return loss

        return step

    check(make, compilations=5)


def test_gradients_are_added_to_where_they_are() -> None:
    def follow_gradients(step):
        """Which tensor is a gradient, and how often it was written."""
        seen = []
        for number in range(4):
            torch.manual_seed(number)
            step(torch.randn(4, 3), torch.randn(4, 2))
            seen.append([(id(p.grad), p.grad.data_ptr()) for p in model.parameters()])
        assert seen[1:] == seen[:-1]
        return [(p.grad._version, p._version) for p in model.parameters()]

    model = network().eval()
    theirs = follow_gradients(accumulating(model))
    for p in model.parameters():
        p.grad = None
    assert follow_gradients(pliant.compile(accumulating(model), backend="llvm")) == theirs


def test_a_gradient_that_shares_memory() -> None:
    """With another one, as in a flat buffer: views of one memory that have no element in common."""

    def run(compiles):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        flat = torch.zeros(8)
        model.weight.grad, model.bias.grad = flat[:6].view(2, 3), flat[6:]
        step = accumulating(model)
        step = pliant.compile(step, backend="llvm") if compiles else step
        for number in range(3):
            torch.manual_seed(number)
            step(torch.randn(4, 3), torch.randn(4, 2))
        assert model.bias.grad.data_ptr() == flat[6:].data_ptr()
        return flat

    with pytest.MonkeyPatch.context() as patch:  # PyTorch may run it
        patch.setattr(training, "CompiledStep", CompiledStep)
        torch.testing.assert_close(run(True), run(False))


def test_two_backward_passes_in_a_step() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            first = F.mse_loss(model(x), y)
            first.backward()
            second = F.mse_loss(model(x * 2), y)
            second.backward()
            optimizer.step()
            return second

        return step

    check(make)


def test_two_backward_passes_through_a_graph() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            result = model(x)
            result.sum().backward(retain_graph=True)
            loss = F.mse_loss(result, y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    check(make)


def test_a_graph_that_is_retained(monkeypatch) -> None:
    """The gradient of the loss can be asked for again, unless a step has overwritten parameters."""
    monkeypatch.setattr(training, "CompiledStep", CompiledStep)

    def outcome(compiles: bool, updates: bool):
        torch.manual_seed(0)
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            loss = F.mse_loss(model(x), y)
            loss.backward(retain_graph=True)
            if updates:
                optimizer.step()
            return loss

        step = pliant.compile(step, backend="llvm") if compiles else step
        loss = step(torch.ones(4, 3), torch.ones(4, 2))
        try:
            loss.backward()
        except RuntimeError as error:
            return str(error)[:100]
        return [p.grad for p in model.parameters()]

    assert "modified by an inplace" in outcome(False, True)
    assert outcome(True, True) == outcome(False, True)
    for a, b in zip(outcome(True, False), outcome(False, False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_gradients_dropped_at_the_end() -> None:
    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    check(make)


def test_batch_norm() -> None:
    def build():
        # Without a bias, whose gradient would be nothing but rounding.
        return nn.Sequential(nn.Linear(3, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 2))

    check(simple, build, sizes=(8,))


def test_batch_norm_that_averages_over_all_batches() -> None:
    """Its momentum is a number in a tensor."""

    def build():
        norm = nn.BatchNorm1d(6, momentum=None)
        return nn.Sequential(nn.Linear(3, 6, bias=False), norm, nn.Linear(6, 2))

    check(simple, build, sizes=(8, 5), compilations=3)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.InstanceNorm2d(4)], ids=str)
def test_normalized_images_with_symbolic_sizes(norm) -> None:
    """Their backward asks nothing of sizes."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @pliant.compile(dynamic=True)
    def step(x):
        optimizer.zero_grad()
        loss = model(x).sin().sum()
        loss.backward()
        optimizer.step()

    events.counters.reset()
    for size in [(8, 3, 8, 8), (8, 3, 8, 8), (6, 3, 8, 8), (9, 3, 7, 8)]:
        step(torch.randn(size))
    assert events.counters["compilations"] == 2
    assert events.counters["not_generated"] == 0


def test_instance_norm_with_statistics() -> None:
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
            self.head = nn.Linear(9, 2)

        def forward(self, x):
            images = torch.stack([x, x * x, x.sin()], -1)
            return self.head(self.norm(images).flatten(1))

    check(simple, Network, sizes=(4, 6), compilations=3)


def test_an_lstm_of_one_layer() -> None:
    """Its state has a size of 1, for which kernels are asked for layouts: not those that would read
    a workspace beyond its end."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.LSTM(1, 8, batch_first=True)
            self.head = nn.Linear(8, 2)

        def forward(self, x):
            return self.head(self.net(x.unsqueeze(-1))[0][:, -1])

    check(simple, Network, sizes=(4, 6), compilations=3)


def test_tied_and_frozen_parameters() -> None:
    def build():
        first, second = nn.Linear(3, 3), nn.Linear(3, 3)
        second.weight = first.weight
        first.bias.requires_grad_(False)
        return nn.Sequential(first, nn.Tanh(), second, nn.Linear(3, 2))

    check(simple, build)


def test_outputs_beside_the_loss() -> None:
    model = network().eval()
    twin = copy.deepcopy(model)

    def make(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            optimizer.zero_grad()
            out = model(x)
            loss = F.mse_loss(out, y)
            loss.backward()
            optimizer.step()
            return loss.item(), out.detach()

        return step

    eager, ours = make(model), pliant.compile(make(twin), backend="llvm")
    for number in range(3):
        torch.manual_seed(number)
        x, y = torch.randn(4, 3), torch.randn(4, 2)
        theirs, mine = eager(x, y), ours(x, y)
        assert abs(theirs[0] - mine[0]) < 1e-5
        torch.testing.assert_close(mine[1], theirs[1])
        assert not mine[1].requires_grad


def test_parameters_are_written_where_they_are() -> None:
    torch.manual_seed(0)
    model = network()
    run = pliant.compile(simple(model), backend="llvm")
    before = [(id(p), p.data_ptr(), p._version) for p in model.parameters()]
    for _ in range(3):
        run(torch.randn(4, 3), torch.randn(4, 2))
    after = [(id(p), p.data_ptr(), p._version) for p in model.parameters()]
    assert [a[:2] for a in after] == [b[:2] for b in before]
    assert all(a[2] > b[2] for a, b in zip(after, before))
    assert all(p.is_leaf and p.grad.grad_fn is None for p in model.parameters())


def test_an_input_that_becomes_part_of_the_history(recwarn) -> None:
    """PyTorch warns of questions for the gradient of such a tensor."""

    def step(model, x):
        x.mul_(model.weight.sum())
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    model = nn.Linear(3, 2)
    twin = copy.deepcopy(model)
    x = torch.randn(4, 3)
    y = x.clone()
    compiled = pliant.compile(step, backend="llvm", fullgraph=True)
    torch.testing.assert_close(compiled(twin, y), step(model, x))
    torch.testing.assert_close(y, x)
    torch.testing.assert_close(twin.weight.grad, model.weight.grad)
    assert not [w for w in recwarn if "not a leaf" in str(w.message)]
