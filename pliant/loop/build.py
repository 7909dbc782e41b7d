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
    Kernel,
    Kind,
    Loop,
    Op,
    Statement,
    Value,
)
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, Expr, as_expr, symbol


class Builder:
    """A kernel in the making."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sizes: list[Expr] = []
        self.buffers: list[Buffer] = []
        self._open: list[list[Statement]] = [[]]
        self._variables = 0

    def size(self, name: str) -> Expr:
        """A size that is given when the kernel is called."""
        new = symbol(name)
        if new not in self.sizes:
            self.sizes.append(new)
        return new

    def buffer(
        self, name: str, type: Type, access: Access = Access.READ, base: Expr | int = ZERO
    ) -> Buffer:
        new = Buffer(name, type, access, as_expr(base))
        self.buffers.append(new)
        return new

    @contextmanager
    def loop(self, extent: Expr | int, kind: Kind = Kind.PARALLEL) -> Iterator[Expr]:
        """What is added inside is the body; gives the variable."""
        var = symbol(f"i{self._variables}")
        self._variables += 1
        self._open.append([])
        yield var
        body = tuple(self._open.pop())
        self._open[-1].append(Loop(var, as_expr(extent), kind, body))

    def __call__(self, op: Op, *args: Value) -> Value:
        """An operation whose type follows from its arguments."""
        signature = SIGNATURES[op]
        result = signature.result
        if result is None:
            raise TypeError(f"the type of {op.text} has to be said")
        if result == SAME:
            result = next(a.type for a, slot in zip(args, signature.args) if slot == SAME)
        assert isinstance(result, Type)
        return self.add(Value(op, result, args))

    def add(self, value: Value) -> Value:
        self._open[-1].append(value)
        return value

    def load(self, buffer: Buffer, index: Expr | int, mask: Value | None = None) -> Value:
        args = () if mask is None else (mask,)
        return self.add(Value(Op.LOAD, buffer.type, args, as_expr(index), buffer))

    def store(
        self, buffer: Buffer, index: Expr | int, value: Value, mask: Value | None = None
    ) -> None:
        args = (value,) if mask is None else (value, mask)
        self.add(Value(Op.STORE, buffer.type, args, as_expr(index), buffer))

    def constant(self, number: int | float | bool, type: Type) -> Value:
        return self.add(Value(Op.CONSTANT, type, constant=number))

    def cast(self, value: Value, type: Type) -> Value:
        """The value itself if it has the type."""
        return value if value.type is type else self.add(Value(Op.CAST, type, (value,)))

    def bitcast(self, value: Value, type: Type) -> Value:
        return self.add(Value(Op.BITCAST, type, (value,)))

    def iota(self, index: Expr | int) -> Value:
        """The expression as an i64."""
        return self.add(Value(Op.IOTA, Type.I64, index=as_expr(index)))

    def as_index(self, value: Value) -> Expr:
        """The i64 as a symbol, for indices."""
        var = symbol(f"j{self._variables}")
        self._variables += 1
        self.add(Value(Op.AS_INDEX, Type.I64, (value,), var))
        return var

    def kernel(self) -> Kernel:
        (body,) = self._open
        return Kernel(self.name, tuple(self.sizes), tuple(self.buffers), tuple(body))
