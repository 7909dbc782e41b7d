"""A partition as text: what is saved, how large it is and why; what is computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from pliant.base.errors import counted
from pliant.graph.ir import Node, Tensor
from pliant.graph.partition import Partition, Prices, can_be_repeated, fuses


def report_partition(partition: Partition, prices: Prices, inputs: Sequence[str]) -> str:
    """`inputs` are their names."""
    rows = list(_saved(partition, prices, inputs))
    rows += [_recomputed(node) for node in partition.recomputed]
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = [
        "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=False)]).rstrip()
        for row in rows
    ]
    return "\n".join([_summary(partition, prices), *lines])


def saved_bytes(
    partition: Partition, prices: Prices, inputs: Sequence[str]
) -> list[tuple[str, int]]:
    """What is saved: where it comes from, and its bytes."""
    saved = partition.saved
    return [
        (inputs[at] if kind == "input" else _operator(value), prices.bytes(value))
        for (kind, at), value in zip(saved.tensors, saved.values, strict=True)
    ]


def recomputed_bytes(partition: Partition, prices: Prices) -> list[tuple[str, int]]:
    """What is computed again: the operator, and the bytes that are not saved."""
    return [(node.name, prices.bytes(node.results[0])) for node in partition.recomputed]


def _summary(partition: Partition, prices: Prices) -> str:
    saved = partition.saved
    new = [
        value
        for (kind, _), value in zip(saved.tensors, saved.values, strict=True)
        if kind == "more"
    ]
    total = sum(map(prices.bytes, saved.values))
    extra = sum(map(prices.bytes, new))
    return (
        f"{counted(len(saved.values), 'tensor')} saved, {total:,} bytes, {extra:,} of them neither "
        f"inputs nor outputs; {counted(len(partition.recomputed), 'operation')} computed again"
    )


def _saved(partition: Partition, prices: Prices, inputs: Sequence[str]) -> Iterator[list[str]]:
    saved = partition.saved
    for (kind, at), value in zip(saved.tensors, saved.values, strict=True):
        name = inputs[at] if kind == "input" else _operator(value)
        yield ["saved", name, _shape(value), f"{prices.bytes(value):,} bytes", _why(kind, value)]


def _why(kind: str, value: Tensor) -> str:
    if kind in ("input", "output"):
        return f"is an {kind}"
    node = value.node
    if node is None or fuses(node):
        return "cheaper to read than to compute"
    return "called once" if can_be_repeated(node) else "can't be computed again"


def _recomputed(node: Node) -> list[str]:
    return ["computed again", _operator(node.results[0]), _shape(node.results[0])]


def _operator(value: Tensor) -> str:
    return value.node.name if value.node is not None else "an input"


def _shape(value: Tensor) -> str:
    sizes = ", ".join(map(str, value.sizes))
    return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
