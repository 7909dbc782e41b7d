"""Programs that run in processes of their own."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**variables: str) -> dict[str, str]:
    """The environment for a program that imports pliant from here, and what this one imports."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return os.environ | {"PYTHONPATH": path} | variables
