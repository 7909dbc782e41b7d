"""Every opcode of the running Python version has a handler."""

import pliant.capture.capture  # noqa: F401  fills the table
from pliant.bytecode.tables import OPCODES
from pliant.capture.interpreter import HANDLERS


def test_no_opcode_is_missing():
    assert sorted(set(OPCODES) - set(HANDLERS)) == []
    assert len(HANDLERS) == len(OPCODES)
