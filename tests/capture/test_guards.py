"""A capture assumes what the program used, and nothing else."""

import collections
import enum

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events

X = torch.arange(3.0)


def guards_of(function, *args, **kwargs) -> list[str]:
    """The guards of the first compilation, as text, without the one on PyTorch's state."""
    compiled = pliant.compile(function, fullgraph=True)
    compiled(*args, **kwargs)
    [entry] = compiled.entries
    return [str(guard) for guard in entry.info.bindings.guards][1:]


def never_recompiles(function, *calls) -> None:
    compiled = pliant.compile(function, fullgraph=True)
    events.counters.reset()
    for call in calls:
        compiled(*call)
    assert events.counters["compilations"] == 1


# ---- nothing for what is not looked at


def test_unused_argument() -> None:
    assert guards_of(lambda x, y: X, 1, [2]) == []
    never_recompiles(lambda x, y: x + 1, (X, 1), (X, "a"), (X, None), (X, torch.ones(2)), (X, [X]))


def test_argument_passed_along() -> None:
    def f(x, y):
        z = y
        held = [z, {"k": z}]
        return x * 2, z, held, (held,)

    never_recompiles(f, (X, 1), (X, 2.0), (X, torch.ones(7)), (X, object()))


def test_argument_stored() -> None:
    class Box:
        pass

    def f(box, items, x, y):
        box.y = y
        items[0] = y
        items[1:] = [y, y]
        return x + 1

    box = Box()
    never_recompiles(f, (box, [0, 1], X, 1), (box, [0, 1], X, "a"), (Box(), [0, 1], X, X))


def test_argument_passed_through_calls() -> None:
    def inner(a, *rest, **named):
        return a + 1, rest, named

    def f(x, y, z):
        return inner(x, y, z, key=z)

    never_recompiles(f, (X, 1, 2), (X, "a", X), (X, None, []))


def test_unused_attributes_items_and_globals() -> None:
    class Box:
        pass

    def f(box, table, items, x):
        return x + box.used + table["used"]

    def call(n):
        box = Box()
        box.used, box.other = 1, n
        return box, {"used": 2, n: n}, [n] * n, X

    never_recompiles(f, *(call(n) for n in range(5)))


GLOBAL = 1


def test_unused_global() -> None:
    global GLOBAL
    compiled = pliant.compile(lambda x: x + 1)
    compiled(X)
    GLOBAL = 2
    globals()["NEW_GLOBAL"] = 3
    compiled(X)
    assert events.counters["compilations"] == 1


def test_unused_closure_variable() -> None:
    used, unused = 1, 1

    def f(x, flag):
        return x + used if flag else x + unused

    compiled = pliant.compile(f)
    compiled(X, True)
    unused = 5
    compiled(X, True)
    assert events.counters["compilations"] == 1


def test_unused_items_of_a_list() -> None:
    never_recompiles(lambda items: items[1] + 1, ([1, X],), (["a", X],), ([None, X],))


def test_unused_tensors_of_a_list() -> None:
    never_recompiles(lambda items: items[0] + 1, ([X, torch.ones(2)],), ([X, torch.ones(5)],))


def test_only_the_type_of_what_is_checked_by_type() -> None:
    def f(x, y):
        return x + 1 if isinstance(y, list) else x

    never_recompiles(f, (X, [1]), (X, [1, 2]), (X, []))


def test_none_or_not_assumes_no_more() -> None:
    class Config:
        pass

    def f(x, config, other):
        if other is not None:
            x = x * 2
        return x if config is None else x + 1

    never_recompiles(f, (X, Config(), 1), (X, [], 2.0), (X, torch.ones(2), X), (X, Config(), ()))
    compiled = pliant.compile(f)
    assert compiled(X, 1, None).tolist() == f(X, 1, None).tolist()
    assert compiled(X, None, 1).tolist() == f(X, None, 1).tolist()
    assert compiled(X, 2, 3).tolist() == f(X, 2, 3).tolist()


def test_fresh_closures_of_the_same_code() -> None:
    def make(scale):
        return lambda x: x * scale

    tensors = [torch.ones(3), torch.zeros(3)]
    never_recompiles(lambda f, x: f(x), *((make(t), X) for t in tensors))


def test_fresh_instances() -> None:
    class Box:
        def __init__(self, x):
            self.x = x

        def double(self):
            return self.x * 2

    never_recompiles(lambda box: box.double(), *((Box(torch.ones(3)),) for _ in range(3)))


def test_fresh_modules() -> None:
    never_recompiles(lambda m, x: m(x), *((nn.Linear(3, 2), X) for _ in range(3)))


def test_contents_of_tensors() -> None:
    never_recompiles(lambda x: x + 1, (torch.zeros(3),), (torch.ones(3),), (torch.ones(6)[:3],))


def test_gradients_of_parameters() -> None:
    model = nn.Linear(3, 3)
    compiled = pliant.compile(model)
    compiled(X)
    compiled(X).sum().backward()
    compiled(X)
    model.zero_grad()
    compiled(X)
    assert events.counters["compilations"] == 1


def test_partial_keywords_that_are_passed_along() -> None:
    import functools

    def f(x, k, tag=None):
        return x * 2, tag

    calls = [(functools.partial(f, k=1, tag=tag), X) for tag in ("a", "b")]
    never_recompiles(lambda p, x: p(x), *calls)


def test_append_and_store_assume_no_contents() -> None:
    def f(items, table, queue, x):
        items.append(x)
        table["k"] = x
        queue.append(x)
        return x + 1

    calls = [([0] * n, dict.fromkeys(range(n)), collections.deque(range(n)), X) for n in range(4)]
    never_recompiles(f, *calls)


# ---- exactly what is needed for what is


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (lambda x: x + 1, (X,), ["L['x'] matches Tensor(float32[3], stride=(1,), cpu)"]),
        (lambda k: X * k, (3,), ["L['k'] == 3"]),
        (lambda items: X + items[0], ([3],),
         ["type(L['items']) is list", "len(L['items']) == 1", "L['items'][0] == 3"]),
        (lambda table: X + table["k"], ({"k": 3},),
         ["type(L['table']) is dict", "L['table']['k'] == 3"]),
        (lambda flag: X if flag else X + 1, (True,), ["L['flag'] == True"]),
        (lambda text: X + len(text), ("ab",), ["L['text'] == 'ab'"]),
        (lambda dtype: torch.ones(2, dtype=dtype), (torch.int8,), ["L['dtype'] == torch.int8"]),
        (lambda cls: isinstance(3, cls), (int,), ["L['cls'] is int"]),
    ],
)  # fmt: skip
def test_guards(function, args, expected) -> None:
    actual = [g for g in guards_of(function, *args) if g.startswith(("L[", "type(L", "len(L"))]
    actual = [g for g in actual if not g.startswith("type(L['x']) is Tensor")]
    assert actual == expected


def test_a_guard_is_made_once() -> None:
    guards = guards_of(lambda x, k: x * k + k - k * x + k, X, 2)
    assert len(guards) == len(set(guards))


def test_every_guard_knows_the_line_that_made_it() -> None:
    def f(x, k):
        y = x + 1
        return y * k

    compiled = pliant.compile(f)
    compiled(X, 2)
    [entry] = compiled.entries
    first = f.__code__.co_firstlineno
    lines = {str(g): g.position.line - first for g in entry.info.bindings.guards if g.source}
    assert lines["L['k'] == 2"] == 2
    assert lines["L['x'] matches Tensor(float32[3], stride=(1,), cpu)"] == 1


def test_the_log_lists_the_guards(capsys) -> None:
    pliant.set_logs(guards=True)
    pliant.compile(lambda x, k: x + k)(X, 2)
    text = capsys.readouterr().err
    assert "L['k'] == 2" in text and "L['x'] matches Tensor(float32[3]" in text


# ---- no more is assumed than was asked


def test_asking_for_a_class_assumes_no_value():
    def function(x, thing):
        if type(thing) is str or isinstance(thing, bytes) or isinstance(thing, (float, complex)):
            return x + 1
        return x - 1

    compiled = pliant.compile(function)
    x = torch.ones(2)
    for thing in ("a", "b", b"a", b"b", 1.5, 2.5, 1, 2, True, False):
        assert torch.equal(compiled(x, thing), function(x, thing))
    assert pliant.counters["compilations"] == 5


def test_value_that_is_used_after_its_class_is_guarded():
    def function(x, thing):
        return x + len(thing) if isinstance(thing, str) else x

    compiled = pliant.compile(function)
    x = torch.ones(2)
    for thing in ("a", "bb", "a", 3):
        assert torch.equal(compiled(x, thing), function(x, thing))


def test_class_hook_sees_the_value():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return obj == "yes"

    class Yes(metaclass=Meta):
        pass

    def function(x, thing):
        return x + 1 if isinstance(thing, Yes) else x - 1

    compiled = pliant.compile(function)
    x = torch.ones(2)
    for thing in ("yes", "no", "yes"):
        assert torch.equal(compiled(x, thing), function(x, thing))


# ---- text


class Unprintable:
    """A key of dictionaries whose text can't be had."""

    def __hash__(self) -> int:
        return 5

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unprintable)

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


class Number(enum.Enum):
    ONE = 1

    def __str__(self) -> int:  # type: ignore[override]
        return 1


@pytest.mark.parametrize("key", [Unprintable(), Number.ONE], ids=["__repr__", "__str__"])
def test_keys_that_cannot_be_printed(key) -> None:
    def function(x, table):
        value = table[key] * 2
        pliant.graph_break()
        made = {key: x + 1, "other": value}
        pliant.graph_break()
        return made[key] + table[key]

    compiled = pliant.compile(function)
    for _ in range(2):
        assert torch.equal(compiled(X, {key: X}), function(X, {key: X}))
    [entry] = compiled.entries
    assert all(str(guard) for guard in entry.info.bindings.guards)
    assert events.counters["fallbacks"] == 0
