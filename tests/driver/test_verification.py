"""`config.verify_correctness`."""

import operator

import pytest
import torch

import pliant


@pytest.fixture(autouse=True)
def verifying():
    pliant.config.verify_correctness = True
    yield
    pliant.config.verify_correctness = False


def subtracting(gm, example_inputs):
    """A backend that is wrong about additions."""
    for node in gm.graph.nodes:
        if node.target is operator.add:
            node.target = operator.sub
    return torch.fx.GraphModule(gm, gm.graph).forward


def forgetful(gm, example_inputs):
    """A backend that leaves out writes."""
    return lambda x: (torch.ones(3),)


def test_a_wrong_result_is_an_error():
    compiled = pliant.compile(lambda x: x * 2 + 1, backend=subtracting)
    with pytest.raises(pliant.errors.BackendError, match="other results"):
        compiled(torch.ones(3))


def test_a_missing_write_is_an_error():
    def program(x):
        x.add_(1)
        return torch.ones(3)

    x = torch.ones(3)
    with pytest.raises(pliant.errors.BackendError, match="other results"):
        pliant.compile(program, backend=forgetful)(x)
    assert x.tolist() == [1, 1, 1]


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_right_runs_once(backend, dynamic):
    def program(x, w):
        x.mul_(2)
        return torch.nn.functional.dropout(x @ w, 0.5) + torch.rand(3)

    results = []
    for function in (program, pliant.compile(program, backend=backend, dynamic=dynamic)):
        torch.manual_seed(3)
        x, w = torch.ones(3), torch.ones(3, 3, requires_grad=True)
        result = function(x, w)
        result.sum().backward()
        results.append([x.tolist(), result.tolist(), w.grad.tolist(), torch.rand(1).item()])
    assert results[0] == results[1]
