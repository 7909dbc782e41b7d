"""`pliant.install()`: torch.compile and its relatives are pliant's, then PyTorch's again."""

import inspect
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from torch import nn

import pliant
from pliant._native import Dispatcher
from pliant.adoption.install import settings_for
from pliant.module import CompiledModule

ROOT = Path(__file__).parents[2]
PLACES = [
    (torch, "compile"),
    (nn.Module, "compile"),
    (torch.compiler, "reset"),
    (torch.compiler, "set_stance"),
]
PYTORCH_S = [getattr(owner, name) for owner, name in PLACES]


def current():
    return [getattr(owner, name) for owner, name in PLACES]


@pytest.fixture(autouse=True)
def put_back():
    yield
    pliant.uninstall()
    assert current() == PYTORCH_S


def double(x):
    return x.sin() * 2


def test_functions_are_compiled_by_pliant():
    with pliant.install():
        compiled = torch.compile(double)
    assert isinstance(compiled, Dispatcher)
    x = torch.randn(3)
    assert torch.equal(compiled(x), double(x))
    assert pliant.counters["compilations"] == 1


def test_as_a_decorator_with_parameters():
    with pliant.install():

        @torch.compile(fullgraph=True, dynamic=True)
        def compiled(x):
            return x * x.shape[0]

    for size in (2, 3, 4):
        assert torch.equal(compiled(torch.ones(size)), torch.full((size,), float(size)))
    assert pliant.counters["compilations"] == 1


def test_modules_are_compiled_in_place():
    module = nn.Linear(3, 3)
    x = torch.randn(2, 3)
    expected = module(x)
    with pliant.install():
        assert module.compile(fullgraph=True) is None
    assert torch.equal(module(x), expected)
    assert pliant.counters["compilations"] == 1


def test_a_module_given_to_torch_compile():
    with pliant.install():
        assert isinstance(torch.compile(nn.Linear(3, 3)), CompiledModule)


def test_everything_is_put_back():
    pliant.install()
    assert all(now is not before for now, before in zip(current(), PYTORCH_S))
    pliant.uninstall()
    assert current() == PYTORCH_S
    pliant.uninstall()
    assert current() == PYTORCH_S


def test_put_back_after_an_error():
    with pytest.raises(ZeroDivisionError), pliant.install():
        1 // 0
    assert current() == PYTORCH_S


def test_a_block_inside_an_installation_does_not_end_it():
    pliant.install()
    with pliant.install():
        pass
    assert isinstance(torch.compile(double), Dispatcher)


def test_one_that_was_kept_is_pytorch_s_again():
    with pliant.install():
        kept = torch.compile
    assert kept is not torch.compile
    assert not isinstance(kept(double, backend="eager"), Dispatcher)


def test_what_another_library_put_there_stays(monkeypatch):
    pliant.install()
    inner, calls = torch.compile, []

    def theirs(*args, **kwargs):
        calls.append(args)
        return inner(*args, **kwargs)

    monkeypatch.setattr(torch, "compile", theirs)
    assert isinstance(torch.compile(double), Dispatcher)
    pliant.uninstall()
    assert torch.compile is theirs
    assert not isinstance(torch.compile(double, backend="eager"), Dispatcher)
    assert len(calls) == 2
    monkeypatch.undo()  # the fixture looks at what is there
    torch.compile = PYTORCH_S[0]


def test_reset_and_stance():
    with pliant.install():
        compiled = torch.compile(double)
        with torch.compiler.set_stance("force_eager"):
            compiled(torch.ones(2))
        assert pliant.counters["compilations"] == 0
        compiled(torch.ones(2))
        assert pliant.counters["compilations"] == 1
        torch.compiler.reset()
        assert pliant.counters["compilations"] == 0


@pytest.mark.parametrize(
    "parameters, settings",
    [
        ({}, {"backend": None}),
        ({"backend": "inductor"}, {"backend": None}),
        ({"backend": "aot_eager"}, {"backend": "eager"}),
        ({"backend": double}, {"backend": double}),
        ({"fullgraph": True, "dynamic": False}, {"fullgraph": True, "dynamic": False}),
        ({"mode": "reduce-overhead"}, {"mode": "reduce-overhead"}),
        ({"options": {"triton.cudagraphs": True}}, {"options": None}),
        ({"options": {"x": 1}, "backend": double}, {"backend": double, "options": {"x": 1}}),
        ({"recompile_limit": 3, "isolate_recompiles": True},) * 2,
        ({"name": "mine"}, {}),
    ],
)
def test_parameters(parameters, settings):
    nothing = {"backend": None, "options": None}
    assert settings_for(parameters) == nothing | settings


def test_bad_parameters_are_refused():
    with pliant.install(), pytest.raises(pliant.errors.UnknownBackendError):
        torch.compile(double, backend="no such")


def entry_points(folder):
    """As an installed pliant has them, from pyproject.toml."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "pliant_of_a_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pliant-of-a-test\nVersion: 0\n")
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


def run(folder, code, **environment):
    entry_points(folder)
    path = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("imports", ["torch", "pliant, torch", "torch, pliant"])
def test_by_the_environment(tmp_path, imports):
    code = f"import {imports}; print(type(torch.compile(lambda x: x)).__name__)"
    result = run(tmp_path, code, PLIANT_INSTALL="1")
    assert (result.stdout, result.stderr) == ("Dispatcher\n", "")


@pytest.mark.parametrize("value", ["0", ""])
def test_not_imported_where_the_environment_does_not_ask(tmp_path, value):
    code = "import sys, torch; print('pliant' in sys.modules)"
    result = run(tmp_path, code, PLIANT_INSTALL=value)
    assert (result.stdout, result.stderr) == ("False\n", "")


@pytest.mark.parametrize(("value", "compilations"), [("1", 0), ("0", 1), ("", 1)])
def test_nothing_is_compiled_where_the_environment_says_so(tmp_path, value, compilations):
    code = (
        "import pliant, torch; f = pliant.compile(lambda x: x + 1);"
        "print(f(torch.ones(())).item(), pliant.counters['compilations'])"
    )
    result = run(tmp_path, code, PLIANT_DISABLE=value)
    assert (result.stdout, result.stderr) == (f"2.0 {compilations}\n", "")


def test_pytorch_finds_the_backend(tmp_path):
    code = (
        "import torch; f = torch.compile(lambda x: x.sin() * 2, backend='pliant');"
        "f(torch.ones(3)); import pliant; print(pliant.counters['programs'])"
    )
    result = run(tmp_path, code, PLIANT_INSTALL="0")
    assert result.stdout == "1\n", result.stderr


def test_a_misspelt_parameter_is_an_error_as_with_pytorch():
    pytorchs_compile = torch.compile
    pliant.install()
    with pytest.raises(TypeError, match="unexpected keyword argument 'fulgraph'"):
        torch.compile(double, fulgraph=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'fulgraph'"):
        nn.Linear(2, 2).compile(fulgraph=True)
    own = {"name": "double"} if "name" in inspect.signature(pytorchs_compile).parameters else {}
    assert isinstance(torch.compile(double, **own), Dispatcher)  # a parameter of PyTorch's own
