"""Tensors with one element whose value follows from constants and sizes: reading it breaks nothing.

`torch.tensor(3)`, `torch.div(x.shape[0], 2, rounding_mode="floor") - 1`: the graph has the tensor,
and beside it capture knows the number. Constants are computed by PyTorch itself; on symbolic sizes
there is a small table of exact integer arithmetic. A write to any tensor forgets all of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pliant.base.isolation import FATAL
from pliant.capture.model import binary, compare, truth
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.tensors import TensorValue
from pliant.fake import Fake
from pliant.guards.state_numbers import single_result
from pliant.sym.cond import eq
from pliant.sym.node import from_torch, to_torch

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

NUMBERS = (bool, int, float)
# PyTorch's own C code and Python's operators. An operator from elsewhere may do more than compute.
OF_PYTORCH = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


def note(
    trace: Trace,
    function: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    fake: Fake,
) -> None:
    """Remember the number in a new tensor, if it follows from constants and sizes."""
    # Reading from another device waits for it, and a number has no history.
    if fake.dim() or fake.device.type != "cpu" or fake.requires_grad:
        return
    name = getattr(function, "__name__", "")
    if not isinstance(function, OF_PYTORCH):
        return
    arguments = [trace.read(arg) for arg in (*args, *kwargs.values())]
    # The contents of new memory are unknown.
    if "empty" in name or not all(_is_known(trace, value) for value in arguments):
        return
    symbolic = any(_is_symbolic(trace, value) for value in arguments)
    scalar_value = (
        _exact(trace, name, args, kwargs, fake) if symbolic else _run(trace, function, args, kwargs)
    )
    if scalar_value is not None:
        remember(trace, fake, scalar_value)


def computed(
    trace: Trace, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Const | None:
    """What a call writes to its first argument, if everything that it reads is a known constant;
    otherwise None."""
    if not isinstance(function, OF_PYTORCH):
        return None
    arguments = [trace.read(arg) for arg in (*args, *kwargs.values())]
    if not all(_is_known(trace, value) and not _is_symbolic(trace, value) for value in arguments):
        return None
    return _run(trace, function, args, kwargs)


def remember(trace: Trace, fake: Fake, scalar_value: Const | Number) -> None:
    trace.scalars[id(fake)] = scalar_value
    trace.state_numbers.scalars_in.setdefault(fake.untyped_storage()._cdata, []).append(id(fake))
    number = (
        to_torch(scalar_value.expr, trace.sizes.env)
        if isinstance(scalar_value, Number)
        else scalar_value.value
    )
    trace.world.scalars[id(fake)] = number


def as_sizes(trace: Trace, name: str, args: list[Value]) -> list[Value]:
    """The arguments of an operation that takes sizes, with numbers for the tensors that hold
    them."""
    if not trace.scalars:
        return args
    short = name.rpartition(".")[2]
    if short in MAKE_TENSORS:
        return [_as_size(trace, arg) for arg in args]
    if short in TAKE_SIZES:  # and before them the tensor itself
        return [*args[:1], *(_as_size(trace, arg) for arg in args[1:])]
    return args


def _as_size(trace: Trace, value: Value) -> Value:
    value = trace.read(value)
    if isinstance(value, Sequence) and value.cls in (list, tuple):
        return Sequence(value.cls, [_as_size(trace, item) for item in value.items])
    number = scalar(trace, value)
    return number if number.python_type() is int else value


MAKE_TENSORS = frozenset(
    ["zeros", "ones", "full", "empty", "rand", "randn", "randint", "arange", "eye", "linspace"]
)
TAKE_SIZES = frozenset(
    [
        "view", "reshape", "expand", "repeat", "unflatten", "as_strided", "new_zeros", "new_ones",
        "new_full", "new_empty", "broadcast_to", "tile",
    ]
)  # fmt: skip


def forget(trace: Trace, written: Iterable[Fake]) -> None:
    """These tensors are written to, and others may share their memory."""
    for fake in written:
        # Itself too: it may have been given other memory.
        for other in (
            id(fake),
            *trace.state_numbers.scalars_in.pop(fake.untyped_storage()._cdata, ()),
        ):
            trace.scalars.pop(other, None)
            trace.world.scalars.pop(other, None)


def forget_all(trace: Trace) -> None:
    """A tensor may have been given other memory."""
    trace.scalars.clear()
    trace.state_numbers.scalars_in.clear()
    trace.world.scalars.clear()


def scalar(trace: Trace, value: Value) -> Value:
    """The number that a value is: of a tensor its element, where that is known."""
    value = trace.read(value)
    return trace.scalars.get(id(value.fake), value) if isinstance(value, TensorValue) else value


def refuse_truth(trace: Trace, tensor: Value) -> NoReturn:
    """The truth value of a tensor that only the graph will know. Unless the tensor has one element,
    asking is an error, whatever the elements are."""
    # In the body of a transformation the fake may have fewer dimensions than the tensor.
    if isinstance(tensor, TensorValue) and not trace.graph.in_body:
        count, sizes = from_torch(tensor.fake.numel()), trace.sizes
        if sizes.env.hint(count) not in (1, None) and not sizes.truth(eq(count, 1)):
            try:
                bool(torch.empty(0 if sizes.truth(eq(count, 0)) else 2))
            except RuntimeError as error:
                trace.throw(error)
    raise Break("data-dependent-branch", "the truth value of a tensor")


def _is_known(trace: Trace, value: Value) -> bool:
    number = scalar(trace, value)
    if isinstance(number, Sequence):
        return number.cls in (list, tuple) and all(_is_known(trace, item) for item in number.items)
    return isinstance(number, Const | Number)


def _is_symbolic(trace: Trace, value: Value) -> bool:
    number = scalar(trace, value)
    if isinstance(number, Sequence):
        return any(_is_symbolic(trace, item) for item in number.items)
    return isinstance(number, Number)


def _run(
    trace: Trace, function: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Const | None:
    real_args = [_real(trace, arg) for arg in args]
    try:
        result = function(*real_args, **{name: _real(trace, arg) for name, arg in kwargs.items()})
    except FATAL:
        raise
    except Exception:  # the operation was accepted: then it is not one for numbers alone
        return None
    result = single_result(result, real_args)
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        return None
    number = result.item()
    return Const(number) if type(number) in NUMBERS else None


def _real(trace: Trace, value: Value) -> Any:
    value = trace.read(value)
    if isinstance(value, Sequence):
        return value.cls([_real(trace, item) for item in value.items])
    number = scalar(trace, value)
    if isinstance(value, TensorValue):
        return torch.tensor(number.constant(), dtype=value.fake.dtype)
    return number.constant()


def _exact(
    trace: Trace, name: str, args: list[Value], kwargs: dict[str, Value], fake: Fake
) -> Number | None:
    """Integer arithmetic on sizes."""
    rule = RULES.get(name)
    if rule is None or fake.dtype is not torch.int64:
        return None
    options = {key: trace.read(value).constant() for key, value in kwargs.items()}
    number = rule(trace, [scalar(trace, arg) for arg in args], options)
    return number if isinstance(number, Number) else None


def _as_it_is(trace: Trace, args: list[Value], options: dict[str, Any]) -> Value | None:
    return args[0] if len(args) == 1 and not options else None


def _arithmetic(symbol: str) -> Callable[[Trace, list[Value], dict[str, Any]], Value | None]:
    def rule(trace: Trace, args: list[Value], options: dict[str, Any]) -> Value | None:
        if len(args) != 2 or options or not all(arg.python_type() is int for arg in args):
            return None
        return binary(trace, symbol, args[0], args[1])

    return rule


def _divided(trace: Trace, args: list[Value], options: dict[str, Any]) -> Value | None:
    """Rounding towards zero is rounding down where nothing is negative."""
    rounding = options.pop("rounding_mode", None)
    positive = len(args) == 2 and isinstance(args[1], Const) and args[1].value > 0
    if rounding not in ("floor", "trunc") or not positive:
        return None
    # Asks for a guard: sizes are at least 0, differences of sizes may not be.
    if rounding == "trunc" and not truth(trace, compare(trace, ">=", args[0], Const(0))):
        return None
    return _arithmetic("//")(trace, args, options)


RULES: dict[str, Callable[[Trace, list[Value], dict[str, Any]], Value | None]] = {
    "tensor": _as_it_is,
    "as_tensor": _as_it_is,
    "scalar_tensor": _as_it_is,
    "add": _arithmetic("+"),
    "iadd": _arithmetic("+"),
    "sub": _arithmetic("-"),
    "isub": _arithmetic("-"),
    "mul": _arithmetic("*"),
    "floordiv": _arithmetic("//"),
    "floor_divide": _arithmetic("//"),
    "div": _divided,
    "divide": _divided,
}
