"""Products of matrices by kernels of ours, with what is computed from their elements."""

import json

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from pliant.graph import generated_matmul
from pliant.targets.target import Slower
from pliant.targets.triton import blocks, kernel_source, target, tuning
from pliant.targets.triton.target import TritonTarget
from pliant.targets.triton.variants import variant_of

torch.manual_seed(0)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    for name in ("LARGE", "WORTH_TRYING"):
        monkeypatch.setattr(generated_matmul, name, 1)


@pytest.fixture
def tried(monkeypatch):
    """All products are generated, as with `mode="max-autotune"`."""
    monkeypatch.setattr(target, "TritonTarget", lambda place: TritonTarget(place, measures=True))


def close_to_exact(function, *args, dynamic=False, calls=1):
    """The result is that of the function in float32, rounded, with eager's metadata."""
    compiled = pliant.compile(
        function, backend="triton_interpreter", dynamic=dynamic, fullgraph=True
    )
    for _ in range(calls):
        got = compiled(*args)
        exact = function(*[t.float() for t in args])
        for ours, theirs, eager in zip(*map(_listed, (got, exact, function(*args))), strict=True):
            tolerance = 2e-2 if args[0].dtype is torch.bfloat16 else 3e-3
            torch.testing.assert_close(ours.float(), theirs, rtol=tolerance, atol=tolerance)
            assert (ours.dtype, ours.stride()) == (eager.dtype, eager.stride())
    return compiled


def _listed(result):
    return list(result) if isinstance(result, tuple) else [result]


def halves(*shapes, dtype=torch.bfloat16):
    return [torch.randn(*shape).div(shape[-1] ** 0.25).to(dtype) for shape in shapes]


SIZES = {
    "one tile": ((2, 33, 40), 51),
    "several tiles": ((300, 72), 517),
    "few rows": ((2, 16), 257),
    "longer than a block": ((40, 200), 31),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", SIZES)
def test_rows_that_libraries_would_pad(sizes, dtype, dynamic, kernels):
    """Which are those of the result: each is stored where it belongs."""
    shape, columns = SIZES[sizes]
    x, w, b = halves(shape, (columns, shape[-1]), (columns,), dtype=dtype)
    close_to_exact(lambda x, w: F.linear(x, w), x, w, dynamic=dynamic)
    close_to_exact(lambda x, w, b: F.linear(x, w, b), x, w, b, dynamic=dynamic)
    assert kernels.suffixes == {"_blocks"}
    kernels.compile_for(80, 90, "gfx942")


def test_one_kernel_for_all_sizes(kernels, seen):
    compiled = pliant.compile(F.linear, backend="triton_interpreter", dynamic=True)
    for rows, columns in ((5, 51), (200, 53), (3, 300), (128, 256), (1, 7)):
        x, w = halves((rows, 48), (columns, 48))
        exact = F.linear(x.float(), w.float())
        torch.testing.assert_close(compiled(x, w).float(), exact, rtol=2e-2, atol=2e-2)
    assert len({source for source, _ in kernels.ran}) == 1
    assert len(seen(events.CodeGenerated)) <= 2  # a row alone is no matrix


def test_operands_in_any_layout(kernels):
    x, w = halves((80, 96), (51, 96))
    layouts = {
        "by columns": lambda x, w: F.linear(x[:48].t(), w[:, :48]),
        "a part": lambda x, w: F.linear(x[8:, 16:80], w[:, 32:]),
        "a part that isn't aligned": lambda x, w: F.linear(x[:, 3:51], w[:, 1:49]),
        "every other": lambda x, w: F.linear(x[:, ::2], w[:, ::2]),
        "computed": lambda x, w: F.linear(x * 2, w.relu()),
    }
    for function in layouts.values():
        close_to_exact(function, x, w)
    assert kernels.suffixes >= {"_blocks", "_pointers"}


def test_products_that_are_read_stay_the_library_s(seen):
    """Kernels that read a product skip what pads it."""
    x, w = halves((30, 40), (51, 40))
    for function in (
        lambda x, w: F.linear(x, w).softmax(-1),
        lambda x, w: (y := F.linear(x, w), y.sum()),
        lambda x, w: F.linear(x, w[:48]),
    ):
        close_to_exact(function, x, w)
        generated = seen(events.CodeGenerated)[-1]
        assert sum(generated.called.values()) == 1


FUSED = {
    "silu of another": lambda x, w, v, r: F.silu(F.linear(x, w)) * F.linear(x, v),
    "residual": lambda x, w, v, r: r + F.linear(x, w),
    "bias and gelu": lambda x, w, v, r: F.gelu(F.linear(x, w, v[:, 0])),
    "two results": lambda x, w, v, r: ((y := F.linear(x, w)), y.relu() * r),
    "scaled rows": lambda x, w, v, r: F.linear(x, w) * r[..., :1],
    "in place": lambda x, w, v, r: F.linear(x, w).mul_(2).add_(r),
    "then a norm": lambda x, w, v, r: F.layer_norm(F.linear(x, w) + r, (56,)),
    "of a product": lambda x, w, v, r: F.linear(F.linear(x, w).relu(), v.t()),
    "into float32": lambda x, w, v, r: F.linear(x, w).float() + 1,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FUSED)
def test_what_is_computed_from_a_product_is_in_its_kernel(name, dynamic, kernels, tried, seen):
    x, w, v, r = halves((2, 70, 40), (56, 40), (56, 40), (2, 70, 56))
    with torch.no_grad():
        close_to_exact(FUSED[name], x, w, v, r, dynamic=dynamic)
    generated = seen(events.CodeGenerated)[-1]
    products = {"silu of another": 2, "of a product": 2}.get(name, 1)
    norms = {"then a norm": 1}.get(name, 0)
    assert len(generated.kernels()) == products + norms
    assert not generated.called
    kernels.compile_for(90)


def test_gradients(tried, seen):
    """Products of the backward are the same kernels, with operands stored by columns."""
    x, w = halves((64, 40), (56, 40))
    outcomes = []
    for function in (
        lambda x, w: F.silu(F.linear(x, w)) * 2,
        pliant.compile(
            lambda x, w: F.silu(F.linear(x, w)) * 2, backend="triton_interpreter", fullgraph=True
        ),
    ):
        leaves = [t.detach().clone().requires_grad_() for t in (x, w)]
        result = function(*leaves)
        result.sum().backward()
        outcomes.append([result.detach(), *[leaf.grad for leaf in leaves]])
    torch.testing.assert_close(*outcomes, rtol=3e-2, atol=3e-2)
    assert [generated.called for generated in seen(events.CodeGenerated)] == [{}, {}]


def test_a_product_that_is_slower_is_the_library_s(tried, monkeypatch, seen):
    def compile(self, source):
        if source.trial.depth:
            raise Slower("PyTorch's product takes 1 us, a kernel 2")
        return compiled(self, source)

    compiled = TritonTarget.compile
    monkeypatch.setattr(TritonTarget, "compile", compile)
    x, w, v = halves((70, 40), (56, 40), (56, 40))
    with torch.no_grad():
        close_to_exact(lambda x, w, v: (F.linear(x, w) * 2, F.linear(x, v) + 1), x, w, v)
    generated = seen(events.CodeGenerated)[-1]
    assert sum(generated.called.values()) == 2 and len(generated.kernels()) == 2
    assert not seen(events.KernelFailed)


# --------------------------------------------------------------------------------------------------
# Which tile


class Kernel:
    """Stands for a kernel of which each tile takes a time of its own."""

    place = torch.device("cpu")

    def __init__(self, printed, seconds):
        self.printed, self.seconds, self.asked = printed, seconds, []

    def usual_blocks(self, numbers):
        return blocks.PRODUCT

    def launches(self, tiles, numbers, memory):
        self.asked.append([tensor.numel() for tensor in memory])
        return {tile: self.seconds[tile] for tile in tiles if tile in self.seconds}


@pytest.fixture
def product(tried, monkeypatch):
    """The kernel of a product, and the trial for its sizes."""
    sources = []
    generate = TritonTarget.generate

    def keep(self, kernel, hint):
        sources.append(generate(self, kernel, hint))
        return sources[-1]

    monkeypatch.setattr(TritonTarget, "generate", keep)
    monkeypatch.setattr(tuning, "_KNOWN", {})
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda place: "some GPU")
    monkeypatch.setattr(tuning, "seconds_of", lambda call: call if type(call) is float else 3.0)
    x, w = halves((70, 40), (56, 40))
    with torch.no_grad():
        pliant.compile(F.linear, backend="triton_interpreter")(x, w)
    (source,) = sources
    return source


def test_the_fastest_tile_is_kept(product, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PLIANT_CACHE", "1")
    assert product.trial == tuning.TileTrial((70 * 40, 56 * 40, 70 * 56), 40)
    times = {tile: 2.0 + at for at, tile in enumerate(blocks.PRODUCTS)}
    fastest = blocks.PRODUCTS[2]
    kernel = Kernel(product.printed, times | {fastest: 1.0})
    expected = tuning.TileChoice(fastest, 1.0)
    assert tuning.choose_tile(kernel, product.expected, product.trial) == expected
    assert kernel.asked == [[70 * 40, 56 * 40, 70 * 56]]
    tuning._KNOWN.clear()  # another process
    silent = Kernel(product.printed, {})
    assert tuning.choose_tile(silent, product.expected, product.trial) == expected
    assert silent.asked == []
    # What isn't one of the tiles that are tried is no answer.
    monkeypatch.setattr(blocks, "PRODUCTS", ())
    monkeypatch.setattr(tuning, "PRODUCTS", ())
    tuning._KNOWN.clear()
    other = Kernel(product.printed, {blocks.PRODUCT: 1.0})
    assert tuning.choose_tile(other, product.expected, product.trial).blocks == blocks.PRODUCT
    assert other.asked


def test_the_usual_tile_stays_where_little_is_gained(product):
    times = dict.fromkeys(blocks.PRODUCTS, 0.99) | {blocks.PRODUCT: 1.0}
    kernel = Kernel(product.printed, times)
    choice = tuning.choose_tile(kernel, product.expected, product.trial)
    assert choice == tuning.TileChoice(blocks.PRODUCT, 1.0)


def test_a_faster_library_is_told(product):
    kernel = Kernel(product.printed, dict.fromkeys(blocks.PRODUCTS, 4.0))
    choice = tuning.choose_tile(kernel, product.expected, product.trial)
    assert (choice.seconds, choice.library) == (4.0, 3.0)


def test_a_product_without_a_tile_that_fits_is_the_library_s(product):
    choice = tuning.choose_tile(Kernel(product.printed, {}), product.expected, product.trial)
    assert (choice.seconds, choice.library) == (float("inf"), 3.0)


def test_what_can_not_be_measured_is_not(product, monkeypatch):
    def refuse(*args):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(Kernel, "launches", refuse)
    kernel = Kernel(product.printed, {})
    assert tuning.choose_tile(kernel, product.expected, product.trial) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"blocks": 3}', b"\xff", b"[" * 10_000])
def test_what_is_on_disk_may_be_anything(content, monkeypatch):
    class Cache:
        def load(self, key):
            return content

    monkeypatch.setattr(tuning, "from_environment", Cache)
    assert tuning._on_disk("key") is None


def test_a_kernel_and_its_layouts(product):
    """Operands of which not all numbers are multiples of 16 bytes are loaded by pointers."""
    printed = product.printed
    assert printed.described == (0, 1) and not printed.arguments
    described = [
        variant_of(printed, blocks.PRODUCT, False, fulfilled).blocks.suffix
        for fulfilled in ((True, True, True), (True, True, False), (False, True, True))
    ]
    assert described == ["_blocks", "_blocks", "_pointers"]
    assert json.dumps(kernel_source.printed(product.kernel).source)
