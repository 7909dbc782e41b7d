"""Everything that can be seen of two calls, compared.

Values, types, sizes, strides, dtypes; which objects are one, which tensors share memory and where
in it; what became of the arguments and of global objects; the state of the random generator; what
was raised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from tools.fuzzing import rounding


@dataclass
class Outcome:
    """What a call did."""

    result: Any
    error: Exception | None
    args: tuple[Any, ...]
    seen: list[Any]
    random_state: torch.Tensor
    grad_enabled: bool
    versions: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Difference:
    """`kind` says what sort of difference it is; `text` is for people."""

    kind: str
    text: str
    place: str = ""  # which errors, so that a shrunk program raises the same ones


class Different(Exception):
    def __init__(self, kind: str, text: str, place: str = "") -> None:
        super().__init__(text)
        self.difference = Difference(kind, text, place)


Rerun = Callable[[int], Outcome]
"""The same call, eagerly, with the rounding of this seed."""

Leaves = list[tuple[str, Any]]
"""Each object with where it is."""


def compare(ours: Outcome, eager: Outcome, rerun: Rerun) -> Difference | None:
    """The first difference, the worst kinds first."""
    try:
        _compare_errors(ours.error, eager.error, rerun)
        mine, theirs = (list(leaves(_all(o), "")) for o in (ours, eager))
        when = " after an error" if eager.error else ""
        mine, theirs = _compare_paths(mine, theirs, rerun, when)
        if eager.error:  # an effect that is missing is no difference of what tensors hold
            _compare_sharing(mine, theirs, when)
        _compare_metadata(mine, theirs)
        mine, theirs = _compare_shapes(mine, theirs, rerun)
        _compare_values(mine, theirs, rerun, when)
        _compare_sharing(mine, theirs)
        _compare_layouts(mine, theirs)
        _compare_state(ours, eager, rerun)
    except Different as found:
        return found.difference
    except RoundingDecides:
        return None
    return None


class RoundingDecides(Exception):
    """Whether eager PyTorch itself raises depends on the last digits."""


def _kind(error: Exception | None) -> tuple[type, str]:
    return type(error), "" if error is None else message(error)


def _all(outcome: Outcome) -> dict[str, Any]:
    return {"result": outcome.result, "argument": outcome.args, "SEEN": outcome.seen}


def leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each object in a structure with where it is, containers before what is in them."""
    yield path, value
    inside: Any = ()
    if isinstance(value, (list, tuple)):
        inside = enumerate(value)
    elif isinstance(value, dict):
        inside = value.items()
    elif type(value).__name__ == "Box":
        inside = vars(value).items()
    for key, item in inside:
        yield from leaves(item, f"{path}.{key}" if path else str(key))


def _compare_errors(ours: Exception | None, eager: Exception | None, rerun: Rerun) -> None:
    if ours is None and eager is None:
        return
    if _kind(ours) != _kind(eager):
        # How many different numbers there are depends on rounding, and so may what a size refuses.
        others = [rerun(seed).error for seed in range(rounding.RUNS)]
        if any(_kind(other) != _kind(eager) for other in others):
            raise RoundingDecides
    text = f"eager: {_shown(eager)}\npliant: {_shown(ours)}"
    place = f"{type(eager).__name__} or {type(ours).__name__}"
    if ours is None or eager is None:
        raise Different("no error" if ours is None else "error", text, place)
    if type(ours) is not type(eager):
        raise Different("error type", text, place)
    if message(ours) != message(eager):
        raise Different("error message", text, place)


def message(error: Exception) -> str:
    """Without what differs from run to run."""
    return re.sub(r"0x[0-9a-f]+", "0x", str(error)).split("\nException raised from")[0]


def _shown(error: Exception | None) -> str:
    return "no error" if error is None else f"{type(error).__name__}: {message(error)[:600]}"


def _compare_paths(mine: Leaves, theirs: Leaves, rerun: Rerun, when: str) -> tuple[Leaves, Leaves]:
    """Both sides without what is in containers of which eager PyTorch's own rounding decides the
    items: a list of all numbers that are not 0."""
    ours, eager = ([path for path, _ in side] for side in (mine, theirs))
    if ours == eager:
        return mine, theirs
    reruns = [[path for path, _ in leaves(_all(rerun(seed)), "")] for seed in range(rounding.RUNS)]
    prefixes = tuple(f"{path}." for path in rounding.unstable_containers(eager, reruns))
    mine, theirs = (
        [leaf for leaf in side if not leaf[0].startswith(prefixes)] for side in (mine, theirs)
    )
    if [path for path, _ in mine] != [path for path, _ in theirs]:
        raise Different("structure" + when, f"eager: {eager}\npliant: {ours}")
    return mine, theirs


def _compare_metadata(mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> None:
    for (path, a), (_, b) in zip(mine, theirs):
        if type(a) is not type(b) and type(a).__qualname__ != type(b).__qualname__:
            raise Different("type", f"{path}: eager {type(b)}, pliant {type(a)}")
        if isinstance(a, torch.Tensor):
            for name in ("dtype", "requires_grad", "is_leaf"):
                ours, eager = _attribute(a, name), _attribute(b, name)
                if eager is not UNREADABLE and ours != eager:
                    raise Different(name, f"{path}: eager {eager}, pliant {ours}")


def _compare_shapes(mine: Leaves, theirs: Leaves, rerun: Rerun) -> tuple[Leaves, Leaves]:
    """Both sides without those tensors of which eager PyTorch's own rounding decides a size: how
    many elements are not 0, or are different numbers."""
    differ = {
        index
        for index, ((_, a), (_, b)) in enumerate(zip(mine, theirs))
        if isinstance(a, torch.Tensor) and a.shape != b.shape
    }
    if not differ:
        return mine, theirs
    reruns = [dict(leaves(_all(rerun(seed)), "")) for seed in range(rounding.RUNS)]
    for index in sorted(differ):
        path, ours, eager = mine[index][0], mine[index][1].shape, theirs[index][1].shape
        others = [getattr(other.get(path), "shape", None) for other in reruns]
        if not rounding.decides_shape(ours, eager, others):
            raise Different("shape", f"{path}: eager {eager}, pliant {ours}")
    kept = [index for index in range(len(mine)) if index not in differ]
    return [mine[index] for index in kept], [theirs[index] for index in kept]


def _attribute(tensor: torch.Tensor, name: str) -> Any:
    """Reading it raises if autograd can't follow what was written to a view of a leaf."""
    try:
        return getattr(tensor, name)
    except RuntimeError:
        return UNREADABLE


UNREADABLE = object()


def _compare_values(
    mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]], rerun: Rerun, when: str
) -> None:
    unequal = []
    for index, ((_, a), (_, b)) in enumerate(zip(mine, theirs)):
        if isinstance(a, torch.Tensor):
            if not _equal(a, b):
                unequal.append(index)
        elif isinstance(a, float):
            if not _equal(torch.tensor(a), torch.tensor(b)):
                unequal.append(index)
        elif isinstance(a, (int, str, bool, type(None), torch.dtype)) and a != b:
            unequal.append(index)
    if not unequal:
        return
    reruns = [dict(leaves(_all(rerun(seed)), "")) for seed in range(rounding.RUNS)]
    for index in unequal:
        path, a, b = mine[index][0], mine[index][1], theirs[index][1]
        if isinstance(a, (str, type(None), torch.dtype)):
            if all(other.get(path) == b for other in reruns):
                raise Different("values", f"{path}: eager {b!r}, pliant {a!r}")
            continue
        ours, eager = (_tensor(value) for value in (a, b))
        others = [_tensor(other.get(path)) for other in reruns]
        fine = rounding.accepted(ours, eager, others)
        if not bool(fine.all()):
            differ = ours[~fine].double().ne(eager[~fine].double())
            kind = "values" if bool(differ.any()) else "sign of zero"
            kind = f"number{when}" if when and not isinstance(a, torch.Tensor) else kind
            raise Different(kind, _values_text(path, ours, eager, fine))


def _tensor(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _computable(value)
    return torch.tensor(value) if isinstance(value, (int, float)) else None


def _values_text(path: str, ours: torch.Tensor, eager: torch.Tensor, fine: torch.Tensor) -> str:
    at = (~fine).nonzero()[:4].tolist()
    pairs = [f"at {tuple(i)}: eager {eager[tuple(i)]!s}, pliant {ours[tuple(i)]!s}" for i in at]
    return f"{path} ({eager.dtype}): {int((~fine).sum())} differ; " + "; ".join(pairs)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bit for bit, all NaNs being equal."""
    a, b = _computable(a), _computable(b)
    if not a.numel():  # PyTorch can't compute with all of them: `ones(()).expand(-1, 0)`
        return True
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return torch.equal(a, b)
    same = a.eq(b) & a.signbit().eq(b.signbit()) | a.isnan() & b.isnan()
    return bool(same.all())


def _computable(t: torch.Tensor) -> torch.Tensor:
    """The same elements, with no more dimensions than PyTorch computes with."""
    return t.detach().squeeze() if t.dim() > 64 else t.detach()


def _compare_sharing(
    mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]], when: str = ""
) -> None:
    for kind, key in (("identity", _identity), ("sharing of memory", _memory)):
        pattern = [_firsts([key(value, path) for path, value in side]) for side in (mine, theirs)]
        if pattern[0] != pattern[1]:
            at = next(i for i, (p, q) in enumerate(zip(*pattern)) if p != q)
            eager, ours = mine[pattern[1][at]][0], mine[pattern[0][at]][0]
            raise Different(kind + when, f"{mine[at][0]}: eager as {eager}, pliant as {ours}")


def _firsts(items: list[Any]) -> list[int]:
    """For each item, where the first one is that equals it."""
    first: dict[Any, int] = {}
    return [first.setdefault(item, at) for at, item in enumerate(items)]


def _identity(value: Any, path: str) -> Any:
    shared = isinstance(value, (torch.Tensor, list, dict)) or type(value).__name__ == "Box"
    return id(value) if shared else path


def _memory(value: Any, path: str) -> Any:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return path
    storage = value.untyped_storage()
    return storage._cdata if storage.nbytes() else path


def _compare_layouts(mine: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> None:
    """Strides and offsets; those that no element depends on come last."""
    pairs = [
        (path, a, b)
        for (path, a), (_, b) in zip(mine, theirs)
        if isinstance(a, torch.Tensor) and a.layout is torch.strided
    ]
    for path, a, b in pairs:
        strides = [[s for s, n in zip(t.stride(), t.shape) if n > 1] for t in (a, b)]
        if a.numel() and (strides[0] != strides[1] or a.is_contiguous() != b.is_contiguous()):
            raise Different("stride", _strides_text(path, a, b))
        if a.numel() and a.storage_offset() != b.storage_offset():
            text = f"{path}: eager {b.storage_offset()}, pliant {a.storage_offset()}"
            raise Different("storage_offset", text)
    for path, a, b in pairs:
        if a.stride() != b.stride():
            kind = "stride of a dimension of size 1" if a.numel() else "stride of an empty tensor"
            raise Different(kind, _strides_text(path, a, b))


def _strides_text(path: str, a: torch.Tensor, b: torch.Tensor) -> str:
    return f"{path}, shape {tuple(a.shape)}: eager {b.stride()}, pliant {a.stride()}"


def _compare_state(ours: Outcome, eager: Outcome, rerun: Rerun) -> None:
    if ours.grad_enabled != eager.grad_enabled:
        raise Different("grad mode", f"eager {eager.grad_enabled}, pliant {ours.grad_enabled}")
    if torch.equal(ours.random_state, eager.random_state):
        return
    # How many numbers some distributions draw depends on their parameters, and so on rounding.
    states = [rerun(seed).random_state for seed in range(rounding.RUNS)]
    if all(torch.equal(state, eager.random_state) for state in states):
        raise Different("random state", "the generator is in another state afterwards")
