"""PyTorch's database of operators, compiled and eagerly.

The one idea: a sample of an operator is a small program of its tensors, everything else in the call
written out in it. Two samples that differ in sizes only are then the same program, and with
symbolic sizes the one graph has to do for both.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
from pliant.base.errors import PliantError
from pliant.base.options import config

argv, sys.argv = sys.argv, sys.argv[:1]  # which the module of samples reads
try:
    from torch.testing._internal import common_utils
    from torch.testing._internal.common_device_type import toleranceOverride
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo import core
finally:
    sys.argv = argv


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


# Some samples call through a function that seeds. Here that is done around the call, because what
# is to be compiled is the operator.
for module in list(sys.modules.values()):
    if getattr(module, "__name__", "").startswith("torch.testing._internal"):
        if hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = _call

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool)
OTHER_DTYPES = (
    *(torch.float16, torch.int32, torch.uint8, torch.int8, torch.int16),
    *(torch.complex64, torch.complex128, torch.complex32),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)

MOST = 200  # samples: a few operators have thousands that differ little
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"} | {
    "new_empty_strided",
    "resize_",
    "resize_as_",
}
NOT_ON_CPU = "jiterator_"
SIZES_FROM_DATA = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive"}

# PyTorch's own results differ from one call to the next, or are any of several right ones.
ONLY_LAYOUT: dict[str, str] = dict.fromkeys(UNINITIALISED, "its memory is not initialised")


@dataclasses.dataclass(frozen=True)
class Program:
    """A sample: a function of its tensors, as text."""

    op: Callable[..., Any]
    source: str
    constants: dict[str, Any]
    tensors: tuple[torch.Tensor, ...]

    @property
    def plain(self) -> bool:
        """Nothing but numbers in it: the text says all."""
        return not self.constants

    def function(self) -> Callable[..., Any]:
        names = {"op": self.op, "torch": torch, "behind": behind, **self.constants}
        exec(compile(self.source, "<sample>", "exec"), names)
        return names["program"]


class _Writer:
    """Turns arguments into text."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.constants: dict[str, Any] = {}

    def text(self, value: Any) -> str:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return f"t{len(self.tensors) - 1}"
        if type(value) in (int, bool, str, type(None)) or (
            type(value) is float and value - value == 0
        ):
            return repr(value)
        if isinstance(value, torch.dtype):
            return str(value)
        if type(value) in (list, tuple):
            items = "".join(f"{self.text(item)}, " for item in value)
            return f"[{items}]" if type(value) is list else f"({items})"
        if type(value) is dict:
            items = "".join(f"{key!r}: {self.text(item)}, " for key, item in value.items())
            return f"{{{items}}}"
        if type(value) is slice:
            return f"slice({value.start!r}, {value.stop!r}, {value.step!r})"
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


def program(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Program:
    writer = _Writer()
    given = [writer.text(arg) for arg in args]
    given += [f"{name}={writer.text(value)}" for name, value in kwargs.items()]
    names = ", ".join(f"t{i}" for i in range(len(writer.tensors)))
    source = f"def program({names}):\n    return op({', '.join(given)})\n"
    return Program(op, source, writer.constants, tuple(writer.tensors))


def behind(value: Any) -> Any:
    """What stands behind an operator: something that can be fused with it."""
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype is torch.bool else value + value
    if isinstance(value, (list, tuple)):
        return [behind(item) for item in value]
    return value


def fused(sample: Program) -> Program:
    """The sample between pointwise operations, which give it the same values as before."""
    lines = [f"    {_in_front(f't{i}', t)}\n" for i, t in enumerate(sample.tensors)]
    head, call = sample.source.split("\n", 1)
    call = call.replace("return op", "result = op", 1)
    source = f"{head}\n{''.join(lines)}{call}    return result, behind(result)\n"
    return dataclasses.replace(sample, source=source)


def _in_front(name: str, t: torch.Tensor) -> str:
    if t.layout is not torch.strided or not t.dtype.is_signed and t.dtype is not torch.bool:
        return f"{name} = {name}"
    return f"{name} = ~(~{name})" if t.dtype is torch.bool else f"{name} = -(-{name})"


def flipped(t: torch.Tensor) -> torch.Tensor:
    """The last two dimensions the other way round in memory."""
    return t.mT.contiguous().mT if t.dim() > 1 and t.is_contiguous() else t


def spread(t: torch.Tensor) -> torch.Tensor:
    """In every other place of a larger memory, not from the start."""
    if not t.dim() or not t.is_contiguous() or not t.numel():
        return t
    memory = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1] + 1))
    memory[..., 1::2] = t
    return memory[..., 1::2]


LAYOUTS = {"plain": lambda t: t, "flipped": flipped, "spread": spread}


def relaid(sample: Program, layout: str) -> Program:
    """The sample with its tensors laid out in another way, unless they share memory."""
    strided = all(t.layout is torch.strided and not t.is_conj() for t in sample.tensors)
    if not strided or len({_memory(t) for t in sample.tensors}) < len(sample.tensors):
        return sample
    return dataclasses.replace(sample, tensors=tuple(map(LAYOUTS[layout], sample.tensors)))


def name_of(op: Any) -> str:
    return ".".join(filter(None, (op.name, op.variant_test_name)))


def operators() -> list[Any]:
    """Every operator of the database that can run on CPU, one for each variant."""
    return [op for op in op_db if op.dtypes and not op.name.startswith(NOT_ON_CPU)]


@contextmanager
def quick_samples() -> Iterator[None]:
    """PyTorch reads the call stack and seeds for each sample: most of the time would go there."""
    changed = (
        (common_utils, "set_rng_seed"),
        (common_utils, "extract_test_fn"),
        (core, "extract_test_fn"),
    )
    before = [getattr(module, name) for module, name in changed]
    for module, name in changed:
        setattr(module, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for (module, name), old in zip(changed, before):
            setattr(module, name, old)


def spread_samples(
    op: Any, dtype: torch.dtype, count: int, in_place: bool = False
) -> list[Program]:
    """So many samples of all kinds: the first ones of an operator often differ in sizes only."""
    every = list(samples(op, dtype, MOST, in_place))
    step = max(1, len(every) // count)
    return every[::step][:count]


def samples(
    op: Any, dtype: torch.dtype, most: int | None = None, in_place: bool = False
) -> Iterator[Program]:
    """The samples of an operator, or of the method that writes to its first argument; the same
    ones each time."""
    function = op.inplace_variant if in_place else op.op
    if dtype not in op.dtypes or function is None:
        return
    torch.manual_seed(0)
    with quick_samples(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in itertools.islice(
            op.sample_inputs(torch.get_default_device().type, dtype), most
        ):
            with torch.random.fork_rng(devices=()):
                if not (in_place and sample.broadcasts_input):
                    yield program(function, (sample.input, *sample.args), sample.kwargs)


# --------------------------------------------------------------------------------------------------
# One sample, both ways


class Wrong(AssertionError):
    """The compiled program does something else than the eager one."""


class TooSlow(Exception):
    """The time limit for one sample."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a sample: `how` is one of

    - lowered: kernels do all of it
    - called: PyTorch runs (part of) it; `why` says which operators
    - not recorded: the graph runs operator by operator; `why`
    - broke: no graph has all of it; `why`
    - broken: wrong, or an error; `why`
    - skipped: eager PyTorch refuses it
    """

    how: str
    why: str = ""
    seconds: float = 0.0


def tolerances(op: Any, dtype: torch.dtype) -> dict[str, float]:
    """PyTorch's for this operator, or its general ones for the dtype."""
    found = [
        inner.d[dtype]
        for info in op.decorators
        for inner in getattr(info, "decorators", [info])
        if isinstance(inner, toleranceOverride)
        and dtype in inner.d
        and getattr(info, "device_type", None) in (None, torch.get_default_device().type)
    ]
    if not found:
        return {}
    return {"atol": max(t.atol for t in found), "rtol": max(t.rtol for t in found)}


@dataclasses.dataclass
class Compiled:
    """Programs that are compiled already, by text: for symbolic sizes."""

    made: dict[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)

    def get(self, sample: Program, dynamic: bool | None) -> Callable[..., Any]:
        known = self.made.get(sample.source) if dynamic and sample.plain else None
        if known is None:
            known = pliant.compile(sample.function(), backend=llvm, dynamic=dynamic)
            self.made[sample.source] = known
        return known


def attempt(
    op: Any,
    dtype: torch.dtype,
    sample: Program,
    dynamic: bool | None = None,
    known: Compiled | None = None,
    limit: int = 60,
) -> Outcome:
    """A sample, eagerly and compiled."""
    seen: list[events.Event] = []
    eager = sample.function()
    expected, theirs = run(eager, sample.tensors)
    if isinstance(expected, Exception):
        return Outcome("skipped", repr(expected))
    try:
        compiled = (known or Compiled()).get(sample, dynamic)
        with config.patch(raise_on_fallback=True, recompile_limit=1000), _limit(limit):
            start = time.process_time()
            with events.listening(seen.append):
                actual, ours = run(compiled, sample.tensors)
            seconds = time.process_time() - start
        if isinstance(actual, Exception):
            raise actual
        exact = functools.partial(precisely, eager, sample)
        compare(op, dtype, (actual, ours), (expected, theirs), exact)
    except TooSlow:
        return Outcome("broken", f"takes more than {limit} s")
    except Exception as error:
        kind = "wrong" if isinstance(error, Wrong) else type(error).__name__
        return Outcome("broken", f"{kind}: {_first_lines(error)}")
    return _told(seen, seconds)


def _told(seen: list[events.Event], seconds: float) -> Outcome:
    """From what the compiler said."""

    def of(kind: type) -> list[Any]:
        return [event for event in seen if isinstance(event, kind)]

    if of(events.GraphBroke):
        return Outcome("broke", of(events.GraphBroke)[0].what, seconds)
    if of(events.NotGenerated):
        return Outcome("not recorded", of(events.NotGenerated)[0].reason, seconds)
    called = [text for event in of(events.CodeGenerated) for text in event.called]
    if called:
        return Outcome("called", "; ".join(sorted(set(called))), seconds)
    return Outcome("lowered", "", seconds)


def _first_lines(error: BaseException) -> str:
    cause = error.__cause__
    text = " ".join(str(error).split())[:300]
    return f"{text} <- {cause!r}"[:600] if cause is not None else text


def run(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> tuple[Any, Any]:
    """The result (or what was raised) and the arguments, which are copies."""
    given = tuple(copies(tensors))
    torch.manual_seed(0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(*given), given
        except (PliantError, TooSlow):
            raise
        except Exception as error:
            return error, given


def precisely(eager: Callable[..., Any], sample: Program) -> list[Any]:
    """What the program gives in float64: eager PyTorch rounds, too."""
    wide = tuple([t.double() if t.is_floating_point() else t for t in sample.tensors])
    return [leaf for _, leaf in leaves(run(eager, wide), "")]


def copies(tensors: tuple[torch.Tensor, ...]) -> Iterator[torch.Tensor]:
    """Copies that are laid out as the originals, and share memory as they do."""
    memory: dict[int, torch.UntypedStorage] = {}
    for t in tensors:
        if t.layout is not torch.strided or t.is_conj() or t.is_neg():
            yield t.detach().clone()
            continue
        old = t.untyped_storage()
        new = memory.setdefault(old._cdata, old.clone())
        made = torch.empty(0, dtype=t.dtype, device=t.device)
        yield made.set_(new, t.storage_offset(), t.size(), t.stride())


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# --------------------------------------------------------------------------------------------------
# Equal in all that can be seen


def compare(
    op: Any,
    dtype: torch.dtype,
    actual: Any,
    expected: Any,
    exact: Callable[[], list[Any]] = list,
) -> None:
    """(result, arguments) of both: values, types, layout, and which tensors share memory. Values
    that differ from eager's have to be as close to the `exact` ones as these tolerances allow."""
    mine, theirs = list(leaves(actual, "")), list(leaves(expected, ""))
    if [where for where, _ in mine] != [where for where, _ in theirs]:
        raise Wrong(f"the result is {_shape(actual[0])}, not {_shape(expected[0])}")
    close = tolerances(op, dtype)
    values = op.name not in ONLY_LAYOUT
    for place, ((where, a), (_, b)) in enumerate(zip(mine, theirs)):
        where = f"[{where}]"
        if type(a) is not type(b):
            raise Wrong(f"{where} is a {type(a).__name__}, not a {type(b).__name__}")
        if isinstance(a, torch.Tensor):
            _compare_layout(where, a, b, op.name in SIZES_FROM_DATA)
        if values:
            difference = _difference(a, b, close)
            if difference and isinstance(a, torch.Tensor) and a.is_floating_point():
                better = exact()
                if len(better) == len(mine) and isinstance(better[place], torch.Tensor):
                    difference = _difference(a, better[place].to(a.dtype), close)
            if difference:
                raise Wrong(f"{where}: {difference}")
    _compare_sharing([t for _, t in mine], [t for _, t in theirs])


def _difference(a: Any, b: Any, close: dict[str, float]) -> str:
    try:
        torch.testing.assert_close(a, b, equal_nan=True, **close)
    except AssertionError as error:
        return str(error)
    except Exception:
        return "" if a == b else f"{a}, not {b}"
    return ""


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is in a structure, each with where it is and the types on the way."""
    if isinstance(value, (list, tuple)):
        kind = type(value).__name__
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{kind}{index}of{len(value)}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key!r}")
    else:
        yield path, value


def _shape(value: Any) -> str:
    return str([where for where, _ in leaves(value, "")])


def _compare_layout(where: str, a: torch.Tensor, b: torch.Tensor, from_data: bool) -> None:
    for name in ("dtype", "layout", "shape", "device", "requires_grad"):
        if getattr(a, name) != getattr(b, name):
            raise Wrong(f"{where}.{name}: {getattr(a, name)}, not {getattr(b, name)}")
    if a.layout is not torch.strided:
        return
    for name in ("is_conj", "is_neg", "is_contiguous"):
        if getattr(a, name)() != getattr(b, name)():
            raise Wrong(f"{where}.{name}: {getattr(a, name)()}, not {getattr(b, name)()}")
    strides = [_telling_strides(t, from_data) for t in (a, b)]
    if strides[0] != strides[1]:
        raise Wrong(f"{where}.stride: {a.stride()}, not {b.stride()}")


def _telling_strides(t: torch.Tensor, from_data: bool) -> list[int]:
    """The strides that have to be eager's. What a dimension of size 1 has in a tensor without
    elements, PyTorch itself sees in two ways; where sizes are in the data, see
    docs/differences.md."""
    if from_data and not t.numel():
        return []
    ignored = from_data or not t.numel()
    return [stride for stride, size in zip(t.stride(), t.shape) if size != 1 or not ignored]


def _compare_sharing(mine: list[Any], theirs: list[Any]) -> None:
    """Which are one object, and which share memory, has to be the same on both sides."""
    for ours, others in (
        ([id(t) if isinstance(t, torch.Tensor) else 0 for t in side] for side in (mine, theirs)),
        ([_memory(t) for t in side] for side in (mine, theirs)),
    ):
        if [ours.index(x) for x in ours] != [others.index(x) for x in others]:
            raise Wrong("other tensors share memory, or are one object, than eagerly")
    for a, b in zip(mine, theirs):
        memory = _memory(a)
        shared = memory != NO_MEMORY and sum(_memory(t) == memory for t in mine) > 1
        if shared and a.storage_offset() != b.storage_offset():
            raise Wrong(f"a view from {a.storage_offset()} on, not {b.storage_offset()}")


NO_MEMORY = 0


def _memory(value: Any) -> int:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return NO_MEMORY
    storage = value.untyped_storage()
    return storage._cdata if storage.nbytes() else NO_MEMORY
