"""pliant: a just-in-time compiler for PyTorch programs."""

from torch import _check as check

from pliant.api import compile, explain, reset
from pliant.backends.registry import list_backends, register_backend
from pliant.base import errors
from pliant.base.events import counters
from pliant.base.logs import set_logs
from pliant.base.options import config
from pliant.capture.hatches import disable, graph_break, is_compiling
from pliant.dynamic.marks import mark_dynamic, mark_static, mark_unbacked, maybe_mark_dynamic

__version__ = "0.1.0"

__all__ = [
    "check",
    "compile",
    "config",
    "counters",
    "disable",
    "errors",
    "explain",
    "graph_break",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "register_backend",
    "reset",
    "set_logs",
]
