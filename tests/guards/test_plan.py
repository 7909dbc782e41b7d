"""From guards to the native tree, and from a failure to a sentence."""

import collections
import enum
import types

import pytest
import torch

from pliant._native import UNREACHABLE, State
from pliant.guards import plan, source
from pliant.guards.guard import MISSING, ExpectedTensor, Guard, GuardKind, Load, ShapeCondition
from pliant.guards.source import (
    Attr,
    CellContents,
    ClassAttr,
    ClosureCell,
    DictItem,
    Fixed,
    InstanceDict,
    Local,
    SeqItem,
    TypeOf,
)
from pliant.sym.cond import eq, le
from pliant.sym.expr import symbol
from pliant.sym.program import compile_program

X, Y, Z = Local(0, "x"), Local(1, "y"), Local(2, "z")


def spec_of(t):
    keys = torch._C._dispatch_keys(t).raw_repr()
    sizes = (tuple(t.shape), t.stride(), t.storage_offset())
    return ExpectedTensor(t.dtype, t.device, t.requires_grad, *sizes, keys)


def why(guards, *values):
    """The explanation of the first failing guard."""
    guards = guards if isinstance(guards, list) else [guards]
    result = plan.build(guards, [], len(values)).check(values)
    return None if result is None else plan.explain(*result)


class Model(torch.nn.Module):
    scale = 2

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)


class Other:
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def double(x):
    return 2 * x


T = torch.ones(3, 4)
SENTENCES = [
    (Guard(GuardKind.TYPE, X, torch.Tensor), T, 3, "type(L['x']) is Tensor, got int"),
    (Guard(GuardKind.IS, X, None), None, 3, "L['x'] is None, got 3"),
    (Guard(GuardKind.IS, X, double), double, Other(), "L['x'] is double, got <Other object>"),
    (Guard(GuardKind.IS_NOT, X, None), 3, None, "L['x'] is not None, got None"),
    (Guard(GuardKind.EQUALS, X, 3), 3, 4, "L['x'] == 3, got 4"),
    (Guard(GuardKind.EQUALS, X, 3), 3, 3.0, "L['x'] == 3, got 3.0"),
    (Guard(GuardKind.EQUALS, X, "a"), "a", T, "L['x'] == 'a', got <Tensor object>"),
    (
        Guard(GuardKind.EQUALS, X, torch.float32),
        torch.float32,
        int,
        "L['x'] == torch.float32, got int",
    ),
    (Guard(GuardKind.LENGTH, X, 2), [1, 2], [], "len(L['x']) == 2, got 0"),
    (Guard(GuardKind.LENGTH, X, 2), [1, 2], 5, "len(L['x']) == 2, got 5"),
    (Guard(GuardKind.KEYS, X, ("a",)), {"a": 1}, {"b": 1}, "list(L['x']) == ['a'], got ['b']"),
    (Guard(GuardKind.HAS, X, "a"), {"a": 1}, {}, "'a' in L['x'], got no such key"),
    (Guard(GuardKind.LACKS, X, "a"), {}, {"a": 1}, "'a' not in L['x'], got such a key"),
    (Guard(GuardKind.PRESENT, DictItem(X, 1), None), {1: 1}, {}, "L['x'][1] is there, got nothing"),
    (
        Guard(GuardKind.FUNCTION, X, (double.__code__, double.__globals__)),
        double,
        spec_of,
        "L['x'].__code__ is <code double>, got spec_of",
    ),
    (Guard(GuardKind.PREDICATE, X, callable), len, 3, "callable(L['x']), got 3"),
    (Guard(GuardKind.EQUALS, SeqItem(X, 1), 5), [0, 5], [0, 6], "L['x'][1] == 5, got 6"),
    (
        Guard(GuardKind.EQUALS, SeqItem(X, 1), 5),
        [0, 5],
        [],
        "L['x'][1] == 5, but L['x'][1] is not there",
    ),
]


@pytest.mark.parametrize("guard, good, bad, sentence", SENTENCES)
def test_a_failure_reads_as_a_sentence(guard, good, bad, sentence):
    assert why(guard, good) is None
    assert why(guard, bad) == sentence


TENSORS = [
    (T.double(), "L['x'].dtype == torch.float32, got torch.float64"),
    (T.to("meta"), "L['x'].device == cpu, got meta"),
    (torch.ones(3), "L['x'].dim() == 2, got 1"),
    (torch.ones(4, 4), "L['x'].size()[0] == 3, got 4"),
    (torch.ones(3, 5), "L['x'].size()[1] == 4, got 5"),
    (torch.ones(4, 3).t(), "L['x'].stride()[0] == 4, got 1"),
    (torch.ones(4, 4)[1:], "L['x'].storage_offset() == 0, got 4"),
    (T.clone().requires_grad_(), "L['x'].requires_grad == False, got True"),
    (None, "L['x'] is a tensor, got None"),
]


@pytest.mark.parametrize("value, sentence", TENSORS)
def test_a_tensor_names_the_property_that_differs(value, sentence):
    guard = Guard(GuardKind.TENSOR, X, spec_of(T))
    assert why(guard, T.clone()) is None
    assert why(guard, value) == sentence


def test_dispatch_keys_are_named():
    with torch.inference_mode():
        value = torch.ones(3, 4)
    text = why(Guard(GuardKind.TENSOR, X, spec_of(T)), value)
    assert text.startswith("L['x'].dispatch_keys == DispatchKeySet(") and "AutogradCPU" in text


def test_relations():
    same, distinct = Guard(GuardKind.SAME, X, (Z,)), Guard(GuardKind.DISTINCT, X, (Y, Z))
    a, b, c = [], [], []
    assert why(same, a, b, a) is None and why(distinct, a, b, c) is None
    assert why(same, a, b, c) == "same object: L['x'], L['z'], got different objects"
    sentence = "all different: L['x'], L['y'], L['z'], got L['y'] is L['z']"
    assert why(distinct, a, b, b) == sentence


def shape(condition, text, **loads):
    program = compile_program(condition)
    loads = tuple(loads[s.name] for s in program.symbols)
    return Guard(GuardKind.SHAPE, None, ShapeCondition(program, loads, text))


def test_shapes():
    a, b = symbol("a"), symbol("b")
    size, number = Load(X, "size", 0), Load(SeqItem(Y, 0), "value")
    small = shape(le(a, 30), "L['x'].size()[0] <= 30", a=size)
    equal = shape(eq(a * 2, b), "2 * L['x'].size()[0] == L['y'][0]", a=size, b=number)
    good = torch.ones(30), [60]
    assert str(small) == "L['x'].size()[0] <= 30"
    assert why([small, equal], *good) is None
    sentence = "L['x'].size()[0] <= 30, got L['x'].size()[0] = 40"
    assert why([small, equal], torch.ones(40), [80]) == sentence
    wrong = "2 * L['x'].size()[0] == L['y'][0], got L['x'].size()[0] = 3, L['y'][0] = 7"
    assert why([small, equal], torch.ones(3), [7]) == wrong
    lost = "2 * L['x'].size()[0] == L['y'][0], got L['x'].size()[0] is not there, L['y'][0] = 7"
    assert why(equal, torch.ones(()), [7]) == lost
    found = plan.difference(small, (40,))
    assert (found.subject, found.expected) == ("whether L['x'].size()[0] <= 30", "true")
    assert found.found == "not (L['x'].size()[0] = 40)"


def test_the_text_of_a_load():
    texts = [str(Load(X, what, 1)) for what in ("size", "stride", "offset", "value")]
    assert texts == ["L['x'].size()[1]", "L['x'].stride()[1]", "L['x'].storage_offset()", "L['x']"]


def test_state():
    guard = Guard(GuardKind.STATE, None, State.current())
    assert why(guard) is None
    with torch.no_grad():
        assert why(guard) == "torch global state: grad_enabled == True, got False"


def test_class_attributes(monkeypatch):
    cls = Fixed(Model, "Model")
    guards = [
        Guard(GuardKind.CLASS_ATTR, cls, ("scale", 2)),
        Guard(GuardKind.CLASS_ATTR, cls, ("__getattribute__", object.__getattribute__)),
        Guard(GuardKind.CLASS_ATTR, cls, ("absent", MISSING)),
    ]
    assert why(guards) is None
    monkeypatch.setattr(Model, "scale", 3)
    assert why(guards) == "Model.scale is 2, got 3"
    monkeypatch.undo()
    monkeypatch.setattr(Model, "absent", 1, raising=False)
    assert why(guards) == "Model.absent is <no such attribute>, got 1"
    monkeypatch.undo()
    monkeypatch.delattr(Model, "scale")
    assert why(guards[0]) == "Model.scale is 2, got <no such attribute>"


def outer(value):
    return lambda: value


SOURCES = [
    (X, 7, 7),
    (Fixed(9, "nine"), 0, 9),
    (DictItem(InstanceDict(X), "value"), types.SimpleNamespace(value=7), None),
    (DictItem(X, ("k", 1)), {("k", 1): 7}, 7),
    (SeqItem(X, 1), [0, 7], 7),
    (Attr(X, "real"), 7, 7),
    (TypeOf(X), 7, int),
    (CellContents(ClosureCell(X, 0)), outer(7), 7),
    (ClassAttr(TypeOf(X), "scale"), Model(), 2),
    (source.global_variable({"name": 7}, "name"), 0, 7),
]


@pytest.mark.parametrize("path, value, expected", SOURCES[:2] + SOURCES[3:])
def test_every_source_has_an_accessor(path, value, expected):
    tree = plan.build([], [path], 1)
    assert tree.slots((value,)) == (expected,)


def test_there_is_an_accessor_for_each_kind_of_source():
    kinds = {
        cls
        for cls in vars(source).values()
        if isinstance(cls, type) and issubclass(cls, source.Source) and cls.__name__[0] != "_"
    }
    assert {*plan._STEPS, *plan._ROOTS} == kinds - {source.Source}


def test_a_module_tree():
    model = Model()
    inner = DictItem(DictItem(InstanceDict(X), "_modules"), "inner")
    weight = DictItem(DictItem(InstanceDict(inner), "_parameters"), "weight")
    hooks = DictItem(InstanceDict(inner), "_forward_hooks")
    guards = [
        Guard(GuardKind.TYPE, inner, torch.nn.Linear),
        Guard(GuardKind.TENSOR, weight, spec_of(model.inner.weight)),
        Guard(GuardKind.LENGTH, hooks, 0),
    ]
    tree = plan.build(guards, [weight], 1)
    assert tree.check((model,)) is None and tree.slots((model,))[0] is model.inner.weight
    model.inner.register_forward_hook(lambda *args: None)
    guard, got = tree.check((model,))
    assert plan.explain(guard, got) == "len(L['x'].inner._forward_hooks) == 0, got 1"
    assert isinstance(got, collections.OrderedDict)
    model.inner = torch.nn.Linear(3, 5)
    assert plan.explain(*tree.check((model,))) == "L['x'].inner.weight.size()[0] == 3, got 5"
    del model.inner
    guard, got = tree.check((model,))
    assert got is UNREACHABLE and str(guard.source) in plan.explain(guard, got)


def test_duplicates_are_dropped_but_not_what_only_looks_alike():
    guards = [
        Guard(GuardKind.EQUALS, Local(0, "x"), 0.0),
        Guard(GuardKind.EQUALS, Local(0, "x"), -0.0),
    ]
    assert len(plan.build(guards, [], 1).failures((1,))) == 2
    guards = [Guard(GuardKind.EQUALS, Local(0, "x"), value) for value in (1, 1, True, 1)]
    assert len(plan.build(guards, [], 1).failures((2,))) == 2
    guards = [Guard(GuardKind.TYPE, SeqItem(Local(0, "x"), 0), int)] * 3
    assert len(plan.build(guards, [], 1).failures((["text"],))) == 1
    guards = [Guard(GuardKind.DISTINCT, X, (Y,)), Guard(GuardKind.DISTINCT, X, (Y,))]
    assert len(plan.build(guards, [], 2).failures((1, 1))) == 1
    a = symbol("a")
    loads = [Load(X, "size", 0), Load(X, "size", 1), Load(X, "size", 0)]
    guards = [shape(le(a, 3), str(load), a=load) for load in loads] + [
        shape(le(a, 2), "another", a=loads[0])
    ]
    assert len(plan.build(guards, [], 1).failures((torch.ones(5, 5),))) == 3


def test_the_process_comes_first_then_parameters():
    deep = Guard(GuardKind.EQUALS, SeqItem(Y, 0), 1)
    shallow = Guard(GuardKind.EQUALS, X, 1)
    state = Guard(GuardKind.STATE, None, State.current())
    with torch.no_grad():
        found = plan.build([deep, shallow, state], [], 2).failures((2, [2]))
    assert [guard for guard, _ in found] == [state, shallow, deep]


def test_enum_members_and_other_singletons_are_constants_by_identity():
    for value in (torch.contiguous_format, Color.RED, int, ...):
        assert why(Guard(GuardKind.EQUALS, X, value), value) is None
    assert why(Guard(GuardKind.EQUALS, X, Color.RED), Color.BLUE) is not None
    with pytest.raises(TypeError):
        why(Guard(GuardKind.EQUALS, X, [1]), [1])
