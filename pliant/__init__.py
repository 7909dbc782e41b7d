"""pliant: a just-in-time compiler for PyTorch programs."""

from pliant.api import compile, reset
from pliant.backends.registry import list_backends, register_backend
from pliant.base import errors
from pliant.base.events import counters
from pliant.base.logs import set_logs
from pliant.base.options import config
from pliant.capture.hatches import disable, graph_break, is_compiling

__version__ = "0.1.0"

__all__ = [
    "compile",
    "config",
    "counters",
    "disable",
    "errors",
    "graph_break",
    "is_compiling",
    "list_backends",
    "register_backend",
    "reset",
    "set_logs",
]
