"""Guards on a number that a tensor holds: the step of an optimizer, a counter of a module.

The one idea: what the program computed from that number on the way to a condition is computed again
by the guard, by PyTorch itself, on a copy. So it rounds as the program does, and the guard is as
good as the answer that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.sym.cond import Cond
from pliant.sym.expr import evaluate


@dataclass(frozen=True, slots=True)
class StateTensor:
    """The tensor that holds the number, as it is before the call."""

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()  # the next operation may be one that writes

    def __str__(self) -> str:
        return "t"


@dataclass(frozen=True, slots=True)
class KnownTensor:
    """A tensor with a number that does not depend on the one in question."""

    number: bool | int | float
    dtype: torch.dtype

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.tensor(self.number, dtype=self.dtype)

    def __str__(self) -> str:
        return repr(self.number)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of PyTorch; its arguments are constants and others like it, also in lists."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    size: int  # how many operations there are in all

    def compute(self, tensor: torch.Tensor) -> torch.Tensor:
        args = [_computed(arg, tensor) for arg in self.args]
        kwargs = {name: _computed(arg, tensor) for name, arg in self.kwargs}
        result: torch.Tensor = single_result(self.function(*args, **kwargs), args)
        return result

    def __str__(self) -> str:
        named = [f"{name}={_text(arg)}" for name, arg in self.kwargs]
        return f"{self.function.__name__}({', '.join([*map(_text, self.args), *named])})"


def single_result(result: Any, args: list[Any]) -> Any:
    """The tensor that an operation gives. One on lists is given lists of one tensor; of those that
    write, some versions of PyTorch return nothing."""
    if result is None and args and type(args[0]) is list:
        return args[0][0]
    return result[0] if isinstance(result, list | tuple) and len(result) == 1 else result


Recipe = StateTensor | KnownTensor | Operation
RECIPES = (StateTensor, KnownTensor, Operation)


def _computed(arg: Any, tensor: torch.Tensor) -> Any:
    if type(arg) is tuple:
        return [_computed(item, tensor) for item in arg]
    return arg.compute(tensor) if isinstance(arg, RECIPES) else arg


def _text(arg: Any) -> str:
    if type(arg) is tuple:
        return f"[{', '.join(map(_text, arg))}]"
    return str(arg) if isinstance(arg, RECIPES) else repr(arg)


def _holders(tensor: torch.Tensor) -> int:
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


_ALONE: Final = _holders(torch.zeros(()))


def owns_memory(tensor: torch.Tensor) -> bool:
    """Whether no other tensor shares its memory, so that only writes to this one change it."""
    return _holders(tensor) == _ALONE


class StateNumberFulfils:
    """Of a tensor with one element: a condition holds for what is computed from its number."""

    __slots__ = ("condition", "last", "numbers", "text")

    def __init__(self, condition: Cond, numbers: tuple[tuple[Any, Recipe], ...], text: str) -> None:
        self.condition = condition
        self.numbers = numbers  # what each symbol of the condition is
        self.text = text  # the condition on `t`
        # The last number for which it held. Mostly all parameters have made the same steps, and
        # conditions that are alike share this object.
        self.last: bool | int | float | None = None

    def __call__(self, tensor: torch.Tensor) -> bool:
        try:
            number = tensor.item()
            # Another tensor in the same memory could change the number while the program runs, and
            # capture would not see that write.
            if not owns_memory(tensor):
                return False
        except (AttributeError, RuntimeError):  # it is something else by now
            return False
        if number and number == self.last:  # 0.0 == -0.0, which aren't alike
            return True
        if not self.holds(tensor):
            return False
        self.last = number
        return True

    def holds(self, tensor: torch.Tensor) -> bool:
        try:
            numbers = {symbol: recipe.compute(tensor).item() for symbol, recipe in self.numbers}
            return bool(evaluate(self.condition, numbers))
        except (ArithmeticError, ValueError):  # it has no value, so it doesn't hold
            return False

    def __repr__(self) -> str:
        return f"(lambda t: {self.text})"
