"""From real tensors to fakes: the same metadata, autograd state and neighbours, none of the data.

The one idea: memory is converted once per storage and a tensor once per object, so `is` and "shares
memory with" mean the same among fakes as among the real tensors. Real tensors are only read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import parameter

from pliant.fake.errors import Unsupported
from pliant.fake.tensor import Fake, answered_with, make, set_memory

_ORDINARY = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _has_refused_history(t: torch.Tensor) -> bool:
    """Whether reading the history of `t` raises: a view whose base was written to in a way that
    autograd doesn't allow."""
    if not t._is_view():
        return False
    try:
        t.grad_fn  # noqa: B018
    except RuntimeError:
        return True
    return False


def _may_require_grad(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


# Properties of a tensor that sizes and strides do not describe, with the kind that they make it.
_KINDS: tuple[tuple[str, Callable[[torch.Tensor], bool]], ...] = (
    ("torch.func", torch._C._functorch.is_functorch_wrapped_tensor),
    ("functional", torch._is_functional_tensor),
    ("nested", lambda t: t.is_nested),
    ("mkldnn", lambda t: t.is_mkldnn),
    ("quantized", lambda t: t.is_quantized),
    ("sparse", lambda t: t.layout is not torch.strided),
    ("zero tensor", lambda t: t._is_zerotensor()),
    ("no storage", lambda t: not torch._C._has_storage(t)),
    ("a view of memory written to against the rules of autograd", _has_refused_history),
    # Made by `integers[:] = number_that_requires_grad`; even views of them may be refused.
    ("integers that require grad", lambda t: t.requires_grad and not _may_require_grad(t.dtype)),
)


def kind_without_fake(t: torch.Tensor) -> str | None:
    """Why `t` can have no fake, or None if it can."""
    if type(t) not in _ORDINARY and not _is_only_python(type(t)):
        return f"subclass {type(t).__qualname__}"
    return next((kind for kind, holds in _KINDS if holds(t)), None)


def is_transformed(t: torch.Tensor) -> bool:
    """Whether a transform of `torch.func` that is still active made `t` (it hides a batch
    dimension, or is differentiated)."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(t)
    return wrapped and torch._C._functorch.maybe_get_level(t) > 0  # it is less after its end


UNINITIALIZED: Any = parameter.UninitializedTensorMixin  # type: ignore[attr-defined]


def _is_only_python(cls: type[torch.Tensor]) -> bool:
    """Whether a subclass of tensors leaves operators alone: it may have methods, but no
    `__torch_dispatch__`."""
    if issubclass(cls, UNINITIALIZED):
        return False
    return bool(cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__)


class Converter:
    """The fakes of real tensors, for the length of one compilation."""

    def __init__(self, world: Callable[[], Any]) -> None:
        self._world = world
        # The real objects are kept, so that an address cannot come to mean another tensor.
        self._fakes: dict[int, tuple[torch.Tensor, Fake]] = {}
        self._storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._bases: set[int] = set()  # known only because there is a view of them

    def forget(self) -> None:
        """Let go of the real tensors."""
        for table in (self._fakes, self._storages, self._bases):
            table.clear()

    def fake(self, t: torch.Tensor, layout: tuple[Any, Any] | None = None) -> Fake:
        """The fake of `t`, with these sizes and strides if they are given."""
        entry = self._fakes.get(id(t))
        if entry is not None and (layout is None or id(t) not in self._bases):
            return entry[1]
        if is_transformed(t):
            self._fakes[id(t)] = (t, fake := self._make_transformed(t, layout))
            return fake
        kind = kind_without_fake(t)
        if kind is not None:
            raise Unsupported(kind)
        existing = entry[1] if entry is not None else None
        # Whether a tensor is an inference tensor is settled when it is made, by the mode.
        if torch.is_inference_mode_enabled() is t.is_inference():
            fake = self._make(t, layout, existing)
        else:
            with torch.inference_mode(t.is_inference()):
                fake = self._make(t, layout, existing)
        self._fakes[id(t)] = (t, fake)
        # Asking others for it warns.
        held = t.grad if layout is None and t.is_leaf else None
        if held is not None and kind_without_fake(held) is None:
            fake.grad = self.fake(held)
        return fake

    def _make(
        self, t: torch.Tensor, layout: tuple[Any, Any] | None, existing: Fake | None = None
    ) -> Fake:
        if existing is not None and layout is not None:
            return self._with_layout(t, existing, layout)
        fake = self._shell(t, layout or (t.size(), t.stride()))
        if t.is_inference():  # has neither history nor version
            fake.requires_grad_(t.requires_grad)
            return fake
        # Autograd treats views and their bases specially (version counters, writes), so this is
        # rebuilt.
        if t._is_view():
            fake = self._as_view(t, fake)
        elif t.requires_grad and not t.is_leaf:
            fake = _as_result(fake)
        elif t.requires_grad:
            fake.requires_grad_()
        if t._version:
            # The program may look at `_version`, and autograd compares it.
            torch._C._autograd._unsafe_set_version_counter((fake,), (t._version,))
        return fake

    def _make_transformed(self, t: torch.Tensor, layout: tuple[Any, Any] | None) -> Fake:
        """Only what a program sees of it, with memory of its own."""
        sizes, strides = layout or (t.size(), t.stride())
        fake = make(self._world, sizes, strides, t.storage_offset(), t.dtype, t.device)
        if not t.requires_grad:
            return fake
        return fake.requires_grad_() if t.is_leaf else _as_result(fake)  # type: ignore[return-value]

    def _shell(self, t: torch.Tensor, layout: tuple[Any, Any]) -> Fake:
        """A fake with the memory and metadata of `t`, as yet without a history."""
        (sizes, strides), offset = layout, t.storage_offset()
        memory = t.untyped_storage()
        fake = make(self._world, sizes, strides, offset, t.dtype, t.device, memory.nbytes())
        shared = self._storages.get(memory._cdata)
        if shared is None:
            self._storages[memory._cdata] = (memory, fake.untyped_storage())
        else:
            set_memory(fake, shared[1], offset, sizes, strides)
        if t.is_conj():
            torch._C._set_conj(fake, True)
        if t.is_neg():
            torch._C._set_neg(fake, True)
        return fake

    def _with_layout(self, t: torch.Tensor, fake: Fake, layout: tuple[Any, Any]) -> Fake:
        """The fake of a base that was made for a view, with the symbolic layout that is only known
        now."""
        self._bases.discard(id(t))
        sizes, strides = layout
        set_memory(fake, fake.untyped_storage(), t.storage_offset(), sizes, strides)
        return fake

    def _as_view(self, t: torch.Tensor, shell: Fake) -> Fake:
        """`shell` as a view of the fake of the base of `t`, with the same autograd state as `t`."""
        base = self._base_of(t)
        tracked = t.requires_grad and not t.is_leaf
        if tracked and not base.requires_grad:
            # A view of a leaf that is a view itself: `base[1:].requires_grad_()[:2]`.
            base = torch.ops.aten.alias(base).requires_grad_()
        # Autograd above runs as for the real view and makes its bookkeeping; the result is the
        # shell.
        with torch.set_grad_enabled(tracked), answered_with(shell):
            if t.dtype is base.dtype:
                view = torch.as_strided(base, t.size(), t.stride(), t.storage_offset())
            elif base.is_complex() is not t.is_complex():  # unlike `view`, followed by autograd
                view = (torch.view_as_complex if t.is_complex() else torch.view_as_real)(base)
            else:
                view = base.view(t.dtype)
        if t.requires_grad and t.is_leaf:
            view.requires_grad_()
        creation = torch._C._autograd._get_creation_meta(t)
        torch._C._autograd._set_creation_meta(view, creation)
        return view  # type: ignore[return-value]

    def _base_of(self, t: torch.Tensor) -> Any:
        real = t._base
        assert real is not None
        if kind_without_fake(real) is not None:  # as that of `sparse.values()`
            return self._shell(t, (t.size(), t.stride()))
        if id(real) not in self._fakes:
            self._bases.add(id(real))
        return self.fake(real)


def _as_result(shell: Fake) -> Fake:
    """`shell` as the result of an operation on something that requires grad."""
    with torch.enable_grad():
        leaf = make(shell._world, (), (), 0, shell.dtype, shell.device).requires_grad_()
        with answered_with(shell):
            return torch.clone(leaf)  # type: ignore[return-value]
