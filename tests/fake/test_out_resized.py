"""`out=` that an operator resizes, where sizes are symbols: what the program sees afterwards."""

import pytest
import torch

import pliant

USES = {
    "shape": lambda a: a.shape,
    "len": len,
    "arange": lambda a: torch.arange(a.shape[0]),
    "index": lambda a: a[torch.arange(a.shape[0])],
    "add": lambda a: a + 1,
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("use", USES)
def test_smaller(use, dynamic, size) -> None:
    def function(a):
        result = torch.gather(0 + a, 0, torch.tensor([], dtype=torch.int64), out=a)
        assert result is a
        return USES[use](a)

    ours, eager = torch.ones(size), torch.ones(size)
    mine = pliant.compile(function, backend="llvm", dynamic=dynamic)(ours)
    theirs = function(eager)
    assert ours.shape == eager.shape
    if isinstance(theirs, torch.Tensor):
        assert torch.equal(mine, theirs)
    else:
        assert mine == theirs
