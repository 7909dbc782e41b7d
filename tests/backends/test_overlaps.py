"""Operators that read what they write: eager PyTorch refuses most of them, and has an order of its
own for the others."""

import random
import warnings

import pytest
import torch

import pliant
from pliant.base import events
from pliant.graph.overlap import overlap
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default


def at(*places):
    return torch.tensor(places)


ALL = (6, 1, 2, 3, 4, 5, 0)

WRITES = [
    lambda x: torch.cat([x], out=x),
    lambda x: torch.cat([x[:2], x[2:4]], out=x[1:5]),
    lambda x: torch.cat([x[:2], x[:2]], out=x[4:5].expand(4)),
    lambda x: torch.stack([x[0], x[1]], out=x[:2]),
    lambda x: x.index_add_(0, at(*ALL), x),
    lambda x: x.index_copy_(0, at(0, 1), x[1:3]),
    lambda x: x.index_put_((at(*ALL),), x),
    lambda x: x.index_put_((at(*ALL),), x, accumulate=True),
    lambda x: x.index_put_((x > 0,), x[0]),
    lambda x: x.__setitem__(at(0, 1), x[2]),
    lambda x: x.__setitem__(x > 0, x[0]),
    lambda x: x.__setitem__(slice(0, 3), x[1:4]),
    lambda x: x.scatter_(0, at(*ALL), x),
    lambda x: x.scatter_add_(0, at(*ALL), x),
    lambda x: torch.gather(x, 0, at(*ALL), out=x),
    lambda x: torch.index_select(x, 0, at(*ALL), out=x),
    lambda x: torch.take(x, at(*ALL), out=x),
    lambda x: x.put_(at(*ALL), x),
    lambda x: x.masked_scatter_(x > 0, x),
    lambda x: x.masked_fill_(x > 0, x[0]),
    lambda x: x.fill_(x[3]),
    lambda x: x.copy_(x.flip(0)),
    lambda x: x.unflatten(0, (1, 7)).copy_(x),
    lambda x: x[1:].copy_(x[:-1]),
    lambda x: x[1:].add_(x[:-1]),
    lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).t()),
    lambda x: x[::2][:3].add_(x[1::2]),
    lambda x: x[::2].add_(x[:4]),
    lambda x: x[:6].view(2, 3).add_(x[:3]),
    lambda x: x[:6].view(3, 2)[:, 0].mul_(x[:6].view(3, 2)[:, 1]),
    lambda x: x.mul_(x),
    lambda x: torch.add(x[:4], 1, out=x[1:5]),
    lambda x: torch.sum(x, 0, out=x[0]),
    lambda x: torch.cumsum(x, 0, out=x),
    lambda x: torch.bmm(*[x[:4].view(1, 2, 2)] * 2, out=x[:4].view(1, 2, 2)),
    lambda x: torch.where(x[1:] > 0, x[1:], 0.0, out=x[:-1]),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", WRITES, ids=range(len(WRITES)))
def test_writes_to_what_is_read(function, dynamic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [
            call(made, [torch.arange(7.0) - 2])
            for made in (pliant.compile(function, dynamic=dynamic), function)
        ]
    assert difference(*outcomes) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::2][:3].add_(x[1::2]),
        lambda x: x[:6].view(3, 2)[:, 0].mul_(x[:6].view(3, 2)[:, 1]),
        lambda x: x[:6].view(2, 3)[:, 1:].copy_(x[:6].view(2, 3)[:, :1]),
    ],
)
def test_parts_of_one_memory_that_are_apart_are_compiled(function):
    x, y = torch.arange(7.0), torch.arange(7.0)
    pliant.compile(function)(x)
    function(y)
    assert torch.equal(x, y) and events.counters["programs"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_whether_two_views_overlap(seed):
    rng = random.Random(seed)
    memory = torch.arange(200)

    def view():
        rank = rng.randint(0, 3)
        sizes = [rng.randint(1, 4) for _ in range(rank)]
        return memory.as_strided(
            sizes, [rng.choice([0, 1, 2, 3, 4, 6, 12]) for _ in sizes], rng.randint(0, 30)
        )

    for _ in range(1000):
        a, b = view(), view()
        shared = {*a.flatten().tolist()} & {*b.flatten().tolist()}
        places = [(tuple(t.size()), tuple(t.stride()), t.storage_offset()) for t in (a, b)]
        assert overlap(*places, elementwise=False) is bool(shared)


@pytest.mark.parametrize("function", [torch.sum, torch.argmax, torch.amin])
def test_more_dimensions_than_kernels_take(function):
    x = torch.arange(2.0).reshape([1] * 69 + [2])
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        pliant.compile(lambda x: function(x, 0))(x)
    assert pliant.compile(lambda x: x + 1)(x).flatten().tolist() == [1, 2]


# Whether these overlap depends on the size, n.
BY_SIZE = {
    "shifted": lambda x: x[1:].copy_(x[:-1]),
    "shifted by two": lambda x: x[2:].copy_(x[:-2]),
    "set": lambda x: x.__setitem__(slice(1, None), x[:-1]),
    "added": lambda x: x[3:].add_(x[:-3]),
    "dilated": lambda x: x[::2].mul_(x[: (x.size(0) + 1) // 2]),
    "odd and even": lambda x: x[1::2].add_(x[: 2 * (x.size(0) // 2) : 2]),
    "apart": lambda x: x[: x.size(0) // 2].add_(x[x.size(0) - x.size(0) // 2 :]),
    "broadcast": lambda x: x[2:].copy_(x[:1]) if x.size(0) else x,
    "broadcast of the last": lambda x: x[:3].add_(x[-1:]) if x.size(0) else x,
    "flipped": lambda x: x.copy_(x.flip(0)),
    "out": lambda x: torch.add(x[:-2], 1, out=x[2:]),
    "the very elements": lambda x: torch.mul(x[1:], x[1:], out=x[1:]),
    "scattered": lambda x: (
        x[2:].scatter_(0, torch.zeros(1, dtype=torch.int64), x[:1]) if x.size(0) > 2 else x
    ),
    "index_add": lambda x: x[2:].index_add_(0, at(0), x[1:2]) if x.size(0) > 2 else x,
    "index_put": lambda x: x[1:].index_put_((at(0),), x[-1:]) if x.size(0) > 1 else x,
    "masked": lambda x: x[1:].masked_fill_(x[:-1] > 1, 0.0),
    "where": lambda x: torch.where(x[:-1] > 1, x[:-1], 0.5, out=x[1:]),
    "another dtype": lambda x: x[1:].copy_(x.view(torch.int32)[:-1]),
    "half of another": lambda x: x[2:].copy_(x.view(torch.int16)[: max(x.size(0) - 2, 0)]),
    "strided": lambda x: (
        x.as_strided((x.size(0) // 2,), (1,), 1).add_(x[: x.size(0) // 2]) if x.size(0) else x
    ),
    "strided onto itself": lambda x: (
        x.as_strided((2, x.size(0) // 2), (2, 1)).add_(1) if x.size(0) > 3 else x
    ),
    "expanded": lambda x: x[:1].expand(x.size(0)).add_(1) if x.size(0) else x,
}


def of_a_copy(function):
    """The same with memory that the program makes."""

    def on_a_copy(x):
        y = x * 2
        function(y)
        return y

    return on_a_copy


def in_two_dimensions(function):
    """The same with rows of what is transposed."""

    def turned(x):
        y = x.repeat(3).view(3, -1).t()
        function(y[:, 1])
        return y.sum(1)

    return turned


SIZES = (0, 1, 2, 3, 5, 4, 11)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", BY_SIZE)
def test_overlap_that_depends_on_the_size(name, dynamic):
    for first in (1, 2, 5):
        compare_at_sizes(BY_SIZE[name], (first, *SIZES), dynamic)


@pytest.mark.parametrize("name", BY_SIZE)
@pytest.mark.parametrize("around", [of_a_copy, in_two_dimensions], ids=lambda f: f.__name__)
def test_overlap_in_memory_that_the_program_makes(name, around):
    compare_at_sizes(around(BY_SIZE[name]), (2, *SIZES), True)


def compare_at_sizes(function, sizes, dynamic):
    compiled = pliant.compile(function, dynamic=dynamic)
    for n in sizes:
        outcomes = [call(f, [torch.arange(n * 1.0) + 1]) for f in (compiled, function)]
        assert difference(*outcomes) is None, n


@pytest.mark.parametrize("dynamic", [None, True])
def test_overlap_that_depends_on_a_number(dynamic):
    def moved(x, by):
        x[by:].add_(x[: x.size(0) - by])
        return x

    compiled = pliant.compile(moved, dynamic=dynamic)
    for n, by in ((8, 4), (8, 5), (9, 3), (9, 8), (12, 2), (4, 2), (3, 0)):
        outcomes = [call(f, [torch.arange(n * 1.0), by]) for f in (compiled, moved)]
        assert difference(*outcomes) is None, (n, by)


def test_an_input_whose_strides_overlap():
    def function(x):
        return x.add_(1)

    compiled = pliant.compile(function, dynamic=True)
    for strides in ((4, 1), (1, 4), (1, 2), (1, 1), (0, 1), (2, 3), (1, 1), (5, 2)):
        outcomes = [
            call(f, [torch.arange(64.0).as_strided((4, 4), strides)]) for f in (compiled, function)
        ]
        assert difference(*outcomes) is None, strides


WINDOWS = {
    "set": lambda w: w.__setitem__(slice(0, None), w[:-1].clone() if w.dim() > 3 else w[:1] * 2),
    "set some": lambda w: w.__setitem__((slice(0, None), 0), 7.0),
    "copied": lambda w: w.copy_(w.clone() + 1),
    "added": lambda w: w.add_(1),
    "masked": lambda w: w.masked_fill_(w > 3, 0.0),
    "a part of them": lambda w: w[..., 0].zero_(),
    "those that are apart": lambda w: w[..., ::2, :].mul_(3),
    "out": lambda w: torch.add(w, 1, out=w),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("of_memory", ["of an input", "of the program"])
@pytest.mark.parametrize("name", WINDOWS)
def test_what_was_read_of_windows_that_are_written_to(name, of_memory, dynamic):
    def function(x):
        x = x * 2 if of_memory == "of the program" else x
        windows = x.unfold(2, 2, 1)
        before = torch.nn.functional.hardshrink(windows)
        WINDOWS[name](windows)
        return before, windows * 1, x

    x = torch.arange(16.0).reshape(2, 2, 4)
    compiled = pliant.compile(function, dynamic=dynamic)
    outcomes = [call(f, [x.clone()]) for f in (compiled, function)]
    assert difference(*outcomes) is None


OF_NOTHING = [
    lambda x: x.scatter_(0, x, x),
    lambda x: x.scatter_reduce_(0, x, x, "sum"),
    lambda x: x.index_add_(0, x, x),
    lambda x: x.index_put_((x,), x),
    lambda x: torch.take(x, x, out=x),
    lambda x: x.put_(x, x),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", OF_NOTHING)
def test_a_tensor_is_itself_without_elements_too(function, dynamic):
    compiled = pliant.compile(function, dynamic=dynamic)
    for n in (0, 2, 0):
        with pytest.raises(RuntimeError, match="single memory location"):
            function(torch.zeros(n, dtype=torch.int64))
        with pytest.raises(RuntimeError, match="single memory location"):
            compiled(torch.zeros(n, dtype=torch.int64))


STRICT = [
    lambda x, out: torch.index_select(x, 0, at(0, 1), out=out),
    lambda x, out: torch.take(x, at(0, 1), out=out),
    lambda x, out: torch.index_add(x, 0, at(0, 1), x, out=out),
    lambda x, out: torch.index_copy(x, 0, at(0, 1), x, out=out),
]


@pytest.mark.parametrize("write", STRICT)
def test_an_out_of_another_dtype_that_eager_refuses(write):
    def f(x):
        out = torch.zeros(2, dtype=torch.float64) + 1
        write(x, out)
        return out

    for function in (f, pliant.compile(f)):
        with pytest.raises(RuntimeError, match="dtype|scalar type"):
            function(torch.ones(2))
    compiled = pliant.compile(f)
    assert torch.equal(compiled(torch.ones(2).double()), f(torch.ones(2).double()))
