"""What opcodes do where Python has no expression for it: functions of the entries that are taken
from the stack and then of the argument, for ``OpInfo.meaning``."""

from __future__ import annotations

import sys
from typing import Any

if sys.version_info >= (3, 14):
    from string.templatelib import Interpolation, Template
else:
    Interpolation: Any = None
    Template: Any = None

MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF: `case int(n)` binds the subject
NO_CLASS: Any = None


def _refused_pattern() -> str:
    """What Python says where a class pattern names something else: its versions differ."""
    try:
        match 0:
            case NO_CLASS():
                pass
    except TypeError as error:
        return str(error)
    raise AssertionError("a pattern that is no class was accepted")


REFUSED_PATTERN = _refused_pattern()


def match_class(subject: Any, cls: Any, keywords: tuple[str, ...], positional: int) -> Any:
    """The attributes that ``case cls(...)`` looks at, or None if the subject does not match."""
    if not isinstance(cls, type):
        raise TypeError(REFUSED_PATTERN)
    if not isinstance(subject, cls):
        return None
    attributes: list[Any] = []
    names = (*_positional_names(cls, positional), *keywords)
    if len(names) < positional + len(keywords):
        attributes.append(subject)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        try:
            attributes.append(getattr(subject, name))
        except AttributeError:
            return None
    return tuple(attributes)


def _positional_names(cls: Any, count: int) -> tuple[str, ...]:
    """The names of the attributes that positional patterns stand for. Empty for a class that
    matches itself, as ``int(n)``."""
    names = getattr(cls, "__match_args__", None) if count else ()
    itself = names is None and cls.__flags__ & MATCHES_ITSELF
    if names is None:
        names = ()
    if type(names) is not tuple:
        type_name = type(names).__name__
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type_name})")
    allowed = 1 if itself else len(names)
    if count > allowed:
        patterns = f"{allowed} positional sub-pattern{'' if allowed == 1 else 's'}"
        raise TypeError(f"{cls.__name__}() accepts {patterns} ({count} given)")
    for name in names[:count]:
        if type(name) is not str:
            type_name = type(name).__name__
            raise TypeError(f"__match_args__ elements must be strings (got {type_name})")
    return names[:count]


def build_interpolation(value: Any, expression: str, *format_and_flags: Any) -> Any:
    """``{value}`` in a template string, with the source of the value."""
    *format_spec, flags = format_and_flags
    conversion = (None, "s", "r", "a")[flags >> 2]
    return Interpolation(value, expression, conversion, *format_spec)


def build_template(strings: tuple[str, ...], interpolations: tuple[Any, ...], _: None) -> Any:
    """A template string from the texts around its interpolations, of which there is one more."""
    parts: list[Any] = [strings[0]]
    for interpolation, text in zip(interpolations, strings[1:], strict=True):
        parts += [interpolation, text]
    return Template(*parts)
