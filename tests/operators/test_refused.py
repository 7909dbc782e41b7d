"""What eager PyTorch refuses for its dtypes or sizes is refused, also if nobody uses the result."""

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from pliant.fake import trial
from tests.support.against_eager import run, same_outcome

X = torch.arange(6.0).reshape(2, 3)
INTS = X.to(torch.int64)
BOOLS = X > 2
BYTES = X.to(torch.uint8)
DOUBLES = X.double()
EMPTY = torch.ones(0)
BIG = torch.ones(300, 400)
NOTHING = torch.ones(0, 0)
FIRST = torch.tensor([0])

# Operations that eager PyTorch refuses for these arguments.
REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (lambda i: i.softmax(0), (INTS,)),
    "softmin": (lambda i: F.softmin(i, 0), (INTS,)),
    "log_softmax": (lambda i: F.log_softmax(i, 0), (INTS,)),
    "logcumsumexp": (lambda i: i.logcumsumexp(0), (INTS,)),
    "var": (lambda i: i.var(), (INTS,)),
    "std": (lambda i: i.std(0, keepdim=True), (INTS,)),
    "mean": (lambda i: i.mean(), (INTS,)),
    "sub of bools": (lambda b, x: x - b, (BOOLS, X)),
    "rsub of bools": (lambda b: 1 - b, (BOOLS,)),
    "neg of bools": (lambda b: -b, (BOOLS,)),
    "a bool alpha": (lambda x: torch.sub(x, x, alpha=True), (X,)),
    "a float alpha": (lambda i: torch.add(i, i, alpha=0.5), (INTS,)),
    "mm": (lambda x, d: torch.mm(x, d.T), (X, DOUBLES)),
    "mm of integers": (lambda i, x: torch.mm(i, x.T), (INTS, X)),
    "bmm": (lambda x, d: torch.bmm(x[None], d.T[None]), (X, DOUBLES)),
    "mv": (lambda x, d: torch.mv(x, d[0]), (X, DOUBLES)),
    "dot": (lambda x, d: torch.dot(x[0], d[0]), (X, DOUBLES)),
    "addmm": (lambda x, d: torch.addmm(x, x[:, :2], d), (X, DOUBLES)),
    "linear": (lambda x, d: F.linear(x, d), (X, DOUBLES)),
    "einsum": (lambda x, d: torch.einsum("ij,ij->i", x, d), (X, DOUBLES)),
    "attention": (lambda i: F.scaled_dot_product_attention(i, i, i), (INTS[None],)),
    "conv1d": (lambda x, d: F.conv1d(x[None], d[None]), (X, DOUBLES)),
    "layer_norm": (lambda i: F.layer_norm(i, (3,)), (INTS,)),
    "gelu": (lambda i: F.gelu(i), (INTS,)),
    "frac": (lambda i: i.frac(), (INTS,)),
    "histc": (lambda i: torch.histc(i, 2), (INTS,)),
    "bitwise_and": (lambda x: torch.bitwise_and(x, x), (X,)),
    "as_strided": (lambda x: x.as_strided((4, 3), (3, 1)), (X,)),
    "as_strided of a number": (lambda x: x.as_strided((1, 2), (0, 1)), (torch.tensor(1.0),)),
    "as_strided of nothing": (lambda x: x.as_strided((1,), (0,), 0), (EMPTY[:-1],)),
    "slice_scatter": (lambda x: torch.slice_scatter(x.T, x[:0], 0, 0, 0), (torch.ones(1, 0),)),
    "select_scatter": (lambda x: torch.select_scatter(x, x[0, 0], 0, 0), (X[:1, :1],)),
    "select_scatter of less": (lambda x: torch.select_scatter(x, x[0, :2], 0, 0), (X,)),
    "slice_scatter of less": (lambda x: torch.slice_scatter(x, x[:1], 0, 0, 2), (X,)),
    "diagonal_scatter": (lambda x: torch.diagonal_scatter(x, x[0]), (X,)),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:0, :1]), (X, FIRST)),
    "the largest of nothing": (lambda x: torch.linalg.vector_norm(x, math.inf), (EMPTY,)),
    "the norm -1 of nothing": (lambda x: x.norm(-1, keepdim=True), (EMPTY,)),
    "min": (lambda x: x.min(0), (EMPTY,)),
    "amax": (lambda x: x.amax(0), (EMPTY,)),
    "argmax": (lambda x: x.argmax(), (EMPTY,)),
    "zeros": (lambda x, n: torch.zeros(n), (X, -1)),
    "index of nothing": (lambda x, i: x[i], (NOTHING, FIRST)),
    "index_select of nothing": (lambda x, i: x.index_select(0, i), (NOTHING, FIRST)),
    "embedding of nothing": (lambda x, i: F.embedding(i, x), (NOTHING, FIRST)),
    "index_put of nothing": (lambda x, i: x.index_put((i,), x.sum()), (NOTHING, FIRST)),
    "setitem of nothing": (lambda x, i: x.clone().__setitem__(i, 0.0), (NOTHING, FIRST)),
    "cumsum_": (lambda b: b.cumsum_(0), (BOOLS,)),
    "cumprod_": (lambda b: b.cumprod_(0), (BOOLS,)),
    "masked_select": (lambda x: x.masked_select(x), (X,)),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x[0]), (X,)),
    "layer_norm of mixed dtypes": (lambda d, x: F.layer_norm(d, (3,), x[0]), (DOUBLES, X)),
    "layer_norm of integers": (
        lambda i: F.layer_norm(i.bfloat16(), i.shape, i, None, 0),
        (torch.tensor([1]),),
    ),
    "batch_norm of mixed dtypes": (lambda d, x: F.batch_norm(d, x[0], x[1]), (DOUBLES, X)),
    "group_norm of mixed dtypes": (lambda d, x: F.group_norm(d, 3, x[0]), (DOUBLES, X)),
    "batch_norm of other sizes": (lambda x: F.batch_norm(x, x[0, :2], x[0, :2]), (X,)),
    "a mask of another size": (lambda x: x[x[0] > 0], (X,)),
    "a mask of another size, set": (
        lambda x: x.clone().__setitem__((slice(None), x[:, 0] > 0), 0.0),
        (X,),
    ),
    "rand_like": (lambda i: torch.rand_like(i), (INTS,)),
    "normal_": (lambda i: i.normal_(), (INTS,)),
    "a view after out=": (
        lambda x: torch.neg(x.T, out=x.new_empty(())).view(torch.int16),
        (X,),
    ),
    "a view after out= of itself": (
        lambda x: torch.mean(y := x[:, :1].clone(), 0, out=y).unbind(0),
        (X,),
    ),
    "amax into itself": (lambda x: torch.amax(y := x[None].clone(), 2, out=y), (X,)),
    "index_put of more": (lambda x: x.index_put((FIRST,), x), (X,)),
    "index_put of more numbers": (lambda x: x.index_put((FIRST, FIRST), x[0]), (X,)),
    "index_put of more, added": (lambda x: x.index_put((FIRST,), x, accumulate=True), (X,)),
    "setitem of more": (lambda x: x.clone().__setitem__(FIRST, x), (X,)),
    "index_add of a number": (lambda x: x.index_add(0, FIRST, x[0, 0]), (X,)),
    "batch_norm of another dtype": (
        lambda x: F.batch_norm(x, torch.zeros(3), torch.ones(3)),
        (DOUBLES,),
    ),
    "batch_norm of another size": (
        lambda x: F.batch_norm(x, torch.zeros(2), torch.ones(2)),
        (X,),
    ),
    "large softmax": (lambda x: x.to(torch.int64).softmax(0), (BIG,)),
    "large var": (lambda x: x.to(torch.int64).var(1), (BIG,)),
    "large mm": (lambda x: torch.mm(x, x.T.double()), (BIG,)),
    "large linear": (lambda x: F.linear(x[None, :2], x.double()), (BIG,)),
    "large sub": (lambda x: x - (x > 0), (BIG,)),
    "large cumsum_": (lambda x: (x > 0).cumsum_(0), (BIG,)),
}


def unused(operation: Callable[..., Any], *args: Any) -> Any:
    operation(*args)
    return args[0] + 1


def used(operation: Callable[..., Any], *args: Any) -> Any:
    return operation(*args)


def before_another_error(operation: Callable[..., Any], *args: Any) -> Any:
    operation(*args)
    return not_defined  # type: ignore[name-defined]  # noqa: F821


def handled(operation: Callable[..., Any], *args: Any) -> Any:
    try:
        operation(*args)
    except (RuntimeError, IndexError) as error:
        return args[0] + len(type(error).__name__)
    return args[0]


def behind_effects(operation: Callable[..., Any], *args: Any) -> Any:
    args[0].logical_not_()
    operation(*args)
    args[0].logical_not_()


@pytest.mark.own_default
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("use", [unused, used, before_another_error, handled, behind_effects])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_eager_does(name: str, use: Callable[..., Any], backend: str) -> None:
    operation, args = REFUSED[name]

    def function(*args: Any) -> Any:
        return use(operation, *args)

    for dynamic in (False, True):
        compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
        for _ in range(2):
            expected = run(function, copy.deepcopy(args))
            assert (expected.error is None) is (use is handled)
            same_outcome(run(compiled, copy.deepcopy(args)), expected)


@pytest.mark.own_default
@pytest.mark.parametrize("use", [unused, before_another_error])
@pytest.mark.parametrize("name", REFUSED)
def test_refused_where_gradients_are_wanted(name: str, use: Callable[..., Any]) -> None:
    operation, args = REFUSED[name]

    def function(weight: torch.Tensor, *args: Any) -> Any:
        doubled = weight * 2
        return use(operation, *args), doubled

    compiled = pliant.compile(function, backend="llvm")
    for _ in range(2):
        weight = torch.ones(2, requires_grad=True)
        expected = run(function, (weight, *copy.deepcopy(args)))
        assert expected.error is not None
        same_outcome(run(compiled, (weight, *copy.deepcopy(args))), expected)


@pytest.mark.own_default
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", REFUSED)
def test_effects_and_random_numbers_before_a_refused_call(name: str, backend: str) -> None:
    operation, args = REFUSED[name]

    def function(seen: list[int], *args: Any) -> Any:
        seen.append(1)
        torch.randint(0, 5, (3,))
        result = operation(*args)
        seen.append(2)
        return result

    compiled = pliant.compile(function, backend=backend)
    for _ in range(2):
        expected = run(function, ([], *copy.deepcopy(args)))
        state = torch.get_rng_state()
        same_outcome(run(compiled, ([], *copy.deepcopy(args))), expected)
        assert expected.args[0] == [1]
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.own_default
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("name", ["softmax", "large mm", "batch_norm of another size"])
def test_effects_and_writes_before_a_refused_call(name: str, backend: str) -> None:
    operation, args = REFUSED[name]

    def function(seen: list[int], memory: torch.Tensor, *args: Any) -> Any:
        seen.append(1)
        memory.add_(1)
        result = operation(*args)
        seen.append(2)
        memory.add_(1)
        return result

    compiled = pliant.compile(function, backend=backend)
    expected = run(function, ([], torch.ones(2), *copy.deepcopy(args)))
    assert expected.error is not None and expected.args[0] == [1]
    same_outcome(run(compiled, ([], torch.ones(2), *copy.deepcopy(args))), expected)


# A call that works, and one for which the same program is refused.
BY_SIZE: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...]]] = {
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, math.inf), (X,), (NOTHING,)),
    "norm": (lambda x: x.norm(-2, dim=1), (X,), (X[:, :0],)),
    "the smallest": (lambda x: torch.linalg.vector_norm(x, -math.inf, 0), (X,), (X[:0],)),
    "min": (lambda x: x.min(1), (X,), (X[:, :0],)),
    "argmax": (lambda x: x.argmax(), (X,), (NOTHING,)),
    "zeros": (lambda x, n: torch.zeros(n, 3), (X, 2), (X, -1)),
    "ones": (lambda x, n: torch.ones((2, n - 3)), (X, 5), (X, 2)),
    "empty": (lambda x, n: torch.empty(n), (X, 5), (X, -2)),
    "as_strided": (lambda x: x.as_strided((5,), (1,)), (X,), (X.clone()[:1].clone(),)),
    "as_strided of more": (lambda x: x.as_strided((5,), (1,)), (X[:1],), (X[:1].clone(),)),
    "//": (lambda i, n: i // n, (INTS, 2), (INTS, 0)),
    "%": (lambda i, n: i % n, (INTS, 2), (INTS, 0)),
    "**": (lambda i, n: i**n, (INTS, 2), (INTS, -1)),
    "index_fill": (lambda b, r: b.index_fill(0, FIRST, r), (BYTES, 1.5), (BYTES, -1.5)),
    "scatter": (lambda b, r: b.scatter(0, FIRST[None], r), (BYTES, 1.5), (BYTES, 300.5)),
    "index_fill of halves": (
        lambda h, r: h.index_fill(0, FIRST, r),
        (X.half(), 1.5),
        (X.half(), 70000.5),
    ),
}


@pytest.mark.own_default
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("use", [unused, used, before_another_error])
@pytest.mark.parametrize("name", BY_SIZE)
def test_refused_for_some_sizes(name: str, use: Callable[..., Any], backend: str) -> None:
    operation, good, bad = BY_SIZE[name]

    def function(*args: Any) -> Any:
        result = use(operation, *args)
        return result.shape if name == "empty" and use is used else result

    for dynamic in (None, True):
        for calls in ((good, bad, good), (bad, good, bad)):
            compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
            for args in calls:
                expected = run(function, copy.deepcopy(args))
                same_outcome(run(compiled, copy.deepcopy(args)), expected)


PARAMETERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "threshold": (lambda b, r: F.threshold(b, r, r), (1.5, -1.5, 300.5, 1.5)),
    "alpha": (lambda b, n: torch.add(b, b, alpha=n), (2, 300, 3)),
}


@pytest.mark.own_default
@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_out_of_the_range_of_the_dtype(name: str) -> None:
    operation, numbers = PARAMETERS[name]
    for dynamic in (None, True):
        compiled = pliant.compile(operation, backend="llvm", dynamic=dynamic)
        for number in numbers:
            same_outcome(run(compiled, (BYTES, number)), run(operation, (BYTES, number)))


NUMBERS: dict[str, Callable[..., Any]] = {
    "**": lambda i, n: i**n,
    "pow": lambda i, n: torch.pow(i, n),
    "//": lambda i, n: i // n,
    "%": lambda i, n: i % n,
    "select": lambda i, n: i[n],
    "an index": lambda i, n: i.select(0, n),
    "narrow": lambda i, n: i.narrow(0, 0, n),
    "zeros": lambda i, n: torch.zeros(n),
}


@pytest.mark.own_default
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", NUMBERS)
def test_refused_for_numbers_in_the_data(name: str, writes: bool, backend: str) -> None:
    operation = NUMBERS[name]

    def function(x: torch.Tensor, i: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        if writes:
            x[0] = 5
        operation(i, n.item())
        return x + 1

    compiled = pliant.compile(function, backend=backend)
    for number in (1, -7, 0, 9, 1):
        args = (X, INTS, torch.tensor(number))
        expected = run(function, copy.deepcopy(args))
        same_outcome(run(compiled, copy.deepcopy(args)), expected)


@pytest.mark.own_default
def test_an_index_read_from_data_behind_a_write() -> None:
    def function(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        a[None, ..., 0] = True
        b[c.argmax() // 1]

    for backend in ("eager", "llvm"):
        compiled = pliant.compile(function, backend=backend)
        for c in (torch.ones(2), torch.arange(4.0), torch.ones(2)):
            args = (torch.ones(2), torch.ones(2), c)
            same_outcome(run(compiled, copy.deepcopy(args)), run(function, copy.deepcopy(args)))


@pytest.mark.own_default
def test_accepted_calls_are_dropped_and_leave_no_trace(seen: Callable[[type], list]) -> None:
    def function(x: torch.Tensor, big: torch.Tensor) -> torch.Tensor:
        big.softmax(0), big @ big.T, big.var(0), F.linear(big, big), big.view(400, 300), x.T
        (
            torch.zeros(100_000, 100_000),
            torch.arange(1e9),
            F.interpolate(x[None, None], scale_factor=9e3),
        )
        x.as_strided((2,), (1,)), x[0].T
        return x + 1

    pliant.compile(lambda: torch.arange(3.0), backend="eager")()  # imports, which add filters
    compiled = pliant.compile(function, backend="llvm", fullgraph=True)
    state = torch.get_rng_state()
    with warnings.catch_warnings(record=True) as heard:
        filters = list(warnings.filters)
        compiled(X, BIG)
        assert warnings.filters == filters
    assert not [w for w in heard if not issubclass(w.category, UserWarning)]
    assert torch.equal(torch.get_rng_state(), state)
    (generated,) = seen(events.CodeGenerated)
    assert dict(generated.lowered) == {"aten.add.Tensor": 1} and not generated.called


@pytest.mark.own_default
@pytest.mark.parametrize("draw", [F.dropout, F.alpha_dropout, F.rrelu])
def test_calls_on_what_is_enlarged_later_draw_nothing(draw: Callable[..., Any]) -> None:
    def function(x: torch.Tensor, out: torch.Tensor) -> None:
        draw(out, training=True, inplace=True)  # of nothing
        torch.cat([x, x], out=out)

    compiled = pliant.compile(function, backend="llvm")
    for _ in range(2):
        state = torch.get_rng_state()
        compiled(X, torch.ones(0))
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.own_default
def test_a_trial_leaves_the_generator_alone() -> None:
    state = torch.get_rng_state()
    assert not trial._raises(trial.Call(F.dropout, (X,), {}, None), RealArguments())
    assert torch.equal(torch.get_rng_state(), state)


class RealArguments:
    """Stands for `trial.Reals` where the arguments are real."""

    def swap(self, value: Any) -> Any:
        return value


@pytest.mark.own_default
def test_under_autocast_dtypes_may_differ(seen: Callable[[type], list]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu"):
            torch.mm(x, x.T.bfloat16())
        return x + 1

    compiled = pliant.compile(function, backend="llvm", fullgraph=True)
    same_outcome(run(compiled, (X,)), run(function, (X,)))
    assert seen(events.CodeGenerated)


@pytest.mark.own_default
def test_long_programs_try_each_kind_of_call_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    refuses = trial._refuses
    monkeypatch.setattr(trial, "_refuses", lambda *call: tried.append(call) or refuses(*call))

    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x.exp().softmax(0)
        return x + 1

    pliant.compile(function, fullgraph=True)(X)
    assert len(tried) == 2
