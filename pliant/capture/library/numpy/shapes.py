"""Arrays with symbolic sizes: NumPy makes them, and computes with them element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.library.numpy.array_values import ShapedArray, checked
from pliant.capture.model import binary, compare, truth
from pliant.capture.value import Const, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.number import Number
from pliant.sym.node import SYMBOLIC, to_torch

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

Pair = Callable[[Value], tuple[Any, Any]]  # an argument for the graph, and for a trial


def make(
    trace: Trace,
    real: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    both: Pair,
    attempt: Callable[..., Any],
) -> Value | None:
    """`numpy.ones((2, n))` and its relatives; None if no size is a symbol."""
    sizes_of = MAKERS.get(real.__name__)
    if sizes_of is None or kwargs.keys() - {"dtype"}:
        return None
    args = [trace.read(arg) for arg in args]
    found = sizes_of(trace, args)
    if found is None or not any(isinstance(size, Number) for size in found[0]):
        return None
    sizes, used = found
    # NumPy would raise, or give an empty array.
    if not all(truth(trace, compare(trace, ">=", size, Const(0))) for size in sizes):
        return None
    rest = [both(arg) for arg in args[used:]]
    named = {key: both(arg) for key, arg in kwargs.items()}
    small = _with(args[:used], lambda value: 1)
    examples = {key: pair[1] for key, pair in named.items()}
    result = checked(attempt(real, [*small, *(pair[1] for pair in rest)], examples))
    nodes = (*_with(args[:used], lambda value: _node(trace, value)), *(pair[0] for pair in rest))
    named_nodes = {key: pair[0] for key, pair in named.items()}
    node = trace.graph.operation(real, nodes, named_nodes, trace.stack(), False)
    return ShapedArray(node, result.dtype, tuple(_size(trace, size) for size in sizes))


def _with(args: list[Value], change: Callable[[Value], Any]) -> list[Any]:
    return [
        tuple(map(change, arg.items)) if isinstance(arg, Sequence) else change(arg) for arg in args
    ]


def _node(trace: Trace, value: Value) -> Any:
    return trace.sizes.nodes.node(value.expr) if isinstance(value, Number) else value.constant()


def _size(trace: Trace, value: Value) -> Any:
    if isinstance(value, Number):
        return to_torch(value.expr, trace.sizes.env)
    return int(value.constant())


def _is_size(value: Value) -> bool:
    return isinstance(value, Number | Const) and value.python_type() is int


def _shape(trace: Trace, args: list[Value]) -> tuple[list[Value], int] | None:
    """The sizes, and how many arguments say them."""
    first = args[0] if args else None
    if isinstance(first, Sequence) and first.cls in (list, tuple, torch.Size):
        items = [trace.read(item) for item in first.items]
        args[0] = Sequence(tuple, items)
        return (items, 1) if all(map(_is_size, items)) else None
    return ([first], 1) if first is not None and _is_size(first) else None


def _steps(trace: Trace, args: list[Value]) -> tuple[list[Value], int] | None:
    if not all(map(_is_size, args)) or len(args) not in (1, 2):
        return None
    count = args[0] if len(args) == 1 else binary(trace, "-", args[1], args[0])
    return [count], len(args)


def _square(trace: Trace, args: list[Value]) -> tuple[list[Value], int] | None:
    return ([args[0], args[0]], 1) if len(args) == 1 and _is_size(args[0]) else None


MAKERS: dict[str, Callable[[Trace, list[Value]], tuple[list[Value], int] | None]] = {
    "ones": _shape,
    "zeros": _shape,
    "full": _shape,
    "arange": _steps,
    "eye": _square,
    "identity": _square,
}


# ---- results


def sizes_of_result(
    trace: Trace, target: Callable[..., Any] | str, args: list[Value], kwargs: dict[str, Value]
) -> tuple[Any, ...] | None:
    """The sizes of a result, which follow from symbolic ones. None: constants are needed."""
    if target is numpy.stack:
        return _stacked(trace, *args, **kwargs)
    is_ufunc = isinstance(target, numpy.ufunc) and not target.signature and target.nout == 1
    if kwargs or not (is_ufunc or target in ELEMENTWISE):
        return None
    values = [trace.read(arg) for arg in args]
    arrays = [value for value in values if not isinstance(value, Const | Number)]
    return _common(arrays)


def _common(arrays: list[Value]) -> tuple[Any, ...] | None:
    """The sizes of arrays that all have the same."""
    shaped = [array for array in arrays if isinstance(array, ShapedArray)]
    alike = {array.same_shape() for array in shaped}
    return shaped[0].sizes if len(shaped) == len(arrays) and len(alike) == 1 else None


def _stacked(
    trace: Trace, arrays: Value, axis: Value | None = None, **kwargs: Value
) -> tuple[Any, ...] | None:
    sequence = trace.read(arrays)
    if not isinstance(sequence, Sequence) or kwargs:
        return None
    sizes = _common([trace.read(item) for item in sequence.items])
    place = 0 if axis is None else trace.read(axis).constant()
    if sizes is None or type(place) is not int or not -len(sizes) - 1 <= place <= len(sizes):
        return None
    place %= len(sizes) + 1
    return (*sizes[:place], len(sequence.items), *sizes[place:])


ELEMENTWISE: frozenset[Any] = frozenset(
    {
        operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
        operator.pow, operator.neg, operator.pos, operator.abs, operator.eq, operator.ne,
        operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_,
        operator.xor, operator.invert, abs, "astype",
    }
)  # fmt: skip


def attribute(trace: Trace, array: ShapedArray, name: str) -> Value | None:
    """What is known without constants for the sizes; None of the rest."""
    if name == "shape":
        return Sequence(tuple, [size_value(trace, size) for size in array.sizes])
    if name == "size":
        total: Value = Const(1)
        for size in array.sizes:
            total = binary(trace, "*", total, size_value(trace, size))
        return total
    facts = {"ndim": len(array.sizes), "dtype": array.dtype, "itemsize": array.dtype.itemsize}
    return Const(facts[name]) if name in facts else None


def size_value(trace: Trace, size: Any) -> Value:
    return trace.sizes.value(size) if isinstance(size, SYMBOLIC) else Const(size)


def empty_like(array: ShapedArray, example: torch.Tensor) -> torch.Tensor:
    """A tensor of the array's shape with the type of the example."""
    return torch.empty(array.sizes, dtype=example.dtype, device=example.device)
