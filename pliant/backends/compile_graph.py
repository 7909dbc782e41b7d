"""The whole path from a captured graph to something that can be called, one line a stage.

Captured -> Functional -> Scheduled -> Kernels -> Program -> Launcher. Each is a value that prints,
and that a checker looks at where `config.check_ir` asks for it. Only `load` ties the result to this
process: a `Program` is plain data.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch import fx

from pliant._native import Launcher
from pliant.backends.choose_target import refuse_devices
from pliant.backends.fallbacks import Failures, GraphFallback
from pliant.backends.generator_states import GeneratorStates, PutsStatesBack, SavesStates
from pliant.backends.output_views import WithBases, WithViews
from pliant.backends.small_sizes import SmallSizes, Variant, symbol_values
from pliant.base import events
from pliant.base.collection import without_collection
from pliant.base.errors import InternalError
from pliant.base.isolation import FATAL, raise_hidden
from pliant.base.late import Late
from pliant.base.options import Options
from pliant.base.position import lines_of
from pliant.base.refusals import refuse
from pliant.base.values import dataclass, replace
from pliant.graph.aligned_matmul import align_products
from pliant.graph.body_code import FlatBody, bodies_in
from pliant.graph.cse import eliminate_common_subexpressions
from pliant.graph.epilogues import fuse_activations
from pliant.graph.functionalize import NotFunctionalized, functionalize
from pliant.graph.generated_matmul import generate_large_products, generate_odd_products
from pliant.graph.ir import Functional, FunctionalBuilder, Node, object_inputs
from pliant.graph.known_masks import replace_known_masks
from pliant.graph.lower import Lowered, lower
from pliant.graph.masks import materialize_masks
from pliant.graph.one_hot import sum_one_hot
from pliant.graph.output_views import OutputViews
from pliant.graph.split_reductions import split_reductions
from pliant.launch.batches import plan_batches
from pliant.launch.kernels import (
    KernelError,
    KernelRefused,
    Kernels,
    compile_kernels,
    write_kernels,
)
from pliant.launch.launch_info import LaunchInfo
from pliant.launch.program import Program, ProgramBindings, load
from pliant.launch.sequence import OutputLayout, Watcher, sequence
from pliant.loop.define import bytes_of
from pliant.loop.scheduled import Scheduled, WrittenTooEarly, plan_schedule
from pliant.ops.lowering import NotLowered
from pliant.runtime.graphs import function_of, run
from pliant.sym.expr import Expr
from pliant.sym.floats import held_as
from pliant.sym.frozen import FrozenEnv, Shapes
from pliant.targets.cpu.target import CPU
from pliant.targets.target import Hint, Target

if TYPE_CHECKING:
    from pliant.backends import checkers
    from pliant.loop import fusion_report, memory_use
else:
    fusion_report = Late("pliant.loop.fusion_report")  # which only reports ask for
    memory_use = Late("pliant.loop.memory_use")  # the same
    checkers = Late("pliant.backends.checkers")  # which only tests use

T = TypeVar("T")

MOST_REFUSED: Final = 50
"""If more operators than this have kernels that fail, it is not about one of them."""


def simplify(functional: FunctionalBuilder, target: Target, hint: Hint) -> None:
    replace_known_masks(functional)  # which say no more than that attention is causal
    materialize_masks(functional)  # what every layer of attention would make of its mask
    eliminate_common_subexpressions(functional)
    sum_one_hot(functional)  # in gradients of losses, which would take a pass over all classes
    on_gpu = target.place.type != "cpu"
    if on_gpu:
        split_reductions(functional, hint)  # which have too few results to keep a GPU busy
    if target.multiplies:
        generate_odd_products(functional, hint)  # which libraries can't store as they are
    if on_gpu:
        align_products(functional, hint)  # for which libraries have no fast kernels otherwise
        fuse_activations(functional)  # which libraries compute on the way
    if target.measures:
        generate_large_products(functional, hint)  # with what is computed from them


def or_not_generated(
    name: str, options: Options, generate: Callable[[], T], graph: fx.GraphModule | None = None
) -> T | None:
    """The result of `generate`, or None where there is no code, with an event that says why; unless
    the captured `graph` had better break."""
    try:
        return generate()
    except NotFunctionalized as reason:
        if graph is not None and refuse(graph, reason):
            return None
        events.emit(events.NotGenerated(function=name, reason=str(reason)))
    except FATAL:
        raise
    except Exception as error:
        raise_hidden(error)
        report_failure(name, options, error, "generating code for")
    return None


def report_failure(
    name: str, options: Options, error: Exception, doing: str = "the code of"
) -> None:
    """Report that PyTorch runs a graph, or raise if the options say so."""
    if options.raise_on_fallback:
        raise InternalError(f"{doing} {name} failed: {error!r}") from error
    events.emit(events.FellBack(function=name, reason=repr(error), error=error))


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedCode:
    """A compiled graph: the value of each stage, and what ties the last to this process."""

    functional: Functional
    lowered: Lowered
    scheduled: Scheduled
    written: Kernels
    program: Program
    bindings: ProgramBindings
    layout: OutputLayout
    info: LaunchInfo
    views: OutputViews = OutputViews()
    states: GeneratorStates | None = None  # of generators among the inputs, which it draws from

    @property
    def kernels(self) -> tuple[Any, ...]:
        """The kernels as loops."""
        return tuple([group.kernel for group in self.written.groups.values()])

    def load(self) -> Launcher:
        return load(self.program, self.bindings, self.info)

    def with_views(self, launcher: Callable[..., Any]) -> Callable[..., Any]:
        """The launcher, and behind it the views that it leaves to PyTorch."""
        if self.states is not None:
            launcher = SavesStates(launcher, object_inputs(self.functional.inputs), self.states)
        if not self.views.views and not self.views.replaced:
            return launcher
        behind = len(self.views.bases) + len(self.views.replaced)
        outputs = len(self.functional.outputs) - behind
        return WithViews(launcher, outputs, self.views, partial(symbol_values, self.layout))


@dataclass(frozen=True, slots=True, eq=False)
class CodeGenerator:
    """Makes code of functional graphs. `fallback` runs in its place where the code can't;
    `watcher` is told of sizes for which PyTorch lays results out in ways of its own, if somebody
    watches them. `donated` are inputs whose memory the code gets."""

    name: str
    options: Options
    fallback: Callable[..., Any] | None
    watcher: Watcher | None = None
    target: Target = CPU
    donated: Collection[int] = ()
    graph: fx.GraphModule | None = None  # the captured one, to tell whose code it is

    def generate(self, functional: Functional, env: FrozenEnv) -> GeneratedCode:
        self._check(functional)
        refuse_devices(functional, self.target.place)
        # Before the graph itself, whose calls refer to their code.
        for body in bodies_in(functional):  # of loops, each with code of its own
            compile_body(self, body, env)
        try:
            return self._generate(functional, env)
        except NotLowered as error:  # a tensor whose dtype loops can't copy
            raise NotFunctionalized(str(error)) from error
        except NotImplementedError as error:  # floats among the numbers of the program
            raise NotFunctionalized(str(error)) from error

    def _generate(self, functional: Functional, env: FrozenEnv) -> GeneratedCode:
        """Generate code, over again until every kernel can be compiled and no input is written to
        before the last item that may fail."""
        events.emit(events.WorkBegan(function=self.name, work="generating code"))
        refused: dict[Node, str] = {}  # operators that PyTorch has to run, and why
        late: set[int] = set()  # inputs that are written to at the end only
        # Each round puts off a write or hands an operator to PyTorch, so the rounds end.
        while True:
            # Values become definitions and calls.
            lowered = lower(functional, env, refused, late, self.target.place.type)
            try:
                return self._assemble(functional, lowered, env)
            except WrittenTooEarly as early:
                late |= early.inputs
            except KernelError as failure:
                for problem in (failure, *failure.others):
                    refused |= self._without_kernel(lowered, problem, len(refused))

    def _assemble(self, functional: Functional, lowered: Lowered, env: FrozenEnv) -> GeneratedCode:
        target = self.target
        scheduled = _schedule(
            lowered, self.donated, env.expect
        )  # which share a kernel, in which order and memory
        self._check(scheduled)
        targets = {"cpu": CPU, target.place.type: target}  # numbers of a program are on the CPU
        # Loops, and code for the target.
        kernels = write_kernels(
            *(scheduled, targets, env.expect, env.is_natural),
            lambda definitions: _in_order(functional, lowered.computed_by(definitions)),
        )
        self._check(kernels, scheduled)
        handles = compile_kernels(self.name, kernels, scheduled)  # machine code
        batches = plan_batches(scheduled, kernels, target, env.expect)  # launched together
        program, objects, layout = sequence(  # numbers for tensors and sizes, step by step
            *(functional, lowered, scheduled, kernels, batches, target, self.watcher),
            # A fallback needs the inputs as they were. A backward has none, so what the forward
            # saved for it is freed as soon as its last reader has run.
            frees_inputs=self.fallback is None,
        )
        self._check(program)
        bindings = ProgramBindings(objects, handles, self.fallback)
        # For those who measure: kernels by key, and their names in the order of launches.
        by_key: dict[str, Any] = {}
        names: dict[str, list[str]] = {}
        for _, group in sorted(kernels.groups.items()):
            by_key[group.source.key] = group.kernel
            names.setdefault(group.source.key, []).append(group.kernel.name)
        keys, steps = program.kernels, program.steps
        info = LaunchInfo(self.name, self.graph, steps, keys, by_key, names, env.expect)
        return GeneratedCode(
            *(functional, lowered, scheduled, kernels, program, bindings, layout, info)
        )

    def _check(self, stage: Any, *earlier: Any) -> None:
        """Tests have the value of each stage looked at."""
        if self.options.check_ir:
            checkers.check(stage, *earlier)

    def _without_kernel(
        self, lowered: Lowered, failure: KernelError, already: int
    ) -> dict[Node, str]:
        """The operators that PyTorch runs from now on, and why."""
        # All operators of the kernel, since the one that the compiler can't take isn't known.
        error, nodes = failure.error, lowered.computed_by(failure.group.members)
        if isinstance(error, KernelRefused):  # the target can't do this, which is no failure
            if not nodes:  # a write that no operator asks for
                raise NotFunctionalized(str(error)) from error
            return dict.fromkeys(lowered.defined_by(failure.loops) or nodes, str(error))
        if self.options.raise_on_fallback or not nodes or already > MOST_REFUSED:
            raise error
        names = tuple(sorted({node.name for node in nodes}))
        reason = f"{type(error).__name__}: {error}"
        events.emit(
            events.KernelFailed(function=self.name, operators=names, reason=reason, error=error)
        )
        return dict.fromkeys(nodes, f"its kernel could not be compiled ({reason})")


def compile_body(generator: CodeGenerator, body: FlatBody, env: FrozenEnv) -> None:
    """Compile a graph that an operator of this one calls (the body of a loop), and put the result
    into `body.code`; PyTorch runs the body if there is none."""
    name, options = type(body.gm).__name__, generator.options

    def generate() -> Callable[..., Any]:
        compiler = GraphCompiler(body.gm, body.shapes, options, generator.target)
        code = compiler.compile(body.examples(env.expect))
        tell(name, code)
        return code.with_views(code.load())

    body.code = or_not_generated(name, options, generate) or body.gm.forward


def tell(name: str, code: GeneratedCode) -> None:
    for stage, value in (
        ("functional", code.functional),
        ("scheduled", code.scheduled),
        ("kernels", code.written),
        ("program", code.program),
    ):
        events.emit(events.StageFinished(function=name, stage=stage, text=value.__str__))
    events.emit(
        events.CodeGenerated(
            function=name,
            kernels=lambda: list(map(str, code.written.groups.values())),
            lowered=code.lowered.lowered,
            called=code.lowered.called,
            memory=lambda: memory_use.bytes_in_use(code.scheduled, code.info.hint),
            fusion=partial(_fusion, code),
        )
    )


def _in_order(functional: Functional, nodes: Collection[Node]) -> tuple[Node, ...]:
    return tuple([node for node in functional.nodes if node in nodes])


def _fusion(code: GeneratedCode) -> list[dict[str, Any]]:
    def names(nodes: Collection[Node]) -> list[str]:
        return [node.name for node in _in_order(code.functional, nodes)]

    def lines(nodes: Collection[Node]) -> list[str]:
        return lines_of(*[node.stack for node in code.functional.nodes if node in nodes])

    return fusion_report.fusion(
        code.scheduled,
        {at: group.kernel.name for at, group in code.written.groups.items()},
        lambda definitions: names(code.lowered.computed_by(definitions)),
        lambda definitions: names(code.lowered.defined_by(definitions)),
        lambda definitions: lines(code.lowered.computed_by(definitions)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class GraphCompiler:
    """A captured graph, what is known of its inputs, and how it is to be compiled."""

    gm: fx.GraphModule
    shapes: Shapes | None
    options: Options
    target: Target = CPU

    @without_collection()
    def compile(
        self, examples: Sequence[Any], ones: frozenset[Expr] = frozenset()
    ) -> GeneratedCode:
        """`ones`: sizes that are 1 whenever it is called."""
        if self.shapes is None:
            raise NotFunctionalized("a graph that pliant did not capture")
        with torch._C.DisableTorchFunction():  # the program's modes have nothing to do with this
            functional, views = functionalize(self.gm, self.shapes, examples, ones)
        env = FrozenEnv(self.shapes, ones)
        simplify(functional, self.target, env.expect)
        name = function_of(self.gm)
        eager: Any = partial(run, self.gm)
        if views.bases:  # whose strides are compared too
            eager = WithBases(eager, views.bases, ())
        states = GeneratorStates() if object_inputs(functional.inputs) else None
        if states is not None:
            eager = PutsStatesBack(eager, states)
        fallback = GraphFallback(eager, Failures(partial(report_failure, name, self.options)))
        watcher = partial(self._watcher, eager)
        generator = CodeGenerator(name, self.options, fallback, watcher, self.target, graph=self.gm)
        return replace(generator.generate(functional.freeze(), env), views=views, states=states)

    def _watcher(
        self, eager: Callable[..., Any], layout: OutputLayout, sizes: Mapping[int, Expr]
    ) -> SmallSizes:
        return SmallSizes(
            function_of(self.gm),
            eager,
            partial(_variant, self),
            layout,
            sizes,
            self.options.raise_on_fallback,
        )


def _variant(compiler: GraphCompiler, args: Sequence[Any], ones: frozenset[Expr]) -> Variant:
    code = compiler.compile(args, ones)
    return Variant(code.with_views(code.load()), code.layout)


def _schedule(lowered: Lowered, donated: Collection[int], hint: Hint) -> Scheduled:
    # Results that are values come with their memory; others are views of inputs, or numbers.
    returned = [item for item in lowered.outputs if isinstance(item, tuple)]
    # The caller owns what is returned: its memory is not reused.
    returned_memory = {memory.of for _, memory in returned}
    numbers = {held_as(symbol): number for number, symbol in lowered.numbers.items()}
    constants = [definition for definition, _ in lowered.constants]
    donated_inputs = [memory for at in donated if (memory := lowered.inputs[at]) is not None]
    return plan_schedule(
        *(lowered.steps, lowered.inputs, constants, returned_memory, numbers, donated_inputs),
        size=lambda definition: bytes_of(definition, hint),
        refused={} if events.heard() else None,  # only logs and reports show it
    )
