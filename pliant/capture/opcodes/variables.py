"""Loading and storing names: locals, cells, globals, attributes; and moving stack entries about."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.capture.attributes import namespace
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.model import get_attribute, set_attribute
from pliant.capture.trace import Trace
from pliant.capture.value import NULL, Break, Const, Raised, Unread, Value, plain_callee
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.functions import BoundMethod, FunctionValue
from pliant.capture.values.objects import Cell, ExceptionValue, Super
from pliant.guards.source import DictItem, Fixed


@opcode("NOP", "RESUME", "PRECALL", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", lazy=True)
def nothing(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    return operands


@opcode("POP_TOP", "POP_ITER", "END_FOR", lazy=True)
def discard(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    for operand in operands:
        give_up(frame, operand)


def give_up(frame: Frame, value: Value | None) -> None:
    """Break if a generator from outside may be closed here: Python closes it when the last
    reference goes, then and not later."""
    real = getattr(value, "real", None)
    if type(real) is not GeneratorType or real.gi_frame is None or real.gi_frame.f_lasti < 0:
        return
    # Another reference in this frame keeps it open. Others can't be seen from here: then it breaks
    # for nothing.
    held = [other for other in (*frame.stack, *frame.locals.values()) if other is value]
    if len(held) == 1:
        raise Break("cannot-rebuild", "a generator that may be closed here")


@opcode("PUSH_NULL")
def push_null(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return NULL


@opcode("SWAP", lazy=True)
def swap(trace: Trace, frame: Frame, ins: Instruction, deep: Value, *rest: Value) -> Any:
    return (rest[-1], *rest[:-1], deep)


@opcode("COPY", lazy=True)
def copy(trace: Trace, frame: Frame, ins: Instruction, deep: Value, *rest: Value) -> Any:
    return (deep, *rest, deep)


@opcode("LOAD_CONST")
def load_const(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return literal(ins.value)


@opcode("LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT")
def load_constant(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return Const(ins.value)


def literal(value: Any) -> Value:
    """A constant of the code. Tuples are made of values so that they can be unpacked and joined."""
    if type(value) is tuple:
        return Sequence(tuple, [literal(item) for item in value])
    return Const(value)


# ---- locals and cells


@opcode("LOAD_FAST", "LOAD_FAST_CHECK")
def load_fast(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    value = frame.locals.get(ins.value)
    if value is None:
        value = frame.cells.get(ins.value)  # from 3.13 on: the cell itself, for a closure
    if value is None:
        trace.throw(unbound(ins.value))
    return value


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return frame.locals.pop(ins.value, NULL)


@opcode("STORE_FAST", lazy=True)
def store_fast(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    give_up(frame, frame.locals.get(ins.value))
    old = frame.locals.pop(ins.value, None) if trace.suspended else None
    # An inlined comprehension (Python 3.12) restores a variable that was unbound before it.
    if value is NULL:
        frame.locals.pop(ins.value, None)
    else:
        frame.locals[ins.value] = value
    if old is not None:
        old.dropped(trace)


@opcode("DELETE_FAST")
def delete_fast(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    give_up(frame, frame.locals.get(ins.value))
    old = frame.locals.pop(ins.value, None)
    if old is None:
        trace.throw(unbound(ins.value))
    old.dropped(trace)


def unbound(name: str) -> UnboundLocalError:
    text = f"cannot access local variable '{name}' where it is not associated with a value"
    return UnboundLocalError(text)


@opcode("MAKE_CELL")
def make_cell(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    # A parameter that an inner function uses: its argument moves into the cell.
    frame.cells[ins.value] = Cell(frame.locals.pop(ins.value, None))


@opcode("LOAD_CLOSURE")
def load_closure(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return frame.cells[ins.value]


@opcode("LOAD_CLASSDEREF")
def load_classderef(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    variable = frame.locals.get(ins.value)
    return variable if variable is not None else load_deref(trace, frame, ins)


@opcode("LOAD_DEREF")
def load_deref(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    contents = _cell(frame, ins.value).contents
    if contents is None:
        trace.throw(unbound_cell(frame, ins.value))
    # If nothing more is needed of it, it still has to be there (`assume_present`).
    if type(contents) is Unread:
        trace.fetched.append(contents)
    return contents


@opcode("STORE_DEREF", lazy=True)
def store_deref(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    _cell(frame, ins.value).store(trace, value)


@opcode("DELETE_DEREF")
def delete_deref(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    if _cell(frame, ins.value).contents is None:
        trace.throw(unbound_cell(frame, ins.value))
    _cell(frame, ins.value).store(trace, None)


def _cell(frame: Frame, name: str) -> Cell:
    """The cell of a variable. In 3.12 an inlined comprehension keeps its own cell in a local."""
    local = frame.locals.get(name)
    return local if isinstance(local, Cell) else frame.cells[name]


def unbound_cell(frame: Frame, name: str) -> NameError:
    if name not in frame.code.co_freevars:
        return unbound(name)
    text = f"cannot access free variable '{name}' where it is not associated with a value"
    return NameError(f"{text} in enclosing scope")


# ---- globals


def global_value(trace: Trace, frame: Frame, name: str) -> Value:
    """The value of a global or built-in name."""
    value = namespace(trace, frame.globals).get(trace, name)
    if value is None:
        value = namespace(trace, frame.builtins).get(trace, name)
    if value is None:
        trace.throw(NameError(f"name '{name}' is not defined", name=name))
    return value


@opcode("LOAD_GLOBAL")
def load_global(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    name, push_null = ins.value
    value = global_value(trace, frame, name)
    # The PUSH_NULL of a call is folded into the instruction that loads the function.
    return plain_callee(value) if push_null else value


@opcode("STORE_GLOBAL", lazy=True)
def store_global(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    namespace(trace, frame.globals).store(trace, ins.value, value)


@opcode("DELETE_GLOBAL")
def delete_global(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    table = namespace(trace, frame.globals)
    if table.get(trace, ins.value) is None:
        trace.throw(NameError(f"name '{ins.value}' is not defined", name=ins.value))
    table.store(trace, ins.value, None)


@opcode("LOAD_BUILD_CLASS")
def load_build_class(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return Unread(
        frame.builtins["__build_class__"],
        DictItem(Fixed(frame.builtins, "G<builtins>"), "__build_class__"),
    )


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return Const(AssertionError)


# ---- class bodies, whose variables become the namespace of the class


@opcode("LOAD_NAME")
def load_name(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    variable = frame.locals.get(ins.value)
    return variable if variable is not None else global_value(trace, frame, ins.value)


@opcode("STORE_NAME", lazy=True)
def store_name(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    frame.locals[ins.value] = value


@opcode("DELETE_NAME")
def delete_name(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    if frame.locals.pop(ins.value, None) is None:
        trace.throw(NameError(f"name '{ins.value}' is not defined", name=ins.value))


@opcode("SETUP_ANNOTATIONS")
def setup_annotations(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    if "__annotations__" not in frame.locals:
        frame.locals["__annotations__"] = Mapping(dict)


@opcode("LOAD_LOCALS")
def load_locals(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    return Mapping(dict, dict(frame.locals))


@opcode("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(trace: Trace, frame: Frame, ins: Instruction, table: Value) -> Any:
    variable = table.get(trace, ins.value) if isinstance(table, Mapping) else None
    return variable if variable is not None else load_deref(trace, frame, ins)


@opcode("LOAD_FROM_DICT_OR_GLOBALS")
def load_from_dict_or_globals(trace: Trace, frame: Frame, ins: Instruction, table: Value) -> Any:
    variable = table.get(trace, ins.value) if isinstance(table, Mapping) else None
    return variable if variable is not None else global_value(trace, frame, ins.value)


@opcode(
    "IMPORT_STAR",
    "PRINT_EXPR",
    "INTERPRETER_EXIT",
    "RESERVED",
    "ENTER_EXECUTOR",
    "EXIT_INIT_CHECK",
)
def modules_only(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    """Instructions of modules, which are run and not followed, and of the interpreter itself."""
    raise Break("unsupported-instruction", ins.op)


# ---- attributes


@opcode("LOAD_ATTR")
def load_attr(trace: Trace, frame: Frame, ins: Instruction, obj: Value) -> Any:
    if type(ins.value) is str:
        return get_attribute(trace, obj, ins.value, direct=True)
    name, as_method = ins.value
    if as_method:
        return method_entries(get_attribute(trace, obj, name), obj)
    return get_attribute(trace, obj, name, direct=True)


@opcode("LOAD_METHOD")
def load_method(trace: Trace, frame: Frame, ins: Instruction, obj: Value) -> Any:
    return method_entries(get_attribute(trace, obj, ins.value), obj)


def method_entries(attribute: Value, obj: Value) -> tuple[Value, Value]:
    """What a call expects: the function and its receiver, or a callable and NULL."""
    # Made just now, so nobody else has it: the bound method itself is never needed.
    if isinstance(attribute, BoundMethod) and attribute.source is None and attribute.obj is obj:
        return attribute.function, obj
    return plain_callee(attribute)


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(
    trace: Trace, frame: Frame, ins: Instruction, function: Value, cls: Value, obj: Value
) -> Any:
    name, as_method, _ = ins.value
    if not (isinstance(function, Const) and function.value is super):
        raise Break("unsupported", "a replaced super()")
    proxy = Super(cls.constant(), obj)
    attribute = get_attribute(trace, proxy, name)
    return method_entries(attribute, obj) if as_method else attribute


@opcode("STORE_ATTR", lazy=True)
def store_attr(trace: Trace, frame: Frame, ins: Instruction, value: Value, obj: Value) -> Any:
    set_attribute(trace, obj, ins.value, value, direct=True)


@opcode("DELETE_ATTR")
def delete_attr(trace: Trace, frame: Frame, ins: Instruction, obj: Value) -> Any:
    set_attribute(trace, obj, ins.value, None, direct=True)


# ---- functions and imports


@opcode("MAKE_FUNCTION", lazy=True)
def make_function(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    *extras, code = operands
    function = FunctionValue(code.constant(), frame.globals)
    function.cells, function.defaults, function.kwdefaults = [], [], {}
    # The last one is on top of the stack.
    for flag in reversed(_FUNCTION_ATTRIBUTES):
        if (ins.arg or 0) & flag:
            _FUNCTION_ATTRIBUTES[flag](trace, function, extras.pop())
    return function


@opcode("SET_FUNCTION_ATTRIBUTE", lazy=True)
def set_function_attribute(
    trace: Trace, frame: Frame, ins: Instruction, value: Value, function: Value
) -> Any:
    assert isinstance(function, FunctionValue) and ins.arg is not None
    _FUNCTION_ATTRIBUTES[ins.arg](trace, function, value)
    return function


def _set_defaults(trace: Trace, function: FunctionValue, value: Value) -> None:
    defaults = trace.read(value)
    assert isinstance(defaults, Sequence)
    function.defaults = list(defaults.items)


def _set_keyword_defaults(trace: Trace, function: FunctionValue, value: Value) -> None:
    table = trace.read(value)
    assert isinstance(table, Mapping)
    function.kwdefaults = table.read_all(trace)


def _set_annotations(trace: Trace, function: FunctionValue, value: Value) -> None:
    """A tuple of names and values in turn."""
    parts = trace.read(value)
    items = parts.items if isinstance(parts, Sequence) else list(map(Const, parts.constant()))
    annotations = Mapping(dict)
    for key, annotation in zip(items[::2], items[1::2], strict=True):
        annotations.items[trace.read(key).constant()] = annotation
    function.own["__annotations__"] = annotations


def _set_closure(trace: Trace, function: FunctionValue, value: Value) -> None:
    cells = trace.read(value)
    assert isinstance(cells, Sequence)
    function.cells = list(cells.items)  # type: ignore[arg-type]


def _set_annotate(trace: Trace, function: FunctionValue, value: Value) -> None:
    """From Python 3.14 on: a function that makes the annotations when they are asked for."""
    function.own["__annotate__"] = trace.read(value)


# By the flag that asks for them, in the order in which they lie on the stack.
_FUNCTION_ATTRIBUTES: dict[int, Callable[[Trace, FunctionValue, Value], None]] = {
    0x01: _set_defaults,
    0x02: _set_keyword_defaults,
    0x04: _set_annotations,
    0x08: _set_closure,
    0x10: _set_annotate,
}


@opcode("IMPORT_NAME")
def import_name(trace: Trace, frame: Frame, ins: Instruction, level: Value, names: Value) -> Any:
    """Importing what is already imported is looking it up; anything else runs in Python."""
    importer = trace.read(namespace(trace, frame.builtins).get(trace, "__import__") or NULL)
    if not (isinstance(importer, Const) and importer.value is builtins.__import__):
        raise Break("import", ins.value)
    fullname = resolve_import(frame, ins.value, level.constant())
    # A first import would run the module's code, during capture instead of at run time.
    module = sys.modules.get(fullname)
    if module is None:
        _refuse_missing(trace, fullname)
        raise Break("import", fullname)
    # `import a.b` binds `a`; `from a.b import c` takes `c` from `a.b`.
    if not names.constant() and not level.constant():
        fullname = fullname.split(".")[0]
    source = DictItem(Fixed(sys.modules, "sys.modules"), fullname)
    return trace.read(Unread(sys.modules[fullname], source))


def _refuse_missing(trace: Trace, name: str) -> None:
    """A module that does not exist at all, in a package that needs no importing to be asked."""
    top = name.partition(".")[0]
    try:
        missing = name not in sys.modules and importlib.util.find_spec(top) is None
    except (ImportError, ValueError):
        return
    if missing:
        error = ModuleNotFoundError(f"No module named {top!r}")
        value = ExceptionValue(ModuleNotFoundError, [Const(error.args[0])])
        value.slots["name"] = Const(top)
        raise Raised(value)


def resolve_import(frame: Frame, name: str, level: int) -> str:
    """The absolute name of the module that an import statement means."""
    if not level:
        return name
    package = frame.globals.get("__package__") or frame.globals["__name__"].rpartition(".")[0]
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


@opcode("IMPORT_FROM")
def import_from(trace: Trace, frame: Frame, ins: Instruction, module: Value) -> Any:
    # It may be a submodule that isn't imported yet.
    if isinstance(module, Const) and not hasattr(module.value, ins.value):
        raise Break("import", f"{module.value.__name__}.{ins.value}")
    return (module, get_attribute(trace, module, ins.value))
