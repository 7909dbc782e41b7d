"""The families of operators, each a module, and when it is imported.

The one idea: a family is imported when an operator is looked up in whose name one of its stems
occurs. A stem that fits too many names costs time and nothing else; that none is missing, a test
checks for every record.
"""

from __future__ import annotations

from typing import Final

from pliant.base.operators import fill_from

FAMILIES: Final = {
    # Nearly every program has these.
    "activations": "",
    "copies": "",
    "pointwise": "",
    "powers": "",
    "reshaping": "",
    "views": "",
    # What most networks are made of.
    "attention": "attention",
    "convolution": "conv col unfold",
    "creation": "arange empty eye full hot indices iota linspace new ones rand scalar zeros",
    "indexing": "embedding gather index item scatter take",
    "joining": "cat diag flip pad repeat roll rot shuffle stack tile tri",
    "losses": "entropy loss",
    "matmul": "addr cross dist dot einsum ger linear mat mm mv outer",
    "norms": "norm",
    "pooling": "pool",
    "philox": "philox",
    "random": "bernoulli binomial cauchy dirichlet dropout exponential geometric normal poisson "
    "rand standard_gamma uniform",
    "recurrent": "gru lstm pack rnn",
    "reductions": "all any arg count dist kth max mean median min mode norm prod std sum trace var",
    "resampling": "interpolate sampl",
    "scans": "cum",
    "scattering": "index scatter",
    "softmax": "softmax",
    # What PyTorch composes of other operators.
    "compositions": "affine_grid corrcoef cov gradient",
    # How gradients are computed.
    "differentiable": "linear matmul norm",
    "gradients": "backward",
    "recurrent_steps": "gru lstm rnn",
    # What PyTorch runs.
    "opaque": "bucketize cov corrcoef eig fft fused histogram index isin lu_ nested qrf quantize "
    "resize solve sort stft svd topk view_copy",
    "unbacked": "argwhere bincount equal item lstsq nested nonzero repeat scalar search select "
    "unique",
}

for _family, _stems in FAMILIES.items():
    fill_from(f"pliant.ops.{_family}", _stems)
