"""The operation at a graph break, as a Python statement of the residual code.

Where the row of an opcode says its meaning, that is what is written. The others have a writer in a
table: the statement that does the same, and where the program goes on: each exit is a condition,
the index of the next instruction, and what lies on the stack there.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any

from pliant.base.tracebacks import CallSite, called_from
from pliant.base.values import dataclass
from pliant.bytecode.tables import LOOP_END, OPCODES, Role, opcodes_with
from pliant.capture.frame import Frame
from pliant.capture.opcodes.calls import split_call
from pliant.capture.opcodes.data import SUBSCRIPT, merged_for
from pliant.capture.residual import Emitter
from pliant.capture.trace import Trace
from pliant.capture.value import NULL, Break, Const, Value, plain_callee
from pliant.capture.values.functions import BuiltinMethod, FunctionValue, called
from pliant.guards.source import ClassAttr
from pliant.stages import ROUTED

CALLS = opcodes_with(Role.CALLS)
Exit = tuple[str | None, int, list[Value | str]]


@dataclass(slots=True)
class ResidualOperation:
    """What residual code does in place of one instruction: statements (`text`), and where the
    program goes on (`exits`)."""

    trace: Trace
    frame: Frame
    emit: Emitter
    places: tuple[CallSite, ...]  # where it is to seem to be called, if that matters
    operands: list[Value]
    pops: int
    text: list[str] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # variables that `text` assigns

    def name(self, wish: str) -> str:
        """A new variable for something that the operation gives."""
        self.names.append(self.emit.fresh(wish))
        return self.names[-1]

    def go_on(self, *pushed: Value | str) -> None:
        """Continue at the next instruction, with these values pushed."""
        self.exits.append((None, self.frame.index + 1, list(pushed)))

    def result(self, expression: str) -> None:
        """Compute one value and continue with it."""
        name = self.name("result")
        self.text.append(f"{name} = {expression}")
        self.go_on(name)

    def source(self, value: Value) -> str:
        return self.emit.expression(value)

    def operand(self, value: Value) -> str:
        return self.emit.operand(value)


def operation_of(
    trace: Trace, emit: Emitter, frame: Frame, places: tuple[CallSite, ...] = ()
) -> ResidualOperation:
    """The present instruction of `frame` as residual code. `places` is the user's stack, if the
    operation reports where it was called."""
    name = frame.instruction.op
    writer = WRITERS.get(name) or (_meaning if OPCODES[name].meaning else None)
    if writer is None:
        raise Break("unsupported-instruction", name)
    pops = frame.operands
    operands = frame.stack[len(frame.stack) - pops :] if pops else []
    operation = ResidualOperation(trace, frame, emit, places, operands, pops)
    writer(operation)
    return operation


def _meaning(op: ResidualOperation) -> None:
    """What the opcode's row says, in Python."""
    info, value = OPCODES[op.frame.instruction.op], op.frame.instruction.value
    operands = [op.operand(operand) for operand in op.operands]
    argument = value if isinstance(value, str) else op.emit.constant(value)
    if callable(info.meaning):
        function = op.emit.bind(info.meaning.__name__, info.meaning)
        text = f"{function}({', '.join([*operands, argument])})"
    else:
        text = info.source(operands, argument)
    if info.pushes:
        op.result(text)
    else:
        op.text.append(text)
        op.go_on()


def _binary(op: ResidualOperation) -> None:
    left, right = map(op.operand, op.operands)
    symbol: str = op.frame.instruction.value
    if symbol == SUBSCRIPT:
        op.result(f"{left}[{right}]")
        return
    if not symbol.endswith("="):
        op.result(f"{left} {symbol} {right}")
        return
    name = op.name("result")
    # `x += y` is a statement, and may bind another object than the one that was there.
    op.text += [f"{name} = {left}", f"{name} {symbol} {right}"]
    op.go_on(name)


def _call(op: ResidualOperation) -> None:
    target, args, kwargs = split_call(op.frame, op.operands)
    target = op.trace.read(target)
    extra = []
    if isinstance(target, Const) and isinstance(target.value, Hashable):
        reader = FRAME_READERS.get(target.value)
        extra = [] if reader is None else reader(op, args, kwargs)
    if _is_method_of(op, target, args):
        assert isinstance(target.source, ClassAttr)
        callee = f"{op.operand(args[0])}.{target.source.name}"
        args = args[1:]
    elif isinstance(target, BuiltinMethod) and target.source is None:
        callee = target.rebuild(op.emit)  # `x.item()` rather than a variable for `x.item`
    else:
        callee = op.source(target)
    write = _callback if _calls_back(target) else ResidualOperation.source
    parts = [*(write(op, arg) for arg in args), *extra]
    parts += [f"{name}={write(op, value)}" for name, value in kwargs.items()]
    if op.places:
        parts = [callee, *parts]
        # Warnings and log records name the line that called them: the call is made as if from
        # there.
        callee = op.emit.bind("in_place", called_from(op.places))
    op.result(f"{callee}({', '.join(parts)})")


# C functions that do nothing with a function they are given but call it.
CALLERS = frozenset({sorted, min, max, map, filter, functools.reduce})


def _calls_back(target: Value) -> bool:
    if isinstance(target, BuiltinMethod):
        return (target.owner, target.name) == (list, "sort")
    return (
        isinstance(target, Const)
        and target.python_type() in (type, type(len))
        and (target.value in CALLERS)
    )


def _callback(op: ResidualOperation, value: Value) -> str:
    """An argument that C code will call: a Python function is compiled, like any other."""
    text = op.source(value)
    if not isinstance(op.trace.read(value), FunctionValue):
        return text
    return f"{op.emit.bind('routed', ROUTED)}({text})"


def _is_method_of(op: ResidualOperation, target: Value, args: list[Value]) -> bool:
    """Whether `args[0].name` finds the function `target`, so that the call can be written so."""
    source = target.source
    if not (isinstance(target, FunctionValue) and isinstance(source, ClassAttr) and args):
        return False
    obj = op.trace.read(args[0])
    if op.trace.lookup(obj.python_type(), source.name) is not target.real:
        return False
    return obj.instance_attribute(op.trace, source.name) is None


def _two_arguments(op: ResidualOperation, args: list[Value], kwargs: dict[str, Value]) -> list[str]:
    """`super()` looks into the frame for its class and object; here they are given."""
    if args:
        return []
    first = op.frame.code.co_varnames[0]
    held = op.frame.locals.get(first) or op.frame.cells[first].contents
    cls = op.frame.cells["__class__"].contents
    assert held is not None and cls is not None
    return [op.source(cls), op.source(held)]


def _namespaces(op: ResidualOperation, args: list[Value], kwargs: dict[str, Value]) -> list[str]:
    """`eval` and `exec` use the variables of the frame unless they are given others."""
    if len(args) > 1:
        return []
    variables = dict(op.frame.locals)
    variables |= {name: cell.contents for name, cell in op.frame.cells.items() if cell.contents}
    pairs = ", ".join(f"{name!r}: {op.source(value)}" for name, value in variables.items())
    return [op.emit.bind("namespace", op.frame.globals), f"{{{pairs}}}"]


def _no_frame(op: ResidualOperation, args: list[Value], kwargs: dict[str, Value]) -> list[str]:
    raise Break("unsupported-function", "the frame of a function")


def _deeper(op: ResidualOperation, args: list[Value], kwargs: dict[str, Value]) -> list[str]:
    """The arguments of `warnings.warn`, with a `stacklevel` that counts two frames of ours: they
    lie between the user's function and its caller."""
    level = args.pop(2) if len(args) > 2 else kwargs.get("stacklevel")
    if level is not None:
        number = op.trace.read(level).constant()
        kwargs["stacklevel"] = Const(number + 2 * (number > len(op.places)))
    return []


# Functions that look at the frame that calls them: the arguments that say the same, or a break.
FRAME_READERS: dict[Any, Callable[..., list[str]]] = {
    super: _two_arguments,
    eval: _namespaces,
    exec: _namespaces,
    sys._getframe: _no_frame,
    warnings.warn: _deeper,
}
# Causes of breaks at functions that report where they were called.
REPORTING = frozenset({"warning", "logging"})


def reads_variables(frame: Frame) -> bool:
    """Whether the present instruction may read all variables of its frame."""
    return frame.instruction.op in CALLS and any(
        isinstance(value, Const) and any(value.value is reader for reader in (super, eval, exec))
        for value in frame.stack[-frame.operands :][:2]
    )


def _call_ex(op: ResidualOperation) -> None:
    target, args, *rest = (operand for operand in op.operands if operand is not NULL)
    extra = f", **{op.source(rest[0])}" if rest else ""
    op.result(f"{op.source(target)}(*{op.source(args)}{extra})")


def _load_method(op: ResidualOperation) -> None:
    name = op.name("result")
    op.text.append(f"{name} = {op.operand(op.operands[0])}.{op.frame.instruction.value}")
    op.go_on(*plain_callee(name))


def _load_attr(op: ResidualOperation) -> None:
    value = op.frame.instruction.value
    name, as_method = (value, False) if isinstance(value, str) else value
    result = op.name("result")
    op.text.append(f"{result} = {op.operand(op.operands[0])}.{name}")
    op.go_on(*(plain_callee(result) if as_method else [result]))


def _jump(condition: str) -> Callable[[ResidualOperation], None]:
    """A branch: the test in Python, a resume function for each way."""

    def write(op: ResidualOperation) -> None:
        test = condition.format(op.source(op.operands[0]))
        name = op.name("test")
        op.text.append(f"{name} = {test}")
        op.exits.append((name, op.frame.instruction.value, []))
        op.exits.append((None, op.frame.index + 1, []))

    return write


def _jump_or_pop(condition: str) -> Callable[[ResidualOperation], None]:
    def write(op: ResidualOperation) -> None:
        name = op.name("test")
        op.text.append(f"{name} = {condition.format(op.source(op.operands[0]))}")
        op.exits.append((name, op.frame.instruction.value, [op.operands[0]]))
        op.exits.append((None, op.frame.index + 1, []))

    return write


def _for_iter(op: ResidualOperation) -> None:
    iterator = op.operands[0]
    item = op.name("item")
    # An object of its own: any other could be an item.
    end = op.emit.bind("END", object())
    op.text.append(f"{item} = next({op.source(iterator)}, {end})")
    # What ends the loop would take the iterator off, which is not on the stack any more.
    end_of_loop = op.frame.instruction.value + len(LOOP_END)
    op.exits.append((f"{item} is {end}", end_of_loop, []))
    op.exits.append((None, op.frame.index + 1, [iterator, item]))


def _unpack(op: ResidualOperation) -> None:
    count = op.frame.instruction.arg or 0
    names = [op.name("part") for _ in range(count)]
    left = ", ".join(names) + ("," if count == 1 else "")
    op.text.append(f"{left or '[]'} = {op.source(op.operands[0])}")
    op.go_on(*reversed(names))


def _unpack_ex(op: ResidualOperation) -> None:
    arg = op.frame.instruction.arg or 0
    before, after = arg & 0xFF, arg >> 8
    names = [op.name("part") for _ in range(before + after + 1)]
    left = [*names[:before], f"*{names[before]}", *names[before + 1 :]]
    op.text.append(f"{', '.join(left)}, = {op.source(op.operands[0])}")
    op.go_on(*reversed(names))


def _before_with(op: ResidualOperation) -> None:
    leave, entered = op.name("leave"), op.name("entered")
    call = f"{op.emit.helper('enter')}({op.source(op.operands[0])})"
    op.text.append(f"{leave}, {entered} = {call}")
    op.go_on(leave, entered)


def _with_except_start(op: ResidualOperation) -> None:
    *leave, _, _, exception = op.operands
    error = op.emit.assign_name(exception, "error")
    name = op.name("swallow")
    method, *receiver = (op.source(operand) for operand in leave if operand is not NULL)
    arguments = [*receiver, f"type({error})", error, f"{error}.__traceback__"]
    op.text.append(f"{name} = {method}({', '.join(arguments)})")
    op.go_on(*op.operands, name)


def _load_special(op: ResidualOperation) -> None:
    if op.frame.instruction.value not in ("__enter__", "__exit__"):
        raise Break("coroutine", "async with")
    name = op.name("method")
    arguments = f"{op.source(op.operands[0])}, {op.frame.instruction.value!r}"
    op.text.append(f"{name} = {op.emit.helper('special_method')}({arguments})")
    op.go_on(*plain_callee(name))


def _import_name(op: ResidualOperation) -> None:
    level, names = map(op.source, op.operands)
    namespace = op.emit.bind("namespace", op.frame.globals)
    op.result(f"__import__({op.frame.instruction.value!r}, {namespace}, None, {names}, {level})")


def _import_from(op: ResidualOperation) -> None:
    module = op.operands[0]
    name = op.name("imported")
    op.text.append(f"{name} = {op.source(module)}.{op.frame.instruction.value}")
    op.go_on(module, name)


def _update(method: str) -> Callable[[ResidualOperation], None]:
    """Instructions that add to a container that stays on the stack."""

    def write(op: ResidualOperation) -> None:
        target, *between, added = op.operands
        op.text.append(f"{op.emit.assign_name(target, 'target')}.{method}({op.source(added)})")
        op.go_on(target, *between)

    return write


def _dict_merge(op: ResidualOperation) -> None:
    target, *between, added = op.operands
    callee = called(op.trace, merged_for(op.frame))
    arguments = f"{op.emit.assign_name(target, 'keywords')}, {op.source(added)}, {callee!r}"
    op.text.append(f"{op.emit.helper('merge')}({arguments})")
    op.go_on(target, *between)


def _load_super_attr(op: ResidualOperation) -> None:
    _, cls, obj = op.operands
    name, as_method, _ = op.frame.instruction.value
    result = op.name("result")
    op.text.append(f"{result} = super({op.source(cls)}, {op.source(obj)}).{name}")
    op.go_on(*(plain_callee(result) if as_method else [result]))


def _map_add(op: ResidualOperation) -> None:
    target, *between, key, value = op.operands
    name = op.emit.assign_name(target, "target")
    op.text.append(f"{name}[{op.source(key)}] = {op.source(value)}")
    op.go_on(target, *between)


def _raise(op: ResidualOperation) -> None:
    parts = [op.source(operand) for operand in op.operands]
    op.text.append("raise " + " from ".join(parts))


def _format(op: ResidualOperation) -> None:
    conversion, has_spec = op.frame.instruction.value
    value = op.source(op.operands[0])
    if conversion is not None:
        value = f"{op.emit.constant(conversion)}({value})"
    spec = f", {op.source(op.operands[1])}" if has_spec else ""
    op.result(f"format({value}{spec})")


def _get_len(op: ResidualOperation) -> None:
    name = op.name("length")
    op.text.append(f"{name} = len({op.source(op.operands[0])})")
    op.go_on(op.operands[0], name)


def _build_map(op: ResidualOperation) -> None:
    parts = [op.source(operand) for operand in op.operands]
    op.result(
        "{" + ", ".join(f"{k}: {v}" for k, v in zip(parts[::2], parts[1::2], strict=True)) + "}"
    )


def _branches(condition: str, *suffixes: str) -> dict[str, Callable[[ResidualOperation], None]]:
    return {f"POP_JUMP_{suffix}": _jump(condition) for suffix in suffixes}


def _discard(op: ResidualOperation) -> None:
    """The object is given up when the residual code returns, before the program goes on."""
    op.go_on()


def _delete(op: ResidualOperation) -> None:
    del op.frame.locals[op.frame.instruction.value]
    op.go_on()


def _store(op: ResidualOperation) -> None:
    op.frame.locals[op.frame.instruction.value] = op.operands[0]
    op.go_on()


WRITERS: dict[str, Callable[[ResidualOperation], None]] = {
    "CALL": _call,
    "CALL_KW": _call,
    "POP_TOP": _discard,
    "POP_ITER": _discard,
    "DELETE_FAST": _delete,
    "STORE_FAST": _store,
    "CALL_FUNCTION_EX": _call_ex,
    "LOAD_ATTR": _load_attr,
    "LOAD_METHOD": _load_method,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "BINARY_OP": _binary,
    "GET_LEN": _get_len,
    "FOR_ITER": _for_iter,
    "UNPACK_SEQUENCE": _unpack,
    "UNPACK_EX": _unpack_ex,
    "BEFORE_WITH": _before_with,
    "LOAD_SPECIAL": _load_special,
    "WITH_EXCEPT_START": _with_except_start,
    "IMPORT_NAME": _import_name,
    "IMPORT_FROM": _import_from,
    "LIST_EXTEND": _update("extend"),
    "SET_UPDATE": _update("update"),
    "SET_ADD": _update("add"),
    "DICT_UPDATE": _update("update"),
    "DICT_MERGE": _dict_merge,
    "MAP_ADD": _map_add,
    "RAISE_VARARGS": _raise,
    "FORMAT_VALUE": _format,
    "BUILD_MAP": _build_map,
    "JUMP_IF_TRUE_OR_POP": _jump_or_pop("bool({0})"),
    "JUMP_IF_FALSE_OR_POP": _jump_or_pop("not {0}"),
    **_branches("bool({0})", "IF_TRUE", "FORWARD_IF_TRUE", "BACKWARD_IF_TRUE"),
    **_branches("not {0}", "IF_FALSE", "FORWARD_IF_FALSE", "BACKWARD_IF_FALSE"),
    **_branches("{0} is None", "IF_NONE", "FORWARD_IF_NONE", "BACKWARD_IF_NONE"),
    **_branches("{0} is not None", "IF_NOT_NONE", "FORWARD_IF_NOT_NONE", "BACKWARD_IF_NOT_NONE"),
}
