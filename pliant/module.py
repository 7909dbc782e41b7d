"""Modules: `pliant.compile(module)` gives a module that shares everything with the original."""

from __future__ import annotations

import contextlib
import copy
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant._native import Dispatcher, calls_through


@calls_through  # without Python code of our own: this is on the way of every call
class CompiledModule(torch.nn.Module):
    """Stands for a module: its parameters, state, attributes, hooks and class are the original's.

    Calls run the compiled code. Everything else goes to the original module, reachable as
    `_orig_mod` (the name torch.compile uses, so that code that unwraps finds it). A deep copy is
    compiled as well, with the same settings; a pickle holds the original.
    """

    _orig_mod: torch.nn.Module
    _dispatcher: Dispatcher
    _compile: Callable[[torch.nn.Module], Any]

    def __init__(
        self,
        module: torch.nn.Module,
        dispatcher: Dispatcher,
        compile: Callable[[torch.nn.Module], Any],
    ) -> None:
        # No torch.nn.Module.__init__: this object has no state of its own.
        self.__dict__["_orig_mod"] = module
        self.__dict__["_dispatcher"] = dispatcher
        self.__dict__["_compile"] = compile

    def __getattribute__(self, name: str) -> Any:
        if name in OWN:
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "__dict__")["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})

    def __repr__(self) -> str:
        return f"CompiledModule({self._orig_mod!r})"

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __iter__(self) -> Any:
        return iter(self._orig_mod)  # type: ignore[call-overload]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._compile(copy.deepcopy(self._orig_mod, memo))


OWN = frozenset({"_orig_mod", "_dispatcher", "_compile", "__dict__", "__deepcopy__"})


def call_module(module: torch.nn.Module) -> types.FunctionType:
    """A function that calls a module exactly as its caller does: hooks see the same arguments.

    It knows the signature and the place of `forward`, so that guards and logs speak of arguments
    by their names.
    """

    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    forward.__qualname__ = f"{type(module).__qualname__}.forward"
    return stands_for(forward, module.forward)


def stands_for(function: Any, target: Callable[..., Any]) -> types.FunctionType:
    """Mark a function that only passes its arguments on with what it calls."""
    function.__wrapped__ = target
    with contextlib.suppress(TypeError, ValueError):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(target).parameters.values()
        function.argument_names = tuple(p.name for p in parameters if p.kind in kinds)
    made: types.FunctionType = function
    return made
