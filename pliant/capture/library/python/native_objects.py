"""Objects of C++ classes (pybind11) that never change: enumerations, and classes that a module here
names. They are constants, and their methods and properties are asked during capture."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.model import DESCRIPTORS, FOLDABLE, NATIVE_VALUES
from pliant.capture.value import Const, Value
from pliant.capture.values.functions import BoundMethod
from pliant.capture.wrap import CHOOSERS, Builder, native_value

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

PYBIND_METHOD = type(vars(torch._C.FileCheck)["check"])  # as `instancemethod`, which has no name
ENTRIES = "__entries"  # what pybind11 keeps of an enumeration


def is_enumeration(cls: type) -> bool:
    return type(cls).__module__ == "pybind11_builtins" and ENTRIES in vars(cls)


def never_changes(cls: type) -> None:
    """Declare a C++ class whose objects are values."""
    NATIVE_VALUES.add(cls)
    FOLDABLE.add(cls)


def _builder_of(cls: type) -> Builder | None:
    if is_enumeration(cls):
        never_changes(cls)
    return native_value if cls in NATIVE_VALUES else None


def _bind_method(
    trace: Trace, descriptor: Any, obj: Value, cls: type, name: str, direct: bool
) -> Value:
    return BoundMethod(Const(descriptor.__func__), obj)


assert PYBIND_METHOD is not types.MethodType
DESCRIPTORS[PYBIND_METHOD] = _bind_method
CHOOSERS.append(_builder_of)
