"""Tensors that functions under `lru_cache` have kept for symbolic numbers: asked for before the
graph.

The one idea: sizes and numbers of the inputs are known before the graph runs. So residual code can
make the call there, and the tensors that it gives are inputs of the graph. The function is followed
only to learn what they look like. The cache may have them from another time, so residual code tests
that: if they look otherwise, Python runs the compiled function. Nothing has happened by then, as
these calls are the first lines of residual code.

    @functools.lru_cache
    def mask(n): return torch.ones(n, n).tril()

    def f_residual(x):
        kept_mask = kept_result(mask, (as_plain(x).size(0),), {}, ((torch.float32, …),))
        mul, = graph_of_f(x, kept_mask)
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import State
from pliant.base import caches
from pliant.base.values import dataclass
from pliant.capture.host_randomness import KeptResult, RandomDraw
from pliant.capture.library.torch.bodies import follow_body
from pliant.capture.model import compare, truth
from pliant.capture.residual_helpers import kept_result, look_of, looks_like
from pliant.capture.trace import PLAIN, Restart, Trace
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence, plain_tuple
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import Load
from pliant.sym.expr import Expr, as_expr
from pliant.sym.node import from_torch
from pliant.sym.printing import to_python

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter

# What the body of a function may see of PyTorch's state. (Not whether gradients are recorded: its
# arguments are no tensors.)
SEEN_STATE = (
    "inference", "autocast_cpu", "autocast_cuda", "autocast_cpu_dtype", "autocast_cuda_dtype",
    "default_dtype", "deterministic", "functorch", "jit_tracing",
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class CachedCall:
    """A call of a cached function."""

    target: Any  # a CachedFunction
    arguments: tuple[Value, ...]
    names: tuple[str, ...]  # of the last of them
    refused: Break  # why the graph would have to end before the call

    def split(self, values: Items[Value]) -> tuple[list[Value], dict[str, Value]]:
        """One value for each argument, as they are given: by position, and by name."""
        count = len(values) - len(self.names)
        return list(values[:count]), dict(zip(self.names, values[count:], strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What the first such call gives, with an example of each tensor."""

    call: CachedCall
    result: Value
    sources: tuple[KeptResult, ...]  # of the result, then of what is in it
    examples: tuple[tuple[TensorValue, torch.Tensor], ...]


CALL = "{}({}, {}, {}, {})"


class NumberBefore(Value):
    """A symbolic integer, computed by residual code before the graph."""

    __slots__ = ("expr", "trace")

    def __init__(self, trace: Trace, expr: Expr) -> None:
        super().__init__()
        self.trace = trace
        self.expr = expr

    def python_type(self) -> type:
        return int

    def rebuild(self, emit: Emitter) -> str:
        return to_python(self.expr, {s: self._read(emit, s) for s in self.expr.symbols})

    def _read(self, emit: Emitter, s: Any) -> str:
        load: Any = self.trace.sizes.env.symbols[s].source
        name = emit.slot(load.source)
        # Past what a subclass of tensors says of its size.
        own = [t for t in self.trace.tensors.values() if t.plain and t.source == load.source]
        return str(load.text(f"{emit.helper('as_plain')}({name})" if own else name))


def ask_before(
    trace: Trace, target: Any, args: list[Value], kwargs: dict[str, Value], refused: Break
) -> Value | None:
    """The result of a call with symbolic numbers, if that is a tensor or a tuple of tensors, and if
    the arguments are known before the graph; otherwise None."""
    arguments = tuple([trace.read(arg) for arg in (*args, *kwargs.values())])
    call = CachedCall(target, arguments, tuple(kwargs), refused)
    before = [value for arg in arguments if (value := _before(trace, arg)) is not None]
    if len(before) < len(arguments) or not _sees_same_state(trace):
        return None
    kept = next((each for each in target.kept if _are_equal(trace, each.call, call)), None)
    is_new = kept is None
    if kept is None:
        kept = _follow(trace, call)
        if kept is None:
            return None
        target.kept.append(kept)
    limit = target.real.cache_parameters()["maxsize"]
    if limit is not None and len(target.kept) > limit:
        raise refused  # it may have forgotten what it gave first
    _ask(trace, call, before, kept, is_new)
    return kept.result


def _ask(trace: Trace, call: CachedCall, before: list[Value], kept: Kept, is_new: bool) -> None:
    """Have residual code make the call: each call of the program counts."""
    positional, named = call.split(before)
    looks = plain_tuple([_look(trace, tensor.fake, example) for tensor, example in kept.examples])
    arguments = (call.target, plain_tuple(positional), Mapping(dict, {**named}), looks)
    target, parts = kept.sources[:1], kept.sources[1:]
    lines = [RandomDraw(target * is_new, Const(kept_result), CALL, None, arguments, pure=True)]
    if is_new and parts:
        text = "{}" if len(parts) > 1 else "{}[0]"
        lines.append(RandomDraw(parts, kept.result, text, None, pure=True))
    trace.kept_calls.append((lines, Restart(trace.frames[-1].step, call.refused)))


def _before(trace: Trace, argument: Value) -> Value | None:
    """An argument as residual code has it before the graph."""
    if isinstance(argument, Number):
        return _number_before(trace, argument.expr)
    plain = isinstance(argument, Const) and type(argument.value) in PLAIN
    known = plain or (isinstance(argument, Instance) and argument.source is not None)
    return argument if known else None


def _number_before(trace: Trace, number: Any) -> Value | None:
    if not isinstance(number, Expr):
        return None
    if number.value is not None:
        return Const(number.value)
    symbols = trace.sizes.env.symbols
    for s in number.symbols:
        info = symbols.get(s)
        load = None if info is None or info.hint is None else info.source
        if not isinstance(load, Load):  # it is in the data
            return None
    return None if "..." in to_python(number) else NumberBefore(trace, number)


def _sees_same_state(trace: Trace) -> bool:
    """Whether the function would find PyTorch in the same state before the graph."""
    if trace.graph.in_body or trace.default_device is not None or trace.overrides.modes:
        return False
    now = State.current()
    return all(getattr(now, name) == getattr(trace.state, name) for name in SEEN_STATE)


def _are_equal(trace: Trace, first: CachedCall, second: CachedCall) -> bool:
    """Whether a call has the arguments of an earlier one. Then it gives the same object; otherwise
    it must not, which is guarded."""
    if first.names != second.names or len(first.arguments) != len(second.arguments):
        raise second.refused  # which of them are one key depends on the cache
    for one, other in zip(first.arguments, second.arguments, strict=True):
        if one is other:
            continue
        # Whether 1 and 1.0 are one key is up to the cache, and so are objects.
        if isinstance(one, Instance) or one.python_type() is not other.python_type():
            raise second.refused
        if not truth(trace, compare(trace, "==", one, other)):
            return False
    return True


def _follow(trace: Trace, call: CachedCall) -> Kept | None:
    """What the function gives, as inputs of the graph; None if it gives something else."""
    changes, function = trace.changes, call.target.function
    body = follow_body(trace, call.target.real.__qualname__, function, *call.split(call.arguments))
    trace.graph.drop([body.node])
    result = trace.read(body.result)
    tensors = _tensors(trace, result)
    if not tensors:
        return None
    of_tensors = any(isinstance(fake, torch.Tensor) for fake in body.lifted_fakes)
    memory = {tensor.fake.untyped_storage()._cdata for tensor in tensors}
    usual = [_is_usual(trace, tensor.fake, tensor.cls) for tensor in tensors]
    unusual = len(memory) < len(tensors) or not all(usual)
    if body.effect or of_tensors or unusual or trace.changes != changes:
        raise call.refused
    trace.changes += 1
    examples = _examples(trace, call, tensors)
    source = _source(trace, call)
    parts = [_source(trace, call) for _ in tensors] if isinstance(result, Sequence) else []
    places = parts or [source]
    inputs = [_input(trace, *each) for each in zip(places, tensors, examples, strict=True)]
    kept = Sequence(tuple, [*inputs], source) if parts else inputs[0]
    return Kept(call, kept, (source, *parts), tuple(zip(inputs, examples, strict=True)))


def _tensors(trace: Trace, result: Value) -> list[TensorValue]:
    """The tensors that a function returned; none if there is something else."""
    if isinstance(result, TensorValue):
        return [result]
    if not isinstance(result, Sequence) or result.cls is not tuple or result.source is not None:
        return []
    items = [trace.read(item) for item in result.items]
    tensors = [item for item in items if isinstance(item, TensorValue)]
    return tensors if len(tensors) == len(items) else []


def _is_usual(trace: Trace, fake: Any, cls: type) -> bool:
    """Whether residual code can tell a tensor that looks like this from others."""
    plain = cls is torch.Tensor and fake.layout is torch.strided and not fake.requires_grad
    if not plain or fake.is_conj() or fake.is_neg() or fake.storage_offset() != 0:
        return False
    layout = [as_expr(from_torch(number)) for number in (*fake.size(), *fake.stride())]
    return all(_number_before(trace, number) is not None for number in layout)


def _examples(trace: Trace, call: CachedCall, tensors: list[TensorValue]) -> list[torch.Tensor]:
    """Tensors that look as the results do for the numbers of this call: what the cache has, or
    new ones."""
    new = [_example(trace, tensor.fake) for tensor in tensors]
    kept = _remembered(trace, call)
    known = kept if type(kept) is tuple else (kept,)
    # Those that were made in inference mode have other dispatch keys, for good.
    same = len(known) == len(new) and all(map(_is_alike, known, new))
    return list(known) if same else new


def _is_alike(tensor: Any, other: torch.Tensor) -> bool:
    dtype, device, _, sizes, strides = look_of(other)
    keys = torch._C._dispatch_keys(tensor).raw_repr() if type(tensor) is torch.Tensor else 0
    return looks_like(tensor, (dtype, device, keys, sizes, strides))


def _example(trace: Trace, fake: Any) -> torch.Tensor:
    sizes, strides = _hints(trace, fake.size()), _hints(trace, fake.stride())
    return torch.empty_strided(sizes, strides, dtype=fake.dtype, device=fake.device).zero_()


def _hints(trace: Trace, numbers: Items[Any]) -> list[int]:
    """What the sizes are in this call."""
    values = [n if isinstance(n, int) else trace.sizes.env.hint(from_torch(n)) for n in numbers]
    return [int(value or 0) for value in values]


def _remembered(trace: Trace, call: CachedCall) -> Any:
    """What the cache has for this call; it is not asked if that would run code of the program."""
    numbers = []
    for value in call.arguments:
        if isinstance(value, Instance):
            return caches.MISSING
        expr = value.expr if isinstance(value, Number) else None
        numbers.append(value.constant() if expr is None else trace.sizes.env.hint(expr))
    args, kwargs = call.split(numbers)
    cached = call.target.real
    return caches.remembered(cached, caches.key_of_call(cached, tuple(args), kwargs))


def _look(trace: Trace, fake: Any, example: torch.Tensor) -> Value:
    """What residual code compares the tensor with."""
    layout = [
        plain_tuple([_number_before(trace, as_expr(from_torch(n))) or NONE for n in numbers])
        for numbers in (fake.size(), fake.stride())
    ]
    return plain_tuple([*map(Const, look_of(example)[:3]), *layout])


def _input(
    trace: Trace, source: KeptResult, tensor: TensorValue, example: torch.Tensor
) -> TensorValue:
    """An input of the graph that looks like a tensor in the followed body."""
    fake = tensor.fake
    layout = (fake.size(), fake.stride()) if fake._has_symbolic_sizes_strides else None
    own = trace.world.from_real(example, layout)
    node = trace.graph.tensor_input(source, example, False, own)
    value = TensorValue(node, own, source=source)
    trace.tensors[id(own)] = value
    trace.graph_effects.outside.add(own.untyped_storage()._cdata)
    return value


def _source(trace: Trace, call: CachedCall) -> KeptResult:
    trace.kept_results += 1
    return KeptResult(trace.kept_results, call.target.real.__name__)
