"""`autograd.Function`, custom operators, checkpoints, hooks: values and gradients are eager's."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import pliant
from tests.support.against_eager import check
from tests.support.closeness import exact

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
Y = torch.tensor([[2.0, 1.0], [-1.0, 0.25]])


class Square(torch.autograd.Function):
    """Its backward is not the derivative, so that it shows which one ran."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * grad


class Scaled(torch.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx, x, y, power):
        ctx.save_for_backward(x, y)
        ctx.power = power
        return (x * y) ** power * Scaled.factor, x + y

    @staticmethod
    def backward(ctx, one, two):
        x, y = ctx.saved_tensors
        return one * y * ctx.power + two, one * x + two, None


class Split(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].cos()


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort()
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        return values, indices

    @staticmethod
    def backward(ctx, grad, _):
        return torch.zeros_like(grad).scatter(-1, ctx.saved_tensors[0], grad)


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


seen = []


class Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        seen.append(x.shape)
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return grad


def weighted(w):
    def hook(grad):
        return grad * w

    return hook


def hooked(x):
    y = x * 2
    y.register_hook(weighted(x.sum().detach()))
    return y.sin()


def unhooked(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3).remove()
    return y.sin()


def gradient_inside(x):
    y = (x**3).sum()
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    return grad * y


LINEAR = torch.nn.Linear(2, 2)
DIFFERENTIABLE = [
    lambda x: Square.apply(x * 2) + 1,
    lambda x: sum(t.sum() for t in Scaled.apply(x, x.sin(), 2)),
    lambda x: Split.apply(x) * x,
    lambda x: Sorted.apply(x)[0] * x,
    lambda x: InPlace.apply(x + 1) * 3,
    hooked,
    unhooked,
    gradient_inside,
    lambda x: checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False) * x,
    lambda x: checkpoint(lambda t: t.sin().exp(), x, use_reentrant=True) * x,
    lambda x: checkpoint(LINEAR, x, use_reentrant=False).sin(),
    lambda x: torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)),
    lambda x: torch.func.grad(lambda t: t.sin().sum())(x),
    lambda x: torch.vmap(lambda t: t.sin() * t.sum())(x),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", DIFFERENTIABLE)
def test_gradients(function, dynamic):
    compiled = pliant.compile(function, fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        grads = []
        for each in (function, compiled):
            x = X.clone().requires_grad_()
            LINEAR.zero_grad()
            each(x).sum().backward()
            grads.append((x.grad, LINEAR.weight.grad))
        torch.testing.assert_close(grads[1], grads[0], **exact())


def test_dropout_in_a_checkpoint_is_the_same_in_both_passes():
    def function(x):
        return checkpoint(lambda t: F.dropout(t.sin(), 0.5), x, use_reentrant=False) * 2

    grads = []
    for each in (function, pliant.compile(function, fullgraph=True)):
        torch.manual_seed(0)
        x = X.clone().requires_grad_()
        each(x).sum().backward()
        grads.append(x.grad)
    assert torch.equal(grads[0], grads[1])


def test_what_a_forward_reads_is_assumed(monkeypatch):
    compiled = pliant.compile(lambda x, y: Scaled.apply(x, y, 1)[0], fullgraph=True)
    assert torch.equal(compiled(X, Y), X * Y * 2)
    monkeypatch.setattr(Scaled, "factor", 3.0)
    assert torch.equal(compiled(X, Y), X * Y * 3)


def test_a_forward_with_effects_runs_in_python():
    seen.clear()
    compiled = pliant.compile(lambda x: Noting.apply(x) * 2)
    assert torch.equal(compiled(X), (X + 1) * 2)
    assert len(seen) == 1


# ---- custom operators


@torch.library.custom_op("pliant_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, grad: grad * 7)


@torch.library.custom_op("pliant_tests::increase", mutates_args=("x",))
def increase(x: torch.Tensor, by: int = 1) -> None:
    x.add_(by)


@torch.library.custom_op("pliant_tests::unknown", mutates_args=())
def unknown(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def increases(x):
    y = x + 1
    increase(y)
    increase(y, by=3)
    torch.ops.pliant_tests.increase(x)
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: twice(x) + 1,
        lambda x: torch.ops.pliant_tests.twice(x) + torch.ops.pliant_tests.twice.default(x),
        increases,
    ],
)
def test_custom_operators(function):
    check(function, X)
    check(function, X, dynamic=True)


def test_gradients_of_custom_operators():
    x = X.clone().requires_grad_()
    pliant.compile(lambda x: twice(x) * 1, fullgraph=True)(x).sum().backward()
    assert torch.equal(x.grad, torch.full_like(X, 7.0))


def test_a_custom_operator_without_shape_rule_breaks_the_graph():
    check(lambda x: unknown(x) * 2, X, breaks=1)
    with pytest.raises(pliant.errors.GraphBreakError) as error:
        pliant.compile(lambda x: unknown(x), fullgraph=True)(X)
    assert error.value.code == "no-meta-kernel"


LOG: list[float] = []


@torch.library.custom_op("pliant_tests::log", mutates_args=())
def log(x: torch.Tensor) -> None:
    LOG.append(float(x.sum()))


@log.register_fake
def _(x):
    return None


@torch.library.custom_op("pliant_tests::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    LOG.append(float(x.sum()))
    return torch.rand_like(x)


@noise.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("pliant_tests::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    LOG.append(float(x.sum()))
    return 3


@count.register_fake
def _(x):
    return 3


def logged_around_a_write(x):
    log(x)
    x.add_(1)
    torch.ops.pliant_tests.log(x)
    torch.ops.pliant_tests.log.default(x * 2)


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize(
    "function",
    [
        logged_around_a_write,
        lambda x: (log(x), log(x), x + 1),
        lambda x: noise(x) + noise(x),
        lambda x: (noise(x), x + 1)[1],
        lambda x: (count(x), x + count(x)),
    ],
)
def test_custom_operators_run_as_often_as_in_eager(function, backend):
    outcomes = []
    for run in (function, pliant.compile(function, backend=backend)):
        for _ in range(2):
            LOG.clear()
            torch.manual_seed(0)
            outcomes.append((run(x := X.clone()), x, list(LOG)))
    torch.testing.assert_close(outcomes[2:], outcomes[:2], rtol=0, atol=0)


# ---- what is left to Python


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop])
def test_training_steps_give_the_numbers_of_eager(kind):
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 2)
        optimizer = kind(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)

        def step(x, model=model, optimizer=optimizer, scheduler=scheduler):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss.detach()

        run = pliant.compile(step) if compiles else step
        results.append(([run(X) for _ in range(3)], model.weight.detach()))
    torch.testing.assert_close(results[1], results[0], **exact())


def test_autograd_grad_of_what_came_from_outside_is_not_guessed():
    def function(y, x):
        return torch.autograd.grad(y, x, allow_unused=True, retain_graph=True)[0]

    x = X.clone().requires_grad_()
    y = (x * 2).sum()
    assert torch.equal(pliant.compile(function)(y, x), torch.full_like(X, 2.0))


# ---- as programs were once written


def made_for_its_apply(x):
    return Square().apply(x) + 1


def made_and_returned(x):
    function = Square()
    return function.apply(x), function


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_function_objects(backend) -> None:
    leaf = X.clone().requires_grad_()
    compiled = pliant.compile(made_for_its_apply, backend=backend, fullgraph=True)
    for _ in range(2):
        leaf.grad = None
        with pytest.warns(DeprecationWarning, match="should not be instantiated"):
            result = compiled(leaf)
        result.sum().backward()
        assert torch.equal(result, X * X + 1) and torch.equal(leaf.grad, 3 * X)
    compiled = pliant.compile(made_and_returned, backend=backend, fullgraph=True)
    with pytest.warns(DeprecationWarning):
        (_, first), (_, second) = compiled(leaf), compiled(leaf)
    assert type(first) is type(second) is Square and first is not second


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_an_operator_that_returns_nothing_needs_no_shape_rule(backend, dynamic) -> None:
    with torch.library._scoped_library("pliant_tests", "FRAGMENT") as library:
        library.define("put(Tensor x, Tensor[] y, Tensor(a!)? z, SymInt n) -> ()")

        def put(x, y, z, n):
            if z is not None:
                z.copy_(x + y[0] + n)

        library.impl("put", put, "CPU")

        def program(x, ys, z):
            nothing = torch.ops.pliant_tests.put(x, ys, z, x.shape[0])
            torch.ops.pliant_tests.put(x, ys, None, 2)
            return nothing, None if z is None else z * 2

        compiled = pliant.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
        for z in (torch.zeros(2, 2), None):
            nothing, result = compiled(X, [Y, Y], z)
            assert nothing is None
            if z is not None:
                assert torch.equal(z, X + Y + 2) and torch.equal(result, z * 2)
