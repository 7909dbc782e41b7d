"""Dropouts that kernels draw themselves, in Triton's interpreter: against the numbers of eager
PyTorch's kernels on CUDA, thread by thread."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.graph import gpu_draws
from tests.support import philox

pytest.importorskip("triton")

BLOCKS = 3
SEED = -5
aten = torch.ops.aten


class OneGenerator:
    """Takes the place of PyTorch's generator of a GPU with few processors."""

    index, blocks = 0, BLOCKS

    def __init__(self):
        self.counter = 3

    def take(self, count):
        before = self.counter
        self.counter += -(-count // (threads_for(count) * 4)) if count else 0
        return SEED, before


def threads_for(count):
    return 256 * min(-(-count // 256), BLOCKS)


class Eager:
    """Draws as eager PyTorch does on CUDA."""

    def __init__(self):
        self.counter = 3

    def dropout(self, x, p, aligned=True):
        width = 16 // x.element_size() if aligned else 1
        while x.numel() % width:
            width //= 2
        threads, count = threads_for(x.numel()), x.numel()
        drawn = philox.uniform(philox.bits(SEED, self.counter, count, threads, width))
        self.counter += -(-count // (threads * 4))
        computed = torch.float64 if x.dtype is torch.float64 else torch.float32
        kept = 1 - p if computed is torch.float64 else float(np.float32(1 - p))
        mask = torch.from_numpy(drawn.astype(np.float64) < kept).view(x.shape)
        scale = torch.tensor(1 / kept, dtype=computed)
        return (x.to(computed) * mask * scale).to(x.dtype)


@pytest.fixture
def generator(monkeypatch):
    one = OneGenerator()
    monkeypatch.setattr(gpu_draws, "generator_of", lambda device: one)
    monkeypatch.setattr(gpu_draws, "draws_so", lambda generator, dtype: True)
    return one


def dropout(x, p):
    return aten.native_dropout.default(x, p, True)[0]


def compiled(function, **options):
    return pliant.compile(function, backend="triton_interpreter", fullgraph=True, **options)


@pytest.fixture
def same(generator):
    def check(program, *args, dynamic=False, calls=(), exact=True):
        """Compares `program(dropout, *args)`; if not `exact`, up to the order of sums."""
        close = {"rtol": 0, "atol": 0} if exact else {}
        function = compiled(lambda *args: program(dropout, *args), dynamic=dynamic)
        for given in [args, *calls]:
            generator.counter = 3
            eager = Eager()
            found, expected = function(*given), program(eager.dropout, *given)
            torch.testing.assert_close(found, expected, equal_nan=True, **close)
            assert generator.counter == eager.counter
        assert not pliant.counters["failed_kernels"] and not pliant.counters["not_generated"]

    return check


SIZES = [(1,), (5,), (4, 8), (9, 33), (3, 1000), (70, 60)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("sizes", SIZES)
def test_dropout(sizes, dtype, same):
    x = torch.randn(sizes).to(dtype)
    same(lambda draw, x: draw(x, 0.3).relu() * 2, x)


def test_dropout_of_what_is_infinite(same):
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), -0.0] * 20)
    same(lambda draw, x: 1 / draw(x, 0.5), x)


@pytest.mark.parametrize("p", [1e-9, 0.1, 1 - 1e-9])
def test_probabilities(p, same):
    same(lambda draw, x: draw(x, p), torch.randn(500))


def test_several_dropouts_in_their_order(same):
    def program(draw, x, y):
        first, last = draw(x, 0.2), draw(y, 0.3)
        return draw(first + last.sum(0), 0.4) * first, last

    same(program, torch.randn(6, 40), torch.randn(9, 40), exact=False)


def test_symbolic_sizes(same):
    calls = [(torch.randn(m, n),) for m, n in [(7, 9), (64, 33), (2, 4), (900, 8)]]
    same(lambda draw, x: draw(x * 2, 0.1) + 1, torch.randn(5, 8), dynamic=True, calls=calls)


def test_dropout_in_rows(same):
    def program(draw, x):
        return draw(torch.softmax(x, -1), 0.2), draw(x, 0.5).amax(1), x - x.amax(1, keepdim=True)

    same(program, torch.randn(20, 64), exact=False)
    same(program, torch.randn(9, 77), exact=False)


def test_dropout_of_what_is_broadcast(same):
    def program(draw, x, y):
        return draw(x[:, None] * y, 0.2) + draw(x, 0.1)[:, None]

    same(program, torch.randn(30), torch.randn(8))


def test_dropout_of_a_part(same):
    """Which neighbours a thread takes depends on where memory begins."""

    def program(draw, x):
        y = x * 2
        return draw(y[1:41], 0.3), draw(y[4:44], 0.3)

    def eagerly(draw, x):
        y = x * 2
        return draw(y[1:41], 0.3, aligned=False), draw(y[4:44], 0.3)

    x = torch.randn(100)
    same(lambda draw, x: (program if draw is dropout else eagerly)(draw, x), x)


def test_dropout_of_a_part_of_an_input(same):
    memory = torch.randn(200)
    for first in (0, 1, 4):
        offset = memory.data_ptr() // 4 + first
        aligned = offset % 4 == 0

        def program(draw, x, aligned=aligned):
            return draw(x, 0.3) if draw is dropout else draw(x, 0.3, aligned=aligned)

        same(program, memory[first : first + 40])


def test_what_pytorch_draws(generator):
    """A layout in which it draws in another order, or an input that was written to before."""
    written = compiled(lambda x: dropout(x.add_(1), 0.3) * 2)
    written(torch.randn(8, 8))
    transposed = compiled(lambda x: dropout(x.t(), 0.3) * 2)
    transposed(torch.randn(8, 9))
    assert generator.counter == 3


def test_where_it_draws_otherwise(generator, monkeypatch):
    monkeypatch.setattr(gpu_draws, "draws_so", lambda generator, dtype: False)
    compiled(lambda x: dropout(x, 0.3) * 2)(torch.randn(8, 8))
    assert generator.counter == 3


def gradients(draw, program, *args):
    args = [a.detach().clone().requires_grad_() for a in args]
    result = program(draw, *args)
    return result, torch.autograd.grad(result.square().sum(), args)


def two_layers(draw, x, w, v):
    return draw(F.gelu(draw(x @ w, 0.2)) @ v, 0.1)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [8, 13])
def test_training(rows, dynamic, generator):
    args = torch.randn(rows, 8), torch.randn(8, 9), torch.randn(9, 5)
    eager = Eager()
    expected = gradients(eager.dropout, two_layers, *args)
    function = compiled(lambda *args: two_layers(dropout, *args), dynamic=dynamic)
    found = gradients(dropout, lambda draw, *args: function(*args), *args)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)  # sums of a hundred squares
    assert generator.counter == eager.counter


def test_a_checkpoint_draws_the_same_again(generator):
    args = torch.randn(8, 8), torch.randn(8, 9), torch.randn(9, 5)
    eager = Eager()
    expected = gradients(eager.dropout, two_layers, *args)

    def program(*args):
        return checkpoint(lambda *args: two_layers(dropout, *args), *args, use_reentrant=False)

    function = compiled(program)
    found = gradients(dropout, lambda draw, *args: function(*args), *args)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)  # sums of a hundred squares
    assert generator.counter == eager.counter


def test_where_no_code_is_generated():
    x = torch.ops.pliant.philox_below([3, 50], SEED, 3, 256, 4, 1 << 31, torch.device("cpu"))
    expected = philox.bits(SEED, 3, 150, 256, 4) < 1 << 31
    assert torch.equal(x, torch.from_numpy(expected).view(3, 50))


@pytest.mark.parametrize(
    "itemsize, address, count, width",
    [
        (4, 512, 1000, 4),
        (4, 512, 1001, 1),
        (4, 512, 1002, 2),
        (4, 520, 1000, 2),
        (4, 516, 1000, 1),
        (2, 512, 1000, 8),
        (2, 520, 1000, 4),
        (2, 512, 1004, 4),
        (8, 512, 1000, 2),
        (8, 520, 1000, 1),
    ],
)
def test_how_many_neighbours_a_thread_takes(itemsize, address, count, width, generator):
    class Memory:
        def data_ptr(self):
            return address

    reserve = gpu_draws.Reserve(generator, itemsize)
    assert reserve(count, 0, Memory())[2] == reserve(count, address // itemsize)[2] == width
