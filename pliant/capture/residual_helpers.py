"""Functions that residual code calls by itself, where Python has no expression for what is
needed."""

from __future__ import annotations

import abc
import sys
import types
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn

import torch

from pliant.base.checks import NotAsCaptured
from pliant.base.python_errors import MANAGER_METHODS, no_manager, type_name
from pliant.base.random_states import RandomStates
from pliant.base.tracebacks import rewrite

GeneratorObject = Generator[Any, Any, Any]


def primed(generator: GeneratorObject) -> GeneratorObject:
    """Bring a generator made to continue another to the `yield` where that one was suspended."""
    next(generator)
    return generator


def finished_generator() -> GeneratorObject:
    """A generator that has nothing left to give."""
    no_items: tuple[Any, ...] = ()
    generator = (item for item in no_items)
    next(generator, None)
    return generator


def merge(target: dict[str, Any], added: Any, callee: str) -> None:
    """Add the keyword arguments `**added` of a call of `callee`."""
    if not hasattr(added, "keys"):
        name = type_name(type(added))
        raise TypeError(f"{callee}() argument after ** must be a mapping, not {name}")
    for key in added.keys():  # noqa: SIM118  not every mapping is a dictionary
        if key in target:
            raise TypeError(f"{callee}() got multiple values for keyword argument '{key}'")
        target[key] = added[key]


def enter(manager: Any) -> tuple[Any, Any]:
    """What `with manager` does first: its `__exit__`, and what its `__enter__` gives."""
    start = special_method(manager, "__enter__")
    leave = special_method(manager, "__exit__")
    return leave, start()


def special_method(manager: Any, name: str) -> Any:
    """A method of a context manager, or what Python says if there is none."""
    method = _special(manager, name)
    if method is None:
        cls = type(manager)
        methods = [
            method_name
            for method_name in MANAGER_METHODS
            if _special(manager, method_name) is not None
        ]
        raise no_manager(cls, methods, name.startswith("__a"))
    return method


def _special(obj: Any, name: str) -> Any:
    """A special method, which Python looks for in the class only."""
    for cls in type(obj).__mro__:
        if name in vars(cls):
            method = vars(cls)[name]
            return method.__get__(obj, type(obj)) if hasattr(method, "__get__") else method
    return None


def handling(error: BaseException, operation: Callable[[], Any]) -> Any:
    """Run `operation` inside an `except` block that handles `error`."""
    before = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        # `raise` has added this frame, and made what is handled outside the context.
        error.__traceback__, error.__context__ = before
        return operation()


def raise_as_is(error: BaseException) -> NoReturn:
    """Raise an exception whose context is known. What is being handled here is the context of the
    first exception of the chain, as in the program."""
    outside = sys.exception()
    context = error.__context__
    first, visited = error, {id(error)}
    while first.__context__ is not None and id(first.__context__) not in visited:
        first = first.__context__
        visited.add(id(first))
    if first.__context__ is None and outside is not None and id(outside) not in visited:
        first.__context__ = outside
        context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


def as_subclass(tensor: torch.Tensor, cls: Any) -> torch.Tensor:
    """The tensor as one of a class that the program has for it."""
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(cls)


def as_plain(tensor: Any) -> Any:
    """A tensor of a subclass as the plain tensor that the graph takes: what its class does has been
    followed. A number of another library as a plain one."""
    if not isinstance(tensor, torch.Tensor):
        return tensor.item()
    with torch._C.DisableTorchFunction():
        return tensor.as_subclass(torch.Tensor)


def without_modes(graph: Any, *inputs: Any) -> Any:
    """Call a graph with the program's modes turned off: they have been asked about all that is in
    it."""
    with torch._C.DisableTorchFunction():
        return graph(*inputs)


Look = tuple[torch.dtype, torch.device, int, tuple[int, ...], tuple[int, ...]]
"""What a tensor looks like: dtype, device, dispatch keys, sizes, strides."""


def look_of(tensor: torch.Tensor) -> Look:
    keys = torch._C._dispatch_keys(tensor).raw_repr()
    return tensor.dtype, tensor.device, keys, tuple(tensor.size()), tuple(tensor.stride())


def looks_like(tensor: Any, look: Look) -> bool:
    """Whether something is a plain tensor with this look that begins where its memory does."""
    if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
        return False
    plain = not tensor.requires_grad and tensor.storage_offset() == 0
    own = look_of(tensor)
    return plain and own[:-1] == look[:-1] and (own[-1] == look[-1] or not tensor.numel())


def kept_result(
    cached: Any, args: tuple[Any, ...], kwargs: dict[str, Any], looks: tuple[Look, ...]
) -> Any:
    """What a function under `lru_cache` gives before the graph is called: a tensor, or a tuple of
    them, if they look as they were taken to."""
    try:
        result = cached(*args, **kwargs)
    except Exception as error:  # the program gets there after other things have happened
        raise NotAsCaptured from error
    tensors = result if type(result) is tuple else (result,)
    if len(tensors) != len(looks) or not all(map(looks_like, tensors, looks)):
        raise NotAsCaptured
    return result


class SavedInputs:
    """Copies of what a graph may write, for undoing it if the graph fails half-way."""

    __slots__ = ("copies", "generators", "gradients", "layouts", "random", "tensors")

    def __init__(
        self,
        *tensors: torch.Tensor,
        random: bool = False,
        leaves: Sequence[torch.Tensor] = (),
        generators: Sequence[torch.Generator] = (),
    ) -> None:
        self.gradients = [(leaf, leaf.grad) for leaf in leaves]
        with torch.no_grad(), torch._C.DisableTorchFunction():
            self.layouts = [(t, t.size(), t.stride(), t.storage_offset()) for t in tensors]
            self.tensors = [_each_element_once(tensor) for tensor in tensors]
            self.copies = [tensor.clone() for tensor in self.tensors]
        self.generators = [(generator, generator.get_state()) for generator in generators]
        self.random = RandomStates() if random else None

    def put_back(self) -> None:
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for tensor, size, stride, offset in self.layouts:
                # Resized as the `out=` of an operator that failed afterwards.
                if (tensor.size(), tensor.stride()) != (size, stride):
                    tensor.as_strided_(size, stride, offset)
            for tensor, copy in zip(self.tensors, self.copies, strict=True):
                tensor.copy_(copy)
        for leaf, gradient in self.gradients:
            leaf.grad = gradient
        for generator, state in self.generators:
            generator.set_state(state)
        if self.random is not None:
            self.random.put_back()


def _each_element_once(tensor: torch.Tensor) -> torch.Tensor:
    """PyTorch refuses to write to an expanded tensor."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.size(dim) > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


TENSOR_META: Any = torch._C._TensorMeta


def bare_class(
    meta: Any, name: str, qualname: str, bases: tuple[type, ...], namespace: dict[str, Any]
) -> Any:
    """A class, made without the hooks that its bases have for subclasses: what those do has been
    followed."""
    make = abc.ABCMeta.__new__ if issubclass(meta, abc.ABCMeta) else type.__new__
    namespace = {**namespace, "__qualname__": qualname}
    if not has_subclass_hook(bases):
        cls = make(meta, name, bases, namespace)
        if isinstance(cls, TENSOR_META):  # its C code prepares the class
            TENSOR_META.__init__(cls, name, bases, namespace)
        return cls
    substitute = type.__new__(meta, name, (), {})
    cls = make(meta, name, (substitute,), namespace)
    # Bases that are set afterwards call no `__init_subclass__`.
    cls.__bases__ = bases
    return cls


def has_subclass_hook(bases: tuple[type, ...]) -> bool:
    """Whether a base runs code of the user's for each new subclass."""
    hooks = [getattr(base, "__init_subclass__", None) for base in bases]
    functions = [getattr(hook, "__func__", None) for hook in hooks]
    return any(isinstance(f, types.FunctionType) and f.__module__ != "typing" for f in functions)


def enum_class(meta: Any, name: str, bases: tuple[type, ...], members: list[Any]) -> Any:
    """An enumeration from the names and values in its body."""
    namespace = meta.__prepare__(name, bases)
    for key, value in members:
        namespace[key] = value
    return meta(name, bases, namespace)


HELPERS: dict[str, Any] = {
    "bare_class": bare_class,
    "CellType": types.CellType,
    "FunctionType": types.FunctionType,
    "MethodType": types.MethodType,
    "SavedInputs": SavedInputs,
    "as_plain": as_plain,
    "as_subclass": as_subclass,
    "clean_traceback": rewrite,
    "enter": enter,
    "finished_generator": finished_generator,
    "handling": handling,
    "merge": merge,
    "primed": primed,
    "raise_as_is": raise_as_is,
    "special_method": special_method,
    "without_modes": without_modes,
}
