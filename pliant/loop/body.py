"""The body of a kernel under construction, with CSE and loop-invariant code motion.

The one idea: a value is looked up before it is added: an operation with the same arguments, a load
of the same place, an element of a definition that this kernel computes. And it is added in the
outermost loop that has its operands, so what is the same for a whole row stands before the loop
over columns. So definitions can be written without regard to what others compute.

Equal computations are one value, so two operations are the same if their operands are (value
numbering). A key is kept in the table of the loop that its value stands in; when the loop ends, the
table goes with it: the value does not dominate what comes after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pliant.loop.build import Builder
from pliant.loop.define import Definition, Index, LoopBody, Scan
from pliant.loop.ir import (
    INDEXED,
    REDUCTIONS,
    STATEMENTS,
    Access,
    Buffer,
    Combine,
    Kernel,
    LoopKind,
    LoopValue,
    Op,
    loops,
    values,
)
from pliant.loop.kernel_arguments import kernel_arguments
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, Expr, symbol

FLAG: Final = Definition("fault", (), (), Type.I64)
"""One number for each run of a program: not 0 if an operator has to raise."""

Forward = Callable[[Definition, Expr], LoopValue | None]


class KernelBody(Builder):
    """A kernel under construction. `forward(of, place)` gives the element at a place of a
    definition if this kernel computes it, else None; `reuse` maps definitions to others whose
    memory they are stored in."""

    def __init__(
        self,
        name: str,
        access: Mapping[Definition, Access],
        forward: Forward,
        reuse: Mapping[Definition, Definition],
    ) -> None:
        super().__init__(name)
        self.memory: dict[Definition, Buffer] = {}  # by who owns the memory, in order
        self._access = access
        self._forward = forward
        self._reuse = reuse
        self._known: list[dict[Any, Any]] = [{}]  # by loop that is open: values by key
        self._depths: dict[Any, int] = {}  # by value or symbol: how many loops are around it
        self.floor = 0  # nothing is moved out of this many outer loops
        self._unsure: list[int] = [0]  # how many loops are around the last that may never run

    # ---- sharing

    def add(self, value: LoopValue) -> LoopValue:
        if value.op in STATEMENTS:
            return super().add(value)
        if value.op is Op.SELECT and _is_masked(*value.args):
            return value.args[1]
        number = value.constant
        key = (
            *(value.op, value.type, value.args, value.index, value.buffer),
            # As text: 0.0 and -0.0 are equal, and nan isn't equal to itself.
            None if number is None else repr(number),
        )
        return self._shared(key, lambda: self._make(value))

    def _make(self, value: LoopValue) -> LoopValue:
        """Add the value to the outermost loop that has all its operands (code motion). The order in
        a loop stays right, as a value is appended after its operands."""
        # Number of the open loop list that the value goes to: 0 is outside of all loops.
        innermost = len(self._open) - 1
        if value.op in REDUCTIONS:
            depth, self._depths[value] = innermost, self.floor  # used after the loop
        else:
            used = value.index.symbols if value.index is not None else ()
            needs = [self._depths.get(part, 0) for part in (*value.args, *used)]
            depth = min(max(needs, default=0), innermost)
            # The outer loops are the grid that threads share: nothing stands before them.
            depth = max(depth, min(self.floor, innermost))
            # A load that is moved out of a loop runs even if the loop has no iterations.
            if value.op is Op.LOAD:  # of a tensor that may have no elements
                depth = max(depth, self._unsure[-1])
            self._depths[value] = depth
        self._open[depth].append(value)
        return value

    def carried(self, scan: Scan) -> tuple[LoopValue, ...]:
        """The state that the innermost loop carries for a scan, as it is before this iteration.
        Never shared with another loop, nor moved out of this one."""
        start = scan.start(self)
        self._combines[-1].append(combine_of(scan, [one.type for one in start]))
        state = [self._carried(one) for one in start]
        return tuple(state)

    def _carried(self, start: LoopValue) -> LoopValue:
        carried = super().add(LoopValue(Op.CARRIED, start.type, (start,)))
        self._depths[carried] = len(self._open) - 1
        return carried

    def once(self, key: object, index: Index, make: Callable[[], LoopValue]) -> LoopValue:
        """What `make` returns; it is called once for each key and index."""
        return self._shared((key, index), make)

    def _shared(self, key: Any, make: Callable[[], Any]) -> Any:
        """The result for a key, from the tables of the loops that are open, or made and put into
        the table of the loop that it stands in."""
        for table in self._known:
            if key in table:
                return table[key]
        result = make()
        depth = self._depths.get(result, len(self._known) - 1)
        if isinstance(result, LoopValue) and result.op in REDUCTIONS:
            # The depth of a reduction is where its result is used, after the loop. The accumulator
            # belongs to this loop: equal arguments in another one are another reduction.
            depth = len(self._known) - 1
        self._known[min(depth, len(self._known) - 1)][key] = result
        return result

    @contextmanager
    def loop(self, extent: Expr | int, kind: LoopKind = LoopKind.PARALLEL) -> Iterator[Expr]:
        # What is computed in the loop is known only as long as the loop is open.
        self._known.append({})
        with super().loop(extent, kind) as var:
            depth = self._depths[var] = len(self._open) - 1
            runs = (extent if isinstance(extent, int) else extent.value) or 0
            self._unsure.append(self._unsure[-1] if runs > 0 else depth)
            yield var
        self._unsure.pop()
        self._known.pop()

    def as_index(self, value: LoopValue) -> Expr:
        if value.op is Op.IOTA:
            assert value.index is not None
            return value.index
        # An index that comes from data gets a symbol of its own, so that places stay expressions.
        var = symbol(f"j{self._variables}")
        index_value: LoopValue = self._shared(
            ("as_index", value), lambda: self._index_value(value, var)
        )
        assert index_value.index is not None
        return index_value.index

    def _index_value(self, value: LoopValue, var: Expr) -> LoopValue:
        self._variables += 1
        index_value = self._make(LoopValue(Op.AS_INDEX, Type.I64, (value,), var))
        self._depths[var] = self._depths[index_value]
        return index_value

    # ---- memory

    def read(self, of: Definition, place: Expr, mask: LoopValue | None = None) -> LoopValue:
        """The element at a place of a definition: in a register if this kernel computes it, else
        loaded."""
        forwarded = self._forward(of, place)  # whatever the mask: it is there
        if forwarded is not None:
            return forwarded
        return self.load(self.buffer_of(of), place, mask)

    def write(self, to: Definition, place: Expr, value: LoopValue) -> None:
        self.store(self.buffer_of(to), place, value)

    def update(
        self,
        to: Definition,
        place: Expr,
        new: LoopValue,
        when: LoopValue | None,
        combine: Callable[[LoopBody, LoopValue, LoopValue], LoopValue] | None,
    ) -> None:
        """Overwrite the element at a place where `when` holds: with `new`, or with what `combine`
        makes of the old element and `new`."""
        memory = self.buffer_of(to)
        if combine is not None:
            args = () if when is None else (when,)
            # Not shared: an update before this one may have gone to the same place.
            old = super().add(LoopValue(Op.LOAD, memory.type, args, place, memory))
            self._depths[old] = len(self._open) - 1
            new = combine(self, old, new)
        self.store(memory, place, new, when)

    def add_to(self, to: Definition, place: Expr, new: LoopValue, when: LoopValue | None) -> None:
        """Add to an element atomically: other iterations may add to it at the same time."""
        memory = self.buffer_of(to)
        args = (new,) if when is None else (new, when)
        self.add(LoopValue(Op.ATOMIC_ADD, memory.type, args, place, memory))

    def fault(self, when: LoopValue) -> None:
        """Set the flag of errors where `when` holds. The launcher tests it after the kernel, and
        runs the captured graph, which raises."""
        if when.op is Op.CONSTANT and not when.constant:
            return

        def make() -> LoopValue:
            self.store(self.buffer_of(FLAG), ZERO, self.constant(1, Type.I64), when)
            return when

        self._shared(("fault", when), make)

    def buffer_of(self, definition: Definition) -> Buffer:
        owner = self._reuse.get(definition) or definition.into or definition
        if owner not in self.memory:
            access = Access.WRITE if owner is FLAG else self._access[owner]
            name = FLAG.name if owner is FLAG else f"b{len(self.memory)}"
            self.memory[owner] = self.buffer(name, owner.type, access, device=owner.device)
        return self.memory[owner]

    def kernel(self) -> Kernel:
        """The kernel, with all free symbols as its sizes."""
        kernel = super().kernel()
        return Kernel(kernel.name, free_symbols(kernel), kernel.buffers, kernel.body)


def combine_of(scan: Scan, types: Sequence[Type]) -> Combine | None:
    """The `Combine` of a scan whose state has these types, written once on placeholders."""
    if scan.combine is None:
        return None
    left, right = (tuple([LoopValue(Op.CARRIED, t) for t in types]) for _ in range(2))
    body = KernelBody("combine", {}, lambda of, place: None, {})
    result = scan.combine(body, left, right)
    return Combine(left, right, tuple(values(body.kernel().body)), result)


def _is_masked(mask: LoopValue, a: LoopValue, b: LoopValue) -> bool:
    """Whether `select(mask, a, b)` is `a`: a load that is masked by `mask` is 0 where it is false,
    and `b` is 0."""
    return a.op is Op.LOAD and a.args == (mask,) and repr(b.constant) in ("0", "0.0", "False")


def free_symbols(kernel: Kernel) -> tuple[Expr, ...]:
    """The symbols, and other expressions that kernels don't compute (`kernel_arguments`), that a
    kernel uses and doesn't define, sorted."""
    bound: set[Any] = set()
    used: set[Any] = set()
    for loop in loops(kernel.body):
        bound.add(loop.var)
        used |= kernel_arguments(loop.extent)
    for value in values(kernel.body):
        if value.op is Op.AS_INDEX:
            bound.add(value.index)
        elif value.op in INDEXED and value.index is not None:
            used |= kernel_arguments(value.index)
    return tuple(sorted(used - bound, key=lambda s: s.order))


def unknown_argument(kernel: Kernel) -> Expr | None:
    """An argument that nobody can compute before the kernel runs: part of an index with a factor
    beyond 64 bits (`i0 * 10**25`)."""
    own: set[Any] = {loop.var for loop in loops(kernel.body)}
    own |= {value.index for value in values(kernel.body) if value.op is Op.AS_INDEX}
    return next((size for size in kernel.sizes if not own.isdisjoint(size.symbols)), None)
