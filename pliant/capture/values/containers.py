"""Lists, tuples, deques, dictionaries and sets whose items are values.

A container holds its items in a real Python container of the same kind, so that operations that do
not look at items (append, slice, pop, rotate) are the real operations. Keys are compared by
Python's own rules: a wholly known key stands for itself, an object with identity semantics is
wrapped in `ById`, one with rules of its own in `ByHash`.

A dictionary from outside is read key by key: `backing` is the real dictionary, `items` what has
been read or written. Only an operation that depends on all keys (iteration, length) reads the rest.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import is_python_class
from pliant.base.python_errors import type_name
from pliant.capture.native import FUNCTIONS
from pliant.capture.value import Break, Const, NotConstant, Unread, Value, constants, is_followed
from pliant.guards.guard import GuardKind
from pliant.guards.source import DictItem, Fixed, InstanceDict, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


MAPPING_TYPES = (OrderedDict, defaultdict, dict)  # a class derives from the first that fits


class Container(Value):
    """A container. An instance of a subclass of a built-in one can have attributes."""

    __slots__ = ()
    cls: type
    attributes: Mapping | None

    def python_type(self) -> type:
        return self.cls

    @property
    def has_dict(self) -> bool:
        # an OrderedDict could have attributes of its own, which is rare
        plain = self.cls is OrderedDict and self.attributes is None
        return self.cls.__dictoffset__ != 0 and not plain

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        return instance_dict(trace, self).get(trace, name) if self.has_dict else None

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        new_attribute = self.cls is OrderedDict and self.source is None
        if not self.has_dict and not new_attribute:
            super().store_attribute(trace, name, value)
        instance_dict(trace, self).store(trace, name, value)

    def slot(self, trace: Trace, name: str) -> Value | None:
        """An attribute that the class computes or that is in its `__slots__`."""
        if name == "__dict__" and self.has_dict:
            return instance_dict(trace, self)
        raise Break("unsupported-attribute", f"{self.cls.__name__}.{name}")

    def base(self, *candidates: type) -> type:
        """The first of `candidates` that the class derives from. Residual code calls the methods of
        this one: those of a subclass have been followed."""
        return next(base for base in candidates if issubclass(self.cls, base))

    def fill_attributes(self, emit: Emitter, name: str) -> None:
        if self.attributes is not None and has_foreign_dict(self):
            emit.line(f"{name}.__dict__ = {emit.expression(self.attributes)}")
            return
        table = {} if self.attributes is None else self.attributes.items
        parts = {key: emit.expression(value) for key, value in table.items() if value is not None}
        if len(parts) > 1 and all(isinstance(key, str) and key.isidentifier() for key in parts):
            pairs = ", ".join(f"{key!r}: {part}" for key, part in parts.items())
            emit.line(f"{name}.__dict__.update({{{pairs}}})")
            return
        for key, part in parts.items():
            emit.line(f"{name}.__dict__[{emit.key(key)}] = {part}")


class Sequence(Container):
    """A list, tuple, deque, torch.Size or named tuple, or an instance of a subclass of one.

    One from outside is read when its items are first needed (`load`), so that a program that only
    appends to a list assumes nothing of its length.
    """

    __slots__ = (
        "_items", "attributes", "cls", "load", "loaded", "maker", "maxlen", "real", "version",
    )  # fmt: skip

    def __init__(
        self,
        cls: type,
        items: list[Value],
        source: Source | None = None,
        maxlen: int | None = None,
        load: Callable[[], list[Value]] | None = None,
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self._items = items  # until it is loaded, only those appended to it
        self.load = load  # reads the items of one from outside; None when that has been done
        self.loaded: list[Value] = []  # what it read
        self.maker: Any = None  # what residual code makes it of, if it need not be loaded for that
        self.maxlen = maxlen
        self.real: Any = None
        self.attributes: Mapping | None = None  # of an instance of a subclass
        self.version = 0  # of a deque: counts changes of its length or order, for its iterators

    @property
    def items(self) -> list[Value]:
        if self.load is not None:
            self.loaded, self.load = self.load(), None
            # In front of what was appended before anybody looked.
            self._items[:0] = self.loaded
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        if self.load is not None:
            self.loaded, self.load = self.load(), None
        self._items = items

    def append(self, trace: Trace, item: Value) -> None:
        """Append an item without reading the others."""
        trace.mutate(self)
        self._items.append(item)

    @property
    def immutable(self) -> bool:
        return issubclass(self.cls, tuple)

    def constant(self) -> Any:
        if not self.immutable or self.attributes is not None:
            raise NotConstant(self)
        return make_tuple(self.cls, constants(self.items))

    @property
    def is_made_whole(self) -> bool:
        """Whether nobody has looked into it, so that residual code makes it by its maker."""
        return self.maker is not None and self.load is not None and not self._items

    def children(self) -> list[Value]:
        if self.is_made_whole:
            return list(self.maker.children())
        return [*self._items, *attribute_values(self)]

    def snapshot(self) -> list[Value] | None:
        return list(self._items) if self.load is None else None

    def slot(self, trace: Trace, name: str) -> Value | None:
        """A field of a struct sequence, such as the result of `torch.max(x, dim=0)`."""
        names = self.cls.__dict__.get("__match_args__", ())
        return self.items[names.index(name)] if name in names else super().slot(trace, name)

    def rebuild(self, emit: Emitter) -> str:
        if self.is_made_whole:
            return str(self.maker.rebuild(emit))
        if self.cls in (list, tuple, deque) or (self.immutable and self.attributes is None):
            return emit.display(self.cls, self)
        if self.immutable:
            name = emit.fresh(self.cls.__name__.lower())
            emit.line(f"{name} = {emit.display(self.cls, self)}")
        else:
            base = emit.constant(self.base(deque, list))
            items = "[]" if emit.is_cyclic(self) else emit.sequence_of(self.items)
            limit = "" if self.maxlen is None else f", {self.maxlen}"
            name = emit.fresh(self.cls.__name__.lower())
            emit.line(f"{name} = {base}.__new__({emit.constant(self.cls)})")
            emit.line(f"{base}.__init__({name}, {items}{limit})")
        if not emit.is_cyclic(self):
            self.fill_attributes(emit, name)
        return name

    def fill(self, emit: Emitter, name: str) -> None:
        if not self.immutable:
            for item in self.items:
                emit.line(self._call(emit, "append", name, emit.expression(item)))
        self.fill_attributes(emit, name)

    def _call(self, emit: Emitter, method: str, name: str, *arguments: str) -> str:
        if self.cls in (list, deque):
            return f"{name}.{method}({', '.join(arguments)})"
        base = emit.constant(self.base(deque, list))
        return f"{base}.{method}({', '.join([name, *arguments])})"

    def replay(self, emit: Emitter, before: list[Value] | None) -> None:
        """Bring the real list from the state `before` (None: not loaded) to this one."""
        name = emit.expression(self)
        if before is None:
            before = self.loaded
        unchanged = len(before)
        # The usual case: only appended to. So the user's list keeps all that it had, whatever that
        # is by now.
        if self._items[:unchanged] == before and unchanged <= len(self._items):
            for item in self._items[unchanged:]:
                emit.line(self._call(emit, "append", name, emit.expression(item)))
        # Anything else: replace all items, in place.
        elif self.cls is list:
            emit.line(f"{name}[:] = {emit.sequence_of(self.items)}")
        else:
            items = emit.sequence_of(self.items)
            emit.line(self._call(emit, "clear", name))
            emit.line(self._call(emit, "extend", name, items))


def make_tuple(cls: type, items: list[Any]) -> Any:
    """A tuple of class `cls`, without its `__new__` if that is Python code. A class written in C
    insists on its own."""
    if cls is tuple:
        return tuple(items)
    own: Any = cls.__new__
    written_in_c = not isinstance(own, FunctionType) and own is not tuple.__new__
    return (cls if written_in_c else tuple).__new__(cls, items)


class ById:
    """A dictionary key or set element that is compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.value is self.value


class ByHash(ById):
    """A key whose class defines `__hash__` or `__eq__` in Python: those are followed."""

    __slots__ = ("number", "trace")

    def __init__(self, trace: Trace, value: Value) -> None:
        super().__init__(value)
        self.trace = trace
        self.number: int = trace.read(FUNCTIONS[hash](trace, value)).constant()

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ById) and other.value is self.value:
            return True
        result = FUNCTIONS[operator.eq](self.trace, self.value, value_of_key(other))
        return bool(FUNCTIONS[bool](self.trace, result).constant())


class ByMethod(ById):
    """A bound method as a key: equal to another of the same function and object."""

    __slots__ = ("parts",)

    def __init__(self, trace: Trace, value: Any) -> None:
        super().__init__(value)
        self.parts = (trace.read(value.function), trace.read(value.obj))
        trace.keys.extend(self.parts)

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ByMethod):
            return False
        return all(part is expected for part, expected in zip(self.parts, other.parts, strict=True))


class Unhashable(Exception):
    """The value is unhashable. The text is Python's."""


def _says_for_what() -> bool:
    keys: list[Any] = [[]]
    try:
        dict.fromkeys(keys)
    except TypeError as error:
        return str(error).startswith("cannot use")
    return False


SAYS_FOR_WHAT = _says_for_what()  # from Python 3.14 on


def key_of(trace: Trace, value: Value, purpose: str = "dict key") -> Any:
    """`value` as a key, by the rules of its class. The error says what it was wanted for."""
    try:
        return _key_of(trace, value)
    except Unhashable as error:
        cls = trace.read(value).python_type()
        plain = cls.__module__ in ("builtins", "__main__")
        name = cls.__qualname__ if plain else f"{cls.__module__}.{cls.__qualname__}"
        text = f"cannot use '{name}' as a {purpose} ({error})" if SAYS_FOR_WHAT else str(error)
        trace.throw(TypeError(text))


def element_of(trace: Trace, value: Value) -> Any:
    """`value` as an element of a set."""
    return key_of(trace, value, "set element")


def _key_of(trace: Trace, value: Value) -> Any:
    value = trace.read(value)
    try:
        key = value.constant()
    except NotConstant:
        pass
    else:
        if is_followed(trace, value, "__hash__", "__eq__"):
            raise Break("custom-hash", f"a {type(key).__name__} as a key")
        try:
            hash(key)
        except TypeError as error:
            raise Unhashable(str(error)) from None
        return key
    if isinstance(value, Sequence) and value.cls is tuple:
        return tuple(_key_of(trace, item) for item in value.items)
    cls = value.python_type()
    # Told apart by identity: at the end of the capture such keys are guarded to be distinct.
    if trace.lookup(cls, "__hash__") in (object.__hash__, torch.Tensor.__hash__):
        trace.keys.append(value)
        return ById(value)
    if cls is types.MethodType:
        return ByMethod(trace, value)
    if trace.lookup(cls, "__hash__") is None:
        has_plain_hash = cls.__module__ == "builtins" or is_python_class(cls)
        name = cls.__name__ if has_plain_hash else f"{cls.__module__}.{cls.__qualname__}"
        raise Unhashable(f"unhashable type: '{name}'")
    return ByHash(trace, value)


def value_of_key(key: Any) -> Value:
    if isinstance(key, ById):
        return key.value
    if type(key) is tuple and any(isinstance(part, ById | tuple) for part in key):
        return Sequence(tuple, [value_of_key(part) for part in key])
    return Const(key)


class Mapping(Container):
    """A dictionary or an instance of a subclass. `items` maps keys to values; None: deleted."""

    __slots__ = (
        "attributes", "backing", "cls", "factory", "items", "owner", "real", "written",
    )  # fmt: skip

    def __init__(
        self,
        cls: type,
        items: dict[Any, Value | None] | None = None,
        source: Source | None = None,
        backing: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__(source)
        self.cls = cls
        self.items: dict[Any, Value | None] = {} if items is None else items
        self.backing = backing  # the real dictionary, while not all of it has been read
        self.real: Any = None
        self.factory: Value | None = None  # of a defaultdict
        self.attributes: Mapping | None = None
        self.owner: Value | None = None  # the object whose __dict__ this is
        self.written: dict[Any, bool] = {}  # keys stored or deleted, in order; re-inserted?

    def children(self) -> list[Value]:
        """What has to be made before it; of a `__dict__`, only its owner, which brings it."""
        if self.owner is not None and self.source is None:
            return [self.owner]
        return self.contents()

    def contents(self) -> list[Value]:
        values = [value for value in self.items.values() if value is not None]
        values += [value_of_key(key) for key in self.items if isinstance(key, ById | tuple)]
        values += [] if self.factory is None else [self.factory]
        return values + attribute_values(self)

    # ---- reading

    def get(self, trace: Trace, key: Any) -> Value | None:
        """The value at `key`, or None."""
        # Read or written before; None says that it was deleted.
        if key in self.items:
            return self.items[key]
        if self.backing is None:
            return None
        _refuse_custom_hash(key)
        real_key = real_key_of(trace, key)
        if not dict.__contains__(self.backing, real_key):
            trace.guard(GuardKind.LACKS, self.source, real_key)
            return None
        assert self.source is not None
        stored = dict.__getitem__(self.backing, real_key)
        value = Unread(stored, DictItem(self.source, real_key))
        self.items[key] = value
        trace.fetched.append(value)
        return value

    def read_all(self, trace: Trace) -> dict[Any, Value]:
        """All items, in order. Of a dictionary from outside this assumes its set of keys."""
        if self.backing is not None:
            assert self.source is not None
            stored = stored_items(self.backing)
            trace.guard(GuardKind.KEYS, self.source, tuple(stored))
            merged: dict[Any, Value | None] = {}
            for real_key, real in stored.items():
                key = _key_from_outside(trace, real_key)
                if not self.written.get(key):  # else it was taken out and now comes last
                    unread = Unread(real, DictItem(self.source, real_key))
                    merged[key] = self.items.get(key, unread)
            for key, value in self.items.items():
                merged.setdefault(key, value)
            self.items = merged
            # From here on `items` has all of it.
            self.backing = None
        return {key: value for key, value in self.items.items() if value is not None}

    # ---- writing

    def store(self, trace: Trace, key: Any, value: Value | None) -> None:
        """Set `key`, or with None delete it. The caller has made sure that a deleted key exists."""
        trace.mutate(self)
        if value is None:
            if self.backing is None and self.source is None:
                self.items.pop(key, None)
            else:
                self.items[key] = None
            self.written.setdefault(key, False)
            return
        if key not in self.items:
            self.written.pop(key, None)
        elif self.items[key] is None:  # deleted before: the key now comes last
            del self.items[key]
            self.written.pop(key, None)
            self.written[key] = True
        self.items[key] = value
        self.written.setdefault(key, False)

    def clear(self, trace: Trace) -> None:
        for key in list(self.read_all(trace)):
            self.store(trace, key, None)

    def snapshot(self) -> None:
        return None

    # ---- in residual code

    def rebuild(self, emit: Emitter) -> str:
        if self.owner is not None:
            return f"{emit.expression(self.owner)}.__dict__"
        if self.cls in MAPPING_TYPES and self.attributes is None:
            return emit.mapping(self)
        base = emit.constant(self.base(*MAPPING_TYPES))
        name = emit.fresh(self.cls.__name__.lower())
        emit.line(f"{name} = {base}.__new__({emit.constant(self.cls)})")
        if self.factory is not None:
            emit.line(f"{base}.__init__({name}, {emit.expression(self.factory)})")
        if not emit.is_cyclic(self):
            self.fill(emit, name)
        return name

    def fill(self, emit: Emitter, name: str) -> None:
        for key, value in self.items.items():
            if value is not None:
                emit.line(self._storing(emit, name, key, value))
        self.fill_attributes(emit, name)

    def _storing(self, emit: Emitter, name: str, key: Any, value: Value) -> str:
        if self.cls in MAPPING_TYPES:
            return f"{name}[{emit.key(key)}] = {emit.expression(value)}"
        base = emit.constant(self.base(*MAPPING_TYPES))
        return f"{base}.__setitem__({name}, {emit.key(key)}, {emit.expression(value)})"

    def replay(self, emit: Emitter, before: None) -> None:
        """Apply the keys written, oldest first."""
        if self.owner is not None:
            self._replay_attributes(emit, emit.expression(self.owner))
            return
        name = emit.expression(self)
        base = emit.constant(self.base(*MAPPING_TYPES))
        for key, moved in self.written.items():
            value = self.items.get(key)
            if value is None or moved:
                emit.line(f"{base}.pop({name}, {emit.key(key)}, None)")
            if value is not None:
                emit.line(self._storing(emit, name, key, value))

    def _replay_attributes(self, emit: Emitter, target: str) -> None:
        for key, moved in self.written.items():
            value = self.items.get(key)
            if value is None or moved:
                emit.line(f"{target}.__dict__.pop({emit.key(key)}, None)")
            if value is not None:
                plain = isinstance(key, str) and emit.plain_attribute(self.owner, key)
                place = f"{target}.{key}" if plain else f"{target}.__dict__[{key!r}]"
                emit.line(f"{place} = {emit.expression(value)}")


def stored_items(real: dict[Any, Any]) -> dict[Any, Any]:
    """What a dictionary holds, in order, past the methods that a subclass defines."""
    if type(real) in MAPPING_TYPES:
        return real
    keys = (OrderedDict if isinstance(real, OrderedDict) else dict).__iter__(real)
    return {key: dict.__getitem__(real, key) for key in keys}


def real_key_of(trace: Trace, key: Any) -> Any:
    """The object that `key` is in a real dictionary. One from outside is assumed to be that one."""
    if isinstance(key, ById):
        real, source = getattr(key.value, "real", None), key.value.source
        if real is None:
            return key  # one made during the capture can't be in there
        if source is not None and not isinstance(source, Fixed):
            trace.guard(GuardKind.IS, source, real)
        return real
    return tuple(real_key_of(trace, part) for part in key) if type(key) is tuple else key


def _key_from_outside(trace: Trace, key: Any) -> Any:
    """A key of a real dictionary as a key here. Plain constants are themselves."""
    if trace.is_plain_constant(key):
        return key
    wrapped_key = key_of(trace, trace.wrap_pinned(key))
    _refuse_custom_hash(wrapped_key)
    return wrapped_key


def _refuse_custom_hash(key: Any) -> None:
    """Guards look keys up in C code and can't follow what the class of the key does."""
    if isinstance(key, ByHash):
        raise Break("custom-hash", f"a {key.value.python_type().__name__} as a key")
    if type(key) is tuple:
        for part in key:
            _refuse_custom_hash(part)


class SetValue(Value):
    """A set or frozenset; elements are keys. In a real set, so that the order is the real one."""

    __slots__ = ("cls", "items")

    def __init__(self, cls: type, items: Iterable[Any], source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        # The order of a real set depends on how it was made: one that is given stays as it is.
        self.items: set[Any] = items if type(items) is set else set(iter(items))

    def python_type(self) -> type:
        return self.cls

    def constant(self) -> Any:
        if not issubclass(self.cls, frozenset):
            raise NotConstant(self)
        return self.cls(constants([value_of_key(key) for key in self.items]))

    def elements(self) -> list[Value]:
        return [value_of_key(key) for key in self.items]

    def children(self) -> list[Value]:
        return self.elements()

    def snapshot(self) -> set[Any]:
        return set(self.items)

    def rebuild(self, emit: Emitter) -> str:
        inner = ", ".join(emit.key(key) for key in self.items)
        if self.cls is set and self.items:
            return f"{{{inner}}}"
        name = emit.constant(self.cls)
        if self.cls in (set, frozenset):
            return f"{name}([{inner}])"
        if issubclass(self.cls, frozenset):
            return f"frozenset.__new__({name}, [{inner}])"
        variable = emit.fresh(self.cls.__name__.lower())
        emit.line(f"{variable} = set.__new__({name})")
        emit.line(f"set.update({variable}, [{inner}])")
        return variable

    def replay(self, emit: Emitter, before: set[Any]) -> None:
        name = emit.expression(self)
        for key in before:
            if key not in self.items:
                emit.line(f"{name}.discard({emit.key(key)})")
        for key in self.items:
            if key not in before:
                emit.line(f"{name}.add({emit.key(key)})")


def instance_dict(trace: Trace, owner: Any) -> Mapping:
    """The dictionary of attributes of `owner`, made on first use."""
    if owner.attributes is None:
        if owner.source is not None and getattr(owner, "real", None) is not None:
            real, source = owner.real.__dict__, InstanceDict(owner.source)
            # The program may have reached the same dictionary by `vars(x)` before.
            owner.attributes = trace.known(real, source)
            if owner.attributes is not None:  # met before, on its own
                return owner.attributes
            owner.attributes = Mapping(dict, source=source, backing=real)
            trace.remember(real, owner.attributes)
        else:
            owner.attributes = Mapping(dict)
        owner.attributes.owner = owner
    return owner.attributes


def has_foreign_dict(owner: Any) -> bool:
    """Whether the program has made another dictionary the `__dict__` of this object, perhaps the
    object itself."""
    return owner.attributes is not None and owner.attributes.owner is not owner


def attribute_values(owner: Any) -> list[Value]:
    """What an object refers to by its attributes."""
    if owner.attributes is None:
        return []
    return [owner.attributes] if has_foreign_dict(owner) else owner.attributes.contents()


FIELD = type(namedtuple("Fields", ["field"]).field)  # type: ignore[attr-defined]


def set_native_attribute(
    trace: Trace, descriptor: Any, owner: Value, name: str, value: Value | None
) -> None:
    """Write an attribute that C code of the class computes."""
    if isinstance(descriptor, FIELD):
        trace.throw(AttributeError(f"can't {'set' if value is not None else 'delete'} attribute"))
    if not isinstance(descriptor, types.GetSetDescriptorType) or name != "__dict__":
        raise Break("attribute-write", f"{owner.python_type().__name__}.{name}")
    _set_instance_dict(trace, owner, value)


def _set_instance_dict(trace: Trace, owner: Any, value: Value | None) -> None:
    """`owner.__dict__ = value`, for an object made during the capture."""
    table = None if value is None else trace.read(value)
    if table is not None and not issubclass(table.python_type(), dict):
        kind = type_name(table.python_type())
        trace.throw(TypeError(f"__dict__ must be set to a dictionary, not a '{kind}'"))
    made_here = owner.source is None and getattr(owner, "real", None) is None
    if not isinstance(table, Mapping) or not made_here or not hasattr(owner, "attributes"):
        raise Break("attribute-write", f"{owner.python_type().__name__}.__dict__")
    trace.changes += 1
    if owner.attributes is not None and not has_foreign_dict(owner):
        owner.attributes.owner = None  # from here on a dictionary like others
    owner.attributes = table


def plain_list(items: list[Value]) -> Sequence:
    return Sequence(list, items)


def plain_tuple(items: list[Value]) -> Sequence:
    return Sequence(tuple, items)
