"""The user's own operations: `autograd.Function`, custom operators, functions allowed in graphs.

Each is one node of the graph that calls what the user wrote, so that its backward is the user's
too. The forward of an `autograd.Function` is also followed, on the side, for the sake of what it
assumes: globals, attributes, branches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._library.custom_ops import CustomOpDef
from torch.autograd.function import FunctionCtx

from pliant.base.bodies import BOTH, FOLLOWED, FORWARD
from pliant.capture.library.python.classes import real_object
from pliant.capture.library.python.equivalents import applied, as_value
from pliant.capture.library.torch.backward import call_of, follow_backward, note_applied
from pliant.capture.library.torch.bodies import follow_aside, record_body_call
from pliant.capture.library.torch.pending_writes import assume_settled
from pliant.capture.library.torch.targets import apply_of, record_of
from pliant.capture.model import NATIVE_MEMBERS, call, get_attribute
from pliant.capture.native import SHORTCUTS, method
from pliant.capture.torch_calls import CONVERT, convert
from pliant.capture.trace import INLINE, Restart, Trace
from pliant.capture.value import Break, Const, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence, instance_dict
from pliant.capture.values.functions import BoundMethod, FunctionValue, named
from pliant.capture.values.objects import Instance, Opaque
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter

# ---- calls that stay what they are


def opaque_call(
    trace: Trace,
    real: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    keep: bool = False,
) -> Value:
    """A node that calls `real` as it is. Its result is found by running it on fakes. With `keep` it
    is called even if nothing needs its result."""
    name = getattr(real, "__qualname__", "a function")
    arguments = [trace.read(value) for value in (*args, *kwargs.values())]
    assume_settled(trace, name, [real, *(getattr(value, "real", None) for value in arguments)])
    pairs = [either(trace, value, name) for value in args]
    named_pairs = {key: either(trace, value, name) for key, value in kwargs.items()}
    return record_body_call(
        trace,
        real,
        tuple(pair[0] for pair in pairs),
        tuple(pair[1] for pair in pairs),
        {key: pair[0] for key, pair in named_pairs.items()},
        {key: pair[1] for key, pair in named_pairs.items()},
        keep=keep,
    )


def either(trace: Trace, value: Value, name: str) -> tuple[Any, Any]:
    """An argument as the node takes it and as the run on fakes takes it. An object from outside is
    guarded to be the same one, and kept by the graph."""
    value = trace.read(value)
    if isinstance(value, Sequence) and value.cls in (list, tuple):
        pairs = [either(trace, item, name) for item in value.items]
        return value.cls(p[0] for p in pairs), value.cls(p[1] for p in pairs)
    if isinstance(value, Mapping) and value.cls is dict:
        members = {k: either(trace, item, name) for k, item in value.read_all(trace).items()}
        return {k: p[0] for k, p in members.items()}, {k: p[1] for k, p in members.items()}
    if isinstance(value, Instance) and value.real is None and _is_record(value.cls):
        return _record(trace, value, name)
    real = _identified(trace, value)
    if real is None:
        return convert(trace, value, name)
    return trace.graph.attribute(type(real).__name__.lower(), real), real


def _is_record(cls: type) -> bool:
    """Whether instances of the class are nothing but their attributes: dataclasses, and classes
    registered with pytree."""
    return dataclasses.is_dataclass(cls) or cls in pytree.SUPPORTED_NODES


def _record(trace: Trace, value: Instance, name: str) -> tuple[Any, Any]:
    """An object made by the program, as a node that makes one like it."""
    members = instance_dict(trace, value).read_all(trace).items()
    pairs = {key: either(trace, item, name) for key, item in members}
    cls = trace.graph.attribute(value.cls.__name__.lower(), value.cls)
    state = {key: pair[0] for key, pair in pairs.items()}
    node = trace.graph.operation(record_of, (cls, state), {}, trace.stack(), False)
    return node, record_of(value.cls, {key: pair[1] for key, pair in pairs.items()})


def _identified(trace: Trace, value: Value) -> Any:
    """The real object, guarded to be this one; None for a value that is no such object."""
    if type(value) in CONVERT and not isinstance(value, Const):
        return None
    if isinstance(value, Const):
        return value.value if callable(value.value) or isinstance(value.value, type) else None
    real = getattr(value, "real", None)
    if isinstance(value, BoundMethod):
        method, obj = _identified(trace, value.function), _identified(trace, value.obj)
        return None if method is None or obj is None else getattr(obj, method.__name__, None)
    if real is None or value.source is None:
        raise Break("operation-argument", f"{named(value)} made in the program")
    if isinstance(value, Instance | FunctionValue | Opaque) and not isinstance(value.source, Fixed):
        trace.guard(GuardKind.IS, value.source, real)
    return real


def constant_result(
    trace: Trace, real: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call a function whose result is always the same, as the user says, and use that result."""
    real_args = [real_object(trace, arg) for arg in args]
    named_args = {key: real_object(trace, arg) for key, arg in kwargs.items()}
    try:
        result = real(*real_args, **named_args)
    except Exception as error:
        trace.throw(error)
    return trace.wrap_pinned(result)


# ---- autograd.Function


def call_autograd_function(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`Cls.apply(*args)`."""
    cls = trace.read(args[0]).constant()
    forward_args = args[1:]
    step = trace.frames[-1].step
    # An earlier attempt has found that it can't be a node.
    if trace.break_at.get(step) is INLINE:
        forward = get_attribute(trace, Const(cls), "forward")
        keywords = Mapping(dict, dict(kwargs))
        inline = [forward, _context(trace, forward_args), Sequence(tuple, forward_args), keywords]
        return call(trace, as_value(applied), inline, {}, direct)
    if direct and not torch.is_grad_enabled() and _makes_context(trace, cls):
        trace.inlinable.add(step)  # nothing is recorded, so it is a function like others
    try:
        context = _follow_forward(trace, Const(cls), forward_args, kwargs)
        result = opaque_call(trace, apply_of(cls), forward_args, kwargs)
    except Break:  # it does something that a node of the graph can't
        if step in trace.inlinable:
            raise Restart(step, INLINE) from None
        raise
    note_applied(trace, cls, context, result)
    node = call_of(result)
    if node is not None and node.target is apply_of(cls):  # a result may be an argument
        node.meta[FOLLOWED] = BOTH if follow_backward(trace, result) else FORWARD
    return result


def _follow_forward(
    trace: Trace, cls: Const, args: list[Value], kwargs: dict[str, Value]
) -> Instance:
    """Follow the forward as PyTorch calls it: with gradients off, and inputs without history.
    Returns the context that it has filled."""
    real: Any = cls.value
    context = _context(trace, args)
    forward = get_attribute(trace, cls, "forward")
    for name in ("backward", "vjp", "jvp"):
        trace.lookup(real, name)  # another one would be another function
    combined = _makes_context(trace, real)
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if combined:
            follow_aside(trace, real.__name__, forward, [context, *args], kwargs, context)
            return context
        result = follow_aside(trace, real.__name__, forward, args, kwargs)
        inputs = Sequence(tuple, list(args))
        method = get_attribute(trace, cls, "setup_context")
        follow_aside(trace, real.__name__, method, [context, inputs, result], {}, context)
        return context
    finally:
        torch._C._set_grad_enabled(before)


def _context(trace: Trace, args: list[Value]) -> Instance:
    context = Instance(FunctionCtx)
    needs = [boolean(_needs_grad(trace, arg)) for arg in args]
    context.store_attribute(trace, "needs_input_grad", Sequence(tuple, list(needs)))
    return context


def _makes_context(trace: Trace, cls: Any) -> bool:
    """Whether the forward takes the context as its first argument, so that no `setup_context` fills
    it."""
    setup = trace.lookup(cls, "setup_context")
    own = torch.autograd.Function.__dict__.get("setup_context")
    return setup is MISSING or setup is own or setup is _inherited_setup()


def _inherited_setup() -> Any:
    bases = torch.autograd.Function.__mro__
    return next(base.__dict__["setup_context"] for base in bases if "setup_context" in vars(base))


def _needs_grad(trace: Trace, value: Value) -> bool:
    read = trace.read(value)
    return isinstance(read, TensorValue) and read.fake.requires_grad


# Of the context that PyTorch gives to a compiled backward.
NATIVE_MEMBERS.update(
    (torch._C._FunctionBase, name) for name in ("saved_tensors", "needs_input_grad")
)
_apply: Any = torch.autograd.Function.apply
SHORTCUTS[_apply.__func__] = call_autograd_function


# ---- custom operators


def call_custom_op(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """The object that `torch.library.custom_op` makes calls its operator."""
    definition = trace.read(args[0])
    if not isinstance(definition, Instance):
        return None
    overload = get_attribute(trace, definition, "_opoverload")
    return call(trace, overload, args[1:], kwargs, direct)


SHORTCUTS[CustomOpDef.__call__] = call_custom_op


class FunctionObject(Instance):
    """`Function()`, which old programs make to call its `apply`."""

    __slots__ = ()

    def rebuild(self, emit: Emitter) -> str:
        cls = emit.constant(self.cls)
        return f"{cls}.__new__({cls})"


@method(torch._C._FunctionBase, "__new__")
def new_function_object(trace: Trace, cls: Value, *args: Value, **kwargs: Value) -> Value:
    return FunctionObject(cls.constant())
