"""Whether eager PyTorch refuses a call that the shape rules accepted.

The one idea: shape rules and meta kernels don't know everything that a kernel refuses (softmax of
integers, a product of two dtypes, a source that doesn't fit into its slice). Where the result is
used, the kernel itself raises when the graph runs. A call whose result is unused would be dropped
together with its error, so it is tried once, on real tensors with the same metadata. Those are
small: a call on large ones is tried with each large size replaced by a small one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, Final

import torch

from pliant.base.devices import CPU, META
from pliant.base.isolation import FATAL, without_warnings
from pliant.base.values import dataclass
from pliant.fake.order import hint
from pliant.fake.tensor import Fake
from pliant.sym.node import SYMBOLIC

MOST_BYTES: Final = 1 << 16
"""Of the memory of all tensors of a call that is tried as it is."""
MOST_ELEMENTS: Final = 1 << 16
"""Of each tensor of a call that is tried with smaller sizes."""
SMALL: Final = 8
"""Sizes up to this one are never replaced."""

LEAVES: Final = {Fake, bool, int, float, str, type(None), torch.dtype, torch.device}
"""Types of most arguments, which need no closer look."""

GOES_BACK: Final = "_pliant_goes_back"
"""Marks functions that follow the history of tensors, so that no others like them will do."""


class NotTried(Exception):
    """Nothing can be said about the call."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function on fakes, and what it returned."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    def fakes(self) -> Iterator[Fake]:
        return _fakes_in((self.args, self.kwargs))

    def memory(self) -> set[int]:
        """In which the results are."""
        return {fake.untyped_storage()._cdata for fake in _fakes_in(self.result)}

    def mixes_dtypes(self) -> bool:
        """Whether the tensors are of several dtypes. Generated code may convert them where a kernel
        of PyTorch's refuses to."""
        kinds = [*map(type, (*self.args, *self.kwargs.values()))]
        if kinds.count(Fake) < 2 and LEAVES.issuperset(kinds):  # as in most calls
            return False
        leaves = _walk((self.args, self.kwargs))
        return len({leaf.dtype for leaf in leaves if type(leaf) is Fake}) > 1


@dataclass(slots=True)
class Trials:
    """The trials of one compilation, with their outcomes."""

    tried: dict[Any, bool] = field(default_factory=dict)

    def refuses(self, call: Call) -> bool:
        """Whether eager PyTorch refuses the call for its metadata, whatever the tensors hold. False
        if it can't be tried."""
        try:
            # Equal calls are tried once in a compilation: layers of a network repeat them.
            shrunk = _shrunk_sizes(call)
            key = (call.function, *_key((call.args, call.kwargs), shrunk))
            refused = self.tried.get(key)
            if refused is None:
                refused = self.tried[key] = _refuses(call, shrunk)
        except (NotTried, TypeError):  # an argument without hash
            return False
        return refused


def _walk(value: Any) -> list[Any]:
    """The leaves of a tree of arguments, in order. Each container is preceded by a tuple that
    describes it; nothing else in the list is a tuple."""
    leaves: list[Any] = []
    _collect(value, leaves)
    return leaves


def _collect(value: Any, leaves: list[Any]) -> None:
    """Append the leaves of `value`. (Not a generator: every call of every program is walked, and
    nested generators are slow.)"""
    if type(value) in LEAVES:
        leaves.append(value)
        return
    if isinstance(value, dict):
        leaves.append((dict, *value))
        value = tuple(value.values())
    elif isinstance(value, slice):
        leaves.append((slice,))
        value = (value.start, value.stop, value.step)
    if not isinstance(value, (list, tuple)):
        leaves.append(value)
        return
    leaves.append((type(value), len(value)))
    for item in value:
        _collect(item, leaves)


def _key(value: Any, shrunk: dict[int, int] | None) -> Iterator[Any]:
    """Everything that the outcome of a trial depends on. Types are part of it, as 1 == 1.0 ==
    True."""
    for leaf in _walk(value):
        yield type(leaf)
        if type(leaf) is not Fake:
            number = _number(leaf)
            yield shrunk.get(number, number) if shrunk and type(number) is int else number
            continue
        yield from (leaf.dtype, leaf.is_conj(), leaf.is_neg(), leaf.dim())
        sizes = map(_number, leaf.size())
        if shrunk is not None:
            yield from (shrunk.get(size, size) for size in sizes)
        else:
            yield from (*sizes, *map(_number, leaf.stride()))
            yield from (_number(leaf.storage_offset()), memory_of(leaf))


def _number(number: Any) -> Any:
    if not isinstance(number, SYMBOLIC):
        return number
    value = hint(number)
    if value is None:
        raise NotTried
    return value


def memory_of(fake: Fake) -> Any:
    """The size of the storage in bytes. With symbolic sizes that isn't known, and is what the
    tensor needs."""
    if not fake._has_symbolic_sizes_strides:
        size = fake.untyped_storage().nbytes()
        if type(size) is int:
            return size
    sizes, strides = map(_number, fake.size()), map(_number, fake.stride())
    reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True)) + 1
    return max(reach + _number(fake.storage_offset()), 0) * fake.dtype.itemsize


def _refuses(call: Call, shrunk: dict[int, int] | None) -> bool:
    if _follows_history(call.function):
        raise NotTried
    if shrunk is None:
        return _raises(call, Reals(CPU))
    # If the meta kernel refuses the smaller sizes too, it isn't about the true ones.
    return _raises(call, Reals(CPU, shrunk)) and not _raises(call, Reals(META, shrunk))


def _is_plain(fake: Fake) -> bool:
    return bool(fake.device == CPU and fake.layout is torch.strided)


def _is_in_data(fake: Fake) -> bool:
    """Whether the tensor has an unbacked size: a trial on zeros would give it another one."""
    return any(hint(size) is None for size in fake.size())


def _follows_history(function: Callable[..., Any]) -> bool:
    """Whether the function reads the history of tensors, which real tensors made for a trial don't
    have."""
    module = str(getattr(function, "__module__", ""))
    return module.startswith("torch.autograd") or hasattr(function, GOES_BACK)


def _elements(fake: Fake) -> int:
    """About how many elements the tensor has once large sizes are replaced."""
    return math.prod(min(_number(size), 2 * SMALL) for size in fake.size())


def _shrunk_sizes(call: Call) -> dict[int, int] | None:
    """A replacement for each size above `SMALL`, or None if the call is small enough to be tried as
    it is. The mapping is injective: equal sizes stay equal, different ones different."""
    sized = (fake for fake in _fakes_in(call.result) if not _is_in_data(fake))
    tensors = [*call.fakes(), *sized]
    if not all(map(_is_plain, tensors)):
        raise NotTried
    if sum(map(memory_of, tensors)) <= MOST_BYTES:
        return None
    if any(_elements(fake) > MOST_ELEMENTS for fake in tensors):
        raise NotTried
    large = sorted({number for number in _integers((call.args, call.kwargs)) if number > SMALL})
    # They begin above the sizes that stay: one that became equal to those would hide a mismatch.
    return {number: SMALL + 1 + rank for rank, number in enumerate(large)}


def _integers(value: Any) -> Iterator[int]:
    for leaf in _walk(value):
        if type(leaf) is Fake:
            yield from map(_number, leaf.size())
        elif type(leaf) is int or isinstance(leaf, torch.SymInt):
            yield _number(leaf)
        elif isinstance(leaf, float) and 8 * SMALL < abs(leaf) < math.inf:
            raise NotTried  # it may be the size of something, and can't be replaced


def _raises(call: Call, reals: Reals) -> bool:
    args, kwargs = reals.swap(call.args), reals.swap(call.kwargs)

    def run() -> bool:
        # A trial of `dropout` must not take random numbers from the program.
        state = torch.get_rng_state()
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
                call.function(*args, **kwargs)
        except FATAL:
            raise
        except Exception:
            return True
        finally:
            torch.set_rng_state(state)
        return False

    return bool(without_warnings(Warning, run))


class Reals:
    """Makes real tensors that stand for fakes. `shrunk` replaces sizes, and the same numbers among
    the arguments."""

    def __init__(self, device: torch.device, shrunk: dict[int, int] | None = None) -> None:
        self.device = device
        self.shrunk = shrunk
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[int, torch.Tensor] = {}

    def swap(self, value: Any) -> Any:
        """`value` with real tensors in place of fakes, and plain numbers in place of symbolic ones.
        Raises NotTried for anything that a trial can't use."""
        kind = type(value)
        if kind is Fake:
            if id(value) not in self._tensors:
                self._tensors[id(value)] = self._tensor(value)
            return self._tensors[id(value)]
        if isinstance(value, list | tuple):
            items = [self.swap(item) for item in value]
            return items if kind is list else torch.Size(items) if kind is torch.Size else (*items,)
        if kind is dict:
            return {name: self.swap(item) for name, item in value.items()}
        if kind is slice:
            return slice(*map(self.swap, (value.start, value.stop, value.step)))
        if isinstance(value, SYMBOLIC) or kind is int:
            number = _number(value)
            return self.shrunk.get(number, number) if self.shrunk else number
        if kind not in _ATOMS and not (isinstance(value, torch.device) and value == CPU):
            raise NotTried
        return value

    def _tensor(self, fake: Fake) -> torch.Tensor:
        sizes = [_number(size) for size in fake.size()]
        if any(size < 0 for size in sizes):  # PyTorch refuses some of them, and gives others
            raise NotTried
        if self.shrunk is not None:
            sizes = [self.shrunk.get(size, size) for size in sizes]
            # Strides and shared memory are not kept: those of the true sizes mean nothing for
            # smaller ones.
            real = torch.zeros(sizes, dtype=fake.dtype, device=self.device)
        else:
            place = (_number(fake.storage_offset()), sizes, [*map(_number, fake.stride())])
            real = torch.empty(0, dtype=fake.dtype).set_(self._storage(fake), *place)
        real = real.conj() if fake.is_conj() else real
        return torch._neg_view(real) if fake.is_neg() else real

    def _storage(self, fake: Fake) -> torch.UntypedStorage:
        memory = fake.untyped_storage()._cdata
        # Views of one memory stay views of one: whether a write overlaps what it reads decides
        # whether some kernels refuse it.
        if memory not in self._storages:
            zeros = torch.zeros(memory_of(fake), dtype=torch.uint8)
            self._storages[memory] = zeros.untyped_storage()
        return self._storages[memory]


_ATOMS: Final = frozenset(
    (float, bool, complex, str, type(None), type(...))
    + (torch.dtype, torch.layout, torch.memory_format)
)


def specialise(value: Any) -> None:
    """Make constants of all symbolic sizes, strides and numbers in `value`."""
    for leaf in _walk(value):
        if type(leaf) is Fake:
            specialise((*leaf.size(), *leaf.stride(), leaf.storage_offset()))
        elif isinstance(leaf, torch.SymInt):
            int(leaf)
        elif isinstance(leaf, torch.SymFloat):
            float(leaf)


def specialise_empty(value: Any) -> None:
    """Make a constant of each symbolic size that is 0 now. One that a check says isn't 0 stays:
    this call has raised by then."""
    for fake in _fakes_in(value):
        for size in fake.size():
            if hint(size) == 0:
                bool(size == 0)


def _fakes_in(value: Any) -> Iterator[Fake]:
    return (leaf for leaf in _walk(value) if type(leaf) is Fake)
