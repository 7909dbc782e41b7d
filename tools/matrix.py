"""Runs the tests on other versions of Python: `python tools/matrix.py 3.13 3.14`.

The one idea: each version of Python is a package of some release of Debian or Ubuntu. That release
is unpacked into a folder (`debootstrap`), and each version gets an environment of its own there,
with PyTorch from the package index. The tree is mounted into the folder, so what runs is what is
being worked on; the extension of each version has a name of its own. It needs root, `debootstrap`,
and 6 GB for each version. The second run finds everything in place.

Everything after `--` goes to pytest: `python tools/matrix.py 3.14 -- tests/bytecode -x`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEBIAN, UBUNTU = "http://deb.debian.org/debian", "http://archive.ubuntu.com/ubuntu"
RELEASES = {"3.12": ("noble", UBUNTU), "3.13": ("forky", DEBIAN), "3.14": ("forky", DEBIAN)}
"""Where a version of Python is a package, and the mirror of that release."""
SYSTEM_PACKAGES = ("ca-certificates", "g++", "ccache", "git", "make")
OWN_VERSION = ("triton",)  # PyTorch's wheel asks for the one that it was built with
SUMMARY = re.compile(r"^(?=.*\bin [\d.]+s)=*\s*(.*?) in [\d.]+s", re.MULTILINE)


def main() -> None:
    options = parse()
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit("This needs root, for chroot, and the package debootstrap.")
    failed = False
    for python in options.pythons:
        root = options.folder.resolve() / RELEASES[python][0]
        if not (root / f"usr/bin/python{python}").exists():
            bootstrap(root, python, options)
        configure(root)
        environment = prepare(root, python, options.torch)
        result = run_tests(root, environment, options.tests)
        failed |= result.returncode != 0
        lines = SUMMARY.findall(result.stdout)
        counts = lines[-1] if lines else f"no summary (exit status {result.returncode})"
        today = datetime.date.today().isoformat()
        print(f"| {python} | {options.torch} | {today} | {counts} |", flush=True)
    sys.exit(failed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", default=tuple(RELEASES), metavar="PYTHON")
    parser.add_argument("--torch", default="2.13.0", help="version of PyTorch")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    parser.add_argument("--no-check-gpg", action="store_true", help="where Debian's keys are old")
    own, tests = sys.argv[1:], []
    if "--" in own:
        own, tests = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    options.tests = tests
    if unknown := set(options.pythons) - RELEASES.keys():
        parser.error(f"no release with {', '.join(unknown)} is known: {', '.join(RELEASES)}")
    return options


def bootstrap(root: Path, python: str, options: argparse.Namespace) -> None:
    """Unpack the release that has this version of Python, with all that it has of the others."""
    release = RELEASES[python]
    suite, mirror = release
    print(f"unpacking {suite} into {root}", flush=True)
    packages = list(SYSTEM_PACKAGES)
    for each in [python for python, found in RELEASES.items() if found == release]:
        packages += [f"python{each}{suffix}" for suffix in ("", "-venv", "-dev")]
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    if mirror == UBUNTU:
        command.append("--components=main,universe")
    if options.no_check_gpg:
        command.append("--no-check-gpg")
    # An older debootstrap has no script for this release; all since long are alike.
    script = "/usr/share/debootstrap/scripts/sid"
    subprocess.run([*command, suite, str(root), mirror, script], check=True)


def configure(root: Path) -> None:
    """What this machine needs to reach the package index."""
    (root / "src").mkdir(exist_ok=True)
    for path in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf"):
        if Path(path).exists():
            shutil.copy(path, root / path[1:])
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, root / str(certificates)[1:])


def inside(root: Path, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder, with the tree mounted. The mounts go when it ends."""
    mounts = [
        f"mount -t proc proc {shlex.quote(str(root / 'proc'))}",
        f"mount --rbind /dev {shlex.quote(str(root / 'dev'))}",
        f"mount --bind {shlex.quote(str(ROOT))} {shlex.quote(str(root / 'src'))}",
    ]
    script = shlex.quote(f"cd /src && {command}")
    text = " && ".join([*mounts, f"exec chroot {shlex.quote(str(root))} /bin/bash -c {script}"])
    keep = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    settings = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "/bin/bash", "-c", text],
        check=check,
        text=True,
        stdout=subprocess.PIPE,
        env={**keep, **settings},
    )


def prepare(root: Path, python: str, torch: str) -> str:
    """The environment of one version, with everything installed and the extension built."""
    environment = f"/environments/{python}-{torch}"
    pip = f"{environment}/bin/pip install -q --disable-pip-version-check"
    if not (root / environment[1:] / "ready").exists():
        print(f"installing PyTorch {torch} for Python {python}", flush=True)
        inside(root, f"python{python} -m venv --clear {environment}")
        inside(root, f"{pip} torch=={torch} setuptools wheel {shlex.join(requirements())}")
        inside(root, f"touch {environment}/ready")
    # As users install it: the entry points of the package are part of what is tested.
    install = f"{pip} --no-deps --no-build-isolation --editable ."
    inside(root, f"export CCACHE_NOHASHDIR=1 CC='ccache gcc' CXX='ccache g++'; {install}")
    return environment


def requirements() -> list[str]:
    """What pliant and its tests need besides PyTorch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [each for each in wanted if not each.startswith(("torch", *OWN_VERSION))]


def run_tests(root: Path, environment: str, tests: list[str]) -> subprocess.CompletedProcess[str]:
    selection = shlex.join(tests) or "-n 2"
    command = f"OMP_NUM_THREADS=1 {environment}/bin/python -m pytest -q {selection}"
    result = inside(root, command, check=False)
    print(result.stdout, flush=True)
    return result


if __name__ == "__main__":
    main()
