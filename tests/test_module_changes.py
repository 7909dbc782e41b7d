"""Modules that change after they were compiled, in every way that Python has."""

import threading
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events

X = torch.arange(6.0).reshape(2, 3)


class Inner(nn.Module):
    factor = 1.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("shift", torch.ones(3))
        self.scale = 2.0

    def forward(self, x):
        x = self.linear(x) * self.scale * self.factor + self.shift
        return x * 10 if self.training else x


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Inner()
        self.layers = nn.ModuleList([Inner(), Inner()])

    def forward(self, x):
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return x


def double(module, args, result=None):
    return result * 2 if result is not None else (args[0] * 2,)


def new_linear():
    torch.manual_seed(5)
    return nn.Linear(3, 3)


def other_parameter():
    return nn.Parameter(torch.full((3, 3), 0.5))


def subclass(model):
    class Negated(Inner):
        def forward(self, x):
            return -super().forward(x)

    model.layers[1].__class__ = Negated


def class_attribute(model):
    Inner.factor = 3.0


def instance_shadows_class(model):
    model.first.__dict__["factor"] = 5.0


def method_on_instance(model):
    model.first.forward = lambda x: x + 1


def resized_parameter(model):
    linear = model.layers[1].linear
    linear.weight.data = torch.ones(4, 3)
    linear.bias.data = torch.ones(4)
    model.layers[1].shift = torch.ones(4)


def replaced_dict(model):
    old = model.first.__dict__
    model.first.__dict__ = {**old, "scale": 7.0}


def replaced_hooks(model):
    model.first._forward_hooks = OrderedDict({0: double})


def hooks_and_back(model):
    handle = model.first.register_forward_hook(double)
    handle.remove()
    model.first.linear._forward_pre_hooks[9] = double


CHANGES = {
    "setattr": lambda m: setattr(m.first, "scale", 4.0),
    "object.__setattr__": lambda m: object.__setattr__(m.layers[0], "scale", 4.0),
    "dict": lambda m: m.layers[1].__dict__.update(scale=4.0),
    "vars": lambda m: vars(m.first).__setitem__("scale", -1.0),
    "dict replaced": replaced_dict,
    "training": lambda m: m.train(),
    "training of one": lambda m: m.layers[0].train(),
    "training in the dict": lambda m: m.layers[0].__dict__.update(training=True),
    "hook": lambda m: m.layers[0].register_forward_hook(double),
    "hook, deep": lambda m: m.layers[1].linear.register_forward_hook(double),
    "pre-hook": lambda m: m.layers[0].register_forward_pre_hook(double),
    "hook in the dict": lambda m: m.first._forward_hooks.update({3: double}),
    "hooks replaced": replaced_hooks,
    "hooks and back": hooks_and_back,
    "global hook": lambda m: nn.modules.module.register_module_forward_hook(double),
    "parameter": lambda m: setattr(m.first.linear, "weight", other_parameter()),
    "parameter in the dict": lambda m: m.first.linear._parameters.update(weight=other_parameter()),
    "parameter gone": lambda m: m.first.linear._parameters.update(bias=None),
    "parameter registered": lambda m: m.layers[0].linear.register_parameter("bias", None),
    "parameter's data": lambda m: m.layers[0].linear.weight.data.zero_(),
    "parameter, other size": resized_parameter,
    "parameter, other dtype": lambda m: m.double(),
    "requires_grad": lambda m: m.layers[0].linear.requires_grad_(False),
    "buffer": lambda m: setattr(m.layers[1], "shift", torch.full((3,), 9.0)),
    "buffer in the dict": lambda m: m.layers[1]._buffers.update(shift=torch.full((1,), 9.0)),
    "buffer gone": lambda m: m.layers[1].__delattr__("shift"),
    "submodule": lambda m: setattr(m.first, "linear", new_linear()),
    "submodule in the dict": lambda m: m.first._modules.update(linear=new_linear()),
    "submodule of another class": lambda m: setattr(m.layers[0], "linear", nn.Identity()),
    "appended": lambda m: m.layers.append(Inner().eval()),
    "popped": lambda m: m.layers._modules.pop("1"),
    "deleted": lambda m: m.layers.__delitem__(0),
    "reordered": lambda m: m.layers._modules.update({"0": m.layers[1], "1": m.layers[0]}),
    "class": subclass,
    "class attribute": class_attribute,
    "shadowed": instance_shadows_class,
    "method": method_on_instance,
}


@pytest.fixture(autouse=True)
def put_back():
    yield
    Inner.factor = 1.0
    nn.modules.module._global_forward_hooks.clear()


def built():
    torch.manual_seed(0)
    return Outer().eval()


def outcome(function, x):
    try:
        result = function(x)
    except (RuntimeError, AttributeError) as error:
        return type(error)
    return result.detach().tolist(), result.dtype, result.requires_grad


def in_this_thread(change, model):
    change(model)


def in_another_thread(change, model):
    thread = threading.Thread(target=change, args=(model,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("where", [in_this_thread, in_another_thread])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_change(change, where):
    model = built()
    compiled = pliant.compile(model, backend="eager")
    before = outcome(compiled, X)
    assert before == outcome(compiled, X) == outcome(model, X)
    where(change, model)
    x = X.to(next(model.parameters()).dtype)
    expected = outcome(model, x)
    assert outcome(compiled, x) == expected == outcome(compiled, x)


def test_changes_that_do_not_matter_are_no_reason_to_compile_again():
    model = built()
    compiled = pliant.compile(model, backend="eager")
    compiled(X)
    pliant.base.events.counters.reset()
    for number in range(5):
        model.first.note = number
        model.layers[0].__dict__[f"note_{number}"] = number
        handle = model.first.register_forward_hook(double)
        handle.remove()
        torch.testing.assert_close(compiled(X), model(X))
    assert pliant.base.events.counters["compilations"] == 0


# ---- attributes that are places in an object


class Slotted:
    __slots__ = ("extra", "value")

    def __init__(self, value):
        self.value = value


def test_slots():
    holder = Slotted(2.0)

    def f(x):
        return x * holder.value

    compiled = pliant.compile(f, backend="eager", dynamic=False)
    for value in (2.0, 3.0, 2.0, torch.full((3,), 5.0), torch.full((3,), 6.0), torch.ones(1)):
        holder.value = value
        assert torch.equal(compiled(X), X * value)
        assert torch.equal(compiled(X), X * value)
    del holder.value
    with pytest.raises(AttributeError):
        compiled(X)
    holder.value = 4.0
    assert torch.equal(compiled(X), X * 4)


def test_a_slot_that_becomes_a_property():
    class Own:
        __slots__ = ("value",)

    holder = Own()
    holder.value = 2.0

    def f(x):
        return x * holder.value

    compiled = pliant.compile(f, backend="eager", dynamic=False)
    assert torch.equal(compiled(X), X * 2)
    member = Own.value
    Own.value = property(lambda self: 3.0)
    assert torch.equal(compiled(X), X * 3)
    Own.value = member
    assert torch.equal(compiled(X), X * 2)
    Own.__getattribute__ = lambda self, name: 4.0
    assert torch.equal(compiled(X), X * 4)


def test_the_object_with_the_slot_is_replaced():
    holders = [Slotted(2.0)]

    def f(x):
        return x * holders[0].value

    compiled = pliant.compile(f, backend="eager", dynamic=False)
    assert torch.equal(compiled(X), X * 2)
    for value in range(3, 8):
        holders[0] = Slotted(float(value))  # often at the address of the last but one
        assert torch.equal(compiled(X), X * value)

    class Other:
        value = 9.0

    holders[0] = Other()
    assert torch.equal(compiled(X), X * 9)


def test_defaults_of_functions():
    def scaled(x, factor=2.0, *, shift=1.0):
        return x * factor + shift

    def f(x):
        return scaled(x)

    compiled = pliant.compile(f, backend="eager", dynamic=False)
    assert torch.equal(compiled(X), X * 2 + 1)
    scaled.__defaults__ = (3.0,)
    assert torch.equal(compiled(X), X * 3 + 1)
    scaled.__kwdefaults__ = {"shift": 5.0}
    assert torch.equal(compiled(X), X * 3 + 5)
    scaled.__kwdefaults__["shift"] = 6.0
    assert torch.equal(compiled(X), X * 3 + 6)
    scaled.__defaults__ = None
    with pytest.raises(TypeError):
        compiled(X)


def test_bound_methods_and_properties():
    class Plain:
        def __init__(self, by):
            self.by = by

        def times(self, x):
            return x * self.by

        twice = property(lambda self: self.by * 2)

    one = Plain(3.0)
    held = [one.times]

    def f(x):
        return held[0](x) + one.twice

    compiled = pliant.compile(f, backend="eager", dynamic=False)
    assert torch.equal(compiled(X), X * 3 + 6)
    held[0] = Plain(4.0).times
    assert torch.equal(compiled(X), X * 4 + 6)
    Plain.twice = property(lambda self: self.by * 5)
    assert torch.equal(compiled(X), X * 4 + 15)


def test_one_function_under_two_names_of_classes():
    def call(self, x):
        return x + 1

    def other(self, x):
        return x + 2

    class A:
        run = call

    class B:
        run = call

    def f(x):
        return A().run(x) * B().run(x)

    compiled = pliant.compile(f, backend="eager")
    assert torch.equal(compiled(X), (X + 1) * (X + 1))
    B.run = other
    assert torch.equal(compiled(X), (X + 1) * (X + 2))
    A.run = other
    assert torch.equal(compiled(X), (X + 2) * (X + 2))


# ---- how often a changed module is compiled

ROWS = torch.linspace(-2.0, 2.0, 12).reshape(3, 4)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.act = "relu"

    def forward(self, x):
        return getattr(F, self.act)(self.linear(x))


def replace_weight(m):
    m.linear.weight = nn.Parameter(torch.ones(4, 4))


def load_another(m):
    m.load_state_dict(Scaled().state_dict(), assign=True)


def other_activation(m):
    m.act = "gelu"


def no_bias(m):
    m.linear.bias = None


def add_hook(m):
    m.linear.register_forward_hook(lambda module, args, out: out * 2)


def other_layer(m):
    m.linear = nn.Sequential(nn.Linear(4, 4), nn.Tanh())


def frozen(m):
    m.requires_grad_(False)


@pytest.mark.parametrize(
    "change, compilations",
    [
        (replace_weight, 1),
        (load_another, 1),
        (other_activation, 2),
        (no_bias, 2),
        (add_hook, 2),
        (other_layer, 2),
        (frozen, 2),
        (nn.Module.eval, 1),
        (nn.Module.double, 2),
    ],
)
def test_changed_module(change, compilations):
    torch.manual_seed(3)
    module = Scaled()
    compiled = pliant.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(ROWS), module(ROWS))
    change(module)
    x = ROWS.to(next(module.parameters()).dtype)
    for _ in range(2):
        actual, expected = compiled(x), module(x)
        torch.testing.assert_close(actual, expected)
        assert actual.requires_grad == expected.requires_grad
    assert events.counters["compilations"] == compilations
