"""Items of tensors chosen by numbers that are in the data: `x[best]` with `best` a tensor."""

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(24.0).reshape(2, 3, 4)
KEYS = {
    "first": lambda n: n,
    "last": lambda n: (..., n),
    "middle": lambda n: (slice(None), n),
    "two": lambda n: (n, n),
    "with_a_number": lambda n: (1, n),
    "with_a_slice": lambda n: (slice(None), n, slice(1, 3)),
    "with_none": lambda n: (None, n, None, ..., n),
    "with_a_list": lambda n: (n, [0, 2]),
    "with_a_mask": lambda n: (n, torch.tensor([True, False, True])),
    "with_indices": lambda n: (torch.tensor([0, 1]), n),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("number", [0, 1, -1, 5])
def test_reading(key, number):
    def of_tensor(x, n):
        return x[key(n)] * 2

    def of_item(x, n):
        return x[key(n.item())] * 2

    check(of_tensor, X, torch.tensor(number), graphs=1)
    check(of_item, X, torch.tensor(number), graphs=1)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_writing(key):
    def f(x, n):
        x[key(n)] = -1.0
        x[key(n)] += 1.0
        return x.sum()

    check(f, X, torch.tensor(1), graphs=1)


def test_the_result_is_a_view():
    def f(x, n):
        x[n].zero_()
        return x

    check(f, X, torch.tensor(1), graphs=1)


def test_bytes_and_flags_are_masks():
    def f(x, n):
        return x[n], x[n > 0]

    check(f, X, torch.tensor(1, dtype=torch.uint8), breaks=None)


def test_gradient():
    def f(x, n):
        return torch.autograd.grad(x[n].square().sum(), x)[0]

    check(f, X.clone().requires_grad_(), torch.tensor(1), breaks=None)


def test_of_what_was_found():
    """The sizes are in the data too."""

    def f(x):
        rows = x[torch.nonzero(x[:, 0] > 0, as_tuple=True)[0]]
        order = rows[:, 0].argsort(descending=True)
        return rows[order[0]], rows[order[1:]]

    check(f, torch.randn(8, 4), graphs=1)


# ---- bounds of slices that are tensors


def slices(x, n):
    return x[:n], x[n:], x[n : n + 1], x[1:n], x[:, n:], x[n, :n]


def written_slices(x, n):
    x[:n] = 1
    x[n:, 0] = 2
    return x + 1


@pytest.mark.parametrize("function", [slices, written_slices])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_bounds_from_tensors(function, dtype):
    compiled = check(function, torch.arange(16.0).reshape(4, 4), torch.tensor(2, dtype=dtype))
    for bound in (0, 1, 3, -1):
        args = torch.arange(16.0).reshape(4, 4), torch.tensor(bound, dtype=dtype)
        expected = function(*[arg.clone() for arg in args])
        assert str(compiled(*[arg.clone() for arg in args])) == str(expected)


def test_numbers_by_the_names_of_methods():
    check(
        lambda x: (x.__int__(), x.__float__() + 1, torch.ones(3) * x.__int__()), torch.tensor(2.5)
    )
    check(lambda x: (x.__int__(), x.__float__()), torch.tensor([3]))


def _queue(memory, place, keys):
    """As of keys for a contrastive loss, or of a cache: the place is in a buffer."""
    at, count = int(place), keys.size(0)
    memory[at : at + count] = keys
    place[0] = (at + count) % memory.size(0)
    return memory.sum(1) + at


def _columns(memory, place, keys):
    at = place.item()
    memory.t()[:, at : at + keys.size(0)] = keys.t() * 2
    return memory * 1


def _rows(memory, place, keys):
    """The same row everywhere: what is written is expanded."""
    at = place.item()
    memory[at : at + 2] = keys[0]
    return memory * 1


def _more_dimensions(memory, place, keys):
    """What is written has dimensions in front that the part doesn't have."""
    at = place.item()
    memory[at : at + keys.size(0), :2] = keys[None, None, :, 1:].int()
    memory[..., None, at:, 0] = keys[:, :1, None].sum(0, keepdim=True)
    return memory * 1


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("program", [_queue, _columns, _rows, _more_dimensions])
def test_writes_to_a_place_in_the_data(program, backend) -> None:
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for count, at in ((4, 0), (4, 4), (4, 8), (2, 3), (3, 0), (2, -5), (1, 2), (3, 9)):
        keys = torch.randn(count, 3)
        told = []
        for run in (compiled, program):
            memory, place = torch.zeros(12, 3), torch.tensor([at])
            told.append((run(memory, place, keys), memory, place))
        for a, b in zip(*told, strict=True):
            torch.testing.assert_close(a, b)
    assert pliant.counters["graph_breaks"] == pliant.counters["not_generated"] == 0
    assert pliant.counters["compilations"] <= 3 and pliant.counters["fallbacks"] == 0


def test_writes_that_do_not_fit_a_place_in_the_data() -> None:
    compiled = pliant.compile(_queue, backend="llvm")
    for at in (0, 10, -1, 12):
        memories = [torch.zeros(12, 3) for _ in range(2)]
        errors = []
        for run, memory in zip((compiled, _queue), memories, strict=True):
            try:
                run(memory, torch.tensor([at]), torch.ones(4, 3))
            except RuntimeError as error:
                errors.append(str(error))
        assert torch.equal(*memories) and len(errors) in (0, 2) and len(set(errors)) < 2
