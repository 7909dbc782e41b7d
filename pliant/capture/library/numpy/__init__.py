"""NumPy: arrays, scalars and random generators."""
