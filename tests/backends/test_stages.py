"""Each stage of the back half is told as it is: a value that prints."""

import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events

NAMES = ["functional", "scheduled", "kernels", "program"]


def stages_of(seen):
    return {e.stage: e.text() for e in seen(events.StageFinished) if e.stage in NAMES}


def test_each_stage_is_told_in_order(seen):
    pliant.compile(lambda x: (x @ x).sin().sum(-1), backend="llvm")(torch.ones(3, 3))
    told = [event.stage for event in seen(events.StageFinished) if event.stage in NAMES]
    assert told == NAMES
    stages = stages_of(seen)
    assert "aten.sin.default(" in stages["functional"]
    assert "call aten.mm.out(" in stages["scheduled"] and "group [3] x [3]" in stages["scheduled"]
    assert "sin v" in stages["kernels"]
    assert "aten::mm.out(" in stages["program"] and "cpu_kernel 0(" in stages["program"]


def test_forward_and_backward_are_told_both(seen):
    x = torch.ones(3, 3, requires_grad=True)
    pliant.compile(lambda x: x.sin().sum(), backend="llvm")(x).backward()
    told = [event.stage for event in seen(events.StageFinished) if event.stage in NAMES]
    assert told == NAMES * 2


def test_what_is_not_generated_has_no_stages(seen):
    llvm(torch.fx.symbolic_trace(lambda x: x + 1), [torch.ones(2)])  # nothing is known of its sizes
    assert not stages_of(seen) and seen(events.NotGenerated)
