"""Triton is imported when a graph needs it, and its absence is one clear sentence."""

import subprocess
import sys

import pytest
import torch

import pliant
from pliant.backends import choose_target
from pliant.base import events
from pliant.base.options import Options
from pliant.graph.functionalize import NotFunctionalized

PROGRAM = """
import sys, torch, pliant
compiled = pliant.compile(lambda x: x + 1, options={"raise_on_fallback": True})
assert compiled(torch.ones(3)).sum() == 6
loaded = [name for name in sys.modules if "triton" in name.split(".")]
print([name for name in loaded if name.startswith(("triton", "pliant"))])
"""


def test_programs_on_the_cpu_do_without_triton():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    assert ran.stdout == "[]\n"


def test_without_triton_graphs_run_with_pytorch(monkeypatch):
    monkeypatch.setattr(choose_target, "find_spec", lambda name: None)
    seen = []
    with events.listening(seen.append):
        x = torch.ones(3)
        compiled = pliant.compile(lambda x: x + 1, backend="triton_interpreter")
        torch.testing.assert_close(compiled(x), x + 1)
    (reason,) = [event.reason for event in seen if isinstance(event, events.NotGenerated)]
    assert reason.startswith("a missing package: Triton")


def test_devices_without_a_target():
    meta = torch.ones(3, device="meta")
    with pytest.raises(NotFunctionalized, match="a tensor on meta"):
        choose_target.target_of([meta, 3, torch.ones(2)], Options())
    assert choose_target.target_of([torch.ones(2), 3], Options()).launch_step == "cpu_kernel"
