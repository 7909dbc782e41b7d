"""Target code on disk: used again, and no trouble whatever has happened to it."""

import contextlib
import ctypes
import json
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import pliant
from pliant.base import events
from pliant.base.errors import PliantWarning
from pliant.loop.ir import Op
from pliant.loop.types import Type
from pliant.targets import kernel_cache as disk
from pliant.targets.cpu.jit import KernelCompiler
from pliant.targets.kernel_cache import KernelCache, from_environment, key_of
from tests.targets.cpu.kernels import SIGNATURE, pointwise

ROOT = Path(__file__).parents[2]
KEY = key_of("text", "someone")
CODE = b"machine code\nwith lines\n" * 10


@pytest.fixture(autouse=True)
def own_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("PLIANT_CACHE", "1")
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))
    disk.counts.clear()
    disk._sizes.clear()
    disk._warned.clear()
    return tmp_path / "cache"


def square():
    return pointwise([Type.F32], Type.F32, lambda build, x: build(Op.MUL, x, x))


def run(compiled):
    x, y = torch.arange(5.0), torch.empty(5)
    pointers = (ctypes.c_void_p * 2)(x.data_ptr(), y.data_ptr())
    SIGNATURE(compiled.address)(pointers, (ctypes.c_int64 * 1)(5), 0, 5)
    return torch.equal(y, x * x)


def compile_again(monkeypatch):
    """The square by another compiler; whether it was compiled."""
    made = []
    compiler = KernelCompiler()
    original = compiler.object_code
    monkeypatch.setattr(compiler, "object_code", lambda text: made.append(text) or original(text))
    assert run(compiler.compile(square()))
    return bool(made)


def files(directory):
    return [path for path in directory.rglob("*") if path.is_file()]


# What compilers keep


def test_a_second_compiler_compiles_nothing(monkeypatch):
    assert compile_again(monkeypatch)
    assert not compile_again(monkeypatch)
    assert pliant.cache.info().hits == 1


def test_nothing_is_kept_when_it_is_turned_off(monkeypatch, own_directory):
    monkeypatch.setenv("PLIANT_CACHE", "0")
    assert compile_again(monkeypatch) and compile_again(monkeypatch)
    assert not own_directory.exists()
    info = pliant.cache.info()
    assert (info.directory, info.entries, info.misses) == (None, 0, 0)
    assert pliant.cache.clear() == 0


@pytest.mark.parametrize("what", ["version", "features", "cpu", "passes"])
def test_code_made_otherwise_is_not_used(monkeypatch, what):
    compile_again(monkeypatch)
    if what == "version":
        monkeypatch.setattr(pliant, "__version__", "0.0.test")
    elif what == "passes":
        monkeypatch.setattr("pliant.targets.cpu.jit.PASSES", ("instruction_combine",))
    else:
        identity = KernelCompiler._identity
        place = 4 if what == "cpu" else 5
        changed = lambda self: tuple(
            "other" if i == place else part for i, part in enumerate(identity(self))
        )
        assert getattr(KernelCompiler(), what) == identity(KernelCompiler())[place]
        monkeypatch.setattr(KernelCompiler, "_identity", changed)
    assert compile_again(monkeypatch)


def damage(kind, path):
    content = path.read_bytes()
    line, _, code = content.partition(b"\n")
    header = json.loads(line)
    path.write_bytes(
        {
            "empty": b"",
            "cut short": content[:-1],
            "longer": content + b"x",
            "no header": code,
            "a header alone": line,
            "no JSON": b"{{{\n" + code,
            "another JSON": b"[1]\n" + code,
            "deep JSON": b"[" * 100_000 + b"\n" + code,
            "no text": b"\xff\xfe\n" + code,
            "one bit": content[:-9] + bytes([content[-9] ^ 4]) + content[-8:],
            "another key": json.dumps({**header, "key": "0"}).encode() + b"\n" + code,
            "something added": json.dumps({**header, "more": 1}).encode() + b"\n" + code,
        }[kind]
    )


DAMAGES = [
    "empty", "cut short", "longer", "no header", "a header alone", "no JSON", "another JSON",
    "deep JSON", "no text", "one bit", "another key", "something added",
]  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_file_is_a_miss_and_is_replaced(monkeypatch, own_directory, kind):
    compile_again(monkeypatch)
    (path,) = files(own_directory)
    damage(kind, path)
    assert compile_again(monkeypatch)
    assert not compile_again(monkeypatch)


def test_whole_files_of_code_that_cannot_be_loaded_are_a_miss(monkeypatch, own_directory):
    compile_again(monkeypatch)
    (path,) = files(own_directory)
    cache = from_environment()
    cache.store(path.stem, b"no object code")
    assert compile_again(monkeypatch)
    assert not compile_again(monkeypatch)


def test_a_directory_in_the_place_of_a_file_is_a_miss(monkeypatch, own_directory):
    compile_again(monkeypatch)
    (path,) = files(own_directory)
    path.unlink()
    path.mkdir()
    assert compile_again(monkeypatch) and compile_again(monkeypatch)
    assert files(own_directory) == []


@pytest.mark.parametrize("kind", ["file", "missing", "not writable"])
def test_a_directory_that_cannot_be_used_is_no_error(monkeypatch, tmp_path, kind):
    place = tmp_path / "place"
    if kind == "file":
        place.write_text("I am a file")
    elif kind == "missing":
        place = Path("/proc/nothing/here")
    else:
        place.mkdir()
        monkeypatch.setattr(disk.tempfile, "mkstemp", _refuse)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(place))
    assert compile_again(monkeypatch) and compile_again(monkeypatch)
    assert pliant.cache.info().entries == 0 and pliant.cache.clear() == 0


def test_a_relative_directory_is_ignored_with_a_warning(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLIANT_CACHE_DIR", "relative/place")
    with pytest.warns(PliantWarning, match="PLIANT_CACHE_DIR=relative/place is not an absolute"):
        assert compile_again(monkeypatch)
    assert compile_again(monkeypatch)  # warned once
    assert pliant.cache.info().directory is None and pliant.cache.clear() == 0
    assert not (tmp_path / "relative").exists()


def stored(directory):
    cache = KernelCache(directory, 2**20)
    assert cache.store(KEY, CODE)
    return cache, cache._path(KEY)


def put_device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(5, 0))  # the terminal: reading it waits
    except OSError:
        path.symlink_to("/dev/tty")


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        short = path.parent / "s"
        made.bind(str(short))
        short.rename(path)


def put_huge(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def put_link(path):
    (path.parent / "elsewhere").write_bytes(b"")
    path.symlink_to(path.parent / "elsewhere")


ODD = {
    "a pipe": os.mkfifo,
    "a device": put_device,
    "a socket": put_socket,
    "a directory": Path.mkdir,
    "a link": put_link,
    "a link to nothing": lambda path: path.symlink_to("/nothing"),
    "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
    "a huge file": put_huge,
}


@pytest.mark.parametrize("kind", ODD)
def test_what_is_no_file_of_ours_is_a_miss_at_once(own_directory, kind):
    """In another process, which would wait for ever."""
    cache, path = stored(own_directory)
    path.unlink()
    ODD[kind](path)
    program = f"""
from pathlib import Path
from pliant.targets.kernel_cache import KernelCache
cache = KernelCache(Path({str(own_directory)!r}), 2**20)
assert cache.load({KEY!r}) is None
cache.entries()
assert cache.store({KEY!r}, b"new") == ({kind!r} != "a directory")
assert cache.load({KEY!r}) == (b"new" if {kind!r} != "a directory" else None)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], timeout=60, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_link_with_good_contents_is_not_followed(own_directory):
    cache, path = stored(own_directory)
    path.rename(path.parent / "elsewhere")
    path.symlink_to(path.parent / "elsewhere")
    assert cache.load(KEY) is None


FOLDERS = {"cache": lambda path: path.parents[2], "kernels": lambda path: path.parents[1],
           "part": lambda path: path.parent}  # fmt: skip


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
@pytest.mark.parametrize("folder", FOLDERS)
def test_directories_that_others_can_write_to_are_not_used(own_directory, folder, mode):
    cache, path = stored(own_directory)
    FOLDERS[folder](path).chmod(mode)
    with pytest.warns(PliantWarning, match="can be written by other users"):
        assert cache.load(KEY) is None
    assert cache.load(KEY) is None and not cache.store(KEY, CODE)  # warned once
    assert cache.clear() == 0 and path.exists()
    FOLDERS[folder](path).chmod(0o755)
    assert cache.load(KEY) == CODE


@pytest.mark.parametrize("folder", FOLDERS)
def test_directories_of_other_users_are_not_used(monkeypatch, own_directory, folder):
    cache, path = stored(own_directory)
    other = FOLDERS[folder](path)
    original = disk.os.stat

    def foreign(path, **more):
        status = list(original(path, **more))
        status[4] = 12345 if Path(path) == other else status[4]
        return os.stat_result(status)

    monkeypatch.setattr(disk.os, "stat", foreign)
    with pytest.warns(PliantWarning, match="is not yours"):
        assert cache.load(KEY) is None
    assert not cache.store(KEY, CODE)


@pytest.mark.parametrize("folder", ["kernels", "part"])
def test_links_inside_the_cache_are_not_followed(own_directory, tmp_path, folder):
    cache, path = stored(own_directory)
    linked = FOLDERS[folder](path)
    linked.rename(tmp_path / "elsewhere")
    linked.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(PliantWarning, match="is a symbolic link"):
        assert cache.load(KEY) is None
    assert cache.clear() == 0 and files(tmp_path / "elsewhere")


def test_the_cache_itself_may_be_a_link(own_directory, tmp_path):
    _, path = stored(own_directory)
    own_directory.rename(tmp_path / "elsewhere")
    own_directory.symlink_to(tmp_path / "elsewhere")
    assert KernelCache(own_directory, 2**20).load(KEY) == CODE


def test_directories_are_made_for_this_user_alone(tmp_path):
    before = os.umask(0)
    try:
        _, path = stored(tmp_path / "some" / "where" / "cache")
    finally:
        os.umask(before)
    for made in (path, *path.parents[:5]):
        assert not made.stat().st_mode & 0o077, made


def test_a_warning_that_is_an_error_gets_out(monkeypatch):
    monkeypatch.setenv("PLIANT_CACHE_DIR", "relative/place")
    monkeypatch.setattr("pliant.targets.cpu.target.host", KernelCompiler)
    with pytest.raises(PliantWarning, match="not an absolute path"):
        pliant.compile(lambda x: x.exp() + 1, backend="llvm")(torch.ones(3))


def _refuse(*args, **kwargs):
    raise PermissionError("not here")


def _full(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("call", ["replace", "mkdir", "mkstemp"])
def test_a_full_disk_leaves_nothing_behind(monkeypatch, own_directory, call):
    monkeypatch.setattr(disk.tempfile if call == "mkstemp" else disk.os, call, _full)
    assert not from_environment().store(KEY, CODE)
    assert files(own_directory) == []
    assert compile_again(monkeypatch) and compile_again(monkeypatch)


@contextlib.contextmanager
def small_files():
    """The system refuses to make files longer than this, in the middle of writing them: also the
    file that the outcome of the test is written to, so that it may not last until then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_in_the_middle_of_a_file_leaves_nothing_behind(own_directory):
    with small_files():
        assert not from_environment().store(KEY, CODE)
    stored, left = pliant.cache.info().stored, files(own_directory)
    assert stored == 0 and left == []


def test_what_can_only_be_read_is_used(monkeypatch):
    compile_again(monkeypatch)
    monkeypatch.setattr(disk.os, "utime", _refuse)
    assert not compile_again(monkeypatch)


def test_a_directory_that_goes_away_is_made_again(monkeypatch, own_directory):
    compile_again(monkeypatch)
    shutil.rmtree(own_directory)
    assert compile_again(monkeypatch)
    assert not compile_again(monkeypatch)
    mkstemp = tempfile.mkstemp

    def gone(**kwargs):
        shutil.rmtree(own_directory)
        return mkstemp(**kwargs)

    monkeypatch.setattr(disk.tempfile, "mkstemp", gone)
    cache = from_environment()
    assert not cache.store(KEY, CODE) and cache.load(KEY) is None


def break_files(own_directory):
    for path in files(own_directory):
        path.write_bytes(path.read_bytes()[:-5])


FAULTS = {
    "nothing": lambda patch, directory: None,
    "a full disk": lambda patch, directory: patch.setattr(disk.os, "replace", _full),
    "no directory": lambda patch, directory: shutil.rmtree(directory),
    "cut files": lambda patch, directory: break_files(directory),
    "not readable": lambda patch, directory: patch.setattr(disk, "_is_ours", _refuse),
    "not writable": lambda patch, directory: patch.setattr(disk.tempfile, "mkstemp", _refuse),
    "another version": lambda patch, directory: patch.setattr(pliant, "__version__", "0.0.test"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_compiled_functions_do_not_notice(monkeypatch, own_directory, fault):
    def steps(x):
        return (x.exp() + 1).softmax(-1) @ x.T, x.sum(0)

    x = torch.randn(5, 7)
    monkeypatch.setattr(
        "pliant.targets.cpu.target.host", KernelCompiler
    )  # nothing is known of earlier kernels
    expected = pliant.compile(steps, backend="llvm")(x)
    FAULTS[fault](monkeypatch, own_directory)
    again = pliant.compile(lambda x: steps(x), backend="llvm")(x)
    assert all(map(torch.equal, expected, again))
    assert events.counters["programs"] == 2 and not events.counters["failed_kernels"]
    assert (disk.counts["hits"] > 0) == (fault in ("nothing", "a full disk", "not writable"))


def test_code_of_another_user_is_not_run(monkeypatch):
    cache = from_environment()
    cache.store(KEY, CODE)
    path = cache._path(KEY)
    path.chmod(0o666)
    assert cache.load(KEY) is None
    path.chmod(0o600)
    assert cache.load(KEY) == CODE
    monkeypatch.setattr(disk.os, "getuid", lambda: os.stat(path).st_uid + 1)
    assert (cache.load(KEY) is None) == (os.stat(path).st_uid != 0)


# Where, and how much


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({"PLIANT_CACHE_DIR": "/a/b", "XDG_CACHE_HOME": "/x"}, "/a/b"),
        ({"PLIANT_CACHE_DIR": "~/b"}, os.path.expanduser("~/b")),
        ({"XDG_CACHE_HOME": "/x"}, "/x/pliant"),
        ({"XDG_CACHE_HOME": "relative"}, os.path.expanduser("~/.cache/pliant")),
        ({"PLIANT_CACHE_DIR": ""}, os.path.expanduser("~/.cache/pliant")),
    ],
)
def test_where_the_cache_is(environment, expected):
    assert str(from_environment(environment).directory) == expected


def test_the_limit_is_said_in_megabytes():
    assert from_environment({}).limit == 512 * 2**20
    assert from_environment({"PLIANT_CACHE_MB": "3"}).limit == 3 * 2**20
    assert from_environment({"PLIANT_CACHE_MB": "much"}).limit == 512 * 2**20


def keys(count):
    """Names in the same part."""
    return ["0" + key_of(str(number))[1:] for number in range(count)]


def test_what_was_not_used_for_longest_goes_first(own_directory):
    cache = KernelCache(own_directory, 16 * 12_000)
    names = keys(12)
    for number, key in enumerate(names[:9]):
        cache.store(key, b"x" * 1000)
        os.utime(cache._path(key), (number, number))
    assert cache.load(names[0])  # is new again
    for key in names[9:]:
        cache.store(key, b"x" * 1000)
    there = [number for number, key in enumerate(names) if cache.load(key)]
    assert there[0] == 0 and 1 not in there and {9, 10, 11} <= set(there)
    assert sum(entry.size for entry in cache.entries()) <= 12_000


def test_another_process_is_seen_to_have_filled_a_part(own_directory):
    cache = KernelCache(own_directory, 16 * 10_000)
    for key in keys(20)[:-1]:
        disk._sizes.clear()
        cache.store(key, b"x" * 1000)
    assert sum(entry.size for entry in cache.entries()) <= 10_000


@pytest.fixture
def looks(monkeypatch):
    """The parts that were looked through."""
    parts, look = [], disk._entries

    def noted(part):
        parts.append(part)
        return look(part)

    monkeypatch.setattr(disk, "_entries", noted)
    return parts


@pytest.mark.parametrize("processes", [1, 400])
def test_few_writes_look_through_the_files(own_directory, looks, processes):
    """Work for each kernel does not grow with the number of files: a part of 2,000 files is looked
    through for a few of 400 new ones, whether one process writes them or many."""
    cache = KernelCache(own_directory, 16 * 2_000_000)
    for number, key in enumerate(keys(400)):
        if number % (400 // processes) == 0:
            disk._sizes.clear()
        cache.store(key, b"x" * 1000)
    assert len(looks) <= 400 * 8 * 1.5 / 2_000 + 1


def test_many_processes_keep_the_limit(own_directory, looks):
    cache = KernelCache(own_directory, 16 * 100_000)
    for key in keys(600):
        disk._sizes.clear()
        cache.store(key, b"x" * 1000)
    assert sum(entry.size for entry in cache.entries()) <= 16 * 100_000
    assert len([part for part in looks if part.name == "0"]) < 100


def test_info_and_clear():
    assert pliant.cache.info().entries == 0
    cache = from_environment()
    for number in range(5):
        cache.store(key_of(str(number)), CODE)
    cache.load(KEY)
    info = pliant.cache.info()
    assert (info.entries, info.hits, info.misses, info.stored) == (5, 0, 1, 5)
    assert info.bytes > 5 * len(CODE) and info.directory == str(cache.directory)
    assert pliant.cache.clear() == 5 and pliant.cache.info().entries == 0
    cache.store(KEY, CODE)
    assert cache.load(KEY) == CODE


# Processes and threads

PROGRAM = """
import pliant
from pliant.targets.cpu.jit import host
from pliant.loop.ir import Op
from pliant.loop.types import Type
from tests.targets.cpu.kernels import pointwise
for op in (Op.ADD, Op.MUL, Op.SUB, Op.DIV):
    host().compile(pointwise([Type.F32, Type.F32], Type.F32, lambda build, *args: build(op, *args)))
info = pliant.cache.info()
print(info.hits, info.misses, info.entries)
"""


def start():
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def test_a_second_process_compiles_nothing_and_several_share_a_directory():
    together = [start(), start()]
    outputs = [process.communicate()[0].split() for process in together]
    assert all(process.returncode == 0 for process in together)
    assert all(int(hits) + int(misses) == 4 for hits, misses, _ in outputs)
    assert start().communicate()[0].split() == ["4", "0", "4"]


def test_threads_write_and_read_at_the_same_time(own_directory):
    cache = KernelCache(own_directory, 16 * 20_000)
    names = keys(30)

    def work(number):
        for round in range(40):
            key = names[(number * 7 + round) % len(names)]
            cache.store(key, key.encode() * 20)
            found = cache.load(names[round % len(names)])
            if found not in (None, names[round % len(names)].encode() * 20):
                return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))
    assert not [path for path in files(own_directory) if path.suffix != ".kernel"]
