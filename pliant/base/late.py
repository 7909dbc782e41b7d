"""Modules of others that are imported when they are first used: most programs never need them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A module that is imported at the first access to an attribute. For type checkers, write the
    real import beside it, under `TYPE_CHECKING`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)
