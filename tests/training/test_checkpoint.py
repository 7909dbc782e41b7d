"""`torch.utils.checkpoint` inside of a compiled function: compiled, and what it computes on the way
isn't saved."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import pliant
from pliant.base import events
from pliant.graph.ir import Node, Tensor
from pliant.graph.partition import delayed
from pliant.sym.expr import ZERO, integer
from tests.training.gradients_of import check


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self, reentrant, layers=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.reentrant = reentrant

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x.sin()


@pytest.fixture
def x():
    return torch.randn(16, 8, requires_grad=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_layers(x, reentrant, dynamic) -> None:
    check(Net(reentrant), x, dynamic=dynamic)


def saved_sizes(result) -> list[tuple[int, ...]]:
    return [tuple(t.shape) for t in result.grad_fn.saved_tensors]


def test_only_inputs_of_layers_are_saved(x) -> None:
    result = pliant.compile(Net(False), backend="llvm")(x)
    assert (16, 64) not in saved_sizes(result)
    assert saved_sizes(result).count((16, 8)) <= 4
    plain = pliant.compile(nn.Sequential(*[Block() for _ in range(3)]), backend="llvm")(x)
    assert (16, 64) in saved_sizes(plain)


def test_memory_of_a_step() -> None:
    """Layers are computed again one at a time, right before their gradients."""

    def peak(run):
        def step():
            run(data).sum().backward()

        step()
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            step()
        total, most = 0, 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                total += event.nbytes()
                most = max(most, total)
        return most

    net = Net(False, layers=8)
    data = torch.randn(512, 8, requires_grad=True)
    assert peak(pliant.compile(net, backend="llvm")) <= 1.2 * peak(net)


def test_the_order_of_nodes_that_are_delayed() -> None:
    def made(name, *operands, again=None):
        tensor = Tensor((integer(2),), (integer(1),), ZERO, torch.float32)
        tensor.node = Node(name, None, operands, {}, (tensor,), recompute=again)
        return tensor

    first = made("first", again=True)
    unread = made("unread", again=True)
    second = made("second", first, again=True)
    early = made("early")
    use = made("use", early)
    late = made("late", second, use)
    later = made("later", first, late)
    nodes = [t.node for t in (first, unread, second, early, use, late, later)]
    names = [node.name for node in delayed(nodes)]
    assert names == ["early", "use", "first", "second", "late", "later"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_random_numbers(x, dynamic) -> None:
    def function(x):
        return checkpoint(lambda t: F.dropout(t.exp(), 0.5) * t, x, use_reentrant=False).sin()

    check(function, x, dynamic=dynamic)


def test_other_random_numbers_are_drawn_by_pytorch(x) -> None:
    def function(x):
        draw = lambda t: F.dropout(t.exp(), 0.5)  # noqa: E731
        return checkpoint(draw, x, use_reentrant=False, preserve_rng_state=False)

    check(function, x, generated=False)
    assert events.counters["not_generated"] == 1


def test_a_sequence_of_segments(x) -> None:
    model = nn.Sequential(*[Block() for _ in range(4)])

    def function(x):
        return checkpoint_sequential(model, 2, x, use_reentrant=False)

    check(function, x)


def test_checkpoints_in_checkpoints(x) -> None:
    def inner(t):
        return checkpoint(torch.tanh, t.exp(), use_reentrant=False) * t

    check(lambda x: checkpoint(inner, x, use_reentrant=False).sum(0), x)


def test_statistics_are_updated_once_more(x) -> None:
    """As in eager PyTorch, which runs the layer twice."""

    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return checkpoint(self.norm, x, use_reentrant=False).sin()

    check(Normed(), x, generated=False)


def test_results_that_need_no_gradient(x) -> None:
    def split(t):
        return t.exp(), t.argmax(1), t.detach().sum(), t

    check(lambda x: checkpoint(split, x * 2, use_reentrant=False), x)


def test_without_gradients(x) -> None:
    net = Net(False)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(net, backend="llvm")(x), net(x))
    assert events.counters["not_generated"] == 0


def test_keyword_arguments(x) -> None:
    def scaled(t, *, by):
        return t.exp() * by

    def function(x, y):
        return checkpoint(scaled, x, by=y, use_reentrant=False)

    check(function, x, torch.randn(16, 8, requires_grad=True))


@pytest.mark.parametrize("enabled", [False, True])
def test_autocast(x, enabled) -> None:
    net = Net(False)

    def function(x):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            return net(x).float()

    check(function, x, rtol=2e-2, atol=2e-2)


# ---- policies


def save_products(context, operator, *args, **kwargs):
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if operator in products else CheckpointPolicy.PREFER_RECOMPUTE


def save_nothing(context, operator, *args, **kwargs):
    return CheckpointPolicy.PREFER_RECOMPUTE


def save_large(context, operator, first, *args, **kwargs):
    large = first.numel() > 100
    return CheckpointPolicy.MUST_SAVE if large else CheckpointPolicy.PREFER_RECOMPUTE


PRODUCTS = functools.partial(create_selective_checkpoint_contexts, save_products)
NOTHING = functools.partial(create_selective_checkpoint_contexts, save_nothing)
LARGE = functools.partial(create_selective_checkpoint_contexts, save_large)
LISTED = functools.partial(
    create_selective_checkpoint_contexts,
    [torch.ops.aten.mm.default, torch.ops.aten.addmm.default],
)


class Selective(nn.Module):
    def __init__(self, context_fn):
        super().__init__()
        self.block, self.context_fn = Block(), context_fn

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False, context_fn=self.context_fn).sin()


@pytest.mark.parametrize("context_fn", [PRODUCTS, NOTHING, LARGE, LISTED])
@pytest.mark.parametrize("dynamic", [False, True])
def test_policies(x, context_fn, dynamic) -> None:
    check(Selective(context_fn), x, dynamic=dynamic, generated=context_fn is not LARGE)


@pytest.mark.parametrize("context_fn, saved", [(PRODUCTS, True), (LISTED, True), (NOTHING, False)])
def test_what_a_policy_says_is_saved(x, context_fn, saved) -> None:
    result = pliant.compile(Selective(context_fn), fullgraph=True, backend="llvm")(x)
    assert ((16, 64) in saved_sizes(result)) is saved


def test_a_policy_made_where_it_is_used(x) -> None:
    block = Block()

    def program(x):
        contexts = functools.partial(create_selective_checkpoint_contexts, save_products)
        return checkpoint(block, x, use_reentrant=False, context_fn=contexts).sin()

    compiled = pliant.compile(program, fullgraph=True, backend="llvm")
    assert (16, 64) in saved_sizes(compiled(x))
    torch.testing.assert_close(compiled(x), program(x))


def test_another_policy_is_another_compilation(x) -> None:
    model = Selective(PRODUCTS)
    compiled = pliant.compile(model, fullgraph=True, backend="llvm")
    assert (16, 64) in saved_sizes(compiled(x))
    model.context_fn = NOTHING
    assert (16, 64) not in saved_sizes(compiled(x))
