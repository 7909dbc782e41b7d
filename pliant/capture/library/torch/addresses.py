"""`Tensor.data_ptr()`: where a tensor lies in memory, as far as programs compare it.

The one idea: the number is another one on each call, but whether two are equal follows from how the
tensors were made. Any other use is left to Python, which asks the tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.model import OPERATE
from pliant.capture.native import method
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value, boolean
from pliant.capture.values.tensors import TensorValue
from pliant.fake import Fake
from pliant.sym.cond import and_, eq, ge
from pliant.sym.node import from_torch

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class Address(Value):
    """The address of the first element of a tensor; of a tensor without elements it is 0."""

    __slots__ = ("count", "offset", "storage", "tensor")

    def __init__(self, tensor: TensorValue) -> None:
        super().__init__(None)
        fake = tensor.fake
        self.tensor = tensor
        self.storage = fake.untyped_storage()
        self.offset = from_torch(fake.storage_offset()) * fake.element_size()
        self.count = from_torch(fake.numel())

    @property
    def memory(self) -> int:
        return self.storage._cdata

    def python_type(self) -> type:
        return int

    def children(self) -> list[Value]:
        return [self.tensor]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.expression(self.tensor)}.data_ptr()"


@method(torch._C.TensorBase, "data_ptr")
def data_ptr(trace: Trace, self: Value) -> Value:
    return Address(with_memory(trace, self, "Tensor.data_ptr"))


def with_memory(trace: Trace, value: Value, what: str) -> TensorValue:
    """The tensor, if the fake of it stands for memory of its own; else a break, at `what`."""
    tensor = trace.read(value)
    if not isinstance(tensor, TensorValue) or type(tensor.fake) is not Fake or tensor.plain:
        raise Break("tensor-method", what)
    return tensor


def compare(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """`==` and `!=` of two addresses."""
    left, right = operands if len(operands) == 2 else (None, None)
    if real not in COMPARISONS or not (isinstance(left, Address) and isinstance(right, Address)):
        raise Break("tensor-method", "a calculation with Tensor.data_ptr")
    return boolean(_are_equal(trace, left, right) is COMPARISONS[real])


COMPARISONS = {operator.eq: True, operator.ne: False}


def _are_equal(trace: Trace, left: Address, right: Address) -> bool:
    if left.memory != right.memory:
        if trace.graph_effects.outside.issuperset((left.memory, right.memory)):
            # Nothing is assumed of memory that inputs share.
            raise Break("tensor-method", "Tensor.data_ptr of two inputs")
        return not any(trace.sizes.truth(ge(address.count, 1)) for address in (left, right))
    if _owners(trace, left) > 1:
        raise Break("tensor-method", "Tensor.data_ptr of inputs that share memory")
    same_place = eq(left.offset, right.offset)
    if trace.sizes.env.known(and_(same_place, eq(left.count, right.count))):
        return True  # without elements as well
    filled = [trace.sizes.truth(ge(address.count, 1)) for address in (left, right)]
    return trace.sizes.truth(same_place) if all(filled) else not any(filled)


def _owners(trace: Trace, address: Address) -> int:
    """How many tensors from outside lie in this memory."""
    fakes = [tensor.fake for tensor in trace.tensors.values() if tensor.real is not None]
    return sum(fake.untyped_storage()._cdata == address.memory for fake in fakes)


OPERATE[Address] = compare
