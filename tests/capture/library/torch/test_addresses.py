"""`Tensor.data_ptr()`: two addresses are compared as in eager; other uses are left to Python."""

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(12.0).reshape(3, 4)


def views(x):
    return x.detach(), x.view(-1), x[0], x[1:], x.T, x[:, :0], x.view(torch.int32)


def same_memory(x):
    return [v.data_ptr() == w.data_ptr() for v in views(x) for w in views(x)], x + 1


def other_memory(x):
    fresh = x + 1
    copies = (x.clone(), fresh, x.contiguous(), x.T.contiguous(), x.reshape(-1), x.to(x.dtype))
    return [x.data_ptr() != y.data_ptr() for y in copies], fresh.data_ptr() == fresh[0].data_ptr()


def empty_memory(x):
    return x[:0].data_ptr() == torch.empty(0).data_ptr(), x.data_ptr() == torch.empty(0).data_ptr()


def after_another_place(x):
    before = x.data_ptr()
    x.data = x + 1
    return before == x.data_ptr(), x * 2


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [same_memory, other_memory, empty_memory])
def test_compared_in_one_graph(program, dynamic):
    check(program, X, dynamic=dynamic)


def test_a_tensor_that_is_given_other_memory():
    check(after_another_place, X, breaks=None)


def test_inputs_that_share_memory():
    def f(x, y):
        return x.data_ptr() == y.data_ptr(), x + y

    compiled = pliant.compile(f)
    base = torch.ones(4)
    pairs = [(base[:2], base[2:]), (base[:2], base[:2]), (base, base), (base, torch.ones(4))]
    for x, y in (*pairs, *reversed(pairs)):
        assert compiled(x, y)[0] is (x.data_ptr() == y.data_ptr())


def test_other_uses():
    def f(x):
        y = x + 1
        address = x.data_ptr()
        seen = {address: y}
        return address, address % 2, x.data_ptr() in seen, f"{address}", hash(address), y

    compiled = pliant.compile(f)
    for _ in range(2):
        for actual, expected in zip(compiled(X)[:5], f(X)[:5]):
            assert actual == expected
