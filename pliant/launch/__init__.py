"""The launch sequence: what the native launcher does, step by step, to run a compiled graph."""
