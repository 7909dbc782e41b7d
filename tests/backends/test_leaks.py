"""Nothing is left behind: by calls, failing ones too, by compilations, by code that is dropped."""

import ctypes
import gc
import weakref
from collections import Counter

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.sym.expr import forget
from pliant.targets.cpu.jit import host

MEGABYTE = 1024  # in kilobytes


def resident() -> int:
    """Kilobytes of memory in use, without what the allocator keeps for later, and without pages of
    files: those come and go with what else the machine does."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/status") as file:
        found = dict(line.split(":", 1) for line in file)
    return sum(int(found[name].split()[0]) for name in ("RssAnon", "VmSwap"))


def objects() -> Counter[type]:
    """What is referred to. Sizes of programs that are gone are dropped when there are twice as many
    as before, which other tests of this process have a part in; here they go at once."""
    gc.collect()
    forget()
    return Counter(type(thing) for thing in gc.get_objects())


def grows(work, times, warm_up) -> tuple[int, Counter[type]]:
    """By how many kilobytes and by which objects, when `work(i)` has run that often."""
    for i in range(warm_up):
        work(i)
    host()._recent.clear()
    before, kept = objects(), resident()
    for i in range(warm_up, warm_up + times):
        work(i)
    host()._recent.clear()
    return resident() - kept, objects() - before


# ---- calls


def views_and_writes(x, y):
    z = x.sort(-1)[0] + y
    x.mul_(0.5)
    return z[1:], x, z.shape[0]


def several_kernels(x, y):
    a = (x.softmax(-1) @ y.view(-1, 1)).relu() + 1
    return [a, a.sum(), torch.cat([x, x * 2]), x[:, 0]]


@pytest.mark.parametrize("function", [views_and_writes, several_kernels])
@pytest.mark.parametrize("dynamic", [False, True])
def test_calls(function, dynamic):
    compiled = pliant.compile(function, backend=llvm, dynamic=dynamic)
    x, y = torch.randn(30, 50), torch.randn(50)
    grown, more = grows(lambda i: compiled(x, y), 10_000, 500)
    assert grown < 2 * MEGABYTE and more[torch.Tensor] == 0


def fails_in_a_kernel(x, i):
    return (x * 2)[i] + 1


def fails_in_pytorch(x, i):
    return torch.bernoulli(x + i.sum()).exp()


def fails_after_a_write(x, i):
    y = x + i.sum()
    x.mul_(1.0)
    torch.bernoulli(y.view(-1))


@pytest.mark.parametrize("function", [fails_in_a_kernel, fails_in_pytorch, fails_after_a_write])
def test_calls_that_fail(function):
    compiled = pliant.compile(function, backend=llvm)
    x, good, bad = torch.rand(200, 200), torch.tensor([0]), torch.tensor([900])
    compiled(x, good)

    def fail(i):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, bad)

    grown, more = grows(fail, 300, 50)
    assert grown < 2 * MEGABYTE and more[torch.Tensor] == 0


# ---- compilations


def new_function(n):
    def step(x):
        return (x * n).softmax(-1).sum(0) + x.sort(-1)[0]

    return pliant.compile(step, backend=llvm), torch.randn(4, n % 7 + 2)


def compile_a_function(n):
    compiled, x = new_function(n)
    compiled(x)


def compile_a_module(n):
    class Scaled(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).relu() * n

    with torch.no_grad():
        pliant.compile(Scaled(8, 8), backend=llvm)(torch.randn(3, 8))


def recompile(n):
    recompiled(torch.randn(4, n % 7 + 2), float(n))
    if n % 8 == 7:
        pliant.reset()


@pliant.compile(backend=llvm, dynamic=False, options={"specialize_float": True})
def recompiled(x, n):
    return (x * n).softmax(-1).sum(0) + n


COMPILATIONS = [compile_a_function, compile_a_module, recompile]


@pytest.mark.parametrize("work", COMPILATIONS)
def test_compilations(work):
    grown, more = grows(work, 48, 24)
    assert grown < 4 * MEGABYTE
    assert sum(more.values()) < 48, more.most_common(5)


@pytest.mark.long
@pytest.mark.parametrize("work", COMPILATIONS)
def test_a_thousand_compilations(work):
    grown, more = grows(work, 1000, 300)
    assert grown < 8 * MEGABYTE  # the heap of the linker settles slowly
    assert sum(more.values()) < 200, more.most_common(5)


def code_in_memory() -> int:
    """Bytes of memory that can be executed and belong to no file."""
    total = 0
    with open("/proc/self/maps") as file:
        for line in file:
            places, rights, _, _, inode = line.split()[:5]
            start, stop = (int(place, 16) for place in places.split("-"))
            total += stop - start if "x" in rights and inode == "0" else 0
    return total


def test_code_lives_as_long_as_somebody_can_call_it():
    compile_a_function(1)
    host()._recent.clear()
    gc.collect()
    before = code_in_memory()
    functions = [new_function(n) for n in range(100, 112)]
    expected = [compiled(x) for compiled, x in functions]
    host()._recent.clear()
    gc.collect()
    assert code_in_memory() > before
    for (compiled, x), result in zip(functions, expected):
        assert torch.equal(compiled(x), result)
    gone = [weakref.ref(compiled) for compiled, _ in functions]
    functions.clear()
    del compiled, x
    gc.collect()
    assert not any(reference() for reference in gone)
    assert code_in_memory() == before
