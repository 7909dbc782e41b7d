"""Values that are made when somebody reads them, because hardly anybody does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def _itself(value: T) -> T:
    return value


class Deferred(Generic[T]):
    """What `make` returns, called with the arguments at the first call. A copy and a pickle have
    the value itself."""

    def __init__(self, make: Callable[..., T], *args: Any) -> None:
        self._call: tuple[Callable[..., T], tuple[Any, ...]] = make, args

    def __call__(self) -> T:
        make, args = self._call
        if make is _itself:
            return make(*args)
        value = make(*args)
        self._call = _itself, (value,)  # at once, for other threads; the arguments are let go
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return Deferred, (_itself, self())

    def __repr__(self) -> str:
        return repr(self())


def made(value: T) -> Deferred[T]:
    """One that has its value already."""
    return Deferred(_itself, value)
