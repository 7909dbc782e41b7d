"""What a world promises beyond the look of results: conversion, errors, state, lifetime."""

from __future__ import annotations

import copy
import gc
import operator
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base.errors import DataDependentError
from pliant.fake import DataDependent, Fake, NoMetaKernel, Unsupported, World, metadata


def same_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata


# Conversion.

LEAF = torch.randn(4, 6, requires_grad=True)
REALS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.randn(3, 4),
    "strided": lambda: torch.randn(3, 8)[1:, ::2],
    "expanded": lambda: torch.randn(3, 1).expand(3, 4),
    "empty": lambda: torch.randn(0, 4),
    "number": lambda: torch.tensor(1.0),
    "integer": lambda: torch.arange(4),
    "bfloat16": lambda: torch.randn(3, dtype=torch.bfloat16),
    "conj": lambda: torch.randn(3, dtype=torch.complex64).conj(),
    "neg": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "real part": lambda: torch.randn(3, dtype=torch.complex64).real,
    "bytes": lambda: torch.randn(3).view(torch.uint8),
    "leaf": lambda: LEAF,
    "result": lambda: LEAF * 2,
    "view of leaf": lambda: LEAF[1:],
    "view of result": lambda: (LEAF * 2)[1:],
    "detached": lambda: LEAF.detach(),
    "graded view of plain": lambda: torch.randn(3, 4)[1:].requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "buffer": lambda: torch.nn.Buffer(torch.randn(3)),
    "written": lambda: torch.randn(3).add_(1),
    "on meta": lambda: torch.empty(3, 4, device="meta"),
}


@pytest.mark.parametrize("name", REALS)
def test_from_real_keeps_everything(name: str) -> None:
    real = REALS[name]()
    version = real._version
    fake = World().from_real(real)
    assert type(fake) is Fake
    assert metadata(fake) == metadata(real)
    assert (fake.grad_fn is None) == (real.grad_fn is None)
    assert fake._is_view() == real._is_view()
    assert fake._version == version == real._version
    assert fake.untyped_storage().nbytes() == real.untyped_storage().nbytes()
    if real._is_view():
        assert metadata(fake._base) == metadata(real._base)


def test_from_real_is_the_same_each_time_and_shares_memory() -> None:
    world, real = World(), torch.randn(4, 6)
    row, other = real[1], torch.randn(4, 6)
    fake = world.from_real(real)
    assert world.from_real(real) is fake
    assert world.from_real(row)._base is fake
    assert same_memory(world.from_real(row), fake)
    assert same_memory(world.from_real(real.detach()), fake)
    assert not same_memory(world.from_real(other), fake)


def test_write_through_a_view_reaches_the_base() -> None:
    world, real = World(), torch.randn(4, 6)
    fake, row = world.from_real(real), world.from_real(real[1])
    before = fake._version
    result = world.run(torch.Tensor.add_, (row, 1))
    assert result.mutated == (row,)
    assert fake._version == before + 1


def test_view_made_without_grad_refuses_writes_as_eager_does() -> None:
    leaf = torch.randn(3, requires_grad=True) * 1
    with torch.no_grad():
        view = leaf[1:]
    with pytest.raises(RuntimeError, match="no_grad"):
        view.add_(1)
    world = World()
    with pytest.raises(RuntimeError, match="no_grad"):
        world.run(torch.Tensor.add_, (world.from_real(view), 1))


def test_inference_tensor() -> None:
    with torch.inference_mode():
        real = torch.randn(3)
    world = World()
    fake = world.from_real(real)
    assert fake.is_inference()
    assert not world.from_real(torch.randn(3)).is_inference()
    weight = torch.nn.Parameter(torch.randn(3))
    with torch.inference_mode():
        assert not world.from_real(weight).is_inference()
        frozen = world.from_real(torch.nn.Parameter(torch.randn(3)))
        assert frozen.is_inference() and frozen.requires_grad
        assert world.run(torch.add, (fake, 1)).value.is_inference()


def test_grad_is_converted() -> None:
    real = torch.randn(3, requires_grad=True)
    real.sum().backward()
    fake = World().from_real(real)
    assert fake.grad is not None and metadata(fake.grad) == metadata(real.grad)
    assert World().from_real(torch.randn(3, requires_grad=True)).grad is None


class Subclass(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


UNSUPPORTED: dict[str, Callable[[], torch.Tensor]] = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "subclass Subclass": lambda: torch.Tensor._make_subclass(Subclass, torch.randn(3)),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
    "mkldnn": lambda: torch.randn(3, 3).to_mkldnn(),
    "nested": lambda: torch.nested.nested_tensor([torch.randn(2), torch.randn(3)]),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
@pytest.mark.filterwarnings("ignore")
def test_unsupported_kinds(kind: str) -> None:
    with pytest.raises(Unsupported) as caught:
        World().from_real(UNSUPPORTED[kind]())
    assert caught.value.kind == kind


def test_a_tensor_inside_vmap_is_what_the_function_sees() -> None:
    def inside(t: torch.Tensor) -> torch.Tensor:
        fake = World().from_real(t)
        assert fake.shape == t.shape == (3,) and fake.stride() == t.stride()
        return t

    torch.vmap(inside)(torch.randn(2, 3))


def test_what_is_left_of_a_derivative_is_unsupported() -> None:
    kept = []

    def inside(t: torch.Tensor) -> torch.Tensor:
        kept.append(t)
        return t.sum()

    torch.func.grad(inside)(torch.randn(3))
    with pytest.raises(Unsupported, match=r"torch\.func"):
        World().from_real(kept[0])


# Errors.

# Values that Python is to see, or questions about them. Which of the two errors: whether there was
# a number to ask about.
Call = tuple[Callable[..., Any], tuple[Any, ...]]
READS: dict[str, tuple[type[Exception], Call]] = {
    "bool": (DataDependentError, (bool, (torch.ones(1),))),
    "truth": (DataDependentError, (operator.truth, (torch.ones(1),))),
    "float": (DataDependentError, (float, (torch.ones(1),))),
    "int": (DataDependentError, (int, (torch.ones(1),))),
    "index": (DataDependentError, (operator.index, (torch.ones(1, dtype=torch.int64),))),
    "numpy": (DataDependent, (torch.Tensor.numpy, (torch.ones(3),))),
    "str": (DataDependent, (str, (torch.ones(3),))),
    "repr": (DataDependent, (torch.Tensor.__repr__, (torch.ones(3),))),
    "array": (DataDependent, (numpy.asarray, (torch.ones(3),))),
    "copy": (DataDependent, (copy.deepcopy, (torch.ones(3),))),
    "tensor of tensors": (
        DataDependent,
        (lambda t: torch.tensor([t, t]), (torch.tensor(1),)),
    ),
    "complex item": (DataDependent, (torch.Tensor.item, (torch.ones(1, dtype=torch.complex64),))),
    "equal": (DataDependent, (torch.equal, (torch.ones(3), torch.ones(3)))),
    "allclose": (DataDependent, (torch.allclose, (torch.ones(3), torch.ones(3)))),
    "one hot": (DataDependentError, (F.one_hot, (torch.tensor([1, 2]),))),
    "tensor split": (DataDependent, (torch.tensor_split, (torch.ones(4), torch.tensor([1, 2])))),
    "contains": (DataDependentError, (lambda t: 1.0 in t, (torch.ones(3),))),
    "weighted cov": (
        DataDependent,
        (lambda t, w: torch.cov(t, fweights=w), (torch.ones(3, 2), torch.tensor([1, 2]))),
    ),
    "as many as": (DataDependentError, (lambda t: list(range(t.item())), (torch.tensor(3),))),
    "rows of a selection": (
        DataDependentError,
        (lambda t: list(t[t > 0]), (torch.ones(3),)),
    ),
    "view of a selection": (
        DataDependentError,
        (lambda t: t[t > 0] if t[t > 0].numel() > 1 else t, (torch.ones(3),)),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_reading_values_is_data_dependent(name: str) -> None:
    error, (func, args) = READS[name]
    world = World()
    with pytest.raises(error):
        world.run(func, tuple(map(world.from_real, args)))


# Numbers and sizes that get a name.
NAMED: dict[str, Call] = {
    "item": (torch.Tensor.item, (torch.full((1,), 1.5),)),
    "item of ints": (torch.Tensor.item, (torch.tensor(-3),)),
    "item of bytes": (torch.Tensor.item, (torch.tensor(3, dtype=torch.uint8),)),
    "item of bools": (torch.Tensor.item, (torch.tensor(True),)),
    "tolist of one": (torch.Tensor.tolist, (torch.tensor(2.5),)),
    "nonzero": (torch.nonzero, (torch.tensor([[1, 0], [3, 4]]),)),
    "nonzero as tuple": (partial(torch.nonzero, as_tuple=True), (torch.tensor([[1, 0], [3, 4]]),)),
    "nothing nonzero": (torch.nonzero, (torch.zeros(3),)),
    "where": (torch.where, (torch.ones(3) > 0,)),
    "mask": (operator.getitem, (torch.ones(3), torch.tensor([True, False, True]))),
    "mask of one": (operator.getitem, (torch.ones(3), torch.tensor([True, False, False]))),
    "mask of rows": (operator.getitem, (torch.ones(3, 2), torch.tensor([True, False, True]))),
    "mask of all": (operator.getitem, (torch.ones(2, 2), torch.ones(2, 2) > 0)),
    "masked select": (torch.masked_select, (torch.ones(3, 2), torch.ones(2) > 0)),
    "select, compute": (lambda t: t[t > 0].mul(2).view(-1, 1).sum(1), (torch.randn(9),)),
    "unique": (torch.unique, (torch.tensor([1, 1, 2]),)),
    "unique, all of it": (
        lambda t: torch.unique(t, return_inverse=True, return_counts=True),
        (torch.tensor([1, 1, 2]),),
    ),
    "unique rows": (lambda t: torch.unique(t, dim=0), (torch.ones(3, 2),)),
    "repeat interleave": (torch.repeat_interleave, (torch.ones(2), torch.tensor([1, 2]))),
    "size from data": (torch.zeros, (torch.tensor(3),)),
    "bincount": (torch.bincount, (torch.tensor([1, 2]),)),
    "squeeze of several": (lambda t: torch.nonzero(t).squeeze(0), (torch.tensor([0, 1, 1]),)),
}


@pytest.mark.parametrize("name", NAMED)
def test_numbers_in_the_data_get_a_name(name: str, agree: Callable[..., Any]) -> None:
    func, args = NAMED[name]
    found = agree(func, *args).value
    symbolic = [n for part in leaves(found) for n in part if isinstance(n, SYMBOLIC)]
    assert symbolic, "all of the result is known"


def test_numbers_in_a_list_get_a_name_when_they_are_read() -> None:
    world = World()
    found = world.run(torch.Tensor.tolist, (world.from_real(torch.ones(2, 3, dtype=int)),)).value
    row = found.item(world.env, 1)
    assert (len(found), len(row), len(world.env.symbols)) == (2, 3, 0)
    assert isinstance(row.item(world.env, 2), torch.SymInt)
    assert [info.source for info in world.env.symbols.values()] == ["tolist()[1][2]"]


def test_a_wrong_assumption_is_answered_the_other_way(agree: Callable[..., Any]) -> None:
    found = agree(lambda t: torch.nonzero(t).squeeze(0), torch.tensor([0, 1, 0])).value
    assert found.shape == (1,)


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def leaves(value: Any) -> list[tuple[Any, ...]]:
    """The sizes of tensors, and numbers."""
    if isinstance(value, list | tuple):
        return [part for item in value for part in leaves(item)]
    return [tuple(value.size()) if isinstance(value, torch.Tensor) else (value,)]


def test_missing_meta_kernel_is_named() -> None:
    world = World()
    with pytest.raises(NoMetaKernel) as caught:
        world.run(torch.Tensor.to_sparse, (world.from_real(torch.ones(3)),))
    assert caught.value.op == "aten._to_sparse.default"


def test_quantized_results_are_unsupported() -> None:
    world = World()
    with pytest.raises(Unsupported, match="quantized"):
        world.run(torch.quantize_per_tensor, (world.from_real(torch.ones(3)), 0.1, 0, torch.qint8))


def test_custom_operator_with_and_without_a_fake_kernel() -> None:
    with torch.library._scoped_library("pliant_test", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x + x, "CPU")
        world = World()
        x = world.from_real(torch.ones(3))
        with pytest.raises(NoMetaKernel):
            world.run(torch.ops.pliant_test.double, (x,))
        torch.library.register_fake("pliant_test::double", torch.empty_like, lib=library)
        assert world.run(torch.ops.pliant_test.double, (x,)).value.shape == (3,)


@pytest.mark.parametrize(
    ("func", "shapes"),
    [(torch.add, ((3,), (4,))), (torch.mm, ((2, 3), (4, 5))), (torch.cat, ((2, 3),))],
)
def test_errors_propagate(func: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    world = World()
    fakes = tuple(world.from_real(torch.ones(s)) for s in shapes)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        world.run(func, fakes)


def test_devices_must_agree() -> None:
    world = World()
    here, there = world.from_real(torch.ones(3)), world.from_real(torch.ones(3, device="meta"))
    number = world.from_real(torch.tensor(1.0))
    with pytest.raises(RuntimeError, match="same device"):
        world.run(torch.add, (here, there))
    for pair in ((number, there), (there, number)):
        assert world.run(torch.add, pair).value.device.type == "meta"
    index = world.from_real(torch.tensor([0, 1]))
    assert world.run(operator.getitem, (there, index)).value.device.type == "meta"


# State.


def test_numpy_arrays_become_fakes() -> None:
    world = World()
    for func in (torch.from_numpy, torch.as_tensor, torch.tensor):
        value = world.run(func, (numpy.ones((2, 3)),)).value
        assert type(value) is Fake and value.shape == (2, 3) and value.dtype is torch.float64


def test_random_flag() -> None:
    world = World()
    x = world.from_real(torch.ones(3, 4))
    q = world.from_real(torch.ones(1, 2, 3, 4))
    assert world.run(torch.rand, (3,)).random
    assert world.run(F.dropout, (x,)).random
    assert not world.run(F.dropout, (x,), {"training": False}).random
    assert not world.run(torch.add, (x, x)).random
    assert not world.run(F.scaled_dot_product_attention, (q, q, q)).random
    assert world.run(F.scaled_dot_product_attention, (q, q, q), {"dropout_p": 0.5}).random


def test_running_a_function_draws_no_random_numbers() -> None:
    state = torch.get_rng_state()
    World().run(torch.rand, (1000,))
    assert torch.equal(state, torch.get_rng_state())


def test_batch_norm_reports_its_hidden_writes() -> None:
    world = World()
    x, mean, var = (world.from_real(t) for t in (torch.ones(2, 3), torch.zeros(3), torch.ones(3)))
    assert world.run(F.batch_norm, (x, mean, var), {"training": True}).mutated == (mean, var)
    assert world.run(F.batch_norm, (x, mean, var)).mutated == ()


def test_remembered_results_depend_on_the_default_dtype() -> None:
    world = World()
    x = world.from_real(torch.arange(3))
    assert world.run(operator.truediv, (x, 2)).value.dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert world.run(operator.truediv, (x, 2)).value.dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_numbers_of_different_types_are_not_confused() -> None:
    world = World()
    x = world.from_real(torch.arange(3))
    dtypes = [world.run(operator.mul, (x, n)).value.dtype for n in (1, 1.0, True, 1j)]
    assert dtypes == [torch.int64, torch.float32, torch.int64, torch.complex64]


def test_grad_mode_and_autocast_of_the_caller_apply() -> None:
    world = World()
    x = world.from_real(torch.ones(3, 3, requires_grad=True))
    with torch.no_grad():
        assert not world.run(torch.mm, (x, x)).value.requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert world.run(torch.mm, (x, x)).value.dtype is torch.bfloat16
        assert torch.is_autocast_cache_enabled()
    assert world.run(torch.mm, (x, x)).value.dtype is torch.float32


def test_backward_runs_on_fakes() -> None:
    world = World()
    x = world.from_real(torch.ones(3, 4, requires_grad=True))
    loss = world.run(lambda t: (t.exp() @ t.T).sum(), (x,)).value
    world.run(torch.Tensor.backward, (loss,))
    assert type(x.grad) is Fake and metadata(x.grad).sizes == (3, 4)


@pytest.mark.parametrize("again", [False, True])
def test_backward_runs_through_functions_that_are_answered_as_a_whole(again: bool) -> None:
    world = World()
    real = torch.ones(2, 3, 4, requires_grad=True)
    weight = world.from_real(torch.ones(5, 4, requires_grad=True))
    x = world.from_real(real)
    loss = world.run(F.linear, (x, weight)).value.sum()
    grads = world.run(torch.autograd.grad, (loss, [x, weight]), {"create_graph": again}).value
    assert [metadata(g).sizes for g in grads] == [(2, 3, 4), (5, 4)]
    assert [g.stride() for g in grads] == [(12, 4, 1), (4, 1)]
    assert [g.requires_grad for g in grads] == [again, again]


def test_vmap_and_grad_run_on_fakes() -> None:
    world = World()
    x = world.from_real(torch.ones(3, 4))
    assert world.run(torch.vmap(torch.sum), (x,)).value.shape == (3,)
    assert world.run(torch.func.grad(lambda t: t.sin().sum()), (x,)).value.shape == (3, 4)


@pytest.mark.parametrize("fails", [False, True])
def test_no_global_state_is_left_behind(fails: bool) -> None:
    world = World()
    x = world.from_real(torch.ones(3))
    with torch.autocast("cpu"):
        if fails:
            with pytest.raises(DataDependentError):
                world.run(bool, (x.sum(),))
        else:
            world.run(torch.mul, (x, 2))
        assert torch.is_autocast_cache_enabled()
    assert type(torch.ones(3)) is torch.Tensor
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not torch._C._meta_in_tls_dispatch_include()
    assert (torch.ones(3) + 1).tolist() == [2.0, 2.0, 2.0]


def test_real_tensors_are_never_written() -> None:
    world, real = World(), torch.ones(3)
    fake = world.from_real(real)
    world.run(torch.Tensor.zero_, (fake,))
    world.run(torch.Tensor.t_, (world.from_real(torch.ones(2, 3)),))
    assert real.tolist() == [1.0, 1.0, 1.0] and real._version == 0


def test_a_real_tensor_inside_a_function_is_made_fake() -> None:
    hidden = torch.ones(3)
    world = World()
    result = world.run(lambda t: hidden.add_(t), (world.from_real(torch.ones(3)),))
    assert type(result.value) is Fake
    assert hidden.tolist() == [1.0, 1.0, 1.0]


def test_fakes_have_no_memory_to_read() -> None:
    fake = World().from_real(torch.ones(3))
    with pytest.raises(RuntimeError):
        fake.data_ptr()


def test_dropping_a_world_frees_it() -> None:
    gc.collect()
    world = World()
    real = torch.randn(3, 4, requires_grad=True)
    fake = world.from_real(real)
    result = world.run(lambda t: (t.exp() * t)[1:].sum(), (fake,)).value
    watched = [weakref.ref(o) for o in (world, fake, result)]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        del world, fake, result
        assert [w() for w in watched] == [None, None, None]
    finally:
        if was_enabled:
            gc.enable()


def test_worlds_in_threads_do_not_meet() -> None:
    failures: list[BaseException] = []

    def work(size: int) -> None:
        try:
            world = World()
            x = world.from_real(torch.ones(size))
            for _ in range(50):
                x = world.run(torch.mul, (x, 2)).value
            assert x.shape == (size,)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


WRITES_THROUGH_VIEWS = {
    "item": lambda t: t.__setitem__(0, 5),
    "row": lambda t: t[0].add_(1),
    "flat": lambda t: t.view(-1).mul_(2),
    "one of many": lambda t: t.unbind()[1].zero_(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", WRITES_THROUGH_VIEWS)
def test_a_view_of_an_inference_tensor_is_one_too(name, dynamic) -> None:
    def function(t):
        WRITES_THROUGH_VIEWS[name](t)
        return t

    for backend in ("eager", "llvm"):
        compiled = pliant.compile(function, backend=backend, dynamic=dynamic)
        with torch.inference_mode():
            mine, theirs = torch.ones(3, 2), torch.ones(3, 2)
        for run, t in ((compiled, mine), (function, theirs)):
            with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
                run(t)
        assert torch.equal(mine, theirs)  # PyTorch tests it when it has written
        with torch.inference_mode():
            assert torch.equal(compiled(mine), function(theirs))


def test_a_detached_inference_tensor_can_be_written_to() -> None:
    def function(t):
        t.detach().add_(1)
        return t * 2

    with torch.inference_mode():
        mine, theirs = torch.ones(3), torch.ones(3)
    assert torch.equal(pliant.compile(function)(mine), function(theirs))
    assert torch.equal(mine, theirs)
