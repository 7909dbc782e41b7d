"""More classes and functions of the standard library that are run on constants: decimal numbers,
hashes, packed structures, views of bytes, modules that are imported already.

The one idea is that of `known_values`: what depends on nothing but its arguments is computed while
the program is followed. What else it depends on (the decimal context, which classes exist) is
guarded.
"""

from __future__ import annotations

import _struct
import _typing  # type: ignore[import-not-found]
import base64
import binascii
import datetime
import decimal
import hashlib
import importlib
import inspect
import re
import struct
import sys
import time
import types
import unicodedata
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.interpreter import current_exception
from pliant.capture.library.python.buffers import known_or_held
from pliant.capture.library.python.classes import real_object
from pliant.capture.library.stdlib.known_values import on_constants, same_from_outside
from pliant.capture.model import fold, iterate
from pliant.capture.native import FUNCTIONS, METHODS, function, pure
from pliant.capture.value import NONE, Break, Const, Raised, Value
from pliant.capture.values.containers import Sequence, plain_list
from pliant.capture.values.conversion import FROM_REAL, from_real
from pliant.capture.values.objects import ExceptionValue
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

NATIVE = (types.MethodDescriptorType, types.WrapperDescriptorType)
LEFT_ALONE = frozenset({"__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__"})
pure(
    _struct.Struct, zlib.crc32, zlib.adler32, zlib.compress, zlib.decompress,
    binascii.crc32, binascii.hexlify, binascii.unhexlify, binascii.a2b_base64, binascii.b2a_base64,
    types.GenericAlias,
)  # fmt: skip
METHODS[bytes, "fromhex"] = lambda trace, cls, text: fold(trace, bytes.fromhex, trace.read(text))
# Bound methods of C classes that know the class they were found in are of a type of their own.
BUILDERS[type(re.compile("").search)] = BUILDERS[types.BuiltinFunctionType]


def int_from_bytes(trace: Trace, cls: Value, data: Value, *args: Value, **kwargs: Value) -> Value:
    given = trace.read(data)
    if not isinstance(given, Const):
        given = FUNCTIONS[bytes](trace, given)
    return on_constants(int.from_bytes)(trace, given, *args, **kwargs)


METHODS[int, "from_bytes"] = int_from_bytes
for _name in ("name", "category", "normalize", "lookup", "decimal", "digit", "numeric"):
    pure(getattr(unicodedata, _name))
for _real in (base64.b64encode, base64.b64decode):
    function(_real)(on_constants(_real))


def _register_methods(cls: type, wrap: Callable[[Any], Callable[..., Value]]) -> None:
    """Every C method of a class whose objects never change."""
    BUILDERS.setdefault(cls, same_from_outside)
    for name, descriptor in vars(cls).items():
        if isinstance(descriptor, NATIVE) and name not in LEFT_ALONE:
            METHODS.setdefault((cls, name), wrap(descriptor))


@function(_struct.iter_unpack)
def iter_unpack(trace: Trace, layout: Value, data: Value) -> Value:
    given = (known_or_held(trace, layout), known_or_held(trace, data))
    try:
        return iterate(trace, from_real(trace, list(_struct.iter_unpack(*given))))
    except struct.error as error:
        trace.throw(error)


def _at_a_time(real: Callable[..., Any], needed: int) -> Callable[..., Value]:
    """A function of `time` that asks for no clock if it is told the time."""
    breaking, known = FUNCTIONS[real], on_constants(real)

    def handler(trace: Trace, *args: Value) -> Value:
        return known(trace, *args) if len(args) == needed else breaking(trace, *args)

    return handler


FUNCTIONS[time.gmtime] = _at_a_time(time.gmtime, 1)
FUNCTIONS[time.strftime] = _at_a_time(time.strftime, 2)


def _items_at_once(trace: Trace, obj: Value) -> Value:
    """An iterator over something that never changes."""
    return iterate(trace, plain_list([Const(item) for item in obj.constant()]))


@function(memoryview)
def make_view(trace: Trace, data: Value) -> Value:
    """A view of bytes, which never change."""
    known = trace.read(data)
    if not isinstance(known, Const) or not isinstance(known.value, bytes | memoryview):
        raise Break("unsupported-class", "memoryview of something that can change")
    return Const(memoryview(known.value))


METHODS[memoryview, "__iter__"] = _items_at_once
for _cls in (_struct.Struct, memoryview):
    _register_methods(_cls, on_constants)


# ---- decimal numbers, which depend on the context


def decimal_context() -> str:
    """Everything that results of decimal arithmetic depend on, besides the numbers."""
    context = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, on in context.traps.items() if on)
    return f"{context.prec} {context.rounding} {context.Emin} {context.Emax} {traps}"


def _in_context(real: Any) -> Callable[..., Value]:
    run = on_constants(real)

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        same = Gives((), decimal_context())
        trace.guard(GuardKind.PREDICATE, Fixed(decimal_context, "decimal_context"), same)
        return run(trace, *args, **kwargs)

    return handler


FUNCTIONS[decimal.Decimal] = _in_context(decimal.Decimal)
_register_methods(decimal.Decimal, _in_context)


# ---- dates, as classes


def _made_by_class(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
        return on_constants(getattr(trace.read(cls).constant(), name))(trace, *args, **kwargs)

    return handler


FROM_TEXT = ("fromisoformat", "fromisocalendar", "fromordinal", "combine", "strptime")
for _date in (datetime.date, datetime.time, datetime.datetime):
    for _name in FROM_TEXT:
        if _name in vars(_date):
            METHODS[_date, _name] = _made_by_class(_name)
FROM_REAL[type(datetime.date.min.isocalendar())] = lambda trace, obj: Const(obj)
METHODS[bytearray, "fromhex"] = lambda trace, cls, text: FUNCTIONS[bytearray](
    trace, METHODS[bytes, "fromhex"](trace, Const(bytes), text)
)


# ---- hashes

HASHES = [
    found
    for name in sorted(hashlib.algorithms_guaranteed)
    if (found := getattr(hashlib, name, None)) is not None and not name.startswith("shake")
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
        given = [known_or_held(trace, part) for part in data]
        if options.keys() - {"usedforsecurity"} or len(given) > 1:
            raise Break("unsupported-function", f"{maker.__name__}() with options")
        try:
            maker(*given)
        except TypeError as error:
            trace.throw(error)
        return HashValue(maker, bytes(given[0]) if given else b"")

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
        given = [known_or_held(trace, arg) for arg in args]
        try:
            return from_real(trace, getattr(obj.held, name)(*given))
        except TypeError as error:
            trace.throw(error)

    return handler


def _hash_update(trace: Trace, obj: HashValue, data: Value) -> Value:
    given = known_or_held(trace, data)
    try:
        obj.held.update(given)
    except TypeError as error:
        trace.throw(error)
    trace.changes += 1
    obj.data += bytes(given)
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


# ---- classes


def subclasses(cls: type) -> list[type]:
    return type.__subclasses__(cls)


def type_subclasses(trace: Trace, cls: Value) -> Value:
    """The classes derived from a class, as long as they stay the same."""
    real = trace.read(cls).constant()
    if not isinstance(real, type):
        raise Break("bad-arguments", "type.__subclasses__")  # Python makes the error
    found = subclasses(real)
    if any(id(each) in trace.stand_ins for each in (real, *found)):
        raise Break("unsupported-method", "type.__subclasses__ of a class made here")
    trace.guard(
        GuardKind.PREDICATE, Fixed(subclasses, "type.__subclasses__"), Gives((real,), found)
    )
    return plain_list([Const(each) for each in found])


METHODS[type, "__subclasses__"] = type_subclasses


# ---- modules and the state of the interpreter


@function(importlib.import_module)
def import_module(trace: Trace, name: Value, package: Value = NONE) -> Value:
    """Importing what is imported already is looking it up."""
    real = trace.read(name).constant()
    if not isinstance(real, str) or real not in sys.modules or real.startswith("."):
        raise Break("import", f"importing {real}")
    return Const(sys.modules[real])


@function(_typing._idfunc)
def same_again(trace: Trace, value: Value) -> Value:
    """What calling a `typing.NewType` does."""
    return value


def _of_known_code(real: Callable[..., Any]) -> Callable[..., Value]:
    def handler(trace: Trace, target: Value) -> Value:
        try:
            return from_real(trace, real(real_object(trace, target)))
        except (OSError, TypeError) as error:
            trace.throw(error)

    return handler


SOURCES: tuple[Callable[..., Any], ...] = (
    inspect.getsource, inspect.getsourcefile, inspect.getfile, inspect.getsourcelines
)  # fmt: skip
for _asked in SOURCES:
    function(_asked)(_of_known_code(_asked))


@function(sys.exception)
def sys_exception(trace: Trace) -> Value:
    handled = current_exception(trace)
    if handled is None:
        trace.nothing_handled()
        return NONE
    return trace.read(handled)


FUNCTIONS.pop(sys.exit, None)


@function(sys.exit)
def sys_exit(trace: Trace, status: Value = NONE) -> Value:
    known = trace.read(status)
    given = [] if isinstance(known, Const) and known.value is None else [known]
    if isinstance(known, Sequence) and known.cls is tuple:
        given = list(known.items)
    raise Raised(ExceptionValue(SystemExit, given))
