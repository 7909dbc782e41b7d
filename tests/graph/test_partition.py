"""What a forward saves for its backward, and what that computes again."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.training.gradients_of import compare, outcome


def saved(seen, function, *args) -> set[tuple[str, str]]:
    """Operator and shape of what is saved that is neither input nor output. Results and gradients
    are eager's."""
    compiled = pliant.compile(function, backend="llvm", dynamic=False)
    compare(outcome(compiled, args), outcome(function, args), rtol=1e-4, atol=1e-5)
    assert events.counters["not_generated"] == 0
    (event,) = seen(events.GraphPartitioned)
    lines = [line for line in event.report().split("\n") if line.startswith("saved")]
    rows = [re.split(r"  +", line) for line in lines]
    return {(row[1], row[2]) for row in rows if not row[4].startswith("is an ")}


def leaf(*sizes):
    return torch.randn(sizes, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_saves_bools(dtype, seen) -> None:
    x = torch.randn(32, 8, dtype=dtype, requires_grad=True)
    assert saved(seen, lambda x: F.dropout(x, 0.3), x) == {("aten.bernoulli.p", "bool[32, 8]")}


def test_dropout_of_attention_saves_bools(seen) -> None:
    def function(x):
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.2)

    found = saved(seen, function, leaf(2, 3, 8, 4))
    assert ("aten.bernoulli.p", "bool[2, 3, 8, 8]") in found
    assert not any(name in ("aten.div.Scalar", "pliant.stored") for name, _ in found)


def test_what_a_call_made_is_saved_rather_than_a_copy_with_something_done_to_it(seen) -> None:
    def function(x, weight, mean):
        centered = F.conv2d(x, weight) - mean
        return (centered * centered).sum()

    args = (leaf(2, 3, 8, 8), leaf(4, 3, 3, 3), torch.randn(1, 4, 1, 1))
    assert saved(seen, function, *args) == {("aten.convolution.default", "float32[2, 4, 6, 6]")}


def test_what_a_call_reads_is_saved_rather_than_stored_again(seen) -> None:
    def function(x, weight):
        return (x.sin() + 1) @ weight

    found = saved(seen, function, leaf(16, 16), leaf(16, 16))
    assert found == {("aten.add.Tensor", "float32[16, 16]")}


@pytest.mark.parametrize("exponent", [2, 3, -1, 0.5])
def test_simple_powers_are_computed_again(exponent, seen) -> None:
    def function(x):
        x = x.abs() + 1
        return ((x**exponent + 2) ** exponent * (x + 3)).sum()

    assert saved(seen, function, leaf(100)) == set()


def test_functions_of_inputs_are_computed_again(seen) -> None:
    """To read a value and to write it take longer than one function."""

    def function(logits, mask):
        p = torch.sigmoid(logits)
        q = (p * mask + (1 - p) * (1 - mask)).clamp_min(1e-6)
        return ((1 - q) ** 2 * q.log()).mean()

    found = saved(seen, function, leaf(4, 64), torch.rand(4, 64).round())
    assert found == set()


# --------------------------------------------------------------------------------------------------
# When it is freed


ALIVE: list[list[bool]] = []
WATCHED: list[torch.multiprocessing.reductions.StorageWeakRef] = []


@torch.library.custom_op("pliant_tests::watched", mutates_args=())
def watched(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("pliant_tests::watch", mutates_args=())
def watch(grad: torch.Tensor) -> torch.Tensor:
    ALIVE.append([not ref.expired() for ref in WATCHED])
    return grad.clone()


for _op in (watched, watch):
    _op.register_fake(torch.empty_like)
watched.register_autograd(lambda ctx, grad: watch(grad))


def products(x, weight):
    """Its backward ends with `watch`."""
    x = watched(x)
    for _ in range(3):
        x = (x @ weight).sin()
    return x


@pytest.fixture
def run():
    """A forward, all that it saved being watched; gives the result."""
    ALIVE.clear()
    WATCHED.clear()

    def forward():
        result = pliant.compile(products, backend="llvm")(leaf(8, 8), torch.randn(8, 8))
        reference = torch.multiprocessing.reductions.StorageWeakRef
        mine = [t for t in result.grad_fn.saved_tensors if not t.requires_grad]
        WATCHED.extend([reference(t.untyped_storage()) for t in mine[1:]])  # all but `weight`
        assert len(WATCHED) >= 3
        return result

    return forward


def test_saved_tensors_are_freed_as_the_backward_goes(run) -> None:
    run().sum().backward()
    assert ALIVE == [[False] * len(WATCHED)]


def test_a_graph_that_is_retained_keeps_them(run) -> None:
    result = run()
    result.sum().backward(retain_graph=True)
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    assert ALIVE == [[True] * len(WATCHED)] * 2 + [[False] * len(WATCHED)]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        result.sum().backward()


def test_a_hook_behind_the_node_sees_them(run) -> None:
    result = run()
    node = result.grad_fn
    counts = []
    node.register_hook(lambda gradients, tangents: counts.append(len(node.saved_tensors)))
    expected = len(node.saved_tensors)
    result.sum().backward()
    assert counts == [expected]
    assert ALIVE == [[True] * len(WATCHED)]
