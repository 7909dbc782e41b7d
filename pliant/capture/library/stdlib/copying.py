"""`copy.copy` and `copy.deepcopy` on values.

Both follow Python's rules: immutable objects are themselves, a `__copy__` or `__deepcopy__` written
in Python is followed, containers and plain instances are copied member by member.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import is_python_class
from pliant.capture.library.python.iteration import tee_copy
from pliant.capture.library.python.objects import Namespace
from pliant.capture.library.python.sequences import run_real
from pliant.capture.library.torch.backward import assume_leaves
from pliant.capture.library.torch.callbacks import is_leaf
from pliant.capture.model import call, call_special
from pliant.capture.native import function
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.combinators import Tee
from pliant.capture.values.containers import Mapping, Sequence, SetValue, instance_dict
from pliant.capture.values.functions import BoundMethod, BuiltinMethod, FunctionValue, Partial
from pliant.capture.values.iterators import SequenceIterator
from pliant.capture.values.number import Number
from pliant.capture.values.objects import ExceptionValue, Instance, SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.source import Attr

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

# What copying an object would ask, and where only the answers of `object` are known here.
PICKLING = ("__reduce_ex__", "__reduce__", "__getnewargs_ex__", "__getnewargs__")


class Memo(Mapping):
    """The dictionary that `deepcopy` hands down: which objects have been copied already."""

    __slots__ = ("copies", "memories")

    def __init__(self) -> None:
        super().__init__(dict)
        self.memories: set[int] = set()  # of the tensors copied
        self.copies: dict[int, tuple[Value, Value]] = {}


@function(copy.copy)
def shallow_copy(trace: Trace, x: Value) -> Value:
    x = trace.read(x)
    custom = _python_method(trace, x, "__copy__")
    if custom is not None:
        return call(trace, custom, [x])
    return _duplicate(trace, x, None)


@function(copy.deepcopy)
def deep_copy(trace: Trace, x: Value, memo: Value = NONE) -> Value:
    memo = trace.read(memo)
    if not isinstance(memo, Memo):
        if not (isinstance(memo, Const) and memo.value is None):
            raise Break("unsupported", "copy.deepcopy with a memo of the caller's")
        memo = Memo()
    return _deep(trace, x, memo)


def _deep(trace: Trace, x: Value, memo: Memo) -> Value:
    x = trace.read(x)
    if id(x) in memo.copies:
        return memo.copies[id(x)][1]
    custom = _python_method(trace, x, "__deepcopy__")
    if custom is not None:
        duplicate = trace.read(call(trace, custom, [x, memo]))
    else:
        duplicate = _duplicate(trace, x, memo)
    memo.copies[id(x)] = (x, duplicate)
    return duplicate


def _python_method(trace: Trace, x: Value, name: str) -> Value | None:
    cls = x.python_type()
    if isinstance(x, TensorValue) or issubclass(cls, type):
        return None
    method = trace.lookup(cls, name)
    return trace.class_value(cls, name) if isinstance(method, types.FunctionType) else None


def _duplicate(trace: Trace, x: Value, memo: Memo | None) -> Value:
    """A copy of `x`, whose members are themselves (memo is None) or copies."""
    if isinstance(x, TensorValue):
        return _copy_tensor(trace, x, memo)
    if isinstance(x, Const) and not is_python_class(type(x.value)):
        run_real(trace, copy.copy, x.value)  # raises, if there can be no copy
    if isinstance(x, Const | Number | FunctionValue | BuiltinMethod | SliceValue):
        return x
    copier = COPIERS.get(type(x))
    if copier is None and isinstance(x, Instance):
        copier = _copy_instance
    if copier is None:
        raise Break("unsupported", f"a copy of a {x.python_type().__name__}")
    return copier(trace, x, memo)


def _copy_tensor(trace: Trace, x: TensorValue, memo: Memo | None) -> Value:
    """A copy of a tensor is a leaf in the same memory. A deep copy copies its memory: a clone,
    where no other copied tensor shares it."""
    fake = x.fake
    plain = x.cls in (torch.Tensor, torch.nn.Parameter) and not x.slots
    plain = plain and (x.attributes is None or not x.attributes.read_all(trace))
    if x.real is not None:
        plain = plain and not vars(x.real)
    if not plain:
        raise Break("tensor-method", "a copy of this tensor")
    if memo is None:
        return _leaf_of(trace, x, call(trace, Const(torch.Tensor.detach), [x]))
    # Of a parameter PyTorch does not copy the gradient.
    if x.cls is torch.Tensor and x.source is not None:
        if x.real is not None and x.real.is_leaf and x.real.grad is not None:
            raise Break("tensor-method", "a copy of a tensor with a gradient")
        if fake.requires_grad:
            trace.guard(GuardKind.IS, Attr(x.source, "grad"), None)
    if fake.requires_grad:
        if not is_leaf(x):
            raise Break("operation-raises", "a deep copy of a tensor that is no leaf")
        assume_leaves(trace, [x])
    if not fake.is_contiguous() or fake.storage_offset() != 0:
        raise Break("tensor-method", "a deep copy of a part of a tensor")
    memory = fake.untyped_storage()._cdata
    if memory in memo.memories:
        raise Break("tensor-method", "a deep copy of tensors that share memory")
    memo.memories.add(memory)
    if len(memo.memories) > 1:
        trace.writes_tensors = True  # it matters from now on which inputs share memory
    return _leaf_like(trace, x)


def _leaf_like(trace: Trace, x: TensorValue) -> Value:
    """A tensor of the same class with the same elements, which requires gradients if this does."""
    if x.cls is torch.Tensor and not x.fake.requires_grad:
        return call(trace, Const(torch.Tensor.clone), [x])
    elements = call(trace, Const(torch.Tensor.detach), [x])
    return _leaf_of(trace, x, call(trace, Const(torch.Tensor.clone), [elements]))


def _leaf_of(trace: Trace, x: TensorValue, elements: Value) -> Value:
    if x.cls is torch.nn.Parameter:
        return call(trace, Const(x.cls), [elements, Const(x.fake.requires_grad)])
    if not x.fake.requires_grad:
        return elements
    return call(trace, Const(torch.Tensor.requires_grad_), [elements])


def _member(trace: Trace, x: Value, memo: Memo | None) -> Value:
    return x if memo is None else _deep(trace, x, memo)


def _copy_sequence(trace: Trace, x: Sequence, memo: Memo | None) -> Value:
    if x.immutable:
        if memo is None:
            return x
        items = [_deep(trace, item, memo) for item in x.items]
        unchanged = all(new is trace.read(old) for new, old in zip(items, x.items, strict=True))
        return x if unchanged else Sequence(x.cls, items)
    duplicate = Sequence(x.cls, [], maxlen=x.maxlen)
    if memo is not None:
        memo.copies[id(x)] = (x, duplicate)
    _copy_attributes(trace, x, duplicate, memo)
    duplicate.items.extend(_member(trace, item, memo) for item in x.items)
    return duplicate


def _copy_mapping(trace: Trace, x: Mapping, memo: Memo | None) -> Value:
    duplicate = Mapping(x.cls)
    if memo is not None:
        memo.copies[id(x)] = (x, duplicate)
    duplicate.factory = x.factory
    _copy_attributes(trace, x, duplicate, memo)
    for key, value in x.read_all(trace).items():
        duplicate.store(trace, key, _member(trace, value, memo))
    return duplicate


def _copy_set(trace: Trace, x: SetValue, memo: Memo | None) -> Value:
    if memo is not None and not all(isinstance(item, Const) for item in x.elements()):
        raise Break("unsupported", "a deep copy of a set of objects")
    return x if issubclass(x.cls, frozenset) else SetValue(x.cls, set(x.items))


def _copy_attributes(trace: Trace, x: Any, duplicate: Any, memo: Memo | None) -> None:
    if x.attributes is not None or hasattr(getattr(x, "real", None), "__dict__"):
        for name, value in instance_dict(trace, x).read_all(trace).items():
            instance_dict(trace, duplicate).store(trace, name, _member(trace, value, memo))


def _copy_bound(trace: Trace, x: BoundMethod, memo: Memo | None) -> Value:
    return x if memo is None else BoundMethod(x.function, _deep(trace, x.obj, memo))


def _copy_partial(trace: Trace, x: Partial, memo: Memo | None) -> Value:
    args = [_member(trace, arg, memo) for arg in x.args]
    keywords = {name: _member(trace, arg, memo) for name, arg in x.keywords.items()}
    duplicate = Partial(x.cls, _member(trace, x.function, memo), args, keywords)
    if x.cls is not functools.partial:
        raise Break("unsupported", f"a copy of a {x.cls.__name__}")
    _copy_attributes(trace, x, duplicate, memo)
    return duplicate


def _copy_instance(trace: Trace, x: Instance, memo: Memo | None) -> Value:
    """A new object without `__init__`, then its state: what `object.__reduce_ex__` prescribes."""
    cls = x.cls
    if memo is None and isinstance(trace.lookup(cls, "__reduce__"), types.FunctionType):
        return _reduced(trace, x)
    if isinstance(x, ExceptionValue) and getattr(cls, "__reduce__", None) is EXCEPTION_REDUCE:
        return _copy_exception(trace, x, memo)
    for name in PICKLING if cls is not types.SimpleNamespace else ():
        if trace.lookup(cls, name) not in (MISSING, vars(object).get(name)):
            raise Break("unsupported", f"a copy of a {cls.__name__}, which has {name}")
    if isinstance(x, ExceptionValue):
        raise Break("unsupported", "a copy of an exception")
    duplicate = Namespace(cls) if cls is types.SimpleNamespace else type(x)(cls)
    if memo is not None:
        memo.copies[id(x)] = (x, duplicate)
    state = _state(trace, x)
    if trace.lookup(cls, "__setstate__") is not MISSING:
        call_special(trace, duplicate, "__setstate__", _member(trace, state, memo))
        return duplicate
    if not isinstance(state, Mapping):
        raise Break("unsupported", f"a copy of a {cls.__name__}, which has __getstate__")
    for name, value in state.read_all(trace).items():
        instance_dict(trace, duplicate).store(trace, name, _member(trace, value, memo))
    for name in _slot_names(cls):
        slot = x.slot(trace, name)
        if slot is not None:
            duplicate.store_slot(trace, name, _member(trace, slot, memo))
    return duplicate


EXCEPTION_REDUCE: Any = BaseException.__reduce__


def _copy_exception(trace: Trace, x: ExceptionValue, memo: Memo | None) -> Value:
    """The class is called with the arguments; other attributes follow."""
    duplicate = call(trace, Const(x.cls), [_member(trace, arg, memo) for arg in x.args])
    _copy_attributes(trace, x, trace.read(duplicate), memo)
    return trace.read(duplicate)


def _reduced(trace: Trace, x: Instance) -> Value:
    """A shallow copy as the class itself prescribes it; the rest is Python code."""
    parts = trace.read(call_special(trace, x, "__reduce__") or NONE)
    if not isinstance(parts, Sequence):
        return x
    rest = [x, NONE, *parts.items]
    return trace.read(call(trace, trace.wrap_pinned(copy._reconstruct), rest))  # type: ignore[attr-defined]


def _state(trace: Trace, x: Instance) -> Value:
    custom = trace.lookup(x.cls, "__getstate__")
    if custom is not MISSING and custom is not vars(object).get("__getstate__"):
        return trace.read(call_special(trace, x, "__getstate__") or NONE)
    state = Mapping(dict)
    if x.has_dict:
        for name, value in instance_dict(trace, x).read_all(trace).items():
            state.items[name] = value
    return state


def _slot_names(cls: type) -> list[str]:
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.extend([slots] if isinstance(slots, str) else slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _copy_iterator(trace: Trace, x: SequenceIterator, memo: Memo | None) -> Value:
    """One at the same place of the same sequence, or of its copy."""
    if x.sequence is None:
        return SequenceIterator(x.kind, Sequence(list, []))
    sequence = trace.read(_member(trace, x.sequence, memo))
    assert isinstance(sequence, Sequence)
    duplicate = SequenceIterator(x.kind, sequence)
    duplicate.index = x.index
    return duplicate


COPIERS: dict[type, Callable[[Trace, Any, Memo | None], Value]] = {
    Sequence: _copy_sequence,
    Mapping: _copy_mapping,
    SetValue: _copy_set,
    BoundMethod: _copy_bound,
    SequenceIterator: _copy_iterator,
    Tee: lambda trace, x, memo: tee_copy(trace, x),
    Partial: _copy_partial,
}
