"""PyTorch's transformer layers take their fast path, with nested tensors, where eager does."""

from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.support.against_eager import check

BATCH, LENGTH, WIDTH = 3, 5, 16

MASKS = {
    "none": None,
    "right-padded": torch.tensor([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]).bool(),
    "left-padded": torch.tensor([[0, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]).bool(),
    "all-padded": torch.ones(BATCH, LENGTH, dtype=torch.bool),
    "nothing-padded": torch.zeros(BATCH, LENGTH, dtype=torch.bool),
}
MASKS["float"] = torch.zeros(BATCH, LENGTH).masked_fill(MASKS["right-padded"], float("-inf"))


def source(batch_first: bool) -> torch.Tensor:
    return torch.randn((BATCH, LENGTH, WIDTH) if batch_first else (LENGTH, BATCH, WIDTH))


def layer(batch_first: bool, **settings: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=batch_first, **settings)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("nested", [True, False])
def test_encoder_in_inference(mask: str, batch_first: bool, nested: bool) -> None:
    encoder = nn.TransformerEncoder(layer(batch_first), 2, enable_nested_tensor=nested).eval()

    def encode(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        with torch.no_grad():
            return encoder(x * 2, src_key_padding_mask=mask) + 1

    check(encode, source(batch_first), MASKS[mask], breaks=None)


@pytest.mark.filterwarnings("ignore")
def test_encoder_zeroes_padding_as_eager_does() -> None:
    encoder = nn.TransformerEncoder(layer(True), 2).eval()
    compiled = pliant.compile(encoder)
    with torch.no_grad():
        for mask in (MASKS["right-padded"], MASKS["nothing-padded"], MASKS["right-padded"]):
            out = compiled(source(True), src_key_padding_mask=mask)
            assert (out[mask] == 0).all()
            assert (out[~mask] != 0).any()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("settings", [{}, {"norm_first": True}, {"activation": "gelu"}])
def test_layer_in_inference(mask: str, settings: dict[str, Any]) -> None:
    module = layer(True, **settings).eval()

    def encode(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        with torch.no_grad():
            return module(x, src_key_padding_mask=mask)

    check(encode, source(True), MASKS[mask], breaks=None)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_attention_in_inference(mask: str, batch_first: bool, weights: bool) -> None:
    attention = nn.MultiheadAttention(WIDTH, 2, batch_first=batch_first).eval()

    def attend(x: torch.Tensor, mask: torch.Tensor | None) -> Any:
        with torch.no_grad():
            return attention(x, x, x, key_padding_mask=mask, need_weights=weights)

    check(attend, source(batch_first), MASKS[mask], breaks=None)


def test_hooks_called_when_forward_raises() -> None:
    """`Module.__call__` leaves them out under PyTorch's own compiler."""
    module = nn.Linear(2, 2)
    calls: list[str] = []
    module.register_forward_hook(lambda m, args, out: calls.append("hook"), always_call=True)
    for run in (module, pliant.compile(module)):
        with pytest.raises(RuntimeError):
            run(torch.ones(3))
    assert calls == ["hook", "hook"]


@torch.library.custom_op("pliant_tests::all_positive", mutates_args=())
def all_positive(x: torch.Tensor) -> bool:
    return bool((x > 0).all())


@all_positive.register_fake
def _(x: torch.Tensor) -> bool:
    return True


def test_operator_that_answers_from_data() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if torch.ops.pliant_tests.all_positive(x * 2) else x - 1

    compiled = pliant.compile(step)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(x), step(x))
