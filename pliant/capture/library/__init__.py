"""Knowledge of code that can't be followed, by subject: the language (`python`), the standard
library (`stdlib`), PyTorch (`torch`), NumPy (`numpy`) and other packages (`packages`).

Importing this package fills the tables of `native`. A module that registers handlers stands in one
of the lists below, and nowhere else.
"""

from functools import partial
from importlib import import_module

from pliant.capture.native import LATE

# In this order: a later module may replace or extend a handler of an earlier one.
MODULES = (
    "python.builtins",
    "python.buffers",
    "python.class_bodies",
    "python.classes",
    "python.dict_views",
    "python.evaluation",
    "python.exception_groups",
    "python.exceptions",
    "python.frames",
    "python.functions",
    "python.identities",
    "python.iteration",
    "python.mappings",
    "python.native_objects",
    "python.numbers",
    "python.objects",
    "python.pattern_matching",
    "python.printing",
    "python.sequences",
    "python.sets",
    "python.strings",
    "python.symbolic_numbers",
    "stdlib.context_variables",
    "stdlib.copying",
    "stdlib.counters",
    "stdlib.dates",
    "stdlib.deques",
    "stdlib.functional",
    "stdlib.hashes",
    "stdlib.heapq_bisect",
    "stdlib.interpreter",
    "stdlib.logs",
    "stdlib.lru_caches",
    "stdlib.pure_functions",
    "stdlib.random_numbers",
    "stdlib.regular_expressions",
    "stdlib.serialization",
    "stdlib.structs",
    "stdlib.threads",
    "stdlib.type_variables",
    "stdlib.warnings",
    "stdlib.weak_references",
    "torch.addresses",
    "torch.backward",
    "torch.compiled_modules",
    "torch.control_flow",
    "torch.custom_functions",
    "torch.devices",
    "torch.directives",
    "torch.flex_attention",
    "torch.forward_ad",
    "torch.graph_objects",
    "torch.grad_scaler",
    "torch.lazy_modules",
    "torch.module_hooks",
    "torch.parameters",
    "torch.pytrees",
    "torch.random_state",
    "torch.required_gradients",
    "torch.shortcuts",
    "torch.storages",
    "torch.symbolic_functions",
    "torch.tensor_data",
    "torch.tensor_hooks",
    "torch.tensor_subclasses",
    "torch.torch_function",
    "torch.subgraph_operators",
    "torch.transforms",
    "torch.wrapper_objects",
    "numpy.arrays",
    "numpy.scalars",
    "numpy.ufunc_methods",
)
# Those of packages that not every program imports wait until it has. Their `register` fills the
# tables.
LATE_MODULES = {
    "decimal": "stdlib.decimals",
    "numpy.random": "numpy.generators",
    "optree": "packages.optree",
    "triton": "packages.triton_kernels",
}


def _register(module: str) -> None:
    import_module(f"pliant.capture.library.{module}").register()


for _module in MODULES:
    import_module(f"pliant.capture.library.{_module}")
for _package, _module in LATE_MODULES.items():
    LATE[_package].append(partial(_register, _module))
