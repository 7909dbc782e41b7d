"""What nodes of the graph call where PyTorch has no function that takes a body and tensors only.

Each is an ordinary function, which backends may call, trace through or recognise. A body takes the
arguments of the function that it was, then the tensors around it that it uses (`lifted`).
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils import _pytree as pytree

from pliant.base.bodies import BODY_CALLS, BodyCall
from pliant.base.torch_versions import SCANS_STACK_ALONG_DIM
from pliant.fake import Fake
from pliant.fake.functions import made_by

Body = Callable[..., Any]
Options = dict[str, Any]


# ---- transforms of functions


def grad(body: Body, options: Options, args: Any, lifted: Any, kwargs: Options) -> Any:
    return torch.func.grad(body, **options)(*args, *lifted, **kwargs)


def grad_and_value(body: Body, options: Options, args: Any, lifted: Any, kwargs: Options) -> Any:
    return torch.func.grad_and_value(body, **options)(*args, *lifted, **kwargs)


def vmap(body: Body, options: Options, args: Any, lifted: Any, kwargs: Options) -> Any:
    return torch.func.vmap(body, **options)(*args, *lifted, **kwargs)


def jacrev(body: Body, options: Options, args: Any, lifted: Any, kwargs: Options) -> Any:
    return torch.func.jacrev(body, **options)(*args, *lifted, **kwargs)


def jacfwd(body: Body, options: Options, args: Any, lifted: Any, kwargs: Options) -> Any:
    return torch.func.jacfwd(body, **options)(*args, *lifted, **kwargs)


def jvp(body: Body, options: Options, primals: Any, lifted: Any, tangents: Any) -> Any:
    return torch.func.jvp(lambda *args: body(*args, *lifted), primals, tangents, **options)


def vjp_result(body: Body, options: Options, primals: Any, lifted: Any) -> Any:
    """The result of the function; with `has_aux` also the auxiliary one."""
    results = torch.func.vjp(lambda *args: body(*args, *lifted), *primals, **options)
    return results[0] if len(results) == 2 else (results[0], results[2])


def vjp_apply(body: Body, options: Options, primals: Any, lifted: Any, cotangents: Any) -> Any:
    """Call the function that `torch.func.vjp` returns. It computes the result again: a node can't
    return a function."""
    return torch.func.vjp(lambda *args: body(*args, *lifted), *primals, **options)[1](*cotangents)


BODY_CALLS.update(
    dict.fromkeys((grad, grad_and_value, vmap, jacrev, vjp_result, vjp_apply), BodyCall.TRANSFORM)
)
BODY_CALLS.update(dict.fromkeys((jacfwd, jvp), BodyCall.FORWARD_MODE))


# ---- autograd.Function

# By the address of the class, which the function keeps.
_applied: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()


def apply_of(cls: Any) -> Callable[..., Any]:
    """`cls.apply` as a function with a name of its own: a bound method of PyTorch's can't be
    written in a graph."""
    applied = _applied.get(id(cls))
    if applied is None:

        def apply(*args: Any, **kwargs: Any) -> Any:
            return cls.apply(*args, **kwargs)

        apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
        applied = _applied[id(cls)] = apply
    return applied


# ---- objects


def record_of(cls: Any, state: dict[str, Any]) -> Any:
    """An object with these attributes, made without running code of its class."""
    record = object.__new__(cls)
    vars(record).update(state)
    return record


# ---- wrapper subclasses


def with_part(wrapper: torch.Tensor, name: str, part: Any) -> torch.Tensor:
    """Set an attribute of the wrapper, and return the wrapper: later nodes use this result."""
    if type(part) is Fake and (world := part._world()) is not None:
        world.wraps = True  # type: ignore[attr-defined]
    with torch._C.DisableTorchFunction():
        object.__setattr__(wrapper, name, part)
    return wrapper


def keeper_of(name: str, constant: Any) -> Callable[..., Any]:
    """A function that sets an attribute of a wrapper to a constant, which the graph need not be
    able to print."""

    def with_constant(wrapper: torch.Tensor) -> torch.Tensor:
        return with_part(wrapper, name, constant)

    with_constant.__name__ = with_constant.__qualname__ = f"with_{name}"
    return with_constant


# ---- parameters


def parameter(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return torch.Tensor._make_subclass(torch.nn.Parameter, data, requires_grad)


def buffer(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    return torch.Tensor._make_subclass(torch.nn.Buffer, data, requires_grad)


def leaf_like(data: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """`parameter` and `buffer` on fakes, which have no subclasses: a leaf with the same
    metadata."""
    return data.detach().requires_grad_(requires_grad)


# ---- hooks


def register_hook(tensor: torch.Tensor, body: Body, lifted: Any) -> Any:
    return tensor.register_hook(functools.partial(_hook, body, lifted))


def _hook(body: Body, lifted: Any, grad: torch.Tensor) -> Any:
    return body(grad, *lifted)


# ---- recomputation


def checkpoint(
    body: Body, options: Options, args: Any, lifted: Any, kwargs: Options, context_fn: Any = None
) -> Any:
    """`torch.utils.checkpoint`. `lifted` are not passed as arguments: whether PyTorch takes
    gradients to be wanted depends on `args` alone."""
    function = functools.partial(_with_lifted, body, lifted)
    if context_fn is not None:
        options = {**options, "context_fn": context_fn}
    return torch.utils.checkpoint.checkpoint(function, *args, **options, **kwargs)


def checkpoint_on_fakes(
    body: Body, options: Options, args: Any, lifted: Any, kwargs: Options
) -> Any:
    """`checkpoint` on fakes: the body is simply run, since the result doesn't show which tensors
    are kept. Only a reentrant checkpoint leaves a node of its own in the history."""
    results = body(*args, *lifted, **kwargs)
    needs_grad = any(_requires_grad(t) for t in pytree.tree_leaves(args))
    if not options["use_reentrant"]:
        return results
    if not needs_grad:
        return pytree.tree_map_only(torch.Tensor, torch.detach, results)
    # The engine goes through the body within the backward of the checkpoint, up to its arguments
    # and to the leaves in it. Of other tensors the history would be used up there.
    whole = all(t.is_leaf for t in lifted if _requires_grad(t))
    return pytree.tree_map_only(
        torch.Tensor,
        lambda t: _Reentrant.apply(t if whole and t.requires_grad else _unknown(t)),
        results,
    )


def _unknown(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with a history that nothing is known of."""
    return tensor.detach().requires_grad_()


class _Reentrant(torch.autograd.Function):
    """A reentrant checkpoint in the history of its results."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor) -> torch.Tensor:
        return result * 1

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def is_reentrant(node: Any) -> bool:
    """Whether a node of autograd stands for a reentrant checkpoint: one that `backward` goes
    through to all leaves, or not at all."""
    return made_by(node, _Reentrant)


BODY_CALLS[register_hook] = BodyCall.HOOK
BODY_CALLS[checkpoint] = BodyCall.CHECKPOINT


def _with_lifted(body: Body, lifted: Any, *args: Any, **kwargs: Any) -> Any:
    return body(*args, *lifted, **kwargs)


# ---- subgraphs


def invoke_subgraph(body: Body, identifier: str, *operands: Any) -> Any:
    """Call the body of a region that the program marked as one to be compiled once."""
    return body(*operands)


BODY_CALLS[invoke_subgraph] = BodyCall.INLINED


# ---- control flow


def cond(pred: Any, true_body: Body, false_body: Body, true_lifted: Any, false_lifted: Any) -> Any:
    if type(pred) is Fake:  # inside of another body
        return cond_on_fakes(pred, true_body, false_body, true_lifted, false_lifted)
    return true_body(*true_lifted) if pred else false_body(*false_lifted)


BODY_CALLS[cond] = BodyCall.BRANCHES


def while_loop(test: Body, step: Body, carried: Any, test_lifted: Any, step_lifted: Any) -> Any:
    carried = tuple(carried)
    if type(carried[0]) is Fake:
        return while_loop_on_fakes(test, step, carried, test_lifted, step_lifted)
    initial = carried
    while test(*carried, *test_lifted):
        carried = tuple(step(*carried, *step_lifted))
    # What was given is not returned itself.
    return carried if carried is not initial else tuple(t.clone() for t in carried)


def scan(body: Body, carry: Any, inputs: Any, dim: int, reverse: bool, lifted: Any) -> Any:
    """`inputs` are scanned along `dim`, which is the one that results are stacked along, if the
    stack has as many, from PyTorch 2.12 on."""
    if type(pytree.tree_leaves(inputs)[0]) is Fake:
        return scan_on_fakes(body, carry, inputs, dim, reverse, lifted)
    steps = range(pytree.tree_leaves(inputs)[0].shape[dim])
    outputs = []
    for index in reversed(steps) if reverse else steps:
        carry, output = body(carry, _each(inputs, dim, index), *lifted)
        outputs.append(output)
    return carry, _along(dim, _stacked(outputs[::-1] if reverse else outputs))


def map_over(body: Body, inputs: Any, rest: Any, lifted: Any) -> Any:
    if type(pytree.tree_leaves(inputs)[0]) is Fake:
        return map_on_fakes(body, inputs, rest, lifted)
    steps = range(pytree.tree_leaves(inputs)[0].shape[0])
    return _stacked([body(_each(inputs, 0, index), *rest, *lifted) for index in steps])


def _each(inputs: Any, dim: int, index: int) -> Any:
    return pytree.tree_map(lambda t: t.select(dim, index), inputs)


def _along(dim: int, stacks: Any) -> Any:
    if not SCANS_STACK_ALONG_DIM:
        return stacks
    return pytree.tree_map(lambda t: t.movedim(0, dim) if dim < t.dim() else t, stacks)


def _stacked(outputs: list[Any]) -> Any:
    return pytree.tree_map(lambda *each: torch.stack(each), *outputs)


BODY_CALLS[while_loop] = BODY_CALLS[scan] = BODY_CALLS[map_over] = BodyCall.LOOP


# ---- on fakes: all ways are tried, and no step is repeated


def cond_on_fakes(pred: Any, true: Body, false: Body, true_lifted: Any, false_lifted: Any) -> Any:
    ways = [true(*true_lifted), false(*false_lifted)]
    leaves = [pytree.tree_leaves(way) for way in ways]
    if pytree.tree_structure(ways[0]) != pytree.tree_structure(ways[1]):
        raise RuntimeError("torch.cond: the branches give results of different structure")
    for pair in zip(*leaves, strict=True):
        _must_agree(*pair)
    _no_inputs_among(leaves[0] + leaves[1], [*true_lifted, *false_lifted])
    return ways[1 if any(_requires_grad(leaf) for leaf in leaves[1]) else 0]


def while_loop_on_fakes(
    test: Body, step: Body, carried: Any, test_lifted: Any, step_lifted: Any
) -> Any:
    pred = test(*carried, *test_lifted)
    if not isinstance(pred, torch.Tensor) or pred.dtype is not torch.bool or pred.numel() != 1:
        raise RuntimeError("torch.while_loop: the condition must be a boolean tensor")
    stepped = tuple(step(*carried, *step_lifted))
    for pair in zip(carried, stepped, strict=True):
        _must_agree(*pair)
    _no_inputs_among(list(stepped), [*carried, *step_lifted])
    if _strides(carried) != _strides(stepped):  # from the second step on
        test(*stepped, *test_lifted)
        return tuple(step(*stepped, *step_lifted))
    return stepped


def scan_on_fakes(body: Body, carry: Any, inputs: Any, dim: int, reverse: bool, lifted: Any) -> Any:
    next_carry, output = body(carry, _each(inputs, dim, 0), *lifted)
    for pair in zip(pytree.tree_leaves(carry), pytree.tree_leaves(next_carry), strict=True):
        _must_agree(*pair)
    _no_inputs_among(pytree.tree_leaves(next_carry), [*pytree.tree_leaves(carry), *lifted])
    if _strides(carry) != _strides(next_carry):  # from the second step on
        next_carry, output = body(next_carry, _each(inputs, dim, 0), *lifted)
    return next_carry, _along(dim, _repeated(output, pytree.tree_leaves(inputs)[0].shape[dim]))


def map_on_fakes(body: Body, inputs: Any, rest: Any, lifted: Any) -> Any:
    output = body(_each(inputs, 0, 0), *rest, *lifted)
    return _repeated(output, pytree.tree_leaves(inputs)[0].shape[0])


def _repeated(output: Any, count: Any) -> Any:
    return pytree.tree_map(lambda t: t.unsqueeze(0).expand(count, *t.shape).contiguous(), output)


def _strides(values: Any) -> list[str]:
    """The strides as text: comparing symbols would ask whether they are equal."""
    tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
    return [repr(tensor.stride()) for tensor in tensors]


def _requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _must_agree(first: Any, second: Any) -> None:
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        if first is not second and first != second:
            raise RuntimeError("results that are no tensors must be the same")
    elif (
        first.shape != second.shape or first.dtype != second.dtype or first.device != second.device
    ):
        raise RuntimeError("results must agree in shape, dtype and device")


def _no_inputs_among(results: list[Any], inputs: list[Any]) -> None:
    memory = {t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)}
    for result in results:
        if isinstance(result, torch.Tensor) and result.untyped_storage()._cdata in memory:
            raise RuntimeError("a result that is a view of an input")
