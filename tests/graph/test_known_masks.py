"""Attention with masks that positions alone decide is told what they say, for all sizes."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events

pytestmark = pytest.mark.own_default
Q = torch.randn(2, 3, 16, 8)
LONGER = torch.randn(3, 3, 21, 8)


def positions(q):
    return torch.arange(q.shape[2], device=q.device)


def causal(q):
    at = positions(q)
    return at[None, :] <= at[:, None]


def shifted(q):
    at = positions(q) + 3
    return (at[None, :] <= at[:, None])[None, None].expand(q.shape[0], 1, -1, -1)


def packed(q):
    """As transformers computes it from positions: each sequence sees itself."""
    assert q.shape[2] > 1
    at = positions(q)[None].expand(q.shape[0], -1)
    jumps = torch.diff(at, prepend=at[:, :1] - 1, dim=-1) != 1
    which = jumps.cumsum(-1)
    batch = torch.arange(q.shape[0], device=q.device)[:, None, None, None]
    row, column = positions(q)[None, None, :, None], positions(q)[None, None, None, :]
    same = which[batch, row] == which[batch, column]
    return (row.new_ones((), dtype=torch.bool) & (column <= row)) & same


def tril(q):
    at = positions(q)
    return ~(at[None, :] > at[:, None]) & torch.ones(q.shape[2], q.shape[2], dtype=torch.bool)


def of_floats(q):
    return torch.where(causal(q), 0.0, float("-inf"))


def nothing(q):
    at = positions(q)
    return (at[None, :] >= 0).expand(q.shape[2], -1)


def all_of_them(q):
    return torch.ones(1, 1, q.shape[2], q.shape[2], dtype=torch.bool, device=q.device)


def window(q):
    at = positions(q)
    return causal(q) & (at[None, :] > at[:, None] - 5)


def one_more(q):
    at = positions(q)
    return at[None, :] <= at[:, None] + 1


def anti_causal(q):
    at = positions(q)
    return at[None, :] >= at[:, None]


def from_data(q):
    return causal(q) & (q[:1, :1, 0, :1] > -99)


def of_other_positions(q):
    at = torch.cat([positions(q)[:1] + 1, positions(q)[1:]])
    return (at[None, :] <= at[:, None]) | (at[None, :] == 1)


def attention(mask):
    def program(q):
        return F.scaled_dot_product_attention(q, q * 2, q + 1, attn_mask=mask(q))

    return program


@pytest.fixture
def attention_calls(stream):
    """The calls of attention in generated code."""

    def calls():
        told = [e for e in stream if isinstance(e, events.StageFinished) and e.stage == "program"]
        lines = "\n".join([event.text() for event in told]).splitlines()
        return [line for line in lines if "attention" in line]

    return calls


MODES = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])


@MODES
@pytest.mark.parametrize("mask", [causal, shifted, packed, tril, of_floats])
def test_causal_masks(mask, dynamic, attention_calls):
    program = attention(mask)
    compiled = pliant.compile(program, dynamic=dynamic, fullgraph=True)
    with torch.no_grad():
        for q in (Q, LONGER):
            torch.testing.assert_close(compiled(q), program(q))
    calls = attention_calls()
    assert calls and all("None, 0.0, True" in call for call in calls)


@MODES
@pytest.mark.parametrize("mask", [nothing, all_of_them])
def test_masks_that_hide_nothing(mask, dynamic, attention_calls):
    program = attention(mask)
    with torch.no_grad():
        actual = pliant.compile(program, dynamic=dynamic, fullgraph=True)(Q)
        torch.testing.assert_close(actual, program(Q))
    (call,) = attention_calls()
    assert "None, 0.0, False" in call


@MODES
@pytest.mark.parametrize("mask", [window, one_more, anti_causal, from_data, of_other_positions])
def test_other_masks_stay(mask, dynamic, attention_calls):
    program = attention(mask)
    with torch.no_grad():
        actual = pliant.compile(program, dynamic=dynamic, fullgraph=True)(Q)
        torch.testing.assert_close(actual, program(Q))
    (call,) = attention_calls()
    assert "None, 0.0" not in call


def test_a_mask_that_is_returned_is_still_computed(attention_calls):
    def program(q):
        mask = causal(q)
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask), mask

    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program, fullgraph=True)(Q), program(Q))
    (call,) = attention_calls()
    assert "True" in call


def test_lookups_that_are_out_of_range_still_raise(attention_calls):
    """Positions beyond the tensor are an error, though all of its elements are the same."""

    def program(q):
        zeros = torch.zeros(q.shape[2] - 1, dtype=torch.long)
        at = positions(q)
        return F.scaled_dot_product_attention(
            q, q, q, attn_mask=causal(q) & (zeros[at][:, None] == zeros[at])
        )

    with torch.no_grad(), pytest.raises(IndexError):
        pliant.compile(program)(Q)


def test_a_mask_of_one_row(attention_calls):
    """One query that sees the first key only is not what `is_causal` says of several."""

    def program(q):
        return F.scaled_dot_product_attention(q[:, :, :1], q, q, attn_mask=causal(q)[:1])

    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program, fullgraph=True)(Q), program(Q))
