"""PyTorch's global state during a capture: gradient mode, autocast, default dtype.

Functions that change it are run for real while the program is followed, so that the operations
after them behave accordingly, and are nodes of the graph. Each has an undo, applied when the
capture ends. Functions that ask for it are answered at once; one guard covers the whole state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.value import Const, Value
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

Undo = Callable[[], Callable[[], Any]]  # called before the change, gives what takes it back


def _restore(get: Callable[..., Any], put: Callable[..., Any], *key: Any) -> Undo:
    def undo() -> Callable[[], Any]:
        before = get(*key)
        # None stands for a setting of kernels that this build of PyTorch does not have.
        return functools.partial(put, *key, before) if before is not None else _nothing

    return undo


def _nothing() -> None:
    """What takes back a change that can't be made."""


def _autocast_state() -> Callable[[], Any]:
    """All of autocast, for every device type that has it."""
    devices = ("cpu", "cuda")
    enabled = [torch.is_autocast_enabled(device) for device in devices]
    dtypes = [torch.get_autocast_dtype(device) for device in devices]
    cache = torch.is_autocast_cache_enabled()

    def put_back() -> None:
        for device, flag, dtype in zip(devices, enabled, dtypes, strict=True):
            torch.set_autocast_enabled(device, flag)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache)

    return put_back


def _deterministic_state() -> Callable[[], Any]:
    return functools.partial(
        torch._C._set_deterministic_algorithms,
        torch._C._get_deterministic_algorithms(),
        warn_only=torch._C._get_deterministic_algorithms_warn_only(),
    )


def _anomaly_state() -> Callable[[], Any]:
    flags = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    return functools.partial(torch.set_anomaly_enabled, *flags)


def _settings() -> dict[Any, Any]:
    """For each setting of PyTorch's kernels, the function that returns it and the one that sets it:
    `_get_x` and `_set_x`, or for kinds of attention `_get_x_sdp_enabled` and `_set_sdp_use_x`."""
    writers = {}
    for name in dir(torch._C):
        if name.startswith(WRITABLE_NAMES):
            attention = name[5:].removesuffix("_sdp_enabled")
            for writer in (name.replace("_get_", "_set_", 1), f"_set_sdp_use_{attention}"):
                if hasattr(torch._C, writer):
                    writers[getattr(torch._C, name)] = getattr(torch._C, writer)
    return writers


def _flags() -> dict[Any, Any]:
    """The same of autograd's flags: `_is_x_enabled` and `_set_x_enabled`."""
    names = ("multithreading", "view_replay", "grad_layout_enforcement")
    pairs = [(f"_is_{name}_enabled", f"_set_{name}_enabled") for name in names]
    present = [pair for pair in pairs if hasattr(torch._C, pair[0])]
    return {getattr(torch._C, query): getattr(torch._C, writer) for query, writer in present}


def _forbid_hooks(message: str | None) -> None:
    """Forbid hooks on saved tensors, with this message, or allow them."""
    if message is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(message)


def _hooks_state() -> Callable[[], Any]:
    return functools.partial(_forbid_hooks, HOOKS_MESSAGE())


WRITABLE_NAMES = (
    "_get_warnAlways", "_get_nnpack_enabled", "_get_cpu_allow_fp16", "_get_deterministic_fill",
    "_get_cublas_", "_get_cudnn_", "_get_mkldnn_", "_get_onednn_", "_get_flash_sdp", "_get_fa3_sdp",
    "_get_mem_efficient", "_get_math_sdp", "_get_overrideable", "_get_sdp_priority",
    "_get_float32_matmul", "_cuda_get_cudnn",
)  # fmt: skip
SETTING_WRITERS = {**_settings(), **_flags()}
HOOKS_MESSAGE = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message

# Settings that have a key, the first arguments: the function that asks, and all keys.
LIBRARIES: list[tuple[str, ...]] = [(library, "all") for library in ("generic", "cuda", "mkldnn")]
OPERATORS: list[tuple[str, ...]] = [
    (library, op) for library, _ in LIBRARIES[1:] for op in ("conv", "rnn", "matmul")
]
KEYED: dict[Any, tuple[Any, list[tuple[str, ...]]]] = {
    getattr(torch._C, writer): (getattr(torch._C, query), LIBRARIES + OPERATORS)
    for writer, query in [("_set_fp32_precision_setter", "_get_fp32_precision_getter")]
    if hasattr(torch._C, writer)
}

WRITERS: dict[Any, Undo] = {
    **{writer: _restore(query, writer) for query, writer in SETTING_WRITERS.items()},
    **dict.fromkeys(KEYED, lambda: _nothing),  # see `undo_of`
    torch._C._autograd._saved_tensors_hooks_disable: _hooks_state,
    torch._C._autograd._saved_tensors_hooks_enable: _hooks_state,
    torch._C._set_grad_enabled: _restore(torch.is_grad_enabled, torch._C._set_grad_enabled),
    torch.set_autocast_enabled: _autocast_state,
    torch.set_autocast_dtype: _autocast_state,
    torch.set_autocast_cache_enabled: _autocast_state,
    torch.clear_autocast_cache: _autocast_state,
    torch.autocast_increment_nesting: lambda: torch.autocast_decrement_nesting,
    torch.autocast_decrement_nesting: lambda: torch.autocast_increment_nesting,
    torch._C._set_default_dtype: _restore(torch.get_default_dtype, torch._C._set_default_dtype),
    torch._C._set_deterministic_algorithms: _deterministic_state,
    torch.set_anomaly_enabled: _anomaly_state,
}

# Settings that are not part of the state that is always guarded, and get a guard if asked for.
SETTING_NAMES = (
    "_get_cublas", "_get_cudnn", "_get_mkldnn", "_get_flash", "_get_mem_efficient", "_get_math_sdp",
    "_get_overrideable", "_get_nested", "_get_linalg", "_get_blas", "_get_rocm", "_get_qengine",
    "_get_miopen", "_get_fp32", "_get_float32_matmul", "_get_warnAlways", "_get_sdp",
    "_get_onednn", "_get_fa3", "_get_cpu_allow", "_mtia_isBuilt", "_is_view_replay",
    "_is_multithreading", "_is_grad_layout", "_get_cpu_capability",
    "get_num_", "_accelerator_getAccelerator", "_get_accelerator", "_is_flash", "_cuda_isInBadFork",
    "_cuda_isCurrentStreamCapturing", "_cuda_get_cudnn",
)  # fmt: skip
QUERY_NAMES = (
    "is_", "get_default", "get_autocast", "_is_any_autocast", "_is_autocast", "_get_privateuse1",
    "_get_tracing", "_get_deterministic", "_is_torch_function", "_len_torch", "_has_torch",
    "_is_view",
)  # fmt: skip
# Counts how deep autocast is nested. Undone as often as it was done, not put back to a value.
NESTING = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)

# Those whose answer is not part of the state that is always guarded.
SETTINGS: frozenset[Any] = frozenset(
    (
        *(getattr(torch._C, name) for name in dir(torch._C) if name.startswith(SETTING_NAMES)),
        HOOKS_MESSAGE,
    )
)
QUERIES: frozenset[Any] = SETTINGS | {
    getattr(torch._C, name) for name in dir(torch._C) if name.startswith(QUERY_NAMES)
}
UNCOVERED: frozenset[Any] = frozenset(
    {
        *SETTINGS,
        torch.get_autocast_dtype,
        torch.is_anomaly_enabled,
        torch.is_anomaly_check_nan_enabled,
        torch._C._get_deterministic_fill_uninitialized_memory,
    }
)


OWN_WRITERS: dict[Any, Any] = {
    **SETTING_WRITERS,
    torch.is_anomaly_enabled: torch.set_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled: torch.set_anomaly_enabled,
    **{query: writer for writer, (query, _) in KEYED.items()},
    HOOKS_MESSAGE: _forbid_hooks,
}


def undo_of(trace: Trace, writer: Callable[..., Any], args: list[Value]) -> Callable[[], Any]:
    """What takes back the change that is about to be made."""
    if writer not in KEYED:
        return WRITERS[writer]()
    query, keys = KEYED[writer]
    # Settings that say nothing of their own follow others, so a change of one may change any.
    for key in keys:
        assume_answer(trace, query, [Const(part) for part in key])
    return _restore(query, writer, *(trace.read(arg).constant() for arg in args[: len(keys[0])]))()


def assume_answer(trace: Trace, query: Callable[..., Any], args: list[Value]) -> None:
    """Guard that this query had the same answer when the function was called. Not if the program
    has changed the setting itself."""
    writer = OWN_WRITERS.get(query)
    if writer is not None and any(getattr(undo, "func", None) is writer for undo in trace.undo):
        return  # the program has made it so
    real_args = tuple(trace.read(arg).constant() for arg in args)
    if query is torch.get_autocast_dtype:
        device = real_args[0]
        # While autocast is on, its dtype is part of the guarded state.
        if torch.is_autocast_enabled(device) or device not in trace.autocast_dtypes:
            return
        expected = trace.autocast_dtypes[device]
    else:
        expected = query(*real_args)
    name = f"torch.{getattr(query, '__name__', query)}"
    trace.guard(GuardKind.PREDICATE, Fixed(query, name), Gives(real_args, expected))
