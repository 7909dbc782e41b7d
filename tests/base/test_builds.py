"""Builds of Python and of the extension that pliant refuses."""

import sys
import types

import pytest
import torch

from pliant import _native
from pliant.base.builds import check_build, check_extension


def test_this_build_is_accepted():
    check_build(sys.abiflags)


@pytest.mark.parametrize("abiflags", ["t", "td"])
def test_the_free_threaded_build_is_refused(abiflags):
    with pytest.raises(ImportError, match="needs Python's global interpreter lock"):
        check_build(abiflags)


def test_the_extension_was_built_for_this_torch():
    assert _native.built_for.split("+")[0] == torch.__version__.split("+")[0]
    check_extension("pliant._native", torch.__version__)


@pytest.mark.parametrize("built_for", ["2.12.1", "2.13.0+cpu"])
def test_another_patch_release_is_accepted(built_for, monkeypatch):
    monkeypatch.setitem(sys.modules, "built", types.SimpleNamespace(built_for=built_for))
    check_extension("built", ".".join(built_for.split(".")[:2]) + ".7+cu130")


@pytest.mark.parametrize("running", ["2.12.1", "2.1.0", "3.13.0", "2.130.0"])
def test_another_minor_release_of_torch_is_refused(running, monkeypatch):
    monkeypatch.setitem(sys.modules, "built", types.SimpleNamespace(built_for="2.13.0"))
    minor = ".".join(running.split(".")[:2])
    with pytest.raises(ImportError, match=rf"built for torch 2\.13, .* \+torch{minor}, or build"):
        check_extension("built", running)


def test_an_extension_that_cannot_be_loaded(tmp_path, monkeypatch):
    """What the system says stays: a symbol that another torch lacks, a file that isn't there."""
    (tmp_path / "broken_extension.py").write_text(
        "raise ImportError('undefined symbol: _ZN5torch')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"undefined symbol: _ZN5torch\. Install the wheel"):
        check_extension("broken_extension", "2.11.0")


def test_an_extension_of_an_older_source(monkeypatch):
    monkeypatch.setitem(sys.modules, "built", types.SimpleNamespace())
    with pytest.raises(ImportError, match=r"older than its Python code\. Install the wheel"):
        check_extension("built", "2.13.0")
