"""The programs with which compilers of this kind are introduced, and what each of them shows."""

import io
import operator
from pathlib import Path

import pytest
import torch

import pliant
from pliant.base import events
from pliant.guards.guard import GuardKind


class Graphs(list):
    """A backend that keeps the graphs it is given."""

    def __call__(self, graph, example_inputs):
        graph.graph.lint()
        self.append(graph)
        return graph.forward

    def operations(self):
        return [[n.target for n in g.graph.nodes if n.op.startswith("call_")] for g in self]

    def inputs(self):
        return [[n.name for n in g.graph.nodes if n.op == "placeholder"] for g in self]


@pytest.fixture
def graphs():
    return Graphs()


@pytest.fixture
def log(capsys):
    """The logs so far."""
    return lambda: capsys.readouterr().err


# ---- the summary: a graph, extra inputs, a list append that stays outside

offset = torch.tensor([1.0, 2.0, 3.0])
history = []


def summary(x):
    y = torch.relu(x) + offset
    history.append(y)
    return y.sum()


@pytest.fixture(autouse=True)
def empty_history():
    history.clear()


def test_summary_is_one_graph_with_an_extra_input(graphs):
    compiled = pliant.compile(summary, backend=graphs, fullgraph=True)
    x = torch.tensor([-1.0, 0.0, 1.0])
    assert compiled(x) == summary(x)
    assert graphs.inputs() == [["l_x", "g_offset"]]
    assert graphs.operations() == [[torch.relu, operator.add, "sum"]]


def test_summary_appends_outside_of_the_graph(graphs, seen):
    compiled = pliant.compile(summary, backend=graphs)
    for _ in range(3):
        compiled(torch.ones(3))
    assert len(history) == 3
    assert all(torch.equal(y, torch.ones(3) + offset) for y in history)
    assert len({id(y) for y in history}) == 3
    [residual] = seen(events.ResidualMade)
    assert ".append(" in residual.source
    assert len(graphs) == 1


def test_summary_uses_the_present_value_of_the_extra_input(graphs, monkeypatch):
    compiled = pliant.compile(summary, backend=graphs)
    compiled(torch.zeros(3))
    monkeypatch.setitem(globals(), "offset", torch.full((3,), 10.0))
    assert compiled(torch.zeros(3)) == 30
    assert len(graphs) == 1


# ---- a graph break: g(x), torch.save, h(y)


def saves(x, file):
    y = x**2 / 2
    torch.save(y, file)
    z = y**3 / 6
    return z


def test_save_is_g_then_save_then_h(graphs):
    compiled = pliant.compile(saves, backend=graphs)
    x, file = torch.randn(3), io.BytesIO()
    torch.testing.assert_close(compiled(x, file), (x**2 / 2) ** 3 / 6)
    assert graphs.operations() == [[operator.pow, operator.truediv]] * 2
    powers = [g.graph.find_nodes(op="call_function", target=operator.pow) for g in graphs]
    assert [[node.args[1] for node in nodes] for nodes in powers] == [[2], [3]]
    assert [len(names) for names in graphs.inputs()] == [1, 1]
    file.seek(0)
    torch.testing.assert_close(torch.load(file), x**2 / 2)
    assert pliant.counters.breaks == {"not-followed": 1}


def test_save_writes_on_every_call(tmp_path):
    compiled = pliant.compile(saves)
    for number in range(3):
        path = tmp_path / "foo.pt"
        compiled(torch.full((3,), float(number)), path)
        assert torch.equal(torch.load(path), torch.full((3,), number**2 / 2))
    assert pliant.counters["graph_breaks"] == 1


def test_save_is_reported_with_line_reason_and_remedy(log):
    pliant.set_logs(graph_breaks=True)
    pliant.compile(saves)(torch.ones(3), io.BytesIO())
    text = log()
    assert "torch.serialization.save [not-followed]" in text
    assert f"{Path(__file__).name}:{saves.__code__.co_firstlineno + 2} in saves" in text
    assert "torch.save(y, file)" in text
    assert "why: " in text and "what to do: " in text


def test_save_under_fullgraph_is_an_error():
    file = io.BytesIO()
    with pytest.raises(pliant.errors.GraphBreakError) as caught:
        pliant.compile(saves, fullgraph=True)(torch.ones(3), file)
    assert caught.value.code == "not-followed"
    assert caught.value.position.line == saves.__code__.co_firstlineno + 2
    assert not file.getvalue()


# ---- guards and recompilation


def fn(x):
    return x + 1


def test_guards_have_a_line_for_the_tensor(log):
    pliant.set_logs(guards=True)
    pliant.compile(fn)(torch.ones(3, 3))
    assert "L['x'] matches Tensor(float32[3, 3], stride=(3, 1), cpu)" in log()


def test_the_guard_of_the_tensor_is_data():
    compiled = pliant.compile(fn)
    compiled(torch.ones(3, 3))
    [entry] = compiled.entries
    [guard] = [g for g in entry.info.bindings.guards if g.kind is GuardKind.TENSOR]
    spec = guard.expected
    assert (spec.dtype, spec.device.type, spec.sizes) == (torch.float32, "cpu", (3, 3))


def test_another_shape_is_another_compilation_with_a_reason(log, seen):
    pliant.set_logs(recompiles=True)
    compiled = pliant.compile(fn)
    assert torch.equal(compiled(torch.ones(3, 3)), torch.full((3, 3), 2.0))
    assert not log()
    assert torch.equal(compiled(torch.ones(4, 4)), torch.full((4, 4), 2.0))
    text = log()
    assert "compilation 0 needs L['x'].size()[0] == 3, got 4" in text
    assert f"{Path(__file__).name}:{fn.__code__.co_firstlineno + 1} in fn" in text
    assert "return x + 1" in text
    [recompiled] = seen(events.Recompiled)
    assert [reason.entry for reason in recompiled.reasons] == [0]
    for shape in ((3, 3), (4, 4)):
        compiled(torch.ones(shape))
    assert pliant.counters["compilations"] == 2


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_dynamic_is_accepted(dynamic):
    compiled = pliant.compile(fn, dynamic=dynamic)
    for size in (3, 4):
        assert torch.equal(compiled(torch.ones(size, size)), torch.full((size, size), 2.0))
