"""What a checkpoint saves, as the program says it (`create_selective_checkpoint_contexts`).

Such a policy speaks of the operators that eager PyTorch runs. A graph may have one that stands for
several of them: it is saved if one of those is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.utils.checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

from pliant.graph.aliases import NotFunctionalized

Policy = Callable[[Any], bool]
"""Whether the result of an operator is saved."""

aten = torch.ops.aten
STANDS_FOR: Final = {
    aten.linear.default: (aten.mm.default, aten.addmm.default),
    aten.matmul.default: (aten.mm.default, aten.bmm.default, aten.mv.default),
    aten.scaled_dot_product_attention.default: (
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
    ),
}
SAVES: Final = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


def saves_nothing(operator: Any) -> bool:
    return False


def policy_of(context_fn: Any = None) -> Policy | None:
    """The policy of a checkpoint's `context_fn`, by default to save nothing; None if that does
    something else, so that PyTorch has to run the checkpoint."""
    if context_fn is None:
        return saves_nothing
    if not isinstance(context_fn, functools.partial) or context_fn.keywords:
        return None
    if context_fn.func is not create_selective_checkpoint_contexts or len(context_fn.args) != 1:
        return None
    (policy,) = context_fn.args
    if isinstance(policy, list):
        return lambda operator: any(name in policy for name in _operators(operator))
    context = SelectiveCheckpointContext(is_recompute=False)

    def saves(operator: Any) -> bool:
        try:
            return any(policy(context, name) in SAVES for name in _operators(operator))
        except (
            Exception
        ) as error:  # it looks at the arguments of the call, which are no tensors yet
            raise NotFunctionalized("a checkpoint whose policy wants to see arguments") from error

    return saves


def _operators(operator: Any) -> tuple[Any, ...]:
    if not isinstance(operator, torch._ops.OpOverload):
        return ()
    return (operator, *STANDS_FOR.get(operator, ()))
