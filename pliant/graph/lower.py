"""The functional graph as definitions and calls.

The one idea: a value is an `IndexedTensor`, a function from an index to an element, until it is
needed in memory: by an operator that PyTorch runs, by the caller, or by several readers if
recomputing it costs more than `RECOMPUTE_LIMIT`. Then it is realized, as a `Definition`:

    t1 = aten.mul(in0, 2)       an expression: t1[i] = in0[i] * 2
    t2 = aten.sort(t1, ...)     no rule: t1 is realized, then an extern call reads it
    t3 = aten.exp(t2)           an expression: t3[i] = exp(t2[i])
    return t3                   realized: the kernel of t3

Which values PyTorch needs is only known when a rule gives up; then everything is lowered once more,
knowing it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any, Final

import torch

from pliant.base.operators import record_of
from pliant.base.values import replace
from pliant.graph.extern import ExternOperator, TensorArgument
from pliant.graph.given_numbers import GivenNumbers
from pliant.graph.in_place import InPlace, Lowered, laid_out_so
from pliant.graph.ir import (
    Functional,
    MemoryWrite,
    Node,
    OutputView,
    Scalar,
    Tensor,
    returned_tensors,
    tensors_in,
)
from pliant.graph.literals import Literals
from pliant.graph.matmul import MatmulLowering
from pliant.graph.opaque_calls import WRITES_IN_PLACE, CopyingFunction, item_at, with_item
from pliant.graph.raising import alive, may_raise, read_whole
from pliant.loop.define import Computed, Definition, Index, LoopBody, contiguous
from pliant.loop.fuse import ExternCall, Reads, owner, probe, sized, variables
from pliant.loop.ir import LoopValue
from pliant.loop.types import BY_DTYPE, FLOAT8, Type
from pliant.ops.indexed_tensor import IndexedTensor, in_memory
from pliant.ops.lowering import Lowering, Meta, NotLowered, computable
from pliant.ops.views import view_of
from pliant.sym.cond import Cond
from pliant.sym.floats import FloatExpr
from pliant.sym.frozen import FrozenEnv

RECOMPUTE_LIMIT: Final = 3
"""A value whose elements take more operations than this is stored if it has several readers."""

WIDENING_LIMIT: Final = 12
"""The same for a value that is computed from one stored in fewer bytes (`_is_widened`)."""

DEEP: Final = 400
"""A value whose elements take more operations than this becomes a definition, however few readers
it has. (It is stored unless they share a kernel with it.) This bounds the size of expressions."""

LAYERS: Final = 48
"""A value with more functions of an index nested in it than this becomes a definition, too: each
layer takes up to six frames of Python's stack when an element is written."""

# Of floats of 8 bits eager PyTorch computes little; what it refuses, it has to see.
_COMPUTED_DTYPES: Final = BY_DTYPE.keys() - {t.dtype for t in FLOAT8}


def lower(
    function: Functional,
    env: FrozenEnv,
    refused: Mapping[Node, str] | None = None,
    late: Collection[int] = (),
    device: str = "cpu",
) -> Lowered:
    """Lower a function to definitions and extern calls. Nodes in `refused` are called, for the
    reasons given there. The inputs `late` are written to at the end only. Definitions are for this
    type of device; what is on another one is called."""
    in_memory: set[Tensor] = set()
    while True:
        # From the start: an earlier value that is now stored changes what everything after it
        # reads.
        attempt = _Lowerer(function, env, frozenset(in_memory), refused or {}, late, device)
        done = attempt.run()
        # A reader needed a value in memory that this attempt had left as an expression.
        if attempt.missed <= in_memory:
            return done
        in_memory |= attempt.missed  # grows with each attempt, so this ends


class _Lowerer(InPlace):
    def __init__(
        self,
        function: Functional,
        env: FrozenEnv,
        wanted: frozenset[Tensor],
        refused: Mapping[Node, str],
        late: Collection[int],
        device: str,
    ) -> None:
        low = Lowering(
            device=device,
            known=env.known,
            simplify=env.simplify,
            hint=env.expect,
            default_dtype=torch.get_default_dtype(),
        )
        super().__init__(function, alive(function), low, late)
        self.numbers = GivenNumbers(self.done.numbers)
        self.refused = refused
        self.wanted = wanted  # values that have to be in memory, with eager's layout
        self.missed: set[Tensor] = set()  # others that turned out to need that, in this attempt
        self.read_whole = read_whole(function, self.nodes)
        returned = returned_tensors(function.outputs)
        self.uses.update(returned)
        self.kept = frozenset(returned)
        # Backwards, so that views of views are counted when their base is reached.
        self.readers = Counter(self.uses)  # those that read it through views of it, too
        for node in self.nodes:
            if record_of(node.name).reads_layout:
                self.readers.subtract(tensors_in((node.args, node.kwargs)))
        for node in reversed(self.nodes):
            # A view is an expression, so each reader of it reads what it is a view of; it was
            # counted once.
            if node.view and self.readers[node.results[0]] > 1:
                self.readers[node.args[0]] += self.readers[node.results[0]] - 1
        self.depths: dict[Tensor, int] = {}  # the layers of what is not in memory
        self.input_memory: frozenset[Definition | None] = frozenset()  # of inputs
        self.literals = Literals(low)
        self.returned: dict[Definition, Tensor] = {}  # whose memory is whose
        tools = (self._needed, self._append_definitions)
        self.matmuls = MatmulLowering(self.low, self.indexed_tensors, self.kept, *tools)

    def run(self) -> Lowered:
        done = self.done
        for index, value in enumerate(self.function.inputs):
            done.inputs.append(self._from_outside(value, f"in{index}") if _is(value) else None)
        # Inputs first, then constants, then nodes in order: a rule finds all operands in the table.
        self.input_memory = frozenset(done.inputs)
        for tensor, real in self.function.constants.items():
            definition = self._from_outside(tensor, f"c{len(done.constants)}")
            done.constants.append((definition, real))
            self.literals.note(tensor, definition, real)
            self._set(tensor, self.literals.read(self.indexed_tensors[tensor]))
        for position, node in enumerate(self.nodes):
            self.pending_reads.position = position
            self._node(node)
        done.outputs = [self._output(out) for out in self.function.outputs]
        self._write_all()
        done.steps = self.steps
        return done

    def _from_outside(self, tensor: Tensor, name: str) -> Definition:
        """A definition without a body, for an input, a constant or the result of a call."""
        type = BY_DTYPE.get(tensor.dtype, Type.U8)
        device = tensor.device.type
        definition = Definition(name, tensor.sizes, tensor.strides, type, device=device)
        self._set(tensor, self._held(definition, tensor))
        self.returned[definition] = tensor
        return definition

    def _held(self, definition: Definition, tensor: Tensor) -> IndexedTensor:
        """The tensor in memory. A dtype that loops do not have can only be passed to calls."""
        stored = in_memory(definition, tensor.sizes, tensor.strides)
        if tensor.dtype in BY_DTYPE:
            return stored
        return IndexedTensor(stored.sizes, stored.type, _unreadable, 0, 1, stored.memory)

    # ---- nodes

    def _node(self, node: Node) -> None:
        if node.view:
            self._view(node)
            return
        if node.func is None:  # the value of some memory after a write
            self._set(node.results[0], self._stored(node), node.args)
            self._compute_faults(node, node.results[0])
            self._append_definitions(node)
            return
        # To undo what a rule has defined, if it gives up in its middle.
        mark, layers = len(self.low.definitions), self.low.layers
        try:
            if node.effect:
                raise NotLowered("it has an effect")
            if node in self.refused:
                raise NotLowered(self.refused[node])
            results = self._by_rule(node)
        except NotLowered as reason:
            # What the rule defined before it gave up is not needed, but for what has become steps:
            # realized operands, which stay useful.
            del self.low.definitions[max(mark, self._taken) :]
            if not self._matmul(node):
                self._call(node, str(reason))
            return
        # A rule may nest several functions of an index itself, as a composite of others does.
        depth = self._depth(node) + max(self.low.layers - layers, 1)
        for tensor, indexed in zip(node.results, results, strict=True):
            self.depths[tensor] = depth
            self._set(
                tensor,
                self._realized_if_needed(tensor, indexed),
                tensors_in((node.args, node.kwargs)),
            )
            self._compute_faults(node, tensor)
        self.done.lowered[node.name] += 1
        self._append_definitions(node)

    def _depth(self, node: Node) -> int:
        """How many functions of an index are nested in the deepest operand that isn't in memory."""
        operands = tensors_in((node.args, node.kwargs))
        indexed = [
            self.depths.get(t, 0) for t in operands if self.indexed_tensors[t].memory is None
        ]
        return max(indexed, default=0)

    # ---- writes

    def _stored(self, node: Node) -> IndexedTensor:
        """The value of some memory after a write."""
        put, result = node.put, node.results[0]
        if put is not None and len(node.args) == 2:
            return self._put(node, put)
        # The new value may be the expression of another tensor; as memory it counts only if it is
        # laid out as this one.
        source = self._plain(self.indexed_tensors[node.args[0]], result)
        self.depths[result] = self._depth(node)
        target = None if put is None else self._input(put)
        if target is not None and self._must_realize(result, source):
            return self._written(target, source, target)
        return self._realized_if_needed(result, source)

    def _put(self, node: Node, put: MemoryWrite) -> IndexedTensor:
        """A write to a part: in place, or else by `put.otherwise`, which computes all of it."""
        old, new = node.args
        memory = self._overwritable(put)
        if memory is None:
            assert put.otherwise is not None and put.updated is not None
            for step in put.otherwise:
                self._ensure(tensors_in((step.args, step.kwargs)))
                self._node(step)
            self._ensure([put.updated])
            self.depths[node.results[0]] = self.depths.get(put.updated, 0)
            return self._realized_if_needed(
                node.results[0], self._plain(self.indexed_tensors[put.updated], old)
            )
        source = self.indexed_tensors[new].memory
        # The operator wrote its result into the memory itself (`_target`): there is nothing left to
        # write.
        if source is not None and source.of.into is memory and source.of is self.scattered.get(new):
            return in_memory(source.of, memory.sizes, memory.strides)
        return self._written(memory, self.indexed_tensors[new], put.window)

    def _ensure(self, tensors: Iterable[Tensor]) -> None:
        """Lower views that only a write needs."""
        for tensor in tensors:
            if tensor not in self.indexed_tensors and tensor.node is not None:
                self._ensure(tensors_in((tensor.node.args, tensor.node.kwargs)))
                self._node(tensor.node)

    def _by_rule(self, node: Node) -> list[IndexedTensor]:
        """The results by the operator's rule. Raises `NotLowered` if there is none that fits."""
        if node.generated:
            return [self.matmuls.generate(node)]
        record = record_of(node.name)
        rule = record.lowering
        if rule is None:
            raise NotLowered("no rule")
        tensors = [*node.results, *tensors_in((node.args, node.kwargs))]
        _require_dtypes(tensors, BY_DTYPE if record.moves else _COMPUTED_DTYPES)
        devices = {t.device for t in tensors if not self.literals.has(self.indexed_tensors.get(t))}
        _require_device(devices, self.low.device)
        if not all(map(_can_be_given, (*node.args, *node.kwargs.values()))):
            raise NotLowered("a number that kernels don't compute")
        low = self.low
        low.results = tuple([Meta(t.sizes, t.strides, t.dtype) for t in node.results])
        # Lets a scatter work where its first argument is, instead of in a copy of that.
        low.target = self._target(node)
        mark = len(low.definitions)
        args = list(map(self._indexed, node.args))
        kwargs = {name: self._indexed(value) for name, value in node.kwargs.items()}
        self.numbers.give(node.func, args, kwargs)
        result = rule(low, *args, **kwargs)
        results = result if isinstance(result, (list, tuple)) else [result]
        tensors_out = [_as_foreseen(*pair, node) for pair in zip(results, low.results, strict=True)]
        memory = tensors_out[0].memory
        if low.target is not None and memory is not None and memory.of in low.definitions[mark:]:
            self.scattered[node.results[0]] = memory.of
        return tensors_out

    def _indexed(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.indexed_tensors[value]
        if isinstance(value, Scalar):
            return value.number
        if isinstance(value, FloatExpr) and not computable(value):
            return self.numbers.symbol_of(value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._indexed, value))
        return value

    def _realized_if_needed(self, tensor: Tensor, indexed: IndexedTensor) -> IndexedTensor:
        """The value as it is, or realized if `_must_realize` says so."""
        return self._in_memory(tensor, indexed) if self._must_realize(tensor, indexed) else indexed

    def _must_realize(self, tensor: Tensor, indexed: IndexedTensor) -> bool:
        """Whether to store a value rather than have each reader compute it again."""
        if tensor in self.wanted:  # an earlier attempt found that PyTorch reads it
            return not laid_out_so(indexed, tensor)
        # Several readers would each compute it again: better to store it, unless that is cheap.
        shared = self.readers[tensor] > 1 and (
            (indexed.cost > RECOMPUTE_LIMIT and not _is_widened(indexed))
            or self._frees_memory(tensor, indexed)
        )
        # However many readers: bounds the size of kernels and the depth of Python's stack.
        deep = indexed.cost > DEEP or self.depths.get(tensor, 0) > LAYERS
        return indexed.memory is None and (shared or deep)

    def _frees_memory(self, tensor: Tensor, indexed: IndexedTensor) -> bool:
        """Whether storing the value lets go of its operands: each element is computed from two or
        more stored tensors (or one, if the value is stored anyway), at places that depend on its
        whole index. These can be freed or overwritten then, unless all are inputs."""
        rank = len(sized(indexed.sizes))
        least = 1 if tensor in self.kept else 2
        if indexed.memory is not None or indexed.reads < least or rank == 0:
            return False
        places = _probed(indexed).places
        read = {of for of, place in places if place.symbols.issuperset(variables(rank))}
        return len(read) >= least and any(owner(of) not in self.input_memory for of in read)

    def _compute_faults(self, node: Node, tensor: Tensor) -> None:
        """Have a value that may have to raise computed in full: by a reader of all of it, or stored
        here. Eager PyTorch raises for an index out of range even if nothing reads the element."""
        indexed = self.indexed_tensors[tensor]
        if indexed.memory is not None:
            return
        inherited = any(t in self.raising for t in tensors_in((node.args, node.kwargs)))
        if not inherited:
            if not may_raise(node):
                return
            if not _probed(indexed).faults:
                return
        if tensor in self.read_whole:
            self.raising[tensor] = None  # its readers compute all of it, and raise
        else:
            self._set(tensor, self.low.realize(indexed, tensor.strides))

    def _in_memory(self, tensor: Tensor, indexed: IndexedTensor) -> IndexedTensor:
        """The value in memory, with the layout that the tensor has in eager PyTorch."""
        if indexed.memory is not None and laid_out_so(indexed, tensor):
            return indexed
        return self.low.realize(indexed, tensor.strides)

    def _view(self, node: Node) -> None:
        """Lower a view: to strides if its source is in memory, else to a map of the index."""
        (result,) = node.results
        source: Tensor = node.args[0]
        indexed = self.indexed_tensors[source]
        memory = indexed.memory
        if memory is not None and memory.strides == source.strides:
            # In memory, any view is other strides and another offset, whatever operator made it.
            same_dtype = source.dtype is result.dtype
            if same_dtype:
                offset = self.numbers.as_place(memory.offset + result.offset - source.offset)
                view = in_memory(memory.of, result.sizes, result.strides, offset)
                if result.dtype not in BY_DTYPE:
                    view = IndexedTensor(view.sizes, view.type, _unreadable, 0, 1, view.memory)
                self._set(result, self.literals.read(view))
                return
        self.depths[result] = self._depth(node) + 1
        if self.depths[result] > LAYERS:
            # Bounds the recursion where an index goes through a long chain of views.
            indexed = self.low.realize(indexed, contiguous(indexed.sizes))
            self._set(source, indexed)
            self._append_definitions(source.node)
        try:
            if result.dtype is not source.dtype:
                raise NotLowered("a view as another dtype")
            args = tuple(map(self.numbers.as_place, node.args[1:]))
            kwargs = {name: self.numbers.as_place(value) for name, value in node.kwargs.items()}
            view = view_of(node.name, indexed, result.sizes, *args, **kwargs)
            self._set(result, view, (source,))
            if source in self.raising and result in self.read_whole:
                self.raising[result] = None
        except NotLowered:
            if memory is None or memory.strides != source.strides:
                # In memory it is a matter of strides.
                self._set(source, self._in_memory(source, indexed))
                self._append_definitions(source.node)
                if result.dtype is source.dtype:
                    self._view(node)
                    return
            self._call(node, "view")

    # ---- calls

    def _call(self, node: Node, why: str) -> None:
        """Append an extern call: PyTorch runs the operator, because of `why`."""
        in_place = self._called_in_place(node) if node.name in WRITES_IN_PLACE else {}
        fills = record_of(node.name).fills_first
        args = tuple(map(self._place, node.args[1:] if fills else node.args))
        if fills:
            # The operator writes its first argument without reading it, as `normal_` does.
            args = (self._blank(node.args[0]), *args)
        kwargs = {name: self._place(value) for name, value in node.kwargs.items()}
        func = None
        if in_place:
            args, kwargs = _marked(node.func, in_place, (*args, *kwargs.values())), {}
            func = replace(node.func, in_place=frozenset(in_place))
        prefix, copies = f"r{len(self.steps)}", len(node.results) - len(getattr(func, "places", ()))
        makes = tuple(
            in_place.get(i - copies) or self._from_outside(t, f"{prefix}_{i}")
            for i, t in enumerate(node.results)
        )
        reads = tuple(_definitions((args, tuple(kwargs.values()))))
        # A check of a number settles it too: nothing may use it before, as an index for example.
        settled = [s for value in node.args if isinstance(value, Cond) for s in value.symbols]
        finds = (*[unbacked.symbol for unbacked in node.defines], *settled)
        # Behind what may raise, inputs are left as they were until it has run.
        raises = node.effect or (may_raise(node) and node.name not in WRITES_IN_PLACE)
        fresh = not node.view and record_of(node.name).fresh
        operator = ExternOperator(node, args, kwargs, func)
        self.steps.append(ExternCall(reads, makes, operator, finds, raises, fresh, node.view))
        for number, definition in in_place.items():
            copy = node.results[copies + number]
            self._set(
                copy, in_memory(definition, definition.sizes, definition.strides, definition.offset)
            )
            self.scattered[copy] = definition
        if node.view:  # one memory under two names
            self.fresh.difference_update(map(owner, reads))
            self.shared.update(map(owner, (*reads, *makes)))
        elif fresh and len(makes) == 1:
            self.fresh.update(makes)
        self.done.called[f"{node.name}: {why}"] += 1

    def _matmul(self, node: Node) -> bool:
        """Append a call if the node is a matrix product. Returns whether it is."""
        refused = node in self.refused and not node.generated  # it had a kernel for its bias
        matmul = None if refused else self.matmuls.find(node)
        if matmul is None:
            return False
        self.steps.append(matmul.call)
        (tensor,), result = node.results, matmul.result
        self.depths[tensor] = 1
        result = self._realized_if_needed(tensor, result) if result.memory is None else result
        self._set(tensor, result, tensors_in((node.args, node.kwargs)))
        self._append_definitions(node)
        self.returned[matmul.memory] = tensor
        self.fresh.add(matmul.memory)
        self.done.called[f"{node.name}: no rule"] += 1
        return True

    def _place(self, value: Any) -> Any:
        """An argument of an extern call, with its tensors in memory."""
        if isinstance(value, Tensor):
            return self._needed(value)
        if isinstance(value, Scalar):
            return value.tensor
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._place, value))
        return value

    def _needed(self, tensor: Tensor) -> TensorArgument:
        """The tensor in memory, as an operator of PyTorch expects it."""
        indexed = self.indexed_tensors[tensor]
        if indexed.memory is None or indexed.memory.strides != tensor.strides:
            # Here it costs a copy. The next attempt defines it, and its base, with this layout.
            self.missed.update(_roots(tensor))
            self._realize(tensor)
        memory = self.indexed_tensors[tensor].memory
        assert memory is not None
        return TensorArgument(memory, tensor.sizes, tensor.dtype)

    # ---- results

    def _output(self, out: Any) -> Any:
        """A result: a view of a value comes with the memory of that, others are as they are."""
        if not isinstance(out, OutputView) or out.of is None:
            return out
        indexed = self._in_memory(out.of, self.indexed_tensors[out.of])
        assert indexed.memory is not None
        # Two outputs that are equal values are two tensors for the caller.
        if self.returned.setdefault(owner(indexed.memory.of), out.of) is not out.of:
            # Memory of the caller's, or of another output: here is a tensor of its own.
            indexed = self.low.realize(indexed, out.of.strides)
            assert indexed.memory is not None
            self.returned[indexed.memory.of] = out.of
        self._set(out.of, indexed)
        self._append_definitions(out.of.node)
        return (out, indexed.memory)


def _as_foreseen(indexed: IndexedTensor, meta: Meta, node: Node) -> IndexedTensor:
    """The result of a rule with the sizes that PyTorch's own meta kernels give."""
    if indexed.type is not meta.type or len(indexed.sizes) != len(meta.sizes):
        raise AssertionError(f"the rule for {node.name} gives {indexed}, not {meta}")
    # The operands may be older than what is known of sizes now (`u0 == 1`). Memory of two sizes
    # would not be the same for the views of a result.
    return indexed if indexed.memory is not None else replace(indexed, sizes=meta.sizes)


def _is_widened(indexed: IndexedTensor) -> bool:
    """Whether the value is cheaply computed from one that is stored in fewer bytes, as dropout's
    factor from its mask of bools. To keep the narrow one takes less memory and less bandwidth."""
    if indexed.memory is not None or indexed.reads != 1 or indexed.cost > WIDENING_LIMIT:
        return False
    read = {of for of, _ in _probed(indexed).places}
    return any(of.type.dtype.itemsize < indexed.type.dtype.itemsize for of in read)


def _require_dtypes(tensors: Iterable[Tensor], allowed: Container[torch.dtype]) -> None:
    foreign = next((t.dtype for t in tensors if t.dtype not in allowed), None)
    if foreign is not None:
        raise NotLowered(str(foreign))


def _require_device(devices: set[torch.device], expected: str) -> None:
    if len(devices) > 1:
        raise NotLowered("tensors on several devices")
    if devices and devices.pop().type != expected:
        raise NotLowered(f"not on {expected}")


def _probed(x: IndexedTensor) -> Reads:
    """What an element of a value reads and costs."""
    return probe(Definition("", x.sizes, contiguous(x.sizes), x.type, Computed(x.at)))


def _can_be_given(x: Any) -> bool:
    """Whether an argument is no number, or one that kernels compute or take as an argument."""
    if isinstance(x, (list, tuple)):
        return all(map(_can_be_given, x))
    return isinstance(x, FloatExpr) or computable(x)


def _marked(
    func: CopyingFunction, written: Iterable[int], args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The arguments of a call, with the tensors number `written` marked as written in place."""
    for path in [path for number in written for path in func.places[number]]:
        args = with_item(args, path, replace(item_at(args, path), written=True))
    return args


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def _unreadable(b: LoopBody, index: Index) -> LoopValue:
    """The elements of a tensor whose dtype loops don't have."""
    raise NotLowered("a dtype that loops don't compute with")


def _roots(tensor: Tensor) -> set[Tensor]:
    """The tensor, and all tensors on the chain of views down to its base."""
    roots = {tensor}
    while tensor.node is not None and tensor.node.view:
        tensor = tensor.node.args[0]
        roots.add(tensor)
    return roots


def _definitions(value: Any) -> list[Definition]:
    if isinstance(value, TensorArgument):
        return [value.memory.of]
    if isinstance(value, (list, tuple)):
        return [d for item in value for d in _definitions(item)]
    return []
