"""Programs with more in them than operators, for which there has to be code all the same."""

import math
from operator import methodcaller

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default


def agree(function, *calls, context=None, dynamic=(None, True)):
    """Eager and compiled, for each tuple of arguments in `calls`, with code for every graph."""
    for how in dynamic:
        events.counters.reset()
        compiled = pliant.compile(function, dynamic=how)
        for args in calls:
            with torch.no_grad(), context() if context else torch.no_grad():
                found = difference(call(compiled, args), call(function, args))
            assert found is None, (how, args, found)
        assert events.counters["programs"] and not events.counters["not_generated"]


# ---- autocast


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.norm(F.gelu(self.first(x)))).softmax(-1)


def network():
    torch.manual_seed(0)
    return Network().eval()


def bfloat16():
    return torch.autocast("cpu", dtype=torch.bfloat16)


NETWORK = network()


def inside(x):
    with bfloat16():
        y = NETWORK(x)
    return y.float() + x.sum(), x @ x.t()


def switched_off(x):
    with torch.autocast("cpu", enabled=False):
        y = NETWORK(x), x @ x.t()
    return NETWORK(x), y


def each_its_own_dtype(x):
    q = x[None, None]
    attended = F.scaled_dot_product_attention(q, q, q)
    return attended, torch.cat([x, x.bfloat16()]), x.cumsum(0), F.mse_loss(x, x.bfloat16())


@pytest.mark.parametrize("context", [None, bfloat16])
@pytest.mark.parametrize("function", [inside, switched_off, each_its_own_dtype, NETWORK])
def test_autocast(function, context):
    agree(function, (torch.randn(5, 8),), (torch.randn(3, 8),), context=context)
    assert not torch.is_autocast_enabled("cpu")


def test_autocast_and_another_call_without():
    compiled, x = pliant.compile(NETWORK), torch.randn(5, 8)
    with torch.no_grad():
        with bfloat16():
            assert compiled(x).dtype is torch.bfloat16
            assert torch.equal(compiled(x), NETWORK(x))
        assert torch.allclose(compiled(x), NETWORK(x))
    assert events.counters["programs"] == 2


# ---- tests of data


def all_positive(x):
    if not (x > 0).all():
        raise AssertionError("not positive")
    return x.sqrt() + 1


def sum_positive(x):
    if x.sum().item() <= 0:
        raise ValueError(f"a sum of {x.sum().item()}")
    return x.sqrt() + 1


def written_before(x):
    x = x.clone()
    x.add_(1)
    if x.min() <= -1:
        raise ValueError("too small")
    return x.mul_(2)


@pytest.mark.parametrize("function", [all_positive, sum_positive, written_before])
def test_assertions(function):
    agree(function, (torch.ones(3),), (torch.full((4,), 2.0),), (torch.tensor([1.0, -9.0]),))


# ---- numbers in the data


def picked(x, n):
    return x[n] * 2, x[:, n, 1:3] + 1, x[n, ..., n]


def put(x, n):
    x = x.clone()
    x[n] = 0
    x[:, n] += 1
    return x


@pytest.mark.parametrize("function", [picked, put])
def test_items_chosen_by_a_tensor(function):
    x = torch.arange(24.0).view(2, 3, 4)
    agree(function, *[(x, torch.tensor(n)) for n in (0, 1, -1, -2, 7, -9)])


# ---- numbers computed from others


def scaled(x, a, b):
    return F.leaky_relu(x, a / b), x * math.floor(a * 4), torch.full((3,), a**2), a / 3 + b


def scheduled(x, step):
    rate = 0.1 * 0.5 ** (step / 10)
    return torch.clamp(x, -rate, rate), x.new_full((2,), rate), rate


def test_floats():
    agree(scaled, *[(torch.randn(4), a, 2.0) for a in (0.5, 0.75, 1.5, 2.5)])
    agree(scheduled, *[(torch.randn(4), step) for step in (1, 2, 3, 40)])


# ---- the grad mode


def broken_off(x):
    with torch.no_grad():
        y = x * 2
        pliant.graph_break()
        z = y.exp() + torch.is_grad_enabled()
    return z, y.requires_grad, torch.is_grad_enabled()


def test_break_inside_no_grad():
    events.counters.reset()
    compiled, x = pliant.compile(broken_off), torch.randn(3)
    for _ in range(2):
        assert difference(call(compiled, (x,)), call(broken_off, (x,))) is None
        assert torch.is_grad_enabled()
    assert events.counters["programs"] == 2 and not events.counters["not_generated"]


# ---- results written to tensors of another dtype

REDUCED = {
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "cumprod": lambda x, out: torch.cumprod(x, 0, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "prod": lambda x, out: torch.prod(x, 0, out=out),
    "nansum": lambda x, out: torch.nansum(x, 0, out=out),
    "mean": lambda x, out: torch.mean(x, 0, out=out),
    "in a dtype of its own": lambda x, out: torch.cumsum(x, 0, dtype=out.dtype, out=out),
    "in another one": lambda x, out: torch.cumsum(x, 0, dtype=torch.float64, out=out),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float64])
@pytest.mark.parametrize("of", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("name", REDUCED)
def test_sums_are_computed_in_the_dtype_of_out(name, of, dtype):
    x = torch.tensor([[1.7, 2.6, 0.6], [0.4, 0.7, 3.9]]).to(of)
    out = torch.zeros(x.shape if "cum" in name or "one" in name else 3, dtype=dtype)
    outcomes = [call(f, [x, out.clone()]) for f in (pliant.compile(REDUCED[name]), REDUCED[name])]
    assert difference(*outcomes) is None


# ---- numbers that are put into masks


def sliced(x, y):
    mask = torch.isclose(x, x)
    mask[1 : len(y)] = 0
    return mask


def stepped(x, y):
    mask = x > 0
    mask[: len(y) : 2] = True
    mask[len(y) - 1 :] = 1.5
    return mask, ~mask


def a_mask_of_one(x, y):
    one = torch.tensor(True)
    mask = x > 0
    mask[1 : len(y)] = one
    return mask, one.expand(len(y)), one


@pytest.mark.parametrize("function", [sliced, stepped, a_mask_of_one])
def test_numbers_put_into_masks(function):
    calls = [(torch.randn(size), torch.randn(other)) for size, other in ((5, 5), (7, 4), (2, 3))]
    agree(function, *calls)
    if function is sliced:
        agree(function, *[(torch.ones(size), torch.ones(size)) for size in (0, 1)])


# ---- functions of Python's that call a method of a tensor's


def test_gradient_of_a_tensor_in_reverse():
    def horner(coefficients, x):
        y = torch.zeros_like(x)
        for c in reversed(coefficients):
            y = y * x + c
        return y

    compiled = pliant.compile(horner)
    for count in (3, 1, 5):
        pairs = [(torch.arange(count) + 0.5, torch.arange(4.0)) for _ in range(2)]
        for function, args in zip((compiled, horner), pairs, strict=True):
            function(*[t.requires_grad_() for t in args]).sum().backward()
        for mine, theirs in zip(*pairs, strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert not events.counters["not_generated"]


CHANGES = ["t_", "transpose_", "unsqueeze_", "squeeze_", "swapaxes_", "as_strided_", "add_"]
ARGUMENTS = {
    **{"transpose_": (0, 1), "unsqueeze_": (0,), "swapaxes_": (0, 1), "as_strided_": ((2,), (1,))},
    "add_": (1,),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_metadata_count_as_versions(name: str, grad: bool) -> None:
    """Of the tensor and of those that share its counter, made inside or outside."""
    change = methodcaller(name, *ARGUMENTS.get(name, ()))

    def made(x):
        y = x * 1
        change(y.detach())
        return y, y[0]

    def changed(x):
        y = x * 1
        change(y)
        return y, y * 2

    def both(x):
        y = x * 1
        change(y.detach()).mul_(2)
        change(y.data)
        return y

    def outside(x):
        change(x.detach())
        return x * 2

    for function in (made, changed, both, outside):
        told = []
        for run in (function, pliant.compile(function, backend="llvm")):
            x = torch.ones(2, 3, requires_grad=grad)
            results = run(x)
            results = results if isinstance(results, tuple) else (results,)
            told.append([t._version for t in (x, *results)])
        assert told[0] == told[1], function.__name__
