"""The rules of pointwise operators against eager PyTorch: for each type, at the values where types
end, with numbers and tensors without dimensions in place of tensors."""

import itertools
import math
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pliant
from pliant.base.operators import record_of
from pliant.loop.body import FLAG
from pliant.loop.define import Definition
from pliant.ops.elementwise import common_dtype
from pliant.ops.indexed_tensor import in_memory
from pliant.ops.lowering import Lowering, Meta, NotLowered, lowerings, type_of
from pliant.ops.pointwise import ALIASES, UNARY
from pliant.sym.expr import symbol
from pliant.sym.floats import float_bits, float_symbol
from tests.ops.harness import Fault, exprs, run_definitions, run_op
from tests.ops.values import DTYPES, agrees, lowered, values

aten = torch.ops.aten
FLOATS = [d for d in DTYPES if d.is_floating_point]
INTS = [d for d in DTYPES if not d.is_floating_point and d is not torch.bool]


def overload(name):
    base, which = name.split(".")
    return getattr(getattr(aten, base), which)


# ---- types


SORTS = [*DTYPES, torch.int16]
TENSORS = st.tuples(st.sampled_from(SORTS), st.booleans())
NUMBERS = st.sampled_from([True, 2, 2.5])


def lazy_and_tensor(sort):
    dtype, dimensions = sort
    tensor = torch.ones(3 if dimensions else (), dtype=dtype)
    return in_memory(Definition("x", exprs(tensor.shape), (), type_of(dtype))), tensor


@given(TENSORS, st.one_of(TENSORS, NUMBERS), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=300, deadline=None)
def test_types_promote_as_in_eager(first, second, default):
    indexed, tensor = lazy_and_tensor(first)
    other = lazy_and_tensor(second) if isinstance(second, tuple) else (second, second)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        expected = torch.result_type(tensor, other[1])
    finally:
        torch.set_default_dtype(before)
    assert common_dtype([indexed, other[0]], default) is expected
    assert common_dtype([other[0], indexed], default) is expected


@given(TENSORS, TENSORS, st.one_of(TENSORS, NUMBERS))
@settings(max_examples=200, deadline=None)
def test_three_types_promote_as_in_eager(first, second, third):
    pairs = [lazy_and_tensor(x) if isinstance(x, tuple) else (x, x) for x in (first, second, third)]
    (x, y, z) = [tensor for _, tensor in pairs]
    ours = common_dtype([indexed for indexed, _ in pairs], torch.float32)
    if isinstance(z, torch.Tensor):
        try:
            expected = torch.clamp(x, y, z).dtype
        except RuntimeError:  # not of bools
            return
        assert ours is expected
    else:
        assert common_dtype([pairs[0][0], z], torch.float32) is torch.result_type(x, z)


def test_numbers_that_are_not_real_are_left_to_pytorch():
    indexed, _ = lazy_and_tensor((torch.float32, True))
    with pytest.raises(NotLowered):
        common_dtype([indexed, 1j], torch.float32)


# ---- each operator, each type


EXACT = """
    abs neg sign sgn floor ceil trunc round frac square bitwise_not logical_not signbit isnan isinf
    isfinite isposinf isneginf rsqrt reciprocal deg2rad rad2deg relu relu6 hardtanh hardsigmoid
    hardswish nan_to_num leaky_relu rrelu clone contiguous
""".split()
CLOSE = [*sorted(set(UNARY) - set(EXACT)), "silu", "mish", "elu", "selu", "celu"]
CLOSE += ["softplus", "log_sigmoid", "logit"]


@pytest.mark.parametrize("name", EXACT)
def test_operators_on_one_tensor(name):
    done = [agrees(overload(f"{name}.default"), values(dtype)) for dtype in DTYPES]
    assert any(done)


@pytest.mark.parametrize("name", CLOSE)
def test_functions(name):
    done = [agrees(overload(f"{name}.default"), values(d), tolerance=4) for d in DTYPES]
    assert all(done[:3])


def test_gelu():
    x = torch.cat([torch.linspace(-4, 9, 301), torch.tensor([-0.0, 1e-20, 80.0])])
    for dtype, how in itertools.product(FLOATS, ("none", "tanh")):
        expected = aten.gelu.default(x.to(dtype), approximate=how)
        found = run_op(aten.gelu.default, x.to(dtype), approximate=how)
        torch.testing.assert_close(found, expected)


BINARY = """
    add.Tensor sub.Tensor rsub.Tensor mul.Tensor div.Tensor minimum.default maximum.default
    fmin.default heaviside.default copysign.Tensor logical_and.default logical_or.default
    logical_xor.default bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor eq.Tensor ne.Tensor
    bitwise_left_shift.Tensor bitwise_right_shift.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor
    __and__.Tensor __lshift__.Tensor nextafter.default clamp_min.Tensor _prelu_kernel.default
""".split()


@pytest.mark.parametrize("name", BINARY)
def test_operators_on_two_tensors(name):
    func = overload(name)
    done = [agrees(func, values(d), values(d, seed=1)) for d in DTYPES]
    assert any(done)
    mixed = [(torch.float32, torch.int64), (torch.bool, torch.uint8), (torch.int32, torch.bfloat16)]
    for first, second in mixed:
        agrees(func, values(first), values(second, seed=1))


CLOSE_BINARY = "atan2 hypot logaddexp logaddexp2 special_xlog1py".split()


@pytest.mark.parametrize("name", [*[f"{n}.default" for n in CLOSE_BINARY], "xlogy.Tensor"])
def test_functions_of_two_tensors(name):
    for dtype in DTYPES:
        agrees(overload(name), values(dtype), values(dtype, seed=1), tolerance=8)


WITH_NUMBERS = """
    add.Tensor sub.Tensor rsub.Scalar mul.Tensor div.Tensor floor_divide.default remainder.Scalar
    fmod.Scalar copysign.Scalar bitwise_and.Scalar bitwise_left_shift.Tensor_Scalar eq.Scalar
    lt.Scalar clamp.default clamp_max.default
""".split()
SCALARS = [0.1234567, 300, True]
FEW = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@pytest.mark.parametrize("name", WITH_NUMBERS)
def test_operators_with_a_number(name):
    done = [agrees(overload(name), values(d), s) for d in FEW for s in SCALARS]
    assert any(done)


ZERO_DIM = [torch.tensor(0.1234567), torch.tensor(3)]


@pytest.mark.parametrize("name", ["add", "mul", "div", "lt", "where"])
def test_operators_with_a_tensor_without_dimensions(name):
    """Halves are multiplied with and divided by the number itself, and added to it rounded."""
    which = "where.self" if name == "where" else f"{name}.Tensor"
    func, condition = overload(which), [values(torch.bool, 64)] if name == "where" else []
    for dtype, other in itertools.product(FEW, ZERO_DIM):
        x = values(dtype, 64)
        agrees(func, *condition, x, other)
        agrees(func, *condition, other, x)


# ---- operators with options


@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_with_a_factor(dtype):
    x, y, z = [values(dtype, seed=seed) for seed in range(3)]
    for alpha in (1, 2, 0.3, True):
        for func in (aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor):
            agrees(func, x, y, alpha=alpha)
        agrees(aten.add.Tensor, x, 3, alpha=alpha)
        agrees(aten.addcmul.default, x, y, z, value=alpha)
        agrees(aten.addcdiv.default, x, y, z, value=alpha)
    for weight in (0.3, 0.8, -2):
        agrees(aten.lerp.Scalar, x, y, weight)
    agrees(aten.lerp.Tensor, x, y, z)


@pytest.mark.parametrize("dtype", DTYPES)
def test_divisions_that_round(dtype):
    x, y = values(dtype), values(dtype, seed=1)
    if dtype in INTS:
        y = y.masked_fill((y == 0) | (y == -1), 5)
    for mode in (None, "trunc", "floor"):
        for other in (y, 3, -0.7):
            agrees(aten.div.Tensor_mode, x, other, rounding_mode=mode)
    for func in (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor):
        agrees(func, x, y)


@pytest.mark.parametrize("dtype", INTS)
def test_an_integer_divided_by_zero_is_a_fault(dtype):
    x, y = values(dtype), values(dtype, seed=1).masked_fill(values(dtype) == 3, 0)
    fine = torch.ones_like(y)
    for func in (aten.floor_divide.default, aten.remainder.Tensor, aten.fmod.Tensor):
        assert agrees(func, x, fine)
        with pytest.raises(RuntimeError, match="ZeroDivision"):
            func(x, y)
        assert lowered(func, x, y)
        with pytest.raises(Fault):
            run_op(func, x, y, expected=x)


def test_what_is_filled_in_has_to_fit():
    mask = torch.tensor([True, False])
    for dtype, number in ((torch.int16, 2**40), (torch.float16, 1e10), (torch.int32, math.nan)):
        x, value = torch.zeros(2, dtype=dtype), torch.tensor(number)
        with pytest.raises(RuntimeError, match="overflow"):
            aten.masked_fill.Tensor(x, mask, value)
        with pytest.raises(Fault):
            run_op(aten.masked_fill.Tensor, x, mask, value, expected=x)
        assert agrees(aten.masked_fill.Tensor, x, mask, torch.zeros_like(value) + 5)


def run_with_symbols(func, *args, like, values):
    """The rule's result, which is like `like`; the values of symbols are given when it runs."""
    low = Lowering(results=(Meta(exprs(like.shape), exprs(like.stride()), like.dtype),))
    memory = {}

    def given(value):
        if not isinstance(value, torch.Tensor):
            return value
        sizes, strides = exprs(value.shape), exprs(value.stride())
        made = Definition(f"in{len(memory)}", sizes, strides, type_of(value.dtype))
        memory[made] = value
        return in_memory(made)

    indexed = record_of(str(func)).lowering(low, *map(given, args))
    memory[FLAG] = torch.zeros((), dtype=torch.int64)
    stored = low.realize(indexed, low.result.strides).memory.of
    run_definitions(low.definitions, [stored], memory, values)
    if memory[FLAG].item():
        raise Fault(str(func))
    return memory[stored]


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers(dtype):
    x = values(dtype)
    for exponent in (0, 1, 2, 3, 0.5, -0.5, -1, -2, 4, 7, 1.7, True):
        agrees(aten.pow.Tensor_Scalar, x, exponent, tolerance=4)
    for base in (1, 2, 2.5, 3):
        agrees(aten.pow.Scalar, base, x, tolerance=4)
    agrees(aten.pow.Tensor_Tensor, x, values(dtype, seed=1), tolerance=4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds(dtype):
    x, y, z = [values(dtype, seed=seed) for seed in range(3)]
    for bounds in ((0, 2), (0.5, None), (None, 0.0), (5, 2), (math.nan, 2), (-1, 300)):
        agrees(aten.clamp.default, x, *bounds)
    for bounds in ((math.nan, None), (None, math.nan)):  # one that some versions ignore
        function = lambda x, bounds=bounds: (torch.clamp(x, *bounds), x.clamp_min(math.nan))
        actual = pliant.compile(function, backend="llvm")(x)
        torch.testing.assert_close(actual, function(x), rtol=0, atol=0, equal_nan=True)
    agrees(aten.clamp.Tensor, x, y, z)
    agrees(aten.clamp.Tensor, x, None, z)
    agrees(aten.clamp.Tensor, x, min=torch.tensor(1.5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices(dtype):
    x, y, condition = values(dtype), values(dtype, seed=1), values(torch.bool)
    assert agrees(aten.where.self, condition, x, y)
    assert agrees(aten.where.self, condition, x, values(torch.int32))
    agrees(aten.where.ScalarSelf, condition, 0.3, y)
    agrees(aten.where.ScalarOther, condition, x, 2)
    agrees(aten.where.ScalarOther, condition, x, 300)
    assert agrees(aten.where.Scalar, condition, 1, 2.5)
    for value in (1.7, True, -math.inf, 300):
        agrees(aten.masked_fill.Scalar, x, condition, value)
        agrees(aten.fill.Scalar, x, value)
    assert agrees(aten.masked_fill.Tensor, x, condition, torch.tensor(1.7))
    assert agrees(aten.fill.Tensor, x, torch.tensor(1.7))


@pytest.mark.parametrize("dtype", FLOATS)
def test_options_of_activations(dtype):
    x = values(dtype)
    for call in (
        (aten.elu.default, 0.7, 1.3, 0.9),
        (aten.celu.default, 0.7),
        (aten.softplus.default, 0.7, 3),
        (aten.logit.default, 0.1),
        (aten.logit.default, -1.0),
    ):
        assert agrees(call[0], x, *call[1:], tolerance=4)
    for call in (
        (aten.hardtanh.default, -0.33, 0.77),
        (aten.leaky_relu.default, -0.3),
        (aten.softshrink.default, 0.37),
        (aten.hardshrink.default, 0.37),
        (aten.threshold.default, 0.37, 20),
        (aten.rrelu.default, 0.1, 0.3),
        (aten.nan_to_num.default, 1.5, 2.5, -3.5),
    ):
        assert agrees(call[0], x, *call[1:])
    for decimals in (0, 2, -1):
        assert agrees(aten.round.decimals, x, decimals=decimals)
    for dim in (0, 1, -1):
        assert agrees(aten.glu.default, x.reshape(16, 16), dim, tolerance=4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_casts(dtype):
    x = values(dtype)
    small = x if dtype is torch.bool else x[(x.double() > -100) & (x.double() < 100)]
    for target in [*DTYPES, torch.int16, torch.uint16, torch.uint32]:
        assert agrees(aten._to_copy.default, small, dtype=target)
    assert agrees(aten.copy.default, x.reshape(16, 16), torch.arange(16, dtype=torch.int32))


# ---- shapes


@pytest.mark.parametrize("symbolic", [False, True])
def test_shapes(symbolic):
    x, row, column = torch.randn(5, 7), torch.randn(7), torch.randn(5, 1)
    cases = [(x, row), (x, column), (column, row), (x.t(), column.t()), (x[:0], row)]
    cases += [
        (torch.tensor(2.0), x),
        (torch.tensor(2.0), torch.tensor(3)),
        (x[::2, 1:], x[::2, 1:]),
    ]
    cases += [(x.expand(3, 5, 7), x), (row[:0], row[:1])]
    for a, b in cases:
        found = run_op(aten.add.Tensor, a, b, symbolic=symbolic)
        torch.testing.assert_close(found, a + b, rtol=0, atol=0)
        assert found.stride() == (a + b).stride()


def test_arguments_by_name():
    x, y = torch.randn(9), torch.randn(9)
    calls = [
        (aten.mul.Tensor, {"self": x, "other": y}),
        (aten.exp.default, {"self": x}),
        (aten.add.Tensor, {"self": x, "other": y, "alpha": 2}),
        (aten.leaky_relu.default, {"self": x, "negative_slope": 0.5}),
        (aten.clamp.default, {"self": x, "max": 0.5}),
        (aten.where.self, {"condition": x > 0, "self": x, "other": y}),
    ]
    for func, kwargs in calls:
        torch.testing.assert_close(run_op(func, **kwargs), func(**kwargs))


def test_floats_that_are_symbols():
    """What stands for them among the sizes is their bits."""
    number = float_symbol("f3")
    bits = struct.unpack("q", struct.pack("d", 0.3))[0]
    for dtype in FLOATS:
        x = values(dtype)
        functions = [aten.mul.Tensor, aten.add.Tensor, aten.leaky_relu.default]
        if dtype is torch.float16:  # PyTorch raises for a slope out of its range, so it is asked
            with pytest.raises(NotLowered):
                run_with_symbols(functions.pop(), x, number, like=x, values={})
        for func in functions:
            found = run_with_symbols(func, x, number, like=x, values={float_bits(number): bits})
            torch.testing.assert_close(found, func(x, 0.3), rtol=0, atol=0, equal_nan=True)


def test_numbers_that_are_symbols():
    x, number = torch.arange(6.0), symbol("s7")
    for func in (aten.mul.Tensor, aten.add.Tensor, aten.pow.Tensor_Scalar, aten.leaky_relu.default):
        found = run_with_symbols(func, x, number * 2, like=x, values={number: 3})
        torch.testing.assert_close(found, func(x, 6))
    integers = torch.arange(6)
    found = run_with_symbols(
        aten.floor_divide.default, integers, number, like=integers, values={number: 2}
    )
    assert found.tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(Fault):
        run_with_symbols(
            aten.floor_divide.default, integers, number, like=integers, values={number: 0}
        )


# ---- the table


def test_every_rule_is_for_an_operator_there_is():
    for name in lowerings():
        namespace, base, which = name.split(".")
        assert which in getattr(getattr(torch.ops, namespace), base).overloads(), name


def test_other_names_have_the_same_arguments():
    for name, aliases in ALIASES.items():
        for alias in aliases.split():
            for which in getattr(aten, alias).overloads():
                if record_of(f"aten.{alias}.{which}").lowering:
                    schemas = [overload(f"{n}.{which}")._schema for n in (name, alias)]
                    first, second = [[a.name for a in schema.arguments] for schema in schemas]
                    assert first == second


def arguments(func, sorts):
    """Arguments of these types, ones throughout."""
    made = []
    for arg in func._schema.arguments:
        kind = str(arg.type)
        if kind in ("Tensor", "Optional[Tensor]"):
            dtype = torch.bool if arg.name in ("condition", "mask") else sorts[min(len(made), 1)]
            made.append(torch.ones(4, dtype=dtype))
        elif not arg.has_default_value():
            made.append({"number": 1, "int": 0, "bool": False, "float": 0.5}.get(kind))
    return made


UNUSUAL = [torch.uint16, torch.uint32, torch.uint64]
MINE = ("pliant.ops.pointwise", "pliant.ops.activations", "pliant.ops.powers", "pliant.ops.copies")


def rules_here():
    return [
        name
        for name, rule in lowerings().items()
        if getattr(rule, "__module__", type(rule).__module__) in (*MINE, "pliant.ops.elementwise")
    ]


def test_what_eager_refuses_is_not_lowered():
    refused = 0
    for name in rules_here():
        func = overload(name.removeprefix("aten."))
        for sorts in itertools.product([*DTYPES[::2], *UNUSUAL[:1], torch.bool], repeat=2):
            args = arguments(func, sorts)
            try:
                func(*args)
            except (RuntimeError, NotImplementedError, TypeError):
                refused += 1
                assert not lowered(func, *args), (name, sorts)
    assert refused > 500
