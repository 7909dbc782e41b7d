"""The functional graph: operators of ATen, each of whose results is a new value.

The one idea: a tensor here is a value, not memory. A write to `x` makes another value that stands
for `x` from then on; a view is an operator like any other. What the caller can see of memory is in
the function's `outputs` and `writes` alone. As text, the graph of `y = x * 2; y[0:1] = z; return y`
is

    functional(in0: float32[4], in1: float32[1])
      t2: float32[4] = aten.mul.Tensor(in0, 2)
      t3: float32[1] = aten.slice.Tensor(t2, 0, 0, 1)  # view
      t4: float32[4] = pliant.stored(t2, in1)
      return t4[4]

`pliant.stored(old, new)` is the value of some memory after a write to a part of it, and
`pliant.stored(new)` after a write to all of it; where it is written is in `Node.put`.
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
    """A number that PyTorch's C++ wrapped in a 0-d tensor, like the 2 of `x * 2`."""

    number: Any
    tensor: torch.Tensor


@dataclass(frozen=True, slots=True)
class InputObject:
    """An input that is neither a tensor nor a number, but an object that only Python's calls of
    operators take: a random generator. `index` is its number among the inputs."""

    index: int
    symbols = frozenset[Any]()

    def __str__(self) -> str:
        return f"in{self.index}"


@dataclass(frozen=True, slots=True)
class UnbackedSymbol:
    """A number that depends on data: its symbol (of a float, that of its bits), and `what` a node
    defines it by: the "size" or "stride" of dimension `dim` of result number `result`, or the
    result itself ("int", "float", "bool")."""

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
    """A write to memory of the program: to which (`memory`, and `input` is its number if it is an
    input), its value before (`old`), and where in it: `window` counts from the first element. Where
    the write can't be made in place, the steps `otherwise` compute `updated`, the new value of all
    of the memory, from `old`; None if there are no such steps."""

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
    generated: bool = False  # a product of matrices that a kernel of ours is to compute
    stack: tuple[Position, ...] = ()  # the calls of the program that it comes from, outermost first


@dataclass(frozen=True, slots=True, eq=False)
class OutputView:
    """A tensor that is returned: a view, with this layout, of the memory of the value `of`, or of
    input number `input` if `of` is None. The offset is relative to the first element of either."""

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
    """A precondition of the graph: `one` and `other` share no memory (if `elementwise`, elements at
    the same index may); without `other`, no two elements of `one` are in the same place."""

    one: Strided
    other: Strided | None = None
    elementwise: bool = False

    @property
    def symbols(self) -> frozenset[Any]:
        return self.one.symbols | (self.other.symbols if self.other is not None else frozenset())


@dataclass(frozen=True, slots=True)
class InRange:
    """A precondition of the graph: `low <= number <= high`, or, if `infinite`, the number is
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


def object_inputs(inputs: Sequence[Any]) -> list[int]:
    """The numbers of the inputs that are neither tensors nor numbers."""
    return [index for index, value in enumerate(inputs) if isinstance(value, InputObject)]


def call_by_position(
    function: Callable[..., Any], names: Sequence[str], args: Sequence[Any]
) -> Any:
    """Call `function` with the arguments of a node, which are all passed by position: the last ones
    are those that `names` says the keywords of."""
    count = len(args) - len(names)
    return function(*args[:count], **dict(zip(names, args[count:], strict=True)))


def is_uninitialised(node: Node | None) -> bool:
    """Whether the node allocates memory without filling it."""
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
    """An argument with the tensors that are keys of `instead` replaced. (Not those in a dict.)"""
    if isinstance(value, Tensor):
        return instead.get(value, value)
    if isinstance(value, (list, tuple)):
        return type(value)([replaced(item, instead) for item in value])
    return value
