"""Runs the tests on other versions of Python: `python tools/matrix.py 3.12 3.13 3.14`.

The one idea: each version gets an environment of its own, with PyTorch from the package index, in
which the tree is installed as it is; the extension of each version has a name of its own. The
interpreter is `python3.12` and so on, or given by its path. If there is none, a release of Debian
that has it is unpacked into a folder (`debootstrap`, as root) and the tree is mounted there. An
environment takes 6 GB. The second run finds everything in place.

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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.12", "3.13", "3.14")
RELEASES = {"3.13": "forky", "3.14": "forky"}
"""The release of Debian that has a version of Python."""
SYSTEM_PACKAGES = ("ca-certificates", "g++", "ccache", "git", "make")
OWN_VERSION = ("triton",)  # PyTorch's wheel asks for the one that it was built with
SUMMARY = re.compile(r"^(?=.*\bin [\d.]+s)=*\s*(.*?) in [\d.]+s", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """Where a version of Python runs: on this machine, or in the folder that a release is in."""

    version: str
    interpreter: str
    root: Path | None

    def run(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        if self.root is None:
            return subprocess.run(
                ["/bin/bash", "-c", command],
                check=check,
                text=True,
                stdout=subprocess.PIPE,
                cwd=ROOT,
            )
        return inside(self.root, command, check=check)


def main() -> None:
    options = parse()
    failed = False
    for python in options.pythons:
        place = find(python, options)
        environment = prepare(place, options)
        result = run_tests(place, environment, options.tests)
        failed |= result.returncode != 0
        lines = SUMMARY.findall(result.stdout)
        counts = lines[-1] if lines else f"no summary (exit status {result.returncode})"
        today = datetime.date.today().isoformat()
        print(f"| {place.version} | {options.torch} | {today} | {counts} |", flush=True)
    sys.exit(failed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="*", default=PYTHONS, metavar="PYTHON")
    parser.add_argument("--torch", default="2.13.0", help="version of PyTorch")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix")
    parser.add_argument("--mirror", default="", help="of Debian; debootstrap knows one")
    parser.add_argument("--no-check-gpg", action="store_true", help="where Debian's keys are old")
    own, tests = sys.argv[1:], []
    if "--" in own:
        own, tests = own[: own.index("--")], own[own.index("--") + 1 :]
    options = parser.parse_args(own)
    options.tests = tests
    return options


def find(python: str, options: argparse.Namespace) -> Place:
    """A version of Python, or a path of one: this machine's, or that of a release of Debian."""
    question = "import sysconfig, venv; print(sysconfig.get_python_version())"
    interpreter = python if "/" in python else f"python{python}"
    if shutil.which(interpreter):
        answer = subprocess.run(
            [interpreter, "-c", question], check=False, capture_output=True, text=True
        )
        if answer.returncode == 0:
            return Place(answer.stdout.strip(), interpreter, None)
    if python not in RELEASES:
        sys.exit(f"There is no Python {python} here, and no release of Debian with it is known.")
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        sys.exit(
            f"There is no Python {python} here; to unpack Debian, this needs root, for chroot, "
            "and the package debootstrap."
        )
    root = options.folder.resolve() / RELEASES[python]
    if not (root / f"usr/bin/python{python}").exists():
        bootstrap(root, python, options)
    configure(root)
    return Place(python, f"python{python}", root)


def bootstrap(root: Path, python: str, options: argparse.Namespace) -> None:
    """Unpack the release that has this version of Python, with all that it has of the others."""
    suite = RELEASES[python]
    print(f"unpacking {suite} into {root}", flush=True)
    packages = list(SYSTEM_PACKAGES)
    for each in [python for python, release in RELEASES.items() if release == suite]:
        packages += [f"python{each}{suffix}" for suffix in ("", "-venv", "-dev")]
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    if options.no_check_gpg:
        command.append("--no-check-gpg")
    # An older debootstrap has no script for this release; all since long are alike.
    script = "/usr/share/debootstrap/scripts/sid"
    subprocess.run([*command, suite, str(root), options.mirror, script], check=True)


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


def prepare(place: Place, options: argparse.Namespace) -> str:
    """The environment of one version, with everything installed and the extension built."""
    name = f"{place.version}-{options.torch}"
    environment = f"/environments/{name}" if place.root else str(options.folder.resolve() / name)
    pip = f"{environment}/bin/pip install -q --disable-pip-version-check"
    if place.run(f"test -e {environment}/ready", check=False).returncode != 0:
        print(f"installing PyTorch {options.torch} for Python {place.version}", flush=True)
        place.run(f"{place.interpreter} -m venv --clear {environment}")
        place.run(f"{pip} torch=={options.torch} setuptools wheel {shlex.join(requirements())}")
        place.run(f"touch {environment}/ready")
    # As users install it: the entry points of the package are part of what is tested.
    install = f"{pip} --no-deps --no-build-isolation --editable ."
    ccache = "export CCACHE_NOHASHDIR=1 CC='ccache gcc' CXX='ccache g++'; " if place.root else ""
    place.run(ccache + install)
    return environment


def requirements() -> list[str]:
    """What pliant and its tests need besides PyTorch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [each for each in wanted if not each.startswith(("torch", *OWN_VERSION))]


def run_tests(place: Place, environment: str, tests: list[str]) -> subprocess.CompletedProcess[str]:
    selection = shlex.join(tests) or "-n 2"
    command = f"OMP_NUM_THREADS=1 {environment}/bin/python -m pytest -q {selection}"
    result = place.run(command, check=False)
    print(result.stdout, flush=True)
    return result


if __name__ == "__main__":
    main()
