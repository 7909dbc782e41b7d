"""`pliant.repro`: a failure, or a wrong result, becomes a script of a few lines."""
