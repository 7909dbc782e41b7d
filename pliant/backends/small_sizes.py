"""Sizes of 0 and 1, for which PyTorch lays tensors out in ways that no one expression describes.

The one idea: let PyTorch say it. A compiled graph speaks of all sizes at once. The first call in
which some of them are 0 or 1 runs the graph as it was captured, and the strides that come out tell
whether the compiled one may run from then on. If it may not, a variant is compiled that knows which
sizes are 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from pliant._native import isolated
from pliant.base import events
from pliant.base.forks import COMPILATION
from pliant.base.values import dataclass
from pliant.graph.aliases import NotFunctionalized
from pliant.launch.sequence import OutputLayout, SymbolSource
from pliant.sym.expr import Expr, evaluate

MOST_PATTERNS: Final = 64
MOST_VARIANTS: Final = 8


@dataclass(slots=True)
class SmallSizes:
    """What is done in such calls. `layout` is what the program foresees of its results, `sizes` are
    those that may be small, by number of value. `variant` compiles the graph for arguments, some
    sizes known to be 1."""

    function: str
    forward: Callable[..., Any]
    variant: Callable[[Sequence[Any], frozenset[Expr]], Variant]
    layout: OutputLayout
    sizes: Mapping[int, Expr]
    raise_on_fallback: bool
    patterns: int = 0
    variants: int = 0

    def __call__(self, launcher: Any, pattern: str, *args: Any) -> Any:
        """The first call with such sizes, and what those after it do."""
        result = self.forward(*args)
        if self.patterns < MOST_PATTERNS:
            self.patterns += 1
            launcher.settle(pattern, self._settled(pattern, args, result))
        return result

    def _settled(
        self, pattern: str, args: Sequence[Any], result: Sequence[Any]
    ) -> Callable[..., Any] | None:
        if are_laid_out(self.layout, args, result):
            return None
        small = [item.split("=") for item in pattern.split()]
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
        good = are_laid_out(variant.layout, args, result)
        return variant.launcher if good else self.forward


@dataclass(frozen=True, slots=True)
class Variant:
    """A graph compiled for some sizes."""

    launcher: Callable[..., Any]
    layout: OutputLayout


def are_laid_out(layout: OutputLayout, args: Sequence[Any], result: Sequence[Any]) -> bool:
    """Whether the results have the strides that are foreseen for these arguments."""
    values = {symbol: _read(args, source) for symbol, source in layout.symbols.items()}
    for strides, tensor in zip(layout.strides, result, strict=True):
        if strides is None or not isinstance(tensor, torch.Tensor):
            continue
        for expr, actual in zip(strides, tensor.stride(), strict=True):
            known = expr.symbols <= values.keys()  # others are in the data
            if known and evaluate(expr, values) != actual:
                return False
    return True


def _read(args: Sequence[Any], source: SymbolSource) -> Any:
    index, what, dim = source
    value = args[index]
    return getattr(value, what)(dim) if what in ("size", "stride") else value
