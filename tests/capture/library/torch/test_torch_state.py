"""Modes and state of PyTorch: inference mode, random numbers, devices, parameters made inside."""

import subprocess
import sys

import pytest
import torch
from torch.nn.attention import SDPBackend

import pliant
from tests.support.against_eager import check
from tests.support.programs import Programs, note

program = Programs()
X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])
G = X.clone().requires_grad_()


@torch.inference_mode()
def inferred(x):
    return x * 2


@torch.inference_mode
def inferred_too(x):
    return x * 3


@program(X)
def inference(x):
    with torch.inference_mode():
        y = x * 2
        inside = (torch.is_inference_mode_enabled(), y.is_inference(), torch.is_grad_enabled())
    with torch.inference_mode(False):
        z = x + 1
    return y, z, inside, torch.is_inference_mode_enabled()


@program(X)
def inference_decorators(x):
    return inferred(x) + inferred_too(x)


@program(X, [], breaks=None)
def a_break_in_inference_mode(x, log):
    with torch.inference_mode():
        y = x * 2
        note(log, torch.is_inference_mode_enabled())
        z = y + 1
    note(log, torch.is_inference_mode_enabled())
    return z, torch.is_inference_mode_enabled()


@program(X)
def seeded(x):
    torch.manual_seed(3)
    return x + torch.rand(2, 2), torch.randn(3)


@program(X)
def state_saved_and_put_back(x):
    state = torch.get_rng_state()
    one = torch.rand(3)
    torch.set_rng_state(state)
    return one, torch.rand(3), x + 1


@program(X)
def forked(x):
    with torch.random.fork_rng():
        one = torch.rand(3)
    return one, torch.rand(3)


@program(X)
def own_generator(x):
    generator = torch.Generator().manual_seed(5)
    one = torch.rand(2, 2, generator=generator)
    state = generator.get_state()
    two = torch.randperm(5, generator=generator)
    generator.set_state(state)
    return x + one, two, torch.randperm(5, generator=generator), generator.device


outside = torch.Generator()


@program(X)
def generator_from_outside(x):
    outside.manual_seed(2)
    one = x.clone().normal_(generator=outside)
    return one, torch.bernoulli(x.sigmoid(), generator=outside), torch.rand(2, generator=outside)


@program(X)
def default_generator(x):
    return torch.rand(2, generator=torch.default_generator), torch.rand(2)


@program(X)
def device_block(x):
    with torch.device("meta"):
        shape = torch.ones(3).device.type, torch.get_default_device()
        with torch.device("cpu"):
            y = torch.ones(2)
        z = torch.zeros(2, device="cpu")
    return x + y + z, shape, torch.get_default_device()


@program(X)
def default_device(x):
    torch.set_default_device("meta")
    kind = torch.empty(2).device
    torch.set_default_device(None)
    return x + torch.ones(2), kind


@program(X)
def data_on_the_default_device(x):
    """Which the constructors of the first days don't know."""
    with torch.device("meta"):
        new = torch.tensor([1, 2]), torch.as_tensor([1.0]), torch.tensor([x.shape[0]])
        old = torch.Tensor([1.0]), torch.Tensor(2, 3), torch.LongTensor([1])
    return x + 1, [t.device for t in (*new, *old)]


@program(X)
def what_a_gpu_knows(x):
    return x + 1, torch.cuda.is_bf16_supported(including_emulation=False)


@program(X, [], breaks=None)
def a_break_in_a_device_block(x, log):
    with torch.device("meta"):
        y = torch.ones(2)
        note(log, torch.empty(1).device.type)
        z = torch.ones(2)
    note(log, torch.empty(1).device.type)
    return x + 1, y.device, z.device


@program(X)
def a_new_parameter(x):
    weight = torch.nn.Parameter(x * 2)
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    return isinstance(weight, torch.nn.Parameter), weight.requires_grad, weight, weight + frozen


@program(X)
def a_new_module(x):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    return model(x), len(list(model.parameters())), list(model.state_dict())


@program(G.detach().clone().requires_grad_())
def retained(x):
    y = x * 2
    y.retain_grad()
    return y.retains_grad, y.is_leaf


@program(X)
def a_name_in_profiles(x):
    with torch.profiler.record_function("name"):
        return x + 1


@program(X)
def gradients_clipped(x):
    weight = torch.nn.Parameter(x * 2)
    weight.grad = torch.ones_like(weight)
    norm = torch.nn.utils.clip_grad_norm_([weight], 1.0)
    torch.nn.utils.clip_grad_value_([weight], 0.3)
    return norm, weight.grad


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)


def test_a_generator_is_an_input():
    compiled = pliant.compile(lambda x, g: x + torch.rand(2, 2, generator=g), fullgraph=True)
    for seed in (1, 2):
        one, two = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
        assert torch.equal(compiled(X, one), X + torch.rand(2, 2, generator=two))
        assert torch.equal(one.get_state(), two.get_state())
    assert pliant.counters["compilations"] == 1


def test_a_parameter_replaced_in_forward_is_a_parameter():
    class Doubles(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            self.weight = torch.nn.Parameter(self.weight * 2)
            return x * self.weight

    model = Doubles()
    compiled = pliant.compile(model, fullgraph=True)
    for factor in (2, 4):
        assert torch.equal(compiled(X), X * factor)
        assert type(model.weight) is torch.nn.Parameter and model.weight.is_leaf
    assert [name for name, _ in model.named_parameters()] == ["weight"]


# ---- PyTorch's state after a failure of the graph


def state():
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    cpu = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return torch.is_grad_enabled(), *cpu, torch.is_autocast_cache_enabled(), depth


def under_no_grad(x, index):
    with torch.no_grad():
        return x[index]


def under_autocast(x, index):
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        y = x @ x.t()
        return y[index]


def under_autocast_after_a_write(x, index):
    x.add_(1)
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        return x[index]


@pytest.mark.parametrize("function", [under_no_grad, under_autocast, under_autocast_after_a_write])
def test_state_after_a_failure(function):
    before = state()
    compiled = pliant.compile(function, fullgraph=True)
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(torch.ones(2, 3), torch.tensor([7]))
        assert state() == before


def draws_and_fails(x, index):
    y = torch.nn.functional.dropout(x, 0.5)
    try:
        y = y[index]
    except IndexError:
        y = y + torch.rand(3)
    return y


def test_random_numbers_after_a_failure():
    check(draws_and_fails, torch.ones(2, 3), torch.tensor([7]))


# ---- names in profiles


def a_break_under_a_name(x):
    with torch.autograd.profiler.record_function("a") as record:
        y = x + 1
        try:
            note([], y)
        finally:
            name = record.name
        return y * 2, name


def a_break_of_python_under_a_name(x):
    record = torch.autograd.profiler.record_function("a")
    leaves(record.__exit__, record.__enter__())
    return x + 1


@pliant.disable
def leaves(leave, record):
    leave(None, None, None)


@pytest.mark.parametrize("function", [a_break_under_a_name, a_break_of_python_under_a_name])
def test_break_under_a_name_for_profiles(function):
    check(function, X, breaks=None)


def test_a_name_for_profiles_that_leaves_the_program():
    make = pliant.compile(lambda x: (torch.autograd.profiler.record_function("a"), x + 1))
    record, _ = make(X)
    expected = vars(torch.autograd.profiler.record_function("a"))
    assert vars(record) == expected
    with record:
        pass


# ---- which kernels PyTorch chooses


def attention(x):
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def chosen():
    return torch.nn.attention._cur_sdpa_kernel_backends(with_priority=True)


def kinds_of_attention(x):
    before = chosen()
    kinds = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
    with torch.nn.attention.sdpa_kernel(kinds, set_priority=True):
        y, inside = attention(x), chosen()
    return y * 2, before, inside, chosen()


@torch.nn.attention.sdpa_kernel(SDPBackend.MATH)
def only_math(x):
    return attention(x) + 1, chosen()


def precision_of_products(x):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    y, inside = x @ x.mT, torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)
    return y, before, inside, torch.get_float32_matmul_precision()


def setting_that_stays(x):
    torch.backends.cuda.enable_math_sdp(False)
    return x + 1, torch.backends.cuda.math_sdp_enabled()


@pytest.mark.parametrize(
    "function", [kinds_of_attention, only_math, precision_of_products, setting_that_stays]
)
def test_settings_of_kernels(function) -> None:
    x = torch.randn(2, 2, 4, 8)
    before = chosen(), torch.get_float32_matmul_precision()
    try:
        expected = function(x)
        after = chosen()
        torch.backends.cuda.enable_math_sdp(True)
        compiled = pliant.compile(function, fullgraph=True)
        for _ in range(2):
            result = compiled(x)
            assert torch.allclose(result[0], expected[0], atol=1e-6)
            assert result[1:] == expected[1:] and chosen() == after
            torch.backends.cuda.enable_math_sdp(True)
    finally:
        torch.backends.cuda.enable_math_sdp(True)
    assert (chosen(), torch.get_float32_matmul_precision()) == before


def test_a_setting_that_is_asked_for_is_guarded() -> None:
    def program(x):
        return x + 1 if torch.get_float32_matmul_precision() == "highest" else x - 1

    compiled = pliant.compile(program, fullgraph=True)
    assert torch.equal(compiled(X), X + 1)
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(compiled(X), X - 1)
    finally:
        torch.set_float32_matmul_precision("highest")


# ---- settings of autograd


def hooks_message():
    return torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()


def without_hooks_on_saved_tensors(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("outer"):
        with torch.autograd.graph.disable_saved_tensors_hooks("inner"):
            y, inner = x.sin(), hooks_message()
        outer = hooks_message()
    return y * 2, inner, outer, hooks_message()


def hooks_stay_forbidden(x):
    torch._C._autograd._saved_tensors_hooks_disable("stays")
    return x.sin(), hooks_message()


def views_replayed(x):
    with torch.autograd._force_original_view_tracking(True):
        y, inside = x.view(-1) * 2, torch._C._is_view_replay_enabled()
    return y, inside, torch._C._is_view_replay_enabled()


def on_one_thread(x):
    with torch.autograd.set_multithreading_enabled(False):
        return x * 2, torch._C._is_multithreading_enabled()


def flags_of_libraries(x):
    with torch.backends.cudnn.flags(enabled=False), torch.backends.mkldnn.flags(enabled=False):
        y, inside = x + 1, torch.backends.cudnn.enabled
    return y, inside, torch.backends.cudnn.enabled


BACKENDS = torch.backends.flags_frozen.__globals__
SETTABLE = "__allow_nonbracketed_mutation_flag"


@pytest.fixture
def settable(monkeypatch):
    """PyTorch's database of operators, once imported, forbids to set attributes of its backends."""
    monkeypatch.setitem(BACKENDS, SETTABLE, True)


def test_settings_that_are_forbidden(monkeypatch):
    monkeypatch.setitem(BACKENDS, SETTABLE, False)

    def program(x):
        torch.backends.cudnn.enabled = False
        return x + 1

    with pytest.raises(RuntimeError, match="not allowed to set"):
        pliant.compile(program, fullgraph=True)(X)
    assert torch.backends.cudnn.enabled


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="no such setting")
def test_precision_by_library_and_operator(settable):
    def program(x):
        before = torch.backends.fp32_precision
        torch.backends.fp32_precision = "ieee"
        inside, inherited = torch.backends.fp32_precision, torch.backends.mkldnn.fp32_precision
        torch.backends.fp32_precision = before
        return x + 1, before, inside, inherited

    compiled, before = pliant.compile(program, fullgraph=True), torch.backends.fp32_precision
    assert str(compiled(X)) == str(program(X))
    assert torch.backends.fp32_precision == before


AUTOGRAD = [
    without_hooks_on_saved_tensors,
    hooks_stay_forbidden,
    views_replayed,
    on_one_thread,
    flags_of_libraries,
]


@pytest.mark.parametrize("function", AUTOGRAD, ids=lambda function: function.__name__)
def test_settings_of_autograd(function):
    compiled = pliant.compile(function, fullgraph=True)
    try:
        for _ in range(2):
            expected, after = function(G), hooks_message()
            torch._C._autograd._saved_tensors_hooks_enable()
            got = compiled(G)
            assert got[1:] == expected[1:] and hooks_message() == after
            assert torch.equal(got[0], expected[0])
            torch._C._autograd._saved_tensors_hooks_enable()
    finally:
        torch._C._autograd._saved_tensors_hooks_enable()


WITH_CUDNN = """
import sys, torch
if not torch._C._has_cudnn:  # some other setting in C stands for that of builds for CUDA
    torch._C._has_cudnn = True
    torch._C._cuda_get_cudnn_benchmark_limit = sys.get_int_max_str_digits
    torch._C._cuda_set_cudnn_benchmark_limit = sys.set_int_max_str_digits
import pliant

def function(x):
    with torch.backends.cudnn.flags(enabled=False, benchmark_limit=3000):
        y, inside = x + 1, torch._C._cuda_get_cudnn_benchmark_limit()
    return y, inside, torch._C._cuda_get_cudnn_benchmark_limit()

compiled = pliant.compile(function, fullgraph=True)
for limit in (1000, 7000, 7000):
    torch._C._cuda_set_cudnn_benchmark_limit(limit)
    assert compiled(torch.ones(3))[1:] == (3000, limit)
    assert torch._C._cuda_get_cudnn_benchmark_limit() == limit
print(pliant.counters["compilations"])
"""


def test_settings_of_builds_with_cudnn():
    done = subprocess.run([sys.executable, "-c", WITH_CUDNN], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


def test_a_message_about_hooks_is_guarded():
    compiled = pliant.compile(lambda x: (x + 1, hooks_message()), fullgraph=True)
    for message in (None, "one", "two"):
        try:
            if message is not None:
                torch._C._autograd._saved_tensors_hooks_disable(message)
            assert compiled(X)[1] == message
        finally:
            torch._C._autograd._saved_tensors_hooks_enable()


def test_settings_written_as_attributes_of_modules(settable):
    def program(x):
        before = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = not before
        inside = torch.backends.cudnn.enabled, torch._C._get_cudnn_enabled()
        torch.backends.cudnn.enabled = before
        return x + 1, inside

    compiled = pliant.compile(program, fullgraph=True)
    for before in (True, False, True):
        torch.backends.cudnn.enabled = before
        try:
            assert compiled(X)[1] == (not before, not before)
            assert torch.backends.cudnn.enabled is before
            assert "enabled" not in vars(torch.backends.cudnn)
        finally:
            torch.backends.cudnn.enabled = True


def test_settings_read_as_attributes_of_modules(settable):
    compiled = pliant.compile(lambda x: (x, torch.backends.cudnn.benchmark), fullgraph=True)
    for benchmark in (False, True, False):
        torch.backends.cudnn.benchmark = benchmark
        try:
            assert compiled(X)[1] is benchmark
        finally:
            torch.backends.cudnn.benchmark = False
