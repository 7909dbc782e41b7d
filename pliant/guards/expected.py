"""What guards expect, where it is more than a value: of tensors, and of sizes and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from pliant.base.external import PLAIN, SINGLE, STRUCTURES, Mapper, without_addresses
from pliant.base.values import dataclass, replace
from pliant.guards.source import Source
from pliant.sym.program import SizeProgram


class _Missing:
    def __repr__(self) -> str:
        return "<no such attribute>"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class ExpectedTensor:
    """What is expected of a tensor. A size or stride of None is not checked."""

    dtype: Any
    device: Any
    requires_grad: bool
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...] | None  # None: the layout has no strides
    storage_offset: int | None
    dispatch_keys: int  # the raw representation of the key set

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        size = list(self.sizes)
        grad = ", requires_grad" if self.requires_grad else ""
        return f"Tensor({name}{size}, stride={self.strides}, {self.device}{grad})"


@dataclass(frozen=True, slots=True)
class Load:
    """What a symbol stands for: the size or stride of a tensor in a dimension, its storage offset,
    or a number itself."""

    source: Source
    what: Literal["size", "stride", "offset", "value"]
    dim: int = 0

    def __str__(self) -> str:
        return self.text(str(self.source))

    def text(self, source: str) -> str:
        return _LOADS[self.what].format(source, self.dim)


READ: Final[dict[str, Callable[[Any, int], Any]]] = {
    "size": lambda tensor, dim: tensor.size(dim),
    "stride": lambda tensor, dim: tensor.stride(dim),
    "offset": lambda tensor, dim: tensor.storage_offset(),
    "value": lambda number, dim: number,
}
_LOADS = {
    "size": "{}.size()[{}]",
    "stride": "{}.stride()[{}]",
    "offset": "{}.storage_offset()",
    "value": "{}",
}


@dataclass(frozen=True, slots=True)
class ShapeCondition:
    """A condition on sizes and ints. Symbol i of the program is what `loads[i]` finds; what is not
    there (no such dimension, not an int, beyond 64 bits) fails the guard."""

    program: SizeProgram
    loads: tuple[Load, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def _mapped_condition(condition: ShapeCondition, mapper: Mapper) -> ShapeCondition:
    loads = tuple(map(mapper.visit, condition.loads))
    return ShapeCondition(condition.program, loads, without_addresses(condition.text))


PLAIN.update((ExpectedTensor, _Missing))
SINGLE.add(_Missing)
STRUCTURES[Load] = lambda load, mapper: replace(load, source=mapper.visit(load.source))
STRUCTURES[ShapeCondition] = _mapped_condition
