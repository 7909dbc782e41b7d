"""`tensor.untyped_storage()`, of which the graph knows the size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.library.torch.addresses import with_memory
from pliant.capture.native import method
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.storages import StorageValue
from pliant.capture.values.tensors import TensorValue
from pliant.fake.tensor import LARGE
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import FillsMemory, HasMemory
from pliant.sym.node import SYMBOLIC, from_torch

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


@method(torch._C.TensorBase, "untyped_storage")
def untyped_storage(trace: Trace, self: Value) -> Value:
    return StorageValue(with_memory(trace, self, "Tensor.untyped_storage"))


@method(torch._C.StorageBase, "nbytes", "__len__")
def nbytes(trace: Trace, self: Value) -> Value:
    if not isinstance(self, StorageValue):
        raise Break("opaque-object", "UntypedStorage.nbytes")
    fake = self.tensor.fake
    if fake.untyped_storage()._cdata in trace.graph_effects.outside:
        return _bytes_outside(trace, self.tensor)
    size = fake.untyped_storage().nbytes()
    if isinstance(size, SYMBOLIC) or size >= LARGE:
        raise Break("tensor-method", "UntypedStorage.nbytes of a tensor with symbolic sizes")
    return Const(size)


def _bytes_outside(trace: Trace, tensor: TensorValue) -> Value:
    owner = _owner(trace, tensor)
    real, source = owner.real, owner.source
    if real is None or source is None or not _is_as_it_came(trace, owner):
        raise Break("tensor-method", "UntypedStorage.nbytes")
    size = real.untyped_storage().nbytes()
    if not FillsMemory()(real):
        trace.guard(GuardKind.PREDICATE, source, HasMemory(size))
        return Const(size)
    trace.guard(GuardKind.PREDICATE, source, FillsMemory())
    count: Any = owner.fake.numel() * real.element_size()
    return trace.sizes.value(count) if isinstance(count, SYMBOLIC) else Const(count)


def _owner(trace: Trace, tensor: TensorValue) -> TensorValue:
    """The input whose memory it is."""
    if tensor.real is not None:
        return tensor
    memory = tensor.fake.untyped_storage()._cdata
    inputs: list[TensorValue] = [t for t in trace.tensors.values() if t.real is not None]
    owners = [t for t in inputs if t.fake.untyped_storage()._cdata == memory]
    if len(owners) != 1:  # it isn't known which
        raise Break("tensor-method", "UntypedStorage.nbytes of inputs that share memory")
    return owners[0]


def _is_as_it_came(trace: Trace, tensor: TensorValue) -> bool:
    """Whether the program has not resized it."""
    hint = trace.sizes.env.hint
    now = [hint(from_torch(n)) if isinstance(n, SYMBOLIC) else n for n in tensor.fake.size()]
    return tensor.real is not None and now == list(tensor.real.size())
