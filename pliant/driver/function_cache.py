"""What a compiled function has besides its entries: its resume functions, and the shapes seen."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import field
from typing import Any
from weakref import WeakValueDictionary

from pliant._native import Dispatcher
from pliant.base.dispatch_mode import DispatchMode
from pliant.base.values import dataclass
from pliant.bytecode.continuation import ResumeFunctions
from pliant.dynamic.history import InputHistory
from pliant.stages import Compiled


@dataclass(slots=True)
class FunctionCache:
    """The compiled parts of one function: its resume functions and callbacks, each with a
    dispatcher, and what was seen of their inputs. `make` makes the dispatcher of a part."""

    make: Callable[[types.FunctionType], Dispatcher]
    resume_functions: ResumeFunctions = field(default_factory=ResumeFunctions)
    # A lambda is made anew on each call of the function around it: the first one stands for all.
    callbacks: WeakValueDictionary[tuple[types.CodeType, int], types.FunctionType] = field(
        default_factory=WeakValueDictionary
    )
    resumes: dict[tuple[Any, ...], Dispatcher] = field(default_factory=dict)
    histories: dict[Dispatcher, InputHistory] = field(default_factory=dict)
    # Of the function itself, if a call of it was run uncompiled and looked at.
    uncompiled: InputHistory | None = None

    def resume(self, function: types.FunctionType, inner: tuple[Any, ...]) -> Dispatcher:
        """The dispatcher of a resume function that calls the resume functions `inner`; the same one
        each time. `inner` is part of the key because the compiled code calls them: with others it
        is another program."""
        # Functions hash by identity, and `ResumeFunctions` returns the same one for the same place.
        key = (function, *inner)
        if key not in self.resumes:
            self.resumes[key] = self.make(function)
        return self.resumes[key]

    def callback(self, function: types.FunctionType) -> Dispatcher:
        """The dispatcher of a function that C code calls (a hook, a callback). Functions of one
        code and the same globals share it."""
        # The function that is kept keeps its globals, so their address can't be used again
        # meanwhile.
        key = (function.__code__, id(function.__globals__))
        return self.resume(self.callbacks.setdefault(key, function), ())

    def is_part(self, dispatcher: Dispatcher) -> bool:
        """Whether it is a resume function, or a callback, rather than the function itself."""
        return dispatcher in self.resumes.values()

    def history(self, dispatcher: Dispatcher) -> InputHistory:
        """What was seen of the inputs of one part, at its compilations so far. It starts as a copy
        of what an uncompiled call saw, because variables have the same names in all parts."""
        history = self.histories.get(dispatcher)
        if history is None:
            history = InputHistory() if self.uncompiled is None else copy.deepcopy(self.uncompiled)
            self.histories[dispatcher] = history
        return history

    def called_uncompiled(self, dispatcher: Dispatcher) -> InputHistory:
        """The history in which to note the inputs of a call that runs uncompiled."""
        self.uncompiled = self.history(dispatcher)
        return self.uncompiled

    def compiled(self, dispatcher: Dispatcher) -> tuple[Compiled, ...]:
        """What was compiled of the function and of its resume functions, in order."""
        parts = (dispatcher, *self.resumes.values())
        compiled = [entry.info for part in parts for entry in part.entries]
        return tuple(sorted(compiled, key=lambda compilation: compilation.index))

    def forget(self) -> None:
        """Drop the resume functions, and what was compiled of them."""
        self.histories.clear()
        self.uncompiled = None
        for dispatcher in self.resumes.values():  # code that is running may call them once more
            dispatcher.clear()
            dispatcher.mode = DispatchMode.COMPILE
        self.resumes.clear()
        self.resume_functions.clear()
        self.callbacks.clear()
