"""`pliant.install()`: who calls torch.compile in this process gets pliant.

The one idea: PyTorch's compiler is asked for through a handful of functions, and each has a
stand-in here (`_STAND_INS`). While pliant is installed they stand in the places of PyTorch's. One
that somebody has kept a reference to asks again at each call: after `uninstall()` it is PyTorch's.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import torch

from pliant import api
from pliant._native import locked
from pliant.base.options import Options
from pliant.driver.stance import set_stance

# What stands for PyTorch's own code generators. None: pliant's default.
BACKENDS: Mapping[str, str | None] = {
    "inductor": None,
    "cudagraphs": None,
    "aot_eager": "eager",
    "aot_eager_decomp_partition": "eager",
}
# Parameters of torch.compile that pliant.compile has too.
SAME_MEANING = (
    "fullgraph", "dynamic", "mode", "disable", "recompile_limit", "isolate_recompiles",
)  # fmt: skip
OPTIONS = frozenset(item.name for item in fields(Options))


def settings_for(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a call of torch.compile, as those of `pliant.compile`.

    Options of PyTorch's code generator (`{"triton.cudagraphs": True}`) mean nothing to pliant's and
    are left out, for libraries pass them everywhere. Those for a backend of the user's are his.
    """
    settings = {name: parameters[name] for name in SAME_MEANING if name in parameters}
    backend = parameters.get("backend")
    if isinstance(backend, str):
        backend = BACKENDS.get(backend, backend)
    options = dict(parameters.get("options") or {})
    if backend is None or backend == "eager":
        options = {name: value for name, value in options.items() if name in OPTIONS}
    return {**settings, "backend": backend, "options": options or None}


def _compile(model: Callable[..., Any] | None = None, **parameters: Any) -> Any:
    _refuse_unknown(parameters)
    return api.compile(model, **settings_for(parameters))


def _compile_in_place(module: torch.nn.Module, **parameters: Any) -> None:
    _refuse_unknown(parameters)
    api.compile_module(module, **settings_for(parameters))


def _refuse_unknown(parameters: Mapping[str, Any]) -> None:
    """What neither torch.compile nor pliant.compile knows is misspelt."""
    known = {*inspect.signature(_originals[torch, "compile"]).parameters, *SAME_MEANING}
    for name in parameters:
        if name not in known:
            text = f"torch.compile() got an unexpected keyword argument {name!r}"
            raise TypeError(text)


def _reset() -> None:
    api.reset()
    if "torch._dynamo" in sys.modules:  # what was compiled before pliant was installed
        _originals[torch.compiler, "reset"]()


_STAND_INS: Mapping[tuple[Any, str], Callable[..., Any]] = {
    (torch, "compile"): _compile,
    (torch.nn.Module, "compile"): _compile_in_place,
    (torch.compiler, "reset"): _reset,
    (torch.compiler, "set_stance"): set_stance,
}
_originals: dict[tuple[Any, str], Any] = {
    place: getattr(owner, name) for place in _STAND_INS for owner, name in [place]
}
_installed = False
_lock = threading.Lock()


def _while_installed(place: tuple[Any, str]) -> Callable[..., Any]:
    stand_in, original = _STAND_INS[place], _originals[place]

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        return (stand_in if _installed else original)(*args, **kwargs)

    return called


_replacements = {place: _while_installed(place) for place in _STAND_INS}


class Installation:
    """What `install()` returns. As a context manager it ends with the block, and pliant is then
    installed or not as it was before."""

    def __init__(self, before: bool) -> None:
        self._before = before

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._before:
            uninstall()


def install() -> Installation:
    """Let `torch.compile`, `nn.Module.compile`, `torch.compiler.reset` and
    `torch.compiler.set_stance` be pliant's, for code that can't be changed.

    ::

        pliant.install()                # from now on
        with pliant.install(): ...      # or for a while

    What is compiled while pliant is installed stays pliant's. `PLIANT_INSTALL=1` in the environment
    installs it in every process that imports torch.

    Returns:
        A context manager, for those who want it undone.
    """
    return Installation(locked(_lock, _set, True))


def uninstall() -> None:
    """Undo `install()`: all functions are PyTorch's again."""
    locked(_lock, _set, False)


def _set(install: bool) -> bool:
    """Installed or not, from now on. Returns what it was."""
    global _installed
    before, _installed = _installed, install
    for (owner, name), replacement in _replacements.items():
        current = getattr(owner, name)
        # A function that another library has put there is not ours to remove; it calls the one that
        # was there before, which asks `_installed`.
        if install and current is _originals[owner, name]:
            setattr(owner, name, replacement)
        elif not install and current is replacement:
            setattr(owner, name, _originals[owner, name])
    return before
