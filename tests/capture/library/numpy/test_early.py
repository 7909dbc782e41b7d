"""Arrays of the program that become tensors: what NumPy does is done before the graph."""

import itertools
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.support.training_programs import trains_alike

CONVERTED = {
    "as it is": lambda a: torch.from_numpy(a) + 1,
    "as another type": lambda a: torch.from_numpy(a).float() * 2,
    "copied": lambda a: torch.tensor(a) * 2,
    "copied as a type": lambda a: torch.tensor(a, dtype=torch.float32) * 2,
    "as a tensor": lambda a: torch.as_tensor(a, dtype=torch.float32).sin(),
    "as an array": lambda a: torch.asarray(a, device="cpu") - 1,
    "scaled": lambda a: torch.from_numpy(a / 255.0) * 2,
    "moved": lambda a: torch.from_numpy(a.transpose(1, 0)).float() + 1,
    "cast": lambda a: torch.from_numpy(a.astype(np.float32)).exp(),
    "cast by keyword": lambda a: torch.from_numpy(a.astype(dtype="float32")).exp(),
    "of a part": lambda a: torch.from_numpy(a[:, 1:3]).sum(0),
    "of rows": lambda a: torch.from_numpy(a[[1, 0]]).sum(0),
    "reduced": lambda a: torch.from_numpy(np.mean(a, axis=0, keepdims=True)) * 2,
    "joined": lambda a: torch.from_numpy(np.concatenate([a, a])) * 2,
    "twice": lambda a: torch.from_numpy(a) * torch.from_numpy(a),
}
SIZED = ("as it is", "as another type", "copied", "copied as a type", "as a tensor", "scaled")


@pytest.mark.parametrize("name", CONVERTED)
def test_arrays_that_become_tensors(name: str) -> None:
    function = CONVERTED[name]
    compiled = pliant.compile(function, backend="llvm", fullgraph=True)
    for size in (3, 4, 7, 2, 5):
        a = np.random.rand(size, 4) * 4
        before = a.copy()
        mine, theirs = compiled(a), function(a)
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
        assert mine.stride() == theirs.stride()
        assert (a == before).all()
    assert events.counters["not_generated"] == 0
    if name in SIZED:
        assert events.counters["compilations"] == 2


def test_other_types_and_layouts() -> None:
    def function(a):
        return torch.from_numpy(a) + 1

    arrays = [np.ones((3, 4)), np.ones((3, 4), np.float32), np.ones((4, 3)).T, np.ones((6, 4))[::2]]
    arrays += [np.ones((3, 4), np.int64), np.ones(3), np.array(2.0)]
    for a in arrays:
        compiled = pliant.compile(function, backend="llvm")
        for _ in range(2):
            mine, theirs = compiled(a), function(a)
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()
    with pytest.raises(ValueError, match="negative"):
        compiled(np.ones((3, 4))[::-1])
    with pytest.raises(TypeError, match="can't convert np.ndarray"):
        compiled(np.array(["a", "b"]))


def test_memory_is_shared() -> None:
    """A write to the tensor is one to the array."""

    def function(a, x):
        t = torch.from_numpy(a)
        t.add_(x)
        return t, t * 2

    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 4, 5):
        a, b, x = np.arange(float(size)), np.arange(float(size)), torch.rand(size).double()
        (mine, doubled), (theirs, _) = compiled(a, x), function(b, x)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(doubled, theirs * 2)
        assert (a == b).all()
        mine[0] = 7.0
        assert a[0] == 7.0


def test_arrays_that_are_written_to_first() -> None:
    """NumPy computes from what is there by then."""

    def function(a, x):
        a[0] = 5.0
        return torch.from_numpy(a * 2) + x

    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 4):
        a, x = np.arange(float(size)), torch.rand(size).double()
        torch.testing.assert_close(compiled(a.copy(), x), function(a.copy(), x))


def test_an_error_comes_where_it_belongs() -> None:
    """What may raise isn't done before what comes first."""

    def function(a, index, seen):
        seen.append(1)
        return torch.from_numpy(a[index]) + 1

    compiled = pliant.compile(function, backend="llvm")
    a, seen = np.arange(4.0), []
    for index in ([0, 1], [2, 3]):
        compiled(a, np.array(index), seen)
    with pytest.raises(IndexError):
        compiled(a, np.array([0, 9]), seen)
    assert len(seen) == 3
    assert events.counters["not_generated"] == 0


def written_by_position(a, b):
    t = torch.from_numpy(b)
    before = t * 2
    np.add(a, a, b)
    return before, t * 2, torch.from_numpy(b + 1)


def clipped_by_position(a, b):
    before = torch.from_numpy(b) * 2
    a.clip(1, 2, b)
    return before, torch.from_numpy(b) * 3


def made_finite(a, b):
    before = torch.from_numpy(a) * 2
    np.nan_to_num(a, copy=False)
    return before, torch.from_numpy(a) * 3, b


def overwritten(a, b):
    before = torch.from_numpy(a) * 2
    middle = np.median(a, overwrite_input=True)
    return before, float(middle), b


def added_in_place(a, b):
    before = torch.from_numpy(a) * 2
    a += b
    return before, torch.from_numpy(a) * 3, torch.from_numpy(a * 2)


def sorted_in_place(a, b):
    before = torch.from_numpy(a) * 2
    a.sort()
    return before, torch.from_numpy(a) * 3, torch.from_numpy(a + b)


def of_another_shape(a, b):
    before = torch.from_numpy(a) * 2
    a.shape = (2, a.shape[0] // 2)
    return before, torch.from_numpy(a) * 3, b


@pytest.mark.parametrize(
    "function",
    [
        written_by_position,
        clipped_by_position,
        made_finite,
        overwritten,
        added_in_place,
        sorted_in_place,
        of_another_shape,
    ],
)
def test_writes_to_arrays_in_between(function) -> None:
    compiled = pliant.compile(function, backend="llvm")
    for size in (4, 4, 6):
        mine = [np.random.rand(size) * 3, np.random.rand(size)]
        mine[0][1] = np.nan if function is made_finite else 0.0
        theirs = [array.copy() for array in mine]
        results = compiled(*mine), function(*theirs)
        torch.testing.assert_close(*results, equal_nan=True)
        if function is not overwritten:  # what is left there is undefined
            np.testing.assert_equal(mine, theirs)


@pytest.mark.parametrize("reads_first", [False, True])
def test_memory_that_overlaps(reads_first: bool) -> None:
    """Arrays share memory with each other, and with a tensor: in some calls."""

    def function(x, a, b):
        t, u = torch.from_numpy(a), torch.from_numpy(b)
        before = u * 2 + x if reads_first else x
        t.mul_(before + 1)
        x.add_(1)
        return t * 2, u * 2, x * 2, torch.from_numpy(a[1:]), torch.from_numpy(b + 1)

    def arguments(case):
        a = np.arange(8.0)
        if case == "apart":
            return torch.arange(6.0).double(), a[:6], np.arange(6.0)
        if case == "one array":
            return torch.arange(6.0).double(), a[:6], a[:6]
        if case == "parts":
            return torch.arange(6.0).double(), a[:6], a[2:]
        return torch.from_numpy(a[1:7]), a[:6], np.arange(6.0)

    compiled = pliant.compile(function, backend="llvm")
    for case in ("apart", "one array", "parts", "a tensor", "apart"):
        mine, theirs = arguments(case), arguments(case)
        torch.testing.assert_close(compiled(*mine), function(*theirs))
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_equal(np.asarray(one), np.asarray(other))


def test_fields_of_another_type() -> None:
    def function(a):
        return torch.tensor(a["x"]) * 2

    compiled = pliant.compile(function, backend="llvm")
    types = [[("x", "f8"), ("y", "i8")], [("y", "i8"), ("x", "f8")], [("x", "i8"), ("y", "f8")]]
    for fields in types:
        a = np.ones(3, dtype=fields)
        torch.testing.assert_close(compiled(a), function(a))


def drawn_before(a, index, seen, counter):
    number = random.random() + np.random.rand()
    seen.append(number)
    return a[index], number


def drawn_of_an_own_generator(a, index, seen, counter):
    number = random.Random(3).random() + np.random.rand()
    seen.append(number)
    try:
        rows = a[index]
    except IndexError:
        return torch.ones(3) * number
    return torch.from_numpy(rows) * number


def counted_behind(a, index, seen, counter):
    seen.append(2)
    rows = torch.from_numpy(a[index])
    return rows * next(counter)


@pytest.mark.parametrize("function", [drawn_before, drawn_of_an_own_generator, counted_behind])
def test_after_an_error_nothing_has_happened(function) -> None:
    def run(function, index):
        random.seed(1)
        np.random.seed(1)
        seen, counter = [], itertools.count(5)
        try:
            result = function(np.arange(6.0), np.array([index]), seen, counter)
        except IndexError as error:
            result = str(error)
        return str(result), seen, repr(counter), random.random(), np.random.rand()

    compiled = pliant.compile(function, backend="llvm")
    for index in (3, 4, 9, 5):
        assert run(compiled, index) == run(function, index)


def test_arrays_as_batches_of_a_whole_step() -> None:
    def make(compile):
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        @compile
        def step(x, y):
            optimizer.zero_grad()
            x, y = torch.from_numpy(x / 2).float(), torch.as_tensor(y, dtype=torch.float32)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step, [model, optimizer]

    sizes = (4, 4, 4, 7, 3, 1, 4)
    batches = [lambda n=n: (np.random.randn(n, 8), np.random.randn(n, 2)) for n in sizes]
    trains_alike(make, batches, compilations=3)


def test_a_replay_buffer() -> None:
    """What is drawn and looked up is done before the graph, though gradients are reset first."""

    class Buffer:
        def __init__(self):
            self.seen = np.random.RandomState(0).rand(50, 4).astype(np.float32)
            self.size = 10

        def sample(self, count):
            index = np.random.randint(0, self.size, count)
            return torch.as_tensor(self.seen[index])

    def make(compile):
        buffer, model = Buffer(), nn.Linear(4, 1)

        @compile
        def step(count):
            model.zero_grad()
            loss = model(buffer.sample(count)).square().mean()
            loss.backward()
            return loss

        def run():
            buffer.size += 5
            return step(8)

        return run, model

    trains_alike(make, [tuple] * 5)
