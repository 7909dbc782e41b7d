"""Bodies, and the program's own functions, inside of a captured graph.

The one idea: a body is a graph, so its nodes are run as if they stood where it is called. Capture
has followed what PyTorch calls later, as the backward of an `autograd.Function`, and found that it
only computes: it is run on fakes, and what it does is recorded like any gradient formula.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.base.bodies import BODY_CALLS, BodyCall
from pliant.base.refusals import name_culprit
from pliant.fake.overload import describe
from pliant.fake.raising import RefusesDtypes
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld, NotFunctionalized, results_in
from pliant.graph.backward_calls import call_hook
from pliant.graph.body_code import call_with_bodies
from pliant.graph.checkpoint_policies import Policy, policy_of
from pliant.graph.ir import Node, UserGradient
from pliant.graph.opaque_calls import draws


def run_body(run: Any, body: fx.GraphModule, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Run the nodes of a body in place of its call. Returns the body's result. `run` is that of the
    graph around it, whose state goes on."""
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    run.env.update(zip(places, args, strict=False))
    run.env.update({place: named[str(place.target)] for place in places[len(args) :]})
    outer, run.gm = run.gm, body
    try:
        run.run_graph()
        return run._args(run._output_nodes())
    finally:
        run.gm = outer


def run_inlined(run: Any, node: fx.Node) -> Any:
    """Inline an operator that calls its body once."""
    operands: list[fx.Node] = []
    fx.map_arg((node.args[1:], node.kwargs), operands.append)
    return run_body(run, run._args(node.args[0]), run._args(operands), {})


# --------------------------------------------------------------------------------------------------
# Branches


def run_branches(run: Any, node: fx.Node) -> Any:
    """`cond` as both branches and a `where` between their results, if both are pointwise: so it
    fuses with what is around it. Otherwise it is called as a whole, with code for its branches.
    Not with gradients: that of the branch which isn't taken may be nan, which times 0 is nan."""
    pred, true, false, *lifted = run._args(node.args)
    world = run.functionalizer
    # Both branches are recorded on trial; if one does more than to compute elements, it is undone.
    mark, first, writes = world.mark(), len(world.function.nodes), dict(world.function.times)
    try:
        sides = [
            run_body(run, body, args, {}) for body, args in zip((true, false), lifted, strict=True)
        ]
        loops = all(map(_is_loop, world.function.nodes[first:])) and world.function.times == writes
        chosen = _choices(pred, *sides) if loops else None
    except NotFunctionalized:
        chosen = None
    if chosen is None:
        if not world.roll_back(mark):
            raise NotFunctionalized("a condition whose sides do more than compute")
        return run_with_code(run, node)
    results = iter(chosen)
    return pytree.tree_map_only(torch.Tensor, lambda _: next(results), sides[0])


def _choices(pred: Any, true: Any, false: Any) -> list[Any] | None:
    """A `where` for each pair of results; None if the results would differ in more than values."""
    pairs = list(zip(_tensors_in(true), _tensors_in(false), strict=True))
    if any(t.requires_grad for pair in pairs for t in pair):
        return None
    choices = [torch.where(pred.reshape(()).to(torch.bool), *pair) for pair in pairs]
    same_strides = all(
        a.stride() == b.stride() == c.stride() for (a, b), c in zip(pairs, choices, strict=True)
    )
    return choices if same_strides else None


def _tensors_in(results: Any) -> list[Fake]:
    return [leaf for leaf in pytree.tree_leaves(results) if type(leaf) is Fake]


def _is_loop(node: Node) -> bool:
    """Whether a node is pointwise and can't raise, whatever the data."""
    if not isinstance(node.func, torch._ops.OpOverload) or node.effect:
        return False
    raises = describe(node.func).raises
    can_fail = raises is not None and not isinstance(raises, RefusesDtypes)  # which are known
    return torch.Tag.pointwise in node.func.tags and not can_fail


# --------------------------------------------------------------------------------------------------
# Transforms


def run_transform(run: Any, node: fx.Node) -> Any:
    """Run a transform (`vmap`, `grad`) of PyTorch on fakes: the operators that it makes of those of
    the body are recorded. Not in forward mode, since fakes can't be dual tensors."""
    if _runs_forward(run._args(node.args[0])):
        return NotImplemented
    return run._call(node.target, node)


def _runs_forward(body: fx.GraphModule) -> bool:
    graphs = [module.graph for module in body.modules() if isinstance(module, fx.GraphModule)]
    calls = [BODY_CALLS.get(node.target) for graph in graphs for node in graph.nodes]
    return BodyCall.FORWARD_MODE in calls


# --------------------------------------------------------------------------------------------------
# Loops


def run_with_code(run: Any, node: fx.Node) -> Any:
    """Record an operator as one opaque call, whose bodies get code of their own."""
    world = run.functionalizer
    target: Any = node.target
    call, args = call_with_bodies(world, target, run._args(node.args))
    result = run._opaque(call, node, args)
    for body in call.bodies.values():
        body.settle(world, run.shapes.env, call.symbols)
    return result


# --------------------------------------------------------------------------------------------------
# Checkpoints


def run_checkpoint(run: Any, node: fx.Node) -> Any:
    """Run the function of a checkpoint, and note for the partitioner that what it computes on the
    way isn't saved (`Node.recompute`)."""
    body, options, args, lifted, named, *contexts = run._args(node.args)
    saves = policy_of(*contexts)
    graded = any(t.requires_grad for t in results_in(args)) and torch.is_grad_enabled()
    if saves is None or options.get("debug") or (options["use_reentrant"] and not graded):
        return NotImplemented  # it tells something when it runs
    if options["use_reentrant"] and any(t.grad_fn is not None for t in results_in(lifted)):
        raise NotFunctionalized("a reentrant checkpoint, which uses up a history around it")
    function = run.functionalizer.function
    first, writes = len(function.nodes), dict(function.times)
    result = run_body(run, body, (*args, *lifted), named)
    # Without gradients there is no backward that could compute anything again.
    results = [t for t in results_in(result) if t.requires_grad]
    if not results:
        return result
    if options["use_reentrant"] and len(results) < len(results_in(result)):
        raise NotFunctionalized("a checkpoint with results that are not computed from its inputs")
    # The backward would write a second time.
    if function.times != writes:
        raise NotFunctionalized("a checkpoint of a function that writes, as it does once more")
    inner = function.nodes[first:]
    if not options.get("preserve_rng_state", True) and any(n.effect and draws(n) for n in inner):
        raise NotFunctionalized("a checkpoint that draws other random numbers once more")
    _note_checkpoint(run.functionalizer, inner, results, saves)
    return result


def _note_checkpoint(
    world: AliasWorld, inner: Sequence[Node], results: Sequence[Fake], saves: Policy
) -> None:
    for node in inner:
        node.recompute = not saves(node.func)
    for fake in results:
        last = world.alias(fake).base.value.node
        if last is not None and last.recompute:
            # It leaves the checkpoint: whether it is saved is for those who use it.
            last.recompute = False


BODY_RUNS: Final = {
    BodyCall.CHECKPOINT: run_checkpoint,
    BodyCall.INLINED: run_inlined,
    BodyCall.BRANCHES: run_branches,
    BodyCall.LOOP: run_with_code,
    BodyCall.TRANSFORM: run_transform,
}
"""How calls are taken apart, by what they do with their body."""


# --------------------------------------------------------------------------------------------------
# The program's own code in the backward


@contextmanager
def user_gradient(world: AliasWorld, gradients: Sequence[Any]) -> Iterator[None]:
    """Mark the nodes that are recorded inside as the program's own backward, which computes them
    from these gradients."""
    nodes = world.function.nodes
    first = len(nodes)
    arriving = tuple([world.value(world.alias(g)) for g in gradients if type(g) is Fake])
    yield
    group = UserGradient(arriving)
    for node in nodes[first:]:
        if node.effect and draws(node):
            raise NotFunctionalized("random numbers in the program's own backward")
        node.gradient = group


def watch_backward(world: AliasWorld, node: fx.Node, result: Any) -> tuple[list[Fake], list[Any]]:
    """Have the nodes marked that the backward of an `autograd.Function` records when it runs, which
    `node` has called.
    Returns the results that require grad, and the handles of the hooks that do it."""
    graded = [t for t in results_in(result) if t.requires_grad]
    handles: list[Any] = []
    for function in {t.grad_fn: None for t in graded}:
        if function is not None:
            running: list[Any] = []
            # A prehook and a hook of the node of autograd are called right before and after its
            # backward.
            handles.append(function.register_prehook(_entering(world, running)))
            handles.append(function.register_hook(_leaving(node, running)))
    return graded, handles


def _entering(world: AliasWorld, running: list[Any]) -> Callable[..., None]:
    def enter(gradients: Any) -> None:
        running.append(user_gradient(world, gradients))
        running[-1].__enter__()

    return enter


def _leaving(node: fx.Node, running: list[Any]) -> Callable[..., None]:
    def leave(gradients: Any, arrived: Any) -> None:
        try:
            running.pop().__exit__(None, None, None)
        except NotFunctionalized as error:
            name_culprit(error, node)
            raise

    return leave


def register_hook(run: Any, node: fx.Node) -> tuple[Any, Fake]:
    """Register a hook of the program on a fake. Returns its handle, and the fake whose gradient it
    may change."""
    tensor, body, lifted = run._args(node.args)
    world = run.functionalizer
    if any(tensor is run.env[place] for place in run.inputs):
        raise NotFunctionalized("a hook on an input")
    if not isinstance(body, fx.GraphModule):  # one that may do anything
        return tensor.register_hook(call_hook(world, body)), tensor

    def hook(gradient: Any) -> Any:
        with user_gradient(world, [gradient]):
            return run_body(run, body, (gradient, *lifted), {})

    return tensor.register_hook(hook), tensor
