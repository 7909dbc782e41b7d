"""Which builds of Python pliant runs on."""

from __future__ import annotations


def check_build(abiflags: str) -> None:
    """Refuse the free-threaded build: what guards read of an object must stay until the call.

    `abiflags` are those of the interpreter, of which `t` stands for that build.
    """
    if "t" in abiflags:
        raise ImportError(
            "pliant needs Python's global interpreter lock, and this is the free-threaded build of "
            "Python, which has none. Use the ordinary build of the same version."
        )
