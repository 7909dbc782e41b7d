"""The extension shares torch's copy of the C++ runtime, whatever the compiler would link."""

import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
import setuptools

import pliant._native

SETUP = Path(__file__).parents[2] / "setup.py"
THROWS = """
#include <sstream>
#include <stdexcept>
extern "C" void raise_number(int number) {
  std::ostringstream text;
  text << number;
  throw std::runtime_error(text.str());
}
"""


def defines(library: Path, symbol: str) -> bool:
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    )
    return any(line.split()[-1].split("@")[0] == symbol for line in listing.stdout.splitlines())


def test_the_extension_has_no_runtime_of_its_own() -> None:
    assert not defines(Path(pliant._native.__file__), "__cxa_throw")


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("shared", [False, True])
def test_a_compiler_that_links_statically_takes_the_shared_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    extensions: list[setuptools.Extension] = []
    monkeypatch.setattr(
        setuptools, "setup", lambda ext_modules, **_: extensions.extend(ext_modules)
    )
    monkeypatch.chdir(SETUP.parent)
    runpy.run_path(str(SETUP))
    source, library = tmp_path / "throws.cpp", tmp_path / "throws.so"
    source.write_text(THROWS)
    arguments = extensions[0].extra_link_args if shared else []
    command = ["c++", "-shared", "-fPIC", "-static-libstdc++", source, *arguments, "-o", library]
    subprocess.run(command, check=True)
    assert defines(library, "__cxa_throw") is not shared
