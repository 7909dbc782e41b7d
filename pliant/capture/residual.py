"""Residual code: Python source that takes over where the graph can't go.

The emitter writes the body of a function whose parameters are objects found by the guards
(`slots`). It calls the graph, replays effects on the user's objects, and makes the objects that the
function returns or that the rest of it needs.

The one idea is sharing: an object that is needed twice is made once and gets a variable, so that `a
is b` stays true. So it takes two passes: `plan` counts how often each value is needed and finds
cycles, then `expression` writes each value, in place or as a variable. For `y = [x.sin()]; return
y, y`:

    def f_residual(x):
        sin, = graph_of_f(x)
        list_ = [sin]             # needed twice: a variable
        return (list_, list_)
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
import sys
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch.fx import Node

from pliant._native import is_python_class
from pliant.base.position import Position
from pliant.base.tracebacks import traceback_through
from pliant.capture.graph import GraphBuilder, placeholder_name
from pliant.capture.host_randomness import DrawnNumber
from pliant.capture.residual_helpers import HELPERS
from pliant.capture.value import Break, Const, Lazy, Null, Unread, Value
from pliant.capture.values.containers import ById, Mapping, Sequence
from pliant.capture.values.functions import BoundMethod, BuiltinMethod, FunctionValue
from pliant.capture.values.listed import Item, runs
from pliant.capture.values.objects import Cell, ExceptionValue, Handled, Instance
from pliant.capture.values.tensors import TensorValue
from pliant.guards.source import (
    Attr,
    ClassAttr,
    DictItem,
    Fixed,
    Local,
    Member,
    SeqItem,
    Source,
    text_of,
)

LITERALS = (int, str, bytes, bool, type(None), type(...))
MOST_LEVELS = 24  # of objects within objects in one expression
# Objects whose parts may refer to them: made empty, given a name, then filled.
TWO_STEPS = (Instance, FunctionValue, Cell, ExceptionValue)


class Emitter:
    """Writes one residual function."""

    def __init__(self, graph: GraphBuilder, generator: Callable[[Emitter, Any], str]) -> None:
        self.graph = graph
        self.generator = generator  # writes a generator in its present state
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {}
        self.slots: dict[Source, str] = {}
        self.drawn: dict[Source, str] = {}  # variables with random numbers
        self.outputs: dict[Any, str] = {}  # node to the name of the variable with its result
        self._made: dict[int, str] = {}  # value to the name of the object made for it
        self._kept: list[Value] = []  # keeps the values of `_made` alive
        self._inlined: dict[int, Value] = {}  # made where they are needed, once
        self._counts: dict[int, int] = {}
        self._cyclic: set[int] = set()
        self._heights: dict[int, int] = {}  # levels of objects in a value, up to those with names
        self._staged: dict[int, list[Value]] = {}  # by root: what is made first, in order
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}  # the number of the last variable of a name
        self._constants: dict[int, str] = {}
        self._indent = "    "
        self.temporaries: dict[int, Value] = {}  # what exists during the capture only, by id
        self.placeholder_value: Callable[[Any], Value | None] = lambda real: None
        self._open = 0  # functions that are being written
        self._unfilled: list[tuple[Value, str]] = []  # cells written in the meantime

    # ---- planning

    def plan(self, roots: list[Value]) -> None:
        """Count how often each value is needed, and find cycles, before anything is written."""
        for root in roots:
            self._visit(root, set())

    def _visit(self, root: Value, path: set[int]) -> None:
        """Count the uses of `root` and of everything it is made of. `path` are the ids of the
        values on the way from the root: meeting one of them again is a cycle.

        An explicit stack replaces recursion: containers may be nested deeper than Python's stack
        is.
        """
        # Depth-first search. A value is pushed a second time, with its children, to be measured
        # after them.
        staged: list[Value] = []
        waiting: list[tuple[Value, list[Value] | None]] = [(root, None)]
        while waiting:
            value, children = waiting.pop()
            if children is not None:  # all of them have been visited
                path.discard(id(value))
                self._measure(value, children, staged)
                continue
            if type(value) is Item:
                if value.known is None:
                    continue
                value = value.known
            if self.temporaries:
                value = self._visit_temporaries(value, path)
            if isinstance(value, Const | Null) or value.source is not None:
                continue
            key = id(value)
            self._counts[key] = self._counts.get(key, 0) + 1
            if key in path:
                self._cyclic.add(key)
            # Children of a value that was visited before are counted already.
            if self._counts[key] == 1:
                path.add(key)
                children = list(value.children())
                waiting.append((value, children))
                waiting += [(child, None) for child in reversed(children)]
        if staged and not self._cyclic:  # objects in a cycle are made in two steps, in their order
            self._staged[id(root)] = staged

    def _measure(self, value: Value, children: list[Value], staged: list[Value]) -> None:
        """Note the height of a value above its parts that have names. At `MOST_LEVELS` it counts as
        used twice, which gives it a name: Python's parser limits nesting, and `expression`
        recurses."""
        height = 1 + max([self._heights.get(id(child), 0) for child in children], default=0)
        # Counted as needed once more, which is what gives a value a variable.
        if height > MOST_LEVELS:
            self._counts[id(value)] += 1
            staged.append(value)
            height = 0
        self._heights[id(value)] = height

    def _visit_temporaries(self, value: Value, path: set[int]) -> Value:
        """What stands for `value` among the objects of this capture. An instance of a class that
        was made during the capture needs that class too, so it is visited first."""
        if isinstance(value, Unread):
            value = self.placeholder_value(value.real) or value
        if isinstance(value, Const):
            return self.temporaries.get(id(value.value), value)
        if not isinstance(value, Null | Lazy | Handled):
            cls = self.temporaries.get(id(value.python_type()))
            if cls is not None:
                self._visit(cls, path)
        return value

    def is_cyclic(self, value: Value) -> bool:
        return id(value) in self._cyclic

    # ---- statements

    def line(self, text: str) -> None:
        self.lines.append(self._indent + text)

    def indent(self, by: int) -> None:
        self._indent = " " * (len(self._indent) + 4 * by)

    def fresh(self, wish: str) -> str:
        """A variable name that is not taken, as near to `wish` as possible: `x`, then `x_2`."""
        # Names come from the program and from paths: `<lambda>`, `L['x'].weight`.
        base = re.sub(r"\W+", "_", wish).strip("_") or "value"
        if base[0].isdigit() or keyword.iskeyword(base) or base in vars(builtins):
            base = f"{base}_" if not base[0].isdigit() else f"v_{base}"
        name, number = base, self._last.get(base, 1)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._last[base] = number
        self._taken.add(name)
        return name

    # ---- expressions

    def expression(self, value: Value) -> str:
        """Source for the object of `value`: a parameter, a variable that has it, or a display that
        makes it. May write lines before."""
        if type(value) is Item:
            return value.rebuild(self) if value.known is None else self.expression(value.known)
        if self.temporaries and isinstance(value, Unread):
            value = self.placeholder_value(value.real) or value
        if isinstance(value, Const):
            return self.constant(value.value)
        if value.source is not None:
            return self.slot(value.source)
        known_name = self._made.get(id(value))
        if known_name is not None:
            return known_name
        # Deep structures: the parts that get names, innermost first.
        for inner in self._staged.pop(id(value), ()):
            if inner is not value:
                self.expression(inner)
        if isinstance(value, TensorValue):
            return self.tensor(value)
        # Instances always: their attributes are written one by one, and may refer to the instance.
        two_steps = isinstance(value, TWO_STEPS) or self.is_cyclic(value)
        two_steps = two_steps or getattr(value, "two_steps", False)
        # What is needed once is written in place; a name keeps `a is b` true for the rest.
        if not two_steps and self._counts.get(id(value), 1) < 2:
            assert id(value) not in self._inlined, f"{value!r} would be made twice"
            self._inlined[id(value)] = value
            return value.rebuild(self)
        name = self.fresh(_preferred_name(value))
        # Names are looked up by id, which a value that is freed would give to another.
        self._kept.append(value)
        if two_steps:
            self._in_two_steps(value, name)
        else:
            text = value.rebuild(self)
            self.line(f"{name} = {text}")
            self._made[id(value)] = name
        return name

    def _in_two_steps(self, value: Value, name: str) -> None:
        """Make an object under `name`, then complete it.

        A function needs its cells, and a cell may hold the function itself. So while a function is
        written (`_open`), its cells are made empty, and they are filled once all of these functions
        exist.
        """
        opens = isinstance(value, FunctionValue)
        self._open += opens
        text = value.rebuild(self)
        self._open -= opens
        self.line(f"{name} = {text}")
        self._made[id(value)] = name
        if self._open and isinstance(value, Cell):
            self._unfilled.append((value, name))
            return
        # From here on the name can be used, also by what `fill` writes.
        value.fill(self, name)
        while self._unfilled and not self._open:
            cell, cell_name = self._unfilled.pop(0)
            cell.fill(self, cell_name)

    def operand(self, value: Value) -> str:
        """As `expression`, in parentheses where an operator or a dot may follow: `-1 ** x` would be
        `-(1 ** x)`, and `1.real` is a syntax error."""
        text = self.expression(value)
        return f"({text})" if text[0] == "-" or text[0].isdigit() else text

    def assign_name(self, value: Value, wish: str) -> str:
        """A variable or a literal for the value: an expression that may be written twice."""
        text = self.expression(value)
        if text.isidentifier():
            return text
        name = self.fresh(wish)
        self.line(f"{name} = {text}")
        return name

    def slot(self, source: Source) -> str:
        """The parameter that brings the object at `source`. Objects that are always the same one
        are bound in the namespace instead."""
        # The entry keeps it alive, so it needs no parameter.
        if isinstance(source, Fixed):
            return self._same_object(source.value)
        if isinstance(source, DrawnNumber):
            if source not in self.drawn:
                self.drawn[source] = self.fresh(f"{source.verb}_{source.what}")
            return self.drawn[source]
        if source not in self.slots:
            self.slots[source] = self.fresh(_slot_name(source))
        return self.slots[source]

    def tensor(self, value: TensorValue) -> str:
        if value.early is not None:
            return self.slot(value.early)
        if not value.plain:
            return self.result(value.node)
        # The graph has returned a plain tensor: the object of the program's class is made here.
        name = self.fresh(value.cls.__name__.lower())
        cls = self.constant(value.cls)
        self.line(f"{name} = {self.helper('as_subclass')}({self.result(value.node)}, {cls})")
        self._kept.append(value)
        self._made[id(value)] = name
        return name

    def result(self, node: Node) -> str:
        """The variable that holds a result of the graph."""
        if node not in self.outputs:
            self.graph.output(node)
            self.outputs[node] = self.fresh(node.name)
        return self.outputs[node]

    def constant(self, real: Any) -> str:
        """A literal, a well-known dotted name, or a name in the namespace of the residual code."""
        cls = type(real)
        if cls in LITERALS or (cls is float and math.isfinite(real)):
            return "..." if real is ... else repr(real)
        if cls is complex:  # as text it would lose the sign of a zero
            return f"complex({self.constant(real.real)}, {self.constant(real.imag)})"
        if cls is tuple:
            inner = ", ".join(self.constant(item) for item in real)
            return f"({inner},)" if len(real) == 1 else f"({inner})"
        if id(real) in self.temporaries:
            return self.expression(self.temporaries[id(real)])
        return self._named(real)

    def _same_object(self, real: Any) -> str:
        """A constant that is the same object, where the program could tell an equal one apart."""
        return self._named(real) if type(real) is tuple else self.constant(real)

    def _named(self, real: Any) -> str:
        if id(real) not in self._constants:
            self._constants[id(real)] = self._name_constant(real)
        return self._constants[id(real)]

    def _name_constant(self, real: Any) -> str:
        dotted = _dotted_name(real)
        if dotted is not None:
            root = dotted.split(".")[0]
            bound = sys.modules.get(root) if "." in dotted else real
            # A variable of the residual code may have the name of the module.
            if root not in self._taken or self.namespace.get(root) is bound:
                self.namespace[root] = bound
                self._taken.add(root)
                return dotted
        wish = getattr(real, "__name__", None) or f"a_{type(real).__name__}"
        name = self.fresh(wish if isinstance(wish, str) else "constant")
        self.namespace[name] = real
        return name

    def helper(self, name: str) -> str:
        """The name of a function in `residual_helpers`, bound in the namespace of the residual
        code."""
        self.namespace[name] = HELPERS[name]
        self._taken.add(name)
        return name

    def bind(self, wish: str, real: Any) -> str:
        """Give the residual code a name for an object."""
        name = self.fresh(wish)
        self.namespace[name] = real
        return name

    def traceback(self, trail: tuple[Position, ...]) -> str:
        """The traceback of an exception that was raised and caught during capture."""
        return self.bind("raised_at", traceback_through(trail))

    # ---- containers

    def sequence_of(self, values: list[Value], cls: type = list) -> str:
        parts = [self._run(run) for run in runs(values)]
        inner = ", ".join(parts)
        if cls is list:
            return f"[{inner}]"
        return f"({inner},)" if len(parts) == 1 else f"({inner})"

    def _run(self, values: list[Value]) -> str:
        """Some items of a display: several from one list of the graph are a slice of it."""
        first = values[0]
        if len(values) == 1:
            return self.expression(first)
        assert isinstance(first, Item)
        return f"*{self.result(first.node)}[{first.index}:{first.index + len(values)}]"

    def display(self, cls: type, value: Sequence) -> str:
        """A new sequence of class `cls`. In a cycle it starts empty and is filled later."""
        items = [] if self.is_cyclic(value) and not value.immutable else value.items
        if cls in (list, tuple):
            return self.sequence_of(items, cls)
        inner = self.sequence_of(items)
        name = self.constant(cls)
        if issubclass(cls, tuple):
            return self._tuple_of_class(cls, name, inner)
        if value.maxlen is not None:
            return f"{name}({inner}, {value.maxlen})"
        return f"{name}({inner})"

    def _tuple_of_class(self, cls: type, name: str, inner: str) -> str:
        if "_make" in cls.__dict__:  # a named tuple
            return f"{name}._make({inner})"
        if is_python_class(cls):  # its own __new__ must not run again
            return f"tuple.__new__({name}, {inner})"
        return f"{name}({inner})"

    def mapping(self, value: Mapping) -> str:
        items = [] if self.is_cyclic(value) else value.items.items()
        pairs = [(key, item) for key, item in items if item is not None]
        inner = ", ".join(f"{self.key(key)}: {self.expression(item)}" for key, item in pairs)
        if value.cls is dict:
            return f"{{{inner}}}"
        name = self.constant(value.cls)
        if value.factory is not None or value.cls is defaultdict:
            factory = "None" if value.factory is None else self.expression(value.factory)
            return f"{name}({factory}, {{{inner}}})"
        if value.attributes is not None:
            raise Break("cannot-rebuild", f"a {value.cls.__name__}")
        return f"{name}({{{inner}}})"

    def key(self, key: Any) -> str:
        """A key of a dictionary as source. Keys are Python objects already, but for those found by
        identity."""
        if isinstance(key, ById):
            return self.expression(key.value)
        if type(key) is tuple:
            inner = ", ".join(self.key(part) for part in key)
            return f"({inner},)" if len(key) == 1 else f"({inner})"
        return self.constant(key)

    def plain_attribute(self, owner: Any, name: Any) -> bool:
        """Whether `owner.name = …` does nothing but write to the instance's dictionary."""
        cls = owner.python_type()
        if not (isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)):
            return False
        plain = cls.__setattr__ in (object.__setattr__, types.FunctionType.__setattr__)
        return plain and not hasattr(cls, name)


def _preferred_name(value: Value) -> str:
    if isinstance(value, FunctionValue | BuiltinMethod):
        return value.name
    if isinstance(value, BoundMethod):
        return _preferred_name(value.function)
    if getattr(value, "two_steps", False):
        return str(getattr(getattr(value, "real", None), "__name__", "value"))
    return value.python_type().__name__.lower()


SHORT_NAMES: dict[type, Any] = {
    Local: lambda source: source.name,
    DictItem: lambda source: source.key if type(source.key) is str else "",
    Attr: lambda source: source.name,
    Member: lambda source: source.name,
    ClassAttr: lambda source: source.name,
}


def _slot_name(source: Source) -> str:
    namer = SHORT_NAMES.get(type(source))
    if isinstance(source, SeqItem) or namer is None or not namer(source).isidentifier():
        return placeholder_name(source).removeprefix("l_")
    return str(namer(source))


def _dotted_name(real: Any) -> str | None:
    """How a user would write a well-known object: `torch.float32`, `len`, `operator.add`. None if
    no name of PyTorch or of the standard library leads to it."""
    if isinstance(real, types.ModuleType):
        is_top_module = sys.modules.get(real.__name__) is real and "." not in real.__name__
        return real.__name__ if is_top_module else None
    text = text_of(real)
    if text.startswith("torch.") and re.fullmatch(r"torch\.\w+", text):
        return text
    module, name = getattr(real, "__module__", None), getattr(real, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    owner: Any = sys.modules.get(module)
    for part in name.split("."):
        owner = getattr(owner, part, None)
    # The name may have been bound to something else since.
    if owner is not real:
        return None
    if module == "builtins":
        return name if "." not in name else None
    root = module.split(".")[0]
    standard = root == "torch" or root in sys.stdlib_module_names
    return _short_torch_name(module, name, real) if standard else None


def _short_torch_name(module: str, name: str, real: Any) -> str | None:
    if module.startswith("torch.") and getattr(sys.modules["torch"], name, None) is real:
        return f"torch.{name}"
    reached: Any = sys.modules.get(module.split(".")[0])
    for part in module.split(".")[1:]:
        reached = getattr(reached, part, None)
    return f"{module}.{name}" if reached is sys.modules.get(module) else None


__all__ = ["Emitter", "Unread"]
