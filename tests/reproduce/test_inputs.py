"""Values as code: what is evaluated has the metadata of the original."""

import pytest
import torch

from pliant.reproduce.inputs import InputWriter, copied

BASE = torch.arange(24.0)
TENSORS = {
    "contiguous": torch.randn(3, 4),
    "number": torch.randn(()),
    "transposed": torch.randn(3, 4).t(),
    "expanded": torch.randn(3, 1).expand(3, 4),
    "part": BASE.view(4, 6)[1:, ::2],
    "empty": torch.empty(0, 3),
    "empty_transposed": torch.empty(3, 0).t(),
    "channels_last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "grad": torch.randn(3, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.randn(20, 2)),
    "bool": torch.tensor([[True, False]]).t(),
    **{str(dtype): torch.ones(3, dtype=dtype) for dtype in (
        torch.float64, torch.float16, torch.bfloat16, torch.float8_e5m2, torch.int64, torch.int32,
        torch.int16, torch.int8, torch.uint8, torch.uint16, torch.complex64, torch.complex128,
    )},
}  # fmt: skip


def evaluated(value, real=False):
    code = InputWriter(lambda tensor: real).write(value)
    namespace = {"torch": torch, "load": lambda: code.saved}
    exec("\n".join(code.lines), namespace)
    return eval(code.expression, namespace)


def metadata(t):
    return t.shape, t.stride(), t.dtype, t.device, t.requires_grad, type(t), t.is_leaf


@pytest.mark.parametrize("name", TENSORS)
def test_metadata_is_kept(name):
    tensor = TENSORS[name]
    assert metadata(evaluated(tensor)) == metadata(tensor)
    assert metadata(copied(tensor)) == metadata(tensor)


@pytest.mark.parametrize("name", [name for name in TENSORS if "float8" not in name])
def test_real_values_are_kept(name):
    tensor = TENSORS[name]
    assert metadata(evaluated(tensor, True)) == metadata(tensor)
    assert torch.equal(evaluated(tensor, True), tensor)
    assert torch.equal(copied(tensor), tensor)


def test_numbers_without_a_literal():
    values = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    torch.testing.assert_close(evaluated(values, True), values, equal_nan=True, rtol=0, atol=0)
    assert torch.signbit(evaluated(values, True))[3]


def test_containers():
    value = {"a": (1, [2.5, None]), 3: ("text", (True,)), "c": torch.float16}
    assert evaluated(value) == value


def test_integers_stay_in_their_range():
    values = torch.tensor([5, 9, 7] * 10)
    assert set(evaluated(values).tolist()) <= {5, 6, 7, 8, 9}


@pytest.mark.parametrize("make", [evaluated, lambda value: evaluated(value, True), copied])
def test_tensors_that_share_memory_share_it(make):
    base = torch.randn(12)
    first, second, again, other = make([base, base.view(3, 4).t()[1:], base, torch.randn(2)])
    assert first is again
    assert second.stride() == (1, 4)
    assert second.storage_offset() == 1
    first[1] = 7
    assert second[0, 0] == 7
    assert other.untyped_storage()._cdata != first.untyped_storage()._cdata


def test_a_copy_shares_nothing():
    tensor = torch.randn(3)
    copied([tensor])[0].add_(1)
    assert not torch.equal(copied(tensor), tensor + 1)
    assert torch.equal(copied(tensor), tensor)
