"""`backward`, `torch.autograd.grad` and forward-mode derivatives inside a compiled function."""

from __future__ import annotations

import time

import pytest
import torch
import torch.autograd.forward_ad as fwd
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.closeness import exact

W = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
V = torch.tensor([1.0, 2.0, 3.0])
HAS_GRAD = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
HAS_GRAD.grad = torch.ones(3)


# ---- backward


def reads_gradient(w):
    (w * w).sum().backward()
    return w.grad * 2


def accumulates(w):
    before = w.grad
    (w * 2).sum().backward()
    first = w.grad
    w.sin().sum().backward()
    return before is w.grad, first is w.grad, w.grad


def replaces(w):
    w.sin().sum().backward()
    old, w.grad = w.grad, None
    w.cos().sum().backward()
    return old, w.grad, old is w.grad


def starts_from_another(w):
    w.grad = torch.ones(3)
    w.sin().sum().backward()
    w.grad = w.grad * 2
    w.cos().sum().backward()
    return w.grad


def along_a_vector(w):
    w.sin().backward(torch.ones_like(w))
    torch.autograd.backward([w.sum(), w.cos()], [None, V])
    return w.grad


def retains(w):
    h = w.sin()
    h.retain_grad()
    loss = (h * h).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return h.grad, w.grad


def into_one(w):
    other = torch.ones(3, requires_grad=True)
    (w * other).sum().backward(inputs=[other])
    return w.grad, other.grad, other


def of_new_leaves(w):
    a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b = w.detach().clone().requires_grad_()
    p = nn.Parameter(torch.ones(3))
    (a * b * p).sum().backward()
    return a, b, p, a.grad, b.grad, p.grad


def without_gradients_around(w):
    loss = w.sin().sum()
    with torch.no_grad():
        loss.backward()
        w -= 0.1 * w.grad
        w.grad.zero_()
    return w * 1


def raises_afterwards(w):
    (w * w).sum().backward()
    raise ValueError("late")


def reads_numbers(w):
    loss = w.sin().sum()
    loss.backward()
    return round(loss.item(), 4), round(w.grad.norm().item(), 4)  # loops may round differently


def in_a_generator(w):
    def steps():
        for scale in (1, 2):
            (w * scale).sum().backward()
            yield w.grad.clone()

    return list(steps())


def with_a_hook(w):
    h = w * 2
    h.register_hook(lambda grad: grad * 3)
    h.sin().sum().backward()
    return w.grad


def of_a_penalty(w):
    (grad,) = torch.autograd.grad((w**3).sum(), w, create_graph=True)
    (grad.norm() - 1).pow(2).backward()
    return w.grad


BACKWARD = [
    reads_gradient,
    accumulates,
    replaces,
    starts_from_another,
    along_a_vector,
    retains,
    into_one,
    of_new_leaves,
    without_gradients_around,
    raises_afterwards,
    reads_numbers,
    in_a_generator,
    with_a_hook,
    of_a_penalty,
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("leaf", [W, HAS_GRAD], ids=["new", "has_grad"])
@pytest.mark.parametrize("function", BACKWARD, ids=lambda f: f.__name__)
def test_backward_is_part_of_the_graph(function, leaf, dynamic):
    check(function, leaf, dynamic=dynamic)


@pytest.mark.parametrize("stride", [torch.channels_last, torch.contiguous_format])
def test_gradients_are_laid_out_as_in_eager(stride):
    def function(w):
        (w.contiguous() * 2).sum().backward()
        return w.grad.stride(), w.grad

    check(function, torch.ones(2, 3, 4, 4).to(memory_format=stride).requires_grad_())


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (2, 3)),
    "conv": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten()),
        (2, 3, 8, 8),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), (2, 3)),
}


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_step_is_one_graph(name, kind):
    build, shape = MODELS[name]
    results = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model, x = build(), torch.randn(shape)
        # With its usual eps, Adam makes whole steps of gradients that are nothing but rounding: of
        # a bias in front of a norm, or of the keys of attention.
        more = {"eps": 1e-2} if kind is torch.optim.Adam else {}
        optimizer = kind(model.parameters(), lr=0.1, **more)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        run = pliant.compile(step, fullgraph=True) if compiles else step
        losses = [run(x) for _ in range(3)]
        results.append((losses, [p.detach() for p in model.parameters()]))
        results[-1] += ([p.grad for p in model.parameters()],)
    torch.testing.assert_close(results[1], results[0], **exact())


# ---- where Python has the say


def twice(w):
    loss = (w * w).sum()
    loss.backward()
    loss.backward()


def caught(w):
    loss = (w * w).sum()
    loss.backward()
    try:
        loss.backward()
    except RuntimeError:
        return w.grad + 1


def caught_when_it_runs(w):
    w.sin().sum().backward()
    place = torch.tensor([7])
    try:
        return w[place]
    except IndexError:
        return w.grad


def after_a_break(w):
    h = w.sin()
    h.retain_grad()
    time.time()
    h.sum().backward()
    return h.grad, w.grad


def of_no_scalar(w):
    (w * 2).backward()


@pytest.mark.parametrize(
    "function", [twice, caught, caught_when_it_runs, after_a_break, of_no_scalar]
)
def test_errors_and_breaks_around_backward(function):
    check(function, W, breaks=None, fullgraph=False)


def test_a_history_from_outside_is_left_to_python():
    for compiles in (False, True):
        w = W.detach().clone().requires_grad_()

        def function(h, w=w):
            (h * 2).sum().backward()
            return w.grad + 1

        run = pliant.compile(function) if compiles else function
        assert torch.equal(run(w * 3), torch.full((3,), 7.0))


def test_a_leaf_that_is_none_on_a_later_call():
    run = pliant.compile(reads_gradient_of_its_argument)
    for make in (lambda w: w, lambda w: w * 2, lambda w: w):
        w, v = W.detach().clone().requires_grad_(), W.detach().clone().requires_grad_()
        run(make(w))
        reads_gradient_of_its_argument(make(v))
        assert torch.equal(w.grad, v.grad)


def reads_gradient_of_its_argument(h):
    (h * h).sum().backward()
    return h.is_leaf


def test_hooks_on_a_leaf_from_outside_are_called_in_order():
    for compiles in (False, True):
        w, log = W.detach().clone().requires_grad_(), []
        w.register_hook(lambda grad, log=log: log.append("hook"))
        w.register_post_accumulate_grad_hook(lambda p, log=log: log.append(p.grad.sum().item()))

        def function(w, log=log):
            w.sum().backward()
            return len(log), w.grad

        run = pliant.compile(function) if compiles else function
        assert run(w)[0] == 2 and log == ["hook", 3.0]


class Counted(torch.autograd.Function):
    calls = [0]  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        Counted.calls[0] += 1
        return grad * 2


@pytest.mark.parametrize("way", ["backward", "grad"])
def test_a_backward_with_effects_runs_once_for_each_call(way):
    def function(x):
        loss = Counted.apply(x).sum()
        if way == "grad":
            return torch.autograd.grad(loss, x), Counted.calls[0]
        loss.backward()
        return x.grad, Counted.calls[0]

    run = pliant.compile(function)
    Counted.calls[0] = 0
    for number in (1, 2, 3):
        _, seen = run(W.detach().clone().requires_grad_())
        assert seen == Counted.calls[0] == number


def test_sparse_gradients():
    weight = torch.ones(4, 2, requires_grad=True)
    index = torch.tensor([1, 1])

    def function(weight, index):
        F.embedding(index, weight, sparse=True).sum().backward()
        return weight.grad.is_sparse, weight.grad.to_dense()

    run = pliant.compile(function)
    for times in (1, 2):
        sparse, dense = run(weight, index)
        assert sparse and dense[1].tolist() == [2.0 * times] * 2


# ---- torch.autograd.grad


@pytest.mark.parametrize("dynamic", [None, True])
def test_unused_inputs_have_no_gradient(dynamic):
    def function(a, b):
        return torch.autograd.grad((a * a).sum(), [a, b], allow_unused=True)

    check(function, W, HAS_GRAD, dynamic=dynamic)
    run = pliant.compile(function)
    a = W.detach().clone().requires_grad_()
    assert run(a, W)[1] is None
    assert run(a, a.detach().requires_grad_() * 2)[1] is None
    b = a.detach().requires_grad_()
    assert run(b * 2, b)[1] is not None  # what leads to it was computed outside


def test_a_gradient_of_an_argument_that_is_no_leaf():
    def function(x):
        h = x * 2

        def inner(h):
            return torch.autograd.grad(h.sin().sum(), h)[0]

        return inner(h), torch.autograd.grad(h.sin().sum(), x)[0]

    check(function, W)


FUNCTIONAL = {
    "jacobian": lambda x: torch.autograd.functional.jacobian(torch.sin, x),
    "vectorized": lambda x: torch.autograd.functional.jacobian(torch.sin, x, vectorize=True),
    "hessian": lambda x: torch.autograd.functional.hessian(lambda a: a.sin().sum(), x),
    "vjp": lambda x: torch.autograd.functional.vjp(torch.sin, x, V),
    "jvp": lambda x: torch.autograd.functional.jvp(torch.sin, x, V),
    "hvp": lambda x: torch.autograd.functional.hvp(lambda a: a.sin().sum(), x, V),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_functions_of_autograd_functional(name, dynamic):
    breaks = None if dynamic and name == "vectorized" else 0
    check(FUNCTIONAL[name], V, breaks=breaks, dynamic=dynamic)


# ---- forward mode


def dual(function):
    def run(x):
        with fwd.dual_level():
            primal, tangent = fwd.unpack_dual(function(fwd.make_dual(x, torch.ones_like(x))))
            return primal * 1, None if tangent is None else tangent * 1

    return run


DUAL = {
    "numbers": lambda d: (d * 2 + 1) / 3 - 4,
    "product": lambda d: d.sin() * d,
    "linear": lambda d: F.linear(d.expand(2, 2, 3).contiguous(), torch.ones(4, 3)),
    "in_place": lambda d: (d * 1).add_(d),
    "none": lambda d: d.detach(),
    "softmax": lambda d: d.softmax(-1).log(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", DUAL)
def test_dual_numbers(name, dynamic):
    check(dual(DUAL[name]), V, dynamic=dynamic)
    assert fwd._current_level == -1


def test_dual_numbers_around_breaks_and_from_outside():
    def breaks(x):
        with fwd.dual_level():
            d = fwd.make_dual(x, torch.ones_like(x)).sin()
            time.time()
            return fwd.unpack_dual(d * 2).tangent

    check(breaks, V, breaks=None, fullgraph=False)
    with fwd.dual_level():
        d = fwd.make_dual(V, torch.ones(3))
        run = pliant.compile(lambda d: fwd.unpack_dual(d * 3))
        assert run(d).tangent.tolist() == [3.0] * 3
        assert fwd.unpack_dual(pliant.compile(lambda d: d * 3)(d)).tangent.tolist() == [3.0] * 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_linearize(dynamic):
    def function(x):
        output, along = torch.func.linearize(lambda a: a.sin() * a, x)
        return output, along(torch.ones_like(x)), along(x)

    check(function, V, dynamic=dynamic)


# ---- modes


def anomaly(x):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        inside = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        y = x * 2
    return y, inside, torch.is_anomaly_enabled()


def one_thread(x):
    with torch.autograd.set_multithreading_enabled(False):
        return x * 2


@pytest.mark.parametrize("function", [anomaly, one_thread])
def test_modes_of_autograd(function):
    check(function, W, compilations=1)


def test_anomaly_detection_sees_no_fakes(recwarn):
    def function(x):
        with torch.autograd.set_detect_anomaly(True):
            (x * 0).sqrt().sum().backward()

    check(function, torch.zeros(3, requires_grad=True), breaks=None, fullgraph=False, times=1)
    assert not torch.is_anomaly_enabled()


def test_hooks_on_saved_tensors_see_real_ones_only():
    seen = []

    def pack(x):
        seen.append(type(x).__name__)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        pliant.compile(lambda x: x.sin() * x)(W).sum().backward()
    events.counters.reset()
    # Code for both directions saves less than eager does.
    assert set(seen) == {"Tensor"} and 1 <= len(seen) <= 3


@torch.library.custom_op("pliant_tests::scaled_exp", mutates_args=())
def scaled_exp(x: torch.Tensor, by: float) -> torch.Tensor:
    return x.exp() * by


scaled_exp.register_fake(lambda x, by: torch.empty_like(x))


def save_result(ctx, inputs, output):
    ctx.save_for_backward(output)


scaled_exp.register_autograd(
    lambda ctx, grad: (grad * ctx.saved_tensors[0], None), setup_context=save_result
)


def gradients_of_custom_operators(w):
    first = torch.autograd.grad(scaled_exp(w, 0.5).sum(), w, create_graph=True)[0]
    scaled_exp(scaled_exp(w, 2.0) * 0.1, 0.1).sum().backward()
    return first, torch.autograd.grad(first.sum(), w), w.grad


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_backward_through_custom_operators(backend):
    compiled = pliant.compile(gradients_of_custom_operators, backend=backend, fullgraph=True)
    for _ in range(2):
        got, expected = (
            function(V.clone().requires_grad_())
            for function in (compiled, gradients_of_custom_operators)
        )
        torch.testing.assert_close(got, expected)
