"""Methods of sets and frozensets.

Elements are kept as keys in a real set (`containers.key_of`), so that the algebra is the real one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pliant.capture.library.python.sequences import COMPARISONS, is_a, register_repr, run_real
from pliant.capture.model import COMPARE, advance, iterate
from pliant.capture.native import method
from pliant.capture.value import NONE, NOT_IMPLEMENTED, Const, NotConstant, Raised, Value, boolean
from pliant.capture.values.containers import Mapping, SetValue, element_of, value_of_key
from pliant.capture.values.iterators import ConstantIterator, SetIterator
from pliant.capture.values.objects import ExceptionValue

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

ANY_SET = (set, frozenset)


def is_set(value: Value) -> bool:
    return issubclass(value.python_type(), ANY_SET)


def keys_of(value: Value) -> Any:
    """The elements of a set, in a real set or frozenset; a frozenset may also be a constant."""
    return value.items if isinstance(value, SetValue) else value.constant()


def operand(trace: Trace, value: Value) -> Any:
    """The elements of any iterable as keys, in a real container of the kind it is. An iterator is
    advanced as far as the real method takes it."""
    value = trace.read(value)
    if is_set(value):
        return keys_of(value)
    if isinstance(value, Mapping) and value.cls is dict:
        return value.read_all(trace)
    return _keys(trace, value)


def _keys(trace: Trace, iterable: Value) -> Iterator[Any]:
    iterator = iterate(trace, iterable)
    while (item := advance(trace, iterator)) is not None:
        yield element_of(trace, item)


def element(trace: Trace, value: Value) -> Any:
    """`value` as a key to look for: a set that has no hash stands for the frozenset of its
    elements."""
    value = trace.read(value)
    if not isinstance(value, SetValue) or not issubclass(value.cls, set):
        return element_of(trace, value)
    try:
        return element_of(trace, value)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        return frozenset(value.items)


def _base(self: Value) -> type:
    return set if is_a(self, set) else frozenset


def new_set(cls: type, keys: Any) -> Value:
    """A set of class `cls`; a frozenset of constants is a constant."""
    result = SetValue(cls, set(keys))
    if cls is frozenset:
        try:
            real = result.constant()
        except NotConstant:
            return result
        return Const(keys if isinstance(keys, frozenset) else real)
    return result


def missing_key(value: Value) -> Raised:
    return Raised(ExceptionValue(KeyError, [value]))


# ---- reading


def _length(trace: Trace, self: Value) -> Value:
    return Const(len(keys_of(self)))


def _contains(trace: Trace, self: Value, item: Value) -> Value:
    return boolean(element(trace, item) in keys_of(self))


def _iter(trace: Trace, self: Value) -> Value:
    return SetIterator(self) if isinstance(self, SetValue) else ConstantIterator(self.constant())


def _copy(trace: Trace, self: Value) -> Value:
    if self.python_type() is frozenset:
        return self
    return new_set(_base(self), set(keys_of(self)))


for _cls in ANY_SET:
    method(_cls, "__len__")(_length)
    method(_cls, "__contains__")(_contains)
    method(_cls, "__iter__")(_iter)
    method(_cls, "copy")(_copy)
    register_repr(_cls)


@method(frozenset, "__hash__")
def frozenset_hash(trace: Trace, self: Value) -> Value:
    return Const(hash(self.constant()))


# ---- algebra

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "__or__": operator.or_,
    "__and__": operator.and_,
    "__sub__": operator.sub,
    "__xor__": operator.xor,
}
INPLACE_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "__ior__": set.update,
    "__iand__": set.intersection_update,
    "__isub__": set.difference_update,
    "__ixor__": set.symmetric_difference_update,
}


def _register_operator(cls: type, name: str, real: Callable[[Any, Any], Any]) -> None:
    """`left | right` and its relatives, which want sets on both sides."""

    def forward(trace: Trace, self: Value, other: Value) -> Value:
        other = trace.read(other)
        if not is_set(other):
            return NOT_IMPLEMENTED
        return new_set(_base(self), real(keys_of(self), keys_of(other)))

    def reflected(trace: Trace, self: Value, other: Value) -> Value:
        other = trace.read(other)
        return forward(trace, other, self) if is_set(other) else NOT_IMPLEMENTED

    method(cls, name)(forward)
    method(cls, name.replace("__", "__r", 1))(reflected)


def _register_inplace(name: str, real: Callable[[Any, Any], Any]) -> None:
    def handler(trace: Trace, self: SetValue, other: Value) -> Value:
        other = trace.read(other)
        if not is_set(other):
            return NOT_IMPLEMENTED
        trace.mutate(self)
        real(self.items, keys_of(other))
        return self

    method(set, name)(handler)


def _register_combination(cls: type, name: str, single: bool) -> None:
    """`union` and its relatives, which take any iterables."""

    def combine(trace: Trace, self: Value, *others: Value) -> Value:
        if single and len(others) != 1:
            text = f"{cls.__name__}.{name}() takes exactly one argument ({len(others)} given)"
            trace.throw(TypeError(text))
        result = getattr(keys_of(self), name)(*[operand(trace, other) for other in others])
        return boolean(result) if isinstance(result, bool) else new_set(_base(self), result)

    method(cls, name)(combine)


def _register_update(name: str) -> None:
    real = getattr(set, name)

    def update(trace: Trace, self: SetValue, *others: Value) -> Value:
        operands = [operand(trace, other) for other in others]
        trace.mutate(self)
        run_real(trace, real, self.items, *operands)
        return NONE

    method(set, name)(update)


def _register_comparison(cls: type, name: str, real: Callable[[Any, Any], Any]) -> None:
    def handler(trace: Trace, self: Value, other: Value) -> Value:
        other = trace.read(other)
        return boolean(real(keys_of(self), keys_of(other))) if is_set(other) else NOT_IMPLEMENTED

    method(cls, name)(handler)


for _cls in ANY_SET:
    for _name, _real in OPERATORS.items():
        _register_operator(_cls, _name, _real)
    for _name in ("union", "intersection", "difference"):
        _register_combination(_cls, _name, single=False)
    for _name in ("symmetric_difference", "issubset", "issuperset", "isdisjoint"):
        _register_combination(_cls, _name, single=True)
    for _name, _symbol in COMPARISONS.items():
        _register_comparison(_cls, _name, COMPARE[_symbol][2])
for _name, _real in INPLACE_OPERATORS.items():
    _register_inplace(_name, _real)
for _name in ("update", "intersection_update", "difference_update", "symmetric_difference_update"):
    _register_update(_name)


# ---- changing


@method(set, "add")
def set_add(trace: Trace, self: SetValue, item: Value) -> Value:
    key = element_of(trace, item)
    trace.mutate(self)
    self.items.add(key)
    return NONE


@method(set, "discard")
def set_discard(trace: Trace, self: SetValue, item: Value) -> Value:
    key = element(trace, item)
    trace.mutate(self)
    self.items.discard(key)
    return NONE


@method(set, "remove")
def set_remove(trace: Trace, self: SetValue, item: Value) -> Value:
    key = element(trace, item)
    if key not in self.items:
        raise missing_key(item)
    trace.mutate(self)
    self.items.remove(key)
    return NONE


@method(set, "pop")
def set_pop(trace: Trace, self: SetValue) -> Value:
    if not self.items:
        trace.throw(KeyError("pop from an empty set"))
    trace.mutate(self)
    return value_of_key(self.items.pop())


@method(set, "clear")
def set_clear(trace: Trace, self: SetValue) -> Value:
    trace.mutate(self)
    self.items.clear()
    return NONE
