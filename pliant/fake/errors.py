"""What a fake tensor cannot answer, one class per cause.

Each error names the thing that stood in the way in one stable word (`kind` or `op`), so that the
caller can turn it into a graph break without parsing a message.
"""

from __future__ import annotations

from typing import Any


class FakeError(Exception):
    """Something that a tensor without data cannot do."""


class Unsupported(FakeError):
    """A real tensor of a kind that has no fake.

    Fakes stand for ordinary strided tensors (`torch.Tensor`, `nn.Parameter`, buffers). Sparse,
    nested, quantized and mkldnn tensors, tensor subclasses and tensors wrapped by `torch.func` are
    not described by sizes and strides alone, so they stay outside the graph.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(f"no fake for this kind of tensor: {kind}")
        self.kind = kind


class DataDependent(FakeError):
    """An operation whose answer needs the values of a tensor, which a fake does not have.

    `item()`, `bool(t)`, `nonzero`, a boolean mask as an index and the like. The graph has to end
    before such an operation, run, and let plain Python look at the values.
    """

    def __init__(self, op: str) -> None:
        super().__init__(f"{op} needs the values of a tensor, and a fake has none")
        self.op = op


class NoMetaKernel(FakeError):
    """An operator that does not say what its result looks like.

    A custom operator gains that with `torch.library.register_fake`; for one of PyTorch's own, add a
    rule to its record, in `pliant.ops`.
    """

    def __init__(self, op: str) -> None:
        super().__init__(f"{op} has no meta kernel: the shape of its result is unknown")
        self.op = op


class ReadsArgument(FakeError):
    """A function that reads the number in one of its arguments, as `torch.narrow(x, 0, start, 2)`
    does if `start` is a tensor.

    Whoever keeps a graph reads it first, in a node of its own, and calls again with the number.
    """

    def __init__(self, tensor: Any) -> None:
        super().__init__("a number in an argument is read")
        self.tensor = tensor
