"""A program of its own: compiles functions for a GPU of compute capability 9.0, which isn't there,
and prints what the driver would be given. `--without-triton`: any import of Triton fails."""

import hashlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec

import torch
import torch.nn.functional as F

import pliant
from pliant.backends import llvm
from pliant.backends.own_backend import OwnBackend
from pliant.graph import aliases
from pliant.targets.triton import launch
from pliant.targets.triton.target import TritonTarget

META = torch.device("meta")


class Missing(MetaPathFinder, Loader):
    """Triton is there for who looks, but can't be imported."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name.partition(".")[0] == "triton" else None

    def create_module(self, spec):
        raise ImportError(f"{spec.name} is not to be imported")


class WithoutDevice(TritonTarget):
    """Kernels are compiled, and given to nobody."""

    launch_step = "cuda_kernel"

    def _handle(self, kernel, source):
        kernel.variant(True, 0, 1 << 14, True)  # long rows, indices of 64 bits, nothing aligned
        return super()._handle(kernel, source)


@OwnBackend
def backend(gm, examples, shapes, options):
    llvm.compile_for(lambda *_: WithoutDevice(META), gm, examples, shapes, options)
    return gm.forward


def load(binary, name, shared, device):
    print(name, shared, device, len(binary), hashlib.sha256(binary).hexdigest())
    return 7


FUNCTIONS = {
    "softmax": (lambda x: torch.softmax(x * 2, -1), (torch.empty(6, 80, device=META),)),
    "quantized": (
        lambda x: (x / x.abs().amax(1, True)).to(torch.float8_e4m3fn),
        (torch.empty(6, 80, device=META),),
    ),
    "asserted": (
        lambda i, x: F.embedding(i, x) + 1,
        (torch.zeros(3, dtype=torch.long, device=META), torch.empty(6, 80, device=META)),
    ),
    "scan": (lambda x: x.cumsum(1), (torch.empty(6, 80, device=META),)),
}


def main():
    if "--without-triton" in sys.argv:
        sys.meta_path.insert(0, Missing())
    torch.cuda.get_device_capability = lambda place: (9, 0)
    torch.cuda.current_device = lambda: 0
    launch.cuda_load = load
    aliases.DEVICES = {*aliases.DEVICES, "meta"}
    for name, (function, args) in FUNCTIONS.items():
        print(name)
        pliant.compile(function, backend=backend, fullgraph=True)(*args)
    assert not pliant.counters["failed_kernels"] and not pliant.counters["not_generated"]
    info = pliant.cache.info()
    print(info.hits, info.misses, info.stored, info.entries, "triton" in sys.modules)


if __name__ == "__main__":
    main()
