"""What a launcher runs, for those who measure it.

The one idea: a launcher measures its steps by number (`pliant._native.profile`) and knows nothing
else of them. What a step is (a kernel, a call of PyTorch) and how much it computes is worked out
from here, when it is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pliant.base.values import dataclass
from pliant.launch.program import Step
from pliant.loop.ir import MEMORY, WEIGHT, Kernel, Loop, Op, Statement, values
from pliant.targets.target import Hint

KERNEL: Final = "kernel"
CALL: Final = "PyTorch"
MEMORY_STEP: Final = "memory"
KINDS: Final = {
    **dict.fromkeys(("cpu_kernel", "cpu_batch", "cuda_kernel", "python_kernel"), KERNEL),
    **dict.fromkeys(("call", "python", "item"), CALL),
}
"""What the time of a step is spent in: generated code or PyTorch. The rest is about memory."""

_UNCOUNTED: Final = MEMORY | {Op.CONSTANT, Op.IOTA, Op.AS_INDEX, Op.CAST, Op.BITCAST, Op.CARRIED}
SHOWN: Final = 3  # operations in the name of a kernel


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What a step of a program is, for people. `operations` counts operations on numbers, at the
    sizes that were seen when it was compiled. `kernels`: the names of those that it launches."""

    kind: str
    name: str
    operations: int = 0
    text: str = ""
    kernels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class LaunchInfo:
    """The graph that a launcher runs, and its program. `function` is whose graph it is.
    `kernels`: by key. Layers that are equal have equal kernels, whose `names` are in the order in
    which they are launched."""

    function: str
    graph: Any
    steps: tuple[Step, ...]
    keys: tuple[str, ...]
    kernels: Mapping[str, Kernel]
    names: Mapping[str, Sequence[str]]
    hint: Hint

    def describe(self, number: int) -> MeasuredStep:
        """Describe the step with this number."""
        step = self.steps[number]
        kind = KINDS.get(step[0], MEMORY_STEP)
        if step[0] == "call":
            return MeasuredStep(kind, step[1])
        if kind is not KERNEL:
            return MeasuredStep(kind, step[0])
        keys = self._launched(step)
        kernels = [self.kernels[key] for key in keys]
        # A batch launches several kernels, and is named after the first.
        names = self._names(number, keys)
        more = len(names) - 1
        name = f"{names[0]} and {more} more" if more else names[0]
        used = dict.fromkeys(op for kernel in kernels for op in _operators(kernel))
        listed = ", ".join([*list(used)[:SHOWN], *["…"][: len(used) > SHOWN]])
        operations = sum(count_operations(kernel.body, self.hint) for kernel in kernels)
        text = "\n".join(map(str, kernels))
        full = f"{name} ({listed})" if listed else name
        return MeasuredStep(kind, full, operations, text, names)

    def _launched(self, step: Step) -> list[str]:
        """The keys of the kernels that a step launches."""
        if KINDS.get(step[0]) is not KERNEL:
            return []
        launches = step[1] if step[0] == "cpu_batch" else (step,)
        return [self.keys[launch[1]] for launch in launches]

    def _names(self, number: int, keys: Sequence[str]) -> tuple[str, ...]:
        before = Counter(key for step in self.steps[:number] for key in self._launched(step))
        names = []
        for key in keys:
            names.append(self.names[key][before[key]])
            before[key] += 1
        return tuple(names)


def _operators(kernel: Kernel) -> Iterable[str]:
    return [value.op.text for value in values(kernel.body) if value.op not in _UNCOUNTED]


def count_operations(body: tuple[Statement, ...], hint: Hint) -> int:
    """Roughly how many operations on numbers the statements take. A function such as `exp` counts
    as many (`WEIGHT`)."""
    total = 0
    for item in body:
        if isinstance(item, Loop):
            total += count_operations(item.body, hint) * max(hint(item.extent), 0)
        elif item.op not in _UNCOUNTED:
            total += WEIGHT.get(item.op, 1)
    return total
