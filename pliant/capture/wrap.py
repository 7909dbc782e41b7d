"""Objects from outside become values: what each kind is assumed to be, and the guards for it.

A table from Python class to builder. A builder assumes as little as it can: containers assume their
length or keys but nothing of their items, instances nothing but their class. What follows from an
assumption is read when it is needed.
"""

from __future__ import annotations

import enum
import functools
import re
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Generic

import torch
from torch._subclasses.fake_tensor import FakeTensor

from pliant._native import Dispatcher, is_python_class
from pliant.capture.inputs import Layout
from pliant.capture.residual_helpers import as_plain
from pliant.capture.trace import PLAIN, Trace
from pliant.capture.value import Break, Const, ForeignTracer, Unread, Value
from pliant.capture.values.containers import Mapping, Sequence, SetValue, element_of
from pliant.capture.values.functions import (
    BoundMethod,
    BuiltinMethod,
    CompiledFunction,
    FunctionValue,
    Partial,
)
from pliant.capture.values.objects import Cell, ExceptionValue, Instance, Opaque, SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.fake import is_transformed, kind_without_fake
from pliant.fake.wrappers import has_own_sizes, is_wrapper, make_wrapper
from pliant.guards.guard import ExpectedTensor, GuardKind
from pliant.guards.predicates import EqualNumber, FlattensTo, SameValue
from pliant.guards.source import Attr, DictItem, Fixed, SeqItem, Source, attribute
from pliant.sym.node import from_torch

PLAIN_BASES = (int, float, complex, str, bytes)
NUMBERS = (int, float)
Builder = Callable[[Trace, Any, Source], Value]


def wrap(trace: Trace, real: Any, source: Source) -> Value:
    """The value for `real`, found at `source`."""
    cls = type(real)
    if cls in PLAIN:
        if cls in NUMBERS and not isinstance(source, Fixed):
            number = trace.inputs.number(real, source)
            if number is not None:
                return number
        _assume(trace, GuardKind.EQUALS, source, real)
        return Const(real)
    builder = builder_of(cls)
    # Each path to one has a guard of its own, so that nothing has to be remembered.
    if builder in CONSTANTS:
        return builder(trace, real, source)
    existing = trace.known(real, source)
    if existing is not None:
        return existing
    value = builder(trace, real, source)
    trace.remember(real, value)
    return value


def builder_of(cls: type) -> Builder:
    """How objects of a class are wrapped, decided once for each class."""
    builder = BUILDERS.get(cls) or _chosen.get(cls)
    if builder is None:
        # Weak keys: classes that the program drops are not kept.
        builder = _chosen[cls] = _choose(cls)
    return builder


_chosen: weakref.WeakKeyDictionary[type, Builder] = weakref.WeakKeyDictionary()


# For classes that are known by what they look like.
CHOOSERS: list[Callable[[type], Builder | None]] = []


def _choose(cls: type) -> Builder:
    """Decide for a class met for the first time, by what it is derived from."""
    for choose in CHOOSERS:
        chosen = choose(cls)
        if chosen is not None:
            return chosen
    for base, builder in BY_BASE:
        if issubclass(cls, base):
            return builder
    return instance if has_python_layout(cls) else _opaque


def has_python_layout(cls: type) -> bool:
    """Whether instances are plain objects: no class in the MRO but `object` is defined in C.
    (`Generic` is, since Python 3.12, and adds nothing to its instances.)"""
    return all(base in (object, Generic) or is_python_class(base) for base in cls.__mro__)


def _assume(trace: Trace, kind: GuardKind, source: Source, expected: Any) -> None:
    """Add a guard, except on an object that the entry holds on to itself."""
    if not isinstance(source, Fixed):
        trace.guard(kind, source, expected)


def assume_type(trace: Trace, source: Source, cls: type) -> None:
    _assume(trace, GuardKind.TYPE, source, cls)


# ---- constants


def _equal_constant(trace: Trace, real: Any, source: Source) -> Value:
    _assume(trace, GuardKind.EQUALS, source, real)
    return Const(real, source)


def _same_constant(trace: Trace, real: Any, source: Source) -> Value:
    _assume(trace, GuardKind.IS, source, real)
    return Const(real, source)


def _subclass_constant(trace: Trace, real: Any, source: Source) -> Value:
    """An instance of a subclass of a number or string, `numpy.float64` among them."""
    base = next(base for base in PLAIN_BASES if isinstance(real, base))
    _assume(trace, GuardKind.TYPE, source, type(real))
    _assume(trace, GuardKind.PREDICATE, source, EqualNumber(base, real))
    return Const(real, source)


def native_value(trace: Trace, real: Any, source: Source) -> Value:
    """An object of a C++ class that never changes."""
    _assume(trace, GuardKind.PREDICATE, source, SameValue(real))
    return Const(real, source)


def _range(trace: Trace, real: range, source: Source) -> Value:
    """Ranges can be equal and yet have another start or stop."""
    _assume(trace, GuardKind.TYPE, source, range)
    for name in ("start", "stop", "step"):
        _assume(trace, GuardKind.EQUALS, Attr(source, name), getattr(real, name))
    return Const(real, source)


def _slice(trace: Trace, real: slice, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, slice)
    parts = [Unread(getattr(real, name), Attr(source, name)) for name in ("start", "stop", "step")]
    return SliceValue(list(parts), source)


# ---- tensors


def _foreign(trace: Trace, real: Any, source: Source) -> Value:
    raise ForeignTracer(f"{source} is a {type(real).__qualname__}")


def _tensor(trace: Trace, real: torch.Tensor, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    if is_wrapper(real) and not _hides_itself(type(real)):
        return _wrapper(trace, real, source)
    transformed = trace.under_transforms and is_transformed(real)
    if _hides_itself(type(real)) or not (transformed or kind_without_fake(real) is None):
        return Opaque(real, source)
    # A subclass with `__torch_function__`: what that does is followed by `overrides`.
    plain = has_torch_function(type(real))
    # The graph computes with plain tensors; what the class does instead has been followed.
    shown = as_plain(real) if plain else real
    layout = trace.inputs.layout(shown, source)
    traced_layout = None if layout is None else (layout.sizes, layout.strides)
    fake = trace.world.from_real(real, traced_layout)
    trace.guard(GuardKind.TENSOR, source, tensor_spec(shown, layout))
    node = trace.graph.tensor_input(source, shown, plain, fake)
    # Symbols that are sizes or strides of this input are read from it, if a node needs them.
    if layout is not None:
        trace.sizes.nodes.settle_sizes(fake, node)
        trace.sizes.nodes.settle_strides(fake, node)
    value = TensorValue(node, fake, type(real), real, source)
    value.plain = plain
    trace.tensors[id(fake)] = value
    # A write to this memory outlives a graph that fails.
    trace.graph_effects.outside.add(fake.untyped_storage()._cdata)
    return value


def _wrapper(trace: Trace, real: Any, source: Source) -> Value:
    """A tensor that is made of others. These are read like any others, and are no inputs of the
    graph themselves."""
    names, context = real.__tensor_flatten__()
    if has_own_sizes(real):  # whose strides are multiples of the ragged size by constants
        ragged, values = real._ragged_idx - 1, real._values
        beside = set(range(values.dim())) - {ragged}
        trace.inputs.constant[str(Attr(source, "_values"))] = beside
    inner = {name: trace.read(Unread(getattr(real, name), Attr(source, name))) for name in names}
    if not all(isinstance(value, TensorValue) and not value.plain for value in inner.values()):
        return Opaque(real, source)
    fakes = {name: value.fake for name, value in inner.items()}  # type: ignore[attr-defined]
    sizes, strides = real.size(), real.stride()
    shown: tuple[tuple[str, int, str], ...] = ()
    if not has_own_sizes(real):
        layout, shown = _outer_layout(trace, real, fakes)
        trace.guard(GuardKind.TENSOR, source, tensor_spec(real, layout))
        sizes, strides = torch.Size(layout.sizes), layout.strides
    _assume(trace, GuardKind.PREDICATE, source, FlattensTo(tuple(names), context, shown))
    trace.world.wraps = True
    fake: Any = make_wrapper(real, fakes, context, sizes, strides)
    node = trace.graph.tensor_input(source, real, False, fake)
    if fake._has_symbolic_sizes_strides and not has_own_sizes(fake):
        trace.sizes.nodes.settle_sizes(fake, node)
    value = TensorValue(node, fake, type(real), real, source)
    trace.tensors[id(fake)] = value
    return value


def _outer_layout(
    trace: Trace, real: torch.Tensor, inner: dict[str, torch.Tensor]
) -> tuple[Layout, tuple[tuple[str, int, str], ...]]:
    """The sizes and strides that such a tensor shows. One that a tensor inside has too is the same
    symbol, which is guarded; the others are constants."""
    shown: dict[str, list[Any]] = {"size": list(real.size()), "stride": list(real.stride())}
    shared: list[tuple[str, int, str]] = []
    for measure, numbers in shown.items():
        for dim, number in enumerate(numbers):
            for name, part in inner.items():
                symbol = getattr(part, measure)(dim) if part.dim() == real.dim() else number
                if isinstance(symbol, torch.SymInt) and _hint(trace, symbol) == number:
                    shared.append((measure, dim, name))
                    numbers[dim] = symbol
                    break
    fixed = [
        tuple(n if isinstance(n, int) else None for n in numbers) for numbers in shown.values()
    ]
    return Layout(tuple(shown["size"]), tuple(shown["stride"]), *fixed), tuple(shared)


def _hint(trace: Trace, symbol: torch.SymInt) -> int | None:
    return trace.sizes.env.hint(from_torch(symbol))


# What is asked of a tensor to know what it is.
ASKED = (
    "size", "stride", "storage_offset", "untyped_storage", "is_leaf", "requires_grad", "grad",
    "_base", "_version", "_is_view", "is_inference", "is_conj", "is_neg", "layout",
)  # fmt: skip


def _hides_itself(cls: type) -> bool:
    """Whether a class of tensors gives answers of its own to such questions."""
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        return False
    return any(getattr(cls, name) is not getattr(torch.Tensor, name) for name in ASKED)


def has_torch_function(cls: type) -> bool:
    """Whether a class of tensors overrides PyTorch's functions."""
    override = getattr(cls, "__torch_function__", None)
    return cls is not torch.Tensor and override is not torch._C._disabled_torch_function_impl


def tensor_spec(real: torch.Tensor, layout: Layout | None) -> ExpectedTensor:
    """What the graph assumes of an input."""
    return ExpectedTensor(
        dtype=real.dtype,
        device=real.device,
        requires_grad=real.requires_grad,
        sizes=tuple(real.size()) if layout is None else layout.fixed_sizes,
        strides=tuple(real.stride()) if layout is None else layout.fixed_strides,
        storage_offset=None,  # slices of one tensor are alike; guarded when the program reads it
        dispatch_keys=torch._C._dispatch_keys(real).raw_repr(),
    )


# ---- containers


def _sequence(trace: Trace, real: Any, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))

    # Called when an item or the length is first needed: only then is the length guarded.
    def load() -> list[Value]:
        # Past an `__iter__` of a subclass, which is followed when the program iterates.
        items = tuple.__iter__(real) if isinstance(real, tuple) else list.__iter__(real)
        values: list[Value] = [Unread(item, SeqItem(source, i)) for i, item in enumerate(items)]
        trace.guard(GuardKind.LENGTH, source, len(values))
        return values

    value = Sequence(type(real), [], source, load=load)
    value.real = real
    return value


def _deque(trace: Trace, real: deque[Any], source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    trace.guard(GuardKind.EQUALS, Attr(source, "maxlen"), real.maxlen)

    def load() -> list[Value]:
        trace.guard(GuardKind.LENGTH, source, len(real))
        return [Unread(item, SeqItem(source, i)) for i, item in enumerate(real)]

    value = Sequence(type(real), [], source, real.maxlen, load)
    value.real = real
    return value


def _mapping(trace: Trace, real: dict[Any, Any], source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    value = Mapping(type(real), source=source, backing=real)
    value.real = real
    if isinstance(real, defaultdict):
        value.factory = Unread(real.default_factory, Attr(source, "default_factory"))
    return value


def _set(trace: Trace, real: Any, source: Source) -> Value:
    functions = [item for item in real if type(item) is types.FunctionType]
    # Elements that hash by Python code could not be guarded.
    if not all(trace.is_plain_constant(item) or item in functions for item in real):
        return _opaque(trace, real, source)
    _assume(trace, GuardKind.TYPE, source, type(real))
    _assume(trace, GuardKind.ELEMENTS, source, tuple(real))
    if not functions:
        return SetValue(type(real), set(real), source)
    return SetValue(type(real), [element_of(trace, trace.wrap_pinned(i)) for i in real], source)


# ---- functions


def _function(trace: Trace, real: types.FunctionType, source: Source) -> Value:
    # By code and globals: a closure that each call of its outer function makes anew still fits.
    trace.guard(GuardKind.FUNCTION, source, (real.__code__, real.__globals__))
    return FunctionValue(real.__code__, real.__globals__, real, source)


def _bound_method(trace: Trace, real: types.MethodType, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, types.MethodType)
    function = Unread(real.__func__, attribute(source, real, "__func__"))
    return BoundMethod(function, Unread(real.__self__, attribute(source, real, "__self__")), source)


def _builtin_function(trace: Trace, real: Any, source: Source) -> Value:
    owner = real.__self__
    if owner is None or isinstance(owner, types.ModuleType | type):
        return _same_constant(trace, real, source)
    # A bound method of a C object, such as `some_list.append`.
    descriptor = trace.lookup(type(owner), real.__name__)
    if not isinstance(descriptor, types.MethodDescriptorType | types.WrapperDescriptorType):
        return _same_constant(trace, real, source)
    _assume(trace, GuardKind.TYPE, source, type(real))
    trace.guard(GuardKind.EQUALS, Attr(source, "__name__"), real.__name__)
    obj = trace.read(Unread(owner, Attr(source, "__self__")))
    method = BuiltinMethod(descriptor.__objclass__, real.__name__, descriptor, obj)
    method.source = source
    return method


def _compiled(trace: Trace, real: Dispatcher, source: Source) -> Value:
    """A function that pliant compiles is followed like any other."""
    _assume(trace, GuardKind.TYPE, source, Dispatcher)
    compiler = getattr(real.on_miss, "__self__", None)
    fullgraph = bool(getattr(compiler, "fullgraph", False))
    return CompiledFunction(Unread(real.fn, Attr(source, "fn")), source, fullgraph)


def _partial(trace: Trace, real: functools.partial[Any], source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    # A subclass may have properties of these names.
    called, positional, named = (
        functools.partial.__dict__[name].__get__(real) for name in ("func", "args", "keywords")
    )
    if real.func is not called or real.args is not positional or real.keywords is not named:
        raise Break("unsupported", f"a {type(real).__name__} with attributes of its own")
    args, keywords = Attr(source, "args"), Attr(source, "keywords")
    trace.guard(GuardKind.LENGTH, args, len(positional))
    trace.guard(GuardKind.KEYS, keywords, tuple(named))
    return Partial(
        type(real),
        Unread(called, Attr(source, "func")),
        [Unread(item, SeqItem(args, i)) for i, item in enumerate(positional)],
        {key: Unread(item, DictItem(keywords, key)) for key, item in named.items()},
        real,
        source,
    )


# ---- objects


def instance(trace: Trace, real: Any, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    return Instance(type(real), real, source)


def _exception(trace: Trace, real: BaseException, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    args = Attr(source, "args")
    trace.guard(GuardKind.LENGTH, args, len(real.args))
    items: list[Value] = [Unread(item, SeqItem(args, i)) for i, item in enumerate(real.args)]
    return ExceptionValue(type(real), items, real, source)


def _cell(trace: Trace, real: types.CellType, source: Source) -> Value:
    return Cell.from_outside(real, source)


def _opaque(trace: Trace, real: Any, source: Source) -> Value:
    _assume(trace, GuardKind.TYPE, source, type(real))
    return Opaque(real, source)


def _method_wrapper(trace: Trace, real: types.MethodWrapperType, source: Source) -> Value:
    """`type.__dict__["__mro__"].__get__` is as constant as the descriptor."""
    descriptor = type(real.__self__) in (types.GetSetDescriptorType, types.MemberDescriptorType)
    return (_same_constant if descriptor else _opaque)(trace, real, source)


def _class(trace: Trace, real: type, source: Source) -> Value:
    return _same_constant(trace, real, source)


BUILDERS: dict[type, Builder] = {
    **dict.fromkeys(
        (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme),
        _equal_constant,
    ),
    **dict.fromkeys(
        (types.ModuleType, types.CodeType, property, staticmethod, classmethod,
         types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
         types.GetSetDescriptorType, types.MemberDescriptorType, types.GenericAlias,
         types.UnionType, re.Pattern, torch.finfo, torch.iinfo, type(NotImplemented)),
        _same_constant,
    ),
    types.MethodWrapperType: _method_wrapper,
    torch.Tensor: _tensor,
    torch.nn.Parameter: _tensor,
    torch.nn.Buffer: _tensor,
    list: _sequence,
    tuple: _sequence,
    deque: _deque,
    dict: _mapping,
    OrderedDict: _mapping,
    defaultdict: _mapping,
    set: _set,
    frozenset: _set,
    slice: _slice,
    range: _range,
    types.FunctionType: _function,
    types.MethodType: _bound_method,
    types.BuiltinFunctionType: _builtin_function,
    functools.partial: _partial,
    types.CellType: _cell,
    types.SimpleNamespace: instance,
    Dispatcher: _compiled,
}  # fmt: skip

# Objects without an identity that matters.
CONSTANTS: set[Builder] = {
    _equal_constant, _same_constant, _subclass_constant, _range, native_value
}  # fmt: skip

# For classes not listed: the first base that fits. Order matters.
BY_BASE: tuple[tuple[Any, Builder], ...] = (
    (type, _class),
    (enum.Enum, _same_constant),
    ((types.ModuleType, property, staticmethod, classmethod), _same_constant),
    ((torch.fx.Proxy, FakeTensor), _foreign),
    (torch.Tensor, _tensor),
    (BaseException, _exception),
    ((torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace), _same_constant),
    ((list, tuple), _sequence),
    (dict, _mapping),
    (functools.partial, _partial),
    (PLAIN_BASES, _subclass_constant),
)
