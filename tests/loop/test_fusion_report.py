"""What was fused and why not more: what the scheduler says of programs made for each reason."""

import pytest
import torch

import pliant
from pliant.backends import compile_graph
from pliant.base import events
from pliant.base.logs import CHANNELS
from pliant.loop.fuse import NotFused
from pliant.loop.fusion_report import BY_PYTORCH
from tests.backends.eager_twin import call
from tests.backends.random_graphs import make_case
from tests.backends.test_random_graphs import load


def generated(function, *args):
    """What is told of the code of a function."""
    seen = []
    with events.listening(seen.append):
        pliant.compile(function, backend="llvm", fullgraph=True)(*args)
    (event,) = [event for event in seen if isinstance(event, events.CodeGenerated)]
    return event


def edges(function, *args):
    """Who reads, what, and why that is in another kernel."""
    return [
        (read["by"], read["what"], read["why"])
        for row in generated(function, *args).fusion()
        for read in row["reads"]
    ]


def test_one_kernel_holds_everything():
    (row,) = generated(lambda x: torch.softmax(x * 2, -1).relu(), torch.randn(4, 6)).fusion()
    assert row["kernel"] == "kernel0"
    assert row["operators"] == ["aten.mul.Tensor", "aten.softmax.int", "aten.relu.default"]
    assert row["reads"] == []


def other_dimension(x):
    return torch.softmax(x, -1).sum(0)


def other_sizes(x):
    return torch.softmax(x, -1)[:, :3] * 2


def other_elements(x):
    return torch.softmax(x, -1).flip(0) * 2


def scattered(x):
    return torch.zeros(4, 6).index_add(0, torch.tensor([0, 1, 1, 3]), torch.softmax(x, -1))


def scanned(x):
    y = x.cumsum(-1)
    return y, y.sum(-1)


def too_much_for_a_scan(x):
    y = x.cumsum(-1)
    return y, y.sin().cos()


def read_between(x):
    y = torch.softmax(x, -1)
    return (y @ x.t()).sum(-1, keepdim=True) + y


def many_operations(x):
    results = [x]
    for _ in range(15):
        results.append(results[-1].sin().sin().sin().sin())
    return results


REASONS = {
    other_dimension: ("aten.sum.dim_IntList", "aten.softmax.int", NotFused.DIMENSIONS),
    other_sizes: ("aten.mul.Tensor", "aten.softmax.int", NotFused.SIZES),
    other_elements: ("aten.mul.Tensor", "aten.softmax.int", NotFused.OTHER_ELEMENT),
    scattered: ("aten.index_add.default", "aten.softmax.int", NotFused.SCATTERED),
    scanned: ("aten.sum.dim_IntList", "aten.cumsum.default", NotFused.SCANNED),
    too_much_for_a_scan: ("aten.cos.default", "aten.cumsum.default", NotFused.SERIAL),
    read_between: ("aten.add.Tensor", "aten.softmax.int", NotFused.READ_BETWEEN),
    many_operations: ("aten.sin.default", "aten.sin.default", NotFused.OPERATIONS),
}


@pytest.mark.parametrize("program", REASONS)
def test_reasons(program):
    by, what, why = REASONS[program]
    assert ([by], [what], why.value) in edges(program, torch.randn(4, 6))


def test_a_kernel_of_many_tensors():
    def program(*tensors):
        y = tensors[0].sin()
        return [y, *[y * tensor for tensor in tensors[1:]]]

    told = edges(program, *[torch.randn(4) for _ in range(31)])
    assert NotFused.BUFFERS.value in {why for _, _, why in told}


def test_what_pytorch_makes():
    (edge,) = edges(lambda x: torch.relu(x @ x), torch.randn(4, 4))
    assert edge == (["aten.relu.default"], [], BY_PYTORCH)


def test_the_log():
    event = generated(other_dimension, torch.randn(4, 6))
    text = CHANNELS["fusion"].formatters[events.CodeGenerated](event, False)
    assert text.splitlines()[1:] == [
        "    kernel0: aten.softmax.int",
        "    kernel1: aten.softmax.int, aten.sum.dim_IntList",
        "        aten.sum.dim_IntList reads aten.softmax.int of kernel0: "
        + NotFused.DIMENSIONS.value,
    ]


@pytest.mark.parametrize("listened", [False, True])
def test_reasons_are_kept_only_for_listeners(listened, monkeypatch):
    refused = []
    plan = compile_graph.plan_schedule

    def spy(*args, **settings):
        refused.append(settings["refused"])
        return plan(*args, **settings)

    monkeypatch.setattr(compile_graph, "plan_schedule", spy)
    compiled = pliant.compile(other_dimension, backend="llvm")
    if listened:
        with events.listening(lambda event: None):
            compiled(torch.randn(4, 6))
        assert set(refused[0].values()) == {NotFused.DIMENSIONS}
    else:
        compiled(torch.randn(4, 6))
        assert refused == [None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(5))
def test_every_edge_of_random_programs_has_a_reason(seed):
    case = make_case(seed)
    seen = []
    with events.listening(seen.append):
        compiled = pliant.compile(load(case), backend="llvm", dynamic=case.dynamic)
        call(compiled, case.arguments(0), case.mode)
    programs = [event for event in seen if isinstance(event, events.CodeGenerated)]
    rows = [row for program in programs for row in program.fusion()]
    known = {reason.value for reason in NotFused} | {BY_PYTORCH}
    assert rows
    assert {read["why"] for row in rows for read in row["reads"]} <= known
