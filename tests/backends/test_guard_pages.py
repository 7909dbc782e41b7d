"""Kernels touch no memory beside the tensors they are given: random graphs, in processes where that
would be the end (`guard_pages.c`)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPARE = """
import sys
import tests.conftest
from tests.backends.test_random_graphs import ROUNDING, compare
for seed in sorted({*range(int(sys.argv[1]), int(sys.argv[2]))} - ROUNDING):
    compare(seed)
"""
TOUCH = """
import ctypes, sys, torch
x = torch.ones(5)
floats = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))
print(floats[0] + floats[4], flush=True)
floats[int(sys.argv[1])]
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("guard") / "guard_pages.so"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["cc", *flags, "-o", made, HERE / "guard_pages.c", "-ldl"], check=True)
    return made


def guarded(library: Path, side: str, program: str, *arguments: int):
    environment = {**os.environ, "LD_PRELOAD": str(library), "GUARD": side, "PLIANT_CACHE": "0"}
    command = [sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)]
    root = HERE.parents[1]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)


@pytest.mark.parametrize("side, beside", [("end", 5), ("start", -1)])
def test_the_pages_are_there(library, side, beside):
    done = guarded(library, side, TOUCH, beside)
    assert done.stdout == "2.0\n" and done.returncode != 0


@pytest.mark.parametrize("side", ["end", "start"])
def test_nothing_beside_tensors_is_touched(library, side):
    done = guarded(library, side, COMPARE, 0, 6)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 2000, 100))
@pytest.mark.parametrize("side", ["end", "start"])
def test_nothing_beside_tensors_is_touched_in_many_graphs(library, side, start):
    done = guarded(library, side, COMPARE, start, start + 100)
    assert done.returncode == 0, done.stderr
