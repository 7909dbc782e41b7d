"""Forward and backward of a captured graph as one functional graph.

The one idea: fakes have PyTorch's own autograd, so the graph is run on fakes that require grad, and
then PyTorch computes the gradients of the results. The operators of both directions arrive in
the same recording; a gradient formula is a few more operators, to be fused like any others.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

import torch
from torch import fx
from torch.utils.hooks import RemovableHandle

from pliant.base.bodies import BODY_CALLS, BOTH, FOLLOWED, LEAVES, BodyCall
from pliant.base.checks import suppose
from pliant.base.errors import DataDependentError
from pliant.base.operators import function_record
from pliant.base.position import Position
from pliant.base.refusals import about, name_culprit
from pliant.base.values import dataclass
from pliant.fake.layout import contiguous_strides, nesting
from pliant.fake.overload import Overload, describe
from pliant.fake.tensor import Fake, make
from pliant.graph import autocast
from pliant.graph.aliases import NotFunctionalized, results_in
from pliant.graph.backward_calls import call_with_history, hook_module, set_up_hooks
from pliant.graph.bodies import register_hook, watch_backward
from pliant.graph.functionalize import OPEN_QUESTIONS, CapturedRun, forgets_history
from pliant.graph.functionalizer import Functionalizer
from pliant.graph.ir import FunctionalBuilder, Node, OutputView, Tensor, call_by_position
from pliant.graph.output_views import OutputViews, separate_views
from pliant.sym.cond import Cond, eq, not_
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import Expr
from pliant.sym.frozen import FrozenEnv, Shapes, Undecided
from pliant.sym.node import to_torch
from pliant.sym.records import Question, SizeGuard

Traced = TypeVar("Traced")


@dataclass(frozen=True, slots=True)
class Joint:
    """`function` takes the inputs of the forward (`inputs` many), then a tangent (the gradient that
    arrives) for each of the outputs `differentiable`; it returns the outputs of the forward
    (`outputs` many), then a gradient for each of the inputs `wanted`."""

    function: FunctionalBuilder
    inputs: int
    outputs: int
    differentiable: tuple[int, ...]
    wanted: tuple[int, ...]
    contiguous: tuple[bool, ...]  # by tangent: without gaps, whatever the output is
    preconditions: tuple[Cond, ...]  # of symbols that the function itself doesn't know any more
    views: OutputViews  # made behind the function; their bases follow the outputs
    rebased: tuple[int, ...]  # inputs whose history is of the graph afterwards: the last outputs
    grad_mode: bool | None  # as it is afterwards, if the graph changes it
    enables: bool  # it is called without gradients, and results have a history all the same

    @property
    def tangents(self) -> list[Tensor]:
        return self.function.inputs[self.inputs :]


class JointEnv(FrozenEnv):
    """What is known of sizes while a joint graph is traced. Gradient formulas ask questions that
    the capture didn't, too late for guards. What the answers suppose is collected in `required`,
    and tested when the forward runs; if it doesn't hold, PyTorch runs the graph. Sizes in the data
    are supposed to be at least 2. `sizes`: the hints of this call, if they aren't those of the
    capture. `general`: a function that could be taken apart for one size is rather called whole."""

    def __init__(
        self,
        shapes: Shapes,
        required: Sequence[Cond] = (),
        sizes: Mapping[Expr, int] | None = None,
        general: bool = False,
    ) -> None:
        super().__init__(shapes)
        self.general = general
        for symbol, size in (sizes or {}).items():
            self.hints[symbol] = size
        self.required: list[Cond] = list(required)
        self._of_capture = frozenset(self.symbols)
        for cond in required:
            self.checked(cond)

    def new_unbacked(self, source: object) -> Expr:
        """An unbacked symbol for a size that the capture didn't see."""
        return ShapeEnv.add_unbacked(self, source, size_like=True)

    def _guard(self, cond: Cond, asker: str, position: Position | None) -> SizeGuard:
        inputs = {binding.expr for binding in self.bindings}
        if not cond.symbols <= inputs:  # it can't be tested before the forward has run
            return super()._guard(cond, asker, position)
        self._require(cond)
        return SizeGuard(cond, asker, position)

    def _require(self, cond: Cond) -> None:
        self.required.append(cond)
        self.checked(cond)

    def evaluate(self, cond: Cond, asker: str, position: Position | None = None) -> bool:
        question = self.ask(cond, asker, position)
        if question.answer is None:
            likely = self.if_large(question.condition)
            if likely is not None and self._suppose(question.condition, likely):
                return likely
        return super().evaluate(cond, asker, position)

    def _assume(self, question: Question, answer: bool) -> bool:
        try:
            return super()._assume(question, answer)
        except Undecided:
            if not self._suppose(question.condition, answer):
                raise
            return answer

    def _suppose(self, cond: Cond, answer: bool) -> bool:
        """Require an answer that nothing else decides. False if the forward can't test it: it is
        about a number that the capture did not see, or a float."""
        if not all(isinstance(s, Expr) and s in self._of_capture for s in cond.symbols):
            return False
        self._require(cond if answer else not_(cond))
        return True


@dataclass(frozen=True, slots=True, eq=False)
class InGradMode:
    """An operator whose results depend on grad mode: it is called in that mode, while the rest of
    the forward runs without."""

    func: Any
    names: tuple[str, ...]

    def __call__(self, *args: Any) -> Any:
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            return call_by_position(self.func, self.names, args)


class JointFunctionalizer(Functionalizer):
    """Records operators of both directions."""

    measures_symbols = False  # the program can't see the strides of gradients on the way

    env: JointEnv

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What has begun, and autograd's count by then.
        self._begun: list[tuple[int, fx.Node, tuple[Position, ...]]] = []

    def begins(self, node: fx.Node) -> None:
        super().begins(node)
        # Autograd numbers its formulas in the order in which they are made.
        self._begun.append((torch.autograd._get_sequence_nr(), node, self.stack))

    def add(self, node: Node, fakes: Sequence[Fake]) -> Node:
        if torch._C._current_autograd_node() is not None:
            began = self.formula_of()
            node.stack = began[1] if began else ()
        return super().add(node, fakes)

    def formula_of(self) -> tuple[fx.Node, tuple[Position, ...]] | None:
        """The node whose gradient formula is running, and its stack; None in the forward."""
        formula = torch._C._current_autograd_node()
        if formula is None:
            return None
        # The last one that began before autograd made this formula: its line of the program made
        # it.
        at = bisect_right(self._begun, formula._sequence_nr(), key=itemgetter(0))
        return self._begun[at - 1][1:] if at else None

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        op = describe(func)
        try:
            if self._quiet or op.record.workspace is None:
                return super().dispatch(func, args, kwargs)
            return self._with_workspace(op, op.record.workspace, args, kwargs)
        except Exception as error:
            if (began := self.formula_of()) is not None:
                name_culprit(error, began[0])
            raise

    def _with_workspace(
        self, op: Overload, which: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Record an operator that returns a workspace for its backward, as result number `which`.
        Only the kernel knows its size, which becomes an unbacked symbol."""
        results = list(self._answer(op, args, kwargs))
        size = to_torch(self.env.new_unbacked(op.name), self.env)
        old = results[which]
        sizes = (*old.size()[:-1], size)
        results[which] = make(
            self._self, sizes, contiguous_strides(sizes), 0, old.dtype, old.device
        )
        positional, named = self.recorded_arguments(args, kwargs)
        # Under another name no rule lowers it.
        name = f"{op.name} in grad mode"
        self.add(Node(name, InGradMode(op.func, tuple(named)), positional, named), results)
        return tuple(results)


def trace_joint(
    gm: fx.GraphModule,
    shapes: Shapes,
    examples: Sequence[Any],
    sizes: Mapping[Expr, int] | None = None,
    general: bool = False,
) -> tuple[Joint, JointEnv]:
    """The joint graph of a captured one, and what is known of its sizes. `sizes`: those at hand, if
    they are not those of the capture; `general`: for as many as possible. Raises
    `NotFunctionalized` where there is none."""
    return trace_with_autograd(_JointRun, gm, shapes, examples, sizes, general)


def trace_with_autograd(
    run: type[DifferentiatedRun[Traced]],
    gm: fx.GraphModule,
    shapes: Shapes,
    examples: Sequence[Any],
    sizes: Mapping[Expr, int] | None = None,
    general: bool = False,
) -> tuple[Traced, JointEnv]:
    """Run a captured graph under autograd, by the class `run`. Returns what that traces, and what
    is known of sizes afterwards. Traces again until it learns no more about sizes."""
    if torch.is_anomaly_enabled():  # it names the step that made a NaN, and reads data for it
        raise NotFunctionalized("anomaly detection")
    # Formulas treat small sizes apart, and layouts depend on them without a guard.
    # A variant for small sizes is recorded with them as constants.
    supposed = [eq(symbol, size) for symbol, size in (sizes or {}).items() if size < 2]
    # An equality that is learnt on the way changes how sizes are written, in what is recorded from
    # then on only. So everything is recorded again, by an environment that knows it from the start.
    while True:
        env = JointEnv(shapes, supposed, sizes, general)
        equal = dict(env.replacements)
        # Each round knows more equalities than the last, and there are finitely many symbols.
        traced = _trace(run, gm, shapes, examples, env)
        # (What the graph itself checks of sizes in the data is learnt on the way each time.)
        if env.replacements == equal or len(env.required) == len(supposed):
            return traced, env
        supposed = env.required


def _trace(
    run: type[DifferentiatedRun[Traced]],
    gm: fx.GraphModule,
    shapes: Shapes,
    examples: Sequence[Any],
    env: JointEnv,
) -> Traced:
    functionalizer = JointFunctionalizer(env)
    # Hooks of the program on tensors that autograd saves are not to see fakes.
    hooked = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    traced = run(gm, functionalizer, shapes, examples)
    try:
        with autocast.undone(), torch.set_grad_enabled(torch.is_grad_enabled()):
            return traced.trace(env.required)
    except (*OPEN_QUESTIONS, DataDependentError) as error:
        refused = NotFunctionalized(f"{type(error).__name__}: {error}")
        raise about(refused, error) from error
    except RuntimeError as error:  # autograd refuses, when the program runs too
        raise about(NotFunctionalized(str(error)), error) from error
    finally:
        torch._C._autograd._saved_tensors_hooks_set_tracing(hooked)
        traced.forget()
        functionalizer.forget()


class DifferentiatedRun(CapturedRun, Generic[Traced]):
    """Runs the graph with autograd above the recording."""

    differentiates = True
    functionalizer: JointFunctionalizer

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.changed: list[Fake] = []  # tensors whose gradient the program changes itself
        self.handles: list[Any] = []  # of hooks
        self.new_leaves: list[Fake] = []
        self.arrived: list[int] = []  # leaves, as their gradients came
        self.grad_mode: bool | None = None  # that it leaves behind

    def trace(self, required: Sequence[Cond]) -> Traced:
        """`required` collects what is supposed of sizes on the way."""
        raise NotImplementedError

    def _run_with_autograd(self) -> tuple[list[Any], dict[int, Fake]]:
        """Run the nodes under autograd. Returns the graph's results, and the leaves by input."""
        before = torch.is_grad_enabled()
        self._make_inputs()
        leaves = self._leaves()
        above = torch._C._dispatch_tls_local_exclude_set()
        # Not below autograd, as without gradients: it has to see every operator of the forward.
        with self.functionalizer:
            self.functionalizer.above = (torch._C._dispatch_tls_local_include_set(), above)
            self._run_nodes()
        if torch.is_grad_enabled() is not before:
            self.grad_mode = not before
            torch._C._set_grad_enabled(before)
        return [self.env[node] for node in self._output_nodes()], leaves

    def _call_body(self, node: fx.Node) -> Any:
        if BODY_CALLS.get(node.target) is BodyCall.HOOK:
            handle, tensor = register_hook(self, node)
            self.changed.append(tensor)
            self.handles.append(handle)
            return handle
        if BODY_CALLS.get(node.target) in MODULE_CALLS:
            return MODULE_CALLS[BODY_CALLS[node.target]](self, node)
        result = super()._call_body(node)
        if FOLLOWED in node.meta and torch.is_grad_enabled():
            graded, handles = watch_backward(self.functionalizer, node, result)
            self.changed += graded
            self.handles += handles
            if graded and node.meta[FOLLOWED] != BOTH:
                name = getattr(node.target, "__name__", "a function")
                raise NotFunctionalized(f"{name}, whose backward may do anything")
        return result

    def forget(self) -> None:
        """Drop hooks: from a tensor they lead to all others, on a way that Python can't see. Nobody
        is to see that they had numbers."""
        for handle in self.handles:
            handle.remove()
        RemovableHandle.next_id -= len(self.handles)

    def _call_function(self, node: fx.Node) -> Any:
        if node.target is torch.autograd.grad:
            return self._inner_gradients(node)
        return super()._call_function(node)

    def _inner_gradients(self, node: fx.Node) -> Any:
        """Gradients that the program asks for itself."""
        kwargs = self._args(node.kwargs)
        # The history of what was computed outside is not in this graph.
        if not node.meta.get(LEAVES) or kwargs.get("is_grads_batched"):
            raise NotFunctionalized("torch.autograd.grad through what was computed outside")
        return torch.autograd.grad(*self._args(node.args), **kwargs)

    def _call_method(self, node: fx.Node) -> Any:
        if node.target == "requires_grad_" and not forgets_history(node):
            tensor = self._args(node.args[0])
            if any(tensor is self.env[place] for place in self.inputs):
                if tensor.requires_grad:
                    return tensor
                # The caller's tensor has to be a leaf afterwards, which no result can make it.
                raise NotFunctionalized("Tensor.requires_grad_ of an input")
            self.new_leaves.append(tensor)
            return tensor.requires_grad_()
        return super()._call_method(node)

    def _forget_history(self, node: fx.Node) -> Any:
        tensor = self._args(node.args[0])
        if tensor.requires_grad:
            if self.functionalizer.alias(tensor).base.input is not None:
                raise NotFunctionalized(f"Tensor.{node.target} of an input")
            tensor.detach_() if node.target == "detach_" else tensor.requires_grad_(False)
        return tensor

    def _overridden(self, target: Any, args: Any, kwargs: Any) -> Any:
        record = function_record(target)
        if record is not None and record.differentiable is not None:
            result = record.differentiable(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if record is not None and record.checks_data:
            # Its operators, which autograd would see, don't look at the data.
            with torch._C._AutoDispatchBelowAutograd():
                return target(*args, **kwargs)
        if record is not None and record.keeps_history is not None and torch.is_grad_enabled():
            graded = any(t.requires_grad for t in results_in((*args, *kwargs.values())))
            if graded and record.keeps_history(self.functionalizer.env.general, *args, **kwargs):
                return call_with_history(self.functionalizer, target, args, kwargs)
        return super()._overridden(target, args, kwargs)

    def _leaves(self) -> dict[int, Fake]:
        """The inputs that require grad, by number. (What they were made of is outside.)"""
        leaves: dict[int, Fake] = {}
        for at, (node, example) in enumerate(zip(self.inputs, self.examples, strict=True)):
            if isinstance(example, torch.Tensor) and example.requires_grad:
                leaves[at] = self.env[node]
                self.env[node].requires_grad_()
        return leaves

    def _check_required(self, required: Sequence[Cond]) -> tuple[Cond, ...]:
        """Put tests of the conditions into the graph where the sizes are known: in front, or behind
        the node that finds a size in the data. Returns those that it can't test, as they are about
        symbols that were replaced by equal ones: the caller tests them."""
        function = self.functionalizer.function
        replaced = self.functionalizer.env.replacements.keys()
        places: dict[Any, int] = {}
        for at, node in enumerate(function.nodes):
            places.update({unbacked.symbol: at for unbacked in node.defines})
        tests: list[tuple[int, Node]] = []
        left: list[Cond] = []
        for condition in required:
            at = max([places.get(symbol, -1) for symbol in condition.symbols]) + 1
            if not condition.symbols.isdisjoint(replaced):
                if at:
                    raise NotFunctionalized(f"{condition}, which can't be tested")
                left.append(condition)
                continue
            test = Node("pliant.suppose", suppose, (condition, str(condition)), {}, effect=True)
            tests.append((at, test))
        # What follows is right only where they hold, and nothing is written before those in front.
        for at, test in sorted(tests, key=itemgetter(0), reverse=True):
            function.nodes.insert(at, test)
        return tuple(left)

    def _gradient(self, fake: Fake) -> OutputView:
        """How a gradient is returned: as a view of a value, or of an input (in a joint graph that
        is a tangent)."""
        functionalizer = self.functionalizer
        alias = functionalizer.alias(fake)
        base = alias.base
        layout = functionalizer.tensor(fake)
        if layout.dtype is not base.value.dtype:
            raise NotFunctionalized("a gradient that is a view as another dtype")
        of = functionalizer.value(alias) if base.input is None else None
        root = base.value if of is not None else None
        offset = layout.offset - base.value.offset
        is_tangent = base.input is not None and alias.parent is None
        return OutputView(
            *(root, base.input, layout.sizes, layout.strides, offset, layout.dtype, is_tangent),
            fake,
        )


MODULE_CALLS: Final = {
    BodyCall.MODULE_HOOKS: hook_module,
    BodyCall.SETS_UP_HOOKS: set_up_hooks,
}


class _JointRun(DifferentiatedRun[Joint]):
    def trace(self, required: Sequence[Cond]) -> Joint:
        # The forward is run under autograd, then autograd is asked for the gradients: both are
        # recorded by the same functionalizer.
        enabled = torch.is_grad_enabled()
        results, leaves = self._run_with_autograd()
        if self.replaced:  # what the backward reads from an input would not be there any more
            raise NotFunctionalized("a Tensor.data that is replaced, beside gradients")
        inputs = [self.env[node] for node in self.inputs]
        with self.functionalizer:
            outputs, views = separate_views(self.functionalizer, results, inputs)
            made = [(results[v.output], v.of_input or outputs[v.source]) for v in views.views]
            self._check_views([view for view, base in made if view is not base])
            differentiable = [
                at for at, out in enumerate(outputs) if _is_new_differentiable(out, inputs)
            ]
            rebased = self._rebased()
            differentiable += range(len(outputs), len(outputs) + len(rebased))
            enables = bool(differentiable) and not enabled
            if enables and (views.views or rebased):
                raise NotFunctionalized("views and writes with a history, called without gradients")
            # Inputs that were written to are outputs, too: gradients arrive at what they hold now.
            outputs += [inputs[at] for at in rebased]
            self._check_new_leaves([outputs[at] for at in differentiable], leaves)
            gradients = self._gradients([outputs[at] for at in differentiable], leaves)
        function = self.functionalizer.function
        preconditions = self._check_required(required)
        function.outputs = [self._returned(out) for out in outputs]
        # Outputs first, then gradients, as `Joint` says.
        found = {at: g for at, g in zip(leaves, gradients, strict=True) if type(g) is Fake}
        arrived = [
            at for at in dict.fromkeys(self.arrived) if at in found and self.examples[at].is_leaf
        ]
        with_gradient = order_of_edges(arrived, [at for at in found if at not in arrived])
        function.outputs += [self._gradient(found[at]) for at in with_gradient]
        return Joint(
            function=function,
            inputs=len(self.inputs),
            outputs=len(outputs),
            differentiable=tuple(differentiable),
            wanted=tuple(with_gradient),
            contiguous=tuple([not _nests(outputs[at]) for at in differentiable]),
            preconditions=preconditions,
            views=views,
            rebased=rebased,
            grad_mode=self.grad_mode,
            enables=enables,
        )

    def _leaves(self) -> dict[int, Fake]:
        """The tensors to differentiate by, by input. An input that is no leaf may be written to,
        which gives it a history of the graph's. So it has a history from the start (`_History`),
        which ends in a leaf that stands for it: a write shows as another `grad_fn` (`_rebased`)."""
        leaves: dict[int, Fake] = {}
        self.histories: dict[int, Any] = {}
        for at, (node, example) in enumerate(zip(self.inputs, self.examples, strict=True)):
            fake = self.env[node]
            if not isinstance(example, torch.Tensor):
                continue
            # A leaf is differentiated by itself, any other input through a stand-in.
            if example.requires_grad and example.is_leaf:
                leaves[at] = fake
                fake.requires_grad_()
            elif example.requires_grad:
                layout = (fake.size(), fake.stride(), 0, fake.dtype, fake.device)
                leaves[at] = make(self.functionalizer._self, *layout)
                leaves[at].requires_grad_()
                with torch.enable_grad():  # as it had when it came
                    _History.apply(fake, leaves[at])
            self.histories[at] = fake.grad_fn
        return leaves

    def _rebased(self) -> tuple[int, ...]:
        """The inputs whose autograd history a write in the graph has replaced."""
        rebased: list[int] = []
        for at, history in self.histories.items():
            fake = self.env[self.inputs[at]]
            if fake.grad_fn is history:
                continue
            # Of views, PyTorch makes the history from that of their base, which is not here.
            if self.examples[at]._is_view() or self.functionalizer.alias(fake).base.shared:
                raise NotFunctionalized("a write to a view that requires grad")
            rebased.append(at)
        return tuple(rebased)

    def _check_new_leaves(self, differentiable: Sequence[Fake], leaves: dict[int, Fake]) -> None:
        """Leaves that are made in the graph would get gradients, which only show if they are
        returned."""
        new = _reached(differentiable) - {id(leaf) for leaf in leaves.values()}
        returned = {
            id(self.env[node]) for node in self._output_nodes() if isinstance(node, fx.Node)
        }
        if new & returned:
            raise NotFunctionalized("a leaf that is made in the graph")

    def _check_views(self, views: Sequence[Fake]) -> None:
        """Views are made behind the step, with gradients of their own."""
        memory = {id(self.functionalizer.alias(t).base) for t in self.changed}
        if any(id(self.functionalizer.alias(view).base) in memory for view in views):
            raise NotFunctionalized("a view that is returned, whose gradient the program changes")
        leaves = {id(self.functionalizer.alias(t)) for t in self.new_leaves if t.is_leaf}
        if any(id(step) in leaves for view in views for step in self.functionalizer.chain(view)):
            raise NotFunctionalized("a view that is returned, of a leaf that is made in the graph")

    def _gradients(self, outputs: Sequence[Fake], leaves: dict[int, Fake]) -> Sequence[Any]:
        """Ask autograd for the gradient of each leaf; None for one that no output depends on."""
        if not outputs:
            return [None] * len(leaves)
        if not leaves:
            raise NotFunctionalized("outputs that require grad, and depend on no leaf")
        tangents = [self._tangent(out) for out in outputs]
        for at, leaf in leaves.items():
            self.handles.append(leaf.register_hook(partial(self._note_arrival, at)))
        # All leaves, even if some gradients aren't wanted later: `_Backward` drops what isn't
        # wanted.
        gradients = torch.autograd.grad(outputs, list(leaves.values()), tangents, allow_unused=True)
        if all(grad is None for grad in gradients):  # of views that were made without grad
            raise NotFunctionalized("outputs that require grad, and depend on no leaf")
        return gradients

    def _note_arrival(self, at: int, gradient: Any) -> None:
        """Note in which order the leaves get their gradients."""
        self.arrived.append(at)

    def _tangent(self, out: Fake) -> Fake:
        """Add an input for the gradient of `out`, with the output's layout, or contiguous if that
        has several elements in one place. (The gradient that arrives is copied if its layout
        differs.)"""
        strides = out.stride() if _nests(out) else contiguous_strides(out.size())
        layout = (out.size(), strides, 0, out.dtype, out.device)
        tangent = make(self.functionalizer._self, *layout)
        self.functionalizer.add_input(tangent, len(self.functionalizer.function.inputs), False)
        return tangent


def order_of_edges(leaves: Sequence[int], others: Sequence[int]) -> list[int]:
    """The order of a node's edges for which autograd visits these leaves in their order, as their
    hooks show: it keeps nodes that are ready in a heap, in which all leaves come first."""
    edges = [-1] * len(leaves)
    for leaf, place in zip(leaves, _visited(len(leaves), len(others)), strict=True):
        edges[place] = leaf
    return [*edges, *others]


def _visited(leaves: int, others: int) -> list[int]:
    """The places among the edges in which the leaves are taken from the heap: C++'s own, whose
    parent nodes are replaced by the right child if both are equal."""
    heap, order = list(range(leaves + others)), list[int]()
    while heap and heap[0] < leaves:
        order.append(heap[0])
        last, hole = heap.pop(), 0
        while heap and 2 * hole + 1 < len(heap):
            left, right = 2 * hole + 1, 2 * hole + 2
            takes_left = right == len(heap) or (heap[right] >= leaves > heap[left])
            child = left if takes_left else right
            heap[hole], hole = heap[child], child
        if heap:
            heap[hole] = last
            parent = (hole - 1) // 2
            while hole and heap[parent] >= leaves > heap[hole]:
                heap[hole], heap[parent] = heap[parent], heap[hole]
                hole, parent = parent, (parent - 1) // 2
    return order


def _nests(out: Fake) -> bool:
    """Whether the strides prove that each element has a place of its own, so that a tangent can
    have the same layout."""
    return nesting(out.size(), out.stride()) is not None


class _History(torch.autograd.Function):
    """Gives a tensor the history of being computed from `leaf`, without computing anything."""

    @staticmethod
    def forward(ctx: Any, tensor: Any, leaf: Any) -> Any:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, *grads


def _is_new_differentiable(out: Any, inputs: Sequence[Any]) -> bool:
    """Whether the output has a tangent. An input that is returned hasn't: its gradient goes to the
    caller's tensor, not through this graph."""
    if type(out) is not Fake or not out.requires_grad:
        return False
    return not any(out is fake for fake in inputs)


def _reached(outputs: Sequence[Fake]) -> set[int]:
    """The ids of the leaves that gradients of the outputs go to."""
    leaves = {id(out) for out in outputs if out.grad_fn is None}
    # A walk over autograd's graph, not a backward: that would record operators.
    waiting = [out.grad_fn for out in outputs if out.grad_fn is not None]
    visited = set(waiting)
    while waiting:
        node = waiting.pop()
        if not node.next_functions and hasattr(node, "variable"):
            leaves.add(id(node.variable))
        for after, _ in node.next_functions:
            if after is not None and after not in visited:
                visited.add(after)
                waiting.append(after)
    return leaves
