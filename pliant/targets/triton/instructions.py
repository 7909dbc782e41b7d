"""Functions of one instruction of NVIDIA's GPUs, in the place of those of libdevice.

The one idea: NVIDIA's library of functions is read as a whole for each kernel that calls one of
them, and no other thread runs Python meanwhile. The most frequent ones are an instruction, which a
kernel can name itself: the machine code is the same but for the names of registers. What takes more
than one stays with the library.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import triton.language as tl
from triton.language.extra.cuda import libdevice

INSTRUCTIONS: Final = {
    "rsqrt": "rsqrt.approx.f32",
    "exp2": "ex2.approx.f32",
    "nearbyint": "cvt.rni.f32.f32",
    "floor": "cvt.rmi.f32.f32",
    "ceil": "cvt.rpi.f32.f32",
    "trunc": "cvt.rzi.f32.f32",
}
"""By the names of functions, for float32; float64 is the library's."""


def _function(name: str, instruction: str) -> Callable[..., Any]:
    of_library = getattr(libdevice, name)

    def call(x: Any, _semantic: Any = None) -> Any:
        x = _semantic.to_tensor(x)
        if x.dtype != tl.float32:
            return of_library(x, _semantic=_semantic)
        return tl.inline_asm_elementwise(
            f"{instruction} $0, $1;", "=r,r", [x], tl.float32, True, 1, _semantic=_semantic
        )

    return tl.core.builtin(call)


LIBRARY: Final = ModuleType("libdevice")
"""As Triton's module of that name."""
vars(LIBRARY).update(vars(libdevice))
vars(LIBRARY).update({name: _function(name, text) for name, text in INSTRUCTIONS.items()})
