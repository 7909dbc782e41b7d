"""Every opcode of the running Python version has a handler."""

import pliant.capture.capture  # noqa: F401  fills the table
from pliant.bytecode.tables import OPCODES
from pliant.capture.interpreter import HANDLERS


def test_no_opcode_is_missing():
    replaced = {name for name, info in OPCODES.items() if _is_replaced(name, info)}
    assert sorted(set(OPCODES) - set(HANDLERS)) == sorted(replaced)


def _is_replaced(name, info):
    """Whether others are decoded in its place."""
    return info.parts is not None and name not in dict(info.parts(0))
