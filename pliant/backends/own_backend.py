"""Backends of our own, which are given more than the contract says.

The one idea: what a capture knows of shapes, and the options of the compiled function, are
arguments here. `gm.meta` and `config` are for who calls such a backend as any other one, in
torch.compile for instance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pliant.base.options import config
from pliant.sym.frozen import shapes_of


class OwnBackend:
    """A backend `compile_with_values(gm, example_inputs, shapes, options) -> callable`."""

    def __init__(self, compile_with_values: Callable[..., Any]) -> None:
        self.compile_with_values = compile_with_values
        self.__name__ = self.__qualname__ = compile_with_values.__name__
        self.__module__ = compile_with_values.__module__
        self.__doc__ = compile_with_values.__doc__

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Any:
        return self.compile_with_values(gm, example_inputs, shapes_of(gm.meta), config.snapshot())
