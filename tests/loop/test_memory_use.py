"""The memory of a program over time, against what PyTorch's allocations say."""

import torch

import pliant
from pliant.base import events


def curves(run):
    found = {}

    def note(event):
        if isinstance(event, events.CodeGenerated):
            found[event.function] = event.memory()

    with events.listening(note):
        run()
    return found


def test_buffers_come_and_go():
    @pliant.compile(backend="llvm", fullgraph=True)
    def f(x, w):
        y = x @ w  # 100 x 200
        return (torch.relu(y) @ w.t()).sum(1)

    ((_, curve),) = curves(lambda: f(torch.ones(100, 50), torch.ones(50, 200))).items()
    sizes = [size for _, size in curve]
    assert sizes[0] == 0
    # relu is computed in the memory of the product; the second product is 100 x 50.
    assert max(sizes) == 4 * (100 * 200 + 100 * 50)
    assert sizes[-1] < max(sizes)


def test_a_backward_begins_with_what_is_saved():
    def run():
        weight = torch.ones(30, 30, requires_grad=True)
        loss = pliant.compile(lambda w: (w @ w).exp().sum(), backend="llvm", fullgraph=True)(weight)
        loss.backward()

    forward, backward = sorted(curves(run).items())
    assert forward[1][0] == ("start", 0)
    assert backward[0].endswith(" backward")
    # The exponential is its own derivative: one matrix is saved and handed over.
    assert backward[1][0] == ("start", 4 * 30 * 30)


def test_names_tell_what_runs():
    ((_, curve),) = curves(
        lambda: pliant.compile(lambda x: (x @ x) + 1, backend="llvm")(torch.ones(4, 4))
    ).items()
    assert [name for name, _ in curve] == ["start", "aten.mm.out", "kernel (computed)"]
