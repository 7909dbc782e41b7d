"""What is guarded of how tensors lie in memory, where an operation depends on it.

The one idea: guards on every tensor cover its sizes and strides. What else matters to few
operations is guarded when one of them is met: where a tensor begins, whether it is a view, that it
has elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.capture.value import Break, Value
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import BeginsAt, MethodGives
from pliant.guards.source import Source
from pliant.sym.cond import ge
from pliant.sym.node import from_torch

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

# Functions that count from the start of the memory, if they are given this argument.
OFFSET_AT: Final = {"as_strided": 3, "as_strided_": 3, "as_strided_scatter": 4}

CHANNELS_LAST: Final = (torch.channels_last, torch.channels_last_3d)


def guards_run_no_code(trace: Trace, tensor: TensorValue, name: str) -> None:
    """Break if a guard on the attribute would run a `__torch_function__` of the tensor's class."""
    own, default = (trace.lookup(c, "__torch_function__") for c in (tensor.cls, torch.Tensor))
    if tensor.plain and tensor.source is not None and own is not default:
        raise Break("tensor-attribute", f"{tensor.cls.__name__}.{name}")


def assume_method(trace: Trace, tensor: Value, name: str) -> None:
    """Guard the answer of a tensor's method that the guards of its tensors do not cover."""
    # Of a view made by the program it is the place of the tensor that it is a view of.
    tensors = trace.tensors.values() if name == "storage_offset" else [tensor]
    for value, real, source in _from_outside(tensors):
        guards_run_no_code(trace, value, name)
        trace.guard(GuardKind.PREDICATE, source, MethodGives(name, getattr(real, name)()))


def _from_outside(values: Iterable[Value]) -> list[tuple[TensorValue, torch.Tensor, Source]]:
    """The tensors among the values that guards can look at."""
    return [
        (value, value.real, value.source)
        for value in values
        if isinstance(value, TensorValue) and value.real is not None and value.source is not None
    ]


def assume_not_empty(trace: Trace, tensor: Value) -> None:
    """Guard that a tensor with strides made of symbolic sizes has elements: for an empty tensor
    PyTorch computes other strides (it counts a size of 0 as 1)."""
    if not isinstance(tensor, TensorValue):
        return
    env = trace.sizes.env
    sizes, strides = (
        [env.simplify(from_torch(n)) for n in numbers]
        for numbers in (tensor.fake.size(), tensor.fake.stride())
    )
    made_of = {symbol for stride in strides for symbol in stride.symbols}
    known_empty = any(size.value == 0 for size in sizes) and any(s.value == 0 for s in strides)
    relevant = [size for size in sizes if size.symbols & made_of]
    if known_empty or not all(trace.sizes.truth(size) for size in relevant):
        raise Break("unsupported", "the strides of an empty tensor")


def assume_layout(
    trace: Trace, function: Any, tensor: Value, args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Guard what the function needs of its first argument's layout."""
    if kwargs.get("memory_format") in CHANNELS_LAST:  # of an empty tensor too
        assume_not_empty(trace, tensor)
    if function in RECAST and _changes_itemsize(args, kwargs):
        assume_strides(trace, tensor)  # which have to be divisible
        _assume_start(trace, args, kwargs)


RECAST: Final = (torch.Tensor.view, torch.view_as_complex)
"""Functions that may give the elements of memory another size."""


def _assume_start(trace: Trace, args: list[Any], kwargs: dict[str, Any]) -> None:
    """Guard that memory from outside begins where an element of the new size may, or doesn't."""
    fake = args[0]
    sizes = [v.itemsize for v in (*args, *kwargs.values()) if isinstance(v, torch.dtype)]
    multiple = sizes[0] // fake.dtype.itemsize if sizes else 2  # as complex numbers
    if multiple < 2:
        return
    memory = fake.untyped_storage()._cdata
    for value, real, source in _from_outside(trace.tensors.values()):
        if value.fake.untyped_storage()._cdata == memory:
            guards_run_no_code(trace, value, "storage_offset")
            begins = BeginsAt(multiple, int(real.storage_offset()) % multiple)
            trace.guard(GuardKind.PREDICATE, source, begins)


def _changes_itemsize(args: list[Any], kwargs: dict[str, Any]) -> bool:
    named = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.dtype)]
    numbers = any(isinstance(size, int | torch.SymInt | list | tuple) for size in args[1:])
    return not numbers and all(dtype.itemsize != args[0].dtype.itemsize for dtype in named)


def assume_strides(trace: Trace, tensor: Value) -> None:
    """Guard that the strides of a result are those that its fake shows: these hold only for sizes
    of which none is 0 or 1 (unless it is so now)."""
    assume_not_empty(trace, tensor)
    if not isinstance(tensor, TensorValue) or not tensor.fake._has_symbolic_sizes_strides:
        return
    if tensor.source is not None and id(tensor.fake) not in trace.world.reshaped:
        return  # an input, whose strides are guarded
    env = trace.sizes.env
    for size in [env.simplify(from_torch(n)) for n in tensor.fake.size()]:
        if env.guard_or(ge(size, 2), True, trace.asker()):
            continue
        if env.hint(size) is None or not trace.sizes.truth(size):
            raise Break("unsupported", "strides that depend on sizes of 0 or 1")
