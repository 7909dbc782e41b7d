"""`dataclass`, as that of the standard library, for a program with many that starts quickly.

The one idea: the standard one compiles up to six methods per class while the module is imported,
which for all of pliant took a third of `import pliant`, and takes annotations apart by regular
expressions. Here methods are shared functions over the fields, and `__init__`, which has to be
fast, is compiled when it is known that many instances are made. `dataclasses.fields` and `replace`
take one class for the other.
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
        cls.__doc__ = cls.__doc__ or cls.__name__
        by_name = _inherited(cls) | _declared(cls, kw_only)
        fields = tuple(by_name.values())
        if slots:
            cls = _with_slots(cls, [*by_name, *(["__weakref__"] if weakref_slot else [])])
        positional = tuple([f.name for f in fields if f.init and not f.kw_only])
        methods: dict[str, Any] = {
            "__match_args__": positional,
            "__init__": _first_init(cls, fields, frozen),
            "__repr__": _show(fields),
        }
        if eq:
            methods |= _equality(fields, frozen)
        if frozen:
            methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        # What `dataclasses.fields` and `replace` look at.
        cls.__dataclass_fields__ = by_name
        cls.__dataclass_params__ = _Standard.__dataclass_params__
        return cls


@dataclasses.dataclass
class _Standard:
    """Shows what the standard library notes in a dataclass, and in a field of one."""

    field: int


_IS_FIELD: Final = dataclasses.fields(_Standard)[0]._field_type  # type: ignore[attr-defined]


def _inherited(cls: type) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= vars(base).get("__dataclass_fields__", {})
    return fields


def _declared(cls: type, kw_only: bool) -> dict[str, Field[Any]]:
    """The fields that the body of a class declares. Their defaults become those of the class."""
    fields: dict[str, Field[Any]] = {}
    for name, kind in cls.__annotations__.items():
        if "ClassVar" in str(kind):
            continue
        value: Any = getattr(cls, name, MISSING)
        if isinstance(value, MemberDescriptorType):  # a slot of a base
            value = MISSING
        declared = isinstance(value, Field)
        field: Any = value if declared else dataclasses.field(default=value)
        fields[name] = field
        field.name, field.type, field._field_type = name, kind, _IS_FIELD
        if field.kw_only is MISSING:
            field.kw_only = kw_only
        if declared and field.default is MISSING:
            delattr(cls, name)
        elif declared:
            setattr(cls, name, field.default)
        if type(field.default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name} needs a default_factory: instances share it")
    return fields


def _with_slots(cls: type, names: list[str]) -> type:
    """The class anew, since slots have to be known when a class is made."""
    inherited = {name for base in cls.__mro__ for name in vars(base).get("__slots__", ())}
    namespace = {name: value for name, value in vars(cls).items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple([name for name in names if name not in inherited])
    anew = type(cls)(cls.__name__, cls.__bases__, namespace)
    anew.__qualname__ = cls.__qualname__
    return anew


UNCOMPILED: Final = 16
"""How many instances are made before `__init__` is compiled, which takes as long as making them."""


def _first_init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """What `__init__` is at first: most classes have few instances. It puts the compiled one in its
    place when there are more, and leaves wrong arguments to it, which knows what to say of them."""
    taken = [field for field in fields if field.init]
    names = {field.name for field in taken}
    positional = [field.name for field in taken if not field.kw_only]
    defaults = {field.name: field.default for field in taken if field.default is not MISSING}
    factories = [(f.name, f.default_factory) for f in taken if f.default_factory is not MISSING]
    put = object.__setattr__ if frozen else setattr
    after = hasattr(cls, "__post_init__")
    count = 0

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        given = dict(zip(positional, args, strict=False))
        arguments = {**defaults, **given, **kwargs}
        for name, new in factories:
            if name not in arguments:
                arguments[name] = new()
        twice = len(args) > len(positional) or not given.keys().isdisjoint(kwargs)
        if count > UNCOMPILED or twice or arguments.keys() != names:
            init = _init(cls, fields, frozen)
            cls.__init__ = init  # type: ignore[misc]
            return init(self, *args, **kwargs)
        for name, value in arguments.items():
            put(self, name, value)
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
