"""Objects in the graph that are no tensors: how they are used, and inference mode, which is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.model import CALL, GET
from pliant.capture.native import function
from pliant.capture.torch_calls import CONVERT
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Value
from pliant.capture.values.graph_objects import GraphMethod, GraphObject

# What is known of objects by their class: methods and, without a call, attributes.
METHODS_OF: dict[tuple[type, str], Callable[..., Value]] = {}
ATTRIBUTES_OF = frozenset({"device"})


def method_of(cls: type, *names: str) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
    """Register a handler `(trace, obj, *args, **kwargs)` for methods of graph objects."""

    def register(handler: Callable[..., Value]) -> Callable[..., Value]:
        METHODS_OF.update({(cls, name): handler for name in names})
        return handler

    return register


def graph_object(
    trace: Trace,
    target: Callable[..., Any] | str,
    args: tuple[Any, ...],
    example: Any,
    effect: bool = False,
) -> GraphObject:
    """The object that a call in the graph gives."""
    node = trace.graph.operation(target, args, {}, trace.stack(), effect)
    trace.changes += effect
    return GraphObject(node, example)


def get_object_attribute(trace: Trace, obj: GraphObject, name: str) -> Value | None:
    handler = METHODS_OF.get((obj.python_type(), name))
    if handler is None:
        raise Break("unsupported-attribute", f"{obj.python_type().__name__}.{name}")
    return handler(trace, obj) if name in ATTRIBUTES_OF else GraphMethod(obj, name, handler)


def call_object_method(
    trace: Trace, target: GraphMethod, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    return target.handler(trace, target.obj, *args, **kwargs)


def convert_object(trace: Trace, value: GraphObject, name: str) -> tuple[Any, Any]:
    trace.graph_effects.note_object(value)
    return value.node, value.example


GET[GraphObject] = get_object_attribute
CALL[GraphMethod] = call_object_method
CONVERT[GraphObject] = convert_object


# ---- inference mode


class Entered:
    """An inference mode that the capture is in."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def leave(self) -> None:
        """Once: the capture may have left it before it ends."""
        mode, self.mode = self.mode, None
        if mode is not None:
            mode.__exit__(None, None, None)


InferenceMode: Any = torch._C._InferenceMode


@function(InferenceMode)
def inference_mode(trace: Trace, enabled: Value) -> Value:
    flag = bool(trace.read(enabled).constant())
    # It is entered when it is made, and left when it is freed at the latest, which would be after
    # the capture where a traceback has it. So no frame has it before it is among the cleanups.
    leave = (None, None, None)  # twice does nothing
    trace.cleanups.append(functools.partial(InferenceMode.__exit__, InferenceMode(flag), *leave))
    mode = trace.cleanups[-1].args[0]  # type: ignore[attr-defined]
    return graph_object(trace, _inference_mode, (flag,), mode)


def _inference_mode(enabled: bool) -> Any:
    return InferenceMode(enabled)


@method_of(InferenceMode, "__enter__")
def enter_inference_mode(trace: Trace, obj: GraphObject) -> Value:
    entered = Entered(obj.example)
    obj.example.__enter__()
    trace.entered[id(obj)] = entered
    _mode_node(trace, "__enter__", obj)
    return NONE


@method_of(InferenceMode, "__exit__")
def leave_inference_mode(trace: Trace, obj: GraphObject, *error: Value) -> Value:
    entered = trace.entered.pop(id(obj), None)
    if entered is None:
        raise Break("unsupported", "leaving an inference mode twice")
    entered.leave()
    _mode_node(trace, "__exit__", obj, None, None, None)
    return NONE


def _mode_node(trace: Trace, method: str, obj: GraphObject, *args: Any) -> None:
    trace.changes += 1
    trace.graph_effects.other = True
    trace.graph.operation(method, (obj.node, *args), {}, trace.stack(), True)
