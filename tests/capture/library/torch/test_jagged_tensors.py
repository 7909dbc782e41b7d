"""Jagged nested tensors: captured through what they are made of, with ragged sizes as they are."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
torch.manual_seed(0)
QUERY, KEY, VALUE, OUT = (torch.nn.Linear(8, 8) for _ in range(4))


def jagged(*lengths, channels=8):
    parts = [torch.randn(length, channels) for length in lengths]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def attention(x, scale=None):
    q, k, v = (f(x).unflatten(-1, [2, 4]).transpose(1, 2) for f in (QUERY, KEY, VALUE))
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).flatten(-2)


def block(x):
    return F.layer_norm(x + OUT(attention(x)), (8,)).relu()


PROGRAMS = {
    "pointwise": lambda x: (x * 2).sin() + 1,
    "two of the same lengths": lambda x: (x + x.cos()) * x,
    "a layer": lambda x: torch.relu(QUERY(x)),
    "heads": lambda x: QUERY(x).unflatten(-1, [2, 4]).transpose(1, 2).exp(),
    "the ragged size": lambda x: x.view(x.size(0), x.size(1), 2, 4).sin(),
    "the batch": lambda x: x * x.shape[0],
    "a softmax": lambda x: x.softmax(-1),
    "a sum of channels": lambda x: x.sum(-1).cos(),
    "a mean of each": lambda x: x.mean(1).cos(),
    "what is inside": lambda x: x.values().cos() * x.offsets().diff().float().mean(),
    "a plain tensor beside it": lambda x: x + torch.ones(8).cumsum(0),
    "attention": attention,
    "attention with a scale": lambda x: attention(x, 0.3),
    "a block": block,
}
COMPUTES = {f"aten::{name}" for name in ("sin", "cos", "exp", "relu", "_softmax", "layer_norm")}


def same(actual, expected):
    assert type(actual) is type(expected)
    if not expected.is_nested:
        torch.testing.assert_close(actual, expected)
        return
    assert actual.shape == expected.shape  # so that the two can be added
    assert actual.offsets() is expected.offsets()
    assert actual.__tensor_flatten__() == expected.__tensor_flatten__()
    torch.testing.assert_close(actual.values(), expected.values())
    assert actual.values().stride() == expected.values().stride()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_same_as_eager(name, dynamic, backend):
    program, seen = PROGRAMS[name], []
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend=backend)
    with events.listening(seen.append), torch.no_grad():
        for lengths in ((2, 3, 4), (5, 2), (2, 3, 4), (6, 3, 2, 4)):
            x = jagged(*lengths)
            same(compiled(x), program(x))
        with torch.profiler.profile() as profile:
            compiled(x)
    count = len([event for event in seen if isinstance(event, events.CompileFinished)])
    assert count == (1 if dynamic else 3)
    if backend == "llvm":
        assert not [event for event in seen if isinstance(event, events.NotGenerated)]
        code = [event for event in seen if isinstance(event, events.CodeGenerated)]
        assert all(event.kernels() for event in code) and len(code) == count
        assert not COMPUTES & {event.name for event in profile.events()}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_shapes_are_returned(backend):
    compiled = pliant.compile(lambda x: (x * 2).shape, fullgraph=True, backend=backend)
    for lengths in ((2, 3), (4, 2), (1, 3, 5)):
        x = jagged(*lengths)
        assert compiled(x) == x.shape


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_shapes_are_compared(backend):
    def program(x, y):
        return x.sin() if (x * 2).shape == x.shape else x.cos(), x.shape[1] == y.shape[1]

    x, y = jagged(2, 3), jagged(2, 3)
    compiled = pliant.compile(program, backend=backend)
    for other in (x, y):
        result, expected = compiled(x, other), program(x, other)
        same(result[0], expected[0])
        assert result[1] is expected[1]


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_parts_are_views(backend):
    compiled = pliant.compile(lambda x: x.unbind(), fullgraph=True, dynamic=True, backend=backend)
    before = pliant.counters["compilations"]
    for lengths in ((2, 3, 4), (5, 1, 7), (3, 3, 3)):
        x = jagged(*lengths)
        for part, expected in zip(compiled(x), x.unbind(), strict=True):
            assert torch.equal(part, expected) and part.data_ptr() == expected.data_ptr()
            assert part.stride() == expected.stride()
    assert pliant.counters["compilations"] == before + 1


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_are_computed_with(dynamic):
    def program(x):
        first, second = (x * 2).unbind()
        return first.sin().sum(0) + second.mean(0)

    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic)
    for lengths in ((2, 3), (4, 1)):
        x = jagged(*lengths)
        torch.testing.assert_close(compiled(x), program(x))


def test_what_a_result_is_made_of():
    def program(x):
        y = (x * 2).transpose(1, 2)
        return y._values.sin(), y.offsets() + 1, y._ragged_idx

    x = jagged(2, 3)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x), program(x))


def test_made_inside():
    def program(values, offsets):
        return torch.nested.nested_tensor_from_jagged(values * 2, offsets).sin()

    x = jagged(2, 3, 4)
    compiled = pliant.compile(program, fullgraph=True)
    same(compiled(x.values(), x.offsets()), program(x.values(), x.offsets()))


def test_writes():
    x, y = (torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
            for _ in range(2))  # fmt: skip
    pliant.compile(lambda t: t.mul_(3).add_(1), fullgraph=True)(x)
    assert torch.equal(x.values(), y.mul_(3).add_(1).values())


def test_gradients():
    x = jagged(2, 3, 4)
    expected = torch.autograd.grad(block(x).values().sum(), OUT.weight)
    compiled = pliant.compile(block, fullgraph=True)
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x).values().sum(), OUT.weight), expected
    )


def test_sequences_do_not_see_each_other():
    x = jagged(2, 3, 4)
    x.values()[3] = torch.inf
    with torch.no_grad():
        result = pliant.compile(attention, fullgraph=True)(x)
    assert result.values()[:2].isfinite().all() and result.values()[5:].isfinite().all()


def test_empty_sequences():
    x = torch.nested.nested_tensor_from_jagged(
        torch.randn(5, 8), torch.tensor([0, 2, 2, 5]), min_seqlen=0, max_seqlen=3
    )
    with torch.no_grad():
        same(pliant.compile(block, fullgraph=True, backend="llvm")(x), block(x))


def test_what_eager_refuses_is_refused():
    def program(x):
        q, k, v = (t.unflatten(-1, [2, 4]).transpose(1, 2) for t in (x * 2).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v)

    x = jagged(2, 3, channels=24)
    with pytest.raises(RuntimeError) as eager:  # a build for CUDA has another reason
        program(x)
    with pytest.raises(RuntimeError, match=re.escape(str(eager.value).splitlines()[0])):
        pliant.compile(program)(x)


def test_without_the_longest_attention_is_left_to_pytorch():
    x = torch.nested.nested_tensor_from_jagged(torch.randn(5, 8), torch.tensor([0, 2, 5]))
    with torch.no_grad():
        same(pliant.compile(block)(x), block(x))


@pytest.mark.parametrize(
    "other",
    [
        lambda: jagged(2, 3, channels=4),
        lambda: jagged(2, 3).transpose(1, 2),  # ragged elsewhere
        lambda: torch.nested.nested_tensor_from_jagged(
            torch.randn(5, 8), torch.tensor([0, 2, 5])
        ),  # without the longest
        lambda: jagged(2, 3).double(),
        lambda: torch.randn(2, 5, 8),
    ],
)
def test_what_is_assumed_is_guarded(other):
    compiled = pliant.compile(lambda x: x.sin() * x.dim(), fullgraph=True, dynamic=True)
    compiled(jagged(2, 3))
    x, before = other(), pliant.counters["compilations"]
    same(compiled(x), x.sin() * x.dim())
    assert pliant.counters["compilations"] == before + 1
