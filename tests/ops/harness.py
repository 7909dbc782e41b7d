"""One operator through its rule, fusion and machine code, on real tensors."""

import ctypes

import torch

import pliant.ops.table  # noqa: F401  fills the table of rules
from pliant.base.operators import record_of
from pliant.loop.body import FLAG
from pliant.loop.buffer_reuse import Lifetimes
from pliant.loop.check import check
from pliant.loop.define import Definition
from pliant.loop.fuse import FusionGroup, schedule
from pliant.loop.write import write_kernel
from pliant.ops.indexed_tensor import IndexedTensor, in_memory
from pliant.ops.lowering import Lowering, Meta, NotLowered, type_of
from pliant.sym.expr import evaluate, integer, symbol
from pliant.targets.cpu.jit import host
from pliant.targets.cpu.loop_nest import arrange

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class Fault(Exception):
    """The kernel says that somebody has to raise."""


def exprs(numbers):
    return tuple([integer(int(n)) for n in numbers])


def run_op(func, *args, symbolic=False, expected=None, target=None, **kwargs):
    """What the rule for `func` computes: a tensor or a tuple of them, laid out as eager's.

    With `symbolic`, the sizes of tensor arguments are symbols (equal ones the same) when the
    kernels are made. `expected` is like the result, for calls that eager refuses. `target` is
    another machine to make the kernels for.
    """
    expected = func(*args, **kwargs) if expected is None else expected
    several = isinstance(expected, (tuple, list))
    wanted = list(expected) if several else [expected]
    values, sizes = {}, {}

    def number(n):
        if not symbolic or n < 2:
            return integer(int(n))
        made = sizes.setdefault(int(n), symbol(f"s{len(sizes)}"))
        values[made] = int(n)
        return made

    def meta(t):
        shape = tuple([number(n) for n in t.size()])
        strides = exprs(t.stride())
        if symbolic and t.is_contiguous():
            from pliant.ops.lowering import contiguous

            strides = contiguous(shape)
        return Meta(shape, strides, t.dtype)

    low = Lowering(results=tuple([meta(t) for t in wanted]))
    memory = {FLAG: torch.zeros((), dtype=torch.int64)}

    def given(value):
        if isinstance(value, torch.Tensor):
            known = meta(value)
            definition = Definition(
                f"in{len(memory)}", known.sizes, known.strides, type_of(value.dtype)
            )
            memory[definition] = value
            return in_memory(definition)
        if isinstance(value, (list, tuple)):
            return type(value)(map(given, value))
        return value

    name = str(func)
    rule = record_of(name).lowering
    if rule is None:
        raise NotLowered(f"no rule for {name}")
    indexed_tensors = rule(low, *map(given, args), **{k: given(v) for k, v in kwargs.items()})
    indexed_tensors = (
        list(indexed_tensors) if isinstance(indexed_tensors, (tuple, list)) else [indexed_tensors]
    )
    stored = []
    for indexed, known in zip(indexed_tensors, low.results, strict=True):
        assert isinstance(indexed, IndexedTensor)
        assert indexed.type is known.type, (indexed.type, known.type)
        assert tuple(indexed.sizes) == known.sizes, (indexed.sizes, known.sizes)
        definition = low.realize(indexed, known.strides).memory.of
        stored.append(definition)
    run_definitions(low.definitions, stored, memory, values, target)
    if memory[FLAG].item():
        raise Fault(name)
    found = [memory[d] for d in stored]
    return tuple(found) if several else found[0]


def run_definitions(definitions, stored, memory, values, target=None):
    """Compute all definitions with compiled kernels; `memory` has tensors for those given."""
    plan = schedule(definitions)
    for at, group in enumerate(plan):
        assert isinstance(group, FusionGroup)
        kept = Lifetimes(plan, stored).stored(at, group)
        done = write_kernel(
            group, kept, f"kernel{at}", lambda e: evaluate(e, values), arrange=arrange
        )
        check(done.kernel)
        for member in group.members:
            if member in kept and member.into is None:
                shape = [evaluate(s, values) for s in member.sizes]
                strides = [evaluate(s, values) for s in member.strides]
                memory[member] = torch.empty_strided(shape, strides, dtype=member.type.dtype)
        launch(done, memory, values, target)


def launch(done, memory, values, target=None):
    compiled = host().compile(done.kernel, target)
    pointers = [memory[d].data_ptr() for d in done.memory]
    buffers = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
    numbers = [evaluate(s, values) for s in done.kernel.sizes]
    sizes = (ctypes.c_int64 * max(1, len(numbers)))(*numbers)
    extent = 1
    for loop in done.kernel.grid:
        extent *= evaluate(loop.extent, values)
    address = FUNCTION(compiled.address)
    cut = extent // 3  # in two parts: any part of the grid can be run alone
    for start, stop in ((0, cut), (cut, extent)) if done.kernel.grid else ((0, 1),):
        address(ctypes.addressof(buffers), ctypes.addressof(sizes), start, stop)
