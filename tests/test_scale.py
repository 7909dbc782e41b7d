"""Programs of thousands of operations: they compile, and the work is linear in their number.

Work is counted in calls of functions, so that these tests say the same on each machine.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.work import calls, growth

Program = tuple[Callable[..., Any], tuple[Any, ...]]
PROGRAMS: dict[str, Callable[[int], Program]] = {}


def program(make: Callable[[int], Program]) -> Callable[[int], Program]:
    PROGRAMS[make.__name__] = make
    return make


def tensors(n: int) -> list[torch.Tensor]:
    return [torch.randn(4) for _ in range(n)]


@program
def chain(n):
    def f(x):
        for _ in range(n):
            x = x * 0.5 + 0.25
        return x

    return f, (torch.randn(16),)


@program
def costly_chain(n):
    def f(x):
        for _ in range(n):
            x = torch.tanh(x)
        return x

    return f, (torch.randn(16),)


@program
def many_uses(n):
    def f(x):
        y = x
        for _ in range(n):
            x, y = y, (x + y) * 0.5
        return x + y

    return f, (torch.randn(16),)


@program
def one_operand_of_all(n):
    def f(x, w):
        for _ in range(n):
            x = x * w
        return x

    return f, (torch.randn(16), torch.rand(16))


@program
def views_of_memory(n):
    def f(x):
        for _ in range(n):
            x = x.t()
        return x + 1

    return f, (torch.randn(4, 5),)


@program
def items_of_nested_tuples(n):
    def f(x):
        nested = (1, 2)
        for i in range(n):
            nested = (nested, i)
        total = 0
        for _ in range(n):
            total += nested[1]
            nested = nested[0]
        return x + total

    return f, (torch.randn(4),)


@program
def views_of_values(n):
    def f(x):
        x = x + 1
        for _ in range(n):
            x = x.flip(0)
        return x

    return f, (torch.randn(16),)


@program
def reshapes(n):
    def f(x):
        for _ in range(n // 4):
            x = x.view(4, 4).t().reshape(16)
        return x

    return f, (torch.randn(16),)


@program
def cat_of_many(n):
    return lambda x: torch.cat([x + i for i in range(n)]), (torch.randn(4),)


@program
def stack_of_inputs(n):
    return lambda xs: torch.stack(xs), (tensors(n),)


@program
def sum_of_list(n):
    return lambda xs: sum(xs), (tensors(n),)


@program
def sum_of_products(n):
    return lambda x: sum([x * i for i in range(n)]), (torch.randn(4),)


@program
def choices(n):
    def f(x):
        y = x
        for i in range(n):
            y = torch.where(x > i, y, x + i)
        return y

    return f, (torch.randn(16),)


@program
def comparisons(n):
    def f(x):
        mask = x > 0
        for i in range(n):
            mask = mask & (x < i)
        return mask

    return f, (torch.randn(16),)


@program
def products(n):
    def f(x, w):
        for _ in range(n):
            x = x @ w
        return x

    return f, (torch.randn(4, 4), torch.eye(4))


@program
def layers(n):
    def f(x, w):
        for _ in range(n):
            x = torch.relu(x @ w)
        return x

    return f, (torch.randn(4, 4), torch.eye(4))


@program
def rounds(n):
    def f(x):
        for _ in range(n):
            x = x - x.mean()
        return x

    return f, (torch.randn(16),)


@program
def many_reductions(n):
    return lambda x: [(x * i).sum() for i in range(n)], (torch.randn(16),)


@program
def writes(n):
    def f(x):
        x = x + 1
        for _ in range(n):
            x.mul_(0.5)
        return x

    return f, (torch.randn(16),)


@program
def many_results(n):
    def f(x):
        results = []
        for _ in range(n):
            x = x * 0.5
            results.append(x)
        return results

    return f, (torch.randn(4),)


@program
def inputs_and_outputs(n):
    return lambda xs: [x + 1 for x in xs], (tensors(n),)


@program
def arguments(n):
    return lambda *xs: [x * 2 for x in xs], tuple(tensors(n))


@program
def recurrence(n):
    def f(xs):
        state, states = xs[0], []
        for i in range(1, n):
            state = torch.relu(state + xs[i])
            states.append(state)
        return torch.stack(states)

    return f, (torch.randn(n, 4),)


@program
def inlined_calls(n):
    def step(x, i):
        return x + i

    def f(x):
        for i in range(n):
            x = step(x, i)
        return x

    return f, (torch.randn(4),)


@program
def loop_without_tensors(n):
    def f(x):
        total = 0
        for i in range(n):
            total += i
        return x + total

    return f, (torch.randn(4),)


@program
def padding(n):
    def f(x):
        for _ in range(n // 4):
            x = torch.nn.functional.pad(x, (1, 0))[:-1]
        return x

    return f, (torch.randn(16),)


@program
def uses_of_views(n):
    def f(x):
        for _ in range(n // 4):
            y = (torch.exp(x) * 0.25).flip(0)
            x = y + y.abs()
        return x

    return f, (torch.rand(16),)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_long_program_is_compiled(name, seen):
    f, args = PROGRAMS[name](400)
    compiled = pliant.compile(f, backend="llvm", fullgraph=True)
    torch.testing.assert_close(compiled(*args), f(*args))
    assert not seen(events.FellBack) and not seen(events.NotGenerated)
    assert not seen(events.KernelFailed)
    assert len(seen(events.CodeGenerated)) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_is_linear(name):
    def make(n: int) -> Callable[[], Any]:
        f, args = PROGRAMS[name](n)
        return lambda: pliant.compile(f, backend="llvm", fullgraph=True)(*args)

    make(10)()  # what is done once in a process
    assert growth(make, 64) < 4.4


def written_inputs(n):
    return lambda xs: [x.add_(1) for x in xs], (tensors(n),)


def views_in_and_out(n):
    """All of one storage, so that each may overlap each."""
    return lambda xs: [x * 2 for x in xs], (list(torch.randn(n, 4)),)


@pytest.mark.long
@pytest.mark.parametrize("make", [*map(PROGRAMS.get, ["inputs_and_outputs", "arguments"]),
                                  written_inputs, views_in_and_out])  # fmt: skip
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_two_thousand_tensors_in_and_out(make, backend, seen):
    def compile_and_call(n: int) -> Callable[[], Any]:
        f, args = make(n)
        return lambda: pliant.compile(f, backend=backend, fullgraph=True)(*args)

    compile_and_call(10)()
    with pliant.config.patch(check_ir=False):  # the work of users, who don't have the checks
        assert growth(compile_and_call, 500) < 4.4
    f, args = make(2000)
    expected = f(*copy.deepcopy(args))
    torch.testing.assert_close(pliant.compile(f, backend=backend, fullgraph=True)(*args), expected)
    assert not seen(events.FellBack) and not seen(events.NotGenerated)


@pytest.mark.parametrize("make", [list, tuple, "dict", "mixed"])
@pytest.mark.parametrize("depth", [30, 400, 5000])
def test_results_may_be_nested_deeper_than_the_stack(make, depth):
    def f(x):
        result = (x + 1,)
        for i in range(depth):
            if make == "dict" or (make == "mixed" and i % 2):
                result = {"inner": result}
            elif make is tuple:
                result = (result, i)
            else:
                result = [result, i]
        return result

    x = torch.randn(3)
    actual = pliant.compile(f, backend="eager", fullgraph=True)(x)
    expected = f(x)
    for _ in range(depth):
        assert type(actual) is type(expected) and len(actual) == len(expected)
        if isinstance(actual, dict):
            actual, expected = actual["inner"], expected["inner"]
        else:
            assert actual[1] == expected[1]
            actual, expected = actual[0], expected[0]
    torch.testing.assert_close(actual, expected)


def test_objects_of_a_deep_result_stay_the_same_objects():
    def f(x):
        shared = [x + 1]
        result = [shared]
        for _ in range(100):
            result = [result, shared]
        shared.append(result)
        return result

    result = pliant.compile(f, backend="eager", fullgraph=True)(torch.zeros(2))
    shared, inner = result[1], result
    for _ in range(100):
        assert inner[1] is shared
        inner = inner[0]
    assert inner[0] is shared and shared[1] is result


@pytest.mark.parametrize("steps", [10, 40, 70, 130, 250])
def test_numbers_of_a_long_calculation_fit_into_64_bits(steps):
    def f(x):
        k = x.shape[0]
        for _ in range(steps):
            k = k // 2 + 7
        return x + k, k

    compiled = pliant.compile(f, backend="llvm", dynamic=True)
    for size in (16, 17, 10**6):
        x = torch.zeros(size)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_number_beyond_64_bits_is_no_wrong_number():
    def f(x):
        return x + (x.shape[0] + 2**80) % 1000

    compiled = pliant.compile(f, backend="llvm", dynamic=True)
    for size in (5, 900):
        x = torch.zeros(size)
        torch.testing.assert_close(compiled(x), f(x))


def test_a_float_may_be_computed_from_many_elements(seen):
    def f(x):
        total = 0.0
        for i in range(1100):
            total = total * 0.5 + x[i].item()
        return x * total

    x = torch.rand(1100, dtype=torch.float64)
    torch.testing.assert_close(pliant.compile(f, backend="llvm")(x), f(x), rtol=0, atol=0)
    assert not seen(events.FellBack) and not seen(events.NotGenerated)


def test_the_step_of_an_optimizer_runs_little_python():
    """Factors of the step are computed for each parameter: in one call of Python, not a walk over
    their expressions."""
    parameters = [torch.nn.Parameter(torch.randn(4)) for _ in range(20)]
    for parameter in parameters:
        parameter.grad = torch.randn(4)
    step = pliant.compile(torch.optim.AdamW(parameters, foreach=True).step, backend="llvm")
    for _ in range(3):
        step()
    assert calls(step) < 30 * len(parameters)


# Sizes in which each step has the last one several times.


def rolling_buffer(x, steps):
    for _ in range(steps):
        x = torch.cat([x, x[:1]])[1:]
    return x + 1


def halves(x, steps):
    for _ in range(steps):
        x = x[: (x.shape[0] + 1) // 2]
    return x + 1


def halves_and_more(x, steps):
    for _ in range(steps):
        x = torch.cat([x[: (x.shape[0] + 1) // 2], x[:3]])
    return x + 1


def eighths(x, steps):
    for _ in range(steps):
        x = x[: x.shape[0] - x.shape[0] // 8]
    return x + 1


def squares(x, steps):
    k = x.shape[0]
    for _ in range(steps):
        k = k * k % 7 + k
    return x + k, k


def extremes(x, steps):
    k = x.shape[0]
    for i in range(steps):
        k = torch.sym_max(k // 2 + i, torch.sym_min(k, x.shape[0] - i))
    return x + k, k


SIZES = [rolling_buffer, halves, halves_and_more, eighths, squares, extremes]


def check_sizes(f, steps, seen):
    compiled = pliant.compile(f, backend="llvm", dynamic=True, fullgraph=True)
    for size in (40, 41, 2, 1, 0):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, steps), f(x, steps))
    assert not seen(events.FellBack) and not seen(events.NotGenerated)


@pytest.mark.parametrize("steps", [10, 50])
@pytest.mark.parametrize("f", SIZES)
def test_sizes_of_many_steps(f, steps, seen):
    check_sizes(f, steps, seen)


@pytest.mark.long
@pytest.mark.parametrize("f", SIZES)
def test_sizes_of_very_many_steps(f, seen):
    check_sizes(f, 200, seen)


def test_a_rolling_buffer_has_one_size(seen):
    """No guard: what is rolled is as long as it was."""
    compiled = pliant.compile(rolling_buffer, backend="llvm", dynamic=True, fullgraph=True)
    for size in (40, 7, 2, 1, 0):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x, 30), rolling_buffer(x, 30))
    assert len(seen(events.CodeGenerated)) == 1


@pytest.mark.long
@pytest.mark.parametrize("name, count", [("views_of_memory", 20_000), ("chain", 10_000),
                                         ("items_of_nested_tuples", 20_000)])  # fmt: skip
def test_twenty_thousand(name, count, seen):
    f, args = PROGRAMS[name](count)
    compiled = pliant.compile(f, backend="llvm", fullgraph=True)
    torch.testing.assert_close(compiled(*args), f(*args))
    assert not seen(events.FellBack) and not seen(events.NotGenerated)
    assert not seen(events.KernelFailed)
