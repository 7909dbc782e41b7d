"""Errors in Python's own words, which change from version to version.

The one idea: something like the object in question is made, and Python is asked to do with it what
it can't do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant._native import is_python_class

SEQUENCES: tuple[Any, ...] = (str, bytes, torch.Size, tuple, list, deque)
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
    """What an operator says of operands whose classes do not define it. Sequences speak of
    concatenation and repetition."""
    kind = next((kind for kind in SEQUENCES if issubclass(left, kind)), None)
    name = {"+": "__add__", "*": "__mul__"}.get(shown.rstrip("="), "")
    if kind is not None and name and getattr(left, name) is getattr(kind, name):
        return _error_of(lambda other: operation(kind(), other), _stand_in(right))
    if shown == "*" and issubclass(right, SEQUENCES):
        return TypeError(f"can't multiply sequence by non-int of type '{type_name(left)}'")
    names = f"'{type_name(left)}' and '{type_name(right)}'"
    return TypeError(f"unsupported operand type(s) for {shown}: {names}")


def no_conversion(target: Callable[[Any], object], cls: type) -> TypeError:
    """What `int`, `float` or `complex` says of an object that is no number."""
    return _error_of(target, _stand_in(cls))


def no_order(symbol: str, left: type, right: type) -> TypeError:
    """What `<` and its relatives say of operands whose classes do not define them."""
    names = f"'{type_name(left)}' and '{type_name(right)}'"
    return TypeError(f"'{symbol}' not supported between instances of {names}")


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


def no_attribute(cls: type, name: str) -> AttributeError:
    """What reading an attribute raises that an object does not have."""
    return AttributeError(f"{type_name(cls)!r} object has no attribute {name!r}")


def empty_slot(descriptor: Any, cls: type, name: str) -> AttributeError:
    """What reading a slot raises that holds nothing, in the words of this Python."""
    try:
        descriptor.__get__(object.__new__(cls), cls)
    except AttributeError as error:
        return AttributeError(str(error))
    except TypeError:  # made by C code
        pass
    return no_attribute(cls, name)


def type_name(cls: type) -> str:
    """The name that messages show for a class: C code's own classes are shown with their module."""
    other: Any = str if issubclass(cls, int) else int
    try:
        other.__new__(cls)
    except TypeError as error:  # "int.__new__(datetime.date): datetime.date is not a subtype …"
        return str(error).partition(": ")[2].partition(" is not a subtype")[0]
    raise AssertionError(f"{cls} is a subclass of {other}")


def no_item_deletion(cls: type, key: type) -> TypeError:
    """What `del` says of an item. Sequences, as all classes written in Python are, are asked for it
    by a number if the key is one."""
    by_number = hasattr(key, "__index__") and (is_python_class(cls) or hasattr(cls, "__len__"))
    text = "doesn't support" if by_number else "does not support"
    return TypeError(f"'{type_name(cls)}' object {text} item deletion")


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
