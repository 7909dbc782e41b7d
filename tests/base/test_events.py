import logging
import threading

import pytest

from pliant.base import events
from pliant.base.errors import PliantWarning
from pliant.base.events import (
    COUNTED,
    CompileFinished,
    FellBack,
    GraphBroke,
    GraphCaptured,
    counters,
    emit,
    listening,
    subscribe,
)


def a_break(code="some-code"):
    return GraphBroke(function="f", code=code, what="it")


def test_listeners_get_events_in_order():
    seen = []
    with listening(seen.append):
        sent = [a_break(), CompileFinished(function="f", seconds=1.0)]
        for event in sent:
            emit(event)
    emit(a_break())
    assert seen == sent


def test_unsubscribe_twice_ends_one_subscription():
    seen = []
    first, second = subscribe(seen.append), subscribe(seen.append)
    first()
    first()
    emit(a_break())
    second()
    emit(a_break())
    assert len(seen) == 1


def test_a_listener_may_unsubscribe_itself():
    seen = []

    def once(event):
        seen.append(event)
        stop()

    stop = subscribe(once)
    emit(a_break())
    emit(a_break())
    assert len(seen) == 1


def test_a_failing_listener_is_reported_and_disturbs_nobody(caplog):
    seen = []

    def bad(event):
        raise ZeroDivisionError

    with listening(bad), listening(seen.append), caplog.at_level(logging.ERROR):
        emit(a_break())
    assert len(seen) == 1 and "GraphBroke" in caplog.text and "ZeroDivisionError" in caplog.text


def test_a_warning_made_an_error_gets_out():
    with pytest.raises(PliantWarning):
        emit(FellBack(function="f", reason="a test"))


def test_a_listener_may_ask_for_some_kinds():
    got = []
    unsubscribe = subscribe(got.append, (GraphBroke,))
    assert not events.heard()
    with listening(lambda event: None):
        assert events.heard()
    emit(CompileFinished(function="f", seconds=1.0))
    emit(event := a_break())
    unsubscribe()
    emit(a_break())
    assert got == [event]


def test_lazy_texts_are_not_made_for_nobody():
    emit(GraphCaptured(function="f", graph=lambda: pytest.fail("rendered"), nodes=0))
    assert events.render(lambda: "text") == events.render("text") == "text"


def test_counters():
    assert set(counters.values()) == {0}
    emit(a_break("a"))
    emit(a_break("b"))
    emit(a_break("b"))
    emit(CompileFinished(function="f", seconds=1.0))
    assert counters["graph_breaks"] == 3 and counters["compilations"] == 1
    assert counters.breaks == {"b": 2, "a": 1} and list(counters.breaks) == ["b", "a"]
    assert "graph_breaks" in counters and set(counters) == set(COUNTED)
    assert "'graph_breaks': 3" in repr(counters)
    counters.reset()
    assert not any(counters.values()) and counters.breaks == {}


def test_all_kinds_are_known():
    made = [kind for kind in vars(events).values() if isinstance(kind, type)]
    kinds = {kind for kind in made if issubclass(kind, events.Event)} - {
        events.Event,
        events.SizeEvent,
    }
    assert kinds == set(events.KINDS)
    assert len(COUNTED) == len(set(COUNTED))


def test_promised_counters_exist():
    promised = "compilations graphs graph_breaks recompiles fallbacks limit_reached"
    assert {*promised.split()} <= {*counters}


def test_unknown_counter():
    with pytest.raises(KeyError, match="graph_breaks"):
        counters["graph_break"]
    assert "graph_break" not in counters


def test_counting_from_several_threads():
    def work():
        for _ in range(500):
            emit(a_break())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters["graph_breaks"] == 2000
