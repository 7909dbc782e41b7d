"""Losses through their rules, fusion and machine code, against eager PyTorch."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.ops.harness import Fault, run_op
from tests.ops.test_reductions import same
from tests.support.against_eager import run, same_outcome

aten = torch.ops.aten


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_negative_log_likelihood(dtype, reduction):
    for weight in (None, torch.rand(5).to(dtype)):
        for count in (0, 37):
            x, target = torch.randn(count, 5).to(dtype), torch.randint(0, 5, (count,))
            target[1:4] = -100
            for ignored in (-100, 2):
                if ignored == 2:
                    target = target.clamp(min=0)
                same(aten.nll_loss_forward.default, x, target, weight, reduction, ignored)
        for ignored in (-100, 2):
            one = torch.tensor(2)
            same(aten.nll_loss_forward.default, x[0], one, weight, reduction, ignored)
        image, target = torch.randn(2, 5, 3, 2).to(dtype), torch.randint(0, 5, (2, 3, 2))
        same(aten.nll_loss2d_forward.default, image, target, weight, reduction, 1)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_losses_of_distances(dtype, reduction):
    for shape in ((), (0,), (7, 5)):
        x, y = torch.randn(shape, dtype=dtype) * 2, torch.randn(shape, dtype=dtype)
        same(aten.mse_loss.default, x, y, reduction)
        same(aten.mse_loss.default, x, torch.randn(5, dtype=torch.float32), reduction)
        for limit in (1.0, 0.3):
            same(aten.smooth_l1_loss.default, x, y, reduction, limit)
            same(aten.huber_loss.default, x, y, reduction, limit)
    special = torch.tensor([float("nan"), float("inf"), 1.0, -0.0], dtype=dtype)
    for func in (aten.mse_loss, aten.smooth_l1_loss, aten.huber_loss):
        same(func.default, special, special.flip(0), reduction)


class _WithValidTargets:
    """So that there is an expectation of what the result looks like."""

    def __call__(self, x, target, *more):
        return aten.nll_loss_forward.default(x, target.clamp(0, 4), *more)

    def __str__(self):
        return "aten.nll_loss_forward.default"


@pytest.mark.parametrize("wrong", [5, -1])
def test_a_class_that_is_not_there_is_a_fault(wrong):
    x, target = torch.randn(3, 5), torch.tensor([0, wrong, 1])
    with pytest.raises(Fault):
        run_op(_WithValidTargets(), x, target, None, 1, -100)


def test_binary_cross_entropy_refuses_what_is_no_probability():
    target = torch.rand(6)
    for bad in (-0.1, 1.5, float("nan")):
        x = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0, bad])
        like = torch.zeros(())
        with pytest.raises(Fault):
            run_op(torch.ops.aten.binary_cross_entropy.default, x, target, expected=like)
    x = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0, 1e-30])
    for reduction in (0, 1, 2):
        args = (x, target, torch.rand(6), reduction)
        found = run_op(torch.ops.aten.binary_cross_entropy.default, *args)
        torch.testing.assert_close(found, torch.ops.aten.binary_cross_entropy.default(*args))


@pytest.mark.own_default
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_row_without_a_target_is_refused(dynamic):
    """By the kernel, and not by the meta kernel."""
    for targets in (0, 1, 2):
        for size in (0, 1, 3):
            args = torch.ones(size), torch.zeros(targets, dtype=torch.int64)
            compiled = pliant.compile(F.nll_loss, dynamic=dynamic)
            same_outcome(*[run(function, args) for function in (compiled, F.nll_loss)])


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int16])
@pytest.mark.parametrize("used", [True, False])
def test_targets_of_a_dtype_that_pytorch_refuses(dtype, used) -> None:
    def function(scores, target):
        loss = F.nll_loss(scores, target)
        return loss if used else None

    given = torch.ones(2, 3), torch.ones(2, dtype=dtype)
    with pytest.raises(RuntimeError) as eager:
        function(*given)
    with pytest.raises(RuntimeError) as ours:
        pliant.compile(function, backend="llvm")(*given)
    assert str(ours.value) == str(eager.value)
