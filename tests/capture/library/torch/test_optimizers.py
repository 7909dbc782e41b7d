"""Steps of PyTorch's optimizers, compiled: parameters and state are updated where they are."""

import sys

import pytest
import torch

import pliant
from pliant._native import Launcher
from pliant.base import events

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.1}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.1, "amsgrad": True}),
}
KINDS = {"plain": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def optimizer(name, **options):
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(3, n)) for n in (1, 4, 5)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    cls, settings = OPTIMIZERS[name]
    if "fused" in options:
        settings = {name: value for name, value in settings.items() if name != "amsgrad"}
    return cls(parameters, **settings, **options)


def tensors_of(made):
    tensors = list(made.param_groups[0]["params"])
    for state in made.state.values():
        tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
    return tensors


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_like_eager(name, kind):
    mine, eagers = optimizer(name, **KINDS[kind]), optimizer(name, **KINDS[kind])
    step = pliant.compile(mine.step)
    for _ in range(4):
        step()
        eagers.step()
        torch.testing.assert_close(tensors_of(mine), tensors_of(eagers))
        for parameter in mine.param_groups[0]["params"]:
            parameter.grad.mul_(-0.5)
        for parameter in eagers.param_groups[0]["params"]:
            parameter.grad.mul_(-0.5)
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_is_saved_to_be_put_back(name, kind):
    made = optimizer(name, **KINDS[kind])
    sources = []
    with events.listening(lambda event: sources.append(event)):
        pliant.compile(made.step, backend="eager")()
    residual = [
        events.render(event.source) for event in sources if isinstance(event, events.ResidualMade)
    ]
    assert residual and not any("SavedInputs" in text for text in residual)


def test_names_do_not_depend_on_what_a_parameter_holds():
    graphs = []

    def backend(graph, examples):
        graphs.append(graph)
        return graph.forward

    made = optimizer("Adam", foreach=False)
    made.step()
    pliant.compile(made.step, backend=backend)()
    explained = pliant.explain(made.step)().details()
    names = [
        node.name for graph in graphs for node in graph.graph.nodes if node.op == "placeholder"
    ]
    assert names and not any("tensor" in name for name in names)
    assert "Parameter containing" not in explained and "<Parameter at 0x" in explained


def test_what_the_program_handles_is_put_back():
    """In a `try` of the program's own, also around PyTorch's code that only cleans up."""
    made = optimizer("SGD", foreach=False)

    def step(bad):
        try:
            made.step()
            torch.linalg.cholesky(bad)
        except RuntimeError:
            return made.param_groups[0]["params"][0].detach() * 1

    other = optimizer("SGD", foreach=False)
    other.step()
    other.step()
    compiled = pliant.compile(step)
    compiled(torch.eye(2))
    assert torch.equal(compiled(-torch.eye(2)), other.param_groups[0]["params"][0])


@pytest.fixture
def steps(monkeypatch):
    """The steps of the launchers that are made."""
    outcomes = []

    def launcher(*args):
        outcomes.extend(args[2])
        return Launcher(*args)

    monkeypatch.setattr("pliant.launch.program.Launcher", launcher)
    return outcomes


@pytest.mark.own_default
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_memory_of_the_size_of_a_parameter_is_allocated(name, kind, steps):
    made = optimizer(name, **KINDS[kind])
    made.step()
    steps.clear()
    pliant.compile(made.step)()
    assert any(step[0] in ("cpu_kernel", "cpu_batch", "python") for step in steps)
    allocated = [step for step in steps if step[0] == "cpu_empty" and len(step[3]) > 0]
    returned = [step for step in steps if step[0] == "laid_out" and len(step[3]) > 0]
    assert not allocated and not returned


def test_the_time_to_compile_is_proportional_to_the_number_of_parameters():
    def calls(count):
        """Of Python functions."""
        parameters = [torch.nn.Parameter(torch.randn(3)) for _ in range(count)]
        for parameter in parameters:
            parameter.grad = torch.ones(3)
        made = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False)
        made.step()
        total = 0

        def count_it(frame, event, arg):
            nonlocal total
            total += event == "call"

        step = pliant.compile(made.step)
        sys.setprofile(count_it)
        try:
            step()
        finally:
            sys.setprofile(None)
        return total

    calls(2)
    few, many = calls(30), calls(120)
    assert few < many < 5 * few


def test_after_torch_compile_was_used():
    """It marks parts of the optimizers, and means itself."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    mine, eagers = optimizer("Adam", foreach=False), optimizer("Adam", foreach=False)
    step = pliant.compile(mine.step)
    for _ in range(2):
        step()
        eagers.step()
        torch.testing.assert_close(tensors_of(mine), tensors_of(eagers))
    assert events.counters["graph_breaks"] == 0
