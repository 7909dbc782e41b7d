"""Functionalization: the captured graph becomes ATen operators on values that never change.

The one idea: run the graph on fake tensors below autograd, where PyTorch dispatches each operator
before decomposing it, in a world that records operators (`functionalizer`). Aliasing is tracked on
the way: every fake tensor is a chain of views of some base. A write makes a new value of the base,
and a view that is read afterwards is recorded once more, as a view of that value.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx
from torch.autograd import forward_ad

from pliant.base import checks
from pliant.base.bodies import BODY_CALLS, FOLLOWED
from pliant.base.isolation import FATAL
from pliant.base.late import Late
from pliant.base.operators import function_record
from pliant.base.refusals import about, name_culprit
from pliant.base.writes import RAISES
from pliant.fake.errors import DataDependent, NoMetaKernel, Unsupported
from pliant.fake.python_dispatcher import python_first
from pliant.fake.tensor import Fake, adopt
from pliant.fake.world import refuses_symbols
from pliant.graph import autocast, tensor_attributes
from pliant.graph.aliases import (
    NotFunctionalized,
    TensorAlias,
    VersionCounter,
    results_in,
)
from pliant.graph.bodies import BODY_RUNS
from pliant.graph.functionalizer import Functionalizer
from pliant.graph.ir import FunctionalBuilder, Node, OutputView, Tensor
from pliant.graph.listed_items import ListedItems, list_items
from pliant.graph.number_functions import INSTEAD_OF_PYTHON, ON_NUMBERS
from pliant.graph.opaque_calls import record_opaque_call
from pliant.graph.output_views import OutputViews, separate_unusual_views
from pliant.graph.overlap import PLAIN_TENSORS, inputs_that_share
from pliant.graph.plain_functions import CHANGES, STATEFUL, is_operation
from pliant.graph.raising import keep_one
from pliant.graph.random_state import SEEDS, input_object, seed_generator, seed_generators
from pliant.ops.lowering import contiguous
from pliant.sym.expr import ZERO, Expr
from pliant.sym.floats import FloatExpr, held_as
from pliant.sym.frozen import FrozenEnv, InputLayout, Shapes, Undecided
from pliant.sym.node import SYMBOLIC, to_torch

if TYPE_CHECKING:
    from pliant.fake import jagged
else:
    jagged = Late("pliant.fake.jagged")

# What is not known of sizes, of data, or of how a result looks.
OPEN_QUESTIONS: Final = (Undecided, DataDependent, NoMetaKernel, Unsupported)
CHANGES_OF_METADATA: Final = frozenset(
    ("unsqueeze_", "squeeze_", "t_", "transpose_", "swapaxes_", "swapdims_", "as_strided_")
    + ("resize_", "resize_as_", "set_", "detach_", "requires_grad_", "rename_")
)

# Functions that make tensors: of the one that they are given as `out`, PyTorch says that it doesn't
# require grad.
MAKERS: Final = frozenset(
    (torch.arange, torch.range, torch.linspace, torch.logspace, torch.zeros, torch.ones, torch.full)
    + (torch.empty, torch.eye, torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal)
)


def functionalize(
    gm: fx.GraphModule, shapes: Shapes, examples: Sequence[Any], ones: Iterable[Expr] = ()
) -> tuple[FunctionalBuilder, OutputViews]:
    """Functionalize `gm`. Returns the functional graph, and the views that PyTorch makes of its
    results afterwards. `examples` are arguments of a call, `ones` sizes that are always 1."""
    if forward_ad._current_level >= 0:
        raise NotFunctionalized("forward-mode differentiation")
    functionalizer = Functionalizer(FrozenEnv(shapes, ones))
    try:
        with autocast.undone(), torch.set_grad_enabled(torch.is_grad_enabled()):
            return CapturedRun(gm, functionalizer, shapes, examples).run()
    except OPEN_QUESTIONS as error:
        refused = NotFunctionalized(f"{type(error).__name__}: {error}")
        raise about(refused, error) from error
    finally:
        functionalizer.forget()


# --------------------------------------------------------------------------------------------------
# The captured graph


def _plainly_laid_out(t: Tensor) -> bool:
    """Whether the tensor is contiguous and begins where its memory does."""
    return t.offset is ZERO and t.strides == contiguous(t.sizes)


class CapturedRun:
    """Interprets the nodes of a captured graph; the functionalizer records what they dispatch."""

    differentiates = False  # autograd is above, and sees all operators

    def __init__(
        self,
        gm: fx.GraphModule,
        functionalizer: Functionalizer,
        shapes: Shapes,
        examples: Sequence[Any],
    ) -> None:
        self.gm = gm
        self.functionalizer = functionalizer
        self.shapes = shapes
        self.examples = examples
        self.env: dict[fx.Node, Any] = {}
        self.inputs: list[fx.Node] = []
        self.replaced: list[tuple[int, TensorAlias]] = []  # inputs whose `data` is other memory
        self.counters: dict[Any, VersionCounter] = {}  # of what is returned, by memory
        self.grad = self.grad_before = torch.is_grad_enabled()
        self.autocast = autocast.state(), autocast.nesting()
        self.graded = not self.differentiates and any(
            isinstance(e, torch.Tensor) and e.requires_grad for e in examples
        )

    def run(self) -> tuple[FunctionalBuilder, OutputViews]:
        self._make_inputs()
        # Opaque functions are run as they were captured: with autograd on top
        # (`record_opaque_call`).
        above = torch._C._dispatch_tls_local_exclude_set()
        # Below the bookkeeping of views, too: it copies the chain of views for each view of a view.
        with torch._C._AutoDispatchBelowADInplaceOrView(), self.functionalizer:
            self.functionalizer.above = (torch._C._dispatch_tls_local_include_set(), above)
            self._run_nodes()
        lasts = self.grad is not self.grad_before
        if lasts:
            switch = Node("pliant.grad_mode", torch._C._set_grad_enabled, (self.grad,), {})
            switch.effect = True
            self.functionalizer.function.nodes.append(switch)
        results = [self.env[node] for node in self._output_nodes()]
        inputs = [self.env[node] for node in self.inputs]
        outputs, views = separate_unusual_views(
            *(self.functionalizer, results, inputs),
            *(None if lasts else self.grad, self._requires_grad),
        )
        self.functionalizer.function.outputs = [self._returned(out) for out in outputs]
        views = replace(views, replaced=tensor_attributes.return_replaced(self, results))
        return self.functionalizer.function, views

    def _make_inputs(self) -> None:
        self.inputs = [node for node in self.gm.graph.nodes if node.op == "placeholder"]
        shared = inputs_that_share(self.examples)  # a write to one may change others
        for index, node in enumerate(self.inputs):
            self.env[node] = self._input(index, index in shared)
        self.functionalizer.from_inputs = frozenset(self.functionalizer.known)

    def _run_nodes(self) -> None:
        self.run_graph()
        # (Guards of `with` keep the state too. An inner block may leave it as it found it.)
        if self.autocast != (autocast.state(), autocast.nesting()):
            raise NotFunctionalized("a change of autocast that lasts")

    def run_graph(self) -> None:
        for node in self.gm.graph.nodes:
            if node.op in _STEPS:
                self.functionalizer.begins(node)
                first = len(self.functionalizer.function.nodes)
                self.functionalizer.autocast = autocast.current()
                try:
                    self.env[node] = _STEPS[node.op](self, node)
                except Exception as error:
                    name_culprit(error, node)
                    raise
                # A call whose result is unused is dead, but must raise what eager PyTorch raises.
                if RAISES in node.meta and not node.users:
                    keep_one(self.functionalizer.function.nodes[first:])
        self.functionalizer.stack = ()  # what follows is autograd's

    def _output_nodes(self) -> Sequence[Any]:
        (output,) = next(iter(reversed(self.gm.graph.nodes))).args
        return output

    def _input(self, index: int, shared: bool) -> Any:
        example, shape = self.examples[index], self.shapes.inputs[index]
        functionalizer = self.functionalizer
        if not isinstance(shape, InputLayout):
            if not isinstance(shape, Expr | FloatExpr):
                return input_object(self, index, example)
            functionalizer.function.inputs.append(shape)
            functionalizer.known.add(held_as(shape))
            return to_torch(shape, functionalizer.env)
        if type(example) not in PLAIN_TENSORS:
            raise NotFunctionalized(f"a tensor of type {type(example).__name__}")
        layout = (
            tuple([to_torch(size, functionalizer.env) for size in shape.sizes]),
            tuple([to_torch(stride, functionalizer.env) for stride in shape.strides]),
        )
        with torch.no_grad():  # without the history and the class of the program's tensor
            plain = example.detach().as_strided(example.size(), example.stride())
        fake = functionalizer.from_real(plain, layout)
        if self.differentiates:  # views of it made without grad ask its base whether that has one
            fake = adopt(fake._world, fake)
        functionalizer.add_input(fake, index, shared)
        return fake

    def _args(self, value: Any) -> Any:
        return fx.node.map_arg(value, lambda node: self.env[node])

    def _attribute(self, node: fx.Node) -> Any:
        return operator.attrgetter(str(node.target))(self.gm)

    def _call_function(self, node: fx.Node) -> Any:
        target = node.target
        special = _SPECIAL.get(target)
        if special is not None:
            return special(self, node)
        if FOLLOWED in node.meta or target in BODY_CALLS:
            return self._call_body(node)
        target = ON_NUMBERS.get(target, target)
        if target not in INSTEAD_OF_PYTHON and not is_operation(target):
            return self._opaque(target, node)
        return self._call(target, node)

    def _call_body(self, node: fx.Node) -> Any:
        """Call a function of the program: trace into it where possible, else call it as a whole."""
        if FOLLOWED in node.meta:
            return self._call(node.target, node)
        taken_apart = BODY_RUNS.get(BODY_CALLS[node.target])
        # Only a body that was captured is a graph; otherwise it is a function that may do anything.
        if taken_apart is not None and _has_body(self._args(node.args[:2])):
            result = taken_apart(self, node)
            if result is not NotImplemented:
                return result
        return self._opaque(node.target, node)

    def _opaque(self, target: Any, node: fx.Node, args: Sequence[Any] | None = None) -> Any:
        """Record a call of a Python function, such as an `autograd.Function`: PyTorch runs it."""
        name = getattr(target, "__name__", str(target))
        if self.grad and self.graded:
            raise _of_no_operation("autograd")
        if name.startswith(CHANGES) or getattr(target, "__module__", "") in STATEFUL:
            raise NotFunctionalized(name)
        args = self._args(node.args) if args is None else args
        result = self._opaque_call(target, args, self._args(node.kwargs))
        if result is NotImplemented:
            raise NotFunctionalized(name)
        return result

    def _call_method(self, node: fx.Node) -> Any:
        name = str(node.target)
        if isinstance(self._args(node.args[0]), torch.Generator):
            return seed_generator(self, node)
        # A run that differentiates does it to the fakes; without one nothing here has a history.
        if forgets_history(node) and not self.graded:
            return self._forget_history(node)
        if name in REFUSED_METHODS:
            raise NotFunctionalized(f"Tensor.{name}")
        if name == "tolist":
            return list_items(self.functionalizer, self._args(node.args[0]))
        return self._call(getattr(torch.Tensor, name, operator.methodcaller(name)), node)

    def _forget_history(self, node: fx.Node) -> Any:
        return self._args(node.args[0])  # it has none, and will have none

    def _call(self, target: Any, node: fx.Node, in_python: bool = False) -> Any:
        args, kwargs = self._args(node.args), self._args(node.kwargs)
        if kwargs.get("requires_grad") is True and not self.differentiates:
            raise NotFunctionalized("a leaf that is made in the graph")  # results have a history
        if type(out := kwargs.get("out")) is Fake and target in MAKERS and self._requires_grad(out):
            raise NotFunctionalized("a leaf that is made where another one was")
        history = self._has_history((args, tuple(kwargs.values())))
        # This run records no history, so what is computed from such an input would lack its own.
        if history and node.target not in ("size", "stride", "dim"):
            raise _of_no_operation("autograd")
        # Where an operator inside of a function can't be recorded, the function as a whole may be:
        # then what was recorded of it so far has to go.
        mark = self.functionalizer.mark()
        try:
            result = self._overridden(target, args, kwargs) if callable(target) else NotImplemented
            if result is not NotImplemented:
                return result
            if not self.functionalizer.has_wrapper((args, kwargs)):
                return target(*args, **kwargs)
            # The class of a wrapper sees operators as in eager PyTorch, where autograd has
            # decomposed those that are made of others.
            with torch._C._ForceDispatchKeyGuard(*self.functionalizer.above):
                return (jagged.override_of(target, args, kwargs) or target)(*args, **kwargs)
        except FATAL:
            raise
        except Exception as error:
            if self.functionalizer.roll_back(mark):
                outcome = self._opaque_call(target, args, kwargs)
                if outcome is not NotImplemented:
                    return outcome
                if refuses_symbols(error) and not in_python:
                    # As in the capture: by PyTorch's decompositions in Python, where those in C++
                    # take plain sizes only (`matmul` of PyTorch 2.11).
                    with python_first():
                        return self._call(target, node, in_python=True)
            if isinstance(error, (NotFunctionalized, *OPEN_QUESTIONS)):
                raise
            # PyTorch's code, given numbers that it does not expect.
            raise about(NotFunctionalized(f"{node.name}: {error}"), error) from error

    def _has_history(self, value: Any) -> bool:
        """Whether autograd would record this call: an argument is (a view of) an input that
        requires grad, and grad mode is on."""
        followed = partial(tensor_attributes.is_followed, self)
        return self.grad and self.graded and any(map(followed, results_in(value)))

    def _requires_grad(self, fake: Fake) -> bool:
        """Whether it is a view of an input that does."""
        at = self.functionalizer.alias(fake).base.input
        return at is not None and bool(self.examples[at].requires_grad)

    def _overridden(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The result of the function's `override`; NotImplemented if it has none."""
        record = function_record(target)
        if record is None or record.override is None:
            return NotImplemented
        return record.override(*args, **kwargs)

    def _opaque_call(self, target: Any, args: Any, kwargs: Any) -> Any:
        # A call is recorded by what it returns and writes; a new shape of an argument is neither.
        if getattr(target, "__name__", "") in CHANGES_OF_METADATA:  # which are no writes
            return NotImplemented
        if self.differentiates and torch.is_grad_enabled() and _needs_grad((args, kwargs)):
            return NotImplemented  # its gradient is not known
        try:
            return record_opaque_call(self.functionalizer, target, tuple(args), dict(kwargs))
        except FATAL:
            raise
        except Exception:  # what was wrong first is the better reason
            return NotImplemented

    def _set_grad(self, node: fx.Node) -> None:
        self.grad = bool(node.args[0])
        torch._C._set_grad_enabled(self.grad)

    def _switch_autocast(self, node: fx.Node) -> None:
        autocast.switch(node.target, node.args, node.kwargs)

    def _check(self, node: fx.Node) -> None:
        """A condition on sizes or numbers: record a test that raises where it is false."""
        condition, text = self._args(node.args)
        if condition is True:
            return
        if not isinstance(condition, torch.SymBool):
            raise NotFunctionalized("a check that fails")
        name = f"pliant.{getattr(node.target, '__name__', 'check')}"
        expr = self.functionalizer.number(condition)
        if expr.value is not True:
            self.functionalizer.check(expr, text, name, node.target)
            # Once it is tested, sizes may be simplified by it.
            self.functionalizer.env.checked(expr)

    def _check_truth(self, node: fx.Node) -> None:
        """The same for a condition that is held by a tensor."""
        tensor, expected, text = self._args(node.args)
        arguments = (self.functionalizer.recorded(tensor), expected, text)
        checked = Node("pliant.check_truth", checks.check_truth, arguments, {}, effect=True)
        self.functionalizer.function.nodes.append(checked)

    def _returned(self, value: Any) -> Any:
        functionalizer = self.functionalizer
        if type(value) is ListedItems:
            error = NotFunctionalized("a list of what is in a tensor")
            name_culprit(error, next(node for node, made in self.env.items() if made is value))
            raise error
        if type(value) is not Fake:
            return functionalizer.number(value) if isinstance(value, SYMBOLIC) else value
        return self._output_view(value, self._writes(value, functionalizer.alias(value)))

    def _output_view(self, value: Fake, writes: int) -> OutputView:
        functionalizer = self.functionalizer
        alias = functionalizer.alias(value)
        base = alias.base
        layout = functionalizer.tensor(value)
        # Replays a view that is older than the last write, so that the result is of the memory as
        # it is now.
        of = functionalizer.value(alias) if base.input is None else None
        start = base.value
        is_input = (
            value is self.env.get(self.inputs[base.input]) if base.input is not None else False
        )
        # Offsets count elements: those of another dtype can't be subtracted.
        offset = layout.offset - start.offset if layout.dtype is start.dtype else layout.offset
        if layout.dtype is not start.dtype and not _plainly_laid_out(start):
            raise NotFunctionalized("a view as another dtype")
        root = base.value if of is not None else None
        return OutputView(
            *(root, base.input, layout.sizes, layout.strides, offset, layout.dtype, is_input),
            *(value, writes),
        )

    def _writes(self, value: Fake, alias: TensorAlias) -> int:
        """The version counter of a result in new memory. (Fakes count only under autograd.)"""
        base = alias.base
        first = base.counter if base.input is not None else alias.counter
        if self.counters.setdefault(base, first) is not alias.counter:
            # What the launcher returns of one memory has one counter.
            raise NotFunctionalized("Tensor.data, returned beside the tensor")
        if base.input is not None:
            return 0
        return value._version if self.differentiates else alias.counter.writes


def _of_no_operation(reason: str) -> NotFunctionalized:
    """The error for what isn't about one operation: without it the next one would be refused."""
    error = NotFunctionalized(reason)
    name_culprit(error, None)
    return error


def _has_body(args: Sequence[Any]) -> bool:
    return any(isinstance(arg, fx.GraphModule) for arg in args)


def _needs_grad(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(map(_needs_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def forgets_history(node: fx.Node) -> bool:
    required = (*node.args[1:], *node.kwargs.values())
    return node.target == "detach_" or (node.target == "requires_grad_" and required == (False,))


_STEPS: Final[dict[str, Callable[[CapturedRun, fx.Node], Any]]] = {
    "call_function": lambda run, node: run._call_function(node),  # which subclasses override
    "call_method": lambda run, node: run._call_method(node),
    "get_attr": CapturedRun._attribute,
}

_SPECIAL: Final[dict[Any, Callable[[CapturedRun, fx.Node], Any]]] = {
    torch._C._set_grad_enabled: CapturedRun._set_grad,
    **dict.fromkeys(SEEDS, seed_generators),
    builtins.getattr: tensor_attributes.read_attribute,
    builtins.setattr: tensor_attributes.write_attribute,
    **dict.fromkeys(autocast.SWITCHES, CapturedRun._switch_autocast),
    checks.check_truth: CapturedRun._check_truth,
    **dict.fromkeys(checks.CHECKS, CapturedRun._check),
}


# Methods that do something to a tensor that values don't have.
REFUSED_METHODS: Final = frozenset(
    ("requires_grad_", "retain_grad", "register_hook", "register_post_accumulate_grad_hook")
    + ("backward", "detach_", "share_memory_")
    + ("set_", "resize_", "resize_as_", "data_ptr", "numpy", "__setstate__")
)
