"""Bodies of loops and conditions run as generated code, equal to eager PyTorch."""

import gc
import weakref

import pytest
import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop
from torch.nn.attention.flex_attention import flex_attention

import pliant
from pliant.base import events
from pliant.graph import body_code

W = torch.randn(8, 8) / 4
STEPS = torch.tensor(0)


def counted(limit):
    return lambda i, *rest: i < limit


def power(x):
    return while_loop(
        counted(5), lambda i, t: (i + 1, torch.tanh(t @ W) + t.sin()), (STEPS.clone(), x)
    )


def until_small(x):
    return while_loop(lambda t: t.abs().max() > 0.1, lambda t: (t.sin() * 0.5,), (x,))


def no_steps(x):
    return while_loop(counted(0), lambda i, t: (i + 1, t.cos()), (STEPS.clone(), x))


def recurrence(x):
    def step(hidden, row):
        hidden = torch.tanh(hidden @ W + row)
        return hidden, hidden.exp()

    return scan(step, torch.zeros(8), x)


def structured(x):
    def step(carry, row):
        total = carry["total"] + row["a"].sin() * row["b"]
        return {"total": total, "count": carry["count"] + 1}, (total.cos(), [row["a"].exp()])

    return scan(step, {"total": torch.ones(8), "count": STEPS.clone()}, {"a": x, "b": x + 1})


def along_the_other_dimension(x):
    return scan(lambda c, row: (c + row.sin(), c.cos()), x[:, 0].clone(), x, dim=1, reverse=True)


def scan_from_the_end(x):
    return scan(lambda c, row: (c + row.sin(), c.sum().cos()), x[:, 0].clone(), x, dim=-1)


def rows(x):
    return map_over(lambda row, weight: torch.sigmoid(row @ weight) + row.sin(), x, W)


def branches(x):
    return torch.cond(x.sum() > 0, lambda t: (t @ W).tanh(), lambda t: (t @ W.t()).sin(), (x,))


def nested(x):
    def inner(t):
        return while_loop(counted(2), lambda i, u: (i + 1, u.tanh() @ W), (STEPS.clone(), t))[1]

    return torch.cond(x.sum() > 0, inner, lambda t: t.sin() @ W, (x,))


def a_size_in_the_body(x):
    size = x.shape[0]
    return while_loop(
        counted(2), lambda i, t: (i + 1, t.tanh() * size + (size * 2 + 1)), (STEPS.clone(), x)
    )


def a_size_that_no_input_has(x):
    return map_over(lambda row: row.sin().sum(), torch.cat([x, x, x[:1]]).reshape(-1, 4, 2))


def scores(x):
    q = x.reshape(1, 2, -1, 4)
    return flex_attention(q, q, q, lambda s, b, h, i, j: torch.tanh(s) + (i - j))


PROGRAMS = [
    power, until_small, no_steps, recurrence, structured, along_the_other_dimension,
    scan_from_the_end, rows, branches, nested, a_size_in_the_body, a_size_that_no_input_has,
    scores,
]  # fmt: skip
COMPUTES = {f"aten::{name}" for name in ("sin", "cos", "tanh", "exp", "sigmoid")}


def operators_in(function, *args):
    """The operators that PyTorch runs in a call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function(*args)
    return {event.name for event in profile.events()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_generated_code_runs(program, dynamic):
    seen = []
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend="llvm")
    with events.listening(seen.append):
        for rows in (8, 12, 8):
            for sign in (1, -1):
                x = torch.randn(rows, 8).abs() * sign
                torch.testing.assert_close(compiled(x), program(x), atol=1e-5, rtol=1e-5)
    code = [event for event in seen if isinstance(event, events.CodeGenerated)]
    assert sum(len(event.kernels()) for event in code) > 0
    assert not [event for event in seen if isinstance(event, events.NotGenerated)]
    if dynamic:
        assert len([e for e in seen if isinstance(e, events.CompileFinished)]) == 1
    x = torch.randn(8, 8)
    assert not COMPUTES & operators_in(compiled, x)


def test_layouts_that_were_not_foreseen_are_run_by_pytorch(monkeypatch):
    monkeypatch.setattr(body_code, "MOST_LAYOUTS", 0)
    compiled = pliant.compile(power, fullgraph=True, backend="llvm")
    x = torch.randn(8, 8)
    torch.testing.assert_close(compiled(x), power(x))
    assert "aten::tanh" in operators_in(compiled, x)


def test_the_first_step_may_be_laid_out_in_another_way():
    """Which eager PyTorch refuses."""

    def program(x):
        return while_loop(counted(3), lambda i, t: (i + 1, (t @ W).tanh()), (STEPS.clone(), x.t()))

    compiled = pliant.compile(program, fullgraph=True, backend="llvm")
    x = torch.randn(8, 8)
    expected = x.t()
    for _ in range(3):
        expected = (expected @ W).tanh()
    torch.testing.assert_close(compiled(x)[1], expected)
    assert not COMPUTES & operators_in(compiled, x)


def test_a_loop_without_steps_returns_copies():
    compiled = pliant.compile(no_steps, fullgraph=True, backend="llvm")
    x = torch.randn(3, 8)
    result = compiled(x)[1]
    assert torch.equal(result, x) and result.data_ptr() != x.data_ptr()


def test_random_numbers_are_drawn_as_by_eager():
    def program(x):
        return while_loop(
            counted(3), lambda i, t: (i + 1, t.sin() + torch.rand_like(t)), (STEPS.clone(), x)
        )

    x = torch.randn(4, 8)
    torch.manual_seed(0)
    expected = program(x)
    compiled = pliant.compile(program, fullgraph=True, backend="llvm")
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(x), expected)


def test_dropped_code_frees_its_bodies():
    def compiled_once():
        weight = torch.randn(8, 8)
        compiled = pliant.compile(
            lambda x: map_over(lambda row: (row @ weight).sin(), x), fullgraph=True, backend="llvm"
        )
        compiled(torch.randn(3, 8))
        return weakref.ref(weight)

    weight = compiled_once()
    gc.collect()
    assert weight() is None
