"""Generated code in several threads, in forked processes, and in both at once."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events

SECONDS = 60  # until something hangs


def steps(x, y):
    z = (x * y).softmax(-1) + x.sin()
    return z.sum(0), z @ y.view(-1, 1), z[::2]


def arguments(rows: int, columns: int, seed: int = 0):
    numbers = torch.Generator().manual_seed(seed)
    return [
        torch.randn(rows, columns, generator=numbers),
        torch.randn(columns, generator=numbers),
    ]


def agrees(compiled, *args) -> bool:
    return all(
        torch.allclose(ours, theirs, atol=1e-4)
        for ours, theirs in zip(compiled(*args), steps(*args))
    )


def new_function(number: int):
    """One that has kernels of its own."""

    def step(x):
        return (x * number + 0.5).exp().sum(-1) + number

    return pliant.compile(step, backend=llvm), step


def in_child(work: Callable[[], bool]) -> None:
    """Whether `work` is true in a forked process, and soon."""
    child = os.fork()
    if child == 0:
        good = False
        try:
            torch.set_num_threads(1)  # PyTorch would wait for the others, which are not here
            good = work()
        finally:
            os._exit(0 if good else 1)
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child hangs")


@pytest.fixture(params=[1, 2])
def threads(request) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_a_child_calls_what_its_parent_compiled(threads):
    compiled = pliant.compile(steps, backend=llvm)
    large = arguments(300, 500)
    assert agrees(compiled, *large)
    in_child(lambda: agrees(compiled, *large) and agrees(compiled, *large))
    assert agrees(compiled, *large)


def test_a_child_compiles(threads):
    compiled = pliant.compile(steps, backend=llvm, dynamic=False)
    agrees(compiled, *arguments(300, 500))

    def work() -> bool:
        other, step = new_function(77)
        x = torch.randn(3, 5)
        return agrees(compiled, *arguments(200, 400)) and torch.allclose(other(x), step(x))

    in_child(work)
    in_child(lambda: agrees(compiled, *arguments(20, 30)))


def test_a_child_of_a_process_that_is_compiling():
    stop = threading.Event()
    x = torch.randn(3, 5)

    def compile_on(first: int) -> None:
        number = first
        while not stop.is_set():
            new_function(number)[0](x)
            number += 1

    workers = [threading.Thread(target=compile_on, args=(1000 * n,)) for n in (1, 2)]
    for worker in workers:
        worker.start()
    try:
        for number in range(6):
            time.sleep(0.05)

            def work(number: int = number) -> bool:
                compiled, step = new_function(500 + number)
                return torch.allclose(compiled(x), step(x))

            in_child(work)
    finally:
        stop.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize("dynamic", [False, None, True])
def test_threads_compile_and_call_the_same_function(dynamic):
    compiled = pliant.compile(steps, backend=llvm, dynamic=dynamic, options={"recompile_limit": 50})
    wrong: list[object] = []
    start = threading.Barrier(8)
    before = sys.getswitchinterval()

    def work(seed: int) -> None:
        start.wait()
        try:
            for round in range(12):
                rows, columns = [(3, 4), (40, 700), (5, 4), (1, 9)][(seed + round) % 4]
                if not agrees(compiled, *arguments(rows, columns, seed)):
                    wrong.append((seed, round))
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(SECONDS)
    finally:
        sys.setswitchinterval(before)
    assert not wrong and not any(worker.is_alive() for worker in workers)
    assert events.counters["compilations"] <= 4
