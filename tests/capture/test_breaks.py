"""Graph breaks in every kind of place: the program ends as it does in eager PyTorch."""

import functools
import io
import time

import pytest
import torch

import pliant
from tests.support.against_eager import check
from tests.support.programs import Programs, note

program = Programs(breaks=None)


@pliant.disable
def outside(x):
    return x * 2 + 1


X = torch.arange(6.0).reshape(2, 3)
Y = torch.ones(2, 3)


# ---- kinds of breaks


@program(X, [], breaks=1, graphs=2)
def a_disabled_function(x, log):
    y = x + 1
    note(log, "here")
    return y * 2


@program(X)
def print_a_tensor(x):
    y = x + 1
    print("sum", y.sum())
    return y * 2


@program(X)
def save_to_memory(x):
    y = x + 1
    file = io.BytesIO()
    torch.save(y, file)
    return y * 2, len(file.getvalue()) > 0


@program(X)
def save_and_load(x):
    file = io.BytesIO()
    torch.save({"x": x + 1}, file)
    file.seek(0)
    return torch.load(file)["x"] * 2


@program(X, graphs=1)
def item(x):
    n = (x.sum() * 2).item()
    return x * n + n


@program(X)
def tolist(x):
    rows = (x + 1).tolist()
    return [x * v for row in rows for v in row]


@program(X, breaks=1, graphs=2)
def if_on_data(x):
    y = x + 1
    if y.sum() > 3:
        y = y * 2
    else:
        y = y - 1
    return y + x


@program(X)
def while_on_data(x):
    while x.sum() < 1000:
        x = x * 2 + 1
    return x + 0.5


@program(X, breaks=1, graphs=2)
def explicit_break(x):
    y = x + 1
    pliant.graph_break()
    return y * 2


@program(X, breaks=1, graphs=2)
def torch_dynamo_break(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


@program(X, breaks=1)
def unknown_c_function(x):
    y = x + 1
    now = time.perf_counter()
    return y * 2, now > 0


@program(X, [])
def first_and_last_statement(x, log):
    note(log, "first")
    y = x + 1
    note(log, y.sum().item())


@program(X, [], breaks=1, graphs=1)
def only_the_last(x, log):
    x.add_(1)
    note(log, "last")


@program(X, [], breaks=1)
def returned_directly(x, log):
    return note(log, x + 1)


@program([], breaks=1, graphs=0)
def no_tensor_at_all(log):
    return note(log, "x") + 1


@program(X, [])
def many_in_a_row(x, log):
    note(log, 1)
    note(log, 2)
    y = x + 1
    note(log, 3)
    note(log, 4)
    return y * 2


# ---- loops


@program(X, [])
def for_loop(x, log):
    for i in range(4):
        x = x + i
        note(log, i)
    return x


@program(X, [])
def for_else_continue_break(x, log):
    for i in range(5):
        if i == 1:
            note(log, "continue")
            continue
        x = x * 2
        if i == 3:
            note(log, "break")
            break
        note(log, i)
    else:
        note(log, "never")
    for i in range(2):
        x = x + i
        note(log, "b")
    else:
        note(log, "else")
        x = x - 1
    return x, i


@program(X, [])
def nested_loops(x, log):
    for i in range(3):
        for j in range(i + 1):
            if j == 2:
                note(log, (i, j))
                break
            x = x + j
            note(log, (i, j))
        else:
            note(log, "inner else")
            continue
        note(log, "after inner break")
    return x


@program(X, [])
def while_loop(x, log):
    n = 0
    while True:
        n += 1
        x = x + n
        if note(log, n) >= 4:
            break
        if n == 2:
            continue
        x = x * 2
    else:
        x = x - 100
    return x, n


@program(X, [])
def loop_over_tensor_rows(x, log):
    total = 0
    for row in x:
        note(log, row.shape[0])
        total = total + row
    return total


@program(X, [torch.ones(3), torch.zeros(3)], {"a": 1, "b": torch.ones(3)}, [])
def iterators_across_breaks(x, items, table, log):
    for i, (item, (key, value)) in enumerate(zip(items, table.items())):
        x = x + item * value
        note(log, (i, key))
    for key in table:
        note(log, key)
    for value in table.values():
        x = x + value
        note(log, "v")
    for item in reversed(items):
        x = x - item
        note(log, "r")
    return x


@program(X, [])
def iterators_of_local_things(x, log):
    rows = [x, x + 1, x + 2]
    names = {"a": 1, "b": 2}
    total = x
    it = iter(rows)
    first = next(it)
    for n, row in zip(map(lambda v: v + 1, range(3)), it):
        total = total + row * n
        note(log, n)
    for name, value in names.items():
        note(log, name)
        total = total * value
    left = list(it)
    for c in "xyz":
        note(log, c)
    for pair in enumerate(filter(None, [0, 1, 2]), start=5):
        note(log, pair)
    return total, first, left


@program(X, [])
def list_grown_while_iterated(x, log):
    rows = [x]
    for row in rows:
        note(log, len(rows))
        if len(rows) < 4:
            rows.append(row + 1)
    return rows


# ---- expressions with a partial stack


def g(*args, **kwargs):
    return [a for a in args if isinstance(a, torch.Tensor)], sorted(kwargs), len(args)


@program(X, [])
def among_call_arguments(x, log):
    return g(x + 1, note(log, "a"), x * 2, y=x + note(log, "b"), z=note(log, "c"))


@program(X, [])
def star_arguments(x, log):
    more = (x + 1, x + 2)
    return g(x, *more, note(log, "a"), **{"y": note(log, "b"), "z": x})


@program(X, [])
def conditional_expression(x, log):
    return (x + 1 if x.sum() > 3 else x - 1) + (x if note(log, "a") > 5 else x * 3)


@program(X, [])
def boolean_operators(x, log):
    a = x.sum() > 0 and note(log, "and")
    b = x.sum() < 0 or note(log, "or")
    c = not (x.sum() > 0)
    d = x.sum() > 0 and x + 1
    e = (x.sum() > 100 or x.mean() > 100) or x - 1
    return a, b, c, d, e


@program(X, [])
def chained_comparison(x, log):
    n = note(log, "a")
    return 0 < n < note(log, "b") <= 2, 0 < x.sum() < 3, 0 < x.sum() < 300


@program(X, [])
def subscripts(x, log):
    rows = [x, x + 1, x + 2]
    return (
        rows[note(log, "a")],
        rows[note(log, "b") :],
        x[:, note(log, "c") - 2],
        (x + 1)[0][int(x[0, 1])],
    )


@program(X, [])
def augmented_assignments(x, log):
    rows = [x, 1]
    rows[note(log, "a")] += note(log, "b")
    rows[0] += note(log, "c")
    rows[:1] *= note(log, "d")
    table = {"k": x}
    table["k"] -= note(log, "e") + x
    y = x
    y += note(log, "f")
    return rows, table, y


@program(X, [])
def unpacking(x, log):
    a, (b, *c), d = x + 1, [note(log, "b"), note(log, "c"), x], note(log, "d")
    first, second = x
    e, f = [x.sum().item(), x.mean().item()]
    return a, b, c, d, first * e + second * f


@program(X, [])
def f_strings(x, log):
    n = note(log, "a")
    return f"{n!r:>5} {x.sum().item():.2f} {note(log, 'b')}" + f"{x.shape} {x.sum()}"


@program(X, [])
def lambdas_and_walrus(x, log):
    double = lambda v: v * note(log, "in lambda")  # noqa: E731
    if (y := double(x)) is not None and (n := note(log, "w")) > 1:
        return double(y) + n, [m := note(log, "x"), m]


@program(X, [])
def displays(x, log):
    return (
        [x, note(log, 1), *(note(log, 2), x)],
        {"a": note(log, 3), **{"b": note(log, 4)}},
        {note(log, 5), 7},
        (x + note(log, 6), slice(note(log, 7))),
    )


@program(X, [])
def list_comprehension(x, log):
    return [x + note(log, i) for i in range(3) if note(log, "test") % 2], x + 1


@program(X, [])
def dict_and_set_comprehensions(x, log):
    names = {f"n{note(log, i)}": x + i for i in range(2)}
    return (
        names,
        {note(log, i) for i in range(3)},
        {i: [note(log, j) for j in range(i)] for i in (1, 2)},
    )


@program(X, [])
def generator_expressions(x, log):
    return (
        sum(x * note(log, i) for i in range(3)),
        list(note(log, i) for i in range(2)),
        any(note(log, i) > 6 for i in range(5)),
        tuple(x + i for i in range(note(log, "n") % 3)),
        max(note(log, i) for i in range(2)),
    )


# ---- closures and scopes


@program(X, [])
def nonlocal_cells(x, log):
    count, last = 0, None

    def step(y):
        nonlocal count, last
        count += 1
        note(log, count)
        last = y * count
        count += 1
        return last

    a = step(x)
    count += 10
    note(log, count)
    b = step(a)
    return a, b, count, last, a is not last, b is last


@program(X, [])
def closure_returned_after_break(x, log):
    scale = x.sum()

    def f(y):
        return y * scale

    note(log, "a")
    scale = scale + 1
    note(log, "b")
    return f, f(x)


@program(X, [])
def closures_in_a_loop(x, log):
    functions = []
    for i in range(3):
        note(log, i)
        functions.append(lambda v, i=i: v + i)
    last = i
    return [function(x) for function in functions], (lambda: last)()


@program(X, [])
def cell_of_an_argument(x, log):
    def use():
        return x + 1

    note(log, "a")
    x = x * 2
    note(log, "b")
    return use()


@program(X, [])
def deleted_and_unbound(x, log):
    y = x + 1
    z = y * 2
    del y
    note(log, "a")
    try:
        return y  # noqa: F821
    except UnboundLocalError as error:
        note(log, str(error))
        y = z
    del z
    note(log, "b")
    return y, "z" in locals()


@program(X, [])
def unbound_after_break(x, log):
    if note(log, "a") > 1:
        y = x
    return x + y


@program(X, [])
def free_variable_unbound(x, log):
    def use():
        return y

    note(log, "a")
    if log == []:
        y = x
    return use()


# ---- callees


def leaf(x, log):
    y = x + 1
    note(log, "leaf")
    return y * 2


def middle(x, log):
    y = x - 3
    z = leaf(y, log) + y
    return z * y


def upper(x, log):
    rows = [x, middle(x + 5, log)]
    return rows[1] - rows[0]


@program(X, [], breaks=1, graphs=2, compilations=2)
def three_levels_deep(x, log):
    y = x * 7
    return upper(y, log) + y


@program(X, [], breaks=2, graphs=3, compilations=3)
def deep_twice(x, log):
    y = x * 7
    return upper(y, log) + middle(y + 1, log)


@program(X, [], breaks=1, graphs=2)
def tail_calls(x, log):
    return middle_tail(x * 3, log)


def middle_tail(x, log):
    return leaf(x + 1, log)


def recursive(x, n, log):
    if n == 0:
        note(log, "bottom")
        return x
    y = recursive(x + n, n - 1, log) * 2
    if n == 2:
        note(log, "on the way back")
    return y


@program(X, [])
def recursion(x, log):
    return recursive(x, 3, log)


class Thing:
    def __init__(self, x, log):
        self.x = x + 1
        note(log, "init")
        self.log = log
        self.y = self.x * 2

    @property
    def both(self):
        note(self.log, "property")
        return self.x + self.y

    @both.setter
    def both(self, value):
        note(self.log, "setter")
        self.x = value

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        note(self.log, name)
        return self.x * 3

    def __add__(self, other):
        note(self.log, "add")
        return self.x + other

    def __radd__(self, other):
        note(self.log, "radd")
        return other - self.x

    def __iadd__(self, other):
        note(self.log, "iadd")
        self.x = self.x + other
        return self

    def __getitem__(self, key):
        note(self.log, ("get", key))
        return self.x[key]

    def __setitem__(self, key, value):
        note(self.log, ("set", key))
        self.y = value

    def __delitem__(self, key):
        note(self.log, ("del", key))

    def __contains__(self, key):
        return note(self.log, key) > 3

    def __len__(self):
        return note(self.log, "len")

    def __bool__(self):
        return note(self.log, "bool") > 0

    def __call__(self, z):
        note(self.log, "call")
        return self.x + z

    def __eq__(self, other):
        note(self.log, "eq")
        return self is other

    def __lt__(self, other):
        note(self.log, "lt")
        return True

    def __neg__(self):
        note(self.log, "neg")
        return -self.x

    def __iter__(self):
        note(self.log, "iter")
        return iter([self.x, self.y])

    def __repr__(self):
        note(self.log, "repr")
        return "Thing"

    def method(self, z=2):
        y = self.x * z
        note(self.log, "method")
        self.z = y
        return y + 1

    @classmethod
    def make(cls, x, log):
        note(log, "make")
        return cls(x, log)

    @staticmethod
    def helper(x, log):
        note(log, "static")
        return x + 1


@program(X, [])
def construction(x, log):
    thing = Thing(x * 2, log)
    return thing.x + thing.y, thing


@program(X, [])
def properties_and_getattr(x, log):
    thing = Thing(x, log)
    a = thing.both + thing.missing
    thing.both = a + 1
    return thing.x, getattr(thing, "other"), getattr(thing, "__other__", 3), hasattr(thing, "more")


@program(X, [])
def operators(x, log):
    thing = Thing(x, log)
    a = thing + x
    b = 3 + thing
    thing += 1
    thing[0] = a
    del thing["k"]
    return a, b, thing[1], 2 in thing, len(thing), thing == thing, thing < thing, -thing, thing.y


@program(X, [])
def truth_and_call(x, log):
    thing = Thing(x, log)
    if thing:
        x = thing(x)
    while not thing:
        x = x * 100
    p, q = thing
    return x, p, q, f"{thing}", [row + 1 for row in thing], thing and x


@program(X, [])
def methods(x, log):
    thing = Thing.make(x, log)
    return thing.method() + thing.method(z=3) + Thing.helper(x, log) + thing.helper(x, log), thing.z


@program(X, [])
def super_calls(x, log):
    class Local(Thing):
        pass

    return Derived(x, log).method(5)


class Derived(Thing):
    def __init__(self, x, log):
        note(log, "before")
        super().__init__(x, log)
        note(log, "after")

    def method(self, z):
        return super().method(z) + super().both


@program(X, [])
def callbacks(x, log):
    return (
        sorted([3, 1, 2], key=lambda v: note(log, v) * 0 + v),
        list(map(lambda v: note(log, v) + v, [1, 2])),
        functools.reduce(lambda a, b: a + b * note(log, b), [1, 2, 3]),
        list(filter(lambda v: note(log, v) % 2, range(4))),
        max([1, 2], key=lambda v: note(log, v)),
        functools.partial(leaf, log=log)(x),
    )


# ---- mutation and aliasing


class Box:
    pass


@program(X, [], {"k": 1}, [])
def mutation_around_break(x, rows, table, log):
    rows.append(x + 1)
    table["new"] = rows
    del table["k"]
    note(log, len(rows))
    rows.append(x + 2)
    rows.pop(0)
    table["k"] = rows[0]
    note(log, list(table))
    rows.insert(0, rows)
    table.clear()
    table["end"] = x


@program(X, [])
def aliases_across_break(x, log):
    a = [x]
    b = a
    box = Box()
    box.items = a
    box.me = box
    table = {"a": a, "box": box}
    pair = (a, b)
    note(log, "x")
    b.append(x + 1)
    return a, b, box, table, pair, a is b, box.items is pair[0], box.me is box


@program(X, [])
def tensors_mutated(x, log):
    y = x
    z = x[0]
    x.add_(1)
    note(log, y.sum().item())
    z.mul_(2)
    note(log, y.sum().item())
    w = torch.zeros(2)
    v = w[:1]
    note(log, 0)
    v += 5
    return w, v, y is x, z


@program(X, Box(), [])
def attributes_around_break(x, box, log):
    box.a = x + 1
    box.b = [box.a]
    note(log, len(vars(box)))
    box.b.append(box.a * 2)
    del box.a
    note(log, hasattr(box, "a"))
    box.c = box.b
    return box.b[0]


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected, capsys):
    check(function, *args, **expected)


def test_variables_whose_names_no_program_can_spell():
    """pytest keeps the parts of an `assert` in variables like `@py_assert1`. They go into the
    resume function of a closure."""
    three = 3

    def function(x):
        assert x.sum() is not x
        return outside(x) * three

    assert any(not name.isidentifier() for name in function.__code__.co_varnames)
    check(function, X, breaks=1)
