"""The default backend, and what happens without what it needs."""

import subprocess
import sys

import pytest
import torch

import pliant
from pliant.base import events

pytestmark = pytest.mark.own_default

WITHOUT_LLVM = """
import sys, warnings
sys.modules["llvmlite"] = None
import torch, pliant
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(2):
        assert pliant.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
print(len(seen), seen[0].message)
"""


def test_code_is_generated_by_default():
    assert pliant.compile(lambda x: x.exp() + 1)(torch.zeros(3)).tolist() == [2, 2, 2]
    assert events.counters["programs"] == 1


def test_code_is_generated_for_both_directions():
    x = torch.ones(3, requires_grad=True)
    pliant.compile(lambda x: (x * x).sum())(x).backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert (events.counters["programs"], events.counters["not_generated"]) == (2, 0)


def test_without_llvm_graphs_run_as_they_are_and_a_warning_says_so():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LLVM], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("1 pliant generates no code"), done.stdout
    assert "llvmlite" in done.stdout
