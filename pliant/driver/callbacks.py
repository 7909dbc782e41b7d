"""Python functions that C code calls at a graph break, `sorted(items, key=f)`, are compiled too.

The call itself runs in Python, and what it is given to call is a stand-in that goes through pliant.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import TYPE_CHECKING, Any

from pliant.stages import ROUTED

if TYPE_CHECKING:
    from pliant.driver.pipeline import Compiler


def routed(compiler: Compiler, value: Any) -> Any:
    """An object of residual code's globals; `ROUTED` becomes the function that routes callbacks."""
    return functools.partial(_route, compiler) if value is ROUTED else value


def _route(compiler: Compiler, function: Any) -> Any:
    """The compiled stand-in for a function, or the function itself where that must not be shared
    between calls (it has a closure or defaults) or can't be captured."""
    if type(function) is not types.FunctionType or inspect.isgeneratorfunction(function):
        return function
    # Stand-ins are shared by code (`FunctionCache.callback`), and these differ between functions of
    # the same code.
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return function
    return compiler.functions.callback(function)
