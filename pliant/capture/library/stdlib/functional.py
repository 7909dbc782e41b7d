"""The `operator` and `functools` modules, `sorted`, and the C helpers of `collections`.

Operator functions are the operators of the model under another name. Objects that remember how to
look something up (`itemgetter` and its relatives) and partial applications are values that can be
called.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
from abc import get_cache_token
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.library.python.classes import class_of, is_callable
from pliant.capture.library.python.equivalents import as_value, dispatched
from pliant.capture.library.python.numbers import index_of
from pliant.capture.model import (
    BINARY,
    CALL,
    COMPARE,
    INPLACE,
    UNARY,
    advance,
    binary,
    call,
    call_special,
    compare,
    contains,
    delete_item,
    drain,
    equal,
    get_attribute,
    get_item,
    inplace,
    iterate,
    length,
    negation,
    same_object,
    set_item,
    special,
    truth,
    unary,
)
from pliant.capture.native import BY_CODE, METHODS, function, method
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, NONE, Break, Const, Raised, Value, boolean
from pliant.capture.values.containers import (
    Mapping,
    key_of,
    plain_list,
    plain_tuple,
)
from pliant.capture.values.functions import BoundMethod, FunctionValue, Partial
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter

KEY_WRAPPER: type = type(functools.cmp_to_key(lambda left, right: 0))


# ---- operator


def _of_two(apply: Callable[..., Value], symbol: str) -> Callable[..., Value]:
    return lambda trace, a, b, /: apply(trace, symbol, a, b)


def _of_one(symbol: str) -> Callable[..., Value]:
    return lambda trace, a, /: unary(trace, symbol, a)


def _register_operators() -> None:
    for symbol, (_, _, real) in BINARY.items():
        function(real)(_of_two(binary, symbol))
    for symbol, (_, real) in INPLACE.items():
        function(real)(_of_two(inplace, symbol))
    for symbol, (_, _, real) in COMPARE.items():
        function(real)(_of_two(compare, symbol))
    for symbol, (_, real) in UNARY.items():
        function(real)(_of_one(symbol))


_register_operators()
if operator.inv is not operator.invert:
    function(operator.inv)(_of_one("~"))


@function(operator.truth)
def operator_truth(trace: Trace, value: Value) -> Value:
    return boolean(truth(trace, value))


@function(operator.not_)
def operator_not(trace: Trace, value: Value) -> Value:
    return negation(trace, value)


@function(operator.is_)
def operator_is(trace: Trace, left: Value, right: Value) -> Value:
    return boolean(same_object(trace, left, right))


@function(operator.is_not)
def operator_is_not(trace: Trace, left: Value, right: Value) -> Value:
    return boolean(not same_object(trace, left, right))


@function(operator.index)
def operator_index(trace: Trace, value: Value) -> Value:
    return index_of(trace, value)


@function(operator.getitem)
def operator_getitem(trace: Trace, obj: Value, key: Value) -> Value:
    return get_item(trace, obj, key)


@function(operator.setitem)
def operator_setitem(trace: Trace, obj: Value, key: Value, value: Value) -> Value:
    set_item(trace, obj, key, value)
    return NONE


@function(operator.delitem)
def operator_delitem(trace: Trace, obj: Value, key: Value) -> Value:
    delete_item(trace, obj, key)
    return NONE


@function(operator.contains)
def operator_contains(trace: Trace, container: Value, item: Value) -> Value:
    return boolean(contains(trace, container, item))


@function(operator.countOf)
def operator_count_of(trace: Trace, container: Value, item: Value) -> Value:
    return Const(sum(equal(trace, element, item) for element in drain(trace, container)))


@function(operator.indexOf)
def operator_index_of(trace: Trace, container: Value, item: Value) -> Value:
    iterator, index = iterate(trace, container), 0
    while (element := advance(trace, iterator)) is not None:
        if equal(trace, element, item):
            return Const(index)
        index += 1
    trace.throw(ValueError("sequence.index(x): x not in sequence"))


@function(operator.concat)
def operator_concat(trace: Trace, left: Value, right: Value) -> Value:
    _require_sequence(trace, left)
    return binary(trace, "+", left, right)


@function(operator.iconcat)
def operator_iconcat(trace: Trace, left: Value, right: Value) -> Value:
    _require_sequence(trace, left)
    return inplace(trace, "+", left, right)


def _require_sequence(trace: Trace, value: Value) -> None:
    cls = trace.read(value).python_type()
    if trace.lookup(cls, "__getitem__") is MISSING:
        trace.throw(TypeError(f"'{type_name(cls)}' object can't be concatenated"))


@function(operator.length_hint)
def operator_length_hint(trace: Trace, obj: Value, default: Value = Const(0)) -> Value:  # noqa: B008
    cls = trace.read(obj).python_type()
    if trace.lookup(cls, "__len__") is not MISSING:
        return length(trace, obj)
    try:
        return call_special(trace, obj, "__length_hint__") or default
    except Raised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
        return default


@function(operator.call)
def operator_call(trace: Trace, target: Value, /, *args: Value, **kwargs: Value) -> Value:
    return call(trace, target, list(args), kwargs)


# ---- itemgetter, attrgetter, methodcaller


class Getter(Value):
    """An `operator.itemgetter`, `attrgetter` or `methodcaller`."""

    __slots__ = ("args", "cls", "kwargs")

    def __init__(self, cls: type, args: list[Value], kwargs: dict[str, Value]) -> None:
        super().__init__()
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    def python_type(self) -> type:
        return self.cls

    def children(self) -> list[Value]:
        return [*self.args, *self.kwargs.values()]

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.expression(arg) for arg in self.args]
        parts += [f"{name}={emit.expression(value)}" for name, value in self.kwargs.items()]
        return f"{emit.constant(self.cls)}({', '.join(parts)})"


def getter_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    """The value of a real getter: it is immutable and tells how it was made."""
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    make: Any
    make, args = real.__reduce__()
    first: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(make, functools.partial):  # of a methodcaller with keywords
        make, first, kwargs = make.func, make.args, make.keywords
    values = [trace.wrap_pinned(arg) for arg in (*first, *args)]
    getter = Getter(make, values, {name: trace.wrap_pinned(arg) for name, arg in kwargs.items()})
    getter.source = source
    return getter


@function(operator.itemgetter)
def make_itemgetter(trace: Trace, *args: Value) -> Value:
    if not args:
        trace.throw(TypeError("itemgetter expected 1 argument, got 0"))
    return Getter(operator.itemgetter, list(args), {})


@function(operator.attrgetter)
def make_attrgetter(trace: Trace, *args: Value) -> Value:
    if not args:
        trace.throw(TypeError("attrgetter expected 1 argument, got 0"))
    if not all(issubclass(trace.read(arg).python_type(), str) for arg in args):
        trace.throw(TypeError("attribute name must be a string"))
    return Getter(operator.attrgetter, list(args), {})


@function(operator.methodcaller)
def make_methodcaller(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    if not args:
        trace.throw(TypeError("methodcaller needs at least one argument, the method name"))
    if not issubclass(trace.read(args[0]).python_type(), str):
        trace.throw(TypeError("method name must be a string"))
    return Getter(operator.methodcaller, list(args), kwargs)


def _get_items(trace: Trace, getter: Getter, obj: Value, direct: bool) -> Value:
    if len(getter.args) == 1:
        return get_item(trace, obj, getter.args[0], direct)
    return plain_tuple([get_item(trace, obj, key) for key in getter.args])


def _get_attributes(trace: Trace, getter: Getter, obj: Value, direct: bool) -> Value:
    attributes = []
    for path in getter.args:
        value = obj
        for name in trace.read(path).constant().split("."):
            value = get_attribute(trace, value, name)
        attributes.append(value)
    return attributes[0] if len(attributes) == 1 else plain_tuple(attributes)


def _call_method(trace: Trace, getter: Getter, obj: Value, direct: bool) -> Value:
    bound = get_attribute(trace, obj, trace.read(getter.args[0]).constant())
    return call(trace, bound, getter.args[1:], getter.kwargs, direct)


GETTERS: dict[type, Callable[[Trace, Getter, Value, bool], Value]] = {
    operator.itemgetter: _get_items,
    operator.attrgetter: _get_attributes,
    operator.methodcaller: _call_method,
}


def call_getter(
    trace: Trace, target: Getter, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    if len(args) != 1 or kwargs:
        name = target.cls.__name__
        trace.throw(TypeError(f"{name} expected 1 argument, got {len(args)}"))
    return GETTERS[target.cls](trace, target, args[0], direct)


CALL[Getter] = call_getter


BUILDERS.update(dict.fromkeys(GETTERS, getter_from_outside))


# ---- functools


@method(functools.partial, "__new__")
def partial_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    if not args:
        trace.throw(TypeError("type 'partial' takes at least one argument"))
    target = trace.read(args[0])
    if not is_callable(trace, target):
        trace.throw(TypeError("the first argument must be callable"))
    rest = list(args[1:])
    real = class_of(trace, cls)
    # Python flattens a partial of a partial.
    if isinstance(target, Partial) and _is_plain_partial(trace, target):
        return Partial(real, target.function, [*target.args, *rest], {**target.keywords, **kwargs})
    return Partial(real, target, rest, kwargs)


def _is_plain_partial(trace: Trace, value: Partial) -> bool:
    """Whether it is nothing but a call: Python then takes the function out of it."""
    called = functools.partial.__dict__["__call__"]
    if trace.lookup(value.cls, "__call__") is not called or value.attributes is not None:
        return False
    return value.real is None or value.real.__reduce__()[2][3] is None


@function(functools.partial)
def make_partial(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    return partial_new(trace, Const(functools.partial), *args, **kwargs)


@method(functools.partial, "func")
def partial_func(trace: Trace, obj: Partial) -> Value:
    return obj.function


@method(functools.partial, "args")
def partial_args(trace: Trace, obj: Partial) -> Value:
    return plain_tuple(list(obj.args))


@method(functools.partial, "keywords")
def partial_keywords(trace: Trace, obj: Partial) -> Value:
    return Mapping(dict, dict(obj.keywords))


def call_partial(
    trace: Trace, target: Partial, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    own = trace.lookup(target.cls, "__call__")
    if own is not functools.partial.__dict__["__call__"]:  # of a subclass
        return call(trace, special(trace, target, "__call__"), args, kwargs, direct)
    return apply_partial(trace, target, args, kwargs, direct)


def apply_partial(
    trace: Trace, target: Partial, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    """What the call of a partial application does unless its class says otherwise."""
    merged = {**target.keywords, **kwargs}
    return call(trace, target.function, [*target.args, *args], merged, direct)


CALL[Partial] = call_partial


@method(functools.partial, "__call__")
def partial_call(trace: Trace, obj: Partial, /, *args: Value, **kwargs: Value) -> Value:
    return apply_partial(trace, obj, list(args), kwargs, False)


@function(functools.reduce)
def reduce(trace: Trace, target: Value, iterable: Value, *initial: Value) -> Value:
    items = [*initial, *drain(trace, iterable)]
    if not items:
        trace.throw(TypeError("reduce() of empty iterable with no initial value"))
    result = items[0]
    for item in items[1:]:
        result = call(trace, target, [result, item])
    return result


class CompareKey(Value):
    """What `functools.cmp_to_key(compare)` returns; with `obj`, the key it makes of an object."""

    __slots__ = ("compare", "obj")

    def __init__(self, compare: Value, obj: Value | None = None) -> None:
        super().__init__()
        self.compare = compare
        self.obj = obj

    def python_type(self) -> type:
        return KEY_WRAPPER

    def children(self) -> list[Value]:
        return [self.compare] if self.obj is None else [self.compare, self.obj]

    def rebuild(self, emit: Emitter) -> str:
        key_class = f"{emit.constant(functools.cmp_to_key)}({emit.expression(self.compare)})"
        return key_class if self.obj is None else f"{key_class}({emit.expression(self.obj)})"


@function(functools.cmp_to_key)
def cmp_to_key(trace: Trace, mycmp: Value) -> Value:
    return CompareKey(mycmp)


def call_compare_key(
    trace: Trace, target: CompareKey, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    [obj] = [*args, *kwargs.values()]
    return CompareKey(target.compare, obj)


CALL[CompareKey] = call_compare_key


def _compare_keys(symbol: str) -> Callable[..., Value]:
    def compare_keys(trace: Trace, left: CompareKey, right: Value) -> Value:
        right = trace.read(right)
        if not isinstance(right, CompareKey):
            trace.throw(TypeError("other argument must be K instance"))
        assert left.obj is not None and right.obj is not None
        sign = call(trace, left.compare, [left.obj, right.obj])
        return compare(trace, symbol, sign, Const(0))

    return compare_keys


for _symbol, _entry in COMPARE.items():
    METHODS[KEY_WRAPPER, _entry[0]] = _compare_keys(_symbol)


@function(functools.cached_property.__get__)
def cached_property_get(trace: Trace, prop: Value, obj: Value, owner: Value = NONE) -> Value:
    """Without the lock that Python 3.11 takes: what is followed is not shared between threads."""
    prop, obj = trace.read(prop), trace.read(obj)
    if isinstance(obj, Const) and obj.value is None:
        return prop
    name = trace.read(get_attribute(trace, prop, "attrname")).constant()
    cached = obj.instance_attribute(trace, name)
    if cached is not None:
        return cached
    value = call(trace, get_attribute(trace, prop, "func"), [obj])
    obj.store_attribute(trace, name, value)
    return value


@function(functools.partialmethod.__get__)
def partialmethod_get(trace: Trace, method: Value, obj: Value, cls: Value = NONE) -> Value:
    target = trace.read(get_attribute(trace, method, "func"))
    if not isinstance(target, FunctionValue) or same_object(trace, obj, NONE):
        raise Break("unsupported-descriptor", "this functools.partialmethod")
    args = drain(trace, get_attribute(trace, method, "args"))
    keywords = trace.read(get_attribute(trace, method, "keywords"))
    assert isinstance(keywords, Mapping)
    bound = BoundMethod(target, obj)
    return Partial(functools.partial, bound, args, keywords.read_all(trace))


@method(types.FunctionType, "__get__")
def bind_function(trace: Trace, target: Value, obj: Value, owner: Value = NONE) -> Value:
    return target if same_object(trace, obj, NONE) else BoundMethod(target, obj)


# ---- sorting and counting


@function(sorted)
def builtin_sorted(
    trace: Trace, iterable: Value, *, key: Value = NONE, reverse: Value = FALSE
) -> Value:
    items = plain_list(drain(trace, iterable))
    METHODS[list, "sort"](trace, items, key=key, reverse=reverse)
    return items


@function(collections._count_elements)  # type: ignore[attr-defined]
def count_elements(trace: Trace, mapping: Value, iterable: Value) -> Value:
    """The inner loop of `collections.Counter.update`."""
    counter = trace.read(mapping)
    assert isinstance(counter, Mapping)
    for item in drain(trace, iterable):
        key = key_of(trace, item)
        before = counter.get(trace, key) or Const(0)
        counter.store(trace, key, binary(trace, "+", before, Const(1)))
    return NONE


# ---- singledispatch


@function(get_cache_token)
def cache_token(trace: Trace) -> Value:
    """The number of classes that were registered with abstract ones."""
    token = get_cache_token()
    source = Fixed(get_cache_token, "abc.get_cache_token")
    trace.guard(GuardKind.PREDICATE, source, Gives((), token))
    return Const(token)


def dispatch(
    trace: Trace,
    dispatcher: FunctionValue,
    args: list[Value],
    kwargs: dict[str, Value],
    direct: bool,
) -> Value | None:
    if len(args) != 1 or kwargs:
        return None
    cells = dict(zip(dispatcher.code.co_freevars, dispatcher.closure(trace), strict=True))
    registry = cells["registry"].contents
    assert registry is not None
    return call(trace, as_value(dispatched), [args[0], registry], direct=direct)


BY_CODE[functools.singledispatch(len).dispatch.__code__] = dispatch
