"""Runs tests with an extension that checks itself: `python tools/sanitize.py [tests …]`.

AddressSanitizer finds reads and writes of memory that is freed or not ours, UBSan what C++ leaves
undefined. The package is built once more, in `build/sanitized`. Python itself is not built for it,
so its library is loaded before everything (LD_PRELOAD). What Python and PyTorch keep until the
process ends isn't looked at: `tests/test_leaks.py` counts what is ours. Generated machine code runs
unchecked; llvmlite has no such pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "sanitized"
SANITIZERS = "address,undefined"
TESTS = ("tests/native", "tests/launch", "tests/guards", "tests/driver/test_limits.py")
LIBRARIES = ("libasan.so", "libubsan.so", "libstdc++.so")


def main() -> None:
    build()
    environment = {**os.environ, **settings()}
    loaded = "import pliant._native as native; print(native.__file__)"
    check = subprocess.run(
        [sys.executable, "-P", "-c", loaded], env=environment, cwd=ROOT, text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    extension = Path(check.stdout.strip())
    if not extension.is_relative_to(BUILT) or b"__asan_init" not in extension.read_bytes():
        sys.exit(f"{extension} is not the one that checks itself")
    tests = sys.argv[1:] or TESTS
    # -P: the tree, which holds another extension, is looked at last. -s: or a report would be lost.
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-s", *tests]
    sys.exit(subprocess.run(command, env=environment, cwd=ROOT).returncode)


def build() -> None:
    environment = {**os.environ, "PLIANT_SANITIZE": SANITIZERS}
    folders = ["--build-lib", str(BUILT), "--build-base", str(BUILT) + "-objects"]
    command = [sys.executable, "setup.py", "-q", "build", *folders]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


def settings() -> dict[str, str]:
    return {
        "LD_PRELOAD": " ".join(filter(None, map(library, LIBRARIES))),
        # Freed memory is kept, to find those who use it: less than tests of memory allow.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1:abort_on_error=1"
        ":quarantine_size_mb=2",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "PYTHONPATH": os.pathsep.join((str(BUILT), str(ROOT))),
        "PYTHONMALLOC": "malloc",  # or Python's own arenas would hide what happens inside them
        "OMP_NUM_THREADS": "1",
    }


def library(name: str) -> str | None:
    """The file of a library of the compiler, if it has that one."""
    compiler = os.environ.get("CXX", "c++").split()[-1]
    command = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
    return str(Path(path).resolve()) if os.path.isabs(path) else None


if __name__ == "__main__":
    main()
