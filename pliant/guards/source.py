"""Where a value of the running program came from, as a path.

A source is how a value found during capture can be found again on a later call: by the guards that
check it and by the residual code that passes it to the graph. Paths start at a parameter of the
function (`Local`) or at an object the compiled entry holds on to (`Fixed`: a globals dictionary, a
class, a closure cell) and go down one access at a time. Every source prints as the Python
expression a user would write for it.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant._native import is_member
from pliant.base.external import PLAIN, SHARED, STRUCTURES, External, Mapper

MODULE_TABLES = frozenset({"_parameters", "_buffers", "_modules"})


class Source:
    """A path to a value. `parent` is the source one access nearer to the root, or None at a root.

    Immutable. Not a dataclass, because a capture makes and looks up thousands: the hash and the
    text, which depend on the whole path, are computed once.
    """

    __slots__ = ("_hash", "_key", "_text", "parent")
    form = "{0}"  # how a step prints: the parent and the key

    def __init__(self, parent: Source | None, *key: Any) -> None:
        self.parent = parent
        self._key = key
        # The parent's hash is cached too, so this takes the time of one step, however long the path
        # is.
        self._hash = hash((type(self), parent, *key))
        self._text: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        # The cached hash rules out most different paths before the parents are compared.
        return (
            type(other) is type(self)
            and other._hash == self._hash
            and other._key == self._key
            and other.parent == self.parent
        )

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        return self.form.format(self.parent, *self._key)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}>"

    def arguments(self) -> tuple[Any, ...]:
        """The arguments of the constructor that make an equal source."""
        return (self.parent, *self._key)

    def __reduce__(self) -> Any:  # the hash differs from process to process
        return type(self), self.arguments()

    @property
    def root(self) -> Source:
        source = self
        while source.parent is not None:
            source = source.parent
        return source


HANDED_OVER = ("stack_", "inner_")  # parameters that only resume functions have


class Local(Source):
    """A parameter of the compiled function, by position in its signature.

    For `*args` and `**kwargs` that are passed on to another function, `names` are the names that
    function has for them; its items print under those names.
    """

    __slots__ = ("names",)
    form = "L[{2!r}]"

    def __init__(self, index: int, name: str, names: tuple[str, ...] | None = None) -> None:
        super().__init__(None, index, name)
        self.names = names

    def arguments(self) -> tuple[Any, ...]:
        return (*self._key, self.names)

    @property
    def index(self) -> int:
        return self._key[0]

    @property
    def name(self) -> str:
        return self._key[1]


class Fixed(Source):
    """An object that the compiled entry keeps alive. The path always leads to this very object; its
    contents can change."""

    __slots__ = ("name", "value")

    def __init__(self, value: Any, name: str) -> None:
        # In data there are no addresses: an `External` is its own key.
        super().__init__(None, value if type(value) is External else id(value))
        self.value = value
        self.name = name

    def arguments(self) -> tuple[Any, ...]:
        return self.value, self.name

    def _written(self) -> str:
        return self.name


class InstanceDict(Source):
    """`vars(parent)`, the dictionary of an instance."""

    __slots__ = ()
    form = "{0}.__dict__"


class DictItem(Source):
    """`parent[key]` of a dictionary. Equal keys of different types are different paths."""

    __slots__ = ()

    def __init__(self, parent: Source, key: Any) -> None:
        # 1, 1.0 and True are equal keys that find the same item, and print differently.
        super().__init__(parent, key, type(key))

    def arguments(self) -> tuple[Any, ...]:
        return self.parent, self.key

    @property
    def key(self) -> Any:
        return self._key[0]

    def _written(self) -> str:
        assert self.parent is not None
        return _dict_item(self.parent, self.key)


class _Indexed(Source):
    __slots__ = ()

    def __init__(self, parent: Source, index: int) -> None:
        super().__init__(parent, index)

    @property
    def index(self) -> int:
        return self._key[0]


class _Named(Source):
    __slots__ = ()
    form = "{0}.{1}"

    def __init__(self, parent: Source, name: str) -> None:
        super().__init__(parent, name)

    @property
    def name(self) -> str:
        return self._key[0]


class SeqItem(_Indexed):
    """`parent[index]` of a list or tuple (or subclass), bypassing a `__getitem__` of the class."""

    __slots__ = ()
    form = "{0}[{1}]"

    def _written(self) -> str:
        names = self.parent.names if isinstance(self.parent, Local) else None
        if names is not None and self.index < len(names):
            return f"L[{names[self.index]!r}]"
        return super()._written()


class Attr(_Named):
    """`parent.name` through `getattr`: slots, attributes of built-in objects, `tensor.grad`."""

    __slots__ = ()


class Member(Attr):
    """An attribute that is a place in the object itself, so that reading it runs no code:
    `__slots__`, the getter of a property, the defaults of a function."""

    __slots__ = ()


def attribute(parent: Source, real: Any, name: str) -> Attr:
    """The source of `parent.name`, where the attribute is one of the object `real`."""
    return Member(parent, name) if is_member(real, name) else Attr(parent, name)


class TypeOf(Source):
    """`type(parent)`."""

    __slots__ = ()
    form = "type({0})"


class CellContents(Source):
    """What the closure cell `parent` holds."""

    __slots__ = ()

    def _written(self) -> str:
        # The cell of a variable of the function itself is named like the variable.
        own = isinstance(self.parent, Fixed)
        return str(self.parent) if own else f"{self.parent}.cell_contents"


class ClosureCell(_Indexed):
    """The cell at `index` of the closure of the function `parent`."""

    __slots__ = ()
    form = "{0}.__closure__[{1}]"


class ClassAttr(_Named):
    """`name` as found along the MRO of the class `parent` (no descriptor is run)."""

    __slots__ = ()


def _with_parent(source: Source, mapper: Mapper) -> Source:
    parent = mapper.visit(source.parent)
    return source if parent is source.parent else type(source)(parent, *source._key)


def _with_key(source: DictItem, mapper: Mapper) -> Source:
    parent, key = mapper.visit(source.parent), source._key[0]
    if type(key) is not str:  # as it is nearly always
        key = mapper.visit(key)
    unchanged = parent is source.parent and key is source._key[0]
    return source if unchanged else DictItem(parent, key)


# A path is data but for its root, if that is an object, and keys of dictionaries.
PLAIN.add(Local)
STRUCTURES.update(
    dict.fromkeys(
        (InstanceDict, SeqItem, Attr, Member, TypeOf, CellContents, ClosureCell, ClassAttr),
        _with_parent,
    )
)
STRUCTURES[Fixed] = lambda source, mapper: Fixed(mapper.identity(source.value), source.name)
STRUCTURES[DictItem] = _with_key
SHARED.update(kind for kind in STRUCTURES if issubclass(kind, Source))


def global_variable(namespace: dict[str, Any], name: str) -> DictItem:
    """The global variable `name` of the module whose dictionary is `namespace`."""
    module = namespace.get("__name__", "?")
    return DictItem(Fixed(namespace, f"G<{module}>"), name)


_BY_IDENTITY: tuple[Any, ...] = (object.__hash__, torch.Tensor.__hash__)


def key_text(key: Any) -> str:
    """The text of a dictionary's key. A key that is found by its identity (the parameters in the
    state of an optimizer) is named instead of printed: its contents change, and may be large."""
    if type(key) is tuple:
        inner = ", ".join(map(key_text, key))
        return f"({inner},)" if len(key) == 1 else f"({inner})"
    if type(key).__hash__ not in _BY_IDENTITY:
        return text_of(key)
    name = getattr(key, "__qualname__", None)
    return name if isinstance(name, str) else _place(key)


def text_of(value: Any) -> str:
    """`repr(value)`, or class and address if a `__repr__` of the program's raises: a text for
    people must not make a compilation fail."""
    try:
        return repr(value)
    except Exception:
        return _place(value)


def _place(value: Any) -> str:
    return f"<{type(value).__qualname__} at {id(value):#x}>"


def _dict_item(parent: Source, key: Any) -> str:
    """The text of a dictionary's item, as users know it: an attribute, submodule, parameter or
    global variable."""
    # An item of `**kwargs`, which the user knows as a parameter.
    if isinstance(parent, Local) and parent.names is not None:
        return f"L[{text_of(key)}]"
    if isinstance(key, str) and key.isidentifier():
        if isinstance(parent, InstanceDict):
            return f"{parent.parent}.{key}"
        owner = _module_table_owner(parent)
        if owner is not None:
            return f"{owner}.{key}"
    if isinstance(parent, Fixed) and parent.name.startswith("G<"):
        return f"G[{text_of(key)}]"
    owner = _module_table_owner(parent)
    if owner is None:
        return f"{parent}[{key_text(key)}]"
    is_digits = isinstance(key, str) and key.isdigit()
    return f"{owner}[{key if is_digits else text_of(key)}]"


def _module_table_owner(source: Source) -> Source | None:
    """The source of the module `m`, if `source` is `m.__dict__['_modules']`, `['_parameters']` or
    `['_buffers']`; otherwise None."""
    if (
        isinstance(source, DictItem)
        and source.key in MODULE_TABLES
        and isinstance(source.parent, InstanceDict)
    ):
        return source.parent.parent
    return None
