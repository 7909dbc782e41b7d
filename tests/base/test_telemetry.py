"""Compilations as spans of OpenTelemetry."""

import os
import random
import subprocess
import sys
import threading

import pytest
import torch

import pliant
from tests.support.injection import Injector
from tests.support.interrupted_programs import PROGRAMS

pytestmark = pytest.mark.own_default


@pytest.fixture(scope="module")
def trace():
    """What a program imports that traces itself: from then on pliant makes spans, in all tests."""
    yield pytest.importorskip("opentelemetry.trace", reason="opentelemetry-api is not installed")
    del sys.modules["opentelemetry.trace"]


@pytest.fixture(scope="module")
def exporter(trace):
    sdk = pytest.importorskip("opentelemetry.sdk.trace", reason="opentelemetry-sdk isn't installed")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, in_memory_span_exporter

    exporter = in_memory_span_exporter.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def spans(exporter):
    exporter.clear()
    return exporter.get_finished_spans


def test_spans_are_told_of_what_they_are_made_of(trace):
    from pliant.base import logs, telemetry

    assert set(telemetry._HANDLERS) == logs.TRACED


def test_a_compilation_is_a_span_within_that_of_the_program(trace, spans):
    @pliant.compile
    def f(x):
        return x.sin() + 1

    with trace.get_tracer("program").start_as_current_span("request") as request:
        f(torch.ones(2))
        f(torch.ones(2))
    found = {span.name.rpartition(".")[2]: span for span in spans()}
    compilation = found["f"]
    assert compilation.name.startswith("compile ")
    assert compilation.parent.span_id == request.get_span_context().span_id
    assert compilation.attributes["code.file.path"] == __file__
    assert compilation.attributes["pliant.operations"] == 2
    assert [name for name in found if name in ("capture", "guards", "backend")] == [
        "capture",
        "guards",
        "backend",
    ]
    for phase in ("capture", "guards", "backend"):
        assert found[phase].parent.span_id == compilation.context.span_id
        assert compilation.start_time - 5_000_000 <= found[phase].start_time
    assert len(spans()) == 5  # the second call compiled nothing


def test_breaks_and_reasons_are_events(spans):
    @pliant.compile
    def f(x):
        y = x + 1
        pliant.graph_break()
        return y

    f(torch.ones(2))
    f(torch.ones(3))
    compilations = [span for span in spans() if span.name.startswith("compile ")]
    happened = [[event.name for event in span.events] for span in compilations]
    assert any("graph break" in names for names in happened)
    reasons = [e for span in compilations for e in span.events if e.name == "guard failed"]
    assert any("size()[0] == 2" in event.attributes["pliant.guard"] for event in reasons)


def test_one_that_fails_is_an_error(trace, spans):
    def fails(gm, inputs):
        raise ValueError("not me")

    with pytest.raises(pliant.errors.BackendError):
        pliant.compile(lambda x: x + 1, backend=fails)(torch.ones(2))
    (span,) = [span for span in spans() if span.name.startswith("compile ")]
    assert span.status.status_code is trace.StatusCode.ERROR
    assert pliant.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]


def test_it_is_not_imported_for_others():
    program = (
        "import sys, torch, pliant\n"
        "pliant.compile(lambda x: x + 1)(torch.ones(2))\n"
        "assert 'opentelemetry' not in sys.modules and 'pliant.base.telemetry' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=300)


def test_the_program_draws_what_it_would_without(spans):
    def drawn(function):
        random.seed(0)
        function(torch.ones(2))
        return random.random()

    expected = drawn(torch.sin)
    assert drawn(pliant.compile(lambda x: x.sin() + 1)) == expected
    numbers = [span.context.span_id for span in spans()]
    assert len(numbers) > 1 and len(set(numbers)) == len(numbers)


def test_an_interrupted_one_leaves_no_lock_and_no_numbers(spans):
    """`random` is the program's at every line, and another thread can compile."""
    program = PROGRAMS["breaks"]
    own = os.path.join("base", "telemetry.py")
    lines = [(*line, n) for line, n in program.lines().items() if line[0].co_filename.endswith(own)]
    assert len(lines) > 20
    for at in lines:
        random.seed(0)
        with pytest.raises(KeyboardInterrupt):
            Injector(KeyboardInterrupt(), at).call(program.warmed(), *program.last())
        assert random.getstate() == random.Random(0).getstate()
    thread = threading.Thread(target=lambda: program.warmed()(*program.last()), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert spans()[-1].status.is_ok
