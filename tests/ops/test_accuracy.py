"""Every pointwise operator against eager PyTorch: over all exponents, at special values and for all
dtypes, with the bounds of the table in `accuracy`."""

import itertools
import math

import pytest
import torch

from pliant.base.operators import record_of
from pliant.ops.lowering import NotLowered
from pliant.ops.pointwise import ALIASES
from pliant.targets.cpu.llvm_lanes import SCALAR, Machine
from tests.ops import accuracy, ulps
from tests.ops.harness import run_op

TARGETS = [SCALAR, Machine(16, False), Machine(32, False), Machine(64, True)]
ALSO = {other for others in ALIASES.values() for other in others.split()}
NAMES = [name for name in accuracy.pointwise() if name.split(".")[1] not in ALSO]
DTYPES = [*ulps.FLOATS, *ulps.INTS]


def base(name):
    return name.split(".")[1]


def test_every_pointwise_operator_has_a_bound():
    assert {base(name) for name in NAMES} == set(accuracy.BOUNDS)
    assert accuracy.CALLS.keys() <= set(NAMES)


def test_other_names_have_the_same_rules():
    same = {id(record_of(name).lowering) for name in NAMES}
    others = [name for name in accuracy.pointwise() if base(name) in ALSO]
    assert others and all(id(record_of(name).lowering) in same for name in others)


def overload(name):
    _, operator, which = name.split(".")
    return getattr(getattr(torch.ops.aten, operator), which)


def calls(name, dtype, more=0):
    """(args, kwargs) of all calls of an operator that are tried with tensors of this type. With
    `more`, there are more numbers in them."""
    default = []
    for argument in overload(name)._schema.arguments:
        if str(argument.type) == "Tensor":
            default.append([accuracy.X])
        elif not argument.has_default_value():
            default.append(accuracy.NUMBERS if more or dtype is torch.float32 else accuracy.FEW)
    for given in accuracy.CALLS.get(name) or itertools.product(*default):
        args = [arg for arg in given if not isinstance(arg, dict)]
        count = len([arg for arg in args if arg is accuracy.X])
        if count == 1:
            tensors = iter([ulps.sweep(dtype, more=more)])
        else:
            tensors = iter(ulps.grid(dtype, count))
        kwargs = given[-1] if isinstance(given[-1], dict) else {}
        yield [next(tensors) if arg is accuracy.X else arg for arg in args], kwargs


SIGNED = [torch.int64, torch.int32, torch.int16, torch.int8]


def _divides(func):
    return any(part in str(func) for part in ("div", "remainder", "fmod"))


def eager(func, args, kwargs):
    """The result, and the arguments that it is of: integers aren't divided by 0, nor raised to
    negative powers. Nothing if eager refuses this call."""
    if _divides(func) and isinstance(args[1], torch.Tensor) and args[1].dtype in SIGNED:
        # The smallest integer by -1: eager's process ends there.
        dangerous = (args[1] == -1) & (args[0] == torch.iinfo(args[1].dtype).min)
        args = [args[0], args[1].masked_fill(dangerous, 1), *args[2:]]
    try:
        return func(*args, **kwargs), args
    except (RuntimeError, NotImplementedError, ValueError) as failure:
        said = str(failure)
    if "ZeroDivision" in said and isinstance(args[1], torch.Tensor):
        usable = [args[0], args[1].masked_fill(args[1] == 0, 1), *args[2:]]
    elif "negative integer powers" in said and isinstance(args[1], torch.Tensor):
        usable = [args[0], args[1].masked_fill(args[1] < 0, 2), *args[2:]]
    else:
        return None, args
    return func(*usable, **kwargs), usable


def apart(x):
    """The same elements, not next to each other in memory: eager computes them one by one."""
    return torch.stack([x, x], -1)[..., 0] if isinstance(x, torch.Tensor) else x


def _filled_up(x):
    """With as many more elements as there are in a vector: the last ones are none of ours."""
    return torch.cat([x, x[:64]]) if isinstance(x, torch.Tensor) and x.dim() else x


def compare(name, dtype, args, kwargs, target=None):
    """None if the operator isn't lowered, else the errors beyond the bound, as text."""
    func = overload(name)
    expected, args = eager(func, args, kwargs)
    if expected is None:
        return None
    try:
        found = run_op(func, *args, expected=expected, target=target, **kwargs)
    except NotLowered:
        return None
    assert found.dtype == expected.dtype
    bound = accuracy.BOUNDS[base(name)][_column(expected.dtype)]
    alone = func(*map(apart, args), **kwargs).contiguous()
    together = func(*[_filled_up(arg) for arg in args], **kwargs)[: len(found)]
    far = ulps.distance(found, together).minimum(ulps.distance(found, alone)) > bound
    if not far.any():
        return []
    tensors = [arg[far] if isinstance(arg, torch.Tensor) else arg for arg in args]
    return _beyond(name, bound, tensors, kwargs, found[far], together[far], alone[far])


def _column(dtype):
    return 0 if dtype is torch.float32 else 1 if dtype is torch.float64 else 2


def _beyond(name, bound, args, kwargs, found, together, alone):
    """Those of the results that are farther from what is exact than they may be."""
    said = [
        f"{name} of {[a[i].item() if isinstance(a, torch.Tensor) else a for a in args]} {kwargs}: "
        f"{found[i].item()}, eager {together[i].item()} or {alone[i].item()}"
        for i in range(min(len(found), 400))
    ]
    if not found.dtype.is_floating_point:
        return said
    exact = _exact(name, args, kwargs, found.dtype)
    exact = together.double() if exact is None else exact
    size = None
    if base(name) in accuracy.RELATIVE_TO_ARGUMENTS:
        size = torch.stack([arg.double().abs() for arg in args]).amax(0)
    mine = ulps.error(found, exact, size)
    theirs = ulps.error(together, exact, size).minimum(ulps.error(alone, exact, size))
    worse = ~(mine <= theirs.clamp(min=bound))
    return [
        f"{text}, exact {exact[i].item()}: {mine[i]:.4g} units, eager {theirs[i]:.4g}"
        for i, text in enumerate(said)
        if worse[i]
    ]


def _exact(name, args, kwargs, dtype):
    """The exact results as doubles: computed in double, or for doubles with more digits."""
    if dtype is not torch.float64:
        return overload(name)(*[_double(arg) for arg in args], **kwargs)
    columns = [arg.tolist() if isinstance(arg, torch.Tensor) else None for arg in args]
    count = len(next(column for column in columns if column is not None))
    if kwargs or count > 4000:
        return None
    rows = zip(*[column or [arg] * count for column, arg in zip(columns, args)])
    exact = [ulps.exact(base(name), *row) for row in rows]
    return torch.tensor([math.nan if x is None else x for x in exact], dtype=torch.float64)


def _double(arg):
    return arg.double() if isinstance(arg, torch.Tensor) else arg


@pytest.mark.parametrize("name", NAMES)
def test_pointwise_operators(name):
    """All types of floats, and two other types of integers for each operator: one may be bool, of
    which there are no shifts."""
    at = NAMES.index(name)
    assert _agree(name, [*ulps.FLOATS, *[DTYPES[4 + (at + more) % 6] for more in range(2)]])


def _agree(name, dtypes, target=None, more=0):
    """Whether there are loops for it with any of the types."""
    lowered, wrong = 0, []
    for dtype in dtypes:
        for args, kwargs in calls(name, dtype, more):
            beyond = compare(name, dtype, args, kwargs, target)
            lowered += beyond is not None
            wrong += [f"{dtype}: {text}" for text in beyond or ()]
    assert not wrong, "\n".join([f"{len(wrong)} wrong", *wrong[:12]])
    return lowered


@pytest.mark.long
@pytest.mark.parametrize("target", [None, *TARGETS])
@pytest.mark.parametrize("name", NAMES)
def test_pointwise_operators_of_all_types_on_all_machines(name, target):
    _agree(name, DTYPES, target, more=4 if target is None else 0)


UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
ENDS = torch.tensor(
    [
        sign * (2.0**k + d)
        for k in (7, 8, 15, 16, 31, 32, 63)
        for d in (-1, -0.5, 0, 0.5, 1)
        for sign in (1, -1)
    ],
    dtype=torch.float64,
)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source):
    """To every type, also of what isn't in its range."""
    x = ulps.sweep(source)
    if source.is_floating_point:
        x = torch.cat([x, ENDS.to(source)])
    lowered = 0
    for target in [*DTYPES, *UNSIGNED]:
        try:
            found = run_op(torch.ops.aten._to_copy.default, x, dtype=target)
        except NotLowered:
            continue
        lowered += 1
        alone, together = apart(x).to(target).contiguous(), _filled_up(x).to(target)[: len(x)]
        far = ulps.distance(found, alone).minimum(ulps.distance(found, together)) > 0
        assert not far.any(), (target, x[far][:3], found[far][:3], alone[far][:3])
    assert lowered >= 12
