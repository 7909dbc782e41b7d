"""One capture in progress: what the interpreter has found out and assumed so far.

A `Trace` owns the graph under construction, the guards, the effects to replay, and the memory of
which objects from outside have been met (the same object reached by two paths is one value). It is
passed to everything that follows the program; there is no ambient state.
"""

from __future__ import annotations

import contextlib
import enum
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pliant._native import State
from pliant.base.isolation import FATAL
from pliant.base.options import Options
from pliant.base.position import Position
from pliant.base.strict import get_error_on_graph_break
from pliant.capture.exception_conversion import exception_value
from pliant.capture.failures import GraphEffects
from pliant.capture.graph import GraphBuilder
from pliant.capture.host_randomness import KeptResult, RandomDraw
from pliant.capture.inputs import Dynamic, Inputs
from pliant.capture.placeholders import Placeholders
from pliant.capture.sizes import Sizes
from pliant.capture.value import Break, Const, Lazy, Raised, Unread, Value
from pliant.capture.values.objects import Cell
from pliant.fake import World
from pliant.guards.guard import MISSING, Guard, GuardKind
from pliant.guards.predicates import Defines, Gives, is_empty_cell
from pliant.guards.source import ClassAttr, Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.frame import Frame

IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
NUMBERS = (int, float)
PLAIN_OBJECTS = (type, enum.Enum, types.BuiltinFunctionType)
PLAIN = frozenset({int, float, bool, complex, str, bytes, type(None), type(...)})


class Restart(Exception):
    """Follow the program again from its start, and break at the instruction counted `step`.

    Raised where a break happens inside something that cannot be resumed in its middle (a key
    function called by `sorted`, a generator being drained). Following a program is deterministic
    and leaves the user's objects alone, so starting over is safe.
    """

    def __init__(self, step: int, cause: Break) -> None:
        super().__init__(step, cause)
        self.step = step
        self.cause = cause


class StartOver(Exception):
    """Follow the program again from its start: an object from outside has been completed (such as a
    lazy module, whose parameters exist only after its first call), so that earlier assumptions are
    wrong."""


# Lines that call functions which keep their results, before all others, and what ends the graph in
# front of the call if that can't be.
KeptCall = tuple[list[RandomDraw], Restart]

# In place of a break: the call is followed as a plain call of Python code, so that it can break in
# its middle.
INLINE = Break("unsupported", "a call that is followed as a plain one")

# In place of a break: what a function does later, as its backward, is not followed.
UNFOLLOWED = Break("unsupported", "a call whose consequences are not followed")

NO_BREAKS = (INLINE, UNFOLLOWED)


class Trace:
    """What is known during one capture."""

    state: State  # of PyTorch, when the program begins
    state_numbers: Any = None  # what tensors of the program's state hold
    strictness: Any = None  # what the program made of `error_on_break`
    printed: Any = None  # calls of print still to be made
    kept_results = 0  # how many objects `kept_calls` give

    def __init__(
        self,
        options: Options,
        break_at: dict[int, Break],
        wrap: Callable[[Trace, Any, Source], Value],
        on_break: Callable[[Trace, Frame, Break], NoReturn],
        dynamic: Dynamic,
    ) -> None:
        self.options = options
        self.break_at = break_at
        # A tensor with one number stays an index: in `flex_attention` each element has another one.
        self.indexes_with_tensors = False
        # Steps of calls that stand for a plain call of Python code, should the graph break there.
        self.inlinable: set[int] = set()
        self._wrap = wrap
        self._on_break = on_break
        self.frames: list[Frame] = []
        self.graph = GraphBuilder(self.frames)
        self.guards: list[Guard] = []
        self.sizes = Sizes(self, dynamic.answers)
        self.inputs = Inputs(self, dynamic)
        self.world = World(self.sizes.env, options.capture_scalar_outputs)
        self.world.reads_arguments = False  # each number has a node
        self.effects: dict[int, tuple[Any, Any]] = {}
        self.watch: Callable[[Any], None] | None = None  # told of every value about to change
        self.steps = 0
        self.changes = 0  # counts what can't be taken back: writes, iterators advanced
        self.depth_limit = sys.getrecursionlimit()  # of the program; capture itself recurses deeper
        self.tensors: dict[int, Any] = {}  # the value of each fake, by its identity
        self.applied: dict[Any, Any] = {}  # calls of autograd functions, by node of the history
        self.scalars: dict[int, Any] = {}  # the numbers that tensors are known to hold, by fake
        self.writes_tensors = False  # in place, so that it matters which tensors share memory
        self.fetched: list[Unread] = []  # found in a dictionary, slot or cell that may change
        self.keys: list[Value] = []  # objects told apart by identity, as keys
        self.handles_outside = sys.exception() is not None  # a caller, while it calls the function
        self.tracebacks: list[Any] = []  # their entries, which know frames
        self.graph_effects = GraphEffects()
        self.suspended: list[Value] = []  # generators with something to do when they are closed
        # Not part of the guarded state while autocast is off, but asked for when it is turned on.
        self.autocast_dtypes = {name: torch.get_autocast_dtype(name) for name in ("cpu", "cuda")}
        # Put PyTorch's global state back: after a graph that failed, and when the capture ends.
        self.undo: list[Callable[[], Any]] = []
        self.cleanups: list[Callable[[], Any]] = []
        self.default_device: Any = None  # of tensors that the program makes, where it chose one
        self.optional: int | None = None  # the step for whose sake something is followed, if it can
        self.under_transforms = False  # of `torch.func`, around the function
        self.error_on_break = get_error_on_graph_break()  # where the program is now
        self.overrides: Any = None  # modes and classes with a `__torch_function__`
        self.entered: dict[int, Any] = {}  # modes of PyTorch that the program is in, by value
        self.temporaries: dict[int, Value] = {}  # what exists during the capture only, by id
        self.class_writes: dict[tuple[type, str], tuple[Any, Value | None]] = {}
        self.showing: list[tuple[Value, Any]] = []  # whose text is being made, and by what
        self.placeholders = Placeholders()  # parts of the classes among them
        self.random_draws: list[RandomDraw] = []  # by residual code, before the graph
        self.kept_calls: list[KeptCall] = []
        self.lists: list[Any] = []  # of tensors, made by `tolist()`
        self.signatures: dict[Any, Value] = {}  # of methods that the program asked for
        self._known: dict[int, tuple[Any, Value]] = {}
        self._guarded: set[Any] = set()
        self._lookups: dict[tuple[type, str], Any] = {}

    # ---- objects from outside

    def read(self, value: Value) -> Value:
        """Look at `value`: an object from outside becomes what it is, with guards. Any other value
        is returned as it is."""
        if not isinstance(value, Lazy):
            return value
        seen = value.seen
        if seen is None:
            seen = value.seen = value.look(self)
        return seen

    def wrap(self, real: Any, source: Source) -> Value:
        """The value for an object found at `source`, with the guards that make it certain."""
        return self._wrap(self, real, source)

    def known(self, real: Any, source: Source) -> Value | None:
        """The value of an object that was met before by another path, or None. It holds only where
        both paths lead to one object again, which becomes a guard."""
        entry = self._known.get(id(real)) or self.placeholders.entry(real)
        if entry is None:
            return None
        # `f(a, b)` called as `f(x, x)`: one value, and a guard that `a` and `b` are the same
        # object.
        value = entry[1]
        # What is found as an attribute of a class is certain by the guard on that.
        if (
            value.source is not None
            and value.source != source
            and not (self._is_certain(real, source) and self._is_certain(real, value.source))
        ):
            # Without it a call in which the two paths lead to different objects would use one of
            # them twice.
            self.guard(GuardKind.SAME, source, (value.source,))
        return value

    def _is_certain(self, real: Any, source: Source) -> bool:
        """Whether a guard says already that a class has this object as its attribute."""
        if not isinstance(source, ClassAttr):
            return False
        assumed = (GuardKind.CLASS_ATTR, source.parent, _identity((source.name, real)))
        return assumed in self._guarded

    def remember(self, real: Any, value: Value) -> None:
        # With the object itself, so that its id isn't used again during the capture.
        self._known[id(real)] = (real, value)

    def outside_values(self) -> list[Value]:
        """Every object from outside with an identity that has been read, in order."""
        return [value for _, value in self._known.values()]

    def pinned(self, real: Any, source: Source) -> Value:
        """The value of an item of an immutable object whose identity is already guarded. Plain
        constants need no further guard; other objects are read when they are used."""
        placeholder_value = self.placeholders.value_of(real) if self.placeholders else None
        if placeholder_value is not None:
            return placeholder_value
        return Const(real) if self.is_plain_constant(real) else Unread(real, source)

    def wrap_pinned(self, real: Any) -> Value:
        """The value of an object that can't be another one on a later call: no guard on its
        identity is needed."""
        if self.is_plain_constant(real):
            return Const(real)
        return self.wrap(real, Fixed(real, f"<{type(real).__name__}>"))

    def is_plain_constant(self, real: Any) -> bool:
        return type(real) in PLAIN or isinstance(real, PLAIN_OBJECTS)

    def cell(self, real: Any, source: Source) -> Cell:
        """The value of a closure cell from outside."""
        existing = self.known(real, source)
        if isinstance(existing, Cell):
            return existing
        cell = Cell.from_outside(real, source)
        if cell.contents is None:
            self.guard(GuardKind.PREDICATE, source, is_empty_cell)
        self.remember(real, cell)
        return cell

    def undo_later(self, undo: Callable[[], Any], cleanup: Callable[[], Any] | None = None) -> None:
        """Note how to undo a change of PyTorch's global state; called before the change.

        `undo` is called at run time, when a graph that makes the change has failed, however far it
        has come. `cleanup` (by default `undo`) is called when the capture ends. It is a C function,
        so that an interrupt can't arrive in its middle.
        """
        self.cleanups.append(undo if cleanup is None else cleanup)
        self.undo.append(undo)

    def forget(self) -> None:
        """Drop all references to the user's objects: some have to be freed as soon as the program
        drops them, and the capture's own data may live until the next garbage collection."""
        for _, value in self._known.values():
            # Values of objects that refer to one another are cycles, and the collector is off.
            if hasattr(value, "attributes"):
                value.attributes = None
        for entry in self.tracebacks:
            entry.forget()
        self.placeholders.clear()
        # The capture is full of cycles, so these would hold the tensors of the call until the next
        # collection, which Python 3.14 makes late.
        self.graph.inputs = []
        self.world.forget()
        self.graph_effects.mode_changes_before.clear()
        tables = (self.temporaries, self.class_writes, self.applied, self.signatures)
        for table in (self._known, self.effects, self.tensors, self._lookups, *tables):
            table.clear()
        self.frames, self.suspended, self.undo, self.tracebacks = [], [], [], []
        self.sizes.forget()
        del self._on_break  # a bound method of the owner: a reference cycle

    # ---- classes

    def lookup(self, cls: type, name: str) -> Any:
        """The attribute `name` along the MRO of `cls`, as stored there (no descriptor runs), or
        MISSING.

        The answer is guarded: one guard for the class, whichever base has the attribute.
        """
        key = (cls, name)
        if key in self._lookups:
            return self._lookups[key]
        if name == "__annotations__":
            _make_annotations(cls)
        attribute = MISSING
        for base in cls.__mro__:
            if name in base.__dict__:
                attribute = base.__dict__[name]
                break
        if id(cls) in self.temporaries:
            # No guard can name a class that each call makes anew; its bases may be from outside.
            for base in cls.__bases__:
                self.lookup(base, name)
        # Built-in classes can't change, so that most lookups need no guard.
        elif not cls.__flags__ & IMMUTABLE_TYPE:
            _assume_class_attribute(self, cls, name, attribute)
        # The program has written such an attribute to some class in this call.
        if self._is_written(name):
            self._assume_places(cls, name)
            written = self._class_write(cls, name)
            attribute = attribute if written is None else written[0]
        self._lookups[key] = attribute
        return attribute

    def _class_write(self, cls: type, name: str) -> tuple[Any, Value | None] | None:
        """What the program has written to a class in this call and finds there now: `(attribute,
        value)`, or None if no write is visible. The write is replayed at the end, so the real class
        doesn't have it yet."""
        for base in cls.__mro__:
            written = self.class_writes.get((base, name))
            if written is not None and written[0] is not MISSING:
                return written
            # The real class has the name, and comes before any class that was written to.
            if written is None and name in base.__dict__:
                return None if not self._is_written(name) else (base.__dict__[name], None)
        return (MISSING, None) if self._is_written(name) else None

    def _assume_places(self, cls: type, name: str) -> None:
        """Guard which classes of the MRO define `name`: that decides whether a write to a base
        class is seen through `cls`, or hidden by a class before it."""
        for base in cls.__mro__:
            if not base.__flags__ & IMMUTABLE_TYPE:
                present = Defines(name, name in base.__dict__)
                self.guard(GuardKind.PREDICATE, Fixed(base, base.__qualname__), present)

    def _is_written(self, name: str) -> bool:
        return any(written == name for _, written in self.class_writes)

    def forget_lookups(self, name: str) -> None:
        """Forget answers of `lookup` for `name`, because a class attribute of that name has
        changed."""
        for key in [key for key in self._lookups if key[1] == name]:
            del self._lookups[key]

    def owner(self, cls: type, name: str) -> type:
        """The class along the MRO of `cls` that defines `name`."""
        return next(base for base in cls.__mro__ if name in base.__dict__)

    def class_value(self, cls: type, name: str) -> Value:
        """The class attribute `name`, which `lookup` has found, as a value."""
        real = self._lookups[cls, name]
        written = self._class_write(cls, name) if self.class_writes else None
        if written is not None and written[1] is not None:
            return written[1]
        if id(cls) in self.temporaries:  # a later call reaches its bases from outside only
            cls = self.owner(cls, name)
        source = ClassAttr(Fixed(cls, cls.__qualname__), name)
        # `lookup` has assumed its type only. Reading the number assumes its value, or makes it a
        # symbol.
        is_outside = id(cls) not in self.temporaries and not cls.__flags__ & IMMUTABLE_TYPE
        if type(real) in NUMBERS and is_outside:
            return Unread(real, source)
        return self.pinned(real, source)

    # ---- assumptions

    def guard(self, kind: GuardKind, source: Source | None, expected: Any) -> None:
        """Assume `kind` of the value at `source`, with `expected`. One guard for each assumption,
        however often it is made."""
        key = (kind, source, _identity(expected))
        # What this capture has made itself is the same in each call, and no path leads to it.
        if self.temporaries and self._of_temporary(source):
            return
        if self.kept_calls:
            others = expected if isinstance(expected, tuple) else ()
            for each in (source, *others):
                if isinstance(each, Source) and isinstance(each.root, KeptResult):
                    # Guards are tested before it exists.
                    what = f"what is asked of {each}, a result that is kept"
                    raise Break("cached-function", what)
        if key not in self._guarded:
            self._guarded.add(key)
            self.guards.append(Guard(kind, source, expected, self.position()))

    def _of_temporary(self, source: Source | None) -> bool:
        """Whether the path starts at an object of this capture, of which all is known."""
        while source is not None and source.parent is not None:
            source = source.parent
        return isinstance(source, Fixed) and id(source.value) in self.temporaries

    def position(self) -> Position | None:
        return self.frames[-1].position() if self.frames else None

    def stack(self) -> tuple[Position, ...]:
        """The user's stack, outermost first."""
        return tuple(frame.position() for frame in self.frames if not frame.internal)

    def asker(self) -> str:
        """The asker of questions about symbolic numbers that the program itself raises."""
        return "the program"

    def on_break(self, frame: Frame, cause: Break) -> NoReturn:
        """End the graph at the present instruction of `frame`, or restart the capture with a break
        elsewhere. While something optional is followed (`optional`), it is left out instead."""
        if self.optional is not None:
            raise Restart(self.optional, UNFOLLOWED)
        self._on_break(self, frame, cause)

    # ---- effects and exceptions

    def mutate(self, value: Any) -> None:
        """Note that `value` is about to change, with a snapshot of its state. At the end `replay`
        compares the two, and writes the difference as statements on the real object."""
        self.changes += 1
        if self.watch is not None:
            self.watch(value)
        # What the program itself made has no source: residual code makes it in its final state.
        if value.source is not None and id(value) not in self.effects:
            self.effects[id(value)] = (value, value.snapshot())

    def mutate_always(self, value: Any) -> None:
        """As `mutate`, also for values without a source: a tensor that the graph returns has to get
        the attributes that the program gave it."""
        self.changes += 1
        if self.watch is not None:
            self.watch(value)
        if id(value) not in self.effects:
            self.effects[id(value)] = (value, value.snapshot())

    def nothing_handled(self) -> None:
        """Guard that no caller of the compiled function is handling an exception: what
        `sys.exception()` and a bare `raise` see."""
        if self.handles_outside:
            raise Break("unsupported", "an exception that a caller is handling")
        self.guard(GuardKind.PREDICATE, Fixed(sys.exception, "sys.exception"), Gives((), None))

    def throw(self, error: BaseException) -> NoReturn:
        """Raise in the captured program an exception that running a part of it for real raised."""
        if isinstance(error, FATAL):  # such as a lack of memory, which the next run may not have
            raise Break("operation-raises", repr(error)) from error
        raise Raised(exception_value(self, error)) from error


def _assume_class_attribute(trace: Trace, cls: type, name: str, attribute: Any) -> None:
    """Guard what `lookup` found. For a number only its type: it may be a counter, and is guarded,
    or becomes a symbol, where it is read."""
    holder = Fixed(cls, cls.__qualname__)
    if type(attribute) in NUMBERS:
        trace.guard(GuardKind.TYPE, ClassAttr(holder, name), type(attribute))
    else:
        trace.guard(GuardKind.CLASS_ATTR, holder, (name, attribute))


def has_met(trace: Trace, real: Any) -> bool:
    """Whether the capture has a value for this object already."""
    return id(real) in trace._known or trace.placeholders.entry(real) is not None


def written_objects(trace: Trace) -> list[Any]:
    """The real objects that have a write still to be replayed, to themselves or to their
    `__dict__`."""
    values = [value for value, _ in trace.effects.values()]
    # The owner of a `__dict__`: the object whose attribute was written.
    values += [owner for value in values if (owner := getattr(value, "owner", None))]
    return [getattr(value, "real", None) for value in values]


def _make_annotations(cls: type) -> None:
    """Have Python make the annotations of a class, which appear in its `__dict__` only when they
    are first asked for: otherwise asking would look like a change of the class."""
    with contextlib.suppress(AttributeError):
        type.__dict__["__annotations__"].__get__(cls)  # noqa: RUF063  without the metaclass


def _identity(expected: Any) -> Any:
    """A hashable key: equal only for equal expectations."""
    if type(expected) in PLAIN:
        # With the type: 1, 1.0 and True are equal, and different assumptions.
        return (type(expected), expected)
    if type(expected) is tuple:
        return tuple(map(_identity, expected))
    if isinstance(expected, Source):
        return expected
    return id(expected)
