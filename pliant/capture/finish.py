"""The end of a capture: from what the trace found to the value `Captured`.

A capture ends in one of three ways: the function returned, it raised, or the graph broke. In each,
the residual code calls the graph and replays the effects; then it returns, raises, or runs the
operation that could not be captured and goes on in resume functions, one for each frame that was
being followed.

    def f_residual(x):                       # made of:
        sin, = graph_of_f(x)                 #   _graph_call
        seen.append(sin)                     #   _begin: effects
        result = save(sin, 'y.pt')           #   the operation that broke the graph
        return resume_f_8.tail(result, sin)  #   _exits

The lines behind the call of the graph are written first. They decide which results the graph has to
return, so `_finish` makes the graph last, and puts its call in front.
"""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import fx

from pliant._native import State
from pliant.base.deferred import Deferred
from pliant.base.external import Externals, without_addresses
from pliant.base.position import Position
from pliant.bytecode.tables import JUMPS, OPCODES, Role, opcodes_with
from pliant.capture import residual_ops
from pliant.capture.aliasing import assume_distinct, assume_present
from pliant.capture.data import namespace_data, parts_data
from pliant.capture.failures import written_inputs
from pliant.capture.frame import Frame
from pliant.capture.graph import GraphInput
from pliant.capture.host_randomness import write_random_draws
from pliant.capture.interpreter import current_exception
from pliant.capture.residual import Emitter
from pliant.capture.resume_points import closes, generator_source, resume_point_of
from pliant.capture.size_nodes import input_shapes
from pliant.capture.torch_state import NESTING
from pliant.capture.trace import Restart, Trace
from pliant.capture.value import Break, Null, Value
from pliant.capture.values.objects import ExceptionValue
from pliant.guards.guard import Guard, GuardKind
from pliant.guards.source import HANDED_OVER, Local
from pliant.stages import Bindings, BreakInfo, Captured, CapturedParts, ResumeTarget
from pliant.sym.frozen import META

Result = tuple[Captured, Bindings]


class Finisher:
    """Collects residual code for one end of a capture."""

    def __init__(self, trace: Trace, name: str, parameters: tuple[str, ...], state: State) -> None:
        self.trace = trace
        self.name = name
        self.parameters = parameters
        self.externals = Externals()
        self.state = state
        self.emit = Emitter(trace.graph, generator_source)
        self.emit.temporaries, self.emit.placeholder_value = (
            trace.temporaries,
            trace.placeholders.value_of,
        )
        self.resumes: list[ResumeTarget] = []
        self.broken: BreakInfo | None = None
        self.where: dict[int, tuple[Position, ...]] = {}
        self.saved: str | None = None  # the variable that has what the graph may write

    # ---- the three ends

    def returned(self, value: Value) -> Result:
        """The function returned `value`."""
        self._begin([value])
        self.emit.line(f"return {self.emit.expression(value)}")
        return self._finish()

    def raised(self, exception: Value) -> Result:
        """The function raised `exception`. Its traceback is made when residual code raises it, with
        the user's lines (`trail`); `__context__` and `__cause__` are those that the program gave
        it."""
        trail: tuple[Position, ...] = ()
        chained = False
        if isinstance(exception, ExceptionValue):
            if exception.trail is not None:
                trail, exception.trail = exception.trail.places(), None
            # `raise` would set the context once more, to what is being handled outside.
            chained = "__context__" in exception.chain
        self._begin([exception])
        name = self.emit.expression(exception)
        self._mark(trail)
        self.emit.line(f"{self.emit.helper('raise_as_is')}({name})" if chained else f"raise {name}")
        return self._finish()

    def broke(self, frames: list[Frame], cause: Break) -> Result:
        """The graph broke at the present instruction of the innermost of `frames`, which are all
        frames being followed, outermost first."""
        # A frame of a Python equivalent that would only return the result needs no resume function.
        # The user must not see lines of pliant in a report, nor pay for a call that does nothing.
        outer = [f for f in frames[:-1] if not (f.internal and _only_returns(f))]
        frames = [*outer, frames[-1]]  # the operation is in the last one, internal or not
        stack = tuple(frame.position() for frame in frames if not frame.internal)
        reported = cause.stack or stack
        position = reported[-1] if reported else None
        follows = _follows_from_earlier_break(frames[-1], cause)
        self.broken = BreakInfo(cause.code, cause.what, position, reported, follows)
        operands = frames[-1].stack[len(frames[-1].stack) - frames[-1].operands :]
        live = _live_values(frames)
        # What the operation takes may be needed after it as well, and if there are several ways to
        # go on, each needs everything.
        all_twice = _several_ways(frames) or residual_ops.reads_variables(frames[-1])
        closing = [value for value in live if closes(value)]
        # Values that are listed twice count as used twice: they get a variable instead of being
        # written in place.
        self._begin([*live, *(live if all_twice else operands), *closing])
        for value in closing:  # if the operation raises, Python must close them
            self.emit.expression(value)
        # Whatever the rest needs is made before the operation runs, so that all ways find it.
        handled = current_exception(self.trace)
        error = None if handled is None else self.emit.assign_name(handled, "handled")
        places = [(frame.position(), frame.globals) for frame in frames if not frame.internal]
        reports = cause.code in residual_ops.REPORTING
        operation = residual_ops.operation_of(
            self.trace, self.emit, frames[-1], tuple(places) if reports else ()
        )
        # Written now, while expressions may still add lines before the operation; appended behind
        # it.
        exits = self._exits(frames, operation)
        handler = self._handler(frames) if operation.text else None
        if handler is None:
            self._run(operation, stack, error)
        else:
            self._run_guarded(operation, stack, error, *handler)
        self.emit.lines += exits
        return self._finish()

    # ---- breaks

    def _handler(self, frames: list[Frame]) -> tuple[int, str, str] | None:
        """How an exception of the operation reaches a handler of the program, if one of the frames
        has one: the depth of that frame, a name for the exception, and the call that enters the
        handler."""
        # The innermost handler wins, as in Python. An outer one may be reached from there.
        for depth in reversed(range(len(frames))):
            frame = frames[depth]
            entry = frame.decoded.handler(frame.index)
            if entry is not None:
                error = self.emit.fresh("error")
                items: list[Value | str] = list(frame.stack[: entry.depth])
                items += [repr(frame.instruction.offset)] if entry.lasti else []
                call = self._resume(frames[:depth], frame, entry.target, [*items, error])
                return depth, error, call
        return None

    def _run(
        self,
        operation: residual_ops.ResidualOperation,
        stack: tuple[Position, ...],
        handled: str | None,
    ) -> None:
        """Write the operation. If an exception is being handled there, it runs inside an `except`
        block of its own, so that `sys.exception()` and a bare `raise` in it work."""
        if handled is None or not operation.text:
            self._write(operation, stack)
            return
        call = f"{self.emit.helper('handling')}({handled}, "
        # One assignment fits into a lambda; anything else takes a function.
        if len(operation.text) == 1 and operation.names:
            name = operation.names[0]
            expression = operation.text[0].removeprefix(f"{name} = ")
            if expression != operation.text[0]:
                self.emit.line(f"{name} = {call.rstrip()}")
                self._mark(stack)  # only what runs inside is the user's
                self.emit.line(f"    lambda: {expression})")
                return
        function = self.emit.fresh("operation")
        self.emit.line(f"def {function}():")
        self.emit.indent(1)
        self._write(operation, stack)
        names = ", ".join(operation.names)
        if names:
            self.emit.line(f"return {names}")
        self.emit.indent(-1)
        self.emit.line(f"{names} = {call}{function})" if names else f"{call}{function})")

    def _write(
        self, operation: residual_ops.ResidualOperation, stack: tuple[Position, ...]
    ) -> None:
        for line in operation.text:
            self._mark(stack)
            self.emit.line(line)

    def _run_guarded(
        self,
        operation: residual_ops.ResidualOperation,
        stack: tuple[Position, ...],
        handled: str | None,
        depth: int,
        error: str,
        call: str,
    ) -> None:
        """Write the operation in a `try` whose `except` resumes in the program's handler. Its
        traceback begins at `depth`, the frame that has the handler."""
        self.emit.line("try:")
        self.emit.indent(1)
        self._run(operation, stack[depth:], handled)
        self.emit.indent(-1)
        self.emit.line(f"except BaseException as {error}:")
        self.emit.line(f"    {self.emit.helper('clean_traceback')}({error})")
        self.emit.line(f"    {call}")

    def _exits(self, frames: list[Frame], operation: residual_ops.ResidualOperation) -> list[str]:
        """The lines after the operation: one call of a resume function for each way in which the
        instruction can go on (both ways of a branch, the end and the next round of a loop)."""
        frame = frames[-1]
        below = frame.stack[: len(frame.stack) - operation.pops]
        lines = []
        for condition, index, pushed in operation.exits:
            call = self._resume(frames[:-1], frame, index, [*below, *pushed])
            lines += [f"    if {condition}:", f"        {call}"] if condition else [f"    {call}"]
        return lines

    def _resume(
        self, outer: list[Frame], frame: Frame, index: int, stack: list[Value | str]
    ) -> str:
        """The statement that continues `frame` at instruction `index` with `stack`, and afterwards
        its callers `outer`, each behind the call in which it waits."""
        # Only the outermost resume function is entered through pliant. It calls the inner ones
        # itself, so they are followed as part of it, and may become one graph with it.
        # `step_unsupported()`: the rest of this frame runs in plain Python, its callers are
        # compiled.
        eager = self.broken is not None and self.broken.code == "rest-of-frame"
        compiled = not outer and not eager
        name, arguments = self._target(frame, index, stack, None, (), compiled, eager)
        inside: tuple[str, ...] = ()
        # From the inside out: each caller's resume function gets the inner call as arguments
        # (a function and what to call it with), makes it, and goes on with its result.
        for number, caller in reversed(list(enumerate(outer))):
            pops = caller.operands
            below: list[Value | str] = list(caller.stack[: len(caller.stack) - pops])
            inner, inside = [name, *arguments], (name, *inside)
            name, arguments = self._target(
                caller, caller.index + 1, below, inner, inside, compiled=number == 0
            )
        if eager and not outer:
            return f"return {name}({', '.join(arguments)})"
        # Not a call but a request to make it, so that a loop that breaks in each round needs no
        # deeper stack.
        return f"return {name}.tail({', '.join(arguments)})"

    def _target(
        self,
        frame: Frame,
        index: int,
        stack: list[Value | str],
        inner: list[str] | None,
        inside: tuple[str, ...],
        compiled: bool,
        eager: bool = False,
    ) -> tuple[str, list[str]]:
        """The resume function of one frame and the arguments for it."""
        point, arguments = resume_point_of(self.emit, frame, index, stack, inner)
        name = self.emit.fresh(f"resume_{frame.code.co_name}_{_line(frame, index)}")
        data, namespace = self.externals.visit(point), self.externals.external(frame.globals)
        self.resumes.append(ResumeTarget(name, data, namespace, compiled, inside, eager))
        return name, arguments

    # ---- common parts

    def _begin(self, roots: list[Value]) -> None:
        """Plan what `roots` need, and write the replay of all effects. The call of the graph is put
        in front of these lines at the end."""
        # `plan` counts how often each value is needed: what is used twice gets a variable.
        changed = [value for value, _ in self.trace.effects.values()]
        self.emit.plan([*roots, *[child for value in changed for child in value.children()]])
        for value, before in list(self.trace.effects.values()):
            # In the order in which the program first changed each object.
            value.replay(self.emit, before)

    def _mark(self, stack: tuple[Position, ...]) -> None:
        """Note that the next line runs code of the user, with `stack` as its position for
        tracebacks."""
        self.where[len(self.emit.lines)] = stack

    def _finish(self) -> Result:
        trace, emit = self.trace, self.emit
        graph_name = emit.fresh(f"graph_of_{self.name}")
        # Only now is it known which results the residual code uses.
        graph = self._finish_graph(graph_name.removeprefix("graph_of_"))
        head = self._mode_left() if graph is None else self._graph_call(graph_name)
        # First, because nothing may have happened if a kept result looks otherwise.
        draws = [call for lines, _ in trace.kept_calls for call in lines] + trace.random_draws
        early = write_random_draws(emit, draws, head)
        function = emit.fresh(f"{self.name}_residual")  # a lambda's name is no identifier
        signature = f"def {function}({', '.join(emit.slots.values())}):"
        comments = [
            # a tensor's text has several lines
            f"    # {name} = {' '.join(without_addresses(str(source)).split())}"
            for source, name in emit.slots.items()
            if not (isinstance(source, Local) and source.name == name)
        ]
        # Lines are counted from 1, and the signature is the first.
        first = len(comments) + 2
        offset = first + len(early.lines)
        shapes = None if graph is None else input_shapes(trace)
        if graph is not None:
            graph.meta[META] = shapes  # for backends that are called with the graph alone
        # Guards that depend on everything the capture has read are made last.
        assume_distinct(trace)
        assume_present(trace, set(emit.slots))
        guards = (Guard(GuardKind.STATE, None, self.state), *trace.guards, *trace.sizes.guards())
        inputs = trace.graph.inputs if graph else []
        changes = trace.graph_effects.mode_changes
        bindings = Bindings(
            objects=self.externals.objects,
            graph=graph,
            shapes=shapes,
            examples=tuple(entry.example for entry in inputs),
            guards=guards,
            slots=tuple(emit.slots),
            undo=tuple(undo for undo in trace.undo if undo not in NESTING),
            mode_changes=tuple([(n.target, n.args, n.kwargs) for n in changes]),
            shape_log=trace.sizes.shape_log,
        )
        captured = Captured(
            name=self.name,
            parameters=self.parameters,
            parts=self._parts(bindings),
            graph_name=graph_name,
            graph_line=first + early.before_graph + (1 if self.saved else 0),
            early_lines=(first, first + early.repeatable),
            residual="\n".join([signature, *comments, *early.lines, *emit.lines, ""]),
            namespace=namespace_data(emit.namespace, self.externals),
            lines={line + offset: stack for line, stack in self.where.items()},
            resumes=tuple(self.resumes),
            broken=self.broken,
            assumptions=trace.sizes.assumptions(),
            speculations=trace.graph_effects.speculations,
            saved=self.saved,
            rerunnable=trace.graph_effects.rerunnable,
            undoable=trace.graph_effects.undoable,
            only_writes=trace.graph_effects.only_writes,
        )
        return captured, bindings

    def _parts(self, bindings: Bindings) -> Deferred[CapturedParts]:
        # What it keeps lives as long as the code: the user's tensors, which are with the inputs,
        # must not.
        inputs = self.trace.graph.inputs if bindings.graph else []
        return Deferred(
            *(parts_data, self.externals, bindings.graph, bindings.shapes),
            *(tuple([entry.source for entry in inputs]), bindings.guards, bindings.slots),
            tuple(self.trace.sizes.provenance()),
        )

    def _finish_graph(self, name: str) -> fx.GraphModule | None:
        """The graph with the results that the residual code asked for; None if nothing needs a
        graph."""
        trace = self.trace
        graph = trace.graph.finish(
            name,
            trace.options.check_ir,
            trace.world.reshaped,
            # If it failed, what Python did before would be lost.
            try_all=bool(trace.effects) and bool(trace.graph_effects),
        )
        if trace.graph.refused is not None:
            raise _ending_before(*trace.graph.refused)
        return graph

    def _mode_left(self) -> list[str]:
        """The line that changes the gradient mode, where a graph would do nothing else."""
        enabled = self.trace.graph.grad_mode_left
        if enabled is None:
            return []
        setter = self.emit.bind("set_grad_enabled", torch._C._set_grad_enabled)
        return [f"    {setter}({enabled})"]

    def _graph_call(self, graph_name: str) -> list[str]:
        """The lines that call the graph. Where a failure has to be undone, they first save what the
        graph writes to."""
        emit, trace = self.emit, self.trace
        inputs = [self._graph_input(entry) for entry in trace.graph.inputs]
        if trace.overrides.outer_modes or self.state.function_modes:  # the program was asked before
            graph_name, inputs = emit.helper("without_modes"), [graph_name, *inputs]
        results = "".join(f"{emit.outputs[node]}, " for node in trace.graph.outputs)
        call = f"{results}= " * bool(results) + f"{graph_name}({', '.join(inputs)})"
        if not trace.graph_effects.undoable:
            return [f"    {call}"]
        arguments = [emit.expression(value) for value in written_inputs(trace)]
        arguments += ["random=True"] if trace.graph_effects.random else []
        generators = trace.graph_effects.generators.values()
        drawn = "".join(f"{emit.expression(generator)}, " for generator in generators)
        arguments += [f"generators=({drawn})"] if drawn else []
        leaves = "".join(f"{emit.expression(leaf)}, " for leaf in trace.graph_effects.leaves)
        arguments += [f"leaves=({leaves})"] if leaves else []
        if not arguments:
            return [f"    {call}"]
        self.saved = emit.fresh("saved")
        saving = f"{self.saved} = {emit.helper('SavedInputs')}({', '.join(arguments)})"
        return [f"    {saving}", f"    {call}"]

    def _graph_input(self, entry: GraphInput) -> str:
        slot = self.emit.slot(entry.source)
        return f"{self.emit.helper('as_plain')}({slot})" if entry.plain else slot


ITERATES = opcodes_with(Role.ITERATES)
RETURNS_TOP = frozenset(op for op in opcodes_with(Role.RETURNS) if OPCODES[op].pops == 1)


def _follows_from_earlier_break(frame: Frame, cause: Break) -> bool:
    """Whether this break is only a consequence of an earlier one: the graph broke in a `for` loop,
    so the resumed loop goes over a real iterator, which capture can't follow. Reporting it would
    not help the user."""
    source = frame.stack[-1].source if frame.stack else None
    handed_over = isinstance(source, Local) and source.name.startswith(HANDED_OVER)
    return cause.code == "outside-iterator" and frame.instruction.op in ITERATES and handed_over


def _ending_before(node: fx.Node, step: int) -> Restart:
    """The restart that ends the graph in front of a call that PyTorch refuses: everything before it
    has happened when eager PyTorch raises the error, and nothing after it."""
    description = f"{node.name}, which PyTorch refuses"
    return Restart(step, Break("operation-raises", description, node.meta["stack"]))


def _only_returns(frame: Frame) -> bool:
    """Whether the frame, suspended at a call, has nothing left to do but return its result."""
    following = frame.instructions[frame.index + 1]
    alone = len(frame.stack) == frame.operands
    return following.op in RETURNS_TOP and alone and frame.decoded.handler(frame.index) is None


def _several_ways(frames: list[Frame]) -> bool:
    """Whether control can go on in more than one way after the present instruction: it jumps, or a
    handler of the program may take over."""
    # A branch, or an exception that one of the frames handles.
    return frames[-1].instruction.op in JUMPS or any(
        frame.decoded.handler(frame.index) is not None for frame in frames
    )


def _live_values(frames: Items[Frame]) -> list[Value]:
    """All values that the frames hold: stacks, local variables, cells."""
    live: list[Value] = []
    for frame in frames:
        live += [value for value in frame.stack if not isinstance(value, Null)]
        live += [*frame.locals.values(), *frame.cells.values()]
    return live


def _line(frame: Frame, index: int) -> int:
    return frame.instructions[index].line or frame.code.co_firstlineno
