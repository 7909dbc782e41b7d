"""Exception groups: `split`, `subgroup`, `derive`, and what `except*` does with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pliant.capture.library.python.exceptions import (
    catch_classes,
    exception_classes,
    exception_new,
    is_caught,
)
from pliant.capture.library.python.sequences import is_a
from pliant.capture.model import call, drain, get_attribute, truth
from pliant.capture.native import method
from pliant.capture.value import NONE, TRUE, Const, Value
from pliant.capture.values.containers import instance_dict, plain_list, plain_tuple
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.objects import ExceptionValue

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

Test = Callable[[Value], bool]
LINKS = ("__cause__", "__context__")
NO_CONDITION = (
    "expected an exception type, a tuple of exception types, or a callable (other than a class)"
    if sys.version_info >= (3, 13)
    else "expected a function, exception type or tuple of exception types"
)


def is_group(value: Value) -> bool:
    return issubclass(value.python_type(), BaseExceptionGroup)


def members(trace: Trace, group: Value) -> list[Value]:
    return [trace.read(item) for item in drain(trace, get_attribute(trace, group, "exceptions"))]


def derived(trace: Trace, group: Value, items: list[Value]) -> Value:
    """`group.derive(items)`, with the past of `group`."""
    subgroup = trace.read(call(trace, get_attribute(trace, group, "derive"), [plain_list(items)]))
    if isinstance(subgroup, ExceptionValue) and isinstance(group, ExceptionValue):
        for name in LINKS:
            if name in group.chain:
                subgroup.set_link(trace, name, group.chain[name])
        subgroup.trail = group.trail
        subgroup.set_link(trace, "__suppress_context__", TRUE)  # giving it a cause does this
        notes = instance_dict(trace, group).get(trace, "__notes__")
        if notes is not None:
            copied_notes = plain_list(drain(trace, notes))
            instance_dict(trace, subgroup).store(trace, "__notes__", copied_notes)
    return subgroup


def split(trace: Trace, value: Value, test: Test) -> tuple[Value | None, Value | None]:
    """The part of an exception that passes the test, and the rest; None for an empty part. Groups
    are split recursively, and keep their structure."""
    if test(value):
        return value, None
    if not is_group(value):
        return None, value
    parts = [split(trace, member, test) for member in members(trace, value)]
    matching = [match for match, _ in parts if match is not None]
    others = [rest for _, rest in parts if rest is not None]
    if not matching:
        return None, value
    return derived(trace, value, matching), derived(trace, value, others) if others else None


def _test(trace: Trace, condition: Value) -> Test:
    """The condition of `split` and `subgroup`: exception classes, or a function."""
    condition = trace.read(condition)
    if isinstance(condition, FunctionValue):
        return lambda value: truth(trace, call(trace, condition, [value]))
    # Unlike `except`, they refuse instances of subclasses of tuple.
    listed = is_a(condition, tuple) and condition.python_type() is not tuple
    classes = None if listed else exception_classes(trace, condition)
    if classes is None:
        trace.throw(TypeError(NO_CONDITION))
    return lambda value: is_caught(value, classes)


@method(BaseExceptionGroup, "split")
def group_split(trace: Trace, group: Value, condition: Value) -> Value:
    return plain_tuple([part or NONE for part in split(trace, group, _test(trace, condition))])


@method(BaseExceptionGroup, "subgroup")
def group_subgroup(trace: Trace, group: Value, condition: Value) -> Value:
    return split(trace, group, _test(trace, condition))[0] or NONE


@method(BaseExceptionGroup, "derive")
def group_derive(trace: Trace, group: Value, items: Value) -> Value:
    message = get_attribute(trace, group, "message")
    return exception_new(trace, Const(BaseExceptionGroup), message, items)


# ---- except*


def match_group(trace: Trace, exception: Value, expected: Value) -> tuple[Value, Value]:
    """What `except* expected` leaves of an exception, and what it catches; None for nothing."""
    classes = catch_classes(trace, expected)
    if any(issubclass(cls, BaseExceptionGroup) for cls in classes):
        text = "catching ExceptionGroup with except* is not allowed. Use except instead."
        trace.throw(TypeError(text))

    def test(value: Value) -> bool:
        return is_caught(value, classes)

    if is_group(exception):
        match, rest = split(trace, exception, test)
        return rest or NONE, match or NONE
    if not test(exception):
        return exception, NONE
    # A single exception is wrapped into a group, so that handlers of `except*` always get one.
    wrapped = exception_new(trace, Const(ExceptionGroup), Const(""), plain_tuple([exception]))
    if isinstance(exception, ExceptionValue) and isinstance(wrapped, ExceptionValue):
        wrapped.trail = exception.trail
    return NONE, wrapped


def to_raise(trace: Trace, original: Value, raised: list[Value]) -> Value:
    """What a `try` with `except*` raises in the end: everything that was not caught, and what the
    handlers raised. None if nothing is left."""
    errors = [item for item in map(trace.read, raised) if not _is_none(item)]
    if not errors:
        return NONE
    if not is_group(original):
        return errors[0]
    reraised = [item for item in errors if _same_past(trace, item, original)]
    new = [item for item in errors if not any(item is other for other in reraised)]
    left = _projection(trace, original, reraised) if reraised else None
    if not new:
        return left or NONE
    items = new if left is None else [*new, left]
    return exception_new(trace, Const(ExceptionGroup), Const(""), plain_list(items))


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


def _same_past(trace: Trace, value: Value, original: Value) -> bool:
    """Whether an exception has the traceback and chain of the original group: then it is a part of
    that, and not raised by a handler."""
    if not (isinstance(value, ExceptionValue) and isinstance(original, ExceptionValue)):
        return value is original
    links = [(value.chain.get(name), original.chain.get(name)) for name in LINKS]
    return value.trail is original.trail and all(link is expected for link, expected in links)


def _projection(trace: Trace, original: Value, members: list[Value]) -> Value | None:
    """The part of the group that has these members as leaves."""
    leaves: set[int] = set()
    for value in members:
        leaves.update(map(id, _leaves(trace, value)))
    match, _ = split(trace, original, lambda value: not is_group(value) and id(value) in leaves)
    return match


def _leaves(trace: Trace, value: Value) -> list[Value]:
    if not is_group(value):
        return [value]
    return [leaf for member in members(trace, value) for leaf in _leaves(trace, member)]
