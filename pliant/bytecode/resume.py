"""Functions that continue another function in its middle.

The one idea: a resume function is the original with another beginning. Its parameters are what the
frame held at that moment; its first instructions (the prologue) put the stack back and jump to the
place. The rest is the original, instruction by instruction, so lines, handlers and semantics stay
as they were. For the break in `for x in xs: save(x); y = y + x`::

    RESUME
    LOAD_FAST stack_0; DELETE_FAST stack_0     # the iterator, onto the stack
    LOAD_FAST stack_1; DELETE_FAST stack_1     # what `save` returned
    JUMP_FORWARD to POP_TOP                    # behind the call of `save`
    ...                                        # the original, without what can't be reached

Parameters, in this order, all positional:

* ``stack_0``, ``stack_1``, …: one per entry of ``ResumePoint.stack`` that carries a value;
* the local variables in ``ResumePoint.locals``, under their own names; all others are unbound;
* with ``inner``: ``inner_function``, ``inner_0``, …: a call to make first, whose result is pushed.

Variables that inner functions share live in cells. The resume code takes all of them, own and
foreign, as free variables, in the order of :func:`closure_names`::

    resume = types.FunctionType(resume_code(point), f.__globals__, closure=tuple(cells))

From Python 3.12 on a comprehension runs in the frame of its function, and a name can be an ordinary
variable at one time and a cell at another. What counts is what lies in the slot of the frame: a
cell under one of the :func:`closure_names` goes into the closure; anything else that a slot holds
is listed in ``locals`` and passed as it is, be it a value or a cell. (The closure always has a cell
for each of its names; one that is also listed in ``locals`` is ignored.)
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Collection, Iterator
from typing import Any
from weakref import WeakValueDictionary

from pliant.base.external import STRUCTURES, External
from pliant.base.values import dataclass, replace
from pliant.base.weak import ByIdentity
from pliant.bytecode import flow
from pliant.bytecode.assemble import AssemblyItem, Header, assemble
from pliant.bytecode.decode import (
    Decoded,
    ExceptionEntry,
    Instruction,
    Positions,
    decode,
    own_name,
)
from pliant.bytecode.tables import (
    CALL_SEQUENCE,
    CALLABLE_FIRST,
    LOAD_CHECKED,
    OPCODES,
    POSITIONS_ARE_OBJECTS,
    Operand,
    Role,
    opcodes_with,
)


class StackItem(enum.Enum):
    """What an entry of the stack is, and how the prologue restores it."""

    VALUE = "an object: one parameter"
    NULL = "the empty entry of a call: no parameter"
    HANDLED = (
        "what PUSH_EXC_INFO left below the exception and POP_EXCEPT takes away: one parameter, the "
        "exception being handled. It becomes the current exception of the thread again."
    )


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """A place in a code object, and the shape of the frame there.

    ``stack`` lists the entries of the stack from the bottom. Directly after ``PUSH_EXC_INFO`` the
    top is ``HANDLED, VALUE``; in the body of an ``except`` only ``HANDLED`` is left. To enter a
    handler at its first instruction, list what is below, then (if ``ExceptionEntry.lasti``) a VALUE
    for the number of the failed instruction, then a VALUE for the exception. An exception that was
    never raised must go through :func:`raised` first.

    With ``inner``, the instruction ``call_index`` (by default the one before ``index``) was calling
    when the frame was left: ``stack`` is without that call's operands, the resume function calls
    ``inner_function`` with ``inner`` arguments instead, under the same exception handler, and
    continues at ``index`` with the result on top, unless the instruction leaves nothing there
    (``obj.name = value``, which calls ``__setattr__``).

    Two points are equal when they are the same place in the same code object with the same shape.
    """

    code: Any  # a code object; in data, the external that stands for it
    index: int
    stack: tuple[StackItem, ...] = ()
    locals: tuple[str, ...] = ()
    inner: int | None = None
    call_index: int | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters of the resume function, in order."""
        values = sum(item is not StackItem.NULL for item in self.stack)
        made_up = [f"stack_{number}" for number in range(values)]
        inner = []
        if self.inner is not None:
            inner = ["inner_function", *(f"inner_{number}" for number in range(self.inner))]
        # A program may have a variable called `stack_0` itself.
        taken = {*self.code.co_varnames, *self.code.co_cellvars, *self.code.co_freevars}
        closure = closure_names(self.code)
        return (
            *(unused_name(name, taken) for name in made_up),
            *(unused_name(name, taken) if name in closure else name for name in self.locals),
            *(unused_name(name, taken) for name in inner),
        )

    def _key(self) -> tuple[object, ...]:
        # Code objects compare by content, slowly, and without looking at the file name.
        code = self.code if isinstance(self.code, External) else id(self.code)
        return (code, self.index, self.stack, self.locals, self.inner, self.call_index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ResumePoint) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


STRUCTURES[ResumePoint] = lambda point, mapper: replace(point, code=mapper.identity(point.code))


def resume_code(point: ResumePoint) -> types.CodeType:
    """The code of a function that continues at ``point`` and returns what the original would.

    Equal points give the same code object, and so does a point in a resume function that is the
    same place in the original: a loop left again and again at one place ends up in one function.
    """
    return _resume(point, _Form.FUNCTION)


def resume_generator_code(point: ResumePoint, primed: bool = False) -> types.CodeType:
    """The code of a generator function (or coroutine function) that continues a suspended one.

    If ``point.index`` is the instruction after a ``YIELD_VALUE``, the generator was suspended
    there, and its first ``next()`` continues with None as the value sent. ``point.stack`` is
    without that value. Anywhere else the generator was running, and its first ``next()`` finishes
    the ``next()`` that was under way.

    A generator that was never advanced forgets its ``finally`` blocks when closed or dropped, and
    accepts no value with ``send``. A continuation must do neither, so there is ``primed``: advance
    the new generator once with ``next()`` before handing it out; from then on it is suspended at
    the same ``yield`` as the original was.
    """
    return _resume(point, _Form.PRIMED if primed else _Form.GENERATOR)


def raised(error: BaseException) -> BaseException:
    """The exception, with a traceback, as every exception on a stack has one.

    Leaving a ``with`` block because of an exception without one crashes Python 3.11.
    """
    if error.__traceback__ is None:
        context = error.__context__
        try:
            raise error
        except BaseException:
            error.__context__ = context
    return error


def closure_names(code: types.CodeType) -> tuple[str, ...]:
    """The variables whose cells make up the closure of every resume function of this code."""
    entry_cells = _entry_cells(code)
    return tuple(name for name in code.co_cellvars if name in entry_cells) + code.co_freevars


def original_point(point: ResumePoint) -> ResumePoint:
    """The same place in the user's code, where `point` is in a resume function; otherwise `point`
    itself."""
    # Without this a loop that breaks the graph each time would be a resume function of a resume
    # function of ..., each of which is compiled anew.
    origin = _origins.get(point.code)
    if origin is None or not 0 <= point.index < len(origin.sources):
        return point
    index = origin.sources[point.index]
    call_index = None if point.inner is None else origin.sources[_call_index(point)]
    variables = set(decode(origin.code).variables)
    if index is None or not variables.issuperset(point.locals):
        return point  # it is in the prologue, or has variables that the original doesn't
    if point.inner is not None and call_index is None:
        return point
    return replace(point, code=origin.code, index=index, call_index=call_index)


class _Form(enum.Enum):
    """What a resume code makes: a function, a generator function, or one whose generator is
    advanced once before it is handed out."""

    FUNCTION = enum.auto()
    GENERATOR = enum.auto()
    PRIMED = enum.auto()


@dataclass(frozen=True, slots=True)
class _Origin:
    """Which code a resume code continues, and which instruction each of its own stands for."""

    code: types.CodeType
    sources: tuple[int | None, ...]


# A resume code belongs to the functions that have it, and keeps the code it continues.
_codes: WeakValueDictionary[tuple[ResumePoint, _Form], types.CodeType] = WeakValueDictionary()
_origins: ByIdentity[_Origin] = ByIdentity()

_SUSPENDING_FLAGS = (
    inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)
# Everything from here on is the mark of a ``from __future__ import``.
_FIRST_FUTURE_FLAG = 0x20000

_TWO_ARGUMENTS = 2  # the flag of LOAD_SUPER_ATTR that says so

_STARTS = opcodes_with(Role.STARTS)
_MAKES_CELL = opcodes_with(Role.MAKES_CELL)
_PLAIN_LOCAL = opcodes_with(Role.PLAIN_LOCAL)
_REPEATABLE = opcodes_with(Role.NAMES_KEYWORDS | Role.PREPARES_CALL | Role.TESTS_TRUTH)
_YIELDS = opcodes_with(Role.YIELDS)
_RERAISES = opcodes_with(Role.RERAISES)
_STORES_LOCAL = _PLAIN_LOCAL & opcodes_with(Role.WRITES_LOCAL)
_LOADS_LOCAL = _PLAIN_LOCAL & opcodes_with(Role.READS_LOCAL) - opcodes_with(Role.WRITES_LOCAL)


def unused_name(name: str, taken: Collection[str]) -> str:
    """The name, or a longer one where it is taken: a program may use any name itself."""
    while name in taken:
        name += "_"
    return name


def _call_index(point: ResumePoint) -> int:
    return point.index - 1 if point.call_index is None else point.call_index


def _first_index(decoded: Decoded) -> int:
    """The first instruction behind those that set up the frame (cells, generator, RESUME)."""
    for instruction in decoded.instructions:
        if instruction.op in _STARTS:
            return instruction.index
    return 0


def _entry_cells(code: types.CodeType) -> frozenset[str]:
    """The variables that are cells from the start of the function to its end."""
    decoded = decode(code)
    prelude = decoded.instructions[: _first_index(decoded)]
    return frozenset(instruction.value for instruction in prelude if instruction.op in _MAKES_CELL)


def _plain_names(decoded: Decoded) -> set[str]:
    """Variables that are stored to as plain slots at least in places. (From 3.13 on LOAD_FAST also
    loads cells, for closures; nothing stores a plain value over a cell.)"""
    return {
        instruction.value for instruction in decoded.instructions if instruction.op in _STORES_LOCAL
    }


def _rewound(decoded: Decoded, index: int) -> int:
    """The earliest instruction that continues the same way.

    The cells of the function exist already, so it starts after having made them. What KW_NAMES and
    PRECALL do is kept neither on the stack nor in variables, but they can be run again. So can
    TO_BOOL, behind which capture has the object itself.
    """
    index = max(index, _first_index(decoded))
    while index > 0 and decoded.instructions[index - 1].op in _REPEATABLE:
        index -= 1
    return index


def _resume(point: ResumePoint, form: _Form) -> types.CodeType:
    point = original_point(point)
    code = _codes.get((point, form))
    if code is None:
        _check(point, form)
        code = _codes[point, form] = _Builder(point, form).build()
    return code


def _check(point: ResumePoint, form: _Form) -> None:
    """Raise ValueError for a point that doesn't fit its code: a wrong stack would crash the
    interpreter, not raise."""
    decoded = decode(point.code)
    _require(bool(point.code.co_flags & inspect.CO_OPTIMIZED), point, "this is not a function")
    suspends = bool(point.code.co_flags & _SUSPENDING_FLAGS)
    _require(
        suspends == (form is not _Form.FUNCTION),
        point,
        "generators resume as generators and functions as functions",
    )
    _require(0 <= point.index < len(decoded.instructions), point, "there is no such instruction")
    allowed = set(decoded.variables) - set(closure_names(point.code)) | _plain_names(decoded)
    unknown = sorted(set(point.locals) - allowed)
    _require(not unknown, point, f"{unknown} are no variables outside cells")
    _require(len(set(point.locals)) == len(point.locals), point, "a variable is named twice")
    suspended = _is_suspended(decoded, point.index)
    _require(suspended or form is not _Form.PRIMED, point, "only a yield can be waited at")
    pushed = _keeps_result(decoded, point) + (suspended and form is not _Form.FUNCTION)
    depth, listed = decoded.depth_before(point.index), len(point.stack) + pushed
    _require(depth == listed, point, f"the stack has {depth} entries there, not {listed}")
    if point.inner is not None:
        is_place = 0 <= _call_index(point) < len(decoded.instructions)
        _require(is_place, point, "there is no such call")
        handler = decoded.handler(_call_index(point))
        deep_enough = handler is None or handler.depth <= len(point.stack)
        _require(deep_enough, point, "the handler of the call needs more of the stack")


def _require(condition: bool, point: ResumePoint, problem: str) -> None:
    if not condition:
        place = f"{point.code.co_qualname} at instruction {point.index}"
        raise ValueError(f"cannot resume {place}: {problem}")


def _keeps_result(decoded: Decoded, point: ResumePoint) -> bool:
    """Whether the point has an inner call whose result is pushed."""
    if point.inner is None:
        return False
    call = decoded.instructions[_call_index(point)]
    return OPCODES[call.op].stack(call.arg)[1] > 0


def _is_suspended(decoded: Decoded, index: int) -> bool:
    """Whether a generator that continues at `index` is suspended at a `yield`, the instruction
    before."""
    return index > 0 and decoded.instructions[index - 1].op in _YIELDS


class _Builder:
    """Makes the resume code of one point."""

    def __init__(self, point: ResumePoint, form: _Form) -> None:
        code = point.code
        self.point = point
        self.form = form
        self.decoded = decode(code)
        self.index = _rewound(self.decoded, point.index)
        if form is _Form.PRIMED:
            # Only the original YIELD_VALUE will do: `throw` looks at the instructions around it.
            self.index -= 1
        self.parameters = point.parameters
        # Cells that the frame has from its start are free variables here: they are passed in.
        self.freevars = closure_names(code)
        # Parameters are the first slots of a frame, so the original's variables are numbered anew.
        apart = {*self.parameters, *self.freevars}
        own_locals = self.decoded.variables[: code.co_nlocals]
        own_cells = [own_name(code, name) for name in code.co_cellvars]
        self.varnames = self.parameters + tuple(n for n in own_locals if n not in apart)
        self.cellvars = tuple(n for n in own_cells if n not in self.freevars)
        plain_cells = tuple(n for n in self.cellvars if n not in self.varnames)
        slots = self.varnames + plain_cells + self.freevars
        self.slot = {name: number for number, name in enumerate(slots)}
        self.consts = code.co_consts  # at the places that instructions of the original name
        if not any(const is None for const in self.consts):
            self.consts = (*self.consts, None)

    def build(self) -> types.CodeType:
        prologue, body = list(self._prologue()), list(self._body())
        # Where the instructions of the original are now; jumps and handlers are resolved by it.
        place = {
            item.source: number
            for number, item in enumerate(body, start=len(prologue))
            if item.source is not None
        }
        items = prologue + body
        resumed = assemble(self._header(), items, place)
        sources = tuple(item.source for item in items)
        # For `original_point`, should this code break as well.
        _origins.put(resumed, _Origin(self.point.code, sources))
        return resumed

    def _header(self) -> Header:
        code, point = self.point.code, self.point
        flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
        flags |= inspect.CO_NESTED if self.freevars else 0
        # `compile` and `exec` inherit the future flags of the code that calls them.
        flags |= code.co_flags & -_FIRST_FUTURE_FLAG
        flags |= code.co_flags & _SUSPENDING_FLAGS
        # `super()` gets two arguments here; putting the stack back needs room for the inner call.
        stack_size = max(code.co_stacksize + 2, len(point.stack) + (point.inner or 0) + 3)
        return Header(
            name=code.co_name,  # tracebacks show the function that the user wrote
            qualname=code.co_qualname,
            filename=code.co_filename,
            first_line=code.co_firstlineno,
            flags=flags,
            argument_count=len(self.parameters),
            varnames=self.varnames,
            cellvars=self.cellvars,
            freevars=self.freevars,
            names=code.co_names,
            consts=self.consts,
            stack_size=stack_size,
        )

    def _prologue(self) -> Iterator[AssemblyItem]:
        """The prologue with a line number on each item: that of the instruction at which the
        function continues."""
        instruction = self.decoded.instructions[self.index]
        line: Positions = (instruction.line, instruction.line, None, None)
        for item in self._prologue_items():
            yield item if item.positions[0] is not None else replace(item, positions=line)

    def _prologue_items(self) -> Iterator[AssemblyItem]:
        if self.freevars:
            # The order in which CPython itself starts functions: cells, generator, RESUME.
            yield AssemblyItem("COPY_FREE_VARS", len(self.freevars))
        if self.form is not _Form.FUNCTION:
            # The POP_TOP takes what the first `next()` sends, which is always None.
            yield AssemblyItem("RETURN_GENERATOR")
            yield AssemblyItem("POP_TOP")
        yield AssemblyItem("RESUME", 0)
        # From the bottom of the stack up, which is the order of the parameters.
        parameters = iter(self.parameters)
        for entry in self.point.stack:
            if entry is StackItem.NULL:
                yield AssemblyItem("PUSH_NULL")
                continue
            yield from self._take(next(parameters))
            if entry is StackItem.HANDLED:
                # Makes it the thread's current exception, and leaves the former one for POP_EXCEPT.
                # The exception itself is another entry, if the stack still has it.
                yield AssemblyItem("PUSH_EXC_INFO")
                yield AssemblyItem("POP_TOP")
        # Most parameters are variables under their own names, which are in their slots already.
        for name, parameter in zip(self.point.locals, parameters, strict=False):
            if name != parameter:
                yield from self._take(parameter)
                yield AssemblyItem("STORE_FAST", self.slot[name])
        if self.point.inner is not None:
            yield from self._inner_call(self.point.inner)
        source: int | None = self.index
        if self.form is not _Form.FUNCTION and _is_suspended(self.decoded, self.point.index):
            # What was sent, or, when primed, what is yielded. No point has it on its stack.
            yield AssemblyItem("LOAD_CONST", _position_of_none(self.consts))
            source = None
        # Forward always does: the whole body stands behind the prologue.
        yield AssemblyItem("JUMP_FORWARD", source=source, target=self.index)

    def _take(self, parameter: str) -> Iterator[AssemblyItem]:
        """Move a parameter to the stack. What the original has consumed must not stay alive."""
        yield AssemblyItem("LOAD_FAST", self.slot[parameter])
        yield AssemblyItem("DELETE_FAST", self.slot[parameter])

    def _inner_call(self, count: int) -> Iterator[AssemblyItem]:
        """Call the inner function with its arguments, under the exception handler of the original
        call."""
        call_index = _call_index(self.point)
        handler = self.decoded.handler(call_index)
        positions = self.decoded.instructions[call_index].positions
        function, *arguments = self.parameters[len(self.parameters) - count - 1 :]
        if not CALLABLE_FIRST:
            yield AssemblyItem("PUSH_NULL")
        yield from self._take(function)
        if CALLABLE_FIRST:
            yield AssemblyItem("PUSH_NULL")
        for argument in arguments:
            yield from self._take(argument)
        # From 3.13 on the handler of a call is looked for right in front of it.
        yield AssemblyItem("NOP", handler=handler, positions=positions)
        for op in CALL_SEQUENCE:  # the last one is the call itself
            source = call_index if op == CALL_SEQUENCE[-1] else None
            yield AssemblyItem(op, count, source=source, handler=handler, positions=positions)
        if not _keeps_result(self.decoded, self.point):
            yield AssemblyItem("POP_TOP")

    def _body(self) -> Iterator[AssemblyItem]:
        """The original, without what cannot be reached from here."""
        starts = [self.index]
        if self.point.inner is not None:
            # The call in the prologue can go to the handler of the original one.
            handler = self.decoded.handler(_call_index(self.point))
            starts.extend([] if handler is None else [handler.target])
        reachable = flow.reachable(self.decoded, starts)
        for instruction in self.decoded.instructions:
            if instruction.index not in reachable:
                continue
            handler = self.decoded.handler(instruction.index)
            if instruction.index in self.decoded.super_calls:
                yield from self._super_call(instruction, handler)
                continue
            op, arg = instruction.op, instruction.arg or 0
            operand = OPCODES[op].operand
            if operand is Operand.LOCAL:
                arg = self.slot[instruction.value]
            elif operand is Operand.SUPER_ATTR:
                arg |= _TWO_ARGUMENTS
            if op in _RERAISES and not POSITIONS_ARE_OBJECTS:
                arg = 0  # the position may have come as a parameter, which will not do
            if op in _LOADS_LOCAL and instruction.value not in self.parameters:
                # Since 3.12 it reads without a look where the original is sure that it is filled.
                op = LOAD_CHECKED
            yield AssemblyItem(
                op, arg, instruction.index, instruction.target, handler, instruction.positions
            )

    def _super_call(
        self, instruction: Instruction, handler: ExceptionEntry | None
    ) -> Iterator[AssemblyItem]:
        """Give ``super()`` its arguments: left alone it takes the frame's first, another one here.

        (Since 3.12 ``super().name`` is LOAD_SUPER_ATTR, which has them but must not ignore them.)
        """
        index, at = instruction.index, instruction.positions
        if index - 1 not in self.decoded.super_calls:
            first = self.decoded.variables[0]
            load = "LOAD_DEREF" if first in self.freevars else LOAD_CHECKED
            yield AssemblyItem("LOAD_DEREF", self.slot["__class__"], index, None, handler, at)
            yield AssemblyItem(load, self.slot[first], None, None, handler, at)
        yield AssemblyItem(instruction.op, 2, None, None, handler, at)


def _position_of_none(consts: tuple[object, ...]) -> int:
    """The index of None among the constants. (`consts.index` would take an equal object for it.)"""
    return next(number for number, const in enumerate(consts) if const is None)
