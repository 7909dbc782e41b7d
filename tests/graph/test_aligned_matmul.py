"""Products of matrices whose rows are filled up to multiples of 16 bytes, as GPUs like it. Here the
CPU computes them."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends import compile_graph, training
from pliant.base import events
from pliant.graph import aligned_matmul, half_matmul

X = torch.randn(2, 5, 13).bfloat16()
W, V = torch.randn(11, 13).bfloat16(), torch.randn(13, 11).bfloat16()

PROGRAMS = {
    "linear": lambda x: F.linear(x, W),
    "read by a kernel": lambda x: F.linear(x, W) * 2,
    "written to": lambda x: F.linear(x, W).mul_(2).add_(1),
    "returned and read": lambda x: (y := F.linear(x, W), y.exp()),
    "a view": lambda x: F.linear(x, W)[:, 1:, ::2],
    "with a bias": lambda x: F.linear(x, W, V[0]),
    "mm": lambda x: x[0] @ V,
    "transposed": lambda x: x[0].t() @ x[1],
    "of one operand": lambda x: (x[0] @ V, x[0].t() @ x[0]),
    "computed operands": lambda x: ((x[0] * 2).t() @ x[1].exp(), (x[0] * 2) @ V),
    "strided": lambda x: x[0, :, ::2] @ V[::2],
    "as it should be": lambda x: x[0, :, :8].contiguous() @ V[:8, :8].contiguous(),
}
UNTOUCHED = ("strided", "as it should be")


@pytest.fixture
def padded(monkeypatch):
    """As on a GPU, products of any size; the sizes of those that are padded."""
    seen, product = [], aligned_matmul._Padding.product

    def note(self, node, factors):
        parts = product(self, node, factors)
        calls = [
            part for part in parts or () if part.name in ("aten.mm.default", "aten.addmm.default")
        ]
        seen.extend([[(size.value or 0) % 8 for size in c.results[0].sizes] for c in calls])
        return parts

    def gains(node, factors, hint):
        rows = map(half_matmul.row_of, (factors.first, factors.second))
        widths = (node.results[0].sizes[-1], factors.first.sizes[-1], *rows)
        return any(size.value is None or size.value % 8 for size in widths)

    for module in (training, compile_graph):
        monkeypatch.setattr(module, "simplify", partial(on_gpu, module.simplify))
    monkeypatch.setattr(aligned_matmul._Padding, "product", note)
    monkeypatch.setattr(aligned_matmul, "gains", gains)
    return seen


def on_gpu(simplify, function, target, hint):
    simplify(function, target, hint)
    aligned_matmul.align_products(function, hint)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_product(name, dynamic, padded):
    compiled = pliant.compile(PROGRAMS[name], backend="llvm", dynamic=dynamic)
    torch.testing.assert_close(compiled(X), PROGRAMS[name](X))
    assert (padded and all(sizes[1] == 0 for sizes in padded)) or name in UNTOUCHED


def test_one_product_for_all_sizes(padded):
    compiled = pliant.compile(lambda x, w: F.linear(x, w) + 1, backend="llvm", dynamic=True)
    for rows, width, columns in [(3, 5, 7), (4, 8, 16), (2, 17, 9), (0, 5, 7), (3, 0, 7)]:
        x, w = torch.randn(rows, width).half(), torch.randn(columns, width).half()
        torch.testing.assert_close(compiled(x, w), F.linear(x, w) + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(dynamic, padded):
    weight = W.clone().requires_grad_()

    def loss(x):
        return F.cross_entropy(F.linear(x, weight).flatten(0, 1).float(), torch.arange(10) % 11)

    gradients = []
    for function in (loss, pliant.compile(loss, backend="llvm", dynamic=dynamic)):
        x = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(x), (x, weight)))
    torch.testing.assert_close(*gradients)
    assert len(padded) >= 3


def test_small_products_are_left_alone(monkeypatch):
    monkeypatch.setattr(aligned_matmul._Padding, "product", None)  # which would fail
    monkeypatch.setattr(compile_graph, "simplify", partial(on_gpu, compile_graph.simplify))
    torch.testing.assert_close(pliant.compile(PROGRAMS["mm"], backend="llvm")(X), X[0] @ V)


def test_a_matrix_that_is_multiplied_from_both_sides_is_filled_once(padded, stream):
    """As the gradient of a product is, for each of its operands."""
    x, w, v = torch.randn(16, 11).half(), torch.randn(11, 8).half(), torch.randn(16, 8).half()

    def program(x, w, v):
        y = x * 2
        return y @ w, y.t() @ v

    torch.testing.assert_close(pliant.compile(program, backend="llvm")(x, w, v), program(x, w, v))
    (event,) = [e for e in stream if isinstance(e, events.StageFinished) and e.stage == "program"]
    assert event.text().count("sizes [v0, v0] strides [v0, v1]") == 1  # 16 rows of 16
