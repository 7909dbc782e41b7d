import logging
import os
import subprocess
import sys
import warnings
from dataclasses import fields

import pytest

from pliant.base import events, logs
from pliant.base.errors import InvalidOptionError, PliantWarning, UnknownLogError
from pliant.base.logs import CHANNELS, from_text, set_logs
from pliant.base.position import Position

AT = Position("demo.py", 5, "f")
LINE = Position("demo.py", 7, "f")
SAMPLES = {
    events.GraphBroke: events.GraphBroke(
        function="f",
        position=AT,
        code="io",
        what="torch.save(...) runs outside of the graph",
        why="it writes a file",
        remedy="call it after f",
    ),
    events.GuardsBuilt: events.GuardsBuilt(function="f", position=AT, guards=lambda: ["a == 1"]),
    events.Recompiled: events.Recompiled(
        function="f",
        position=AT,
        index=1,
        reasons=(events.FailedGuard(entry=0, guard="L['x'].size()[0] == 3, got 4", position=AT),),
    ),
    events.LimitReached: events.LimitReached(
        function="f", position=AT, limit=8, varied="the int L['n']"
    ),
    events.GraphCaptured: events.GraphCaptured(
        function="f", position=AT, graph=lambda: "def forward(self, x):\n    return x", nodes=1
    ),
    events.StageFinished: events.StageFinished(
        function="f", position=AT, stage="captured", text=lambda: "slots:\n  x"
    ),
    events.ResidualMade: events.ResidualMade(function="f", position=AT, source="def f(x): ..."),
    events.BytecodeRead: events.BytecodeRead(function="f", position=AT, listing="RESUME"),
    events.CompileFinished: events.CompileFinished(
        function="f", position=AT, seconds=0.25, phases={"capture": 0.125}
    ),
    events.BackendCalled: events.BackendCalled(function="f", backend="eager", seconds=0.0),
    events.CodeGenerated: events.CodeGenerated(
        function="f",
        kernels=lambda: ["kernel k(; b0: f32 read)"],
        lowered={"aten.exp.default": 1},
        called={"aten.mm.default: no rule": 2},
        fusion=lambda: [
            {
                "kernel": "kernel1",
                "operators": ["exp", "mul", "mul"],
                "reads": [
                    {"from": "kernel0", "what": ["sum"], "by": ["exp"], "why": "other sizes"},
                    {"from": "mm.out", "what": [], "by": ["mul"], "why": "PyTorch runs it"},
                ],
            }
        ],
    ),
    events.GraphPartitioned: events.GraphPartitioned(
        function="f", report=lambda: "1 tensor saved\nsaved  l_x"
    ),
    events.NotGenerated: events.NotGenerated(function="f", reason="autograd"),
    events.KernelFailed: events.KernelFailed(
        function="f", operators=("aten.exp.default",), reason="no", error=RuntimeError("bad text")
    ),
    events.RanOriginal: events.RanOriginal(function="Net.generate", position=AT),
    events.FellBack: events.FellBack(
        function="f", position=AT, reason="capture failed", error=KeyError("k")
    ),
    events.SymbolMade: events.SymbolMade(
        function="f",
        position=AT,
        name="s0",
        source=lambda: "L['x'].size()[0]",
        hint=8,
        range="[0, inf]",
        why="size changed from 5 to 8 (automatic dynamic)",
        line=LINE,
    ),
    events.StayedConstant: events.StayedConstant(
        function="f", source="L['x'].size()[1]", value=20, why="has not changed so far"
    ),
    events.SizeAsked: events.SizeAsked(
        function="f", condition=lambda: "s0 == 1", asker="squeeze", answer=None, reason=""
    ),
    events.SizeGuarded: events.SizeGuarded(
        function="f", position=AT, condition=lambda: "s0 <= 30", asker="if", line=LINE
    ),
    events.SizeAssumed: events.SizeAssumed(
        function="f", condition="u0 != 1", asker="squeeze", policy="recompile", line=LINE
    ),
    events.SizeAsserted: events.SizeAsserted(
        function="f", condition="u0 < 100", message="too many", line=LINE
    ),
    events.SymbolSpecialised: events.SymbolSpecialised(
        function="f", name="s0", source="L['x'].size()[0]", value=10, asker="range", line=LINE
    ),
}
DETAILS = {events.StayedConstant, events.SizeAsked}  # shown by +dynamic only
# What a reader has to find in the line about each sample.
TELLS = {
    events.GraphBroke: ["demo.py:5", "torch.save", "[io]", "it writes a file", "call it after f"],
    events.GuardsBuilt: ["f (demo.py:5)", "a == 1"],
    events.Recompiled: ["f (demo.py:5)", "compilation 0", "L['x'].size()[0] == 3, got 4"],
    events.LimitReached: ["8 times", "config.recompile_limit", "the int L['n']"],
    events.GraphCaptured: ["1 operation\n", "    def forward(self, x):\n        return x"],
    events.StageFinished: ["compilation 0: captured\n", "    slots:\n", "      x\n"],
    events.ResidualMade: ["def f(x): ..."],
    events.BytecodeRead: ["RESUME"],
    events.CompileFinished: ["250.0 ms", "capture 125.0 ms"],
    events.BackendCalled: ["'eager'"],
    events.CodeGenerated: ["1 kernel", "kernel k(; b0: f32 read)", "2 x aten.mm.default"],
    events.GraphPartitioned: ["f: 1 tensor saved", "saved  l_x"],
    events.NotGenerated: ["operator by operator", "autograd"],
    events.KernelFailed: ["PyTorch runs aten.exp.default", "kernel", "RuntimeError: bad text"],
    events.RanOriginal: ["Net.generate", "runs the original module", "pliant.compile_module"],
    events.FellBack: ["runs eagerly", "capture failed", "KeyError: 'k'"],
    events.SymbolMade: [
        "f (demo.py:5), compilation 0: s0 is L['x'].size()[0], now 8, in [0, inf]: ",
        "size changed from 5 to 8 (automatic dynamic)",
    ],
    events.StayedConstant: ["L['x'].size()[1] is 20: has not changed so far"],
    events.SizeAsked: ["squeeze asked s0 == 1: can't be told"],
    events.SizeGuarded: ["holds for s0 <= 30 only: if asked\n    at demo.py:7 in f"],
    events.SizeAssumed: [
        "assumes u0 != 1 for squeeze; where that is wrong, a variant",
        "demo.py:7",
    ],
    events.SizeAsserted: ["asserts u0 < 100, or else raises 'too many'", "demo.py:7"],
    events.SymbolSpecialised: ["s0 (L['x'].size()[0]) is 10 from now on: range asked", "demo.py:7"],
}
# The same, where a second channel shows other things of an event.
ALSO_TELLS = {
    "fusion": [
        "    kernel1: exp, 2 x mul\n",
        "        exp reads sum of kernel0: other sizes\n",
        "        mul reads mm.out: PyTorch runs it\n",
    ],
}


def send(event):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PliantWarning)
        events.emit(event)


@pytest.mark.parametrize(
    "name, kind",
    [(name, kind) for name, channel in CHANNELS.items() for kind in channel.formatters],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_each_channel_tells_what_matters(name, kind, capsys):
    set_logs(**{name: logging.DEBUG if kind in DETAILS else True})
    send(SAMPLES[kind])
    text = capsys.readouterr().err
    assert text.startswith(f"[pliant {name}] ")
    for part in ALSO_TELLS.get(name, TELLS[kind]):
        assert part in text


def test_nothing_is_printed_by_default(capsys):
    for event in SAMPLES.values():
        send(event)
    assert capsys.readouterr() == ("", "")


def test_only_what_was_asked_for(capsys):
    set_logs(guards=True, output_code=logging.DEBUG, residual=False)
    for event in SAMPLES.values():
        send(event)
    assert capsys.readouterr().err.count("[pliant ") == 3  # of output_code two


def test_each_call_states_the_whole_choice(capsys):
    set_logs(guards=True)
    set_logs(residual=True)
    send(SAMPLES[events.GuardsBuilt])
    assert capsys.readouterr().err == ""
    set_logs()
    send(SAMPLES[events.ResidualMade])
    assert capsys.readouterr().err == ""


def test_details(capsys):
    event = SAMPLES[events.FellBack]
    try:
        raise event.error
    except KeyError:
        pass
    set_logs(fallbacks=True)
    send(event)
    assert "Traceback" not in capsys.readouterr().err
    set_logs(fallbacks=logging.DEBUG)
    send(event)
    assert "Traceback" in capsys.readouterr().err


def test_questions_about_sizes_are_details(capsys):
    set_logs(dynamic=True)
    for kind in DETAILS:
        send(SAMPLES[kind])
    assert capsys.readouterr().err == ""
    send(SAMPLES[events.SizeGuarded])
    assert capsys.readouterr().err.count("[pliant dynamic] ") == 1


def test_a_level_above_info_is_silent(capsys):
    set_logs(guards=logging.ERROR)
    send(SAMPLES[events.GuardsBuilt])
    assert capsys.readouterr().err == ""


def test_records_carry_the_event_for_a_users_own_handler():
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("pliant").addHandler(handler)
    try:
        set_logs(guards=True)
        send(SAMPLES[events.GuardsBuilt])
    finally:
        logging.getLogger("pliant").removeHandler(handler)
    assert records[0].name == "pliant.guards" and records[0].event is SAMPLES[events.GuardsBuilt]


def test_unknown_name():
    with pytest.raises(UnknownLogError, match="did you mean 'graph_breaks'") as caught:
        set_logs(graph_break=True)
    assert all(name in str(caught.value) for name in CHANNELS)


def test_value_that_is_no_level():
    with pytest.raises(InvalidOptionError, match="'guards' can't be 'yes'"):
        set_logs(guards="yes")


def test_documentation_lists_all_channels():
    assert all(name in set_logs.__doc__ and CHANNELS[name].doc for name in CHANNELS)


def test_environment_spelling():
    assert from_text(" graph_breaks, +guards,,-residual ") == {
        "graph_breaks": True,
        "guards": logging.DEBUG,
        "residual": False,
    }
    assert logs._levels(from_text("-guards,all"), "a test").keys() == CHANNELS.keys() - {"guards"}


PROGRAM = """
from pliant.base import events, logs
events.emit(events.GuardsBuilt(function="f", guards=lambda: ["a == 1"]))
"""


def run(value):
    environment = {**os.environ, "PLIANT_LOGS": value}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )


def test_environment_variable():
    assert "a == 1" in run("graph_breaks,guards").stderr
    assert run("").stderr == ""
    assert "PLIANT_LOGS: there is no log named 'gards'" in run("gards").stderr


def test_warnings_come_once_for_each_function():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in ("f", "g", "f"):
            events.emit(events.FellBack(function=name, position=AT, reason="a test"))
        events.emit(SAMPLES[events.LimitReached])
    texts = [str(item.message) for item in caught]
    assert len(texts) == 3 and "f runs eagerly" in texts[0] and "g runs eagerly" in texts[1]
    assert "What varied: the int L['n']" in texts[2]
    assert {(item.filename, item.lineno) for item in caught} == {("demo.py", 5)}


def test_samples_cover_all_events():
    shown = {kind for channel in CHANNELS.values() for kind in channel.formatters}
    assert shown == SAMPLES.keys() == TELLS.keys()
    assert set(events.KINDS) - shown == {
        events.CompileStarted,
        events.CompileAbandoned,
        events.EntryUsed,
        events.CallsMeasured,
        events.StepsMeasured,
        events.WorkBegan,
    }
    assert all(fields(kind) for kind in shown)
