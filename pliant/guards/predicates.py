"""Assumptions that native code can't check: small Python objects to be called with the value.

They are for rare things (`GuardKind.PREDICATE`): a call into Python costs a tenth of a microsecond.
Each prints as the lambda it stands for.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from pliant.base import caches
from pliant.base.isolation import FATAL
from pliant.base.values import dataclass
from pliant.guards.expected import READ
from pliant.sym.cond import Cond
from pliant.sym.expr import evaluate

PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class Elements:
    """Of a set: it has these elements, and gives them in this order."""

    expected: tuple[Any, ...]

    def __call__(self, value: Any) -> bool:
        if len(value) != len(self.expected):
            return False
        pairs = zip(value, self.expected, strict=True)
        # The same object first: nan is an element, and isn't equal to itself.
        return all(a is b or (type(a) is type(b) and a == b) for a, b in pairs)

    def __repr__(self) -> str:
        return f"(lambda s: list(s) == {list(self.expected)!r})"


@dataclass(frozen=True, slots=True)
class EqualNumber:
    """Of an instance of a subclass of a number or string: the value that its base class shows."""

    base: Any  # the class
    expected: Any

    def __call__(self, value: Any) -> bool:
        same_class = type(value) is type(self.expected)
        # As text, because 0.0 == -0.0, and nan != nan.
        return same_class and self.base.__repr__(value) == self.base.__repr__(self.expected)

    def __repr__(self) -> str:
        name = self.base.__name__
        return f"(lambda v: {name}(v) == {self.base.__repr__(self.expected)})"


@dataclass(frozen=True, slots=True)
class IsOneOf:
    """An object of one of these classes, and of no subclass."""

    classes: tuple[type, ...]

    def __call__(self, value: Any) -> bool:
        return type(value) in self.classes

    def __repr__(self) -> str:
        names = ", ".join(cls.__name__ for cls in self.classes)
        return f"(lambda v: type(v) in ({names}))"


@dataclass(frozen=True, slots=True)
class SameValue:
    """Of an object of a C++ class that never changes: it is equal to this one."""

    expected: Any

    def __call__(self, value: Any) -> bool:
        return value is self.expected or (
            type(value) is type(self.expected) and bool(value == self.expected)
        )

    def __repr__(self) -> str:
        return f"(lambda v: v == {self.expected!r})"


@dataclass(frozen=True, slots=True)
class FlattensTo:
    """Of a tensor that is made of others: it is made of those of these names, and the rest of it is
    this, or what its class takes for the same."""

    names: tuple[str, ...]
    context: Any
    shown: tuple[tuple[str, int, str], ...] = ()  # sizes and strides that those inside have too

    def __call__(self, value: Any) -> bool:
        names, context = value.__tensor_flatten__()
        if tuple(names) != self.names:
            return False
        for kind, dim, name in self.shown:
            if getattr(value, kind)(dim) != getattr(getattr(value, name), kind)(dim):
                return False
        metadata_guard = getattr(type(value), "__metadata_guard__", None)
        if metadata_guard is not None:
            return bool(metadata_guard(self.context, context))
        return bool(context is self.context or context == self.context)

    def __repr__(self) -> str:
        return f"(lambda t: t.__tensor_flatten__() == {(list(self.names), self.context)!r})"


@dataclass(frozen=True, slots=True)
class FillsMemory:
    """Of a tensor: its storage has room for its elements and no more."""

    def __call__(self, value: Any) -> bool:
        return bool(value.untyped_storage().nbytes() == value.numel() * value.element_size())

    def __repr__(self) -> str:
        return "(lambda t: t.untyped_storage().nbytes() == t.numel() * t.element_size())"


@dataclass(frozen=True, slots=True)
class HasMemory:
    """Of a tensor: its storage has so many bytes."""

    size: int

    def __call__(self, value: Any) -> bool:
        return bool(value.untyped_storage().nbytes() == self.size)

    def __repr__(self) -> str:
        return f"(lambda t: t.untyped_storage().nbytes() == {self.size})"


@dataclass(frozen=True, slots=True)
class MethodGives:
    """The method gives this answer."""

    name: str
    expected: Any

    def __call__(self, value: Any) -> bool:
        return bool(getattr(value, self.name)() == self.expected)

    def __repr__(self) -> str:
        return f"(lambda v: v.{self.name}() == {self.expected!r})"


@dataclass(frozen=True, slots=True)
class BeginsAt:
    """A tensor begins so many elements behind a multiple of `multiple` in its memory."""

    multiple: int
    rest: int

    def __call__(self, value: Any) -> bool:
        return bool(value.storage_offset() % self.multiple == self.rest)

    def __repr__(self) -> str:
        return f"(lambda v: v.storage_offset() % {self.multiple} == {self.rest})"


@dataclass(frozen=True, slots=True)
class Gives:
    """Of a function without side effects: called with these arguments, it gives this answer."""

    args: tuple[Any, ...]
    expected: Any

    def __call__(self, function: Callable[..., Any]) -> bool:
        return bool(function(*self.args) == self.expected)

    def __repr__(self) -> str:
        return f"(lambda f: f{self.args!r} == {self.expected!r})"


@dataclass(frozen=True, slots=True)
class GivesSame:
    """Of a function that remembers its results: for these arguments it gives this very object."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: Any

    def __call__(self, function: Callable[..., Any]) -> bool:
        try:
            result = function(*self.args, **self.kwargs)
        except FATAL:
            raise
        except Exception:  # the program will meet it too, if it gets there
            return False
        plain = type(result) in PLAIN and type(result) is type(self.expected)
        return result is self.expected or bool(plain and result == self.expected)

    def __repr__(self) -> str:
        texts = [*map(repr, self.args), *(f"{name}={arg!r}" for name, arg in self.kwargs.items())]
        return f"(lambda f: f({', '.join(texts)}) is {self.expected!r})"


class Remembers:
    """Of a function that keeps its results: under this key it has this very object. Asking leaves
    no trace in its cache."""

    __slots__ = ("expected", "key", "last")

    def __init__(self, cached: Any, key: Any, expected: Any) -> None:
        self.key = key
        self.expected = expected
        # What the dictionary held when it was last looked at closely, and the misses so far. While
        # both are the same, nothing was forgotten or replaced.
        self.last = caches.held_under(cached, key), cached.cache_info().misses

    def __call__(self, cached: Any) -> bool:
        held = caches.held_under(cached, self.key)
        if type(held).__name__ != caches.LINK:
            return held is self.expected
        now = held, cached.cache_info().misses
        if now[0] is self.last[0] and now[1] == self.last[1]:
            return True
        if caches.remembered(cached, self.key) is not self.expected:
            return False
        self.last = now
        return True

    def __repr__(self) -> str:
        return f"(lambda f: remembered(f, {self.key!r}) is {self.expected!r})"


@dataclass(frozen=True, slots=True)
class LacksAttribute:
    """There is no such attribute (of one with `__slots__`: it is not set)."""

    name: str

    def __call__(self, value: Any) -> bool:
        return not hasattr(value, self.name)

    def __repr__(self) -> str:
        return f"(lambda v: not hasattr(v, {self.name!r}))"


@dataclass(frozen=True, slots=True)
class HasNoOwn:
    """Of an object with a `__dict__`: there is no such attribute in it."""

    name: str

    def __call__(self, value: Any) -> bool:
        return self.name not in object.__getattribute__(value, "__dict__")

    def __repr__(self) -> str:
        return f"(lambda x: {self.name!r} not in vars(x))"


@dataclass(frozen=True, slots=True)
class IsSubclass:
    """Of a class: whether it counts as a subclass, which registration can change."""

    of: type
    expected: bool

    def __call__(self, value: type) -> bool:
        return issubclass(value, self.of) is self.expected

    def __repr__(self) -> str:
        return f"(lambda c: issubclass(c, {self.of.__qualname__}) is {self.expected})"


@dataclass(frozen=True, slots=True)
class Defines:
    """Of a class: whether it defines a name itself, rather than a base."""

    name: str
    expected: bool

    def __call__(self, value: type) -> bool:
        return (self.name in vars(value)) is self.expected

    def __repr__(self) -> str:
        return f"(lambda c: ({self.name!r} in vars(c)) is {self.expected})"


@dataclass(frozen=True, slots=True)
class HasNames:
    """Of a class: which names its own namespace has, in order."""

    names: tuple[str, ...]

    def __call__(self, value: type) -> bool:
        return tuple(vars(value)) == self.names

    def __repr__(self) -> str:
        return f"(lambda c: tuple(vars(c)) == {self.names})"


@dataclass(frozen=True, slots=True)
class Fulfils:
    """Of a number, or of a size, stride or offset of a tensor: a condition with floats holds for
    it, which programs of the native tree can't test."""

    condition: Cond
    symbol: Any  # what the number is in the condition
    what: str  # as in `Load`
    dim: int
    text: str  # the condition on `v`

    def __call__(self, value: Any) -> bool:
        try:
            return bool(evaluate(self.condition, {self.symbol: READ[self.what](value, self.dim)}))
        except (ArithmeticError, ValueError, IndexError):  # it has no value, so it doesn't hold
            return False

    def __repr__(self) -> str:
        return f"(lambda v: {self.text})"


def is_empty_cell(cell: types.CellType) -> bool:
    """Of a closure cell: its variable is not bound."""
    try:
        return cell.cell_contents is cell  # never: asking an empty one raises
    except ValueError:
        return True
