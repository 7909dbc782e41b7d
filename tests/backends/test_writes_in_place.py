"""Parts of inputs that are written: only they, and only if nobody notices."""

import pytest
import torch

import pliant
from pliant.graph.functionalize import NotFunctionalized
from tests.support.compiled_code import compiled_code

ROWS, COLUMNS = 6, 40


def outcome(function, args):
    """What it returns or raises."""
    try:
        return function(*args)
    except (RuntimeError, IndexError) as error:
        return type(error), str(error)


def elements_written(function, *args, dynamic=False):
    """Elements that the kernels of the function run over when it is called with these arguments,
    after comparing it with eager, twice."""
    programs = []

    def backend(graph, examples):
        try:
            programs.append(compiled_code(graph, examples))
        except NotFunctionalized:
            return graph.forward
        return programs[-1].load()

    compiled = pliant.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    mine, eagers = [t.clone() for t in args], [t.clone() for t in args]
    with torch.no_grad():
        for _ in range(2):
            found, expected = outcome(compiled, mine), outcome(function, eagers)
            if isinstance(expected, tuple) and isinstance(expected[0], type):
                assert found == expected
            else:
                torch.testing.assert_close(found, expected)
            torch.testing.assert_close(mine, eagers, rtol=0, atol=0)
    text = "".join([str(kernel) for program in programs for kernel in program.kernels])
    return text.count(f"< {ROWS * COLUMNS}") + text.count(f"< {ROWS}\n")


def put_rows(x, index, rows):
    x[index] = rows


def copy_rows(x, index, rows):
    x.index_copy_(0, index, rows)


def fill_rows(x, index, rows):
    x.index_fill_(0, index, 0.5)


def set_a_slice(x, index, rows):
    x[1:3] = rows


def set_a_row(x, index, rows):
    x[-2] = rows[0] * 2


def set_columns(x, index, rows):
    x[:2, 3:9] = rows[:, 3:9]
    return x.t()


def read_afterwards(x, index, rows):
    x[index] = rows
    return x[2] + 1, x[index] * 2


ALONE = [put_rows, copy_rows, fill_rows, set_a_slice, set_a_row]


def read_before(x, index, rows):
    old = x.amax(0)
    x[index] = rows
    return old


def from_itself(x, index, rows):
    x[1:3] = x[:2] * 2


def from_one_element(x, index, rows):
    x[index] = x[0, 0] * 2


def twice(x, index, rows):
    x[index] = rows
    x[index + 1] = rows * 2
    return x.clone()


def returned_as_another_tensor(x, index, rows):
    y = x.index_copy(0, index, rows)
    x.copy_(y)
    return y


def from_another_that_is_written(x, index, rows):
    rows[0] = x[0] + 1
    x[index] = rows
    return x + 1


def an_error_later(x, index, rows):
    x[1:3] = rows
    return rows.gather(0, index[None] + 100)


def an_error_there(x, index, rows):
    x[index + ROWS] = rows


def an_error_of_pytorch(x, index, rows):
    x[1:3] = rows
    return torch.linalg.cholesky(-torch.eye(3) + x.sum() * 0)


ASSERTED = pytest.mark.cpu_only("an assertion ends what a process can do on a GPU")
NOT_ALONE = [set_columns, read_afterwards, read_before, from_itself, from_one_element, twice] + [
    returned_as_another_tensor,
    from_another_that_is_written,
    *[pytest.param(f, marks=ASSERTED) for f in (an_error_later, an_error_there)],
    an_error_of_pytorch,
]


def arguments():
    return torch.randn(ROWS, COLUMNS), torch.tensor([1, 4]), torch.randn(2, COLUMNS)


@pytest.mark.parametrize("function", ALONE, ids=lambda f: f.__name__)
def test_only_what_is_new_is_written(function):
    assert elements_written(function, *arguments()) == 0
    elements_written(function, *arguments(), dynamic=True)


@pytest.mark.parametrize("function", NOT_ALONE, ids=lambda f: f.__name__)
def test_what_others_see(function):
    elements_written(function, *arguments())
    elements_written(function, *arguments(), dynamic=True)


@pytest.mark.parametrize("function", [put_rows, set_a_slice], ids=lambda f: f.__name__)
def test_other_layouts(function):
    x, index, rows = arguments()
    elements_written(function, x.t().contiguous().t(), index, rows)
    elements_written(function, x.half(), index, rows.half())
    elements_written(function, torch.randn(ROWS, 2 * COLUMNS)[:, ::2], index, rows)
