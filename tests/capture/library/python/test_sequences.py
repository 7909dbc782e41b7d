"""Lists, tuples, named tuples, deques and torch.Size."""

from collections import deque, namedtuple

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)
Pair = namedtuple("Pair", "first second")


class Items(list):
    """A list with a method of its own."""

    def total(self):
        return sum(self)


class Backwards(list):
    def __iter__(self):
        return reversed(list(self[:]))


class Ring(deque):
    pass


class Number:
    """Compares and adds in Python."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Number) and self.value == other.value

    def __lt__(self, other):
        return self.value < other.value

    def __index__(self):
        return self.value

    def __radd__(self, other):
        return ("radd", len(other))

    def __rmul__(self, other):
        return ("rmul", len(other))

    def __repr__(self):
        return f"Number({self.value})"


def function_of(expression: str):
    make = "deque([1, 2, 3], maxlen=3)"
    return eval(f"lambda x, xs, t, n: (lambda q: ({expression}))({make})", globals())


def check_expression(expression: str) -> None:
    check(function_of(expression), X, ["a", 1, X], (2, X), 3)


@pytest.mark.parametrize(
    "expression",
    [
        "xs + [x + 1]", "xs * 2", "2 * xs", "xs * -1", "xs * True", "[x] * Number(2)",
        "xs + Number(1)", "xs[0], xs[-1], xs[1:], xs[::-1], xs[5:], xs[-2:1]", "xs[Number(1)]",
        "xs[True]", "len(xs), xs[:2].count(1), xs.index(1), xs.index(1, 1), xs[:2].index(1, -1, 9)",
        "xs.copy() is xs, xs.copy()[2] is x", "1 in xs[:2], 5 in xs[:2], 1.0 not in xs[:2]",
        "[1, 2] == [1, 2], [1, 2] != [1, 2.0], [1] == (1,), [1, 2] < [1, 3], [1] <= [1, 0], "
        "[2] > [1, 5]",
        "[x] == [x]", "[Number(1)] == [Number(1)], [Number(1)] != [Number(2)]",
        "Number(2) in [Number(1), Number(2)]", "[Number(1), Number(2)].index(Number(2))",
        "list(xs), tuple(xs), list(reversed(xs)), list(t), list(reversed(t))",
        "sorted([3, 1, 2]), sorted(['b', 'a'], reverse=True), sorted([(1, 'b'), (1, 'a')])",
        "sorted([Number(2), Number(1)], key=lambda n: n.value)[0].value",
        "[n.value for n in sorted([Number(3), Number(1), Number(2)])]",
        "[n.value for n in sorted([Number(3), Number(1), Number(2)], reverse=True)]",
        "sorted([3, -1, 2], key=abs)", "sorted([x + 1, x, x + 2], key=lambda v: 0)", "[*xs, *t, 4]",
        "bool([]), bool(xs), bool(())", "[[1], [2]] == [[1], [2]]",
        "(1, 2) + (x,), t + t, t * 2, 2 * t", "t[0], t[-1], t[:1], t[5:], (1, 2)[1]",
        "t[:1].count(2), (1, 2).index(2), 2 in (1, 2), (1, x)[1]",
        "(1, 2) < (1, 3), (1, 2) == (1, 2), t == t", "hash((1, 'a')), hash((1, (2, 3)))",
        "tuple(v for v in t), tuple([1]), tuple('ab')",
        "xs.__len__(), t.__contains__(2), list.__getitem__(xs, 1), [1].__repr__()",
        "repr([1, 'a', (2,)]), str([]), f'{[1, 2]}', repr((1,)), repr(deque([1], maxlen=2))",
        "repr([Number(1), (Number(2),)])", "max(xs[1:2]), min([3, 2]), sum([1, 2])",
    ],
)  # fmt: skip
def test_reading(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "xs[7]", "t[7]", "(1,)[3]", "xs['a']", "t['a']", "xs[1.5]", "xs[1:'a']", "xs[None]",
        "[1].index(3)", "[1].index(Number(3))", "(1,).index(3)", "[].pop()", "[1].pop(3)",
        "[1].pop('a')", "[1].remove(5)", "xs + t", "t + xs", "xs + 1", "xs * 'a'", "t * 1.5",
        "xs < 3", "xs < t", "[1].insert('a', 1)", "[1].__setitem__(5, 1)",
        "[1].__setitem__('a', 1)", "[1].__delitem__(3)",
        "[1, 2, 3].__setitem__(slice(0, 3, 2), [1])", "[1].__setitem__(slice(0, 1), 4)",
        "[1].__setitem__(slice(0, 3, 2), 4)", "['a', 1].sort()", "[1].sort(key=3)", "[1].extend(3)",
        "[1].index(1, 'a')", "q[3]", "q['a']", "q[0:1]", "q + [1]", "q * 'a'", "q.index(7)",
        "q.remove(7)", "q.insert(0, 1)", "deque().pop()", "deque().popleft()",
        "deque([1], maxlen=-1)", "hash([1])", "hash((1, []))", "{[1]: 2}", "[1] + torch.Size([1])",
        "q[-9]", "list(3)", "tuple(3)", "t.__add__(3)", "3 in 3", "[n for n in 3]",
        "sorted([1, None])", "x.shape[5]", "x.shape + [1]", "torch.Size(['a'])", "x.shape + (1.5,)",
        "t[0:1] < [1]",
    ],
)  # fmt: skip
def test_errors(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "xs.append(x * 2)", "xs.extend(t)", "xs.extend(v for v in t)", "xs.extend(xs)",
        "xs.insert(1, x)", "xs.insert(-100, 0), xs.insert(100, 0)", "xs.pop(), xs.pop(0)",
        "xs.pop(-2)", "xs.remove(1)", "xs.clear()", "xs.reverse()", "xs.__iadd__([1])",
        "xs.__imul__(2)", "xs.__setitem__(0, x + 1)", "xs.__setitem__(slice(0, 2), [x, x, x])",
        "xs.__setitem__(slice(None, None, 2), [5, 6])",
        "xs.__setitem__(slice(1, 1), (v for v in t))", "xs.__delitem__(0)",
        "xs.__delitem__(slice(0, 2))", "xs.__delitem__(slice(None, None, 2))", "xs.__init__([x])",
        "xs.sort(key=lambda v: isinstance(v, str))", "q.append(x)", "q.appendleft(x)",
        "q.extend([4, 5])", "q.extendleft([4, 5])", "q.extend(q)", "q.pop(), q.popleft()",
        "q.rotate(), q.rotate(-2), q.rotate(7)", "q.reverse()", "q.clear()", "q.remove(2)",
        "q.__setitem__(0, x)", "q.__delitem__(1)", "q.__iadd__([x])", "q.__imul__(2)",
        "q.pop(), q.insert(1, 9)",
    ],
)  # fmt: skip
def test_changing(expression):
    check_expression(f"{expression}, x + 1, q, q.maxlen")


@pytest.mark.parametrize(
    "expression",
    [
        "list(deque([x, 1])), deque([1, 2, 3], 2), deque(maxlen=2)",
        "q.maxlen, deque().maxlen, len(q)", "list(q), list(reversed(q)), q[0], q[-1]",
        "q.count(2), q.index(2), q.index(3, 1), 2 in q", "q.copy(), q + q, q * 2, q.copy().maxlen",
        "list(deque([1]) + deque([x], 5)), deque([1]) + deque([2], 5)", "q == deque([1, 2, 3])",
        "deque([1]) == [1], deque([1]) < deque([2]), deque() >= deque([1])",
        "bool(deque()), bool(q)", "Ring([1, 2]), Ring([1]) + deque([2]), Ring([1, 2], 1).copy()",
        "deque(v * 2 for v in [1, 2])", "[a + b for a, b in zip(q, q)]",
    ],
)  # fmt: skip
def test_deques(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "x.shape, x.size(), x.shape[0], x.shape[-1], x.shape[:1], x.shape[::-1]",
        "x.shape + (1,), (1,) + x.shape, x.shape + x.shape, x.shape * 2, 2 * x.shape",
        "x.shape.numel(), len(x.shape), 3 in x.shape, x.shape.index(3), x.shape.count(2)",
        "x.shape == (2, 3), x.shape == torch.Size([2, 3]), x.shape != (2,), x.shape < (3,)",
        "torch.Size([1, 2]), torch.Size(), torch.Size((n, True)), tuple(x.shape), list(x.shape)",
        "x.view(x.shape[1:] + x.shape[:1]), x.reshape(*x.shape), x.new_zeros(x.shape)",
        "repr(x.shape), f'{x.shape}', str(x.shape), hash(x.shape)",
        "[d for d in x.shape], list(reversed(x.shape)), x.shape.__len__()",
    ],
)  # fmt: skip
def test_size(expression):
    check_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "Pair(1, x)", "Pair(1, x).second + 1, Pair(x, 2)[1], Pair(first=x, second=2).first",
        "Pair._make([x, 2]), Pair(1, 2)._replace(first=x)", "Pair(1, x)._asdict(), Pair._fields",
        "Pair(1, 2) == (1, 2), Pair(1, 2) < Pair(1, 3), len(Pair(1, 2)), (*Pair(1, x),)",
        "repr(Pair(1, 2)), str(Pair(1, 'a'))",
        "Pair(1, 2) + (3,), Pair(1, x)[:1], hash(Pair(1, 2))",
        "torch.max(x, dim=0).values, torch.max(x, dim=0)[1], torch.max(x, dim=0)",
        "x.sort(dim=1).indices, len(x.sort(dim=1)), x.topk(2)[0]", "isinstance(Pair(1, 2), tuple)",
    ],
)  # fmt: skip
def test_named_tuples(expression):
    check_expression(expression)


def test_named_tuple_from_outside():
    check(lambda p: (p.first + 1, p._replace(second=3), p), Pair(X, 2))


def test_subclass_of_list():
    def f(x, items):
        items.append(x)
        mine = Items([1, 2])
        mine.extend([3])
        return items.total() + mine.total(), type(mine[:1]), len(mine), mine + [1]

    check(f, X, Items([X]))


def test_overridden_iteration_is_asked():
    def f(x):
        items = Backwards([1, x, 3])
        return list(items), [*items], items[0], items.copy()

    check(f, X)


def test_list_changed_while_iterating():
    def f(xs):
        seen = []
        for v in xs:
            seen.append(v + 1)
            if len(xs) < 5:
                xs.append(v * 2)
        return seen

    check(f, [X])


def test_list_shrunk_while_iterating():
    def f(x, xs):
        seen = []
        for v in xs:
            seen.append(x + v)
            xs.remove(v)
        return seen

    check(f, X, [1, 2, 3, 4])


def test_deque_changed_while_iterating():
    def f(x):
        q = deque([x, 2], maxlen=2)
        for v in q:
            q.append(v)

    check(f, X)


def test_deque_that_is_returned():
    def f(x):
        q = deque([x], maxlen=2)
        q.extend([x + 1, x + 2])
        return q, Ring([x]), Ring(maxlen=1)

    q, ring, empty = pliant.compile(f, backend="eager", fullgraph=True)(X)
    assert (type(q), q.maxlen, type(ring), empty.maxlen) == (deque, 2, Ring, 1)
    torch.testing.assert_close([*q, *ring], [X + 1, X + 2, X])


def test_augmented_assignment():
    def f(x, xs, t):
        before = xs
        xs += t
        xs *= 2
        t += (x,)
        t *= 2
        xs[0] += 1
        return before is xs, t

    check(f, X, [X], (1,))


def test_slices_of_lists():
    def f(x, xs):
        del xs[1]
        xs[1:1] = [x, x + 1]
        xs[-1:] = ()
        del xs[::2]
        first, *rest = xs
        return first, rest

    check(f, X, [1, 2, 3, 4, 5])


def test_slice_from_outside():
    check(
        lambda xs, s, t: (xs[s], t[s], t[s.start], s.stop, s.indices(3), slice(2).step),
        [X, 1, 2],
        slice(1, None),
        (1, X),
    )


def test_slice_of_objects():
    check(lambda x: [x, 1, 2][Number(1) : Number(3)], X)


def test_storing_assumes_nothing():
    """A value that is only stored is not looked at, so that any other value does as well."""

    def f(x, kept, item):
        kept.append(item)
        return x + 1

    compiled = pliant.compile(f, backend="eager", fullgraph=True)
    for item in (1, "a", None, object()):
        kept = [0] * len(str(item))
        compiled(X, kept, item)
        assert kept[-1] is item
    assert pliant.counters["compilations"] == 1


def test_sort_is_stable_and_asks_lt():
    def f(x):
        pairs = [(2, x), (1, x + 1), (2, x + 2), (1, x + 3)]
        pairs.sort(key=lambda p: p[0])
        numbers = [Number(3), Number(1), Number(2)]
        numbers.sort(reverse=True)
        return [p[1] for p in pairs], [n.value for n in numbers]

    check(f, X)


def test_recursive_list():
    def f(x):
        xs = [x]
        xs.append(xs)
        return xs[1][1][0] + 1

    check(f, X)


class Slotted(list):
    __slots__ = ("extra",)


def test_attributes_of_subclasses():
    def f(x, given):
        given.note = given.note + "!"
        made = Items([x])
        made.note = {"x": x}
        return made, given.note, vars(given), made.__dict__

    given = Items([1])
    given.note = "a"
    check(f, X, given)


def test_slots_of_subclasses_break():
    given = Slotted([1])
    given.extra = 5
    check(lambda x, given: x + given.extra, X, given, breaks=1)


def test_a_list_is_added_to_itself():
    def function(x, items, plain):
        items.extend(items)
        items += items
        plain.extend(plain)
        plain[1:1] = plain
        return x + len(items), items, plain

    check(function, X, Items([1, 2]), [3, 4])


class Second:
    def __index__(self):
        return 1


@pytest.mark.parametrize("constant", [range(0, 9, 2), "abc", b"abc", (1, 2, 3)])
def test_items_of_constants_by_objects_that_give_a_number(constant):
    def function(x):
        texts = []
        for wrong in ("a", 1.5, None):
            try:
                constant[wrong]
            except TypeError as error:
                texts.append(str(error))
        return x + 1, constant[Second()], constant[Second() :], constant[x.dim() :], texts

    check(function, X)
    check(function, X, dynamic=True)


class CountsComparisons:
    def __init__(self):
        self.compared = 0

    def __eq__(self, other):
        self.compared += 1
        return True


@pytest.mark.parametrize("kind", [list, tuple, deque])
@pytest.mark.parametrize("differs", [lambda a, b: a == b, lambda a, b: a != b])
def test_items_of_sequences_of_different_lengths(kind, differs):
    """Those of tuples are compared, unlike others."""

    def function(x, item, other):
        return differs(kind([item, 1]), kind([other])), item.compared, x + item.compared

    check(function, X, CountsComparisons(), CountsComparisons())


def taken(iterator, count):
    return [next(iterator) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 2, 3])
@pytest.mark.parametrize("direction", [iter, reversed])
def test_an_iterator_of_a_deque_that_has_changed(direction, count):
    """At its end the reversed one doesn't notice."""

    def function(x):
        queue = deque([1, 2, 3])
        iterator = direction(queue)
        items, ends = taken(iterator, count), []
        queue.append(4)
        for _ in range(2):
            try:
                ends.append(next(iterator, "end"))
            except RuntimeError as error:
                ends.append(str(error))
        return x + len(items), ends

    check(function, X)


def test_slices_are_compared():
    def program(x, part):
        same = part == slice(1), part != slice(2), part == part, part == "a", part in [slice(2)]
        return x[part], same, slice(None, x.shape[0]) == slice(3)

    compiled = pliant.compile(program, fullgraph=True)
    for part in (slice(1), slice(2), slice(1, None, 2), slice(1)):
        assert str(compiled(torch.ones(3), part)) == str(program(torch.ones(3), part))


def test_unions_are_compared():
    check(lambda x: (int | str == str | int, int | str != int | None, x), torch.ones(2))
