"""The tutorial: its cells run, and its outputs are those that stand in it."""

import json
import subprocess
import sys
from pathlib import Path

import pliant
from tests.support.processes import environment

ROOT = Path(pliant.__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


def cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_it_is_executed():
    assert [cell["execution_count"] for cell in cells()] == list(range(1, len(cells()) + 1))
    assert all(cell["outputs"] for cell in cells())


def test_no_path_of_a_machine():
    assert "site-packages" not in NOTEBOOK.read_text(encoding="utf-8")


def check(folder):
    command = [sys.executable, str(folder / "tools" / "notebook.py"), "--check"]
    env = environment(OMP_NUM_THREADS="1")
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


def test_the_outputs_are_true():
    result = check(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_output_that_is_out_of_date_is_found(tmp_path):
    for name in ("tools", "docs"):
        (tmp_path / name).mkdir()
    (tmp_path / "tools" / "notebook.py").write_text((ROOT / "tools" / "notebook.py").read_text())
    text = NOTEBOOK.read_text(encoding="utf-8").replace("data-dependent-branch", "another code")
    (tmp_path / "docs" / "tutorial.ipynb").write_text(text, encoding="utf-8")
    result = check(tmp_path)
    assert result.returncode == 1 and "is out of date" in result.stdout
