"""Alias tracking: which value of the functional graph a fake tensor stands for.

The one idea: every fake tensor is a chain of views of some memory, its base. A base has a value,
and a write gives it another one. A view that is older than the last write is replayed on the new
value when it is next read:

    y = x * 2         t1 = mul(x, 2)           base of y: value t1, version 0
    row = y[0:1]      t2 = slice(t1, 0, 0, 1)  row: view of y, value t2, version 0
    y.add_(1)         t3 = add(t1, 1)
                      t4 = stored(t3)          base of y: value t4, version 1
    return row        t5 = slice(t4, 0, 0, 1)  row is out of date: replayed, value t5, version 1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from pliant.base.checks import check, suppose
from pliant.base.late import Late
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.base.weak import weakly
from pliant.fake.calls import is_number
from pliant.fake.overload import Overload
from pliant.fake.tensor import Fake
from pliant.fake.unbacked import layout_of, places_in
from pliant.fake.world import World
from pliant.graph.ir import (
    Condition,
    FunctionalBuilder,
    InputObject,
    Node,
    Scalar,
    Tensor,
    UnbackedSymbol,
    call_by_position,
)
from pliant.graph.number_ranges import range_conditions
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr, integer
from pliant.sym.floats import FloatExpr, held_as
from pliant.sym.frozen import SYMBOLS, FrozenEnv
from pliant.sym.node import SYMBOLIC, bridge_of, from_torch
from pliant.sym.program import LARGEST

if TYPE_CHECKING:
    from pliant.graph import gpu_draws
else:
    gpu_draws = Late("pliant.graph.gpu_draws")  # which few programs need

DEVICES: Final = ("cpu", "cuda")
_WRAPPED: Final = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
MOST_DIMS: Final = 64  # some of PyTorch's kernels refuse more


class NotFunctionalized(Exception):
    """Raised for a graph that has no functional form here; PyTorch runs the captured graph."""


@dataclass(slots=True, eq=False)
class VersionCounter:
    """Writes to a tensor and its views, as PyTorch counts them: those through `.data`, which
    autograd is not to see, have a counter of their own."""

    writes: int = 0


@dataclass(slots=True, eq=False)
class Base:
    """Memory that tensors are views of. `value` is its current value, `input` the number of the
    input that it is, if it is one. `version` counts all writes, `counter` those that PyTorch
    counts."""

    value: Tensor
    input: int | None = None
    version: int = 0
    counter: VersionCounter = field(default_factory=VersionCounter)
    shared: bool = False  # with another input
    between: bool = False  # whether a view shows what lies between its elements


@dataclass(slots=True, eq=False)
class TensorAlias:
    """What a fake stands for: all of a base, or a view (the result at `position` of `op` with
    `args`) of the alias `parent`. `value` is current as long as `version` is that of the base."""

    base: Base
    value: Tensor
    version: int
    parent: TensorAlias | None = None
    op: Overload | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] | None = None
    position: int = 0
    grad: bool = True  # the grad mode that a view was made in
    made_at: int = 0  # what its counter said by then
    counter: VersionCounter = field(init=False)  # shared with what it is a view of

    def __post_init__(self) -> None:
        self.counter = self.base.counter if self.parent is None else self.parent.counter

    @property
    def is_data(self) -> bool:
        """Whether it is the attribute `data` of what it is a view of."""
        return self.parent is not None and self.counter is not self.parent.counter


def count_write(function: FunctionalBuilder, alias: TensorAlias) -> None:
    """Count a write, or a change of metadata, as PyTorch's version counters do."""
    alias.counter.writes += 1
    if alias.base.input is not None:
        function.times[alias.base.input] = alias.base.counter.writes


class AliasWorld(World):
    """A world in which each tensor has a value of the functional graph."""

    env: FrozenEnv

    def __init__(self, env: FrozenEnv) -> None:
        super().__init__(env)
        self.function = FunctionalBuilder()
        self.above: Any = None  # the dispatch keys of the caller
        # By id of the fake, as fakes that are equal in metadata are different tensors.
        self._aliases: dict[int, tuple[Fake, TensorAlias]] = {}
        self._fakes: dict[TensorAlias, Fake] = {}  # the first that each belongs to
        self._quiet = 0
        self.stack: tuple[Position, ...] = ()  # of the node of the captured graph that is run
        self.generators: dict[int, InputObject] = {}  # by the seed of what stands for each
        self.passed: dict[int, Fake] = {}  # what modules with hooks have returned, by id
        self._items: dict[Any, Any] = {}  # numbers that were read, by place in memory
        self.known: set[Any] = set()  # the symbols whose value is there when the code runs
        self.from_inputs: frozenset[Any] = frozenset()  # those that are there from the start
        env.demand = weakly(self.check)  # a cycle with the fakes could never be collected

    def check(
        self, condition: Cond, text: str, name: str = "pliant.suppose", function: Any = suppose
    ) -> None:
        """Record a test of `condition` that raises `text` when the code runs. Its symbols have to
        be known at this point of the graph."""
        if not self.known.issuperset(map(held_as, condition.symbols)):
            raise NotFunctionalized(f"{condition} is asked too early")
        self.function.nodes.append(Node(name, function, (condition, text), {}, effect=True))

    def inputs_know(self, symbols: Iterable[Any]) -> bool:
        """Whether the values of all these symbols can be read from the inputs."""
        return self.from_inputs.issuperset(map(held_as, symbols))

    def forget(self) -> None:
        """Let go of fakes and symbolic numbers now, rather than at the next garbage collection."""
        self._aliases.clear()
        bridge_of(self.env).forget()
        self._fakes.clear()

    # ---- tensors

    def tensor(self, fake: Fake, node: Node | None = None, base: Fake | None = None) -> Tensor:
        """A value with the layout of the fake."""
        if fake.is_conj() or fake.is_neg():
            # Their elements are not what is in memory: a bit says that they are to be negated when
            # read.
            raise NotFunctionalized("a conjugate or negative view")
        if fake.device.type not in DEVICES:
            raise NotFunctionalized(f"a tensor on {fake.device}")
        # Refused here, with a reason, rather than by a kernel at run time.
        if fake.dim() > MOST_DIMS:
            raise NotFunctionalized(f"a tensor of more than {MOST_DIMS} dimensions")
        sizes, strides = self.numbers(fake.size()), self.numbers(fake.stride())
        offset = self.number(fake.storage_offset())
        # Kernels compute sizes with integers.
        if any(isinstance(s, FloatExpr) for n in (*sizes, *strides, offset) for s in n.symbols):
            raise NotFunctionalized("a size that is computed from floats")
        return Tensor(sizes, strides, offset, fake.dtype, node, fake.device)

    def numbers(self, values: Sequence[Any]) -> tuple[Expr, ...]:
        return tuple([self.number(value) for value in values])

    def number(self, value: Any) -> Any:
        if type(value) is int:
            return integer(value)
        return self.env.simplify(from_torch(value))

    def add_input(self, fake: Fake, index: int, shared: bool) -> None:
        value = self.tensor(fake)
        self.known.update(n for n in (*value.sizes, *value.strides) if n.op == "symbol")
        self.function.inputs.append(value)
        self._name(fake, TensorAlias(Base(value, index, shared=shared), value, 0))

    def _name(self, fake: Fake, alias: TensorAlias) -> None:
        self._aliases[id(fake)] = (fake, alias)  # the fake too, or another might get its id
        # By identity: two fakes with equal metadata are two tensors.
        self._fakes[alias] = fake

    def alias(self, fake: Fake) -> TensorAlias:
        entry = self._aliases.get(id(fake))
        if entry is None:
            raise NotFunctionalized("a tensor of unknown origin")
        return entry[1]

    def chain(self, fake: Fake) -> list[TensorAlias]:
        """The aliases from the base to `fake`, in this order."""
        alias = self.alias(fake)
        chain = [alias]
        while alias.parent is not None:
            alias = alias.parent
            chain.append(alias)
        return chain[::-1]

    def count_of(self, mask: Fake, *name: str) -> Any:
        """How many elements of `mask` are true, as an unbacked symbol: the same one for the same
        elements of the same memory, until that is written to."""
        if id(mask) not in self._aliases:  # made inside of a call that is recorded as a whole
            return places_in(self.env, mask, *name)
        base = self.alias(mask).base
        # The same elements of the same memory between two writes have one count: `x[mask]` and
        # `y[mask]` get equal sizes, so that they can be added.
        place = (base, base.version, *layout_of(mask))
        # Where the capture made a symbol, it found that the mask had been written to.
        if place not in self._items or self.env.expected:
            self._items[place] = places_in(self.env, mask, *name)
        return self._items[place]

    def root(self, fake: Fake) -> Fake:
        """The fake at the base of the chain of views."""
        return self._fakes[self.chain(fake)[0]]

    def value(self, alias: TensorAlias) -> Tensor:
        """The current value of `alias`, which is replayed if its base was written to since. The
        recursion is as deep as the chain of views, and brings all of it up to date."""
        if alias.version == alias.base.version:
            return alias.value
        # Written to since: a view is made again, of the value that the memory has now. This is done
        # when it is read: a view that isn't read again costs nothing.
        if alias.parent is None:
            alias.value = alias.base.value
        else:
            assert alias.op is not None
            parent = self.value(alias.parent)
            old = alias.value
            new = Tensor(old.sizes, old.strides, old.offset, old.dtype, device=old.device)
            self._view_node(alias, parent, new)
            alias.value = new
        alias.version = alias.base.version
        return alias.value

    def _view_node(self, alias: TensorAlias, parent: Tensor, result: Tensor) -> None:
        """Record one result of a view operator as a node. `unbind` is as many nodes as results, so
        that a result that isn't read is dead code."""
        assert alias.op is not None
        args = (parent, *alias.args[1:])
        node = Node(alias.op.name, alias.op.func, args, alias.kwargs or {}, (result,), view=True)
        node.kwargs = {**node.kwargs}
        result.node = node
        if alias.position:
            node.name = f"{node.name}[{alias.position}]"
        self.function.nodes.append(node)

    # ---- what is written down

    def _lifted(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, with fakes in place of real tensors, which become constants."""
        # PyTorch puts a number into a tensor (`x * 2`), and shows it as a number again. Transforms
        # convert it before they use it: there the operator needs the tensor.
        # For `x * 2` this is None: x comes first, and 2 stays a number.
        wrapped = wrapped_dtype(args[0]) if args else None
        alone = wrapped is not None and not results_in((args, tuple(kwargs.values())))
        if alone and isinstance(func._schema.arguments[0].type, torch.TensorType):
            with torch._C._DisableTorchDispatch():
                number = torch.tensor(args[0], dtype=wrapped)
            args = (self._constant(number), *args[1:])
        named = {name: self._lift_constants(value) for name, value in kwargs.items()}
        return tuple(map(self._lift_constants, args)), named

    def _lift_constants(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._lift_constants, value))
        if not isinstance(value, torch.Tensor) or type(value) is Fake or is_number(value):
            return value
        return self._constant(value)

    def _constant(self, value: torch.Tensor) -> Fake:
        # One fake for each real tensor, however often it occurs.
        fake = self._reals.fake(value)
        if id(fake) not in self._aliases:
            constant = self.tensor(fake)
            self.function.constants[constant] = value
            self._name(fake, TensorAlias(Base(constant), constant, 0))
        return fake

    def mark(self) -> tuple[int, int, int]:
        """A position in the recording, for `roll_back`."""
        return len(self.function.nodes), len(self._aliases), len(self._items)

    def roll_back(self, mark: tuple[int, int, int]) -> bool:
        """Discard what was recorded since the mark. Returns False, and changes nothing, if memory
        that was there before has been written to, or if a recorded check is relied on."""
        gone = set(self.function.nodes[mark[0] :])
        if any(node.func in (check, suppose) for node in gone):
            return False
        # The dictionary keeps the order in which fakes were named, so these were there at the mark.
        earlier = [alias for _, alias in list(self._aliases.values())[: mark[1]]]
        if any(alias.base.value.node in gone for alias in earlier):
            return False  # its former value is not kept anywhere
        for alias in earlier:
            if alias.value.node in gone:
                # No version of a base: the view is made again when it is next read.
                alias.version = -1  # looked at meanwhile
        for node in gone:
            self.known.difference_update(unbacked.symbol for unbacked in node.defines)
        for key in list(self._items)[mark[2] :]:
            del self._items[key]
        del self.function.nodes[mark[0] :]
        torch.clear_autocast_cache()  # it may hold casts that are gone
        return True

    @contextmanager
    def quietly(self) -> Any:
        """Operators that run inside are not recorded: only their metadata is wanted."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def recorded(self, value: Any) -> Any:
        """An argument as nodes hold it: the current values of fakes, expressions for symbolic
        numbers, and `Scalar` for a number that PyTorch wrapped in a tensor."""
        if type(value) is Fake:
            return self.value(self.alias(value))
        if isinstance(value, torch.Tensor):
            return Scalar(item_of(value), value)
        if isinstance(value, SYMBOLIC):
            # A symbol that is known to be one number by now is recorded as that.
            expr = self.number(value)
            return expr if expr.value is None else expr.value
        if isinstance(value, (list, tuple)):
            return type(value)(map(self.recorded, value))
        return self._generator(value) if isinstance(value, torch.Generator) else value

    def _generator(self, generator: torch.Generator) -> InputObject:
        """The input that this stands for. (C++ makes a new object of it for each operator.)"""
        if generator.initial_seed() not in self.generators:
            raise NotFunctionalized("a Generator that is no input")
        return self.generators[generator.initial_seed()]

    def recorded_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a call as its node has them."""
        named = {name: self.recorded(value) for name, value in kwargs.items()}
        return tuple(map(self.recorded, args)), named

    def begins(self, node: fx.Node) -> None:
        """A node of the captured graph is about to run."""
        # It asks for unbacked symbols again: they are those of the capture.
        self.env.expected = list(node.meta.get(SYMBOLS, ()))
        self.stack = node.meta.get("stack", ())

    def record_call(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Node:
        """Record a functional call. Each fake in `result` becomes a new value."""
        # Dead code elimination keeps calls that act: random draws, which advance the generator,
        # and operators such as `_assert_async`.
        acts = not op.func._schema.returns  # it is there to raise an error
        acts = acts or (op.draws is not None and op.draws(args, kwargs))
        positional, named = self.recorded_arguments(args, kwargs)
        func = op.func
        # Such as a backward operator with an `output_mask`, which leaves gradients undefined.
        if isinstance(result, tuple) and not all(map(_has_memory, result)):
            places = [at for at, item in enumerate(result) if _has_memory(item)]
            func = Defined(func, tuple(named), tuple(places))
        results = results_in(result)
        for condition in range_conditions(op, positional, named, [fake.dtype for fake in results]):
            self.demand(condition)
        return self.add(Node(op.name, func, positional, named, effect=acts), results)

    def demand(self, condition: Condition) -> bool:
        """Make the condition a precondition of the graph. Returns False if the inputs alone don't
        decide it."""
        if not self.inputs_know(condition.symbols):
            return False
        if condition not in self.function.conditions:
            self.function.conditions.append(condition)
        return True

    def dropout(self, x: Fake, p: float) -> tuple[Fake, float] | None:
        """What a dropout keeps, and the factor of that; None if PyTorch has to draw it."""
        return gpu_draws.dropout(self, x, p)

    def add(self, node: Node, fakes: Sequence[Fake]) -> Node:
        """Append `node`, whose results are the values of `fakes`."""
        results: list[Tensor] = []
        for fake in fakes:
            value = self.tensor(fake, node)
            results.append(value)
            self._name(fake, TensorAlias(Base(value), value, 0))
        # Each result is new memory. Views are recorded elsewhere (`_note_views`).
        node.results = tuple(results)
        node.stack = node.stack or self.stack
        node.defines = tuple(self._new_symbols(results))
        node.effect |= bool(node.defines)  # it stays, even if only the sizes of its result are used
        self.function.nodes.append(node)
        return node

    def _new_symbols(self, results: Sequence[Tensor]) -> Iterator[UnbackedSymbol]:
        """Sizes and strides that this node determines: unbacked symbols that occur here first."""
        for at, tensor in enumerate(results):
            for measure, numbers in (("size", tensor.sizes), ("stride", tensor.strides)):
                for dim, number in enumerate(numbers):
                    # The size of a result that depends on data, such as that of `nonzero`: the
                    # launcher reads it off the tensor.
                    if number.op == "symbol" and number not in self.known:
                        self.known.add(number)
                        yield UnbackedSymbol(number, measure, at, dim)


@dataclass(frozen=True, slots=True, eq=False)
class Defined:
    """An operator some of whose results are no tensors: undefined (a gradient that isn't wanted),
    or numbers, which are known already. Calling it returns the tensors alone, those at `places`.
    `names` are of the last arguments, which are passed by keyword."""

    func: Any
    names: tuple[str, ...]
    places: tuple[int, ...]

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad(), torch._C._DisableAutocast():
            results = call_by_position(self.func, self.names, args)
        # Kernels of a GPU leave more undefined than meta kernels do: what is never read.
        tensors = [results[at] for at in self.places]
        return tuple([torch.empty(0) if tensor is None else tensor for tensor in tensors])


def _has_memory(item: Any) -> bool:
    """Whether a result is a tensor, or a list of them."""
    return type(item) is Fake or isinstance(item, list | tuple)


def results_in(result: Any) -> list[Fake]:
    """The fakes in a (nested) list or tuple, in order."""
    if type(result) is Fake:
        return [result]
    if isinstance(result, (list, tuple)):
        return [fake for item in result for fake in results_in(item)]
    return []


def item_of(t: torch.Tensor) -> Any:
    """The number in a tensor of PyTorch's own."""
    with torch._C._DisableTorchDispatch():
        return t.item()


def wrapped_dtype(value: Any) -> torch.dtype | None:
    """The dtype with which PyTorch's C++ puts a number into a tensor; None if it isn't a number."""
    if type(value) is int and value > LARGEST:
        return torch.uint64
    return _WRAPPED.get(value.node.pytype if isinstance(value, SYMBOLIC) else type(value))
