"""`Kernels`: the loop IR of every group of a schedule, and its text for the target's compiler.

The one idea: all kernels are there before anything is said about launching them. A group whose
kernel can't be written or compiled is named by a `KernelError`; its operators are then left to
PyTorch, and everything is lowered once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pliant.base import events
from pliant.base.isolation import FATAL
from pliant.base.values import dataclass, replace
from pliant.graph.ir import Node
from pliant.launch.kernel_names import label_of, lines_of
from pliant.loop.body import FLAG, unknown_argument
from pliant.loop.define import Computed, Definition
from pliant.loop.fuse import FusionGroup
from pliant.loop.ir import Kernel, structure
from pliant.loop.scheduled import Scheduled, ScheduledGroup
from pliant.loop.write import write_kernel
from pliant.ops.lowering import NotLowered
from pliant.sym.expr import Expr
from pliant.targets.target import Hint, KernelSource, LaunchParameters, Slower, Target

IsNatural = Callable[[Expr], bool]
ComputedBy = Callable[[Collection[Definition]], tuple[Node, ...]]


class KernelRefused(Exception):
    """Raised where the target lacks a type or an operation. It is no failure: PyTorch runs the
    operators of that kernel."""


class KernelError(Exception):
    """Raised for a group that has no kernel, because of the `error`. `others` are further groups
    that the target refuses, so that all are left to PyTorch at once."""

    def __init__(
        self, group: FusionGroup, error: Exception, others: tuple[KernelError, ...] = ()
    ) -> None:
        super().__init__(group, error)
        self.group = group
        self.error = error
        self.others = others

    @property
    def loops(self) -> list[Definition]:
        """The members that aren't computed element by element (reductions, scans, scatters): what a
        target refuses is rarely about the others."""
        return [m for m in self.group.members if not isinstance(m.body, Computed)]


@dataclass(frozen=True, slots=True, eq=False)
class GroupKernel:
    """The kernel of a group. `memory` has the definition that each of its buffers is, in order."""

    kernel: Kernel
    memory: tuple[Definition, ...]
    source: KernelSource
    launch: LaunchParameters
    target: Target
    operators: tuple[Node, ...] = ()  # that it computes, for targets that name kernels

    def __str__(self) -> str:
        """The source if people read that (Triton), under the program's lines; else the loop IR."""
        if not self.source.readable:
            return str(self.kernel)
        return "\n".join([*lines_of(self.operators), self.source.text.rstrip()])


@dataclass(frozen=True, slots=True, eq=False)
class Kernels:
    """The kernels of a schedule, as loops and as code for the target. They stand by the position of
    their group in it; a group of which nothing is stored has none."""

    groups: Mapping[int, GroupKernel]

    def __str__(self) -> str:
        return "\n".join([str(group.kernel) for group in self.groups.values()])


def write_kernels(
    scheduled: Scheduled,
    targets: Mapping[str, Target],
    hint: Hint,
    is_natural: IsNatural,
    computed_by: ComputedBy = lambda definitions: (),
) -> Kernels:
    """Write the kernels, each for the target of the device that has its memory (`targets`, by type
    of device). `is_natural`: whether a number is surely at least 0. `computed_by`: the operators
    that became these definitions. Raises one `KernelError` for all groups that are refused."""
    groups: dict[int, GroupKernel] = {}
    sources: dict[Any, KernelSource] = {}  # a network of equal layers has few different kernels
    refused: list[KernelError] = []  # all of them, or the graph is lowered again for each
    for at, item in enumerate(scheduled.items):
        if not isinstance(item, ScheduledGroup):
            continue
        name = f"kernel{len(groups)}"
        device = item.group.members[0].device
        target = targets[device]
        with _blamed_on(item.group, refused):
            written = write_kernel(
                *(item.group, item.stored, name, hint, item.reuse, target.arrange),
                at_once=target.updates_at_once,
            )
            if (unknown := unknown_argument(written.kernel)) is not None:
                raise KernelRefused(f"{unknown} has a number beyond 64 bits")
            # Strides and numbers from data may be negative, for which divisions have to be signed.
            signed = frozenset(s for s in written.kernel.sizes if not is_natural(s))
            kernel = replace(written.kernel, signed=signed) if signed else written.kernel
            operators = computed_by(item.group.members) if target.names_kernels else ()
            kernel = replace(kernel, label=label_of(operators)) if operators else kernel
            if not written.memory:  # nothing of it is needed
                continue
            foreign = {m.device for m in written.memory if m is not FLAG} - {device}
            if foreign:
                raise KernelRefused(f"memory of {foreign.pop()} in a kernel for {device}")
            if (reason := target.refusal(kernel, hint)) is not None:
                raise KernelRefused(reason)
            launch = target.launch_parameters(kernel, hint)
            # By structure, names aside: writing the text takes longer than comparing.
            if (key := (device, structure(kernel))) not in sources:
                sources[key] = target.generate(kernel, hint)
            made = (kernel, written.memory, sources[key], launch, target, operators)
            groups[at] = GroupKernel(*made)
    _raise_all(refused)
    return Kernels(groups)


def compile_kernels(function: str, kernels: Kernels, scheduled: Scheduled) -> dict[str, Any]:
    """Compile the kernels of `function`. Returns handles for the launcher, by key."""
    handles: dict[str, Any] = {}
    # Equal layers of a network have equal kernels.
    different: dict[str, tuple[int, GroupKernel]] = {}
    for place, kernel in kernels.groups.items():
        different.setdefault(kernel.source.key, (place, kernel))
    events.emit(
        events.WorkBegan(
            function=function, work="compiling", unit="kernel", done=handles.__len__,
            total=len(different),
        )
    )  # fmt: skip
    slower: dict[str, Slower] = {}
    for target in {group.target for _, group in different.values()}:
        chosen = [(at, group) for at, group in different.values() if group.target == target]
        started = target.start([group.source for _, group in chosen])
        for (at, group), finish in zip(chosen, started, strict=True):
            with _blamed_on(_group_at(scheduled, at)):
                try:
                    handles[group.source.key] = finish()
                except Slower as reason:
                    slower[group.source.key] = reason
    refused = [
        KernelError(_group_at(scheduled, at), KernelRefused(str(slower[group.source.key])))
        for at, group in kernels.groups.items()
        if group.source.key in slower
    ]
    _raise_all(refused)
    return handles


def _group_at(scheduled: Scheduled, at: int) -> FusionGroup:
    item = scheduled.items[at]
    assert isinstance(item, ScheduledGroup)
    return item.group


def _raise_all(refused: list[KernelError]) -> None:
    if refused:
        raise KernelError(refused[0].group, refused[0].error, tuple(refused[1:]))


@contextmanager
def _blamed_on(group: FusionGroup, refused: list[KernelError] | None = None) -> Iterator[None]:
    """Turn exceptions into a `KernelError` of this group. If there is a list `refused`, a refusal
    is collected there instead of raised."""
    try:
        yield
    except KernelRefused as reason:
        if refused is None:
            raise KernelError(group, reason) from reason
        refused.append(KernelError(group, reason))
    except (NotLowered, NotImplementedError, *FATAL):
        raise  # about the whole graph, or no mistake of ours
    except Exception as error:
        raise KernelError(group, error) from error
