"""Writes to parts of memory: only what is written is touched, and everybody reads what was there
when the program read it."""

import pytest
import torch

import pliant
from pliant.base import events
from pliant.graph.functionalize import NotFunctionalized
from tests.backends.eager_twin import call, difference
from tests.backends.random_writes import program
from tests.support.compiled_code import compiled_code

pytestmark = pytest.mark.own_default

ROWS, COLUMNS = 64, 48
ALL = ROWS * COLUMNS


class Counted:
    """A backend that knows how many iterations its kernels make, and what they allocate."""

    def __init__(self):
        self.programs = []

    def __call__(self, graph, examples):
        try:
            self.programs.append(compiled_code(graph, examples))
        except NotFunctionalized:  # questions about sizes that guards don't answer
            return graph.forward
        return self.programs[-1].load()

    @property
    def iterations(self):
        return sum(_iterations(kernel.body) for p in self.programs for kernel in p.kernels)


def _iterations(body):
    """Of static sizes."""
    total = 0
    for item in body:
        if hasattr(item, "extent"):
            extent = item.extent.value
            extent = 1 if extent is None else extent  # a block, counted by the loop around it
            total += extent * max(1, _iterations(item.body))
    return total


def compare(function, *args, dynamic=False):
    """With eager, twice; returns the iterations of all kernels."""
    backend = Counted()
    compiled = pliant.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    mine, eagers = copies(args), copies(args)
    for _ in range(2):
        outcomes = [call(f, a, "no_grad") for f, a in ((compiled, mine), (function, eagers))]
        assert difference(*outcomes) is None
    assert events.counters["fallbacks"] == 0
    assert dynamic or len(backend.programs) == 1
    return backend.iterations


def copies(args):
    return [arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args]


def arguments():
    torch.manual_seed(0)
    return [torch.randn(ROWS, COLUMNS), torch.tensor([3, 1]), torch.randn(2, COLUMNS)]


def set_a_number(x, i, rows):
    x[7, 3] = 1.0


def set_a_part_of_a_row(x, i, rows):
    x[5, 2:6] = rows[0, 2:6]


def set_rows(x, i, rows):
    x[4:6] = rows


def set_steps(x, i, rows):
    x[1:9:4, 3:11:2] = rows[:, :4]


def set_turned(x, i, rows):
    x.t()[2:4, :2] = rows[:, :2]


def set_the_diagonal(x, i, rows):
    x[:4, :4].diagonal().copy_(rows[0, :4])


def set_of_a_reshaped(x, i, rows):
    x.view(8, 8, COLUMNS)[1, 2:4] = rows


def set_of_a_split(x, i, rows):
    x.chunk(32)[3].copy_(rows)


def add_to_rows(x, i, rows):
    x[5:7].add_(rows)


def scale_a_column(x, i, rows):
    x[:4, 3].mul_(2)


def mask_rows(x, i, rows):
    x[5:7].masked_fill_(rows > 0, 0.0)


def set_from_itself(x, i, rows):
    x[5:7] = x[8:10] * 2


def set_from_where_it_is(x, i, rows):
    x[5:7] = x[6:8] + 1


def index_add(x, i, rows):
    x.index_add_(0, i, rows)


def index_add_to_itself(x, i, rows):
    x.index_add_(0, i, x[:2] * 2)


def index_copy(x, i, rows):
    x.index_copy_(0, i, rows)


def index_fill(x, i, rows):
    x.index_fill_(0, i, 0.5)


def index_put(x, i, rows):
    x[i] = rows


def index_put_in_a_view(x, i, rows):
    x.view(8, 8, COLUMNS)[2, i] = rows


def count_up(x, i, rows):
    x[i] += 1


def add_up(x, i, rows):
    x.index_put_((i,), rows, accumulate=True)


def scatter(x, i, rows):
    x.scatter_(0, i[:, None].expand(2, COLUMNS), rows)


def scatter_add_in_a_view(x, i, rows):
    x[8:16].scatter_add_(0, i[:, None].expand(2, COLUMNS), rows)


def read_before(x, i, rows):
    old = x[4] * 2
    x[4:6] = rows
    return old, x[4] * 2


def read_after(x, i, rows):
    x[4:6] = rows
    return x[5] + 1, x[3:5].sum()


def returned(x, i, rows):
    x[4:6] = rows
    return x


def a_view_returned(x, i, rows):
    view = x[3:6]
    x[4:6] = rows
    return view, view[1] * 2


def twice(x, i, rows):
    x[4:6] = rows
    x[5:7] = rows * 2
    x[i] = rows + x[5]


def in_turn(x, i, rows):
    rows[0] = x[0] + 1
    x[i] = rows
    rows[1] = x[1] * 2
    x[2] = rows[1] + rows[0]


PARTS = [
    *(set_a_number, set_a_part_of_a_row, set_rows, set_steps, set_turned, set_the_diagonal),
    *(set_of_a_reshaped, set_of_a_split, add_to_rows, scale_a_column, mask_rows, set_from_itself),
    *(set_from_where_it_is, index_add, index_add_to_itself, index_copy, index_fill, index_put),
    *(index_put_in_a_view, count_up, add_up, scatter, scatter_add_in_a_view, read_before),
    *(read_after, returned, a_view_returned, twice, in_turn),
]


@pytest.mark.parametrize("function", PARTS, ids=lambda f: f.__name__)
def test_work_is_that_of_what_is_written(function):
    assert compare(function, *arguments()) < ALL // 2
    compare(function, *arguments(), dynamic=True)


def later_fault(x, i, rows):
    x[5:7].add_(rows)
    return rows[i * 50]


def later_fault_of_a_counter(x, i, rows):
    x[i] += 1
    return rows[i * 50]


def later_fault_of_all(x, i, rows):
    x.add_(1)
    x[2:4].mul_(3)
    return rows[i * 50], x.sum()


def later_error(x, i, rows):
    x[5:7].add_(rows)
    return torch.linalg.cholesky(-torch.eye(2) + rows[:, :2] * 0)


def later_error_of_all(x, i, rows):
    x.mul_(2)
    y = x.exp().sum(0)
    return y, torch.linalg.cholesky(-torch.eye(2) + rows[:, :2] * 0), x @ x.t()


def later_error_after_both(x, i, rows):
    rows.mul_(0.5)
    x.index_add_(0, i, rows)
    x[3:5].mul_(2)
    return torch.linalg.cholesky(-torch.eye(2) + rows[:, :2] * 0)


def an_index_out_of_range(x, i, rows):
    x[1:3].mul_(2)
    x.index_add_(0, i + ROWS, rows)


@pytest.mark.parametrize(
    "function",
    [later_fault, later_fault_of_a_counter, later_fault_of_all, later_error, later_error_of_all]
    + [later_error_after_both, an_index_out_of_range],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_an_error_after_a_write(function, dynamic):
    """Inputs are what eager PyTorch leaves, and the error is its error."""
    compiled = pliant.compile(function, dynamic=dynamic)
    outcomes = [call(f, arguments(), "no_grad") for f in (compiled, function)]
    assert outcomes[1].error is not None
    assert difference(*outcomes) is None


def made_of_two(a, b):
    out = torch.empty(a.size(0), 2 * a.size(1))
    out[:, : a.size(1)] = a
    out[:, a.size(1) :] = b
    return out


def made_of_rows(a, b):
    out = torch.empty(32, a.size(1))
    for row in range(32):
        out[row] = a[row] * row
    return out


def made_of_zeros(a, b):
    out = torch.zeros(64, a.size(1))
    for row in range(16):
        out[2 * row + 1] = b[row]
        out[2 * row, 3:9] += a[row, 3:9]
    return out.sum(0), out


def a_product_written_to(a, b):
    out = a @ b.t()
    for row in range(6):
        out[row] = out[row + 1] * 2
    return out


@pytest.mark.parametrize(
    "function, passes",
    [(made_of_two, 3), (made_of_rows, 4), (made_of_zeros, 6), (a_product_written_to, 1)],
    ids=lambda f: getattr(f, "__name__", ""),
)
def test_memory_of_the_program_is_written_where_it_is(function, passes):
    a, b = torch.randn(32, 48), torch.randn(32, 48)
    assert compare(function, a, b) <= passes * 32 * 48
    compare(function, a, b, dynamic=True)


def attend(k, v, new, query, at):
    k[:, :, at : at + 1] = new
    v[:, :, at : at + 1] = new * 2
    keys, values = k[:, :, : at + 1], v[:, :, : at + 1]
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values), k


def attend_at(k, v, new, query, at):
    k.index_copy_(2, at, new)
    v.index_copy_(2, at, new * 2)
    return torch.nn.functional.scaled_dot_product_attention(query, k, v), v


@pytest.mark.parametrize("function", [attend, attend_at], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dynamic", [False, None, True])
def test_a_cache_of_keys_and_values(function, dynamic):
    backend = Counted()
    compiled = pliant.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    mine, eagers = [[torch.zeros(1, 2, 512, 8) for _ in range(2)] for _ in range(2)]
    for place in (0, 1, 5, 100):
        at = torch.tensor([place]) if function is attend_at else place
        new, query = torch.randn(2, 1, 2, 1, 8)
        pair = [(compiled, [*mine, new, query, at]), (function, [*eagers, new, query, at])]
        assert difference(*[call(f, args, "no_grad") for f, args in pair]) is None
    assert backend.programs
    if dynamic is not True:  # sizes are numbers
        assert backend.iterations < 4 * 10 * 16


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed):
    """Static and symbolic sizes."""
    namespace = {"torch": torch}
    exec(program(seed, 3 + seed % 9), namespace)
    function = namespace["f"]
    for dynamic in (False, True):
        compiled = pliant.compile(function, dynamic=dynamic)
        for n in (4, 3) if dynamic else (4,):
            outcomes = [call(f, matrices(seed, n), "no_grad") for f in (compiled, function)]
            assert difference(*outcomes) is None, n


def matrices(seed, n):
    torch.manual_seed(seed)
    indices = [torch.tensor([1, 0]), torch.randint(0, n, (n, n))]
    return [torch.randn(n, n), torch.randn(n, n), *indices, 2]
