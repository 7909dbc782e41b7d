"""What programs state about numbers: checks, assertions, `torch.sym_...`, helpers of frameworks.

PYTEST_DONT_REWRITE: the assertions of the programs here are to be Python's own.
"""

import importlib

import pytest
import torch

import pliant
from tests.support.against_eager import compilations

X = torch.arange(12.0).view(6, 2)


def items(*numbers):
    return [(X, torch.tensor(n)) for n in numbers]


def asserting(x, t):
    n = t.item()
    assert n >= 1
    return x[:n]


def asserting_with_message(x, t):
    n = t.item()
    assert n >= 1 and n < 5, f"bad: {n}"
    return x[:n]


def asserting_not(x, t):
    n = t.item()
    assert not n > 4, "too large"
    return x * n


def checking(x, t):
    n = t.item()
    pliant.check(n >= 0)
    torch._check(n < 4, lambda: f"too large: {n}")
    return x[:n]


def checking_value(x, t):
    n = t.item()
    y = x.clone().add_(1)  # so that the function isn't simply run again
    torch._check_value(n >= 0, lambda: "too small")
    return y * n


def handling(x, t):
    try:
        assert t.item() > 1
    except AssertionError:
        return x - 1
    return x + 1


STATEMENTS = [
    asserting,
    asserting_with_message,
    asserting_not,
    checking,
    checking_value,
    handling,
]


@pytest.mark.parametrize("program", STATEMENTS, ids=lambda program: program.__name__)
def test_what_is_stated_is_tested_when_the_code_runs(program):
    assert compilations(program, items(3, 2, 0, 1, 5, -1), fullgraph=True) == 1


def test_checks_of_sizes_raise_what_eager_raises():
    def program(x):
        torch._check_index(x.size(0) > 2, lambda: f"size {x.size(0)}")
        torch._check(x.size(0) < 6)
        return x + 1

    calls = [(torch.ones(size),) for size in (3, 7, 2, 5, 0)]
    assert compilations(program, calls, dynamic=True, fullgraph=True) >= 1


def test_checks_of_all_elements_are_tested_when_the_code_runs():
    def program(x, limit):
        torch._check_tensor_all(x >= 0)
        torch._check_tensor_all(x < limit, lambda: f"not below {limit}")
        return x * 2

    calls = [(X, torch.tensor(limit)) for limit in (20, 12, 11)] + [(X - 1, torch.tensor(20))]
    assert compilations(program, calls, fullgraph=True) == 1


def test_checks_with_a_class_of_error_raise_it():
    def program(x, limit):
        torch._check_with(IndexError, x.size(0) > 2, lambda: f"size {x.size(0)}")
        torch._check_tensor_all_with(KeyError, x < limit)
        return x * 2

    calls = [(X, torch.tensor(20)), (X, torch.tensor(1)), (X[:1], torch.tensor(20))]
    assert compilations(program, calls, fullgraph=True) >= 1


def test_functions_for_symbolic_numbers():
    def program(x):
        n = x.size(0)
        chosen = torch.sym_ite(n > 3, n, 3), torch.sym_not(n > 3), torch.sym_max(n, 4.5)
        whole = torch.sym_max(n, 4), torch.sym_min(n, 4), torch.sym_sum([n, 1, n])
        return chosen, whole, torch.sym_int(n / 2), torch.sym_float(n), torch.sym_sqrt(n)

    calls = [(torch.ones(size),) for size in (3, 7, 2, 0)]
    assert compilations(program, calls, dynamic=True, fullgraph=True) == 1


def test_helpers_of_frameworks():
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")

    def program(x, t):
        n = t.item()
        both = shapes.sym_and(n > 2, n < 5), shapes.sym_or(n > 2, n == 1)
        return shapes.guard_or_false(n == 100), shapes.guard_or_true(n < 100), both, x + 1

    assert compilations(program, items(3, 2, 0, 1), fullgraph=True) == 1


def test_a_helper_that_guessed_wrong_leads_to_another_compilation():
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")

    def program(x, t):
        return x + 1 if shapes.guard_or_false(t.item() == 3) else x - 1

    assert compilations(program, items(2, 3, 4, 3), fullgraph=True) == 2


def test_hints_and_what_is_known_cost_no_guard():
    shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")

    # Older versions of PyTorch have no name for a hint that makes no guard.
    hint = getattr(shapes, "optimization_hint", lambda number: 1)

    def program(x):
        known = shapes.statically_known_true(x.size(0) == 3)
        return x + (0 if known else 0 * hint(x.size(0)))

    calls = [(torch.ones(size),) for size in (3, 7, 2, 0)]
    assert compilations(program, calls, dynamic=True, fullgraph=True) == 1
