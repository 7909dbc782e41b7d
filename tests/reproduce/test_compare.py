"""What counts as rounding, and what as a wrong result."""

import pytest
import torch

from pliant.reproduce.compare import difference

INF, NAN = float("inf"), float("nan")


def differs(ours: float, eager: float) -> bool:
    expected = torch.tensor([1.0, eager])
    return difference(torch.tensor([1.0, ours]), expected, lambda: expected * 1.0) is not None


@pytest.mark.parametrize("pair", [(INF, -INF), (NAN, INF), (INF, NAN), (1.0, INF), (NAN, 1.0)])
def test_what_is_not_finite_has_to_be_the_same(pair: tuple[float, float]) -> None:
    assert differs(*pair)


@pytest.mark.parametrize("number", [INF, -INF, NAN])
def test_what_is_not_finite_beside_rounding(number: float) -> None:
    expected = torch.tensor([0.1, number])
    ours = torch.tensor([0.1 * (1 + 3e-6), number])
    assert difference(ours, expected, lambda: expected * 1.00001) is None
