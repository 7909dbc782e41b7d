"""Loops over buffers: what a fused kernel computes, without saying for which machine."""
