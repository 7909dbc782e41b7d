"""`dataclass`, as that of the standard library, for a program with many that starts quickly.

The one idea: the standard one compiles up to six methods per class while the module is imported,
which for all of pliant took a third of `import pliant`. Here they are shared functions over the
fields, and `__init__`, which has to be fast, is compiled when it is known that many instances are
made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

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
        annotations = vars(cls).get("__annotations__", {})
        cls.__annotations__ = _without_texts(annotations)
        made = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only,
            weakref_slot=weakref_slot,
        )(cls)  # fmt: skip
        made.__annotations__ = annotations
        fields = dataclasses.fields(made)
        for field in fields:
            field.type = annotations.get(field.name, field.type)  # or it is of a base class
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


def _without_texts(annotations: dict[str, Any]) -> dict[str, Any]:
    """The standard library takes an annotation that is a text apart by regular expressions, three
    times, to find out whether it is one of its special forms. Here only `ClassVar` can be."""
    return {
        name: object if isinstance(kind, str) and "ClassVar" not in kind else kind
        for name, kind in annotations.items()
    }


UNCOMPILED: Final = 16
"""How many instances are made before `__init__` is compiled, which takes as long as making them."""


def _first_init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """What `__init__` is at first: most classes have few instances. It puts the compiled one in its
    place when there are more, and leaves wrong arguments to it, which knows what to say of them."""
    taken = [field for field in fields if field.init]
    positional = [field.name for field in taken if not field.kw_only]
    put = object.__setattr__ if frozen else setattr
    after = hasattr(cls, "__post_init__")
    count = 0

    def compiled(self: object, *args: Any, **kwargs: Any) -> None:
        init = _init(cls, fields, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        arguments = dict(zip(positional, args, strict=False))
        if count > UNCOMPILED or len(args) > len(positional) or arguments.keys() & kwargs.keys():
            return compiled(self, *args, **kwargs)
        arguments |= kwargs
        used = 0
        for field in taken:
            name = field.name
            if name in arguments:
                used += 1
                put(self, name, arguments[name])
            elif field.default is not MISSING:
                put(self, name, field.default)
            elif field.default_factory is not MISSING:
                put(self, name, field.default_factory())
            else:
                return compiled(self, *args, **kwargs)
        if used < len(arguments):
            return compiled(self, *args, **kwargs)
        if after:
            self.__post_init__()  # type: ignore[attr-defined]

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
        if not frozen:
            body.append(f"self.{name} = {value}")
        elif isinstance(slot := getattr(cls, name, None), MemberDescriptorType):
            scope[f"put_{name}"] = slot.__set__  # past `_refuse`, in half the time of `put`
            body.append(f"put_{name}(self, {value})")
        else:
            body.append(f"put(self, {name!r}, {value})")
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
