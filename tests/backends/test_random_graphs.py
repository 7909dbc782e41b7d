"""Random functions of tensors, through generated code, do what they do in eager PyTorch."""

import linecache
import warnings

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from tests.backends.eager_twin import call, difference, difference_at
from tests.backends.random_graphs import SCOPE, Case, make_case

LIMITS = {"recompile_limit": 100}

# What is computed from constants alone, and is then divided by a difference that is all rounding.
ROUNDING = {1111}


def load(case: Case):
    name = f"<random graph {case.seed}>"
    linecache.cache[name] = (len(case.source), None, case.source.splitlines(True), name)
    scope = dict(SCOPE)
    exec(compile(case.source, name, "exec"), scope)
    return scope["f"]


def compare(seed: int) -> None:
    case = make_case(seed)
    function = load(case)
    compiled = pliant.compile(function, backend=llvm, dynamic=case.dynamic, options=LIMITS)
    threads = torch.get_num_threads()
    torch.set_num_threads(case.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for at in [*range(len(case.sizes)), 0]:
                expected = call(function, case.arguments(at), case.mode)
                actual = call(compiled, case.arguments(at), case.mode)
                found = difference(actual, expected)
                outcomes = (actual, expected)
                if found is None or expected_anyway(case, at, function, *outcomes, found):
                    continue
                text = f"{found}\nseed {seed}, sizes {case.sizes[at]}, {case.mode}\n{case.source}"
                raise AssertionError(text) from actual.error
    finally:
        torch.set_num_threads(threads)


def expected_anyway(case: Case, at: int, function, actual, expected, found: str) -> bool:
    """Whether the difference is one of rounding; or of an operation that nobody needs, or that has
    no element to compute, or that eager PyTorch refuses only because it would copy some memory onto
    itself at these sizes: generated code does not find out that it would fail."""
    empty = 0 in case.sizes[at].values()
    if expected.error is not None:
        eager = pliant.compile(function, backend="eager", dynamic=case.dynamic, options=LIMITS)
        captured = call(eager, case.arguments(at), case.mode)
        onto_itself = actual.error is None and "refer to a single memory" in str(expected.error)
        return empty or onto_itself or difference(actual, captured) is None
    if found.startswith("sharing") and empty:
        return True  # some functions return their argument if it is empty
    if "close" not in found and "equal" not in found:
        return False
    # Arguments that differ by as little as results may make the same item differ.
    path = found.split(":")[0]
    others = (call(function, case.arguments(at, shift), case.mode) for shift in (1.0, -2.0, 8.0))
    return any(difference_at(path, other, expected) for other in others)


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_graphs(start) -> None:
    for seed in range(start, start + 10):
        compare(seed)


# Memory of a tensor that lives on under another dtype was overwritten; an index without elements.
@pytest.mark.parametrize("seed", [7816, 5925])
def test_graphs_that_were_wrong(seed) -> None:
    compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 4000, 100))
def test_many_random_graphs(start) -> None:
    for seed in sorted({*range(start, start + 100)} - ROUNDING):
        compare(seed)
