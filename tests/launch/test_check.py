"""Each invariant of kernels and programs, broken by hand: the checker names it."""

from dataclasses import replace

import pytest
import torch

import pliant
from pliant.base.malformed import MalformedStageError
from pliant.base.options import config
from pliant.launch import kernels as kernels_stage
from pliant.launch.check import STEPS, check_kernels, check_program
from pliant.launch.kernels import Kernels
from pliant.launch.program import Program
from pliant.loop.check import MalformedKernelError
from pliant.loop.ir import Access
from pliant.loop.types import Type
from tests.support.compiled_code import compiled_code


def program(x, y):
    z = (x.sin() @ y).softmax(-1)
    return z.sum(-1) + 1, z.nonzero()


@pytest.fixture(scope="module")
def code():
    made = []

    def backend(gm, examples):
        made.append(compiled_code(gm, examples))
        return made[-1].load()

    with config.patch(check_ir=True, raise_on_fallback=True):
        pliant.compile(program, backend=backend, dynamic=True)(torch.ones(3, 4), torch.ones(4, 5))
    return made[0]


# Programs


def blank(*steps, outputs=(), **changes):
    """Of one tensor, whose first size is v0."""
    made = Program(1, ((0, "size", 0),), tuple(steps), tuple(outputs), (), (), 0)
    return replace(made, **changes)


F32 = torch.float32
ALLOCATE = ("cpu_empty", 1, F32, (0,), (0,))
LAUNCH = ("cpu_kernel", 0, (0,), (0,), 0, 1.0, False)
BROKEN = {
    "uses t1 before it is there": blank(("save", 1)),
    "uses t1 after it is freed": blank(ALLOCATE, ("free", (1,)), ("save", 1)),
    "t1 is taken, and is no input": blank(ALLOCATE, ("take", 2, 1)),
    "save uses t0 after it is freed": blank(("take", 1, 0), ("save", 0)),
    "free uses t1 after it is freed": blank(ALLOCATE, ("free", (1,)), ("free", (1,))),
    "makes t1, which is there already": blank(ALLOCATE, ALLOCATE),
    "uses v7 before it is computed": blank(("cpu_empty", 1, F32, (7,), (0,))),
    "compute computes v0 once more": blank(("compute", 0, [0, 1])),
    "there is no kernel 0": blank(LAUNCH),
    "kernel 0 uses t4 before it is there": blank(
        ("cpu_kernel", 0, (4,), (), -1, 1.0, False), kernels=("key",)
    ),
    "kernel 0 uses v9 before it is computed": blank(
        ("cpu_kernel", 0, (0,), (), 9, 1.0, False), kernels=("key",)
    ),
    "kernel 1 is never launched": blank(LAUNCH, kernels=("key", "other")),
    "python uses object 0 of 0": blank(("python", 0, (), ())),
    "object 0 uses v5 before": blank(("python", 0, (("value", 5),), ()), objects=1),
    "object 0 uses object 3 of 1": blank(
        ("python", 0, (("list", (("bound", 3),)),), ()), objects=1
    ),
    "aten::relu uses t2 before": blank(("call", "aten::relu", "", (("slot", 2),), ())),
    "aten::relu makes t0, which": blank(("call", "aten::relu", "", (), (("slot", 0),))),
    "view uses t3 before": blank(("view", 1, 3, (0,), (0,), 0, F32, False)),
    "laid_out uses t2 before": blank(("laid_out", 2, F32, (), ())),
    "read uses t2 before": blank(("read", 1, 2, "size", 0)),
    "apart uses v3 before": blank(("apart", (0,), (3,), 0)),
    "sizes uses object 0 of 0": blank(("sizes", 0, ((0, 1),))),
    "there is no step dance": blank(("dance",)),
    "the result uses t1 before": blank(outputs=[("slot", 1)]),
    "the result uses v4 before": blank(outputs=[("float", 4)]),
    "a symbol uses t8 before": blank(symbols=((8, "size", 0),)),
    "t3 is declared as written, and is no input": blank(written=(3,)),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_what_is_wrong_with_a_program(problem):
    with pytest.raises(MalformedStageError, match=problem):
        check_program(BROKEN[problem])


def test_a_program_without_problems(code):
    assert check_program(code.program) is code.program
    assert check_program(blank(ALLOCATE, ("free", (1,)))) is not None


def test_every_step_of_a_program_is_known_to_the_checker(code):
    assert {step[0] for step in code.program.steps} <= STEPS.keys()


@pytest.mark.parametrize("kind", ["cpu_empty", "cpu_kernel", "call", "compute"])
def test_a_program_without_one_of_its_steps(code, kind):
    """Each of these makes something that another one needs."""
    at = max(i for i, step in enumerate(code.program.steps) if step[0] == kind)
    steps = code.program.steps[:at] + code.program.steps[at + 1 :]
    if kind == "cpu_kernel":
        steps = tuple(step for step in steps if step[0] != kind)
    with pytest.raises(MalformedStageError):
        check_program(replace(code.program, steps=steps))


# Kernels


def changed(code, **changes):
    """With another kernel in the place of the first."""
    (at, made), *rest = code.written.groups.items()
    kernel = replace(made.kernel, **changes)
    return Kernels({at: replace(made, kernel=kernel), **dict(rest)})


def with_buffer(code, kind, **changes):
    """With a change to the first buffer of this kind."""
    kernel = next(iter(code.written.groups.values())).kernel
    at = next(i for i, buffer in enumerate(kernel.buffers) if buffer.access is kind)
    buffers = list(kernel.buffers)
    buffers[at] = replace(buffers[at], **changes)
    return changed(code, buffers=tuple(buffers), body=(), sizes=())


def test_kernels_without_problems(code):
    assert check_kernels(code.written, code.scheduled) is code.written


def test_a_buffer_of_another_type(code):
    with pytest.raises(MalformedStageError, match="is f64, .* f32"):
        check_kernels(with_buffer(code, Access.READ, type=Type.F64), code.scheduled)


def test_a_buffer_on_another_device(code):
    with pytest.raises(MalformedStageError, match="is on cuda"):
        check_kernels(with_buffer(code, Access.READ, device="cuda"), code.scheduled)


def test_a_write_that_is_not_declared(code):
    with pytest.raises(MalformedStageError, match="writes .*, which is not declared"):
        check_kernels(with_buffer(code, Access.READ, access=Access.READ_WRITE), code.scheduled)


def test_a_read_of_what_the_group_does_not_read(code):
    with pytest.raises(MalformedStageError, match="which its group does not"):
        check_kernels(with_buffer(code, Access.WRITE, access=Access.READ), code.scheduled)


def test_another_number_of_buffers(code):
    with pytest.raises(MalformedStageError, match="has 0 buffers for"):
        check_kernels(changed(code, buffers=(), body=(), sizes=()), code.scheduled)


def test_a_stored_result_that_no_kernel_stores(code):
    with pytest.raises(MalformedStageError, match="no kernel stores"):
        check_kernels(Kernels({}), code.scheduled)


def test_a_kernel_for_a_call(code):
    (made, *_), calls = code.written.groups.values(), len(code.scheduled.items)
    with pytest.raises(MalformedStageError, match="belongs to no group"):
        check_kernels(Kernels({**code.written.groups, calls: made}), code.scheduled)


def test_a_kernel_that_breaks_a_rule_of_the_loop_ir(code):
    (_, made), *_ = code.written.groups.items()
    with pytest.raises(MalformedKernelError):
        check_kernels(changed(code, body=made.kernel.body * 2), code.scheduled)


# In the pipeline


def test_stages_are_checked_where_the_option_says_so(monkeypatch):
    """A stage that hands on something broken is found out before anything runs."""
    write = kernels_stage.write_kernels

    def broken(*args):
        return Kernels(dict(list(write(*args).groups.items())[1:]))

    monkeypatch.setattr("pliant.backends.compile_graph.write_kernels", broken)
    compiled = pliant.compile(lambda x: x.sin() + 1, backend="llvm")
    with pytest.raises(pliant.errors.InternalError, match="no kernel stores"):
        compiled(torch.ones(3))


def test_nothing_is_checked_otherwise(monkeypatch):
    def refuse(*args):
        raise AssertionError("checked")

    monkeypatch.setattr("pliant.backends.checkers.check", refuse)
    with config.patch(check_ir=False):
        compiled = pliant.compile(lambda x: x.sin() + 1, backend="llvm")
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
