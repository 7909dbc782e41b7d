"""Views of views of views: PyTorch keeps the chain with each of them, so it must not grow."""

import pytest
import torch

from pliant.fake.tensor import MOST_CHAINED
from pliant.fake.world import World

creation_meta = torch._C._autograd._get_creation_meta
STEPS = {
    "t": (torch.Tensor.t, ()),
    "view": (torch.Tensor.view, (4, 4)),
    "narrow": (torch.Tensor.narrow, (0, 0, 4)),
    "transpose": (torch.transpose, (0, 1)),
    "detach": (torch.Tensor.detach, ()),
}


def chain(world, x, name, length, visit=lambda view: None):
    function, args = STEPS[name]
    for _ in range(length):
        x = world.run(function, (x, *args)).value
        visit(x)
    return x


@pytest.mark.parametrize("name", STEPS)
def test_a_long_chain_is_a_view_of_its_base(name):
    world = World()
    base = world.from_real(torch.zeros(4, 4))
    lengths = []
    view = chain(world, base, name, 200, lambda view: lengths.append(view._chain))
    assert max(lengths) < MOST_CHAINED or name == "detach"
    assert view.size() == (4, 4) and view.untyped_storage()._cdata == base.untyped_storage()._cdata
    if name != "detach":
        assert view._is_view() and view._base is base
    before = base._version
    world.run(torch.Tensor.add_, (view, 1))
    assert base._version == view._version == before + 1


@pytest.mark.parametrize("grad", [True, False])
def test_how_a_view_was_made_is_kept(grad):
    world = World()
    views = {}
    for length in (3, MOST_CHAINED + 3):
        base = world.from_real(torch.zeros(4, 4))
        with torch.set_grad_enabled(grad):
            first = chain(world, base, "t", 1)
        views[length] = chain(world, first, "t", length)
    assert len({creation_meta(view) for view in views.values()}) == 1


def test_a_chain_with_a_history_stays():
    world = World()
    base = world.from_real(torch.zeros(4, 4, requires_grad=True))
    view = chain(world, base, "t", MOST_CHAINED + 3)
    assert view.requires_grad and type(view.grad_fn).__name__ == "TBackward0"
