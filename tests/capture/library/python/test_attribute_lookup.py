"""Look-ups that a class or a proxy redirects: signatures, properties, dictionaries whose
class gives something else than they hold, numbers that a class keeps."""

import functools
import inspect
import types
from collections import OrderedDict, namedtuple

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(3.0)


def graphs_and_breaks() -> tuple[int, int]:
    return pliant.counters["graphs"], pliant.counters["graph_breaks"]


# ---- signatures and proxies


def plain(a, b=2, *, c=3):
    return a


class Layer:
    def forward(self, hidden, mask):
        return hidden


def test_signature(check):
    def program(x):
        parameters = inspect.signature(plain).parameters
        return x * len(parameters), list(parameters), parameters["c"].default, "d" in parameters

    check(program, X)


def test_signature_of_a_bound_method(check):
    def program(x, layer):
        names = list(inspect.signature(layer.forward).parameters)
        return x * len(names), names, list(inspect.signature(Layer.forward).parameters)

    check(program, X, Layer())


def test_proxy_from_outside():
    real = {"a": 2, "b": X}
    proxy = types.MappingProxyType(real)

    def program(x):
        return x * proxy["a"] + proxy["b"], len(proxy), list(proxy), proxy.get("z"), dict(proxy)

    compiled = pliant.compile(program, fullgraph=True)
    assert torch.equal(compiled(X)[0], program(X)[0])
    assert compiled(X)[1:4] == program(X)[1:4]
    real["a"] = 3  # seen through the proxy
    assert torch.equal(compiled(X)[0], X * 3 + X)


# ---- dictionaries and attributes whose class has a say


class Makers(OrderedDict):
    """Gives an instance of the class that it holds."""

    def __getitem__(self, key):
        return super().__getitem__(key)()

    def items(self):
        raise AssertionError("not asked")


@pytest.mark.parametrize("base", [OrderedDict, dict])
def test_dictionary_that_gives_something_else(base):
    namespace = {"__getitem__": lambda self, key: base.__getitem__(self, key) * 10}
    table = type("Table", (base,), namespace)(a=2, b=3)

    def program(x):
        return x * table["a"], table.get("b"), list(table.values()), list(table)

    compiled = pliant.compile(program, fullgraph=True)
    for _ in range(2):
        got, expected = compiled(X), program(X)
        assert torch.equal(got[0], expected[0])
        assert got[1:] == expected[1:]


def test_table_of_classes():
    makers = Makers(relu=torch.nn.ReLU)
    compiled = pliant.compile(lambda x: makers["relu"](x))
    assert torch.equal(compiled(-X), torch.relu(-X))
    assert graphs_and_breaks() == (1, 0)


class Renamed:
    """Attributes under another name, as configurations have them."""

    names = types.MappingProxyType({"width": "hidden_size"})

    def __init__(self):
        self.hidden_size = 3

    def __getattribute__(self, name):
        names = super().__getattribute__("names")
        return super().__getattribute__(names.get(name, name))

    def known(self):
        return sorted(super().__getattribute__("__dict__"))


def test_getattribute_reads_the_namespace(check):
    check(lambda x, obj: (x * obj.width, obj.hidden_size, obj.known()), X, Renamed())


class ClassProperty(property):
    def __get__(self, obj, owner):
        return self.fget(owner)


class OwnProperty(property):
    pass


class Described:
    @ClassProperty
    def label(cls):  # noqa: N805
        return cls.__name__

    @OwnProperty
    def size(self):
        return self._size

    @size.setter
    def size(self, value):
        self._size = value


def test_subclasses_of_property(check):
    def program(x, obj):
        obj.size = 4
        return x * obj.size, obj.label, Described.label

    check(program, X, Described())


@torch.jit.script
def scripted(x: torch.Tensor, scale: int):
    return torch.sqrt(torch.tensor(x.size(-1), dtype=torch.float) * scale)


def test_scripted_function_is_followed():
    def program(x):
        return x / scripted(x, 3), scripted

    compiled = pliant.compile(program, fullgraph=True)
    got = compiled(X)
    torch.testing.assert_close(got[0], program(X)[0])
    assert got[1] is scripted


# ---- modules made while the program runs


class Stack(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(4))

    def forward(self, x):
        for layer in self.layers[1:3]:  # makes a new ModuleList
            x = layer(x)
        return x


def test_slice_of_a_module_list():
    model = Stack()
    assert torch.equal(pliant.compile(model, fullgraph=True)(X), model(X))


# ---- numbers of classes


class Counting:
    calls = 0
    scale = 2.0

    def __call__(self, x):
        type(self).calls += 1
        return x * self.calls + self.scale


class Inherited(Counting):
    pass


def test_counter_of_a_class_is_not_a_constant():
    counting = Counting()
    compiled = pliant.compile(lambda x: counting(x))
    start = Counting.calls
    for step in range(1, 8):
        assert torch.equal(compiled(X), X * (start + step) + 2.0)
    assert Counting.calls == start + 7
    assert pliant.counters["compilations"] == 2


def test_number_of_a_class_is_replaced(monkeypatch):
    def program(x, obj):
        return x * obj.scale + Inherited.scale

    compiled = pliant.compile(program)

    def same(obj):
        assert torch.equal(compiled(X, obj), program(X, obj))

    same(Inherited())
    monkeypatch.setattr(Counting, "scale", 3.0)
    same(Inherited())
    monkeypatch.setattr(Inherited, "scale", 4, raising=False)
    same(Inherited())
    own = Inherited()
    own.scale = 7.0
    same(own)
    monkeypatch.setattr(Inherited, "scale", True)
    same(Inherited())


def test_number_of_a_class_becomes_a_property(monkeypatch):
    def program(x, obj):
        return x * obj.scale

    obj = Counting()
    obj.__dict__["scale"] = 5.0
    compiled = pliant.compile(program)
    assert torch.equal(compiled(X, obj), X * 5.0)
    monkeypatch.setattr(Counting, "scale", property(lambda self: 9.0))
    assert torch.equal(compiled(X, obj), X * 9.0)


# ---- bound methods as attributes of a class, which have a `__get__` from Python 3.13 on


class Scaling:
    factor = 3

    def scale(self, x):
        return x * self.factor


def test_a_bound_method_in_a_class_stays_bound(monkeypatch):
    scaling = Scaling()

    class Holding:
        scale = scaling.scale

    holding = Holding()
    compiled = pliant.compile(lambda x: holding.scale(x), fullgraph=True)
    assert torch.equal(compiled(X), X * 3)
    scaling.factor = 5
    assert torch.equal(compiled(X), X * 5)
    monkeypatch.setattr(Holding, "scale", Scaling().scale)
    assert torch.equal(compiled(X), X * 3)


# ---- descriptors that can only be written


class Doubling:
    def __set__(self, obj, value):
        obj.__dict__["field"] = obj.__dict__.get("field", 0) + value * 2


class Holder:
    field = Doubling()


class Deleting:
    def __delete__(self, obj):
        obj.__dict__.pop("field", None)


class Deleted:
    field = Deleting()


def test_a_descriptor_without_get_stands_behind_the_instance():
    def function(x, holder, other):
        holder.field = 10
        other.__dict__["field"] = 3
        return x + holder.field, other.field, holder.__dict__["field"]

    check(function, X, Holder(), Deleted())


def test_a_descriptor_without_get_is_found_where_the_instance_has_nothing():
    def function(x, holder):
        return x + 1, holder.field is vars(Holder)["field"]

    check(function, X, Holder())


class Finding(type):
    def __getattribute__(cls, name):
        if name == "special":
            return 42
        if name == "more":
            return type.__getattribute__(cls, "number") + 1
        return super().__getattribute__(name)


class Found(metaclass=Finding):
    number = 5

    @classmethod
    def doubled(cls):
        return cls.more * 2


class Hiding(type):
    def __getattribute__(cls, name):
        if name.startswith("x"):
            raise AttributeError(name)
        return super().__getattribute__(name)

    def __getattr__(cls, name):
        return name * 2


class Hidden(metaclass=Hiding):
    xa = 1


def test_getattribute_of_a_metaclass():
    check(lambda x: (x + 1, Found.special, Found.more, Found.number, Found().number), X)
    check(lambda x: (x + 1, Found.doubled(), Found.__name__), X)
    check(lambda x: (x + 1, Found.missing), X)
    check(lambda x: (x + 1, Hidden.xa, getattr(Hidden, "yy", None)), X)


def test_a_class_made_inside_by_such_a_metaclass():
    def program(x):
        class Meta(type):
            def __getattribute__(cls, name):
                return 9 if name == "q" else super().__getattribute__(name)

        class Own(metaclass=Meta):
            q = 1

        return x + 1, Own.q, Own().q

    check(program, X, breaks=1)


# ---- attributes stored by something else than a function


class Dotted(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__
    __delattr__ = dict.__delitem__


def write_items(x, table):
    table.new = x * table.a
    table.inner.b += 1
    setattr(table, "c", 5)
    del table.a
    try:
        del table.missing
    except KeyError as error:
        return table.new, table.nothing, vars(table), repr(error)


def test_attributes_that_are_items_of_a_dictionary():
    check(write_items, X, Dotted(a=2, inner=Dotted(b=3)))


def test_attributes_that_are_items_of_a_dictionary_made_inside():
    def program(x):
        table = Dotted(a=2, inner=Dotted(b=3))
        return table, write_items(x, table)

    check(program, X)


class Partly:
    def _get(self, name):
        return name + "!"

    def _set(self, prefix, name, value):
        object.__setattr__(self, prefix + name, value)

    __getattr__ = functools.partialmethod(_get)
    __setattr__ = functools.partialmethod(_set, "own_")


class Static:
    @staticmethod
    def __getattr__(name):
        return name * 2

    def __delattr__(self, name):
        vars(self).pop(name.upper())


class StoredByTheMetaclass(type):
    _set = lambda cls, name, value: type.__setattr__(cls, name.upper(), value)  # noqa: E731
    __setattr__ = functools.partialmethod(_set)


class Refusing(Exception):
    __setattr__ = classmethod(lambda cls, name, value: cls.log.append((name, value)))
    log = []


def test_any_callable_may_store_attributes():
    def program(x):
        class Made(metaclass=StoredByTheMetaclass):
            pass

        partly, static, error = Partly(), Static(), Refusing("text")
        partly.a, static.B, Made.c, error.d = x + 1, x + 2, 3, 4
        del static.b
        return partly.own_a, partly.a, static.b, Made.C, hasattr(Made, "c"), Refusing.log[-1]

    check(program, X)


class Doubles:
    def __get__(self, obj, cls=None):
        return vars(obj).get("_stored", 0) * 2

    def __set__(self, obj, value):
        obj._stored = value

    def __delete__(self, obj):
        del obj._stored


class ModuleWithDescriptor(types.ModuleType):
    doubled = Doubles()

    @property
    def constant(self):
        return 7


MODULE = ModuleWithDescriptor("module_with_descriptor")


def descriptors_of_modules(x):
    MODULE.doubled = 4
    MODULE.plain = 1
    first = MODULE.doubled, MODULE.plain, MODULE.constant, hasattr(MODULE, "missing")
    del MODULE.doubled
    return x + first[0], first, MODULE.doubled, sorted(set(vars(MODULE)) - set(vars(types)))


def properties_of_modules_are_not_written(x):
    MODULE.constant = 3


@pytest.mark.parametrize("program", [descriptors_of_modules, properties_of_modules_are_not_written])
def test_classes_of_modules_compute_attributes(program, check):
    check(program, torch.ones(2))


# ---- assignments to `__dict__`, and to fields of named tuples


class AttributeDict(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Borg:
    shared = {}

    def __init__(self):
        self.__dict__ = Borg.shared


class Empty:
    pass


def items_are_attributes(x):
    table = AttributeDict(a=x, b=1)
    table.c = 3
    table["d"] = 4
    seen = table.a * table.b, table["c"], table.d, len(table), list(table), hasattr(table, "e")
    return seen, table.__dict__ is table, table.pop("d"), hasattr(table, "d"), table


def items_of_an_argument_are_attributes(x, table):
    table.b = 3
    table["c"] = 4
    return x * table.a, table["b"], table.c, len(table)


def state_shared(x):
    first, second = Borg(), Borg()
    first.value = x
    seen = second.value, vars(second) is Borg.shared
    Borg.shared.clear()
    return seen


def dictionaries_exchanged(x):
    one, two = Empty(), Empty()
    one.a = 1
    old = vars(one)
    two.__dict__ = one.__dict__
    two.b = 2
    one.__dict__ = new = {"n": x}
    new["m"] = 3
    return one, two, old, vars(two) is old, one.n, one.m, two.a


def no_dictionary(x):
    Empty().__dict__ = [1]


Pair = namedtuple("Pair", ["a", "b"])


def fields_are_read_only(x):
    refused = []
    for act in (lambda pair: setattr(pair, "a", 1), lambda pair: delattr(pair, "b")):
        try:
            act(Pair(1, 2))
        except AttributeError as error:
            refused.append(str(error))
    return refused, x


DICTIONARIES = [
    items_are_attributes,
    state_shared,
    dictionaries_exchanged,
    no_dictionary,
    fields_are_read_only,
]


@pytest.mark.parametrize("program", DICTIONARIES, ids=lambda program: program.__name__)
def test_dictionaries_are_assigned(program, check):
    check(program, torch.ones(2))


def test_items_of_an_argument_are_attributes():
    compiled = pliant.compile(items_of_an_argument_are_attributes, fullgraph=True)
    for number in (1, 2):
        got, expected = AttributeDict(a=number), AttributeDict(a=number)
        assert str(compiled(X, got)) == str(items_of_an_argument_are_attributes(X, expected))
        assert got == expected and got.__dict__ is got
