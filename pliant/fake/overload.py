"""What an operator's schema and tags say about how to run it on fakes, worked out once for each.

The one idea: every ATen operator is of one `OverloadKind`, which alone decides what a `World` does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.base.devices import CPU, META
from pliant.base.operators import Record, record_of
from pliant.base.values import dataclass
from pliant.fake.raising import MayRaise, may_raise


class OverloadKind(enum.Enum):
    """How an operator's result relates to its arguments."""

    FUNCTIONAL = enum.auto()  # new tensors, arguments untouched
    VIEW = enum.auto()  # results share the storage of an argument
    WRITE = enum.auto()  # an argument's values are written (and out= may be resized)
    RESHAPE = enum.auto()  # an argument's own metadata changes: t_, unsqueeze_, resize_, set_
    COMPOSITE = enum.auto()  # nothing but other operators
    DATA = enum.auto()  # the answer is made of values


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an operator: where it is found in a call."""

    name: str
    position: int

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[self.position] if self.position < len(args) else kwargs.get(self.name)


@dataclass(frozen=True, slots=True)
class Overload:
    """The facts about one operator overload."""

    func: Any
    name: str
    kind: OverloadKind
    written: tuple[Argument, ...]
    # Written, if the argument `training` says so, although the schema does not.
    statistics: tuple[Argument, ...]
    training: Argument | None
    # For each result: the argument it is (in-place, out=), or None for a new tensor.
    returned: tuple[Argument | None, ...]
    # Whether a call draws random numbers; None if it never does.
    draws: Callable[[tuple[Any, ...], dict[str, Any]], bool] | None
    # Whether a call may raise because of the numbers in a tensor; None if it never does.
    raises: MayRaise | None
    # What is known besides.
    record: Record

    @property
    def deterministic(self) -> bool:
        """Whether two calls with the same arguments have the same result."""
        return torch.Tag.nondeterministic_seeded not in self.func.tags


def _argument(func: Any, name: str) -> Argument | None:
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            # Keyword-only arguments never arrive by position.
            return Argument(name, 1 << 30 if argument.kwarg_only else position)
    return None


def _has_kernel(func: Any, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)


def _kind(func: Any) -> OverloadKind:
    schema, tags = func._schema, func.tags
    aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    # The first that holds decides.
    facts = (
        (OverloadKind.DATA, torch.Tag.data_dependent_output in tags or _answers_from_data(func)),
        # Before WRITE: their schemas say that they write, too.
        (OverloadKind.RESHAPE, torch.Tag.inplace_view in tags),
        (
            OverloadKind.COMPOSITE,
            # With a meta kernel besides, it is answered whole.
            _has_kernel(func, "CompositeImplicitAutograd") and not _has_kernel(func, "Meta"),
        ),
        (OverloadKind.WRITE, writes),
        (OverloadKind.VIEW, bool(aliases)),
    )
    return next((kind for kind, holds in facts if holds), OverloadKind.FUNCTIONAL)


def _answers_from_data(func: Any) -> bool:
    """Whether the operator returns a number read from a tensor, although no tag says so.

    For ATen this is known. An operator of the program that returns a number and takes tensors is
    taken to do so: it may compute it from sizes alone, but that can't be told.
    """
    schema = func._schema
    if func.namespace == "aten":
        return record_of(str(func)).reads_data
    plain = bool(schema.returns) and not any("Tensor" in str(r.type) for r in schema.returns)
    return plain and any("Tensor" in str(a.type) for a in schema.arguments)


def _written(func: Any) -> tuple[Argument, ...]:
    infos = ((a.name, a.alias_info) for a in func._schema.arguments)
    return _arguments(func, (name for name, info in infos if info is not None and info.is_write))


def _arguments(func: Any, names: Iterable[str]) -> tuple[Argument, ...]:
    return tuple(argument for name in names if (argument := _argument(func, name)) is not None)


def _returned(func: Any) -> tuple[Argument | None, ...]:
    writes: dict[str, str] = {}
    for argument in func._schema.arguments:
        info = argument.alias_info
        if info is not None and info.is_write:
            writes.update(dict.fromkeys(info.before_set, argument.name))
    arguments: list[Argument | None] = []
    for result in func._schema.returns:
        # A result that shares an alias set with a written argument is that argument.
        info = result.alias_info
        names = [writes[s] for s in info.before_set if s in writes] if info is not None else []
        arguments.append(_argument(func, names[0]) if names else None)
    return tuple(arguments)


def _draws(func: Any) -> Callable[[tuple[Any, ...], dict[str, Any]], bool] | None:
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return None
    switch = next((a for n in DRAWS_UNLESS_OFF if (a := _argument(func, n)) is not None), None)
    if switch is None:
        return lambda args, kwargs: True
    default = next(a.default_value for a in func._schema.arguments if a.name == switch.name)

    def draws(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        value = switch.of(args, kwargs)
        value = default if value is None else value
        return value is None or bool(value)  # native_dropout(train=None) does draw

    return draws


def without_out(func: Any) -> Any | None:
    """The overload that returns new tensors instead of writing to those of `out=`."""
    read = [a for a in func._schema.arguments if a.alias_info is None or not a.alias_info.is_write]
    parameters = [(a.name, str(a.type)) for a in read]
    packet = getattr(torch.ops, func.namespace)
    packet = getattr(packet, func._schema.name.partition("::")[2])
    for name in packet.overloads():
        overload = getattr(packet, name)
        if (
            overload is not func
            and [(a.name, str(a.type)) for a in overload._schema.arguments] == parameters
        ):
            return overload
    return None


def describe(func: Any) -> Overload:
    """The facts about `func`, worked out on its first use in this process; they never change."""
    overload = _known.get(func)
    if overload is None:
        kind, record = _kind(func), record_of(str(func))
        overload = _known[func] = Overload(
            func,
            str(func),
            kind,
            _written(func),
            _arguments(func, record.hidden_writes),
            _argument(func, "training") or _argument(func, "use_input_stats"),
            _returned(func),
            _draws(func),
            may_raise(func, kind in (OverloadKind.VIEW, OverloadKind.RESHAPE)),
            record,
        )
    return overload


def tried_on(op: Overload, device: torch.device) -> torch.device:
    """Where to run an operator on a few elements, to see what it returns.

    On the CPU for real. PyTorch's meta kernels say the same, but are slow, and some import half of
    its compiler for it. Random numbers are not drawn: others would miss them.
    """
    return device if device == CPU and op.draws is None else META


_known: dict[Any, Overload] = {}

# Arguments that switch an operator's use of random numbers off when they are 0 or False.
DRAWS_UNLESS_OFF = ("dropout_p", "train", "training")
