import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "budgets.py"


@pytest.fixture(scope="module")
def budgets():
    spec = importlib.util.spec_from_file_location("budgets", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["budgets"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["budgets"]


@pytest.fixture
def project(tmp_path, budgets, capsys):
    """`project(text)`: what the tool prints about a project with that file, and its status."""
    (tmp_path / "pliant").mkdir()
    (tmp_path / "csrc").mkdir()
    (tmp_path / "tools").mkdir()

    def run(text="", file="pliant/a.py", exceptions=""):
        (tmp_path / file).write_text(text)
        (tmp_path / budgets.EXCEPTIONS).write_text(exceptions)
        status = budgets.main([str(tmp_path)])
        return status, capsys.readouterr().out

    return run


def function(lines, name="f"):
    return f"def {name}():\n" + "    x = 1\n" * (lines - 1)


def ladder(branches):
    return (
        "if a == 0: pass\n"
        + "".join(f"elif a == {n}: pass\n" for n in range(1, branches))
        + "else: pass\n"
    )


def klass(methods, lines=0):
    body = "".join(f"    def m{n}(self): ...\n" for n in range(methods)) + "    x = 1\n" * lines
    return "class C:\n" + body


CASES = {
    "file": ("x = 1\n" * 800, "x = 1\n" * 801),
    "function": (function(60), function(61)),
    "class": (klass(0, 399), klass(0, 400)),
    "methods": (klass(30), klass(31)),
    "ladder": (ladder(4), ladder(5)),
    "ladder in a nested function": (
        "def f():\n    def g():\n        return 1\n",
        "def f():\n    def g():\n" + "".join("        " + x for x in ladder(5).splitlines(True)),
    ),
    "match": (
        "match a:\n" + "".join(f"    case {n}: pass\n" for n in range(4)) + "    case _: pass\n",
        "match a:\n" + "".join(f"    case {n}: pass\n" for n in range(5)),
    ),
    "else with an if inside is no ladder": (
        "if a: pass\nelif b: pass\nelif c: pass\nelif d: pass\nelse:\n  if e: pass\n",
        ladder(5),
    ),
    "local import": ("def f():\n    import triton\n", "def f():\n    import json\n"),
    "local import from": (
        "if x:\n    from json import dumps\nclass C:\n    import json\n",
        "class C:\n    def f(self):\n        if x:\n            from json import dumps\n",
    ),
}


@pytest.mark.parametrize("within, over", CASES.values(), ids=CASES)
def test_limits(project, within, over):
    assert project(within) == (0, project(within)[1])
    status, output = project(over)
    assert status == 1 and output.count("\n") == 1 and "pliant/a.py" in output


def test_tables_may_be_longer(project):
    assert project("x = 1\n" * 1500, "pliant/opcode_table.py")[0] == 0
    assert project("x = 1\n" * 1501, "pliant/py312.py")[0] == 1


def test_native_code_is_counted_in_all(project, budgets):
    limit = budgets.LIMITS["native"]
    assert project("//\n" * (limit - 10), "csrc/a.cpp")[0] == 0
    assert project("//\n" * 10, "csrc/a.h")[0] == 0
    assert project("//\n" * 11, "csrc/a.h")[0] == 1


def test_message_names_the_place(project):
    _, output = project("x = 1\n" + klass(0) + "    def m(self):\n" + "        x = 1\n" * 70)
    assert output.startswith("pliant/a.py:3: C.m: 71 lines in the function, the limit is 60")


def test_exception(project):
    entry = "function pliant/a.py::f {} # why\n"
    assert project(function(70), exceptions=entry.format(70))[0] == 0
    assert project(function(71), exceptions=entry.format(70))[0] == 1


def test_exceptions_may_only_shrink(project):
    entry = "function pliant/a.py::f 70\n"
    status, output = project(function(65), exceptions=entry)
    assert status == 1 and "is 65 now: lower the entry" in output
    status, output = project(function(60), exceptions=entry)
    assert status == 1 and "delete the entry" in output
