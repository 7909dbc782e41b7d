"""Results have eager's strides, those of dimensions of size 0 and 1 included."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events

SIZES = [
    *[(2, 3, 4), (1, 3, 4), (2, 1, 4), (2, 3, 1), (1, 1, 4), (1, 3, 1), (1, 1, 1)],
    *[(0, 3, 4), (2, 0, 4), (2, 3, 0), (0, 1, 4), (2, 0, 1), (3, 2, 5)],
]
"""The first is the one that dynamic programs are compiled at."""

LAYOUTS: dict[str, Callable[[int, int, int], torch.Tensor]] = {
    "contiguous": lambda a, b, c: torch.ones(a, b, c),
    "transposed": lambda a, b, c: torch.ones(a, c, b).transpose(1, 2),
    "permuted": lambda a, b, c: torch.ones(c, a, b).permute(1, 2, 0),
    "expanded": lambda a, b, c: torch.ones(a, 1, c).expand(a, b, c),
    "sliced": lambda a, b, c: torch.ones(a, b * 2 + 1, c + 1)[:, : b * 2 : 2, :c],
    "odd ones": lambda a, b, c: torch.ones(a * b * c * 9 + 50).as_strided(
        (a, b, c), (c * b if a != 1 else 7, c if b != 1 else 3, 1 if c != 1 else 5)
    ),
}

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "relu": lambda x, y: torch.relu(x),
    "add a number": lambda x, y: x + 1,
    "pow": lambda x, y: x.pow(2),
    "hardtanh": lambda x, y: F.hardtanh(x),
    "compare": lambda x, y: x.transpose(0, 1) > y.transpose(0, 1),
    "broadcast": lambda x, y: x + y[:1],
    "both broadcast": lambda x, y: x[:, :1] * y[:1],
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "lerp of unfold": lambda x, y: (
        torch.lerp(x.unfold(2, 1, 1), y.unfold(2, 1, 1), 0.3) if x.size(2) else x * 2
    ),
    "clone": lambda x, y: x.clone(),
    "zeros_like": lambda x, y: torch.zeros_like(x.transpose(0, 1)),
    "mse_loss": lambda x, y: F.mse_loss(x[:1], y, reduction="none"),
    "smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y[:, :1], reduction="none"),
    "huber_loss": lambda x, y: F.huber_loss(x[:, :, :1], y, reduction="none"),
    "soft_margin_loss": lambda x, y: F.soft_margin_loss(x, y, reduction="none"),
    "sum": lambda x, y: x.sum(2, keepdim=True),
    "flip": lambda x, y: x.flip(1),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "chunk": lambda x, y: (x * 2).chunk(2, 1)[0],
    "expand": lambda x, y: x[:1].expand_as(y),
    "unsqueeze": lambda x, y: (x + 1).unsqueeze(1),
    "reshape": lambda x, y: x.reshape(x.size(0), x.size(1) * x.size(2)),
    "einsum": lambda x, y: torch.einsum("abc,abd->acd", x, y),
    "einsum out of order": lambda x, y: torch.einsum("abc,dec->adbe", x, y),
    "einsum of one": lambda x, y: torch.einsum("abc,abd->acd", x, y[:, :, :1]),
    "matmul": lambda x, y: x @ y.transpose(1, 2),
    "rsub": lambda x, y: torch.rsub(x, y),
    "rsub broadcast": lambda x, y: torch.rsub(x[:, :1], y),
    "nan_to_num": lambda x, y: x.nan_to_num(0.0),
    "prelu": lambda x, y: F.prelu(x, torch.ones(1)),
    "rad2deg": lambda x, y: x.rad2deg(),
    "angle": lambda x, y: x.angle(),
    "angle of complex numbers": lambda x, y: torch.complex(x, x).angle(),
    "rrelu": lambda x, y: F.rrelu(x),
    "rrelu in training": lambda x, y: F.rrelu(x, training=True),
    "contiguous in channels_last": lambda x, y: (
        x[None].contiguous(memory_format=torch.channels_last) if x.numel() else x * 2
    ),
    "clone in channels_last": lambda x, y: x[:, None].clone(memory_format=torch.channels_last),
    "to channels_last": lambda x, y: (x + y)[None].to(memory_format=torch.channels_last),
}


@pytest.fixture(autouse=True)
def any_number_of_compilations() -> None:
    pliant.config.recompile_limit = 100


PAIRS = [(name, name) for name in LAYOUTS] + [("contiguous", "transposed"), ("permuted", "sliced")]


def agree(function: Callable[..., Any], compiled: Callable[..., Any], *args: torch.Tensor) -> None:
    expected, actual = function(*args), compiled(*args)
    assert actual.shape == expected.shape
    assert actual.stride() == expected.stride(), tuple(expected.shape)
    torch.testing.assert_close(actual, expected)


pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first, second", PAIRS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_dynamic(name: str, first: str, second: str) -> None:
    function = FUNCTIONS[name]
    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for _ in range(2):  # the second time nothing is new
        for sizes in SIZES:
            agree(function, compiled, LAYOUTS[first](*sizes), LAYOUTS[second](*sizes))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first, second", [("contiguous", "transposed"), ("odd ones", "sliced")])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "rrelu" not in name])
def test_dynamic_in_training(name: str, first: str, second: str) -> None:
    function = FUNCTIONS[name]
    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for _ in range(2):
        for sizes in SIZES:
            x, y = LAYOUTS[first](*sizes).requires_grad_(), LAYOUTS[second](*sizes)
            agree(function, compiled, x, y)


def test_gradients_where_sizes_are_small() -> None:
    """The first call with such sizes is PyTorch's, others are compiled: gradients are the same."""

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return torch.neg(x.transpose(0, 1)).sin() * 2

    compiled = pliant.compile(scaled, backend="llvm", dynamic=True)
    for sizes in [(3, 4), (1, 4), (1, 4), (4, 1), (4, 1), (0, 3), (0, 3), (5, 6)]:
        x = torch.randn(sizes, requires_grad=True)
        (expected,) = torch.autograd.grad(scaled(x).sum(), x)
        result = compiled(x)
        assert result.stride() == scaled(x).stride(), sizes
        (actual,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(actual, expected)


def test_threads_meet_a_size_of_one() -> None:
    def negated(x: torch.Tensor) -> torch.Tensor:
        return torch.neg(x.transpose(0, 1).sin())

    compiled = pliant.compile(negated, backend="llvm", dynamic=True)
    compiled(torch.ones(3, 4, requires_grad=True))
    sizes = [(1, 4), (4, 1), (1, 1), (2, 3)] * 8
    inputs = [torch.ones(n, m, requires_grad=True) for n, m in sizes]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(compiled, inputs))
    for x, result in zip(inputs, results, strict=True):
        assert result.stride() == negated(x).stride()


@pytest.mark.parametrize("places", [[(0, 1), (1, 1)], [(3, 1), (0, 1)]])
def test_no_elements_of_an_input_with_other_strides(places: list[tuple[int, int]]) -> None:
    """A stride is no size: one of 0 doesn't count as 1."""

    def rest(x: torch.Tensor) -> torch.Tensor:
        return x[..., 1::1]

    compiled = pliant.compile(rest, backend="llvm")
    for n in (0, 2, 3):
        for strides in places:
            x = torch.ones(20).as_strided((n, 1), strides)
            assert compiled(x).stride() == rest(x).stride(), (n, strides)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_static(name: str, layout: str) -> None:
    for sizes in [(2, 3, 4), (2, 1, 4), (1, 3, 1), (2, 0, 4)]:
        compiled = pliant.compile(FUNCTIONS[name], backend="llvm", dynamic=False)
        args = (LAYOUTS[layout](*sizes), LAYOUTS[layout](*sizes))
        agree(FUNCTIONS[name], compiled, *args)
        agree(FUNCTIONS[name], compiled, *args)


def test_as_another_dtype() -> None:
    """Eager refuses the view if the last stride is not 1."""

    def narrow(x: torch.Tensor) -> torch.Tensor:
        return (x.transpose(0, 1) + 1).view(torch.int16)

    compiled = pliant.compile(narrow, backend="llvm", dynamic=True)
    for sizes in [(3, 1), (1, 1), (1, 0), (0, 1)]:
        x = torch.ones(sizes)
        outcomes = []
        for run in (narrow, compiled):
            try:
                outcomes.append(run(x).stride())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_sizes_of_one_stay_compiled() -> None:
    """The strides are the same for a size of 1: kernels run from the second call on."""
    graphs: list[str] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled = pliant.compile(double, backend="llvm", dynamic=True)
    with events.listening(lambda event: graphs.append(type(event).__name__)):
        for n in (3, 1, 5, 1):
            agree(double, compiled, torch.ones(n, 4))
    assert graphs.count("CodeGenerated") == 1


def test_writes_and_random_numbers_happen_once() -> None:
    """The first call with a size of 1 runs another program than the others."""

    def step(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.add_(1)
        return F.dropout(x.transpose(0, 1), 0.5) + state

    compiled = pliant.compile(step, backend="llvm", dynamic=True)
    states = [torch.zeros(4, 1), torch.zeros(4, 1)]
    for n in (3, 1, 1, 1):
        x = torch.ones(n, 4)
        results = []
        for run, state in zip((step, compiled), states, strict=True):
            torch.manual_seed(n)
            results.append(run(x, state))
        assert torch.equal(results[0], results[1])
        assert results[0].stride() == results[1].stride()
        assert torch.equal(states[0], states[1])


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("sizes", [(0, 0, 0), (3, 0, 0, 3), (0, 3, 0)])
def test_an_empty_argument_that_is_the_result(sizes: tuple[int, ...], grad: bool) -> None:
    """From the second call with such a size on, too."""
    compiled = pliant.compile(lambda x: F.dropout(x, 0.5), dynamic=True, backend="llvm")
    for size in sizes:
        x = torch.ones(size, requires_grad=grad)
        assert (compiled(x) is x) == (F.dropout(x, 0.5) is x) == (size == 0)


@pytest.mark.parametrize("use", [lambda x: x, lambda x: None, lambda x: x * 2])
def test_an_empty_tensor_that_is_found_to_be_one_is_returned(use: Callable[..., Any]) -> None:
    """Its strides are symbols, and its size is not one any more."""

    def f(x: torch.Tensor) -> tuple[Any, bool]:
        y = F.dropout(x, 0.5)
        return use(y), y is x

    compiled = pliant.compile(f, backend="llvm")
    for x in (torch.ones(1, 1), torch.ones(1, 0)[..., ::2], torch.ones(1, 0)):
        result, is_argument = compiled(x)
        assert is_argument == (x.numel() == 0)
        assert result is None or result.shape == x.shape
