"""Strides that a program reads itself: as a number, or because a view depends on them."""

import pytest
import torch

import pliant

SIZES = [(4, 4), (2, 2), (3, 4), (1, 2), (1, 1), (1, 0), (0, 2), (2, 0), (2, 1), (1, 4), (3, 2)]

LAYOUTS = {
    "contiguous": lambda n, m: torch.ones(n, m),
    "transposed": lambda n, m: torch.ones(m, n).T,
    "sliced": lambda n, m: torch.ones(n, m * 2)[:, :m],
    "expanded": lambda n, m: torch.ones(1, m).expand(n, m),
    "gaps": lambda n, m: torch.ones(200).as_strided((n, m), (m + 1, 1)),
}


def outcome(function, x):
    try:
        result = function(x)
    except RuntimeError as error:
        return str(error)
    return [
        (t.shape, t.stride(), t.dtype) if isinstance(t, torch.Tensor) else t
        for t in (result if isinstance(result, tuple) else (result,))
    ]


def agree(function, layout, **options):
    compiled = pliant.compile(function, recompile_limit=100, **options)
    for sizes in SIZES:
        x = LAYOUTS[layout](*sizes)
        assert outcome(compiled, x) == outcome(function, x), sizes


READERS = {
    "stride()": lambda x: x.stride(),
    "of a result": lambda x: torch.neg(x.T).stride(),
    "of a result that is returned": lambda x: (y := x * 2, y.stride()),
    "stride(dim)": lambda x: torch.neg(x.T).stride(0),
    "of a view": lambda x: torch.neg(x.T)[:, :2].stride(),
    "int64": lambda x: x.view(torch.int64),
    "int16": lambda x: (x.view(torch.int16), x.view(torch.int32)),
    "by name": lambda x: x.view(dtype=torch.float64),
    "complex": lambda x: torch.view_as_complex(x),
    "a result as float64": lambda x: torch.neg(x.T).view(torch.float64),
    "a result as int16": lambda x: torch.neg(x.T).view(torch.int16),
    "unused": lambda x: (x * 2).view(torch.int64) is None,
    "sizes": lambda x: (x.view(*x.shape), x.view(x.shape), x.view(size=x.shape)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", READERS)
def test_read_strides(name, layout, dynamic):
    agree(READERS[name], layout, dynamic=dynamic, backend="eager")


@pytest.mark.parametrize("columns", [1, 2])
def test_strides_of_what_a_mask_selects(columns):
    """How many elements there are is in the data."""

    def f(mask, x):
        return (x[mask] * 0).stride()

    compiled = pliant.compile(f, dynamic=True)
    for places in ((), (0,), (0, 1), (2,), (0, 1, 2)):
        mask = torch.zeros(3, dtype=torch.bool)
        mask[list(places)] = True
        x = torch.ones(3, columns)
        assert compiled(mask, x) == f(mask, x), places
        assert compiled(mask[0], x[0]) == f(mask[0], x[0]), places


def test_one_compilation_for_larger_sizes():
    compiled = pliant.compile(lambda x: torch.neg(x.T).stride(), dynamic=True)
    for sizes in ((3, 4), (5, 2), (7, 9)):
        assert compiled(torch.ones(sizes)) == (1, sizes[1])
    assert pliant.counters["compilations"] == 1


SCATTERED = {
    "select": lambda x: torch.select_scatter(x, x[0] * 0, 0, 0),
    "diagonal": lambda x: torch.diagonal_scatter(x, x.diagonal() * 0),
    "copy": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", SCATTERED)
@pytest.mark.parametrize("dynamic", [None, False, True])
def test_a_size_that_has_become_known_to_be_0(name, dynamic):
    """A view with wider elements needs even strides, also if there are no elements."""

    def f(x):
        SCATTERED[name](x).view(torch.float32)

    compiled = pliant.compile(f, dynamic=dynamic)
    compiled(torch.ones(5, 1))
    for columns in (0, 2, 0):
        x = torch.ones(5, columns, dtype=torch.bfloat16)
        if columns:
            compiled(x)
        else:
            with pytest.raises(RuntimeError, match="must be divisible by 2"):
                f(x)
            with pytest.raises(RuntimeError, match="must be divisible by 2"):
                compiled(x)
