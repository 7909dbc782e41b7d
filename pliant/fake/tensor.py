"""The fake tensor: true metadata on the true device, over a storage that points nowhere.

The one idea: a `Fake` is a tensor of the real device (its dispatch keys, its `device`, its autograd
and view bookkeeping are PyTorch's own), whose storage has a size but a null pointer. So composite
C++ code takes the branches it would take on real data, views are made by the real view kernels and
share that storage, and only the kernels that would touch values are replaced, in
`__torch_dispatch__`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatcher(Protocol):
    """What answers the operators on a fake: the `World` it belongs to."""

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...


class Fake(torch.Tensor):
    """A tensor without values. Made by a `World`, never directly."""

    # Weak: a world owns its fakes, and a cycle through C++ autograd nodes could never be collected.
    _world: Callable[[], Dispatcher | None]
    _chain: int = 0  # of views of views that led here, since the last that is one of the base
    _outgrown: tuple[torch.UntypedStorage, ...] = ()  # memory that stands for the same as its own

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer an operator outside of `World.run`, by the world of the first fake among the
        arguments."""
        # A wrapper made of fakes, for example: its own dispatch runs first.
        if any(kind is not cls and not issubclass(cls, kind) for kind in types):
            return NotImplemented  # a class that has more of a say
        world = _first_fake(args, kwargs)._world()
        if world is None:
            raise RuntimeError(f"{func}: a fake tensor was used after its world was dropped")
        return world.dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        sizes = ", ".join(map(str, self.size()))
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"Fake([{sizes}], {self.dtype}, {self.device}{grad})"


def _first_fake(args: Any, kwargs: Any) -> Fake:
    for value in (*args, *(kwargs or {}).values()):
        if type(value) is Fake:
            return value
        if isinstance(value, (list, tuple)):
            for item in value:
                if type(item) is Fake:
                    return item
    raise RuntimeError("no fake tensor among the arguments")


_make_wrapper = torch.Tensor._make_wrapper_subclass
_make_subclass = torch.Tensor._make_subclass
_no_data_access = torch._C._set_throw_on_mutable_data_ptr


LARGE = 1 << 60  # bytes of a storage whose true size is symbolic


def make(
    world: Callable[[], Dispatcher | None],
    sizes: Any,
    strides: Any,
    offset: Any,
    dtype: torch.dtype,
    device: torch.device,
    storage_bytes: Any = None,
) -> Fake:
    """A fake with a storage of its own, which has no memory. `storage_bytes` is its size; by
    default that of its elements."""
    if storage_bytes is None and any(type(size) is not int for size in sizes):
        storage_bytes = LARGE  # to say how large would take PyTorch longer than all the rest
    fake: Fake = _make_wrapper(
        Fake,
        sizes,
        strides=strides,
        storage_offset=offset,
        dtype=dtype,
        device=device,
        storage_size=storage_bytes,
    )
    # C++ that reads memory raises, instead of following a null pointer.
    _no_data_access(fake)
    fake._world = world
    return fake


def adopt(world: Callable[[], Dispatcher | None], view: torch.Tensor) -> Fake:
    """Make a fake of the plain tensor that a view kernel returned: the same storage and metadata,
    with our type."""
    with _no_dispatch():  # or PyTorch detaches it with us, and looks for distributed tensors first
        fake: Fake = _make_subclass(Fake, view)
    fake._world = world
    return fake


_below_autograd = torch._C._AutoDispatchBelowADInplaceOrView
_no_dispatch = torch._C._DisableTorchDispatch
_preserve_keys = torch._C._PreserveDispatchKeyGuard
_include_meta = torch._C._set_meta_in_tls_dispatch_include


def as_plain(func: Any, args: Any, kwargs: Any) -> Any:
    """Call an operator that only reads and writes metadata on fakes as if they were plain tensors.

    No dispatch to Python and no autograd. The meta kernel is taken because it does nothing but
    metadata whatever the device, even one for which this PyTorch has no kernels. The results are
    plain tensors over the fakes' storages: pass them through `adopt` before anyone sees them.
    """
    with _below_autograd(), _no_dispatch(), _preserve_keys():
        _include_meta(True)
        return func(*args, **kwargs)


MOST_CHAINED = 32


def shorten(view: Fake, viewed: Iterable[Fake]) -> Fake:
    """The view, made of its base directly if it is the last of many views of views.

    PyTorch keeps with each view how to make it from its base, as a copy of what the view before it
    has and one step more: for thousands of views the copies take quadratic time and memory. Where
    autograd is involved, the steps are part of the history, and stay.
    """
    view._chain = 1 + max([t._chain for t in viewed], default=0)
    if view._chain < MOST_CHAINED or view.requires_grad:
        return view
    base: Any = view._base
    if type(base) is not Fake or base.requires_grad or base.dtype is not view.dtype:
        return view
    if (base.is_conj(), base.is_neg()) != (view.is_conj(), view.is_neg()):
        return view
    place = (view.size(), view.stride(), view.storage_offset())
    direct: Fake = torch.as_strided(base, *place)  # type: ignore[assignment]
    # It says how the view was made, on which PyTorch's errors for writes depend.
    _set_creation_meta(direct, _get_creation_meta(view))
    return direct


_get_creation_meta: Any = torch._C._autograd._get_creation_meta
_set_creation_meta: Any = torch._C._autograd._set_creation_meta


def set_memory(
    fake: Fake, memory: torch.UntypedStorage, offset: Any, sizes: Any, strides: Any
) -> None:
    """Make `fake` a window on the storage `memory`, with this offset, sizes and strides."""
    as_plain(
        torch.ops.aten.set_.source_Storage_storage_offset,
        (fake, memory, offset, sizes, strides),
        {},
    )


def empty_view(fake: Fake, dtype: torch.dtype) -> Fake:
    """A view without elements of the memory of `fake`, with another dtype. `as_strided` then makes
    a larger view of it. (To set a storage is a question about every size, unless there are no
    elements.)"""
    view = make(fake._world, (0,), (1,), 0, dtype, fake.device)
    set_memory(view, fake.untyped_storage(), 0, (0,), (1,))
    return view


def memories(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The storages of the tensors, and those that stood for their memory before it grew."""
    own = {t.untyped_storage()._cdata for t in tensors}
    return own.union(m._cdata for t in tensors for m in getattr(t, "_outgrown", ()))


def resize(fake: Fake, twin: torch.Tensor) -> None:
    """Give `fake` the sizes and strides of a meta tensor, growing its memory as the twin's grew.

    Memory that grows is replaced: a storage without data cannot be reallocated in place, because
    the allocator of nothing (the meta one) would move it to the meta device. Other views of it stay
    behind.
    """
    memory = fake.untyped_storage()
    sizes, strides, offset = twin.size(), twin.stride(), fake.storage_offset()
    needed = twin.untyped_storage().nbytes()
    if needed > memory.nbytes():
        grown = make(fake._world, sizes, strides, offset, fake.dtype, fake.device, needed)
        fake._outgrown = (*fake._outgrown, memory)
        memory = grown.untyped_storage()
    set_memory(fake, memory, offset, sizes, strides)


class _Answer(TorchDispatchMode):
    """Answers the next operator with a tensor made beforehand; autograd above does not notice."""

    def __init__(self, answer: Fake) -> None:
        super().__init__()
        self._answer = answer

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the default wraps every call through torch._dynamo

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self._answer


def answered_with(fake: Fake) -> TorchDispatchMode:
    """Give `fake` the autograd state of a result: inside, any one operator call returns it."""
    return _Answer(fake)
