"""What a capture assumed about the values it met: guards, one record for each narrowing.

A guard is data: a kind from a closed set, the source it speaks of, and what is expected. It prints
as the Python condition it checks. `plan` turns a set of guards into the native tree.
"""

from __future__ import annotations

import types
from enum import Enum, unique
from typing import Any, Literal

import torch

from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.guards.source import MODULE_TABLES, DictItem, Source, key_text
from pliant.sym.program import SizeProgram


@unique  # an equal text would make one kind an alias of another
class GuardKind(Enum):
    """The closed set of things that can be assumed of a value. The text is how a guard prints."""

    # about one value
    TYPE = "type({0}) is {1}"
    IS = "{0} is {1}"
    IS_NOT = "{0} is not {1}"
    EQUALS = "{0} == {1}"  # of exactly the same type too; NaN equals NaN, 0.0 is not -0.0
    LENGTH = "len({0}) == {1}"
    KEYS = "list({0}) == {1}"  # a dictionary's keys, in order
    HAS = "{1} in {0}"  # a dictionary's key
    PRESENT = "{0} is there"  # it was looked up, and nothing else is assumed
    LACKS = "{1} not in {0}"
    FUNCTION = "{0}.__code__ is {1}"  # expected: (code, globals dict)
    CLASS_ATTR = "{0}.{1}"  # expected: (name, value or MISSING); source: Fixed(cls)
    TENSOR = "{0} matches {1}"  # expected: ExpectedTensor
    PREDICATE = "{1}({0})"  # expected: Python callable; the slow way, for rare types
    # about several values: `source` is the first, `expected` a tuple of the other sources
    SAME = "same object: {0}, {1}"
    DISTINCT = "all different: {0}, {1}"
    # about sizes and numbers, of several values: source is None, expected a ShapeCondition
    SHAPE = "{1}"
    # about the process: source is None, expected a native State
    STATE = "torch global state is {1}"


ROUTINE = frozenset({GuardKind.CLASS_ATTR, GuardKind.LACKS, GuardKind.FUNCTION, GuardKind.SAME})
CODE_LIKE = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)

MISSING = type("MISSING", (), {"__repr__": lambda self: "<no such attribute>"})()


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """What is expected of a tensor. A size or stride of None is not checked."""

    dtype: Any
    device: Any
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None  # None: the layout has no strides
    storage_offset: int | None
    dispatch_keys: int  # the raw representation of the key set

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        size = list(self.sizes)
        grad = ", requires_grad" if self.requires_grad else ""
        return f"Tensor({name}{size}, stride={self.strides}, {self.device}{grad})"


@dataclass(frozen=True, slots=True)
class Load:
    """What a symbol stands for: the size or stride of a tensor in a dimension, its storage offset,
    or an int itself."""

    source: Source
    what: Literal["size", "stride", "offset", "value"]
    dim: int = 0

    def __str__(self) -> str:
        return _LOADS[self.what].format(self.source, self.dim)


_LOADS = {
    "size": "{}.size()[{}]",
    "stride": "{}.stride()[{}]",
    "offset": "{}.storage_offset()",
    "value": "{}",
}


@dataclass(frozen=True, slots=True)
class ShapeCondition:
    """A condition on sizes and ints. Symbol i of the program is what `loads[i]` finds; what is not
    there (no such dimension, not an int, beyond 64 bits) fails the guard."""

    program: SizeProgram
    loads: tuple[Load, ...]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One assumption. `position` is the user's line that made it necessary."""

    kind: GuardKind
    source: Source | None
    expected: Any
    position: Position | None = None

    def __str__(self) -> str:
        return self.kind.value.format(self.source, shown(self.kind, self.expected))

    @property
    def routine(self) -> bool:
        """Whether it only says that code and the machinery of classes and modules are as they were,
        which a reader of a log takes for granted."""
        if self.kind in ROUTINE or "_hooks" in str(self.source):
            return True
        if self.kind is GuardKind.IS:
            return isinstance(self.expected, CODE_LIKE)
        return isinstance(self.source, DictItem) and self.source.key in MODULE_TABLES


def shown(kind: GuardKind, expected: Any) -> str:
    """The expected value as text, short enough for a log line."""
    if kind is GuardKind.FUNCTION:
        return f"<code {expected[0].co_qualname}>"
    if kind is GuardKind.CLASS_ATTR:
        name, value = expected
        return f"{name} is {_short(value)}"
    if kind in (GuardKind.SAME, GuardKind.DISTINCT):
        return ", ".join(str(source) for source in expected)
    if kind is GuardKind.TYPE:
        return str(expected.__qualname__)
    if kind in (GuardKind.TENSOR, GuardKind.STATE, GuardKind.SHAPE):
        return str(expected)
    if kind is GuardKind.KEYS:
        return _cut(f"[{', '.join(map(key_text, expected))}]")
    return _short(expected)


def name_of(value: Any) -> str | None:
    """The name of a class or a function, as a user would write it."""
    first = "__name__" if isinstance(value, types.BuiltinFunctionType) else "__qualname__"
    name = getattr(value, first, None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else None


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return key_text(value)
    return _cut(name_of(value) or repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
