"""Results that eager PyTorch makes in parts: the layout of the parts decides."""

import pytest
import torch
import torch.nn.functional as F

import pliant

LAYOUTS = {
    "contiguous": torch.ones(3, 4),
    "transposed": torch.ones(4, 3).t(),
    "rows": torch.ones(1, 4).expand(3, 4),
    "columns": torch.ones(3, 1).expand(3, 4),
    "one": torch.ones(()).expand(3, 4),
}
BINARY = {
    "ldexp": torch.ldexp,
    "ldexp of integers": lambda x, y: torch.ldexp(x, y.int()),
    "ldexp of halves": lambda x, y: torch.ldexp(x.half(), y.int()),
    "loss": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "weighted loss": lambda x, y: F.binary_cross_entropy_with_logits(
        x, y, weight=x, pos_weight=y, reduction="none"
    ),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", BINARY)
def test_of_two_tensors(name: str, dynamic: bool | None) -> None:
    function = BINARY[name]
    for x in LAYOUTS.values():
        for y in LAYOUTS.values():
            with torch.no_grad():
                actual = pliant.compile(lambda x, y: function(x, y), dynamic=dynamic)(x, y)
                expected = function(x, y)
            assert actual.stride() == expected.stride()
            assert actual.dtype is expected.dtype
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("exponent", [torch.int32, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
def test_powers_of_2(dtype: torch.dtype, exponent: torch.dtype, dynamic: bool) -> None:
    """The layout and the dtype that the program sees, and computes with."""

    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[object, ...]:
        result = torch.ldexp(x, y)
        return result, result + 1, result.stride(), result.dtype

    smaller = {"a row": torch.ones(1, 4), "a number": torch.ones(())}
    for x in (LAYOUTS | smaller).values():
        for y in LAYOUTS.values():
            # A copy has a layout of its own; the cast is part of neither program.
            args = _as_dtype(x, dtype), _as_dtype(y, exponent)
            actual = pliant.compile(function, backend="llvm", dynamic=dynamic)(*args)
            expected = function(*args)
            assert actual[2:] == expected[2:]
            torch.testing.assert_close(actual[:2], expected[:2], check_stride=True)


def _as_dtype(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(12, dtype=dtype).as_strided(t.shape, t.stride())


RESHAPED = {
    "reshape": lambda x: x.reshape(-1),
    "reshape to two": lambda x: x.reshape(2, 6),
    "flatten": lambda x: x.flatten(),
    "reshape of a new one": lambda x: (x + 1).t().reshape(-1),
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("name", RESHAPED)
def test_whether_a_reshaped_tensor_is_a_view(name: str, layout: str, dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
        y = RESHAPED[name](x)
        return y * 2, y._is_view()

    x = LAYOUTS[layout]
    actual, expected = pliant.compile(function, dynamic=dynamic)(x), function(x)
    assert actual[1] is expected[1]
    assert torch.equal(actual[0], expected[0])


def asks(x: torch.Tensor) -> tuple[object, ...]:
    last = torch.channels_last
    converted = x.contiguous(memory_format=last)
    same = converted is x
    return x.is_contiguous(memory_format=last), same, converted, x.to(memory_format=last) + 1


@pytest.mark.parametrize("order", [(0, 3, 1, 2), (0, 1, 2, 3), (1, 0, 2, 3)])
@pytest.mark.parametrize("empty", range(4))
def test_memory_formats_of_empty_tensors(empty: int, order: tuple[int, ...]) -> None:
    """Their strides say more than their sizes do."""
    sizes = [2, 4, 3, 5]
    full = torch.ones(sizes).permute(order)
    sizes[empty] = 0
    permuted = torch.ones(sizes).permute(order)
    for calls in (
        [permuted, full],
        [full, permuted],
        [permuted.to(memory_format=torch.channels_last)],
    ):
        compiled = pliant.compile(asks, dynamic=True)
        for x in calls:
            actual, expected = compiled(x), asks(x)
            assert actual[:2] == expected[:2]
            assert [t.stride() for t in actual[2:]] == [t.stride() for t in expected[2:]]
