"""NumPy on arrays: nodes of the graph that call NumPy itself, so that the numbers are its own.

The one idea: the kind of array that a function gives follows from the kinds of its arguments, so
the function is tried on arrays made up for the purpose (examples). Where it follows from their
contents (`nonzero`, a mask as an index), NumPy is left to Python.

    a = x.numpy()              node: x.numpy(); example: an array of this shape and dtype
    b = numpy.cumsum(a, 0)     tried on the example; node: numpy.cumsum(a, 0)
    a[a > 0]                   a graph break
"""

from __future__ import annotations

import contextvars
import functools
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.base.isolation import FATAL, without_warnings
from pliant.base.values import dataclass
from pliant.capture.indexing import AS_INDEX
from pliant.capture.library.numpy import early as early_arrays
from pliant.capture.library.numpy import shapes
from pliant.capture.library.numpy.array_values import (
    ArrayValue,
    InputNumber,
    ShapedArray,
    checked,
    example_array,
)
from pliant.capture.library.numpy.scalars import SCALAR_TYPES, assume_number, number_from_outside
from pliant.capture.library.python.printing import PRINTABLE
from pliant.capture.library.stdlib.random_numbers import DRAWN
from pliant.capture.library.torch import tensor_data  # whose handlers are extended here
from pliant.capture.library.torch.bodies import record_body_call
from pliant.capture.model import (
    CALL,
    FOLDABLE,
    GET,
    INPLACE,
    OPERATE,
    call,
    fold,
    get_attribute,
    is_none,
    iterate,
)
from pliant.capture.native import FUNCTIONS, LATE, METHODS
from pliant.capture.torch_calls import CONVERT, about_to_write, call_operation, convert
from pliant.capture.value import NONE, Break, Const, NotConstant, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import known_object
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.number import Number, takes_any_number
from pliant.capture.values.tensors import TensorValue
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.source import Fixed, Source
from pliant.sym.node import SYMBOLIC

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

# What it gives depends on what is in the arrays, or it calls back, or reads files and settings.
LEFT_TO_PYTHON = frozenset(
    {
        "nonzero", "flatnonzero", "argwhere", "unique", "unique_all", "unique_counts",
        "unique_inverse", "unique_values", "compress", "extract", "trim_zeros", "union1d",
        "intersect1d", "setdiff1d", "setxor1d", "bincount", "histogram", "histogram2d",
        "histogramdd", "histogram_bin_edges", "place", "putmask", "put", "copyto", "fill_diagonal",
        "apply_along_axis", "apply_over_axes", "piecewise", "fromfunction", "fromiter",
        "frompyfunc", "vectorize", "nditer", "nested_iters", "save", "savez", "savez_compressed",
        "savetxt", "load", "loadtxt", "genfromtxt", "fromfile", "fromregex", "memmap", "info",
        "set_printoptions", "get_printoptions", "printoptions", "seterr", "geterr", "errstate",
        "seterrcall", "geterrcall", "setbufsize", "getbufsize", "show_config", "show_runtime",
        "array2string", "array_repr", "array_str", "shares_memory", "may_share_memory", "asmatrix",
        "bmat", "matrix", "poly1d", "record", "rec", "datetime_data", "busdaycalendar", "require",
        "allclose", "array_equal", "array_equiv", "iterable", "empty", "empty_like", "test",
    }
)  # fmt: skip
# An array among the arguments behind the first may be a size.
SIZES = frozenset(
    {
        "arange", "linspace", "logspace", "geomspace", "zeros", "ones", "full", "eye", "identity",
        "tri", "reshape", "tile", "repeat", "split", "array_split", "hsplit", "vsplit", "dsplit",
        "broadcast_to", "resize", "pad", "delete", "insert", "indices",
    }
)  # fmt: skip
# Of those, the first argument may be one, too.
MAKES = frozenset(
    {
        "arange", "linspace", "logspace", "geomspace", "zeros", "ones", "full", "eye", "identity",
        "tri", "indices",
    }
)  # fmt: skip
ABOUT_KINDS = frozenset({"ndim", "size", "shape", "result_type", "can_cast", "promote_types",
                         "min_scalar_type", "isscalar", "iscomplexobj", "isrealobj", "issubdtype",
                         "broadcast_shapes", "common_type", "finfo", "iinfo", "dtype"})  # fmt: skip
# They make an array of a tensor by its `__array__`, and return arrays. Others ask tensors for a
# method of their own name, or wrap results.
TAKES_TENSORS = frozenset(
    {
        "ones_like", "zeros_like", "full_like", "asarray", "stack", "concatenate", "where",
        "hstack", "vstack", "dstack", "column_stack", "atleast_1d", "atleast_2d",
    }
)  # fmt: skip
# With an option they use an argument's memory for their own work.
OVERWRITES = frozenset({"median", "nanmedian", "percentile", "nanpercentile", "quantile",
                        "nanquantile"})  # fmt: skip
WRITES = frozenset({"sort", "fill", "resize", "put", "partition", "itemset", "byteswap"})
REFUSED_METHODS = frozenset(
    {"tobytes", "tofile", "dump", "dumps", "nonzero", "compress", "setflags",
     "choose", "__array__", "setfield", "view", "getfield", "data", "ctypes", "__setitem__",
     "__delitem__", "__setstate__"}
)  # fmt: skip
IN_PLACE = frozenset(method for method, _ in INPLACE.values())  # called by name
PLAIN_FACTS = ("ndim", "size", "itemsize", "nbytes", "dtype")
NUMBER_METHODS = ("astype", "clip", "conj", "round")  # which give a number of NumPy's again
PLAIN_ARGUMENTS = frozenset({bool, int, float, complex, str, type(None), type(...)})
PLAIN_RESULTS = frozenset({bool, int, float, complex, str})
VIEWS = ("T", "mT", "real", "imag")


def _name_of_type(dtype: Any) -> str:
    """What tells the type from others: the `str` of one with fields says only how large it is."""
    name: str = repr(dtype) if dtype.kind == "V" else dtype.str
    return name


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """The predicate that an array has this type, shape and layout."""

    dtype: str
    shape: tuple[int | None, ...]  # None: any
    strides: tuple[int, ...] | None  # None: those of rows
    writable: bool

    def __call__(self, value: Any) -> bool:
        if (_name_of_type(value.dtype), value.flags.writeable) != (self.dtype, self.writable):
            return False
        if self.strides is not None:
            return (value.shape, value.strides) == (self.shape, self.strides)
        pairs = zip(value.shape, self.shape)
        fits = value.ndim == len(self.shape) and all(n is None or size == n for size, n in pairs)
        return fits and value.flags.c_contiguous

    def __repr__(self) -> str:
        return f"(lambda a: (a.dtype.str, a.shape) == {(self.dtype, self.shape)})"


NUMPY_2 = numpy is not None and int(numpy.__version__.partition(".")[0]) >= 2


def _array_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    sizes = None
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.TYPE, source, type(real))
        in_rows = real.flags.c_contiguous and real.dtype.kind in "biufc"
        sizes = trace.inputs.array_sizes(real, source) if in_rows else None
        shape, strides = (real.shape if sizes is None else sizes), real.strides
        fixed = tuple([n if type(n) is int else None for n in shape])
        kind = ArrayKind(
            dtype=_name_of_type(real.dtype),
            shape=fixed,
            strides=strides if None not in fixed else None,
            writable=real.flags.writeable,
        )
        trace.guard(GuardKind.PREDICATE, source, kind)
    node, value = trace.graph.input(source, real), None
    if sizes is None:
        value = ArrayValue(node, checked(example_array(real)), source)
    else:
        value = ShapedArray(node, real.dtype, sizes, source)
    value.real = real
    return value


def _number_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    """A NumPy number: an input of the graph if it has changed between calls, otherwise a constant.
    Code that needs the number itself makes a constant of it."""
    if isinstance(source, Fixed) or not trace.inputs.varies(real.item(), source):
        return number_from_outside(trace, real, source)
    trace.guard(GuardKind.TYPE, source, type(real))
    number = trace.inputs.number_of_library(real.item(), source)

    def make_node() -> Any:
        plain = trace.sizes.nodes.node(number.expr)
        return trace.graph.operation(type(real), (plain,), {}, trace.stack(), False)

    value = InputNumber(real, source, number, make_node)
    value.specialise = functools.partial(assume_number, trace, real, source)
    return value


def _drawn_array(trace: Trace, source: Source, example: Any) -> Value:
    """An array that residual code has drawn at random."""
    kind = checked(example_array(example))
    return ArrayValue(trace.graph.input(source, example), kind, source)


# ---- calls


def record_array(
    trace: Trace,
    target: Callable[..., Any] | str,
    function: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
    writes: bool = False,
    any_number: bool = False,
) -> Value:
    """A node that calls NumPy. `function` is run on examples. `any_number` says that the kind of
    the result does not depend on which numbers it is given."""
    name = target if isinstance(target, str) else f"numpy.{getattr(target, '__name__', target)}"
    sizes = None if writes else shapes.sizes_of_result(trace, target, args, kwargs)
    pairs = [_both(trace, arg, name, any_number, sizes is not None) for arg in args]
    named = {key: _both(trace, arg, name) for key, arg in kwargs.items()}
    examples = [pair[1] for pair in pairs]
    options = {key: pair[1] for key, pair in named.items()}
    result = _try(name, function, examples, options)
    if not writes and _wrote(target, examples, options, result):
        raise Break("unsupported-function", f"{name}, which writes to an argument")
    specialise = _specialise_all(trace, [*args, *kwargs.values()])
    if specialise is not None and type(result) in PLAIN_RESULTS:  # `float(number)`
        specialise()
        return Const(result)
    if writes:
        about_to_write(trace, function, ())
        # Writes to arrays are not tracked, so they can't be undone.
        trace.graph_effects.other = True
        trace.changes += 1
    if not writes and isinstance(result, numpy.ndarray):
        early = early_arrays.source_of_early(trace, target, args, kwargs)
        if early is not None:
            return _made_early(trace, early, checked(result), sizes)
    nodes = {key: pair[0] for key, pair in named.items()}
    array_node = trace.graph.operation(
        target, tuple(pair[0] for pair in pairs), nodes, trace.stack(), writes
    )
    if sizes is not None:
        return ShapedArray(array_node, checked(result).dtype, sizes)
    value = _result(trace, array_node, result, name)
    if isinstance(value, ArrayValue) and isinstance(result, numpy.generic):
        value.specialise = specialise
    return value


def _wrote(
    target: Callable[..., Any] | str, args: list[Any], options: dict[str, Any], result: Any
) -> bool:
    """Whether NumPy has written to an argument, other than by `out=`."""
    if isinstance(target, numpy.ufunc):
        return len(args) > target.nin
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "nan_to_num":  # with `copy=False`
        return result is args[0]
    if name in OVERWRITES and any(option is True for option in (*args, *options.values())):
        return True
    # What is given as `out`, by position, is also the result.
    return any(isinstance(arg, numpy.ndarray) and arg is result for arg in args[1:])


def _made_early(trace: Trace, source: Source, result: Any, sizes: Any) -> ArrayValue:
    """An array that residual code makes before the graph."""
    node = trace.graph.input(source, result)
    if sizes is not None:
        return ShapedArray(node, result.dtype, sizes, source)
    value = ArrayValue(node, example_array(result), source)
    value.real = result  # with its layout
    return value


def _specialise_all(trace: Trace, values: list[Value]) -> Callable[[], None] | None:
    """A function that makes constants of all numbers among the values; None if one of the values
    isn't known."""
    steps: list[Callable[[], None]] = []
    for value in map(trace.read, values):
        if isinstance(value, Sequence):
            step = _specialise_all(trace, value.items)
        else:
            step = value.specialise if isinstance(value, ArrayValue) else None
        if step is None and not isinstance(value, Const):
            return None
        steps += [] if step is None else [step]

    def specialise() -> None:
        for step in steps:
            step()

    return specialise


def _try(name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    def run() -> Any:
        with numpy.errstate(all="ignore"):
            return function(*args, **kwargs)

    try:  # in a copy of the context, which has NumPy's settings
        return without_warnings(Warning, contextvars.copy_context().run, run)
    except FATAL:
        raise
    except Exception as error:
        raise Break("operation-raises", f"{name}: {error}") from error


def _both(
    trace: Trace, value: Value, name: str, any_number: bool = False, any_size: bool = False
) -> tuple[Any, Any]:
    """An argument for the node and for the trial. With `any_size` the trial is about the type
    only."""
    value = trace.read(value)
    if any_size and isinstance(value, ShapedArray):
        return value.node, value.small()
    if isinstance(value, ArrayValue):
        return value.node, value.example
    if any_number and isinstance(value, Number) and value.python_type() is not bool:
        # Where the index is too large, NumPy raises when the graph runs.
        return trace.sizes.nodes.node(value.expr), value.python_type()(0)
    if isinstance(value, Sequence) and value.cls in (list, tuple, torch.Size):
        pairs = [_both(trace, item, name, any_number, any_size) for item in value.items]
        kind = list if value.cls is list else tuple
        return kind(p[0] for p in pairs), kind(p[1] for p in pairs)
    if isinstance(value, TensorValue | GraphObject | Mapping):
        raise Break("operation-argument", name)
    try:
        real = known_object(value, trace)
    except NotConstant as error:
        raise Break("not-constant", name) from error
    if isinstance(real, slice):
        parts = [n.item() if isinstance(n, numpy.generic) else n for n in _parts(real)]
        return slice(*parts), real
    if type(real) in PLAIN_ARGUMENTS:
        return real, real
    if isinstance(real, (numpy.generic, numpy.dtype, type)) or callable(real):
        return trace.graph.attribute("numpy_constant", real), real
    raise Break("operation-argument", name)


def _parts(part: slice) -> tuple[Any, Any, Any]:
    return part.start, part.stop, part.step


def _result(trace: Trace, node: Any, result: Any, name: str) -> Value:
    if isinstance(result, numpy.ndarray | numpy.generic):
        return ArrayValue(node, checked(example_array(result)))
    if isinstance(result, tuple | list):
        parts = []
        for index, item in enumerate(result):
            part = trace.graph.operation(operator.getitem, (node, index), {}, trace.stack(), False)
            parts.append(_result(trace, part, item, name))
        return Sequence(type(result), parts)
    if result is None:
        return NONE
    raise Break("unsupported-function", f"{name}, which gives a {type(result).__name__}")


def _on_arrays(real: Any, on_numbers: Callable[..., Value] | None) -> Callable[..., Value]:
    name = real.__name__
    run_trial = functools.partial(_try, name)

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        if name in TAKES_TENSORS:
            args = tuple([_as_array(trace, arg) for arg in args])
        if name in SIZES or name in ABOUT_KINDS:
            args = tuple([_with_constants(trace, arg) for arg in args])
            kwargs = {key: _with_constants(trace, arg) for key, arg in kwargs.items()}
        made = shapes.make(
            trace, real, list(args), kwargs, lambda arg: _both(trace, arg, name), run_trial
        )
        if made is not None:
            return made
        arrays = [has_array(trace, value) for value in (*args, *kwargs.values())]
        if not any(arrays) and on_numbers is not None:
            try:
                return on_numbers(trace, *args, **kwargs)
            except Break as cause:
                if "gives an array" not in cause.what:
                    raise
        sized = name in SIZES and any(arrays[name not in MAKES :])
        finds = name == "where" and len(args) < 3
        if name in LEFT_TO_PYTHON or sized or finds or "out" in kwargs:
            raise Break("unsupported-function", f"numpy.{name}")
        if name in ABOUT_KINDS:
            examples = [_both(trace, arg, name)[1] for arg in args]
            named = {key: _both(trace, arg, name)[1] for key, arg in kwargs.items()}
            return _fact(_try(name, real, examples, named), name)
        # Since NumPy 2 the kind of a result does not depend on which plain number it is given.
        any_number = NUMPY_2 and (isinstance(real, numpy.ufunc) or name == "where")
        return record_array(trace, real, real, list(args), kwargs, any_number=any_number)

    return handler


def _with_constants(trace: Trace, value: Value) -> Value:
    """The value with NumPy's numbers in it made constants, where they are known."""
    value = trace.read(value)
    if type(value) is Sequence and value.cls in (list, tuple):
        return Sequence(value.cls, [_with_constants(trace, item) for item in value.items])
    known = isinstance(value, ArrayValue) and value.specialise is not None
    return Const(value.constant()) if known else value


def _with_plain_numbers(trace: Trace, value: Value) -> Value:
    """The value with Python's numbers in place of NumPy's."""
    value = trace.read(value)
    if type(value) is Sequence and value.cls in (list, tuple):
        return Sequence(value.cls, [_with_plain_numbers(trace, item) for item in value.items])
    of_numpy = isinstance(value, Const) and isinstance(value.value, numpy.generic)
    return Const(value.constant().item()) if of_numpy else value


def _as_array(trace: Trace, value: Value) -> Value:
    value = trace.read(value)
    if isinstance(value, TensorValue):
        return call(trace, get_attribute(trace, value, "numpy"), [])
    if type(value) is Sequence and value.cls in (list, tuple):
        return Sequence(value.cls, [_as_array(trace, item) for item in value.items])
    return value


def _fact(result: Any, name: str) -> Value:
    if isinstance(result, tuple):
        return Sequence(tuple, [Const(item) for item in result])
    return Const(result)


def has_array(trace: Trace, value: Value) -> bool:
    value = trace.read(value)
    if isinstance(value, Sequence):
        return any(has_array(trace, item) for item in value.items)
    return isinstance(value, ArrayValue)


# ---- arrays as objects


class ArrayMethod(Value):
    """`array.method`."""

    __slots__ = ("array", "name")

    def __init__(self, array: ArrayValue, name: str) -> None:
        super().__init__()
        self.array = array
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def children(self) -> list[Value]:
        return [self.array]

    def rebuild(self, emit: Any) -> str:
        return f"{emit.expression(self.array)}.{self.name}"


def get_array_attribute(trace: Trace, array: ArrayValue, name: str) -> Value | None:
    if isinstance(array, ShapedArray):
        fact = shapes.attribute(trace, array, name)
        if fact is not None:
            return fact
        if name in shapes.ELEMENTWISE:
            return ArrayMethod(array, name)
    example = array.example
    if name in PLAIN_FACTS:
        return Const(getattr(example, name))
    if name in ("shape", "strides"):
        return Sequence(tuple, [Const(int(n)) for n in getattr(example, name)])
    if name == "__class__":
        return Const(type(example))
    if name in VIEWS:
        return record_array(trace, getattr, getattr, [array, Const(name)], {})
    if array.specialise is not None and name not in NUMBER_METHODS:
        return get_attribute(trace, Const(array.constant()), name)
    if name in REFUSED_METHODS or name in IN_PLACE or not callable(getattr(example, name, None)):
        raise Break("unsupported-attribute", f"ndarray.{name}")
    return ArrayMethod(array, name)


def call_array_method(
    trace: Trace, target: ArrayMethod, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    name = target.name
    if name in READERS:
        return _read_numbers(trace, target.array, name, [*args, *kwargs.values()])
    if name in SIZES:
        args = [_with_constants(trace, arg) for arg in args]
    if "out" in kwargs or (name in SIZES and any(has_array(trace, arg) for arg in args)):
        raise Break("unsupported-method", f"ndarray.{name}")
    call = operator.methodcaller

    def run(array: Any, *positional: Any, **named: Any) -> Any:
        copied = array.copy() if name in WRITES else array  # the example stays what it is
        return call(name, *positional, **named)(copied)

    return record_array(trace, name, run, [target.array, *args], kwargs, writes=name in WRITES)


# What they give are Python's numbers, and those that PyTorch gives of the same types.
READERS = ("item", "tolist")
READ_TYPES = frozenset("?bhilqBefd")


def _read_numbers(trace: Trace, array: ArrayValue, name: str, args: list[Value]) -> Value:
    dtype = array.dtype if isinstance(array, ShapedArray) else array.example.dtype
    if args or dtype.char not in READ_TYPES:
        raise Break("unsupported-method", f"ndarray.{name}")
    tensor = FUNCTIONS[torch.tensor](trace, array)
    return call(trace, get_attribute(trace, tensor, name), [])


def operate(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """Operators with an array among the operands."""
    special = OPERATORS.get(real)
    if special is not None:
        return special(trace, *operands)
    if any(isinstance(trace.read(operand), TensorValue) for operand in operands):
        if not any(_is_array(trace.read(operand)) for operand in operands):
            return OPERATE[TensorValue](trace, real, *operands)
        raise Break("operation-argument", "an operator on a tensor and an array")
    plain = PLAIN_OF.get(real, real)
    if plain is real or not isinstance(operands[0], ArrayValue):
        return record_array(trace, plain, plain, list(operands), {}, any_number=NUMPY_2)
    if not isinstance(operands[0].example, numpy.ndarray):  # a number is not changed
        return record_array(trace, plain, plain, list(operands), {}, any_number=NUMPY_2)
    record_array(trace, real, plain, list(operands), {}, writes=True, any_number=NUMPY_2)
    return operands[0]


def _is_array(value: Value) -> bool:
    return isinstance(value, ShapedArray) or (
        isinstance(value, ArrayValue) and isinstance(value.example, numpy.ndarray)
    )


def _truth(trace: Trace, array: Value) -> Value:
    assert isinstance(array, ArrayValue)
    if array.specialise is not None:
        return boolean(bool(array.constant()))
    raise Break("data-dependent-branch", "the truth of an array")


def _contains(trace: Trace, container: Value, item: Value) -> Value:
    raise Break("data-dependent", "in")


def _iterate(trace: Trace, array: Value) -> Value:
    assert isinstance(array, ArrayValue)
    if not isinstance(array.example, numpy.ndarray) or not array.example.ndim:
        raise Break("operation-raises", "iteration over an array")
    rows = range(array.example.shape[0])
    return iterate(trace, Sequence(list, [_get_item(trace, array, Const(row)) for row in rows]))


def _get_item(trace: Trace, array: Value, key: Value) -> Value:
    keys = trace.read(key)
    parts = keys.items if isinstance(keys, Sequence) else [keys]
    for part in parts:
        part_value = trace.read(part)
        if isinstance(part_value, ArrayValue) and part_value.example.dtype.kind == "b":
            raise Break("data-dependent", "a mask as an index of an array")
    if isinstance(trace.read(array), TensorValue):
        raise Break("operation-argument", "an array as an index of a tensor")
    operands = [array, key]
    return record_array(trace, operator.getitem, _get_at_zero, operands, {}, any_number=True)


def _get_at_zero(array: Any, key: Any) -> Any:
    """`array[key]` on examples, with each index replaced by 0: examples hold ones, which may be out
    of range."""
    parts = key if isinstance(key, tuple) else (key,)
    safe = tuple(p * 0 if isinstance(p, numpy.ndarray | numpy.integer) else p for p in parts)
    return array[safe if isinstance(key, tuple) else safe[0]]


def _set_item(trace: Trace, array: Value, key: Value, value: Value) -> Value:
    def trial(array: Any, key: Any, value: Any) -> None:
        parts = key if isinstance(key, tuple) else (key,)
        safe = tuple(p * 0 if _is_index(p) else p for p in parts)
        array.copy()[safe if isinstance(key, tuple) else safe[0]] = value

    operands = [array, key, value]
    record_array(trace, operator.setitem, trial, operands, {}, writes=True, any_number=True)
    return NONE


def _is_index(value: Any) -> bool:
    return isinstance(value, numpy.ndarray | numpy.integer) and value.dtype.kind != "b"


OPERATORS: dict[Any, Callable[..., Value]] = {
    iter: _iterate,
    operator.truth: _truth,
    operator.contains: _contains,
    operator.getitem: _get_item,
    operator.setitem: _set_item,
}
PLAIN_OF: dict[Any, Callable[..., Any]] = {
    operator.iand: operator.and_,
    operator.ior: operator.or_,
    **{
        getattr(operator, f"i{name}"): getattr(operator, name)
        for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift",
                     "rshift", "xor")
    },
}  # fmt: skip


# ---- between tensors and arrays


def tensor_numpy(trace: Trace, tensor: TensorValue, *, force: Value | None = None) -> Value:
    """`tensor.numpy()`: the array shares the memory of the tensor."""
    fake = tensor.fake
    if force is not None or fake.requires_grad or fake.device.type != "cpu" or fake.is_conj():
        raise Break("tensor-method", "Tensor.numpy")
    symbolic = any(isinstance(n, SYMBOLIC) for n in fake.size()) and fake.is_contiguous()
    sizes, strides = ((0,), (1,)) if symbolic else (fake.size(), fake.stride())
    shown = [int(n) for n in sizes], [int(n) for n in strides]
    try:
        example = torch.empty_strided(*shown, dtype=fake.dtype).numpy()
    except TypeError as error:
        raise Break("operation-raises", "Tensor.numpy") from error
    trace.graph_effects.other = True
    node = trace.graph.operation("numpy", (tensor.node,), {}, trace.stack(), False)
    if symbolic:
        return ShapedArray(node, example.dtype, tuple(fake.size()))
    return ArrayValue(node, example_array(example))


def _convert_number(trace: Trace, value: ArrayValue, name: str) -> tuple[Any, Any]:
    """A NumPy number as an argument of PyTorch, which takes it for a plain one."""
    if _is_array(value):
        raise Break("operation-argument", f"{name} on an array")
    if value.example.dtype.kind not in "iuf" or not takes_any_number(name):
        try:
            return convert(trace, Const(value.constant()), name)
        except NotConstant as error:
            raise Break("operation-argument", f"{name} on a number from an array") from error
    if isinstance(value, InputNumber):
        return convert(trace, value.number, name)
    cpu = {"device": torch.device("cpu")}  # whatever the default is
    example = (torch.as_tensor(value.example, device="cpu"),)
    tensor = record_body_call(
        trace, torch.as_tensor, (value.node,), example, cpu, {}, on_fakes=torch.Tensor.clone
    )
    return convert(trace, call(trace, get_attribute(trace, tensor, "item"), []), name)


def _tensor_of(real: Callable[..., Any], otherwise: Callable[..., Value] | None) -> Any:
    name = "obj" if real is torch.asarray else "data"

    def handler(trace: Trace, *args: Value, **kwargs: Value) -> Value:
        if len(args) + (name in kwargs) != 1:
            raise Break("bad-arguments", f"torch.{real.__name__}")
        data = args[0] if args else kwargs.pop(name)
        array = trace.read(data)
        if not isinstance(array, ArrayValue):
            if otherwise is None:
                raise Break("operation-argument", f"torch.{real.__name__}")
            if _has_number(trace, data) and is_none(trace, kwargs.get("dtype", NONE)):
                data = _with_constants(trace, data)
                kwargs["dtype"] = Const(_tensor_type(trace, real, data))
                data = _with_plain_numbers(trace, data)
            return otherwise(trace, data, **kwargs)
        made = early_arrays.converted(trace, real, array, kwargs)
        if made is not None:
            return made
        options = {key: trace.read(value).constant() for key, value in kwargs.items()}
        shaped = array if isinstance(array, ShapedArray) else None
        array_example = array.example if shaped is None else shaped.small()
        example = _try(f"torch.{real.__name__}", real, [array_example], options)
        trace.graph_effects.other = True
        if shaped is not None:
            return record_body_call(
                trace,
                real,
                (array.node,),
                (shaped, example),
                options,
                {},
                on_fakes=shapes.empty_like,
            )
        return record_body_call(
            trace, real, (array.node,), (example,), options, on_fakes=torch.Tensor.clone
        )

    return handler


def _as_index(trace: Trace, array: ArrayValue) -> Value | None:
    """An index of a tensor: PyTorch copies its numbers. Arrays of uint8 would be masks."""
    dtype = array.dtype if isinstance(array, ShapedArray) else array.example.dtype
    if not _is_array(array) or dtype.kind not in "ib":
        return None
    index: Value = FUNCTIONS[torch.tensor](trace, array)
    return index


def _has_number(trace: Trace, value: Value) -> bool:
    """Whether there are NumPy numbers in the value: a tensor made of them has their type."""
    value = trace.read(value)
    if isinstance(value, Sequence):
        return any(_has_number(trace, item) for item in value.items)
    return isinstance(value, Const | ArrayValue) and issubclass(value.python_type(), numpy.generic)


def _tensor_type(trace: Trace, real: Callable[..., Any], data: Value) -> torch.dtype:
    name = f"torch.{real.__name__}"
    try:
        objects = known_object(data, trace)
    except NotConstant as error:
        raise Break("operation-argument", f"{name} of numbers of NumPy's and others") from error
    dtype: torch.dtype = _try(name, real, [objects], {"device": "cpu"}).dtype
    return dtype


def _register_functions(space: types.ModuleType) -> None:
    for name, real in vars(space).items():
        usable = isinstance(real, FUNCTION_TYPES) and not name.startswith("_")
        if usable and getattr(real, "__name__", None) is not None:
            FUNCTIONS[real] = _on_arrays(real, FUNCTIONS.get(real))
            BUILDERS.setdefault(type(real), BUILDERS[type(NotImplemented)])


def _register() -> None:
    BUILDERS[numpy.ndarray] = _array_from_outside
    DRAWN[numpy.ndarray] = _drawn_array
    PRINTABLE.update((ArrayValue, InputNumber, ShapedArray))
    _register_functions(numpy)
    _register_functions(numpy.linalg)
    LATE["numpy.fft"].append(lambda: _register_functions(numpy.fft))
    for name in SCALAR_TYPES:
        kind = getattr(numpy, name)
        plain_kind = numpy.dtype(kind).kind
        FUNCTIONS[kind] = _scalar(kind)
        # Before NumPy 2 the kind of a result depends on the number. Symbols are of 64 bits.
        if NUMPY_2 and (plain_kind in "if" or name in ("uint8", "uint16", "uint32")):
            BUILDERS[kind] = _number_from_outside
        FOLDABLE.add(type(numpy.dtype(kind)))
    CONVERT[ArrayValue] = _convert_number
    GET[ArrayValue] = get_array_attribute
    CALL[ArrayMethod] = call_array_method
    OPERATE[ArrayValue] = operate
    AS_INDEX[ArrayValue] = AS_INDEX[ShapedArray] = _as_index
    for value_class in (InputNumber, ShapedArray):
        GET[value_class], OPERATE[value_class] = get_array_attribute, operate
        CONVERT[value_class] = _convert_number
    METHODS[torch._C.TensorBase, "numpy"] = tensor_numpy
    METHODS[numpy.ndarray, "__len__"] = _length
    FUNCTIONS[torch.from_numpy] = _tensor_of(torch.from_numpy, None)
    FUNCTIONS[torch.tensor] = _tensor_of(torch.tensor, tensor_data.tensor)
    for plain in (torch.as_tensor, torch.asarray):
        FUNCTIONS[plain] = _tensor_of(plain, _plain(plain))


def _scalar(kind: Any) -> Callable[..., Value]:
    """`numpy.float32(number)`, of a constant or of what NumPy computed."""

    def make(trace: Trace, *args: Value) -> Value:
        if any(has_array(trace, arg) for arg in args):
            return record_array(trace, kind, kind, list(args), {})
        return fold(trace, kind, *map(trace.read, args))

    return make


def _length(trace: Trace, array: ArrayValue) -> Value:
    if isinstance(array, ShapedArray) and array.sizes:
        return shapes.size_value(trace, array.sizes[0])
    if not array.example.ndim:
        raise Break("operation-raises", "len() of an array")
    return Const(int(array.example.shape[0]))


def _plain(real: Callable[..., Any]) -> Callable[..., Value]:
    def call(trace: Trace, data: Value, **kwargs: Value) -> Value:
        return call_operation(trace, real, [data], kwargs)

    return call


if numpy is not None:
    FUNCTION_TYPES: tuple[type, ...] = (
        numpy.ufunc, types.FunctionType, types.BuiltinFunctionType, type(numpy.sum),
    )  # fmt: skip
    _register()
