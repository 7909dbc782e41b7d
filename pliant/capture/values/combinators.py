"""The iterators of `itertools`, over values.

Each keeps the state that CPython's does, which `rebuild` expresses with the same class of iterator:
what was consumed early (a saved item, a running total) is put back in front of the iterator below.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator as RealIterator
from typing import TYPE_CHECKING, Any

from pliant.capture.model import advance, binary, call, drain, equal, iterate, truth
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import plain_tuple
from pliant.capture.values.iterators import Iterator, advanced, arguments, is_none

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

TEE: type = type(itertools.tee(())[0])
GROUP: type = type(next(itertools.groupby((1,)))[1])
BATCHED: type | None = getattr(itertools, "batched", None)  # Python 3.12


class Chain(Iterator):
    """`chain.from_iterable(iterables)`; `active` is the one being gone over."""

    __slots__ = ("active", "iterables")

    def __init__(self, iterables: Value) -> None:
        super().__init__(itertools.chain)
        self.iterables = iterables
        self.active: Value | None = None

    def advance(self, trace: Trace) -> Value | None:
        while True:
            if self.active is None:
                following = advance(trace, self.iterables)
                if following is None:
                    return None
                self.active = iterate(trace, following)
            item = advance(trace, self.active)
            if item is not None:
                return item
            self.active = None

    def children(self) -> list[Value]:
        return [self.iterables] if self.active is None else [self.active, self.iterables]

    def rebuild(self, emit: Emitter) -> str:
        chain = emit.constant(itertools.chain)
        rest = f"{chain}.from_iterable({emit.expression(self.iterables)})"
        return rest if self.active is None else f"{chain}({emit.expression(self.active)}, {rest})"


class Islice(Iterator):
    """`islice(iterator, next, stop, step)`, of which `count` items have been taken so far."""

    __slots__ = ("count", "iterator", "next", "step", "stop")

    def __init__(self, iterator: Value, start: int, stop: int | None, step: int) -> None:
        super().__init__(itertools.islice)
        self.iterator: Value | None = iterator
        self.next = start
        self.stop = stop
        self.step = step
        self.count = 0

    def advance(self, trace: Trace) -> Value | None:
        if self.iterator is None:
            return None
        stop = self.stop
        # Skip to the next index that is wanted.
        while self.count < self.next:
            if advance(trace, self.iterator) is None:
                self.iterator = None
                return None
            self.count += 1
        item = None
        if stop is None or self.count < stop:
            item = advance(trace, self.iterator)
        if item is None:
            self.iterator = None
            return None
        self.count += 1
        self.next += self.step
        if stop is not None and self.next > stop:
            self.next = stop
        return item

    def children(self) -> list[Value]:
        return [] if self.iterator is None else [self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        islice = emit.constant(itertools.islice)
        if self.iterator is None:
            return f"{islice}((), 0)"
        stop = None if self.stop is None else self.stop - self.count
        bounds = f"{self.next - self.count}, {stop}, {self.step}"
        return f"{islice}({emit.expression(self.iterator)}, {bounds})"


class Count(Iterator):
    """`count(start, step)`."""

    __slots__ = ("number", "step")

    def __init__(self, number: Value, step: Value) -> None:
        super().__init__(itertools.count)
        self.number = number
        self.step = step

    def advance(self, trace: Trace) -> Value | None:
        number = self.number
        self.number = binary(trace, "+", number, self.step)
        return number

    def children(self) -> list[Value]:
        return [self.number, self.step]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(itertools.count)}({arguments(emit, self.children())})"


class Cycle(Iterator):
    """`cycle(iterator)`; `saved` are the items so far, repeated from `index` after the end."""

    __slots__ = ("index", "iterator", "saved")

    def __init__(self, iterator: Value) -> None:
        super().__init__(itertools.cycle)
        self.iterator: Value | None = iterator
        self.saved: list[Value] = []
        self.index = 0

    def advance(self, trace: Trace) -> Value | None:
        # The first round: items are saved for the next ones.
        if self.iterator is not None:
            item = advance(trace, self.iterator)
            if item is not None:
                self.saved.append(item)
                return item
            self.iterator = None
        if not self.saved:
            return None
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item

    def children(self) -> list[Value]:
        return [*self.saved, *([] if self.iterator is None else [self.iterator])]

    def rebuild(self, emit: Emitter) -> str:
        cycle = emit.constant(itertools.cycle)
        if self.iterator is None:
            turned = [*self.saved[self.index :], *self.saved[: self.index]]
            return f"{cycle}({emit.sequence_of(turned)})"
        parts = f"{emit.expression(self.iterator)}, {emit.sequence_of(self.saved)}"
        return f"{cycle}({emit.constant(itertools.chain)}({parts}))"


class Repeat(Iterator):
    """`repeat(item)`, or `repeat(item, times)`."""

    __slots__ = ("item", "times")

    def __init__(self, item: Value, times: int | None) -> None:
        super().__init__(itertools.repeat)
        self.item = item
        self.times = times

    def advance(self, trace: Trace) -> Value | None:
        if self.times is not None:
            if self.times <= 0:
                return None
            self.times -= 1
        return self.item

    def children(self) -> list[Value]:
        return [self.item]

    def rebuild(self, emit: Emitter) -> str:
        times = "" if self.times is None else f", {self.times}"
        return f"{emit.constant(itertools.repeat)}({emit.expression(self.item)}{times})"


class Accumulate(Iterator):
    """`accumulate(iterator, function, initial=...)`; `total` is None before the first item."""

    __slots__ = ("function", "initial", "iterator", "total")

    def __init__(self, iterator: Value, function: Value, initial: Value) -> None:
        super().__init__(itertools.accumulate)
        self.iterator = iterator
        self.function = function
        self.initial: Value | None = None if is_none(initial) else initial
        self.total: Value | None = None

    def advance(self, trace: Trace) -> Value | None:
        if self.initial is not None:
            self.total, self.initial = self.initial, None
            return self.total
        item = advance(trace, self.iterator)
        if item is None:
            return None
        if self.total is None:
            self.total = item
        elif is_none(self.function):
            self.total = binary(trace, "+", self.total, item)
        else:
            self.total = call(trace, self.function, [self.total, item])
        return self.total

    def children(self) -> list[Value]:
        extra = [value for value in (self.initial, self.total) if value is not None]
        return [self.iterator, self.function, *extra]

    def rebuild(self, emit: Emitter) -> str:
        accumulate = emit.constant(itertools.accumulate)
        parts = arguments(emit, [self.iterator, self.function])
        first = self.initial if self.initial is not None else self.total
        if first is None:
            return f"{accumulate}({parts})"
        iterator = f"{accumulate}({parts}, initial={emit.expression(first)})"
        return iterator if self.initial is not None else advanced(emit, iterator, 1)


class Starmap(Iterator):
    """`starmap(function, iterator)`."""

    __slots__ = ("function", "iterator")

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__(itertools.starmap)
        self.function = function
        self.iterator = iterator

    def advance(self, trace: Trace) -> Value | None:
        item = advance(trace, self.iterator)
        return None if item is None else call(trace, self.function, drain(trace, item))

    def children(self) -> list[Value]:
        return [self.function, self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.kind)}({arguments(emit, self.children())})"


class Takewhile(Iterator):
    """`takewhile(function, iterator)`; `function` is None once it has said no."""

    __slots__ = ("function", "iterator")

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__(itertools.takewhile)
        self.function: Value | None = function
        self.iterator = iterator

    def advance(self, trace: Trace) -> Value | None:
        if self.function is None:
            return None
        item = advance(trace, self.iterator)
        if item is None:
            return None
        if truth(trace, call(trace, self.function, [item])):
            return item
        self.function = None
        return None

    def children(self) -> list[Value]:
        return [] if self.function is None else [self.function, self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        parts = "None, ()" if self.function is None else arguments(emit, self.children())
        return f"{emit.constant(self.kind)}({parts})"


class Dropwhile(Iterator):
    """`dropwhile(function, iterator)`; `function` is None once it has said no."""

    __slots__ = ("function", "iterator")

    def __init__(self, function: Value, iterator: Value) -> None:
        super().__init__(itertools.dropwhile)
        self.function: Value | None = function
        self.iterator = iterator

    def advance(self, trace: Trace) -> Value | None:
        while (item := advance(trace, self.iterator)) is not None:
            if self.function is None:
                return item
            if not truth(trace, call(trace, self.function, [item])):
                self.function = None
                return item
        return None

    def children(self) -> list[Value]:
        return [*([] if self.function is None else [self.function]), self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        # nothing is in the empty tuple: says no to the first item and is then not asked again
        test = "().__contains__" if self.function is None else emit.expression(self.function)
        return f"{emit.constant(self.kind)}({test}, {emit.expression(self.iterator)})"


class Compress(Iterator):
    """`compress(data, selectors)`."""

    __slots__ = ("data", "selectors")

    def __init__(self, data: Value, selectors: Value) -> None:
        super().__init__(itertools.compress)
        self.data = data
        self.selectors = selectors

    def advance(self, trace: Trace) -> Value | None:
        while (item := advance(trace, self.data)) is not None:
            selector = advance(trace, self.selectors)
            if selector is None:
                return None
            if truth(trace, selector):
                return item
        return None

    def children(self) -> list[Value]:
        return [self.data, self.selectors]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.kind)}({arguments(emit, self.children())})"


class ZipLongest(Iterator):
    """`zip_longest(*iterators, fillvalue=...)`; None stands for an iterator that has ended."""

    __slots__ = ("fill_value", "iterators")

    def __init__(self, iterators: list[Value], fill_value: Value) -> None:
        super().__init__(itertools.zip_longest)
        self.iterators: list[Value | None] = list(iterators)
        self.fill_value = fill_value

    def advance(self, trace: Trace) -> Value | None:
        if all(iterator is None for iterator in self.iterators):
            return None
        items: list[Value] = []
        for place, iterator in enumerate(self.iterators):
            item = None if iterator is None else advance(trace, iterator)
            if item is None and iterator is not None:
                self.iterators[place] = None
                if all(iterator is None for iterator in self.iterators):
                    return None
            items.append(self.fill_value if item is None else item)
        return plain_tuple(items)

    def children(self) -> list[Value]:
        return [*(iterator for iterator in self.iterators if iterator is not None), self.fill_value]

    def rebuild(self, emit: Emitter) -> str:
        parts = [
            "()" if iterator is None else emit.expression(iterator) for iterator in self.iterators
        ]
        parts.append(f"fillvalue={emit.expression(self.fill_value)}")
        return f"{emit.constant(self.kind)}({', '.join(parts)})"


class Pairwise(Iterator):
    """`pairwise(iterator)`; `last` is the item that comes first in the next pair."""

    __slots__ = ("iterator", "last")

    def __init__(self, iterator: Value) -> None:
        super().__init__(itertools.pairwise)
        self.iterator: Value | None = iterator
        self.last: Value | None = None

    def advance(self, trace: Trace) -> Value | None:
        if self.iterator is None:
            return None
        first = self.last if self.last is not None else advance(trace, self.iterator)
        second = None if first is None else advance(trace, self.iterator)
        if first is None or second is None:
            self.iterator = self.last = None
            return None
        self.last = second
        return plain_tuple([first, second])

    def children(self) -> list[Value]:
        return [value for value in (self.last, self.iterator) if value is not None]

    def rebuild(self, emit: Emitter) -> str:
        rest = "()" if self.iterator is None else emit.expression(self.iterator)
        if self.last is not None:
            rest = f"{emit.constant(itertools.chain)}([{emit.expression(self.last)}], {rest})"
        return f"{emit.constant(self.kind)}({rest})"


class Selections(Iterator):
    """`product`, `permutations`, `combinations`: these take all items before the first selection,
    so the real iterator is run on the values."""

    __slots__ = ("done", "pools", "real", "suffix")

    def __init__(self, kind: type, pools: list[list[Value]], options: dict[str, int]) -> None:
        super().__init__(kind)
        self.pools = pools
        self.suffix = "".join(f", {name}={value}" for name, value in options.items())
        self.real: RealIterator[Any] = kind(*pools, **options)
        self.done = 0

    def advance(self, trace: Trace) -> Value | None:
        for items in self.real:
            self.done += 1
            return plain_tuple(list(items))
        return None

    def children(self) -> list[Value]:
        return [item for pool in self.pools for item in pool]

    def rebuild(self, emit: Emitter) -> str:
        pools = ", ".join(emit.sequence_of(pool) for pool in self.pools)
        inside = f"{pools}{self.suffix}".removeprefix(", ")
        return advanced(emit, f"{emit.constant(self.kind)}({inside})", self.done)


class Batched(Iterator):
    """`batched(iterator, size)`."""

    __slots__ = ("iterator", "size")

    def __init__(self, iterator: Value, size: int) -> None:
        assert BATCHED is not None
        super().__init__(BATCHED)
        self.iterator: Value | None = iterator
        self.size = size

    def advance(self, trace: Trace) -> Value | None:
        items: list[Value] = []
        while self.iterator is not None and len(items) < self.size:
            item = advance(trace, self.iterator)
            if item is None:
                self.iterator = None
            else:
                items.append(item)
        return plain_tuple(items) if items else None

    def children(self) -> list[Value]:
        return [] if self.iterator is None else [self.iterator]

    def rebuild(self, emit: Emitter) -> str:
        rest = "()" if self.iterator is None else emit.expression(self.iterator)
        return f"{emit.constant(self.kind)}({rest}, {self.size})"


# ---- several iterators over one


class GroupBy(Iterator):
    """`groupby(iterator, key)`. `key` and `item` are those of the item read last."""

    __slots__ = ("function", "group", "item", "iterator", "key", "target")

    def __init__(self, iterator: Value, function: Value) -> None:
        super().__init__(itertools.groupby)
        self.iterator = iterator
        self.function = function
        self.item: Value | None = None
        self.key: Value | None = None
        self.target: Value | None = None  # the key of the present group
        self.group: Group | None = None  # only the newest group may take items

    def advance(self, trace: Trace) -> Value | None:
        self.group = None
        # Skip what is left of the present group.
        while self.key is None or (self.target is not None and equal(trace, self.target, self.key)):
            if not self.step(trace):
                return None
        self.target = self.key
        self.group = Group(self, self.key)
        return plain_tuple([self.key, self.group])

    def step(self, trace: Trace) -> bool:
        """Read one item and its key; False at the end."""
        item = advance(trace, self.iterator)
        if item is None:
            return False
        self.key = item if is_none(self.function) else call(trace, self.function, [item])
        self.item = item
        return True

    def children(self) -> list[Value]:
        return [self.iterator, self.function]

    def rebuild(self, emit: Emitter) -> str:
        if self.key is not None:
            raise Break("cannot-rebuild", "itertools.groupby in the middle of its groups")
        return f"{emit.constant(self.kind)}({arguments(emit, self.children())})"


class Group(Iterator):
    """The iterator over one group of a `groupby`. It ends when the `groupby` moves on."""

    __slots__ = ("key", "parent")

    def __init__(self, parent: GroupBy, key: Value) -> None:
        super().__init__(GROUP)
        self.parent = parent
        self.key = key

    def advance(self, trace: Trace) -> Value | None:
        parent = self.parent
        # The `groupby` has moved on.
        if parent.group is not self:
            return None
        if parent.item is None and not parent.step(trace):
            return None
        assert parent.key is not None
        if not equal(trace, self.key, parent.key):
            return None
        item, parent.item = parent.item, None
        return item

    def children(self) -> list[Value]:
        return [self.parent]


class TeeSource(Value):
    """What the iterators of one `tee` share: the iterator underneath, and the items taken from it
    so far."""

    __slots__ = ("items", "iterator")

    def __init__(self, iterator: Value) -> None:
        super().__init__()
        self.iterator = iterator
        self.items: list[Value] = []

    def python_type(self) -> type:
        return TEE

    def children(self) -> list[Value]:
        return [self.iterator, *self.items]

    def rebuild(self, emit: Emitter) -> str:
        chain = emit.constant(itertools.chain)
        parts = f"{emit.sequence_of(self.items)}, {emit.expression(self.iterator)}"
        return f"{emit.constant(itertools.tee)}({chain}({parts}), 1)[0]"


class Tee(Iterator):
    """One iterator of a `tee`, at `index` of the items taken."""

    __slots__ = ("index", "shared")

    def __init__(self, shared: TeeSource, index: int = 0) -> None:
        super().__init__(TEE)
        self.shared = shared
        self.index = index

    def advance(self, trace: Trace) -> Value | None:
        shared = self.shared
        if self.index == len(shared.items):
            item = advance(trace, shared.iterator)
            if item is None:
                return None
            shared.items.append(item)
        self.index += 1
        return shared.items[self.index - 1]

    def children(self) -> list[Value]:
        return [self.shared]

    def rebuild(self, emit: Emitter) -> str:
        return advanced(emit, f"{emit.expression(self.shared)}.__copy__()", self.index)
