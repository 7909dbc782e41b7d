"""Tensors made of others, with a `__torch_dispatch__`: captured through what they are made of."""

import collections

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

import pliant
from pliant.base import events


class Scaled(torch.Tensor):
    """A tensor with a number beside it, which is not shown."""

    @staticmethod
    def __new__(cls, data, scale, note="a"):
        return torch.Tensor._make_wrapper_subclass(
            cls, data.size(), strides=data.stride(), dtype=data.dtype, device=data.device
        )

    def __init__(self, data, scale, note="a"):
        self.data_, self.scale, self.note = data, scale, note

    def __tensor_flatten__(self):
        return ["data_", "scale"], self.note

    @staticmethod
    def __tensor_unflatten__(inner, note, size, stride):
        return Scaled(inner["data_"], inner["scale"], note)

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        first = next(a for a in pytree.tree_leaves(args) if isinstance(a, Scaled))
        plain = pytree.tree_map_only(Scaled, lambda t: t.data_ * t.scale.sum(), args)
        return Scaled(func(*plain, **(kwargs or {})), torch.ones(1), first.note)


def two(*shape, grad=False):
    return TwoTensor(*(torch.randn(shape, requires_grad=grad) for _ in range(2)))


def same(actual, expected):
    assert type(actual) is type(expected)
    if not isinstance(expected, TwoTensor | Scaled):
        torch.testing.assert_close(actual, expected)
        return
    names, context = expected.__tensor_flatten__()
    assert actual.__tensor_flatten__() == (names, context)
    assert actual.size() == expected.size() and actual.stride() == expected.stride()
    assert actual.requires_grad is expected.requires_grad
    for name in names:
        same(getattr(actual, name), getattr(expected, name))


PROGRAMS = {
    "pointwise": lambda x: (x * 2).sin() + 1,
    "a reduction": lambda x: x.sum(),
    "views": lambda x: x.view(-1)[2:5],
    "a plain tensor beside it": lambda x: x + torch.ones(4),
    "what is inside": lambda x: x.a + x.b * 2,
    "what is inside of a result": lambda x: (x * 2).a.sin() + (x + 1).b,
    "a size": lambda x: x * x.shape[0],
    "a detached one": lambda x: x.detach() * 2,
    "several results": lambda x: x.split(2, 1)[1],
    "a branch on its class": lambda x: x + 1 if type(x) is TwoTensor else x - 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_same_as_eager(name, dynamic, backend):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend=backend)
    for shape in ((3, 4), (5, 4), (3, 4)):
        x = two(*shape)
        same(compiled(x), program(x))


COMPUTES = ("aten::sin", "aten::mul", "aten::sum", "aten::addmm", "aten::tanh")


@pytest.mark.parametrize(
    "name", ["pointwise", "a reduction", "a plain tensor beside it", "a size", "a layer"]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_generated_code_runs(name, dynamic):
    programs = {**PROGRAMS, "a layer": lambda x: torch.nn.functional.linear(x, W, B).tanh()}
    program, seen = programs[name], []
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend="llvm")
    with events.listening(seen.append), torch.no_grad():
        for shape in ((3, 4), (5, 4), (3, 4)):
            x = two(*shape)
            same(compiled(x), program(x))
        with torch.profiler.profile() as profile:
            compiled(two(3, 4))
    (code, *_) = [event for event in seen if isinstance(event, events.CodeGenerated)]
    assert code.kernels()
    assert not [event for event in seen if isinstance(event, events.NotGenerated)]
    assert {e.name for e in profile.events()}.isdisjoint(set(COMPUTES) - {"aten::addmm"})


W, B = torch.randn(4, 4), torch.randn(4)


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_nested(backend):
    x = TwoTensor(two(3, 4), two(3, 4))
    same(pliant.compile(lambda t: t.sin() * 2, fullgraph=True, backend=backend)(x), x.sin() * 2)


def test_operators_that_are_made_of_others_reach_the_class_decomposed():
    """As in eager PyTorch: it sees `addmm`, not `linear`."""
    calls = []

    class Noted(TwoTensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            calls.append(func)
            return super().__torch_dispatch__(func, types, args, kwargs)

        @staticmethod
        def __tensor_unflatten__(inner, context, size, stride):
            return Noted(inner["a"], inner["b"])

    def program(x):
        return torch.nn.functional.linear(x, W, B)

    x = Noted(torch.randn(3, 4), torch.randn(3, 4))
    with torch.no_grad():
        program(x)
        expected = set(calls)
        calls.clear()
        pliant.compile(program, fullgraph=True, backend="llvm")(x)
    assert expected == set(calls)


def test_results_may_be_what_was_given_or_share_its_memory():
    def program(x, y):
        return x, x.view(-1), y, x.b

    x, y = two(3, 4), torch.ones(3)
    first, view, other, part = pliant.compile(program, fullgraph=True, backend="llvm")(x, y)
    assert first is x and other is y and part is x.b
    view.a.zero_()
    assert not x.a.any()


def test_symbolic_sizes_serve_all_sizes():
    before = pliant.counters["compilations"]
    compiled = pliant.compile(lambda x: x.sin() * x.shape[1], fullgraph=True, dynamic=True)
    for shape in ((3, 4), (5, 6), (7, 2)):
        x = two(*shape)
        same(compiled(x), x.sin() * shape[1])
    assert pliant.counters["compilations"] == before + 1


def test_gradients():
    x = two(3, 4, grad=True)
    (x * x).sin().sum().backward()
    y = TwoTensor(*(t.detach().clone().requires_grad_() for t in (x.a, x.b)))
    pliant.compile(lambda t: (t * t).sin().sum(), fullgraph=True)(y).backward()
    same(y.grad, x.grad)


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_writes(backend):
    def program(x):
        y = x.mul_(2)
        x.add_(1)
        return y is x

    x = two(3, 4)
    y = TwoTensor(x.a.clone(), x.b.clone())
    before = y._version
    assert pliant.compile(program, fullgraph=True, backend=backend)(y) is program(x)
    same(y, x)
    assert y._version > before


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_as_a_parameter(backend):
    module = torch.nn.Linear(4, 3, bias=False)
    module.weight = torch.nn.Parameter(two(3, 4))

    def program(x):
        return module.weight * x

    x = torch.ones(4)
    results = [f(x) for f in (pliant.compile(program, fullgraph=True, backend=backend), program)]
    same(*results)
    gradients = [torch.autograd.grad(result.sum(), module.weight)[0] for result in results]
    same(*gradients)


@pytest.mark.parametrize(
    "other",
    [
        lambda: Scaled(torch.ones(2, 3), torch.ones(1), "b"),  # another context
        lambda: Scaled(torch.ones(2, 3), torch.ones(2)),  # another size inside
        lambda: Scaled(torch.ones(2, 3).double(), torch.ones(1)),
        lambda: torch.ones(2, 3),
    ],
)
def test_what_is_assumed_is_guarded(other):
    def program(x):
        return x.cos() if getattr(x, "note", "b") == "a" else x.sin()

    compiled = pliant.compile(program, fullgraph=True, dynamic=False)
    for x in (Scaled(torch.ones(2, 3), torch.ones(1)), other()):
        before = pliant.counters["compilations"]
        same(compiled(x), program(x))
        assert pliant.counters["compilations"] == before + 1


def test_a_class_says_which_contexts_are_the_same():
    class Lenient(Scaled):
        @staticmethod
        def __tensor_unflatten__(inner, note, size, stride):
            return Lenient(inner["data_"], inner["scale"], note)

        @classmethod
        def __metadata_guard__(cls, one, other):
            return one <= other

    compiled = pliant.compile(lambda x: x.sin(), fullgraph=True)
    before = pliant.counters["compilations"]
    for note in "bca":
        compiled(Lenient(torch.ones(2), torch.ones(1), note))
    assert pliant.counters["compilations"] == before + 2


class Overriding(TwoTensor):
    """One that also says what functions do, once for each call."""

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Overriding(inner["a"], inner["b"])

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
        return result * 10 if func is torch.sin else result

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        parts = [
            func(
                *pytree.tree_map_only(Overriding, lambda t: getattr(t, name), args), **kwargs or {}
            )
            for name in "ab"
        ]
        return pytree.tree_map(lambda a, b: Overriding(a, b), *parts)


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_functions_are_overridden_once(backend, dynamic):
    def program(x):
        return (torch.sin(x) + 1).unflatten(-1, [2, 2]), x.shape[0]

    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic, backend=backend)
    for rows in (3, 5):
        x = Overriding(torch.randn(rows, 4), torch.randn(rows, 4))
        (result, size), (expected, _) = compiled(x), program(x)
        same(result, expected)
        assert size == rows


def test_overrides_are_in_force_again_after_a_failure():
    def program(x, index):
        return torch.sin(x)[index]

    x = Overriding(torch.randn(3, 4), torch.randn(3, 4))
    compiled = pliant.compile(program)
    same(compiled(x, torch.tensor([0])), program(x, torch.tensor([0])))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([7]))
    same(torch.sin(x), program(x, torch.arange(3)))


MADE_INSIDE = {
    "made and used": lambda x: TwoTensor(x, x + 1) * 2,
    "made and written": lambda x: (TwoTensor(x * 2, x + 1).add_(1), x),
    "what was put inside": lambda x: TwoTensor(x, x + 1).a * 2,
    "one in another": lambda x: (TwoTensor(TwoTensor(x, x), TwoTensor(x, x)) + 1).a.b,
    "one of another class": lambda x: Scaled(x, x.sum(), "b") + 1,
    "its sizes": lambda x: TwoTensor(x, x).view(-1) * x.shape[0],
}


@pytest.mark.parametrize("name", MADE_INSIDE)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_made_inside(name, dynamic, backend):
    program = MADE_INSIDE[name]
    compiled = pliant.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
    for x in (torch.randn(3, 4), torch.randn(5, 4)):
        mine, expected = compiled(x.clone()), program(x.clone())
        for got, wanted in zip(pytree.tree_leaves(mine), pytree.tree_leaves(expected)):
            same(got, wanted)


def test_made_inside_holds_the_tensor_that_it_was_made_of():
    def program(x):
        return TwoTensor(x, x + 1).a is x, x * 2

    assert pliant.compile(program, backend="eager", fullgraph=True)(torch.ones(3))[0]


def test_the_error_of_a_constructor():
    compiled = pliant.compile(lambda x: TwoTensor(x, x[0]), backend="eager")
    with pytest.raises(AssertionError, match="Expected a.shape == b.shape"):
        compiled(torch.ones(2, 3))


Kinds = collections.namedtuple("Kinds", "shown held")


class Slotted(torch.Tensor):
    """A wrapper whose parts are in slots."""

    __slots__ = ("inside", "kinds")
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, inside, kinds):
        wrapper = torch.Tensor._make_wrapper_subclass(cls, inside.size(), dtype=kinds.shown)
        wrapper.inside, wrapper.kinds = inside, kinds
        return wrapper

    def __tensor_flatten__(self):
        return ["inside"], self.kinds

    @staticmethod
    def __tensor_unflatten__(inner, kinds, size, stride):
        return Slotted(inner["inside"], kinds)

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        plain = pytree.tree_map_only(Slotted, lambda t: t.inside, args)
        return func(*plain, **(kwargs or {}))


def test_parts_in_slots():
    def made(x):
        wrapper = Slotted(x, Kinds(torch.float32, torch.bfloat16))
        return wrapper.inside + 1, wrapper.kinds, wrapper + 2

    def given(wrapper):
        return wrapper.inside + 1, wrapper.kinds, wrapper + 2

    kinds = Kinds(torch.float32, torch.float16)
    for program, argument in ((made, torch.ones(3)), (given, Slotted(torch.ones(3), kinds))):
        compiled = pliant.compile(program, backend="eager", fullgraph=True)
        actual, expected = compiled(argument), program(argument)
        assert actual[1] == expected[1] and type(actual[1]) is Kinds
        assert torch.equal(actual[0], expected[0]) and torch.equal(actual[2], expected[2])
