"""Arithmetic on symbolic numbers.

The one idea: an operation on symbolic numbers is an expression, built from those of its operands.
The table says how; what is not in it needs the numbers themselves, and makes them constants.

An operation that Python refuses for some numbers (a division by 0) first makes sure that these are
others: by a guard where inputs decide it. Otherwise the operation stays in the graph even if its
result is not used, and raises there what Python raises.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from torch import fx

from pliant.base.errors import DataDependentError
from pliant.base.isolation import FATAL
from pliant.base.python_errors import names_value
from pliant.capture.failures import may_fail
from pliant.capture.model import GET, OPERATE, fold, get_attribute
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, TRUE, Break, Const, Value, boolean
from pliant.capture.values.containers import Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING
from pliant.sym import cond as conds
from pliant.sym import expr as exprs
from pliant.sym import floats
from pliant.sym.cond import Cond, and_, not_, or_, truth
from pliant.sym.expr import Expr, integer
from pliant.sym.floats import FloatExpr, real
from pliant.sym.program import compile_program
from pliant.sym.ranges import EXACT

AnyExpr = Expr | FloatExpr | Cond
EXPRESSION: dict[type, Callable[[Any], AnyExpr]] = {int: integer, float: real, bool: truth}


class NeedsConstants(Exception):
    """The operation can't be an expression: its operands have to become constants."""


class SymbolicOperation:
    """One operation on symbolic numbers, while its result is worked out. It collects what may fail
    when the code runs."""

    def __init__(self, trace: Trace, function: Callable[..., Any], operands: list[Any]) -> None:
        self.trace = trace
        self.env = trace.sizes.env
        self.function = function
        self.operands = operands
        self.unsure: list[Cond] = []  # has to hold, and may not when the code runs
        self.may_raise = False  # for other reasons, when the code runs

    def holds(self, cond: Cond) -> bool:
        """The truth of `cond`, by a guard if it doesn't follow from facts: the operation has two
        cases."""
        return self.env.evaluate(cond, self.trace.asker())

    def need(self, cond: Cond) -> None:
        """Demand a condition without which Python raises: by a guard, or by a test when the code
        runs. If it is known to fail, Python's exception is raised in the captured program."""
        answer = self.env.known(cond)
        hint = self.env.hint(cond) if answer is None else None
        # Inputs decide it: the answer is guarded, and nothing has to be tested when the code runs.
        if hint is not None and _can_be_guarded(cond):
            answer = self.holds(cond)
        if answer is False:
            self.fail()
        # It fails for these numbers, by which no guard can tell others apart: so they become
        # constants.
        elif answer is None and hint is False:
            raise NeedsConstants
        elif answer is None:
            self.unsure.append(cond)

    def fail(self) -> None:
        """Raise in the captured program what Python raises for these operands."""
        try:
            self.function(*[self._example(operand) for operand in self.operands])
        except Exception as error:
            if names_value(error):
                raise NeedsConstants from error
            self.trace.throw(error)
        raise Break("data-dependent-number", f"the operands of {self.function.__name__}")

    def _example(self, operand: Any) -> Any:
        hint = self.env.hint(operand)
        if hint is None:
            return 1.0 if isinstance(operand, FloatExpr) else 1
        return hint

    def finish(self, result: AnyExpr) -> None:
        """Put what may fail when the code runs into the graph: the tests, and the operation even if
        its result is unused."""
        if not self.unsure and not self.may_raise:
            return
        try:
            # If it has no value even for the numbers at hand, Python has to raise.
            self.env.hint(result)
        except FATAL:
            raise
        except Exception as error:
            raise NeedsConstants from error
        sizes = self.trace.sizes
        node = sizes.nodes.node(result)
        if isinstance(node, fx.Node):
            self.trace.graph.keep(node)
        may_fail(self.trace, self.function.__name__)
        for cond in self.unsure:
            self.env.check(cond, f"{self.function.__name__} needs {cond}")
        sizes.emit_checks()


def _can_be_guarded(cond: Cond) -> bool:
    """Whether the native guards can test the condition: they have no floats."""
    try:
        compile_program(cond)
    except NotImplementedError:
        return False
    return True


def operate(trace: Trace, function: Callable[..., Any], *operands: Value) -> Value | None:
    """An operator with a symbolic number among the operands. None if constants are needed."""
    special = SPECIAL.get(function)
    if special is not None:
        return special(trace, *operands)
    if any(isinstance(value, TensorValue) for value in operands):
        return OPERATE[TensorValue](trace, function, *operands)
    build = BUILD.get(function)
    numbers = [expression(trace, value) for value in operands]
    if build is None or None in numbers:
        return _unequal(function, operands)
    if all(number.value is not None for number in numbers):
        return fold(trace, function, *[Const(number.value) for number in numbers])
    return compute(trace, function, build, numbers)


def compute(
    trace: Trace, function: Callable[..., Any], build: Callable[..., Any], numbers: list[Any]
) -> Value | None:
    """The result of an operation whose expression `build` makes; None if constants are needed."""
    operation = SymbolicOperation(trace, function, numbers)
    try:
        result = build(operation, *numbers)
        for part in result if isinstance(result, tuple) else (result,):
            operation.finish(part)
        return from_expression(trace, result)
    except DataDependentError as error:
        raise Break("data-dependent-number", error.what, error=error) from error
    except NeedsConstants:
        return None


def expression(trace: Trace, value: Value) -> Any:
    """The expression of a number; None for anything else."""
    if isinstance(value, Number):
        return trace.sizes.env.simplify(value.expr)
    convert = EXPRESSION.get(type(value.value)) if isinstance(value, Const) else None
    return None if convert is None else convert(value.value)  # type: ignore[attr-defined]


def from_expression(trace: Trace, result: Any) -> Value:
    if isinstance(result, tuple):
        return Sequence(tuple, [from_expression(trace, item) for item in result])
    env = trace.sizes.env
    # A loop over sizes would make deeper and deeper expressions.
    result = env.bounded(result, trace.asker())
    constant = env.known(result) if isinstance(result, Cond) else env.simplify(result).value
    if constant is None and isinstance(result, Expr):
        result = trace.sizes.narrowed(result)
    return Number(trace.sizes, result) if constant is None else Const(constant)


MOST_ITEMS: Final = 32
"""Of a sequence that is indexed by data: each is a case of the number that comes out."""


def item_at(trace: Trace, items: list[Value], index: Number) -> Value | None:
    """`items[index]`, where the index is in the data and the items are numbers of one type; else
    None. An index out of range fails when the code runs, and Python raises then."""
    env, position = trace.sizes.env, index.expr
    if not 0 < len(items) <= MOST_ITEMS or not isinstance(position, Expr):
        return None
    if env.hint(position) is not None:
        return None
    numbers = [expression(trace, trace.read(item)) for item in items]
    kinds = {type(number) for number in numbers}
    choose = CHOOSE.get(kinds.pop()) if len(kinds) == 1 else None
    in_range = and_(conds.ge(position, -len(items)), conds.lt(position, len(items)))
    if choose is None or env.known(in_range) is False:
        return None
    if env.known(in_range) is None:
        may_fail(trace, f"an index of {len(items)} items")
        env.check(in_range, f"an index of {len(items)} items")
        trace.sizes.emit_checks()
    place = exprs.mod(position, integer(len(items)))
    result = numbers[-1]
    # A chain of choices: items[0] if place == 0 else items[1] if place == 1 else ...
    for k in reversed(range(len(items) - 1)):
        result = choose(conds.eq(place, k), numbers[k], result)
    return from_expression(trace, result)


CHOOSE: dict[type, Callable[..., AnyExpr]] = {Expr: exprs.if_else, FloatExpr: floats.float_if}


def _unequal(function: Callable[..., Any], operands: tuple[Value, ...]) -> Value | None:
    """`n == None` is False whatever n is."""
    if function in UNEQUAL and any(value.python_type() in NOT_NUMBERS for value in operands):
        return UNEQUAL[function]
    return None


UNEQUAL = {operator.eq: FALSE, operator.ne: TRUE}
NOT_NUMBERS = frozenset(
    {str, bytes, type(None), tuple, list, dict, set, frozenset, range, slice, type}
)


def _truth(trace: Trace, number: Value) -> Value:
    assert isinstance(number, Number)
    return boolean(trace.sizes.truth(number.expr))


def _index(trace: Trace, number: Value) -> Value | None:
    if number.python_type() is bool:
        return operate(trace, int, number)
    return number if number.python_type() is int else None


def _as_constant(function: Callable[..., Any]) -> Callable[..., Value]:
    return lambda trace, *operands: fold(trace, function, *operands)


SPECIAL: dict[Any, Callable[..., Value | None]] = {
    **{function: _as_constant(function) for function in (str, repr, format)},
    operator.truth: _truth,
    operator.index: _index,
}


# ---- kinds of expressions


def _number(e: AnyExpr) -> Expr | FloatExpr:
    """An integer or float expression: a condition counts as 1 or 0."""
    return exprs.if_else(e, 1, 0) if isinstance(e, Cond) else e


def _condition(e: AnyExpr) -> Cond:
    return e if isinstance(e, Cond) else conds.ne(e, 0)


def _whole(*numbers: AnyExpr) -> bool:
    return not any(isinstance(e, FloatExpr) for e in numbers)


def _has_float_symbol(e: AnyExpr) -> bool:
    return any(isinstance(s, FloatExpr) for s in e.symbols)


Build = Callable[..., Any]


def _arithmetic(of_integers: Build, op: str) -> Build:
    """`of_integers` for integers, the operation `op` of floats otherwise."""

    def build(operation: SymbolicOperation, *operands: AnyExpr) -> Any:
        numbers = [_number(e) for e in operands]
        return of_integers(*numbers) if _whole(*numbers) else floats.apply(op, *numbers)

    return build


def _dividing(of_integers: Build, op: str) -> Build:
    divide = _arithmetic(of_integers, op)

    def build(operation: SymbolicOperation, a: AnyExpr, b: AnyExpr) -> Any:
        operation.need(conds.ne(_number(b), 0))
        return divide(operation, a, b)

    return build


def _of_integers(build_one: Build) -> Build:
    """As `build_one`, for integers only: for floats, Python makes the error."""

    def build(operation: SymbolicOperation, *operands: AnyExpr) -> Any:
        if not _whole(*operands):
            raise NeedsConstants
        return build_one(operation, *[_number(e) for e in operands])

    return build


def _shift(operation: SymbolicOperation, a: Expr, b: Expr, how: Build) -> Expr:
    operation.need(conds.ge(b, 0))
    return how(a, b)


def _bits(of_flags: Callable[..., Cond], of_numbers: Build) -> Build:
    of_integers = _of_integers(lambda operation, a, b: of_numbers(a, b))

    def build(operation: SymbolicOperation, a: AnyExpr, b: AnyExpr) -> Any:
        are_conditions = isinstance(a, Cond) and isinstance(b, Cond)
        return of_flags(a, b) if are_conditions else of_integers(operation, a, b)

    return build


def _differ(a: Cond, b: Cond) -> Cond:
    return or_(and_(a, not_(b)), and_(not_(a), b))


# ---- comparisons


def _comparing(compare: Build) -> Build:
    def build(operation: SymbolicOperation, a: AnyExpr, b: AnyExpr) -> Any:
        x, y = _number(a), _number(b)
        # An integer with a float.
        if _whole(x) is not _whole(y):
            x, y = _nearest(compare, x, y), _nearest(_MIRRORED[compare], y, x)
        return compare(x, y)

    return build


def _nearest(compare: Build, x: Any, other: Any) -> Any:
    """An integer that can stand for the float x in `x < n` and its relatives, if there is one.
    Guards know integers only, and Python compares an integer and a float exactly."""
    value = x.value if isinstance(x, FloatExpr) and isinstance(other, Expr) else None
    if value is None or not math.isfinite(value):
        return x
    rounding = _ROUNDED.get(compare)
    if rounding is not None:
        return integer(rounding(value))
    return integer(int(value)) if value.is_integer() else x


_MIRRORED: dict[Build, Build] = {
    conds.lt: conds.gt, conds.gt: conds.lt, conds.le: conds.ge, conds.ge: conds.le,
    conds.eq: conds.eq, conds.ne: conds.ne,
}  # fmt: skip
# 2.5 < n is 2 < n; 2.5 <= n is 3 <= n; 2.5 > n is 3 > n; 2.5 >= n is 2 >= n
_ROUNDED: dict[Build, Callable[[float], int]] = {
    conds.lt: math.floor, conds.le: math.ceil, conds.gt: math.ceil, conds.ge: math.floor,
}  # fmt: skip


def _equality(same: bool) -> Build:
    plain = _comparing(conds.eq)

    def build(operation: SymbolicOperation, a: AnyExpr, b: AnyExpr) -> Cond:
        if isinstance(a, Cond) and isinstance(b, Cond):
            equal = not_(_differ(a, b))
        else:
            equal = plain(operation, a, b)
        return equal if same else not_(equal)

    return build


# ---- powers


def _power(operation: SymbolicOperation, base: AnyExpr, exponent: AnyExpr) -> Any:
    a, b = _number(base), _number(exponent)
    if not _whole(a, b):
        return _float_power(operation, a, b)
    if isinstance(b, Expr) and operation.holds(conds.ge(b, 0)):
        return exprs.power(a, b)  # type: ignore[arg-type]
    operation.need(conds.ne(a, 0))
    return floats.float_power(a, b)


def _float_power(
    operation: SymbolicOperation, a: Expr | FloatExpr, b: Expr | FloatExpr
) -> FloatExpr:
    """a ** b as floats. The root of a negative number is complex, which has no expression."""
    value = b.value
    if value is None or value != int(value) or not math.isfinite(value):
        operation.need(conds.gt(a, 0) if value is None or value < 0 else conds.ge(a, 0))
    elif value < 0:
        operation.need(conds.ne(a, 0))
    operation.may_raise |= _has_float_symbol(a) or _has_float_symbol(b)
    return floats.float_power(a, b)


# ---- conversions and rounding


def _rounding(of_float: Build, of_quotient: Build | None = None) -> Build:
    """A rounding of floats to integers. nan and the infinities have none; only symbols of floats
    can be these."""

    def build(operation: SymbolicOperation, value: AnyExpr) -> Any:
        number = _number(value)
        if isinstance(number, Expr):
            return number
        ratio = None if of_quotient is None else _quotient(operation, number)
        if of_quotient is not None and ratio is not None:
            return of_quotient(*ratio)
        operation.may_raise |= _has_float_symbol(number)
        return of_float(number)

    return build


def _quotient(operation: SymbolicOperation, number: FloatExpr) -> tuple[Expr, int] | None:
    """`n * 0.75` as (3*n, 4) and `n / 3` as (n, 3): integers, so that guards can test what comes
    of it. The float has the same integer part as long as all of this is exact in floats."""
    n, above, below = _ratio(number)
    if n is None or max(abs(above), abs(below)) > 2**24:
        return None
    limit = EXACT // max(abs(above), abs(below))
    small = and_(conds.ge(n, -limit), conds.le(n, limit))
    env = operation.env
    if env.known(small) is None and env.hint(small) is None:
        return None
    if not operation.holds(small):
        return None
    return (-n * above, -below) if below < 0 else (n * above, below)


def _ratio(number: FloatExpr) -> tuple[Expr | None, int, int]:
    """`(n, a, b)` if the float is `n * a / b` for an integer expression n and constants a and b;
    otherwise None for n."""
    if number.op == "fmul":
        n, factor = sorted(number.args, key=lambda e: isinstance(e, FloatExpr))
        if isinstance(n, Expr) and factor.value and math.isfinite(factor.value):
            return n, *factor.value.as_integer_ratio()
    if number.op == "truediv":
        n, divisor = number.args
        if isinstance(n, Expr) and isinstance(divisor, Expr) and divisor.value:
            return n, 1, divisor.value
    return None, 0, 0


def _floor_quotient(x: Expr, y: int) -> Expr:
    return exprs.floordiv(x, y)


def _ceil_quotient(x: Expr, y: int) -> Expr:
    return -exprs.floordiv(-x, y)


def _trunc_quotient(x: Expr, y: int) -> Expr:
    return exprs.if_else(conds.ge(x, 0), _floor_quotient(x, y), _ceil_quotient(x, y))


def _same(number: Expr) -> Expr:
    return number


def _round(operation: SymbolicOperation, value: AnyExpr, digits: AnyExpr | None = None) -> Any:
    if digits is None:
        return _rounding(floats.round_half_even)(operation, value)
    number, count = _number(value), digits.value
    if not isinstance(digits, Expr) or count is None:
        raise NeedsConstants
    if isinstance(number, FloatExpr):
        return floats.round_to(number, int(count))
    if count < 0:
        raise NeedsConstants
    return number


def _truth_value(operation: SymbolicOperation, value: AnyExpr) -> Cond:
    return _condition(value)


def _not(operation: SymbolicOperation, value: AnyExpr) -> Cond:
    return not_(_condition(value))


def _divmod(operation: SymbolicOperation, a: AnyExpr, b: AnyExpr) -> tuple[Any, Any]:
    return _floordiv(operation, a, b), _mod(operation, a, b)


# ---- math


def _mathematical(name: str) -> Build:
    domain = _DOMAINS.get(name)

    def build(operation: SymbolicOperation, *operands: AnyExpr) -> FloatExpr:
        numbers = [_number(e) for e in operands]
        if domain is not None:
            operation.need(domain(numbers[0]))
        operation.may_raise |= name not in _ALWAYS_DEFINED
        return floats.math_call(name, *numbers)

    return build


_DOMAINS: dict[str, Callable[[Any], Cond]] = {
    "sqrt": lambda x: conds.ge(x, 0),
    **{name: lambda x: conds.gt(x, 0) for name in ("log", "log2", "log10", "gamma", "lgamma")},
    "log1p": lambda x: conds.gt(x, -1),
    "acosh": lambda x: conds.ge(x, 1),
    **{name: lambda x: and_(conds.ge(x, -1), conds.le(x, 1)) for name in ("asin", "acos")},
    "atanh": lambda x: and_(conds.gt(x, -1), conds.lt(x, 1)),
}
"""Where it is defined; of gamma the part that is simple to say."""
_ALWAYS_DEFINED = frozenset(
    [
        "sqrt", "log", "log2", "log10", "log1p", "lgamma", "acosh", "asin", "acos", "atanh", "atan",
        "tanh", "asinh", "erf", "erfc", "cbrt", "degrees", "radians", "fabs", "atan2", "hypot",
        "copysign",
    ]
)  # fmt: skip
"""In their domains. The others are not, for large or infinite numbers."""


def _logarithm(
    operation: SymbolicOperation, value: AnyExpr, base: AnyExpr | None = None
) -> FloatExpr:
    log = _mathematical("log")
    if base is None:
        return log(operation, value)
    divisor = log(operation, base)
    operation.need(conds.ne(divisor, 0.0) if divisor.symbols else truth(divisor.value != 0))
    return floats.true_div(log(operation, value), divisor)


def _is_nan(operation: SymbolicOperation, value: AnyExpr) -> Cond:
    return conds.ne(value, value) if isinstance(value, FloatExpr) else conds.FALSE


def _is_infinite(operation: SymbolicOperation, value: AnyExpr) -> Cond:
    return conds.eq(abs(value), math.inf) if isinstance(value, FloatExpr) else conds.FALSE


def _is_finite(operation: SymbolicOperation, value: AnyExpr) -> Cond:
    return conds.lt(abs(value), math.inf) if isinstance(value, FloatExpr) else conds.TRUE


def _of_two(build: Build) -> Build:
    def build_two(operation: SymbolicOperation, *operands: AnyExpr) -> Any:
        if len(operands) != 2:
            raise NeedsConstants
        return build(operation, *operands)

    return build_two


_floordiv = _dividing(exprs.floordiv, "ffloordiv")
_mod = _dividing(exprs.mod, "fmod")
_ARITHMETIC: dict[Any, Build] = {
    operator.add: _arithmetic(exprs.add, "fadd"),
    operator.sub: _arithmetic(exprs.sub, "fsub"),
    operator.mul: _arithmetic(exprs.mul, "fmul"),
    operator.floordiv: _floordiv,
    operator.mod: _mod,
    operator.truediv: _dividing(floats.true_div, "truediv"),
    operator.pow: _power,
    operator.lshift: _of_integers(lambda o, a, b: _shift(o, a, b, exprs.shift_left)),
    operator.rshift: _of_integers(lambda o, a, b: _shift(o, a, b, exprs.shift_right)),
    operator.and_: _bits(and_, exprs.bit_and),
    operator.or_: _bits(or_, exprs.bit_or),
    operator.xor: _bits(_differ, exprs.bit_xor),
}
_IN_PLACE = {
    operator.iadd: operator.add, operator.isub: operator.sub, operator.imul: operator.mul,
    operator.ifloordiv: operator.floordiv, operator.imod: operator.mod,
    operator.itruediv: operator.truediv, operator.ipow: operator.pow,
    operator.ilshift: operator.lshift, operator.irshift: operator.rshift,
    operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor,
}  # fmt: skip

BUILD: dict[Any, Build] = {
    **{getattr(math, name): _mathematical(name) for name in floats.MATH},
    math.log: _logarithm,
    math.hypot: _of_two(_mathematical("hypot")),
    math.isnan: _is_nan,
    math.isinf: _is_infinite,
    math.isfinite: _is_finite,
    **_ARITHMETIC,
    **{real: _ARITHMETIC[plain] for real, plain in _IN_PLACE.items()},
    operator.neg: _arithmetic(operator.neg, "fneg"),
    operator.pos: _arithmetic(_same, "to_float"),
    operator.abs: _arithmetic(exprs.absolute, "fabs"),
    operator.invert: _of_integers(lambda operation, a: -a - 1),
    operator.lt: _comparing(conds.lt),
    operator.le: _comparing(conds.le),
    operator.gt: _comparing(conds.gt),
    operator.ge: _comparing(conds.ge),
    operator.eq: _equality(True),
    operator.ne: _equality(False),
    operator.not_: _not,
    divmod: _divmod,
    round: _round,
    bool: _truth_value,
    float: lambda operation, value: floats.to_float(_number(value)),
    int: _rounding(floats.trunc, _trunc_quotient),
    math.floor: _rounding(floats.floor, _floor_quotient),
    math.ceil: _rounding(floats.ceil, _ceil_quotient),
    math.trunc: _rounding(floats.trunc, _trunc_quotient),
    max: _arithmetic(exprs.maximum, "fmax"),
    min: _arithmetic(exprs.minimum, "fmin"),
}

OPERATE[Number] = operate


# ---- attributes


def get_number_attribute(trace: Trace, number: Number, name: str) -> Value | None:
    """An attribute or method of a symbolic number. Few of them are known without the number."""
    part = _PARTS.get(name)
    if part is not None:
        return part(trace, number)
    if trace.lookup(number.python_type(), name) is MISSING:
        return None
    return get_attribute(trace, Const(number.constant()), name)


def _real_part(trace: Trace, number: Number) -> Value | None:
    return operate(trace, int, number) if number.python_type() is bool else number


def _imaginary_part(trace: Trace, number: Number) -> Value:
    return Const(0.0 if number.python_type() is float else 0)


_PARTS: dict[str, Callable[[Trace, Number], Value | None]] = {
    "real": _real_part,
    "imag": _imaginary_part,
    "__class__": lambda trace, number: Const(number.python_type()),
}

GET[Number] = get_number_attribute
