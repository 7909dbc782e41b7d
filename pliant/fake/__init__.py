"""Tensors without data, on which any PyTorch function can be run to learn what it would return."""

from pliant.fake.convert import is_transformed, kind_without_fake
from pliant.fake.errors import DataDependent, FakeError, NoMetaKernel, ReadsArgument, Unsupported
from pliant.fake.spec import TensorSpec, metadata
from pliant.fake.tensor import Fake
from pliant.fake.world import OpResult, World

__all__ = [
    "DataDependent",
    "Fake",
    "FakeError",
    "NoMetaKernel",
    "OpResult",
    "ReadsArgument",
    "TensorSpec",
    "Unsupported",
    "World",
    "is_transformed",
    "kind_without_fake",
    "metadata",
]
