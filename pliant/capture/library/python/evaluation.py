"""`eval`, `exec` and `compile` of text that is known.

The text is compiled now and followed. Its variables are those of the program or of a dictionary
made by it; a dictionary from outside as globals is left to Python, since functions defined by the
text would live there.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from pliant.bytecode.decode import decode
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.frame import Frame
from pliant.capture.interpreter import run_frame
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.containers import Mapping

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

LOADS_GLOBAL = opcodes_with(Role.LOADS_GLOBAL)
LOADS_NAME = opcodes_with(Role.LOADS_NAME)
DEFINING = opcodes_with(Role.WRITES_GLOBAL | Role.IMPORTS | Role.DEFINES_CLASS)
WRITING = DEFINING | opcodes_with(Role.WRITES_NAME | Role.DEFINES_FUNCTION)


@function(compile)
def builtin_compile(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    real_args = [trace.read(arg).constant() for arg in args]
    real_kwargs = {name: trace.read(arg).constant() for name, arg in kwargs.items()}
    try:
        return Const(compile(*real_args, **real_kwargs))
    except (SyntaxError, ValueError, TypeError) as error:
        trace.throw(error)


@function(eval)
def builtin_eval(trace: Trace, source: Value, space: Value = NONE, names: Value = NONE, /) -> Value:
    return _run(trace, source, "eval", trace.read(space), trace.read(names))


@function(exec)
def builtin_exec(trace: Trace, source: Value, space: Value = NONE, names: Value = NONE, /) -> Value:
    _run(trace, source, "exec", trace.read(space), trace.read(names))
    return NONE


def _run(trace: Trace, source: Value, mode: str, space: Value, names: Value) -> Value:
    code = _code(trace, source, mode)
    caller = trace.frames[-1]
    variables: dict[str, Value]
    if _is_none(space):
        table = FUNCTIONS[locals](trace) if _is_none(names) else names
    else:
        table = space if _is_none(names) else names
    if not isinstance(table, Mapping):
        raise Break("unsupported-function", f"{mode}() in this namespace")
    if _is_of_module(space) and not _writes(code):
        assert isinstance(space, Mapping)
        variables = {} if _is_none(names) else dict(table.read_all(trace))
        return run_frame(trace, Frame(code, space.real, variables, []))
    variables = dict(table.read_all(trace))
    frame = Frame(code, caller.globals, variables, [])
    if not _is_none(space):
        _check_own(frame, space, mode)
        if space is not table:
            assert isinstance(space, Mapping)
            frame.locals = {**space.read_all(trace), **variables}
    before = dict(frame.locals)
    result = run_frame(trace, frame)
    changed = {k: v for k, v in frame.locals.items() if before.get(k) is not v}
    if changed and _is_none(space) and _is_none(names):
        raise Break("unsupported-function", f"{mode}() that sets variables")
    if not _is_none(space) or not _is_none(names):
        for name, value in changed.items():
            table.store(trace, name, value)
        for name in before.keys() - frame.locals.keys():
            table.store(trace, name, None)
        if mode == "exec" and not _is_none(space) and isinstance(space, Mapping):
            _add_builtins(trace, space, caller)
    return result


def _is_of_module(space: Value) -> bool:
    """Whether the globals given are those of some module, or another dictionary from outside."""
    return isinstance(space, Mapping) and type(space.real) is dict and space.source is not None


def _writes(code: types.CodeType) -> bool:
    return any(ins.op in WRITING for ins in decode(code).instructions)


def _add_builtins(trace: Trace, space: Mapping, caller: Frame) -> None:
    """Python puts the built-in names into a dictionary used as globals."""
    if space.get(trace, "__builtins__") is None:
        builtins = trace.wrap_pinned(caller.builtins)
        space.store(trace, "__builtins__", builtins)


def _check_own(frame: Frame, space: Value, mode: str) -> None:
    """Text with globals of its own may use its variables, but define nothing that keeps them."""
    own = isinstance(space, Mapping) and space.source is None and space.cls is dict
    defines = any(ins.op in DEFINING for ins in frame.instructions)
    if not own or defines or not _needs_no_globals(frame, frame.code):
        raise Break("unsupported-function", f"{mode}() with globals of its own")


def _needs_no_globals(frame: Frame, code: types.CodeType) -> bool:
    """Whether the functions that the text defines use built-in names only."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    for part in inner:
        used = {ins.value[0] for ins in decode(part).instructions if ins.op in LOADS_GLOBAL}
        only_builtins = all(name in frame.builtins and name not in frame.globals for name in used)
        if not only_builtins or part.co_name == "<class>" or not _needs_no_globals(frame, part):
            return False
        if any(ins.op in DEFINING | LOADS_NAME for ins in decode(part).instructions):
            return False
    return True


def _code(trace: Trace, source: Value, mode: str) -> types.CodeType:
    real: Any = trace.read(source).constant()
    if isinstance(real, types.CodeType):
        if real.co_freevars:
            raise Break("unsupported-function", f"{mode}() of code with free variables")
        return real
    if not isinstance(real, str):
        raise Break("unsupported-function", f"{mode}() of a {type(real).__name__}")
    text = real.lstrip(" \t") if mode == "eval" else real
    try:
        return compile(text, "<string>", mode)
    except SyntaxError as error:
        trace.throw(error)


def _is_none(value: Value) -> bool:
    return isinstance(value, Const) and value.value is None
