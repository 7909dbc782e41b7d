"""pliant: a just-in-time compiler for PyTorch programs."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pliant.base.builds import check_build, check_extension
from pliant.base.collection import without_collection

check_build(sys.abiflags)  # before the extension, which there is none of for other builds

with without_collection(lasting=True):
    import torch

    check_extension("pliant._native", torch.__version__)  # before all that uses it

    from torch import _check as check

    from pliant import cache, compiler
    from pliant.api import (
        compile,
        compile_module,
        explain,
        profile,
        report,
        reset,
        uncompile_module,
    )
    from pliant.backends.registry import list_backends, register_backend
    from pliant.base import errors
    from pliant.base.events import counters
    from pliant.base.logs import set_logs
    from pliant.base.options import config
    from pliant.capture.directives import (
        allow_in_graph,
        assume_constant_result,
        disable,
        error_on_graph_break,
        graph_break,
        is_compiling,
        nonstrict_trace,
        skip_frame,
        step_unsupported,
        substitute_in_graph,
    )
    from pliant.compiler import (
        disable_nested_graph_breaks,
        dont_skip_tracing,
        nested_compile_region,
        on_compile_end,
        on_compile_start,
        override_optimization_hint,
        patch_config,
        wrap_numpy,
    )
    from pliant.driver.stance import run, set_stance
    from pliant.dynamic.marks import (
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
    )
    from pliant.module import CompiledModule as OptimizedModule

if TYPE_CHECKING:
    from pliant.adoption.install import install, uninstall
    from pliant.reproduce.reproduce import repro

__version__ = "0.1.0"

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "cache",
    "check",
    "compile",
    "compile_module",
    "compiler",
    "config",
    "counters",
    "disable",
    "disable_nested_graph_breaks",
    "dont_skip_tracing",
    "error_on_graph_break",
    "errors",
    "explain",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "on_compile_end",
    "on_compile_start",
    "override_optimization_hint",
    "patch_config",
    "profile",
    "register_backend",
    "report",
    "repro",
    "reset",
    "run",
    "set_logs",
    "set_stance",
    "skip_frame",
    "step_unsupported",
    "substitute_in_graph",
    "uncompile_module",
    "uninstall",
    "wrap_numpy",
]

# What few programs use: the module is imported when the name is.
_LATE = {
    "install": "pliant.adoption.install",
    "repro": "pliant.reproduce.reproduce",
    "uninstall": "pliant.adoption.install",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_LATE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


if os.environ.get("PLIANT_INSTALL", "0") not in ("", "0"):
    __getattr__("install")()

if os.environ.get("PLIANT_DISABLE", "0") not in ("", "0"):
    set_stance("force_eager")

if os.environ.get("PLIANT_REPRO"):
    from pliant.reproduce.environment import write_failures

    write_failures(os.environ["PLIANT_REPRO"])
