"""Views of what is not in memory, and which of its dimensions are broadcast."""

import pytest
import torch

import pliant
from pliant.base import events
from pliant.loop.types import Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered
from pliant.ops.views import view_of
from pliant.sym.expr import ONE, integer, symbol
from tests.support.against_eager import check, run, same_outcome

pytestmark = pytest.mark.own_default

# Tensors of one element whose size is an expression.
ONES = {
    "all but the last": (lambda c: c[:-1], 2),
    "every other": (lambda c: c[::2], 2),
    "the last": (lambda c: c[-1:], 2),
    "a range": (lambda c: torch.arange(0, len(c), 2) + 3, 2),
    "as many as are left over": (lambda c: c[: len(c) % 2], 3),
    "half as many": (lambda c: torch.full((len(c) // 2,), 7), 3),
    "at most one": (lambda c: c[: min(len(c), 1)], 3),
    "windows": (lambda c: c.unfold(0, 2, 1)[:, 0], 2),
    "joined": (lambda c: torch.cat([c[:-1], c[1:]])[1:], 2),
    "in the data": (lambda c: c[c == 3], 3),
}


def copy_to_a_slice(d, one):
    d[0:].copy_(one)


def copy_to_all(d, one):
    d.copy_(one)


def set_a_slice(d, one):
    d[1:] = one


def set_by_index(d, one):
    d[torch.tensor([0, 2])] = one.to(d.dtype)


def set_by_mask(d, one):
    d[d > 4] = one.to(d.dtype)


def add_in_place(d, one):
    d += one


def write_to_out(d, one):
    torch.add(one, d, out=d)


def copy_to_a_row(d, one):
    d.view(1, -1)[:, 1:].copy_(one.unsqueeze(1))


def expand(d, one):
    return one.expand(len(d)).clone()


def choose(d, one):
    return torch.where(d > 4, one, d)


def scatter(d, one):
    return torch.slice_scatter(d, one.to(d.dtype).expand(len(d) - 1), 0, 1)


USES = [copy_to_a_slice, copy_to_all, set_a_slice, set_by_index, set_by_mask, add_in_place]
USES += [write_to_out, copy_to_a_row, expand, choose, scatter]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("name", ONES)
def test_one_element_of_symbolic_size_is_broadcast(name, dtype, use):
    make, length = ONES[name]

    def function(c, d):
        return use(d, make(c))

    compiled = pliant.compile(function, dynamic=True)
    for size in (3, 5):
        mine, eagers = [
            (torch.arange(3, 3 + length).to(dtype), torch.arange(4.0, 4.0 + size)) for _ in "ab"
        ]
        torch.testing.assert_close(compiled(*mine), function(*eagers), rtol=0, atol=0)
        torch.testing.assert_close(mine, eagers, rtol=0, atol=0)


def lazy(*sizes):
    return IndexedTensor(sizes, Type.F32, lambda b, index: index, 0)


def test_expand_gives_up_unless_it_knows_what_is_1():
    a, b = symbol("a"), symbol("b")
    assert view_of("aten.expand.default", lazy(ONE), (a,), [a]).at(None, (b,)) == (integer(0),)
    assert view_of("aten.expand.default", lazy(a), (a,), [a]).at(None, (b,)) == (b,)
    with pytest.raises(NotLowered):
        view_of("aten.expand.default", lazy(b), (a,), [a])


def test_broadcasting_goes_by_what_is_known_of_sizes():
    a, b = symbol("a"), symbol("b")
    low = Lowering(simplify=lambda size: ONE if size is b else size)
    places = low.map(lambda body, x, y: (x, y), Type.F32, lazy(a), lazy(b))

    class Body:
        def once(self, key, index, compute):
            return compute()

    assert places.at(Body(), (a,)) == ((a,), (integer(0),))


SPLITS = {
    "unsafe_split": lambda x: torch.unsafe_split(x, 2),
    "unsafe_split_with_sizes": lambda x: torch.ops.aten.unsafe_split_with_sizes(x, [1, 3]),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SPLITS)
def test_views_that_no_schema_declares(name, dynamic):
    """A write to a part is one to the whole."""

    def write_to_a_part(x):
        whole = x * 2
        SPLITS[name](whole)[1].add_(1)
        SPLITS[name](x)[0].mul_(3)
        return whole, x + whole

    x = torch.arange(4.0)
    y = x.clone()
    expected = write_to_a_part(x)
    for made, wanted in zip(pliant.compile(write_to_a_part, dynamic=dynamic)(y), expected):
        torch.testing.assert_close(made, wanted)
    assert torch.equal(x, y)


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dims", [(0, 1), (1, 0), (-1, 0), (1, 2)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_diagonal_of_what_is_not_in_memory_is_one_kernel(offset, dims, dynamic):
    def scaled_diagonal(x):
        return torch.diagonal(x * 2 + 1, offset, *dims) * 3

    x = torch.randn(4, 3, 5)
    made = []
    with events.listening(made.append), torch.no_grad():
        result = pliant.compile(scaled_diagonal, dynamic=dynamic)(x)
    torch.testing.assert_close(result, scaled_diagonal(x))
    (generated,) = [e for e in made if isinstance(e, events.CodeGenerated)]
    assert len(generated.kernels()) == 1


def kernels_of(function, x, dynamic):
    """How many there are, in a compiled function that is right."""
    made = []
    with events.listening(made.append), torch.no_grad():
        result = pliant.compile(function, dynamic=dynamic)(x)
        torch.testing.assert_close(result, function(x))
    (generated,) = [e for e in made if isinstance(e, events.CodeGenerated)]
    return len(generated.kernels())


@pytest.mark.parametrize("window", [(0, 3, 1), (1, 2, 2), (-1, 2, 3), (1, 0, 1), (0, 6, 4)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_of_what_is_not_in_memory_are_one_kernel(window, dynamic):
    x = torch.randn(6, 5, 4)
    assert kernels_of(lambda x: (x * 2).unfold(*window) * 3, x, dynamic) == 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_windows_that_overlap_do_not_repeat_what_takes_long(dynamic):
    x = torch.randn(6, 5)
    assert kernels_of(lambda x: x.sin().unfold(0, 3, 1) * 3, x, dynamic) == 2
    assert kernels_of(lambda x: x.sin().unfold(0, 2, 2) * 3, x, dynamic) == 1


@pytest.mark.parametrize("first", [-1, 2])
@pytest.mark.parametrize("size", [0, 1, 3])
def test_expanded_to_a_number_that_may_be_negative(size, first):
    """In front it is refused; where there is a dimension, -1 keeps it."""

    def in_front(x, n):
        n ** x.expand(n, *x.shape)  # not used, but what can't be is refused
        return x.expand(n, *x.shape) * 1

    def at_its_place(x, n):
        return x.expand(n) * n, x.expand(2, n)

    for function in (in_front, at_its_place):
        compiled = pliant.compile(function, dynamic=True)
        for n in (first, -1, -2, 0, 1, size):
            x = torch.arange(1.0, size + 1)
            same_outcome(*[run(side, (x, n)) for side in (compiled, function)])


@pytest.mark.parametrize("sizes", [((2, 3), (3,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4, 5))], ids=str)
def test_a_product_is_no_view(sizes):
    def f(a, b):
        return (a @ b)._is_view()

    assert pliant.compile(f, dynamic=True)(*map(torch.ones, sizes)) is False


AS_OTHER_SIZES = {
    "of a size that is made": lambda x: x.view(-1, 2).view(torch.int64),
    "a part": lambda x: x.view(-1, 2).view(torch.int64)[1:],
    "smaller": lambda x: x[1:].view(torch.int16)[:, 1:],
    "complex": lambda x: x.view(-1, 2).view(torch.complex64),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("name", AS_OTHER_SIZES)
def test_results_that_show_an_input_as_elements_of_another_size(name, offset, dynamic):
    """Though the sizes of the input itself would not allow it."""
    function = AS_OTHER_SIZES[name]
    x = torch.arange(9.0)[offset : offset + 6].view(6, 1)
    check(function, x, dynamic=dynamic)
