"""pliant's `dataclass` beside that of the standard library, on the same classes."""

import copy
import dataclasses
import pickle
import weakref
from dataclasses import field
from typing import ClassVar  # noqa: F401

import pytest

from pliant.base import values

BOTH = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, values.dataclass])


def outcome(function):
    try:
        return function()
    except Exception as error:
        return type(error)


@BOTH
def test_arguments(dataclass):
    @dataclass(slots=True)
    class A:
        a: int
        b: int = 2
        c: list = field(default_factory=list)
        d: int = field(default=5, kw_only=True)

    assert [(x.a, x.b, x.c, x.d) for x in (A(1), A(1, 3, [4], d=6), A(b=3, a=7))] == [
        (1, 2, [], 5),
        (1, 3, [4], 6),
        (7, 3, [], 5),
    ]
    assert A(1).c is not A(1).c
    for bad in (lambda: A(), lambda: A(1, 2, [], 3), lambda: A(1, z=2)):
        assert outcome(bad) is TypeError
    assert outcome(lambda: setattr(A(1), "z", 2)) is AttributeError
    assert A.__match_args__ == ("a", "b", "c")


@BOTH
def test_the_thousandth_instance_is_as_the_first(dataclass):
    @dataclass(frozen=True, slots=True)
    class A:
        a: int
        b: list = field(default_factory=list)
        c: int = field(default=5, kw_only=True)
        total: int = field(init=False)

        def __post_init__(self):
            object.__setattr__(self, "total", self.a + self.c)

    for n in range(1000):
        x, y = A(n, c=1), A(a=n)
        assert (x.a, x.b, x.c, x.total, y.c, y.total) == (n, [], 1, n + 1, 5, n + 5)
        assert x.b is not y.b
        for bad in (lambda: A(), lambda: A(1, 2, 3), lambda: A(1, a=1), lambda: A(1, total=2)):
            assert outcome(bad) is TypeError


@BOTH
def test_fields_may_have_any_name_and_order(dataclass):
    @dataclass
    class Open:
        later: int = field(kw_only=True)
        missing: list = field(default_factory=list)
        field_0: int = 1
        put: int = field(default=2, kw_only=True)

    @dataclass(frozen=True)
    class Frozen:
        put: int
        name_1: list = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Slotted(Frozen):
        new_0: int = 3

    for _ in range(2):  # the first instance, and one of the others
        x = Open(later=0)
        assert (x.later, x.missing, x.field_0, x.put) == (0, [], 1, 2)
        assert (Open([5], 6, later=7, put=8).missing, x.missing) == ([5], [])
        assert (Frozen(1).put, Frozen(put=1, name_1=2).name_1) == (1, 2)
        assert (Slotted(1).name_1, Slotted(1, 2, 4).new_0, Slotted(1).new_0) == ([], 4, 3)
        with pytest.raises(TypeError, match=r"Open\.__init__\(\) missing 1 required keyword-only"):
            Open()


def test_classes_with_as_many_fields_share_code():
    def classes():
        def numbered(index):
            names = [f"{name}_{index}" for name in "abcdefghijk"]
            members = {"__annotations__": dict.fromkeys(names, int)}
            return values.dataclass(frozen=True, slots=True)(type("A", (), members))

        return [numbered(index) for index in range(20)]

    before = values._init_code.cache_info().misses
    many = classes()
    assert values._init_code.cache_info().misses == before  # nothing is compiled for the import
    objects = [cls(*range(11)) for cls in many]
    assert values._init_code.cache_info().misses <= before + 1
    assert [getattr(x, f"k_{index}") for index, x in enumerate(objects)] == [10] * 20
    assert many[3](*range(10), k_3=5).k_3 == 5


@BOTH
def test_annotations_are_kept(dataclass):
    @dataclass(slots=True)
    class A:
        a: "int"
        shared: "ClassVar[str]" = "s"

    assert A.__annotations__ == {"a": "int", "shared": "ClassVar[str]"}
    assert [(f.name, f.type) for f in dataclasses.fields(A)] == [("a", "int")]
    assert A.shared == "s"


@BOTH
def test_frozen_values_are_equal_by_value(dataclass):
    @dataclass(frozen=True, slots=True)
    class A:
        a: int
        b: tuple = ()

    @dataclass(frozen=True, slots=True)
    class One:
        a: int

    @dataclass(frozen=True, slots=True, eq=False)
    class Same:
        a: int

    assert A(1) == A(1) and A(1) != A(2) and A(1) != One(1) and hash(A(1)) == hash(A(1, ()))
    assert One(1) == One(1) and One(1) != One(2) and {One(1), One(1)} == {One(1)}
    assert Same(1) != Same(1)
    assert repr(A(1)).endswith("A(a=1, b=())")
    for change in (lambda: setattr(A(1), "a", 2), lambda: delattr(A(1), "a")):
        assert outcome(change) is dataclasses.FrozenInstanceError
    assert dataclasses.replace(A(1), b=(2,)) == A(1, (2,))
    assert copy.deepcopy(A(1, ([],))) == A(1, ([],))


@BOTH
def test_values_that_change_are_not_hashable(dataclass):
    @dataclass
    class A:
        a: int

    x = A(1)
    x.a = 2
    assert x == A(2) and outcome(lambda: hash(x)) is TypeError


@BOTH
def test_inheritance_and_post_init(dataclass):
    @dataclass(slots=True)
    class Base:
        a: int
        twice: int = field(init=False)

        def __post_init__(self):
            self.twice = 2 * self.a

        def __repr__(self):
            return "own"

    @dataclass(slots=True)
    class Derived(Base):
        b: int = 3

    class Plain(Derived):
        pass

    assert (Derived(1).twice, Derived(1, b=4).b, Plain(2).twice) == (2, 4, 4)
    assert repr(Base(1)) == "own"
    assert Derived(1) == Derived(1) and Derived(1) != Base(1)


@values.dataclass(frozen=True, slots=True)
class Kept:
    a: int
    b: list


@BOTH
def test_a_field_declared_again_keeps_its_place(dataclass):
    @dataclass(slots=True)
    class Base:
        a: int
        b: int = 2

    @dataclass(slots=True)
    class Derived(Base):
        c: int = 4
        a: int = 3

    assert [f.name for f in dataclasses.fields(Derived)] == ["a", "b", "c"]
    assert Derived() == Derived(3, 2, 4) and Derived.__slots__ == ("c",)
    assert not hasattr(Derived(), "__dict__")


@BOTH
def test_weak_references_need_a_slot(dataclass):
    @dataclass(slots=True, weakref_slot=True)
    class With:
        a: int

    @dataclass(slots=True)
    class Without:
        a: int

    x = With(1)
    assert weakref.ref(x)() is x
    assert outcome(lambda: weakref.ref(Without(1))) is TypeError


@BOTH
def test_a_default_that_can_change_is_refused(dataclass):
    class A:
        a: list = []  # noqa: RUF012

    assert outcome(lambda: dataclass(A)) is ValueError


def test_pickled():
    assert pickle.loads(pickle.dumps(Kept(1, [2]))) == Kept(1, [2])
