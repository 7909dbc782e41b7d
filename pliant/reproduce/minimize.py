"""The smallest program that still fails: delta debugging of a captured graph.

The one idea: whether a smaller program fails in the same way is always tried, never concluded. So a
step may be as bold as it likes. The steps: fewer nodes, fewer results, random numbers for the
user's, fewer settings, smaller sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeVar

import torch
from torch import fx
from torch.utils._pytree import tree_map

from pliant.base.isolation import FATAL
from pliant.base.values import dataclass, replace
from pliant.reproduce.graphs import Pieces, RecordedGraph
from pliant.reproduce.inputs import FEW, INTEGERS, InputWriter, tensors_in
from pliant.reproduce.script import Script, SeenFailure

T = TypeVar("T")


@dataclass(slots=True)
class Trial:
    """Runs scripts, until the time is up. After that, none counts as failing, so that nothing gets
    smaller."""

    failure: SeenFailure
    seconds: float = 300.0
    started: float = field(default_factory=time.monotonic)

    def fails(self, script: Script) -> bool:
        """Whether the script fails as the program did."""
        if time.monotonic() - self.started > self.seconds:
            return False
        try:
            failure = script.failure()
        except FATAL:
            raise
        except Exception:  # eager PyTorch can't run it, or it can't be written down
            return False
        return failure is not None and failure.kind == self.failure.kind


def smallest_subset(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging (Zeller's ddmin): a subset that fails, and of which no single item can be
    left out.

    `fails` is called O(n²) times in the worst case, and O(log n) times if one item is to blame.
    """
    items, chunks = list(items), 2
    while len(items) >= 2:
        size = -(-len(items) // chunks)
        parts = [items[i : i + size] for i in range(0, len(items), size)]
        # Reduce to a part that fails by itself ...
        smaller = next((part for part in parts if fails(part)), None)
        if smaller is not None:
            items, chunks = smaller, 2
            continue
        # ... or leave out a part that isn't needed ...
        rests = [[i for p in parts if p is not part for i in p] for part in parts]
        smaller = next((rest for rest in rests if len(parts) > 2 and fails(rest)), None)
        if smaller is not None:
            items, chunks = smaller, max(chunks - 1, 2)
        # ... or try smaller parts, down to single items.
        elif chunks >= len(items):
            break
        else:
            chunks = min(2 * chunks, len(items))
    return items


@dataclass(frozen=True, slots=True)
class Minimized:
    """A script, and the nodes of the graph that are left in it."""

    script: Script
    nodes: tuple[fx.Node, ...]


class GraphMinimizer:
    """Makes a failing graph smaller: fewer nodes, fewer results, no values of the user, fewer
    settings, smaller sizes."""

    def __init__(
        self, record: RecordedGraph, settings: Mapping[str, Any], gradients: bool, trial: Trial
    ) -> None:
        self.pieces = Pieces(record)
        self.trial = trial
        settings = {**settings, "dynamic": True} if record.symbolic else dict(settings)
        self.settings: Mapping[str, Any] = settings
        self.gradients = gradients and record.grad_enabled

    def whole(self) -> Script:
        """The graph as it is."""
        return self._script(self.pieces.nodes)

    def minimize(self) -> Minimized:
        """The smallest script. The whole graph must fail (`whole`)."""
        nodes = smallest_subset(
            self.pieces.nodes, lambda kept: self.trial.fails(self._script(kept))
        )
        outputs = self.pieces.outputs(nodes)
        outputs = smallest_subset(outputs, lambda some: self.trial.fails(self._script(nodes, some)))
        script = self._script(nodes, outputs)
        code = self.pieces.code(nodes, outputs)
        script, all_random = without_values(self.trial, script, code.inputs)
        script = without_settings(self.trial, script)
        if all_random:
            script = self._smaller(script, nodes, outputs)
        return Minimized(script, tuple(nodes))

    def _script(
        self, nodes: Collection[fx.Node], outputs: Sequence[fx.Node] | None = None
    ) -> Script:
        """The script of these nodes, with the program's own values as inputs."""
        nodes = {*nodes}
        code = self.pieces.code(nodes, self.pieces.outputs(nodes) if outputs is None else outputs)
        return Script(
            code.text,
            InputWriter(lambda tensor: True).write(code.inputs),
            self.settings,
            self.pieces.record.grad_enabled,
            self.gradients,
            saved=code.saved,
        )

    def _smaller(
        self,
        script: Script,
        nodes: Collection[fx.Node],
        outputs: Sequence[fx.Node],
    ) -> Script:
        """The script with the smallest sizes that still fail. A size may also be an argument of
        nodes (`view(8, 4)`): such constants are replaced too, where that is needed."""
        remaining = {*nodes}
        sizes: dict[int, int] = {}
        constants: dict[int, int] = {}
        for size, smaller in smaller_sizes(self.pieces.code(remaining, outputs).inputs):
            if size in sizes:
                continue
            # A number among the arguments may be this size by chance: first without replacing it.
            for changed in (constants, {**constants, size: smaller}):
                code = self.pieces.code(remaining, outputs, changed)
                written = InputWriter().write(resized(code.inputs, {**sizes, size: smaller}))
                candidate = replace(script, function=code.text, inputs=written)
                if self.trial.fails(candidate):
                    script, sizes, constants = candidate, {**sizes, size: smaller}, changed
                    break
        return script


def without_values(trial: Trial, script: Script, inputs: Any) -> tuple[Script, bool]:
    """The script with random numbers for the values of inputs, and whether that was possible for
    all of them. If not, tensors are tried one by one."""
    random_only = replace(script, inputs=InputWriter().write(inputs))
    if trial.fails(random_only):
        return random_only, True
    real = {id(tensor) for tensor in tensors_in(inputs)}
    for tensor in tensors_in(inputs):
        fewer = real - {id(tensor)}
        if tensor.numel() <= FEW:
            continue  # a few numbers can be read
        candidate = replace(script, inputs=InputWriter(lambda t: id(t) in fewer).write(inputs))  # noqa: B023
        if trial.fails(candidate):
            script, real = candidate, fewer
    return script, False


def without_settings(trial: Trial, script: Script) -> Script:
    """The script without settings that the failure doesn't need."""
    candidates: list[Callable[[Script], Script]] = [lambda s: replace(s, gradients=False)]
    for name in script.settings:
        candidates.append(
            lambda s, name=name: replace(  # type: ignore[misc]
                s, settings={key: value for key, value in s.settings.items() if key != name}
            )
        )
    for simpler in candidates:
        candidate = simpler(script)
        if candidate != script and trial.fails(candidate):
            script = candidate
    return script


def smaller_sizes(inputs: Any) -> Iterator[tuple[int, int]]:
    """Each size of the inputs, the largest first, with each smaller size to try in its place."""
    sizes = {size for tensor in tensors_in(inputs) for size in tensor.shape if size > 2}
    for size in sorted(sizes, reverse=True):
        for smaller in (1, 2, 3, 4, 8, 16, size // 2):
            if smaller < size:
                yield size, smaller


def resized(inputs: Any, sizes: Mapping[int, int]) -> Any:
    """The inputs with other sizes. The new tensors are uninitialised, but for the range of
    integers."""

    def resize(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not tensors_in(value):
            return value
        shape = [sizes.get(size, size) for size in value.shape]
        if shape == list(value.shape):
            return value
        return _empty_like(value, shape)

    return tree_map(resize, inputs)


def _empty_like(tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """A tensor of this shape, with its dimensions in the same order in memory."""
    strides, step = [0] * len(shape), 1
    for dim in sorted(range(len(shape)), key=lambda d: (tensor.stride(d), -d)):
        if tensor.stride(dim):
            strides[dim] = step
            step *= max(shape[dim], 1)
    result = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    if tensor.dtype in INTEGERS and tensor.numel():
        base = result.as_strided((step,), (1,))
        base.fill_(tensor.min())
        base[0] = tensor.max()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(result, tensor.requires_grad)
    return result.requires_grad_(tensor.requires_grad)
