"""`is_leaf` functions of `torch.utils._pytree` that look at data.

The one idea: an object that is no container is a leaf whatever the function says. So the function
is asked, since it may do something, and its answer is not needed.
"""

from __future__ import annotations

from typing import Any

from torch.utils import _pytree as pytree

from pliant.capture.library.python.equivalents import as_value
from pliant.capture.model import call, truth
from pliant.capture.native import SHORTCUTS, function
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Const, Value
from pliant.capture.values.number import Number
from pliant.capture.values.tensors import TensorValue


def leaf_or_asked(tree: Any, is_leaf: Any) -> bool:
    """`tree_is_leaf` with a function."""
    if pytree._get_node_type(tree) in pytree.SUPPORTED_NODES:
        return bool(is_leaf(tree))
    ask_in_vain(is_leaf(tree))
    return True


def ask_in_vain(answer: Any) -> None:
    bool(answer)


@function(ask_in_vain)
def ignore_answer(trace: Trace, answer: Value) -> Value:
    note_answer(trace, trace.read(answer))
    return NONE


def note_answer(trace: Trace, answer: Value) -> None:
    """An answer that decides nothing. Asking for the truth of a number, or of a tensor that holds
    one, has no effect; of another object it may."""
    one_number = isinstance(answer, TensorValue) and all(n == 1 for n in answer.fake.shape)
    if not (isinstance(answer, Number) or one_number):
        truth(trace, answer)


def is_leaf_followed(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    named = dict(zip(("tree", "is_leaf"), args, strict=False)) | kwargs
    is_leaf = trace.read(named.get("is_leaf", NONE))
    if named.keys() != {"tree", "is_leaf"} or (isinstance(is_leaf, Const) and not is_leaf.value):
        return None
    return call(trace, as_value(leaf_or_asked), [named["tree"], is_leaf], direct=direct)


SHORTCUTS[pytree.tree_is_leaf] = is_leaf_followed
