"""How exact each pointwise operator is: the table that `test_accuracy` holds.

A bound is in units in the last place, for f32, f64 and halves. Where a result is farther than that
from eager PyTorch's, which has one for elements in vectors and sometimes another one for the rest,
its distance to the exact result may be this much, or as much as that of the better one of these.
"""

import math

from pliant.ops.lowering import lowerings

MODULES = ("elementwise", "pointwise", "activations", "powers")


def pointwise():
    """The names of all operators that are lowered to a function of elements at the same place."""
    modules = {f"pliant.ops.{name}" for name in MODULES}
    return [name for name, rule in lowerings().items() if rule.__module__ in modules]


SAME = (0, 0, 0)
"""Eager's, to the bit."""

BOUNDS = dict.fromkeys(
    """
    abs neg sign sgn floor ceil trunc round frac square bitwise_not logical_not signbit isnan isinf
    isfinite isposinf isneginf rsqrt reciprocal deg2rad rad2deg nan_to_num
    add sub rsub mul div true_divide floor_divide addcmul addcdiv lerp
    minimum maximum min max fmin fmax clamp clamp_min clamp_max heaviside copysign nextafter hypot
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
    bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ eq ne lt le gt ge
    relu relu6 hardtanh threshold hardshrink softshrink hardsigmoid hardswish leaky_relu rrelu
    _prelu_kernel remainder fmod asinh acosh
    """.split(),
    SAME,
) | {
    "sqrt": (1, 0, 0),
    "exp": (1, 1, 1),
    "exp2": (1, 1, 1),
    "expm1": (1.6, 2, 1),
    "log": (1, 1, 1),
    "log2": (1, 1, 1),
    "log10": (1, 1, 1),
    "log1p": (1.6, 1, 1),
    "sin": (1.6, 1, 1),
    "cos": (1.6, 1, 1),
    "tan": (1, 1, 1),
    "tanh": (1, 2, 1),
    "sigmoid": (2, 1, 1),
    "erf": (1, 1, 1),
    "erfc": (2, 2, 1),
    "sinh": (1, 1, 1),
    "cosh": (1, 1, 1),
    "asin": (1, 1, 1),
    "acos": (1, 1, 1),
    "atan": (1, 1, 1),
    "atan2": (1, 1, 1),
    "atanh": (1, 1, 1),
    "lgamma": (3, 3, 1),
    "pow": (1, 1, 1),
    "sinc": (2, 2, 1),
    "special_entr": (2, 2, 1),
    "xlogy": (2, 2, 1),
    "special_xlog1py": (2, 2, 1),
    "logaddexp": (2, 2, 1),
    "logaddexp2": (2, 2, 1),
    "logit": (1, 2, 1),
    "silu": (2, 2, 1),
    "glu": (2, 2, 1),
    "gelu": (4, 4, 3),
    "mish": (4, 4, 1),
    "softplus": (2, 2, 1),
    "log_sigmoid": (2, 2, 1),
    "elu": (2, 2, 1),
    "selu": (3, 3, 1),
    "celu": (2, 2, 1),
}

RELATIVE_TO_ARGUMENTS = frozenset({"logaddexp", "logaddexp2", "gelu"})
"""Where the terms of a sum cancel, in eager's formula too: units are those of the largest
argument."""

X = "tensor"
NUMBERS = (0.1234567, -2.5, 3, -0.0, 1e-42, math.inf, math.nan, True, 70)
FEW = NUMBERS[:5:2]

CALLS = {
    "aten.add.Tensor": [(X, X), (X, X, {"alpha": 3}), (X, 2.5), (X, X, {"alpha": 0.1234567})],
    "aten.sub.Tensor": [(X, X), (X, X, {"alpha": 3}), (X, 2.5)],
    "aten.rsub.Tensor": [(X, X), (X, X, {"alpha": 3})],
    "aten.addcmul.default": [(X, X, X), (X, X, X, {"value": 0.1234567}), (X, X, X, {"value": 3})],
    "aten.addcdiv.default": [(X, X, X), (X, X, X, {"value": 0.1234567})],
    "aten.clamp.default": [(X, -1, 1), (X, 0.1234567, 2.5), (X, None, -0.0), (X, 0.0, None)],
    "aten.clamp.Tensor": [(X, X, X), (X, X), (X, None, X)],
    "aten.div.Tensor_mode": [(X, X, {"rounding_mode": m}) for m in ("floor", "trunc", None)],
    "aten.div.Scalar_mode": [(X, 0.1234567, {"rounding_mode": m}) for m in ("floor", "trunc")],
    "aten.round.decimals": [(X, {"decimals": n}) for n in (0, 1, 3, -2)],
    "aten.nan_to_num.default": [(X,), (X, 1.5, 2.5, -3.5)],
    "aten.hardtanh.default": [(X,), (X, -0.1234567, 0.7654321)],
    "aten.threshold.default": [(X, 0.1234567, 7.1234567), (X, -1, 3), (X, 0.5, math.nan)],
    "aten.hardshrink.default": [(X,), (X, 0.1234567)],
    "aten.softshrink.default": [(X,), (X, 0.1234567)],
    "aten.leaky_relu.default": [(X,), (X, 0.1234567), (X, -1.5)],
    "aten.rrelu.default": [(X,), (X, 0.1, 0.3)],
    "aten.elu.default": [(X,), (X, 0.7, 1.3, 0.9)],
    "aten.celu.default": [(X,), (X, 0.7)],
    "aten.softplus.default": [(X,), (X, 2.0, 7.0)],
    "aten.gelu.default": [(X,), (X, {"approximate": "tanh"})],
    "aten.logit.default": [(X,), (X, 1e-3)],
    "aten.lerp.Scalar": [(X, X, 0.1234567), (X, X, 0.75)],
    "aten.pow.Tensor_Scalar": [(X, n) for n in (0.1234567, -2.5, 0, 1, 2, 3, 0.5, -0.5, -1, -2, 4)],
    "aten.pow.Scalar": [(n, X) for n in (0.1234567, -2.5, 1, 2, 0.0, math.inf)],
}
"""The arguments an operator is called with, if not those its schema asks for: tensors, each with
all `NUMBERS` in place of a number."""
