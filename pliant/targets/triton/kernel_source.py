"""A kernel of the loop IR as the source that Triton compiles, and what a launch gives to it."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.body import FLAG
from pliant.loop.ir import Buffer, Kernel
from pliant.sym.expr import Expr
from pliant.targets.triton.index_text import KernelArgument, KernelArguments
from pliant.targets.triton.matmul import DescribedProduct, PointedProduct, described
from pliant.targets.triton.printer import CombinePrinter, KernelPrinter, LoopedRows, WholeRows
from pliant.targets.triton.tiling import MatrixProduct, Pass, Tiling, tiled


@dataclass(frozen=True, slots=True, eq=False)
class PrintedKernel:
    """The source of a kernel; the tensors that it takes, and numbers, in order. The variant with
    indices of 32 bits is right if all `bounds` are within 32 bits. `described`: for a product of
    matrices, which of the arguments (counted over both) have to be multiples of 16 bytes for
    descriptors; None if these are impossible."""

    source: str
    tiling: Tiling
    buffers: tuple[Buffer, ...]
    arguments: tuple[KernelArgument, ...]
    bounds: tuple[Expr, ...]
    asserts: bool  # it has assertions, for errors that eager PyTorch would raise
    described: tuple[int, ...] | None = None


@lru_cache(16)
def printed(kernel: Kernel) -> PrintedKernel:
    """The kernel as Triton source; `NotTiled` if there is none."""
    tiling, arguments = tiled(kernel), KernelArguments()
    # Each scan has a function that combines two states, in front of the kernel.
    scans = [scan for item in tiling.body if isinstance(item, Pass) for scan in item.scans]
    combines = [
        CombinePrinter(kernel, tiling, arguments, at, scan.combine) for at, scan in enumerate(scans)
    ]
    printers = [kind(kernel, tiling, arguments) for kind in _kinds(tiling)]
    for printer in [*combines, *printers]:
        printer.body()
    numbers = tuple(arguments.all.values())
    buffers = tuple([buffer for buffer in kernel.buffers if buffer.name != FLAG.name])
    parameters = [buffer.name for buffer in buffers] + [argument.name for argument in numbers]
    texts = [printer.function(parameters) for printer in [*combines, *printers]]
    return PrintedKernel(
        "\n\n\n".join(texts) + "\n",
        *(tiling, buffers, numbers, tuple(arguments.bounds)),
        asserts=len(buffers) < len(kernel.buffers),
        described=_described(tiling.product, buffers, numbers),
    )


def _kinds(tiling: Tiling) -> tuple[type[KernelPrinter], ...]:
    if tiling.product is not None:
        return DescribedProduct, PointedProduct
    return (WholeRows, LoopedRows) if tiling.by_rows else (KernelPrinter,)


ALIGNMENT: Final = 8
"""Halves in 16 bytes."""


def _described(
    product: MatrixProduct | None,
    buffers: tuple[Buffer, ...],
    numbers: tuple[KernelArgument, ...],
) -> tuple[int, ...] | None:
    if product is None:
        return None
    places = [
        at
        for at, b in enumerate(buffers)
        if b in (product.left.load.buffer, product.right.load.buffer)
    ]
    by_expr = {number.expr: len(buffers) + at for at, number in enumerate(numbers)}
    for expr in described(product):
        if expr.value is None:
            places.append(by_expr[expr])
        elif expr.value % ALIGNMENT:
            return None
    return tuple(sorted(set(places)))
