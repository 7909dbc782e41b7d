"""What `pliant run` shows while a compilation takes long."""

import pytest
import torch

import pliant
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
    assert text.startswith("pliant: capturing: ")
    assert "long_one" in text
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
