"""The records of a run in order: what belongs to which compilation, and what to look at first."""

import json

import pytest
import torch

import pliant
from pliant.base import events, records
from pliant.reports.advice import advice
from pliant.reports.history import history

pytestmark = pytest.mark.own_default


def recorded(run):
    found = []
    with events.listening(lambda event: found.append(records.record_of(event))):
        run()
    return found


def test_a_function_with_a_break_is_one_function():
    @pliant.compile
    def broken(x):
        y = x.sin()
        pliant.graph_break()
        return y * 2

    data = history(recorded(lambda: broken(torch.ones(2))))
    (function,) = data["functions"]
    assert function["name"].endswith("broken")
    assert [c["name"].partition(" from ")[1] for c in function["compilations"]] == ["", " from "]
    (line,) = [line for line in function["source"] if line["notes"]]
    assert line["text"].strip() == "pliant.graph_break()"
    assert [note["kind"] for note in line["notes"]] == ["break"]
    assert data["counts"]["graph breaks"] == 1
    assert data["counts"]["graphs"] == 2


def test_what_a_compilation_has():
    @pliant.compile
    def f(x):
        return torch.softmax(x, 0)

    def run():
        f(torch.ones(3, 2))
        f(torch.ones(4, 2))

    ((first, second),) = [f["compilations"] for f in history(recorded(run))["functions"]]
    assert first["reasons"] == []
    assert "size()[0] == 3" in second["reasons"][0]["guard"]
    for one in (first, second):
        assert set(one["phases"]) == {"capture", "guards", "backend"}
        assert one["seconds"] > 0 and one["start"] >= 0
        assert "softmax" in one["graph"] and one["nodes"] == 1
        assert one["residual"].startswith("def ")
        (program,) = one["programs"]
        assert program["kernels"] and "softmax" in str(program["lowered"])
    assert [size["kind"] for size in second["sizes"]] == ["symbol", "constant"]
    assert second["start"] > first["start"]


def test_the_backward_belongs_to_its_function():
    weight = torch.ones(3, requires_grad=True)

    @pliant.compile
    def loss(weight):
        return weight.sin().sum()

    data = history(recorded(lambda: loss(weight).backward()))
    ((compilation,),) = [f["compilations"] for f in data["functions"]]
    names = [program["function"] for program in compilation["programs"]]
    assert len(names) == 2 and names[1] == names[0] + " backward"
    assert "saved" in compilation["partition"]


def test_a_compilation_that_was_given_up():
    def fails(gm, inputs):
        raise ValueError("not me")

    def run():
        with pytest.raises(pliant.errors.BackendError):
            pliant.compile(lambda x: x + 1, backend=fails)(torch.ones(2))

    data = history(recorded(run))
    ((compilation,),) = [f["compilations"] for f in data["functions"]]
    assert compilation["seconds"] > 0
    assert compilation["troubles"] == ["nothing was compiled"]


def test_several_processes():
    @pliant.compile
    def f(x):
        return x + 1

    one = recorded(lambda: f(torch.ones(2)))
    other = [{**record, "process": 7, "rank": 1} for record in one]
    data = history([*one, *other])
    assert [process["rank"] for process in data["processes"]] == [None, 1]
    (function,) = data["functions"]
    assert [c["process"] for c in function["compilations"]] == [one[0]["process"], 7]
    assert all(c["seconds"] is not None for c in function["compilations"])


def test_nothing_happened():
    data = history([])
    assert data["functions"] == [] and data["counts"]["compilations"] == 0
    assert advice(data) == []


def test_records_are_json(tmp_path):
    @pliant.compile
    def f(x):
        return x.sum().item() * 2

    path = tmp_path / "events.jsonl"
    expected = []
    with events.listening(records.JsonLog(str(path))), events.listening(expected.append):
        f(torch.ones(2))
    found = records.read(path)
    assert [record["event"] for record in found] == [type(event).__name__ for event in expected]
    assert json.loads(json.dumps(found)) == found
    (captured,) = [record for record in found if record["event"] == "GraphCaptured"]
    assert captured["position"]["file"] == __file__
    assert captured["function"] == expected[0].function


def test_advice_in_the_order_of_what_it_costs():
    def compilation(**changes):
        nothing = {"troubles": [], "breaks": [], "reasons": [], "seconds": 0.1}
        return nothing | changes

    broken = {"what": "print()", "remedy": "Don't."}
    again = compilation(reasons=[{"guard": "n == 3"}])
    functions = [
        {"name": "slow", "compilations": [compilation(seconds=5.0)]},
        {"name": "varying", "compilations": [compilation(), again, again]},
        {"name": "broken", "compilations": [compilation(breaks=[broken])] * 2},
        {"name": "eager", "compilations": [compilation(troubles=["too hard"])]},
    ]
    for number, function in enumerate(functions):
        function["id"] = number
    found = advice({"functions": functions})
    assert [one["function"] for one in found] == [3, 2, 1]
    assert found[0]["text"] == "too hard"
    assert found[1]["text"] == "print(). Don't."
    assert "n == 3" in found[2]["text"]
    assert [one["function"] for one in advice({"functions": functions[:1]})] == [0]
