"""Methods of `collections.deque`. A bounded deque drops items at the other end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from pliant.capture.library.python.sequences import (
    as_index,
    bounds,
    count_equal,
    find,
    has_own_operator,
    is_a,
    items_of,
    not_found,
    register_comparisons,
    register_repr,
    times,
)
from pliant.capture.model import advance, call, equal, iterate, type_name
from pliant.capture.native import method
from pliant.capture.value import NONE, NOT_IMPLEMENTED, Break, Const, Value, boolean
from pliant.capture.values.containers import Sequence
from pliant.capture.values.iterators import DEQUE_ITERATOR, REVERSED_DEQUE, DequeIterator

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

register_comparisons(deque)
register_repr(deque)


def _change(trace: Trace, self: Sequence) -> list[Value]:
    """The items, about to change in number or order: iterators of the deque become invalid."""
    trace.mutate(self)
    self.version += 1
    return self.items


def _like(trace: Trace, self: Sequence, items: list[Value]) -> Value:
    """A deque of the same class and bound with other items."""
    limit = self.maxlen
    last_items = items if limit is None else items[max(len(items) - limit, 0) :]
    if self.cls is deque:
        return Sequence(deque, last_items, maxlen=limit)
    bound = [] if limit is None else [Const(limit)]
    return call(trace, Const(self.cls), [Sequence(deque, last_items), *bound])


def _trim(items: list[Value], limit: int | None, left: bool) -> None:
    if limit is not None and len(items) > limit:
        del items[0 if left else -1]


# ---- reading


@method(deque, "__len__")
def deque_len(trace: Trace, self: Sequence) -> Value:
    return Const(len(self.items))


@method(deque, "maxlen")
def deque_maxlen(trace: Trace, self: Sequence) -> Value:
    return Const(self.maxlen)


@method(deque, "__iter__")
def deque_iter(trace: Trace, self: Sequence) -> Value:
    return DequeIterator(DEQUE_ITERATOR, self)


@method(deque, "__reversed__")
def deque_reversed(trace: Trace, self: Sequence) -> Value:
    return DequeIterator(REVERSED_DEQUE, self)


@method(deque, "__contains__")
def deque_contains(trace: Trace, self: Sequence, item: Value) -> Value:
    return boolean(_search(trace, self, item, 0, len(self.items)) is not None)


@method(deque, "count")
def deque_count(trace: Trace, self: Sequence, item: Value) -> Value:
    return count_equal(trace, self.items, item)


@method(deque, "index")
def deque_index(trace: Trace, self: Sequence, item: Value, *limits: Value) -> Value:
    index = _search(trace, self, item, *bounds(trace, len(self.items), limits))
    if index is None:
        not_found(trace, item, "deque")
    return Const(index)


def _search(trace: Trace, self: Sequence, item: Value, start: int, stop: int) -> int | None:
    version = self.version
    index = find(trace, self.items, item, start, stop)
    if version != self.version:
        trace.throw(RuntimeError("deque mutated during iteration"))
    return index


def _place(trace: Trace, self: Sequence, key: Value) -> int:
    index = as_index(trace, key, "sequence index must be integer, not '{}'")
    if not -len(self.items) <= index < len(self.items):
        trace.throw(IndexError("deque index out of range"))
    return index


@method(deque, "__getitem__")
def deque_getitem(trace: Trace, self: Sequence, key: Value) -> Value:
    return self.items[_place(trace, self, key)]


@method(deque, "copy", "__copy__")
def deque_copy(trace: Trace, self: Sequence) -> Value:
    return _like(trace, self, list(self.items))


@method(deque, "__add__")
def deque_add(trace: Trace, self: Sequence, other: Value) -> Value:
    other = trace.read(other)
    if has_own_operator(trace, other, "__radd__"):
        return NOT_IMPLEMENTED
    if is_a(other, deque):
        return _like(trace, self, [*self.items, *items_of(other)])
    other_name = type_name(other.python_type())
    trace.throw(TypeError(f'can only concatenate deque (not "{other_name}") to deque'))


@method(deque, "__mul__", "__rmul__")
def deque_mul(trace: Trace, self: Sequence, count: Value) -> Value:
    factor = times(trace, self, count)
    return NOT_IMPLEMENTED if factor is None else _like(trace, self, self.items * factor)


# ---- changing


@method(deque, "append")
def deque_append(trace: Trace, self: Sequence, item: Value) -> Value:
    items = None if self.maxlen is None else self.items  # read, if at all, before it changes
    self.version += 1
    self.append(trace, item)
    if items is not None:
        _trim(items, self.maxlen, left=True)
    return NONE


@method(deque, "appendleft")
def deque_appendleft(trace: Trace, self: Sequence, item: Value) -> Value:
    items = _change(trace, self)
    items.insert(0, item)
    _trim(items, self.maxlen, left=False)
    return NONE


def _all_of(trace: Trace, self: Sequence, iterable: Value) -> Value:
    """An iterator over `iterable`; a deque that is added to itself is copied first."""
    iterable = trace.read(iterable)
    return iterate(trace, Sequence(list, list(self.items)) if iterable is self else iterable)


@method(deque, "extend")
def deque_extend(trace: Trace, self: Sequence, iterable: Value) -> Value:
    iterator = _all_of(trace, self, iterable)
    while (item := advance(trace, iterator)) is not None:
        deque_append(trace, self, item)
    return NONE


@method(deque, "extendleft")
def deque_extendleft(trace: Trace, self: Sequence, iterable: Value) -> Value:
    iterator = _all_of(trace, self, iterable)
    while (item := advance(trace, iterator)) is not None:
        deque_appendleft(trace, self, item)
    return NONE


@method(deque, "__iadd__")
def deque_iadd(trace: Trace, self: Sequence, iterable: Value) -> Value:
    if self.cls is deque and has_own_operator(trace, trace.read(iterable), "__radd__"):
        raise Break("operation-raises", "+= of a deque and an object with __radd__")
    deque_extend(trace, self, iterable)
    return self


@method(deque, "__imul__")
def deque_imul(trace: Trace, self: Sequence, count: Value) -> Value:
    factor = times(trace, self, count)
    if factor is None:
        return NOT_IMPLEMENTED
    items = _change(trace, self)
    items *= factor
    if self.maxlen is not None:
        del items[: max(len(items) - self.maxlen, 0)]
    return self


@method(deque, "insert")
def deque_insert(trace: Trace, self: Sequence, index: Value, item: Value) -> Value:
    place = as_index(trace, index)
    if self.maxlen is not None and len(self.items) >= self.maxlen:
        trace.throw(IndexError("deque already at its maximum size"))
    _change(trace, self).insert(place, item)
    return NONE


@method(deque, "pop")
def deque_pop(trace: Trace, self: Sequence) -> Value:
    if not self.items:
        trace.throw(IndexError("pop from an empty deque"))
    return _change(trace, self).pop()


@method(deque, "popleft")
def deque_popleft(trace: Trace, self: Sequence) -> Value:
    if not self.items:
        trace.throw(IndexError("pop from an empty deque"))
    return _change(trace, self).pop(0)


@method(deque, "remove")
def deque_remove(trace: Trace, self: Sequence, item: Value) -> Value:
    removed = trace.read(item)
    size = len(self.items)
    for index in range(size):
        is_equal = equal(trace, self.items[index], removed)
        if len(self.items) != size:
            trace.throw(IndexError("deque mutated during remove()."))
        if is_equal:
            del _change(trace, self)[index]
            return NONE
    not_found(trace, item, "deque", "remove")


@method(deque, "clear")
def deque_clear(trace: Trace, self: Sequence) -> Value:
    _change(trace, self).clear()
    return NONE


@method(deque, "reverse")
def deque_reverse(trace: Trace, self: Sequence) -> Value:
    trace.mutate(self)
    self.items.reverse()
    return NONE


@method(deque, "rotate")
def deque_rotate(trace: Trace, self: Sequence, steps: Value = Const(1)) -> Value:  # noqa: B008
    items = self.items
    count = as_index(trace, steps)
    if len(items) > 1:
        count %= len(items)
        _change(trace, self)[:] = [*items[len(items) - count :], *items[: len(items) - count]]
    return NONE


@method(deque, "__setitem__")
def deque_setitem(trace: Trace, self: Sequence, key: Value, value: Value) -> Value:
    place = _place(trace, self, key)
    trace.mutate(self)
    self.items[place] = value
    return NONE


@method(deque, "__delitem__")
def deque_delitem(trace: Trace, self: Sequence, key: Value) -> Value:
    place = _place(trace, self, key)
    del _change(trace, self)[place]
    return NONE
