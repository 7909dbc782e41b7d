"""The launch sequence of a graph: kernels and calls in order, as the `Program` of the launcher.

The one idea: nothing is decided here any more. The schedule says what runs and in which memory, the
kernels are written; what is left is to give numbers to tensors and sizes, to free what isn't needed
any longer, and to say where the results are. The order of a program is

1. numbers that depend on sizes alone, and tests of small sizes (`_watch_sizes`);
2. tests of memory and numbers, which leave everything untouched where they fail;
3. constants, then kernels and calls in the order of the schedule, with allocations and frees;
4. version counters of what was written, which autograd compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.base.values import dataclass
from pliant.graph.extern import ExternOperator
from pliant.graph.ir import Functional, Node, NoOverlap, OutputView
from pliant.graph.lower import Lowered
from pliant.graph.opaque_calls import draws
from pliant.graph.raising import may_raise
from pliant.launch.batches import Batch
from pliant.launch.kernels import GroupKernel, Kernels
from pliant.launch.operators import TensorView, constant_call, operator_call
from pliant.launch.program import Program, Step
from pliant.launch.steps import StepWriter, symbols_of
from pliant.loop.scheduled import Scheduled, ScheduledCall, ScheduledGroup
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr
from pliant.targets.target import Target

SymbolSource = tuple[int, str, int]  # where a symbol is read from
Strides = tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class OutputLayout:
    """How a program lays out its results: `strides` of each, in terms of `symbols` that are read
    from the arguments; None for what PyTorch lays out or what is no tensor."""

    symbols: Mapping[Any, SymbolSource]
    strides: Sequence[Strides | None]


Watcher = Callable[[OutputLayout, Mapping[int, Expr]], Any]
"""Makes what is called when a size is 0 or 1 for the first time; sizes are by number of value."""


def sequence(
    function: Functional,
    lowered: Lowered,
    scheduled: Scheduled,
    kernels: Kernels,
    batches: Sequence[Batch],
    target: Target,
    watcher: Watcher | None,
    frees_inputs: bool = False,
) -> tuple[Program, tuple[Any, ...], OutputLayout]:
    """Write the program. Returns it with the live objects that it refers to by number, and the
    layout of its results. `frees_inputs`: arguments may be freed after their last use, as no
    fallback needs them. `watcher` is called with the sizes that may be 0 or 1."""
    # Numbers first: every later step refers to sizes by their place in the array.
    sources, numbers = symbols_of(function.inputs)
    # `as_seen` counts sizes of 0 as 1, and must leave strides alone.
    strides_read = {symbol for symbol, at in numbers.items() if sources[at][1] == "stride"}
    writer = StepWriter(
        target.place,
        numbers=scheduled.numbers,
        strides=strides_read,
        donated=set(scheduled.donated),
    )
    _write_inputs(writer, function, lowered, numbers)
    read = _read_by_any(lowered, scheduled, kernels)
    for definition, real in lowered.constants:  # first: any step may read them
        if definition not in read:  # kernels have it in their code
            continue
        call = constant_call(real, definition in scheduled.kept)
        writer.call(call, [definition], [real.dtype])
    _write_items(writer, scheduled, kernels, batches)
    # Autograd compares version counters: each write of the program counts, in the end.
    for index, times in function.times.items():
        writer.steps += [("wrote", index)] * times
    outputs = tuple([_output(writer, item, lowered) for item in lowered.outputs])
    writer.steps += _versions(lowered.outputs, outputs)
    inputs = len(function.inputs)
    # Results outlive the call, and arguments may; every other tensor is freed after its last use.
    lasting = {out[1] for out in outputs if out[0] == "slot"}
    lasting.update(function.writes if frees_inputs else range(inputs))
    symbols = {symbol: sources[place] for symbol, place in numbers.items()}
    # What small sizes would change: the strides that the program gives its results.
    strides = [_strides(writer, item, out) for item, out in zip(lowered.outputs, outputs)]
    layout = OutputLayout(symbols, strides)
    if watcher is not None and any(layout_strides is not None for layout_strides in strides):
        _watch_sizes(writer, lowered, layout, watcher)
    written = tuple(sorted(function.writes))
    objects = tuple(writer.objects)
    program = Program(
        inputs,
        tuple(sources),
        writer.freed(lasting),
        outputs,
        written,
        tuple(writer.kernels),
        len(objects),
    )
    return program, objects, layout


def _versions(items: Sequence[Any], outputs: Sequence[Step]) -> list[Step]:
    """Steps that give results in new memory the versions that eager PyTorch's would have, which
    count the program's writes. Views of the same memory share one counter."""
    # The first result in each memory stands for all of them.
    slots: dict[Any, Step] = {}
    for item, output in zip(items, outputs, strict=True):
        if isinstance(item, tuple):
            slots.setdefault(item[1].of, ("wrote", output[1], item[0].writes))
    return [("wrote", slot) for _, slot, writes in slots.values() for _ in range(writes)]


def _read_by_any(lowered: Lowered, scheduled: Scheduled, kernels: Kernels) -> set[Any]:
    """The definitions whose memory a kernel or a call reads, or that are returned."""
    read = {memory for group in kernels.groups.values() for memory in group.memory}
    for item in scheduled.items:
        if isinstance(item, ScheduledCall):
            read.update(item.call.reads)
    return read.union([item[1].of for item in lowered.outputs if isinstance(item, tuple)])


def _write_inputs(
    writer: StepWriter, function: Functional, lowered: Lowered, numbers: Mapping[Any, int]
) -> None:
    for symbol, number in numbers.items():
        writer.bind(symbol, number)
    for definition in lowered.inputs:
        slot = writer.new_slot()
        if definition is not None:
            writer.slots[definition] = slot
    # First of all steps: where one fails nothing has been written yet.
    for condition in function.conditions:
        if isinstance(condition, NoOverlap):
            writer.keep_apart(condition)
        else:
            writer.keep_in_range(condition)


def _write_items(
    writer: StepWriter, scheduled: Scheduled, kernels: Kernels, batches: Sequence[Batch]
) -> None:
    first_draw = _first_draw(scheduled)
    for batch in batches:
        item = scheduled.items[batch[0]]
        if isinstance(item, ScheduledGroup):
            _launch(writer, [(scheduled.items[at], kernels.groups.get(at)) for at in batch])
            continue
        extern: ExternOperator = item.call.what
        node = extern.node
        # If a later step fails, the captured graph draws again: from the state remembered here.
        if node is first_draw:
            writer.steps.append(("random", writer.place))
        dtypes = [tensor.dtype for tensor in node.results]
        writer.call(operator_call(extern), item.call.makes, dtypes, node.defines, item.final)


def _launch(writer: StepWriter, items: Sequence[tuple[Any, GroupKernel | None]]) -> None:
    for item, _ in items:
        writer.save(item.saved)
        writer.allocate(item)
    writer.launch([(kernel, item.final) for item, kernel in items if kernel is not None])


def _first_draw(scheduled: Scheduled) -> Node | None:
    """The first call that draws random numbers, if something may fail from there on: a kernel that
    looks at the data, or any operator of PyTorch's (which may refuse a dtype, or find no
    memory)."""
    first: Node | None = None
    for item in scheduled.items:
        if isinstance(item, ScheduledCall):
            node = item.call.what.node
            fails = may_raise(node) or (first is not None and not node.view)
            first = node if first is None and draws(node) else first
        else:
            fails = item.group.faults
        if first is not None and fails:
            return first
    return None


def _strides(writer: StepWriter, item: Any, out: Step) -> Strides | None:
    """The strides that an output has; None if it is no tensor, or PyTorch has laid it out."""
    view = item[0] if isinstance(item, tuple) else item
    if not isinstance(view, OutputView) or (item is view and view.whole) or not view.sizes:
        return None
    # The very tensor that an operator of PyTorch's returned has the strides that it chose.
    if item is not view and item[1].of in writer.foreign and out[1] == writer.slots[item[1].of]:
        return None
    return tuple(writer.as_seen(view.sizes, view.strides))


def _watch_sizes(
    writer: StepWriter, lowered: Lowered, layout: OutputLayout, watcher: Watcher
) -> None:
    """Add a step that calls the watcher in the first call with some of the sizes 0 or 1, in which
    eager PyTorch may choose other strides. Sizes known to be larger are left out."""
    sizes = {s: None for s, source in layout.symbols.items() if source[1] == "size"}
    for item, strides in zip(lowered.outputs, layout.strides):
        view = item[0] if isinstance(item, tuple) else item
        if strides is not None:
            computable = [size for size in view.sizes if size.symbols <= layout.symbols.keys()]
            sizes |= dict.fromkeys(computable)
    watched = {writer.value(size): size for size in sizes if not size.value}
    if watched:
        limits = tuple([(value, 1) for value in watched])
        writer.computes.append(("sizes", writer.live(watcher(layout, watched)), limits))


def _output(writer: StepWriter, item: Any, lowered: Lowered) -> Step:
    """Where a result is: in a slot (which may need a view), a value, or a constant."""
    if isinstance(item, tuple):
        output, memory = item
        offset = output.offset + memory.offset
        view = TensorView(memory.of, output.sizes, output.strides, offset, output.dtype)
        return ("slot", writer.slot(view, output.tensor))
    if isinstance(item, OutputView):
        assert item.input is not None
        definition = lowered.inputs[item.input]
        assert definition is not None
        if item.whole:
            return ("slot", item.input)
        view = TensorView(definition, item.sizes, item.strides, item.offset, item.dtype)
        # The slot is taken by the caller's tensor, so that a view of all of it is another tensor.
        writer.returned.setdefault(item.input, definition)
        return ("slot", writer.slot(view, item.tensor))
    if isinstance(item, Expr):
        return ("value", writer.value(item))
    if isinstance(item, FloatExpr):
        return ("float", writer.value(item))
    if hasattr(item, "symbols"):
        return ("bool", writer.value(item))
    return writer.constant(item)
