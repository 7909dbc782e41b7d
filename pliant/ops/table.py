"""Imports every module of rules, so that the table is full."""

from pliant.ops import losses, norms, pointwise, reductions  # noqa: F401
from pliant.ops import creation, indexing, joining, pooling, resampling  # noqa: F401
