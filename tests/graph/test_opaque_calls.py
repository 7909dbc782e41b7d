"""One call that has no functional form leaves the rest of the graph its kernels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 0.5 * (1 + torch.tanh(x))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class Flipped(torch.autograd.Function):
    """Returns a view."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.t()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad.t()


class Several(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x + 1, None, x[:2], x.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


@torch.library.custom_op("pliant_tests::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


@double_.register_fake
def _(x: torch.Tensor) -> None:
    return None


@torch.library.custom_op("pliant_tests::add_into", mutates_args=("x", "y"))
def add_into(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    x.add_(z)
    y.sub_(z)
    return z * 3


@add_into.register_fake
def _(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(z)


def written(x: torch.Tensor) -> torch.Tensor:
    torch.ops.pliant_tests.double_(x)
    return x


def column_written(x: torch.Tensor) -> torch.Tensor:
    torch.ops.pliant_tests.double_(x[:, 1])
    return x + x[:, 1]


def two_written(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    z = torch.ops.pliant_tests.add_into(x, y, x * 2)
    return x + y + z


def lists_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch._foreach_add_([x, y], [y + 1, x + 1])
    return x + y


def seen_by_others(x: torch.Tensor) -> torch.Tensor:
    """A view from before keeps its shape, and sees writes from after."""
    row, same = x[0], x.view(4, 4)
    x.unsqueeze_(1).mul_(2)
    x.squeeze_(1).t_()
    x[1].add_(5)
    return x * 2 + row + same


def several(x: torch.Tensor) -> torch.Tensor:
    a, none, b, c = Several.apply(x)
    b.mul_(3)
    assert none is None
    return a + x + c


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "autograd function": Gelu.apply,
    "autograd function with a view": Flipped.apply,
    "autograd function with several results": several,
    "checkpoint": lambda x: checkpoint(torch.sin, x, use_reentrant=False),
    "vmap": lambda x: torch.vmap(torch.sin)(x),
    "unsqueeze_": lambda x: x.unsqueeze_(0).sum(0),
    "squeeze_": lambda x: x.unsqueeze(0).squeeze_(0),
    "squeeze_ all": lambda x: x.unsqueeze(0).squeeze_(),
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "metadata seen by others": seen_by_others,
    "write": written,
    "write to a view": column_written,
    "writes to two": two_written,
    "writes to lists": lists_written,
    "two outputs": lambda x: torch.sort(
        x, out=(torch.empty(4, 4), torch.empty(4, 4, dtype=torch.int64))
    )[0],
    "instance_norm": lambda x: F.instance_norm(
        x[None], torch.zeros(4), torch.ones(4), use_input_stats=True
    )[0],
    "data": lambda x: x.data.add_(1) + x,
    "detach_": lambda x: x.detach_(),
    "requires_grad_": lambda x: x.detach().requires_grad_(False),
}


def kernels_of(function: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> int:
    """Compare with eager, twice, and count the kernels of the one program."""
    seen: list[Any] = []
    compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
    with torch.no_grad(), events.listening(seen.append):
        for _ in range(2):
            mine, theirs = ([t.clone() for t in args] for _ in range(2))
            actual, expected = run(compiled, tuple(mine)), run(function, tuple(theirs))
            torch.testing.assert_close(actual.result, expected.result)
            actual.result, expected.result = (
                [t.stride() for t in torch.utils._pytree.tree_leaves(outcome.result)]
                for outcome in (actual, expected)
            )
            same_outcome(actual, expected)
    programs = [event for event in seen if isinstance(event, events.CodeGenerated)]
    assert not [event for event in seen if isinstance(event, events.NotGenerated)]
    assert len(programs) == 1
    return len(programs[0].kernels())


# That a view is within the memory of its tensor has to be known for all sizes.
WITH_VIEWS = ("autograd function with a view", "autograd function with several results")
CASES = [(n, d) for n in CALLS for d in (None, True) if not (d and n in WITH_VIEWS)]


@pytest.mark.parametrize("name, dynamic", CASES)
def test_kernels_around(name: str, dynamic: bool | None) -> None:
    call = CALLS[name]

    def chain(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(call(x * 2 + 1) * 3) - 1

    assert kernels_of(chain, torch.randn(4, 4), dynamic=dynamic) >= 1


@pytest.mark.parametrize("name", ["write", "write to a view", "writes to two", "writes to lists"])
def test_writes_to_arguments(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return CALLS[name](x) * 2 + 1, x[0]

    assert kernels_of(program, torch.randn(4, 4)) >= 1
    assert kernels_of(program, torch.randn(4, 4).t()) >= 1


def test_views_returned_share_memory() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x * 2
        z = Flipped.apply(y)
        z.add_(1)
        return y, z, Flipped.apply(x)

    compiled = pliant.compile(program, backend="llvm")
    x = torch.randn(4, 4)
    with torch.no_grad():
        y, z, view = compiled(x)
    assert torch.equal(y.t(), z)
    assert y.data_ptr() == z.data_ptr()
    assert view.data_ptr() == x.data_ptr()
    assert torch.equal(y, x * 2 + 1)


def test_metadata_of_an_argument() -> None:
    """The caller's tensor changes its shape, so the graph runs as it is."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze_(0) * 2

    x, y = torch.ones(3), torch.ones(3)
    assert torch.equal(pliant.compile(program, backend="llvm")(x), program(y))
    assert x.shape == y.shape == (1, 3)


@torch.compiler.allow_in_graph
def twice_at(x: torch.Tensor, index: Any, *, rest: Any) -> torch.Tensor:
    return x[index if isinstance(index, slice) else tuple(index)] * 2 + x[rest["key"]].sum()


@pytest.mark.parametrize("listed", [False, True])
def test_slices_with_symbolic_bounds(listed: bool) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        index = slice(1, len(y))
        rest = {"key": slice(len(y) - 1, None)}
        return twice_at(x, [index, slice(None, None, 2)] if listed else index, rest=rest) + 1

    compiled = pliant.compile(program, backend="llvm", dynamic=True)
    with torch.no_grad():
        for size in (3, 4, 2, 6):
            x = torch.randn(size, 3)
            assert torch.equal(compiled(x, x), program(x, x))
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("name", ("is_same_size", "dense_dim", "sparse_dim"))
def test_numbers_of_the_metadata_are_no_calls(name):
    def f(x, *others):
        return getattr(x * 2, name)(*others)

    compiled = pliant.compile(f, backend="llvm")
    for size in (3, 4):
        others = [torch.ones(3)] if name == "is_same_size" else []
        assert compiled(torch.ones(size), *others) == f(torch.ones(size), *others)
    assert pliant.counters["fallbacks"] == 0
