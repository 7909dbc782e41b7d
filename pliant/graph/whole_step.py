"""A captured graph that calls `backward` itself: forward, backward and optimizer as one graph.

The one idea: `backward` of fakes writes the gradients of fakes, in operators that are recorded like
all others. What the program does with them afterwards, under `no_grad`, is recorded too; only the
gradients that leaves have in the end, and what the program returns, leave the graph. So a training
step (`loss = model(x); loss.backward(); optimizer.step()`) is one program, without a partition.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.graph.aliases import NotFunctionalized
from pliant.graph.ir import FunctionalBuilder
from pliant.graph.joint import DifferentiatedRun, JointEnv, trace_with_autograd
from pliant.graph.output_views import OutputViews, separate_step_views
from pliant.graph.raising import may_raise
from pliant.graph.tensor_attributes import return_replaced
from pliant.sym.cond import Cond
from pliant.sym.frozen import Shapes


@dataclass(frozen=True, slots=True)
class WholeStep:
    """`function` returns the outputs of the graph, the bases of `views` among them, then gradients.
    `gradients`: for each input that has another one afterwards, the number of the result, or None
    for no gradient; one that was there and is added to is an input, and returned as it is.
    `replaced`: inputs whose `data` is the result with a number afterwards. `fresh`: inputs that
    must not have a gradient before. `dropped`: inputs whose gradient is dropped before anything can
    fail. `spent`: outputs whose history was used up."""

    function: FunctionalBuilder
    outputs: int
    views: OutputViews  # made behind the step; their bases are the last outputs
    gradients: tuple[tuple[int, int | None], ...]
    fresh: tuple[int, ...]
    dropped: tuple[int, ...]
    replaced: tuple[tuple[int, int], ...]
    spent: tuple[int, ...]
    anchor: int  # some input that requires grad
    preconditions: tuple[Cond, ...]
    grad_mode: bool | None  # as it is afterwards, if the graph changes it


def trace_whole_step(
    gm: fx.GraphModule, shapes: Shapes, examples: Sequence[Any]
) -> tuple[WholeStep, JointEnv]:
    # There are no variants for other sizes.
    return trace_with_autograd(_StepRun, gm, shapes, examples, general=True)


class _StepRun(DifferentiatedRun[WholeStep]):
    def trace(self, required: Sequence[Cond]) -> WholeStep:
        self.written: dict[int, bool] = {}  # leaves whose gradient is set: before it is written?
        self.dropped: list[int] = []
        # Whether what a backward needs may be there in the end.
        self.retains = all(n.target is not torch.autograd.backward for n in self.gm.graph.nodes)
        results, leaves = self._run_with_autograd()
        self._check_frozen(list(leaves.values()))
        with self.functionalizer:
            spent = [at for at, out in enumerate(results) if self._is_spent(out, leaves)]
        preconditions = self._check_required(required)
        function = self.functionalizer.function
        outputs, views = separate_step_views(
            *(self.functionalizer, results, [self.env[node] for node in self.inputs]),
            self._requires_grad,
        )
        function.outputs = [self._returned(out) for out in outputs]
        gradients: list[tuple[int, int | None]] = []
        for at in self.written:
            grad: Any = leaves[at].grad
            gradients.append((at, None if grad is None else len(function.outputs)))
            if grad is not None:
                view = self._gradient(grad)
                if view.input is not None and not view.whole:
                    raise NotFunctionalized("a gradient that is a view of an input")
                function.outputs.append(view)
        replaced = return_replaced(self, results)
        return WholeStep(
            function=function,
            outputs=len(outputs),
            views=views,
            gradients=tuple(gradients),
            fresh=tuple([at for at, reset in self.written.items() if not reset]),
            dropped=tuple(self.dropped),
            replaced=replaced,
            spent=tuple(spent),
            anchor=next(iter(leaves)),
            preconditions=preconditions,
            grad_mode=self.grad_mode,
        )

    def _leaves(self) -> dict[int, Fake]:
        leaves = super()._leaves()
        self.leaves = {id(leaf): at for at, leaf in leaves.items()}
        return leaves

    def _call_function(self, node: fx.Node) -> Any:
        target = node.target
        if target is torch.autograd.backward:
            return self._go_back(node)
        if target in (builtins.getattr, builtins.setattr) and node.args[1] == "grad":
            leaf = self._args(node.args[0])
            if id(leaf) not in self.leaves:
                raise NotFunctionalized("the gradient of what is no leaf")
            if target is builtins.getattr:
                return leaf.grad
            leaf.grad = self._args(node.args[2])
            if self.leaves[id(leaf)] not in self.written:
                self._first_set(self.leaves[id(leaf)])
            return None
        if target is builtins.setattr and node.args[1] == "requires_grad":
            tensor, _, required = self._args(node.args)
            if id(tensor) in self.leaves:
                tensor.requires_grad_(required)
                return None
        return super()._call_function(node)

    def _call_method(self, node: fx.Node) -> Any:
        """A leaf may be frozen for a part of the step, as a network by its adversary's."""
        if (
            node.target == "requires_grad_"
            and id(tensor := self._args(node.args[0])) in self.leaves
        ):
            return tensor.requires_grad_(*self._args(node.args[1:]), **self._args(node.kwargs))
        return super()._call_method(node)

    def _check_frozen(self, leaves: Sequence[Fake]) -> None:
        """The caller's tensors are not touched: they have to be as they were in the end."""
        if not all(leaf.requires_grad for leaf in leaves):
            raise NotFunctionalized("an input that doesn't require grad any more")

    def _first_set(self, at: int) -> None:
        """Note that the program sets a leaf's gradient before `backward` adds to it. If nothing can
        have failed by then, the old gradient needn't be kept."""
        self.written[at] = True
        nodes = self.functionalizer.function.nodes
        if not any(node.effect or may_raise(node) for node in nodes):
            self.dropped.append(at)

    def _go_back(self, node: fx.Node) -> None:
        """Run a call of `backward` on fakes, which records its operators."""
        tensors, grads, retain, create, old, inputs = (*self._args(node.args), *[None] * 6)[:6]
        if create or old is not None or node.kwargs:
            raise NotFunctionalized("backward with options")
        # On fakes, which accumulate into the `grad` of fakes: the operators are recorded. What is
        # retained must be used up in the end (`_is_spent`).
        torch.autograd.backward(tensors, grads, retain, inputs=inputs)
        self.retains |= bool(retain)
        for node_, example in zip(self.inputs, self.examples, strict=True):
            leaf = self.env[node_]
            if type(leaf) is not Fake or not (leaf.is_leaf or leaf.retains_grad):
                continue  # it has no gradient, and PyTorch warns of the question
            if leaf.grad is not None:
                if not example.is_leaf:
                    raise NotFunctionalized("the gradient of what is no leaf")
                # Set by `backward` without a reset before: right only if the leaf has no gradient
                # when it is called.
                self.written.setdefault(self.leaves[id(leaf)], False)

    def _is_spent(self, out: Any, leaves: dict[int, Fake]) -> bool:
        """Whether another backward from an output would fail, as after `loss.backward()`. An output
        through which a gradient could still go isn't supported."""
        if type(out) is not Fake or not out.requires_grad or id(out) in self.leaves:
            return False
        # A view of an input that was made under `no_grad`: it looks as its base, without a history.
        if out.is_leaf and self.functionalizer.alias(out).base.input is not None:
            return False
        with self.functionalizer.quietly():
            try:
                tangent = torch.empty_like(out)
                # The only way to ask: PyTorch frees buffers on the way back and raises when they
                # are used again.
                torch.autograd.grad(out, list(leaves.values()), tangent, allow_unused=True)
            except RuntimeError as error:
                if not self.retains or "a second time" in str(error):
                    return True
                raise NotFunctionalized("an output whose gradient was overwritten") from None
        raise NotFunctionalized("an output through which a gradient can still go")
