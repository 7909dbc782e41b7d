"""How close results have to be: what runs PyTorch's own operators gives PyTorch's own numbers, what
is compiled to loops may round differently."""

from typing import Any

from pliant.backends import registry


def exact() -> dict[str, Any]:
    """Tolerances for `torch.testing.assert_close`, by the backend that tests run with."""
    return {"rtol": 0, "atol": 0} if registry.DEFAULT == "eager" else {}
