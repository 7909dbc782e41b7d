"""What a compiled function does with calls, as `Dispatcher.mode` in native code has it."""

from __future__ import annotations

import enum


class DispatchMode(enum.IntEnum):
    """The modes, in the order of the `enum` in `csrc/dispatcher.cpp`."""

    COMPILE = 0  # a call that fits no entry is compiled
    EAGER_ON_MISS = 1  # such a call runs the function as it is
    EAGER = 2  # every call does
