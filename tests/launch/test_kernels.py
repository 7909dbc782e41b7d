"""Writing the kernels of a whole program."""

import torch

import pliant
from pliant.base import events
from pliant.targets.cpu.target import CpuTarget


def test_equal_layers_are_generated_once(monkeypatch, seen) -> None:
    generated = []
    generate = CpuTarget.generate

    def counted(self, kernel, *rest):
        generated.append(str(kernel))
        return generate(self, kernel, *rest)

    monkeypatch.setattr(CpuTarget, "generate", counted)
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(12)]
    network = torch.nn.Sequential(*layers)
    x = torch.randn(4, 8)
    with torch.no_grad():
        result = pliant.compile(network, backend="llvm", dynamic=False)(x)
        torch.testing.assert_close(result, network(x))
    (event,) = seen(events.CodeGenerated)
    assert len(event.kernels()) >= 12
    assert len(generated) <= 3
