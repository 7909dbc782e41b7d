"""Sleef, the library of vector functions that PyTorch brings along and computes with itself.

The one idea: functions are known to generated code by name, and their addresses are looked up in
PyTorch's own library when code is loaded. Where that has none (another processor, another build),
there is no such name, and the C library is called lane by lane. Conversions of halves, which LLVM
calls by name for processors that have none of their own, are looked up in the compiler's library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import torch

# The names of functions, by what is said of their errors: units in the last place, times 10. Its
# asinh and acosh are infinite where their argument's square is; PyTorch does without them too.
_ACCURACY: Final = {
    **dict.fromkeys(("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "atan2"), "u10"),
    **dict.fromkeys(("atanh", "erf", "pow"), "u10"),
    "erfc": "u15",
    "hypot": "u05",
}
_OURS: Final = frozenset({"sin", "cos", "erf", "pow"})
"""Of floats: the C library is for what our own code leaves to it, in lanes as without."""
_TORCH: Final = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
_MACHINES: Final = {64: "avx512f", 32: "avx2"}  # by the bytes of a vector
_NAME: Final = re.compile(rb"Sleef_\w+|__(?:extendhfsf2|truncsfhf2|truncdfhf2)")


def vector_function(name: str, type: str, vector_bytes: int) -> tuple[str, int] | None:
    """The symbol for a function of the C library (by its name for doubles) and its lanes."""
    accuracy, machine = _ACCURACY.get(name), _MACHINES.get(vector_bytes)
    if accuracy is None or machine is None or (type == "float" and name in _OURS):
        return None
    lanes = vector_bytes // (4 if type == "float" else 8)
    # Sleef_tanf16_u10avx512f, say: the function, the type, the lanes, the error and the machine.
    symbol = f"Sleef_{name}{type[0]}{lanes}_{accuracy}{machine}"
    return (symbol, lanes) if address(symbol) else None


@lru_cache(None)
def address(symbol: str) -> int | None:
    library = _library(str(_TORCH) if symbol.startswith("Sleef") else "libgcc_s.so.1")
    function = getattr(library, symbol, None) if library is not None else None
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


@lru_cache(None)
def _library(path: str) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(path)
    except OSError:
        return None


def needed_by(object_code: bytes) -> Iterator[tuple[str, int]]:
    """Symbols and addresses of what object code calls."""
    # The names stand in the symbol table as text; to look for them is easier than to parse the
    # file, and a name too many does no harm.
    for name in sorted({symbol.decode() for symbol in _NAME.findall(object_code)}):
        symbol = address(name)
        if symbol is not None:
            yield name, symbol
