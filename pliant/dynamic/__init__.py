"""Which inputs become symbols: marks, lists of sources, what changed, and the rule that decides."""
