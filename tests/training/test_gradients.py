"""Functions and modules whose forward and backward are compiled give eager's gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from pliant.graph.joint import DifferentiatedRun
from tests.training.gradients_of import check, compare

DYNAMIC = [False, True]


def T(*sizes, **kwargs):
    return torch.randn(*sizes, requires_grad=True, **kwargs)


def ints(high, *sizes):
    return torch.randint(0, high, sizes)


def ctc(x, targets, lengths):
    steps = torch.full_like(lengths, 9)
    return F.ctc_loss(x.log_softmax(-1), targets, steps, lengths)


def ctc_of_numbers(x, targets):
    lengths = tuple([len(row) for row in targets])
    return F.ctc_loss(x.log_softmax(-1), targets, [x.size(0)] * 3, lengths, reduction="none")


def ctc_of_one_row(x, targets):
    """Targets one after the other."""
    return F.ctc_loss(x.log_softmax(-1), targets, (9, 8, 9), (2, 3, 1), zero_infinity=True)


PROGRAMS = {
    "arithmetic": (lambda x, y: (x * y - y / 2).pow(2) + x, T(3, 5), T(3, 5)),
    "activations": (lambda x: x.sigmoid() * x.tanh() + x.exp().relu(), T(3, 5)),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh") + F.silu(x) + F.mish(x), T(3, 5)),
    "hard": (lambda x: F.hardtanh(x) + F.hardswish(x) + F.hardsigmoid(x) + F.elu(x), T(3, 5)),
    "leaky": (lambda x: F.leaky_relu(x, 0.1) + F.softplus(x) + F.logsigmoid(x), T(3, 5)),
    "softmax": (lambda x: x.softmax(-1) + x.log_softmax(0), T(3, 5)),
    "sums": (lambda x: x.sum(0) + x.mean() + x.amax(1, keepdim=True), T(4, 5)),
    "statistics": (lambda x: x.std(0) + x.var(1, keepdim=True) + x.norm(dim=0), T(4, 5)),
    "logsumexp": (lambda x: x.logsumexp(-1), T(4, 5)),
    "maximum": (lambda x: torch.where(x > 0, x.max(1, keepdim=True).values, x), T(4, 5)),
    "broadcast": (lambda x, b: (x + b).pow(2).mean(), T(4, 5), T(5)),
    "broadcast to one": (lambda x, b: x * b, T(4, 5), T(4, 1)),
    "dropout": (lambda x: F.dropout(x, 0.3) * 2, T(3, 5)),
    "matmul": (lambda a, b: a @ b, T(2, 3, 4), T(2, 4, 5)),
    "matmul broadcast": (lambda a, b: a @ b, T(2, 3, 4), T(4, 5)),
    "mm": (lambda a, b: a @ b, T(3, 4), T(4, 5)),
    "linear": (lambda x, w, b: F.linear(x, w, b), T(2, 3, 4), T(5, 4), T(5)),
    "linear of a transposed": (lambda x, w: F.linear(x.mT, w), T(2, 4, 3), T(5, 4)),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), T(2, 3, 4), T(2, 4, 5)),
    "attention": (
        lambda q, k: F.scaled_dot_product_attention(q, k, k),
        T(2, 3, 4, 8),
        T(2, 3, 4, 8),
    ),
    "causal attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        T(2, 3, 4, 8),
    ),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), T(2, 4, 5), T(5), T(5)),
    "layer norm alone": (lambda x: F.layer_norm(x, (4, 5)), T(2, 4, 5)),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), T(2, 4, 3), T(4), T(4)),
    "shrinking": (lambda x: F.softshrink(x, 0.3) + F.hardshrink(x * 2), T(3, 5)),
    "instance norm": (lambda x: F.instance_norm(x), T(2, 3, 5)),
    "instance norm alone": (F.instance_norm, T(2, 3, 5)),
    "batch norm alone": (
        lambda x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
        T(4, 3, 5),
    ),
    "taken along": (lambda x, i: torch.take_along_dim(x, i - 2, 1), T(4, 5), ints(4, 4, 3)),
    "margins": (lambda x, y: F.multi_margin_loss(x, y, margin=0.5), T(5, 4), ints(4, 5)),
    "margins of labels": (F.multilabel_margin_loss, T(5, 4), ints(4, 5, 4) - 1),
    # Of the workspace only the kernel knows the size: it is in the lengths.
    "ctc loss": (ctc, T(9, 3, 5), ints(4, 3, 4) + 1, torch.tensor([2, 3, 1])),
    "ctc loss of numbers": (ctc_of_numbers, T(9, 3, 5), ints(4, 3, 4) + 1),
    "ctc loss of one row": (ctc_of_one_row, T(9, 3, 5), torch.tensor([1, 2, 3, 1, 4, 2])),
    "gamma": (lambda a: torch.distributions.Gamma(a.exp(), 1.0).rsample(), T(4, 5)),
    "cross entropy": (lambda x, y: F.cross_entropy(x, y), T(5, 4), ints(4, 5)),
    "cross entropy ignoring": (
        lambda x, y: F.cross_entropy(x, y, ignore_index=1, label_smoothing=0.1),
        T(5, 4),
        ints(4, 5),
    ),
    "cross entropy of images": (
        lambda x, y: F.cross_entropy(x, y),
        T(2, 4, 3, 3),
        ints(4, 2, 3, 3),
    ),
    "losses": (
        lambda x, y: (
            F.mse_loss(x, y) + F.l1_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y)
        ),
        T(4, 5),
        T(4, 5),
    ),
    "binary": (lambda x, y: F.binary_cross_entropy_with_logits(x, y), T(4, 5), torch.rand(4, 5)),
    "embedding": (lambda i, w: F.embedding(i, w).sum(1), ints(10, 3, 4), T(10, 6)),
    "slices": (lambda x: x[:, 1:] * x[:, :-1], T(4, 5)),
    "select": (lambda x: x[1] + x[:, 0][:4].sum(), T(5, 5)),
    "cat": (lambda x, y: torch.cat([x, y], 1).view(-1).cumsum(0), T(4, 5), T(4, 2)),
    "gather": (lambda x, i: x.gather(1, i), T(4, 5), ints(5, 4, 2)),
    "index": (lambda x, i: x[i] * 2, T(4, 5), ints(4, 6)),
    "scatter": (lambda x, i, s: x.scatter_add(1, i, s), T(4, 5), ints(5, 4, 2), T(4, 2)),
    "in place": (lambda x: (x * 2).sigmoid_().mul(x).add_(1), T(4, 5)),
    "written part": (lambda x: _written(x), T(4, 5)),
    "without grad": (lambda x: x * torch.no_grad()(lambda: x.sum())(), T(4, 5)),
    "detached": (lambda x: x * x.detach().norm(), T(4, 5)),
    "two outputs": (lambda a, b: (a * b, a.sin(), 3), T(2, 3), T(2, 3)),
    "an output without grad": (lambda a: (a * 2, a > 0, a.detach() + 1), T(2, 3)),
    "the input itself": (lambda a, b: (a * b, a), T(2, 3), T(2, 3)),
    "an unused input": (lambda a, b: a * 2, T(2, 3), T(2, 3)),
    "doubles": (lambda x: (x.exp() * x).sum(-1), T(3, 4, dtype=torch.float64)),
    "chunks": (lambda x: torch.chunk(x, 2, -1)[0] * torch.chunk(x, 2, -1)[1].sigmoid(), T(3, 8)),
    "padding": (lambda x: F.pad(x, (1, 2)).cos(), T(3, 4)),
    "flipped": (lambda x: x.flip(0).roll(1, 1) * x, T(3, 4)),
    "stacked": (lambda x, y: torch.stack([x, y]).prod(0), T(3, 4), T(3, 4)),
}


def _written(x):
    buffer = torch.zeros(4, 6)
    buffer[:, 1:] = x * 2
    return buffer.sin()


@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions(name: str, dynamic: bool) -> None:
    function, *args = PROGRAMS[name]
    check(function, *args, dynamic=dynamic)


def test_a_mixture_of_lengths_that_eager_refuses() -> None:
    def function(x, targets):
        steps = torch.full((3,), 9)
        return F.ctc_loss(x.log_softmax(-1), targets, steps, (2, 3, 1))

    for run in (function, pliant.compile(function, backend="llvm")):
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            run(T(9, 3, 5), ints(4, 3, 4) + 1)


def test_lengths_of_ctc_loss_that_eager_refuses() -> None:
    def function(x, targets, steps):
        return F.ctc_loss(x.log_softmax(-1), targets, (steps,) * 3, (2, 3, 1))

    x, targets = T(9, 3, 5), ints(4, 3, 4) + 1
    compiled = pliant.compile(function, backend="llvm")
    for steps in (9, 8, 7, 12, 9):
        told = []
        for run in (compiled, function):
            try:
                told.append(run(x, targets, steps).item())
            except RuntimeError as error:
                told.append(str(error))
        assert told[0] == pytest.approx(told[1]) if steps < 10 else told[0] == told[1]
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["programs"] > 0


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)
        return x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


MODULES = {
    "mlp": lambda: (
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)),
        torch.randn(5, 8),
    ),
    "normed": lambda: (nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU()), T(5, 3, 8)),
    "attention": lambda: (nn.Sequential(Attention(), Attention()), torch.randn(2, 5, 16)),
    "encoder": lambda: (
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
        torch.randn(2, 5, 16),
    ),
    "batch norm": lambda: (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)), torch.randn(8, 4)),
    "convolutions": lambda: (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 4, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        torch.randn(4, 3, 8, 8),
    ),
    "embedded": lambda: (nn.Sequential(nn.Embedding(10, 6), nn.Linear(6, 2)), ints(10, 3, 4)),
}


@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, dynamic: bool) -> None:
    module, *args = MODULES[name]()
    check(module, *args, dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["activations", "gelu", "softmax", "layer norm", "losses"])
def test_halves(name: str, dtype: torch.dtype) -> None:
    function, *args = PROGRAMS[name]
    check(
        function, *[arg.detach().to(dtype).requires_grad_() for arg in args], rtol=0.02, atol=0.02
    )


def test_autocast() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).float().pow(2).mean()

    check(function, T(5, 8), rtol=0.02, atol=0.02)


def test_casts_of_a_call_that_is_recorded_again(monkeypatch) -> None:
    """Some versions of PyTorch refuse a symbolic size in the middle of `linear`, after autocast has
    cast the weight; what was recorded until then goes."""
    weight, refused = nn.Parameter(torch.randn(4, 8)), []
    overridden = DifferentiatedRun._overridden

    def halfway(self, target, args, kwargs):
        if target is F.linear and not refused:
            refused.append(target)
            target(*args, **kwargs)  # such a version raises here
            raise RuntimeError("Cannot call sizes() on tensor with symbolic sizes/strides")
        return overridden(self, target, args, kwargs)

    def function(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.linear(x, weight).float().pow(2).mean()

    monkeypatch.setattr(DifferentiatedRun, "_overridden", halfway)
    check(function, T(3, 5, 8), rtol=0.02, atol=0.02, dynamic=True)
    assert refused


@pytest.mark.parametrize("name", ["mlp", "attention", "batch norm"])
def test_gradcheck(name: str) -> None:
    import pliant  # noqa: PLC0415

    module, x = MODULES[name]()
    compiled = pliant.compile(module.double(), backend="llvm")
    assert torch.autograd.gradcheck(lambda x: compiled(x), (x.double().requires_grad_(),))
    assert torch.autograd.gradgradcheck(lambda x: compiled(x), (x.double().requires_grad_(),))


@pytest.mark.parametrize(
    "function", [lambda x: x.view(-1) * 2, lambda x: F.interpolate(x, scale_factor=2)]
)
def test_changing_sizes(function) -> None:
    compiled = check(function, T(2, 3, 4), dynamic=True, generated=False)
    assert len(compiled.entries) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_softmax_gradients_are_laid_out_plainly(name: str, dynamic: bool) -> None:
    backward = getattr(torch.ops.aten, name)

    def function(grad: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return backward(grad, result, 0, torch.float32)

    given = [torch.randn(5, 4, 3).permute(2, 0, 1) for _ in range(2)]
    ours = pliant.compile(function, backend="llvm", dynamic=dynamic)(*given)
    compare([ours], [function(*given)])


def test_sizes_in_the_data_that_are_found_equal() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pairs = torch.combinations(y)  # of as many firsts as seconds
        return (x * 2).sum() + pairs.sum()

    check(function, T(3), torch.arange(4.0))


def test_a_gradient_without_memory():
    """That of `sgn` is a zero tensor, which has none in eager PyTorch."""

    def signs(x):
        result = (-(-x)).sgn()
        return result, result + result

    check(signs, T(20, 20), dynamic=False)


DTYPES = [torch.bool, torch.int64, torch.float16, torch.float64]
LOSSES = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_losses_of_targets_of_another_dtype(loss, dtype, reduction):
    """Some backwards refuse them, and all but those give gradients of the input's dtype."""

    def function(x, target):
        return loss(x, target, reduction=reduction)

    target = (torch.arange(5) % 2).to(dtype)

    def run(call):
        x = torch.linspace(-2, 2, 5).requires_grad_()
        result = call(x, target)
        result.sum().backward()
        return [result.detach(), x.grad]

    compare_or_refuse(run, function)


def compare_or_refuse(run, function):
    """What eager PyTorch refuses, some versions of it only, is refused compiled."""
    outcomes = []
    for call in (pliant.compile(function, backend="llvm"), function):
        try:
            outcomes.append(run(call))
        except RuntimeError as error:
            outcomes.append(str(error))
    ours, eager = outcomes
    if isinstance(eager, str):
        assert ours == eager
    else:
        compare(ours, eager)


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "soft_margin_loss"])
def test_gradients_of_losses_have_the_dtype_of_the_input(name):
    backward = getattr(torch.ops.aten, f"{name}_backward")
    beta = (1.0,) if name == "smooth_l1_loss" else ()

    def function(grad, x, target):
        return backward(grad, x, target, 1, *beta) * 2

    args = torch.tensor(1.0), torch.randn(5), torch.randn(5, dtype=torch.float64)
    compare_or_refuse(lambda call: [call(*args)], function)


@pytest.mark.parametrize("dynamic", DYNAMIC)
def test_gradients_of_weights_are_laid_out_as_autograd_does(dynamic) -> None:
    """By rows if the weight is, whichever way round the product takes it."""
    programs = [
        (lambda x, w: F.linear(x, w.t()), (5, 4), (4, 3)),
        (lambda x, w: F.linear(x, w.t().contiguous().t()), (5, 4), (4, 4)),
        (lambda x, w: x @ w, (2, 5, 4), (4, 3)),
        (F.linear, (2, 5, 4), (3, 4)),
    ]
    for function, of_x, of_w in programs:
        x, w = T(*of_x), T(*of_w)
        compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
        tangent = torch.randn_like(function(x, w))
        mine = torch.autograd.grad(compiled(x, w), (x, w), tangent)
        compare(mine, torch.autograd.grad(function(x, w), (x, w), tangent), rtol=1e-5, atol=1e-5)


MIXED = ("logaddexp", "logaddexp2", "pow", "atan2", "hypot", "xlogy", "sub", "mul", "div", "fmax")


@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_operands_that_are_bools(name: str, reverse: bool, shape: tuple[int, ...]) -> None:
    """Eager PyTorch refuses some of them, others in the backward only."""

    def function(x: torch.Tensor, limit: torch.Tensor) -> torch.Tensor:
        operands = (x, limit > 0)
        return getattr(torch, name)(*(operands[::-1] if reverse else operands))

    def run(call):
        x = torch.full(shape, 2.0, requires_grad=True)
        result = call(x, torch.ones(shape))
        result.sum().backward()
        return [result.detach(), x.grad]

    compare_or_refuse(run, function)
    x = torch.full(shape, 2.0, requires_grad=True)
    compare_or_refuse(lambda call: [call(x, torch.ones(shape)).detach()], function)
