"""Classes with a `__torch_function__`: tensor subclasses, and objects that are no tensors."""

import logging

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils.checkpoint import checkpoint

import pliant
from tests.support.against_eager import check
from tests.support.closeness import exact

LOG: list = []


class Copied(torch.Tensor):
    """Can be copied by the tests without asking its own class."""

    def __deepcopy__(self, memo):
        with torch._C.DisableTorchFunction():
            data = self.detach().clone()
            made = torch.Tensor._make_subclass(type(self), data, self.requires_grad)
            made.__dict__.update(self.__dict__)
            return made


class Sub(Copied):
    pass


class AddIsMul(Copied):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add or func is torch.add:
            func = torch.mul
        return super().__torch_function__(func, types, args, kwargs or {})


class Logging(Copied):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Tagged(Copied):
    @staticmethod
    def __new__(cls, data, tag=None):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, tag=None):
        self.tag = tag

    @property
    def doubled(self):
        return self * 2

    @property
    def total(self):
        return self.sum()

    @total.setter
    def total(self, value):
        self.kept = value

    def plus_tag(self):
        return self + self.tag


class First(Copied):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(("first", tuple(kind.__name__ for kind in types)))
        if Second in types and cls is First:
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Second(Copied):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        LOG.append(("second", tuple(kind.__name__ for kind in types)))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class OfFirst(First):
    pass


class Parameter(nn.Parameter):
    def total(self):
        return self.sum()


class Operators(Copied):
    def __add__(self, other):
        return torch.sub(self, other)

    def __radd__(self, other):
        return 7

    def __getitem__(self, index):
        return super().__getitem__(index) * 10

    def __len__(self):
        return 42


class Attributes(Copied):
    def __getattr__(self, name):
        if name.startswith("x_"):
            return name
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, f"{name}_set", value)


class History(Copied):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        source = next((arg for arg in args if isinstance(arg, cls)), None)
        if isinstance(out, cls) and hasattr(source, "history"):
            out.history = [*source.history, func.__name__]
        return out


class Wrapped:
    def __init__(self, data, name=None):
        self.data, self.name = data, name

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        names = tuple(arg.name for arg in args if hasattr(arg, "name") and isinstance(arg, Wrapped))
        plain = [getattr(arg, "data", arg) if isinstance(arg, Wrapped) else arg for arg in args]
        return Wrapped(func(*plain, **(kwargs or {})), names[0])


TABLE = {}


class Diagonal:
    def __init__(self, size, value):
        self.size, self.value = size, value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        known = all(issubclass(kind, torch.Tensor | Diagonal) for kind in types)
        if func not in TABLE or not known:
            return NotImplemented
        return TABLE[func](*args, **(kwargs or {}))


TABLE[torch.mean] = lambda diagonal: diagonal.value / diagonal.size
TABLE[torch.add] = lambda one, other: one.value * torch.eye(one.size) + other


def x():
    return torch.arange(6.0).reshape(2, 3)


def of(cls, data=None):
    return torch.Tensor._make_subclass(cls, x() if data is None else data)


def uses(s, y):
    functions = y * s, torch.cat([s, y]), F.relu(s), F.softmax(s, -1), s.sum(0), torch.max(s, 0)
    parts = s[0], s.split(1), [row * 2 for row in s], s.view(-1), s.T, torch.stack((s, s))
    facts = s.shape, s.dtype, s.device, len(s), s.requires_grad, s.is_leaf, s.ndim, s.size(0)
    return functions, parts, facts, s


def makes(y):
    s = y.as_subclass(Sub)
    t = s.sin()
    return (
        s,
        t,
        Sub(y) * 2,
        Sub([1.0, 2.0]),
        type(s)(y),
        torch.Tensor(y),
        s.as_subclass(torch.Tensor),
    )


def asks(s):
    kinds = isinstance(s, torch.Tensor), isinstance(s, Sub), torch.is_tensor(s), type(s) is Sub
    return kinds, s.__class__, issubclass(type(s), torch.Tensor), type(s + 1) is Sub


def replaces(s):
    return s + s, torch.add(s, 1), s - 1, F.gelu(s)


def logs(s):
    LOG.clear()
    arithmetic = s + 1, 1 - s, 2 * s, 2 / s, s**2, 2**s, s // 2, s % 2, -s, abs(s), s @ s.T
    comparisons = s == s, s < 1, 1 < s
    others = s.relu(), F.relu(s), torch.stack([s, s]), s[0], s.shape, s.dtype, len(s), s.split(1)
    return arithmetic, comparisons, others, list(LOG)


def orders(first, second, derived):
    LOG.clear()
    both = torch.add(first, second), torch.add(second, first), second + first
    with_derived = torch.add(first, derived), first + derived, first < derived, derived + first
    return both, with_derived, list(LOG)


def has_members(y):
    s = Tagged(y, tag=3)
    s.total = 5
    return s.doubled, s.plus_tag(), s.total, s.kept, s, s.tag


def writes_members(s):
    s.tag = s.tag + 1
    s.fresh = s * 2
    return s.doubled, s.plus_tag(), s.tag, hasattr(s, "nothing"), vars(s)


def own_operators(s):
    return s + 1, 1 + s, s[0], len(s), s * 2, torch.ones(2, 3) + s


def own_attributes(s):
    s.a = 1
    return s.x_something, s.a_set, s + 1


def in_place(s, y):
    s.add_(1)
    s += 1
    s[0] = 5
    y += s
    torch.add(s, y, out=y)
    return s.mul_(2) is s, type(y)


def turned_off(s):
    with torch._C.DisableTorchFunctionSubclass():
        plain = s + s
        kind = type(plain) is torch.Tensor
    return plain, kind, s + s


def history(y):
    s = y.as_subclass(History)
    s.history = []
    r = (s * 2).sin() + 1
    return r, r.history


def not_tensors(w, y):
    made = Wrapped(y, "inside")
    results = torch.add(w, y), torch.mul(y, w), y + w, torch.matmul(made, y.T)
    return [(r.data, r.name) for r in results]


def diagonals(d, y):
    return torch.mean(d), torch.add(d, torch.ones(3, 3))


def parameters(p):
    made = Parameter(torch.ones(3))
    return (
        p.total(),
        p * 2,
        type(p) is Parameter,
        made,
        made.total(),
        isinstance(made, nn.Parameter),
    )


def made_inside(y):
    class Cosine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.sin:
                return torch.cos(args[0].as_subclass(torch.Tensor))
            return super().__torch_function__(func, types, args, kwargs or {})

    s = y.as_subclass(Cosine)
    return torch.sin(s), (s + 1).as_subclass(torch.Tensor), isinstance(s + 1, Cosine)


def nested(items, table):
    items.append(items[0] + items[1])
    table["b"] = table["a"] + 1
    return torch.stack(items[:2])


def scaled(a, by=1):
    if has_torch_function((a,)):
        return handle_torch_function(scaled, (a,), a, by=by)
    return a * by


def asks_by_hand(s, y):
    LOG.clear()
    return scaled(s, 2), scaled(y, 2), list(LOG)


class Described(Copied):
    """Gives descriptions of its own of itself, as classes of images do."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == torch.Tensor.T.__get__ or func in (torch.Tensor.mT.__get__,):
            return "turned"
        return super().__torch_function__(func, types, args, kwargs)

    @property
    def shape(self):
        with torch._C.DisableTorchFunctionSubclass():
            return super().shape

    @property
    def ndim(self):
        return "many"

    def sum(self):
        return "much"


def describes_itself(s):
    return s.shape, s.ndim, s.T, s.mT, s.sum(), torch.sum(s), s.dtype


def without_wrapping(s):
    default = torch.overrides.get_default_nowrap_functions()
    return torch.Tensor.grad.__get__ in default, torch.add in default, s.grad


PROGRAMS = {
    uses: lambda: (of(Sub), x()),
    makes: lambda: (x(),),
    asks: lambda: (of(Sub),),
    replaces: lambda: (of(AddIsMul),),
    logs: lambda: (of(Logging),),
    orders: lambda: (of(First), of(Second), of(OfFirst)),
    has_members: lambda: (x(),),
    writes_members: lambda: (Tagged(x(), tag=1),),
    own_operators: lambda: (of(Operators),),
    own_attributes: lambda: (of(Attributes),),
    in_place: lambda: (of(Sub), x()),
    turned_off: lambda: (of(AddIsMul),),
    history: lambda: (x(),),
    not_tensors: lambda: (Wrapped(x(), "outside"), x()),
    diagonals: lambda: (Diagonal(3, 2.0), x()),
    parameters: lambda: (Parameter(torch.ones(3)),),
    made_inside: lambda: (x(),),
    nested: lambda: ([of(Sub), x()], {"a": of(AddIsMul)}),
    asks_by_hand: lambda: (of(Logging), x()),
    describes_itself: lambda: (of(Described),),
    without_wrapping: lambda: (of(Sub),),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph(program, dynamic):
    check(program, *PROGRAMS[program](), dynamic=dynamic)


def test_modules_on_subclasses():
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Dropout(0.5))
    check(lambda network, s: network(s), network, of(Sub))


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", of(Sub))
        self.weight = Parameter(torch.ones(3))

    def forward(self, y):
        self.seen = self.seen + 1
        return y + self.seen, y * self.weight + self.weight.total()


def test_subclasses_in_modules():
    check(lambda module, y: module(y), Holder(), x())


def test_gradients_pass_through():
    eager, compiled = of(Sub).requires_grad_(), of(Sub).requires_grad_()
    function = lambda s: (s * s).sin().sum()  # noqa: E731
    function(eager).backward()
    pliant.compile(function, fullgraph=True)(compiled).backward()
    with torch._C.DisableTorchFunction():
        torch.testing.assert_close(compiled.grad, eager.grad, **exact())


def test_a_break_keeps_class_and_attributes():
    def function(s):
        t = s * 2
        t.tag = 1
        pliant.graph_break()
        return t + 1, t

    check(function, of(Sub), breaks=1)


def test_a_break_keeps_it_turned_off():
    def function(y):
        s = y.as_subclass(AddIsMul)
        with torch._C.DisableTorchFunctionSubclass():
            before = s + s
            pliant.graph_break()
            after = s + s
        return before, after, s + s

    check(function, x(), breaks=None)


def test_the_graph_has_plain_tensors():
    graphs = []

    def backend(graph, examples):
        graphs.append([type(example) for example in examples])
        return graph.forward

    compiled = pliant.compile(lambda s: s + 1, backend=backend)
    assert type(compiled(of(Sub))) is Sub
    assert graphs == [[torch.Tensor]]


def test_class_and_plain_tensor_are_two_compilations():
    compiled = pliant.compile(lambda s: s + 1, fullgraph=True)
    for cls in (Sub, torch.Tensor, AddIsMul, Sub):
        assert type(compiled(of(cls))) is cls


def test_another_torch_function_is_another_compilation():
    class Changing(torch.Tensor):
        pass

    compiled = pliant.compile(torch.sin, fullgraph=True)
    wrapper = pliant.compile(lambda s: torch.sin(s), fullgraph=True)
    assert type(wrapper(of(Changing))) is Changing
    Changing.__torch_function__ = classmethod(lambda cls, func, types, args=(), kwargs=None: 42)
    assert wrapper(of(Changing)) == 42
    assert compiled(of(Changing)) == 42


def same(one, other):
    assert type(one) is type(other)
    with torch._C.DisableTorchFunction():
        assert torch.equal(one, other)


def test_attributes_that_change_between_calls():
    class Scaling(torch.Tensor):
        factor = 2

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            result = super().__torch_function__(func, types, args, kwargs)
            return result * cls.factor if func is torch.Tensor.add else result

    def function(s):
        return (s + 1) * s.tag

    compiled = pliant.compile(function, fullgraph=True)
    s = of(Scaling)
    for factor, tag in ((2, 3), (5, 3), (5, 4), (5, torch.ones(3))):
        Scaling.factor, s.tag = factor, tag
        same(compiled(s), function(s))


def test_tensors_that_share_memory():
    def function(one, other):
        one.add_(1)
        return other * 2

    def pairs():
        s = of(Sub)
        with torch._C.DisableTorchFunction():
            views = [s, s.view(-1).as_subclass(Sub), s.as_subclass(torch.Tensor)]
        return [(s, other) for other in (*views, of(Sub))]

    compiled = pliant.compile(function, fullgraph=True)
    for given, expected in zip(pairs(), pairs(), strict=True):
        same(compiled(*given), function(*expected))
        same(given[0], expected[0])


def test_gradients_of_a_subclass_written_in_place():
    def function(s):
        s.mul_(2)
        return s.sum()

    gradients = []
    for call in (function, pliant.compile(function, fullgraph=True)):
        leaf = torch.ones(3, requires_grad=True)
        call((leaf * 3).as_subclass(Sub)).backward()
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


def test_a_graph_that_fails_on_subclasses():
    def function(s, index):
        s.add_(1)
        try:
            return s[index] + 1
        except IndexError:
            return "outside"

    check(function, of(AddIsMul), torch.tensor([9]), breaks=None)


def test_all_decline():
    class Declining(Copied):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    check(lambda s: torch.add(s, 1), of(Declining), breaks=None)


def test_text_of_arguments_breaks_the_graph():
    class Verbose(Copied):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is not torch.Tensor.__repr__:
                logging.info(f"{func.__name__}: {args!r}")
            return super().__torch_function__(func, types, args, kwargs or {})

    check(lambda s: s + 1, of(Verbose), breaks=None)


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s.requires_grad_() * 2,
        lambda s: torch.Tensor._make_subclass(Sub, s, True) * 2,
        lambda s: s.item() if s.numel() == 1 else s.tolist(),
    ],
)
def test_what_python_does(function):
    check(function, of(Sub), breaks=None)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        return a * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pliant.allow_in_graph
def taken_whole(a):
    return a + a


@pytest.mark.parametrize(
    "function",
    [
        Double.apply,
        taken_whole,
        torch.func.vmap(lambda row: row.sin()),
        lambda s: checkpoint(lambda a: a.sin() * 2, s, use_reentrant=False),
    ],
)
def test_functions_that_are_taken_whole(function):
    check(lambda s: (function(s), s + 1), of(AddIsMul), breaks=None)


class Dispatching(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __deepcopy__(self, memo):
        return Dispatching(self.inner.clone())

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [arg.inner if isinstance(arg, Dispatching) else arg for arg in args]
        result = func(*plain, **(kwargs or {}))
        return Dispatching(result) if isinstance(result, torch.Tensor) else result


def test_classes_with_a_torch_dispatch_are_left_to_python():
    def function(given, y):
        made = Dispatching(y + 1)
        return (given * 2).inner, (made * 3).inner + 1

    check(function, Dispatching(x()), x(), breaks=None)


@pytest.mark.own_default
@pytest.mark.parametrize("cls", [Sub, AddIsMul])
@pytest.mark.parametrize("dynamic", [True, None])
def test_generated_code_for_other_sizes(cls, dynamic):
    def function(a):
        return (a * 2 + 1).sum(0), a.size(0)

    compiled = pliant.compile(function, dynamic=dynamic)
    for size in (3, 5, 7, 2):
        a = torch.arange(2.0 * size).reshape(size, 2).as_subclass(cls)
        result, expected = compiled(a), function(a)
        assert type(result[0]) is cls and result[1] == expected[1]
        assert torch.equal(*[t.as_subclass(torch.Tensor) for t in (result[0], expected[0])])
