"""Arrays as values: nodes of the graph, each with an example of its kind.

The example of an array with symbolic sizes needs them as constants. So it is made only where the
program asks for more than what follows from the sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.capture.value import Break, NotConstant, Value
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.number import Number
from pliant.guards.source import Source
from pliant.sym.node import SYMBOLIC, from_torch

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class ArrayValue(GraphObject):
    """An array, or a number of NumPy's. `example` is one of its kind.

    Of a number that follows from inputs alone `example` is the number itself; `specialise` adds
    the guards that those inputs stay what they are. `real` is the array itself, if it is one from
    outside.
    """

    __slots__ = ("real", "specialise", "tensor")

    def __init__(self, node: fx.Node, example: Any, source: Source | None = None) -> None:
        super().__init__(node, example, source)
        self.specialise: Callable[[], None] | None = None
        self.real: Any = None
        self.tensor: Value | None = None  # that shares its memory, if there is one

    def constant(self) -> Any:
        if self.specialise is None:
            raise NotConstant(self)
        self.specialise()
        return self.example


class InputNumber(ArrayValue):
    """A number of NumPy's from outside. The graph takes the plain number, which every backend
    knows; a node makes one of NumPy's of it where NumPy computes with it."""

    __slots__ = ("_node", "make_node", "number")

    def __init__(
        self, real: Any, source: Source, number: Number, make_node: Callable[[], fx.Node]
    ) -> None:
        Value.__init__(self, source)
        self.example = real
        self.number = number
        self.make_node = make_node
        self.specialise = self.real = self.tensor = None
        self._node: fx.Node | None = None

    @property
    def node(self) -> fx.Node:
        if self._node is None:
            self._node = self.make_node()
            self._node.meta["object"] = self.example
        return self._node

    @node.setter
    def node(self, node: fx.Node) -> None:
        self._node = node


class ShapedArray(ArrayValue):
    """An array in row-major order, of which some sizes are symbols."""

    __slots__ = ("_example", "dtype", "sizes")

    def __init__(
        self, node: fx.Node, dtype: Any, sizes: tuple[Any, ...], source: Source | None = None
    ) -> None:
        self.dtype = dtype
        self.sizes = sizes
        self._example: Any = None
        super().__init__(node, None, source)
        del node.meta["object"]  # as it is not made yet

    @property
    def example(self) -> Any:
        """For which the sizes become constants."""
        if self._example is None:
            kind = numpy.empty([int(n) for n in self.sizes], self.dtype)
            self._example = self.node.meta["object"] = example_array(kind)
        return self._example

    @example.setter
    def example(self, example: Any) -> None:
        self._example = example

    def small(self) -> Any:
        """An array of as many dimensions."""
        return example_array(numpy.empty([1] * len(self.sizes), self.dtype))

    def same_shape(self) -> tuple[Any, ...]:
        """Equal for arrays whose shapes are always equal."""
        return tuple([from_torch(n) if isinstance(n, SYMBOLIC) else n for n in self.sizes])

    def python_type(self) -> type:
        return numpy.ndarray

    def rebuild(self, emit: Emitter) -> str:
        return emit.result(self.node)


def example_array(like: Any) -> Any:
    """An array of the same kind with numbers that most functions take."""
    if not isinstance(like, numpy.ndarray):
        return like
    array = numpy.empty_like(like)
    numbers = numpy.random.RandomState(0).uniform(0.2, 0.7, array.shape)
    array[...] = numbers if array.dtype.kind in "fc" else 1
    return array


def checked(example: Any) -> Any:
    if example.dtype.kind not in "biufc":
        raise Break("unsupported-function", f"a NumPy array of type {example.dtype}")
    return example
