"""Modules: `pliant.compile(module)` gives a module that shares everything with the original."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from pliant._native import Dispatcher


class CompiledModule(torch.nn.Module):
    """Stands for a module: its parameters, state, attributes and hooks are those of the original.

    Calls run the compiled code. Everything else goes to the original module, reachable as
    `_orig_mod` (the name torch.compile uses, so that code that unwraps finds it).
    """

    _orig_mod: torch.nn.Module
    _dispatcher: Dispatcher

    def __init__(self, module: torch.nn.Module, dispatcher: Dispatcher) -> None:
        # No torch.nn.Module.__init__: this object has no state of its own.
        self.__dict__["_orig_mod"] = module
        self.__dict__["_dispatcher"] = dispatcher

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._dispatcher(self._orig_mod, *args, **kwargs)

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

    def __reduce__(self) -> Any:
        return self._orig_mod.__reduce_ex__(4)


OWN = frozenset({"_orig_mod", "_dispatcher", "__class__", "__dict__"})


def call_module(module: torch.nn.Module) -> types.FunctionType:
    """A function that calls a module with the parameters of its `forward`, so that guards and
    residual code speak of them by name, and hooks run as in eager."""
    try:
        signature = inspect.signature(type(module).forward)
        parameters = list(signature.parameters.values())
    except (TypeError, ValueError):
        parameters = []
    if "forward" in vars(module) or not parameters or parameters[0].kind > 1:
        parameters = list(inspect.signature(_any_call).parameters.values())
    return _make_caller(module, parameters)


def _any_call(self: Any, *args: Any, **kwargs: Any) -> Any: ...


def _make_caller(
    module: torch.nn.Module, parameters: list[inspect.Parameter]
) -> types.FunctionType:
    scope: dict[str, Any] = {"__name__": type(module).__module__}
    declared, passed = [], []
    star = False
    for index, parameter in enumerate(parameters):
        name, kind = parameter.name, parameter.kind
        if kind is parameter.VAR_POSITIONAL:
            declared.append(f"*{name}")
            passed.append(f"*{name}")
            star = True
        elif kind is parameter.VAR_KEYWORD:
            declared.append(f"**{name}")
            passed.append(f"**{name}")
        else:
            if kind is parameter.KEYWORD_ONLY and not star:
                declared.append("*")
                star = True
            default = ""
            if parameter.default is not parameter.empty:
                scope[f"default_{index}"] = parameter.default
                default = f"=default_{index}"
            declared.append(f"{name}{default}")
            passed.append(f"{name}={name}" if kind is parameter.KEYWORD_ONLY else name)
    receiver, *rest = passed
    source = f"def forward({', '.join(declared)}):\n    return {receiver}({', '.join(rest)})\n"
    exec(compile(source, f"<pliant call of {type(module).__name__}>", "exec"), scope)
    function: types.FunctionType = scope["forward"]
    function.__qualname__ = f"{type(module).__qualname__}.forward"
    return function
