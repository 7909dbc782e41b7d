"""Hooks of tensors and modules: called as often, in the same order, with the same gradients."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events
from tests.support.closeness import exact

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 2.0, 3.0]])


def twice(make, breaks=0):
    """Run `make()`, a function and a log, eagerly and compiled, three times with a backward."""
    outcomes = []
    for compiles in (False, True):
        torch.manual_seed(0)
        events.counters.reset()
        function, log = make()
        run = pliant.compile(function, fullgraph=breaks == 0) if compiles else function
        x = X.clone().requires_grad_()
        for _ in range(3):
            result = run(x)
            first = result[0] if isinstance(result, tuple) else result
            first.pow(2).sum().backward()
        outcomes.append((x.grad, first.detach(), list(log)))
    assert events.counters["fallbacks"] == 0
    assert breaks is None or events.counters["graph_breaks"] == breaks
    torch.testing.assert_close(outcomes[1][:2], outcomes[0][:2], **exact())
    assert outcomes[1][2] == outcomes[0][2]


# ---- tensors


def hooking(hook, log=()):
    def function(x):
        y = x * 2
        y.register_hook(hook)
        return y.sin()

    def make():
        del log[:]
        return function, log

    return make if log != () else lambda: (function, log)


class Recorder:
    def __init__(self):
        self.log = []

    def hook(self, grad):
        self.log.append(grad.sum().item())
        return grad * 2

    def __call__(self, grad):
        self.log.append("called")


def test_hooks_from_outside_do_what_they_do():
    log = []
    twice(hooking(lambda grad: log.append(1), log))
    recorder = Recorder()
    twice(hooking(recorder.hook))
    assert len(recorder.log) == 6
    twice(hooking(Recorder()))
    twice(hooking(lambda grad: grad * 3))
    twice(hooking(functools.partial(torch.mul, 3)), breaks=None)


def test_hooks_made_inside_with_effects():
    def make():
        log = []

        def function(x):
            y = x * 2

            def hook(grad):
                log.append(tuple(grad.shape))
                return grad + 1

            y.register_hook(hook)
            x.register_hook(lambda grad: log.append("leaf"))
            return y.sin()

        return function, log

    twice(make)


def test_variables_of_a_hook_are_read_when_it_is_called():
    def late(x):
        y = x * 2
        for factor in range(3):
            y.register_hook(lambda grad: grad * (factor + 1))  # noqa: B023
        return y

    def reassigned(x):
        y, factor = x * 2, 2
        y.register_hook(lambda grad: grad * factor)
        factor = 5
        return y

    def changed(x):
        y, factors = x * 2, [2]
        y.register_hook(lambda grad: grad * factors[0])
        factors[0] = 5
        return y

    for function in (late, reassigned, changed):
        twice(lambda function=function: (function, ()), breaks=None)


def test_variables_of_a_hook_that_stay():
    def function(x, scale=3):
        y = x * 2
        total = x.detach().sum()
        y.register_hook(lambda grad: grad * total + scale)
        for factor in range(3):
            y.register_hook(lambda grad, factor=factor: grad * (factor + 1))
        return y

    twice(lambda: (function, ()))


def test_global_state_that_a_hook_reads_is_live():
    state = Recorder()
    state.factor = 2

    def function(x):
        y = x * 2
        y.register_hook(lambda grad: grad * state.factor)
        return y

    run = pliant.compile(function, fullgraph=True)
    for factor in (2, 3):
        x = X.clone().requires_grad_()
        y = run(x)
        state.factor = factor
        y.sum().backward()
        assert torch.equal(x.grad, torch.full_like(X, 2.0 * factor))


def test_hooks_behind_accumulation():
    def make():
        log = []

        def hook(p):
            p.grad.mul_(5)
            log.append("outside")

        def function(x):
            handle = x.register_post_accumulate_grad_hook(hook)
            x.register_post_accumulate_grad_hook(lambda p: log.append("inside"))
            return x * 2, handle

        return function, log

    twice(make)


def test_a_hook_does_not_run_in_the_graph():
    """What it writes would be too early for code that reads it."""
    recorder = Recorder()

    def function(x):
        y = x * 2
        y.register_hook(recorder.hook)
        (grad,) = torch.autograd.grad(y.sum(), x)
        return grad, len(recorder.log)

    run = pliant.compile(function)
    for number in (1, 2, 3):
        grad, seen = run(X.clone().requires_grad_())
        assert seen == number and torch.equal(grad, torch.full_like(X, 4.0))


# ---- modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, *rest):
        y = self.second(self.first(x).relu())
        return (y, *rest) if rest else y


def with_hooks(register, *rest):
    def make():
        net, log = Net(), []
        register(net, log)
        return (lambda x: net(x, *rest)), log

    return make


def full(net, log):
    net.register_full_backward_hook(lambda m, inputs, outputs: log.append(("net", len(inputs))))
    net.first.register_full_backward_hook(lambda m, inputs, outputs: log.append(str(m)))


def changing(net, log):
    net.first.register_full_backward_hook(lambda m, inputs, outputs: (inputs[0] * 2,))
    net.second.register_full_backward_pre_hook(lambda m, outputs: (outputs[0] * 3,))


def ordered(net, log):
    net.register_full_backward_hook(lambda m, i, o: log.append("second"))
    net.register_full_backward_hook(lambda m, i, o: log.append("first"), prepend=True)
    net.register_full_backward_pre_hook(lambda m, o: log.append("before"))
    net.register_forward_hook(lambda m, args, result: result)


@pytest.mark.parametrize("register", [full, changing, ordered])
def test_backward_hooks_of_modules(register):
    twice(with_hooks(register))


def test_arguments_and_results_that_are_no_tensors():
    twice(with_hooks(full, None, 5))


def test_module_hooks_registered_inside():
    def make():
        net, log = Net(), []

        def function(x):
            handle = net.register_full_backward_hook(lambda m, i, o: log.append(len(o)))
            y = net(x)
            handle.remove()
            return y

        return function, log

    twice(make)


def test_a_module_hook_added_later():
    net, log = Net(), []
    run = pliant.compile(net)
    for number in (0, 1, 2):
        log.clear()
        run(X.clone().requires_grad_()).sum().backward()
        assert log == list(range(number))
        net.register_full_backward_hook(lambda m, i, o, number=number: log.append(number))


def test_module_hooks_and_backward_in_one_function():
    def make():
        net, log = Net(), []
        net.first.register_full_backward_hook(lambda m, i, o: log.append(1))

        def function(x):
            net(x).sum().backward()
            return x * len(log)

        return function, log

    twice(make, breaks=None)


# ---- functions of the user's in the graph read what the program has written


class Config:
    factor = 2


SETTINGS = Config()
SETTINGS.numbers = [1]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, config, x):
        return x * config.factor + SETTINGS.numbers[0]

    @staticmethod
    def backward(ctx, grad):
        return None, grad


def writes_attribute(config, x):
    config.factor = config.factor + 1
    return Scaled.apply(config, x)


def writes_global(config, x):
    SETTINGS.numbers[0] += 1
    return Scaled.apply(config, x)


@pytest.mark.parametrize("function", [writes_attribute, writes_global])
def test_writes_are_made_before_an_autograd_function_reads(function):
    results = []
    for compiles in (False, True):
        config = Config()
        SETTINGS.numbers[0] = 1
        run = pliant.compile(function) if compiles else function
        results.append([run(config, X) for _ in range(3)])
    torch.testing.assert_close(results[1], results[0], **exact())


def test_writes_to_something_else_do_not_matter():
    class Counting(nn.Module):
        count = 0

        def forward(self, x):
            self.count += 1
            return Scaled.apply(SETTINGS, x)

    module = Counting()
    run = pliant.compile(module, fullgraph=True)
    assert torch.equal(run(X), run(X)) and module.count == 2


def hooks_in_a_while_loop(x):
    y = x * 1
    factor = torch.tensor(1.0)
    count = 0
    while count < 2:
        factor = factor * 2

        def scale(gradient):
            return gradient * factor

        y.register_hook(scale)
        count += 1
    return y.sum()


def test_variable_of_a_hook_is_assigned_again_in_a_while_loop():
    """Both hooks see the last `factor`. On 3.11 such a loop ends in a conditional jump back."""
    gradients = []
    for function in (hooks_in_a_while_loop, pliant.compile(hooks_in_a_while_loop)):
        x = torch.ones(3, requires_grad=True)
        function(x).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert torch.equal(gradients[0], torch.full((3,), 16.0))
