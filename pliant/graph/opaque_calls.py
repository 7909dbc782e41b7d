"""Opaque calls: functions that are recorded whole, because they can't be decomposed.

The one idea: capture has seen what the function returns, without asking anything that is not known
now. So where PyTorch's decomposition asks more about sizes, or has no functional form, the graph
calls the function as a whole and relies on the same metadata. What the call writes to is passed as
a copy, and the copy is a result: `f(x, out)` becomes

    new, copy = python.f(x, out)
    stored(copy)                    the value of the memory of `out` from here on
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch
from torch.fx.immutable_collections import immutable_list
from torch.utils import _pytree as pytree

from pliant.base.values import dataclass
from pliant.fake.layout import is_plain
from pliant.fake.overload import describe
from pliant.fake.tensor import Fake, make
from pliant.graph import autocast
from pliant.graph.ir import Node, call_by_position


@dataclass(frozen=True, slots=True, eq=False)
class OpaqueFunction:
    """A Python function as the operator of a node. `names` are the keywords of its last arguments.
    The launcher passes sequences and slices as lists; `structures` has, for each argument, what
    to make of them (`_structure`)."""

    function: Callable[..., Any]
    names: tuple[str, ...]
    structures: tuple[Any, ...]

    def __call__(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.call(args)

    def call(self, args: Sequence[Any]) -> Any:
        """Call it in the present grad mode."""
        restructured = tuple(map(_restructured, args, self.structures))
        return call_by_position(self.function, self.names, restructured)


def opaque_function(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> OpaqueFunction:
    """The function as an operator that takes arguments of this form by position, keyword arguments
    last."""
    structures = tuple(map(_structure, [*args, *kwargs.values()]))
    return OpaqueFunction(function, tuple(kwargs), structures)


def _structure(value: Any) -> Any:
    """For a sequence or slice: what makes one of a list, and the structures of its items. None for
    anything else."""
    if isinstance(value, slice):
        return _slice_of, tuple(map(_structure, _bounds(value)))
    if type(value) not in (list, tuple, immutable_list):
        return None
    return tuple if isinstance(value, tuple) else list, tuple(map(_structure, value))


def _slice_of(bounds: Iterable[Any]) -> slice:
    return slice(*bounds)


def _bounds(value: slice) -> tuple[Any, Any, Any]:
    return value.start, value.stop, value.step


def _without_slices(value: Any) -> Any:
    """The argument with each slice replaced by a tuple of its bounds: tensors and symbols in a
    slice would not be found."""
    if isinstance(value, slice):
        return _bounds(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(_without_slices, value))
    return value


def _restructured(value: Any, structure: Any) -> Any:
    """The inverse of what the launcher does: lists as the sequences and slices that they were."""
    if structure is None or not isinstance(value, (list, tuple)):
        return value
    make_sequence, inner = structure
    return make_sequence(map(_restructured, value, inner))


class PythonCall:
    """A call of Python code that is more than a function: it keeps something for the backward, or
    is there for its effects."""

    __slots__ = ()

    draws = False  # random numbers


@dataclass(frozen=True, slots=True, eq=False)
class OnLeaves:
    """A function that is called with the leaves of its arguments, so that a node finds the tensors
    in dicts."""

    function: Callable[..., Any]
    spec: pytree.TreeSpec

    @property
    def __name__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def __call__(self, *leaves: Any) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.function(*args, **kwargs)


def draws(node: Node) -> bool:
    """Whether the call draws random numbers."""
    if isinstance(node.func, OpaqueFunction | CopyingFunction):
        return node.effect
    if isinstance(node.func, PythonCall):
        return node.func.draws
    func = getattr(node.func, "func", node.func)  # an operator, with all of its results or some
    rule = describe(func).draws if isinstance(func, torch._ops.OpOverload) else None
    return rule is not None and rule(node.args, node.kwargs)


def on_new_memory(write: Callable[..., Any], t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Apply an operator that writes to a tensor, such as `normal_`, to new memory laid out like
    `t`."""
    memory = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
    write(memory, *args, **kwargs)
    return memory


def record_opaque_call(
    functionalizer: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record a call as a whole. Returns its result on fakes; NotImplemented if it does more than to
    make new tensors, to return views of arguments, and to write to arguments."""
    if autocast.enabled() and _name(function) not in NEVER_CAST:
        return NotImplemented  # when the code runs, it may not be
    if _has_dict([*args, *kwargs.values()]):  # which a node does not look into
        leaves, spec = pytree.tree_flatten((args, kwargs))
        function, args, kwargs = OnLeaves(function, spec), tuple(leaves), {}
    fakes = [leaf for leaf in leaves_in((args, kwargs)) if type(leaf) is Fake]
    # Taken before the call, to notice an argument that it resizes.
    layouts = [(t, t.size(), t.stride()) for t in fakes]
    # As when it was captured: above autograd, where PyTorch may take it apart in other ways.
    with functionalizer.quietly(), torch._C._ForceDispatchKeyGuard(*functionalizer.above):
        outcome = functionalizer.run(function, args, kwargs)
    result, written = outcome.value, list({id(t): t for t in outcome.mutated}.values())
    # It resized an argument.
    if any((t.size(), t.stride()) != (sizes, strides) for t, sizes, strides in layouts):
        return NotImplemented
    new = [t for t in leaves_in(result) if not any(t is old for old in (*written, None))]
    # A number that it returns would come from data, and have no symbol.
    if not (new or written) or not all(type(leaf) is Fake for leaf in new):
        return NotImplemented
    # A result that requires grad has a history of its own, which no node could express.
    tensors = (*new, *written)
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):  # what it holds itself
        return NotImplemented
    # Results in the memory of an argument are views of it; all others are new.
    sources = {t.untyped_storage()._cdata: t for t in fakes}
    views = [t for t in new if t.untyped_storage()._cdata in sources]
    new = [t for t in new if t.untyped_storage()._cdata not in sources]
    memory = [t.untyped_storage()._cdata for t in new]
    # Two results in one memory would be two values.
    if len(set(memory)) < len(memory) or not _can_be_copied(written, [*fakes, *views]):
        return NotImplemented
    itself = {id(t) for t in fakes}
    returned_views = {
        id(t): t if id(t) in itself else _as_view(functionalizer, sources, t) for t in views
    }
    if None in returned_views.values():
        return NotImplemented
    if new or written:
        _record_call(functionalizer, function, args, kwargs, new, written, outcome.random)
    return _with_replaced(result, returned_views)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _as_view(functionalizer: Any, sources: dict[int, Fake], t: Fake) -> Fake | None:
    """The view `t` of an argument, which a function returned, recorded as an `as_strided`; None if
    that can't express it."""
    source = sources[t.untyped_storage()._cdata]
    if source.dtype is not t.dtype or any(x.is_conj() or x.is_neg() for x in (source, t)):
        return None
    place = (source, t.size(), t.stride(), t.storage_offset())
    view: Fake = functionalizer.dispatch(torch.ops.aten.as_strided.default, place, {})
    return view


def _with_replaced(value: Any, instead: dict[int, Fake | None]) -> Any:
    if isinstance(value, (list, tuple)):
        items = [_with_replaced(item, instead) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return instead.get(id(value), value)


def _record_call(
    functionalizer: Any,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    new: list[Fake],
    written: list[Fake],
    random: bool,
) -> None:
    """Add the node of a call with `new` results and copies of what is `written`, then a write of
    each copy."""
    name = _name(function)
    positional = tuple([functionalizer.recorded(_without_slices(arg)) for arg in args])
    named = {key: functionalizer.recorded(_without_slices(value)) for key, value in kwargs.items()}
    places = [places_of(t, [*args, *kwargs.values()]) for t in written]
    copying = CopyingFunction(opaque_function(function, args, kwargs), tuple(places))
    copies = [make(t._world, t.size(), t.stride(), 0, t.dtype, t.device) for t in written]
    node = Node(f"python.{name}", copying, positional, named, effect=random)
    functionalizer.add(node, [*new, *copies])
    for target, copy in zip(written, copies, strict=True):
        functionalizer.store(target, copy)


def _can_be_copied(written: list[Fake], fakes: list[Fake]) -> bool:
    """Whether each tensor that is written to is alone in its memory, so that the function may write
    to a copy instead."""
    for t in written:
        memory = t.untyped_storage()._cdata
        others = [u for u in fakes if u is not t and u.untyped_storage()._cdata == memory]
        # Strides of 0, or that cross: several elements in one place.
        if others or not is_plain(t):
            return False
    return True


Path = tuple[int, ...]

WRITES_IN_PLACE: Final = frozenset(
    ("python._fused_adam_", "python._fused_adamw_", "python._fused_sgd_", "python._fused_adagrad_")
    + ("python.launch_kernel.default",)
)
"""Calls that write to large tensors and refuse nothing but sizes and dtypes, which were seen when
they were recorded; a Triton kernel of the program fails before it writes, or the GPU does. Others
write to copies: when they fail, inputs have to be as they were."""
NEVER_CAST: Final = frozenset({"launch_kernel.default"})  # whatever autocast says


def places_of(tensor: Any, value: Any, path: Path = ()) -> tuple[Path, ...]:
    """The paths by which a tensor is found among (nested) arguments."""
    if value is tensor:
        return (path,)
    if not isinstance(value, (list, tuple)):
        return ()
    items = enumerate(value)
    return tuple(place for i, item in items for place in places_of(tensor, item, (*path, i)))


@dataclass(frozen=True, slots=True, eq=False)
class CopyingFunction:
    """A function, called with copies of the tensors that it writes to: it returns its new tensors
    and the copies, and no views. `places`: where each of those tensors is among the arguments."""

    function: OpaqueFunction
    places: tuple[tuple[Path, ...], ...]
    in_place: frozenset[int] = frozenset()  # which of them are written where they are

    def __call__(self, *args: Any) -> Any:
        copies: list[torch.Tensor] = []
        for number, places in enumerate(self.places):
            if number in self.in_place:
                continue
            t = item_at(args, places[0])
            copy = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=t.device)
            copies.append(copy.copy_(t))
            # The same tensor may be passed twice: both see the copy.
            for place in places:
                args = with_item(args, place, copy)
        # What it returns of its arguments was recorded as views of them; only new memory is a
        # result.
        results = [t for t in leaves_in(self.function(*args)) if isinstance(t, torch.Tensor)]
        if results:  # an optimizer's step takes hundreds of tensors, and returns none
            of_arguments = {
                t.untyped_storage()._cdata for t in leaves_in(args) if isinstance(t, torch.Tensor)
            }
            results = [t for t in results if t.untyped_storage()._cdata not in of_arguments]
        return (*results, *copies)


def item_at(value: Any, path: Path) -> Any:
    for index in path:
        value = value[index]
    return value


def with_item(value: Any, path: Path, instead: Any) -> Any:
    if not path:
        return instead
    items = list(value)
    items[path[0]] = with_item(items[path[0]], path[1:], instead)
    return type(value)(items)


def _has_dict(value: Any) -> bool:
    return isinstance(value, dict) or (
        isinstance(value, (list, tuple)) and any(map(_has_dict, value))
    )


def leaves_in(value: Any) -> Any:
    """What is in (nested) lists, tuples and dictionaries, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves_in(item)
    else:
        yield value
