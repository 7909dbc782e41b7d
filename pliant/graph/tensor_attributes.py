"""Attributes of tensors that a captured graph reads and sets.

The one idea: `x.data` is a view of `x` whose writes autograd doesn't see, since PyTorch counts them
apart. So it is `detach` here, with a version counter of its own. After `x.data = y`, `x` is such a
view of `y`; the caller's tensor gets that memory behind the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.fake.overload import describe
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, TensorAlias, VersionCounter

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


def is_followed(run: CapturedRun, tensor: Fake) -> bool:
    """Whether autograd follows what is computed from it: from an input that requires grad, which
    may have other memory by now, or a view."""
    inputs = {id(alias): at for at, alias in run.replaced}
    for alias in reversed(run.functionalizer.chain(tensor)):
        if id(alias) in inputs:
            return bool(run.examples[inputs[id(alias)]].requires_grad)
        if alias.is_data:
            return False
    return run._requires_grad(tensor)


def write_attribute(run: CapturedRun, node: fx.Node) -> None:
    tensor, name, value = run._args(node.args)
    if name == "requires_grad" and not run.graded and tensor.requires_grad is value:
        return
    if name != "data" or type(tensor) is not Fake or type(value) is not Fake:
        raise NotFunctionalized(f"a new Tensor.{name}")
    # `p.data -= step` ends in `p.data = data`: the memory that `p` has already.
    if not _is_data_of(run.functionalizer, tensor, value):
        _replace_data(run, tensor, value)


def _is_data_of(world: AliasWorld, tensor: Fake, value: Fake) -> bool:
    """Whether both are the same elements of one memory."""
    if world.alias(tensor).base is not world.alias(value).base:
        return False
    layouts = [(t.sizes, t.strides, t.offset, t.dtype) for t in map(world.tensor, (tensor, value))]
    return layouts[0] == layouts[1]


# --------------------------------------------------------------------------------------------------
# Other memory


def _replace_data(run: CapturedRun, tensor: Fake, value: Fake) -> None:
    """An input gets the memory of `value`; views that were made of it keep what it had."""
    world = run.functionalizer
    at = next((i for i, node in enumerate(run.inputs) if run.env[node] is tensor), None)
    if at is None or not _may_get_data(run.examples[at]):
        raise NotFunctionalized("Tensor.data of another tensor than an input, replaced")
    before, source = world.alias(tensor), world.alias(value)
    if not _look_alike(world, tensor, value) or before.base.shared:
        raise NotFunctionalized("Tensor.data that looks different")
    with world.quietly():
        # The fake itself gets other memory, so another one stands for what it was.
        old = world.dispatch(torch.ops.aten.alias.default, (tensor,), {})
    world._name(old, before)
    with torch.no_grad():
        tensor.data = value
    layout = world.tensor(tensor)
    op, args = describe(torch.ops.aten.detach.default), (None,)
    after = TensorAlias(source.base, layout, source.base.version, source, op, args)
    after.counter = before.counter  # the tensor keeps its version
    world._view_node(after, world.value(source), layout)
    world._name(tensor, after)
    run.replaced.append((at, after))


def _may_get_data(example: torch.Tensor) -> bool:
    return example.is_leaf and not example._is_view() and not example.is_inference()


def _look_alike(world: AliasWorld, tensor: Fake, value: Fake) -> bool:
    layouts = [(t.sizes, t.strides, t.dtype, t.device) for t in map(world.tensor, (tensor, value))]
    return layouts[0] == layouts[1]


def return_replaced(run: CapturedRun, results: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Have the graph return the memory that inputs get, behind all that it returns: pairs of an
    input and a number of a result."""
    function = run.functionalizer.function
    aliases = {id(alias) for _, alias in run.replaced}
    for out in results:
        if type(out) is Fake and any(id(a) in aliases for a in run.functionalizer.chain(out)):
            raise NotFunctionalized("a view of a tensor whose Tensor.data is replaced")
    places: list[tuple[int, int]] = []
    for at, alias in dict(run.replaced).items():
        if alias.counter.writes:
            function.times[at] = alias.counter.writes
        places.append((at, len(function.outputs)))
        function.outputs.append(run._output_view(run.env[run.inputs[at]], 0))
    return tuple(places)
