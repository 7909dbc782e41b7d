"""Making objects: classes of all sorts, exceptions, class checks, copies."""

import abc
import collections
import collections.abc
import copy
import dataclasses
import enum
import reprlib
import types
import typing
from typing import NamedTuple, Protocol, runtime_checkable

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


# ---- making objects


class Base:
    count = 4

    def __init__(self, a, b=1):
        self.a = a
        self.b = b

    @classmethod
    def make(cls, a):
        return cls(a, b=2)

    @staticmethod
    def twice(v):
        return v * 2

    @property
    def both(self):
        return self.a, self.b

    @both.setter
    def both(self, pair):
        self.a, self.b = pair


class Derived(Base):
    def __init__(self, a, b=1):
        super().__init__(a, b)
        self.c = 3

    @classmethod
    def make(cls, a):
        return super().make(a + 1)

    @staticmethod
    def twice(v):
        return Base.twice(v) + 1

    @property
    def both(self):
        return super().both[::-1]

    def closure(self):
        return [super(Derived, self).both for _ in range(1)][0]


@program
def construction(x):
    d = Derived(x, b=2)
    return d.a * d.b, d.c, d.both, type(d) is Derived, isinstance(d, Base), Derived.count, d


@program
def class_methods(x):
    return (
        Derived.make(x).a,
        Derived.twice(x),
        type(Derived.make(1)) is Derived,
        Derived(1).twice(2),
    )


@program
def properties(x):
    b = Base(1)
    b.both = x, 2
    return b.a, b.both, Derived(1).closure()


@program
def property_without_setter(x):
    Derived(1).both = 1, 2


@program
def explicit_steps(x):
    d = Derived.__new__(Derived)
    super(Derived, d).__init__(x)
    return d.a, hasattr(d, "c"), type(d)(5).a, d.__class__ is Derived


@program
def missing_argument(x):
    return Base()


@program
def arguments_for_object(x):
    return object(3)


class Empty:
    pass


@program
def arguments_for_empty_class(x):
    return Empty(3)


class BadInit:
    def __init__(self):
        return 3


@program
def init_that_returns(x):
    return BadInit()


@program
def super_of_stranger(x):
    return super(Base, 3)


class New:
    def __new__(cls, v):
        made = super().__new__(cls)
        made.before = v
        return made

    def __init__(self, v):
        self.after = v


class Other:
    def __new__(cls, v):
        return v


@program
def new_methods(x):
    return New(x).before, New(2).after, Other(3)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program
def slots(x):
    s = Slots(x)
    s.b = 2
    del s.b
    return s.a, hasattr(s, "b"), hasattr(s, "__dict__")


@program
def unset_slot(x):
    return Slots(1).b


class Hooks:
    def __getattr__(self, name):
        return name

    def __setattr__(self, name, value):
        object.__setattr__(self, name + "_", value)


@program
def attribute_hooks(x):
    h = Hooks()
    h.q = x
    return h.q_, h.zz, getattr(h, "yy", 3)


class Meta(type):
    def __instancecheck__(cls, obj):
        return obj == 3

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.made = True
        return made


class WithMeta(metaclass=Meta):
    def __init__(self, v):
        self.v = v


@program
def metaclasses(x):
    w = WithMeta(x)
    return isinstance(3, WithMeta), isinstance(4, WithMeta), w.made, w.v


class Abstract(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


@program
def abstract_class(x):
    return Abstract()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 2


@program
def enumerations(x):
    return (
        Color(1) is Color.RED,
        Color["BLUE"],
        Color.RED.value,
        Color.RED.name,
        len(Color),
        list(Color),
    )


@program
def integer_enumerations(x):
    return Level.LOW + 1, x * Level.LOW, Level(2), max(Level.LOW, 1), Level.LOW == 2


@program
def missing_member(x):
    return Color(3)


@dataclasses.dataclass
class Data:
    a: object
    b: int = 3
    c: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 1


@program
def data_classes(x):
    d = Data(x)
    d.c.append(1)
    return d.a + d.b, d.c, Data(1) == Data(1), repr(Data(1)), d


@program
def frozen_data_classes(x):
    return (
        Frozen(1) < Frozen(2),
        hash(Frozen(1)) == hash(Frozen(1)),
        dataclasses.replace(Frozen(1), b=4),
    )


@program
def frozen_assignment(x):
    Frozen(1).a = 2


Pair = collections.namedtuple("Pair", "x y")


class Typed(NamedTuple):
    a: int
    b: int = 2


@program
def named_tuples(x):
    p = Pair(x, 2)
    return (
        p.x,
        p._replace(y=3).y,
        p[1],
        Typed(1),
        Typed(1, b=5)._asdict(),
        Pair._fields,
        Pair._make([1, 2]),
    )


class MyList(list):
    def total(self):
        return sum(self)


class MyDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self["n"] = len(self)

    def __missing__(self, key):
        return key + "!"

    __getattr__ = dict.__getitem__


class MyTuple(tuple):
    def __new__(cls, *items):
        return super().__new__(cls, items)


@program
def subclasses_of_containers(x):
    items = MyList([1, 2])
    items.append(3)
    d = MyDict(q=x)
    return items.total(), type(items) is MyList, d.q, d["n"], d["zz"], MyTuple(1, 2)[1]


@program
def subclasses_of_containers_returned(x):
    items = MyList([x])
    items.note = "n"
    return items, MyDict(a=1), MyTuple(1, x)


class Meters(int):
    pass


@program
def subclasses_of_numbers(x):
    return Meters(3) + 1, type(Meters(3)) is Meters, x * Meters(2)


@program
def containers(x):
    return (
        list((1, 2)),
        tuple([1]),
        set([1, 1]),
        frozenset([1]),
        list("ab"),
        list({"k": 1}),
        tuple(range(3)),
    )


@program
def dictionaries(x):
    return dict(a=1), dict([("a", x)], b=2), dict({"z": 1}), dict(zip("ab", (1, 2)))


@program
def bad_dictionary(x):
    return dict([(1, 2, 3)])


@program
def list_of_number(x):
    return list(3)


@program
def namespaces(x):
    n = types.SimpleNamespace(a=x, b=2)
    n.c = 3
    return (
        n.a + n.c,
        n == types.SimpleNamespace(a=n.a, b=2, c=3),
        repr(types.SimpleNamespace(q=1)),
        n,
    )


@program
def bound_methods(x):
    return types.MethodType(lambda self, y: self + y, x)(2)


@program
def default_comparisons(x):
    a, b = object(), object()
    return a == b, a != b, a == a, a is b, Base(1) == Base(1), Empty() != Empty()


@program
def unordered(x):
    return Base(1) < Base(2)


# ---- class checks


@program
def class_checks(x):
    return (
        isinstance(x, torch.Tensor),
        isinstance(3, (str, int)),
        isinstance(None, int | None),
        type(3),
    )


@program
def subclass_checks(x):
    return issubclass(bool, int), issubclass(Derived, (int, Base)), issubclass(int, int | str)


@program
def abstract_checks(x):
    c = collections.abc
    return (
        isinstance([], c.Sequence),
        isinstance({}, c.Mapping),
        isinstance(x, c.Callable),
        isinstance(3, c.Sized),
    )


@program
def tensor_checks(x):
    return (
        isinstance(x, torch.nn.Parameter),
        isinstance(x, torch.FloatTensor),
        isinstance(x, torch.IntTensor),
    )


@runtime_checkable
class HasSize(Protocol):
    def size_of(self): ...


class Static(Protocol):
    def q(self): ...


class Implementation:
    def size_of(self):
        return 1


@program
def protocols(x):
    return isinstance(Implementation(), HasSize), isinstance(3, HasSize)


@program
def static_protocol(x):
    return isinstance(3, Static)


@program
def check_against_number(x):
    return isinstance(3, 4)


@program
def subclass_check_of_number(x):
    return issubclass(3, int)


@program
def typing_checks(x):
    return (
        isinstance(3, typing.Union[int, str]),
        typing.cast(typing.List[int], x),
        typing.Optional[int],
    )


# ---- exceptions


class MyError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


@program
def caught(x):
    try:
        raise ValueError("a", 3)
    except ValueError as e:
        return str(e), e.args, repr(e), x


@program
def texts_of_exceptions(x):
    return (
        str(KeyError("k")),
        str(ValueError()),
        str(OSError(2, "no")),
        str(ImportError("a", name="b")),
    )


@program
def causes(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise RuntimeError("outer") from e
    except RuntimeError as e:
        return (
            str(e.__cause__),
            isinstance(e.__context__, ZeroDivisionError),
            e.__suppress_context__,
        )


@program
def custom_exceptions(x):
    try:
        raise MyError(3, "hi")
    except MyError as e:
        return e.code, str(e), e.args


@program
def escaping_exception(x):
    raise MyError(4, "there")


@program
def attributes_of_exceptions(x):
    return (
        StopIteration(3).value,
        SystemExit(2).code,
        ImportError("a", name="b").name,
        OSError(2, "no").errno,
    )


@program
def os_error_class(x):
    return (
        type(OSError(2, "no")) is FileNotFoundError,
        AttributeError("a").name,
        NameError("q", name="n").name,
    )


@program
def keyword_for_exception(x):
    return ValueError(a=1)


@program
def notes(x):
    e = ValueError("a").with_traceback(None)
    e.add_note("n")
    e.args = ("b", x)
    return e.__notes__, e.args, str(ValueError(e.args[0]))


@program
def groups(x):
    g = ExceptionGroup("many", [ValueError(1), TypeError(2)])
    return str(g), g.message, len(g.exceptions)


@program
def no_exception(x):
    raise 3


# ---- copies


class Copied:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        return Copied("shallow")

    def __deepcopy__(self, memo):
        return Copied(copy.deepcopy([1], memo))


@program
def shallow_copies(x):
    a = [1, [2, x]]
    b, c, d = copy.copy(a), copy.copy({"k": a}), copy.copy(Data(1, c=a))
    return b is a, b[1] is a[1], c["k"] is a, d.c is a, d, copy.copy((1,)), copy.copy(Copied(1)).v


@program
def deep_copies(x):
    a = [1, [2, 3]]
    a.append(a[1])
    b = copy.deepcopy(a)
    b[1].append(4)
    return (
        a,
        b,
        b[1] is b[2],
        copy.deepcopy((1, 2)),
        copy.deepcopy({"a": [1]}),
        copy.deepcopy(Copied(1)).v,
    )


@program
def deep_copies_of_objects(x):
    d = Data(1, c=[1])
    d.a = d
    e = copy.deepcopy(d)
    e.c.append(2)
    s = Slots([1])
    return d.c, e.c, e.a is e, copy.deepcopy(s).a, copy.deepcopy(s).a is s.a


@pytest.mark.parametrize("function", PROGRAMS)
def test_same_as_eager(check, function):
    check(function, X)


def test_cause_of_an_escaping_exception():
    def fails(x):
        try:
            {}["k"]
        except KeyError as error:
            raise MyError(5, "outer") from error

    with pytest.raises(MyError) as caught:
        pliant.compile(fails, backend="eager", fullgraph=True)(X)
    assert caught.value.code == 5
    assert isinstance(caught.value.__cause__, KeyError) and caught.value.__cause__.args == ("k",)


def test_parameters_are_recognised(check):
    check(
        lambda p: (isinstance(p, torch.nn.Parameter), isinstance(p, torch.Tensor)),
        torch.nn.Parameter(X),
    )
    check(lambda b: isinstance(b, torch.nn.Buffer), torch.nn.Buffer(X))


def test_deep_copies_of_tensors_that_share_memory_break_the_graph(breaks):
    def program(x):
        y = x + 1
        return copy.deepcopy([y, y.view(-1)])

    breaks(program, X, code="tensor-method")


def test_deep_copies_of_tensors(check):
    check(lambda x: (copy.deepcopy(x), copy.deepcopy([x, x]), copy.deepcopy({"a": x + 1})), X)


# ---- slots for weak references


class OnlyWeak:
    __slots__ = ("__weakref__",)


class WithDict(OnlyWeak):
    pass


def test_slot_for_weak_references():
    def function(x):
        one, other = OnlyWeak(), WithDict()
        other.attribute = 3
        try:
            one.attribute = 3
        except AttributeError as error:
            text = str(error)
        has = [hasattr(each, "__dict__") for each in (one, other)]
        return x + 1, hasattr(one, "__weakref__"), one.__weakref__, other.__weakref__, has, text

    check(function, X)


# ---- text


def objects_within_themselves(x):
    items, table, queue = [1], {"a": 1}, collections.deque([1], 3)
    pair = ([],)
    ordered, counts = collections.OrderedDict(a=1), collections.defaultdict(int)
    names = types.SimpleNamespace()
    items.append(items)
    table["b"] = table
    queue.append(queue)
    pair[0].append(pair)
    ordered["b"] = ordered
    counts[1] = counts
    names.me = names
    return x + 1, [repr(each) for each in (items, table, queue, pair, ordered, counts, names)]


def test_the_text_of_objects_within_themselves():
    check(objects_within_themselves, X)


class Holder:
    def __init__(self, value):
        self.value = value

    @reprlib.recursive_repr("<...>")
    def __repr__(self):
        return f"Holder({self.value!r})"


@dataclasses.dataclass
class Link:
    following: object


class Longer(Holder):
    def __repr__(self):
        return super().__repr__() + "+"


def test_texts_that_stop_at_objects_within_themselves():
    def program(x):
        objects = [Holder(None), Longer(None), Link(None)]
        for i, each in enumerate(objects):
            setattr(each, ("value", "value", "following")[i], [each, Holder(i)])
        chained = collections.ChainMap({"a": 1}, {"b": 2})
        return x + 1, [repr(each) for each in objects], str(chained)

    check(program, X)


def test_the_text_of_an_object_from_outside():
    def program(x, obj, function):
        return x + 1, repr(obj), str(function), f"{obj}"

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for obj, function in ((Base(1), copy.copy), (Base(2), copy.deepcopy)):
        assert compiled(X, obj, function)[1:] == program(X, obj, function)[1:]


class Step(enum.Enum):
    DOUBLE = enum.member(lambda x: x * 2)
    SHIFT = 3

    def __call__(self, x, *, by=1):
        return self.value(x) if self is Step.DOUBLE else x + self.value * by


def test_members_of_an_enumeration_that_can_be_called():
    def program(x, step):
        return Step.DOUBLE(x), step(x, by=2), [step(i) for i, step in enumerate(Step)]

    check(program, X, Step.SHIFT)
