"""`struct.Struct` and `struct.iter_unpack` on known data."""

from __future__ import annotations

import _struct
import struct
from typing import TYPE_CHECKING

from pliant.capture.library.folding import on_constants, register_immutable
from pliant.capture.library.python.buffers import known_or_held
from pliant.capture.model import iterate
from pliant.capture.native import function
from pliant.capture.value import Value
from pliant.capture.values.conversion import from_real

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


@function(_struct.iter_unpack)
def iter_unpack(trace: Trace, layout: Value, data: Value) -> Value:
    real_args = (known_or_held(trace, layout), known_or_held(trace, data))
    try:
        return iterate(trace, from_real(trace, list(_struct.iter_unpack(*real_args))))
    except struct.error as error:
        trace.throw(error)


register_immutable(_struct.Struct, on_constants)
