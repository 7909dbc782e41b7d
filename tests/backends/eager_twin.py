"""Eager PyTorch beside a compiled function: what both did, compared in every respect.

Values within PyTorch's default tolerances (other than floats: equal), sizes, strides, dtypes, which
tensors share memory and where in it, which objects are the very arguments, what became of the
arguments and of their versions, and what was raised. A difference that is there between eager and
eager too, on arguments moved by a rounding error, is no difference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

MODES: dict[str, Callable[[], Any]] = {
    "grad": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@dataclass
class Outcome:
    """A call: what came back, with which arguments, and with which versions these had before."""

    result: Any
    error: Exception | None
    args: Sequence[Any]
    versions: list[int | None]


def call(function: Callable[..., Any], args: Sequence[Any], mode: str = "grad") -> Outcome:
    # In inference mode, what is a view with a version and what is not differs by operator.
    versions = [_version(arg) if mode != "inference" else None for arg in args]
    torch.manual_seed(5)
    result, error = None, None
    with MODES[mode]():
        try:
            result = function(*args)
        except Exception as raised:
            error = raised
    return Outcome(result, error, args, versions)


def _version(arg: Any) -> int | None:
    if not isinstance(arg, torch.Tensor) or arg.is_inference():
        return None
    return arg._version


def difference(actual: Outcome, expected: Outcome) -> str | None:
    """What differs, in words."""
    if actual.error is not None or expected.error is not None:
        if type(actual.error) is not type(expected.error):
            return f"raised {actual.error!r}, not {expected.error!r}"
        if str(actual.error) != str(expected.error):
            return f"message: {actual.error}\n--- not:\n{expected.error}"
    found = _values(actual.args, expected.args, "argument")
    if found is None and expected.error is None:
        found = _values(actual.result, expected.result, "result")
        found = found or _sharing(actual, expected)
    return found or _versions(actual, expected)


def difference_at(path: str, actual: Outcome, expected: Outcome) -> str | None:
    """The same for one item, by its name in what `difference` said."""
    if actual.error is not None or expected.error is not None:
        return difference(actual, expected)
    kind, *places = path.split()
    mine, theirs = ((o.args if kind == "argument" else o.result) for o in (actual, expected))
    for place in map(int, places):
        mine, theirs = mine[place], theirs[place]
    return _values(mine, theirs, path)


def _versions(actual: Outcome, expected: Outcome) -> str | None:
    for i, (mine, theirs) in enumerate(zip(actual.args, expected.args)):
        if actual.versions[i] is None:
            continue
        rise = [_version(mine) - actual.versions[i], _version(theirs) - expected.versions[i]]
        if rise[0] != rise[1]:
            return f"argument {i}: its version rose by {rise[0]}, not {rise[1]}"
    return None


def _values(actual: Any, expected: Any, path: str) -> str | None:
    if type(actual) is not type(expected):
        return f"{path}: {type(actual)}, not {type(expected)}"
    if isinstance(actual, torch.Tensor):
        return _tensors(actual, expected, path)
    if isinstance(actual, (list, tuple)):
        if len(actual) != len(expected):
            return f"{path}: {len(actual)} items, not {len(expected)}"
        pairs = enumerate(zip(actual, expected))
        return next(filter(None, (_values(*pair, f"{path} {i}") for i, pair in pairs)), None)
    if actual != expected and not (actual != actual and expected != expected):
        return f"{path}: {actual}, not {expected}"
    return None


def _tensors(actual: torch.Tensor, expected: torch.Tensor, path: str) -> str | None:
    for name in ("shape", "dtype", "requires_grad"):
        mine, theirs = getattr(actual, name), getattr(expected, name)
        if mine != theirs:
            return f"{path}: {name} {mine}, not {theirs}"
    for name in ("stride", "storage_offset"):
        mine, theirs = getattr(actual, name)(), getattr(expected, name)()
        if name == "stride":  # of a dimension that has several elements
            mine, theirs = ([s for s, n in zip(i, actual.shape) if n > 1] for i in (mine, theirs))
        if mine != theirs and actual.numel():
            return f"{path}: {name} {mine}, not {theirs} (sizes {tuple(actual.shape)})"
    try:
        with torch.no_grad():
            torch.testing.assert_close(actual, expected, equal_nan=True)
    except AssertionError as error:
        return f"{path}: {error}"
    return None


def _sharing(actual: Outcome, expected: Outcome) -> str | None:
    """The same objects, and the same memory, in the same places."""
    mine, theirs = ([*_flat(o.args), *_flat(o.result)] for o in (actual, expected))
    for what, key in (
        ("objects", id),
        ("memory", lambda t: t.untyped_storage()._cdata),
    ):
        pattern = [[[key(t) for t in ts].index(key(u)) for u in ts] for ts in (mine, theirs)]
        if pattern[0] != pattern[1]:
            return f"sharing of {what}: {pattern[0]}, not {pattern[1]}"
    given = {t.untyped_storage()._cdata for t in _flat(actual.args)}
    for ours, eager in zip(mine, theirs):
        new = ours.untyped_storage()._cdata not in given
        if new and ours.is_inference() != eager.is_inference():
            return f"is_inference() is {ours.is_inference()}"
    return None


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _flat(item)]
    return []
