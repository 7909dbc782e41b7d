"""What a captured program does to the world: the same writes, in an order that can be seen, to
the same objects."""

import collections

import pytest
import torch
from torch import nn

from tests.support.side_by_side import Probes, outcome, side_by_side

probe = Probes()
X = torch.arange(4.0)


# ---- containers


@probe(compilations=1)
def list_argument(compile):
    def f(items, x):
        items.append(x + 1)
        items.insert(0, "first")
        items.extend([x, x])
        items += [3]
        items[1] = items[-1]
        del items[2]
        return items.pop()

    items = [1, 2]
    yield compile(f)(items, X), items


@probe(compilations=1)
def append_assumes_no_length(compile):
    losses = []

    def f(x):
        losses.append(x.sum())
        losses.append("x")
        return x * 2

    compiled = compile(f)
    for _ in range(4):
        yield compiled(X), list(losses)


@probe(compilations=1)
def append_then_read(compile):
    def f(items, x):
        items.append(x)
        items.append(len(items))
        return items[-1] + items[0], items[1] is x

    compiled = compile(f)
    for items in ([5], [6]):
        yield compiled(items, X), items
        break


@probe(compilations=1)
def extend_assumes_no_length(compile):
    def f(items, x):
        items.extend((x, x + 1))
        items += [1]
        return x

    compiled = compile(f)
    for items in ([], [1], [1, 2]):
        yield compiled(items, X), items


@probe(compilations=1)
def deque_appended(compile):
    queue = collections.deque([1, 2])

    def f(x):
        queue.append(x)
        return x + 1

    compiled = compile(f)
    for _ in range(3):
        yield compiled(X), list(queue)


@probe(breaks=None)
def deque_with_a_bound(compile):
    def f(queue, x):
        queue.append(x)
        queue.appendleft(1)
        queue.rotate(1)
        return queue.popleft()

    queue = collections.deque([1, 2], maxlen=3)
    yield compile(f)(queue, X), queue


@probe(compilations=1)
def list_sorted_reversed_cleared(compile):
    def f(a, b, c, x):
        a.sort(key=lambda v: -v)
        b.reverse()
        c.clear()
        c.append(x)

    lists = [1, 3, 2], [1, 2, 3], [7, 8]
    yield compile(f)(*lists, X), lists


@probe(compilations=1)
def dict_argument(compile):
    def f(table, x):
        table["new"] = x + 1
        table["old"] = "changed"
        del table["gone"]
        table.setdefault("other", []).append(x)
        table.update(a=1, b=2)
        return table.pop("b")

    table = {"gone": 1, "old": 2, "kept": 3}
    yield compile(f)(table, X), table, list(table)


@probe(compilations=1)
def dict_order_after_delete_and_insert(compile):
    def f(table, x):
        value = table.pop("a")
        table["a"] = value
        table["c"] = x

    table = {"a": 1, "b": 2}
    yield compile(f)(table, X), list(table.items())


@probe(compilations=1)
def dict_of_unknown_size(compile):
    def f(table, x):
        table["k"] = x

    compiled = compile(f)
    for table in ({}, {"other": 1}, {"k": 2, "z": 1}):
        yield compiled(table, X), list(table)


@probe(compilations=1)
def ordered_dict(compile):
    def f(table, x):
        table.move_to_end("a")
        table["c"] = x
        return table.popitem(last=False)

    table = collections.OrderedDict(a=1, b=2)
    yield compile(f)(table, X), table


@probe(compilations=1)
def default_dict(compile):
    def f(table, x):
        table["k"].append(x)
        table["k"].append(1)
        return len(table["none"])

    table = collections.defaultdict(list)
    yield compile(f)(table, X), table


@probe(compilations=1)
def counter(compile):
    def f(table, x):
        table["a"] += 2
        table["b"] += 1
        return x + table["a"]

    table = collections.Counter("aab")
    yield compile(f)(table, X), table


@probe(compilations=1)
def set_argument(compile):
    def f(items, x):
        items.add(7)
        items.discard(1)
        items |= {8, 9}
        return x + len(items)

    items = {1, 2}
    yield compile(f)(items, X), items


@probe(compilations=1)
def nested_containers(compile):
    def f(tree, x):
        tree["a"][0]["b"].append(x)
        tree["a"].append({"c": [x]})
        tree["n"] = tree["a"][-1]["c"]

    tree = {"a": [{"b": []}]}
    compiled = compile(f)
    yield compiled(tree, X), tree
    yield tree["n"] is tree["a"][-1]["c"]


LOG = []
COUNT = 0


@probe()
def globals_written(compile):
    global COUNT, LOG
    LOG, COUNT = [], 0

    def f(x):
        global COUNT
        COUNT += 1
        LOG.append(COUNT)
        return x * COUNT

    compiled = compile(f)
    for _ in range(2):
        yield compiled(X), COUNT, list(LOG)


@probe(compilations=1)
def global_created_and_deleted(compile):
    def f(x):
        global MADE_HERE
        MADE_HERE = x + 1

    def g(x):
        global MADE_HERE
        y = MADE_HERE * 2
        del MADE_HERE
        return y

    compile(f)(X)
    yield globals()["MADE_HERE"]
    yield g(X), "MADE_HERE" in globals()


@probe()
def nonlocal_written(compile):
    total, seen = 0, []

    def f(x):
        nonlocal total
        total += 1
        seen.append(x)
        return x * total

    compiled = compile(f)
    for _ in range(3):
        yield compiled(X), total, len(seen)


@probe(compilations=1)
def nonlocal_tensor(compile):
    state = torch.zeros(4)

    def f(x):
        nonlocal state
        state = state * 0.5 + x
        return state.sum()

    compiled = compile(f)
    for _ in range(3):
        yield compiled(X), state


# ---- objects


class Box:
    def __init__(self, value=0):
        self.value = value


@probe(compilations=1)
def attributes_set_and_deleted(compile):
    def f(box, x):
        box.value = x + 1
        box.other = [x, box]
        del box.gone
        setattr(box, "by name", 3)

    box = Box()
    box.gone = 1
    yield compile(f)(box, X), list(vars(box)), box.value, box.other[1] is box


@probe(compilations=1)
def slots(compile):
    class Slotted:
        __slots__ = ("a", "b")

    def f(s, x):
        s.a = x + s.a
        del s.b

    s = Slotted()
    s.a, s.b = 1, 2
    yield compile(f)(s, X), s.a, hasattr(s, "b")


@probe(compilations=1)
def property_setter(compile):
    class P:
        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, value):
            self._v = value * 2

    def f(p, x):
        p.v = x
        return p.v + 1

    p = P()
    yield compile(f)(p, X), vars(p)


@probe(compilations=1)
def setattr_hook(compile):
    class Logged:
        def __init__(self):
            object.__setattr__(self, "log", [])

        def __setattr__(self, name, value):
            self.log.append(name)
            object.__setattr__(self, name, value)

    def f(o, x):
        o.a = x
        o.b = x + 1

    o = Logged()
    yield compile(f)(o, X), vars(o)


@probe(compilations=1)
def objects_made_and_returned(compile):
    def f(x):
        box = Box(x + 1)
        box.self = box
        return box, [box, box.value], {"k": box}

    box, items, table = compile(f)(X)
    yield type(box) is Box, box.value, box.self is box, items[0] is box, table["k"] is box
    yield items[1] is box.value


@probe(compilations=1)
def object_stored_in_an_object(compile):
    def f(box, x):
        box.value = Box(x * 2)
        box.again = box.value
        return box.value

    box = Box()
    made = compile(f)(box, X)
    yield made is box.value, made is box.again, made.value


@probe(compilations=1)
def function_made_and_stored(compile):
    def f(box, x):
        y = x + 1

        def inner(z):
            return y + z

        box.call = inner
        return inner

    box = Box()
    made = compile(f)(box, X)
    yield made is box.call, made(1)


@probe(breaks=None)
def class_attribute_written(compile):
    class Counted:
        made = 0

    def f(x):
        Counted.made += 1
        return x + Counted.made

    compiled = compile(f)
    for _ in range(2):
        yield compiled(X), Counted.made


# ---- modules and buffers


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 0
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.steps += 1
        self.mean = self.mean * 0.9 + x.detach() * 0.1
        self.last = x
        return x - self.mean


@probe(compilations=1)
def buffers_updated(compile):
    module = Counting()
    compiled = compile(module)
    for _ in range(3):
        yield compiled(X), dict(module.named_buffers()), module.last is X, list(vars(module))


@probe(compilations=2)
def count_of_calls(compile):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        def forward(self, x):
            self.count += 1
            return x * self.count

    module = M()
    compiled = compile(module)
    for _ in range(3):
        yield compiled(X), module.count


@probe()
def batch_norm_statistics(compile):
    module = nn.BatchNorm1d(3)
    compiled = compile(module)
    for step in range(3):
        yield compiled(torch.randn(5, 3)), dict(module.named_buffers())
    module.eval()
    yield compiled(torch.randn(5, 3)), dict(module.named_buffers())


@probe(breaks=None)
def buffer_and_parameter_registered(compile):
    class M(nn.Module):
        def forward(self, x):
            if not hasattr(self, "cache"):
                self.register_buffer("cache", x * 2)
                self.register_parameter("p", None)
                self.sub = nn.Identity()
            return x + self.cache

    module = M()
    compiled = compile(module)
    for _ in range(2):
        yield compiled(X), dict(module.named_buffers()), list(module._parameters)
        yield list(module._modules)


@probe(compilations=2)
def attribute_cached_on_the_first_call(compile):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = None

        def forward(self, x):
            if self.cache is None:
                self.cache = x.cos()
            return x + self.cache

    module = M()
    compiled = compile(module)
    first = None
    for _ in range(3):
        yield compiled(X)
        yield first is None or module.cache is first
        first = module.cache


# ---- tensors


@probe(compilations=1)
def tensors_in_place(compile):
    def f(x, y):
        x.add_(1)
        x[0] = 7
        x[1:3].mul_(2)
        y.copy_(x * 2)
        y.t_()
        z = x.view(2, 2)
        z[1, 1] = -1
        return z

    x, y = torch.zeros(4), torch.zeros(1, 4)
    yield compile(f)(x, y), x, y


@probe(compilations=1)
def out_arguments(compile):
    def f(x, out):
        torch.add(x, 1, out=out)
        return out

    out = torch.empty(4)
    result = compile(f)(X, out)
    yield result is out, out


@probe(compilations=1)
def views_of_arguments(compile):
    def f(x):
        head = x[:2]
        head += 1
        return head, x.view(2, 2), x.detach()

    x = torch.zeros(4)
    results = compile(f)(x)
    yield results, x
    x.fill_(5)
    yield results


@probe(compilations=1)
def argument_as_it_is(compile):
    def f(x, items, box):
        return x, items, box, x.contiguous(), (x.to(x.dtype), items)

    items, box = [1], Box()
    result = compile(f)(X, items, box)
    yield result[0] is X, result[1] is items, result[2] is box, result[3] is X
    yield result[4][0] is X, result[4][1] is items


@probe(compilations=1)
def in_place_returns_the_argument(compile):
    def f(x):
        return x.add_(1), x.relu_()

    x = torch.zeros(3)
    result = compile(f)(x)
    yield result[0] is x, result[1] is x, x


@probe(compilations=1)
def gradients(compile):
    def f(x):
        old = x.grad
        x.grad = None
        return old * 2

    x = torch.ones(2, requires_grad=True)
    compiled = compile(f)
    for _ in range(2):
        x.grad = torch.ones(2)
        yield compiled(x), x.grad


@probe(compilations=1)
def gradient_assigned(compile):
    def f(x, y):
        x.grad = y * 2
        return x.grad + 1

    x = torch.ones(2, requires_grad=True)
    compiled = compile(f)
    yield compiled(x, torch.ones(2)), x.grad


@probe()
def attributes_of_tensors(compile):
    def f(x):
        x.tag = "seen"
        y = x + 1
        y.tag = ["new", x]
        return y

    x = torch.ones(2)
    y = compile(f)(x)
    yield x.tag, y.tag[0], y.tag[1] is x


@probe(compilations=2)
def attribute_of_a_tensor_read(compile):
    def f(x):
        return x + 1 if getattr(x, "special", False) else x - 1

    x = torch.ones(2)
    compiled = compile(f)
    yield compiled(x)
    x.special = True
    yield compiled(x)
    del x.special
    yield compiled(x)


@probe()
def requires_grad_set(compile):
    def f(x):
        x.requires_grad_()
        return x * 2

    x = torch.ones(2)
    y = compile(f)(x)
    yield x.requires_grad, y.requires_grad


@probe(breaks=None)
def data_assigned(compile):
    def f(x, y):
        x.data = y * 2
        return x + 1

    x = torch.ones(2)
    yield compile(f)(x, torch.full((2,), 3.0)), x


# ---- aliases in results


@probe(compilations=1)
def results_that_share(compile):
    def f(x):
        items = [x + 1]
        table = {"a": items, "b": items}
        return items, items, table, (items,)

    a, b, table, (c,) = compile(f)(X)
    yield a is b, table["a"] is a, table["b"] is a, c is a


@probe(compilations=1)
def results_with_cycles(compile):
    def f(x):
        items = [x]
        items.append(items)
        table = {}
        table["self"] = table
        table["items"] = items
        box = Box(table)
        table["box"] = box
        return items, table, box

    items, table, box = compile(f)(X)
    yield items[1] is items, table["self"] is table, table["items"] is items
    yield table["box"] is box, box.value is table, items[0] is X


@probe(compilations=1)
def cycle_through_an_argument(compile):
    def f(items, x):
        inner = [items, x]
        items.append(inner)
        inner.append(inner)
        return inner

    items = []
    inner = compile(f)(items, X)
    yield items[0] is inner, inner[0] is items, inner[2] is inner


@probe(compilations=1)
def results_that_alias_arguments(compile):
    def f(a, b, x):
        a.append(b)
        b.append(x)
        return [a, b, a[0]]

    a, b = [], []
    result = compile(f)(a, b, X)
    yield result[0] is a, result[1] is b, result[2] is b, a[0] is b, b[0] is X


@probe(compilations=1)
def equal_constants(compile):
    def f(x):
        t = (1, 2)
        return t, t, x

    a, b, _ = compile(f)(X)
    yield a is b


# ---- iterators and random numbers


@probe(breaks=None)
def iterator_from_outside(compile):
    def f(it, x):
        return x + next(it)

    compiled = compile(f)
    for it in (iter([1, 2, 3]), iter(range(5)), (n * n for n in range(3, 9))):
        yield compiled(it, X), compiled(it, X), list(it)


@probe(compilations=1)
def iterators_made_and_returned(compile):
    def f(x):
        it = iter([x, x + 1, x + 2])
        next(it)
        pairs = enumerate(["a", "b"], 5)
        next(pairs)
        return it, pairs, zip([1, 2], [x, x])

    it, pairs, zipped = compile(f)(X)
    yield list(it), list(pairs), list(zipped)


@probe()
def generators_made_and_returned(compile):
    def count(x):
        for n in range(3):
            yield x + n

    def f(x):
        running = count(x)
        first = next(running)
        return first, running, count(x)

    first, running, fresh = compile(f)(X)
    yield first, list(running), list(fresh)


@probe(compilations=1)
def random_state(compile):
    def f(x):
        torch.rand(3)  # drawn and not used: the next draw must still be the second one
        return torch.rand_like(x) + torch.randn(4) + nn.functional.dropout(x, 0.5)

    compiled = compile(f)
    torch.manual_seed(5)
    yield compiled(X), compiled(X)
    yield torch.rand(2), torch.get_rng_state()


@probe(compilations=1, breaks=None)
def effects_before_an_exception(compile):
    def f(items, box, x):
        items.append(x)
        box.value = 1
        x.add_(1)
        raise ValueError("after")

    items, box, x = [], Box(), torch.zeros(2)
    yield outcome(compile(f), items, box, x), len(items), box.value, x


@probe(breaks=None)
def effects_before_an_operation_that_fails(compile):
    def f(items, x, y):
        items.append(1)
        z = x + 1
        items.append(2)
        return z @ y

    items = []
    yield outcome(compile(f), items, torch.zeros(2), torch.zeros(3)), items


@probe(breaks=None)
def effects_around_a_break(compile):
    import pliant

    def f(items, box, x):
        items.append(x)
        box.value = items
        pliant.graph_break()
        items.append(box.value is items)
        box.value = len(items)
        return x + box.value

    items, box = [], Box()
    yield compile(f)(items, box, X), items, box.value


@pytest.mark.parametrize(("program", "expected"), probe.params)
def test_effects(program, expected) -> None:
    side_by_side(program, **expected)
