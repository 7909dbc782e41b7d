"""What residual code calls for the warnings and log records of the program that was followed.

They say from which line they come, so the place goes along.
"""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any


def warn_at(
    message: str | Warning, category: type[Warning], path: str, line: int, space: dict[str, Any]
) -> None:
    """`warnings.warn` of a line that is followed. `space` are the globals of its module."""
    registry = space.setdefault("__warningregistry__", {})
    module = space.get("__name__") or "<string>"
    warnings.warn_explicit(message, category, path, line, module, registry)


def warn_caller(message: str | Warning, category: type[Warning], level: int) -> None:
    """`warnings.warn` with a stack level beyond the compiled function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (level > 0 or not _is_of_program(frame)):
        level -= _is_of_program(frame)
        if level == 0 and _is_of_program(frame):
            break
        frame = frame.f_back
    warn_at(message, category, frame.f_code.co_filename, frame.f_lineno, frame.f_globals)


def _is_of_program(frame: Any) -> bool:
    """Residual code has no module; the rest of pliant is not the program's either."""
    name = frame.f_globals.get("__name__")
    return name is not None and name.partition(".")[0] != "pliant"


def matches(pattern: Any, text: str) -> bool:
    """Whether a filter's pattern fits. Those that Python begins with are plain text, not regular
    expressions."""
    if pattern is None or isinstance(pattern, str):
        return pattern is None or pattern == text
    return pattern.match(text) is not None


def is_error(text: str, category: type[Warning], module: str, line: int) -> bool:
    """Whether the filters of Python turn a warning into an exception."""
    for action, message, kind, module_pattern, at in warnings.filters:
        if (
            matches(message, text)
            and matches(module_pattern, module)
            and issubclass(category, kind)
            and at in (0, line)
        ):
            return action == "error"
    return warnings.defaultaction == "error"  # type: ignore[attr-defined]


def log_at(
    logger: logging.Logger,
    level: int,
    message: Any,
    args: tuple[Any, ...],
    place: tuple[str, int, str],
    error: BaseException | None = None,
    extra: dict[str, Any] | None = None,
) -> None:
    """The end of `Logger._log`, for a line that is followed."""
    path, line, function = place
    info: Any = None if error is None else (type(error), error, error.__traceback__)
    record = logger.makeRecord(
        logger.name, level, path, line, message, args, info, function, extra, None
    )
    logger.handle(record)


def log_to_root(*parts: Any) -> None:
    """The functions of `logging` set the root logger up first, if that was not done."""
    if not logging.root.handlers:
        logging.basicConfig()
    log_at(logging.root, *parts)
