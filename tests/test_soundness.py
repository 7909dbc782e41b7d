"""Whatever a captured program assumed may change between calls: the compiled function notices.

These are the places where a compiler that guards too little gives silently wrong answers. Each
probe is compared with eager PyTorch, and the number of compilations says that nothing is guarded in
vain.
"""

import builtins
import collections
import types

import pytest
import torch
from torch import nn

from tests.support.side_by_side import Probes, outcome, side_by_side

probe = Probes()


# ---- hooks


def _hooked(compile, register):
    module = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    x = torch.randn(3, 2)
    compiled = compile(module)
    yield compiled(x)
    handle = register(module)
    yield compiled(x)
    handle.remove()
    yield compiled(x)


@probe(compilations=2)
def forward_hook(compile):
    yield from _hooked(compile, lambda m: m.register_forward_hook(lambda m, i, o: o + 1))


@probe(compilations=2)
def forward_pre_hook(compile):
    yield from _hooked(compile, lambda m: m.register_forward_pre_hook(lambda m, i: (i[0] * 2,)))


@probe(compilations=2)
def hook_of_a_submodule(compile):
    yield from _hooked(compile, lambda m: m[0].register_forward_hook(lambda m, i, o: o + 1))


@probe(compilations=2)
def global_forward_hook(compile):
    register = nn.modules.module.register_module_forward_hook
    yield from _hooked(compile, lambda m: register(lambda m, i, o: o + 1))


@probe(compilations=2)
def global_forward_pre_hook(compile):
    register = nn.modules.module.register_module_forward_pre_hook
    yield from _hooked(compile, lambda m: register(lambda m, i: (i[0] + 1,)))


@probe(compilations=2)
def hook_with_kwargs_that_always_runs(compile):
    yield from _hooked(
        compile,
        lambda m: m.register_forward_hook(
            lambda m, args, kwargs, out: out * 3, with_kwargs=True, always_call=True
        ),
    )


@probe(compilations=1)
def hook_that_is_there_from_the_start_and_keeps_state(compile):
    seen = []
    module = nn.Linear(2, 2)
    module.register_forward_hook(lambda m, i, o: seen.append(o.sum()))
    compiled = compile(module)
    for _ in range(3):
        yield compiled(torch.ones(2)), list(seen)


# ---- the same object twice


@probe(compilations=2)
def same_tensor_twice(compile):
    def f(a, b):
        a.add_(1)
        return a * b

    compiled = compile(f)
    a, b = torch.ones(3), torch.ones(3)
    yield compiled(a, b), a, b
    yield compiled(a, a), a
    yield compiled(a, b), a, b
    yield compiled(b, b), b


@probe(compilations=2)
def same_parameter_twice(compile):
    def f(p, q):
        with torch.no_grad():
            p.mul_(2)
        return (p + q).sum()

    compiled = compile(f)
    p, q = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    yield compiled(p, q)
    yield compiled(p, p)
    yield compiled(q, p)
    yield p, q


@probe(compilations=2)
def same_list_twice(compile):
    def f(a, b):
        a.append(torch.ones(1))
        return len(b)

    compiled = compile(f)
    yield compiled([], [])
    a = []
    yield compiled(a, a), a


@probe(compilations=2)
def same_dict_in_two_attributes(compile):
    class Holder:
        pass

    def f(h):
        h.a["k"] = 1
        return h.b.get("k")

    compiled = compile(f)
    h = Holder()
    h.a, h.b = {}, {}
    yield compiled(h), h.a, h.b
    h.b = h.a = {}
    yield compiled(h), h.a, h.b


@probe(compilations=2)
def same_object_twice(compile):
    class Box:
        def __init__(self, v):
            self.v = v

    def f(a, b):
        a.v = 5
        return b.v

    compiled = compile(f)
    yield compiled(Box(1), Box(1))
    box = Box(1)
    yield compiled(box, box)


@probe(compilations=1)
def tensors_that_share_memory(compile):
    def f(a, b):
        a.add_(1)
        return b * 2

    compiled = compile(f)
    base = torch.zeros(4)
    yield compiled(torch.zeros(2), torch.zeros(2))
    yield compiled(base[:2], base[:2]), base
    yield compiled(base[:2], base[2:]), base


@probe(compilations=2)
def identity_of_tensors(compile):
    compiled = compile(lambda a, b: a + 1 if a is b else a - 1)
    a, b = torch.ones(2), torch.ones(2)
    for pair in ((a, b), (a, a), (b, a), (b, b)):
        yield compiled(*pair)


@probe(compilations=2)
def identity_of_objects(compile):
    compiled = compile(lambda a, b, x: x + 1 if a is b else x - 1)
    a, b, x = object(), object(), torch.ones(1)
    for pair in ((a, b), (a, a), (b, a), (b, b)):
        yield compiled(*pair, x)


@probe(compilations=2)
def identity_of_lists(compile):
    compiled = compile(lambda a, b, x: x + 1 if a is not b else x - 1)
    a, b, x = [], [], torch.ones(1)
    for pair in ((a, b), (a, a), (b, a), (b, b)):
        yield compiled(*pair, x)


MARKER = object()


@probe(compilations=2)
def identity_with_a_global(compile):
    compiled = compile(lambda a, x: x + 1 if a is MARKER else x - 1)
    x = torch.ones(1)
    for a in (MARKER, object(), MARKER, object()):
        yield compiled(a, x)


@probe(compilations=2)
def identity_with_none(compile):
    compiled = compile(lambda x, mask: x if mask is None else x * mask)
    x = torch.ones(2)
    yield compiled(x, None)
    yield compiled(x, torch.zeros(2))
    yield compiled(x, None)


@probe()
def list_that_grows_while_iterated(compile):
    def f(x, items):
        for item in items:
            if len(items) < 5:
                items.append(item + 1)
            x = x + item
        return x

    compiled = compile(f)
    items = [1]
    yield compiled(torch.ones(1), items), items
    yield compiled(torch.ones(1), items), items


@probe(compilations=3)
def list_whose_length_matters_grows_between_calls(compile):
    items = []

    def f(x):
        items.append(x.sum())
        return len(items)

    compiled = compile(f)
    for _ in range(3):
        yield compiled(torch.ones(2)), list(items)


# ---- attributes of modules


class Net(nn.Module):
    scale = 2.0

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(2, 2)
        self.act = nn.ReLU()
        self.w = nn.Parameter(torch.ones(2))
        self.register_buffer("b", torch.ones(2))
        self.flag = True
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        x = self.drop(self.act(self.lin(x))) * self.w * self.scale
        if self.b is not None:
            x = x + self.b
        return x if self.flag else -x

    def helper(self, x):
        return x


def _changed(compile, *changes):
    module = Net().eval()
    compiled = compile(module)
    x = torch.ones(3, 2)
    yield compiled(x)
    for change in changes:
        change(module)
        yield outcome(compiled, x)


@probe(compilations=1)
def parameter_replaced_by_one_alike(compile):
    yield from _changed(compile, lambda m: setattr(m, "w", nn.Parameter(torch.full((2,), 3.0))))


@probe(compilations=2)
def parameter_replaced_by_another_shape(compile):
    yield from _changed(compile, lambda m: setattr(m, "w", nn.Parameter(torch.full((3, 2), 3.0))))


@probe(compilations=2)
def data_replaced_by_another_shape(compile):
    yield from _changed(compile, lambda m: setattr(m.w, "data", torch.full((3, 2), 3.0)))


@probe(compilations=2)
def data_replaced_by_another_dtype(compile):
    yield from _changed(compile, lambda m: setattr(m.w, "data", torch.ones(2).double()))


@probe(compilations=1)
def data_changed_in_place(compile):
    yield from _changed(compile, lambda m: m.w.data.fill_(9))


@probe(compilations=2)
def requires_grad_toggled(compile):
    module = Net().eval()
    compiled = compile(module)
    x = torch.ones(3, 2)
    for flag in (True, False, True):
        module.requires_grad_(flag)
        yield compiled(x).requires_grad


@probe(compilations=2)
def submodule_replaced_by_another_class(compile):
    yield from _changed(compile, lambda m: setattr(m, "act", nn.Tanh()))


@probe(compilations=1)
def submodule_replaced_by_one_alike(compile):
    yield from _changed(compile, lambda m: setattr(m, "lin", nn.Linear(2, 2)))


@probe(compilations=2)
def submodule_without_bias(compile):
    yield from _changed(compile, lambda m: setattr(m, "lin", nn.Linear(2, 2, bias=False)))


@probe(compilations=2)
def buffer_set_to_none_and_back(compile):
    yield from _changed(
        compile, lambda m: setattr(m, "b", None), lambda m: setattr(m, "b", torch.ones(2))
    )


@probe(compilations=2)
def plain_attribute_replaced(compile):
    yield from _changed(
        compile, lambda m: setattr(m, "flag", False), lambda m: setattr(m, "flag", True)
    )


@probe(compilations=2)
def instance_attribute_shadows_class_attribute(compile):
    yield from _changed(compile, lambda m: setattr(m, "scale", 5.0), lambda m: delattr(m, "scale"))


@probe(compilations=2)
def method_of_the_instance_replaced(compile):
    yield from _changed(
        compile,
        lambda m: setattr(m, "forward", types.MethodType(lambda self, x: x * 7, m)),
        lambda m: delattr(m, "forward"),
    )


@probe()
def attribute_deleted(compile):
    yield from _changed(compile, lambda m: delattr(m, "w"))


@probe(compilations=2)
def train_and_eval(compile):
    module = Net().eval()
    compiled = compile(module)
    x = torch.ones(3, 2)
    for mode in (False, True, False, True):
        module.train(mode)
        torch.manual_seed(1)
        yield compiled(x)


@probe(compilations=2)
def class_of_the_instance_assigned(compile):
    class A:
        def go(self, x):
            return x + 1

    class B:
        def go(self, x):
            return x + 2

    compiled = compile(lambda o, x: o.go(x))
    o, x = A(), torch.ones(1)
    yield compiled(o, x)
    o.__class__ = B
    yield compiled(o, x)
    o.__class__ = A
    yield compiled(o, x)


@probe(compilations=2)
def subclass_instance_in_place_of_the_base(compile):
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 3

    compiled = compile(lambda o, x: o.go(x))
    x = torch.ones(1)
    for cls in (A, B, A, B):
        yield compiled(cls(), x)


@probe(compilations=2)
def list_subclass_in_place_of_a_list(compile):
    class Doubling(list):
        def __getitem__(self, i):
            return super().__getitem__(i) * 2

    compiled = compile(lambda items: items[0] + 1)
    x = torch.ones(1)
    for cls in (list, Doubling, list):
        yield compiled(cls([x]))


# ---- classes and functions


@probe(compilations=3)
def method_monkeypatched(compile):
    class A:
        def go(self, x):
            return x + 1

    compiled = compile(lambda o, x: o.go(x))
    o, x = A(), torch.ones(1)
    old = A.go
    yield compiled(o, x)
    A.go = lambda self, x: x - 1
    yield compiled(o, x)
    o.go = lambda x: x * 10
    yield compiled(o, x)
    del o.go
    A.go = old
    yield compiled(o, x)


@probe(compilations=2)
def method_of_a_base_class_monkeypatched(compile):
    class Base:
        def go(self, x):
            return x + 1

    class A(Base):
        pass

    compiled = compile(lambda o, x: o.go(x))
    o, x = A(), torch.ones(1)
    yield compiled(o, x)
    A.go = lambda self, x: x - 1
    yield compiled(o, x)
    del A.go
    yield compiled(o, x)


@probe(compilations=2)
def class_attribute_changed(compile):
    class A:
        k = 1

    compiled = compile(lambda o, x: x + o.k)
    o, x = A(), torch.ones(1)
    yield compiled(o, x)
    A.k = 2
    yield compiled(o, x)
    A.k = 1
    yield compiled(o, x)


@probe(compilations=2)
def class_attribute_of_the_class_itself(compile):
    class A:
        k = 1

    compiled = compile(lambda x: x + A.k)
    x = torch.ones(1)
    yield compiled(x)
    A.k = 2
    yield compiled(x)


@probe(compilations=2)
def getattr_added_to_a_class(compile):
    class A:
        pass

    compiled = compile(lambda o, x: x + getattr(o, "k", 0))
    o, x = A(), torch.ones(1)
    yield compiled(o, x)
    A.__getattr__ = lambda self, name: 5
    yield compiled(o, x)


@probe(compilations=2)
def property_replaced(compile):
    class A:
        @property
        def k(self):
            return 1

    compiled = compile(lambda o, x: x + o.k)
    o, x = A(), torch.ones(1)
    yield compiled(o, x)
    A.k = property(lambda self: 3)
    yield compiled(o, x)


@probe(compilations=2)
def forward_of_a_module_class_replaced(compile):
    class M(nn.Module):
        def forward(self, x):
            return x + 1

    compiled = compile(M())
    x = torch.ones(1)
    yield compiled(x)
    M.forward = lambda self, x: x + 2
    yield compiled(x)


@probe(compilations=2)
def code_of_the_function_replaced(compile):
    def f(x):
        return x + 1

    def g(x):
        return x * 5

    compiled = compile(f)
    yield compiled(torch.ones(1))
    f.__code__ = g.__code__
    yield compiled(torch.ones(1))


@probe(compilations=2)
def code_of_a_callee_replaced(compile):
    def callee(x):
        return x + 1

    def other(x):
        return x * 5

    compiled = compile(lambda x: callee(x))
    yield compiled(torch.ones(1))
    callee.__code__ = other.__code__
    yield compiled(torch.ones(1))


@probe(compilations=3)
def defaults_of_a_callee_replaced(compile):
    def callee(x, k=1, *, m=2):
        return x * m + k

    compiled = compile(lambda x: callee(x))
    yield compiled(torch.ones(1))
    callee.__defaults__ = (10,)
    yield compiled(torch.ones(1))
    callee.__kwdefaults__ = {"m": 7}
    yield compiled(torch.ones(1))


@probe()
def defaults_of_a_callee_removed(compile):
    def callee(x, k=1, *, m=2):
        return x * m + k

    compiled = compile(lambda x: callee(x))
    yield compiled(torch.ones(1))
    callee.__kwdefaults__ = None
    yield outcome(compiled, torch.ones(1))
    callee.__kwdefaults__ = {"m": 3}
    callee.__defaults__ = None
    yield outcome(compiled, torch.ones(1))


@probe(compilations=2)
def defaults_of_the_function_replaced(compile):
    def f(x, k=1, *, m=2):
        return x * m + k

    compiled = compile(f)
    yield compiled(torch.ones(1))
    f.__defaults__ = (10,)
    yield compiled(torch.ones(1))


@probe(compilations=2)
def mutable_default_changed(compile):
    def callee(x, table={"k": 1}):  # noqa: B006
        return x + table["k"]

    compiled = compile(lambda x: callee(x))
    yield compiled(torch.ones(1))
    callee.__defaults__[0]["k"] = 5
    yield compiled(torch.ones(1))


# ---- names

SETTING = 1


@probe(compilations=2)
def global_rebound(compile):
    global SETTING
    compiled = compile(lambda x: x + SETTING)
    yield compiled(torch.ones(1))
    SETTING = 4
    yield compiled(torch.ones(1))
    SETTING = 1
    yield compiled(torch.ones(1))


@probe()
def global_deleted(compile):
    global SETTING
    compiled = compile(lambda x: x + SETTING)
    yield compiled(torch.ones(1))
    del SETTING
    yield outcome(compiled, torch.ones(1))
    SETTING = 1
    yield compiled(torch.ones(1))


@probe(compilations=2)
def builtin_shadowed_by_a_global(compile):
    compiled = compile(lambda x: x + len([1, 2]))
    yield compiled(torch.ones(1))
    globals()["len"] = lambda items: 100
    try:
        yield compiled(torch.ones(1))
    finally:
        del globals()["len"]
    yield compiled(torch.ones(1))


@probe(compilations=2)
def builtin_replaced(compile):
    compiled = compile(lambda x: x + abs(-2))
    yield compiled(torch.ones(1))
    old = builtins.abs
    builtins.abs = lambda value: 100
    try:
        yield compiled(torch.ones(1))
    finally:
        builtins.abs = old
    yield compiled(torch.ones(1))


@probe(compilations=2)
def function_of_a_module_replaced(compile):
    module = types.ModuleType("settings")
    module.scale = lambda x: x * 2
    compiled = compile(lambda x: module.scale(x))
    yield compiled(torch.ones(1))
    module.scale = lambda x: x * 3
    yield compiled(torch.ones(1))


@probe(compilations=2)
def cell_content_changed(compile):
    k = 1

    def change(value):
        nonlocal k
        k = value

    compiled = compile(lambda x: x + k)
    for value in (1, 2, 1):
        change(value)
        yield compiled(torch.ones(1))


@probe(compilations=2)
def cell_of_a_callee_changed(compile):
    def make(k):
        def add(x):
            return x + k

        return add

    compiled = compile(lambda f, x: f(x))
    for value in (1, 2, 1):
        yield compiled(make(value), torch.ones(1))


# ---- containers


@probe(compilations=3)
def dict_keys_added_and_removed(compile):
    compiled = compile(lambda d: sum(d.values()))
    x = torch.ones(1)
    for keys in ("ab", "abc", "a", "ab"):
        yield compiled({key: x for key in keys})


@probe(compilations=2)
def dict_keys_reordered(compile):
    compiled = compile(lambda d: torch.cat(list(d.values())))
    x, y = torch.ones(1), torch.zeros(1)
    yield compiled({"a": x, "b": y})
    yield compiled({"b": y, "a": x})
    yield compiled({"a": y, "b": x})


@probe(compilations=2)
def ordered_dict_moved_to_end(compile):
    compiled = compile(lambda d: torch.cat(list(d.values())))
    table = collections.OrderedDict(a=torch.ones(1), b=torch.zeros(1))
    yield compiled(table)
    table.move_to_end("a")
    yield compiled(table)
    table.move_to_end("b")
    yield compiled(table)


@probe(compilations=2)
def key_that_was_missing(compile):
    compiled = compile(lambda d, x: x + d.get("k", 1))
    yield compiled({}, torch.ones(1))
    yield compiled({"k": 9}, torch.ones(1))
    yield compiled({"other": 9}, torch.ones(1))


@probe()
def key_that_was_there_and_not_needed(compile):
    def f(table, box, x):
        try:
            table["k"], box.k, SETTING
        except (KeyError, AttributeError, NameError) as error:
            return x + 10, type(error)
        return x

    class Box:
        pass

    compiled = compile(f)
    x, box = torch.ones(1), Box()
    box.k = 1
    yield compiled({"k": 1}, box, x)
    yield compiled({}, box, x)
    del box.k
    yield compiled({"k": 1}, box, x)


@probe()
def slot_and_cell_that_were_there_and_not_needed(compile):
    class Slotted:
        __slots__ = ("a",)

    k = 1

    def f(o, x):
        try:
            o.a, k
        except (AttributeError, NameError) as error:
            return x + 10
        return x

    compiled = compile(f)
    o, x = Slotted(), torch.ones(1)
    o.a = 1
    yield compiled(o, x)
    del k
    yield compiled(o, x)
    k = 1
    yield compiled(o, x)
    del o.a
    yield compiled(o, x)


@probe(compilations=2)
def set_changed(compile):
    compiled = compile(lambda s, x: x + 1 if 3 in s else x - 1)
    x = torch.ones(1)
    yield compiled({1, 2}, x)
    yield compiled({1, 3}, x)
    yield compiled({1, 2}, x)


@probe(compilations=2)
def item_of_a_nested_list_changed(compile):
    state = {"layers": [{"k": 1}]}
    compiled = compile(lambda x: x * state["layers"][0]["k"])
    yield compiled(torch.ones(1))
    state["layers"][0]["k"] = 3
    yield compiled(torch.ones(1))


@probe(compilations=2)
def deque_contents_changed(compile):
    queue = collections.deque([1, 2])
    compiled = compile(lambda x: x * queue[0])
    yield compiled(torch.ones(1))
    queue.rotate(1)
    yield compiled(torch.ones(1))
    queue.rotate(1)
    yield compiled(torch.ones(1))


# ---- the mode PyTorch is in


@probe(compilations=2)
def grad_mode(compile):
    compiled = compile(lambda x: x * 2)
    x = torch.ones(1, requires_grad=True)
    yield compiled(x).requires_grad
    with torch.no_grad():
        yield compiled(x).requires_grad
    yield compiled(x).requires_grad
    with torch.no_grad():
        yield compiled(x).requires_grad


@probe(compilations=2)
def inference_mode(compile):
    compiled = compile(lambda x: x * 2)
    x = torch.ones(1)
    yield compiled(x).is_inference()
    with torch.inference_mode():
        yield compiled(x).is_inference()
    yield compiled(x).is_inference()


@probe(compilations=3)
def autocast(compile):
    compiled = compile(lambda x: x @ x)
    x = torch.ones(2, 2)
    yield compiled(x).dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield compiled(x).dtype
        with torch.autocast("cpu", dtype=torch.float16):
            yield compiled(x).dtype
        yield compiled(x).dtype
    yield compiled(x).dtype


@probe(compilations=2)
def default_dtype(compile):
    compiled = compile(lambda: torch.zeros(2) + 1.5)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            yield compiled().dtype
    finally:
        torch.set_default_dtype(torch.float32)


@probe()
def default_device(compile):
    compiled = compile(lambda: torch.zeros(2))
    yield compiled().device
    with torch.device("meta"):
        yield compiled().device
    yield compiled().device


# ---- tensors


@probe()
def dtype_device_stride_layout(compile):
    compiled = compile(lambda x: x.t() + 1)
    for x in (
        torch.ones(2, 2),
        torch.ones(2, 2, dtype=torch.float64),
        torch.ones(2, 2, device="meta"),
        torch.ones(2, 2).t(),
        torch.ones(4, 2)[::2],
        torch.ones(2, 2),
    ):
        result = compiled(x)
        yield result.dtype, result.device, result.stride()
        yield result.tolist() if x.device.type == "cpu" else 0


@probe(compilations=2)
def conjugate_view(compile):
    compiled = compile(lambda x: (x * 2, x.is_conj()))
    x = torch.tensor([1 + 2j])
    yield compiled(x)
    yield compiled(x.conj())
    yield compiled(x)


@probe(compilations=2)
def negative_view(compile):
    compiled = compile(lambda x: (x * 2, x.is_neg()))
    x = torch.tensor([1 + 2j])
    yield compiled(x.imag)
    yield compiled(x.conj().imag)


@probe(compilations=2)
def leaf_and_not_leaf(compile):
    compiled = compile(lambda x: (x.is_leaf, x * 2))
    x = torch.ones(1, requires_grad=True)
    yield [v if type(v) is bool else v.detach() for v in compiled(x)]
    yield [v if type(v) is bool else v.detach() for v in compiled(x * 1)]


@probe(breaks=None)
def sparse_in_place_of_dense(compile):
    compiled = compile(lambda x: x.sum())
    x = torch.eye(2)
    yield compiled(x)
    yield compiled(x.to_sparse())
    yield compiled(x)


class Tagged(torch.Tensor):
    pass


@probe(breaks=None)
def tensor_subclass_in_place_of_a_tensor(compile):
    compiled = compile(lambda x: x + 1)
    x = torch.ones(2)
    yield compiled(x)
    yield type(compiled(x.as_subclass(Tagged))) is Tagged
    yield compiled(x)


@probe(compilations=2)
def batch_of_another_size(compile):
    compiled = compile(lambda x: x / x.shape[0])
    for n in (2, 3, 2):
        yield compiled(torch.ones(n))


# ---- numbers


@probe(compilations=5)
def kinds_of_numbers(compile):
    compiled = compile(lambda x, k: (x * k, type(k)))
    x = torch.ones(2, dtype=torch.int64)
    for k in (1, True, 1.0, 1 + 0j, 2, 1, True, 1.0):
        yield compiled(x, k)


@probe(compilations=2)
def signed_zeros(compile):
    compiled = compile(lambda x, k: torch.copysign(x, torch.tensor(k)))
    for k in (0.0, -0.0, 0.0, -0.0):
        yield compiled(torch.ones(1), k)


@probe(compilations=2)
def not_a_number(compile):
    compiled = compile(lambda x, k: x + 1 if k != k else x)
    for k in (float("nan"), 1.0, float("nan"), float("inf") - float("inf")):
        yield compiled(torch.ones(1), k)


@probe(compilations=2)
def equal_strings_are_the_same(compile):
    compiled = compile(lambda x, mode: x + 1 if mode == "up" else x - 1)
    for mode in ("up", "".join(["u", "p"]), "down"):
        yield compiled(torch.ones(1), mode)


# ---- less common things that a program can depend on


@probe(compilations=2)
def bases_of_a_class_changed(compile):
    class A:
        pass

    class B:
        def go(self, x):
            return x + 1

    class C:
        def go(self, x):
            return x - 1

    class D(B, A):
        pass

    compiled = compile(lambda o, x: (o.go(x), isinstance(o, B)))
    o, x = D(), torch.ones(1)
    yield compiled(o, x)
    D.__bases__ = (C, A)
    yield compiled(o, x)
    D.__bases__ = (B, A)
    yield compiled(o, x)


@probe()
def class_of_isinstance_registered(compile):
    import abc

    class Shape(abc.ABC):
        pass

    class Square:
        pass

    compiled = compile(lambda o, x: x + 1 if isinstance(o, Shape) else x - 1)
    o, x = Square(), torch.ones(1)
    yield compiled(o, x)
    Shape.register(Square)
    yield compiled(o, x)


@probe(compilations=2)
def name_of_a_function(compile):
    import functools

    def named(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x)

        return wrapper

    @named
    def up(x):
        return x + 1

    @named
    def down(x):
        return x + 1

    compiled = compile(lambda f, x: (f.__name__, f.__qualname__, f.__doc__, f(x)))
    x = torch.ones(1)
    yield compiled(up, x)[::3]
    yield compiled(down, x)[::3]
    yield compiled(up, x)[::3]


@probe(compilations=2)
def attribute_of_a_function(compile):
    def g(x):
        return x + 1

    compiled = compile(lambda x: g(x) * getattr(g, "scale", 1))
    x = torch.ones(1)
    yield compiled(x)
    g.scale = 5
    yield compiled(x)


@probe()
def cell_that_was_empty(compile):
    def make():
        def f(x):
            try:
                return x + k
            except NameError:
                return x

        def bind(value):
            nonlocal k
            k = value

        if False:
            k = 0
        return f, bind

    f, bind = make()
    compiled = compile(f)
    x = torch.ones(1)
    yield compiled(x)
    bind(3)
    yield compiled(x)


@probe(compilations=2)
def slot_that_was_empty(compile):
    class Slotted:
        __slots__ = ("a",)

    compiled = compile(lambda o, x: x + getattr(o, "a", 0))
    o, x = Slotted(), torch.ones(1)
    yield compiled(o, x)
    o.a = 5
    yield compiled(o, x)
    del o.a
    yield compiled(o, x)


@probe(compilations=3)
def ranges_that_are_equal(compile):
    compiled = compile(lambda r, x: (x + len(r), r.stop, r.start))
    x = torch.ones(1)
    for r in (range(0, 3, 2), range(0, 4, 2), range(0), range(0, 3, 2)):
        yield compiled(r, x)


class Metres(float):
    unit = "m"


class Name(str):
    pass


class Index(int):
    def __add__(self, other):
        return int(self) + other + 100


@probe(breaks=None)
def subclasses_of_numbers_and_text(compile):
    compiled = compile(lambda x, k: (x * k, type(k), k + 1))
    x = torch.ones(1)
    for k in (1.0, Metres(1.0), Metres(2.0), 1, Index(1), 1.0):
        yield compiled(x, k)
    compiled = compile(lambda x, name: (x + len(name), name, type(name)))
    for name in ("a", Name("a"), Name("bb")):
        yield compiled(x, name)


@probe(breaks=None)
def numbers_of_numpy(compile):
    numpy = pytest.importorskip("numpy")
    compiled = compile(lambda x, k: x * k)
    x = torch.ones(2)
    for k in (numpy.float64(2.0), 2.0, numpy.float32(3.0), numpy.int64(4), numpy.float64(2.0)):
        yield compiled(x, k)


@probe()
def module_replaced_in_sys_modules(compile):
    import sys

    first, second = types.ModuleType("probe_settings"), types.ModuleType("probe_settings")
    first.k, second.k = 1, 2

    def f(x):
        import probe_settings

        return x + probe_settings.k

    compiled = compile(f)
    try:
        for module in (first, second, first):
            sys.modules["probe_settings"] = module
            yield compiled(torch.ones(1))
    finally:
        del sys.modules["probe_settings"]


@probe(compilations=2)
def operation_of_torch_replaced(compile):
    compiled = compile(lambda x: torch.nn.functional.relu(x) + torch.add(x, 1))
    x = torch.ones(1)
    yield compiled(x)
    old = torch.add
    torch.add = lambda x, y: x - y
    try:
        yield compiled(x)
    finally:
        torch.add = old
    yield compiled(x)


@probe(compilations=2)
def method_of_tensors_replaced(compile):
    compiled = compile(lambda x: x.relu() + 1)
    x = torch.ones(1)
    yield compiled(x)
    torch.Tensor.relu = lambda self: self * 10
    try:
        yield compiled(x)
    finally:
        del torch.Tensor.relu
    yield compiled(x)


@probe(compilations=2)
def dictionary_of_an_object_replaced(compile):
    class Box:
        pass

    compiled = compile(lambda o, x: x + o.k)
    o, x = Box(), torch.ones(1)
    o.k = 1
    yield compiled(o, x)
    o.__dict__ = {"k": 7}
    yield compiled(o, x)


@probe(breaks=None)
def lazy_modules(compile):
    module = nn.Sequential(nn.LazyLinear(2), nn.ReLU())
    compiled = compile(module)
    for _ in range(3):
        yield compiled(torch.ones(1, 3)).shape


@probe(compilations=2)
def dunder_method_added(compile):
    class A:
        def __init__(self, k):
            self.k = k

    compiled = compile(lambda a, b, x: x + (a == b))
    a, b, x = A(1), A(1), torch.ones(1)
    yield compiled(a, b, x)
    A.__eq__ = lambda self, other: self.k == other.k
    yield compiled(a, b, x)


@probe(compilations=2)
def truth_of_an_object(compile):
    class A:
        pass

    compiled = compile(lambda a, x: x + 1 if a else x - 1)
    a, x = A(), torch.ones(1)
    yield compiled(a, x)
    A.__len__ = lambda self: 0
    yield compiled(a, x)


@probe(compilations=2)
def staticmethod_replaced(compile):
    class A:
        @staticmethod
        def k():
            return 1

        @classmethod
        def name(cls):
            return cls.__name__

    compiled = compile(lambda a, x: (x + a.k(), a.name()))
    a, x = A(), torch.ones(1)
    yield compiled(a, x)
    A.k = staticmethod(lambda: 5)
    yield compiled(a, x)


@probe(compilations=2)
def descriptor_becomes_a_data_descriptor(compile):
    class Constant:
        def __get__(self, obj, cls):
            return 1

    class A:
        k = Constant()

    compiled = compile(lambda a, x: x + a.k)
    a, x = A(), torch.ones(1)
    a.__dict__["k"] = 5
    yield compiled(a, x)
    Constant.__set__ = lambda self, obj, value: None
    yield compiled(a, x)


@probe(compilations=2)
def partial_application_changed(compile):
    import functools

    def g(x, k, scale=1):
        return x * scale + k

    compiled = compile(lambda p, x: p(x))
    x = torch.ones(1)
    yield compiled(functools.partial(g, k=1), x)
    yield compiled(functools.partial(g, k=2), x)
    yield compiled(functools.partial(g, k=1), x)


@probe(compilations=3)
def named_tuple_fields(compile):
    Pair = collections.namedtuple("Pair", "a b")

    compiled = compile(lambda p: p.a * p[1])
    x = torch.ones(1)
    yield compiled(Pair(x, 2))
    yield compiled(Pair(x, 3))
    yield outcome(compiled, (x, 3))
    yield compiled(Pair(x, 2))


@probe(compilations=2)
def argument_of_another_kind(compile):
    compiled = compile(lambda x, y: x + y[0] if isinstance(y, tuple) else x + y)
    x = torch.ones(1)
    yield compiled(x, (x, x))
    yield compiled(x, x)
    yield compiled(x, (x, x))


@probe(compilations=2)
def environment_variable(compile):
    import os

    compiled = compile(lambda x: x + 1 if os.environ.get("PLIANT_PROBE") else x - 1)
    x = torch.ones(1)
    os.environ.pop("PLIANT_PROBE", None)
    yield compiled(x)
    os.environ["PLIANT_PROBE"] = "1"
    try:
        yield compiled(x)
    finally:
        del os.environ["PLIANT_PROBE"]
    yield compiled(x)


@probe(compilations=2)
def autocast_dtype_while_it_is_off(compile):
    def f(x):
        with torch.autocast("cpu"):
            return x @ x

    compiled = compile(f)
    x = torch.ones(2, 2)
    yield compiled(x).dtype
    old = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        yield compiled(x).dtype
    finally:
        torch.set_autocast_dtype("cpu", old)
    yield compiled(x).dtype


@pytest.mark.parametrize(("program", "expected"), probe.params)
def test_sound(program, expected) -> None:
    side_by_side(program, **expected)
