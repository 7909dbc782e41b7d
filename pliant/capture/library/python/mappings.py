"""Methods of dictionaries: `dict`, `OrderedDict`, `defaultdict`.

A dictionary from outside is read key by key; what only concerns one key assumes only that it is
there or not. The views and the read-only proxy are in `dict_views`.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pliant.base.python_errors import no_pair
from pliant.capture.attributes import has_attribute
from pliant.capture.library.python.sequences import is_a, register_repr
from pliant.capture.library.python.sets import missing_key
from pliant.capture.model import (
    advance,
    call,
    call_special,
    equal,
    get_attribute,
    get_item,
    iterate,
    set_item,
    truth,
)
from pliant.capture.native import method
from pliant.capture.value import (
    FALSE,
    NONE,
    NOT_IMPLEMENTED,
    TRUE,
    Const,
    Raised,
    Value,
    boolean,
    has_python_method,
)
from pliant.capture.values.containers import (
    Mapping,
    Sequence,
    key_of,
    plain_tuple,
    real_key_of,
    value_of_key,
)
from pliant.capture.values.dict_views import DictView
from pliant.capture.values.iterators import MappingIterator
from pliant.capture.values.number import Number
from pliant.guards.guard import GuardKind

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

FEW_KEYS: Final = 32
FAST_ITERATION = (dict.__iter__, OrderedDict.__iter__)

register_repr(dict)
register_repr(OrderedDict)
register_repr(defaultdict)


def present(trace: Trace, self: Mapping, key: Any) -> Value | None:
    """The value at `key`, guarding that the key exists; or None, guarding that it doesn't."""
    unread = self.backing is not None and key not in self.written
    value = self.get(trace, key)
    if unread and value is not None:
        trace.guard(GuardKind.HAS, self.source, real_key_of(trace, key))
    return value


# ---- reading


@method(dict, "__getitem__")
def dict_getitem(trace: Trace, self: Mapping, key: Value) -> Value:
    value = self.get(trace, key_of(trace, key))
    if value is not None:
        return value
    # A plain dictionary has no `__missing__`.
    if self.cls is not dict:
        default = call_special(trace, self, "__missing__", key)
        if default is not None:
            return default
    raise missing_key(key)


@method(dict, "get")
def dict_get(trace: Trace, self: Mapping, key: Value, default: Value = NONE) -> Value:
    value = present(trace, self, key_of(trace, key))
    return default if value is None else value


@method(dict, "__contains__")
def dict_contains(trace: Trace, self: Mapping, key: Value) -> Value:
    key_value = trace.read(key)
    if isinstance(key_value, Number) and _has_few_plain_keys(self):
        # Compared one by one, the number stays a symbol where it is none of them.
        keys = [Const(candidate) for candidate in self.read_all(trace)]
        return boolean(any(equal(trace, candidate, key_value) for candidate in keys))
    return boolean(present(trace, self, key_of(trace, key)) is not None)


def _has_few_plain_keys(self: Mapping) -> bool:
    keys = [*dict.keys(self.backing or {}), *self.items]
    return len(keys) <= FEW_KEYS and all(type(key) in (bool, int, str) for key in keys)


@method(dict, "__len__")
def dict_len(trace: Trace, self: Mapping) -> Value:
    return Const(len(self.read_all(trace)))


@method(dict, "__iter__")
@method(OrderedDict, "__iter__")
def dict_iter(trace: Trace, self: Mapping) -> Value:
    return MappingIterator(trace, self, "keys")


@method(dict, "__reversed__")
@method(OrderedDict, "__reversed__")
def dict_reversed(trace: Trace, self: Mapping) -> Value:
    return MappingIterator(trace, self, "keys", reverse=True)


@method(dict, "keys")
@method(OrderedDict, "keys")
def dict_keys(trace: Trace, self: Mapping) -> Value:
    return DictView(self, "keys")


@method(dict, "values")
@method(OrderedDict, "values")
def dict_values(trace: Trace, self: Mapping) -> Value:
    return DictView(self, "values")


@method(dict, "items")
@method(OrderedDict, "items")
def dict_items(trace: Trace, self: Mapping) -> Value:
    return DictView(self, "items")


# ---- comparing


def same_items(trace: Trace, left: Mapping, right: Mapping) -> bool:
    own_items, others = left.read_all(trace), right.read_all(trace)
    if len(own_items) != len(others):
        return False
    return all(key in others and equal(trace, own_items[key], others[key]) for key in own_items)


def _same_order(trace: Trace, left: Mapping, right: Mapping) -> bool:
    return list(left.read_all(trace)) == list(right.read_all(trace))


@method(dict, "__eq__")
def dict_eq(trace: Trace, self: Mapping, other: Value) -> Value:
    other = trace.read(other)
    return (
        boolean(same_items(trace, self, other)) if isinstance(other, Mapping) else NOT_IMPLEMENTED
    )


@method(dict, "__ne__")
def dict_ne(trace: Trace, self: Mapping, other: Value) -> Value:
    return _opposite(dict_eq(trace, self, other))


@method(OrderedDict, "__eq__")
def ordered_eq(trace: Trace, self: Mapping, other: Value) -> Value:
    """Equality of ordered dictionaries, for which the order counts too."""
    other = trace.read(other)
    result = dict_eq(trace, self, other)
    if result is TRUE and isinstance(other, Mapping) and is_a(other, OrderedDict):
        return boolean(_same_order(trace, self, other))
    return result


@method(OrderedDict, "__ne__")
def ordered_ne(trace: Trace, self: Mapping, other: Value) -> Value:
    return _opposite(ordered_eq(trace, self, other))


def _opposite(result: Value) -> Value:
    return result if result is NOT_IMPLEMENTED else boolean(result is FALSE)


@method(dict, "__lt__", "__le__", "__gt__", "__ge__")
@method(OrderedDict, "__lt__", "__le__", "__gt__", "__ge__")
def dict_order(trace: Trace, self: Mapping, other: Value) -> Value:
    return NOT_IMPLEMENTED


# ---- changing


@method(dict, "__setitem__")
@method(OrderedDict, "__setitem__")
def dict_setitem(trace: Trace, self: Mapping, key: Value, value: Value) -> Value:
    self.store(trace, key_of(trace, key), value)
    return NONE


@method(dict, "__delitem__")
@method(OrderedDict, "__delitem__")
def dict_delitem(trace: Trace, self: Mapping, key: Value) -> Value:
    real_key = key_of(trace, key)
    if present(trace, self, real_key) is None:
        raise missing_key(key)
    self.store(trace, real_key, None)
    return NONE


@method(dict, "pop")
@method(OrderedDict, "pop")
def dict_pop(trace: Trace, self: Mapping, key: Value, default: Value | None = None) -> Value:
    real_key = key_of(trace, key)
    value = present(trace, self, real_key)
    if value is not None:
        self.store(trace, real_key, None)
        return value
    if default is None:
        raise missing_key(key)
    return default


@method(dict, "popitem")
def dict_popitem(trace: Trace, self: Mapping) -> Value:
    items = self.read_all(trace)
    if not items:
        trace.throw(KeyError("popitem(): dictionary is empty"))
    return _take(trace, self, next(reversed(items)))


@method(OrderedDict, "popitem")
def ordered_popitem(trace: Trace, self: Mapping, last: Value = TRUE) -> Value:
    items = self.read_all(trace)
    if not items:
        trace.throw(KeyError("dictionary is empty"))
    return _take(trace, self, next(reversed(items) if truth(trace, last) else iter(items)))


def _take(trace: Trace, self: Mapping, key: Any) -> Value:
    value = self.items[key]
    assert value is not None
    self.store(trace, key, None)
    return plain_tuple([value_of_key(key), value])


@method(dict, "setdefault")
@method(OrderedDict, "setdefault")
def dict_setdefault(trace: Trace, self: Mapping, key: Value, default: Value = NONE) -> Value:
    real_key = key_of(trace, key)
    value = present(trace, self, real_key)
    if value is not None:
        return value
    self.store(trace, real_key, default)
    return default


@method(dict, "clear")
@method(OrderedDict, "clear")
def dict_clear(trace: Trace, self: Mapping) -> Value:
    self.clear(trace)
    return NONE


@method(OrderedDict, "move_to_end")
def ordered_move_to_end(trace: Trace, self: Mapping, key: Value, last: Value = TRUE) -> Value:
    real_key = key_of(trace, key)
    items = self.read_all(trace)
    if real_key not in items:
        raise missing_key(key)
    # To the front is all others, in order, to the end.
    moved = [real_key] if truth(trace, last) else [real_key, *(k for k in items if k != real_key)]
    for name in moved:  # what is taken out and put back comes last
        self.store(trace, name, None)
        self.store(trace, name, items[name])
    return NONE


# ---- merging


@method(dict, "update")
@method(OrderedDict, "update")
def dict_update(trace: Trace, self: Mapping, /, *args: Value, **kwargs: Value) -> Value:
    if len(args) > 1:
        trace.throw(TypeError(f"update expected at most 1 argument, got {len(args)}"))
    for other in args:
        merge(trace, self, other)
    for name, value in kwargs.items():
        _put(trace, self, Const(name), name, value)
    return NONE


def merge(trace: Trace, self: Mapping, other: Value) -> None:
    """Store all items of a mapping, or of an iterable of pairs."""
    other = trace.read(other)
    if isinstance(other, Mapping) and _iterates_plainly(trace, other):
        for key, value in other.read_all(trace).items():
            _put(trace, self, None, key, value)
    # Any object with `keys` is taken for a mapping, as in CPython.
    elif not isinstance(other, Sequence) and has_attribute(trace, other, "keys"):
        keys = iterate(trace, call(trace, get_attribute(trace, other, "keys"), []))
        while (next_key := advance(trace, keys)) is not None:
            _put(trace, self, next_key, key_of(trace, next_key), get_item(trace, other, next_key))
    else:
        for first, second in _pairs(trace, other):
            _put(trace, self, first, key_of(trace, first), second)


def _iterates_plainly(trace: Trace, other: Mapping) -> bool:
    """Whether C code reads the items of `other` without asking its methods, which a subclass may
    override."""
    if trace.lookup(other.cls, "__iter__") not in FAST_ITERATION:
        return False
    if not issubclass(other.cls, OrderedDict):
        return True  # C code does not ask the methods of a plain dictionary
    return not has_python_method(trace, other.cls, "keys", "__getitem__")


def _put(trace: Trace, self: Mapping, key: Value | None, real_key: Any, value: Value) -> None:
    """Store an item. For a subclass of OrderedDict that means calling its `__setitem__`."""
    if issubclass(self.cls, OrderedDict) and self.cls is not OrderedDict:
        set_item(trace, self, value_of_key(real_key) if key is None else key, value)
    else:
        self.store(trace, real_key, value)


def _pairs(trace: Trace, other: Value) -> Iterator[tuple[Value, Value]]:
    iterator = iterate(trace, other)
    place = 0
    while (element := advance(trace, iterator)) is not None:
        items = _pair(trace, element, place)
        if len(items) != 2:
            text = f"dictionary update sequence element #{place} has length {len(items)}"
            trace.throw(ValueError(f"{text}; 2 is required"))
        yield items[0], items[1]
        place += 1


def _pair(trace: Trace, element: Value, place: int) -> list[Value]:
    try:
        iterator = iterate(trace, element)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        trace.throw(no_pair(place))
    items = []
    while (item := advance(trace, iterator)) is not None:
        items.append(item)
    return items


@method(dict, "__ior__")
@method(OrderedDict, "__ior__")
def dict_ior(trace: Trace, self: Mapping, other: Value) -> Value:
    merge(trace, self, other)
    return self


def _copied(trace: Trace, source: Mapping, cls: type) -> Mapping:
    return Mapping(cls, dict(source.read_all(trace)))


@method(dict, "copy")
def dict_copy(trace: Trace, self: Mapping) -> Value:
    return _copied(trace, self, dict)


@method(dict, "__or__")
def dict_or(trace: Trace, self: Mapping, other: Value) -> Value:
    other = trace.read(other)
    if not isinstance(other, Mapping):
        return NOT_IMPLEMENTED
    union = _copied(trace, self, dict)
    merge(trace, union, other)
    return union


@method(dict, "__ror__")
def dict_ror(trace: Trace, self: Mapping, other: Value) -> Value:
    other = trace.read(other)
    return dict_or(trace, other, self) if isinstance(other, Mapping) else NOT_IMPLEMENTED


@method(OrderedDict, "copy")
def ordered_copy(trace: Trace, self: Mapping) -> Value:
    if self.cls is OrderedDict:
        return _copied(trace, self, OrderedDict)
    copied = trace.read(call(trace, Const(self.cls), []))
    for key in self.read_all(trace):
        name = value_of_key(key)
        set_item(trace, copied, name, get_item(trace, self, name))
    return copied


def _joined(trace: Trace, cls: type, first: Value, second: Value) -> Value:
    """A dictionary of class `cls` with the items of both."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return NOT_IMPLEMENTED
    union = trace.read(call(trace, Const(cls), [first]))
    assert isinstance(union, Mapping)
    merge(trace, union, second)
    return union


@method(OrderedDict, "__or__")
def ordered_or(trace: Trace, self: Mapping, other: Value) -> Value:
    return _joined(trace, self.cls, self, trace.read(other))


@method(OrderedDict, "__ror__")
def ordered_ror(trace: Trace, self: Mapping, other: Value) -> Value:
    return _joined(trace, self.cls, trace.read(other), self)


@method(dict, "fromkeys")
@method(OrderedDict, "fromkeys")
def dict_fromkeys(trace: Trace, owner: Value, iterable: Value, value: Value = NONE) -> Value:
    """`owner` is the class, or an instance through which the method was found."""
    owner = trace.read(owner)
    through_class = isinstance(owner, Const) and isinstance(owner.value, type)
    cls = owner if through_class else Const(owner.python_type())
    mapping = trace.read(call(trace, cls, []))
    iterator = iterate(trace, iterable)
    while (key := advance(trace, iterator)) is not None:
        set_item(trace, mapping, key, value)
    return mapping


# ---- defaultdict


@method(defaultdict, "__missing__")
def defaultdict_missing(trace: Trace, self: Mapping, key: Value) -> Value:
    if self.factory is None:
        raise missing_key(key)
    value = call(trace, self.factory, [])
    set_item(trace, self, key, value)
    return value


@method(defaultdict, "default_factory")
def defaultdict_factory(trace: Trace, self: Mapping) -> Value:
    return NONE if self.factory is None else self.factory


@method(defaultdict, "copy", "__copy__")
def defaultdict_copy(trace: Trace, self: Mapping) -> Value:
    if self.cls is defaultdict:
        copied = _copied(trace, self, defaultdict)
        copied.factory = self.factory
        return copied
    return call(trace, Const(self.cls), [defaultdict_factory(trace, self), self])


@method(defaultdict, "__or__")
def defaultdict_or(trace: Trace, self: Mapping, other: Value) -> Value:
    other = trace.read(other)
    if not isinstance(other, Mapping):
        return NOT_IMPLEMENTED
    union = trace.read(defaultdict_copy(trace, self))
    assert isinstance(union, Mapping)
    merge(trace, union, other)
    return union


@method(defaultdict, "__ror__")
def defaultdict_ror(trace: Trace, self: Mapping, other: Value) -> Value:
    other = trace.read(other)
    if not isinstance(other, Mapping):
        return NOT_IMPLEMENTED
    union = trace.read(call(trace, Const(self.cls), [defaultdict_factory(trace, self), other]))
    assert isinstance(union, Mapping)
    merge(trace, union, self)
    return union
