"""Tensors of classes that the program defines: how they are made.

The graph makes a plain tensor, and residual code makes it one of the class, where it is still
needed then. A class whose tensors PyTorch treats as plain ones (a subclass of `nn.Parameter`) is
another matter: its objects can be in the graph.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import record_body_call
from pliant.capture.model import call
from pliant.capture.native import METHODS, method
from pliant.capture.torch_calls import read_attribute, record
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.tensors import TensorValue
from pliant.capture.wrap import has_torch_function

TensorBase = torch._C.TensorBase


def in_class(trace: Trace, tensor: Value, cls: Any) -> Value:
    """The same tensor, to which the program has no other reference, as one of `cls`."""
    if not isinstance(tensor, TensorValue):
        raise Break("tensor-kind", f"a new {cls.__name__}")
    if cls.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Break("tensor-kind", f"a new {cls.__name__}, which has a __torch_dispatch__")
    tensor.cls = cls
    tensor.plain = cls is not torch.Tensor
    return tensor


@method(TensorBase, "as_subclass")
def as_subclass(trace: Trace, tensor: Value, cls: Value) -> Value:
    real = trace.read(cls).constant()
    return in_class(trace, alias(trace, tensor), real)


def alias(trace: Trace, tensor: Value) -> Value:
    function = torch.ops.aten.alias.default
    level, trace.overrides.level = trace.overrides.level, 2
    try:
        return record(trace, function, function, [tensor], {})
    finally:
        trace.overrides.level = level


def _reader(name: str) -> Callable[..., Value]:
    """`super().shape` in a class that has its own."""

    def read(trace: Trace, tensor: Value) -> Value:
        if not isinstance(tensor, TensorValue):
            raise Break("unsupported-attribute", f"Tensor.{name}")
        return read_attribute(trace, tensor, name)

    return read


for _name, _descriptor in vars(TensorBase).items():
    if isinstance(_descriptor, types.GetSetDescriptorType) and (TensorBase, _name) not in METHODS:
        METHODS[TensorBase, _name] = _reader(_name)


@method(TensorBase, "__new__")
def new_tensor(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    """`Sub(data)` of a class that leaves it to `torch.Tensor`."""
    real = trace.read(cls).constant()
    first = trace.read(args[0]) if args else None
    if kwargs:
        raise Break("unsupported-class", real.__name__)
    if isinstance(first, TensorValue) and len(args) == 1:
        tensor = alias(trace, first)
    else:
        tensor = call(trace, Const(torch.Tensor), list(args))
    return in_class(trace, tensor, real) if real is not torch.Tensor else tensor


@method(type(torch.Tensor), "__init__")
def prepare_class(trace: Trace, cls: Value, *parts: Value, **keywords: Value) -> Value:
    """A class derived from `torch.Tensor` that the program makes."""
    return NONE


def new_of_class(trace: Trace, cls: Any, data: TensorValue, requires_grad: bool) -> Value:
    """`torch.Tensor._make_subclass(cls, data, requires_grad)`."""
    if has_torch_function(cls):
        if requires_grad:
            raise Break("tensor-kind", f"a new {cls.__name__} that requires gradients")
        level, trace.overrides.level = trace.overrides.level, 2
        try:
            detached = record(trace, "detach", torch.Tensor.detach, [data], {})
        finally:
            trace.overrides.level = level
        return in_class(trace, detached, cls)
    if id(cls) in trace.temporaries:
        raise Break("tensor-kind", f"a new {cls.__name__}")
    tensor = record_body_call(
        trace,
        maker_of(cls),
        (data.node, requires_grad),
        (data.fake, requires_grad),
        on_fakes=targets.leaf_like,
    )
    assert isinstance(tensor, TensorValue)
    tensor.cls = cls
    return tensor


# By the address of the class, which the function keeps.
_makers: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()


def maker_of(cls: Any) -> Callable[..., Any]:
    """The function of a graph that makes objects of a class."""
    maker = _makers.get(id(cls))
    if maker is None:

        def make(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
            return torch.Tensor._make_subclass(cls, data, requires_grad)

        make.__name__ = make.__qualname__ = f"new_{cls.__name__}"
        maker = _makers[id(cls)] = make
    return maker
