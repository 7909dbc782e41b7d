"""Autocast in generated code: what PyTorch composes of operators is cast as its parts are."""

import contextlib

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.graph.autocast import nesting

PROGRAMS = {
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, x),
    "einsum, batched": lambda x, y: torch.einsum("bij,bkj->bik", y, y),
    "einsum of three": lambda x, y: torch.einsum("ij,jk,kl->il", x, x.T, x),
    "tensordot": lambda x, y: torch.tensordot(x, x, dims=([1], [1])),
    "inner": lambda x, y: torch.inner(x, x),
    "multi_dot": lambda x, y: torch.linalg.multi_dot([x, x.T, x]),
    "matrix_power": lambda x, y: torch.linalg.matrix_power(x[:, :2], 3),
    "matmul": lambda x, y: y @ y.mT,
    "linear": lambda x, y: F.linear(x, x),
    "cdist": lambda x, y: torch.cdist(x, x),
    "softmax": lambda x, y: F.softmax(x @ x.T, -1),
    "cosine similarity": lambda x, y: torch.cosine_similarity(x, x + 1),
    "layer norm": lambda x, y: F.layer_norm(F.linear(x, x), (2,)),
}
BFLOAT = torch.bfloat16


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference", "gradients"])
def test_same_as_eager(name, inside, mode):
    around = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
    x = torch.randn(2, 3, requires_grad=mode == "gradients")
    y = torch.randn(4, 2, 3, requires_grad=mode == "gradients")

    def program(x, y):
        with torch.autocast("cpu", dtype=BFLOAT) if inside else contextlib.nullcontext():
            return PROGRAMS[name](x, y) * 2

    results = []
    for function in (program, pliant.compile(program, fullgraph=True)):
        with around.get(mode, contextlib.nullcontext)():
            with contextlib.nullcontext() if inside else torch.autocast("cpu", dtype=BFLOAT):
                results.append(function(x, y))
    expected, actual = results
    assert actual.dtype is expected.dtype
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)


def test_off_inside_of_on():
    def program(x):
        with torch.autocast("cpu", dtype=BFLOAT):
            first = torch.einsum("ij,kj->ik", x, x)
            with torch.autocast("cpu", enabled=False):
                return first, torch.einsum("ij,kj->ik", x, x)

    compiled = pliant.compile(program, fullgraph=True)
    assert [t.dtype for t in compiled(torch.ones(2, 3))] == [BFLOAT, torch.float32]


@pytest.mark.parametrize("inference", [False, True])
def test_the_program_sees_the_dtype(inference):
    def program(x):
        with torch.autocast("cpu", dtype=BFLOAT):
            return torch.inner(x, x).dtype, x + 1

    with torch.inference_mode(inference):
        compiled = pliant.compile(program, fullgraph=True)
        assert compiled(torch.ones(2, 3))[0] is program(torch.ones(2, 3))[0]


def test_a_block_of_autocast_inside_another_with_a_break_in_it():
    """Leaving the inner block changes nothing but how deep blocks are nested, on which PyTorch's
    cache of casts depends."""

    def program(x):
        with autocast(), torch.inference_mode(), autocast():
            y = x @ x
            pliant.graph_break()
            y = y * 2
        return y, nesting()

    def autocast():
        return torch.autocast("cpu", dtype=torch.bfloat16)

    compiled = pliant.compile(program, backend="llvm")
    for _ in range(3):
        y, inside = compiled(torch.ones(4, 4))
        assert (inside, nesting(), y.dtype) == (0, 0, torch.bfloat16)
