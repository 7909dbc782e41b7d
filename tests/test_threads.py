"""Compiled functions called from several threads at once, while they compile and recompile."""

import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events


@pytest.fixture(autouse=True)
def many_switches() -> Iterator[None]:
    """Change threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(number)` in `count` threads at the same time; errors are raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            start.wait()
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive(), "deadlock"
    if errors:
        raise errors[0]


def test_one_function_compiled_once() -> None:
    compiled = pliant.compile(lambda x: (x * 2 + 1).relu().sum())
    x = torch.ones(5)
    in_threads(8, lambda n: [check(compiled(x), 15.0) for _ in range(50)])
    assert events.counters["compilations"] == 1


def check(actual: torch.Tensor, expected: float) -> None:
    assert actual.item() == expected


def test_recompiling_while_others_call() -> None:
    compiled = pliant.compile(lambda x, k: (x * k).sum(), options={"recompile_limit": 100})

    def work(number: int) -> None:
        for step in range(40):
            size, k = 1 + (number + step) % 5, (step // 5) % 4
            check(compiled(torch.ones(size), k), size * k)

    in_threads(8, work)
    assert events.counters["compilations"] <= 20


def test_grad_mode_is_of_the_thread() -> None:
    compiled = pliant.compile(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)

    def work(number: int) -> None:
        for _ in range(50):
            with torch.set_grad_enabled(number % 2 == 0):
                assert compiled(x).requires_grad is (number % 2 == 0)

    in_threads(6, work)
    assert events.counters["compilations"] == 2


def test_modules_with_breaks_and_resets() -> None:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(3, 3)

        def forward(self, x):
            y = self.lin(x)
            pliant.graph_break()
            return y.relu() + x.shape[0]

    model = M()
    compiled = pliant.compile(model)
    inputs = [torch.randn(n, 3) for n in range(1, 4)]
    expected = [model(x) for x in inputs]

    def work(number: int) -> None:
        for step in range(30):
            which = (number + step) % 3
            assert torch.equal(compiled(inputs[which]), expected[which])
            if number == 0 and step % 10 == 5:
                pliant.reset()

    in_threads(6, work)


def test_effects_on_objects_of_the_thread() -> None:
    def f(items, box, x):
        items.append(x + len(items))
        box["n"] = box.get("n", 0) + 1
        return x * box["n"]

    compiled = pliant.compile(f, options={"recompile_limit": 200})

    def work(number: int) -> None:
        items, box = [], {}
        for n in range(10):
            result = compiled(items, box, torch.ones(1))
            assert result.item() == n + 1
        assert [t.item() for t in items] == [n + 1.0 for n in range(10)]

    in_threads(6, work)


def test_different_functions_at_once() -> None:
    def work(number: int) -> None:
        for n in range(5):
            compiled = pliant.compile(lambda x, n=n: x * n + number)
            check(compiled(torch.ones(1)), n + number)

    in_threads(8, work)


def test_a_function_that_calls_another_compiled_one_from_a_thread() -> None:
    inner = pliant.compile(lambda x: x + 1)

    @pliant.disable
    def in_another_thread(x):
        results = []
        thread = threading.Thread(target=lambda: results.append(inner(x)))
        thread.start()
        thread.join(timeout=60)
        assert results, "deadlock"
        return results[0]

    compiled = pliant.compile(lambda x: in_another_thread(x * 2) * 3)
    check(compiled(torch.ones(1)), 9.0)


def test_a_backend_that_compiles_in_another_thread() -> None:
    def backend(gm, example_inputs):
        results = []
        thread = threading.Thread(target=lambda: results.append(gm.forward))
        thread.start()
        thread.join(timeout=60)
        return results[0]

    check(pliant.compile(lambda x: x + 1, backend=backend)(torch.ones(1)), 2.0)


def test_the_limit_is_reached_by_many() -> None:
    compiled = pliant.compile(lambda x: x + 1, options={"recompile_limit": 3}, dynamic=False)

    def work(number: int) -> None:
        for n in range(1, 10):
            assert compiled(torch.ones(n)).sum().item() == 2 * n

    with pytest.warns(pliant.errors.PliantWarning):
        in_threads(4, work)
    assert events.counters["compilations"] == 3
    assert events.counters["limit_reached"] == 1
