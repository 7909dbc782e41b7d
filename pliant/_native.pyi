"""Guards and calls in native code. It holds no policy: Python decides, C++ executes."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FunctionType
from typing import Any, Final, TypeVar, final

import torch

T = TypeVar("T")

built_for: Final[str]
"""The version of PyTorch whose headers it was compiled with."""

UNREACHABLE: Final[object]
"""Reported by `GuardTree.check` when there is no way to the value of a guard."""

def set_bypass(on: bool, /) -> bool:
    """Whether every compiled function runs uncompiled in this thread. Returns the old setting."""

def call_bypassed(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call the function; in it, every compiled function runs uncompiled in this thread."""

def isolated(
    lock: AbstractContextManager[Any] | None,
    cleanups: list[Callable[[], Any]],
    function: Callable[..., Any],
    /,
    *args: Any,
) -> Any:
    """Call `function(*args)` with the lock. Afterwards, however it ended, the state of this thread
    is what it was: PyTorch's modes, gradients, autocast, dispatch keys, hooks and `torch.func`
    levels, the recursion limit, the handled exception, and whether garbage is collected. Before
    that each of `cleanups` is called, the last one first, those included that were appended
    meanwhile.

    Unlike a `finally` of Python's this can't be interrupted, if the cleanups are C functions.
    """

def locked(lock: AbstractContextManager[Any], function: Callable[..., T], /, *args: Any) -> T:
    """Call `function(*args)` with the lock, which is free afterwards. A `with` could be interrupted
    between its block and the release. For short functions."""

def without_torch_function(function: Callable[..., T], /, *args: Any) -> T:
    """Call `function(*args)` as under `torch._C.DisableTorchFunction`, which no interrupt
    leaves in force."""

def uninterrupted(function: Callable[..., Any], /, *args: Any) -> Any:
    """Call `function(*args)` in a thread of its own, and wait for it. No signal raises an exception
    in there, and none ends the waiting: for code that can't be left halfway."""

def drop_unused(table: dict[Any, Any], /) -> int:
    """Remove the values that nothing but the table refers to. Returns how many."""

def calls_through(cls: Any, /) -> Any:
    """Make a call of an instance call its `_dispatcher` with its `_orig_mod` in front."""

def is_member(obj: Any, name: str, /) -> bool:
    """Whether the attribute is a place in the object itself, as of `__slots__`."""

def is_python_class(cls: type, /) -> bool:
    """Whether a class statement made the class, rather than C code."""

def profile(limit: int, /) -> tuple[list[tuple[Any, int]], bytes]:
    """Measure calls and steps from now on, and keep about so many spans of time at most; 0 turns it
    off. Returns what was measured until now: the owners, each with the number of its turns, and the
    spans, seven 64-bit integers each: the number of the owner; the turn; the thread; what; start
    and stop, in nanoseconds of `time.monotonic_ns`; a detail.

    A dispatcher owns its calls (-1). An entry owns the runs of its residual code (-2); the detail
    is when the call began, so that guards took until the start, or 0 if it was compiled then. The
    `info` of a launcher owns its steps, by number; the detail is how many bytes their tensors have.

    If there are too many spans, those of every second turn are kept, then those of every fourth.
    """

@final
class State:
    """PyTorch's global state, as far as capture depends on it, in one thread at one moment."""

    grad_enabled: Final[bool]
    inference: Final[bool]
    forward_grad_enabled: Final[bool]
    autocast_cpu: Final[bool]
    autocast_cuda: Final[bool]
    autocast_cpu_dtype: Final[torch.dtype | None]  # None while autocast is off
    autocast_cuda_dtype: Final[torch.dtype | None]
    autocast_cache: Final[bool]
    default_dtype: Final[torch.dtype]
    deterministic: Final[bool]
    deterministic_warn_only: Final[bool]
    function_disabled: Final[int]  # __torch_function__: 0 works, 1 not for subclasses, 2 not at all
    function_modes: Final[int]  # how many torch-function modes are active
    dispatch_modes: Final[int]  # how many torch-dispatch modes are active
    functorch: Final[bool]  # a torch.func transform is active
    jit_tracing: Final[bool]  # torch.jit.trace records what operators do

    @staticmethod
    def current() -> State: ...
    def diff(self, other: State, /) -> str:
        """What is otherwise in another state, as text; empty if nothing is."""

@final
class GuardTree:
    """The guards of a compiled entry, and the values its residual code gets. Built, then fixed.

    Nodes are ways to values; asking twice for the same way gives the same node. Each check takes
    the object to report when it fails. A way that leads nowhere fails the checks at its end.
    """

    def __new__(cls, nlocals: int, /) -> GuardTree: ...

    # nodes
    def local(self, index: int, /) -> int: ...
    def fixed(self, value: object, /) -> int: ...
    def instance_dict(self, parent: int, /) -> int: ...
    def dict_item(self, parent: int, key: Any, /) -> int: ...
    def seq_item(self, parent: int, index: int, /) -> int: ...
    def attr(self, parent: int, name: str, /) -> int: ...
    def member(self, parent: int, name: str, /) -> int: ...
    def type_of(self, parent: int, /) -> int: ...
    def cell_contents(self, parent: int, /) -> int: ...
    def closure_cell(self, parent: int, index: int, /) -> int: ...
    def class_attr(self, parent: int, name: str, /) -> int: ...

    # checks
    def check_type(self, node: int, expected: type, guard: Any, /) -> None: ...
    def check_is(self, node: int, expected: object, guard: Any, /) -> None: ...
    def check_is_not(self, node: int, expected: object, guard: Any, /) -> None: ...
    def check_equal(self, node: int, expected: Any, guard: Any, /) -> None: ...
    def check_length(self, node: int, expected: int, guard: Any, /) -> None: ...
    def check_keys(self, node: int, expected: tuple[Any, ...], guard: Any, /) -> None: ...
    def check_has(self, node: int, key: Any, guard: Any, /) -> None: ...
    def check_lacks(self, node: int, key: Any, guard: Any, /) -> None: ...
    def check_function(
        self, node: int, expected: tuple[CodeType, dict[str, Any]], guard: Any, /
    ) -> None: ...
    def check_class_attr(
        self, node: int, expected: tuple[str, object] | tuple[str], guard: Any, /
    ) -> None:
        """The node of a class has this attribute; with the name alone: it has no such attribute."""

    def check_tensor(self, node: int, spec: Any, guard: Any, /) -> None:
        """`spec` is a `pliant.guards.guard.ExpectedTensor`."""

    def check_predicate(
        self, node: int, predicate: Callable[[Any], Any], guard: Any, /
    ) -> None: ...
    def check_same(self, nodes: Iterable[int], guard: Any, /) -> None: ...
    def check_distinct(self, nodes: Iterable[int], guard: Any, /) -> None: ...
    def check_expression(
        self, loads: list[tuple[int, int, int]], code: list[int], depth: int, guard: Any, /
    ) -> None:
        """A condition on integers, as a program of `pliant.sym.program`. A load is a node, what to
        read of it (0 the size of a tensor, 1 its stride, 2 its storage offset, 3 the int itself),
        and the dimension."""

    def check_state(self, state: State, guard: Any, /) -> None: ...

    # what the residual code gets
    def slot(self, node: int, /) -> int: ...
    def finish(self) -> None: ...

    # use
    def check(self, values: tuple[Any, ...], /) -> tuple[Any, Any] | None:
        """None if all guards hold for these parameters, or else the first that does not, and what
        it found: the value, `UNREACHABLE`, for `check_distinct` the positions of two alike, or for
        `check_expression` what each load found, None for what is not there."""

    def failures(self, values: tuple[Any, ...], /) -> list[tuple[Any, Any]]: ...
    def slots(self, values: tuple[Any, ...], /) -> tuple[Any, ...]: ...

@final
class Entry:
    """One compilation of a function: if its guards hold, `residual` is called with the slots."""

    tree: Final[GuardTree]
    residual: Final[Callable[..., Any]]
    info: Any
    hits: int

    def __new__(cls, tree: GuardTree, residual: Callable[..., Any], info: Any = None) -> Entry: ...

@final
class Dispatcher:
    """A compiled function. As a method, for `inspect` and for attributes it is as the function."""

    @property
    def fn(self) -> Any: ...  # a FunctionType, which mypy would take for a method
    on_miss: Callable[[Dispatcher, tuple[Any, ...]], Entry | None] | None
    on_error: Callable[[Dispatcher, Entry, tuple[Any, ...], BaseException], Any] | None
    mode: int  # 0: on_miss decides; 1: a miss runs the function itself; 2: every call does
    __name__: str
    __qualname__: str
    __wrapped__: FunctionType

    def __new__(
        cls,
        fn: Callable[..., Any],
        on_miss: Callable[[Dispatcher, tuple[Any, ...]], Entry | None] | None = None,
        on_error: Callable[[Dispatcher, Entry, tuple[Any, ...], BaseException], Any] | None = None,
    ) -> Dispatcher: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: object, owner: type | None = None, /) -> Callable[..., Any]: ...
    def __getattr__(self, name: str, /) -> Any: ...
    def __setattr__(self, name: str, value: Any, /) -> None: ...
    @property
    def entries(self) -> list[Entry]: ...
    @property
    def questions(self) -> tuple[tuple[int, tuple[str | int | None, ...], int, int], ...]: ...
    def install(self, entry: Entry, /) -> None: ...
    def find(self, values: tuple[Any, ...], /) -> Entry | None: ...
    def index(
        self, questions: Sequence[tuple[int, tuple[str | int | None, ...], int, int]], /
    ) -> None:
        """Ask these of a call to see which entries it can fit: (parameter, steps to the value,
        mode, dimension), as in `pliant.guards.index`. Removing an entry drops the index."""

    def file(self, entry: Entry, answers: tuple[Any, ...], /) -> None:
        """The entry fits no call that answers the questions of the index otherwise."""

    def remove(self, entry: Entry, /) -> bool: ...
    def clear(self) -> None: ...
    def tail(self, *args: Any) -> Any:
        """For residual code to return: this function is called once it has returned."""

def cuda_load(code: bytes, name: str, shared: int, device: int, /) -> int:
    """The address of a function in machine code for a GPU, which uses so much shared memory."""

def cuda_driver(path: str, /) -> None:
    """The library of the CUDA driver, if it is another one than the system's (for tests)."""

@final
class Launcher:
    """A compiled graph: steps over an array of tensors (slots) and one of 64-bit numbers (values).

    The first slots are the arguments. The first values are `symbols`, read from arguments on each
    call: (argument, "size" | "stride" | "offset" | "int" | "float", dimension); a float is kept as
    the bits of a double. `steps` are tuples, run in order:

        ("compute", value, code)                 `code`: `pliant.sym.program.SizeProgram.numbers`
        ("cpu_empty", slot, dtype, sizes, strides)     sizes and strides are values, by number
        ("view", slot, of, sizes, strides, offset[, dtype, inner])   `offset` counts from the first
                         item; `inner`: only operators that return new tensors see it
        ("laid_out", slot, dtype, sizes, strides)      what it has to be: other strides are made
                                                       these, anything else is an error
        ("cpu_kernel", kernel, slots, values, extent, cost, writes)    slot -1: the error flag;
                         extent -1: no grid; `cost`: nanoseconds per iteration; `writes`: what it
                         overwrites of an input was read before
        ("cpu_batch", (cpu_kernel, ...))               kernels none of which reads or writes what
                         another one writes: threads share the work of all
        ("empty", slot, dtype, sizes, strides, device)
        ("cuda_kernel", kernel, slots, _, *values, writes)   of the values the first three are outer
                         iterations, rows and columns; then arguments of the kernel, then bounds of
                         its indices. The kernel is (whether programs have whole rows; for each
                         argument whether it has 64 bits; what makes a variant of the code)
        ("python_kernel", kernel, slots, _, *values, writes)   the kernel is (function,), which is
                         called with the tensors and the values
        ("call", name, overload, arguments, results)   an operator, below autograd
        ("python", object, arguments, results[, writes])   the object is a function
        ("calculate", operation, object, arguments, results)   on one or two numbers, those that are
                         constant floats; the object is called where that needs Python
        ("require", value, object, arguments, results[, writes])   call the object if it is 0
        ("item", slot, results)                        of a tensor with one element
        ("read", value, slot, "size" | "stride" | "offset", dimension)
        ("apart", sizes, strides, offset[, sizes, strides, offset, elementwise])   fall back if the
                         two tensors in one memory have an element in common (`elementwise`: other
                         than at the same index), or one alone has two in one place
        ("take", slot, argument)                       the argument if nobody else has it or its
                         memory, otherwise a copy; the argument is not used any more
        ("save", slot)                                 what is in it is put back on falling back
        ("check",)                                     fall back if a kernel set the error flag
        ("random", device)                             the fallback draws these numbers again
        ("sizes", object, ((value, limit), ...))       if values are at most their limit, do what
                         was settled for these; at first, call `object(launcher, sizes, *arguments)`
        ("wrote", input)                               the version of the tensor is counted up
        ("free", slots)                                an argument, too, if the caller lets go of it

    Arguments and outputs: ("slot", i), ("value", i), ("float", i), ("bool", i), ("list", [...]),
    ("const", data), ("bound", object), ("none",). Results: a slot, -1 for none, ("slot", i),
    ("value", i), ("float", i), ("bool", i), ("drop",).

    All this is data. Kernels and objects are numbers in it, of `kernels`, each the pair of an
    address and what keeps the code there, and of `objects`, which can be anything.

    The fallback is called with the arguments, and its result is that of the call, if a tensor isn't
    in plain memory of the CPU where a kernel or view needs that, if an int has more than 64 bits,
    if one of `written` shares memory with another argument, if a kernel set the error flag, or if a
    step raised before an input was written. With None for it, errors come out as they are. A
    program that makes no sense is a ValueError or TypeError when the launcher is made.
    """

    def __new__(
        cls,
        inputs: int,
        symbols: Iterable[tuple[int, str, int]],
        steps: Iterable[tuple[Any, ...]],
        outputs: Iterable[tuple[Any, ...]],
        written: Iterable[int],
        fallback: Callable[..., Any] | None,
        objects: Sequence[Any] = ...,
        kernels: Sequence[tuple[int, Any]] = ...,
        info: object = None,
    ) -> Launcher: ...
    def __call__(self, *args: Any) -> Any: ...
    def settle(self, sizes: str, instead: Callable[..., Any] | None) -> None:
        """From now on calls with these sizes are calls of `instead`, or (None) run the steps."""

@final
class AutogradStep:
    """A compiled graph as one step of autograd, called with the inputs of the graph.

    `forward` returns the outputs, then tensors and, from the place `numbers` on, numbers for the
    backward; where it raises `refused`, or `accepts` is false, `eager` runs instead. `saved` are
    the tensors that the backward reads: inputs (True) or results (False), by place. `returned` are
    outputs that are inputs. `differentiable` outputs get a node; a tangent is made `contiguous` or
    gets the strides of its output.

    `make_backward(tangents, wanted)` is called once for each set of tangents that are defined and
    inputs that want a gradient; it returns a function of what is saved, the numbers and the
    tangents, with the inputs whose gradients it returns, or None. `run_again(inputs, random,
    tangents, needed, error)` computes gradients if there is no such function, if it failed with
    that error (it isn't called any more), or if they need gradients themselves; `random` are
    the states, before the forward, of the generators of the devices on which it `draws`; of the
    inputs `copied`, it is given copies that were made before the forward.
    """

    def __new__(
        cls,
        *,
        forward: Callable[..., Any],
        eager: Callable[..., Any],
        refused: type[Exception],
        accepts: Callable[[Sequence[Any]], bool] | None,
        make_backward: Callable[..., tuple[Callable[..., Any], tuple[int, ...]] | None],
        run_again: Callable[..., Sequence[torch.Tensor | None]],
        inputs: int,
        outputs: int,
        numbers: int,
        saved: Sequence[tuple[bool, int]],
        differentiable: Sequence[int],
        contiguous: Sequence[bool],
        returned: Sequence[tuple[int, int]],
        wanted: Sequence[int],
        draws: Sequence[torch.device],
        copied: Sequence[int],
    ) -> AutogradStep: ...
    def __call__(self, *args: Any) -> Any: ...
