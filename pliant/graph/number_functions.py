"""Functions of Python on symbolic numbers.

The one idea: Python's own functions ask which number they are given, or which of two is larger;
those of PyTorch give an expression.
"""

from __future__ import annotations

import builtins
import functools
import operator
from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.sym.floats import MATH, math_call
from pliant.sym.node import SYMBOLIC, from_torch, to_torch


def _as_int(x: Any) -> Any:
    return torch.sym_ite(x, 1, 0) if isinstance(x, torch.SymBool) else torch.sym_int(x)


def _of_numbers(name: str) -> Callable[..., Any]:
    """A function of `math` for symbolic numbers, whose value the function itself would ask for."""

    def function(*args: Any) -> Any:
        env = next((arg.node.env for arg in args if isinstance(arg, SYMBOLIC)), None)
        if env is None:
            return MATH[name](*args)
        return to_torch(math_call(name, *map(from_torch, args)), env)

    return function


def _least(*args: Any) -> Any:
    return functools.reduce(torch.sym_min, args)


def _most(*args: Any) -> Any:
    return functools.reduce(torch.sym_max, args)


def _makes_tensor(function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.tensor` of a symbolic number, whose value it would ask for: a `full` instead."""

    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(data, SYMBOLIC) or args or not kwargs.keys() <= {"dtype", "device"}:
            return function(data, *args, **kwargs)
        dtype = kwargs.get("dtype") or _DTYPES[type(data)]()
        return _full((), data, dtype=dtype, device=kwargs.get("device"))

    return make


_full: Any = torch.full  # which takes symbolic numbers, though its type doesn't say so

_DTYPES: Final[dict[type, Callable[[], torch.dtype]]] = {
    torch.SymInt: lambda: torch.int64,
    torch.SymFloat: torch.get_default_dtype,
    torch.SymBool: lambda: torch.bool,
}

ON_NUMBERS: Final[dict[Any, Callable[..., Any]]] = {
    builtins.min: _least,
    builtins.max: _most,
    torch.sym_min: torch.sym_min,
    torch.sym_max: torch.sym_max,
    builtins.int: _as_int,
    builtins.float: torch.sym_float,
    builtins.complex: complex,
    builtins.pow: operator.pow,
    operator.not_: torch.sym_not,
    torch.tensor: _makes_tensor(torch.tensor),
    torch.as_tensor: _makes_tensor(torch.as_tensor),
    **{function: _of_numbers(name) for name, function in MATH.items()},
}

INSTEAD_OF_PYTHON: Final = frozenset(ON_NUMBERS.values())
