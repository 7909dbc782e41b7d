"""Backends by name, and the one place where a backend is called.

The one idea: every backend has torch.compile's contract, `backend(gm, example_inputs) -> callable`,
so that one written for either works with both. Names come from three places, in this order: the
table here, `register_backend`, and the entry points of installed packages (pliant's own group and
torch's).
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, overload

from pliant._native import locked
from pliant.backends.by_sizes import compile_by_sizes, may_vary
from pliant.backends.eager import eager
from pliant.base.collection import without_collection
from pliant.base.errors import (
    BackendError,
    BackendNameTakenError,
    InternalError,
    NotCallableError,
    PliantWarning,
    UnknownBackendError,
    choices,
)
from pliant.base.isolation import FATAL
from pliant.base.options import Options

Backend = Callable[..., Any]
"""`backend(gm, example_inputs) -> callable`, where `gm` is a torch.fx.GraphModule."""

B = TypeVar("B", bound=Backend)

DEFAULT = "llvm"
GROUPS = ("pliant_backends", "torch_dynamo_backends")

# Written as entry points too: a backend is imported when it is first asked for, not before.
_OWN = {
    name: EntryPoint(name, target, GROUPS[0])
    for name, target in {
        "eager": "pliant.backends.eager:eager",
        "llvm": "pliant.backends.llvm:llvm",
        "triton_interpreter": "pliant.backends.llvm:triton_interpreter",
        "inductor": "pliant.backends.inductor:inductor",
    }.items()
}
_registered: dict[str, Backend] = {}
_lock = threading.Lock()


@functools.cache
def _installed() -> dict[str, EntryPoint]:
    """Backends of installed packages. Reading them takes milliseconds: done once, if ever."""
    entries_by_name: dict[str, EntryPoint] = {}
    for group in GROUPS:
        for entry in entry_points(group=group):
            entries_by_name.setdefault(entry.name, entry)
    return entries_by_name


@overload
def register_backend(compiler_fn: B, name: str | None = None) -> B: ...
@overload
def register_backend(compiler_fn: None = None, name: str | None = None) -> Callable[[B], B]: ...
def register_backend(compiler_fn: Any = None, name: str | None = None) -> Any:
    """Make a backend known by name. It returns the backend, so that it can be a decorator::

        @pliant.register_backend
        def my_backend(gm, example_inputs):
            return gm.forward

        pliant.compile(f, backend="my_backend")

    Args:
        compiler_fn: `backend(gm, example_inputs) -> callable`, where `gm` is a
            `torch.fx.GraphModule`.
        name: how `compile` calls it, if not by its own name.

    Raises:
        BackendNameTakenError: another backend has the name, or there is none.
    """
    if compiler_fn is None:
        return functools.partial(register_backend, name=name)
    if not callable(compiler_fn):
        raise NotCallableError(
            f"{compiler_fn!r} can't be a backend",
            why="it can't be called",
            remedy="give a function `backend(gm, example_inputs) -> callable`",
        )
    # Used as a decorator, the function has given its name.
    name = name or getattr(compiler_fn, "__name__", None)
    if name is None:
        raise BackendNameTakenError(
            f"{compiler_fn!r} has no name of its own", remedy="register_backend(..., name=...)"
        )
    locked(_lock, _register, name, compiler_fn)
    return compiler_fn


def _register(name: str, backend: Backend) -> None:
    if name in _OWN or not _may_replace(_registered.get(name, backend), backend):
        raise BackendNameTakenError(
            f"there is another backend named {name!r}", remedy="register_backend(..., name=...)"
        )
    _registered[name] = backend


def _may_replace(old: Backend, new: Backend) -> bool:
    """The same definition once more, as when a notebook cell is run again, is no conflict."""
    if old is new:
        return True
    names = [
        (getattr(function, "__module__", None), getattr(function, "__qualname__", None))
        for function in (old, new)
    ]
    return names[0] == names[1] and None not in names[0]


def list_backends() -> list[str]:
    """List the names that `compile(backend=...)` knows: built in, registered, and installed."""
    return sorted({*_OWN, *_registered, *_installed()})


def lookup(backend: str | Backend | None) -> Backend:
    """The backend with this name; a function is its own backend, and None means the default one."""
    if backend is None:
        return _default(DEFAULT)
    if callable(backend):
        return backend
    if not isinstance(backend, str):
        raise NotCallableError(
            f"{backend!r} can't be a backend",
            why="it is neither the name of a backend nor a function",
            remedy="give a function `backend(gm, example_inputs) -> callable`, or a name. "
            + choices("", list_backends()),
        )
    # Our own first: their names can't be taken by others.
    entry = _OWN.get(backend)
    if entry is None:
        if backend in _registered:
            return _registered[backend]
        entry = _installed().get(backend)
    if entry is None:
        raise UnknownBackendError(
            f"there is no backend named {backend!r}", remedy=choices(backend, list_backends())
        )
    return _load(entry)


@functools.cache
def _default(name: str) -> Backend:
    """The default backend. Without what it needs graphs run as they are; one warning says so."""
    try:
        return lookup(name)
    except BackendError as error:
        message = f"pliant generates no code: {error.what}, because {error.why}"
        warnings.warn(f"{message}. Graphs run with PyTorch.", PliantWarning, stacklevel=4)
        return lookup("eager")


@without_collection()
def _load(entry: EntryPoint) -> Backend:
    try:
        backend: Backend = entry.load()
    except FATAL:
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {entry.name!r} could not be loaded",
            why=f"importing {entry.value} raised {type(error).__name__}: {error}",
        ) from error
    return backend


def is_own(backend: Backend) -> bool:
    """Whether pliant's code generator compiles the graphs, so that no dead code is left."""
    return hasattr(backend, "compile_with_values")


def keeps_graph(backend: Backend) -> bool:
    """Whether a backend leaves the graph that it is given as it is. Others may change it."""
    return is_own(backend) or backend is eager


def backend_name(backend: Backend) -> str:
    """What to call a backend in a message."""
    name = getattr(backend, "__name__", None)
    if name is None and isinstance(backend, functools.partial):
        return backend_name(backend.func)
    return name or type(backend).__name__


def accepts(backend: Backend, parameter: str) -> bool:
    """Whether a backend takes `mode=` or `options=`, which torch.compile passes on."""
    try:
        parameters = inspect.signature(backend).parameters
    except (TypeError, ValueError):  # a builtin that doesn't say
        return False
    # A backend with `**kwargs` takes everything.
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return takes_any or parameter in parameters


def with_options(
    backend: Backend, mode: str | None = None, options: Mapping[str, Any] | None = None
) -> Backend:
    """`backend` with the `mode` and the `options` of a compile(), as far as it takes them."""
    # As in torch.compile, a mode that isn't asked for isn't passed.
    asked_for = {"mode": mode if mode != "default" else None, "options": options}
    passed = {name: value for name, value in asked_for.items() if value and accepts(backend, name)}
    return functools.partial(backend, **passed) if passed else backend


def call_backend(
    backend: Backend,
    gm: Any,
    example_inputs: Sequence[Any],
    shapes: Any = None,
    options: Options | None = None,
) -> Callable[..., Any]:
    """Compile a graph. A backend of our own (`own_backend`) is also given what the capture knows of
    `shapes`, and the options of the function. Whatever goes wrong in the backend is a
    `BackendError`, or an `InternalError` if it is our own."""
    name = backend_name(backend)
    try:
        # Three kinds: our own, with all that capture knows; others for a graph with symbols;
        # others.
        with_values = getattr(backend, "compile_with_values", None)
        if with_values is not None and options is not None:
            compiled = with_values(gm, list(example_inputs), shapes, options)
        elif backend is not eager and may_vary(shapes, example_inputs):
            compiled = compile_by_sizes(backend, gm, list(example_inputs))
        else:
            compiled = backend(gm, list(example_inputs))
    except (InternalError, *FATAL):
        raise
    except Exception as error:
        raise BackendError(
            f"the backend {name!r} failed",
            why=f"it raised {type(error).__name__}: {error}",
            remedy='backend="eager" runs the same graph without it',
        ) from error
    if not callable(compiled):
        raise BackendError(
            f"the backend {name!r} returned something that can't be called",
            why=f"a backend returns a function that runs the graph; this one returned {compiled!r}",
            remedy="return gm.forward from it, to begin with",
        )
    return compiled
