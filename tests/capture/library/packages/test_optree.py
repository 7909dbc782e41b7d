"""Pytrees of `optree`, and PyTorch's over it: followed through the package's C++ code."""

from collections import OrderedDict, defaultdict, deque, namedtuple

import optree
import pytest
import torch
import torch.utils._cxx_pytree as cxx_pytree

import pliant
from tests.support.against_eager import check

X = torch.arange(3.0)
Pair = namedtuple("Pair", "first second")


@optree.register_pytree_node_class(namespace="pliant-tests")
class Box:
    def __init__(self, label, *items):
        self.label = label
        self.items = items

    def __repr__(self):
        return f"Box({self.label})"

    def __tree_flatten__(self):
        return self.items, self.label, None

    @classmethod
    def __tree_unflatten__(cls, label, items):
        return cls(label, *items)


def every_kind(x):
    return {
        "b": [x, (x + 1, None)],
        "a": Pair(x * 2, deque([x], maxlen=4)),
        "c": defaultdict(list, {2: x, 1: x - 1}),
        "d": OrderedDict(z=x, y=2),
    }


def mapped(x):
    return optree.tree_map(lambda leaf: leaf * 3, every_kind(x))


def flattened(x):
    leaves, spec = optree.tree_flatten(every_kind(x))
    return leaves, spec.unflatten(leaves[::-1]), spec.num_leaves, repr(spec), spec.paths()


def structures(x):
    spec = optree.tree_structure([x, (x,)])
    other = optree.tree_structure([1, (2,)])
    return x + 1, spec == other, hash(spec) == hash(other), optree.treespec_tuple([spec, other])


def several_trees(x):
    trees = {"a": x, "b": (x,)}, {"b": (x + 1,), "a": x - 1}
    return optree.tree_map(torch.add, *trees), optree.tree_transpose_map(
        lambda leaf: (leaf, leaf + 1), [x, x]
    )


def chosen_leaves(x):
    tree = {"a": (x, x), "b": [x, None]}
    as_leaves = optree.tree_map(
        lambda leaf: len(leaf) if isinstance(leaf, tuple) else leaf * 2,
        tree,
        is_leaf=lambda node: isinstance(node, tuple),
    )
    return as_leaves, optree.tree_leaves(tree, none_is_leaf=True), optree.tree_all([x.dim(), 1])


def with_paths(x):
    return optree.tree_map_with_path(lambda path, leaf: (path, leaf + 1), {"a": [x]}), [
        leaf + 1 for leaf in optree.tree_iter((x, [x]))
    ]


def own_classes(x):
    tree = [Box("one", x, [x + 1]), Box("two")]
    result = optree.tree_map(lambda leaf: leaf * 2, tree, namespace="pliant-tests")
    without = optree.tree_map(lambda leaf: leaf.label, tree)
    return [(box.label, box.items) for box in result], without


def through_pytorch(x):
    tree = {"b": x, "a": (x + 1, None)}
    return (
        cxx_pytree.tree_map(lambda leaf: leaf, tree),
        cxx_pytree.tree_map_only(torch.Tensor, lambda leaf: leaf + 1, [x, 2, None]),
        cxx_pytree.tree_leaves(tree),
        cxx_pytree.tree_is_leaf(x),
    )


@pytest.mark.parametrize(
    "function",
    [
        mapped,
        flattened,
        structures,
        several_trees,
        chosen_leaves,
        with_paths,
        own_classes,
        through_pytorch,
    ],
)
def test_pytrees_are_followed(function):
    check(function, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: optree.tree_structure([x, x]).unflatten([x]),
        lambda x: optree.tree_structure([x]).unflatten([x, x]),
    ],
)
def test_numbers_of_leaves_that_do_not_fit(function):
    check(function, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: optree.tree_map(torch.add, {"a": x}, {"b": x}),
        lambda x: optree.tree_map(torch.add, [x, x], [x]),
        lambda x: optree.tree_map(
            torch.add, [Box("a", x)], [Box("b", x)], namespace="pliant-tests"
        ),
    ],
)
def test_trees_of_other_structures(function):
    """The message shows the data, so Python makes the error."""
    check(function, X, breaks=1, fullgraph=True)


def test_structure_from_outside_is_guarded():
    def function(x, spec):
        return spec.unflatten([x, x + 1])

    compiled = pliant.compile(function, fullgraph=True)
    for tree in ([1, 2], (1, 2), [1, 2], {"a": 1, "b": 2}):
        spec = optree.tree_structure(tree)
        actual, expected = compiled(X, spec), function(X, spec)
        assert optree.tree_structure(actual) == optree.tree_structure(expected) == spec
    assert pliant.counters["compilations"] == 3


def test_class_that_is_registered_later():
    class Late:
        def __init__(self, item):
            self.item = item

    def function(x, late):
        return optree.tree_leaves([late, x], namespace="pliant-tests")

    compiled = pliant.compile(function, fullgraph=True)
    late = Late(X)
    assert compiled(X, late)[0] is late
    optree.register_pytree_node(
        Late,
        lambda late: ((late.item,), None),
        lambda _, items: Late(*items),
        namespace="pliant-tests",
    )
    assert compiled(X, late)[0] is X
