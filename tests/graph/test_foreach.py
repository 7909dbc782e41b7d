"""Operators over lists of tensors: as eager PyTorch, and in kernels."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default

CALLS = {
    "add": lambda xs, ys: torch._foreach_add(xs, ys, alpha=0.5),
    "add_": lambda xs, ys: torch._foreach_add_(xs, ys, alpha=-2),
    "add_ a number": lambda xs, ys: torch._foreach_add_(xs, 1.5),
    "add_ numbers": lambda xs, ys: torch._foreach_add_(xs, [1.5, 2]),
    "sub_": lambda xs, ys: torch._foreach_sub_(xs, ys),
    "mul_": lambda xs, ys: torch._foreach_mul_(xs, ys),
    "mul a number": lambda xs, ys: torch._foreach_mul(xs, 3),
    "mul a tensor": lambda xs, ys: torch._foreach_mul(xs, ys[1][0]),
    "add_ a tensor": lambda xs, ys: torch._foreach_add_(xs, ys[1][0], alpha=0.5),
    "div_": lambda xs, ys: torch._foreach_div_(xs, [2.0, 3.0]),
    "lerp_": lambda xs, ys: torch._foreach_lerp_(xs, ys, 0.25),
    "lerp_ by tensors": lambda xs, ys: torch._foreach_lerp_(xs, ys, torch._foreach_sigmoid(ys)),
    "addcdiv_": lambda xs, ys: torch._foreach_addcdiv_(xs, ys, torch._foreach_exp(ys), -0.5),
    "addcdiv_ numbers": lambda xs, ys: torch._foreach_addcdiv_(xs, ys, ys, [0.5, 2.0]),
    "addcmul_": lambda xs, ys: torch._foreach_addcmul_(xs, ys, ys, 0.5),
    "maximum_": lambda xs, ys: torch._foreach_maximum_(xs, ys),
    "minimum": lambda xs, ys: torch._foreach_minimum(xs, 0.5),
    "pow": lambda xs, ys: torch._foreach_pow(xs, 2),
    "sqrt": lambda xs, ys: torch._foreach_sqrt(torch._foreach_abs(xs)),
    "neg_": lambda xs, ys: torch._foreach_neg_(xs),
    "zero_": lambda xs, ys: torch._foreach_zero_(xs),
    "copy_": lambda xs, ys: torch._foreach_copy_(xs, ys),
    "norm": lambda xs, ys: torch._foreach_norm(xs, 2),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_like_eager(name, dynamic):
    def function(a, b, c, d):
        result = CALLS[name]([a, b], [c, d])
        return None if result is None else tuple(result)

    def arguments():
        torch.manual_seed(0)
        made = [torch.randn(shape) for shape in ((3, 4), (5,)) * 2]
        made[0][0, 0] = made[2][0, 1] = torch.nan
        return made

    compiled = pliant.compile(function, dynamic=dynamic)
    for _ in range(2):
        outcomes = [call(f, arguments(), "no_grad") for f in (compiled, function)]
        assert difference(*outcomes) is None
    assert events.counters["fallbacks"] == 0
    assert events.counters["programs"] == 1


def adam_arguments(seed):
    """A parameter, its gradient, both moments and the step."""
    torch.manual_seed(seed)
    shape = (4, 3)
    moments = torch.rand(shape), torch.rand(shape)
    return [torch.randn(shape), torch.randn(shape), *moments, torch.ones(())]


def test_an_operator_that_writes_to_several_tensors_writes_in_place():
    """Also to parts, and to what is read before and after."""

    def step(p, g, m, v, n):
        before = p[0] * 2
        torch._fused_adam_(
            *([p], [g], [m], [v], [], [n]),
            **dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8),
            **dict(amsgrad=False, maximize=False),
        )
        return before, p[0] * 2, m.sum()

    compiled = pliant.compile(step)
    for seed in range(3):
        # In inference mode: eager counts no versions for tensors in lists.
        outcomes = [call(f, adam_arguments(seed), "inference") for f in (compiled, step)]
        assert difference(*outcomes) is None
    assert events.counters["programs"] == 1


def test_an_error_after_such_an_operator():
    def step(p, g, m, v, n):
        p.mul_(2)
        torch._fused_adam_(
            *([p], [g], [m], [v], [], [n]),
            **dict(lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8),
            **dict(amsgrad=False, maximize=False),
        )
        return torch.linalg.cholesky(-torch.eye(2) + p.sum() * 0)

    outcomes = [call(f, adam_arguments(0), "no_grad") for f in (pliant.compile(step), step)]
    assert outcomes[1].error is not None
    assert difference(*outcomes) is None


@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_computed_from_data_are_given_to_kernels(dynamic):
    def function(x, t):
        n = t.item()
        y = x * (1 - 0.9**n) ** 0.5
        t += 1
        return y / (2 - 0.5 ** t.item()), x.addcdiv(x, y, value=-(0.1 / (1 - 0.9**n)))

    compiled = pliant.compile(function, dynamic=dynamic, fullgraph=True)
    for n in (1.0, 2.0, 3.5):
        outcomes = [
            call(f, [torch.arange(1.0, 6.0), torch.tensor(n)], "no_grad")
            for f in (compiled, function)
        ]
        assert difference(*outcomes) is None
    assert events.counters["programs"] == 1
