"""What the compiler asks of a target, seen with targets that answer otherwise than the CPU."""

import pytest
import torch

import pliant
from pliant.backends import compile_graph
from pliant.base import events
from pliant.loop.ir import Op, values
from pliant.targets.cpu.target import CPU
from tests.support.compiled_code import compiled_code


class Other:
    """The CPU, but for what a test says."""

    def __init__(self, **changes):
        self.changes = changes

    def __getattr__(self, name):
        return self.changes[name] if name in self.changes else getattr(CPU, name)


def without(op):
    def refusal(kernel, hint):
        lacks = any(value.op is op for value in values(kernel.body))
        return f"there is no {op.text}" if lacks else None

    return Other(refusal=refusal)


@pytest.fixture
def use(monkeypatch):
    """Compile for another target."""

    def change(target):
        class Generator(compile_graph.CodeGenerator):
            def __init__(self, *args, **others):
                super().__init__(*args[:4], target=target)

        monkeypatch.setattr(compile_graph, "CodeGenerator", Generator)

    return change


def program(x):
    return (x.exp() + 1).sum(-1), (x @ x.t()).sin() * 2


X = torch.linspace(-1, 1, 12).view(3, 4)


def codes(function, *args):
    """What was made of each graph; it isn't run."""
    made = []

    def backend(gm, examples):
        made.append(compiled_code(gm, examples))
        return gm.forward

    pliant.compile(function, backend=backend)(*args)
    return made


def test_what_a_target_cannot_compute_is_left_to_pytorch(use, seen):
    use(without(Op.EXP))
    torch.testing.assert_close(pliant.compile(program, backend="llvm")(X), program(X))
    (generated,) = seen(events.CodeGenerated)
    assert "aten.exp.default: there is no exp" in generated.called
    assert not seen(events.KernelFailed)  # nobody has made a mistake
    assert "exp" not in "".join(generated.kernels()) and "sin" in "".join(generated.kernels())


def test_the_target_arranges_loops(use):
    arranged = []

    def arrange(kernel, hint):
        arranged.append(kernel)
        return kernel

    use(Other(arrange=arrange))
    (code,) = codes(program, X)
    assert list(code.kernels) == arranged
    torch.testing.assert_close(code.load()(X), program(X))


def test_a_target_says_which_step_launches_its_kernels(use):
    use(Other(launch_step="other_kernel"))
    with pytest.raises(pliant.errors.BackendError, match="there is no step other_kernel"):
        codes(program, X)


@pytest.mark.parametrize("overlaps", [False, True])
def test_kernels_are_launched_together_where_that_gains_something(use, overlaps):
    use(Other(overlaps_launches=overlaps))
    (code,) = codes(lambda x, y: (x + 1, y[0] + 2), X, X)
    launched = [step[0] for step in code.program.steps if "kernel" in step[0] or "batch" in step[0]]
    assert launched == (["cpu_kernel", "cpu_kernel"] if overlaps else ["cpu_batch"])


def test_launch_parameters_are_the_targets_own(use):
    def launch_parameters(kernel, hint):
        return (None, 7.5)

    use(Other(launch_parameters=launch_parameters))
    (code,) = codes(program, X)
    launches = [step for step in code.program.steps if step[0] == "cpu_kernel"]
    assert launches and all(step[4:6] == (-1, 7.5) for step in launches)


def test_equal_kernels_are_compiled_once(use):
    compiled = []

    def start(sources):
        compiled.extend([source.key for source in sources])
        return CPU.start(sources)

    def twice(x, y):
        a = (x.sin() + 1) @ y
        return (a.sin() + 1) @ y

    use(Other(start=start))
    (code,) = codes(twice, torch.ones(4, 4), torch.ones(4, 4))
    launches = [step for step in code.program.steps if step[0] == "cpu_kernel"]
    assert len(compiled) == len(set(compiled)) == len(code.program.kernels)
    assert len(launches) >= len(compiled)
