"""What makes kernels and programs well formed, as programs that say what is wrong with one.

The one idea: walk the steps in order with the set of what is there: slots with a tensor in them,
and values that have been computed. Run between stages in tests; off in production, where the
launcher itself refuses what could make it crash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pliant.base.malformed import MalformedStageError
from pliant.launch.arithmetic import NATIVE
from pliant.launch.kernels import GroupKernel, Kernels
from pliant.launch.program import Program, Step
from pliant.loop.body import FLAG
from pliant.loop.check import check
from pliant.loop.fuse import owner
from pliant.loop.ir import Access
from pliant.loop.scheduled import Scheduled, ScheduledGroup


def check_kernels(kernels: Kernels, scheduled: Scheduled) -> Kernels:
    """The kernels themselves, or an error that lists what is wrong with them."""
    problems: list[str] = []
    for at, kernel in kernels.groups.items():
        item = scheduled.items[at] if at < len(scheduled.items) else None
        if not isinstance(item, ScheduledGroup):
            problems.append(f"{kernel.kernel.name} belongs to no group")
            continue
        check(kernel.kernel)
        problems += _buffers(kernel, item)
    for at, item in enumerate(scheduled.items):
        if isinstance(item, ScheduledGroup) and item.stored and at not in kernels.groups:
            problems.append(f"no kernel stores {', '.join(map(str, item.stored))}")
    if problems:
        raise MalformedStageError("\n".join([*problems, "in", str(kernels)]))
    return kernels


def _buffers(group: GroupKernel, item: ScheduledGroup) -> Iterator[str]:
    """A kernel writes what the schedule says, and reads what its group does."""
    kernel = group.kernel
    if len(group.memory) != len(kernel.buffers):
        yield f"{kernel.name} has {len(kernel.buffers)} buffers for {len(group.memory)} tensors"
        return
    # What the schedule has the kernel write and read.
    written = {item.reuse.get(member) or owner(member) for member in item.stored} | {FLAG}
    read = {owner(of) for reads in item.group.reads.values() for of, _ in reads.places}
    for buffer, memory in zip(kernel.buffers, group.memory):
        if buffer.type is not memory.type:
            yield f"buffer {buffer.name} of {kernel.name} is {buffer.type}, {memory} {memory.type}"
        if buffer.device != memory.device:
            yield f"buffer {buffer.name} of {kernel.name} is on {buffer.device}"
        if buffer.access is not Access.READ and memory not in written:
            yield f"{kernel.name} writes {memory}, which is not declared"
        if buffer.access is Access.READ and memory not in read:
            yield f"{kernel.name} reads {memory}, which its group does not"
    for memory in written - set(group.memory) - {FLAG}:
        yield f"{kernel.name} does not store {memory}"


def check_program(program: Program) -> Program:
    """The program itself, or an error that lists what is wrong with it."""
    problems = list(_Checker(program).problems())
    if problems:
        raise MalformedStageError("\n".join([*problems, "in", str(program)]))
    return program


class _Checker:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.slots = set(range(program.inputs))
        self.freed: set[int] = set()
        self.values = set(range(len(program.symbols)))
        self.kernels: set[int] = set()

    def problems(self) -> Iterator[str]:
        program = self.program
        for slot, *_ in program.symbols:
            yield from self._use_slot(slot, "a symbol")
        for step in program.steps:
            if step[0] not in STEPS:
                yield f"there is no step {step[0]}"
            else:
                yield from STEPS[step[0]](self, step)
        yield from self._items(program.outputs, "the result")
        for slot in program.written:
            if not 0 <= slot < program.inputs:
                yield f"t{slot} is declared as written, and is no input"
        for number in set(range(len(program.kernels))) - self.kernels:
            yield f"kernel {number} is never launched"

    # ---- what steps take and make

    def _use_slot(self, slot: int, user: str) -> Iterator[str]:
        if slot in self.freed:
            yield f"{user} uses t{slot} after it is freed"
        elif slot not in self.slots:
            yield f"{user} uses t{slot} before it is there"

    def _use_slots(self, slots: Iterable[int], user: str) -> Iterator[str]:
        for slot in slots:
            yield from self._use_slot(slot, user)

    def _make_slot(self, slot: int, maker: str) -> Iterator[str]:
        if slot in self.slots:
            yield f"{maker} makes t{slot}, which is there already"
        self.slots.add(slot)

    def _use_values(self, values: Iterable[int], user: str) -> Iterator[str]:
        for value in values:
            if value not in self.values:
                yield f"{user} uses v{value} before it is computed"

    def _make_value(self, value: int, maker: str) -> Iterator[str]:
        if value in self.values:
            yield f"{maker} computes v{value} once more"
        self.values.add(value)

    def _object(self, number: int, user: str) -> Iterator[str]:
        if not 0 <= number < self.program.objects:
            yield f"{user} uses object {number} of {self.program.objects}"

    def _items(self, items: Iterable[Step], user: str) -> Iterator[str]:
        for kind, *rest in items:
            if kind == "slot":
                yield from self._use_slot(rest[0], user)
            elif kind in ("value", "float", "bool"):
                yield from self._use_values(rest, user)
            elif kind == "list":
                yield from self._items(rest[0], user)
            elif kind == "bound":
                yield from self._object(rest[0], user)

    def _results(self, items: Iterable[Step], maker: str) -> Iterator[str]:
        for kind, *rest in items:
            if kind == "slot":
                yield from self._make_slot(rest[0], maker)
            elif kind != "drop":
                yield from self._make_value(rest[0], maker)

    # ---- steps

    def compute(self, step: Step) -> Iterator[str]:
        yield from self._make_value(step[1], "compute")

    def empty(self, step: Step) -> Iterator[str]:
        yield from self._use_values((*step[3], *step[4]), step[0])
        yield from self._make_slot(step[1], step[0])

    def view(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[2], "view")
        yield from self._use_values((*step[3], *step[4], step[5]), "view")
        yield from self._make_slot(step[1], "view")

    def take(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[2], "take")
        if step[2] >= self.program.inputs:
            yield f"t{step[2]} is taken, and is no input"
        self.freed.add(step[2])
        yield from self._make_slot(step[1], "take")

    def laid_out(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[1], "laid_out")
        yield from self._use_values((*step[3], *step[4]), "laid_out")

    def kernel(self, step: Step) -> Iterator[str]:
        _, number, slots, values, extent, *_ = step
        name = f"kernel {number}"
        self.kernels.add(number)
        if not 0 <= number < len(self.program.kernels):
            yield f"there is no {name}"
        yield from self._use_slots([slot for slot in slots if slot != -1], name)
        yield from self._use_values([*values, *([] if extent == -1 else [extent])], name)

    def tile_kernel(self, step: Step) -> Iterator[str]:
        """Of a target whose launch parameters are numbers of values, all of them."""
        yield from self.kernel((*step[:3], step[4:-1], -1))

    def call(self, step: Step) -> Iterator[str]:
        yield from self._items(step[3], step[1])
        yield from self._results(step[4], step[1])

    def python(self, step: Step) -> Iterator[str]:
        yield from self._object(step[1], "python")
        yield from self._items(step[2], f"object {step[1]}")
        yield from self._results(step[3], f"object {step[1]}")

    def calculate(self, step: Step) -> Iterator[str]:
        if step[1] not in NATIVE:
            yield f"there is no operation {step[1]} on floats"
        yield from self.python(step[1:])

    def require(self, step: Step) -> Iterator[str]:
        yield from self._use_values((step[1],), "require")
        yield from self.python(step[1:])

    def item(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[1], "item")
        yield from self._results(step[2], "item")

    def batch(self, step: Step) -> Iterator[str]:
        for kernel in step[1]:
            yield from self.kernel(kernel)

    def read(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[2], "read")
        yield from self._make_value(step[1], "read")

    def apart(self, step: Step) -> Iterator[str]:
        for part in step[1:7]:
            yield from self._use_values(part if isinstance(part, tuple) else (part,), "apart")

    def in_range(self, step: Step) -> Iterator[str]:
        yield from self._use_values((step[1],), "in_range")

    def sizes(self, step: Step) -> Iterator[str]:
        yield from self._object(step[1], "sizes")
        yield from self._use_values([value for value, _ in step[2]], "sizes")

    def uses(self, step: Step) -> Iterator[str]:
        yield from self._use_slot(step[1], step[0])

    def free(self, step: Step) -> Iterator[str]:
        yield from self._use_slots(step[1], "free")
        self.freed.update(step[1])

    def nothing(self, step: Step) -> Iterator[str]:
        yield from ()


STEPS: Final[dict[str, Callable[[Any, Step], Iterator[str]]]] = {
    "compute": _Checker.compute,
    "cpu_empty": _Checker.empty,
    "empty": _Checker.empty,
    "cpu_kernel": _Checker.kernel,
    "cuda_kernel": _Checker.tile_kernel,
    "python_kernel": _Checker.tile_kernel,
    "view": _Checker.view,
    "take": _Checker.take,
    "laid_out": _Checker.laid_out,
    "call": _Checker.call,
    "python": _Checker.python,
    "calculate": _Checker.calculate,
    "require": _Checker.require,
    "item": _Checker.item,
    "cpu_batch": _Checker.batch,
    "read": _Checker.read,
    "apart": _Checker.apart,
    "in_range": _Checker.in_range,
    "sizes": _Checker.sizes,
    "save": _Checker.uses,
    "wrote": _Checker.uses,
    "free": _Checker.free,
    "check": _Checker.nothing,
    "random": _Checker.nothing,
}
