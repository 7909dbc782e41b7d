"""Programs through Triton kernels, interpreted on CPU tensors, do what they do in eager PyTorch;
the kernels are also compiled for GPUs."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends import compile_graph
from pliant.base import events
from pliant.graph import split_reductions
from pliant.targets.triton import launch

torch.manual_seed(0)
X, Y, W = torch.randn(6, 40), torch.randn(6, 40), torch.randn(40)
ROWS, COLUMNS = torch.randint(0, 6, (9,)), torch.randint(0, 40, (6, 5))
ODD = torch.tensor([[1.0, float("nan"), 3.0], [float("inf"), 2.0, 2.0], [-1.0, -0.0, 0.0]])

POINTWISE = {
    "broadcast": (lambda x, w: (x + w).sigmoid() * w, (X, W)),
    "transpose": (lambda x: x.t().contiguous() + 1, (X,)),
    "strided": (lambda x: x[:, ::2] * x[:, ::2].exp(), (X,)),
    "permuted": (lambda x: x.view(2, 3, 40).permute(2, 0, 1) + 1, (X,)),
    "outer loops": (lambda x: (x.view(6, 2, 4, 5) + x.view(6, 2, 4, 5)[:, :1, :, :1]).exp(), (X,)),
    "scalar": (lambda x: x.sum() * 2 + 1, (X,)),
    "bfloat16": (lambda x: (x.bfloat16() + 1).exp(), (X,)),
    "smallest bfloat16": (lambda x: x.bfloat16().float() * 1e30, (X * 1e-39,)),
    "bfloat16 where": (lambda x: torch.where(x > 0, x, 2.0), (X.bfloat16(),)),
    "float16": (lambda x: (x * 2).tanh(), (X.half(),)),
    "float64": (lambda x: x.exp().log1p(), (X.double(),)),
    "negative zeros": (
        lambda x: ((-(x * 0)).signbit(), torch.where(x > 0, -0.0, x * 0).signbit()),
        (X,),
    ),
    "negative zeros of halves": (lambda x: (x * 0).neg().signbit(), (X.bfloat16(),)),
    "filled with negative zeros": (lambda x: (torch.full_like(x, -0.0), 1 / x.neg()), (X * 0,)),
    "numbers beside float64": (
        lambda x: (x < 0.1, x == 0.1, x.clamp(0.1, 0.7), torch.where(x > 0, x, 0.1), x + 0.1),
        (torch.tensor([0.1, 0.05, 3.0, -1.0], dtype=torch.float64),),
    ),
    "numbers beside int8": (
        lambda i: ((i.relu() + 120) > 100, (i.clamp(3, 110) + 120) // 3, i != 3),
        (torch.tensor([1, 100, 120, -3], dtype=torch.int8),),
    ),
    "numbers beside a byte": (
        lambda i: ((i.relu() + 250) > 100, i.relu().remainder(7)),
        (torch.tensor(44, dtype=torch.uint8),),
    ),
    "all bits of bytes": (lambda x: (~x.to(torch.uint8), ~x.to(torch.int16)), (X.abs() * 9,)),
    "integers": (lambda x: (x * 10).int() * 3 - 7, (X,)),
    "bytes": (lambda x: x.to(torch.uint8) + 250, (X.abs() * 9,)),
    "shifts": (lambda i: (i << 2) | (i >> 1), (ROWS,)),
    "bools": (lambda x, y: (x > 0) & ~(y > 0) | (x < y), (X, Y)),
    "bool order": (lambda x, y: (x > 0) < (y > 0), (X, Y)),
    "where": (lambda x, y: torch.where(x > 0, x, y), (X, Y)),
    "float division": (lambda x, y: (x // y, x % y, torch.fmod(x, y)), (X * 5, Y)),
    "division by large numbers": (lambda x, y: x // y, (X * 1e38, Y.sign() * 1e38)),
    "rounding": (lambda x: (x.round(), x.floor(), x.trunc(), x.sign()), (X * 3,)),
    "nans": (lambda x: (x.clamp(min=0), torch.fmax(x, x * 0), x.relu()), (ODD,)),
    "power": (lambda x: x.abs() ** 1.7, (X,)),
    "number": (lambda x, a: x * a + 1, (X, 2.5)),
    "positions": (lambda x: x + torch.arange(40, device=x.device), (X,)),
    "every other position": (lambda x: x + torch.arange(0, 80, 2, device=x.device), (X,)),
    "cat": (lambda x, y: torch.cat([x, y], 1) * 2, (X, Y)),
    "pad": (lambda x: F.pad(x, (1, 2)), (X,)),
    "flip": (lambda x: x.flip(1), (X,)),
    "reshaped": (lambda x: x.view(3, 80) + x.t().reshape(3, 80), (X,)),
    "in place": (lambda x: x.mul_(2).add_(1), (X,)),
    "embedding": (F.embedding, (ROWS, X)),
    "gather": (lambda x, i: x.gather(1, i), (X, COLUMNS)),
    "index": (lambda x, i: x[i - 6] + 1, (X, ROWS)),
    "take along": (lambda x, i: torch.take_along_dim(x, i - 40, 1), (X, COLUMNS)),
    "nearest": (lambda x: F.interpolate(x.view(1, 1, 6, 40), scale_factor=2.0), (X,)),
}
IDS = torch.tensor([5, 0, 2, 2, 5, 0, 2])
SEVEN = torch.randn(7, 40)
SCATTERED = {
    "scatter add": (lambda x, i, s: x.scatter_add(1, i, s * 2) + 1, (X, COLUMNS, Y)),
    "scatter add of bfloat16": (
        lambda x, i, s: x.scatter_add(1, i, s),
        (X.bfloat16(), COLUMNS, Y.bfloat16()),
    ),
    "scatter add of integers": (lambda i: (i * 0).scatter_add(1, i.clamp(max=4), i), (COLUMNS,)),
    "scatter add to one place": (
        lambda x, i: x.new_zeros(1).scatter_add(0, i * 0, x.view(-1)),
        (X, torch.arange(240)),
    ),
    "index add": (lambda x, i, s: x.index_add(0, i, s), (X, IDS, SEVEN)),
    "index add of columns": (lambda x, i, s: x.t().index_add(1, i, s.t()), (X, IDS, SEVEN)),
    "index add of float64": (
        lambda x, i, s: x.index_add(0, i, s),
        (X.double(), IDS, SEVEN.double()),
    ),
    "index add in place": (lambda x, i, s: x.index_add_(0, i, s), (X, IDS, SEVEN)),
    "index put": (lambda x, i, s: x.index_put((i - 6,), s, accumulate=True), (X, IDS, SEVEN)),
    "index put of one index": (
        lambda x, i: x.index_put((i[:1].expand(9),), x.new_ones(()), accumulate=True),
        (X, IDS),
    ),
    "index put of pairs": (
        lambda x, i, s: x.index_put((i, i * 3), s[:, 0], accumulate=True),
        (X, IDS, SEVEN),
    ),
    "counts": (lambda x, i: x.new_zeros(6).index_add(0, i, x.new_ones(7)), (X, IDS)),
    "one hot": (lambda x, i: x.new_zeros(7, 6).scatter(1, i[:, None], 1.0) * 2, (X, IDS)),
    "index fill": (lambda x, i: x.index_fill(0, i, 3.0), (X, IDS)),
    "index set to a number": (lambda x, i: x.index_put((i,), x.new_full((), 2.0)), (X, IDS)),
    "index set to a row": (lambda x, i, w: x.index_put((i,), w), (X, IDS, W)),
}
BY_ROWS = {
    "softmax": (lambda x: torch.softmax(x, -1), (X,)),
    "softmax of columns": (lambda x: torch.log_softmax(x, 0), (X,)),
    "softmax of bfloat16": (lambda x: torch.softmax(x, -1), (X.bfloat16(),)),
    "layer norm": (lambda x, w: F.layer_norm(F.gelu(x), (40,), w, w), (X, W)),
    "rms norm": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6) * w, (X, W)),
    "batch norm": (lambda x: F.batch_norm(x.view(6, 4, 10), None, None, training=True), (X,)),
    "sum": (lambda x: x.sum(1), (X,)),
    "sum of rows": (lambda x: x.sum(0), (X,)),
    "sum of all": (lambda x: x.sum(), (X,)),
    "sum of two dimensions": (lambda x: x.view(2, 3, 40).sum((0, 2)), (X,)),
    "sum of integers": (lambda i: i.sum(1), (COLUMNS,)),
    "variance": (lambda x: (x.var(1), x.std(0)), (X,)),
    "product": (lambda x: x.prod(1), (X,)),
    "maximum": (lambda x: (x.max(1), x.amin(0)), (X,)),
    "maximum of nans": (lambda x: (x.amax(1), x.amin(1)), (ODD,)),
    "position": (lambda x: (x.argmax(1), x.argmin(0)), (X,)),
    "position of nans": (lambda x: (x.argmax(1), x.argmin(1)), (ODD,)),
    "position of equals": (lambda x: (x.argmax(1), x.argmin(1)), (COLUMNS // 20,)),
    "any": (lambda x: ((x > 2).any(1), (x > -3).all(0)), (X,)),
    "no columns": (lambda x: (x.sum(1), (x + 1).prod(1)), (X[:, :0],)),
    "running sum": (lambda x: (x * 2).cumsum(1) + 1, (X,)),
    "running sum of columns": (lambda x: x.cumsum(0), (X,)),
    "running sum of a middle dimension": (lambda x: x.view(2, 3, 40).cumsum(1), (X,)),
    "running sum of bfloat16": (lambda x: x.cumsum(1), (X.bfloat16(),)),
    "running sum of integers": (lambda i: i.cumsum(1), (COLUMNS,)),
    "running sum of one row": (lambda w, x: w.expand_as(x).cumsum(1) + x, (W, X)),
    "running sum of a sum": (lambda x: (x - x.sum(1, True)).cumsum(1), (X,)),
    "running sum of a running sum": (lambda x: x.cumsum(1).cumsum(1), (X,)),
    "running product": (lambda x: x.cumprod(1), (X,)),
    "running product of zeros": (lambda x: 1 / x.cumprod(1), (X.round(),)),
    "running maximum": (lambda x: x.cummax(0), (X,)),
    "running minimum": (lambda i: i.cummin(1), (COLUMNS,)),
    "running maximum of bools": (lambda x: (x > 1).cummax(1), (X,)),
    "running maximum of nans": (lambda x: x.cummax(0), (ODD,)),
    "running minimum of nans": (lambda x: x.cummin(0), (ODD.t().contiguous(),)),
    "running logarithm of a sum": (lambda x: x.logcumsumexp(1), (X,)),
    "running logarithm of infinities": (lambda x: x.logcumsumexp(1), (ODD / 0,)),
    "masked scatter": (lambda x, y: x.masked_scatter(x > 0, y), (X, Y)),
}


def same(function, args, **options):
    """What a function gives compiled is what it gives eagerly, and so is what it leaves behind."""
    first, second = ([a.clone() if torch.is_tensor(a) else a for a in args] for _ in range(2))
    compiled = pliant.compile(function, backend="triton_interpreter", **options)
    torch.testing.assert_close(compiled(*first), function(*second), equal_nan=True)
    torch.testing.assert_close(first, second, equal_nan=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [*POINTWISE, *BY_ROWS])
def test_program(name, dynamic, kernels):
    same(*(POINTWISE | BY_ROWS)[name], dynamic=dynamic)
    assert kernels.ran or name == "no columns"
    kernels.compile_for(*(("gfx942", 90) if dynamic else (80,)))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SCATTERED)
def test_updates_in_any_order(name, dynamic, kernels, seen):
    same(*SCATTERED[name], dynamic=dynamic)
    assert not [op for event in seen(events.CodeGenerated) for op in event.called]
    adds = [source for source, _ in kernels.ran if "tl.atomic_add" in source]
    assert len(adds) == (not name.startswith(("one", "index fill", "index set")))
    kernels.compile_for(*(("gfx942", 90) if dynamic else (80,)))


@pytest.fixture
def split(monkeypatch):
    """Split reductions as for a GPU, from such limits on."""

    def change(**limits):
        simplify = compile_graph.simplify

        def simplify_and_split(function, target, hint):
            simplify(function, target, hint)
            split_reductions.split_reductions(function, hint)

        monkeypatch.setattr(compile_graph, "simplify", simplify_and_split)
        for name, number in limits.items():
            monkeypatch.setattr(split_reductions, name, number)

    return change


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_reductions_in_two_steps(dim, dynamic, kernels, split):
    """As on a GPU, where rows are much longer."""
    split(LONG=16, ALONG=8, TALL=4, ACROSS=2, MOST_ACROSS=2)
    same(lambda x: ((x * 2).sum(dim), (x - 9).amax(dim)), (X,), dynamic=dynamic)
    assert len(kernels.ran) >= 2
    kernels.compile_for(80, 90, "gfx942")


SUMS_OF_COLUMNS = {
    "sum": lambda x: (x * 2).sum(0),
    "largest": lambda x: (x - 9).amax(0),
    "smallest": lambda x: x.amin(0),
    "parts of rows": lambda x: torch.cat([x, x + 1]).sum(0),
}


@pytest.mark.parametrize("splits", [False, True])
@pytest.mark.parametrize("sizes", [(200, 21), (256, 24), (61, 8)])
@pytest.mark.parametrize("name", SUMS_OF_COLUMNS)
def test_long_columns_are_loaded_without_masks_where_none_is_needed(
    name, sizes, splits, kernels, split
):
    """In tiles and parts that are full, and not in those at the end. With masks, machine code has
    one load at a time in flight."""
    if splits:
        split(TALL=4, ACROSS=64, MOST_ACROSS=64)
    torch.manual_seed(0)
    same(SUMS_OF_COLUMNS[name], (torch.randn(sizes),), dynamic=True)
    (long,) = [s for s, variant in kernels.ran if variant.blocks.suffix == "_looped"]
    conditions = [line for line in long.splitlines() if "if all_rows & " in line]
    assert conditions and any("tl.load" in line and "in_" not in line for line in long.splitlines())
    if splits and sizes[0] > 64 and name != "parts of rows":
        assert all(" < s0_wide)" in line for line in conditions)  # up to what was filled up
    kernels.compile_for(80, 90, "gfx942")


PUT_TOGETHER = {
    "padded": lambda x: F.pad(x, (0, 15)) * 2,
    "padded on all sides": lambda x: F.pad(x, (3, 12, 1, 2)) + 1,
    "joined": lambda x: torch.cat([x, x[:, :30] + 1], 1) * 2,
    "a part of each row": lambda x: torch.where(torch.arange(x.size(1)) < 2500, x, x.neg()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PUT_TOGETHER)
def test_a_mask_within_a_vector_is_for_the_tiles_that_it_cuts(name, dynamic, kernels):
    """All other tiles load without it, so that each thread loads several elements at a time."""
    same(PUT_TOGETHER[name], (torch.randn(3, 3001),), dynamic=dynamic)
    (source,) = [source for source, _ in kernels.ran]
    twice = "if (last.to(tl.int64) <" in source
    assert twice == (name in ("padded", "joined"))
    if twice:
        first, second = source.partition("    if ")[2].split("    else:\n")
        loads = [line for line in first.splitlines() if "tl.load(" in line]
        assert any("mask=in_rows & in_columns)" in line for line in loads)
        assert "other=0" in second
    kernels.compile_for(80, 90, "gfx942")


def test_deterministic_sums_are_pytorchs(kernels):
    function, args = SCATTERED["scatter add"]
    compiled = pliant.compile(function, backend="triton_interpreter")
    torch.use_deterministic_algorithms(True)
    try:
        torch.testing.assert_close(compiled(*args), function(*args))
        assert not any("tl.atomic_add" in source for source, _ in kernels.ran)
    finally:
        torch.use_deterministic_algorithms(False)
    torch.testing.assert_close(compiled(*args), function(*args))
    assert any("tl.atomic_add" in source for source, _ in kernels.ran)


def test_the_last_of_several_updates_is_pytorchs(kernels):
    same(lambda x, i, s: x.index_copy(0, i, s), (X, IDS, SEVEN))
    same(lambda x, i, s: x.scatter(1, i, s), (X, COLUMNS % 3, Y))
    same(lambda x, i, s: x.index_put((i,), s), (X, IDS, SEVEN))
    same(lambda x, i, s: x.index_put((i,), s[:, :1]), (X, IDS, SEVEN))
    assert not kernels.ran


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_that_are_longer_than_a_tile(name, dynamic, kernels, whole):
    whole(2)
    same(*BY_ROWS[name], dynamic=dynamic)
    assert "_looped" in kernels.suffixes or name == "no columns"
    kernels.compile_for(80 if dynamic else 90)


ENDINGS = {
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "largest": lambda x: (x.amax(1), x.amin(1), (x > 2).any(1)),
    "normalized": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, True) + 1e-6),
}


@pytest.mark.parametrize("columns", [5, 4096, 4097, 8205, 8192 + 16])
@pytest.mark.parametrize("name", ENDINGS)
def test_rows_that_end_within_a_vector(name, columns, kernels, whole):
    """Whole blocks are loaded as vectors, without masks; what is left has a loop of its own."""
    whole(1)
    x = torch.randn(2, columns)
    same(ENDINGS[name], (x,), dynamic=False)
    (source,) = {source for source, _ in kernels.ran}
    looped = source[source.index("_looped") :]
    loads = [line for line in looped.splitlines() if "tl.load(" in line]
    assert any("mask" not in line for line in loads) == (columns % 16 != 0)
    kernels.compile_for(90)


@pytest.mark.parametrize("name", ["softmax", "embedding", "reshaped", "transpose", "nearest"])
def test_indices_of_64_bits(name, kernels, monkeypatch):
    monkeypatch.setattr(launch, "NARROW", 0)
    same(*(POINTWISE | BY_ROWS)[name], dynamic=True)
    assert all(variant.wide for _, variant in kernels.ran)
    kernels.compile_for(90)


def test_one_kernel_for_all_sizes(kernels):
    compiled = pliant.compile(
        lambda x, w: F.layer_norm(x + w, x.shape[-1:]), backend="triton_interpreter", dynamic=True
    )
    for rows, columns in [(3, 5), (4, 70), (1, 3), (5, 0), (0, 4), (2, 300)]:
        x, w = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, w), F.layer_norm(x + w, (columns,)))
    assert len({source for source, _ in kernels.ran}) <= 3  # two where a size is 1 or 0
    assert max(variant.blocks.columns for _, variant in kernels.ran) == 512


def test_an_index_that_is_out_of_range(kernels):
    """The kernel asserts; on a CPU PyTorch then says what is wrong."""
    compiled = pliant.compile(F.embedding, backend="triton_interpreter")
    compiled(ROWS, X)
    with pytest.raises(IndexError, match="out of range"):
        compiled(ROWS + 1, X)
    assert "tl.device_assert" in next(iter(kernels.ran))[0]
    kernels.compile_for(90)


def test_operators_without_a_kernel_stay_with_pytorch(kernels):
    same(lambda x: x.t() @ (x.sort(1)[0] + 1).exp() + 1, (X,))
    assert len(kernels.ran) == 2  # before and after the product
    same(lambda x, y: x // y, (ROWS, ROWS + 1))
    assert len(kernels.ran) == 2  # an integer divided by 0 raises on the CPU only


READ = {
    "index": lambda x: x[IDS].exp().sum(),
    "gather": lambda x: x.gather(1, COLUMNS).exp().sum(),
    "index select": lambda x: (x.index_select(0, IDS) * 2).exp().sum(),
}


@pytest.mark.parametrize("name", READ)
def test_gradients_of_reads(name, kernels):
    """They are sums of all that was read from one place."""
    function = READ[name]
    grads = []
    for one in (function, pliant.compile(function, backend="triton_interpreter")):
        x = X.clone().requires_grad_()
        one(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)
    assert any("tl.atomic_add" in source for source, _ in kernels.ran)
    kernels.compile_for(80, 90, "gfx942")


def test_training_step(kernels):
    def step(x, w):
        return F.gelu(x @ w).sum()

    grads = []
    for function in (step, pliant.compile(step, backend="triton_interpreter")):
        x, w = X.clone().requires_grad_(), Y.t().clone().requires_grad_()
        function(x, w).backward()
        grads.append((x.grad, w.grad))
    torch.testing.assert_close(*grads)
    assert kernels.ran
