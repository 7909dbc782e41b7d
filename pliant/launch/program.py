"""`Program`: a compiled graph as plain data, and `ProgramBindings`: what ties it to this process.

The one idea: a program says everything in numbers, names and keys, so that it could be written to
disk. Live objects (Python functions, constants) and machine code are numbers in it; what they stand
for is in a table that is made anew in each process. `load` brings the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from pliant._native import Launcher
from pliant.base.values import dataclass

Step = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled graph as data: what to compute, allocate, call and free, step by step. These are
    the arguments of the native `Launcher`, whose documentation says what they mean. `inputs` counts
    the arguments; `symbols` says where sizes are read from; `written` are the inputs that are
    overwritten; `kernels` are keys of machine code; `objects` counts the live objects."""

    inputs: int
    symbols: tuple[tuple[int, str, int], ...]
    steps: tuple[Step, ...]
    outputs: tuple[Step, ...]
    written: tuple[int, ...]
    kernels: tuple[str, ...]
    objects: int

    def __str__(self) -> str:
        return "\n".join(_lines(self))


@dataclass(frozen=True, slots=True, eq=False)
class ProgramBindings:
    """The live part: objects by number, machine code by key, and the fallback that runs where the
    program can't, with the same arguments."""

    objects: tuple[Any, ...]
    kernels: Mapping[str, Any]
    fallback: Callable[..., Any] | None


def load(program: Program, bindings: ProgramBindings, info: object = None) -> Launcher:
    """The native launcher of a program. `info` describes its steps to those who measure them."""
    return Launcher(
        program.inputs,
        program.symbols,
        program.steps,
        program.outputs,
        program.written,
        bindings.fallback,
        bindings.objects,
        [bindings.kernels[key] for key in program.kernels],
        info,
    )


_PLAIN: Final = frozenset(
    (type(None), bool, int, float, complex, str)
    + (torch.dtype, torch.device, torch.layout, torch.memory_format)
)


def is_plain(value: Any) -> bool:
    """Whether a constant is data, and not a live object."""
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    return type(value) in _PLAIN


# --------------------------------------------------------------------------------------------------
# As text


def _lines(program: Program) -> list[str]:
    lines = [f"program of {program.inputs} inputs, {len(program.kernels)} kernels"]
    for number, (slot, measure, dim) in enumerate(program.symbols):
        subscript = f"[{dim}]" if measure in ("size", "stride") else ""
        lines.append(f"  v{number} = {measure} of t{slot}{subscript}")
    lines += [f"  {_TEXT.get(step[0], _plain_text)(step)}" for step in program.steps]
    lines.append(f"  return {_items(program.outputs)}")
    return lines


def _plain_text(step: Step) -> str:
    return " ".join(map(str, step))


def _values(numbers: Any) -> str:
    return f"[{', '.join([f'v{number}' for number in numbers])}]"


def _slots(numbers: Any) -> str:
    return ", ".join(["error flag" if number < 0 else f"t{number}" for number in numbers])


def _items(items: Any) -> str:
    return ", ".join([_ITEMS.get(item[0], _constant)(item) for item in items])


def _constant(item: Step) -> str:
    return repr(item[1]) if len(item) > 1 else "None"


_ITEMS: Final[dict[str, Callable[[Step], str]]] = {
    "slot": lambda item: f"t{item[1]}",
    "list": lambda item: f"[{_items(item[1])}]",
    "bound": lambda item: f"object {item[1]}",
    "drop": lambda item: "_",
    **dict.fromkeys(("value", "float", "bool"), lambda item: f"{item[0]} v{item[1]}"),
}


def _layout(sizes: Any, strides: Any) -> str:
    return f"sizes {_values(sizes)} strides {_values(strides)}"


def _result(results: Any) -> str:
    return f"{_items(results)} = " if results else ""


_TEXT: Final[dict[str, Callable[[Step], str]]] = {
    "compute": lambda s: f"v{s[1]} = compute {list(s[2])}",
    "cpu_empty": lambda s: f"t{s[1]} = cpu_empty {s[2]} {_layout(s[3], s[4])}",
    "empty": lambda s: f"t{s[1]} = empty {s[2]} {_layout(s[3], s[4])} on {s[5]}",
    "view": lambda s: f"t{s[1]} = view t{s[2]} {_layout(s[3], s[4])} offset v{s[5]} {s[6]}",
    "take": lambda s: f"t{s[1]} = take t{s[2]}",
    "laid_out": lambda s: f"expect t{s[1]}: {s[2]} {_layout(s[3], s[4])}",
    "cpu_kernel": lambda s: (
        f"cpu_kernel {s[1]}({_slots(s[2])}; {_values(s[3])})"
        + ("" if s[4] < 0 else f" over v{s[4]}")
        + (", final" if s[6] else "")
    ),
    **dict.fromkeys(
        ("cuda_kernel", "python_kernel"),
        lambda s: (
            f"{s[0]} {s[1]}({_slots(s[2])}; {_values(s[4:-1])})" + (", final" if s[-1] else "")
        ),
    ),
    "call": lambda s: f"{_result(s[4])}{s[1]}{'.' + s[2] if s[2] else ''}({_items(s[3])})",
    "python": lambda s: f"{_result(s[3])}object {s[1]}({_items(s[2])})",
    "calculate": lambda s: f"{_result(s[4])}{s[1]}({_items(s[3])})",
    "require": lambda s: f"require v{s[1]}, or object {s[2]}({_items(s[3])})",
    "item": lambda s: f"{_result(s[2])}item of t{s[1]}",
    "cpu_batch": lambda s: "; ".join([_TEXT["cpu_kernel"](kernel) for kernel in s[1]]),
    "read": lambda s: f"v{s[1]} = {s[3]} of t{s[2]}[{s[4]}]",
    "save": lambda s: f"save t{s[1]}",
    "wrote": lambda s: f"count a write to t{s[1]}",
    "free": lambda s: f"free {_slots(s[1])}",
}
