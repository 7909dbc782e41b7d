"""Shape rules of our own, for the operators that nearly every program uses.

The one idea: a table from operator name to a rule that looks at the fakes themselves and returns a
recipe, or None for "ask the meta kernel": whenever arguments are unusual, so that errors keep
PyTorch's words. Rules only save time; without them every answer would be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.fake import windows
from pliant.fake.layout import (
    broadcast,
    channels_last_strides,
    contiguous_strides,
    index_strides,
    is_dense,
    is_like_channels_last,
    is_plain,
    like_strides,
    must_be_size,
    ordered_strides,
    permuted_strides,
    pointwise_strides,
    promoted,
    spread,
    suggested_strides,
)
from pliant.fake.order import is_contiguous, need, sure
from pliant.fake.overload import META, Overload
from pliant.fake.promotion import as_computed
from pliant.fake.results import New, Recipe, Same, Several
from pliant.fake.rule import Args, Kwargs, Rule, dense, is_empty, new
from pliant.fake.tensor import Fake

TypeRule = Callable[[torch.dtype], torch.dtype | None]

_NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def rule_for(name: str) -> Rule | None:
    return _RULES.get(name)


# Pointwise.


def _operands(values: Sequence[Any]) -> tuple[list[Fake], list[Any]] | None:
    """The tensors and the numbers, or None if something else is among them."""
    tensors: list[Fake] = []
    numbers: list[Any] = []
    for value in values:
        if type(value) is Fake:
            if value.dtype.is_complex or value.is_neg():
                return None
            tensors.append(value)
        elif type(value) in _NUMBERS:
            numbers.append(value)
        elif isinstance(value, torch.Tensor) and not value.dtype.is_complex:
            numbers.append(value.dtype)
        else:
            return None
    return (tensors, numbers) if tensors else None


def _promote(dtype: torch.dtype) -> torch.dtype | None:
    return None if dtype is torch.bool else dtype  # arithmetic on bool has exceptions: ask


def _float(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def _only_float(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else None


def _bool(dtype: torch.dtype) -> torch.dtype | None:
    return torch.bool


def _same(dtype: torch.dtype) -> torch.dtype | None:
    return dtype


def _pointwise(count: int, result_dtype: TypeRule, numbers_aside: bool = False) -> Rule:
    """Of the first `count` arguments; those after them do not matter to the look of the result.
    `numbers_aside`: numbers among them are no operands."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        found = _operands(args[:count])
        if found is None or len(args) < count:
            return None
        tensors, numbers = found
        sizes = broadcast([t.size() for t in tensors])
        common = promoted(tensors, numbers)
        dtype = result_dtype(common)
        if sizes is None or dtype is None:
            return None
        tensors = as_computed(tensors, common if dtype is torch.bool else dtype)
        # A number is a 0-dim operand: with one, the operands are not all of one shape.
        mixed = bool(numbers) and not numbers_aside
        return new(sizes, _strides(tensors, mixed, sizes), dtype, device)

    return rule


def _strides(tensors: list[Fake], with_number: bool, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return pointwise_strides(tensors, sizes, uniform=not (with_number and sizes))


def _in_place(count: int, result_dtype: TypeRule) -> Rule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        found = _operands(args[:count])
        if found is None or len(args) < count:
            return None
        tensors, numbers = found
        target = args[0]
        dtype = result_dtype(promoted(tensors, numbers))
        fits = same(broadcast([t.size() for t in tensors]), target.size())
        if not fits or dtype is None or not torch.can_cast(dtype, target.dtype):
            return None
        # Writing to an expanded tensor is an error; leave it to be told.
        return Same(op.written[0]) if is_plain(target) else None

    return rule


def same(sizes: Sequence[int] | None, others: Sequence[int]) -> bool:
    """Whether these are the same sizes; what is not known is asked. Those read from data have to
    be: otherwise it is an error."""
    return sizes is not None and len(sizes) == len(others) and all(map(_is_same, sizes, others))


def _is_same(a: Any, b: Any) -> bool:
    if a is b or sure(a == b):
        return True
    question: Any = a == b
    if isinstance(question, torch.SymBool) and not question.node.has_hint():
        need(question)
        return True
    return bool(question)


def _where(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    found, choices = _operands(args), _operands(args[1:])
    if found is None or choices is None or args[0].dtype is not torch.bool:
        return None
    tensors, numbers = found
    sizes = broadcast([t.size() for t in tensors])
    if sizes is None:
        return None
    dtype = promoted(*choices)
    strides = _strides([args[0], *as_computed(choices[0], dtype)], bool(numbers), sizes)
    return new(sizes, strides, dtype, device)


def _filled(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """Overwritten in place from numbers alone."""
    numbers_only = all(type(a) in _NUMBERS for a in args[1:])
    return Same(op.written[0]) if numbers_only and is_plain(args[0]) else None


def _drawn(defaults: tuple[float, ...], allowed: Callable[..., bool]) -> Rule:
    """Overwritten in place with random numbers, of a distribution with these parameters."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, *given = args
        numbers = (*given, *defaults[len(given) :])
        usual = t.is_floating_point() and all(type(n) in (int, float) for n in numbers)
        return Same(op.written[0]) if usual and allowed(*numbers) and is_plain(t) else None

    return rule


# Reductions. Results are contiguous.


def _dims(t: Fake, dim: Any) -> list[int] | None:
    if dim is None or dim == []:
        return list(range(t.dim()))
    dims = [dim] if isinstance(dim, int) else list(dim)
    rank = max(t.dim(), 1)
    if any(not -rank <= d < rank for d in dims) or len({d % rank for d in dims}) != len(dims):
        return None
    return [d % rank for d in dims]


def _reduced(t: Fake, dim: Any, keep: bool) -> list[int] | None:
    dims = _dims(t, dim)
    if dims is None or t.dtype.is_complex:
        return None
    sizes = enumerate(t.size())
    return [1 if d in dims else s for d, s in sizes if keep or d not in dims]


def _sum_dtype(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else torch.int64


def _reduction(result_dtype: TypeRule, *, empty: bool = True) -> Rule:
    """`empty`: whether reducing over nothing is allowed."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, dim, keep = (*args, None, False)[:3] if len(args) == 1 else (*args, False)[:3]
        sizes = _reduced(t, dim, keep)
        wanted = kwargs.get("dtype")
        dtype = result_dtype(wanted or t.dtype)
        dtype = wanted if wanted is not None and dtype is not None else dtype
        unusual = kwargs.keys() - {"dtype"} or len(args) > 3
        unusual = unusual or (not empty and sizes is not None and _over_nothing(t, dim))
        return None if sizes is None or dtype is None or unusual else dense(sizes, dtype, device)

    return rule


def _over_nothing(t: Fake, dim: Any) -> bool:
    return any(t.size(d) == 0 for d in _dims(t, dim) or () if t.dim())


def _extreme(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """max.dim, min.dim: values and indices."""
    t, dim, keep = (*args, False)[:3]
    sizes = _reduced(t, dim, keep)
    if sizes is None or _over_nothing(t, dim):
        return None
    return Several(tuple, (dense(sizes, t.dtype, device), dense(sizes, torch.int64, device)))


# Products. Results are contiguous.


def _product(rank: int) -> Rule:
    """mm and bmm."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        sizes = _product_sizes(rank, *args) if len(args) == 2 and not kwargs else None
        return None if sizes is None else dense(sizes, args[0].dtype, device)

    return rule


def _product_sizes(rank: int, a: Fake, b: Fake) -> tuple[int, ...] | None:
    fits = a.dim() == b.dim() == rank and a.dtype is b.dtype and a.size(-1) == b.size(-2)
    return (*a.shape[:-1], b.size(-1)) if fits and a.shape[:-2] == b.shape[:-2] else None


def _added_product(rank: int) -> Rule:
    """addmm and baddbmm."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        bias, a, b = args[:3]
        sizes = _product_sizes(rank, a, b)
        if sizes is None or bias.dtype is not a.dtype or broadcast([bias.size(), sizes]) != sizes:
            return None
        return dense(sizes, a.dtype, device)

    return rule


# Layers.


def _softmax(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, to_float = (*args, False)[:3]
    if t.dim():
        t.size(dim)  # raises what the kernel would; the meta kernel does not look at the dimension
    if to_float or not t.is_floating_point() or not -max(t.dim(), 1) <= dim < max(t.dim(), 1):
        return None
    return dense(t.size(), t.dtype, device)


def _safe_softmax(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    return _softmax(op, args, kwargs, device) if len(args) == 2 and not kwargs else None


def _distances(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    a, b = args
    fits = a.dim() >= 2 and b.dim() >= 2 and a.dtype is b.dtype and a.is_floating_point()
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if fits else None
    if batch is None or not same(a.shape[-1:], b.shape[-1:]):
        return None
    return dense((*batch, a.size(-2), b.size(-2)), a.dtype, device)


def _layer_norm(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, shape, weight, bias = args[:4]
    inner = len(shape)
    fits = list(t.shape[t.dim() - inner :]) == list(shape) and t.dtype is torch.float32 and inner
    params = [p for p in (weight, bias) if p is not None]
    if not fits or any(p.dtype is not t.dtype or list(p.shape) != list(shape) for p in params):
        return None
    stats = dense((*t.shape[: t.dim() - inner], *[1] * inner), t.dtype, device)
    return Several(tuple, (dense(t.size(), t.dtype, device), stats, stats))


def _embedding(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    weight, indices = args[:2]
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return dense((*indices.shape, weight.size(1)), weight.dtype, device)


def _cat(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    tensors, dim = (*args, 0)[:2]
    found = _operands(tensors)
    first = tensors[0]
    rank = first.dim()
    if found is None or found[1] or not rank or not -rank <= dim < rank:
        return None
    dim %= rank
    others = [[s for d, s in enumerate(t.size()) if d != dim] for t in tensors]
    if any(t.dim() != rank for t in tensors) or any(o != others[0] for o in others):
        return None
    total = sum(t.size(dim) for t in tensors)
    sizes = [total if d == dim else s for d, s in enumerate(first.size())]
    channels_last = [is_like_channels_last(t) for t in tensors]
    strides = (channels_last_strides if all(channels_last) else contiguous_strides)(sizes)
    return new(sizes, strides, promoted(tensors, ()), device)


def _stack(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    tensors, dim = (*args, 0)[:2]
    found = _operands(tensors)
    rank = tensors[0].dim() + 1
    if found is None or found[1] or not -rank <= dim < rank:
        return None
    first = tensors[0].size()
    if not all(is_contiguous(t) and same(t.size(), first) for t in tensors):
        return None
    sizes = [*first]
    sizes.insert(dim % rank, len(tensors))
    return dense(sizes, promoted(tensors, ()), device)


def _roll(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, shifts, dims = (*args, ())[:3]
    usual = is_contiguous(t) and all(-t.dim() <= d < t.dim() for d in dims)
    fits = len(dims) == len(shifts) if dims else len(shifts) == 1
    return dense(t.size(), t.dtype, device) if usual and fits else None


def _glu(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim = (*args, -1)[:2]
    if not t.dim() or not -t.dim() <= dim < t.dim() or not t.is_floating_point():
        return None
    if t.size(dim) % 2 != 0:
        return None
    sizes = [size // 2 if d == dim % t.dim() else size for d, size in enumerate(t.size())]
    half = torch.empty_strided(sizes, t.stride(), device=META)
    return new(sizes, pointwise_strides([half, half], half.size()), t.dtype, device)


def _gather(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, index = args[:3]
    return dense(index.size(), t.dtype, device) if _picks(t, dim, index) else None


def _scatter(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, index, source = args[:4]
    if type(source) is Fake:
        alike = source.dtype is t.dtype and source.dim() == index.dim()
        if not alike or not all(a <= b for a, b in zip(index.size(), source.size(), strict=True)):
            return None
    if not _picks(t, dim, index):
        return None
    return Same(op.written[0]) if op.written else dense(t.size(), t.dtype, device)


def _index_add(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, index, source = args
    alike = source.dtype is t.dtype and source.dim() == t.dim() > 0 and index.dim() == 1
    if not alike or index.dtype is not torch.int64 or not -t.dim() <= dim < t.dim():
        return None
    wanted = list(t.size())
    wanted[dim] = index.size(0)
    if not same(source.size(), wanted):
        return None
    return Same(op.written[0]) if op.written else dense(t.size(), t.dtype, device)


def _picks(t: Fake, dim: int, index: Fake) -> bool:
    """Whether `index` fits into `t` but for one dimension."""
    if index.dtype is not torch.int64 or not t.dim() or t.dim() != index.dim():
        return False
    if not -t.dim() <= dim < t.dim() or t.is_conj() or t.is_neg():
        return False
    pairs = enumerate(zip(index.size(), t.size(), strict=True))
    return all(a <= b for d, (a, b) in pairs if d != dim % t.dim())


def _grid_sampler_cpu(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """PyTorch has this as a long list of other operators, which takes seconds."""
    t, grid = args[:2]
    usual = t.dim() == grid.dim() == 4 and t.dtype is grid.dtype and t.is_floating_point()
    if not usual or not (t.is_cpu and grid.is_cpu and is_contiguous(t)):
        return None
    if t.size(0) != grid.size(0) or grid.size(3) != 2 or t.size(2) == 0 or t.size(3) == 0:
        return None
    return dense((t.size(0), t.size(1), grid.size(1), grid.size(2)), t.dtype, device)


def _pixel_shuffle(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, factor = args
    if t.dim() < 3 or type(factor) is not int or factor <= 0 or not is_contiguous(t):
        return None
    *batch, channels, height, width = t.size()
    if channels % (factor * factor) != 0:
        return None
    sizes = (*batch, channels // (factor * factor), height * factor, width * factor)
    return dense(sizes, t.dtype, device)


def _pixel_unshuffle(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, factor = args
    if t.dim() < 3 or type(factor) is not int or factor <= 0 or not is_contiguous(t):
        return None
    *batch, channels, height, width = t.size()
    if height % factor != 0 or width % factor != 0 or t.numel() == 0:
        return None  # nothing stays as it is
    sizes = (*batch, channels * factor * factor, height // factor, width // factor)
    return dense(sizes, t.dtype, device)


_SUMMED_IN = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def _attention_cpu(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    query, _, value = args[:3]
    usual = query.dim() == 4 and query.dtype in _SUMMED_IN and query.size(3) == value.size(3)
    if not usual:
        return None
    batch, heads, length, _ = query.size()
    strides = query.stride()
    if not is_dense(query):
        nesting = sorted(range(4), key=query.stride, reverse=True)
        strides = ordered_strides(query.size(), nesting)
    order = contiguous_strides((batch, length, heads))
    summed = _SUMMED_IN[query.dtype]
    logsumexp = new((batch, heads, length), (order[0], order[2], order[1]), summed, device)
    return Several(tuple, (new(query.size(), strides, query.dtype, device), logsumexp))


def _batch_norm(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, *params, training = args[:6]
    given = [p for p in params if p is not None]
    usual = device.type == "cpu" and t.dim() >= 2 and t.dtype is torch.float32
    if not usual or any(p.dtype is not t.dtype or p.shape != t.shape[1:2] for p in given):
        return None
    saved = dense((t.size(1) if training else 0,), t.dtype, device)
    result = new(t.size(), suggested_strides(t, t.size()), t.dtype, device)
    if op.name in _RETURN_STATISTICS:
        if None in params[2:]:
            return None
        running = dense((t.size(1),), t.dtype, device)
        return Several(tuple, (result, saved, saved, running, running))
    return Several(tuple, (result, saved, saved))


_RETURN_STATISTICS = frozenset(("aten._native_batch_norm_legit_functional.default",))


def _group_norm_cpu(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, *params, batch, _, _, groups, _ = args
    usual = device.type == "cpu" and t.dtype is torch.float32 and not is_empty(t)
    if not usual or any(p is not None and p.dtype is not t.dtype for p in params):
        return None
    stats = dense((batch, groups), t.dtype, device)
    result = new(t.size(), suggested_strides(t, t.size()), t.dtype, device)
    return Several(tuple, (result, stats, stats))


def _nll_loss(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    scores, target, weight, reduction, _ = args
    rank = 4 if op.name.startswith("aten.nll_loss2d") else 2
    fits = scores.dim() == rank and target.dim() == rank - 1 and target.dtype is torch.int64
    if not fits or not same(target.shape, (scores.size(0), *scores.shape[2:])):
        return None
    if weight is not None and not (weight.dtype is scores.dtype and weight.dim() == 1):
        return None
    if weight is not None and not same(weight.shape, scores.shape[1:2]):
        return None
    total = dense((), scores.dtype, device)
    result = dense(target.size(), scores.dtype, device) if reduction == 0 else total
    return Several(tuple, (result, total))


def _index(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """By integers. PyTorch's meta kernel does not see how the indices lie in memory."""
    t, indices = args
    at = [d for d, index in enumerate(indices) if index is not None]
    given = [indices[d] for d in at]
    plain = all(i.dtype in (torch.int64, torch.int32) for i in given)
    picked = broadcast([i.size() for i in given]) if at and plain else None
    if picked is None or len(indices) > t.dim():
        return None
    if any(type(t.size(d)) is int and t.size(d) == 0 for d in at):
        return None  # there is nothing to take
    adjacent = at[-1] - at[0] + 1 == len(at)
    rest = [d for d in range(t.dim()) if d not in at]
    first = at[0] if adjacent else 0  # how many dimensions come before what is picked
    sizes = (*(t.size(d) for d in rest[:first]), *picked, *(t.size(d) for d in rest[first:]))
    own = [t.stride(d) for d in rest]
    source = [*own[:first], *[0] * len(picked), *own[first:]]
    around = (first, len(rest) - first)
    if adjacent and is_contiguous(t) and all(map(is_contiguous, given)):
        strides = contiguous_strides(sizes)
    else:
        shown = ([*[0] * first, *spread(i, picked), *[0] * around[1]] for i in given)
        strides = permuted_strides([source, *shown], sizes)
    return new(sizes, index_strides(strides, source, given, picked, sizes, around), t.dtype, device)


def _index_put(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, indices, values = args[:3]
    place = _index(op, (t, indices), {}, device)
    if type(place) is not New or values.dtype is not t.dtype:
        return None
    if not same(broadcast([values.size(), place.sizes]), place.sizes):
        return None
    if op.written:
        return Same(op.written[0]) if is_plain(t) else None
    strides = like_strides(t)
    return None if strides is None else new(t.size(), strides, t.dtype, device)


def _contiguous(result_dtype: TypeRule, at: int = 0) -> Rule:
    """One element for each of the argument at that position; contiguous however that lies."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        found = _operands(args[: at + 1])
        dtype = found and result_dtype(promoted(*found))
        if not dtype or device.type != "cpu" or type(args[at]) is not Fake:
            return None
        return dense(args[at].size(), dtype, device)

    return rule


def _log_sigmoid(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """The result, and something for the backward."""
    made = _contiguous(_only_float)(op, args, kwargs, device)
    return None if made is None else Several(tuple, (made, made))


def _triangle(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t = args[0]
    return dense(t.size(), t.dtype, device) if t.dim() >= 2 and is_contiguous(t) else None


def _masked_fill(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, mask, _ = args
    if mask.dtype is not torch.bool or t.dtype.is_complex:
        return None
    sizes = broadcast([t.size(), mask.size()])
    return None if sizes is None else dense(sizes, t.dtype, device)


# Copies and new tensors.


def _like(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """clone, _to_copy, empty_like and its kin: dense tensors keep their strides unless told."""
    t = args[0]
    if not isinstance(t, torch.Tensor):  # a number that PyTorch had made a tensor of
        t = torch.tensor(t)
    form = kwargs.get("memory_format")
    if t.is_conj() or t.is_neg() or kwargs.get("layout") not in (None, torch.strided):
        return None
    dtype = kwargs.get("dtype") or t.dtype
    if form is torch.contiguous_format:
        return dense(t.size(), dtype, device)
    strides = like_strides(t) if form in (None, torch.preserve_format) else None
    return None if strides is None else new(t.size(), strides, dtype, device)


def _copy_(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    target, source = args[:2]
    found = _operands((target, source))
    if found is None or not same(broadcast([target.size(), source.size()]), target.size()):
        return None
    return Same(op.written[0]) if is_plain(target) else None


def _written_to_part(view: Callable[..., Any]) -> Rule:
    """The part is given by a view; the meta kernels don't look whether the source fits."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        part = view(args[0], *args[2:], **kwargs)
        if not same(part.size(), args[1].size()):
            raise RuntimeError("expected src to have a size equal to the slice of self")
        return None

    return rule


def _is_negative(size: Any) -> bool:
    """A size that is read from data has to be 0 or more; another is asked about."""
    known = type(size) is int or size.node.has_hint()
    return known and bool(size < 0)


def _factory(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    sizes = args[0]
    usual = {"dtype", "device", "pin_memory", "layout"}
    if kwargs.keys() - usual or kwargs.get("layout") not in (None, torch.strided):
        return None
    if len(args) > 1 or any(map(_is_negative, sizes)):
        return None
    for size in sizes:
        must_be_size(size)
    return dense(sizes, kwargs.get("dtype") or torch.get_default_dtype(), device)


def _eye(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    return _factory(op, ((args * 2)[:2],), kwargs, device)


def _diag_embed(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t: Fake = args[0]
    offset, dim1, dim2 = args[1:] + (0, -2, -1)[len(args) - 1 :]
    rank = t.dim() + 1
    if kwargs or not t.dim() or any(not -rank <= d < rank for d in (dim1, dim2)):
        return None
    places = sorted((dim1 % rank, dim2 % rank))
    if places[0] == places[1]:
        return None
    sizes = list(t.size())
    side = sizes.pop() + abs(offset)
    for place in places:
        sizes.insert(place, side)
    return dense(tuple(sizes), t.dtype, device)


def _arange(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    start, end, step = {1: (0, *args, 1), 2: (*args, 1)}.get(len(args), args)
    if any(type(v) is not int for v in (start, end, step)) or step == 0 or (end - start) * step < 0:
        return None
    count = -((start - end) // step)
    return dense((count,), kwargs.get("dtype") or torch.int64, device)


_RULES: dict[str, Rule] = dict(windows.RULES)


def _add(rule: Rule, *names: str) -> None:
    for name in names:
        full = f"aten.{name}" if "." in name else f"aten.{name}.default"
        assert full not in _RULES, f"two shape rules for {full}"
        _RULES[full] = rule


def _fill_with_pointwise() -> None:
    pairs = ("Tensor", "Scalar")
    for name in ("relu", "neg", "floor", "ceil", "round", "trunc", "sign", "abs"):
        _add(_pointwise(1, _promote), name)
        _add(_in_place(1, _promote), f"{name}_")
    unary = "exp expm1 log log2 log1p sin cos tanh sigmoid sqrt rsqrt reciprocal erf atan"
    for name in unary.split():
        _add(_pointwise(1, _float), name)
        _add(_in_place(1, _float), f"{name}_")
    for name in ("gelu", "silu", "elu", "leaky_relu", "softplus", "hardswish", "mish"):
        _add(_pointwise(1, _only_float), name)
    for name in ("add", "sub", "mul", "remainder"):
        _add(_pointwise(2, _promote), *(f"{name}.{o}" for o in pairs))
        _add(_in_place(2, _promote), *(f"{name}_.{o}" for o in pairs))
    _add(_pointwise(2, _float), *(f"div.{o}" for o in pairs))
    _add(_in_place(2, _float), *(f"div_.{o}" for o in pairs))
    _add(_pointwise(2, _promote), "rsub.Scalar", "pow.Tensor_Tensor")
    _add(_pointwise(2, _promote, numbers_aside=True), "pow.Tensor_Scalar")
    _add(_pointwise(2, _promote), "maximum", "minimum")
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        _add(_pointwise(2, _bool), *(f"{name}.{o}" for o in pairs))
    _add(_pointwise(2, _bool), "logical_and", "logical_or", "logical_xor")
    _add(_pointwise(1, _bool), "logical_not")
    _add(_pointwise(3, _only_float), "addcmul", "addcdiv")
    _add(_where, "where.self")
    _add(_filled, "zero_", "fill_.Scalar")
    _add(_drawn((0.0, 1.0), lambda mean, deviation: deviation >= 0), "normal_")
    _add(_drawn((0.0, 1.0), lambda low, high: low <= high < 1e30), "uniform_")
    _add(_drawn((1.0,), lambda rate: rate > 0), "exponential_")


def _fill_with_others() -> None:
    _add(_reduction(_sum_dtype), "sum", "sum.dim_IntList")
    _add(_reduction(_only_float), "mean", "mean.dim")
    _add(_reduction(_same, empty=False), "amax", "amin")
    _add(_extreme, "max.dim", "min.dim")
    _add(_product(2), "mm")
    _add(_product(3), "bmm")
    _add(_added_product(2), "addmm")
    _add(_added_product(3), "baddbmm")
    _add(_softmax, "_softmax", "_log_softmax")
    _add(_safe_softmax, "_safe_softmax")
    _add(_distances, "_euclidean_dist")
    _add(_layer_norm, "native_layer_norm")
    _add(_embedding, "embedding")
    _add(_cat, "cat")
    _add(_batch_norm, "native_batch_norm", "_native_batch_norm_legit_functional")
    _add(_nll_loss, "nll_loss_forward", "nll_loss2d_forward")
    _add(_stack, "stack")
    _add(_roll, "roll")
    _add(_diag_embed, "diag_embed")
    _add(_glu, "glu")
    _add(_gather, "gather")
    _add(_scatter, "scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
    _add(_scatter, "scatter_.src", "scatter_.value", "scatter_add_", "scatter_reduce_.two")
    _add(_index_add, "index_add", "index_add_")
    _add(_pixel_shuffle, "pixel_shuffle")
    _add(_grid_sampler_cpu, "grid_sampler_2d")
    _add(_pixel_unshuffle, "pixel_unshuffle")
    _add(_index, "index.Tensor")
    _add(_index_put, "index_put", "index_put_")
    _add(_triangle, "tril", "triu")
    _add(_masked_fill, "masked_fill.Scalar")
    _add(_attention_cpu, "_scaled_dot_product_flash_attention_for_cpu")
    _add(_like, "clone", "_to_copy", "empty_like", "zeros_like", "ones_like", "full_like")
    _add(_like, "rand_like", "randn_like", "normal_functional", "uniform", "exponential")
    for overload in ("default", "low_dtype", "generator", "low_generator_dtype"):
        _add(_like, f"randint_like.{overload}")
    _add(_copy_, "copy_")
    _add(_written_to_part(torch.Tensor.select), "select_scatter")
    _add(_written_to_part(torch.ops.aten.slice.Tensor), "slice_scatter")
    _add(_written_to_part(torch.diagonal), "diagonal_scatter")
    _add(_factory, "zeros", "ones", "empty.memory_format", "rand", "randn")
    _add(_eye, "eye", "eye.m")
    _add(_group_norm_cpu, "native_group_norm")
    _add(_arange, "arange", "arange.start", "arange.start_step")


def _fill_with_contiguous() -> None:
    """Operators of which PyTorch's meta kernels think that they keep strides."""
    _add(_contiguous(_only_float), "poisson", "rrelu_with_noise")
    _add(_contiguous(_bool), "isin.Tensor_Tensor", "isin.Tensor_Scalar")
    _add(_contiguous(_promote, 1), "pow.Scalar")
    _add(_log_sigmoid, "log_sigmoid_forward")


_fill_with_pointwise()
_fill_with_others()
_fill_with_contiguous()
