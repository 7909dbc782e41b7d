r"""Lists of sources: inputs that are named, or described by a regular expression, to be symbolic.

The one idea: an input is called what guards and logs call it, `L['x']`, `L['self'].layer.weight`,
`L['xs'][0]`; one can copy it from there. PyTorch's longer spelling of parts of modules
(`L['self']._modules['layer']._parameters['weight']`) means the same.

    L['x']               every dimension of x; or x itself, if it is a number
    L['x']:0             dimension 0 of x; so does L['x'].size()[0]
    L\['x.*'\]           a regular expression, matched from the start of the name
"""

from __future__ import annotations

import ast
import functools
import os
import re
import sys
from collections.abc import Mapping
from typing import Final

from pliant.base.errors import InvalidOptionError
from pliant.base.values import dataclass

VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "dynamic_sources": ("PLIANT_DYNAMIC_SOURCES", "TORCH_COMPILE_DYNAMIC_SOURCES"),
    "unbacked_sources": ("PLIANT_UNBACKED_SOURCES", "TORCH_COMPILE_UNBACKED_SOURCES"),
}
"""The environment variables that add to each option, read when a compilation begins."""

_DIMENSION = re.compile(r"(?P<name>.+?)\s*:\s*(?P<dim>\d+)", re.DOTALL)
_LETTER = re.compile(r"\\.|.", re.DOTALL)  # an escaped one is one, and no bracket
_SPECIAL: Final = frozenset("\\*+?^$|{")  # what shows that an expression is meant, not a name
_BRACKETS: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
# `._modules['layer']` and, in a regular expression, `\._modules\['layer'\]`
_TABLE = re.compile(
    r"\\?\._(?:modules|parameters|buffers)\\?\[(?P<quote>['\"])(?P<key>\w+)(?P=quote)\\?\]"
)


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of a list of sources. `expression` is None if it can only be meant as a name. `dim`
    is the dimension it is about, None for all, and `giver` the option or variable that it stands
    in."""

    text: str
    name: str
    expression: re.Pattern[str] | None
    dim: int | None
    giver: str

    def fits(self, candidate: str) -> bool:
        if candidate == self.name:
            return True
        return self.expression is not None and self.expression.match(candidate) is not None


Patterns = tuple[Pattern, ...]


@functools.lru_cache(maxsize=64)
def parse(text: str, giver: str = "dynamic_sources") -> Patterns:
    """The entries of a comma-separated list. `giver` is where it was written, for messages."""
    return tuple(_pattern(entry, giver) for entry in _split(text))


def gather(option: str, value: str) -> Patterns:
    """The patterns of the option `option`: its value, its environment variables, and PyTorch's
    option of the same name (if the program has imported that)."""
    patterns = parse(value, option)
    if (config := sys.modules.get("torch.compiler.config")) is not None:
        patterns += parse(getattr(config, option, ""), f"torch.compiler.config.{option}")
    for variable in VARIABLES[option]:
        patterns += parse(os.environ.get(variable, ""), variable)
    return patterns


def matching(patterns: Patterns, source_text: str, dim: int | None = None) -> Pattern | None:
    """The first entry that is about this input, or about this dimension of it."""
    for pattern in patterns:
        for candidate in _spellings(source_text, dim):
            if pattern.fits(candidate) and (dim is None or pattern.dim in (None, dim)):
                return pattern
    return None


def matches(patterns: Patterns, source_text: str, dim: int | None = None) -> bool:
    """Whether an entry is about this input. A number has no `dim`; for a tensor without one, it is
    whether any dimension of it is meant."""
    return bool(patterns) and matching(patterns, source_text, dim) is not None


def _spellings(source_text: str, dim: int | None) -> tuple[str, ...]:
    if dim is None:
        return (source_text,)
    return (source_text, f"{source_text}.size()[{dim}]", f"{source_text}.shape[{dim}]")


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets: `L['a,b']` and `x{1,2}` are one entry each."""
    entries, depth = [""], 0
    for letter in _LETTER.findall(text):
        depth += _BRACKETS.get(letter, 0)
        if letter == "," and depth <= 0:
            entries.append("")
        else:
            entries[-1] += letter
    return [entry.strip() for entry in entries if entry.strip()]


def _pattern(entry: str, giver: str) -> Pattern:
    match = _DIMENSION.fullmatch(entry)
    text, dim = (match["name"], int(match["dim"])) if match else (entry, None)
    # PyTorch's spelling of parts of modules becomes pliant's.
    short = _TABLE.sub(_shortened, text)
    name = short.replace('"', "'")
    # `L['x']` is a regular expression too (a character class), and is never meant as one.
    if _is_python(short) and _SPECIAL.isdisjoint(short):
        return Pattern(entry, name, None, dim, giver)
    try:
        return Pattern(entry, name, re.compile(short), dim, giver)
    except re.error as error:
        if _is_python(short):
            return Pattern(entry, name, None, dim, giver)
        raise InvalidOptionError(
            f"{giver}: {entry!r} is neither the name of an input nor a regular expression",
            why=str(error),
            remedy=r"give names such as L['x'], or expressions such as L\['x.*'\], "
            "separated by commas",
        ) from None


def _shortened(match: re.Match[str]) -> str:
    """As pliant prints it: `.layer`, or `[0]` for what has a number for a name."""
    escape = "\\" if "\\[" in match[0] else ""
    key = match["key"]
    return f"{escape}[{key}{escape}]" if key.isdigit() else f"{escape}.{key}"


def _is_python(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
