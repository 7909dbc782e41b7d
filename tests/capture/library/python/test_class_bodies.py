"""Classes defined inside the compiled function, and attributes of classes that it writes."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import typing

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)
REGISTRY: list[str] = []


class Registered:
    def __init_subclass__(cls, tag=None, **kwargs):
        super().__init_subclass__(**kwargs)
        REGISTRY.append(cls.__name__)
        cls.tag = tag


def methods(x):
    class A:
        scale = 2

        def __init__(self, value):
            self.value = value

        def scaled(self):
            return self.value * self.scale

        @property
        def more(self):
            return self.value + 1

        @more.setter
        def more(self, value):
            self.value = value - 1

        @staticmethod
        def two():
            return 2

        @classmethod
        def of(cls, value):
            return cls(value)

    a = A.of(x)
    pliant.graph_break()
    first = a.more
    a.more = x
    return a.scaled(), first, A.two(), a.more, type(a) is A, A.__name__, A.__qualname__


def inheritance(x):
    class A:
        items = [1]

        def f(self):
            return [x + 1]

    class B(A):
        def f(self):
            return super().f() + self.items

    b, items = B(), B.items
    pliant.graph_break()
    items.append(2)
    return b.f(), isinstance(b, A), A.items is items, [c.__name__ for c in B.__mro__]


def dataclass_inside(x):
    @dataclasses.dataclass(order=True)
    class P:
        a: object
        b: int = 2
        c: list = dataclasses.field(default_factory=list)

    p = P(x)
    pliant.graph_break()
    p.c.append(1)
    names = [field.name for field in dataclasses.fields(P)]
    return p.a, p.b, p.c, P(1) < P(2), P(1) == P(1), repr(P(1)), names, dataclasses.asdict(P(1))


def dataclass_with_slots(x):
    @dataclasses.dataclass(slots=True, frozen=True)
    class P:
        a: int
        b: int = 0

    points = {P(1), P(2), P(1)}
    pliant.graph_break()
    return len(points), hash(P(1)) == hash(P(1)), x + P(3).a


def named_tuples(x):
    P = collections.namedtuple("P", "a b", defaults=[x + 5])

    class Q(typing.NamedTuple):
        a: object
        b: int = 3

        def total(self):
            return self.a + self.b

    p, q = P(x), Q(x)
    pliant.graph_break()
    return p.a, p.b, p._fields, q.total(), Q._fields


def enumerations(x):
    class Color(enum.Enum):
        RED = enum.auto()
        GREEN = enum.auto()

        def double(self):
            return self.value * 2

    Animal = enum.Enum("Animal", "CAT DOG")
    color = Color.GREEN
    pliant.graph_break()
    names = [member.name for member in Color]
    return x * color.value, color.double(), color is Color.GREEN, names, Animal.DOG.value


def exceptions(x):
    class Failed(ValueError):
        def __init__(self, text, code):
            super().__init__(text)
            self.code = code

    try:
        raise Failed("a", x + 1)
    except ValueError as error:
        pliant.graph_break()
        return error.code, str(error), type(error) is Failed


def abstract(x):
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self): ...

    class Square(Shape):
        def area(self):
            return x + 1

    texts = []
    square = Square()
    for _ in range(2):
        try:
            Shape()
        except TypeError as error:
            texts.append(str(error))
        pliant.graph_break()
    return square.area(), texts, isinstance(square, Shape)


def slots(x):
    class S:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = x

    s = S()
    pliant.graph_break()
    texts = []
    for action in (lambda: setattr(s, "c", 1), lambda: s.b, lambda: delattr(s, "b")):
        try:
            action()
        except AttributeError as error:
            texts.append(str(error))
    return s.a, texts


def descriptors(x):
    class D:
        def __set_name__(self, owner, name):
            self.name = name

        def __get__(self, obj, cls):
            return self if obj is None else (self.name, obj.value)

        def __set__(self, obj, value):
            obj.value = value

    class A:
        d, e = D(), D()

        @functools.cached_property
        def once(self):
            return x + 1

    a = A()
    a.d = x
    pliant.graph_break()
    return a.d, a.e, A.d.name, a.once is a.once


def subclass_hook(x):
    class D(Registered, tag="q"):
        def f(self):
            return x

    d, count = D(), REGISTRY.count("D")
    pliant.graph_break()
    added = REGISTRY.count("D") - count
    return d.f(), D.tag, added


def metaclass(x):
    class M(type):
        def __new__(mcs, name, bases, namespace, **options):
            namespace["extra"] = options.get("z", 0)
            return super().__new__(mcs, name, bases, namespace)

        def __init__(cls, name, bases, namespace, **options):
            super().__init__(name, bases, namespace)
            cls.named = name

        def __call__(cls, *args):
            made = super().__call__(*args)
            made.mark = 1
            return made

        def __len__(cls):
            return 7

    class A(metaclass=M, z=4):
        def __init__(self, value):
            self.value = value

    class B(A):
        pass

    b = B(x)
    pliant.graph_break()
    return b.value, A.extra, B.extra, B.named, b.mark, len(A), type(B).__name__


def containers(x):
    class L(list):
        def total(self):
            return sum(self)

    class D(dict):
        def __missing__(self, key):
            return key * 2

    class N(int):
        def double(self):
            return self * 2

    things = L([1, 2]), N(4)
    pliant.graph_break()
    return things[0].total(), things[1].double(), D()[3], x + 1


def cycles(x):
    class Node:
        def __init__(self, value, after=None):
            self.value, self.after = value, after

    node = Node(x, Node(x + 1))
    node.after.after = node
    pliant.graph_break()
    return node.after.after is node, node.after.value, type(node) is type(node.after)


def factories(x):
    def make(n):
        class C:
            value = n

            def get(self):
                return n * self.value + x

        return C

    first, second = make(2), make(3)
    pliant.graph_break()
    return first().get(), second().get(), first is second


PROGRAMS = [
    methods, inheritance, dataclass_inside, dataclass_with_slots, named_tuples, enumerations,
    exceptions, abstract, slots, descriptors, subclass_hook, metaclass, containers, cycles,
    factories,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_class_inside_the_function_lives_on_after_a_break(program):
    check(program, X, breaks=None)


@pytest.mark.parametrize("program", PROGRAMS)
def test_class_inside_the_function_is_captured(monkeypatch, program):
    monkeypatch.setattr(pliant, "graph_break", lambda: None)
    check(program, X)


def test_class_by_calling_type():
    def f(x):
        T = type("T", (), {"f": lambda self: x + 1, "n": 3})
        return T().f() + T.n, T.__name__

    check(f, X)


def test_each_call_makes_a_new_class():
    @pliant.compile(fullgraph=True)
    def f(x):
        class Base:
            def who(self):
                return "base"

        class A(Base):
            items = []

            def __init__(self, value):
                self.value = value
                self.items.append(value)

            def who(self):
                return super().who() + "!"

        return A(x), A

    (a, A), (b, B) = f(X), f(X)
    assert type(a) is A and type(b) is B and A is not B
    assert a.who() == "base!" and A.items == [a.value] and A(1).items is A.items
    assert len(B.items) == 1


def test_base_class_that_changes_is_noticed():
    class Base:
        def f(self):
            return 1

    @pliant.compile(fullgraph=True)
    def f(x):
        class A(Base):
            pass

        return x * A().f()

    assert torch.equal(f(X), X)
    Base.f = lambda self: 7
    assert torch.equal(f(X), X * 7)


def test_exception_of_a_class_made_inside_leaves_the_function():
    def f(x):
        class Failed(Exception):
            pass

        raise Failed("m", 1)

    compiled = pliant.compile(f)
    for _ in range(2):
        with pytest.raises(Exception, match="m") as caught:
            compiled(X)
        assert type(caught.value).__name__ == "Failed" and caught.value.args == ("m", 1)


# ---- attributes of classes from outside


class Counter:
    count = 0
    name = "c"


class Derived(Counter):
    pass


def test_class_attribute_written_over_calls():
    @pliant.compile
    def f(x):
        Counter.count += 1
        return x * Derived.count

    Counter.count = 0
    for number in range(1, 6):
        assert torch.equal(f(X), X * number) and Counter.count == number
    Derived.count = 100
    assert torch.equal(f(X), X * 100) and Counter.count == 6
    del Derived.count


def test_class_attributes_set_and_deleted():
    def f(x):
        Counter.value = x + 1
        Counter.twice = lambda self: self.value * 2
        result = Derived().twice()
        del Counter.twice
        texts = []
        for action in (lambda: delattr(Counter, "no"), lambda: setattr(int, "a", 1)):
            try:
                action()
            except (AttributeError, TypeError) as error:
                texts.append(str(error))
        return result, hasattr(Derived, "twice"), texts

    check(f, X)
    assert torch.equal(Counter.value, X + 1) and not hasattr(Counter, "twice")


def test_class_method_that_counts():
    class Made:
        made = 0

        @classmethod
        def make(cls):
            cls.made += 1
            return cls()

    def f(x):
        Made.make()
        Made.make()
        result = x * Made.made
        Made.made = 0
        return result

    check(f, X)


def test_namespace_of_a_class():
    class K:
        a, b = 1, 2

    @pliant.compile(fullgraph=True)
    def f(x):
        names = [name for name in vars(K) if not name.startswith("_")]
        return x + 1, names, K.__dict__.get("c"), "a" in K.__dict__

    assert f(X)[1:] == (["a", "b"], None, True)
    K.c = 5
    assert f(X)[1:] == (["a", "b", "c"], 5, True)
    del K.a
    assert f(X)[1:] == (["b", "c"], 5, False)


# ---- numbers and texts of classes of the program's


class Quantity(float):
    def __new__(cls, value, unit=None):
        quantity = super().__new__(cls, value)
        quantity.unit = unit
        return quantity


class Counted(str):
    def __init__(self, text):
        self.length = len(text)


class Tagged(int):
    tag = None


class Bare(str):
    __slots__ = ()


def made_with_attributes(x):
    q = Quantity(2.5, "m")
    return x * q, q.unit, q + 1, q


def initialised_text(x):
    text = Counted("abc")
    return x + text.length, text, text.upper()


def attributes_written(x):
    first, second = Tagged(3), Tagged(3)
    first.tag = [x]
    first.tag.append(1)
    first.gone = 2
    del first.gone
    return first.tag, second.tag, first == second, first is second, vars(first), {first: 1}[3]


def attributes_refused(x):
    try:
        Bare("a").more = 1
    except AttributeError as error:
        return x + 1, str(error)


def attribute_missing(x):
    number = Tagged(3)
    try:
        del number.more
    except AttributeError as error:
        return x + number, str(error), hasattr(number, "more")


def by_class_methods(x):
    numbers = [Tagged.from_bytes(b"\1", "big"), Quantity.fromhex("0x1p1")]
    return x + 1, numbers, [type(number) for number in numbers]


def text_of_a_class_made_here(x):
    class Text(str):
        def upper(self):
            return Text(super().upper())

    text = Text("ab")
    text.other = text.upper()
    return x + 1, str(text.other), type(text.other) is Text


@pytest.mark.parametrize(
    "program",
    [
        made_with_attributes, initialised_text, attributes_written, attributes_refused,
        attribute_missing, by_class_methods, text_of_a_class_made_here,
    ],
)  # fmt: skip
def test_scalars_of_other_classes(program):
    check(program, X)


def test_a_text_of_a_class_made_here_after_a_break():
    def program(x):
        class Text(str):
            def again(self):
                return Text(self)

        text = Text("ab")
        y = x + 1
        pliant.graph_break()
        return y, str(text.again()), type(text.again()) is type(text)

    assert pliant.compile(program, backend="eager")(X)[1:] == ("ab", True)


def test_each_call_makes_another_scalar():
    compiled = pliant.compile(lambda x: (Tagged(3), x + 1), backend="eager", fullgraph=True)
    assert compiled(X)[0] is not compiled(X)[0]


class Measured(float):
    def __new__(cls, value, unit):
        measured = super().__new__(cls, value)
        measured.unit = unit
        return measured

    def __str__(self):
        return f"{float(self)} {self.unit[0]}"

    def __repr__(self):
        return f"Measured({self.unit})"

    def __abs__(self):
        return self.unit

    def __hash__(self):
        return len(self.unit)

    def __add__(self, other):
        return Measured(float(self) + float(other), [*self.unit, "+"])


def methods_that_look_at_attributes(x):
    measured = Measured(2.5, [str(x.ndim)])
    texts = str(measured), repr(measured), f"{measured}", f"{measured!r}", f"{measured:}"
    return x + 1, texts, abs(measured), hash(measured), (measured + 1).unit, float(measured)


def test_methods_of_scalars_are_followed():
    check(methods_that_look_at_attributes, X)


class Named(type):
    def __getattr__(cls, name):
        return name


class WithoutMarks(metaclass=Named):
    def __init__(self, value):
        self.value = value


def test_a_metaclass_that_has_every_attribute():
    check(lambda x: (x + WithoutMarks(2).value, WithoutMarks.other), X)


def test_a_function_without_a_closure_after_a_break():
    def program(x):
        def inner(a):
            return a

        y = x + 1
        pliant.graph_break()
        return y, inner.__closure__

    assert pliant.compile(program, backend="eager")(X)[1] is None


class Subscripted:
    keys: list = []  # noqa: RUF012

    def __class_getitem__(cls, key):
        cls.keys.append(key)
        return cls.__name__, key


def test_class_getitem_is_followed():
    def f(x):
        class Inner:
            def __class_getitem__(cls, key):
                return x + key

        return Subscripted[x.shape[0]], Inner[2], list[int]

    compiled = pliant.compile(f)
    for size in (2, 3, 2):
        x = torch.ones(size)
        Subscripted.keys.clear()
        name, inner, alias = compiled(x)
        assert (name, alias) == (("Subscripted", size), list[int])
        assert inner.equal(x + 2)
        assert Subscripted.keys == [size]


SEEN: list[object] = []


class Noting(enum.Enum):
    def __init__(self, value):
        SEEN.append(value)


class Announcing(enum.Enum):
    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        SEEN.append(cls.__name__)


def noted_by_a_global(x):
    class Own(enum.Enum):
        ONE = 1

        def __init__(self, value):
            SEEN.append(value)

    return x + Own.ONE.value, len(SEEN)


def noted_by_a_base(x):
    class Own(Noting):
        ONE = 1

    return x + Own.ONE.value, len(SEEN)


def noted_by_a_call(x):
    return x + Noting("Own", "ONE TWO").TWO.value, len(SEEN)


def noted_by_a_subclass_hook(x):
    class Own(Announcing):
        ONE = 1

    return x + Own.ONE.value, len(SEEN)


def noted_by_a_closure(x):
    seen = []

    class Own(enum.Enum):
        ONE = 1

        def __new__(cls, value):
            member = object.__new__(cls)
            member._value_ = value + 10
            seen.append(value)
            return member

    return x + Own.ONE.value, len(seen)


@pytest.mark.parametrize("program", [noted_by_a_global, noted_by_a_base, noted_by_a_call,
                                     noted_by_a_subclass_hook, noted_by_a_closure])  # fmt: skip
def test_effects_of_what_makes_an_enumeration(program):
    """They happen in each call, not once when the code is captured."""
    compiled = pliant.compile(program)
    for function in (program, compiled):
        SEEN.clear()
        first, second = function(X), function(X)
        assert torch.equal(first[0], second[0]) and first[1] > 0
        assert second[1] == (1 if program is noted_by_a_closure else 2 * first[1])


def test_an_enumeration_whose_members_compute():
    def program(x):
        class Planet(enum.Enum):
            EARTH = (3.0, 6.0)

            def __init__(self, mass, radius):
                self.mass = mass
                self.radius = int(radius)

        return x * Planet.EARTH.mass * Planet.EARTH.radius

    check(program, X)


# ---- numbers of classes


def test_a_number_read_before_it_is_written_again():
    def program(x):
        class Counted:
            count = 5

            def __init__(self):
                Counted.count += 1

            @classmethod
            def reset(cls):
                cls.count = 0

        before = Counted.count
        Counted()
        after = Counted.count
        Counted.reset()
        return x + 1, before, after, Counted.count

    check(program, X)


def test_a_number_of_a_base_class_from_outside():
    class Base:
        number = 5

    def program(x):
        class Derived(Base):
            own = 3

        class Further(Derived):
            own = Derived.own + 1

        return x * Derived.number, Further().number, Derived.own, Further.own

    compiled = pliant.compile(program, fullgraph=True)
    for number in (5, 6, 7, 8):
        Base.number = number
        (result, *facts), (expected, *expected_facts) = compiled(X), program(X)
        assert torch.equal(result, expected)
        assert facts == expected_facts


class Denies(type):
    def __instancecheck__(cls, obj):
        return False

    def __subclasscheck__(cls, subclass):
        return False


class Denied(metaclass=Denies):
    def __init__(self, value):
        self.value = value


def test_a_metaclass_that_denies_its_instances_has_no_say(check):
    check(lambda x: Denied(x).value + 1, torch.ones(2))
