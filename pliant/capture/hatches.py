"""What a program can say to the compiler from inside: break here, am I compiled, leave this alone.

Programs written for torch.compile say the same things in PyTorch's words; those are understood too.
They are recognised by name, because pliant does not import PyTorch's compiler.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant._native import Dispatcher
from pliant.base.errors import NotCallableError
from pliant.capture.native import FUNCTIONS, Handler, function
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, TRUE, Break, Value

MARK = "_pliant_disabled"


def graph_break(msg: str = "") -> None:
    """In compiled code: end the graph here and go on in a new one. Elsewhere: nothing."""


def is_compiling() -> bool:
    """True while pliant follows the program, False when it runs uncompiled."""
    return False


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """Mark a function as one to run in plain Python, never followed (as
    `torch.compiler.disable`)."""
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, Dispatcher):
        fn = fn.fn
    if not callable(fn):
        raise NotCallableError(f"pliant.disable needs a function, and got a {type(fn).__name__}")

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(run, MARK, reason or True)
    return run


# Python code that is about something else than tensors: reading and writing files, processes,
# threads, other compilers. Following it would only find out late that it can't be captured.
NOT_FOLLOWED = (
    "torch.serialization", "torch.hub", "torch.jit", "torch._dynamo", "torch._inductor",
    "torch.onnx", "torch.utils.data", "torch.multiprocessing", "torch.autograd", "torch.package",
    "torch._functorch", "torch._higher_order_ops", "torch._library", "torch.library",
    "torch.profiler", "torch._logging", "torch.random",
    "threading", "multiprocessing", "subprocess", "pickle", "logging", "warnings", "importlib",
    "traceback", "linecache",
    "asyncio", "concurrent", "tempfile", "shutil", "socket", "unittest", "pytest", "_pytest",
)  # fmt: skip
FOLLOWED = (
    "torch.autograd.grad_mode", "torch.jit._state", "torch.autograd.profiler",
    "torch.autograd.function", "torch.random", "torch._functorch.functional_call", "torch._functorch.apis",
    "torch._higher_order_ops.associative_scan", "torch._functorch.eager_transforms", "torch._functorch.vmap", "torch._functorch.batch_norm_replacement",
)  # fmt: skip


def is_followed(fn: Any) -> bool:
    """Whether a Python function of this module is followed at all."""
    module = fn.__module__ or ""
    if not module.startswith(NOT_FOLLOWED):
        return True
    names = (name for name in NOT_FOLLOWED if module == name or module.startswith(f"{name}."))
    return not any(names) or module in FOLLOWED


def is_disabled(fn: Any) -> bool:
    return bool(getattr(fn, MARK, False) or getattr(fn, "_torchdynamo_disable", False))


@function(graph_break)
def handle_graph_break(trace: Trace, msg: Value | None = None) -> Value:
    raise Break("user", "graph_break()")


@function(
    is_compiling,
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch._utils.is_compiling,
)
def handle_is_compiling(trace: Trace) -> Value:
    return TRUE


@function(torch.compiler.is_exporting, torch.jit.is_scripting, torch.jit.is_tracing)
def handle_is_exporting(trace: Trace) -> Value:
    return FALSE


NOT_IMPORTED = ("torch._dynamo", "torch.fx.experimental")
# PyTorch's names for the same things, which are not imported here.
BY_NAME: dict[tuple[str, str], Handler] = {
    ("torch._dynamo.decorators", "graph_break"): handle_graph_break,
    ("torch._dynamo.external_utils", "is_compiling"): handle_is_compiling,
}


def handler_of(real: Any) -> Handler | None:
    """The handler of a Python function, by identity or by name."""
    found = FUNCTIONS.get(real)
    if found is None and real.__module__ is not None and real.__module__.startswith(NOT_IMPORTED):
        found = BY_NAME.get((real.__module__, real.__qualname__))
    return found
