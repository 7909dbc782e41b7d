"""How PyTorch lays out results, for sizes and strides that are plain numbers.

The one idea: rules for symbolic sizes speak of every size at once, as if none were 0 or 1. Here is
what happens with the sizes at hand, step by step as PyTorch does it. Where the two differ, somebody
has to ask which sizes are 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Numbers = tuple[int, ...]
Layout = tuple[Numbers, Numbers]  # sizes and strides


def insertion_sorted(
    count: int, goes_outside: Callable[[int, int], int | None]
) -> list[int] | None:
    """The dimensions from the innermost to the outermost, beginning with row-major order.

    As PyTorch does it: the comparison is no total order, so the algorithm matters. It says whether
    its first argument goes outside (1), inside (-1), does not tell (0), or that it can't be told
    (None).
    """
    # Not `sorted`: with ties and "does not tell", the result depends on which pairs are compared.
    inner = list(reversed(range(count)))
    for start in range(1, count):
        at = start
        for below in range(start - 1, -1, -1):
            verdict = goes_outside(inner[below], inner[at])
            if verdict is None:
                return None
            if verdict > 0:
                inner[below], inner[at] = inner[at], inner[below]
                at = below
            elif verdict < 0:
                break
    return inner


def row_major(sizes: Sequence[int]) -> Numbers:
    return packed(sizes, range(len(sizes) - 1, -1, -1), least=1)


def packed(sizes: Sequence[int], inner: Sequence[int], least: int = 0) -> Numbers:
    """The strides of a dense tensor with the dimensions in the order `inner`, the innermost first.
    PyTorch counts a size of 0 as 1 in some places: there `least` is 1."""
    strides, step = [0] * len(sizes), 1
    for dim in inner:
        strides[dim] = step
        step = step * (max(sizes[dim], least) if least else sizes[dim])
    return tuple(strides)


def is_packed(layout: Layout, inner: Sequence[int]) -> bool:
    """Whether the strides are those of `packed`, except in dimensions of size 1."""
    sizes, strides = layout
    step = 1
    for dim in inner:
        if sizes[dim] != 1:
            if strides[dim] != step:
                return False
            step *= sizes[dim]
    return True


def is_contiguous(layout: Layout) -> bool:
    return 0 in layout[0] or is_packed(layout, range(len(layout[0]) - 1, -1, -1))


def is_dense(layout: Layout) -> bool:
    """Whether the elements fill their stretch of memory, each place once."""
    if is_contiguous(layout):
        return True
    sizes, strides = layout
    return is_packed(layout, sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d])))


def spread(layout: Layout, sizes: Numbers) -> Numbers:
    """The strides of a tensor that is broadcast: 0 in dimensions that are repeated."""
    shift = len(sizes) - len(layout[0])
    own = zip(*layout, sizes[shift:], strict=True)
    return (0,) * shift + tuple([0 if n == 1 != wide else stride for n, stride, wide in own])


def sorted_by(operands: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """The dimensions from the innermost to the outermost, by the strides of the operands; the first
    that can tell decides. (Of symbolic numbers, everything is asked.)"""

    def goes_outside(a: int, b: int) -> int:
        for strides in operands:
            # A broadcast operand has no order in that dimension.
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if sizes[a] > sizes[b]:
                return 1
        return 0

    inner = insertion_sorted(len(sizes), goes_outside)
    assert inner is not None
    return inner


def permuted(operands: Sequence[Sequence[int]], sizes: Numbers) -> Numbers:
    inner = sorted_by(operands, sizes)
    return row_major(sizes) if inner == list(reversed(range(len(sizes)))) else packed(sizes, inner)


def pointwise(tensors: Sequence[Layout], sizes: Numbers, uniform: bool = True) -> Numbers:
    """The layout of the result of a pointwise operation. Not `uniform`: there is a number among the
    operands, so they are not all of one shape."""
    # The fast paths of TensorIterator, in its order: contiguous, channels-last, equal strides.
    if uniform and all(t[0] == sizes for t in tensors):
        if all(map(is_contiguous, tensors)):
            return row_major(sizes)
        if len(sizes) == 4 and all(is_packed(t, (1, 3, 2, 0)) for t in tensors):
            return packed(sizes, (1, 3, 2, 0), least=1)
        if all(t[1] == tensors[0][1] and is_dense(t) for t in tensors):
            return tensors[0][1]
    return permuted([spread(t, sizes) for t in tensors], sizes)


def like(tensor: Layout) -> Numbers:
    """The layout of a copy."""
    sizes, strides = tensor
    return strides if is_dense(tensor) else permuted([strides], tuple(max(n, 1) for n in sizes))


def viewed(tensor: Layout, shape: Sequence[int]) -> Numbers | None:
    """The strides of `tensor.view(shape)`, or None if there is no such view.

    From the innermost dimension on, dimensions that lie as one in memory are joined, and each such
    run is cut into dimensions of the new shape (PyTorch's `computeStride`).
    """
    sizes, strides = tensor
    if not sizes:
        return (1,) * len(shape)
    if 0 in sizes:
        return strides if tuple(shape) == tuple(sizes) else row_major(shape)
    result: list[int] = []
    left = list(shape)
    have, base = 1, strides[-1]
    for dim in range(len(sizes) - 1, -1, -1):
        have *= sizes[dim]
        if dim and (sizes[dim - 1] == 1 or strides[dim - 1] == have * base):
            continue
        covered = 1
        while left and (covered < have or left[-1] == 1):
            result.append(covered * base)
            covered *= left.pop()
        if covered != have:
            return None
        have, base = 1, strides[dim - 1]
    return None if left else tuple(reversed(result))
