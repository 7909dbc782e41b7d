"""Copies of tensors and modules that the compiled function makes."""

import copy
import itertools
import types

import pytest
import torch
from torch._dynamo import mutation_guard

import pliant

NET = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
LEAF = torch.arange(3.0, requires_grad=True)


def adapted_weights(x):
    """One step of training of a copy, as in meta-learning."""
    net = copy.deepcopy(NET)
    gradients = torch.autograd.grad(net(x).sum(), net.parameters())
    return [p - 0.5 * g for p, g in zip(net.parameters(), gradients, strict=True)]


def copied_leaf(x):
    duplicate = copy.deepcopy(LEAF)
    return duplicate, duplicate.is_leaf, (duplicate * 2).sum()


def frozen_parameter(x):
    return copy.deepcopy(torch.nn.Parameter(x, requires_grad=False))


def shared_weight(x):
    first, second = copy.deepcopy([NET[0].weight, NET[0].weight])
    return first is second, first


PROGRAMS = {
    "a step on a copy": adapted_weights,
    "parameters of a copy": lambda x: list(copy.deepcopy(NET).parameters()),
    "a leaf": copied_leaf,
    "a leaf in a dictionary": lambda x: copy.deepcopy({"a": LEAF, "b": x})["a"],
    "a parameter without gradient": frozen_parameter,
    "one met twice": shared_weight,
}


def seen(value):
    if isinstance(value, tuple | list):
        return [seen(item) for item in value]
    if isinstance(value, torch.Tensor):
        kind = type(value), value.requires_grad, value.is_leaf
        return [*kind, [round(number, 4) for number in value.detach().flatten().tolist()]]
    return value


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_same_as_eager(name, backend):
    program, x = PROGRAMS[name], torch.randn(3, 4)
    compiled = pliant.compile(program, fullgraph=True, backend=backend)
    for _ in range(2):
        assert seen(compiled(x)) == seen(program(x))


def test_a_gradient_is_copied_too():
    leaf = torch.ones(3, requires_grad=True)
    compiled = pliant.compile(lambda: copy.deepcopy(leaf))
    assert compiled().grad is None
    leaf.grad = torch.full((3,), 2.0)
    duplicate = compiled()
    assert duplicate.grad.tolist() == [2, 2, 2] and duplicate.grad is not leaf.grad


def test_what_is_computed_cannot_be_copied():
    compiled = pliant.compile(lambda x: copy.deepcopy(x * 2))
    with pytest.raises(RuntimeError, match="graph leaves"):
        compiled(torch.ones(3, requires_grad=True))


def test_gradients_of_tensors_given_one_after_the_other():
    def program(x):
        outputs = (part.sum() for part in (x * NET[0].weight, x @ NET[0].weight))
        return torch.autograd.grad(outputs, (p for p in [NET[0].weight]))[0]

    x = torch.randn(4, 4)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x), program(x))


@pytest.mark.parametrize("times", [1, 2])
def test_a_module_once_torch_compile_was_used(monkeypatch, times):
    """It puts methods of its own into `torch.nn.Module`."""
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(torch.nn.Module, name, getattr(torch.nn.Module, name))
    needed = "___needs_generation_tag_patch"
    for _ in range(times):
        monkeypatch.setattr(torch.nn.Module, needed, True, raising=False)
        mutation_guard.install_generation_tagging_init()

    def program(x):
        return copy.deepcopy(NET)(x) + torch.nn.Identity()(x).sum()

    x = torch.randn(3, 4)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x), program(x))


class CopiedNumber(int):
    def __copy__(self):
        return "a copy"

    def __deepcopy__(self, memo):
        return "a deep copy"


def test_numbers_that_copy_themselves():
    compiled = pliant.compile(lambda x, number: (copy.copy(number), copy.deepcopy(number), x + 1))
    assert compiled(torch.ones(2), CopiedNumber(3))[:2] == ("a copy", "a deep copy")


def test_namespaces_and_what_has_no_copy():
    compiled = pliant.compile(lambda x, item: (copy.deepcopy(item), x + 1))
    item = types.SimpleNamespace(a=[1], b=torch.ones(2))
    duplicate = compiled(torch.ones(2), item)[0]
    assert duplicate.a == [1] and duplicate.a is not item.a
    assert duplicate.b.equal(item.b) and duplicate.b is not item.b
    with pytest.raises(TypeError, match="cannot pickle"):
        compiled(torch.ones(2), torch.finfo(torch.float32))


def shallow_copies(x):
    same_memory, of_result = copy.copy(x), copy.copy(x + 1)
    same_memory.add_(1)
    return same_memory, x, of_result, same_memory is x, copy.copy([x])[0] is x


def shallow_copies_are_leaves(x):
    x = x.requires_grad_()
    parameter = copy.copy(torch.nn.Parameter(x))
    copies = copy.copy(x), copy.copy(x * 2), parameter
    return [(y.is_leaf, y.requires_grad, type(y).__name__, y * 2) for y in copies]


def iterators(x):
    items = iter([1, x, 3])
    next(items)
    copied, deep = copy.copy(items), copy.deepcopy(items)
    first, second = itertools.tee(iter([1, 2]))
    next(first)
    third = copy.copy(first)
    ended = copy.copy(iter(()))
    return [list(iterator) for iterator in (items, copied, deep, first, second, third, ended)]


@pytest.mark.parametrize("program", [shallow_copies, shallow_copies_are_leaves, iterators])
def test_copies_of_tensors_and_iterators(program, check):
    check(program, torch.ones(3))


def test_a_copy_of_an_argument_that_requires_gradients():
    compiled = pliant.compile(lambda x: copy.copy(x) * 2, fullgraph=True)
    for _ in range(2):
        result = compiled(torch.ones(2, requires_grad=True))
        assert result.requires_grad and result.tolist() == [2, 2]
