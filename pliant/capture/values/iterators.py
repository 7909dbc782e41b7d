"""Iterators over containers, and those of the built-in functions `zip`, `map`, `filter`, …

An iterator is the object it goes over and a position in it; the object is live, as in CPython, so
that changing a list while iterating over it has the same outcome. Each iterator can be made anew in
residual code, in its present state. The iterators of `itertools` are in `combinators`.
"""

from __future__ import annotations

import builtins
from collections import OrderedDict, deque
from collections.abc import Iterator as RealIterator
from typing import TYPE_CHECKING, Any

from pliant.capture.model import advance, binary, call, equal, get_item, truth
from pliant.capture.value import Const, Raised, Value
from pliant.capture.values.containers import (
    Mapping,
    Sequence,
    SetValue,
    plain_tuple,
    value_of_key,
)

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


class _Indexed:
    def __getitem__(self, index: int) -> Any:
        raise IndexError(index)


LIST_ITERATOR: type = type(iter([]))
TUPLE_ITERATOR: type = type(iter(()))
DEQUE_ITERATOR: type = type(iter(deque()))
REVERSED_LIST: type = type(reversed([]))
REVERSED_DEQUE: type = type(reversed(deque()))
SET_ITERATOR: type = type(iter(set()))
CALLABLE_ITERATOR: type = type(iter(int, 1))
INDEX_ITERATOR: type = type(iter(_Indexed()))
ORDERED_ITERATOR: type = type(iter(OrderedDict()))
MAPPING_ITERATORS: dict[tuple[str, bool], type] = {
    ("keys", False): type(iter({}.keys())),
    ("values", False): type(iter({}.values())),
    ("items", False): type(iter({}.items())),
    ("keys", True): type(reversed({}.keys())),
    ("values", True): type(reversed({}.values())),
    ("items", True): type(reversed({}.items())),
}
CONSTANT_ITERATORS: tuple[type, ...] = (
    type(iter("")), type(iter("\u00e9")), type(iter(b"")), type(iter(range(0))),
    type(iter(range(1 << 70))),
)  # fmt: skip
_END: Any = object()


def advanced(emit: Emitter, expression: str, steps: int) -> str:
    """Emit an iterator that has been advanced by `steps`; gives its name."""
    name = emit.fresh("iterator")
    emit.line(f"{name} = {expression}")
    if steps:
        emit.line(f"for _ in range({steps}): next({name})")
    return name


def arguments(emit: Emitter, values: list[Value]) -> str:
    return ", ".join(emit.expression(value) for value in values)


def is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


class Iterator(Value):
    """An iterator. `kind` is its class."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        super().__init__()
        self.kind = kind

    def python_type(self) -> type:
        return self.kind

    def advance(self, trace: Trace) -> Value | None:
        """The next item, or None at the end."""
        raise NotImplementedError

    def dropped(self, trace: Trace) -> None:
        for child in self.children():
            child.dropped(trace)


# ---- over containers


class SequenceIterator(Iterator):
    """`iter(x)` of a list or tuple; `sequence` is None once the end was met."""

    __slots__ = ("index", "sequence")

    def __init__(self, kind: type, sequence: Sequence) -> None:
        super().__init__(kind)
        self.sequence: Sequence | None = sequence
        self.index = 0

    def advance(self, trace: Trace) -> Value | None:
        if self.sequence is None:
            return None
        items, index = self.sequence.items, self.index
        if index < len(items):
            self.index = index + 1
            return items[index]
        self.sequence = None
        return None

    def children(self) -> list[Value]:
        return [] if self.sequence is None else [self.sequence]

    def rebuild(self, emit: Emitter) -> str:
        owner = list if self.kind is LIST_ITERATOR else tuple
        if self.sequence is None:
            return f"iter({owner.__name__}())"
        # the method of the class itself: a subclass may define another __iter__
        expression = f"{emit.constant(owner)}.__iter__({emit.expression(self.sequence)})"
        return _at(emit, expression, self.index)


def _at(emit: Emitter, expression: str, index: int) -> str:
    name = emit.fresh("iterator")
    emit.line(f"{name} = {expression}")
    emit.line(f"{name}.__setstate__({index})")
    return name


class ReversedSequence(Iterator):
    """`reversed(x)` of a list or tuple. `index` is that of the next item, below 0 after the end."""

    __slots__ = ("index", "sequence")

    def __init__(self, kind: type, sequence: Sequence) -> None:
        super().__init__(kind)
        self.sequence = sequence
        self.index = len(sequence.items) - 1

    def advance(self, trace: Trace) -> Value | None:
        index = self.index
        if 0 <= index < len(self.sequence.items):
            self.index = index - 1
            return self.sequence.items[index]
        self.index = -1
        return None

    def children(self) -> list[Value]:
        return [self.sequence]

    def rebuild(self, emit: Emitter) -> str:
        if self.index < 0:
            return "reversed([])" if self.kind is REVERSED_LIST else "reversed(())"
        sequence = emit.expression(self.sequence)
        if self.kind is REVERSED_LIST:
            return _at(emit, f"{emit.constant(list)}.__reversed__({sequence})", self.index)
        return _at(emit, f"reversed({sequence})", self.index)


class DequeIterator(Iterator):
    """`iter(x)` or `reversed(x)` of a deque, which refuses to go on once the deque has changed."""

    __slots__ = ("done", "left", "sequence", "version")

    def __init__(self, kind: type, sequence: Sequence) -> None:
        super().__init__(kind)
        self.sequence = sequence
        self.version = sequence.version
        self.done = 0
        self.left = len(sequence.items)

    def advance(self, trace: Trace) -> Value | None:
        # CPython asks in this order: at its end the reversed iterator doesn't look at the deque.
        if self.kind is REVERSED_DEQUE and not self.left:
            return None
        if self.version != self.sequence.version:
            self.left = 0
            trace.throw(RuntimeError("deque mutated during iteration"))
        if not self.left:
            return None
        self.left -= 1
        self.done += 1
        return self.sequence.items[-self.done if self.kind is REVERSED_DEQUE else self.done - 1]

    def children(self) -> list[Value]:
        return [self.sequence]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.kind)}({emit.expression(self.sequence)}, {self.done})"


class ConstantIterator(Iterator):
    """Over an immutable object that is wholly known: a string, a range, a frozenset."""

    __slots__ = ("done", "obj", "real", "reverse")

    def __init__(self, obj: Any, reverse: bool = False) -> None:
        real: RealIterator[Any] = reversed(obj) if reverse else iter(obj)
        super().__init__(type(real))
        self.obj = obj
        self.real = real
        self.reverse = reverse
        self.done = 0

    def advance(self, trace: Trace) -> Value | None:
        for item in self.real:
            self.done += 1
            return Const(item)
        return None

    def rebuild(self, emit: Emitter) -> str:
        start = "reversed" if self.reverse else "iter"
        return advanced(emit, f"{start}({emit.constant(self.obj)})", self.done)


class SetIterator(Iterator):
    """`iter(x)` of a set."""

    __slots__ = ("done", "real", "set")

    def __init__(self, values: SetValue) -> None:
        super().__init__(SET_ITERATOR)
        self.set = values
        self.real: RealIterator[Any] | None = iter(values.items)
        self.done = 0

    def advance(self, trace: Trace) -> Value | None:
        if self.real is None:
            return None
        try:
            key = next(self.real, _END)
        except RuntimeError as error:  # changed size during iteration
            trace.throw(error)
        if key is _END:
            self.real = None
            return None
        self.done += 1
        return value_of_key(key)

    def children(self) -> list[Value]:
        return [self.set]

    def rebuild(self, emit: Emitter) -> str:
        # The order of a set made anew may be another one: what is left is listed.
        left = [] if self.real is None else list(self.set.items)[self.done :]
        return f"iter([{', '.join(emit.key(key) for key in left)}])"


class MappingIterator(Iterator):
    """Over the keys, values or items of a dictionary, forwards or backwards."""

    __slots__ = ("done", "mapping", "of", "real", "reverse", "size")

    def __init__(self, trace: Trace, mapping: Mapping, of: str, reverse: bool = False) -> None:
        ordered = issubclass(mapping.cls, OrderedDict)
        super().__init__(ORDERED_ITERATOR if ordered else MAPPING_ITERATORS[of, reverse])
        mapping.read_all(trace)
        self.mapping = mapping
        self.of = of
        self.reverse = reverse
        self.real: RealIterator[Any] | None = (
            reversed(mapping.items) if reverse else iter(mapping.items)
        )
        self.size = mapping_size(mapping)
        self.done = 0

    def advance(self, trace: Trace) -> Value | None:
        if self.real is None:
            return None
        # The size, as CPython does: replacing a value is allowed.
        if self.size != mapping_size(self.mapping):
            self.size = -1  # every later attempt fails too
            self._changed(trace)
        try:
            for key in self.real:
                value = self.mapping.items[key]
                if value is not None:
                    self.done += 1
                    return self._item(key, value)
        except RuntimeError:
            self._changed(trace)
        self.real = None
        return None

    def _item(self, key: Any, value: Value) -> Value:
        if self.of == "keys":
            return value_of_key(key)
        return value if self.of == "values" else plain_tuple([value_of_key(key), value])

    def _changed(self, trace: Trace) -> None:
        text = "dictionary changed size during iteration"
        if self.kind is ORDERED_ITERATOR:
            text = "OrderedDict mutated during iteration"
        trace.throw(RuntimeError(text))

    def children(self) -> list[Value]:
        return [self.mapping]

    def rebuild(self, emit: Emitter) -> str:
        start = "reversed" if self.reverse else "iter"
        owner = OrderedDict if self.kind is ORDERED_ITERATOR else dict
        if self.real is None:
            return advanced(emit, f"{start}({emit.constant(owner)}().{self.of}())", 0)
        view = f"{emit.constant(owner)}.{self.of}({emit.expression(self.mapping)})"
        return advanced(emit, f"{start}({view})", self.done)


def mapping_size(mapping: Mapping) -> int:
    """How many items a dictionary has, all of which are read."""
    size = len(mapping.items)
    # Of a dictionary from outside, deleted keys stay as None, to be replayed.
    if mapping.source is not None:
        size -= list(mapping.items.values()).count(None)
    return size


# ---- by protocol


class IndexIterator(Iterator):
    """Over an object that has `__getitem__` but no `__iter__`."""

    __slots__ = ("index", "obj")

    def __init__(self, obj: Value) -> None:
        super().__init__(INDEX_ITERATOR)
        self.obj: Value | None = obj
        self.index = 0

    def advance(self, trace: Trace) -> Value | None:
        if self.obj is None:
            return None
        item = _item_or_none(trace, self.obj, self.index)
        if item is None:
            self.obj = None
        self.index += 1
        return item

    def children(self) -> list[Value]:
        return [] if self.obj is None else [self.obj]

    def rebuild(self, emit: Emitter) -> str:
        if self.obj is None:
            return "iter(())"
        return _at(emit, f"iter({emit.expression(self.obj)})", self.index)


def _item_or_none(trace: Trace, obj: Value, index: int) -> Value | None:
    try:
        return get_item(trace, obj, Const(index))
    except Raised as raised:
        if issubclass(raised.value.python_type(), IndexError | StopIteration):
            return None
        raise


class ReversedIndex(Iterator):
    """`reversed(x)` of an object that has `__len__` and `__getitem__`."""

    __slots__ = ("index", "obj")

    def __init__(self, obj: Value, size: int) -> None:
        super().__init__(reversed)
        self.obj = obj
        self.index = size - 1

    def advance(self, trace: Trace) -> Value | None:
        if self.index < 0:
            return None
        item = _item_or_none(trace, self.obj, self.index)
        self.index = self.index - 1 if item is not None else -1
        return item

    def children(self) -> list[Value]:
        return [self.obj]

    def rebuild(self, emit: Emitter) -> str:
        if self.index < 0:
            return "reversed(())"
        return _at(emit, f"reversed({emit.expression(self.obj)})", self.index)


class CallableIterator(Iterator):
    """`iter(function, sentinel)`."""

    __slots__ = ("function", "sentinel")

    def __init__(self, function: Value, sentinel: Value) -> None:
        super().__init__(CALLABLE_ITERATOR)
        self.function: Value | None = function
        self.sentinel = sentinel

    def advance(self, trace: Trace) -> Value | None:
        if self.function is None:
            return None
        try:
            item = call(trace, self.function, [])
        except Raised as raised:
            if not issubclass(raised.value.python_type(), StopIteration):
                raise
            # A StopIteration from the function ends the iterator, as its sentinel does.
            item = self.sentinel
        if equal(trace, self.sentinel, item):
            self.function = None
            return None
        return item

    def children(self) -> list[Value]:
        return [] if self.function is None else [self.function, self.sentinel]

    def rebuild(self, emit: Emitter) -> str:
        if self.function is None:
            return "iter(int, 0)"
        return f"iter({emit.expression(self.function)}, {emit.expression(self.sentinel)})"


# ---- zip, enumerate, map, filter


class Zip(Iterator):
    """`zip(*iterators, strict=strict)`."""

    __slots__ = ("iterators", "strict")

    def __init__(self, iterators: list[Value], strict: bool = False) -> None:
        super().__init__(zip)
        self.iterators = iterators
        self.strict = strict

    def advance(self, trace: Trace) -> Value | None:
        if not self.iterators:
            return None
        items: list[Value] = []
        for iterator in self.iterators:
            item = advance(trace, iterator)
            if item is None:
                if self.strict:
                    self._check_ends(trace, len(items))
                return None
            items.append(item)
        return plain_tuple(items)

    def _check_ends(self, trace: Trace, place: int) -> None:
        if place:
            trace.throw(ValueError(f"zip() argument {place + 1} is shorter than {_before(place)}"))
        # The first iterator has ended: with `strict` all others have to, too.
        for other in range(1, len(self.iterators)):
            if advance(trace, self.iterators[other]) is not None:
                text = f"zip() argument {other + 1} is longer than {_before(other)}"
                trace.throw(ValueError(text))

    def children(self) -> list[Value]:
        return self.iterators

    def rebuild(self, emit: Emitter) -> str:
        strict = ", strict=True" if self.strict and self.iterators else ""
        return f"zip({arguments(emit, self.iterators)}{strict})"


def _before(place: int) -> str:
    return "argument 1" if place == 1 else f"arguments 1-{place}"


class Enumerate(Iterator):
    """`enumerate(iterator, index)`."""

    __slots__ = ("index", "iterator")

    def __init__(self, iterator: Value, index: Value) -> None:
        super().__init__(enumerate)
        self.iterator = iterator
        self.index = index

    def advance(self, trace: Trace) -> Value | None:
        item = advance(trace, self.iterator)
        if item is None:
            return None
        index = self.index
        if isinstance(index, Const):
            self.index = Const(index.value + 1)
        else:
            self.index = binary(trace, "+", index, Const(1))
        return plain_tuple([index, item])

    def children(self) -> list[Value]:
        return [self.iterator, self.index]

    def rebuild(self, emit: Emitter) -> str:
        return f"enumerate({arguments(emit, [self.iterator, self.index])})"


class Map(Iterator):
    """`map(function, *iterators)`."""

    __slots__ = ("function", "iterators")

    def __init__(self, function: Value, iterators: list[Value]) -> None:
        super().__init__(builtins.map)
        self.function = function
        self.iterators = iterators

    def advance(self, trace: Trace) -> Value | None:
        items = []
        for iterator in self.iterators:
            item = advance(trace, iterator)
            if item is None:
                return None
            items.append(item)
        return call(trace, self.function, items)

    def children(self) -> list[Value]:
        return [self.function, *self.iterators]

    def rebuild(self, emit: Emitter) -> str:
        return f"map({arguments(emit, self.children())})"


class Filter(Iterator):
    """`filter(function, iterator)`, or with `kind` `itertools.filterfalse` its opposite."""

    __slots__ = ("function", "iterator")

    def __init__(self, kind: type, function: Value, iterator: Value) -> None:
        super().__init__(kind)
        self.function = function
        self.iterator = iterator

    def advance(self, trace: Trace) -> Value | None:
        expected = self.kind is filter
        test = None if is_none(self.function) else self.function
        while (item := advance(trace, self.iterator)) is not None:
            result = item if test is None else call(trace, test, [item])
            if truth(trace, result) is expected:
                return item
        return None

    def children(self) -> list[Value]:
        return [self.function, self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.kind)}({arguments(emit, self.children())})"
