"""`iter`, `reversed`, `zip`, `map` and the like, and `itertools`: what makes iterators.

The iterators themselves are in `values.iterators` and `values.combinators`.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.library.python.classes import is_callable
from pliant.capture.library.python.objects import shown
from pliant.capture.library.python.sequences import as_index, as_sequence, is_a, run_real
from pliant.capture.model import OPERATE, call_special, drain, iterate, length, truth
from pliant.capture.native import METHODS, function, method
from pliant.capture.speculated_branches import REMAINING
from pliant.capture.value import FALSE, NONE, Break, Const, Raised, Value
from pliant.capture.values import combinators as kinds
from pliant.capture.values.containers import Mapping, plain_tuple
from pliant.capture.values.iterators import (
    CALLABLE_ITERATOR,
    CONSTANT_ITERATORS,
    DEQUE_ITERATOR,
    INDEX_ITERATOR,
    LIST_ITERATOR,
    MAPPING_ITERATORS,
    ORDERED_ITERATOR,
    REVERSED_DEQUE,
    REVERSED_LIST,
    SET_ITERATOR,
    TUPLE_ITERATOR,
    CallableIterator,
    ConstantIterator,
    Enumerate,
    Filter,
    IndexIterator,
    Iterator,
    Map,
    ReversedIndex,
    ReversedSequence,
    Zip,
    is_none,
)
from pliant.capture.values.objects import ExceptionValue
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

ZERO = Const(0)
ONE = Const(1)


# ---- the protocol


def _self(trace: Trace, self: Iterator) -> Value:
    return self


def _next(trace: Trace, self: Iterator) -> Value:
    item = self.advance(trace)
    if item is None:
        raise Raised(ExceptionValue(StopIteration, []))
    return item


ITERATOR_TYPES: set[type] = {
    LIST_ITERATOR, TUPLE_ITERATOR, DEQUE_ITERATOR, REVERSED_LIST, REVERSED_DEQUE, SET_ITERATOR,
    CALLABLE_ITERATOR, INDEX_ITERATOR, ORDERED_ITERATOR, *MAPPING_ITERATORS.values(),
    *CONSTANT_ITERATORS, zip, enumerate, map, filter, reversed, itertools.chain, itertools.islice,
    itertools.count, itertools.cycle, itertools.repeat, itertools.accumulate, itertools.starmap,
    itertools.takewhile, itertools.dropwhile, itertools.compress, itertools.zip_longest,
    itertools.pairwise, itertools.product, itertools.permutations, itertools.combinations,
    itertools.combinations_with_replacement, itertools.groupby, itertools.filterfalse,
    kinds.TEE, kinds.GROUP, *([] if kinds.BATCHED is None else [kinds.BATCHED]),
}  # fmt: skip


def _length_hint(trace: Trace, self: Iterator) -> Value:
    if isinstance(self, kinds.Repeat):
        if self.times is None:
            trace.throw(TypeError("len() of unsized object"))
        return Const(self.times)
    count = REMAINING.get(type(self))
    if count is None:
        raise Break("unsupported-method", f"{self.python_type().__name__}.__length_hint__")
    return Const(max(count(self), 0))


for _cls in ITERATOR_TYPES:
    method(_cls, "__iter__")(_self)
    method(_cls, "__next__")(_next)
    if "__length_hint__" in vars(_cls):
        method(_cls, "__length_hint__")(_length_hint)


def _index_iterator(trace: Trace, obj: Value) -> Value:
    if not _is_sequence(trace, obj):
        trace.throw(TypeError(f"'{type_name(obj.python_type())}' object is not iterable"))
    return IndexIterator(obj)


def _is_sequence(trace: Trace, obj: Value) -> bool:
    """Whether an object that has `__getitem__` takes numbers: that of C code's own classes need
    not."""
    real = obj.value if isinstance(obj, Const) else getattr(obj, "real", None)
    method = trace.lookup(obj.python_type(), "__getitem__")
    if real is None or isinstance(method, types.FunctionType):
        return True
    try:
        iter(real)
    except TypeError:
        return False
    return True


# Where `model.iterate` finds the iterator of classes that have `__getitem__` alone.
METHODS[object, "__getitem__"] = _index_iterator


@method(range, "__iter__")
def range_iter(trace: Trace, self: Value) -> Value:
    return ConstantIterator(self.constant())


@method(range, "__reversed__")
def range_reversed(trace: Trace, self: Value) -> Value:
    return ConstantIterator(self.constant(), reverse=True)


@function(iter)
def make_iterator(trace: Trace, obj: Value, *sentinel: Value) -> Value:
    if not sentinel:
        return iterate(trace, obj)
    if not is_callable(trace, obj):
        run_real(trace, iter, None, None)  # raises, in the words of this Python
    return CallableIterator(obj, *sentinel)


@function(reversed)
def make_reversed(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    owner = OPERATE.get(type(obj))
    iterator = None if owner is None else owner(trace, reversed, obj)
    if iterator is None:
        iterator = call_special(trace, obj, "__reversed__")
    if iterator is not None:
        return iterator
    cls = obj.python_type()
    if is_a(obj, tuple) and trace.lookup(cls, "__getitem__") is tuple.__getitem__:
        return ReversedSequence(reversed, as_sequence(obj))
    refused = "__reversed__" in _attributes(cls) or isinstance(obj, Mapping)
    if refused or trace.lookup(cls, "__getitem__") is MISSING or not _is_sequence(trace, obj):
        trace.throw(TypeError(f"'{type_name(cls)}' object is not reversible"))
    return ReversedIndex(obj, as_index(trace, length(trace, obj)))


def _attributes(cls: type) -> set[str]:
    return {name for base in cls.__mro__ for name in base.__dict__}


# ---- built-in functions


@function(zip)
def make_zip(trace: Trace, *iterables: Value, strict: Value = FALSE) -> Value:
    return Zip([iterate(trace, item) for item in iterables], truth(trace, strict))


@function(enumerate)
def make_enumerate(trace: Trace, iterable: Value, start: Value = ZERO) -> Value:
    index = trace.read(start)
    if not issubclass(index.python_type(), int):
        index = Const(as_index(trace, index))
    return Enumerate(iterate(trace, iterable), index)


@function(map)
def make_map(trace: Trace, *args: Value) -> Value:
    if len(args) < 2:
        trace.throw(TypeError("map() must have at least two arguments."))
    return Map(args[0], [iterate(trace, item) for item in args[1:]])


@function(filter)
def make_filter(trace: Trace, test: Value, iterable: Value) -> Value:
    return Filter(filter, trace.read(test), iterate(trace, iterable))


# ---- itertools


@function(itertools.filterfalse)
def make_filterfalse(trace: Trace, test: Value, iterable: Value) -> Value:
    return Filter(itertools.filterfalse, trace.read(test), iterate(trace, iterable))


@function(itertools.chain)
def make_chain(trace: Trace, *iterables: Value) -> Value:
    return kinds.Chain(iterate(trace, plain_tuple(list(iterables))))


@method(itertools.chain, "from_iterable")
def chain_from_iterable(trace: Trace, cls: Value, iterables: Value) -> Value:
    return kinds.Chain(iterate(trace, iterables))


@function(itertools.islice)
def make_islice(trace: Trace, iterable: Value, *limits: Value) -> Value:
    if not 1 <= len(limits) <= 3:
        which = "at least 2" if not limits else "at most 4"
        trace.throw(TypeError(f"islice expected {which} arguments, got {len(limits) + 1}"))
    limit_values = [trace.read(limit) for limit in limits]
    start, stop, step = (
        [NONE, *limit_values, NONE] if len(limit_values) == 1 else [*limit_values, NONE][:3]
    )
    bound = "must be None or an integer: 0 <= x <= sys.maxsize."
    which = "Stop argument for" if len(limit_values) == 1 else "Indices for"
    last = _limit(trace, stop, 0, f"{which} islice() {bound}")
    first = _limit(trace, start, 0, f"Indices for islice() {bound}")
    every = _limit(trace, step, 1, "Step for islice() must be a positive integer or None.")
    iterator = iterate(trace, iterable)
    return kinds.Islice(iterator, first or 0, last, 1 if every is None else every)


def _limit(trace: Trace, value: Value, least: int, problem: str) -> int | None:
    if is_none(value):
        return None
    try:
        limit = as_index(trace, value, problem)
    except Raised:
        limit = -1
    if not least <= limit <= sys.maxsize:
        trace.throw(ValueError(problem))
    return limit


@function(itertools.count)
def make_count(trace: Trace, start: Value = ZERO, step: Value = ONE) -> Value:
    start, step = trace.read(start), trace.read(step)
    for value in (start, step):
        if trace.lookup(value.python_type(), "__add__") is MISSING or is_a(value, str):
            trace.throw(TypeError("a number is required"))
    return kinds.Count(start, step)


@method(itertools.count, "__repr__")
def count_repr(trace: Trace, self: Value) -> Value:
    if not isinstance(self, kinds.Count):
        raise Break("unsupported-method", "count.__repr__")
    numbers = [self.number]
    if not is_a(self.step, int) or trace.read(self.step).constant() != 1:
        numbers.append(self.step)
    return Const(f"count({', '.join(shown(trace, number) for number in numbers)})")


@function(itertools.cycle)
def make_cycle(trace: Trace, iterable: Value) -> Value:
    return kinds.Cycle(iterate(trace, iterable))


@method(itertools.repeat, "__repr__")
def repeat_repr(trace: Trace, self: Value) -> Value:
    if not isinstance(self, kinds.Repeat):
        raise Break("unsupported-method", "repeat.__repr__")
    times = "" if self.times is None else f", {self.times}"
    return Const(f"repeat({shown(trace, self.item)}{times})")


@function(itertools.repeat)
def make_repeat(trace: Trace, object: Value, times: Value | None = None) -> Value:
    count = None if times is None else max(as_index(trace, times), 0)
    return kinds.Repeat(object, count)


@function(itertools.accumulate)
def make_accumulate(
    trace: Trace, iterable: Value, func: Value = NONE, *, initial: Value = NONE
) -> Value:
    iterator = iterate(trace, iterable)
    return kinds.Accumulate(iterator, trace.read(func), trace.read(initial))


@function(itertools.starmap)
def make_starmap(trace: Trace, test: Value, iterable: Value) -> Value:
    return kinds.Starmap(test, iterate(trace, iterable))


@function(itertools.takewhile)
def make_takewhile(trace: Trace, test: Value, iterable: Value) -> Value:
    return kinds.Takewhile(test, iterate(trace, iterable))


@function(itertools.dropwhile)
def make_dropwhile(trace: Trace, test: Value, iterable: Value) -> Value:
    return kinds.Dropwhile(test, iterate(trace, iterable))


@function(itertools.compress)
def make_compress(trace: Trace, data: Value, selectors: Value) -> Value:
    return kinds.Compress(iterate(trace, data), iterate(trace, selectors))


@function(itertools.zip_longest)
def make_zip_longest(trace: Trace, *iterables: Value, fillvalue: Value = NONE) -> Value:
    return kinds.ZipLongest([iterate(trace, item) for item in iterables], fillvalue)


@function(itertools.pairwise)
def make_pairwise(trace: Trace, iterable: Value) -> Value:
    return kinds.Pairwise(iterate(trace, iterable))


@function(itertools.groupby)
def make_groupby(trace: Trace, iterable: Value, key: Value = NONE) -> Value:
    return kinds.GroupBy(iterate(trace, iterable), trace.read(key))


@function(itertools.tee)
def make_tee(trace: Trace, iterable: Value, n: Value = Const(2)) -> Value:  # noqa: B008
    count = as_index(trace, n)
    if count < 0:
        trace.throw(ValueError("n must be >= 0"))
    if count == 0:
        return plain_tuple([])
    iterator = iterate(trace, iterable)
    first = iterator if isinstance(iterator, kinds.Tee) else kinds.Tee(kinds.TeeSource(iterator))
    rest = [kinds.Tee(first.shared, first.index) for _ in range(count - 1)]
    return plain_tuple([first, *rest])


@method(kinds.TEE, "__copy__")
def tee_copy(trace: Trace, self: kinds.Tee) -> Value:
    return kinds.Tee(self.shared, self.index)


# ---- selections


@function(itertools.product)
def make_product(trace: Trace, *iterables: Value, repeat: Value = ONE) -> Value:
    count = as_index(trace, repeat)
    if count < 0:
        trace.throw(ValueError("repeat argument cannot be negative"))
    pools = [drain(trace, item) for item in iterables]
    return kinds.Selections(itertools.product, pools, {"repeat": count} if count != 1 else {})


@function(itertools.permutations)
def make_permutations(trace: Trace, iterable: Value, r: Value = NONE) -> Value:
    pool = drain(trace, iterable)
    if is_none(trace.read(r)):
        return kinds.Selections(itertools.permutations, [pool], {})
    if not is_a(trace.read(r), int):
        trace.throw(TypeError("Expected int as r"))
    return _selections(trace, itertools.permutations, pool, r)


def _selections(trace: Trace, kind: Callable[..., Any], pool: list[Value], r: Value) -> Value:
    size = as_index(trace, r)
    if size < 0:
        trace.throw(ValueError("r must be non-negative"))
    assert isinstance(kind, type)
    return kinds.Selections(kind, [pool], {"r": size})


@function(itertools.combinations)
def make_combinations(trace: Trace, iterable: Value, r: Value) -> Value:
    return _selections(trace, itertools.combinations, drain(trace, iterable), r)


@function(itertools.combinations_with_replacement)
def make_combinations_with_replacement(trace: Trace, iterable: Value, r: Value) -> Value:
    kind = itertools.combinations_with_replacement
    return _selections(trace, kind, drain(trace, iterable), r)


def make_batched(trace: Trace, iterable: Value, n: Value) -> Value:
    size = as_index(trace, n)
    if size < 1:
        trace.throw(ValueError("n must be at least one"))
    return kinds.Batched(iterate(trace, iterable), size)


if kinds.BATCHED is not None:
    function(kinds.BATCHED)(make_batched)
