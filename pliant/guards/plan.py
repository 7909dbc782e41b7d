"""From guards to the native tree that checks them on each call, and from a failure to a sentence.

The tree has a node for each source, so that guards on one value fetch it once. Checks are in the
order that finds a difference soonest: the process, then what is known of parameters, then what lies
deeper. Nothing here runs on a call that hits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pliant._native import UNREACHABLE, GuardTree
from pliant.guards.guard import Guard, GuardKind
from pliant.guards.kinds import Difference
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
from pliant.guards.texts import describe

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


def build(guards: Sequence[Guard], slots: Sequence[Source], nlocals: int) -> GuardTree:
    """The tree that checks `guards` and hands the values of `slots`, in order, to residual code."""
    plan = _Plan(GuardTree(nlocals))
    # The sort is stable: capture made the guards in an order in which each can be evaluated.
    for guard in sorted(guards, key=_rank):
        plan.add(guard)
    for source in slots:
        plan.tree.slot(plan.node(source))
    plan.tree.finish()
    return plan.tree


def _rank(guard: Guard) -> int:
    """The sort key of a guard: 0 for the process, 1 for a parameter itself, 2 for all others.
    Guards of one rank stay in the order in which capture made them."""
    about = guard.kind.record.about
    # PyTorch's modes cost one comparison and rule out an entry as a whole.
    if about == "process":
        return 0
    return 1 if isinstance(guard.source, Local) and about == "value" else 2


class _Plan:
    """A tree being built."""

    def __init__(self, tree: GuardTree) -> None:
        self.tree = tree
        self._nodes: dict[int, int] = {}  # by id of the source: hashing long paths is slow
        self._alive: list[Source] = []  # so that no id is used twice
        self._seen: set[Any] = set()

    def node(self, source: Source) -> int:
        """The node of the tree for a source; made, with those above it, when it is first asked
        for."""
        node = self._nodes.get(id(source))
        if node is None:
            base = source.parent
            if base is None:
                node = _ROOTS[type(source)](self.tree, source)
            else:
                # Recursive, but paths are short: each access of the program adds one step.
                node = _STEPS[type(source)](self.tree, self.node(base), source)
            self._nodes[id(source)] = node
            self._alive.append(source)
        return node

    def add(self, guard: Guard) -> None:
        guard.kind.record.add(self, guard)

    def is_new(self, kind: GuardKind, about: tuple[Any, ...]) -> bool:
        """Whether no guard of this kind about the same has been added before."""
        key = (kind, about)
        new = key not in self._seen
        self._seen.add(key)
        return new


# Explanations -------------------------------------------------------------------------------------


# Native code reports no guard for what is only handed to the residual code.
LOST = "everything that is passed along is there, got less"


def explain(guard: Guard | None, actual: Any) -> str:
    """The condition that failed and what was found: `L['x'].size()[0] == 3, got 4`.

    `guard` and `actual` are what `GuardTree.check` reports.
    """
    if guard is None:
        return LOST
    record = guard.kind.record
    if actual is UNREACHABLE:
        return record.unreachable.format(guard, guard.source)
    return record.explain(guard, actual) if record.explain else f"{guard}, got {describe(actual)}"


def difference(guard: Guard | None, actual: Any) -> Difference:
    """What differs, in its smallest part: the subject, what was expected, and what was found."""
    if guard is None:
        return Difference("something that is passed along", "there", "not there")
    if actual is UNREACHABLE:
        return Difference(str(guard.source), "there", "not there")
    special = guard.kind.record.difference
    return special(guard, actual) if special else Difference(f"whether {guard}", "true", "not")
