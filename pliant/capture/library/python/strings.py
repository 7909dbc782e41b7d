"""Text made from values: `join`, `format`, `%` and f-strings.

Methods of strings on constants alone are simply run. The ones here take containers, or things whose
text is found by following their `__str__`, `__repr__` or `__format__`.
"""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import re
import string
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.model import drain, get_attribute, get_item, iterate
from pliant.capture.native import FUNCTIONS, function, method
from pliant.capture.value import NOT_IMPLEMENTED, Const, NotConstant, Raised, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.iterators import ConstantIterator

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def format_value(
    trace: Trace, value: Value, conversion: Callable[[Any], str] | None, spec: Value | None
) -> Value:
    """A part of an f-string: `{value!r:spec}`, where `conversion` is None, str, repr or ascii."""
    if conversion is not None:
        value = FUNCTIONS[conversion](trace, value)
    return FUNCTIONS[format](trace, value, Const("") if spec is None else spec)


def _text(trace: Trace, value: Value, conversion: Callable[[Any], str]) -> str:
    text: str = trace.read(FUNCTIONS[conversion](trace, value)).constant()
    return text


def _run(trace: Trace, action: Callable[..., Any], *args: Any, **kwargs: Any) -> Value:
    try:
        return from_real(trace, action(*args, **kwargs))
    except Exception as error:
        trace.throw(error)


def _lasting_object(trace: Trace, value: Value) -> Any:
    """The object that is put into a text. It is not known if the program makes it, or its class:
    the methods of the one that stands for it during the capture can't be run."""
    known = known_object(value, trace)  # which reads what is in it
    if _is_made_here(trace, value):
        raise NotConstant(value)
    return known


def _is_made_here(trace: Trace, value: Value) -> bool:
    value = trace.read(value)
    if isinstance(value, Const):
        return id(value.value) in trace.temporaries
    return any(_is_made_here(trace, part) for part in value.children())


# ---- iteration


@method(str, "__iter__")
@method(bytes, "__iter__")
def text_iter(trace: Trace, self: Const) -> Value:
    return ConstantIterator(self.constant())


# ---- join


@method(str, "join")
@method(bytes, "join")
def join(trace: Trace, self: Const, iterable: Value) -> Value:
    try:
        iterator = iterate(trace, iterable)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        trace.throw(TypeError("can only join an iterable"))
    items = [trace.read(item) for item in drain(trace, iterator)]
    separator = self.constant()
    for place, item in enumerate(items):
        if not issubclass(item.python_type(), type(separator)):
            expected = "str instance" if isinstance(separator, str) else "a bytes-like object"
            parts = (
                f"sequence item {place}: expected {expected}, {type_name(item.python_type())} found"
            )
            trace.throw(TypeError(parts))
    return Const(separator.join(item.constant() for item in items))


# ---- format


@method(str, "format")
def format_method(trace: Trace, self: Const, /, *args: Value, **kwargs: Value) -> Value:
    try:
        real_args = [_lasting_object(trace, arg) for arg in args]
        real_kwargs = {name: _lasting_object(trace, arg) for name, arg in kwargs.items()}
    except NotConstant:
        return Const(_Formatter(trace).vformat(self.constant(), args, kwargs))
    return _run(trace, self.constant().format, *real_args, **real_kwargs)


@method(str, "format_map")
def format_map(trace: Trace, self: Const, mapping: Value) -> Value:
    try:
        real = _lasting_object(trace, mapping)
    except NotConstant:
        return Const(_Formatter(trace, mapping).vformat(self.constant(), (), {}))
    return _run(trace, self.constant().format_map, real)


class _Formatter(string.Formatter):
    """Python's own reading of format strings, with values in place of objects."""

    def __init__(self, trace: Trace, mapping: Value | None = None) -> None:
        self.trace = trace
        self.mapping = mapping
        self.next: int | None = None  # the number of the next field; -1: fields have names

    def parse(self, format_string: str) -> Any:
        """The parts of the string, with a number for fields that have neither name nor number."""
        for text, field, spec, conversion in super().parse(format_string):
            if field is not None:
                first, _ = _string.formatter_field_name_split(field)
                if first == "" or isinstance(first, int):
                    field = self._numbered(field, first)
            yield text, field, spec, conversion

    def _numbered(self, field: str, first: int | str) -> str:
        automatic = first == ""
        if self.next is not None and automatic is (self.next < 0):
            kinds = ("manual field specification", "automatic field numbering")
            raise ValueError(f"cannot switch from {kinds[not automatic]} to {kinds[automatic]}")
        if not automatic:
            self.next = -1
            return field
        number = self.next or 0
        self.next = number + 1
        return f"{number}{field}"

    def vformat(self, format_string: str, args: Any, kwargs: Any) -> str:
        try:
            return super().vformat(format_string, args, kwargs)
        except (ValueError, IndexError, KeyError) as error:
            self.trace.throw(error)

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        if isinstance(key, str):
            if self.mapping is not None:
                return get_item(self.trace, self.mapping, Const(key))
            return kwargs[key]
        if key >= len(args):
            text = f"Replacement index {key} out of range for positional args tuple"
            raise IndexError(text)
        return args[key]

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, rest = _string.formatter_field_name_split(field_name)
        value = self.get_value(first, args, kwargs)
        for is_attribute, name in rest:
            if is_attribute:
                value = get_attribute(self.trace, value, name)
            else:
                value = get_item(self.trace, value, Const(name))
        return value, first

    def convert_field(self, value: Any, conversion: Any) -> Any:
        convert = {None: None, "s": str, "r": repr, "a": ascii}[conversion]
        return value if convert is None else FUNCTIONS[convert](self.trace, value)

    def format_field(self, value: Any, format_spec: str) -> Any:
        text = FUNCTIONS[format](self.trace, value, Const(format_spec))
        return self.trace.read(text).constant()


# ---- %

_PERCENT = re.compile(r"%(?:\((?P<name>[^)]*)\))?[#0\- +]*[\d.]*[hlL]?(?P<kind>[a-zA-Z%])")
_CONVERSIONS: dict[str, Callable[[Any], str]] = {"s": str, "r": repr, "a": ascii}


@method(str, "__mod__")
def percent(trace: Trace, self: Const, arguments: Value) -> Value:
    template: str = self.constant()
    try:
        real = _lasting_object(trace, arguments)
    except NotConstant:
        real = _converted(trace, template, trace.read(arguments))
    return _run(trace, template.__mod__, real)


@method(str, "__rmod__")
def percent_reflected(trace: Trace, self: Const, template: Value) -> Value:
    return NOT_IMPLEMENTED


def _converted(trace: Trace, template: str, arguments: Value) -> Any:
    """The arguments of `%`, with text in place of those that are not constants."""
    fields = [match for match in _PERCENT.finditer(template) if match["kind"] != "%"]
    if isinstance(arguments, Mapping) and any(match["name"] is not None for match in fields):
        return {
            match["name"]: _argument(trace, get_item(trace, arguments, Const(match["name"])), match)
            for match in fields
        }
    values = arguments.items if _is_tuple(arguments) else [arguments]  # type: ignore[attr-defined]
    if len(values) != len(fields):
        raise NotConstant(arguments)
    return tuple(
        _argument(trace, value, match) for value, match in zip(values, fields, strict=True)
    )


def _is_tuple(value: Value) -> bool:
    return isinstance(value, Sequence) and issubclass(value.cls, tuple)


def _argument(trace: Trace, value: Value, match: re.Match[str]) -> Any:
    conversion = _CONVERSIONS.get(match["kind"])
    if conversion is None:  # of a number
        return known_object(value, trace)
    try:
        return _lasting_object(trace, value)
    except NotConstant:
        return _Text(_text(trace, value, conversion))


class _Text:
    """Something whose `str`, `repr` and `ascii` are the same given text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


# ---- string.Formatter


@function(_string.formatter_parser)
def formatter_parser(trace: Trace, text: Value) -> Value:
    parts = list(_string.formatter_parser(trace.read(text).constant()))
    return iterate(trace, from_real(trace, parts))


@function(_string.formatter_field_name_split)
def field_name_split(trace: Trace, text: Value) -> Value:
    first, rest = _string.formatter_field_name_split(trace.read(text).constant())
    return Sequence(tuple, [Const(first), iterate(trace, from_real(trace, list(rest)))])
