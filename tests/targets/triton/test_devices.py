"""Programs of GPU tensors, compiled on a machine without a GPU: tensors without memory stand for
them. What is looked at is the program of the launcher: which device has what."""

import re

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn
from triton.backends.nvidia import compiler as nvidia

import pliant
from pliant.backends import compile_graph, llvm
from pliant.backends.own_backend import OwnBackend
from pliant.base import events
from pliant.graph import aliases, gpu_draws
from pliant.targets.triton import compile as compiler
from pliant.targets.triton import launch
from pliant.targets.triton.blocks import blocks_for
from pliant.targets.triton.kernel_source import printed
from pliant.targets.triton.target import TritonTarget

META = torch.device("meta")
X = torch.empty(6, 8, device=META)


class WithoutDevice(TritonTarget):
    """Kernels are printed, and not compiled."""

    launch_step = "cuda_kernel"

    def compile(self, source):
        kernel = printed(source.kernel)
        return kernel.tiling.by_rows, [argument.wide for argument in kernel.arguments], len, 16


@OwnBackend
def backend(gm, examples, shapes, options):
    llvm.compile_for(lambda *_: WithoutDevice(META), gm, examples, shapes, options)
    return gm.forward


@pytest.fixture
def programs(monkeypatch, stream):
    """The programs of a function and of its backward, as text."""
    monkeypatch.setattr(aliases, "DEVICES", {*aliases.DEVICES, "meta"})

    def compile(function, *args, **options):
        pliant.compile(function, backend=backend, fullgraph=True, **options)(*args)
        assert not [e for e in stream if isinstance(e, events.NotGenerated)]
        told = [e for e in stream if isinstance(e, events.StageFinished)]
        return [event.text() for event in told if event.stage == "program"]

    return compile


def set_to_a_number(x):
    y = x * 2
    y[1] = 3
    return y


NUMBERS = {
    "set to a number": set_to_a_number,
    "a constant": lambda x: x * torch.tensor(3.0) + 1,
    "a constant that is moved": lambda x: x + torch.tensor(3).to(x.device),
    "a view of a constant": lambda x: x + torch.tensor([2.0])[0],
    "division of integers": lambda x: x.long() // x.long() + x.int() % 7 + torch.fmod(x.int(), 3),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_in_the_code_of_kernels(name, programs):
    (program,) = programs(NUMBERS[name], X)
    assert program.count("cuda_kernel") == 1
    assert "aten" not in program and "object" not in program


def test_a_constant_that_pytorch_reads(programs):
    (program,) = programs(lambda x: torch.addcmul(x, x, torch.tensor(2.0)) @ x.t(), X)
    assert program.count("cuda_kernel") == 1


def test_a_constant_that_is_returned_stays_where_it_is(programs):
    (program,) = programs(lambda x: (x + 1, torch.tensor(3.0)), X)
    assert program.count("cuda_kernel") == 1 and program.count("object") == 1


def test_a_number_on_the_cpu_that_is_written_to(programs):
    """As the step of an optimizer is."""

    def step(x, count):
        count += 1
        return x * 2

    (program,) = programs(step, X, torch.tensor(0.0))
    assert program.count("cuda_kernel") == 1 and program.count("cpu_kernel") == 1


def test_memory_of_a_backward_is_on_the_device(programs):
    layers = nn.Sequential(nn.Linear(8, 5), nn.GELU(), nn.LayerNorm(5), nn.Linear(5, 3)).to(META)

    def loss(x):
        return F.cross_entropy(layers(x), torch.zeros(6, dtype=torch.long, device=META))

    x = X.clone().requires_grad_()
    (program,) = programs(lambda x: torch.autograd.grad(loss(x), (x, *layers.parameters())), x)
    assert "on meta" in program and "cpu" not in program


DRAWN = {
    "dropout": lambda x: F.dropout(x, 0.5) * 2,
    "bernoulli": lambda x: torch.empty_like(x).bernoulli_(0.3) + 1,
    "rand_like": lambda x: torch.rand_like(x) * x,
}


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers(name, programs):
    (program,) = programs(DRAWN[name], X)
    assert "cpu" not in program


def test_a_dropout_is_part_of_a_kernel(programs, monkeypatch):
    monkeypatch.setattr(gpu_draws, "generator_of", lambda device: gpu_draws.Generator(0, 1056))
    monkeypatch.setattr(gpu_draws, "draws_so", lambda generator, dtype: True)
    (program,) = programs(DRAWN["dropout"], X)
    assert program.count("cuda_kernel") == 1 and "dropout" not in program
    # The backward draws again: nothing but the numbers of the generator is kept for it.
    draw = torch.ops.aten.native_dropout.default
    forward = programs(lambda x: draw(x, 0.5, True)[0] * 2, X.clone().requires_grad_())[1]
    assert forward.count("cuda_kernel") == 1 and "return t1, value" in forward


def test_kernels_that_differ_in_what_they_draw_are_one(programs, monkeypatch):
    monkeypatch.setattr(gpu_draws, "generator_of", lambda device: gpu_draws.Generator(0, 1056))
    monkeypatch.setattr(gpu_draws, "draws_so", lambda generator, dtype: True)
    draw = torch.ops.aten.native_dropout.default

    weight = torch.empty(X.size(-1), X.size(-1), device=META)

    def drawn(x):
        for _ in range(3):
            x = draw(x, 0.5, True)[0] @ weight
        return x

    (program,) = programs(drawn, X)
    # The first one leaves the argument as it is, the others work in place.
    assert program.count("cuda_kernel") == 3 and "2 kernels" in program


ATTENTION = {
    "flash": lambda q: torch.ops.aten._scaled_dot_product_flash_attention.default(q, q, q, 0.1),
    "cudnn": lambda q: torch.ops.aten._scaled_dot_product_cudnn_attention.default(
        q, q, q, None, True, 0.1
    ),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_operators_that_return_more_than_tensors(name, programs, monkeypatch):
    """What they return when they run is as long as their schema says."""
    called = []

    def call(self, *args):
        called.append(self)
        return original(self, *args)

    original = aliases.Defined.__call__
    monkeypatch.setattr(aliases.Defined, "__call__", call)
    q = torch.empty(2, 4, 16, 64, device=META, dtype=torch.bfloat16)
    (program,) = programs(lambda q: ATTENTION[name](q)[0] * 2, q)
    assert program.count("object") == 1
    (line,) = [line for line in program.splitlines() if "object" in line]
    made = aliases.Defined(
        getattr(torch.ops.aten, f"_scaled_dot_product_{name}_attention").default, (), (0, 1, 6, 7)
    )
    given = (q, q, q, 0.1) if name == "flash" else (q, q, q, None, True, 0.1)
    assert len(made(*given)) == 4
    assert 4 <= line.split("=")[0].count("t") <= 5


def test_only_what_is_refused_stays_with_pytorch(programs, monkeypatch):
    """All groups are refused at once, and only the scans in them."""
    lowerings = []
    original = compile_graph.lower

    def lower(*args):
        lowerings.append(args)
        return original(*args)

    monkeypatch.setattr(compile_graph, "lower", lower)

    def program(x):
        one = ((x + 1).exp().cumsum(1) * 2).relu()
        other = ((x - 1).tanh().t().cumsum(0) * 3).sigmoid()
        return one @ other

    (text,) = programs(program, torch.empty(6, 1 << 16, device=META))  # few long rows
    assert text.count("aten::cumsum") == 2 and text.count("aten::") == 3
    assert text.count("cuda_kernel") >= 2
    assert len(lowerings) <= 3


SCANS = {
    "sum": lambda x: (x * 2).exp().tanh().sin().cumsum(1).cos().exp() + 1,
    "maximum": lambda x: x.cummax(1),
    "logarithm": lambda x: x.logcumsumexp(0),
}


@pytest.mark.parametrize("machine", [80, 90, "gfx942"])
@pytest.mark.parametrize("name", SCANS)
def test_scans_are_one_kernel_each_and_keep_what_eager_keeps_on_gpus(
    name, machine, programs, monkeypatch
):
    sources = []
    compile = WithoutDevice.compile
    keep = lambda self, source: [sources.append(source), compile(self, source)][1]
    monkeypatch.setattr(WithoutDevice, "compile", keep)
    (program,) = programs(SCANS[name], X)
    assert program.count("cuda_kernel") == 1 and "aten" not in program
    (source,) = sources
    assert "float64" not in source.text
    kernel, whole = printed(source.kernel), compiler.functions(source.text, "key", False)
    for columns in (8, 1 << 15):
        blocks = blocks_for(kernel.tiling, columns)
        count = len(kernel.buffers) + len(kernel.arguments)
        variant = compiler.KernelVariant(blocks, False, (16,) * count)
        function = compiler.function_for(whole, variant)
        target = compiler.amd(machine) if isinstance(machine, str) else compiler.nvidia(machine)
        assert compiler.machine_code(kernel, function, variant, target).binary


VECTORS = {
    "pointwise": lambda x: x + x.t().contiguous().t(),
    "softmax": lambda x: torch.softmax(x, -1),
    "halves": lambda x: torch.cat([-x[:, x.shape[1] // 2 :], x[:, : x.shape[1] // 2]], 1) * x,
    "sum of rows": lambda x: (x * 2).sum(1),
}


@pytest.mark.parametrize(("t", "columns"), [(torch.float32, 1000), (torch.bfloat16, 1008)])
@pytest.mark.parametrize("name", VECTORS)
def test_symbolic_sizes_are_loaded_16_bytes_at_a_time(name, t, columns, programs, monkeypatch):
    """As fixed ones are: rows begin where 16 bytes do, which a size of 1000 is enough for."""
    sources, texts = [], []
    compile = WithoutDevice.compile
    keep = lambda self, source: [sources.append(source), compile(self, source)][1]
    monkeypatch.setattr(WithoutDevice, "compile", keep)
    assemble = nvidia.CUDABackend.make_cubin
    note = lambda self, text, *args: [texts.append(text), assemble(self, text, *args)][1]
    monkeypatch.setattr(nvidia.CUDABackend, "make_cubin", note)
    programs(VECTORS[name], torch.empty(64, columns, dtype=t, device=META), dynamic=True)
    (source,) = sources
    kernel = launch.CudaKernel(source.printed, source.key, META)
    variant = kernel._described(*kernel._expected(source.expected))
    function = compiler.function_for(kernel.functions, variant)
    assert compiler.machine_code(source.printed, function, variant, compiler.nvidia(90)).binary
    loads = re.findall(r"ld\.global\S*", texts[0])
    assert loads and all(".v4.b32" in load for load in loads)


@pytest.mark.parametrize(
    ("rows", "columns", "kernels"), [(1, 8192, 1), (1, 8193, 0), (200, 9000, 1)]
)
def test_scans_of_few_long_rows_are_pytorchs(rows, columns, kernels, programs):
    (program,) = programs(lambda x: x.cumsum(1), torch.empty(rows, columns, device=META))
    assert program.count("cuda_kernel") == kernels
    assert ("aten::cumsum" in program) == (not kernels)


FEW_LONG = {
    "rows": (lambda x: (x * 2).sum(1), (3, 1 << 17)),
    "everything": (lambda x: (x * 2).sum(), (3, 1 << 17)),
    "columns": (lambda x: (x * 2).sum(0), (1 << 15, 24)),
    "largest": (lambda x: (x * 2).amax(0), (1 << 15, 24)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FEW_LONG)
def test_few_long_rows_are_reduced_in_two_steps(name, dynamic, programs):
    """What is reduced is in no memory, and neither is what it is filled up with."""
    function, sizes = FEW_LONG[name]
    (program,) = programs(function, torch.empty(*sizes, device=META), dynamic=dynamic)
    assert program.count("cuda_kernel") == 2 and "aten" not in program
    assert program.count(" = empty") == 2  # the first step's, and the result


@triton.jit
def copy(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count), mask=at < count)


def test_a_kernel_of_the_program_is_part_of_its_graph(programs):
    def function(x):
        y = torch.empty_like(x)
        launched = copy[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
            x + 1, y, x.numel(), BLOCK=16, num_warps=2
        )
        del launched
        return y * 2

    (program,) = programs(function, X)
    assert program.count("cuda_kernel") == 2 and "cpu" not in program
    assert program.count("object") == 3  # the kernel, its grid, no numbers


CONTIGUOUS = {
    "power": lambda x: 2 ** x.t(),
    "isin": lambda x: torch.isin(x.t(), x),
}


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_results_that_are_contiguous_however_arguments_lie(name):
    function = CONTIGUOUS[name]
    compiled = pliant.compile(lambda x: function(x).stride(), backend=backend, fullgraph=True)
    assert compiled(X) == (6, 1)


def test_a_number_on_the_device_may_be_what_is_written(stream, monkeypatch):
    """Eager PyTorch reads it first on a CPU only; elsewhere it refuses to."""
    monkeypatch.setattr(aliases, "DEVICES", {*aliases.DEVICES, "meta"})

    def fill(x):
        x.index_put_((x > 0,), x[0, 0])

    pliant.compile(fill, backend=backend)(X.clone())
    (event,) = [e for e in stream if isinstance(e, events.NotGenerated)]
    assert "reads what it writes" in event.reason


@pytest.mark.parametrize(("rows", "generated"), [(6, True), (0, False)])
def test_an_index_into_what_is_empty_is_for_pytorch_to_refuse(rows, generated, programs):
    at = torch.empty(3, dtype=torch.long, device=META)
    (program,) = programs(lambda x: x[at] + 1, torch.empty(rows, 8, device=META))
    assert ("aten::index" not in program) == generated


def test_what_eager_does_otherwise_on_gpus(programs, stream):
    """A root of halves isn't a power there, and the slopes of `rrelu` make a contiguous result."""
    programs(lambda x: x**0.5, torch.empty(6, 8, device=META, dtype=torch.float16))
    (generated,) = [e for e in stream if isinstance(e, events.CodeGenerated)]
    (kernel,) = generated.kernels()
    assert "sqrt_rn" in kernel and "libdevice.pow" not in kernel
    *_, program = programs(lambda x: F.rrelu(x.t()), X)
    assert "sizes [v0, v1] strides [v1, v2]" in program, program


@pytest.mark.parametrize("dynamic", [False, True])
def test_parts_put_into_what_is_expanded(dynamic, programs):
    """Into a contiguous copy of it, as no kernel is measured on a GPU."""
    x = torch.empty((), device=META).expand(3, 4)
    for put in (
        lambda x: torch.select_scatter(x, x[0] + 5, 0, 1),
        lambda x: torch.slice_scatter(x, x[:1] + 1, 0, 0, 1),
        lambda x: torch.diagonal_scatter(x, x.diagonal() * 0),
    ):
        *_, program = programs(put, x, dynamic=dynamic)
        assert "python" not in program and "cuda_kernel" in program, program
