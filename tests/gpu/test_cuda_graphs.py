"""`mode="reduce-overhead"` on a GPU: launches are replayed, and nobody can tell."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.launch import cuda_graphs

pytestmark = pytest.mark.own_default


@pytest.fixture
def replays(monkeypatch):
    """How often recordings ran."""
    counted = []
    original = cuda_graphs.RecordedLaunch.run

    def run(recording, args):
        counted.append(recording)
        return original(recording, args)

    monkeypatch.setattr(cuda_graphs.RecordedLaunch, "run", run)
    return counted


def network():
    layers = [nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Softmax(-1)]
    return nn.Sequential(*layers, nn.Linear(64, 10)).cuda().eval()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_new_inputs_and_results_that_are_kept(dynamic, inference, replays):
    model = network()
    compiled = pliant.compile(model, mode="reduce-overhead", dynamic=dynamic)
    results = []
    with torch.inference_mode() if inference else torch.no_grad():
        for rows in (8, 8, 8, 8, 8, 8, 24 if dynamic else 8, 8, 8):
            x = torch.randn(rows, 64, device="cuda")
            results.append((compiled(x), model(x)))
            if len(results) > 2:
                torch.testing.assert_close(*results.pop(0))
    for actual, expected in results:
        torch.testing.assert_close(actual, expected)
    assert len(replays) >= 4


def test_weights_that_change(replays):
    model = network()
    compiled = pliant.compile(model, mode="reduce-overhead")
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        for step in range(6):
            model[0].weight.mul_(1.5)
            if step == 3:
                model[0].weight.data = model[0].weight.clone() * 2
            torch.testing.assert_close(compiled(x), model(x))
    assert replays


def test_inside_of_a_stream_and_of_another_recording(replays):
    model = network()
    compiled = pliant.compile(model, mode="reduce-overhead")
    x = torch.randn(8, 64, device="cuda")
    with torch.no_grad():
        expected = model(x)
        for _ in range(3):
            compiled(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                torch.testing.assert_close(compiled(x), expected)
        torch.cuda.current_stream().wait_stream(stream)
        graph, before = torch.cuda.CUDAGraph(), len(replays)
        with torch.cuda.graph(graph):
            result = compiled(x)
        assert len(replays) == before
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(result, model(x))


PROGRAMS = {
    "item": lambda x: (x * 2).tanh() * (x @ x).sum().item() + (x @ x).exp(),
    "dropout": lambda x: F.dropout(x @ x, 0.5) @ x + (x + 1) @ x,
    "cpu": lambda x: ((x @ x).cpu() + 1) @ (x @ x).cpu(),
    "argument": lambda x: (x, (x @ x + 1) @ x @ (x * 2) @ x),
    "in place": lambda x: (x.add_(1) @ x + 1) @ x @ x @ x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function, results = PROGRAMS[name], []
    for call in (function, pliant.compile(function, mode="reduce-overhead")):
        x = torch.eye(16, device="cuda") + 0.1
        torch.manual_seed(3)
        results.append([[call(x) for _ in range(5)], x])
    torch.testing.assert_close(*results)


def test_memory_is_freed():
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model = network()
    compiled = pliant.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            compiled(torch.randn(8, 64, device="cuda"))
    pliant.reset()
    del model, compiled
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (64 << 20)  # what cuBLAS keeps
