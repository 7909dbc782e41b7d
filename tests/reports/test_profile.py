"""`pliant.profile()`: counts that are exact, times that add up, and a trace beside PyTorch's."""

import gc
import json
import os
import threading
import weakref

import pytest
import torch

import pliant
from pliant import _native
from pliant.launch.launch_info import CALL, KERNEL
from pliant.reports.measure import SpanRecorder, functions_of

pytestmark = pytest.mark.own_default


def row_of(profile, name):
    (row,) = [function for function in profile.functions if function.name.endswith(name)]
    return row


def test_calls_hits_and_bytes():
    @pliant.compile
    def double(x):
        return x * 2

    x = torch.ones(1000)
    with pliant.profile() as p:
        for _ in range(4):
            double(x)
    row = row_of(p, "double")
    assert (row.calls, row.hits) == (4, 3)  # the first one was compiled
    assert row.bytes == 4 * 2 * x.nbytes
    assert row.position.file == __file__
    (step,) = [step for step in row.steps.values() if step.what.kind is KERNEL]
    assert step.what.operations == 1000 and "mul" in step.what.name
    assert (step.runs, step.measured) == (4, 4)


def test_times_add_up():
    @pliant.compile
    def f(x):
        return torch.relu(x @ x) + 1

    x = torch.ones(64, 64)
    f(x)
    with pliant.profile() as p:
        for _ in range(10):
            f(x)
    row = row_of(p, "f")
    assert (row.calls, row.hits, row.miss_seconds) == (10, 10, 0)
    assert row.guard_seconds > 0 and row.kernel_seconds > 0 and row.torch_seconds > 0
    parts = row.guard_seconds + row.kernel_seconds + row.torch_seconds
    assert parts < row.seconds
    assert "aten::mm" in {s.what.name for s in row.steps.values() if s.what.kind is CALL}


def test_the_rest_after_a_break_is_not_counted_twice():
    @pliant.compile
    def broken(x):
        y = x.sin()
        pliant.graph_break()
        return y * 2

    broken(torch.ones(4))
    with pliant.profile() as p:
        broken(torch.ones(4))
    rows = [function for function in p.functions if "broken" in function.name]
    assert [(row.calls, row.hits) for row in rows] == [(1, 1), (1, 1)]
    spans = [span for row in rows for span in row.spans]
    total = max(s.stop for s in spans) - min(s.start for s in spans)
    assert sum(row.seconds for row in rows) <= total / 1e9 + 1e-9


def test_a_backward_has_a_row():
    weight = torch.ones(8, 8, requires_grad=True)

    @pliant.compile
    def loss(weight):
        return (weight @ weight).sin().sum()

    loss(weight).backward()
    with pliant.profile() as p:
        for _ in range(3):
            loss(weight).backward()
    forward, backward = row_of(p, "loss"), row_of(p, "loss backward")
    assert forward.calls == 3 and backward.calls == 3
    assert backward.kernel_seconds > 0 and backward.torch_seconds > 0
    assert backward.compilation == 0


def test_eager_calls_are_misses():
    @pliant.compile
    def f(x):
        return x + 1

    with pliant.profile() as p, pliant.config.patch(raise_on_fallback=False):
        with pliant.set_stance("force_eager"):
            f(torch.ones(2))
    row = row_of(p, "f")
    assert (row.calls, row.hits, row.guard_seconds) == (1, 0, 0)
    assert row.miss_seconds == row.seconds > 0


def test_nothing_is_measured_otherwise():
    @pliant.compile
    def f(x):
        return x + 1

    f(torch.ones(2))
    with pliant.profile() as p:
        pass
    f(torch.ones(2))
    assert p.functions == []
    assert _native.profile(0) == ([], b"")


def test_it_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), pliant.profile() as p:
        1 // 0
    assert p.functions == []
    pliant.compile(lambda x: x + 1)(torch.ones(2))
    assert _native.profile(0) == ([], b"")


def test_profiles_in_each_other():
    @pliant.compile
    def f(x):
        return x + 1

    x = torch.ones(2)
    f(x)
    with pliant.profile() as outer:
        f(x)
        with pliant.profile() as inner:
            f(x)
        f(x)
    assert [row_of(p, "f").calls for p in (outer, inner)] == [3, 1]


def test_before_the_end():
    p = pliant.profile()
    with pytest.raises(RuntimeError, match="complete after"):
        p.functions
    assert "not complete" in str(p)


def test_the_table():
    @pliant.compile
    def f(x):
        return torch.softmax(x, 0)

    with pliant.profile() as p:
        f(torch.ones(3))
    head, row, compilations = str(p).splitlines()
    assert head.split()[:3] == ["function", "calls", "hits"]
    assert row.split()[0].endswith("f") and row.split()[1:3] == ["1", "0"]
    assert compilations.startswith("1 compilation took ")
    assert p._repr_html_().count("<tr>") == 2


@pytest.mark.parametrize("limit", [1, 10, 300])
def test_too_many_spans_are_thinned(limit):
    @pliant.compile
    def f(x):
        return x + 1

    x = torch.ones(2)
    f(x)
    recorder = SpanRecorder(limit)
    recorder.start()
    for _ in range(1000):
        f(x)
    recorder.stop()
    ((owners, data),) = recorder.batches
    assert len(data) // 56 <= max(limit, len(owners) * 3)
    (function,) = functions_of(recorder, lambda fn: {"function": fn.__name__, "position": None})
    assert function.calls == 1000
    (step,) = [s for s in function.steps.values() if s.what.kind is KERNEL]
    assert step.runs == 1000 and step.measured < 1000
    assert step.total == pytest.approx(step.nanoseconds / 1e9 / step.measured * 1000)


def test_threads():
    @pliant.compile
    def f(x):
        return x.sin() + x

    x = torch.ones(100)
    f(x)

    def work():
        for _ in range(50):
            f(x)

    with pliant.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    row = row_of(p, "f")
    assert (row.calls, row.hits) == (200, 200)
    assert len({span.thread for span in row.spans}) == 4
    assert all(span.guards is not None for span in row.spans)


def test_what_is_measured_is_freed():
    def compiled():
        @pliant.compile
        def f(x):
            return x + 1

        with pliant.profile() as p:
            f(torch.ones(2))
        return weakref.ref(f), p

    function, p = compiled()
    del p
    gc.collect()
    assert function() is None


def events_of(path):
    trace = json.loads(path.read_text())
    return [event for event in trace["traceEvents"] if event.get("ph") == "X"]


def test_a_trace(tmp_path):
    @pliant.compile
    def f(x):
        return torch.relu(x @ x)

    with pliant.profile() as p:
        f(torch.ones(4, 4))
        f(torch.ones(4, 4))
    path = tmp_path / "trace.json"
    p.export_chrome_trace(path)
    found = events_of(path)
    names = {event["cat"] for event in found}
    assert names == {
        f"pliant {kind}" for kind in ("call", "guards", "kernel", "PyTorch", "compilation")
    }
    assert {event["pid"] for event in found} == {os.getpid()}
    assert {event["tid"] for event in found} == {threading.get_native_id()}
    calls = [event for event in found if event["cat"] == "pliant call"]
    assert [event["args"]["hit"] for event in calls] == [False, True]
    (compilation,) = [event for event in found if event["cat"] == "pliant compilation"]
    first = calls[0]
    assert first["ts"] - 2000 <= compilation["ts"]  # two clocks, to 2 ms
    assert compilation["ts"] + compilation["dur"] <= first["ts"] + first["dur"] + 2000


def test_a_trace_with_that_of_pytorch(tmp_path):
    @pliant.compile
    def f(x):
        return torch.relu(x @ x)

    x = torch.ones(4, 4)
    f(x)
    with torch.profiler.profile() as theirs, pliant.profile() as p:
        with torch.profiler.record_function("around"):
            f(x)
    path = tmp_path / "trace.json"
    p.export_chrome_trace(path, theirs)
    found = events_of(path)
    (around,) = [event for event in found if event["name"] == "around"]
    (call,) = [event for event in found if event["cat"] == "pliant call"]
    assert (call["pid"], call["tid"]) == (around["pid"], around["tid"])
    assert around["ts"] - 2000 <= call["ts"] <= around["ts"] + around["dur"] + 2000
    assert any(event["name"] == "aten::mm" and event["cat"] == "cpu_op" for event in found)
