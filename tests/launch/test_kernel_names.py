"""Names of kernels, and the lines of the program above them."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from pliant.base.position import Position
from pliant.graph.ir import Node
from pliant.launch.kernel_names import LONGEST, label_of, lines_of
from pliant.loop.build import Builder
from pliant.loop.ir import Access
from pliant.loop.types import Type
from pliant.targets.triton import target as triton_target
from pliant.targets.triton.target import TritonTarget

pytest.importorskip("triton")


def named(*names):
    return [Node(name, None, (), {}) for name in names]


def test_a_name_is_short_and_an_identifier():
    assert label_of(named("aten.mul.Tensor", "aten._softmax.default", "aten.mul.Tensor")) == (
        "mul_softmax"
    )
    assert label_of(named("aten.exp.default")) == "exp"
    many = named(*[f"aten.operator{i}.default" for i in range(30)])
    assert label_of(many) == "operator0_operator1_operator2_and_27_more"
    odd = label_of(named("python.<lambda>", "mine.a-b.c", "x" * 200))
    assert odd.isidentifier() and len(odd) <= LONGEST


def test_lines_are_listed_once():
    nodes = named(*["aten.mul.Tensor"] * 12)
    for at, node in enumerate(nodes[1:]):
        node.stack = (Position(__file__, 99), Position(__file__, 1 + at // 3 * 4))
    assert [line.split(":")[1] for line in lines_of(nodes)] == ["1", "5", "9", "13"]
    for at, node in enumerate(nodes):
        node.stack = (Position(__file__, 1 + at),)
    assert len(lines_of(nodes)) == 7 and lines_of(nodes)[-1] == "# and 6 more lines"


def scores(x, w):
    y = x * 2
    return torch.softmax(y + w, -1)


def sources(seen):
    return [text for event in seen(events.CodeGenerated) for text in event.kernels()]


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    monkeypatch.setattr(triton_target, "_LABELS", {})


def test_the_program_is_seen_in_its_kernels(seen):
    compiled = pliant.compile(scores, backend="triton_interpreter", fullgraph=True)
    x, w = torch.randn(4, 8), torch.randn(8)
    torch.testing.assert_close(compiled(x, w), scores(x, w))
    (text,) = sources(seen)
    assert "def pliant_mul_add_softmax_whole(" in text
    assert "test_kernel_names.py" in text and ": return torch.softmax(y + w, -1)" in text
    assert text.index(": y = x * 2") < text.index("torch.softmax(y + w")


def test_a_kernel_may_be_named_like_a_function_that_it_calls(seen):
    compiled = pliant.compile(torch.sign, backend="triton_interpreter", fullgraph=True)
    x = torch.randn(40)
    torch.testing.assert_close(compiled(x), x.sign())
    (text,) = sources(seen)
    assert "def pliant_sign(" in text and "= sign(" in text


def test_equal_kernels_have_one_source_whatever_they_are_called(seen):
    """Names and places in the program make no difference."""

    def first(x):
        return (x.t() @ x).relu()

    def second(x):
        y = x.exp() @ x
        return F.relu(y) @ x

    for function in (first, second):
        pliant.compile(function, backend="triton_interpreter")(torch.randn(8, 8))
    texts = ["\n".join(t.splitlines()[1:]) for t in sources(seen) if "relu" in t]
    assert len(texts) == 2 and len(set(texts)) == 1


def test_the_name_is_no_part_of_a_kernel():
    """It is that of the first of equal ones, so that Triton finds its machine code, too."""

    def kernel(name, label):
        build = Builder(name)
        y = build.buffer("y", Type.F32, Access.WRITE)
        with build.loop(64) as i:
            build.store(y, i, build.constant(1.0, Type.F32))
        return replace(build.kernel(), label=label)

    target = TritonTarget(torch.device("cpu"))
    labels = (("k0", "ones"), ("k7", "full"))
    made = [target.generate(kernel(*names), lambda size: size.value) for names in labels]
    assert made[0].key == made[1].key and made[0].text == made[1].text
    assert "def pliant_ones(" in made[0].text
