"""References that keep nothing alive: tables about objects, and methods as callbacks.

The one idea: what is remembered about an object belongs to that object. A table here forgets it
when the object goes, so that no table of a module grows with the functions a program drops.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ByIdentity(Generic[T]):
    """A table about objects by identity, for those that compare by content or can't be hashed. It
    doesn't keep them alive.

    The value must not refer to the object, or neither is ever freed. An object that doesn't support
    weak references is kept for good.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[Callable[[], Any], T]] = {}

    def get(self, key: Any) -> T | None:
        entry = self._entries.get(id(key))
        # Another object may have the address of one that was freed without a callback.
        return entry[1] if entry is not None and entry[0]() is key else None

    def put(self, key: Any, value: T) -> None:
        # The callback is C code: a signal can't interrupt it.
        forget = functools.partial(self._entries.pop, id(key))
        try:
            self._entries[id(key)] = (weakref.ref(key, forget), value)
        except TypeError:
            self._entries[id(key)] = (lambda: key, value)

    def __len__(self) -> int:
        return len(self._entries)


def weakly(method: Callable[..., Any], otherwise: Any = None) -> Callable[..., Any]:
    """A function that calls the bound method without keeping its object alive. Once that is gone,
    it returns `otherwise`."""
    reference = weakref.WeakMethod(method)

    def call(*args: Any, **kwargs: Any) -> Any:
        alive = reference()
        return otherwise if alive is None else alive(*args, **kwargs)

    return call
