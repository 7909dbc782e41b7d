"""Views of views of an input, made before it was written to and read after it was settled."""

import pytest
import torch

import pliant


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.swapaxes(0, 0),
        lambda a: a.view(2, 2).t().t().view(4),
        lambda a: a.unsqueeze(0)[0],
    ],
)
def test_a_part_copied_to_itself(view, dynamic) -> None:
    def function(a):
        alias = view(a)
        a.logical_not_()
        alias[:1].copy_(alias[:1])
        alias[2:].narrow(0, 0, 1).mul_(alias[1:2])

    eager = torch.tensor([1.0, 0.0, 1.0, 0.0])
    ours = eager.clone()
    function(eager)
    pliant.compile(function, backend="llvm", dynamic=dynamic)(ours)
    assert torch.equal(ours, eager)
