"""Kernels written as Python: each call adds a statement to the innermost open loop.

    build = Builder("scaled")
    n = build.size("s0")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i:
        doubled = build(Op.MUL, build.load(x, i), build.constant(2.0, Type.F32))
        build.store(y, i, doubled)
    kernel = build.kernel()

The one idea: result types come from the table of signatures, so that only what a signature leaves
open (casts, loads, constants) is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pliant.loop.ir import (
    SAME,
    SIGNATURES,
    Access,
    Buffer,
    Combine,
    Kernel,
    Loop,
    LoopKind,
    LoopValue,
    Op,
    Statement,
)
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, Expr, as_expr, symbol


class Builder:
    """A kernel under construction: `kernel()` returns it in the end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes: list[Expr] = []
        self.buffers: list[Buffer] = []
        self._open: list[list[Statement]] = [[]]
        self._combines: list[list[Combine | None]] = [[]]  # of the loops that are open
        self._variables = 0

    def size(self, name: str) -> Expr:
        """A size that is given when the kernel is called."""
        new = symbol(name)
        if new not in self.sizes:
            self.sizes.append(new)
        return new

    def buffer(
        self,
        name: str,
        type: Type,
        access: Access = Access.READ,
        base: Expr | int = ZERO,
        device: str = "cpu",
    ) -> Buffer:
        new = Buffer(name, type, access, as_expr(base), device=device)
        self.buffers.append(new)
        return new

    @contextmanager
    def loop(self, extent: Expr | int, kind: LoopKind = LoopKind.PARALLEL) -> Iterator[Expr]:
        """Open a loop, whose body is what is added inside of the `with`. Yields its variable."""
        var = symbol(f"i{self._variables}")
        self._variables += 1
        self._open.append([])
        self._combines.append([])
        yield var
        body, combines = tuple(self._open.pop()), tuple(self._combines.pop())
        self._open[-1].append(Loop(var, as_expr(extent), kind, body, combines))

    def __call__(self, op: Op, *args: LoopValue) -> LoopValue:
        """An operation whose type follows from its arguments."""
        signature = SIGNATURES[op]
        result = signature.result
        if result is None:
            raise TypeError(f"the type of {op.text} has to be said")
        if result == SAME:
            result = next(a.type for a, slot in zip(args, signature.args) if slot == SAME)
        assert isinstance(result, Type)
        return self.add(LoopValue(op, result, args))

    def add(self, value: LoopValue) -> LoopValue:
        self._open[-1].append(value)
        return value

    def load(self, buffer: Buffer, index: Expr | int, mask: LoopValue | None = None) -> LoopValue:
        args = () if mask is None else (mask,)
        return self.add(LoopValue(Op.LOAD, buffer.type, args, as_expr(index), buffer))

    def store(
        self, buffer: Buffer, index: Expr | int, value: LoopValue, mask: LoopValue | None = None
    ) -> None:
        args = (value,) if mask is None else (value, mask)
        self.add(LoopValue(Op.STORE, buffer.type, args, as_expr(index), buffer))

    def constant(self, number: int | float | bool, type: Type) -> LoopValue:
        return self.add(LoopValue(Op.CONSTANT, type, constant=number))

    def cast(self, value: LoopValue, type: Type) -> LoopValue:
        """The value itself if it has the type."""
        return value if value.type is type else self.add(LoopValue(Op.CAST, type, (value,)))

    def bitcast(self, value: LoopValue, type: Type) -> LoopValue:
        return self.add(LoopValue(Op.BITCAST, type, (value,)))

    def iota(self, index: Expr | int) -> LoopValue:
        """A value of type i64 that is equal to the expression."""
        return self.add(LoopValue(Op.IOTA, Type.I64, index=as_expr(index)))

    def as_index(self, value: LoopValue) -> Expr:
        """A new symbol that stands for the i64, for use in indices."""
        var = symbol(f"j{self._variables}")
        self._variables += 1
        self.add(LoopValue(Op.AS_INDEX, Type.I64, (value,), var))
        return var

    def kernel(self) -> Kernel:
        (body,) = self._open
        return Kernel(self.name, tuple(self.sizes), tuple(self.buffers), tuple(body))
