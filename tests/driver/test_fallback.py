"""A failure inside pliant: the function runs eagerly, or `fullgraph=True` makes it an error."""

import warnings

import pytest
import torch

import pliant
from pliant.backends import compile_graph
from pliant.backends.llvm import llvm
from pliant.base.errors import BackendError, GraphBreakError, InternalError, PliantWarning
from pliant.base.options import config
from pliant.capture.capture import NotCaptured
from pliant.capture.value import Break
from pliant.driver import pipeline
from pliant.guards import plan
from pliant.targets.cpu.jit import KernelCompiler

X = torch.arange(6.0)


class Mistake(Exception):
    pass


def failing(*args, **kwargs):
    raise Mistake("of ours")


STAGES = {
    "capture": (pipeline, "capture"),
    "guards": (plan, "build"),
    "residual code": (pipeline.residual, "load"),
    "graph passes": (compile_graph, "functionalize"),
    "lowering": (compile_graph, "lower"),
    "scheduling": (compile_graph, "plan_schedule"),
    "kernel compilation": (KernelCompiler, "compile_source"),
}


@pytest.fixture(params=STAGES)
def broken(request, monkeypatch):
    """One stage of a compilation fails."""
    monkeypatch.setattr(*STAGES[request.param], failing)
    with config.patch(raise_on_fallback=False):
        yield request.param


def program(x):
    return x.exp() + 1


def test_fullgraph_raises(broken):
    compiled = pliant.compile(program, fullgraph=True, backend=llvm)
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InternalError, match="compiling program failed") as caught:
                compiled(X)
        assert isinstance(caught.value.__cause__, Mistake)
        assert "what to do" in str(caught.value) and "test_fallback.py" in str(caught.value)
    assert pliant.counters["fallbacks"] == pliant.counters["failed_kernels"] == 0
    assert not config.raise_on_fallback


def test_so_does_the_option_of_one_function(broken):
    compiled = pliant.compile(program, options={"raise_on_fallback": True}, backend=llvm)
    with pytest.raises(InternalError):
        compiled(X)


def test_otherwise_it_runs_eagerly(broken):
    compiled = pliant.compile(program, backend=llvm)
    with pytest.warns(PliantWarning):
        torch.testing.assert_close(compiled(X), program(X))
    counted = "failed_kernels" if broken == "kernel compilation" else "fallbacks"
    assert pliant.counters[counted] >= 1


def test_a_guard_that_fails_at_once(monkeypatch):
    real = plan.build

    class Never:
        def __init__(self, tree):
            self.tree = tree

        def __getattr__(self, name):
            return getattr(self.tree, name)

        def check(self, values):
            return (None, None)

    monkeypatch.setattr(plan, "build", lambda *args: Never(real(*args)))
    monkeypatch.setattr(plan, "explain", lambda *args: "a guard")
    monkeypatch.setattr(pipeline, "Entry", lambda *args: None)
    with config.patch(raise_on_fallback=False):
        with pytest.raises(InternalError, match="a guard fails at once"):
            pliant.compile(program, fullgraph=True)(X)


def test_what_cannot_be_captured_at_all(monkeypatch):
    def refuse(*args):
        raise NotCaptured(Break("too-deep", "a program"))

    monkeypatch.setattr(pipeline, "capture", refuse)
    with pytest.raises(GraphBreakError, match="too-deep"):
        pliant.compile(program, fullgraph=True)(X)
    assert torch.equal(pliant.compile(program)(X), program(X))


def test_the_second_case_of_a_program(monkeypatch):
    """Compiling another branch on data fails: that runs eagerly, too."""

    def branches(x):
        return x + 1 if x.sum() > 0 else x - 1

    with config.patch(raise_on_fallback=False):
        compiled = pliant.compile(branches)
        assert torch.equal(compiled(X), X + 1)
        monkeypatch.setattr(pipeline, "capture", failing)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.equal(compiled(-X), -X - 1)


def test_errors_of_a_backend_are_suppressed_if_the_user_says_so():
    def failing_backend(gm, example_inputs):
        raise Mistake("of a backend")

    def function(x):
        return x + 1

    with pytest.raises(BackendError, match="of a backend"):
        pliant.compile(function, backend=failing_backend)(X)
    with config.patch(suppress_errors=True):
        with pytest.warns(PliantWarning, match="its backend failed: Mistake"):
            assert torch.equal(pliant.compile(function, backend=failing_backend)(X), X + 1)
        with pytest.raises(BackendError, match="of a backend"):
            pliant.compile(function, backend=failing_backend, fullgraph=True)(X)
