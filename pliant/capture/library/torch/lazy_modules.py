"""Modules that find out the sizes of their parameters when they are first called.

The one idea: the parameters are made during the capture, where the program would make them, by the
module's own code and for good. Then the program is followed anew; the module is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin

from pliant.base.isolation import FATAL
from pliant.capture.library.torch.pending_writes import assume_settled
from pliant.capture.native import SHORTCUTS
from pliant.capture.trace import StartOver, Trace
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue

Functions: Any = torch._C


def infer_parameters(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """The hook of a lazy module that runs before its first `forward`."""
    module = trace.read(args[1]) if len(args) > 1 else None
    if not isinstance(module, Instance) or module.real is None:
        return None
    if trace.graph_effects.draws or trace.random_draws or trace.watch is not None:
        raise Break("unsupported", "the first call of a lazy module behind random draws")
    # Its own code looks at the real module.
    assume_settled(trace, "the first call of a lazy module", [module.real])
    examples = [_like(trace, value) for value in args[2:]]
    named = {name: _like(trace, value) for name, value in kwargs.items()}
    state = Functions._get_torch_function_state()
    Functions._set_torch_function_state(Functions._TorchFunctionState.ENABLED)
    try:
        module.real._infer_parameters(module.real, *examples, **named)
    except FATAL:
        raise
    except Exception as error:
        raise Break("operation-raises", f"{module.cls.__name__}: {error}") from error
    finally:
        Functions._set_torch_function_state(state)
    raise StartOver


def _like(trace: Trace, value: Value) -> Any:
    """An object like the one that the program passes, as far as modules look at it."""
    read = trace.read(value)
    maker = _LIKE.get(type(read))
    if maker is None:
        raise Break("operation-argument", f"a lazy module on a {read.python_type().__name__}")
    return maker(trace, read)


def _tensor(trace: Trace, value: TensorValue) -> torch.Tensor:
    if value.real is not None:
        return value.real
    sizes = [int(size) for size in value.fake.size()]
    scalar = torch.zeros((), dtype=value.fake.dtype, device=value.fake.device)
    return scalar.expand(sizes)


def _mapping(trace: Trace, value: Mapping) -> Any:
    return {key: _like(trace, item) for key, item in value.read_all(trace).items()}


def _sequence(trace: Trace, value: Sequence) -> Any:
    items = [_like(trace, item) for item in value.items]
    return value.cls(*items) if hasattr(value.cls, "_fields") else value.cls(items)


_LIKE: dict[type, Callable[[Trace, Any], Any]] = {
    TensorValue: _tensor,
    Const: lambda trace, value: value.value,
    Number: lambda trace, value: value.constant(),
    Sequence: _sequence,
    Mapping: _mapping,
    Instance: lambda trace, value: value.real,
}

SHORTCUTS[LazyModuleMixin._infer_parameters] = infer_parameters
