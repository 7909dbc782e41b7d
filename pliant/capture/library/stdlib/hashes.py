"""Hashes of `hashlib` that the program makes: what went into them is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.python.buffers import known_or_held
from pliant.capture.native import FUNCTIONS, METHODS, function
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.conversion import from_real

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


HASHES = [
    maker
    for name in sorted(hashlib.algorithms_guaranteed)
    if (maker := getattr(hashlib, name, None)) is not None and not name.startswith("shake")
]


class HashValue(Value):
    """A hash made during the capture, which knows all that went into it."""

    __slots__ = ("data", "held", "maker")

    def __init__(self, maker: Any, data: bytes) -> None:
        super().__init__()
        self.maker = maker
        self.data = data
        self.held = maker(data)

    def python_type(self) -> type:
        return type(self.held)

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.maker)}({self.data!r})"


def _new_hash(maker: Any) -> Callable[..., Value]:
    def make(trace: Trace, *data: Value, **options: Value) -> Value:
        real_args = [known_or_held(trace, part) for part in data]
        if options.keys() - {"usedforsecurity"} or len(real_args) > 1:
            raise Break("unsupported-function", f"{maker.__name__}() with options")
        try:
            maker(*real_args)
        except TypeError as error:
            trace.throw(error)
        return HashValue(maker, bytes(real_args[0]) if real_args else b"")

    return make


for _maker in HASHES:
    FUNCTIONS[_maker] = _new_hash(_maker)


@function(hashlib.new)
def new_named_hash(trace: Trace, name: Value, *data: Value) -> Value:
    maker = getattr(hashlib, trace.read(name).constant(), None)
    if maker not in HASHES:
        raise Break("unsupported-function", "hashlib.new()")
    return FUNCTIONS[maker](trace, *data)


def _hash_method(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, obj: HashValue, *args: Value) -> Value:
        real_args = [known_or_held(trace, arg) for arg in args]
        try:
            return from_real(trace, getattr(obj.held, name)(*real_args))
        except TypeError as error:
            trace.throw(error)

    return handler


def _hash_update(trace: Trace, obj: HashValue, data: Value) -> Value:
    content = known_or_held(trace, data)
    try:
        obj.held.update(content)
    except TypeError as error:
        trace.throw(error)
    trace.changes += 1
    obj.data += bytes(content)
    return NONE


_HASH_TYPES = {type(maker()) for maker in HASHES}
for _hash_type in _HASH_TYPES:
    for _base in _hash_type.__mro__[:-1]:
        METHODS[_base, "update"] = _hash_update
        METHODS[_base, "copy"] = lambda trace, obj: HashValue(obj.maker, obj.data)
        for _name in ("digest", "hexdigest"):
            METHODS[_base, _name] = _hash_method(_name)
        for _name in ("name", "digest_size", "block_size"):
            METHODS[_base, _name] = lambda trace, obj, name=_name: Const(getattr(obj.held, name))
