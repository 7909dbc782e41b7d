"""Views of dictionaries (`keys`, `values`, `items`) and `types.MappingProxyType`."""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.library.python.mappings import dict_contains
from pliant.capture.library.python.objects import shown
from pliant.capture.library.python.sequences import COMPARISONS, is_a, items_of
from pliant.capture.library.python.sets import OPERATORS, is_set, operand
from pliant.capture.model import (
    COMPARE,
    binary,
    call,
    call_special,
    compare,
    contains,
    equal,
    get_attribute,
    get_item,
    iterate,
    length,
)
from pliant.capture.native import function, method
from pliant.capture.value import NOT_IMPLEMENTED, Break, Const, Unread, Value, boolean
from pliant.capture.values.containers import Mapping, SetValue, element_of, key_of
from pliant.capture.values.dict_views import ORDERED_VIEWS, VIEWS, DictView, MappingProxy
from pliant.capture.values.iterators import MappingIterator
from pliant.capture.values.objects import Opaque
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.source import Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

ALL_VIEWS = tuple(VIEWS.values())
SET_LIKE = (VIEWS["keys"], VIEWS["items"])


def _iter(trace: Trace, self: DictView) -> Value:
    return MappingIterator(trace, self.mapping, self.of)


def _reversed(trace: Trace, self: DictView) -> Value:
    return MappingIterator(trace, self.mapping, self.of, reverse=True)


def _length(trace: Trace, self: DictView) -> Value:
    return Const(len(self.mapping.read_all(trace)))


def _mapping(trace: Trace, self: DictView) -> Value:
    return MappingProxy(self.mapping)


def _repr(trace: Trace, self: DictView) -> Value:
    inner = ", ".join(shown(trace, item) for item in self.elements(trace))
    return Const(f"{self.python_type().__name__}([{inner}])")


for _cls in (*ALL_VIEWS, *ORDERED_VIEWS.values()):
    method(_cls, "__iter__")(_iter)
    method(_cls, "__reversed__")(_reversed)
for _cls in ALL_VIEWS:
    method(_cls, "__len__")(_length)
    method(_cls, "__repr__")(_repr)
    method(_cls, "mapping")(_mapping)


def view_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    """A view does not say which dictionary it is of, but always is of the same one."""
    of = next(name for name, cls in ALL_NAMED if type(real) is cls)
    [mapping] = gc.get_referents(real)
    value = trace.read(Unread(mapping, Fixed(mapping, f"{source}.mapping")))
    if not isinstance(value, Mapping):
        return Opaque(real, source)
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    view = DictView(value, of)
    view.source = source
    return view


ALL_NAMED = (*VIEWS.items(), *ORDERED_VIEWS.items())
for _cls in (*ALL_VIEWS, *ORDERED_VIEWS.values()):
    BUILDERS[_cls] = view_from_outside


# ---- keys and items as sets


def _is_set_like(value: Value) -> bool:
    return is_set(value) or is_a(value, SET_LIKE[0]) or is_a(value, SET_LIKE[1])


@method(VIEWS["keys"], "__contains__")
def keys_contains(trace: Trace, self: DictView, key: Value) -> Value:
    return dict_contains(trace, self.mapping, key)


@method(VIEWS["items"], "__contains__")
def items_contains(trace: Trace, self: DictView, item: Value) -> Value:
    return boolean(_has_item(trace, self, item))


def _has_item(trace: Trace, self: DictView, item: Value) -> bool:
    item = trace.read(item)
    if not is_a(item, tuple) or len(items_of(item)) != 2:
        return False
    key, value = items_of(item)
    held = self.mapping.get(trace, key_of(trace, key))
    return held is not None and equal(trace, held, value)


def _elements(trace: Trace, value: Value) -> Any:
    """A set or view, or any iterable, as keys."""
    value = trace.read(value)
    if not isinstance(value, DictView):
        return operand(trace, value)
    if value.of == "keys":
        return value.mapping.read_all(trace)
    return [element_of(trace, item) for item in value.elements(trace)]


@method(VIEWS["keys"], "isdisjoint")
@method(VIEWS["items"], "isdisjoint")
def view_isdisjoint(trace: Trace, self: DictView, other: Value) -> Value:
    return boolean(set(_elements(trace, self)).isdisjoint(_elements(trace, other)))


def _register_operator(cls: type, name: str, real: Callable[[Any, Any], Any]) -> None:
    """Views take any iterable on the other side, on either side; the result is a set."""

    def forward(trace: Trace, self: Value, other: Value) -> Value:
        left = set(iter(_elements(trace, self)))
        return SetValue(set, real(left, set(iter(_elements(trace, other)))))

    def reflected(trace: Trace, self: Value, other: Value) -> Value:
        return forward(trace, other, self)

    method(cls, name)(forward)
    method(cls, name.replace("__", "__r", 1))(reflected)


def _register_comparison(cls: type, name: str, symbol: str) -> None:
    real = COMPARE[symbol][2]

    def handler(trace: Trace, self: DictView, other: Value) -> Value:
        other = trace.read(other)
        if not _is_set_like(other):
            return NOT_IMPLEMENTED
        if self.of == "items" and symbol in ("==", "!="):
            return boolean(_same_items(trace, self, other) is (symbol == "=="))
        return boolean(real(set(_elements(trace, self)), set(_elements(trace, other))))

    method(cls, name)(handler)


def _same_items(trace: Trace, self: DictView, other: Value) -> bool:
    """Items are compared by equality of their values, which need not be hashable."""
    elements = self.elements(trace)
    if len(elements) != length(trace, other).constant():
        return False
    return all(contains(trace, other, item) for item in elements)


for _cls in SET_LIKE:
    for _name, _real in OPERATORS.items():
        _register_operator(_cls, _name, _real)
    for _name, _symbol in COMPARISONS.items():
        _register_comparison(_cls, _name, _symbol)


# ---- the read-only proxy


@function(types.MappingProxyType)
def make_proxy(trace: Trace, mapping: Value) -> Value:
    mapping = trace.read(mapping)
    cls = mapping.python_type()
    if trace.lookup(cls, "__getitem__") is MISSING or issubclass(cls, list | tuple):
        text = f"mappingproxy() argument must be a mapping, not {type_name(cls)}"
        trace.throw(TypeError(text))
    return MappingProxy(mapping)


def proxy_from_outside(
    trace: Trace, real: types.MappingProxyType[Any, Any], source: Source
) -> Value:
    """A proxy does not expose its mapping, but keeps the same one as long as it lives."""
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    [mapping] = gc.get_referents(real)
    return MappingProxy(Unread(mapping, Fixed(mapping, f"{source}")), source)


BUILDERS[types.MappingProxyType] = proxy_from_outside


def proxied(self: Value) -> Value:
    if isinstance(self, Const) and isinstance(self.value, types.MappingProxyType):
        raise Break("unsupported", "the namespace of a class")
    assert isinstance(self, MappingProxy)
    return self.mapping


@method(types.MappingProxyType, "__getitem__")
def proxy_getitem(trace: Trace, self: Value, key: Value) -> Value:
    return get_item(trace, proxied(self), key)


@method(types.MappingProxyType, "__len__")
def proxy_len(trace: Trace, self: Value) -> Value:
    return length(trace, proxied(self))


@method(types.MappingProxyType, "__iter__")
def proxy_iter(trace: Trace, self: Value) -> Value:
    return iterate(trace, proxied(self))


@method(types.MappingProxyType, "__reversed__")
def proxy_reversed(trace: Trace, self: Value) -> Value:
    iterator = call_special(trace, proxied(self), "__reversed__")
    if iterator is None:
        raise Break("unsupported", "reversed() of this mapping")
    return iterator


@method(types.MappingProxyType, "__contains__")
def proxy_contains(trace: Trace, self: Value, key: Value) -> Value:
    return boolean(contains(trace, proxied(self), key))


@method(types.MappingProxyType, "__repr__")
def proxy_repr(trace: Trace, self: Value) -> Value:
    return Const(f"mappingproxy({shown(trace, proxied(self))})")


def _register_proxy_method(name: str) -> None:
    def handler(trace: Trace, self: Value, *args: Value) -> Value:
        return call(trace, get_attribute(trace, proxied(self), name), list(args))

    method(types.MappingProxyType, name)(handler)


def _register_proxy_comparison(name: str, symbol: str) -> None:
    def handler(trace: Trace, self: Value, other: Value) -> Value:
        return compare(trace, symbol, proxied(self), other)

    method(types.MappingProxyType, name)(handler)


for _name in ("get", "keys", "values", "items", "copy"):
    _register_proxy_method(_name)
for _name, _symbol in COMPARISONS.items():
    _register_proxy_comparison(_name, _symbol)


def _unwrapped(trace: Trace, value: Value) -> Value:
    value = trace.read(value)
    return value.mapping if isinstance(value, MappingProxy) else value


@method(types.MappingProxyType, "__or__")
def proxy_or(trace: Trace, self: Value, other: Value) -> Value:
    return binary(trace, "|", proxied(self), _unwrapped(trace, other))


@method(types.MappingProxyType, "__ror__")
def proxy_ror(trace: Trace, self: Value, other: Value) -> Value:
    return binary(trace, "|", _unwrapped(trace, other), proxied(self))
