"""The native extension; everything else is declared in pyproject.toml."""

import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

# The metadata of this tree, once made, names pliant as an extension of torch. What is being built
# must not be loaded for that.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

HERE = Path(__file__).parent

# torch's headers are given as system headers, so that warnings are about our code only.
SYSTEM = [f"-isystem{path}" for path in include_paths()]
FLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
# Compiled for OpenMP, but not linked with it: the threads are those of torch's own copy. Some
# versions of GCC wrongly take torch's small vectors for uninitialised.
FLAGS += ["-fopenmp", "-Wno-maybe-uninitialized"]
SANITIZERS = os.environ.get("PLIANT_SANITIZE")  # `address,undefined`: tools/sanitize.py
if SANITIZERS:
    # Not the classes of objects (vptr): torch keeps what that would look at to itself.
    FLAGS += [f"-fsanitize={SANITIZERS}", "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]
    FLAGS += ["-fno-omit-frame-pointer", "-g1", "-O1", "-Wno-error"]


def loaded_library(name: str) -> list[str]:
    """The file of a shared library that importing torch has loaded."""
    with open("/proc/self/maps") as maps:
        paths = (line.split()[-1] for line in maps)
        return sorted({path for path in paths if Path(path).name.startswith(name)})[:1]


# Some compilers (conda's, vendors' tool chains) link their own static copy of the C++ runtime. Two
# copies in one process don't understand each other's exceptions and streams, and torch's errors
# would end the process. So the copy that torch uses is named first; a static one that follows
# gives only what it lacks.
RUNTIME = loaded_library("libstdc++.so")

native = CppExtension(
    "pliant._native",
    sources=sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.cpp")),
    depends=sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.h")),
    extra_compile_args=[*SYSTEM, *FLAGS],
    extra_link_args=[*RUNTIME, *([f"-fsanitize={SANITIZERS}"] if SANITIZERS else [])],
)
native.include_dirs = []


def compile_in_parallel(compile_sources, sources, **arguments):
    """Compile each source in a process of its own. `MAX_JOBS` limits how many run at once, as it
    does for ninja: PyTorch's headers take about a gigabyte of memory in each."""
    jobs = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
    with ThreadPoolExecutor(jobs) as pool:
        compiled = pool.map(lambda source: compile_sources([source], **arguments), sources)
        return [file for files in compiled for file in files]


class Build(BuildExtension):
    """torch's own, without ninja, which would be one more thing to install."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, use_ninja=False, **kwargs)

    def build_extensions(self):
        compiler = os.environ.get("CXX", "c++").split()[0]
        if shutil.which(compiler) is None:
            sys.exit(
                f"pliant's extension is in C++, and there is no compiler `{compiler}`. Install "
                "one (Debian: apt install g++; Fedora: dnf install gcc-c++), or install a wheel of "
                "pliant, which needs none."
            )
        self.compiler.compile = partial(compile_in_parallel, self.compiler.compile)
        super().build_extensions()


setup(ext_modules=[native], cmdclass={"build_ext": Build})
