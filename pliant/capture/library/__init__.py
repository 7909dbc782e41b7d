"""Knowledge of built-in code, one module for each family. Importing this package fills the
tables."""

from pliant.capture.library import (
    builtins,
    classes,
    copying,
    deques,
    exceptions,
    functional,
    functions,
    iteration,
    mappings,
    matching,
    numbers,
    objects,
    pytorch,
    sequences,
    sets,
    strings,
    views,
)

__all__ = [
    "builtins",
    "classes",
    "copying",
    "deques",
    "exceptions",
    "functional",
    "functions",
    "iteration",
    "mappings",
    "matching",
    "numbers",
    "objects",
    "pytorch",
    "sequences",
    "sets",
    "strings",
    "views",
]
