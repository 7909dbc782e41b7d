"""Where the inputs of a graph come from, and what they are called."""

import collections
import functools

import torch
from torch import nn

import pliant

X = torch.arange(3.0)
WEIGHT = torch.full((3,), 2.0)
TABLE = {"a": [torch.ones(3)], 3: torch.zeros(3)}


class Box:
    kind = torch.full((3,), 5.0)

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("value",)


def inputs_of(function, *args, **kwargs) -> dict[str, torch.Tensor]:
    """The graph's inputs by name; the result is compared with eager."""
    inputs = {}

    def backend(gm, example_inputs):
        gm.graph.lint()
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        inputs.update(zip(names, example_inputs, strict=True))
        return gm.forward

    compiled = pliant.compile(function, backend=backend, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args, **kwargs), function(*args, **kwargs))
    return inputs


def test_arguments() -> None:
    y = torch.ones(3)
    assert inputs_of(lambda a, b: a + b, X, y) == {"l_a": X, "l_b": y}
    inputs = inputs_of(lambda *args, **named: args[1] + named["k"], 0, X, k=y)
    assert list(inputs) == ["l_args_1", "l_named_k"]


def test_globals() -> None:
    inputs = inputs_of(lambda x: x * WEIGHT + TABLE["a"][0] + TABLE[3], X)
    assert list(inputs) == ["l_x", "g_weight", "g_table_a_0", "g_table_3"]
    assert inputs["g_weight"] is WEIGHT


def test_closures() -> None:
    scale = torch.ones(3)
    offset = {"k": torch.ones(3)}

    def inner(x):
        return x + offset["k"]

    inputs = inputs_of(lambda x: inner(x) * scale, X)
    assert any(t is scale for t in inputs.values())
    assert any(t is offset["k"] for t in inputs.values())
    assert "closure_scale" in inputs and len(inputs) == 3


def test_attributes_slots_and_classes() -> None:
    box, slotted = Box(x=X, inner=Box(y=WEIGHT)), Slotted()
    slotted.value = torch.ones(3)
    inputs = inputs_of(lambda b, s: b.x + b.inner.y + s.value + b.kind, box, slotted)
    assert list(inputs)[:3] == ["l_b_x", "l_b_inner_y", "l_s_value"]
    assert list(inputs.values())[3] is Box.kind


def test_containers() -> None:
    Pair = collections.namedtuple("Pair", "first second")
    args = [X, (WEIGHT,)], {"k": {"n": X}}, Pair(X, WEIGHT), collections.deque([X, WEIGHT])
    inputs = inputs_of(lambda a, b, c, d: a[1][0] + b["k"]["n"] + c.second + d[1], *args)
    assert list(inputs) == ["l_a_1_0", "l_b_k_n"]  # the others are the same tensors


def test_the_same_tensor_is_one_input() -> None:
    def f(a, b, items):
        return a + b + items[0] + WEIGHT

    assert list(inputs_of(f, WEIGHT, WEIGHT, [WEIGHT])) == ["l_a"]


def test_modules() -> None:
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)])
            self.register_buffer("offset", torch.ones(3))
            self.plain = torch.ones(3)

        def forward(self, x):
            return self.layers[0](x) + self.offset + self.plain

    model = M()
    inputs = {}

    def backend(gm, example_inputs):
        names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
        inputs.update(zip(names, example_inputs, strict=True))
        return gm.forward

    compiled = pliant.compile(model, backend=backend)
    torch.testing.assert_close(compiled(X), model(X))
    assert set(inputs) == {
        "l_x", "l_self_layers_0_weight", "l_self_layers_0_bias", "l_self_offset", "l_self_plain",
    }  # fmt: skip
    assert inputs["l_self_layers_0_weight"] is model.layers[0].weight


def test_defaults_partials_and_methods() -> None:
    def f(x, y=WEIGHT, *, z=TABLE[3]):
        return x + y + z

    assert len(inputs_of(f, X)) == 3
    assert len(inputs_of(functools.partial(f, X), y=torch.ones(3))) == 3
    assert len(inputs_of(Box(k=X, go=functools.partial(f, y=X)).go, WEIGHT)) == 3


def test_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    x.grad = torch.full((3,), 3.0)
    inputs = inputs_of(lambda x: x.grad * 2, x)
    assert list(inputs) == ["l_x_grad"]


def test_unused_tensors_are_no_inputs() -> None:
    def f(a, b, items):
        b + 1
        return a + 1, b, items

    compiled = pliant.compile(f, fullgraph=True)
    compiled(X, WEIGHT, [X, WEIGHT])
    [entry] = compiled.entries
    graph = entry.info.bindings.graph.graph
    assert [n.name for n in graph.nodes if n.op == "placeholder"] == ["l_a"]
    assert len([n for n in graph.nodes if n.op.startswith("call")]) == 1


def test_names_that_are_no_identifiers_or_clash() -> None:
    table = {"a b": X, "a-b": WEIGHT, "a_b": TABLE[3], "class": X * 2, 1: X * 3}
    inputs = inputs_of(lambda t: t["a b"] + t["a-b"] + t["a_b"] + t["class"] + t[1], table)
    assert len(inputs) == 5 and all(name.isidentifier() for name in inputs)


def test_the_residual_code_reads_well() -> None:
    def f(x, box):
        box.last = x * 2
        return box.last + 1, [x]

    compiled = pliant.compile(f)
    compiled(X, Box())
    [entry] = compiled.entries
    assert entry.info.captured.residual == (
        "def f_residual(box, x):\n"
        "    mul, add, = graph_of_f(x)\n"
        "    box.last = mul\n"
        "    return (add, [x])\n"
    )
