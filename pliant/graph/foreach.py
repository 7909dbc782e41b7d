"""Operators over lists of tensors, taken apart.

The one idea: on CPU, PyTorch runs `_foreach_add_(xs, ys)` as `x.add_(y)` for each pair. Taken
apart, each is fused with what is done to the same tensor before and after.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.fake.overload import Overload

_ONE = "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2"
_MORE = "neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc zero"
UNARY: Final = frozenset(f"{_ONE} {_MORE}".split())

# With the names of arguments that only have names.
OTHERS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("add", "sub"), ("", "", "alpha")),
    **dict.fromkeys(("mul", "div", "clamp_min", "clamp_max", "pow", "copy"), ("", "")),
    "lerp": ("", "", ""),
    "norm": ("", "", "dtype"),
    **dict.fromkeys(("addcdiv", "addcmul"), ("", "", "", "value")),
}
# Those that take one tensor for all as it is; others take it for a list of numbers.
_ONE_FOR_ALL: Final = ("add", "mul", "div")
# What PyTorch calls for these.
_SAME: Final = {"maximum": "clamp_min", "minimum": "clamp_max"}
_FUNCTIONS: Final = {"norm": torch.linalg.vector_norm}


def of_each(op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the operator's counterpart for single tensors on each item of its lists; NotImplemented
    if it has none. `_foreach_add(xs, ys, alpha=2)` is `[x.add(y, alpha=2) for x, y in ...]`."""
    name = op.func._schema.name.removeprefix("aten::_foreach_")
    writes = name.endswith("_")
    name = name.removesuffix("_")
    name = _SAME.get(name, name)
    names = ("",) if name in UNARY else OTHERS.get(name, ())
    for_all = any(isinstance(arg, torch.Tensor) for arg in args[1:])
    if not names or len(args) > len(names) or (for_all and name not in _ONE_FOR_ALL):
        return NotImplemented
    count = len(args[0])
    function = _FUNCTIONS.get(name) or getattr(torch.Tensor, f"{name}_" if writes else name)
    results = []
    for i in range(count):
        # A list of scalars goes along with the tensors, a single scalar is for all.
        values = [arg[i] if isinstance(arg, (list, tuple)) else arg for arg in args]
        named = {key: values[at] for at, key in enumerate(names[: len(values)]) if key}
        positional = [value for at, value in enumerate(values) if not names[at]]
        results.append(function(*positional, **named, **kwargs))
    return None if writes else results
