"""A tour of pliant: what is captured, what stays in Python, what is assumed, and how it tells you.

    python examples/tour.py
    PLIANT_LOGS=graph_breaks,guards,recompiles python examples/tour.py
"""

import io

import torch

import pliant

history = []
scale = torch.tensor(2.0)


@pliant.compile
def summary(x):
    """One graph; `scale` becomes an input of it; the append stays outside."""
    y = torch.relu(x) * scale
    history.append(y)
    return y.sum() + len(history)


@pliant.compile
def saves(x):
    """`torch.save` can't be part of a graph: one graph before it, one after it."""
    y = x**2 / 2
    torch.save(y, io.BytesIO())
    return y**3 / 6


@pliant.compile
def add_one(x):
    return x + 1


@pliant.compile
def signs(x):
    """A branch on data: Python takes it, both sides are compiled."""
    if x.sum() > 0:
        return x - 1
    return x + 1


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def counted(what, call):
    """Call something and tell what the compiler did meanwhile."""
    before = dict(pliant.counters)
    result = call()
    names = {"compilations": "compiled", "graphs": "graphs", "graph_breaks": "breaks"}
    news = [f"{label} {pliant.counters[name] - before[name]}" for name, label in names.items()]
    print(f"{what:<44} {', '.join(news)}")
    return result


def main():
    torch.manual_seed(0)
    x = torch.ones(3, 3)
    print("-- a graph, an extra input, and a list append kept outside")
    counted("summary(x), the first call", lambda: summary(x))
    counted("summary(x), len(history) is 1 now", lambda: summary(x))
    print(f"history has {len(history)} tensors\n")

    print("-- a graph break: g(x), torch.save, h(y)")
    counted("saves(x)", lambda: saves(x))
    counted("saves(x) again", lambda: saves(x))

    print("\n-- guards: another shape is another compilation")
    counted("add_one(3x3)", lambda: add_one(torch.ones(3, 3)))
    counted("add_one(3x3) again", lambda: add_one(torch.ones(3, 3)))
    counted("add_one(4x4)", lambda: add_one(torch.ones(4, 4)))

    print("\n-- a branch on data")
    counted("signs(ones)", lambda: signs(torch.ones(2)))
    counted("signs(-ones)", lambda: signs(-torch.ones(2)))

    print("\n-- a module: parameters are inputs of the graph, hooks keep working")
    net = Net()
    fast = pliant.compile(net, fullgraph=True)
    same = torch.equal(counted("net(x)", lambda: fast(torch.ones(1, 4))), net(torch.ones(1, 4)))
    print(f"equal to eager: {same}")
    net.layers[0].register_forward_hook(lambda module, args, output: output * 0)
    same = torch.equal(counted("net(x) with a hook", lambda: fast(torch.ones(1, 4))), net(torch.ones(1, 4)))
    print(f"equal to eager: {same}")


if __name__ == "__main__":
    main()
