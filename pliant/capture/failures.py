"""Operations that may fail only when the graph runs, in a part of the program that handles
failures.

If a graph fails at run time (an index out of range, a matrix that is not invertible), Python runs
the function anew, so that the program's own handlers see the exception. This needs two things of a
graph that contains part of a `try` block: operations there stay even if nothing needs their result,
and whatever the graph writes can be put back as it was.

A graph that calls `backward` has a part at its end that can't be undone: what is written behind
`backward` (parameters, the state of an optimizer) is too much to be saved in each call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.base.values import dataclass
from pliant.base.writes import FINAL, PARTLY, RAISES, WHOLLY, WRITES
from pliant.bytecode.tables import OPCODES, Role, opcodes_with
from pliant.capture.torch_state import WRITERS
from pliant.capture.value import NULL, Break, Lazy, Value
from pliant.capture.values.functions import BoundMethod
from pliant.capture.values.tensors import TensorValue
from pliant.fake.tensor import Fake
from pliant.fake.trial import specialise_empty

if TYPE_CHECKING:
    from pliant.bytecode.decode import ExceptionEntry
    from pliant.capture.frame import Frame
    from pliant.capture.trace import Trace


@dataclass(slots=True)
class GraphEffects:
    """What the operations of a graph leave behind, besides their results and PyTorch's modes."""

    outside: set[int] = field(default_factory=set)  # storages that were there before
    memory: set[int] = field(default_factory=set)  # storages written
    early: set[int] = field(default_factory=set)  # those written while all could be put back
    random: bool = False
    other: bool = False  # something that can't be put back, at any time
    backward: bool = False  # the engine of autograd has run
    # The leaves whose gradients it sets, by its calls; and those whose gradients are saved.
    graded: dict[fx.Node, list[TensorValue]] = field(default_factory=dict)
    leaves: list[TensorValue] = field(default_factory=list)
    final: bool = False  # what has been done by now can't be put back
    hooks: bool = False  # it will call functions of the program that may do anything
    raises: bool = False  # an operation may raise because of the numbers in a tensor
    guarded: bool = False  # an operation is in a part of the program that handles failures
    # Branches on data that the graph tests: the step of each, and the break it would be.
    assertion_branches: list[tuple[int, Break]] = field(default_factory=list)
    late_assertions: list[tuple[int, Break]] = field(default_factory=list)  # those that must be it
    # Branches on data, and whether they are speculated on; None: there is no speculation.
    speculated: dict[str, bool] | None = None
    finite: dict[str, tuple[int, Break]] = field(default_factory=dict)  # that numbers are finite

    def __bool__(self) -> bool:
        """A tensor that was made on the way is gone if the graph fails, whatever is in it."""
        return self._wrote or self.random or self.backward or self.other

    def note_write(self, node: fx.Node, written: set[int], how: str) -> None:
        """The node writes to this memory, some of which is from outside."""
        self.memory |= written
        if not written.isdisjoint(self.outside):
            node.meta[WRITES] = how
            if self.backward and not self.final:
                self.final = node.meta[FINAL] = True
        if not self.final:
            self.early |= written

    def note_backward(self, node: fx.Node, leaves: list[TensorValue], written: set[int]) -> None:
        """The node sets the gradients of leaves, and adds to those that are in this memory."""
        self.backward = True
        self.note_write(node, written, PARTLY)
        node.meta[WRITES], node.meta[FINAL] = PARTLY, True
        if not self.final:
            self.graded[node] = [leaf for leaf in leaves if leaf.source is not None]

    def guard(self) -> None:
        """The function may have to be run again if the graph fails here."""
        if self.final:
            return
        self.guarded = True
        # Only now: the gradients that are saved can't be freed while the graph runs.
        for node, leaves in self.graded.items():
            del node.meta[FINAL]
            self.leaves += leaves
        self.graded.clear()

    def note_grown(self, fakes: Iterable[Fake]) -> set[int]:
        """Memory from outside that an operation has enlarged is memory from outside: what stood for
        it before."""
        before = set[int]()
        for fake in fakes:
            outgrown = {memory._cdata for memory in getattr(fake, "_outgrown", ())} & self.outside
            if outgrown:
                self.outside.add(fake.untyped_storage()._cdata)
            before |= outgrown
        return before

    @property
    def _wrote(self) -> bool:
        return not self.memory.isdisjoint(self.outside)

    @property
    def only_writes(self) -> bool:
        """Whether there are no effects but the writes of nodes that are marked as writing."""
        return not self.random and not self.other

    @property
    def breaks(self) -> list[tuple[int, Break]]:
        """The assertions that have to be breaks instead: if one fails, the function is run again,
        and what can't be undone would happen twice."""
        early = self.assertion_branches if self.other else []
        # A break costs less than to save what a graph writes, as a cache, in each call.
        saves = self._wrote and not self.backward
        return [*early, *self.late_assertions, *(self.finite.values() if saves else ())]

    @property
    def speculations(self) -> tuple[tuple[str, bool], ...]:
        """Those that are given up once they fail. A step of training that is left out, because the
        loss is not finite, is run by Python, and the next one is as usual."""
        kept = self.finite if self.backward else ()
        speculated = self.speculated or {}
        return tuple([item for item in speculated.items() if item[0] not in kept])

    @property
    def undoable(self) -> bool:
        """Whether the residual code is to undo it: where the program may handle a failure, and
        where that is cheap, so that the error and the effects before it are those of Python."""
        cheap = self.raises and not self._wrote and not self.backward
        return (self.guarded or cheap) and not self.other and bool(self)

    @property
    def rerunnable(self) -> bool:
        """Whether nothing is left of what the graph has done, wherever it fails."""
        return (self.undoable or not self) and not self.final and not self.graded


def note_operation(trace: Trace, node: fx.Node, result: Any, effect: bool) -> None:
    """Note what the operation of `node` leaves behind, and keep it where its failure matters."""
    graph_effects = trace.graph_effects
    if result.mutated or result.random:
        written = {fake.untyped_storage()._cdata for fake in result.mutated}
        written |= graph_effects.note_grown(result.mutated)
        graph_effects.random |= result.random
        # With several tensors it may have written to the first when it fails at the second.
        how = PARTLY if result.raises or len(written) > 1 else WHOLLY
        graph_effects.note_write(node, written, how)
        if WRITES not in node.meta and not result.random:
            trace.graph.note_own_write(node, written)
    elif effect and node.target not in WRITERS:
        graph_effects.other = True
    if result.refuses:
        trace.graph.keep(node)
    if result.raises:
        node.meta[RAISES] = True
        graph_effects.raises |= _raises_at_once(result.value)
        trace.graph.keep(node)
        specialise_empty((result.value, result.mutated))  # loops over nothing would check nothing
    if is_guarded(trace.frames):
        graph_effects.guard()
        trace.graph.keep(node)


def _raises_at_once(result: Any) -> bool:
    """Devices other than the CPU report errors late, when the graph has returned."""
    return not isinstance(result, torch.Tensor) or result.device.type == "cpu"


def written_inputs(trace: Trace) -> list[TensorValue]:
    """The tensors from outside that the graph writes to, as far as that can be undone."""
    return [
        value
        for value in trace.tensors.values()
        if value.source is not None
        and value.fake.untyped_storage()._cdata in trace.graph_effects.early
    ]


def is_guarded(frames: Iterable[Frame]) -> bool:
    """Whether code of the program runs if the present instruction fails."""
    return any(_handles(frame) for frame in frames)


def program_handles(frames: Iterable[Frame]) -> bool:
    """The same without PyTorch's own code, which handles failures to put its state back."""
    return is_guarded(f for f in frames if str(f.globals.get("__name__")).split(".")[0] != "torch")


def _handles(frame: Frame) -> bool:
    """Whether one of the handlers does more than to put PyTorch's own state back, which is done in
    any case: by leaving a context of PyTorch, or in a `finally` of PyTorch's code."""
    for entry in handlers(frame, frame.index):
        of_pytorch = str(frame.globals.get("__name__")).split(".")[0] == "torch"
        leaves = frame.instructions[entry.target + 1].op in _LEAVES_WITH
        if leaves and _leaves_pytorch(frame.stack[entry.depth - _EXIT_ENTRIES : entry.depth]):
            continue
        if not (of_pytorch and not leaves and _only_cleans_up(frame, entry.target)):
            return True
    return False


def _only_cleans_up(frame: Frame, target: int) -> bool:
    """Whether the handler is a `finally` that always raises the exception again."""
    for instruction in frame.instructions[target:]:
        if instruction.op in _RERAISES:
            return True
        if instruction.op in _CATCHES:
            return False
    return False


_LEAVES_WITH = opcodes_with(Role.LEAVES_WITH)
# `__exit__` on the stack, below what WITH_EXCEPT_START takes of the exception: one entry, or the
# method and its receiver.
_EXIT_ENTRIES = min(OPCODES[op].stack(None)[0] for op in _LEAVES_WITH) - 3
_ENTERS_HANDLER = opcodes_with(Role.ENTERS_HANDLER)
_RERAISES = opcodes_with(Role.RERAISES)
_CATCHES = opcodes_with(Role.LEAVES_HANDLER | Role.MATCHES_EXCEPTION | Role.RAISES)


def handlers(frame: Frame, index: int) -> Iterator[ExceptionEntry]:
    """The program's own handlers around an instruction, innermost first. Left out is what Python
    does for itself on the way."""
    entry = frame.decoded.handler(index)
    while entry is not None:
        # Without PUSH_EXC_INFO it is the cleanup that the compiler adds around an `except` block.
        if frame.instructions[entry.target].op in _ENTERS_HANDLER:
            yield entry
        outer = frame.decoded.handler(entry.target)
        entry = None if outer is entry else outer


def _leaves_pytorch(leave: list[Value]) -> bool:
    bound = [method for method in leave if isinstance(method, BoundMethod)]
    receiver: Value | None = bound[0].obj if bound else leave[-1] if len(leave) == 2 else None
    if isinstance(receiver, Lazy):
        receiver = receiver.seen
    if receiver is None or receiver is NULL:
        return False
    return receiver.python_type().__module__.split(".")[0] == "torch"
