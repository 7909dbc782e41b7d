"""A kernel that can't be compiled is left to PyTorch; everything else is compiled."""

import warnings

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
from pliant.base.errors import PliantWarning
from pliant.base.options import config
from pliant.loop.ir import Op, values
from pliant.targets.cpu.jit import KernelCompiler
from tests.backends.eager_twin import call, difference


@pytest.fixture
def refuse(monkeypatch):
    """Let LLVM fail on kernels with one of these operations in them, or on all."""
    source, compile = KernelCompiler.source, KernelCompiler.compile_source

    def failing(operations):
        refused = set()

        def noted(self, kernel, target=None):
            made = source(self, kernel, target)
            if operations is None or any(v.op in operations for v in values(kernel.body)):
                refused.add(made.key)
            return made

        def instead(self, made):
            if made.key in refused:
                raise RuntimeError("LLVM says no")
            return compile(self, made)

        monkeypatch.setattr(KernelCompiler, "source", noted)
        monkeypatch.setattr(KernelCompiler, "compile_source", instead)

    return failing


def compiled_with_failures(function, *makers, dynamic=False):
    """What was told on the way, after comparing with eager PyTorch."""
    told = []
    events.counters.reset()
    with config.patch(raise_on_fallback=False), events.listening(told.append):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            compiled = pliant.compile(function, backend=llvm, dynamic=dynamic)
            for make in makers:
                found = difference(call(compiled, make()), call(function, make()))
                assert found is None, found
    told = [e for e in told if isinstance(e, events.KernelFailed | events.CodeGenerated)]
    return told, [str(w.message) for w in warned if w.category is PliantWarning]


def three(x, w):
    a = (x.exp() + 1).softmax(-1) @ w
    b = a.sin() * 2 + x.sum()
    return (b @ w).tanh() - 1, b


def matrices():
    torch.manual_seed(0)
    return [torch.randn(6, 6), torch.randn(6, 6)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "op, names",
    [
        (Op.EXP, {"aten.exp.default", "aten.softmax.int", "aten._softmax.default"}),
        (Op.SIN, {"aten.sin.default"}),
        (Op.TANH, {"aten.tanh.default", "aten.sub.Tensor"}),
    ],
)
def test_one_of_three_kernels(refuse, op, names, dynamic):
    refuse({op})
    told, warned = compiled_with_failures(three, matrices, dynamic=dynamic)
    failed, generated = told[0], told[-1]
    assert isinstance(failed, events.KernelFailed) and names & set(failed.operators)
    assert len(generated.kernels()) >= 2
    why = [text for text in generated.called if "LLVM says no" in text]
    assert len(why) >= 1 and not any(op.text in name for name in generated.lowered)
    assert events.counters["failed_kernels"] >= 1 and events.counters["fallbacks"] == 0
    assert len(warned) == 1 and "three" in warned[0] and "LLVM says no" in warned[0]


def test_all_kernels(refuse):
    refuse(None)
    told, _ = compiled_with_failures(three, matrices)
    assert len(told[-1].kernels()) == 0 and not told[-1].lowered
    assert events.counters["programs"] == 1


def test_writes_and_views_beside_what_fails(refuse):
    def writes(x, w):
        y = x.t().exp()
        x.add_(1)
        y[0].mul_(2)
        x[1:].copy_(y[:-1] @ w)
        return y[::2], x.view(-1)

    refuse({Op.EXP})
    told, _ = compiled_with_failures(writes, matrices)
    assert told[-1].called and told[-1].lowered


def test_a_kernel_without_an_operator_leaves_the_graph_to_pytorch(refuse):
    def copies(x, w):
        x.copy_(w.T)

    refuse(None)
    compiled_with_failures(copies, matrices)
    assert events.counters["fallbacks"] == 1


def test_a_mistake_of_ours_is_raised_where_that_is_asked_for(refuse):
    refuse({Op.EXP})
    with pytest.raises(Exception, match="LLVM says no"):
        pliant.compile(three, backend=llvm)(*matrices())


def test_what_failed_is_logged(refuse, capsys):
    refuse({Op.SIN})
    pliant.set_logs(fallbacks=True)
    try:
        compiled_with_failures(three, matrices)
    finally:
        pliant.set_logs()
    assert "PyTorch runs aten" in capsys.readouterr().err
