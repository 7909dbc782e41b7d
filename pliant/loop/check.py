"""What makes a kernel well formed, as a program that says what is wrong with one.

The one idea: walk the statements in order with the set of what is in scope: values, and the symbols
that an index may use. Run between stages in tests; off in production.
"""

from __future__ import annotations

from collections.abc import Iterator

from pliant.base.malformed import MalformedStageError
from pliant.loop.ir import (
    INDEXED,
    MEMORY,
    REDUCTIONS,
    SAME,
    SIGNATURES,
    STATEMENTS,
    Access,
    Kernel,
    Loop,
    LoopKind,
    LoopValue,
    Op,
    Statement,
)
from pliant.loop.kernel_arguments import kernel_arguments as given_in
from pliant.loop.show import line
from pliant.loop.types import INTEGER, Type, largest, smallest
from pliant.sym.expr import Expr


class MalformedKernelError(MalformedStageError):
    """The kernel breaks a rule of the loop IR; the message says which, where."""


def check(kernel: Kernel) -> Kernel:
    """The kernel itself, or an error that lists what is wrong with it."""
    problems = list(_Checker(kernel).problems())
    if problems:
        raise MalformedKernelError("\n".join([*problems, "in", str(kernel)]))
    return kernel


class _Checker:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.names: dict[LoopValue, str] = {}
        self.all_symbols: set[Expr] = set(kernel.sizes)

    def problems(self) -> Iterator[str]:
        kernel = self.kernel
        if len({buffer.name for buffer in kernel.buffers}) < len(kernel.buffers):
            yield "two buffers have one name"
        for size in kernel.sizes:
            if given_in(size) != {size}:
                yield f"size {size} is computed by kernels"
        for buffer in kernel.buffers:
            yield from self._expression(buffer.base, set(kernel.sizes), f"base of {buffer.name}")
        _, inside = self._block(kernel.body, set(), set(kernel.sizes), None)
        yield from inside

    def _block(
        self,
        body: tuple[Statement, ...],
        scope: set[LoopValue],
        symbols: set[Expr],
        kind: LoopKind | None,
    ) -> tuple[set[LoopValue], list[str]]:
        """The reductions of the block that haven't ended in it, and the problems."""
        scope, symbols = set(scope), set(symbols)
        # A reduction has its value only after the outermost of its reduction loops.
        pending: set[LoopValue] = set()
        listed: list[str] = []
        for item in body:
            if isinstance(item, Loop):
                ended, problems = self._loop(item, scope, symbols)
                listed += problems
                if kind is LoopKind.REDUCTION and item.kind is LoopKind.REDUCTION:
                    pending |= ended  # they go on in the loop around
                else:
                    scope |= ended
                continue
            text = line(item, self.names)
            listed += [f"{text}: {problem}" for problem in self._value(item, scope, symbols, kind)]
            if item.op in REDUCTIONS:
                pending.add(item)
            elif item.op not in STATEMENTS:
                scope.add(item)
            if item.op is Op.AS_INDEX and item.index is not None:
                symbols.add(item.index)
        return pending, listed

    def _loop(
        self, loop: Loop, scope: set[LoopValue], symbols: set[Expr]
    ) -> tuple[set[LoopValue], list[str]]:
        own = list(self._expression(loop.extent, symbols, f"extent of {loop.var}"))
        own += self._new_symbol(loop.var)
        pending, problems = self._block(loop.body, scope, symbols | {loop.var}, loop.kind)
        return pending, own + problems

    def _new_symbol(self, new: Expr) -> list[str]:
        if new.op != "symbol" or new in self.all_symbols:
            return [f"{new} is not a new symbol"]
        self.all_symbols.add(new)
        return []

    def _expression(self, expr: Expr, symbols: set[Expr], role: str) -> Iterator[str]:
        unknown = sorted(str(s) for s in given_in(expr) if s not in symbols)
        if unknown:
            yield f"{role} uses {', '.join(unknown)}, not in scope"

    def _value(
        self, value: LoopValue, scope: set[LoopValue], symbols: set[Expr], kind: LoopKind | None
    ) -> Iterator[str]:
        for arg in value.args:
            if arg not in scope:
                yield f"{self.names.get(arg, 'an argument')} is not in scope"
        yield from self._types(value)
        yield from self._fields(value)
        if value.op is Op.AS_INDEX and value.index is not None:
            yield from self._new_symbol(value.index)
        elif value.index is not None:
            yield from self._expression(value.index, symbols, "the index")
        if value.op in MEMORY:
            yield from self._memory(value)
        if value.op in REDUCTIONS and kind is not LoopKind.REDUCTION:
            yield "a reduction outside of a reduction loop"
        if value.op in (Op.CARRIED, Op.CARRY) and kind is not LoopKind.SERIAL:
            yield "carried outside of a serial loop"
        if value.op is Op.CARRY and value.args[0].op is not Op.CARRIED:
            yield "its first argument has to be carried"
        if value.op is Op.WELFORD_M2 and value.args[0].op is not Op.WELFORD:
            yield "its argument has to be a welford"

    def _types(self, value: LoopValue) -> Iterator[str]:
        signature = SIGNATURES[value.op]
        # How many arguments, then whether those marked SAME agree, then the others and the result.
        slots = list(signature.args)
        if signature.masked and len(value.args) == len(slots) + 1:
            slots.append(Type.BOOL)
        if len(value.args) != len(slots):
            yield f"takes {len(slots)} arguments"
            return
        types = {arg.type for arg, slot in zip(value.args, slots) if slot == SAME}
        if len(types) > 1:
            yield f"mixes {', '.join(sorted(t.text for t in types))}"
        if not types <= signature.same:
            yield f"is not defined on {', '.join(sorted(t.text for t in types))}"
        for arg, slot in zip(value.args, slots):
            if slot != SAME and arg.type is not slot:
                yield f"needs {slot}, gets {arg.type}"
        result = min(types, key=lambda t: t.text) if signature.result == SAME else signature.result
        if result is not None and value.type is not result:
            yield f"has type {value.type}, not {result}"

    def _fields(self, value: LoopValue) -> Iterator[str]:
        for name, actual, needed in (
            ("index", value.index, value.op in INDEXED),
            ("buffer", value.buffer, value.op in MEMORY),
            ("constant", value.constant, value.op is Op.CONSTANT),
        ):
            if (actual is not None) != needed:
                yield f"needs a {name}" if needed else f"has no use for a {name}"
        if value.op is Op.CONSTANT and value.constant is not None:
            yield from self._constant(value.type, value.constant)
        if value.op is Op.BITCAST and value.args and not _same_bits(value.type, value.args[0].type):
            yield f"{value.type} and {value.args[0].type} differ in width"

    def _constant(self, t: Type, number: int | float | bool) -> Iterator[str]:
        python_type: type = {"bool": bool, "float": float}.get(t.kind, int)
        if type(number) is not python_type:
            yield f"a constant of type {t} is a {python_type.__name__}"
        elif t in INTEGER and not smallest(t) <= number <= largest(t):
            yield "the constant is out of range"

    def _memory(self, value: LoopValue) -> Iterator[str]:
        buffer = value.buffer
        if buffer is None:
            return
        if buffer not in (*self.kernel.buffers, *self.kernel.own):
            yield f"{buffer.name} is not a buffer of the kernel"
        if value.type is not buffer.type:
            yield f"{buffer.name} has type {buffer.type}"
        if value.op is not Op.LOAD and value.args and value.args[0].type is not buffer.type:
            yield f"{buffer.name} has type {buffer.type}, not {value.args[0].type}"
        forbidden = Access.WRITE if value.op is Op.LOAD else Access.READ
        if buffer.access is forbidden:
            yield f"{buffer.name} is for {buffer.access.value} only"


def _same_bits(a: Type, b: Type) -> bool:
    """A bool is no number of bits: it is 0 or 1."""
    return a.bits == b.bits and Type.BOOL not in (a, b)
