"""PLIANT_INSTALL=1: pliant in every process that imports torch.

torch calls this at the end of its import (the entry point group `torch.backends`). A module of its
own, because the package `pliant` is not to be imported by programs that don't ask for it.
"""

import os


def autoload() -> None:
    if os.environ.get("PLIANT_INSTALL", "0") not in ("", "0"):
        import pliant  # noqa: F401, PLC0415  (installs itself, where this is set)
