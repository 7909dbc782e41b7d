"""What a program can say to the compiler from inside: break here, am I compiled, leave this alone.

Programs written for torch.compile say the same things in PyTorch's words; those are understood too.
They are recognised by name, because pliant does not import PyTorch's compiler.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant._native import Dispatcher
from pliant.base.errors import NotCallableError
from pliant.base.options import Patch
from pliant.base.strict import get_error_on_graph_break, set_error_on_graph_break
from pliant.base.weak import ByIdentity
from pliant.capture.model import call
from pliant.capture.native import FUNCTIONS, Handler, function
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, NONE, Break, Const, Value, boolean

MARK = "_pliant_disabled"
IN_GRAPH = "_pliant_in_graph"
CONSTANT = "_pliant_constant_result"


def graph_break(msg: str = "") -> None:
    """End the graph here and go on in a new one. Outside of compiled code it does nothing.

    Args:
        msg: accepted as by `torch._dynamo.graph_break`, and not shown.
    """


def skip_frame(msg: str = "") -> None:
    """Run the function that calls this in plain Python, from its start. Outside of compiled code it
    does nothing. As `torch._dynamo.skip_frame`.

    Args:
        msg: accepted, and not shown.
    """


def step_unsupported(msg: str = "") -> None:
    """End the graph here and run the rest of the function in plain Python; its callers go on in a
    graph. Outside of compiled code it does nothing. As `torch._dynamo.step_unsupported`.

    Args:
        msg: accepted, and not shown.
    """


def is_compiling() -> bool:
    """True while pliant follows the program, False when it runs uncompiled."""
    return False


def disable(
    fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """Mark a function to run in plain Python: it breaks the graph, and is never captured.

    As `torch.compiler.disable`; it is used with and without parentheses.

    Args:
        fn: the function. Without it, the result is a decorator.
        recursive: accepted; what the function calls is not compiled either way.
        reason: for whoever reads the code.
    """
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, Dispatcher):
        fn = fn.fn
    if not callable(fn):
        raise NotCallableError(
            f"pliant.disable needs a function, and got an object of type {type(fn).__name__}"
        )

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    setattr(run, MARK, reason or True)
    return run


def allow_in_graph(fn: Any) -> Any:
    """Mark a function as an operation: a node of the graph that is called as it is.

    As `torch.compiler.allow_in_graph`. Capture does not look inside. The function takes and returns
    tensors and plain data; what it reads besides its arguments is not guarded, and it may be run on
    tensors without data when it is captured.

    Args:
        fn: a function, or a list of functions.
    """
    if isinstance(fn, list | tuple):
        return [allow_in_graph(function) for function in fn]
    return _marked(fn, IN_GRAPH, "allow_in_graph")


def nonstrict_trace(traceable_fn: Callable[..., Any]) -> Callable[..., Any]:
    """As `allow_in_graph`, for functions that take and return nested containers, or take modules.

    It is what `torch._dynamo.nonstrict_trace` is for torch.compile.
    """
    return _marked(traceable_fn, IN_GRAPH, "nonstrict_trace")


def assume_constant_result(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function whose result never changes: it is called once, when it is captured.

    As `torch.compiler.assume_constant_result`. Nothing is guarded: a function whose result does
    change gives wrong results.
    """
    return _marked(fn, CONSTANT, "assume_constant_result")


def _marked(fn: Any, mark: str, name: str) -> Any:
    if not callable(fn):
        raise NotCallableError(
            f"pliant.{name} needs a function, and got an object of type {type(fn).__name__}"
        )
    target = fn.fn if isinstance(fn, Dispatcher) else fn
    try:
        setattr(target, mark, True)
    except AttributeError:  # a built-in function
        MARKED.put(target, mark)
    return fn


MARKED: ByIdentity[str] = ByIdentity()  # callables that have no place for a mark
SUBSTITUTES: dict[Any, Callable[..., Any]] = {}


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the Python equivalent of a function that can't be captured, such as one in C.

    As `torch.compiler.substitute_in_graph`: where the program calls `original_fn`, compiled code
    follows the decorated function.

    Args:
        original_fn: the function that can't be captured.
        can_constant_fold_through: accepted, without effect.
        skip_signature_check: accepted; signatures are not compared.
    """
    if not callable(original_fn):
        raise NotCallableError("pliant.substitute_in_graph needs the function to stand in for")

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        if original_fn in SUBSTITUTES:
            raise ValueError(f"{original_fn!r} has a substitute already")
        SUBSTITUTES[original_fn] = fn

        @functools.wraps(fn)
        def original(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        SUBSTITUTES[original] = fn
        return original

    return register


class error_on_graph_break:
    """Say whether a graph break is an error in a part of a program.

    A context manager and a decorator, which nest, as `torch._dynamo.error_on_graph_break`.
    `compile(fullgraph=True)` always wins.

    Args:
        error_on_graph_break: True raises `GraphBreakError` at a break in here; False allows it.
    """

    def __init__(self, error_on_graph_break: bool) -> None:
        if type(error_on_graph_break) is not bool:
            raise TypeError(f"error_on_graph_break: {error_on_graph_break!r} is not True or False")
        self.flag = error_on_graph_break
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(get_error_on_graph_break())
        set_error_on_graph_break(self.flag)

    def __exit__(self, *error: object) -> None:
        set_error_on_graph_break(self.before.pop())

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs)

        return inside


# Packages whose Python code ends in what no graph can hold, and why. Following them would only find
# out late that they can't be captured; everything else is followed as far as it goes. To each, its
# modules that are followed all the same.
_FILES = "reads and writes files"
_PROCESSES = "starts processes and threads, or talks to them"
_IMPORTS = "runs modules, which is the interpreter's state"
_COMPILER = "is a compiler or a tracer of its own, in the middle of its work"
_REGISTRY = "changes PyTorch's dispatcher"
_NATIVE = "is a driver of native code that has no meaning without the tensors' data"
NOT_FOLLOWED: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        (
            "torch.serialization", "torch.hub", "torch.package", "tempfile", "shutil", "pickle",
            "linecache", "traceback",
        ),
        (_FILES, ()),
    ),
    **dict.fromkeys(
        (
            "threading", "multiprocessing", "subprocess", "asyncio", "concurrent", "socket",
            "torch.multiprocessing", "torch.utils.data",
        ),
        (_PROCESSES, ()),
    ),
    "importlib": (_IMPORTS, ()),
    "logging": ("writes to wherever the program's handlers say", ()),
    **dict.fromkeys(("torch._inductor", "torch.onnx", "torch._logging"), (_COMPILER, ())),
    "triton.runtime": (_COMPILER, ()),  # a kernel of the program's is compiled when it is called
    **dict.fromkeys(("torch._library", "torch.library"), (_REGISTRY, ())),
    "torch.profiler": (_NATIVE, ()),
    "torch.autograd": (
        _NATIVE,
        ("anomaly_mode", "forward_ad", "function", "functional", "grad_mode", "profiler"),
    ),
    "torch.jit": (_COMPILER, ("_state",)),
    "torch.export": (_COMPILER, ("_unlift", "unflatten")),  # what runs the programs
    "torch.fx.experimental.proxy_tensor": (_COMPILER, ()),
    "torch._functorch": (
        _COMPILER,
        ("apis", "batch_norm_replacement", "eager_transforms", "functional_call", "vmap"),
    ),
    "torch._higher_order_ops": (_COMPILER, ("associative_scan",)),
    # Its tests and what they are written with are programs like others.
    "torch._dynamo": (_COMPILER, ("polyfills", "test_case", "testing")),
}  # fmt: skip


# In those packages: what reads no source files, what is made of locks, what only asks, and the
# directives of PyTorch that are made of Python code.
FOLLOWED_FUNCTIONS = (
    ("traceback", "clear_frames"),
    ("traceback", "walk_stack"),
    ("traceback", "walk_tb"),
    ("threading", "Condition"),
    ("threading", "Event"),
    ("torch.autograd.graph", "disable_saved_tensors_hooks"),
    ("torch._higher_order_ops.invoke_subgraph", "mark_compile_region"),
    ("torch.jit", "annotate"),
    ("torch.jit", "isinstance"),
    ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager"),
    ("torch._dynamo.decorators", "error_on_graph_break"),
    ("torch._dynamo.external_utils", "wrap_dunder_call_ctx_manager"),
)


_MOCKS = ("Base", "CallableMixin", "MagicMixin", "NonCallableMock")
# In packages that are followed. Mocks keep a record of their calls, so that no two calls find the
# same; while FX traces, nothing is compiled, so a break in the middle would end all compilation.
UNFOLLOWED = {
    *(("unittest.mock", name) for name in _MOCKS),
    *(("torch.fx._symbolic_trace", name) for name in ("Tracer", "symbolic_trace")),
}


def is_followed(fn: Any) -> bool:
    """Whether a Python function of this module is followed at all."""
    module = fn.__module__ or ""
    name = (module, fn.__qualname__.partition(".")[0])
    if name in FOLLOWED_FUNCTIONS:
        return True
    if name in UNFOLLOWED:
        return False
    package = module
    # The longest name that is listed decides: a package in a followed one may not be followed.
    while package:
        if package in NOT_FOLLOWED:
            return module.removeprefix(f"{package}.").partition(".")[0] in NOT_FOLLOWED[package][1]
        package = package.rpartition(".")[0]
    return True


TRACE_RULES = "torch._dynamo.trace_rules"  # has the marks of PyTorch's own functions of these names


def _mark(fn: Any, name: str) -> Any:
    """A mark on a function or a class. A `__getattr__` of the program's has no say."""
    find = inspect.getattr_static if hasattr(type(fn), "__getattr__") else getattr
    return find(fn, name, None)


def is_allowed_in_graph(fn: Any) -> bool:
    """Whether a function is marked with `allow_in_graph` or `nonstrict_trace`."""
    if _mark(fn, IN_GRAPH) or MARKED.get(fn) == IN_GRAPH:
        return True
    # Without importing it: if it isn't there, nobody has used PyTorch's own directives.
    rules: Any = sys.modules.get(TRACE_RULES)
    return rules is not None and (
        id(fn) in rules._allowed_callable_ids or id(fn) in rules._nonstrict_trace_callable_ids
    )


def has_constant_result(fn: Any) -> bool:
    marked = _mark(fn, CONSTANT) or _mark(fn, "_dynamo_marked_constant")
    return bool(marked) or MARKED.get(fn) == CONSTANT


def substitute_of(fn: Any) -> Callable[..., Any] | None:
    """What to follow instead of a function."""
    try:
        substitute = SUBSTITUTES.get(fn)
    except TypeError:  # unhashable
        return None
    return _mark(fn, "__torch_dynamo_polyfill__") if substitute is None else substitute


# Packages of PyTorch whose code takes another path under a compiler, with other results: optimizers
# compute other numbers, `TransformerEncoder` keeps what padding hides, a module skips hooks.
AS_IN_EAGER = ("torch.optim", "torch.nn.modules")


def is_disabled(fn: Any) -> bool:
    """Whether a function is marked with `disable`. Marks on PyTorch's own optimizers are for
    torch.compile alone, which sets them when it is first used."""
    if getattr(fn, MARK, False):
        return True
    by_pytorch = (fn.__module__ or "").startswith(AS_IN_EAGER)
    return bool(getattr(fn, "_torchdynamo_disable", False)) and not by_pytorch


@function(graph_break)
def handle_graph_break(trace: Trace, msg: Value | None = None) -> Value:
    if _in_pytorch(trace):
        return NONE
    raise Break("user", "graph_break()")


@function(skip_frame)
def handle_skip_frame(trace: Trace, msg: Value | None = None) -> Value:
    raise Break("skipped-frame", "skip_frame()")


@function(step_unsupported)
def handle_step_unsupported(trace: Trace, msg: Value | None = None) -> Value:
    raise Break("rest-of-frame", "step_unsupported()")


def _in_pytorch(trace: Trace) -> bool:
    """Whether PyTorch's own code asks, which is followed on the path that it takes uncompiled."""
    name = trace.frames[-1].globals.get("__name__") if trace.frames else ""
    return isinstance(name, str) and name.startswith(AS_IN_EAGER)


@function(
    is_compiling,
    torch.compiler.is_compiling,
    torch.compiler.is_dynamo_compiling,
    torch._utils.is_compiling,
)
def handle_is_compiling(trace: Trace) -> Value:
    return boolean(not _in_pytorch(trace))


@function(
    torch.compiler.is_exporting,
    torch.jit.is_scripting,
    torch.jit.is_tracing,
)
def handle_is_exporting(trace: Trace) -> Value:
    return FALSE


class Strictness(Value):
    """Whether graph breaks are errors, as the program has set it."""

    __slots__ = ("flag",)

    def __init__(self) -> None:
        super().__init__()
        self.flag = False

    def python_type(self) -> type:
        return Strictness

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Any, before: None) -> None:
        emit.line(f"{emit.constant(set_error_on_graph_break)}({self.flag})")


@function(get_error_on_graph_break)
def handle_get_strict(trace: Trace) -> Value:
    return boolean(trace.error_on_break)


@function(set_error_on_graph_break)
def handle_set_strict(trace: Trace, flag: Value) -> Value:
    trace.error_on_break = bool(trace.read(flag).constant())
    if trace.strictness is None:
        trace.strictness = Strictness()
    trace.strictness.flag = trace.error_on_break
    trace.mutate_always(trace.strictness)
    return NONE


def nothing(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    """What speaks to PyTorch's compiler about the next compilation, or to its runtime."""
    return NONE


function(torch.compiler.cudagraph_mark_step_begin)(nothing)
function(Patch.__enter__, Patch.__exit__)(nothing)  # what is compiled now has its options


@function(torch.compile)
def handle_compile(trace: Trace, model: Value | None = None, **settings: Value) -> Value:
    """It is compiled as a part of what calls it."""
    if model is None:
        raise Break("not-followed", "compile as a decorator")
    return model


def call_optimized_module(trace: Trace, module: Value, *args: Value, **kwargs: Value) -> Value:
    """What `torch.compile(module)` gives is followed like the module."""
    original = FUNCTIONS[torch.nn.Module.__getattr__](trace, module, Const("_orig_mod"))
    return call(trace, original, list(args), kwargs)


def _tagging(name: str) -> Handler:
    """A method of `torch.nn.Module` as it is once torch.compile was used: the original with a note
    for torch.compile about it, which some programs have it make more than once."""

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        method: Any = getattr(torch.nn.Module, f"__{name}__")
        code: types.CodeType = method.__code__
        while getattr(method, "__code__", None) is code:
            cells = dict(zip(code.co_freevars, method.__closure__ or (), strict=True))
            method = cells[name].cell_contents
        return call(trace, trace.wrap_pinned(method), list(args), kwargs)

    return handler


NOT_IMPORTED = ("torch._dynamo", "torch.fx.experimental", "pliant.api")
_DECORATORS, _FRAMES = "torch._dynamo.decorators", "torch._dynamo.eval_frame"
_MUTATION_GUARD, _INSTALL = "torch._dynamo.mutation_guard", "install_generation_tagging_init"
# PyTorch's names for the same things, which are not imported here.
BY_NAME: dict[tuple[str, str], Handler] = {
    ("torch._dynamo.decorators", "graph_break"): handle_graph_break,
    ("torch._dynamo.decorators", "skip_frame"): handle_skip_frame,
    ("torch._dynamo.decorators", "step_unsupported"): handle_step_unsupported,
    ("torch._dynamo.external_utils", "is_compiling"): handle_is_compiling,
    **{
        (module, f"_{verb}_error_on_graph_break"): handler
        for module in (_DECORATORS, _FRAMES, "torch._dynamo.utils")
        for verb, handler in (("get", handle_get_strict), ("set", handle_set_strict))
    },
    **{
        (_DECORATORS, name): nothing
        for name in (
            "mark_static",
            "mark_static_address",
            "mark_dynamic",
            "maybe_mark_dynamic",
            "mark_unbacked",
            "DynamoConfigPatchProxy.__enter__",
            "DynamoConfigPatchProxy.__exit__",
        )
    },
    (_FRAMES, "OptimizedModule.__call__"): call_optimized_module,
    **{
        (_MUTATION_GUARD, f"install_generation_tagging_init.<locals>.patched_{name}"): _tagging(
            name
        )
        for name in ("init", "setstate")
    },
    ("pliant.api", "compile"): handle_compile,
}


def handler_of(real: Any) -> Handler | None:
    """The handler of a Python function, by identity or by name."""
    handler = FUNCTIONS.get(real)
    if handler is None and real.__module__ is not None and real.__module__.startswith(NOT_IMPORTED):
        handler = BY_NAME.get((real.__module__, real.__qualname__))
    return handler
