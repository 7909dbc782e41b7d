"""A functional graph as text, one call a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pliant.graph.ir import TEXT, Functional, Node, OutputView, Scalar, Tensor


def show(functional: Functional) -> str:
    """The graph: inputs, calls in order, what is returned and what is written to."""
    return "\n".join(_Text(functional).lines())


class _Text:
    def __init__(self, functional: Functional) -> None:
        self.functional = functional
        self.names: dict[Tensor, str] = {}

    def lines(self) -> Iterator[str]:
        functional = self.functional
        inputs = [self._declare(value, f"in{i}") for i, value in enumerate(functional.inputs)]
        yield f"functional({', '.join(inputs)})"
        for tensor in functional.constants:
            yield f"  {self._declare(tensor, f'c{len(self.names)}')} = constant"
        for node in functional.nodes:
            yield f"  {self._node(node)}"
        for index, tensor in functional.writes.items():
            yield f"  write in{index} = {self._text(tensor)}"
        yield f"  return {', '.join(map(self._text, functional.outputs))}"

    def _declare(self, value: Any, name: str) -> str:
        if not isinstance(value, Tensor):
            return f"{name}: {value}"
        self.names[value] = name
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{name}: {dtype}[{', '.join(map(str, value.sizes))}]"

    def _node(self, node: Node) -> str:
        args = [self._text(arg) for arg in node.args]
        args += [f"{name}={self._text(value)}" for name, value in node.kwargs.items()]
        results = [self._declare(tensor, f"t{len(self.names)}") for tensor in node.results]
        results += [f"{unbacked.symbol}: {unbacked.what}" for unbacked in node.defines]
        assigned = f"{', '.join(results)} = " if results else ""
        remark = "  # view" if node.view else "  # generated" if node.generated else ""
        return f"{assigned}{node.name}({', '.join(args)}){remark}"

    def _text(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self.names.get(value, "?")
        if isinstance(value, OutputView):
            name = f"in{value.input}" if value.of is None else self.names.get(value.of, "?")
            return name if value.whole else f"{name}[{', '.join(map(str, value.sizes))}]"
        if isinstance(value, Scalar):
            return str(value.number)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(self._text, value))}]"
        return str(value)


TEXT[0] = show
