"""Where a value of the running program came from, as a path.

A source is how a value found during capture can be found again on a later call: by the guards that
check it and by the residual code that passes it to the graph. Paths start at a parameter of the
function (`Local`) or at an object the compiled entry holds on to (`Fixed`: a globals dictionary, a
class, a closure cell) and go down one access at a time. Every source prints as the Python
expression a user would write for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MODULE_TABLES = frozenset({"_parameters", "_buffers", "_modules"})


@dataclass(frozen=True, slots=True)
class Source:
    """A path to a value. `base` is the source one access nearer to the root, or None at a root."""

    @property
    def base(self) -> Source | None:
        return None

    def __str__(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Local(Source):
    """A parameter of the compiled function, by position in its signature."""

    index: int
    name: str

    def __str__(self) -> str:
        return f"L[{self.name!r}]"


@dataclass(frozen=True, slots=True, eq=False)
class Fixed(Source):
    """An object that the compiled entry keeps alive: it cannot change, only its contents can."""

    value: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class _Step(Source):
    parent: Source

    @property
    def base(self) -> Source | None:
        return self.parent


@dataclass(frozen=True, slots=True)
class InstanceDict(_Step):
    """`vars(parent)`, the dictionary of an instance."""

    def __str__(self) -> str:
        return f"{self.parent}.__dict__"


@dataclass(frozen=True, slots=True)
class DictItem(_Step):
    """`parent[key]` of a dictionary. Equal keys of different types are different paths."""

    key: Any
    key_type: type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key_type", type(self.key))

    def __str__(self) -> str:
        return _dict_item(self.parent, self.key)


@dataclass(frozen=True, slots=True)
class SeqItem(_Step):
    """`parent[index]` of a list or tuple (or subclass), bypassing a `__getitem__` of the class."""

    index: int

    def __str__(self) -> str:
        return f"{self.parent}[{self.index}]"


@dataclass(frozen=True, slots=True)
class Attr(_Step):
    """`parent.name` through `getattr`: slots, attributes of built-in objects, `tensor.grad`."""

    name: str

    def __str__(self) -> str:
        return f"{self.parent}.{self.name}"


@dataclass(frozen=True, slots=True)
class TypeOf(_Step):
    """`type(parent)`."""

    def __str__(self) -> str:
        return f"type({self.parent})"


@dataclass(frozen=True, slots=True)
class CellContents(_Step):
    """What the closure cell `parent` holds."""

    def __str__(self) -> str:
        return f"{self.parent}.cell_contents"


@dataclass(frozen=True, slots=True)
class ClosureCell(_Step):
    """The cell at `index` of the closure of the function `parent`."""

    index: int

    def __str__(self) -> str:
        return f"{self.parent}.__closure__[{self.index}]"


@dataclass(frozen=True, slots=True)
class ClassAttr(_Step):
    """`name` as found along the MRO of the class `parent` (no descriptor is run)."""

    name: str

    def __str__(self) -> str:
        return f"{self.parent}.{self.name}"


def global_variable(namespace: dict[str, Any], name: str) -> DictItem:
    """The global variable `name` of the module whose dictionary is `namespace`."""
    module = namespace.get("__name__", "?")
    return DictItem(Fixed(namespace, f"G<{module}>"), name)


def _dict_item(parent: Source, key: Any) -> str:
    """Print dictionary items as users know them: attributes, submodules, parameters, globals."""
    if isinstance(key, str) and key.isidentifier():
        if isinstance(parent, InstanceDict):
            return f"{parent.parent}.{key}"
        owner = _module_table_owner(parent)
        if owner is not None:
            return f"{owner}.{key}"
    if isinstance(parent, Fixed) and parent.name.startswith("G<"):
        return f"G[{key!r}]"
    owner = _module_table_owner(parent)
    return f"{owner if owner is not None else parent}[{key!r}]"


def _module_table_owner(source: Source) -> Source | None:
    """`m` where `source` is `m.__dict__['_modules']` or one of its two siblings."""
    if (
        isinstance(source, DictItem)
        and source.key in MODULE_TABLES
        and isinstance(source.parent, InstanceDict)
    ):
        return source.parent.parent
    return None
