"""The arguments of one operator call: as a key to remember its result by, and as meta tensors.

The one idea: below autograd, what an operator returns is decided by its plain arguments and by the
sizes, strides, dtype and device of its tensors, so that tuple is a key, and a meta tensor with the
same facts (a twin) is all that a meta kernel needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pliant.base.devices import CPU, META
from pliant.fake.tensor import Fake
from pliant.sym.node import SYMBOLIC

# Equal and hashed by value. The type is part of the key: 1 == 1.0 == True, but not as arguments.
_ATOMS = frozenset(
    (int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)
)

# A 0-dim tensor of this dtype yields to a Python number but not to a tensor of the keyed dtype.
_YIELDS_TO_NUMBER = {
    torch.float64: torch.empty((), dtype=torch.float16),
    torch.int64: torch.empty((), dtype=torch.int8),
    torch.complex128: torch.empty((), dtype=torch.complex64),
}


def is_number(t: torch.Tensor) -> bool:
    """Whether `t` is a Python number that PyTorch's C++ put into a tensor (as in `x + 1`).

    Such a tensor takes part in type promotion as a number; nothing else shows it from Python.
    """
    if t.dim() or t.device != CPU:
        return False
    probe = _YIELDS_TO_NUMBER.get(t.dtype)
    return t.dtype is torch.bool if probe is None else torch.result_type(t, probe) is probe.dtype


def expressions(numbers: Iterable[Any]) -> list[Any]:
    """Sizes or strides as something with a hash: symbolic numbers have none."""
    return [n if type(n) is int else n.node.expr for n in numbers]


class Arguments:
    """The arguments of one operator call, read once: its key, the fakes among them, and whether the
    key determines the result (`reusable`)."""

    __slots__ = ("fakes", "foreign", "key", "reusable")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.key: list[Any] = [func]
        self.fakes: list[Fake] = []
        self.reusable = True  # whether the key says everything
        self.foreign = False  # whether a real tensor is among the arguments
        self._read(args)
        # The names, then the values: `f(a=1, b=2)` and `f(b=2, a=1)` have different keys, which
        # only costs a second entry.
        if kwargs:
            self.key.extend(kwargs)
            self._read(kwargs.values())

    def _read(self, values: Iterable[Any]) -> None:
        key = self.key
        for value in values:
            kind = type(value)
            if kind is Fake:
                if value._has_symbolic_sizes_strides:
                    key += (*expressions(value.size()), *expressions(value.stride()))
                    key += (value.dtype, value.device)
                else:
                    key += (value.size(), value.stride(), value.dtype, value.device)
                self.fakes.append(value)
                # Those bits are not in the key, and rare.
                if value.is_conj() or value.is_neg():
                    self.reusable = False
            elif kind in _ATOMS:
                key += (kind, value)
            else:
                self._read_other(value)

    def _read_other(self, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            self.key += (list, len(value))
            self._read(value)
        elif isinstance(value, torch.Tensor):
            if is_number(value):
                self.key += (torch.Tensor, value.dtype)
            else:
                self.foreign = True
        else:
            self._read_plain(value)

    def _read_plain(self, value: Any) -> None:
        if isinstance(value, torch.device):
            self.key.append(value)
            # "cuda" means the current device, which is no argument.
            self.reusable &= value.index is not None or value.type in ("cpu", "meta")
        elif isinstance(value, torch.Generator):
            # Which one it is makes no difference to shapes.
            self.key.append(torch.Generator)
        elif isinstance(value, SYMBOLIC):
            self.key += (type(value), value.node.expr)
        else:
            self.reusable = False

    def is_shared(self, t: Fake) -> bool:
        """Whether another argument is in the storage of `t`, or is `t` itself."""
        memory = t.untyped_storage()._cdata
        return sum(tensor.untyped_storage()._cdata == memory for tensor in self.fakes) > 1

    def share_memory(self) -> bool:
        """Whether two of the tensors lie in one storage."""
        return len(self.fakes) > 1 and len(self.fakes) != len(
            {t.untyped_storage()._cdata for t in self.fakes}
        )


class Twins:
    """Meta tensors standing for the fakes of one call."""

    __slots__ = ("_made", "_storages")

    def __init__(self) -> None:
        self._made: dict[int, tuple[Fake, torch.Tensor]] = {}
        self._storages: dict[int, torch.UntypedStorage] = {}

    def of(self, t: Fake) -> torch.Tensor:
        """The twin of `t`; fakes that share a storage have twins that do."""
        pair = self._made.get(id(t))
        if pair is None:
            pair = self._made[id(t)] = (t, self._make(t))
        return pair[1]

    def _make(self, t: Fake) -> torch.Tensor:
        twin = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=META)
        memory = t.untyped_storage()._cdata
        shared = self._storages.setdefault(memory, twin.untyped_storage())
        if t._has_symbolic_sizes_strides or type(t.storage_offset()) is not int:
            # `set_` with symbolic sizes asks about each of them; `as_strided` of nothing does not.
            seed = torch.empty(0, dtype=t.dtype, device=META).set_(shared, 0, (0,), (1,))
            twin = seed.as_strided(t.size(), t.stride(), t.storage_offset())
        elif shared is not twin.untyped_storage() or t.storage_offset() != 0:
            twin.set_(shared, t.storage_offset(), t.size(), t.stride())
        if t.is_conj():
            twin = torch._conj(twin)
        return torch._neg_view(twin) if t.is_neg() else twin

    def pairs(self) -> Iterable[tuple[Fake, torch.Tensor]]:
        return self._made.values()

    def swap(self, value: Any) -> Any:
        """`value` with every fake replaced by its twin. Generators become None: a meta kernel draws
        nothing."""
        if type(value) is Fake:
            return self.of(value)
        if isinstance(value, (list, tuple)):
            return [self.swap(v) for v in value]
        return None if isinstance(value, torch.Generator) else value

    def swap_kwargs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        swapped = {name: self.swap(value) for name, value in kwargs.items()}
        if swapped.get("device") is not None:
            swapped["device"] = META
        if swapped.get("pin_memory"):
            swapped["pin_memory"] = False
        return swapped


def placed(device: Any) -> torch.device:
    """The device with an index: "cuda" is the current one."""
    device = torch.device(device)
    if device.index is None and device.type not in ("cpu", "meta"):
        return torch.device(device.type, torch.get_device_module(device).current_device())
    return device


def result_device(fakes: list[Fake], kwargs: dict[str, Any], mixed: bool) -> torch.device:
    """Where an operator puts its result; `mixed` operators accept arguments from several devices.

    0-dim CPU tensors go along with any device. Otherwise eager's error, in eager's words as far as
    they are the same for every operator.
    """
    if kwargs.get("device") is not None:
        return placed(kwargs["device"])
    chosen: torch.device | None = None
    for t in fakes:
        device = t.device
        if chosen is None or (
            chosen == CPU and device != CPU and not mixed and scalars_only(fakes)
        ):
            chosen = device
            continue
        if device == chosen or mixed or (device == CPU and t.dim() == 0):
            continue
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{chosen} and {device}!"
        )
    return CPU if chosen is None else chosen


def scalars_only(fakes: list[Fake]) -> bool:
    """Whether every CPU tensor among `fakes` is 0-dim, so that another device decides."""
    return all(t.dim() == 0 for t in fakes if t.device == CPU)
