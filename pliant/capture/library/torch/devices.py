"""Where new tensors are made: `with torch.device(...)`, `torch.set_default_device`.

In PyTorch a default device is a mode that all of its functions pass through. During capture the
device is written into the calls that make tensors, and so into the graph; what is left of the mode
at the end of the graph is entered by residual code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import _device_constructors

from pliant.base.devices import CPU
from pliant.capture.native import PURE, function, method
from pliant.capture.torch_calls import BEFORE_CALLS
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Value

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class DefaultDevice(Value):
    """The devices that the program has chosen: the default one, and `with` blocks, outermost
    first."""

    __slots__ = ("blocks", "default", "outer", "written")

    def __init__(self, outer: torch.device | None = None) -> None:
        super().__init__()
        self.outer = outer  # when the function is called
        self.blocks: list[torch.device] = []
        self.default: torch.device | None = None
        self.written = False

    def python_type(self) -> type:
        return DefaultDevice

    def current(self) -> torch.device | None:
        if self.blocks:
            return self.blocks[-1]
        return self.default if self.written else self.outer

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Emitter, before: None) -> None:
        if self.written:
            device = emit.constant(self.default)
            emit.line(f"{emit.constant(torch.set_default_device)}({device})")
        for device_of_block in self.blocks:
            emit.line(f"{emit.constant(device_of_block)}.__enter__()")


def _chosen(trace: Trace) -> DefaultDevice:
    if trace.default_device is None:
        trace.default_device = DefaultDevice()
    device: DefaultDevice = trace.default_device
    trace.mutate_always(device)
    return device


@method(torch.device, "__enter__")
def enter_device(trace: Trace, device: Value) -> Value:
    _chosen(trace).blocks.append(trace.read(device).constant())
    return device


@method(torch.device, "__exit__")
def leave_device(trace: Trace, device: Value, *error: Value) -> Value:
    chosen = _chosen(trace)
    if not chosen.blocks or chosen.blocks[-1] != trace.read(device).constant():
        raise Break("unsupported", "leaving a device that was not entered")
    chosen.blocks.pop()
    return NONE


@function(torch.set_default_device)
def set_default_device(trace: Trace, device: Value) -> Value:
    new_device = trace.read(device).constant()
    chosen = _chosen(trace)
    if chosen.blocks:
        raise Break("unsupported", "set_default_device inside `with torch.device`")
    chosen.default = None if new_device is None else torch.device(new_device)
    chosen.written = True
    return NONE


@function(torch.get_default_device)
def get_default_device(trace: Trace) -> Value:
    device = None if trace.default_device is None else trace.default_device.current()
    if device is not None and device.index is None and device.type not in ("cpu", "meta"):
        raise Break("unsupported", "the number of the default device")
    return Const(CPU if device is None else device)


def place(trace: Trace, real: Any, kwargs: dict[str, Value]) -> dict[str, Value]:
    """The keyword arguments of a call, with the device where it makes a tensor."""
    device = None if trace.default_device is None else trace.default_device.current()
    if device is None or real not in _device_constructors():
        return kwargs
    explicit = trace.read(kwargs.get("device", NONE))
    if isinstance(explicit, Const) and explicit.value is None:
        return {**kwargs, "device": Const(device)}
    return kwargs


BEFORE_CALLS.append(place)


@function(torch.cuda.is_bf16_supported)
def is_bf16_supported(trace: Trace, *args: Value, **kwargs: Value) -> Value:
    """`autocast` asks this of the current device; devices of one machine are alike."""
    options = {name: trace.read(value).constant() for name, value in kwargs.items()}
    constants = [trace.read(value).constant() for value in args]
    return Const(torch.cuda.is_bf16_supported(*constants, **options))


# How many devices there are does not change while a program runs.
PURE.update(filter(None, [getattr(torch._C, "_cuda_getDeviceCount", None)]))


@function(torch.cuda.device_count)
def device_count(trace: Trace) -> Value:
    """A process keeps the devices that it has found. Finding them loads a library of the driver."""
    return Const(torch.cuda.device_count())
