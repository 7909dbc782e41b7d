"""Other backends that look at the example inputs, for a graph with symbolic sizes.

The one idea: a backend that is built on AOTAutograd makes fake tensors of the examples. From
torch.compile it gets symbolic ones; the examples here are real tensors and numbers, so its code is
for their sizes alone. To find out, the backend is given a fake mode to use: if it has converted
tensors with it, it is called again for other sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from pliant.base.values import dataclass
from pliant.sym.frozen import Shapes

LIMIT = 64  # sets of sizes; for further ones the graph runs as it was captured

Backend = Callable[[fx.GraphModule, list[Any]], Any]


def has_symbols(shapes: Shapes | None) -> bool:
    """Whether the inputs of a graph may have other sizes, or be other numbers."""
    return shapes is not None and any(getattr(item, "symbols", None) for item in shapes.read())


def may_vary(shapes: Shapes | None, examples: Sequence[Any]) -> bool:
    """Whether these inputs may differ from call to call: in symbols, or in plain numbers, some of
    which no guard checks (those drawn at random)."""
    numbers = any(type(example) in (int, float) for example in examples)
    return has_symbols(shapes) or (shapes is not None and numbers)


def compile_by_sizes(backend: Backend, gm: fx.GraphModule, examples: list[Any]) -> Any:
    """The backend's code for a graph with symbols; a `BySizes` if it has looked at the sizes."""
    untouched = _copy(gm)  # backends may change the graph
    mode = FakeTensorMode()
    with tracing(TracingContext(mode)):
        compiled = backend(gm, examples)
    if not mode.fake_tensor_converter.tensor_memo or not callable(compiled):
        return compiled
    return BySizes(backend, untouched, {sizes_of(examples): compiled})


def _copy(gm: fx.GraphModule) -> fx.GraphModule:
    graph = fx.Graph()
    result = graph.graph_copy(gm.graph, {})
    graph.output(result)
    copied = fx.GraphModule(gm, graph)
    copied.meta.update(gm.meta)
    return copied


def sizes_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """A key of all that may differ between calls that pass the same guards."""
    return tuple(
        (tuple(arg.shape), arg.stride()) if isinstance(arg, torch.Tensor) else arg for arg in args
    )


@dataclass(frozen=True, slots=True)
class BySizes:
    """The code of a backend for each set of sizes that was met, compiled at the first call."""

    backend: Backend
    gm: fx.GraphModule
    compiled: dict[tuple[Any, ...], Callable[..., Any]]

    def __call__(self, *args: Any) -> Any:
        sizes = sizes_of(args)
        code = self.compiled.get(sizes)
        if code is None:
            if len(self.compiled) >= LIMIT:
                return self.gm.forward(*args)
            code = self.compiled[sizes] = self.backend(_copy(self.gm), list(args))
        return code(*args)
