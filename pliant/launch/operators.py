"""What PyTorch runs between kernels, as the launcher calls it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.graph.extern import ExternOperator, TensorArgument
from pliant.graph.ir import InputObject
from pliant.loop.define import Definition
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """A part of the memory of a definition, as a tensor."""

    of: Definition
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr
    dtype: torch.dtype
    written: bool = False  # by an operator: a tensor with a version counter of its own


@dataclass(frozen=True, slots=True, eq=False)
class OperatorCall:
    """An operator of PyTorch with its schema's arguments in order: a `TensorView` for each tensor,
    expressions for symbolic numbers, lists of these, or constants."""

    name: str
    overload: str
    args: tuple[Any, ...]
    python: Callable[..., Any] | None = None  # to be called instead


def constant_call(real: torch.Tensor, returned: bool) -> OperatorCall:
    """The call that gives a constant tensor: itself, or a copy if it is returned."""
    if returned:
        # A copy for each call: the caller may write to what he gets.
        return OperatorCall("aten::clone", "", (real, None))
    return OperatorCall("constant", "", (), lambda: real)


def operator_call(extern: ExternOperator) -> OperatorCall:
    """The call with its arguments in the order of the schema."""
    # Such functions take all by position (`call_by_position`).
    if not isinstance(extern.node.func, torch._ops.OpOverload):
        args = tuple(map(_argument, (*extern.args, *extern.kwargs.values())))
        return OperatorCall(extern.node.name, "", args, extern.func or extern.node.func)
    schema = extern.node.func._schema
    # The launcher calls operators by their schema, without keywords.
    ordered: list[Any] = []
    python = None  # only Python's way of calling makes tensors of numbers, and has other objects
    for place, argument in enumerate(schema.arguments):
        if place < len(extern.args):
            value = extern.args[place]
        elif argument.name in extern.kwargs:
            value = extern.kwargs[argument.name]
        else:
            value = argument.default_value
        ordered.append(_argument(value))
        of_number = str(argument.type) == "Tensor" and isinstance(ordered[-1], _NOT_TENSORS)
        if of_number or isinstance(ordered[-1], InputObject):
            python = partial(_without_grad, extern.node.func, schema)
    return OperatorCall(schema.name, schema.overload_name, tuple(ordered), python)


_NOT_TENSORS: Final = (int, float, complex, Expr, FloatExpr, Cond, type(None))


def _without_grad(func: Any, schema: Any, *args: Any) -> Any:
    """Call an operator from Python with the arguments of its schema in order."""
    named = {a.name: v for a, v in zip(schema.arguments, args) if a.kwarg_only}
    with torch.no_grad(), torch._C._DisableAutocast():
        return func(*args[: len(args) - len(named)], **named)


def _argument(value: Any) -> Any:
    if isinstance(value, TensorArgument):
        memory = value.memory
        layout = (value.sizes, memory.strides, memory.offset)
        return TensorView(memory.of, *layout, value.dtype, value.written)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_argument, value))
    return value
