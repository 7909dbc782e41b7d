"""Programs whose compilation is interrupted: each makes a new function, and arguments."""

import linecache

import torch

import pliant
from tests.support.injection import Injector


class Program:
    """`make` gives a new function; `arguments` are those of its calls, made anew each time. The
    calls before the last one are not disturbed."""

    def __init__(self, make, *arguments, **options):
        self.make, self.arguments, self.options = make, arguments, options

    def compiled(self):
        return pliant.compile(self.make(), **self.options)

    def warmed(self):
        """A compiled function with all calls made but the last one."""
        compiled = self.compiled()
        for arguments in self.arguments[:-1]:
            compiled(*arguments())
        return compiled

    def count(self):
        """The line events of the last call."""
        return self._events().count

    def each_line(self):
        """Of each line that the last call runs, the first event and the last one."""
        events = self._events()
        return sorted({*events.first.values(), *events.last.values()})

    def lines(self):
        """How many events each line has of those that the last call runs."""
        return self._events().times

    def ends_of_with(self):
        """Of each `with` that the last call runs, the last event."""
        return [(*line, n) for line, n in self.lines().items() if _is_with(*line)]

    def _events(self):
        self.warmed()(*self.last())  # what happens once in a process
        injector = Injector()
        injector.call(self.warmed(), *self.last())
        return injector

    def last(self):
        torch.manual_seed(0)
        return self.arguments[-1]()


def _is_with(code, line):
    return linecache.getline(code.co_filename, line).lstrip().startswith("with ")


def _breaks():
    def breaks(x):
        y = x.relu() + 1
        print("", end="")
        y = y * 2
        pliant.graph_break()
        return y.sum(-1)

    return breaks


def _dynamic():
    def dynamic(x):
        return x.reshape(-1).softmax(0)[: x.shape[0]] * x.shape[1]

    return dynamic


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.second(torch.nn.functional.gelu(self.first(x)))


def _gradients():
    torch.manual_seed(1)
    weight = torch.randn(8, 8, requires_grad=True)

    def gradients(x):
        with torch.no_grad():
            scale = weight.abs().sum()
        loss = ((x @ weight).tanh() / scale).sum()
        (grad,) = torch.autograd.grad(loss, weight)
        return loss.detach(), grad

    return gradients


def _writes_and_draws():
    def writes_and_draws(x):
        x[1:].mul_(2)
        y = torch.rand(3) + torch.nn.functional.dropout(x, 0.5)
        x.add_(y)
        return y

    return writes_and_draws


def _modes():
    def modes(x):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
            y = x @ x
        torch.set_default_dtype(torch.float64)
        try:
            z = torch.ones(2)
        finally:
            torch.set_default_dtype(torch.float32)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            t = torch.autograd.forward_ad.unpack_dual(dual.sin()).tangent
        return y.float(), z, t, torch.func.grad(lambda v: v.sin().sum())(x)

    return modes


def _square():
    return (torch.randn(3, 3),)


PROGRAMS = {
    "breaks": Program(_breaks, _square),
    "dynamic": Program(_dynamic, lambda: (torch.randn(3, 5),), dynamic=True),
    "module": Program(Block, lambda: (torch.randn(2, 8),)),
    "gradients": Program(_gradients, lambda: (torch.randn(2, 8),)),
    "writes and draws": Program(_writes_and_draws, _square),
    "modes": Program(_modes, _square),
    "recompilation": Program(_dynamic, _square, lambda: (torch.randn(4, 7),)),
    "eager backend": Program(_breaks, _square, backend="eager"),
}
