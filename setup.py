"""The native extension; everything else is declared in pyproject.toml."""

from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

HERE = Path(__file__).parent

# torch's headers are given as system headers, so that warnings are about our code only.
SYSTEM = [f"-isystem{path}" for path in include_paths()]
FLAGS = ["-std=c++20", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
# Compiled for OpenMP, but not linked with it: the threads are those of torch's own copy. Some
# versions of GCC wrongly take torch's small vectors for uninitialised.
FLAGS += ["-fopenmp", "-Wno-maybe-uninitialized"]

native = CppExtension(
    "pliant._native",
    sources=sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.cpp")),
    depends=sorted(str(path.relative_to(HERE)) for path in HERE.glob("csrc/*.h")),
    extra_compile_args=[*SYSTEM, *FLAGS],
)
native.include_dirs = []

setup(ext_modules=[native], cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)})
