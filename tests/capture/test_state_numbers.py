"""Branches on numbers that objects keep in tensors: guards, rather than breaks."""

import math

import pytest
import torch

import pliant
from pliant.base import events

X = torch.arange(3.0)


class Counter:
    """Counts its calls in a tensor."""

    def __init__(self, number=0.0, dtype=torch.float32):
        self.count = torch.tensor(number, dtype=dtype)
        self.other = torch.tensor(0.0)


def follow(program, calls=8, make=Counter, before=None, **options):
    """Compare call by call; the numbers of breaks and compilations."""
    mine, theirs = make(), make()
    compiled = pliant.compile(program, **options)
    events.counters.reset()
    for call in range(calls):
        for one in (mine, theirs):
            if before is not None:
                before(one, call)
        torch.testing.assert_close(compiled(mine, X), program(theirs, X), rtol=0, atol=0)
        torch.testing.assert_close(mine.count, theirs.count, rtol=0, atol=0, equal_nan=True)
    return events.counters["graph_breaks"], events.counters["compilations"]


def after_three(self, x):
    self.count += 1
    return x * 2 if self.count.item() > 3 else x + self.count


def by_truth(self, x):
    self.count.add_(1)
    return x * 2 if self.count > 3 else x + 1


def by_list(self, x):
    torch._foreach_add_([self.count, self.other], torch.tensor(1.0), alpha=1.0)
    return x * 2 if float(self.count) * 2 > 6 else x + 1


def through_tensors(self, x):
    self.count += 1
    rest = torch.maximum(self.count - 3, torch.zeros(()))
    return x * 2 if rest.item() != 0 else x + 1


def larger_of_two(self, x):
    self.count += 1
    return x / max(1, self.count.item() - 3)


def with_a_view(self, x):
    self.count.view(1).add_(1)
    return x * 2 if self.count.detach().view(()).item() > 3 else x + 1


@pytest.mark.parametrize(
    "program", [after_three, by_truth, by_list, through_tensors, larger_of_two]
)
def test_a_counter(program):
    assert follow(program, fullgraph=True) == (0, 2)


def test_a_counter_that_is_written_through_a_view():
    """What it holds then is not known."""
    breaks, _ = follow(with_a_view)
    assert breaks > 0


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.bfloat16])
def test_types(dtype):
    assert follow(after_three, make=lambda: Counter(0, dtype), fullgraph=True) == (0, 2)


def test_a_flag():
    def program(self, x):
        if self.count.item():
            return x + 1
        self.count.fill_(True)
        return x - 1

    assert follow(program, make=lambda: Counter(False, torch.bool), fullgraph=True) == (0, 2)


def test_it_rounds_as_the_tensor_does():
    def program(self, x):
        self.count += 0.1
        return x * 2 if self.count.item() == 0.30000001192092896 else x

    assert follow(program, calls=5, fullgraph=True) == (0, 2)


def test_numbers_that_are_alike_but_not_the_same():
    def program(self, x):
        return x * math.copysign(1.0, self.count.item()) if self.count.item() <= 0 else x + 1

    numbers = (-0.0, 0.0, math.nan, 1.0, -0.0, math.nan)
    breaks, _ = follow(
        program, len(numbers), before=lambda one, call: one.count.fill_(numbers[call])
    )
    assert breaks == 0


def test_division_by_a_counter_of_zero():
    def program(self, x):
        return x + 1 if 1 / self.count.item() > 0.5 else x - 1

    counter = Counter()
    compiled = pliant.compile(program)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            compiled(counter, X)
    counter.count.fill_(1)
    assert torch.equal(compiled(counter, X), X + 1)


def test_a_counter_that_the_program_changes_outside():
    steps = (0, 7, 2, 8, 0)
    outcome = follow(after_three, len(steps), before=lambda one, call: one.count.fill_(steps[call]))
    assert outcome == (0, 2)


def test_another_tensor_in_its_place():
    def change(one, call):
        one.count = torch.tensor(float(call % 5))

    assert follow(after_three, before=change) == (0, 2)


def test_a_tensor_of_another_kind_in_its_place():
    def change(one, call):
        one.count = (torch.tensor(2.0), torch.tensor([5.0]), torch.tensor(5))[call % 3]

    follow(after_three, calls=6, before=change)


def shares_memory():
    counter = Counter()
    counter.other = counter.count.view(())
    return counter


def test_a_write_to_the_same_memory():
    def program(self, x):
        self.other.add_(1)
        return x * 2 if self.count.item() > 3 else x + 1

    assert follow(program, make=shares_memory)[0] > 0


def test_memory_that_is_shared_later():
    def program(self, x):
        self.other.add_(1)
        return x * 2 if self.count.item() > 3 else x + 1

    def change(one, call):
        if call == 3:
            one.other = one.count.view(())

    follow(program, before=change)


def test_a_write_through_data():
    def program(self, x):
        first = self.count.item()
        self.count.data.add_(1)
        return x * 2 if self.count.item() > 3 else x + first

    follow(program)


def test_a_tensor_given_other_memory():
    def program(self, x):
        self.count.data = self.other + 5
        return x * 2 if self.count.item() > 3 else x + 1

    follow(program, calls=3)


def test_two_counters_in_one_condition_break_the_graph():
    def program(self, x):
        self.count += 1
        return x * 2 if self.count.item() > self.other.item() else x

    assert follow(program)[0] > 0


def test_what_is_passed_is_data():
    def program(x, limit):
        return x * 2 if limit.item() > 3 else x + 1

    compiled = pliant.compile(program)
    for number in range(6):
        limit = torch.tensor(float(number))
        assert torch.equal(compiled(X, limit), program(X, limit))
    assert events.counters["graph_breaks"] > 0


def test_it_is_compiled_for_a_few_numbers_only():
    def program(self, x):
        self.count += 1
        for i in range(100):
            if i >= self.count.item():
                break
            x = x + i
        return x

    breaks, compilations = follow(program, calls=20)
    assert breaks > 0
    assert compilations < 20


def test_counters_that_are_alike_share_a_guard():
    class Many:
        def __init__(self):
            self.counts = [torch.tensor(1.0) for _ in range(5)]

    def program(self, x):
        for count in self.counts:
            count += 1
            x = x + 1 if count.item() > 3 else x - 1
        return x

    many = Many()
    compiled = pliant.compile(program, fullgraph=True)
    for _ in range(4):
        compiled(many, X)
    guards = [
        str(guard) for guard in pliant.explain(program)(Many(), X).guards if "item()" in str(guard)
    ]
    assert len(guards) == 5
    assert events.counters["compilations"] == 3  # the third by `explain`


def test_known_tensors_are_forgotten_only_when_they_are_written():
    def program(x):
        n, m = torch.tensor(1.0), torch.tensor(5.0)
        x = x.clone().add_(1)
        n += 2
        view = m.view(1)
        view.mul_(2)
        return x + 1 if n.item() == 3 and n > 2 else x - 1

    compiled = pliant.compile(program, fullgraph=True)
    assert torch.equal(compiled(X), program(X))


def test_a_known_tensor_written_through_a_view():
    def program(x):
        n = torch.tensor([1.0])
        n[0].add_(4)
        return x + 1 if n.item() == 5 else x - 1

    assert torch.equal(pliant.compile(program)(X), program(X))


def test_nothing_is_asked_of_sizes():
    """Writes to tensors of any size: one compilation for all, 1 included."""

    def inverse(order):
        result = torch.empty_like(order)
        result.scatter_(0, order, torch.arange(order.numel()))
        return result

    compiled = pliant.compile(inverse, dynamic=True)
    for size in (3, 4, 1, 0):
        order = torch.randperm(size)
        assert torch.equal(compiled(order), inverse(order))
    assert events.counters["compilations"] == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda n: n.random_(0, 50),
        lambda n: n.bernoulli_(0.5),
        lambda n: n.uniform_(-1, 1),
        lambda n: torch.nn.functional.dropout(n.add_(1), inplace=True),
    ],
    ids=["random_", "bernoulli_", "uniform_", "dropout"],
)
def test_a_random_number_is_drawn_in_each_call(draw):
    def known(x):
        n = torch.tensor(0.0)
        draw(n)
        return x + n, n.item() > 0.5

    def state(self, x):
        draw(self.count)
        return x + 1 if self.count > 0.5 else x - 1

    counters = Counter(), Counter()
    for program, args in ((known, ((X,), (X,))), (state, [(c, X) for c in counters])):
        compiled = pliant.compile(program)
        for seed in range(6):
            torch.manual_seed(seed)
            result, after = compiled(*args[0]), torch.rand(1)
            torch.manual_seed(seed)
            torch.testing.assert_close((result, after), (program(*args[1]), torch.rand(1)))


def test_lists_of_tensors_that_share_memory():
    """Each of these calls reads what the one before it has written."""

    def program(x):
        a, b, c, d, e, f = (torch.tensor(float(i)) for i in range(6))
        torch._foreach_add_([a, a], 1)
        torch._foreach_add_([b, b.view(())], 1)
        torch._foreach_add_([c, d], [d, c])
        torch._foreach_copy_([e, f], [f, e])
        return x + a, [n.item() for n in (a, b, c, d, e, f)]

    assert pliant.compile(program)(X)[1] == program(X)[1] == [2.0, 3.0, 5.0, 8.0, 5.0, 5.0]


def test_lists_of_state_that_share_memory():
    def program(self, x):
        torch._foreach_add_([self.count, self.other, self.count], 1)
        return x * 2 if self.count > 3 else x + 1

    follow(program)
