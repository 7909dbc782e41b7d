"""What programs say about symbolic numbers in PyTorch's words: `torch._check`, `torch.sym_max` and
the helpers of framework code.

The one idea: on plain numbers they do what PyTorch does; on symbolic ones they are conditions and
expressions, and some of them questions that never cost a guard. Helpers that PyTorch keeps with its
compiler are recognised by name, because that is not imported here.
"""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pliant.base import checks
from pliant.base.errors import DataDependentError
from pliant.base.values import dataclass
from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.assertion_branches import note_assertion, only_raises
from pliant.capture.directives import BY_NAME
from pliant.capture.failures import may_fail
from pliant.capture.frame import Frame
from pliant.capture.library.python.numbers import compute as compute_now
from pliant.capture.library.python.symbolic_numbers import (
    SymbolicOperation,
    compute,
    expression,
    operate,
)
from pliant.capture.model import call, truth
from pliant.capture.native import FUNCTIONS, LATE, function
from pliant.capture.speculated_branches import speculated_truth
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, NotConstant, Value, boolean
from pliant.capture.values.containers import Sequence
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.number import Number
from pliant.capture.wrap import BUILDERS, CONSTANTS
from pliant.guards.source import Fixed, Source
from pliant.sym import cond as conds
from pliant.sym import floats
from pliant.sym.cond import Cond, and_, not_, or_
from pliant.sym.expr import Expr, if_else

LOADS_CONST = opcodes_with(Role.LOADS_CONST)
LOADS_ASSERTION_ERROR = opcodes_with(Role.LOADS_ASSERTION_ERROR)
DEFAULT_HINT = 8192  # of PyTorch, for a size that nothing is known of


# ---- checks


@dataclass(frozen=True, slots=True)
class Check:
    """One of PyTorch's functions that raise unless a condition holds. `test` does so when the code
    runs."""

    real: Callable[..., Any]
    error: type[Exception]
    test: Callable[[bool, str], None]

    @property
    def name(self) -> str:
        return f"torch.{self.real.__name__}"


def _default_text() -> str:
    """What PyTorch says if it is given no message. (Calling it would import PyTorch's compiler.)"""
    texts = [text for text in torch._check_with.__code__.co_consts if isinstance(text, str)]
    return next((text for text in texts if text.startswith("Expected cond")), "")


DEFAULT_TEXT = _default_text()


def check_condition(trace: Trace, check: Check, cond: Value, message: Value) -> Value:
    """`torch._check(cond, message)` and its relatives."""
    value = trace.read(cond)
    if isinstance(value, Number) and isinstance(value.expr, Cond):
        if assert_condition(trace, value.expr, check.test, _text(trace, message)):
            return NONE
        trace.sizes.truth(value.expr)  # for these inputs it does not hold
    elif not isinstance(value, Const) or type(value.value) is not bool:
        raise Break("operation-raises", check.name)  # eager PyTorch makes the error
    elif value.value:
        return NONE
    _fail(trace, check, message)


def assert_condition(
    trace: Trace, cond: Cond, test: Callable[[bool, str], None], text: str
) -> bool:
    """The program raises unless `cond` holds, so it does from here on. False if it does not."""
    env, sizes = trace.sizes.env, trace.sizes
    open_question = env.known(cond) is None and env.hint(cond) is not False
    if open_question:
        may_fail(trace, text)
        if test is not checks.check:  # which the environment adds by itself
            args = (sizes.nodes.node(cond), text)
            trace.graph.operation(test, args, {}, trace.stack(), True)
    answer = env.check(cond, text).answer
    sizes.emit_checks()
    return bool(answer)


def _fail(trace: Trace, check: Check, message: Value) -> NoReturn:
    message = trace.read(message)
    if isinstance(message, Const) and message.value is None:
        trace.throw(check.error(DEFAULT_TEXT))
    if isinstance(message, Const):
        raise Break("operation-raises", check.name)
    text = FUNCTIONS[str](trace, call(trace, message, []))
    trace.throw(check.error(trace.read(text).constant()))


def _text(trace: Trace, message: Value) -> str:
    """The message for when the code runs, if it is there without running the program's code."""
    message = trace.read(message)
    if isinstance(message, Const) and message.value is None:
        return DEFAULT_TEXT
    if (
        isinstance(message, FunctionValue)
        and message.code.co_names == message.code.co_freevars == ()
    ):
        texts = [const for const in message.code.co_consts if isinstance(const, str)]
        return texts[0] if len(texts) == 1 and not message.code.co_argcount else ""
    return ""


CHECKS = (
    Check(torch._check, RuntimeError, checks.check),
    Check(torch._check_index, IndexError, checks.check_index),
    Check(torch._check_value, ValueError, checks.check_value),
    Check(torch._check_type, TypeError, checks.check_type),
    Check(torch._check_not_implemented, NotImplementedError, checks.check_not_implemented),
)


def _register(check: Check) -> None:
    @function(check.real)
    def handle(trace: Trace, cond: Value, message: Value = NONE) -> Value:
        return check_condition(trace, check, cond, message)


for _check in CHECKS:
    _register(_check)

TESTS = {check.error: check.test for check in CHECKS}


@function(torch._check_with)
def check_with(trace: Trace, error_type: Value, cond: Value, message: Value) -> Value:
    """What `torch._check_tensor_all` asks about the contents of a tensor."""
    error = trace.read(error_type).constant()
    # A failing graph is run again, which raises the program's own class.
    check = Check(torch._check_with, error, TESTS.get(error, checks.check))
    return check_condition(trace, check, cond, message)


@function(torch._check_is_size)
def check_is_size(trace: Trace, i: Value, message: Value = NONE, **kwargs: Value) -> Value:
    value = trace.read(i)
    expr, env = expression(trace, value), trace.sizes.env
    if isinstance(expr, Expr) and expr.op == "symbol" and expr not in env.hints:
        # From here on `size_oblivious` may take it to be at least 2.
        env.mark_size_like(expr)
    conditions = [FUNCTIONS[operator.ge](trace, value, Const(0))]
    most = trace.read(kwargs.get("max", NONE))
    if not (isinstance(most, Const) and most.value is None):
        conditions.append(FUNCTIONS[operator.le](trace, value, most))
    for cond in conditions:
        check_condition(trace, CHECKS[0], cond, message)
    return NONE


def branch(trace: Trace, frame: Frame, ins: Instruction, value: Value, jump_on: bool) -> bool:
    """Whether a jump is made on the truth of `value`. Where the other way only raises, or is not
    likely, an unbacked number is checked when the code runs."""
    cond = _condition(trace, value)
    if cond is not None:
        fails = [only_raises(frame, to) for to in _ways(frame, ins)]
        env = trace.sizes.env
        # Where inputs decide, an ordinary guard is better: the way that raises is then followed
        # too.
        if fails[0] is not fails[1] and env.known(cond) is None and env.hint(cond) is None:
            asserted_cond = cond if jump_on is fails[0] else not_(cond)
            way = _ways(frame, ins)[fails.index(True)]
            # The graph raises the AssertionError of an `assert` itself; any other exception Python
            # has to make.
            if frame.instructions[way].op not in LOADS_ASSERTION_ERROR:
                note_assertion(trace, frame, Break("data-dependent-number", str(cond)))
            if assert_condition(
                trace, asserted_cond, checks.check_assertion, _assertion_text(frame, way)
            ):
                return fails[0]
        likely = speculated_truth(trace, frame, ins, cond)
        if likely is not None and assert_condition(
            trace, cond if likely[0] else not_(cond), checks.check_assertion, likely[1]
        ):
            return likely[0] is jump_on
    return truth(trace, value) is jump_on


def _ways(frame: Frame, ins: Instruction) -> tuple[int, int]:
    """Where execution goes on if there is no jump, and if there is one."""
    return frame.index + 1, ins.value


def _assertion_text(frame: Frame, index: int) -> str:
    message = frame.instructions[index + 1]
    is_text = message.op in LOADS_CONST and isinstance(message.value, str)
    return message.value if is_text else ""


# ---- torch.sym_...


def _symbolic(values: list[Value]) -> bool:
    return any(isinstance(value, Number) for value in values)


def _extreme(real: Callable[..., Any], plain: Callable[..., Any]) -> None:
    """A float if any of the two is one, unlike Python's own."""

    @function(real)
    def extreme(trace: Trace, a: Value, b: Value) -> Value:
        values = [trace.read(a), trace.read(b)]
        kinds = {value.python_type() for value in values}
        if not _symbolic(values) or not kinds <= {int, float}:
            return compute_now(trace, real, values)
        if len(kinds) == 2:
            values = [FUNCTIONS[float](trace, value) for value in values]
        return operate(trace, plain, *values) or compute_now(trace, real, values)


_extreme(torch.sym_max, builtins.max)
_extreme(torch.sym_min, builtins.min)


@function(torch.sym_int)
def sym_int(trace: Trace, a: Value) -> Value:
    return FUNCTIONS[int](trace, a)


@function(torch.sym_float)
def sym_float(trace: Trace, a: Value) -> Value:
    return FUNCTIONS[float](trace, a)


@function(torch.sym_not)
def sym_not(trace: Trace, a: Value) -> Value:
    return FUNCTIONS[operator.not_](trace, a)


@function(torch.sym_sum)
def sym_sum(trace: Trace, *args: Value) -> Value:
    first = trace.read(args[0]) if len(args) == 1 else NONE
    if isinstance(first, Sequence) and issubclass(first.cls, list | tuple):
        return FUNCTIONS[sum](trace, first)
    return FUNCTIONS[sum](trace, Sequence(tuple, list(args)))


@function(torch.sym_ite)
def sym_ite(trace: Trace, b: Value, t: Value, f: Value) -> Value:
    choice, values = trace.read(b), [trace.read(t), trace.read(f)]
    numbers = [expression(trace, value) for value in values]
    same_kind = values[0].python_type() is values[1].python_type()
    if not isinstance(choice, Number) or choice.python_type() is not bool:
        if isinstance(choice, Const) and type(choice.value) is bool and same_kind:
            return values[0] if choice.value else values[1]
        raise Break("operation-raises", "torch.sym_ite")  # eager PyTorch makes the error
    if None in numbers or not same_kind:
        raise Break("operation-raises", "torch.sym_ite")
    chosen = compute(trace, torch.sym_ite, _chosen, [expression(trace, choice), *numbers])
    assert chosen is not None, "nothing of it needs constants"
    return chosen


def _chosen(operation: SymbolicOperation, choice: Cond, a: Any, b: Any) -> Any:
    if isinstance(a, Cond):
        return or_(and_(choice, a), and_(not_(choice), b))
    return if_else(choice, a, b) if isinstance(a, Expr) else floats.float_if(choice, a, b)


MATHEMATICAL = (
    "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2"
)  # fmt: skip


def _mathematical(name: str, real: Callable[..., Any]) -> None:
    plain = floats.MATH[name]
    function(real)(lambda trace, a: FUNCTIONS[plain](trace, a))


for _name in MATHEMATICAL:
    if hasattr(torch, f"_sym_{_name}"):
        _mathematical(_name, getattr(torch, f"_sym_{_name}"))


# ---- helpers of framework code

SYMBOLIC_SHAPES = "torch.fx.experimental.symbolic_shapes"


def helper(*names: str) -> Callable[[Any], Any]:
    """Register the handler of functions of PyTorch's compiler, by name."""

    def register(handler: Any) -> Any:
        for name in names:
            BY_NAME[SYMBOLIC_SHAPES, name] = handler
        return handler

    return register


def _condition(trace: Trace, value: Value) -> Cond | None:
    """The condition that a value is; None for one that is known."""
    value = trace.read(value)
    if not isinstance(value, Number):
        return None
    expr = trace.sizes.env.simplify(value.expr)
    return expr if isinstance(expr, Cond) else conds.ne(expr, 0)


def _query(trace: Trace, value: Value, ask: Callable[[Cond], bool]) -> Value:
    cond = _condition(trace, value)
    if cond is None:
        return boolean(truth(trace, value))
    try:
        answer = ask(cond)
    except DataDependentError as error:
        raise Break("data-dependent-number", error.what, error=error) from error
    trace.sizes.emit_checks()
    return boolean(answer)


@helper("guard_or_false")
def guard_or_false(trace: Trace, a: Value) -> Value:
    env = trace.sizes.env
    return _query(trace, a, lambda cond: env.guard_or(cond, False, trace.asker()))


@helper("guard_or_true")
def guard_or_true(trace: Trace, a: Value) -> Value:
    env = trace.sizes.env
    return _query(trace, a, lambda cond: env.guard_or(cond, True, trace.asker()))


@helper("guard_size_oblivious")
def guard_size_oblivious(trace: Trace, expr: Value) -> Value:
    env = trace.sizes.env
    return _query(trace, expr, lambda cond: env.size_oblivious(cond, trace.asker()))


@helper("statically_known_true")
def statically_known_true(trace: Trace, x: Value) -> Value:
    return _query(trace, x, lambda cond: trace.sizes.env.known(cond) is True)


@helper("statically_known_false")
def statically_known_false(trace: Trace, x: Value) -> Value:
    if _condition(trace, x) is None:
        return boolean(not truth(trace, x))
    return _query(trace, x, lambda cond: trace.sizes.env.known(cond) is False)


@helper("optimization_hint")
def optimization_hint(trace: Trace, a: Value, fallback: Value = NONE) -> Value:
    """A number to choose by, which must not matter for the result: no guard comes of it."""
    value = trace.read(a)
    if not isinstance(value, Number):
        return value
    hint = trace.sizes.env.hint(value.expr)
    if hint is None:
        hint = trace.read(fallback).constant()
    return Const(DEFAULT_HINT if hint is None else hint)


@helper("guard_bool", "expect_true")
def guard_bool(trace: Trace, a: Value, *rest: Value) -> Value:
    return boolean(truth(trace, a))


@helper("guard_int", "guard_float", "guard_scalar")
def guard_number(trace: Trace, a: Value) -> Value:
    value = trace.read(a)
    try:
        return Const(value.constant())
    except NotConstant as error:
        raise Break("not-constant", "guard_int") from error


@helper("is_concrete_int", "is_concrete_float", "is_concrete_bool", "has_static_value")
def is_concrete(trace: Trace, a: Value) -> Value:
    value = trace.read(a)
    expr = expression(trace, value) if isinstance(value, Number) else None
    return boolean(expr is None or expr.value is not None)


# ---- ints that are marked


def dynamic_int(trace: Trace, real: Any, source: Source) -> Value:
    """`DynamicInt(3)` says that the number is a symbol. Code for one serves plain ints too."""
    number = int(real)
    if isinstance(source, Fixed):
        return Const(number)
    return trace.inputs.marked_number(number, source, type(real))


def _register_dynamic_int() -> None:
    BUILDERS[sys.modules[SYM_NODE].DynamicInt] = dynamic_int
    CONSTANTS.add(dynamic_int)


SYM_NODE = "torch.fx.experimental.sym_node"
LATE[SYM_NODE].append(_register_dynamic_int)
