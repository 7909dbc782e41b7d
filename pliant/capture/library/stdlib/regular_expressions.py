"""Regular expressions: on known text they are run; a function given to `sub` is followed."""

from __future__ import annotations

import re
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import on_constants, register_methods
from pliant.capture.model import call, iterate
from pliant.capture.native import FUNCTIONS, METHODS, function
from pliant.capture.value import Const, Value
from pliant.capture.wrap import BUILDERS

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


STATEFUL = frozenset({"scanner", "finditer"})
RE_FUNCTIONS = (
    re.compile, re.match, re.fullmatch, re.search, re.sub, re.subn, re.split, re.findall, re.escape,
)  # fmt: skip
for _real in RE_FUNCTIONS:
    function(_real)(on_constants(_real))
for _cls in (re.Pattern, re.Match):
    register_methods(_cls, on_constants, leave=STATEFUL)
# Bound methods of C classes that know the class they were found in are of a type of their own.
BUILDERS[type(re.compile("").search)] = BUILDERS[types.BuiltinFunctionType]


def _all_matches(pattern: Any, *args: Any, **kwargs: Any) -> list[Any]:
    return list(re.finditer(pattern, *args, **kwargs))


@function(re.finditer)
def re_finditer(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    """All matches are made at once: an iterator over constants has nothing to wait for."""
    return iterate(trace, on_constants(_all_matches)(trace, *args, **kwargs))


METHODS[re.Pattern, "finditer"] = re_finditer


def _substitute(trace: Trace, pattern: re.Pattern[str], args: list[Value]) -> Value:
    """`pattern.sub(function, text)`: the function is followed for each match."""
    repl, text, *rest = args
    limit = trace.read(rest[0]).constant() if rest else 0
    subject = trace.read(text).constant()
    parts, end = [], 0
    for number, match in enumerate(pattern.finditer(subject)):
        if limit and number >= limit:
            break
        replaced = trace.read(call(trace, repl, [Const(match)]))
        parts += [subject[end : match.start()], replaced.constant()]
        end = match.end()
    return Const(type(subject)().join([*parts, subject[end:]]))


def _with_function(folding: Callable[..., Value], compiled: bool) -> Callable[..., Value]:
    names = ("repl", "string", "count", "flags")

    def handler(trace: Trace, first: Value, *args: Value, **kwargs: Value) -> Value:
        positional = [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]
        if positional and isinstance(trace.read(positional[0]), Const):
            return folding(trace, first, *args, **kwargs)
        flags = 0 if compiled or len(positional) < 4 else trace.read(positional.pop()).constant()
        pattern = re.compile(trace.read(first).constant(), flags)
        return _substitute(trace, pattern, positional)

    return handler


METHODS[re.Pattern, "sub"] = _with_function(METHODS[re.Pattern, "sub"], compiled=True)
FUNCTIONS[re.sub] = _with_function(FUNCTIONS[re.sub], compiled=False)
