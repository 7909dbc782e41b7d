"""Placeholders: real objects that stand for values in the namespaces of program-defined classes."""

from __future__ import annotations

from typing import Any

from pliant.capture.value import Value


class Placeholders:
    """Which object stands for which value. Objects are compared by identity and kept alive."""

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[Any, Value]] = {}

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def add(self, real: Any, value: Value) -> None:
        """Where `real` is found, it means `value`."""
        self._pairs[id(real)] = (real, value)

    def entry(self, real: Any) -> tuple[Any, Value] | None:
        return self._pairs.get(id(real))

    def value_of(self, real: Any) -> Value | None:
        entry = self._pairs.get(id(real))
        return None if entry is None else entry[1]

    def drop(self, real: Any) -> None:
        """Forget the object: it has changed, so that its value is out of date."""
        self._pairs.pop(id(real), None)

    def of(self, value: Value) -> Any:
        """The object that stands for `value`; None if there is none yet."""
        return next((real for real, other in self._pairs.values() if other is value), None)

    def clear(self) -> None:
        self._pairs.clear()
