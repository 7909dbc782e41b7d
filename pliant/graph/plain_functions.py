"""Which functions of Python only compute, so that running them on fakes records all they do."""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any, Final

import torch

_MODULES: Final = frozenset(
    ("torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "torch._C._special")
    + ("torch._C._fft", "torch._C._linalg", "_operator", "math", "torch.special")
    + ("torch.fft", "torch.linalg", "torch._ops", "pliant.graph.unwrapped")
)
_PLAIN: Final = frozenset(f for f in vars(operator).values() if callable(f)) | frozenset(
    (builtins.int, builtins.float, builtins.bool, builtins.min, builtins.max, builtins.abs)
    + (builtins.round, builtins.len, builtins.reversed)
    + (math.floor, math.ceil, math.trunc, torch.sym_ite)
)


def is_operation(target: Any) -> bool:
    """Whether a function only computes, so that running it on fakes records all it does."""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    try:
        if target in _PLAIN:
            return True
    except TypeError:
        return False
    name = getattr(target, "__name__", "")
    module = getattr(target, "__module__", None)
    # Methods of C types have no module: the class they belong to says what they are.
    if module is None and type(target).__name__ in _NATIVE:
        return isinstance(getattr(target, "__objclass__", None), type)
    return module in _MODULES and not name.startswith(CHANGES)


# Functions of PyTorch's that do something besides computing.
STATEFUL: Final = frozenset(("torch.random", "torch._C._autograd", "torch.autograd"))
_NATIVE: Final = ("builtin_function_or_method", "method_descriptor")
CHANGES: Final = ("set_", "_set", "manual_seed", "seed", "clear_", "autocast", "_enter")
