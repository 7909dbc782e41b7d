"""Enumerations of C++ (pybind11): constants with methods, usable as keys."""

import pytest
import torch
from torch._C._autograd import DeviceType

import pliant
from tests.support.against_eager import check

X = torch.arange(3.0)
TABLE = {DeviceType.CPU: 1, DeviceType.CUDA: 2}


def as_key(x, kind):
    return x + TABLE[kind], {kind: x}[DeviceType.CPU], kind in {DeviceType.CPU}


def as_value(x, kind):
    return x + 1, kind == DeviceType.CPU, kind != DeviceType.CPU, kind == 0, hash(kind), int(kind)


def as_text(x, kind):
    return x + 1, kind.name, kind.value, str(kind), repr(kind), f"{kind}", [kind]


def as_index(x, kind):
    return x + 1, [3, 4][kind], (5, 6)[kind]


@pytest.mark.parametrize("function", [as_key, as_value, as_text, as_index])
def test_enumerations_of_cpp(function):
    check(function, X, DeviceType.CPU, graphs=1)


def test_members_are_guarded_by_value():
    def function(x, kind):
        return x + TABLE[kind]

    compiled = pliant.compile(function, fullgraph=True)
    for kind in (DeviceType.CPU, DeviceType.CUDA, DeviceType(0), DeviceType.CUDA):
        assert torch.equal(compiled(X, kind), function(X, kind))
    assert pliant.counters["compilations"] == 2
