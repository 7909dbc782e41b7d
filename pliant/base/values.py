"""`dataclass`, as that of the standard library, for a program with many that starts quickly.

The one idea: the standard one compiles up to six methods per class while the module is imported,
which for all of pliant took a third of `import pliant`, and takes annotations apart by regular
expressions. Here methods are shared functions over the fields, and `__init__`, which has to be
fast, is made with the first instance, out of code that is compiled once for all classes that have
as many fields. `dataclasses.fields` and `replace` take one class for the other; `replace` here does
the same in a tenth of the steps, since compilations make many values out of others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import cache
from operator import attrgetter
from types import CodeType, FunctionType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dataclasses import dataclass, replace
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

    def replace(instance: Any, /, **changes: Any) -> Any:
        """A copy of the instance with other values in some fields."""
        cls = type(instance)
        names, values = _parameters(cls)
        return cls(**(dict(zip(names, values(instance), strict=False)) | changes))


@cache
def _parameters(cls: type) -> tuple[tuple[str, ...], attrgetter[tuple[Any, ...]]]:
    """The parameters of `__init__`, and what gets the values of the fields of these names."""
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    return tuple(names), attrgetter(*names, names[0])  # of a single name it would give no tuple


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
    """The fields that the body of a class declares. Their defaults become class attributes."""
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
        # Unhashable means mutable, for the types that are used as defaults.
        if type(field.default).__hash__ is None:
            raise ValueError(f"{cls.__name__}.{name} needs a default_factory: instances share it")
    return fields


def _with_slots(cls: type, names: list[str]) -> type:
    """A copy of the class with `__slots__`, which have to be there when a class is made."""
    inherited = {name for base in cls.__mro__ for name in vars(base).get("__slots__", ())}
    namespace = {name: value for name, value in vars(cls).items() if name not in names}
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple([name for name in names if name not in inherited])
    anew = type(cls)(cls.__name__, cls.__bases__, namespace)
    anew.__qualname__ = cls.__qualname__
    return anew


def _first_init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """The `__init__` of a class without instances, which replaces itself by the real one at the
    first call: many classes never have an instance."""

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:
        init = _init(cls, fields, frozen)
        cls.__init__ = init  # type: ignore[misc]
        init(self, *args, **kwargs)

    return __init__


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """The `__init__` of a class: the code that is shared by all classes with such fields, copied
    with the names of these. Copying takes a hundredth of the time of compiling."""
    # Keyword-only parameters come last. The sort is stable.
    arguments = sorted([field for field in fields if field.init], key=attrgetter("kw_only"))
    names = [field.name for field in arguments]
    scope: dict[str, Any] = {"missing": MISSING}
    store = "self.field_{0} = {1}"
    if frozen:
        slots: list[Any] = [getattr(cls, name, None) for name in names]
        if all(isinstance(slot, MemberDescriptorType) for slot in slots):
            store = "put_{0}(self, {1})"  # past `_refuse`, in half the time of the other
            scope |= {f"put_{index}": slot.__set__ for index, slot in enumerate(slots)}
        else:
            store = "put(self, name_{0}, {1})"
            scope |= {f"name_{index}": name for index, name in enumerate(names)}
            scope["put"] = object.__setattr__
    factories = {f"new_{i}": f.default_factory for i, f in enumerate(arguments)}
    scope |= {name: new for name, new in factories.items() if new is not MISSING}
    has_factory = tuple([new is not MISSING for new in factories.values()])
    code = _init_code(store, has_factory, hasattr(cls, "__post_init__"))
    attributes = {f"field_{index}": name for index, name in enumerate(names)}
    positional = [field for field in arguments if not field.kw_only]
    code = code.replace(
        co_varnames=("self", *names),
        co_names=tuple([attributes.get(name, name) for name in code.co_names]),
        co_argcount=1 + len(positional),
        co_kwonlyargcount=len(arguments) - len(positional),
    )
    init = FunctionType(code, scope, "__init__", tuple(_defaults(positional).values()))
    init.__kwdefaults__ = _defaults(arguments[len(positional) :])
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__module__ = cls.__module__
    return init


def _defaults(fields: list[Field[Any]]) -> dict[str, Any]:
    """The defaults of parameters by name. For a field with a default factory it is `missing`: the
    value is not given."""
    return {
        field.name: field.default
        for field in fields
        if field.default is not MISSING or field.default_factory is not MISSING
    }


@cache
def _init_code(store: str, has_factory: tuple[bool, ...], post_init: bool) -> CodeType:
    """The code of an `__init__`; `has_factory` is whether each field has a default factory. Classes
    with as many fields share it."""
    body = list[str]()
    for index, by_factory in enumerate(has_factory):
        value = f"value_{index}"
        if by_factory:
            value = f"new_{index}() if {value} is missing else {value}"
        body.append(store.format(index, value))
    if post_init:
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *[f"value_{index}" for index in range(len(has_factory))]])
    scope: dict[str, Any] = {}
    exec(f"def __init__({parameters}): " + "; ".join(body or ["pass"]), scope)
    code: CodeType = scope["__init__"].__code__
    return code


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
    """Fill a copy of a frozen value; plain assignment would be refused."""
    for name, value in state.items():
        object.__setattr__(self, name, value)
