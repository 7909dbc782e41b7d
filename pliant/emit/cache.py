"""Machine code on disk, so that a second process compiles nothing.

The one idea: a file is named after the hash of all that its contents depend on, and says so itself;
whatever isn't exactly that (damaged, cut short, someone else's, unreadable) is as good as absent.
No failure of the disk is an error here.

A file is one line of JSON (what it is for, how long it is, its hash) and the object code. It is
written beside its place and moved there, so that no process sees half of one. The directory has
parts, by the first digit of the hash, each with its share of the limit: looking through one part is
quick. Reading a file makes it new, and the oldest go first when a part is full.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pliant.base.values import dataclass

DIRECTORY: Final = "PLIANT_CACHE_DIR"
SWITCH: Final = "PLIANT_CACHE"  # 0: nothing is read or written
LIMIT: Final = "PLIANT_CACHE_MB"
FORMAT: Final = 1
SUFFIX: Final = ".kernel"
PARTS: Final = "0123456789abcdef"
DEFAULT_MB: Final = 512
KEPT: Final = 0.8  # of the limit, when something has to go


def key_of(text: str, *made_by: str) -> str:
    """The name of what a compiler makes of a text."""
    return hashlib.sha256(json.dumps([FORMAT, *made_by, text]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache."""

    path: str
    size: int
    used: int  # nanoseconds


@dataclass(frozen=True, slots=True)
class Cache:
    """A directory of object code, of `limit` bytes at most."""

    directory: Path
    limit: int

    def load(self, key: str) -> bytes | None:
        """The object code of that name, if it is there and whole."""
        path = self._path(key)
        try:
            with open(path, "rb") as file:
                trusted = _is_ours(os.fstat(file.fileno()))
                content = file.read() if trusted else b""
            found = _unpack(key, content)
        except OSError:
            found = None
        if found is not None:
            with contextlib.suppress(OSError):  # a directory may be there to be read only
                os.utime(path)
        counts["misses" if found is None else "hits"] += 1
        return found

    def store(self, key: str, object_code: bytes) -> bool:
        """Whether it could be written."""
        path = self._path(key)
        content = _pack(key, object_code)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, content)
        except OSError:
            return False
        counts["stored"] += 1
        self._make_room(path.parent, len(content))
        return True

    def entries(self) -> list[Entry]:
        """All files, those that are being written included."""
        return [entry for part in self._parts() for entry in _entries(part)]

    def clear(self) -> int:
        """Remove everything; the number of files that were there."""
        removed = [_remove(entry.path) for entry in self.entries()]
        with _SIZES_LOCK:
            _sizes.clear()
        return sum(removed)

    def _path(self, key: str) -> Path:
        return self._part(key[0]) / (key + SUFFIX)

    def _part(self, digit: str) -> Path:
        return self.directory / f"kernels{FORMAT}" / digit

    def _parts(self) -> Iterator[Path]:
        return map(self._part, PARTS)

    def _make_room(self, part: Path, added: int) -> None:
        """Called for a new file. Looks at the files only when they could be too many: when this
        process meets the part for the first time, or has seen it grow beyond its share."""
        share = self.limit // len(PARTS)
        with _SIZES_LOCK:
            known = _sizes.get(part)
            _sizes[part] = total = 0 if known is None else known + added
        if known is not None and total <= share:
            return
        entries = sorted(_entries(part), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries)
        if total > share:
            total = _shrink(entries, total, int(share * KEPT))
        with _SIZES_LOCK:
            _sizes[part] = total


counts: Final[Counter[str]] = Counter()
"""Of this process: "hits", "misses", "stored"."""

_SIZES_LOCK: Final = threading.Lock()
_sizes: Final[dict[Path, int]] = {}  # bytes in a part, as far as this process knows


def from_environment(environment: Mapping[str, str] = os.environ) -> Cache | None:
    """The user's cache: where the environment says, else where programs keep theirs. None if it is
    turned off, or if there is no place for it."""
    if environment.get(SWITCH) == "0":
        return None
    directory = environment.get(DIRECTORY) or _default_directory(environment)
    try:
        limit = int(environment.get(LIMIT) or DEFAULT_MB)
    except ValueError:
        limit = DEFAULT_MB
    path = Path(os.path.expanduser(directory))
    return Cache(path, limit * 2**20) if path.is_absolute() else None


def _default_directory(environment: Mapping[str, str]) -> str:
    base = environment.get("XDG_CACHE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else "~/.cache", "pliant")


def _pack(key: str, object_code: bytes) -> bytes:
    header = {"key": key, "size": len(object_code), "sha256": _digest(object_code)}
    return json.dumps(header).encode() + b"\n" + object_code


def _unpack(key: str, content: bytes) -> bytes | None:
    line, _, object_code = content.partition(b"\n")
    try:
        header: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    expected = {"key": key, "size": len(object_code), "sha256": _digest(object_code)}
    return object_code if header == expected else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_ours(status: os.stat_result) -> bool:
    """Machine code is run as it is, so it has to be from this user, or from one who may do anything
    to this user."""
    owners = (0, os.getuid()) if hasattr(os, "getuid") else (status.st_uid,)
    return status.st_uid in owners and not status.st_mode & 0o022


def _write(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix="new-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _entries(part: Path) -> list[Entry]:
    try:
        with os.scandir(part) as files:
            return [entry for file in files if (entry := _entry(file))]
    except OSError:
        return []


def _entry(file: os.DirEntry[str]) -> Entry | None:
    """None if another process has just removed it."""
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return Entry(file.path, status.st_size, status.st_mtime_ns)


def _shrink(entries: list[Entry], total: int, limit: int) -> int:
    """Remove the first ones until the others fit; what they take."""
    for entry in entries:
        if total <= limit:
            break
        _remove(entry.path)
        total -= entry.size
    return total


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
