"""What would raise in eager PyTorch raises, whether somebody needs its result or not."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.base import events
from pliant.fake.trial import Trials
from tests.support.against_eager import run, same_outcome

Tensor = torch.Tensor
X = torch.arange(12.0).reshape(3, 4)
I = torch.tensor([0, 2, 1])  # noqa: E741
BAD = torch.tensor([0, 7, 1])
ZERO = torch.tensor([1, 0, 3])
HALF = torch.tensor([0.5, 0.25, 0.5])

# An operation, arguments for which it works, and arguments for which it raises.
OPERATIONS: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], tuple[Tensor, ...]]] = {
    "//": (lambda i, j: i // j, (I, I + 1), (I, ZERO)),
    "%": (lambda i, j: i % j, (I, I + 1), (I, ZERO)),
    "fmod": (torch.fmod, (I, I + 1), (I, ZERO)),
    "1 // x": (lambda i, j: 1 // j, (I, I + 1), (I, ZERO)),
    "div": (lambda i, j: torch.div(i, j, rounding_mode="trunc"), (I, I + 1), (I, ZERO)),
    "index": (lambda x, i: x[i], (X, I), (X, BAD)),
    "index of the last": (lambda x, i: x[:, i], (X, I), (X, BAD)),
    "gather": (lambda x, i: x.gather(0, i.unsqueeze(1)), (X, I), (X, BAD)),
    "index_select": (lambda x, i: x.index_select(0, i), (X, I), (X, BAD)),
    "take": (lambda x, i: x.take(i), (X, I), (X, BAD + 99)),
    "embedding": (lambda x, i: F.embedding(i, x), (X, I), (X, BAD)),
    "scatter": (lambda x, i: x.scatter(0, i.unsqueeze(1), x), (X, I), (X, BAD)),
    "index_put": (lambda x, i: x.index_put((i,), x), (X, I), (X, BAD)),
    "index_add": (lambda x, i: x.index_add(0, i, x), (X, I), (X, BAD)),
    "nll_loss": (lambda x, i: F.nll_loss(x, i), (X, I), (X, BAD)),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i, reduction="none"), (X, I), (X, BAD)),
    "one_hot": (lambda x, i: F.one_hot(i, 4), (X, I), (X, BAD)),
    "bincount": (lambda x, i: torch.bincount(i), (X, I), (X, -BAD)),
    "binary_cross_entropy": (F.binary_cross_entropy, (HALF, HALF), (HALF * 3, HALF)),
    "bce of a target": (F.binary_cross_entropy, (HALF, HALF), (HALF, HALF * 3)),
    "repeat_interleave": (lambda x, i: x.repeat_interleave(i, 0), (X, I), (X, -BAD)),
    "masked_scatter": (lambda x, y: x.masked_scatter(y > 0, y[0]), (X, X - 8), (X, X + 8)),
    "cholesky": (lambda x: torch.linalg.cholesky(x), (torch.eye(3),), (-torch.eye(3),)),
    "inv": (lambda x: torch.linalg.inv(x), (torch.eye(3),), (torch.zeros(3, 3),)),
    "solve": (lambda x: torch.linalg.solve(x, x), (torch.eye(3),), (torch.zeros(3, 3),)),
    "multinomial": (lambda x: torch.multinomial(x, 1), (X[1],), (-X[1],)),
    "bernoulli": (lambda x: torch.bernoulli(x), (HALF,), (HALF * 9,)),
    "index of a result": (lambda x, i: (x * 2)[i + 0] * 2, (X, I), (X, BAD)),
}


def unused(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    operation(*args)
    return args[0] + 1


def used_in_vain(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    result = operation(*args) + 1
    (result * 2).sum()
    return args[0] + 1


def only_looked_at(operation: Callable[..., Tensor], *args: Tensor) -> tuple[Tensor, int]:
    return args[0] + 1, operation(*args).dim()


def used_in_part(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    result = operation(*args)
    return result[:1] + 1 if result.dim() else result + 1


def computed_with_in_part(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    return (operation(*args).abs() + 1).reshape(-1)[1:2]


def used_not_at_all(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    result = operation(*args)
    return result.reshape(-1)[:0] * 2


def spread_to_nothing(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    result = operation(*args).reshape(-1)[:1]
    return result + torch.zeros(0)


def picked(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    result = operation(*args).reshape(-1)
    return result[torch.zeros(2, dtype=torch.int64)]


def behind_a_write(operation: Callable[..., Tensor], *args: Tensor) -> Tensor:
    args[0].mul_(1)
    operation(*args)
    args[0].add_(1)
    return args[0]


OF_GRAPHS = [unused, used_in_vain, only_looked_at]
OF_KERNELS = [used_in_part, computed_with_in_part, used_not_at_all, spread_to_nothing, picked]
OF_KERNELS += [behind_a_write]
USES = [("eager", use) for use in OF_GRAPHS] + [("llvm", use) for use in OF_GRAPHS + OF_KERNELS]


@pytest.mark.parametrize(
    ("backend", "use"), USES, ids=[f"{backend}-{use.__name__}" for backend, use in USES]
)
@pytest.mark.parametrize("name", OPERATIONS)
def test_raises_as_eager_does(name: str, backend: str, use: Callable[..., object]) -> None:
    operation, good, bad = OPERATIONS[name]

    def function(*args: Tensor) -> object:
        return use(operation, *args)

    compiled = pliant.compile(function, backend=backend)
    for args in (good, bad, good):
        actual = run(compiled, tuple(arg.clone() for arg in args))
        expected = run(function, tuple(arg.clone() for arg in args))
        assert (expected.error is not None) is (args is bad)
        same_outcome(actual, expected)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "an element": lambda out: out[0].fill_(5),
    "a slice": lambda out: out[1:].copy_(out.new_ones(2)),
    "by index": lambda out: out.index_fill_(0, torch.tensor([0]), 5),
    "scattered": lambda out: out.scatter_(0, torch.tensor([1]), 5),
    "all": lambda out: out.fill_(5),
    "added to": lambda out: out[:2].add_(1),
    "all, then a part": lambda out: out.mul_(2)[1:].fill_(5),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["//", "index", "embedding", "one_hot", "index of a result"])
def test_raises_before_the_writes_behind_it(name: str, write: str) -> None:
    operation, good, bad = OPERATIONS[name]

    def before(out: Tensor, *args: Tensor) -> object:
        result = operation(*args) * 3
        WRITES[write](out)
        return result + 1

    def between(out: Tensor, *args: Tensor) -> object:
        first = operation(*good)
        WRITES[write](out)
        return first, operation(*args)

    for function in (before, between):
        compiled = pliant.compile(function, backend="llvm")
        for args in (good, bad):
            actual = run(compiled, (torch.ones(3), *args))
            expected = run(function, (torch.ones(3), *args))
            assert (expected.error is not None) is (args is bad)
            same_outcome(actual, expected)


def asserted(x: Tensor, i: Tensor) -> Tensor:
    torch._assert_async((i < 3).all())
    torch._assert_async((i < 4).all(), "too large")
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_an_assertion_without_a_result(backend: str) -> None:
    compiled = pliant.compile(asserted, backend=backend)
    for args in ((X, I), (X, BAD), (X, I + 1)):
        same_outcome(run(compiled, args), run(asserted, args))


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_the_first_of_two_errors(backend: str) -> None:
    def function(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x[i]
        y = i // j
        torch.linalg.inv(x[:3, :3])
        return y

    def other_way_round(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        y = i // j
        x[i]
        return y

    for program in (function, other_way_round):
        compiled = pliant.compile(program, backend=backend)
        for args in ((X, I, I + 1), (X, BAD, ZERO), (X, I, ZERO), (X, BAD, I + 1)):
            same_outcome(run(compiled, args), run(program, args))


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_nothing_raises_over_nothing(backend: str) -> None:
    def function(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
        x[i]
        F.embedding(i, x)
        i // j
        return x + 1

    compiled = pliant.compile(function, backend=backend, dynamic=True)
    none = torch.zeros(0, dtype=torch.int64)
    for args in ((X, I, I + 1), (X, none, none), (X, BAD, ZERO)):
        same_outcome(run(compiled, args), run(function, args))


def test_what_cannot_raise_is_dropped(seen: Callable[[type], list]) -> None:
    def function(x: Tensor, i: Tensor) -> Tensor:
        x // x, i // 2, i % 3, i / i, x.softmax(0), x @ x.T, x.sort(), torch.cat([x, x]), x[1:]
        x.masked_fill(x > 1, 2.0), x.to(torch.int64), x.var(0), F.layer_norm(x, (4,))
        return x + 1

    compiled = pliant.compile(function, fullgraph=True, backend="llvm")
    compiled(X, I)
    (generated,) = seen(events.CodeGenerated)
    assert dict(generated.lowered) == {"aten.add.Tensor": 1} and not generated.called


def test_only_the_check_is_left_of_what_nobody_needs(seen: Callable[[type], list]) -> None:
    def function(i: Tensor, j: Tensor) -> Tensor:
        i // j
        return i + j

    compiled = pliant.compile(function, fullgraph=True, backend="llvm")
    compiled(I, I + 1)
    (generated,) = seen(events.CodeGenerated)
    assert not generated.called  # PyTorch runs nothing, and one kernel does both
    (kernel,) = generated.kernels()
    stores = [line for line in kernel.splitlines() if "store" in line.lower()]
    assert len(stores) == 2, kernel  # of the sum and of the flag


REFUSED = {
    "a mask subtracted": (lambda x, mask: x - mask, torch.float32),
    "a bool subtracted": (lambda x, mask: x - True, torch.int64),
    "False subtracted": (lambda x, mask: x - False, torch.float32),
    "from a mask": (lambda x, mask: mask - 1, torch.float32),
    "rsub": (lambda x, mask: torch.rsub(x, mask), torch.float32),
    "softmax": (lambda x, mask: x.softmax(0), torch.int64),
    "log_softmax": (lambda x, mask: x.log_softmax(-1), torch.bool),
    "var": (lambda x, mask: x.var(), torch.int64),
    "median": (lambda x, mask: x.median(), torch.bool),
    "isin": (lambda x, mask: torch.isin(x, mask), torch.int64),
    "trace": (lambda x, mask: x.trace(), torch.bool),
    "gelu": (lambda x, mask: torch.nn.functional.gelu(x), torch.int64),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_dtype_is_refused_though_nobody_needs_the_result(name, backend, dynamic) -> None:
    operation, dtype = REFUSED[name]

    def function(x, mask):
        operation(x, mask)
        return mask

    args = (torch.ones(2, 3).to(dtype), torch.ones(2, 3).bool())
    compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
    for f in (function, compiled, compiled):
        try:
            f(*args)
        except RuntimeError as error:  # NotImplementedError is one
            told = type(error), str(error)
        else:
            told = None
        if f is function:
            expected = told
        assert told == expected and told is not None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.bfloat16])
def test_what_a_dtype_allows_is_still_dropped(dtype) -> None:
    seen = []
    backend = lambda gm, inputs: (seen.append(gm), gm.forward)[1]

    def function(x):
        x * x, x == 1, x.sum(0), torch.cat([x, x]), x.sort(), x.any()
        return x & 1 if x.dtype is torch.int64 else x + 1

    pliant.compile(function, backend=backend)(torch.ones(2, 3).to(dtype))
    assert sum(node.op.startswith("call") for node in seen[0].graph.nodes) == 1


EMPTY = {
    "max": lambda x: x.max(0),
    "argmin": lambda x: x.argmin(0),
    "conv1d": lambda x: F.conv1d(torch.ones(1, 1, 3), x.reshape(1, 1, 0)),
    "norm": lambda x: torch.linalg.vector_norm(x, float("inf")),
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", EMPTY)
def test_a_size_of_0_is_refused_though_nobody_needs_the_result(name, backend) -> None:
    def function(x):
        EMPTY[name](x)
        return x + 1

    compiled = pliant.compile(function, backend=backend)
    for size in (0, 0):
        same_outcome(run(compiled, (torch.ones(size),)), run(function, (torch.ones(size),)))
    assert run(function, (torch.ones(0),)).error is not None


def test_trying_a_dtype_takes_no_memory() -> None:
    def function(x):
        x.repeat(1 << 20, 1 << 20)  # nobody needs it
        torch.full((1 << 40,), True)
        return x + 1

    x = torch.ones(2, 3, dtype=torch.int64)
    assert pliant.compile(function)(x).equal(x + 1)


OVERWRITTEN: dict[str, Callable[[Tensor], object]] = {
    "fill_": lambda x: x.fill_(1e30),
    "fill_ of a part": lambda x: x.view(-1)[1:].fill_(-1e30),
    "fill_ with nan": lambda x: x.fill_(float("nan")),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 1e30),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0]), 1e30),
    "setitem": lambda x: x.__setitem__(0, 1e30),
    "full_like": lambda x: torch.full_like(x, 1e30),
    "new_full": lambda x: x.new_full((2,), 1e30),
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float16])
@pytest.mark.parametrize("name", OVERWRITTEN)
def test_a_number_out_of_range_is_refused_though_it_is_overwritten(name, dtype, backend) -> None:
    """Also after a call of the same types with a number that fits."""

    def fits(x):
        x.masked_fill_(x > 0, 2.0)
        x.fill_(2.0)
        x.zero_()

    def function(x):
        OVERWRITTEN[name](x)
        x.fill_(True)

    pliant.compile(fits, backend=backend)(torch.ones(2, dtype=dtype))
    compiled = pliant.compile(function, backend=backend)
    actual = run(compiled, (torch.ones(2, dtype=dtype),))
    expected = run(function, (torch.ones(2, dtype=dtype),))
    same_outcome(actual, expected)
    assert dtype is torch.float16 or expected.error is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.uint8])
@pytest.mark.parametrize("size", [(), (1,), (2,), (0,), (2, 3)])
def test_a_fill_out_of_range(size, dtype) -> None:
    """Eager makes one element of a half type infinite, and refuses to fill any other number."""

    def function(x, number):
        x.fill_(number)
        return x + 1

    compiled = pliant.compile(function, backend="llvm")
    for number in (2.0, 1e300, 3.0, float("inf")):
        arguments = [(torch.ones(size, dtype=dtype), number) for _ in range(2)]
        same_outcome(run(compiled, arguments[0]), run(function, arguments[1]))


NUMBERS = (float("-inf"), float("nan"), 1e30, 3.7, 300, 2**40, -1, True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float16, torch.bool])
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_cast_when_it_is_copied_and_refused_when_it_is_filled_in(
    number, dtype, dynamic
) -> None:
    def copied(x):
        return x.clone().copy_(number)

    def filled(x):
        return x.clone().fill_(number)

    def filled_with_a_tensor(x):
        return x.clone().fill_(torch.tensor(number))

    for function in (copied, filled, filled_with_a_tensor):
        compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
        for x in (torch.zeros((), dtype=dtype), torch.zeros(3, dtype=dtype)):
            same_outcome(run(compiled, (x,)), run(function, (x,)))


def test_the_first_error_is_raised() -> None:
    def function(x):
        x.fill_(1e30)
        x.fill_(True)
        x.normal_()

    for backend in ("eager", "llvm"):
        compiled = pliant.compile(function, backend=backend)
        arguments = (torch.ones(2, dtype=torch.int64),)
        same_outcome(run(compiled, arguments), run(function, arguments))


REFUSED_SHAPES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "view": lambda a, b: b.view(a.size(0), -1),
    "view, used": lambda a, b: b.view(a.size(0), -1) + 1,
    "split": lambda a, b: a.split([3, a.size(0) - 3]),
    "split, used": lambda a, b: a.split([3, a.size(0) - 3])[0] + 1,
    "index_put": lambda a, b: b.amin().index_put((torch.tensor([0, 0]),), a[:0]),
    "index_put, used": lambda a, b: b.amin().index_put((torch.tensor([0, 0]),), a[:0]) + 1,
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", REFUSED_SHAPES)
def test_what_sizes_make_impossible_is_refused(name, dynamic, backend) -> None:
    """As eager refuses it; with symbolic sizes too, after calls with other ones."""

    def function(a, b):
        result = REFUSED_SHAPES[name](a, b)
        return result if "used" in name else None

    compiled = pliant.compile(function, dynamic=dynamic, backend=backend)
    expanded = torch.ones(1, 1, 2).expand(3, 1, 2)
    calls = [(torch.ones(0), torch.ones(0, 1, 0)), (torch.ones(2), expanded)]
    calls += [(torch.ones(6), torch.ones(2, 1, 6)), (torch.ones(3), expanded)]
    errors = []
    for arguments in calls:
        actual, expected = run(compiled, arguments), run(function, arguments)
        same_outcome(actual, expected)
        errors.append(expected.error)
    assert any(errors)


WRITTEN_AND_DROPPED = {
    "written to": lambda x: refused(x).add_(1),
    "written to behind another": lambda x: (refused(x) * 2).add_(1).mul_(2),
    "a view written to": lambda x: refused(x).split(2)[0].add_(1),
    "read by a write": lambda x: torch.zeros(4).add_(refused(x)),
    "read by a write to random numbers": lambda x: torch.rand(4).add_(refused(x)),
    "as an item": lambda x: torch.zeros(4).__setitem__(0, refused(x)[0]),
    "in a list": lambda x: torch._foreach_add_([refused(x)], 1),
}


def refused(x):
    """No meta kernel looks at the name."""
    return torch.nn.functional.gelu(x, approximate="neither")


@pytest.mark.parametrize("name", WRITTEN_AND_DROPPED)
def test_what_is_only_written_to_is_refused(name) -> None:
    def function(x):
        WRITTEN_AND_DROPPED[name](x)
        return x.mul_(2)

    for called in (function, pliant.compile(function, backend="llvm")):
        x = torch.ones(4)
        with pytest.raises(RuntimeError, match="approximate argument must be"):
            called(x)
        assert x.tolist() == [1, 1, 1, 1]


def test_a_write_that_is_seen_later_is_no_reason_to_try_a_call(monkeypatch) -> None:
    tried = []
    refuses = Trials.refuses
    monkeypatch.setattr(
        Trials, "refuses", lambda self, call: tried.append(call.function) or refuses(self, call)
    )

    def function(x):
        seen, unseen = torch.sin(x), torch.cos(x)
        seen.view(2, 2).add_(1)
        unseen.view(2, 2).add_(1)
        return seen

    x = torch.ones(4)
    assert torch.equal(pliant.compile(function)(x), function(x))
    assert torch.cos in tried
    assert torch.sin not in tried
