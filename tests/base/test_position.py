import dis
import linecache

import pytest

from pliant.base.position import Position, format_position, short_path


def code_of(source, name="f", file="<made up>"):
    """The code of a function of `source`, and its lines where tools look for them."""
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    namespace = {}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name].__code__


def call_position(code, which=0):
    calls = [i.offset for i in dis.get_instructions(code) if i.opname == "CALL"]
    return Position.of_code(code, calls[which])


def test_definition():
    code = code_of("\n\ndef f(x):\n    return x\n")
    assert Position.of_code(code) == Position("<made up>", 3, "f")


def test_caret_under_the_call():
    position = call_position(code_of("def f(g):\n    y = 1 + g(2)\n    return y\n"))
    assert position.line == 2
    assert position.source_line() == "y = 1 + g(2)"
    assert position.caret_line() == "        ^^^^"


def test_caret_counts_characters_not_bytes():
    position = call_position(code_of("def f(g):\n    é = 'ü' + g('ß') + 'x'\n"))
    start = position.source_line().index("g(")
    assert position.caret_line() == " " * start + "^" * len("g('ß')")


def test_no_caret_under_a_whole_line():
    assert call_position(code_of("def f(g):\n    g(2)\n")).caret_line() == ""


def test_expression_over_several_lines():
    position = call_position(code_of("def f(g):\n    y = g(2,\n      3)\n"))
    assert position.source_line() == "y = g(2,"
    assert position.caret_line() == "    ^^^^"


def test_unknown_source():
    position = Position("/no/such/file.py", 3, "f", 1, 2)
    assert position.source_line() == "" and position.caret_line() == ""
    assert format_position(position) == "  at /no/such/file.py:3 in f"


def test_every_offset_has_a_position():
    code = code_of("def f(g):\n    with g() as h:\n        for x in h:\n            yield x\n")
    for instruction in dis.get_instructions(code):
        assert 1 <= Position.of_code(code, instruction.offset).line <= 4
    with pytest.raises(IndexError):
        Position.of_code(code, len(code.co_code))


def test_format():
    text = format_position(call_position(code_of("def f(g):\n    y = g(2)\n")))
    assert text.split("\n") == ["  at <made up>:2 in f", "      y = g(2)", "          ^^^^"]


def test_short_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_path(str(tmp_path / "a" / "b.py")) == "a/b.py"
    assert short_path(str(tmp_path.parent / "b.py")) == str(tmp_path.parent / "b.py")
    assert short_path("<string>") == "<string>"


def test_libraries():
    assert Position("/env/lib/site-packages/some/thing.py", 1).library == "some.thing"
    assert Position("/usr/lib/dist-packages/some/__init__.py", 1).library == "some"
    assert Position(dis.__file__, 1).library == "dis"
    assert Position(__file__, 1).library == "" == Position("<string>", 1).library
