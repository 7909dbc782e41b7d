"""What a program imports that compiles something small for the CPU: most of its time to the first
result is imports."""

import subprocess
import sys

import pytest

import pliant

PROGRAM = """
import sys, torch
before = set(sys.modules)
import pliant
compiled = pliant.compile(lambda x: x + 1, options={"raise_on_fallback": True})
assert compiled(torch.ones(3)).sum() == 6
print(*sorted(set(sys.modules) - before))
print("decimal" in before)
"""
DEFERRED = (
    "decimal",
    "html",
    "pliant.adoption",
    "pliant.backends.checkers",
    "pliant.backends.training",
    "pliant.capture.library.numpy.generators",
    "pliant.capture.library.packages.optree",
    "pliant.capture.library.stdlib.decimals",
    "pliant.driver.check",
    "pliant.graph.joint",
    "pliant.graph.partition",
    "pliant.reports",
    "pliant.reproduce",
    "pliant.targets.triton",
    "torch._dynamo",
    "torch._inductor",
    "torch.onnx",
    "triton",
)


def test_a_first_result_needs_few_modules():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    *imported, has_decimals = done.stdout.split()
    assert "pliant.targets.cpu.target" in imported
    needless = [m for m in imported if any(f"{m}.".startswith(f"{d}.") for d in DEFERRED)]
    if has_decimals == "True":  # which torch has imported
        needless.remove("pliant.capture.library.stdlib.decimals")
    assert not needless


def test_every_public_name_is_there():
    assert {*pliant.__all__} <= {*dir(pliant)}
    assert all(getattr(pliant, name) is not None for name in pliant.__all__)
    with pytest.raises(AttributeError, match="no attribute 'instal'"):
        pliant.instal  # noqa: B018
