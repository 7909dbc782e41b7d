"""Functions of the program that say what is a leaf, asked about data."""

import optree
import pytest
import torch
from torch.utils import _pytree as pytree

import pliant


def large(node):
    return isinstance(node, torch.Tensor) and (node.sum() > 1).item()


def large_as_tensor(node):
    return node.sum() > 1 if isinstance(node, torch.Tensor) else False


def double(node):
    return node * 2


PROGRAMS = {
    "tree_map": lambda tree, is_leaf: pytree.tree_map(double, tree, is_leaf=is_leaf),
    "tree_leaves": lambda tree, is_leaf: [t + 1 for t in pytree.tree_leaves(tree, is_leaf)],
    "tree_flatten": lambda tree, is_leaf: [t + 1 for t in pytree.tree_flatten(tree, is_leaf)[0]],
    "tree_iter": lambda tree, is_leaf: sum(pytree.tree_iter(tree, is_leaf=is_leaf)),
    "tree_any": lambda tree, is_leaf: [
        pytree.tree_any(lambda t: t.dim() == 2, tree, is_leaf=is_leaf),
        tree["a"] + 1,
    ],
    "optree": lambda tree, is_leaf: optree.tree_map(double, tree, is_leaf=is_leaf),
    "optree, leaves": lambda tree, is_leaf: [t + 1 for t in optree.tree_leaves(tree, is_leaf)],
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("is_leaf", [large, large_as_tensor])
def test_leaves_are_leaves_in_any_case(name, is_leaf):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True)
    for scale in (1, -1):
        tree = {"a": torch.arange(2.0) * scale, "b": [torch.arange(2.0) + 1, torch.zeros(2)]}
        torch.testing.assert_close(compiled(tree, is_leaf), program(tree, is_leaf))


@pytest.mark.parametrize("tree_map", [pytree.tree_map, optree.tree_map])
def test_a_container_may_be_a_leaf(tree_map):
    def program(tree):
        length = lambda node: len(node) if isinstance(node, tuple) else node * 2  # noqa: E731
        return tree_map(length, tree, is_leaf=lambda node: isinstance(node, tuple))

    tree = [(torch.ones(1), torch.ones(2)), torch.ones(3)]
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(tree), program(tree))


@pytest.mark.parametrize("tree_map", [pytree.tree_map, optree.tree_map])
def test_the_function_is_asked_about_each(tree_map):
    def program(tree):
        asked = []

        def is_leaf(node):
            asked.append(type(node).__name__)
            return False if isinstance(node, list) else (node.sum() > 0).item()

        return tree_map(double, tree, is_leaf=is_leaf), asked

    tree = [torch.ones(3), torch.zeros(2)]
    (mapped, asked), (expected, all_asked) = (
        f(tree) for f in (pliant.compile(program, fullgraph=True), program)
    )
    torch.testing.assert_close(mapped, expected)
    assert asked == all_asked


def test_a_container_chosen_by_data_breaks_the_graph():
    def program(tree):
        is_leaf = lambda node: isinstance(node, list) and (node[0].sum() > 1).item()  # noqa: E731
        return pytree.tree_map(lambda n: n if isinstance(n, list) else n * 2, tree, is_leaf=is_leaf)

    compiled = pliant.compile(program)
    for value in (0.0, 3.0):
        tree = {"a": [torch.full((2,), value)]}
        torch.testing.assert_close(compiled(tree), program(tree))


def test_an_answer_without_truth_raises():
    def program(tree):
        return pytree.tree_map(double, tree, is_leaf=lambda node: torch.ones(2))

    with pytest.raises(RuntimeError, match="ambiguous"):
        pliant.compile(program)([torch.ones(3)])
