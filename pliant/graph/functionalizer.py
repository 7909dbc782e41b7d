"""What functionalization does with each kind of operator: a world that records what runs in it.

The one idea: an operator with a lowering, or one that is opaque, is recorded as it comes; the
others are decomposed by PyTorch itself, and their parts are dispatched in turn. A view is recorded
when it is read; a write makes a new value of its base (`aliases`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from pliant.fake.overload import Overload, OverloadKind, describe
from pliant.fake.rule import is_empty
from pliant.fake.tensor import Fake, make
from pliant.fake.unbacked import scalar
from pliant.graph import autocast, functional_forms
from pliant.graph.aliases import (
    AliasWorld,
    NotFunctionalized,
    TensorAlias,
    count_write,
    results_in,
)
from pliant.graph.foreach import of_each
from pliant.graph.functional_forms import ZEROS_WITH_MEMORY, functional_of, written_number
from pliant.graph.ir import MemoryWrite, Node, Tensor, UnbackedSymbol
from pliant.graph.opaque_calls import on_new_memory, opaque_function
from pliant.graph.overlap import keep_apart, keep_injective
from pliant.graph.scatter import (
    can_be_put_back,
    covers_all,
    keep_unwritten,
    memory_of,
    window_of,
    written_back,
)
from pliant.loop.types import BY_DTYPE
from pliant.ops.lowering import contiguous
from pliant.sym.cond import Cond
from pliant.sym.floats import FloatExpr, float_bits
from pliant.sym.node import SYMBOLIC, from_torch

aten = torch.ops.aten
_STATISTICS: Final = (torch.float32, torch.float64)
COMPOSITE_KEY = torch._C.DispatchKey.CompositeImplicitAutograd


class Functionalizer(AliasWorld):
    """A world of fake tensors that records the operators that are run in it."""

    # ---- operators

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._quiet:  # only the metadata of the result is wanted
            return super().dispatch(func, args, kwargs)
        args, kwargs = self._lifted(func, args, kwargs)
        op = describe(func := ZEROS_WITH_MEMORY.get(func, func))
        # Autocast rules of other libraries' operators are not known here.
        if func.namespace != "aten" and autocast.enabled():
            raise NotFunctionalized(f"{op.name} under autocast")
        if op.name.startswith("aten._foreach_"):  # a call per tensor can be fused, a list can't
            # PyTorch leaves the mode while it calls `dispatch`; inside `self` the parts come again.
            with torch._C._AutoDispatchBelowAutograd(), self:
                result = of_each(op, args, kwargs)
            if result is not NotImplemented:
                return result
        return _FUNCTIONALIZE[op.kind](self, op, args, kwargs)

    def functionalize_call(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        decomposition = op.record.decomposition
        if decomposition is not None:
            with torch._C._AutoDispatchBelowAutograd(), self:
                result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        # It writes to its running statistics, which its schema does not say.
        if op.training is not None and op.statistics and op.training.of(args, kwargs):
            raise NotFunctionalized(f"{op.name} in training")
        result = self._answer(op, args, kwargs)
        if self._aliased(result, args):  # the schema promises new memory, the kernel made a view
            return self._note_views(op, args, kwargs, result)
        if isinstance(result, bool | int | float):  # of the metadata alone, as `is_same_size`
            return result
        self.record_call(op, args, kwargs, result)
        if op.record.keeps_overlap:  # of what overlaps itself, eager writes to a copy that does too
            keep_injective(self, op.name, self.alias(result), self.tensor(result))
        return result

    def _aliased(self, result: Any, args: tuple[Any, ...]) -> bool:
        """Whether the result shares memory with the first argument."""
        return bool(args) and type(args[0]) is Fake and self._shares(result, args[:1])

    def functionalize_view(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if type(args[0]) is not Fake:  # a number in a tensor, which the view is of
            args = (self._constant(args[0]), *args[1:])
        # Only the layout is computed here. The nodes are recorded below, one for each result.
        with self.quietly():
            result = super().dispatch(op.func, args, kwargs)
        return self._note_views(op, args, kwargs, result)

    def _note_views(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> Any:
        parent = self.alias(args[0])
        if op.name == "aten.as_strided.default":  # sees all of the memory, not the view it is of
            parent = memory_of(self, parent, result)
        view_args = (None, *map(self.recorded, args[1:]))
        named = {name: self.recorded(value) for name, value in kwargs.items()}
        source = self.value(parent)
        for position, fake in enumerate(results_in(result)):
            if fake is args[0]:
                continue  # the very tensor, which has its alias
            value = self.tensor(fake)
            alias = TensorAlias(
                *(parent.base, value, parent.base.version, parent, op, view_args, named, position),
                *(torch.is_grad_enabled(), parent.counter.writes),
            )
            self._view_node(alias, source, value)
            self._name(fake, alias)
        return result

    def functionalize_composite(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Whole if there is a rule or a reason to call it whole, in parts otherwise."""
        # Of a norm with running statistics: `args[5]` is `training`, `args[3]` and `args[4]` are
        # those. PyTorch updates nothing for an input without elements, and its kernel refuses one.
        if op.statistics and args[5] and args[3] is not None and not is_empty(args[0]):
            return self._with_statistics(op, args)
        record, casts = op.record, autocast.casts_parts(self.autocast, op.func)
        if not casts and (record.opaque is not None or record.lowering is not None):
            result = self._answer(op, args, kwargs)
            # A result that is a view of an argument has to be taken apart: of a call as a whole
            # it isn't known which elements of the argument a write to the result changes.
            if not self._shares(result, args):
                self.record_call(op, args, kwargs, result)
                return result
        with autocast.in_parts(self, op.func), torch._C._AutoDispatchBelowAutograd(), self:
            result = NotImplemented
            if record.decomposition is not None and not casts:
                result = record.decomposition(*args, **kwargs)
            answered = result is not NotImplemented
            return result if answered else op.func._op_dk(COMPOSITE_KEY, *args, **kwargs)

    def _with_statistics(self, op: Overload, args: tuple[Any, ...]) -> Any:
        """A norm that also writes to the running statistics among its arguments."""
        mean, variance = args[3:5]
        usual = args[0].dtype is mean.dtype is variance.dtype and mean.dtype in _STATISTICS
        if op.name != "aten.batch_norm.default" or not usual:
            raise NotFunctionalized(f"{op.name} in training")
        with torch._C._AutoDispatchBelowAutograd(), self:
            result, _, _, *new = aten._native_batch_norm_legit_functional.default(*args[:8])
        self.store(mean, self._as(new[0], mean), op.name)
        self.store(variance, self._as(new[1], variance), op.name)
        return result

    def _answer(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator unrecorded, for the metadata of its result. For some, PyTorch asks more
        about sizes than the result depends on; these are answered as in the capture."""
        function = op.record.opaque
        if torch.Tag.pointwise in op.func.tags:
            # Which number it is does not matter, and PyTorch takes a symbolic one for a float.
            args = tuple([v.node.pytype(1) if isinstance(v, SYMBOLIC) else v for v in args])
        with self.quietly():
            if function is not None:
                return self.run(function, args, kwargs).value
            return super().dispatch(op.func, args, kwargs)

    def scattered(
        self, func: Any, parent: Fake, args: tuple[Any, ...], more: dict[str, Any]
    ) -> Fake:
        """Record `func`, a scatter into `parent`, whose result has the layout of `parent`."""
        new = make(
            *(self._self, parent.size(), parent.stride(), parent.storage_offset()),
            *(parent.dtype, parent.device),
        )
        self.record_call(describe(func), (parent, *args), more, new)
        return new

    def _shares(self, result: Any, args: tuple[Any, ...]) -> bool:
        memory = {t.untyped_storage()._cdata for t in results_in(args)}
        return any(t.untyped_storage()._cdata in memory for t in results_in(result))

    # ---- writes

    def functionalize_write(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`x.add_(y)` becomes `new = add(x, y)`, and `new` the value of the memory of `x`."""
        targets = [argument.of(args, kwargs) for argument in op.written]
        if len(targets) != 1 or type(targets[0]) is not Fake:
            raise NotFunctionalized(f"{op.name} writes to several tensors")
        target = targets[0]
        if op.returned and not any(op.returned):
            return functional_forms.write_beside(self, op, target, args, kwargs)
        self._keep_apart(op, target, args, kwargs)
        # The functional form computes the new value; `store` makes it the value of the memory.
        before = (target.size(), target.stride())
        if op.record.is_copy:
            new = self._copied(op, target, (*args, 0)[1])
        elif op.draws is not None and not self._dense(target) and op.draws(args, kwargs):
            new = self._drawn(op, target, args, kwargs)
        else:
            new = self._computed(op, target, args, kwargs)
        self.store(target, new, op.name)
        # On the fakes as well: an `out` of another shape is resized, which no value can express.
        with self.quietly():
            super().dispatch(op.func, args, kwargs)
        if (target.size(), target.stride()) != before:
            raise NotFunctionalized(f"{op.name} changes the shape of what it writes to")
        return target if len(op.returned) == 1 else None

    def _keep_apart(
        self, op: Overload, target: Fake, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Require that no operand overlaps `target`: eager PyTorch might read elements that it has
        overwritten already, the functional operator reads the old ones."""
        fills = op.name == "aten.index_put_.default" and functional_forms.fills_mask(args)
        if op.record.reads_first or fills:
            return
        # Each element of a pointwise result depends on the elements at the same index only, so
        # reading exactly what is written is harmless.
        elementwise = torch.Tag.pointwise in op.func.tags or op.record.is_copy
        in_place = op.func._schema.name.endswith("_") and args[0] is target
        read = results_in(args[1:] if in_place else args)
        read += [t for t in results_in(list(kwargs.values())) if t is not target]
        for tensor in read:
            if self._shares(tensor, (target,)):
                keep_apart(self, op.name, tensor, target, elementwise)

    def _computed(
        self, op: Overload, target: Fake, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Fake:
        functional = functional_of(op)
        # The in-place form may have arguments that the functional one lacks, such as `out`.
        takes = {a.name for a in functional._schema.arguments}
        passed = {name: value for name, value in kwargs.items() if name in takes}
        for argument in op.func._schema.arguments[len(args) :]:  # defaults are not passed
            if argument.name in takes and argument.name not in passed:
                passed[argument.name] = argument.default_value
        if op.func._schema.arguments[-1].is_out and passed.get("dtype", target) is None:
            passed["dtype"] = target.dtype  # sums are computed in the dtype of `out`
        result = self.dispatch(functional, args, passed)
        if type(result) is not Fake:
            raise NotFunctionalized(f"{op.name} has several results")
        if op.record.strict_out and result.dtype is not target.dtype:
            raise NotFunctionalized(f"{op.name} refuses the dtype of out")
        return self._as(result, target)

    def _dense(self, fake: Fake) -> bool:
        return self.numbers(fake.stride()) == contiguous(self.numbers(fake.size()))

    def _drawn(
        self, op: Overload, target: Fake, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Fake:
        """Draw random numbers in new memory with the strides of `target`: the order in memory
        decides which element gets which number."""
        if target is not args[0]:
            raise NotFunctionalized(f"{op.name} writes to a tensor that is not its first argument")
        layout = (target.size(), target.stride(), 0, target.dtype, target.device)
        memory = make(self._self, *layout)
        positional, named = self.recorded_arguments(args, kwargs)
        draw = opaque_function(partial(on_new_memory, op.func), args, kwargs)
        self.add(Node(f"{op.name} of such strides", draw, positional, named, effect=True), [memory])
        return memory

    def _copied(self, op: Overload, target: Fake, source: Any) -> Fake:
        if type(source) is not Fake:
            source = self.dispatch(*written_number(op, target, source))
        return self._as(source, target)

    def _as(self, new: Fake, target: Fake) -> Fake:
        """`new`, cast and broadcast to the dtype and sizes of `target`."""
        if new.dtype is not target.dtype:
            new = self.dispatch(torch.ops.aten._to_copy.default, (new,), {"dtype": target.dtype})
        if self.numbers(new.size()) != self.numbers(target.size()):
            new = self.dispatch(torch.ops.aten.expand.default, (new, list(target.size())), {})
        return new

    def store(self, target: Fake, new: Fake, name: str = "a write") -> None:
        """Make `new` the value of `target`, and so change the value of its base. Each element needs
        a place of its own, or one iteration could overwrite what another has yet to read."""
        alias = self.alias(target)
        keep_injective(self, name, alias, self.tensor(target))
        base, old = alias.base, alias.base.value
        # Two inputs in one memory are two values here; a write to one would not reach the other.
        if base.shared:
            raise NotFunctionalized("a write to memory that two inputs share")
        # Where the target lies in its memory; a write through a view changes only that part.
        window = window_of(self.tensor(target), old)
        source = self.value(self.alias(new))
        put = MemoryWrite(base, base.input, old, window)
        args: tuple[Tensor, ...] = (old, source)
        in_part = target.dtype is old.dtype and old.dtype in BY_DTYPE and not covers_all(alias)
        if in_part:
            # Whether a part can be written in place is known when the graph is lowered. Until then
            # the steps that compute all of the memory anew wait in the write, outside of the graph.
            mark = len(self.function.nodes)
            if can_be_put_back(alias):
                put.updated = self._put_back(alias, new)
                put.otherwise = self.function.nodes[mark:]
                del self.function.nodes[mark:]
        else:
            args = (self._put_back(alias, new),)
        # A new value for all of the memory: every view of it, older or newer, sees the write.
        base.value = Tensor(old.sizes, old.strides, old.offset, old.dtype, device=old.device)
        node = Node("pliant.stored", None, args, {}, (base.value,), put=put)
        base.value.node = node
        self.function.nodes.append(node)
        base.version += 1  # from here on `value` makes views of this memory again
        count_write(self.function, alias)
        keep_unwritten(base)
        if base.input is not None:
            self.function.writes[base.input] = base.value

    def _put_back(self, alias: TensorAlias, new: Fake) -> Tensor:
        """The value of the whole base with `new` in place of the view: undoes view by view."""
        value: Any = new
        while alias.parent is not None:
            value = written_back(self, alias, self._fakes[alias.parent], value)
            alias = alias.parent
        return self.value(self.alias(value))

    def functionalize_reshape(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A change of metadata in place, such as `t_()`: the tensor becomes a view of what it was.
        `detach_` does nothing, as values have no autograd history."""
        if op.name == "aten.detach_.default":
            return args[0]
        target = args[0]
        before = self.alias(target)
        view = op.record.functional  # that it becomes of what it was
        if view is None:
            raise NotFunctionalized(op.name)
        if before.base.input is not None and before.parent is None:
            raise NotFunctionalized(f"{op.name} of an input")  # the caller's tensor would change
        with self.quietly():
            # The fake itself changes its shape, so another one stands for what it was.
            old = super().dispatch(torch.ops.aten.alias.default, (target,), {})
            super().dispatch(op.func, args, kwargs)
        self._name(old, before)
        view_args = (None, *map(self.recorded, args[1:]))
        named = {name: self.recorded(value) for name, value in kwargs.items()}
        value = self.tensor(target)
        base = before.base
        after = TensorAlias(base, value, base.version, before, describe(view), view_args, named)
        self._view_node(after, self.value(before), value)
        self._name(target, after)
        count_write(self.function, after)
        return target

    def functionalize_data(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`item()`: its result is an unbacked symbol, which the recorded node defines."""
        if op.name not in ("aten.item.default", "aten._local_scalar_dense.default"):
            raise NotFunctionalized(op.name)
        base = self.alias(args[0]).base
        first = self.in_data.first(args[0])
        if first is not None and base.version == 0:
            return first
        # The same element, not written to in between, is the same number.
        place = (base, base.version, self.number(args[0].storage_offset()), args[0].dtype)
        if place in self._items and not self.env.expected:
            return self._items[place]
        number = self._items[place] = scalar(self.env, args[0].dtype, op.name)
        if number is None:
            raise NotFunctionalized("a complex number")
        expr = from_torch(number)
        kind = "int"
        if isinstance(expr, FloatExpr):
            expr, kind = float_bits(expr), "float"
        elif isinstance(expr, Cond):
            expr, kind = expr.args[0], "bool"
        # Sizes that are computed from it can be used from this node on.
        self.known.add(expr)
        func = torch.ops.aten._local_scalar_dense.default
        node = Node("aten._local_scalar_dense.default", func, (self.recorded(args[0]),), {})
        node.effect, node.defines = True, (UnbackedSymbol(expr, kind),)
        self.function.nodes.append(node)
        return number


_FUNCTIONALIZE: Final[
    dict[OverloadKind, Callable[[Functionalizer, Overload, tuple[Any, ...], dict[str, Any]], Any]]
] = {
    OverloadKind.FUNCTIONAL: Functionalizer.functionalize_call,
    OverloadKind.VIEW: Functionalizer.functionalize_view,
    OverloadKind.COMPOSITE: Functionalizer.functionalize_composite,
    OverloadKind.WRITE: Functionalizer.functionalize_write,
    OverloadKind.RESHAPE: Functionalizer.functionalize_reshape,
    OverloadKind.DATA: Functionalizer.functionalize_data,
}
