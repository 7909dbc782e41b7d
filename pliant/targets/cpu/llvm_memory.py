"""Loads and stores in lanes.

The one idea: an access is uniform (one place for all lanes), close (a vector in memory) or
scattered (a place for each lane), and each may be masked. Places that are a few elements apart are
loaded with what is between them, and picked out. Accesses to different buffers are marked
as not overlapping, so that LLVM may move what stays the same out of loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.ir import Buffer, Kernel
from pliant.loop.types import Type
from pliant.targets.cpu.llvm_ops import MEMORY
from pliant.targets.cpu.llvm_text import Code, Reg, suffix, vector

STACK: Final = 1 << 14  # bytes
LINE: Final = 64  # of a cache


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """Where an access is, in elements from `pointer`. `lanes` are those of the value. An `index` of
    as many lanes has a place for each (scattered); an `index` of one lane is the first place, which
    the others follow in steps of `step`."""

    buffer: Buffer
    pointer: Reg
    index: Reg
    lanes: int
    step: int = 1

    @property
    def scattered(self) -> bool:
        return self.index.lanes > 1

    def spelled_out(self) -> ElementPlace:
        """The same places, with an index for each lane."""
        code = self.index.code
        index = self.index + code.numbers(self.lanes) * self.step
        return ElementPlace(self.buffer, self.pointer, index, self.lanes)

    def scatter(self, lanes: int) -> ElementPlace:
        """A uniform place as one place for each of so many lanes."""
        index = self.index.code.spread(self.index, lanes)
        return ElementPlace(self.buffer, self.pointer, index, lanes)


class BufferMemory:
    """The buffers of a kernel in the function that is being written."""

    def __init__(self, code: Code, kernel: Kernel) -> None:
        self.code = code
        self._all = (*kernel.buffers, *kernel.own)
        self.pointers: dict[Buffer, Reg] = {}
        self._taken: list[Reg] = []
        # A place that can always be loaded from: a masked load of one element needs no branch.
        self.scratch = code.define("alloca i64, align 8", "ptr", 1)

    def take(self, buffer: Buffer, size: Reg) -> None:
        """Allocate memory of the kernel's own, of `size` elements: on the stack if it is known to
        be small, else on the heap."""
        type, code = MEMORY[buffer.type], self.code
        length = buffer.size.value if buffer.size is not None else None
        if length is not None and length * buffer.type.bits // 8 <= STACK:
            text = f"alloca [{length} x {type}], align {LINE}"
            self.pointers[buffer] = code.define(text, "ptr", 1)
            return
        # `aligned_alloc` wants a multiple of the alignment.
        bytes = (size * (buffer.type.bits // 8) + (LINE - 1)) & -LINE
        self.pointers[buffer] = code.call("aligned_alloc", "ptr", 1, [size.like(LINE), bytes])
        self._taken.append(self.pointers[buffer])

    def give_back(self) -> None:
        for pointer in self._taken:
            self.code.declare("free", "void", [str(pointer)])
            self.code.do(f"call void @free({pointer})")

    def load(self, place: ElementPlace, mask: Reg | None) -> Reg:
        """Write a load: of one place, of lanes that are close, some elements apart, or scattered.
        The result is 0 where the mask is false, and memory isn't touched there."""
        # A uniform place with a mask that differs from lane to lane becomes a gather.
        if mask is not None and mask.lanes > place.lanes:
            place = place.scatter(mask.lanes)
        uniform = mask is not None and mask.lanes == 1
        if place.step != 1 and mask is not None and not uniform:
            place = place.spelled_out()
        t = place.buffer.type
        if place.step != 1 and mask is not None:
            zero = self.code.spread(self.code.number(0, MEMORY[t]), place.lanes)
            loaded = self.code.either(mask, lambda: self._picked_load(place), zero)
        elif place.step != 1:
            loaded = self._picked_load(place)
        elif mask is None and not place.scattered:
            loaded = self._plain_load(place, self._pointer(place))
        # There are no masked loads of a single element.
        elif place.lanes == 1:
            assert mask is not None
            pointer = self.code.select(mask, self._pointer(place), self.scratch)
            loaded = self._plain_load(place, pointer)
            loaded = self.code.select(mask, loaded, loaded.like(0))
        else:
            loaded = self._masked_load(place, mask)
        return loaded.compare("ne", 0) if t is Type.BOOL else loaded

    def store(self, place: ElementPlace, value: Reg, mask: Reg | None) -> None:
        """Write a store. If several lanes go to one place, the value of one of them stays."""
        if place.step != 1:
            place = place.spelled_out()
        if mask is not None and mask.lanes > 1 and place.lanes == value.lanes == 1:
            mask = self.code.any_lane(mask)  # one place, one value: whether any lane stores it
        lanes = max(value.lanes, mask.lanes if mask is not None else 1)
        if lanes > place.lanes:
            place = place.scatter(lanes)
        type = MEMORY[place.buffer.type]
        value = self.code.spread(self.code.convert("zext", value, type), place.lanes)
        if place.lanes > 1 and (place.scattered or mask is not None):
            self._masked_store(place, value, mask)
            return
        pointer, code = self._pointer(place), self.code
        align = place.buffer.type.bits // 8
        text = f"store {value}, {pointer}, align {align}{self._aliasing(place.buffer)}"
        if mask is None:
            code.do(text)
            return
        # One element with a condition: a branch, since a masked store takes vectors only.
        inside, after = code.label(), code.label()
        code.do(f"br {mask}, label %{inside}, label %{after}")
        code.start(inside)
        code.do(text)
        code.do(f"br label %{after}")
        code.start(after)

    def _pointer(self, place: ElementPlace) -> Reg:
        return self.moved(place.buffer, place.pointer, place.index)

    def moved(self, buffer: Buffer, pointer: Reg, by: Reg) -> Reg:
        """A pointer so many elements further. It may be outside: then nothing is accessed there."""
        text = f"getelementptr {MEMORY[buffer.type]}, {pointer}, {by}"
        return self.code.define(text, "ptr", by.lanes)

    def _plain_load(self, place: ElementPlace, pointer: Reg) -> Reg:
        t = place.buffer.type
        rest = f"align {t.bits // 8}{self._aliasing(place.buffer)}"
        type = MEMORY[t]
        return self.code.define(
            f"load {vector(type, place.lanes)}, {pointer}, {rest}", type, place.lanes
        )

    def _picked_load(self, place: ElementPlace) -> Reg:
        """Lanes that are `step` elements apart: loads all elements from the first to the last, as
        `step` vectors, and picks out those that are wanted by shuffles. Of 4 lanes in steps of 2,

            [e0 e1 e2 e3] [e3 e4 e5 e6]   gives   [e0 e2 e4 e6]
        """
        lanes, step = place.lanes, abs(place.step)
        span = step * (lanes - 1) + 1
        first = place.index if place.step > 0 else place.index - (span - 1)
        # The last vector ends at the last element that is wanted: what lies behind may not be ours
        # to read.
        starts = [*range(0, lanes * (step - 1), lanes), span - lanes]
        parts = [
            self._plain_load(part, self._pointer(part))
            for part in [
                ElementPlace(place.buffer, place.pointer, first + at, lanes) for at in starts
            ]
        ]
        lanes_of = [min(at // lanes, step - 1) for at in range(0, span, step)]
        picked = [p * lanes + step * i - starts[p] for i, p in enumerate(lanes_of)]
        return self.code.picked(parts, picked if place.step > 0 else picked[::-1])

    def _masked_load(self, place: ElementPlace, mask: Reg | None) -> Reg:
        type = MEMORY[place.buffer.type]
        full = vector(type, place.lanes)
        args = [*self._masked(place, mask), f"{full} zeroinitializer"]
        call = self._call("gather" if place.scattered else "load", full, place, args)
        return self.code.define(call, type, place.lanes)

    def _masked_store(self, place: ElementPlace, value: Reg, mask: Reg | None) -> None:
        args = [str(value), *self._masked(place, mask)]
        self.code.do(self._call("scatter" if place.scattered else "store", "void", place, args))

    def _masked(self, place: ElementPlace, mask: Reg | None) -> list[str]:
        """The arguments that masked intrinsics share: pointers, alignment and mask."""
        all_lanes = self.code.number(1, "i1") if mask is None else mask
        lanes = self.code.spread(all_lanes, place.lanes)
        return [str(self._pointer(place)), f"i32 {place.buffer.type.bits // 8}", str(lanes)]

    def _call(self, operation: str, result: str, place: ElementPlace, args: Sequence[str]) -> str:
        pointers = suffix("ptr", place.index.lanes)
        name = (
            f"llvm.masked.{operation}.{suffix(MEMORY[place.buffer.type], place.lanes)}.{pointers}"
        )
        self.code.declare(name, result, args)
        return f"call {result} @{name}({', '.join(args)}){self._aliasing(place.buffer)}"

    def _aliasing(self, buffer: Buffer) -> str:
        # See `metadata`: three entries for each buffer, from number 2 on.
        i = self._all.index(buffer)
        return f", !alias.scope !{3 + 3 * i}, !noalias !{4 + 3 * i}"

    def metadata(self) -> list[str]:
        """A domain (!1), a scope for each buffer, and the lists that accesses refer to."""
        count = len(self._all)
        lines = ["!0 = !{}", '!1 = distinct !{!1, !"buffers"}']
        for i in range(count):
            others = ", ".join([f"!{2 + 3 * j}" for j in range(count) if j != i])
            lines.append(f"!{2 + 3 * i} = distinct !{{!{2 + 3 * i}, !1}}")
            lines.append(f"!{3 + 3 * i} = !{{!{2 + 3 * i}}}")
            lines.append(f"!{4 + 3 * i} = !{{{others}}}")
        return lines
