"""Events as JSON: one record each, for files, reports and other processes.

The one idea: a record is an event with all its texts made. It has the name of the event, when and
where it happened, and the event's own fields under their names.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from pliant.base.events import Event

Record = dict[str, Any]


def record_of(event: Event) -> Record:
    """The event as a value of JSON. `time` is in seconds since 1970; `rank` is that of
    torch.distributed, once it is known."""
    about = {
        "event": type(event).__name__,
        "time": time.time(),
        "process": os.getpid(),
        "rank": _rank(),
        "thread": threading.get_ident(),
    }
    return about | {item.name: _plain(getattr(event, item.name)) for item in fields(event)}


def _rank() -> int | None:
    """The rank of this process: from the launcher's environment variable, or from
    torch.distributed."""
    rank = os.environ.get("RANK", "")
    if rank.isdigit():
        return int(rank)
    distributed = torch.distributed
    return distributed.get_rank() if _has_group(distributed) else None


def _has_group(distributed: Any) -> bool:
    return distributed.is_available() and distributed.is_initialized()


@functools.singledispatch
def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    # Texts that cost something to make are given as functions.
    return _plain(value()) if callable(value) else str(value)


@_plain.register(str)
@_plain.register(bool)
@_plain.register(int)
@_plain.register(type(None))
def _(value: Any) -> Any:
    return value


@_plain.register(float)
def _(value: float) -> Any:
    return value if math.isfinite(value) else str(value)  # JSON has no infinity


@_plain.register(Mapping)
def _(value: Mapping[Any, Any]) -> Any:
    return {str(key): _plain(item) for key, item in value.items()}


@_plain.register(tuple)
@_plain.register(list)
def _(value: Any) -> Any:
    return [_plain(item) for item in value]


@_plain.register(BaseException)
def _(value: BaseException) -> Any:
    return f"{type(value).__name__}: {value}"


class JsonLog:
    """A listener that appends each event to a file, as one line of JSON.

    Several processes may write to one file: a line is written at once, to the end.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, event: Event) -> None:
        line = json.dumps(record_of(event)) + "\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        file = os.open(self.path, flags, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


FIELDS = frozenset(["event", "time", "process", "thread"])


def read(path: str | Path, unreadable: list[int] | None = None) -> list[Record]:
    """The records of a file that a `JsonLog` has written. A process that was killed may have left
    half a line: the numbers of lines that are no records are added to `unreadable`."""
    records = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            record = _parsed(line)
            if record is not None:
                records.append(record)
            elif line.strip() and unreadable is not None:
                unreadable.append(number)
    return records


def _parsed(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and record.keys() >= FIELDS else None
