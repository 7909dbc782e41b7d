"""Which sizes, strides and numbers of the inputs become symbols, and what is assumed of the others.

The one idea: a size that is a symbol brings the strides that follow from it along: they are
products of sizes, and the guards say so. So a tensor has as few symbols as it has freedoms.
"""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from pliant.base.errors import InvalidMarkError
from pliant.base.values import dataclass, replace
from pliant.capture.value import Value
from pliant.capture.values.number import Number
from pliant.dynamic.choose import (
    Carried,
    Choice,
    DynamicPolicy,
    choose_number,
    choose_size,
    static,
)
from pliant.dynamic.history import Changed, InputHistory
from pliant.fake import kind_without_fake
from pliant.fake.layout import contiguous_strides
from pliant.guards.guard import GuardKind, Load
from pliant.guards.predicates import IsOneOf
from pliant.guards.source import (
    MODULE_TABLES,
    Attr,
    DictItem,
    Fixed,
    InstanceDict,
    Local,
    SeqItem,
    Source,
)
from pliant.sym.cond import ge
from pliant.sym.expr import ONE, Expr, as_expr, maximum, mul
from pliant.sym.node import to_torch
from pliant.sym.ranges import INF, Range

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of an input's fake. None in `fixed_sizes` or `fixed_strides` means that the guard
    on the tensor doesn't check this one."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    fixed_sizes: tuple[int | None, ...]
    fixed_strides: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Dynamic:
    """What is known about inputs before a capture: the policy, what earlier compilations have seen,
    and answers to questions that proved wrong the usual way."""

    policy: DynamicPolicy = field(default_factory=DynamicPolicy)
    history: InputHistory = field(default_factory=InputHistory)
    answers: Mapping[str, bool] = field(default_factory=dict)
    # calls of functions that keep their results, which captures have made, by function and key
    calls_made: Counter[Any] = field(default_factory=Counter)


def parameter_names(code: types.CodeType) -> tuple[str, ...]:
    """The names of a function's parameters in the order in which the dispatcher binds them: `*args`
    and `**kwargs` last."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[:count]


def observe(
    history: InputHistory, function: types.FunctionType, values: Sequence[Any], depth: int = 3
) -> None:
    """Note the arguments of a call that is not compiled, for the history of a later compilation."""
    names = parameter_names(function.__code__)
    inputs: list[tuple[Source, Any, int]] = [
        (Local(index, name), value, depth)
        for index, (name, value) in enumerate(zip(names, values, strict=True))
    ]
    # Iteratively, up to `depth` levels of containers.
    while inputs:
        source, value, left = inputs.pop()
        if type(value) in (int, float):
            history.observe_number(str(source), value)
        elif isinstance(value, torch.Tensor) and kind_without_fake(value) is None:
            layout = value.size(), value.stride(), int(value.storage_offset())
            history.observe_tensor(str(source), *layout)
        elif left and type(value) in (list, tuple):
            inputs += [(SeqItem(source, i), item, left - 1) for i, item in enumerate(value)]
        elif left and type(value) is dict:
            inputs += [(DictItem(source, key), item, left - 1) for key, item in value.items()]


class Inputs:
    """Decides for one capture which inputs are symbols, and makes these."""

    def __init__(self, trace: Trace, dynamic: Dynamic) -> None:
        self.trace = trace
        self.policy = dynamic.policy
        self.history = dynamic.history
        self.carried = Carried(dynamic.policy)
        self.calls_made, self.calls_replayed = dynamic.calls_made, Counter[Any]()
        self.same: dict[
            str, tuple[Expr, Load, int]
        ] = {}  # by `shape_id`, the first size that has it
        # By list (or other container) and number of dimensions: the dimensions that vary.
        self.varying: dict[tuple[Source, int], set[int]] = {}
        # By source, dimensions of tensors that can't be symbols; nor can their strides.
        self.constant: dict[str, set[int]] = {}

    def note(self, values: Sequence[tuple[Source, Any]], depth: int = 3) -> None:
        """Look at the function's arguments before any is read, and at tensors in lists, tuples and
        dictionaries among them, up to `depth` levels: marks and histories of one tensor also decide
        about others."""
        for source, value in values if depth else ():
            if isinstance(value, torch.Tensor):
                self.carried.note(str(source), value)
                self._note_group(source, value)
            elif type(value) in (list, tuple):
                self.note([(SeqItem(source, i), v) for i, v in enumerate(value)], depth - 1)
            elif type(value) is dict:
                items = [(DictItem(source, k), v) for k, v in value.items() if type(k) is str]
                self.note(items, depth - 1)

    def _note_group(self, source: Source, real: torch.Tensor) -> None:
        """Note which dimensions of a tensor vary. What varies in one item of a list is taken to
        vary in all of them."""
        if source.parent is not None and kind_without_fake(real) is None:
            changed = self._observe(str(source), real)
            self.varying.setdefault((source.parent, real.dim()), set()).update(changed.sizes)

    def _observe(self, text: str, real: torch.Tensor) -> Changed:
        offset = int(real.storage_offset())
        return self.history.observe_tensor(text, real.size(), real.stride(), offset)

    # ---- numbers

    def number(self, real: float, source: Source) -> Value | None:
        """The symbol for an int or float; None if it is a constant."""
        choice = self._choose_number(real, source)
        if choice.state == "static":
            return None
        self.trace.guard(GuardKind.TYPE, source, type(real))
        return self._symbol(real, source, choice)

    def varies(self, real: float, source: Source) -> bool:
        """Whether a number of another library becomes a symbol. `real` is its value as a plain
        number."""
        return self._choose_number(real, source).state != "static"

    def number_of_library(self, plain: float, source: Source) -> Number:
        """The symbol for a number of another library (a NumPy scalar), whose plain value is
        `plain`. It is unbacked, since guards can't read it."""
        trace, load = self.trace, Load(source, "value", 0)
        why = "changed (automatic dynamic)"
        expr: Any
        if type(plain) is int:
            expr = trace.sizes.env.add_unbacked(load, why=why)
        else:
            expr = trace.sizes.env.add_float(load, None, why=why)
        trace.sizes.nodes.set_origin(expr, lambda: trace.graph.input(source, plain, plain=True))
        return Number(trace.sizes, expr)

    def marked_number(self, real: int, source: Source, cls: type) -> Value:
        """The symbol for an instance of a subclass of int that stands for any int."""
        self.history.observe_number(str(source), real)
        self.trace.guard(GuardKind.PREDICATE, source, IsOneOf((int, cls)))
        choice = Choice("dynamic", False, None, None, cls.__name__)
        return self._symbol(real, Attr(source, "real"), choice)  # which is an int itself

    def _symbol(self, real: float, source: Source, choice: Choice) -> Value:
        trace, load = self.trace, Load(source, "value", 0)
        env, origin = trace.sizes.env, lambda: trace.graph.input(source, real)
        expr: Any
        if type(real) is int:
            hint = real if choice.state == "dynamic" else None
            expr = env.add_input(load, hint, size_like=False, seen=real, why=choice.why)
        else:
            expr = env.add_float(load, real, why=choice.why)
        trace.sizes.nodes.set_origin(expr, origin)
        return Number(trace.sizes, expr)

    def _choose_number(self, real: float, source: Source) -> Choice:
        text = str(source)
        changed = self.history.observe_number(text, real)
        before = self.history.number_before(text, real)
        part = "attribute" if _is_part(source) else ""
        return choose_number(
            self.policy,
            text,
            real,
            changed,
            before=before,
            module_part=part,
            learning_rate=_is_learning_rate(source),
        )

    # ---- tensors

    def array_sizes(self, real: Any, source: Source) -> tuple[Any, ...] | None:
        """The sizes of an array of NumPy's in rows, some of which are symbols; None if all are
        constants."""
        text, like = str(source), torch.empty(0).expand(*real.shape, 0)
        strides = contiguous_strides(real.shape)
        changed = self.history.observe_tensor(text, real.shape, strides, 0)
        sizes: list[Any] = list(real.shape)
        for dim in range(real.ndim):
            choice = self._choose(text, like, dim, changed, _part(source))
            load = Load(SeqItem(Attr(source, "shape"), dim), "value", 0)
            if choice.state == "dynamic":
                expr = self.trace.sizes.env.add_input(load, sizes[dim], why=choice.why)
                sizes[dim] = to_torch(expr, self.trace.sizes.env)
        return None if all(type(size) is int for size in sizes) else tuple(sizes)

    def layout(self, real: torch.Tensor, source: Source) -> Layout | None:
        """The symbolic layout of an input tensor, or None if all of its sizes and strides are
        constants."""
        part = _part(source)
        # Sizes of parameters don't vary; a model has hundreds, and observing each takes time.
        if part == "parameter" and not self.policy.dynamic_sources + self.policy.unbacked_sources:
            return None
        text = str(source)
        changed = self._observe(text, real)
        # What varies in other items of the same list.
        group = self.varying.get((source.parent, real.dim())) if source.parent else None
        if group:
            # Or each item would have to vary once before it becomes a symbol.
            changed = replace(changed, sizes=changed.sizes | group)
        if text in self.constant:
            changed = replace(changed, strides=frozenset())
        choices = [self._choose(text, real, dim, changed, part) for dim in range(real.dim())]
        if not changed.strides and all(choice.state == "static" for choice in choices):
            for dim, choice in enumerate(choices):
                self._size(source, real, dim, choice)
            return None
        sizes = [self._size(source, real, dim, choice) for dim, choice in enumerate(choices)]
        return self._laid_out(real, source, sizes, changed)

    def _choose(
        self, text: str, real: torch.Tensor, dim: int, changed: Changed, part: str
    ) -> Choice:
        if dim in self.constant.get(text, ()):
            return static("a size beside the ragged one")
        return choose_size(
            self.policy,
            text,
            real,
            dim,
            dim in changed.sizes,
            before=changed.before.get(dim),
            module_part=part,
            carried=self.carried,
        )

    def _size(self, source: Source, real: torch.Tensor, dim: int, choice: Choice) -> Expr | int:
        env, size, load = self.trace.sizes.env, real.size(dim), Load(source, "size", dim)
        if choice.state == "static":
            env.note_static(load, size, choice.why)
            self.trace.sizes.shape_log.constant(load, size, choice, self.trace.position())
            return size
        if choice.shape_id in self.same:
            return self._same_size(choice.shape_id, load, size)
        limits = (choice.minimum, choice.maximum)
        declared = None
        if limits != (None, None):
            low, high = choice.minimum or 0, choice.maximum
            declared = Range(low, INF if high is None else high)
        expr = env.add_input(
            load,
            size if choice.state == "dynamic" else None,
            declared=declared,
            strict=choice.strict,
            seen=size,
            why=choice.why,
        )
        if choice.shape_id is not None:
            self.same[choice.shape_id] = expr, load, size
        return expr

    def _same_size(self, shape_id: str, load: Load, size: int) -> Expr:
        """The symbol of a size that has the same `shape_id` as an earlier one. That they are equal
        is guarded."""
        expr, first, expected = self.same[shape_id]
        if size != expected:
            raise InvalidMarkError(
                f"{first} is {expected} and {load} is {size}",
                why=f"both are marked with shape_id={shape_id!r}",
                remedy="give them different names, or call the function with equal sizes",
            )
        self.trace.sizes.must_be(load, expr)
        return expr

    def _laid_out(
        self, real: torch.Tensor, source: Source, sizes: list[Expr | int], changed: Changed
    ) -> Layout:
        """The layout of a tensor with these sizes. A stride that follows from sizes is their
        product, one that varies by itself is a symbol of its own, and any other is a constant."""
        strides: list[Any] = list(real.stride())
        exact: list[Any] = list(real.stride())  # where a size is 0 PyTorch counts 1
        fixed: list[int | None] = list(real.stride())
        # From the innermost dimension outwards, so that the stride it follows is there already.
        for dim in changed.order:
            inner, load = changed.follows[dim], Load(source, "stride", dim)
            if inner is not None and not _are_ints(sizes[inner], strides[inner]):
                # If a size is 0 the tensor is empty, and its strides matter only if the program
                # asks for them.
                strides[dim] = mul_of(strides[inner], sizes[inner])
                exact[dim] = mul_of(exact[inner], maximum(sizes[inner], 1))
                self.trace.sizes.must_be(load, exact[dim])
            elif dim in changed.strides and self.policy.dynamic is not False:
                why = "stride changed (automatic dynamic)"
                add = self.trace.sizes.env.add_input
                strides[dim] = exact[dim] = add(load, strides[dim], size_like=False, why=why)
            fixed[dim] = strides[dim] if isinstance(strides[dim], int) else None
        if not _are_packed(sizes, strides):
            self._tell_small(source, sizes)
        env = self.trace.sizes.env
        return Layout(
            sizes=tuple(to_torch(size, env) for size in sizes),
            strides=tuple(to_torch(stride, env) for stride in strides),
            fixed_sizes=tuple(size if isinstance(size, int) else None for size in sizes),
            fixed_strides=tuple(fixed),
        )

    def _tell_small(self, source: Source, sizes: list[Expr | int]) -> None:
        """Make a constant of each size that is 0 or 1, and guard that the others are not. For a
        tensor with strides of its own, the layout of results depends on those sizes in no simple
        way."""
        env, asker = self.trace.sizes.env, f"the layout of {source}"
        for size in sizes:
            if isinstance(size, int) or env.hint(size) is None or env.symbols[size].strict:
                continue
            if not env.evaluate(ge(size, 2), asker):
                env.specialise(size, asker)


def _are_packed(sizes: list[Expr | int], strides: list[Any]) -> bool:
    """Whether each stride is 0 or the product of the sizes of the dimensions inside. Then how
    strides compare follows from which sizes are 0 or 1."""
    left = [dim for dim, stride in enumerate(strides) if stride != 0]
    step: Expr = ONE
    while left:
        inside = [dim for dim in left if as_expr(strides[dim]) is step]
        if not inside:
            return False
        dim = min(inside, key=lambda dim: sizes[dim] != 1)
        left.remove(dim)
        step = mul_of(step, sizes[dim])
    return True


def _are_ints(*numbers: Expr | int) -> bool:
    return all(isinstance(number, int) for number in numbers)


def mul_of(a: Expr | int, b: Expr | int) -> Expr:
    return mul(as_expr(a), as_expr(b))


def _is_part(source: Source) -> bool:
    """Whether a value belongs to an object, a module or a closure rather than to the call."""
    step: Source | None = source
    while step is not None:
        if isinstance(step, InstanceDict | Fixed):
            return True
        step = step.parent
    return not isinstance(_root(source), Local)


def _is_learning_rate(source: Source) -> bool:
    """Whether it is `optimizer.param_groups[i]["lr"]`."""
    group = source.parent
    groups = group.parent if isinstance(group, SeqItem) else None
    return (
        isinstance(source, DictItem)
        and source.key == "lr"
        and isinstance(groups, DictItem)
        and groups.key == "param_groups"
        and isinstance(groups.parent, InstanceDict)
    )


def _root(source: Source) -> Source:
    while source.parent is not None:
        source = source.parent
    return source


def _part(source: Source) -> str:
    """What an input tensor is to the object it was found in; empty for an argument of the call."""
    table = source.parent
    if isinstance(table, DictItem) and table.key in MODULE_TABLES:
        return "parameter" if table.key == "_parameters" else "buffer"
    return "attribute" if _is_part(source) else ""
