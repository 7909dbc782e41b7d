"""Kernels in Triton's language that the program calls: `kernel[grid](...)` is a node of the graph.

What the compiled kernel depends on (constexprs, options, numbers that are constants) is guarded;
tensors and symbolic numbers are arguments of the node. A tensor counts as written unless the source
of the kernel shows that it is only read. Kernels with a search around them (autotuned ones,
heuristics) are called by Python, at a graph break.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.library.packages import triton_launches
from pliant.capture.library.packages.triton_writes import only_read
from pliant.capture.model import binary, call
from pliant.capture.native import function
from pliant.capture.value import NONE, Break, Const, NotConstant, Value
from pliant.capture.values.containers import Mapping, Sequence, plain_list
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import Partial
from pliant.capture.values.number import Number
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import GuardKind

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

NOT_CAPTURED = "unsupported-function"


class Launched(Value):
    """What a launch returns: the compiled kernel, which is not there yet."""

    __slots__ = ("cls",)

    def __init__(self, cls: type) -> None:
        super().__init__(None)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        raise Break("opaque-object", f"{self.cls.__name__}.{name}")


def launch(kernel: Any, grid: Any, *args: Any, **kwargs: Any) -> Any:
    """`kernel[grid](*args, **kwargs)`, for residual code."""
    return kernel[grid](*args, **kwargs)


def handle_subscript(trace: Trace, kernel: Value, grid: Value) -> Value:
    _kernel_of(trace, kernel)  # or else there is one break, not two
    return Partial(functools.partial, Const(launch), [kernel, grid], {})


def handle_launch(
    trace: Trace, kernel: Value, grid: Value, /, *args: Value, **kwargs: Value
) -> Value:
    real = _kernel_of(trace, kernel)
    names: list[str] = list(real.arg_names)
    if len(args) > len(names) or not set(names[: len(args)]).isdisjoint(kwargs):
        raise Break(NOT_CAPTURED, f"a call of {real.fn.__name__} with other arguments")
    given = dict(zip(names, args, strict=False)) | kwargs
    given = {name: trace.read(value) for name, value in given.items()}
    tensors = {n: v for n, v in given.items() if isinstance(v, TensorValue)}
    _check_tensors(tensors)
    constexprs = _constexprs(real)
    numbers = {n: v for n, v in given.items() if _is_symbolic(v) and n not in constexprs}
    constants = {
        name: _constant(trace, value)
        for name, value in given.items()
        if name not in tensors and name not in numbers
    }
    read = only_read(real.fn)
    written = [name for name in tensors if name not in read]
    if not written:
        raise Break(NOT_CAPTURED, f"{real.fn.__name__}, which writes to no tensor")
    read_names = [name for name in tensors if name in read]
    sizes = _grid(trace, grid, given)
    launched = triton_launches.KernelLaunch(
        real, tuple(written), tuple(read_names), tuple(numbers), constants
    )
    name = Const(triton_launches.register(launched))
    parts: list[list[Value]] = [
        sizes,
        [tensors[name] for name in written],
        [tensors[name] for name in read_names],
        [*numbers.values()],
    ]
    lists = [plain_list(part) for part in parts]
    call(trace, Const(triton_launches.launch_kernel), [name, *lists], {})
    return NONE if _interpreted(real) else Launched(_triton().compiler.CompiledKernel)


def _triton() -> Any:
    return sys.modules["triton"]


def _interpreted(kernel: Any) -> bool:
    return type(kernel).__name__ == "InterpretedFunction"


def _kernel_of(trace: Trace, value: Value) -> Any:
    """The kernel itself, which is guarded to be the same."""
    if trace.watch is not None:  # which is run on tensors without memory, too
        raise Break(NOT_CAPTURED, "a Triton kernel in a function that PyTorch calls")
    value = trace.read(value)
    real: Any = getattr(value, "real", None)
    known = type(real) is _triton().JITFunction or _interpreted(real)
    if not known or value.source is None:
        raise Break(NOT_CAPTURED, f"a Triton kernel of type {value.python_type().__name__}")
    if real.pre_run_hooks:
        raise Break(NOT_CAPTURED, "a Triton kernel with hooks")
    trace.guard(GuardKind.IS, value.source, real)
    return real


def _check_tensors(tensors: dict[str, TensorValue]) -> None:
    for value in tensors.values():
        if value.cls not in (torch.Tensor, torch.nn.Parameter):
            raise Break(NOT_CAPTURED, f"a Triton kernel on a {value.cls.__name__}")
        if value.fake.requires_grad and torch.is_grad_enabled():
            # Eager PyTorch doesn't notice what a kernel writes.
            raise Break(NOT_CAPTURED, "a Triton kernel on a tensor that requires a gradient")
        if not _is_whole(value):
            raise Break(NOT_CAPTURED, "a Triton kernel on a part of a tensor")


def _is_whole(value: TensorValue) -> bool:
    """Whether the tensor is all of its memory: of a part, the kernel may go on to the rest."""
    tensor = value.fake
    with torch._C.DisableTorchFunction():
        if value.node.op == "placeholder":
            return True
        if tensor.is_inference():  # which knows nothing of views
            size = tensor.numel() * tensor.element_size()
            return isinstance(size, int) and tensor.untyped_storage().nbytes() == size
        base = tensor._base
        return base is None or bool(tensor.numel() == base.numel())


def _constexprs(kernel: Any) -> set[str]:
    """The parameters that the kernel is compiled for. Annotations may be text."""
    annotations = getattr(kernel.fn, "__annotations__", {})
    return {name for name, of in annotations.items() if "constexpr" in str(of)}


def _is_symbolic(value: Value) -> bool:
    return isinstance(value, Number) and value.python_type() is int


def _constant(trace: Trace, value: Value) -> Any:
    """The object, which is guarded: numbers by value, others by identity."""
    try:
        return known_object(value, trace)
    except NotConstant:
        real = getattr(value, "real", None)
        if real is None or value.source is None or isinstance(real, torch.Tensor | list | dict):
            raise Break(NOT_CAPTURED, "an argument of a Triton kernel that is not known") from None
        trace.guard(GuardKind.IS, value.source, real)
        return real


def _grid(trace: Trace, grid: Value, given: dict[str, Value]) -> list[Value]:
    """Up to three numbers of programs; a function of the arguments is followed."""
    grid = trace.read(grid)
    if not isinstance(grid, Sequence):
        try:
            fixed = grid.constant()
        except NotConstant:
            fixed = None
        if isinstance(fixed, tuple):
            return [Const(size) for size in fixed]
        meta = Mapping(dict, dict(given))
        grid = trace.read(call(trace, grid, [meta], {}))
    if isinstance(grid, Sequence):
        return [trace.read(size) for size in grid.items]
    try:
        return [Const(size) for size in grid.constant()]
    except (NotConstant, TypeError):
        raise Break(NOT_CAPTURED, "the grid of a Triton kernel that is not known") from None


def handle_number_function(trace: Trace, function: Value, *args: Value) -> Value:
    """The two with which grids and blocks are computed, in Python itself."""
    triton, real = _triton(), getattr(trace.read(function), "real", None)
    if real is triton.cdiv and len(args) == 2:
        above = binary(trace, "-", binary(trace, "+", *args), Const(1))
        return binary(trace, "//", above, args[1])
    if real is triton.next_power_of_2 and len(args) == 1:
        return Const(real(known_object(args[0], trace)))
    raise Break("not-followed", "a function of Triton's language")


def register() -> None:
    jit = _triton().runtime.jit
    function(jit.KernelInterface.__getitem__)(handle_subscript)
    function(launch)(handle_launch)
    if hasattr(jit, "ConstexprFunction"):
        function(jit.ConstexprFunction.__call__)(handle_number_function)
