"""Index tensors of any number of dimensions and elements: eager PyTorch takes or refuses them."""

import pytest
import torch
import torch.nn.functional as F

import pliant

OPERATORS = {
    "index_select": lambda x, i: x.index_select(0, i),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_add of one": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "index_fill": lambda x, i: x.index_fill(0, i, 7),
    "gather": lambda x, i: x.gather(0, i),
    "scatter a number": lambda x, i: x.scatter(0, i, 7),
    "scatter": lambda x, i: x.scatter(0, i, x),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x, "amax"),
    "mean": lambda x, i: x.scatter_reduce(0, i, x, "mean", include_self=False),
    "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: x.take_along_dim(i, 0),
    "embedding": lambda x, i: F.embedding(i, x),
    "getitem": lambda x, i: x[i],
    "put": lambda x, i: x.put(i, x[:1]),
}
SHAPES = [(3, 2), (1, 0), (3,), (), (0, 2)]
INDICES = [(), (0,), (1,), (2,), (1, 0), (1, 1), (2, 1), (1, 1, 1)]


def outcome(function, shape, index):
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    try:
        result = function(x, torch.zeros(index, dtype=torch.int64))
    except Exception as error:
        return type(error), str(error)
    return result.shape, result.stride(), result.tolist()


@pytest.mark.own_default
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_same_as_eager(name: str, dynamic: bool | None) -> None:
    function = OPERATORS[name]
    for shape in SHAPES:
        for index in INDICES:
            compiled = pliant.compile(function, dynamic=dynamic)
            case = (shape, index)
            assert (case, outcome(compiled, *case)) == (case, outcome(function, *case))
