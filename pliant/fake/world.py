"""One compilation's fakes, and the running of PyTorch functions on them.

The one idea: a PyTorch function is simply called, with fakes as arguments. PyTorch's C++ takes it
apart into operators, which arrive in `World.__torch_dispatch__`. Each is answered from its
`OverloadKind` alone: a view by the real view kernel, a write by its arguments, anything else by a
shape rule or the operator's meta kernel. What it returned is remembered by the metadata of its
arguments, so that the twelfth identical layer costs a dictionary lookup per operator.

    world.run(torch.einsum, ("ij,kj->ik", x, y))     x: [4, 8], y: [3, 8]
      aten.permute, view…   VIEW         the real kernels, on storages without data
      aten.bmm              FUNCTIONAL   by a rule: New([1, 4, 3], (12, 3, 1), 0, float32, cpu)
      aten.view…            VIEW
    -> OpResult(Fake([4, 3]), mutated=(), random=False)
"""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.base.isolation import raise_hidden
from pliant.base.late import Late
from pliant.base.operators import FunctionRecord, function_record, record_of
from pliant.base.values import dataclass
from pliant.fake import autocast, convert, functions, measured, pointwise, unbacked, views
from pliant.fake.calls import Arguments, Twins, is_number, result_device
from pliant.fake.errors import DataDependent, NoMetaKernel, ReadsArgument, Unsupported
from pliant.fake.meta import MASKS, check_masks, meta_rule
from pliant.fake.order import is_contiguous
from pliant.fake.overload import Argument, Overload, OverloadKind, describe
from pliant.fake.plain_checks import plain_checks
from pliant.fake.python_dispatcher import python_first
from pliant.fake.raising import MayRaise, RefusesDtypes
from pliant.fake.results import Alias, Recipe, recipe_for
from pliant.fake.tensor import Fake, adopt, as_plain, empty_view, make, resize, shorten
from pliant.fake.trial import GOES_BACK
from pliant.fake.wrappers import fakes_inside, is_made_of_fakes, is_wrapper_class, wrappers_in
from pliant.sym.env import ShapeEnv

if TYPE_CHECKING:
    from pliant.fake import jagged
else:
    jagged = Late("pliant.fake.jagged")  # which most programs do without


@dataclass(frozen=True, slots=True)
class OpResult:
    """What running a function on fakes told about it."""

    value: Any
    mutated: tuple[Fake, ...]  # the tensors among the arguments that were written to
    random: bool  # whether random numbers were drawn
    raises: bool = False  # whether it may raise because of the numbers in a tensor
    refuses: bool = False  # whether one of its operators refuses the dtypes


_UNKNOWN = FunctionRecord(None)


@dataclass(slots=True)
class Notes:
    """What is noted while one function is run."""

    function: str
    record: FunctionRecord
    call: Any = (None, (), {})  # function and arguments
    written: list[Fake] = field(default_factory=list)  # their memory
    reshaped: list[Fake] = field(default_factory=list)  # they themselves
    random: bool = False
    raises: bool = False
    refuses: bool = False
    assumed: bool = False  # it was told something about values that may not hold

    def errors(self, raises: MayRaise, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note whether the operator may raise for these arguments: because of numbers (`raises`),
        or because its kernel refuses the dtypes (`refuses`)."""
        if isinstance(raises, RefusesDtypes):
            self.refuses = self.refuses or raises(args, kwargs)
        else:
            self.raises = self.raises or raises(args, kwargs)

    def require_number(self, t: Fake) -> None:
        """Raise ReadsArgument if the function reads a number from this tensor, which is one of its
        arguments: where PyTorch takes an integer (`torch.zeros(t)`), the caller passes the number
        instead, and runs the function again."""
        plain = t.dtype is not torch.bool and not (t.is_floating_point() or t.is_complex())
        func, args, kwargs = self.call
        # The tensor that a method belongs to stays one: `t.item()`, `t.__index__()`.
        if getattr(torch.Tensor, self.function, None) is func:
            args = args[1:]
        if plain and any(t is other for other in _fakes_in((args, kwargs))):
            raise ReadsArgument(t)


def nothing_returned(op: Overload, error: NotImplementedError) -> Any:
    """The result of an operator whose meta kernel is missing: None, if its schema has no results.
    Otherwise raises NoMetaKernel."""
    if op.func._schema.returns:
        raise NoMetaKernel(op.name) from error
    return None


class World(TorchDispatchMode):
    """The fakes of one compilation. Dropping it frees them all."""

    measures_symbols = True  # sizes become constants if kernels lay results out otherwise

    def __init__(self, env: ShapeEnv | None = None, reads_numbers: bool = True) -> None:
        super().__init__()
        self.reads_numbers = reads_numbers  # item() gives a symbol; else it can't be answered
        self.reads_arguments = True  # numbers in them; else there is a `ReadsArgument`
        self.env = ShapeEnv() if env is None else env
        self.keeps_tangents = False  # dual numbers are in use
        self.wraps = False  # there are fakes of wrapper subclasses
        self.autocast: autocast.State | None = None  # where the program has it on
        self._self = weakref.ref(self)
        self._reals = convert.Converter(self._self)
        self.forget = self._reals.forget
        # Recipes by operator and metadata of arguments; one table per default dtype.
        self._recipes: dict[Any, Recipe] = {}
        self._default_dtype = torch.get_default_dtype()
        self._notes = Notes("", _UNKNOWN)
        self.scalars: dict[int, Any] = {}  # what is known of the data: numbers, by fake
        self.in_data = unbacked.Numbers()
        self.reshaped: set[int] = set()  # fakes that were other ones before, by id

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # the default wraps every call through torch._dynamo

    def from_real(self, t: torch.Tensor, layout: tuple[Any, Any] | None = None) -> Fake:
        """The fake of a real tensor: each time the same one. Fakes share memory where their tensors
        do. `layout` are symbolic sizes and strides, if they are not to be those of `t`."""
        return self._reals.fake(t, layout)

    def run(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> OpResult:
        """Call `func(*args, **kwargs)` on fakes of this world; tells what it returned and did."""
        name = getattr(func, "__name__", "")
        # `str(x)` and its like reach the data without an operator, so no dispatch would notice.
        if name in DATA_READERS and _shows_values(func, name):
            return self._show(name, args)
        kwargs = kwargs or {}
        record = function_record(func) or _UNKNOWN
        if self.has_wrapper((args, kwargs)):
            record = _UNKNOWN  # what is known is about tensors that are what they seem
            func = jagged.override_of(func, args, kwargs) or func
        notes = Notes(name, record, (func, args, kwargs), raises=record.checks_data)
        outer, self._notes = self._notes, notes
        if torch.get_default_dtype() is not self._default_dtype:
            self._default_dtype, self._recipes = torch.get_default_dtype(), {}
        around, self.autocast = self.autocast, autocast.current()
        caching_casts = self.autocast is not None and torch.is_autocast_cache_enabled()
        if caching_casts:  # autocast's cache outlives this call and would keep fakes
            torch.set_autocast_cache_enabled(False)
        try:
            symbolic = None
            if not self.keeps_tangents:  # what is answered as a whole has none
                value = functions.answer(record, args, kwargs)
                if value is not None:
                    return OpResult(value, (), False)
                symbolic = functions.symbolic_form(record, args, kwargs)
            if record.on_fakes is not None:
                func = partial(record.on_fakes, func)
            value = self._call(symbolic, func, args, kwargs)
            value = self._all_fake(value) if type(value) is not Fake else _direct(self, value, args)
            mutated = self._mutated(args, kwargs)
            return OpResult(value, mutated, notes.random, notes.raises, notes.refuses)
        except (RuntimeError, TypeError) as error:
            raise_hidden(error)
            cause = self._cause(error)
            if cause is None:
                raise
            raise cause(name) from error
        finally:
            self.autocast = around
            if caching_casts:
                torch.set_autocast_cache_enabled(True)
            self._notes = outer

    def has_wrapper(self, value: Any) -> bool:
        return self.wraps and next(wrappers_in(value), None) is not None

    def _call(
        self, instead: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call the function, or `instead` if that answers. If C++ refuses symbolic sizes, try
        PyTorch's Python decompositions, then the sizes as numbers."""
        try:
            with self:
                value = NotImplemented if instead is None else instead(*args, **kwargs)
                return func(*args, **kwargs) if value is NotImplemented else value
        except RuntimeError as error:
            if not refuses_symbols(error) or self._mutated(args, kwargs):
                raise
        # C++ that knows plain sizes only. PyTorch has some of it in Python as well, which tells the
        # layout of results for contiguous arguments.
        if all(map(is_contiguous, _fakes_in((args, kwargs)))):
            try:
                # Which takes PyTorch's own Python decompositions before the C++ ones.
                with self, python_first():
                    return func(*args, **kwargs)
            except RuntimeError as error:
                if not refuses_symbols(error):
                    raise
        if func is torch.autograd.grad or getattr(func, GOES_BACK, False):
            raise Unsupported("with symbolic sizes, for derivatives")
        # The last resort: symbols become the numbers they stand for, which leaves guards. These are
        # other tensors, with a history of their own: hence not for derivatives.
        stand_ins: dict[Fake, Fake] = {}
        plain = _specialised(self, (args, kwargs), stand_ins)
        layouts = {t: (t.size(), t.stride()) for t in stand_ins}
        with self:
            value = func(*plain[0], **plain[1])
        for stand_in, t in stand_ins.items():
            if layouts[stand_in] != (stand_in.size(), stand_in.stride()):
                resize(t, stand_in)
                self.reshaped.add(id(t))
        return stand_ins.get(value, value) if type(value) is Fake else value

    def running(self) -> str:
        """The name of the function being run."""
        return self._notes.function

    def _show(self, name: str, args: tuple[Any, ...]) -> OpResult:
        """A list of symbols for `tolist()`; DataDependent for others that hand out data."""
        t, reads = args[0], name == "tolist" and self.reads_numbers
        items = unbacked.listed(self.env, t.shape, t.dtype, "tolist()") if reads else None
        if items is None:
            raise DataDependent(name)
        return OpResult(items, (), False)

    def _cause(self, error: Exception) -> type[DataDependent] | type[NoMetaKernel] | None:
        """Which of our errors this one of PyTorch's stands for, or None."""
        # C++ may read memory without an operator, or go on after an answer that was assumed.
        if self._notes.assumed or any(text in str(error) for text in NO_DATA):
            return DataDependent
        return NoMetaKernel if NO_RULE in str(error) else None

    def _all_fake(self, value: Any) -> Any:
        """The result, made fake: functions such as `from_numpy` return real tensors."""
        if isinstance(value, torch.Tensor):
            is_fake = type(value) is Fake or is_made_of_fakes(value)
            return value if is_fake else self._reals.fake(value)
        if type(value) in (tuple, list) and any(type(v) is torch.Tensor for v in value):
            return type(value)(self._all_fake(v) for v in value)
        return value

    def _mutated(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> tuple[Fake, ...]:
        notes = self._notes
        if not notes.written and not notes.reshaped:
            return ()
        return _written_among(notes, (args, kwargs), self.wraps)

    # How operators are answered.

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self.wraps and any(map(is_wrapper_class, types)):
            return NotImplemented  # what it is made of comes here
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer one operator: note its effects, then leave it to its kind."""
        op = describe(func)
        if self.keeps_tangents and op.name == ZERO_TENSOR and not args[0]:
            return torch.zeros((), **kwargs)  # the tangent of a Python number, which will be read
        if op.draws is not None and op.draws(args, kwargs):
            self._notes.random = True
        # Of a composite one, the parts come here too.
        if op.raises is not None and op.kind is not OverloadKind.COMPOSITE:
            self._notes.errors(op.raises, args, kwargs)
        return _ANSWERS[op.kind](self, op, args, kwargs)

    def _functional(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that returns new tensors: by a remembered recipe, or one worked out now."""
        read = Arguments(op.func, args, kwargs)
        if read.foreign:
            return self._functional(op, *self._owned(args, kwargs))
        recipe = self._remembered(read)
        if recipe is None:
            recipe = self._work_out(op, args, kwargs, read)
        if type(recipe) is Alias:
            return _view(self, op, args, kwargs)
        if op.training is not None and op.statistics and op.training.of(args, kwargs):
            self._note_writes(op.statistics, args, kwargs)
        return recipe.build(self._self, args, kwargs)

    def _write(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        read = Arguments(op.func, args, kwargs)
        if read.foreign:
            return self._write(op, *self._owned(args, kwargs))
        if read.share_memory():
            read.reusable = False  # overlap between arguments is no part of the key
        recipe = self._remembered(read)
        if recipe is None:
            recipe = self._work_out(op, args, kwargs, read)
        self._note_writes(op.written, args, kwargs)
        for argument in op.written:
            if isinstance(tensors := argument.of(args, kwargs), (list, tuple)):
                # Lists are counted by the kernels, through the operators they are made of.
                torch._C._increment_version([t for t in tensors if not t.is_inference()])
        return recipe.build(self._self, args, kwargs)

    def _remembered(self, read: Arguments) -> Recipe | None:
        if not read.reusable:
            return None
        try:
            return self._recipes.get(tuple(read.key))
        except TypeError:  # a symbolic size has no hash
            read.reusable = False
            return None

    def _work_out(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], read: Arguments
    ) -> Recipe:
        """Find out what the operator returns, and remember it: by a rule, or its meta kernel."""
        record = op.record
        if record.needs_data is not None and record.needs_data(args, kwargs):
            return self._from_data(op, args, kwargs, read)
        if record.unsupported:
            raise Unsupported(record.unsupported)
        if record.undeclared_view:
            return Alias()
        device = result_device(read.fakes, kwargs, record.mixed_devices)
        recipe = record.shape and record.shape(op, args, kwargs, device)
        if recipe is None and pointwise.applies(op, read.fakes):
            recipe = pointwise.recipe(op, args, kwargs, device)
        if recipe is None:
            recipe = self._ask_meta_kernel(op, args, kwargs, device, read)
        if read.reusable:
            # After the meta kernel has run: its questions about sizes have become facts, so that
            # the same call asks nothing again.
            self._recipes[tuple(read.key)] = recipe
        return recipe

    def _from_data(
        self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], read: Arguments
    ) -> Recipe:
        """A result whose size depends on data: each time a new unbacked symbol."""
        read.reusable = False
        device = result_device(read.fakes, kwargs, op.record.mixed_devices)
        if op.name == "aten.index.Tensor":
            check_masks(*args)
            index_args = (args[0], _mask_places(self, args[1]))
            return self._work_out(op, index_args, kwargs, read)
        rule = op.record.data_shape
        recipe = rule and rule(self.env, device, args, kwargs)
        if recipe is None:
            raise DataDependent(op.name)
        return recipe

    def count_of(self, mask: Fake, *name: str) -> Any:
        """The symbol for the number of places where a mask is true."""
        return self.in_data.count(self.env, mask, *name)

    def _ask_meta_kernel(
        self,
        op: Overload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        device: Any,
        read: Arguments,
    ) -> Recipe:
        """Run the meta kernel on twins, and bring arguments that it resized up to date."""
        twins = Twins()
        rule = meta_rule(op.record, device)
        meta = op.func if rule is None else partial(rule, op.func)
        try:
            symbolic = any(t._has_symbolic_sizes_strides for t in read.fakes)
            run = self._meta if symbolic else _call
            with plain_checks():
                result = run(meta, twins.swap(args), twins.swap_kwargs(kwargs))
        except NotImplementedError as error:
            result = nothing_returned(op, error)
        if op.record.finish is not None:
            result = op.record.finish(args, kwargs, result)
        if not symbolic:
            result = measured.with_ones(op, args, kwargs, read.fakes, result)
        elif self.measures_symbols:
            result = measured.with_symbols(op, args, kwargs, read.fakes, result)
            if result is measured.AGAIN:
                return self._ask_meta_kernel(op, args, kwargs, device, read)
        resized = [(t, twin) for t, twin in twins.pairs() if op.written and not _alike(t, twin)]
        if resized:
            self.reshaped.update(id(t) for t, _ in resized)
            measured.resize_written(self.dispatch, op, args, kwargs, read, dict(resized))
        return recipe_for(op, result, device, (twin for _, twin in twins.pairs()))

    def _owned(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments with real tensors (constants inside PyTorch's own functions) made fake."""
        return (
            tuple(map(self._own, args)),
            {name: self._own(value) for name, value in kwargs.items()},
        )

    def _own(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._own, value))
        real = isinstance(value, torch.Tensor) and type(value) is not Fake
        return self._reals.fake(value) if real and not is_number(value) else value

    def _view(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A view: the real kernel runs on the fakes as plain tensors."""
        if type(args[0]) is not Fake:  # a new real tensor, on its way out of torch.tensor
            args = (self._reals.fake(args[0]), *args[1:])
        if views.is_symbolic_call(args):
            return self._symbolic_view(op, args, kwargs)
        result = as_plain(op.func, args, kwargs)
        if isinstance(result, torch.Tensor):
            return adopt(self._self, result)
        return type(result)([adopt(self._self, t) for t in result])

    def _symbolic_view(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As `_view` with symbolic sizes, about which the C++ kernel would ask."""
        rule = op.record.view
        layout = rule and rule(*args, **kwargs)
        if layout is None:
            twins = Twins()
            meta = self._meta(op.func, twins.swap(args), twins.swap_kwargs(kwargs))
            alone = isinstance(meta, torch.Tensor)
            layout = views.view_layout(meta) if alone else [views.view_layout(t) for t in meta]
        if isinstance(layout, list):
            return [self._view_as(args[0], part) for part in layout]
        return self._view_as(args[0], layout)

    def _view_as(self, t: Fake, layout: views.ViewLayout) -> Fake:
        """A view of `t` with this layout."""
        conj = t.is_conj() if layout.conj is None else layout.conj
        neg = t.is_neg() if layout.neg is None else layout.neg
        if layout.dtype is not None and layout.dtype is not t.dtype:
            t = empty_view(t, layout.dtype)
        placed = (t, layout.sizes, layout.strides, layout.offset)
        view = adopt(self._self, as_plain(torch.ops.aten.as_strided.default, placed, {}))
        # `as_strided` keeps the bits of the tensor that it is called on.
        if view.is_conj() is not conj:
            torch._C._set_conj(view, conj)
        if view.is_neg() is not neg:
            torch._C._set_neg(view, neg)
        return view

    def _meta(self, meta: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a meta kernel, PyTorch's Python version first: that takes symbolic sizes."""
        with python_first():
            return meta(*args, **kwargs)

    def _reshape(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operator that changes its argument's metadata in place: `squeeze_`, `resize_`."""
        if op.record.resizes:
            if views.is_symbolic_call(args):
                raise Unsupported("resized, with symbolic sizes")
            twins = Twins()
            op.func(*twins.swap(args), **twins.swap_kwargs(kwargs))
            resize(args[0], twins.of(args[0]))
        elif op.record.functional in SQUEEZES and views.is_symbolic_call(args):
            # PyTorch hands symbolic sizes that stay as they are to the tensor that owns them, which
            # frees them first.
            layout = record_of(str(op.record.functional)).view(*args, **kwargs)  # type: ignore[misc]
            place = (list(layout.sizes), list(layout.strides), layout.offset)
            as_plain(torch.ops.aten.as_strided_.default, (args[0], *place), {})
        else:
            as_plain(op.func, args, kwargs)
        self._notes.reshaped.append(args[0])
        self.reshaped.add(id(args[0]))
        return args[0]

    def _composite(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite operator: run its C++ code, which dispatches the operators inside."""
        # Reached below autograd, as in inference mode: what could be recorded above already was.
        with autocast.in_parts(self, op.func), torch._C._AutoDispatchBelowAutograd(), self:
            return op.func._op_dk(COMPOSITE_KEY, *args, **kwargs)

    def _data(self, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A number read from a tensor: known, an unbacked symbol, or one that may be assumed."""
        if op.name == "aten.item.default":  # in inference mode it arrives as it is
            return self._composite(op, args, kwargs)
        if op.name == "aten._local_scalar_dense.default":
            if id(args[0]) in self.scalars:
                return self.scalars[id(args[0])]
            number = _read_number(self, args[0]) if self.reads_numbers else None
            if number is not None:
                return number
        assumed = self._notes.record.assumes or {}
        if op.name not in assumed:
            raise DataDependent(op.name)
        self._notes.assumed = True
        return assumed[op.name]

    def _note_writes(self, which: tuple[Argument, ...], args: Any, kwargs: Any) -> None:
        """Note that these arguments are written to. What was known of their data is forgotten."""
        for fake in _fakes_in([argument.of(args, kwargs) for argument in which]):
            self._notes.written.append(fake)
            self.in_data.forget(fake)


def _view(world: World, op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A view of an inference tensor is one too, also if it is made outside of the mode. (PyTorch
    lets one that is detached be written to there.)"""
    outside = args[0].is_inference() and not torch.is_inference_mode_enabled()
    if not outside or op.name == "aten.detach.default":
        return world._view(op, args, kwargs)
    with torch.inference_mode():
        return world._view(op, args, kwargs)


_ANSWERS: dict[OverloadKind, Callable[[World, Overload, tuple[Any, ...], dict[str, Any]], Any]] = {
    OverloadKind.FUNCTIONAL: World._functional,
    OverloadKind.WRITE: World._write,
    OverloadKind.VIEW: _view,
    OverloadKind.RESHAPE: World._reshape,
    OverloadKind.COMPOSITE: World._composite,
    OverloadKind.DATA: World._data,
}

ZERO_TENSOR = "aten._efficientzerotensor.default"
COMPOSITE_KEY = torch._C.DispatchKey.CompositeImplicitAutograd

SQUEEZES = tuple(getattr(torch.ops.aten.squeeze, name) for name in ("default", "dim", "dims"))

# What PyTorch says when C++ asks for the memory of a tensor that has none.
NO_DATA = (
    "its data is not allocated yet",
    "Cannot access data pointer",
    "is not supported for tensor subclasses",
)
# What it says when C++ asks for the sizes of a tensor as plain numbers.
NO_SYMBOLS = (
    "operator aten::size does not exist",
    "operator aten::stride does not exist",
    "on tensor with symbolic sizes/strides",
    "expected to contain only concrete integers",
    "dispatch_on_subclass called with NO overloaded args",
)
NO_RULE = "no rule registered for HigherOrderOperator"

# Methods and built-ins that hand a tensor's values to Python without going through an operator.
DATA_READERS = frozenset(
    ("tolist", "numpy", "__array__", "data_ptr", "__dlpack__", "share_memory_", "__reduce_ex__")
    + ("str", "repr", "ascii", "format", "print", "__str__", "__repr__", "__format__")
)


def _written_among(notes: Notes, value: Any, wraps: bool) -> tuple[Fake, ...]:
    """The fakes among the arguments whose memory was written, or whose own metadata was."""
    # A write through a view inside of the function is a write to the argument that it is a view of.
    memory = {t.untyped_storage()._cdata for t in notes.written}
    objects = {id(t) for t in notes.reshaped}

    def is_written(t: Fake) -> bool:
        return id(t) in objects or t.untyped_storage()._cdata in memory

    # By id, since a tensor may be passed twice.
    mutated = {id(t): t for t in _fakes_in(value) if is_written(t)}
    for wrapper in wrappers_in(value) if wraps else ():
        if any(map(is_written, fakes_inside(wrapper))):
            mutated[id(wrapper)] = wrapper  # type: ignore[assignment]
    return tuple(mutated.values())


def _shows_values(func: Any, name: str) -> bool:
    """Whether `func` is PyTorch's or Python's function of this name, not another one that happens
    to have it."""
    owner = getattr(func, "__self__", None)
    functions = (getattr(torch.Tensor, name, None), getattr(builtins, name, None))
    return isinstance(owner, torch.Tensor) or func in functions


def _mask_places(world: World, indices: list[Any]) -> list[Any]:
    """The indices, with each mask replaced by index tensors of the places where it is true, as
    `nonzero` gives them. Their length is an unbacked symbol."""
    # Of several masks, some may be new: their symbols could not be told apart later.
    alone = sum(index is not None and index.dtype in MASKS for index in indices) == 1
    places: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in MASKS:
            places.append(index)
            continue
        count = world.count_of(index) if alone else unbacked.places_in(world.env, index)
        places += [
            make(world._self, (count,), (1,), 0, torch.int64, index.device)
            for _ in range(index.dim())
        ]
    return places


def _read_number(world: World, t: Fake) -> Any:
    if not world.reads_arguments:
        world._notes.require_number(t)
    return world.in_data.read(world.env, t, f"{world.running()}()")


def _direct(world: World, value: Fake, args: tuple[Any, ...]) -> Fake:
    """The view, made of its base directly if it is at the end of a long chain of views."""
    if not value._is_view() or any(value is arg for arg in args):
        return value
    with world:
        return shorten(value, [arg for arg in args if type(arg) is Fake])


def _specialised(world: World, value: Any, stand_ins: dict[Fake, Fake]) -> Any:
    """`value` with every size as the number it is now, which makes constants of the symbols.
    `stand_ins` gets the plain views, each with the tensor that it stands for."""
    if type(value) is Fake and value._has_symbolic_sizes_strides:
        sizes, strides = ([int(n) for n in ns] for ns in (value.size(), value.stride()))
        # As a view, so that writes to it are writes to the tensor itself.
        with world:
            plain = torch.as_strided(value, sizes, strides, int(value.storage_offset()))
        stand_ins[plain] = value  # type: ignore[index]
        return plain
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)([_specialised(world, v, stand_ins) for v in value])
    if isinstance(value, dict):
        return {key: _specialised(world, v, stand_ins) for key, v in value.items()}
    return value


def _call(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def refuses_symbols(error: Exception) -> bool:
    """Whether the error comes from code of PyTorch that takes plain sizes only."""
    return any(text in str(error) for text in NO_SYMBOLS)


def _alike(t: torch.Tensor, twin: torch.Tensor) -> bool:
    return t.size() == twin.size() and t.stride() == twin.stride()


def _fakes_in(value: Any) -> Iterator[Fake]:
    if type(value) is Fake:
        yield value
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from _fakes_in(item)
    elif isinstance(value, dict):
        yield from _fakes_in(list(value.values()))
