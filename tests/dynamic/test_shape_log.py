import logging
from typing import get_args

from pliant.base import events
from pliant.base.logs import set_logs
from pliant.base.position import Position
from pliant.dynamic.choose import Choice
from pliant.dynamic.shape_log import ShapeLog
from pliant.sym.cond import TRUE, eq, le, lt
from pliant.sym.env import ShapeEnv
from pliant.sym.records import Question, Reason

AT = Position("demo.py", 5, "f")
LINE = Position("demo.py", 7, "f")
SIZE = "L['x'].size()[0]"


def logged(program, policy="recompile"):
    """The shape log of `program`."""
    log = ShapeLog()
    program(ShapeEnv(policy, listener=log, where=lambda: LINE), log)
    return log


def events_of(log):
    emitted = []
    with events.listening(emitted.append):
        log.emit("f", AT, 1)
    return emitted


def everything(env, log):
    s0 = env.add_input(SIZE, 10, why="dynamic=True")
    env.evaluate(le(s0, 30), "if")
    env.evaluate(eq(s0, 10), "range")
    u0 = env.add_unbacked("item()", size_like=True)
    env.check(lt(u0, 100), "too many")
    env.size_oblivious(eq(u0, 1), "squeeze")
    log.constant("L['x'].size()[1]", 20, Choice("static", False, None, None, "dynamic=False"))


def test_each_record_is_an_event():
    emitted = [
        event for event in events_of(logged(everything)) if type(event) is not events.SizeAsked
    ]
    assert [type(event).__name__ for event in emitted] == [
        "SymbolMade",
        "SizeGuarded",
        "SymbolSpecialised",
        "SizeGuarded",
        "SymbolMade",
        "SizeAsserted",
        "SizeAssumed",
        "StayedConstant",
    ]
    assert all((event.function, event.position, event.index) == ("f", AT, 1) for event in emitted)
    made, guarded, special, _, unknown, asserted, assumed, constant = emitted
    assert (made.name, made.hint, made.range, made.why) == ("s0", 10, "[0, inf]", "dynamic=True")
    assert events.render(made.source) == events.render(special.source) == SIZE
    assert events.render(guarded.condition) == "s0 <= 30" and guarded.line == LINE
    assert (special.value, special.asker, special.line) == (10, "range", LINE)
    assert unknown.hint is None and unknown.why == "computed from data"
    assert events.render(asserted.condition) == "u0 <= 99" and asserted.message == "too many"
    assert assumed.asker == "squeeze" and assumed.policy == "recompile"
    assert constant.value == 20 and constant.why == "dynamic=False"


def test_each_question_is_told():
    asked = [event for event in events_of(logged(everything)) if type(event) is events.SizeAsked]
    assert [(event.asker, event.answer) for event in asked] == [
        ("if", True),
        ("range", True),
        ("check", True),
        ("squeeze", False),
    ]


def test_the_log(capsys):
    log = logged(everything)
    set_logs(dynamic=True)
    log.emit("f", AT, 1)
    plain = capsys.readouterr().err
    set_logs(dynamic=logging.DEBUG)
    log.emit("f", AT, 1)
    detailed = capsys.readouterr().err
    head = "[pliant dynamic] f (demo.py:5), compilation 1: "
    assert f"{head}s0 is {SIZE}, now 10, in [0, inf]: dynamic=True\n" in plain
    assert f"{head}holds for s0 <= 30 only: if asked\n    at demo.py:7 in f\n" in plain
    assert f"{head}s0 ({SIZE}) is 10 from now on: range asked\n" in plain
    assert plain.count(head) == 7 and detailed.count(head) == 7 + 4 + 1
    assert f"{head}if asked s0 <= 30: True (it is so for this call, hence a guard)\n" in detailed
    assert f"{head}L['x'].size()[1] is 20: dynamic=False\n" in detailed


def test_nothing_is_told_or_printed_before_it_is_asked_for(capsys):
    emitted = []
    with events.listening(emitted.append):
        log = logged(everything)
    assert not emitted and len(log) > 0
    log.emit("f")
    assert capsys.readouterr() == ("", "")


def test_what_is_taken_back_is_not_told():
    log = ShapeLog()
    env = ShapeEnv(listener=log)
    s0 = env.add_input(SIZE, 10)
    state, length = env.snapshot(), len(log)
    env.evaluate(eq(s0, 10), "range")
    env.restore(state)
    log.back_to(length)
    assert [type(event) for event in events_of(log)] == [events.SymbolMade]


def test_every_reason_has_words():
    for reason in get_args(Reason):
        log = ShapeLog()
        log(Question("if", TRUE, None, reason))
        assert type(events_of(log)[0].reason) is str
