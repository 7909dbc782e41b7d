"""Which object is which: `is`, sharing between arguments, results and the world."""

import pytest
import torch
from torch import nn

from tests.support.side_by_side import Probes, side_by_side

probe = Probes()
X = torch.arange(3.0)


class Node:
    def __init__(self, *children):
        self.children = list(children)
        self.seen = 0


@probe(compilations=1)
def made_objects_are_different(compile):
    def f(x):
        a, b = Node(), Node()
        empty, other = [], []
        return a is b, a is a, empty is other, x is x, (x + 1) is (x + 1)

    yield compile(f)(X)


@probe(compilations=1)
def one_object_by_two_ways(compile):
    def f(tree, x):
        left, right = tree.children
        left.seen += 1
        return x + right.seen, left is right

    shared = Node()
    yield compile(f)(Node(shared, shared), X), shared.seen


@probe(compilations=2)
def shared_or_not(compile):
    def f(a, b, x):
        a.children.append(x)
        return len(b.children)

    compiled = compile(f)
    yield compiled(Node(), Node(), X)
    a, b = Node(), Node()
    b.children = a.children
    yield compiled(a, b, X)
    yield compiled(Node(), Node(), X)


@probe(compilations=2)
def tied_parameters(compile):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3, bias=False)
            self.b = nn.Linear(3, 3, bias=False)

        def forward(self, x):
            with torch.no_grad():
                self.a.weight.mul_(2)
            return self.b(self.a(x)), self.a.weight is self.b.weight

    module = M()
    compiled = compile(module)
    yield compiled(X)
    module.b.weight = module.a.weight
    yield compiled(X)
    module.b.weight = nn.Parameter(torch.ones(3, 3))
    yield compiled(X)


@probe(compilations=1)
def module_used_twice(compile):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = nn.Linear(3, 3)
            self.calls = [self.a, self.b]

        def forward(self, x):
            for layer in self.calls:
                x = layer(x)
            return self.b(self.a(x)), self.a is self.b

    yield compile(M())(X)


@probe(compilations=2)
def element_of_a_list_by_identity(compile):
    def f(items, x):
        return [item is x for item in items]

    compiled = compile(f)
    y = torch.ones(3)
    yield compiled([X, y], X)
    yield compiled([X, y], y)


@probe(compilations=2)
def object_as_a_key(compile):
    def f(table, key, x):
        return x + table.get(key, 0)

    compiled = compile(f)
    a, b = Node(), Node()
    table = {a: 1}
    yield compiled(table, a, X)
    yield compiled(table, b, X)
    yield compiled(table, a, X)


@probe(breaks=None)
def tensor_as_a_key(compile):
    def f(table, key, x):
        table[key] = x + 1
        return len(table), key in table

    table = {}
    y = torch.ones(1)
    compiled = compile(f)
    yield compiled(table, y, X), table[y]


@probe()
def id_of_objects(compile):
    def f(a, b, x):
        return id(a) == id(b), x + 1

    compiled = compile(f)
    a, b = Node(), Node()
    yield compiled(a, a, X)[0]
    yield compiled(a, b, X)[0]


@probe(compilations=3)
def types_by_identity(compile):
    def f(kind, x):
        return x + 1 if kind is int else x + 2 if kind is float else x

    compiled = compile(f)
    for kind in (int, float, str, int):
        yield compiled(kind, X)


@probe(compilations=2)
def functions_by_identity(compile):
    def act(x):
        return x + 1

    def other(x):
        return x + 1

    def f(g, x):
        return g(x) if g is act else -g(x)

    compiled = compile(f)
    for g in (act, other, act):
        yield compiled(g, X)


@probe(compilations=2)
def closures_over_the_same_code(compile):
    def make(box):
        def g(x):
            box.seen += 1
            return x + box.seen

        return g

    def f(a, b, x):
        return a(x) + b(x)

    compiled = compile(f)
    one, two = Node(), Node()
    yield compiled(make(one), make(two), X), one.seen, two.seen
    three = Node()
    yield compiled(make(three), make(three), X), three.seen


@probe(compilations=2)
def bound_methods_of_the_same_object(compile):
    class Count:
        def __init__(self):
            self.n = 0

        def up(self):
            self.n += 1
            return self.n

    def f(a, b, x):
        return x + a() * 10 + b()

    compiled = compile(f)
    one, two = Count(), Count()
    yield compiled(one.up, two.up, X), one.n, two.n
    one = Count()
    yield compiled(one.up, one.up, X), one.n


@probe(compilations=2)
def list_inside_itself(compile):
    def f(items, x):
        items[0].append(x)
        return len(items)

    compiled = compile(f)
    yield compiled([[]], X)
    cyclic = []
    cyclic.append(cyclic)
    yield compiled(cyclic, X)


@probe(compilations=2)
def dictionary_of_an_object(compile):
    def f(box, table, x):
        box.value = 5
        return table.get("value"), x

    compiled = compile(f)
    yield compiled(Node(), {}, X)
    box = Node()
    yield compiled(box, vars(box), X)


@probe(compilations=3)
def dictionary_of_an_object_seen_first_on_its_own(compile):
    def f(box, table, x):
        before = table.get("value")
        box.value = 5
        return before, table.get("value"), x

    compiled = compile(f)
    box = Node()
    yield compiled(box, vars(box), X)
    yield compiled(Node(), {}, X)
    yield compiled(box, vars(box), X)


@probe(compilations=2)
def keys_that_are_the_same_object(compile):
    def f(a, b, x):
        table = {a: 1, b: 2}
        return x + len(table)

    compiled = compile(f)
    a, b = Node(), Node()
    yield compiled(a, b, X)
    yield compiled(a, a, X)
    yield compiled(b, a, X)


@probe()
def key_of_a_dictionary_that_is_iterated(compile):
    def f(table, key, x):
        return x + sum(value for k, value in table.items() if k is key)

    compiled = compile(f)
    a, b = Node(), Node()
    yield compiled({a: 1, b: 2}, a, X)
    yield compiled({a: 1, b: 2}, b, X)
    table = {a: 1, b: 2}
    yield compiled(table, a, X)
    yield compiled(table, b, X)


@probe(compilations=2)
def globals_and_arguments(compile):
    def f(table, x):
        global SHARED
        table["SHARED"] = 3
        return x + SHARED

    compiled = compile(f)
    globals()["SHARED"] = 1
    yield compiled({}, X)
    yield compiled(globals(), X)


@probe(compilations=2)
def slices_of_one_tensor(compile):
    def f(a, b):
        a += 1
        return a + b

    compiled = compile(f)
    data = torch.zeros(8)
    yield compiled(data[:4], data[4:]), data
    yield compiled(data[:4], data[:4]), data
    yield compiled(data[2:6], data[4:]), data
    both = data[:4]
    yield compiled(both, both), data


@probe(compilations=1)
def batches_of_one_tensor(compile):
    compiled = compile(lambda batch: batch * 2)
    data = torch.arange(12.0)
    for start in range(0, 12, 3):
        yield compiled(data[start : start + 3])


@probe(compilations=3)
def place_in_memory_when_asked_for(compile):
    compiled = compile(lambda batch: (batch * 2, batch[1:].storage_offset()))
    data = torch.arange(9.0)
    for start in range(0, 9, 3):
        yield compiled(data[start : start + 3])


@probe(breaks=None)
def base_of_a_view(compile):
    compiled = compile(lambda x: x + 1 if x._base is None else x + x._base.sum())
    data = torch.arange(4.0)
    yield compiled(torch.ones(2))
    yield compiled(data[:2])
    yield compiled(torch.ones(2))
    yield compiled(torch.ones(4)[2:])


@probe(breaks=None)
def version_of_a_tensor(compile):
    def f(x):
        before = x._version
        x.add_(1)
        return before, x._version

    compiled = compile(f)
    x = torch.ones(2)
    for _ in range(3):
        yield compiled(x)


@pytest.mark.parametrize(("program", "expected"), probe.params)
def test_identity(program, expected) -> None:
    side_by_side(program, **expected)
