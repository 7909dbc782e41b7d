"""`PLIANT_REPRO=dir`: scripts of failures that nobody asked for."""

import subprocess
import sys
import warnings

import pytest
import torch

import pliant
from pliant.base.errors import InternalError, PliantWarning
from pliant.base.options import config
from pliant.reproduce.environment import write_failures
from tests.reproduce import planted
from tests.support.processes import environment

pytestmark = pytest.mark.own_default


@pytest.fixture
def failing(monkeypatch, tmp_path):
    """Lowerings fail, and scripts are written to the directory that this is."""
    monkeypatch.setattr(*planted.failing_lowering())
    end = write_failures(str(tmp_path))
    yield tmp_path
    end()


def program(x, *others, scale=1, **more):
    return torch.tanh(x * scale) + others[0] + more["offset"]


@pytest.mark.parametrize("raises", [False, True])
def test_a_failure_is_written_once(failing, raises):
    args = torch.randn(30), torch.randn(30)
    with config.patch(raise_on_fallback=raises), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        compiled = pliant.compile(program)
        for _ in range(2):
            pliant.reset()
            try:
                result = compiled(*args, scale=2, offset=1)
            except InternalError:
                assert raises
            else:
                assert not raises
                assert torch.equal(result, program(*args, scale=2, offset=1))
    told = [str(w.message) for w in seen if "script:" in str(w.message)]
    assert len(told) == 1
    assert "code generation, for tanh" in told[0]
    (script,) = failing.glob("*.py")
    assert "torch.tanh" in script.read_text()


def test_a_module(failing):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    with (
        pytest.warns(PliantWarning, match="code generation, for tanh"),
        pytest.raises(InternalError),
    ):
        pliant.compile(model)(torch.randn(2, 3))


def test_what_works_writes_nothing(failing):
    x = torch.randn(3)
    assert torch.equal(pliant.compile(lambda x: x * 2)(x), x * 2)
    assert list(failing.iterdir()) == []


def test_the_variable(tmp_path):
    code = (
        "import torch, pliant\n"
        "from tests.reproduce import planted\n"
        "setattr(*planted.failing_lowering())\n"
        "pliant.compile(lambda x: torch.tanh(x))(torch.randn(3))\n"
    )
    (tmp_path / "program.py").write_text(code)
    directory = tmp_path / "scripts"
    result = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=environment(PLIANT_REPRO=str(directory)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert "code generation, for tanh" in result.stderr
    assert len(list(directory.glob("*.py"))) == 1
