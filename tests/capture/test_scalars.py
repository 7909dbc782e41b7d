"""Numbers that are not Python's own: tensors with one element that capture knows, and NumPy's."""

import numpy as np
import pytest
import torch

import pliant
from tests.support.closeness import exact

X = torch.arange(12.0).reshape(3, 4)


def both(function, *args, **options):
    compiled = pliant.compile(function, fullgraph=True, **options)
    got, expected = compiled(*args), function(*args)
    torch.testing.assert_close(got, expected, **exact())
    return got


# ---- tensors


def test_reading_a_known_tensor():
    def program(x):
        n = torch.tensor(3)
        m = n * 2 - 1
        half = torch.full((), 0.1)  # not the double 0.1
        return x + m, int(n), m.item(), float(half), bool(n > 2)

    assert both(program, X)[1:] == (3, 5, pytest.approx(0.1), True)


def test_branch_on_a_known_tensor():
    def program(x):
        if torch.tensor(2) > 1 and not torch.zeros((), dtype=torch.bool):
            return x + 1
        return x - 1

    both(program, X)


def test_known_tensor_as_an_index_and_a_size():
    def program(x):
        n = torch.div(x.shape[1], 2, rounding_mode="trunc")
        return x[:, :n], x.view(x.shape[0], n, 2), x.new_zeros((n + 1, 3)), x.reshape(-1, n)

    both(program, X)


def test_sizes_stay_symbolic():
    def program(x):
        n = torch.div(x.shape[1], 2, rounding_mode="trunc")
        rows = torch.tensor(x.shape[0]) + 1
        return x.view(x.shape[0], n, 2), x.new_ones(int(rows)), rows

    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for sizes in ((3, 4), (5, 10), (2, 6)):
        x = torch.randn(sizes)
        torch.testing.assert_close(compiled(x), program(x), **exact())
    assert pliant.counters["compilations"] == 1


def test_written_tensor_is_not_known_anymore():
    def program(x):
        n = torch.tensor(3)
        same = n.view(())
        n.add_(1)
        return x * int(same)

    compiled = pliant.compile(program)
    assert torch.equal(compiled(X), X * 4)


def test_what_is_in_an_empty_tensor_is_not_known():
    def program(x):
        place = torch.empty((), dtype=torch.long)
        place.fill_(2)
        return x * int(place)

    compiled = pliant.compile(program)
    assert torch.equal(compiled(X), X * 2)


def test_known_tensor_is_still_a_tensor():
    def program(x):
        n = torch.tensor(3)
        return n.reshape(1), torch.reshape(n, (1, 1)), n.expand(2), torch.full((2,), n), x.sum() + n

    both(program, X)


# ---- NumPy

THREE, TENTH = np.int64(3), np.float32(0.1)


def test_numpy_numbers_with_tensors():
    def program(x):
        mixed = x * THREE + TENTH, THREE * x, x / np.float32(3), x.sum(dim=np.int64(0))
        return *mixed, x.view(np.prod(x.shape)), x * np.sqrt(2.0), x.half() * np.float64(2)

    got = both(program, X)
    assert got[-1].dtype is torch.float16


def test_numpy_numbers_by_themselves():
    def program(x):
        numbers = THREE + 1, 2 * TENTH, np.lcm(4, 6), np.prod(x.shape), np.int32(7) // 2
        return x, numbers, THREE == 3, [5, 6, 7, 8][THREE], int(THREE), f"{THREE}", range(THREE)

    compiled = pliant.compile(program, fullgraph=True)
    got, expected = compiled(X)[1:], program(X)[1:]
    assert got == expected
    assert [type(number) for number in got[0]] == [type(number) for number in expected[0]]


def test_numpy_number_is_guarded():
    compiled = pliant.compile(lambda x, k: x * k)
    for k in (np.int64(2), np.int64(3), np.int32(2), np.float32(0.5), np.float32(-0.0)):
        got = compiled(X, k)
        assert torch.equal(got, X * k)
        assert torch.equal(torch.signbit(got), torch.signbit(X * k))


def test_numpy_arrays_are_no_constants():
    def program(x):
        pair = np.int64(2) * (1, 2)
        return x + 1, pair

    got, expected = pliant.compile(program)(X), program(X)
    assert torch.equal(got[0], expected[0])
    assert np.array_equal(got[1], expected[1])


def test_error_of_a_numpy_function():
    compiled = pliant.compile(lambda x: x * np.prod([1, 2], axis=3))
    with pytest.raises(np.exceptions.AxisError, match="axis 3 is out of bounds"):
        compiled(X)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("inside", [False, True])
def test_numbers_are_read_in_inference_mode(around, inside):
    def program(x):
        with torch.inference_mode(inside):
            total = x.sum().item()
            kept = x[x > 1].shape[0]
        return x * int(x[0]) + total, kept, float(x.max())

    compiled = pliant.compile(program, fullgraph=True)
    for scale in (1, 2):
        x = torch.arange(4.0) * scale
        with torch.inference_mode(around):
            assert str(compiled(x)) == str(program(x))


def test_only_one_element_is_a_number_in_inference_mode():
    with torch.inference_mode(), pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        pliant.compile(lambda x: x.item())(torch.ones(2))


# ---- the truth of tensors with other than one element, which is an error


def in_lists(x):
    return x in [1, x]


def in_tuples(x):
    return (1, x).index(2)


def as_a_condition(x):
    return 1 if x else 2


def as_a_number(x):
    return bool(x)


def among_others(x):
    return sorted([x, x + 1])


def of_nothing(x):
    return not x[:0]


def caught(x):
    try:
        return x and 1
    except RuntimeError as error:
        return str(error), x + 1


AMBIGUOUS = [in_lists, in_tuples, as_a_condition, as_a_number, among_others, of_nothing, caught]


@pytest.mark.parametrize("program", AMBIGUOUS, ids=lambda program: program.__name__)
def test_the_truth_of_many_elements_is_an_error(program, check):
    check(program, torch.arange(3.0))


def test_the_truth_of_a_symbolic_number_of_elements():
    compiled = pliant.compile(as_a_number, dynamic=True)
    for size in (3, 4, 0):
        message = "more than one value is" if size else "no values is"
        with pytest.raises(RuntimeError, match=message):
            compiled(torch.ones(size))
    assert compiled(torch.ones(1)) is True
