"""Hooks that may do anything, in generated code: when they are called, how often, with what."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.support.training_programs import rows, trains_alike


def network():
    return nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
    )


def stepping(prepare, whole: bool = False):
    """Makes a step of a network that `prepare(model, log)` has put hooks on, and perhaps replaced
    by a function."""

    def make(compile):
        model, log = network(), []
        run = prepare(model, log) or model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = run if whole else compile(run)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return compile(step) if whole else step, [model, log, optimizer]

    return make


# ---- of modules


def told(model, log):
    def after(module, arriving, leaving):
        log.append([None if g is None else g.norm().item() for g in (*arriving, *leaving)])

    for layer in model:
        layer.register_full_backward_hook(after)


def changed(model, log):
    def after(module, arriving, leaving):
        return tuple([None if g is None else g * 0.5 for g in arriving])

    def before(module, leaving):
        return tuple([g.clamp(-0.01, 0.01) for g in leaving])

    model[2].register_full_backward_hook(after)
    model[2].register_full_backward_pre_hook(before)
    model[3].register_full_backward_pre_hook(before)


def kept(model, log):
    """As for maps of what a network looks at: results and gradients are kept."""
    held = {}

    def forward(module, args, result):
        held["result"] = result

    def after(module, arriving, leaving):
        held["gradient"] = leaving[0]
        log.append(leaving[0])
        log.append((held["result"].detach() * leaving[0]).sum(1).relu())

    model[3].register_forward_hook(forward)
    model[3].register_full_backward_hook(after)


def of_several(model, log):
    """A module with several arguments and results, of which some get no gradient."""

    class Several(nn.Module):
        def forward(self, x, factor, mask):
            return x * factor, mask, x.sum()

    def after(module, arriving, leaving):
        log.append([None if g is None else g.clone() for g in (*arriving, *leaving)])

    several = Several()
    several.register_full_backward_hook(after)

    def run(x):
        h, _, total = several(model[0](x), 2.0, x > 0)
        return model[4](model[3](model[2](h))) + total

    return run


def first(model, log):
    """Its arguments require no gradient."""

    def after(module, arriving, leaving):
        log.append((arriving[0] is None, leaving[0].sum()))

    model[0].register_full_backward_hook(after)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("prepare", [told, changed, kept, of_several, first])
def test_of_modules(prepare, whole: bool) -> None:
    breaks = None if whole else 0  # `backward` is left to Python
    trains_alike(stepping(prepare, whole), compilations=None if whole else 2, breaks=breaks)


# ---- of tensors


def hooked(hook):
    """Puts a hook on what the first layer gives."""

    def prepare(model, log):
        def run(x):
            h = model[1](model[0](x))
            h.register_hook(hook(log))
            return model[4](model[3](model[2](h)))

        return run

    return prepare


def printing(log):
    def hook(gradient):
        log.append(gradient.abs().max().item())

    return hook


def keeping(log):
    def hook(gradient):
        log.append(gradient)

    return hook


def in_place(log):
    def hook(gradient):
        gradient.mul_(0.5)

    return hook


def deciding(log):
    def hook(gradient):
        return gradient if gradient.norm() > 0.1 else gradient * 2

    return hook


@pytest.mark.parametrize("hook", [printing, keeping, in_place, deciding])
def test_of_tensors(hook) -> None:
    outer = hook  # made once: a hook that is made anew on each call breaks the graph

    def prepare(model, log):
        made = outer(log)
        return hooked(lambda log: made)(model, log)

    trains_alike(stepping(prepare), compilations=2)


def test_gradients_that_are_kept_stay_what_they_are() -> None:
    """Their memory isn't used for other gradients."""
    kept = []
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
    for layer in model:
        layer.register_full_backward_hook(lambda module, arriving, leaving: kept.append(leaving[0]))
    x = torch.randn(3, 4, requires_grad=True)
    compiled = pliant.compile(model, backend="llvm")
    compiled(x).exp().sum().backward()
    mine, kept[:] = list(kept), []
    model(x).exp().sum().backward()
    torch.testing.assert_close(mine, kept)
    assert events.counters["not_generated"] == 0


def test_writes_to_what_a_module_with_hooks_returns() -> None:
    """Autograd forbids them, as for results that share memory with it."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.inner.register_forward_hook(self.keep)
            self.inner.register_full_backward_hook(lambda *args: None)

        def keep(self, module, args, result):
            self.kept = result

        def forward(self, x, both):
            result = self.inner(x)
            return (result, self.kept) if both else result

    model = Both()
    compiled = pliant.compile(model, backend="llvm")
    for both in (False, True):
        for run in (compiled, model):
            result = run(torch.ones(2, 3), both)
            first, other = result if both else (result, None)
            assert other is None or first.data_ptr() == other.data_ptr()
            with pytest.raises(RuntimeError, match="is being modified inplace"):
                first.mul_(2)
            first.sum().backward()


@pytest.mark.parametrize("retain", [False, True])
def test_errors(retain: bool) -> None:
    """What a hook raises is the program's, and nothing is called twice."""
    calls = []

    def hook(module, arriving, leaving):
        calls.append("called")
        if len(calls) in (1, 3):
            raise KeyError("a hook")

    model = network()
    model[2].register_full_backward_hook(hook)
    compiled = pliant.compile(model, backend="llvm")
    for fails in (True, False, True, False):
        before = len(calls)
        loss = compiled(torch.randn(3, 8)).sum()
        if fails:
            with pytest.raises(KeyError, match="a hook"):
                loss.backward(retain_graph=retain)
        else:
            loss.backward(retain_graph=retain)
        assert len(calls) == before + 1
    assert events.counters["fallbacks"] == events.counters["not_generated"] == 0


def test_one_backward_after_the_other() -> None:
    calls = []
    model = network()
    model[2].register_full_backward_hook(lambda *args: calls.append("module"))
    compiled = pliant.compile(model, backend="llvm")
    loss = compiled(torch.randn(3, 8)).sum()
    loss.backward(retain_graph=True)
    first = model[0].weight.grad.clone()
    loss.backward()
    torch.testing.assert_close(model[0].weight.grad, first * 2)
    assert calls == ["module", "module"]


def test_gradients_of_gradients() -> None:
    calls = []
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh()).double()
    model[0].register_full_backward_hook(lambda *args: calls.append("module"))
    compiled = pliant.compile(model, backend="llvm")
    x = torch.randn(2, 2, dtype=torch.float64, requires_grad=True)
    outcomes = []
    for run in (compiled, model):
        (gradient,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        outcomes.append((gradient, *torch.autograd.grad(gradient.sum(), x), len(calls)))
        calls.clear()
    torch.testing.assert_close(*outcomes)


def test_a_hook_that_is_removed() -> None:
    calls = []
    model = network()
    compiled = pliant.compile(model, backend="llvm")
    handle = model[2].register_full_backward_hook(lambda *args: calls.append("module"))
    compiled(torch.randn(3, 8)).sum().backward()
    handle.remove()
    compiled(torch.randn(3, 8)).sum().backward()
    assert calls == ["module"]


def test_numbers_of_handles() -> None:
    """To compile a graph with hooks takes none."""
    model = network()
    model[2].register_full_backward_hook(lambda *args: None)
    handle = torch.utils.hooks.RemovableHandle
    counts = []
    for run in (pliant.compile(model, backend="llvm"), model):
        before = handle.next_id
        run(torch.randn(3, 8)).sum().backward()
        counts.append(handle.next_id - before)
    assert counts[0] == counts[1]


# ---- of parameters

NETWORKS = {
    "linear": network,
    "norms": lambda: nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2, bias=False)
    ),
    "attention": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 4)),
        nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
        nn.Flatten(),
        nn.Linear(8, 2),
    ),
    "convolutions": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv1d(1, 4, 3, padding=1),
        nn.BatchNorm1d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 2),
    ),
}


@pytest.mark.parametrize("accumulated", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_of_parameters_in_order(name: str, accumulated: bool) -> None:
    """Each gradient arrives when it would in eager PyTorch."""

    def make(compile):
        model, log = NETWORKS[name](), []

        def hook(name, _):
            log.append(name)

        for name_, parameter in model.named_parameters():
            if accumulated:
                parameter.register_post_accumulate_grad_hook(partial(hook, name_))
            else:
                parameter.register_hook(partial(hook, name_))
        run = compile(model)

        def step(x, y):
            model.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            return loss

        return step, [model, log]

    trains_alike(make, rows(4, 4, 7, 3), close=(1e-3, 1e-5))


def test_of_parameters_beside_a_tensor_with_a_history() -> None:
    outer = nn.Linear(8, 8)
    model = network()
    compiled = pliant.compile(model, backend="llvm")
    logs = []
    for run in (compiled, model):
        log: list[str] = []
        handles = [
            parameter.register_hook(lambda gradient, name=name, log=log: log.append(name))
            for name, parameter in [*model.named_parameters(), *outer.named_parameters()]
        ]
        run(outer(torch.randn(3, 8)).sin()).sum().backward()
        for handle in handles:
            handle.remove()
        logs.append(log)
    assert logs[0] == logs[1]
