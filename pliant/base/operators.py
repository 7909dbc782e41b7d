"""The registry of PyTorch's operators: one record for each, with everything pliant uses.

The one idea: whoever wants to know something about an operator looks it up here, and nobody keeps a
list of operators of his own. The modules of `pliant.ops`, which stand above all readers, fill the
registry, each when an operator of its family is first looked up; so shape propagation (`fake`), the
functional graph (`graph`), lowering and memory planning share what is known without importing each
other.

What a schema or a tag tells is not written down here: `fake.overload` reads it from PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Final

from pliant.base.values import dataclass

Rule = Callable[..., Any]


@dataclass
class Record:
    """What is known of one overload, such as `aten.add.Tensor`. None and False mean that it isn't
    known, which is always sound: PyTorch is asked, or runs the operator."""

    # A record says two or three of these. The others stay in the class, because to write them
    # into each of a thousand records takes milliseconds before the first result.
    def __init__(self, name: str) -> None:
        self.name = name

    name: str

    # Shapes: what results look like on fakes.
    shape: Rule | None = None  # (overload, args, kwargs, device) -> recipe; None: ask on
    pointwise: bool | None = None  # element by element; None: if it is tagged so
    layout: Rule | None = None  # strides of a pointwise result that isn't laid out as most are
    meta: Rule | None = None  # called in place of the meta kernel, which is its first argument
    cpu_meta: Rule | None = None  # the same, for tensors on the CPU alone
    finish: Rule | None = None  # corrects what the meta kernel told, seeing the fakes themselves
    needs_data: Rule | None = None  # whether sizes of this call's result are in the data
    data_shape: Rule | None = None  # the recipe of such a call, with unbacked symbols
    view: Rule | None = None  # sizes, strides and offset of a view, for symbolic sizes
    unsupported: str = ""  # the kind of tensor it returns, of which there are no fakes
    mixed_devices: bool = False  # takes tensors of several devices; the first decides

    # The functional graph.
    opaque: Rule | None = None  # never decomposed; this function has the same result on fakes
    decomposition: Rule | None = None  # what to run in its place; may be NotImplemented
    functional: Any = None  # the operator that computes what this one writes
    inverse: Rule | None = None  # of a view: all elements again, with new ones in its place
    is_part: bool = False  # a view of which there are several: rules take which one it is
    factors: Rule | None = None  # of a matrix product: what it multiplies and adds

    # Lowering.
    lowering: Rule | None = None  # (lowering, *args) -> a tensor for each result
    moves: bool = False  # it moves elements and casts them, so it does for floats of 8 bits too
    index_map: Rule | None = None  # of a view: from its index to that in what it is a view of
    writes_target: bool = False  # the lowering can write to memory that is there already

    # Facts.
    raises: Rule | None = None  # whether a call may because of data; None: if it isn't pointwise
    # It takes tens of instructions for an element; of all overloads, or told by the arguments.
    expensive: bool | Rule = False
    fuses: bool = (
        False  # costs no more than a pointwise one, though not tagged so; of all overloads
    )
    workspace: int | None = None  # which result is memory for the backward, if the grad mode is on
    statistics_free: int = 0  # how many results, the first, don't depend on running statistics
    fresh: bool = False  # the one result fills memory of its own
    reads_whole: bool = False  # reads each element of the first argument
    reads_layout: bool = False  # reads no elements of its tensors: only sizes, strides and dtype
    undeclared_view: bool = False  # a view, though its schema does not say so
    rearranges: bool = False  # a view that has each element of what it is a view of
    injective: bool = False  # a view that has each element at most once
    covers: bool = False  # a view whose inverse replaces all elements
    draws_integers: bool = False  # of random numbers
    fills_first: bool = False  # fills a tensor like the first argument with random numbers
    is_copy: bool = False  # writes its second argument, or zeros if there is none
    reads_first: bool = False  # what it reads may be in the memory that it writes
    strict_out: bool = False  # refuses an `out` of another dtype, when it runs
    keeps_overlap: bool = False  # its result is a copy with the strides of the first argument
    resizes: bool = False  # the first argument may need more memory than it has
    trusts_indices: bool = False  # reads and writes where they say, also outside of its tensors
    trusts_sizes: bool = False  # the same of an argument whose size only the kernels know
    reads_data: bool = False  # returns what is in a tensor, and no tag says so
    hidden_writes: tuple[str, ...] = ()  # in training, though its schema calls them read-only


@dataclass(slots=True)
class FunctionRecord:
    """What is known of a function of PyTorch's Python interface, as `F.linear`."""

    function: Any
    sizes: Rule | None = None  # of a result that is new and contiguous; None: run it
    symbolic: Rule | None = None  # called in its place if sizes are symbolic
    on_fakes: Rule | None = None  # called in its place on fakes, with the function first
    override: Rule | None = None  # called in its place when the graph is functionalized
    differentiable: Rule | None = None  # the same, where autograd goes back through it
    # Whether PyTorch differentiates such a call as a whole; first, whether for all sizes.
    keeps_history: Rule | None = None
    cast_by_parts: bool = False  # under autocast, as the operators that it is made of are
    assumes: dict[str, Any] | None = None  # what operators that read data give, to go on with
    checks_data: bool = False  # raises for some data, unlike its operators; has no gradient


RECORDS: Final[dict[str, Record]] = {}
FUNCTIONS: Final[dict[Any, FunctionRecord]] = {}

_waiting: Final[dict[str, tuple[str, ...]]] = {}  # modules not imported yet, with their stems
_complete: Final[set[str]] = set()  # names about which every module has said what it knows


def fill_from(module: str, stems: str) -> None:
    """Have the module imported when a name is looked up in which one of the stems occurs; without
    stems, by the first lookup. Most of a program's time to its first result is imports, and it uses
    few operators."""
    _waiting[module] = tuple(stems.split())


def load() -> None:
    """Import all modules that fill the registry, for those who want to see every record."""
    _import(list(_waiting))


def _complete_name(name: str) -> None:
    _import([m for m, stems in _waiting.items() if not stems or any(s in name for s in stems)])
    # After the imports, or another thread would take what is there for all.
    _complete.add(name)


def _import(modules: Iterable[str]) -> None:
    for module in modules:
        import_module(module)
        _waiting.pop(module, None)  # only now: another thread has to wait for the import, too


class AssertedTwice(AssertionError):
    """Two places say the same thing about an operator, so one of them is not where to look."""


def register(*names: str, **fields: Any) -> None:
    """Write down something about operators. A name without overload, as `aten.sum`, stands for all
    overloads and forms of one that don't say otherwise."""
    for name in names:
        record = RECORDS.get(name)
        if record is None:
            record = RECORDS[name] = Record(name)
        _set(record, name, fields)


def register_functions(functions: Iterable[Any], **fields: Any) -> None:
    """Write down something about functions of PyTorch that do the same."""
    for function in functions:
        record = FUNCTIONS.get(function)
        if record is None:
            record = FUNCTIONS[function] = FunctionRecord(function)
        _set(record, function, fields)


def _set(record: Any, name: Any, fields: dict[str, Any]) -> None:
    for field, value in fields.items():
        if getattr(record, field) not in _UNSET:  # an AttributeError if there is no such field
            raise AssertedTwice(f"{field} of {name} is said twice")
        setattr(record, field, value)


_UNSET: Final = (None, False, "", ())
_NOTHING: Final = Record("")


def record_of(name: str) -> Record:
    """The record of an overload; an empty one if nothing is known of it."""
    if name not in _complete:
        _complete_name(name)
    return RECORDS.get(name, _NOTHING)


def function_record(function: Any) -> FunctionRecord | None:
    name = getattr(function, "__name__", "")
    if name not in _complete:
        _complete_name(name)
    return FUNCTIONS.get(function)


def aten_names(names: str) -> list[str]:
    """`"sum mean"` is aten.sum and aten.mean, with all of their overloads."""
    return [f"aten.{name}" for name in names.split()]
