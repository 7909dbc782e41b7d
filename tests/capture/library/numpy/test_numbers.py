"""NumPy's numbers as arguments: inputs of the graph once they have changed, with NumPy's types."""

import operator

import numpy as np
import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check, compilations

KINDS = (
    np.float64, np.float32, np.float16, np.int64, np.int32, np.int8, np.uint8, np.uint16
)  # fmt: skip
TENSORS = (torch.arange(4.0), torch.arange(4), torch.ones(2, dtype=torch.half), torch.tensor(3))
NUMBERS = (2, 3, 5, 7)

COMPUTED = {
    "add": operator.add,
    "reflected": lambda x, s: (s + x, s * x, s - x, s / x, s < x, s == x),
    "in place": lambda x, s: x.double().mul_(s),
    "function": lambda x, s: (torch.mul(x, s), x.clamp(max=s), torch.full_like(x, s)),
    "computed": lambda x, s: (x * (s * 2), x + np.sqrt(s), x - s**2, x * (1 + s).astype("f4")),
    "tensor": lambda x, s: (x + 1, torch.tensor(s), torch.as_tensor(s)),
    "returned": lambda x, s: (x + 1, s, s * 2, -s),
    "with an array": lambda x, s: (x + 1, x.numpy() * s, np.maximum(x.numpy(), s)),
    "kind": lambda x, s: x + 1 if isinstance(s, np.floating) else x - s.itemsize,
}
CONSTANT = {
    "branch": lambda x, s: x + 1 if s > 4 else x - 1,
    "plain": lambda x, s: x + float(s) + int(s) + s.item(),
    "text": lambda x, s: (x + 1, f"{s}", str(s), repr(s)),
    "key": lambda x, s: x + {2: 1, 3: 5, 5: 6, 7: 8}[s],
    "largest": lambda x, s: x + max(s, 4),
    "list": lambda x, s: torch.tensor([s, 2, s]),
}
SIZES = {
    "range": lambda x, n: x + sum(range(n)),
    "item": lambda x, n: x + [0, 1, 2, 3, 4, 5, 6, 7][n],
    "slice": lambda x, n: torch.from_numpy(np.arange(9)[n:]) + 1,
    "made": lambda x, n: torch.ones(n) + torch.from_numpy(np.ones(n)),
    "shape": lambda x, n: torch.from_numpy(np.arange(n * 2).reshape(n, 2)) + 1,
    "view": lambda x, n: x.repeat(n).view(n, -1),
}


def run(function, kind, x=TENSORS[0], numbers=NUMBERS):
    compiled = pliant.compile(function, fullgraph=True)
    for number in numbers:
        result, expected = compiled(x, kind(number)), function(x, kind(number))
        assert_same(result, expected)
    return pliant.counters["compilations"]


def assert_same(result, expected):
    assert type(result) is type(expected)
    if isinstance(expected, tuple):
        for pair in zip(result, expected, strict=True):
            assert_same(*pair)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(result, expected, equal_nan=True)
    else:
        assert getattr(result, "dtype", None) == getattr(expected, "dtype", None)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("x", TENSORS, ids=str)
def test_types_are_those_of_eager(kind, x):
    assert run(lambda x, s: (x + s, s * x), kind, x) == 2


@pytest.mark.parametrize("kind", (np.float64, np.float32, np.int64))
@pytest.mark.parametrize("function", COMPUTED.values(), ids=COMPUTED)
def test_two_compilations_for_all_numbers(function, kind):
    assert run(function, kind) == 2


@pytest.mark.parametrize("kind", (np.float64, np.float32, np.int64))
@pytest.mark.parametrize("function", CONSTANT.values(), ids=CONSTANT)
def test_what_python_looks_at_is_a_constant(function, kind):
    run(function, kind)


@pytest.mark.parametrize("function", SIZES.values(), ids=SIZES)
def test_sizes_and_indices(function):
    run(function, np.int64)
    run(function, np.uint8)


def test_numbers_that_are_found_in_other_objects():
    module = torch.nn.Linear(2, 2)

    def f(x, numbers, named):
        return x * numbers[0] + named["a"] - module.scale

    compiled = pliant.compile(f, fullgraph=True)
    for number in (1.5, 2.5, 3.5, 4.5):
        module.scale = np.float64(number * 2)
        args = (torch.ones(3), [np.float64(number)], {"a": np.int32(number)})
        torch.testing.assert_close(compiled(*args), f(*args))
    assert pliant.counters["compilations"] == 2


def test_numbers_that_no_symbol_stands_for():
    assert run(lambda x, s: x * s, np.float64, numbers=(1, 2, np.nan, np.inf, -0.0, 3)) == 2
    run(lambda x, s: x.double() * s, np.uint64, numbers=(1, 2, 2**62, 3))


def test_the_default_device_does_not_matter():
    def f(x, s):
        return x + s

    compiled = pliant.compile(f, fullgraph=True)
    with torch.device("meta"):
        for number in (1.0, 2.0, 3.0):
            assert compiled(TENSORS[0], np.float64(number)).equal(TENSORS[0] + number)


@pytest.mark.parametrize("kind", (np.float64, np.float16, np.int32, np.bool_))
def test_a_tensor_of_numbers_has_their_type(kind):
    check(lambda s: (torch.tensor(s), torch.as_tensor(s), torch.tensor([s, s])), kind(1))


def test_a_size_that_numpy_computed_breaks_the_graph():
    check(lambda a: torch.from_numpy(np.zeros(a.sum())) + 1, np.array([1, 2]), breaks=None)


KINDS = (np.complex64, np.bool_, np.float32, np.float16, np.int64, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_pytorch_says_where_it_takes_numbers(kind):
    """In some places it takes them otherwise than Python's numbers, or not at all."""

    def assign(x, number):
        x[0] = number
        return x

    uses = (
        lambda x, number: x + number,
        lambda x, number: number == x,
        lambda x, number: torch.full((2,), number),
        lambda x, number: x.to(number),
        lambda x, number: x[number],
        lambda x, number: x.sum(0, keepdim=number),
        lambda x, number: x.split(number),
        lambda x, number: torch.tensordot(x, x, number),
        lambda x, number: x.requires_grad_(number),
        assign,
    )
    for use in uses:
        check(use, torch.ones(3), kind(1), breaks=None)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_not_iterable(kind):
    uses = (
        lambda number: list(number),
        lambda number: [*number],
        lambda number: sum(number),
        lambda number: next(iter(number)),
        lambda number: torch.Size(number),
    )
    for use in uses:
        check(use, kind(1), breaks=None)


def test_numbers_are_not_unpacked():
    def f(x, number):
        first, *_ = number
        return x + first

    check(f, torch.ones(3), np.int64(1), breaks=None)


def test_items_of_sizes():
    class Three(int):
        def __mul__(self, other):
            raise RuntimeError

    def program(x, n):
        size = torch.Size([np.int64(1), np.uint8(2), True, n, Three(3)])
        return x + 1, size, [type(item) for item in size], size.numel(), size + (np.int32(n),)

    check(program, torch.arange(3.0), 4)


INTEGERS = {
    # With an array, so that Python does not run a graph again that has failed.
    "a slice of constants": lambda x, n: (x.numpy(), x[:n], n),
    "a size beside an inferred one": lambda x, n: x.reshape(n, -1),
    "a shape": lambda x, n: x.reshape((np.int64(-1), n)),
    "an output size": lambda x, n: torch.nn.functional.interpolate(x[None], np.int64(3)),
    "a dimension": lambda x, n: x.flatten(np.int64(0)),
    "a range": lambda x, n: torch.arange(np.int64(1), n + np.int32(2)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_among_symbolic_sizes(name, dynamic):
    """In the graph they are Python's, and rules for symbolic sizes see them as such."""

    def program(x):
        return INTEGERS[name](x, np.int64(2))

    calls = [(torch.arange(4.0 * size).reshape(size, 4),) for size in (2, 4, 6)]
    compilations(program, calls, dynamic=dynamic)
    assert events.counters["graph_breaks"] == 0
