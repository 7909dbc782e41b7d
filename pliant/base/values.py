"""`dataclass`, as that of the standard library, for a program with many that starts quickly.

The one idea: the standard one compiles up to six methods per class while the module is imported,
which for all of pliant took a third of `import pliant`. Here they are shared functions over the
fields, and `__init__`, which has to be fast, is compiled when the first instance is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        slots: bool = False,
        kw_only: bool = False,
        weakref_slot: bool = False,
    ) -> Any:
        if cls is None:
            return lambda cls: dataclass(
                cls, frozen=frozen, eq=eq, slots=slots, kw_only=kw_only, weakref_slot=weakref_slot
            )
        own = set(vars(cls))
        cls.__doc__ = cls.__doc__ or cls.__name__  # or it is made of the signature, which is slow
        made = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only,
            weakref_slot=weakref_slot,
        )(cls)  # fmt: skip
        fields = dataclasses.fields(made)
        methods = {"__init__": _first_init(made, fields, frozen), "__repr__": _show(fields)}
        if eq:
            methods |= _equality(fields, frozen)
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in own:
                setattr(made, name, method)
        return made


def _first_init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """What `__init__` is until it is called: it puts the compiled one in its place."""

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        init = _init(cls, fields, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"missing": MISSING, "put": object.__setattr__}
    positional, named = ["self"], list[str]()
    body = list[str]()
    for field in fields:
        if not field.init:
            continue  # `__post_init__` sets it
        name, value = field.name, field.name
        default = ""
        if field.default is not MISSING:
            scope[f"default_{name}"] = field.default
            default = f"=default_{name}"
        elif field.default_factory is not MISSING:
            scope[f"new_{name}"] = field.default_factory
            default, value = "=missing", f"new_{name}() if {name} is missing else {name}"
        (named if field.kw_only else positional).append(f"{name}{default}")
        body.append(f"put(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    lines = "\n    ".join(body or ["pass"])
    exec(f"def __init__({parameters}):\n    {lines}", scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _show(fields: tuple[Field[Any], ...]) -> Callable[[Any], str]:
    shown = [field.name for field in fields if field.repr]

    def __repr__(self: object) -> str:
        parts = ", ".join([f"{name}={getattr(self, name)!r}" for name in shown])
        return f"{type(self).__qualname__}({parts})"

    return __repr__


def _equality(fields: tuple[Field[Any], ...], frozen: bool) -> dict[str, Any]:
    names = [field.name for field in fields if field.compare]
    # Of one name `attrgetter` gives the attribute itself, which compares as well as a tuple of it.
    values = attrgetter(*names) if names else lambda self: ()

    def __eq__(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot change {name!r} of {type(self).__name__}")


def _state(self: Any) -> dict[str, Any]:
    return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


def _set_state(self: object, state: dict[str, Any]) -> None:
    """Copies of a frozen value are filled past `_refuse`."""
    for name, value in state.items():
        object.__setattr__(self, name, value)
