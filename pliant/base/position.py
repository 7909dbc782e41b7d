"""A place in the user's source, and how it is shown.

The one idea: everything pliant tells a user (an error, a log line, a warning) points at the user's
own line, in one form, made here.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Sequence
from types import CodeType
from typing import Final

from pliant.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A line of the user's program; columns, when known, are the byte offsets CPython records."""

    file: str
    line: int
    function: str = ""
    column: int | None = None
    end_column: int | None = None
    end_line: int | None = None

    @classmethod
    def of_code(cls, code: CodeType, offset: int | None = None) -> Position:
        """The instruction at byte `offset` of `code`, or without it the line of its `def`."""
        if offset is None:
            return cls(code.co_filename, code.co_firstlineno, code.co_qualname)
        places = list(code.co_positions())
        if not 0 <= offset // 2 < len(places):
            raise IndexError(f"offset {offset} is outside the code of {code.co_qualname}")
        line, end_line, column, end_column = places[offset // 2]
        if line is None:  # an instruction the compiler made up belongs to the whole function
            line = end_line = code.co_firstlineno
            column = end_column = None
        return cls(code.co_filename, line, code.co_qualname, column, end_column, end_line)

    @property
    def library(self) -> str:
        """The module that it is in, if that is installed rather than of the program."""
        for folder in _LIBRARIES:
            _, installed, name = self.file.rpartition(folder)
            if installed:
                name = name.removesuffix(".py").removesuffix(f"{os.sep}__init__")
                return name.replace(os.sep, ".")
        return ""

    def source_line(self) -> str:
        """The text of the line without its indentation, or "" when the source can't be read."""
        return self._raw_line().strip()

    def segment(self) -> str:
        """The expression that is meant, as the user wrote it; empty if it is not on one line."""
        if self.column is None or self.end_column is None or self.end_line not in (None, self.line):
            return ""
        line = self._raw_line().encode()
        return line[self.column : self.end_column].decode(errors="replace").strip()

    def caret_line(self) -> str:
        """Carets under the part of `source_line` that is meant, or "" when that is not known, or is
        the whole line (carets under everything say nothing)."""
        raw = self._raw_line()
        if self.column is None or self.end_column is None or not raw.strip():
            return ""
        text = raw.encode()
        indent = len(raw) - len(raw.lstrip())
        start = len(text[: self.column].decode(errors="replace")) - indent
        if self.end_line in (None, self.line):
            end = len(text[: self.end_column].decode(errors="replace")) - indent
        else:
            end = len(raw.strip())  # goes on below: underline to the end of this line
        if start < 0 or end <= start or end - start >= len(raw.strip()):
            return ""
        return " " * start + "^" * (end - start)

    def __str__(self) -> str:
        place = f"{short_path(self.file)}:{self.line}"
        return f"{place} in {self.function}" if self.function else place

    def _raw_line(self) -> str:
        return linecache.getline(self.file, self.line).rstrip("\n")


_LIBRARIES: Final = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
) + (f"{os.path.dirname(os.__file__)}{os.sep}",)


def short_path(file: str) -> str:
    """`file` relative to the working directory when it lies below it: shorter, still clickable."""
    try:
        relative = os.path.relpath(file)
    except (OSError, ValueError):  # no working directory any more; another drive
        return file
    outside = relative.startswith(os.pardir) or not os.path.isabs(file)
    return file if outside else relative


def lines_of(*stacks: Sequence[Position]) -> list[str]:
    """The lines of all calls, each once, as reports link them: `demo.py:7`."""
    frames = [frame for stack in stacks for frame in stack]
    return list(dict.fromkeys([f"{os.path.basename(each.file)}:{each.line}" for each in frames]))


def format_position(position: Position, *, prefix: str = "at ", indent: str = "  ") -> str:
    """Where, the source line and the carets under it, on one to three lines:

    at demo.py:5 in f
        y = torch.save(x, "foo.pt")
            ^^^^^^^^^^^^^^^^^^^^^^^
    """
    lines = [f"{indent}{prefix}{position}"]
    source = position.source_line()
    if source:
        lines.append(f"{indent}    {source}")
        caret = position.caret_line()
        if caret:
            lines.append(f"{indent}    {caret}")
    return "\n".join(lines)
