"""Python's data model over values: attributes, calls, operators, truth, iteration.

These functions say what the language reference says, once, for every value: look the special method
up on the class, follow it if it is Python, use its handler if it is C. Behaviour that belongs to
one kind of value is in a table keyed by that kind and filled by the module that owns it.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant._native import Dispatcher
from pliant.base.python_errors import (
    empty_slot,
    no_attribute,
    no_container,
    no_item_deletion,
    no_operator,
    no_order,
    type_name,
)
from pliant.capture.ignored_functions import is_ignored
from pliant.capture.native import FUNCTIONS, METHODS
from pliant.capture.sequence_operators import leave_to_python
from pliant.capture.value import (
    NONE,
    Break,
    Const,
    NotConstant,
    Raised,
    Unread,
    Value,
    boolean,
    is_constant,
    overrides_access,
)
from pliant.capture.values.containers import Mapping, Sequence, SetValue, set_native_attribute
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import BoundMethod, BuiltinMethod, FunctionValue
from pliant.capture.values.number import Number, has_number
from pliant.capture.values.objects import ExceptionValue, Instance, Opaque, refused_attribute
from pliant.capture.values.storages import StorageValue
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.source import Attr, ClassAttr, Fixed, attribute

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

GET: dict[type, Callable[[Trace, Any, str], Value | None]] = {}  # by value class; None: generic
SET: dict[type, Callable[[Trace, Any, str, Value | None], None]] = {}
CALL: dict[type, Callable[..., Value]] = {}  # by value class
OPERATE: dict[type, Callable[..., Value | None]] = {}  # by value class: may take over operators


# ---- attributes


def get_attribute(trace: Trace, obj: Value, name: str, direct: bool = False) -> Value:
    """`obj.name`. With `direct`, the result is what the running instruction produces."""
    obj = trace.read(obj)
    try:
        return _find_attribute(trace, obj, name, direct)
    except Raised as raised:
        _annotate_attribute_error(raised.value, obj, name)
        raise


def _annotate_attribute_error(error: Value, obj: Value, name: str) -> None:
    """Python notes in an AttributeError which attribute of which object was asked for."""
    if isinstance(error, ExceptionValue) and issubclass(error.cls, AttributeError):
        has_real_object = obj.source is not None or isinstance(obj, REBUILT)
        # Only the innermost lookup notes it, as in Python.
        if error.real is None and has_real_object and not {"name", "obj"} & error.slots.keys():
            error.slots.update(name=Const(name), obj=obj)


REBUILT = (Const, FunctionValue, Instance, Mapping, Sequence, SetValue, TensorValue)


def _find_attribute(trace: Trace, obj: Value, name: str, direct: bool) -> Value:
    getter = GET.get(type(obj))
    if getter is not None:
        method = getter(trace, obj, name)
        if method is not None:
            return method
    cls = obj.python_type()
    if overrides_access(trace, cls, "__getattribute__"):
        try:
            return call(trace, special(trace, obj, "__getattribute__"), [Const(name)])
        except Raised as raised:
            return _missing_attribute(trace, obj, name, direct, raised)
    return generic_get_attribute(trace, obj, name, direct)


def generic_get_attribute(trace: Trace, obj: Value, name: str, direct: bool = False) -> Value:
    """`object.__getattribute__`, then `__getattr__`."""
    raised = None
    try:
        attribute = stored_attribute(trace, obj, name, direct)
    except Raised as error:
        attribute, raised = None, error
    return _missing_attribute(trace, obj, name, direct, raised) if attribute is None else attribute


def stored_attribute(trace: Trace, obj: Value, name: str, direct: bool = False) -> Value | None:
    """What `object.__getattribute__` finds; None if neither the object nor its class has it."""
    cls = obj.python_type()
    descriptor = trace.lookup(cls, name)
    # Python's order: data descriptors of the class, then the instance, then the rest of the class.
    if descriptor is not MISSING and _is_read_first(trace, descriptor):
        return bind_descriptor(trace, descriptor, obj, cls, name, direct)
    own = obj.instance_attribute(trace, name)
    if own is not None or descriptor is MISSING:
        return own
    return bind_descriptor(trace, descriptor, obj, cls, name, direct)


def _missing_attribute(
    trace: Trace, obj: Value, name: str, direct: bool, raised: Raised | None
) -> Value:
    """Ask `__getattr__`. `raised`: by the code that was to find the attribute, if it ran any."""
    cls = obj.python_type()
    absent = raised is None or issubclass(raised.value.python_type(), AttributeError)
    if absent and trace.lookup(cls, "__getattr__") is not MISSING:
        return call(trace, special(trace, obj, "__getattr__"), [Const(name)], direct=direct)
    if raised is not None:
        raise raised
    trace.throw(no_attribute(cls, name))


def _is_read_first(trace: Trace, descriptor: Any) -> bool:
    """Whether a descriptor comes before the object's own attributes: one with a setter."""
    if type(descriptor) not in DESCRIPTORS and not _has_getter(trace, descriptor):
        return False
    return is_data_descriptor(trace, descriptor)


def _has_getter(trace: Trace, descriptor: Any) -> bool:
    return trace.lookup(type(descriptor), "__get__") is not MISSING


def is_data_descriptor(trace: Trace, descriptor: Any) -> bool:
    cls = type(descriptor)
    if cls is types.FunctionType:
        return False
    return any(trace.lookup(cls, name) is not MISSING for name in ("__set__", "__delete__"))


def bind_descriptor(
    trace: Trace, attribute: Any, obj: Value, cls: type, name: str, direct: bool = False
) -> Value:
    """What a class attribute gives when it is reached through the instance `obj`."""
    binder = DESCRIPTORS.get(type(attribute))
    if binder is not None:
        return binder(trace, attribute, obj, cls, name, direct)
    getter = trace.lookup(type(attribute), "__get__")
    if getter is MISSING:
        return trace.class_value(cls, name)
    inherited = BINDERS.get(getter)
    if inherited is not None:
        return inherited(trace, attribute, obj, cls, name, direct)
    if not isinstance(getter, types.FunctionType):
        raise Break(
            "unsupported-descriptor", f"{cls.__name__}.{name}, a {type(attribute).__name__}"
        )
    bound = trace.class_value(type(attribute), "__get__")
    descriptor = Unread(attribute, ClassAttr(Fixed(cls, cls.__qualname__), name))
    return call(trace, bound, [descriptor, obj, Const(cls)], direct=direct)


def _bind_function(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return BoundMethod(trace.read(trace.class_value(cls, name)), obj)


def _bind_native(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return BuiltinMethod(descriptor.__objclass__, descriptor.__name__, descriptor, obj)


def _bind_static(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return unwrap_static(trace, descriptor, cls, name)


def unwrap_static(trace: Trace, descriptor: Any, cls: type, name: str) -> Value:
    """The function inside a staticmethod or classmethod object of a class."""
    source = ClassAttr(Fixed(cls, cls.__qualname__), name)
    return trace.read(Unread(descriptor.__func__, attribute(source, descriptor, "__func__")))


def _bind_class(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return BoundMethod(unwrap_static(trace, descriptor, cls, name), Const(cls))


def _bind_property(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    if cls in NATIVE_VALUES and isinstance(obj, Const):
        return fold(trace, getattr, obj, Const(name))
    if descriptor.fget is None:
        text = f"property {name!r} of {cls.__qualname__!r} object has no getter"
        trace.throw(AttributeError(text))
    source = ClassAttr(Fixed(cls, cls.__qualname__), name)
    getter = Unread(descriptor.fget, attribute(source, descriptor, "fget"))
    return call(trace, getter, [obj], direct=direct)


def _bind_member(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    """A `__slots__` member or an attribute computed by C code."""
    handler = METHODS.get((descriptor.__objclass__, name))
    if handler is not None and (name == "__class__" or not isinstance(obj, Opaque)):
        return handler(trace, obj)
    if hasattr(obj, "slot"):
        value = obj.slot(trace, name)
        if value is None:
            trace.throw(empty_slot(descriptor, cls, name))
        return value
    if is_constant(obj):
        return fold(trace, getattr, obj, Const(name))
    if isinstance(obj, Opaque) and (descriptor.__objclass__, name) in NATIVE_MEMBERS:
        assert obj.source is not None
        return Unread(getattr(obj.real, name), Attr(obj.source, name))
    raise Break("unsupported-attribute", f"{cls.__name__}.{name}")


# Attributes computed by C code that may be read of objects from outside, by their class and name.
NATIVE_MEMBERS: set[tuple[type, str]] = set()


DESCRIPTORS: dict[type, Callable[..., Value]] = {
    types.FunctionType: _bind_function,
    Dispatcher: _bind_function,
    types.MethodDescriptorType: _bind_native,
    types.WrapperDescriptorType: _bind_native,
    types.ClassMethodDescriptorType: _bind_native,
    # From Python 3.13 on it has a `__get__`, which gives the method itself.
    types.MethodType: lambda trace, method, obj, cls, name, direct: trace.class_value(cls, name),
    staticmethod: _bind_static,
    classmethod: _bind_class,
    property: _bind_property,
    types.GetSetDescriptorType: _bind_member,
    types.MemberDescriptorType: _bind_member,
}


# For subclasses of the built-in ones, by the `__get__` that they inherit.
BINDERS: dict[Any, Callable[..., Value]] = {
    cls.__dict__["__get__"]: DESCRIPTORS[cls] for cls in (staticmethod, classmethod, property)
}


def set_attribute(
    trace: Trace, obj: Value, name: str, value: Value | None, direct: bool = False
) -> None:
    """`obj.name = value`, or with None `del obj.name`."""
    obj = trace.read(obj)
    special = SET.get(type(obj))
    if special is not None:
        special(trace, obj, name, value)
        return
    if not set_by_override(trace, obj, obj.python_type(), name, value, direct):
        generic_set_attribute(trace, obj, name, value, direct)


def set_by_override(
    trace: Trace, obj: Value, cls: type, name: str, value: Value | None, direct: bool = False
) -> bool:
    """Write or delete an attribute as the class says, if it says anything."""
    hook = "__setattr__" if value is not None else "__delattr__"
    if not overrides_access(trace, cls, hook):
        return False
    extra = [] if value is None else [value]
    call(trace, special(trace, obj, hook), [Const(name), *extra], direct=direct)
    return True


def generic_set_attribute(
    trace: Trace, obj: Value, name: str, value: Value | None, direct: bool = False
) -> None:
    """`object.__setattr__` and `object.__delattr__`."""
    cls = obj.python_type()
    attribute = trace.lookup(cls, name)
    if attribute is object.__dict__["__class__"] and isinstance(obj, Instance):
        obj.change_class(trace, value)
        return
    hook = "__set__" if value is not None else "__delete__"
    extra = [] if value is None else [value]
    if attribute is MISSING or not is_data_descriptor(trace, attribute):
        dictless = isinstance(obj, Instance) and not obj.has_dict
        if value is None and not dictless and obj.instance_attribute(trace, name) is None:
            trace.throw(no_attribute(cls, name))
        if cls in WITHOUT_ATTRIBUTES:
            trace.throw(refused_attribute(cls, name, attribute is not MISSING))
        obj.store_attribute(trace, name, value)
    elif isinstance(attribute, property):
        _set_property(trace, attribute, obj, name, value, direct)
    elif isinstance(attribute, types.MemberDescriptorType) and hasattr(obj, "store_slot"):
        if value is None and isinstance(obj, Instance) and obj.slot(trace, name) is None:
            trace.throw(AttributeError(name))
        obj.store_slot(trace, name, value)
    elif isinstance(trace.lookup(type(attribute), hook), types.FunctionType):
        descriptor = Unread(attribute, ClassAttr(Fixed(cls, cls.__qualname__), name))
        setter = trace.class_value(type(attribute), hook)
        call(trace, setter, [descriptor, obj, *extra], direct=direct)
    else:
        set_native_attribute(trace, attribute, obj, name, value)


WITHOUT_ATTRIBUTES = frozenset({list, tuple, dict, set, frozenset, slice, range, object})


def _set_property(
    trace: Trace, descriptor: Any, obj: Value, name: str, value: Value | None, direct: bool
) -> None:
    cls = obj.python_type()
    which = "fset" if value is not None else "fdel"
    real = getattr(descriptor, which)
    if real is None:
        word = "setter" if value is not None else "deleter"
        text = f"property {name!r} of {cls.__qualname__!r} object has no {word}"
        trace.throw(AttributeError(text))
    source = Attr(ClassAttr(Fixed(cls, cls.__qualname__), name), which)
    extra = [] if value is None else [value]
    call(trace, Unread(real, source), [obj, *extra], direct=direct)


# ---- calls


def call(
    trace: Trace,
    target: Value,
    args: list[Value],
    kwargs: dict[str, Value] | None = None,
    direct: bool = False,
) -> Value:
    """`target(*args, **kwargs)`.

    `direct` says that what the callee returns is what the running instruction of the caller pushes,
    so that a graph break inside the callee can be resumed frame by frame.
    """
    target = trace.read(target)
    if trace.options.ignore_logging_functions and is_ignored(trace, target, args):
        return NONE
    caller = CALL.get(type(target))
    if caller is not None:
        return caller(trace, target, args, kwargs or {}, direct)
    cls = target.python_type()
    if trace.lookup(cls, "__call__") is MISSING:
        trace.throw(TypeError(f"{type_name(cls)!r} object is not callable"))
    method = special(trace, target, "__call__")
    return call(trace, method, args, kwargs, direct)


def call_bound(
    trace: Trace, target: BoundMethod, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    return call(trace, target.function, [target.obj, *args], kwargs, direct)


CALL[BoundMethod] = call_bound


def special(trace: Trace, obj: Value, name: str) -> Value:
    """The special method `name` of `obj`, looked up on its class as the interpreter does."""
    cls = obj.python_type()
    return bind_descriptor(trace, trace.lookup(cls, name), obj, cls, name)


def call_special(
    trace: Trace, obj: Value, name: str, *args: Value, direct: bool = False
) -> Value | None:
    """Call a special method; None where the class does not have it."""
    obj = trace.read(obj)
    method = trace.lookup(obj.python_type(), name)
    # `__hash__ = None` and its like say that there is none, whatever a base class has.
    if method is MISSING or method is None:
        return None
    if isinstance(obj, Number):
        obj = Const(obj.constant())  # what it knows without being one was asked before
    return call(trace, special(trace, obj, name), list(args), direct=direct)


def fold(trace: Trace, function: Callable[..., Any], *args: Value, **kwargs: Value) -> Const:
    """Run a pure function on constants now. What it raises is raised in the captured program."""
    real_args = [arg.constant() for arg in args]
    real_kwargs = {name: arg.constant() for name, arg in kwargs.items()}
    try:
        return Const(function(*real_args, **real_kwargs))
    except Exception as error:
        trace.throw(error)


# ---- operators

BINARY: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "+": ("__add__", "__radd__", operator.add),
    "-": ("__sub__", "__rsub__", operator.sub),
    "*": ("__mul__", "__rmul__", operator.mul),
    "/": ("__truediv__", "__rtruediv__", operator.truediv),
    "//": ("__floordiv__", "__rfloordiv__", operator.floordiv),
    "%": ("__mod__", "__rmod__", operator.mod),
    "**": ("__pow__", "__rpow__", operator.pow),
    "@": ("__matmul__", "__rmatmul__", operator.matmul),
    "&": ("__and__", "__rand__", operator.and_),
    "|": ("__or__", "__ror__", operator.or_),
    "^": ("__xor__", "__rxor__", operator.xor),
    "<<": ("__lshift__", "__rlshift__", operator.lshift),
    ">>": ("__rshift__", "__rrshift__", operator.rshift),
}
INPLACE: dict[str, tuple[str, Callable[..., Any]]] = {
    "+": ("__iadd__", operator.iadd),
    "-": ("__isub__", operator.isub),
    "*": ("__imul__", operator.imul),
    "/": ("__itruediv__", operator.itruediv),
    "//": ("__ifloordiv__", operator.ifloordiv),
    "%": ("__imod__", operator.imod),
    "**": ("__ipow__", operator.ipow),
    "@": ("__imatmul__", operator.imatmul),
    "&": ("__iand__", operator.iand),
    "|": ("__ior__", operator.ior),
    "^": ("__ixor__", operator.ixor),
    "<<": ("__ilshift__", operator.ilshift),
    ">>": ("__irshift__", operator.irshift),
}
COMPARE: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "<": ("__lt__", "__gt__", operator.lt),
    "<=": ("__le__", "__ge__", operator.le),
    "==": ("__eq__", "__eq__", operator.eq),
    "!=": ("__ne__", "__ne__", operator.ne),
    ">": ("__gt__", "__lt__", operator.gt),
    ">=": ("__ge__", "__le__", operator.ge),
}
UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "-": ("__neg__", operator.neg),
    "+": ("__pos__", operator.pos),
    "~": ("__invert__", operator.invert),
}
# Classes whose operators depend on nothing but the operands: run on constants as they are.
FOLDABLE: set[type] = {
    int, float, bool, complex, str, bytes, tuple, frozenset, range, slice, type(None),
    types.UnionType,
}  # fmt: skip


# Among them, classes of C++ whose methods and properties are asked, too.
NATIVE_VALUES: set[type] = set()


def binary(trace: Trace, symbol: str, left: Value, right: Value, shown: str | None = None) -> Value:
    """`left + right` and its relatives."""
    left, right = trace.read(left), trace.read(right)
    method, reflected, real = BINARY[symbol]
    direct_result = _taken_over(trace, real, left, right)
    if direct_result is not None:
        return direct_result
    leave_to_python(trace, symbol, left, right)
    result = _operate(trace, left, right, method, reflected)
    if result is None:
        shown = shown or ("** or pow()" if symbol == "**" else symbol)
        trace.throw(no_operator(real, shown, left.python_type(), right.python_type()))
    return result


def inplace(trace: Trace, symbol: str, left: Value, right: Value) -> Value:
    """`left += right` and its relatives: the value that is bound to `left` afterwards."""
    left, right = trace.read(left), trace.read(right)
    method, real = INPLACE[symbol]
    if type(left) in OPERATE or type(right) not in OPERATE:  # a tensor on the right alone is not it
        direct_result = _taken_over(trace, real, left, right)
        if direct_result is not None:
            return direct_result
    leave_to_python(trace, symbol, left, right)
    if not isinstance(left, TensorValue):  # it has declined already
        result = call_special(trace, left, method, right)
        if result is not None and not _declined(trace, result):
            return result
    return binary(trace, symbol, left, right, shown=f"{symbol}=")


def compare(trace: Trace, symbol: str, left: Value, right: Value) -> Value:
    """`left < right` and its relatives."""
    left, right = trace.read(left), trace.read(right)
    method, reflected, real = COMPARE[symbol]
    direct_result = _taken_over(trace, real, left, right)
    if direct_result is not None:
        return direct_result
    result = _operate(trace, left, right, method, reflected)
    if result is not None:
        return result
    if symbol in ("==", "!="):
        return boolean(same_object(trace, left, right) is (symbol == "=="))
    trace.throw(no_order(symbol, left.python_type(), right.python_type()))


def unary(trace: Trace, symbol: str, operand: Value) -> Value:
    operand = trace.read(operand)
    method, real = UNARY[symbol]
    direct_result = _taken_over(trace, real, operand)
    if direct_result is not None:
        return direct_result
    result = call_special(trace, operand, method)
    if result is None:
        name = type_name(operand.python_type())
        trace.throw(TypeError(f"bad operand type for unary {symbol}: '{name}'"))
    return result


def _taken_over(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """Operators on tensors are graph nodes; on constants they are executed."""
    for operand in operands:
        owner = OPERATE.get(type(operand))
        if owner is not None:
            result = owner(trace, real, *operands)
            if result is not None:
                return result
    if all(operand.python_type() in FOLDABLE for operand in operands):
        if any(has_number(operand) for operand in operands):
            return None  # folding would make constants of them
        try:
            folded = fold(trace, real, *operands)
        except NotConstant:
            return None
        if type(folded.value) in MUTABLE:
            raise Break("unsupported", f"an operator that gives a {type(folded.value).__name__}")
        return folded
    return None


# What operators on constants may give that is not one: arrays, of numbers from another library.
MUTABLE: set[type] = set()


def ask_owner(trace: Trace, real: Callable[..., Any], value: Value, *rest: Value) -> Value:
    """What `real(value, …)` is, for a kind of value that answers such questions itself."""
    answer = OPERATE[type(value)](trace, real, value, *rest)
    if answer is None:
        raise Break("unsupported", f"{getattr(real, '__name__', real)} of these operands")
    return answer


def _operate(trace: Trace, left: Value, right: Value, method: str, reflected: str) -> Value | None:
    """The protocol of binary operators; None where both sides decline."""
    left_class, right_class = left.python_type(), right.python_type()
    attempts = [(left, method, right), (right, reflected, left)]
    # Of one class, Python doesn't try the reflected method.
    if left_class is right_class and method != reflected and reflected.startswith("__r"):
        attempts.pop()
    # A subclass on the right that overrides the reflected method goes first.
    elif (
        left_class is not right_class
        and issubclass(right_class, left_class)
        and trace.lookup(right_class, reflected) is not trace.lookup(left_class, reflected)
    ):
        attempts.reverse()
    for receiver, name, other in attempts:
        if type(receiver) in OPERATE:
            continue  # it has declined already
        result = call_special(trace, receiver, name, other)
        if result is not None and not _declined(trace, result):
            return result
    return None


def _declined(trace: Trace, result: Value) -> bool:
    result = trace.read(result)
    return isinstance(result, Const) and result.value is NotImplemented


# ---- identity, truth, size


def same_object(trace: Trace, left: Value, right: Value) -> bool:
    """`left is right`."""
    if isinstance(right, Const) and right.value is None:
        return is_none(trace, left)
    left, right = trace.read(left), trace.read(right)
    if isinstance(left, Const) and isinstance(right, Const):
        return left.value is right.value
    if left is right:
        return True
    if isinstance(left, Number) or isinstance(right, Number):
        return _same_number(left, right)
    if isinstance(left, StorageValue) and isinstance(right, StorageValue):
        raise Break("tensor-method", "a comparison of storages")
    outside = left.source is not None and right.source is not None
    if outside and left.python_type() is right.python_type():
        trace.guard(GuardKind.DISTINCT, left.source, (right.source,))
    return False


def _same_number(left: Value, right: Value) -> bool:
    """There is one object for each bool, and in CPython for each small int."""
    kind = left.python_type()
    if kind is not right.python_type() or kind not in (bool, int):
        return False
    value = left.constant()
    return bool(value == right.constant()) and (kind is bool or value in range(-5, 257))


def is_none(trace: Trace, value: Value) -> bool:
    """`value is None`. Of an object from outside no more is assumed than that."""
    if type(value) is Unread and value.seen is None and value.real is not None:
        if not isinstance(value.source, Fixed):
            trace.guard(GuardKind.IS_NOT, value.source, None)
        return False
    value = trace.read(value)
    return isinstance(value, Const) and value.value is None


def truth(trace: Trace, value: Value) -> bool:
    """`bool(value)`."""
    value = trace.read(value)
    if isinstance(value, Const) and value.python_type() in FOLDABLE:
        return bool(value.value)
    owner = OPERATE.get(type(value))
    if owner is not None:
        return bool(ask_owner(trace, operator.truth, value).constant())
    result = call_special(trace, value, "__bool__")
    if result is None:
        sized = trace.lookup(value.python_type(), "__len__") not in (MISSING, None)
        return not sized or bool(trace.read(FUNCTIONS[len](trace, value)).constant())
    result = trace.read(result)
    if result.python_type() is not bool:
        kind = type_name(result.python_type())
        trace.throw(TypeError(f"__bool__ should return bool, returned {kind}"))
    return bool(result.constant())


def negation(trace: Trace, value: Value) -> Value:
    """`not value`. Of a symbolic number the result is symbolic too, without a guard."""
    value = trace.read(value)
    result = _taken_over(trace, operator.not_, value) if isinstance(value, Number) else None
    return boolean(not truth(trace, value)) if result is None else result


def length(trace: Trace, value: Value) -> Value:
    result = call_special(trace, value, "__len__")
    if result is None:
        name = type_name(trace.read(value).python_type())
        trace.throw(TypeError(f"object of type '{name}' has no len()"))
    return result


# ---- items


def get_item(trace: Trace, obj: Value, key: Value, direct: bool = False) -> Value:
    """`obj[key]`."""
    obj, key = trace.read(obj), trace.read(key)
    # A key does not take over. Sequences whose items are known are not made constants for one item.
    if not isinstance(obj, Sequence) and (type(key) not in OPERATE or type(obj) in OPERATE):
        result = _taken_over(trace, operator.getitem, obj, key)
        if result is not None:
            return result
    cls = obj.python_type()
    if trace.lookup(cls, "__getitem__") is not MISSING:
        return call(trace, special(trace, obj, "__getitem__"), [key], direct=direct)
    if isinstance(obj, Const) and isinstance(obj.value, type):
        return _class_item(trace, obj, key)
    trace.throw(TypeError(f"'{type_name(cls)}' object is not subscriptable"))


def _class_item(trace: Trace, cls: Const, key: Value) -> Value:
    """`list[int]`: a generic alias; `Color["RED"]` goes through the metaclass before this."""
    method = trace.lookup(cls.value, "__class_getitem__")
    function = getattr(method, "__func__", method)
    if isinstance(function, types.FunctionType) and function.__module__ != "typing":
        return call(trace, get_attribute(trace, cls, "__class_getitem__"), [key])
    try:
        return fold(trace, operator.getitem, cls, Const(known_object(key, trace)))
    except NotConstant as error:
        raise Break("unsupported", f"{cls.value.__name__}[...]") from error


def set_item(trace: Trace, obj: Value, key: Value, value: Value, direct: bool = False) -> None:
    """`obj[key] = value`."""
    obj, key = trace.read(obj), trace.read(key)
    owner = OPERATE.get(type(obj))
    if owner is not None and owner(trace, operator.setitem, obj, key, value) is not None:
        return
    if call_special(trace, obj, "__setitem__", key, value, direct=direct) is None:
        if isinstance(key, TensorValue):  # which Python may ask for a number before it gives up
            raise Break("operation-raises", "an item that a tensor says")
        name = type_name(obj.python_type())
        trace.throw(TypeError(f"'{name}' object does not support item assignment"))


def delete_item(trace: Trace, obj: Value, key: Value, direct: bool = False) -> None:
    """`del obj[key]`."""
    obj, key = trace.read(obj), trace.read(key)
    if call_special(trace, obj, "__delitem__", key, direct=direct) is None:
        trace.throw(no_item_deletion(obj.python_type(), key.python_type()))


def contains(trace: Trace, container: Value, item: Value) -> bool:
    """`item in container`."""
    container, item = trace.read(container), trace.read(item)
    if type(item) not in OPERATE or type(container) in OPERATE:
        direct_result = _taken_over(trace, operator.contains, container, item)
        if direct_result is not None:
            return truth(trace, direct_result)
    result = call_special(trace, container, "__contains__", item)
    if result is not None:
        return truth(trace, result)
    iterator = _iterator_for_search(trace, container)
    while (element := advance(trace, iterator)) is not None:
        if equal(trace, element, item):
            return True
    return False


def _iterator_for_search(trace: Trace, container: Value) -> Value:
    try:
        return iterate(trace, container)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), TypeError):
            raise
    cls = container.python_type()
    trace.throw(no_container(cls))


def equal(trace: Trace, left: Value, right: Value) -> bool:
    """`left is right or left == right`: how containers compare their elements."""
    left, right = trace.read(left), trace.read(right)
    numbers = isinstance(left, Number) or isinstance(right, Number)  # equal if they are the same
    if left is right or (not numbers and same_object(trace, left, right)):
        return True
    return truth(trace, compare(trace, "==", left, right))


# ---- iteration


def iterate(trace: Trace, value: Value) -> Value:
    """`iter(value)`."""
    value = trace.read(value)
    owner = OPERATE.get(type(value))
    if owner is not None:
        return ask_owner(trace, iter, value)
    result = call_special(trace, value, "__iter__")
    if result is not None:
        return _checked_iterator(trace, trace.read(result))
    maker = METHODS.get((object, "__getitem__"))
    if maker is not None and trace.lookup(value.python_type(), "__getitem__") is not MISSING:
        return maker(trace, value)
    trace.throw(TypeError(f"'{type_name(value.python_type())}' object is not iterable"))


def _checked_iterator(trace: Trace, iterator: Value) -> Value:
    """What `__iter__` gave, which has to be an iterator."""
    cls = iterator.python_type()
    if not hasattr(iterator, "advance") and trace.lookup(cls, "__next__") is MISSING:
        trace.throw(TypeError(f"iter() returned non-iterator of type '{type_name(cls)}'"))
    return iterator


def advance(trace: Trace, iterator: Value) -> Value | None:
    """`next(iterator)`, or None at its end."""
    iterator = trace.read(iterator)
    step = getattr(iterator, "advance", None)
    if step is not None:
        item: Value | None = step(trace)
        trace.changes += 1
        return item
    try:
        result = call_special(trace, iterator, "__next__")
    except Raised as raised:
        if issubclass(raised.value.python_type(), StopIteration):
            return None
        raise
    if result is None:
        name = type_name(iterator.python_type())
        trace.throw(TypeError(f"'{name}' object is not an iterator"))
    return result


def drain(trace: Trace, iterable: Value) -> list[Value]:
    """All items of an iterable, as `list(iterable)` would take them."""
    iterator = iterate(trace, iterable)
    items: list[Value] = []
    while (item := advance(trace, iterator)) is not None:
        items.append(item)
    return items
