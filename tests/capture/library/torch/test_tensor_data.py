"""Distributions, comparisons of whole tensors, tensors of tensors, old constructors."""

import collections

import pytest
import torch
import torch.distributions as D

import pliant
from tests.support.against_eager import check

X = torch.tensor([[0.5, 1.5], [2.0, 0.25]])


@pytest.fixture(autouse=True)
def validation():
    """PyTorch's compiler turns it off when it is imported."""
    before = D.Distribution._validate_args
    D.Distribution.set_default_validate_args(True)
    yield
    D.Distribution.set_default_validate_args(before)


def normal(a):
    d = D.Normal(a, a)
    z = d.rsample()
    return z, d.log_prob(z), d.entropy(), d.cdf(z), d.sample((3,)), d.mean


def categorical(a):
    d = D.Categorical(logits=a)
    s = d.sample()
    return s, d.log_prob(s), d.entropy(), d.probs


def several(a):
    return (
        D.Bernoulli(logits=a).sample(),
        D.Uniform(torch.zeros(2), torch.ones(2)).rsample(),
        D.Exponential(a).rsample(),
        D.Gamma(a, 1.0).log_prob(a),
        D.OneHotCategorical(logits=a).sample(),
        D.Independent(D.Normal(a, 1.0), 1).log_prob(a),
        D.kl_divergence(D.Normal(a, 1.0), D.Normal(0.0, a)),
    )


@pytest.mark.parametrize("function", [normal, categorical, several])
def test_distributions(function):
    check(function, X)
    check(function, X, dynamic=True)


def test_wrong_parameters_raise_what_eager_raises():
    check(lambda a: D.Normal(a, -a).sample(), X)
    check(lambda a: D.Normal(a, a).log_prob(torch.full((2, 2), torch.nan)) + torch.rand(2), X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (torch.allclose(x, x + 1e-9), x.allclose(x + 1)),
        lambda x: (torch.equal(x, x + 0), x.equal(x + 1), torch.equal(x, x[0])),
        lambda x: torch.tensor([x.sum(), 1.0]) + torch.tensor([[x[0, 0], 2], [x[1, 1], 3]]).sum(),
        lambda x: torch.tensor([1, 2.5]) + x,
        lambda x: (torch.Tensor([1, 2]), torch.LongTensor([1]), torch.FloatTensor(), x.new([3, 4])),
        lambda x: (torch.Tensor(2, 0), torch.IntTensor(0), x.new(2, 0).shape, x.new(x[:0].size())),
    ],
)
def test_values(function):
    check(function, X)


# ---- several tensors as one argument

RETURNED = {
    "added": lambda a: torch.add(a, a.median(0)),
    "to the left": lambda a: a.median(0) + a,
    "to the right": lambda a: a + a.median(0),
    "summed": lambda a: torch.sum(a.min(0)),
    "a size": lambda a: a.view(a.sort(0)),
    "dimensions": lambda a: a.permute(a.topk(1)),
    "a condition": lambda a: torch.where(a > 0, a.sort(0), a),
    "joined": lambda a: torch.cat(a.sort(0)),
    "stacked": lambda a: torch.stack(a.max(1)),
    "for each": lambda a: torch._foreach_add(a.sort(0), 1),
    "of linear algebra": lambda a: torch.linalg.svd(torch.linalg.qr(a)),
    "an index": lambda a: a[a.long().max(0).indices, a.max(0).indices],
    "a queue": lambda a: torch.cat(collections.deque([a, a])),
    "a queue added": lambda a: torch.add(a, collections.deque([a])),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", RETURNED)
def test_what_an_operation_returns_as_an_argument(name, dynamic):
    """The classes of `torch.return_types` are tuples, to some operations."""
    check(RETURNED[name], X, breaks=None, dynamic=dynamic)


# ---- comparisons of tensors whose sizes are in the data

SIZED = {
    "a mask": lambda a: a[a > 1.0],
    "unique": lambda a: a.unique_consecutive(),
    "a number": lambda a: torch.ones(int(a[0, 0].item() * 8)),
}
OTHERS = {
    "fixed": lambda a: a.flatten(),
    "one": lambda a: torch.ones(1),
    "empty": lambda a: torch.zeros(0),
    "in the data": lambda a: a[a < 1.0],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", SIZED)
def test_equal_with_sizes_in_the_data(name, other, dynamic):
    def function(a):
        one, two = SIZED[name](a), OTHERS[other](a)
        return one + 1 if torch.equal(one, two) else two * 2, two.equal(one)

    for a in (X, X * 0 + 1, X.flip(0)):
        check(function, a, breaks=None, dynamic=dynamic)


def test_questions_of_handlers_about_sizes_in_the_data_break_the_graph():
    def of_tensors(a):
        return torch.tensor([a[a > 1.9], a[0, 0]])

    def of_cond(a):
        return torch.cond(a[a > 1.9] > 1, lambda: a + 1, lambda: a - 1)

    for function in (of_tensors, of_cond):
        check(function, X, breaks=None)


def test_iter_called_by_its_name():
    def function(x):
        rows = [row + 1 for row in x.__iter__()]
        return rows, next(x.__iter__()), list(torch.Tensor.__iter__(x))

    check(function, torch.arange(6.0).reshape(3, 2))


class Kind(torch.Tensor):
    pass


class Answering:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "asked"


@pytest.mark.filterwarnings("ignore:To copy construct:UserWarning")
def test_data_is_not_asked_for_an_override():
    def f(x):
        return [torch.tensor(x), torch.as_tensor(x, dtype=torch.float64), torch.tensor([x[0]])]

    x = torch.ones(3).as_subclass(Kind)
    assert [type(y) for y in pliant.compile(f)(x)] == [type(y) for y in f(x)]
    for make in (torch.tensor, torch.as_tensor, torch.asarray):
        check(lambda x, item, make=make: make(item), X, Answering(), breaks=None)


def test_an_attribute_to_delete():
    def f(x):
        del x.note
        return x + 1

    def noted():
        x = torch.ones(3)
        x.note = 1
        return x

    compiled = pliant.compile(f)
    for x in (torch.ones(3), noted(), torch.ones(3)):
        if hasattr(x, "note"):
            assert compiled(x).equal(torch.full((3,), 2.0))
            assert not vars(x)
        else:
            with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'note'"):
                compiled(x)


BY_NAME = {
    "allclose": lambda x: torch.allclose(input=x, other=x + 1e-9),
    "equal": lambda x: torch.equal(input=x, other=x + 1),
    "tensor_split": lambda x: torch.tensor_split(input=x, sections=2),
    "asarray": lambda x: torch.asarray(obj=x.numpy()),
    "as_tensor": lambda x: torch.as_tensor(data=x.numpy()),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_the_first_argument_by_name(name):
    check(lambda x: (BY_NAME[name](x), x + 1), torch.arange(4.0))


def _listed_before_it_grows(x):
    kept = x - x
    numbers = kept.flatten().tolist()
    torch.sqrt(torch.ones(2), out=kept)
    return numbers


def _read_before_it_grows(x):
    kept = x - x
    view = kept.flatten()
    before = view[0].item()
    torch.sqrt(torch.ones(2), out=kept)
    return before, kept[0].item()


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ("eager", "llvm"))
@pytest.mark.parametrize("program", (_listed_before_it_grows, _read_before_it_grows))
def test_numbers_read_before_a_tensor_is_enlarged(program, backend):
    compiled = pliant.compile(program, backend=backend)
    for x in (torch.tensor(3.0), torch.tensor(4.0)):
        assert compiled(x) == program(x)
