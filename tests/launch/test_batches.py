"""Kernels that are launched together: which, and that they do what they do one by one."""

import pytest
import torch

import pliant
from pliant._native import Launcher
from pliant.launch import batches
from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, Op
from pliant.loop.types import Type
from pliant.targets.cpu.jit import host
from tests.support.compiled_code import compiled_code


def add(number):
    build = Builder("add")
    n = build.size("s0")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i:
        build.store(y, i, build(Op.ADD, build.load(x, i), build.constant(number, Type.F32)))
    made = host().compile(check(build.kernel()))
    return made.address, made


def adder(count, costs):
    """`x + 0.5, x + 1.5, ...` for vectors, in one batch."""
    symbols = [(at, "size", 0) for at in range(count)] + [(0, "stride", 0)]
    steps = [("cpu_empty", count + at, torch.float32, (at,), (count,)) for at in range(count)]
    kernels = [
        ("cpu_kernel", at % 3, (at, count + at), (at,), at, costs[at % len(costs)], False)
        for at in range(count)
    ]
    outputs = [("slot", count + at) for at in range(count)]
    code = [add(number + 0.5) for number in range(3)]
    steps.append(("cpu_batch", kernels))
    return Launcher(count, symbols, steps, outputs, (), None, (), code)


SIZES = [(1,), (0, 3, 0), (5, 1, 100_003, 17, 0, 1, 9), (1000,) * 100, (0, 0)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("costs", [(0.1,), (30.0, 0.7, 1e5), (1e7, 0.3)], ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_iteration_runs_once(sizes, costs, threads) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        tensors = [torch.randn(size) for size in sizes]
        for at, result in enumerate(adder(len(sizes), costs)(*tensors)):
            assert torch.equal(result, tensors[at] + (at % 3 + 0.5))
    finally:
        torch.set_num_threads(before)


def test_every_iteration_runs_once_in_place() -> None:
    """Twice would show."""
    code = [add(1.0)]
    sizes = [1, 7, 40_001, 3, 100_000]
    symbols = [(at, "size", 0) for at in range(len(sizes))]
    for cost in (0.37, 3.1, 17.3):
        kernels = [("cpu_kernel", 0, (at, at), (at,), at, cost, True) for at in range(len(sizes))]
        steps = [("cpu_batch", kernels)]
        run = Launcher(len(sizes), symbols, steps, [], [*range(len(sizes))], None, (), code)
        tensors = [torch.zeros(size) for size in sizes]
        for count in range(1, 4):
            run(*tensors)
            assert all(torch.equal(t, torch.full_like(t, count)) for t in tensors)


def steps_of(function, *args, **options):
    """The kernels of each step that launches some, in a compiled function that is right."""
    made = []

    def backend(gm, examples):
        made.append(compiled_code(gm, examples))
        return made[-1].load()

    copies = [[t.clone() for t in arg] if isinstance(arg, list) else arg.clone() for arg in args]
    expected = function(*copies)
    result = pliant.compile(function, backend=backend, **options)(*args)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(list(args), copies)
    (code,) = made
    launched = [s for s in code.program.steps if s[0] in ("cpu_kernel", "cpu_batch")]
    return [len(step[1]) if step[0] == "cpu_batch" else 1 for step in launched]


def tensors(count, *size):
    return [torch.randn(*size) for _ in range(count)]


def test_independent_updates_are_one_step() -> None:
    def update(params, grads):
        torch._foreach_mul_(params, 0.9)
        torch._foreach_add_(params, grads, alpha=-0.1)

    assert steps_of(update, tensors(30, 4, 5), tensors(30, 4, 5)) == [30]


def test_updates_of_several_shapes_are_one_step() -> None:
    def update(params, grads):
        torch._foreach_add_(params, grads, alpha=-0.1)

    shapes = [(3,), (4, 5), (), (2, 3, 4), (0, 3)]
    both = [[torch.randn(shape) for shape in shapes] for _ in range(2)]
    assert steps_of(update, *both, dynamic=False) == [5]


def test_norms_are_one_step() -> None:
    def listed(grads):
        return torch.stack(torch._foreach_norm(grads))

    def one_by_one(grads):
        return torch.stack([torch.linalg.vector_norm(grad, 1) for grad in grads])

    for norms in (listed, one_by_one):
        assert max(steps_of(norms, tensors(20, 7, 3))) == 20


def test_what_reads_a_result_comes_later() -> None:
    def chain(x, y):
        first = x.sum(0)
        second = y.sum(0)
        return first[:, None] * second.flip(0), second.flip(0) + first.flip(0)

    assert len(steps_of(chain, torch.randn(5, 4), torch.randn(6, 4))) > 1


def test_what_is_read_elsewhere_is_overwritten_later() -> None:
    def update(x, y):
        y.copy_(x.flip(0))
        x.mul_(2)

    def swapped(x, y):
        turned = x.flip(0).contiguous()
        x.copy_(y.flip(0))
        y.copy_(turned)

    for function in (update, swapped):
        steps_of(function, torch.randn(4), torch.randn(4))


def test_views_of_one_memory_are_in_order() -> None:
    def update(x):
        x[:2].add_(1)
        x[1:3].mul_(2)
        x[2:].sub_(x[:2])

    steps_of(update, torch.randn(4))


def test_large_results_are_not_allocated_together(monkeypatch) -> None:
    def several(xs):
        return [x.flip(0) + 1 for x in xs]

    assert steps_of(several, tensors(6, 100)) == [6]
    monkeypatch.setattr(batches, "MOST_BYTES", 900)  # two of 400 bytes beside the first
    assert steps_of(several, tensors(6, 100)) == [3, 3]


def test_a_long_kernel_runs_alone(monkeypatch) -> None:
    def several(xs):
        return [x.flip(0) + 1 for x in xs]

    monkeypatch.setattr(batches, "MOST_NS", 20)
    assert steps_of(several, [torch.randn(n) for n in (2, 2, 5000, 2, 2)], dynamic=False) == [
        2,
        1,
        2,
    ]


def test_what_may_raise_runs_alone_and_first() -> None:
    def lookup(table, index, other):
        other.add_(1)
        return table[index], other.flip(0)

    table, other = torch.randn(5, 3), torch.randn(4)
    steps_of(lookup, table, torch.tensor([1, 4]), other.clone())
    compiled = pliant.compile(lookup, backend="llvm")
    compiled(table, torch.tensor([1, 4]), other.clone())
    before = other.clone()
    with pytest.raises(IndexError):
        compiled(table, torch.tensor([1, 9]), other)
    assert torch.equal(other, before + 1)  # as in eager
