"""Recurrent networks are called whole: once for a sequence, whatever its length."""

import pytest
import torch

import pliant
from pliant.base import events

pytestmark = pytest.mark.own_default

LAYERS = {
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
    "rnn_tanh": torch.nn.RNN,
    "rnn_relu": lambda *args, **kwargs: torch.nn.RNN(*args, nonlinearity="relu", **kwargs),
}


def flat(results):
    output, state = results
    return [output, *(state if isinstance(state, tuple) else (state,))]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}])
def test_a_sequence_is_one_call(name, dynamic, options):
    torch.manual_seed(0)
    layer = LAYERS[name](3, 4, **options)
    made = []
    compiled = pliant.compile(lambda x: layer(x * 2), dynamic=dynamic)
    with events.listening(made.append), torch.no_grad():
        for length in (5, 5, 7):
            x = torch.randn(length, 2, 3)
            for result, expected in zip(flat(compiled(x)), flat(layer(x * 2)), strict=True):
                torch.testing.assert_close(result, expected)
                assert result.stride() == expected.stride()
    for generated in [e for e in made if isinstance(e, events.CodeGenerated)]:
        called = [text.partition(":")[0] for text in generated.called]
        assert f"aten.{name}.input" in called and generated.called.total() <= 2


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_pytorch(name):
    torch.manual_seed(0)
    layer = LAYERS[name](3, 4)
    x = torch.randn(5, 2, 3, requires_grad=True)
    grads = []
    for function in (lambda x: layer(x)[0].sum(), pliant.compile(lambda x: layer(x)[0].sum())):
        grads.append(torch.autograd.grad(function(x), [x, *layer.parameters()]))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other)
