"""The gradients of an operator's samples, eagerly and compiled."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

import pliant
from pliant.base.errors import PliantError
from tests.operators import database
from tests.operators.database import Program

FORMS = {"plain": lambda sample: sample, "fused": database.fused}


# PyTorch's own gradients are sparse, which is no layout that can be compared here.
SPARSE = ("sparse.", "to_sparse")


def operators() -> list[Any]:
    """Every operator with a gradient."""
    return [
        op
        for op in database.operators()
        if torch.float64 in op.dtypes and op.supports_autograd and not op.name.startswith(SPARSE)
    ]


def leaves_of(tensors: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    copies = list(database.copies(tensors))
    for t in copies:
        if t.is_floating_point():
            t.requires_grad_()
    return copies


# Differentiated by the formula that is right for zeros, too (docs/differences.md).
FORMULA_OF_ZEROS = frozenset({"prod", "masked.prod"})


def differentiate(function: Callable[..., Any], tensors: tuple[torch.Tensor, ...]) -> Any:
    """The results, their gradients with respect to the tensors, and the tensors afterwards; or what
    was raised."""
    given = leaves_of(tensors)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*given)
            outputs = [
                leaf
                for _, leaf in database.leaves(result, "")
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad
            ]
            torch.manual_seed(1)
            tangents = [torch.randn_like(out) for out in outputs]
            wanted = [t for t in given if t.requires_grad]
            grads = torch.autograd.grad(outputs, wanted, tangents, allow_unused=True)
        except PliantError:
            raise
        except Exception as error:
            return f"{type(error).__name__}"
    return [leaf for _, leaf in database.leaves(result, "")], list(grads)


def difference(mine: Any, theirs: Any, skip_nan: bool = False) -> str:
    """What differs, or nothing; with `skip_nan`, what differs where eager has a number."""
    if isinstance(mine, str) or isinstance(theirs, str):
        return "" if mine == theirs else f"{mine!s:.60} and {theirs!s:.60}"
    for what, ours, eager in zip(("result", "gradient"), mine, theirs, strict=True):
        for at, (a, b) in enumerate(zip(ours, eager, strict=True)):
            if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
                if (a is None) is not (b is None):
                    return f"{what} {at}: {a} and {b}"
                continue
            if (a.shape, a.dtype, a.requires_grad) != (b.shape, b.dtype, b.requires_grad):
                return f"{what} {at}: {a.shape} {a.dtype} and {b.shape} {b.dtype}"
            if skip_nan:
                a = torch.where(b.isnan(), b, a)
            if not torch.allclose(a, b, 1e-7, 1e-9, equal_nan=True):
                worst = (a - b).abs().nan_to_num().max()
                return f"{what} {at}: by {worst:.3g}"
    return ""


def attempt(sample: Program, dynamic: bool | None, skip_nan: bool = False) -> str:
    """How a sample's gradients differ from eager's; or nothing."""
    eager = differentiate(sample.function(), sample.tensors)
    ours = pliant.compile(sample.function(), backend="llvm", dynamic=dynamic)
    try:
        return difference(differentiate(ours, sample.tensors), eager, skip_nan)
    except PliantError as error:
        return f"{error} <- {error.__cause__!r}"[:300]
    finally:
        pliant.reset()


def broken(op: Any, dynamic: bool | None, count: int, form: str) -> list[tuple[str, str, str]]:
    """What differs in some samples of an operator."""
    differ = []
    for sample in database.spread_samples(op, torch.float64, count):
        if "sparse=True" in sample.source:
            continue
        sample = FORMS[form](sample)
        why = attempt(sample, dynamic, database.name_of(op) in FORMULA_OF_ZEROS)
        if why:
            differ.append((database.name_of(op), sample.source, why))
    return differ
