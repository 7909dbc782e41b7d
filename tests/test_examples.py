"""The examples run, in a process of their own, and print what they are about."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import environment

ROOT = Path(__file__).parents[1]


def run(example, **variables):
    """What an example prints: stdout, stderr."""
    inherited = environment(OMP_NUM_THREADS="1").items()
    without = {key: value for key, value in inherited if not key.startswith("PLIANT_")}
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", f"examples/{example}.py"],
        cwd=ROOT,
        env=without | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def counts(text):
    """`{'saves(x)': (2, 1), …}`: what the tour says was compiled and broken at each call."""
    found = {}
    for line in text.splitlines():
        what, mark, rest = line.partition(" compiled: ")
        if mark:
            compiled, breaks = rest.split(", graph breaks: ")
            found[what.strip()] = (int(compiled), int(breaks))
    return found


def test_tour():
    text, errors = run("tour")
    assert not errors  # nothing is logged unless asked for
    assert counts(text) == {
        "summary(x)": (1, 0),
        "summary(x) again": (0, 0),
        "saves(x)": (2, 1),
        "saves(x) again": (0, 0),
        "add_one(3x3)": (1, 0),
        "add_one(3x3) again": (0, 0),
        "add_one(4x4)": (1, 0),
        "add_one(9x1)": (0, 0),
        "add_one(0x7)": (0, 0),
        "toward_zero(ones)": (2, 1),
        "toward_zero(-ones)": (1, 0),
        "net(x)": (1, 0),
        "net(x) with a hook": (1, 0),
    }
    assert "def forward(self, l_x, g_scale):" in text
    assert "history holds 2 tensors" in text
    assert "the hook made all results zero: True" in text


def test_tour_with_logs():
    text, errors = run("tour", PLIANT_LOGS="graph_breaks,guards,recompiles")
    assert counts(text)["saves(x)"] == (2, 1)
    assert "torch.serialization.save [not-followed]" in errors
    assert "[data-dependent-branch]" in errors
    assert "L['x'] matches Tensor(float32[3, 3], stride=(3, 1), cpu)" in errors
    assert "compilation 0 needs L['x'].size()[0] == 3, got 4" in errors
    assert "_forward_hooks" in errors
    assert len(errors.splitlines()) < 120  # it is to be read


def test_backend():
    text, errors = run("backend")
    assert not errors
    assert "merge_scaling" in text.splitlines()[0]
    assert text.count("compiling a graph") == 1
    assert "l_x * 24" in text
    assert "result: tensor([24., 25.])" in text
    assert "again, nothing to compile: tensor([ 1., 25.])" in text


def test_debugging():
    text, _ = run("debugging")
    assert "graph breaks by cause: {'data-dependent-number': 1}" in text
    assert "data-dependent" in text
    assert "compilation 0 needs L['eps'] == 0.0, got 0.5" in text
    first, second = (line for line in text.splitlines() if line.startswith("compilations:"))
    assert (first, second) == ("compilations: 2", "compilations: 1")
