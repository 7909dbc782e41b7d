"""What is written down about operators, against PyTorch: schemas, tags, and what happens when each
is run.

PyTorch's database of operators is run eagerly. Every operator that is called on the way, composed
ones before they are taken apart, is observed: what memory it returns, what it writes, whether it
draws random numbers, and whether it raises for data that is out of the ordinary.
"""

import functools
import itertools
import math
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.base.operators import RECORDS, AssertedTwice, load, record_of, register
from pliant.fake.overload import OverloadKind, describe
from pliant.fake.raising import never
from tests.operators.database import op_db

load()
OVERLOADS = {name: record for name, record in RECORDS.items() if name.count(".") == 2}
PACKETS = {name: record for name, record in RECORDS.items() if name.count(".") == 1}


def overload(name):
    namespace, packet, which = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which)


def having(field):
    return [name for name, record in OVERLOADS.items() if getattr(record, field)]


def writes(func):
    return [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]


def returns_alias(func):
    return any(r.alias_info is not None for r in func._schema.returns)


# ---- against schemas and tags


@pytest.mark.parametrize("name", OVERLOADS)
def test_operators_exist(name):
    assert str(overload(name)) == name


@pytest.mark.parametrize("name", PACKETS)
def test_packets_exist_and_have_facts_alone(name):
    namespace, packet = name.split(".")
    assert getattr(getattr(torch.ops, namespace), packet).overloads()
    assert {f for f, value in vars(RECORDS[name]).items() if value} <= FACTS_OF_PACKETS


FACTS_OF_PACKETS = {"name", "raises", "draws_integers", "expensive", "fuses"}
VIEW_FIELDS = ("view", "index_map", "inverse", "injective", "rearranges", "covers", "is_part")
# PyTorch composes it, so a view arrives as those that it is made of.
COMPOSED_VIEWS = {"aten.unflatten.int"}


@pytest.mark.parametrize("field", VIEW_FIELDS)
def test_rules_of_views_are_for_views(field):
    for name in having(field):
        func = overload(name)
        is_view = returns_alias(func) and not writes(func)
        assert is_view or RECORDS[name].undeclared_view or name in COMPOSED_VIEWS, name


@pytest.mark.parametrize("name", having("reads_layout"))
def test_what_reads_layouts_reads_no_elements(name):
    func = overload(name)
    given = {"size": [2, 3], "stride": [3, 1], "fill_value": 7}
    args = [given[a.name] for a in func._schema.arguments[1:] if a.name in given]
    numbers = [torch.full((4, 3), number) for number in (1.0, math.nan)]
    same = [func(t, *args) for t in numbers]
    if "empty" not in name:
        assert torch.equal(*same)
    assert [t.stride() for t in same] == [same[0].stride()] * 2


def test_undeclared_views_are_not_declared():
    for name in having("undeclared_view"):
        assert not returns_alias(overload(name)), name


def test_lowerings_are_of_operators_that_write_nothing():
    for field in ("lowering", "decomposition", "opaque", "factors", "writes_target", "reads_whole"):
        assert not [name for name in having(field) if writes(overload(name))], field


def test_functional_forms_write_nothing_and_take_the_same():
    for name in having("functional"):
        func, functional = overload(name), RECORDS[name].functional
        assert writes(func) and not writes(functional), name
        types = [[str(a.type) for a in f._schema.arguments] for f in (func, functional)]
        assert types[0] == types[1][: len(types[0])], name


def test_fresh_results_are_no_aliases():
    for name in having("fresh"):
        func = overload(name)
        assert not returns_alias(func) and not writes(func), name
        assert [str(r.type) for r in func._schema.returns] == ["Tensor"], name


def test_pointwise_says_what_tags_do_not():
    for name, record in OVERLOADS.items():
        if record.pointwise is not None:
            assert (torch.Tag.pointwise in overload(name).tags) is not record.pointwise, name


def test_sizes_in_the_data_are_tagged():
    untagged = {"aten._unique.default", "aten._pack_padded_sequence.default"}
    untagged |= {"aten.linalg_lstsq.default", "aten.linalg_lstsq.out", "aten.argwhere.default"}
    untagged |= {"aten.nonzero.out", "aten.masked_select.out"}
    for name in having("needs_data"):
        tagged = torch.Tag.dynamic_output_shape in overload(name).tags
        assert tagged or name in untagged, name
    assert set(having("data_shape")) <= set(having("needs_data"))


def test_random_fills_draw():
    for name in having("fills_first"):
        assert describe(overload(name)).draws is not None, name


def test_hidden_writes_are_of_arguments_that_the_schema_calls_read_only():
    for name in having("hidden_writes"):
        func = overload(name)
        names = {a.name for a in func._schema.arguments}
        assert names.issuperset(RECORDS[name].hidden_writes), name
        assert not set(writes(func)) & set(RECORDS[name].hidden_writes), name


def test_nothing_is_said_twice():
    with pytest.raises(AssertedTwice, match=r"fresh of aten\.mm\.default"):
        register("aten.mm.default", fresh=True)


def test_nothing_is_known_of_others():
    assert record_of("mine.add.default").shape is None


# ---- against what happens


class Observer(TorchDispatchMode):
    """Runs each operator, and has it looked at."""

    def __init__(self, look):
        super().__init__()
        self.look = look

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.look(func, args, kwargs)
        if func.namespace == "aten" and describe(func).kind is OverloadKind.COMPOSITE:
            with self:  # what it is composed of is looked at, too
                return func._op_dk(COMPOSITE, *args, **kwargs)
        return func(*args, **kwargs)


COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    return tensors_in(list(value.values())) if isinstance(value, dict) else []


def memory(t):
    return t.untyped_storage()._cdata


PARTS = 24  # of the database, for the processes that share the work
SAMPLES = 4
NOT_RUN = ("jiterator", "sparse", "masked.", "_refs", "ops.aten")


@functools.cache
def calls(part):
    """Some calls of each operator that this part of the database makes."""
    by_operator = {}

    def look(func, args, kwargs):
        entries = by_operator.setdefault(str(func), [])
        plain = all(t.layout is torch.strided for t in tensors_in((args, kwargs)))
        if len(entries) < SAMPLES and plain:
            entries.append((func, copied(args), copied(kwargs)))

    for op, dtype in itertools.product(op_db[part::PARTS], (torch.float32, torch.int64)):
        if op.name.startswith(NOT_RUN) or dtype not in op.supported_dtypes("cpu"):
            continue
        samples = itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)
        names = [op.op, *(alias.op for alias in op.aliases if alias.op)]
        for sample, function in itertools.product(samples, names):
            below = torch._C._AutoDispatchBelowADInplaceOrView()
            with below, warnings.catch_warnings(), Observer(look):
                warnings.simplefilter("ignore")
                try:
                    function(copied(sample.input), *copied(sample.args), **copied(sample.kwargs))
                except (RuntimeError, NotImplementedError, TypeError):
                    continue  # another name that takes less, or not below autograd
    more = [(overload(name), args, {}) for name, args in beside_database()[part::PARTS]]
    return [call for entries in by_operator.values() for call in entries] + more


def beside_database():
    """Operators that the database doesn't call: those that PyTorch calls itself, forms of others
    that write, other names."""
    x, truths, row = torch.randn(4, 4), torch.tensor([True, False]), torch.randn(2, 4)
    image, volume, one = torch.randn(2, 4, 3, 3), torch.randn(2, 2, 3, 3, 3), torch.ones(4)
    weights = [torch.randn(4, 4), torch.randn(4, 4), one, one]
    gates = {n: [torch.randn(n * 4, 4)] * 2 + [torch.randn(n * 4)] * 2 for n in (3, 4)}
    recurrent = (True, 1, 0.0, False, False, False)
    sequence, state = torch.randn(3, 2, 4), torch.zeros(1, 2, 4)
    kernel = (image, torch.randn(2, 4, 2, 2), None, [1, 1], [0, 0], [1, 1])
    norm = (image, one, one, one.clone(), one.clone())
    by_name = {
        **{f"{name}.Tensor": (truths, truths) for name in ("__and__", "__or__", "__xor__")},
        "_aminmax.default": (x,),
        "_convolution.default": (*kernel, False, [0, 0], 1, False, False, True, True),
        "_euclidean_dist.default": (x, row),
        "_local_scalar_dense.default": (torch.ones(()),),
        "_logcumsumexp.default": (x, 0),
        "_native_batch_norm_legit_functional.default": (*norm, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training.default": (*norm, 0.1, 1e-5),
        "_scaled_dot_product_flash_attention_for_cpu.default": (image, image, image),
        "_upsample_nearest_exact2d.default": (image, [5, 5]),
        "_upsample_nearest_exact3d.default": (volume, [5, 5, 5]),
        "upsample_nearest2d.default": (image, [5, 5]),
        "upsample_nearest3d.default": (volume, [5, 5, 5]),
        "col2im.default": (torch.randn(1, 8, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
        "copy.default": (x, row[:1]),
        "geometric.default": (x, 0.5),
        **{f"{name}.default": (x,) for name in ("cauchy", "exponential", "log_normal", "random")},
        **{f"{name}.default": (x,) for name in ("uniform", "rand_like", "normal_functional")},
        "lift_fresh_copy.default": (x,),
        "gru.input": (sequence, state, gates[3], *recurrent),
        "lstm.input": (sequence, [state, state], gates[4], *recurrent),
        **{
            f"rnn_{name}.input": (sequence, state, weights, *recurrent) for name in ("tanh", "relu")
        },
        "native_channel_shuffle.default": (image, 2),
        "native_dropout.default": (x, 0.5, True),
        "randperm.default": (5,),
        "reflection_pad2d.default": (image, [1, 1, 1, 1]),
        "reflection_pad3d.default": (volume, [1, 1, 1, 1, 1, 1]),
        "replication_pad3d.default": (volume, [1, 1, 1, 1, 1, 1]),
        "unique_dim.default": (x, 0),
        "unsafe_split_with_sizes.default": (x, [1, 3]),
    }
    return [(f"aten.{name}", args) for name, args in by_name.items()]


def copied(value, make=lambda t: t.clone()):
    """The arguments with other tensors, which share no memory that these did not."""
    if isinstance(value, torch.Tensor):
        whole = torch.empty(0, dtype=value.dtype).set_(value.untyped_storage().clone())
        return whole.as_strided(value.size(), value.stride(), value.storage_offset())
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    return type(value)(map(copied, value)) if type(value) in (list, tuple) else value


def run(func, args, kwargs):
    with torch._C._AutoDispatchBelowADInplaceOrView(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return func(*args, **kwargs)


@pytest.mark.parametrize("part", range(PARTS))
def test_facts_hold_when_operators_run(part):
    wrong = []
    for func, args, kwargs in calls(part):
        args, kwargs = copied(args), copied(kwargs)
        before = [(t, t.clone()) for t in tensors_in((args, kwargs))]
        state = torch.get_rng_state()
        try:
            result = run(func, args, kwargs)
        except (RuntimeError, NotImplementedError):
            continue  # the call that was seen raised, too
        drew = not torch.equal(state, torch.get_rng_state())
        wrong += [(str(func), why) for why in broken(func, args, kwargs, before, result, drew)]
    assert not wrong


def broken(func, args, kwargs, before, result, drew):
    op = describe(func)
    given = {memory(t) for t, _ in before}
    made = [t for t in tensors_in(result) if t.layout is torch.strided]
    if op.record.fresh:
        if any(memory(t) in given for t in made):
            yield "the result is not in memory of its own"
        if any(t.untyped_storage().nbytes() != t.numel() * t.itemsize for t in made):
            yield "the memory of the result has something else in it"
    if op.kind is OverloadKind.FUNCTIONAL and any(memory(t) in given for t in made if t.numel()):
        if not op.record.undeclared_view:
            yield "a view that is not declared"
    if drew and not (op.draws and op.draws(args, kwargs)):
        yield "draws random numbers"
    written = [a.of(args, kwargs) for a in op.written]
    written = {memory(t) for t in tensors_in(written)}
    hidden = op.training is not None and op.statistics and op.training.of(args, kwargs)
    written |= {memory(t) for a in op.statistics if hidden for t in tensors_in(a.of(args, kwargs))}
    for t, old in before:
        if t.shape == old.shape and memory(t) not in written and not same(t, old):
            yield "writes an argument that is said to be read only"


def same(a, b):
    return torch.equal(a, b) or torch.allclose(a, b, equal_nan=True, atol=0, rtol=0)


# ---- views


@pytest.mark.parametrize("part", range(PARTS))
def test_views_have_the_elements_that_they_are_said_to_have(part):
    wrong = []
    for func, args, kwargs in calls(part):
        record = record_of(str(func))
        if not (record.injective or record.rearranges) or str(func) == "aten.view.dtype":
            continue
        base = args[0]
        numbered = torch.arange(base.numel()).view(base.shape)
        for view in tensors_in(run(func, (numbered, *args[1:]), kwargs)):
            elements = view.flatten().tolist()
            if record.injective and len(set(elements)) < len(elements):
                wrong.append((str(func), "an element twice"))
            if record.rearranges and sorted(elements) != list(range(base.numel())):
                wrong.append((str(func), "not all elements"))
    assert not wrong


# ---- errors

EDGES = {
    "floats": (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, -1.0, 3e38, 1e-45),
    "integers": (0, -1, 1, -(2**63), 2**63 - 1),
    "bools": (False, True),
}


def edgy(t, turn):
    """The same tensor with data that is out of the ordinary."""
    kind = "bools" if t.dtype is torch.bool else "floats" if t.is_floating_point() else "integers"
    if t.is_complex() or not t.numel():
        return t
    values = EDGES[kind]
    limits = torch.iinfo(t.dtype) if kind == "integers" else None
    numbers = [values[(turn + i) % len(values)] for i in range(t.numel())]
    if limits is not None:
        numbers = [min(max(n, limits.min), limits.max) for n in numbers]
    return torch.tensor(numbers, dtype=t.dtype).view(t.shape)


def with_edges(value, turn):
    if isinstance(value, torch.Tensor):
        return edgy(value, turn)
    if isinstance(value, dict):
        return {name: with_edges(item, turn) for name, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(with_edges(item, turn) for item in value)
    return value


# The process dies: an index is an address without being looked at, the smallest integer is divided
# by -1.
UNCHECKED = ("aten._unsafe_index", "aten._unsafe_masked_index", "aten.lcm")


@pytest.mark.parametrize("part", range(PARTS))
def test_what_raises_for_some_data_is_said_to(part):
    unsaid = []
    for func, args, kwargs in calls(part):
        op = describe(func)
        if op.kind is not OverloadKind.FUNCTIONAL or str(func).startswith(UNCHECKED):
            continue
        said = op.raises is not None and op.raises(args, kwargs)
        if said or not raised_never(func, args, kwargs):
            continue
        for turn in range(3):
            try:
                run(func, with_edges(args, turn), with_edges(kwargs, turn))
            except (RuntimeError, IndexError, ValueError, NotImplementedError) as error:
                unsaid.append((str(func), str(error)[:80]))
                break
    assert not unsaid


def raised_never(func, args, kwargs):
    try:
        run(func, copied(args), copied(kwargs))
    except (RuntimeError, IndexError, ValueError, NotImplementedError):
        return False
    return True


def test_errors_for_data_are_found():
    """That the test above can fail: division by 0 is said to raise, and does."""
    func, args = torch.ops.aten.floor_divide.default, (torch.ones(3).long(), torch.ones(3).long())
    assert describe(func).raises(args, {})
    with pytest.raises(RuntimeError, match="ZeroDivision"):
        run(func, with_edges(args, 0), {})


@pytest.mark.long
def test_operators_that_never_raise_are_run():
    """Each is among the calls above, but for these."""
    ran = {str(func).rpartition(".")[0] for part in range(PARTS) for func, _, _ in calls(part)}
    unknown = {name for name, record in PACKETS.items() if record.raises is never} - ran
    assert unknown == NOT_IN_DATABASE


NOT_IN_DATABASE = {"aten.mkldnn_convolution"}  # of a layout of its own
