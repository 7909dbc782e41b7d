"""The functions users call: `compile` and what goes with it."""

from __future__ import annotations

import copyreg
import functools
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import Dispatcher
from pliant.backends.registry import accepts, lookup, with_options
from pliant.base import events, logs
from pliant.base.dispatch_mode import DispatchMode
from pliant.base.errors import InvalidOptionError, NotCallableError, ScriptedModelError
from pliant.base.late import Late
from pliant.base.options import resolve, with_changes
from pliant.capture.native import FUNCTIONS
from pliant.driver import reporting, stance
from pliant.driver.pipeline import Compiler
from pliant.module import (
    CALL,
    CompiledModule,
    call_in_place,
    call_module,
    keep_scriptable,
    original_method,
    stands_for,
)
from pliant.sym import expr

if TYPE_CHECKING:
    from pliant.reports import explanation, page
    from pliant.reports import profile as profiles
    from pliant.reports.explanation import Explanation
else:
    explanation = Late("pliant.reports.explanation")
    page = Late("pliant.reports.page")  # which few programs write
    profiles = Late("pliant.reports.profile")

_compiled: weakref.WeakSet[Dispatcher] = weakref.WeakSet()  # everything `reset` has to forget


def compile(
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Compile a function, a method, a callable object or a module, as `torch.compile` does.

    Nothing is compiled before the first call. Use it as a function (`fast = pliant.compile(f)`), a
    decorator (`@pliant.compile`) or a decorator with options (`@pliant.compile(fullgraph=True)`).

    Args:
        model: what to compile. Without it, the result is a decorator.
        fullgraph: one graph, or a `GraphBreakError` that says what can't be captured and where.
        dynamic: None makes sizes symbolic when they are seen to change, True at once, False never.
        backend: a name of `list_backends()`, or `backend(gm, example_inputs) -> callable`. The
            default is `"llvm"`.
        mode: as for `torch.compile`; on a GPU and with the default backend,
            `"reduce-overhead"` and `"max-autotune"` record CUDA graphs, the latter tries which
            code is fastest, and so does `"max-autotune-no-cudagraphs"`. Not together with
            `options`.
        options: pliant's options for this function (see `config`), or those of the backend.
        disable: return `model` as it is.
        recompile_limit: the option of this name, for this function.
        isolate_recompiles: accepted, without effect: each call of `compile` has compilations and
            a limit of its own.

    Returns:
        A callable that is used like `model`. For a module, it is a module that shares all state
        with the original.

    Raises:
        NotCallableError: `model` can't be called.
        UnknownBackendError, UnknownOptionError, InvalidOptionError: there is no such backend or
            option, or the option doesn't take the value.
    """
    settings: dict[str, Any] = {
        "fullgraph": fullgraph, "dynamic": dynamic, "backend": backend, "mode": mode,
        "options": options, "disable": disable, "recompile_limit": recompile_limit,
        "isolate_recompiles": isolate_recompiles,
    }  # fmt: skip
    if model is None:
        return lambda model: compile(_checked(model), **settings)
    _checked(model)
    _check_dynamic(dynamic)
    chosen = lookup(backend)
    resolved = resolve(options, mode, strict=not accepts(chosen, "options"))
    if recompile_limit is not None:
        resolved = with_changes(resolved, {"recompile_limit": recompile_limit})
    if disable:
        return model
    compiler = Compiler(resolved, with_options(chosen, mode, options), fullgraph, dynamic)
    recompile = functools.partial(compile, **settings)
    return _wrap(model, compiler, recompile)


def _check_dynamic(dynamic: object) -> None:
    if not isinstance(dynamic, bool | None):
        raise InvalidOptionError(
            f"the parameter dynamic of compile() can't be {dynamic!r}",
            remedy="give True, False, or None to find out which sizes change",
        )


def compile_module(model: torch.nn.Module, **settings: Any) -> torch.nn.Module:
    """Compile the calls of a module in place, as `torch.nn.Module.compile` does.

    The module stays itself: its class, attributes and state are unchanged, and whoever calls it,
    its own methods included (`model.generate(...)`), runs compiled code. Copies and pickles are of
    the module alone and are not compiled. `uncompile_module` undoes it.

    Args:
        model: the module.
        **settings: the parameters of `compile`.

    Returns:
        `model` itself.
    """
    if not isinstance(model, torch.nn.Module):
        raise NotCallableError(
            f"pliant.compile_module needs a module, not an object of type {type(model).__name__}",
            remedy="pliant.compile compiles functions, methods and other callables.",
        )
    compiled: Any = compile(model, **settings)
    if compiled is model:  # disable=True
        return model
    module: torch.nn.Module = compiled._orig_mod
    compiler: Compiler = compiled._dispatcher.on_miss.__self__
    dispatcher = _remember(compiler.dispatcher(call_in_place(module)), compiled._compile, module)
    keep_scriptable()
    vars(module)[CALL] = types.MethodType(dispatcher, module)
    return model


def uncompile_module(model: torch.nn.Module) -> torch.nn.Module:
    """Undo `compile_module`: calls run the module as it is. Returns `model`."""
    module = model._orig_mod if isinstance(model, CompiledModule) else model
    vars(module).pop(CALL, None)
    return model


def _checked(model: Any) -> Any:
    if not callable(model) and not isinstance(model, classmethod):
        raise NotCallableError(
            f"pliant.compile needs a callable, and got an object of type {type(model).__name__}",
            remedy="Pass a function, a method, a callable object or an nn.Module.",
        )
    if isinstance(model, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        raise ScriptedModelError(
            f"a {type(model).__name__} can't be compiled",
            why="There is no Python code to follow: torch.compile does not support compiling "
            "torch.jit.script or torch.jit.freeze models, and neither does pliant.",
            remedy="Compile the Python function or module that was scripted.",
        )
    return model


def _wrap(model: Any, compiler: Compiler, recompile: Callable[..., Any]) -> Any:
    """The compiled stand-in for a callable of any kind. `recompile` is `compile` with the same
    settings."""
    if isinstance(model, Dispatcher):  # compiled before: the newest settings count
        model = model.fn
    if isinstance(model, CompiledModule):
        model = model._orig_mod
    if isinstance(model, torch.nn.Module):
        dispatcher = _remember(compiler.dispatcher(call_module(model)), recompile, model)
        return CompiledModule(model, dispatcher, recompile)
    if isinstance(model, types.FunctionType):
        if inspect.isgeneratorfunction(model) or inspect.iscoroutinefunction(model):
            return model  # runs in pieces, when its caller wants: there is no call to compile
        if model in FUNCTIONS:  # one of PyTorch's that is not followed, but known as a whole
            return _wrap_function(model, compiler, recompile)
        return _remember(compiler.dispatcher(model), recompile, model)
    if isinstance(model, staticmethod | classmethod):
        return type(model)(_wrap(model.__func__, compiler, recompile))
    if isinstance(model, types.MethodType):
        model = original_method(model)
        if model.__func__ is torch.nn.Module._call_impl:  # in `torch.nn.Module.compile`
            keep_scriptable()
        return types.MethodType(_wrap(model.__func__, compiler, recompile), model.__self__)
    return _wrap_function(model, compiler, recompile)


def _wrap_function(model: Any, compiler: Compiler, recompile: Callable[..., Any]) -> Any:
    """A callable that is no Python function is called from one."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    if isinstance(model, functools.partial):
        functools.update_wrapper(call, model.func)
    elif hasattr(model, "__name__"):
        functools.update_wrapper(call, model)
    else:
        call.__name__ = call.__qualname__ = type(model).__name__
    return _remember(compiler.dispatcher(stands_for(call, model)), recompile, model)


def explain(model: Callable[..., Any], **settings: Any) -> Callable[..., Explanation]:
    """Show what is compiled for a call, and why: `print(pliant.explain(f)(*args))`.

    This calls the function, compiled. If it has been compiled before, the explanation includes its
    earlier compilations.

    Args:
        model: what to compile, or something that `compile` returned.
        **settings: the parameters of `compile`.

    Returns:
        A function with the parameters of `model` that returns an `Explanation`.
    """
    is_compiled = isinstance(model, Dispatcher | CompiledModule) and not settings
    compiled = model if is_compiled else compile(model, **settings)

    def explained(*args: Any, **kwargs: Any) -> Explanation:
        result = compiled(*args, **kwargs)
        dispatcher: Any = compiled._dispatcher if isinstance(compiled, CompiledModule) else compiled
        dispatcher = getattr(dispatcher, "__func__", dispatcher)
        compiler: Compiler = dispatcher.on_miss.__self__
        return explanation.Explanation(result, compiler.functions.compiled(dispatcher))

    return explained


def report(path: str | os.PathLike[str]) -> page.Recording:
    """Record what pliant does, and write it as a page for a browser.

    ::

        with pliant.report("report.html"):
            train()

    The page needs no network and no other file: functions with their graph breaks, guards and
    kernels, why each was compiled again, what was decided about sizes. Without `with`, call
    `write()` of what is returned. `pliant run --report` does it for a whole program.

    Args:
        path: the file to write.
    """
    return page.Recording(path, reporting.described, _entries_used)


def profile() -> profiles.Profile:
    """Measure what compiled functions spend their time on.

    ::

        with pliant.profile() as p:
            train()
        print(p)                                  # a table
        p.export_chrome_trace("trace.json")       # for Perfetto

    For each compiled function, the rest of one after a graph break, and each backward: how often it
    was called and how often an entry fitted, the time in guards, kernels, operators of PyTorch and
    Python, and how many bytes the kernels read and wrote. On a GPU the time of a kernel is that
    of its launch; `torch.profiler` has the rest, and both traces can be one
    (`export_chrome_trace(path, torch_profile)`).

    Compiled functions are slowed down while they are measured, and not otherwise. Each call and
    step takes 56 bytes of memory until the profile is dropped.
    """
    return profiles.Profile(reporting.described)


def _entries_used() -> Iterator[events.EntryUsed]:
    """How often each entry was used that is still there."""
    for dispatcher in list(_compiled):
        compiler: Any = getattr(dispatcher.on_miss, "__self__", None)
        if isinstance(compiler, Compiler):
            about = reporting.described(dispatcher.fn)
            for entry in dispatcher.entries:
                yield events.EntryUsed(hits=entry.hits, index=entry.info.index, **about)


if log := os.environ.get("PLIANT_LOGS_JSON"):
    page.measure_until_exit(log, reporting.described, _entries_used)


def _remember(dispatcher: Dispatcher, recompile: Callable[..., Any], model: Any) -> Dispatcher:
    """Note what was compiled: for `reset`, and with its settings for pickles."""
    _compiled.add(dispatcher)
    dispatcher._made_by = recompile, model
    return dispatcher


def _reduce(dispatcher: Dispatcher) -> Any:
    """A compiled function is pickled by its name, as functions are; one that has none, or has
    another, is compiled again where it is loaded."""
    module = sys.modules.get(dispatcher.__module__)
    value: Any = module
    for part in dispatcher.__qualname__.split("."):
        value = getattr(value, part, None)
    if value is dispatcher or "_made_by" not in vars(dispatcher):
        return dispatcher.__qualname__
    for name, value in vars(module).items() if module is not None else ():
        if value is dispatcher:
            return name
    recompile, model = dispatcher._made_by
    return recompile, (model,)


copyreg.pickle(Dispatcher, _reduce)


def reset() -> None:
    """Forget everything compiled so far, and set all counters to 0.

    Compiled functions remain usable: the next call of each compiles it anew.
    """
    for dispatcher in list(_compiled):
        dispatcher.clear()
        dispatcher.mode = DispatchMode.COMPILE
        compiler: Any = getattr(dispatcher.on_miss, "__self__", None)
        if isinstance(compiler, Compiler):
            compiler.limits.forget()
            compiler.functions.forget()
    stance.forget()
    expr.forget()
    events.counters.reset()
    logs.user_warnings.reset()
