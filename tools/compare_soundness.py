"""Runs the probes of tests/test_soundness.py with torch.compile and with pliant, and counts how
often each gives an answer that differs from eager's.

    python tools/compare_soundness.py
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # noqa: TID251

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pliant
from tests import test_soundness
from tests.support.against_eager import same
from tests.support.side_by_side import Probe, Probes, observe


def stock(function: Any) -> Any:
    return torch.compile(function, backend="eager")


# By default torch.compile does not guard the hooks of modules; it has an option for that.
HOOKS = {"skip_nnmodule_hook_guards": False}
COMPILERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    f"torch.compile {torch.__version__}": (stock, {}),
    "the same with hooks guarded": (stock, HOOKS),
    f"pliant {pliant.__version__}": (pliant.compile, {}),
}


def differs(probe: Probe, compile: Callable[..., Any]) -> bool:
    expected = observe(probe, lambda function: function)
    torch.compiler.reset()
    pliant.reset()
    try:
        same(observe(probe, compile), expected)
    except Exception:  # a wrong answer, or an error that eager does not raise
        return True
    return False


def main() -> None:
    warnings.simplefilter("ignore")
    collections = [item for item in vars(test_soundness).values() if isinstance(item, Probes)]
    params = [param for probes in collections for param in probes.params]
    for name, (compile, settings) in COMPILERS.items():
        with torch._dynamo.config.patch(settings):  # noqa: TID251  the one to compare with
            wrong = [param.id for param in params if differs(param.values[0], compile)]
        print(f"{name}: {len(wrong)} of {len(params)} differ from eager", *wrong, sep="\n    ")


if __name__ == "__main__":
    main()
