"""The kinds of guard: one record for each, with everything that is particular to the kind.

A kind is added here and nowhere else: how its guards print, how the native tree checks them, how a
failure is explained, and whether it can tell entries apart. `docs/guards.md` has its table from
here. What native code can't check yet may be a predicate (`predicates`), at the cost of a call into
Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, unique
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import torch

from pliant._native import UNREACHABLE, GuardTree, State
from pliant.base.external import External, Mapper
from pliant.base.values import dataclass
from pliant.guards.expected import MISSING, ExpectedTensor, ShapeCondition
from pliant.guards.predicates import Elements
from pliant.guards.source import Source, key_text
from pliant.guards.texts import cut, describe, elements, keys, length, short

if TYPE_CHECKING:
    from pliant.guards.guard import Guard


class TreeBuilder(Protocol):
    """A native tree being built (`plan`), as the kinds see it."""

    tree: GuardTree

    def node(self, source: Source) -> int:
        """The node of the tree that reaches a value."""

    def is_new(self, kind: GuardKind, about: tuple[Any, ...]) -> bool:
        """Whether nothing that is the same was asked before."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A failure taken apart: `L['x'].size()[0]` was expected to be `3` and found to be `4`."""

    subject: str
    expected: str
    found: str


Subject = Literal["value", "values", "sizes", "process"]
IndexAnswer = tuple[int, int, Any]
"""Mode, dimension, expected: an answer to a question that tells entries apart (`index`)."""

EQUAL, IDENTITY, CLASS, LENGTH, TENSOR, SIZE = range(6)  # the modes, as `csrc/index.h` has them


@dataclass(frozen=True, slots=True)
class GuardRecord:
    """All about one kind of guard."""

    text: str
    """How a guard prints: `{0}` is its source, `{1}` what is expected."""
    doc: str
    """What is assumed, for the documentation."""
    example: str
    """A guard, for the documentation."""
    add: Callable[[TreeBuilder, Guard], None]
    """Add the check to the native tree."""
    about: Subject = "value"
    """One value; several (`source` is the first, `expected` a tuple of the other sources); sizes
    and numbers of several values, or the process (both without a source)."""
    show: Callable[[Any], str] = short
    """What is expected, as text."""
    explain: Callable[[Guard, Any], str] | None = None
    """A failure as a sentence, if it isn't the guard and `got ...`."""
    difference: Callable[[Guard, Any], Difference] | None = None
    """A failure taken apart, if it can be."""
    unreachable: str = "{0}, but {1} is not there"
    """The sentence if the value itself is not there: of the guard and its source."""
    routine: bool = False
    """It only says that code, classes and modules are as they were."""
    answers: Callable[[Any], list[IndexAnswer]] | None = None
    """What it says about a call that tells entries apart."""
    parts: Callable[[Any, Mapper], Any] | None = None
    """What is expected, as data and back, if not all of it is compared by value."""


# ---- checks


def of_value(check: Callable[[GuardTree, int, Any, Guard], None]) -> Any:
    """How to add a check of one value: `check` gets the node of its source and what is expected."""

    def add(builder: TreeBuilder, guard: Guard) -> None:
        assert guard.source is not None, guard.kind
        node = builder.node(guard.source)
        # Capture notes the same assumption each time it relies on it. One check is enough.
        if builder.is_new(guard.kind, (node, _identity(guard.expected))):
            check(builder.tree, node, guard.expected, guard)

    return add


def of_values(check: Callable[[GuardTree, list[int], Guard], None]) -> Any:
    """How to add a check of several values: `check` gets the nodes of their sources."""

    def add(builder: TreeBuilder, guard: Guard) -> None:
        assert guard.source is not None, guard.kind
        nodes = [builder.node(source) for source in (guard.source, *guard.expected)]
        if builder.is_new(guard.kind, tuple(nodes)):
            check(builder.tree, nodes, guard)

    return add


def _identity(expected: Any) -> Any:
    """A hashable key, equal only for expected values that mean the same. Objects count by id:
    guards keep them alive, so ids don't recur."""
    if isinstance(expected, tuple):
        return (type(expected), *map(_identity, expected))
    if type(expected) in (str, int, bool, ExpectedTensor):
        return (type(expected), expected)
    return id(expected)


def _check_keys(tree: GuardTree, node: int, expected: Any, guard: Guard) -> None:
    """Most dictionaries of hooks are empty: that is seen at a glance."""
    if expected := tuple(expected):
        tree.check_keys(node, expected, guard)
    else:
        tree.check_length(node, 0, guard)


def _check_elements(tree: GuardTree, node: int, expected: Any, guard: Guard) -> None:
    tree.check_predicate(node, Elements(expected), guard)


def _check_present(tree: GuardTree, node: int, _: Any, guard: Guard) -> None:
    """True of whatever is there: the way to it is what is checked."""
    tree.check_is_not(node, UNREACHABLE, guard)


def _check_class_attr(tree: GuardTree, node: int, expected: Any, guard: Guard) -> None:
    tree.check_class_attr(node, expected[:1] if expected[1] is MISSING else expected, guard)


# What `GuardTree.check_expression` calls them.
_MEASURES: Final = {"size": 0, "stride": 1, "offset": 2, "value": 3}


def _add_shape(builder: TreeBuilder, guard: Guard) -> None:
    condition: ShapeCondition = guard.expected
    code = condition.program.numbers()
    loads = [
        (builder.node(load.source), _MEASURES[load.what], load.dim) for load in condition.loads
    ]
    if builder.is_new(guard.kind, (*code, *loads)):
        builder.tree.check_expression(loads, code, condition.program.depth, guard)


def _add_state(builder: TreeBuilder, guard: Guard) -> None:
    builder.tree.check_state(guard.expected, guard)


# ---- explanations


def differs(subject: str, show_value: Callable[[Any], str] = describe) -> Any:
    """A `difference` whose subject is this text with the source in it."""

    def difference(guard: Guard, actual: Any) -> Difference:
        expected = guard.kind.record.show(guard.expected)
        return Difference(subject.format(guard.source), expected, show_value(actual))

    return difference


def got(show_value: Callable[[Any], str]) -> Any:
    """An `explain` that prints the guard, and what was found instead."""
    return lambda guard, value: f"{guard}, got {show_value(value)}"


def _shape_difference(guard: Guard, actual: Any) -> Difference:
    loads = guard.expected.loads
    # A condition on one size, such as `L['x'].size()[0] == 3`, has a subject of its own.
    subject, equals, number = str(guard).partition(" == ")
    if equals and len(loads) == 1 and subject == str(loads[0]):
        return Difference(subject, number, str(actual[0]))
    return Difference(f"whether {guard}", "true", f"not ({_loaded(guard.expected, actual)})")


def _tensor_difference(guard: Guard, value: Any) -> Difference:
    if not isinstance(value, torch.Tensor):
        return Difference(str(guard.source), "a tensor", describe(value))
    for name, expected, actual in _tensor_properties(guard.expected, value):
        if expected is not None and expected != actual:
            return Difference(f"{guard.source}.{name}", str(expected), str(actual))
    return Difference(
        str(guard.source), str(guard.expected), f"{value.layout} tensor of {value.dtype}"
    )


def _explain_tensor(guard: Guard, value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{guard.source} is a tensor, got {describe(value)}"
    difference = _tensor_difference(guard, value)
    return f"{difference.subject} == {difference.expected}, got {difference.found}"


def _tensor_properties(
    spec: ExpectedTensor, tensor: torch.Tensor
) -> Iterator[tuple[str, Any, Any]]:
    yield "dtype", spec.dtype, tensor.dtype
    yield "device", spec.device, tensor.device
    yield "dim()", len(spec.sizes), tensor.dim()
    for i, size in enumerate(spec.sizes):
        yield f"size()[{i}]", size, tensor.size(i)
    yield "requires_grad", spec.requires_grad, tensor.requires_grad
    if spec.dispatch_keys != (keys := torch._C._dispatch_keys(tensor)).raw_repr():
        expected = torch._C.DispatchKeySet.from_raw_repr(spec.dispatch_keys)
        yield "dispatch_keys", str(expected), str(keys)
    for i, stride in enumerate(spec.strides or ()):
        yield f"stride()[{i}]", stride, tensor.stride(i)
    if spec.strides is not None:
        yield "storage_offset()", spec.storage_offset, tensor.storage_offset()


def _explain_state(guard: Guard, actual: Any) -> str:
    return f"torch global state: {guard.expected.diff(State.current()) or 'changed back since'}"


def _explain_class_attr(guard: Guard, actual: Any) -> str:
    attribute = inspect.getattr_static(actual, guard.expected[0], MISSING)
    return f"{guard}, got {attribute if attribute is MISSING else describe(attribute)}"


def _explain_shape(guard: Guard, actual: Any) -> str:
    return f"{guard}, got {_loaded(guard.expected, actual)}"


def _loaded(condition: ShapeCondition, actual: Sequence[int | None]) -> str:
    """What was found of each size and number the condition speaks of."""
    numbers = zip(condition.loads, actual, strict=True)
    return ", ".join(f"{load} {'is not there' if n is None else f'= {n}'}" for load, n in numbers)


def _explain_distinct(guard: Guard, actual: Any) -> str:
    sources = (guard.source, *guard.expected)
    return f"{guard}, got {sources[actual[0]]} is {sources[actual[1]]}"


# ---- what tells entries apart

_CONSTANTS: Final = (int, bool, float, str, bytes, type(None))


def _constant_answers(expected: Any) -> list[IndexAnswer]:
    return [(EQUAL, 0, expected)] if type(expected) in _CONSTANTS else []


def _tensor_answers(spec: ExpectedTensor) -> list[IndexAnswer]:
    sizes = [(SIZE, dim, size) for dim, size in enumerate(spec.sizes) if size is not None]
    return [(TENSOR, 0, spec), *sizes]


# ---- as data


def _very_object(expected: Any, mapper: Mapper) -> Any:
    return mapper.identity(expected)


def _name_and_object(expected: tuple[str, Any], mapper: Mapper) -> tuple[str, Any]:
    return expected[0], mapper.identity(expected[1])


# ---- the kinds


def _class_name(expected: type) -> str:
    return str(expected.__qualname__)


def _code_text(expected: Sequence[Any]) -> str:
    code = expected[0]
    return code.text if type(code) is External else f"<code {code.co_qualname}>"


def _listed(expected: Sequence[Any]) -> str:
    return cut(f"[{', '.join(map(key_text, expected))}]")


def _sources(expected: Sequence[Source]) -> str:
    return ", ".join(str(source) for source in expected)


@unique  # an equal record would make one kind an alias of another
class GuardKind(Enum):
    """The closed set of things that can be assumed of a value."""

    record: GuardRecord

    def __init__(self, record: GuardRecord) -> None:
        self.record = record  # the same as `value`, which is a slow property

    __hash__ = object.__hash__  # Enum's is Python code, and kinds are looked up for every guard

    def __reduce_ex__(self, protocol: Any) -> Any:  # by name: the record has functions in it
        return _kind_named, (self.name,)

    TYPE = GuardRecord(
        "type({0}) is {1}",
        "exactly this class, not a subclass",
        "type(L['x']) is Tensor",
        of_value(GuardTree.check_type),
        show=_class_name,
        explain=got(lambda value: type(value).__qualname__),
        difference=differs("type({})", lambda value: type(value).__qualname__),
        answers=lambda expected: [(CLASS, 0, expected)],
        parts=_very_object,
    )
    TENSOR = GuardRecord(
        "{0} matches {1}",  # expected: ExpectedTensor
        "all properties of a tensor at once",
        "L['x'] matches Tensor(float32[3, 3], stride=(3, 1), cpu)",
        of_value(GuardTree.check_tensor),
        show=str,
        explain=_explain_tensor,
        difference=_tensor_difference,
        answers=_tensor_answers,
    )
    SHAPE = GuardRecord(
        "{1}",  # expected: ShapeCondition
        "a condition on symbolic sizes and numbers ([dynamic shapes](dynamic_shapes.md))",
        "L['x'].size()[0] >= 4",
        _add_shape,
        about="sizes",
        show=str,
        explain=_explain_shape,
        difference=_shape_difference,
    )
    EQUALS = GuardRecord(
        "{0} == {1}",
        "equal and of the same type; NaN equals NaN, `0.0` is not `-0.0`",
        "L['k'] == 3",
        of_value(GuardTree.check_equal),
        difference=differs("{}"),
        answers=_constant_answers,
    )
    IS = GuardRecord(
        "{0} is {1}",
        "this very object",
        "G['torch'] is torch",
        of_value(GuardTree.check_is),
        difference=differs("{}"),
        answers=lambda expected: [(IDENTITY, 0, expected)],
        parts=_very_object,
    )
    IS_NOT = GuardRecord(
        "{0} is not {1}",
        "any other object",
        "L['mask'] is not None",
        of_value(GuardTree.check_is_not),
        parts=_very_object,
    )
    LENGTH = GuardRecord(
        "len({0}) == {1}",
        "how many items there are",
        "len(L['items']) == 2",
        of_value(GuardTree.check_length),
        explain=got(length),
        difference=differs("len({})", length),
        answers=lambda expected: [(LENGTH, 0, expected)],
    )
    KEYS = GuardRecord(
        "list({0}) == {1}",
        "a dictionary's keys, in order",
        "list(L['options']) == ['a', 'b']",
        of_value(_check_keys),
        show=_listed,
        explain=got(keys),
        difference=differs("list({})", keys),
    )
    ELEMENTS = GuardRecord(
        "elements of {0} are {1}",
        "what a set of plain values holds, in the order in which it gives them",
        "elements of L['names'] are ['a', 'b']",
        of_value(_check_elements),
        show=_listed,
        explain=got(elements),
        difference=differs("elements of {}", elements),
    )
    HAS = GuardRecord(
        "{1} in {0}",
        "a dictionary has a key",
        "'bias' in L['options']",
        of_value(GuardTree.check_has),
        explain=got(lambda value: "no such key"),
    )
    LACKS = GuardRecord(
        "{1} not in {0}",
        "a dictionary doesn't have a key",
        "'weight' not in L['self'].__dict__",
        of_value(GuardTree.check_lacks),
        explain=got(lambda value: "such a key"),
        routine=True,
    )
    PRESENT = GuardRecord(
        "{0} is there",
        "it was looked up, and nothing else is assumed",
        "L['options']['a'] is there",
        of_value(_check_present),
        unreachable="{0}, got nothing",
    )
    FUNCTION = GuardRecord(
        "{0}.__code__ is {1}",  # expected: (code, globals dict)
        "a Python function, by its code: a new closure of the same code fits",
        "G['helper'].__code__ is <code helper>",
        of_value(GuardTree.check_function),
        show=_code_text,
        routine=True,
    )
    CLASS_ATTR = GuardRecord(
        "{0}.{1}",  # expected: (name, value or MISSING); source: Fixed(cls)
        "what a class has under a name (to its left: the class and the name)",
        "Net.forward is Net.forward",
        of_value(_check_class_attr),
        show=lambda expected: f"{expected[0]} is {short(expected[1])}",
        explain=_explain_class_attr,
        routine=True,
        parts=_name_and_object,
    )
    SAME = GuardRecord(
        "same object: {0}, {1}",
        "several names for one object",
        "same object: L['a'], L['b']",
        of_values(GuardTree.check_same),
        about="values",
        show=_sources,
        explain=got(lambda value: "different objects"),
        routine=True,
    )
    DISTINCT = GuardRecord(
        "all different: {0}, {1}",
        "no two are the same object",
        "all different: L['a'], L['b']",
        of_values(GuardTree.check_distinct),
        about="values",
        show=_sources,
        explain=_explain_distinct,
    )
    STATE = GuardRecord(
        "torch global state is {1}",  # expected: a native State
        "PyTorch's modes",
        "torch global state is grad_enabled=True, …",
        _add_state,
        about="process",
        show=str,
        explain=_explain_state,
    )
    PREDICATE = GuardRecord(
        "{1}({0})",  # expected: Python callable
        "a Python function: for rare types, slower than the others",
        "(lambda v: int(v) == 3)(L['level'])",
        of_value(GuardTree.check_predicate),
        parts=_very_object,
    )


def _kind_named(name: str) -> GuardKind:
    return GuardKind[name]
