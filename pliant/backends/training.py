"""A captured graph whose inputs require grad: forward and backward, both compiled.

    captured graph -> joint graph (`graph.joint`) -> partition (`graph.partition`)
        forward:   compiled at once; returns the outputs and what it saves
        backward:  compiled when it is first called, for the tangents that are there and the
                   gradients that are wanted
    AutogradStep (native) is the node of PyTorch's autograd that calls them.

The one idea: the two functions go the path of `compile_graph` like any graph without gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from functools import partial
from typing import Any, Final

import torch
from torch import fx

from pliant._native import AutogradStep, isolated
from pliant.backends.compile_graph import (
    CodeGenerator,
    GeneratedCode,
    or_not_generated,
    report_failure,
    simplify,
)
from pliant.backends.fallbacks import Failures, Refusal
from pliant.backends.output_views import WithBases, WithViews
from pliant.backends.small_sizes import SmallSizesInTraining, symbol_values
from pliant.base import events
from pliant.base.collection import without_collection
from pliant.base.forks import COMPILATION
from pliant.base.options import Options
from pliant.base.values import dataclass
from pliant.graph.aliases import NotFunctionalized
from pliant.graph.ir import OutputView
from pliant.graph.joint import Joint, JointEnv, trace_joint
from pliant.graph.opaque_calls import draws
from pliant.graph.partition import (
    GPU_ARITHMETIC,
    Partition,
    Prices,
    depends_on_written,
    partition,
)
from pliant.graph.partition_report import recomputed_bytes, report_partition, saved_bytes
from pliant.graph.rematerialize import rematerialize
from pliant.graph.softmax import split_softmax
from pliant.graph.whole_step import trace_whole_step
from pliant.runtime.differentiable import Backward, Differentiable, ForwardLayout
from pliant.runtime.graphs import function_of
from pliant.runtime.whole_step import CompiledStep
from pliant.sym.cond import Cond
from pliant.sym.expr import evaluate
from pliant.sym.frozen import InputLayout, Shapes
from pliant.targets.cpu.target import CPU
from pliant.targets.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class TrainingCompiler:
    """Compiles a captured graph whose inputs require grad. `tell(name, code)` is called for each
    function that is compiled."""

    gm: fx.GraphModule
    shapes: Shapes
    options: Options
    tell: Callable[[str, GeneratedCode], None]
    target: Target = CPU

    @without_collection()
    def compile(
        self,
        examples: Sequence[Any],
        sizes: Mapping[Any, int] | None = None,
        general: bool = False,
    ) -> Callable[..., Any]:
        """Compile the graph for autograd. `sizes`: the sizes of this call, if they aren't those of
        the capture; `general`: for all sizes, or not at all."""
        with torch._C.DisableTorchFunction():
            # Modes and subclasses of the program were resolved during capture; here they would act
            # twice.
            joint, env = trace_joint(self.gm, self.shapes, examples, sizes, general)
        if general and any(condition.op == "eq0" for condition in env.required):
            raise NotFunctionalized(f"gradients for more than {MOST_VARIANTS} sets of sizes")
        simplify(joint.function, self.target, env.expect)
        on_gpu = self.target.place.type != "cpu"
        if on_gpu:
            split_softmax(joint.function)
        arithmetic = GPU_ARITHMETIC if on_gpu else 1.0
        # What to save for the backward and what to compute again.
        prices = Prices(env.expect, float(self.options.activation_memory_budget), arithmetic)
        parts = partition(joint, prices)
        names = [node.name for node in self.gm.graph.nodes if node.op == "placeholder"]
        events.emit(
            events.GraphPartitioned(
                function=self.name,
                report=partial(report_partition, parts, prices, names),
                saved=partial(saved_bytes, parts, prices, names),
                computed_again=partial(recomputed_bytes, parts, prices),
            )
        )
        # What PyTorch runs instead has to return the same: bases of views, and inputs written to.
        bases, rebased = joint.views.bases, joint.rebased
        captured = WithGradMode(self.gm.forward, False, None) if joint.enables else self.gm.forward
        eager = self._eager(WithBases(captured, bases, rebased) if bases or rebased else captured)
        forward = self._generator(eager).generate(parts.forward.freeze(), env)
        self.tell(self.name, forward)
        graph = self._differentiable(joint, parts, eager, partial(_backward, self, parts, env))
        # Compiled ahead for the usual case: all tangents are there, all gradients wanted.
        if not self.options.lazy_backward:
            graph.backward((True,) * len(joint.differentiable), frozenset(joint.wanted))
        accepts = _with_histories(joint.rebased, _accepts(joint.preconditions, self.shapes))
        otherwise = None
        # Formulas of gradients asked about sizes (`x.size(0) == 1`), and the answers need not hold
        # for later calls. A variant is for the sizes at hand, so there are no variants of variants.
        if env.required and sizes is None and not general and not joint.enables:
            supposed = tuple(env.required)
            otherwise = OtherSizes(self, graph.eager, supposed, _sizes_of(self.shapes))
        step = self._with_views(graph.step(forward.load(), accepts, otherwise), joint)
        if joint.enables:
            return WithGradMode(step, True, bool(joint.grad_mode))
        return _leaving(joint.grad_mode, step)

    def _with_views(self, step: AutogradStep, joint: Joint) -> Callable[..., Any]:
        views = joint.views
        if not views.views and not joint.rebased:
            return step
        symbols = frozenset().union(*[view.symbols for view in views.views])
        values = _values_of(symbols, self.shapes) if symbols else None
        behind = len(views.bases) + len(joint.rebased)
        return WithViews(step, joint.outputs - behind, views, values)

    @without_collection()
    def compile_step(self, examples: Sequence[Any]) -> Callable[..., Any]:
        """Compile a graph that calls `backward` itself, as one program."""
        with torch._C.DisableTorchFunction():
            step, env = trace_whole_step(self.gm, self.shapes, examples)
        simplify(step.function, self.target, env.expect)
        rematerialize(step.function)  # behind CSE, which would merge it with what was computed
        eager = self._eager(self.gm.forward)
        # Strides are compared of what the graph returns. Most steps return a loss, which has none.
        returned = step.function.outputs[: step.outputs]
        compared = any(isinstance(out, OutputView) and out.sizes for out in returned)
        code = self._generator(eager, compared).generate(step.function.freeze(), env)
        self.tell(self.name, code)
        compiled = CompiledStep(
            *(code.load(), eager, step.outputs, step.gradients, step.fresh, step.dropped),
            step.replaced,
            *(step.spent, step.anchor, _accepts(step.preconditions, self.shapes)),
        )
        views: Callable[..., Any] = compiled
        if step.views.views:
            symbols = partial(symbol_values, code.layout)
            count = step.outputs - len(step.views.bases)
            views = WithViews(compiled, count, step.views, symbols)
        return _leaving(step.grad_mode, views)

    def _eager(self, graph: Callable[..., Any]) -> SmallSizesInTraining:
        failures = Failures(partial(report_failure, self.name, self.options))
        return SmallSizesInTraining(graph, failures)

    def _generator(self, eager: SmallSizesInTraining, watches: bool = True) -> CodeGenerator:
        # It refuses in place of running the captured graph, which autograd must record:
        # `AutogradStep` runs the forward without recording, and calls `eager` outside of that.
        return CodeGenerator(
            *(self.name, self.options, Refusal(eager.failures)),
            *(eager.watch if watches else None, self.target),
            graph=self.gm,
        )

    @property
    def name(self) -> str:
        return function_of(self.gm)

    def _drawn_on(self, parts: Partition) -> tuple[torch.device, ...]:
        """The devices whose random state is kept, in case the forward has to be run again: those
        that it may draw numbers of; none if it draws none."""
        if not any(node.effect and draws(node) for node in parts.forward.nodes):
            return ()
        return tuple({CPU.place: None, self.target.place: None})

    def _differentiable(
        self,
        joint: Joint,
        parts: Partition,
        eager: Callable[..., Any],
        make_backward: Callable[[tuple[bool, ...], AbstractSet[int]], Backward | None],
    ) -> Differentiable:
        return Differentiable(
            eager=eager,
            layout=_layout(joint, parts),
            written=frozenset(joint.function.writes),
            copied=tuple(joint.function.writes) if depends_on_written(joint, parts.late) else (),
            draws=self._drawn_on(parts),
            make_backward=make_backward,
            backwards={},
            report_failure=partial(report_failure, f"{self.name} backward", self.options),
        )


@dataclass(slots=True, eq=False)
class OtherSizes:
    """Called where the code of a joint graph refuses. If that is because of what gradient formulas
    suppose of sizes (`supposed`), the graph is compiled once more for the sizes of the call: one
    variant for each set of sizes that are 0 or 1, or that the formulas need to know (the length of
    a recurrent network, which is unrolled), and one for all others. Beyond `MOST_VARIANTS`, one
    that is general (`rest`) runs the graph; or PyTorch does, and an event says so."""

    compiler: TrainingCompiler
    eager: Callable[..., Any]
    supposed: tuple[Cond, ...]
    sizes: Mapping[Any, tuple[int, int]]
    variants: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    rest: Callable[..., Any] | None = None
    fixed: frozenset[Any] = field(init=False)  # symbols that formulas suppose to be some number

    def __post_init__(self) -> None:
        # `s0 == 5` has one symbol, and fixes it.
        equations = [c.symbols for c in self.supposed if c.op == "eq0" and len(c.symbols) == 1]
        self.fixed = frozenset().union(*equations)

    def __call__(self, *inputs: Any) -> Any:
        sizes = {symbol: inputs[at].size(dim) for symbol, (at, dim) in self.sizes.items()}
        # Without gradients, or where another check failed, a new joint graph would refuse as well.
        if not torch.is_grad_enabled() or not self._is_due_to(sizes):
            return self.eager(*inputs)
        # Gradient formulas treat sizes of 0 and 1 specially (broadcasting, means of nothing); a
        # variant for other sizes serves all of them.
        key = tuple([(symbol, n) for symbol, n in sizes.items() if n < 2 or symbol in self.fixed])
        if key not in self.variants and len(self.variants) < MOST_VARIANTS:
            self.variants[key] = self.eager  # also for what is called meanwhile
            self.variants[key] = isolated(COMPILATION, [], self._variant, inputs, sizes)
        elif key not in self.variants and self.rest is None:
            self.rest = self.eager
            self.rest = isolated(COMPILATION, [], self._variant, inputs, None)
        return self.variants.get(key, self.rest or self.eager)(*inputs)

    def _is_due_to(self, sizes: Mapping[Any, int]) -> bool:
        """Whether these sizes break what was supposed of them."""
        decidable = [c for c in self.supposed if c.symbols <= sizes.keys()]
        return not all(evaluate(condition, sizes) for condition in decidable)

    def _variant(self, inputs: Sequence[Any], sizes: Mapping[Any, int] | None) -> Any:
        """The graph compiled for these sizes, or for all. It makes the views among its outputs
        itself, so `WithViews` around the caller finds tensors there, and leaves them alone."""
        compiler = self.compiler
        generate = partial(compiler.compile, inputs, sizes, sizes is None)
        return or_not_generated(compiler.name, compiler.options, generate) or self.eager


MOST_VARIANTS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class WithGradMode:
    """A graph that runs in a grad mode, and leaves one behind, as it ends within `no_grad`. None:
    the mode is as it is."""

    call: Callable[..., Any]
    during: bool | None
    after: bool | None

    def __call__(self, *inputs: Any) -> Any:
        before = torch.is_grad_enabled()
        if self.during is not None:
            torch._C._set_grad_enabled(self.during)
        try:
            results = self.call(*inputs)
        except BaseException:
            torch._C._set_grad_enabled(before)
            raise
        if self.after is not None:
            torch._C._set_grad_enabled(self.after)
        return results


def _leaving(mode: bool | None, step: Callable[..., Any]) -> Callable[..., Any]:
    return step if mode is None else WithGradMode(step, None, mode)


def _layout(joint: Joint, parts: Partition) -> ForwardLayout:
    outputs = enumerate(joint.function.outputs[: joint.outputs])
    windows = [(at, out) for at, out in outputs if isinstance(out, OutputView)]
    return ForwardLayout(
        inputs=joint.inputs,
        outputs=joint.outputs,
        numbers=joint.outputs + sum(kind == "more" for kind, _ in parts.saved.tensors),
        saved=[(kind == "input", at) for kind, at in parts.saved.tensors],
        differentiable=joint.differentiable,
        contiguous=joint.contiguous,
        returned=[(at, out.input) for at, out in windows if out.input is not None],
        wanted=joint.wanted,
    )


def _backward(
    compiler: TrainingCompiler,
    parts: Partition,
    env: JointEnv,
    tangents: tuple[bool, ...],
    wanted: AbstractSet[int],
) -> Backward | None:
    """The code for these tangents and gradients; None if it can't be compiled. It is compiled in
    the middle of PyTorch's backward, isolated from the state of the program there."""
    backward: Backward | None = isolated(
        COMPILATION, [], _make_backward, compiler, parts, env, tangents, wanted
    )
    return backward


def _make_backward(
    compiler: TrainingCompiler,
    parts: Partition,
    env: JointEnv,
    tangents: tuple[bool, ...],
    wanted: AbstractSet[int],
) -> Backward | None:
    name = f"{compiler.name} backward"

    def generate() -> Backward:
        # Compiled when first needed: outputs without a tangent, and inputs that need no gradient,
        # leave out much of the backward.
        function, gradients = parts.backward(tangents, wanted)
        generator = CodeGenerator(
            *(name, compiler.options, None, None, compiler.target, parts.saved.donated),
            graph=compiler.gm,
        )
        code = generator.generate(function.freeze(), env)
        compiler.tell(name, code)
        return code.load(), gradients

    return or_not_generated(name, compiler.options, generate)


Accepts = Callable[[Sequence[Any]], bool]


def _accepts(conditions: Sequence[Cond], shapes: Shapes) -> Accepts | None:
    """A test of whether the conditions hold for the sizes of the inputs; None if there are none."""
    if not conditions:
        return None
    values_of = _values_of({s for condition in conditions for s in condition.symbols}, shapes)

    def accepts(inputs: Sequence[Any]) -> bool:
        values = values_of(inputs)
        return all(evaluate(condition, values) for condition in conditions)

    return accepts


def _with_histories(rebased: Sequence[int], accepts: Accepts | None) -> Accepts | None:
    """`accepts`, and a test that the inputs `rebased` can get another history: a leaf that requires
    grad can't, that of a view depends on its base, and PyTorch moves the hook of `retain_grad` only
    to the first output of a node."""
    if not rebased:
        return accepts

    def accepts_histories(inputs: Sequence[Any]) -> bool:
        tensors = [inputs[at] for at in rebased]
        if any(t._is_view() or t.retains_grad or _is_graded_leaf(t) for t in tensors):
            return False
        return accepts is None or accepts(inputs)

    return accepts_histories


def _is_graded_leaf(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf


def _values_of(
    symbols: Collection[Any], shapes: Shapes
) -> Callable[[Sequence[Any]], Mapping[Any, Any]]:
    """A function that reads the values of these symbols from the inputs."""
    # Read from inputs in Python, on each call: strides and numbers from data are left out.
    sizes = {s: place for s, place in _sizes_of(shapes).items() if s in symbols}
    if sizes.keys() != set(symbols):
        raise NotFunctionalized("a number that is no size of an input")

    def values(inputs: Sequence[Any]) -> Mapping[Any, Any]:
        return {symbol: inputs[at].size(dim) for symbol, (at, dim) in sizes.items()}

    return values


def _sizes_of(shapes: Shapes) -> dict[Any, tuple[int, int]]:
    """By symbol: the input and the dimension whose size it is."""
    sizes: dict[Any, tuple[int, int]] = {}
    for at, layout in enumerate(shapes.inputs):
        if isinstance(layout, InputLayout):
            sizes.update({s: (at, dim) for dim, s in enumerate(layout.sizes) if s.op == "symbol"})
    return sizes
