"""`pliant run`: programs that know nothing of pliant."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import sys
import torch

@torch.compile
def double(x):
    return x.sin() * 2

print(sys.argv[1:], __name__, type(double).__name__)
for size in (2, 3, 4):
    double(torch.ones(size))
"""


def pliant(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pliant", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def script(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def test_a_script(script):
    result = pliant("run", script(PROGRAM), "a", "--b")
    assert result.stdout == "['a', '--b'] __main__ Dispatcher\n"
    head = "pliant: 1 function compiled in "
    assert result.stderr.startswith(head), result.stderr
    assert result.stderr.endswith("2 graphs, 0 graph breaks, 1 recompilation\n")
    assert result.returncode == 0


def test_a_module(script, tmp_path):
    script(PROGRAM)
    result = pliant("run", "--quiet", "-m", "program", "a", cwd=tmp_path)
    assert result.stdout == "['a'] __main__ Dispatcher\n"
    assert (result.stderr, result.returncode) == ("", 0)


def test_what_to_look_at(script):
    program = PROGRAM.replace("return x", "open('/dev/null').close(); return x")
    result = pliant("run", script(program))
    assert "graph break at " in result.stderr
    assert "program.py:7 in double" in result.stderr


def test_nothing_compiled(script):
    result = pliant("run", script("import torch"))
    assert "nothing was compiled" in result.stderr


def test_exit_status(script):
    assert pliant("run", script("import sys; sys.exit(3)")).returncode == 3


def test_an_error_of_the_program(script):
    result = pliant("run", script("def f():\n    int('one')\nf()"))
    assert result.returncode == 1
    assert "in f\n    int('one')" in result.stderr
    assert result.stderr.rstrip().endswith("invalid literal for int() with base 10: 'one'")


def test_the_main_module_stays(script):
    program = """
import atexit, pickle

class Value:
    pass

atexit.register(lambda: print(type(pickle.loads(pickle.dumps(Value()))).__module__))
"""
    assert pliant("run", "--quiet", script(program)).stdout == "__main__\n"


def test_neighbours_of_the_script_can_be_imported(script):
    script("value = 7", "neighbour.py")
    assert (
        pliant("run", "--quiet", script("import neighbour; print(neighbour.value)")).stdout == "7\n"
    )


def test_logs(script):
    result = pliant("run", "--quiet", "--logs", "recompiles", script(PROGRAM))
    assert "[pliant recompiles] double" in result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "nowhere.py"], "there is no file 'nowhere.py'"),
        (["run", "--logs", "nonsense", __file__], "there is no log named 'nonsense'"),
        (["run"], "the following arguments are required"),
        (["fly"], "invalid choice: 'fly'"),
    ],
)
def test_bad_command_lines(arguments, message):
    result = pliant(*arguments)
    assert message in result.stderr
    assert (result.stdout, result.returncode) == ("", 2)
