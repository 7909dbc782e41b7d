"""Everything outside of pliant that a compilation might change and leave so."""

import gc
import hashlib
import logging
import random
import sys
import threading
import warnings

import numpy
import torch
from torch.autograd import forward_ad

from pliant.base import events
from pliant.base.options import config
from pliant.driver import stance

DEVICES = ("cpu", "cuda")
tracing_of_hooks = torch._C._autograd._saved_tensors_hooks_set_tracing


def _packing():
    before = tracing_of_hooks(False)
    tracing_of_hooks(before)
    return before


def _digest(state) -> str:
    return hashlib.sha256(repr(state).encode()).hexdigest()[:8]


LOCKS = (type(threading.Lock()), type(threading.RLock()))


def locks():
    """Those of pliant's modules, of the objects that all threads share, and of Python."""
    named = {"logging": logging._lock, "counters": events.counters._lock, "config": config._lock}
    if hasattr(warnings, "_lock"):  # since Python 3.14
        named["warnings"] = warnings._lock
    for module in [m for name, m in sys.modules.items() if name.startswith("pliant.")]:
        for name, value in vars(module).copy().items():
            if isinstance(value, LOCKS):
                named[f"{module.__name__}.{name}"] = value
    return named


def taken_lock():
    """A lock that is held, as another thread sees it, or None."""
    waits_for = []

    def take_each():
        for name, lock in locks().items():
            waits_for[:] = [name]
            with lock:
                pass
        waits_for.clear()

    thread = threading.Thread(target=take_each, daemon=True)
    thread.start()
    thread.join(timeout=5)
    return waits_for[0] if waits_for else None


def _autocast():
    each = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES]
    torch.autocast_increment_nesting()
    return each, torch.is_autocast_cache_enabled(), torch.autocast_decrement_nesting()


STATE = {
    "dispatch modes": torch._C._len_torch_dispatch_stack,
    "function modes": torch._C._len_torch_function_stack,
    "torch function": lambda: str(torch._C._get_torch_function_state()),
    "handled exception": lambda: repr(sys.exc_info()[1]),
    "gradients": torch.is_grad_enabled,
    "inference": torch.is_inference_mode_enabled,
    "forward gradients": torch._C._is_fwd_grad_enabled,
    "multithreaded backward": torch._C._is_multithreading_enabled,
    "autocast": _autocast,
    "default dtype": torch.get_default_dtype,
    "default device": torch.get_default_device,
    "deterministic": lambda: (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    ),
    "anomaly": lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
    "included keys": lambda: str(torch._C._dispatch_tls_local_include_set()),
    "excluded keys": lambda: str(torch._C._dispatch_tls_local_exclude_set()),
    "saved tensors": _packing,
    "hooks on saved tensors": torch._C._autograd._saved_tensors_hooks_is_enabled,
    "transforms": lambda: torch._C._functorch.peek_interpreter_stack() is None,
    "dual level": lambda: forward_ad._current_level,
    "checks": lambda: torch._check_with,
    "random numbers": lambda: _digest(torch.get_rng_state().tolist()),
    "random numbers of NumPy": lambda: _digest(numpy.random.get_state()),
    "random numbers of Python": lambda: _digest(random.getstate()),
    "errors of NumPy": numpy.geterr,
    "garbage collection": gc.isenabled,
    "recursion limit": sys.getrecursionlimit,
    "warning filters": lambda: (id(warnings.filters), list(warnings.filters)),
    "excepthook": lambda: (sys.excepthook, sys.getprofile()),
    "lock": taken_lock,
    "listeners": lambda: events._listeners,
    "stance": stance.current,
}


def global_state():
    return {name: ask() for name, ask in STATE.items()}


def changes(before) -> dict[str, object]:
    """What is not as it was, with what it was and what it is."""
    now = global_state()
    return {name: (before[name], now[name]) for name in now if before[name] != now[name]}
