"""`DynamicInt`: an int that is a symbol from the start."""

import pytest
import torch
from torch.fx.experimental.sym_node import DynamicInt

import pliant


class Scaled(torch.nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return x * self.number + torch.ones(abs(self.number) + 2).sum()


class TestDynamicInt:
    def compilations(self, compiled, *calls):
        before = pliant.counters["compilations"]
        results = [compiled(*call) for call in calls]
        return results, pliant.counters["compilations"] - before

    @pytest.mark.parametrize("backend", ["eager", "llvm"])
    def test_one_compilation_serves_ints_of_both_kinds(self, backend):
        def program(n, m, x):
            return x * n + torch.zeros(abs(m) + 2).sum(), n + m, n > m

        compiled = pliant.compile(program, fullgraph=True, backend=backend)
        marked, x = DynamicInt(1), torch.ones(2)
        calls = [(marked, marked, x), (2, 2, x), (-1, 5, x), (DynamicInt(7), 4, x)]
        results, count = self.compilations(compiled, *calls)
        assert str(results) == str([program(int(n), int(m), x) for n, m, x in calls])
        assert count == 1

    def test_returned_as_it_is(self):
        marked = DynamicInt(3)
        result, _ = pliant.compile(lambda n, x: (n, x + n), fullgraph=True)(marked, torch.ones(1))
        assert result is marked

    def test_kept_in_a_module(self):
        module = Scaled(DynamicInt(3))
        compiled, x = pliant.compile(module, fullgraph=True), torch.ones(2)
        before = pliant.counters["compilations"]
        for number in (DynamicInt(3), -2, DynamicInt(5)):
            module.number = number
            torch.testing.assert_close(compiled(x), Scaled(int(number))(x))
        assert pliant.counters["compilations"] == before + 1

    def test_another_class_is_another_case(self):
        compiled, x = pliant.compile(lambda n, x: x * n), torch.ones(1)
        calls = [(DynamicInt(3), x), (2.5, x), (True, x)]
        results, _ = self.compilations(compiled, *calls)
        assert [result.item() for result in results] == [3, 2.5, 1]
