"""Sizes and numbers that are read from tensors (`tolist()`, `item()`) in training: one program."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.training_programs import trains_alike


def split(x, n):
    parts = torch.split(x, n.tolist())
    return sum([part.sin().sum() * at for at, part in enumerate(parts, 1)])


def sliced(x, n):
    a, b = n.tolist()
    return x[:a].sum() * 2 + x[a:].exp().sum() * b


def by_items(x, n):
    return (x[: n[0].item()] ** 2).mean(1).sum() + x[n[0].item() :].sin().sum()


def narrowed(x, n):
    return x.narrow(0, 0, n.tolist()[0]).sin().sum()


def padded(x, n):
    """Rows of several lengths, as a batch."""
    rows = [part.tanh() for part in torch.split(x, n.tolist())]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).square().sum()


def factors(x, n):
    first, second = (n * 0.5).tolist()
    return (x * first).sin().sum() + x.sum() * second


def nested(x, n):
    ((a, b), (c, d)) = torch.stack([n, n + 1]).tolist()
    return x.sum() * a * d + x.exp().sum() * b + c


def masked(x, n):
    return (x[x > 0] ** 2).sum() * n.tolist()[1]


PROGRAMS = [split, sliced, by_items, narrowed, factors, nested, masked]
COUNTS = [(2, 3), (1, 4), (3, 2), (5, 0), (0, 5), (4, 1)]


def gradient(function, counts):
    torch.manual_seed(0)
    x = torch.randn(5, 3, requires_grad=True)
    result = function(x, torch.tensor(counts))
    return result.detach(), torch.autograd.grad(result, x)[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_numbers_that_vary(program) -> None:
    compiled = pliant.compile(program, backend="llvm")
    for counts in COUNTS:
        for a, b in zip(gradient(compiled, counts), gradient(program, counts), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["compilations"] == 1


def routed(x, n):
    """A mixture of experts: rows are chosen by the data, and weighted by numbers of their own."""
    weights, expert = x.softmax(-1).max(-1)
    out = torch.zeros_like(x)
    for e in range(3):
        rows = torch.where(expert == e)[0]
        out.index_add_(0, rows, (x[rows] * (e + n[0])).tanh() * weights[rows, None])
    return out.square().sum()


def masked_rows(x, n):
    out = torch.zeros_like(x)
    for e in range(3):
        mask = x.argmax(-1) == e
        out[mask] = x[mask].exp() * x[mask, e].unsqueeze(-1)
    return out.sum() * n[1]


@pytest.mark.parametrize("program", [routed, masked_rows], ids=lambda program: program.__name__)
def test_rows_chosen_by_data(program) -> None:
    """The gradient of what is broadcast is summed up where a size is 1: one from the data isn't
    known to be, and needs no sum if the other one is the same."""
    compiled = pliant.compile(program, backend="llvm")
    for size in (5, 4, 3, 2, 1, 7):
        for seed in range(4):
            results = []
            for run in (compiled, program):
                torch.manual_seed(seed)
                x = torch.randn(size, 3, requires_grad=True)
                result = run(x, torch.tensor([2, 3]))
                results.append((result.detach(), *torch.autograd.grad(result, x)))
            for a, b in zip(*results, strict=True):
                torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["fallbacks"] == 0 and events.counters["compilations"] <= 3


def test_sum_to_a_size_in_the_data() -> None:
    """Asked by the program itself, where the size may be 1 or the other one."""
    compiled = pliant.compile(lambda x, n: x.sum_to_size(n[0].item(), 3) * 2, backend="llvm")
    for count in (4, 1, 4):
        x = torch.randn(4, 3, requires_grad=True)
        result = compiled(x, torch.tensor([count]))
        torch.testing.assert_close(result, x.sum_to_size(count, 3) * 2)
        (grad,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(grad, torch.full_like(x, 2))


def summed_up(x, n):
    """The gradient's formula asks how many elements there are."""
    return x[: n[0].item()].cumsum(0).sum()


@pytest.mark.parametrize("program", [padded, summed_up], ids=lambda program: program.__name__)
@pytest.mark.parametrize("counts", COUNTS)
def test_what_is_left_to_pytorch(program, counts) -> None:
    compiled = pliant.compile(program, backend="llvm")
    for a, b in zip(gradient(compiled, counts), gradient(program, counts), strict=True):
        torch.testing.assert_close(a, b)


def test_sizes_that_are_wrong() -> None:
    compiled = pliant.compile(split, backend="llvm")
    gradient(compiled, (2, 3))
    for counts in ((2, 2), (-1, 6)):
        with pytest.raises(RuntimeError, match="split"):
            gradient(compiled, counts)
    torch.testing.assert_close(gradient(compiled, (1, 4)), gradient(split, (1, 4)))


def test_a_write_behind_a_list() -> None:
    """The numbers are those from before."""

    def function(x, n):
        counts = n.tolist()
        n.add_(1)
        return x.sum() * counts[0] + n[0]

    for compiles in (False, True):
        run = pliant.compile(function, backend="llvm") if compiles else function
        n = torch.tensor([2, 3])
        x = torch.ones(2, requires_grad=True)
        assert run(x, n).item() == 7 and n.tolist() == [3, 4]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_list_that_is_returned(requires_grad: bool) -> None:
    def function(x, n):
        return x.sin(), n.tolist()

    compiled = pliant.compile(function, backend="llvm")
    x = torch.ones(2, requires_grad=requires_grad)
    for numbers in ([1, 2], [3, 4]):
        assert compiled(x, torch.tensor(numbers))[1] == numbers


# ---- what gradient formulas ask about such sizes


def overwritten(h, chosen):
    rows = chosen.nonzero().squeeze(-1)
    return torch.zeros_like(h).index_copy(0, rows, h[rows].exp()).sum()


def normalised(h, chosen):
    rows = torch.nn.functional.batch_norm(h[chosen], None, None, training=True)
    return rows.pow(3).sum() + h.sum()


def products(h, chosen):
    rows = h[chosen]
    return torch.einsum("nd,md->nm", rows, rows).pow(2).sum() + rows.amax(0).sum()


def spread(h, chosen):
    return torch.cat([h[chosen], h[~chosen]]).std() + h[chosen].amax(1).sum()


def looked_up(h, chosen):
    """As many rows are found as elements are selected by the mask."""
    numbers = torch.arange(len(h)) % 3
    rows = h.index_select(0, chosen.nonzero().squeeze())
    return rows.gather(1, numbers[chosen].unsqueeze(1)).sum()


ASKING = [overwritten, normalised, products, spread, looked_up]
CHOSEN = [(8, 3), (8, 3), (12, 5), (6, 2), (12, 1), (5, 0), (12, 4), (7, 7)]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("program", ASKING, ids=lambda program: program.__name__)
def test_sizes_that_formulas_ask_about(program, whole: bool) -> None:
    """They are taken to be at least 2; PyTorch runs a call in which they are not."""

    def make(compile):
        layer = torch.nn.Linear(8, 4)

        def step(x, chosen):
            layer.zero_grad()
            loss = program(layer(x), chosen)
            loss.backward()
            return loss

        if whole:
            return compile(step), layer
        compiled = compile(program)

        def call(x, chosen):
            layer.zero_grad()
            loss = compiled(layer(x), chosen)
            loss.backward()
            return loss

        return call, layer

    def batch(rows, count):
        return lambda: (torch.randn(rows, 8), torch.arange(rows) < count)

    trains_alike(make, [batch(*sizes) for sizes in CHOSEN])


# ---- programs that ask whether there is anything


@pytest.mark.parametrize("whole", [False, True])
def test_adaptive_softmax(whole: bool) -> None:
    def make(compile):
        model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Linear(16, 16))
        last = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 50, [10, 20, 35], div_value=2.0)
        everything = torch.nn.ModuleList([model, last])
        optimizer = torch.optim.SGD(everything.parameters(), lr=0.1)

        def loss_of(tokens, target):
            return last(model(tokens), target).loss

        loss_of = loss_of if whole else compile(loss_of)

        def step(tokens, target):
            optimizer.zero_grad()
            loss = loss_of(tokens, target)
            loss.backward()
            optimizer.step()
            return loss

        return compile(step) if whole else step, everything

    batches = [lambda n=n: (torch.randint(50, (n,)), torch.randint(50, (n,))) for n in LARGE]
    trains_alike(make, batches, compilations=3 if whole else 2)


LARGE = (64, 64, 64, 96, 80, 64)


class Experts(torch.nn.Module):
    """A mixture in which an expert without rows is left out, and gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = torch.nn.Linear(8, 3)
        self.experts = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x):
        weights, chosen = torch.topk(self.gate(x).softmax(-1), 2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == number)
            if rows.numel() == 0:
                continue
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out


@pytest.mark.parametrize("sizes", [LARGE, (2, 3, 1, 4, 1, 2, 3)])
def test_experts_without_rows(sizes) -> None:
    def make(compile):
        model = Experts()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        run = compile(model)

        def step(x):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step, [model, optimizer]

    rare = sizes is not LARGE
    batches = [lambda n=n: (torch.randn(n, 8),) for n in sizes]
    trains_alike(make, batches, breaks=None if rare else 0, compilations=None if rare else 2)
