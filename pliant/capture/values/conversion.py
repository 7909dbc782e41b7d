"""From values to real objects and back, where everything is known.

C code that only looks at its arguments can be run during capture on a fresh copy of them
(`known_object`); the fresh object that it returns becomes a value again (`from_real`).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.value import Break, Const, Lazy, NotConstant, Value
from pliant.capture.values.containers import (
    ById,
    Mapping,
    Sequence,
    SetValue,
    make_tuple,
    value_of_key,
)
from pliant.capture.values.dict_views import DictView

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def known_object(value: Value, trace: Trace | None = None) -> Any:
    """A fresh real object equal to `value`; NotConstant where something in it is not known.

    Items that nothing has looked at yet are read with `trace`; without it they are not known.
    """
    if isinstance(value, Lazy):
        read = value.seen if trace is None else trace.read(value)
        if read is None:
            raise NotConstant(value)
        value = read
    maker = _MAKERS.get(type(value))
    return value.constant() if maker is None else maker(value, trace)


def _known_sequence(value: Sequence, trace: Trace | None) -> Any:
    if value.attributes is not None:
        raise NotConstant(value)
    items = [known_object(item, trace) for item in value.items]
    if value.cls is list:
        return items
    if value.cls is deque:
        return deque(items, value.maxlen)
    if not value.immutable:
        raise NotConstant(value)
    return make_tuple(value.cls, items)


def _known_mapping(value: Mapping, trace: Trace | None) -> Any:
    if value.cls not in (dict, OrderedDict, defaultdict):
        raise NotConstant(value)
    items = {
        _known_key(key, trace): known_object(item, trace)
        for key, item in _all_items(value, trace).items()
    }
    if value.cls is defaultdict:
        factory = None if value.factory is None else known_object(value.factory, trace)
        return defaultdict(factory, items)
    return items if value.cls is dict else OrderedDict(items)


def _all_items(value: Mapping, trace: Trace | None) -> dict[Any, Value]:
    if trace is not None:
        return value.read_all(trace)
    if value.backing is not None:
        raise NotConstant(value)
    return {key: item for key, item in value.items.items() if item is not None}


def _known_key(key: Any, trace: Trace | None) -> Any:
    if isinstance(key, ById | tuple):
        return known_object(value_of_key(key), trace)
    return key


def _known_set(value: SetValue, trace: Trace | None) -> Any:
    if value.cls not in (set, frozenset):
        return value.constant()
    return value.cls(_known_key(key, trace) for key in value.items)


def _known_view(value: DictView, trace: Trace | None) -> Any:
    return getattr(known_object(value.mapping, trace), value.of)()


_MAKERS: dict[type, Callable[[Any, Trace | None], Any]] = {
    Sequence: _known_sequence,
    Mapping: _known_mapping,
    SetValue: _known_set,
    DictView: _known_view,
}


def from_real(trace: Trace, obj: Any) -> Value:
    """The value of an object made during the capture, to which nothing else refers."""
    maker = FROM_REAL.get(type(obj))
    if maker is not None:
        return maker(trace, obj)
    if isinstance(obj, tuple):  # named tuples, struct sequences, sizes
        return Sequence(type(obj), [from_real(trace, item) for item in obj])
    if hasattr(type(obj), "__next__"):  # has a state, which a constant must not have
        raise Break("unsupported", f"a {type(obj).__name__}")
    return Const(obj)


def _sequence_value(trace: Trace, obj: Any) -> Value:
    items = [from_real(trace, item) for item in obj]
    return Sequence(type(obj), items, maxlen=getattr(obj, "maxlen", None))


def _mapping_value(trace: Trace, obj: Any) -> Value:
    mapping = Mapping(type(obj), {key: from_real(trace, item) for key, item in obj.items()})
    factory = getattr(obj, "default_factory", None)
    mapping.factory = None if factory is None else Const(factory)
    return mapping


FROM_REAL: dict[type, Callable[[Trace, Any], Value]] = {
    list: _sequence_value,
    tuple: _sequence_value,
    deque: _sequence_value,
    dict: _mapping_value,
    OrderedDict: _mapping_value,
    defaultdict: _mapping_value,
    set: lambda trace, obj: SetValue(set, obj),
}
