"""The `match` statement's mapping patterns."""

from __future__ import annotations

from pliant.capture.model import call_special
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Value
from pliant.capture.values.containers import Mapping, Sequence, key_of


def match_keys(trace: Trace, subject: Value, keys: Value) -> Value:
    """The values at `keys`, or None if one is missing."""
    keys = trace.read(keys)
    assert isinstance(keys, Sequence)
    values: list[Value] = []
    for key in keys.items:
        if isinstance(subject, Mapping):
            item = subject.get(trace, key_of(trace, key))
        else:
            item = call_special(trace, subject, "get", key)
        if item is None:
            return NONE
        values.append(item)
    return Sequence(tuple, values)
