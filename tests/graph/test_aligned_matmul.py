"""Products of matrices whose rows are filled up to multiples of 16 bytes, as GPUs like it. Here the
CPU computes them."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from pliant.graph.matmul import HALVES, MatmulLowering

X = torch.randn(2, 5, 13).bfloat16()
W, V = torch.randn(11, 13).bfloat16(), torch.randn(13, 11).bfloat16()

PROGRAMS = {
    "linear": lambda x: F.linear(x, W),
    "read by a kernel": lambda x: F.linear(x, W) * 2,
    "written to": lambda x: F.linear(x, W).mul_(2).add_(1),
    "returned and read": lambda x: (y := F.linear(x, W), y.exp()),
    "a view": lambda x: F.linear(x, W)[:, 1:, ::2],
    "mm": lambda x: x[0] @ V,
    "transposed": lambda x: x[0].t() @ x[1],
    "of one operand": lambda x: (x[0] @ V, x[0].t() @ x[0]),
    "computed operands": lambda x: ((x[0] * 2).t() @ x[1].exp(), (x[0] * 2) @ V),
    "strided": lambda x: x[0, :, ::2] @ V[::2],
    "as it should be": lambda x: x[0, :, :8].contiguous() @ V[:8, :8].contiguous(),
}
UNTOUCHED = ("strided", "as it should be")


@pytest.fixture
def aligned(monkeypatch):
    """All products of halves are filled up; the sizes of those that are called."""
    seen = []
    called = MatmulLowering._called

    def note(self, node, func, args, sizes, result, aligned=False):
        seen.append([(size.value or 0) % 8 for size in sizes] if aligned else None)
        return called(self, node, func, args, sizes, result, aligned)

    monkeypatch.setattr(MatmulLowering, "_called", note)
    monkeypatch.setattr(
        MatmulLowering, "_gains_by_alignment", lambda self, a, b, result: result.dtype in HALVES
    )
    return seen


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_product(name, dynamic, aligned):
    compiled = pliant.compile(PROGRAMS[name], backend="llvm", dynamic=dynamic)
    torch.testing.assert_close(compiled(X), PROGRAMS[name](X))
    assert any(sizes is not None and sizes[1] == 0 for sizes in aligned) or name in UNTOUCHED


def test_one_product_for_all_sizes(aligned):
    compiled = pliant.compile(lambda x, w: F.linear(x, w) + 1, backend="llvm", dynamic=True)
    for rows, width, columns in [(3, 5, 7), (4, 8, 16), (2, 17, 9), (0, 5, 7), (3, 0, 7)]:
        x, w = torch.randn(rows, width).half(), torch.randn(columns, width).half()
        torch.testing.assert_close(compiled(x, w), F.linear(x, w) + 1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(dynamic, aligned):
    weight = W.clone().requires_grad_()

    def loss(x):
        return F.cross_entropy(F.linear(x, weight).flatten(0, 1).float(), torch.arange(10) % 11)

    gradients = []
    for function in (loss, pliant.compile(loss, backend="llvm", dynamic=dynamic)):
        x = X.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(x), (x, weight)))
    torch.testing.assert_close(*gradients)
    assert len([sizes for sizes in aligned if sizes is not None]) >= 3


def test_small_products_are_left_alone(monkeypatch):
    monkeypatch.setattr(MatmulLowering, "_aligned", None)  # which would fail
    torch.testing.assert_close(pliant.compile(PROGRAMS["mm"], backend="llvm")(X), X[0] @ V)


def test_a_matrix_that_is_multiplied_from_both_sides_is_filled_once(aligned, stream):
    """As the gradient of a product is, for each of its operands."""
    x, w, v = torch.randn(16, 11).half(), torch.randn(11, 8).half(), torch.randn(16, 8).half()

    def program(x, w, v):
        y = x * 2
        return y @ w, y.t() @ v

    torch.testing.assert_close(pliant.compile(program, backend="llvm")(x, w, v), program(x, w, v))
    (event,) = [e for e in stream if isinstance(e, events.StageFinished) and e.stage == "program"]
    assert event.text().count("sizes [v0, v0] strides [v0, v1]") == 1  # 16 rows of 16
