"""CUDA graphs, for `mode="reduce-overhead"`: what a call launches is recorded, and replayed.

The one idea: a replay is the same call again, in the same memory, so a recording is used only where
that can't be seen. It is for one stream and for the sizes, numbers and addresses of arguments that
it was made with. An argument that is found at another address is copied to memory of the recording
from then on. Results are in memory of the recording too, so it is not replayed while the program
has one of them: then another recording is made, and where there are enough of them, the call is
made as usual.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import torch

from pliant.base.isolation import FATAL
from pliant.base.values import dataclass
from pliant.launch.program import Program

MODES: Final = ("reduce-overhead", "max-autotune")
FEW_LAUNCHES: Final = 4  # a replay takes about as long
MOST_RECORDINGS: Final = 3  # for one set of sizes
MOST_SIZES: Final = 8

_RECORDED: Final = frozenset(
    ("compute", "empty", "view", "laid_out", "cuda_kernel", "call", "free", "apart", "sizes")
    + ("check",)  # of errors of kernels on the CPU, of which there are none
)
"""Steps that do the same in each call with the same sizes, and on the GPU alone."""
_CPU: Final = torch.device("cpu")


class GraphRecorder(Protocol):
    """What records: CUDA, or a test."""

    @property
    def place(self) -> torch.device:
        """The device of tensors."""

    def stream(self) -> int | None:
        """PyTorch's current stream; None if that is being recorded already."""

    def record(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        """Record what `call` launches, without running it. Returns a function that replays it, and
        what the call returned."""


@dataclass(frozen=True, slots=True)
class CudaRecorder:
    """Records what is launched on a GPU."""

    place: torch.device

    def stream(self) -> int | None:
        if torch.cuda.is_current_stream_capturing():
            return None
        return torch.cuda.current_stream(self.place).cuda_stream

    def record(self, call: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.place)
        torch.cuda.synchronize(self.place)
        # Memory of cuBLAS belongs to one recording, or two of them could write to it at once.
        torch._C._cuda_clearCublasWorkspaces()
        with torch.cuda.device(self.place), torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                result = call()
            finally:
                graph.capture_end()
        torch._C._cuda_clearCublasWorkspaces()
        return graph.replay, result


def recordable(program: Program) -> bool:
    """Whether launches of the program may be recorded: its steps depend on nothing but sizes and
    addresses of tensors, run on the GPU alone, and there are enough of them to gain from it."""
    kinds = [step[0] for step in program.steps]
    launches = sum(kind in ("cuda_kernel", "call") for kind in kinds)
    if launches < FEW_LAUNCHES or not _RECORDED.issuperset(kinds):
        return False
    if any(_CPU in map(_constant, step[3]) for step in program.steps if step[0] == "call"):
        return False
    # A result in the memory of an argument would be in that of a copy when the recording is
    # replayed.
    root = {slot: slot for slot in range(program.inputs)}  # tensors that share an argument's memory
    for step in program.steps:
        if step[0] == "view" and step[2] in root:
            root[step[1]] = root[step[2]]
    slots = [item[1] for item in program.outputs if item[0] == "slot"]
    others = {item[0] for item in program.outputs} - {"slot", "none", "const"}
    return not others and len(slots) == len({*slots}) and root.keys().isdisjoint(slots)


def _constant(argument: Any) -> Any:
    return argument[1] if argument[0] == "const" else None


@dataclass(slots=True, eq=False)
class RecordedLaunch:
    """A recording. `addresses` are those of the arguments that it was made with; 0 for one that is
    copied to its tensor in `copies` before each replay. `result` is in memory of the recording."""

    replay: Callable[[], None]
    addresses: list[int]
    copies: dict[int, torch.Tensor]
    result: Sequence[Any]
    idle: list[int]  # how many references each storage has if the program has none

    def is_for(self, addresses: Sequence[int]) -> bool:
        pairs = zip(self.addresses, addresses, strict=True)
        return all(recorded in (0, address) for recorded, address in pairs)

    def is_free(self) -> bool:
        """Whether the program has no results of the last replay any more."""
        return self.references() == self.idle

    def references(self) -> list[int]:
        outputs = [output for output in self.result if isinstance(output, Output)]
        return [torch._C._storage_Use_Count(output.storage._cdata) for output in outputs]

    def run(self, args: Sequence[Any]) -> tuple[Any, ...]:
        for at, copy in self.copies.items():
            copy.copy_(args[at])
        self.replay()
        results = [o.tensor() if isinstance(o, Output) else o for o in self.result]
        return tuple(results)


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """A result in the memory of a recording. Each replay returns a new tensor."""

    storage: torch.UntypedStorage
    dtype: torch.dtype
    layout: tuple[Any, ...]

    def tensor(self) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype, device=self.storage.device)
        return empty.set_(self.storage, *self.layout)


class SizeRecordings:
    """The recordings for calls with the same sizes and numbers on one stream."""

    def __init__(self, addresses: list[int]) -> None:
        self.addresses = addresses  # of the call before
        self.moving: set[int] = set()  # arguments that are somewhere else in each call
        self.recordings: list[RecordedLaunch] = []


class RecordingLauncher:
    """Stands for a launcher, whose launches it records and replays. The first call with some sizes
    is made as usual, the second is recorded, and later ones are replayed where that is possible."""

    def __init__(
        self,
        launcher: Callable[..., Any],
        program: Program,
        recorder: GraphRecorder,
        report: Callable[[Exception], None],
    ) -> None:
        self.launcher = launcher
        self.recorder = recorder
        self.report = report  # is told of what goes wrong
        self.written = sorted(program.written)
        self.sized = bool(program.symbols)  # whether sizes are not the same in each call
        self.sizes: dict[Any, SizeRecordings] = {}
        self.lock = threading.Lock()
        self.failed = False  # then recording is not tried again

    def __call__(self, *args: Any) -> Any:
        stream = self.recorder.stream()
        # Another thread that is replaying has the recording's memory, so this call is made as
        # usual.
        if stream is None or self.failed or not self.lock.acquire(blocking=False):
            return self.launcher(*args)
        try:
            recording = self._recording(stream, args)
            if recording is None:
                return self.launcher(*args)
            for at in self.written:
                # Autograd compares version counters, which a replay does not touch.
                torch.autograd.graph.increment_version(args[at])
            return recording.run(args)
        finally:
            self.lock.release()

    def _recording(self, stream: int, args: Sequence[Any]) -> RecordedLaunch | None:
        """A recording that can be replayed for these arguments, which may be made now; None if the
        call has to be made as usual."""
        # A recording is for one stream, and for the sizes, strides and numbers that it was made
        # with.
        key = (stream, *[self._described(arg) for arg in args])
        addresses = [arg.data_ptr() if isinstance(arg, torch.Tensor) else 0 for arg in args]
        sizes = self.sizes.get(key)
        if sizes is None:  # the first call compiles what is missing, and is not recorded
            self._remember(key, SizeRecordings(addresses))
            return None
        for recording in sizes.recordings:
            if recording.is_for(addresses) and recording.is_free():
                return recording
        # Arguments that move from call to call are copied; a new recording is made for that.
        if not self._settle(sizes, addresses, args):
            return None
        if len(sizes.recordings) >= MOST_RECORDINGS:
            return None
        return self._record(sizes, addresses, args)

    def _described(self, arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return type(arg), arg
        return (arg.shape, arg.stride()) if self.sized else None

    def _remember(self, key: Any, sizes: SizeRecordings) -> None:
        # The oldest goes: dictionaries keep the order of insertion.
        if len(self.sizes) >= MOST_SIZES:
            del self.sizes[next(iter(self.sizes))]
        self.sizes[key] = sizes

    def _settle(self, sizes: SizeRecordings, addresses: list[int], args: Sequence[Any]) -> bool:
        """Have arguments that are at another address than in the last call copied from now on.
        Returns whether another recording may be made."""
        moved = {
            at
            for at, (before, now) in enumerate(zip(sizes.addresses, addresses, strict=True))
            if before != now and at not in sizes.moving
        }
        sizes.addresses = addresses
        if not moved:
            return True
        # What is written has to be where it is, and what shares its memory as well.
        # Only these can be copied to memory with the same strides.
        dense = all(torch.ops.aten.is_non_overlapping_and_dense(args[at]) for at in moved)
        if self.written or not dense:
            return len(sizes.recordings) < MOST_RECORDINGS
        sizes.moving |= moved
        # They have the old addresses in them.
        sizes.recordings.clear()
        return True

    def _record(
        self, sizes: SizeRecordings, addresses: Sequence[int], args: Sequence[Any]
    ) -> RecordedLaunch | None:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if any(tensor.device != self.recorder.place for tensor in tensors):
            self.failed = True  # a number on the CPU is read when it is launched
            return None
        # Copies are ordinary tensors, which later calls outside of inference mode may use.
        with torch.inference_mode(False), torch.no_grad():
            copies = {at: torch.empty_like(args[at]) for at in sorted(sizes.moving)}
        inputs = [copies.get(at, arg) for at, arg in enumerate(args)]
        try:
            replay, result = self.recorder.record(partial(self.launcher, *inputs))
        except FATAL:
            raise
        except Exception as error:
            self.failed = True
            self.report(error)
            return None
        # An argument that is copied may be anywhere.
        fixed = [0 if at in copies else address for at, address in enumerate(addresses)]
        outputs = [_output(value) for value in result]
        del result
        recording = RecordedLaunch(replay, fixed, copies, outputs, [])
        # Counted while only the recording itself refers to the results.
        recording.idle = recording.references()
        sizes.recordings.append(recording)
        return recording


def _output(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    layout = (value.storage_offset(), value.size(), value.stride())
    return Output(value.untyped_storage(), value.dtype, layout)
