"""Building and taking apart data, and the operators."""

from __future__ import annotations

from typing import Any

from pliant.base.python_errors import type_name
from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import CALLABLE_FIRST
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.library.python.exception_groups import to_raise
from pliant.capture.library.python.pattern_matching import match_keys
from pliant.capture.library.python.strings import format_value
from pliant.capture.model import (
    advance,
    binary,
    call_special,
    compare,
    contains,
    delete_item,
    drain,
    get_attribute,
    get_item,
    inplace,
    iterate,
    length,
    negation,
    same_object,
    set_item,
    unary,
)
from pliant.capture.native import METHODS
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Raised, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence, SetValue, element_of, key_of
from pliant.capture.values.functions import called
from pliant.capture.values.generators import refuse_stop_iteration
from pliant.capture.values.objects import make_slice
from pliant.guards.guard import MISSING

MATCH_SEQUENCE = 1 << 5  # Py_TPFLAGS_SEQUENCE
MATCH_MAPPING = 1 << 6  # Py_TPFLAGS_MAPPING
SUBSCRIPT = "[]"  # as an operator, from Python 3.14 on


@opcode("BUILD_TUPLE", lazy=True)
def build_tuple(trace: Trace, frame: Frame, ins: Instruction, *items: Value) -> Any:
    return Sequence(tuple, list(items))


@opcode("BUILD_LIST", lazy=True)
def build_list(trace: Trace, frame: Frame, ins: Instruction, *items: Value) -> Any:
    return Sequence(list, list(items))


@opcode("BUILD_SET")
def build_set(trace: Trace, frame: Frame, ins: Instruction, *items: Value) -> Any:
    return SetValue(set, {element_of(trace, item) for item in items})


@opcode("BUILD_MAP", lazy=True)
def build_map(trace: Trace, frame: Frame, ins: Instruction, *items: Value) -> Any:
    pairs = zip(items[::2], items[1::2], strict=True)
    return Mapping(dict, {key_of(trace, key): value for key, value in pairs})


@opcode("BUILD_CONST_KEY_MAP", lazy=True)
def build_const_key_map(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    *values, keys = operands
    return Mapping(dict, dict(zip(keys.constant(), values, strict=True)))


@opcode("BUILD_SLICE")
def build_slice(trace: Trace, frame: Frame, ins: Instruction, *parts: Value) -> Any:
    return make_slice([*parts, *[NONE] * (3 - len(parts))])


@opcode("FORMAT_VALUE")
def format_operand(
    trace: Trace, frame: Frame, ins: Instruction, value: Value, spec: Value | None = None
) -> Any:
    conversion, _ = ins.value
    return format_value(trace, value, conversion, spec)


@opcode("LIST_TO_TUPLE", lazy=True)
def list_to_tuple(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    value = trace.read(value)
    assert isinstance(value, Sequence)
    return Sequence(tuple, list(value.items))


# The container of these lies below what is added to it, and all of that stays on the stack.


@opcode("LIST_APPEND", lazy=True)
def list_append(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, Sequence)
    target.append(trace, rest[-1])
    return (target, *rest[:-1])


@opcode("SET_ADD", lazy=True)
def set_add(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, SetValue)
    trace.mutate(target)
    target.items.add(element_of(trace, rest[-1]))
    return (target, *rest[:-1])


@opcode("MAP_ADD", lazy=True)
def map_add(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, Mapping)
    target.store(trace, key_of(trace, rest[-2]), rest[-1])
    return (target, *rest[:-2])


@opcode("LIST_EXTEND", lazy=True)
def list_extend(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, Sequence)
    trace.mutate(target)
    iterator = iterator_of(trace, rest[-1], "Value after * must be an iterable, not {}")
    target.items.extend(drain(trace, iterator))
    return (target, *rest[:-1])


@opcode("SET_UPDATE", lazy=True)
def set_update(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, SetValue)
    METHODS[set, "update"](trace, target, rest[-1])
    return (target, *rest[:-1])


@opcode("DICT_UPDATE", lazy=True)
def dict_update(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    target = trace.read(target)
    assert isinstance(target, Mapping)
    for key, value in mapping_items(trace, rest[-1]):
        target.store(trace, key_of(trace, key), value)
    return (target, *rest[:-1])


@opcode("DICT_MERGE", lazy=True)
def dict_merge(trace: Trace, frame: Frame, ins: Instruction, target: Value, *rest: Value) -> Any:
    """`**kwargs` of a call: keys must be strings and new."""
    target = trace.read(target)
    assert isinstance(target, Mapping)
    callee = called(trace, merged_for(frame))
    for key, value in mapping_items(trace, rest[-1], callee):
        name = key_of(trace, key)
        if not isinstance(name, str):
            trace.throw(TypeError("keywords must be strings"))
        if target.get(trace, name) is not None:
            text = f"{callee}() got multiple values for keyword argument '{name}'"
            trace.throw(TypeError(text))
        target.store(trace, name, value)
    return (target, *rest[:-1])


def merged_for(frame: Frame) -> Value:
    """What is called with the keywords that DICT_MERGE puts together: it lies below the positional
    arguments, and below NULL if that comes second."""
    depth = (frame.instruction.arg or 0) + 3 + CALLABLE_FIRST
    return frame.stack[-depth]


def mapping_items(
    trace: Trace, value: Value, callee: str | None = None
) -> list[tuple[Value, Value]]:
    """The items of any mapping, as `**` takes them: through `keys` and `__getitem__`."""
    value = trace.read(value)
    if isinstance(value, Mapping):
        return [(Const(key), item) for key, item in value.read_all(trace).items()]
    keys_method = trace.lookup(value.python_type(), "keys")
    if not callable(keys_method):
        name = type_name(value.python_type())
        text = f"'{name}' object is not a mapping"
        if callee is not None:
            text = f"{callee}() argument after ** must be a mapping, not {name}"
        trace.throw(TypeError(text))
    keys = drain(trace, call_special(trace, value, "keys") or NONE)
    return [(key, get_item(trace, value, key)) for key in keys]


# ---- taking apart


@opcode("UNPACK_SEQUENCE")
def unpack_sequence(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    count = ins.arg or 0
    iterator = iterator_of(trace, value, NOT_UNPACKABLE)
    items: list[Value] = []
    while len(items) <= count and (item := advance(trace, iterator)) is not None:
        items.append(item)
    if len(items) > count:
        _refuse_more(trace, value, count)
    if len(items) < count:
        text = f"not enough values to unpack (expected {count}, got {len(items)})"
        trace.throw(ValueError(text))
    return tuple(reversed(items))


def _refuse_more(trace: Trace, value: Value, count: int) -> None:
    """Python 3.14 also says how many there are, of what has a length without asking."""
    text = f"expected {count}"
    if COUNTS_VALUES and value.python_type() in (list, tuple, dict):
        text += f", got {length(trace, value).constant()}"
    trace.throw(ValueError(f"too many values to unpack ({text})"))


def _counts_values() -> bool:
    try:
        _, _ = (1, 2, 3)  # type: ignore[misc]
    except ValueError as error:
        return "got" in str(error)
    return False


COUNTS_VALUES = _counts_values()


NOT_UNPACKABLE = "cannot unpack non-iterable {} object"


def iterator_of(trace: Trace, value: Value, refusal: str) -> Value:
    """`iter(value)`. What Python can't iterate over is refused in these words."""
    value = trace.read(value)
    cls = value.python_type()
    if trace.lookup(cls, "__iter__") is MISSING and trace.lookup(cls, "__getitem__") is MISSING:
        trace.throw(TypeError(refusal.format(type_name(cls))))
    try:
        return iterate(trace, value)
    except Raised as raised:
        # An error of the object's own stays.
        if raised.value.python_type() is TypeError and trace.lookup(cls, "__iter__") is MISSING:
            trace.throw(TypeError(refusal.format(type_name(cls))))
        raise


@opcode("UNPACK_EX")
def unpack_ex(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    before, after = (ins.arg or 0) & 0xFF, (ins.arg or 0) >> 8
    items = drain(trace, iterator_of(trace, value, NOT_UNPACKABLE))
    if len(items) < before + after:
        needed = f"(expected at least {before + after}, got {len(items)})"
        trace.throw(ValueError(f"not enough values to unpack {needed}"))
    end = len(items) - after
    middle = Sequence(list, items[before:end])
    return tuple(reversed([*items[:before], middle, *items[end:]]))


@opcode("GET_LEN")
def get_len(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return (value, length(trace, value))


# ---- operators


@opcode("BINARY_OP")
def binary_op(trace: Trace, frame: Frame, ins: Instruction, left: Value, right: Value) -> Any:
    symbol: str = ins.value
    if symbol == SUBSCRIPT:
        return get_item(trace, left, right, direct=True)
    if symbol.endswith("="):
        return inplace(trace, symbol[:-1], left, right)
    return binary(trace, symbol, left, right)


@opcode("UNARY_NEGATIVE")
def unary_negative(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return unary(trace, "-", value)


@opcode("UNARY_POSITIVE")
def unary_positive(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return unary(trace, "+", value)


@opcode("UNARY_INVERT")
def unary_invert(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return unary(trace, "~", value)


@opcode("TO_BOOL", lazy=True)
def to_bool(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    """The branch or the `not` that follows asks, and can do better than to know the truth."""
    return value


@opcode("UNARY_NOT")
def unary_not(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return negation(trace, value)


@opcode("COMPARE_OP")
def compare_op(trace: Trace, frame: Frame, ins: Instruction, left: Value, right: Value) -> Any:
    return compare(trace, ins.value, left, right)


@opcode("IS_OP", lazy=True)
def is_op(trace: Trace, frame: Frame, ins: Instruction, left: Value, right: Value) -> Any:
    return boolean(same_object(trace, left, right) is (ins.value == "is"))


@opcode("CONTAINS_OP")
def contains_op(trace: Trace, frame: Frame, ins: Instruction, item: Value, container: Value) -> Any:
    return boolean(contains(trace, container, item) is (ins.value == "in"))


@opcode("BINARY_SUBSCR")
def binary_subscr(trace: Trace, frame: Frame, ins: Instruction, obj: Value, key: Value) -> Any:
    return get_item(trace, obj, key, direct=True)


@opcode("BINARY_SLICE")
def binary_slice(
    trace: Trace, frame: Frame, ins: Instruction, obj: Value, start: Value, stop: Value
) -> Any:
    return get_item(trace, obj, make_slice([start, stop, NONE]))


@opcode("STORE_SLICE")
def store_slice(
    trace: Trace,
    frame: Frame,
    ins: Instruction,
    value: Value,
    obj: Value,
    start: Value,
    stop: Value,
) -> Any:
    set_item(trace, obj, make_slice([start, stop, NONE]), value, direct=True)


@opcode("STORE_SUBSCR", lazy=True)
def store_subscr(
    trace: Trace, frame: Frame, ins: Instruction, value: Value, obj: Value, key: Value
) -> Any:
    set_item(trace, obj, key, value, direct=True)


@opcode("DELETE_SUBSCR")
def delete_subscr(trace: Trace, frame: Frame, ins: Instruction, obj: Value, key: Value) -> Any:
    delete_item(trace, obj, key, direct=True)


# ---- patterns


@opcode("MATCH_SEQUENCE")
def match_sequence(trace: Trace, frame: Frame, ins: Instruction, subject: Value) -> Any:
    return (subject, boolean(bool(subject.python_type().__flags__ & MATCH_SEQUENCE)))


@opcode("MATCH_MAPPING")
def match_mapping(trace: Trace, frame: Frame, ins: Instruction, subject: Value) -> Any:
    return (subject, boolean(bool(subject.python_type().__flags__ & MATCH_MAPPING)))


@opcode("MATCH_KEYS")
def match_keys_op(trace: Trace, frame: Frame, ins: Instruction, subject: Value, keys: Value) -> Any:
    return (subject, keys, match_keys(trace, subject, keys))


INTRINSICS = {
    "INTRINSIC_UNARY_POSITIVE": lambda trace, value: unary(trace, "+", value),
    "INTRINSIC_LIST_TO_TUPLE": lambda trace, value: list_to_tuple(trace, None, None, value),
}


@opcode("CALL_INTRINSIC_1")
def call_intrinsic_1(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    handler = INTRINSICS.get(ins.value)
    if handler is not None:
        return handler(trace, value)
    if ins.value == "INTRINSIC_STOPITERATION_ERROR":
        return stop_iteration_error(trace, value)
    raise Break("unsupported-instruction", ins.value)


def stop_iteration_error(trace: Trace, value: Value) -> Value:
    """A generator must not let StopIteration out (PEP 479)."""
    if issubclass(value.python_type(), StopIteration):
        refuse_stop_iteration(trace, value)
    return value


@opcode("CALL_INTRINSIC_2")
def call_intrinsic_2(
    trace: Trace, frame: Frame, ins: Instruction, left: Value, right: Value
) -> Any:
    if ins.value == "INTRINSIC_PREP_RERAISE_STAR":
        assert isinstance(right, Sequence)
        return to_raise(trace, left, right.items)
    raise Break("unsupported-instruction", ins.value)


__all__ = ["get_attribute", "mapping_items"]
