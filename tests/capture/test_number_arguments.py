"""Tensors of one element where PyTorch or Python wants a number: the graph reads it."""

import operator

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.support.against_eager import check

X = torch.arange(24.0).reshape(6, 4)
NUMBERS = (2, 3, 0, -1)

CALLS = {
    "narrow": lambda x, n: torch.narrow(x, 0, n, 2),
    "narrow from the end": lambda x, n: x.narrow(0, -n, 2),
    "narrow to a length": lambda x, n: x.narrow(0, 0, n),
    "narrow both": lambda x, n: x.narrow(0, n, n),
    "select": lambda x, n: torch.select(x, 0, n),
    "repeat": lambda x, n: x.repeat(n, 1),
    "roll": lambda x, n: torch.roll(x, n, 0),
    "alpha": lambda x, n: torch.add(x, x, alpha=n),
    "full": lambda x, n: torch.full((2,), n),
    "pad": lambda x, n: F.pad(x, (n, n)),
    "pad twice": lambda x, n: F.pad(x, (n, 1, 0, n), value=1.5),
    "cut": lambda x, n: F.pad(x, (-n, 2)),
    "index": lambda x, n: x + operator.index(n),
    "padded product": lambda x, n: F.pad(x, (n, 0)) @ x,
    "padded linear": lambda x, n: F.linear(F.pad(x, (0, n)), x, x[:, 0]),
    "padded addmm": lambda x, n: torch.addmm(x[0], F.pad(x, (0, n)), x),
    "padded batches": lambda x, n: torch.bmm(F.pad(x, (0, n))[None], x[None]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls(call):
    def f(x, n):
        return call(x, n) * 2

    for number in NUMBERS:
        check(f, X, torch.tensor(number))


def test_the_number_is_read_once():
    nodes = []

    def backend(graph, examples):
        nodes.extend(node.target for node in graph.graph.nodes)
        return graph

    compiled = pliant.compile(lambda x, n: x.narrow(0, n, n), backend=backend, fullgraph=True)
    assert compiled(X, torch.tensor(2)).equal(X[2:4])
    assert nodes.count("item") == 1


@pytest.mark.parametrize("tensor", [torch.tensor(1.0), torch.tensor([0, 1]), torch.tensor(1j)])
def test_other_tensors_are_no_index(tensor):
    check(lambda x, n: [1, 2, 3][n] + x, X, tensor)


SPLITS = {
    "function": lambda x, n: torch.tensor_split(x, n),
    "method": lambda x, n: x.tensor_split(n, 1),
    "by name": lambda x, n: x.tensor_split(dim=1, tensor_indices_or_sections=n),
    "computed": lambda x, n: torch.tensor_split(x, torch.tensor((n + 1).tolist(), dtype=n.dtype)),
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@pytest.mark.parametrize("indices", [[1, 2, 3], [3, 1, 9], [-3, -1, 0], []])
def test_split_at_indices_in_a_tensor(split, indices):
    def f(x, n):
        parts = split(x, n)
        return [part + 1 for part in parts], parts[0]

    check(f, X, torch.tensor(indices, dtype=torch.int64), graphs=1)


# ---- items of lists and tuples

TABLE = [5, 7, 9]
LOOKUPS = {
    "list": lambda x, n: ([10, 20, 30][n], x + 1),
    "tuple": lambda x, n: x + (10, 20, 30)[n],
    "item": lambda x, n: x + [10, 20, 30][n.item()],
    "floats": lambda x, n: x * [1.5, 2.5, -0.5][n],
    "from outside": lambda x, n: x + TABLE[n],
    "size": lambda x, n: torch.zeros([1, 2, 3][n]),
    "slice": lambda x, n: x[: [1, 2, 3][n]],
    "sizes": lambda x, n: (x[None].shape[n], x + 1),
}


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("number", [2, 0, -1, -3, 3, -4])
def test_numbers_chosen_by_data(lookup, number):
    check(lookup, X, torch.tensor(number), graphs=1 if -4 < number < 3 else None)


def test_numbers_chosen_by_data_are_compiled_once():
    compilations = []

    def backend(graph, examples):
        compilations.append(graph)
        return graph

    compiled = pliant.compile(lambda x, n: x + [3, 1, 2][n], backend=backend, fullgraph=True)
    for number in (0, 1, 2, -1):
        assert compiled(X, torch.tensor(number)).equal(X + [3, 1, 2][number])
    assert len(compilations) == 1


OTHER = {
    "mixed": lambda x, n: x + [1, 2.5, 3][n],
    "tensors": lambda x, n: [x, x + 1, x + 2][n],
    "flags": lambda x, n: (x + 1, [True, False, True][n]),
    "texts": lambda x, n: (x + 1, ["a", "b", "c"][n]),
}


@pytest.mark.parametrize("lookup", OTHER.values(), ids=OTHER)
def test_other_items_are_looked_up_by_python(lookup):
    check(lookup, X, torch.tensor(1), graphs=None, breaks=None)
