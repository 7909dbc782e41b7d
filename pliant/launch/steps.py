"""The steps of a launch sequence in the making: numbers, tensors, kernels and calls.

The one idea: everything that a call needs to compute is a number in one array (a value, `v0`) or a
tensor in another (a slot, `t0`), and a step says which of them it takes and makes. Numbers that
depend on sizes alone are computed before anything runs. For `y = x * 2` and any size s0 of x:

    ("compute", 1, ...)                       v1 = 1, the stride; v0 = s0 is read from x
    ("cpu_empty", 1, float32, (0,), (1,))     t1 = memory of size v0 and stride v1
    ("cpu_kernel", 0, (0, 1), (0,), ...)      kernel 0 on t0 and t1, with the size v0
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import partial
from typing import Any, Final

import torch

from pliant.base.checks import CHECKS
from pliant.base.devices import CPU
from pliant.base.values import dataclass
from pliant.graph.ir import InputObject
from pliant.launch.arithmetic import arithmetic_parts
from pliant.launch.kernels import GroupKernel
from pliant.launch.operators import OperatorCall, TensorView
from pliant.launch.program import Step, is_plain
from pliant.loop.body import FLAG
from pliant.loop.define import Definition, contiguous
from pliant.loop.scheduled import ScheduledGroup
from pliant.sym.cond import Cond, eq
from pliant.sym.expr import STRICT, Expr, evaluate, if_else, integer, maximum, product_of
from pliant.sym.floats import FloatExpr, float_bits, held_as
from pliant.sym.functions import python_function
from pliant.sym.program import instructions

FLAG_SLOT: Final = -1  # the flag of errors, in place of a tensor
ABSENT: Final = -1  # a launch parameter that a kernel does not have


@dataclass(slots=True)
class StepWriter:
    """A launch sequence under construction. `place` is the device of the target's tensors."""

    place: torch.device = CPU
    values: dict[Any, int] = field(default_factory=dict)  # numbers of values, by expression
    slots: dict[Definition, int] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    computes: list[Step] = field(default_factory=list)  # run before `steps`
    kernels: dict[str, int] = field(default_factory=dict)  # numbers, by key
    objects: list[Any] = field(default_factory=list)  # live ones, which steps have numbers of
    returned: dict[int, object] = field(default_factory=dict)  # by slot
    numbers: Mapping[Any, Any] = field(default_factory=dict)  # by symbols that stand for them
    late: set[Any] = field(default_factory=set)  # symbols that are not known from the start
    foreign: set[Definition] = field(default_factory=set)  # in memory that PyTorch has allocated
    first: dict[Definition, Definition] = field(default_factory=dict)  # which had that memory first
    strides: set[Any] = field(default_factory=set)  # symbols that are no sizes
    donated: set[Definition] = field(default_factory=set)  # inputs that are not taken over yet
    _views: dict[Any, int] = field(default_factory=dict)
    _count: int = 0

    def new_slot(self) -> int:
        self._count += 1
        return self._count - 1

    def bind(self, symbol: Any, number: int) -> None:
        self.values[symbol] = number

    def live(self, object: Any) -> int:
        """The number of a live object, such as a Python function, which is no data."""
        self.objects.append(object)
        return len(self.objects) - 1

    def value(self, expr: Any) -> int:
        """The number of the value that an expression has (of a float, of its bits). If it is new, a
        step that computes it is added."""
        key = held_as(expr)
        number = self.values.get(key)
        if number is None and key in self.numbers:
            # The symbol stands for an expression that kernels don't compute: it is computed here,
            # once.
            number = self.values[key] = self.value(self.numbers[key])
        if number is None:
            read = {held_as(s): s for s in expr.symbols}
            # A chain of operations on floats is a step for each, which the launcher computes
            # without Python.
            parts = arithmetic_parts(expr, self.values)
            for part in parts[:-1]:
                self.value(part)
            number = len(self.values)
            # What depends on sizes alone is computed before anything runs, the rest in its place.
            steps = self.computes if self.late.isdisjoint(read) else self.steps
            try:
                if parts:
                    steps.append(self._calculate(expr, number))
                elif isinstance(expr, FloatExpr):
                    raise NotImplementedError("floats in a program for the stack machine")
                else:
                    steps.append(("compute", number, instructions(expr, self.values)))
            except NotImplementedError:  # floats, or numbers beyond 64 bits
                args = tuple([(_KIND[type(s)], self.values[place]) for place, s in read.items()])
                function = self.live(_function(expr, tuple(read.values())))
                steps.append(("python", function, args, ((_KIND[type(expr)], number),)))
            self.values[key] = number
        return number

    def _calculate(self, expr: Any, number: int) -> Step:
        """The step for one operation on floats, whose operands are values already."""
        args: list[Step] = []
        for operand in expr.args:
            constant = operand.value
            if constant is None or isinstance(operand, Cond):
                self.value(operand)  # a symbol that stands for a number
                args.append((_KIND[type(operand)], self.values[held_as(operand)]))
            else:
                args.append(("const", float(constant)))
        result = ((_KIND[type(expr)], number),)
        return ("calculate", expr.op, self.live(STRICT[expr.op]), tuple(args), result)

    def define_unbacked(self, symbol: Expr) -> int:
        """A new value for a symbol that a step of the program gives its number."""
        self.late.add(symbol)
        number = self.values[symbol] = len(self.values)
        return number

    def all_values(self, exprs: Iterable[Expr]) -> tuple[int, ...]:
        return tuple([self.value(expr) for expr in exprs])

    def as_seen(self, sizes: Sequence[Expr], steps: Sequence[Expr]) -> list[Expr]:
        """Strides (or an offset) as PyTorch has them. When it computes those of an empty tensor, it
        counts a size of 0 as 1; expressions don't, and it makes no difference to anything else."""
        count = product_of(sizes)
        if count.value or not any(step.symbols for step in steps):
            return list(steps)
        if tuple(steps) == contiguous(sizes):  # the same where no size is 0
            return list(contiguous([maximum(size, 1) for size in sizes]))
        # A choice at run time, between the strides of a tensor with elements and of one without.
        empty = [_with_ones(step, self.strides) for step in steps]
        return [
            step if step is if_empty else if_else(eq(count, 0), if_empty, step)
            for step, if_empty in zip(steps, empty, strict=True)
        ]

    def slot(self, view: TensorView, returned: object = None, inner: bool = False) -> int:
        """The slot of a tensor: that of its memory if it is all of it, else that of a view, which
        is made once. `returned`: the tensor of the program that it is returned as; memory that has
        been returned as one tensor is viewed for another. `inner`: for an operator that returns
        new tensors."""
        base, first = self.slots[view.of], self.first.get(view.of, view.of)
        # A view of all of the memory, as it was made, is that tensor itself.
        is_same = (view.sizes, view.strides) == (first.sizes, first.strides)
        is_same = is_same and view.offset.value == 0 and view.dtype is first.type.dtype
        is_same = is_same and not view.written
        if first is not view.of and first in self.foreign:  # strides of its own where n is 1
            is_same = is_same and returned is None
        if is_same and (returned is None or self.returned.setdefault(base, returned) is returned):
            return base
        # `id(returned)`: two results of the program are two tensors, even if they look the same.
        key = (base, view.sizes, view.strides, view.offset, view.dtype, id(returned), inner)
        slot = self._views.get(key)
        if slot is None:
            slot = self._views[key] = self.new_slot()
            # The strides of an empty tensor are visible to the program, too.
            strides = self.as_seen(view.sizes, view.strides)
            (start,) = self.as_seen(view.sizes, [view.offset])
            layout = (self.all_values(view.sizes), self.all_values(strides), self.value(start))
            self.steps.append(("view", slot, base, *layout, view.dtype, inner))
        return slot

    def keep_apart(self, condition: Any) -> None:
        """Add the test of a `graph.ir.NoOverlap`; nothing runs if it fails."""
        numbers: list[Any] = []
        for layout in filter(None, (condition.one, condition.other)):
            places = (self.all_values(layout.sizes), self.all_values(layout.strides))
            numbers += [*places, self.value(layout.offset)]
        more = [] if condition.other is None else [condition.elementwise]
        self.steps.append(("apart", *numbers, *more))

    def keep_in_range(self, condition: Any) -> None:
        """Add the test of a `graph.ir.InRange`; nothing runs if it fails."""
        bounds = (condition.low, condition.high, condition.infinite)
        self.steps.append(("in_range", self.value(condition.number), *bounds))

    # ---- kernels

    def save(self, parts: Iterable[Definition]) -> None:
        """Copy parts of inputs before they are overwritten; they are put back after a failure."""
        for part in parts:
            dtype = part.type.dtype
            view = TensorView(part, part.sizes, part.strides, part.offset, dtype)
            assert part.into is not None
            self.slots[part] = self.slots[part.into]
            self.first[part] = self.first.get(part.into, part.into)
            # Copied before the kernel runs; the launcher puts it back if a later step raises.
            self.steps.append(("save", self.slot(view, inner=True)))

    def allocate(self, item: ScheduledGroup) -> None:
        """Allocate memory for what a group stores, or give it that of others which it reuses."""
        for member in item.group.members:
            memory = member.into or item.reuse.get(member)
            if memory in self.donated:
                self._take(memory)
            if memory is not None:
                self.slots[member] = self.slots[memory]
                self.first[member] = self.first.get(memory, memory)
            elif member in item.stored:
                self._allocate(member)

    def _take(self, donated: Definition) -> None:
        """Move a donated input to a slot of the program's own, so that it is freed, or returned,
        like memory that the program has allocated."""
        self.donated.remove(donated)
        slot = self.new_slot()
        self.steps.append(("take", slot, self.slots[donated]))
        self.slots[donated] = slot

    def _allocate(self, definition: Definition) -> None:
        slot = self.slots[definition] = self.new_slot()
        strides = self.as_seen(definition.sizes, definition.strides)
        layout = (self.all_values(definition.sizes), self.all_values(strides))
        if definition.device == "cpu":
            self.steps.append(("cpu_empty", slot, definition.type.dtype, *layout))
        else:
            self.steps.append(("empty", slot, definition.type.dtype, *layout, self.place))

    def launch(self, batch: Sequence[tuple[GroupKernel, bool]]) -> None:
        """Launch kernels that can run at the same time. Each comes with whether it is `final`: it
        overwrites what was read of an input."""
        steps = [self._kernel(kernel, final) for kernel, final in batch]
        self.steps += steps if len(steps) < 2 else [("cpu_batch", tuple(steps))]
        if any(FLAG in kernel.memory for kernel, _ in batch):
            # Reads the flag, and lets PyTorch run the graph from the start, which then raises.
            self.steps.append(("check",))

    def _kernel(self, kernel: GroupKernel, final: bool) -> Step:
        number = self.kernels.setdefault(kernel.source.key, len(self.kernels))
        slots = tuple([self._slot_of(memory) for memory in kernel.memory])
        launch = [self._parameter(parameter) for parameter in kernel.launch]
        sizes = self.all_values(kernel.kernel.sizes)
        return (kernel.target.launch_step, number, slots, sizes, *launch, final)

    def _parameter(self, parameter: Expr | float | None) -> int | float:
        if isinstance(parameter, Expr):
            return self.value(parameter)
        return ABSENT if parameter is None else parameter

    def _slot_of(self, memory: Definition) -> int:
        return FLAG_SLOT if memory is FLAG else self.slots[memory]

    # ---- calls

    def call(
        self,
        operator: OperatorCall,
        makes: Sequence[Definition],
        dtypes: Sequence[torch.dtype],
        defines: Sequence[Any] = (),
        final: bool = False,
    ) -> None:
        """Call an operator of PyTorch, whose results are the memory of `makes`. `defines`: the
        unbacked symbols (`graph.ir.UnbackedSymbol`) that it gives values. `final`: it overwrites
        what was read of an input."""
        if operator.overload == "out":
            self._call_into(operator, makes)
            return
        given = operator.args
        if operator.name == "aten::empty_strided":  # what is like it will show its strides
            given = (given[0], self.as_seen(*given[:2]), *given[2:])
        args = tuple([self._argument(arg) for arg in given])
        for result in makes:
            if result.into is not None:
                self.slots[result] = self.slots[result.into]
                self.first[result] = self.first.get(result.into, result.into)
            else:
                self.slots[result] = self.new_slot()
        new = [result for result in makes if result.into is None]
        # Its results are laid out as PyTorch likes: `laid_out` tests that it is as was foreseen.
        self.foreign.update(makes)
        results: list[tuple[Any, ...]] = [("slot", self.slots[result]) for result in new]
        sizes = [unbacked for unbacked in defines if unbacked.what in ("size", "stride")]
        for unbacked in defines:
            place = self.define_unbacked(unbacked.symbol)
            if unbacked not in sizes:
                results.append(("value" if unbacked.what == "int" else unbacked.what, place))
        # A step of its own, which needs no Python.
        if operator.name == "aten::_local_scalar_dense":
            self.steps.append(("item", args[0][1], tuple(results)))
        elif operator.python in CHECKS and isinstance(operator.args[0], Cond):
            check = (self.live(operator.python), args, (("drop",),), final)
            self.steps.append(("require", args[0][1], *check))
        elif operator.python is not None:
            # Python's None is dropped like any other result.
            results = results or ([("drop",)] if not makes else [])
            function = self.live(operator.python)
            self.steps.append(("python", function, args, tuple(results), final))
        else:
            self.steps.append(("call", operator.name, operator.overload, args, tuple(results)))
        for unbacked in sizes:
            slot = self.slots[makes[unbacked.result]]
            # Before `laid_out`, which compares with expressions of these sizes.
            read = ("read", self.values[unbacked.symbol], slot, unbacked.what, unbacked.dim)
            self.steps.append(read)
        for result, dtype in zip(makes, dtypes, strict=True):
            if result.into is not None:
                continue
            layout = (self.all_values(result.sizes), self.all_values(result.strides))
            # Kernels that read the result have its strides in their code, so another layout has to
            # be noticed.
            self.steps.append(("laid_out", self.slots[result], dtype, *layout))

    def _call_into(self, operator: OperatorCall, makes: Sequence[Definition]) -> None:
        """A call that stores what it makes in memory which is among its arguments."""
        for result in makes:
            self._allocate(result)
        args = tuple(
            [
                ("slot", self.slot(arg, inner=True))
                if isinstance(arg, TensorView)
                else self._argument(arg)
                for arg in operator.args
            ]
        )
        results = (("drop",),) * len(makes)
        self.steps.append(("call", operator.name, operator.overload, args, results))

    def _argument(self, value: Any) -> tuple[Any, ...]:
        if isinstance(value, TensorView):
            return ("slot", self.slot(value, inner=value.written))
        if isinstance(value, InputObject):
            return ("slot", value.index)
        if isinstance(value, Expr):
            return ("value", self.value(value))
        if isinstance(value, Cond):
            return ("bool", self.value(value))
        if isinstance(value, FloatExpr):
            return ("float", self.value(value))
        if isinstance(value, (list, tuple)) and any(map(_moves, value)):
            return ("list", tuple([self._argument(item) for item in value]))
        return self.constant(value)

    def constant(self, value: Any) -> Step:
        """An argument or output that is the same in each call."""
        if value is None:
            return ("none",)
        return ("const", value) if is_plain(value) else ("bound", self.live(value))

    def freed(self, lasting: Iterable[int]) -> tuple[Step, ...]:
        """All steps, with each tensor freed right after its last use, unless its slot is in
        `lasting` (liveness analysis of straight-line code)."""
        # Twice: dropping a "laid_out" step may move the last use of a tensor forward.
        last = _last_uses(self.steps)
        needed = [  # the layout of a result that is not read again doesn't matter
            step
            for at, step in enumerate(self.steps)
            if step[0] != "laid_out" or step[1] in lasting or last[step[1]] > at
        ]
        gone: dict[int, list[int]] = {}
        # A "view" step counts as a use of its base, but a tensor keeps its storage alive by itself.
        staying = {step[2] for step in needed if step[0] == "take"}.union(lasting)
        for slot, at in _last_uses(needed).items():
            if slot not in staying:
                gone.setdefault(at, []).append(slot)
        # Numbers that depend on sizes alone are computed before the first step that can fail.
        steps = list(self.computes)
        for at, step in enumerate(needed):
            steps.append(step)
            if at in gone:
                steps.append(("free", tuple(gone[at])))
        return tuple(steps)


def _with_ones(step: Expr, strides: Set[Any]) -> Expr:
    """The stride with sizes of 0 counted as 1. `strides` are symbols of strides of inputs, which
    stay as they are, like all expressions that are no sizes themselves (the start of a slice)."""
    total = integer(step.const)
    for product, times in step.terms:
        factors = [
            maximum(atom, 1) if atom.op == "symbol" and atom not in strides else atom
            for atom, exponent in product.factors
            for _ in range(exponent)
        ]
        total = total + product_of(factors) * times
    return total


_KIND: Final = {Expr: "value", FloatExpr: "float", Cond: "bool"}


def _function(expr: Any, symbols: tuple[Any, ...]) -> Callable[..., Any]:
    """A Python function of the values of symbols, for what the launcher does not compute."""
    try:
        return python_function(expr, symbols)
    except NotImplementedError:  # choices and conditions
        return partial(_evaluate, expr, symbols)


def _evaluate(expr: Any, symbols: tuple[Any, ...], *values: Any) -> Any:
    return evaluate(expr, dict(zip(symbols, values, strict=True)))


def _moves(value: Any) -> bool:
    """Whether an argument has a tensor or a symbolic number in it."""
    if isinstance(value, (list, tuple)):
        return any(map(_moves, value))
    return isinstance(value, (TensorView, Expr, FloatExpr, Cond))


def _last_uses(steps: Sequence[Step]) -> dict[int, int]:
    """By slot: the position of the last step that reads or makes it."""
    return {slot: at for at, step in enumerate(steps) for slot in _slots_in(step)}


def _slots_in(step: tuple[Any, ...]) -> set[int]:
    """The slots that a step reads or makes."""
    return {slot for slot in _SLOTS.get(step[0], lambda step: ())(step) if slot >= 0}


def _in_items(items: Iterable[Any]) -> Iterator[int]:
    for item in items:
        if isinstance(item, tuple) and item[0] == "slot":
            yield item[1]
        elif isinstance(item, tuple) and item[0] == "list":
            yield from _in_items(item[1])


_SLOTS: Final[dict[str, Callable[[tuple[Any, ...]], Iterable[int]]]] = {
    **dict.fromkeys(("cpu_empty", "empty"), lambda step: (step[1],)),
    "laid_out": lambda step: (step[1],),
    "view": lambda step: (step[1], step[2]),
    "take": lambda step: (step[1], step[2]),
    "read": lambda step: (step[2],),
    "save": lambda step: (step[1],),
    **dict.fromkeys(("cpu_kernel", "cuda_kernel", "python_kernel"), lambda step: step[2]),
    "cpu_batch": lambda step: [slot for kernel in step[1] for slot in kernel[2]],
    "call": lambda step: _in_items((*step[3], *step[4])),
    "python": lambda step: _in_items((*step[2], *step[3])),
    "item": lambda step: (step[1],),
}


def symbols_of(
    inputs: Sequence[Any],
) -> tuple[list[tuple[int, str, int]], Mapping[Any, int]]:
    """Where symbols are read from in each call: (input, "size", dim), (input, "stride", dim) or
    (input, "int" or "float", 0), the first place for each; and the position of each symbol in that
    list, which is the number of its value."""
    # A symbol that stands in several places is read from the first: guards say that all are equal.
    sources: list[tuple[int, str, int]] = []
    numbers: dict[Any, int] = {}

    def note(symbol: Any, source: tuple[int, str, int]) -> None:
        if symbol not in numbers:
            numbers[symbol] = len(sources)
            sources.append(source)

    for index, value in enumerate(inputs):
        if isinstance(value, Expr):
            if value.op == "symbol":
                note(value, (index, "int", 0))
        elif getattr(value, "op", "") == "fsymbol":
            note(float_bits(value), (index, "float", 0))
        elif hasattr(value, "sizes"):
            for measure, extents in (("size", value.sizes), ("stride", value.strides)):
                for dim, number in enumerate(extents):
                    if number.op == "symbol":
                        note(number, (index, measure, dim))
    return sources, numbers
