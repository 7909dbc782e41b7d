"""Eager PyTorch as the referee: run a function both ways on equal arguments and compare everything.

`check` calls the function eagerly and compiled on separate deep copies of the arguments, twice, and
compares results, exceptions, what became of the arguments, and PyTorch's global state.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import torch

import pliant
from pliant.base import events
from tests.support.closeness import exact


@dataclasses.dataclass
class Outcome:
    """What a call did: its result or exception, and its arguments afterwards."""

    result: Any
    error: BaseException | None
    args: tuple[Any, ...]
    grad_enabled: bool


def run(function: Callable[..., Any], args: tuple[Any, ...], seed: int = 0) -> Outcome:
    torch.manual_seed(seed)
    result, error = None, None
    before = torch.is_grad_enabled()
    try:
        result = function(*args)
    except pliant.errors.PliantError:
        raise
    except Exception as raised:
        error = raised
    after = torch.is_grad_enabled()
    torch.set_grad_enabled(before)
    return Outcome(result, error, args, after)


def check(
    function: Callable[..., Any],
    *args: Any,
    breaks: int | None = 0,
    graphs: int | None = None,
    compilations: int | None = None,
    fullgraph: bool | None = None,
    times: int = 2,
    **options: Any,
) -> Any:
    """Compare `function` with its compiled self. Returns the compiled function.

    `breaks`, `graphs`, `compilations`: how many there must be in all (None: any number). With no
    breaks expected the function is compiled with fullgraph=True.
    """
    if fullgraph is None:
        fullgraph = breaks == 0
    events.counters.reset()
    compiled = pliant.compile(function, fullgraph=fullgraph, **options)
    for time in range(times):
        expected = run(function, copy.deepcopy(args), seed=time)
        actual = run(compiled, copy.deepcopy(args), seed=time)
        same_outcome(actual, expected)
    wanted = {"graph_breaks": breaks, "graphs": graphs, "compilations": compilations}
    for name, count in wanted.items():
        if count is not None:
            assert events.counters[name] == count, (name, dict(events.counters))
    assert events.counters["fallbacks"] == 0
    return compiled


def compilations(function: Any, calls: Any, **options: Any) -> int:
    """Compare with eager for each call; how often the function was compiled."""
    events.counters.reset()
    compiled = pliant.compile(function, **options)
    for args in calls:
        expected, actual = run(function, args), run(compiled, args)
        same_outcome(actual, expected)
    return events.counters["compilations"]


def same_outcome(actual: Outcome, expected: Outcome) -> None:
    if expected.error is not None or actual.error is not None:
        same_error(actual.error, expected.error)
    with torch._C.DisableTorchFunction():  # subclasses of tensors are compared as tensors
        _same_outcome(actual, expected)


def _same_outcome(actual: Outcome, expected: Outcome) -> None:
    same((actual.result, actual.args), (expected.result, expected.args))
    assert actual.grad_enabled == expected.grad_enabled


def same_error(actual: BaseException | None, expected: BaseException | None) -> None:
    """Equal in class, text and attributes, and so are the exceptions behind them."""
    assert type(actual) is type(expected), (actual, expected)
    if actual is None or expected is None:
        return
    assert str(actual) == str(expected)
    same((actual.args, vars(actual)), (expected.args, vars(expected)))
    same_error(actual.__cause__, expected.__cause__)
    same_error(actual.__context__, expected.__context__)
    assert actual.__suppress_context__ == expected.__suppress_context__


def same(actual: Any, expected: Any) -> None:
    """Equal in value, type, structure and sharing: `a is b` on one side, `a is b` on the other."""
    _same(actual, expected, {}, {}, "result")


def _same(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    assert type(actual) is type(expected), f"{path}: {type(actual)} is not {type(expected)}"
    if type(actual) in PLAIN:
        assert actual == expected or (actual != actual and expected != expected), path
        return
    if _is_plain_tuple(actual) and _is_plain_tuple(expected):
        assert actual == expected, path  # Python itself may or may not share such constants
        return
    if id(actual) in seen or id(expected) in back:
        assert seen.get(id(actual)) == id(expected), f"{path}: shared objects differ"
        assert back.get(id(expected)) == id(actual), f"{path}: shared objects differ"
        return
    seen[id(actual)], back[id(expected)] = id(expected), id(actual)
    for kind, compare in COMPARERS:
        if isinstance(actual, kind):
            compare(actual, expected, seen, back, path)
            return
    if hasattr(actual, "__dict__"):
        _same(vars(actual), vars(expected), seen, back, f"{path}.__dict__")
    for name in getattr(type(actual), "__slots__", ()):
        if name not in ("__dict__", "__weakref__"):
            pair = [getattr(side, name, None) for side in (actual, expected)]
            _same(*pair, seen, back, f"{path}.{name}")


def _is_plain_tuple(value: Any) -> bool:
    return type(value) is tuple and all(
        type(item) in (int, str, bool, type(None), type) or _is_plain_tuple(item) for item in value
    )


PLAIN = (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, range, slice)


def _same_tensor(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    torch.testing.assert_close(
        actual, expected, **exact(), equal_nan=True, msg=lambda m: f"{path}: {m}"
    )
    for name in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
        assert getattr(actual, name) == getattr(expected, name), f"{path}.{name}"
    if actual.layout is torch.strided:
        assert actual.stride() == expected.stride(), f"{path}.stride()"
        if actual.numel() or exact():  # where nothing begins, only eager's own operators know
            assert actual.storage_offset() == expected.storage_offset(), f"{path}.storage_offset()"
        pair = [t.untyped_storage()._cdata for t in (actual, expected)]
        if pair[0] in seen or pair[1] in back:
            assert seen.get(pair[0]) == pair[1], f"{path}: tensors share memory on one side only"
        seen[pair[0]], back[pair[1]] = pair[1], pair[0]
    if actual.is_leaf:
        _same(actual.grad, expected.grad, seen, back, f"{path}.grad")


def _same_items(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    assert len(actual) == len(expected), f"{path}: {len(actual)} items, not {len(expected)}"
    for index, pair in enumerate(zip(actual, expected, strict=True)):
        _same(*pair, seen, back, f"{path}[{index}]")


def _same_dict(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    _same_items(list(actual), list(expected), seen, back, f"{path}.keys()")
    for key, other in zip(actual, expected, strict=True):
        _same(
            dict.__getitem__(actual, key),
            dict.__getitem__(expected, other),
            seen,
            back,
            f"{path}[{key!r}]",
        )


def _same_set(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    assert actual == expected, path


def _same_function(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    assert actual.__code__ is expected.__code__, path
    _same(actual.__defaults__, expected.__defaults__, seen, back, f"{path}.__defaults__")
    cells = [[c.cell_contents for c in f.__closure__ or ()] for f in (actual, expected)]
    _same(*cells, seen, back, f"{path}.__closure__")


def _same_object(actual: Any, expected: Any, seen: dict, back: dict, path: str) -> None:
    assert actual is expected or actual == expected, path


COMPARERS: tuple[tuple[Any, Callable[..., None]], ...] = (
    (torch.Tensor, _same_tensor),
    (dict, _same_dict),
    ((list, tuple, collections.deque), _same_items),
    ((set, frozenset), _same_set),
    (types.FunctionType, _same_function),
    ((type, types.ModuleType, types.BuiltinFunctionType), _same_object),
)
