"""Knowledge of built-in code, one module for each family. Importing this package fills the tables."""

from pliant.capture.library import (
    builtins,
    classes,
    copying,
    exceptions,
    functional,
    matching,
    numbers,
    objects,
    pytorch,
    strings,
)

__all__ = [
    "builtins",
    "classes",
    "copying",
    "exceptions",
    "functional",
    "matching",
    "numbers",
    "objects",
    "pytorch",
    "strings",
]
