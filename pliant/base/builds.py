"""Which builds of Python and PyTorch pliant runs on."""

from __future__ import annotations

import importlib
from types import ModuleType


def check_build(abiflags: str) -> None:
    """Refuse the free-threaded build: what guards read of an object must stay until the call.

    `abiflags` are those of the interpreter, of which `t` stands for that build.
    """
    if "t" in abiflags:
        raise ImportError(
            "pliant needs Python's global interpreter lock, and this is the free-threaded build of "
            "Python, which has none. Use the ordinary build of the same version."
        )


def check_extension(name: str, running: str) -> None:
    """Refuse an extension that was built with the headers of another minor version of PyTorch than
    the one that is running. Its classes may have other layouts: if it can be loaded at all, it
    reads the wrong memory."""
    try:
        extension: ModuleType = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"pliant's extension can't be loaded: {error}. {_advice(running)}"
        ) from error
    built_for: str | None = getattr(extension, "built_for", None)
    if built_for is None:
        raise ImportError(f"pliant's extension is older than its Python code. {_advice(running)}")
    if _minor(built_for) != _minor(running):
        raise ImportError(
            f"pliant's extension was built for torch {_minor(built_for)}, and this is torch "
            f"{running}. {_advice(running)}"
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _advice(running: str) -> str:
    minor = _minor(running)
    return (
        f"Install the wheel of pliant for torch {minor}, whose version ends in +torch{minor}, or "
        "build it from its source: pip install --no-build-isolation --force-reinstall --no-deps ."
    )
