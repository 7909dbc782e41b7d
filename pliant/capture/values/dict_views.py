"""Views of dictionaries: `keys()`, `values()`, `items()` and the read-only proxy."""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING

from pliant.capture.value import Value
from pliant.capture.values.containers import Mapping, plain_tuple, value_of_key
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

VIEWS: dict[str, type] = {
    "keys": type({}.keys()),
    "values": type({}.values()),
    "items": type({}.items()),
}
ORDERED_VIEWS: dict[str, type] = {
    "keys": type(OrderedDict().keys()),
    "values": type(OrderedDict().values()),
    "items": type(OrderedDict().items()),
}


class DictView(Value):
    """The live view that `mapping.keys()`, `.values()` or `.items()` gives; `of` says which."""

    __slots__ = ("mapping", "of")

    def __init__(self, mapping: Mapping, of: str) -> None:
        super().__init__()
        self.mapping = mapping
        self.of = of

    def python_type(self) -> type:
        ordered = issubclass(self.mapping.cls, OrderedDict)
        return (ORDERED_VIEWS if ordered else VIEWS)[self.of]

    def elements(self, trace: Trace) -> list[Value]:
        items = self.mapping.read_all(trace).items()
        if self.of == "keys":
            return [value_of_key(key) for key, _ in items]
        if self.of == "values":
            return [value for _, value in items]
        return [plain_tuple([value_of_key(key), value]) for key, value in items]

    def children(self) -> list[Value]:
        return [self.mapping]

    def rebuild(self, emit: Emitter) -> str:
        owner = OrderedDict if issubclass(self.mapping.cls, OrderedDict) else dict
        # through the class: a subclass may define another method of this name
        return f"{emit.constant(owner)}.{self.of}({emit.expression(self.mapping)})"


class MappingProxy(Value):
    """`types.MappingProxyType(mapping)`."""

    __slots__ = ("mapping",)

    def __init__(self, mapping: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.mapping = mapping

    def python_type(self) -> type:
        return types.MappingProxyType

    def children(self) -> list[Value]:
        return [self.mapping]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(types.MappingProxyType)}({emit.expression(self.mapping)})"
