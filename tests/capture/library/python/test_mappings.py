"""Dictionaries, their views, OrderedDict, defaultdict, and subclasses of them."""

import types  # noqa: F401
from collections import Counter, OrderedDict, defaultdict  # noqa: F401
from dataclasses import dataclass

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)


class Doubling(dict):
    """Stores twice what it is given; counts how often."""

    def __init__(self, *args):
        super().__init__(*args)
        self.count = 0

    def __setitem__(self, key, value):
        self.count += 1
        super().__setitem__(key, value * 2)

    def __missing__(self, key):
        return key + "?"


class Record(OrderedDict):
    """Items that are attributes as well, as model outputs in some libraries are."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


class Table:
    """A mapping that is no dictionary."""

    def keys(self):
        return ["p", "q"]

    def __getitem__(self, key):
        return key * 2


class Anything:
    pass


def check_expression(expression: str) -> None:
    source = f"lambda x, d, o, n: (lambda f: ({expression}))(defaultdict(list, z=[x]))"
    function = eval(source, globals())
    check(function, X, {"a": X, "b": 2, 3: "c"}, OrderedDict(k=1, l=X, m=3), 4)


@pytest.mark.parametrize(
    "expression",
    [
        "d['a'] + 1, d[3], d.get('b'), d.get('q'), d.get('q', n), d.get('a', n)",
        "'a' in d, 'q' in d, 3 in d, 3.0 in d, 'q' not in d, len(d), bool(d), bool({})",
        "list(d), list(d.keys()), list(d.values()), list(d.items()), [k for k in d]",
        "list(reversed(d)), list(reversed(d.values())), list(reversed(d.items())), "
        "list(reversed(o))",
        "{**d, 'b': x}, {**o, **d}, dict(d), dict(d, z=1), dict(a=x), dict([('a', x)]), dict([[1, "
        "2]])",
        "d | {'b': 5, 'z': x}, {} | d, d.copy() is d, d.copy()", "dict(Table()), {**Table()}",
        "dict.fromkeys('ab'), dict.fromkeys([1, 2], x), {}.fromkeys(o), "
        "OrderedDict.fromkeys('ab', 1)",
        "{k: v for k, v in zip('ab', (x, 1))}, {1: 2} == {1: 2.0}, {1: 2} != {1: 3}, {1: 2} == [1]",
        "{'a': [1]} == {'a': [1]}, {'a': x} == {'a': x}, {} == OrderedDict()",
        "d.__getitem__('b'), d.__contains__('b'), dict.get(d, 'b'), d.keys().__len__()",
        "repr({1: 'a', (2,): [3]}), str({}), repr(OrderedDict(a=1)), repr(OrderedDict())",
        "repr(defaultdict(int, a=1)), repr({1: 2}.keys()), repr({1: 2}.items()), "
        "repr({1: 2}.values())",
        "o['k'], o.get('z'), list(o), o == OrderedDict(k=1, l=x, m=3), o | {'z': 1}, {'z': 1} | o",
        "OrderedDict(a=1, b=2) == OrderedDict(b=2, a=1), OrderedDict(a=1) == {'a': 1}",
        "OrderedDict(a=1, b=2) == {'b': 2, 'a': 1}, OrderedDict(a=1) != OrderedDict(a=2)",
        "o.copy(), type(o.copy()), type(o | {}), type({} | o), OrderedDict([('a', x)]), len(o)",
        "f['z'], f['new'], f.get('newer'), 'newer' in f, f, f.default_factory",
        "f.copy()['fresh'], f | {1: 2}",
        "Counter('abca'), Counter('ab')['z'], Counter([1, 1, 2]).most_common(1)",
        "{True: 1, 1: 2, 1.0: 3}",
        "{(1, 2): x}[1, 2], {(1, (2, 3)): 4}[1, (2, 3)], {None: 1}[None]",
        "{x: 1}[x], {x: 1, 2: 3}.get(2), x in {x: 1}, (x, 1) in {(x, 1): 2}",
        "{torch.float32: 1}[x.dtype]",
        "max(d.items(), key=lambda item: len(str(item[0]))), sorted({'b': 1, 'a': 2})",
        "(lambda **kw: kw)(**{'p': x}), (lambda **kw: list(kw))(**o)",
    ],
)  # fmt: skip
def test_reading(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "d.keys() & ['a', 'z'], {'a', 'z'} & d.keys(), d.keys() | {'z'}, d.keys() - {'a'}, "
        "d.keys() ^ {3}",
        "['a', 'z'] - d.keys(), {'a': 1}.keys() == {'a'}, d.keys() == {}.keys(), "
        "d.keys() != o.keys()",
        "{1: 2}.keys() <= {1, 2}, {1: 2}.keys() < {1}, {1: 2}.keys() >= set(), "
        "{1: 2}.keys() > {1: 3}.keys()",
        "d.keys().isdisjoint(o), d.keys().isdisjoint('abc'), 'a' in d.keys(), len(d.values())",
        "{1: 2}.items() | {3: 4}.items(), {1: 2}.items() & [(1, 2)], {1: 2}.items() - {(1, 2)}",
        "(1, 2) in {1: 2}.items(), (1, 3) in {1: 2}.items(), 1 in {1: 2}.items(), [1, "
        "2] in {1: 2}.items()",
        "{1: [2]}.items() == {1: [2]}.items(), {1: 2}.items() == {(1, 2)}, {1: 2}.items() <= {(1, "
        "2), 3}",
        "2 in {1: 2}.values(), {1: 2}.values() == {1: 2}.values(), o.keys(), d.keys(), "
        "list(o.values())",
        "{1: 2}.items() ^ {1: 2}.items(), {1: x}.keys() & {1: x}.keys(), next(iter(d.values()))",
        "types.MappingProxyType(d)['b'], len(types.MappingProxyType(d)), "
        "list(types.MappingProxyType(d))",
        "types.MappingProxyType({1: 2}) == {1: 2}, types.MappingProxyType({1: 2}) | {3: 4}",
        "'a' in types.MappingProxyType(d), types.MappingProxyType(d).get('z', 1), "
        "d.keys().mapping['b']",
        "repr(types.MappingProxyType({1: 2})), list(types.MappingProxyType({1: 2}).items())",
    ],
)  # fmt: skip
def test_views(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "d.__setitem__('a', x + 1)", "d.__setitem__('z', x)", "d.__delitem__('a')",
        "d.pop('a'), d.pop('q', n)", "d.popitem()", "d.setdefault('a', 1), d.setdefault('z', x)",
        "d.clear()", "d.update(o)", "d.update({'a': 1}, z=x)", "d.update([('a', 1), ['z', x]])",
        "d.update(Table())", "d.update(z=1)", "d.update()", "d.__ior__(o)", "d.__ior__([(1, 2)])",
        "d.__delitem__('a'), d.__setitem__('a', 5)",
        "d.__setitem__('y', 1), d.__setitem__('z', 2), d.__setitem__('y', 3)",
        "d.__setitem__('a', 1), d.__delitem__('b'), d.__setitem__('b', x), d.__setitem__('a', 2), "
        "list(d)",
        "d.pop(3), d.__setitem__('w', 1), d.__setitem__(3, 4), d.__setitem__('w', 2), len(d)",
        "d.__init__({'z': x})", "o.move_to_end('k')", "o.move_to_end('m', last=False)",
        "o.move_to_end('l', False), o", "o.popitem(), o.popitem(last=False)",
        "o.pop('k'), o.setdefault('k', x)", "o.update(z=x), o.clear()",
        "o.__delitem__('k'), o.__setitem__('k', 2), list(o)",
        "f['z'].append(1), f['y'].append(2), f", "f.pop('z'), f.setdefault('w', 3), f",
    ],
)  # fmt: skip
def test_changing(expression):
    check_expression(f"{expression}, x + 1")


@pytest.mark.parametrize(
    "expression",
    [
        "d['q']", "d[(1, 2)]", "d[x]", "{}.pop('a')", "{}.popitem()", "OrderedDict().popitem()",
        "o.move_to_end('z')", "d.__delitem__('q')", "o.pop('z')", "d.update([1])",
        "d.update([(1, 2, 3)])", "d.update(3)", "d.update(1, 2)", "dict([[1]])", "d | 3",
        "d | [(1, 2)]", "d.__ior__(3)", "{[]: 1}", "d[[1]]", "d.get({})", "[] in d",
        "dict.fromkeys(3)", "defaultdict(3)", "defaultdict()[1]", "d.setdefault([], 1)", "d < d",
        "d.keys() <= [1]", "d.keys()['a']", "d.keys() & 3", "{1: []}.items() | []", "d['a':]",
        "o['z']", "hash(d)", "dict(3)", "Counter('a') < 3", "(lambda **kw: kw)(**{1: 2})",
        "d.values() < d.values()", "f.missing",
    ],
)  # fmt: skip
def test_errors(expression):
    check_expression(expression)


def test_size_changed_while_iterating():
    def f(d):
        for key in d:
            d[key + "!"] = 1

    check(f, {"a": X})


def test_size_changed_while_iterating_over_items():
    def f(x):
        d = OrderedDict(a=x, b=1)
        for key, _ in d.items():
            del d[key]

    check(f, X)


def test_deletion_while_iterating():
    def f(d):
        for key in d.keys():
            del d[key]

    check(f, {"a": X, "b": 1})


def test_values_replaced_while_iterating():
    def f(x, d):
        for key in d:
            d[key] = d[key] * 2
        return [v + 1 for v in d.values()]

    check(f, X, {"a": X, "b": 1})


def test_views_are_live():
    def f(x):
        d = {"a": x}
        keys, items = d.keys(), d.items()
        d["b"] = x + 1
        return list(keys), list(items), len(keys)

    check(f, X)


def test_view_that_is_returned():
    def f(x, d):
        d["b"] = x + 1
        return d.items(), {"a": x}.values()

    d = {"a": X}
    items, values = pliant.compile(f, backend="eager", fullgraph=True)(X, d)
    assert type(items) is type({}.items()) and items.mapping == d
    torch.testing.assert_close(list(values), [X])


def test_subclass_made_by_the_program():
    def f(x):
        d = Doubling({"p": x})
        d["a"] = x
        d.update(b=3)
        return d, d["a"], d["none"], d.get("none"), d.count, dict(d)

    check(f, X)


def test_subclass_from_outside():
    """Its own `__setitem__` is followed, and then not called once more."""

    def f(x, d):
        d["a"] = x
        d["b"] = d["b"] + 1
        d.count += 10
        del d["c"]
        return d["z"]

    check(f, X, Doubling({"b": 1, "c": 2}))


def test_ordered_subclass_with_attributes():
    def f(x, given):
        made = Record(hidden=x)
        made["loss"] = x.sum()
        given["extra"] = x
        return made, made.loss + given.first, made.hidden, made.copy()

    check(f, X, Record(first=X))


def test_keys_by_identity():
    def f(x, thing):
        d = {thing: x, x: 1}
        d[thing] = d[thing] + 1
        return d, d[thing]

    thing = Anything()
    d, value = pliant.compile(f, backend="eager", fullgraph=True)(X, thing)
    assert list(d) == [thing, X] or next(iter(d)) is thing
    torch.testing.assert_close(value, X + 1)


def test_presence_is_assumed():
    def f(x, d):
        return x + 1 if "a" in d else x - 1

    compiled = pliant.compile(f, backend="eager", fullgraph=True)
    for d in ({"a": 1}, {"b": 1}, {"a": None, "c": 2}, {}):
        torch.testing.assert_close(compiled(X, d), f(X, d))
    assert pliant.counters["compilations"] == 2


def test_get_with_default_assumes_presence():
    def f(x, d):
        return x + 1, d.get("a", "default")

    compiled = pliant.compile(f, backend="eager", fullgraph=True)
    for d in ({"a": 1}, {"b": 1}, {"a": 7}):
        assert compiled(X, d)[1] == f(X, d)[1]


def test_order_of_new_keys():
    def f(x, d):
        d["x"] = 1
        d["y"] = 2
        d["x"] = x
        del d["a"]
        d["a"] = 0

    check(f, X, {"a": 1, "b": 2})


@dataclass(frozen=True)
class Key:
    name: str
    size: int


def test_keys_with_a_hash_of_their_own():
    def f(x):
        d = {Key("a", 1): x, (Key("b", 2), 3): 4}
        d[Key("a", 1)] = x + 1
        seen = {Key("a", 1), Key("a", 1), Key("c", 3)}
        return d, d[Key("a", 1)], (Key("b", 2), 3) in d, Key("z", 0) in d, len(seen), seen

    check(f, X)


def test_custom_keys_from_outside_break():
    check(lambda x, d: d[Key("a", 1)] + x, X, {Key("a", 1): 2}, breaks=1)


TABLE = {"a": 1, "b": 2}
KEYS, VALUES, ITEMS = TABLE.keys(), TABLE.values(), TABLE.items()
ORDERED = OrderedDict(z=1, y=2)
ORDERED_KEYS = ORDERED.keys()


def test_views_made_outside_are_live():
    def function(x):
        total = sum(TABLE[key] for key in KEYS)
        TABLE["c"] = 3
        seen = list(VALUES), list(ITEMS), "c" in KEYS, len(KEYS), KEYS | {"d"}, list(ORDERED_KEYS)
        del TABLE["c"]
        return x + total, seen

    compiled = check(function, X)
    TABLE["a"] = 10
    try:
        assert torch.equal(compiled(X)[0], function(X)[0])
    finally:
        TABLE["a"] = 1


def test_view_of_a_dictionary_that_is_given_too():
    def function(x, table, keys):
        table["new"] = 5
        return x + len(keys), [table[key] for key in keys]

    def both(make):
        table = {"a": 1}
        return make(X, table, table.keys()), table

    compiled = pliant.compile(function, fullgraph=True)
    for _ in range(2):
        assert str(both(compiled)) == str(both(function))
