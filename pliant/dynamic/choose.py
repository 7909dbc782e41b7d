"""The rule that decides what each size and number is: a constant, a symbol, or one without a value.

The one idea: there is one list of reasons, the strongest first, and the first that applies decides
and is told to the user:

  1. marks on the tensor;
  2. the lists of sources (options, environment variables);
  3. it equals a size that is marked, in another tensor of the same call;
  4. `specialize_int` and `specialize_float`, for numbers;
  5. `dynamic=False`;
  6. it is the learning rate of an optimizer, which schedulers change;
  7. it belongs to a module (parameters, buffers, numbers kept there), unless it changed;
  8. `dynamic=True`, or the option assume_static_by_default is off;
  9. it changed since an earlier compilation (automatic dynamic);
  10. nothing: it is a constant.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import torch

from pliant.base.options import Options
from pliant.base.values import dataclass
from pliant.dynamic import sources
from pliant.dynamic.marks import InputState, Mark, marks_of
from pliant.dynamic.sources import Patterns


@dataclass(frozen=True, slots=True)
class Choice:
    """What an input becomes: a constant, a symbol, or an unbacked symbol.

    `strict`: it is an error if it turns out to be a constant. `minimum` and `maximum` are promises,
    which are guarded. `shape_id`: sizes with this name are equal. `why` is the reason in words.
    """

    state: InputState
    strict: bool
    minimum: int | None
    maximum: int | None
    why: str
    shape_id: str | None = None


@dataclass(frozen=True, slots=True)
class DynamicPolicy:
    """What one compiled function was told about dynamic shapes: `dynamic=` and the options."""

    dynamic: bool | None = None
    automatic: bool = True
    static_by_default: bool = True
    specialize_int: bool = False
    specialize_float: bool = False
    dynamic_sources: Patterns = ()
    unbacked_sources: Patterns = ()

    @property
    def generalises(self) -> bool:
        """Whether what changes from one compilation to the next becomes a symbol."""
        return self.automatic and self.dynamic is not False

    @classmethod
    def of(cls, dynamic: bool | None, options: Options) -> DynamicPolicy:
        """The policy for `compile(dynamic=dynamic)` and these options. Raises InvalidOptionError if
        a list of sources can't be parsed."""
        return cls(
            dynamic,
            options.automatic_dynamic_shapes,
            options.assume_static_by_default,
            options.specialize_int,
            options.specialize_float,
            sources.gather("dynamic_sources", options.dynamic_sources),
            sources.gather("unbacked_sources", options.unbacked_sources),
        )


class Carried:
    """The marked sizes of one call, so that equal sizes of other tensors become symbols too: for `x
    + y` both have to, or the sum makes a constant of the marked one.

    All tensors of a call are noted before any size is chosen. A size of 1 isn't carried: it is
    common by chance, and means broadcasting more often than equality.
    """

    def __init__(self, policy: DynamicPolicy) -> None:
        self._policy = policy
        self._sizes: dict[int, list[tuple[str, int]]] = {}

    def note(self, source_text: str, tensor: torch.Tensor) -> None:
        """Note the sizes of a tensor that are marked, or named in a list of sources."""
        marks = marks_of(tensor)
        policy = self._policy
        if not marks and not policy.dynamic_sources and not policy.unbacked_sources:
            return
        for dim, size in enumerate(tensor.shape):
            # The two strongest reasons only: what varies by itself isn't carried to others.
            choice = _marked(marks.get(dim)) or _listed(policy, source_text, dim)
            if choice is not None and choice.state != "static" and size != 1:
                self._sizes.setdefault(size, []).append((source_text, dim))

    def like(self, source_text: str, size: int) -> str | None:
        """The name of the marked size, of another tensor, that this one equals; None if there is
        none."""
        for other, dim in self._sizes.get(size, ()):
            if other != source_text:
                return f"{other}.size()[{dim}]"
        return None


def choose_size(
    policy: DynamicPolicy,
    source_text: str,
    tensor: torch.Tensor,
    dim: int,
    changed: bool,
    *,
    before: int | None = None,
    module_part: str = "",
    carried: Carried | None = None,
) -> Choice:
    """What dimension `dim` of the input tensor `source_text` becomes.

    `changed` says that it is known to vary (`History`), and `before` what it was. `module_part` is
    "parameter", "buffer" or "attribute" for a tensor found in a module.
    """
    size = int(tensor.shape[dim])
    part = module_part or ("parameter" if isinstance(tensor, torch.nn.Parameter) else "")
    return (
        # The first reason that applies decides. docs/dynamic_shapes.md has the same order.
        _marked(marks_of(tensor).get(dim))
        or _listed(policy, source_text, dim)
        or _carried(carried, source_text, size, part)
        or _by_policy(policy, "size", size, before, changed, part)
    )


def choose_number(
    policy: DynamicPolicy,
    source_text: str,
    value: int | float,
    changed: bool,
    *,
    before: int | float | None = None,
    module_part: str = "",
    learning_rate: bool = False,
) -> Choice:
    """What an input that is a Python number is to be. Only ints and floats become symbols."""
    # By exact type: a bool is an int, and a subclass may behave in another way.
    if type(value) not in _SPECIALIZED:
        return static(f"a {type(value).__name__} is a constant")
    least, most = _LIMITS[type(value)]
    if not least <= value <= most:  # nor is NaN in between
        return static("not a number that a symbol can stand for")
    option = _SPECIALIZED[type(value)]
    return (
        _listed(policy, source_text, None, unbacked=type(value) is int)
        or (static(f"the option {option} is on") if getattr(policy, option) else None)
        or (_learning_rate(policy) if learning_rate and type(value) is float else None)
        or _by_policy(policy, "value", value, before, changed, module_part)
    )


_SPECIALIZED: Final[dict[type, str]] = {int: "specialize_int", float: "specialize_float"}
_LIMITS: Final[dict[type, tuple[float, float]]] = {  # when the code runs, an int has 64 bits
    int: (1 - 2**63, 2**63 - 1),  # the smallest one says that there is no number
    float: (-sys.float_info.max, sys.float_info.max),
}


# ---- the reasons, the strongest first; None: it doesn't apply


def _marked(mark: Mark | None) -> Choice | None:
    if mark is None:
        return None
    state, name = _MARKED[mark.kind]
    return Choice(state, mark.strict, mark.min, mark.max, name, mark.shape_id)


_MARKED: Final[dict[str, tuple[InputState, str]]] = {
    "dynamic": ("dynamic", "mark_dynamic"),
    "maybe": ("dynamic", "maybe_mark_dynamic"),
    "static": ("static", "mark_static"),
    "unbacked": ("unbacked", "mark_unbacked"),
}


def _listed(
    policy: DynamicPolicy, source_text: str, dim: int | None, unbacked: bool = True
) -> Choice | None:
    """The choice by a list of sources that names the input. Of the two lists, unbacked_sources is
    the stronger one, as mark_unbacked is among marks."""
    lists: tuple[tuple[InputState, Patterns], ...] = (
        ("unbacked" if unbacked else "dynamic", policy.unbacked_sources),
        ("dynamic", policy.dynamic_sources),
    )
    for state, patterns in lists:
        pattern = sources.matching(patterns, source_text, dim) if patterns else None
        if pattern is not None:
            return Choice(state, False, None, None, f"matches {pattern.text} in {pattern.giver}")
    return None


def _carried(carried: Carried | None, source_text: str, size: int, part: str) -> Choice | None:
    # The sizes of parameters are what they are: one that equals the batch size does so by chance.
    like = carried.like(source_text, size) if carried is not None and not part else None
    return _dynamic(f"equal to the marked {like}") if like else None


def _learning_rate(policy: DynamicPolicy) -> Choice | None:
    """A learning rate is a symbol from the start: a schedule may begin after any number of steps,
    and the first change would compile the whole step again."""
    return _dynamic("a learning rate") if policy.generalises else None


def _by_policy(
    policy: DynamicPolicy, word: str, value: Any, before: Any, changed: bool, part: str
) -> Choice:
    return next(_reasons(policy, word, value, before, changed, part))


def _reasons(
    policy: DynamicPolicy, word: str, value: Any, before: Any, changed: bool, part: str
) -> Iterator[Choice]:
    """The remaining reasons in order, the last of which always applies."""
    # Even for a part of a module: what has been seen to change will change again.
    automatic = changed and policy.automatic and policy.dynamic is not False
    if policy.dynamic is False:
        yield static("dynamic=False")
    # Before `dynamic=True`: symbolic sizes of weights would cost guards, and these hardly ever
    # change.
    if part and not automatic:
        yield static(f"{'an' if part[0] in 'aeiou' else 'a'} {part} of a module")
    if policy.dynamic:
        yield _dynamic("dynamic=True")
    if not policy.static_by_default:
        yield _dynamic("assume_static_by_default is off")
    if automatic:
        was = f" from {before} to {value}" if before is not None and before != value else ""
        yield _dynamic(f"{word} changed{was} (automatic dynamic)")
    if changed:
        yield static("automatic_dynamic_shapes is off")
    yield static("has not changed so far")


def static(why: str) -> Choice:
    return Choice("static", False, None, None, why)


def _dynamic(why: str) -> Choice:
    return Choice("dynamic", False, None, None, why)
