"""NumPy code in compiled functions: NumPy's own numbers, in one graph with PyTorch's."""

import numpy as np
import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.programs import Programs

program = Programs(dynamic=None)
A = np.random.RandomState(0).randn(3, 4)
B = np.random.RandomState(1).randn(3, 4)
I = np.arange(6).reshape(2, 3)  # noqa: E741
X = torch.from_numpy(A.astype(np.float32))


@program(A, B)
def operators(a, b):
    return a + b, 2 * a, a @ b.T, -a, a**2, a // b, a > b, (a > 0) & (b > 0), abs(a), a % 2


@program(A)
def methods(a):
    reduced = a.sum(), a.mean(axis=0), a.max(axis=1), a.argmax(), a.any()
    return reduced, a.T, a.reshape(4, 3), a.astype(np.float32), a.clip(0, 1), a.copy(), a.cumsum()


@program(A)
def functions(a):
    made = np.linspace(0, 1, 5), np.arange(3), np.eye(3), np.ones((2, 2)), np.array([1, 2.0])
    joined = np.concatenate([a, a]), np.stack([a, a], axis=1), np.split(a, 2, axis=1)
    return made, joined, np.where(a > 0, a, 0), np.einsum("ij,ij->i", a, a), np.sort(a), np.exp(a)


@program(A)
def linear_algebra(a):
    return np.linalg.inv(a[:, :3]), np.linalg.svd(a), np.fft.fft(a), np.linalg.norm(a)


@program(A)
def items(a):
    return a[0], a[1:, ::2], a[..., None], a[-1, -1], a[[0, 2]], a[np.array([0, 1])], [*a]


@program(X)
def indices_of_tensors(x):
    order, mask = np.array([1, 0], dtype=np.int32), x.numpy() > 0.5
    x[mask] = 0
    x[np.array([0]), np.array([1])] += 1
    x[0, np.arange(2)] = 5
    picked = x[order], x[:, np.array([True, False, True, True])], x[order, np.array([2, 3])]
    return picked, x[mask], x[..., np.array([[0, 1], [1, 0]])], x[None, np.array(1)]


@program(A)
def facts(a):
    kind = a.dtype == np.float64, a.dtype.kind, np.issubdtype(a.dtype, np.floating), type(a)
    return a.shape, a.ndim, a.size, len(a), kind, isinstance(a, np.ndarray), np.shape(a)


@program(A)
def numbers_from_arrays(a):
    return a.sum() * 2 + np.pi, a.max() - a.min(), np.float32(a.sum()), a / a.sum()


@program(A)
def writes(a):
    a[0] = 1
    a[:, 1] += 2
    a += 1
    b = a
    b.sort()
    return b


@program(X)
def writes_seen_by_the_tensor(x):
    a = x.numpy()
    a += 1
    return x * 2


@program(A, X)
def to_tensors(a, x):
    t = torch.from_numpy(a)
    t.add_(1)
    return a.sum(), t, torch.as_tensor(a, dtype=torch.float32) + x, torch.tensor(a)


@program(X)
def through_numpy(x):
    return torch.from_numpy(np.sin(x.numpy())) + torch.tensor(x.numpy().sum(axis=0))


@program(A, breaks=1)
def a_mask(a):
    return a[a > 0] + 1


@program(A, breaks=1)
def a_branch(a):
    return a + 1 if a.sum() > 0 else a - 1


@program(A, breaks=None)
def found_by_contents(a):
    return np.nonzero(a > 0), np.unique(a.round()), np.allclose(a, a), a.tolist()


@program(torch.ones(2, requires_grad=True), breaks=None)
def a_tensor_that_refuses(x):
    return x.numpy()


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)


def test_arrays_are_inputs_with_guards():
    compiled = pliant.compile(lambda a: np.sin(a) * 2, fullgraph=True)
    for array in (A, B, A.astype(np.float32), A[:2], A.T, I):
        np.testing.assert_array_equal(compiled(array), np.sin(array) * 2)
        assert compiled(array).dtype == (np.sin(array) * 2).dtype
    assert pliant.counters["compilations"] == 5


# ---- numbers that are symbols, and tensors as arguments


def mixed(x, a):
    y = np.where(x < 0.5, a, x) + np.maximum(x, a) * a - a
    y += a
    return y


def test_one_compilation_for_all_numbers_of_a_type() -> None:
    x = np.array([0.25, 1.5, -2.0])
    compiled = pliant.compile(mixed, dynamic=True, fullgraph=True)
    events.counters.reset()
    for number in (3, 4, -1, 0, 2.5, 1.5):
        result, expected = compiled(x, number), mixed(x, number)
        assert np.array_equal(result, expected) and result.dtype == expected.dtype
    assert events.counters["compilations"] == 2


def test_a_number_that_does_not_fit_raises_as_in_numpy() -> None:
    x = np.array([1, 2], dtype=np.int8)
    compiled = pliant.compile(lambda x, a: x + a, dynamic=True)
    assert compiled(x, 3).dtype == np.int8
    for function in (compiled, lambda x, a: x + a):
        with pytest.raises(OverflowError):
            function(x, 1000)


@pytest.mark.parametrize(
    "function",
    [
        lambda t: np.ones_like(t, dtype=np.float64),
        lambda t: np.full_like(t, 2),
        lambda t: np.stack([t, t + 1], axis=1),
        lambda t: np.concatenate((t, t)) * 2,
        lambda t: np.where(t > 0, t, -t),
    ],
)
def test_arrays_made_of_tensors(function) -> None:
    t = torch.tensor([1.0, -2.0])
    result, expected = pliant.compile(function, fullgraph=True)(t), function(t)
    assert type(result) is np.ndarray and result.dtype == expected.dtype
    assert np.array_equal(result, expected)


LISTED = {
    "a list": lambda x: (x.numpy().tolist(), x + 1),
    "of a reduction": lambda x: (x.numpy().sum(1).tolist(), x.numpy().max().item()),
    "of masks and integers": lambda x: [(x.numpy() > 1).tolist(), x.numpy().astype("i2").tolist()],
    "before a write": lambda x: (lambda a: (a.tolist(), a.fill(0), a))(x.numpy() * 2),
    "of what it is a view of": lambda x: (lambda a: (a.T.tolist(), x.clone().add_(1)))(x.numpy()),
    "items": lambda x: x[np.argmax(x.numpy(), 1).tolist()[0] :],
    "of constants": lambda x: (np.arange(3).tolist(), np.array([1.5]).item(), x + 1),
}


@pytest.mark.parametrize("name", LISTED)
def test_lists_of_numbers(name):
    check(LISTED[name], torch.arange(6.0).reshape(2, 3))
