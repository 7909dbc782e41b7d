"""Writes through views: what becomes of a tensor when a view of it gets new values.

The one idea: each view operator has an inverse in its record, which puts new elements back into
what it is a view of. For `row = y[0:1]`, a write to `row` makes `y` the value
`slice_scatter(y, new, 0, 0, 1)`. Views without an inverse (`as_strided`) are put back by computing
where their elements are from strides.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.base.devices import CPU
from pliant.base.values import replace
from pliant.graph.ir import Strided, Tensor
from pliant.graph.overlap import keep_injective
from pliant.sym.cond import eq, ge, le
from pliant.sym.expr import Expr, mul, product_of, sum_of
from pliant.sym.frozen import Undecided
from pliant.sym.node import to_torch

aten = torch.ops.aten
DETACH: Final = "aten.detach.default"


def written_back(functionalizer: Any, alias: Any, parent: Any, new: Any) -> Any:
    """`parent` with `new` in place of the elements that `alias`, a view of it, shows."""
    # One step back: the caller goes from the view to its base, view by view.
    record = alias.op.record
    args = tuple([_number(functionalizer, arg) for arg in alias.args[1:]])
    kwargs = {k: _number(functionalizer, v) for k, v in (alias.kwargs or {}).items()}
    if record.inverse is not None and record.is_part:
        return record.inverse(functionalizer, parent, new, alias.position, *args, **kwargs)
    if record.inverse is not None:
        return record.inverse(functionalizer, parent, new, *args, **kwargs)
    return _by_strides(functionalizer, alias, parent, new)


def window_of(target: Tensor, memory: Tensor) -> Strided:
    """Where `target` is, counted from the first element of `memory`, its base."""
    return Strided(target.sizes, target.strides, target.offset - memory.offset)


def covers_all(alias: Any) -> bool:
    """Whether the view shows all elements of its memory."""
    while alias.parent is not None:
        same_elements = alias.value.sizes == alias.parent.value.sizes and alias.op.record.injective
        if not same_elements and not alias.op.record.covers:
            return False
        alias = alias.parent
    return True


def can_be_put_back(alias: Any) -> bool:
    """Whether all views on the way to the base have inverses, so that no strides are needed."""
    while alias.parent is not None:
        if alias.op.record.inverse is None:
            return False
        alias = alias.parent
    return True


def _number(functionalizer: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_number(functionalizer, v) for v in value])
    return to_torch(value, functionalizer.env) if hasattr(value, "symbols") else value


def memory_of(functionalizer: Any, alias: Any, view: Any) -> Any:
    """What `as_strided` makes a view of: all the memory, whatever tensor `alias` it was called on;
    but detached, if that tensor is. `view` is the result, which has to lie within the memory."""
    detached = None
    while alias.parent is not None:
        detached = alias if detached is None and alias.op.name == DETACH else detached
        alias = alias.parent
    base, window = alias.base.value, functionalizer.tensor(view)
    if base.dtype is not window.dtype:
        raise Undecided("as_strided, of another dtype")
    first = window.offset - base.offset
    is_known = functionalizer.env.known
    inside = [ge(first, 0), le(first + _reach(window), _reach(base))]
    inside += [ge(size, 1) for size in base.sizes]  # nothing reaches anywhere in an empty one
    if not all(map(is_known, inside)):
        raise Undecided("as_strided, maybe beyond the tensor")
    if not _shows_elements_only(functionalizer, window, base):
        alias.base.between = True
        keep_unwritten(alias.base)
    if detached is None or detached.parent is alias:
        return detached or alias
    direct = replace(detached, value=alias.value, version=alias.version, parent=alias)
    direct.counter = detached.counter
    return direct


def keep_unwritten(memory: Any) -> None:
    """Refuse views of what lies between the elements (`between`) of memory that was written to: the
    value after a write has elements alone. Only the memory of an input has more."""
    if memory.between and memory.version:
        raise Undecided("as_strided, of what lies between the elements of a tensor")


def _shows_elements_only(functionalizer: Any, window: Tensor, base: Tensor) -> bool:
    """Whether it is known that a window on memory shows nothing but elements of the tensor there,
    if it does not reach beyond it."""
    is_known = functionalizer.env.known
    # Without gaps, every place in reach is that of an element.
    if is_known(eq(product_of(base.sizes) - 1, _reach(base))):
        return True
    # Of a vector with a step, such as `x[:, 0]`, the window shows elements alone if all its strides
    # are multiples of the step.
    steps = [stride for stride, size in zip(base.strides, base.sizes) if not is_known(eq(size, 1))]
    step = steps[0].value if len(steps) == 1 else None
    numbers = [n.value for n in (*window.strides, window.offset - base.offset)]
    return step is not None and all(n is not None and step and n % step == 0 for n in numbers)


def _reach(t: Any) -> Expr:
    """How far the last element is from the first, if there are any."""
    return sum_of([mul(size - 1, stride) for size, stride in zip(t.sizes, t.strides)])


def _by_strides(rec: Any, alias: Any, parent: Any, new: Any) -> Any:
    """The inverse of any view of dense memory: scatter `new` into the base as a vector, at indices
    that are computed from the strides of the view."""
    env, view = rec.env, alias.value
    base = rec.tensor(parent)
    keep_injective(rec, alias.op.name, alias, view)  # what is in one place has one value
    count = product_of(base.sizes)
    # No gaps: then the memory is a vector of all elements, and places in it are indices.
    if view.dtype is not base.dtype or env.known(eq(count - 1, _reach(base))) is not True:
        raise Undecided(f"a write through {alias.op.name}")
    offset, total = to_torch(base.offset, env), to_torch(count, env)
    # The dense base as a vector in the order of memory.
    line = rec.dispatch(aten.as_strided.default, (parent, [total], [1], offset), {})
    # The index of each element of the view in the flat memory: offset + sum of i * stride.
    at = rec.dispatch(aten.full.default, ([], to_torch(view.offset - base.offset, env)), _INDEX)
    for dim, (size, stride) in enumerate(zip(view.sizes, view.strides)):
        steps = rec.dispatch(aten.arange.default, (to_torch(size, env),), _INDEX)
        steps = rec.dispatch(aten.mul.Tensor, (steps, to_torch(stride, env)), {})
        shape = [-1 if d == dim else 1 for d in range(len(view.sizes))]
        steps = rec.dispatch(aten.view.default, (steps, shape), {})
        at = rec.dispatch(aten.add.Tensor, (at, steps), {})
    # Index and new elements as vectors, in the same order.
    at = rec.dispatch(aten.view.default, (at, [-1]), {})
    new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    new = rec.dispatch(aten.view.default, (new, [-1]), {})
    updated = rec.dispatch(aten.scatter.src, (line, 0, at, new), {})
    # The vector, seen with the base's layout again.
    layout = (list(parent.size()), list(parent.stride()), 0)
    return rec.dispatch(aten.as_strided.default, (updated, *layout), {})


_INDEX: Final = {"dtype": torch.int64, "device": CPU}
