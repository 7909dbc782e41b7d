"""Products of matrices on a GPU by kernels of ours, and what is measured for them."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from pliant.graph import generated_matmul
from pliant.targets.triton import blocks, launch, tuning

pytestmark = pytest.mark.own_default
MODES = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
AUTOTUNED = "max-autotune-no-cudagraphs"


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    for name in ("LARGE", "WORTH_TRYING"):
        monkeypatch.setattr(generated_matmul, name, 1)
    monkeypatch.setattr(tuning, "_KNOWN", {})


@pytest.fixture
def ours(monkeypatch):
    """No library is faster."""
    monkeypatch.setattr(tuning, "_library", lambda *args: 1.0)


def halves(*shapes, dtype=torch.bfloat16):
    return [torch.randn(*shape, device="cuda").div(shape[-1] ** 0.25).to(dtype) for shape in shapes]


def check(function, *args, calls=2, **options):
    """The result is that of the function in float32, rounded."""
    compiled = pliant.compile(function, fullgraph=True, **options)
    with torch.no_grad():
        for _ in range(calls):
            got, exact = compiled(*args), function(*[t.float() for t in args])
            eager = function(*args)
            assert (got.dtype, got.stride()) == (eager.dtype, eager.stride())
            torch.testing.assert_close(got.float(), exact, rtol=2e-2, atol=2e-2)
    return compiled


SHAPES = [((2, 33, 40), 51), ((300, 72), 517), ((2, 16), 257), ((40, 200), 31)]
SHAPES += [((4, 512, 768), 1003), ((1000, 64), 4099), ((8, 2048), 5)]


@MODES
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("shape", "columns"), SHAPES)
def test_rows_that_libraries_would_pad(shape, columns, dtype, dynamic, seen) -> None:
    x, w, b = halves(shape, (columns, shape[-1]), (columns,), dtype=dtype)
    check(F.linear, x, w, dynamic=dynamic)
    check(F.linear, x, w, b, dynamic=dynamic)
    assert not any(generated.called for generated in seen(events.CodeGenerated))


def test_one_kernel_for_all_sizes(seen) -> None:
    compiled = pliant.compile(F.linear, dynamic=True)
    for rows, columns in ((5, 51), (200, 53), (3, 300), (5000, 777), (128, 256), (7, 3)):
        x, w = halves((rows, 64), (columns, 64))
        with torch.no_grad():
            exact = F.linear(x.float(), w.float())
            torch.testing.assert_close(compiled(x, w).float(), exact, rtol=2e-2, atol=2e-2)
    assert len(seen(events.CodeGenerated)) == 1


@pytest.mark.parametrize("tile", blocks.PRODUCTS)
def test_every_tile_that_is_tried(tile, monkeypatch) -> None:
    monkeypatch.setattr(launch, "blocks_for", lambda *args: tile)
    x, w = halves((700, 200), (517, 200))
    check(F.linear, x, w)
    check(lambda x, w: F.linear(x[:, 1:193], w[:, 3:195]), x, w, mode=AUTOTUNED)


LAYOUTS = {
    "by columns": lambda x, w: F.linear(x[:96].t(), w[:, :96]),
    "a part": lambda x, w: F.linear(x[8:, 16:80], w[:, 32:96]),
    "a part that isn't aligned": lambda x, w: F.linear(x[:, 3:51], w[:, 1:49]),
    "every other": lambda x, w: F.linear(x[:, ::2], w[:, ::2]),
    "computed": lambda x, w: F.linear(x * 2, w.relu()),
    "with a residual": lambda x, w: F.linear(x, w) + x[:, :1],
    "silu of another": lambda x, w: F.silu(F.linear(x, w)) * F.linear(x, w * 2),
    "then a norm": lambda x, w: F.layer_norm(F.gelu(F.linear(x, w)), w.shape[:1]),
}


@MODES
@pytest.mark.parametrize("name", LAYOUTS)
def test_products_that_are_measured(name, dynamic, ours, seen) -> None:
    x, w = halves((160, 96), (120, 96))
    check(LAYOUTS[name], x, w, dynamic=dynamic, mode=AUTOTUNED)
    assert not seen(events.CodeGenerated)[-1].called


def test_the_faster_one_is_taken(monkeypatch, seen) -> None:
    """Whichever that is, it is said, and the result is right."""
    monkeypatch.setattr(generated_matmul, "WORTH_TRYING", 1 << 20)
    x, w = halves((2048, 1024), (4096, 1024))
    program = lambda x, w: F.silu(F.linear(x, w)) * 2  # noqa: E731
    check(program, x, w, mode="max-autotune", calls=4)
    (choice,) = tuning._KNOWN.values()
    assert 0 < choice.seconds < 1
    called = seen(events.CodeGenerated)[-1].called
    assert bool(choice.library) == bool(called)
    state = torch.cuda.get_rng_state()
    pliant.compile(program, mode=AUTOTUNED)(x, w)
    assert torch.equal(torch.cuda.get_rng_state(), state)


@pytest.mark.parametrize("rows", [300, 20_000])
def test_other_kernels_that_run_long(rows) -> None:
    x = torch.randn(rows, 1000, device="cuda")
    for program in (
        lambda x: x.sin() + x,
        lambda x: x.softmax(-1),
        lambda x: x.sum(0),
        lambda x: x.t().contiguous() * 2,
        lambda x: x.cumsum(1),
    ):
        compiled = pliant.compile(program, mode=AUTOTUNED)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-2)


def test_gradients(ours, seen) -> None:
    x, w = halves((640, 96), (560, 96))
    outcomes = []
    for wrap in (lambda f: f, lambda f: pliant.compile(f, mode=AUTOTUNED, fullgraph=True)):
        leaves = [t.detach().clone().requires_grad_() for t in (x, w)]
        result = wrap(lambda x, w: F.silu(F.linear(x, w)) * 2)(*leaves)
        result.sum().backward()
        outcomes.append([result.detach(), *[leaf.grad for leaf in leaves]])
    torch.testing.assert_close(*outcomes, rtol=5e-2, atol=1e-1)
    assert not any(generated.called for generated in seen(events.CodeGenerated))
