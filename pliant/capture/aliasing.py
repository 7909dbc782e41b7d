"""Guards made at the end of a capture: which objects are distinct, and which exist.

The same object reached in two ways is one value, with a guard that the ways meet. Objects that were
different are different values, and mostly it does not matter whether they still are on the next
call. It does where one was written, and where they were told apart by identity as keys:

    def f(a, b):
        a.append(1)
        return len(b)      # another result if b is a: guard `a is not b`
"""

from __future__ import annotations

import torch

from pliant.capture.host_randomness import KeptResult
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.containers import Mapping
from pliant.guards.guard import GuardKind
from pliant.guards.source import MODULE_TABLES, DictItem, Fixed, Source


def assume_distinct(trace: Trace) -> None:
    """Guard that objects which a write, or a key, tells apart are distinct."""
    changed = [value for value, _ in trace.effects.values() if value.source is not None]
    objects = [value for value in changed if not isinstance(value, Mapping)]
    objects += [value.owner for value in changed if isinstance(value, Mapping) and value.owner]
    written: set[type] = {value.python_type() for value in objects}
    # A write to one tensor is seen through all that share its memory.
    if trace.writes_tensors:
        written |= {value.cls for value in trace.tensors.values()}
    groups: dict[type, list[Source]] = {}
    for value in trace.outside_values():
        cls = value.python_type()
        # Objects of a class that is never written can be one object without a difference.
        if cls in written and value.source is not None and not isinstance(value, Mapping):
            groups.setdefault(_family(value), []).append(value.source)
    for sources in groups.values():
        _distinct(trace, sources)
    for cls in {value.cls for value in changed if isinstance(value, Mapping)}:
        _distinct(trace, _dictionaries(trace, cls))
    _keys(trace)


def assume_present(trace: Trace, slots: set[Source]) -> None:
    """Guard that what the program has looked up, and not used, exists: eager would raise if it did
    not. (What is used has a guard, or is handed to the residual code.)"""
    for value in trace.fetched:
        if value.seen is None and value.source not in slots:
            trace.guard(GuardKind.PRESENT, value.source, None)


def _dictionaries(trace: Trace, cls: type) -> list[Source]:
    """The sources of dictionaries that have to be distinct. A dictionary may be met as it is, as
    the `__dict__` of an object, or as the globals of a module. The latter two are known to differ
    from each other; one met as it is may be any of them."""
    everything = [
        value for value in trace.outside_values() if isinstance(value, Mapping) and value.cls is cls
    ]
    written = [value for value in everything if id(value) in trace.effects]
    alone = [value for value in everything if not _is_part(value) and not _is_table(value)]
    if any(not _is_part(value) for value in written):
        return [value.source for value in everything if value.source is not None]
    if not written or not alone:
        return []
    return [value.source for value in [*written, *alone] if value.source is not None]


def _keys(trace: Trace) -> None:
    """Objects used as keys by their identity."""
    groups: dict[type, list[Source]] = {}
    for value in trace.keys:
        if value.source is not None:
            groups.setdefault(_family(value), []).append(value.source)
    for sources in groups.values():
        _distinct(trace, sources)


def _distinct(trace: Trace, sources: list[Source]) -> None:
    # What a cache gives before the graph is nowhere while guards are tested.
    distinct = [source for source in dict.fromkeys(sources) if not _comes_later(source)]
    # Objects that the entry holds on to are distinct for good.
    if len(distinct) > 1 and not all(isinstance(source, Fixed) for source in distinct):
        trace.guard(GuardKind.DISTINCT, distinct[0], tuple(distinct[1:]))


def is_kept(value: Value) -> bool:
    """Whether a cache gives the object before the graph, or what it is a part of."""
    return value.source is not None and _comes_later(value.source)


def _comes_later(source: Source) -> bool:
    return isinstance(source.root, KeptResult)


def _family(value: Value) -> type:
    cls = value.python_type()
    return torch.Tensor if issubclass(cls, torch.Tensor) else cls


def _is_part(value: Mapping) -> bool:
    """Whether the dictionary is the `__dict__` of an object, or the globals of a module."""
    return value.owner is not None or isinstance(value.source, Fixed)


def _is_table(value: Mapping) -> bool:
    """Whether this is a table of an `nn.Module`. There are many of them, and they are never
    shared."""
    return isinstance(value.source, DictItem) and value.source.key in MODULE_TABLES
