"""`tolist()`: lists that the graph makes. What the program does with the items has eager's result;
items that it does not look at cost nothing."""

import collections
import functools
import operator
from unittest import mock

import pytest
import torch

import pliant
from pliant.base import events
from pliant.sym import expr
from tests.support.against_eager import check, compilations, same
from tests.support.work import calls, growth

X = torch.tensor([[1, 2, 3], [4, 5, 6]])


def returned(x):
    return x.tolist(), x + 1


def returned_in_parts(x):
    rows = x.tolist()
    return rows[0], rows[1][2], rows[1][:2], x + 1


def first_of_each(x):
    return [row[0] for row in x.tolist()], x + 1


def same_rows(x):
    rows = x.tolist()
    others = list(rows)
    rows[0].append(7)
    return rows, others, rows[0], rows[0] is others[0], x + 1


def same_rows_unread(x):
    rows = x.tolist()
    return rows, [rows, *rows], (*rows,), x + 1


def changed(x):
    rows = x.tolist()
    rows[0][1] = x.sum()
    rows.append(rows[0])
    del rows[1][0]
    return rows


def mixed(x):
    (a, b, c), row = x.tolist()
    return [0, a, b, *row, c, b, a, *row[1:], *row[::-1]], (b,), (*row,), {c: row}, x + 1


def in_itself(x):
    rows = x.tolist()
    rows.append(rows)
    rows[0].append(rows[1])
    return rows, x + 1


def other_containers(x):
    (row, other) = x.tolist()
    return collections.deque(row, 2), dict.fromkeys("ab", other), {"a": row}, x + 1


def written_afterwards(x):
    x = x.clone()
    rows = x.tolist()
    x.zero_()
    return rows[0], rows[1][1] + 1, x


def found(x):
    rows = x.tolist()
    return 5 in rows[1], [1, 2, 3] in rows, rows.index([4, 5, 6]), rows[0] < rows[1], x + 1


def computed(x):
    rows = x.tolist()
    return sum(map(sum, rows)), max(rows[1]), sorted(rows[0] + rows[1]), x * rows[1][0]


def over_a_break(x):
    rows = x.tolist()
    row = rows[1]
    pliant.graph_break()
    return rows, row, row is rows[1], x * row[0]


def in_a_generator(x):
    rows = x.tolist()
    numbers = (row[0] for row in rows)
    first = next(numbers)
    pliant.graph_break()
    return first, list(numbers), rows, x + 1


def in_a_branch(x):
    rows = x.tolist()
    return torch.cond(x.sum() > 3, lambda t: t * rows[0][1], lambda t: t - rows[1][0], (x,))


PROGRAMS = [
    returned, returned_in_parts, first_of_each, same_rows, same_rows_unread, changed, mixed,
    in_itself, other_containers, written_afterwards, found, computed, in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
@pytest.mark.parametrize("function", PROGRAMS)
def test_lists(function, dtype):
    check(function, X.to(dtype), breaks=None)


@pytest.mark.parametrize("function", [returned, returned_in_parts, same_rows, written_afterwards])
def test_lists_of_flags(function):
    check(function, X > 2, breaks=None)


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0), (0, 3), (2, 0, 3), (1, 1, 1), (2, 1, 3)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_shapes(shape, dynamic):
    def f(x):
        rows = x.tolist()
        return rows, len(rows), rows[:1], x + 1

    check(f, torch.randn(shape), dynamic=dynamic)


def test_one_number():
    check(lambda x: (x.tolist(), x + x.tolist()), torch.tensor(2.5))


def test_complex_numbers_have_no_symbols():
    check(lambda x: (x.tolist(), x + 1), torch.ones(2, dtype=torch.complex64), breaks=None)


@pytest.mark.parametrize("function", [over_a_break, in_a_generator])
def test_over_a_break(function):
    check(function, X, breaks=None)


def test_lists_of_the_caller():
    def f(x, items, table):
        items.extend(x.tolist())
        table["rows"] = x.tolist()
        table["rows"][0][0] = 9
        return x + 1

    check(f, X, [1], {})


def test_a_program_that_asserts_something_of_items():
    def f(x):
        first, last = x.tolist()
        torch._check(first >= 0)
        torch._check(first <= 4)
        return torch.zeros(first) + last

    compiled = check(f, torch.tensor([3, 7]))
    torch.testing.assert_close(compiled(torch.tensor([2, 5])), torch.full((2,), 5.0))
    with pytest.raises(RuntimeError):
        compiled(torch.tensor([-1, 5]))


def seen_graph(f, *args):
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    pliant.compile(f, backend=backend, fullgraph=True)(*args)
    return graphs[0].graph


def test_the_graph_reads_what_the_program_reads():
    def f(x):
        values = x.tolist()
        return x + values[5], values

    targets = [str(node.target) for node in seen_graph(f, torch.arange(100)).nodes]
    assert len([target for target in targets if "getitem" in target]) == 1


def test_a_list_that_nothing_looks_at_costs_nothing():
    def f(x):
        for _ in range(100):
            x.tolist()
        return x + 1

    few, many = (torch.zeros(3, n, 8) for n in (1000, 10000))
    seen_graph(f, few)
    assert calls(lambda: seen_graph(f, many)) < 1.1 * calls(lambda: seen_graph(f, few))
    assert all(node.target != "tolist" for node in seen_graph(f, many).nodes)


def test_returned_lists_cost_little():
    few, many = (torch.zeros(2, n) for n in (1000, 10000))
    seen_graph(returned, few)
    assert calls(lambda: seen_graph(returned, many)) < 1.1 * calls(
        lambda: seen_graph(returned, few)
    )


def test_work_is_linear_in_what_is_read():
    def f(x):
        return [v * 2 for v in x.tolist()], x + 1

    def make(n):
        return lambda: pliant.compile(f, fullgraph=True)(torch.arange(n))

    make(10)()
    assert growth(make, 64) < 4.4


@pytest.mark.parametrize("combine", [operator.add, operator.mul], ids=["sum", "product"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.uint8])
def test_numbers_computed_from_very_many(combine, dtype):
    def f(x):
        total = functools.reduce(combine, x.tolist())
        return total, total - 1, x * (total % 7), total > 3

    compiled = check(f, torch.full((200,), 1, dtype=dtype))
    for number in (2, 3):
        x = torch.ones(200, dtype=dtype)
        x[::50] = number
        same(compiled(x), f(x))


def test_a_size_computed_from_very_many():
    def f(x, data):
        total = sum(x.tolist())
        torch._check(total >= 0)
        return torch.zeros(total), data[data > 0], torch.ones(total) * 2

    data = torch.tensor([1.0, -1.0, 2.0])
    compiled = check(f, torch.ones(200, dtype=torch.int64), data)
    same(compiled(torch.full((200,), 2), -data), f(torch.full((200,), 2), -data))


def test_items_of_many_tensors_add_up():
    def f(x, data):
        total = 0
        for i in range(100):
            total = total + x[i].item()
        return data[data > 0] * total, data.nonzero(), total

    data = torch.tensor([1.0, -1.0, 2.0])
    compiled = check(f, torch.arange(100), data)
    same(compiled(torch.arange(100) * 3, -data), f(torch.arange(100) * 3, -data))


def test_sums_are_linear():
    def make(n):
        return lambda: pliant.compile(lambda x: sum(x.tolist()), fullgraph=True)(torch.arange(n))

    terms = []
    make(10)()
    with mock.patch.object(expr, "from_terms", side_effect=counting(terms, expr.from_terms)):
        make(400)()
    assert sum(terms) < 400 * 80


def counting(terms, real):
    def from_terms(coefficients, const):
        terms.append(len(coefficients))
        return real(coefficients, const)

    return from_terms


# Lists that nobody looks into, of a tensor of any size.
UNREAD = {
    "returned": lambda x: (x * 2).tolist(),
    "of an input": lambda x: (x.tolist(), x + 1),
    "in others": lambda x: {"rows": [x.tolist()], "sums": x.sum(1).tolist()},
    "twice the same": lambda x: [(x + 1).tolist()] * 2,
    "before a write": lambda x: (lambda y: (y.tolist(), y.add_(1)))(x * 1),
    "before a write to a view": lambda x: (lambda y: (y[:1].tolist(), y.view(-1).zero_()))(x * 1),
    "before a write to data": lambda x: (lambda y: (y.tolist(), y.data.zero_()))(x * 1),
    "before it is turned": lambda x: (lambda y: (y.tolist(), y.t_()))(x * 1),
    "of complex numbers": lambda x: x.to(torch.complex64).tolist(),
    "of places": lambda x: (x > 1).nonzero().tolist(),
    "of different numbers": lambda x: (torch.unique(x).tolist(), x + 1),
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", UNREAD)
def test_lists_that_are_passed_along_fit_every_size(name, backend):
    calls = [(torch.arange(4.0 * size).reshape(size, 4),) for size in (3, 30, 2, 5, 30)]
    assert compilations(UNREAD[name], calls, dynamic=True, fullgraph=True, backend=backend) == 1


def test_lists_that_are_passed_along_are_no_part_of_generated_code():
    events.counters.reset()
    compiled = pliant.compile(lambda x: (x + 1).tolist(), backend="llvm")
    compiled(torch.ones(1000))
    assert events.counters["programs"] == 1


@pytest.mark.parametrize("dynamic", [None, True])
def test_lists_made_before_a_break_that_writes(dynamic):
    def program(x):
        y = x * 2
        rows = y.tolist()
        y.resize_(1, 1)
        rows.append(y.sum())
        return rows

    calls = [(torch.ones(size, 4),) for size in (3, 2, 1)]
    compilations(program, calls, dynamic=dynamic)


def test_a_list_of_places_made_before_a_write():
    def program(x):
        places = x.nonzero()
        rows = places.tolist()
        places.add_(1)
        return rows, places

    calls = [(torch.ones(size),) for size in (3, 0, 5)]
    compilations(program, calls, backend="llvm")
    assert events.counters["fallbacks"] == 0
