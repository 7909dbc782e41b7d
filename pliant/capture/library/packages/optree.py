"""Pytrees of the package `optree`, which PyTorch's `torch.utils._cxx_pytree` stands on.

Its C++ code is asked about one level at a time: a real container whose items stand for values is
flattened or filled for real, so that the order of keys, the kinds of nodes and the errors are the
package's own. Functions that flatten the program's classes are followed. A `PyTreeSpec` is a
constant.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pliant.base.values import dataclass
from pliant.capture.library.python.native_objects import never_changes
from pliant.capture.library.torch.pytrees import note_answer
from pliant.capture.model import call, drain, iterate, truth
from pliant.capture.native import function, pure
from pliant.capture.value import FALSE, NONE, Break, Const, NotConstant, Unread, Value, boolean
from pliant.capture.values.containers import (
    ById,
    Mapping,
    Sequence,
    make_tuple,
    plain_list,
    plain_tuple,
)
from pliant.capture.values.conversion import known_object
from pliant.guards.guard import GuardKind
from pliant.guards.source import Attr, Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

CUSTOM, LEAF, NOTHING = 0, 1, 2  # kinds of nodes
Node = tuple[Any, ...]  # kind, arity, data, entries, class, leaves, nodes, original keys
ONE_LEAF: Node = (LEAF, 0, None, None, None, 1, 1, None)
EMPTY = Const("")


class Held:
    """Stands for a value in a real container."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


@dataclass(frozen=True, slots=True)
class Registered:
    """The predicate that a class is registered as it was."""

    namespace: str
    entry: Any

    def __call__(self, cls: type) -> bool:
        return bool(_entry_of(cls, self.namespace) == self.entry)


def _package() -> Any:
    return sys.modules["optree"]


def _entry_of(cls: type, namespace: str) -> Any:
    return _package().register_pytree_node.get(cls, namespace=namespace)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a tree is taken apart."""

    is_leaf: Value
    none_is_leaf: bool
    namespace: str

    @staticmethod
    def of(trace: Trace, is_leaf: Value, none_is_leaf: Value, namespace: Value) -> Rules:
        return Rules(
            trace.read(is_leaf),
            truth(trace, none_is_leaf),
            trace.read(namespace).constant(),
        )

    @property
    def asks(self) -> bool:
        """Whether a function of the program says what is a leaf."""
        return not (isinstance(self.is_leaf, Const) and self.is_leaf.value is None)

    def says_leaf(self, trace: Trace, value: Value) -> bool:
        if not self.asks:
            return False
        answer = trace.read(call(trace, self.is_leaf, [value]))
        cls = value.python_type()
        if (cls is type(None) and self.none_is_leaf) or self.entry(trace, cls) is None:
            note_answer(trace, answer)
            return True
        return truth(trace, answer)

    def spec(self, nodes: Iterable[Node]) -> Any:
        """A real PyTreeSpec of these nodes, children first."""
        cls = _package().PyTreeSpec
        spec = cls.__new__(cls)
        spec.__setstate__((tuple(nodes), self.none_is_leaf, self.namespace))
        return spec

    def one_level(self, node: Node) -> Any:
        """The spec of a node whose children are all leaves."""
        arity = node[1]
        return self.spec([*[ONE_LEAF] * arity, (*node[:5], arity, arity + 1, node[7])])

    def entry(self, trace: Trace, cls: type) -> Any:
        """How a class is registered; None if its objects are leaves."""
        package = _package()
        entry = _entry_of(cls, self.namespace)
        predicate = Registered(self.namespace, entry)
        trace.guard(GuardKind.PREDICATE, Fixed(cls, cls.__qualname__), predicate)
        if entry is None and (package.is_namedtuple_class(cls) or package.is_structseq_class(cls)):
            return cls
        return entry


def _is_custom(entry: Any) -> bool:
    return int(getattr(entry, "kind", -1)) == CUSTOM


# ---- one level, for real


def _container(trace: Trace, value: Value) -> Any:
    """A real container like `value`, with its items in place of what they stand for."""
    if isinstance(value, Sequence):
        items = [Held(item) for item in value.items]
        if value.cls is list:
            return items
        return deque(items, value.maxlen) if value.cls is deque else make_tuple(value.cls, items)
    if not isinstance(value, Mapping):
        return value.constant()  # None, and constant tuples and their like
    held = value.read_all(trace)
    if any(isinstance(key, ById | tuple) for key in held):
        raise Break("unsupported", "a pytree with keys told apart by identity")
    real = {key: Held(item) for key, item in held.items()}
    if value.cls is defaultdict:
        factory = None if value.factory is None else known_object(value.factory, trace)
        return defaultdict(factory, real)
    return OrderedDict(real) if value.cls is OrderedDict else real


def _as_value(item: Any) -> Value:
    return item.value if isinstance(item, Held) else Const(item)


def _from_container(real: Any) -> Value:
    """The value of a real container of items that the package has made."""
    if real is None:
        return NONE
    if isinstance(real, dict):
        mapping = Mapping(type(real), {key: _as_value(item) for key, item in real.items()})
        factory = getattr(real, "default_factory", None)
        mapping.factory = None if factory is None else Const(factory)
        return mapping
    items = [_as_value(item) for item in real]
    return Sequence(type(real), items, maxlen=getattr(real, "maxlen", None))


def _is_item(obj: Any) -> bool:
    return isinstance(obj, Held)


# ---- the program's own classes


def _flatten_custom(trace: Trace, entry: Any, value: Value) -> tuple[list[Value], Node]:
    flatten = _registered_function(trace, entry, "flatten_func")
    parts = drain(trace, call(trace, flatten, [value]))
    if len(parts) not in (2, 3):
        raise Break("bad-arguments", f"flattening a {entry.type.__name__}")
    children = drain(trace, parts[0])
    try:
        metadata = known_object(parts[1], trace)
        entries = known_object(parts[2], trace) if len(parts) == 3 else None
    except NotConstant as error:
        raise Break("not-constant", f"the metadata of a {entry.type.__name__}") from error
    return children, (CUSTOM, len(children), metadata, entries, entry.type, 0, 0, None)


def _unflatten_custom(trace: Trace, rules: Rules, node: Node, children: list[Value]) -> Value:
    entry = rules.entry(trace, node[4])
    metadata = trace.wrap_pinned(node[2])
    unflatten = _registered_function(trace, entry, "unflatten_func")
    return call(trace, unflatten, [metadata, plain_tuple(children)])


def _registered_function(trace: Trace, entry: Any, name: str) -> Value:
    """It is part of the entry, which does not change."""
    real = getattr(entry, name)
    return Unread(real, Attr(Fixed(entry, f"<pytree {entry.type.__name__}>"), name))


# ---- flattening


def _children(trace: Trace, rules: Rules, value: Value) -> tuple[list[Value], Node] | None:
    """The children of a node in order, and the node; None for a leaf."""
    cls = value.python_type()
    if cls is type(None) and rules.none_is_leaf:
        return None
    entry = rules.entry(trace, cls)
    if entry is None:
        return None
    if _is_custom(entry):
        return _flatten_custom(trace, entry, value)
    items, spec = _package()._C.flatten(
        _container(trace, value), _is_item, rules.none_is_leaf, rules.namespace
    )
    if len(items) != spec.num_children:  # the items of a constant tuple are trees themselves
        real = value.constant()
        return _children(trace, rules, Sequence(type(real), [Const(item) for item in real]))
    return [_as_value(item) for item in items], spec.__getstate__()[0][-1]


def _take_apart(
    trace: Trace, rules: Rules, value: Value, leaves: list[Value], nodes: list[Node]
) -> None:
    value = trace.read(value)
    expanded = None if rules.says_leaf(trace, value) else _children(trace, rules, value)
    if expanded is None:
        leaves.append(value)
        nodes.append(ONE_LEAF)
        return
    before = len(leaves), len(nodes)
    children, node = expanded
    for child in children:
        _take_apart(trace, rules, child, leaves, nodes)
    counts = len(leaves) - before[0], len(nodes) - before[1] + 1
    nodes.append((*node[:5], *counts, node[7]))


def _flatten(trace: Trace, rules: Rules, tree: Value) -> tuple[list[Value], Any]:
    leaves: list[Value] = []
    nodes: list[Node] = []
    _take_apart(trace, rules, tree, leaves, nodes)
    return leaves, rules.spec(nodes)


def _with_rules(handler: Callable[[Trace, Rules, Value], Value]) -> Callable[..., Value]:
    """The handler of a function with the parameters that all have which take trees apart."""

    def handle(
        trace: Trace,
        tree: Value,
        is_leaf: Value = NONE,
        none_is_leaf: Value = FALSE,
        namespace: Value = EMPTY,
    ) -> Value:
        return handler(trace, Rules.of(trace, is_leaf, none_is_leaf, namespace), tree)

    return handle


def handle_flatten(trace: Trace, rules: Rules, tree: Value) -> Value:
    leaves, spec = _flatten(trace, rules, tree)
    return plain_tuple([plain_list(leaves), Const(spec)])


def handle_flatten_with_path(trace: Trace, rules: Rules, tree: Value) -> Value:
    leaves, spec = _flatten(trace, rules, tree)
    paths = [plain_tuple([Const(part) for part in path]) for path in spec.paths()]
    return plain_tuple([plain_list([*paths]), plain_list(leaves), Const(spec)])


def handle_is_leaf(trace: Trace, rules: Rules, tree: Value) -> Value:
    value = trace.read(tree)
    if rules.says_leaf(trace, value):
        return boolean(True)
    cls = value.python_type()
    if cls is type(None) and rules.none_is_leaf:
        return boolean(True)
    return boolean(rules.entry(trace, cls) is None)


def handle_iter(trace: Trace, rules: Rules, tree: Value) -> Value:
    """The leaves, lazily: a predicate of the program (`is_leaf`) runs when its node is reached."""
    if rules.asks:
        raise Break("unsupported", "optree.tree_iter with is_leaf")
    return iterate(trace, plain_list(_flatten(trace, rules, tree)[0]))


# ---- with a structure


def _rules_of(spec: Any) -> Rules:
    return Rules(NONE, spec.none_is_leaf, spec.namespace)


def handle_unflatten(trace: Trace, self: Value, leaves: Value) -> Value:
    spec = trace.read(self).constant()
    rules, items = _rules_of(spec), drain(trace, leaves)
    if len(items) != spec.num_leaves:
        try:
            spec.unflatten([None] * len(items))
        except ValueError as error:
            trace.throw(error)
    rest = iter(items)
    done: list[Value] = []
    for node in spec.__getstate__()[0]:
        kind, arity = node[:2]
        children = done[len(done) - arity :]
        del done[len(done) - arity :]
        if kind == LEAF:
            done.append(next(rest))
        elif kind == CUSTOM:
            done.append(_unflatten_custom(trace, rules, node, children))
        else:
            real = rules.one_level(node).unflatten([Held(child) for child in children])
            done.append(_from_container(real))
    return done[0]


def handle_flatten_up_to(trace: Trace, self: Value, tree: Value) -> Value:
    spec = trace.read(self).constant()
    nodes = list(spec.__getstate__()[0])
    parts: list[Value] = []
    _match(trace, _rules_of(spec), nodes, trace.read(tree), parts)
    return plain_list(parts[::-1])


def _match(trace: Trace, rules: Rules, nodes: list[Node], value: Value, parts: list[Value]) -> None:
    """Take the nodes of a spec from its end, which is the root, and so the children from the last
    to the first."""
    node = nodes.pop()
    if node[0] == LEAF:
        parts.append(value)
        return
    for child in reversed(_matching_children(trace, rules, node, value)):
        _match(trace, rules, nodes, trace.read(child), parts)


def _matching_children(trace: Trace, rules: Rules, node: Node, value: Value) -> list[Value]:
    different = Break("bad-arguments", "a pytree of another structure")  # Python makes the error
    if node[0] == CUSTOM:
        if value.python_type() is not node[4]:
            raise different
        children, other = _flatten_custom(trace, rules.entry(trace, node[4]), value)
        if other[:3] != node[:3]:
            raise different
        return children
    try:
        items = rules.one_level(node).flatten_up_to(_container(trace, value))
    except (ValueError, TypeError, NotConstant) as error:
        raise different from error
    return [_as_value(item) for item in items]


def register() -> None:
    package = _package()
    native, spec = package._C, package.PyTreeSpec
    never_changes(spec)
    never_changes(package.PyTreeKind)
    table: dict[Any, Callable[..., Value]] = {
        native.flatten: _with_rules(handle_flatten),
        native.flatten_with_path: _with_rules(handle_flatten_with_path),
        native.is_leaf: _with_rules(handle_is_leaf),
        native.PyTreeIter: _with_rules(handle_iter),
        vars(spec)["unflatten"].__func__: handle_unflatten,
        vars(spec)["flatten_up_to"].__func__: handle_flatten_up_to,
    }
    for real, handler in table.items():
        function(real)(handler)
    pure(native.make_leaf, native.make_none, native.make_from_collection)
