"""Attributes of modules, classes, functions and bound methods: the cases where the object that
is asked is not an instance with a `__dict__` of its own."""

from __future__ import annotations

import enum
import sys
import types
from typing import Any

from pliant._native import Dispatcher
from pliant.base.python_errors import type_name
from pliant.capture.class_writes import ClassNamespace, set_on_class
from pliant.capture.model import (
    DESCRIPTORS,
    GET,
    SET,
    bind_descriptor,
    call,
    generic_set_attribute,
    get_attribute,
    is_data_descriptor,
    set_by_override,
)
from pliant.capture.native import fill_late
from pliant.capture.trace import PLAIN, Trace
from pliant.capture.value import (
    NONE,
    Break,
    Const,
    Raised,
    Unread,
    Value,
    has_python_method,
    overrides_access,
)
from pliant.capture.values.containers import Mapping, Sequence, instance_dict
from pliant.capture.values.conversion import from_real
from pliant.capture.values.dict_views import MappingProxy
from pliant.capture.values.functions import BoundMethod, CompiledFunction, FunctionValue
from pliant.capture.values.program_classes import ProgramClass, ProgramScalar
from pliant.guards.guard import MISSING
from pliant.guards.source import Attr, ClassAttr, Fixed, Source


def has_attribute(trace: Trace, obj: Value, name: str) -> bool:
    try:
        get_attribute(trace, obj, name)
    except Raised as raised:
        if issubclass(raised.value.python_type(), AttributeError):
            return False
        raise
    return True


def get_constant_attribute(trace: Trace, obj: Const, name: str) -> Value | None:
    """`name` of a module, a class, an enum member; None leaves it to the general rules."""
    real = obj.value
    if isinstance(real, types.ModuleType):
        return _module_attribute(trace, real, name)
    if isinstance(real, type):
        return _class_attribute(trace, obj, real, name)
    if type(real) in PLAIN:
        return None
    own = trace.temporaries.get(id(real))
    if isinstance(own, ProgramScalar):
        return _scalar_attribute(trace, own, name)
    if isinstance(real, types.GetSetDescriptorType) and name in ("__get__", "__set__"):
        return Const(getattr(real, name))
    return _object_attribute(trace, obj, real, name)


def _scalar_attribute(trace: Trace, scalar: ProgramScalar, name: str) -> Value | None:
    """Slots, and the dictionary, of an instance of a program's subclass of a number or string.
    Other attributes are found by the general rules."""
    if name == "__dict__" and scalar.has_dict:
        return instance_dict(trace, scalar)
    attribute = trace.lookup(scalar.cls, name)
    if isinstance(attribute, types.MemberDescriptorType):
        return bind_descriptor(trace, attribute, scalar, scalar.cls, name)
    return None


def namespace(trace: Trace, real: dict[str, Any]) -> Mapping:
    """The dictionary of a module's globals, as a value."""
    label = f"G<{real.get('__name__', '?')}>"
    source = Fixed(real, label)
    existing = trace.known(real, source)
    if isinstance(existing, Mapping):
        return existing
    value = Mapping(type(real), source=source, backing=real)
    value.real = real
    trace.remember(real, value)
    return value


def module_namespace(trace: Trace, module: types.ModuleType) -> Mapping:
    """A module's globals as a value: the same for the module and for functions defined in it."""
    return namespace(trace, vars(module))


def _has_descriptor(trace: Trace, module: types.ModuleType, name: str) -> bool:
    """Whether the module is of a class that computes this attribute, as those of `torch.backends`
    are."""
    cls = type(module)
    if cls is types.ModuleType or name == "__dict__":
        return False
    attribute = trace.lookup(cls, name)
    return attribute is not MISSING and is_data_descriptor(trace, attribute)


def _module_attribute(trace: Trace, module: types.ModuleType, name: str) -> Value:
    if _has_descriptor(trace, module, name):
        cls = type(module)
        return bind_descriptor(trace, trace.lookup(cls, name), Const(module), cls, name)
    value = module_namespace(trace, module).get(trace, name)
    if value is not None:
        return value
    if name == "__dict__":
        return module_namespace(trace, module)
    try:  # a module-level __getattr__, which modules use for lazy imports
        real = getattr(module, name)
    except AttributeError as error:
        trace.throw(error)
    # The import may have brought a module whose functions have handlers.
    fill_late()
    return trace.wrap_pinned(real)


def _class_attribute(trace: Trace, obj: Const, cls: type, name: str) -> Value | None:
    meta = type(cls)
    if overrides_access(trace, meta, "__getattribute__"):
        return None  # which is called, and then `__getattr__`
    attribute = stored_class_attribute(trace, obj, name)
    if attribute is not None:
        return attribute
    if has_python_method(trace, meta, "__getattr__"):
        return call(trace, trace.class_value(meta, "__getattr__"), [obj, Const(name)])
    trace.throw(no_class_attribute(cls, name))


def no_class_attribute(cls: type, name: str) -> AttributeError:
    return AttributeError(f"type object {type_name(cls)!r} has no attribute {name!r}")


def stored_class_attribute(trace: Trace, obj: Const, name: str) -> Value | None:
    """What `type.__getattribute__` finds; None if neither the class nor its metaclass has it."""
    cls = obj.value
    if issubclass(cls, enum.Enum) and name in cls.__members__:
        return Const(cls.__members__[name])
    special = CLASS_ATTRIBUTES.get(name)
    if special is not None:
        return special(trace, cls)
    if name == "__annotations__" and (annotations := _lazy_annotations(trace, cls)) is not None:
        return annotations
    meta = type(cls)
    from_meta = trace.lookup(meta, name)
    # A data descriptor of the metaclass comes before the class's own attribute.
    if isinstance(from_meta, property):
        return bind_descriptor(trace, from_meta, obj, meta, name)
    attribute = trace.lookup(cls, name)
    if attribute is not MISSING:
        return _from_class(trace, obj, cls, name, attribute)
    return None if from_meta is MISSING else bind_descriptor(trace, from_meta, obj, meta, name)


def _lazy_annotations(trace: Trace, cls: type) -> Value | None:
    """The annotations of a class of the program. From Python 3.14 on (PEP 649) a function in its
    namespace evaluates them when they are first asked for."""
    annotate = trace.placeholders.value_of(cls.__dict__.get("__annotate_func__"))
    made = trace.temporaries.get(id(cls))
    if annotate is None or not isinstance(made, ProgramClass):
        return None
    if made.annotations is None:
        made.annotations = trace.read(call(trace, annotate, [Const(VALUE_FORMAT)]))
    return made.annotations


def _from_class(trace: Trace, obj: Const, cls: type, name: str, attribute: Any) -> Value:
    """A class attribute reached through the class itself."""
    if isinstance(attribute, staticmethod):
        return bind_descriptor(trace, attribute, obj, cls, name)
    if isinstance(attribute, classmethod):
        return bind_descriptor(trace, attribute, obj, cls, name)
    if isinstance(attribute, types.ClassMethodDescriptorType):
        return Const(getattr(cls, name))
    # Functions, properties and slots: reached through the class, they are themselves.
    if type(attribute) in DESCRIPTORS:
        return trace.class_value(cls, name)
    getter = trace.lookup(type(attribute), "__get__")
    if getter is MISSING:
        return trace.class_value(cls, name)
    if isinstance(getter, types.FunctionType):
        descriptor = Unread(attribute, ClassAttr(Fixed(cls, cls.__qualname__), name))
        return call(
            trace,
            trace.class_value(type(attribute), "__get__"),
            [descriptor, Const(None), Const(cls)],
        )
    raise Break("unsupported-descriptor", f"{cls.__name__}.{name}")


def _mro(trace: Trace, cls: type) -> Value:
    return from_real(trace, cls.__mro__)


CLASS_ATTRIBUTES: dict[str, Any] = {
    "__name__": lambda trace, cls: Const(cls.__name__),
    "__qualname__": lambda trace, cls: Const(cls.__qualname__),
    "__module__": lambda trace, cls: Const(cls.__module__),
    "__class__": lambda trace, cls: Const(type(cls)),
    "__mro__": _mro,
    "__bases__": lambda trace, cls: from_real(trace, cls.__bases__),
    "__base__": lambda trace, cls: Const(cls.__base__),
    "__dict__": lambda trace, cls: MappingProxy(ClassNamespace(cls)),
}


def _object_attribute(trace: Trace, obj: Const, real: Any, name: str) -> Value | None:
    """Attributes of other objects that are known: C functions, dtypes, enum members, generic
    aliases. None leaves it to the general rules."""
    # Methods and whatever Python code computes are left to the general rules.
    attribute = trace.lookup(type(real), name)
    if isinstance(attribute, types.FunctionType | classmethod | staticmethod):
        return None
    if isinstance(attribute, types.MethodDescriptorType | types.WrapperDescriptorType):
        return None
    if isinstance(attribute, property) or _finds_in_python(trace, real, name):
        return None
    try:
        value = getattr(real, name)
    except AttributeError as error:
        if trace.lookup(type(real), "__getattr__") is not MISSING:
            raise Break("unsupported-attribute", f"{type(real).__name__}.{name}") from error
        trace.throw(error)
    if trace.is_plain_constant(value):
        return Const(value)
    source = Attr(obj.source or Fixed(real, type(real).__name__), name)
    return Unread(value, source)


def _finds_in_python(trace: Trace, real: Any, name: str) -> bool:
    """Whether an attribute comes from `__getattribute__` or `__getattr__` of the program."""
    cls = type(real)
    if overrides_access(trace, cls, "__getattribute__"):
        return True
    is_stored = trace.lookup(cls, name) is not MISSING or name in getattr(real, "__dict__", ())
    return not is_stored and has_python_method(trace, cls, "__getattr__")


# ---- functions and methods


def get_method_attribute(trace: Trace, obj: BoundMethod, name: str) -> Value | None:
    """A bound method passes on what it does not have itself to its function."""
    if name == "__self__":
        return obj.obj
    if name == "__func__":
        return obj.function
    if trace.lookup(types.MethodType, name) is MISSING:
        return get_attribute(trace, obj.function, name)
    special = {"__doc__": "__doc__"}.get(name)
    return get_attribute(trace, obj.function, special) if special else None


def get_function_attribute(trace: Trace, obj: FunctionValue, name: str) -> Value | None:
    """The attributes that every function has."""
    if name in obj.own:
        return obj.own[name]
    special = FUNCTION_ATTRIBUTES.get(name)
    return special(trace, obj) if special is not None else None


def _function_source(obj: FunctionValue) -> Source:
    assert obj.source is not None
    return obj.source


def _defaults(trace: Trace, obj: FunctionValue) -> Value:
    values = obj.default_values(trace)
    return Sequence(tuple, list(values)) if values else Const(None)


def _real_attribute(name: str, attribute: Any) -> Any:
    def read(trace: Trace, obj: FunctionValue) -> Value:
        if obj.real is None:
            return attribute(trace, obj)
        return trace.read(Unread(getattr(obj.real, name), Attr(_function_source(obj), name)))

    return read


def _own_annotations(trace: Trace, obj: FunctionValue) -> Value:
    """A dictionary that is made when it is first asked for."""
    annotations: Value = Mapping(dict)
    # From Python 3.14 on (PEP 649), a function that evaluates them.
    annotate = obj.own.get("__annotate__", NONE)
    if not (isinstance(annotate, Const) and annotate.value is None):
        annotations = trace.read(call(trace, annotate, [Const(VALUE_FORMAT)]))
        if not issubclass(annotations.python_type(), dict):
            kind = type_name(annotations.python_type())
            trace.throw(TypeError(f"__annotate__ returned non-dict of type '{kind}'"))
    obj.own["__annotations__"] = annotations
    return annotations


def _own_keyword_defaults(trace: Trace, obj: FunctionValue) -> Value:
    return Mapping(dict, dict(obj.kwdefaults)) if obj.kwdefaults else Const(None)


def _own_closure(trace: Trace, obj: FunctionValue) -> Value:
    return Sequence(tuple, list(obj.cells)) if obj.cells else Const(None)


VALUE_FORMAT = 1  # annotationlib.Format.VALUE: evaluated, not as text
FUNCTION_ATTRIBUTES: dict[str, Any] = {
    "__name__": lambda trace, obj: Const(obj.name),
    "__qualname__": lambda trace, obj: Const(obj.qualname),
    "__code__": lambda trace, obj: Const(obj.code),
    "__defaults__": _defaults,
    "__globals__": lambda trace, obj: namespace(trace, obj.globals),
    "__module__": lambda trace, obj: Const(
        obj.real.__module__ if obj.real is not None else obj.globals.get("__name__")
    ),
    "__doc__": lambda trace, obj: Const(
        obj.real.__doc__ if obj.real is not None else _docstring(obj.code)
    ),
    "__annotations__": _real_attribute("__annotations__", _own_annotations),
    "__kwdefaults__": _real_attribute("__kwdefaults__", _own_keyword_defaults),
    "__closure__": _real_attribute("__closure__", _own_closure),
    "__dict__": lambda trace, obj: instance_dict(trace, obj),
    "__type_params__": _real_attribute("__type_params__", lambda trace, obj: Sequence(tuple, [])),
}
if sys.version_info < (3, 12):
    del FUNCTION_ATTRIBUTES["__type_params__"]
if sys.version_info >= (3, 14):
    FUNCTION_ATTRIBUTES["__annotate__"] = _real_attribute("__annotate__", lambda trace, obj: NONE)


def _docstring(code: types.CodeType) -> str | None:
    first = code.co_consts[0] if code.co_consts else None
    return first if isinstance(first, str) else None


def set_class_attribute(trace: Trace, obj: Const, name: str, value: Value | None) -> None:
    """Modules' attributes are their globals; what is written to classes is remembered."""
    real = obj.value
    if isinstance(real, types.ModuleType):
        if _has_descriptor(trace, real, name):
            generic_set_attribute(trace, obj, name, value)
        else:
            module_namespace(trace, real).store(trace, name, value)
        return
    if isinstance(real, type):
        _set_on_class(trace, obj, real, name, value)
        return
    if type(real) in PLAIN:
        try:
            delattr(real, name) if value is None else setattr(real, name, None)
        except (AttributeError, TypeError) as error:
            trace.throw(error)
    own = trace.temporaries.get(id(real))
    hook = "__setattr__" if value is not None else "__delattr__"
    # What runs code of the class needs the constant.
    if isinstance(own, ProgramScalar) and trace.owner(own.cls, hook) is object:
        attribute = trace.lookup(own.cls, name)
        if attribute is MISSING or trace.lookup(type(attribute), "__set__") in (MISSING, SLOT_SET):
            generic_set_attribute(trace, own, name, value)
            return
    raise Break("attribute-write", f"{getattr(real, '__name__', type(real).__name__)}.{name}")


SLOT_SET = types.MemberDescriptorType.__set__


def _set_on_class(trace: Trace, obj: Const, cls: type, name: str, value: Value | None) -> None:
    if not set_by_override(trace, obj, type(cls), name, value):
        set_on_class(trace, cls, name, value)


def get_compiled_attribute(trace: Trace, obj: CompiledFunction, name: str) -> Value | None:
    """A compiled function has the attributes of the function itself."""
    own = {"fn": obj.function, "__wrapped__": obj.function, "__class__": Const(Dispatcher)}
    return own.get(name) or get_attribute(trace, obj.function, name)


GET[CompiledFunction] = get_compiled_attribute
GET[Const] = get_constant_attribute
GET[BoundMethod] = get_method_attribute
GET[FunctionValue] = get_function_attribute
SET[Const] = set_class_attribute
