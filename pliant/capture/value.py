"""Values of the captured program, and the two ways in which following it can stop.

Capture runs the user's bytecode over `Value`s instead of objects. A value knows what it must about
the object it stands for: a constant knows all of it, a tensor its shape and graph node, a list its
items. Knowledge is only ever narrowed. A value that came from outside starts as `Unread`: nothing
is assumed of it, so that merely passing it along costs no guard. The first operation that looks at
it has the trace *read* it, which records the guards for what was learnt.

Values never change the user's objects. Writes go to the value; `effects` replays them afterwards.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, TypeVar

from pliant.base.errors import PliantError
from pliant.base.position import Position
from pliant.bytecode.tables import CALLABLE_FIRST
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


class NotConstant(Exception):
    """Asked for the Python object of a value that is not wholly known."""


class ForeignTracer(Exception):
    """The program uses an object of another tracer (an FX proxy, a fake tensor). The call is part
    of what that tracer follows, so the function runs as it is."""


class Break(Exception):
    """This operation can't be captured: the graph ends before it.

    `code` names an entry of `breaks.BREAKS`, which holds the explanation and the remedy; `what` is
    the particular thing met. `stack` is where, if that is not the instruction where the graph ends.
    `error` says it better than the general words, where a break is refused.
    """

    def __init__(
        self,
        code: str,
        what: str,
        stack: tuple[Position, ...] = (),
        error: PliantError | None = None,
    ) -> None:
        super().__init__(code, what)
        self.code = code
        self.what = what
        self.stack = stack
        self.error = error

    def at(self, stack: tuple[Position, ...]) -> Break:
        """The same cause with a stack, unless it has one: for raising it again at another
        instruction."""
        return Break(self.code, self.what, self.stack or stack, self.error)


class Raised(Exception):
    """The captured program raised an exception (a value); handlers of the program may catch it.

    `again` says that the frame raises anew what it had caught (`raise`, the end of a `finally`):
    its traceback has that frame already, and its context stays. `has_context` says that the
    exception being handled was noted as its context; this happens once, where it is raised.
    """

    def __init__(self, value: Value, again: bool = False) -> None:
        super().__init__(value)
        self.value = value
        self.again = again
        self.has_context = again


class Value:
    """What is known of one object of the captured program."""

    __slots__ = ("source",)
    source: Source | None

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def python_type(self) -> type:
        """The class of the object."""
        raise NotImplementedError(type(self).__name__)

    def constant(self) -> Any:
        """The Python object itself, if all of it is known and it is immutable. Otherwise raises
        `NotConstant`."""
        raise NotConstant(self)

    def children(self) -> list[Value]:
        """The values that `rebuild` and `fill` will ask for. Residual code counts uses by them."""
        return []

    def rebuild(self, emit: Emitter) -> str:
        """Python source of an expression that makes this object anew in residual code."""
        raise Break("cannot-rebuild", f"a {self.python_type().__name__} that is still in use")

    def fill(self, emit: Emitter, name: str) -> None:
        """Emit what completes the object called `name`, which `rebuild` made. An object that refers
        to itself (`a.append(a)`) can only be made in two steps."""

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        """An attribute held by the object itself rather than by its class; None if absent."""
        return None

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        """Write (or with None delete) an attribute held by the object itself."""
        raise Break("attribute-write", f"attribute {name!r} of a {self.python_type().__name__}")

    def dropped(self, trace: Trace) -> None:
        """Called when the program gives up a reference to the object, which may be the last one."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.source or ''}>"


class Lazy(Value):
    """An object that nothing has looked at yet. `seen` is what reading it gave."""

    __slots__ = ("seen",)

    def __init__(self, source: Source | None = None) -> None:
        super().__init__(source)
        self.seen: Value | None = None

    def look(self, trace: Trace) -> Value:
        """What the object is, with the guards for it. `trace.read` calls this once and keeps the
        answer."""
        raise NotImplementedError(type(self).__name__)

    def python_type(self) -> type:
        raise AssertionError("a lazy value must be read before it is looked at")


class Unread(Lazy):
    """An object from outside that nothing has looked at yet."""

    __slots__ = ("real",)
    source: Source

    def __init__(self, real: Any, source: Source) -> None:
        self.source = source  # without `super()`: thousands are made
        self.seen = None
        self.real = real

    def look(self, trace: Trace) -> Value:
        return trace.wrap(self.real, self.source)


class Null(Value):
    """The NULL that CPython keeps on the stack below the callable of a plain call."""

    __slots__ = ()

    def python_type(self) -> type:
        raise AssertionError("NULL is not a value of the program")


NULL = Null()


Target = TypeVar("Target", "Value", str)


def plain_callee(target: Target) -> tuple[Target | Null, Target | Null]:
    """The two entries that begin a call without a receiver, in the order of this Python."""
    return (target, NULL) if CALLABLE_FIRST else (NULL, target)


class Const(Value):
    """An object known completely: numbers, strings, None, classes, modules, built-in functions…

    What it holds never changes during a call, so operations on constants are simply executed.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def constant(self) -> Any:
        return self.value

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        own = trace.temporaries.get(id(self.value))
        return None if own is None else own.instance_attribute(trace, name)

    def rebuild(self, emit: Emitter) -> str:
        return emit.constant(self.value)

    def __repr__(self) -> str:
        return f"<Const {self.value!r}>"


NONE = Const(None)
TRUE = Const(True)
FALSE = Const(False)
NOT_IMPLEMENTED = Const(NotImplemented)


def boolean(flag: bool) -> Const:
    return TRUE if flag else FALSE


def constants(values: Any) -> list[Any]:
    """The Python objects of several values; NotConstant if any is not wholly known."""
    return [value.constant() for value in values]


def is_constant(value: Value) -> bool:
    try:
        value.constant()
    except NotConstant:
        return False
    return True


def is_followed(trace: Trace, obj: Value, *names: str) -> bool:
    """Whether one of these special methods of a constant is Python code of the program. Only for
    objects made during the capture: their methods may see attributes that the real object doesn't
    have yet."""
    if not isinstance(obj, Const) or id(obj.value) not in trace.temporaries:
        return False
    return has_python_method(trace, obj.python_type(), *names)


def has_python_method(trace: Trace, cls: type, *names: str) -> bool:
    """Whether one of these methods of a class is written in Python."""
    return any(isinstance(trace.lookup(cls, name), types.FunctionType) for name in names)


def overrides_access(trace: Trace, cls: type, hook: str) -> bool:
    """Whether a class has a `__getattribute__`, `__setattr__` or `__delattr__` of the program's.

    It may be anything that can be called: `__setattr__ = dict.__setitem__`, for example. Those of
    built-in classes do what `object`'s does, or have a handler for their kind of value.
    """
    method = trace.lookup(cls, hook)
    return not (isinstance(method, types.WrapperDescriptorType) and method.__name__ == hook)
