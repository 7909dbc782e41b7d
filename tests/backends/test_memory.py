"""Memory that generated code uses again: where it must, and where it must not.

What a call allocates is asked from PyTorch's own allocator; what it computes from eager PyTorch.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import pliant
from pliant.backends.llvm import llvm
from tests.backends.eager_twin import call, difference

N = 48


def square():
    """Small numbers above 0, so that rounding errors stay small."""
    return torch.rand(N, N) / N


def memory_events(function, *args):
    """Bytes that are allocated and (below 0) freed in a call, in order."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = function(*args)
    found = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    sizes = [e.nbytes() for e in sorted(found, key=lambda e: e.start_ns())]
    del result
    return sizes


def allocations(function, *args, at_least=N * N):
    return sum(size >= at_least for size in memory_events(function, *args))


def peak(function, *args):
    total = highest = 0
    for size in memory_events(function, *args):
        total += size
        highest = max(highest, total)
    return highest


def agree(function, make, dynamic, times=2):
    """The compiled function, after it has done the same as eager."""
    compiled = pliant.compile(function, backend=llvm, dynamic=dynamic)
    for seed in range(times):
        torch.manual_seed(seed)
        given = make()
        twin = [x.clone() for x in given]
        found = difference(call(compiled, given, "no_grad"), call(function, twin, "no_grad"))
        assert found is None, found
    return compiled


# ---- where operands are overwritten


def activation(x, w):
    return F.gelu(x @ w)


def rows(x, w):
    return torch.softmax(x @ w / 3, -1)


def norm_of_sum(x, w):
    """The sum and the norm of it go where the two products were."""
    total = x @ w + w @ x
    return total, F.layer_norm(total, total.shape[-1:])


def scan_between(x, w):
    y = x.exp() * w
    return y.cumsum(0) @ y, y.cos() + w


def other_sizes(x, w):
    y = torch.addmm(w[0], x, w)
    return F.silu(y.view(-1))


def permuted(x, w):
    """Both in columns."""
    y = (x @ w).t().relu()
    return y.contiguous(), y


def gated(x, w):
    return F.silu(x @ w) * (w @ x)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("function", "count"),
    [(activation, 1), (rows, 1), (norm_of_sum, 2), (other_sizes, 1), (gated, 2)],
)
def test_results_take_the_place_of_operands(function, count, dynamic):
    compiled = agree(function, lambda: [square(), square()], dynamic)
    with torch.no_grad():
        assert allocations(compiled, square(), square()) == count


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [scan_between, permuted])
def test_other_programs_that_overwrite(function, dynamic):
    agree(function, lambda: [square(), square()], dynamic)


def residual(x, w):
    for _ in range(6):
        x = x + torch.relu(F.layer_norm(x, x.shape[-1:]) @ w) @ w
    return x


def test_a_long_sum_is_stored_as_it_goes():
    compiled = agree(residual, lambda: [square(), square() / N], False)
    with torch.no_grad():
        assert peak(compiled, square(), square() / N) <= 3 * 4 * N * N


def test_sizes_of_zero_and_one():
    for function in (activation, rows, norm_of_sum, gated):
        compiled = pliant.compile(function, backend=llvm, dynamic=True)
        for n in (3, 0, 1, 5):
            made = [torch.randn(n, n), torch.randn(n, n)]
            found = difference(
                call(compiled, list(made), "no_grad"), call(function, list(made), "no_grad")
            )
            assert found is None, (n, found)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_lanes(threads):
    def function(x, w):
        y = x @ w
        z = torch.softmax(y.sin() + y, -1)
        return z, F.gelu(z @ w.t())

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        agree(function, lambda: [torch.randn(1021, 67), torch.randn(67, 517)], False)
    finally:
        torch.set_num_threads(before)


# ---- where they must not be


def returned_too(x, w):
    y = x @ w
    return y, y.relu()


def view_returned(x, w):
    y = x @ w
    return y[1:], y.relu(), y.view(-1)[0]


def transposed(x, w):
    y = x @ w
    return y + y.t()


def flipped(x, w):
    y = x @ w
    return y - y.flip(0), y


def flipped_only(x, w):
    return (x @ w).flip(1)


def rolled(x, w):
    y = x @ w
    return y * y.roll(1, 0)


def first_row(x, w):
    y = x @ w
    return y + y[0]


def first_column(x, w):
    y = x @ w
    return y * y[:, :1]


def row_and_column(x, w):
    y = x @ w
    return y / y.sum(0) - y.mean(1, keepdim=True)


def gathered(x, w):
    y = x @ w
    return y + y[y[:, 0].argsort()]


def read_later(x, w):
    y = x @ w
    z = y.exp() @ w
    return z + y


def view_read_later(x, w):
    y = x @ w
    first = y[:4]
    z = y.tanh() @ w
    return z + first.sum(0)


def norm_and_more(x, w):
    """The sum is read again after the loop in which it could be stored."""
    y = x @ w
    z = y + 1
    return F.layer_norm(z, z.shape[-1:]) * y, z


def repeated(x, w):
    y = (x @ w)[:1].expand(x.shape[0], -1)
    return y.exp() + 1, y


def as_other_types(x, w):
    y = x @ w
    return y.double(), y > 0, y.view(torch.int32) + 1


def overlapping(x, w):
    y = x @ w
    return y.as_strided((3, 5), (1, 1)).exp()


def written(x, w):
    y = x @ w
    y.mul_(2)
    y[1] = 3
    z = y.t()
    z.add_(1)
    return z.relu()


def input_written(x, w):
    y = x @ w
    x.copy_(y.relu())
    w.add_(y)
    return y.tanh()


def scattered(x, w):
    y = x @ w
    return y.index_add(0, torch.tensor([0, 0, 1]), y[:3]) * 2


def scanned(x, w):
    y = x @ w
    return y.cumsum(1) - y, y.cummax(0).values * 2


def inputs_only(x, w):
    return x + 1, w * 2, x * w


def mask_of(x, w):
    y = x @ w
    return (y[y > 0] + 1).relu() * 2


LEFT = [
    *(returned_too, view_returned, transposed, flipped, flipped_only, rolled, first_row),
    *(first_column, row_and_column, gathered, read_later, view_read_later, norm_and_more),
    *(repeated, as_other_types, overlapping, written, input_written, scattered, scanned),
    *(inputs_only, mask_of),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", LEFT, ids=lambda f: f.__name__)
def test_nothing_is_overwritten_that_is_needed(function, dynamic):
    agree(function, lambda: [square(), square()], dynamic)


def test_an_error_leaves_inputs_as_they_were():
    def function(x, w, index):
        y = (x @ w).relu()
        return y[index] + 1

    compiled = pliant.compile(function, backend=llvm)
    given = [square(), square(), torch.tensor([1, 2])]
    before = [x.clone() for x in given]
    with torch.no_grad():
        compiled(*given)
        with pytest.raises(IndexError):
            compiled(*given[:2], torch.tensor([1, N]))
    assert all(map(torch.equal, given, before))


def test_the_result_of_an_operator_that_returns_its_argument():
    @torch.library.custom_op("pliant_tests::same", mutates_args=())
    def same(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @same.register_fake
    def _(x):
        return torch.empty_like(x)

    library = torch.library.Library("pliant_tests_raw", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x, "CPU")
    library.impl("same", torch.empty_like, "Meta")

    def function(x):
        return torch.ops.pliant_tests_raw.same(x) + 1, torch.ops.pliant_tests.same(x) + 1

    x = square()
    before = x.clone()
    found = pliant.compile(function, backend=llvm)(x)
    assert torch.equal(x, before)
    assert torch.equal(found[0], before + 1)
