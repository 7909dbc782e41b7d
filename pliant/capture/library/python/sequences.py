"""Methods of lists, tuples, named tuples and `torch.Size`. (Deques are in `stdlib/deques.py`.)

Items are moved about without being looked at, so that storing a value in a list assumes nothing of
it. Only equality, order and truth ask the items.
"""

from __future__ import annotations

import numbers
import operator
from collections import deque, namedtuple
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pliant.capture.indexing import own_index
from pliant.capture.library.python.classes import class_of
from pliant.capture.library.python.objects import REPR, shown
from pliant.capture.library.python.symbolic_numbers import item_at
from pliant.capture.model import (
    COMPARE,
    DESCRIPTORS,
    advance,
    binary,
    call,
    call_special,
    compare,
    drain,
    equal,
    iterate,
    truth,
    type_name,
)
from pliant.capture.native import METHODS, method
from pliant.capture.value import (
    NONE,
    NOT_IMPLEMENTED,
    Break,
    Const,
    NotConstant,
    Raised,
    Value,
    boolean,
    has_python_method,
)
from pliant.capture.values.containers import Sequence, plain_list, plain_tuple
from pliant.capture.values.conversion import known_object
from pliant.capture.values.iterators import (
    LIST_ITERATOR,
    REVERSED_LIST,
    TUPLE_ITERATOR,
    ReversedSequence,
    SequenceIterator,
    is_none,
)
from pliant.capture.values.number import Number, has_number
from pliant.capture.values.objects import SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
NO_INDEX = "'{}' object cannot be interpreted as an integer"
NO_SLICE_INDEX = "slice indices must be integers or have an __index__ method"


# ---- shared with the other containers


def items_of(value: Value) -> list[Value]:
    """The items of a list or tuple; a tuple may also be a constant."""
    if isinstance(value, Sequence):
        return value.items
    return [Const(item) for item in value.constant()]


def is_a(value: Value, cls: type) -> bool:
    return issubclass(value.python_type(), cls)


def as_index(trace: Trace, value: Value, problem: str = NO_INDEX) -> int:
    """`operator.index(value)`; `problem` is the message for what is no integer."""
    value = trace.read(value)
    if isinstance(value, Const) and isinstance(value.value, int):
        return value.value
    index = own_index(trace, value)
    if index is None:
        trace.throw(TypeError(problem.format(type_name(value.python_type()))))
    return operator.index(index.constant())


def as_slice(trace: Trace, value: Value) -> slice | None:
    """The slice that `value` is, or None."""
    if isinstance(value, SliceValue):
        parts = [trace.read(part) for part in value.parts]
        problem = "slice indices must be integers or None or have an __index__ method"
        return slice(*[None if is_none(p) else as_index(trace, p, problem) for p in parts])
    return value.constant() if value.python_type() is slice else None


def run_real(trace: Trace, action: Callable[..., Any], *args: Any) -> Any:
    """Run C code on the items. What it raises is raised in the captured program."""
    try:
        return action(*args)
    except (TypeError, ValueError, IndexError) as error:
        trace.throw(error)


def not_found(trace: Trace, value: Value, kind: str, method: str = "index") -> NoReturn:
    try:
        text = repr(known_object(value, trace))
    except NotConstant:
        text = shown(trace, value)
    trace.throw(ValueError(NOT_FOUND.get((kind, method), f"{text} is not in {kind}")))


def _words_of(container: Any, name: str) -> str | None:
    """What this Python says without showing the object, if it does so."""
    try:
        getattr(container, name)("wanted")
    except ValueError as error:
        return None if "wanted" in str(error) else str(error)
    return None


_ASKED: dict[tuple[str, str], Any] = {
    ("list", "index"): [],
    ("deque", "index"): deque(),
    ("deque", "remove"): deque(),
}
NOT_FOUND = {
    asked: words for asked, empty in _ASKED.items() if (words := _words_of(empty, asked[1]))
}


def find(trace: Trace, items: list[Value], target: Value, start: int, stop: int) -> int | None:
    """The first index below `stop` of an item equal to `target`; the list may change meanwhile."""
    target = trace.read(target)
    index = start
    # The length is asked again each time: an `__eq__` of the program may change the list.
    while index < stop and index < len(items):
        if equal(trace, items[index], target):
            return index
        index += 1
    return None


def bounds(trace: Trace, size: int, limits: tuple[Value, ...]) -> tuple[int, int]:
    """The optional `start` and `stop` of `index`, which count from the end where negative."""
    indices = [as_index(trace, limit, NO_SLICE_INDEX) for limit in limits]
    indices = [max(limit + size, 0) if limit < 0 else limit for limit in indices]
    start, stop, *_ = [*indices, *[0, size][len(indices) :]]
    return start, stop


def count_equal(trace: Trace, items: list[Value], target: Value) -> Value:
    target = trace.read(target)
    return Const(sum(equal(trace, item, target) for item in list(items)))


def compare_items(
    trace: Trace, symbol: str, left: list[Value], right: list[Value], cls: type = list
) -> Value:
    """Compare by the first items that differ, then by length."""
    # No item is compared then, but of tuples, as in CPython: a program may see what calls `__eq__`.
    if symbol in ("==", "!=") and len(left) != len(right) and not issubclass(cls, tuple):
        return boolean(symbol == "!=")
    for item, other in zip(left, right, strict=False):
        if not equal(trace, item, other):
            if symbol in ("==", "!="):
                return boolean(symbol == "!=")
            return compare(trace, symbol, item, other)
    return compare(trace, symbol, Const(len(left)), Const(len(right)))


COMPARISONS = {method: symbol for symbol, (method, _, _) in COMPARE.items()}


def register_comparisons(cls: type) -> None:
    """Register the comparisons of `cls` with its own kind, item by item."""

    def make(symbol: str) -> Callable[..., Value]:
        def handler(trace: Trace, self: Value, other: Value) -> Value:
            other = trace.read(other)
            if not is_a(other, cls):
                return NOT_IMPLEMENTED
            return compare_items(trace, symbol, items_of(self), items_of(other), cls)

        return handler

    for name, symbol in COMPARISONS.items():
        method(cls, name)(make(symbol))


def has_own_operator(trace: Trace, value: Value, name: str) -> bool:
    """Whether the class of the right operand defines the reflected operator in Python."""
    return has_python_method(trace, value.python_type(), name)


LONGEST = 1 << 24  # items that a capture makes values of


def times(trace: Trace, self: Value, count: Value) -> int | None:
    """The factor of a repetition, or None if the other operand's class has a `__rmul__` in
    Python."""
    count = trace.read(count)
    if has_own_operator(trace, count, "__rmul__"):
        return None
    factor = as_index(trace, count, "can't multiply sequence by non-int of type '{}'")
    if factor > LONGEST:
        raise Break("operation-raises", "a sequence that memory can't hold")
    return factor


def register_repr(cls: type) -> None:
    """`cls.__repr__`, called by its name or through `super()`."""
    shower = REPR[cls.__repr__]
    method(cls, "__repr__")(lambda trace, self: Const(shower(trace, self)))


# ---- slices


def _register_slice_part(index: int, name: str) -> None:
    def part(trace: Trace, self: Value) -> Value:
        if isinstance(self, SliceValue):
            return self.parts[index]
        return Const(getattr(self.constant(), name))

    method(slice, name)(part)


for _index, _name in enumerate(("start", "stop", "step")):
    _register_slice_part(_index, _name)


def _slice_parts(value: Value) -> list[Value]:
    if isinstance(value, SliceValue):
        return value.parts
    return [Const(getattr(value.constant(), name)) for name in ("start", "stop", "step")]


def _register_slice_comparison(name: str, symbol: str) -> None:
    def compare_slices(trace: Trace, self: Value, other: Value) -> Value:
        other = trace.read(other)
        if not is_a(other, slice):
            return NOT_IMPLEMENTED
        return compare_items(trace, symbol, _slice_parts(self), _slice_parts(other), tuple)

    method(slice, name)(compare_slices)


for _name, _symbol in COMPARISONS.items():
    _register_slice_comparison(_name, _symbol)


@method(slice, "indices")
def slice_indices(trace: Trace, self: Value, size: Value) -> Value:
    selection = as_slice(trace, self)
    assert selection is not None
    indices = run_real(trace, selection.indices, as_index(trace, size))
    return plain_tuple([Const(number) for number in indices])


# ---- lists and tuples alike


def _length(trace: Trace, self: Value) -> Value:
    return Const(len(self.items) if isinstance(self, Sequence) else len(self.constant()))


method(list, "__len__")(_length)
method(tuple, "__len__")(_length)
register_comparisons(list)
register_comparisons(tuple)
if "__eq__" in vars(torch.Size):  # of PyTorch for Python 3.14: as of a tuple
    for _name in COMPARISONS:
        METHODS[torch.Size, _name] = METHODS[tuple, _name]
register_repr(list)
register_repr(tuple)


@method(list, "__contains__")
@method(tuple, "__contains__")
def sequence_contains(trace: Trace, self: Value, item: Value) -> Value:
    items = items_of(self)
    return boolean(find(trace, items, item, 0, len(items)) is not None)


@method(list, "count")
@method(tuple, "count")
def sequence_count(trace: Trace, self: Value, item: Value) -> Value:
    return count_equal(trace, items_of(self), item)


@method(list, "index")
def list_index(trace: Trace, self: Sequence, item: Value, *limits: Value) -> Value:
    index = find(trace, self.items, item, *bounds(trace, len(self.items), limits))
    if index is None:
        not_found(trace, item, "list")
    return Const(index)


@method(tuple, "index")
def tuple_index(trace: Trace, self: Value, item: Value, *limits: Value) -> Value:
    items = items_of(self)
    index = find(trace, items, item, *bounds(trace, len(items), limits))
    if index is None:
        trace.throw(ValueError("tuple.index(x): x not in tuple"))
    return Const(index)


def _get(trace: Trace, self: Value, key: Value, name: str) -> Value | list[Value]:
    """The item at an index, or the items of a slice."""
    items = items_of(self)
    key = trace.read(key)
    selection = as_slice(trace, key)
    if selection is not None:
        return run_real(trace, operator.getitem, items, selection)
    if isinstance(key, TensorValue):
        key = trace.read(call_special(trace, key, "__index__") or key)
    if isinstance(key, Number) and (item := item_at(trace, items, key)) is not None:
        return item
    index = as_index(trace, key, f"{name} indices must be integers or slices, not {{}}")
    if not -len(items) <= index < len(items):
        run_real(trace, operator.getitem, () if name == "tuple" else [], index)  # raises
    return items[index]


@method(list, "__getitem__")
def list_getitem(trace: Trace, self: Sequence, key: Value) -> Value:
    item = _get(trace, self, key, "list")
    return plain_list(item) if isinstance(item, list) else item


@method(tuple, "__getitem__")
def tuple_getitem(trace: Trace, self: Value, key: Value) -> Value:
    item = _get(trace, self, key, "tuple")
    return plain_tuple(item) if isinstance(item, list) else item


def _get_constant(trace: Trace, self: Value, key: Value) -> Value:
    """An item or slice of a constant, for a key that is an object with `__index__`."""
    key = trace.read(key)
    selection = as_slice(trace, key)
    cls = next(cls for cls in _KEYS if is_a(self, cls))
    index = as_index(trace, key, _KEYS[cls]) if selection is None else selection
    return Const(run_real(trace, cls.__getitem__, self.constant(), index))


_KEYS: dict[Any, str] = {
    range: "range indices must be integers or slices, not {}",
    str: "string indices must be integers, not '{}'",
    bytes: "byte indices must be integers or slices, not {}",
}
for _cls in _KEYS:
    method(_cls, "__getitem__")(_get_constant)


def _concatenate(trace: Trace, self: Value, other: Value, cls: type) -> list[Value] | None:
    other = trace.read(other)
    if has_own_operator(trace, other, "__radd__"):
        return None
    if is_a(other, cls):
        return [*items_of(self), *items_of(other)]
    name, other_name = cls.__name__, type_name(other.python_type())
    trace.throw(TypeError(f'can only concatenate {name} (not "{other_name}") to {name}'))


@method(list, "__add__")
def list_add(trace: Trace, self: Sequence, other: Value) -> Value:
    items = _concatenate(trace, self, other, list)
    return NOT_IMPLEMENTED if items is None else plain_list(items)


@method(tuple, "__add__")
def tuple_add(trace: Trace, self: Value, other: Value) -> Value:
    items = _concatenate(trace, self, other, tuple)
    return NOT_IMPLEMENTED if items is None else plain_tuple(items)


@method(list, "__mul__", "__rmul__")
def list_mul(trace: Trace, self: Sequence, count: Value) -> Value:
    factor = times(trace, self, count)
    return NOT_IMPLEMENTED if factor is None else plain_list(self.items * factor)


@method(tuple, "__mul__", "__rmul__")
def tuple_mul(trace: Trace, self: Value, count: Value) -> Value:
    factor = times(trace, self, count)
    return NOT_IMPLEMENTED if factor is None else plain_tuple(items_of(self) * factor)


@method(list, "__iter__")
def list_iter(trace: Trace, self: Sequence) -> Value:
    return SequenceIterator(LIST_ITERATOR, self)


@method(list, "__reversed__")
def list_reversed(trace: Trace, self: Sequence) -> Value:
    return ReversedSequence(REVERSED_LIST, self)


@method(tuple, "__iter__")
def tuple_iter(trace: Trace, self: Value) -> Value:
    return SequenceIterator(TUPLE_ITERATOR, as_sequence(self))


def as_sequence(value: Value) -> Sequence:
    return value if isinstance(value, Sequence) else Sequence(value.python_type(), items_of(value))


@method(tuple, "__hash__")
def tuple_hash(trace: Trace, self: Value) -> Value:
    try:
        real = self.constant()
    except NotConstant:
        real = None
    if real is not None:
        return Const(run_real(trace, hash, real))
    hashes = [call_special(trace, item, "__hash__") for item in items_of(self)]
    for item, item_hash in zip(items_of(self), hashes, strict=True):
        if item_hash is None:
            name = type_name(trace.read(item).python_type())
            trace.throw(TypeError(f"unhashable type: '{name}'"))
    # the hash of a small integer is that integer, and hashes stay what they are when hashed again
    return Const(
        hash(
            tuple(trace.read(item_hash).constant() for item_hash in hashes if item_hash is not None)
        )
    )


@method(tuple, "__getnewargs__")
def tuple_getnewargs(trace: Trace, self: Value) -> Value:
    return plain_tuple([plain_tuple(list(items_of(self)))])


_Example = namedtuple("_Example", "field")


def _named_field(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    """A field of a named tuple: the descriptor knows its index."""
    index, _ = descriptor.__reduce__()[1]
    return items_of(obj)[index]


DESCRIPTORS[type(_Example.__dict__["field"])] = _named_field


# ---- changing lists


@method(list, "append")
def list_append(trace: Trace, self: Sequence, item: Value) -> Value:
    self.append(trace, item)
    return NONE


@method(list, "extend")
def list_extend(trace: Trace, self: Sequence, iterable: Value) -> Value:
    iterable = trace.read(iterable)
    if isinstance(iterable, Sequence) and (iterable is self or iterable.cls in (list, tuple)):
        for item in list(iterable.items):
            self.append(trace, item)
        return NONE
    iterator = iterate(trace, iterable)
    # One by one: an iterator of the program may look at the list meanwhile.
    while (following := advance(trace, iterator)) is not None:
        self.append(trace, following)
    return NONE


@method(list, "__iadd__")
def list_iadd(trace: Trace, self: Sequence, iterable: Value) -> Value:
    if self.cls is list and has_own_operator(trace, trace.read(iterable), "__radd__"):
        raise Break("operation-raises", "+= of a list and an object with __radd__")
    list_extend(trace, self, iterable)
    return self


@method(list, "__imul__")
def list_imul(trace: Trace, self: Sequence, count: Value) -> Value:
    factor = times(trace, self, count)
    if factor is None:
        return NOT_IMPLEMENTED
    trace.mutate(self)
    self.items *= factor
    return self


@method(list, "insert")
def list_insert(trace: Trace, self: Sequence, index: Value, item: Value) -> Value:
    place = as_index(trace, index)
    trace.mutate(self)
    self.items.insert(place, item)
    return NONE


@method(list, "pop")
def list_pop(trace: Trace, self: Sequence, index: Value | None = None) -> Value:
    place = -1 if index is None else as_index(trace, index)
    if not self.items:
        trace.throw(IndexError("pop from empty list"))
    if not -len(self.items) <= place < len(self.items):
        trace.throw(IndexError("pop index out of range"))
    trace.mutate(self)
    return self.items.pop(place)


@method(list, "remove")
def list_remove(trace: Trace, self: Sequence, item: Value) -> Value:
    index = find(trace, self.items, item, 0, len(self.items))
    if index is None:
        trace.throw(ValueError("list.remove(x): x not in list"))
    trace.mutate(self)
    del self.items[index]
    return NONE


@method(list, "clear")
def list_clear(trace: Trace, self: Sequence) -> Value:
    trace.mutate(self)
    self.items.clear()
    return NONE


@method(list, "copy")
def list_copy(trace: Trace, self: Sequence) -> Value:
    return plain_list(list(self.items))


@method(list, "reverse")
def list_reverse(trace: Trace, self: Sequence) -> Value:
    trace.mutate(self)
    self.items.reverse()
    return NONE


@method(list, "__setitem__")
def list_setitem(trace: Trace, self: Sequence, key: Value, value: Value) -> Value:
    key = trace.read(key)
    selection = as_slice(trace, key)
    if selection is None:
        index = _place(trace, self, key)
        trace.mutate(self)
        self.items[index] = value
        return NONE
    # Before `mutate`: an error must leave the list as it is.
    items = _assignable(trace, selection, value)
    trace.mutate(self)
    run_real(trace, operator.setitem, self.items, selection, items)
    return NONE


def _assignable(trace: Trace, selection: slice, value: Value) -> list[Value]:
    value = trace.read(value)
    cls = value.python_type()
    if trace.lookup(cls, "__iter__") is MISSING and trace.lookup(cls, "__getitem__") is MISSING:
        run_real(trace, operator.setitem, [], selection, None)
    try:
        iterator = iterate(trace, value)
    except Raised as raised:
        if raised.value.python_type() is not TypeError:
            raise
        run_real(trace, operator.setitem, [], selection, None)
    return drain(trace, iterator)


def _place(trace: Trace, self: Sequence, key: Value) -> int:
    index = as_index(trace, key, "list indices must be integers or slices, not {}")
    if not -len(self.items) <= index < len(self.items):
        trace.throw(IndexError("list assignment index out of range"))
    return index


@method(list, "__delitem__")
def list_delitem(trace: Trace, self: Sequence, key: Value) -> Value:
    key = trace.read(key)
    selection = as_slice(trace, key)
    place: int | slice = _place(trace, self, key) if selection is None else selection
    trace.mutate(self)
    run_real(trace, operator.delitem, self.items, place)
    return NONE


# ---- sorting


@method(list, "sort")
def list_sort(
    trace: Trace,
    self: Sequence,
    *,
    key: Value = NONE,
    reverse: Value = Const(False),  # noqa: B008
) -> Value:
    ordered = sorted_items(trace, self.items, key, reverse)
    trace.mutate(self)
    self.items[:] = ordered
    return NONE


def sorted_items(trace: Trace, items: list[Value], key: Value, reverse: Value) -> list[Value]:
    """`items` in order. Python's own sort does the work, so comparisons happen in its order."""
    backwards = bool(as_index(trace, reverse))
    key = trace.read(key)
    keys = list(items) if is_none(key) else [call(trace, key, [item]) for item in items]
    read = [trace.read(item) for item in keys]
    real = [known_key(item) for item in read]
    marks: list[Any] = read
    # Real objects where possible: comparing values one by one is slow.
    if all(constant for constant, _ in real):
        marks = [mark for _, mark in real]
    else:
        marks = [_Ordered(trace, item) for item in read]
    # Sorting indices leaves the items alone: they need not be known.
    order = run_real(trace, _sorted_indices, marks, backwards)
    return [items[index] for index in order]


def _sorted_indices(marks: list[Any], backwards: bool) -> list[int]:
    return sorted(range(len(marks)), key=marks.__getitem__, reverse=backwards)


def known_key(value: Value) -> tuple[bool, Any]:
    """Whether `value` can be compared by Python itself, and the object to compare."""
    if isinstance(value, Number) or has_number(value):
        return False, None
    try:
        real = value.constant()
    except NotConstant:
        return False, None
    return _is_plain(real), real


def _is_plain(real: Any) -> bool:
    return type(real) in PLAIN or (type(real) is tuple and all(map(_is_plain, real)))


class _Ordered:
    """An item while it is sorted: `<` is that of the captured program."""

    __slots__ = ("trace", "value")

    def __init__(self, trace: Trace, value: Value) -> None:
        self.trace = trace
        self.value = value

    def __lt__(self, other: _Ordered) -> bool:
        return truth(self.trace, compare(self.trace, "<", self.value, other.value))


# ---- torch.Size


def _size(items: list[Value]) -> Sequence:
    return Sequence(torch.Size, items)


@method(torch.Size, "__new__")
def size_new(trace: Trace, cls: Value, iterable: Value | None = None) -> Value:
    items = [] if iterable is None else drain(trace, iterable)
    return Sequence(class_of(trace, cls), _sizes(trace, items))


def _sizes(trace: Trace, items: list[Value]) -> list[Value]:
    """`items` as sizes: integers of Python and of NumPy stay what they are, symbolic or not."""
    checked = []
    for place, item in enumerate(items):
        item = trace.read(item)
        cls = item.python_type()
        try:
            stays = cls is not bool and issubclass(cls, numbers.Integral)
            checked.append(item if stays else Const(int(as_index(trace, item))))
        except Raised:
            text = f"torch.Size() takes an iterable of 'int' (item {place} is '{type_name(cls)}')"
            trace.throw(TypeError(text))
    return checked


@method(torch.Size, "numel")
def size_numel(trace: Trace, self: Value) -> Value:
    total: Value = Const(1)
    for item in map(trace.read, items_of(self)):
        plain = item.python_type() is int
        total = binary(trace, "*", total, item if plain else Const(int(as_index(trace, item))))
    return total


@method(torch.Size, "__getitem__")
def size_getitem(trace: Trace, self: Value, key: Value) -> Value:
    item = _get(trace, self, key, "tuple")
    return _size(item) if isinstance(item, list) else item


@method(torch.Size, "__add__")
def size_add(trace: Trace, self: Value, other: Value) -> Value:
    return _joined_sizes(trace, self, other, swap=False)


@method(torch.Size, "__radd__")
def size_radd(trace: Trace, self: Value, other: Value) -> Value:
    return _joined_sizes(trace, self, other, swap=True)


def _joined_sizes(trace: Trace, self: Value, other: Value, swap: bool) -> Value:
    other = trace.read(other)
    if not is_a(other, tuple):
        if swap or has_own_operator(trace, other, "__radd__"):
            return NOT_IMPLEMENTED
        other_name = type_name(other.python_type())
        trace.throw(TypeError(f"can only concatenate tuple (not {other_name}) to torch.Size"))
    first, second = (other, self) if swap else (self, other)
    return _size(_sizes(trace, [*items_of(first), *items_of(second)]))


@method(torch.Size, "__mul__", "__rmul__")
def size_mul(trace: Trace, self: Value, count: Value) -> Value:
    factor = times(trace, self, count)
    return NOT_IMPLEMENTED if factor is None else _size(items_of(self) * factor)


@method(torch.Size, "__repr__")
def size_repr(trace: Trace, self: Value) -> Value:
    return Const(f"torch.Size([{', '.join(shown(trace, item) for item in items_of(self))}])")
