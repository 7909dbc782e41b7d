"""Dimensions of size 1 whose strides lie among those of others, beside symbolic sizes."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.fake import measured
from tests.support.against_eager import check


def strided(sizes, strides):
    return torch.arange(5000.0).as_strided(sizes, strides)


CASES = [
    (
        [((1, 3, 8, 4), (4, 32, 4, 1)), ((1, 3, 8, 4), (8, 96, 12, 1))],
        "both dense in their own way",
    ),
    ([((1, 3, 8, 4), (8, 96, 12, 1)), ((1, 3, 8, 4), (8, 96, 12, 1))], "alike, with gaps"),
    ([((1, 3, 8, 4), (4, 32, 4, 1)), ((1, 3, 8, 4), (4, 32, 4, 1))], "alike and dense"),
    ([((3, 1, 4), (4, 2, 1)), ((3, 1, 4), (8, 1, 2))], "inside"),
    ([((3, 1, 4), (4, 100, 1)), ((3, 1, 4), (8, 1, 2))], "outside"),
    ([((3, 1, 4), (1, 5, 3)), ((1, 4), (3, 1))], "a second operand that is spread"),
]


@pytest.mark.parametrize("operands", [c[0] for c in CASES], ids=[c[1] for c in CASES])
def test_strides_of_a_sum(operands):
    check(lambda a, b: a + b, *(strided(*o) for o in operands), dynamic=True)
    check(lambda a, b: a * b, *(strided(*o) for o in reversed(operands)), dynamic=True)


@pytest.mark.parametrize("first", [1, 2])
def test_joined(first):
    """Whether memory is channels-last is seen from the strides alone."""

    def f(a, b):
        return torch.cat([a, b])

    sizes = (first, 3, 8, 4)
    check(f, strided(sizes, (4, 96, 12, 1)), strided(sizes, (4, 32, 4, 1)), dynamic=True)


def test_a_batch_of_one_needs_no_compilation():
    def f(x):
        return torch.cat([x[:1] * x[:1].sin(), x[1::2] + x[1::2].cos()]).movedim(0, 2)

    compiled = pliant.compile(f, fullgraph=True)
    for batch in (2, 3, 1, 4):
        x = torch.randn(batch, 8, 6, 4).movedim(2, 0)
        torch.testing.assert_close(compiled(x), f(x))
    assert pliant.counters["compilations"] == 2


@pytest.mark.parametrize("lead", [(1,), (2,), (1, 1), (2, 1), (1, 3)], ids=str)
@pytest.mark.parametrize("sizes", [(), (1,), (2,), (1, 2), (2, 1), (3, 2)], ids=str)
def test_a_dimension_added_by_expanding(sizes, lead):
    def f(x):
        return x.expand(*lead, *x.shape), x.mT.expand(*lead, *x.mT.shape) if x.dim() > 1 else x

    for dynamic in (False, True):
        check(f, torch.ones(sizes), dynamic=dynamic)


def test_expanded_after_an_empty_call():
    def f(x, y):
        return x.expand(y.shape[0], *x.shape)

    compiled = pliant.compile(f)
    for size in (0, 2, 3, 0):
        x, y = torch.ones(size), torch.ones(1)
        assert compiled(x, y).stride() == f(x, y).stride()


KERNELS = {
    "renorm": lambda x: x.renorm(1, 0, 0.0),
    "randint_like": lambda x: torch.randint_like(x, 1),
    "randint_like from": lambda x: torch.randint_like(x, 1, 2),
    "addr": lambda x: torch.addr(x, x[:, 0], x[0]),
    "rot90": lambda x: torch.rot90(x, 2),
    "index_put": lambda x: torch.index_put(x, (torch.tensor([0]),), x[0]),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 2.0),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([0]), x[:1]),
    "cummax": lambda x: torch.cummax(x, 0),
    "kthvalue": lambda x: torch.kthvalue(x, 1, 0),
    "nan_to_num": lambda x: torch.nan_to_num(x),
    "take_along_dim": lambda x: torch.take_along_dim(x, torch.zeros(1, 1).long(), 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm of float64": lambda x: F.layer_norm(x.double(), x.shape[-1:]),
    "layer_norm of bfloat16": lambda x: F.layer_norm(x.bfloat16(), x.shape),
}


@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (0, 1), (7, 1), (0, 0)], ids=str)
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_which_the_meta_kernels_differ(name, strides):
    operation = KERNELS[name]

    def f(x):
        result = operation(x)
        first = result[0] if isinstance(result, tuple) else result
        return result, first.t(), first * 2, first.stride()

    x = torch.zeros(9).as_strided((1, 2), strides)
    with torch.no_grad():
        for shown in (x, x.t()):
            check(f, shown, dynamic=False)


INDICES = {
    "none": torch.tensor([], dtype=torch.int64),
    "none, as a column": torch.zeros(0, 1, dtype=torch.int64),
    "one": torch.tensor([0]),
    "a column": torch.zeros(1, 2, dtype=torch.int64).T,
}


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("sizes", [(1, 1, 0), (1, 1, 1), (2, 0, 1), (1, 3, 0), (2, 1, 3)], ids=str)
def test_indices(sizes, index):
    def f(x, index):
        return x[None, index, ..., ::1], x[:, None, :1][..., index * 0] if x.size(-1) else x

    for grad in (False, True):
        for dynamic in (False, True):
            x = torch.ones(sizes, requires_grad=grad)
            compiled = pliant.compile(f, backend="llvm", dynamic=dynamic)
            for actual, expected in zip(compiled(x, index), f(x, index), strict=True):
                assert actual.shape == expected.shape
                assert actual.stride() == expected.stride()


@pytest.mark.parametrize("index", INDICES.values(), ids=INDICES)
@pytest.mark.parametrize("sizes", [(1, 1), (1, 1, 1), (2, 1, 1), (1, 0, 1)], ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
def test_layouts_that_the_program_sees(sizes, index, dynamic):
    """Operands of one shape are laid out otherwise than those that are broadcast."""

    def f(x, index):
        found = [x[:, index]] if x.size(1) or not index.numel() else []
        found += [x[None, index]]
        found += [one[torch.arange(one.shape[0])] for one in found]
        return [one.stride() for one in found]

    x = torch.ones(sizes)
    assert pliant.compile(f, dynamic=dynamic)(x, index) == f(x, index)


KEYS = {
    "before": lambda n: (None, n),
    "before the last": lambda n: (..., None, n),
    "around": lambda n: (None, n, None, n),
    "between": lambda n: (n, None, n),
    "and slices": lambda n: (slice(1, 2), None, n, ..., None),
    "and indices": lambda n: (torch.tensor([0, 1]), None, n),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_new_dimensions_beside_an_index_in_the_data(key, backend, dynamic):
    def f(x, n):
        return x[key(n)]

    x = torch.arange(60.0).reshape(3, 4, 5).transpose(0, 1)
    compiled = pliant.compile(f, backend=backend, dynamic=dynamic, fullgraph=True)
    for number in (1, 2, 0):
        actual, expected = (g(x, torch.tensor(number)) for g in (compiled, f))
        assert torch.equal(actual, expected)
        assert actual.stride() == expected.stride()
        assert actual.storage_offset() == expected.storage_offset()


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("kernel", [1, 2])
def test_a_convolution_along_a_transposed_row(width, kernel):
    def f(x):
        result = F.conv1d(x, x[:, :, :kernel])
        result.index_put_((torch.tensor([0]),), result[:1].clone(), accumulate=True)
        return result

    for dynamic in (False, True):
        check(f, torch.arange(2.0 * width).reshape(1, width, 2).mT, dynamic=dynamic)


RESIZED = {
    "neg": lambda x, out: torch.neg(x, out=out),
    "add": lambda x, out: torch.add(x, x, out=out),
    "add of a number": lambda x, out: torch.add(x, 1, out=out),
    "clamp": lambda x, out: torch.clamp(x, 0, out=out),
    "sum": lambda x, out: torch.sum(x, 0, out=out),
    "cumsum": lambda x, out: torch.cumsum(x, 0, out=out),
    "mm": lambda x, out: torch.mm(x, x.T, out=out),
    "cat": lambda x, out: torch.cat([x, x], out=out),
    "index_select": lambda x, out: torch.index_select(x, 0, torch.tensor([0, 0]), out=out),
    "where": lambda x, out: torch.where(x > 0, x, x, out=out),
}


@pytest.mark.parametrize("size", [3, 200])
@pytest.mark.parametrize("name", RESIZED)
def test_out_that_is_resized(name, size):
    def f(x, out):
        RESIZED[name](x, out)
        return out.stride(), out * 2, out.is_contiguous()

    for x in (torch.ones(size, size + 1), torch.ones(size, size + 1).T, torch.ones(size, 1).T):
        check(f, x, torch.empty(0))
        check(f, x, torch.empty(0), dynamic=True)


def test_kernels_that_trust_indices_are_not_run_on_made_up_ones(monkeypatch) -> None:
    factored, pivots, _ = torch.linalg.ldl_factor_ex(torch.eye(4)[:1, :1] + 1)
    ran = []
    run = measured.without_warnings
    monkeypatch.setattr(measured, "without_warnings", lambda *a: ran.append(a) or run(*a))

    def function(factored, pivots, b):
        return torch.linalg.ldl_solve(factored, pivots, b)

    given = (factored, pivots, torch.ones(1, 2))
    ours = pliant.compile(function, backend="eager", dynamic=True)(*given)
    assert ours.stride() == function(*given).stride() and not ran


@pytest.mark.parametrize("operation", [torch.add, torch.special.xlog1py])
def test_a_stride_of_a_size_of_1_that_varies_by_itself(operation):
    """The stride is a symbol from the second compilation on; the sizes don't tell it."""

    def f(a, b):
        return operation(a, b)

    compiled = pliant.compile(f, dynamic=True)
    for sizes, strides in [((1, 1, 2), (1, 1, 1)), ((1, 2, 2), (4, 1, 2)), ((1, 2, 2), (1, 1, 2))]:
        a, b = strided(sizes, strides), torch.ones(sizes)
        assert compiled(a, b).stride() == f(a, b).stride()


OF_NOTHING = {
    "conversion": lambda x: x[0:0].to(torch.int32),
    "sum": lambda x: x[:, 0:0] + 1,
    "copy": lambda x: x[0:0].clone(),
    "zeros": lambda x: torch.zeros_like(x[0:0]),
}


@pytest.mark.parametrize("name", OF_NOTHING)
@pytest.mark.parametrize("dynamic", [None, True])
def test_results_without_elements_where_strides_change(name, dynamic):
    """A stride that doesn't follow from the sizes changes from call to call, the sizes don't."""
    f = OF_NOTHING[name]
    compiled = pliant.compile(f, backend="llvm", dynamic=dynamic)
    layouts = [((1, 2), (2, 1)), ((1, 2), (1, 1)), ((3, 2), (2, 1)), ((3, 2), (1, 3))]
    for layout in (*layouts, *layouts):
        x = strided(*layout)
        result, expected = compiled(x), f(x)
        assert (result.shape, result.stride()) == (expected.shape, expected.stride()), layout
