"""Operators of a tensor and an object that PyTorch knows nothing of: the object has the say."""

import dataclasses

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)


class Scale:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __radd__(self, other):
        return other + self.value

    def __rmul__(self, other):
        return Scale(other * self.value)

    def __rmatmul__(self, other):
        return other @ self.value

    def __rpow__(self, other):
        return "power"

    def __rmod__(self, other):
        return "remainder"

    def __rand__(self, other):
        return "and"

    def __eq__(self, other):
        return "equal"

    def __gt__(self, other):
        return "greater"


@dataclasses.dataclass
class Quantity:
    amount: torch.Tensor
    unit: str = "m"

    def __add__(self, other):
        return Quantity(self.amount + getattr(other, "amount", other), self.unit)

    def __rsub__(self, other):
        return Quantity(other - self.amount, self.unit)

    __radd__ = __add__


class Values(list):
    def __radd__(self, other):
        return [other * value for value in self]


class Nothing:
    pass


def reflected(x, scale):
    results = x + scale, x**scale, x % scale, x.long() & scale, x == scale, x < scale
    return results, (x * scale).value, x.sum() * scale


@pytest.mark.parametrize("value", [3, torch.arange(3.0)], ids=["number", "tensor"])
def test_reflected_methods(value):
    check(reflected, X, Scale(value))
    check(lambda x: reflected(x, Scale(value)), X)


def test_in_place():
    def program(x, scale):
        y = x.clone()
        y += scale
        x *= scale
        return y, x.value, X @ Scale(X.T)

    check(program, X, Scale(2))


def test_dataclasses_and_sequences():
    def program(x, quantity):
        return x + quantity, x - quantity, sum([quantity, quantity, x], x), x + Values([1, 2])

    check(program, X, Quantity(X + 1))


def test_objects_without_such_a_method():
    def program(x, obj):
        texts, y = [], x.clone()

        def in_place():
            nonlocal y
            y += obj

        for run in (lambda: x + obj, lambda: obj - x, lambda: x @ obj, lambda: x < obj, in_place):
            try:
                run()
            except TypeError as error:
                texts.append(str(error))
        return texts, y, x == obj, obj != x

    check(program, X, Nothing())


def test_an_object_with_torch_function_is_asked_first():
    class Asked:
        def __radd__(self, other):
            return "reflected"

        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return function.__name__

    compiled = pliant.compile(lambda x, obj: x + obj, fullgraph=True)
    assert compiled(X, Asked()) == X + Asked()
