"""`flex_attention` with functions of the program's: one graph, the same as eager PyTorch."""

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pliant
from pliant.base import events

HEADS = 2
BIAS = torch.tensor([0.5, -1.5])
DOCUMENTS = torch.arange(40).div(16, rounding_mode="floor")
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, 32, 32, device="cpu")

PROGRAMS = {
    "plain": lambda q, k, v: flex_attention(q, k, v),
    "scores by position": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: s + (i - j)
    ),
    "a value for each head": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: torch.tanh(s) * BIAS[h]
    ),
    "documents": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: torch.where(DOCUMENTS[i] == DOCUMENTS[j], s, -1e4)
    ),
    "a value of the program": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j, w=2.0: s * w, scale=0.1
    ),
    "a mask": lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL),
    "groups of heads": lambda q, k, v: flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
}


def inputs(length=32, batch=2, dtype=torch.float32):
    return [torch.randn(batch, HEADS, length, 8, dtype=dtype) for _ in range(3)]


def eagerly(program, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program(*args)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_same_as_eager(name, backend, dtype):
    args = inputs(dtype=dtype)
    result = pliant.compile(PROGRAMS[name], fullgraph=True, backend=backend)(*args)
    torch.testing.assert_close(result, eagerly(PROGRAMS[name], *args))


def test_symbolic_sizes():
    program, before = PROGRAMS["a value for each head"], pliant.counters["compilations"]
    compiled = pliant.compile(program, fullgraph=True, dynamic=True, backend="llvm")
    for length in (32, 24, 40):
        args = inputs(length)
        torch.testing.assert_close(compiled(*args), eagerly(program, *args))
    assert pliant.counters["compilations"] == before + 1


def test_code_is_generated_around_the_functions():
    seen = []
    with events.listening(seen.append):
        pliant.compile(PROGRAMS["scores by position"], fullgraph=True, backend="llvm")(*inputs())
    (generated,) = [event for event in seen if isinstance(event, events.CodeGenerated)]
    assert generated.kernels()


def test_rows_without_a_key_are_zero():
    nothing = create_block_mask(lambda b, h, i, j: i < 0, None, None, 32, 32, device="cpu")

    def program(q, k, v):
        return flex_attention(q, k, v, block_mask=nothing, return_lse=True)

    result, total = pliant.compile(program, fullgraph=True)(*inputs())
    assert not result.any() and total.eq(-torch.inf).all()


def test_gradients_are_refused_as_by_eager():
    args = [t.requires_grad_() for t in inputs()]
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        pliant.compile(PROGRAMS["plain"])(*args)
