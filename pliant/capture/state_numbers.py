"""Numbers in tensors that belong to the program's state: a condition on one is a guard.

The one idea: what an object keeps in a tensor of one element (the step of an optimizer, a counter
of a module) changes slowly, unlike data. So a branch on it is answered by what it is now, and a
guard says so; the graph doesn't break. From such a tensor to the number in the condition lead
operations on tensors of one element; they are written down as a recipe, for the guard to run again.

    self.step += 1                     # a tensor of one element
    if self.step % 100 == 0: ...       # guard: what it held, plus 1, modulo 100, is not 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.base.values import dataclass
from pliant.capture import scalars
from pliant.capture.value import Const, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.tensors import TensorValue
from pliant.fake import Fake, OpResult
from pliant.guards.guard import GuardKind
from pliant.guards.source import Attr, InstanceDict, Member, Source
from pliant.guards.state_numbers import (
    KnownTensor,
    Operation,
    Recipe,
    StateNumberFulfils,
    StateTensor,
    owns_memory,
)
from pliant.sym.cond import Cond, not_
from pliant.sym.expr import substitute, symbol
from pliant.sym.floats import FloatExpr, float_symbol
from pliant.sym.node import SYMBOLIC, from_torch
from pliant.sym.printing import to_python

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

LONGEST: Final = 16  # operations of a recipe
MOST_NUMBERS: Final = 4  # of one tensor, for which the function is compiled


@dataclass(frozen=True, slots=True)
class StateNumber:
    """What a tensor of one element holds: a number computed by `recipe` from `tensor`, which
    belongs to the program's state."""

    tensor: TensorValue
    recipe: Recipe


class StateNumbers:
    """What is known of numbers in the program's state, in one capture."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.scalars_in: dict[int, list[int]] = {}  # the fakes of `trace.scalars` of a storage
        self._tensors: dict[int, StateNumber] = {}  # by fake
        self._in_memory: dict[int, list[int]] = {}  # the fakes of a storage
        self._moved = False  # a tensor may have been given the memory of another
        self._symbols: dict[Any, StateNumber] = {}
        self._predicates: dict[tuple[str, Any], StateNumberFulfils] = {}

    # ---- what tensors hold

    def of(self, value: Value) -> StateNumber | None:
        """The number that a tensor holds, or None if it isn't one of the program's state."""
        if not isinstance(value, TensorValue):
            return None
        entry = self._tensors.get(id(value.fake))
        if entry is not None or not self._is_unwritten_state(value):
            return entry
        return StateNumber(value, StateTensor())

    def _is_unwritten_state(self, value: TensorValue) -> bool:
        """Whether the tensor belongs to the program's state, and has not been written to in this
        capture."""
        real, source = value.real, value.source
        if source is None or type(real) is not torch.Tensor or value.plain or not _is_state(source):
            return False
        # Guards read the number: on another device that would wait for it at each call.
        if real.device.type != "cpu" or real.requires_grad or real.is_complex():
            return False
        # Another tensor in the same memory could change it unseen.
        if real.numel() != 1 or self._moved or not owns_memory(real):
            return False
        return value.fake.untyped_storage()._cdata not in self.trace.graph_effects.memory

    def result(
        self, function: Any, args: list[Value], kwargs: dict[str, Value]
    ) -> StateNumber | None:
        """The number that an operation computes from one such number and constants; None for any
        other operation."""
        if not isinstance(function, scalars.OF_PYTORCH):
            return None
        states: list[TensorValue] = []
        try:
            made_of = tuple([self._argument(arg, states) for arg in args])
            named = tuple([(name, self._argument(arg, states)) for name, arg in kwargs.items()])
        except _Unknown:
            return None
        size = 1 + sum(map(_size, (*made_of, *(arg for _, arg in named))))
        # A predicate is given one object, so that all of it must come from one tensor.
        if not states or any(state is not states[0] for state in states) or size > LONGEST:
            return None
        return StateNumber(states[0], Operation(function, made_of, named, size))

    def _argument(self, value: Value, states: list[TensorValue]) -> Any:
        value = self.trace.read(value)
        if isinstance(value, Sequence) and value.cls in (list, tuple):
            return tuple([self._argument(item, states) for item in value.items])
        number = scalars.scalar(self.trace, value)
        if isinstance(number, Const):
            if isinstance(value, TensorValue):
                return KnownTensor(number.value, value.fake.dtype)
            if isinstance(number.value, PLAIN):
                return number.value
        state = self.of(value)
        if state is None:
            raise _Unknown
        states.append(state.tensor)
        return state.recipe

    def note(self, fake: Fake, number: StateNumber) -> None:
        """Remember what the tensor holds from now on."""
        self._tensors[id(fake)] = number
        self._in_memory.setdefault(fake.untyped_storage()._cdata, []).append(id(fake))

    def forget(self, written: Iterable[Fake]) -> None:
        """Forget what tensors in the memory of `written` hold: it has been written to."""
        for fake in written:
            # Itself too: it may have been given other memory.
            for other in (id(fake), *self._in_memory.pop(fake.untyped_storage()._cdata, ())):
                self._tensors.pop(other, None)

    def forget_all(self) -> None:
        """Forget everything: a tensor has been given the memory of another one, so that writes
        can't be followed."""
        self._moved = True
        self._tensors.clear()
        self._in_memory.clear()

    # ---- what is read from them

    def note_read(self, args: list[Value], number: Any) -> None:
        """Note that the program has read a number from a tensor of its state: which one the symbol
        stands for."""
        state = self.of(self.trace.read(args[0])) if len(args) == 1 else None
        if state is None or not isinstance(number, SYMBOLIC):
            return
        for s in from_torch(number).symbols:  # one: of a bool, it is that of a condition
            self._symbols.setdefault(s, state)

    def answer(self, condition: Cond) -> bool | None:
        """Whether the condition holds for the present numbers, with the guard that it does. None:
        it has other symbols too, or was asked for too many different numbers."""
        states = [self._symbols.get(s) for s in condition.symbols]
        state = states[0] if states else None
        if state is None or any(
            other is None or other.tensor is not state.tensor for other in states
        ):
            return None
        assert state.tensor.real is not None and state.tensor.source is not None
        history = self.trace.inputs.history
        number = state.tensor.real.item()
        if history.count_numbers_in(str(state.tensor.source), number) > MOST_NUMBERS:
            return None
        predicate = self._predicate(condition)
        answer = predicate.holds(state.tensor.real)
        if not answer:
            predicate = self._predicate(not_(condition))
            if not predicate.holds(state.tensor.real):  # it has no value: Python will say so
                return None
        self.trace.guard(GuardKind.PREDICATE, state.tensor.source, predicate)
        return answer

    def _predicate(self, condition: Cond) -> StateNumberFulfils:
        """The predicate that `condition` holds. Conditions that differ only in the names of symbols
        share one object, which remembers for which number it last held."""
        numbers = []
        names: dict[Any, Any] = {}
        for s in sorted(condition.symbols, key=lambda s: s.order):
            name = f"state_{len(names)}"
            names[s] = float_symbol(name) if isinstance(s, FloatExpr) else symbol(name)
            numbers.append((names[s], self._symbols[s].recipe))
        renamed = substitute(condition, names)
        texts = {s: f"{recipe}.item()" for s, recipe in numbers}
        text = to_python(renamed, texts)
        key = text, tuple(repr(recipe) for _, recipe in numbers)
        if key not in self._predicates:
            self._predicates[key] = StateNumberFulfils(renamed, tuple(numbers), text)
        return self._predicates[key]


class _Unknown(Exception):
    """An argument is neither known nor computed from state."""


PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


def _is_state(source: Source | None) -> bool:
    """Whether an object keeps what is found at `source`: there is an attribute on the way. What is
    passed to the function itself is data."""
    while source is not None:
        if isinstance(source, InstanceDict | Attr | Member):
            return True
        source = source.parent
    return False


def _size(arg: Any) -> int:
    if type(arg) is tuple:
        return sum(map(_size, arg))
    return arg.size if isinstance(arg, Operation) else 0


# ---- writes

Update = tuple[Fake, Const | StateNumber]


def updates(
    trace: Trace,
    function: Any,
    args: list[Value],
    kwargs: dict[str, Value],
    result: OpResult,
) -> list[Update]:
    """What tensors of one element hold after an operation that writes to them. Called before the
    write is noted, since it depends on what they held."""
    changes: list[Update] = []
    calls = [call for call in _calls_of_one(trace, args) if _has_one_element(call[0])]
    # It writes to something else too: nothing is known of what it leaves.
    if {id(fake) for fake in result.mutated} != {id(fake) for fake, _ in calls}:
        return changes
    # To run it would draw, or leave out what one of its calls writes for another to read.
    if result.random or (len(calls) > 1 and _share_memory(trace, args, result.mutated)):
        return changes
    for fake, arguments in calls:
        number = scalars.computed(trace, function, arguments, kwargs)
        state = number or trace.state_numbers.result(function, arguments, kwargs)
        if state is not None:
            changes.append((fake, state))
    return changes


def _has_one_element(fake: Fake) -> bool:
    """Symbolic sizes are not compared, which would leave a guard."""
    count = fake.numel()
    return type(count) is int and count == 1


def _calls_of_one(trace: Trace, args: list[Value]) -> Iterator[tuple[Fake, list[Value]]]:
    """The calls, as `(written tensor, arguments)`, that this call stands for. One on lists of
    tensors (`torch._foreach_add_`) is a call for each of them."""
    first = trace.read(args[0]) if args else None
    if isinstance(first, TensorValue):
        yield first.fake, args
    elif isinstance(first, Sequence):
        lists = [trace.read(arg) for arg in args]
        for index, item in enumerate(first.items):
            tensor = trace.read(item)
            if isinstance(tensor, TensorValue):
                yield tensor.fake, [_at(arg, index) for arg in lists]


def _share_memory(trace: Trace, args: list[Value], written: tuple[Fake, ...]) -> bool:
    """Whether a written tensor shares its memory with another argument."""
    lists = [value for value in map(trace.read, args) if isinstance(value, Sequence)]
    tensors = [trace.read(item) for value in lists for item in value.items]
    memory = Counter(
        tensor.fake.untyped_storage()._cdata
        for tensor in tensors
        if isinstance(tensor, TensorValue)
    )
    return any(memory[fake.untyped_storage()._cdata] > 1 for fake in written)


def _at(value: Value, index: int) -> Value:
    if not isinstance(value, Sequence) or index >= len(value.items):
        return value
    return Sequence(list, [value.items[index]])


def note_updates(
    trace: Trace, function: Any, args: list[Value], written: tuple[Fake, ...], changes: list[Update]
) -> None:
    """Forget what written tensors held, and note what is known of them now."""
    if function is setattr and trace.read(args[1]).constant() == "data":
        scalars.forget_all(trace)
        trace.state_numbers.forget_all()
    scalars.forget(trace, written)
    trace.state_numbers.forget(written)
    for fake, number in changes:
        if isinstance(number, StateNumber):
            trace.state_numbers.note(fake, number)
        else:
            scalars.remember(trace, fake, number)


def note_result(
    trace: Trace, function: Any, args: list[Value], kwargs: dict[str, Value], fake: Fake
) -> None:
    """Note what a new tensor of one element holds, if that is known."""
    if fake.dim() or fake.device.type != "cpu" or fake.requires_grad:
        return
    scalars.note(trace, function, args, kwargs, fake)
    if id(fake) not in trace.scalars:
        state = trace.state_numbers.result(function, args, kwargs)
        if state is not None:
            trace.state_numbers.note(fake, state)


def note_numbers(
    trace: Trace,
    function: Any,
    args: list[Value],
    kwargs: dict[str, Value],
    result: OpResult,
    changes: list[Update] | None,
) -> None:
    """Note what an operation tells of numbers in tensors. `changes` is what written tensors hold
    now, or None if it writes to none."""
    if changes is not None:
        note_updates(trace, function, args, result.mutated, changes)
    elif isinstance(result.value, Fake) and not result.random:
        note_result(trace, function, args, kwargs, result.value)
    else:
        trace.state_numbers.note_read(args, result.value)
