"""What makes a functional graph well formed, as a program that says what is wrong with one.

Run between stages in tests; off in production.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from pliant.base.malformed import MalformedStageError
from pliant.graph.ir import Functional, MemoryWrite, Node, OutputView, Tensor, tensors_in
from pliant.sym.floats import held_as


def check_functional(functional: Functional) -> Functional:
    """The graph itself, or an error that lists what is wrong with it."""
    problems = list(_Checker(functional).problems())
    if problems:
        raise MalformedStageError("\n".join([*problems, "in", str(functional)]))
    return functional


class _Checker:
    def __init__(self, functional: Functional) -> None:
        self.functional = functional
        self.defined: set[Tensor] = set()
        self.symbols: set[Any] = set()  # whose value is known

    def problems(self) -> Iterator[str]:
        functional = self.functional
        for index, value in enumerate(functional.inputs):
            if isinstance(value, Tensor):
                yield from self._tensor(value, f"input {index}")
                self._know((*value.sizes, *value.strides))
            else:
                self._know((value,))
        for tensor in functional.constants:
            yield from self._tensor(tensor, "a constant")
        yield from self._nodes(functional.nodes)
        yield from self._outputs()
        yield from self._writes()

    def _know(self, numbers: Iterable[Any]) -> None:
        for number in numbers:
            self.symbols.update(map(held_as, number.symbols))

    def _tensor(self, tensor: Tensor, role: str) -> Iterator[str]:
        if tensor in self.defined:
            yield f"{role} is defined twice"
        self.defined.add(tensor)
        if len(tensor.sizes) != len(tensor.strides):
            yield f"{role} has {len(tensor.sizes)} sizes and {len(tensor.strides)} strides"
        if not isinstance(tensor.dtype, torch.dtype):
            yield f"{role} has the dtype {tensor.dtype!r}"
        if not isinstance(tensor.device, torch.device):
            yield f"{role} has the device {tensor.device!r}"

    def _nodes(self, nodes: Sequence[Node]) -> Iterator[str]:
        for node in nodes:
            for tensor in tensors_in((node.args, node.kwargs)):
                if tensor not in self.defined:
                    yield f"{node.name} uses a tensor before it is defined"
            if node.put is not None:
                yield from self._write(node, node.put)
            if node.view and (len(node.results) != 1 or not node.args):
                yield f"{node.name} is a view of nothing, or of several"
            self.symbols.update(unbacked.symbol for unbacked in node.defines)
            for tensor in node.results:
                yield from self._tensor(tensor, f"a result of {node.name}")
                yield from self._layout(tensor, node)
                if tensor.node is not node:
                    yield f"a result of {node.name} belongs to another node"

    def _layout(self, tensor: Tensor, node: Node) -> Iterator[str]:
        numbers = (*tensor.sizes, *tensor.strides, tensor.offset)
        used = {held_as(symbol) for number in numbers for symbol in number.symbols}
        for symbol in sorted(used - self.symbols, key=str):
            yield f"nothing tells {symbol} when {node.name} has run"

    def _write(self, node: Node, put: MemoryWrite) -> Iterator[str]:
        if put.old not in self.defined:
            yield f"{node.name} overwrites a tensor before it is defined"
        if put.input is not None and put.input not in self.functional.writes:
            yield f"{node.name} overwrites input {put.input}, which is not declared"

    def _outputs(self) -> Iterator[str]:
        for index, output in enumerate(self.functional.outputs):
            if not isinstance(output, OutputView):
                continue
            if output.of is not None and output.of not in self.defined:
                yield f"output {index} is not defined"
            if output.of is None and not self._is_input(output.input):
                yield f"output {index} is a view of input {output.input}, which is no tensor"

    def _writes(self) -> Iterator[str]:
        for index, value in self.functional.writes.items():
            if not self._is_input(index):
                yield f"input {index} is overwritten, and is no tensor"
            elif value not in self.defined:
                yield f"input {index} is overwritten with a tensor that is not defined"
            elif value.dtype is not self.functional.inputs[index].dtype:
                yield f"input {index} is overwritten with {value.dtype}"

    def _is_input(self, index: int | None) -> bool:
        inputs = self.functional.inputs
        return index is not None and index < len(inputs) and isinstance(inputs[index], Tensor)
