"""Higher-order operators that call one function: `wrap`, compile regions, hints, and PyTorch's base
class of such operators.

The function is followed once, where it stands, and becomes a graph of its own; the operator is one
node that takes it and the tensors that it uses. The subgraph returns a flat tuple, as PyTorch's
operators and backends expect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._higher_order_ops.base_hop import BaseHOP
from torch._higher_order_ops.hints_wrap import HintsWrapper, hints_wrapper
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch._higher_order_ops.wrap import Wrap, wrap

from pliant.base.bodies import BODY_CALLS, BodyCall
from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import Body, follow_body, record_body_call, result_of
from pliant.capture.library.torch.transforms import closure_of, code_inside
from pliant.capture.native import BY_CODE, SHORTCUTS
from pliant.capture.torch_calls import convert
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import FunctionValue
from pliant.guards.guard import GuardKind


def call_subgraph(
    trace: Trace,
    operator: Callable[..., Any],
    name: str,
    function: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    options: dict[str, Any] | None = None,
    place: Callable[[Body, list[Any]], tuple[Any, ...]] | None = None,
) -> Value:
    """One node that calls `operator` with the function as a graph. `place`: its arguments, given
    the body and what it takes."""
    body = follow_body(trace, name, function, args, kwargs, attribute=f"{name}_body", flat=True)
    node_args = (body.node, *body.lifted) if place is None else place(body, body.lifted)
    results = record_body_call(
        trace,
        operator,
        node_args,
        (body.module, *body.lifted_fakes),
        options,
        effect=body.effect,
        on_fakes=_run_body,
    )
    assert isinstance(results, Sequence)
    return result_of(trace, body, results)


def _run_body(body: Callable[..., Any], *operands: Any) -> Any:
    return body(*operands)


# ---- the operators


def call_wrap(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`wrap(f, *args, **kwargs)`."""
    if len(args) < 2:
        return None
    return call_subgraph(trace, wrap, "wrap", args[1], args[2:], kwargs)


def call_base_operator(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`operator(f, *operands, **options)`, of any operator of PyTorch's base class."""
    instance = trace.read(args[0])
    operator = getattr(instance, "real", None)
    if not isinstance(operator, BaseHOP) or instance.source is None or len(args) < 2:
        return None
    trace.guard(GuardKind.IS, instance.source, operator)
    name = operator._name
    options = {key: convert(trace, value, name)[0] for key, value in kwargs.items()}
    BODY_CALLS.setdefault(operator, BodyCall.INLINED)
    return call_subgraph(trace, operator, name, args[1], args[2:], {}, options)


def call_hints_wrapper(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`hints_wrapper(f, args, kwargs, hints)`: the hints are for the backend."""
    names = ("body_fn", "args", "kwargs", "hints")
    arguments = dict(zip(names, args[1:], strict=False)) | kwargs
    if set(arguments) != set(names):
        return None
    operands, keywords = trace.read(arguments["args"]), trace.read(arguments["kwargs"])
    hints = known_object(trace.read(arguments["hints"]), trace)
    plain = isinstance(keywords, Mapping) and not keywords.read_all(trace)
    if not isinstance(operands, Sequence) or not plain or not _are_hints(hints):
        raise Break("operation-raises", "hints_wrapper")
    return call_subgraph(
        trace,
        hints_wrapper,
        "hints_wrapper",
        arguments["body_fn"],
        operands.items,
        {},
        {"hints": hints},
        lambda body, operands: (body.node, tuple(operands), {}),
    )


def _are_hints(hints: Any) -> bool:
    return type(hints) is dict and all(
        type(key) is str and isinstance(hint, int | float | bool | str)
        for key, hint in hints.items()
    )


def call_region(
    trace: Trace,
    region: FunctionValue,
    args: list[Value],
    kwargs: dict[str, Value],
    direct: bool,
) -> Value | None:
    """A function marked with `nested_compile_region`."""
    return call_subgraph(
        trace,
        targets.invoke_subgraph,
        "invoke_subgraph",
        closure_of(trace, region)["func"],
        args,
        kwargs,
        place=lambda body, operands: (body.node, str(body.node.target), *operands),
    )


BODY_CALLS[wrap] = BODY_CALLS[hints_wrapper] = BodyCall.INLINED
SHORTCUTS[Wrap.__call__] = call_wrap
SHORTCUTS[BaseHOP.__call__] = call_base_operator
SHORTCUTS[HintsWrapper.__call__] = call_hints_wrapper
BY_CODE[code_inside(mark_compile_region, "wrap", "inner")] = call_region
