"""What generated code does with memory, sizes, failures, threads and processes.

Eager PyTorch is asked each time. Most of these are programs on which it was once wrong.
"""

import multiprocessing
import threading

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
from tests.backends.eager_twin import call, difference

SIZES = ((4, 6), (5, 3), (1, 4), (0, 3), (4, 1))


def agree(function, *makers, dynamic=(False, True), mode="grad", generated=True):
    """Eager and compiled, for the arguments that each of `makers` makes. `generated`: with fixed
    sizes there is code for it."""
    for how in dynamic:
        events.counters.reset()
        compiled = pliant.compile(
            function, backend=llvm, dynamic=how, options={"recompile_limit": 50}
        )
        for make in makers:
            found = difference(call(compiled, make(), mode), call(function, make(), mode))
            assert found is None, (how, found)
        if generated and how is False:
            assert not events.counters["not_generated"]


def matrices(*sizes, dtype=torch.float32):
    """Of these sizes: plain, transposed, and behind something else."""
    for rows, columns in sizes:
        yield lambda r=rows, c=columns: [torch.arange(r * c).to(dtype).view(r, c) / 8]
        yield lambda r=rows, c=columns: [torch.arange(r * c).to(dtype).view(c, r).t() / 8]
        yield lambda r=rows, c=columns: [torch.arange(r * c + c).to(dtype).view(r + 1, c)[1:]]


# ---- writes through views


def parts(x):
    x.unbind(1)[-1].add_(1)
    x.split(2, 1)[0].mul_(2)
    x.split([1, x.shape[1] - 1], 1)[1].sub_(3)
    x.chunk(2, -1)[-1].fill_(4)
    return x.tensor_split(2, 1)[1].neg_()


def windows(x):
    x.unfold(1, 2, 2).add_(1)
    x.diagonal().mul_(2)
    x.T[0].sub_(1)
    return x.movedim(0, 1)[0].fill_(3)


def bits(x):
    y = x * 2
    y.view(torch.int32).add_(1)
    x[1:].view(torch.int32).bitwise_or_(1)
    return y


def arranged(x):
    y = x * 2
    y.permute(1, 0).unsqueeze(0).squeeze().view(y.shape[1], 2, -1)[:, 1].add_(1)
    return y, y.flatten()[::3]


@pytest.mark.parametrize("function", [parts, windows, bits, arranged])
def test_writes_through_views(function):
    agree(function, *matrices((4, 6), (2, 4), (6, 2)))


def test_strides_of_ones_own():
    def inside(x):
        x.as_strided((2, 2), (1, 2)).add_(1)
        return (x * 2)[1:].as_strided((2,), (1,))

    agree(inside, *matrices((4, 6), (3, 4)))


def test_strides_beyond_the_tensor_are_refused_as_in_eager():
    def over(x):
        return x.as_strided((2, 2), (1, 1)) + 1

    makers = [lambda n=n: [torch.arange(float(n))] for n in (6, 3, 2, 0)]
    agree(over, *makers, generated=False)


def test_strides_into_a_tensor_without_elements_are_refused_as_in_eager():
    def inside(x):
        return (x * 2).as_strided((2, 2), (1, 1)).sum(0)

    agree(inside, *matrices((9, 6), (9, 0)), dynamic=(False,), generated=False)


def test_an_offset_counts_from_the_start_of_the_memory():
    def first_two(x):
        return x.as_strided((2,), (1,), 0) * 2

    makers = [lambda k=k: [torch.arange(9.0)[k : k + 6]] for k in (0, 3, 1)]
    agree(first_two, *makers, generated=False)


def test_versions_rise_with_every_write():
    def thrice(x):
        x.add_(1)
        x[0].mul_(2)
        x.view(-1)[1:].zero_()
        return x

    agree(thrice, *matrices((4, 6), (2, 3)))


def test_results_of_functions_with_out():
    def written(x):
        torch.clamp(x, 0, 1, out=x)
        torch.add(x, 1, out=x)
        y = torch.empty_like(x)
        torch.mul(x, x, out=y)
        return y

    agree(written, *matrices((4, 6), (2, 3)))


# ---- aliases


def test_a_view_of_another_argument_has_sizes_of_its_own():
    def shifted(a, b):
        v = b.sum()
        a.detach().add_(1)
        return v

    def pair(*size):
        whole = torch.ones(size)
        return [whole, whole[1:]]

    makers = [lambda s=s: pair(*s) for s in ((4, 2, 11), (9, 2, 3), (2, 2, 7))]
    agree(shifted, *makers, generated=False)
    agree(shifted, *makers, mode="inference", generated=False)

    def only_the_whole(a, b):  # the part is looked at first, and needed by nobody
        b.sum()
        return a.detach().add_(1)

    agree(only_the_whole, *makers, generated=False)


def test_what_is_returned_is_shared_as_in_eager():
    def shared(x):
        y = x + 1
        return x, y, y, y[1:], x.T, y.view(-1), x[0]

    agree(shared, *matrices(*SIZES))


def test_arguments_that_are_one_or_overlap():
    def write(a, b):
        a.add_(1)
        return a * b

    same = torch.ones(4, 4)
    agree(write, lambda: [same.clone()] * 2, generated=False)

    def one_behind():
        memory = torch.arange(12.0)
        return [memory[:8], memory[2:10]]

    agree(write, one_behind, generated=False)
    agree(write, lambda: [torch.ones(1, 3).expand(4, 3), torch.ones(3)], generated=False)


# ---- layouts that PyTorch's meta kernels get wrong


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.logsigmoid(x) * 2,
        lambda x: torch.isin(x, x[:1]).float() * x,
        lambda x: (2**x)[1:] + 1,
        lambda x: x[x.long().remainder(x.shape[0])],
        lambda x: F.one_hot(x.long().remainder(5), 5),
        lambda x: x[:, x[0].long().remainder(x.shape[1])] + x[x.T.long() * 0, 0].sum(),
    ],
)
def test_layouts_of_results(function):
    agree(function, *matrices((4, 6), (5, 3), (3, 3)))


# ---- empty tensors


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x[0] * 2).tanh().prod(0).repeat(3),  # what is the same for all, if there are any
        lambda x: (x * 0.5)[:, 1::3].flatten()[::3].clone(),
        lambda x: x.sum(1) + x.amax(0, keepdim=True).shape[1],
        lambda x: F.pad(x, (1, 1, 1, 1)) + 1,
        lambda x: torch.cat([x, x.new_ones(2, x.shape[1])]) * 2,
    ],
)
def test_empty_tensors(function):
    makers = [lambda n=n: [torch.ones(4, 1).expand(4, n)] for n in (11, 9, 0, 1)]
    agree(function, *makers)


def test_an_index_into_nothing():
    def taken(x, i):
        return x[i] + 1, x.index_select(0, i) * 2

    makers = [lambda n=n: [torch.ones(n, 3), torch.tensor([0, 0])] for n in (4, 1, 0)]
    agree(taken, *makers)


def test_a_size_that_may_be_one_is_not_taken_for_the_other():
    def put(x):
        two = torch.tensor([0, -1])
        summed = x.index_put((two,), x[:1], accumulate=True)
        return x.index_put((two,), x[:1]), summed, x.take_along_dim(two[:1].view(1, 1), 0)

    agree(put, *matrices((5, 3), (1, 3), (2, 3)), generated=False)


def test_the_elements_of_one_element():
    def chosen(x):
        total = x.sum()
        return total.masked_scatter(total > 0, x), total.cumsum(0), total.sort()[0]

    agree(chosen, lambda: [torch.ones(3)], lambda: [-torch.ones(4)], generated=False)


# ---- failures


def raises_by_index(x, i):
    x.add_(1)
    return x[i] * 2


def raises_by_gather(x, i):
    y = x * 2
    return y.gather(0, i.unsqueeze(1)) + x


def raises_by_division(x, i):
    x.mul_(2)
    return i // (i - 1), x


def raises_in_pytorch(x, i):
    x.mul_(2)
    return x @ torch.ones(i.shape[0], 2)


def raises_between_writes(x, i):
    y = x * 2
    x.mul_(3)
    z = torch.bernoulli(y + i.sum())
    x.add_(1)
    return z


def raises_while_writing(x, i):
    x.copy_(x.T[i])


def raises_while_dividing(x, i):
    i.copy_(i // (i - 1))
    return x


@pytest.mark.parametrize(
    "function",
    [
        raises_by_index,
        raises_by_gather,
        raises_by_division,
        raises_in_pytorch,
        raises_between_writes,
        raises_while_writing,
        raises_while_dividing,
    ],
)
def test_failures_are_those_of_eager(function):
    makers = [
        lambda: [torch.ones(4, 4), torch.tensor([0, 2, 3, 2])],
        lambda: [torch.ones(4, 4), torch.tensor([0, 2, 3, 1])],
        lambda: [torch.ones(4, 4), torch.tensor([0, 2, 3, 9])],
        lambda: [torch.ones(4, 4), torch.tensor([0, 2, -7])],
        lambda: [torch.ones(4, 4), torch.tensor([0, 2, -1, 3])],
    ]
    agree(function, *makers)


# ---- modes


def network(x, weight, bias):
    y = F.gelu(F.linear(x, weight, bias))
    return y.softmax(-1), F.layer_norm(y, y.shape[-1:]), weight.T, x


def parameters():
    torch.manual_seed(1)
    weight, bias = torch.nn.Parameter(torch.randn(5, 6)), torch.nn.Parameter(torch.randn(5))
    return [torch.randn(4, 6), weight, bias]


@pytest.mark.parametrize("mode", ["no_grad", "inference"])
def test_parameters_without_grad(mode):
    agree(network, parameters, mode=mode)


def test_detached_views_of_parameters():
    def views(weight):
        return weight[0], weight[0].detach(), weight.T.detach(), weight.detach(), weight.T

    agree(views, lambda: parameters()[1:2], mode="no_grad", generated=False)


def test_numbers_and_sizes():
    def numbers(x, n, flag):
        y = x.clamp(max=n) * n
        return y if flag else -y, x.shape, x.numel() * n, n, flag

    makers = [
        lambda n=n, f=f: [torch.ones(3, 4), n, f] for n in (1, 2, 0.5, 3.5) for f in (True, False)
    ]
    agree(numbers, *makers, dynamic=(None, True))


@pytest.mark.parametrize("dynamic", [False, True])
def test_random_numbers_are_those_of_eager(dynamic):
    def noisy(x):
        a = F.dropout(x, 0.5)
        b = torch.rand_like(x) + torch.bernoulli(x.sigmoid())
        return a, b, x[torch.randperm(x.shape[0])], torch.randn(2), a.uniform_()

    agree(noisy, *matrices((4, 6), (5, 3)), dynamic=(dynamic,))


# ---- threads, processes, memory


def busy(x, y):
    z = (x * 2 + y).softmax(-1)
    x.add_(z)
    return z.sum(0), x.T


@pytest.mark.parametrize("threads", [1, 2])
def test_large_tensors(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        x, y = torch.randn(701, 513), torch.randn(513)
        agree(busy, lambda: [x.clone(), y], lambda: [x.t().clone().t(), y])
    finally:
        torch.set_num_threads(before)


def test_several_threads_call_at_once():
    compiled = pliant.compile(busy, backend=llvm, dynamic=True)
    wrong = []

    def work(seed):
        numbers = torch.Generator().manual_seed(seed)
        for size in (3, 300, 7, 64):
            x, y = torch.randn(size, 40, generator=numbers), torch.randn(40, generator=numbers)
            ours, theirs = x.clone(), x.clone()
            for actual, expected in zip(compiled(ours, y), busy(theirs, y)):
                if not torch.allclose(actual, expected, atol=1e-5):
                    wrong.append((seed, size))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


COMPILED = pliant.compile(busy, backend=llvm)


def _call_in_child(x, y, results):
    results.put([t.tolist() for t in COMPILED(x, y)])


def test_a_forked_process_goes_on_calling():
    x, y = torch.randn(40, 700), torch.randn(700)
    COMPILED(x.clone(), y)
    expected = [t.tolist() for t in busy(x.clone(), y)]
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    child = fork.Process(target=_call_in_child, args=(x.clone(), y, results))
    child.start()
    actual = results.get()
    child.join()
    for ours, theirs in zip(actual, expected):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs))
