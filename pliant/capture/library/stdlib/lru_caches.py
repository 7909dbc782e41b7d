"""Functions under `functools.cache` and `lru_cache`.

The one idea: only Python itself looks into a cache. Of a function from outside whose arguments are
known, the result in its cache is a constant, guarded by a look into the cache. Residual code makes
the call once more, so that it is counted, and the cache forgets in the right order. Of sizes and
numbers that are symbols, residual code makes the call before the graph if the result is a tensor
(`kept_results`); the function is followed if it gives a number that depends on nothing else. A call
with tensors is one node of the graph, which asks the cache when it runs. Of an object that the
program has just made, and keeps to itself, no cache knows anything: the function is followed, and
the cache is not told. Any other call is a graph break.

With `@functools.cache def table(n): …` from outside:

    table(3)             `_recall`: the object in the cache, with a guard that it is still there
    table(x.shape[0])    `_call_on_numbers`, if the size is symbolic
    table(x)             `_ask_when_run`: a node
    table(Key())         `_call_on_fresh`
"""

from __future__ import annotations

import dis
import functools
import gc
import inspect
import types
from typing import TYPE_CHECKING, Any

import torch

from pliant.base import caches
from pliant.base.caches import CACHED
from pliant.base.isolation import FATAL
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.library.python.classes import real_object
from pliant.capture.library.python.printing import call_later
from pliant.capture.library.stdlib.kept_results import Kept, ask_before
from pliant.capture.library.torch.bodies import follow_aside, record_body_call
from pliant.capture.model import CALL, DESCRIPTORS, GET, call
from pliant.capture.native import FUNCTIONS, function, method
from pliant.capture.torch_calls import convert
from pliant.capture.trace import PLAIN, Restart, Trace, written_objects
from pliant.capture.value import NONE, Break, Const, NotConstant, Raised, Unread, Value
from pliant.capture.values.containers import Mapping, instance_dict, key_of, plain_tuple
from pliant.capture.values.conversion import known_object
from pliant.capture.values.functions import BoundMethod
from pliant.capture.values.number import Number, has_number
from pliant.capture.values.objects import Instance, Opaque
from pliant.capture.values.program_classes import PLACEHOLDER_MAKERS, placeholder_for
from pliant.capture.values.tensors import TensorValue
from pliant.capture.wrap import BUILDERS
from pliant.fake.errors import Unsupported
from pliant.fake.tensor import Fake
from pliant.guards.guard import Guard, GuardKind
from pliant.guards.predicates import Remembers, is_empty_cell
from pliant.guards.source import Attr, Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class CachedFunction(Value):
    """A function under `lru_cache`. One that the program has made during the capture has its cache
    here, as `results`."""

    __slots__ = (
        "attributes", "calls", "function", "hits", "kept", "misses", "options", "real", "results",
    )  # fmt: skip

    def __init__(self, function: Value, options: list[Value]) -> None:
        super().__init__()
        self.function = function
        self.options = options  # maxsize, typed, the class of cache_info()
        self.real: Any = None
        self.results: dict[Any, Value] = {}  # the one that is forgotten first is first
        self.hits = self.misses = 0
        self.calls = 0  # during the capture, of one from outside
        self.kept: list[Kept] = []  # what residual code asks for
        self.attributes: Mapping | None = None

    def python_type(self) -> type:
        return CACHED

    def children(self) -> list[Value]:
        extra = [] if self.attributes is None else self.attributes.contents()
        return [self.function, *self.options, *extra]

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        return instance_dict(trace, self).get(trace, name)

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        instance_dict(trace, self).store(trace, name, value)

    def rebuild(self, emit: Emitter) -> str:
        if self.hits or self.misses:
            raise Break("cached-function", "a function with a cache that is in use")
        parts = ", ".join(emit.expression(value) for value in (self.function, *self.options))
        return f"{emit.constant(CACHED)}({parts})"


def _placeholder_of_cached(trace: Trace, value: CachedFunction) -> Any:
    return functools.lru_cache(placeholder_for(trace, value.function))


PLACEHOLDER_MAKERS[CachedFunction] = _placeholder_of_cached


@function(CACHED)
def make_cached(trace: Trace, target: Value, *options: Value) -> Value:
    return CachedFunction(target, list(options))


def call_cached(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    if target.real in FUNCTIONS:
        return FUNCTIONS[target.real](trace, *args, **kwargs)
    if target.real is None:
        return _call_own(trace, target, args, kwargs)
    arguments = [trace.read(arg) for arg in (*args, *kwargs.values())]
    if target.source is None or not caches.is_known(target.real):
        raise _refused(target)
    if any(isinstance(arg, TensorValue) for arg in arguments):
        return _ask_when_run(trace, target, args, kwargs)
    target.calls += 1
    if any(_is_fresh(trace, arg) for arg in arguments):
        return _call_on_fresh(trace, target, args, kwargs)
    if any(isinstance(arg, Number) or has_number(arg) for arg in arguments):
        return _call_on_numbers(trace, target, args, kwargs)
    return _recall(trace, target, args, kwargs)


def _refused(target: CachedFunction) -> Break:
    name = getattr(target.real, "__qualname__", "a function")
    return Break("cached-function", f"{name}(), which keeps its results")


# ---- a cache from outside


class Recall:
    """Makes the call that residual code owes to a cache, so that its counts and order are right.
    The first time the capture may have made it already."""

    __slots__ = ("cached", "made_by_capture")

    def __init__(self, cached: Any, made_by_capture: bool) -> None:
        self.cached = cached
        self.made_by_capture = made_by_capture

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if self.made_by_capture:
            self.made_by_capture = False
        else:
            self.cached(*args, **kwargs)

    def __repr__(self) -> str:
        return repr(self.cached)


def _recall(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """The result of a call with known arguments: what the cache has, or what the function returns
    now."""
    cached = target.real
    try:
        real_args = tuple([_cache_key(trace, arg) for arg in args])
        real_kwargs = {name: _cache_key(trace, arg) for name, arg in kwargs.items()}
        key = caches.key_of_call(cached, real_args, real_kwargs)
        result = caches.remembered(cached, key)
    except (NotConstant, Break, TypeError) as error:  # made here, or can't be hashed
        raise _refused(target) from error
    calls_made, replayed = trace.inputs.calls_made, trace.inputs.calls_replayed
    call_key = id(cached), key
    if result is caches.MISSING:
        # A full cache would forget something for a call that the capture makes ahead of its time.
        if caches.is_full(cached) or _sees_a_write(trace, cached, set()):
            raise _refused(target)
        objects = [arg for arg in (*real_args, *real_kwargs.values()) if type(arg) not in PLAIN]
        if _writes(cached, bool(objects)) or _reaches_a_write(trace, objects):
            raise _refused(target)
        try:
            result = cached(*real_args, **real_kwargs)
        except FATAL:
            raise
        except Exception as error:
            raise Break("operation-raises", f"{cached.__qualname__}()") from error
        calls_made[call_key] += 1
    trace.guard(GuardKind.PREDICATE, target.source, Remembers(cached, key, result))
    replayed[call_key] += 1
    # A capture that starts over must not count the call twice.
    recall = Recall(cached, replayed[call_key] <= calls_made[call_key])
    call_later(trace, recall, list(args), dict(kwargs))
    return trace.wrap_pinned(result)


def _is_fresh(trace: Trace, value: Value) -> bool:
    """Whether the capture has made this object, and it is equal to itself only: no cache can have
    it as a key."""
    if type(value) is not Instance or value.source is not None or value.real is not None:
        return False
    return trace.lookup(value.cls, "__hash__") is object.__hash__


def _call_on_fresh(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Follow a call on objects that the program has just made. Nobody else can ask the cache for
    its result, unless such an object leaves the compiled function: then the graph ends before this
    call."""
    maxsize, typed = (target.real.cache_parameters()[name] for name in ("maxsize", "typed"))
    if caches.is_full(target.real) or (maxsize is not None and target.calls > maxsize):
        raise _refused(target)
    key = _own_key(trace, args, kwargs, typed)
    for value in map(trace.read, (*args, *kwargs.values())):
        if _is_fresh(trace, value):
            assert isinstance(value, Instance)
            value.stays = value.stays or Restart(trace.frames[-1].step, _refused(target))
    if key not in target.results:
        trace.changes += 1
        target.results[key] = call(trace, target.function, args, kwargs)
    return target.results[key]


def _cache_key(trace: Trace, arg: Value) -> Any:
    """An argument as the cache knows it: constants by value, instances by identity."""
    arg_value = trace.read(arg)
    by_identity = trace.lookup(arg_value.python_type(), "__hash__") is object.__hash__
    if isinstance(arg_value, Instance) and by_identity:
        return real_object(trace, arg_value)
    return known_object(arg_value, trace)


def _call_on_numbers(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    before = trace.changes, len(trace.guards)
    objects = [real for arg in (*args, *kwargs.values()) if (real := getattr(arg, "real", None))]
    result: Value | None = None
    if not _sees_a_write(trace, target.real, set()) and not _reaches_a_write(trace, objects):
        result = ask_before(trace, target, args, kwargs, _refused(target))
    return _follow(trace, target, args, kwargs, *before) if result is None else result


def _follow(
    trace: Trace,
    target: CachedFunction,
    args: list[Value],
    kwargs: dict[str, Value],
    changes: int,
    guards: int,
) -> Value:
    """Follow a function of symbolic numbers. Its result must depend on nothing else, so that it
    makes no difference whether the cache has it. `changes` and `guards` count those before the
    function was first followed."""
    try:
        result = trace.read(call(trace, target.function, args, kwargs))
    except Raised:  # the call counts all the same
        raise _refused(target) from None
    plain_result = isinstance(result, Const) and type(result.value) in PLAIN
    # An assumption made inside would not hold for a result from the cache.
    assumed = any(not guard.routine for guard in trace.guards[guards:])
    if not (plain_result or isinstance(result, Number)) or assumed or trace.changes != changes:
        raise _refused(target)
    call_later(trace, target.real, list(args), dict(kwargs))
    return result


def _ask_when_run(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """A node that calls the function, for arguments with tensors. What it returns besides data must
    depend on the arguments alone: the cache may have it from another time."""
    key = _key_of_values(trace, args, kwargs)
    if key in target.results:
        _record_call(trace, target, args, kwargs)  # it is counted
        return target.results[key]
    guards, maxsize = len(trace.guards), target.real.cache_parameters()["maxsize"]
    name = target.real.__qualname__
    result = trace.read(follow_aside(trace, name, target.function, args, kwargs))
    assumed = any(not _says_what_is_called(guard) for guard in trace.guards[guards:])
    forgets = maxsize is not None and len(target.results) >= maxsize  # what it was given here
    if assumed or forgets or not isinstance(result, TensorValue):
        raise _refused(target)
    target.results[key] = _record_call(trace, target, args, kwargs)
    return target.results[key]


def _record_call(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    if _sees_a_write(trace, target.real, set()):
        raise _refused(target)
    name = target.real.__qualname__
    pairs = [convert(trace, arg, name) for arg in args]
    named = {keyword: convert(trace, arg, name) for keyword, arg in kwargs.items()}
    return record_body_call(
        trace,
        AsksCache(target.real),
        tuple(node for node, _ in pairs),
        tuple(fake for _, fake in pairs),
        {keyword: node for keyword, (node, _) in named.items()},
        {keyword: fake for keyword, (_, fake) in named.items()},
        effect=True,
        on_fakes=target.real.__wrapped__,
    )


class AsksCache:
    """The cached function as a graph calls it. It refuses fakes: a backend that runs the graph on
    them would fill the cache with fakes."""

    def __init__(self, cached: Any) -> None:
        functools.update_wrapper(self, cached)
        self.cached = cached

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(arg, Fake) for arg in (*args, *kwargs.values())):
            raise Unsupported(f"{self.cached.__qualname__}, which keeps its results")
        return self.cached(*args, **kwargs)


def _says_what_is_called(guard: Guard) -> bool:
    """Whether the guard only says which code is called: functions with their defaults, and
    modules."""
    own = isinstance(guard.source, Attr) and guard.source.name in ("__defaults__", "__kwdefaults__")
    return guard.routine or own or isinstance(guard.expected, types.ModuleType)


def _key_of_values(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """A key for a call: constants by value, everything else by the identity of its value, which
    lives as long as the capture."""
    values = [trace.read(value) for value in (*args, *kwargs.values())]
    parts = [
        (type(v.value), v.value) if isinstance(v, Const) and type(v.value) in PLAIN else id(v)
        for v in values
    ]
    return tuple(parts), tuple(kwargs)


def _sees_a_write(trace: Trace, function: Any, visited: set[Any]) -> bool:
    """Whether a function names an object with a write still to be replayed, itself or through
    functions that it names."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None or code in visited or not (trace.effects or trace.writes_tensors):
        return False
    visited.add(code)
    written = {id(real) for real in written_objects(trace)}
    cells = function.__closure__ or ()
    named = [*cells, function.__globals__]
    named += [cell.cell_contents for cell in cells if not is_empty_cell(cell)]
    named += [function.__globals__[name] for name in code.co_names if name in function.__globals__]
    if any(id(real) in written for real in named):
        return True
    if trace.writes_tensors and any(isinstance(real, torch.Tensor) for real in named):
        return True
    return any(
        _sees_a_write(trace, real, visited) for real in named if isinstance(real, FOLLOWABLE)
    )


FOLLOWABLE = (types.FunctionType, CACHED)

MOST_REACHED = 10_000
SHARED = (types.ModuleType, types.CodeType, types.BuiltinFunctionType)
HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def _reaches_a_write(trace: Trace, objects: list[Any]) -> bool:
    """Whether a write still to be replayed could be seen through the objects that a function is
    given: a search of everything reachable from them."""
    if trace.class_writes:
        return True
    written = {id(real) for real in written_objects(trace) if real is not None}
    if not objects or not (trace.effects or trace.writes_tensors):
        return False
    seen, left = set[int](), list(objects)
    while left:
        real = left.pop()
        if id(real) in seen or isinstance(real, SHARED):
            continue
        seen.add(id(real))
        # Any tensor may share memory with one that the graph writes to.
        changed = trace.writes_tensors and isinstance(real, torch.Tensor)
        if id(real) in written or changed or len(seen) > MOST_REACHED:
            return True
        if isinstance(real, types.FunctionType):
            left += real.__closure__ or ()
        elif isinstance(real, type):
            left += vars(real).values() if real.__flags__ & HEAP_TYPE else ()
        else:
            left += gc.get_referents(real)
            left += [vars(real)] if hasattr(real, "__dict__") else []
    return False


WRITES_OBJECT = opcodes_with(Role.WRITES_OBJECT)
WRITES_CELL = opcodes_with(Role.WRITES_CELL)
WRITES_GLOBAL = opcodes_with(Role.WRITES_GLOBAL)


def _writes(cached: Any, to_objects: bool) -> bool:
    """Whether a function writes to variables around it or, if it is given objects, to attributes
    and items. Then it can't be called ahead of its time."""
    code = getattr(inspect.unwrap(cached), "__code__", None)
    if code is None:
        return False
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        around = name in WRITES_CELL and instruction.argval in code.co_freevars
        if around or name in WRITES_GLOBAL or (to_objects and name in WRITES_OBJECT):
            return True
    return False


# ---- a cache made during the capture


def _call_own(
    trace: Trace, target: CachedFunction, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    maxsize, typed = (trace.read(option).constant() for option in target.options[:2])
    key = _own_key(trace, args, kwargs, typed)
    trace.changes += 1
    if key in target.results:
        target.hits += 1
        # Put in again below, as the one that is forgotten last.
        result = target.results.pop(key)
    else:
        target.misses += 1
        result = call(trace, target.function, args, kwargs)
    if maxsize is None or maxsize > 0:
        target.results[key] = result
    # Least recently used first: dictionaries keep the order of insertion.
    if maxsize is not None and len(target.results) > max(maxsize, 0):
        del target.results[next(iter(target.results))]
    return result


def _own_key(trace: Trace, args: list[Value], kwargs: dict[str, Value], typed: bool) -> Any:
    values = [trace.read(value) for value in (*args, *kwargs.values())]
    types = [value.python_type() for value in values]
    plain = len(args) == 1 and not kwargs and not typed and types[0] in (int, str)
    key_parts = plain_tuple([*values, *map(Const, kwargs)])
    return key_of(trace, key_parts), len(kwargs), plain, tuple(types) if typed else ()


@method(CACHED, "cache_info")
def cache_info(trace: Trace, target: CachedFunction) -> Value:
    if target.real is not None:
        raise Break("unsupported-method", "cache_info() of a function from outside")
    counts = [Const(target.hits), Const(target.misses), target.options[0]]
    return call(trace, target.options[2], [*counts, Const(len(target.results))])


@method(CACHED, "cache_clear")
def cache_clear(trace: Trace, target: CachedFunction) -> Value:
    if target.real is not None:
        raise Break("unsupported-method", "cache_clear() of a function from outside")
    trace.changes += 1
    target.results.clear()
    target.hits = target.misses = 0
    return NONE


CALL[CachedFunction] = call_cached
GET[CachedFunction] = lambda trace, obj, name: (
    instance_dict(trace, obj) if name == "__dict__" else None
)


def cached_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.TYPE, source, CACHED)
    if "__wrapped__" not in vars(real):
        return Opaque(real, source)
    cached = CachedFunction(Unread(real.__wrapped__, Attr(source, "__wrapped__")), [])
    cached.real, cached.source = real, source
    return cached


BUILDERS[CACHED] = cached_from_outside


def _bind_cached(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return BoundMethod(trace.class_value(cls, name), obj)


DESCRIPTORS[CACHED] = _bind_cached
