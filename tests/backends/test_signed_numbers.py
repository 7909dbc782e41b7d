"""Numbers that may be negative, divided inside of kernels: `//` and `%` round down there too."""

import pytest
import torch

import pliant
from tests.support.against_eager import run, same_outcome

X = torch.arange(24.0).reshape(6, 4)
PROGRAMS = {
    "quotient": lambda x, n: x + n // 4,
    "remainder": lambda x, n: torch.arange(6) + n % 5,
    "both": lambda x, n: x * (n // 3 - n % 3),
    "index": lambda x, n: x[n % 6] * 2,
    "roll": lambda x, n: torch.roll(x, n, 0) * 2,
    "roll twice": lambda x, n: torch.roll(x, (n, 2 * n + 1), (0, 1)) + 1,
    "fill": lambda x, n: torch.full((3,), n // 3) + 1,
}


@pytest.mark.parametrize("from_data", [False, True], ids=["argument", "data"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_divided_as_python_does(program, from_data):
    def f(x, n):
        return program(x, n.item() if from_data else n)

    compiled = pliant.compile(f, backend="llvm", dynamic=True, fullgraph=True)
    for number in (2, 5, 0, -1, -7):
        args = (X, torch.tensor(number) if from_data else number)
        same_outcome(run(compiled, args), run(f, args))
