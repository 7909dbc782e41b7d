"""Whether a graph break is an error where the program is now (`pliant.error_on_graph_break`)."""

from __future__ import annotations

import threading


class _State(threading.local):
    breaks_are_errors = False


_state = _State()


def get_error_on_graph_break() -> bool:
    return _state.breaks_are_errors


def set_error_on_graph_break(flag: bool) -> None:
    _state.breaks_are_errors = flag
