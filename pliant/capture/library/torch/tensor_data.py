"""Functions that look at the values of tensors, and old ways of making tensors.

What a function would ask of the data becomes an operation where that is possible: a check of
`torch.distributions` an assertion in the graph, a comparison of whole tensors a number read from
one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import utils as distribution_utils

from pliant.base.devices import CPU
from pliant.capture.assertion_branches import note_assertion
from pliant.capture.library.python.numbers import make_float, make_int
from pliant.capture.library.torch.bodies import record_body_call
from pliant.capture.library.torch.tensor_subclasses import alias
from pliant.capture.model import call, drain, get_attribute
from pliant.capture.native import function, method
from pliant.capture.torch_calls import (
    BEFORE_WRITES,
    call_operation,
    convert,
    record,
    with_choices,
    writes_metadata,
)
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, TRUE, Break, Const, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.listed import ListMaker, tensor_list
from pliant.capture.values.tensors import TensorValue
from pliant.fake import Fake
from pliant.fake.tensor import memories

# ---- torch.distributions


@function(torch._is_all_true)
def is_all_true(trace: Trace, tensor: Value) -> Value:
    """A distribution that checks its arguments raises if they are wrong. The graph raises then, and
    the function is run again by Python, which says what it has to say."""
    result = record(trace, torch._is_all_true, torch._is_all_true, [tensor], {})
    module = trace.frames[-1].globals.get("__name__", "") if trace.frames else ""
    if not str(module).startswith("torch.distributions") or not isinstance(result, TensorValue):
        return result
    note_assertion(
        trace, trace.frames[-1], Break("data-dependent-branch", "a distribution's check")
    )
    text = "a value within the constraints of a distribution"
    trace.graph.operation(torch._assert_async, (result.node, text), {}, trace.stack(), True)
    return TRUE


LazyProperty: Any = distribution_utils._lazy_property_and_property


@function(LazyProperty)
def lazy_property(trace: Trace, wrapped: Value) -> Value:
    """What a lazy property looks like on the class: made to be looked at, not to be used."""
    getter = trace.read(wrapped)
    if not isinstance(getter, FunctionValue) or getter.real is None:
        raise Break("unsupported-class", LazyProperty.__name__)
    return Const(LazyProperty(getter.real))


# ---- numbers, by the names of their methods


@method(torch._C.TensorBase, "__int__")
def tensor_int(trace: Trace, self: Value) -> Value:
    return make_int(trace, self)


@method(torch._C.TensorBase, "__index__")
def tensor_index(trace: Trace, self: Value) -> Value:
    tensor = trace.read(self)
    if not isinstance(tensor, TensorValue):
        raise Break("bad-arguments", "Tensor.__index__")
    fake = tensor.fake
    if fake.is_floating_point() or fake.is_complex() or fake.numel() != 1:
        trace.throw(
            TypeError("only integer tensors of a single element can be converted to an index")
        )
    return make_int(trace, tensor)


@method(torch._C.TensorBase, "__float__")
def tensor_float(trace: Trace, self: Value) -> Value:
    return make_float(trace, self)


# ---- comparisons of whole tensors


@method(torch._C.TensorBase, "allclose")
@function(torch.allclose)
def allclose(trace: Trace, input: Value, other: Value, *args: Value, **kwargs: Value) -> Value:
    close = call(trace, Const(torch.isclose), [input, other, *args], kwargs)
    return _holds_everywhere(trace, close)


@method(torch._C.TensorBase, "equal")
@function(torch.equal)
def equal(trace: Trace, input: Value, other: Value) -> Value:
    tensors = [trace.read(input), trace.read(other)]
    fakes = [t.fake for t in tensors if isinstance(t, TensorValue)]
    if len(fakes) != 2 or fakes[0].dtype is not fakes[1].dtype or tensors[0] is tensors[1]:
        raise Break("data-dependent", "torch.equal")
    if fakes[0].dim() != fakes[1].dim() or tuple(fakes[0].shape) != tuple(fakes[1].shape):
        return FALSE
    return _holds_everywhere(trace, call(trace, Const(torch.eq), tensors))


def _holds_everywhere(trace: Trace, tensor: Value) -> Value:
    every = call(trace, get_attribute(trace, tensor, "all"), [])
    return call(trace, get_attribute(trace, every, "item"), [])


# ---- lists of a tensor's numbers


@method(torch._C.TensorBase, "tolist")
def tolist(trace: Trace, tensor: Value) -> Value:
    """The list, or the number of a tensor without dimensions."""
    value = trace.read(tensor)
    if not _is_listed_later(trace, value):
        return call_operation(trace, torch.Tensor.tolist, [value], {})
    assert isinstance(value, TensorValue)
    node = trace.graph.operation("tolist", (value.node,), {}, trace.stack(), False)
    maker = ListMaker(value, node)
    trace.lists.append(maker)
    return tensor_list(trace, maker)


def _is_listed_later(trace: Trace, value: Value) -> bool:
    """Whether the list is a value of its own until the program looks into it."""
    if not isinstance(value, TensorValue) or value.cls not in USUAL or not value.fake.dim():
        return False
    return type(value.fake) is Fake and trace.world.reads_numbers and not trace.graph.in_body


USUAL = (torch.Tensor, torch.nn.Parameter)


def before_write(trace: Trace, function: Any, mutated: tuple[Fake, ...]) -> None:
    """Have the graph make lists of tensors that a write changes. Of a write to an array, or to what
    a tensor looks like, it isn't known which these are."""
    written = memories(mutated)
    for maker in trace.lists:
        in_memory = maker.tensor.fake.untyped_storage()._cdata in written
        maker.is_stale |= in_memory or not written or writes_metadata(function)


BEFORE_WRITES.append(before_write)


# ---- numbers in a tensor, as arguments


@method(torch._C.TensorBase, "tensor_split")
@function(torch.tensor_split)
def tensor_split(trace: Trace, input: Value, *args: Value, **kwargs: Value) -> Value:
    """At indices that are in a tensor: as many as it has elements."""
    rest = [_as_list(trace, arg) for arg in args]
    if BY_TENSOR in kwargs:
        indices = _as_list(trace, kwargs[BY_TENSOR])
        name = "indices" if isinstance(indices, Sequence) else BY_TENSOR
        kwargs = {name if k == BY_TENSOR else k: value for k, value in kwargs.items()}
        kwargs[name] = indices
    return record(trace, torch.tensor_split, torch.tensor_split, [input, *rest], kwargs)


BY_TENSOR = "tensor_indices_or_sections"


def _as_list(trace: Trace, value: Value) -> Value:
    value = trace.read(value)
    if not isinstance(value, TensorValue):
        return value
    fake = value.fake
    if fake.dtype is not torch.int64 or fake.dim() != 1 or fake.device != CPU:
        return value  # PyTorch takes no other tensor of indices
    return call(trace, get_attribute(trace, value, "tolist"), [])


# ---- tensors of tensors, and tensors made as in the first days of PyTorch


@function(torch.tensor)
def tensor(trace: Trace, data: Value, **kwargs: Value) -> Value:
    """`torch.tensor([x.sum(), 1.0])` reads numbers from tensors when the code runs."""
    kwargs = with_choices(trace, torch.tensor, kwargs)
    if not _has_tensors(trace, data):
        return record(trace, torch.tensor, torch.tensor, [data], kwargs)
    node, fakes = convert(trace, data, "torch.tensor")
    pairs = {key: convert(trace, value, "torch.tensor") for key, value in kwargs.items()}
    options = {key: pair[1] for key, pair in pairs.items()}
    example = torch.tensor(_zeros(fakes), **options)
    return record_body_call(
        trace,
        torch.tensor,
        (node,),
        (tuple(example.shape), example.dtype, example.device, example.requires_grad),
        {key: pair[0] for key, pair in pairs.items()},
        on_fakes=_empty,
    )


def _empty(shape: Any, dtype: torch.dtype, device: torch.device, requires_grad: bool) -> Any:
    return torch.empty(shape, dtype=dtype, device=device, requires_grad=requires_grad)


def _has_tensors(trace: Trace, value: Value) -> bool:
    read = trace.read(value)
    if not isinstance(read, Sequence):
        return False
    items = [trace.read(item) for item in read.items]
    return any(isinstance(item, TensorValue) or _has_tensors(trace, item) for item in items)


def _zeros(data: Any) -> Any:
    """The same with zeros where it says so only when the code runs."""
    if isinstance(data, list | tuple):
        return [_zeros(item) for item in data]
    if isinstance(data, torch.Tensor):
        if data.numel() != 1:
            raise Break("operation-raises", "torch.tensor of tensors")
        return torch.zeros((), dtype=data.dtype)
    if isinstance(data, torch.SymInt | torch.SymFloat | torch.SymBool):
        return 0 if isinstance(data, torch.SymInt) else 0.0
    return data


LEGACY: dict[Any, torch.dtype | None] = {
    torch.Tensor: None,
    torch.FloatTensor: torch.float32,
    torch.DoubleTensor: torch.float64,
    torch.HalfTensor: torch.float16,
    torch.BFloat16Tensor: torch.bfloat16,
    torch.LongTensor: torch.int64,
    torch.IntTensor: torch.int32,
    torch.ShortTensor: torch.int16,
    torch.CharTensor: torch.int8,
    torch.ByteTensor: torch.uint8,
    torch.BoolTensor: torch.bool,
}


def _legacy(dtype: torch.dtype | None) -> Any:
    def make(trace: Trace, *args: Value) -> Value:
        """`torch.Tensor(data)` makes a tensor of the data, `torch.Tensor(2, 3)` one of that
        size."""
        kind = Const(torch.get_default_dtype() if dtype is None else dtype)
        device = Const(CPU)  # whatever the default is
        options: dict[str, Value] = {"dtype": kind, "device": device}
        first = trace.read(args[0]) if args else Sequence(tuple, [])
        if isinstance(first, Sequence) and first.cls in (list, tuple) and len(args) <= 1:
            return call(trace, Const(torch.tensor), [first], options)
        if isinstance(first, TensorValue) and dtype is None and len(args) == 1:
            return alias(trace, first)
        if isinstance(first, TensorValue | Const) and not _is_size(first):
            raise Break("unsupported-class", "torch.Tensor")
        sizes = first.items if isinstance(first, Sequence) else list(args)
        return call(trace, Const(torch.empty), [Sequence(tuple, list(sizes))], options)

    return make


def _is_size(value: Value) -> bool:
    return isinstance(value, Const) and type(value.value) is int


for _cls, _dtype in LEGACY.items():
    function(_cls)(_legacy(_dtype))


# ---- results with names


def _named_result(cls: Any) -> Any:
    def make(trace: Trace, items: Value) -> Value:
        """`torch.return_types.max((values, indices))`."""
        values = drain(trace, items)
        if len(values) != cls.n_sequence_fields:
            raise Break("bad-arguments", cls.__name__)
        return Sequence(cls, values)

    return make


for _result in {c for c in vars(torch.return_types).values() if isinstance(c, type)}:
    if issubclass(_result, tuple):
        function(_result)(_named_result(_result))
