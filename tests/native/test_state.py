"""The global state that a compiled entry depends on."""

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pliant._native import GuardTree, State


class FunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class DispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_dtype():
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(old)


@contextlib.contextmanager
def deterministic(**kwargs):
    torch.use_deterministic_algorithms(True, **kwargs)
    yield
    torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def default_device():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


CONTEXTS = {
    "no_grad": (torch.no_grad, "grad_enabled == True, got False"),
    "inference": (torch.inference_mode, "inference == False, got True"),
    "autocast": (lambda: torch.autocast("cpu"), "autocast_cpu == False, got True"),
    "autocast dtype": (
        lambda: torch.autocast("cpu", dtype=torch.float16),
        "autocast_cpu_dtype == None, got torch.float16",
    ),
    "autocast cache": (
        lambda: torch.autocast("cpu", cache_enabled=False),
        "autocast_cache == True, got False",
    ),
    "dtype": (default_dtype, "default_dtype == torch.float32, got torch.float64"),
    "deterministic": (deterministic, "deterministic == False, got True"),
    "warn only": (
        lambda: deterministic(warn_only=True),
        "deterministic_warn_only == False, got True",
    ),
    "function mode": (FunctionMode, "function_modes == 0, got 1"),
    "device": (lambda: torch.device("meta"), "function_modes == 0, got 1"),
    "default device": (default_device, "function_modes == 0, got 1"),
    "dispatch mode": (DispatchMode, "dispatch_modes == 0, got 1"),
    "no function": (torch._C.DisableTorchFunction, "function_disabled == 0, got 2"),
    "no subclass": (torch._C.DisableTorchFunctionSubclass, "function_disabled == 0, got 1"),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_every_context_is_seen(name):
    context, difference = CONTEXTS[name]
    outside = State.current()
    tree = GuardTree(0)
    tree.check_state(outside, "state")
    tree.finish()
    with context():
        inside = State.current()
        assert inside != outside and inside == State.current()
        assert tree.check(()) == ("state", None)
        assert difference in outside.diff(inside)
    assert State.current() == outside and outside.diff(outside) == ""
    assert tree.check(()) is None


def test_functorch_is_seen():
    outside = State.current()
    seen = []
    torch.func.vmap(lambda x: seen.append(State.current()) or x)(torch.ones(2))
    assert seen[0].functorch and not outside.functorch and seen[0] != outside


def test_the_same_default_device_again():
    with torch.device("meta"):
        first = State.current()
    with torch.device("meta"):
        assert State.current() == first
    with torch.device("cpu"):
        assert State.current() != first
        assert first.diff(State.current()) == "other torch modes are active"


def test_another_mode_is_another_state():
    with FunctionMode() as mode:
        first = State.current()
    with FunctionMode():
        assert State.current() != first
    with mode:
        assert State.current() == first


def test_fields_and_text():
    state = State.current()
    assert state.grad_enabled is True and state.default_dtype is torch.float32
    assert state.autocast_cpu_dtype is None and state.dispatch_modes == 0
    assert str(state) == "grad_enabled=True, default_dtype=torch.float32"
    with torch.autocast("cpu"):
        assert State.current().autocast_cpu_dtype is torch.bfloat16
    with pytest.raises(AttributeError):
        state.grad_enabled = False
    with pytest.raises(TypeError):
        State()
    with pytest.raises(TypeError):
        hash(state)
