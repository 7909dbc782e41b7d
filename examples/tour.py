"""A tour of pliant: what is captured, what stays in Python, what is assumed, and how it tells you.

    python examples/tour.py
    PLIANT_LOGS=graph_breaks,guards,recompiles python examples/tour.py

The second shows each decision of the compiler where it is made.
"""

import io

import torch

import pliant

scale = torch.tensor(2.0)
history = []
file = io.BytesIO()


def show(graph, example_inputs):
    """A backend that prints the graph, and runs it as it is."""
    print(graph.code.strip())
    return graph.forward


@pliant.compile(backend=show)
def summary(x):
    """One graph. `scale` is another input of it; the append happens outside."""
    y = torch.relu(x) * scale
    history.append(y)
    return y.sum()


@pliant.compile
def saves(x):
    """Writing a file can't be part of a graph: one graph before it, one after it."""
    y = x**2 / 2
    torch.save(y, file)
    return y**3 / 6


@pliant.compile
def add_one(x):
    return x + 1


@pliant.compile
def toward_zero(x):
    """Which way to go depends on the data: Python decides, and each way is a graph."""
    if x.sum() > 0:
        return x - 1
    return x + 1


def counted(what, call):
    """Call something, and say what the compiler did meanwhile."""
    before = dict(pliant.counters)
    result = call()
    new = {name: pliant.counters[name] - before[name] for name in before}
    print(f"{what:<28} compiled: {new['compilations']}, graph breaks: {new['graph_breaks']}")
    return result


def main():
    x = torch.ones(3, 3)
    print("1. One graph, with what the function reads as inputs; the list append stays outside")
    counted("summary(x)", lambda: summary(x))
    counted("summary(x) again", lambda: summary(x))
    print(f"history holds {len(history)} tensors, as it would without pliant")

    print("\n2. A graph break: a graph, then torch.save, then another graph")
    counted("saves(x)", lambda: saves(x))
    counted("saves(x) again", lambda: saves(x))

    print("\n3. Guards: what was compiled for one size is used for no other, until sizes change")
    counted("add_one(3x3)", lambda: add_one(torch.ones(3, 3)))
    counted("add_one(3x3) again", lambda: add_one(torch.ones(3, 3)))
    counted("add_one(4x4)", lambda: add_one(torch.ones(4, 4)))  # from here on for every size
    counted("add_one(9x1)", lambda: add_one(torch.ones(9, 1)))
    counted("add_one(0x7)", lambda: add_one(torch.ones(0, 7)))

    print("\n4. A branch on data: each side is compiled when it is first taken")
    counted("toward_zero(ones)", lambda: toward_zero(torch.ones(2)))
    counted("toward_zero(-ones)", lambda: toward_zero(-torch.ones(2)))

    print("\n5. A module: what happens to it later takes effect")
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    fast = pliant.compile(net, fullgraph=True)
    x = torch.ones(1, 4)
    counted("net(x)", lambda: fast(x))
    net[0].register_forward_hook(lambda module, args, output: output * 0)
    result = counted("net(x) with a hook", lambda: fast(x))
    print(f"the hook made all results zero: {not result.any()}")


if __name__ == "__main__":
    main()
