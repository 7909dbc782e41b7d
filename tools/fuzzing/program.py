"""A program and the calls that are made of it, as data that prints as plain Python source.

The one idea: statements and argument recipes are text or a few plain fields. So a program can be
sent to another process as JSON, shrunk by editing it, and shown as a script that needs nothing of
the fuzzer.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

# A statement is its text, or the clauses of a compound one: [[head, [statement, ...]], ...].
Statement = str | list[list[Any]]

SPECIAL = ["inf", "-inf", "nan", "0.0", "-0.0", "1.0", "-1.0", "0.5", "-0.5", "2.5", "1e-40"]
SPECIAL += ["-1e-40", "5e-324", "1e30", "-1e30", "1e300", "89.0", "-89.0", "1e-20", "3.4e38"]
SPECIAL += ["65504.0", "-104.0", "1.0000001", "100.5"]


@dataclass
class Argument:
    """How an argument is made: `kind` is "tensor", or "code" (any expression over earlier ones)."""

    name: str
    kind: str
    code: str = ""
    shape: list[int] = field(default_factory=list)
    dtype: str = "float32"
    layout: str = "plain"
    values: str = "small"
    seed: int = 0
    requires_grad: bool = False

    def source(self) -> str:
        if self.kind == "code":
            return self.code
        tail = ".requires_grad_()" if self.requires_grad else ""
        return _laid_out(self) + tail


@dataclass
class Program:
    """A function `f`, the calls of it, and how it is compiled."""

    seed: int
    body: list[Statement]
    calls: list[list[Argument]]
    dynamic: bool | None = None
    backend: str = "llvm"
    grad: bool = False
    threads: int = 1

    @property
    def parameters(self) -> list[str]:
        return [argument.name for argument in self.calls[0]]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Program:
        fields = json.loads(text)
        fields["calls"] = [[Argument(**argument) for argument in call] for call in fields["calls"]]
        return Program(**fields)

    def function_source(self) -> str:
        lines = list(written(self.body)) or ["pass"]
        head = f"def f({', '.join(self.parameters)}):"
        return "\n".join([head, *(f"    {line}" for line in lines)])

    def call_source(self, index: int) -> str:
        lines = [f"    {a.name} = {a.source()}" for a in self.calls[index]]
        names = "".join(f"{name}, " for name in self.parameters)
        return "\n".join([f"def arguments_{index}():", *lines, f"    return ({names.strip()})"])

    def source(self) -> str:
        """All of it, without running anything."""
        calls = [self.call_source(index) for index in range(len(self.calls))]
        parts = [self.function_source(), *calls]
        used = set(re.findall(r"\w+", "\n".join(parts)))
        parts[:0] = [text for name, text in PREAMBLE.items() if name in used]
        return IMPORTS + "\n\n" + "\n\n".join(parts) + "\n"

    def script(self) -> str:
        """A script that shows what eager PyTorch and pliant do."""
        options = f'backend="{self.backend}", dynamic={self.dynamic}'
        calls = ", ".join(f"arguments_{index}" for index in range(len(self.calls)))
        grad = "torch.enable_grad()" if self.grad else "torch.no_grad()"
        threads = f"torch.set_num_threads({self.threads})\n" if self.threads > 1 else ""
        return self.source() + SCRIPT.format(
            options=options, calls=calls + ",", grad=grad, threads=threads
        )


def written(statements: list[Statement]) -> Iterator[str]:
    """The lines of statements."""
    for statement in statements:
        if isinstance(statement, str):
            yield statement
            continue
        for head, body in statement:
            yield head
            for line in list(written(body)) or ["pass"]:
                yield f"    {line}"


IMPORTS = """import math
import torch
import torch.nn.functional as F
import pliant
from math import inf, nan"""

# What programs may use, by the name that brings it in.
PREAMBLE = {
    "Box": '''class Box:
    """An object with attributes."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)''',
    "opaque": '''@pliant.disable
def opaque(x):
    """A call that breaks the graph."""
    return x''',
    "SEEN": "SEEN = []",
    "helper": '''def helper(x, scale=2):
    """A function that is followed."""
    if x.dim() > 1:
        return x * scale
    return x + scale''',
}

SCRIPT = """

if __name__ == "__main__":
    {threads}compiled = pliant.compile(f, {options})
    for make_arguments in ({calls}):
        for name, function in (("eager", f), ("pliant", compiled)):
            args = make_arguments()
            torch.manual_seed(0)
            try:
                with {grad}:
                    result = function(*args)
            except Exception as error:
                result = error
            print(f"{{name}}: {{result!r}}\\n    arguments: {{args!r}}")
"""


# --------------------------------------------------------------------------------------------------
# Tensor arguments


def _laid_out(argument: Argument) -> str:
    """An expression for a tensor of the argument's shape in its layout."""
    shape = argument.shape
    if argument.layout == "transposed" and len(shape) > 1:
        return f"{_filled(argument, [*shape[:-2], shape[-1], shape[-2]])}.mT"
    if argument.layout == "reversed" and len(shape) > 1:
        order = tuple(range(len(shape)))[::-1]
        return f"{_filled(argument, shape[::-1])}.permute({order})"
    if argument.layout == "stepped" and shape:
        return f"{_filled(argument, [*shape[:-1], 2 * shape[-1]])}[..., ::2]"
    if argument.layout == "offset" and shape:
        return f"{_filled(argument, [shape[0] + 1, *shape[1:]])}[1:]"
    if argument.layout == "expanded" and shape:
        return f"{_filled(argument, [1, *shape[1:]])}.expand({_tuple(shape)})"
    if argument.layout == "channels_last" and len(shape) == 4:
        made = _filled(argument, shape)
        return f"{made}.contiguous(memory_format=torch.channels_last)"
    return _filled(argument, shape)


LAYOUTS = ("transposed", "reversed", "stepped", "offset", "expanded", "channels_last")


def _filled(argument: Argument, shape: list[int]) -> str:
    count, dtype = math.prod(shape), f"torch.{argument.dtype}"
    flat = VALUES[argument.values](count, argument.dtype, argument.seed)
    cast = "" if flat.endswith(f"dtype={dtype})") else f".to({dtype})"
    reshape = "" if shape == [count] else f".reshape({_tuple(shape)})"
    return flat + cast + reshape


def _tuple(shape: list[int]) -> str:
    return repr(tuple(shape))


def _small(count: int, dtype: str, seed: int) -> str:
    """Multiples of a quarter: sums and products of a few of them are exact."""
    whole = f"((torch.arange({count}) * 37 + {seed}) % 19 - 9)"
    return f"({whole} / 4)" if _is_float(dtype) else whole


def _random(count: int, dtype: str, seed: int) -> str:
    generator = f"generator=torch.Generator().manual_seed({seed})"
    if _is_float(dtype):
        return f"torch.randn({count}, {generator}, dtype=torch.float64)"
    return f"torch.randint(-50, 50, ({count},), {generator})"


def _special(count: int, dtype: str, seed: int) -> str:
    if dtype == "bool":
        return _small(count, dtype, seed)
    if _is_float(dtype):
        items = f"[{', '.join(SPECIAL)}]"
        picked = f"(torch.arange({count}) * 7 + {seed}) % {len(SPECIAL)}"
        return f"torch.tensor({items}, dtype=torch.float64)[{picked}]"
    low, high = f"torch.iinfo(torch.{dtype}).min", f"torch.iinfo(torch.{dtype}).max"
    items = f"[{low}, {high}, 0, 1, 2, {high} - 1, {low} + 1]"
    return f"torch.tensor({items}, dtype=torch.{dtype})[(torch.arange({count}) * 5 + {seed}) % 7]"


def _is_float(dtype: str) -> bool:
    return "float" in dtype


VALUES = {
    "small": _small,
    "random": _random,
    "special": _special,
    "index": lambda count, dtype, seed: f"((torch.arange({count}) * 5 + {seed}) % 3)",
    "arange": lambda count, dtype, seed: f"torch.arange({count})",
    "ones": lambda count, dtype, seed: f"torch.ones({count}, dtype=torch.{dtype})",
    "zeros": lambda count, dtype, seed: f"torch.zeros({count}, dtype=torch.{dtype})",
}
