"""Tensors of wrapper subclasses that the compiled function makes itself."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import pliant

Kind = namedtuple("Kind", ["stored", "shown"])


@dataclass(frozen=True)
class Frozen:
    number: int
    kind: Kind = Kind(1, 2)


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    number: int


class Tagged(torch.Tensor):
    """Keeps its attributes in slots, and one of them is no tensor."""

    __slots__ = ["inner", "kind", "note"]
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, inner, kind):
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=inner.device,
            requires_grad=inner.requires_grad,
        )
        self.inner, self.kind = inner, kind
        return self

    def __tensor_flatten__(self):
        return ["inner"], self.kind

    @classmethod
    def __tensor_unflatten__(cls, inner, kind, size, stride):
        return cls(inner["inner"], kind)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kind = next(arg.kind for arg in args if isinstance(arg, cls))
        plain = [arg.inner if isinstance(arg, cls) else arg for arg in args]
        return cls(func(*plain, **kwargs or {}), kind)


def seen(result):
    if type(result) in (tuple, list):
        return [seen(item) for item in result]
    if isinstance(result, torch.Tensor) and type(result) is not torch.Tensor:
        names, context = result.__tensor_flatten__()
        inner = [seen(getattr(result, name)) for name in names]
        return [type(result), inner, context, type(context), result.shape, result.stride()]
    return result.tolist() if isinstance(result, torch.Tensor) else result


def written_later(x):
    tagged = Tagged(x, "a")
    tagged.inner = x + 5
    tagged.note = "late"
    return tagged * 2, tagged.note


PROGRAMS = {
    "one is returned": lambda x: Tagged(x, "a"),
    "with what it was given": lambda x: (lambda y: (y, y.kind))(Tagged(x, Kind(torch.half, 1))),
    "operators on it": lambda x: Tagged(x, Kind(1, 2)) * 2 + 1,
    "what is inside": lambda x: Tagged(x * 2, "a").inner + 1,
    "what is inside of a result": lambda x: (Tagged(x * 2, "a") * 3).inner + 1,
    "another attribute of a result": lambda x: (Tagged(x, Kind(1, (2, 3))) * 3).kind,
    "the same tensor inside": lambda x: Tagged(x, "a").inner is x,
    "a size as its context": lambda x: Tagged(x, x.size()),
    "a size and more": lambda x: Tagged(x, (x.size(), x.stride(), x.dtype)).kind,
    "a class as its context": lambda x: Tagged(x, Kind),
    "a frozen dataclass": lambda x: Tagged(x, Frozen(3)) * 2,
    "one with slots": lambda x: (Tagged(x, FrozenSlots(3)) * 2, Tagged(x, FrozenSlots(4)).kind),
    "a size of what is made": lambda x: x * Tagged(x, "a").shape[0],
    "two tensors inside": lambda x: TwoTensor(x, x * 3) + 1,
    "wrappers inside": lambda x: (TwoTensor(TwoTensor(x, x + 1), TwoTensor(x, x * 2)) * 2).b.a,
    "attributes written later": written_later,
    "one that nobody uses": lambda x: (Tagged(x, "a"), x + 1)[1],
    "an attribute that is not there": lambda x: (getattr(Tagged(x, "a"), "note", 3), x + 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_same_as_eager(name, dynamic, backend):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend=backend)
    for shape in ((3, 4), (5, 4), (3, 4)):
        x = torch.arange(shape[0] * shape[1]).view(shape) + 1.0
        assert seen(compiled(x)) == seen(program(x))


def test_constructors_are_followed():
    """So what else they do is done once for each call."""

    class Counted(TwoTensor):
        made = 0

        def __init__(self, a, b):
            Counted.made += 1
            super().__init__(a, b)

    compiled = pliant.compile(lambda x: Counted(x, x + 1).b, fullgraph=True)
    for calls in (1, 2, 3):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
        assert Counted.made == calls


def test_slots_of_an_argument():
    def program(x):
        return x.inner * 2, x.kind, getattr(x, "note", None)

    compiled = pliant.compile(program, fullgraph=True)
    for kind, note in (("a", None), ("a", "n"), (Kind(1, 2), None)):
        x = Tagged(torch.ones(3), kind)
        if note is not None:
            x.note = note
        assert seen(compiled(x)) == seen(program(x))


def test_between_a_function_with_a_gradient_of_its_own():
    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return Tagged(x.inner + 1, x.kind).inner

        @staticmethod
        def backward(ctx, grad):
            return grad

    def program(x):
        return AddOne.apply(Tagged(x, (x.size(), x.requires_grad)))

    results = []
    for function in (program, pliant.compile(program, fullgraph=True)):
        x = torch.ones(2, 3, requires_grad=True)
        result = function(x)
        result.sum().backward()
        results.append((result.tolist(), result.requires_grad, x.grad))
    assert results[0] == results[1]


def test_what_may_change_is_left_to_python():
    """An object that others can write to, and the dictionary of attributes."""

    def program(x):
        notes = [1]
        tagged = TwoTensor(x, x + 1)
        tagged.notes = notes
        notes.append(2)
        return tagged.notes, sorted(vars(tagged)), x * 2

    results = [str(f(torch.ones(2))) for f in (pliant.compile(program), program)]
    assert results[0] == results[1]


def test_a_break_in_a_constructor():
    class Halting(Tagged):
        def __new__(cls, inner, kind):
            self = super().__new__(cls, inner, kind)
            pliant.graph_break()
            self.note = "done"
            return self

    def program(x):
        return Halting(x * 2, "a"), x + 1

    result, _ = pliant.compile(program)(torch.ones(3))
    assert seen(result) == seen(program(torch.ones(3))[0]) and result.note == "done"
