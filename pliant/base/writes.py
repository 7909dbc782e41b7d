"""What nodes of a captured graph say of the memory they write to, and of errors."""

from typing import Final

WRITES: Final = "writes"
"""Under this key a node has how it writes to memory from outside: after all that may refuse it, or
element by element until one does."""
WHOLLY: Final = "wholly"
PARTLY: Final = "partly"

FINAL: Final = "final"
"""The first node with this key does what nobody can put back if a later one fails."""

MODES_KEPT: Final = "modes kept"
"""Under this key a node has how many of the program's changes of PyTorch's modes stay if it fails:
those behind are taken back by `with` blocks around it."""

RAISES: Final = "raises"
"""Under this key a node has whether its call may raise because of the numbers in a tensor."""
