"""Loops over buffers: what a fused kernel computes, without saying for which machine."""

from pliant.loop import show  # noqa: F401  (it fills the table of ir)
