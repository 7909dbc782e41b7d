"""From the captured graph to a functional one: operators of ATen on values that never change
(`functionalize`), and from there to definitions and calls (`lower`)."""

from pliant.graph import text  # noqa: F401  (it fills the table of ir)
