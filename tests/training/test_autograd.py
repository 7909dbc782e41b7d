"""What PyTorch's autograd does around a compiled step of it."""

import copy
import gc
import weakref

import pytest
import torch
import torch.autograd.forward_ad as fw
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.base import events
from tests.training.gradients_of import check


def compiled(function, **options):
    return pliant.compile(function, backend="llvm", **options)


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def product(a, b):
    return a * b


@pytest.fixture
def multiply():
    return compiled(product)


@pytest.fixture
def x():
    return leaf(3, 4)


@pytest.fixture
def y():
    return leaf(3, 4)


def test_both_directions_are_generated(multiply, x, y, seen) -> None:
    multiply(x, y).sum().backward()
    names = [event.function for event in seen(events.CodeGenerated)]
    assert len(names) == 2 and names[1] == f"{names[0]} backward"


def test_the_backward_is_compiled_when_it_is_needed(multiply, x, y, seen) -> None:
    result = multiply(x, y)
    assert len(seen(events.CodeGenerated)) == 1
    result.sum().backward()
    multiply(x, y).sum().backward()
    assert len(seen(events.CodeGenerated)) == 2


def test_the_backward_is_compiled_with_the_forward(x, y, seen) -> None:
    multiply = compiled(product, options={"lazy_backward": False})
    result = multiply(x, y)
    assert len(seen(events.CodeGenerated)) == 2
    result.sum().backward()
    assert len(seen(events.CodeGenerated)) == 2
    assert torch.equal(x.grad, y)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
def test_outputs_without_a_gradient(used, x, y) -> None:
    """What does not lead to an output that is used gets no gradient, not one of zeros."""

    def function(a, b):
        return a * b, a.sin(), (b.exp() + a).sum(0)

    got = []
    for run in (function, compiled(function)):
        x.grad = y.grad = None
        outputs = run(x, y)
        sum(outputs[at].sum() for at in used).backward()
        got.append((x.grad, y.grad))
    for mine, theirs in zip(*got, strict=True):
        assert (mine is None) is (theirs is None)
        assert mine is None or torch.allclose(mine, theirs)


def test_gradients_of_some_inputs(multiply, x, y) -> None:
    (grad,) = torch.autograd.grad(multiply(x, y).sum(), y)
    assert torch.equal(grad, x)
    assert x.grad is None


def test_two_backward_passes(multiply, x, y) -> None:
    total = multiply(x, y).sum()
    total.backward(retain_graph=True)
    total.backward()
    assert torch.equal(x.grad, 2 * y)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        total.backward()


def test_accumulation(multiply, x, y) -> None:
    for _ in range(3):
        multiply(x, y).sum().backward()
    assert torch.allclose(x.grad, 3 * y)


def test_a_changed_operand_is_noticed(multiply, x) -> None:
    other = torch.randn(3, 4)
    result = multiply(x, other)
    other.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_a_changed_operand_that_is_not_needed(x) -> None:
    other = torch.randn(3, 4)
    result = compiled(lambda a, b: a + b)(x, other)
    other.add_(1)
    result.sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 4))


def test_hooks(multiply, x, y) -> None:
    result = multiply(x, y)
    result.register_hook(lambda grad: grad * 2)
    result.sum().backward()
    assert torch.equal(x.grad, 2 * y)


def test_saved_tensors_can_be_packed(multiply, x, y) -> None:
    packed = []

    def pack(t):
        packed.append(type(t))
        return t.double()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
        result = multiply(x, y)
    result.sum().backward()
    assert torch.allclose(x.grad, y)
    assert packed == [torch.Tensor] * 2  # real ones


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(multiply, x, y, reentrant: bool) -> None:
    checkpoint(multiply, x, y, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, y)


def test_the_result_can_be_written_to(multiply, x, y) -> None:
    multiply(x, y).mul_(3).sum().backward()
    assert torch.equal(x.grad, 3 * y)


def test_tangents_of_other_layouts(multiply, x, y) -> None:
    multiply(x, y).T.backward(torch.arange(12.0).view(4, 3))
    assert torch.equal(x.grad, y * torch.arange(12.0).view(4, 3).T)
    x.grad = None
    multiply(x, y).sum().backward()  # expanded: strides of 0
    assert torch.equal(x.grad, y)


@pytest.mark.parametrize("sizes", [(3, 4), (5, 6), (1, 4), (3, 1), (0, 4), (3, 0), (1, 1)])
def test_small_sizes(sizes) -> None:
    function = compiled(lambda a, b: (a * b).softmax(-1), dynamic=True)
    for shape in ((4, 5), sizes):
        a, b, tangent = leaf(*shape), torch.randn(shape), torch.randn(shape)
        function(a, b).backward(tangent)
        mine, a.grad = a.grad, None
        (a * b).softmax(-1).backward(tangent)
        torch.testing.assert_close(mine, a.grad)
        assert mine.stride() == a.grad.stride()
    assert len(function.entries) == 1


def test_gradients_of_gradients(x, y) -> None:
    def function(a, b):
        return (a * b.sin()).exp().sum()

    def second(run):
        first = torch.autograd.grad(run(x, y), (x, y), create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in first), (x, y))

    torch.testing.assert_close(second(compiled(function)), second(function))


def test_gradients_of_gradients_draw_the_same_numbers(x) -> None:
    def second(run):
        torch.manual_seed(0)
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        state = torch.get_rng_state()
        return torch.autograd.grad(first.pow(2).sum(), x)[0], state

    def function(a):
        return torch.dropout(a.pow(3), 0.5, True)

    mine, theirs = second(compiled(function)), second(function)
    torch.testing.assert_close(mine[0], theirs[0])
    assert torch.equal(mine[1], theirs[1])


def test_gradients_of_gradients_write_once() -> None:
    norm = torch.nn.BatchNorm1d(4)
    x = leaf(8, 4)
    (first,) = torch.autograd.grad(compiled(norm)(x).pow(2).sum(), x, create_graph=True)
    first.pow(2).sum().backward()
    assert norm.num_batches_tracked == 1
    torch.testing.assert_close(norm.running_mean, x.mean(0) * 0.1)


def test_forward_mode(multiply, x, y) -> None:
    with fw.dual_level():
        dual = fw.make_dual(x.detach(), torch.ones(3, 4))
        assert torch.equal(fw.unpack_dual(multiply(dual, y)).tangent, y)


def test_functional_transforms(multiply, x, y) -> None:
    x, y = x.detach(), y.detach()
    assert torch.equal(torch.func.grad(lambda a: multiply(a, y).sum())(x), y)
    assert torch.equal(torch.func.vmap(multiply)(x, y), x * y)


def test_modes_inside_the_graph(x) -> None:
    def function(a):
        with torch.no_grad():
            scale = a.abs().max()
        with torch.enable_grad():
            return a / scale

    check(function, x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_history_that_is_forgotten(dynamic: bool, x, y) -> None:
    def function(a, b):
        c, d = a * b, a.exp()
        c.detach_()
        e = d.detach().requires_grad_(False)
        return a * c + d * e, c

    check(function, x, y, dynamic=dynamic)


def test_the_history_of_an_input_is_forgotten(x, y) -> None:
    def function(a, b):
        a.detach_()
        return a * b

    for run in (function, compiled(function)):
        computed = x * 1
        result = run(computed, y)
        assert not computed.requires_grad
        x.grad = None
        result.sum().backward()
        assert x.grad is None


def test_without_grad_nothing_is_saved(multiply, x, y, seen) -> None:
    with torch.no_grad():
        assert not multiply(x, y).requires_grad
    assert not multiply(x.detach(), y.detach()).requires_grad


def test_an_error_of_eager(x) -> None:
    """Autograd refuses to go back through a value that was overwritten."""

    def function(a):
        b = a.sigmoid()
        c = b * 2
        b.add_(1)
        return c

    for run in (function, compiled(function)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(x).sum().backward()


def test_data_dependent_sizes(x) -> None:
    check(lambda a: a[a > 0] * 2, x, generated=False)


def test_everything_is_freed() -> None:
    def make():
        data = leaf(100)
        function = compiled(lambda a: (a * 2).exp())
        function(data).sum().backward()
        return weakref.ref(data), weakref.ref(function)

    alive = make()
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


def test_what_is_saved_is_freed_with_the_result(x) -> None:
    function = compiled(lambda a: (a @ a.mT).sin())
    result = function(x)
    step = result.grad_fn
    reference = weakref.ref(step.saved_tensors[-1])  # the product
    del result, step
    gc.collect()
    assert reference() is None


def test_threads(multiply, x, y) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    def run(_):
        a, b = x.detach().requires_grad_(), y.detach().requires_grad_()
        multiply(a, b).sum().backward()
        return a.grad

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(grad, y) for grad in pool.map(run, range(16)))


@pytest.mark.parametrize("grad", [True, False])
def test_batch_norm_that_averages_over_all_batches(grad: bool) -> None:
    eager = torch.nn.BatchNorm2d(3, momentum=None)
    ours = copy.deepcopy(eager)
    compiled = pliant.compile(ours, backend="llvm", fullgraph=True)
    events.counters.reset()
    with torch.set_grad_enabled(grad):
        for rows in (4, 5, 6):
            x = torch.randn(rows, 3, 5, 5)
            torch.testing.assert_close(compiled(x), eager(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.running_mean, eager.running_mean)
    torch.testing.assert_close(ours.running_var, eager.running_var)
    assert events.counters["compilations"] == 2
    assert events.counters["not_generated"] == 0


def test_anomaly_detection(x) -> None:
    """It names the operation, and there is no other warning than its own."""

    def function(a):
        return (a * 0).sqrt() * a

    def outcome(call):
        with pytest.warns(UserWarning) as told, torch.autograd.detect_anomaly():
            result = call(x)
            with pytest.raises(RuntimeError) as raised:
                result.sum().backward()
        return str(raised.value), len(told)

    assert outcome(compiled(function)) == outcome(function)


def test_a_graph_that_ends_without_grad(x) -> None:
    """Both parts are compiled, and the second one runs in the mode in which the first has ended."""

    def function(a):
        result = a.sin()
        with torch.no_grad():
            doubled = result * 2
            pliant.graph_break()
            modes.append(torch.is_grad_enabled())
            return result, doubled * a

    modes = []
    run = compiled(function)
    for call in (function, run):
        a = x.detach().clone().requires_grad_()
        result, product = call(a)
        assert result.requires_grad and not product.requires_grad
        assert modes.pop() is False and torch.is_grad_enabled()
        result.sum().backward()
        torch.testing.assert_close(a.grad, a.detach().cos())
    assert events.counters["not_generated"] == 0


def test_a_compiled_function_in_a_checkpoint_is_compiled_once(x, y, multiply) -> None:
    """It runs again in a hook on what was saved, which sees the program's state, not ours."""
    dispatch_states = set()

    def note_state(x, y):
        dispatch_states.add(str(torch._C._dispatch_tls_local_exclude_set()))
        return x * y

    for _ in range(2):
        checkpoint(multiply, x, y, use_reentrant=False).sum().backward()
        checkpoint(note_state, x, y, use_reentrant=False).sum().backward()
    # PyTorch 2.11 excludes a dispatch key while it runs the function again.
    assert events.counters["compilations"] == len(dispatch_states)

    states = []

    def unpack(tensor):
        states.append(torch._C._is_torch_function_enabled())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        result = multiply(x, y)
    result.sum().backward()
    assert states == [True] * 2


FACTORIES = {
    "zeros": lambda x: torch.zeros(4, requires_grad=True),
    "like": lambda x: torch.ones_like(x, requires_grad=True),
    "tensor": lambda x: torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True),
    "copy": lambda x: torch.asarray(x, copy=True, requires_grad=True),
}


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("enabled", [True, False])
def test_leaves_that_only_the_graph_knows(name: str, enabled: bool) -> None:
    """No input requires grad, but the results do."""

    def function(x):
        with torch.set_grad_enabled(enabled):
            w = FACTORIES[name](x)
        return (w * x).sum(), w

    x = torch.ones(4)
    for result, w in (compiled(function)(x), function(x)):
        assert result.requires_grad
        assert w.is_leaf
        (gradient,) = torch.autograd.grad(result, w)
        torch.testing.assert_close(gradient, x)
