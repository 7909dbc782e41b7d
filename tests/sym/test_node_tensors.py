"""PyTorch's own shape functions on our numbers: what they give for symbolic sizes holds for every
size that fulfils the guards, 0 and 1 above all. Eager PyTorch is the oracle."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher

from pliant.base.errors import DataDependentError
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import evaluate
from pliant.sym.node import from_torch, to_torch

OTHERS = (0, 1, 2, 3, 4, 5, 7, 8)


def row_major(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return strides[::-1]


def tensor(*shape, dtype=torch.float32, device="meta"):
    made = torch.empty_strided(shape, row_major(shape), dtype=dtype, device=device)
    return made if device == "meta" else made.zero_()


POINTWISE = {
    "x + 1": lambda t, a, b: t(a, b) + 1,
    "x + x": lambda t, a, b: t(a, b) + t(a, b),
    "relu(2x)": lambda t, a, b: (t(a, b) * 2).relu(),
    "where": lambda t, a, b: torch.where(t(a, b) > 0, t(a, b), 0.0),
    "gelu": lambda t, a, b: F.gelu(t(a, b)),
    "dropout": lambda t, a, b: F.dropout(t(a, b), 0.5),
    "masked_fill": lambda t, a, b: t(a, b).masked_fill(t(a, b) > 0, 1.0),
    "zeros_like": lambda t, a, b: torch.zeros_like(t(a, b)),
    "add_": lambda t, a, b: t(a, b).add_(1),
    "three dimensions": lambda t, a, b: t(a, b, 4).exp() * t(a, b, 4),
}
REDUCING = {
    "sum(-1)": lambda t, a, b: t(a, b).sum(-1),
    "sum(0)": lambda t, a, b: t(a, b).sum(0),
    "sum, keepdim": lambda t, a, b: t(a, b).sum(1, keepdim=True),
    "mean": lambda t, a, b: t(a, b).mean(1),
    "var": lambda t, a, b: t(a, b).var(1),
    "softmax": lambda t, a, b: t(a, b).softmax(-1),
    "log_softmax": lambda t, a, b: t(a, b).log_softmax(-1),
    "argmax": lambda t, a, b: t(a, b).argmax(1),
    "cumsum": lambda t, a, b: t(a, b).cumsum(0),
    "norm": lambda t, a, b: t(a, b).norm(dim=1),
    "sort": lambda t, a, b: t(a, b).sort(0)[0],
    "topk": lambda t, a, b: t(a, b).topk(2)[0],
    "layer_norm": lambda t, a, b: F.layer_norm(t(a, b), (b,)),
    "layer_norm with weights": lambda t, a, b: F.layer_norm(t(a, 8), (8,), t(8), t(8)),
    "group_norm": lambda t, a, b: F.group_norm(t(a, 4, 8), 2, t(4), t(4)),
    "batch_norm": lambda t, a, b: F.batch_norm(t(a, 3, b), t(3), t(3)),
}
PRODUCTS = {
    "linear": lambda t, a, b: F.linear(t(a, 8), t(3, 8), t(3)),
    "linear without bias": lambda t, a, b: F.linear(t(a, 8), t(3, 8)),
    "linear of three": lambda t, a, b: F.linear(t(a, b, 8), t(3, 8), t(3)),
    "mm": lambda t, a, b: t(a, b) @ t(b, 3),
    "mm with its transpose": lambda t, a, b: t(a, b) @ t(a, b).t(),
    "bmm": lambda t, a, b: t(a, 4, b) @ t(a, b, 4),
    "matmul of four": lambda t, a, b: t(a, 2, b, 4) @ t(a, 2, 4, b),
    "addmm": lambda t, a, b: torch.addmm(t(3), t(a, b), t(b, 3)),
    "einsum": lambda t, a, b: torch.einsum("ij,jk->ik", t(a, b), t(b, 3)),
    "attention": lambda t, a, b: F.scaled_dot_product_attention(
        t(a, 2, b, 8), t(a, 2, b, 8), t(a, 2, b, 8)
    ),
    "conv2d": lambda t, a, b: F.conv2d(t(a, 3, 8, 8), t(4, 3, 3, 3), padding=1),
    "conv2d, size": lambda t, a, b: F.conv2d(t(2, 3, a + 3, b + 3), t(4, 3, 3, 3), stride=2),
    "conv1d": lambda t, a, b: F.conv1d(t(a, 3, b + 4), t(4, 3, 3)),
    "max_pool2d": lambda t, a, b: F.max_pool2d(t(a, 3, 8, 8), 2),
    "max_pool2d, size": lambda t, a, b: F.max_pool2d(t(2, 3, a + 2, b + 2), 2),
    "avg_pool2d": lambda t, a, b: F.avg_pool2d(t(a, 3, b + 4, 8), 2),
    "adaptive_avg_pool2d": lambda t, a, b: F.adaptive_avg_pool2d(t(a, 3, 8, 8), 1),
    "interpolate": lambda t, a, b: F.interpolate(t(a, 3, 8, 8), scale_factor=2),
    "interpolate, size": lambda t, a, b: F.interpolate(t(2, 3, a, b), scale_factor=2.0),
}
BROADCASTING = {
    "vector": lambda t, a, b: t(a, b) + t(b),
    "column": lambda t, a, b: t(a, b) * t(a, 1),
    "outer": lambda t, a, b: t(a, 1) + t(1, b),
    "a number": lambda t, a, b: t(a, b) + t(),
    "static vector": lambda t, a, b: t(a, 7) + t(7),
    "two sizes": lambda t, a, b: t(a) + t(b),
    "to three": lambda t, a, b: t(a, b, 4) + t(b, 4),
    "expand": lambda t, a, b: t(a, b).unsqueeze(0).expand(4, -1, -1),
    "expand one": lambda t, a, b: t(a, 1).expand(a, b),
}
VIEWS = {
    "view(-1)": lambda t, a, b: t(a, b).view(-1),
    "view, other sizes": lambda t, a, b: t(a, b).view(b, a),
    "cat, view(-1)": lambda t, a, b: torch.cat([t(a, b), t(a, b)]).view(-1),
    "reshape of expanded": lambda t, a, b: t(a, b).expand(4, a, b).reshape(4 * a, b),
    "reshape of transposed": lambda t, a, b: t(a, b, 4).transpose(1, 2).reshape(a, 4 * b),
    "heads": lambda t, a, b: t(a, b, 16).view(a, b, 2, 8).transpose(1, 2),
    "heads and back": lambda t, a, b: (
        t(a, b, 16).view(a, b, 2, 8).transpose(1, 2).transpose(1, 2).reshape(a, b, 16)
    ),
    "flatten": lambda t, a, b: t(a, 3, 4).flatten(1),
    "flatten two": lambda t, a, b: t(a, b, 4).flatten(0, 1),
    "transpose, contiguous": lambda t, a, b: t(a, b).t().contiguous(),
    "unsqueeze": lambda t, a, b: t(a, b).unsqueeze(1),
    "squeeze(1)": lambda t, a, b: t(a, 1, 4).squeeze(1),
    "squeeze()": lambda t, a, b: t(a, 1, b).squeeze(),
    "permute": lambda t, a, b: t(a, b, 3).permute(2, 0, 1),
    "[1:]": lambda t, a, b: t(a, b)[1:],
    "[:, :3]": lambda t, a, b: t(a, b)[:, :3],
    "[: a - 1]": lambda t, a, b: t(a, b)[: a - 1],
    "[::2]": lambda t, a, b: t(a, b)[::2],
    "[-1]": lambda t, a, b: t(a, b)[-1],
    "[a // 2 :]": lambda t, a, b: t(a, b)[a // 2 :],
    "[..., None]": lambda t, a, b: t(a, b)[..., None],
    "[b:]": lambda t, a, b: t(a, 3)[b:],
    "chunk": lambda t, a, b: t(a, b).chunk(2)[0],
    "split": lambda t, a, b: t(a, b).split(2)[0],
    "narrow": lambda t, a, b: t(a, b).narrow(0, 0, a),
    "unfold": lambda t, a, b: t(a, b).unfold(1, 2, 1),
    "as_strided": lambda t, a, b: t(a, b).as_strided((a, b), (b, 1)),
    "diagonal": lambda t, a, b: t(a, b).diagonal(),
}
MAKING = {
    "cat": lambda t, a, b: torch.cat([t(a, 4), t(b, 4)]),
    "cat columns": lambda t, a, b: torch.cat([t(a, b), t(a, 3)], 1),
    "stack": lambda t, a, b: torch.stack([t(a, b), t(a, b)]),
    "pad": lambda t, a, b: F.pad(t(a, b), (1, 2)),
    "pad, cutting": lambda t, a, b: F.pad(t(a, b), (-1, 0)),
    "repeat": lambda t, a, b: t(a, b).repeat(2, 1),
    "zeros": lambda t, a, b: torch.zeros(a, b, device=t().device),
    "full of a product": lambda t, a, b: torch.full((a * b, 2), 1.0, device=t().device),
    "arange": lambda t, a, b: torch.arange(a, device=t().device),
    "eye": lambda t, a, b: torch.eye(a, b, device=t().device),
    "tril": lambda t, a, b: t(a, b).tril(),
    "roll": lambda t, a, b: t(a, b).roll(1, 0),
    "flip": lambda t, a, b: t(a, b).flip(0),
    "embedding": lambda t, a, b: F.embedding(t(a, b, dtype=torch.long), t(10, 4)),
    "index": lambda t, a, b: t(9, b)[t(a, dtype=torch.long)],
    "index_select": lambda t, a, b: t(9, b).index_select(0, t(a, dtype=torch.long)),
    "gather": lambda t, a, b: t(a, 5).gather(1, t(a, 2, dtype=torch.long)),
    "one_hot": lambda t, a, b: F.one_hot(t(a, dtype=torch.long), 5),
    "scaled by a size": lambda t, a, b: t(a, b) * (1 / (a + 1) ** 0.5),
}
ODD_LAYOUTS = {
    "transposed + 1": lambda t, a, b: t(a, b).t() + 1,
    "transposed + row-major": lambda t, a, b: t(a, b).t() + t(b, a),
    "row-major + transposed": lambda t, a, b: t(b, a) * t(a, b).t(),
    "two transposed": lambda t, a, b: t(a, b).t() + t(a, b).t(),
    "relu of transposed": lambda t, a, b: t(a, b, 3).transpose(0, 1).relu(),
    "sliced + 1": lambda t, a, b: t(a, b + 2)[:, :-2] + 1,
    "every second": lambda t, a, b: t(a, 2 * b)[:, ::2].neg(),
    "expanded + 1": lambda t, a, b: t(b).expand(a, b) + 1,
    "expanded column": lambda t, a, b: t(a, 1).expand(a, b).exp(),
    "like of transposed": lambda t, a, b: torch.empty_like(t(a, b).t()),
    "like of sliced": lambda t, a, b: torch.empty_like(t(a, b + 1)[:, 1:]),
    "clone of expanded": lambda t, a, b: t(b).expand(a, b).clone(),
    "clone of permuted": lambda t, a, b: t(a, b, 3).permute(2, 1, 0).clone(),
    "contiguous of sliced": lambda t, a, b: t(a, b + 1)[:, :b].contiguous(),
    "contiguous of rows": lambda t, a, b: t(a + 1, b)[:a].contiguous(),
    "sum of transposed": lambda t, a, b: t(a, b, 3).transpose(0, 1).sum(2),
    "softmax of transposed": lambda t, a, b: t(a, b).t().softmax(0),
    "view of rows": lambda t, a, b: t(a + 2, b)[1:-1].view(-1),
    "reshape of columns": lambda t, a, b: t(a, b + 1)[:, :b].reshape(-1),
    "cat of transposed": lambda t, a, b: torch.cat([t(a, b).t(), t(a, b).t()]),
    "matmul of transposed": lambda t, a, b: t(b, a).t() @ t(b, 3),
    "channels last": lambda t, a, b: t(a, 3, b, 4).to(memory_format=torch.channels_last),
    "channels last + 1": lambda t, a, b: t(a, b, 4, 3).permute(0, 3, 1, 2) + 1,
    "channels last, one channel": lambda t, a, b: t(a, b, 4, 1).permute(0, 3, 1, 2) + 1,
    "four + 1": lambda t, a, b: t(a, 3, b, 4) + 1,
    "four, all symbolic": lambda t, a, b: t(a, b, a, b).relu(),
    "conv of channels last": lambda t, a, b: F.conv2d(
        t(a, 8, 8, 3).permute(0, 3, 1, 2), t(4, 3, 3, 3)
    ),
    "norm of permuted": lambda t, a, b: F.layer_norm(t(a, 4, b).transpose(1, 2), (4,)),
}
PROGRAMS = {
    f"{kind}: {name}": program
    for kind, programs in {
        "pointwise": POINTWISE,
        "reducing": REDUCING,
        "product": PRODUCTS,
        "broadcast": BROADCASTING,
        "view": VIEWS,
        "making": MAKING,
        "odd layout": ODD_LAYOUTS,
    }.items()
    for name, program in programs.items()
}


RAISED = (RuntimeError, IndexError, ValueError, ZeroDivisionError)


def layout_of(result):
    """The strides of an empty tensor say nothing, and are not the same in all of PyTorch."""
    return tuple(result.shape), None if 0 in result.shape else result.stride()


def real_layout(program, values):
    """Sizes and strides in eager PyTorch; None where it raises."""
    try:
        made = program(lambda *shape, **more: tensor(*shape, device="cpu", **more), *values)
    except RAISED:
        return None
    return layout_of(made)


def static_layout(program, values):
    """The same by PyTorch's meta kernels, which differ from eager in the strides here and there:
    of dimensions of size 1, or of convolutions. Those of 2.11 don't split nothing."""
    try:
        with enable_python_dispatcher():
            return layout_of(program(tensor, *values))
    except RAISED:
        return None


def symbolic_layout(program, hints):
    """The ShapeEnv with its symbols, and sizes and strides as expressions; None where it raises."""
    env = ShapeEnv(duck=False)
    symbols = [
        env.add_unbacked(name, size_like=True) if hint is None else env.add_input(name, hint)
        for name, hint in zip("ab", hints)
    ]
    try:
        with enable_python_dispatcher():
            result = program(tensor, *[to_torch(s, env) for s in symbols])
            layout = [from_torch(n) for n in (*result.shape, *result.stride())]
    except RAISED:
        layout = None
    return env, symbols, layout


def at(layout, values):
    if layout is None:
        return None
    numbers = tuple(evaluate(e, values) for e in layout)
    sizes, strides = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    return sizes, None if 0 in sizes else strides


@pytest.mark.parametrize("hints", [(5, 7), (1, 7), (5, 1), (1, 1), (0, 7), (5, 0), (4, 4)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_layout_holds_wherever_the_guards_do(name, hints):
    program = PROGRAMS[name]
    env, symbols, layout = symbolic_layout(program, hints)
    guards = [guard.condition for guard in env.guards()]
    for values in {hints, *itertools.product(OTHERS, OTHERS)}:
        sizes = dict(zip(symbols, values))
        if not all(evaluate(guard, sizes) for guard in guards):
            assert values != hints, f"the guards {guards} exclude their own example"
            continue
        found, expected = at(layout, sizes), real_layout(program, values)
        if found != expected:
            assert found == static_layout(program, values), f"{values}, guards {guards}"
            if found is not None:
                assert expected is not None, f"{values}, guards {guards}"
                assert found[0] == expected[0], f"{values}, guards {guards}"


WITHOUT_GUARDS = [
    *[f"pointwise: {name}" for name in POINTWISE],
    *[f"reducing: {name}" for name in ("sum(-1)", "sum(0)", "sum, keepdim", "mean", "softmax")],
    *[f"reducing: {name}" for name in ("cumsum", "sort", "layer_norm", "layer_norm with weights")],
    *[f"product: {name}" for name in ("linear", "linear without bias", "mm", "addmm", "conv2d")],
    *[f"product: {name}" for name in ("max_pool2d", "adaptive_avg_pool2d")],
    *[f"broadcast: {name}" for name in ("vector", "column", "outer", "a number", "static vector")],
    *[f"broadcast: {name}" for name in ("to three", "expand")],
    *[f"view: {name}" for name in ("permute", "unsqueeze", "squeeze(1)", "narrow", "[..., None]")],
    *[f"making: {name}" for name in ("cat columns", "pad", "repeat", "zeros", "arange", "tril")],
    *[f"making: {name}" for name in ("flip", "index_select", "embedding", "one_hot")],
    *["odd layout: contiguous of rows", "odd layout: four + 1"],
]


@pytest.mark.parametrize("name", WITHOUT_GUARDS)
def test_what_holds_for_all_sizes_needs_no_guard(name):
    env, _, layout = symbolic_layout(PROGRAMS[name], (5, 7))
    assert layout is not None
    assert [str(guard) for guard in env.guards()] == []


@pytest.mark.parametrize("hints", [(None, 7), (5, None), (None, None)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_of_unbacked_sizes_too_wherever_the_assumptions_and_assertions_hold(name, hints):
    program = PROGRAMS[name]
    try:
        env, symbols, layout = symbolic_layout(program, hints)
    except DataDependentError:
        return  # a graph break, or an error that says what to check
    if layout is None:
        pytest.skip("PyTorch can't do this with unbacked sizes")
    conditions = [
        part.condition for part in (*env.guards(), *env.assumptions, *env.runtime_asserts)
    ]
    for values in itertools.product(OTHERS, OTHERS):
        sizes = dict(zip(symbols, values))
        if all(evaluate(cond, sizes) for cond in conditions):
            found, expected = at(layout, sizes), real_layout(program, values)
            if found != expected:
                assert found == static_layout(program, values), f"{values}: {conditions}"
                assert found[0] == expected[0], f"{values}: {conditions}"


def is_dense(x, of):
    """As C++ asks."""
    nodes = [n.node if isinstance(n, torch.SymInt) else of.node.wrap_int(n) for n in x.shape]
    steps = [n.node if isinstance(n, torch.SymInt) else of.node.wrap_int(n) for n in x.stride()]
    return of.node.is_non_overlapping_and_dense(nodes, steps).guard_bool("TensorImpl.cpp", 1)


def test_many_dimensions():
    env = ShapeEnv()
    n = to_torch(env.add_input("n", 5), env)
    x = tensor(n, 2, 3, 2, 3, 2, n)
    with enable_python_dispatcher():
        permuted = x.permute(3, 1, 6, 0, 2, 4, 5)
    assert is_dense(x, n) and is_dense(permuted, n) and not env.guards()
    assert not is_dense(torch.empty_strided(x.shape, [2 * n for n in x.stride()], device="meta"), n)
    assert [str(guard.condition) for guard in env.guards()] == ["s0 == 5"]


@pytest.mark.parametrize("sizes", [(2, 0, 4), (2, 3, 0), (0, 3, 4)])
def test_strides_of_nothing_are_compared(sizes) -> None:
    """PyTorch does so by division, and its own strides are never 0."""
    env = ShapeEnv()
    shape = [to_torch(env.add_input(f"size {dim}", size), env) for dim, size in enumerate(sizes)]
    turned = tensor(*shape).transpose(0, 1)
    with enable_python_dispatcher():
        for made in (tensor(1, 1, 1) * tensor(*shape), turned * turned, turned * tensor(1, 1)):
            assert made.dim() == 3 and not all(map(int, made.shape))
