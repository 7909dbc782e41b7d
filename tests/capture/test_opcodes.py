"""Every opcode of the running Python version has a handler."""

import pliant.capture.capture  # noqa: F401  fills the table
from pliant.bytecode.tables import OPCODES
from pliant.capture.interpreter import HANDLERS, missing_handlers


def test_no_opcode_is_missing():
    assert len(HANDLERS) == len(OPCODES)
    assert missing_handlers() == []
