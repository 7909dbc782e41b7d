"""Differences from eager PyTorch that stay, each with its reason: see docs/differences.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from tools.fuzzing.program import Program

Rule = Callable[[Program, dict[str, Any]], bool]


def _stride_with_size_from_data(program: Program, finding: dict[str, Any]) -> bool:
    small = ("stride of a dimension of size 1", "stride of an empty tensor")
    source = program.source()
    from_data = any(name in source for name in SIZES_FROM_DATA) or _indexes_by_mask(program)
    from_data = from_data or REPEATS_BY_TENSOR.search(source) is not None
    return finding["kind"] in small and (from_data or _is_sized_by_tensor(program))


def _indexes_by_mask(program: Program) -> bool:
    """Whether a tensor is indexed by a comparison, or by an argument that is a mask."""
    if BY_COMPARISON.search(program.function_source()):
        return True
    masks = {a.name for call in program.calls for a in call if a.dtype == "bool"}
    return any(f"[{name}]" in program.source() for name in masks)


BY_COMPARISON = re.compile(r"\[\w+ [<>=!]=? [^\]]*\]")


def _is_sized_by_tensor(program: Program) -> bool:
    """Whether one of the program's arguments, a tensor of integers, is given as a size."""
    names = {a.name for call in program.calls for a in call if "int" in a.dtype}
    sizes = [
        item.strip() for call in TAKES_SIZES.findall(program.source()) for item in call.split(",")
    ]
    return not names.isdisjoint(sizes)


TAKES_SIZES = re.compile(
    r"\b(?:expand|view|reshape|repeat|tile|narrow|unflatten|new_\w+)\(([^()]*)\)"
)

# Not by a number, nor by a dimension.
REPEATS_BY_TENSOR = re.compile(r"repeat_interleave\([^()\d]\w*[.(]")

SIZES_FROM_DATA = (
    "nonzero",
    "unique",
    "item(",
    "int(",
    "masked_select",
    "argwhere",
    "tolist",
    "combinations",
    "[(",
)

# Operators of which eager PyTorch gives elements in vectors another result than the rest. Most of
# them differ in what is out of range; others in numbers too.
OUT_OF_RANGE_BY_PLACE = re.compile(r"fmod|remainder| %|sinh|cosh|gelu|_norm|prod")
BY_PLACE = re.compile(r"lgamma|uint32")
OUT_OF_RANGE = re.compile(r"\b(nan|inf)\b")
EITHER_ZERO = re.compile(
    r"_norm|softshrink|lerp|max|min|clamp|hardtanh|relu6|addr\b|b?m[mv]\b|linear|matmul| @ |einsum"
)


# A remainder by a number in the program that is so small that the quotient is out of range.
TINY_DIVISOR = re.compile(r"(fmod|remainder|%).*\de-(3[89]|[4-9]\d|\d\d\d)\b")
REMAINDER = re.compile(r"fmod|remainder|%")
MAKES_TINY = re.compile(r"softplus|sigmoid|softmax|\bexp2?\b")  # of a number far below 0
CANCELS = re.compile(r"_norm|mean|var|std|sum|softmax")
SIGN_OF_NAN = re.compile(r"signbit|copysign")
MAKES_NAN = re.compile(
    r"fmod|remainder|%|floor_divide|//| / |div|pow|\*\*|sqrt|log|asin|acos|atanh|erfinv"
    r"|mean|var|std"  # of nothing
)


def _odd_by_place(program: Program, finding: dict[str, Any]) -> bool:
    source = program.function_source()
    odd = BY_PLACE.search(source)
    if OUT_OF_RANGE.search(finding["text"]):
        odd = odd or OUT_OF_RANGE_BY_PLACE.search(source)
    out_of_range = _has_special_values(program) or HYPERBOLIC_OF_RANGE.search(source)
    out_of_range = out_of_range or (HYPERBOLIC.search(source) and LARGEST.search(finding["text"]))
    out_of_range = out_of_range or (REMAINDER.search(source) and MAKES_TINY.search(source))
    by_place = odd and out_of_range
    return finding["kind"] == "values" and bool(by_place or TINY_DIVISOR.search(source))


HYPERBOLIC = re.compile(r"\b(sinh|cosh)\b")
HYPERBOLIC_OF_RANGE = re.compile(r"(?s)\barange\b.*\b(sinh|cosh)\b")  # which has 89 in it
# Of float32 and float64, where e**x is out of range and half of it isn't.
LARGEST = re.compile(r"eager tensor\(-?inf\b.*pliant tensor\(-?[\d.]+e\+(38|30[78])\b")


# What is 0 but for rounding, seen as a truth value.
SEEN_AS_TRUTH = re.compile(r"\(torch\.bool\)")
ROUNDED_NEAR_ZERO = re.compile(r"logaddexp|\blog\w*\(|softplus|logsumexp")


def _truth_of_rounding(program: Program, finding: dict[str, Any]) -> bool:
    made = ROUNDED_NEAR_ZERO.search(program.function_source())
    return finding["kind"] == "values" and bool(made and SEEN_AS_TRUTH.search(finding["text"]))


# What is nan or 0 by the place of the element, seen through a count or a comparison.
SEEN_BY_COUNT = re.compile(r"\(torch\.(int64|bool)\)")


def _counted_norm(program: Program, finding: dict[str, Any]) -> bool:
    odd = _has_special_values(program) and re.search("(layer|group)_norm", program.source())
    seen = SEEN_BY_COUNT.search(finding["text"]) or "logical_" in program.function_source()
    return finding["kind"] == "values" and bool(odd and seen)


def _has_special_values(program: Program) -> bool:
    return any(a.values == "special" for call in program.calls for a in call)


# `erf` of a bfloat16 so small that eager PyTorch gives 0.
LOST_BY_ERF = re.compile(r"torch\.bfloat16\).*eager tensor\(-?0\.,")


def _lost_by_erf(program: Program, finding: dict[str, Any]) -> bool:
    small = LOST_BY_ERF.search(finding["text"]) and "erf" in program.function_source()
    return finding["kind"] == "values" and _has_special_values(program) and bool(small)


def _zero_divisor_by_rounding(program: Program, finding: dict[str, Any]) -> bool:
    source = program.function_source()
    cancels = REMAINDER.search(source) and CANCELS.search(source)
    return finding["kind"] == "values" and "nan" in finding["text"] and bool(cancels)


HALF_A_TURN = re.compile(r"\(-?3\.14\d*\)")  # of atan2
# One over a zero: inf or -inf. (Of `rsqrt` too, though not of `sqrt`.)
OVER_ZERO = re.compile(r"//|floor_divide|rsqrt|reciprocal| / |\bdiv\b|true_divide|atan2|copysign")


def _seen_by_sign_of_zero(program: Program, finding: dict[str, Any]) -> bool:
    source = program.function_source()
    made = "softshrink" in source and OVER_ZERO.search(source)
    seen = "inf" in finding["text"] or HALF_A_TURN.search(finding["text"])
    return finding["kind"] == "values" and bool(made and seen)


LARGE_ORDER = re.compile(r"norm\([^()]*-?\d\d")
# The norm of one number is the number itself, where the size is known.
NORM = re.compile(r"vector_norm|\.norm\(|cosine_similarity|\bdist\(|normalize|renorm")


def _norm_of_one(program: Program, finding: dict[str, Any]) -> bool:
    source = program.function_source()
    out_of_range = _has_special_values(program) or LARGE_ORDER.search(source)
    symbolic = program.dynamic is not False and bool(out_of_range)
    return finding["kind"] == "values" and symbolic and bool(NORM.search(source))


def _sign_of_nan(program: Program, finding: dict[str, Any]) -> bool:
    source = program.function_source()
    made = MAKES_NAN.search(source) or _has_special_values(program)  # inf - inf, 0 * inf
    return finding["kind"] in ("values", "shape") and bool(made and SIGN_OF_NAN.search(source))


# To tensors. A key in quotes is one of a dictionary.
WRITES = re.compile(r"\w_\(|out=|[^'\"]\] = |[\w\]] [-+*/%]+= ")
DRAWS = re.compile(r"rand|dropout|bernoulli|normal_|uniform_|exponential_|multinomial|poisson|seed")
AS_INTEGERS = re.compile(r"view\(torch\.u?int")
SCATTERED = re.compile(r"(select|slice|diagonal)_scatter")


# What becomes of Python objects: their items, which object each is, numbers.
EFFECTS = tuple(f"{kind} after an error" for kind in ("structure", "identity", "number"))


def _effects_before_error(program: Program, finding: dict[str, Any]) -> bool:
    function = program.source().partition("def f(")[2].partition("def arguments_")[0]
    once = WRITES.search(function) or DRAWS.search(function)
    return finding["kind"] in EFFECTS and bool(once)


def _bits_of_nan(program: Program, finding: dict[str, Any]) -> bool:
    integers = re.search(r"\(torch\.u?int", finding["text"])
    viewed = AS_INTEGERS.search(program.source())
    return finding["kind"] == "values" and bool(integers and viewed)


# Floats that were computed in memory of integers.
AS_FLOATS = re.compile(r"view\(torch\.(float\d\d|bfloat16)\)")
TWO_INTEGERS = re.compile(
    r"\(torch\.(u?int\d+)\).*eager tensor\((-?\d+)\b.*pliant tensor\((-?\d+)\b"
)
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
UNITS = 8  # in the last place, more than any function is allowed


def _bits_of_rounding(program: Program, finding: dict[str, Any]) -> bool:
    viewed = AS_FLOATS.search(program.function_source())
    integers = TWO_INTEGERS.search(finding["text"])
    if finding["kind"] != "values" or viewed is None or integers is None:
        return False
    stored, floats = getattr(torch, integers[1]), getattr(torch, viewed[1])
    if stored.itemsize < floats.itemsize:  # a part of a float does not tell
        return False
    eager, ours = (
        torch.tensor([int(n)], dtype=stored).view(BITS[floats.itemsize]).tolist()
        for n in integers.groups()[1:]
    )
    return all(abs(a - b) <= UNITS for a, b in zip(eager, ours))


LOST_VIEW = "(torch.bool): 1 differ; at (): eager tensor(True), pliant tensor(False)"


def _view_behind_break(program: Program, finding: dict[str, Any]) -> bool:
    """A tensor that a graph hands to the code behind a break, which asks whether it is a view."""
    source = program.function_source()
    asked = "._is_view()" in source and BRANCHES.search(source)
    return finding["kind"] == "values" and LOST_VIEW in finding["text"] and bool(asked)


BRANCHES = re.compile(r"^ +(if|while|for|try)\b", re.MULTILINE)

RULES: dict[str, Rule] = {
    "eager's result depends on the place of the element": _odd_by_place,
    "a norm out of range, by the place of the element, that is counted": _counted_norm,
    "erf of a small bfloat16, which eager gives as 0": _lost_by_erf,
    "0.0 or -0.0, by the place of the element, from a norm or a product": lambda program, finding: (
        finding["kind"] == "sign of zero" and bool(EITHER_ZERO.search(program.source()))
    ),
    "strides that no element depends on, where sizes are in the data": _stride_with_size_from_data,
    "effects before an error in a graph that writes, draws or seeds": _effects_before_error,
    "the sign of nan, seen through integers": _bits_of_nan,
    "the last digits, seen through integers": _bits_of_rounding,
    "the sign of a nan that a function makes of numbers out of its domain": _sign_of_nan,
    "softshrink's zero, whose sign is by the place of the element, seen by another function": (
        _seen_by_sign_of_zero
    ),
    "the norm of one number whose power is out of range, with symbolic sizes": _norm_of_one,
    "a divisor that is 0 but for rounding": _zero_divisor_by_rounding,
    "a truth value that is so but for rounding": _truth_of_rounding,
    "an offset in memory of its own": lambda program, finding: (
        finding["kind"] == "storage_offset" and bool(SCATTERED.search(program.source()))
    ),
    "a number in the data beyond 64 bits, in a graph that has written": lambda program, finding: (
        "beyond 64 bits" in finding["text"] and bool(WRITES.search(program.function_source()))
    ),
    "a number in the data out of the range of a dtype": lambda program, finding: (
        finding["kind"] == "no error"
        and "without overflow" in finding["text"]
        and "item(" in program.function_source()
    ),
    "a tensor of a negative size, which a graph can't make": lambda program, finding: (
        finding["kind"] in ("fallback", "no error")
        and "negative dimension" in finding["text"]
        and "expand(-1, 0)" in program.function_source()
    ),
    "a view of a tensor that is not returned, behind a break": _view_behind_break,
    "dropout of nothing, where sizes are in the data": lambda program, finding: (
        finding["kind"] == "identity"
        and "dropout" in program.function_source()
        and any(name in program.function_source() for name in SIZES_FROM_DATA)
    ),
    "NameError instead of UnboundLocalError": lambda program, finding: (
        finding["place"] == "UnboundLocalError or NameError"
    ),
}


def reason(program: Program, finding: dict[str, Any]) -> str | None:
    """Why the finding is accepted, if it is."""
    return next((why for why, holds in RULES.items() if holds(program, finding)), None)
