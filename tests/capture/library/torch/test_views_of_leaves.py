"""Views of tensors that require grad, made with and without grad, inside and outside."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.support.against_eager import check, run, same_error, same_outcome

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda p: p.T,
    "sliced": lambda p: p[:2],
    "expanded": lambda p: p.expand(2, 4, 4),
    "detached": lambda p: p.detach(),
    "chunk": lambda p: p.chunk(2)[1],
    "alias": lambda p: p.view_as(p),
    "of a view": lambda p: p[1:].T,
    "as complex": lambda p: torch.view_as_complex(p.view(4, 2, 2)),
}
MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
}
LEAVES: dict[str, Callable[[], torch.Tensor]] = {
    "parameter": lambda: nn.Parameter(torch.arange(16.0).view(4, 4)),
    "a view": lambda: torch.arange(18.0)[2:].view(4, 4).requires_grad_(),
    "result": lambda: torch.arange(16.0).view(4, 4).requires_grad_() * 1,
}


def facts(x: torch.Tensor) -> Any:
    return x * 2, x.requires_grad, x.is_leaf, x._is_view()


def compare(function: Callable[..., Any], x: torch.Tensor) -> None:
    for backend in ("eager", "llvm"):
        compiled = pliant.compile(function, backend=backend)
        for _ in range(2):
            expected, actual = run(function, (x,)), run(compiled, (x,))
            same_error(actual.error, expected.error)
            if expected.error is None:
                same_facts(actual.result, expected.result)


def same_facts(actual: Any, expected: Any) -> None:
    assert actual[1:] == expected[1:]
    assert torch.equal(actual[0], expected[0])
    for name in ("requires_grad", "is_leaf"):
        assert getattr(actual[0], name) == getattr(expected[0], name), name
    assert actual[0].is_inference() == expected[0].is_inference()


@pytest.mark.parametrize("called", MODES)
@pytest.mark.parametrize("made", MODES)
@pytest.mark.parametrize("leaf", LEAVES)
@pytest.mark.parametrize("view", VIEWS)
def test_view_as_input(view: str, leaf: str, made: str, called: str) -> None:
    base = LEAVES[leaf]()
    with MODES[made]():
        x = VIEWS[view](base)
    with MODES[called]():
        compare(facts, x)
        if not x.is_complex():  # whose history eager can't find in inference mode
            with torch.no_grad():
                base.add_(1)
            compare(facts, x)


@pytest.mark.parametrize("called", MODES)
@pytest.mark.parametrize("made", MODES)
@pytest.mark.parametrize("leaf", ["parameter", "a view"])
@pytest.mark.parametrize("view", VIEWS)
def test_view_carried_over_a_break(view: str, leaf: str, made: str, called: str) -> None:
    def program(base: torch.Tensor) -> Any:
        with MODES[made]():
            x = VIEWS[view](base)
        pliant.graph_break()
        return facts(x)

    with MODES[called]():
        compare(program, LEAVES[leaf]())


def test_base_that_comes_to_require_grad() -> None:
    base = torch.ones(4, 4)
    x = base.T
    compiled = pliant.compile(facts)
    for required in (False, True, False, True):
        base.requires_grad_(required)
        assert compiled(x)[1:] == facts(x)[1:]
        assert compiled(x)[0].requires_grad is required


def test_base_written_with_grad() -> None:
    base, weight = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    x = base.T
    compiled = pliant.compile(facts)
    assert compiled(x)[1:] == facts(x)[1:]
    base.mul_(weight)
    assert compiled(x)[1:] == facts(x)[1:]
    compiled(x)[0].sum().backward()
    assert torch.equal(weight.grad, torch.full((4, 4), 2.0))


def test_view_kept_by_a_module() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))
            with torch.no_grad():
                self.transposed = self.weight.T

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ self.weight) @ self.transposed + 1

    module = Tied()
    with torch.no_grad():
        check(module, torch.randn(2, 4))
    check(module, torch.randn(2, 4))


@pytest.mark.parametrize("called", MODES)
def test_write_to_a_view_made_without_grad(called: str) -> None:
    """Eager refuses it with grad."""

    def write(base: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = base[:2]
        with MODES[called]():
            x.mul_(2)
        return x * 1

    same_outcome(
        run(pliant.compile(write), (LEAVES["parameter"](),)), run(write, (LEAVES["parameter"](),))
    )
    outside = [LEAVES["parameter"]() for _ in range(2)]
    with torch.no_grad():
        views = [leaf[:2] for leaf in outside]

    def write_view(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + 1

    with MODES[called]():
        actual, expected = (
            run(pliant.compile(write_view), (views[0],)),
            run(write_view, (views[1],)),
        )
    same_error(actual.error, expected.error)
    assert torch.equal(outside[0], outside[1])


def reads_the_view_first(base: torch.Tensor, view: torch.Tensor) -> Any:
    result = view * 2
    return result, base._is_view(), view._is_view(), base._base is None, view._base is base


def writes_to_both(base: torch.Tensor, view: torch.Tensor) -> Any:
    result = view * 2
    base.add_(1)
    view.mul_(3)
    return result, base + 1, view + 1, base._version, view._version, base._is_view()


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [reads_the_view_first, writes_to_both])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_a_base_of_dynamic_size_behind_its_view(
    backend: str, function: Callable[..., Any], dynamic: bool | None, graded: bool
) -> None:
    compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
    for size in (0, 1, 4, 5):
        outcomes = []
        for call in (compiled, function):
            base = torch.arange(float(size)).requires_grad_(graded) * 1
            outcomes.append(run(call, (base, base[1:])))
        same_outcome(*outcomes)
