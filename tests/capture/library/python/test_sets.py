"""Sets and frozensets."""

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)


class Tags(set):
    pass


def check_expression(expression: str) -> None:
    check(
        eval(f"lambda x, s, z, n: ({expression})", globals()), X, {1, 2, "a"}, frozenset({2, 3}), 4
    )


@pytest.mark.parametrize(
    "expression",
    [
        "1 in s, 5 in s, 'a' not in s, len(s), bool(s), bool(set()), {1} in {frozenset({1})}, "
        "2 in z",
        "s | {5}, s & {1, 9}, s - {1}, s ^ {1, 7}, z | s, s | z, z & z, z - {2}, type(z | s), "
        "type(s | z)",
        "s.union([5], 'bc'), s.intersection([1, 5]), s.difference([1], {2}), "
        "s.symmetric_difference('a')",
        "z.union([n]), z.intersection(s), z.difference('a'), z.symmetric_difference([2])",
        "s.union()",
        "s <= {1, 2, 'a', 4}, s < s, s >= {1}, s > {1}, s == {1, 2, 'a'}, s != z, z == {2, 3}, "
        "s == [1]",
        "s.issubset([1, 2, 'a']), s.issuperset([1]), s.isdisjoint([9]), z.isdisjoint(s), "
        "z.issubset({2, 3, 4})",
        "sorted(set([3, 1, 3])), sorted(set('abc')), sorted(set({1: 2})), frozenset([1, 2]), "
        "set(), frozenset()",
        "sorted({v * 2 for v in [1, 2]}), [v for v in z], list(z), sorted([*z]), set(range(3))",
        "s.copy() is s, s.copy()", "{x, 1} == {1, x}, x in {x}, len({x, x}), {(x, 1)} == {(x, 1)}",
        "s | {1: 2}.keys(), {1: 2}.keys() | s",
        "repr({1}), repr(set()), repr(frozenset({1})), str({'a'}), hash(frozenset({1, 2}))",
        "Tags([1, 2]), type(Tags([1]) | {2})",
        "list({'b', 'a', 'c', 'd', 'e'}), list({17, 9, 1}), list(set([33, 1, 65])), list({8, "
        "0} | {16})",
        "min(s - {'a'}), sum({1, 2}), all(s), any({0}), max(z)",
        "s.__contains__(1), set.union(s, z)",
    ],
)  # fmt: skip
def test_reading(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "s.add(5)", "s.add(1)", "s.discard(1), s.discard(99)", "s.remove('a')", "s.clear()",
        "s.update([7], {8: 9})", "s.intersection_update([1, 2])", "s.difference_update([1], [2])",
        "s.symmetric_difference_update([1, 8])", "s.__ior__({4})", "s.__iand__({1})",
        "s.__isub__({1})", "s.__ixor__({1, 9})", "s.pop(), len(s)", "s.__init__([6])",
        "{1}.pop(), {frozenset({1})}.remove({1})",
    ],
)  # fmt: skip
def test_changing(expression):
    check_expression(f"{expression}, x + 1")


@pytest.mark.parametrize(
    "expression",
    [
        "s.remove(77)", "set().pop()", "s.add([])", "{[]}", "[] in s", "s | [1]", "s & 3",
        "s < [1]", "s.union(3)", "s.symmetric_difference([1], [2])", "s[0]", "set(3)", "s + s",
        "z.add(1)", "hash(s)", "{1}.remove({1})", "s.__ior__([1])", "set([[]])", "{s}",
        "frozenset(3)",
    ],
)  # fmt: skip
def test_errors(expression):
    check_expression(expression)


def test_augmented_assignment():
    def f(x, s, z):
        before = s
        s |= {5}
        s &= {5, 1}
        s -= {1}
        s ^= {7}
        z |= {9}
        return before is s, z, x + len(s)

    check(f, X, {1, 2}, frozenset({3}))


def test_changed_while_iterating():
    def f(x):
        s = {1, 2}
        for v in s:
            s.add(v + 10)

    check(f, X)


def test_order_is_that_of_a_real_set():
    def f(x):
        s = set()
        for word in ("tensor", "graph", "guard", "value", "list", "dict", "frame", "cell", "code"):
            s.add(word)
        s.discard("list")
        return list(s), [w for w in s if len(w) > 4]

    check(f, X)


def test_elements_by_identity():
    def f(x, y):
        seen = {x}
        seen.add(y)
        seen.add(x)
        return len(seen), y in seen, seen

    count, contained, seen = pliant.compile(f, backend="eager", fullgraph=True)(X, X + 1)
    assert (count, contained, len(seen)) == (2, True, 2)
    assert any(item is X for item in seen)


LAZY = [
    "{2}.isdisjoint(items())",
    "{9}.isdisjoint(items())",
    "frozenset({2}).isdisjoint(items())",
    "{2: 0}.keys().isdisjoint(items())",
    "{1}.issuperset(items())",
    "{1, 2}.issubset(items())",
    "{1, 2}.intersection(items())",
    "{1, 2}.union(items(), items())",
    "{1, 2}.symmetric_difference(items())",
    "{1, 2}.difference(items(), [1], items())",
    "{1, 2}.update(items())",
    "{1, 2}.intersection_update(items(), items())",
]


@pytest.mark.parametrize("call", LAZY)
def test_iterators_are_advanced_as_far_as_python_takes_them(call):
    source = f"""
def function(x):
    taken = []
    def items():
        for item in (1, 2, 3):
            taken.append(item)
            yield item
    return x + 1, {call}, taken
"""
    namespace = {}
    exec(source, namespace)
    check(namespace["function"], X)


def test_iterable_that_fails_in_the_middle():
    def items():
        yield 1
        raise KeyError("end")

    def function(x, taken):
        try:
            taken.update(items())
        except KeyError:
            return x + 1, taken

    check(function, X, {5})


def adder(n):
    return lambda x: x + n


FIRST, SECOND, THIRD = adder(1), adder(2), adder(3)


@pytest.mark.parametrize("order", [(FIRST, THIRD, SECOND), (THIRD, FIRST, SECOND)])
@pytest.mark.parametrize("functions", [{FIRST, SECOND, 3}, frozenset([FIRST, SECOND, list])])
def test_functions_as_elements(functions, order):
    def program(x, function):
        return (x + 1 if function in functions else x - 1), len(functions), list in functions

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for function in order:
        actual, expected = compiled(X, function), program(X, function)
        assert torch.equal(actual[0], expected[0]) and actual[1:] == expected[1:]


def test_functions_of_a_set_are_called():
    def program(x, functions):
        for function in functions:
            x = function(x)
        functions.add(THIRD)
        return x

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for functions in ({FIRST}, {SECOND}, {FIRST, SECOND}):
        mine, theirs = set(functions), set(functions)
        assert torch.equal(compiled(X, mine), program(X, theirs))
        assert mine == theirs


class Hashed(set):
    def __hash__(self):
        return 3


class HashedByIdentity(set):
    __hash__ = object.__hash__


class Unhashed(set):
    def __hash__(self):
        raise TypeError("no hash")


class Failing(set):
    def __hash__(self):
        raise ValueError("no hash")


def test_sets_with_a_hash_are_looked_for_by_it():
    def program(x):
        class Own(set):
            def __hash__(self):
                return 3

        own, first, second = Own([1]), Hashed([1]), HashedByIdentity([5])
        elements = {own, first, second}
        found = own in elements, own in {1}, own in frozenset([own]), {own: 1}[own]
        found += (Hashed([1]) in {first}, first in {frozenset([1])}, second in {frozenset([5])})
        elements.discard(Hashed([1]))
        elements.discard(HashedByIdentity([5]))
        return x + 1, found, len(elements), Unhashed([1]) in {frozenset([1])}

    check(program, X)


def test_a_hash_that_raises_while_a_set_is_looked_for():
    check(lambda x: (x + 1, Failing([1]) in {frozenset([1])}), X)
