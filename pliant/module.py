"""Modules: `pliant.compile(module)` gives a module that shares everything with the original.

The one idea: a compiled module is a stand-in without state. Attributes are the original's; a method
that is called through the stand-in runs on the original, and where it returns the original, its
caller gets the stand-in. The special methods that Python looks up on the class exist exactly where
the original's class has them, so each class of modules has a stand-in class of its own.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from pliant._native import Dispatcher, calls_through
from pliant.base import events
from pliant.base.position import Position

Module = torch.nn.Module


@calls_through  # without Python code of our own: this is on the way of every call
class CompiledModule(Module):
    """Stands for a module: its parameters, state, attributes, hooks and class are the original's.

    Calls run the compiled code. Everything else goes to the original module, reachable as
    `_orig_mod` (the name torch.compile uses, so that code that unwraps finds it). Copies and
    pickles are compiled as well, with the same settings; nothing compiled is stored.
    """

    _orig_mod: Module
    _dispatcher: Dispatcher
    _compile: Callable[[Any], Any]
    _forwards: dict[Any, Any]  # compiled, by function; made when one is called by its name
    _told: set[str]  # the methods of which it was said that they run the original
    _methods: ClassVar[dict[Any, Any]] = {}  # of each stand-in class; see `method_of`

    def __new__(cls, module: Module, *rest: Any) -> CompiledModule:
        return object.__new__(_class_for(type(module)))

    def __init__(
        self, module: Module, dispatcher: Dispatcher, compile: Callable[[Module], Any]
    ) -> None:
        # No torch.nn.Module.__init__: this object has no state of its own.
        self.__dict__.update(
            _orig_mod=module,
            _dispatcher=dispatcher,
            _compile=compile,
            _forwards={},
            _told=set(),
        )

    def __getattribute__(self, name: str) -> Any:
        if name in OWN:
            return object.__getattribute__(self, name)
        module = object.__getattribute__(self, "__dict__")["_orig_mod"]
        if name == "__signature__":  # of a call, which is not a Python function here
            return inspect.signature(module)
        if name == "__annotations__":  # which `torch.jit` reads, and instances lack on Python 3.14
            bases = type(module).__mro__
            return next(filter(None, map(inspect.get_annotations, bases)), {})
        value = getattr(module, name)
        if type(value) is types.MethodType and value.__self__ is module:
            return method_of(self, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})

    def __repr__(self) -> str:
        return f"CompiledModule({self._orig_mod!r})"

    def __copy__(self) -> Any:
        return self._compile(copy.copy(self._orig_mod))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # The original may refer to this object, which therefore exists before the copy does.
        copied = memo[id(self)] = object.__new__(type(self))
        copied.__setstate__((copy.deepcopy(self._orig_mod, memo), self._compile))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _blank, (), (self._orig_mod, self._compile)

    def __setstate__(self, state: Any) -> None:
        module, compile = state
        object.__setattr__(self, "__class__", _class_for(type(module)))
        self.__dict__.update(compile(module).__dict__)


OWN = frozenset(
    {
        "_orig_mod", "_dispatcher", "_compile", "_forwards", "_told", "__dict__", "__call__",
        "__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__setstate__",
    }
)  # fmt: skip


def _blank() -> CompiledModule:
    """What a pickle is loaded into."""
    return object.__new__(CompiledModule)


def method_of(compiled: CompiledModule, method: Any) -> Any:
    """A method of the original, as a method of its stand-in. Asked for twice, it is equal."""
    methods: dict[Any, Any] = type(compiled)._methods
    function = methods.get(method.__func__)
    if function is None:
        forwarding = bound_through(compiled, method).__func__
        function = methods[method.__func__] = functools.wraps(method.__func__)(forwarding)
    return types.MethodType(function, compiled)


def bound_through(compiled: CompiledModule, method: Any) -> Any:
    function = method.__func__

    def through(self: CompiledModule, /, *args: Any, **kwargs: Any) -> Any:
        module = self._orig_mod
        result = run_original(self, function, module, *args, **kwargs)
        return self if result is module else result

    return types.MethodType(through, compiled)


def original_method(method: types.MethodType) -> types.MethodType:
    """Of a method of a stand-in, the original's."""
    function, owner = method.__func__, method.__self__
    if not isinstance(owner, CompiledModule) or getattr(function, "__code__", None) is not THROUGH:
        return method
    wrapped: Any = function.__wrapped__  # type: ignore[attr-defined]
    return types.MethodType(wrapped, owner._orig_mod)


THROUGH = next(c for c in bound_through.__code__.co_consts if isinstance(c, types.CodeType))


# ---- a class for each class


# Neither class is kept alive, so that one garbage collection frees both with all they close over.
_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()
# Special methods that are never the original's: how the stand-in is made, kept and looked at.
NOT_FORWARDED = frozenset(
    {
        *vars(CompiledModule), *vars(Module), *vars(object), "__del__", "__getattr__",
        "__getstate__", "__reduce__", "__getnewargs__", "__getnewargs_ex__", "__call__",
        "__set_name__", "__class_getitem__", "__init_subclass__",
    }
) - {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__str__",
     "__format__", "__sizeof__"}  # fmt: skip


def _class_for(cls: type) -> type[CompiledModule]:
    """The class of the stand-ins for modules of a class."""
    reference = _classes.get(cls)
    stand_in = None if reference is None else reference()
    if stand_in is None:
        own = [base for base in cls.__mro__ if base not in Module.__mro__]
        names = {name for base in own for name in vars(base)} - NOT_FORWARDED
        namespace = {name: _forwarded(cls, name) for name in names if _is_special(cls, name)}
        namespace |= {"__module__": __name__, "__qualname__": "CompiledModule", "_methods": {}}
        namespace["forward"] = inspect.getattr_static(cls, "forward")  # FX asks the class for it
        stand_in = type("CompiledModule", (CompiledModule,), namespace)
        _classes[cls] = weakref.ref(stand_in)
    return stand_in


def _is_special(cls: type, name: str) -> bool:
    value = getattr(cls, name, None)
    return name[:2] == name[-2:] == "__" and (callable(value) or name == "__hash__")


def _forwarded(cls: type, name: str) -> Any:
    """A special method, which Python looks up on the class, that runs on the original."""
    if getattr(cls, name) is None:  # as `__hash__` of what has an `__eq__`
        return None

    def special(self: CompiledModule, /, *args: Any, **kwargs: Any) -> Any:
        module = self._orig_mod
        result = getattr(module, name)(*args, **kwargs)
        return self if result is module else result

    special.__name__ = special.__qualname__ = name
    return special


# ---- methods that run the original


def run_original(
    compiled: CompiledModule, function: Any, module: Module, /, *args: Any, **kwargs: Any
) -> Any:
    """Call a method on the original module. If it calls the module, which is not compiled there,
    that is told once."""
    name, attributes = getattr(function, "__name__", ""), vars(module)
    of_every_module = function is getattr(Module, name, None)
    in_place = attributes.get(CALL)
    watched = getattr(in_place, "__code__", None) is WATCHER  # by a method that calls this one
    if of_every_module or name in compiled._told or (in_place is not None and not watched):
        return function(module, *args, **kwargs)
    if name == "forward" or _is_step(name, module):  # compiled as well
        return _run_compiled(compiled, function, *args, **kwargs)
    if watched:
        return function(module, *args, **kwargs)

    def call(*args: Any, **kwargs: Any) -> Any:
        attributes[CALL] = None
        _tell(compiled, name, function)
        return module._call_impl(*args, **kwargs)

    attributes[CALL] = call
    try:
        return function(module, *args, **kwargs)
    finally:
        if attributes.get(CALL) in (call, None):
            attributes.pop(CALL, None)


WATCHER = next(
    code
    for code in run_original.__code__.co_consts
    if isinstance(code, types.CodeType) and code.co_name == "call"
)


def _run_compiled(compiled: CompiledModule, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call a method that is compiled as a call of the module is, but without the hooks."""
    module = compiled._orig_mod
    if (method := compiled._forwards.get(function)) is None:
        method = compiled._forwards[function] = compiled._compile(
            types.MethodType(function, module)
        )
    attributes = vars(module)
    watcher = attributes.pop(CALL, None)  # what is called in there is compiled
    try:
        return method(*args, **kwargs)
    finally:
        if watcher is not None:
            attributes[CALL] = watcher


STEPS = frozenset({"training_step", "validation_step", "test_step", "predict_step"})
"""What a trainer of lightning calls instead of the module. Given what torch.compile returns, it has
these compiled."""
LIGHTNING = {(package, "LightningModule") for package in ("lightning", "pytorch_lightning")}


def _is_step(name: str, module: Module) -> bool:
    if name not in STEPS:
        return False
    names = {(base.__module__.partition(".")[0], base.__name__) for base in type(module).__mro__}
    return not names.isdisjoint(LIGHTNING)


CALL = "_compiled_call_impl"
"""The attribute of a module that `torch.nn.Module.__call__` calls, if it is not None."""


def keep_scriptable() -> None:
    """`torch.jit.script` takes an attribute that is no Python function for data, unless its name is
    in this list of PyTorch's, with those of other parts of every module."""
    names = torch.jit._recursive.ignored_attributes
    if CALL not in names:
        names.append(CALL)


def _tell(compiled: CompiledModule, name: str, function: Any) -> None:
    compiled._told.add(name)
    code = getattr(inspect.unwrap(function), "__code__", None)
    about = f"{type(compiled._orig_mod).__qualname__}.{name}"
    position = None if code is None else Position.of_code(code)
    events.emit(events.RanOriginal(function=about, position=position))


# ---- functions that call a module


def call_module(module: Module) -> types.FunctionType:
    """A function that calls a module exactly as its caller does: hooks see the same arguments.

    It knows the signature and the place of `forward`, so that guards and logs speak of arguments
    by their names.
    """

    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self(*args, **kwargs)

    return _stands_for_forward(forward, module)


def call_in_place(module: Module) -> types.FunctionType:
    """What a module that is compiled in place does when it is called."""

    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return self._call_impl(*args, **kwargs)

    return _stands_for_forward(forward, module)


def _stands_for_forward(function: Any, module: Module) -> types.FunctionType:
    function.__qualname__ = f"{type(module).__qualname__}.forward"
    return stands_for(function, module.forward)


def stands_for(function: Any, target: Callable[..., Any]) -> types.FunctionType:
    """Mark a function that only passes its arguments on with what it calls."""
    function.__wrapped__ = target
    with contextlib.suppress(TypeError, ValueError):
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = inspect.signature(target).parameters.values()
        function.argument_names = tuple(p.name for p in parameters if p.kind in kinds)
    named: types.FunctionType = function
    return named
