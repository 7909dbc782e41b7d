"""`out=`, `resize_` and `set_` that give a tensor another shape, where sizes are symbols: what the
program sees of it afterwards, at the sizes of every call."""

import copy

import pytest
import torch

import pliant
from tests.support.against_eager import run, same_outcome

pytestmark = pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")

USES = {
    "shape": lambda a: list(a.shape),
    "len": len,
    "size": lambda a: -a.size(0),
    "numel": lambda a: a.numel() // 2,
    "sizes as arguments": lambda a: (torch.arange(a.shape[0]), torch.ones(a.shape)),
    "stride": lambda a: a.stride(),
    "index": lambda a: a[torch.arange(a.shape[0])],
    "write by index": lambda a: a.index_fill_(0, torch.arange(a.size(0)), 2.0),
    "add": lambda a: a + 1,
    "view": lambda a: a.unsqueeze(0)[..., ::2],
    "branch": lambda a: a * 2 if a.size(0) > 2 else a - 1,
    "random numbers": lambda a: torch.rand(a.shape),
}

RESIZES = {
    "mul": lambda x, out: torch.mul(x, x, out=out),
    "div": lambda x, out: torch.div(x, 2, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "where": lambda x, out: torch.where(x > 0, x, x, out=out),
    "eq": lambda x, out: torch.eq(x, x, out=out),
    "sum": lambda x, out: torch.sum(x, -1, keepdim=True, out=out),
    "mean": lambda x, out: torch.mean(x.unsqueeze(0), 0, out=out),
    "max": lambda x, out: torch.amax(x.unsqueeze(0), 0, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "stack": lambda x, out: torch.stack([x, x], out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "sort": lambda x, out: torch.sort(x, 0, out=(out, torch.empty(0, dtype=torch.int64)))[0],
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([0, 0]), out=out),
    "flip": lambda x, out: torch.mul(x, 1, out=out).flip(0),
    "resize_": lambda x, out: out.resize_(x.shape).copy_(x),
    "resize_as_": lambda x, out: out.resize_as_(x).copy_(x),
    "set_": lambda x, out: out.set_(x.clone()),
}

OUTPUTS = {
    "scalar": lambda x: torch.ones(()),
    "empty": lambda x: torch.empty(0),
    "larger": lambda x: torch.ones(40),
    "two dimensions": lambda x: torch.ones(3, 2),
    "part of an input": lambda x: torch.ones(4, 5)[1:2],
}


def agree(function, makers, *, backend: str, dynamic: bool | None) -> None:
    compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
    for make in makers:
        args = make()
        expected = run(function, copy.deepcopy(args))
        actual = run(compiled, copy.deepcopy(args))
        same_outcome(actual, expected)


def sized(maker, shapes=((2,), (3,), (5,), (1,))):
    return [
        lambda s=s: (x := torch.arange(float(torch.Size(s).numel())).reshape(s), maker(x))
        for s in shapes
    ]


BOTH = pytest.mark.parametrize("backend", ["eager", "llvm"])
DYNAMIC = pytest.mark.parametrize("dynamic", [None, True])


def seen(out):
    return list(out.shape), -out.size(0), torch.ones(out.shape), out + 1, torch.rand(out.shape)


@DYNAMIC
@BOTH
@pytest.mark.parametrize("make", OUTPUTS)
@pytest.mark.parametrize("name", RESIZES)
def test_inputs(name, make, backend, dynamic) -> None:
    def function(x, out):
        result = RESIZES[name](x, out)
        return seen(out), result.shape

    agree(function, sized(OUTPUTS[make]), backend=backend, dynamic=dynamic)


@DYNAMIC
@BOTH
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", ["mul", "cat"])
def test_uses(name, use, backend, dynamic) -> None:
    def function(x, out):
        RESIZES[name](x, out)
        return USES[use](out)

    agree(function, sized(OUTPUTS["scalar"]), backend=backend, dynamic=dynamic)


@BOTH
@pytest.mark.parametrize("name", RESIZES)
def test_matrices(name, backend) -> None:
    def function(x, out):
        RESIZES[name](x, out)
        return seen(out), out.stride()

    shapes = ((2, 3), (4, 3), (4, 6), (1, 5), (3, 1))
    agree(function, sized(OUTPUTS["empty"], shapes), backend=backend, dynamic=True)
    turned = [lambda s=s: (torch.ones(s).T, torch.ones(())) for s in shapes]
    agree(function, turned, backend=backend, dynamic=True)


@DYNAMIC
@BOTH
@pytest.mark.parametrize("name", RESIZES)
def test_new_tensors_and_views(name, backend, dynamic) -> None:
    def new(x):
        out = torch.cat([x, x, x])
        RESIZES[name](x, out)
        return seen(out)

    def view(x):
        base = x.new_zeros(9, 2)
        out = base[2:4, 0]
        RESIZES[name](x, out)
        return seen(out), base

    for function in (new, view):
        makers = [lambda n=n: (torch.arange(float(n)),) for n in (2, 3, 5, 1)]
        agree(function, makers, backend=backend, dynamic=dynamic)


@DYNAMIC
@BOTH
def test_tensors_that_are_read_or_have_other_views(backend, dynamic) -> None:
    def read(x):
        torch.abs(x[torch.tensor([0, -1])], out=x)
        return seen(x)

    def rows(x):
        torch.exp(x.new_ones(x.size(0), 2), out=x)
        return seen(x)

    def viewed(x, y):
        part = x[1:]
        torch.add(y, 1, out=x)
        return seen(x), part.shape, part

    def argument_twice(x, y, z):
        torch.add(y, 1, out=x)
        return seen(x), z.shape, z is x

    sizes = (3, 2, 5, 4)
    one = [lambda n=n: (torch.arange(float(n)),) for n in sizes]
    agree(read, one, backend=backend, dynamic=dynamic)
    agree(rows, one, backend=backend, dynamic=dynamic)
    two = [lambda n=n: (torch.arange(6.0), torch.arange(float(n))) for n in sizes]
    agree(viewed, two, backend=backend, dynamic=dynamic)
    three = [lambda n=n: (x := torch.arange(6.0), torch.arange(float(n)), x) for n in sizes]
    agree(argument_twice, three, backend=backend, dynamic=dynamic)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("use", USES)
def test_smaller(use, dynamic, size) -> None:
    def function(a):
        result = torch.gather(0 + a, 0, torch.tensor([], dtype=torch.int64), out=a)
        assert result is a
        return USES[use](a)

    agree(function, [lambda: (torch.ones(size),)], backend="llvm", dynamic=dynamic)
