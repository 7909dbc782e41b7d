"""The `match` statement's class and mapping patterns."""

from __future__ import annotations

from pliant.capture.model import call_special, get_attribute
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Raised, Value
from pliant.capture.values.containers import Mapping, Sequence, key_of

# Built-in classes whose single positional pattern is the subject itself.
SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


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


def match_class(
    trace: Trace, subject: Value, cls: Value, positional: int, names: tuple[str, ...]
) -> Value:
    """The attributes that `case Class(...)` looks at, or None where the subject does not match."""
    real = cls.constant()
    if not issubclass(subject.python_type(), real):
        return NONE
    values: list[Value] = []
    wanted = list(names)
    if positional:
        attribute_names = getattr(real, "__match_args__", ())
        if positional == 1 and not attribute_names and issubclass(real, SELF_MATCHING):
            values.append(subject)
        elif positional > len(attribute_names):
            plural = "" if len(attribute_names) == 1 else "s"
            text = (
                f"{real.__name__}() accepts {len(attribute_names)} positional sub-pattern{plural}"
            )
            trace.throw(TypeError(f"{text} ({positional} given)"))
        else:
            wanted = [*attribute_names[:positional], *wanted]
    for name in wanted:
        try:
            values.append(get_attribute(trace, subject, name))
        except Raised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return NONE
            raise
    return Sequence(tuple, values)
