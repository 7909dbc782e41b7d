"""The native launcher, driven directly: eager PyTorch says what each program should give."""

import gc
import os
import random
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from pliant._native import Launcher
from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, Op
from pliant.loop.types import Type
from pliant.sym.expr import symbol
from pliant.sym.program import OPERATIONS, compile_program
from pliant.targets.cpu.jit import host

F32 = torch.float32
SIZE = [(0, "size", 0), (0, "stride", 0)]


def fallback(*args):
    return "fallback", args


def launcher(inputs=1, symbols=(), steps=(), outputs=(), written=(), fallback=None):
    """With live objects and kernels in the steps, for which a program has numbers. Without a
    fallback: errors come out as they are."""
    objects, kernels = [], []

    def number(table, item):
        table.append(item)
        return len(table) - 1

    def bound(item):
        if item[0] == "list":
            return ("list", [bound(part) for part in item[1]])
        return ("bound", number(objects, item[1])) if item[0] == "bound" else item

    def numbered(step):
        kind, *rest = step
        if kind == "cpu_kernel":
            return (kind, number(kernels, rest[0]), *rest[1:])
        if kind == "python":
            args = [bound(item) for item in rest[1]]
            return (kind, number(objects, rest[0]), args, *rest[2:])
        return (kind, number(objects, rest[0]), *rest[1:]) if kind == "sizes" else step

    steps, outputs = [numbered(step) for step in steps], [bound(item) for item in outputs]
    return Launcher(inputs, symbols, steps, outputs, written, fallback, objects, kernels)


def constant(value, number):
    return ("compute", value, [OPERATIONS.index("const"), number])


def add_constant(number, out_type=Type.F32):
    """`y[i] = x[i] + number` for floats."""
    build = Builder("add")
    n = build.size("s0")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i:
        build.store(y, i, build(Op.ADD, build.load(x, i), build.constant(number, Type.F32)))
    return host().compile(check(build.kernel()))


ADD = add_constant(1.0)


def add_step(source, target, size=0, cost=0.3):
    return ("cpu_kernel", (ADD.address, ADD), (source, target), (size,), size, cost, True)


def adder(cost=0.3):
    """`x + 1` for vectors."""
    return launcher(
        1, SIZE, [("cpu_empty", 1, F32, (0,), (1,)), add_step(0, 1, 0, cost)], [("slot", 1)]
    )


def raise_flag():
    """A kernel that sets the error flag where a number is negative."""
    build = Builder("flag")
    n = build.size("s0")
    x, flag = build.buffer("x", Type.F32), build.buffer("flag", Type.I64, Access.WRITE)
    with build.loop(n) as i:
        bad = build(Op.LT, build.load(x, i), build.constant(0.0, Type.F32))
        build.store(flag, 0, build.constant(1, Type.I64), bad)
    return host().compile(check(build.kernel()))


# Kernels and allocation


@pytest.mark.parametrize("size", [0, 1, 4, 1000, 100_003])
@pytest.mark.parametrize("cost", [0.3, 10.0, 30_000.0])
def test_a_kernel_runs_over_its_whole_grid(size, cost):
    x = torch.randn(size)
    (found,) = adder(cost)(x)
    assert torch.equal(found, x + 1) and found.stride() == (x + 1).stride()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_number_of_threads_is_torchs(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.randn(300_000)
        assert torch.equal(adder(10.0)(x)[0], x + 1)
    finally:
        torch.set_num_threads(before)


def test_a_kernel_without_a_grid_runs_once():
    build = Builder("once")
    y = build.buffer("y", Type.F32, Access.WRITE)
    build.store(y, 0, build.constant(7.0, Type.F32))
    made = host().compile(check(build.kernel()))
    steps = [
        ("cpu_empty", 0, F32, (), ()),
        ("cpu_kernel", (made.address, made), (0,), (), -1, 1.0, False),
    ]
    (found,) = launcher(0, [], steps, [("slot", 0)])()
    assert torch.equal(found, torch.tensor(7.0))


def test_a_storage_offset_is_part_of_the_pointer():
    x = torch.arange(10.0)[3:]
    assert torch.equal(adder()(x)[0], x + 1)


@pytest.mark.parametrize("dtype", [F32, torch.float64, torch.bfloat16, torch.int8, torch.bool])
def test_empty_has_the_layout_that_was_asked_for(dtype):
    steps = [constant(0, 2), constant(1, 3), ("cpu_empty", 0, dtype, (0, 1), (1, 0))]
    (found,) = launcher(0, [], steps, [("slot", 0)])()
    assert (found.dtype, found.shape, found.stride()) == (dtype, (2, 3), (3, 2))
    assert not found.requires_grad and found._base is None and found._version == 0


def test_in_inference_mode_tensors_are_inference_tensors():
    with torch.inference_mode():
        (inside,) = adder()(torch.ones(3))
    (outside,) = adder()(torch.ones(3))
    assert inside.is_inference() and not outside.is_inference()
    assert torch.equal(adder()(inside)[0], torch.full((3,), 3.0))


# Numbers


def test_symbols_are_read_from_the_arguments():
    symbols = [(0, "size", 1), (0, "stride", 0), (0, "offset", 0), (1, "int", 0), (2, "float", 0)]
    kinds = ["value", "value", "value", "value", "float"]
    read = launcher(3, symbols, [], [(kind, i) for i, kind in enumerate(kinds)])
    x = torch.zeros(20)[4:].view(2, 8)[:, :5]
    for number in (0.5, -0.0, float("inf"), 5e-324):
        assert repr(read(x, -7, number)) == repr((5, 8, 4, -7, number))
    assert read(x, 2**62, 0.0)[3] == 2**62


@pytest.mark.parametrize("number", [2**63, -(2**63), 10**30])
def test_an_int_beyond_64_bits_falls_back(number):
    made = launcher(1, [(0, "int", 0)], [], [("value", 0)], fallback=fallback)
    assert made(number) == ("fallback", (number,))


def test_compute_runs_programs_on_the_values():
    s, t = symbol("s0"), symbol("s1")
    code = compile_program((s * t + 3) // 2 + s % 5, [s, t]).numbers()
    made = launcher(2, [(0, "int", 0), (1, "int", 0)], [("compute", 2, code)], [("value", 2)])
    for a, b in [(3, 4), (0, 0), (-7, 9), (10**9, 10**9)]:
        assert made(a, b) == ((a * b + 3) // 2 + a % 5,)


@pytest.mark.parametrize("a, b", [(2**40, 2**40), (1, 0)])
def test_a_number_without_a_value_is_an_error(a, b):
    s, t = symbol("s0"), symbol("s1")
    code = compile_program(s * t if b else s // t, [s, t]).numbers()
    made = launcher(2, [(0, "int", 0), (1, "int", 0)], [("compute", 2, code)], [("value", 2)])
    with pytest.raises(RuntimeError, match="64 bits"):
        made(a, b)


def test_read_gives_sizes_of_what_steps_make():
    steps = [
        ("call", "aten::nonzero", "", [("slot", 0)], [1]),
        ("read", 0, 1, "size", 0),
        ("read", 1, 1, "stride", 1),
        ("read", 2, 1, "offset", 0),
    ]
    x = torch.tensor([0, 3, 0, 2, 1])
    eager = x.nonzero()
    found = launcher(1, [], steps, [("value", 0), ("value", 1), ("value", 2)])(x)
    assert found == (3, eager.stride(1), 0)


def test_outputs_of_every_kind():
    marker = object()
    steps = [constant(2, 1), constant(3, 0)]
    symbols = [(0, "size", 0), (1, "float", 0)]
    outputs = [
        ("value", 0),
        ("float", 1),
        ("bool", 2),
        ("bool", 3),
        ("bound", marker),
        ("none",),
        ("slot", 0),
        ("list", [("value", 0), ("list", [("slot", 0)])]),
    ]
    x = torch.zeros(3)
    found = launcher(2, symbols, steps, outputs)(x, 0.25)
    assert found == (3, 0.25, True, False, marker, None, x, [3, [x]])
    assert found[4] is marker and found[6] is x and found[7][1][0] is x


# Views


def view_of(tensor, inputs, *, prepare=(), dtype=None):
    """Another tensor's layout on what slot `inputs` or the input holds."""
    numbers = [*tensor.shape, *tensor.stride(), tensor.storage_offset()]
    steps = [constant(i, number) for i, number in enumerate(numbers)]
    n = tensor.dim()
    of = inputs if prepare else 0
    item = ("view", inputs + 1, of, range_of(0, n), range_of(n, 2 * n), 2 * n)
    return launcher(
        inputs, [], [*steps, *prepare, (*item, dtype) if dtype else item], [("slot", inputs + 1)]
    )


def range_of(start, stop):
    return tuple(range(start, stop))


def test_a_view_of_an_input_is_as_eagers():
    x = torch.arange(12.0)
    eager = x.view(3, 4).t()[1:]
    (found,) = view_of(eager, 1)(x)
    assert torch.equal(found, eager) and found.stride() == eager.stride()
    assert found._base is x and found.data_ptr() == eager.data_ptr()
    found.add_(1)
    assert found._version == x._version == eager._version == 1


def test_a_view_starts_where_the_tensor_starts():
    x = torch.arange(12.0)[5:]
    (found,) = view_of(torch.zeros(7)[2:4], 1)(x)
    assert torch.equal(found, x[2:4]) and found.storage_offset() == 7


def test_a_view_of_a_tensor_with_grad_has_a_grad_function():
    x = torch.arange(4.0, requires_grad=True)
    (found,) = view_of(torch.zeros(4)[1:], 1)(x)
    found.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 1]


def test_a_view_of_a_result_needs_no_base():
    clone = ("call", "aten::clone", "", [("slot", 0), ("none",)], [1])
    x = torch.arange(12.0)
    (found,) = view_of(x.view(4, 3).t(), 1, prepare=[clone])(x)
    assert torch.equal(found, x.view(4, 3).t()) and found._base is None
    assert found.add_(1)._version == 1 and x[0] == 0


def test_a_result_and_its_view_share_a_version():
    steps = [
        ("cpu_empty", 1, F32, (0,), (1,)),
        add_step(0, 1),
        constant(2, 0),
        ("view", 2, 1, (0,), (1,), 2),
        ("view", 3, 2, (0,), (1,), 2),
    ]
    whole, part = launcher(1, SIZE, steps, [("slot", 1), ("slot", 3)])(torch.ones(3))
    assert part._base is whole
    part.add_(1)
    assert whole._version == 1 and whole.tolist() == [3, 3, 3]


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("source, target", [(F32, torch.int32), (torch.int64, torch.int32)])
def test_a_view_as_another_dtype(source, target, inner):
    x = torch.arange(8).to(source)
    eager = x.view(target)[2:]
    clone = ("call", "aten::clone", "", [("slot", 0), ("none",)], [1])
    (found,) = view_of(eager, 1, prepare=[clone] if inner else [], dtype=target)(x)
    assert torch.equal(found, eager) and found.dtype == target


@pytest.mark.parametrize("inner", [False, True])
def test_a_view_beyond_the_memory_is_an_error(inner):
    clone = ("call", "aten::clone", "", [("slot", 0), ("none",)], [1])
    made = view_of(torch.zeros(9), 1, prepare=[clone] if inner else [])
    with pytest.raises(RuntimeError):
        made(torch.zeros(8))


# Calls of operators


def call(name, overload, args, *tensors, results=1, numbers=()):
    """One operator on tensors, then ints; what it gives."""
    first = len(tensors)
    symbols = [(first + i, "int", 0) for i in range(len(numbers))]
    slots = range_of(first + len(numbers), first + len(numbers) + results)
    step = ("call", name, overload, args, slots)
    made = launcher(first + len(numbers), symbols, [step], [("slot", i) for i in slots])
    return made(*tensors, *numbers)


def test_operators_get_arguments_of_every_kind():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    tensor, other, none = ("slot", 0), ("slot", 1), ("none",)
    (found,) = call("aten::add", "Tensor", [tensor, other, ("const", 2)], x, y)
    assert torch.equal(found, x + 2 * y)
    args = [("list", [tensor, other]), ("value", 0)]
    assert torch.equal(
        call("aten::cat", "default", args, x, y, numbers=[1])[0], torch.cat([x, y], 1)
    )
    sizes = ("list", [("value", 0), ("const", 2)])
    assert call("aten::view", "", [tensor, sizes], x, numbers=[6])[0].shape == (6, 2)
    args = [tensor, ("const", [0]), ("const", True), ("const", torch.float64)]
    assert torch.equal(
        call("aten::sum", "dim_IntList", args, x)[0], x.sum(0, True, dtype=torch.float64)
    )
    args = [tensor, ("list", [none, ("slot", 1)])]
    index = torch.tensor([2, 0])
    assert torch.equal(call("aten::index", "Tensor", args, x, index)[0], x[:, index])
    args = [tensor, ("const", 3), none, none, none, none, ("const", torch.preserve_format)]
    assert torch.equal(call("aten::full_like", "", args, x)[0], torch.full_like(x, 3))


def test_an_int_goes_where_a_float_is_wanted():
    args = [("slot", 0), ("const", [4]), ("none",), ("none",), ("value", 0)]
    x = torch.randn(3, 4)
    (found, _, _) = call("aten::native_layer_norm", "", args, x, results=3, numbers=[1])
    assert torch.equal(found, torch.native_layer_norm(x, [4], None, None, 1.0)[0])


def test_floats_and_bools_are_arguments():
    step = ("call", "aten::mul", "Scalar", [("slot", 0), ("float", 0)], [2])
    x = torch.randn(3)
    assert torch.equal(launcher(2, [(1, "float", 0)], [step], [("slot", 2)])(x, 0.1)[0], x * 0.1)
    step = ("call", "aten::std", "", [("slot", 0), ("bool", 0)], [2])
    made = launcher(2, [(1, "int", 0)], [step], [("slot", 2)])
    assert torch.equal(made(x, True)[0], x.std()) and torch.equal(made(x, False)[0], x.std(False))


def test_a_list_of_tensors_is_flattened_and_results_can_be_dropped():
    x = torch.arange(6)
    split = [("slot", 0), ("const", 2), ("const", 0)]
    steps = [("call", "aten::split", "Tensor", split, [1, -1, 2])]
    a, c = launcher(1, [], steps, [("slot", 1), ("slot", 2)])(x)
    assert a.tolist() == [0, 1] and c.tolist() == [4, 5]
    with pytest.raises(RuntimeError, match="3 results instead of 2"):
        launcher(1, [], [("call", "aten::split", "Tensor", split, [1, 2])])(x)


def test_a_number_that_an_operator_returns_is_a_value():
    for kind, x in [
        ("value", torch.tensor(5)),
        ("float", torch.tensor(0.5)),
        ("bool", torch.tensor(True)),
    ]:
        steps = [("call", "aten::_local_scalar_dense", "", [("slot", 0)], [(kind, 0)])]
        assert launcher(1, [], steps, [(kind, 0)])(x) == (x.item(),)


def test_out_variants_write_into_planned_buffers():
    steps = [
        ("cpu_empty", 2, F32, (0, 2), (2, 3)),
        ("call", "aten::mm", "out", [("slot", 0), ("slot", 1), ("slot", 2)], [-1]),
    ]
    symbols = [(0, "size", 0), (0, "size", 1), (1, "size", 1), (1, "stride", 1)]
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    assert torch.equal(launcher(2, symbols, steps, [("slot", 2)])(a, b)[0], a @ b)


def test_operators_run_below_autograd():
    x = torch.randn(3, requires_grad=True)
    (found,) = call("aten::exp", "", [("slot", 0)], x)
    assert not found.requires_grad and found.grad_fn is None


@pytest.mark.parametrize(
    "name, args, tensors, run",
    [
        ("mm", [("slot", 0), ("slot", 1)], [torch.ones(2, 3), torch.ones(2, 3)], torch.mm),
        ("linalg_inv", [("slot", 0)], [torch.zeros(2, 2)], torch.linalg.inv),
        ("squeeze_", [("slot", 0)], [torch.ones(2).to_sparse()], lambda x: x.squeeze_()),
    ],
)
def test_errors_of_operators_are_eagers(name, args, tensors, run):
    with pytest.raises(Exception) as eager:
        run(*tensors)
    with pytest.raises(type(eager.value)) as ours:
        call(f"aten::{name}", "", args, *tensors)
    assert str(ours.value).split("\n")[0] == str(eager.value).split("\n")[0]


def test_warnings_of_operators_are_given():
    x = torch.zeros(2, 3)
    with pytest.warns(UserWarning, match="resized"):
        call("aten::mul", "out", [("slot", 0), ("slot", 0), ("slot", 1)], torch.ones(4), x)


# Calls of Python


def test_python_gets_objects_and_gives_tensors_and_numbers():
    marker, seen = object(), []

    def function(*args):
        seen.append(args)
        return args[0] * 2, [7, (0.5, True)], "dropped"

    args = [
        ("slot", 0),
        ("value", 0),
        ("float", 1),
        ("bool", 0),
        ("bound", marker),
        ("none",),
        ("list", [("slot", 0), ("value", 0)]),
    ]
    results = [("slot", 2), ("value", 2), ("float", 3), ("bool", 4), ("drop",)]
    symbols = [(0, "size", 0), (1, "float", 0)]
    outputs = [("slot", 2), ("value", 2), ("float", 3), ("bool", 4)]
    made = launcher(2, symbols, [("python", function, args, results)], outputs)
    x = torch.ones(3)
    found = made(x, 2.5)
    assert torch.equal(found[0], x * 2) and repr(found[1:]) == repr((7, 0.5, True))
    assert seen[0][0] is x and seen[0][4] is marker
    assert repr(seen[0][1:4]) == "(3, 2.5, True)" and seen[0][5:] == (None, [x, 3])


def test_python_runs_with_autograd_as_it_is():
    x = torch.ones(3, requires_grad=True)
    step = ("python", lambda t: t * 2, [("slot", 0)], [1])
    (found,) = launcher(1, [], [step], [("slot", 1)])(x)
    assert found.grad_fn is not None


@pytest.mark.parametrize(
    "result, error",
    [
        ((1, 2), RuntimeError),
        ((), RuntimeError),
        (5, TypeError),
        ("text", TypeError),
        (None, TypeError),
    ],
)
def test_a_wrong_result_of_python_is_an_error(result, error):
    with pytest.raises(error):
        launcher(0, [], [("python", lambda: result, [], [0])], [("slot", 0)])()


def test_a_number_beyond_64_bits_from_python_is_an_error():
    with pytest.raises(TypeError):
        launcher(0, [], [("python", lambda: 2**70, [], [("value", 0)])], [("value", 0)])()


def test_exceptions_pass_through_as_they_are():
    class Custom(Exception):
        def __str__(self):
            raise AssertionError("nobody asks for the text")

    raised = Custom()

    def fail(x):
        raise raised

    clone = ("call", "aten::clone", "", [("slot", 0), ("none",)], [1])
    made = launcher(1, [], [clone, ("python", fail, [("slot", 1)], [2])], [("slot", 2)])
    with pytest.raises(Custom) as caught:
        made(torch.ones(1))
    assert caught.value is raised
    assert made.__class__ is Launcher and fail.__name__ in [
        entry.name for entry in caught.traceback
    ]


def test_python_may_call_the_launcher_again():
    def again(x):
        return x if len(x) <= 1 else made(x[1:])[0]

    steps = [
        ("python", again, [("slot", 0)], [1]),
        ("cpu_empty", 2, F32, (0,), (1,)),
        add_step(0, 2),
    ]
    made = launcher(1, SIZE, steps, [("slot", 1), ("slot", 2)])
    found = made(torch.arange(5.0))
    assert found[0].tolist() == [4] and found[1].tolist() == [1, 2, 3, 4, 5]


# The error flag, written inputs, fallback


def test_the_error_flag_leads_to_the_fallback():
    flag, ran = raise_flag(), []
    steps = [
        ("cpu_kernel", (flag.address, flag), (0, -1), (0,), 0, 0.3, False),
        ("check",),
        ("python", lambda: ran.append(1), [], [-1]),
    ]
    made = launcher(1, SIZE, steps, [("slot", 0)], fallback=fallback)
    good, bad = torch.ones(100), torch.ones(100)
    bad[77] = -1
    assert made(good)[0] is good and ran == [1]
    assert made(bad) == ("fallback", (bad,)) and ran == [1]
    assert made(good)[0] is good  # the flag belongs to a call


def written_in_place(inputs=1, needs=()):
    read = [("call", "aten::clone", "", [("slot", i), ("none",)], [-1]) for i in needs]
    steps = [*read, add_step(0, 0), ("wrote", 0)]
    return launcher(inputs, SIZE, steps, [("slot", 0)], [0], fallback)


def test_an_input_is_written_and_its_version_counted():
    x = torch.zeros(5)
    assert written_in_place()(x)[0] is x
    assert x.tolist() == [1] * 5 and x._version == 1
    with torch.inference_mode():
        y = torch.zeros(5)
        written_in_place()(y)
    assert y.tolist() == [1] * 5


def aliases():
    base = torch.zeros(8)
    buffer = bytearray(64)
    yield base, base
    yield base[:5], base[4:]
    yield base[::2], base[1::2]
    yield base[:4], base.view(2, 4)
    yield torch.frombuffer(buffer, dtype=F32), torch.frombuffer(buffer, dtype=F32, offset=8)
    yield torch.zeros(1).expand(4), torch.zeros(3)


@pytest.mark.parametrize("x, other", list(aliases()))
@pytest.mark.parametrize("used", [False, True])
def test_a_written_input_that_shares_memory_falls_back(x, other, used):
    before = x.clone()
    found = written_in_place(2, needs=[1] if used else [])(x, other)
    assert found[0] == "fallback" and found[1][0] is x and found[1][1] is other
    assert torch.equal(x, before)


def test_parts_of_one_memory_that_do_not_overlap():
    base = torch.zeros(8)
    written_in_place(2, needs=[1])(base[2:6], base[6:])
    assert base.tolist() == [0, 0, 1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("other", [torch.zeros(0), torch.zeros(8), torch.zeros(2).to_sparse(), 5])
def test_other_arguments_do_no_harm(other):
    x = torch.zeros(8)
    written_in_place(2)(x, other)
    assert x.tolist() == [1] * 8


class Special(torch.Tensor):
    """A subclass that says what is done to it."""

    @staticmethod
    def __new__(cls, tensor):
        return torch.Tensor._make_wrapper_subclass(cls, tensor.shape, dtype=tensor.dtype)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("nobody calls operators")


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(4, dtype=torch.complex64).conj().imag,
        torch.zeros(4, device="meta"),
        torch.eye(4)[0].to_sparse(),
        Special(torch.zeros(4)),
    ],
    ids=["negated", "meta", "sparse", "subclass"],
)
def test_a_tensor_that_a_kernel_cannot_read_falls_back(x):
    steps = [constant(0, 4), constant(1, 1), ("cpu_empty", 1, F32, (0,), (1,)), add_step(0, 1)]
    found = launcher(1, [], steps, [("slot", 1)], fallback=fallback)(x)
    assert found[0] == "fallback" and found[1][0] is x


def test_a_kernel_refuses_what_a_step_made_of_it():
    x = torch.zeros(4, dtype=torch.complex64)
    steps = [
        ("call", "aten::_conj", "", [("slot", 0)], [1]),
        ("call", "aten::imag", "", [("slot", 1)], [2]),
        ("cpu_empty", 3, F32, (0,), (1,)),
        add_step(2, 3),
    ]
    with pytest.raises(RuntimeError, match="plain"):
        launcher(1, SIZE, steps, [("slot", 3)])(x)


def test_an_error_leads_to_the_fallback_unless_an_input_is_written():
    x, fail = torch.zeros(5), ("python", lambda: 1 / 0, [], [-1])
    assert launcher(1, SIZE, [fail], [], fallback=fallback)(x) == ("fallback", (x,))
    made = launcher(1, SIZE, [add_step(0, 0), fail], [], [0], fallback)
    with pytest.raises(ZeroDivisionError):
        made(x)
    assert made(torch.zeros(0))[0] == "fallback"  # nothing was there to be written


def test_a_kernel_that_only_reads_an_input_leaves_it_as_it_was():
    fail = ("python", lambda: 1 / 0, [], [-1])
    read = ("cpu_kernel", (ADD.address, ADD), (0, 1), (0,), 0, 0.3, False)
    steps = [("cpu_empty", 1, F32, (0,), (1,)), read, fail, add_step(1, 0)]
    x = torch.zeros(5)
    assert launcher(1, SIZE, steps, [], [0], fallback)(x) == ("fallback", (x,))


def test_an_error_of_the_fallback_is_raised():
    def fail(*args):
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        launcher(1, [(0, "int", 0)], [], [], fallback=fail)(2**80)


# Programs and calls that make no sense


BAD = {
    "a slot that is not there": [("cpu_empty", 1, F32, (), ()), ("free", [1]), ("free", [1])],
    "a slot that is never made": [("read", 0, 7, "size", 0)],
    "a value that is not there": [("cpu_empty", 1, F32, (3,), (3,))],
    "an input made anew": [("cpu_empty", 0, F32, (), ())],
    "an unknown step": [("dance",)],
    "a step without its items": [("cpu_empty", 1)],
    "an empty step": [()],
    "an unknown operator": [("call", "aten::dance", "", [], [])],
    "too few arguments": [("call", "aten::add", "Tensor", [("slot", 0)], [])],
    "a list for a tensor": [("call", "aten::exp", "", [("list", [])], [])],
    "an unknown argument": [("python", print, [("dance", 0)], [])],
    "a dropped argument": [("python", print, [("drop",)], [])],
    "a constant for a result": [("python", print, [], [("const", 0)])],
    "another number of strides": [constant(0, 1), ("cpu_empty", 1, F32, (0,), ())],
    "a stack that runs empty": [("compute", 0, [OPERATIONS.index("add"), 0])],
    "an odd program": [("compute", 0, [0])],
    "a load of nothing": [("compute", 0, [OPERATIONS.index("load"), 5])],
    "a huge slot": [("cpu_empty", 1 << 40, F32, (), ())],
    "a negative slot": [("cpu_empty", -2, F32, (), ())],
    "a kernel at 0": [("cpu_kernel", (0, None), (), (), -1, 1.0, False)],
    "a number of a slot": [("read", 0, 0, "int", 0)],
    "a write to no tensor": [("wrote", 1)],
}
MISTYPED = {
    "no tuple": [5],
    "no list of steps": 5,
    "no dtype": [("cpu_empty", 1, "float", (), ())],
    "no callable": [("python", 5, [], [])],
    "no name": [(5,)],
    "no int": [("cpu_empty", "1", F32, (), ())],
    "no code": [("compute", 0, "text")],
    "no indices": [("cpu_empty", 1, F32, 5, ())],
}


@pytest.mark.parametrize("steps", BAD.values(), ids=BAD)
def test_a_program_that_makes_no_sense_is_a_value_error(steps):
    with pytest.raises(ValueError):
        launcher(1, [], steps)


@pytest.mark.parametrize("steps", MISTYPED.values(), ids=MISTYPED)
def test_a_program_of_wrong_types_is_a_type_error(steps):
    with pytest.raises(TypeError):
        launcher(1, [], steps)


def test_the_message_shows_the_step():
    with pytest.raises(ValueError, match=r"slot 3 is not there(.|\n)*\('free', \[3\]\)"):
        launcher(1, [], [("check",), ("free", [3])])


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": -1},
        {"symbols": [(1, "size", 0)]},
        {"symbols": [(0, "weight", 0)]},
        {"symbols": [(0, "size")]},
        {"outputs": [("slot", 1)]},
        {"written": [1]},
    ],
)
def test_what_is_around_the_steps_is_checked_too(change):
    with pytest.raises(ValueError):
        launcher(**{"inputs": 1, **change})


def test_a_call_with_wrong_arguments_is_a_type_error():
    made = adder()
    for args in [(), (torch.ones(1), torch.ones(1)), (5,), (None,)]:
        with pytest.raises(TypeError):
            made(*args)
    with pytest.raises(TypeError):
        made(x=torch.ones(1))
    with pytest.raises(TypeError):
        launcher(1, [(0, "float", 0)])(1)
    with pytest.raises(TypeError):
        launcher(fallback=5)
    with pytest.raises(RuntimeError, match="dimension"):
        launcher(1, [(0, "size", 2)])(torch.ones(2, 2))


# Memory


def test_what_is_taken_from_python_is_copied():
    """Python holds its arguments."""
    x = torch.arange(6.0).reshape(2, 3).t()
    made = launcher(steps=[("take", 1, 0)], outputs=[("slot", 1)])
    (taken,) = made(x)
    assert taken is not x and taken.data_ptr() != x.data_ptr()
    assert torch.equal(taken, x) and taken.stride() == x.stride()


@pytest.mark.parametrize(
    "steps", [[("take", 0, 0)], [("take", 1, 0), ("take", 2, 1)], [("take", 1, 0), ("free", [0])]]
)
def test_what_can_be_taken(steps):
    with pytest.raises(ValueError):
        launcher(steps=steps)


def test_free_lets_go_of_a_tensor():
    alive = []

    def make():
        x = torch.ones(3)
        alive.append(weakref.ref(x.untyped_storage()))
        return x

    def look():
        gc.collect()
        seen.append(alive[-1]() is None)

    seen = []
    steps = [("python", make, [], [0]), ("free", [0]), ("python", look, [], [-1])]
    launcher(0, [], steps)()
    launcher(0, [], [steps[0], steps[2]])()
    assert seen[0]


def test_nothing_holds_arguments_or_results():
    x, objects = torch.ones(4), [("bound", "text" * 3)]
    made = launcher(
        1, SIZE, [("cpu_empty", 1, F32, (0,), (1,)), add_step(0, 1)], [("slot", 1), *objects]
    )
    made(x)
    before = sys.getrefcount(x)
    (result, _) = made(x)
    reference = weakref.ref(result)
    del result
    assert reference() is None and sys.getrefcount(x) == before


def test_calls_of_every_kind_leave_memory_flat():
    def fail(x):
        raise ValueError("as expected")

    steps = [
        ("cpu_empty", 1, F32, (0,), (1,)),
        add_step(0, 1),
        ("call", "aten::cat", "", [("list", [("slot", 0), ("slot", 1)]), ("const", 0)], [2]),
        ("python", lambda x: (x + 1, [3]), [("slot", 2)], [3, ("value", 2)]),
        ("view", 4, 3, (0,), (1,), 1),
    ]
    outputs = [("slot", 4), ("list", [("value", 2)])]
    good = launcher(1, SIZE, steps, outputs)
    bad = launcher(1, SIZE, [*steps, ("python", fail, [("slot", 4)], [5])], outputs)
    wrong = launcher(1, [], [("call", "aten::mm", "", [("slot", 0), ("slot", 0)], [1])])
    x = torch.ones(1000)

    def rounds(count):
        for _ in range(count):
            good(x)
            for made in (bad, wrong):
                with pytest.raises((ValueError, RuntimeError)):
                    made(x)
        gc.collect()
        return sys.getallocatedblocks(), resident()

    rounds(300)
    blocks, memory = rounds(300)
    blocks_after, memory_after = rounds(3000)
    assert blocks_after - blocks < 300 and memory_after - memory < 4_000_000


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_making_launchers_leaves_memory_flat():
    def make(count):
        for _ in range(count):
            adder()
            with pytest.raises(ValueError):
                launcher(1, [], [("python", print, [("const", [1])], []), ("free", [9])])
        gc.collect()
        return sys.getallocatedblocks()

    make(100)
    blocks = make(100)
    assert make(1000) - blocks < 300


def test_a_cycle_through_a_launcher_is_collected():
    class Box:
        def call(self, *args):
            return self.made(*args)

    for where in ("fallback", "python", "const", "output", "keep"):
        box = Box()
        steps = {
            "python": [("python", box.call, [], [])],
            "const": [("python", print, [("list", [("bound", box)])], [])],
            "keep": [("cpu_kernel", (ADD.address, box), (), (), -1, 1.0, False)],
        }.get(where, [])
        outputs = [("bound", box)] if where == "output" else []
        box.made = launcher(
            0, [], steps, outputs, fallback=box.call if where == "fallback" else print
        )
        reference = weakref.ref(box)
        del box, steps, outputs
        gc.collect()
        assert reference() is None, where


def test_the_launcher_may_go_away_while_it_runs():
    held = {}
    steps = [
        ("python", lambda: held.clear(), [], [-1]),
        ("cpu_empty", 1, F32, (0,), (1,)),
        add_step(0, 1),
    ]
    held["made"] = launcher(1, SIZE, steps, [("slot", 1)])
    assert held["made"](torch.ones(3))[0].tolist() == [2] * 3


# Threads and processes


def test_threads_share_a_launcher():
    steps = [
        ("cpu_empty", 1, F32, (0,), (1,)),
        add_step(0, 1, 0, 5.0),
        ("call", "aten::sum", "", [("slot", 1), ("none",)], [2]),
        ("python", lambda x: x * 2, [("slot", 2)], [3]),
    ]
    made = launcher(1, SIZE, steps, [("slot", 1), ("slot", 3)])

    def work(number):
        x = torch.full((number * 1000,), float(number))
        for _ in range(30):
            whole, total = made(x)
            if not torch.equal(whole, x + 1) or total != (x + 1).sum() * 2:
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(1, 13)))


def test_other_threads_run_during_long_work():
    # a call that waits for another Python thread
    event, seen = threading.Event(), []
    library = torch.library.Library("pliant_launcher_test", "DEF")
    library.define("wait(Tensor x) -> Tensor")

    def wait(x):
        seen.append(event.wait(20))
        return x.clone()

    library.impl("wait", wait, "CPU")
    step = ("call", "pliant_launcher_test::wait", "", [("slot", 0)], [1])
    threading.Thread(target=lambda: (time.sleep(0.05), event.set())).start()
    launcher(1, [], [step], [("slot", 1)])(torch.ones(1))
    assert seen == [True]
    library._destroy()


def test_a_forked_process_runs_large_kernels():
    made, x = adder(10.0), torch.randn(300_000)
    made(x)  # makes the threads of the pool
    child = os.fork()
    if child == 0:
        good = torch.allclose(made(x)[0][:9], x[:9] + 1)
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


# Tensors in one memory


def test_tensors_that_must_have_no_element_in_common():
    """Compared with the places themselves, for random layouts."""
    rng = random.Random(0)
    memory = torch.arange(200)
    for _ in range(300):
        layouts = []
        for _ in range(2):
            rank = rng.randint(0, 3)
            sizes = [rng.randint(0, 4) for _ in range(rank)]
            layouts += [sizes, [rng.choice([0, 1, 2, 3, 4, 6, 12]) for _ in sizes]]
            layouts.append(rng.randint(0, 30))
        steps, numbers = [], []

        def value(number):
            steps.append(constant(len(steps), number))  # noqa: B023
            return len(steps) - 1  # noqa: B023

        for layout in layouts:
            numbers.append(tuple(map(value, layout)) if isinstance(layout, list) else value(layout))
        one, other = [memory.as_strided(*layouts[i : i + 3]).flatten().tolist() for i in (0, 3)]
        f = launcher(0, [], [*steps, ("apart", *numbers, False)], [], (), fallback)
        assert f() == (("fallback", ()) if {*one} & {*other} else ())
        f = launcher(0, [], [*steps, ("apart", *numbers[:3])], [], (), fallback)
        if len({*one}) < len(one):
            assert f() == ("fallback", ())


def test_the_very_elements_are_apart_for_an_elementwise_operator():
    steps = [constant(i, number) for i, number in enumerate((4, 2, 1))]
    for elementwise in (True, False):
        layout = ((0,), (1,), 2)
        step = ("apart", *layout, *layout, elementwise)
        f = launcher(0, [], [*steps, step], [], (), fallback)
        assert f() == (() if elementwise else ("fallback", ()))


@pytest.mark.parametrize(
    "step",
    [("apart", (0,), (), 0), ("apart", (0,), (0,), 7), ("apart", (0,), (0,), 0, (0,), (0,))],
)
def test_layouts_that_make_no_sense(step):
    with pytest.raises(ValueError):
        launcher(0, [], [constant(0, 3), step], [])
