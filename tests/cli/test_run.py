"""`pliant run`: programs that know nothing of pliant."""

import json
import signal
import subprocess
import sys
from importlib import metadata

import pytest

from tests.support.processes import environment

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


def pliant(*arguments, cwd=None, **variables):
    return subprocess.run(
        [sys.executable, "-m", "pliant", *arguments],
        env=environment(**variables),
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
    assert "pliant" not in result.stderr.partition("Traceback")[2].replace(script(""), "")
    assert "runpy" not in result.stderr
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


@pytest.mark.parametrize("text, shown", [("def (", "  File"), ("import nowhere", "Traceback")])
def test_errors_look_as_they_do_without_pliant(script, text, shown):
    path = script(text)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True)
    result = pliant("run", "--quiet", path)
    assert (result.returncode, result.stderr) == (plain.returncode, plain.stderr)
    assert result.stderr.startswith(shown)


def test_a_module_that_is_not_there(tmp_path):
    result = pliant("run", "--quiet", "-m", "nowhere", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (1, "ImportError: No module named nowhere\n")


def test_an_interrupt_ends_it_as_without_pliant(script):
    # A shell starts what it runs in the background with interrupts ignored: these tests, too.
    path = script("""if True:
        import os, signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGINT)
    """)
    result = pliant("run", path)
    assert result.returncode == -signal.SIGINT
    assert result.stderr.rstrip().endswith("KeyboardInterrupt")


def test_standard_input(script):
    command = [sys.executable, "-m", "pliant", "run", "--quiet", script("print(input()[::-1])")]
    result = subprocess.run(command, env=environment(), input="abc", capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("cba\n", "")


SEVERAL = """
import os
import sys
import torch
import torch.multiprocessing as multiprocessing

@torch.compile
def double(x):
    return x.sin() * 2

def work(*rank):
    said = f"{type(double).__name__} {double(torch.ones(2)).shape}\\n"
    os.write(1, said.encode())  # at once: the other process writes, too

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    started = [context.Process(target=work) for _ in range(2)]
    for one in started:
        one.start()
    for one in started:
        one.join()
"""


def _is_installed():
    return any(d.metadata["Name"] == "pliant" for d in metadata.distributions())


needs_installation = pytest.mark.skipif(
    not _is_installed(), reason="imported from its folder, so that processes don't begin with it"
)


@needs_installation
@pytest.mark.parametrize("how", ["spawn", "fork"])
def test_processes_that_it_starts_are_in_the_report(script, tmp_path, how):
    report = tmp_path / "report.html"
    result = pliant("run", "--report", str(report), script(SEVERAL), how, cwd=tmp_path)
    assert result.stdout == "Dispatcher torch.Size([2])\n" * 2, result.stderr
    assert "2 compilations in " in result.stderr and "in 2 other processes" in result.stderr
    assert "nothing was compiled" not in result.stderr
    text = report.read_text().partition('<script id="data" type="application/json">')[2]
    data = json.loads(text.partition("</script>")[0])
    (function,) = data["functions"]
    assert len({one["process"] for one in function["compilations"]}) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py", "report.html"]


@needs_installation
def test_events_that_the_user_asks_for_are_in_the_report_too(script, tmp_path):
    log, report = tmp_path / "events.jsonl", tmp_path / "report.html"
    for _ in range(2):  # the second report has nothing of the first run
        result = pliant("run", "--report", str(report), script(SEVERAL), "spawn", cwd=tmp_path,
                        PLIANT_LOGS_JSON=str(log))  # fmt: skip
        assert "2 compilations in " in result.stderr, result.stderr
    assert log.read_text().count('"CompileFinished"') == 4
