"""The native launcher passes a driver what Triton's kernels expect. The driver is one of our own,
in a process of its own."""

import subprocess
import sys

DRIVER = r"""
#include <stdint.h>
#include <string.h>
int programs, threads, shared, attribute;
uint64_t cells[4];
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)image;
  return strcmp(image, "code");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = (void *)7;
  return strcmp(name, "kernel");
}
int cuFuncSetAttribute(void *function, int which, int value) {
  attribute = which == 8 ? value : -1;
  return 0;
}
int cuCtxGetCurrent(void **context) { return *context = (void *)1, 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return 0; }
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned t, unsigned ty,
                   unsigned tz, unsigned s, void *stream, void **arguments, void **extra) {
  programs = x * y * z, threads = t * ty * tz, shared = s;
  for (int i = 0; i < 4; ++i) cells[i] = *(uint64_t *)arguments[i];
  return function != (void *)7 || stream != 0 || extra != 0;
}
"""

PROGRAM = r"""
import ctypes, sys, torch
from pliant._native import Launcher, cuda_driver, cuda_load

try:
    cuda_driver("/nowhere/libcuda.so")
    cuda_load(b"code", "kernel", 0, 0)
except RuntimeError as error:
    assert "the CUDA driver can't be loaded" in str(error)
cuda_driver(sys.argv[1])
driver, asked = ctypes.CDLL(sys.argv[1]), []

def make(wide, multiples, columns):
    asked.append((wide, multiples, columns))
    return cuda_load(b"code", "kernel", 64 << 10, 0), 128, 64 << 10, 2, 16

# As many outer iterations as the tensor has rows; one argument, one bound.
steps = [
    ("read", 2, 0, "stride", 0),
    ("cuda_kernel", 0, (0, -1), (), 0, 0, 1, 2, 0, False),
]
symbols = [(0, "size", 0), (0, "size", 1)]
for by_rows, programs in ((False, 3 * 2 * 3), (True, 3 * 2)):
    kernel = (by_rows, [False], make)
    launcher = Launcher(1, symbols, steps, [], (), None, (), (kernel,))
    x = torch.zeros(3, 33)
    for _ in range(2):
        launcher(x)
    value = lambda name: ctypes.c_int.in_dll(driver, name).value
    assert (value("programs"), value("threads")) == (programs, 128), value("programs")
    assert value("shared") == value("attribute") == 64 << 10
    cells = list((ctypes.c_uint64 * 4).in_dll(driver, "cells"))
    assert cells == [x.data_ptr(), 33, 0, 0], cells
    y = torch.zeros(3 * 64 + 1)[1:].view(3, 64)
    launcher(y)
    launcher(torch.zeros(0, 5))
    assert asked == [(False, 1, 64), (False, 2, 64)], asked
    asked.clear()
print("done")
"""


def test_what_a_kernel_is_launched_with(tmp_path):
    source, library = tmp_path / "driver.c", tmp_path / "libdriver.so"
    source.write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, library], check=False, capture_output=True, text=True
    )
    assert ran.stdout == "done\n", ran.stderr
