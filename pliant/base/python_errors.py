"""Errors in Python's own words, which change from version to version.

The one idea: something like the object in question is made, and Python is asked to do with it what
it can't do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pliant._native import is_python_class

MANAGER_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")


def no_manager(cls: type, methods: Iterable[str], is_async: bool) -> TypeError:
    """What `with` says of an object whose class has only these of the methods that it needs."""
    manager = _stand_in(cls, methods)
    return _error_of(_enter_async if is_async else _enter, manager)


def no_container(cls: type) -> TypeError:
    """What `in` says of an object that can't be searched."""
    return _error_of(lambda container: None in container, _stand_in(cls))


def no_operator(
    operation: Callable[[Any, Any], object], shown: str, left: type, right: type
) -> TypeError:
    """What an operator says of operands whose classes do not define it. Texts and bytes speak of
    concatenation and repetition."""
    if left in (str, bytes) and shown.rstrip("=") in ("+", "*"):
        return _error_of(lambda other: operation(left(), other), _stand_in(right))
    names = f"'{type_name(left)}' and '{type_name(right)}'"
    return TypeError(f"unsupported operand type(s) for {shown}: {names}")


def no_conversion(target: Callable[[Any], object], cls: type) -> TypeError:
    """What `int`, `float` or `complex` says of an object that is no number."""
    return _error_of(target, _stand_in(cls))


def no_pair(place: int) -> TypeError:
    """What `dict.update` says of an element that can't be iterated over."""
    return _error_of(dict, [*((i, i) for i in range(place)), 0])


def division_by_zero(operation: Callable[[int, int], object]) -> str:
    """What `//` or `%` says of integers."""
    try:
        operation(1, 0)
    except ZeroDivisionError as error:
        return str(error)
    raise AssertionError(f"{operation} divides by zero")


def names_value(error: Exception) -> bool:
    """Whether what an error of `math` says depends on the number, as it does since Python 3.14."""
    return ", got " in str(error)


def type_name(cls: type) -> str:
    """The name that messages show for a class: C code's own classes are shown with their module."""
    if is_python_class(cls) or cls.__module__ == "builtins":
        return cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}"


def _stand_in(cls: type, methods: Iterable[str] = ()) -> Any:
    """An object whose class has the same names. Its methods are not called."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    return type(type_name(cls), (), {**names, **dict.fromkeys(methods, _enter)})()


def _enter(manager: Any) -> None:
    with manager:
        pass


def _enter_async(manager: Any) -> None:
    async def enter() -> None:
        async with manager:
            pass

    enter().send(None)


def _error_of(function: Callable[[Any], object], argument: Any) -> TypeError:
    try:
        function(argument)
    except TypeError as error:
        return error.with_traceback(None)
    raise AssertionError(f"Python accepts {argument!r}")
