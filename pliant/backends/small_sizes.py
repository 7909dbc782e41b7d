"""Sizes of 0 and 1, for which PyTorch lays tensors out in ways that no one expression describes.

The one idea: ask PyTorch. A compiled graph foresees the strides of its results as expressions, for
all sizes at once. The first call in which some sizes are 0 or 1 runs the captured graph, and the
strides of what that returns are compared. If they are those foreseen, the compiled graph runs from
then on; if not, a variant is compiled that knows which sizes are 1. Which sizes are 0 or 1 is a
*pattern*: `"0=1 3=0"` says that the value with number 0 is 1, and that with number 3 is 0.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import torch

from pliant._native import isolated
from pliant.backends.fallbacks import Failures
from pliant.base import events
from pliant.base.forks import COMPILATION
from pliant.base.values import dataclass
from pliant.graph.aliases import NotFunctionalized
from pliant.launch.sequence import OutputLayout, SymbolSource
from pliant.runtime.differentiable import refuse
from pliant.sym.expr import Expr, evaluate

MOST_PATTERNS: Final = 64
MOST_VARIANTS: Final = 8


@dataclass(slots=True)
class SmallSizes:
    """Called by the launcher in the first call of each pattern. `forward` runs the captured graph;
    `layout` is what the program foresees of its results; `sizes` are those that may be small, by
    number of value; `variant(args, ones)` compiles the graph for sizes some of which are 1."""

    function: str
    forward: Callable[..., Any]
    variant: Callable[[Sequence[Any], frozenset[Expr]], Variant]
    layout: OutputLayout
    sizes: Mapping[int, Expr]
    raise_on_fallback: bool
    patterns: int = 0
    variants: int = 0

    def __call__(self, launcher: Any, pattern: str, *args: Any) -> Any:
        """Run the captured graph, and settle what later calls of this pattern do."""
        values = symbol_values(self.layout, args)  # before the graph writes to them
        result = self.forward(*args)
        if self.patterns < MOST_PATTERNS:
            self.patterns += 1
            as_usual = is_foreseen(self.layout, values, args, result)
            # None: the compiled code itself runs for this pattern from now on.
            launcher.settle(pattern, None if as_usual else self._settled(pattern, args, result))
        return result

    def _settled(
        self, pattern: str, args: Sequence[Any], result: Sequence[Any]
    ) -> Callable[..., Any]:
        """What to run for a pattern with strides that the program doesn't foresee: a variant, or
        the captured graph if some size is 0, if there are too many variants, or if a variant
        doesn't foresee them either."""
        small = [item.split("=") for item in pattern.split()]
        # Only for sizes of 1 is there a variant: with a size of 0 there is nothing to compute.
        ones = frozenset(self.sizes[int(value)] for value, number in small if number == "1")
        if len(ones) < len(small) or self.variants >= MOST_VARIANTS:
            return self.forward  # empty tensors take no time
        self.variants += 1
        try:
            variant: Variant = isolated(COMPILATION, [], self.variant, args, ones)
        except NotFunctionalized:
            return self.forward
        except Exception as error:
            if self.raise_on_fallback:
                raise
            events.emit(events.FellBack(function=self.function, reason=repr(error), error=error))
            return self.forward
        good = is_foreseen(variant.layout, symbol_values(variant.layout, args), args, result)
        return variant.launcher if good else self.forward


@dataclass(frozen=True, slots=True)
class Variant:
    """A graph compiled for some sizes."""

    launcher: Callable[..., Any]
    layout: OutputLayout


@dataclass(slots=True)
class SmallSizesInTraining:
    """The same for a graph under autograd, without variants: if strides aren't those foreseen,
    PyTorch runs the graph for the pattern. It stands for `eager`, the captured graph: the forward
    refuses in the first call of a pattern, and the caller then calls this."""

    eager: Callable[..., Any]
    failures: Failures
    layout: OutputLayout | None = None
    patterns: int = 0
    refused: dict[int, tuple[Any, str, Mapping[Any, Any]]] = field(default_factory=dict)
    """By thread: the launcher, the pattern and the sizes of a call that is left to PyTorch."""

    def watch(self, layout: OutputLayout, sizes: Mapping[int, Expr]) -> Callable[..., Any]:
        self.layout = layout
        return self._refuse_first

    def _refuse_first(self, launcher: Any, pattern: str, *args: Any) -> Any:
        if self.layout is not None and self.patterns < MOST_PATTERNS:
            values = symbol_values(self.layout, args)
            self.refused[threading.get_ident()] = (launcher, pattern, values)
        return refuse()

    def __call__(self, *args: Any) -> Any:
        launcher, pattern, values = self.refused.pop(threading.get_ident(), (None, "", {}))
        # The entry may be of an earlier call of this thread, after which this wasn't called.
        if launcher is None or self.layout is None or values != symbol_values(self.layout, args):
            return self.failures.run(self.eager, *args)
        result = self.eager(*args)
        self.patterns += 1
        as_usual = is_foreseen(self.layout, values, args, result)
        launcher.settle(pattern, None if as_usual else refuse)
        return result


def is_foreseen(
    layout: OutputLayout, values: Mapping[Any, Any], args: Sequence[Any], result: Sequence[Any]
) -> bool:
    """Whether the results are new tensors with the strides that are foreseen for these values of
    symbols. (Behind them, a compiled graph may have more.)"""
    others = [*args]  # dropout returns an empty tensor itself
    for strides, tensor in zip(layout.strides, result):
        if strides is None or not isinstance(tensor, torch.Tensor):
            continue
        if any(tensor is other for other in others):
            return False
        others.append(tensor)
        for expr, actual in zip(strides, tensor.stride(), strict=True):
            has_value = expr.symbols <= values.keys()  # others are in the data
            if has_value and evaluate(expr, values) != actual:
                return False
    return True


def symbol_values(layout: OutputLayout, args: Sequence[Any]) -> dict[Any, Any]:
    """The values of the symbols in a layout, read from the arguments of a call."""
    return {symbol: _read(args, source) for symbol, source in layout.symbols.items()}


def _read(args: Sequence[Any], source: SymbolSource) -> Any:
    index, measure, dim = source
    value = args[index]
    return getattr(value, measure)(dim) if measure in ("size", "stride") else value
