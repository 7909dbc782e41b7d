"""What the back end takes apart of the calls in a captured graph: functions of the program, and
functions that were given to PyTorch, which are graphs of their own (bodies)."""

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

FOLLOWED: Final = "followed"
"""Under this key the call of an `autograd.Function` has how much of it capture has followed, and
found that it only computes."""
FORWARD: Final = "forward"
BOTH: Final = "forward and backward"

LEAVES: Final = "leaves"
"""Under this key a call of `torch.autograd.grad` has whether guards see to it that the history of
its outputs begins in inputs of the graph, without hooks, or in the graph itself."""


class BodyCall(Enum):
    """What a function does with its body."""

    CHECKPOINT = "checkpoint"
    HOOK = "hook"
    BRANCHES = "branches"  # it calls one of two, as a tensor before them says
    LOOP = "loop"  # it calls each of its bodies as often as the data says
    TRANSFORM = "transform"  # it calls its body on tensors of its own, which do the rest
    FORWARD_MODE = "forward mode"  # the same, with dual tensors
    INLINED = "inlined"  # it calls its body once, with the arguments behind it
    MODULE_HOOKS = "module hooks"  # it makes the object that calls the hooks of a module
    SETS_UP_HOOKS = "sets up module hooks"  # around tensors, so that this object calls them


BODY_CALLS: Final[dict[Callable[..., Any] | str, BodyCall]] = {}
