"""What programs call around `__torch_function__`: the default one, the stack of modes, and the
blocks that turn it off."""

from __future__ import annotations

import operator
import types
from typing import Any

import torch
import torch.overrides
from torch._tensor import _convert
from torch.utils._device import _device_constructors

from pliant._native import State
from pliant.capture import overrides
from pliant.capture.library.torch.devices import DefaultDevice
from pliant.capture.library.torch.tensor_subclasses import alias, in_class
from pliant.capture.model import call, drain, fold, iterate
from pliant.capture.native import SHORTCUTS, function, method
from pliant.capture.overrides import Disabling, Overrides
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence, SetValue
from pliant.capture.values.tensors import TensorValue

Functions: Any = torch._C


def begin_overrides(trace: Trace, state: State) -> None:
    """What PyTorch is in when the function is called."""
    for mode in overrides.begin(trace, state):
        trace.default_device = DefaultDevice(mode.device)


# ---- the default of tensors


@function(vars(torch.Tensor)["__torch_function__"].__func__)
def default_torch_function(
    trace: Trace,
    cls: Value,
    func: Value,
    kinds: Value,
    args: Value | None = None,
    kwargs: Value | None = None,
) -> Value:
    """Call the function without asking classes, and make its results objects of the class."""
    real = trace.read(cls).constant()
    if not all(issubclass(real, trace.read(kind).constant()) for kind in drain(trace, kinds)):
        return Const(NotImplemented)
    positional = [] if args is None else drain(trace, args)
    keywords = None if kwargs is None else trace.read(kwargs)
    named = keywords.read_all(trace) if isinstance(keywords, Mapping) else {}
    state: Overrides = trace.overrides
    level, before = state.level, set(trace.tensors)
    state.level = max(level, overrides.WITHOUT_SUBCLASSES)
    try:
        result = call(trace, func, positional, dict(named))
    finally:
        state.level = level
    if _is_kept(trace, func):
        return result
    return convert(trace, trace.read(result), real, before)


def _is_kept(trace: Trace, func: Value) -> bool:
    """Whether PyTorch leaves the results of a function as they are."""
    function_value = trace.read(func)
    if not isinstance(function_value, Const):
        return False
    return function_value.value in torch.overrides.get_default_nowrap_functions()


def convert(trace: Trace, result: Value, cls: type, before: set[int]) -> Value:
    """Tensors of the result as objects of `cls`. `before`: the tensors that were there already."""
    if cls is torch.Tensor:
        return result
    if isinstance(result, TensorValue) and not issubclass(result.cls, cls):
        fresh = result.source is None and id(result.fake) not in before
        fresh = fresh and result.cls is torch.Tensor and result.attributes is None
        return in_class(trace, result if fresh else alias(trace, result), cls)
    if isinstance(result, Sequence) and issubclass(result.cls, tuple | list):
        items = [convert(trace, trace.read(item), cls, before) for item in result.items]
        return Sequence(result.cls, items)
    return result


def convert_followed(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`torch._tensor._convert`, which programs call in their own `__torch_function__`."""
    if len(args) != 2 or kwargs:
        return None
    cls = trace.read(args[1]).constant()
    return convert(trace, trace.read(args[0]), cls, set(trace.tensors))


SHORTCUTS[_convert] = convert_followed


# ---- asking by hand


@function(torch.overrides.handle_torch_function)
def handle_torch_function(
    trace: Trace, public_api: Value, relevant_args: Value, *args: Value, **kwargs: Value
) -> Value:
    values = [trace.read(value) for value in drain(trace, relevant_args)]
    overriders = overrides.overriders_of(trace, list(values), {})
    if overriders is None:
        raise Break("operation-raises", "handle_torch_function without an override")
    kinds = overrides.shown_classes(trace, values)
    return overrides.dispatch(trace, public_api, overriders, list(args), kwargs, kinds)


@function(Functions._has_torch_function)
def has_torch_function(trace: Trace, values: Value) -> Value:
    return boolean(
        overrides.overriders_of(trace, drain(trace, iterate(trace, values)), {}) is not None
    )


@function(Functions._has_torch_function_unary, Functions._has_torch_function_variadic)
def has_torch_function_of(trace: Trace, *values: Value) -> Value:
    return boolean(overrides.overriders_of(trace, list(values), {}) is not None)


@function(torch.overrides.get_default_nowrap_functions)
def functions_left_alone(trace: Trace) -> Value:
    return SetValue(set, torch.overrides.get_default_nowrap_functions())


@function(torch.overrides._get_tensor_methods)
def tensor_methods(trace: Trace) -> Value:
    return SetValue(set, torch.overrides._get_tensor_methods())


@function(_device_constructors)
def functions_that_make_tensors(trace: Trace) -> Value:
    return SetValue(set, _device_constructors())


def _compare(compare: Any) -> Any:
    """Built-in functions are equal if they are the same one of the same object."""

    def compared(trace: Trace, one: Value, other: Value) -> Value:
        pair = [trace.read(one), trace.read(other)]
        if not all(isinstance(side, Const) for side in pair):
            return Const(NotImplemented)
        return fold(trace, compare, *pair)

    return compared


for _kind in (types.BuiltinFunctionType, types.MethodWrapperType):
    method(_kind, "__eq__")(_compare(operator.eq))
    method(_kind, "__ne__")(_compare(operator.ne))


# ---- modes


def _written(trace: Trace) -> Overrides:
    state: Overrides = trace.overrides
    trace.mutate_always(state)
    return state


@function(Functions._push_on_torch_function_stack)
def push_mode(trace: Trace, mode: Value) -> Value:
    state = _written(trace)
    # A new list: `outer_modes` is the one from before, to which this is compared in the end.
    state.modes = [*state.modes, trace.read(mode)]
    return NONE


@function(Functions._pop_torch_function_stack)
def pop_mode(trace: Trace) -> Value:
    state = _written(trace)
    if not state.modes:
        raise Break("unsupported", "taking a mode off the stack that is not the program's")
    *state.modes, mode = state.modes
    return mode


@function(Functions._len_torch_function_stack)
def count_modes(trace: Trace) -> Value:
    return Const(len(trace.overrides.modes) + (_device_mode(trace) is not None))


@function(Functions._get_function_stack_at)
def mode_at(trace: Trace, index: Value) -> Value:
    position = trace.read(index).constant() - (_device_mode(trace) is not None)
    if not 0 <= position < len(trace.overrides.modes):
        raise Break("unsupported", "the mode of the default device")
    mode: Value = trace.overrides.modes[position]
    return mode


def _device_mode(trace: Trace) -> Any:
    return None if trace.default_device is None else trace.default_device.current()


@function(Functions._is_torch_function_mode_enabled)
def is_mode_enabled(trace: Trace) -> Value:
    state: Overrides = trace.overrides
    return boolean(state.level != overrides.OFF and bool(state.modes))


@function(Functions._is_torch_function_enabled)
def is_enabled(trace: Trace) -> Value:
    return boolean(trace.overrides.level == overrides.ENABLED)


@function(Functions._is_torch_function_all_disabled)
def is_all_disabled(trace: Trace) -> Value:
    return boolean(trace.overrides.level == overrides.OFF)


# ---- blocks that turn it off

LEVELS = {
    Functions.DisableTorchFunctionSubclass: overrides.WITHOUT_SUBCLASSES,
    Functions.DisableTorchFunction: overrides.OFF,
}


def _maker(cls: Any) -> Any:
    return lambda trace: Disabling(cls)


@method(Functions.DisableTorchFunctionSubclass, "__enter__")
@method(Functions.DisableTorchFunction, "__enter__")
def enter_block(trace: Trace, block: Disabling) -> Value:
    state = _written(trace)
    block.before = state.level
    state.level = max(state.level, LEVELS[block.cls])
    state.blocks = [*state.blocks, block]
    return NONE


@method(Functions.DisableTorchFunctionSubclass, "__exit__")
@method(Functions.DisableTorchFunction, "__exit__")
def leave_block(trace: Trace, block: Disabling, *error: Value) -> Value:
    state = _written(trace)
    state.level = block.before
    state.blocks = [other for other in state.blocks if other is not block]
    return NONE


for _cls in LEVELS:
    function(_cls)(_maker(_cls))
