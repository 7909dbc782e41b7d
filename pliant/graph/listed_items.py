"""What `tolist()` gives, in a graph: numbers that are read from the tensor when they are used."""

from __future__ import annotations

import math
from typing import Any, Final

from pliant.base.errors import DataDependentError
from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized


@dataclass(frozen=True, slots=True, eq=False)
class ListedItems:
    """The items of a tensor, as it was at this version of its memory."""

    world: AliasWorld
    tensor: Fake
    version: int

    def __getitem__(self, index: int) -> Any:
        if self.world.alias(self.tensor).base.version != self.version:
            raise NotFunctionalized("tolist() of a tensor that was written to since")
        item: Any = self.tensor[index]
        return item.item() if not item.dim() else ListedItems(self.world, item, self.version)


MOST_ITEMS: Final = 64
"""A sum of more numbers would have too many terms: each of them in every expression on the way."""


def list_items(world: AliasWorld, tensor: Fake) -> Any:
    if not tensor.dim():
        return tensor.item()
    try:
        count = math.prod([int(size) for size in tensor.shape])
    except DataDependentError as error:  # how many there are is in the data
        raise NotFunctionalized("tolist() of some number of items") from error
    if count > MOST_ITEMS:
        raise NotFunctionalized("tolist() of many numbers")
    return ListedItems(world, tensor, world.alias(tensor).base.version)
