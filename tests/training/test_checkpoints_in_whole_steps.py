"""Checkpoints in a step that calls `backward` itself: one program, in which the backward computes
each region again."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

import pliant
from pliant.base import events
from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.graph.rematerialize import rematerialize
from pliant.sym.expr import ZERO, integer
from tests.training.test_whole_steps import simple

STEPS = 5


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.up, self.down, self.dropout = nn.Linear(8, 64), nn.Linear(64, 8), nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(x))))


class Net(nn.Module):
    """`run` is given each block and what goes into it."""

    def __init__(self, run, layers=3, dropout=0.0):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(layers))
        self.run = run

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = self.run(block, x)
        return self.last(x)


def outcome(step, *args):
    try:
        return step(*args).detach().clone()
    except RuntimeError as error:
        return str(error)


def train(build, compiles, sizes=(4,), **options):
    torch.manual_seed(0)
    model = build()
    step = simple(model)
    if compiles:
        step = pliant.compile(step, backend="llvm", **options)
    told = []
    for number in range(STEPS):
        torch.manual_seed(number)
        rows = sizes[number % len(sizes)]
        told += [outcome(step, torch.randn(rows, 3), torch.randn(rows, 2)), torch.rand(1)]
    told += [p.detach().clone() for p in model.parameters()]
    return told + [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def check(build, not_generated=0, graph_breaks=0, **options):
    theirs = train(build, False, sizes=options.get("sizes", (4,)))
    events.counters.reset()
    mine = train(build, True, **options)
    counters = events.counters
    assert counters["fallbacks"] == 0
    assert counters["not_generated"] == not_generated
    assert counters["graph_breaks"] == graph_breaks
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        else:
            assert a == b


WAYS = {
    "reentrant": partial(checkpoint, use_reentrant=True),
    "not reentrant": partial(checkpoint, use_reentrant=False),
}
SIZES = {"static": {}, "dynamic": {"dynamic": True, "sizes": (4, 6, 5)}}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_layers(way: str, sizes: str, dropout: float) -> None:
    check(lambda: Net(WAYS[way], dropout=dropout), **SIZES[sizes])


def nested(block, x):
    inner = partial(checkpoint, use_reentrant=False)
    return inner(lambda t: inner(block, t.sin()) * t.sigmoid(), x)


def both_results(block, x):
    one, other = checkpoint(lambda t: (block(t), t.tanh()), x, use_reentrant=False)
    return one * other


def used_twice(block, x):
    return x.sin() * checkpoint(block, x, use_reentrant=False) + x


def writing(block, x):
    def write(t):
        z = block(t) * 1
        z[:, 0] = t[:, 1]
        return z.tanh()

    return checkpoint(write, x, use_reentrant=False)


def policy(context, operator, *args, **kwargs):
    saved = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


def saving_products(block, x):
    contexts = partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)


@pytest.mark.parametrize("run", [nested, both_results, used_twice, writing, saving_products])
def test_regions(run) -> None:
    check(lambda: Net(run))


def test_a_reentrant_checkpoint_uses_up_what_it_has_from_around_it() -> None:
    """PyTorch runs the checkpoint, and raises: it has freed the history of `around`."""

    def run(block, x):
        around = x.tanh()
        return checkpoint(lambda t: block(t) * around, x.sin(), use_reentrant=True) + around

    check(lambda: Net(run, layers=1), graph_breaks=3)


def test_no_gradients_of_some_tensors_through_a_reentrant_checkpoint() -> None:
    """PyTorch refuses them."""

    def run(block, x):
        result = checkpoint(block, x, use_reentrant=True)
        (gradient,) = torch.autograd.grad(result.sum(), [x], retain_graph=True)
        return result * gradient

    check(lambda: Net(run, layers=1), not_generated=1)


def peak(step, *data) -> int:
    """The most bytes that a step has allocated at a time."""
    step(*data)
    step(*data)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        step(*data)
    total = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            total += event.nbytes()
            most = max(most, total)
    return most


@pytest.mark.parametrize("way", WAYS)
def test_memory(way: str) -> None:
    """One region at a time is in memory, as in eager."""
    data = torch.randn(1024, 3), torch.randn(1024, 2)
    theirs = peak(simple(Net(WAYS[way], layers=8)), *data)
    mine = peak(pliant.compile(simple(Net(WAYS[way], layers=8)), backend="llvm"), *data)
    plain = simple(Net(lambda block, x: block(x), layers=8))
    assert mine <= theirs
    assert mine < 0.4 * peak(pliant.compile(plain, backend="llvm"), *data)


def test_copies_are_made_right_before_their_first_reader() -> None:
    operator = torch.ops.aten.sin.default

    def made(name, *operands, again=None):
        tensor = Tensor((integer(2),), (integer(1),), ZERO, torch.float32)
        tensor.node = Node(name, operator, operands, {}, (tensor,), recompute=again)
        return tensor

    first = made("first", again=True)
    second = made("second", first, again=True)
    result = made("result", second, again=False)
    loss = made("loss", result)
    late = made("late", second, loss)
    later = made("later", first, late)
    function = FunctionalBuilder()
    function.nodes = [t.node for t in (first, second, result, loss, late, later)]
    rematerialize(function)
    names = [node.name for node in function.nodes]
    assert names == ["first", "second", "result", "loss", "first", "second", "late", "later"]
    copy, reader = function.nodes[5].results[0], function.nodes[6]
    assert reader.args[0] is copy is not second
    assert function.nodes[2].args[0] is second
