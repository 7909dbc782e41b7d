"""Wrapper subclasses that the program makes: `torch.Tensor._make_wrapper_subclass` and the writes
of attributes behind it.

The one idea: the constructor is followed like any other code, and the graph does what it does to
the object, step by step. One node makes the bare wrapper, and each write of an attribute is another
one that gives the wrapper with that attribute. So nodes behind it use a complete object, and one
that nothing uses is never made.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.library.python.classes import real_object
from pliant.capture.library.torch import targets
from pliant.capture.native import function
from pliant.capture.torch_calls import convert
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Const, NotConstant, Value
from pliant.capture.values.containers import Sequence, instance_dict
from pliant.capture.values.conversion import known_object
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue
from pliant.fake.wrappers import RECIPE, is_wrapper_class, recipe_if_complete

NAME = "_make_wrapper_subclass"


@function(torch.Tensor._make_wrapper_subclass)
def make_wrapper_subclass(trace: Trace, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """A tensor of the class, without attributes yet."""
    real = trace.read(cls).constant()
    if id(real) in trace.temporaries or not is_wrapper_class(real):
        raise Break("tensor-kind", f"a new {real.__name__}")
    pairs = [convert(trace, arg, NAME) for arg in args]
    named = {name: convert(trace, arg, NAME) for name, arg in kwargs.items()}
    try:
        fake = torch.Tensor._make_wrapper_subclass(
            real, *[fake for _, fake in pairs], **{name: fake for name, (_, fake) in named.items()}
        )
    except (TypeError, RuntimeError) as error:
        raise Break("operation-raises", f"{NAME}: {error}") from error
    trace.world.wraps = True
    node = trace.graph.operation(
        maker_of(real),
        tuple([node for node, _ in pairs]),
        {name: node for name, (node, _) in named.items()},
        trace.stack(),
        effect=False,
    )
    node.meta[RECIPE] = None
    wrapper = TensorValue(node, fake, real)
    wrapper.parts = Parts(wrapper)
    trace.tensors[id(fake)] = wrapper
    if fake._has_symbolic_sizes_strides:
        trace.sizes.nodes.settle_sizes(fake, node)
    return wrapper


# By the address of the class, which the function keeps.
_makers: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()


def maker_of(cls: Any) -> Callable[..., Any]:
    """The function of a graph that makes bare wrappers of a class."""
    maker = _makers.get(id(cls))
    if maker is None:

        def make(*args: Any, **kwargs: Any) -> torch.Tensor:
            return torch.Tensor._make_wrapper_subclass(cls, *args, **kwargs)

        make.__name__ = make.__qualname__ = f"bare_{cls.__name__}"
        maker = _makers[id(cls)] = make
    return maker


class Parts:
    """The attributes that the program has written to a wrapper that it makes."""

    __slots__ = ("values", "wrapper")

    def __init__(self, wrapper: TensorValue) -> None:
        self.wrapper = wrapper
        self.values: dict[str, Value] = {}

    def get(self, name: str) -> Value | None:
        return self.values.get(name)

    def store(self, trace: Trace, name: str, value: Value | None) -> None:
        wrapper = self.wrapper
        if value is None:
            raise Break("attribute-write", f"del {wrapper.cls.__name__}.{name}")
        value = trace.read(value)
        place = f"{wrapper.cls.__name__}.{name}"
        target, args, fake = _part(trace, value, name, place)
        node = trace.graph.operation(target, (wrapper.node, *args), {}, trace.stack(), False)
        with torch._C.DisableTorchFunction():
            object.__setattr__(wrapper.fake, name, fake)
        node.meta[RECIPE] = recipe_if_complete(wrapper.fake)
        trace.changes += 1
        wrapper.node = node
        self.values[name] = value


def _part(
    trace: Trace, value: Value, name: str, place: str
) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    """How a node gives a wrapper this attribute: the function it calls, its further arguments, and
    the attribute on fakes."""
    constant, real = _known(trace, value)
    if constant:
        return targets.keeper_of(name, real), (), real
    if isinstance(value, TensorValue | Number):
        node, fake = convert(trace, value, place)
        return targets.with_part, (name, node), fake
    if not isinstance(value, Sequence) or not value.immutable or value.attributes is not None:
        raise Break("attribute-write", place)  # an object that may change later
    node, fake = convert(trace, value, place)
    if value.cls is torch.Size:
        node = trace.graph.operation(torch.Size, (node,), {}, trace.stack(), False)
    elif any(isinstance(trace.read(item), Sequence) for item in value.items):
        raise Break("attribute-write", place)
    return targets.with_part, (name, node), fake


def _known(trace: Trace, value: Value) -> tuple[bool, Any]:
    """`(True, object)` if the attribute is an object that is the same for every call and that
    nothing changes. Otherwise `(False, None)`."""
    if isinstance(value, Instance) and value.source is not None:
        return True, real_object(trace, value)
    if isinstance(value, Instance):
        return _frozen(trace, value)
    if isinstance(value, Const) or (isinstance(value, Sequence) and value.immutable):
        try:
            return True, known_object(value, trace)
        except NotConstant:
            pass
    return False, None


def _frozen(trace: Trace, value: Instance) -> tuple[bool, Any]:
    """As `_known`, for an instance of a frozen dataclass made by the program: one object serves all
    calls."""
    parameters = getattr(value.cls, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or id(value.cls) in trace.temporaries:
        return False, None
    fields = dict(instance_dict(trace, value).read_all(trace)) if value.has_dict else {}
    fields |= {name: slot for name, slot in value.slots.items() if slot is not None}
    frozen: Any = object.__new__(value.cls)
    for name, item in fields.items():
        constant, real = _known(trace, trace.read(item))
        if not constant:
            return False, None
        object.__setattr__(frozen, name, real)
    return True, frozen
