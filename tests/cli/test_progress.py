"""What `pliant run` shows while a compilation takes long."""

import pytest
import torch

import pliant
from pliant.base import events
from pliant.base.events import listening
from pliant.cli import progress


def slow_backend(seen, watched):
    def backend(gm, inputs):
        seen.append(watched.text())
        return gm.forward

    return backend


def test_nothing_for_a_short_compilation():
    watched, seen = progress.Progress(), []
    with listening(watched):
        pliant.compile(torch.sin, backend=slow_backend(seen, watched))(torch.ones(2))
    assert seen == [None]


def test_what_takes_long(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)

    def long_one(x):
        return x + 1

    watched, seen = progress.Progress(), []
    with listening(watched):
        pliant.compile(long_one, backend=slow_backend(seen, watched))(torch.ones(2))
    (text,) = seen
    assert text.startswith("pliant: ") and text.endswith("long_one: generating code, 0 s")
    assert watched.text() is None  # it has ended


@pytest.mark.own_default
def test_a_compilation_that_was_given_up_is_not_shown(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)

    def fails(gm, inputs):
        raise ValueError("not me")

    watched = progress.Progress()
    with listening(watched), pytest.raises(pliant.errors.BackendError):
        pliant.compile(lambda x: x + 1, backend=fails)(torch.ones(2))
    assert watched.text() is None


def test_how_far_it_is(monkeypatch):
    """Operations while it is captured, kernels while they are compiled."""
    monkeypatch.setattr(progress, "PATIENCE", 0)
    watched, seen = progress.Progress(), []

    def note(event):
        if isinstance(event, events.WorkBegan | events.GraphCaptured):
            seen.append(watched.text().partition(": ")[2])

    def two_kernels(x):
        return torch.softmax(x, 0) @ torch.softmax(x, 1).cos()

    with listening(watched), listening(note):
        pliant.compile(two_kernels, backend="llvm")(torch.randn(8, 8))
    texts = [text.partition("two_kernels: ")[2] for text in seen]
    assert texts[0].startswith("capturing, 0 operations so far")
    assert texts[1].startswith("generating code, ")
    (compiling,) = [text for text in texts if text.startswith("compiling, 0 of ")]
    total = compiling.split()[3]
    assert texts[-1].startswith(f"compiling, {total} of {total} kernel")


def test_a_backward_is_shown(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    watched, seen = progress.Progress(), []

    def note(event):
        if isinstance(event, events.WorkBegan):
            seen.append(watched.text())

    weight = torch.ones(3, requires_grad=True)
    loss = pliant.compile(lambda x: (x.sin() * 2).sum(), backend="llvm")(weight)
    with listening(watched), listening(note):
        loss.backward()
    assert seen and all("backward: " in text for text in seen)
    assert watched.text() is None
