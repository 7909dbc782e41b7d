"""Frames handed over to Python in their middle: the resume point and the arguments for it."""

from __future__ import annotations

from types import GeneratorType
from typing import Any
from weakref import getweakrefcount

from torch import Tensor
from torch.nn import Module

from pliant._native import is_python_class
from pliant.bytecode.decode import decode
from pliant.bytecode.resume import ResumePoint, StackItem, closure_names, resume_generator_code
from pliant.capture.frame import Frame
from pliant.capture.residual import Emitter
from pliant.capture.value import Lazy, Null, Unread, Value
from pliant.capture.values.generators import GeneratorValue
from pliant.capture.values.objects import Handled, Instance, Opaque

# Functions that see all variables of the frame that calls them.
READ_VARIABLES = frozenset({"locals", "vars", "dir", "eval", "exec"})


def resume_point_of(
    emit: Emitter,
    frame: Frame,
    index: int,
    stack: list[Value | str],
    inner: list[str] | None = None,
) -> tuple[ResumePoint, list[str]]:
    """Where `frame` continues, and the arguments (as source) of the function that continues it
    there.

    `index` is the instruction to continue at, `stack` what is on the stack then; names of residual
    variables may stand in for values. `inner` is a call to make first, whose result is pushed: a
    function and its arguments. Only variables that are live at `index` are passed.
    """
    decoded = decode(frame.code)
    live = decoded.live_before(index)
    if inner is not None:
        live |= decoded.live_before(frame.index)  # a handler around the call may need more
    elif frame.generator:
        # `throw` and `close` raise at the yield itself, whose handlers may need more too.
        live |= decoded.live_before(index - 1)
    # Dead variables are dropped early, but where dropping them has an effect that would be seen.
    live |= {name for name, value in frame.locals.items() if closes(value)}
    if not READ_VARIABLES.isdisjoint(frame.code.co_names):
        live |= set(frame.locals)
    # In the order of the slots, so that equal points give equal resume functions.
    names = tuple(name for name in decoded.variables if name in live and name in frame.locals)
    point = ResumePoint(
        frame.code,
        index,
        tuple(_stack_item(item) for item in stack),
        names,
        None if inner is None else len(inner) - 1,
        None if inner is None else frame.index,
    )
    # The order of `ResumePoint.parameters`, after the cells.
    arguments = [emit.expression(frame.cells[name]) for name in closure_names(frame.code)]
    arguments += [_stack_argument(emit, item) for item in stack if not isinstance(item, Null)]
    arguments += [emit.expression(frame.locals[name]) for name in names]
    return point, arguments + (inner or [])


def closes(value: Value) -> bool:
    """Whether dropping the object has an effect: it runs code (a generator's `finally`), or a weak
    reference notices. Then the object must live as long as its variable does."""
    if isinstance(value, Lazy) and value.seen is not None:
        value = value.seen
    # A weak reference made in the capture notices when the object goes.
    if isinstance(value, Instance) and value.watched:
        return True
    if isinstance(value, Instance | Unread) and _is_plain_object(value.real):
        return getweakrefcount(value.real) > 0
    if isinstance(value, Unread | Opaque):
        return isinstance(value.real, GeneratorType) and value.real.gi_frame is not None
    return isinstance(value, GeneratorValue) and not value.frame.finished and value.has_cleanup()


def _is_plain_object(real: Any) -> bool:
    """Whether weak references to the object can only be the program's own. PyTorch makes some to
    modules, tensors and classes."""
    return is_python_class(type(real)) and not isinstance(real, type | Module | Tensor)


def _stack_item(item: Value | str) -> StackItem:
    if isinstance(item, Null):
        return StackItem.NULL
    return StackItem.HANDLED if isinstance(item, Handled) else StackItem.VALUE


def _stack_argument(emit: Emitter, item: Value | str) -> str:
    if isinstance(item, str):
        return item
    return emit.expression(item.exception if isinstance(item, Handled) else item)


def generator_source(emit: Emitter, generator: GeneratorValue) -> str:
    """An expression for a real generator in the state of `generator`: finished, not started, or
    suspended at a `yield`, which takes a resume function that starts there."""
    frame = generator.frame
    if frame.finished:
        return emit.helper("finished_generator") + "()"
    if not generator.started:
        return _unstarted(emit, frame)
    point, arguments = resume_point_of(emit, frame, frame.index, list(frame.stack))
    code = emit.bind(f"{frame.code.co_name}_rest", resume_generator_code(point, primed=True))
    count = len(closure_names(frame.code))
    closure = "(" + "".join(f"{cell}, " for cell in arguments[:count]) + ")"
    parts = [code, emit.constant(frame.globals), "None", "None", closure]
    function_source = f"{emit.helper('FunctionType')}({', '.join(parts)})"
    return f"{emit.helper('primed')}({function_source}({', '.join(arguments[count:])}))"


def _unstarted(emit: Emitter, frame: Frame) -> str:
    """An expression that calls the generator function again: until the first `next` the frame holds
    nothing but its arguments."""
    assert frame.function is not None
    code = frame.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    arguments = [emit.expression(frame.locals[name]) for name in positional]
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount :]
    # CO_VARARGS and CO_VARKEYWORDS. Keywords go between the two in a call.
    stars = ["*"] * bool(code.co_flags & 0x04) + ["**"] * bool(code.co_flags & 0x08)
    extra = [
        f"{star}{emit.expression(frame.locals[name])}"
        for star, name in zip(stars, rest, strict=False)
    ]
    arguments += [part for part in extra if not part.startswith("**")]
    arguments += [f"{name}={emit.expression(frame.locals[name])}" for name in keyword_only]
    arguments += [part for part in extra if part.startswith("**")]
    return f"{emit.expression(frame.function)}({', '.join(arguments)})"
