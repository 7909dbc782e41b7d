"""`TorchFunctionMode`s of the program, entered inside or around compiled functions; devices."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.closeness import exact

LOG: list = []


class Logging(TorchFunctionMode):
    def __init__(self):
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        LOG.append(func.__name__)
        return func(*args, **(kwargs or {}))


class CosineForSine(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            return torch.cos(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


class OneMore(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **({} if kwargs is None else kwargs))
        return (
            result + 1 if func == torch.ones or func in (torch.zeros, torch.Tensor.neg) else result
        )


class Table(TorchFunctionMode):
    def __init__(self, table):
        self.table = table

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.table.get(func, func)(*args, **(kwargs or {}))


class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append("class")
        return super().__torch_function__(func, types, args, kwargs)


def logs(x):
    LOG.clear()
    with Logging() as mode:
        operators = x + 1, 1 - x, x @ x.T, -x, x[0], x < 1, x.shape, x.dtype
        functions = torch.sin(x), F.relu(x), F.softmax(x, -1), x.sum(), torch.ones(2)
    return operators, functions, mode.count, list(LOG)


def replaces(x):
    with CosineForSine():
        return torch.sin(x), x.sin()


def nests(x):
    LOG.clear()
    with Logging():
        with CosineForSine():
            y = torch.sin(x)
        z = torch.sin(y)
    return y, z, torch.sin(x), list(LOG)


def looks_up(x):
    with Table({torch.sin: torch.cos, torch.Tensor.sin: torch.exp, torch.tanh: torch.neg}):
        return torch.sin(x), x.sin(), torch.tanh(x), torch.abs(x)


def compares(x):
    with OneMore():
        return torch.ones(2), torch.zeros(2), -x, x.neg(), torch.full((2,), 3.0)


def sees_grad_mode(x):
    LOG.clear()
    with Logging(), torch.no_grad():
        y = x * 2
    return y, list(LOG)


def turns_off(x):
    with CosineForSine():
        with torch._C.DisableTorchFunction():
            a = torch.sin(x)
        with torch._C.DisableTorchFunctionSubclass():
            b = torch.sin(x)
    return a, b


def enters_itself(x):
    class Again(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.sin:
                with self:
                    return torch.cos(args[0]) + 1
            return func(*args, **(kwargs or {}))

    with Again():
        return torch.sin(x)


def raises(x):
    class Refusing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise ValueError(func.__name__)

    try:
        with Refusing():
            torch.sin(x)
    except ValueError as error:
        return str(error), torch.sin(x)


def before_classes(x):
    LOG.clear()
    s = x.as_subclass(Sub)
    with Logging():
        y = torch.add(s, x)
    return y, list(LOG)


def through_a_context_manager(x):
    @contextlib.contextmanager
    def swapped():
        with CosineForSine():
            yield

    with swapped():
        y = torch.sin(x)
    return y, torch.sin(x)


def through_a_base_mode(x):
    with BaseTorchFunctionMode():
        return torch.sin(x)


def on_devices(x):
    with torch.device("meta"):
        with CosineForSine():
            y = torch.sin(torch.ones(2))
        asked = torch.get_default_device()
    return y.device, asked, torch.ones(2) + x.sum()


def default_device(x):
    torch.set_default_device("cpu")
    y = torch.ones(2) + x.sum()
    torch.set_default_device(None)
    return y


INSIDE = [
    logs, replaces, nests, looks_up, compares, sees_grad_mode, turns_off, enters_itself, raises,
    before_classes, through_a_context_manager, through_a_base_mode, on_devices, default_device,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", INSIDE, ids=lambda function: function.__name__)
def test_inside(function, dynamic):
    check(function, torch.arange(6.0).reshape(2, 3), dynamic=dynamic)


def test_a_model_under_a_mode():
    def function(network, x):
        LOG.clear()
        with Logging():
            y = network(x)
        return y, list(LOG)

    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.BatchNorm1d(3), nn.LayerNorm(3))
    check(function, network, torch.randn(2, 3))


def test_a_break_under_a_mode():
    def function(x):
        with CosineForSine():
            y = torch.sin(x)
            pliant.graph_break()
            z = torch.sin(y)
        return torch.sin(z)

    check(function, torch.ones(3), breaks=1)


def around(make, function, *args, compilations=None):
    """Compare calls under a context."""
    events.counters.reset()
    compiled = pliant.compile(function, fullgraph=True)
    for _ in range(3):
        with make():
            expected = function(*args)
        with make():
            actual = compiled(*args)
        torch.testing.assert_close(actual, expected, **exact())
    if compilations is not None:
        assert events.counters["compilations"] == compilations


def test_one_mode_around():
    mode = CosineForSine()
    around(lambda: mode, lambda x: torch.sin(x) + torch.ones(3), torch.ones(3), compilations=1)


def test_new_modes_around():
    around(CosineForSine, lambda x: torch.sin(x), torch.ones(3))


def test_the_graph_does_not_ask_the_mode_again():
    mode = Logging()

    def calls(function):
        LOG.clear()
        with mode:
            function(torch.ones(3))
        return list(LOG)

    function = lambda x: torch.relu(x) + 1  # noqa: E731
    compiled = pliant.compile(function, fullgraph=True)
    assert calls(compiled) == calls(function)
    assert calls(compiled) == calls(function)


def test_devices_around():
    function = lambda x: (torch.ones(3) + x, torch.get_default_device().type == "cpu")  # noqa: E731
    around(lambda: torch.device("cpu"), function, torch.ones(3), compilations=1)
    torch.set_default_device("cpu")
    try:
        around(contextlib.nullcontext, function, torch.ones(3), compilations=1)
    finally:
        torch.set_default_device(None)


def test_a_device_around_decides():
    compiled = pliant.compile(lambda: torch.ones(2), fullgraph=True)
    assert compiled().device.type == "cpu"
    with torch.device("meta"):
        assert compiled().device.type == "meta"
    assert compiled().device.type == "cpu"


@pytest.mark.parametrize("block", [torch._C.DisableTorchFunction, contextlib.nullcontext])
def test_turned_off_around(block):
    s = torch.ones(3).as_subclass(Sub)
    compiled = pliant.compile(lambda s: s + s, fullgraph=True)
    with block():
        assert type(compiled(s)) is type(s + s)


class Zero(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 0 if func is torch.ops.aten.sin.default else result


def test_dispatch_modes_are_left_to_python():
    def function(x):
        y = x * 2
        with Zero():
            z = torch.sin(y)
        return torch.sin(z + 1)

    check(function, torch.ones(3), breaks=None)
    around(Zero, lambda x: torch.sin(x), torch.ones(3), compilations=0)


# ---- the classes that an override is shown


class TellsClasses(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, [shown.__name__ for shown in types]


class TellsClassesToo:
    __torch_function__ = TellsClasses.__torch_function__


SHOWING = {
    "a function of C": lambda x, other: torch.add(x, other),
    "of Python": lambda x, other: F.mse_loss(x, other),
    "the other first": lambda x, other: F.mse_loss(other, x),
    "of several tensors": lambda x, other: torch.block_diag(x, other, x),
    "of a parameter": lambda x, other: F.mse_loss(nn.Parameter(x), other),
    "an operator": lambda x, other: x - other,
    "a reflected operator": lambda x, other: other - x,
    "an operator written in Python": lambda x, other: x**other,
    "a method": lambda x, other: x.__rsub__(other),
}


@pytest.mark.parametrize("make", [lambda: torch.ones(2).as_subclass(TellsClasses), TellsClassesToo])
@pytest.mark.parametrize("name", SHOWING)
def test_ordinary_tensors_are_shown_by_python_code(name, make):
    eager = SHOWING[name](torch.ones(2), make())
    assert pliant.compile(SHOWING[name], fullgraph=True)(torch.ones(2), make()) == eager
