"""Functionalization: the captured graph becomes ATen operators on values that never change.

The one idea: run the graph on fake tensors below autograd, where PyTorch dispatches each operator
before decomposing it. An operator with a lowering, or one that is opaque, is recorded as it comes;
the others are decomposed by PyTorch itself, and their parts are dispatched in turn. Aliasing is
tracked on the way: every fake tensor is a chain of views of some base. A write makes a new value of
the base, and a view that is read afterwards is recorded once more, as a view of that value.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.autograd import forward_ad

from pliant.base import checks
from pliant.base.bodies import BODY_CALLS, FOLLOWED
from pliant.base.isolation import FATAL
from pliant.base.late import Late
from pliant.base.operators import function_record
from pliant.base.writes import RAISES
from pliant.fake.errors import DataDependent, NoMetaKernel, Unsupported
from pliant.fake.overload import Overload, OverloadKind, describe
from pliant.fake.rule import is_empty
from pliant.fake.tensor import Fake, adopt, make
from pliant.fake.unbacked import scalar
from pliant.fake.world import refuses_symbols
from pliant.graph import autocast, functional_forms, tensor_attributes
from pliant.graph.aliases import (
    AliasWorld,
    NotFunctionalized,
    TensorAlias,
    VersionCounter,
    results_in,
)
from pliant.graph.bodies import BODY_RUNS
from pliant.graph.foreach import of_each
from pliant.graph.functional_forms import ZEROS_WITH_MEMORY, functional_of, written_number
from pliant.graph.ir import FunctionalBuilder, MemoryWrite, Node, OutputView, Tensor, UnbackedSymbol
from pliant.graph.listed_items import ListedItems, list_items
from pliant.graph.number_functions import INSTEAD_OF_PYTHON, ON_NUMBERS
from pliant.graph.opaque_calls import on_new_memory, opaque_function, record_opaque_call
from pliant.graph.output_views import OutputViews, separate_unusual_views
from pliant.graph.overlap import PLAIN_TENSORS, inputs_that_share, keep_apart, keep_injective
from pliant.graph.plain_functions import CHANGES, STATEFUL, is_operation
from pliant.graph.raising import keep_one
from pliant.graph.random_state import SEEDS, input_object, seed_generator, seed_generators
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
from pliant.sym.expr import ZERO, Expr
from pliant.sym.floats import FloatExpr, float_bits, held_as
from pliant.sym.frozen import FrozenEnv, InputLayout, Shapes, Undecided
from pliant.sym.node import SYMBOLIC, from_torch, to_torch

if TYPE_CHECKING:
    from pliant.fake import jagged
else:
    jagged = Late("pliant.fake.jagged")

# What is not known of sizes, of data, or of how a result looks.
OPEN_QUESTIONS: Final = (Undecided, DataDependent, NoMetaKernel, Unsupported)


def functionalize(
    gm: fx.GraphModule, shapes: Shapes, examples: Sequence[Any], ones: Iterable[Expr] = ()
) -> tuple[FunctionalBuilder, OutputViews]:
    """Functionalize `gm`. Returns the functional graph, and the views that PyTorch makes of its
    results afterwards. `examples` are arguments of a call, `ones` sizes that are always 1."""
    if forward_ad._current_level >= 0:
        raise NotFunctionalized("forward-mode differentiation")
    functionalizer = Functionalizer(FrozenEnv(shapes, ones))
    try:
        with autocast.undone(), torch.set_grad_enabled(torch.is_grad_enabled()):
            return CapturedRun(gm, functionalizer, shapes, examples).run()
    except OPEN_QUESTIONS as error:
        raise NotFunctionalized(f"{type(error).__name__}: {error}") from error
    finally:
        functionalizer.forget()


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
        self.count_write(alias)
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
        self.count_write(after)
        return target

    def functionalize_data(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """`item()`: its result is an unbacked symbol, which the recorded node defines."""
        if op.name not in ("aten.item.default", "aten._local_scalar_dense.default"):
            raise NotFunctionalized(op.name)
        base = self.alias(args[0]).base
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

aten = torch.ops.aten
CHANGES_OF_METADATA: Final = frozenset(
    ("unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_")
    + ("resize_", "resize_as_", "set_", "detach_", "requires_grad_", "rename_")
)
_STATISTICS: Final = (torch.float32, torch.float64)
COMPOSITE_KEY = torch._C.DispatchKey.CompositeImplicitAutograd


def _plainly_laid_out(t: Tensor) -> bool:
    """Whether the tensor is contiguous and begins where its memory does."""
    return t.offset is ZERO and t.strides == contiguous(t.sizes)


# --------------------------------------------------------------------------------------------------
# The captured graph


class CapturedRun:
    """Interprets the nodes of a captured graph; the functionalizer records what they dispatch."""

    differentiates = False  # autograd is above, and sees all operators

    def __init__(
        self,
        gm: fx.GraphModule,
        functionalizer: Functionalizer,
        shapes: Shapes,
        examples: Sequence[Any],
    ) -> None:
        self.gm = gm
        self.functionalizer = functionalizer
        self.shapes = shapes
        self.examples = examples
        self.env: dict[fx.Node, Any] = {}
        self.inputs: list[fx.Node] = []
        self.replaced: list[tuple[int, TensorAlias]] = []  # inputs whose `data` is other memory
        self.counters: dict[Any, VersionCounter] = {}  # of what is returned, by memory
        self.grad = self.grad_before = torch.is_grad_enabled()
        self.autocast = autocast.state()
        self.graded = not self.differentiates and any(
            isinstance(e, torch.Tensor) and e.requires_grad for e in examples
        )

    def run(self) -> tuple[FunctionalBuilder, OutputViews]:
        self._make_inputs()
        # Opaque functions are run as they were captured: with autograd on top
        # (`record_opaque_call`).
        above = torch._C._dispatch_tls_local_exclude_set()
        # Below the bookkeeping of views, too: it copies the chain of views for each view of a view.
        with torch._C._AutoDispatchBelowADInplaceOrView(), self.functionalizer:
            self.functionalizer.above = (torch._C._dispatch_tls_local_include_set(), above)
            self._run_nodes()
        lasts = self.grad is not self.grad_before
        if lasts:
            switch = Node("pliant.grad_mode", torch._C._set_grad_enabled, (self.grad,), {})
            switch.effect = True
            self.functionalizer.function.nodes.append(switch)
        results = [self.env[node] for node in self._output_nodes()]
        inputs = [self.env[node] for node in self.inputs]
        outputs, views = separate_unusual_views(
            *(self.functionalizer, results, inputs),
            *(None if lasts else self.grad, self._requires_grad),
        )
        self.functionalizer.function.outputs = [self._returned(out) for out in outputs]
        views = replace(views, replaced=tensor_attributes.return_replaced(self, results))
        return self.functionalizer.function, views

    def _make_inputs(self) -> None:
        self.inputs = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        shared = inputs_that_share(self.examples)  # a write to one may change others
        for index, node in enumerate(self.inputs):
            self.env[node] = self._input(index, index in shared)
        self.functionalizer.from_inputs = frozenset(self.functionalizer.known)

    def _run_nodes(self) -> None:
        self.run_graph()
        if self.autocast != autocast.state():  # which the guards of `with` keep too
            raise NotFunctionalized("a change of autocast that lasts")

    def run_graph(self) -> None:
        for node in self.gm.graph.nodes:
            if node.op in _STEPS:
                self.functionalizer.begins(node)
                first = len(self.functionalizer.function.nodes)
                self.functionalizer.autocast = autocast.current()
                self.env[node] = _STEPS[node.op](self, node)
                # A call whose result is unused is dead, but must raise what eager PyTorch raises.
                if RAISES in node.meta and not node.users:
                    keep_one(self.functionalizer.function.nodes[first:])
        self.functionalizer.stack = ()  # what follows is autograd's

    def _output_nodes(self) -> Sequence[Any]:
        (output,) = next(iter(reversed(self.gm.graph.nodes))).args
        return output

    def _input(self, index: int, shared: bool) -> Any:
        example, shape = self.examples[index], self.shapes.inputs[index]
        functionalizer = self.functionalizer
        if not isinstance(shape, InputLayout):
            if not isinstance(shape, Expr | FloatExpr):
                return input_object(self, index, example)
            functionalizer.function.inputs.append(shape)
            functionalizer.known.add(held_as(shape))
            return to_torch(shape, functionalizer.env)
        if type(example) not in PLAIN_TENSORS:
            raise NotFunctionalized(f"a tensor of type {type(example).__name__}")
        layout = (
            tuple([to_torch(size, functionalizer.env) for size in shape.sizes]),
            tuple([to_torch(stride, functionalizer.env) for stride in shape.strides]),
        )
        with torch.no_grad():  # without the history and the class of the program's tensor
            plain = example.detach().as_strided(example.size(), example.stride())
        fake = functionalizer.from_real(plain, layout)
        if self.differentiates:  # views of it made without grad ask its base whether that has one
            fake = adopt(fake._world, fake)
        functionalizer.add_input(fake, index, shared)
        return fake

    def _args(self, value: Any) -> Any:
        return fx.node.map_arg(value, lambda node: self.env[node])

    def _attribute(self, node: fx.Node) -> Any:
        return operator.attrgetter(str(node.target))(self.gm)

    def _call_function(self, node: fx.Node) -> Any:
        target = node.target
        special = _SPECIAL.get(target)
        if special is not None:
            return special(self, node)
        if FOLLOWED in node.meta or target in BODY_CALLS:
            return self._call_body(node)
        target = ON_NUMBERS.get(target, target)
        if target not in INSTEAD_OF_PYTHON and not is_operation(target):
            return self._opaque(target, node)
        return self._call(target, node)

    def _call_body(self, node: fx.Node) -> Any:
        """Call a function of the program: trace into it where possible, else call it as a whole."""
        if FOLLOWED in node.meta:
            return self._call(node.target, node)
        taken_apart = BODY_RUNS.get(BODY_CALLS[node.target])
        # Only a body that was captured is a graph; otherwise it is a function that may do anything.
        if taken_apart is not None and _has_body(self._args(node.args[:2])):
            result = taken_apart(self, node)
            if result is not NotImplemented:
                return result
        return self._opaque(node.target, node)

    def _opaque(self, target: Any, node: fx.Node, args: Sequence[Any] | None = None) -> Any:
        """Record a call of a Python function, such as an `autograd.Function`: PyTorch runs it."""
        name = getattr(target, "__name__", str(target))
        if self.grad and self.graded:
            raise NotFunctionalized("autograd")
        if name.startswith(CHANGES) or getattr(target, "__module__", "") in STATEFUL:
            raise NotFunctionalized(name)
        args = self._args(node.args) if args is None else args
        result = self._opaque_call(target, args, self._args(node.kwargs))
        if result is NotImplemented:
            raise NotFunctionalized(name)
        return result

    def _call_method(self, node: fx.Node) -> Any:
        name = str(node.target)
        if isinstance(self._args(node.args[0]), torch.Generator):
            return seed_generator(self, node)
        # A run that differentiates does it to the fakes; without one nothing here has a history.
        if forgets_history(node) and not self.graded:
            return self._forget_history(node)
        if name in REFUSED_METHODS:
            raise NotFunctionalized(f"Tensor.{name}")
        if name == "tolist":
            return list_items(self.functionalizer, self._args(node.args[0]))
        return self._call(getattr(torch.Tensor, name, operator.methodcaller(name)), node)

    def _forget_history(self, node: fx.Node) -> Any:
        return self._args(node.args[0])  # it has none, and will have none

    def _call(self, target: Any, node: fx.Node, in_python: bool = False) -> Any:
        args, kwargs = self._args(node.args), self._args(node.kwargs)
        history = self._has_history((args, tuple(kwargs.values())))
        # This run records no history, so what is computed from such an input would lack its own.
        if history and node.target not in ("size", "stride", "dim"):
            raise NotFunctionalized("autograd")
        # Where an operator inside of a function can't be recorded, the function as a whole may be:
        # then what was recorded of it so far has to go.
        mark = self.functionalizer.mark()
        try:
            result = self._overridden(target, args, kwargs) if callable(target) else NotImplemented
            if result is not NotImplemented:
                return result
            if not self.functionalizer.has_wrapper((args, kwargs)):
                return target(*args, **kwargs)
            # The class of a wrapper sees operators as in eager PyTorch, where autograd has
            # decomposed those that are made of others.
            with torch._C._ForceDispatchKeyGuard(*self.functionalizer.above):
                return (jagged.override_of(target, args, kwargs) or target)(*args, **kwargs)
        except FATAL:
            raise
        except Exception as error:
            if self.functionalizer.roll_back(mark):
                outcome = self._opaque_call(target, args, kwargs)
                if outcome is not NotImplemented:
                    return outcome
                if refuses_symbols(error) and not in_python:
                    # As in the capture: by PyTorch's decompositions in Python, where those in C++
                    # take plain sizes only (`matmul` of PyTorch 2.11).
                    with torch._C._EnablePythonDispatcher():
                        return self._call(target, node, in_python=True)
            if isinstance(error, (NotFunctionalized, *OPEN_QUESTIONS)):
                raise
            # PyTorch's code, given numbers that it does not expect.
            raise NotFunctionalized(f"{node.name}: {error}") from error

    def _has_history(self, value: Any) -> bool:
        """Whether autograd would record this call: an argument is (a view of) an input that
        requires grad, and grad mode is on."""
        followed = partial(tensor_attributes.is_followed, self)
        return self.grad and self.graded and any(map(followed, results_in(value)))

    def _requires_grad(self, fake: Fake) -> bool:
        """Whether it is a view of an input that does."""
        at = self.functionalizer.alias(fake).base.input
        return at is not None and bool(self.examples[at].requires_grad)

    def _overridden(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of the function's `override`; NotImplemented if it has none."""
        record = function_record(target)
        if record is None or record.override is None:
            return NotImplemented
        return record.override(*args, **kwargs)

    def _opaque_call(self, target: Any, args: Any, kwargs: Any) -> Any:
        # A call is recorded by what it returns and writes; a new shape of an argument is neither.
        if getattr(target, "__name__", "") in CHANGES_OF_METADATA:  # which are no writes
            return NotImplemented
        if self.differentiates and torch.is_grad_enabled() and _needs_grad((args, kwargs)):
            return NotImplemented  # its gradient is not known
        try:
            return record_opaque_call(self.functionalizer, target, tuple(args), dict(kwargs))
        except FATAL:
            raise
        except Exception:  # what was wrong first is the better reason
            return NotImplemented

    def _set_grad(self, node: fx.Node) -> None:
        self.grad = bool(node.args[0])
        torch._C._set_grad_enabled(self.grad)

    def _switch_autocast(self, node: fx.Node) -> None:
        autocast.switch(node.target, node.args, node.kwargs)

    def _check(self, node: fx.Node) -> None:
        """A condition on sizes or numbers: record a test that raises where it is false."""
        condition, text = self._args(node.args)
        if condition is True:
            return
        if not isinstance(condition, torch.SymBool):
            raise NotFunctionalized("a check that fails")
        name = f"pliant.{getattr(node.target, '__name__', 'check')}"
        expr = self.functionalizer.number(condition)
        if expr.value is not True:
            self.functionalizer.check(expr, text, name, node.target)
            # Once it is tested, sizes may be simplified by it.
            self.functionalizer.env.checked(expr)

    def _check_truth(self, node: fx.Node) -> None:
        """The same for a condition that is held by a tensor."""
        tensor, expected, text = self._args(node.args)
        arguments = (self.functionalizer.recorded(tensor), expected, text)
        checked = Node("pliant.check_truth", checks.check_truth, arguments, {}, effect=True)
        self.functionalizer.function.nodes.append(checked)

    def _returned(self, value: Any) -> Any:
        functionalizer = self.functionalizer
        if type(value) is ListedItems:
            raise NotFunctionalized("a list of what is in a tensor")
        if type(value) is not Fake:
            return functionalizer.number(value) if isinstance(value, SYMBOLIC) else value
        return self._output_view(value, self._writes(value, functionalizer.alias(value)))

    def _output_view(self, value: Fake, writes: int) -> OutputView:
        functionalizer = self.functionalizer
        alias = functionalizer.alias(value)
        base = alias.base
        layout = functionalizer.tensor(value)
        # Replays a view that is older than the last write, so that the result is of the memory as
        # it is now.
        of = functionalizer.value(alias) if base.input is None else None
        start = base.value
        is_input = (
            value is self.env.get(self.inputs[base.input]) if base.input is not None else False
        )
        # Offsets count elements: those of another dtype can't be subtracted.
        offset = layout.offset - start.offset if layout.dtype is start.dtype else layout.offset
        if layout.dtype is not start.dtype and not _plainly_laid_out(start):
            raise NotFunctionalized("a view as another dtype")
        root = base.value if of is not None else None
        return OutputView(
            *(root, base.input, layout.sizes, layout.strides, offset, layout.dtype, is_input),
            *(value, writes),
        )

    def _writes(self, value: Fake, alias: TensorAlias) -> int:
        """The version counter of a result in new memory. (Fakes count only under autograd.)"""
        base = alias.base
        first = base.counter if base.input is not None else alias.counter
        if self.counters.setdefault(base, first) is not alias.counter:
            # What the launcher returns of one memory has one counter.
            raise NotFunctionalized("Tensor.data, returned beside the tensor")
        if base.input is not None:
            return 0
        return value._version if self.differentiates else alias.counter.writes


def _has_body(args: Sequence[Any]) -> bool:
    return any(isinstance(arg, fx.GraphModule) for arg in args)


def _needs_grad(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_needs_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def forgets_history(node: fx.Node) -> bool:
    required = (*node.args[1:], *node.kwargs.values())
    return node.target == "detach_" or (node.target == "requires_grad_" and required == (False,))


_STEPS: Final[dict[str, Callable[[CapturedRun, fx.Node], Any]]] = {
    "call_function": lambda run, node: run._call_function(node),  # which subclasses override
    "call_method": lambda run, node: run._call_method(node),
    "get_attr": CapturedRun._attribute,
}

_SPECIAL: Final[dict[Any, Callable[[CapturedRun, fx.Node], Any]]] = {
    torch._C._set_grad_enabled: CapturedRun._set_grad,
    **dict.fromkeys(SEEDS, seed_generators),
    builtins.getattr: tensor_attributes.read_attribute,
    builtins.setattr: tensor_attributes.write_attribute,
    **dict.fromkeys(autocast.SWITCHES, CapturedRun._switch_autocast),
    checks.check_truth: CapturedRun._check_truth,
    **dict.fromkeys(checks.CHECKS, CapturedRun._check),
}


# Methods that do something to a tensor that values don't have.
REFUSED_METHODS: Final = frozenset(
    ("requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook")
    + ("backward", "detach_", "share_memory_")
    + ("set_", "resize_", "resize_as_", "data_ptr", "numpy", "__setstate__")
)
