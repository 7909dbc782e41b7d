"""Programs of all kinds, for tests of what a capture is."""

import random

import torch
from torch import nn

import pliant

TABLE = {"scale": 3.0, "names": ("a", "b")}
ITEMS = {"p", "q"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.norm(x)


def plain(x):
    return (x * 2 + 1).sum(dim=-1)


def reads_globals(x):
    return x * TABLE["scale"] + len(TABLE["names"]) + len([i for i in ITEMS if i > "a"])


def breaks(x):
    y = x + 1
    if y.sum() > 0:
        return torch.relu(y)
    return y - 1


def breaks_in_a_call(x):
    return breaks(x * 2) + 1


def compiles_a_callback(x):
    return sorted([x + 1, x], key=lambda t: t.sum().item())[0] * 2


def handles_an_exception(x):
    try:
        return x + [1, 2][x.dim() + 4]
    except IndexError:
        return x * 3


def slices(x):
    return x[1:, ::2].reshape(-1) + x[..., 0].sum()


def appends(x, out):
    out.append(x + 1)
    return len(out)


def writes(x):
    x.add_(1)
    return x.mul(2)


def draws(x):
    return x * random.random()


def reads_data(x):
    rows = x.nonzero()
    return rows * 2


def branches(x):
    return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


def with_closure():
    offset, weight = 2, torch.ones(3)

    def closes(x):
        return x * weight + offset

    return closes


def X():
    return torch.arange(6.0).reshape(2, 3)


def optimizer_step():
    weight = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def step(x):
        loss = (weight * x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


PROGRAMS = {
    "plain": (lambda: plain, lambda: (X(),), {}),
    "dynamic": (lambda: slices, lambda: (X(),), {"dynamic": True}),
    "globals": (lambda: reads_globals, lambda: (X(),), {}),
    "module": (Net, lambda: (X(),), {}),
    "closure": (with_closure, lambda: (X(),), {}),
    "break": (lambda: breaks, lambda: (X(),), {}),
    "break in a call": (lambda: breaks_in_a_call, lambda: (X(),), {}),
    "callback": (lambda: compiles_a_callback, lambda: (X(),), {}),
    "exception": (lambda: handles_an_exception, lambda: (X(),), {}),
    "effect": (lambda: appends, lambda: (X(), []), {}),
    "write": (lambda: writes, lambda: (X(),), {}),
    "random": (lambda: draws, lambda: (X(),), {}),
    "data": (lambda: reads_data, lambda: (X(),), {}),
    "control flow": (lambda: branches, lambda: (X(),), {}),
    "optimizer": (optimizer_step, lambda: (X(),), {}),
}


def compiled(name: str):
    """A program, its arguments, the dispatcher, and what was compiled: the function's own first
    compilation, then those of its resume functions and callbacks."""
    make, arguments, settings = PROGRAMS[name]
    program, args = make(), arguments()
    result = pliant.compile(program, backend="eager", **settings)
    result(*args)
    dispatcher = getattr(result, "_dispatcher", result)
    functions = dispatcher.on_miss.__self__.functions
    return program, arguments, dispatcher, functions.compiled(dispatcher)
