"""What the tables say that opcodes mean, against Python."""

import copy
import dis
import types

import pytest

from pliant.bytecode import OPCODES, decode
from pliant.bytecode.semantics import match_class

MEANINGS = {name: info for name, info in OPCODES.items() if isinstance(info.meaning, str)}


def store_item(value, container, key):
    container[key] = value


def store_slice(value, container, start, stop):
    container[start:stop] = value


def delete_item(container, key):
    del container[key]


def store_attribute(value, obj):
    obj.name = value


def delete_attribute(obj):
    del obj.name


def iterate(items):
    for item in items:
        return item


def as_tuple(items):
    return [*items], iter((*items,))


NAMESPACE = types.SimpleNamespace(name=3)
# For each opcode: a function that has it, and operands in the order in which it takes them.
SAMPLES = {
    "UNARY_NEGATIVE": (lambda a: -a, [3]),
    "UNARY_POSITIVE": (lambda a: +a, [True]),
    "UNARY_INVERT": (lambda a: ~a, [3]),
    "UNARY_NOT": (lambda a: not a, [[]]),
    "BINARY_SUBSCR": (lambda a, b: a[b], [[1, 2], 1]),
    "BINARY_SLICE": (lambda a, b, c: a[b:c], [[1, 2, 3, 4], 1, 3]),
    "STORE_SUBSCR": (store_item, [9, [1, 2], 1]),
    "STORE_SLICE": (store_slice, [[9, 8], [1, 2, 3], 0, 1]),
    "DELETE_SUBSCR": (delete_item, [[1, 2], 0]),
    "STORE_ATTR": (store_attribute, [9, NAMESPACE]),
    "DELETE_ATTR": (delete_attribute, [NAMESPACE]),
    "COMPARE_OP": (lambda a, b: a <= b, [2, 1]),
    "CONTAINS_OP": (lambda a, b: a not in b, [2, [1]]),
    "IS_OP": (lambda a, b: a is not b, [2, None]),
    "GET_ITER": (iterate, [[5, 6]]),
    "BUILD_SET": (lambda a, b: {a, b}, [1, 2]),
    "BUILD_STRING": (lambda a, b: f"{a}{b}", ["a", "b"]),
    "BUILD_SLICE": (lambda a, b, c: [0, 1, 2, 3, 4][a:b:c], [1, 5, 2]),
    "LIST_TO_TUPLE": (as_tuple, [[1, 2]]),
    "FORMAT_SIMPLE": (lambda a: f"{a}", [3]),
    "FORMAT_WITH_SPEC": (lambda a, b: f"{a:{b}}", [3, ">4"]),
    "CONVERT_VALUE": (lambda a: f"{a!r}", ["a"]),
}
# What follows the opcode in a sample, done to its result.
AFTERWARDS = {
    "GET_ITER": next,
    "BUILD_SLICE": [0, 1, 2, 3, 4].__getitem__,
    "LIST_TO_TUPLE": lambda items: ([*items], list(items)),
}


def outcome(result, operands):
    if isinstance(result, tuple) and hasattr(result[1], "__next__"):
        result = result[0], list(result[1])
    return result, operands


@pytest.mark.parametrize("name", MEANINGS)
def test_meaning_of(name):
    function, operands = SAMPLES[name]
    instructions = [each for each in decode(function.__code__).instructions if each.op == name]
    value = instructions[0].value
    names = [f"operand_{index}" for index in range(len(operands))]
    info = OPCODES[name]
    assert info.stack(instructions[0].arg) == (len(operands), int(bool(info.pushes)))
    text = info.source(names, value if isinstance(value, str) else "value")
    by_text = copy.deepcopy(operands)
    namespace = dict(zip(names, by_text, strict=True), value=value)
    exec(f"result = {text}" if info.pushes else f"result = None; {text}", namespace)
    result = namespace["result"]
    if name in AFTERWARDS:
        result = AFTERWARDS[name](result)
    by_python = copy.deepcopy(operands)
    assert outcome(result, by_text) == outcome(function(*by_python), by_python)


class Point:
    __match_args__ = ("x", "y")
    x, y = 1, 2


class Whole(int):
    pass


class Nothing(int):
    __match_args__ = ()


class NoTuple:
    __match_args__ = ["x"]


class NoNames:
    __match_args__ = (1,)


class Counted(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, int)


class Number(metaclass=Counted):
    __match_args__ = ("real",)


class Raises:
    @property
    def x(self):
        raise ValueError("x")


SUBJECTS = [Point(), 3, Whole(4), Nothing(5), NoTuple(), NoNames(), Raises(), "a", None, [1]]
PATTERNS = [
    *["Point()", "Point(a)", "Point(a, b)", "Point(a, b, c)", "Point(a, x=b)", "Point(x=a, y=b)"],
    *["int()", "int(a)", "int(a, b)", "int(a, real=b)", "Whole(a)", "Nothing(a)", "NoTuple(a)"],
    *["NoNames(a)", "Number(a)", "Raises(x=a)", "str(a)", "list(a)", "none(a)", "Point(z=a)"],
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_class_patterns(pattern):
    source = f"match subject:\n  case {pattern}: matched = True"
    namespace = dict(globals(), none=None)
    code = compile(source, "match", "exec")
    (instruction,) = [each for each in dis.get_instructions(code) if each.opname == "MATCH_CLASS"]
    names = tuple(
        part.split("=")[0] for part in pattern[:-1].split("(")[1].split(", ") if "=" in part
    )
    cls = eval(pattern.split("(")[0], namespace)
    for subject in SUBJECTS:
        assert run_match(code, namespace, subject) == call_match(
            subject, cls, names, instruction.arg
        )


def run_match(code, namespace, subject):
    variables = dict(namespace, subject=subject, matched=False)
    try:
        exec(code, variables)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    if not variables["matched"]:
        return None
    return tuple(variables[name] for name in "abc" if name in variables)


def call_match(*arguments):
    try:
        return match_class(*arguments)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
