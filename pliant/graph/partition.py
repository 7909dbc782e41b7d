"""A joint graph in two: a forward that returns what the backward needs of it, and the backward.

The one idea: what the backward reads of the forward has to be saved or computed again. Saving costs
bytes; computing again costs little where it fuses with what reads it. The cheapest choice is a
minimum cut between what can only be had in the forward and what the backward reads. Each value of
the forward is a node of the network (`_chosen`), which it costs `Prices.save` to cut:

    SOURCE  -> input    unlimited             an input can't be computed
    SOURCE  -> result   Prices.recompute      to cut this edge is to compute the result again
    operand -> result   unlimited             for that its operands are needed, too
    value   -> SINK     unlimited             for each value that the backward reads

In `x.sin().exp() + 1`, the gradient reads `x` (for `cos`) and `exp(sin(x))`. To save the latter
costs 8 for each float32 (`SAVE`). To compute it again from `x`, which is saved anyway, costs two
expensive functions on a CPU, which is 6, so that is done.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

import torch

from pliant.base.operators import record_of
from pliant.base.values import dataclass
from pliant.graph.aliases import NotFunctionalized
from pliant.graph.ir import (
    FunctionalBuilder,
    MemoryWrite,
    Node,
    OutputView,
    Tensor,
    returned_tensors,
    symbols_in,
    tensors_in,
)
from pliant.graph.joint import Joint
from pliant.graph.min_cut import SINK, SOURCE, UNLIMITED, FlowNetwork
from pliant.loop.define import contiguous
from pliant.sym.expr import ZERO, Expr, product_of

aten = torch.ops.aten

# The prices below share one unit: moving a byte to or from memory costs 1.
SAVE: Final = 2.0
"""What it costs to save a byte: it is written, and read again."""

AT_HAND: Final = 1.0
"""The same of what is in memory anyway, as an input or an output."""

IN_MEMORY: Final = 1.5
"""The same of what a call of PyTorch reads or makes: it is written whether it is saved or not, but
if it isn't, it can be freed before the forward ends."""

RECOMPUTE: Final = 0.5
"""What it costs to compute an element again, in the same unit: arithmetic takes less time than
memory."""

RECOMPUTE_EXPENSIVE: Final = 3.0
"""The same of functions that take tens of instructions."""

GPU_ARITHMETIC: Final = 0.1
"""What arithmetic costs on a GPU compared with a CPU: it is done before memory answers."""

RECOMPUTE_STORED: Final = 2.0
"""What it costs to write and read a byte of a recomputed value that a call of PyTorch reads."""

RECOMPUTE_MATMUL: Final = 0.125
"""What a multiplication costs in a matrix product that is computed again."""

KEPT: Final = 1e9
"""The factor on the price of what is saved only if nothing else is possible: an input that the
forward writes to (`_forward` then gives up, as nothing makes a copy of it), and what the program
computes in a checkpoint, which it wants to be computed again."""


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """The prices of saving values and of computing them again. `budget` is how much memory may be
    used, from 0, where all that can be is computed again, to 1, where time alone counts. `size`
    gives the numbers that sizes are expected to be, `arithmetic` what it costs to compute compared
    with a CPU."""

    size: Callable[[Expr], int]
    budget: float
    arithmetic: float = 1.0

    def elements(self, tensor: Tensor) -> int:
        return max(self.size(product_of(tensor.sizes)), 1)

    def bytes(self, tensor: Tensor) -> int:
        return self.elements(tensor) * tensor.dtype.itemsize

    def save(self, tensor: Tensor, of_a_byte: float) -> float:
        """The cost of saving a value, at this price of a byte."""
        if tensor.node is not None and (tensor.node.view or is_whole_write(tensor.node)):
            return UNLIMITED  # what it is a view of, or what was written, is saved
        price = self.bytes(tensor) * of_a_byte
        return price * KEPT if tensor.node is not None and tensor.node.recompute else price

    def recompute(self, node: Node, result: Tensor, stored: bool) -> float:
        """The cost of computing `result` again in the backward; unlimited if that is impossible.
        `stored`: a call of PyTorch reads it there, so it has to be written to memory, too."""
        if node.view or is_whole_write(node):
            return 0.0
        if not can_be_repeated(node) or node.recompute is False:
            return UNLIMITED
        if node.recompute:
            return 0.0
        # Recomputing saves nothing of the traffic if a call then reads the value from memory.
        written = RECOMPUTE_STORED * self.bytes(result) if stored else 0.0
        if fuses(node):
            price = RECOMPUTE_EXPENSIVE if is_expensive(node) else RECOMPUTE
            price *= self.arithmetic
            return (price * self.elements(result) + written) * self.budget
        if self.budget == 1:
            return UNLIMITED  # a call that does not fuse is time lost, whatever memory it saves
        # Below that the price of a call falls with the budget, so that memory is bought with time.
        price = self._recompute_call(node, result) + written
        return price * self.budget / (1 - self.budget)

    def _recompute_call(self, node: Node, result: Tensor) -> float:
        """The cost of a call, from the sizes of its tensors alone: that of reading and writing
        them, or of the multiplications if it may be a matrix product."""
        # (m, k) times (k, n) has mk, kn and mn elements; the root of their product is mkn, which is
        # the number of multiplications. The three largest tensors, so that a bias doesn't count.
        counts = sorted([self.elements(t) for t in (result, *operands_of(node))])
        product = math.sqrt(math.prod(counts[-3:])) if len(counts) > 2 else 0.0
        return max(RECOMPUTE * sum(counts), RECOMPUTE_MATMUL * product)


def can_be_repeated(node: Node) -> bool:
    """Whether a second call gives the same results and has no effect. (Random draws don't.)"""
    acts = node.effect or node.defines or node.put is not None
    return not acts and isinstance(node.func, torch._ops.OpOverload)


def is_whole_write(node: Node) -> bool:
    """Whether the node is `pliant.stored(new)`: memory after a write to all of it. Its value is
    that of `new`, so nothing has to be computed."""
    return node.func is None and len(node.args) == 1


def is_expensive(node: Node) -> bool:
    """Whether an element takes tens of instructions."""
    rule = record_of(node.name).expensive or record_of(node.name.rpartition(".")[0]).expensive
    return rule(*node.args, **node.kwargs) if callable(rule) else bool(rule)


def fuses(node: Node) -> bool:
    """Whether it becomes part of the kernel that reads it."""
    fused = record_of(node.name.rpartition(".")[0]).fuses
    return isinstance(node.func, torch._ops.OpOverload) and (
        torch.Tag.pointwise in node.func.tags or bool(fused)
    )


@dataclass(frozen=True, slots=True, eq=False)
class SavedTensors:
    """What the forward leaves for the backward: `values` of the joint graph, and for each one in
    `tensors` where it is: ("input", number), ("output", number), or ("more", place) for an
    additional result of the forward; then `numbers`, symbols that can't be read from sizes. Those
    with an index in `donated` are the only owners of their memory, which the last backward may
    overwrite."""

    tensors: tuple[tuple[str, int], ...]
    values: tuple[Tensor, ...]
    numbers: tuple[Any, ...]
    donated: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """`forward` returns the outputs, then the saved tensors that aren't among inputs and outputs,
    then numbers. `backward(tangents, wanted)` is the function for the tangents that are there (the
    others are zero) and the inputs whose gradients are wanted: it takes what is saved, the numbers
    and these tangents. With it come the inputs whose gradients it returns: not those of zeros."""

    joint: Joint
    forward: FunctionalBuilder
    saved: SavedTensors
    recomputed: tuple[Node, ...]
    late: frozenset[Node]  # the nodes that need a tangent

    def backward(
        self, tangents: Sequence[bool], wanted: Collection[int]
    ) -> tuple[FunctionalBuilder, tuple[int, ...]]:
        return _Backward(self, tangents, wanted).make()


def partition(joint: Joint, prices: Prices) -> Partition:
    """Split a joint graph into forward and backward. `prices` decide what is saved between them."""
    # Nodes that need a tangent run in the backward. All others run in the forward, and again in the
    # backward where that is cheaper than saving their results.
    late = _dependent(joint)
    early = [node for node in joint.function.nodes if node not in late]
    _note_recomputed(early)
    read = _read_by(joint, late)
    values = _chosen(joint, early, late, read, prices)
    forward, saved = _forward(joint, early, values, _numbers(joint, values))
    saved_values = set(saved.values)
    # For the report; each backward works out anew what it needs for its tangents.
    needed = _needed(early, read, saved_values)
    recomputed = tuple([n for n in needed if not n.view and not is_whole_write(n)])
    return Partition(joint, forward, saved, recomputed, frozenset(late))


def depends_on_written(joint: Joint, late: Collection[Node]) -> bool:
    """Whether an output that gets a gradient, or the gradient of an input, is computed from what
    was in an input that the forward writes to."""
    function = joint.function
    # The values from before the write: where an input is read afterwards, its new value is meant.
    # Forward reachability from the inputs that are written to.
    affected: set[Tensor] = {function.inputs[at] for at in function.writes}
    for node in function.nodes:
        if not affected.isdisjoint(operands_of(node)):
            if node in late:
                return True
            # (What a batch norm returns first doesn't depend on the statistics that it updates.)
            affected.update(node.results[record_of(node.name).statistics_free :])
    outputs = [function.outputs[at].of for at in joint.differentiable]
    outputs += [function.writes[at] for at in joint.rebased]
    return not affected.isdisjoint(outputs)


# --------------------------------------------------------------------------------------------------
# What is saved


def _dependent(joint: Joint) -> set[Node]:
    """The nodes that need a tangent."""
    # Nodes are in topological order, so one pass finds all that is reachable from the tangents.
    tensors: set[Tensor] = set(joint.tangents)
    nodes: set[Node] = set()
    for node in joint.function.nodes:
        if not tensors.isdisjoint(operands_of(node)):
            nodes.add(node)
            tensors.update(node.results)
    return nodes


def _note_recomputed(early: Sequence[Node]) -> None:
    """Mark nodes that are to be computed again because they read what a checkpoint recomputes.
    These aren't in the checkpoint: they belong to gradient formulas, and need no tangent."""
    for node in early:
        if node.recompute is None:
            makers = [t.node for t in operands_of(node) if t.node is not None]
            node.recompute = any(maker.recompute for maker in makers) or None


def operands_of(node: Node) -> list[Tensor]:
    """The tensors that a node reads. A write to a part also reads the old value of the memory, and
    the steps that replace it where it can't be made in place read operands of their own."""
    operands = tensors_in((node.args, node.kwargs))
    if node.put is not None and not is_whole_write(node):
        operands.append(node.put.old)
        for step in node.put.otherwise or ():
            operands += [t for t in tensors_in((step.args, step.kwargs)) if t.node is not step]
    return operands


def _read_by(joint: Joint, late: set[Node]) -> set[Tensor]:
    """The values of the forward that the backward reads."""
    computed = {t for node in late for t in node.results} | set(joint.tangents)
    inner: set[Tensor] = set()  # results that only the steps of a write see
    read: set[Tensor] = set()
    for node in late:
        read.update(operands_of(node))
        if node.put is not None:
            inner.update(t for step in node.put.otherwise or () for t in step.results)
    gradients = joint.function.outputs[joint.outputs :]
    read.update(returned_tensors(gradients))
    return read - computed - inner


def _chosen(
    joint: Joint, early: Sequence[Node], late: set[Node], read: set[Tensor], prices: Prices
) -> list[Tensor]:
    """The values to save: the nodes of a minimum cut, in the network that the module's docstring
    describes. `read` are the values that the backward reads, `late` its nodes."""
    function = joint.function
    inputs = [t for t in function.inputs[: joint.inputs] if isinstance(t, Tensor)]
    outputs = returned_tensors(function.outputs[: joint.outputs])
    # Prices of a byte; the later entries, which are cheaper, win.
    of_a_byte = dict.fromkeys(_in_memory(early), IN_MEMORY)
    of_a_byte.update(dict.fromkeys((*inputs, *outputs, *_left_in_inputs(joint)), AT_HAND))
    stored = _read_by_calls(late)
    written = {function.inputs[at] for at in function.writes}
    network = FlowNetwork()
    candidates: set[Tensor] = set()
    for tensor in (*inputs, *[t for node in early for t in node.results]):
        # Not unlimited: if nothing else is left, the cut takes it, and `_forward` gives up with a
        # reason, where an unlimited path would be an error of `FlowNetwork.cut`.
        factor = KEPT if tensor in written else 1.0
        # To save a value is to cut its node in two.
        network.add(tensor, prices.save(tensor, of_a_byte.get(tensor, SAVE)) * factor)
        candidates.add(tensor)
    for tensor in inputs:
        network.edge(SOURCE, tensor)  # an input can only be saved
    constants = function.constants
    for node in early:
        operands = [t for t in operands_of(node) if t not in constants]
        for result in node.results:
            # Cutting this edge is computing the result again; then its operands have to be there,
            # which the edges from them see to.
            network.edge(SOURCE, result, prices.recompute(node, result, result in stored))
            for tensor in operands:
                if tensor in candidates:
                    network.edge(tensor, result)
    for tensor in read:
        if tensor in candidates:
            # The sink needs it: every path to it from the source has to be cut somewhere.
            network.edge(tensor, SINK)
    chosen = set(network.cut())
    # In the order of the graph: that of a set would change the code from process to process.
    return [t for t in (*inputs, *[t for n in early for t in n.results]) if t in chosen]


def _in_memory(nodes: Collection[Node]) -> set[Tensor]:
    """The values in memory because calls of PyTorch among these nodes read or make them."""
    return _read_by_calls(nodes).union(*[node.results for node in nodes if _is_call(node)])


def _read_by_calls(nodes: Iterable[Node]) -> set[Tensor]:
    """The values that calls of PyTorch among these nodes read, which have to be in memory."""
    read: set[Tensor] = set()
    for node in nodes:
        for tensor in operands_of(node) if _is_call(node) else ():
            # A view costs nothing: what is in memory is what it is of.
            while tensor.node is not None and (tensor.node.view or is_whole_write(tensor.node)):
                tensor = tensor.node.args[0]
            read.add(tensor)
    return read


def _is_call(node: Node) -> bool:
    """Whether PyTorch runs it, as far as can be told before it is lowered."""
    return node.func is not None and not node.view and record_of(node.name).lowering is None


def _needed(
    nodes: Sequence[Node], read: Iterable[Tensor], available: Collection[Tensor]
) -> list[Node]:
    """The nodes that compute `read` from the `available` values, in order."""
    missing = set(read) - set(available)
    needed: list[Node] = []
    # From the end, so that all readers of a node come before it.
    for node in reversed(nodes):
        if not missing.isdisjoint(node.results):
            needed.append(node)
            missing.update(t for t in operands_of(node) if t not in available)
    return needed[::-1]


def delayed(nodes: Sequence[Node]) -> list[Node]:
    """The nodes in another order: those that a checkpoint recomputes stand right before their first
    reader. So no two checkpoints are in memory at once, as in eager PyTorch."""
    makers = {t: node for node in nodes if node.recompute for t in node.results}
    if not makers:
        return list(nodes)
    order: dict[Node, None] = {}
    for node in nodes:
        # Not by recursion: a checkpoint may be a chain of thousands of operators.
        waiting = [] if node.recompute else [node]
        while waiting:
            first = waiting[-1]
            before = [
                makers[t] for t in operands_of(first) if t in makers and makers[t] not in order
            ]
            if before:
                waiting += before
            else:
                order.setdefault(waiting.pop())
    return list(order)


# --------------------------------------------------------------------------------------------------
# The two functions


def _forward(
    joint: Joint, early: list[Node], values: Sequence[Tensor], numbers: Sequence[Any]
) -> tuple[FunctionalBuilder, SavedTensors]:
    function = joint.function
    outputs = list(function.outputs[: joint.outputs])
    at_hand = _at_hand(joint)
    places: list[tuple[str, int]] = []
    for value in values:
        place = at_hand.get(value)
        # Neither an input nor an output: one more result.
        if place is None:
            place = ("more", len(outputs))
            layout = (value.sizes, value.strides, ZERO, value.dtype)
            outputs.append(OutputView(value, None, *layout, False, object()))
        elif (
            place[0] == "input"
            and value is function.inputs[place[1]]
            and place[1] in function.writes
        ):
            # Eager PyTorch refuses that too, in the backward, if it is the input itself that
            # autograd saved.
            raise NotFunctionalized("the backward needs an input as it was before a write")
        places.append(place)
    outputs += numbers
    forward = FunctionalBuilder(
        inputs=function.inputs[: joint.inputs],
        nodes=early,
        outputs=outputs,
        writes=dict(function.writes),
        times=dict(function.times),
        constants=function.constants,
        conditions=function.conditions,
    )
    # Donated memory has one owner: a root that two saved values share, or that an output shows, has
    # two.
    roots = Counter([_root(value) for value in values])
    roots.update([_root(out.of) for out in outputs[: joint.outputs] if _is_new(out)])
    donated = [
        at
        for at, (value, place) in enumerate(zip(values, places, strict=True))
        if place[0] == "more" and _root(value) is value and roots[value] == 1
    ]
    return forward, SavedTensors(tuple(places), tuple(values), tuple(numbers), tuple(donated))


def _is_new(out: Any) -> bool:
    return isinstance(out, OutputView) and out.of is not None


def _root(value: Tensor) -> Tensor:
    """The value at the start of a chain of views, which may be `value` itself."""
    while value.node is not None and value.node.view:
        value = value.node.args[0]
    return value


def _left_in_inputs(joint: Joint) -> dict[Tensor, int]:
    """The values that inputs have after the forward, with their numbers, where autograd knows of
    the write. (Others, such as running statistics, may be overwritten before the backward.)"""
    function = joint.function
    values: dict[Tensor, int] = {}
    for at in joint.rebased:
        before, value = function.inputs[at], function.writes[at]
        while value.node is not None and is_whole_write(value.node):
            value = value.node.args[0]
        if (value.sizes, value.strides) == (before.sizes, before.strides):
            values[value] = at
    return values


def _at_hand(joint: Joint) -> dict[Tensor, tuple[str, int]]:
    """Where the values are that are inputs or outputs of the forward anyway, so that saving them
    takes no additional result. Inputs come first."""
    function = joint.function
    places: dict[Tensor, tuple[str, int]] = {}
    for at, value in enumerate(function.inputs[: joint.inputs]):
        if isinstance(value, Tensor):
            places.setdefault(value, ("input", at))
    places.update({value: ("input", at) for value, at in _left_in_inputs(joint).items()})
    for at, out in enumerate(function.outputs[: joint.outputs]):
        if not isinstance(out, OutputView) or out.of is None or out.offset is not ZERO:
            continue
        # An output that is laid out otherwise is a view of the value, and may lack some of it.
        if (out.sizes, out.strides) == (out.of.sizes, out.of.strides):
            places.setdefault(out.of, ("output", at))
    return places


def _numbers(joint: Joint, values: Sequence[Tensor]) -> list[Any]:
    """The symbols in the joint graph that can't be read from sizes and strides of the saved
    `values`: the backward gets them as arguments."""
    symbols: dict[Any, None] = {}
    for node in joint.function.nodes:
        for tensor in (*operands_of(node), *node.results):
            for number in (*tensor.sizes, *tensor.strides, tensor.offset):
                symbols.update(dict.fromkeys(number.symbols))
        symbols.update(dict.fromkeys(symbols_in((node.args, node.kwargs))))
    for value in values:  # a tangent isn't there in each backward
        for number in (*value.sizes, *value.strides):
            if number.op == "symbol":
                symbols.pop(number, None)
    return sorted(symbols, key=str)


class _Backward:
    """Makes one backward function, from copies of the nodes of the joint graph. `tangents`: which
    are given; the others are zero, and so is what is computed from them alone. `wanted`: the inputs
    whose gradients it returns. `now` maps values of the joint graph to those of this function."""

    def __init__(self, parts: Partition, tangents: Sequence[bool], wanted: Collection[int]) -> None:
        self.joint = joint = parts.joint
        self.saved = saved = parts.saved
        self.late = parts.late
        self.wanted = wanted
        self.places: dict[Tensor, int] = {}  # of inputs
        self.function = FunctionalBuilder()
        self.now: dict[Tensor, Tensor] = {}  # values of the joint graph in this one
        self.zero: set[Tensor] = set()
        for value in saved.values:
            # Saved values come first, then numbers, then tangents: as `AutogradStep` passes them.
            self.now[value] = self._input(value)
        self.function.inputs += saved.numbers
        for tangent, is_there in zip(joint.tangents, tangents, strict=True):
            if is_there:
                self.now[tangent] = self._input(tangent)
            else:
                self.zero.add(tangent)
        self.dependent = set(joint.tangents)

    def _input(self, value: Tensor) -> Tensor:
        new = Tensor(value.sizes, value.strides, ZERO, value.dtype, device=value.device)
        self.places[new] = len(self.function.inputs)
        self.function.inputs.append(new)
        return new

    def make(self) -> tuple[FunctionalBuilder, tuple[int, ...]]:
        """The function, and the inputs whose gradients it returns; zero ones aren't returned."""
        joint = self.joint
        # Only the gradients that are wanted, and what they are computed from.
        gradients = list(zip(joint.wanted, joint.function.outputs[joint.outputs :], strict=True))
        gradients = [(at, window) for at, window in gradients if at in self.wanted]
        for tensor, real in joint.function.constants.items():
            self.now[tensor] = tensor
            self.function.constants[tensor] = real
        read = [window.of for _, window in gradients if window.of is not None]
        for node in delayed(_needed(joint.function.nodes, read, self.now)):
            if node in self.late:
                self.dependent.update(node.results)
                self._late(node)
            else:
                self._copy(node)
        done: list[int] = []
        for at, window in gradients:
            if self._is_zero(window):
                continue
            self.function.outputs.append(self._window(window))
            done.append(at)
        return self.function, tuple(done)

    # ---- zeros

    def _late(self, node: Node) -> None:
        """Copy a node that needs tangents. All operators of gradient formulas are linear in them,
        so a node that only gets zeros gives zeros, and is left out."""
        arriving: Sequence[Tensor] = [t for t in operands_of(node) if t in self.dependent]
        if node.gradient is not None:  # a function of the program is called as a whole, or not
            arriving = [t for t in node.gradient.arriving if t in self.dependent]
            if 0 < sum([t in self.zero for t in arriving]) < len(arriving):
                raise NotFunctionalized("a function of the program that some gradients don't reach")
        zeros = [t for t in arriving if t in self.zero]
        # No kernel and no memory for a gradient that is zero everywhere.
        if len(zeros) == len(arriving):
            self.zero.update(node.results)
            return
        # `zero + gradient` is a copy of the gradient: in eager PyTorch, too, the sum is a tensor of
        # its own.
        if zeros and node.name == "aten.add.Tensor" and len(node.args) == 2:
            arriving_gradient = next(t for t in node.args if t not in self.zero)
            (result,) = node.results
            if not node.kwargs and (arriving_gradient.sizes, arriving_gradient.dtype) == (
                result.sizes,
                result.dtype,
            ):
                clone = aten.clone.default
                self._copy(
                    Node(str(clone), clone, (arriving_gradient,), {}, (result,), stack=node.stack)
                )
                return
        for tensor in zeros:
            self._fill(tensor)
        self._copy(node)

    def _fill(self, tensor: Tensor) -> None:
        device = tensor.device
        zeros = Tensor(tensor.sizes, contiguous(tensor.sizes), ZERO, tensor.dtype, device=device)
        sizes = [size if size.value is None else size.value for size in tensor.sizes]
        options = {"dtype": tensor.dtype, "device": device}
        zeros.node = Node("aten.full.default", aten.full.default, (sizes, 0), options, (zeros,))
        self.function.nodes.append(zeros.node)
        self.now[tensor] = zeros
        self.zero.discard(tensor)

    def _is_zero(self, window: OutputView) -> bool:
        if window.of is not None:
            return window.of in self.zero
        assert window.input is not None
        return self.joint.function.inputs[window.input] in self.zero

    # ---- copies

    def _copy(self, node: Node) -> Node:
        args, kwargs = self._now(node.args), self._now(node.kwargs)
        saved = self.saved.values
        # A node that is computed again for one of its results makes the saved ones once more.
        results = tuple([self._unused(t) if t in saved else self._result(t) for t in node.results])
        new = Node(node.name, node.func, args, kwargs, results, node.view, node.effect)
        new.defines, new.stack, new.generated = node.defines, node.stack, node.generated
        new.put = None if node.put is None or is_whole_write(node) else self._put(node.put)
        for result in results:
            result.node = new
        self.function.nodes.append(new)
        return new

    def _put(self, put: MemoryWrite) -> MemoryWrite:
        if put.input is not None:
            raise NotFunctionalized("the backward writes to an input")
        # Copying appends to the graph; these steps only run instead of the write.
        mark = len(self.function.nodes)
        steps = None
        if put.otherwise is not None:
            steps = [self._copy(step) for step in put.otherwise]
            del self.function.nodes[mark:]  # they belong to the write, not to the graph
        updated = None if put.updated is None else self.now[put.updated]
        return MemoryWrite(put.memory, None, self.now[put.old], put.window, steps, updated)

    def _result(self, tensor: Tensor) -> Tensor:
        if tensor not in self.now:
            self.now[tensor] = _like(tensor)
        return self.now[tensor]

    def _unused(self, tensor: Tensor) -> Tensor:
        """A result that is saved, of a node that is computed again for another result: the saved
        value is used, and this one is dropped."""
        return _like(tensor)

    def _now(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.now[value]
        if isinstance(value, (list, tuple)):
            return type(value)([self._now(item) for item in value])
        if isinstance(value, dict):
            return {name: self._now(item) for name, item in value.items()}
        return value

    def _window(self, window: OutputView) -> OutputView:
        layout = (window.sizes, window.strides, window.offset, window.dtype)
        if window.of is not None:
            of = self.now[window.of]
            index = self.places.get(of)
            if index is None:
                return OutputView(of, None, *layout, False, window.tensor)
            same_layout = (window.sizes, window.strides) == (of.sizes, of.strides)
            return OutputView(
                None, index, *layout, same_layout and window.offset is ZERO, window.tensor
            )
        assert window.input is not None
        tangent = self.now[self.joint.function.inputs[window.input]]
        return OutputView(None, self.places[tangent], *layout, window.whole, window.tensor)


def _like(tensor: Tensor) -> Tensor:
    layout = (tensor.sizes, tensor.strides, tensor.offset, tensor.dtype)
    return Tensor(*layout, device=tensor.device)
