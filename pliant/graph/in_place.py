"""Writes of the functional graph, lowered to writes in place.

The one idea: if memory holds the value before a write, the write goes to that memory; values that
still depend on the old contents are realized first. A value that isn't in memory can't be written
in place: up to `FEW` writes to parts of it become selects in its computation, and beyond that it is
realized.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Any, Final

import torch

from pliant.base.operators import record_of
from pliant.base.values import dataclass
from pliant.graph.extern import ExternOperator, TensorArgument
from pliant.graph.ir import Functional, MemoryWrite, Node, Tensor, is_uninitialised, tensors_in
from pliant.graph.opaque_calls import CopyingFunction, item_at, places_of
from pliant.graph.pending_reads import (
    PendingReads,
    is_overwritten,
    is_view_of,
    write_last,
    written,
)
from pliant.loop.define import Definition
from pliant.loop.fuse import ExternCall, Step, owner
from pliant.loop.types import BY_DTYPE, Type
from pliant.ops.indexed_tensor import IndexedTensor, MemoryLayout, in_memory
from pliant.ops.lowering import Lowering
from pliant.sym.expr import ZERO, Expr

FEW: Final = 2
"""How many writes to parts of a tensor that isn't in memory become selects. Each one adds a
comparison to every element of the tensor, however small the part is."""


@dataclass(slots=True, eq=False)
class Lowered:
    """What `lower` returns: definitions and calls in order (`steps`); the definitions of inputs and
    constants; what is returned, with definitions for values. `lowered` and `called` count operators
    by name, for reports; `made_for` has the operator that each definition was made for."""

    steps: list[Step] = field(default_factory=list)
    inputs: list[Definition | None] = field(default_factory=list)
    constants: list[tuple[Definition, torch.Tensor]] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    lowered: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)  # with why
    made_for: dict[Definition, Node | None] = field(default_factory=dict)
    indexed_tensors: dict[Tensor, IndexedTensor] = field(default_factory=dict)
    numbers: dict[Any, Any] = field(default_factory=dict)  # with their symbols

    def computed_by(self, definitions: Iterable[Definition]) -> set[Node]:
        """The operators that these definitions compute: those that they were made for, and those
        that are part of the same expressions."""
        computing: set[Node] = set()
        # Expressions are followed back to what is in memory: their operators are part of the
        # kernel.
        waiting = [self.made_for.get(definition) for definition in definitions]
        while waiting:
            node = waiting.pop()
            if node is None or node in computing:
                continue
            computing.add(node)
            for tensor in tensors_in((node.args, node.kwargs)):
                if self.indexed_tensors[tensor].memory is None:
                    waiting.append(tensor.node)
        return self._not_called(computing)

    def defined_by(self, definitions: Iterable[Definition]) -> set[Node]:
        """The operators that these definitions were made for, without the others in their
        expressions."""
        return self._not_called(set(map(self.made_for.get, definitions)) - {None})

    def _not_called(self, nodes: set[Any]) -> set[Node]:
        # PyTorch runs those in any case.
        called = {step.what.node for step in self.steps if isinstance(step, ExternCall)}
        return {node for node in nodes - called if not node.view and node.func is not None}


class InPlace:
    """Values of the functional graph while it is lowered, and the memory that they are in. The
    inputs `late` are written to at the end only."""

    def __init__(
        self, function: Functional, nodes: Sequence[Node], low: Lowering, late: Collection[int]
    ) -> None:
        self.function = function
        self.nodes = nodes
        self.low = low
        self.late = late
        self.uses = Counter(t for node in nodes for t in tensors_in((node.args, node.kwargs)))
        self.pending_reads = PendingReads(function, nodes)
        self.fresh: set[Definition] = set()  # results of operators in memory of their own
        self.shared: set[Definition] = set()  # memory that has several names
        self.scattered: dict[Tensor, Definition] = {}  # results that are where they belong
        self.written_lazily: Counter[object] = Counter()  # writes that became selects, by memory
        self.raising: dict[Tensor, None] = {}  # not in memory, and to compute an element may raise
        self.done = Lowered()
        self.indexed_tensors = self.done.indexed_tensors
        self.steps: list[Step] = []
        self._taken = 0  # definitions that are among the steps

    def _view(self, node: Node) -> None:
        raise NotImplementedError

    def _append_definitions(self, node: Node | None) -> None:
        """New definitions, made for this node, become steps, in order."""
        new = self.low.definitions[self._taken :]
        self.steps += new
        self.done.made_for.update(dict.fromkeys(new, node))
        self._taken = len(self.low.definitions)

    def _set(self, tensor: Tensor, indexed: IndexedTensor, made_of: Iterable[Tensor] = ()) -> None:
        """Note how a value is computed: by `indexed`, which reads the values `made_of`."""
        self.indexed_tensors[tensor] = indexed
        self.pending_reads.note(tensor, indexed, made_of)

    def _input(self, put: MemoryWrite) -> Definition | None:
        """The input that a write goes to, if that may be done before the end."""
        if put.input is None or put.input in self.late:
            return None
        memory = self.done.inputs[put.input]
        return None if memory in self.shared else memory

    def _written(self, memory: Definition, indexed: IndexedTensor, window: Any) -> IndexedTensor:
        """Append a write of `indexed` to a part of the memory, which `window` is the layout of.
        Returns all of the memory afterwards."""
        self._store_raising(memory)
        self._store_lookers(memory)
        layout = (window.sizes, window.strides, window.offset)
        definition = written(self.low, memory, indexed, *layout)
        return in_memory(definition, memory.sizes, memory.strides)

    def _realize(self, tensor: Tensor) -> None:
        """Store a value that has been an expression so far, laid out as eager's tensor is."""
        self._set(tensor, self.low.realize(self.indexed_tensors[tensor], tensor.strides))
        self._append_definitions(tensor.node)

    def _store_lookers(self, memory: Definition, after: int = 1) -> None:
        """Before the memory is written to, store the values that are computed from its old contents
        and needed by nodes from `after` nodes on."""
        for tensor in self.pending_reads.needed(memory, after):
            self._realize(tensor)

    def _store_raising(self, memory: Definition) -> None:
        """Before an input is written to, compute what may raise: eager PyTorch would have raised by
        now, and left the input as it was."""
        if memory not in self.done.inputs:
            return
        for tensor in self.pending_reads.still_needed(self.raising):
            self._realize(tensor)
        # Each of them is in memory now, or nothing needs it any more.
        self.raising.clear()

    def _overwritable(self, put: MemoryWrite, called: bool = False) -> Definition | None:
        """The memory that a write may be made in: it holds the value before the write, and nothing
        else refers to it. None if the value isn't in memory, and the write is better made a select
        in its computation. `called`: the write is by an extern call, which needs memory."""
        old = put.old
        indexed, target = self.indexed_tensors[old], self._input(put)
        memory = owner(indexed.memory.of) if laid_out_so(indexed, old) and indexed.memory else None
        if target is not None:
            # A write to the whole input may have been lazy so far: its value is an expression.
            if memory is not target:  # a part is written: the rest has to be right in there, too
                self._settle_in(target, old)
            return target
        # Made by a kernel, or by an operator that promises new memory: nothing else is in it.
        own = memory is not None and (memory.body is not None or memory in self.fresh)
        if own and memory not in self.shared:
            return memory
        self.written_lazily[put.memory] += 1
        blank = is_uninitialised(old.node) and indexed.memory is None
        few = self.written_lazily[put.memory] <= FEW
        # With symbolic sizes each element asks where it is; blank memory costs nothing to have.
        lazy = put.otherwise is not None and few and not called
        if lazy and not (blank and put.window.symbols):
            return None
        if blank:
            place = self._blank(old)
            in_its_memory = in_memory(place.memory.of)
            self.fresh.add(place.memory.of)
        else:
            in_its_memory = self.low.realize(indexed, old.strides)
            self._append_definitions(old.node)
        self._set(old, in_its_memory)
        assert in_its_memory.memory is not None
        return owner(in_its_memory.memory.of)

    def _settle_in(self, target: Definition, old: Tensor) -> None:
        """Write `old`, the value of an input after a write that has only been an expression so far,
        to the memory of the input."""
        # Values that read the old contents have to be stored before they are overwritten. Views of
        # the value itself stay right: they show the memory, which will have it.
        needed = self.pending_reads.needed(target, 0)
        views = [t for t in needed if t is not old and is_view_of(t, old)]
        for tensor in needed:
            if tensor is not old and tensor not in views:
                self._realize(tensor)
        self._store_raising(target)
        layout = (target.sizes, target.strides)
        definition = written(self.low, target, self.indexed_tensors[old], *layout)
        self._set(old, in_memory(definition))
        self._append_definitions(old.node)
        self._see_again(views, old)

    def _see_again(self, views: Iterable[Tensor], old: Tensor) -> None:
        """Lower views of `old` again, with all views on the way to them, now that it is in memory:
        they still read the expression that it was."""
        updated = {old}
        for tensor in views:
            chain = [tensor]
            while chain[-1] not in updated:
                node = chain[-1].node
                assert node is not None
                chain.append(node.args[0])
            for view in reversed(chain[:-1]):
                assert view.node is not None
                self._view(view.node)
            updated.update(chain)

    def _target(self, node: Node) -> MemoryLayout | None:
        """Where a scatter may work in place: the memory of its first argument, if the next node
        writes the result there and no other node reads it. None if it needs a copy."""
        after = self.pending_reads.position + 1
        if (
            not record_of(node.name).writes_target
            or after == len(self.nodes)
            # Another reader would find the updated memory in the place of the result.
            or self.uses[node.results[0]] != 1
        ):
            return None
        # The functionalizer records an in-place operator as the operator, followed by the write.
        write = self.nodes[after]
        is_result = write.put is not None and write.args[-1] is node.results[0]
        if not is_result or write.put is None or not is_overwritten(node.args[0], write.put):
            return None
        memory = self._overwritable(write.put)
        if memory is None:
            return None
        for tensor in tensors_in((node.args[1:], node.kwargs)):
            if self.pending_reads.looks_at(tensor, memory):  # it is read before anything is written
                self._realize(tensor)
        self._store_raising(memory)
        self._store_lookers(memory, 2)  # what only the write itself needs is no longer there
        window = write.put.window
        return MemoryLayout(memory, window.strides, window.offset)

    def _called_in_place(self, node: Node) -> dict[int, Definition]:
        """Which of the tensors that a call writes to, by number, it may write in place instead of
        in copies. The definitions are their memory after the call."""
        func: CopyingFunction = node.func
        args = (*node.args, *node.kwargs.values())
        copies = node.results[len(node.results) - len(func.places) :]
        written: dict[int, Definition] = {}
        targets: dict[Definition, Tensor] = {}
        for number, (copy, places) in enumerate(zip(copies, func.places, strict=True)):
            # A tensor may be passed in several places; all have the same value.
            target = item_at(args, places[0])
            # One value may be passed in several places, for tensors that were equal before the call
            # (zeros, say) and won't be afterwards.
            alone = places_of(target, args) == places
            memory = self._written_by_call(target, copy) if alone else None
            if memory is not None:
                layout = (target.sizes, target.strides, memory.type, None, memory)
                offset = self._offset_of(target)
                written[number] = Definition(
                    f"w{len(self.steps)}_{number}", *layout, offset, memory.device
                )
                # A call that writes in place may read no other name for the same memory.
                targets[memory] = target
        for memory, target in targets.items():
            for tensor in tensors_in(args):
                if tensor is not target and self.pending_reads.looks_at(tensor, memory):
                    self._realize(tensor)
            self._store_raising(memory)
            self._store_lookers(memory, len(copies) + 1)
        return written

    def _written_by_call(self, target: Tensor, copy: Tensor) -> Definition | None:
        """The memory of `target` if a call may write there; `copy` is its result for the target.
        None if it has to write to a copy."""
        write = self.pending_reads.stores.get(copy)
        if write is None or write.put is None or self.uses[copy] != 1:
            return None
        # The call's result for the target has to be put back right where the target is.
        is_reachable = write.put.input is None or self._input(write.put) is not None
        if (
            not is_reachable
            or target.dtype not in BY_DTYPE
            or not is_overwritten(target, write.put)
        ):
            return None
        memory, old = self._overwritable(write.put, called=True), write.put.old
        if target is not old and is_view_of(target, old):
            self._see_again([target], old)
        held = self.indexed_tensors[target].memory
        if memory is None or held is None or owner(held.of) is not memory:
            return None
        return memory if held.strides == target.strides else None

    def _offset_of(self, tensor: Tensor) -> Expr:
        memory = self.indexed_tensors[tensor].memory
        assert memory is not None
        return memory.offset

    def _blank(self, tensor: Tensor) -> TensorArgument:
        """Memory with the layout of the tensor and undefined contents: what holds the tensor, or
        new memory if nothing does."""
        indexed = self.indexed_tensors[tensor]
        if indexed.memory is not None and indexed.memory.strides == tensor.strides:
            return TensorArgument(indexed.memory, tensor.sizes, tensor.dtype)
        args = (tensor.sizes, tensor.strides)
        kwargs = {"dtype": tensor.dtype, "device": tensor.device}
        # Nothing holds the tensor yet: PyTorch allocates it.
        func = torch.ops.aten.empty_strided.default
        type = BY_DTYPE.get(tensor.dtype, Type.U8)
        layout = (tensor.sizes, tensor.strides)
        definition = Definition(f"e{len(self.steps)}", *layout, type, device=tensor.device.type)
        node = Node("aten.empty_strided.default", func, args, kwargs, (tensor,))
        self.steps.append(
            ExternCall((), (definition,), ExternOperator(node, args, kwargs), (), False)
        )
        return TensorArgument(
            MemoryLayout(definition, tensor.strides, ZERO), tensor.sizes, tensor.dtype
        )

    def _plain(self, indexed: IndexedTensor, tensor: Tensor) -> IndexedTensor:
        """The value; if it is in memory with another layout than the tensor's, as an expression
        that reads that memory."""
        if indexed.memory is None or indexed.memory.strides == tensor.strides:
            return indexed
        return IndexedTensor(indexed.sizes, indexed.type, indexed.at, indexed.cost, indexed.reads)

    def _write_all(self) -> None:
        """Write the last value of each input to its memory, unless it is there already."""
        values: dict[Definition, IndexedTensor] = {}
        nodes: dict[Definition, Node | None] = {}  # that made them
        for index, value in self.function.writes.items():
            target, indexed = self.done.inputs[index], self.indexed_tensors[value]
            assert target is not None
            memory = indexed.memory
            if memory is None or owner(memory.of) is not target or not laid_out_so(indexed, value):
                values[target], nodes[target] = indexed, value.node
        write_last(self.low, values, lambda target: self._append_definitions(nodes[target]))


def laid_out_so(indexed: IndexedTensor, tensor: Tensor) -> bool:
    """Whether the value is all of some memory, with the layout that the tensor has in eager."""
    memory = indexed.memory
    if memory is None or memory.offset is not ZERO or memory.strides != tensor.strides:
        return False
    definition = owner(memory.of)
    return definition.sizes == tensor.sizes and definition.strides == tensor.strides
