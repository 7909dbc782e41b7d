"""The state of one function being followed: variables, stack, position. Plain data: only the
interpreter and the handlers of opcodes write to it."""

from __future__ import annotations

import builtins
import types
from typing import Any

from pliant.base.position import Position
from pliant.bytecode.decode import Decoded, Instruction, decode
from pliant.bytecode.tables import OPCODES
from pliant.capture.value import Value
from pliant.capture.values.objects import Cell


class Frame:
    """One activation of a Python function.

    `variables` are the parameters and later all local variables, `closure` the cells of the free
    variables in the order of `co_freevars`. `function` is the value that was called, if there is
    one.
    """

    __slots__ = (
        "builtins", "cells", "changes", "code", "decoded", "direct", "finished", "first_step",
        "function", "generator", "globals",
        "handled", "index", "instructions", "internal", "keyword_names", "locals", "next",
        "number", "returned", "stack", "step",
    )  # fmt: skip

    def __init__(
        self,
        code: types.CodeType,
        namespace: dict[str, Any],
        variables: dict[str, Value],
        closure: list[Cell],
        function: Value | None = None,
        direct: bool = False,
    ) -> None:
        self.code = code
        self.decoded: Decoded = decode(code)
        self.instructions = self.decoded.instructions
        self.globals = namespace
        # CPython takes either: a module in `__main__`, its dictionary elsewhere.
        self.builtins: dict[str, Any] = namespace.get("__builtins__", vars(builtins))
        if isinstance(self.builtins, types.ModuleType):
            self.builtins = vars(self.builtins)
        self.locals: dict[str, Value] = variables
        self.cells: dict[str, Cell] = dict(zip(code.co_freevars, closure, strict=True))
        self.function = function
        self.direct = direct  # what this frame returns is what its caller's instruction pushes
        self.generator = False  # advanced by next(), not run to its end by a call
        self.finished = False
        self.stack: list[Value] = []
        self.handled: list[Value] = []  # exceptions being handled, innermost last
        self.index = 0
        self.next = 0
        self.step = 0
        self.first_step = 0  # of the trace, when the frame was last entered
        self.number = 0  # among those of the trace, once it has begun
        self.changes = 0  # of the trace, when the present instruction began
        self.keyword_names: tuple[str, ...] = ()
        self.returned: Value | None = None
        # Whether this runs a Python equivalent of pliant, hidden from the user's stack.
        self.internal = str(namespace.get("__name__", "")).partition(".")[0] == "pliant"

    @property
    def instruction(self) -> Instruction:
        return self.instructions[self.index]

    @property
    def operands(self) -> int:
        """How many entries of the stack the present instruction takes."""
        ins = self.instruction
        pops = OPCODES[ins.op].pops
        return pops if isinstance(pops, int) else pops(ins.arg or 0)

    def position(self) -> Position:
        """The line of the user's program that the present instruction belongs to."""
        return self.decoded.position(self.index)
