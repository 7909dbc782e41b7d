"""`pliant.repro`: run a function both ways, find out which part of pliant is at fault, and write
the smallest script that shows it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pliant._native import Dispatcher
from pliant.backends.registry import backend_name, lookup
from pliant.base.errors import BackendError, InternalError, PliantError
from pliant.base.values import dataclass, replace
from pliant.driver.stance import set_stance
from pliant.module import CompiledModule
from pliant.reproduce.compare import leaves
from pliant.reproduce.graphs import RecordedGraph, Recorder
from pliant.reproduce.inputs import GlobalState, InputWriter, copied
from pliant.reproduce.minimize import (
    GraphMinimizer,
    Trial,
    resized,
    smaller_sizes,
    without_settings,
    without_values,
)
from pliant.reproduce.script import EagerFailed, Script, SeenFailure, compared
from pliant.reproduce.sources import source_of

OURS = ("llvm", "triton_interpreter")


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What `pliant.repro(f)(*args)` returns. It prints as a summary, with the script."""

    failure: str | None
    """How pliant fails; None where it does what eager PyTorch does."""
    layer: str | None = None
    """Which part of pliant is at fault."""
    path: Path | None = None
    """The script."""
    script: str | None = None
    """Its text."""
    nodes: int | None = None
    """How many nodes of the captured graph are left in it, where it is about a graph."""
    repeats: bool = True
    """Whether the script was seen to fail as the function does."""

    def __str__(self) -> str:
        if self.failure is None:
            return "pliant does what eager PyTorch does; nothing is written"
        lines = [f"at fault: {self.layer}", *self.failure.splitlines(), ""]
        if not self.repeats:
            lines.append("The script doesn't repeat it: please add what else is needed.")
        lines += [f"script: {self.path}", "", self.script or ""]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def repro(
    model: Callable[..., Any],
    *,
    path: str | os.PathLike[str] | None = None,
    seconds: float = 300.0,
    **settings: Any,
) -> Callable[..., Reproduction]:
    """Make a script of a failure or a wrong result: `print(pliant.repro(f)(*args))`.

    The function is run by eager PyTorch and compiled, on copies of the arguments, and results,
    written arguments and gradients are compared. If pliant raises where eager PyTorch doesn't, or
    computes something else, the script that repeats it is made as small as possible and written.

    Args:
        model: a function or a module, or what `compile` returned for it.
        path: the file to write, or a directory for it. The default is the current directory.
        seconds: how long to look for a smaller script.
        **settings: the parameters of `compile`.

    Returns:
        A function with the parameters of `model` that returns a `Reproduction`.

    Raises:
        PliantError: what pliant says about the function itself, such as a `GraphBreakError` under
            `fullgraph=True`.
    """
    model, settings = _original(model, settings)

    def reproduced(*args: Any, **kwargs: Any) -> Reproduction:
        program = _Program(model, args, kwargs, settings, seconds, _Reached(model))
        with _state_kept():
            return program.reproduction(Path.cwd() if path is None else Path(path))

    return reproduced


def _original(model: Any, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The function behind a compiled one, and the settings that it was compiled with, apart from
    those given in `settings`."""
    compiled = model._dispatcher if isinstance(model, CompiledModule) else model
    if isinstance(compiled, Dispatcher) and "_made_by" in vars(compiled):
        recompile, original = compiled._made_by
        if isinstance(recompile, functools.partial):
            settings = {**_used(recompile.keywords), **settings}
        return original, settings
    return model, settings


def _used(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value not in (None, False)}


@contextmanager
def _state_kept() -> Iterator[None]:
    """A context that restores at its end everything that running the function changes for
    others."""
    state = GlobalState()
    try:
        with set_stance("default"):
            yield
    except _ForUser as error:
        raise error.args[0] from None
    finally:
        state.restore()


class _Reached:
    """The tensors that a function reaches without being given them (parameters, closure, globals),
    and their values."""

    def __init__(self, model: Any) -> None:
        self.tensors = {id(t): t for value in _surroundings(model) for t in _tensors_of(value)}
        self._values = [
            (t, t.detach().clone(), t.grad, None if t.grad is None else t.grad.clone())
            for t in self.tensors.values()
        ]

    def restore(self) -> None:
        with torch.no_grad():
            for tensor, value, grad, grad_value in self._values:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
                if grad is not None and grad_value is not None:
                    grad.copy_(grad_value)
                if tensor.is_leaf:
                    tensor.grad = grad


def _surroundings(model: Any) -> Iterator[Any]:
    """The objects that a callable refers to: its receiver, the cells of its closure, global
    variables."""
    yield model
    function = getattr(model, "__func__", model)
    yield getattr(model, "__self__", None)
    code = getattr(function, "__code__", None)
    if code is not None:
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        for name in code.co_names:
            yield function.__globals__.get(name)


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, torch.Tensor):
        yield value


@dataclass(slots=True)
class _Program:
    """A function and a call of it."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    settings: dict[str, Any]
    seconds: float
    reached: _Reached

    def reproduction(self, place: Path) -> Reproduction:
        settings = self.settings
        failure, graphs = self._run(settings)
        if failure is None and settings.get("dynamic") is None:
            # As when the function has met other sizes before.
            settings = {**settings, "dynamic": True}
            failure, graphs = self._run(settings)
        if failure is None:
            return Reproduction(None)
        self.settings = settings
        trial = Trial(failure, self.seconds)
        # If the captured graph does what eager does, the backend is at fault.
        with_eager, _ = self._run({**settings, "backend": "eager"})
        if with_eager is None:
            for record in graphs:
                if (written := self._of_graph(record, trial, place)) is not None:
                    return written
        layer = "capture" if with_eager is not None else f"{self._backend()}, in this program only"
        return self._of_function(trial, layer, place)

    def _backend(self) -> str:
        return f"the backend {backend_name(lookup(self.settings.get('backend')))!r}"

    def _run(self, settings: dict[str, Any]) -> tuple[SeenFailure | None, list[RecordedGraph]]:
        """How the compiled function fails, and its graphs."""
        recorder = Recorder(settings.get("backend"))
        try:
            failure = compared(self._call, {**settings, "backend": recorder})
        except EagerFailed as error:
            raise error.__cause__ from None  # type: ignore[misc]
        return failure, recorder.graphs

    def _call(self, wrap: Callable[[Any], Any]) -> Any:
        """Results, arguments and gradients of a call on copies."""
        try:
            model, args, kwargs = self._copied()
            torch.manual_seed(0)
            results = _checked(lambda: wrap(model)(*args, **kwargs))
            outputs = [
                t for t in leaves(results) if isinstance(t, torch.Tensor) and t.requires_grad
            ]
            torch.manual_seed(1)
            # Random weights: with a plain sum all elements would get the same gradient.
            torch.autograd.backward([(t * torch.rand_like(t)).sum().abs() for t in outputs])
            inputs = [*leaves((args, kwargs)), *self.reached.tensors.values(), *_tensors_of(model)]
            tensors = [t for t in inputs if isinstance(t, torch.Tensor) and t.is_leaf]
            return copied((results, inputs, [t.grad for t in tensors]))
        finally:
            self.reached.restore()

    def _copied(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        memo: dict[Any, Any] = {}
        args, kwargs = copied((self.args, self.kwargs), memo)
        if isinstance(self.model, torch.nn.Module):
            return copied(self.model, memo), args, kwargs
        return self.model, args, kwargs

    def _of_graph(self, record: RecordedGraph, trial: Trial, place: Path) -> Reproduction | None:
        """The reproduction of a failure that a graph has by itself."""
        minimizer = GraphMinimizer(record, self.settings, torch.is_grad_enabled(), trial)
        failure = _failure_of(minimizer.whole())
        if failure is None:
            return None
        trial.failure = failure  # the error of the graph may be another one than that of a call
        minimized = minimizer.minimize()
        operators = ", ".join(dict.fromkeys(_operator(node) for node in minimized.nodes))
        of = "the gradient of " if minimized.script.gradients else ""
        name = backend_name(lookup(self.settings.get("backend")))
        part = "code generation" if failure.kind[0] == "raises" else "a kernel"
        if name not in OURS:
            part = self._backend()
        layer = f"{part}, for {of}{operators}"
        minimal = _failure_of(minimized.script) or failure
        return self._written(minimized.script, minimal, layer, place, len(minimized.nodes))

    def _of_function(self, trial: Trial, layer: str, place: Path) -> Reproduction:
        """The reproduction of a failure that depends on the function itself."""
        source = source_of(self.model)
        inputs = [list(self.args), self.kwargs]
        script = Script(
            source.text,
            InputWriter(lambda tensor: True).write(inputs),
            self.settings,
            torch.is_grad_enabled(),
            torch.is_grad_enabled(),
            keywords=True,
            saved=source.saved,
        )
        repeats = trial.fails(script)
        if repeats:
            script, all_random = without_values(trial, script, inputs)
            script = without_settings(trial, script)
            script = _with_smaller_sizes(trial, script, inputs) if all_random else script
        return self._written(script, trial.failure, layer, place, None, repeats)

    def _written(
        self,
        script: Script,
        failure: SeenFailure,
        layer: str,
        place: Path,
        nodes: int | None,
        repeats: bool = True,
    ) -> Reproduction:
        first = failure.text.splitlines()[0].replace('"""', "'''").replace("\\", "/")
        text = script.text(f"{first}\n\nAt fault: {layer}.")
        path = _file(place, getattr(self.model, "__name__", type(self.model).__name__))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if script.loaded:
            torch.save(script.loaded, path.with_suffix(".pt"))
        return Reproduction(failure.text, layer, path, text, nodes, repeats)


def _checked(call: Callable[[], Any]) -> Any:
    """The result of `call`. Errors that pliant raises about the user's program are no failures of
    pliant: they are raised to the user."""
    try:
        return call()
    except (InternalError, BackendError):
        raise
    except PliantError as error:
        raise _ForUser(error) from error


class _ForUser(BaseException):
    """Carries an error for the user past the code that looks for failures: that catches
    `Exception`."""


def _failure_of(script: Script) -> SeenFailure | None:
    try:
        return script.failure()
    except EagerFailed:
        return None


def _with_smaller_sizes(trial: Trial, script: Script, inputs: Any) -> Script:
    sizes: dict[int, int] = {}
    for size, smaller in smaller_sizes(inputs):
        if size not in sizes:
            written = InputWriter().write(resized(inputs, {**sizes, size: smaller}))
            candidate = replace(script, inputs=written)
            if trial.fails(candidate):
                script, sizes = candidate, {**sizes, size: smaller}
    return script


def _operator(node: Any) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _file(place: Path, name: str) -> Path:
    """The file to write: never one that is there already, in a directory."""
    if place.suffix == ".py":
        return place
    name = re.sub(r"\W", "_", name).strip("_") or "function"
    path, number = place / f"repro_{name}.py", 1
    while path.exists():
        number += 1
        path = place / f"repro_{name}_{number}.py"
    return path
