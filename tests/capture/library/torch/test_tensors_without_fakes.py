"""Tensors that a graph can't hold, as sparse and quantized ones, beside those that it can."""

import operator

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome


def integers_that_require_grad() -> torch.Tensor:
    integers = torch.ones(3, 3, dtype=torch.int64)
    integers[:] = torch.full((), 2.0, requires_grad=True)
    return integers


KINDS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "mkldnn": lambda: torch.eye(3).to_mkldnn(),
    "quantized": lambda: torch.quantize_per_tensor(torch.eye(3), 0.5, 0, torch.quint8),
    "integers that require grad": integers_that_require_grad,
}
OPERATORS = (
    "add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift iadd imul imatmul eq lt"
)


def outcome(function, *args):
    """The result as ordinary numbers, or the exception."""
    try:
        result = function(*args)
    except Exception as error:
        return type(error), str(error)
    dense = result.dequantize() if result.is_quantized else result.to_dense()
    return result.layout, result.dtype, dense.tolist()


@pytest.mark.filterwarnings("ignore:.*quantized:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OPERATORS.split())
def test_operators_between_both(name, kind):
    operate = getattr(operator, name)

    def behind(x, other):
        return operate(x + 1, other)

    def before(x, other):
        return operate(other, x + 1)

    for function in (behind, before):
        compiled = pliant.compile(function)
        for dtype in (torch.float32, torch.int64):
            x = torch.arange(9).reshape(3, 3).to(dtype)
            expected = outcome(function, x, KINDS[kind]())
            assert outcome(compiled, x, KINDS[kind]()) == expected
    assert pliant.counters["fallbacks"] == 0


def test_views_of_integers_that_require_grad():
    def f(b, c, d):
        c[:] = d
        return b // b

    def arguments():
        b = torch.ones(2, dtype=torch.int64).reshape(2, 1)
        return b, b[::2], torch.full((), 3.0, requires_grad=True)

    eager, ours = f(*arguments()), pliant.compile(f)(*arguments())
    assert ours.equal(eager)
    assert ours.requires_grad == eager.requires_grad
    assert pliant.counters["fallbacks"] == 0


def test_a_break_names_the_kind():
    def f(sparse, x):
        return torch.sparse.mm(sparse, x) + 1

    with pytest.raises(pliant.errors.GraphBreakError, match=r"mm on a Tensor \(sparse\)"):
        pliant.compile(f, fullgraph=True)(torch.eye(3).to_sparse(), torch.ones(3, 3))


VALUES = {
    "sparse": lambda: torch.eye(3).to_sparse().coalesce().values(),
    "of a graph": lambda: (torch.eye(3).requires_grad_() * 1).to_sparse().coalesce().values(),
    "compressed": lambda: torch.eye(3).to_sparse_csr().values(),
    "indices": lambda: torch.eye(3).to_sparse().coalesce().indices(),
}
READERS = {
    "read": lambda v: (v + 1, v._is_view(), v.is_leaf, v.requires_grad),
    "written": lambda v: (v.add_(1) * 2, v),
    "written through a view": lambda v: (v[1:].mul_(3), v),
    "detached": lambda v: (v.detach().add_(1), v),
}


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", VALUES)
def test_ordinary_views_of_them(kind, reader, backend):
    """Their memory is that of a tensor that can't be in the graph."""
    compiled = pliant.compile(READERS[reader], fullgraph=True, backend=backend)
    for _ in range(2):
        same_outcome(run(compiled, (VALUES[kind](),)), run(READERS[reader], (VALUES[kind](),)))


def test_a_method_breaks_once():
    compiled = pliant.compile(lambda x: x.to_sparse().to_dense() * 2)
    assert torch.equal(compiled(torch.eye(3)), torch.eye(3) * 2)
    assert events.counters["graph_breaks"] == 2


def test_attributes_of_their_own():
    def program(s):
        return s.to_dense() * 2

    def plain():
        return torch.eye(3).to_sparse()

    def special():
        tensor = plain()
        tensor.to_dense = lambda: torch.ones(1)
        return tensor

    compiled = pliant.compile(program)
    for make in (plain, special, plain):
        assert torch.equal(compiled(make()), program(make()))
