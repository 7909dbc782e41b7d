"""PyTorch functions become graph nodes.

An operation is run on fakes first, which tells everything about its result. What it returned
decides what it was: tensors make a node; plain values without tensors (a size, a dtype, a flag) are
facts known at capture time and make none; a write or a random draw makes a node that must stay.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.base.errors import DataDependentError, PliantError
from pliant.base.isolation import FATAL
from pliant.capture import indexing, overrides, scalars
from pliant.capture.assumed_layout import (
    OFFSET_AT,
    assume_layout,
    assume_method,
    assume_not_empty,
    assume_strides,
    guards_run_no_code,
)
from pliant.capture.failures import note_operation, program_handles
from pliant.capture.model import (
    GET,
    OPERATE,
    SET,
    call_special,
    generic_set_attribute,
    iterate,
    truth,
)
from pliant.capture.state_numbers import note_numbers, updates
from pliant.capture.torch_state import QUERIES, UNCOVERED, WRITERS, assume_answer, undo_of
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Unread, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.functions import named
from pliant.capture.values.listed import listed
from pliant.capture.values.number import Number, may_refuse_number, takes_any_number
from pliant.capture.values.objects import SliceValue
from pliant.capture.values.program_classes import PLAIN_FORMS as EXACT_FORMS
from pliant.capture.values.ragged_sizes import RaggedSize
from pliant.capture.values.tensors import TensorValue
from pliant.fake import (
    DataDependent,
    Fake,
    NoMetaKernel,
    OpResult,
    ReadsArgument,
    Unsupported,
    selection,
)
from pliant.fake.trial import Call
from pliant.fake.unbacked import Listed
from pliant.fake.wrappers import RECIPE, has_own_sizes, is_wrapper, recipe_of
from pliant.guards.guard import GuardKind
from pliant.guards.source import Attr
from pliant.sym.node import SYMBOLIC, to_torch

C_MODULES = frozenset(
    f"torch._C.{name}" for name in ("_nn", "_fft", "_linalg", "_special", "_sparse", "_nested")
)
PYTHON_MODULES = frozenset(
    {"torch.nn.functional", "torch.functional", "torch._tensor", "torch._lowrank", "torch._lobpcg"}
)
# Methods written in Python that do more than compute a tensor: they run in Python.
NOT_OPERATIONS = frozenset(
    {
        "backward", "register_hook", "register_post_accumulate_grad_hook", "storage",
        "share_memory_", "module_load", "__deepcopy__", "__reduce_ex__", "__setstate__", "__dir__",
        "__repr__", "__format__", "__array__", "__dlpack__", "__hash__", "numpy",
        "_reduce_ex_internal", "__torch_function__",
        # about the memory of the tensor, which is another one on each call
        "data_ptr", "untyped_storage", "_typed_storage", "storage_type", "is_shared", "is_pinned",
        "is_set_to", "pin_memory", "const_data_ptr",
    }
)  # fmt: skip
# Attributes that say something about the tensor's history or memory, not about its kind.
NOT_FACTS = frozenset(
    {"_version", "_cdata", "_base", "output_nr", "_backward_hooks", "_post_accumulate_grad_hooks"}
)
# Attributes that the guard on a tensor does not cover, and which get a guard of their own.
GUARDED_FACTS = frozenset({"is_leaf", "retains_grad", "name", "names"})
SETTERS: dict[str, Callable[[Trace, TensorValue, Value], None]] = {}  # by attribute


# Functions that look at data, or call one of the program's functions: they are followed.
PYTHON_CODE = frozenset({"gaussian_nll_loss", "triplet_margin_with_distance_loss"})


def is_operation(real: Any) -> bool:
    """Whether a callable is one of PyTorch's operations on tensors."""
    if isinstance(real, types.BuiltinFunctionType):
        if real in WRITERS or real in QUERIES:
            return True
        module = getattr(real.__self__, "__name__", None)
        return module in C_MODULES or (real.__self__ is None and real.__module__ == "torch")
    if isinstance(real, types.FunctionType):
        name = real.__name__
        is_python = name in NOT_OPERATIONS or name in PYTHON_CODE
        return real.__module__ in PYTHON_MODULES and not is_python
    return isinstance(real, torch._ops.OpOverload | torch._ops.OpOverloadPacket)


# What the program chose for all calls: `(trace, function, kwargs)` gives the keyword arguments.
BEFORE_CALLS: list[Callable[[Trace, Any, dict[str, Value]], dict[str, Value]]] = []


def with_choices(trace: Trace, real: Any, kwargs: dict[str, Value]) -> dict[str, Value]:
    """The keyword arguments with the program's choices for all calls (a default device)."""
    for change in BEFORE_CALLS:
        kwargs = change(trace, real, kwargs)
    return kwargs


def call_operation(
    trace: Trace, real: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call a PyTorch function: dispatch it to a mode or subclass that overrides it, or record
    it."""
    if real not in QUERIES and (real not in WRITERS or real is torch._C._set_grad_enabled):
        # Where PyTorch itself asks classes and modes for an override, before it looks at anything.
        overriders = overrides.overriders_of_call(trace, real, args, kwargs)
        if overriders is not None:
            return overrides.dispatch(trace, Const(real), overriders, args, kwargs or None)
    return call_plain_operation(trace, real, args, kwargs)


def call_plain_operation(
    trace: Trace, real: Callable[..., Any], args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call a PyTorch function that no mode or subclass overrides."""
    kwargs = with_choices(trace, real, kwargs)
    if real in UNCOVERED:
        assume_answer(trace, real, args)
    if real in WRITERS:
        trace.undo_later(undo_of(trace, real, args))
    method = getattr(torch.Tensor, getattr(real, "__name__", ""), None)
    # `torch.Tensor.add(x, y)` is the method: as such it prints in the graph.
    if method is real and args and isinstance(trace.read(args[0]), TensorValue):
        return record(trace, real.__name__, real, args, kwargs)
    return record(trace, real, real, args, kwargs)


def call_tensor_method(
    trace: Trace, name: str, obj: TensorValue, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call a method of a tensor."""
    special = ITEM_METHODS.get(name)
    if special is not None and not kwargs:
        result = OPERATORS[special](trace, obj, *args)
        if result is not None:
            return result
    if name in NOT_OPERATIONS:
        raise Break("tensor-method", f"Tensor.{name}")
    first = trace.read(args[0]) if args else None
    if name == "new" and isinstance(first, Sequence) and first.cls is torch.Size:
        name = "new_empty"  # where a tuple in its place is no data
    return record(trace, name, getattr(torch.Tensor, name), [obj, *args], kwargs)


def record(
    trace: Trace,
    target: Callable[..., Any] | str,
    function: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    """Run `function` on fakes, and make a node that calls `target` if the graph needs one."""
    try:
        return _record(trace, target, function, args, kwargs)
    except ReadsArgument as reads:
        values = indexing.with_argument_read(trace, [*args, *kwargs.values()], reads.tensor, _item)
    args, rest = values[: len(args)], values[len(args) :]
    return record(trace, target, function, args, dict(zip(kwargs, rest, strict=True)))


def _record(
    trace: Trace,
    target: Callable[..., Any] | str,
    function: Callable[..., Any],
    args: list[Value],
    kwargs: dict[str, Value],
) -> Value:
    name = target if isinstance(target, str) else named(Const(target))
    # A failure behind `backward` can't be undone: gradients have been accumulated.
    if trace.graph_effects.backward and program_handles(trace.frames):
        raise Break("tensor-method", "a handler of failures behind Tensor.backward")
    _require_no_overrides(trace, function, name, [*args, *kwargs.values()])
    args = scalars.as_sizes(trace, name, args)
    node_args, fake_args = _both(trace, args, name)
    pairs = [convert(trace, value, name) for value in kwargs.values()]
    node_kwargs = dict(zip(kwargs, (pair[0] for pair in pairs), strict=True))
    fake_kwargs = dict(zip(kwargs, (pair[1] for pair in pairs), strict=True))
    if args:
        assume_layout(trace, function, trace.read(args[0]), fake_args, fake_kwargs)
    env = trace.sizes.env
    symbols_before, assumed, asserted = map(
        len, (env.symbols, env.assumptions, env.runtime_asserts)
    )
    result = run_on_fakes(trace, name, function, fake_args, fake_kwargs)
    # A number that only the graph will know, now or later, is a new symbol: it has to have a node.
    reads_data = len(env.symbols) > symbols_before or isinstance(result.value, Listed)
    writes = bool(result.mutated) or writes_metadata(function)
    if writes:
        about_to_write(trace, function, result.mutated)
    number_updates = updates(trace, function, args, kwargs, result) if writes else None
    # From now on it matters which inputs are the same tensor (`aliasing`).
    trace.writes_tensors |= writes
    if name in OFFSET_AT and (len(args) > OFFSET_AT[name] or "storage_offset" in kwargs):
        assume_method(trace, trace.read(args[0]), "storage_offset")
    effect = writes or result.random
    trace.changes += effect
    runs = effect or reads_data or result.raises  # when the graph does, whatever it returns
    if not runs and not _has_tensor(result.value):
        return _fact(trace, name, args, result.value)
    node = trace.graph.operation(target, tuple(node_args), node_kwargs, trace.stack(), effect)
    note_operation(trace, node, result, effect)
    numbers = (trace.read(value) for value in (*args, *kwargs.values()))
    if len(env.runtime_asserts) > asserted or may_refuse_number(name, numbers, result.value):
        trace.graph.keep(node)  # so that it raises, rather than a test of the capture
    # To try these would draw, raise, or change something.
    untried = result.random or result.raises or writes_metadata(function)
    untried = untried or trace.world.has_wrapper((fake_args, fake_kwargs))
    if not untried and not torch._C._is_any_autocast_enabled():
        call = Call(function, tuple(fake_args), fake_kwargs, result.value)
        trace.graph.try_call(node, call, trace.frames[-1].step)
    if len(env.assumptions) > assumed and isinstance(result.value, Fake):
        node = trace.sizes.as_assumed(node, result.value)
    value = from_result(trace, result.value, node, name)
    note_numbers(trace, function, args, kwargs, result, number_updates)
    trace.sizes.emit_checks()
    return value


def _fact(trace: Trace, name: str, args: list[Value], result: Any) -> Value:
    """A result without tensors, known now and guarded: the graph doesn't compute it."""
    if args and name in GUARDED_METHODS:
        assume_method(trace, trace.read(args[0]), name)
    if args and name == "stride":
        assume_strides(trace, trace.read(args[0]))
    elif args and name == "storage_offset":
        assume_not_empty(trace, trace.read(args[0]))  # it is a multiple of a stride
    trace.sizes.emit_checks()
    return plain_result(trace, result, name)


def _require_no_overrides(trace: Trace, function: Any, name: str, args: list[Value]) -> None:
    """Break the graph where an override would be asked and has not been."""
    state = trace.overrides
    never = function in QUERIES or function in WRITERS or name in overrides.NEVER_OVERRIDDEN
    if state.modes and state.level != overrides.OFF and not never:
        raise Break("unsupported", f"{name} under a TorchFunctionMode")
    values = [trace.read(arg) for arg in args] if writes_metadata(function) else []
    if any(isinstance(value, TensorValue) and value.plain for value in values):
        raise Break("tensor-kind", f"{name} of a tensor subclass")


# Called before a write with `(trace, function, tensors written)`; may break the graph instead.
BEFORE_WRITES: list[Callable[[Trace, Any, tuple[Fake, ...]], None]] = []


def about_to_write(trace: Trace, function: Any, mutated: tuple[Fake, ...]) -> None:
    for tell in BEFORE_WRITES:
        tell(trace, function, mutated)


# Methods that change a tensor without an operator that would tell.
METADATA_WRITERS = frozenset({"requires_grad_", "detach_", "rename_", "retain_grad"})


def writes_metadata(function: Callable[..., Any]) -> bool:
    name = getattr(function, "__name__", "")
    return function is setattr or name in METADATA_WRITERS or function in WRITERS


NO_FAKE = "no fake impl registered"  # what PyTorch says of a custom operator without shape rule


def run_on_fakes(
    trace: Trace, name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    try:
        if function in QUERIES:  # asked as the program would, without our own mode in the way
            return OpResult(function(*args, **kwargs), (), random=False)
        return trace.world.run(function, tuple(args), kwargs)
    except DataDependentError as error:
        raise Break("data-dependent-number", f"{name}: {error.what}", error=error) from error
    except (PliantError, ReadsArgument):
        raise
    except DataDependent as error:
        raise Break("data-dependent", name) from error
    except NoMetaKernel as error:
        raise Break("no-meta-kernel", name) from error
    except Unsupported as error:
        raise Break("tensor-kind", f"{name}: {error}") from error
    except FATAL:
        raise
    except Exception as error:
        if NO_FAKE in str(error):
            raise Break("no-meta-kernel", name) from error
        # Eager PyTorch makes the error, with its own words.
        raise Break("operation-raises", f"{name}: {error}") from error


# ---- arguments and results


def _both(trace: Trace, values: list[Value], name: str) -> tuple[list[Any], list[Any]]:
    pairs = [convert(trace, value, name) for value in values]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def convert(trace: Trace, value: Value, name: str) -> tuple[Any, Any]:
    """An argument in two forms: for the node of the graph, and for the run on fakes."""
    value = trace.read(value)
    converter = CONVERT.get(type(value))
    if converter is None:
        raise Break("operation-argument", f"{name} on {named(value)}")
    return converter(trace, value, name)


# How numbers of other libraries are written down in a graph, by class.
PLAIN_FORMS: dict[type, Callable[[Any], Any]] = {}


# Classes that PyTorch takes for a dtype.
BUILTIN_DTYPES: dict[type, torch.dtype] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}


LEGACY: Any = type(torch.FloatTensor)  # of classes that stand for a dtype and a device


def exact_number(value: Any) -> Any:
    """A number or string without its subclass, which a graph can't hold."""
    kinds = [] if type(value) is bool else [cls for cls in EXACT_FORMS if isinstance(value, cls)]
    return EXACT_FORMS[kinds[0]](value) if kinds else value


def _convert_constant(trace: Trace, value: Const, name: str) -> tuple[Any, Any]:
    real = value.value
    if type(real) is LEGACY and name == "type":  # `x.type(torch.HalfTensor)` takes the name, too
        real = f"{real.__module__}.{real.__name__}"
        return real, real
    of_class = isinstance(real, type) and name == "type"  # `Tensor.type`, which does not
    plain = None if of_class else _graph_constant(real)
    if plain is None and value.value is not None:
        raise Break("operation-argument", f"{name} on {named(value)}")
    # PyTorch itself says where it takes numbers of other libraries.
    return plain, value.value if type(value.value) in PLAIN_FORMS else plain


def _graph_constant(real: Any) -> Any:
    """The object as it can be written down in a graph; None if it can't."""
    if type(real) is tuple:
        parts = tuple(map(_graph_constant, real))
        return None if parts.count(None) > real.count(None) else parts
    if type(real) is slice:
        bounds = _graph_constant((real.start, real.stop, real.step))
        return None if bounds is None else slice(*bounds)
    if isinstance(real, type):
        return BUILTIN_DTYPES.get(real)
    form = PLAIN_FORMS.get(type(real))
    constant = real if form is None else form(real)
    return exact_number(constant) if isinstance(constant, GRAPH_CONSTANTS) else None


def _convert_sequence(trace: Trace, value: Sequence, name: str) -> tuple[Any, Any]:
    nodes, fakes = _both(trace, value.items, name)
    if value.cls in (list, tuple):
        return value.cls(nodes), value.cls(fakes)
    if value.cls is torch.Size or hasattr(value.cls, "n_sequence_fields"):  # no other in a graph
        return tuple(nodes), value.cls(fakes)
    if value.cls is deque:  # which few operations take
        return nodes, deque(fakes)
    if issubclass(value.cls, tuple):
        return tuple.__new__(value.cls, nodes), tuple.__new__(value.cls, fakes)
    return nodes, fakes


def _convert_tensor(trace: Trace, value: TensorValue, name: str) -> tuple[Any, Any]:
    if value.plain and trace.overrides.level == overrides.ENABLED:
        raise Break("tensor-kind", f"{name} of a {value.cls.__name__}")  # its class was not asked
    return value.node, value.fake


def _convert_slice(trace: Trace, value: SliceValue, name: str) -> tuple[Any, Any]:
    nodes, fakes = _both(trace, value.parts, name)
    return slice(*nodes), slice(*fakes)


def _convert_mapping(trace: Trace, value: Mapping, name: str) -> tuple[Any, Any]:
    items = value.read_all(trace)
    nodes, fakes = _both(trace, list(items.values()), name)
    return dict(zip(items, nodes, strict=True)), dict(zip(items, fakes, strict=True))


def _convert_number(trace: Trace, value: Number, name: str) -> tuple[Any, Any]:
    """A symbolic number; a plain one for fakes whose metadata don't depend on it."""
    if value.python_type() is bool and not takes_any_number(name):
        return _convert_constant(trace, Const(value.constant()), name)  # a flag: what to do
    node = trace.sizes.nodes.node(value.expr)
    if takes_any_number(name):
        hint = trace.sizes.env.hint(value.expr)
        return node, value.python_type()(1) if hint is None else hint
    return node, to_torch(value.expr, trace.sizes.env)


def _convert_ragged_size(trace: Trace, value: RaggedSize, name: str) -> tuple[Any, Any]:
    node = trace.graph.operation(
        "size", (value.tensor.node, value.dim), {}, trace.stack(), effect=False
    )
    return node, value.number


# What can stand in the source of a graph.
GRAPH_CONSTANTS = (
    int, float, complex, str, type(None), type(...), slice, range, torch.dtype, torch.device,
    torch.layout, torch.memory_format, torch.Size, torch.qscheme,
)  # fmt: skip

CONVERT: dict[type, Callable[[Trace, Any, str], tuple[Any, Any]]] = {
    TensorValue: _convert_tensor,
    Const: _convert_constant,
    Number: _convert_number,
    RaggedSize: _convert_ragged_size,
    Sequence: _convert_sequence,
    SliceValue: _convert_slice,
    Mapping: _convert_mapping,
}


def _has_tensor(value: Any) -> bool:
    if isinstance(value, tuple | list | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(_has_tensor(item) for item in items)
    return isinstance(value, torch.Tensor)


def _has_origin(value: Any) -> bool:
    """Whether a result holds a tensor or a symbolic number, which has to be read from the graph."""
    if isinstance(value, tuple | list | dict):
        items = value.values() if isinstance(value, dict) else value
        return any(_has_origin(item) for item in items)
    return isinstance(value, (torch.Tensor, *SYMBOLIC))


def from_result(trace: Trace, value: Any, node: fx.Node, name: str) -> Value:
    """The result of a node as a value; a fake that is known already keeps its value."""
    if isinstance(value, Fake) or (trace.world.wraps and is_wrapper(value)):
        existing = trace.tensors.get(id(value))
        if existing is not None:
            return existing
        if type(value) is not Fake:
            node.meta[RECIPE] = recipe_of(value)
        tensor = TensorValue(node, value, torch.Tensor if type(value) is Fake else type(value))
        trace.tensors[id(value)] = tensor
        if value._has_symbolic_sizes_strides and (type(value) is Fake or not has_own_sizes(value)):
            trace.sizes.nodes.settle_sizes(value, node)
        return tensor
    if isinstance(value, tuple | list):
        items = [_part(trace, item, node, index, name) for index, item in enumerate(value)]
        return Sequence(type(value), items)
    if type(value) in (dict, OrderedDict):
        parts: dict[Any, Value | None] = {
            key: _part(trace, item, node, key, name) for key, item in value.items()
        }
        return Mapping(type(value), parts)
    if isinstance(value, Listed):
        return listed(node, value)
    if isinstance(value, SYMBOLIC):
        trace.sizes.nodes.settle(value, node)
    return plain_result(trace, value, name)


def _part(trace: Trace, value: Any, node: fx.Node, key: Any, name: str) -> Value:
    """The item of a node's result at `key`."""
    if _has_origin(value):
        node = trace.graph.operation(operator.getitem, (node, key), {}, trace.stack(), False)
    return from_result(trace, value, node, name)


PLAIN_RESULTS = (
    int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.finfo, torch.iinfo,
)  # fmt: skip


def plain_result(trace: Trace, value: Any, name: str) -> Value:
    """A result without tensors as a value: a constant or a symbolic number."""
    if isinstance(value, tuple | list):
        return Sequence(type(value), [plain_result(trace, item, name) for item in value])
    if type(value) is dict:
        return Mapping(dict, {key: plain_result(trace, item, name) for key, item in value.items()})
    if isinstance(value, PLAIN_RESULTS):
        return Const(value)
    if isinstance(value, SYMBOLIC):
        return trace.sizes.value(value)
    raise Break("operation-result", f"{name}, which gave a {type(value).__name__}")


# ---- the tensor as an object


def operate(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """An operator with a tensor among the operands. None if another operand's class decides."""
    if indexing.repeats(real, operands):
        raise Break("data-dependent", f"{real.__name__} of a sequence and a tensor")
    if overrides.takes_over(trace, real, operands):
        return overrides.operate(trace, real, operands)
    special = OPERATORS.get(real)
    if special is not None:
        return special(trace, *operands)
    foreign = [operand for operand in operands if type(operand) not in CONVERT]
    if any(not issubclass(operand.python_type(), torch.Tensor) for operand in foreign):
        return None
    return record(trace, real, real, list(operands), {})  # which refuses tensors without a fake


def _iterate(trace: Trace, tensor: Value) -> Value:
    assert isinstance(tensor, TensorValue)
    if tensor.fake.dim() == 0:
        trace.throw(TypeError("iteration over a 0-d tensor"))
    return iterate(trace, record(trace, "unbind", torch.Tensor.unbind, [tensor, Const(0)], {}))


def _truth(trace: Trace, tensor: Value) -> Value:
    number = scalars.scalar(trace, tensor)
    if number is not tensor:
        return boolean(truth(trace, number))
    if isinstance(tensor, TensorValue) and trace.state_numbers.of(tensor) is not None:
        return boolean(truth(trace, _item(trace, tensor)))
    scalars.refuse_truth(trace, tensor)


def _contains(trace: Trace, container: Value, item: Value) -> Value:
    raise Break("data-dependent", "in")


def _get_item(trace: Trace, tensor: Value, key: Value) -> Value | None:
    if not isinstance(tensor, TensorValue):
        return None
    key = trace.read(indexing.with_indices(trace, key))
    if type(key) not in CONVERT:
        return None
    if trace.indexes_with_tensors:
        indices = indexing.tensors_of(trace, key)
        if indices is not None:
            return record(trace, indexing.at, indexing.at, [tensor, *indices], {})
    key, selects = indexing.with_numbers(trace, key, _item)
    run = selection.get if selects else operator.getitem
    return record(trace, operator.getitem, run, [tensor, key], {})


def _item(trace: Trace, tensor: TensorValue) -> Value:
    return record(trace, "item", torch.Tensor.item, [tensor], {})


def _set_item(trace: Trace, tensor: Value, key: Value, value: Value) -> Value:
    key = trace.read(indexing.with_indices(trace, key))
    key, selects = indexing.with_numbers(trace, key, _item)
    run = selection.put if selects else operator.setitem
    record(trace, operator.setitem, run, [tensor, key, value], {})
    return NONE


OPERATORS: dict[Any, Callable[..., Value | None]] = {
    iter: _iterate,
    operator.getitem: _get_item,
    operator.truth: _truth,
    operator.contains: _contains,
    operator.setitem: _set_item,
}


# Methods that are operators: their own C code is not what a graph calls.
ITEM_METHODS: dict[str, Callable[..., Any]] = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
}

# Methods whose answer does not follow from what every tensor from outside is guarded by.
GUARDED_METHODS = frozenset({"storage_offset", "_is_view", "has_names"})


def get_tensor_attribute(trace: Trace, tensor: TensorValue, name: str) -> Value | None:
    """An attribute that C code computes; None leaves others to the general rules."""
    attribute = trace.lookup(tensor.cls, name)
    if not isinstance(attribute, types.GetSetDescriptorType | property):
        return None
    return None if overrides.redefines(trace, tensor, name) else read_attribute(trace, tensor, name)


def read_attribute(trace: Trace, tensor: TensorValue, name: str) -> Value:
    """The attribute as `torch.Tensor` has it, whatever the class has in its place."""
    result = overrides.get_tensor_attribute(trace, tensor, name)
    if result is not None:
        return result
    if name in NOT_FACTS:
        raise Break("tensor-attribute", f"Tensor.{name}")
    special = ATTRIBUTES.get(name)
    if special is not None:
        value = special(trace, tensor)
        if value is not None:
            return value
    if name in GUARDED_FACTS and tensor.source is not None:
        guards_run_no_code(trace, tensor, name)
        attribute = getattr(tensor.real, name)
        trace.guard(GuardKind.EQUALS, Attr(tensor.source, name), attribute)
        if attribute is True and name == "retains_grad":
            return Const(True)
    return record(trace, getattr, getattr, [tensor, Const(name)], {})


def gradient(trace: Trace, tensor: TensorValue) -> Value | None:
    """The attribute `grad`; None if it has to be a node of the graph."""
    if "grad" in tensor.slots:
        return tensor.slots["grad"]
    if tensor.real is None or tensor.source is None:
        return None
    guards_run_no_code(trace, tensor, "grad")
    if not tensor.real.is_leaf and not _assume_retained(trace, tensor):
        return NONE  # PyTorch warns on reading it
    return Unread(tensor.real.grad, Attr(tensor.source, "grad"))


def _assume_retained(trace: Trace, tensor: TensorValue) -> bool:
    """Guard whether a tensor from outside that is no leaf retains its gradient; return it."""
    assert tensor.real is not None and tensor.source is not None
    for name in ("is_leaf", "retains_grad"):
        trace.guard(GuardKind.EQUALS, Attr(tensor.source, name), getattr(tensor.real, name))
    return tensor.real.retains_grad


def call_accessor(trace: Trace, real: Any, args: list[Value]) -> Value:
    """`torch.Tensor.shape.__get__(x)`: how a `__torch_function__` sees an attribute."""
    tensor, name = trace.read(args[0]), real.__self__.__name__
    if not isinstance(tensor, TensorValue):
        raise Break("unsupported-function", f"Tensor.{name}.{real.__name__}")
    if real.__name__ == "__set__":
        set_tensor_attribute(trace, tensor, name, args[1])
        return NONE
    return read_attribute(trace, tensor, name)


def _grad_fn(trace: Trace, tensor: TensorValue) -> Value:
    real = tensor.fake if tensor.real is None else tensor.real
    if real.grad_fn is not None:
        raise Break("tensor-attribute", "Tensor.grad_fn")
    if tensor.source is not None:
        guards_run_no_code(trace, tensor, "grad_fn")
        trace.guard(GuardKind.IS, Attr(tensor.source, "grad_fn"), None)
    return NONE


def _dict(trace: Trace, tensor: TensorValue) -> Value:
    if tensor.real is None and type(tensor.fake) is not Fake:  # the graph has it
        raise Break("tensor-attribute", f"{tensor.cls.__name__}.__dict__")
    tensor.instance_attribute(trace, "__dict__")
    assert tensor.attributes is not None
    return tensor.attributes


ATTRIBUTES: dict[str, Callable[[Trace, TensorValue], Value | None]] = {
    "grad": gradient,
    "grad_fn": _grad_fn,
    "__dict__": _dict,
    "__class__": lambda trace, tensor: Const(tensor.cls),
}


def set_tensor_attribute(trace: Trace, tensor: TensorValue, name: str, value: Value | None) -> None:
    """`tensor.name = value`."""
    attribute = trace.lookup(tensor.cls, name)
    if overrides.redefines(trace, tensor, name) or _stores_itself(trace, tensor, value):
        _follow_store(trace, tensor, name, value)
        return
    if value is not None and overrides.set_tensor_attribute(trace, tensor, name, value):
        return
    if not isinstance(attribute, types.GetSetDescriptorType | property):
        generic_set_attribute(trace, tensor, name, value)
    elif value is None:
        raise Break("tensor-attribute", f"del Tensor.{name}")
    elif name in SETTERS:
        SETTERS[name](trace, tensor, value)
    else:
        record(trace, setattr, setattr, [tensor, Const(name), value], {})


def _stores_itself(trace: Trace, tensor: TensorValue, value: Value | None) -> bool:
    return overrides.redefines(trace, tensor, "__delattr__" if value is None else "__setattr__")


def _follow_store(trace: Trace, tensor: TensorValue, name: str, value: Value | None) -> None:
    """A write to a tensor whose class has a rule of its own for it."""
    if not _stores_itself(trace, tensor, value):
        generic_set_attribute(trace, tensor, name, value)
    elif value is None:
        call_special(trace, tensor, "__delattr__", Const(name))
    else:
        call_special(trace, tensor, "__setattr__", Const(name), value)


def compare_ragged_sizes(trace: Trace, real: Callable[..., Any], *operands: Value) -> Value | None:
    """`==` or `!=` of ragged sizes that are equal in every call; others may be equal by chance."""
    if real not in (operator.eq, operator.ne) or not all(
        isinstance(operand, RaggedSize) for operand in operands
    ):
        return None
    left, right = (operand.number.node.nested_int() for operand in operands)  # type: ignore[attr-defined]
    if left != right:
        raise Break("tensor-attribute", "a comparison of ragged sizes")
    return Const(real is operator.eq)


OPERATE[TensorValue] = operate
OPERATE[RaggedSize] = compare_ragged_sizes
GET[TensorValue] = get_tensor_attribute
SET[TensorValue] = set_tensor_attribute
