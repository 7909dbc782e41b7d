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
from pliant.base.writes import FINAL, MODES_KEPT, PARTLY, RAISES, WHOLLY, WRITES
from pliant.bytecode.tables import OPCODES, Role, opcodes_with
from pliant.capture.torch_state import NESTING, WRITERS
from pliant.capture.value import NULL, Break, Const, Lazy, Value
from pliant.capture.values.functions import BoundMethod, named
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.tensors import TensorValue
from pliant.fake.tensor import Fake
from pliant.fake.trial import specialise_empty

if TYPE_CHECKING:
    from pliant.bytecode.decode import ExceptionEntry
    from pliant.capture.frame import Frame
    from pliant.capture.trace import Trace


@dataclass(slots=True)
class GraphEffects:
    """What the graph so far leaves behind, besides its results and PyTorch's modes. It decides
    whether a graph that fails can be undone, and the function run again."""

    outside: set[int] = field(default_factory=set)  # storages that were there before
    memory: set[int] = field(default_factory=set)  # storages written
    early: set[int] = field(default_factory=set)  # those written while all could be put back
    random: bool = False
    generators: dict[int, GraphObject] = field(default_factory=dict)  # used, by id, from outside
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
    nonempty: dict[str, tuple[int, Break]] = field(default_factory=dict)  # that sizes are not 0
    # Operations that may raise because of data, where the program handles that.
    handled: list[tuple[int, Break]] = field(default_factory=list)
    mode_changes: list[fx.Node] = field(default_factory=list)  # of PyTorch's modes
    # How many there were when the program entered a `with` block, by the context manager.
    mode_changes_before: dict[Value, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there are effects. A write to a tensor that the graph has made is none: that is
        gone if the graph fails."""
        return self.draws or self._wrote or self.backward or self.other

    @property
    def draws(self) -> bool:
        return self.random or bool(self.generators)

    def enter_block(self, manager: Value) -> None:
        """Note that the program enters a `with` block."""
        self.mode_changes_before[manager] = len(self.mode_changes)

    def note_write(self, node: fx.Node, written: set[int], how: str) -> None:
        """Note that `node` writes to this memory. If some is from outside, the node is marked with
        how: WHOLLY, or PARTLY if it may fail half-way."""
        self.memory |= written
        if not written.isdisjoint(self.outside):
            node.meta[WRITES] = how
            # The first write behind `backward`: from here on the graph can't be undone.
            if self.backward and not self.final:
                self.final = node.meta[FINAL] = True
        if not self.final:
            self.early |= written

    def note_backward(self, node: fx.Node, leaves: list[TensorValue], written: set[int]) -> None:
        """Note that `node` runs backward: it sets the gradients of `leaves`, and adds to gradients
        in the memory `written`."""
        self.backward = True
        self.note_write(node, written, PARTLY)
        node.meta[WRITES], node.meta[FINAL] = PARTLY, True
        if not self.final:
            self.graded[node] = [leaf for leaf in leaves if leaf.source is not None]

    def guard(self) -> None:
        """Note that the function may have to be run again if the graph fails here: it is inside a
        `try`, or tests an assumption."""
        if self.final:
            return
        self.guarded = True
        # Only now: the gradients that are saved can't be freed while the graph runs.
        for node, leaves in self.graded.items():
            del node.meta[FINAL]
            self.leaves += leaves
        self.graded.clear()

    def note_object(self, value: GraphObject) -> None:
        """Note that an operation uses an object. The state of a generator can be put back, and
        needn't be if the graph has made it; what is done to any other object can't be undone."""
        if not isinstance(value.example, torch.Generator):
            self.other = True
        elif value.source is not None:
            self.generators[id(value)] = value

    def note_grown(self, fakes: Iterable[Fake]) -> set[int]:
        """Count the new memory of tensors from outside that an operation has enlarged as memory
        from outside, too. Returns the old memory."""
        before = set[int]()
        for fake in fakes:
            # `out=` of a resized tensor: PyTorch has given it new memory, and so has the fake.
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
        return not self.draws and not self.other

    @property
    def breaks(self) -> list[tuple[int, Break]]:
        """What has to be a graph break instead, as `(step, cause)`: assertions in the graph, and
        operations whose failure the program handles. If one fails, the function is run again, and
        effects that can't be undone would happen twice.
        """
        early = [*self.handled, *self.assertion_branches] if self.other else []
        # A break costs less than to save what a graph writes, as a cache, in each call.
        saves = self._wrote and not self.backward
        costly = [*self.finite.values(), *self.nonempty.values()] if saves else []
        return [*early, *self.late_assertions, *costly]

    @property
    def speculations(self) -> tuple[tuple[str, bool], ...]:
        """The speculations that are given up once they fail. Those on finite numbers in a step of
        training are kept: Python runs the step with the infinite loss, and the next one is as
        usual."""
        kept = self.finite if self.backward else ()
        speculated = self.speculated or {}
        return tuple([item for item in speculated.items() if item[0] not in kept])

    @property
    def undoable(self) -> bool:
        """Whether the residual code saves what the graph writes, and undoes it after a failure:
        where the program may handle that, and where undoing is cheap."""
        cheap = self.raises and not self._wrote and not self.backward
        return (self.guarded or cheap) and not self.other and bool(self)

    @property
    def rerunnable(self) -> bool:
        """Whether nothing is left of what the graph has done, wherever it fails, so that the
        function can be run again."""
        return (self.undoable or not self) and not self.final and not self.graded


def note_operation(trace: Trace, node: fx.Node, result: Any, effect: bool) -> None:
    """Note what the operation of `node` leaves behind, and keep it where its failure matters."""
    graph_effects = trace.graph_effects
    if node.target in WRITERS and node.target not in NESTING:  # which is counted when it ran
        graph_effects.mode_changes.append(node)
    elif graph_effects.mode_changes:
        every = len(graph_effects.mode_changes)
        node.meta[MODES_KEPT] = min(_mode_changes_kept(trace), default=every)
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
    if result.raises:
        may_fail(trace, named(Const(node.target)))


def may_fail(trace: Trace, what: str) -> None:
    """Note that the graph may fail here because of data, which the program may handle."""
    if is_guarded(trace.frames):
        effects, frame = trace.graph_effects, trace.frames[-1]
        effects.guard()
        cause = Break("data-dependent", f"{what}, which may raise, behind an effect that stays")
        effects.handled.append((frame.step, cause.at(trace.stack())))


def _raises_at_once(result: Any) -> bool:
    """Devices other than the CPU report errors late, when the graph has returned."""
    return not isinstance(result, torch.Tensor) or result.device.type == "cpu"


def written_inputs(trace: Trace) -> list[TensorValue]:
    """The tensors from outside that the graph writes to and that can be put back."""
    return [
        value
        for value in trace.tensors.values()
        if value.source is not None
        and value.fake.untyped_storage()._cdata in trace.graph_effects.early
    ]


def is_guarded(frames: Iterable[Frame]) -> bool:
    """Whether an exception in the present instruction would run code of the program: a handler, a
    `finally`, or the end of a `with` block."""
    return any(_handles(frame) for frame in frames)


def _mode_changes_kept(trace: Trace) -> Iterator[int]:
    """For each block around the present instruction that takes back changes of PyTorch's modes when
    an exception leaves it: how many it leaves alone. A block that the program was in when the
    capture began is left in Python."""
    for frame in trace.frames:
        for entry in handlers(frame, frame.index):
            manager: Any = _manager(frame.stack[entry.depth - _EXIT_ENTRIES : entry.depth])
            leaves = frame.instructions[entry.target + 1].op in _LEAVES_WITH
            if not leaves:
                yield 0  # a `finally` of PyTorch's own code
            elif (before := trace.graph_effects.mode_changes_before.get(manager)) is not None:
                yield before


def program_handles(frames: Iterable[Frame]) -> bool:
    """As `is_guarded`, apart from frames of PyTorch's own code, which handle failures to put its
    state back."""
    return is_guarded(f for f in frames if str(f.globals.get("__name__")).split(".")[0] != "torch")


def _handles(frame: Frame) -> bool:
    """Whether one of the frame's handlers does more than put PyTorch's own state back. That is done
    in any case, by leaving a context of PyTorch or in a `finally` of its code."""
    for entry in handlers(frame, frame.index):
        of_pytorch = str(frame.globals.get("__name__")).split(".")[0] == "torch"
        # A handler begins with PUSH_EXC_INFO; that of a `with` goes on with WITH_EXCEPT_START.
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
    """The program's own handlers around an instruction, innermost first. Cleanup code that the
    compiler of Python adds is left out."""
    entry = frame.decoded.handler(index)
    while entry is not None:
        # Without PUSH_EXC_INFO it is the cleanup that the compiler adds around an `except` block.
        if frame.instructions[entry.target].op in _ENTERS_HANDLER:
            yield entry
        # The handler of the handler's first instruction is the next one outside.
        outer = frame.decoded.handler(entry.target)
        entry = None if outer is entry else outer


def _leaves_pytorch(leave: list[Value]) -> bool:
    """Whether the `__exit__` on the stack is one of PyTorch's."""
    receiver = _manager(leave)
    if receiver is None or receiver is NULL:
        return False
    return receiver.python_type().__module__.split(".")[0] == "torch"


def _manager(leave: list[Value]) -> Value | None:
    """The context manager whose `__exit__` is on the stack."""
    bound = [method for method in leave if isinstance(method, BoundMethod)]
    receiver: Value | None = bound[0].obj if bound else leave[-1] if len(leave) == 2 else None
    return receiver.seen if isinstance(receiver, Lazy) else receiver
