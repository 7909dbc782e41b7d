"""`generate` of a transformers model: compiled in place, it runs compiled code at each step."""

import copy

import pytest
import torch

import pliant
from benchmarks.model_zoo import build, tokens
from pliant.base import events

pytestmark = pytest.mark.models

GREEDY = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}


def test_in_place():
    model = build("gpt2")
    prompts = [tokens(2, 5), tokens(3, 8)]
    expected = [model.generate(prompt, **GREEDY) for prompt in prompts]
    keys = list(model.state_dict())
    assert pliant.compile_module(model) is model
    for prompt, wanted in zip(prompts, expected, strict=True):
        assert torch.equal(model.generate(prompt, **GREEDY), wanted)
    dispatcher = model._compiled_call_impl.__func__
    assert sum(entry.hits for entry in dispatcher.entries) == 2 * GREEDY["max_new_tokens"]
    assert pliant.counters["compilations"] <= 5 and pliant.counters["graph_breaks"] == 0
    assert list(model.state_dict()) == keys and type(copy.deepcopy(model)) is type(model)
    pliant.uncompile_module(model)
    pliant.counters.reset()
    assert torch.equal(model.generate(prompts[0], **GREEDY), expected[0])
    assert pliant.counters["compilations"] == 0


def test_it_is_told_that_the_original_runs(seen):
    model = build("gpt2")
    compiled = pliant.compile(model)
    prompt = tokens(2, 5)
    expected = model.generate(prompt, **GREEDY)
    for _ in range(2):
        assert torch.equal(compiled.generate(prompt, **GREEDY), expected)
    [event] = seen(events.RanOriginal)
    assert event.function == "GPT2LMHeadModel.generate"
    assert pliant.counters["compilations"] == 0
