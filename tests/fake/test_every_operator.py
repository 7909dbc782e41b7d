"""PyTorch's own samples of every operator, on fakes and for real, in several layouts.

What fakes cannot do is listed with its reason. The list is exact: an operator that starts to fail,
and one that stops failing, both fail the test.
"""

from __future__ import annotations

import itertools
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pliant.base.errors import DataDependentError
from pliant.fake import DataDependent, FakeError, NoMetaKernel, Unsupported

SAMPLES = 4  # of each operator, in each layout, with and without grad

# The result is in the values, and is no number that could be given a name.
DATA_DEPENDENT = {
    "allclose",
    "cov",  # with weights, which it refuses when negative
    "equal",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "tensor_split",  # by a tensor of indices
}
# PyTorch asks a question about a value: it has a name, but no answer.
UNDECIDABLE = {
    "nn.functional.gaussian_nll_loss",  # refuses negative variances
    "nn.functional.one_hot",  # without num_classes
    "tensor_split",  # into a number of parts that is in a tensor
}
SPARSE = {"sparse.mm.reduce", "sparse.sampled_addmm"}
NO_META_KERNEL = {"to_sparse"}
# Before 2.13 these check that the quantiles lie between 0 and 1 by looking at them.
READ_THEIR_ARGUMENTS = () if torch.__version__ >= "2.13" else ("quantile", "nanquantile")
EXPECTED = {
    DataDependent.__name__: {*DATA_DEPENDENT, *READ_THEIR_ARGUMENTS},
    DataDependentError.__name__: UNDECIDABLE,
    Unsupported.__name__: SPARSE,
    NoMetaKernel.__name__: NO_META_KERNEL,
}
NOT_ON_CPU = "jiterator_"


def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Any, torch.dtype]]:
    # The module of samples also holds PyTorch's test base class, which wants a package for it, and
    # reads the command line.
    stub = types.ModuleType("expecttest")
    stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stub)
    argv, sys.argv = sys.argv, sys.argv[:1]
    try:
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core
    finally:
        sys.argv = argv
    # These read the call stack for each sample; most of the time would go into them.
    for module, name in (
        (common_utils, "set_rng_seed"),
        (common_utils, "extract_test_fn"),
        (core, "extract_test_fn"),
    ):
        monkeypatch.setattr(module, name, lambda *args, **kwargs: None)
    for op in op_db:
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        dtypes = sorted(op.dtypes, key=lambda dtype: (dtype is not torch.float32, str(dtype)))
        if dtypes and not name.startswith(NOT_ON_CPU):
            yield name, op, dtypes[0]


def flipped(t: torch.Tensor) -> torch.Tensor:
    if t.layout is not torch.strided or t.dim() < 2 or not t.is_contiguous():
        return t
    other = t.detach().transpose(-1, -2).contiguous().transpose(-1, -2)
    return other.requires_grad_(t.requires_grad)


def channels_last(t: torch.Tensor) -> torch.Tensor:
    form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim())
    if form is None or t.layout is not torch.strided:
        return t
    return t.detach().contiguous(memory_format=form).requires_grad_(t.requires_grad)


LAYOUTS = {"plain": lambda t: t, "flipped": flipped, "channels last": channels_last}


def calls(op: Any, dtype: torch.dtype) -> Iterator[tuple[Any, dict[str, Any]]]:
    grads = {False, op.supports_autograd and dtype.is_floating_point}
    for grad in sorted(grads):
        samples = op.sample_inputs("cpu", dtype, requires_grad=grad)
        for sample in itertools.islice(samples, SAMPLES):
            yield (sample.input, *sample.args), sample.kwargs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_operator(
    agree: Any, change: Any, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    outcomes: dict[str, set[str]] = {}
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op, dtype in operators(monkeypatch):
            for call in calls(op, dtype):
                args, kwargs = change(call, LAYOUTS[layout])
                if not runs(op.op, change((args, kwargs), torch.clone)):
                    continue
                compared += 1
                try:
                    agree(op.op, *args, **kwargs)
                except (FakeError, DataDependentError) as error:
                    outcomes.setdefault(type(error).__name__, set()).add(name)
                except Exception as error:
                    text = f"{type(error).__name__}: {str(error)[:200]}"
                    outcomes.setdefault(text, set()).add(name)
    assert outcomes == EXPECTED
    assert compared > 4000


# Numbers that are in an operator's own arguments are known; the sizes of its tensors are not.
NOT_WITH_SYMBOLS = {
    "resize_": "Unsupported",
    "resize_as_": "Unsupported",
}


@pytest.mark.parametrize(
    "layout",
    ["plain", *(pytest.param(name, marks=pytest.mark.long) for name in LAYOUTS if name != "plain")],
)
def test_every_operator_with_symbolic_sizes(
    agree_symbolically: Any, change: Any, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """All sizes of all tensors are symbols; the result has to look right for the present ones."""
    expected = {name: kind for kind, names in EXPECTED.items() for name in names}
    expected |= NOT_WITH_SYMBOLS
    outcomes: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op, dtype in operators(monkeypatch):
            for call in calls(op, dtype):
                args, kwargs = change(call, LAYOUTS[layout])
                if not runs(op.op, change((args, kwargs), torch.clone)):
                    continue
                try:
                    agree_symbolically(op.op, *args, **kwargs)
                except Exception as error:
                    kind = type(error).__name__
                    known = kind == expected.get(name) or name in UNDECIDABLE
                    outcomes[name] = "" if known else f"{kind}: {str(error)[:300]}"
    assert {name: said for name, said in outcomes.items() if said} == {}


def runs(func: Callable[..., Any], call: tuple[tuple[Any, ...], dict[str, Any]]) -> bool:
    """Whether eager accepts the call: not every operator takes every layout."""
    try:
        func(*call[0], **call[1])
    except Exception:
        return False
    return True
