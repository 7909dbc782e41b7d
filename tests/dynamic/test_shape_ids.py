"""`mark_unbacked(shape_id=...)`: sizes that are equal by what the program says."""

import pytest
import torch

import pliant


def marked(*shape, shape_id="batch"):
    t = torch.rand(shape)
    pliant.mark_unbacked(t, 0, shape_id=shape_id)
    return t


def either(x, y):
    return x + y if x.shape[0] == y.shape[0] else x - y


def test_equal_names_are_equal_sizes():
    function, before = pliant.compile(either, fullgraph=True), pliant.counters["compilations"]
    for size in (4, 7, 1):
        x, y = marked(size, 3), marked(size, 3)
        torch.testing.assert_close(function(x, y), x + y)
    assert pliant.counters["compilations"] == before + 1


def test_other_names_are_not():
    x, y = marked(4, 3), marked(4, 3, shape_id="other")
    with pytest.raises(pliant.errors.DataDependentError):
        pliant.compile(either, fullgraph=True)(x, y)


def test_sizes_that_differ_are_an_error():
    function = pliant.compile(either, fullgraph=True)
    function(marked(4, 3), marked(4, 3))
    with pytest.raises(pliant.errors.InvalidMarkError, match="shape_id='batch'"):
        function(marked(4, 3), marked(5, 3))


def test_pytorchs_own_name_is_read():
    x, y = torch.rand(4, 3), torch.rand(4, 3)
    for t in (x, y):
        t._dynamo_unbacked_indices = {0}
        t._dynamo_shape_ids = {0: "batch"}
    torch.testing.assert_close(pliant.compile(either, fullgraph=True)(x, y), x + y)


def test_hints_are_accepted():
    x = torch.rand(4, 3)
    pliant.mark_dynamic(x, 0, hint_override=64)
    pliant.mark_unbacked(x, 1, hint_override=64)
    pliant.mark_static_address(x)
    torch.testing.assert_close(pliant.compile(torch.sin)(x), x.sin())
    with pytest.raises(pliant.errors.InvalidMarkError):
        pliant.mark_static_address(3)
