"""Arrays of random numbers from NumPy's global state, and what is printed of arrays."""

import contextlib
import io

import numpy as np
import pytest
import torch

import pliant


def several_draws(x):
    first = np.random.rand(3).astype(np.float32)
    number = np.random.rand()
    return x + torch.tensor(first) * number, np.random.randint(0, 5, size=(2, 3))


def written_after_a_draw(x):
    order = np.random.permutation(3)
    order[0] = 5
    return torch.tensor(order) + x


def printed(x):
    array = np.random.randn(3)
    print(array, [array], {"key": array}, x, sep=" | ")
    return x + 1


def printed_in_a_loop(x):
    for size in (2, 3):
        print(np.nan_to_num(np.random.randn(size, size)), torch.ones(size, dtype=torch.complex64))
    return x + 1


PROGRAMS = {
    "a draw": lambda x: x + torch.from_numpy(np.random.randn(3)),
    "returned as it is": lambda x: (np.random.normal(0, 1, (2, 2)), x + 1),
    "drawn without being used": lambda x: (np.random.randn(7), x + 1)[1],
    "choices": lambda x: x + torch.tensor(np.random.choice(5, 3)),
    "several draws": several_draws,
    "written after a draw": written_after_a_draw,
    "printed": printed,
    "printed in a loop": printed_in_a_loop,
}


def two_calls(function):
    """Results, output, and the state of NumPy's generator afterwards."""
    np.random.seed(3)
    with contextlib.redirect_stdout(io.StringIO()) as output:
        results = [str(function(torch.ones(3))) for _ in range(2)]
    return results, output.getvalue(), np.random.rand()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_same_as_eager(name, backend):
    compiled = pliant.compile(PROGRAMS[name], fullgraph=True, backend=backend)
    assert two_calls(compiled) == two_calls(PROGRAMS[name])


def write_to_array(x):
    array = np.zeros(3)
    print(array)
    array += 1
    print(array)
    return torch.from_numpy(array) + x


def write_to_tensor(x):
    array = x.numpy()
    print(array)
    x.add_(1)
    print(array)
    return x * 2


@pytest.mark.parametrize("program", [write_to_array, write_to_tensor])
def test_an_array_is_printed_before_it_changes(program):
    assert two_calls(pliant.compile(program)) == two_calls(program)


def test_a_failure_puts_the_state_back():
    def program(x):
        return x[torch.tensor(np.random.randint(5, 6, size=(1,)))]

    def state_after(function):
        np.random.seed(3)
        with pytest.raises(IndexError):
            function(torch.ones(3))
        return np.random.rand()

    assert state_after(pliant.compile(program)) == state_after(program)
