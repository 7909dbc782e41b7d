"""What programs ask of the interpreter: modules, signatures, source text, the recursion limit,
a garbage collection.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.library.python.classes import real_object
from pliant.capture.library.python.printing import call_later
from pliant.capture.library.stdlib.serialization import is_plain
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.value import NONE, Break, Const, NotConstant, Value
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.functions import FunctionValue
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


DISCARDS = opcodes_with(Role.DISCARDS)


@function(sys.getrecursionlimit)
def recursion_limit(trace: Trace) -> Value:
    return Const(trace.depth_limit)


@function(importlib.import_module)
def import_module(trace: Trace, name: Value, package: Value = NONE) -> Value:
    """Importing what is imported already is looking it up."""
    real = trace.read(name).constant()
    if not isinstance(real, str) or real not in sys.modules or real.startswith("."):
        raise Break("import", f"importing {real}")
    return Const(sys.modules[real])


def _of_known_code(real: Callable[..., Any]) -> Callable[..., Value]:
    def handler(trace: Trace, target: Value) -> Value:
        try:
            return from_real(trace, real(real_object(trace, target)))
        except (OSError, TypeError) as error:
            trace.throw(error)

    return handler


SOURCES: tuple[Callable[..., Any], ...] = (
    inspect.getsource, inspect.getsourcefile, inspect.getfile, inspect.getsourcelines
)  # fmt: skip
for _asked in SOURCES:
    function(_asked)(_of_known_code(_asked))


KNOWN_SIGNATURE = FUNCTIONS[inspect.signature]


def signature_of(trace: Trace, target: Value, **kwargs: Value) -> Value:
    """Of a function made here, as far as its defaults are plain."""
    function_value = trace.read(target)
    if (
        not isinstance(function_value, FunctionValue)
        or function_value.real is not None
        or function_value.attributes is not None
    ):
        return KNOWN_SIGNATURE(trace, target, **kwargs)
    code = function_value.code
    cells = tuple(types.CellType() for _ in code.co_freevars)
    function_object = types.FunctionType(
        code, function_value.globals, function_value.name, None, cells
    )
    defaults = [known_object(value, trace) for value in function_value.default_values(trace)]
    named = {k: known_object(v, trace) for k, v in function_value.keyword_defaults(trace).items()}
    annotated = not {"__annotations__", "__annotate__"}.isdisjoint(function_value.own)
    if annotated or not all(map(is_plain, (*defaults, *named.values()))):
        raise NotConstant(function_value)
    function_object.__defaults__, function_object.__kwdefaults__ = (
        tuple(defaults) or None,
        named or None,
    )
    signature = inspect.signature(function_object)
    return trace.wrap(signature, Fixed(signature, f"signature({function_value.name})"))


FUNCTIONS[inspect.signature] = signature_of


@function(gc.collect)
def collect_later(trace: Trace, *generation: Value) -> Value:
    """How much was collected is known when residual code runs: the result must not be used."""
    frame = trace.frames[-1]
    if frame.instructions[frame.index + 1].op not in DISCARDS:
        raise Break("unsupported-function", "gc.collect() whose result is used")
    call_later(trace, gc.collect, [trace.read(value) for value in generation])
    return NONE
