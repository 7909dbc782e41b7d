"""Arrays before the graph: residual code computes with them, and makes tensors of them.

The one idea: code is generated for graphs of tensors alone. What NumPy computes from arrays of the
program, before anything has been changed that it reads, needn't wait for the graph. So an array
that becomes a tensor is a line of residual code, and the tensor an input like any other.

    x = torch.from_numpy(a / 255)       drawn_0 = true_divide(a, 255)
                                        drawn_1 = from_numpy(drawn_0)
                                        graph_of_f(drawn_1)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.capture.host_randomness import DrawnNumber, RandomDraw
from pliant.capture.library.numpy.array_values import ArrayValue, ShapedArray
from pliant.capture.model import call, get_attribute, is_none
from pliant.capture.value import TRUE, Const, NotConstant, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.number import Number
from pliant.capture.values.objects import SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.fake.layout import contiguous_strides
from pliant.guards.source import Source
from pliant.sym.node import from_torch

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

PLAIN: Final = (bool, int, float, str, type(None), type(...))


# ---- arrays


def source_of_early(
    trace: Trace, target: Callable[..., Any] | str, args: list[Value], kwargs: dict[str, Value]
) -> Source | None:
    """Have residual code call NumPy before the graph. Returns what stands for the result; None if
    the graph has to do it."""
    effects = trace.graph_effects
    # The arrays have to hold what they hold when the program calls NumPy. (After an error Python
    # runs the function, so what comes before the call is done before.)
    if trace.graph.in_body or effects.other or trace.writes_tensors:
        return None
    named = {name: trace.read(value) for name, value in kwargs.items()}
    operands: list[Value] = []
    texts = [
        _written(trace, value, operands) for value in (*map(trace.read, args), *named.values())
    ]
    arrays = [operand for operand in operands if isinstance(operand, ArrayValue)]
    if None in texts or not arrays or not all(map(is_early, arrays)):
        return None
    keywords = texts[len(args) :]
    texts[len(args) :] = [f"{name}={text}" for name, text in zip(named, keywords, strict=True)]
    written = ", ".join(map(str, texts))
    if isinstance(target, str):
        owner, _, written = written.partition(", ")
        return _line(trace, operands[0], f"{owner}.{target}({written})", operands[1:])
    return _line(trace, Const(target), f"{{}}({written})", operands)


def _written(trace: Trace, value: Value, operands: list[Value]) -> str | None:
    """An argument as source, with places for objects that have none; None if it isn't known."""
    if isinstance(value, ArrayValue):
        operands.append(value)
        return "{}"
    if isinstance(value, Sequence) and value.cls in (list, tuple):
        texts = [_written(trace, trace.read(item), operands) for item in value.items]
        if None in texts:
            return None
        inner = "".join(f"{text}, " for text in texts)
        return f"[{inner}]" if value.cls is list else f"({inner})"
    if _has_number(trace, value):  # which would become a constant
        return None
    try:
        real = known_object(value, trace)
    except NotConstant:
        return None
    if isinstance(real, type | numpy.dtype):
        operands.append(Const(real))
        return "{}"
    return repr(real).replace("{", "{{").replace("}", "}}") if _is_plain(real) else None


def _has_number(trace: Trace, value: Value) -> bool:
    if isinstance(value, Sequence | SliceValue):
        return any(_has_number(trace, trace.read(part)) for part in value.children())
    return isinstance(value, Number)


def is_early(array: ArrayValue) -> bool:
    """Whether residual code has the array before the graph."""
    is_array = isinstance(array, ShapedArray) or isinstance(array.example, numpy.ndarray)
    return is_array and array.source is not None


def _is_plain(real: Any) -> bool:
    if type(real) in (list, tuple):
        return all(map(_is_plain, real))
    if type(real) is slice:
        return all(map(_is_plain, (real.start, real.stop, real.step)))
    return type(real) in PLAIN and (type(real) is not float or real - real == 0)


def _line(
    trace: Trace, owner: Value, text: str, operands: list[Value], what: str = "array"
) -> DrawnNumber:
    number = sum(len(draw.targets) for draw in trace.random_draws)
    target = DrawnNumber(number, what)
    trace.changes += 1
    line = RandomDraw((target,), owner, text, None, tuple(operands), pure=True)
    trace.random_draws.append(line)
    return target


# ---- tensors


def early_tensor(trace: Trace, array: ArrayValue) -> TensorValue | None:
    """The tensor that shares the memory of an array; None if the graph has to make it."""
    if not is_early(array) or trace.graph.in_body or trace.under_transforms:
        return None
    example = _example(trace, array)
    if example is None:
        return None
    layout = None
    if isinstance(array, ShapedArray):
        layout = (array.sizes, tuple(contiguous_strides(array.sizes)))
    fake = trace.world.from_real(example, layout)
    target = _line(trace, Const(torch.from_numpy), "{}({})", [array], "tensor")
    node = trace.graph.tensor_input(target, example, False, fake)
    if layout is not None:
        trace.sizes.nodes.settle_sizes(fake, node)
        trace.sizes.nodes.settle_strides(fake, node)
    tensor = TensorValue(node, fake)
    tensor.early = target
    trace.tensors[id(fake)] = tensor
    # A write to this memory outlives a graph that fails.
    trace.graph_effects.outside.add(fake.untyped_storage()._cdata)
    return tensor


def _example(trace: Trace, array: ArrayValue) -> torch.Tensor | None:
    """A tensor like the one that an array gives."""
    kind = array.real
    if kind is None and isinstance(array, ShapedArray):
        env = trace.sizes.env
        hints = [n if type(n) is int else env.hint(from_torch(n)) for n in array.sizes]
        if None in hints:
            return None
        kind = numpy.empty(hints, array.dtype)
    kind = array.example if kind is None else kind
    if not kind.flags.writeable:  # of which PyTorch warns, at the program's line
        return None
    try:
        return torch.from_numpy(kind)
    except (TypeError, ValueError):  # another dtype, or negative strides: the error is eager's
        return None


def converted(
    trace: Trace, real: Callable[..., Any], array: ArrayValue, options: dict[str, Value]
) -> Value | None:
    """What `torch.from_numpy`, `torch.tensor` and their relatives make of an array; None if the
    graph has to call them."""
    on_cpu = torch.get_default_device().type == "cpu" or real is torch.from_numpy
    if options.keys() - {"dtype", "device"} or not on_cpu:
        return None
    tensor = array.tensor or early_tensor(trace, array)
    if tensor is None:
        return None
    if array.tensor is not None:  # another object with the same memory
        tensor = call(trace, get_attribute(trace, tensor, "detach"), [])
    array.tensor = array.tensor or tensor
    if real is torch.tensor:
        options = {**options, "copy": TRUE}
        options["memory_format"] = Const(torch.contiguous_format)
    given = {name: value for name, value in options.items() if not is_none(trace, value)}
    return call(trace, get_attribute(trace, tensor, "to"), [], given) if given else tensor
