"""Values as Python code: the inputs of a script.

The one idea: what the compiler sees of a tensor is its metadata, so most failures are repeated by
random numbers in a tensor of the same sizes, strides, dtype and device. Real numbers are written
only where they are few, and saved beside the script otherwise.
"""

from __future__ import annotations

import copy
import math
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from pliant.base.random_states import RandomStates
from pliant.base.values import dataclass
from pliant.dynamic import marks

FEW = 16  # numbers that are written out
PLAIN = (int, float, complex, bool, str, bytes, type(None))
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
GENERATED = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64)


def copied(value: Any, memo: dict[Any, Any] | None = None) -> Any:
    """A copy that shares nothing with `value`. Tensors that share memory share it in the copy too;
    a tensor that autograd computed becomes a leaf."""
    memo = {} if memo is None else memo
    if id(value) in memo:
        return memo[id(value)]
    result: Any
    if type(value) in (torch.Tensor, torch.nn.Parameter) and _is_strided(value):
        result = _copied_tensor(value, memo)
    elif type(value) in (list, tuple, torch.Size, set):
        result = type(value)([copied(item, memo) for item in value])
    elif type(value) is dict:
        result = {key: copied(item, memo) for key, item in value.items()}
    else:
        result = copy.deepcopy(value, memo)
    memo[id(value)] = result
    memo.setdefault("kept", []).append(value)  # or another value would get its id
    return result


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized


def _copied_tensor(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor:
    storage = tensor.untyped_storage()
    key = "storage", storage._cdata
    if key not in memo:
        memo[key] = storage.clone()
    data = tensor.detach()
    result = torch.empty(0, dtype=data.dtype, device=data.device)
    result.set_(memo[key], data.storage_offset(), data.size(), data.stride())
    if tensor.is_conj():
        result = torch._conj(result)
    if tensor.is_neg():
        result = torch._neg_view(result)
    if type(tensor) is torch.nn.Parameter:
        result = torch.nn.Parameter(result, tensor.requires_grad)
    else:
        result.requires_grad_(tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        result.grad = _copied_tensor(tensor.grad, memo)
    for name in marks._ALL & vars(tensor).keys():
        setattr(result, name, copy.copy(getattr(tensor, name)))
    return result


@dataclass(frozen=True, slots=True)
class InputCode:
    """Inputs as code."""

    lines: tuple[str, ...]
    """Statements that define what the inputs share."""
    expression: str
    """The inputs, as one expression."""
    saved: Mapping[str, Any]
    """What can't be written down, by the name that `load()` has for it."""


class InputWriter:
    """Writes values as Python code. `real(tensor)` says whether a tensor keeps its numbers; others
    become random ones."""

    def __init__(self, real: Any = lambda tensor: False) -> None:
        self.real = real
        self.lines: list[str] = []
        self.saved: dict[str, Any] = {}
        self._names: dict[int, str] = {}
        self._storages: dict[int, int] = {}

    def write(self, value: Any) -> InputCode:
        self._count(value)
        expression = self._expression(value)
        return InputCode(tuple(self.lines), expression, self.saved)

    def _count(self, value: Any) -> None:
        """Count how many tensors share each storage."""
        for tensor in tensors_in(value):
            key = tensor.untyped_storage()._cdata
            self._storages[key] = self._storages.get(key, 0) + 1

    def _expression(self, value: Any) -> str:
        kind = type(value)
        if kind in PLAIN:
            return _number(value)
        if kind in (torch.dtype, torch.device, torch.Size):
            return (
                repr(value)
                if kind is torch.dtype
                else f"torch.{value!r}".replace("torch.torch", "torch")
            )
        if kind in CONTAINERS:
            return self._container(value)
        if kind in (torch.Tensor, torch.nn.Parameter) and _is_strided(value):
            return self._tensor(value)
        return self._saved(value)

    def _container(self, value: Any) -> str:
        if type(value) is dict:
            items = [f"{self._expression(k)}: {self._expression(v)}" for k, v in value.items()]
            return "{" + ", ".join(items) + "}"
        left, right = CONTAINERS[type(value)]
        end = "," if type(value) is tuple and len(value) == 1 else ""
        return left + ", ".join(map(self._expression, value)) + end + right

    def _saved(self, value: Any) -> str:
        name = f"v{len(self.saved)}"
        self.saved[name] = value
        return f"load()[{name!r}]"

    def _tensor(self, tensor: torch.Tensor) -> str:
        key = tensor.untyped_storage()._cdata
        if self._storages.get(key, 0) <= 1:
            return self._written(tensor)
        if id(tensor) in self._names:
            return self._names[id(tensor)]
        if tensor.is_conj() or tensor.is_neg():
            return self._saved(tensor)
        # Tensors that share memory are views of one variable.
        base = self._names.get(key)
        if base is None:
            memory = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            count = tensor.untyped_storage().nbytes() // tensor.element_size()
            memory.set_(tensor.untyped_storage(), 0, (count,), (1,))
            base = self._define(self._data(memory, self.real(tensor)))
            self._names[key] = base
        name = self._define(_view(base, tensor) + _flags(tensor))
        self._names[id(tensor)] = name
        return name

    def _define(self, expression: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    def _written(self, tensor: torch.Tensor) -> str:
        """A tensor that shares its memory with none of the others."""
        if tensor.is_conj() or tensor.is_neg():
            return self._saved(tensor)
        if self.real(tensor) and tensor.numel() > FEW:
            return self._saved(tensor)
        usual = torch.empty(tensor.shape, device="meta").stride()  # of sizes 0 and 1 as well
        if tensor.stride() == usual and tensor.storage_offset() == 0:
            text = self._data(tensor.detach(), self.real(tensor))
        else:
            span = tensor.storage_offset() + 1
            span += sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
            flat = tensor.detach().as_strided((span if tensor.numel() else 0,), (1,), 0)
            text = _view(self._data(flat, self.real(tensor)), tensor)
        if type(tensor) is torch.nn.Parameter:
            grad = "" if tensor.requires_grad else ", requires_grad=False"
            return f"torch.nn.Parameter({text}{grad})"
        return text + _flags(tensor)

    def _data(self, tensor: torch.Tensor, real: bool) -> str:
        """A contiguous tensor with the metadata of this one."""
        if real and tensor.numel() > FEW:
            return self._saved(tensor.clone())
        device = "" if tensor.device.type == "cpu" else f', device="{tensor.device}"'
        dtype = f", dtype={tensor.dtype}"
        if real or tensor.numel() == 0:
            numbers = _number(tensor.tolist()) if tensor.numel() else ""
            if tensor.numel():
                return f"torch.tensor({numbers}{dtype}{device})"
            return f"torch.empty({tuple(tensor.shape)}{dtype}{device})"
        shape = ", ".join(map(str, tensor.shape)) or "()"
        if tensor.dtype is torch.bool:
            return f"torch.rand({shape}{device}) < 0.5"
        if tensor.dtype in GENERATED:
            dtype = "" if tensor.dtype is torch.float32 else dtype
            return f"torch.randn({shape}{dtype}{device})"
        if tensor.dtype in INTEGERS:
            low, high = int(tensor.min()), int(tensor.max())
            dtype = "" if tensor.dtype is torch.int64 else dtype
            return f"torch.randint({low}, {high + 1}, {tuple(tensor.shape)}{dtype}{device})"
        if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
            return f"torch.randn({shape}{device}).to({tensor.dtype})"
        return self._saved(tensor.clone())


CONTAINERS: dict[type, tuple[str, str]] = {
    list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"),
}  # fmt: skip


def _number(value: Any) -> str:
    """A number, or a list of numbers, as code."""
    if isinstance(value, list):
        return "[" + ", ".join(map(_number, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    return repr(value)


def _view(base: str, tensor: torch.Tensor) -> str:
    offset = f", {tensor.storage_offset()}" if tensor.storage_offset() else ""
    if " < " in base:
        base = f"({base})"
    return f"{base}.as_strided({tuple(tensor.shape)}, {tensor.stride()}{offset})"


def _flags(tensor: torch.Tensor) -> str:
    return ".requires_grad_()" if tensor.requires_grad else ""


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors that are written as code, each once."""
    seen: dict[int, torch.Tensor] = {}
    _collect(value, seen)
    return list(seen.values())


def _collect(value: Any, seen: dict[int, torch.Tensor]) -> None:
    if type(value) in (torch.Tensor, torch.nn.Parameter) and _is_strided(value):
        seen[id(value)] = value
    elif type(value) is dict:
        for item in value.values():
            _collect(item, seen)
    elif type(value) in CONTAINERS:
        for item in value:
            _collect(item, seen)


class GlobalState:
    """What a program may change for everybody, and what is put back: random generators, and the
    modes of autograd and autocast."""

    def __init__(self) -> None:
        self._random = random.getstate()
        self._torch = RandomStates()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None
        self._grad = torch.is_grad_enabled()
        self._default = torch.get_default_dtype()
        self._cache = torch.is_autocast_cache_enabled()
        self._autocast = [
            (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in ("cpu", "cuda")
        ]

    def restore(self) -> None:
        random.setstate(self._random)
        self._torch.put_back()
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)
        torch.set_default_dtype(self._default)
        torch.set_autocast_cache_enabled(self._cache)
        for device, enabled, dtype in self._autocast:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch._C._set_grad_enabled(self._grad)
