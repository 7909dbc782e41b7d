"""`__torch_function__`: classes and modes of the program that take over PyTorch's functions.

The one idea: graphs have plain tensors only. A tensor of a subclass is a node like any other and
beside it the class that the program sees; modes and classes are dispatched to in PyTorch's
order, by following their `__torch_function__`. What is in the graph is what the program does once
all of them have run.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext as DeviceMode

from pliant._native import is_python_class
from pliant.capture.model import (
    BINARY,
    COMPARE,
    INPLACE,
    UNARY,
    call,
    call_special,
    get_attribute,
)
from pliant.capture.value import Break, Const, Lazy, Unread, Value, has_python_method
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.objects import Instance, Opaque
from pliant.capture.values.tensors import TensorValue
from pliant.fake.wrappers import is_wrapper_class, overrides_functions
from pliant.guards.guard import MISSING
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant._native import State
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

TensorBase = torch._C.TensorBase
DISABLED = torch._C._disabled_torch_function_impl
ORDINARY = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
MAY_OVERRIDE = (TensorValue, Instance)
ENABLED, WITHOUT_SUBCLASSES, OFF = 0, 1, 2


class Overrides(Value):
    """What PyTorch's functions dispatch to first: the active modes, innermost first, then the
    classes of arguments. `level` says how much of that the program has turned off."""

    __slots__ = ("blocks", "level", "modes", "outer_level", "outer_modes")

    def __init__(self, level: int, modes: list[Value]) -> None:
        super().__init__()
        self.level = self.outer_level = level
        self.modes = list(modes)
        self.outer_modes = modes
        self.blocks: list[Disabling] = []  # entered and not left, outermost first

    def python_type(self) -> type:
        return Overrides

    def children(self) -> list[Value]:
        return [*self.modes, *self.blocks]

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Emitter, before: None) -> None:
        """Emit what puts PyTorch's own mode stack and blocks into the state that the program has
        left."""
        unchanged = [a is b for a, b in zip(self.modes, self.outer_modes, strict=False)]
        # The modes at the bottom of both stacks that are the same: they stay.
        common = [*unchanged, False].index(False)
        for _ in self.outer_modes[common:]:
            emit.line(f"{emit.constant(torch._C._pop_torch_function_stack)}()")
        for mode in self.modes[common:]:
            push = emit.constant(torch._C._push_on_torch_function_stack)
            emit.line(f"{push}({emit.assign_name(mode, 'mode')})")
        for block in self.blocks:
            emit.line(f"{emit.assign_name(block, 'disabled')}.__enter__()")


class Disabling(Value):
    """`torch._C.DisableTorchFunctionSubclass()` or `DisableTorchFunction()`, made by the
    program."""

    __slots__ = ("before", "cls")

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.cls = cls
        self.before = ENABLED

    def python_type(self) -> type:
        kind: type = self.cls
        return kind

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.cls)}()"


def begin(trace: Trace, state: State) -> list[Any]:
    """Set up the modes and the level at the call of the function. Returns the modes of devices."""
    stack = [torch._C._get_function_stack_at(i) for i in range(state.function_modes)]
    devices = [mode for mode in stack if type(mode) is DeviceContext]
    modes: list[Value] = [
        Unread(mode, Fixed(mode, type(mode).__name__)) for mode in stack if mode not in devices
    ]
    trace.overrides = Overrides(state.function_disabled, modes)
    return devices


DeviceContext: Any = DeviceMode


# ---- which values override


def has_override(trace: Trace, value: Value) -> bool:
    """Whether the class of a value has a `__torch_function__` of its own."""
    cls = value.python_type()
    if not isinstance(value, MAY_OVERRIDE) and not is_python_class(cls):
        return False
    if cls in ORDINARY:
        return False
    if isinstance(value, TensorValue) and is_wrapper_class(cls) and not overrides_functions(cls):
        return False
    override = trace.lookup(cls, "__torch_function__")
    overrides = override is not MISSING and override is not DISABLED
    if overrides and not isinstance(value, MAY_OVERRIDE):  # asked by some functions, not by others
        raise Break("tensor-kind", f"a {cls.__name__} with __torch_function__")
    return overrides


def order_overriders(trace: Trace, values: list[Value]) -> list[Value]:
    """The values to dispatch to, one for each class, subclasses before their bases."""
    overriders: list[Value] = []
    for value in values:
        cls = value.python_type()
        if any(other.python_type() is cls for other in overriders):
            continue
        # The order that PyTorch's C++ gives the overloaded arguments.
        place = (i for i, other in enumerate(overriders) if issubclass(cls, other.python_type()))
        overriders.insert(next(place, len(overriders)), value)
    return overriders


def shown_classes(trace: Trace, values: list[Value]) -> tuple[type, ...]:
    """The `types` that PyTorch's Python code passes to a `__torch_function__`: with ordinary
    tensors, which its C code leaves out."""
    if trace.overrides.level != ENABLED:
        return ()
    shown: list[Value] = [
        value
        for value in values
        if (isinstance(value, TensorValue) and value.cls is torch.Tensor)
        or has_override(trace, value)
    ]
    return tuple([value.python_type() for value in order_overriders(trace, shown)])


# They read any object as data, and don't ask its class.
READERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy})


def overriders_of_call(
    trace: Trace, real: Any, args: list[Value], kwargs: dict[str, Value]
) -> list[Value] | None:
    """The values whose classes override a call of this function of PyTorch."""
    overriders = overriders_of(trace, args, kwargs)
    if overriders and real in READERS:
        cls = overriders[0].python_type()
        raise Break("tensor-kind", f"torch.{real.__name__} of a {cls.__name__}")
    return overriders


def overriders_of(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> list[Value] | None:
    """The values whose classes override a call; None if there are none, and no mode either."""
    state: Overrides = trace.overrides
    if state.level == OFF:
        return None
    overriders: list[Value] = []
    if state.level == ENABLED:
        for value in (*args, *kwargs.values()):
            read = trace.read(value)
            items = read.items if isinstance(read, Sequence) else [read]
            overriders += [v for item in items if has_override(trace, v := trace.read(item))]
    if not overriders and not state.modes:
        return None
    return order_overriders(trace, overriders)


def dispatch(
    trace: Trace,
    function: Value,
    overriders: list[Value],
    args: list[Value],
    kwargs: dict[str, Value] | None,
    kinds: tuple[type, ...] | None = None,
) -> Value:
    """Ask the mode, then the classes. `kwargs` is None where PyTorch's C code has none to pass."""
    shown = kinds or tuple(value.python_type() for value in overriders)
    rest: list[Value] = [
        function,
        Sequence(tuple, [Const(cls) for cls in shown]),
        Sequence(tuple, list(args)),
    ]
    if kwargs is not None:
        rest.append(Mapping(dict, dict(kwargs)))
    state: Overrides = trace.overrides
    if state.modes:
        mode = state.modes[-1]
        # Inside of its `__torch_function__` a mode is off, as in PyTorch.
        before, state.modes = state.modes, state.modes[:-1]
        try:
            result = call(trace, get_attribute(trace, mode, "__torch_function__"), rest)
        finally:
            state.modes = before
        if not _declined(trace, result):
            return result
    for value in overriders:
        result = call(trace, get_attribute(trace, value, "__torch_function__"), rest)
        if not _declined(trace, result):
            return result
    raise Break("operation-raises", "a function that every __torch_function__ declines")


def _declined(trace: Trace, result: Value) -> bool:
    constant = trace.read(result)
    return isinstance(constant, Const) and constant.value is NotImplemented


# ---- methods, attributes, operators

# The method that PyTorch's C code names, where that is not the one called.
NAMED: dict[str, str] = {
    **{f"__{name}__": name for name in ("add", "mul", "sub", "matmul", "ge", "gt", "le", "lt")},
    **{f"__i{name}__": f"{name}_" for name in ("add", "mul", "sub")},
    "__radd__": "add", "__rmul__": "mul", "__ne__": "ne",
    "__truediv__": "div", "__div__": "div",
    "__mod__": "remainder", "__itruediv__": "div_", "__idiv__": "div_", "__imod__": "remainder_",
    "__ifloordiv__": "floor_divide_", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor", "__long__": "__int__", "__nonzero__": "__bool__",
    "ndimension": "dim", "nelement": "numel", "to_sparse_coo": "to_sparse",
}  # fmt: skip
# Methods of tensors that can't be overridden.
NEVER_OVERRIDDEN = frozenset(
    {"as_subclass", "_make_subclass", "_make_wrapper_subclass", "__hash__", "__delitem__"}
)
# Methods that don't ask the class of their argument either.
READING = frozenset({"new_tensor", "type"})
# C methods that tell which class they were called on even if it is an ordinary one.
TELL_CLASS = frozenset({"dim", "numel", "tolist", "ndimension", "nelement", "__len__"})


def call_method(
    trace: Trace, name: str, obj: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """Call a C method of a tensor where it is overridden; None where it is not."""
    if name in NEVER_OVERRIDDEN:
        return None
    overriders = overriders_of(trace, [obj, *args], kwargs)
    if overriders is None:
        return None
    if name in READING and overriders_of(trace, args, kwargs):
        raise Break("tensor-kind", f"Tensor.{name} of an object with __torch_function__")
    function = getattr(torch.Tensor, NAMED.get(name, name))
    kinds: tuple[type, ...] | None = None
    if isinstance(function, types.FunctionType):
        kinds = shown_classes(trace, [trace.read(value) for value in (obj, *args)])
    elif name in TELL_CLASS and not overriders:
        kinds = (obj.python_type(),)
    return dispatch(trace, Const(function), overriders, [obj, *args], kwargs or None, kinds)


def get_tensor_attribute(trace: Trace, tensor: TensorValue, name: str) -> Value | None:
    """An attribute that C code computes, where it is overridden; None where it is not."""
    return _attribute(trace, tensor, name, "__get__", [tensor])


def set_tensor_attribute(trace: Trace, tensor: TensorValue, name: str, value: Value) -> bool:
    return _attribute(trace, tensor, name, "__set__", [tensor, value]) is not None


def _attribute(
    trace: Trace, tensor: TensorValue, name: str, access: str, args: list[Value]
) -> Value | None:
    descriptor = trace.lookup(torch.Tensor, name)
    computed = isinstance(descriptor, types.GetSetDescriptorType)
    if not computed or descriptor.__objclass__ is not TensorBase:
        return None
    overriders = overriders_of(trace, [tensor], {})
    if overriders is None:
        return None
    function = Const(getattr(descriptor, access))
    return dispatch(trace, function, overriders, args, None, None if overriders else (tensor.cls,))


def redefines(trace: Trace, value: Value, name: str) -> bool:
    """Whether the class of a tensor has an attribute of its own in place of PyTorch's."""
    if not isinstance(value, TensorValue) or value.cls in ORDINARY:
        return False
    return trace.lookup(value.cls, name) is not trace.lookup(torch.Tensor, name)


# The special methods of an operator: of the left operand, and of the right one.
METHODS_OF: dict[Any, tuple[str, str | None]] = {
    **{real: (left, right) for left, right, real in BINARY.values()},
    **{real: (left, right) for left, right, real in COMPARE.values()},
    **{real: (name, None) for name, real in INPLACE.values()},
    **{real: (name, None) for name, real in UNARY.values()},
    iter: ("__iter__", None),
    operator.getitem: ("__getitem__", None),
    operator.setitem: ("__setitem__", None),
    operator.truth: ("__bool__", None),
    operator.contains: ("__contains__", None),
}
COMPARISONS = frozenset(real for _, _, real in COMPARE.values())
IN_PLACE: dict[Any, str] = {real: symbol for symbol, (_, real) in INPLACE.items()}


def takes_over(trace: Trace, real: Callable[..., Any], operands: tuple[Value, ...]) -> bool:
    """Whether an operator on these operands is not simply an operation."""
    if overriders_of(trace, list(operands), {}) is not None:
        return True
    names = METHODS_OF.get(real, ())
    return any(_defines(trace, value, name) for value in operands for name in names if name)


NUMBERS = frozenset({bool, int, float, complex})
"""Classes whose methods are all in C."""


def _defines(trace: Trace, value: Value, name: str) -> bool:
    """Whether an operand has an operator of its own, written in Python."""
    if isinstance(value, TensorValue):
        return redefines(trace, value, name)
    if isinstance(value, Lazy):  # what is stored, of which nobody asks
        return False
    if isinstance(value, Const) and type(value.value) in NUMBERS:
        return False
    return has_python_method(trace, value.python_type(), name)


def operate(trace: Trace, real: Callable[..., Any], operands: tuple[Value, ...]) -> Value | None:
    """An operator, by the rules of Python: the special method of each operand in turn."""
    left, right = METHODS_OF.get(real) or (f"__{real.__name__.strip('_')}__", None)
    receiver, rest = operands[0], operands[1:]
    attempts = [(receiver, left, rest)]
    if right is not None and _differ(receiver, rest[0], real):
        attempts.append((rest[0], right, (receiver,)))
        if _right_first(trace, receiver, rest[0], right, real):
            attempts.reverse()
    for value, name, others in attempts:
        if isinstance(value, Const) and not _defines(trace, value, name):
            continue  # numbers know nothing of tensors
        if (right is not None or real in IN_PLACE) and _declines(trace, value, name, others[0]):
            continue
        result = call_special(trace, value, name, *others)
        if result is not None and not _declined(trace, result):
            return result
    if real in IN_PLACE:
        return operate(trace, BINARY[IN_PLACE[real]][2], operands)
    raise Break("operation-raises", f"{getattr(real, '__name__', real)} of these operands")


def _declines(trace: Trace, value: Value, name: str, other: Value) -> bool:
    """Whether PyTorch's operator says NotImplemented: it knows nothing of objects of the
    program's."""
    if not isinstance(value, TensorValue) or redefines(trace, value, name):
        return False
    foreign = isinstance(other, Instance | Opaque | Sequence | Mapping)
    return foreign and overriders_of(trace, [value, other], {}) is None


def _differ(left: Value, right: Value, real: Any) -> bool:
    return real in COMPARISONS or left.python_type() is not right.python_type()


def _right_first(trace: Trace, left: Value, right: Value, reflected: str, real: Any) -> bool:
    """Whether the right operand's method is tried first: its class derives from that of the left
    one."""
    classes = left.python_type(), right.python_type()
    if classes[0] is classes[1] or not issubclass(classes[1], classes[0]):
        return False
    inherited = trace.lookup(classes[1], reflected) is trace.lookup(classes[0], reflected)
    return real in COMPARISONS or not inherited


def is_accessor(real: Any) -> bool:
    """Whether a callable is the `__get__` or `__set__` of an attribute of tensors."""
    if not isinstance(real, types.MethodWrapperType):
        return False
    owner = getattr(real.__self__, "__objclass__", None)
    return owner is TensorBase and real.__name__ in ("__get__", "__set__")
