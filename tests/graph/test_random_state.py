"""Seeds that a compiled function sets, in generated code."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.support.side_by_side import outcome


def before_a_draw(x, layer):
    torch.manual_seed(3)
    return x + torch.randn_like(x)


def between_draws(x, layer):
    first = torch.randn_like(x) * 2
    torch.manual_seed(3)
    second = torch.rand_like(x) + x
    torch.manual_seed(5)
    third = torch.randn(3) + second
    torch.manual_seed(3)
    return first, second, third, torch.rand_like(x)


def at_the_end(x, layer):
    y = torch.randn_like(x) + x
    torch.manual_seed(7)
    return y


def alone(x, layer):
    torch.manual_seed(7)
    return x + 1


def with_gradients(x, layer):
    torch.manual_seed(1)
    hidden = F.dropout(layer(x), 0.5)
    torch.manual_seed(1)
    return hidden * F.dropout(layer(x).sin(), 0.5)


def whole_step(x, layer):
    torch.manual_seed(2)
    loss = F.dropout(layer(x), 0.5).square().sum()
    loss.backward()
    with torch.no_grad():
        layer.weight -= 0.1 * layer.weight.grad * torch.rand(())
    return loss.detach()


PROGRAMS = [before_a_draw, between_draws, at_the_end, alone, with_gradients, whole_step]


def calls_of(wrap, program):
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    run = wrap(lambda x: program(x, layer))
    told = []
    for number in range(4):
        torch.manual_seed(number)
        layer.zero_grad()
        results = run(torch.linspace(0, 1, 12 + 3 * number).view(-1, 3))
        results = results if isinstance(results, tuple) else (results,)
        if results[0].requires_grad:
            results[0].square().sum().backward()
        told += [t.detach().clone() for t in (*results, *layer.parameters())]
        told += [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        told.append(torch.get_rng_state())
    return told


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_seeds(program, dynamic: bool) -> None:
    mine = calls_of(lambda f: pliant.compile(f, backend="llvm", dynamic=dynamic), program)
    for a, b in zip(mine, calls_of(lambda f: f, program), strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


def test_a_graph_that_fails_after_a_seed() -> None:
    def function(x, index):
        before = torch.rand(3)
        torch.manual_seed(3)
        return x[index] * torch.rand(3) + before

    compiled = pliant.compile(function, backend="llvm")
    compiled(torch.ones(4, 3), torch.tensor([1]))
    states = []
    for run in (compiled, function):
        torch.manual_seed(0)
        with pytest.raises(IndexError):
            run(torch.ones(4, 3), torch.tensor([9]))
        states.append(torch.get_rng_state())
        torch.manual_seed(0)
        states.append(run(torch.ones(4, 3), torch.tensor([2])))
    assert all(map(torch.equal, states[:2], states[2:]))
    assert events.counters["not_generated"] == 0 < events.counters["programs"]


def test_a_seed_where_torch_manual_seed_is_wrapped(monkeypatch) -> None:
    """As it is once the program has imported PyTorch's compiler."""
    monkeypatch.setattr(torch, "manual_seed", torch._disable_dynamo(torch.random.manual_seed))
    compiled = pliant.compile(lambda x: before_a_draw(x, None), backend="llvm", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), before_a_draw(torch.ones(2, 3), None))
    assert events.counters["not_generated"] == 0 < events.counters["programs"]


# ---- seeds where there are GPUs, whose generators are seeded too


@pytest.fixture
def gpus(monkeypatch):
    """Generators of two GPUs that are in use, as far as PyTorch's Python code can tell."""
    generators = (torch.Generator(), torch.Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    for module in (torch.cuda, torch.cuda.random):
        monkeypatch.setattr(module, "is_initialized", lambda: True)
        monkeypatch.setattr(module, "device_count", lambda: 2)
        monkeypatch.setattr(module, "current_device", lambda: 1)
    return generators


@pytest.fixture
def unused_gpus(monkeypatch):
    """CUDA that is not in use yet, so that seeds wait."""
    monkeypatch.setattr(torch.cuda, "_lazy_seed_tracker", type(torch.cuda._lazy_seed_tracker)())
    monkeypatch.setattr(torch.cuda, "default_generators", ())
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)


def states() -> list[torch.Tensor]:
    """Of the generators, and the seeds that wait."""
    generators = (torch.default_generator, *torch.cuda.default_generators)
    waiting = filter(None, torch.cuda._lazy_seed_tracker.get_calls())
    seeds = [] if torch.cuda.is_initialized() else [call.__closure__ for call, _ in waiting]
    return [g.get_state() for g in generators] + [torch.tensor(s[-1].cell_contents) for s in seeds]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_seeds_of_all_devices(gpus, program, dynamic: bool) -> None:
    mine = calls_of(lambda f: pliant.compile(f, backend="llvm", dynamic=dynamic), program)
    of_gpus = states()
    for a, b in zip(mine + of_gpus, calls_of(lambda f: f, program) + states(), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(of_gpus[1], of_gpus[2])
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("seed", [torch.cuda.manual_seed, torch.cuda.manual_seed_all])
def test_seeds_of_gpus(gpus, seed, backend) -> None:
    def function(x):
        first = torch.rand(3) + x
        seed(4)
        return first * torch.rand(3)

    compiled, told = pliant.compile(function, backend=backend, fullgraph=True), []
    for run in (compiled, function):
        torch.manual_seed(0)
        told += [run(torch.ones(3)), *states()]
    for a, b in zip(told[:4], told[4:], strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == 0


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("fixture", ["gpus", "unused_gpus"])
def test_a_failure_near_a_seed_of_all_devices(request, fixture, backend, handled):
    request.getfixturevalue(fixture)

    def picked(x, index):
        try:
            return x[index]
        except IndexError:
            if not handled:
                raise
            return x[0]

    def function(x, before, behind):
        first = picked(x, before) * torch.rand(3)
        torch.manual_seed(5)
        return picked(x, behind) * torch.rand(3) + first

    told = []
    for run in (pliant.compile(function, backend=backend), function):
        for number, at in enumerate([(1, 2), (9, 1), (1, 9), (2, 0)]):
            torch.manual_seed(number)
            told.append(outcome(run, torch.ones(4, 3), *map(torch.tensor, at)))
            told += states()
    half = len(told) // 2
    for a, b in zip(told[:half], told[half:], strict=True):
        assert type(a) is type(b)
        torch.testing.assert_close(a, b) if isinstance(a, torch.Tensor) else None
        assert isinstance(a, torch.Tensor) or a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


@pytest.mark.parametrize("fixture", ["gpus", "unused_gpus"])
def test_gradients_of_gradients_behind_a_seed(request, fixture) -> None:
    """The graph runs again under autograd, and seeds again: nobody else may notice."""
    request.getfixturevalue(fixture)

    def function(x):
        torch.manual_seed(6)
        return (torch.rand(3) * x).square().sum() * x.sum()

    told = []
    for run in (pliant.compile(function, backend="llvm"), function):
        x = torch.ones(3, requires_grad=True)
        loss = run(x)
        torch.manual_seed(8)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        told += [*states(), *torch.autograd.grad(gradient.sum(), x)]
    half = len(told) // 2
    for a, b in zip(told[:half], told[half:], strict=True):
        torch.testing.assert_close(a, b)


# ---- generators


def each_kind(x, g):
    draws = torch.rand(2, 3, generator=g), torch.randint(9, (4,), generator=g)
    draws += torch.randperm(5, generator=g), torch.normal(0.0, 1.0, (3,), generator=g)
    draws += torch.multinomial(x.softmax(-1), 2, generator=g), torch.rand(2)
    own = torch.empty(3).uniform_(generator=g), torch.bernoulli(x.sigmoid(), generator=g)
    return *draws, *own, x.clone().normal_(generator=g) + x.exp().exponential_(generator=g)


def seeded(x, g):
    first = torch.randn(x.shape, generator=g) + x
    g.manual_seed(4)
    return first, torch.randn(x.shape, generator=g) * x


def alternating(x, g, h):
    one = torch.rand(3, generator=g)
    two = torch.rand(3, generator=h) + one
    return torch.rand(3, generator=g) * two + x.sum(), torch.randn(2)


def sampled(logits, g):
    values, places = (logits / 0.7).topk(2)
    choice = torch.multinomial(values.softmax(-1), 1, generator=g)
    return places.gather(-1, choice)


GENERATOR_PROGRAMS = [each_kind, seeded, alternating, sampled]


def draws_of(run, count):
    """What a few calls return, and the states of their generators afterwards."""
    told = []
    generators = [torch.Generator().manual_seed(number) for number in range(count)]
    for number in range(5):
        torch.manual_seed(number)
        if number == 3:  # other objects
            generators = [torch.Generator().manual_seed(number)] * count
        results = run(torch.linspace(0, 1, 12 + 3 * number).view(-1, 3), *generators)
        told += [*results] if isinstance(results, tuple) else [results]
        told += [*(g.get_state() for g in generators), torch.get_rng_state()]
    return told


@pytest.mark.parametrize("program", GENERATOR_PROGRAMS, ids=lambda program: program.__name__)
def test_generators(program) -> None:
    count = program.__code__.co_argcount - 1
    mine = draws_of(pliant.compile(program, backend="llvm", fullgraph=True), count)
    for a, b in zip(mine, draws_of(program, count), strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["compilations"] <= 2 + count  # also for generators that are one object


def test_a_program_for_every_generator() -> None:
    compiled = pliant.compile(sampled, backend="llvm")
    for seed in range(9):
        logits = torch.linspace(0, 1, 12).view(-1, 3)
        one, two = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        assert torch.equal(compiled(logits, one), sampled(logits, two))
    assert events.counters["compilations"] == events.counters["programs"] == 1


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_a_graph_that_fails_after_a_draw(backend, handled) -> None:
    """Python draws the numbers again."""

    def handles(x, index, g):
        noise = torch.rand(3, generator=g)
        try:
            picked = x[index]
        except IndexError:
            picked = x[:1]
        return picked * noise + torch.rand(3, generator=g)

    def raises(x, index, g):
        noise = torch.rand(3, generator=g)
        return x[index] * noise

    function = handles if handled else raises
    told = []
    for run in (pliant.compile(function, backend=backend), function):
        g = torch.Generator().manual_seed(1)
        for index in (1, 9, 2, 7):
            told.append(outcome(run, torch.ones(4, 3), torch.tensor([index]), g))
            told.append(g.get_state())
    for a, b in zip(told[:8], told[8:], strict=True):
        torch.testing.assert_close(a, b) if isinstance(a, torch.Tensor) else None
        assert type(a) is type(b) and (isinstance(a, torch.Tensor) or a == b)
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


def test_small_sizes_and_a_generator() -> None:
    def function(x, g):
        return (x + torch.rand(x.shape, generator=g)).transpose(0, 1) * 2

    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    for shape in ((3, 4), (1, 4), (1, 4), (0, 2), (1, 1), (5, 1), (5, 2)):
        expected, actual = function(torch.ones(shape), two), compiled(torch.ones(shape), one)
        torch.testing.assert_close(actual, expected)
        assert actual.stride() == expected.stride()
        assert torch.equal(one.get_state(), two.get_state())


@pytest.mark.parametrize("grad", [False, True])
def test_dropout_of_an_empty_tensor_is_that_tensor(grad: bool) -> None:
    """Also where its operand is returned, in each call."""

    def function(x):
        y = x + 1
        return y, torch.dropout(y, 0.5, train=True), y * 2

    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for size in (0, 0, 3, 0, 0, 1, 1, 3):
        x = torch.ones(size, requires_grad=grad)
        told = []
        for call in (function, compiled):
            results = (x, *call(x))
            told.append([[a is b for a in results] for b in results])
        assert told[0] == told[1], size


def test_a_generator_under_gradients_is_left_to_pytorch() -> None:
    compiled = pliant.compile(lambda x, g: x * torch.rand(3, generator=g), backend="llvm")
    x = torch.ones(3, requires_grad=True)
    one, two = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    compiled(x, one).sum().backward()
    assert torch.equal(x.grad, torch.rand(3, generator=two))


FACTORIES = {
    "rand": lambda n, g: torch.rand(n, 2, generator=g),
    "randn": lambda n, g: torch.randn((n, 2), generator=g, dtype=torch.float64),
    "randint": lambda n, g: torch.randint(5, (n, 2), generator=g),
    "randint from": lambda n, g: torch.randint(2, 5, (n,), generator=g, dtype=torch.uint8),
    "randperm": lambda n, g: torch.randperm(n, generator=g),
    "normal": lambda n, g: torch.normal(0.5, 2.0, (n,), generator=g),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_sizes_of_what_a_generator_draws_may_vary(name) -> None:
    function = FACTORIES[name]
    compiled = pliant.compile(lambda x, g: function(x.size(0), g), fullgraph=True, backend="llvm")
    for size in (4, 5, 6, 1, 0):
        one, two = torch.Generator().manual_seed(size), torch.Generator().manual_seed(size)
        expected, actual = function(size, two), compiled(torch.ones(size), one)
        torch.testing.assert_close(actual, expected)
        assert torch.equal(one.get_state(), two.get_state())
    assert events.counters["compilations"] == 2
