"""NumPy's generators of random numbers with a seed that is known: what they give is known too.

The one idea: the numbers are drawn from a generator of our own; its arrays become constants of the
graph. Generators from outside, or without a seed, are left to Python.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.model import DESCRIPTORS, call
from pliant.capture.native import FUNCTIONS, METHODS
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.functions import BuiltinMethod

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

LARGEST = 4096  # numbers in an array that is written into the graph


class SeededGenerator(Value):
    """A generator made during the capture. `held` is a real generator in the same state."""

    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held

    def python_type(self) -> type:
        return type(self.held)

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(copy.deepcopy)}({emit.constant(copy.deepcopy(self.held))})"


def _make(real: Callable[..., Any], name: str) -> Callable[..., Value]:
    def handler(trace: Trace, *seed: Value) -> Value:
        seeds = [known_object(value, trace) for value in seed]
        if len(seeds) != 1 or type(seeds[0]) not in (int, list, tuple):
            raise Break("random-state", f"{name} without a seed that is known")
        try:
            return SeededGenerator(real(seeds[0]))
        except (TypeError, ValueError) as error:
            trace.throw(error)

    return handler


def _draw(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, owner: Value, *args: Value, **kwargs: Value) -> Value:
        if not isinstance(owner, SeededGenerator):
            raise Break("random-state", f"{name}() of a generator from outside")
        real_args = [known_object(arg, trace) for arg in args]
        named = {key: known_object(arg, trace) for key, arg in kwargs.items()}
        if name == "shuffle" or "out" in named:
            raise Break("random-state", f"{name}() into something that exists")
        try:
            result = getattr(owner.held, name)(*real_args, **named)
        except (TypeError, ValueError) as error:
            trace.throw(error)
        trace.changes += 1
        return _as_value(trace, result, name)

    return handler


def _as_value(trace: Trace, result: Any, name: str) -> Value:
    if not isinstance(result, numpy.ndarray):
        return from_real(trace, result)
    if result.size > LARGEST or result.dtype.kind not in "biuf":
        raise Break("random-state", f"{name}() of this array")
    items = from_real(trace, result.tolist())
    return call(trace, Const(numpy.array), [items], {"dtype": Const(result.dtype)})


def _bind(trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool) -> Value:
    """Methods written in Cython bind themselves in a way of their own."""
    if not isinstance(obj, SeededGenerator):
        raise Break(
            "unsupported-descriptor", f"{cls.__name__}.{name}, a {type(descriptor).__name__}"
        )
    return BuiltinMethod(cls, name, descriptor, obj)


def _register(cls: type, maker: Any, title: str) -> None:
    FUNCTIONS[maker] = _make(maker, title)
    DESCRIPTORS[type(vars(cls)["normal"])] = _bind
    for name, descriptor in vars(cls).items():
        if not name.startswith("_") and callable(descriptor):
            METHODS.setdefault((cls, name), _draw(name))


def register() -> None:
    _register(numpy.random.Generator, numpy.random.default_rng, "default_rng()")
    _register(numpy.random.RandomState, numpy.random.RandomState, "RandomState()")
