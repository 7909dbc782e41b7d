"""A script that repeats a failure: its text, and what happens when it is run.

The one idea: what is tried is the text itself. A candidate is executed as it would be written, so a
script that was found to fail here fails where it is run.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant import api
from pliant.backends.registry import backend_name
from pliant.base.errors import PliantError
from pliant.base.options import Options, config
from pliant.base.values import dataclass, replace
from pliant.driver.stance import set_stance
from pliant.reproduce.compare import difference
from pliant.reproduce.inputs import GlobalState, InputCode, copied

LEAVES = """\
def leaves(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, (torch.Tensor, int, float))]
"""
LOAD = """\
def load():
    return torch.load(Path(__file__).with_suffix(".pt"), weights_only=False)
"""
BACKWARD = """\
    outputs = [t for t in {results} if isinstance(t, torch.Tensor) and t.requires_grad]
    torch.manual_seed(1)
    torch.autograd.backward([(t * torch.rand_like(t)).sum().abs() for t in outputs])
"""


DIFFERS = "pliant computes something else than eager PyTorch."


@dataclass(frozen=True, slots=True)
class SeenFailure:
    """How pliant fails. Two are the same failure if their `kind` is."""

    kind: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Script:
    """The parts of a script. `function` is the code that defines `f`."""

    function: str
    inputs: InputCode
    settings: Mapping[str, Any]
    """The parameters of `pliant.compile`."""
    grad_enabled: bool = True
    gradients: bool = False
    """Whether gradients are compared too."""
    keywords: bool = False
    """Whether the inputs are `(args, kwargs)`, and the results anything; else a list."""
    saved: Mapping[str, Any] | None = None
    """What the code of the function loads."""

    @property
    def loaded(self) -> dict[str, Any]:
        """What lies beside the script."""
        return {**(self.saved or {}), **self.inputs.saved}

    @property
    def body(self) -> str:
        """All but the imports and the call."""
        lines = "".join(f"    {line}\n" for line in self.inputs.lines)
        if self.saved and self.keywords:  # a state that is new for each run
            lines = "    globals().update(load())\n" + lines
        inputs = (
            f"def inputs():\n    torch.manual_seed(0)\n{lines}    return {self.inputs.expression}\n"
        )
        parts = [self.function.strip("\n") + "\n", inputs]
        if self.keywords:
            parts.insert(1, LEAVES)
        return "\n\n".join([*parts, self._run()])

    def _run(self) -> str:
        call = "wrap(f)(*args, **kwargs)" if self.keywords else "wrap(f)(*args)"
        arguments = "args, kwargs" if self.keywords else "args"
        results = "leaves(results)" if self.keywords else "results"
        inputs = f"leaves(({arguments}))" if self.keywords else "args"
        text = f"def run(wrap):\n    {arguments} = inputs()\n    torch.manual_seed(0)\n"
        if self.grad_enabled:
            text += f"    results = {call}\n"
        else:
            text += f"    with torch.no_grad():\n        results = {call}\n"
        compared = f"{results}, {inputs}"
        if self.gradients:
            text += BACKWARD.format(results=results)
            parameters = " + list(f.parameters())" if "f" in (self.saved or {}) else ""
            tensors = f"[t for t in {inputs} if isinstance(t, torch.Tensor)]{parameters}"
            text += f"    gradients = [t.grad for t in {tensors}]\n"
            compared += ", gradients"
        return text + f"    return {compared}\n"

    def text(self, title: str) -> str:
        """The whole script."""
        versions = f"torch {torch.__version__}, Python {platform.python_version()}"
        header = (
            f'"""{title}\n\nWritten by pliant.repro: {versions}, {platform.machine()}.\n"""\n\n'
        )
        if self.loaded:
            header += "from pathlib import Path\n\n"
        header += "import torch\n"
        header += "from torch.utils._pytree import tree_leaves\n" if self.keywords else ""
        header += "\nimport pliant\n"
        backend = self.settings.get("backend")
        if callable(backend):
            header += f"from {backend.__module__} import {backend_name(backend)}\n"
        header += "\n\n"
        if self.loaded:
            header += LOAD + "\n\n"
        written = "".join(f", {name}={_setting(value)}" for name, value in self.settings.items())
        return (
            header + self.body + f"\n\n{_options()}"
            "expected = run(lambda f: f)\n"
            f"actual = run(lambda f: pliant.compile(f{written}))\n"
            "torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=True)\n"
        )

    def failure(self) -> SeenFailure | None:
        """Run it: how pliant fails, or None. Eager PyTorch must not (`EagerFailed`)."""
        state = GlobalState()
        try:
            with set_stance("default"):
                return self._failure()
        finally:
            state.restore()

    def _failure(self) -> SeenFailure | None:
        namespace = _namespace(self.loaded)
        exec(compile(self.body, "<pliant.repro>", "exec"), namespace)
        return compared(namespace["run"], self.settings)


class EagerFailed(Exception):
    """Eager PyTorch raises as well: there is nothing to compare with."""


def _options() -> str:
    """The options that are not the default ones. Failures are raised."""
    current, default = replace(config.snapshot(), raise_on_fallback=True), Options()
    changed = {
        item.name: getattr(current, item.name)
        for item in fields(Options)
        if getattr(current, item.name) != getattr(default, item.name)
    }
    # A function, as `guard_filter_fn`, has no text.
    return "".join(f"pliant.config.{n} = {v!r}\n" for n, v in changed.items() if not callable(v))


def _setting(value: Any) -> str:
    return backend_name(value) if callable(value) else repr(value)


def _namespace(saved: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "torch": torch,
        "tree_leaves": tree_leaves,
        "__name__": "pliant_repro",
        "load": lambda: copied(dict(saved)),
    }


def compared(run: Callable[[Any], Any], settings: Mapping[str, Any]) -> SeenFailure | None:
    """How `run(compiled)` differs from `run(eager)`; each runs on inputs of its own."""

    def eager() -> Any:
        with without_dynamo():
            return _put_back(lambda: run(lambda f: f))

    try:
        expected = eager()
    except Exception as error:
        raise EagerFailed from error
    try:
        with config.patch(raise_on_fallback=True):
            actual = _put_back(lambda: run(lambda f: api.compile(f, **settings)))
    except Exception as error:
        return failure_of(error)
    text = difference(actual, expected, eager)
    return None if text is None else SeenFailure(("differs",), f"{DIFFERS}\n{text.strip()}")


def without_dynamo() -> AbstractContextManager[Any]:
    """Run what `torch.cond` and its like are given as it stands. Called outside of a compiled
    function they use `torch.compile`, which doesn't work any more once it has met a dispatch mode:
    Dynamo then skips their frame for good, and breaks in the one below."""
    if "torch._dynamo" not in sys.modules:  # nobody has used it yet
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


def _put_back(run: Callable[[], Any]) -> Any:
    """Call it, and put modes and random generators back: the next call begins like this one."""
    state = GlobalState()
    try:
        return run()
    finally:
        state.restore()


def failure_of(error: BaseException) -> SeenFailure:
    """An exception that eager PyTorch doesn't raise."""
    cause = error.__cause__
    kind = ("raises", type(error).__name__, type(cause).__name__ if cause else "")
    text = error.what if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
    return SeenFailure(kind, text)
