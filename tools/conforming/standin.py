"""Puts pliant where `torch.compile`, `torch.compiler` and `torch._dynamo` are, for PyTorch's tests.

The one idea: the tests call what they always call, and reach pliant's own objects. PyTorch's
compiler can't run meanwhile, so nothing passes because of it; a name that pliant lacks fails the
test that uses it, with an exception that no test expects.
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo
import torch._dynamo.test_case
import torch._dynamo.testing
import torch._inductor.test_case
import torch.testing._internal.common_utils
from torch._dynamo import convert_frame, decorators, eval_frame, symbolic_convert
from torch._dynamo.backends import registry

import pliant

NAMES = [
    "allow_in_graph",
    "assume_constant_result",
    "disable_nested_graph_breaks",
    "dont_skip_tracing",
    "error_on_graph_break",
    "explain",
    "graph_break",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "nested_compile_region",
    "nonstrict_trace",
    "on_compile_end",
    "on_compile_start",
    "override_optimization_hint",
    "patch_dynamo_config",
    "run",
    "set_stance",
    "skip_frame",
    "step_unsupported",
    "substitute_in_graph",
    "wrap_numpy",
    "OptimizedModule",
]
MODULES = (
    "torch", "torch.compiler", "torch._dynamo", "torch._dynamo.eval_frame",
    "torch._dynamo.decorators", "torch._dynamo.testing", "torch._dynamo.test_case",
    "torch._dynamo.callback", "torch._dynamo.utils", "torch._inductor.test_case",
    "torch.testing._internal.common_utils",
)  # fmt: skip
EXCEPTIONS = {
    "TorchDynamoException": pliant.errors.PliantError,
    "Unsupported": pliant.errors.GraphBreakError,
    "UserError": pliant.errors.UserError,
    "RecompileError": pliant.errors.RecompileError,
    "FailOnRecompileLimitHit": pliant.errors.RecompileLimitError,
    "BackendCompilerFailed": pliant.errors.BackendError,
}
BACKENDS = frozenset({"eager", "aot_eager", "inductor", "aot_eager_decomp_partition", "ts"})


class PyTorchsCompilerUsed(BaseException):
    """A test reached PyTorch's own compiler."""


def install() -> None:
    """Before any test file is imported."""
    originals = torch.compile, torch._dynamo.reset, eval_frame.optimize, eval_frame.optimize_assert
    stand_ins = compile, _reset_both(originals[1]), optimize, optimize_assert
    for original, stand_in in zip(originals, stand_ins, strict=True):
        _replace(original, stand_in)
    torch.compiler.compile, torch.compiler.reset = compile, stand_ins[1]
    _replace(decorators.disable, _disable(decorators.disable))
    for name in NAMES:
        stand_in = getattr(pliant, name, None) or getattr(pliant.compiler, name)
        for module in (torch._dynamo, decorators, eval_frame, torch.compiler):
            if name in vars(module):
                _replace(vars(module)[name], stand_in)
    for name, kind in EXCEPTIONS.items():
        setattr(torch._dynamo.exc, name, kind)
    torch._dynamo.utils.counters = Counters()
    torch.testing._internal.common_utils.make_dynamo_test = make_dynamo_test
    _forward_config()
    _stop_pytorchs_compiler()


def _replace(original: Any, stand_in: Any) -> None:
    for name in MODULES:
        namespace = vars(sys.modules[name])
        for key in [key for key, value in namespace.items() if value is original]:
            namespace[key] = stand_in


# ---- compiling


def compile(
    model: Any = None, *, backend: Any = None, mode: Any = None, options: Any = None, **rest: Any
) -> Any:
    """`torch.compile`. The tests' backends are given the graph; PyTorch's run it as it is."""
    if callable(backend):  # to backends with a name, both speak of PyTorch's compiler
        rest |= {"mode": mode, "options": options}
    settings = {name: value for name, value in rest.items() if value not in (None, False)}
    if rest.get("dynamic") is False:
        settings["dynamic"] = False
    settings["backend"] = _backend(backend)
    return pliant.compile(model, **settings) if model is not None else pliant.compile(**settings)


def _backend(backend: Any) -> Any:
    if backend is None or backend in BACKENDS:
        return "eager"
    return registry.lookup_backend(backend) if isinstance(backend, str) else backend


def optimize(backend: Any = None, *, nopython: bool = False, **rest: Any) -> Any:
    rest.pop("rebuild_ctx", None)
    return lambda function: compile(function, backend=backend, fullgraph=nopython, **rest)


def optimize_assert(backend: Any, **rest: Any) -> Any:
    return optimize(backend, nopython=True, **rest)


def _reset_both(original: Callable[[], None]) -> Callable[[], None]:
    def reset() -> None:
        original()
        pliant.reset()

    return reset


def _disable(original: Any) -> Any:
    def disable(
        fn: Any = None, recursive: bool = True, *, reason: Any = None, wrapping: bool = True
    ) -> Any:
        if not wrapping:  # PyTorch's own use
            return original(fn, recursive, reason=reason, wrapping=False)
        return pliant.disable(fn, recursive, reason=reason)

    return disable


def make_dynamo_test(function: Any = None) -> Any:
    """A test whose body has to be captured whole: a tensor operation behind it is in the graph."""
    if function is None:
        return make_dynamo_test

    @functools.wraps(function)
    def test(self: Any, **kwargs: Any) -> None:
        def probed(t: torch.Tensor) -> torch.Tensor:
            function(self, **kwargs)
            return t + 1

        function(self, **kwargs)
        torch._dynamo.reset()
        counter = torch._dynamo.testing.CompileCounter()
        result = optimize_assert(counter)(probed)(torch.ones(1))
        torch._dynamo.reset()
        assert result.item() == 2 and counter.frame_count == 1 and counter.op_count >= 1

    return test


class Counters(dict[str, Any]):
    """pliant's counters, as far as tests read them, in the nested form of PyTorch's."""

    def clear(self) -> None:
        pliant.counters.reset()

    def __missing__(self, name: str) -> collections.Counter[str]:
        if name == "graph_break":
            return collections.Counter(pliant.counters.breaks)
        graphs = pliant.counters["graphs"] if name == "stats" else 0
        return collections.Counter(unique_graphs=graphs)


# ---- options, and the compiler that must not run


def options() -> list[str]:
    """The options that both have."""
    return [name for name in torch._dynamo.config._config if name in dir(pliant.config)]


def _forward_config() -> None:
    shared = set(options())

    class Forwarding(type(torch._dynamo.config)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name in shared:
                setattr(pliant.config, name, value)

    object.__setattr__(torch._dynamo.config, "__class__", Forwarding)


def _stop_pytorchs_compiler() -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PyTorchsCompilerUsed

    def set_eval_frame(callback: Any) -> None:
        if callback not in (None, False):  # those only turn it off
            refuse()

    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("torch") and hasattr(module, "__dict__"):
            for name in ("set_eval_frame", "_maybe_set_eval_frame"):
                if callable(vars(module).get(name)):
                    setattr(module, name, set_eval_frame)
    for name in ("_compile", "compile_frame", "trace_frame"):
        setattr(convert_frame, name, refuse)
    for kind in (convert_frame.ConvertFrameAssert, convert_frame.ConvertFrame):
        kind.__call__ = refuse
    symbolic_convert.InstructionTranslatorBase.__init__ = refuse
