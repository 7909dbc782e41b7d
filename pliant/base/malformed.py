"""What checkers of stages raise."""

from __future__ import annotations


class MalformedStageError(ValueError):
    """What a stage handed to the next breaks a rule; the message says which, and where."""
