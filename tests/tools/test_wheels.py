"""Wheels: what they say of themselves, and what a build without a compiler says."""

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pliant

ROOT = Path(__file__).parents[2]
METADATA = """\
Metadata-Version: 2.4
Name: pliant
Version: 0.1.0
Requires-Dist: torch<2.14,>=2.11
Requires-Dist: rich<16,>=13
Provides-Extra: dev
Requires-Dist: torchish==1; extra == "dev"

Version: 0.1.0
Requires-Dist: torch, in the text
"""


@pytest.fixture(scope="module")
def wheels():
    spec = importlib.util.spec_from_file_location("wheels", ROOT / "tools" / "wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_is_for_one_minor_version_of_torch(wheels):
    bound = wheels.bound_metadata(METADATA, "2.13")
    changed = [line for line in bound.splitlines() if line not in METADATA.splitlines()]
    assert changed == ["Version: 0.1.0+torch2.13", "Requires-Dist: torch==2.13.*"]
    assert bound.endswith(METADATA.partition("\n\n")[2])


def test_the_version_stands_in_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"]["attr"] == "pliant.__version__"
    assert f"## [{pliant.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_a_build_without_a_compiler_says_so(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-temp", str(tmp_path),
               "--build-lib", str(tmp_path)]  # fmt: skip
    variables = {**os.environ, "CXX": "no-such-compiler", "PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode != 0
    assert "there is no compiler `no-such-compiler`. Install one" in done.stderr
