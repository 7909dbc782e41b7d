"""Every check of the guard tree: what passes, what fails, and what is reported."""

import collections
import math
from collections import OrderedDict

import pytest
import torch

from pliant._native import UNREACHABLE, GuardTree, State
from pliant.guards.guard import ExpectedTensor


class Plain:
    pass


class Liar(list):
    def __len__(self):
        raise AssertionError("the guards must not run user code")


def one(method, expected, *, make=None):
    """A tree with one check on its only local."""
    tree = GuardTree(1)
    node = tree.local(0)
    getattr(tree, method)(node, expected, "the guard")
    tree.finish()
    return tree


def passes(tree, *values):
    result = tree.check(values)
    assert result is None or result[0] == "the guard"
    try:
        tree.slots(values)
        assert result is None
    except ValueError:
        assert result is not None
    assert (result is None) == (tree.failures(values) == [])
    return result is None


def spec_of(t, **changes):
    fields = dict(
        dtype=t.dtype,
        device=t.device,
        requires_grad=t.requires_grad,
        sizes=tuple(t.shape),
        strides=t.stride() if t.layout is torch.strided else None,
        storage_offset=t.storage_offset() if t.layout is torch.strided else None,
        dispatch_keys=torch._C._dispatch_keys(t).raw_repr(),
    )
    return ExpectedTensor(**{**fields, **changes})


def f():
    pass


def same_code():
    return type(f)(f.__code__, {})


marker = Plain()
CASES = [
    ("check_type", int, [3], [True, 3.0, None]),
    ("check_is", marker, [marker], [Plain(), None]),
    ("check_is_not", marker, [Plain(), None], [marker]),
    ("check_length", 2, [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, "ab", b"ab", range(2)], [[1], 7]),
    ("check_length", 2, [collections.deque([1, 2]), Liar([1, 2])], [collections.deque(), None]),
    ("check_length", 2, [OrderedDict(a=1, b=2), frozenset("ab")], [Liar()]),
    ("check_keys", ("a", 1), [{"a": 0, 1: 0}], [{1: 0, "a": 0}, {"a": 0}, {"a": 0, 1.0: 0}, []]),
    ("check_keys", ("a", "b"), [OrderedDict(a=1, b=2)], [OrderedDict(b=2, a=1)]),
    ("check_has", "a", [{"a": None}, OrderedDict(a=1)], [{}, {"b": 1}, ["a"], "a"]),
    ("check_lacks", "a", [{}, {"b": 1}, collections.Counter()], [{"a": None}, [], 3]),
    ("check_function", (f.__code__, f.__globals__), [f], [same_code(), lambda: None, 3]),
    ("check_predicate", lambda v: v > 2, [3, 4.0], [1, "text"]),
]


@pytest.mark.parametrize("method, expected, good, bad", CASES)
def test_a_check_holds_for_the_good_and_not_for_the_bad(method, expected, good, bad):
    tree = one(method, expected)
    for value in [*good, *good]:
        assert passes(tree, value), value
    for value in [*bad, *bad]:
        assert not passes(tree, value), value
    assert passes(tree, good[0])


NAN = math.nan
Point = collections.namedtuple("Point", "x y")
CONSTANTS = [
    *[None, True, False, 0, 1, -1, 2**100, 0.0, -0.0, 1.0, NAN, math.inf, 0j, complex(0.0, -0.0)],
    *["", "a", "é", b"", b"a", (), (1,), (True,), (1.0,), (0.0,), (-0.0,), (NAN,), ((1, "a"),)],
    *[frozenset(), frozenset({1}), frozenset({1.0}), frozenset({True}), frozenset({(1, 2)})],
    *[slice(1), slice(1, 2), range(3), range(4), ..., torch.float32, torch.float64, int, float],
    *[torch.device("cpu"), torch.device("meta"), torch.Size([1]), torch.Size([2]), Point(1, 2)],
    *[Point(1, 3), torch.contiguous_format, torch.strided, f, marker, NotImplemented],
]


@pytest.mark.parametrize("i", range(len(CONSTANTS)))
def test_a_constant_equals_only_itself(i):
    tree = one("check_equal", CONSTANTS[i])
    assert [passes(tree, value) for value in CONSTANTS] == [j == i for j in range(len(CONSTANTS))]


@pytest.mark.parametrize(
    "make",
    [
        lambda: float("nan"),
        lambda: int("1234567890123456789"),
        lambda: "".join(["a", "b"]),
        lambda: (int("12345"), (float("1.5"), "".join(["x", "y"]))),
        lambda: frozenset({int("12345"), "".join(["a", "b"])}),
        lambda: slice(int("12345"), None),
        lambda: torch.device("cuda", 1),
    ],
)
def test_an_equal_constant_need_not_be_the_same_object(make):
    assert passes(one("check_equal", make()), make())


@pytest.mark.parametrize("value", [[1], {}, torch.ones(1), (1, [2]), type("S", (str,), {})("a")])
def test_a_value_that_is_no_constant_is_refused(value):
    with pytest.raises(TypeError):
        one("check_equal", value)


@pytest.mark.parametrize(
    "method, wrong",
    [
        *[("check_type", 3), ("check_keys", ["a"]), ("check_has", []), ("check_length", "2")],
        *[("check_function", 3), ("check_function", (1,)), ("check_class_attr", 3)],
        ("check_tensor", torch.ones(1)),
    ],
)
def test_a_check_against_nonsense_is_refused(method, wrong):
    with pytest.raises((TypeError, AttributeError)):
        one(method, wrong)


def test_a_check_reports_the_guard_and_the_value():
    assert one("check_equal", 3).check((4,)) == ("the guard", 4)


def test_class_attributes():
    class Base:
        x = 1

    class Child(Base):
        pass

    tree = GuardTree(0)
    node = tree.fixed(Child)
    tree.check_class_attr(node, ("x", 1), "has x")
    tree.check_class_attr(node, ("y",), "no y")
    tree.finish()
    for _ in range(3):
        assert tree.check(()) is None
    Base.x = 2
    assert tree.check(()) == ("has x", Child)
    Base.x = 1
    assert tree.check(()) is None
    Child.y = 0
    assert tree.check(()) == ("no y", Child)
    del Child.y
    Child.x = 5
    assert tree.check(()) == ("has x", Child)
    del Child.x
    assert tree.check(()) is None
    Child.__bases__ = (Plain,)
    assert tree.check(()) == ("has x", Child)


def test_class_attributes_are_found_without_descriptors():
    class C:
        @property
        def p(self):
            raise AssertionError

    tree = GuardTree(1)
    node = tree.class_attr(tree.type_of(tree.local(0)), "p")
    tree.check_is(node, C.__dict__["p"], "p")
    tree.finish()
    assert tree.check((C(),)) is None
    C.p = 3
    assert tree.check((C(),)) == ("p", 3)
    assert tree.check((3,)) == ("p", UNREACHABLE)


# Tensors ------------------------------------------------------------------------------------------

BASE = torch.arange(24.0).reshape(2, 3, 4)
OTHERS = {
    "dtype": BASE.double(),
    "rank": BASE.reshape(6, 4),
    "size": torch.ones(2, 3, 5),
    "stride": BASE.permute(0, 2, 1).contiguous().permute(0, 2, 1),
    "offset": torch.ones(3, 3, 4)[1:],
    "grad": BASE.clone().requires_grad_(),
    "device": BASE.to("meta"),
    "sparse": BASE.to_sparse(),
    "conjugate": torch.view_as_complex(torch.ones(2, 3, 4, 2)).conj().imag,
    "inference": torch.inference_mode()(lambda: torch.ones(2, 3, 4))(),
    "nested": torch.nested.nested_tensor([torch.ones(3, 4)] * 2, layout=torch.jagged),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_tensor_that_differs_in_one_way(name):
    tree, other = one("check_tensor", spec_of(BASE)), OTHERS[name]
    assert passes(tree, BASE) and passes(tree, BASE.clone())
    assert not passes(tree, other)


@pytest.mark.parametrize(
    "name", ["dtype", "rank", "grad", "device", "sparse", "conjugate", "inference"]
)
def test_other_tensors_match_themselves(name):
    tree = one("check_tensor", spec_of(OTHERS[name]))
    assert passes(tree, OTHERS[name]) and not passes(tree, BASE)


@pytest.mark.parametrize("value", [3, None, "x", torch.Tensor, [BASE], torch.nn.Linear(1, 1)])
def test_what_is_no_tensor_fails(value):
    assert not passes(one("check_tensor", spec_of(BASE)), value)


def test_sizes_that_do_not_matter():
    tree = one("check_tensor", spec_of(BASE, sizes=(None, 3, 4), strides=(None, 4, 1)))
    assert passes(tree, torch.ones(7, 3, 4)) and not passes(tree, torch.ones(7, 2, 4))
    tree = one("check_tensor", spec_of(BASE, storage_offset=None))
    assert passes(tree, torch.ones(3, 3, 4)[1:])


def test_a_subclass_that_runs_python_for_its_sizes():
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            kwargs = dict(dispatch_sizes_strides_policy="sizes", strides=inner.stride())
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **kwargs)

        def __init__(self, inner):
            self.inner = inner

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            asked.append(func)
            out = func(args[0].inner)
            return list(out) if isinstance(out, torch.Size) else out

    asked = []
    value = Wrapper(torch.ones(2, 3))
    keys = torch._C._dispatch_keys(value).raw_repr()
    tree = one("check_tensor", spec_of(torch.ones(2, 3), dispatch_keys=keys))
    passes(tree, value)
    assert asked
    assert not passes(tree, torch.ones(2, 3))
    assert not passes(one("check_tensor", spec_of(BASE)), value)


# Relations and state ------------------------------------------------------------------------------


def test_same_and_distinct():
    a, b, c = [], [], []
    same, distinct = GuardTree(3), GuardTree(3)
    same.check_same([same.local(0), same.local(2)], "the guard")
    distinct.check_distinct([distinct.local(i) for i in range(3)], "the guard")
    same.finish(), distinct.finish()
    for _ in range(2):
        assert passes(same, a, b, a) and not passes(same, a, b, c)
        assert passes(distinct, a, b, c) and passes(distinct, b, c, a)
        assert distinct.check((a, b, b)) == ("the guard", (1, 2))
        assert distinct.check((a, b, a)) == ("the guard", (0, 2))


def test_many_distinct_values():
    values = [object() for _ in range(200)]
    tree = GuardTree(200)
    tree.check_distinct([tree.local(i) for i in range(200)], "the guard")
    tree.finish()
    assert passes(tree, *values) and passes(tree, *values) and passes(tree, *reversed(values))
    assert not passes(tree, *values[:-1], values[17])


def test_state_is_checked():
    tree = GuardTree(0)
    tree.check_state(State.current(), "the guard")
    tree.finish()
    assert passes(tree)
    with torch.no_grad():
        assert not passes(tree)
    assert passes(tree)


# Ways to values -----------------------------------------------------------------------------------


def closure(value):
    return lambda: value


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


def with_attribute(value):
    result = Plain()
    result.x = value
    return result


WAYS = {
    "instance_dict": (lambda t, n: t.dict_item(t.instance_dict(n), "x"), with_attribute),
    "dict_item": (lambda t, n: t.dict_item(n, (1, "k")), lambda v: {(1, "k"): v}),
    "ordered": (lambda t, n: t.dict_item(n, "k"), lambda v: OrderedDict(k=v)),
    "list": (lambda t, n: t.seq_item(n, 1), lambda v: [0, v]),
    "tuple": (lambda t, n: t.seq_item(n, 1), lambda v: Point(0, v)),
    "attr": (lambda t, n: t.attr(n, "x"), Slots),
    "type_of": (lambda t, n: t.class_attr(t.type_of(n), "x"), lambda v: type("C", (), {"x": v})()),
    "cell": (lambda t, n: t.cell_contents(t.closure_cell(n, 0)), closure),
    "class_attr": (lambda t, n: t.class_attr(n, "x"), lambda v: type("C", (), {"x": v})),
    "deep": (lambda t, n: t.attr(t.seq_item(t.attr(n, "x"), 0), "real"), lambda v: Slots([v])),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_way_leads_to_the_value(way):
    node, make = WAYS[way]
    tree = GuardTree(1)
    tree.check_equal(node(tree, tree.local(0)), 3, "the guard")
    tree.slot(node(tree, tree.local(0)))
    tree.finish()
    for _ in range(2):
        assert passes(tree, make(3))
        assert tree.slots((make(3),)) == (3,)
        assert tree.check((make(4),)) == ("the guard", 4)
        with pytest.raises(ValueError):
            tree.slots((make(4),))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [None, 3, [], (), {}, Plain(), f, int, "x", torch.ones(1)])
def test_a_way_that_leads_nowhere_is_a_failure(way, value):
    tree = GuardTree(1)
    tree.check_equal(WAYS[way][0](tree, tree.local(0)), 3, "the guard")
    tree.finish()
    assert tree.check((value,)) == ("the guard", UNREACHABLE)
    assert tree.failures((value,)) == [("the guard", UNREACHABLE)]


def test_an_empty_cell_leads_nowhere():
    def function():
        return later

    tree = GuardTree(0)
    tree.check_equal(tree.cell_contents(tree.closure_cell(tree.fixed(function), 0)), 3, "the guard")
    tree.finish()
    assert tree.check(()) == ("the guard", UNREACHABLE)
    later = 3
    assert tree.check(()) is None


def test_the_same_way_is_the_same_node():
    tree = GuardTree(2)
    a, b = tree.local(0), tree.local(1)
    assert a == tree.local(0) != b
    assert tree.dict_item(a, "x") == tree.dict_item(a, "".join(["x"])) != tree.dict_item(b, "x")
    assert len({tree.dict_item(a, key) for key in (1, True, 1.0, "1")}) == 4
    assert tree.seq_item(b, 0) == tree.seq_item(b, 0) != tree.seq_item(b, 1)
    assert tree.fixed(f) == tree.fixed(f)
    assert tree.fixed(1.5) != tree.fixed(float("1.5"))


def test_slots_may_repeat_and_need_no_checks():
    tree = GuardTree(2)
    a, b = tree.local(0), tree.local(1)
    assert [tree.slot(n) for n in (b, a, b, tree.seq_item(a, 0))] == [0, 1, 2, 3]
    tree.finish()
    assert tree.slots(([5], 6)) == (6, [5], 6, 5)


def test_a_tree_with_very_many_slots():
    tree = GuardTree(1)
    for i in range(300):
        tree.slot(tree.seq_item(tree.local(0), i))
    tree.finish()
    values = [object() for _ in range(300)]
    assert tree.slots((values,)) == tuple(values)


def test_all_failures():
    tree = GuardTree(3)
    for i in range(3):
        tree.check_equal(tree.local(i), i, f"local {i}")
        tree.check_equal(tree.dict_item(tree.instance_dict(tree.local(i)), "x"), i, f"x of {i}")
    tree.check_same([tree.local(0), tree.local(1)], "same")
    tree.finish()
    found = tree.failures((with_attribute(0), 1, 5))
    assert [guard for guard, _ in found] == ["local 0", "x of 1", "local 2", "x of 2", "same"]


def test_asking_for_all_failures_does_not_spoil_later_checks():
    tree = GuardTree(1)
    tree.check_equal(tree.dict_item(tree.local(0), "x"), 1, "the guard")
    tree.finish()
    values = {"x": 2}
    assert tree.failures((values,))
    assert tree.check((values,)) == ("the guard", 2)


def test_misuse_is_an_error():
    tree = GuardTree(1)
    for wrong in (lambda: tree.local(1), lambda: tree.local(-1), lambda: tree.type_of(0)):
        with pytest.raises(IndexError):
            wrong()
    node = tree.local(0)
    with pytest.raises(ValueError):
        tree.seq_item(node, -1)
    with pytest.raises(TypeError):
        tree.dict_item(node, [])
    with pytest.raises(TypeError):
        tree.attr(node, 3)
    with pytest.raises(TypeError):
        tree.check_state(3, "guard")
    with pytest.raises(RuntimeError):
        tree.check((3,))
    tree.finish()
    for wrong in (lambda: tree.local(0), lambda: tree.check_is(node, 1, "g"), tree.finish):
        with pytest.raises(RuntimeError):
            wrong()
    for wrong in ((), (1, 2), [1], None):
        with pytest.raises(TypeError):
            tree.check(wrong)


def test_a_node_is_not_both_dictionary_and_class():
    tree = GuardTree(1)
    tree.dict_item(tree.local(0), "x")
    with pytest.raises(ValueError):
        tree.check_class_attr(tree.local(0), ("x", 1), "guard")
