"""`torch.func`: gradients, Jacobians and vectorisation of functions, each one node of the graph.

What a transform gives is an ordinary Python function around the user's. It is followed up to the
place where it starts to call the user's function in its own way.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch._functorch import eager_transforms
from torch._functorch import vmap as vmapping

from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import Body, Change, follow_body, record_body_call
from pliant.capture.model import CALL
from pliant.capture.native import BY_CODE, SHORTCUTS, function
from pliant.capture.torch_calls import convert
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, NONE, Break, Const, NotConstant, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import FunctionValue, Partial
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import GuardKind


def transform(
    trace: Trace,
    target: Callable[..., Any],
    body: Body,
    options: dict[str, Any],
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """The node for `transform(body, **options)(*args, *lifted, **kwargs)`."""
    vmapping.lazy_load_decompositions()  # PyTorch would do so in the middle of the run on fakes
    name = target.__name__
    nodes, fakes = _both(trace, args, name)
    pairs = {key: convert(trace, value, name) for key, value in kwargs.items()}
    return record_body_call(
        trace,
        target,
        (body.node, options, nodes, tuple(body.lifted), {k: p[0] for k, p in pairs.items()}),
        (body.module, options, fakes, body.lifted_fakes, {k: p[1] for k, p in pairs.items()}),
        effect=body.effect,
        may_write=target is targets.vmap,  # PyTorch refuses it in a derivative
    )


def _both(trace: Trace, values: list[Value], name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    pairs = [convert(trace, value, name) for value in values]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _differentiable(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.requires_grad_() if tensor.is_floating_point() or tensor.is_complex() else tensor


def _argnums(trace: Trace, argnums: Value, count: int) -> Any:
    """The argument numbers counted from the front: the body has more arguments behind the
    user's."""
    positions = known_object(trace.read(argnums), trace)
    numbers = positions if isinstance(positions, tuple) else (positions,)
    if not numbers or not all(type(n) is int and -count <= n < count for n in numbers):
        raise Break("operation-raises", f"argnums={positions}")
    counted = tuple(n % count for n in numbers)
    return counted if isinstance(positions, tuple) else counted[0]


def _derivative(
    trace: Trace,
    target: Callable[..., Any],
    func: Value,
    argnums: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    **options: Value,
) -> Value:
    chosen = _argnums(trace, argnums, len(args))
    numbers = chosen if isinstance(chosen, tuple) else (chosen,)
    changes: list[Change | None] = [
        _differentiable if index in numbers else None for index in range(len(args))
    ]
    body = _follow(trace, target.__name__, func, args, kwargs, changes)
    real_options = {key: trace.read(value).constant() for key, value in options.items()}
    return transform(trace, target, body, {"argnums": chosen, **real_options}, args, kwargs)


def _follow(
    trace: Trace,
    name: str,
    func: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    changes: list[Change | None],
) -> Body:
    """As `follow_body`, with gradients enabled: transforms that differentiate enable them, whatever
    the mode around them."""
    before = torch.is_grad_enabled()
    # The mode itself, and no node: whether results of fakes have a history depends on it.
    torch._C._set_grad_enabled(True)
    try:
        return follow_body(trace, name, func, args, kwargs, changes, once=True)
    finally:
        torch._C._set_grad_enabled(before)


def _arguments(trace: Trace, args: Value, kwargs: Value) -> tuple[list[Value], dict[str, Value]]:
    positional, named = trace.read(args), trace.read(kwargs)
    assert isinstance(positional, Sequence) and isinstance(named, Mapping)
    return list(positional.items), named.read_all(trace)


@function(eager_transforms.grad_impl)
def grad(
    trace: Trace, func: Value, argnums: Value, has_aux: Value, args: Value, kwargs: Value
) -> Value:
    arguments = _arguments(trace, args, kwargs)
    return _derivative(trace, targets.grad, func, argnums, *arguments, has_aux=has_aux)


@function(eager_transforms.grad_and_value_impl)
def grad_and_value(
    trace: Trace, func: Value, argnums: Value, has_aux: Value, args: Value, kwargs: Value
) -> Value:
    arguments = _arguments(trace, args, kwargs)
    return _derivative(trace, targets.grad_and_value, func, argnums, *arguments, has_aux=has_aux)


# ---- vmap


@function(vmapping.vmap_impl)
def vmap(
    trace: Trace,
    func: Value,
    in_dims: Value,
    out_dims: Value,
    randomness: Value,
    chunk_size: Value,
    *args: Value,
    **kwargs: Value,
) -> Value:
    settings = (in_dims, out_dims, randomness, chunk_size)
    dims, out, random, chunk = (known_object(trace.read(v), trace) for v in settings)
    dims = list(dims) if isinstance(dims, tuple | list) else [dims] * len(args)
    if len(dims) != len(args):
        raise Break("operation-raises", "vmap: in_dims")
    slices = [_sliced(trace, arg, dim) for arg, dim in zip(args, dims, strict=True)]
    once = chunk is None
    body = follow_body(trace, "vmap", func, slices, kwargs, [None] * len(slices), once=once)
    options = {
        # Tensors around the function are the same for all elements.
        "in_dims": tuple(dims) + (None,) * len(body.lifted),
        "out_dims": out,
        "randomness": random,
        "chunk_size": chunk,
    }
    return transform(trace, targets.vmap, body, options, list(args), kwargs)


def _sliced(trace: Trace, value: Value, dims: Any) -> Value:
    """One element of the batch, for which `vmap` calls the function. The value's node isn't used:
    `follow_body` makes a placeholder of it."""
    value = trace.read(value)
    if dims is None:
        return value
    if isinstance(value, TensorValue):
        if type(dims) is not int or not -value.fake.dim() <= dims < value.fake.dim():
            raise Break("operation-raises", "vmap: in_dims")
        fake = trace.world.run(_element, (value.fake, dims)).value
        return TensorValue(value.node, fake, value.cls)
    if isinstance(value, Sequence):
        per_item = dims if isinstance(dims, tuple | list) else [dims] * len(value.items)
        if len(per_item) != len(value.items):
            raise Break("operation-raises", "vmap: in_dims")
        items = [_sliced(trace, item, dim) for item, dim in zip(value.items, per_item, strict=True)]
        return Sequence(value.cls, items)
    if isinstance(value, Mapping):
        entries = value.read_all(trace)
        table = dims if isinstance(dims, dict) else dict.fromkeys(entries, dims)
        if list(table) != list(entries):
            raise Break("operation-raises", "vmap: in_dims")
        return Mapping(value.cls, {k: _sliced(trace, v, table[k]) for k, v in entries.items()})
    raise Break("operation-raises", "vmap: in_dims")


def _element(t: torch.Tensor, dim: int) -> torch.Tensor:
    """Like `t.select(dim, 0)`, also if the size is 0."""
    dim %= t.dim()
    sizes, strides = list(t.size()), list(t.stride())
    del sizes[dim], strides[dim]
    return t.new_empty_strided(sizes, strides).requires_grad_(t.requires_grad)


# ---- Jacobians: their wrappers are known by their code


def code_inside(outer: Any, *names: str) -> types.CodeType:
    """The code of a function defined inside `outer`, or inside a function defined there."""
    code: types.CodeType = outer.__code__
    for name in names:
        inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
        code = next(const for const in inner if const.co_name == name)
    return code


def closure_of(trace: Trace, target: FunctionValue) -> dict[str, Value]:
    names = target.code.co_freevars
    cells = zip(names, target.closure(trace), strict=True)
    return {name: trace.read(cell.contents) for name, cell in cells if cell.contents is not None}


def _jacobian(target: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Value]:
    def jacobian(
        trace: Trace,
        wrapper: FunctionValue,
        args: list[Value],
        kwargs: dict[str, Value],
        direct: bool,
    ) -> Value:
        around = closure_of(trace, wrapper)
        options = {name: around[name] for name in names if name in around}
        return _derivative(
            trace, target, around["func"], around["argnums"], args, kwargs, **options
        )

    return jacobian


BY_CODE[code_inside(eager_transforms.jacrev, "wrapper_fn")] = _jacobian(
    targets.jacrev, ("has_aux", "chunk_size", "_preallocate_and_copy")
)
BY_CODE[code_inside(eager_transforms.jacfwd, "wrapper_fn")] = _jacobian(
    targets.jacfwd, ("has_aux", "randomness")
)


# ---- jvp and vjp


@function(eager_transforms._jvp_with_argnums)
def jvp(
    trace: Trace,
    func: Value,
    primals: Value,
    tangents: Value,
    argnums: Value,
    *,
    strict: Value = FALSE,
    has_aux: Value,
) -> Value:
    primal_values, along = trace.read(primals), trace.read(tangents)
    chosen = trace.read(argnums)
    if (
        not isinstance(primal_values, Sequence)
        or not isinstance(chosen, Const)
        or chosen.value is not None
    ):
        raise Break("operation-raises", "torch.func.jvp")
    args = list(primal_values.items)
    body = follow_body(trace, "jvp", func, args, {}, [None] * len(args), once=True)
    nodes, fakes = _both(trace, args, "jvp")
    node, fake = convert(trace, along, "jvp")
    options = {"strict": trace.read(strict).constant(), "has_aux": trace.read(has_aux).constant()}
    return record_body_call(
        trace,
        targets.jvp,
        (body.node, options, nodes, tuple(body.lifted), node),
        (body.module, options, fakes, tuple(body.lifted_fakes), fake),
        effect=body.effect,
        may_write=False,
    )


class Pullback(Value):
    """The function that `torch.func.vjp` returns."""

    __slots__ = ("body", "fakes", "nodes", "options")

    def __init__(self, body: Body, options: dict[str, Any], nodes: Any, fakes: Any) -> None:
        super().__init__()
        self.body = body
        self.options = options
        self.nodes = nodes
        self.fakes = fakes

    def python_type(self) -> type:
        return types.FunctionType

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        raise Break("unsupported-attribute", f"the function of torch.func.vjp, {name}")


def call_pullback(
    trace: Trace, target: Pullback, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    if kwargs:
        raise Break("operation-argument", "keyword arguments of the function of torch.func.vjp")
    nodes, fakes = _both(trace, args, "vjp")
    body, options = target.body, target.options
    return record_body_call(
        trace,
        targets.vjp_apply,
        (body.node, options, target.nodes, tuple(body.lifted), nodes),
        (body.module, options, target.fakes, tuple(body.lifted_fakes), fakes),
    )


CALL[Pullback] = call_pullback


@function(eager_transforms._vjp_with_argnums)
def vjp(
    trace: Trace,
    func: Value,
    *primals: Value,
    argnums: Value = NONE,
    has_aux: Value = FALSE,
) -> Value:
    if trace.read(argnums).constant() is not None:
        raise Break("operation-argument", "torch.func.vjp with argnums")
    args = list(primals)
    body = _follow(trace, "vjp", func, args, {}, [_differentiable] * len(args))
    if body.effect:
        raise Break("body-effect", "torch.func.vjp of a function that draws or writes")
    nodes, fakes = _both(trace, args, "vjp")
    options = {"has_aux": trace.read(has_aux).constant()}
    result = record_body_call(
        trace,
        targets.vjp_result,
        (body.node, options, nodes, tuple(body.lifted)),
        (body.module, options, fakes, tuple(body.lifted_fakes)),
    )
    pullback = Pullback(body, options, nodes, fakes)
    if not options["has_aux"]:
        return Sequence(tuple, [result, pullback])
    assert isinstance(result, Sequence)
    return Sequence(tuple, [result.items[0], pullback, result.items[1]])


# ---- torch.utils.checkpoint

CHECKPOINT_OPTIONS = ("use_reentrant", "determinism_check", "debug", "preserve_rng_state")


def checkpoint(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`torch.utils.checkpoint.checkpoint`: the function becomes a body, which PyTorch runs again in
    the backward."""
    if not args or "early_stop" in kwargs:
        raise Break("operation-argument", "checkpoint with these options")
    kwargs = dict(kwargs)
    context = _context_of(trace, kwargs.pop("context_fn", NONE))
    options = {k: trace.read(v).constant() for k, v in kwargs.items() if k in CHECKPOINT_OPTIONS}
    if options.get("use_reentrant") is None:
        # PyTorch warns about it, at the user's line.
        raise Break("warning", "checkpoint without use_reentrant")
    rest = {k: v for k, v in kwargs.items() if k not in CHECKPOINT_OPTIONS}
    function_args = args[1:]
    body = follow_body(
        trace, "checkpoint", args[0], function_args, rest, [None] * len(function_args)
    )
    nodes, fakes = _both(trace, function_args, "checkpoint")
    pairs = {key: convert(trace, value, "checkpoint") for key, value in rest.items()}
    named, named_fakes = ({k: p[side] for k, p in pairs.items()} for side in (0, 1))
    contexts = () if context is None else (trace.graph.attribute("context_fn", context),)
    return record_body_call(
        trace,
        targets.checkpoint,
        (body.node, options, nodes, tuple(body.lifted), named, *contexts),
        (body.module, options, fakes, body.lifted_fakes, named_fakes),
        effect=body.effect,
        on_fakes=targets.checkpoint_on_fakes,
    )


def _context_of(trace: Trace, value: Value) -> Any:
    """The real function that is given as `context_fn`, guarded to be the same one; None if none is.
    PyTorch calls it when the code runs."""
    read = trace.read(value)
    real = getattr(read, "real", None)
    if real is not None and read.source is not None:
        trace.guard(GuardKind.IS, read.source, real)
        return real
    if isinstance(read, Partial):  # made where it is used
        function, *args = (_context_of(trace, part) for part in (read.function, *read.args))
        if function is not None and read.cls is functools.partial and not read.keywords:
            return functools.partial(function, *args)
        raise Break("operation-argument", "checkpoint with these options")
    try:
        return known_object(read, trace)
    except NotConstant:
        raise Break("operation-argument", "checkpoint with these options") from None


SHORTCUTS[torch.utils.checkpoint.checkpoint] = checkpoint
