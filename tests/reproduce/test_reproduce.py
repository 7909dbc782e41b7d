"""`pliant.repro`: planted bugs become scripts that repeat them."""

import random
import subprocess
import sys

import pytest
import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop

import pliant
from tests.reproduce import planted
from tests.support.processes import environment

pytestmark = pytest.mark.own_default


@pytest.fixture
def plant(monkeypatch):
    """Plant a bug for the rest of the test."""
    return lambda name: monkeypatch.setattr(*getattr(planted, name)())


def run(scripts, bug=None):
    """Run scripts in a process of their own, with a bug planted there or without."""
    module = ["-m", "tests.reproduce.planted", bug] if bug else []
    return subprocess.run(
        [sys.executable, *module, *map(str, scripts)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def repeats(reproduction, bug, error="AssertionError"):
    """The script fails in a process with the bug."""
    assert reproduction.script == reproduction.path.read_text()
    with_bug = run([reproduction.path], bug)
    assert with_bug.returncode == 1, with_bug.stdout
    assert error in with_bug.stderr
    return True


def long_program(x, y):
    for _ in range(50):
        x = torch.sin(x) * 0.01 + x
    for _ in range(20):
        x = (x @ y.diag()).relu() * 0.01 - x
    x = torch.tanh(x)
    for _ in range(35):
        x = torch.cos(x) * 0.01 + x
    return x


def test_a_wrong_kernel_in_300_nodes_is_found(plant, tmp_path):
    plant("wrong_kernel")
    args = torch.randn(40, 30), torch.randn(30)
    (graph,) = pliant.explain(long_program)(*args).graphs
    assert sum(node.op.startswith("call_") for node in graph.graph.nodes) >= 300
    found = pliant.repro(long_program, path=tmp_path)(*args)
    assert found.nodes <= 3
    assert found.layer == "a kernel, for tanh"
    assert "torch.randn(1, 1)" in found.script
    assert len(found.script.splitlines()) < 40
    assert repeats(found, "wrong_kernel")
    assert run([found.path]).returncode == 0  # it fails because of the bug


def test_nothing_is_wrong(tmp_path):
    found = pliant.repro(long_program, path=tmp_path)(torch.randn(4, 3), torch.randn(3))
    assert found.failure is None
    assert found.path is None
    assert str(found) == "pliant does what eager PyTorch does; nothing is written"
    assert list(tmp_path.iterdir()) == []


def test_rounding_is_not_wrong(tmp_path):
    def chaotic(x):
        for _ in range(40):
            x = 3.9 * x * (1 - x)
        return x.sum()

    found = pliant.repro(chaotic, path=tmp_path)(torch.rand(100))
    assert found.failure is None, found


@pytest.mark.filterwarnings("ignore")
def test_rounding_in_a_loop_is_not_wrong(tmp_path):
    def chaotic(x):
        step = lambda i, y: (i + 1, 3.9 * y * (1 - y))  # noqa: E731
        return while_loop(lambda i, y: i < 40, step, (torch.tensor(0), x))[1].sum()

    found = pliant.repro(chaotic, path=tmp_path)(torch.rand(100))
    assert found.failure is None, found


def a_branch(x):
    return torch.cond(x.sum() > 0, lambda y: torch.tanh(y) + 1, lambda y: y - 1, (x.abs(),)) * 2


def a_loop(x):
    step = lambda i, y: (i + 1, torch.tanh(y))  # noqa: E731
    return while_loop(lambda i, y: i < 3, step, (torch.tensor(0), x.cos()))[1] * 2


def a_scan(x):
    return scan(lambda carry, row: (carry + torch.tanh(row), row.cos()), x[0].clone(), x.abs())


def a_map(x):
    return map_over(lambda row: torch.tanh(row) + 1, x.cos()) * 2


CONTROL_FLOW = {"cond": a_branch, "while_loop": a_loop, "scan": a_scan, "map_over": a_map}


@pytest.mark.filterwarnings("ignore")
def test_a_wrong_kernel_in_a_body(plant, tmp_path):
    plant("wrong_kernel")
    scripts = []
    for operator, function in CONTROL_FLOW.items():
        x = torch.rand(4, 3)
        found = pliant.repro(function, path=tmp_path)(x)
        assert found.layer == f"a kernel, for {operator}"
        assert found.nodes == 1
        scripts.append(found.path)
        function(x)  # PyTorch compiles what is outside of a compiled function, and still can
    ended = run(scripts, "wrong_kernel")
    assert ended.stdout.splitlines() == ["AssertionError"] * 4, ended.stderr
    assert "Dynamo" not in ended.stderr


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", ["cond", "while_loop"])
def test_capture_that_is_wrong_of_a_body(operator, plant, tmp_path):
    plant("wrong_capture")
    found = pliant.repro(CONTROL_FLOW[operator], path=tmp_path)(torch.rand(4, 3))
    assert found.layer == "capture"
    assert found.repeats


def test_code_generation_that_raises(plant, tmp_path):
    plant("failing_lowering")
    found = pliant.repro(long_program, path=tmp_path)(torch.randn(4, 3), torch.randn(3))
    assert found.layer == "code generation, for tanh"
    assert "ZeroDivisionError('planted')" in found.failure
    assert found.nodes == 1
    assert repeats(found, "failing_lowering", "InternalError")


def uses_tanh(x, scale=2.0):
    y = [part * scale for part in x]
    return {"sum": _helper(y[0]) + y[1]}


def _helper(x):
    return torch.tanh(x) + OFFSET


OFFSET = 3


def calls_tanh(x, *, scale):
    return torch.tanh(x) * scale + OFFSET


def test_capture_that_raises(plant, tmp_path):
    plant("failing_capture")
    found = pliant.repro(calls_tanh, path=tmp_path)(torch.randn(40, 30), scale=3)
    assert found.layer == "capture"
    assert found.repeats
    assert "OFFSET = 3" in found.script
    assert "torch.randn(1, 1)" in found.script
    assert repeats(found, "failing_capture", "InternalError")


def test_capture_that_is_wrong(plant, tmp_path):
    plant("wrong_capture")
    found = pliant.repro(uses_tanh, path=tmp_path)([torch.randn(40), torch.randn(1)])
    assert found.layer == "capture"
    assert "def _helper" in found.script
    assert repeats(found, "wrong_capture")


def test_a_module(plant, tmp_path):
    plant("wrong_capture")
    found = pliant.repro(torch.nn.Sequential(torch.nn.Linear(3, 4), Tanh()), path=tmp_path)(
        torch.randn(5, 3)
    )
    assert found.layer == "capture"
    assert found.path.with_suffix(".pt").exists()
    assert repeats(found, "wrong_capture")


class Tanh(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)


def test_gradients(plant, tmp_path):
    plant("wrong_gradient")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    before = [p.detach().clone() for p in model.parameters()]
    found = pliant.repro(lambda x: model(x).square().mean(), path=tmp_path)(torch.randn(6, 8))
    assert found.layer == "a kernel, for the gradient of tanh"
    assert "requires_grad_()" in found.script
    assert repeats(found, "wrong_gradient")
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_without_gradients_nothing_is_wrong(plant, tmp_path):
    plant("wrong_gradient")
    with torch.no_grad():
        found = pliant.repro(torch.tanh, path=tmp_path)(torch.randn(4, requires_grad=True))
    assert found.failure is None


@pytest.mark.parametrize("settings", [{}, {"dynamic": True}])
def test_dynamic_sizes(plant, tmp_path, settings):
    plant("wrong_kernel_of_symbolic_sizes")

    def program(x):
        return torch.tanh(x * x.shape[0]) + x.sum()

    found = pliant.repro(program, path=tmp_path, **settings)(torch.randn(40, 30))
    assert "dynamic=True" in found.script
    assert found.nodes == 1
    assert repeats(found, "wrong_kernel_of_symbolic_sizes")
    assert pliant.repro(program, path=tmp_path, dynamic=False)(torch.randn(40, 30)).failure is None


def test_a_backend_of_the_users(tmp_path):
    found = pliant.repro(long_program, path=tmp_path, backend=wrong_backend)(
        torch.randn(4, 3), torch.randn(3)
    )
    assert found.layer == "the backend 'wrong_backend', for sin"
    assert "import wrong_backend" in found.script
    assert run([found.path]).returncode == 1


def wrong_backend(gm, example_inputs):
    for node in gm.graph.nodes:
        if node.target is torch.sin:
            node.target = torch.cos
    gm.recompile()
    return gm.forward


def test_values_that_matter_are_kept(plant, tmp_path):
    """Random numbers don't repeat it: relu and tanh agree where both are zero or one."""
    plant("wrong_kernel")
    steps = torch.arange(100.0).reshape(10, 10) + 50  # tanh is 1
    found = pliant.repro(lambda x: torch.tanh(x - 100).clamp(min=-2) * 0 + x, path=tmp_path)(steps)
    assert found.failure is None

    def only_here(x):
        return torch.where(x == 0.123, torch.tanh(x), x)

    x = torch.full((6, 6), 0.123)
    found = pliant.repro(only_here, path=tmp_path)(x)
    assert found.failure is not None
    assert repeats(found, "wrong_kernel")


def test_arguments_and_global_state_stay_as_they_are(plant, tmp_path):
    plant("wrong_kernel")
    count, buffer = [], torch.zeros(3)

    def writes(x, numbers):
        torch.set_grad_enabled(False)
        numbers.append(1)
        buffer.add_(1)
        return torch.tanh(x.add_(1)) + buffer

    x = torch.randn(3)
    before, python, generator = x.clone(), random.getstate(), torch.get_rng_state()
    found = pliant.repro(writes, path=tmp_path)(x, count)
    assert found.failure is not None
    assert count == []
    assert torch.equal(x, before)
    assert torch.equal(buffer, torch.zeros(3))
    assert random.getstate() == python
    assert torch.equal(torch.get_rng_state(), generator)
    assert torch.is_grad_enabled()
    assert repeats(found, "wrong_kernel")


def test_arguments_that_share_memory(plant, tmp_path):
    plant("wrong_kernel")

    def program(x, y):
        return torch.tanh(y) + x.sum()

    base = torch.randn(12)
    found = pliant.repro(program, path=tmp_path)(base, base.view(3, 4).t())
    assert found.layer == "a kernel, for tanh"
    assert found.repeats


def test_a_compiled_function(plant, tmp_path):
    plant("wrong_kernel")
    compiled = pliant.compile(calls_tanh, dynamic=True)
    found = pliant.repro(compiled, path=tmp_path)(torch.randn(4), scale=2)
    assert found.layer == "a kernel, for tanh"


def test_what_pliant_says_of_the_program_is_raised(tmp_path):
    def breaks(x):
        pliant.graph_break()
        return x

    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.repro(breaks, path=tmp_path, fullgraph=True)(torch.randn(3))


def test_what_eager_pytorch_raises_is_raised(tmp_path):
    with pytest.raises(RuntimeError, match="size of tensor"):
        pliant.repro(torch.add, path=tmp_path)(torch.randn(3), torch.randn(4))


def test_no_file_is_overwritten(plant, tmp_path):
    plant("wrong_kernel")
    paths = {pliant.repro(torch.tanh, path=tmp_path)(torch.randn(3)).path for _ in range(2)}
    assert paths == {tmp_path / "repro_tanh.py", tmp_path / "repro_tanh_2.py"}
