"""Numbers: conversions, arithmetic functions, `min`, `max`, `sum`, and the mathematical modules.

Known numbers are computed now. A value whose kind takes over operators (a tensor, a symbolic
number) is given the real function; any other object is asked through its special methods, as Python
does.
"""

from __future__ import annotations

import _random
import builtins
import cmath
import math
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from pliant.base.python_errors import no_conversion, type_name
from pliant.capture.indexing import own_index
from pliant.capture.library.python import chosen_tensors
from pliant.capture.model import (
    BINARY,
    COMPARE,
    FOLDABLE,
    OPERATE,
    advance,
    ask_owner,
    binary,
    call,
    call_special,
    compare,
    drain,
    fold,
    get_attribute,
    iterate,
    truth,
)
from pliant.capture.native import FUNCTIONS, METHODS, function, pure
from pliant.capture.value import (
    NONE,
    NOT_IMPLEMENTED,
    Break,
    Const,
    Value,
    boolean,
    is_constant,
    is_followed,
)
from pliant.capture.values.containers import plain_tuple
from pliant.capture.values.conversion import from_real
from pliant.capture.values.number import Number
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def taken_over(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """The result where a tensor or symbolic number is among the operands."""
    for operand in operands:
        owner = OPERATE.get(type(operand))
        if owner is not None:
            return owner(trace, real, *operands)
    return None


def compute(
    trace: Trace,
    real: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value] | None = None,
) -> Value:
    """Run a pure function on constants now. What it raises is raised in the captured program."""
    real_args = [arg.constant() for arg in args]
    real_kwargs = {name: trace.read(arg).constant() for name, arg in (kwargs or {}).items()}
    try:
        result = real(*real_args, **real_kwargs)
    except Exception as error:
        trace.throw(error)
    return Const(result) if type(result) in FOLDABLE else from_real(trace, result)


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None


# ---- conversions


@function(bool)
def make_bool(trace: Trace, *args: Value) -> Value:
    if len(args) > 1:
        trace.throw(TypeError(f"bool expected at most 1 argument, got {len(args)}"))
    if args and isinstance(trace.read(args[0]), Number):
        return ask_owner(trace, bool, trace.read(args[0]))
    return boolean(bool(args) and truth(trace, args[0]))


@function(int)
def make_int(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    values = [trace.read(arg) for arg in args]
    if len(values) != 1 or kwargs or _is_known(trace, values[0], "__int__"):
        return compute(trace, int, values, kwargs)
    return _convert(trace, int, values[0], ("__int__", "__index__", "__trunc__"))


@function(float)
def make_float(trace: Trace, *args: Value) -> Value:
    values = [trace.read(arg) for arg in args]
    if len(values) != 1 or _is_known(trace, values[0], "__float__"):
        return compute(trace, float, values)
    return _convert(trace, float, values[0], AS_FLOAT)


def _is_known(trace: Trace, value: Value, method: str) -> bool:
    return isinstance(value, Const) and not is_followed(trace, value, method)


def _convert(
    trace: Trace,
    target: type,
    value: Value,
    names: tuple[str, ...],
    called: Callable[[Any], object] | None = None,
) -> Value:
    """`target(value)` through the first special method that the class has. `called` refuses it if
    there is none: `target`, unless something else is said."""
    if isinstance(value, TensorValue):
        return FUNCTIONS[target](trace, read_number(trace, value))
    symbolic = taken_over(trace, target, value)
    if symbolic is not None:
        return symbolic
    if isinstance(value, Number):
        return compute(trace, target, [value])
    for name in names:
        result = call_special(trace, value, name)
        if result is None:
            continue
        result = trace.read(result)
        expected = int if name == "__index__" else target
        if not issubclass(result.python_type(), expected):
            kind = type_name(result.python_type())
            trace.throw(TypeError(_wrong_result(value, name, expected, kind)))
        return result if name == names[0] else FUNCTIONS[target](trace, result)
    trace.throw(no_conversion(called or target, value.python_type()))


def read_number(trace: Trace, tensor: TensorValue) -> Value:
    """The number in a tensor of one element: a symbolic one."""
    return trace.read(call(trace, get_attribute(trace, tensor, "item"), []))


def _wrong_result(value: Value, name: str, expected: type, kind: str) -> str:
    if name == "__float__":
        return f"{type_name(value.python_type())}.__float__ returned non-float (type {kind})"
    return f"{name} returned non-{expected.__name__} (type {kind})"


@function(complex)
def make_complex(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    values = [trace.read(arg) for arg in args]
    if len(values) == 1 and isinstance(values[0], TensorValue):
        values = [read_number(trace, values[0])]
    if len(values) == 1 and not kwargs and not isinstance(values[0], Const | Number):
        names = ("__complex__",) if _has(trace, values[0], "__complex__") else AS_FLOAT
        target: type = complex if names != AS_FLOAT else float
        return compute(trace, complex, [_convert(trace, target, values[0], names, complex)])
    return compute(trace, complex, values, kwargs)


AS_FLOAT = ("__float__", "__index__")


def _has(trace: Trace, value: Value, name: str) -> bool:
    return trace.lookup(value.python_type(), name) is not MISSING


@function(bytes)
def make_bytes(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    values = [trace.read(arg) for arg in args]
    if len(values) == 1 and not isinstance(values[0], Const | Number):
        if _has(trace, values[0], "__bytes__"):
            return _convert(trace, bytes, values[0], ("__bytes__",))
        if _has(trace, values[0], "__index__"):
            return compute(trace, bytes, [index_of(trace, values[0])])
        if not (_has(trace, values[0], "__iter__") or _has(trace, values[0], "__getitem__")):
            kind = type_name(values[0].python_type())
            trace.throw(TypeError(f"cannot convert '{kind}' object to bytes"))
        items = plain_tuple([trace.read(item) for item in drain(trace, values[0])])
        return compute(trace, bytes, [items])
    return compute(trace, bytes, values, kwargs)


@function(range)
def make_range(trace: Trace, *args: Value) -> Value:
    if not args:
        trace.throw(TypeError("range expected at least 1 argument, got 0"))
    return compute(trace, range, [index_of(trace, arg) for arg in args])


def index_of(trace: Trace, value: Value) -> Value:
    """`operator.index(value)`."""
    value = trace.read(value)
    symbolic = taken_over(trace, operator.index, value) if isinstance(value, Number) else None
    if symbolic is not None:
        return symbolic
    if isinstance(value, Const | Number):
        return compute(trace, operator.index, [value])
    result = own_index(trace, value)
    if result is None:
        name = type_name(value.python_type())
        trace.throw(TypeError(f"'{name}' object cannot be interpreted as an integer"))
    return result


def _index_text(real: Callable[[int], str]) -> None:
    @function(real)
    def text(trace: Trace, value: Value) -> Value:
        return compute(trace, real, [index_of(trace, value)])


for _real in (hex, oct, bin, chr):
    _index_text(_real)
pure(ord)


# ---- operators as methods: what `3 + obj` asks before it asks `obj`


def _operator_method(descriptor: Any) -> Callable[..., Value]:
    def operator_method(trace: Trace, left: Value, right: Value, *rest: Value) -> Value:
        values = [trace.read(value) for value in (left, right, *rest)]
        if not all(is_constant(value) for value in values):
            return NOT_IMPLEMENTED
        return compute(trace, descriptor, values)

    return operator_method


def _register_operator_methods() -> None:
    names = [name for forward, reflected, _ in BINARY.values() for name in (forward, reflected)]
    names += [name for name, _, _ in COMPARE.values()]
    for cls in (int, bool, float, complex, str, bytes):
        for name in (*names, "__divmod__", "__rdivmod__"):
            if name in vars(cls) and not (cls is str and "mod" in name):  # str.__mod__ formats
                METHODS[cls, name] = _operator_method(vars(cls)[name])


_register_operator_methods()


# ---- arithmetic


@function(abs, operator.abs)
def absolute(trace: Trace, value: Value) -> Value:
    value = trace.read(value)
    symbolic = taken_over(trace, operator.abs, value)
    if symbolic is not None:
        return symbolic
    if isinstance(value, Number) or _is_known(trace, value, "__abs__"):
        return compute(trace, abs, [value])
    result = call_special(trace, value, "__abs__")
    if result is None:
        trace.throw(TypeError(f"bad operand type for abs(): '{type_name(value.python_type())}'"))
    return result


@function(round)
def builtin_round(trace: Trace, number: Value, ndigits: Value = NONE) -> Value:
    number, ndigits = trace.read(number), trace.read(ndigits)
    extra = [] if _is_none(ndigits) else [ndigits]
    if isinstance(number, Const) and number.python_type() in FOLDABLE:
        return compute(trace, round, [number, *extra])
    if type(number) in OPERATE:
        symbolic = taken_over(trace, round, number, *extra)
        if symbolic is None and isinstance(number, Number):
            return compute(trace, round, [number, *extra])
        return symbolic or ask_owner(trace, round, number, *extra)
    result = call_special(trace, number, "__round__", *extra)
    if result is None:
        name = type_name(number.python_type())
        trace.throw(TypeError(f"type {name} doesn't define __round__ method"))
    return result


@function(divmod)
def builtin_divmod(trace: Trace, left: Value, right: Value) -> Value:
    left, right = trace.read(left), trace.read(right)
    symbolic = taken_over(trace, divmod, left, right)
    if symbolic is not None:
        return symbolic
    if is_constant(left) and is_constant(right):
        return compute(trace, divmod, [left, right])
    for receiver, name, other in ((left, "__divmod__", right), (right, "__rdivmod__", left)):
        result = call_special(trace, receiver, name, other)
        if result is not None and not _declined(trace, result):
            return result
    names = f"'{type_name(left.python_type())}' and '{type_name(right.python_type())}'"
    trace.throw(TypeError(f"unsupported operand type(s) for divmod(): {names}"))


def _declined(trace: Trace, result: Value) -> bool:
    result = trace.read(result)
    return isinstance(result, Const) and result.value is NotImplemented


@function(pow)
def builtin_pow(trace: Trace, base: Value, exp: Value, mod: Value = NONE) -> Value:
    base, exp, mod = trace.read(base), trace.read(exp), trace.read(mod)
    if _is_none(mod):
        return binary(trace, "**", base, exp)
    if all(is_constant(value) for value in (base, exp, mod)):
        return compute(trace, pow, [base, exp, mod])
    result = call_special(trace, base, "__pow__", exp, mod)
    if result is None or _declined(trace, result):
        raise Break("unsupported-function", "pow() with three arguments")
    return result


@function(sum)
def builtin_sum(trace: Trace, iterable: Value, start: Value = Const(0)) -> Value:  # noqa: B008
    total = trace.read(start)
    for kind, text in SUMMED_TEXT.items():
        if issubclass(total.python_type(), kind):
            trace.throw(TypeError(f"sum() can't sum {text}"))
    items = drain(trace, iterable)
    if COMPENSATED and _sums_floats(trace, [total, *items]):
        items_tuple = plain_tuple([trace.read(item) for item in items])
        return compute(trace, sum, [items_tuple, total])
    for item in items:
        total = binary(trace, "+", total, item)
    return total


COMPENSATED = sys.version_info >= (3, 12)  # floats are summed better than by adding one by one


def _sums_floats(trace: Trace, items: list[Value]) -> bool:
    values = [trace.read(item) for item in items]
    kinds = {value.python_type() for value in values}
    return float in kinds and all(isinstance(value, Const | Number) for value in values)


SUMMED_TEXT = {
    str: "strings [use ''.join(seq) instead]",
    bytes: "bytes [use b''.join(seq) instead]",
}


def _extreme(name: str, symbol: str) -> Callable[..., Value]:
    def extreme(
        trace: Trace, *args: Value, key: Value = NONE, default: Value | None = None
    ) -> Value:
        """The first of the items that no other exceeds."""
        if not args:
            trace.throw(TypeError(f"{name} expected at least 1 argument, got 0"))
        if len(args) > 1 and default is not None:
            text = f"Cannot specify a default for {name}() with multiple positional arguments"
            trace.throw(TypeError(text))
        items = list(args) if len(args) > 1 else drain(trace, args[0])
        if not items:
            return _default(trace, name, default)
        no_key = _is_none(trace.read(key))
        if no_key:
            unknown = _symbolic_extreme(trace, name, items) or chosen_tensors.chosen(
                trace, getattr(builtins, name), symbol, items
            )
            if unknown is not None:
                return unknown
        best = items[0]
        best_key = best if no_key else call(trace, key, [best])
        for item in items[1:]:
            item_key = item if no_key else call(trace, key, [item])
            if truth(trace, compare(trace, symbol, item_key, best_key)):
                best, best_key = item, item_key
        return best

    return extreme


def _symbolic_extreme(trace: Trace, name: str, items: list[Value]) -> Value | None:
    """Of symbolic numbers the result is symbolic too: no guard says which of them it is. If some
    are ints and some floats, a guard has to, since the type of the result depends on it."""
    values = [trace.read(item) for item in items]
    kinds = {value.python_type() for value in values}
    if len(kinds) > 1 or not kinds <= {int, float}:
        return None
    if not any(isinstance(value, Number) for value in values):
        return None
    best: Value | None = values[0]
    for value in values[1:]:
        best = taken_over(trace, getattr(builtins, name), best, value) if best else None
    return best


def _default(trace: Trace, name: str, default: Value | None) -> Value:
    if default is None:
        trace.throw(ValueError(EMPTY.format(name)))
    return default


def _message_of_empty() -> str:
    """The words differ between versions of Python."""
    try:
        return max([])
    except ValueError as error:
        return str(error).replace("max()", "{}()")


EMPTY = _message_of_empty()
function(max)(_extreme("max", ">"))
function(min)(_extreme("min", "<"))


@function(all)
def builtin_all(trace: Trace, iterable: Value) -> Value:
    iterator = iterate(trace, iterable)
    while (item := advance(trace, iterator)) is not None:
        if not truth(trace, item):
            return boolean(False)
    return boolean(True)


@function(any)
def builtin_any(trace: Trace, iterable: Value) -> Value:
    iterator = iterate(trace, iterable)
    while (item := advance(trace, iterator)) is not None:
        if truth(trace, item):
            return boolean(True)
    return boolean(False)


# ---- math and cmath


def _mathematical(real: Callable[..., Any]) -> Callable[..., Value]:
    """A function of numbers: objects that are no numbers are converted by their own methods."""
    own = {math.floor: "__floor__", math.ceil: "__ceil__", math.trunc: "__trunc__"}.get(real)

    def mathematical(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        values = [trace.read(arg) for arg in args]
        if real not in INTEGER_FUNCTIONS:
            values = [make_float(trace, v) if isinstance(v, TensorValue) else v for v in values]
        symbolic = None if kwargs else taken_over(trace, real, *values)
        if symbolic is not None:
            return symbolic
        if own is not None and values and not isinstance(values[0], Const | Number):
            result = call_special(trace, values[0], own)
            if result is not None:
                return result
            if real is math.trunc:
                kind = type_name(values[0].python_type())
                trace.throw(TypeError(f"type {kind} doesn't define __trunc__ method"))
        convert = index_of if real in INTEGER_FUNCTIONS else _number
        return compute(trace, real, [convert(trace, value) for value in values], kwargs)

    return mathematical


def _number(trace: Trace, value: Value) -> Value:
    if is_constant(value):
        return value
    if not any(_has(trace, value, name) for name in AS_FLOAT):
        trace.throw(TypeError(f"must be real number, not {type_name(value.python_type())}"))
    return _convert(trace, float, value, AS_FLOAT)


def _of_sequences(real: Callable[..., Any]) -> Callable[..., Value]:
    """A function of sequences of numbers."""

    def of_sequences(trace: Trace, *args: Value) -> Value:
        groups = [[_number(trace, trace.read(item)) for item in drain(trace, arg)] for arg in args]
        return compute(trace, real, [plain_tuple(group) for group in groups])

    return of_sequences


SEQUENCE_FUNCTIONS = {math.fsum, math.dist}
INTEGER_FUNCTIONS = {math.factorial, math.gcd, math.lcm, math.comb, math.perm, math.isqrt}


@function(math.prod)
def math_prod(trace: Trace, iterable: Value, *, start: Value = Const(1)) -> Value:  # noqa: B008
    total = trace.read(start)
    for item in drain(trace, iterable):
        total = binary(trace, "*", total, item)
    return total


def sum_of_products(trace: Trace, left: Value, right: Value) -> Value:
    """`math.sumprod`, of Python 3.12."""
    pairs = [drain(trace, left), drain(trace, right)]
    if len(pairs[0]) != len(pairs[1]):
        trace.throw(ValueError("Inputs are not the same length"))
    groups = [plain_tuple([trace.read(item) for item in items]) for items in pairs]
    return compute(trace, math.sumprod, list(groups))  # type: ignore[attr-defined]


def _register_modules() -> None:
    if hasattr(math, "sumprod"):
        function(math.sumprod)(sum_of_products)
    for module in (math, cmath):
        for real in vars(module).values():
            if not isinstance(real, types.BuiltinFunctionType) or real in FUNCTIONS:
                continue
            maker = _of_sequences if real in SEQUENCE_FUNCTIONS else _mathematical
            function(real)(maker(real))


_register_modules()
pure(float.fromhex, int.from_bytes)


# ---- random numbers: drawing them is in `randomness`, the state itself is known to Python alone


def random_state(trace: Trace, /, *args: Value, **kwargs: Value) -> NoReturn:
    raise Break("random-state", "the random module")


for _name in ("getstate", "setstate"):
    METHODS[_random.Random, _name] = random_state

__all__ = ["absolute", "compute", "fold", "index_of", "taken_over"]
