"""Whether what an operator writes shares memory with what it reads, or with itself.

The one idea: eager PyTorch refuses such a write or makes it in an order of its own, so it is left
to eager PyTorch. Sizes that are known decide it here. For symbolic sizes it is proven that there is
no overlap, or a condition is noted that the launcher tests before anything runs: where it fails,
the graph is run as it was captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, TensorAlias
from pliant.graph.ir import NoOverlap, Strided, Tensor
from pliant.loop.define import contiguous
from pliant.sym.cond import lt
from pliant.sym.expr import ONE, Expr, integer, mul, sum_of

_MOST_STEPS: Final = 100_000


def keep_apart(values: AliasWorld, name: str, read: Fake, written: Fake, elementwise: bool) -> None:
    """Require that two tensors share no memory: proven, made a condition of the graph, or else
    `NotFunctionalized`. `elementwise`: elements at the same index may be in the same place."""
    if elementwise and _same_or_apart(values.alias(read), values.alias(written)):
        return
    if read is written and not elementwise:
        raise NotFunctionalized(f"{name} reads what it writes")  # though it be empty: eager refuses
    # Places are counted in elements, unless the elements differ in size.
    a, b = strided(values.tensor(read)), strided(values.tensor(written))
    if read.dtype.itemsize != written.dtype.itemsize:
        a, b, elementwise = _in_bytes(a, read.dtype), _in_bytes(b, written.dtype), False
    # If the sizes of this very call overlap, the condition would fail at once.
    hinted_a, hinted_b = _hinted(values, a), _hinted(values, b)
    if hinted_a is not None and hinted_b is not None and overlap(hinted_a, hinted_b, elementwise):
        raise NotFunctionalized(f"{name} reads what it writes")
    if not (a.symbols or b.symbols) or (elementwise and a == b):
        return
    is_known = values.env.known
    if is_known(lt(_end(a), b.offset)) or is_known(lt(_end(b), a.offset)):
        return
    _demand(values, name, NoOverlap(a, b, elementwise))


def _same_or_apart(a: TensorAlias, b: TensorAlias) -> bool:
    """Whether two views of one tensor differ at most in which rows they are (`a[0]` and `a[i]`), or
    are single elements: they are the same or have nothing in common, whatever `i` is."""
    if a.value.dtype is b.value.dtype and not (a.value.sizes or b.value.sizes):
        return True
    if not _surely_injective(a):
        return False
    a, b = _of_all(a), _of_all(b)
    while a is not b:
        if a.parent is None or b.parent is None or not _are_rows(a, b):
            return False
        a, b = _of_all(a.parent), _of_all(b.parent)
    return True


def _of_all(alias: TensorAlias) -> TensorAlias:
    """The alias at the start of a chain of views with the same layout, such as `detach`."""
    while alias.parent is not None and strided(alias.value) == strided(alias.parent.value):
        alias = alias.parent
    return alias


def _are_rows(a: TensorAlias, b: TensorAlias) -> bool:
    """Whether both are made by the same view operator with the same arguments, but for the row that
    a `select` takes."""
    if a.op is None or b.op is None or a.op.name != b.op.name:
        return False
    if (a.args, a.kwargs, a.position) == (b.args, b.kwargs, b.position):
        return True
    selects = a.op.name == "aten.select.int" and not (a.kwargs or b.kwargs)
    return selects and a.args[:-1] == b.args[:-1]


def keep_injective(values: AliasWorld, name: str, alias: TensorAlias, target: Tensor) -> None:
    """Require that no two elements of a tensor are in one place: proven, made a condition of the
    graph, or else `NotFunctionalized`."""
    layout = strided(target)
    hinted = _hinted(values, layout)
    if hinted is not None and overlaps_itself(hinted[0], hinted[1]):
        raise NotFunctionalized(f"{name} writes to one place several times")
    if not layout.symbols or _surely_injective(alias):
        return
    _demand(values, name, NoOverlap(layout))


def _surely_injective(alias: TensorAlias) -> bool:
    """Whether the views on the way to the base prove that all elements have places of their own.
    (That the base, if it is an input, has no overlap itself is tested by the launcher.)"""
    while alias.parent is not None:
        if alias.op is None or not alias.op.record.injective:
            return False
        alias = alias.parent
    base = alias.base.value
    return alias.base.input is not None or base.strides == contiguous(base.sizes)


def _demand(values: AliasWorld, name: str, condition: NoOverlap) -> None:
    if not values.demand(condition):
        raise NotFunctionalized(f"{name} writes to places that depend on data")


def strided(t: Tensor) -> Strided:
    return Strided(t.sizes, t.strides, t.offset)


def _in_bytes(layout: Strided, dtype: Any) -> Strided:
    size = integer(dtype.itemsize)
    strides = tuple([stride * size for stride in layout.strides])
    return Strided((*layout.sizes, size), (*strides, ONE), layout.offset * size)


def _end(layout: Strided) -> Expr:
    """The place of the last element, if there are any."""
    steps = [mul(size - 1, stride) for size, stride in zip(layout.sizes, layout.strides)]
    return sum_of([layout.offset, *steps])


Hinted = tuple[tuple[int, ...], tuple[int, ...], int]


def _hinted(values: AliasWorld, layout: Strided) -> Hinted | None:
    """The layout at the sizes that were seen."""
    numbers = [values.env.hint(n) for n in (*layout.sizes, *layout.strides, layout.offset)]
    if None in numbers:
        return None
    rank = len(layout.sizes)
    return tuple(numbers[:rank]), tuple(numbers[rank:-1]), numbers[-1]


def overlaps_itself(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements may be in one place. May be true where none are, if strides are not
    nested in one another."""
    pairs = [(stride, size) for stride, size in zip(strides, sizes, strict=True) if size != 1]
    if any(size == 0 for _, size in pairs):
        return False
    span = 0
    for stride, size in sorted(pairs):
        # Sorted by stride, each dimension has to step over all that the smaller ones span.
        if stride <= span:
            return True
        span += (size - 1) * stride
    return False


def overlap(first: Hinted, second: Hinted, elementwise: bool) -> bool:
    """Whether two tensors have an element in common, other than, if `elementwise`, each with the
    one at the same index. PyTorch does not see that two tensors are the same if any of their
    strides differ, even where a dimension has one element."""
    if 0 in (*first[0], *second[0]):
        return False
    dims = [
        [(stride, size) for size, stride in zip(sizes, strides) if stride and size != 1]
        for sizes, strides, _ in (first, second)
    ]
    if dims[0] == dims[1] and first[1:] == second[1:]:
        return not elementwise
    steps: dict[int, list[int]] = {}
    # Dimensions with one stride in both are counted together: only the difference of indices
    # matters.
    for way, pairs in enumerate(dims):
        for stride, size in pairs:
            steps.setdefault(stride, [0, 0])[way] += size - 1
    dimensions = sorted(
        [(stride, reach[0], reach[1]) for stride, reach in steps.items()], reverse=True
    )
    return _meets(second[2] - first[2], dimensions, [_MOST_STEPS])


def _meets(distance: int, dimensions: list[tuple[int, int, int]], budget: list[int]) -> bool:
    """Whether some element of one lies `distance` behind some element of the other: a bounded
    integer equation, solved by depth-first search over the strides, largest first. Each of the
    `dimensions` is a stride, and how many steps of it the one and the other can take at most. True
    if finding out takes more than the `budget`."""
    budget[0] -= 1
    if budget[0] < 0:
        return True
    if not dimensions:
        return distance == 0
    (stride, most, back), *inner = dimensions
    ahead, behind = (sum(step[0] * step[way] for step in inner) for way in (1, 2))
    # Only steps after which the smaller strides can still make up the rest, which keeps the search
    # short.
    least = max(-back, -((ahead - distance) // stride))
    last = min(most, (distance + behind) // stride)
    return any(_meets(distance - stride * n, inner, budget) for n in range(least, last + 1))


def inputs_that_share(examples: Sequence[Any]) -> set[int]:
    """The inputs whose extent in memory, from first element to last, overlaps that of another: a
    sweep over extents sorted by where they begin. (The launcher tests later calls.)"""
    by_storage: dict[int, list[tuple[int, int, int]]] = {}
    for index, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            extents = by_storage.setdefault(example.untyped_storage()._cdata, [])
            if type(example) in PLAIN_TENSORS and example.numel():  # others are refused
                extents.append((*_extent(example), index))
    shared: set[int] = set()
    for extents in by_storage.values():
        stop, longest = 0, -1  # where the last of those that begin earlier ends, and which it is
        for start, end, index in sorted(extents):
            if start < stop:
                shared |= {index, longest}
            if end > stop:
                stop, longest = end, index
    return shared


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The range of bytes that a tensor's elements are in: where the first begins, and where the
    last ends."""
    first = int(tensor.storage_offset())
    steps = zip(tensor.size(), tensor.stride(), strict=True)
    last = first + sum((size - 1) * stride for size, stride in steps)
    return first * tensor.itemsize, (last + 1) * tensor.itemsize


PLAIN_TENSORS: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
