"""The default backend on CPU: fused kernels, compiled by LLVM, launched natively.

The whole way from a captured graph to something that can be called, one line a stage. A kernel that
can't be compiled is left to PyTorch, operator by operator, and so is a graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import fx

import pliant.ops.table  # noqa: F401  fills the table of rules
from pliant._native import Launcher
from pliant.backends.small_sizes import SmallSizes, Variant
from pliant.base import events
from pliant.base.collection import without_collection
from pliant.base.errors import InternalError
from pliant.base.isolation import FATAL, raise_hidden
from pliant.base.options import config
from pliant.base.values import dataclass
from pliant.fake.trial import REFUSED
from pliant.graph.cse import eliminate_common_subexpressions
from pliant.graph.extern import ExternOperator, TensorArgument
from pliant.graph.functionalize import NotFunctionalized, functionalize
from pliant.graph.ir import Function, Node, OutputView
from pliant.graph.lower import Lowered, lower
from pliant.graph.masks import materialize_masks
from pliant.graph.opaque_calls import draws
from pliant.graph.raising import may_raise
from pliant.launch.sequence import OperatorCall, Sequencer, TensorView, as_seen, symbols_of
from pliant.loop.buffer_reuse import Lifetimes
from pliant.loop.fuse import ExternCall, FusionGroup, owner, schedule, written_after_reading
from pliant.loop.ir import Kernel
from pliant.ops.lowering import NotLowered
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr, float_bits
from pliant.sym.frozen import FrozenEnv, shapes_of

MOST_REFUSED: Final = 50
"""If more operators than this have kernels that fail, it is not about one of them."""


@dataclass(frozen=True, slots=True)
class Program:
    """What was made of a graph: what is called, its kernels, and how often each operator was
    lowered to loops or left to PyTorch."""

    launcher: Any
    kernels: tuple[Kernel, ...]
    lowered: Counter[str]
    called: Counter[str]
    variant: Variant


def llvm(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile the graph for CPU."""
    name = type(gm).__name__
    try:
        program = build(gm, example_inputs)
    except NotFunctionalized as reason:
        events.emit(events.NotGenerated(function=name, reason=str(reason)))
        return gm.forward
    except FATAL:
        raise
    except Exception as error:
        raise_hidden(error)
        if config.raise_on_fallback:
            raise InternalError(f"generating code for {name} failed: {error!r}") from error
        events.emit(events.FellBack(function=name, reason=repr(error), error=error))
        return gm.forward
    events.emit(
        events.CodeGenerated(
            function=name,
            kernels=lambda: [str(kernel) for kernel in program.kernels],
            lowered=program.lowered,
            called=program.called,
        )
    )
    return program.launcher


@without_collection()
def build(
    gm: fx.GraphModule, example_inputs: Sequence[Any], ones: frozenset[Expr] = frozenset()
) -> Program:
    """The program of a graph. `ones`: sizes that are 1 whenever it is called."""
    shapes = shapes_of(gm.meta)
    if shapes is None:
        raise NotFunctionalized("a graph that pliant did not capture")
    if any(REFUSED in node.meta for node in gm.graph.nodes):
        raise NotFunctionalized("PyTorch refuses one of its operations")
    env = FrozenEnv(shapes, ones)
    with torch._C.DisableTorchFunction():  # the program's modes have nothing to do with this
        function = functionalize(gm, shapes, example_inputs, ones)
    materialize_masks(function)
    eliminate_common_subexpressions(function)
    refused: dict[Node, str] = {}
    late: set[int] = set()
    try:
        while True:
            lowered = lower(function, env, refused, late)
            try:
                return assemble(gm, function, lowered, env)
            except WrittenTooEarly as early:
                late |= early.inputs
            except KernelError as failure:
                refused |= _without_kernel(type(gm).__name__, lowered, failure, len(refused))
    except NotLowered as error:  # a tensor whose dtype loops can't copy
        raise NotFunctionalized(str(error)) from error
    except NotImplementedError as error:  # floats among the numbers of the program
        raise NotFunctionalized(str(error)) from error


class WrittenTooEarly(Exception):
    """Inputs that are overwritten although the graph may have to be run from the start."""

    def __init__(self, inputs: set[int]) -> None:
        super().__init__(inputs)
        self.inputs = inputs


class KernelError(Exception):
    """What was to share a kernel has to run without one, because of the `error`."""

    def __init__(self, group: FusionGroup, error: Exception) -> None:
        super().__init__(group, error)
        self.group = group
        self.error = error


def _without_kernel(
    function: str, lowered: Lowered, failure: KernelError, already: int
) -> dict[Node, str]:
    """The operators that PyTorch runs from now on, and why."""
    error, nodes = failure.error, lowered.computed_by(failure.group.members)
    if config.raise_on_fallback or not nodes or already > MOST_REFUSED:
        raise error
    names = tuple(sorted({node.name for node in nodes}))
    reason = f"{type(error).__name__}: {error}"
    events.emit(events.KernelFailed(function=function, operators=names, reason=reason, error=error))
    return dict.fromkeys(nodes, f"its kernel could not be compiled ({reason})")


def assemble(gm: fx.GraphModule, function: Function, lowered: Lowered, env: FrozenEnv) -> Program:
    """Kernels and the sequence that launches them."""
    numbers = {float_bits(symbol): number for number, symbol in lowered.numbers.items()}
    plan = schedule(lowered.steps, numbers)
    once = written_after_reading(plan, set(filter(None, lowered.inputs)))
    early = {at for at, given in enumerate(lowered.inputs) if given in once.too_early}
    if early:
        raise WrittenTooEarly(early)
    symbols, places = symbols_of(function.inputs)
    made = Sequencer(hint=env.expect)
    made.numbers = numbers
    for symbol, place in places.items():
        made.bind(symbol, place)
    for _ in function.inputs:
        made.new_slot()
    for slot, definition in enumerate(lowered.inputs):
        if definition is not None:
            made.slots[definition] = slot
    for condition in function.apart:
        made.keep_apart(condition)
    kept = {memory.of for item in lowered.outputs if isinstance(item, tuple) for memory in item[1:]}
    for definition, real in lowered.constants:
        made.call(_constant(real, definition in kept), [definition], [real.dtype])
    lifetimes = Lifetimes(plan, kept)
    first_draw = _first_draw(plan)
    for at, item in enumerate(plan):
        if isinstance(item, FusionGroup):
            try:
                made.save(once.saved.get(at, ()))
                made.run(item, lifetimes.stored(at, item), lifetimes.ending(at), at in once.final)
            except (NotLowered, NotImplementedError, *FATAL):
                raise
            except Exception as error:
                raise KernelError(item, error) from error
        else:
            node = item.what.node
            dtypes = [tensor.dtype for tensor in node.results]
            if node is first_draw:  # if something fails, random numbers are drawn once more
                made.steps.append(("random",))
            made.call(_operator(item), item.makes, dtypes, node.defines, at in once.final)
            if node.view:  # one memory under two names
                made.fresh.difference_update(map(owner, item.reads))
    for index, times in function.times.items():
        made.steps += [("wrote", index)] * times
    outputs = [_output(made, item, lowered) for item in lowered.outputs]
    keep = {out[1] for out in outputs if out[0] == "slot"} | set(range(len(function.inputs)))
    where = {symbol: symbols[place] for symbol, place in places.items()}
    strides = [_strides(made, item, out) for item, out in zip(lowered.outputs, outputs)]
    if any(found is not None for found in strides):
        _watch_sizes(gm, made, lowered, where, strides)
    steps = made.freed(keep)
    written = sorted(function.writes)
    launcher = Launcher(len(function.inputs), symbols, steps, outputs, written, gm.forward)
    variant = Variant(launcher, where, strides)
    return Program(launcher, tuple(made.kernels), lowered.lowered, lowered.called, variant)


def _first_draw(plan: Sequence[FusionGroup | ExternCall]) -> Node | None:
    """The first call that draws random numbers, if something may fail from there on: a kernel that
    looks at the data, or any operator of PyTorch's (which may refuse a dtype, or find no
    memory)."""
    found: Node | None = None
    for item in plan:
        if isinstance(item, FusionGroup):
            fails = any(reads.faults for reads in item.reads.values())
        else:
            node = item.what.node
            fails = may_raise(node) or (found is not None and not node.view)
            found = node if found is None and draws(node) else found
        if found is not None and fails:
            return found
    return None


def _strides(made: Sequencer, item: Any, out: tuple[Any, ...]) -> tuple[Expr, ...] | None:
    """Of an output; None if it is no tensor, or PyTorch has laid it out."""
    window = item[0] if isinstance(item, tuple) else item
    if not isinstance(window, OutputView) or (item is window and window.whole) or not window.sizes:
        return None
    if item is not window and item[1].of in made.foreign and out[1] == made.slots[item[1].of]:
        return None
    return tuple(as_seen(window.sizes, window.strides))


def _watch_sizes(
    gm: fx.GraphModule,
    made: Sequencer,
    lowered: Lowered,
    symbols: Mapping[Any, tuple[int, str, int]],
    strides: Sequence[tuple[Expr, ...] | None],
) -> None:
    """Sizes of arguments and results that are 0, or may be 0 or 1."""
    sizes = {s: None for s, place in symbols.items() if place[1] == "size"}
    for item, known in zip(lowered.outputs, strides):
        window = item[0] if isinstance(item, tuple) else item
        if known is not None:
            sizes |= dict.fromkeys(size for size in window.sizes if size.symbols <= symbols.keys())
    watched = {made.value(size): size for size in sizes if not size.value}
    if not watched:
        return

    def variant(args: Sequence[Any], ones: frozenset[Expr]) -> Variant:
        return build(gm, args, ones).variant

    limits = [(value, 1) for value in watched]
    first = SmallSizes(type(gm).__name__, gm.forward, variant, symbols, watched, strides)
    made.computes.append(("sizes", first, limits))


def _constant(real: torch.Tensor, returned: bool) -> OperatorCall:
    """A tensor of the program's; who gets it as a result may write to it."""
    if returned:
        return OperatorCall("aten::clone", "", (real, None))
    return OperatorCall("constant", "", (), lambda: real)


def _operator(call: ExternCall) -> OperatorCall:
    """The call with its arguments in the order of the schema."""
    extern: ExternOperator = call.what
    if not isinstance(extern.node.func, torch._ops.OpOverload):
        given = tuple(map(_argument, (*extern.args, *extern.kwargs.values())))
        return OperatorCall(extern.node.name, "", given, extern.func or extern.node.func)
    schema = extern.node.func._schema
    args: list[Any] = []
    python = None  # only Python's way of calling makes tensors of numbers
    for place, argument in enumerate(schema.arguments):
        if place < len(extern.args):
            value = extern.args[place]
        elif argument.name in extern.kwargs:
            value = extern.kwargs[argument.name]
        else:
            value = argument.default_value
        args.append(_argument(value))
        if str(argument.type) == "Tensor" and isinstance(args[-1], _NUMBERS):
            python = partial(_without_grad, extern.node.func, schema)
    return OperatorCall(schema.name, schema.overload_name, tuple(args), python)


_NUMBERS: Final = (int, float, complex, Expr, FloatExpr, Cond)


def _without_grad(func: Any, schema: Any, *args: Any) -> Any:
    named = {a.name: v for a, v in zip(schema.arguments, args) if a.kwarg_only}
    with torch.no_grad(), torch._C._DisableAutocast():
        return func(*args[: len(args) - len(named)], **named)


def _argument(value: Any) -> Any:
    if isinstance(value, TensorArgument):
        memory = value.memory
        layout = (value.sizes, memory.strides, memory.offset)
        return TensorView(memory.of, *layout, value.dtype, value.written)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_argument, value))
    return value


def _output(made: Sequencer, item: Any, lowered: Lowered) -> tuple[Any, ...]:
    if isinstance(item, tuple):
        window, memory = item
        offset = window.offset + memory.offset
        view = TensorView(memory.of, window.sizes, window.strides, offset, window.dtype)
        return ("slot", made.slot(view, window.tensor))
    if isinstance(item, OutputView):
        assert item.input is not None
        given = lowered.inputs[item.input]
        assert given is not None
        if item.whole:
            return ("slot", item.input)
        view = TensorView(given, item.sizes, item.strides, item.offset, item.dtype)
        made.returned.setdefault(item.input, given)
        return ("slot", made.slot(view, item.tensor))
    if isinstance(item, Expr):
        return ("value", made.value(item))
    if isinstance(item, FloatExpr):
        return ("float", made.value(item))
    if hasattr(item, "symbols"):
        return ("bool", made.value(item))
    return ("object", item)
