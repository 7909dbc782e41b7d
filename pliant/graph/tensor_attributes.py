"""Attributes of tensors that a captured graph reads and sets.

The one idea: `x.data` is a view of `x` whose writes autograd doesn't see, since PyTorch counts them
apart. So it is `detach` here, with a version counter of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, VersionCounter

if TYPE_CHECKING:
    from torch import fx

    from pliant.graph.functionalize import CapturedRun

VIEW_ATTRIBUTES: Final = frozenset(("T", "mT", "H", "mH", "real", "imag"))


def read_attribute(run: CapturedRun, node: fx.Node) -> Any:
    tensor = run._args(node.args[0])
    if node.args[1] == "data" and type(tensor) is Fake:
        data: Any = tensor.data  # which PyTorch makes by `detach`
        run.functionalizer.alias(data).counter = VersionCounter()
        return data
    if run.functionalizer.has_wrapper(tensor):  # what it is made of
        return getattr(tensor, str(node.args[1]))
    if node.args[1] not in VIEW_ATTRIBUTES:
        raise NotFunctionalized(f"Tensor.{node.args[1]}")
    return run._call(getattr, node)


def write_attribute(run: CapturedRun, node: fx.Node) -> None:
    """`p.data -= step` ends in `p.data = data`: the memory that `p` has already."""
    tensor, name, value = run._args(node.args)
    if name != "data" or not _is_data_of(run.functionalizer, tensor, value):
        raise NotFunctionalized(f"a new Tensor.{name}")


def _is_data_of(world: AliasWorld, tensor: Any, value: Any) -> bool:
    """Whether both are the same elements of one memory."""
    if type(tensor) is not Fake or type(value) is not Fake:
        return False
    if world.alias(tensor).base is not world.alias(value).base:
        return False
    layouts = [(t.sizes, t.strides, t.offset, t.dtype) for t in map(world.tensor, (tensor, value))]
    return layouts[0] == layouts[1]
