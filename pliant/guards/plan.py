"""From guards to the native tree that checks them on each call, and from a failure to a sentence.

The tree is built in the order that finds a difference soonest: the process, then what is known of
parameters, then what lies deeper. Nothing here runs on a call that hits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pliant._native import UNREACHABLE, GuardTree, State
from pliant.base.values import dataclass
from pliant.guards.guard import (
    MISSING,
    ExpectedTensor,
    Guard,
    GuardKind,
    ShapeCondition,
    name_of,
    shown,
)
from pliant.guards.source import (
    Attr,
    CellContents,
    ClassAttr,
    ClosureCell,
    DictItem,
    Fixed,
    InstanceDict,
    Local,
    Member,
    SeqItem,
    Source,
    TypeOf,
)

_ROOTS: dict[type[Source], Callable[[GuardTree, Any], int]] = {
    Local: lambda tree, source: tree.local(source.index),
    Fixed: lambda tree, source: tree.fixed(source.value),
}

_STEPS: dict[type[Source], Callable[[GuardTree, int, Any], int]] = {
    InstanceDict: lambda tree, parent, source: tree.instance_dict(parent),
    DictItem: lambda tree, parent, source: tree.dict_item(parent, source.key),
    SeqItem: lambda tree, parent, source: tree.seq_item(parent, source.index),
    Attr: lambda tree, parent, source: tree.attr(parent, source.name),
    Member: lambda tree, parent, source: tree.member(parent, source.name),
    TypeOf: lambda tree, parent, source: tree.type_of(parent),
    CellContents: lambda tree, parent, source: tree.cell_contents(parent),
    ClosureCell: lambda tree, parent, source: tree.closure_cell(parent, source.index),
    ClassAttr: lambda tree, parent, source: tree.class_attr(parent, source.name),
}


def _check_keys(tree: GuardTree, node: int, keys: tuple[Any, ...], guard: Guard) -> None:
    """Most dictionaries of hooks are empty: that is seen at a glance."""
    if keys:
        tree.check_keys(node, keys, guard)
    else:
        tree.check_length(node, 0, guard)


_CHECKS: dict[GuardKind, Callable[[GuardTree, int, Any, Guard], None]] = {
    GuardKind.TYPE: GuardTree.check_type,
    GuardKind.IS: GuardTree.check_is,
    GuardKind.IS_NOT: GuardTree.check_is_not,
    GuardKind.EQUALS: GuardTree.check_equal,
    GuardKind.LENGTH: GuardTree.check_length,
    GuardKind.KEYS: lambda tree, node, keys, guard: _check_keys(tree, node, tuple(keys), guard),
    GuardKind.HAS: GuardTree.check_has,
    # True of whatever is there: the way to it is what is checked.
    GuardKind.PRESENT: lambda tree, node, _, guard: tree.check_is_not(node, UNREACHABLE, guard),
    GuardKind.LACKS: GuardTree.check_lacks,
    GuardKind.FUNCTION: GuardTree.check_function,
    GuardKind.CLASS_ATTR: lambda tree, node, expected, guard: tree.check_class_attr(
        node, expected[:1] if expected[1] is MISSING else expected, guard
    ),
    GuardKind.TENSOR: GuardTree.check_tensor,
    GuardKind.PREDICATE: GuardTree.check_predicate,
}

# What `GuardTree.check_expression` calls them.
_MEASURES = {"size": 0, "stride": 1, "offset": 2, "value": 3}

_RELATIONS: dict[GuardKind, Callable[[GuardTree, list[int], Guard], None]] = {
    GuardKind.SAME: GuardTree.check_same,
    GuardKind.DISTINCT: GuardTree.check_distinct,
}


def build(guards: Sequence[Guard], slots: Sequence[Source], nlocals: int) -> GuardTree:
    """The tree that checks `guards` and hands the values of `slots`, in order, to residual code."""
    plan = _Plan(GuardTree(nlocals))
    for guard in sorted(guards, key=_rank):
        plan.add(guard)
    for source in slots:
        plan.tree.slot(plan.node(source))
    plan.tree.finish()
    return plan.tree


def _rank(guard: Guard) -> int:
    """The order of checking; guards of one rank stay as they were made."""
    if guard.kind is GuardKind.STATE:
        return 0
    return 1 if isinstance(guard.source, Local) and guard.kind not in _RELATIONS else 2


class _Plan:
    """A tree being built."""

    def __init__(self, tree: GuardTree) -> None:
        self.tree = tree
        self._nodes: dict[int, int] = {}  # by id of the source: hashing long paths is slow
        self._alive: list[Source] = []  # so that no id is used twice
        self._seen: set[Any] = set()

    def node(self, source: Source) -> int:
        node = self._nodes.get(id(source))
        if node is None:
            base = source.parent
            if base is None:
                node = _ROOTS[type(source)](self.tree, source)
            else:
                node = _STEPS[type(source)](self.tree, self.node(base), source)
            self._nodes[id(source)] = node
            self._alive.append(source)
        return node

    def add(self, guard: Guard) -> None:
        if guard.kind in _WITHOUT_SOURCE:
            _WITHOUT_SOURCE[guard.kind](self, guard)
            return
        assert guard.source is not None, guard.kind
        node = self.node(guard.source)
        if guard.kind in _RELATIONS:
            nodes = [node, *map(self.node, guard.expected)]
            if self._is_new(guard.kind, tuple(nodes)):
                _RELATIONS[guard.kind](self.tree, nodes, guard)
        elif self._is_new(guard.kind, (node, _identity(guard.expected))):
            _CHECKS[guard.kind](self.tree, node, guard.expected, guard)

    def add_shape(self, guard: Guard) -> None:
        condition: ShapeCondition = guard.expected
        code = condition.program.numbers()
        loads = [(self.node(one.source), _MEASURES[one.what], one.dim) for one in condition.loads]
        if self._is_new(guard.kind, (*code, *loads)):
            self.tree.check_expression(loads, code, condition.program.depth, guard)

    def _is_new(self, kind: GuardKind, about: tuple[Any, ...]) -> bool:
        key = (kind, about)
        new = key not in self._seen
        self._seen.add(key)
        return new


_WITHOUT_SOURCE: dict[GuardKind, Callable[[_Plan, Guard], None]] = {
    GuardKind.STATE: lambda plan, guard: plan.tree.check_state(guard.expected, guard),
    GuardKind.SHAPE: _Plan.add_shape,
}


def _identity(expected: Any) -> Any:
    """Equal only for expected values that mean the same; guards are alive, so ids do not recur."""
    if isinstance(expected, tuple):
        return (type(expected), *map(_identity, expected))
    if type(expected) in (str, int, bool, ExpectedTensor):
        return (type(expected), expected)
    return id(expected)


# Explanations -------------------------------------------------------------------------------------


# Native code reports no guard for what is only handed to the residual code.
LOST = "everything that is passed along is there, got less"


def explain(guard: Guard | None, got: Any) -> str:
    """The condition that failed and what was found: `L['x'].size()[0] == 3, got 4`.

    `guard` and `got` are what `GuardTree.check` reports.
    """
    if guard is None:
        return LOST
    if got is UNREACHABLE:
        if guard.kind is GuardKind.PRESENT:
            return f"{guard}, got nothing"
        return f"{guard}, but {guard.source} is not there"
    special = _EXPLAIN.get(guard.kind)
    return special(guard, got) if special else f"{guard}, got {_describe(got)}"


@dataclass(frozen=True, slots=True)
class Difference:
    """A failure taken apart: `L['x'].size()[0]` was expected to be `3` and found to be `4`."""

    subject: str
    expected: str
    found: str


def difference(guard: Guard | None, got: Any) -> Difference:
    """What is different, in its smallest part."""
    if guard is None:
        return Difference("something that is passed along", "there", "not there")
    source = str(guard.source)
    if got is UNREACHABLE:
        return Difference(source, "there", "not there")
    if guard.kind is GuardKind.TENSOR:
        return _tensor_difference(guard, got)
    if guard.kind is GuardKind.SHAPE:
        return _shape_difference(guard, got)
    special = _DIFFERENCE.get(guard.kind)
    if special is None:
        return Difference(f"whether {guard}", "true", "not")
    subject, found = special
    return Difference(subject.format(source), shown(guard.kind, guard.expected), found(got))


def _shape_difference(guard: Guard, got: Any) -> Difference:
    loads = guard.expected.loads
    subject, equals, number = str(guard).partition(" == ")
    if equals and len(loads) == 1 and subject == str(loads[0]):
        return Difference(subject, number, str(got[0]))
    return Difference(f"whether {guard}", "true", f"not ({_loaded(guard.expected, got)})")


def _tensor_difference(guard: Guard, got: Any) -> Difference:
    if not isinstance(got, torch.Tensor):
        return Difference(str(guard.source), "a tensor", _describe(got))
    for name, expected, found in _tensor_properties(guard.expected, got):
        if expected is not None and expected != found:
            return Difference(f"{guard.source}.{name}", str(expected), str(found))
    return Difference(str(guard.source), str(guard.expected), f"{got.layout} tensor of {got.dtype}")


def _explain_tensor(guard: Guard, got: Any) -> str:
    if not isinstance(got, torch.Tensor):
        return f"{guard.source} is a tensor, got {_describe(got)}"
    found = _tensor_difference(guard, got)
    return f"{found.subject} == {found.expected}, got {found.found}"


def _tensor_properties(spec: ExpectedTensor, got: torch.Tensor) -> Iterator[tuple[str, Any, Any]]:
    yield "dtype", spec.dtype, got.dtype
    yield "device", spec.device, got.device
    yield "dim()", len(spec.sizes), got.dim()
    for i, size in enumerate(spec.sizes):
        yield f"size()[{i}]", size, got.size(i)
    yield "requires_grad", spec.requires_grad, got.requires_grad
    if spec.dispatch_keys != (keys := torch._C._dispatch_keys(got)).raw_repr():
        expected = torch._C.DispatchKeySet.from_raw_repr(spec.dispatch_keys)
        yield "dispatch_keys", str(expected), str(keys)
    for i, stride in enumerate(spec.strides or ()):
        yield f"stride()[{i}]", stride, got.stride(i)
    if spec.strides is not None:
        yield "storage_offset()", spec.storage_offset, got.storage_offset()


def _explain_state(guard: Guard, got: Any) -> str:
    return f"torch global state: {guard.expected.diff(State.current()) or 'changed back since'}"


def _explain_class_attr(guard: Guard, got: Any) -> str:
    found = inspect.getattr_static(got, guard.expected[0], MISSING)
    return f"{guard}, got {found if found is MISSING else _describe(found)}"


def _explain_shape(guard: Guard, got: Any) -> str:
    return f"{guard}, got {_loaded(guard.expected, got)}"


def _loaded(condition: ShapeCondition, got: Sequence[int | None]) -> str:
    """What was found of each size and number the condition speaks of."""
    found = zip(condition.loads, got, strict=True)
    return ", ".join(f"{load} {'is not there' if n is None else f'= {n}'}" for load, n in found)


def _explain_distinct(guard: Guard, got: Any) -> str:
    sources = (guard.source, *guard.expected)
    return f"{guard}, got {sources[got[0]]} is {sources[got[1]]}"


_EXPLAIN: dict[GuardKind, Callable[[Guard, Any], str]] = {
    GuardKind.TYPE: lambda guard, got: f"{guard}, got {type(got).__qualname__}",
    GuardKind.LENGTH: lambda guard, got: f"{guard}, got {_length(got)}",
    GuardKind.KEYS: lambda guard, got: f"{guard}, got {_keys(got)}",
    GuardKind.HAS: lambda guard, got: f"{guard}, got no such key",
    GuardKind.LACKS: lambda guard, got: f"{guard}, got such a key",
    GuardKind.CLASS_ATTR: _explain_class_attr,
    GuardKind.TENSOR: _explain_tensor,
    GuardKind.SAME: lambda guard, got: f"{guard}, got different objects",
    GuardKind.DISTINCT: _explain_distinct,
    GuardKind.SHAPE: _explain_shape,
    GuardKind.STATE: _explain_state,
}

# The subject, made of the source, and the text of what was found.
_DIFFERENCE: dict[GuardKind, tuple[str, Callable[[Any], str]]] = {
    GuardKind.TYPE: ("type({})", lambda got: type(got).__qualname__),
    GuardKind.IS: ("{}", lambda got: _describe(got)),
    GuardKind.EQUALS: ("{}", lambda got: _describe(got)),
    GuardKind.LENGTH: ("len({})", lambda got: _length(got)),
    GuardKind.KEYS: ("list({})", lambda got: _keys(got)),
}

_PRINTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, range, slice, torch.dtype)


def _describe(value: Any) -> str:
    """What a value is, in a few words, without running a `__repr__` of the user's."""
    if type(value) in _PRINTABLE or isinstance(value, torch.device):
        text = repr(value)
        return text if len(text) <= 120 else text[:117] + "..."
    if isinstance(value, type) or inspect.isroutine(value):
        return name_of(value) or str(value)
    return f"<{type(value).__qualname__} object>"


def _length(value: Any) -> str:
    return str(len(value)) if hasattr(type(value), "__len__") else _describe(value)


def _keys(value: Any) -> str:
    if not isinstance(value, dict):
        return _describe(value)
    shown = [_describe(key) for _, key in zip(range(20), value, strict=False)]
    return f"[{', '.join(shown)}{', ...' if len(value) > len(shown) else ''}]"
