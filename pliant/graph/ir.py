"""The functional graph: operators of ATen, each of whose results is a new value.

The one idea: a tensor here is a value, not memory. A write to `x` makes another value that stands
for `x` from then on; a view is an operator like any other. What the caller can see of memory is in
the function's `outputs` and `writes` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import torch

from pliant.base.devices import CPU
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr


@dataclass(slots=True, eq=False)
class Tensor:
    """A value. `strides` and `offset` are how eager PyTorch would lay it out; the offset counts
    from the first element of the memory that the tensor is a view of."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr
    dtype: torch.dtype
    node: Node | None = None  # None for an input
    device: torch.device = CPU


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A number that PyTorch's C++ put into a tensor."""

    number: Any
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class UnbackedSymbol:
    """A number that is in the data: the symbol (of a float, its bits), and what tells it: the size
    or stride of a result, or the result itself ("int", "float", "bool")."""

    symbol: Expr
    what: str
    result: int = 0
    dim: int = 0


@dataclass(frozen=True, slots=True)
class Strided:
    """Where the elements of a tensor are in memory."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr

    @property
    def symbols(self) -> frozenset[Any]:
        numbers = (*self.sizes, *self.strides, self.offset)
        return frozenset().union(*[number.symbols for number in numbers])


@dataclass(slots=True, eq=False)
class MemoryWrite:
    """A write to memory of the program: which one (`memory`, the input with this number if it is
    one), its value before, and where: `window` counts from the first element. `otherwise` computes
    `updated`, the value of all of the memory, from the value before, without writing to it; None:
    that can't be said."""

    memory: object
    input: int | None
    old: Tensor
    window: Strided
    otherwise: list[Node] | None = None
    updated: Tensor | None = None


@dataclass(slots=True, eq=False)
class UserGradient:
    """A call of the program's own code in the backward: what it computes needn't be linear in the
    gradients that arrive there."""

    arriving: tuple[Tensor, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A call of an operator; in its arguments a `Tensor` for each tensor, an expression for each
    symbolic number. `view`: the result is (part of) its first argument."""

    name: str
    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[Tensor, ...] = ()
    view: bool = False
    effect: bool = False  # it has to be called even if its result is not used
    defines: tuple[UnbackedSymbol, ...] = ()
    put: MemoryWrite | None = None  # of a write: the value of some memory afterwards
    # In a checkpoint: True: the backward computes it again; False: not, as it leaves the checkpoint
    recompute: bool | None = None
    gradient: UserGradient | None = None  # that it is part of
    stack: tuple[Position, ...] = ()  # the calls of the program that it comes from, outermost first


@dataclass(frozen=True, slots=True, eq=False)
class OutputView:
    """What is returned: a part of the memory of a value (None: of an input)."""

    of: Tensor | None
    input: int | None
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr
    dtype: torch.dtype
    whole: bool  # the very input
    tensor: object  # which tensor of the program it is: tensors with one layout are not one tensor
    writes: int = 0  # to new memory, which its version counts


Returned = OutputView | Expr | FloatExpr | Cond


def returned_tensors(outputs: Iterable[Any]) -> list[Tensor]:
    """The values in whose memory outputs are; what is a part of an input is not among them."""
    return [out.of for out in outputs if isinstance(out, OutputView) and out.of is not None]


@dataclass(frozen=True, slots=True)
class NoOverlap:
    """A condition for the graph to run: the two have no element in common (if `elementwise`, other
    than each with the one at the same index); alone, one has no two elements in one place."""

    one: Strided
    other: Strided | None = None
    elementwise: bool = False

    @property
    def symbols(self) -> frozenset[Any]:
        return self.one.symbols | (self.other.symbols if self.other is not None else frozenset())


@dataclass(frozen=True, slots=True)
class InRange:
    """A condition for the graph to run: the number lies between the two, or, if `infinite`, is
    infinite or nan."""

    number: Expr | FloatExpr
    low: int | float
    high: int | float
    infinite: bool = False

    @property
    def symbols(self) -> frozenset[Any]:
        return self.number.symbols


Condition = NoOverlap | InRange


@dataclass(frozen=True, slots=True, eq=False)
class Functional:
    """A graph of calls without side effects. `inputs` has a tensor, a symbol or a number for each
    argument; `writes` the inputs that are overwritten, and with what, `times` how often;
    `constants` the tensors that are part of the program; `conditions` what has to hold of memory
    and numbers for it to run."""

    inputs: tuple[Any, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Any, ...]
    writes: Mapping[int, Tensor]
    times: Mapping[int, int]
    constants: Mapping[Tensor, torch.Tensor]
    conditions: tuple[Condition, ...]

    def __str__(self) -> str:
        return TEXT[0](self)


TEXT: Final[list[Callable[[Functional], str]]] = [lambda functional: "functional"]
"""How a graph is shown; `text` puts its own here."""


@dataclass(slots=True, eq=False)
class FunctionalBuilder:
    """A `Functional` in the making; its nodes may still be changed."""

    inputs: list[Any] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    writes: dict[int, Tensor] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    constants: dict[Tensor, torch.Tensor] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)

    def freeze(self) -> Functional:
        return Functional(
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(self.outputs),
            self.writes,
            self.times,
            self.constants,
            tuple(self.conditions),
        )


def call_by_position(
    function: Callable[..., Any], names: Sequence[str], args: Sequence[Any]
) -> Any:
    """Call what stands in the place of an operator: nodes pass all arguments by position, the last
    ones those that have `names`."""
    count = len(args) - len(names)
    return function(*args[:count], **dict(zip(names, args[count:], strict=True)))


def is_uninitialised(node: Node | None) -> bool:
    """Whether it makes memory with anything in it."""
    return node is not None and node.name.startswith(("aten.empty", "aten.new_empty"))


def tensors_in(value: Any) -> list[Tensor]:
    """All tensors in an argument."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    if isinstance(value, dict):
        return [t for item in value.values() for t in tensors_in(item)]
    return []


def symbols_in(value: Any) -> Iterable[Any]:
    """The symbols of all numbers in an argument."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from symbols_in(item)
    elif isinstance(value, dict):
        yield from symbols_in(list(value.values()))
    elif hasattr(value, "symbols") and not isinstance(value, Tensor):
        yield from value.symbols


def replaced(value: Any, instead: Mapping[Tensor, Tensor]) -> Any:
    """An argument with other tensors in the place of some."""
    if isinstance(value, Tensor):
        return instead.get(value, value)
    if isinstance(value, (list, tuple)):
        return type(value)([replaced(item, instead) for item in value])
    return value
