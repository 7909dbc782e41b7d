"""Machine code on disk, so that a second process compiles nothing.

The one idea: a file is named after the hash of all that its contents depend on, and says so itself;
whatever isn't exactly that (damaged, cut short, someone else's, unreadable) is as good as absent.
No failure of the disk is an error here.

A file is one line of JSON (what it is for, how long it is, its hash) and the object code. It is
written beside its place and moved there, so that no process sees half of one. The directory has
parts, by the first digit of the hash, each with its share of the limit, and few of the processes
that write to a part look through it. Reading a file makes it new, and the oldest go first when a
part is full.

Machine code is run as it is. So only regular files are read that this user (or root) owns, in
directories that nobody else can write to; links inside the cache are not followed. Whatever else
lies at a path, such as a pipe without a writer, can't make us wait.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from pliant.base.errors import warn
from pliant.base.values import dataclass

DIRECTORY: Final = "PLIANT_CACHE_DIR"
SWITCH: Final = "PLIANT_CACHE"  # 0: nothing is read or written
LIMIT: Final = "PLIANT_CACHE_MB"
FORMAT: Final = 1
SUFFIX: Final = ".kernel"
PARTS: Final = "0123456789abcdef"
DEFAULT_MB: Final = 512
KEPT: Final = 0.8  # of the limit, when something has to go
SLACK: Final = 0.125  # of the limit, by which a part may grow before its files are counted
READ: Final = sum(
    getattr(os, name, 0)
    for name in ("O_RDONLY", "O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)
"""Opening a pipe or a device returns at once, and opening a link fails."""


def key_of(text: str, *made_by: str) -> str:
    """The name of what a compiler makes of a text."""
    # As JSON, so that the parts can't run into each other.
    return hashlib.sha256(json.dumps([FORMAT, *made_by, text]).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A file of the cache."""

    path: str
    size: int
    used: int  # nanoseconds


@dataclass(frozen=True, slots=True)
class KernelCache:
    """A directory of object code, of `limit` bytes at most."""

    directory: Path
    limit: int

    def load(self, key: str) -> bytes | None:
        """The object code of that name, if it is there and whole."""
        path = self._path(key)
        try:
            object_code = _unpack(key, self._read(path))
        except OSError:
            object_code = None
        if object_code is not None:
            # The time of the last use decides what is removed first.
            with contextlib.suppress(OSError):  # a directory may be there to be read only
                os.utime(path, follow_symlinks=False)
        counts["misses" if object_code is None else "hits"] += 1
        return object_code

    def store(self, key: str, object_code: bytes) -> bool:
        """Whether it could be written."""
        path = self._path(key)
        content = _pack(key, object_code)
        try:
            _make_private(path.parent)
            self._check(path.parent)
            _write(path, content)
        except OSError:
            return False
        counts["stored"] += 1
        self._make_room(path.parent, key, len(content))
        return True

    def entries(self) -> list[CacheEntry]:
        """All files, those that are being written included."""
        return [entry for part in self._parts() for entry in _entries(part)]

    def clear(self) -> int:
        """Remove everything; the number of files that were there."""
        removed = [_remove(entry.path) for entry in self.entries()]
        _sizes.clear()
        return sum(removed)

    def _path(self, key: str) -> Path:
        return self._part(key[0]) / (key + SUFFIX)

    def _part(self, digit: str) -> Path:
        return self.directory / f"kernels{FORMAT}" / digit

    def _parts(self) -> Iterator[Path]:
        """Those that may be used."""
        for part in map(self._part, PARTS):
            with contextlib.suppress(OSError):
                self._check(part)
                yield part

    def _read(self, path: Path) -> bytes:
        """What is in a file; nothing if that can't be ours."""
        self._check(path.parent)
        with open(os.open(path, READ), "rb") as file:
            # Of the open file: the path may lead elsewhere by now.
            status = os.fstat(file.fileno())
            usable = stat.S_ISREG(status.st_mode) and _is_ours(status)
            return file.read() if usable and status.st_size <= self.limit else b""

    def _check(self, part: Path) -> None:
        """Raise an OSError unless the directories down to this part may be used. The user may have
        put a link in the place of the whole cache, and nobody a link inside."""
        for folder in (self.directory, part.parent, part):
            status = os.stat(folder, follow_symlinks=folder is self.directory)
            if stat.S_ISLNK(status.st_mode):
                _refuse(folder, "is a symbolic link")
            if not stat.S_ISDIR(status.st_mode):
                raise NotADirectoryError(folder)
            if not _is_ours(status):
                is_trusted = status.st_uid in _trusted_owners(status)
                _refuse(folder, "can be written by other users" if is_trusted else "is not yours")

    def _make_room(self, part: Path, key: str, added: int) -> None:
        """Called for a new file. Looks at the files only when they could be too many: when this
        process has seen the part grow, or once in a while. A process that doesn't know a part takes
        it for nearly full, and how likely it is to look grows with what it adds. So all processes
        together look once for each `SLACK` of a part, however many files there are."""
        # Each part has its own share, so that making room looks at a sixteenth of the files.
        share = self.limit // len(PARTS)
        slack = int(share * SLACK)
        with _SIZES_LOCK:
            last_size = _sizes.get(part)
            _sizes[part] = total = (share - slack if last_size is None else last_size) + added
        # The digits of a hash are as good as random numbers, and those of a program the same.
        # With probability added / slack: key[1:9] is a uniform number below 2**32.
        chosen = last_size is None and int(key[1:9], 16) * slack < added << 32
        if total <= share and not chosen:
            return
        # Least recently used first.
        entries = sorted(_entries(part), key=lambda entry: entry.used)
        total = sum(entry.size for entry in entries)
        if total > share - slack:
            total = _shrink(entries, total, int(share * KEPT))
        with _SIZES_LOCK:
            _sizes[part] = total


counts: Final[Counter[str]] = Counter()
"""Of this process: "hits", "misses", "stored"."""

_SIZES_LOCK: Final = threading.Lock()
_sizes: Final[dict[Path, int]] = {}  # bytes in a part, as far as this process knows


def from_environment(environment: Mapping[str, str] = os.environ) -> KernelCache | None:
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
    if not path.is_absolute():
        _warn_once(
            f"pliant keeps no machine code on disk: {DIRECTORY}={directory} is not an absolute path"
        )
        return None
    return KernelCache(path, limit * 2**20)


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
    # A file that was cut off, damaged or renamed is a miss.
    expected = {"key": key, "size": len(object_code), "sha256": _digest(object_code)}
    return object_code if header == expected else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_ours(status: os.stat_result) -> bool:
    """Machine code is run as it is, so it has to be from this user, or from one who may do anything
    to this user."""
    return status.st_uid in _trusted_owners(status) and not status.st_mode & 0o022


def _trusted_owners(status: os.stat_result) -> tuple[int, ...]:
    return (0, os.getuid()) if hasattr(os, "getuid") else (status.st_uid,)


def _refuse(folder: Path, why: str) -> NoReturn:
    _warn_once(
        f"pliant keeps no machine code on disk: {folder} {why}. `chmod go-w` makes a directory "
        f"private, {DIRECTORY} names another one, {SWITCH}=0 turns the cache off"
    )
    raise PermissionError(f"{folder} {why}")


_warned: Final[set[str]] = set()


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        warn(message, None)


def _make_private(folder: Path) -> None:
    """Make a directory, and those above it that are not there, for this user alone."""
    # From the folder up to the first one that exists.
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # by another process, just now
            os.mkdir(path, 0o700)


def _write(path: Path, content: bytes) -> None:
    # In the same directory, so that moving it is atomic.
    handle, temporary = tempfile.mkstemp(prefix="new-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary)
        raise


def _entries(part: Path) -> list[CacheEntry]:
    try:
        with os.scandir(part) as files:
            return [entry for file in files if (entry := _entry(file))]
    except OSError:
        return []


def _entry(file: os.DirEntry[str]) -> CacheEntry | None:
    """None if another process has just removed it."""
    try:
        status = file.stat(follow_symlinks=False)
    except OSError:
        return None
    return CacheEntry(file.path, status.st_size, status.st_mtime_ns)


def _shrink(entries: list[CacheEntry], total: int, limit: int) -> int:
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
