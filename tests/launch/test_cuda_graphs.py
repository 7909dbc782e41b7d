"""Recorded launches are replayed only where nobody can tell. A recorder on the CPU stands for CUDA:
replaying it computes everything again, in the memory that it was recorded with."""

import weakref

import pytest
import torch

from pliant.launch.cuda_graphs import (
    MOST_RECORDINGS,
    MOST_SIZES,
    RecordingLauncher,
    recordable,
)
from pliant.launch.program import Program


class CpuRecorder:
    place = torch.device("cpu")

    def __init__(self):
        self.current = 1
        self.recorded = self.replayed = 0
        self.recording = False

    def stream(self):
        return self.current

    def record(self, call):
        self.recorded += 1
        self.recording = True
        result = call()
        self.recording = False

        def replay():
            self.replayed += 1
            for tensor, value in zip(result, call(), strict=True):
                tensor.copy_(value)

        return replay, result


def program(written=(), symbols=()):
    return Program(2, symbols, (), (), written, (), 0)


@pytest.fixture
def recorder():
    return CpuRecorder()


@pytest.fixture
def recorded(recorder):
    def make(function, **settings):
        return RecordingLauncher(function, program(**settings), recorder, pytest.fail)

    return make


def add(x, y):
    return (x + y,)


X, Y = torch.randn(3, 4), torch.randn(3, 4)


def test_the_same_call_is_replayed(recorded, recorder):
    launcher = recorded(add)
    for _ in range(5):
        assert torch.equal(launcher(X, Y)[0], X + Y)
    assert (recorder.recorded, recorder.replayed) == (1, 4)


def test_results_are_not_overwritten(recorded, recorder):
    launcher, x = recorded(add), X.clone()
    results = []
    for step in range(8):
        x.fill_(step)
        results.append((launcher(x, Y)[0], x + Y))
    for actual, expected in results:
        assert torch.equal(actual, expected)
    assert recorder.recorded == MOST_RECORDINGS  # then it is called as usual


def test_a_view_of_a_result_counts(recorded, recorder):
    launcher, x = recorded(add), X.clone()
    launcher(x, Y)
    row, expected = launcher(x, Y)[0][1], (x + Y)[1].clone()
    x.zero_()
    launcher(x, Y)
    assert torch.equal(row, expected)
    assert recorder.recorded == 2


def test_a_loop_that_holds_the_last_result_takes_two_recordings(recorded, recorder):
    launcher = recorded(add)
    for _ in range(6):
        result = launcher(X, Y)
    assert torch.equal(result[0], X + Y)
    assert recorder.recorded == 2


def test_arguments_that_move_are_copied(recorded, recorder):
    launcher = recorded(add)
    kept = [torch.randn(3, 4) for _ in range(6)]
    for x in kept:
        assert torch.equal(launcher(x, Y)[0], x + Y)
    assert recorder.replayed == 5 and recorder.recorded <= 2


def test_arguments_that_overlap_are_not_copied(recorded, recorder):
    launcher = recorded(add)
    for value in range(5):
        x = torch.full((3, 1), float(value)).expand(3, 4)
        assert torch.equal(launcher(x, Y)[0], x + Y)


def test_sizes_and_numbers_have_recordings_of_their_own(recorded, recorder):
    launcher = recorded(lambda x, n: (x * n,), symbols=((0, "size", 0),))
    for _ in range(3):
        for rows in (2, 5):
            for number in (1, 3):
                x = torch.randn(rows, 4)
                assert torch.equal(launcher(x, number)[0], x * number)
    assert len(launcher.sizes) == 4
    for rows in range(20):
        launcher(torch.randn(rows, 4), 1)
    assert len(launcher.sizes) == MOST_SIZES


def test_what_is_written_stays_where_it_is(recorded, recorder):
    def write(x, y):
        if not recorder.recording:  # nothing happens before it is replayed
            x.add_(y)
        return (y * 2,)

    launcher = recorded(write, written=(0,))
    for _ in range(2):
        x, other = torch.zeros(3, 4), torch.zeros(3, 4)
        version = x._version
        launcher(x, Y)
        launcher(other, Y)
        assert torch.equal(other, Y) and torch.equal(x, Y)
        assert x._version > version


def test_streams_share_nothing(recorded, recorder):
    launcher = recorded(add)
    for _ in range(3):
        launcher(X, Y)
    recorder.current = 2
    launcher(X, Y)
    assert recorder.recorded == 1
    recorder.current = None  # somebody else records
    assert torch.equal(launcher(X, Y)[0], X + Y)
    assert (recorder.recorded, recorder.replayed) == (1, 2)


def test_a_failure_is_told_once(recorder):
    told = []

    def fail(call):
        raise RuntimeError("operation not permitted when stream is capturing")

    recorder.record = fail
    launcher = RecordingLauncher(add, program(), recorder, told.append)
    for _ in range(4):
        assert torch.equal(launcher(X, Y)[0], X + Y)
    assert len(told) == 1


def test_everything_is_freed(recorded):
    launcher = recorded(add)
    for _ in range(3):
        result = launcher(X, Y)
    gone = weakref.ref(launcher)
    del launcher
    assert gone() is None
    assert torch.equal(result[0], X + Y)


# ---- which programs

KERNEL = ("cuda_kernel", 0, (0, 1), (), 0, 0, 0, False)
CALL = ("call", "aten::mm", "out", (("slot", 0), ("slot", 1)), (("drop",),))
TO_CPU = ("call", "aten::to", "device", (("slot", 0), ("const", torch.device("cpu"))), ())
RETURNED = (("slot", 5),)


@pytest.mark.parametrize(
    ("steps", "outputs", "possible"),
    [
        ([KERNEL, CALL] * 2, RETURNED, True),
        ([KERNEL, ("check",), CALL] * 2, RETURNED, True),
        ([KERNEL], RETURNED, False),  # nothing to win
        ([KERNEL] * 5 + [("item", 0, ())], RETURNED, False),
        ([KERNEL] * 5 + [("python", 0, (), ())], RETURNED, False),
        ([KERNEL] * 5 + [("cpu_kernel", 0, (0,), (), 0, 0, False)], RETURNED, False),
        ([KERNEL] * 5 + [("random", "cuda")], RETURNED, False),
        ([KERNEL] * 5 + [TO_CPU], RETURNED, False),
        ([KERNEL] * 5, (("slot", 1),), False),  # an argument
        ([KERNEL] * 5 + [("view", 5, 1, (), (), 0)], RETURNED, False),  # a view of one
        ([KERNEL] * 5, (("slot", 5), ("slot", 5)), False),
        ([KERNEL] * 5, (("bound", 0),), False),
        ([KERNEL] * 5, (("slot", 5), ("none",)), True),
    ],
)
def test_programs(steps, outputs, possible):
    assert recordable(Program(2, (), tuple(steps), outputs, (), (), 0)) == possible
