"""Index expressions as Triton source."""

from pliant.sym.cond import le
from pliant.sym.expr import if_else, symbol
from pliant.targets.triton.index_text import IndexText, KernelArguments, Text

I, J, SIZE = symbol("i0"), symbol("i1"), symbol("s0")


def test_what_is_compared_has_64_bits():
    """The index is bounded by the memory that it is of, and a number in a condition by nothing."""
    writer = IndexText(KernelArguments())
    writer.names = {I: Text("i0", frozenset({"rows"})), J: Text("i1", frozenset({"columns"}))}
    writer.extents = {I: SIZE, J: SIZE}
    text = writer.write(if_else(le(I * SIZE + J, 7), I, J)).text
    assert "i0.to(tl.int64) * s0_wide" in text
    assert text.endswith("i0, i1)")
