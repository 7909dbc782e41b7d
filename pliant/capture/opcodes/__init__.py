"""The opcodes of CPython 3.11 to 3.14, grouped as the language reference groups what they are for.

Importing this package fills `interpreter.HANDLERS`; `tests/capture/test_opcodes.py` proves that
none is missing."""

from pliant.capture.opcodes import (
    calls,
    control,
    data,
    exceptions,
    generators,
    meanings,
    variables,
)

meanings.add_meanings()

__all__ = ["calls", "control", "data", "exceptions", "generators", "meanings", "variables"]
