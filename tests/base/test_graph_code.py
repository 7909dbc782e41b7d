"""The code of a captured graph is written when it is wanted, and is then PyTorch's."""

import copy
import pickle

import pytest
import torch

import pliant


def grown(x):
    return torch.sin(x) * 2


X = torch.ones(3)


def captured(backend="llvm"):
    (graph,) = pliant.explain(grown, backend=backend)(X).graphs
    return graph


def pickled(graph):
    graph.meta.clear()  # what our backends are told, which can't be pickled
    return pickle.dumps(graph)


WANTED = {
    "the code": lambda graph: graph.code,
    "the text": str,
    "the method": lambda graph: graph.forward,
    "a call": lambda graph: graph(X),
    "new code": lambda graph: graph.recompile(),
    "a pickle": pickled,
    "the lines": lambda graph: graph._lineno_map,
}


@pytest.mark.parametrize("want", WANTED.values(), ids=WANTED)
def test_code_is_written_when_it_is_wanted(want):
    graph = captured()
    assert "_code" not in vars(graph)
    want(graph)
    assert "torch.sin" in graph.code
    assert torch.equal(graph(X)[0], grown(X))


def test_code_is_not_written_where_generated_code_runs():
    compiled = pliant.compile(grown, backend="llvm")
    compiled(X), compiled(X)
    (graph,) = pliant.explain(compiled)(X).graphs
    assert "_code" not in vars(graph)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy], ids=["deep", "shallow"])
def test_copies_run(copied):
    assert torch.equal(copied(captured())(X)[0], grown(X))


def test_pickles_run():
    graph = pickle.loads(pickled(captured()))
    assert torch.equal(graph(X)[0], grown(X))


def test_a_changed_graph_is_written_anew():
    graph = captured()
    (node,) = graph.graph.find_nodes(op="call_function", target=torch.sin)
    node.target = torch.cos
    graph.recompile()
    assert torch.equal(graph(X)[0], torch.cos(X) * 2)


def test_a_backend_gets_a_graph_that_is_called_like_the_function():
    seen = []

    def backend(gm, example_inputs):
        seen.append((type(gm).__name__, isinstance(gm, torch.fx.GraphModule)))
        return gm.forward

    pliant.compile(grown, backend=backend)(X)
    assert seen == [("grown", True)]
