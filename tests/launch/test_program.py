"""A program is plain data: written down, read again and bound anew, it gives the same results."""

import math
import pickle
import types

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.launch.program import ProgramBindings, is_plain, load
from pliant.targets.target import KernelSource
from tests.support.compiled_code import compiled_code

CONSTANT = torch.arange(4.0)


@pliant.allow_in_graph
def doubled(x):
    return x * 2


def pointwise(x, y):
    return (x.sin() + y).relu() * 3


def normalised(x, y):
    return x.softmax(-1) - y.mean(), y.var(-1)


def multiplied(x, y):
    return F.linear(x, y, CONSTANT).tanh(), x @ y.t()


def with_views(x, y):
    return x.t().reshape(2, -1).cumsum(-1), y[1:, ::2], x.view(-1)[3:]


def in_place(x, y):
    x.mul_(2)
    y[0] = x[1]
    return x + y


def read_from_data(x, y):
    n = int(y.abs().sum().clamp(max=3))
    return x * n, y.nonzero()


def random(x, y):
    return F.dropout(x, 0.5) + torch.rand_like(y)


def opaque(x, y):
    return doubled(x) + y, torch.linalg.inv(x @ x.t() + 9 * torch.eye(4))


def numbers(x, y):
    return x * math.sqrt(x.shape[0]), x.shape[0] * 0.3, x.numel() > 3, x.shape[0] + 1


def searched(x, y):
    return torch.bucketize(x, CONSTANT), x[y.argsort(-1)[0]]


PROGRAMS = [pointwise, normalised, multiplied, with_views, in_place]
PROGRAMS += [read_from_data, random, opaque, numbers, searched]


def arguments():
    torch.manual_seed(0)
    return torch.randn(4, 4), torch.randn(4, 4)


def compiled_twice(program, dynamic):
    """The code of each graph, compiled two times."""
    pairs = []

    def backend(gm, examples):
        pairs.append((compiled_code(gm, examples), compiled_code(gm, examples)))
        return pairs[-1][0].load()

    pliant.compile(program, backend=backend, dynamic=dynamic)(*arguments())
    return pairs


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_that_is_read_again_gives_the_same(program, dynamic):
    loaded = []

    def backend(gm, examples):
        stored = pickle.dumps(compiled_code(gm, examples).program)
        fresh = compiled_code(gm, examples)
        again = pickle.loads(stored)
        assert again == fresh.program  # so the bindings of one are those of the other
        loaded.append(load(again, fresh.bindings))
        return loaded[-1]

    expected_args, args = arguments(), arguments()
    torch.manual_seed(1)
    expected = program(*expected_args)
    torch.manual_seed(1)
    result = pliant.compile(program, backend=backend, dynamic=dynamic)(*args)
    assert loaded
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(args, expected_args)


def parts(value):
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from parts(item)
    else:
        yield value


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_there_is_nothing_live_in_it(program):
    for code, _ in compiled_twice(program, True):
        made = code.program
        whole = (made.inputs, made.symbols, made.steps, made.outputs, made.written, made.kernels)
        assert all(is_plain(part) for part in parts(whole))
        addresses = {address for address, _ in code.bindings.kernels.values()}
        assert addresses.isdisjoint(part for part in parts(whole) if type(part) is int)
        assert len(code.bindings.objects) == made.objects


def test_live_objects_are_not_plain():
    live = [torch.ones(1), len, lambda: 1, object(), types.SimpleNamespace(), torch.Generator()]
    assert not any(map(is_plain, live))
    assert not any(is_plain([1, thing]) for thing in live)


def test_kernels_are_known_by_what_is_in_them():
    (code, again), *_ = compiled_twice(pointwise, False)
    sources = [made.source for made in code.written.groups.values()]
    assert [source.key for source in sources] == list(code.program.kernels)
    assert sources == [made.source for made in again.written.groups.values()]
    assert all(isinstance(source, KernelSource) for source in sources)
    ((other, _),) = compiled_twice(normalised, False)
    assert set(other.program.kernels).isdisjoint(code.program.kernels)


def test_a_kernel_that_is_not_bound_is_an_error():
    ((code, _),) = compiled_twice(pointwise, False)
    with pytest.raises(KeyError):
        load(code.program, ProgramBindings(code.bindings.objects, {}, None))


def test_an_object_that_is_not_bound_is_an_error():
    ((code, _),) = compiled_twice(opaque, False)
    assert code.program.objects
    with pytest.raises(ValueError, match="too few items"):
        load(code.program, ProgramBindings((), code.bindings.kernels, None))


def test_text():
    ((code, _),) = compiled_twice(multiplied, True)
    text = str(code.program)
    assert "aten::mm.out(" in text and "cpu_kernel 0(" in text
    assert "= cpu_empty torch.float32" in text
    assert text.splitlines()[-1].startswith("  return t")
