"""Each invariant of a functional graph, broken by hand: the checker names it."""

from dataclasses import replace

import pytest
import torch

import pliant
from pliant.base.malformed import MalformedStageError
from pliant.graph.check import check_functional
from pliant.graph.ir import Functional, MemoryWrite, Node, OutputView, Strided, Tensor
from pliant.sym.expr import ONE, ZERO, integer, symbol
from tests.support.compiled_code import compiled_code

F32 = torch.float32


def tensor(*sizes, dtype=F32, **more):
    sizes = tuple(integer(size) if isinstance(size, int) else size for size in sizes)
    strides = tuple(ONE for _ in sizes)
    return Tensor(sizes, strides, ZERO, dtype, **more)


def call(*args, results=(), name="aten.sin.default", **more):
    node = Node(name, torch.ops.aten.sin.default, args, {}, tuple(results), **more)
    for result in results:
        result.node = node
    return node


def output(of, input=None):
    return OutputView(of, input, (), (), ZERO, F32, False, object())


def graph(inputs=(), nodes=(), outputs=(), writes=None, constants=None):
    return Functional(
        tuple(inputs), tuple(nodes), tuple(outputs), writes or {}, {}, constants or {}, ()
    )


X, Y, Z = tensor(3), tensor(3), tensor(3)


def belongs_elsewhere():
    result = tensor(3)
    node = call(X, results=[result])
    result.node = call(X)
    return graph([X], [node])


def twice():
    result = tensor(3)
    return graph([X], [call(X, results=[result]), call(X, results=[result])])


def overwriting(old, input=None, writes=None):
    put = MemoryWrite(None, input, old, Strided((), (), ZERO))
    result = tensor(3)
    return graph([X], [call(X, results=[result], name="pliant.stored", put=put)], writes=writes)


BROKEN = {
    "uses a tensor before it is defined": lambda: graph([X], [call(Y, results=[tensor(3)])]),
    "aten.sin.default uses a tensor": lambda: graph([], [call([X])]),
    "a result of aten.sin.default is defined twice": twice,
    "input 1 is defined twice": lambda: graph([X, X]),
    "belongs to another node": belongs_elsewhere,
    "input 0 has 1 sizes and 0 strides": lambda: graph([Tensor((ONE,), (), ZERO, F32)]),
    "input 0 has the dtype 'float32'": lambda: graph([tensor(3, dtype="float32")]),
    "input 0 has the device 'cpu'": lambda: graph([tensor(3, device="cpu")]),
    "a constant has 0 sizes and 1 strides": lambda: graph(
        constants={Tensor((), (ONE,), ZERO, F32): torch.ones(1)}
    ),
    "nothing tells u7 when aten.sin.default has run": lambda: graph(
        [X], [call(X, results=[tensor(symbol("u7"))])]
    ),
    "is a view of nothing, or of several": lambda: graph([X], [call(X, view=True)]),
    "overwrites a tensor before it is defined": lambda: overwriting(Y),
    "overwrites input 0, which is not declared": lambda: overwriting(X, 0),
    "output 0 is not defined": lambda: graph([X], outputs=[output(Y)]),
    "output 0 is a view of input 4": lambda: graph([X], outputs=[output(None, 4)]),
    "input 2 is overwritten, and is no tensor": lambda: graph([X], writes={2: X}),
    "with a tensor that is not defined": lambda: graph([X], writes={0: Y}),
    "input 0 is overwritten with torch.int64": lambda: graph(
        [X, t := tensor(3, dtype=torch.int64)], writes={0: t}
    ),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_what_is_wrong_with_a_graph(problem):
    with pytest.raises(MalformedStageError, match=problem):
        check_functional(BROKEN[problem]())


def test_a_graph_without_problems():
    result = tensor(3)
    good = graph([X], [call(X, results=[result])], [output(result)], {0: result})
    assert check_functional(good) is good


def stages(program, *args):
    made = []

    def backend(gm, examples):
        made.append(compiled_code(gm, examples).functional)
        return gm.forward

    pliant.compile(program, backend=backend, dynamic=True)(*args)
    return made[0]


def test_text_of_a_captured_program():
    def program(x):
        x.mul_(2)
        return (x + 1).nonzero(), x[1:]

    text = str(stages(program, torch.ones(3, 4)))
    lines = text.splitlines()
    assert lines[0] == "functional(in0: float32[s0, s1])"
    assert any("aten.mul.Tensor(in0, 2)" in line for line in lines)
    assert any("aten.nonzero.default(" in line and ": size = " in line for line in lines)
    assert lines[-2].startswith("  write in0 = t") and lines[-1].startswith("  return t")
    assert "?" not in text


def test_a_stage_is_frozen():
    functional = stages(lambda x: x + 1, torch.ones(3))
    with pytest.raises(AttributeError):
        functional.nodes = ()
    assert isinstance(functional.nodes, tuple) and replace(functional, nodes=()).nodes == ()
