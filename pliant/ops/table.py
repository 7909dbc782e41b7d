"""Imports every module of rules, so that the table is full."""

from pliant.ops import (  # noqa: F401  # noqa: F401
    creation,
    indexing,
    joining,
    losses,
    norms,
    pointwise,
    pooling,
    reductions,
    resampling,
    scans,
    scattering,
)
