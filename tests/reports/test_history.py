"""The records of a run in order: what belongs to which compilation, and what to look at first."""

import json
import time
import types

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
    notes = {
        line["text"].strip(): [note["kind"] for note in line["notes"]]
        for line in function["source"]
        if line["notes"]
    }
    assert notes["pliant.graph_break()"] == ["break"]
    # Where `x` was first used, and `y`, an argument of the rest of the function.
    assert set(notes["y = x.sin()"]) == set(notes["return y * 2"]) == {"guard"}
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


def test_backwards_of_functions_with_one_name():
    class Sine(torch.nn.Module):
        def forward(self, x):
            return x.sin()

    class Cosine(torch.nn.Module):
        def forward(self, x):
            return x.cos()

    def program():
        x = torch.ones(2, requires_grad=True)
        results = [pliant.compile(kind())(x) for kind in (Sine, Cosine)]
        for result in results:
            result.sum().backward()

    functions = history(recorded(program))["functions"]
    programs = [[p["function"] for p in f["compilations"][0]["programs"]] for f in functions]
    for function, names in zip(functions, programs, strict=True):
        assert names == [function["name"], f"{function['name']} backward"]


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
        nothing = {"troubles": [], "breaks": [], "reasons": [], "remedy": "", "seconds": 0.1}
        return nothing | changes

    broken = {"what": "print()", "remedy": "Don't."}
    again = compilation(reasons=[{"guard": "n == 3, got 4"}], remedy="Pass a tensor.")
    functions = [
        {"name": "slow", "compilations": [compilation(seconds=6.0)]},
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
    assert found[2]["text"] == "n == 3 did not hold. Pass a tensor."
    assert [one["function"] for one in advice({"functions": functions[:1]})] == [0]


def test_a_break_in_a_library_is_noted_at_the_call():
    def outer(x):
        y = x.sin()
        return library.helper(y)

    library = types.ModuleType("library")
    text = "import pliant\ndef helper(x):\n    pliant.graph_break()\n    return x + 1\n"
    exec(compile(text, "/somewhere/site-packages/library.py", "exec"), library.__dict__)
    data = history(recorded(lambda: pliant.compile(outer)(torch.ones(2))))
    outer_page = next(f for f in data["functions"] if f["name"].endswith("outer"))
    noted = [
        line["text"].strip()
        for line in outer_page["source"]
        if any(note["kind"] == "break" for note in line["notes"])
    ]
    assert noted == ["return library.helper(y)"]


def test_kernels_know_their_lines_forward_and_backward():
    weight = torch.ones(3, 3, requires_grad=True)

    def scaled(x):
        return torch.tanh(x)

    @pliant.compile
    def loss(weight):
        y = scaled(weight)
        return (y * 3).sum()

    data = history(recorded(lambda: loss(weight).backward()))
    ((compilation,),) = [f["compilations"] for f in data["functions"] if "loss" in f["name"]]
    first = scaled.__code__.co_firstlineno
    tanh, call = f"test_history.py:{first + 1}", f"test_history.py:{first + 5}"
    for program in compilation["programs"]:
        lines = {line for row in program["fusion"] for line in row["lines"]}
        assert {tanh, call} <= lines, program["function"]
    (node,) = [node for node in compilation["drawing"] if node["label"] == "tanh"]
    assert node["lines"] == [call, tanh] and node["line"] == tanh


def test_the_lines_of_residual_code():
    def f(x):
        y = x.sin()
        pliant.graph_break()
        return y * 2

    data = history(recorded(lambda: pliant.compile(f)(torch.ones(2))))
    one = data["functions"][0]["compilations"][0]
    residual = one["residual"].splitlines()
    broken = f"test_history.py:{f.__code__.co_firstlineno + 2}"
    assert [residual[int(n) - 1].strip() for n, lines in one["residual_lines"].items()
            if broken in lines] == ["result = graph_break()"]  # fmt: skip


def test_who_asked_about_sizes():
    @pliant.compile(dynamic=True)
    def f(x):
        return x * 2 if x.shape[0] > 3 else x

    data = history(recorded(lambda: f(torch.ones(5, 2))))
    sizes = data["functions"][0]["compilations"][0]["sizes"]
    questions = [size["text"] for size in sizes if size["kind"] == "question"]
    assert any("asks whether s0 >= 4: yes" in text for text in questions), questions


def test_time_for_recording_is_told_apart():
    @pliant.compile
    def f(x):
        return x + 1

    def slow(event):
        if isinstance(event, events.GraphCaptured):
            time.sleep(0.2)

    with events.listening(slow):
        data = history(recorded(lambda: f(torch.ones(2))))
    (one,) = data["functions"][0]["compilations"]
    assert one["recording"] >= 0.2


def test_the_rank_may_be_known_late():
    @pliant.compile
    def f(x):
        return x + 1

    first, *rest = recorded(lambda: f(torch.ones(2)))
    data = history([first, *({**record, "rank": 3} for record in rest)])
    assert [process["rank"] for process in data["processes"]] == [3]
