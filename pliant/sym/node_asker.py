"""Who asks: the place in PyTorch that a question about a size comes from, and what is behind it.

The one idea: a question of PyTorch's shape code is often only a step. `is_contiguous` asks about
one size after the other; a guard for each of its steps (`s0 != 1`) would say far more than what
the function finds out in the end. So a table says of the functions that ask most what their
question amounts to:

    a condition    the steps of the function work out this condition: ask that, then let the steps
                   go the way of the hints
    GENERAL        the function gives the same result whatever the answer is: no guard is needed
    None           the answer matters

What stands here is checked against eager PyTorch, for sizes 0 and 1 above all, by
tests/sym/test_node_tensors.py. A function that is not in the table is asked for: its questions
become guards, which is always right.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from pliant.sym import node_layout
from pliant.sym.cond import TRUE, Cond
from pliant.sym.expr import ONE, Expr, cached, integer

if TYPE_CHECKING:
    from pliant.sym.env import ShapeEnv

FARTHEST: Final = 60  # frames up to the function that a question is asked for

GENERAL: Final[Cond] = TRUE
"""A question whose answer makes no difference: a step on the way to what is true anyway."""

Meaning = Cond | Callable[..., Cond] | None


_PLUMBING: Final = (
    os.path.join("torch", "fx", "experimental", ""),
    os.path.join("pliant", "sym", ""),
    os.path.join("torch", "__init__.py"),
    os.path.join("torch", "_compile.py"),
)
"""Files that only pass a question on."""

_PLUMBING_FUNCTIONS: Final = ("eval_eager", "<genexpr>", "<listcomp>")

GENERAL_FILES: Final = ("Contiguity.h", "EmptyTensor.cpp", "input_metadata.cpp")
"""C++ files in which every question with a default is general.

Contiguity.h looks for a proof that a tensor is contiguous by questions with a default; if it finds
none, it makes an expression of it, which is asked for when somebody needs to know. EmptyTensor.cpp
computes how many bytes a storage has, which nobody looks at while tensors have no storage.
input_metadata.cpp looks whether a gradient has to be summed, where a size is 1; if it isn't known
to be, it demands that the sizes are equal, which is tested when the code runs."""

ALLOCATES: Final = "EmptyTensor.h"
"""The C++ file that demands of the sizes of new memory that they are at least 0."""

EXPANDS: Final = ("ExpandUtils.h", "TensorIndexing.h")
"""C++ files with two kinds of questions that have a default.

What writes to a tensor (`x[n:m] = y`) asks whether what is written has the same size, and expands
it if not: that does nothing if the sizes are equal after all, so the question is general. `sum_to`,
which gradients of broadcast operands go through, asks whether a size is 1, as input_metadata.cpp
does: that is general once the capture has settled what is broadcast. A program that calls it by
itself (`sum_to_size`) may do so with a size of 1 that nobody knows to be 1."""


def is_general(file: str, cond: Cond, env: ShapeEnv) -> bool:
    """Whether this question with a default, which comes from this C++ file, is general. Where a
    hint answers it, a guard does no harm: PyTorch asks for the sizes once more."""
    if file.endswith(EXPANDS):
        return not env.in_capture or (env.hint(cond) is None and not _may_ask_for_one(cond))
    return file.endswith(GENERAL_FILES)


def _may_ask_for_one(cond: Cond) -> bool:
    return cond.op != "eq0" or abs(cond.args[0].const) == 1


@cached(1024)
def _passes_on(file: str, function: str) -> bool:
    return function in _PLUMBING_FUNCTIONS or any(part in file for part in _PLUMBING)


def asking_frame() -> FrameType | None:
    """The innermost Python frame that does more than pass a question on."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not _passes_on(code.co_filename, code.co_name):
            return frame
        frame = frame.f_back
    return None


def is_from_cpp(caller: FrameType) -> bool:
    """Whether C++ calls a method of a node. It does so from within any Python function, whereas in
    Python only a few files do."""
    return not _passes_on(caller.f_code.co_filename, "")


def compares_strides() -> bool:
    """Whether a number is computed in order to compare two strides of a tensor."""
    frame = asking_frame()
    if frame is None or frame.f_code.co_name != "ge":
        return False
    return frame.f_code.co_filename.endswith(_COMMON)


def asker_of(file: str, line: int) -> str:
    """The place as text: a C++ file with its line, or the Python function that asks."""
    if file and not file.endswith(".py"):
        return f"PyTorch ({os.path.basename(file)}:{line})"
    frame = asking_frame()
    if frame is None:
        return "PyTorch"
    folder, name = os.path.split(frame.f_code.co_filename)
    module = os.path.basename(folder) if name == "__init__.py" else name
    return f"{frame.f_code.co_name} ({module}:{frame.f_lineno})"


def meaning(frame: FrameType) -> Meaning:
    """What the question that this frame asks amounts to, by the table; None if the frame isn't in
    it."""
    # By name and file: the functions of PyTorch can't be marked.
    rule = _RULES.get(frame.f_code.co_name)
    if rule is None or not frame.f_code.co_filename.endswith(rule[0]):
        return None
    try:
        return rule[1](frame)
    except (KeyError, IndexError, AttributeError):  # another version of that function
        return None


def _caller(frame: FrameType, function: str) -> FrameType | None:
    """The frame of the function `function` of torch._refs or torch._prims_common around this one,
    or None."""
    above: FrameType | None = frame
    for _ in range(FARTHEST):
        if above is None:
            return None
        if above.f_code.co_name == function and above.f_code.co_filename.endswith((_REFS, _COMMON)):
            return above
        above = above.f_back
    return None


# --------------------------------------------------------------------------------------------------
# The functions


def _expr(value: Any) -> Expr:
    return value.node.expr if hasattr(value, "node") else integer(value)


def _layout(a: Any) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    return tuple(map(_expr, a.shape)), tuple(map(_expr, a.stride()))


def _layout_of_tensor(question: node_layout.LayoutCondition) -> Callable[[FrameType], Meaning]:
    def rule(frame: FrameType) -> Meaning:
        if _ordering(frame) is GENERAL:
            return GENERAL
        return question(*_layout(frame.f_locals["a"]))

    return rule


def _ordering(frame: FrameType) -> Meaning:
    """GENERAL, if the strides of a pointwise result are sorted and all operands are row-major
    (before they were broadcast): then so is the result, and the steps lead there if none of them is
    answered."""
    above = _caller(frame, "compute_elementwise_output_logical_to_physical_perm")
    if above is None:
        return None
    usual = all(node_layout.broadcast_row_major(*_layout(a)) for a in above.f_locals["tensors"])
    return GENERAL if usual else None


def _row_major(frame: FrameType) -> Meaning:
    if _ordering(frame) is GENERAL:
        return GENERAL
    before = frame.f_back
    if before is not None and before.f_code.co_name in _DENSE:
        return meaning(before)
    values = frame.f_locals
    sizes, strides = tuple(map(_expr, values["sizes"])), tuple(map(_expr, values["strides"]))
    return node_layout.is_row_major(sizes, strides)


def _dense(frame: FrameType) -> Meaning:
    """The condition that a tensor is dense. It depends on the order of the strides, which a
    ShapeEnv knows."""
    values = frame.f_locals
    sizes, strides = tuple(map(_expr, values["sizes"])), tuple(map(_expr, values["strides"]))
    return lambda dense: dense(sizes, strides)


def _sorting(frame: FrameType) -> Meaning:
    """Strides are compared in order to sort them."""
    before = frame.f_back
    return meaning(before) if before is not None and before.f_code.co_name in _DENSE else None


def _one_or_same(a: Any, b: Any) -> Meaning:
    """GENERAL, if one of two sizes is 1 or they are the same: then broadcasting gives the other
    one, whether that is 1 or not."""
    x, y = _expr(a), _expr(b)
    return GENERAL if x is y or x is ONE or y is ONE else None


def _broadcast_shapes(frame: FrameType) -> Meaning:
    values = frame.f_locals
    idx = values["idx"]
    return _one_or_same(values["shape"][idx], values["common_shape"][idx])


def _should_expand(frame: FrameType) -> Meaning:
    return _one_or_same(frame.f_locals["x"], frame.f_locals["y"])


def _broadcast_in_dim(frame: FrameType) -> Meaning:
    """A dimension that keeps its size keeps its stride, be the size 1 or not. A new one, or one
    that was 1, gets the stride 0; that it is not so if its size stays 1 doesn't matter to a
    pointwise operation, which is what operands are broadcast for."""
    values = frame.f_locals
    inside = _caller(frame, "__maybe_broadcast") is not None
    if values["idx"] not in values["broadcast_dimensions"]:
        return GENERAL if inside else None
    before = _expr(values["a"].shape[values["original_idx"]])
    is_same = before is _expr(values["shape"][values["idx"]])
    return GENERAL if is_same or (inside and before is ONE) else None


_DENSE: Final = ("_is_non_overlapping_and_dense_or_false",)
_COMMON: Final = os.path.join("torch", "_prims_common", "__init__.py")
_REFS: Final = os.path.join("torch", "_refs", "__init__.py")
_PRIMS: Final = os.path.join("torch", "_prims", "__init__.py")

_RULES: Final[dict[str, tuple[str, Callable[[FrameType], Meaning]]]] = {
    "is_contiguous": (_COMMON, _layout_of_tensor(node_layout.is_contiguous)),
    "is_channels_last_contiguous_2d": (
        _COMMON,
        _layout_of_tensor(node_layout.is_channels_last_contiguous_2d),
    ),
    "is_channels_last_contiguous_3d": (
        _COMMON,
        _layout_of_tensor(node_layout.is_channels_last_contiguous_3d),
    ),
    "check_contiguous_sizes_strides": (_COMMON, _row_major),
    "_is_non_overlapping_and_dense_or_false": (_COMMON, _dense),
    "__lt__": (_COMMON, _sorting),
    "should_swap": (_COMMON, _ordering),
    "ge": (_COMMON, _ordering),
    "_broadcast_shapes": (_REFS, _broadcast_shapes),
    "should_expand": (_REFS, _should_expand),
    "_broadcast_in_dim_meta": (_PRIMS, _broadcast_in_dim),
}
"""By name of the function: the end of its file's name, and its rule."""
