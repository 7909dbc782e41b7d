"""Functions of the program that PyTorch calls later, or out of sight: hooks, autograd functions.

Two questions are answered here. Can the graph hold the function itself, so that it reads what there
is to read when it is called? And does the program have writes that residual code has still to make
to something that such a function reads, so that it would read what was there before?
"""

from __future__ import annotations

import dis
import types
from typing import Any

from torch import fx

from pliant.bytecode.tables import BACKWARD_JUMPS, Role, opcodes_with
from pliant.capture.frame import Frame
from pliant.capture.library.torch.custom_functions import either
from pliant.capture.trace import Trace
from pliant.capture.value import Const, Value, is_constant
from pliant.capture.values.functions import BoundMethod, FunctionValue
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Cell, Instance
from pliant.capture.values.tensors import TensorValue
from pliant.guards.source import Fixed, Local, Source

WRITES_CELL = opcodes_with(Role.WRITES_CELL)
WRITES = WRITES_CELL | opcodes_with(Role.WRITES_OBJECT | Role.WRITES_GLOBAL)
LOADS = opcodes_with(Role.LOADS_GLOBAL | Role.LOADS_NAME)
MUTATORS = frozenset({"append", "extend", "add", "update", "insert", "item", "tolist", "print"})
UNCHANGING = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


def function_itself(trace: Trace, value: Value) -> fx.Node | None:
    """A node for the function object; None if it is another one on each call."""
    callback = trace.read(value)
    if isinstance(callback, FunctionValue) and callback.real is None:
        function_object = _fixed_function(callback)
        return (
            None if function_object is None else trace.graph.attribute("function", function_object)
        )
    owner = trace.read(callback.obj) if isinstance(callback, BoundMethod) else callback
    if not isinstance(owner, FunctionValue | Instance) or owner.source is None:
        return None
    if isinstance(callback, FunctionValue) and isinstance(_root(owner.source), Local):
        assert callback.real is not None and callback.source is not None
        return trace.graph.input(callback.source, callback.real)  # type: ignore[arg-type]
    return either(trace, callback, "a function that PyTorch calls")[0]


def _root(source: Source) -> Source:
    while source.parent is not None:
        source = source.parent
    return source


def _fixed_function(value: FunctionValue) -> types.FunctionType | None:
    """The function as a real object, if all of its parts are the same on each call; otherwise
    None."""
    cells, defaults = value.cells or [], value.defaults or []
    fixed = all(cell.real is not None and isinstance(cell.source, Fixed) for cell in cells)
    keywords = value.kwdefaults or {}
    plain = all(isinstance(v, Const) for v in [*defaults, *keywords.values()])
    if not fixed or not plain or value.own or value.attributes is not None:
        return None
    closure = tuple(cell.real for cell in cells)
    default_values = tuple(default.constant() for default in defaults)
    function_object = types.FunctionType(
        value.code, value.globals, value.name, default_values or None, closure
    )
    function_object.__kwdefaults__ = {key: v.constant() for key, v in keywords.items()} or None
    return function_object


def only_computes(value: Value) -> bool:
    """Whether a function reads nothing that may change, and has no instruction or method call that
    looks like a write."""
    if not isinstance(value, FunctionValue) or value.code.co_freevars:
        return False
    return _is_closed(value.code, value.globals)


def _is_closed(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    for ins in dis.get_instructions(code):
        if ins.opname in WRITES or ins.argval == "print":
            return False
        if ins.opname in LOADS:
            value = namespace.get(ins.argval, print)
            if not isinstance(value, UNCHANGING):
                return False
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return MUTATORS.isdisjoint(code.co_names) and all(_is_closed(c, namespace) for c in inner)


def keeps_its_variables(trace: Trace, value: Value) -> bool:
    """Whether the variables that a function of the program closes over are assigned no more: it may
    be called later."""
    callback = trace.read(value)
    if not isinstance(callback, FunctionValue):
        return is_constant(callback) or not isinstance(callback, Instance)
    cells = callback.closure(trace)
    return all(_stays(trace, cell) for cell in cells)


def _stays(trace: Trace, cell: Cell) -> bool:
    held = None if cell.contents is None else trace.read(cell.contents)
    if not isinstance(held, TensorValue | Const | Number | FunctionValue):
        return False
    if isinstance(held, FunctionValue) and not keeps_its_variables(trace, held):
        return False
    for frame in trace.frames:
        for name, own in frame.cells.items():
            if own is cell and _is_stored_later(frame, name):
                return False
    return True


def _is_stored_later(frame: Frame, name: str) -> bool:
    """Whether the frame assigns the variable after the present instruction, or again in a loop."""
    stores = [i.index for i in frame.instructions if i.op in WRITES_CELL and i.value == name]
    if any(index > frame.index for index in stores):
        return True
    jumps = [i for i in frame.instructions[frame.index :] if i.op in BACKWARD_JUMPS]
    return any(jump.value <= index for jump in jumps for index in stores)


def is_leaf(value: TensorValue) -> bool:
    return value.fake.is_leaf and (value.real is None or value.real.is_leaf)
