"""Products of matrices: which memory they are of, and what is added to them where.

Eager PyTorch is asked each time; what a program makes of a product is looked at in its calls.
"""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
from tests.backends.eager_twin import call, difference


def agree(function, *makers, dynamic=(False, True), mode="no_grad"):
    for how in dynamic:
        compiled = pliant.compile(
            function, backend=llvm, dynamic=how, options={"recompile_limit": 50}
        )
        for make in makers:
            torch.manual_seed(0)
            given = list(make())
            found = difference(call(compiled, given, mode), call(function, given, mode))
            assert found is None, (how, [tuple(x.shape) for x in given], found)


def three(*sizes, dtype=torch.float32):
    return lambda: [torch.randn(size).to(dtype) for size in sizes]


# ---- linear


LINEARS = {
    "plain": lambda x, w, b: F.linear(x, w, b),
    "without": lambda x, w, b: F.linear(x, w),
    "read": lambda x, w, b: F.linear(x, w, b).relu(),
    "read twice": lambda x, w, b: [F.linear(x, w, b).exp(), F.linear(x, w, b).sum(0)],
    "returned and read": lambda x, w, b: (lambda y: (y, y.tanh()))(F.linear(x, w, b)),
    "a part is returned": lambda x, w, b: F.linear(x, w, b)[..., 1:],
    "as other sizes": lambda x, w, b: F.linear(x, w, b).flatten().cos(),
    "then another": lambda x, w, b: F.linear(F.linear(x, w, b) @ w, w, b),
    "of a sum": lambda x, w, b: F.linear(x + 1, w * 2, b - 1) + 1,
    "transposed after": lambda x, w, b: F.linear(x, w, b).transpose(0, -1).relu(),
    "norm": lambda x, w, b: F.layer_norm(F.linear(x, w, b), b.shape),
    "residual": lambda x, w, b: F.gelu(F.linear(x, w, b)) @ w + x,
    "without, read": lambda x, w, b: F.linear(x, w).relu(),
    "two dimensions added": lambda x, w, b: F.linear(x, w, b.expand(x.shape[-2], -1)).relu(),
    "two dimensions": lambda x, w, b: F.linear(x, w, b + torch.zeros(x.shape[-2], 1)),
    "into place": lambda x, w, b: F.linear(x, w, b).add_(1).mul_(F.linear(x, w)),
}


@pytest.mark.parametrize("name", LINEARS)
def test_linear(name):
    agree(
        LINEARS[name],
        three((5, 4), (6, 4), (6,)),
        three((2, 3, 4), (6, 4), (6,)),
        three((2, 3, 2, 4), (6, 4), (6,)),
        three((1, 4), (1, 4), (1,)),
        three((0, 4), (6, 4), (6,)),
        three((3, 0), (6, 0), (6,)),
        three((2, 1, 4), (6, 4), (6,)),
        lambda: [torch.randn(4, 5).t(), torch.randn(4, 6).t(), torch.randn(6)],
        lambda: [torch.randn(3, 2, 4).transpose(0, 1), torch.randn(6, 8)[:, ::2], torch.randn(6)],
        lambda: [torch.randn(2, 4, 3).transpose(1, 2), torch.randn(7, 4)[1:], torch.randn(6)],
        lambda: [torch.randn(1, 4).expand(5, 4), torch.randn(4).expand(6, 4), torch.randn(6)],
        lambda: [torch.randn(20)[3:].as_strided((3, 4), (1, 1)), torch.randn(6, 4), torch.randn(6)],
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["plain", "read", "residual"])
def test_other_floats(name, dtype):
    agree(LINEARS[name], three((5, 4), (4, 4), (4,), dtype=dtype))
    agree(LINEARS[name], three((2, 5, 4), (4, 4), (4,), dtype=dtype))


# ---- others

PRODUCTS = {
    "mm": lambda a, b: torch.mm(a, b),
    "and read": lambda a, b: (a @ b).relu(),
    "transposed": lambda a, b: b.t() @ a.t(),
    "of its transpose": lambda a, b: (a @ a.t()) @ a,
    "of parts": lambda a, b: a[:, 1:] @ b[1:],
    "of steps": lambda a, b: a[:, ::2] @ b[::2],
    "of what is computed": lambda a, b: (a + 1) @ b.exp() - 1,
    "added": lambda a, b: torch.addmm(b[0], a, b).relu(),
    "all added": lambda a, b: torch.addmm(a @ b, a, b).relu(),
    "a column added": lambda a, b: torch.addmm(a[:, :1], a, b).relu(),
    "a number added": lambda a, b: torch.addmm(a[0, 0], a, b).relu(),
    "scaled": lambda a, b: torch.addmm(b[0], a, b, beta=0.5, alpha=2).relu(),
    "not at all": lambda a, b: torch.addmm(b[0] / 0, a, b, beta=0).relu(),
    "vectors": lambda a, b: (a @ b[:, 0], a[0] @ b, a[0] @ b[:, 0]),
    "of a view of one": lambda a, b: (a @ b).view(-1, 1) @ b[:1],
    "overwritten": lambda a, b: (a @ b).copy_(a @ b + 1),
    "out": lambda a, b: torch.mm(a, b, out=torch.empty(a.shape[0], b.shape[1])),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    makers = [three((5, 4), (4, 6)), three((7, 3), (3, 7))]
    agree(PRODUCTS[name], *makers, lambda: [torch.randn(4, 5).t(), torch.randn(6, 4).t()])


def heads(x, w):
    """Attention written by hand."""
    n, length, width = x.shape
    q, k, v = F.linear(x, w, w[:, 0]).view(n, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
    scores = torch.softmax(q @ k.transpose(-2, -1) / 3, -1)
    return (scores @ v).transpose(1, 2).reshape(n, length, width)


def test_attention():
    agree(heads, three((3, 5, 8), (24, 8)), three((1, 7, 8), (24, 8)), three((2, 0, 8), (24, 8)))


BATCHES = [
    ((3, 2, 4), (3, 4, 5)),
    ((2, 3, 2, 4), (2, 3, 4, 5)),
    ((1, 2, 4), (3, 4, 5)),
    ((3, 2, 4), (1, 4, 5)),
    ((2, 1, 2, 4), (3, 4, 5)),
    ((3, 2, 4), (4, 5)),
    ((2, 4), (3, 4, 5)),
    ((3, 2, 4), (4,)),
    ((4,), (3, 4, 5)),
    ((0, 2, 4), (0, 4, 5)),
    ((3, 2, 0), (3, 0, 5)),
    ((1, 1, 4), (1, 4, 1)),
]


@pytest.mark.parametrize("sizes", BATCHES, ids=str)
def test_batches(sizes):
    agree(lambda a, b: a @ b, three(*sizes))
    agree(lambda a, b: ((a + 1) @ b).relu() - 1, three(*sizes))
    if min(map(len, sizes)) > 1:
        agree(
            lambda a, b: a.mT.contiguous().mT @ b,
            lambda: [torch.randn(sizes[0]), torch.randn(sizes[1]).mT.contiguous().mT],
        )


def test_integers_and_complex_numbers():
    agree(
        lambda a, b: (a @ b) + 1, lambda: [torch.arange(6).view(2, 3), torch.arange(6).view(3, 2)]
    )
    agree(lambda a, b: a @ b, three((2, 3), (3, 2), dtype=torch.complex64))


@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
def test_parameters(mode):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    layer.requires_grad_(mode != "grad")
    before = [parameter._version for parameter in layer.parameters()]
    agree(lambda x: layer(layer(x).relu()), three((3, 4)), mode=mode)
    assert [parameter._version for parameter in layer.parameters()] == before


def test_errors_are_those_of_eager():
    agree(lambda a, b: a @ b, three((2, 3), (4, 5)), dynamic=[False])
    agree(
        lambda a, b: a @ b, lambda: [torch.randn(2, 3), torch.randn(3, 2).double()], dynamic=[False]
    )


# ---- what is called


def calls_of(function, *args):
    """The steps that call PyTorch."""
    seen = []

    def note(event):
        if isinstance(event, events.CodeGenerated):
            seen.append(event)

    with events.listening(note), torch.no_grad():
        compiled = pliant.compile(function, backend=llvm)
        compiled(*args)
        with torch.profiler.profile() as profiled:
            compiled(*args)
    names = [e.key for e in profiled.key_averages() if e.key.startswith("aten::")]
    return sorted(name.removeprefix("aten::") for name in names), seen[0]


def test_a_bias_is_added_by_the_kernel_that_reads_the_product():
    args = three((5, 4), (6, 4), (6,))()
    names, made = calls_of(lambda x, w, b: F.linear(x, w, b).relu(), *args)
    assert "mm" in names and not {"addmm", "copy_", "add"} & set(names)
    assert len(made.kernels()) == 1


def test_a_bias_is_added_to_the_memory_of_the_product():
    args = three((5, 4), (6, 4), (6,))()
    names, made = calls_of(lambda x, w, b: F.linear(x, w, b), *args)
    assert "mm" in names and not {"addmm", "copy_", "add"} & set(names)
    (kernel,) = made.kernels()
    assert "f32 write" not in kernel


@pytest.mark.cpu_only("on GPUs PyTorch has another operator for it")
def test_halves_are_not_rounded_before_the_bias():
    args = three((5, 4), (6, 4), (6,), dtype=torch.bfloat16)()
    names, _ = calls_of(lambda x, w, b: F.linear(x, w, b).relu(), *args)
    assert "addmm" in names


def test_heads_are_laid_out_by_one_kernel():
    names, made = calls_of(heads, *three((3, 5, 8), (24, 8))())
    assert not {"copy_", "clone", "addmm"} & set(names)
    assert len(made.kernels()) == 3  # the heads, softmax, and the result
