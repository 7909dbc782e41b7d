"""Activation functions.

The one idea: each is the formula of eager PyTorch, since near zero and at infinity equal formulas
of mathematics differ; where another one is taken, it gives the same there.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from pliant.base.devices import META
from pliant.base.operators import aten_names, register
from pliant.fake import shapes
from pliant.fake.layout import (
    pointwise_strides,
)
from pliant.fake.overload import Overload
from pliant.fake.pointwise import like_first
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, new
from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.elementwise import (
    FLOATS,
    NUMBERS,
    Pointwise,
    Promotion,
    elementwise,
    like,
    op,
)
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

# --------------------------------------------------------------------------------------------------
# Piecewise linear


def _relu(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.MAXIMUM, like(b, 0, x), x)


def _between(b: LoopBody, x: LoopValue, lower: LoopValue, upper: LoopValue) -> LoopValue:
    return b(Op.MINIMUM, upper, b(Op.MAXIMUM, lower, x))


def _relu6(b: LoopBody, x: LoopValue) -> LoopValue:
    return _between(b, x, like(b, 0, x), like(b, 6, x))


def _leaky_relu(b: LoopBody, x: LoopValue, slope: LoopValue) -> LoopValue:
    return b(Op.SELECT, b(Op.GT, x, like(b, 0, x)), x, b(Op.MUL, x, slope))


def _threshold(b: LoopBody, x: LoopValue, threshold: LoopValue, value: LoopValue) -> LoopValue:
    return b(Op.SELECT, b(Op.LE, x, threshold), value, x)


def _hardshrink(b: LoopBody, x: LoopValue, lambd: LoopValue) -> LoopValue:
    inside = b(Op.AND, b(Op.GE, x, b(Op.NEG, lambd)), b(Op.LE, x, lambd))
    return b(Op.SELECT, inside, like(b, 0, x), x)


def _softshrink(b: LoopBody, x: LoopValue, lambd: LoopValue) -> LoopValue:
    """Inside it is 0; a nan stays one."""
    inside = b(Op.SELECT, b(Op.ISNAN, x), x, like(b, 0, x))
    below = b(Op.SELECT, b(Op.LT, x, b(Op.NEG, lambd)), b(Op.ADD, x, lambd), inside)
    return b(Op.SELECT, b(Op.GT, x, lambd), b(Op.SUB, x, lambd), below)


def _zero_to_six(b: LoopBody, x: LoopValue) -> LoopValue:
    return _relu6(b, b(Op.ADD, x, like(b, 3, x)))


def _hardsigmoid(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.DIV, _zero_to_six(b, x), like(b, 6, x))


def _hardswish(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.DIV, b(Op.MUL, x, _zero_to_six(b, x)), like(b, 6, x))


# --------------------------------------------------------------------------------------------------
# With exponentials


def _elu(
    b: LoopBody, x: LoopValue, alpha: LoopValue, scale: LoopValue, input_scale: LoopValue
) -> LoopValue:
    negative = b(Op.EXPM1, b(Op.MUL, x, input_scale))
    negative = b(Op.MUL, negative, b(Op.MUL, alpha, scale))
    return b(Op.SELECT, b(Op.LT, x, like(b, 0, x)), negative, b(Op.MUL, x, scale))


def _softplus(b: LoopBody, x: LoopValue, beta: LoopValue, threshold: LoopValue) -> LoopValue:
    scaled = b(Op.MUL, x, beta)
    curve = b(Op.DIV, b(Op.LOG1P, b(Op.EXP, scaled)), beta)
    return b(Op.SELECT, b(Op.GT, scaled, threshold), x, curve)


def _mish(b: LoopBody, x: LoopValue) -> LoopValue:
    """x * tanh(log(1 + e)) for e = exp(x): the hyperbolic tangent of a logarithm is a fraction."""
    e = b(Op.EXP, x)
    n = b(Op.MUL, e, b(Op.ADD, e, like(b, 2, x)))
    curve = b(Op.MUL, x, b(Op.DIV, n, b(Op.ADD, n, like(b, 2, x))))
    return b(Op.SELECT, b(Op.GT, x, like(b, 20, x)), x, curve)


def _log_sigmoid(b: LoopBody, x: LoopValue) -> LoopValue:
    far = b(Op.LOG1P, b(Op.EXP, b(Op.NEG, b(Op.ABS, x))))
    return b(Op.SUB, b(Op.MINIMUM, x, like(b, 0, x)), far)


def _gelu(b: LoopBody, x: LoopValue) -> LoopValue:
    shape = b(Op.ERF, b(Op.MUL, x, like(b, math.sqrt(0.5), x)))
    return b(Op.MUL, b(Op.MUL, x, like(b, 0.5, x)), b(Op.ADD, like(b, 1, x), shape))


def _gelu_tanh(b: LoopBody, x: LoopValue) -> LoopValue:
    cube = b(Op.MUL, b(Op.MUL, x, x), x)
    inner = b(Op.ADD, x, b(Op.MUL, like(b, 0.044715, x), cube))
    shape = b(Op.TANH, b(Op.MUL, like(b, math.sqrt(2 / math.pi), x), inner))
    return b(Op.MUL, b(Op.MUL, like(b, 0.5, x), x), b(Op.ADD, like(b, 1, x), shape))


_GELU: Final = {"none": _gelu, "tanh": _gelu_tanh}


@lowers("aten.gelu.default")
def gelu(low: Lowering, self: IndexedTensor, *, approximate: str = "none") -> IndexedTensor:
    if approximate not in _GELU:
        raise NotLowered("PyTorch refuses it")
    return elementwise(low, _GELU[approximate], [self], on=FLOATS, cost=30)


def _log_odds(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.LOG, b(Op.DIV, x, b(Op.SUB, like(b, 1, x), x)))


def _log_odds_inside(b: LoopBody, x: LoopValue, eps: LoopValue) -> LoopValue:
    upper = b(Op.SUB, like(b, 1, x), eps)
    x = b(Op.SELECT, b(Op.LT, x, eps), eps, b(Op.SELECT, b(Op.GT, x, upper), upper, x))
    return _log_odds(b, x)


@lowers("aten.logit.default")
def logit(low: Lowering, self: IndexedTensor, eps: Number | None = None) -> IndexedTensor:
    """Eager rounds halves after each step. An epsilon below 0 is none."""
    steps = frozenset({Type.BF16, Type.F16})
    how: dict[str, Any] = {"on": FLOATS, "promotion": Promotion.FLOAT, "cost": 25, "steps": steps}
    if eps is None:
        return elementwise(low, _log_odds, [self], **how)
    if not isinstance(eps, int | float):
        raise NotLowered("an epsilon that is not known")
    if eps < 0:
        return elementwise(low, _log_odds, [self], **how)
    return elementwise(low, _log_odds_inside, [self], [eps], rounded=True, **how)


# --------------------------------------------------------------------------------------------------
# Those that are others with some arguments


@lowers("aten.selu.default")
def selu(low: Lowering, self: IndexedTensor) -> IndexedTensor:
    return ELU(low, self, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


@lowers("aten.celu.default")
def celu(low: Lowering, self: IndexedTensor, alpha: Number = 1.0) -> IndexedTensor:
    """The inverse is taken in double, as eager does."""
    if isinstance(alpha, Expr | FloatExpr) or alpha == 0:
        raise NotLowered("celu with this alpha")
    assert isinstance(alpha, int | float)
    return ELU(low, self, alpha, 1.0, 1.0 / alpha)


@lowers("aten.rrelu.default")
def rrelu(
    low: Lowering,
    self: IndexedTensor,
    lower: Number = 0.125,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> IndexedTensor:
    """Without training, a fixed slope: the mean of the two."""
    if training or not isinstance(lower, int | float) or not isinstance(upper, int | float):
        raise NotLowered("a random slope")
    return LEAKY_RELU(low, self, (lower + upper) / 2)


def _glu_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim = (*args, -1)[:2]
    if not t.dim() or not -t.dim() <= dim < t.dim() or not t.is_floating_point():
        return None
    if t.size(dim) % 2 != 0:
        return None
    sizes = [size // 2 if d == dim % t.dim() else size for d, size in enumerate(t.size())]
    half = torch.empty_strided(sizes, t.stride(), device=META)
    return new(sizes, pointwise_strides([half, half], half.size()), t.dtype, device)


@lowers("aten.glu.default", shape=_glu_shape)
def glu(low: Lowering, self: IndexedTensor, dim: int = -1) -> IndexedTensor:
    """The first half of a dimension times the sigmoid of the second."""
    sizes = low.result.sizes
    dim = dim % len(sizes)

    def shifted(b: LoopBody, index: Index) -> LoopValue:
        return self.at(b, (*index[:dim], index[dim] + sizes[dim], *index[dim + 1 :]))

    halves = [
        IndexedTensor(sizes, self.type, at, self.cost, self.reads) for at in (self.at, shifted)
    ]  # of the same type: nothing is promoted
    return elementwise(
        low, lambda b, x, y: b(Op.MUL, x, b(Op.SIGMOID, y)), halves, on=FLOATS, cost=20
    )


ELU: Final = Pointwise(
    _elu, FLOATS, options=(("alpha", 1), ("scale", 1), ("input_scale", 1)), cost=25
)
LEAKY_RELU: Final = Pointwise(_leaky_relu, FLOATS, options=(("negative_slope", 0.01),), cost=2)

ACTIVATIONS: Final[dict[str, Pointwise]] = {
    "relu": Pointwise(_relu),
    "relu6": Pointwise(_relu6),
    "hardtanh": Pointwise(
        _between, options=(("min_val", -1), ("max_val", 1)), cost=2, rounded=True
    ),
    "threshold": Pointwise(_threshold, NUMBERS, options=(("threshold", 0), ("value", 0)), cost=2),
    "hardshrink": Pointwise(_hardshrink, FLOATS, options=(("lambd", 0.5),), cost=4, rounded=True),
    "softshrink": Pointwise(_softshrink, FLOATS, options=(("lambd", 0.5),), cost=6),
    "hardsigmoid": Pointwise(_hardsigmoid, FLOATS, cost=6),
    "hardswish": Pointwise(_hardswish, FLOATS, cost=7),
    "leaky_relu": LEAKY_RELU,
    "elu": ELU,
    "softplus": Pointwise(_softplus, FLOATS, options=(("beta", 1), ("threshold", 20)), cost=45),
    "silu": Pointwise(op(Op.SILU), FLOATS, cost=25),
    "mish": Pointwise(_mish, FLOATS, cost=30),
    "log_sigmoid": Pointwise(_log_sigmoid, FLOATS, cost=45),
    "_prelu_kernel": Pointwise(_leaky_relu, FLOATS, args=("self", "weight"), cost=2, alike=True),
}
"""`aten.name.default`."""

for _name, _rule in ACTIVATIONS.items():
    lowers(f"aten.{_name}.default")(_rule)


# --------------------------------------------------------------------------------------------------
# Shapes


def _log_sigmoid_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """The result, and something for the backward."""
    recipe = shapes.contiguous(shapes.floats_only)(op, args, kwargs, device)
    return None if recipe is None else Several(tuple, (recipe, recipe))


def _prelu_backward_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """The gradients of the input and of the weight, before it is summed. The kernel has its
    operands in another order."""
    grad, x, weight = args
    recipe = shapes.pointwise(3, shapes.floats_only)(op, (x, weight, grad), kwargs, device)
    return None if recipe is None else Several(tuple, (recipe, recipe))


def _rrelu_functional_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """The result and the slopes, which are a copy of what held them."""
    result = shapes.contiguous(shapes.floats_only, everywhere=True)(op, args, kwargs, device)
    slopes = shapes.like(op, args[1:2], {}, device)
    return None if result is None or slopes is None else Several(tuple, (result, slopes))


for _name in ("gelu", "silu", "elu", "leaky_relu", "softplus", "hardswish", "mish"):
    register(f"aten.{_name}.default", shape=shapes.pointwise(1, shapes.floats_only))
register("aten.relu.default", shape=shapes.pointwise(1, shapes.promote))
register("aten.relu_.default", shape=shapes.in_place(1, shapes.promote))
register("aten.log_sigmoid_forward.default", shape=_log_sigmoid_shape, pointwise=True)
register("aten.log_sigmoid_backward.default", pointwise=True)
register("aten._prelu_kernel.default", pointwise=True, layout=like_first)
register("aten._prelu_kernel_backward.default", shape=_prelu_backward_shape)
register("aten.hardtanh.default", layout=like_first)
register(
    "aten.rrelu_with_noise.default",
    shape=shapes.contiguous(shapes.floats_only, everywhere=True),
    pointwise=True,
    functional=torch.ops.aten.rrelu_with_noise_functional.default,
)
register("aten.rrelu_with_noise_functional.default", shape=_rrelu_functional_shape)


register(
    *aten_names("glu log_sigmoid log_sigmoid_forward _prelu_kernel prelu hardswish"), raises=never
)
