"""A graph as data to be drawn: which call each node belongs to."""

import torch

import pliant
from pliant.base import events


def drawn(function, *args):
    found = []

    def note(event):
        if isinstance(event, events.GraphCaptured):
            found.append(event.drawing())

    with events.listening(note):
        pliant.compile(function, backend="eager")(*args)
    (drawing,) = found
    return drawing


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return torch.relu(self.linear(x))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_layers_of_a_loop_are_apart():
    drawing = drawn(Net(), torch.ones(2, 3))
    relus = [node for node in drawing if node["label"] == "relu"]
    assert [node["path"] for node in relus] == [[f"Block.forward · blocks.{i}"] for i in range(3)]
    linears = [node for node in drawing if node["label"] == "linear"]
    assert linears[1]["path"] == ["Block.forward · blocks.1", "Linear.forward · blocks.1.linear"]


def test_calls_without_parameters_are_numbered():
    def helper(x):
        return x.sin()

    def f(x):
        for _ in range(3):
            x = helper(x)
        return x

    nodes = [node for node in drawn(f, torch.ones(2)) if node["label"] == "sin"]
    names = [node["path"][0].rpartition(".")[2] for node in nodes]
    assert names == ["helper", "helper · call 2", "helper · call 3"]


def test_what_is_read_and_where():
    def f(x, y):
        return torch.add(x, y)

    first, second, add, output = drawn(f, torch.ones(2), torch.ones(2))
    assert [first["label"], second["label"]] == ["L['x']", "L['y']"]
    assert add["reads"] == [first["name"], second["name"]] and add["path"] == []
    assert add["line"].startswith("test_drawing.py:")
    assert output["op"] == "output" and output["reads"] == [add["name"]]


def test_modules_called_on_one_line_are_apart():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)

        def forward(self, x):
            return self.down(self.up(x).relu())

    nodes = [node for node in drawn(Two(), torch.ones(2, 3)) if node["label"] == "linear"]
    assert [node["path"] for node in nodes] == [["Linear.forward · up"], ["Linear.forward · down"]]


class Around(torch.nn.Module):
    """Blocks in a loop, called by a method, in a decorated `forward` of a module of another."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def called(self, x):
        return self.net(x)

    def forward(self, x):
        return self.called(x).sin()


def test_a_loop_deep_inside_does_not_split_the_calls_around_it():
    model = Around()

    def score(x):
        return model(x) / 2

    drawing = drawn(score, torch.ones(2, 3))
    relus = [node["path"] for node in drawing if node["label"] == "relu"]
    assert {tuple(path[:3]) for path in relus} == {
        ("Around.forward · model", "Around.called · model", "Net.forward · model.net")
    }
    assert [path[3] for path in relus] == [
        f"Block.forward · model.net.blocks.{i}" for i in range(3)
    ]
    hidden = [node["module"] for node in drawing if node["op"] == "placeholder" and node["module"]]
    assert len(hidden) == 6 and set(hidden) == {f"model.net.blocks.{i}.linear" for i in range(3)}


def test_one_module_called_twice():
    model = Block()

    def twice(x):
        return model(model(x))

    relus = [node for node in drawn(twice, torch.ones(2, 3)) if node["label"] == "relu"]
    assert [node["path"] for node in relus] == [
        ["Block.forward · model"], ["Block.forward · model, call 2"]
    ]  # fmt: skip
