"""The modules `random` and `numpy.random`: residual code draws their numbers
(`host_randomness`).

A number that is drawn may be used in tensor operations and in arithmetic; a branch on it breaks the
graph. So do functions whose result is not a number, a list of numbers or an array.
"""

from __future__ import annotations

import _random
import random
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.host_randomness import DrawnNumber, RandomDraw
from pliant.capture.native import FUNCTIONS, LATE, METHODS, SHORTCUTS
from pliant.capture.value import NONE, Break, Const, NotConstant, Unread, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.number import Number
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind, Load
from pliant.guards.source import Fixed, Source

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

PYTHON_STATE = ("{}.getstate()", "{}.setstate({})")
NUMPY_STATE = ("{}.get_state()", "{}.set_state({})")
NUMBERS = (
    "random", "getrandbits", "randint", "randrange", "uniform", "gauss", "normalvariate",
    "triangular", "betavariate", "expovariate", "gammavariate", "lognormvariate",
    "vonmisesvariate", "paretovariate", "weibullvariate", "choice", "sample", "choices",
)  # fmt: skip
NUMPY_NUMBERS = (
    "rand", "randn", "random", "random_sample", "uniform", "normal", "randint", "beta", "gamma",
    "exponential", "poisson", "binomial", "standard_normal", "laplace", "gumbel", "lognormal",
    "chisquare", "standard_exponential", "logistic", "triangular", "rayleigh", "geometric",
    "weibull", "dirichlet", "multinomial", "permutation", "choice",
)  # fmt: skip

# What is made of other objects that were drawn, by their class.
DRAWN: dict[type, Callable[[Trace, DrawnNumber, Any], Value]] = {}


class RandomGenerator(Value):
    """A `random.Random` from outside, or one that residual code makes."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return random.Random


def generator_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.TYPE, source, random.Random)
    return RandomGenerator(real, source)


BUILDERS[random.Random] = generator_from_outside


def drawn(
    trace: Trace, owner: Value, name: str, example: Callable[[], Any], arguments: str, state: Any
) -> Value:
    """The result of a draw. What a draw of the same kind gives says what it is."""
    try:
        example_result = example()
    except Exception as error:
        trace.throw(error)
    number = sum(len(draw.targets) for draw in trace.random_draws)
    call = f"{{}}.{name}({arguments})"
    if type(example_result) in DRAWN:
        target = DrawnNumber(number, name)
        trace.changes += 1
        trace.random_draws.append(RandomDraw((target,), owner, call, state, pure=state is None))
        return DRAWN[type(example_result)](trace, target, example_result)
    is_list = type(example_result) is list
    items = example_result if is_list else [] if example_result is None else [example_result]
    if any(type(item) not in (int, float) for item in items):
        raise Break("random-state", f"{name}(), which does not draw a number")
    targets = [DrawnNumber(number + i, name) for i in range(len(items))]
    trace.changes += 1
    draw = RandomDraw(tuple(targets), owner, call, state, pure=state is None)
    trace.random_draws.append(draw)
    values = [drawn_number(trace, *pair) for pair in zip(targets, items, strict=True)]
    if is_list:
        return Sequence(list, list(values))
    return values[0] if values else NONE


def drawn_number(trace: Trace, source: DrawnNumber, example: Any) -> Value:
    load, env = Load(source, "value", 0), trace.sizes.env
    expr: Any
    if type(example) is int:
        expr = env.add_unbacked(load, why="drawn at random")
    else:
        expr = env.add_float(load, None, why="drawn at random")
    trace.sizes.nodes.set_origin(expr, lambda: trace.graph.input(source, example))
    return Number(trace.sizes, expr)


def _written(trace: Trace, args: list[Value], kwargs: dict[str, Value]) -> tuple[str, list, dict]:
    """The arguments as source and as objects."""
    try:
        real_args = [known_object(arg, trace) for arg in args]
        named = {name: known_object(arg, trace) for name, arg in kwargs.items()}
    except NotConstant as error:
        raise Break("random-state", "a draw with arguments that are not known") from error
    objects = [*real_args, *named.values()]
    if not all(_has_source(item) for item in objects):
        raise Break("random-state", "a draw from objects")
    parts = [repr(item) for item in real_args] + [
        f"{name}={item!r}" for name, item in named.items()
    ]
    return ", ".join(parts).replace("{", "{{").replace("}", "}}"), real_args, named


def _has_source(item: Any) -> bool:
    """Whether `repr` of the object is an expression for it."""
    if type(item) in (list, tuple):
        return all(_has_source(part) for part in item)
    return type(item) in (int, float, bool, str, range, type(None))


def _draw(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, owner: Value, *args: Value, **kwargs: Value) -> Value:
        owner = trace.read(owner)
        if not isinstance(owner, RandomGenerator):
            raise Break("random-state", f"{name}() of a generator that is not known")
        text, real_args, named = _written(trace, list(args), kwargs)
        example = getattr(random.Random(0), name)
        state = None if isinstance(owner.source, DrawnNumber) else PYTHON_STATE
        return drawn(trace, owner, name, lambda: example(*real_args, **named), text, state)

    return handler


def _shortcut(handler: Callable[..., Value]) -> Callable[..., Value]:
    return lambda trace, args, kwargs, direct: handler(trace, *args, **kwargs)


for _name in (*NUMBERS, "seed"):
    _own = random.Random.__dict__.get(_name)
    if _own is not None:
        SHORTCUTS[_own] = _shortcut(_draw(_name))
    else:
        METHODS[_random.Random, _name] = _draw(_name)
METHODS[_random.Random, "seed"] = _draw("seed")


class RandomState(Value):
    """What `getstate()` gives: only passed along, only residual code knows it."""

    __slots__ = ()

    def python_type(self) -> type:
        return tuple


def _generator(trace: Trace, owner: Value, name: str) -> RandomGenerator:
    owner = trace.read(owner)
    if not isinstance(owner, RandomGenerator):
        raise Break("random-state", f"{name}() of a generator that is not known")
    return owner


def get_state(trace: Trace, owner: Value) -> Value:
    generator = _generator(trace, owner, "getstate")
    number = sum(len(draw.targets) for draw in trace.random_draws)
    target = DrawnNumber(number, "state")
    trace.changes += 1
    trace.random_draws.append(RandomDraw((target,), generator, "{}.getstate()", None, pure=True))
    return RandomState(target)


def set_state(trace: Trace, owner: Value, state: Value) -> Value:
    generator = _generator(trace, owner, "setstate")
    value = state if isinstance(state, Unread) else trace.read(state)
    if value.source is None:
        raise Break("random-state", "a state that the program has made")
    own = None if isinstance(generator.source, DrawnNumber) else PYTHON_STATE
    trace.changes += 1
    draw = RandomDraw((), generator, "{}.setstate({})", own, (value,), pure=own is None)
    trace.random_draws.append(draw)
    return NONE


SHORTCUTS[random.Random.getstate] = _shortcut(get_state)
SHORTCUTS[random.Random.setstate] = _shortcut(set_state)


def _no_number(trace: Trace, *args: Any) -> Value:
    raise Break("random-state", "a function of random that does not draw a number")


for _name, _own in vars(random.Random).items():
    if isinstance(_own, types.FunctionType) and not _name.startswith("__"):
        SHORTCUTS.setdefault(_own, _no_number)


def make_generator(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    """`random.Random(seed)`: made where its numbers are drawn."""
    if not args and not kwargs:
        raise Break("random-state", "a generator that is seeded by the system")
    text, _, _ = _written(trace, list(args), kwargs)
    number = sum(len(draw.targets) for draw in trace.random_draws)
    target = DrawnNumber(number, "Random")
    trace.changes += 1
    text = f"{{}}.Random({text})"
    trace.random_draws.append(RandomDraw((target,), Const(random), text, None, pure=True))
    return RandomGenerator(None, target)


FUNCTIONS[random.Random] = make_generator


# ---- numpy


def _numpy_draw(name: str) -> Callable[..., Value]:
    """A method of `numpy.random.RandomState`: the functions of the module are those of one."""

    def handler(trace: Trace, owner: Value, *args: Value, **kwargs: Value) -> Value:
        owner = trace.read(owner)
        if owner.source is None:
            raise Break("random-state", f"{name}() of a generator that is not known")
        text, real_args, named = _written(trace, list(args), kwargs)
        example = getattr(numpy.random.RandomState(0), name)
        return drawn(trace, owner, name, lambda: example(*real_args, **named), text, NUMPY_STATE)

    return handler


def _numpy_seed(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    text, _, _ = _written(trace, list(args), kwargs)
    owner = Const(numpy.random)
    return drawn(trace, owner, "seed", lambda: None, text, NUMPY_STATE)


def _numpy_function(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    return Const(real, source)


def _register_numpy() -> None:
    BUILDERS[type(numpy.random.seed)] = _numpy_function
    FUNCTIONS[numpy.random.seed] = _numpy_seed
    for name in NUMPY_NUMBERS:
        FUNCTIONS[getattr(numpy.random, name).__func__] = _numpy_draw(name)


LATE["numpy.random"].append(_register_numpy)
