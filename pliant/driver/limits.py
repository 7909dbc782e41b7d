"""When a function is compiled again, and when no more: the limits, and what is done at them.

The one idea: each call that fits no entry has a reason for each entry, the guard that failed. What
the reasons have in common is what varies from call to call. At the limit, if it is numbers and
sizes that were constants so far, one more compilation is tried, in which they are symbols.
Otherwise the user is told once what varied and what to do, and entries that fit stay in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import field
from typing import Any, Final, NoReturn

import torch

from pliant._native import UNREACHABLE, Dispatcher
from pliant.base import events
from pliant.base.dispatch_mode import DispatchMode
from pliant.base.errors import RecompileError, RecompileLimitError
from pliant.base.options import Options, config
from pliant.base.values import dataclass
from pliant.driver.reporting import described
from pliant.dynamic.choose import DynamicPolicy
from pliant.guards import plan
from pliant.guards.guard import Guard, GuardKind

MOST_REASONS: Final = 16
"""How many entries a recompilation explains: the work for one more entry must not
grow with the number of entries."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The first guard of an entry that does not hold for a call, and what it found instead."""

    entry: int
    guard: Guard | None  # None: something that is only passed along is not there
    got: Any

    @property
    def kind(self) -> GuardKind | None:
        return None if self.guard is None else self.guard.kind

    def event(self) -> events.FailedGuard:
        text = plan.explain(self.guard, self.got)
        position = None if self.guard is None else self.guard.position
        return events.FailedGuard(entry=self.entry, guard=text, position=position)


@dataclass(slots=True)
class Limits:
    """Counts the compilations of one function and its resume functions, and says when there are
    enough."""

    options: Options
    policy: DynamicPolicy
    fullgraph: bool = False
    total: int = 0
    extended: set[Dispatcher] = field(default_factory=set)  # their last attempt has been made

    def allow(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> bool:
        """Whether the function may be compiled for this call. If not, the dispatcher is told to run
        eagerly on a miss, or this raises."""
        # The option as it was when `compile` was called, or as it is now.
        forbidden = self.options.error_on_recompile or config.error_on_recompile
        if dispatcher.entries and forbidden:
            self._refuse(dispatcher, why_none_fits(dispatcher, values))
        if self.reached(dispatcher) is None:
            if dispatcher.entries:
                self._tell(dispatcher, why_none_fits(dispatcher, values, most=MOST_REASONS))
            return True
        failures = why_none_fits(dispatcher, values)
        # One failed guard of each entry is enough to tell the user. Whether symbols would help
        # depends on all of them: a dtype may differ besides the size.
        every = why_none_fits(dispatcher, values, every=True)
        # Once for each function: if the general compilation doesn't fit either, the function varies
        # in another way.
        if dispatcher not in self.extended and can_be_general(self.policy, every):
            self.extended.add(dispatcher)
            self._tell(dispatcher, failures)
            return True
        self._stop(dispatcher, failures)
        return False

    def _refuse(self, dispatcher: Dispatcher, failures: list[Failure]) -> NoReturn:
        """Raise the RecompileError of `config.error_on_recompile`."""
        varied, remedy = what_varied(failures)
        about = described(dispatcher.fn)
        raise RecompileError(
            f"{about['function']} would have to be compiled once more, and "
            "config.error_on_recompile is on",
            why=varied,
            remedy=remedy,
            position=about["position"],
        )

    def reached(self, dispatcher: Dispatcher) -> str | None:
        """The name of the option whose limit the function has reached, or None."""
        if len(dispatcher.entries) >= self.options.recompile_limit:
            return "recompile_limit"
        if self.total >= self.options.accumulated_recompile_limit:
            return "accumulated_recompile_limit"
        return None

    def _stop(self, dispatcher: Dispatcher, failures: list[Failure]) -> None:
        """Compile this function no more: a call that fits no entry runs eagerly, or is an error
        under `fullgraph`."""
        option = self.reached(dispatcher) or "recompile_limit"
        limit = getattr(self.options, option)
        varied, remedy = what_varied(failures)
        about = described(dispatcher.fn)
        name, position = about["function"], about["position"]
        if self.fullgraph or self.options.fail_on_recompile_limit_hit:
            raise RecompileLimitError(
                f"{name} was compiled {limit} times, as often as config.{option} allows",
                why=varied,
                remedy=remedy,
                position=position,
            )
        # Entries that fit are still used; only a miss no longer compiles.
        dispatcher.mode = DispatchMode.EAGER_ON_MISS
        events.emit(
            events.LimitReached(
                function=name,
                position=position,
                limit=limit,
                option=option,
                varied=varied,
                remedy=remedy,
            )
        )

    def _tell(self, dispatcher: Dispatcher, failures: list[Failure]) -> None:
        """Emit the event that the function is compiled again, with the reasons."""
        events.emit(
            events.Recompiled(
                **described(dispatcher.fn),
                index=len(dispatcher.entries),
                reasons=tuple(failure.event() for failure in failures),
                remedy=what_varied(failures)[1],
            )
        )

    def allow_case(self, dispatcher: Dispatcher, answers: dict[str, bool]) -> bool:
        """Whether the function may be compiled for a case found in the data (`recovery`). There is
        no failed guard to report: the reason is the last of `answers`."""
        if self.reached(dispatcher) is not None:
            return False
        # `recovery` lists the answers up to the one that was wrong, so that one is the last.
        question, answer = list(answers.items())[-1]
        reason = events.FailedGuard(entry=0, guard=f"{question} in the data, got {answer}")
        about = described(dispatcher.fn)
        events.emit(events.Recompiled(**about, index=len(dispatcher.entries), reasons=(reason,)))
        return True

    def forget(self) -> None:
        self.total = 0
        self.extended.clear()


def why_none_fits(
    dispatcher: Dispatcher, values: tuple[Any, ...], every: bool = False, most: int | None = None
) -> list[Failure]:
    """For each entry, oldest first, its first guard that fails for the call, or with `every` all of
    them. With `most`, only of that many entries, those used last."""
    failures: list[Failure] = []
    # `entries` are in the order of their last use.
    for entry in sorted(dispatcher.entries[:most], key=lambda entry: entry.info.index):
        if every:
            failed = entry.tree.failures(values)
        else:
            first = entry.tree.check(values)
            failed = [] if first is None else [first]
        failures += [Failure(entry.info.index, *pair) for pair in failed]
    return failures


# ---- what varies


def can_be_general(policy: DynamicPolicy, failures: list[Failure]) -> bool:
    """Whether one more compilation, with symbols for what was constant so far, would fit this call
    and all earlier ones: every failed guard is on a number or on sizes."""
    if not policy.generalises or not failures:
        return False
    return all(_GENERAL.get(f.kind, _never)(policy, f.guard, f.got) for f in failures)


def _other_number(policy: DynamicPolicy, guard: Guard, actual: Any) -> bool:
    """Whether the guard fixes a number that may become a symbol, and the call has another one of
    the same type."""
    fixed = {int: policy.specialize_int, float: policy.specialize_float}
    return not fixed.get(type(guard.expected), True) and type(actual) is type(guard.expected)


def _other_sizes(policy: DynamicPolicy, guard: Guard, actual: Any) -> bool:
    """Whether a tensor is as expected but for its sizes and strides."""
    if not isinstance(actual, torch.Tensor) or actual.dim() != len(guard.expected.sizes):
        return False
    # `.size()`, `.stride()` and `.storage_offset()`: no other property of a tensor begins with an
    # s.
    return plan.difference(guard, actual).subject.startswith(f"{guard.source}.s")


def _never(policy: DynamicPolicy, guard: Guard | None, actual: Any) -> bool:
    return False


_GENERAL: dict[GuardKind | None, Callable[[DynamicPolicy, Any, Any], bool]] = {
    GuardKind.EQUALS: _other_number,
    GuardKind.TENSOR: _other_sizes,
}


def what_varied(failures: list[Failure]) -> tuple[str, str]:
    """What was different most often, with the values seen, and what a user can do about it:
    `("L['n'] was 1, 2, 3 and is now 4", "Pass the number as a tensor…")`."""
    if not failures:
        return "", ""
    differences = [plan.difference(failure.guard, failure.got) for failure in failures]
    subject = Counter(difference.subject for difference in differences).most_common(1)[0][0]
    alike = [difference for difference in differences if difference.subject == subject]
    before = ", ".join(list(dict.fromkeys(difference.expected for difference in alike))[-8:])
    example = next(
        f
        for f, difference in zip(failures, differences, strict=True)
        if difference.subject == subject
    )
    return f"{subject} was {before} and is now {alike[-1].found}", remedy(example)


def remedy(failure: Failure) -> str:
    """What a user can do so that this guard doesn't fail."""
    guard = failure.guard
    if guard is None or failure.got is UNREACHABLE:
        return REMEDIES[None]
    if guard.kind is GuardKind.EQUALS and type(guard.expected) in (int, float):
        return "Pass the number as a tensor: torch.tensor(value)."
    return REMEDIES.get(guard.kind, REMEDIES[None])


REMEDIES: dict[GuardKind | None, str] = {
    GuardKind.TENSOR: (
        "Pad to a few sizes, or compile a function of its own for each kind of tensor."
    ),
    GuardKind.LENGTH: "Pass a tensor instead of a growing list, or keep the list outside.",
    GuardKind.STATE: "Set the mode once outside, or compile a function of its own for each mode.",
    None: "Keep what varies outside the compiled function, or compile one function for each case.",
}
