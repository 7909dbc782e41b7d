"""Graph breaks in more of Python: patterns, classes, containers, iterators, protocols."""

import collections
import contextlib
import dataclasses
import functools
import io
import itertools

import pytest
import torch

from tests.support.against_eager import check
from tests.support.programs import Programs, fail, note

program = Programs(breaks=None)
X = torch.arange(6.0).reshape(2, 3)
W = torch.ones(2, 3, requires_grad=True)


@program(X, [])
def match_statement(x, log):
    out = []
    for item in ([1, 2], {"a": x}, (1, [2, 3]), "s", 5, None):
        match item:
            case [a, b] if note(log, "two") and isinstance(b, int):
                out.append(a + b)
            case {"a": t}:
                note(log, "map")
                out.append(t + 1)
            case (a, [b, *rest]):
                note(log, "nested")
                out.append((a, b, rest))
            case str() as s:
                out.append(s * note(log, "s"))
            case int(n):
                note(log, "int")
                out.append(n)
            case _:
                note(log, "other")
    return out


@dataclasses.dataclass
class Pair:
    a: torch.Tensor
    b: list = dataclasses.field(default_factory=list)

    def __post_init__(self):
        self.c = self.a + 1


@program(X, [])
def dataclass_across(x, log):
    p = Pair(x * 2)
    note(log, "a")
    q = dataclasses.replace(p, b=[p.c])
    note(log, "b")
    return p, q, dataclasses.astuple(p)[0] is p.a, p.b is q.b


Point = collections.namedtuple("Point", "x y")


@program(X, [])
def namedtuples(x, log):
    p = Point(x, [x])
    note(log, p._fields)
    q = p._replace(x=x + 1)
    note(log, "b")
    return p, q, q.y is p.y, isinstance(q, Point)


@program(X, [])
def deques_counters(x, log):
    d = collections.deque([1, 2, 3], maxlen=3)
    c = collections.Counter("aab")
    o = collections.OrderedDict(a=1, b=2)
    dd = collections.defaultdict(list)
    note(log, 1)
    d.append(4)
    c.update("b")
    o.move_to_end("a")
    dd["k"].append(x)
    note(log, 2)
    d.rotate(1)
    dd["j"].append(x + 1)
    return d, dict(c), o, dd, list(dd)


@program(X, [])
def decorators_inside(x, log):
    def deco(f):
        @functools.wraps(f)
        def inner(*a, **k):
            note(log, f.__name__)
            return f(*a, **k) + 1

        return inner

    @deco
    @deco
    def g(y, z=2):
        note(log, "g")
        return y * z

    return g(x), g(x, z=3), g.__name__


class Meta(type):
    def __call__(cls, *a):
        obj = super().__call__(*a)
        obj.extra = 1
        return obj


class WithMeta(metaclass=Meta):
    def __init__(self, log):
        note(log, "init")
        self.log = log


@program(X, [])
def metaclass(x, log):
    m = WithMeta(log)
    return m.extra, m.log is log, x + 1


class Desc:
    def __get__(self, obj, cls=None):
        if obj is None:
            return self
        note(obj.log, "get")
        return obj.v + 1

    def __set__(self, obj, v):
        note(obj.log, "set")
        obj.v = v


class HasDesc:
    d = Desc()

    def __init__(self, log):
        self.log = log
        self.v = 0


@program(X, [])
def descriptors(x, log):
    h = HasDesc(log)
    h.d = x
    h.d += 1
    return h.d, h.v


class Ctx(contextlib.ContextDecorator):
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        note(self.log, "in")
        return self

    def __exit__(self, *e):
        note(self.log, "out")
        return False


@program(X, [])
def context_decorator(x, log):
    @Ctx(log)
    def f(y):
        return y + 1

    return f(x)


@program(X, [])
def while_else_try(x, log):
    n = 0
    while n < 3:
        try:
            n += 1
            if n == 2:
                continue
            note(log, n)
        finally:
            note(log, "f")
            x = x + n
    else:
        note(log, "else")
    return x


@program(X, [])
def deep_finally(x, log):
    def f():
        try:
            try:
                note(log, 1)
                return x + 1
            finally:
                note(log, 2)
        finally:
            note(log, 3)
            x.add_(1)

    return f(), x


@program(X, [])
def loop_var_cells(x, log):
    fs = []
    for i in range(3):

        def f(y, k=i):
            return y + i + k

        fs.append(f)
        note(log, i)
    return [f(x) for f in fs]


@program(X, [])
def kwonly_and_defaults(x, log):
    def f(a, /, b=note(log, "default"), *args, c, d=x, **kw):
        note(log, sorted(kw))
        return a + b + c, d, args, kw

    return f(x, c=1), f(x, 2, 3, c=4, e=5)


@program(X, [])
def star_unpack_calls(x, log):
    def f(*a, **k):
        return len(a), sorted(k)

    args = [1, note(log, 2)]
    return f(*args, *[note(log, 3)], **{"q": 1}, **dict(w=note(log, 4)))


@program(X, [])
def chained_assign(x, log):
    a = b = [note(log, 1)]
    c, d = e = (note(log, 2), a)
    a += [x]
    return a, b, c, d, e, a is b is d


@program(X, [])
def slices(x, log):
    l = list(range(6))
    l[note(log, 1) : note(log, 2) + 2] = [x, x]
    del l[:: note(log, 3)]
    return l, x[:, note(log, 4) - 4 :]


@program(X, [])
def global_state(x, log):
    global COUNT
    COUNT = 1
    note(log, COUNT)
    COUNT += 1
    note(log, COUNT)
    del COUNT
    try:
        return COUNT
    except NameError as e:
        return str(e)


@program(X, [])
def imports_inside(x, log):
    import math

    note(log, math.pi > 3)
    import os.path as p
    from collections import OrderedDict as OD

    note(log, p.join("a", "b"))
    return x * math.pi, OD(a=1)


@program(X, [])
def string_building(x, log):
    s = f"{note(log, 1)!r:>4}|{x.shape[0]:03d}|{'n' if note(log, 2) > 5 else 'm'}"
    return s, "%s-%d" % (note(log, 3), 4), "{} {}".format(note(log, 4), x.dim())


@program(X, [])
def assert_breaks(x, log):
    if not x.sum() > 3:
        raise AssertionError
    note(log, 1)
    return x


@program(W, [])
def autograd(w, log):
    y = (w * 2).sum()
    note(log, 1)
    y.backward()
    note(log, 2)
    z = w.grad * 2
    return z, w.grad


@program(X, [])
def inplace_views(x, log):
    v = x.view(-1)
    note(log, 1)
    v[0] = 100
    note(log, x[0, 0].item())
    x.t_()
    note(log, tuple(x.shape))
    return v, x, v._base is x


@program(X, [])
def random_numbers(x, log):
    a = torch.rand(2)
    note(log, 1)
    b = torch.nn.functional.dropout(x, 0.5)
    note(log, 2)
    torch.manual_seed(5)
    c = torch.randn(2)
    return a, b, c


@program(X, [])
def nested_comprehensions(x, log):
    return [[x + note(log, (i, j)) for j in range(i)] for i in range(3)], {
        i: {j for j in range(note(log, i) % 3)} for i in range(2)
    }


@program(X, [])
def generator_expression_args(x, log):
    return (
        sum((x * note(log, i) for i in range(3)), start=x),
        dict((str(note(log, i)), i) for i in range(2)),
        sorted((note(log, -i) for i in range(3)), reverse=True),
    )


@program(X, [])
def iter_sentinel(x, log):
    it = iter(lambda: note(log, "s"), 3)
    return list(it), x


@program(X, [])
def itertools_suspended(x, log):
    a = itertools.chain([x], [x + 1])
    b = itertools.count(3)
    c = itertools.cycle("ab")
    d = itertools.islice(range(10), 2, 8, 2)
    e = itertools.accumulate([1, 2, 3])
    g = itertools.zip_longest([1], [2, 3])
    out = [next(i) for i in (a, b, c, d, e, g)]
    note(log, 1)
    out += [next(i) for i in (a, b, c, d, e, g)]
    note(log, 2)
    return out, next(a, None), next(c), list(d), list(e), list(g)


class Node:
    def __init__(self, v, n=None):
        self.v, self.next = v, n


@program(X, [])
def linked_list(x, log):
    head = None
    for i in range(3):
        head = Node(x + i, head)
        note(log, i)
    first = head
    while head.next:
        head = head.next
    head.next = first
    note(log, "cycle")
    return first, first.next.next.next is first


@program(X, [])
def recursion_with_breaks(x, log):
    def fib(n):
        if n < 2:
            note(log, n)
            return x * n
        return fib(n - 1) + fib(n - 2)

    return fib(4)


@program(X, [])
def mutual_recursion(x, log):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        note(log, n)
        return False if n == 0 else even(n - 1)

    return even(5), x + 1


@program(X, [])
def raise_in_with_in_for_in_try(x, log):
    try:
        for i in range(3):
            with Ctx(log):
                for j in range(2):
                    if i == 1:
                        fail(KeyError(j))
                    note(log, (i, j))
    except KeyError as e:
        note(log, repr(e))
    return x + i + j


@program(X, [])
def try_in_generator_in_with(x, log):
    def gen():
        for i in range(3):
            try:
                yield x + i
            finally:
                note(log, ("fin", i))

    with Ctx(log):
        return [y for y in gen()]


@program(X, [])
def class_attr_writes(x, log):
    class Box:
        n = 0

    Box.n = note(log, 1)
    b = Box()
    b.n += note(log, 2)
    return Box.n, b.n


@program(X, [])
def del_attr_item(x, log):
    class B:
        pass

    b = B()
    b.x = x
    d = {1: x, 2: x}
    note(log, 1)
    del b.x, d[1]
    note(log, 2)
    return vars(b), d


@program(X, [])
def complex_condition(x, log):
    if (x.sum() > 0 and note(log, 1) > 5) or (not x.sum() < 0 and (y := note(log, 2)) == 2):
        return x + y
    return x


@program(X, [])
def ternary_chain(x, log):
    return x if note(log, 1) > 1 else x + 1 if note(log, 2) > 2 else x + 2 if x.sum() > 0 else x + 3


@program(X, [])
def is_and_in(x, log):
    l = [x]
    note(log, 1)
    return x in [x], l[0] is x, note(log, 2) in log, None is not note(log, 3)


@program(X, [])
def two_exceptions(x, log):
    errors = []
    for f in (lambda: fail(ValueError("a")), lambda: {}["k"], lambda: x.nope):
        try:
            f()
        except (ValueError, KeyError) as e:
            errors.append(repr(e))
        except AttributeError as e:
            errors.append(type(e).__name__)
            note(log, 1)
    return errors


@program(X, [])
def swallowed_in_finally_return(x, log):
    def f():
        for i in range(3):
            try:
                fail(ValueError(i))
            finally:
                if i == 1:
                    return i
                continue

    return f(), x


@program(X, [])
def exception_in_else(x, log):
    try:
        try:
            note(log, 1)
        except ValueError:
            note(log, "no")
        else:
            fail(ValueError("in else"))
        finally:
            note(log, "fin")
    except ValueError as e:
        return str(e)


@program(X, [])
def nested_functions_defaults(x, log):
    def outer(n):
        acc = []

        def inner():
            acc.append(note(log, n))
            return acc

        return inner

    a, b = outer(1), outer(2)
    a()
    b()
    a()
    return a(), b()


@program(X, [])
def property_chain(x, log):
    class P:
        def __init__(s, v):
            s._v = v

        @property
        def v(s):
            note(log, "v")
            return s._v

        @v.setter
        def v(s, val):
            note(log, "set")
            s._v = val

        @functools.cached_property
        def c(s):
            note(log, "c")
            return s._v * 2

    p = P(x)
    p.v = p.v + p.c
    return p.v, p.c


@program(X, [])
def iter_protocol(x, log):
    class It:
        def __init__(s, n):
            s.n = n

        def __iter__(s):
            return s

        def __next__(s):
            if s.n == 0:
                raise StopIteration
            s.n -= 1
            note(log, s.n)
            return x + s.n

    return list(It(2)), [v for v in It(3)], sum(It(1)), next(It(1))


@program(X, [])
def getitem_protocol(x, log):
    class Seq:
        def __getitem__(s, i):
            note(log, i)
            if i > 2:
                raise IndexError(i)
            return i

    return list(Seq()), 1 in Seq(), [v for v in Seq()]


@program(X, [])
def eq_hash(x, log):
    class K:
        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            note(log, "eq")
            return s.v == o.v

        def __hash__(s):
            note(log, "hash")
            return hash(s.v)

    d = {K(1): x}
    return K(1) in d, K(2) in d, d[K(1)]


@program(X, [])
def sort_key_objects(x, log):
    class K:
        def __init__(s, v):
            s.v = v

        def __lt__(s, o):
            note(log, "lt")
            return s.v < o.v

    return [k.v for k in sorted([K(3), K(1), K(2)])], max([K(1), K(5)]).v


@program(X, [])
def numbers_from_breaks(x, log):
    n = note(log, 1)
    m = n * 2 + 1
    note(log, m)
    return x.repeat(m, n), torch.zeros(n + m), x[:n], float(n) / 2, n // 3, -n


@program(X, [])
def context_var_as(x, log):
    with open("/dev/null") as f, io.StringIO("a\nb") as s:
        lines = [note(log, line) for line in s]
    return lines, f.closed, x + 1


class Stores:
    """Whatever writes to it runs Python code with a break in its middle."""

    def __init__(self, log):
        vars(self).update(log=log, items={})

    def __setattr__(self, name, value):
        y = value * 2
        note(self.log, name)
        if value.shape[0] > 2:
            raise ValueError(name)
        super().__setattr__(name, y + 1)

    def __delattr__(self, name):
        value = vars(self)[name] + 1
        note(self.log, name)
        vars(self)["deleted"] = value * 2
        super().__delattr__(name)

    def __setitem__(self, key, value):
        y = value.sin()
        note(self.log, key)
        self.items["slice" if isinstance(key, slice) else key] = y.cos()

    def __delitem__(self, key):
        y = self.items.pop(key) * 3
        note(self.log, key)
        self.items["rest"] = y + 1

    @property
    def doubled(self):
        return self.items["doubled"]

    @doubled.setter
    def doubled(self, value):
        y = value * 2
        note(self.log, "doubled")
        self.items["doubled"] = y + 1


def stores(x, log):
    obj = Stores(log)
    obj.first = x + 1
    obj["key"] = x * 2
    obj[1:2] = x
    obj.doubled = x - 1
    del obj.first
    del obj["key"]
    return x + 4, obj.deleted, obj.items, len(log)


def stores_that_raise(x, log):
    obj = Stores(log)
    obj.fits = x
    try:
        obj.first, obj.second = x + 1, torch.cat([x, x])
    except ValueError as error:
        return x * 3, str(error), vars(obj)
    return x


program(X, [], breaks=7, graphs=8)(stores)
program(X, [], breaks=3, graphs=4)(stores_that_raise)


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)
